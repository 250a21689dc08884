"""A second chance, in CI, for a handful of tests: it forgives the machine, never the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ONCE_MORE = Path(__file__).parents[2] / "tools" / "once-more"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
UNSTEADY = """
from pathlib import Path
def test_unsteady():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BROKEN = "\nimport pytest\n@pytest.mark.parametrize('n', range({}))\ndef test_broken(n):\n    assert False\n"


def asked_again(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    subprocess.run(PYTEST, cwd=folder, capture_output=True, check=False)
    return subprocess.run([ONCE_MORE, *PYTEST], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_passes_alone_passes_and_is_named(tmp_path: Path) -> None:
    said = asked_again(tmp_path, UNSTEADY)
    assert said.returncode == 0, said.stdout
    assert "UNSTEADY: failed beside others, passed alone:\n  test_it.py::test_unsteady" in said.stdout


@pytest.mark.slow
def test_what_fails_alone_as_well_has_failed(tmp_path: Path) -> None:
    said = asked_again(tmp_path, UNSTEADY + BROKEN.format(1))
    assert said.returncode == 1 and "failed alone as well:" in said.stdout


@pytest.mark.slow
@pytest.mark.parametrize("tests", [BROKEN.format(6), "def test_fine(): pass"])
def test_many_are_no_accident_and_where_no_test_failed_it_was_something_else(tmp_path: Path, tests: str) -> None:
    said = asked_again(tmp_path, tests)
    assert said.returncode == 1 and "Asked once more" not in said.stdout
