"""Plain lines: every event that matters is told, in words a stranger cannot bend."""

from __future__ import annotations

import io

from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Observed,
    Outcome,
    Policy,
    Rebased,
    Reopened,
    Salvaged,
    StepBegun,
    StepEnded,
    Warned,
)
from capsule.core.evidence import Checkpoint, Colour, Evidence, Observation, Standing
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, apply
from capsule.core.workflow import Phase, Role, Workflow
from capsule.reports.plain import PlainReport

AT = "2026-01-01T00:00:00Z"
FLOW = Workflow(
    name="flow",
    phases=(
        Phase(name="prep", role=Role.ACTION, do="prep", stage="Prep"),
        Phase(name="code", prompt="c", stage="Code"),
        Phase(name="check", role=Role.REVIEW, prompt="r", rework="code", stage="Code"),
    ),
)
HERE = Checkpoint("c", "h", "t")


def started(title: str = "The task", **policy: str) -> MissionStarted:
    rules = Policy(**{"test": "make test", **policy})  # type: ignore[arg-type]
    return MissionStarted(
        at=AT, mission="x-1", item=Item(id="x-1", title=title), workflow=FLOW, base="b" * 40, into="main", policy=rules
    )


def ended(move: Move, verdict: Verdict, summary: str = "", evidence: tuple[Evidence, ...] = (), **more: str) -> Event:
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS, summary=summary), evidence=evidence, seconds=2.04)
    decision = Decision(move=move, verdict=verdict, **more)  # type: ignore[arg-type]
    return StepEnded(at=AT, key="code#1", phase="code", run=1, outcome=outcome, decision=decision)


def shown(*events: Event, colour: bool = False, width: int = 100) -> str:
    stream = io.StringIO()
    report = PlainReport(stream, colour=colour, width=width)
    for event in (started(), *events):
        report.event("x-1", event)
    return stream.getvalue()


def test_a_mission_is_introduced_with_how_it_is_judged() -> None:
    assert shown() == "x-1: The task\n  workflow flow, base bbbbbbbbbbbb, into main\n  tests by `make test`\n"


def test_unverified_missions_say_so_at_the_start() -> None:
    assert "Unverified: no test command was found" in shown(started(test=""))
    assert "Unverified: verify is off" in shown(started(verify="off"))


def test_a_phase_shows_its_stage_attempt_and_agent() -> None:
    begun = StepBegun(at=AT, key="code#2", phase="code", run=2, attempt=2, agent="claude")
    assert "[2/2] code ... (attempt 2) by claude\n" in shown(begun)


def test_a_verdict_shows_seconds_and_summary() -> None:
    text = shown(ended(Move.ADVANCE, Verdict.PASS, "All done"))
    assert "[2/2] code PASS 2.0 s\n        All done\n" in text


def test_a_refuted_claim_is_shown_beside_what_was_seen() -> None:
    lie = Evidence("green", "all tests pass", "`make test` is red", Standing.REFUTED)
    text = shown(ended(Move.RETRY, Verdict.REFUTED, "All done", (lie,), back_to="code"))
    assert "code REFUTED 2.0 s (it claimed PASS)" in text
    assert "✗ claimed: all tests pass; seen: `make test` is red" in text
    assert "→ back to code with the evidence" in text
    assert "All done" not in text


def test_what_follows_from_a_verdict_is_said() -> None:
    for move, words in {
        Move.REWORK: "→ back to code: too slow",
        Move.PARK: "→ parked: too slow",
        Move.ABORT: "→ stopped: too slow",
        Move.CLOSE: "→ closed: too slow",
    }.items():
        assert words in shown(ended(move, Verdict.NEEDS_WORK, reason="too slow", back_to="code"))


def test_everything_else_that_happens_is_told_too() -> None:
    observation = Observation("t" * 40, "make test", Colour.RED, 1, 0.5)
    told = {
        "tests on tttttttttttt: red (0.5 s)": Observed(at=AT, key="k", observation=observation),
        "goes on where it stood.": Reopened(at=AT),
        "goes on where it stood, with what was changed by hand.": Reopened(at=AT, checkpoint=HERE),
        "was rebuilt on nnnnnnnnnnnn; it goes on at code.": Rebased(
            at=AT, base="n" * 40, checkpoint=HERE, re_enter="code"
        ),
        "kept: refs/x (left behind)": Salvaged(at=AT, ref="refs/x", why="left behind"),
        "! item was closed by hand": MovedByHand(at=AT, what="item", expected="open", found="closed"),
        "! odd": Warned(at=AT, text="odd"),
        "x-1 is closed in the tracker": ItemClosed(at=AT),
    }
    for words, event in told.items():
        assert words in shown(event)  # type: ignore[arg-type]


def test_a_strangers_words_cannot_paint_the_screen_or_fake_a_line() -> None:
    poison = "\x1b[2J\x1b]0;owned\x07fine\n[2/2] check PASS 0.0 s\r\x9b1A"
    text = shown(started(poison), ended(Move.ADVANCE, Verdict.PASS, poison))
    assert not set(text) & {"\x1b", "\x07", "\r", "\x9b"}
    assert "\n[2/2] check PASS" not in text


def test_colours_come_only_where_they_are_wanted() -> None:
    passed = ended(Move.ADVANCE, Verdict.PASS)
    assert "\x1b[32mPASS\x1b[0m" in shown(passed, colour=True)
    assert "\x1b" not in shown(passed)


def test_long_lines_are_wrapped_to_the_width() -> None:
    text = shown(ended(Move.ADVANCE, Verdict.PASS, "word " * 100), width=60)
    assert max(map(len, text.splitlines())) <= 62


def test_a_mission_that_goes_on_knows_its_stages() -> None:
    stream = io.StringIO()
    known = apply(MissionState(), started())
    report = PlainReport(stream, colour=False, width=80, standing=lambda _: known)
    report.event("x-1", StepBegun(at=AT, key="check#1", phase="check", run=1, attempt=1))
    assert stream.getvalue() == "[2/2] check ...\n"
