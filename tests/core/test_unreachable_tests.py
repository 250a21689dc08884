"""Tests that are there and never run."""

from __future__ import annotations

import pytest

from capsule.core.unreachable_tests import unreachable_tests

TWICE = "class T:\n    def test_a(self):\n        assert f() == 1\n\n    def test_a(self):\n        assert g() == 2\n"
LOWER = "package p\n\nfunc testA(t *testing.T) {\n\tt.Fatal(1)\n}\n"
UNMARKED = "fn a() {\n    assert_eq!(f(), 1);\n}\n"
INSIDE = f"pub fn f() {{ panic!() }}\n\n#[cfg(test)]\nmod tests {{\n    {UNMARKED}}}\n"


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("test_a.py", TWICE, "test_a in test_a.py is defined 2 times, and only the last one runs"),
        ("a_test.go", LOWER, "testA in a_test.go never runs: its name does not begin with Test, and nothing calls it"),
        ("tests/a.rs", UNMARKED, "a in tests/a.rs never runs: it has no #[test], and nothing calls it"),
        ("src/lib.rs", INSIDE, "a in src/lib.rs never runs: it has no #[test], and nothing calls it"),
    ],
)
def test_a_test_that_cannot_run_is_named(path: str, text: str, said: str) -> None:
    assert unreachable_tests({path: text.encode()}, {}) == [said]
    assert unreachable_tests({path: text.encode()}, {path: text.encode()}) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "test_a.py",
            TWICE.replace(
                "    def test_a(self):\n        assert g", "\nclass U:\n    def test_a(self):\n        assert g"
            ),
        ),
        ("test_a.py", TWICE.replace("    def", "    @given(integers())\n    def")),
        ("test_a.py", TWICE.replace("test_a", "make")),
        ("test_a.py", "if WINDOWS:\n    def test_a():\n        pass\nelse:\n    def test_a():\n        pass\n"),
        ("a_test.go", LOWER + "\nfunc TestA(t *testing.T) { testA(t) }\n"),
        ("a_test.go", LOWER.replace("testA", "TestA")),
        ("a_test.go", LOWER.replace("(t *testing.T)", "(t *testing.T, n int)")),
        ("tests/a.rs", f"#[test]\n{UNMARKED}"),
        ("tests/a.rs", f"{UNMARKED}\n#[test]\nfn b() {{\n    a();\n}}\n"),
        ("tests/a.rs", UNMARKED.replace("fn a()", "fn main()")),
        ("src/lib.rs", UNMARKED),
        ("test/a.test.js", "test('a', () => f());\ntest('a', () => g());\n"),
    ],
)
def test_what_runs_or_is_called_is_not_named(path: str, text: str) -> None:
    assert unreachable_tests({path: text.encode()}, {}) == []
