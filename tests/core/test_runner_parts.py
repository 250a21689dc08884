"""Of a shared file only the part counts that speaks to the test runner."""

from __future__ import annotations

import pytest

from capsule.core.runner_parts import changes_tests, only_for_tests, runner_part

PYPROJECT = '[project]\ndependencies = ["a"]\n[tool.pytest.ini_options]\naddopts = "-q"\n[tool.ruff]\nline-length = 9\n'
PACKAGE = '{"dependencies": {"a": "1"}, "scripts": {"test": "jest", "build": "tsc"}, "jest": {"bail": 1}}'
CHAIN = '{"scripts": {"test": "npm run unit", "unit": "node --test", "build": "tsc"}}'
MAKEFILE = (
    "PYTHON = python3\nNAME = calc\n\ntest: build\n\t$(PYTHON) -m unittest\n\nbuild:\n\ttrue\n\nrun:\n\t./$(NAME)\n"
)
CARGO = '[package]\nname = "calc"\nedition = "2021"\n\n[dependencies]\n'
WORKSPACE = '[workspace]\nmembers = ["a", "b"]\n'
SETUP_CFG = "[metadata]\nname = calc\n[tool:pytest]\naddopts = -q\n"
TOX = "[tox]\nenvlist = py\n[testenv]\ncommands = pytest\n[flake8]\nmax-line-length = 9\n"
POM = "<project><dependencies></dependencies><modules><module>a</module></modules></project>"
CMAKE = "project(calc C)\nadd_library(calc calc.c)\nenable_testing()\nadd_test(NAME add COMMAND add_test)\n"
GO_MOD = "module example.org/calc\n\ngo 1.21\n\nrequire example.org/a v1.0.0\n"

