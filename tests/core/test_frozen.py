"""What judges the code is frozen while code is written; a test-writer may change nothing else."""

from __future__ import annotations

import pytest

from capsule.core.detection import ANY_TESTS, TreeFiles
from capsule.core.evidence import Colour
from capsule.core.frozen import Judges, inner_tests, is_in_tests, reach, sources_alone
from capsule.core.test_runs import colour_of

Files = dict[str, str]


def snapshot(files: Files) -> TreeFiles:
    return TreeFiles(frozenset(files), lambda path: files.get(path, ""))


def judges(before: Files, now: Files, command: str = "make test", collected: tuple[str, ...] = ()) -> Judges:
    return Judges(ANY_TESTS, command, snapshot(before), snapshot(now), collected)


def frozen(path: str, command: str = "python3 -m pytest -q") -> str:
    """Say why a file that somebody adds to an empty project is frozen."""
    return judges({}, {path: "x"}, command).why_frozen(path)


TESTS = (
    *("tests/test_a.py", "test_a.py", "a_test.py", "conftest.py", "src/conftest.py", "tests/data/x.json"),
    *("a/tests/b.py", "pytest.toml", "shop/tests.py", "Tests/a.py", "test-a.js", "packages/a/test/b.js"),
    *("src/test/java/ATest.java", "core/src/test/resources/a.txt", "spec/a_spec.rb", "a.spec.ts", "a/b_test.go"),
    *("testdata/x", "golden/a.txt", "a/__snapshots__/b.snap", ".mocharc.yml", "jest.config.js", "vitest.config.ts"),
    *("unittest.py", "unittest/__init__.py", "pytest.py", "_pytest/__init__.py", "sitecustomize.py"),
    *("usercustomize.py", "difflib.py", "src/random.py", "traceback/__init__.py", "pluggy.py", "go.work"),
    *("calc-1.0.dist-info/entry_points.txt", "a/calc.egg-info/PKG-INFO", "a.pth", "phpunit.xml.dist"),
)
CODE = (
    *("src/app/unittest.py", "unittest_helpers.py", "src/app.py", "contest.py", "README.md", "testing/app.py"),
    *("src/latest.py", "protests/x.py", "src/app/types.py", "vendor/bound/tests/test_a.py", "random.js", "attest.js"),
    *("node_modules/a/test/b.js", "third_party/a/conftest.py", "src/main/java/A.java", "a.go"),
)


@pytest.mark.promise("evidence.what-runs-is-frozen")
@pytest.mark.parametrize("path", TESTS)
def test_tests_their_data_their_settings_and_stand_ins_are_frozen(path: str) -> None:
    assert frozen(path)


@pytest.mark.parametrize("path", CODE)
def test_code_is_not(path: str) -> None:
    assert not frozen(path)


