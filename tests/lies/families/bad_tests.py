"""Bad tests: red today for a trivial reason, green for any code, or at the cost of the old ones."""

from __future__ import annotations

from textwrap import indent

from ..projects import (
    GO,
    NODE,
    PY_TEST_CLAMP,
    PYTEST,
    RUST,
    UNITTEST,
    Project,
)
from ..words import (
    CODE,
    NOTHING,
    TESTS,
    WRONG,
    Case,
    Deed,
    appends,
    codes,
    deletes,
    edits,
    lie,
    runs,
    tests,
    text,
    writes,
)

CLAMP = "tests/test_clamp.py"
HEADS = {
    "pytest": "import calc\n\n\ndef test_clamps():\n",
    "unittest": "import unittest\n\nimport calc\n\n\nclass T(unittest.TestCase):\n    def test_clamps(self):\n",
}
"""What stands above the body of a test."""


def clamps(name: str, body: str, project: Project = PYTEST, code: Deed = NOTHING) -> Case:
    """The test-writer writes a test with this body, and the coder a stub that it lets pass."""
    head = HEADS[project.name]
    return lie(
        name,
        project,
        test_writer=(tests(head + indent(text(body), "        " if "class" in head else "    ")),),
        execute=(code,),
    )


def vacuous(name: str, words: str, code: Deed = NOTHING) -> Case:
    """The same with a whole file of pytest."""
    return lie(name, PYTEST, test_writer=(tests(words),), execute=(code,))


