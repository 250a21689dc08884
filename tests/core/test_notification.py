"""What a person is called for, and what not."""

from __future__ import annotations

import pytest

from capsule.core.decide import Decision, Move
from capsule.core.event import (
    CAMPAIGN,
    RUN,
    Abandoned,
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Outcome,
    Reopened,
    RunEnded,
    StepBegun,
    StepEnded,
    Stopped,
    Warned,
)
from capsule.core.item import Item, Status
from capsule.core.ledger import tagged
from capsule.core.notification import LONGEST, TELLING, Occasion, channels, is_repeated_by_run, notification
from capsule.core.signal import Signal, Verdict
from capsule.core.state import replay
from capsule.core.workflow import Phase, Role, Workflow

AT = "2026-01-01T00:00:00Z"
FLOW = Workflow(
    name="flow",
    phases=(Phase(name="build", prompt="b", role=Role.SOLO), Phase(name="merge", role=Role.ACTION, do="publish")),
)
QUEUE = f"{RUN}queue"


def started(parent: str = "", title: str = "Find the answer") -> MissionStarted:
    item = Item(id="x-1", title=title)
    return MissionStarted(at=AT, mission="x-1", item=item, workflow=FLOW, base="b", into="main", parent=parent)


def ended(move: Move, phase: str = "build", reason: str = "", **facts: str) -> StepEnded:
    verdict = Verdict.PASS if move is Move.ADVANCE else Verdict.BLOCKED
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS), facts=facts)
    decision = Decision(move=move, verdict=verdict, reason=reason, back_to="build")
    return StepEnded(at=AT, key=f"{phase}#1", phase=phase, run=1, outcome=outcome, decision=decision)


def of_mission(*events: Event, parent: str = "") -> tuple[str, str] | None:
    """The occasion and the words for the last of these events."""
    found = notification("x-1", events[-1], replay((started(parent), *events)))
    return (found.occasion.value, found.words) if found else None


def of_run(event: Event) -> tuple[str, str] | None:
    found = notification(QUEUE, event, replay(()))
    return (found.occasion.value, found.words) if found else None


BUILT = ended(Move.ADVANCE)
MERGED = ended(Move.ADVANCE, "merge", merged="c0ffee" * 4)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((ended(Move.PARK, reason="which colour?"),), ("blocked", "x-1 needs you at build: which colour?")),
        ((ended(Move.ABORT, reason="no idea"),), ("stopped", "x-1 failed at build: no idea.")),
        (
            (Stopped(at=AT, cause="Stopped by SIGINT.", exit_code=130),),
            ("stopped", "x-1 was stopped: Stopped by SIGINT."),
        ),
        ((BUILT, MERGED), ("done", "x-1 is merged into main as c0ffeec0ffee.")),
        ((ended(Move.CLOSE, reason="a duplicate of x-0"),), ("done", "x-1 is closed: a duplicate of x-0.")),
        ((BUILT, ended(Move.SKIP, "merge")), ("done", "x-1 is done.")),
        ((BUILT,), None),
        ((ended(Move.REWORK, reason="again"),), None),
        ((ended(Move.RETRY, reason="again"),), None),
        ((ended(Move.REPEAT),), None),
        ((ended(Move.PARK, reason="?"), Reopened(at=AT)), None),
        ((BUILT, MERGED, ItemClosed(at=AT)), None),
        ((StepBegun(at=AT, key="build#1", phase="build", run=1, attempt=1),), None),
        ((Abandoned(at=AT, how="aborted"),), None),
        ((Warned(at=AT, text="odd"),), None),
    ],
)
def test_each_happening_of_a_mission(events: tuple[Event, ...], told: tuple[str, str] | None) -> None:
    assert of_mission(*events) == told


def test_who_moved_it_by_hand_knows_already() -> None:
    blocked = Item(id="x-1", title="T", status=Status.BLOCKED)
    moved = MovedByHand(at=AT, what="item", expected="ready", found="blocked", item=blocked)
    assert of_mission(moved) is None