CHECK = "set -e\npython3 -m unittest\n"
REACHED: dict[str, tuple[str, Files, set[str]]] = {
    "a script": ("sh check.sh", {"check.sh": ""}, {"check.sh"}),
    "a script that is started": ("set -e; ./ci/check --fast", {"ci/check": ""}, {"ci/check"}),
    "an option's file": ("run --rc=ci.rc 'other.rc'", {"ci.rc": "", "other.rc": ""}, {"ci.rc", "other.rc"}),
    "a script in a folder": (
        "cd web && sh check.sh",
        {"web/check.sh": "", "check.sh": ""},
        {"web/check.sh", "check.sh"},
    ),
    "what make runs": (
        "make test",
        {"Makefile": "test: a.c\n\t@./ci.sh\n", "ci.sh": "", "a.c": ""},
        {"Makefile", "ci.sh"},
    ),
    "one of two targets": ("make check", {"Makefile": "all check:\n\t-sh ci.sh", "ci.sh": ""}, {"Makefile", "ci.sh"}),
    "a target's target": (
        "make test",
        {"Makefile": "test: unit\nunit:\n\tsh ci.sh\n", "ci.sh": ""},
        {"Makefile", "ci.sh"},
    ),
    "make, by make": (
        "make test",
        {"Makefile": "test:\n\t$(MAKE) unit\nunit:\n\tsh ci.sh\n", "ci.sh": ""},
        {"Makefile", "ci.sh"},
    ),
    "make elsewhere": (
        "make -C sub test",
        {"sub/Makefile": "test:\n\tsh ci.sh\n", "sub/ci.sh": "", "ci.sh": ""},
        {"sub/Makefile", "sub/ci.sh", "ci.sh"},
    ),
    "not what make does else": (
        "make test",
        {"Makefile": "test:\n\ttrue\nrun:\n\tsh run.sh\n", "run.sh": ""},
        {"Makefile"},
    ),
    "an included makefile": (
        "make test",
        {"Makefile": "include rules.mk\ntest:\n\t$(RUN)\n", "rules.mk": "include more.mk\n", "more.mk": ""},
        {"Makefile", "rules.mk", "more.mk"},
    ),
    "a script in a variable": (
        "make test",
        {"Makefile": "R = sh a.sh\ntest:\n\t$(R)\n", "a.sh": ""},
        {"Makefile", "a.sh"},
    ),
    "three steps": (
        "make test",
        {
            "Makefile": "test:\n\tsh a.sh\n",
            "a.sh": ". ./b.sh\n",
            "b.sh": "python3 c.py\n",
            "c.py": "run('d.sh')\n",
            "d.sh": "",
        },
        {"Makefile", "a.sh", "b.sh", "c.py", "d.sh"},
    ),
    "what npm runs": (
        "npm test",
        {"package.json": '{"scripts": {"test": "node ci.js"}}', "ci.js": "", ".npmrc": ""},
        {"package.json", "ci.js", ".npmrc"},
    ),
    "a script of a script": (
        "npm test",
        {"package.json": '{"scripts": {"test": "npm run unit", "unit": "sh ci.sh"}}', "ci.sh": ""},
        {"package.json", "ci.sh"},
    ),
    "npm's broken file": ("npm test", {"package.json": "{"}, {"package.json"}),
    "a module that is run": ("python3 -m ci.all", {"ci/all.py": "", "ci/other.py": ""}, {"ci/all.py"}),
    "a package that is run": ("python3 -m ci", {"ci/__main__.py": ""}, {"ci/__main__.py"}),
    "not what is compiled": ("cc -o t tests/t.c calc.c && ./t", {"calc.c": "", "calc.h": ""}, set()),
    "not what is linted": ("ruff check app.py && sh t.sh", {"app.py": "", "t.sh": ""}, {"t.sh"}),
    "no folder": ("python3 -m unittest discover -s tests", {"tests/test_a.py": "", "Makefile": ""}, set()),
    "not what a script looks at": ("sh a.sh", {"a.sh": "grep -q hi hello\n", "hello": ""}, {"a.sh"}),
    "what npm starts by make": (
        "make test",
        {
            "Makefile": "test:\n\tnpm run all\nunit:\n\tsh b.sh\n",
            "package.json": '{"scripts": {"all": "make unit"}}',
            "b.sh": "",
        },
        {"Makefile", "package.json", "b.sh"},
    ),
    "not what a comment names": ("sh a.sh", {"a.sh": "# see b.sh\n", "b.sh": ""}, {"a.sh"}),
    "no command": ("", {"Makefile": "", "a": ""}, set()),
}


@pytest.mark.promise("evidence.what-runs-is-frozen")
@pytest.mark.parametrize(("command", "files", "reached"), REACHED.values(), ids=REACHED.keys())
def test_what_the_test_command_reaches(command: str, files: Files, reached: set[str]) -> None:
    assert reach(command, snapshot(files)).files == reached


def test_a_script_of_the_command_is_frozen_under_globs_of_ones_own() -> None:
    before, now = {"ci/a.sh": CHECK, "app.py": ""}, {"ci/a.sh": "true\n", "app.py": "x"}
    own = Judges(("tests/**",), "sh ci/a.sh", snapshot(before), snapshot(now))
    assert own.why_frozen("ci/a.sh") == "the test command runs it"
    assert own.why_frozen("conftest.py") == "a test file"
    assert not own.why_frozen("app.py")


def test_a_path_that_the_settings_take_out_is_code() -> None:
    before, now = {"app.py": "1", "tests/a.py": ""}, {"app.py": "2", "tests/a.py": ""}
    assert judges(before, now, "python3 app.py --self-test").why_frozen("app.py")
    own = Judges((*ANY_TESTS, "!app.py"), "python3 app.py --self-test", snapshot(before), snapshot(now))
    assert not own.why_frozen("app.py")


