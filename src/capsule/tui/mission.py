"""One mission on a screen: its phases, what its agent does now, what was claimed and what was seen, what it cost.

What an agent *claimed* and the *verdict* on it never stand in the same column; *checked* is what has evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from textual.content import Content

from capsule.core.evidence import Colour
from capsule.core.findings import finding_line
from capsule.core.history import Attempt, Mark, MissionSummary
from capsule.core.proven import proof_of
from capsule.core.stamps import clock_time, seconds_between
from capsule.core.text import count, sentence
from capsule.reports.style import clean, printable
from capsule.reports.table import width_of
from capsule.reports.words import proof_rows
from capsule.tui import drawing
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, UNSURE, row, text

WIDE = 120
"""From so many columns on there are two side by side."""
QUIET = 20
"""Seconds without a sign of life that are worth a word."""
_MOST_DOING = 4
_TOLD_LINES = 8
_GAP = 3
_VERDICT = 24
"""Cells that most verdicts fit in."""
_DISPENSABLE = ("by", "time", "try")
"""Columns that a narrow screen leaves out, in this order."""
_FOREMOST = (Mark.NOW, Mark.NEEDS_YOU, Mark.FAILED, Mark.INTERRUPTED, Mark.AGAIN, Mark.TO_DO, Mark.DONE)
"""A stage has the first of these marks that one of its phases has."""
_TO_THE_RIGHT = ("try", "time")


def mission_lines(
    view: MissionSummary, width: int, *, whole: bool, tail: Sequence[str] | None = None
) -> Iterator[Content]:
    """Draw a mission; on a wide screen its phases and its findings side by side.

    `whole` is every attempt with its whole evidence, else the last verdict alone. `tail` are the last lines that its
    agent printed.
    """
    wide = width >= WIDE
    left = (width - _GAP) // 2 if wide else width
    phases = [*phase_lines(view, left, folded=not wide), *now_lines(view, left)]
    if tail is not None:
        phases += tail_lines(tail, left)
    findings = finding_lines(view, width - _GAP - left if wide else width, whole=whole)
    yield from head_lines(view, width)
    if not wide:
        yield from (*phases, *findings)
        return
    for phase, finding in zip_longest(phases, findings, fillvalue=Content("")):
        yield row(phase, " " * (left + _GAP - phase.cell_length), finding)


def head_lines(view: MissionSummary, width: int) -> Iterator[Content]:
    name = row(text(view.mission, STRONG), "  ", drawing.said(view.title, width))
    yield drawing.both_ends(name, row(drawing.status_of(view), f"  {drawing.elapsed(view.busy_seconds)}"), width)
    about = f"{view.workflow}, from {view.base[:12]} into {view.into}"
    money = text(drawing.money(view.spent_with_parts, view.allowed))
    yield drawing.both_ends(drawing.said(about, width, FAINT), money, width)
    yield _stages(view, width)
    if view.unverified:
        yield from drawing.paragraph(view.unverified, width, f"{UNSURE} bold")
    yield from drawing.proven(view, width)
    yield Content("")


def _stages(view: MissionSummary, width: int) -> Content:
    """`✓1 ▶2 ·3  [2/3] test-review, attempt 2, 12 s`"""
    drawn = []
    for number in range(1, view.stages + 1):
        lines = [line for line in view.lines if line.stage == number]
        marks = {line.mark for line in lines}
        shown = next((mark for mark in _FOREMOST if mark in marks), Mark.SKIPPED)
        doubted = any(line.attempt.passed_despite_evidence for line in lines)
        drawn.append(row(drawing.marked(shown, doubted=doubted), f"{number} "))
    bar = row(*drawn, f" [{view.stage}/{view.stages}] ")
    attempt = f", attempt {view.attempt}" if view.attempt > 1 else ""
    since = f", {drawing.elapsed(view.phase_seconds)}" if view.phase_seconds is not None else ""
    ended = "finished" if view.state.finished else view.status.words
    where = f"{view.phase}{attempt}{since}" if view.phase else ended
    return row(bar, drawing.said(where, width - bar.cell_length, BUSY))


def phase_lines(view: MissionSummary, width: int, *, folded: bool) -> list[Content]:
    """Draw a row for each phase. `folded`: those still to come but for the first share one."""
    to_come = [line for line in view.lines if line.mark is Mark.TO_DO]
    shown = [line for line in view.lines if not folded or line not in to_come[1:]]
    agents = max((width_of(clean(line.attempt.agent)) for line in shown), default=0)
    columns = {
        "phase": min(20, max([5, *(width_of(line.phase) for line in shown)])),
        "try": 3,
        "time": 10,
        **({"by": min(12, max(2, agents))} if agents else {}),
        "claimed": max([7, *(len(line.attempt.claimed) for line in shown)]),
    }
    for name in ("", *_DISPENSABLE):
        columns.pop(name, None)
        room = width - 2 - sum(cells + 1 for cells in columns.values())
        if room >= _VERDICT:
            break
    columns["verdict"] = max(10, room)
    words = (f"{name:>{cells}}" if name in _TO_THE_RIGHT else f"{name:<{cells}}" for name, cells in columns.items())
    lines = [text(f"  {' '.join(words)}"[:width], f"{FAINT} underline")]
    for line in shown:
        attempt = line.attempt
        cells = {
            "phase": drawing.cell(line.phase, columns["phase"], STRONG if line.mark is Mark.NOW else ""),
            "try": text(f"{attempt.number if attempt.number > 1 else '':>3}"),
            "time": text(f"{drawing.elapsed(line.seconds):>10}"),
            "by": drawing.cell(attempt.agent, columns.get("by", 1), FAINT),
            "claimed": drawing.cell(attempt.claimed if attempt.agent else "", columns["claimed"]),
            "verdict": drawing.phase_verdict(line, columns["verdict"]),
        }
        mark = drawing.marked(line.mark, doubted=attempt.passed_despite_evidence)
        drawn = Content(" ").join([mark, *(cells[name] for name in columns)])
        lines.append(drawn.truncate(width, ellipsis=True))
    if len(shown) < len(view.lines):
        rest = ", ".join(line.phase for line in to_come[1:])
        lines.append(row(drawing.marked(Mark.TO_DO), " ", drawing.said(f"then {rest}", width - 2, FAINT)))
    return [*lines, Content("")]


def now_lines(view: MissionSummary, width: int) -> list[Content]:
    """Draw the agent's activity; of a mission at rest, its status and the command that helps."""
    if view.pid is None:
        lines = drawing.paragraph(sentence(view.sentence), width, STRONG)
        return [*lines, *drawing.paragraph(view.next, width, first=text("next: ", FAINT)), Content("")]
    lines = [_title("Now", f"{view.phase} by {view.agent}" if view.agent else view.phase, width)]
    if view.waiting:
        waited = seconds_between(view.waiting.at, view.as_of)
        left = drawing.elapsed(max(0, int(view.waiting.seconds - waited)))
        at, why = clock_time(view.waiting.at, view.waiting.seconds), sentence(clean(view.waiting.failure.reason))
        lines += drawing.paragraph(f"{why} Next try at {at}, in {left}.", width, UNSURE, first="  ")
    lines += [row("  ", drawing.said(doing, width - 2)) for doing in view.doing[-_MOST_DOING:]]
    if view.quiet_for is not None and view.quiet_for >= QUIET and not view.waiting:
        lines.append(text(f"  quiet for {drawing.elapsed(view.quiet_for)}", UNSURE if view.quiet_for > 300 else FAINT))
    elif not view.doing and not view.waiting:
        lines.append(text("  no activity yet", FAINT))
    return [*lines, Content("")]


