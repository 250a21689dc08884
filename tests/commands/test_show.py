"""`capsule show`, on journals written as the engine writes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capsule.catalog import Catalog
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Abandoned,
    Event,
    ItemClosed,
    MissionStarted,
    Outcome,
    Policy,
    Reopened,
    Salvaged,
    StepBegun,
    StepEnded,
    Stopped,
    Warned,
)
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.journals.sqlite import SqliteJournal
from tests.costs import costs_below, processor_seconds

AT = "2026-01-05T09:00:00Z"
MISSION = "demo-1"
RED = Evidence(
    "green", "all tests pass", "`pytest` is red, exit 1", EvidenceStatus.REFUTED, "FAILED test_phone\n1 failed in 0.1 s"
)
KEPT = Evidence("changed", "changed src/app.py", "src/app.py", EvidenceStatus.CONFIRMED)

Show = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., None]


@pytest.fixture
def root(a_repo: Any) -> Path:
    path: Path = a_repo.path
    return path


@pytest.fixture
def write(root: Path) -> Write:
    """Put events into the project's journal."""

    def append(*events: Event, mission: str = MISSION) -> None:
        journal = SqliteJournal(root / ".git" / "capsule")
        with journal.claim(mission):
            for event in events:
                journal.note(mission, event)
        journal.close()

    return append


@pytest.fixture
def show(root: Path) -> Show:
    def run(*words: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "capsule", "show", *words]
        env = {**os.environ, "COLUMNS": str(columns)}
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False, timeout=60)

    return run


def started(title: str = "Validate phone format", **more: Any) -> MissionStarted:
    return MissionStarted(
        at=AT,
        mission=MISSION,
        item=Item(id=MISSION, title=title),
        workflow=Catalog().workflow("tdd"),
        base="a" * 40,
        into="main",
        policy=Policy(test="pytest"),
        **more,
    )


def begun(phase: str, run: int = 1) -> StepBegun:
    return StepBegun(at=AT, key=f"{phase}#{run}", phase=phase, run=run, attempt=run, agent="scripted")


def ended(
    phase: str,
    run: int = 1,
    claimed: Verdict = Verdict.PASS,
    verdict: Verdict = Verdict.PASS,
    move: Move = Move.ADVANCE,
    evidence: Sequence[Evidence] = (),
    **more: Any,
) -> StepEnded:
    signal = Signal(verdict=claimed, summary=f"did {phase}", feedback="as asked")
    facts = more.pop("facts", {})
    outcome = Outcome(signal=signal, evidence=tuple(evidence), seconds=1.25, agent="scripted", facts=facts)
    decision = Decision(move=move, verdict=verdict, **more)
    return StepEnded(at=AT, key=f"{phase}#{run}", phase=phase, run=run, outcome=outcome, decision=decision)


def passed(*phases: str) -> list[Event]:
    return [event for phase in phases for event in (begun(phase), ended(phase))]


def refuted_once() -> list[Event]:
    """In the middle of execute, with a lie behind it."""
    lie = ended(
        "execute",
        verdict=Verdict.REFUTED,
        move=Move.RETRY,
        evidence=(KEPT, RED),
        back_to="execute",
        counter="execute-review",
        feedback="You reported PASS, but one test is red.",
    )
    return [started(), *passed("prep", "test-writer", "test-review"), begun("execute"), lie]


def halted(reason: str = "retries exhausted", move: Move = Move.ABORT, feedback: str = "") -> list[Event]:
    back = ended(
        "test-review",
        claimed=Verdict.NEEDS_WORK,
        verdict=Verdict.NEEDS_WORK,
        move=move,
        reason=reason,
        feedback=feedback,
        exit_code=1,
    )
    return [started(), *passed("prep", "test-writer"), begun("test-review"), back]


def merged() -> list[Event]:
    phases = ("prep", "test-writer", "test-review", "execute", "execute-review", "sign-off", "merge")
    publish = ended("publish", facts={"merged": "b" * 40})
    return [started(), *passed(*phases), publish, *passed("archive")]