HELPER = "def same(seen, expected):\n    assert seen == expected\n"
PROJECT = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "checks.py": HELPER,
    "tests/test_a.py": "import calc\nfrom checks import same\nPath('data') / 'report.txt'\n",
    "data/report.txt": "5\n",
    "Makefile": "test:\n\tpython3 -m pytest\n",
}


@pytest.mark.promise("evidence.what-runs-is-frozen")
@pytest.mark.parametrize("path", ["checks.py", "data/report.txt"])
def test_what_only_tests_use_is_frozen(path: str) -> None:
    assert judges(PROJECT, {**PROJECT, path: "other"}).why_frozen(path) == "only tests use it"


@pytest.mark.parametrize("path", ["checks.py", "data/report.txt"])
def test_what_code_uses_too_is_not(path: str) -> None:
    used = {**PROJECT, "app.py": "import checks\nopen('report.txt')\n"}
    assert not judges(used, {**used, path: "other"}).why_frozen(path)


def test_the_code_under_test_is_not_frozen_although_only_tests_import_it() -> None:
    assert not judges(PROJECT, {**PROJECT, "calc.py": "other"}).why_frozen("calc.py")


def test_code_that_tests_ask_for_may_be_added() -> None:
    before = {"tests/test_a.py": "import checks\n"}
    assert not judges(before, {**before, "checks.py": HELPER}).why_frozen("checks.py")


def test_what_the_runner_collected_is_frozen_whatever_its_name() -> None:
    files = {"shop/proofs.py": "import unittest\n", "shop/calc.py": ""}
    found = judges(files, {"shop/proofs.py": "", "shop/calc.py": "x"}, "./run", ("shop/proofs.py", "gone.py"))
    assert found.why_frozen("shop/proofs.py") == "the test runner collects it"
    assert not found.why_frozen("shop/calc.py")
    assert not found.why_frozen("gone.py")


def test_a_nested_module_is_frozen_where_it_takes_tests_out_of_the_run() -> None:
    files = {"go.mod": "module x\n", "calc/calc.go": "", "calc/calc_test.go": ""}
    now = {**files, "calc/go.mod": "module y\n", "tools/go.mod": "module z\n"}
    found = judges(files, now, "go test ./...")
    assert [bool(found.why_frozen(path)) for path in ("calc/go.mod", "tools/go.mod")] == [True, False]


def test_a_makefile_is_shared_where_make_is_not_the_test_command() -> None:
    before = {"Makefile": "test:\n\tpytest\n"}
    now = {"Makefile": "test:\n\ttrue\n"}
    assert judges(before, now, "make test").why_frozen("Makefile")
    assert not judges(before, now, "python3 -m pytest").why_frozen("Makefile")


def test_a_module_of_a_standard_name_that_was_there_before_is_code() -> None:
    assert not judges({"calendar.py": ""}, {"calendar.py": "x"}).why_frozen("calendar.py")
    assert judges({"unittest.py": ""}, {"unittest.py": "x"}).why_frozen("unittest.py")


RUST = """\
pub fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds() {
        assert_eq!(add(2, 3), 5);
    }
}
"""
RUST_BENT = {
    "weakened": RUST.replace("(2, 3), 5", "(2, 0), 2"),
    "ignored": RUST.replace("#[test]", "#[test]\n    #[ignore]"),
    "expected to panic": RUST.replace("#[test]", "#[test]\n    #[should_panic]"),
    "not compiled": RUST.replace("cfg(test)", 'cfg(all(test, feature = "x"))'),
    "shadowed": RUST.replace("use super::*;", "fn add(a: i64, b: i64) -> i64 { a + b }"),
    "gone": RUST.partition("#[cfg")[0],
}


@pytest.mark.promise("evidence.tests-in-sources")
@pytest.mark.parametrize("text", RUST_BENT.values(), ids=RUST_BENT.keys())
def test_inner_tests_of_a_source_are_frozen_by_their_text(text: str) -> None:
    assert judges({"src/lib.rs": RUST}, {"src/lib.rs": text}, "cargo test").why_frozen("src/lib.rs") == "tests in it"


@pytest.mark.promise("evidence.tests-in-sources")
def test_the_code_around_them_is_not() -> None:
    text = RUST.replace("a + b", "b + a").replace("#[cfg", "pub fn one() -> i64 {\n    1\n}\n\n#[cfg")
    found = judges({"src/lib.rs": RUST}, {"src/lib.rs": text}, "cargo test")
    assert not found.why_frozen("src/lib.rs")
    assert not found.is_for_tests("src/lib.rs")
    assert found.is_source("src/lib.rs")