def tail_lines(tail: Sequence[str], width: int) -> list[Content]:
    lines = drawing.passage("\n".join(tail), width, style=FAINT) if any(tail) else [text("  nothing yet", FAINT)]
    return [_title("Output", "the last lines", width), *lines, Content("")]


def finding_lines(view: MissionSummary, width: int, *, whole: bool) -> list[Content]:
    """Draw claims against evidence, findings of reviews, feedback, the last test run and warnings."""
    shown = [attempt for attempt in view.attempts if attempt.ended]
    if not whole:  # the last that is worth a look: it failed, or a claim was set beside what was seen
        shown = [each for each in shown if each.evidence or each.verdict not in ("PASS", "MORE", "SKIPPED")][-1:]
    lines: list[Content] = []
    if whole:
        for label, words in proof_rows(proof_of(view)):
            lines += drawing.paragraph(words, width, first=text(f"  {label}  ", FAINT))
        lines = [_title("Proof", view.mission, width), *lines, Content("")] if lines else []
        lines += [drawing.earlier(view)] if view.forgotten else []
    for attempt in reversed(shown):
        lines += [*_attempt(attempt, width, whole=whole), Content("")]
    for phase, finding in view.findings if whole else view.open_findings:
        first = text(f"  {phase}  ", FAINT)
        lines += drawing.paragraph(finding_line(finding), width, first=first, most=0 if whole else 2)
    lines += _feedback(view, width, whole=whole)
    if view.tests:
        colour, when = view.tests.colour, f" on {view.tests.tree[:12]} ({drawing.elapsed(view.tests.seconds)}) by "
        head = row("tests ", text(colour.value, GOOD if colour is Colour.GREEN else BAD), text(when, FAINT))
        command = drawing.said(view.tests.command, max(8, width - head.cell_length), FAINT)
        lines += [row(head, command).truncate(width), Content("")]
    for warning in view.warnings:
        lines += drawing.paragraph(warning, width, UNSURE, first=text("! ", UNSURE), most=0 if whole else 3)
    return lines