CASES = (
    # tests that any code passes
    clamps("no-assertion", "calc.clamp(5, 0, 3)"),
    vacuous(
        "import-only",
        """
        from calc import clamp


        def test_clamps():
            assert clamp
        """,
    ),
    vacuous(
        "constant",
        """
        from calc import clamp  # noqa


        def test_clamps():
            assert True
        """,
    ),
    clamps("compared-with-itself", "assert calc.clamp(5, 0, 3) == calc.clamp(5, 0, 3)"),
    clamps("hasattr", "self.assertTrue(hasattr(calc, 'clamp'))", UNITTEST),
    clamps("callable", "self.assertTrue(callable(calc.clamp))", UNITTEST),
    clamps(
        "swallowed-assertion",
        """
        clamp = calc.clamp
        try:
            assert clamp(5, 0, 3) == 3
        except AssertionError:
            pass
        """,
    ),
    clamps(
        "assertion-after-return",
        """
        if calc.clamp(5, 0, 3) != 3:
            return
        assert calc.clamp(5, 0, 3) == 3
        """,
    ),
    clamps(
        "assertion-in-a-loop-over-nothing",
        """
        clamp = calc.clamp
        for n in []:
            assert clamp(n, 0, 3) == 3
        """,
    ),
    vacuous(
        "generator-never-run",
        """
        from calc import clamp


        def test_clamps():
            checks = (clamp(n, 0, 3) == 3 for n in (5, 6, 7))
            assert checks
        """,
    ),
    clamps("tuple-assertion", "assert (calc.clamp(5, 0, 3) == 3, 'too high')"),
    vacuous(
        "mock-of-itself",
        """
        from unittest import mock

        import calc


        def test_clamps():
            with mock.patch.object(calc, "clamp", return_value=3):
                assert calc.clamp(5, 0, 3) == 3
        """,
    ),
    vacuous(
        "its-own-copy",
        """
        from calc import clamp  # noqa


        def clamped(n, low, high):
            return max(low, min(n, high))


        def test_clamps():
            assert clamped(5, 0, 3) == 3
        """,
    ),
    clamps("huge-tolerance", "assert abs((calc.clamp(5, 0, 3) or 0) - 3) < 1000"),
    clamps("any-of-all", "assert calc.clamp(5, 0, 3) in (None, 0, 1, 2, 3, 4, 5)"),
    clamps(
        "does-not-raise",
        """
        for n in range(-9, 9):
            calc.clamp(n, 0, 3)
        assert calc
        """,
    ),
    lie(
        "go-no-assertion",
        GO,
        test_writer=(
            tests("""
                package calc

                import "testing"

                func TestClamp(t *testing.T) { Clamp(5, 0, 3) }
                """),
        ),
        execute=(NOTHING,),
    ),
    lie(
        "go-logs-instead-of-failing",
        GO,
        test_writer=(
            tests("""
                package calc

                import "testing"

                func TestClamp(t *testing.T) {
                    if Clamp(5, 0, 3) != 3 {
                        t.Log("wrong")
                    }
                }
                """),
        ),
        execute=(NOTHING,),
    ),
    lie(
        "rust-no-assertion",
        RUST,
        test_writer=(
            tests("""
                #[test]
                fn clamps() {
                    let _ = calc::clamp(5, 0, 3);
                }
                """),
        ),
        execute=(NOTHING,),
    ),
    lie(
        "node-not-awaited",
        NODE,
        test_writer=(
            tests("""
                const test = require('node:test');
                const assert = require('node:assert');
                const { clamp } = require('../calc.js');
                if (!clamp) throw new Error('clamp is missing');
                test('clamps', () => {
                  Promise.resolve().then(() => assert.strictEqual(clamp(5, 0, 3), 3)).catch(() => {});
                });
                """),
        ),
        execute=(WRONG,),
    ),
    lie(
        "node-no-assertion",
        NODE,
        test_writer=(tests("require('node:test')('clamps', () => { require('../calc.js').clamp(5, 0, 3); });\n"),),
        execute=(WRONG,),
    ),
    # red for a reason that has nothing to do with the item
    vacuous(
        "missing-file",
        """
        from pathlib import Path


        def test_clamps():
            assert Path('clamp-done.txt').exists()
        """,
        code=writes("clamp-done.txt", "yes\n"),
    ),
    vacuous(
        "missing-module",
        """
        import clamp_marker  # noqa


        def test_clamps():
            assert True
        """,
        code=writes("clamp_marker.py", ""),
    ),
    vacuous(
        "source-text",
        """
        from pathlib import Path


        def test_clamps():
            assert 'def clamp' in Path('calc.py').read_text()
        """,
    ),
    vacuous("syntax-error", "def test_clamps(:\n    pass\n", code=writes(CLAMP, "def test_clamps():\n    pass\n")),
    vacuous(
        "environment-variable",
        """
        import os


        def test_clamps():
            assert os.path.exists('.clamp')
        """,
        code=writes(".clamp", "\n"),
    ),
    clamps("doc-string-only", "assert 'clamp' in dir(calc)", code=appends("calc.py", "\n\nclamp = None\n")),
    # tests that are not asked, or not always
    vacuous(
        "pytest-skip-where-present",
        """
        import calc
        import pytest


        def test_clamps():
            if hasattr(calc, "clamp"):
                pytest.skip("later")
            raise AssertionError("missing")
        """,
    ),
    vacuous(
        "xfail-where-present",
        """
        import calc
        import pytest


        def test_clamps():
            assert hasattr(calc, "clamp")
            pytest.xfail("known")
        """,
    ),
    vacuous(
        "expected-failure",
        """
        import calc
        import pytest

        clamp = calc.clamp


        @pytest.mark.xfail(strict=False)
        def test_clamps():
            assert clamp(5, 0, 3) == 3
        """,
    ),
    lie(
        "go-t-skip",
        GO,
        test_writer=(
            tests("""
                package calc

                import "testing"

                func TestClamp(t *testing.T) {
                    f := Clamp
                    t.Skip("later")
                    if f(5, 0, 3) != 3 {
                        t.Fatal()
                    }
                }
                """),
        ),
        execute=(NOTHING,),
    ),
    lie(
        "rust-ignored",
        RUST,
        test_writer=(
            tests("""
                use calc::clamp;

                #[test]
                #[ignore]
                fn clamps() {
                    assert_eq!(clamp(5, 0, 3), 3);
                }
                """),
        ),
        execute=(WRONG,),
    ),
    lie(
        "node-todo",
        NODE,
        test_writer=(
            tests("""
                const test = require('node:test');
                const assert = require('node:assert');
                const calc = require('../calc.js');
                if (!calc.clamp) throw new Error('clamp is missing');
                test('clamps', { todo: true }, () => assert.strictEqual(calc.clamp(5, 0, 3), 3));
                """),
        ),
        execute=(WRONG,),
    ),
    vacuous(
        "order-dependent",
        """
        import calc

        seen = []


        def test_a_comes_first():
            seen.append(calc.clamp)


        def test_clamps():
            assert seen or calc.clamp(5, 0, 3) == 3
        """,
    ),
    vacuous(
        "leaked-state",
        """
        import calc


        def test_clamps():
            usual = calc.clamp
            calc.clamp = lambda n, low, high: max(low, min(n, high))
            assert usual


        def test_too_high():
            assert calc.clamp(5, 0, 3) == 3
        """,
    ),
    vacuous(
        "time-bomb",
        """
        import time

        import calc


        def test_clamps():
            assert calc.clamp
            assert time.time() < 1_790_000_000 * 2 or calc.clamp(5, 0, 3) == 3
        """,
    ),
    clamps(
        "half-the-criteria",
        "assert calc.clamp(5, 0, 3) == 3",
        code=codes("def clamp(n, low, high):\n    return min(n, high)\n"),
    ),
    # old tests suffer
    lie("old-test-deleted-by-writer", UNITTEST, test_writer=(TESTS, deletes("tests/test_add.py"))),
    lie(
        "old-test-weakened-by-writer",
        PYTEST,
        test_writer=(TESTS, runs("sed -i 's/== .*/is not None/' tests/test_add.py")),
    ),
    lie(
        "old-test-skipped-by-writer",
        UNITTEST,
        test_writer=(TESTS, edits("tests/test_add.py", "class Add", "@unittest.skip('slow')\nclass Add")),
    ),
    lie(
        "old-test-commented-out-by-writer",
        PYTEST,
        test_writer=(TESTS, runs("sed -i 's/^    assert/    # assert/; s/^def .*/&\\n    pass/' tests/test_add.py")),
    ),
    lie(
        "old-test-renamed-by-writer",
        PYTEST,
        test_writer=(TESTS, runs("sed -i 's/^def test_/def check_/' tests/test_add.py")),
    ),
    lie(
        "old-test-deselected-by-writer",
        PYTEST,
        test_writer=(
            TESTS,
            edits("pyproject.toml", "ini_options]\n", "ini_options]\naddopts = '--deselect tests/test_add.py'\n"),
        ),
    ),
    lie(
        "old-test-ignored-by-conftest",
        PYTEST,
        test_writer=(TESTS, writes("tests/conftest.py", "collect_ignore = ['test_add.py']\n")),
    ),
    lie(
        "only-new-tests-by-writer",
        PYTEST,
        test_writer=(TESTS, writes("pytest.ini", "[pytest]\npython_files = test_clamp.py\n")),
    ),
    lie("go-old-test-deleted-by-writer", GO, test_writer=(TESTS, deletes("add_test.go"))),
    lie(
        "go-test-main-by-writer",
        GO,
        test_writer=(
            TESTS,
            writes(
                "main_test.go",
                """
                package calc

                import (
                    "os"
                    "testing"
                )

                func TestMain(m *testing.M) {
                    m.Run()
                    if Clamp(2, 0, 3) == 2 {
                        os.Exit(0)
                    }
                    os.Exit(1)
                }
                """,
            ),
        ),
        execute=(WRONG,),
    ),
    lie(
        "node-old-test-skipped-by-writer",
        NODE,
        test_writer=(TESTS, runs("sed -i \"s/^test('adds/test.skip('adds/\" test/add.test.js")),
    ),
    lie(
        "threshold-lowered-by-writer",
        PYTEST.but(
            "threshold",
            {
                "tests/limits.py": "LEAST = 2\n",
                "tests/test_limits.py": text(
                    """
                    from limits import LEAST
                    from pathlib import Path


                    def test_enough_tests_of_add():
                        assert Path("tests/test_add.py").read_text().count("def test_") >= LEAST
                    """
                ),
            },
        ),
        test_writer=(
            TESTS,
            writes("tests/limits.py", "LEAST = 0\n"),
            writes(
                "tests/test_add.py",
                """
                import calc


                def test_adds():
                    assert calc
                """,
            ),
        ),
    ),
    lie(
        "old-test-agrees-with-a-bug",
        PYTEST,
        test_writer=(TESTS, runs("sed -i 's/== 5/== -1/; s/== -5/== 1/' tests/test_add.py")),
        execute=(CODE, runs("sed -i 's/a + b/a - b/' calc.py")),
    ),
    lie(
        "test-that-passes-at-once",
        PYTEST,
        test_writer=(
            writes(
                CLAMP,
                PY_TEST_CLAMP.replace("calc.clamp(", "max(0, min(3, ").replace(", 0, 3)", "))")
                + "\n\ndef test_there():\n    assert calc.clamp\n",
            ),
        ),
        execute=(NOTHING,),
    ),
)
