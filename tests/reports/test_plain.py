"""Plain lines: every event that matters is told, in words a stranger cannot bend."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pytest
from tests.costs import eventually

from capsule.core.budget import Budget
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Allowance,
    Event,
    ItemClosed,
    JobsSet,
    MissionStarted,
    MovedByHand,
    Observed,
    Outcome,
    Policy,
    Rebased,
    Reopened,
    RunEnded,
    RunStarted,
    Salvaged,
    StepBegun,
    StepEnded,
    Stopped,
    Usage,
    Waiting,
    Warned,
)
from capsule.core.evidence import Checkpoint, Colour, Evidence, EvidenceStatus, Observation
from capsule.core.failure import Failure, Kind
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.stamps import clock_time
from capsule.core.state import PHASE, MissionState, apply
from capsule.core.workflow import Phase, Role, Workflow
from capsule.reports.plain import PlainReport, QueueReport

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
    assert "UNVERIFIED: no test command is known" in shown(started(test=""))
    assert "UNVERIFIED: verify is off" in shown(started(verify="off"))


def test_a_phase_shows_its_stage_attempt_and_agent() -> None:
    begun = StepBegun(at=AT, key="code#2", phase="code", run=2, attempt=2, agent="claude")
    assert "[2/2] code ... (attempt 2) by claude\n" in shown(begun)


def test_a_verdict_shows_seconds_and_summary() -> None:
    text = shown(ended(Move.ADVANCE, Verdict.PASS, "All done"))
    assert "[2/2] code PASS 2.0 s\n        All done\n" in text


def test_a_refuted_claim_is_shown_beside_what_was_seen() -> None:
    lie = Evidence("green", "all tests pass", "`make test` is red", EvidenceStatus.REFUTED)
    text = shown(ended(Move.RETRY, Verdict.REFUTED, "All done", (lie,), back_to="code"))
    assert "code REFUTED 2.0 s (it claimed PASS)" in text
    assert "✗ claimed: all tests pass; seen: `make test` is red" in text
    assert "→ back to code with the evidence" in text
    assert "All done" not in text


def test_a_success_that_checks_speak_against_says_so_and_is_not_green() -> None:
    lie = Evidence("green", "all tests pass", "`make test` is red", EvidenceStatus.REFUTED)
    text = shown(ended(Move.ADVANCE, Verdict.PASS, "All done", (lie,)), colour=True)
    assert "code \x1b[33mPASS (though refuted)\x1b[0m 2.0 s" in text


def test_what_follows_from_a_verdict_is_said() -> None:
    for move, words in {
        Move.REWORK: "→ back to code: too slow",
        Move.PARK: "→ failed: too slow",
        Move.ABORT: "→ failed: too slow",
        Move.CLOSE: "→ closed: too slow",
    }.items():
        assert words in shown(ended(move, Verdict.NEEDS_WORK, reason="too slow", back_to="code"))


def test_everything_else_that_happens_is_told_too() -> None:
    observation = Observation("t" * 40, "make test", Colour.RED, 1, 0.5)
    told = {
        "tests on tttttttttttt: red (0.5 s)": Observed(at=AT, key="k", observation=observation),
        "x-1 resumes.": Reopened(at=AT),
        "x-1 resumes, with your changes.": Reopened(at=AT, checkpoint=HERE),
        "! x-1 goes back to code: main changed the same lines": Rebased(
            at=AT, base="n" * 40, checkpoint=HERE, re_enter="code", why="main changed the same lines\nof a file"
        ),
        "was rebuilt on nnnnnnnnnnnn; it resumes at code.": Rebased(
            at=AT, base="n" * 40, checkpoint=HERE, re_enter="code"
        ),
        "salvaged: refs/x (left behind)": Salvaged(at=AT, ref="refs/x", why="left behind"),
        "! item was closed by hand": MovedByHand(at=AT, what="item", expected="open", found="closed"),
        "! x-1 was moved by hand: ready → blocked": MovedByHand(
            at=AT, what="item", expected="ready", found="blocked", item=Item(id="x-1", title="The task")
        ),
        "! x-1 was edited meanwhile": MovedByHand(
            at=AT, what="item", expected="ready", found="edited", item=Item(id="x-1", title="The task")
        ),
        "! the branch was moved by hand, to bbbbbbbbbbbb": MovedByHand(
            at=AT, what="branch", expected="a" * 40, found="b" * 40
        ),
        "x-1 goes on at merge, as it was asked to": MovedByHand(at=AT, what=PHASE, expected="code", found="merge"),
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
    assert max(map(len, text.splitlines())) <= 60


def test_a_mission_that_goes_on_knows_its_stages() -> None:
    stream = io.StringIO()
    known = apply(MissionState(), started())
    report = PlainReport(stream, colour=False, width=80, standing=lambda _: known)
    report.event("x-1", StepBegun(at=AT, key="check#1", phase="check", run=1, attempt=1))
    assert stream.getvalue() == "[2/2] check ...\n"


# ── signs of life, and what it costs


BEGUN = StepBegun(at=AT, key="code#1", phase="code", run=1, attempt=1)


class Watched:
    """A report that gives a sign of life all the time, and what it has said."""

    def __init__(self, report: type[PlainReport] = PlainReport) -> None:
        self._stream = io.StringIO()
        self.report = report(self._stream, colour=False, width=80, sign_of_life=0.01)
        self.tell(started(), BEGUN)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.report.event("x-1", event)

    def said(self) -> list[str]:
        return [line.strip() for line in self._stream.getvalue().splitlines()]

    def signs(self) -> list[str]:
        return [line.strip() for line in self._stream.getvalue().splitlines() if line.startswith("        ... ")]

    def says(self, words: str) -> bool:
        return eventually(lambda: any(sign.endswith(f" s: {words}") for sign in self.signs()))


@pytest.mark.parametrize("report", [PlainReport, QueueReport])
def test_a_phase_that_says_nothing_gives_signs_of_life(report: type[PlainReport]) -> None:
    watched = Watched(report)
    assert watched.says("code")
    watched.report.activity("x-1", "running make\ntest")
    assert watched.says("running make test")
    watched.tell(Observed(at=AT, key="k", observation=Observation("t", "make test", Colour.RED, 1, 0.5)))
    count = len(watched.signs())
    assert eventually(lambda: watched.signs()[count:][-1:] and watched.signs()[-1].endswith(": code"))
    watched.tell(ended(Move.ADVANCE, Verdict.PASS))


def test_what_is_waited_for_is_said_again_and_again() -> None:
    watched = Watched()
    watched.tell(Waiting(at=AT, key="code#1", failure=Failure(Kind.OVERLOAD, "busy"), seconds=60))
    assert watched.says(f"waiting for the provider (overload), next try at {clock_time(AT, 60)}")
    watched.tell(Stopped(at=AT, cause="enough", exit_code=130))


@pytest.mark.promise("agents.five-hours")
def test_a_wait_is_told_with_the_time_of_day_at_which_it_ends(local_time_is: Callable[[str], None]) -> None:
    local_time_is("EDT4")
    watched = Watched()
    failure = Failure(Kind.RATE_LIMIT, "Usage limit reached")
    watched.tell(Waiting(at="2026-07-01T22:30:00Z", key="code#1", failure=failure, seconds=5 * 3600))
    assert "! Usage limit reached. Waiting 5 h 0 min, next try at 23:30." in watched.said()
    assert watched.says("waiting for the provider (rate limit), next try at 23:30")
    watched.tell(Stopped(at=AT, cause="enough", exit_code=130))


@pytest.mark.parametrize(
    "end", [ended(Move.ADVANCE, Verdict.PASS), Stopped(at=AT, cause="no", exit_code=2), RunEnded(at=AT, why="no")]
)
def test_the_end_of_a_phase_is_the_end_of_its_signs(end: Event) -> None:
    watched = Watched()
    assert watched.says("code")
    watched.report.event("_queue" if isinstance(end, RunEnded) else "x-1", end)
    assert eventually(lambda: watched.report._pulse._thread is None)


def test_whoever_stopped_watching_breaks_nothing() -> None:
    watched = Watched()
    watched._stream.close()
    pulse = watched.report._pulse
    beating, before = pulse._thread, pulse._said
    assert beating
    assert eventually(lambda: pulse._said > before)
    pulse.end()
    assert eventually(lambda: not beating.is_alive())


def paid(usd: float) -> StepEnded:
    event = ended(Move.ADVANCE, Verdict.PASS)
    assert isinstance(event, StepEnded)
    usage = Usage(usd=usd, tokens_in=900, tokens_out=100, seconds=30)
    outcome = msgspec.structs.replace(event.outcome, agent="claude", usage=usage)
    return msgspec.structs.replace(event, outcome=outcome)


def test_a_mission_says_what_it_has_come_to() -> None:
    assert "so far" not in shown(paid(0.5))
    assert "        so far: $0.75, 2,000 tokens, 1 min 0 s\n" in shown(paid(0.5), paid(0.25))


def test_a_mission_says_what_is_left_of_its_budget() -> None:
    stream = io.StringIO()
    budget = Budget(mission=Allowance(usd=5, tokens=10_000, seconds=90))
    report = PlainReport(stream, colour=False, width=100, budget=budget)
    for event in (started(), paid(0.5)):
        report.event("x-1", event)
    left = "left of its budget: $4.50, 9,000 tokens, 1 min 0 s"
    assert f"        so far: $0.50, 1,000 tokens, 30 s; {left}\n" in stream.getvalue()


def told_by_a_queue(jobs: int, *later: int) -> list[str]:
    stream = io.StringIO()
    report = QueueReport(stream, colour=False, width=60)
    report.event("_queue", RunStarted(at=AT, cap=9, jobs=jobs))
    for changed in later:
        report.event("_queue", JobsSet(at=AT, jobs=changed))
    for name in ("x-1", "x-2"):
        report.event(name, msgspec.structs.replace(started("A title that is long, and goes on " * 3), mission=name))
    for event in (
        StepBegun(at=AT, key="code#1", phase="code", run=1, attempt=1, agent="a"),
        Warned(at=AT, text="look out " * 20),
    ):
        report.event("x-2", event)
    return stream.getvalue().splitlines()


@pytest.mark.promise("jobs.lines")
def test_side_by_side_every_line_of_a_mission_begins_with_its_id() -> None:
    lines = told_by_a_queue(jobs=2)
    assert [line[:5] for line in lines] == sorted(line[:5] for line in lines) and {line[:5] for line in lines} == {
        "x-1  ",
        "x-2  ",
    }
    assert max(map(len, lines)) <= 60
    assert "x-2  [2/2] code ... by a" in lines


@pytest.mark.promise("jobs.lines")
def test_lines_say_whose_they_are_once_a_run_is_allowed_more() -> None:
    assert "x-2  [2/2] code ... by a" in told_by_a_queue(1, 3)
    assert "x-2  [2/2] code ... by a" in told_by_a_queue(1, 3, 1), "the others may still be at work"


@pytest.mark.promise("jobs.lines")
def test_one_after_the_other_lines_are_as_they_always_were() -> None:
    assert "[2/2] code ... by a" in told_by_a_queue(jobs=1)


def test_side_by_side_each_gives_signs_of_life() -> None:
    stream = io.StringIO()
    report = QueueReport(stream, colour=False, width=60, sign_of_life=0.02)
    report.event("_queue", RunStarted(at=AT, cap=9, jobs=2))
    for name in ("x-1", "x-2"):
        report.event(name, msgspec.structs.replace(started(), mission=name))
        report.event(name, StepBegun(at=AT, key="code#1", phase="code", run=1, attempt=1))
    assert eventually(lambda: all(f"{name}          ... " in stream.getvalue() for name in ("x-1", "x-2")))
    report.event("_queue", RunEnded(at=AT, why="over"))
