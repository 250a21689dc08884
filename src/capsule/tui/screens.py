"""Screens that lie above the lists: one mission, one run, and the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from capsule.actions import VERBS, Details
from capsule.core.board import Board
from capsule.core.budget import UNLIMITED, Spending, in_words, limits_in_words, total
from capsule.core.history import MissionSummary
from capsule.core.status import MissionStatus
from capsule.reports.words import agents_used, cost_of
from capsule.tui import drawing
from capsule.tui.diffs import diff_lines, last_lines
from capsule.tui.drawing import FAINT, STRONG, row, text
from capsule.tui.mission import finding_lines, mission_lines
from capsule.tui.model import FOUND_BY
from capsule.tui.rows import Page


def evidence_page(view: MissionSummary, _details: Details | None, width: int) -> list[Content]:
    return finding_lines(view, width, whole=True) or [text("No claims yet.", FAINT)]


def diff_page(_view: MissionSummary, details: Details | None, width: int) -> list[Content]:
    return [_READING] if details is None else diff_lines(details, width)


def _text_page(words: str | None, width: int, nothing: str) -> list[Content]:
    if words is None:
        return [_READING]
    shown: list[Content] = []
    for line in last_lines(words):
        shown += drawing.paragraph(line, width, STRONG if line.startswith(("#", "==>")) else "")
    return shown or [text(nothing, FAINT)]


def cost_page(view: MissionSummary, _details: Details | None, width: int) -> list[Content]:
    """Draw costs by phase, then by attempt; unreported ones are called unknown."""
    lines = [*drawing.paragraph(agents_used(view.spent_with_parts), width, STRONG)]
    limits = [f"budget: {drawing.money(view.spent_with_parts, view.allowed)}"] if view.allowed != UNLIMITED else []
    whole_run = limits_in_words(view.allowed_in_run)
    limits += [f"budget of a run, all its missions together: {whole_run}"] if whole_run else []
    for line in limits or ["no budget set"]:
        lines += drawing.paragraph(line, width, FAINT)
    lines.append(Content(""))
    ours = [attempt for attempt in view.attempts if attempt.ended and attempt.agent]
    for phase in dict.fromkeys(attempt.phase for attempt in ours):
        attempts = [attempt for attempt in ours if attempt.phase == phase]
        spent = total(Spending().plus(attempt.ended.outcome.usage) for attempt in attempts if attempt.ended)
        lines.append(row(drawing.cell(phase, 20, STRONG), " ", drawing.said(in_words(spent), max(1, width - 21))))
        for attempt in attempts if len(attempts) > 1 else ():
            words = f"{attempt.key} {attempt.agent}: {cost_of(attempt)}"
            lines.append(row("  ", drawing.said(words, max(1, width - 2), FAINT)))
    if view.forgotten:
        lines.append(drawing.earlier(view))
    return lines


_READING = text("Loading ...", FAINT)
_Build = Callable[[MissionSummary, Details | None, int], Sequence[Content]]
PAGES: dict[str, _Build] = {
    "evidence": evidence_page,
    "diff": diff_page,
    "worklog": lambda _, details, width: _text_page(details.worklog if details else None, width, "No worklog."),
    "logs": lambda _, details, width: _text_page(details.logs if details else None, width, "No output yet."),
    "cost": cost_page,
}
ON_DISK = ("diff", "worklog", "logs")
_NAMES = ("now", *PAGES)


MOVING = (
    ("↑ ↓  j k", "up and down"),
    ("g G  PgUp PgDn", "to the top, to the end, by pages"),
    ("← →  h l", "fold and unfold; in a mission: its pages"),
    ("Enter, click", "open the selected line"),
    ("Tab", "to the text beside the list and back"),
    ("1 2 3 4 5", "what needs you, items, missions, history, merges; in a mission: its pages"),
    ("/", f"filter by {FOUND_BY}; Enter keeps it, Esc clears it"),
    ("Esc", "back"),
    ("t", "light or dark"),
    ("?", "this page"),
    ("q, Ctrl-C", "quit; missions keep running"),
)
ANSWERS = (
    ("u", "answer a question"),
    ("A", "approve it"),
    ("y", "accept a refuted claim, with a reason"),
    ("T", "try again, with or without notes"),
    ("C", "close it, with a reason"),
    ("Ctrl+S", "send what was written; Esc goes back, and keeps it"),
)
_STATUSES = {
    MissionStatus.READY: "not started, or the next run continues it",
    MissionStatus.RUNNING: "an agent or a check is at work",
    MissionStatus.WAITING: "for another item, a limit or a slot",
    MissionStatus.NEEDS_YOU: "a question, a decision or an approval",
    MissionStatus.FAILED: "retries exhausted, a conflict or a red gate",
    MissionStatus.STOPPED: "by Ctrl-C, a crash or abort; run resumes it",
    MissionStatus.DONE: "merged, committed or closed",
}
_SIGNS = (
    ("✓", "the claim holds"),
    ("✗", "refuted: evidence contradicts the claim"),
    ("?", "could not be checked"),
)


def help_lines(width: int) -> list[Content]:
    sections: tuple[tuple[str, Sequence[tuple[str, str]]], ...] = (
        ("Moving", MOVING),
        (
            "Actions (each asks for confirmation and shows its command)",
            [(f"{verb.key} {verb.name}", verb.says) for verb in VERBS],
        ),
        ("Answers (where something needs you; Enter is the first)", ANSWERS),
        ("Status", [(f"{status.sign} {status.words}", meaning) for status, meaning in _STATUSES.items()]),
        ("Claims", _SIGNS),
    )
    lines: list[Content] = []
    for title, pairs in sections:
        lines.append(text(title, STRONG))
        for keys, says in pairs:
            lines += drawing.paragraph(says, width, first=text(f"  {keys:<16}", STRONG))
        lines.append(Content(""))
    return [*lines, text("As text: capsule dashboard --plain", FAINT)]


class Reading(Screen[None]):
    """A page of its own, until Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,left,h", "leave")]

    def __init__(self, title: str, lines: Callable[[int], Sequence[Content]]) -> None:
        super().__init__()
        self._heading, self._lines = title, lines

    def compose(self) -> ComposeResult:
        yield Static(text(self._heading, STRONG), markup=False, classes="bar")
        yield Page()
        yield Static(text("Esc back   ↑↓ scroll", FAINT), markup=False, classes="bar")

    def on_mount(self) -> None:
        self.query_one(Page).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self.fill)

    def fill(self) -> None:
        """Draw the present state."""
        if self.is_mounted:
            page = self.query_one(Page)
            page.read(self._lines(max(20, page.room)))

    def action_leave(self) -> None:
        self.dismiss()