def test_an_unknown_mission_is_exit_1_with_those_there_are(show: Show, write: Write) -> None:
    write(started())
    done = show("nothing-like-it")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["capsule: There is no mission nothing-like-it.", "  There are: demo-1."]


@pytest.mark.promise("commands.show")
def test_looking_creates_nothing(show: Show, root: Path) -> None:
    assert show("demo-1").returncode == 1
    assert not (root / ".git" / "capsule").exists()
    assert not (root / ".capsule").exists()


@pytest.mark.promise("commands.show")
def test_claims_stand_beside_what_was_seen_with_the_proof_of_a_lie(show: Show, write: Write) -> None:
    write(*refuted_once())
    done = show(MISSION)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("execute "))
    assert lines[row].split() == ["execute", "1", "PASS", "REFUTED", "1.2", "s", "scripted"]
    assert lines[row + 1 : row + 5] == [
        "  ✓ claimed: changed src/app.py; seen: src/app.py",
        "  ✗ claimed: all tests pass; seen: `pytest` is red, exit 1",
        "    | FAILED test_phone",
        "    | 1 failed in 0.1 s",
    ]


def test_feedback_that_waits_is_shown_with_whom_it_waits_for(show: Show, write: Write) -> None:
    write(*refuted_once())
    out = show(MISSION).stdout
    assert "Feedback for the next attempt of execute:\n  You reported PASS, but one test is red.\n" in out
    assert "still to do: execute, execute-review, sign-off, merge, publish, archive" in out


def test_the_feedback_of_a_halt_is_shown_too(show: Show, write: Write) -> None:
    write(*halted(feedback="Criterion 4 has no test."))
    assert "Feedback for the next attempt of test-review:\n  Criterion 4 has no test.\n" in show(MISSION).stdout


STANDINGS: dict[str, tuple[list[Event], str, str, str]] = {
    "merged": (
        [*merged(), ItemClosed(at=AT)],
        "merged",
        "merged into main as bbbbbbbbbbbb; its item is closed",
        "capsule logs demo-1",
    ),
    "merged, not closed": (merged(), "merged", "its item is still open in the tracker", "capsule run demo-1"),
    "parked": (
        halted("base is red", Move.PARK),
        "parked",
        "failed at test-review: base is red",
        "capsule answer demo-1 --retry",
    ),
    "stopped": (halted(), "stopped", "failed at test-review: retries exhausted", "capsule answer demo-1 --retry"),
    "killed": (
        [started(), *passed("prep"), begun("test-writer")],
        "interrupted",
        "stopped at test-writer",
        "capsule run demo-1",
    ),
    "ended by Ctrl-C": (
        [started(), *passed("prep"), begun("test-writer"), Stopped(at=AT, cause="Stopped by SIGINT.", exit_code=130)],
        "interrupted",
        "stopped at test-writer (Stopped by SIGINT)",
        "capsule run demo-1",
    ),
    "reopened": (
        [*halted(), Reopened(at=AT)],
        "waiting",
        "ready to continue at test-writer",
        "capsule run demo-1",
    ),
    "abandoned": (
        [*halted(), Abandoned(at=AT, how="aborted", salvage="refs/capsule/salvage/demo-1/1")],
        "abandoned",
        "stopped: aborted",
        "capsule run demo-1",
    ),
}


@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize("name", STANDINGS)
def test_where_it_stands_is_said_in_a_word_and_a_sentence(show: Show, write: Write, name: str) -> None:
    events, word, sentence, command = STANDINGS[name]
    write(*events)
    out = show(MISSION).stdout
    facts = json.loads(show(MISSION, "--json").stdout)
    assert sentence in out
    assert out.splitlines()[-1].split(maxsplit=1) == ["next:", command]
    assert (facts["status"], facts["next"]) == (word, command)


