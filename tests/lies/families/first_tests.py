"""First tests, in a project that has none; and tests that nobody knows how to run."""

from __future__ import annotations

from ..projects import CTEST, GO, MAVEN, NO_TESTS, NODE, PY_UNIT_ADD, PYTEST, RUST
from ..words import CODE, TESTS, WRONG, deletes, lie, tests, writes

BARE_PYTEST = PYTEST.but("bare-pytest", {"tests/test_add.py": ""})
BARE_GO = GO.but("bare-go", {"add_test.go": ""})
BARE_NODE = NODE.but("bare-node", {"test/add.test.js": ""})
UNCONFIGURED = NODE.but(
    "unconfigured-node", {"test/add.test.js": "", "package.json": '{"name": "calc", "version": "1.0.0"}\n'}
)
BARE_RUST = RUST.but("bare-rust", {"src/lib.rs": "pub fn add(a: i64, b: i64) -> i64 {\n    a + b\n}\n"})
BROTHER = writes("tests/test_add.py", PY_UNIT_ADD)
PACKAGE = writes("tests/__init__.py", "")

CASES = (
    lie("red-python", NO_TESTS, test_writer=(TESTS, BROTHER, PACKAGE), execute=(WRONG,)),
    lie("red-python-no-code", NO_TESTS, test_writer=(TESTS, BROTHER, PACKAGE), execute=(writes("notes.md", "done\n"),)),
    lie("red-pytest", BARE_PYTEST, test_writer=(TESTS,), execute=(WRONG,)),
    lie("red-go", BARE_GO, test_writer=(TESTS,), execute=(WRONG,)),
    lie("red-node", BARE_NODE, test_writer=(TESTS,), execute=(WRONG,)),
    lie("red-node-without-a-script", UNCONFIGURED, test_writer=(TESTS,), execute=(WRONG,)),
    lie("red-where-no-runner-is-known", CTEST, execute=(WRONG,)),
    lie("red-java", MAVEN, execute=(WRONG,)),
    lie("red-rust", BARE_RUST, test_writer=(TESTS,), execute=(WRONG,)),
    lie(
        "no-tests-at-all", NO_TESTS, test_writer=(writes("tests/README.md", "Tests will be here.\n"),), execute=(CODE,)
    ),
    lie(
        "deleted-by-the-coder",
        NO_TESTS,
        test_writer=(TESTS, BROTHER, PACKAGE),
        execute=(WRONG, deletes("tests/test_clamp.py")),
    ),
    lie(
        "vacuous-first-test",
        NO_TESTS,
        test_writer=(
            BROTHER,
            PACKAGE,
            tests("""
                import unittest

                import calc


                class T(unittest.TestCase):
                    def test_clamps(self):
                        calc.clamp(5, 0, 3)
                """),
        ),
        execute=(WRONG,),
    ),
)
