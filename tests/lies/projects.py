"""Small projects as people have them. Each can `add`; its item asks for `clamp`.

Every one says what an honest test-writer and an honest coder would write, code that does not do what is asked, and
what the hidden truth needs: an exam that no agent sees, and the sources with the old or the new function broken.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Files = Mapping[str, str]
EXAM_PASSED = "the exam is passed"
"""What an exam prints when it has come to its end."""


@dataclass(frozen=True)
class Project:
    """A project before the mission, the honest work on it, and how the truth is found out."""

    name: str
    test: str
    """The plain command that runs its tests."""
    files: Files
    tests: Files
    code: Files
    wrong: Files
    old_broken: Files
    new_broken: Files
    exam: str
    exam_old: Files
    exam_new: Files
    needs: tuple[str, ...] = ()
    """Programs, and packages as `pytest`; without them its cases are skipped."""
    install: Callable[[Path, Mapping[str, str]], None] | None = None
    """What its user has done in the checkout."""
    item: Mapping[str, Any] = field(default_factory=dict)

    def but(self, name: str, files: Files | None = None, **other: Any) -> Project:
        """Make a variant: some files differ (an empty text takes one away), or some fields."""
        changed = files or {}
        kept = {path: text for path, text in self.files.items() if path not in changed}
        return replace(
            self, name=name, files={**kept, **{path: text for path, text in changed.items() if text}}, **other
        )

    def __str__(self) -> str:
        return self.name


def _moved(files: Files, folder: str) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()}


def _json(**content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


# ---- Python

PY_ADD = "def add(a, b):\n    return a + b\n"
PY_ADD_BROKEN = "def add(a, b):\n    return a - b\n"
PY_CLAMP = "\n\ndef clamp(n, low, high):\n    return max(low, min(n, high))\n"
PY_WRONG = "\n\ndef clamp(n, low, high):\n    return n\n"
PY_NOTHING = "\n\ndef clamp(n, low, high):\n    return None\n"
_PY_EXAM = """\
import sys
sys.path.insert(0, {where!r})
from {module} import *
def same(seen, expected):
    if type(seen) is not int or seen != expected:
        sys.exit(f"{{seen!r}} is not {{expected}}")
same(add(2, 3), 5)
same(add(-7, 4), -3)
{more}
print({passed!r})
"""
_PY_EXAM_NEW = "".join(
    f"same(clamp({n}, {low}, {high}), {seen})\n"
    for n, low, high, seen in ((5, 0, 3, 3), (-1, 0, 3, 0), (2, 0, 3, 2), (91, 10, 77, 77), (-40, -9, 5, -9))
)


def py_exams(module: str = "calc", where: str = ".") -> dict[str, Any]:
    """Return the exam of a Python project, for what it could do and for what it is asked to do."""
    old, new = (
        {"exam.py": _PY_EXAM.format(where=where, module=module, more=more, passed=EXAM_PASSED)}
        for more in ("", _PY_EXAM_NEW)
    )
    return {"exam": "python3 -I exam.py", "exam_old": old, "exam_new": new}


def py_sources(path: str = "calc.py") -> dict[str, Any]:
    return {
        "code": {path: PY_ADD + PY_CLAMP},
        "wrong": {path: PY_ADD + PY_WRONG},
        "old_broken": {path: PY_ADD_BROKEN + PY_CLAMP},
        "new_broken": {path: PY_ADD + PY_NOTHING},
    }


PY_UNIT_ADD = """\
import unittest

import calc