def test_running_is_read_from_the_lock_and_names_the_pid(show: Show, write: Write, root: Path) -> None:
    write(started(), *passed("prep"), begun("test-writer"))
    journal = SqliteJournal(root / ".git" / "capsule")
    with journal.claim(MISSION):
        held = show(MISSION)
    journal.close()
    assert f"running at test-writer (pid {os.getpid()})" in held.stdout
    assert "under way" in held.stdout
    assert "capsule logs demo-1 -f" in held.stdout
    assert "stopped at test-writer" in show(MISSION).stdout


def test_a_mission_started_over_tells_only_its_last_start_and_keeps_all_salvage(show: Show, write: Write) -> None:
    over = Abandoned(at=AT, how="started over", salvage="refs/capsule/salvage/demo-1/1")
    kept = Salvaged(at=AT, ref="refs/capsule/salvage/demo-1/2", why="left behind by an interrupted prep")
    write(*refuted_once(), over, started(), kept, begun("prep", 2), ended("prep", 2))
    out = show(MISSION).stdout
    assert "REFUTED" not in out
    assert "salvaged: refs/capsule/salvage/demo-1/1 (started over)" in out
    assert "salvaged: refs/capsule/salvage/demo-1/2 (left behind by an interrupted prep)" in out


@pytest.mark.promise("evidence.unverified")
def test_an_unverified_mission_says_so_loudly(show: Show, write: Write) -> None:
    write(msgspec.structs.replace(started(), policy=Policy()))
    assert "UNVERIFIED: no test command is known" in show(MISSION).stdout


def test_json_holds_the_whole_story_in_one_object(show: Show, write: Write, root: Path) -> None:
    write(*refuted_once(), Warned(at=AT, text="mind the gap"))
    (root / ".capsule/worktrees/demo-1").mkdir(parents=True)
    facts = json.loads(show(MISSION, "--json").stdout)
    assert (facts["mission"], facts["workflow"], facts["into"], facts["pid"]) == (MISSION, "tdd", "main", None)
    lie = facts["attempts"][-1]
    assert (lie["key"], lie["claimed"], lie["verdict"], lie["move"]) == ("execute#1", "PASS", "REFUTED", "retry")
    assert lie["evidence"][1]["standing"] == "refuted"
    assert facts["feedback"] == {"execute": "You reported PASS, but one test is red."}
    assert facts["warnings"] == ["mind the gap"]
    assert facts["places"] == {"worktree": str(root / ".capsule/worktrees/demo-1")}


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [40, 60, 100])
def test_it_fits_the_terminal(show: Show, write: Write, columns: int) -> None:
    write(*refuted_once())
    out = show(MISSION, columns=columns).stdout
    assert max(len(line) for line in out.splitlines()) <= columns
    assert ("REFUTED" in out, "scripted" in out) == (True, columns >= 60)


@pytest.mark.promise("commands.terminal")
def test_no_stranger_can_steer_the_terminal(show: Show, write: Write) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5n\u202e\r\nmore"
    piece = Evidence("green", nasty, nasty, EvidenceStatus.REFUTED, f"{nasty}\n{nasty}")
    lie = ended("prep", verdict=Verdict.REFUTED, move=Move.ABORT, evidence=(piece,), reason=nasty, feedback=nasty)
    write(started(title=nasty), begun("prep"), lie, Warned(at=AT, text=nasty))
    done = show(MISSION)
    assert done.returncode == 0
    assert not set(done.stdout) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"}
    assert json.loads(show(MISSION, "--json").stdout)["item"]["title"] == nasty


def test_an_id_that_may_not_be_a_path_is_refused(show: Show) -> None:
    done = show("../../etc/passwd")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a valid item id" in done.stderr


@pytest.mark.slow
@pytest.mark.promise("speed.show")
def test_a_long_mission_is_shown_in_a_moment(show: Show, write: Write) -> None:
    lies = [ended("execute", run, Verdict.PASS, Verdict.REFUTED, Move.REPEAT, (KEPT, RED)) for run in range(1, 501)]
    write(*refuted_once()[:-1], *lies)
    assert costs_below(3, lambda: show(MISSION), processor_seconds)
    assert show(MISSION).stdout.count("REFUTED") == 500
