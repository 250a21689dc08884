"""One mission, drawn: what is said and what was checked, at any width, whoever wrote the words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from textual.content import Content

from capsule.core.budget import Spending
from capsule.core.decide import Decision, Move
from capsule.core.event import Allowance, Event, Observed, Policy
from capsule.core.evidence import Colour, Evidence, EvidenceStatus, Observation
from capsule.core.history import Diff, FileChange
from capsule.core.signal import Verdict
from capsule.core.stamps import clock_time
from capsule.reports.table import width_of
from capsule.reports.words import judged
from capsule.tui import drawing
from capsule.tui.mission import change_lines, finding_lines, head_lines, now_lines, phase_lines, tail_lines

from .missions import (
    BUDGET,
    DOING,
    GREEN,
    NOT_GREEN,
    SENT_BACK,
    UNSEEN,
    at,
    at_the_code,
    begun,
    ended,
    halted,
    merged,
    merged_on_red,
    sent_back,
    shown,
    started,
    turned_away,
    warned,
)

STRANGE = "[b]bold[/b] \x1b[31mred\x1b]0;title\x07 \u202ebackwards [@click=app.quit]here[/]\nnext"


def plain(lines: list[Content]) -> str:
    return "\n".join(line.plain for line in lines)


def styles(line: Content) -> set[str]:
    return {str(span.style) for span in line.spans}


def drawn(events: list[Event], now: float = 132, *doing: str, width: int = 78, whole: bool = False, **more: Any) -> str:
    view = shown(events, now, *doing, **more)
    lines = [*head_lines(view, width), *phase_lines(view, width, folded=True), *now_lines(view, width)]
    return plain([*lines, *finding_lines(view, width, whole=whole)])


def test_stages_phases_attempts_and_seconds() -> None:
    text = drawn(sent_back())
    assert "✓1 ✓2 ▶3 ·4 ·5  [3/5] execute, attempt 2, 41 s" in text
    assert "▶ execute          2       41 s scripted         under way" in text
    assert "✓ prep                    0.2 s                  PASS" in text
    assert "· then sign-off, merge, publish, archive" in text


@pytest.mark.promise("screens.claims-apart")
def test_what_is_said_and_what_was_checked_stand_apart() -> None:
    text = drawn(sent_back())
    assert "claimed verdict" in text
    assert "✓ archive" not in text and "checked" not in text.split("Now")[0]
    assert "Checked  execute\n  scripted claimed  PASS: the answer is 42 now" in text
    assert "  verdict   ✗  REFUTED by 1 of 1 check" in text
    assert "  ✗ claimed  all tests pass\n    seen     the tests are red: exit code 1\n    │ test_answer.py F" in text


def test_feedback_on_rework_is_what_the_agent_was_told() -> None:
    assert "Feedback  for this attempt of execute\n  You reported PASS, but Capsule checked" in drawn(sent_back())
    assert "Feedback" not in drawn(at_the_code())


def test_what_goes_on_now() -> None:
    assert "Now  execute by scripted\n  no activity yet" in drawn(at_the_code(), 70)
    assert "  edits src/answer.py\n  runs pytest -q\n" in drawn(at_the_code(), 70, *DOING)
    assert "quiet for" not in drawn(at_the_code(), 70, *DOING, quiet=5)
    assert "  runs pytest -q\n  quiet for 40 s" in drawn(at_the_code(), 110, *DOING, quiet=40)


@pytest.mark.promise("agents.five-hours")
def test_waiting_counts_down() -> None:
    assert f"Too many requests. Next try at {clock_time(at(70), 60)}, in 50 s." in drawn(turned_away(), 80)
    assert f"Too many requests. Next try at {clock_time(at(70), 60)}, in 1 s." in drawn(turned_away(), 129)
    assert "Next try" not in drawn(turned_away(), 130), "it is tried"


@pytest.mark.parametrize(
    ("spent", "allowed", "words"),
    [
        (Spending(), Allowance(), "nothing spent yet"),
        (Spending(runs=1), Allowance(), "cost unknown"),
        (Spending(runs=1, usd=0.5, priced=1), Allowance(), "$0.50"),
        (Spending(runs=2, usd=0.5, priced=1), Allowance(usd=2), "≥ $0.50 of $2.00"),
        (Spending(), BUDGET, "$0.00 of $5.00, 0 of 200,000 tokens"),
        (Spending(runs=1), BUDGET, "an unknown part of $5.00, unknown of 200,000 tokens"),
        (Spending(runs=1, seconds=90), Allowance(seconds=600), "1 min 30 s of 10 min 0 s"),
    ],
)
def test_cost_and_budget(spent: Spending, allowed: Allowance, words: str) -> None:
    assert drawing.money(spent, allowed) == words


def test_a_mission_that_is_at_rest_says_what_to_type() -> None:
    assert "✗ failed at execute: the disk is full.\nnext: capsule answer demo-1.1 --retry" in drawn(halted(), pid=None)
    assert "✓ merged into main as 89abcdef0123; its item is closed." in drawn(merged(), pid=None)


def test_what_is_not_checked_is_called_so() -> None:
    assert "UNVERIFIED: verify is off" in drawn(at_the_code(policy=Policy(verify="off", test="x")))
    assert "UNVERIFIED: no test command is known" in drawn(at_the_code(policy=Policy()))
    assert "UNVERIFIED" not in drawn(at_the_code())
    text = drawn([*at_the_code(), ended("execute", 91, UNSEEN)])
    assert "PASS, 1 of 1 check could not be made" in text
    assert "  ? claimed  all tests pass" in text


def test_what_was_let_pass_against_the_evidence_is_never_green() -> None:
    view = shown(merged_on_red(), pid=None)
    text = drawn(merged_on_red(), pid=None)
    assert "NOT GREEN: the gate was red on the merge result (verify: warn)" in text
    assert "PASS, though 1 of 2 checks refutes it" in drawn(merged_on_red(), pid=None, width=100)
    assert "  verdict   !  PASS, though 1 of 1 check refutes it" in text
    phases = phase_lines(view, 100, folded=True)
    for phase in ("execute ", "publish "):
        line = next(line for line in phases if line.plain[2:].startswith(phase))
        assert styles(line) >= {drawing.UNSURE} and drawing.GOOD not in styles(line)
    [first, *_] = head_lines(view, 100)
    assert "✓ done" in first.plain and drawing.GOOD not in styles(first)
    assert drawing.GOOD in styles(next(head_lines(shown(merged(), pid=None), 100)))


def test_a_stage_is_not_green_where_one_of_its_phases_was_let_pass() -> None:
    bars = [list(head_lines(shown(events, pid=None), 100))[2] for events in (merged(), merged_on_red())]
    assert [drawing.UNSURE in styles(bar) for bar in bars] == [False, True]
    assert bars[0].plain == bars[1].plain


def test_a_narrow_screen_keeps_what_was_claimed_and_the_verdict() -> None:
    heads = [phase_lines(shown(sent_back()), width, folded=True)[0].plain.split() for width in (78, 64, 56, 48)]
    assert heads[0] == ["phase", "try", "time", "by", "claimed", "verdict"]
    assert heads[1] == ["phase", "try", "time", "claimed", "verdict"]
    assert heads[2] == ["phase", "try", "claimed", "verdict"]
    assert heads[3] == ["phase", "claimed", "verdict"]
    narrow = drawn([*at_the_code(), ended("execute", 91, NOT_GREEN, decision=SENT_BACK)], width=48)
    assert "↺ execute        PASS    REFUTED by 1 of 1 check" in narrow


def test_each_attempt_is_a_block_and_failure_has_another_shape() -> None:
    lines = phase_lines(shown(sent_back()), 100, folded=False, blocks=True)
    assert lines[0].plain.split()[:2] == ["phase", "tries"]
    [line] = [line for line in lines if "▶ execute " in line.plain]
    assert "execute        ▄░  " in line.plain
    assert drawing.BAD in styles(line)
    long = [event for run in range(1, 12) for event in (begun("execute", 61, run=run), refuted_at("execute", run))]
    lines = phase_lines(shown([*at_the_code()[:-1], *long]), 100, folded=False, blocks=True)
    assert "execute        …▄▄▄▄▄▄▄ " in plain(lines)


def refuted_at(phase: str, run: int) -> Event:
    return ended(phase, 62, NOT_GREEN, run=run, decision=SENT_BACK)


def test_the_last_test_run_is_told_by_name() -> None:
    def told(colour: Colour, **more: Any) -> str:
        seen = Observation("fedcba9876543210", "pytest -q", colour, 0 if colour is Colour.GREEN else 1, 0.4, **more)
        return drawn([*at_the_code(), Observed(at=at(90), key="execute#1", observation=seen)])

    red = told(Colour.RED, tests=9, passed=7, failing=("test_answer.py::test_answer", STRANGE))
    assert "tests ✗ red on fedcba987654 (0.4 s) by pytest -q\n  7 of 9 tests passed, 2 failed\n" in red
    assert "  ✗ test_answer.py::test_answer\n  ✗ [b]bold[/b] red backwards" in red
    green = told(Colour.GREEN, tests=9, passed=9)
    assert "  9 of 9 tests passed\n  ✓ test_answer.py::test_answer\n  ✓ test_answer.py::test_question" in green
    many = told(Colour.RED, tests=50, passed=30, failing=tuple(f"test_{n}" for n in range(20)))
    assert "  ✗ test_5\n    … and 14 more that failed" in many
    unnamed = told(Colour.RED, tests=1, passed=1, tail="ImportError: no module named answer")
    assert "  no test with a name failed (1 passed)\n  │ ImportError: no module named answer" in unnamed
    assert "  │ 2 failed" in told(Colour.RED, tail="2 failed")


def test_what_failed_is_said_first_and_on_a_low_screen_what_passed_shares_a_line() -> None:
    events = [*at_the_code(), ended("execute", 91, GREEN, NOT_GREEN, decision=SENT_BACK), begun("execute", 91, run=2)]
    checked = drawn(events).split("Checked")[1]
    assert checked.index("✗ claimed  all tests pass") < checked.index("✓ claimed  all tests pass")
    low = plain(phase_lines(shown(events), 78, folded=True, low=True))
    assert "✓ prep, test-writer, test-review passed\n▶ execute   2" in low


def judged_as(*evidence: Evidence, verdict: Verdict = Verdict.PASS, agent: str = "scripted") -> str:
    decision = Decision(Move.ADVANCE, verdict)
    last = ended("execute", 91, *evidence, agent=agent, decision=decision)
    return judged(shown([*at_the_code(), last]).attempts[-1])


def test_a_claim_that_nobody_checked_is_called_unverified() -> None:
    assert judged_as() == "PASS (unverified)"
    broken = Evidence("x", "", "", EvidenceStatus.REFUTED)
    assert judged_as(GREEN, broken, verdict=Verdict.REFUTED) == "REFUTED by 1 of 2 checks"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [(Verdict.PASS, "PASS, though 2 of 2 checks refute it"), (Verdict.ERROR, "ERROR, 2 of 2 checks refute it")],
)
def test_only_what_is_refuted_is_so_by_checks(verdict: Verdict, words: str) -> None:
    assert judged_as(NOT_GREEN, NOT_GREEN, verdict=verdict) == words


def test_everything_is_there_when_it_is_asked_for() -> None:
    assert "wrote a test for the answer" not in drawn(sent_back())
    assert "wrote a test for the answer" in drawn(sent_back(), whole=True)


def test_warnings_are_told() -> None:
    assert "! the tracker was moved by hand" in drawn([*at_the_code(), warned("the tracker was moved by hand")])


@pytest.mark.parametrize("width", [30, 78, 118, 158])
def test_nothing_is_wider_than_the_screen(width: int) -> None:
    long = "見出しがとても長い 😀 " * 20
    events = sent_back(title=long, mission="demo-" + "1." * 20 + "1")
    events += [ended("execute", 120, Evidence("x", long, long, EvidenceStatus.REFUTED, detail=long), summary=long)]
    events += [warned(long)]
    for line in drawn(events, 132, long, width=width, whole=True).split("\n"):
        assert Content(line).cell_length <= width, line


@pytest.mark.promise("screens.claims-apart")
def test_strangers_words_are_words() -> None:
    """Neither markup nor anything that steers a terminal, wherever they stand."""
    seen = Evidence("x", STRANGE, STRANGE, EvidenceStatus.REFUTED, detail=STRANGE)
    events = [started(title=STRANGE), *at_the_code()[1:], ended("execute", 91, seen, agent=STRANGE, summary=STRANGE)]
    text = drawn([*events, warned(STRANGE)], 132, whole=True, width=400)
    assert text.count("[b]bold[/b] red") >= 5
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert plain(tail_lines([STRANGE], 400)).count("[b]bold[/b] red") == 1


@pytest.mark.promise("screens.run-view")
def test_files_whose_paths_are_too_long_differ_by_their_names() -> None:
    folder = "changes/WRK-001_print-a-receipt-for-everybody"
    names = [f"{folder}/WRK-001_print-a-receipt_{kind}.md" for kind in ("PRD", "DESIGN")]
    files = tuple(FileChange(path=name, added=3, removed=0) for name in names)
    view = replace(shown(merged(), 132), diff=Diff(files=files))
    told = [line.plain for line in change_lines(view, 60)]
    assert ["_PRD.md " in line for line in told[1:3]] == [True, False]
    assert all(line.startswith("  …") and width_of(line) <= 60 for line in told[1:3])