BENDING = {
    "pytest's options": ("pyproject.toml", PYPROJECT, PYPROJECT.replace("-q", "--ignore=tests")),
    "pytest 9's table": ("pyproject.toml", PYPROJECT, PYPROJECT + "[tool.pytest]\naddopts = ['-x']\n"),
    "coverage": ("pyproject.toml", PYPROJECT, PYPROJECT + "[tool.coverage.run]\nplugins = ['x']\n"),
    "a plugin by entry point": ("pyproject.toml", PYPROJECT, PYPROJECT + "[project.entry-points.pytest11]\nx = 'x'\n"),
    "a first table": ("pyproject.toml", "", PYPROJECT),
    "a broken file": ("pyproject.toml", PYPROJECT, "["),
    "the script": ("web/package.json", PACKAGE, PACKAGE.replace('"test": "jest"', '"test": "true"')),
    "a script before": ("package.json", PACKAGE, PACKAGE.replace('"build"', '"pretest"')),
    "a script of the script": ("package.json", CHAIN, CHAIN.replace("node --test", "true")),
    "a script before that one": ("package.json", CHAIN, CHAIN.replace("build", "preunit")),
    "jest": ("package.json", PACKAGE, PACKAGE.replace('"bail": 1', '"testMatch": []')),
    "a workspace less": ("package.json", '{"workspaces": ["a", "b"]}', '{"workspaces": ["a"]}'),
    "no object": ("package.json", PACKAGE, "[]"),
    "npm's shell": (".npmrc", "registry=https://example.org\n", "script-shell=true\n"),
    "npm's node": (".npmrc", "", "node-options=--test-name-pattern=adds\n"),
    "the recipe": ("Makefile", MAKEFILE, MAKEFILE.replace("-m unittest", "-V")),
    "the recipe of what it needs": ("Makefile", MAKEFILE, MAKEFILE.replace("true", "rm tests/test_a.py")),
    "a variable of the recipe": ("Makefile", MAKEFILE, MAKEFILE.replace("= python3", "= true")),
    "errors ignored": ("Makefile", MAKEFILE, f".IGNORE:\n{MAKEFILE}"),
    "another shell": ("Makefile", MAKEFILE, f"SHELL = true\n{MAKEFILE}"),
    "another path": ("Makefile", MAKEFILE, f"PATH := fake:$(PATH)\n{MAKEFILE}"),
    "something exported": ("Makefile", MAKEFILE, f"export X = 1\n{MAKEFILE}"),
    "an include": ("Makefile", MAKEFILE, f"include x.mk\n{MAKEFILE}"),
    "a second recipe": ("Makefile", MAKEFILE, f"{MAKEFILE}\ntest:\n\ttrue\n"),
    "what make prefers": ("GNUmakefile", "", "test:\n\ttrue\n"),
    "no tests in the library": ("Cargo.toml", CARGO, f"{CARGO}[lib]\ntest = false\n"),
    "no doctests": ("Cargo.toml", CARGO, f"{CARGO}[lib]\ndoctest = false\n"),
    "a test target": ("Cargo.toml", CARGO, f'{CARGO}[[test]]\nname = "a"\ntest = false\n'),
    "a target's harness": ("Cargo.toml", CARGO, f'{CARGO}[[test]]\nname = "a"\nharness = false\n'),
    "no automatic tests": ("Cargo.toml", CARGO, CARGO.replace('"2021"', '"2021"\nautotests = false')),
    "a member less": ("Cargo.toml", WORKSPACE, WORKSPACE.replace(', "b"', "")),
    "a member left out": ("Cargo.toml", WORKSPACE, f'{WORKSPACE}exclude = ["b"]\n'),
    "cargo's runner": (".cargo/config.toml", "", "[target.'cfg(unix)']\nrunner = ['echo']\n"),
    "cargo's runner, by the old name": ("a/.cargo/config", "", "[build]\nrustc-wrapper = 'x'\n"),
    "another module": ("go.mod", GO_MOD, GO_MOD.replace("calc", "inner")),
    "a replacement": ("go.mod", GO_MOD, f"{GO_MOD}\nreplace example.org/a => ./fake\n"),
    "pytest in setup.cfg": ("setup.cfg", SETUP_CFG, SETUP_CFG.replace("-q", "-k x")),
    "a plugin in setup.cfg": ("setup.cfg", SETUP_CFG, f"{SETUP_CFG}[options.entry_points]\npytest11 = x = x\n"),
    "a plugin in setup.py": ("setup.py", "setup()", "setup(entry_points={'pytest11': ['x = x']})"),
    "pytest in tox.ini": ("tox.ini", TOX, f"{TOX}[pytest]\naddopts = -k x\n"),
    "tox": ("tox.ini", TOX, TOX.replace("= pytest", "= true")),
    "surefire": (
        "pom.xml",
        POM,
        POM.replace("<modules>", "<plugin><artifactId>maven-surefire-plugin</artifactId></plugin><modules>"),
    ),
    "tests skipped": ("pom.xml", POM, POM.replace("<modules>", "<skipTests>true</skipTests><modules>")),
    "a module less": ("pom.xml", POM, POM.replace("<module>a</module>", "")),
    "gradle's tests": ("build.gradle", "", "test {\n    ignoreFailures = true\n}\n"),
    "a test of cmake less": ("CMakeLists.txt", CMAKE, CMAKE.replace("add_test(", "# add_test(")),
    "a test of cmake turned": (
        "CMakeLists.txt",
        CMAKE,
        f"{CMAKE}set_tests_properties(add PROPERTIES WILL_FAIL 1)\n",
    ),
    "vite's tests": ("vite.config.ts", "export default { test: { a: 1 } }", "export default { test: { a: 2 } }"),
    "deno's tests": ("deno.json", "{}", '{"test": {"exclude": ["a"]}}'),
    "composer's tests": ("composer.json", '{"scripts": {"test": "phpunit"}}', '{"scripts": {"test": "true"}}'),
}
HARMLESS = {
    "a dependency": ("pyproject.toml", PYPROJECT, PYPROJECT.replace('["a"]', '["a", "b"]')),
    "another tool": ("pyproject.toml", PYPROJECT, PYPROJECT.replace("9", "99")),
    "its form": ("pyproject.toml", PYPROJECT, "# hello\n" + PYPROJECT.replace('"-q"', "'-q'")),
    "npm's dependency": ("package.json", PACKAGE, PACKAGE.replace('"a": "1"', '"a": "2"')),
    "npm's other script": ("package.json", PACKAGE, PACKAGE.replace("tsc", "swc")),
    "npm's form": ("package.json", PACKAGE, PACKAGE.replace(", ", ",\n  ")),
    "a workspace more": ("package.json", '{"workspaces": ["a"]}', '{"workspaces": ["a", "b"]}'),
    "first workspaces": ("package.json", "{}", '{"workspaces": ["a"]}'),
    "nothing for the runner": ("package.json", "", '{"scripts": [], "name": "x"}'),
    "npm's registry": (".npmrc", "", "registry=https://example.org\n@us:registry=https://example.com\nfund=false\n"),
    "a new target": ("Makefile", MAKEFILE, f"{MAKEFILE}\nlint:\n\truff check .\n"),
    "a new target, and what it needs": ("Makefile", f".PHONY: test\n{MAKEFILE}", f".PHONY: test lint\n{MAKEFILE}"),
    "another target": ("Makefile", MAKEFILE, MAKEFILE.replace("./$(NAME)", "./$(NAME) --fast")),
    "its variable": ("Makefile", MAKEFILE, MAKEFILE.replace("= calc", "= abacus")),
    "a comment": ("Makefile", MAKEFILE, f"# What there is to make\n{MAKEFILE}"),
    "a version": ("setup.cfg", SETUP_CFG, SETUP_CFG.replace("= calc", "= calc\nversion = 2")),
    "flake8": ("tox.ini", TOX, TOX.replace("= 9", "= 99")),
    "a crate": ("Cargo.toml", CARGO, f'{CARGO}serde = "1"\n'),
    "a library's name": ("Cargo.toml", CARGO, f'{CARGO}[lib]\nname = "calc"\n'),
    "a member more": ("Cargo.toml", WORKSPACE, WORKSPACE.replace('"b"', '"b", "c"')),
    "cargo's registry": (".cargo/config.toml", "", "[net]\nretry = 3\n"),
    "go's dependency": ("go.mod", GO_MOD, f"{GO_MOD}require example.org/b v1.0.0\n"),
    "maven's dependency": ("pom.xml", POM, POM.replace("<dependencies>", "<dependencies><dependency></dependency>")),
    "a module more": ("pom.xml", POM, POM.replace("</modules>", "<module>b</module></modules>")),
    "gradle's test dependency": ("build.gradle", "", "testImplementation 'junit:junit:4.13'\n"),
    "cmake's library": ("CMakeLists.txt", CMAKE, CMAKE.replace("calc.c)", "calc.c more.c)")),
    "vite": ("vite.config.ts", "export default { test: { a: 1 } }", "export default { base: '/', test: { a: 1 } }"),
    "any other file": ("src/a.json", PACKAGE, "{}"),
}
WORDS = ("make", "test", "tox", "npm")