def _attempt(attempt: Attempt, width: int, *, whole: bool) -> Iterator[Content]:
    assert attempt.ended
    outcome, decision = attempt.ended.outcome, attempt.ended.decision
    again = f", attempt {attempt.number}" if attempt.number > 1 else ""
    yield _title("Checked" if attempt.evidence else "Verdict", f"{attempt.phase}{again}", width)
    if attempt.agent:
        claim = f"{attempt.claimed}: {outcome.signal.summary}" if outcome.signal.summary else attempt.claimed
        who = text(f"  {clean(attempt.agent)} claimed  ", FAINT)
        yield from drawing.paragraph(claim, width, FAINT, first=who, most=3)
    verdict, style = drawing.verdict_of(attempt)
    yield row("  verdict  ", drawing.said(verdict, width - 11, f"{style} bold"))
    for piece in attempt.evidence:
        yield from drawing.proof(piece, width, whole=whole)
    if decision.reason and attempt.verdict != "PASS":
        yield from drawing.paragraph(decision.reason, width, first=text("  because  ", FAINT))
    for warning in outcome.warnings:
        yield from drawing.paragraph(warning, width, UNSURE, first=text("  ! ", UNSURE), most=0 if whole else 2)


def _feedback(view: MissionSummary, width: int, *, whole: bool) -> Iterator[Content]:
    """Draw feedback for rework: the phase under way has been given it, a later one will be."""
    under_way = {line.phase: line.told for line in view.lines if line.told}
    to_come = {phase: words for phase, words in view.feedback.items() if phase not in under_way}
    for which, told in (("this", under_way), ("the next", to_come)):
        for phase, feedback in told.items():
            yield _title("Feedback", f"for {which} attempt of {phase}", width)
            lines: list[Content] = []
            for each in printable(feedback).strip().splitlines():
                lines += drawing.paragraph(each, width, first="  ")
            yield from lines if whole else lines[:_TOLD_LINES]
            if not whole and len(lines) > _TOLD_LINES:
                yield text(f"  … {count(len(lines) - _TOLD_LINES, 'more line')}", FAINT)
            yield Content("")


def _title(what: str, about: str, width: int) -> Content:
    return row(text(what, STRONG), "  ", drawing.said(about, max(8, width - len(what) - 2), FAINT))
