"""One mission on a screen: its phases, the agent's activity, claims against evidence, cost.

What an agent *claimed* and the *verdict* on it never stand in the same column; *checked* is what has evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from textual.content import Content

from capsule.core.evidence import Colour, refuted
from capsule.core.findings import finding_line
from capsule.core.history import Attempt, FileChange, Mark, MissionSummary
from capsule.core.proven import proof_of
from capsule.core.signal import Verdict
from capsule.core.stamps import clock_time, seconds_between
from capsule.core.status import MissionStatus
from capsule.core.text import count, sentence
from capsule.reports.style import clean, printable
from capsule.reports.table import fit_end, width_of
from capsule.reports.words import change_words, look_of, proof_rows
from capsule.tui import drawing
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, UNSURE, row, text

WIDE = 116
"""From so many columns on, a frame's width less than 120, there are two side by side."""
LOW = 30
"""On fewer lines, evidence comes before other notes."""
TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""Signs that turn while an agent works."""
QUIET = 20
"""Seconds of silence that are reported."""
_ROOMY = 84
"""From so many columns on, attempts are drawn one by one."""
_MOST_DOING = 4
_TOLD_LINES = 8
_MOST_TESTS = 6
_MOST_FILES = 6
_MOST_BLOCKS = 8
_DIFF_BAR = 10
_STAGES = 52
"""Cells that most lines of stages fit in."""
_GAP = 3
_VERDICT = 24
"""Cells that most verdicts fit in."""
_DISPENSABLE = ("by", "time", "tries", "try")
"""Columns that a narrow screen leaves out, in this order."""
_FOREMOST = (Mark.NOW, Mark.NEEDS_YOU, Mark.FAILED, Mark.INTERRUPTED, Mark.AGAIN, Mark.TO_DO, Mark.DONE)
"""A stage has the first of these marks that one of its phases has."""
_TO_THE_RIGHT = ("try", "time")


def mission_lines(
    view: MissionSummary,
    width: int,
    *,
    whole: bool,
    tail: Sequence[str] | None = None,
    height: int = LOW,
    turn: str = "",
) -> Iterator[Content]:
    """Draw a mission; on a wide screen its phases and its findings side by side.

    `whole` shows every attempt with all its evidence, else only the last verdict. `tail` are the last lines of its
    agent's output. `turn` is a sign that moves while an agent works.
    """
    wide, low = width >= WIDE, height < LOW
    left = (width - _GAP) // 2 if wide else width
    low_here = low and not wide
    phases = phase_lines(view, left, folded=not wide, low=low_here, blocks=wide or left >= _ROOMY)
    phases += now_lines(view, left, turn=turn, most=1 if low_here else _MOST_DOING)
    if tail is not None:
        phases += tail_lines(tail, left)
    findings = finding_lines(view, width - _GAP - left if wide else width, whole=whole)
    yield from head_lines(view, width, low=low)
    if not wide:
        yield from (*phases, *findings, *change_lines(view, width))
        return
    phases += change_lines(view, left)
    for phase, finding in zip_longest(phases, findings, fillvalue=Content("")):
        yield row(phase, " " * (left + _GAP - phase.cell_length), finding)


def head_lines(view: MissionSummary, width: int, *, low: bool = False) -> Iterator[Content]:
    """Draw the head of a mission. `low`: on as few lines as possible."""
    name = row(text(view.mission, STRONG), "  ", drawing.said(view.title, width))
    yield drawing.both_ends(name, row(drawing.status_of(view), f"  {drawing.elapsed(view.busy_seconds)}"), width)
    money = text(drawing.money(view.spent_with_parts, view.allowed))
    if low:
        money = money.truncate(max(10, width - _STAGES), ellipsis=True)
        yield drawing.both_ends(_stages(view, width - money.cell_length - 1), money, width)
    else:
        about = f"{view.workflow}, from {view.base[:12]} into {view.into}"
        yield drawing.both_ends(drawing.said(about, width, FAINT), money, width)
        yield _stages(view, width)
    if view.unverified:
        yield from drawing.paragraph(view.unverified, width, f"{UNSURE} bold")
    yield from drawing.proven(view, width, most=1 if low else 0)
    if not low:
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
    return row(bar, drawing.said(where, width - bar.cell_length, GOOD if view.state.finished else BUSY))


def phase_lines(
    view: MissionSummary, width: int, *, folded: bool, low: bool = False, blocks: bool = False
) -> list[Content]:
    """Draw a row for each phase. `folded`: those still to come but for the first share one; `low`: the done ones, too.

    `blocks` shows each attempt as a block, else how many there were.
    """
    to_come = [line for line in view.lines if line.mark is Mark.TO_DO]
    passed = [
        line for line in view.lines if low and line.mark is Mark.DONE and not line.attempt.passed_despite_evidence
    ]
    rest = to_come[0 if low else 1 :] if folded else []
    shown = [line for line in view.lines if line not in rest and line not in passed]
    tries = {line.phase: [each for each in view.attempts if each.phase == line.phase] for line in shown}
    agents = max((width_of(clean(line.attempt.agent)) for line in shown), default=0)
    most = min(_MOST_BLOCKS, max([5, *(len(each) for each in tries.values())]))
    columns = {
        "phase": min(20, max([5, *(width_of(line.phase) for line in shown)])),
        **({"tries": most} if blocks else {"try": 3}),
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
    if passed:
        named = drawing.said(", ".join(line.phase for line in passed), width - 9)
        lines.append(row(drawing.marked(Mark.DONE), " ", named, text(" passed", GOOD)))
    for line in shown:
        attempt = line.attempt
        cells = {
            "phase": drawing.cell(line.phase, columns["phase"], STRONG if line.mark is Mark.NOW else ""),
            "try": text(f"{attempt.number if attempt.number > 1 else '':>3}"),
            "tries": attempt_blocks(tries[line.phase], most),
            "time": text(f"{drawing.elapsed(line.seconds):>10}"),
            "by": drawing.cell(attempt.agent, columns.get("by", 1), FAINT),
            "claimed": drawing.cell(attempt.claimed if attempt.agent else "", columns["claimed"]),
            "verdict": drawing.phase_verdict(line, columns["verdict"]),
        }
        mark = drawing.marked(line.mark, doubted=attempt.passed_despite_evidence)
        drawn = Content(" ").join([mark, *(cells[name] for name in columns)])
        lines.append(drawn.truncate(width, ellipsis=True))
    if rest:
        then = f"then {', '.join(line.phase for line in rest)}"
        lines.append(row(drawing.marked(Mark.TO_DO), " ", drawing.said(then, width - 2, FAINT)))
    return [*lines, Content("")]


def attempt_blocks(attempts: Sequence[Attempt], most: int) -> Content:
    """Draw a block for each attempt: a full one passed, a low one did not, a faint one is under way or was cut off."""
    shown = attempts if len(attempts) <= most else attempts[1 - most :]
    blocks = [text("…", FAINT)] if len(shown) < len(attempts) else []
    for attempt in shown:
        look = look_of(attempt)
        if not attempt.ended:
            blocks.append(text("░", BUSY if attempt.under_way else FAINT))
        elif attempt.verdict in (Verdict.PASS, Verdict.MORE, Verdict.SKIPPED):
            blocks.append(text("█", drawing.STYLES[look.tone]))
        else:
            blocks.append(text("▄", drawing.STYLES[look.tone]))
    return row(*blocks, " " * (most - len(blocks)))


def now_lines(view: MissionSummary, width: int, *, turn: str = "", most: int = _MOST_DOING) -> list[Content]:
    """Draw the agent's activity; of a mission at rest, its status and the command that helps."""
    if view.pid is None:
        style = f"{drawing.STYLES[view.status.tone]} bold"
        sign = row(text(view.status.sign, style), " ")
        lines = drawing.paragraph(sentence(view.sentence), width, style, first=sign)
        return [*lines, *drawing.paragraph(view.next, width, first=text("next: ", FAINT)), Content("")]
    moves = turn if view.status is MissionStatus.RUNNING else ""
    about = f"{view.phase} by {view.agent}" if view.agent else view.phase
    title = _title("Now", about, width - 2)
    lines = [row(text(f"{moves} ", BUSY), title) if moves else title]
    if view.waiting:
        waited = seconds_between(view.waiting.at, view.as_of)
        left = drawing.elapsed(max(0, int(view.waiting.seconds - waited)))
        at, why = clock_time(view.waiting.at, view.waiting.seconds), sentence(clean(view.waiting.failure.reason))
        lines += drawing.paragraph(f"{why} Next try at {at}, in {left}.", width, UNSURE, first="  ")
    lines += [row("  ", drawing.said(doing, width - 2)) for doing in view.doing[-most:]]
    if view.quiet_for is not None and view.quiet_for >= QUIET and not view.waiting:
        quiet = text(f"  quiet for {drawing.elapsed(view.quiet_for)}", UNSURE if view.quiet_for > 300 else FAINT)
        lines = [row(lines[0], quiet), *lines[1:]] if most == 1 else [*lines, quiet]
    elif not view.doing and not view.waiting:
        lines.append(text("  no activity yet", FAINT))
    return [*lines, Content("")]


