"""A campaign is killed while its parent is closed, and run again: closed once, and never before its items' merges."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from capsule.core.state import replay
from capsule.journals.sqlite import SqliteJournal

from .project import ITEM, OTHER, Project

ROOT = "mend-1"


def statuses(project: Project) -> dict[str, str]:
    rows = (project.path / ".beads" / "issues.jsonl").read_text().splitlines()
    return {bead["id"]: bead["status"] for bead in map(json.loads, rows)}


def close_by_hand(project: Project, item: str) -> None:
    """So that there is one mission less to wait for."""
    file = project.path / ".beads" / "issues.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text(
        "".join(json.dumps(row | ({"status": "closed"} if row["id"] == item else {})) + "\n" for row in rows)
    )


def merged(project: Project) -> bool:
    return f"Merge {OTHER}" in project.git("log", "--merges", "--format=%s", "main")


@pytest.mark.promise("campaigns.killed-parent")
def test_a_parent_is_closed_once_however_often_it_is_killed(a_project: Callable[[], Project]) -> None:
    project = a_project()
    close_by_hand(project, ITEM)
    points = [
        f"before item_closed {OTHER}",
        f"before {OTHER}/archive#1 tracker.close 2",
        f"before parent_closed _campaign-{ROOT}",
    ]
    first = project.drive(ROOT, CRASH_AT=points[0])
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert statuses(project)[ROOT] == "open" and merged(project)
    second = project.drive(ROOT, CRASH_AT=points[1])
    assert second.returncode == -signal.SIGKILL, second.stderr
    assert statuses(project) == {ROOT: "open", ITEM: "closed", OTHER: "closed"}
    third = project.drive(ROOT, CRASH_AT=points[2])
    assert third.returncode == -signal.SIGKILL, third.stderr
    assert statuses(project)[ROOT] == "closed"
    updated = (project.path / ".beads" / "issues.jsonl").read_bytes()
    last = project.run(ROOT)
    assert (last.returncode, last.stdout) == (0, f"{ROOT} is done: all 2 items it holds are done.\n")
    assert (project.path / ".beads" / "issues.jsonl").read_bytes() == updated, "closed once"
    journal = SqliteJournal(project.path / ".git" / "capsule", read_only=True)
    assert sum(name == OTHER for name in journal.streams()) == 1
    journal.close()
    project.remove()


@pytest.mark.promise("campaigns.killed-queue")
def test_a_queue_ends_what_was_closed_when_it_was_killed(a_project: Callable[[], Project]) -> None:
    project = a_project()
    close_by_hand(project, ITEM)
    cut = project.drive("--no-tui", CRASH_AT=f"before item_closed {OTHER}")
    assert cut.returncode == -signal.SIGKILL, cut.stderr
    assert statuses(project)[OTHER] == "closed" and merged(project)
    again = project.run("--no-tui")
    assert (again.returncode, f" done: {OTHER}: " in " ".join(again.stdout.split())) == (0, True), again.stdout
    journal = SqliteJournal(project.path / ".git" / "capsule", read_only=True)
    state = replay(event for _, event in journal.events(OTHER))
    journal.close()
    assert state.finished and state.item_closed
    project.remove()
