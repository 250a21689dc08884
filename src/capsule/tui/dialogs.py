"""Dialogs: confirmations before an action, and its output after it."""

from __future__ import annotations

import math
import re
import time
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from capsule.actions import CommandResult, DashboardVerb, How, Target
from capsule.reports.style import printable
from capsule.tui import drawing
from capsule.tui.drawing import BAD, FAINT, STRONG, UNSURE, row, text
from capsule.tui.rows import Page

Result = TypeVar("Result")

_LONGEST_ANSWER = 20_000
_COLUMNS = re.compile(r"\S(?: {2,}|\t)\S")
"""Text in columns."""


class Dialog(ModalScreen[Result]):
    """Ignore keys that were typed before the dialog was drawn."""

    _drawn_at = math.inf

    def on_mount(self) -> None:
        def drawn() -> None:
            self._drawn_at = time.monotonic()
            self.open_to_answers()

        self.call_after_refresh(drawn)

    def open_to_answers(self) -> None:
        """Take keys from now on: the dialog has been drawn."""

    @property
    def is_drawn(self) -> bool:
        return self._drawn_at < math.inf

    def is_meant_by(self, key: Key) -> bool:
        return key.time > self._drawn_at


class Confirm(Dialog[tuple[str, ...] | None]):
    """Show the command line, ask for its values, and for a yes. None is a no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "no"),
        Binding("y,enter", "yes"),
        Binding("left,h", "app.focus_previous"),
        Binding("right,l", "app.focus_next"),
    ]

    def __init__(self, verb: DashboardVerb, target: Target) -> None:
        super().__init__()
        self.verb, self.target = verb, target
        self._asks = verb.asked_of(target)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(text(self.verb.question.replace("{}", self.target.id or "this run"), STRONG), markup=False)
            if len(self._asks) == 1:
                yield from self._field(0, compact=False)
            else:
                for number in range(len(self._asks)):
                    with Horizontal(classes="field"):
                        yield from self._field(number, compact=True)
            yield Static(self._command(), id="command", markup=False)
            with Horizontal(id="buttons"):
                yield Button("OK (Enter)", variant="primary", id="yes", compact=True)
                yield Button("Cancel (Esc)", id="no", compact=True)

    def _field(self, number: int, *, compact: bool) -> ComposeResult:
        asked = self._asks[number]
        yield Static(text(asked.label, FAINT), id=f"asks-{number}", markup=False)
        present = asked.present(self.target)
        yield Input(present, max_length=_LONGEST_ANSWER, compact=compact, select_on_focus=number > 0)

    def on_mount(self) -> None:
        if self._asks:
            self.query(Input).first().focus()

    def open_to_answers(self) -> None:
        """Show the buttons now that they work."""
        self.query_one("#buttons").visible = True
        if not self._asks:
            self.set_focus(self.query_one("#yes"))

    def on_input_changed(self) -> None:
        self.query_one("#command", Static).update(self._command())

    def on_input_submitted(self) -> None:
        self.action_yes()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_yes() if event.button.id == "yes" else self.action_no()

    def action_yes(self) -> None:
        if self.focused is not None and self.focused.id == "no":
            self.action_no()
            return
        number = self.verb.unanswered(self.target, self.answers)
        if number >= 0:
            asked = row(text(self._asks[number].label, FAINT), text("  required", UNSURE))
            if self.verb.needs_one:
                asked = text("change something first", UNSURE)
            self.query_one(f"#asks-{number}", Static).update(asked)
            return
        self.dismiss(self.answers)

    def action_no(self) -> None:
        self.dismiss(None)

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(each.value.strip() for each in self.query(Input))

    def _command(self) -> Content:
        answers = self.answers if self.is_mounted else ()
        on = {How.START: "  Runs in the background.", How.STOP: "  Progress is kept."}.get(self.verb.how, "")
        return row(text("$ ", FAINT), drawing.said(self.verb.line(self.target, answers), 300), text(on, FAINT))


class CommandOutput(Dialog[None]):
    """The output of a command, until it is left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "leave")]

    def __init__(self, line: str, said: CommandResult) -> None:
        super().__init__()
        self._command, self._said = line, said

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(text(f"$ {self._command}", FAINT), markup=False)
            yield Page()
            yield Static(text("Esc back", FAINT), markup=False)

    def on_mount(self) -> None:
        self.set_class(self._said.code != 0, "-failed")
        page = self.query_one(Page)
        page.focus()
        self.call_after_refresh(self._fill, page)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill, self.query_one(Page))

    def _fill(self, page: Page) -> None:
        lines = answer_lines(self._command, self._said, max(20, page.room))
        page.styles.height = min(16, len(lines))
        page.read(lines)

    def action_leave(self) -> None:
        self.dismiss()


def answer_lines(line: str, said: CommandResult, width: int) -> list[Content]:
    """Wrap sentences; keep columns."""
    words = "\n".join(filter(None, (printable(said.err).strip(), printable(said.out).strip())))
    if not words:  # the output of a run goes to a file, and is lost if the disk is full
        run = line.startswith("capsule run")
        why = " Its output could not be saved: is the disk full?" if run else ""
        told = drawing.paragraph(f"Exit code {said.code}, no output.{why}", width)
        return told + drawing.paragraph(f"Run it in a terminal: {line}{' --no-tui' if run else ''}", width)
    lines: list[Content] = []
    for each in words[:_LONGEST_ANSWER].splitlines():
        style, indent = BAD if each.startswith("capsule:") else "", " " * (len(each) - len(each.lstrip()))
        if _COLUMNS.search(each):
            lines += drawing.passage(each, width, indent=indent, style=style)
        else:
            lines += drawing.paragraph(each, width, style, first=indent)
    return lines
