"""Items on a screen: a line of the outline, and everything about the one that is chosen."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from capsule.core.board import Mark, MissionView, PhaseLine
from capsule.core.item import Item, Status, stands_at
from capsule.core.outline import OutlineEntry
from capsule.core.standpoint import ENDED, let_pass
from capsule.reports.table import fit, width_of
from capsule.tui import drawing
from capsule.tui.drawing import BUSY, FAINT, GOOD, STRONG, UNSURE, row, text
from capsule.tui.verbs import Target, fitting

_DEEPEST = 8
"""From there on nothing is indented further."""
_SIGNS = {
    Status.NEW: ("·", FAINT),
    Status.RESEARCHING: ("·", FAINT),
    Status.SCOPED: ("·", ""),
    Status.READY: ("○", ""),
    Status.IN_PROGRESS: ("◐", BUSY),
    Status.BLOCKED: ("■", UNSURE),
    Status.DONE: ("✓", GOOD),
}
_LONGEST_TEXT = 4000
_ROOM_FOR_TIME = 60
"""Where there are fewer columns, a verdict is worth more than how long it took."""


def entry_line(entry: OutlineEntry, width: int, *, folded: bool) -> Content:
    fold = ("▸ " if folded else "▾ ") if entry.holds else "  "
    indent = "  " * min(entry.depth, _DEEPEST)
    if entry.item is None:
        return row(indent, fold, text(entry.title, STRONG), text(f" {entry.of}", FAINT))
    progress = text(f" {entry.done}/{entry.of}", GOOD if entry.done == entry.of else FAINT) if entry.of else Content("")
    head = row(indent, fold, _sign(entry), " ", text(entry.key, STRONG), progress, _about(entry), "  ")
    faint = FAINT if entry.item.status is Status.DONE else ""
    return row(head, drawing.said(entry.title, max(0, width - head.cell_length), faint))


def _sign(entry: OutlineEntry) -> Content:
    """Of its mission while that is under way, else of its status."""
    assert entry.item
    if entry.word and entry.word not in ENDED:
        return drawing.standing(entry.word)[:1]
    return text(*_SIGNS[entry.item.status])


def _about(entry: OutlineEntry) -> Content:
    if entry.word == "running" and entry.phase:
        return row(" ", drawing.said(entry.phase, 16, BUSY))
    if entry.word in ("parked", "stopped", "interrupted"):
        return text(f" {entry.word}", UNSURE)
    return text(" waits", FAINT) if entry.waits_for else Content("")


def about_item(entry: OutlineEntry, view: MissionView | None, target: Target, width: int) -> list[Content]:
    """All that is known of the item under the cursor, and what can be done with it."""
    if entry.item is None:
        return [text(f"{entry.of} items are {entry.title}.", FAINT)]
    lines = drawing.paragraph(f"{entry.key}  {entry.title}", width, STRONG)
    lines += [*_facts(entry, entry.item, width), Content("")]
    if view:
        lines += [row(drawing.standing(view.word, view.unverified), f"  {drawing.elapsed(view.seconds)}")]
        lines += drawing.paragraph(view.sentence, width, most=4)
        lines += [*short_phases(view, width), Content("")]
    lines += [*doable(target, width), Content("")]
    if entry.item.description:
        lines += [*_wrapped(entry.item.description, width), Content("")]
    if entry.item.acceptance:
        lines += [text("Done when", STRONG), *_wrapped(entry.item.acceptance, width)]
    return lines


def short_phases(view: MissionView, width: int) -> list[Content]:
    """Where there is no room for what each agent said: what was found first, and how long it took if it fits."""
    names = min(18, max([width_of(line.phase) for line in view.lines], default=0))
    return [_phase(line, names, width) for line in view.lines]


def _phase(line: PhaseLine, names: int, width: int) -> Content:
    now, mark = line.mark is Mark.NOW, drawing.marked(line.mark, doubted=let_pass(line.verdict, line.evidence))
    tries = f"#{line.tries}" if line.tries > 1 else ""
    name = drawing.cell(line.phase, names, STRONG if now else "")
    time = f" {drawing.elapsed(line.seconds):>10}" if width >= _ROOM_FOR_TIME else ""
    head = row(mark, " ", name, f" {tries:<3}", time, " ")
    judged = "under way" if now else drawing.judged(line.claimed if line.agent else "", line.verdict, line.evidence)
    style = BUSY if now else drawing.style_of(line.verdict, line.evidence)
    return row(head, drawing.said(judged, max(0, width - head.cell_length), style))


def doable(target: Target, width: int) -> list[Content]:
    """The keys that would do something here."""
    verbs = [verb for verb in fitting(target) if not verb.alone]
    return [text(fit("  ".join(f"{verb.key} {verb.name}" for verb in verbs), width), FAINT)] if verbs else []


def _facts(entry: OutlineEntry, item: Item, width: int) -> Iterator[Content]:
    kind = ", ".join(filter(None, (item.type, stands_at(item).replace("_", " "), f"P{item.priority}")))
    yield from drawing.paragraph(kind, width, FAINT)
    if entry.of:
        yield text(f"{entry.done} of {entry.of} done")
    levels = item.assessment
    known = {"size": levels.size, "complexity": levels.complexity, "risk": levels.risk, "impact": levels.impact}
    if any(known.values()):
        yield from drawing.paragraph(", ".join(f"{name} {word}" for name, word in known.items() if word), width, FAINT)
    if item.tags:
        yield from drawing.paragraph(f"tags: {', '.join(item.tags)}", width, FAINT)
    if item.taken_by:
        yield from drawing.paragraph(f"taken by {item.taken_by}", width, UNSURE)
    if entry.waits_for:
        yield from drawing.paragraph(f"waits for {', '.join(entry.waits_for)}", width, UNSURE)
    if item.blocked:
        kind = f" ({item.blocked.kind})" if item.blocked.kind else ""
        yield from drawing.paragraph(f"blocked{kind}: {item.blocked.reason}", width, UNSURE)


def _wrapped(words: str, width: int) -> Iterator[Content]:
    for line in words[:_LONGEST_TEXT].splitlines():
        yield from drawing.paragraph(line, width) if line.strip() else [Content("")]
    if len(words) > _LONGEST_TEXT:
        yield text("…", FAINT)