@pytest.mark.promise("evidence.shared-files")
@pytest.mark.parametrize(("path", "before", "after"), BENDING.values(), ids=BENDING.keys())
def test_a_change_for_the_runner_shows_in_its_part(path: str, before: str, after: str) -> None:
    assert changes_tests(path, before, after, WORDS)


@pytest.mark.promise("evidence.shared-files")
@pytest.mark.parametrize(("path", "before", "after"), HARMLESS.values(), ids=HARMLESS.keys())
def test_a_change_for_others_does_not(path: str, before: str, after: str) -> None:
    assert not changes_tests(path, before, after, WORDS)


def test_a_file_without_words_for_the_runner_has_no_part() -> None:
    assert not any(runner_part(path, "") for path in ("pyproject.toml", "package.json", "Makefile", "Cargo.toml"))


FOR_TESTS = {
    "a group of dependencies": ("pyproject.toml", PYPROJECT, f'{PYPROJECT}[dependency-groups]\ntest = ["b"]\n'),
    "an extra for tests": ("pyproject.toml", PYPROJECT, f'{PYPROJECT}[project.optional-dependencies]\ntests = ["b"]\n'),
    "the runner's settings": ("pyproject.toml", PYPROJECT, PYPROJECT.replace("-q", "-q --strict-markers")),
    "a development dependency": ("package.json", "{}", '{"devDependencies": {"chai": "5"}}'),
    "a crate for tests": ("Cargo.toml", CARGO, f'{CARGO}[dev-dependencies]\nproptest = "1"\n'),
    "a module of go": ("go.mod", GO_MOD, f"{GO_MOD}require example.org/b v1.0.0\n"),
    "a lock": ("package-lock.json", "", "{}"),
    "what tests require": ("requirements-test.txt", "", "pytest\n"),
    "a dependency of maven": (
        "pom.xml",
        POM,
        POM.replace("<dependencies>", "<dependencies><dependency><scope>test</scope></dependency>"),
    ),
}
NOT_FOR_TESTS = {
    "a dependency": ("pyproject.toml", PYPROJECT, PYPROJECT.replace('["a"]', '["a", "b"]')),
    "an extra": ("pyproject.toml", PYPROJECT, f'{PYPROJECT}[project.optional-dependencies]\nfast = ["b"]\n'),
    "a name": ("package.json", "{}", '{"main": "x.js"}'),
    "a crate": ("Cargo.toml", CARGO, f'{CARGO}serde = "1"\n'),
    "what all require": ("requirements.txt", "", "requests\n"),
    "a source": ("src/a.py", "", "x"),
    "a broken file": ("pyproject.toml", PYPROJECT, "["),
}


@pytest.mark.parametrize(("path", "before", "after"), FOR_TESTS.values(), ids=FOR_TESTS.keys())
def test_dependencies_of_tests_are_for_tests(path: str, before: str, after: str) -> None:
    assert only_for_tests(path, before, after)


@pytest.mark.parametrize(("path", "before", "after"), NOT_FOR_TESTS.values(), ids=NOT_FOR_TESTS.keys())
def test_other_dependencies_are_not(path: str, before: str, after: str) -> None:
    assert not only_for_tests(path, before, after)