def tail_lines(tail: Sequence[str], width: int) -> list[Content]:
    lines = drawing.passage("\n".join(tail), width, style=FAINT) if any(tail) else [text("  nothing yet", FAINT)]
    return [_title("Output", "the last lines", width), *lines, Content("")]


def finding_lines(view: MissionSummary, width: int, *, whole: bool) -> list[Content]:
    """Draw claims against evidence, findings of reviews, feedback, the last test run and warnings."""
    shown = [attempt for attempt in view.attempts if attempt.ended]
    if not whole:  # the last relevant one: it failed, or has evidence
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
    lines += test_lines(view, width)
    for warning in view.warnings:
        lines += drawing.paragraph(warning, width, UNSURE, first=text("! ", UNSURE), most=0 if whole else 3)
    return lines


def test_lines(view: MissionSummary, width: int) -> list[Content]:
    """Draw the last run of the tests: which failed and which of the new ones passed, by name, else what it printed."""
    ran = view.tests
    if not ran:
        return []
    good = ran.colour is Colour.GREEN
    style, when = GOOD if good else BAD, f" on {ran.tree[:12]} ({drawing.elapsed(ran.seconds)}) by "
    head = row("tests ", text(f"{'✓' if good else '✗'} {ran.colour.value}", style), text(when, FAINT))
    lines = [row(head, drawing.said(ran.command, max(8, width - head.cell_length), FAINT)).truncate(width)]
    if not ran.tests:
        tail = () if good else drawing.passage(ran.tail, width, indent="  │ ", style=FAINT, most=_MOST_TESTS)
        return [*lines, *tail, Content("")]
    failed = max(len(ran.failing), ran.tests - ran.passed) if ran.failing else 0
    counted = f"{ran.passed} of {count(ran.tests, 'test')} passed{f', {failed} failed' if failed else ''}"
    nameless = f"no test with a name failed ({ran.passed} passed)"
    lines.append(text(f"  {counted if good or failed else nameless}", "" if good else BAD))
    if not good and not failed:  # tests that could not be loaded have no name
        lines += drawing.passage(ran.tail, width, indent="  │ ", style=FAINT, most=_MOST_TESTS)
    for name in ran.failing[:_MOST_TESTS]:
        lines.append(row("  ", text("✗ ", BAD), drawing.said(name, width - 4, BAD)))
    if failed > _MOST_TESTS:
        lines.append(text(f"    … and {failed - _MOST_TESTS} more that failed", FAINT))
    new = [name for name in proof_of(view).tests.get("new", ()) if name not in ran.failing]
    for name in new[:_MOST_TESTS] if good else ():
        lines.append(row("  ", text("✓ ", GOOD), drawing.said(name, width - 4)))
    return [*lines, Content("")]


