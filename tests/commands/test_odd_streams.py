"""Streams that are closed, leave early, or cannot write every character: no bug of ours, and no false success."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock

import pytest

from capsule.cli import main
from capsule.core.event import StepEnded
from tests.commands.backlog_project import BacklogProject
from tests.commands.backlog_script import honest
from tests.commands.conftest import ITEM, Project, Said, bead
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
    assert ("note: not all output could be written: No space left" in said.stderr) is (lost == ">/dev/full")


class LostAt(io.FileIO):
    """A stdout that somebody reads until this word is written to it, and that is lost from then on."""

    def __init__(self, word: str, lost: str) -> None:
        reader, writer = os.pipe() if lost == LEFT else (-1, os.open("/dev/full", os.O_WRONLY))
        super().__init__(writer, "w")
        if lost == LEFT:
            os.close(reader)
        self._word, self._read = word.encode(), True

    def write(self, data: Any) -> int:
        self._read = self._read and self._word not in bytes(data)
        return len(data) if self._read else super().write(data)


def json_lost_at(project: Project, word: str, lost: str, *words: str) -> Said:
    """Run with `--output json`, whose stdout is lost at the first event with this word."""
    environment = mock.patch.dict(os.environ, project.environment(), clear=True)
    with io.TextIOWrapper(io.BufferedWriter(LostAt(word, lost))) as out, io.StringIO() as err:
        with chdir(project.path), environment, redirect_stdout(out), redirect_stderr(err):
            code = main(["run", *words, "--output", "json"])
        return Said(code, "", err.getvalue())


FULL, LEFT = "full", "left"
MERGED = '"merged":'


@pytest.mark.promise("errors.lost-output")
@pytest.mark.parametrize(("lost", "before"), [(FULL, 2), (LEFT, 141)])
def test_json_lost_after_the_merge_is_a_success(a_project: Project, lost: str, before: int) -> None:
    early = json_lost_at(a_project, '"execute#1"', lost, ITEM)
    assert (early.code, a_project.answer()) == (before, "41"), "before the merge somebody has to know"
    said = json_lost_at(a_project, MERGED, lost, ITEM)
    assert (said.code, a_project.answer(), a_project.status_of()) == (0, "42", "closed"), said
    assert ("note: not all output could be written: No space left on device" in said.err) is (lost == FULL)
    assert "bug" not in said.err


@pytest.mark.promise("errors.lost-output")
@pytest.mark.parametrize("lost", [FULL, LEFT])
def test_a_queue_goes_on_when_its_json_is_lost_after_a_merge(a_project: Project, lost: str) -> None:
    rows = [bead(), bead(id="demo-1.2", title="Say it twice")]
    a_project.beads.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = json_lost_at(a_project, MERGED, lost)
    assert (said.code, a_project.status_of()) == (0, "closed"), said
    ended = [event for event in a_project.events("demo-1.2") if isinstance(event, StepEnded)]
    assert len(ended) > 1, "the next item got its turn"
    assert ("note: not all output could be written: No space left on device" in said.err) is (lost == FULL)


@pytest.mark.promise("errors.lost-output")
def test_a_backlog_goes_on_when_its_json_is_lost_after_an_item_is_archived(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.play(honest("WRK-002", "second"), a_backlog.add("Second"))
    said = json_lost_at(a_backlog, '"archive":', FULL)
    assert (said.code, a_backlog.ids()) == (0, []), said


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
