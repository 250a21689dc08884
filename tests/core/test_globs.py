"""Globs, as settings and workflows write them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.core.globs import is_test, matches


def test_a_glob_without_a_slash_is_about_the_name() -> None:
    assert matches("deep/down/test_a.py", "test_*.py")
    assert matches("tests/a", "**/tests/**")
    assert matches("x/tests/a", "**/tests/**")
    assert not matches("x/tests/a", "tests/**")


def test_a_slash_in_front_means_the_top() -> None:
    assert matches("check.sh", "/check.sh")
    assert not matches("src/check.sh", "/check.sh")


def test_a_glob_with_an_exclamation_mark_takes_paths_out() -> None:
    assert is_test("tests/a.py", ("tests/**", "!app.py"))
    assert not is_test("tests/app.py", ("tests/**", "!app.py"))
    assert not is_test("src/a.py", ("!app.py",))


@pytest.mark.parametrize("glob", ["a.py", "*.py", "**.py", "*", "**", "", "a?.py", "[ab].py", "*_test.*"])
def test_simple_globs_match_as_any_other(glob: str) -> None:
    for name in ("a.py", "aa.py", "b.py", "x_test.go", "py", ".py", "", "a.pyc"):
        assert matches(name, glob) == fnmatchcase(name, glob), name


@given(st.text("ab.*", max_size=8), st.text("ab.", max_size=10))
def test_a_glob_with_stars_only_matches_as_any_other(glob: str, name: str) -> None:
    assert matches(name, glob) == fnmatchcase(name, glob)
