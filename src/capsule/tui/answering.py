"""Answer what needs you: the full question, room for a long text, and the resulting command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static, TextArea

from capsule.core.answers import Answer
from capsule.tui import drawing
from capsule.tui.dialogs import Dialog
from capsule.tui.drawing import FAINT, STRONG, UNSURE, row, text
from capsule.tui.rows import Page

LONGEST = 100_000
"""Characters: a command takes no longer text."""
_SHOWN = 300


class AnswerForm(Dialog[str | None]):
    """The question above, the text below. None means no answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave"),
        Binding("ctrl+s", "send"),
        Binding("enter", "send"),
    ]

    def __init__(self, answer: Answer, page: Callable[[int], Sequence[Content]], draft: str = "") -> None:
        super().__init__()
        self.answer, self._page, self._draft = answer, page, draft

    def compose(self) -> ComposeResult:
        takes = " (optional)" if self.answer.text == "optional" else ""
        with Vertical(id="form"):
            yield Page(id="question")
            yield Static(text(f"{self.answer.label}{takes}", STRONG), id="how", markup=False)
            if self.answer.option:
                yield TextArea(self._draft, id="text", compact=True)
            yield Static(self._command(), id="command", markup=False)
            with Horizontal():
                yield Button("Send (Ctrl+S)", variant="primary", id="yes", compact=True)
                yield Button("Cancel (Esc)", id="no", compact=True)

    def on_mount(self) -> None:
        if self.answer.option:
            area = self.query_one(TextArea)
            area.focus()
            area.move_cursor(area.document.end)
        self.call_after_refresh(self._fill)

    def open_to_answers(self) -> None:
        """Show the buttons now that they work."""
        self.query_one(Horizontal).visible = True
        if not self.answer.option:
            self.set_focus(self.query_one("#yes"))

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        page = self.query_one(Page)
        page.read(self._page(max(20, page.room)))

    @property
    def written(self) -> str:
        return self.query_one(TextArea).text.strip() if self.answer.option else ""

    def on_text_area_changed(self) -> None:
        self._draft = self.written
        drawing.put(self.query_one("#command", Static), self._command())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.action_send() if event.button.id == "yes" else self.action_leave()

    def action_send(self) -> None:
        if self.focused is not None and self.focused.id == "no":
            self.action_leave()
        elif not self.written and self.answer.required:
            self._say("Say something first: this answer needs a text.")
        elif len(self.written) > LONGEST:
            self._say(f"Too long: {len(self.written):,} of at most {LONGEST:,} characters.")
        else:
            self.dismiss(self.written)

    def action_leave(self) -> None:
        self.dismiss(None)

    @property
    def draft(self) -> str:
        """Return the text, to be restored when the form is opened again."""
        return self._draft

    def _say(self, words: str) -> None:
        drawing.put(self.query_one("#how", Static), row(text(f"{self.answer.label}  ", STRONG), text(words, UNSURE)))

    def _command(self) -> Content:
        """Show the exact command; a long text is cut only there."""
        written = self.written if self.is_mounted else self._draft.strip()
        words = self.answer.with_text(written)
        line = shlex.join(["capsule", *words]) if written or not self.answer.required else self.answer.command
        return row(text("$ ", FAINT), drawing.said(line, _SHOWN))