class AddTest(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(calc.add(2, 3), 5)

    def test_adds_negative_numbers(self):
        self.assertEqual(calc.add(-2, -3), -5)
"""
PY_UNIT_CLAMP = """\
import unittest

import calc


class ClampTest(unittest.TestCase):
    def test_too_high(self):
        self.assertEqual(calc.clamp(5, 0, 3), 3)

    def test_too_low(self):
        self.assertEqual(calc.clamp(-1, 0, 3), 0)

    def test_between(self):
        self.assertEqual(calc.clamp(2, 0, 3), 2)
"""
PY_TEST_ADD = """\
import calc


def test_adds():
    assert calc.add(2, 3) == 5


def test_adds_negative_numbers():
    assert calc.add(-2, -3) == -5
"""
PY_TEST_CLAMP = """\
import calc


def test_too_high():
    assert calc.clamp(5, 0, 3) == 3


def test_too_low():
    assert calc.clamp(-1, 0, 3) == 0


def test_between():
    assert calc.clamp(2, 0, 3) == 2
"""
_IGNORE = "__pycache__/\n*.pyc\nnode_modules/\ntarget/\n.venv/\n"

UNITTEST = Project(
    "unittest",
    "python3 -m unittest discover",
    {".gitignore": _IGNORE, "calc.py": PY_ADD, "tests/__init__.py": "", "tests/test_add.py": PY_UNIT_ADD},
    {"tests/test_clamp.py": PY_UNIT_CLAMP},
    **py_sources(),
    **py_exams(),
)
"""Python, `python3 -m unittest discover`, a package `tests`."""

PYTEST = Project(
    "pytest",
    "python3 -m pytest -q",
    {
        ".gitignore": _IGNORE,
        "pyproject.toml": '[project]\nname = "calc"\nversion = "1.0"\n\n[tool.pytest.ini_options]\n',
        "calc.py": PY_ADD,
        "tests/test_add.py": PY_TEST_ADD,
    },
    {"tests/test_clamp.py": PY_TEST_CLAMP},
    **py_sources(),
    **py_exams(),
    needs=("pytest",),
)
"""Python, pytest, configured in pyproject.toml."""

FLAKY = """from pathlib import Path


def test_weather():
    times = Path.home() / ".weather"
    count = len(times.read_text()) + 1 if times.exists() else 1
    times.write_text("x" * count)
    assert count % 3
"""
"""A test that fails every third time."""
KNOWN_BUGS = """import calc


def test_text():
    assert calc.add("1", 1) == 2


def test_missing():
    assert calc.subtract(1, 1) == 0


def test_module():
    import calc.more
"""
IMPERFECT = PYTEST.but("imperfect-base", {"tests/test_known.py": KNOWN_BUGS, "tests/test_weather.py": FLAKY})
"""Three tests fail, and one every third time."""

MAKE = UNITTEST.but("make", {"Makefile": "test:\n\tpython3 -m unittest discover\n"}, test="make test")
"""unittest behind a Makefile."""

INCLUDED = UNITTEST.but(
    "make-include",
    {"Makefile": "include rules.mk\n\ntest:\n\t$(RUNNER) discover\n", "rules.mk": "RUNNER = python3 -m unittest\n"},
    test="make test",
)
"""A Makefile that includes another."""

SCRIPTS = UNITTEST.but(
    "scripts",
    {
        "Makefile": "test:\n\tsh ci/test.sh\n",
        "ci/test.sh": "set -e\nsh ci/python.sh\n",
        "ci/python.sh": "set -e\npython3 -m unittest discover\n",
    },
    test="make test",
)
"""A Makefile that runs a script that runs a script."""

CHECKS = UNITTEST.but(
    "own-script",
    {".capsule/config.yaml": "evidence: {test: sh check.sh}\n", "check.sh": "set -e\npython3 -m unittest discover\n"},
    test="sh check.sh",
)
"""The settings name a shell script as the test command."""

GLOBS = UNITTEST.but(
    "own-globs",
    {
        ".capsule/config.yaml": (
            "evidence: {test: sh ci/test.sh, test_globs: [tests/**]}\n"  # only what a person thought of
        ),
        "ci/test.sh": "set -e\npython3 -m unittest discover\n",
    },
    test="sh ci/test.sh",
)
"""The settings name the test files, and forget the script that runs them."""

GOLDEN = PYTEST.but(
    "golden",
    {
        "tests/test_add.py": "from pathlib import Path\n\nimport calc\n\n\ndef test_report():\n"
        "    golden = Path(__file__).parents[1] / 'golden' / 'report.txt'\n"
        "    assert f'{calc.add(2, 3)}\\n' == golden.read_text()\n",
        "golden/report.txt": "5\n",
    },
)
"""Expected output in a folder beside the tests."""

HELPERS = PYTEST.but(
    "helpers",
    {"checks.py": "def same(seen, expected):\n    assert seen == expected, (seen, expected)\n"},
    tests={
        "tests/test_clamp.py": "import calc\nfrom checks import same\n\n\ndef test_clamps():\n"
        "    same(calc.clamp(5, 0, 3), 3)\n    same(calc.clamp(-1, 0, 3), 0)\n    same(calc.clamp(2, 0, 3), 2)\n"
    },
)
"""Assertions in a module that only tests import."""

_MANAGE = """\
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
"""
_DJANGO_TEST = "from django.test import SimpleTestCase\n\nfrom shop import calc\n\n\n"
DJANGO = Project(
    "django",
    "make test",
    {
        ".gitignore": _IGNORE,
        "Makefile": "test:\n\tpython3 manage.py test\n",
        "manage.py": _MANAGE,
        "site_settings.py": 'SECRET_KEY = "x"\nINSTALLED_APPS = ["shop"]\nUSE_TZ = True\n',
        "shop/__init__.py": "",
        "shop/calc.py": PY_ADD,
        "shop/tests.py": _DJANGO_TEST
        + "class AddTest(SimpleTestCase):\n    def test_adds(self):\n        self.assertEqual(calc.add(2, 3), 5)\n",
    },
    {
        "shop/tests.py": _DJANGO_TEST
        + "class AddTest(SimpleTestCase):\n    def test_adds(self):\n        self.assertEqual(calc.add(2, 3), 5)\n"
        + "\n\nclass ClampTest(SimpleTestCase):\n    def test_clamps(self):\n"
        + "        self.assertEqual(calc.clamp(5, 0, 3), 3)\n        self.assertEqual(calc.clamp(-1, 0, 3), 0)\n"
        + "        self.assertEqual(calc.clamp(2, 0, 3), 2)\n"
    },
    **py_sources("shop/calc.py"),
    **py_exams("calc", "shop"),
    needs=("django",),
)
"""Django: tests live in `shop/tests.py`, which a make target runs."""


def _editable(root: Path, env: Mapping[str, str]) -> None:
    """Make an environment with an editable install, as setuptools writes it."""
    subprocess.run(["python3", "-m", "venv", "--without-pip", root / ".venv"], env=env, check=True)
    (site,) = (root / ".venv").glob("lib/python*/site-packages")
    (site / "__editable__.calc-1.0.pth").write_text(f"{root}/src\n")


EDITABLE = Project(
    "editable",
    ".venv/bin/python -m unittest discover -s tests",
    {
        ".gitignore": _IGNORE,
        "pyproject.toml": '[project]\nname = "calc"\nversion = "1.0"\n',
        "src/calc/__init__.py": PY_ADD,
        "tests/test_add.py": PY_UNIT_ADD,
    },
    {"tests/test_clamp.py": PY_UNIT_CLAMP},
    **py_sources("src/calc/__init__.py"),
    **py_exams("calc", "src"),
    install=_editable,
)
"""A package in `src`, installed with `pip install -e .` into the checkout's .venv."""

NO_TESTS = UNITTEST.but("no-tests", {"tests/__init__.py": "", "tests/test_add.py": ""})
"""Python without any tests."""

MONOREPO = Project(
    "monorepo",
    "cd backend && python3 -m unittest discover",
    {".gitignore": _IGNORE, "README.md": "A monorepo.\n", "frontend/index.html": "<p>hello\n"}
    | _moved(UNITTEST.files, "backend"),
    _moved(UNITTEST.tests, "backend"),
    **py_sources("backend/calc.py"),
    **py_exams("calc", "backend"),
)
"""Everything below `backend/`."""

# ---- JavaScript

JS_ADD = "exports.add = (a, b) => a + b;\n"
JS_CLAMP = "exports.clamp = (n, low, high) => Math.max(low, Math.min(n, high));\n"
JS_WRONG = "exports.clamp = (n) => n;\n"
JS_NOTHING = "exports.clamp = () => undefined;\n"
_JS_HEAD = "const test = require('node:test');\nconst assert = require('node:assert');\nconst calc = require('{}');\n"
_JS_ADDS = "test('adds', () => assert.strictEqual(calc.add(2, 3), 5));\n"
_JS_CLAMPS = """\
test('too high', () => assert.strictEqual(calc.clamp(5, 0, 3), 3));
test('too low', () => assert.strictEqual(calc.clamp(-1, 0, 3), 0));
test('between', () => assert.strictEqual(calc.clamp(2, 0, 3), 2));
"""
_JS_EXAM = """\
const calc = require('{where}');
const same = (seen, expected) => {{ if (seen !== expected) {{ throw new Error(`${{seen}} is not ${{expected}}`); }} }};
same(calc.add(2, 3), 5);
{more}
console.log('{passed}');
"""


def js_add_test(where: str = "../calc.js") -> str:
    return _JS_HEAD.format(where) + _JS_ADDS


def js_clamp_test(where: str = "../calc.js") -> str:
    return _JS_HEAD.format(where) + _JS_CLAMPS


def js_exams(where: str = "./calc.js") -> dict[str, Any]:
    more = "same(calc.clamp(5, 0, 3), 3);\nsame(calc.clamp(-1, 0, 3), 0);\nsame(calc.clamp(8, 0, 9), 8);\n"
    old, new = ({"exam.js": _JS_EXAM.format(where=where, more=told, passed=EXAM_PASSED)} for told in ("", more))
    return {"exam": "node exam.js", "exam_old": old, "exam_new": new}


def js_sources(path: str = "calc.js") -> dict[str, Any]:
    broken = "exports.add = (a, b) => a - b;\n"
    return {
        "code": {path: JS_ADD + JS_CLAMP},
        "wrong": {path: JS_ADD + JS_WRONG},
        "old_broken": {path: broken + JS_CLAMP},
        "new_broken": {path: JS_ADD + JS_NOTHING},
    }


NODE = Project(
    "node",
    "npm test",
    {
        ".gitignore": _IGNORE,
        "package.json": _json(name="calc", version="1.0.0", scripts={"test": "node --test"}),
        "calc.js": JS_ADD,
        "test/add.test.js": js_add_test(),
    },
    {"test/clamp.test.js": js_clamp_test()},
    **js_sources(),
    **js_exams(),
    needs=("node", "npm"),
)
"""JavaScript, `node --test` behind `npm test`."""

NODE_DASH = NODE.but(
    "node-dash",
    {"test/add.test.js": "", "test-add.js": js_add_test("./calc.js")},
    tests={"test-clamp.js": js_clamp_test("./calc.js")},
)
"""Tests are called `test-*.js`, beside the code."""

NPM_SCRIPT = NODE.but(
    "npm-script",
    {
        "package.json": _json(name="calc", version="1.0.0", scripts={"test": "npm run unit", "unit": "sh ci/unit.sh"}),
        "ci/unit.sh": "set -e\nnode --test test/\n",
    },
)
"""`npm test` runs another script, which runs a shell script."""

_WORKSPACE = {
    ".gitignore": _IGNORE,
    "package.json": _json(
        name="root", version="1.0.0", private=True, workspaces=["packages/*"], scripts={"test": "node --test packages"}
    ),
    "packages/calc/package.json": _json(name="calc", version="1.0.0", main="calc.js"),
    "packages/calc/calc.js": JS_ADD,
    "packages/app/package.json": _json(name="app", version="1.0.0", dependencies={"calc": "1.0.0"}),
    "packages/app/test/add.test.js": js_add_test("calc"),
}


def _link_workspaces(root: Path, env: Mapping[str, str]) -> None:
    """Link the packages by their names, as `npm install` does."""
    modules = root / "node_modules"
    modules.mkdir(exist_ok=True)
    for package in (root / "packages").iterdir():
        (modules / json.loads((package / "package.json").read_text())["name"]).symlink_to(f"../packages/{package.name}")


WORKSPACES = Project(
    "workspaces",
    "npm test",
    _WORKSPACE,
    {"packages/app/test/clamp.test.js": js_clamp_test("calc")},
    **js_sources("packages/calc/calc.js"),
    **js_exams("./packages/calc/calc.js"),
    needs=("node", "npm"),
    install=_link_workspaces,
)
"""npm workspaces: one package tests another by its name."""

# ---- Go

GO_ADD = "package calc\n\nfunc Add(a, b int) int { return a + b }\n"
GO_CLAMP = """
func Clamp(n, low, high int) int {
\tif n < low {
\t\treturn low
\t}
\tif n > high {
\t\treturn high
\t}
\treturn n
}
"""
GO_WRONG = "\nfunc Clamp(n, low, high int) int { return n }\n"
GO_NOTHING = "\nfunc Clamp(n, low, high int) int { return -424242 }\n"
GO_TEST_HEAD = 'package calc\n\nimport "testing"\n'
GO_TEST_ADD = f"""{GO_TEST_HEAD}
func TestAdd(t *testing.T) {{
\tif Add(2, 3) != 5 {{
\t\tt.Fatal("2 + 3")
\t}}
}}
"""
GO_TEST_CLAMP = f"""{GO_TEST_HEAD}
func TestClamp(t *testing.T) {{
\tfor _, c := range [][4]int{{{{5, 0, 3, 3}}, {{-1, 0, 3, 0}}, {{2, 0, 3, 2}}}} {{
\t\tif got := Clamp(c[0], c[1], c[2]); got != c[3] {{
\t\t\tt.Errorf("Clamp(%d, %d, %d) = %d", c[0], c[1], c[2], got)
\t\t}}
\t}}
}}
"""
_GO_EXAM = """\
package main

import "example.org/calc"

func same(seen, expected int) {{
\tif seen != expected {{
\t\tpanic("wrong")
\t}}
}}

func main() {{
\tsame(calc.Add(2, 3), 5)
{more}
\tprintln("{passed}")
}}
"""
_GO_OLD, _GO_NEW = (
    {"exam/main.go": _GO_EXAM.format(more=more, passed=EXAM_PASSED)}
    for more in ("", "\tsame(calc.Clamp(5, 0, 3), 3)\n\tsame(calc.Clamp(-1, 0, 3), 0)\n\tsame(calc.Clamp(8, 0, 9), 8)")
)
GO = Project(
    "go",
    "go test ./...",
    {".gitignore": _IGNORE, "go.mod": "module example.org/calc\n\ngo 1.21\n", "calc.go": GO_ADD}
    | {"add_test.go": GO_TEST_ADD},
    {"clamp_test.go": GO_TEST_CLAMP},
    {"calc.go": GO_ADD + GO_CLAMP},
    {"calc.go": GO_ADD + GO_WRONG},
    {"calc.go": GO_ADD.replace("a + b", "a - b") + GO_CLAMP},
    {"calc.go": GO_ADD + GO_NOTHING},
    "go run ./exam",
    _GO_OLD,
    _GO_NEW,
    needs=("go",),
)
"""Go: a test of what is missing does not compile."""

GO_NAME_TEST = """
func TestName(t *testing.T) {
\tif Name != "calc" {
\t\tt.Fatal(Name)
\t}
}
"""
GO_FOLDER = replace(
    GO,
    name="go-folder",
    files={".gitignore": _IGNORE, "go.mod": "module example.org\n\ngo 1.21\n"}
    | _moved({"calc.go": GO_ADD, "add_test.go": GO_TEST_ADD}, "calc")
    | {"name/name.go": 'package name\n\nconst Name = "calc"\n'}
    | {"name/name_test.go": GO_TEST_HEAD.replace("calc", "name") + GO_NAME_TEST},
    tests=_moved(GO.tests, "calc"),
    code=_moved(GO.code, "calc"),
    wrong=_moved(GO.wrong, "calc"),
    old_broken=_moved(GO.old_broken, "calc"),
    new_broken=_moved(GO.new_broken, "calc"),
)
"""Go, with two packages in folders below the module."""

# ---- Rust

RS_ADD = "pub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n"
RS_CLAMP = "\npub fn clamp(n: i64, low: i64, high: i64) -> i64 {\n    n.max(low).min(high)\n}\n"
RS_WRONG = "\npub fn clamp(n: i64, _low: i64, _high: i64) -> i64 {\n    n\n}\n"
RS_NOTHING = "\npub fn clamp(_n: i64, _low: i64, _high: i64) -> i64 {\n    -424242\n}\n"


def rs_tests(*clamps: str) -> str:
    """Return tests inside the source: the old one, and one with these assertions."""
    adds = "    #[test]\n    fn adds() {\n        assert_eq!(add(2, 3), 5);\n    }\n"
    lines = "".join(f"        assert_eq!(clamp{inputs});\n" for inputs in clamps)
    more = f"\n    #[test]\n    fn clamps() {{\n{lines}    }}\n" if clamps else ""
    return f"\n#[cfg(test)]\nmod tests {{\n    use super::*;\n\n{adds}{more}}}\n"


RS_INNER = rs_tests()
RS_TEST_CLAMP = """\
use calc::clamp;

#[test]
fn clamps() {
    assert_eq!(clamp(5, 0, 3), 3);
    assert_eq!(clamp(-1, 0, 3), 0);
    assert_eq!(clamp(2, 0, 3), 2);
}
"""
_RS_EXAM = 'fn main() {{\n    assert_eq!(calc::add(2, 3), 5);\n{more}    println!("{passed}");\n}}\n'
_RS_OLD, _RS_NEW = (
    {"examples/exam.rs": _RS_EXAM.format(more=more, passed=EXAM_PASSED)}
    for more in (
        "",
        "".join(f"    assert_eq!(calc::clamp({n}, 0, 9), {seen});\n" for n, seen in ((50, 9), (-1, 0), (8, 8))),
    )
)
_CARGO = '[package]\nname = "calc"\nversion = "1.0.0"\nedition = "2021"\n'
RUST = Project(
    "rust",
    "cargo test",
    {
        ".gitignore": _IGNORE,
        "Cargo.toml": _CARGO,
        "Cargo.lock": 'version = 3\n\n[[package]]\nname = "calc"\nversion = "1.0.0"\n',
        "src/lib.rs": RS_ADD + RS_INNER,
    },
    {"tests/clamp.rs": RS_TEST_CLAMP},
    {"src/lib.rs": RS_ADD + RS_CLAMP + RS_INNER},
    {"src/lib.rs": RS_ADD + RS_WRONG + RS_INNER},
    {"src/lib.rs": RS_ADD.replace("a + b", "a - b") + RS_CLAMP + RS_INNER},
    {"src/lib.rs": RS_ADD + RS_NOTHING + RS_INNER},
    "cargo run -q --example exam",
    _RS_OLD,
    _RS_NEW,
    needs=("cargo",),
)
"""Rust: old tests inside the source, new ones in `tests/`."""

RS_BOTH = rs_tests("(5, 0, 3), 3", "(-1, 0, 3), 0", "(2, 0, 3), 2")
RUST_INSIDE = replace(
    RUST,
    name="rust-inside",
    tests={"src/lib.rs": RS_ADD + RS_BOTH},
    code={"src/lib.rs": RS_ADD + RS_CLAMP + RS_BOTH},
    wrong={"src/lib.rs": RS_ADD + RS_WRONG + RS_BOTH},
    old_broken={"src/lib.rs": RS_ADD.replace("a + b", "a - b") + RS_CLAMP + RS_BOTH},
    new_broken={"src/lib.rs": RS_ADD + RS_NOTHING + RS_BOTH},
)
"""Rust: all tests are inside the source."""

NEXTEST = RUST.but(
    "nextest",
    {".capsule/config.yaml": "evidence:\n  test: cargo nextest run\n"},
    test="cargo nextest run",
    needs=("cargo", "cargo-nextest"),
)
"""Rust, with cargo-nextest: each test is a process."""

# ---- others

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>calc</artifactId>
  <version>1.0</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source>
    <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>junit</groupId>
      <artifactId>junit</artifactId>
      <version>4.13.2</version>
      <scope>test</scope>
    </dependency>
  </dependencies>
</project>
"""
_JAVA_HEAD = "import static org.junit.Assert.assertEquals;\n\nimport org.junit.Test;\n\n"


def _java(add: str = "a + b", clamp: str = "") -> str:
    more = f"    public static int clamp(int n, int low, int high) {{ return {clamp}; }}\n" if clamp else ""
    return f"public class Calc {{\n    public static int add(int a, int b) {{ return {add}; }}\n{more}}}\n"


_JAVA_RIGHT = "Math.max(low, Math.min(n, high))"
_JAVA_EXAM = (
    "public class Exam {{ public static void main(String[] a) {{ if (Calc.add(2, 3) != 5) throw new Error(); "
    '{more} System.out.println("{passed}"); }} }}\n'
)
MAVEN = Project(
    "maven",
    "mvn -q -o test",
    {
        ".gitignore": _IGNORE,
        "pom.xml": _POM,
        "src/main/java/Calc.java": _java(),
        "src/test/java/AddTest.java": _JAVA_HEAD
        + "public class AddTest {\n    @Test public void adds() { assertEquals(5, Calc.add(2, 3)); }\n}\n",
    },
    {
        "src/test/java/ClampTest.java": _JAVA_HEAD
        + "public class ClampTest {\n    @Test public void clamps() {\n        assertEquals(3, Calc.clamp(5, 0, 3));\n"
        + "        assertEquals(0, Calc.clamp(-1, 0, 3));\n        assertEquals(2, Calc.clamp(2, 0, 3));\n    }\n}\n"
    },
    {"src/main/java/Calc.java": _java(clamp=_JAVA_RIGHT)},
    {"src/main/java/Calc.java": _java(clamp="n")},
    {"src/main/java/Calc.java": _java("a - b", _JAVA_RIGHT)},
    {"src/main/java/Calc.java": _java(clamp="-424242")},
    "javac -d exam-classes Exam.java src/main/java/Calc.java && java -cp exam-classes Exam",
    {"Exam.java": _JAVA_EXAM.format(more="", passed=EXAM_PASSED)},
    {
        "Exam.java": _JAVA_EXAM.format(
            more="if (Calc.clamp(50, 0, 9) != 9 || Calc.clamp(-1, 0, 9) != 0) throw new Error();", passed=EXAM_PASSED
        )
    },
    needs=("mvn", "junit", "javac"),
)
"""Java: tests in `src/test/java`."""

_C_ADD, _C_CLAMP = "int add(int a, int b) { return a + b; }\n", "int clamp(int n, int low, int high) { %s }\n"
_C_RIGHT = _C_CLAMP % "return n < low ? low : n > high ? high : n;"
_CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(calc C)
enable_testing()
add_executable(add_test tests/add_test.c calc.c)
add_test(NAME add COMMAND add_test)
"""
_C_TEST = "#include <assert.h>\n#undef NDEBUG\nint {0}();\nint main(void) {{ {1} return 0; }}\n"
_C_EXAM = """\
#include <stdio.h>
int add(int, int), clamp(int, int, int);
int main(void) {{ if (add(2, 3) != 5) return 1; {0} puts("{1}"); return 0; }}
"""
CTEST = Project(
    "ctest",
    "cmake -S . -B build >/dev/null && cmake --build build && ctest --test-dir build",
    {
        ".gitignore": _IGNORE + "build/\n",
        "CMakeLists.txt": _CMAKE,
        "calc.c": _C_ADD,
        "tests/add_test.c": _C_TEST.format("add", "if (add(2, 3) != 5) return 1;"),
    },
    {
        "CMakeLists.txt": _CMAKE
        + "add_executable(clamp_test tests/clamp_test.c calc.c)\nadd_test(NAME clamp COMMAND clamp_test)\n",
        "tests/clamp_test.c": _C_TEST.format(
            "clamp", "if (clamp(5, 0, 3) != 3 || clamp(-1, 0, 3) != 0 || clamp(2, 0, 3) != 2) return 1;"
        ),
    },
    {"calc.c": _C_ADD + _C_RIGHT},
    {"calc.c": _C_ADD + _C_CLAMP % "return n;"},
    {"calc.c": _C_ADD.replace("a + b", "a - b") + _C_RIGHT},
    {"calc.c": _C_ADD + _C_CLAMP % "return -424242;"},
    "cc -o exam-bin exam.c calc.c && ./exam-bin",
    {"exam.c": _C_EXAM.format("", EXAM_PASSED)},
    {"exam.c": _C_EXAM.format("if (clamp(50, 0, 9) != 9 || clamp(-1, 0, 9) != 0) return 1;", EXAM_PASSED)},
    needs=("cmake", "cc"),
)
"""C, CMake and ctest."""


def _small(
    name: str, test: str, source: str, parts: Mapping[str, str], files: Files, tests: Files, exam: str, exam_file: str
) -> Project:
    """Make a project of one source file: `parts` holds its head, `add` and three versions of `clamp`."""
    head, add = parts["head"], parts["add"]
    asks = ("add(2, 3)", "5"), ("clamp(50, 0, 9)", "9"), ("clamp(-1, 0, 9)", "0"), ("clamp(8, 0, 9)", "8")
    old, new = (
        {exam_file: parts["exam"].format("".join(parts["ask"].format(*ask) for ask in some), EXAM_PASSED)}
        for some in (asks[:1], asks)
    )
    right, wrong, nothing = (parts["clamp"].format(parts[each]) for each in ("right", "wrong", "nothing"))
    end = parts.get("end", "")
    return Project(
        name,
        test,
        {".gitignore": _IGNORE, source: head + add + end, **files},
        tests,
        {source: head + add + right + end},
        {source: head + add + wrong + end},
        {source: head + add.replace("+", "-") + right + end},
        {source: head + add + nothing + end},
        exam,
        old,
        new,
        needs=(test.split(maxsplit=1)[0],),
    )


_RUBY = {
    "head": "",
    "add": "def add(a, b)\n  a + b\nend\n",
    "clamp": "\ndef clamp(n, low, high)\n  {}\nend\n",
    **{"right": "[low, [n, high].min].max", "wrong": "n", "nothing": "-424242"},
    "ask": "raise unless {} == {}\n",
    "exam": 'require_relative "calc"\n{}puts "{}"\n',
}
_SPEC = 'require_relative "../calc"\n\nRSpec.describe "calc" do\n  it "{}" do\n{}  end\nend\n'
RSPEC = _small(
    "rspec",
    "rspec",
    "calc.rb",
    _RUBY,
    {"spec/add_spec.rb": _SPEC.format("adds", "    expect(add(2, 3)).to eq(5)\n")},
    {
        "spec/clamp_spec.rb": _SPEC.format(
            "clamps",
            "".join(f"    expect(clamp({n}, 0, 3)).to eq({seen})\n" for n, seen in ((5, 3), (-1, 0), (2, 2))),
        )
    },
    "ruby exam.rb",
    "exam.rb",
)
"""Ruby and rspec."""

_PHP = {
    "head": "<?php\n",
    "add": "function add($a, $b) { return $a + $b; }\n",
    "clamp": "function clamp($n, $low, $high) {{ return {}; }}\n",
    **{"right": "max($low, min($n, $high))", "wrong": "$n", "nothing": "-424242"},
    "ask": "if ({} !== {}) exit(1);\n",
    "exam": '<?php\nrequire "calc.php";\n{}echo "{}\\n";\n',
}
_PHP_TEST = (
    "<?php\nrequire_once __DIR__ . '/../calc.php';\n\nfinal class {0}Test extends PHPUnit\\Framework\\TestCase\n{{\n"
    "    public function test{0}(): void\n    {{\n{1}    }}\n}}\n"
)
PHPUNIT = _small(
    "phpunit",
    "phpunit tests",
    "calc.php",
    _PHP,
    {
        "Makefile": ".PHONY: test\ntest:\n\tphpunit tests\n",
        "tests/AddTest.php": _PHP_TEST.format("Add", "        $this->assertSame(5, add(2, 3));\n"),
    },
    {
        "tests/ClampTest.php": _PHP_TEST.format(
            "Clamp",
            "".join(f"        $this->assertSame({seen}, clamp({n}, 0, 3));\n" for n, seen in ((5, 3), (-1, 0), (2, 2))),
        )
    },
    "php exam.php",
    "exam.php",
)
"""PHP, and PHPUnit behind make."""

_DENO = {
    "head": "",
    "add": "export function add(a: number, b: number): number {\n  return a + b;\n}\n",
    "clamp": "\nexport function clamp(n: number, low: number, high: number): number {{\n  return {};\n}}\n",
    **{"right": "Math.max(low, Math.min(n, high))", "wrong": "n", "nothing": "-424242"},
    "ask": 'if (calc.{} !== {}) throw new Error("no");\n',
    "exam": 'import * as calc from "./calc.ts";\n{}console.log("{}");\n',
}
_DENO_TEST = (
    'import {{ strictEqual }} from "node:assert";\nimport {{ {0} }} from "./calc.ts";\n\n'
    'Deno.test("{0}s", () => {{\n{1}}});\n'
)
DENO = _small(
    "deno",
    "deno test",
    "calc.ts",
    _DENO,
    {"deno.json": "{}\n", "add_test.ts": _DENO_TEST.format("add", "  strictEqual(add(2, 3), 5);\n")},
    {
        "clamp_test.ts": _DENO_TEST.format(
            "clamp",
            "".join(f"  strictEqual(clamp({n}, 0, 3), {seen});\n" for n, seen in ((5, 3), (-1, 0), (2, 2))),
        )
    },
    "deno run --no-check exam.ts",
    "exam.ts",
)
"""TypeScript and deno."""

_ELIXIR = {
    "head": "defmodule Calc do\n",
    "add": "  def add(a, b), do: a + b\n",
    "clamp": "  def clamp(n, low, high), do: {}\n",
    "end": "end\n",
    **{
        "right": "n |> min(high) |> max(low)",
        "wrong": "n + 0 * (low + high)",
        "nothing": "-424242 + 0 * (n + low + high)",
    },
    "ask": "if Calc.{} != {}, do: System.halt(1)\n",
    "exam": '{}IO.puts("{}")\n',
}
_ELIXIR_TEST = 'defmodule {0}Test do\n  use ExUnit.Case\n\n  test "{1}" do\n{2}  end\nend\n'
MIX = _small(
    "mix",
    "mix test",
    "lib/calc.ex",
    _ELIXIR,
    {
        "mix.exs": "defmodule Calc.MixProject do\n  use Mix.Project\n"
        '  def project, do: [app: :calc, version: "1.0.0"]\nend\n',
        "test/test_helper.exs": "ExUnit.start()\n",
        "test/add_test.exs": _ELIXIR_TEST.format("Add", "adds", "    assert Calc.add(2, 3) == 5\n"),
    },
    {
        "test/clamp_test.exs": _ELIXIR_TEST.format(
            "Clamp",
            "clamps",
            "".join(f"    assert Calc.clamp({n}, 0, 3) == {seen}\n" for n, seen in ((5, 3), (-1, 0), (2, 2))),
        )
    },
    "mix run --no-start exam.exs",
    "exam.exs",
)
"""Elixir and mix: no grammar knows it."""

# ---- a backlog

BACKLOG = UNITTEST.but(
    "backlog",
    {
        "BACKLOG.yaml": "schema_version: 1\nlast_id: 1\nitems:\n  - id: WRK-001\n    title: Add clamp\n"
        "    status: new\n    created: 2026-02-11T09:30:00Z\n"
    },
)
"""unittest, and the item in BACKLOG.yaml: the workflow is `change`."""
