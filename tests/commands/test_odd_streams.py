"""Streams that are closed, leave early, or cannot write every character: no bug of ours, and no false success."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.commands.conftest import ITEM, Project
from tests.costs import LONG

pytestmark = pytest.mark.slow


def shell(project: Project, words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`capsule` is what these words call it."""
    line = f'capsule() {{ "{sys.executable}" -P -m capsule "$@"; }}\n{words}'
    env = project.environment(**more)
    return subprocess.run(
        ["bash", "-c", line], cwd=project.path, env=env, capture_output=True, text=True, timeout=5 * LONG, check=False
    )


@pytest.mark.parametrize("words", [f"show {ITEM}", f"report {ITEM}", "dashboard --plain --once"])
def test_what_cannot_be_written_in_an_encoding_is_replaced(a_merged_mission: Project, words: str) -> None:
    said = shell(a_merged_mission, f"capsule {words}", PYTHONIOENCODING="ascii")
    assert said.returncode == 0 and "bug" not in said.stderr, said.stderr
    assert ITEM in said.stdout


@pytest.mark.parametrize("words", [f"show {ITEM} >&-", f"report --json {ITEM} >&-", "status 2>&-"])
def test_a_closed_stream_is_no_bug(a_merged_mission: Project, words: str) -> None:
    said = shell(a_merged_mission, f"capsule {words}")
    assert (said.returncode, said.stderr) == (0, "")


def test_a_run_whose_listener_has_left_is_not_called_done(a_project: Project) -> None:
    said = shell(a_project, f"capsule run {ITEM} --output json | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}")
    assert said.stdout.strip() == "141", said
    assert a_project.capsule("run", ITEM).code == 0


@pytest.mark.promise("errors.lost-output")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lost", [">/dev/full", ">/dev/full 2>/dev/full", "2>&1 | true", "| true"])
def test_a_merged_mission_is_a_success_whoever_reads_its_summary(
    a_project: Project, lost: str, unbuffered: str
) -> None:
    said = shell(a_project, f"capsule run {ITEM} {lost}; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED=unbuffered)
    assert said.returncode == 0, said
    assert a_project.answer() == "42"
    assert "bug" not in said.stderr and "Traceback" not in said.stderr
    assert ("note: the summary could not be written: No space left" in said.stderr) is (lost == ">/dev/full")


@pytest.mark.promise("errors.lost-output")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["", "--version", "--help", "status --help", "status"])
def test_a_reader_that_leaves_is_fine_and_a_full_disk_is_named(a_project: Project, words: str, unbuffered: str) -> None:
    left = shell(a_project, f"capsule {words} | true; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED=unbuffered)
    assert (left.returncode, left.stderr) == (0, "")
    full = shell(a_project, f"capsule {words} >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert full.returncode == 2, full
    assert full.stderr.startswith("capsule: Cannot write the output: No space left on device\n")


@pytest.mark.promise("errors.lost-output")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_nobody_hears_keeps_its_exit_code(a_project: Project, unbuffered: str) -> None:
    said = shell(a_project, "capsule show nothing-1 2>/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert said.returncode == 1, said


@pytest.mark.promise("errors.locale")
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_title_beyond_ascii_works_in_a_plain_locale(a_project: Project, locale: str) -> None:
    a_project.set_bead(title="Größe – 日本語 ✓")
    a_project.git("commit", "-qam", "A title")
    plain = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0"}
    for words in ("status", f"run {ITEM}", f"show {ITEM}", f"report {ITEM}", f"report {ITEM} --html -"):
        said = shell(a_project, f"capsule {words}", **plain)
        assert said.returncode == 0, (words, said)
        assert ITEM in said.stdout + said.stderr
    assert a_project.git("log", "-1", "--format=%s") == f"Merge {ITEM}: Größe – 日本語 ✓"
