"""Many processes at once: none stands in another's way, and none loses what another wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

from capsule.core.errors import Paused
from capsule.core.event import AgentEnded, Allowance, Event, RunStarted, Spawned, StepBegun, Usage
from capsule.journals.sqlite import SqliteJournal
from capsule.trackers.beads_file import BeadsFileTracker
from capsule.wiring import new_backlog_file
from tests.costs import LONG

from ..conftest import Repo

_BEGIN = """
import sys, time
from pathlib import Path
folder, number = Path(sys.argv[1]), int(sys.argv[2])
print("there", flush=True)
sys.stdin.readline()
"""
AtOnce = Callable[[int, str], None]
AT = "2026-01-01T00:00:00Z"


@pytest.fixture
def at_once(a_repo: Repo) -> AtOnce:
    """Run the same lines in processes that are there already, each with a number of its own, all at once."""

    def run(many: int, lines: str) -> None:
        words = [sys.executable, "-c", _BEGIN + lines, str(a_repo.path)]
        pipe = subprocess.PIPE
        all_of_them = [
            subprocess.Popen([*words, str(number)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            for number in range(many)
        ]
        try:
            for each in all_of_them:
                assert each.stdout and each.stdout.readline() == "there\n"
            for each in all_of_them:
                assert each.stdin
                each.stdin.write("go\n")
                each.stdin.flush()
            faults = [each.communicate(timeout=2 * LONG)[1].strip().splitlines()[-1:] for each in all_of_them]
            assert [fault for fault in faults if fault] == []
        finally:
            for each in all_of_them:
                each.kill()
                each.wait()

    return run


@pytest.mark.sweep
@pytest.mark.promise("durability.many-processes")
@pytest.mark.parametrize("many", [6, 16])
def test_worktrees_are_made_and_removed_at_once(a_repo: Repo, at_once: AtOnce, many: int) -> None:
    at_once(
        many,
        """
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
git = Git.find(folder)
for again in range(4):
    place = GitWorktree(git, f"x-{number}")
    place.prepare(git.resolve("HEAD"))
    assert (place.path / "README").exists()
    place.remove(branch=True)
""",
    )
    assert len(a_repo.git("worktree", "list").splitlines()) == 1
    assert not (a_repo.path / ".git/worktrees").exists()
    a_repo.fsck()


@pytest.mark.slow
@pytest.mark.promise("durability.many-processes")
def test_a_journal_may_be_made_and_read_at_the_very_same_moment(at_once: AtOnce) -> None:
    """Every twentieth of a second all open a new one, some of them to read: sqlite alone says that it is locked."""
    at_once(
        6,
        """
from capsule.journals.sqlite import SqliteJournal
for again in range(60):
    time.sleep(0.05 - time.time() % 0.05)
    journal = SqliteJournal(folder / f"capsule-{time.time() // 0.05}", read_only=number % 3 == 2)
    if number % 3 == 2:
        journal.epochs()
    else:
        with journal.claim(f"x-{number}"):
            pass
    journal.close()
""",
    )


@pytest.mark.slow
@pytest.mark.promise("durability.many-processes")
def test_forty_processes_write_to_a_journal_that_none_has_made_yet(a_repo: Repo, at_once: AtOnce) -> None:
    at_once(
        40,
        """
from capsule.core.event import Warned
from capsule.journals.sqlite import SqliteJournal
journal = SqliteJournal(folder / ".git/capsule")
with journal.claim(f"x-{number}"):
    for text in range(25):
        journal.note(f"x-{number}", Warned(at="2026-01-01T00:00:00Z", text=str(text)))
""",
    )
    journal = SqliteJournal(a_repo.path / ".git/capsule", read_only=True)
    assert [len(journal.events(f"x-{number}")) for number in range(40)] == [25] * 40
    journal.close()


@pytest.mark.slow
@pytest.mark.promise("durability.many-processes")
def test_a_file_of_beads_keeps_what_every_process_wrote(a_repo: Repo, at_once: AtOnce) -> None:
    rows = [json.dumps({"id": f"bead-{number}", "title": "t"}) for number in range(16)]
    a_repo.write(".beads/issues.jsonl", "\n".join(rows) + "\n")
    at_once(
        16,
        """
from capsule.core.item import NewItem
from capsule.trackers import beads_file
tracker = beads_file.connect(folder, folder / ".git/capsule/locks/tracker.lock")
tracker.claim(f"bead-{number}")
tracker.add(NewItem(title=f"found by {number}"))
tracker.close(f"bead-{number}", f"reason {number}")
""",
    )
    items = BeadsFileTracker(a_repo.path / ".beads/issues.jsonl").all_items()
    assert sorted(items[f"bead-{number}"].status.value for number in range(16)) == ["done"] * 16
    assert {item.title for item in items.values()} >= {f"found by {number}" for number in range(16)}
    assert len(items) == 32


@pytest.mark.slow
@pytest.mark.promise("durability.many-processes")
def test_every_state_commit_of_a_backlog_is_on_the_branch_once(a_repo: Repo, at_once: AtOnce) -> None:
    (a_repo.path / "BACKLOG.yaml").write_bytes(new_backlog_file())
    start = a_repo.commit("a backlog")
    at_once(
        16,
        """
