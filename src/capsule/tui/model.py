"""The dashboard's state and its layout in lines, without widgets.

Boards and listings go in; lists, the text beside them and the lines above and below them come out. A line is only made
when it is visible, and the outline only when an item or the status of a mission has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from capsule.actions import Details, Listing, Target, available, target_of
from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.history import MissionSummary
from capsule.core.inbox import Question, inbox, needs_you
from capsule.core.outline import OutlineEntry, matching, outline, unfolded
from capsule.reports.board_lines import overviews
from capsule.reports.style import clean
from capsule.tui import drawing, lines, merges
from capsule.tui import inbox as asked
from capsule.tui.drawing import BAD, FAINT, STRONG, UNSURE, row, text
from capsule.tui.mission import finding_lines, head_lines, now_lines, phase_lines
from capsule.tui.rows import Draw

INBOX = "inbox"
VIEWS = (INBOX, "items", "missions", "history", "merges")
WIDE = 110
"""From so many columns on there is a text next to every list."""
FOUND_BY = "words in id, title, status, phase, type or tag"
"""The fields that a filter searches."""
_LOW = 40
_ALWAYS = (("?", "help", "app.explain"), ("q", "quit", "app.quit"))
_LISTED = (("Enter", "open", "app.open"), ("/", "filter", "app.filter"), *_ALWAYS)
_OPENED = (("Esc", "back", "screen.leave"), ("→", "next page", "screen.turn(1)"), *_ALWAYS)


class Lines(NamedTuple):
    """A list: its keys, the function that draws a line, and the text for an empty list."""

    keys: Sequence[str]
    draw: Draw
    empty: str = ""


class DashboardModel:
    def __init__(self) -> None:
        self.board = Board()
        self.view = "items"
        self.words = ""
        """The filter."""
        self._listing: Listing | None = None
        self._trouble: dict[str, CapsuleError] = {}
        self.folded: set[str] = set()
        self._entries: list[OutlineEntry] = []
        self._shown: list[OutlineEntry] = []
        self._standing: dict[str, tuple[str, str]] = {}
        self.questions: tuple[Question, ...] = ()
        self.details: dict[tuple[str, str], Details] = {}
        """The changes, by question and its time."""
        self._lines: dict[str, tuple[tuple[int, int, bool], MissionSummary, Content]] = {}

    # ---- what comes in

    def take_board(self, got: Board | CapsuleError) -> bool:
        """Take a new board; return whether a mission changed its status, as its item may have changed, too."""
        if isinstance(got, CapsuleError):
            self._trouble["journal"] = got
            return False
        self._trouble.pop("journal", None)
        self.board = got
        self._ask()
        before, self._standing = self._standing, lines.words_of(got)
        if self._standing == before:
            return False
        self._outline()
        return [word for word, _ in before.values()] != [word for word, _ in self._standing.values()]

    def listed(self, got: Listing | CapsuleError) -> None:
        if isinstance(got, CapsuleError):
            self._trouble["items"], self._listing = got, None
        else:
            self._trouble.pop("items", None)
            self._listing = got
        self._ask()
        self._outline()

    def _ask(self) -> None:
        self.questions = inbox(self.board, self._listing.items if self._listing else None)

    def question(self, key: str) -> Question | None:
        return next((question for question in self.questions if question.id == key), None)

    def _outline(self) -> None:
        listing = self._listing
        self._entries = outline(listing.items, self.board, by_status=listing.by_status) if listing else []

    # ---- lists

    def lines(self, width: int) -> Lines:
        """Of the view that is shown."""
        trouble = self._trouble.get("items" if self.view == "items" else "journal")
        if trouble and (self.view == "items" or not self.board.missions):
            told = [*drawing.paragraph(trouble.message, width, BAD), *drawing.paragraph(trouble.hint, width)]
            return Lines([f"!{number}" for number in range(len(told))], lambda number, _width: told[number])
        if self.view == INBOX:
            return self._inbox()
        if self.view == "merges":
            return self._merges()
        return self._items() if self.view == "items" else self._missions(past=self.view == "history")

    def _inbox(self) -> Lines:
        wanted = self.words.lower().split()
        shown = [q for q in self.questions if all(word in f"{q.heading} {q.kind.words}".lower() for word in wanted)]
        names = asked.name_width(shown)
        return Lines(
            [question.id for question in shown],
            lambda number, width: asked.question_line(shown[number], width, names),
            self._nothing("Nothing needs you." if self._listing else "Loading ..."),
        )

    def _items(self) -> Lines:
        folded = set() if self.words else self.folded
        shown = matching(self._entries, self.words) if self.words else unfolded(self._entries, folded)
        self._shown = shown

        def draw(number: int, width: int) -> Content:
            return lines.entry_line(shown[number], width, folded=shown[number].key in folded)

        empty = self._nothing('No open items. Add one: capsule add "Describe the change in one line"')
        return Lines([entry.key for entry in shown], draw, empty if self._listing else "Loading items ...")

    def _nothing(self, words: str) -> str:
        """Say why a list is empty."""
        return f'No matches for "{clean(self.words)}" (Esc clears)' if self.words else words

    def _missions(self, *, past: bool) -> Lines:
        board, names = self.board, lines.name_width(self.board)
        views = {view.mission: view for view in board.missions}
        wanted = self.words.lower().split()
        keys = lines.history(board) if past else lines.under_way(board)
        if wanted:
            words = {
                key: f"{key} {view.title} {view.status.words} {view.phase} {view.workflow}"
                for key, view in views.items()
            }
            keys = [key for key in keys if all(word in words.get(key, key).lower() for word in wanted)]

        def draw(number: int, width: int) -> Content:
            view = views.get(keys[number])
            if view is not None:
                return self._mission_line(view, width, names, past=past)
            run = lines.find_run(board, keys[number])
            return lines.run_line(run, width, past=past) if run else Content("")

        empty = "No finished missions yet." if past else "No missions yet. r runs an item, R the queue."
        return Lines(keys, draw, self._nothing(empty))

    def _merges(self) -> Lines:
        shown = merges.merge_lines(self.board, lines.name_width(self.board))
        if self.words:
            shown = merges.matching(shown, self.words.lower().split())
        return Lines(
            [line.key for line in shown],
            lambda number, width: shown[number].draw(width),
            self._nothing("No mission was merged yet. Those waiting to be merged are listed here."),
        )

    def _mission_line(self, view: MissionSummary, width: int, names: int, *, past: bool) -> Content:
        """Draw a mission's line, again only after a change."""
        how = (width, names, past)
        known = self._lines.get(view.mission)
        if known and known[0] == how and known[1] == view:
            return known[2]
        line = lines.past_line(view, width, names) if past else lines.mission_line(view, width, names)
        self._lines[view.mission] = how, view, line
        return line

    # ---- folding

    def entry(self, key: str) -> OutlineEntry | None:
        return next((entry for entry in self._shown if entry.key == key), None) if self.view == "items" else None

    def above(self, key: str) -> str:
        """Return the key of the parent; '' at the top."""
        entry = self.entry(key)
        before = self._shown[: self._shown.index(entry)] if entry else []
        return next((each.key for each in reversed(before) if entry and each.depth < entry.depth), "")

    # ---- what the cursor is on

    def target(self, key: str) -> Target:
        key = merges.mission_of(key)
        run = lines.find_run(self.board, key)
        if run:
            return Target(stream=run.stream, pid=run.pid, verbs=self._listing.verbs if self._listing else ())
        return target_of(self.board, self._listing or Listing(), key)

    def question_page(self, question: Question, width: int, *, answered: bool = False) -> list[Content]:
        details = self.details.get((question.id, question.since))
        return asked.question_page(question, self.board.at, details, width, answered=answered)

    def about(self, key: str, width: int) -> list[Content]:
        if self.view == INBOX:
            question = self.question(key)
            return self.question_page(question, width) if question else []
        key = merges.mission_of(key)
        entry, view, run = self.entry(key), self.board.mission(key), lines.find_run(self.board, key)
        if entry:
            return lines.about_item(entry, view, self.target(key), width)
        if run:
            return [text(clean(run.name), STRONG), *lines.run_page(run, width)]
        if view is None:
            return []
        return [
            *(*head_lines(view, width), *phase_lines(view, width, folded=False), *now_lines(view, width)),
            *(*lines.doable(self.target(key), width), Content(""), *finding_lines(view, width, whole=False)),
        ]

    def run_page(self, key: str, width: int) -> list[Content]:
        """Draw the current state of the run; the page keeps its place."""
        run = lines.find_run(self.board, key)
        return lines.run_page(run, width) if run else [text("This run is not in the journal any more.", FAINT)]

    # ---- above and below

    def strip(self, width: int, height: int) -> list[Content]:
        """Draw running missions below the items, totals below the history, and nothing below the other lists."""
        if self.view in ("missions", "merges") or (self.view == INBOX and height < _LOW):
            return []
        if self.view == "history":
            return [lines.totals_line(self.board, width)]
        return lines.strip_lines(self.board, width, 3 if height < _LOW else 6)

    def top(self, width: int) -> Content:
        parts, fault = [], self._trouble.get("journal")
        for number, name in enumerate(VIEWS, 1):
            style = (
                "reverse bold" if name == self.view else f"{UNSURE} bold" if name == INBOX and self.questions else ""
            )
            label = needs_you(self.questions) if name == INBOX else name.capitalize()
            if name == self.view or width >= WIDE or not (fault or self.words):  # they get the little room there is
                parts.append(drawing.tab(f"{number} {label}", f"app.view('{name}')", style))
        if self.words:
            parts += [text(" filter: ", FAINT), drawing.said(self.words, 30, UNSURE)]
        left = row(*parts)
        if fault:
            return drawing.both_ends(left, drawing.said(fault.message, width - left.cell_length - 1, BAD), width)
        room = width - left.cell_length - 1
        words = next((words for words in overviews(self.board) if len(words) <= room), "")
        return drawing.both_ends(left, text(words), width)

    def keys(self, key: str, width: int, *, opened: bool = False) -> Content:
        """Draw the keys that do something here, as many as fit; the help has them all."""
        if self.view == INBOX and not opened:
            question = self.question(key)
            always = [drawing.hint(*hint) for hint in _LISTED[1:]]
            return row(*drawing.as_many([*(asked.hints(question) if question else []), *always], width))
        hints = [drawing.hint(*hint) for hint in (_OPENED if opened else _LISTED)]
        hints += [drawing.hint(verb.key, verb.name, f"app.verb('{verb.key}')") for verb in available(self.target(key))]
        return row(*drawing.as_many(hints, width))
