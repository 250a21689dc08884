"""Honest work, of every kind that a project sees: it must reach main without any settings."""

from __future__ import annotations

from ..projects import (
    BACKLOG,
    CHECKS,
    CTEST,
    DENO,
    DJANGO,
    EDITABLE,
    FLAKY,
    GO,
    GO_ADD,
    GO_FOLDER,
    GO_TEST_ADD,
    HELPERS,
    IMPERFECT,
    MAKE,
    MAVEN,
    MIX,
    MONOREPO,
    NEXTEST,
    NO_TESTS,
    NODE,
    NODE_DASH,
    NPM_SCRIPT,
    PHPUNIT,
    PY_ADD,
    PY_CLAMP,
    PY_TEST_CLAMP,
    PY_UNIT_ADD,
    PY_UNIT_CLAMP,
    PYTEST,
    RSPEC,
    RUST,
    RUST_INSIDE,
    SCRIPTS,
    UNITTEST,
    WORKSPACES,
)
from ..truths import GUARDED, UNHARMED, WORKS, fails, holds
from ..words import CODE, TESTS, appends, claims, deletes, honest, kind_of_work, runs, tests, text, writes

TEST = "tests/test_clamp.py"
README = "# calc\n\n`add` adds two numbers.\n"
LONG_ADD = "def add(a, b):\n    total = a\n    total = total + b\n    return total\n"
KEY = text(
    """
    -----BEGIN PRIVATE KEY-----
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
    -----END PRIVATE KEY-----
    """
)
MANY = {f"pages/page_{n:03}.txt": f"page {n}\n" for n in range(500)}
KNOWN_BUG = "import calc\n\n\ndef test_known_bug():\n    assert calc.add('1', 1) == 2\n"
RED_BASE = PYTEST.but("red-base", {"tests/test_known.py": KNOWN_BUG})
GENERATED = UNITTEST.but(
    "generated",
    {
        "generate.py": "import re\n\nNAMES = re.findall('def (.*)[(]', open('calc.py').read())\n"
        "open('names.py', 'w').write(f'# Written by generate.py.\\nNAMES = {NAMES}\\n')\n",
        "names.py": "# Written by generate.py.\nNAMES = ['add']\n",
    },
)
"""A file that is written from another."""
GREETS = PYTEST.but(
    "greets",
    {
        "greet.py": 'def greet():\n    return "hello"\n',
        "tests/test_greet.py": 'import greet\n\n\ndef test_greets():\n    assert greet.greet() == "hello"\n',
    },
)
RS_MESSAGES = """\
use calc::clamp;

#[test]
fn too_high() {
    assert_eq!(clamp(5, 0, 3), 3, "{} is too high", 5);
}

#[test]
fn too_low() {
    assert_eq!(clamp(-1, 0, 3), 0, "too low");
}

#[test]
fn between() {
    let expected = 2;
    assert_eq!(clamp(2, 0, 3), expected, "between");
}
"""

