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
