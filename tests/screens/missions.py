"""Missions as screens show them, told by events: each a situation, at a moment that never changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from capsule.catalog import Catalog
from capsule.core.budget import UNLIMITED, Budget
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Allowance,
    Event,
    ItemClosed,
    MissionStarted,
    Observed,
    Outcome,
    Policy,
    StepBegun,
    StepEnded,
    Usage,
    Waiting,
    Warned,
)
from capsule.core.evidence import Colour, Evidence, EvidenceStatus, Observation
from capsule.core.failure import Failure, Kind
from capsule.core.history import MOST_ATTEMPTS, MissionSummary, Presence, read_mission
from capsule.core.item import Item, Status
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Workflow

BEGAN = datetime.fromisoformat("2026-03-01T10:00:00Z")
PID = 4711
BUDGET = Allowance(usd=5.0, tokens=200_000)
DOING = ("reads src/answer.py", "edits src/answer.py", "runs pytest -q")

RED = Evidence(
    "red",
    "the new tests fail before there is code",
    "red by name (2 new)",
    EvidenceStatus.CONFIRMED,
    proven={"red": "red by name (2 new)"},
    tests={"new": ("test_answer.py::test_answer", "test_answer.py::test_question")},
)
ONLY_TESTS = Evidence(
    "only-tests", "only tests were changed", "1 test file changed, nothing else", EvidenceStatus.CONFIRMED
)
GREEN = Evidence(
    "green",
    "all tests pass",
    "green by name (2 new, 212 others unharmed)",
    EvidenceStatus.CONFIRMED,
    proven={"green": "green by name", "unharmed": "212 others unharmed"},
)
CANARY = Evidence(
    "canary",
    "the test run tells the truth",
    "canary seen in 1 test file",
    EvidenceStatus.CONFIRMED,
    proven={"canary": "canary seen"},
)
DEMANDED = Evidence(
    "demanded",
    "the tests demand the change",
    "demanded 7 of 8",
    EvidenceStatus.CONFIRMED,
    proven={"demanded": "demanded 7 of 8"},
    survivors=("`n > 0` → `n >= 0` in src/answer.py:14",),
)
UNSEEN = Evidence("green", "all tests pass", "there is no test command to ask", EvidenceStatus.UNVERIFIED)
NOT_GREEN = Evidence(
    "green",
    "all tests pass",
    "the tests are red: exit code 1",
    EvidenceStatus.REFUTED,
    detail="test_answer.py F\n    assert answer() == 42\nE   assert 41 == 42\n1 failed, 3 passed in 0.12s",
)
GATE_RED = Evidence("gate", "the merge result is green", "`pytest -q` is red on 89abcdef0123", EvidenceStatus.REFUTED)
SENT_BACK = Decision(
    Move.RETRY,
    Verdict.REFUTED,
    reason="the tests are red: exit code 1",
    feedback="You reported PASS, but Capsule checked and the claim does not hold:\n\n"
    "- Claimed: all tests pass\n  Observed: the tests are red: exit code 1",
    back_to="execute",
    counter="execute",
)


@cache
def tdd() -> Workflow:
    return Catalog().workflow("tdd")


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def started(mission: str = "demo-1.1", title: str = "Find the answer", **more: Any) -> MissionStarted:
    item = Item(id=mission, title=title, status=Status.IN_PROGRESS)
    made = MissionStarted(
        at=at(0),
        mission=mission,
        item=item,
        workflow=tdd(),
        base="0123456789abcdef",
        into="main",
        policy=Policy(test="pytest -q"),
    )
    return msgspec.structs.replace(made, **more)


def begun(phase: str, when: float, *, run: int = 1, agent: str = "scripted") -> StepBegun:
    return StepBegun(at=at(when), key=f"{phase}#{run}", phase=phase, run=run, attempt=run, agent=agent, spawns=True)


def ended(
    phase: str,
    when: float,
    *evidence: Evidence,
    run: int = 1,
    agent: str = "scripted",
    claimed: Verdict = Verdict.PASS,
    decision: Decision | None = None,
    summary: str = "did as asked",
    facts: dict[str, str] | None = None,
) -> StepEnded:
    outcome = Outcome(
        signal=Signal(verdict=claimed, summary=summary),
        evidence=evidence,
        agent=agent,
        seconds=30 if agent else 0.2,
        usage=Usage(tokens_in=4000, tokens_out=100, usd=0.04, seconds=30) if agent else None,
        facts=facts or {},
    )
    made = decision or Decision(Move.ADVANCE, claimed)
    return StepEnded(at=at(when), key=f"{phase}#{run}", phase=phase, run=run, outcome=outcome, decision=made)


def at_the_code(**more: Any) -> list[Event]:
    """The tests are written and reviewed, and the first agent is at the code."""
    return [
        started(**more),
        begun("prep", 0, agent=""),
        ended("prep", 1, agent="", summary=""),
        begun("test-writer", 1),
        ended("test-writer", 31, RED, ONLY_TESTS, summary="wrote a test for the answer"),
        begun("test-review", 31),
        ended("test-review", 61, RED, ONLY_TESTS),
        begun("execute", 61),
    ]


def sent_back(**more: Any) -> list[Event]:
    """Its PASS was refuted, and another agent is at it with the evidence."""
    seen = Observation("fedcba9876543210", "pytest -q", Colour.RED, 1, 0.4)
    return [
        *at_the_code(**more),
        Observed(at=at(90), key="execute#1", observation=seen),
        ended("execute", 91, NOT_GREEN, decision=SENT_BACK, summary="the answer is 42 now"),
        begun("execute", 91, run=2),
    ]


def turned_away() -> list[Event]:
    """Its provider has had enough for a minute."""
    failure = Failure(Kind.RATE_LIMIT, "Too many requests", resets_in=60)
    return [*at_the_code(), Waiting(at=at(70), key="execute#1", failure=failure, seconds=60)]


def halted(**more: Any) -> list[Event]:
    gone = Decision(Move.ABORT, Verdict.ERROR, reason="the disk is full", exit_code=2)
    return [*at_the_code(**more), ended("execute", 80, claimed=Verdict.ERROR, decision=gone, summary="no room")]


def merged(**more: Any) -> list[Event]:
    events: list[Event] = [*at_the_code(**more), ended("execute", 91, GREEN)]
    for number, phase in enumerate(("execute-review", "sign-off", "merge", "publish", "archive")):
        agent = "" if phase in ("publish", "archive") else "scripted"
        facts = {"merged": "89abcdef01234567"} if phase == "publish" else {}
        seen = (GREEN, CANARY, DEMANDED) if phase == "sign-off" else ()
        over = ended(phase, 92 + number, *seen, agent=agent, facts=facts)
        events += [begun(phase, 91 + number, agent=agent), over]
    return [*events, ItemClosed(at=at(97))]


def merged_on_red(**more: Any) -> list[Event]:
    """`verify: warn` let through what every check spoke against."""
    events = merged(policy=Policy(verify="warn", test="pytest -q"), **more)
    lies = {"execute": (GREEN, NOT_GREEN), "publish": (GATE_RED,)}
    return [_seen_as(event, lies.get(event.phase, ())) if isinstance(event, StepEnded) else event for event in events]


def _seen_as(event: StepEnded, evidence: tuple[Evidence, ...]) -> StepEnded:
    outcome = msgspec.structs.replace(event.outcome, evidence=evidence or event.outcome.evidence)
    return msgspec.structs.replace(event, outcome=outcome)


def warned(text: str) -> Warned:
    return Warned(at=at(65), text=text)


def shown(
    events: list[Event],
    now: float = 100,
    *doing: str,
    pid: int | None = PID,
    quiet: float = 0,
    allowed: Allowance = UNLIMITED,
) -> MissionSummary:
    """As a screen has it at that second, `quiet` seconds after the agent last did something."""
    presence = Presence(pid, doing, at(now - quiet) if doing else "")
    return read_mission(events, MOST_ATTEMPTS).summary(presence, at(now), Budget(mission=allowed))