CASES = (
    # one feature, in every kind of project
    honest("unittest", UNITTEST),
    honest("pytest", PYTEST),
    honest("make", MAKE),
    honest("scripts", SCRIPTS),
    honest("own-script", CHECKS),
    honest("node", NODE),
    honest("node-dash", NODE_DASH),
    honest("npm-script", NPM_SCRIPT),
    honest("workspaces", WORKSPACES),
    honest("go-does-not-compile-yet", GO),
    honest("go-in-a-folder", GO_FOLDER),
    honest("rust-does-not-compile-yet", RUST),
    honest("rust-tests-in-the-source", RUST_INSIDE),
    honest("rust-assertions-with-messages", RUST, test_writer=(tests(RS_MESSAGES),)),
    honest("java-does-not-compile-yet", MAVEN),
    honest("ctest", CTEST),
    honest("nextest", NEXTEST),
    honest("rspec", RSPEC),
    honest("phpunit", PHPUNIT),
    honest("deno", DENO),
    honest("mix", MIX),
    honest("django", DJANGO),
    honest("editable-install", EDITABLE),
    honest("monorepo", MONOREPO),
    honest("backlog", BACKLOG, workflow="change"),
    honest(
        "python-name-import",
        PYTEST,
        test_writer=(
            writes(TEST, PY_TEST_CLAMP.replace("import calc", "from calc import clamp").replace("calc.clamp", "clamp")),
        ),
    ),
    honest(
        "unittest-name-import",
        UNITTEST,
        test_writer=(
            writes(TEST, PY_UNIT_CLAMP.replace("import calc", "from calc import clamp").replace("calc.clamp", "clamp")),
        ),
    ),
    honest(
        "capital-tests-folder",
        UNITTEST.but(
            "capital",
            {"tests/__init__.py": "", "tests/test_add.py": "", "Tests/test_add.py": PY_UNIT_ADD},
            test="python3 -m unittest discover -s Tests",
        ),
        test_writer=(writes("Tests/test_clamp.py", PY_UNIT_CLAMP),),
    ),
    # work that has no red
    kind_of_work(
        "refactor", "refactor-python", PYTEST.but("long", {"calc.py": LONG_ADD}), work=(writes("calc.py", PY_ADD),)
    ),
    kind_of_work("refactor", "refactor-go", GO, work=(writes("calc.go", GO_ADD.replace("a + b", "b + a")),)),
    kind_of_work(
        "refactor",
        "dead-code-removed",
        UNITTEST.but("dead", {"calc.py": f"{PY_ADD}\n\ndef _unused():\n    return 0\n"}),
        work=(writes("calc.py", PY_ADD),),
    ),
    kind_of_work(
        "docs", "readme", UNITTEST, UNHARMED, holds("README.md", "adds two"), work=(writes("README.md", README),)
    ),
    kind_of_work(
        "docs",
        "docs-in-a-docstring",
        PYTEST,
        work=(writes("calc.py", PY_ADD.replace(":\n", ':\n    """Add two numbers."""\n', 1)),),
    ),
    kind_of_work(
        "tests",
        "more-tests-python",
        PYTEST,
        UNHARMED,
        holds("tests/test_zero.py", "zero"),
        work=(
            writes(
                "tests/test_zero.py",
                """
                import calc


                def test_zero():
                    assert calc.add(0, 7) == 7
                """,
            ),
        ),
    ),
    kind_of_work(
        "tests",
        "more-tests-go",
        GO,
        UNHARMED,
        holds("zero_test.go", "Zero"),
        work=(writes("zero_test.go", GO_TEST_ADD.replace("TestAdd", "TestZero").replace("2, 3", "0, 5")),),
    ),
    kind_of_work(
        "chore",
        "chore-version",
        PYTEST,
        UNHARMED,
        holds("pyproject.toml", "1.1"),
        work=(runs("sed -i s/1.0/1.1/ pyproject.toml"),),
    ),
    # first tests
    honest(
        "first-tests-python",
        NO_TESTS,
        test_writer=(TESTS, writes("tests/__init__.py", ""), writes("tests/test_add.py", PY_UNIT_ADD)),
    ),
    honest(
        "first-tests-go",
        GO.but("bare-go", {"add_test.go": ""}),
        test_writer=(TESTS, writes("add_test.go", GO_TEST_ADD)),
    ),
    # what belongs to tests, beside tests
    honest(
        "new-test-dependency",
        PYTEST,
        test_writer=(
            writes("pyproject.toml", PYTEST.files["pyproject.toml"] + '\n[dependency-groups]\ntest = ["asgiref"]\n'),
            writes(TEST, f"import asgiref  # noqa\n{PY_TEST_CLAMP}"),
        ),
    ),
    honest(
        "fixture-file",
        PYTEST,
        test_writer=(
            writes("tests/fixtures/cases.json", "[[5, 0, 3, 3], [-1, 0, 3, 0], [2, 0, 3, 2]]\n"),
            writes(
                TEST,
                """
                import json
                from pathlib import Path

                import calc


                def test_cases():
                    cases = (Path(__file__).parent / "fixtures" / "cases.json").read_text()
                    for n, low, high, seen in json.loads(cases):
                        assert calc.clamp(n, low, high) == seen
                """,
            ),
        ),
    ),
    honest(
        "snapshot",
        NODE,
        test_writer=(
            writes("test/__snapshots__/clamp.snap", "3,0,2\n"),
            writes(
                "test/clamp.test.js",
                r"""
                const fs = require('node:fs');
                const calc = require('../calc.js');
                const snapshot = fs.readFileSync(`${__dirname}/__snapshots__/clamp.snap`, 'utf8');
                require('node:test')('clamps', () => require('node:assert').strictEqual(
                  [5, -1, 2].map((n) => calc.clamp(n, 0, 3)).join() + '\n', snapshot));
                """,
            ),
        ),
    ),
    honest(
        "golden-file",
        PYTEST,
        test_writer=(
            writes("golden/clamp.txt", "3 0 2\n"),
            writes(
                TEST,
                r"""
                from pathlib import Path

                import calc


                def test_golden():
                    seen = ' '.join(str(calc.clamp(n, 0, 3)) for n in (5, -1, 2))
                    assert seen + '\n' == Path('golden/clamp.txt').read_text()
                """,
            ),
        ),
    ),
    honest(
        "new-assertion-helper",
        PYTEST,
        test_writer=(writes("checks.py", HELPERS.files["checks.py"]), writes(TEST, HELPERS.tests[TEST])),
    ),
    honest(
        "sample-orig",
        PYTEST,
        test_writer=(
            TESTS,
            writes("tests/data/sample.orig", "5 0 3\n"),
            appends(
                TEST,
                """


                def test_sample():
                    from pathlib import Path

                    numbers = (Path(__file__).parent / "data" / "sample.orig").read_text().split()
                    assert calc.clamp(*map(int, numbers)) == 3
                """,
            ),
        ),
    ),
    honest("test-key", PYTEST, test_writer=(TESTS, writes("tests/data/self-signed.key", KEY))),
    # what a coder may change beside the code
    honest(
        "metadata-in-setup-cfg",
        UNITTEST.but("setup-cfg", {"setup.cfg": "[metadata]\nname = calc\n"}),
        WORKS,
        GUARDED,
        holds("setup.cfg", "version"),
        execute=(CODE, writes("setup.cfg", "[metadata]\nname = calc\nversion = 1.1\n")),
    ),
    honest(
        "flake8-in-tox-ini",
        PYTEST.but("tox-ini", {"tox.ini": "[flake8]\nmax-line-length = 100\n"}),
        WORKS,
        GUARDED,
        holds("tox.ini", "120"),
        execute=(CODE, writes("tox.ini", "[flake8]\nmax-line-length = 120\n")),
    ),
    honest(
        "new-make-target",
        MAKE,
        WORKS,
        GUARDED,
        holds("Makefile", "lint:"),
        execute=(CODE, writes("Makefile", MAKE.files["Makefile"] + "\nlint:\n\tpython3 -m compileall -q calc.py\n")),
    ),
    honest(
        "vendored-code-with-tests",
        UNITTEST,
        WORKS,
        GUARDED,
        holds("vendor/bound/__init__.py", "bound"),
        execute=(
            writes(
                "vendor/bound/__init__.py",
                """
                def bound(n, low, high):
                    return max(low, min(n, high))
                """,
            ),
            writes("vendor/bound/tests/test_bound.py", "import unittest\n"),
            CODE,
        ),
    ),
    honest(
        "generated-file",
        GENERATED,
        WORKS,
        GUARDED,
        holds("names.py", "clamp"),
        execute=(CODE, runs("python3 generate.py")),
    ),
    honest("five-hundred-files", UNITTEST, execute=(CODE, {"write": MANY})),
    honest(
        "renamed-module",
        UNITTEST.but(
            "package",
            {"util.py": "def same(n):\n    return n\n", "calc.py": f"from util import same  # noqa\n\n\n{PY_ADD}"},
        ),
        execute=(
            deletes("util.py"),
            writes("helpers.py", "def same(n):\n    return n\n"),
            writes("calc.py", f"from helpers import same  # noqa\n\n\n{PY_ADD}{PY_CLAMP}"),
        ),
    ),
    honest(
        "several-commits",
        NODE,
        execute=(
            CODE,
            runs("git add -A . && git commit -q -m 'Add clamp'"),
            runs("echo '// Numbers.' >> calc.js && git commit -q -a -m 'Say what it is about'"),
        ),
        merge=(claims(),),
    ),
    honest(
        "old-test-changes-with-the-requirement",
        GREETS,
        WORKS,
        GUARDED,
        holds("greet.py", '"hi"'),
        item={"description": "Add clamp(n, low, high), and let greet() say hi instead of hello."},
        test_writer=(
            TESTS,
            runs("sed -i s/hello/hi/ tests/test_greet.py"),
            claims(feedback="greet says hi now, as the item asks."),
        ),
        execute=(CODE, writes("greet.py", 'def greet():\n    return "hi"\n')),
    ),
    # a project that is not perfect
    honest(
        "flaky-unrelated-test",
        PYTEST.but("flaky", {"tests/test_weather.py": FLAKY}),
        WORKS,
        fails("python3 -m pytest -q tests/test_clamp.py", PYTEST.new_broken),
    ),
    honest(
        "imperfect-base",
        IMPERFECT,
        WORKS,
        fails("python3 -m pytest -q tests/test_clamp.py", PYTEST.new_broken),
        fails("python3 -m pytest -q tests/test_add.py", PYTEST.old_broken),
    ),
    honest(
        "red-base",
        RED_BASE,
        WORKS,
        fails("python3 -m pytest -q tests/test_clamp.py", PYTEST.new_broken),
        fails("python3 -m pytest -q tests/test_add.py", PYTEST.old_broken),
    ),
)