def test_a_veto_on_the_last_phase_waits_for_a_person_and_is_not_done() -> None:
    decision = Decision(move=Move.PARK, verdict=Verdict.PASS, reason="too risky", vetoed=True)
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS))
    last = StepEnded(at=AT, key="merge#1", phase="merge", run=1, outcome=outcome, decision=decision)
    assert of_mission(BUILT, last) == ("blocked", "x-1 needs you at merge: too risky.")


def test_a_child_is_told_of_by_its_parent() -> None:
    assert of_mission(ended(Move.PARK, reason="?"), parent="x-0") is None
    assert of_mission(BUILT, MERGED, parent="x-0") is None


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            RunEnded(at=AT, why="nothing is left to do", spawns=9, done=("a", "b"), blocked={"c": "why"}),
            ("stopped", "The run ended: nothing is left to do (1 needs you, 2 done)."),
        ),
        (
            RunEnded(at=AT, why="breaker: 2 items in a row", exit_code=3, failed={"a": "x"}, waiting={"b": "y"}),
            ("stopped", "The run ended: breaker: 2 items in a row (1 failed, 1 not started)."),
        ),
        (
            RunEnded(at=AT, why="cap: 1 of 1 phases used", spawns=1),
            ("stopped", "The run ended: cap: 1 of 1 phases used."),
        ),
        (RunEnded(at=AT, why="nothing is left to do"), None),
    ],
)
def test_each_end_of_a_run(event: RunEnded, told: tuple[str, str] | None) -> None:
    assert of_run(event) == told


def test_an_item_that_a_guardrail_holds_at_the_door_is_told_of_by_its_id() -> None:
    held = Warned(at=AT, text=tagged("WRK-001", "blocked", "size large is above medium"))
    found = notification(QUEUE, held, replay(()))
    assert found is not None
    assert (found.occasion, found.mission) == (Occasion.BLOCKED, "WRK-001")
    assert found.words == "WRK-001 needs you: size large is above medium."
    assert of_run(Warned(at=AT, text=tagged("WRK-001", "ready", "Within the guardrails"))) is None
    assert of_mission(held) is None


def test_a_run_of_one_item_is_old_news_once_the_item_was_told_of() -> None:
    one, stream = RunEnded(at=AT, why="nothing is left to do", done=("WRK-001",)), f"{RUN}run-WRK-001"
    assert is_repeated_by_run(stream, one, {"WRK-001"})
    assert not is_repeated_by_run(stream, one, ())
    assert not is_repeated_by_run(QUEUE, one, {"WRK-001"})
    two = RunEnded(at=AT, why="nothing is left to do", done=("WRK-001",), failed={"WRK-002": "x"})
    assert not is_repeated_by_run(stream, two, {"WRK-001", "WRK-002"})


def test_words_are_one_short_line_whatever_an_agent_wrote() -> None:
    poison = "\x1b[2J" + "two\nlines\u202e " * 100
    found = notification("x-1", ended(Move.PARK, reason=poison), replay((started(title=poison),)))
    assert found is not None
    for text in (found.words, found.title):
        assert text.isprintable()
        assert len(text) <= LONGEST + 1


def test_only_telling_events_are_looked_at() -> None:
    assert set(TELLING) == {StepEnded, Stopped, Warned, RunEnded}


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("none", ()),
        ("", ()),
        ((), ()),
        ("bell", ("bell",)),
        ("mail me", ("mail me",)),
        (("none", "bell", "mail me", "bell"), ("bell", "mail me")),
    ],
)
def test_who_is_called(setting: str | tuple[str, ...], found: tuple[str, ...]) -> None:
    assert channels(setting) == found


def test_there_are_three_occasions() -> None:
    assert [one.value for one in Occasion] == ["blocked", "done", "stopped"]


@pytest.mark.parametrize(("exit_code", "told"), [(0, Occasion.DONE), (1, Occasion.STOPPED)])
def test_a_campaign_is_done_when_it_is_at_its_end(exit_code: int, told: Occasion) -> None:
    ended = RunEnded(at=AT, why="demo-1 is closed", exit_code=exit_code, spawns=3, done=("a",))
    found = notification(f"{CAMPAIGN}demo-1", ended, replay(()))
    assert found and found.occasion is told