from capsule.adapters import StateCommit
from capsule.core.ledger import Exists
from capsule.system.git import Git
from capsule.trackers import backlog
from capsule.workspaces.state_store import open_state_store
tracker = backlog.connect(folder, folder / ".git/capsule/locks/backlog.lock")
store = open_state_store(tracker, Git.find(folder), "main")
for again in range(2):
    at = "2026-01-01T00:00:00Z"
    values = {"title": f"title {number} {again}", "status": "new", "created": at, "updated": at}
    store.write(StateCommit(f"x-{number}/triage#{again}", f"{number} {again}", (Exists(f"k{number}.{again}", values),)))
""",
    )
    said = a_repo.git("log", "--format=%s", f"{start}..HEAD").splitlines()
    assert sorted(said) == sorted(f"{number} {again}" for number in range(16) for again in range(2))
    text = (a_repo.path / "BACKLOG.yaml").read_text()
    assert [text.count(f"title {number} {again}\n") for number in range(16) for again in range(2)] == [1] * 32
    assert a_repo.status() == ""


_TAKE = """
from capsule.core.errors import NotYet, Paused
from capsule.core.event import Spawned, StepBegun
from capsule.journals.sqlite import SqliteJournal
journal, at = SqliteJournal(folder / ".git/capsule"), "2026-01-01T00:00:00Z"
with journal.claim(f"x-{number}"):
    for run in range(8):
        begun = StepBegun(at=at, key=f"code#{run}", phase="code", run=run, attempt=1, spawns=True)
        try:
            journal.note(f"x-{number}", begun, (f"_run-{run}", Spawned(at=at, mission=f"x-{number}", key=begun.key)))
        except (Paused, NotYet):
            pass
"""


@pytest.mark.promise("jobs.one-cap")
@pytest.mark.parametrize("last", ["agent", "dollar"])
def test_of_many_processes_only_one_takes_the_last(a_repo: Repo, at_once: AtOnce, last: str) -> None:
    """Eight runs one after the other, each with one agent to start, or a dollar to spend where each agent needs one."""
    journal, runs = SqliteJournal(a_repo.path / ".git/capsule"), [f"_run-{number}" for number in range(8)]
    for run in runs:
        with journal.claim(run):
            for event in _nearly_over(cap=2 if last == "agent" else 99):
                journal.note(run, event)
    at_once(8, _TAKE)
    for number, run in enumerate(runs):
        takers = [event.mission for _, event in journal.events(run) if isinstance(event, Spawned)][1:]
        begun = [f"x-{each}" for each in range(8) if _has_begun(journal, f"x-{each}", f"code#{number}")]
        assert takers == begun and len(takers) == 1, "a step that is refused is not begun either"
    journal.close()


def _nearly_over(cap: int) -> list[Event]:
    """A run of two dollars with eight jobs: its first agent has ended, and used one of them."""
    return [
        RunStarted(at=AT, cap=cap, jobs=8, budget=Allowance(usd=2.0)),
        Spawned(at=AT, mission="first", key="code#1"),
        AgentEnded(at=AT, mission="first", key="code#1", usage=Usage(usd=1.0), progress=True),
    ]


def _has_begun(journal: SqliteJournal, mission: str, key: str) -> bool:
    return any(isinstance(event, StepBegun) and event.key == key for _, event in journal.events(mission))


@pytest.mark.slow
@pytest.mark.promise("jobs.breaker")
def test_the_breaker_reads_what_many_processes_wrote_in_the_order_of_the_journal(a_repo: Repo, at_once: AtOnce) -> None:
    """In each of eight runs every process ends an agent, each second by giving up; stamps say another order."""
    journal, runs = SqliteJournal(a_repo.path / ".git/capsule"), [f"_run-{number}" for number in range(8)]
    for run in runs:
        with journal.claim(run):
            journal.note(run, RunStarted(at=AT, cap=99, jobs=6))
            for number in range(6):
                journal.note(run, Spawned(at=AT, mission=f"x-{number}", key="code#1"))
    at_once(
        6,
        """
from capsule.core.event import AgentEnded, Warned
from capsule.journals.sqlite import SqliteJournal
journal = SqliteJournal(folder / ".git/capsule")
at, failed = f"2026-01-0{9 - number}T00:00:00Z", number % 2 > 0
with journal.claim(f"x-{number}"):
    for run in range(8):
        end = AgentEnded(at=at, mission=f"x-{number}", key="code#1", exhausted=failed, progress=not failed)
        journal.note(f"x-{number}", Warned(at=at, text=""), (f"_run-{run}", end))
""",
    )
    with journal.claim("late"):
        for run in runs:
            ends = [event.exhausted for _, event in journal.events(run) if isinstance(event, AgentEnded)]
            assert sorted(ends) == [False] * 3 + [True] * 3
            assert _starts(journal, run) is not any(one and other for one, other in pairwise(ends)), ends
    journal.close()


def _starts(journal: SqliteJournal, run: str) -> bool:
    """Whether the run lets another agent start."""
    begun = StepBegun(at=AT, key=f"{run}#1", phase="code", run=1, attempt=1, spawns=True)
    with suppress(Paused):
        journal.note("late", begun, (run, Spawned(at=AT, mission="late", key=begun.key)))
        return True
    return False
