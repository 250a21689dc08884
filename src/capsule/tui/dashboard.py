"""The dashboard: items, missions and history of a project, and everything that can be done about them.

It only reads: a mission that was started anywhere is shown here, and is not affected. Slow work happens in threads
(`app.py`), and the layout is in `model.py`.
"""

from __future__ import annotations

import asyncio
import gc
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Key, Resize
from textual.screen import Screen
from textual.widgets import Input, Static

from capsule.actions import (
    BY_KEY,
    CommandResult,
    DashboardActions,
    DashboardVerb,
    Details,
    How,
    Listing,
    StartedRun,
    Target,
)
from capsule.core.answers import Answer
from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.inbox import Question
from capsule.core.outline import HEADING
from capsule.reports.style import printable
from capsule.tui import drawing
from capsule.tui.answering import AnswerForm
from capsule.tui.app import BackgroundTasks, CapsuleApp, Poller, Result
from capsule.tui.dialogs import CommandOutput, Confirm, Dialog
from capsule.tui.inbox import KEYS
from capsule.tui.lines import find_run
from capsule.tui.merges import mission_of
from capsule.tui.model import FOUND_BY, INBOX, VIEWS, WIDE, DashboardModel
from capsule.tui.rows import Page, Rows
from capsule.tui.screens import Help, MissionScreen, Reading
from capsule.tui.themes import DARK, LIGHT

_ITEMS_EVERY = 10.0
_AT_MOST_EVERY = 2.0
_AT_ONCE = 10.0
"""A run that ends within this time is still being waited for."""
_LONGEST_TOAST = 600
_REFUSAL = 3.0
"""Seconds until a note about a key without effect disappears."""
_PATIENCE = 20
"""A tracker is queried for at most this part of the time."""

Severity = Literal["information", "warning", "error"]