def test_a_test_writer_may_write_tests_into_a_source() -> None:
    text = RUST.replace("    #[test]", "    #[test]\n    fn more() {}\n\n    #[test]")
    assert judges({"src/lib.rs": RUST}, {"src/lib.rs": text}, "cargo test").is_for_tests("src/lib.rs")
    assert sources_alone("src/lib.rs", RUST) == sources_alone("src/lib.rs", text)


def test_a_place_in_the_tests_of_a_source_is_known() -> None:
    places = RUST.index("a + b"), RUST.index("assert_eq")
    assert [is_in_tests("src/lib.rs", RUST.encode(), place) for place in places] == [False, True]


DOCTEST = 'def add(a, b):\n    """Add.\n\n    >>> add(1, 2)\n    3\n    """\n    return a + b\n'


@pytest.mark.promise("evidence.tests-in-sources")
def test_examples_that_run_as_tests_are_frozen() -> None:
    files = {"calc.py": DOCTEST, "app.py": "import calc\n"}
    for bent, is_frozen in (("    3\n", True), ("return a + b", False), ("    >>> add(1, 2)\n    3\n", True)):
        now = {**files, "calc.py": DOCTEST.replace(bent, "pass\n")}
        found = judges(files, now, "python3 -m pytest --doctest-modules", ("calc.py",))
        assert bool(found.why_frozen("calc.py")) is is_frozen


def test_examples_of_rust_are_inner_tests() -> None:
    assert inner_tests("a.rs", "/// Adds.\n/// ```\n/// assert_eq!(add(1, 2), 3);\n/// ```\npub fn add() {}\n")


MAY: dict[str, tuple[Files, Files, str]] = {
    "a test": ({}, {"tests/test_b.py": "x"}, "tests/test_b.py"),
    "a golden file": ({}, {"golden/a.txt": "x"}, "golden/a.txt"),
    "a helper": ({}, {"checks.py": HELPER, "tests/test_b.py": "from checks import same\n"}, "checks.py"),
    "data of a test": ({}, {"data/b.json": "x", "tests/test_b.py": "'b.json'"}, "data/b.json"),
    "a dependency of tests": ({}, {"requirements-dev.txt": "x"}, "requirements-dev.txt"),
    "a test in cmake": ({}, {"CMakeLists.txt": "add_test(NAME a COMMAND a)\n"}, "CMakeLists.txt"),
}
MAY_NOT: dict[str, tuple[Files, Files, str]] = {
    "code": ({}, {"calc.py": "x"}, "calc.py"),
    "code that a test imports": ({}, {"calc.py": "def a(): return 1\n", "tests/test_b.py": "import calc\n"}, "calc.py"),
    "a stand-in": ({}, {"tests/random.py": "x", "tests/test_a.py": "x"}, "unittest.py"),
    "a plugin": ({}, {"a.dist-info/entry_points.txt": ""}, "a.dist-info/entry_points.txt"),
}


@pytest.mark.promise("evidence.tests-need-things")
@pytest.mark.parametrize(("before", "now", "path"), MAY.values(), ids=MAY.keys())
def test_a_test_writer_may_add_what_tests_need(before: Files, now: Files, path: str) -> None:
    assert judges(before, now).is_for_tests(path)


@pytest.mark.parametrize(("before", "now", "path"), MAY_NOT.values(), ids=MAY_NOT.keys())
def test_a_test_writer_may_not_add_code(before: Files, now: Files, path: str) -> None:
    assert not judges(before, now).is_for_tests(path)


@pytest.mark.parametrize(
    ("command", "path", "text", "behind"),
    [
        ("composer test", "composer.json", '{"scripts": {"test": ["@php vendor/bin/phpunit"]}}', "vendor/bin/phpunit"),
        ("deno task test", "deno.json", '{"tasks": {"test": "deno test -A"}}', "deno test -A"),
        ("just test", "justfile", "test:\n    go test ./...\n", "go test"),
    ],
)
def test_what_a_runner_of_tasks_starts_is_known(command: str, path: str, text: str, behind: str) -> None:
    found = reach(command, snapshot({path: text})).text
    assert behind in found
    assert colour_of("exited", 0, "", found) is Colour.EMPTY