def change_lines(view: MissionSummary, width: int) -> list[Content]:
    """Draw the size of each file's change; nothing if lines were not counted."""
    files = view.diff.files
    if not files:
        return []
    names = min(max(width_of(clean(file.path)) for file in files[:_MOST_FILES]), max(8, width - 16 - _DIFF_BAR))
    most = max((file.added or 0) + (file.removed or 0) for file in files)
    lines = [_title("Changes", f"{change_words(view.diff)}, {view.diff.note}", width)]
    for file in files[:_MOST_FILES]:
        lines.append(
            row("  ", drawing.cell(fit_end(clean(file.path), names), names), " ", _diff_bar(file, most)).truncate(width)
        )
    left = len(files) - _MOST_FILES
    return [*lines, *([text(f"  … and {count(left, 'more file')}", FAINT)] if left > 0 else []), Content("")]


def _diff_bar(file: FileChange, most: int) -> Content:
    """`+12 −3  ++++++−−`"""
    if file.added is None or file.removed is None:
        return text("binary", FAINT)
    cells = [-(-_DIFF_BAR * number // max(1, most)) for number in (file.added, file.removed)]
    numbers = row(text(f"{f'+{file.added}':>5}", GOOD), " ", text(f"{f'−{file.removed}':<5}", BAD))
    return row(numbers, " ", text("+" * cells[0], GOOD), text("−" * cells[1], BAD))


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
    sign = text(f" {'!' if attempt.passed_despite_evidence else look_of(attempt).sign} ", f"{style} bold reverse")
    yield row("  verdict  ", sign, " ", drawing.said(verdict, width - 15, f"{style} bold"))
    first = attempt.evidence if whole else sorted(attempt.evidence, key=lambda piece: piece not in refuted((piece,)))
    for piece in first:
        yield from drawing.proof(piece, width, whole=whole)
    if decision.reason and attempt.verdict != "PASS":
        yield from drawing.paragraph(decision.reason, width, first=text("  because  ", FAINT))
    for warning in outcome.warnings:
        yield from drawing.paragraph(warning, width, UNSURE, first=text("  ! ", UNSURE), most=0 if whole else 2)


def _feedback(view: MissionSummary, width: int, *, whole: bool) -> Iterator[Content]:
    """Draw feedback for rework, of the running or a later phase."""
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
