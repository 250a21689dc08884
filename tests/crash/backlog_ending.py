"""How a run of the backlog ended, as data, and what holds at every instant on the way.

As with missions, only stamps, durations, pids and commit ids are levelled out, and what was salvaged may be more.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from capsule.core.event import Event, Recorded, RunStarted, Spawned, StepBegun, StepEnded, kind
from capsule.journals.sqlite import SqliteJournal

from .ending import check_places, events_of, kinds, left_outside, levelled, names_in, refs_of
from .every_turn import QUEUE, BacklogProject

BACKLOG, WORKLOG = _OWN = ("BACKLOG.yaml", "_worklog")
_STAMPED_ENTRY = re.compile(r"\d{4}-\d\d-\d\d [\d:]+ UTC|# Worklog \d{4}-\d\d")
_NOTE = ".git/capsule/books.json"
"""What was committed and not saved yet."""


@dataclass(frozen=True)
class BacklogEnding:
    commits: tuple[str, ...]
    """Subjects and trailers."""
    tree: tuple[str, ...]
    backlog: str
    worklog: str
    status: str
    refs: tuple[str, ...]
    worktrees: int
    ended: tuple[tuple[str, ...], ...]
    mission_worklogs: tuple[str, ...]
    left_in_project: tuple[str, ...]
    left_in_git: tuple[str, ...]
    left_outside: tuple[str, ...]


def backlog_ending_of(project: BacklogProject) -> BacklogEnding:
    git = project.git
    return BacklogEnding(
        commits=tuple(map(levelled, git("log", "--format=%s %(trailers:separator=%x20)", "main").splitlines())),
        tree=tuple(row for row in git("ls-tree", "-r", "main").splitlines() if not row.split("\t")[1].startswith(_OWN)),
        backlog=levelled(project.file(BACKLOG, "main")),
        worklog=_STAMPED_ENTRY.sub("~", _worklog(project, "main")),
        status=git("status", "--porcelain", "--untracked-files=all"),
        refs=tuple(ref for ref in refs_of(project) if not ref.startswith("refs/capsule/salvage/")),
        worktrees=git("worktree", "list", "--porcelain").count("worktree "),
        ended=tuple(_ended(project, mission) for mission in streams_of(project)),
        mission_worklogs=tuple(levelled(path.read_text()) for path in _mission_worklogs(project)),
        left_in_project=kinds(names_in(project.path / ".capsule", but=())),
        left_in_git=names_in(project.path / ".git", but=("objects/", "logs/", "refs/")),
        left_outside=left_outside(project),
    )


def streams_of(project: BacklogProject) -> list[str]:
    journal = SqliteJournal(project.path / ".git" / "capsule", read_only=True)
    streams = list(journal.streams())
    journal.close()
    return streams


def check_backlog(project: BacklogProject) -> None:
    """At any instant: an item is in the backlog or was archived; and the files are as committed, or it is noted why."""
    backlog, worklog = project.file(BACKLOG, "main"), _worklog(project, "main")
    for number in range(1, _last_id(backlog) + 1):
        _check_in_one_place(f"WRK-{number:03}", backlog, worklog)
    if not (project.path / _NOTE).exists():
        assert project.file(BACKLOG) == backlog
        assert _worklog(project) == worklog
    check_places(project)


def check_count(project: BacklogProject) -> None:
    """At any instant: the run has counted every agent that was started, and no step was begun after it had ended;
    and an attempt that was interrupted is no attempt."""
    begun, ended, attempts = Counter[str](), set[str](), dict[str, int]()
    for mission in streams_of(project):
        for event in events_of(project, mission):
            if isinstance(event, StepBegun):
                assert f"{mission}/{event.key}" not in ended, f"{event.key} is done twice"
                begun[f"{mission}/{event.key}"] += event.spawns
                assert attempts.setdefault(f"{mission}/{event.key}", event.attempt) == event.attempt
            if isinstance(event, StepEnded):
                ended.add(f"{mission}/{event.key}")
    _check_run(events_of(project, QUEUE), begun)
    started = Counter(project.agents_started())
    assert started <= begun, f"agents nobody counted: {started - begun}"
    assert {key for key in ended if begun[key]} <= set(started)


def _check_run(run: list[Event], begun: Counter[str]) -> None:
    counted = Counter[str]()
    for event in run:
        if isinstance(event, RunStarted):
            assert event.spawns in (0, counted.total())
        if isinstance(event, Spawned):
            counted[f"{event.mission}/{event.key}"] += 1
    assert counted == +begun


def _check_in_one_place(item: str, backlog: str, worklog: str) -> None:
    waiting = item in re.findall(r"\bid: ([\w-]+)", backlog)
    archived = re.findall(rf"\| {item} \| archive \| (\w+)", worklog)
    assert waiting + len(archived) == 1, f"{item}: {waiting=} {archived=}"


def _last_id(backlog: str) -> int:
    return int(re.findall(r"^last_id: (\d+)", backlog, re.MULTILINE)[0])


def _worklog(project: BacklogProject, commit: str = "") -> str:
    if not commit:
        return "".join(path.read_text() for path in sorted((project.path / WORKLOG).glob("*")))
    names = project.git("ls-tree", "--name-only", commit, f"{WORKLOG}/").splitlines()
    return "".join(project.file(name, commit) for name in names)


def _ended(project: BacklogProject, mission: str) -> tuple[str, ...]:
    """What was done, and what of it is in the tracker."""
    events = [event for event in events_of(project, mission) if isinstance(event, StepEnded | Recorded)]
    added = [f"{mission} added {new}" for event in events if isinstance(event, Recorded) for new in event.follow_ups]
    return (mission, *(f"{kind(event)} {event.key}" for event in events), *added)


def _mission_worklogs(project: BacklogProject) -> list[Path]:
    return sorted((project.path / ".capsule" / "logs").glob("*/worklog.md"))