class Help(Reading):
    """The help, above any other page, which is shown again afterwards."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "leave")]

    def __init__(self) -> None:
        super().__init__("Help", help_lines)


class MissionScreen(Reading):
    """Drawn again with every board; its files are read when one of their pages is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,tab", "turn(1)", priority=True),
        Binding("left,h,shift+tab", "turn(-1)", priority=True),
        *(Binding(str(number), f"page('{name}')") for number, name in enumerate(_NAMES, 1)),
        Binding("e", "unfold"),
    ]

    def __init__(self, mission: str, want: Callable[[str], None]) -> None:
        """`want` requests a mission's files; they come back through `found`."""
        super().__init__(mission, self._page)
        self.mission, self._want = mission, want
        self.page, self.whole = "now", False
        self._view: MissionSummary | None = None
        self._details: Details | None = None
        self._as_of = ""
        self._laid_out: tuple[object, Sequence[Content]] = None, ()
        """The last page from disk, and its input: long, and laid out once."""

    def compose(self) -> ComposeResult:
        yield Static(id="pages", markup=False, classes="bar")
        yield Page()
        yield Static(id="mission-keys", markup=False, classes="bar")

    def looked(self, board: Board, keys: Content) -> None:
        before, self._view = self._view, board.mission(self.mission)
        if self._view is not before:
            self._want_if_changed()
            self.fill()
        if self.is_mounted:
            drawing.put(self.query_one("#mission-keys", Static), keys)

    def found(self, details: Details) -> None:
        self._details = details
        self.fill()

    def _want_if_changed(self) -> None:
        """Read again after an event, or if an agent may have printed."""
        view = self._view
        as_of = (view.last if view.pid is None else str(int(view.busy_seconds) // 2)) if view else ""
        if self.page in ON_DISK and as_of != self._as_of:
            self._as_of = as_of
            self._want(self.mission)

    def fill(self) -> None:
        if self.is_mounted:
            sign = drawing.status_sign(self._view.status) if self._view else ""
            parts = [text(f"{self.mission} ", STRONG), sign, " "]
            for number, name in enumerate(_NAMES, 1):
                style = "reverse bold" if name == self.page else FAINT
                parts.append(drawing.tab(f"{number} {name}", f"screen.page('{name}')", style))
            drawing.put(self.query_one("#pages", Static), row(*parts))
        super().fill()

    def _page(self, width: int) -> Sequence[Content]:
        if self._view is None:
            return [text(f"No mission {self.mission}.", FAINT)]
        if self.page == "now":
            return list(mission_lines(self._view, width, whole=self.whole, height=self.size.height))
        if self.page not in ON_DISK:
            return PAGES[self.page](self._view, None, width)
        wanted = (self.page, self._details, width)
        if wanted != self._laid_out[0]:
            self._laid_out = wanted, PAGES[self.page](self._view, self._details, width)
        return self._laid_out[1]

    # ---- keys

    def action_page(self, name: str) -> None:
        self.page = name
        self._want_if_changed()
        self.query_one(Page).scroll_home(animate=False)
        self.fill()

    def action_turn(self, by: int) -> None:
        self.action_page(_NAMES[(_NAMES.index(self.page) + by) % len(_NAMES)])

    def action_unfold(self) -> None:
        self.whole = not self.whole
        self.fill()
