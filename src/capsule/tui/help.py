"""What every key does, on a page; and pages in general."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from capsule.tui.desk import FOUND_BY
from capsule.tui.drawing import FAINT, STRONG, row, text
from capsule.tui.rows import Page
from capsule.tui.verbs import VERBS

MOVING = (
    ("↑ ↓  j k", "up and down"),
    ("g G  PgUp PgDn", "to the top, to the end, by pages"),
    ("← →  h l", "fold and unfold; in a mission: its pages"),
    ("Enter, click", "open what is chosen"),
    ("Tab", "to the text beside the list, and back"),
    ("1 2 3", "items, missions, history; in a mission: its pages"),
    ("/", f"filter by {FOUND_BY}; Enter keeps it, Esc ends it"),
    ("Esc", "back"),
    ("t", "light or dark"),
    ("?", "this page"),
    ("q, Ctrl-C", "leave; missions go on"),
)
SIGNS = (
    ("▶", "runs"),
    ("‖", "was interrupted"),
    ("■", "halted, and waits for you: blocked, parked or stopped"),
    ("✓", "done, or confirmed"),
    ("✗", "refuted: claimed, and seen to be otherwise"),
    ("?", "could not be checked"),
    ("○ ◐ ·", "ready; in progress; not ready yet"),
)


def help_lines() -> list[Content]:
    lines = [text("Moving", STRONG), *map(_line, MOVING), Content("")]
    lines += [text("Doing (each asks first, and shows the command that it is)", STRONG)]
    lines += [_line((f"{verb.key} {verb.name}", verb.says)) for verb in VERBS]
    lines += [Content(""), text("Signs", STRONG), *map(_line, SIGNS), Content("")]
    return [*lines, text("Without a screen: capsule dashboard --plain", FAINT)]


def _line(pair: tuple[str, str]) -> Content:
    return row("  ", text(f"{pair[0]:<16}", STRONG), pair[1].rstrip())


class Reading(Screen[None]):
    """A page of its own, until Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,left,h", "leave", show=False)]

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
        """With how things are now."""
        if self.is_mounted:
            page = self.query_one(Page)
            page.read(self._lines(max(20, page.room)))

    def action_leave(self) -> None:
        self.dismiss()


class Help(Reading):
    """Also above another page, which is there again afterwards."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,f1", "leave", show=False)]

    def __init__(self) -> None:
        super().__init__("Help", lambda _width: help_lines())