class Dashboard(CapsuleApp[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"view('{name}')") for number, name in enumerate(VIEWS, 1)),
        *(Binding(key, f"verb('{key}')") for key in dict.fromkeys([*BY_KEY, *KEYS.values()])),
        Binding("slash", "filter"),
        Binding("escape", "unfilter"),
        Binding("left,h", "fold"),
        Binding("right,l", "unfold"),
        Binding("question_mark,f1", "explain"),
        Binding("t", "light_or_dark"),
        Binding("q,ctrl+c,ctrl+q", "quit"),
    ]

    def __init__(self, actions: DashboardActions) -> None:
        super().__init__()
        self.title = f"Capsule {actions.name}"
        self.actions, self.model = actions, DashboardModel()
        self._listing: Listing | None = None
        self._read_at, self._took, self._stale = 0.0, 0.0, True
        self._acted_at = 0.0
        self._settled = False
        """A key was pressed, or the inbox is known: from now on the user chooses the view."""
        self._drafts: dict[tuple[str, str], str] = {}
        """Unsent texts, by question and verb."""
        self._beside = BackgroundTasks(self.call_later)
        self._looking = Poller(actions.look, self.call_later, self._looked, self._compared_by)
        self._filter = Input(placeholder=FOUND_BY, id="filter", select_on_focus=False)

    def compose(self) -> ComposeResult:
        yield Static(id="top", markup=False, classes="bar")
        with Horizontal(id="body"):
            for name in VIEWS:
                yield Rows(id=name, empty="Loading ...")
            yield Page(id="about")
        strip = Page(id="strip")
        strip.can_focus = False
        yield strip
        self._filter.display = False
        yield self._filter
        yield Static(id="keys", markup=False, classes="bar")

    def on_mount(self) -> None:
        self.action_view("items")
        self.call_after_refresh(self._begin)  # nothing slow before the first frame
        self.set_interval(1.0, self._read_items)
        if not self.is_headless:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # restore the terminal
                asyncio.get_running_loop().add_signal_handler(number, self.exit)

    def _begin(self) -> None:
        """Start polling, and tune the collector: loaded modules stay, short-lived objects go early."""
        if not self.is_headless:  # else this is another program's process
            gc.freeze()
            gc.set_threshold(10_000, 10, 10)
        self._looking.start()

    def on_unmount(self) -> None:
        self._looking.end()

    # ---- what came

    @staticmethod
    def _compared_by(board: Board) -> object:
        return board.missions, board.runs, board.merges

    def _looked(self, got: Board | CapsuleError) -> None:
        self._stale |= self.model.take_board(got)
        self._begin_with_what_needs_you()
        self._read_items()
        self._draw()

    def _read_items(self) -> None:
        """Read them when a mission has begun or ended, else now and then; never before the first look."""
        since = time.monotonic() - self._read_at
        due = _AT_MOST_EVERY if self._stale else _ITEMS_EVERY
        if self._read_at and since < max(due, self._took * _PATIENCE):
            return
        began = time.monotonic()

        def came(got: Listing | CapsuleError) -> None:
            self._read_at = time.monotonic()
            self._took = self._read_at - began
            if self._acted_at > began:  # the result may be older than the change
                self._read_at_once()
            if got != self._listing:
                self._listing = got if isinstance(got, Listing) else None
                self.model.listed(got)
                self._begin_with_what_needs_you()
                self._settled = True
                self._draw()

        if self._looking.ident and self._beside.ask("items", self.actions.items, came):
            self._stale = False

    def _begin_with_what_needs_you(self) -> None:
        """Open on the inbox if something waits there, unless the user has chosen another view meanwhile."""
        if not self._settled and self.model.questions:
            self._settled = True
            self.action_view(INBOX)

    def _read_at_once(self) -> None:
        self._read_at = 0.0
        self._read_items()

    # ---- drawing

    def _draw(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        main, width = self.screen_stack[0], max(20, self.size.width - 2)
        rows = self._rows
        before = rows.key
        rows.show(*self.model.lines(max(20, rows.room)))
        if not before and rows.key.startswith(HEADING) and rows.keys[1:]:
            rows.put_cursor(rows.keys[1])
        about = main.query_one("#about", Page)
        self._lay_out_inbox(main, rows)
        if about.display:
            about.read(self.model.about(rows.key, max(20, about.room)))
        strip, running = main.query_one("#strip", Page), self.model.strip(width, self.size.height)
        if strip.outer_size.height != len(running):
            strip.styles.height = len(running)
        strip.read(running)
        drawing.put(main.query_one("#top", Static), self.model.top(width))
        drawing.put(main.query_one("#keys", Static), self.model.keys(rows.key, width))
        for screen in self.screen_stack[1:]:
            if isinstance(screen, MissionScreen):
                screen.looked(self.model.board, self.model.keys(screen.mission, width, opened=True))
            elif isinstance(screen, Reading):
                screen.fill()

    def _lay_out_inbox(self, main: Screen[object], rows: Rows) -> None:
        """On a narrow screen put its list above the question, at its natural height."""
        if self.model.view != INBOX:
            return
        narrow, few = main.has_class("-narrow"), max(1, min(len(rows.keys), self.size.height // 5))
        height = str(few) if narrow else "1fr"
        if str(rows.styles.height) != height:
            rows.styles.height = height
        question = self.model.question(rows.key)
        if question and question.diff and (question.id, question.since) not in self.model.details:
            self._want_changes(question)

    def _want_changes(self, question: Question) -> None:
        def came(got: Details | CapsuleError) -> None:
            self.model.details[question.id, question.since] = got if isinstance(got, Details) else Details()
            self._draw()

        self._beside.ask(f"changes {question.id}", lambda: self.actions.details(question.id), came)

    def on_resize(self, event: Resize) -> None:
        self.screen_stack[0].set_class(event.size.width < WIDE, "-narrow")
        self.call_after_refresh(self._draw)

    # ---- where the cursor is

    @property
    def _rows(self) -> Rows:
        return self.screen_stack[0].query_one(f"#{self.model.view}", Rows)

    def target(self) -> Target:
        """Return what a key acts on: the open mission, else the line under the cursor."""
        opened = getattr(self.screen, "mission", "")
        return self.model.target(opened or self._rows.key)

    def on_rows_sized(self) -> None:
        self._draw()

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        if message.rows is self._rows:
            self._draw()

    def on_rows_opened(self, message: Rows.Opened) -> None:
        if self.model.view == INBOX:
            self._answer_first()
        else:
            self._open(message.key)

    def _answer_first(self) -> None:
        """Choose the most helpful answer."""
        question = self.model.question(self._rows.key)
        if question and question.answers:
            self.action_answer(question.answers[0].verb)

    def action_open(self) -> None:
        self._open(self._rows.key)

    def _put_above(self, screen: Screen[Result], then: Callable[[Result | None], None] | None = None) -> None:
        """Open a screen without the toasts that would cover it."""
        self.clear_notifications()
        self.push_screen(screen, then)

    def _open(self, key: str) -> None:
        key = mission_of(key)
        run, entry = find_run(self.model.board, key), self.model.entry(key)
        if len(self.screen_stack) > 1:  # a second key came before the first one's screen
            return
        if run:
            self._put_above(Reading(run.name, lambda width: self.model.run_page(key, width)))
        elif self.model.board.mission(key):
            self._put_above(MissionScreen(key, self._want_details), lambda _: self._draw())
            self.call_after_refresh(self._draw)
        elif entry and entry.holds:
            self._fold(key, away=key not in self.model.folded)
        elif entry:
            self.notify(f"{printable(key)} has no mission yet (r runs it).", timeout=_REFUSAL, markup=False)

    def _want_details(self, mission: str) -> None:
        def came(got: Details | CapsuleError) -> None:
            if isinstance(got, CapsuleError):
                words = f"{got.message}\n{got.hint}"
                got = Details(diff=words, worklog=words, logs=words)
            if isinstance(self.screen, MissionScreen) and self.screen.mission == mission:
                self.screen.found(got)

        self._beside.ask(f"details {mission}", lambda: self.actions.details(mission), came)

    # ---- keys

    def action_view(self, name: str) -> None:
        self.model.view = name
        main = self.screen_stack[0]
        for each in VIEWS:
            main.query_one(f"#{each}").display = each == name
        main.set_class(name not in ("items", INBOX), "-lists")
        main.set_class(name == INBOX, "-inbox")
        main.set_focus(self._rows)
        self.call_after_refresh(self._draw)

    def action_fold(self) -> None:
        """Fold an open entry, else go to its parent."""
        key = self._rows.key
        entry = self.model.entry(key)
        if entry and entry.holds and key not in self.model.folded:
            self._fold(key, away=True)
        elif entry:
            self._rows.put_cursor(self.model.above(key))

    def action_unfold(self) -> None:
        self._fold(self._rows.key, away=False)

    def _fold(self, key: str, *, away: bool) -> None:
        (self.model.folded.add if away else self.model.folded.discard)(key)
        self._draw()

    def on_key(self, event: Key) -> None:
        """Drop keys that were typed before the current dialog or filter had the focus."""
        self._settled = True
        if isinstance(self.screen, Dialog) and not self.screen.is_meant_by(event):
            event.prevent_default()
        elif self.focused is self._filter and event.is_printable:
            self._filter.insert_text_at_cursor(event.character or "")
            event.prevent_default()

    def action_filter(self) -> None:
        """Go back to the lists, and focus at once: no letter after it is a key."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self._filter.display = True
        self.set_focus(self._filter)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input is self._filter:
            self.model.words = event.value.strip()
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input is self._filter:
            self._end_filter()

    def action_unfilter(self) -> None:
        self._filter.value = ""
        self._end_filter()

    def _end_filter(self) -> None:
        self.screen_stack[0].set_focus(self._rows)
        self._filter.display = False
        self._draw()

    def action_explain(self) -> None:
        self._put_above(Help())

    def action_light_or_dark(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    # ---- doing

    def action_verb(self, key: str) -> None:
        """Ask for confirmation, and show the exact command."""
        if self.model.view == INBOX and len(self.screen_stack) == 1 and self._answers_with(key):
            return
        verb, target = BY_KEY.get(key), self.target()
        if verb is None:
            return
        refusal = verb.refusal(target)
        if refusal:
            self.notify(printable(refusal), severity="warning", timeout=_REFUSAL, markup=False)
            return

        def answered(answers: Sequence[str] | None) -> None:
            if answers is not None:
                self._do(verb, target, answers)

        self._put_above(Confirm(verb, target), answered)

    def _do(self, verb: DashboardVerb, target: Target, answers: Sequence[str]) -> None:
        words, line = verb.words(target, answers), verb.line(target, answers)
        if verb.how is How.START:
            self._start(words, line)
            return
        stop = verb.how is How.STOP
        work = (
            partial(self.actions.stop, target.stream, target.pid or 0) if stop else partial(self.actions.do, words, "")
        )

        def came(got: CommandResult | CapsuleError) -> None:
            self._refresh_at_once()
            self._tell(line, got, stays=verb.how is How.READ)

        if not self._beside.ask(f"do {verb.word} {target.stream}", work, came):
            self.notify("Already in progress.", severity="warning", timeout=_REFUSAL, markup=False)

    def _answers_with(self, key: str) -> bool:
        """Open the answer with this key; return False if there is none."""
        question = self.model.question(self._rows.key)
        found = next((each for each in question.answers if KEYS[each.verb] == key), None) if question else None
        if found:
            self.action_answer(found.verb)
        return found is not None

    def action_answer(self, verb: str) -> None:
        """Show the full question, with room for the answer."""
        question = self.model.question(self._rows.key)
        answer = next((each for each in question.answers if each.verb == verb), None) if question else None
        if question is None or answer is None or len(self.screen_stack) > 1:
            return
        which = question.id, verb

        def written(given: str | None) -> None:
            self._drafts[which] = form.draft
            if given is not None:
                self._send(question, answer, given)

        page = partial(self.model.question_page, question, answered=True)
        form = AnswerForm(answer, page, self._drafts.get(which, ""))
        self._put_above(form, written)

    def _send(self, question: Question, answer: Answer, given: str) -> None:
        words = answer.with_text(given)
        line = shlex.join(["capsule", *words])
        if answer.verb == "run":
            self._start(words, line)
            return

        def came(got: CommandResult | CapsuleError) -> None:
            if isinstance(got, CommandResult) and not got.code:
                self._drafts.pop((question.id, answer.verb), None)
            self._refresh_at_once()
            self._tell(line, got)

        if not self._beside.ask(f"answer {question.id}", partial(self.actions.do, words, ""), came):
            self.notify("Already in progress.", severity="warning", timeout=_REFUSAL, markup=False)

    def _start(self, words: Sequence[str], line: str) -> None:
        """Start a run, and wait for it in a thread: a run that cannot begin only says so in its output."""
        began = time.monotonic()

        def came(got: StartedRun | CapsuleError) -> None:
            if isinstance(got, CapsuleError):
                self._tell(line, got)
                return
            self.notify(f"Running in the background (pid {got.pid}).", title=printable(line), markup=False)
            self._beside.ask(f"end of {got.pid}", got.wait, ended)

        def ended(got: CommandResult) -> None:
            self._refresh_at_once()
            self._tell(line, got, aside=time.monotonic() - began > _AT_ONCE)

        self._beside.ask(f"start {line}", partial(self.actions.start, words), came)

    def _refresh_at_once(self) -> None:
        """Poll at once, because the user waits for the result of an action."""
        self._acted_at = time.monotonic()
        self._looking.soon()
        self._read_at_once()

    def _tell(self, line: str, got: CommandResult | CapsuleError, *, aside: bool = False, stays: bool = False) -> None:
        """Show what a command printed; `aside` shows it without taking the screen, `stays` until it is left."""
        said = got if isinstance(got, CommandResult) else CommandResult(got.exit_code, err=f"{got.message}\n{got.hint}")
        if stays or (said.code and not aside):
            self._put_above(CommandOutput(line, said))
            return
        words = printable(said.err if said.code else said.out).strip()[:_LONGEST_TOAST]
        severity: Severity = "error" if said.code else "information"
        self.notify(words or "Done.", title=printable(line), severity=severity, markup=False)
