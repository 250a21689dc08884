"""The demo on a terminal: the agent's claims on the left, what Capsule saw on the right, and the result below.

The run is another process, as ever. Its events are shown one step at a time, a lie long enough to be read; any key
shows the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Key
from textual.widgets import Static

from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.evidence import Evidence, EvidenceStatus, refuted
from capsule.core.history import Attempt, MissionSummary, comparable_claim
from capsule.core.signal import Verdict
from capsule.core.text import count
from capsule.reports.style import clean
from capsule.tui import drawing
from capsule.tui.app import BackgroundTasks, CapsuleApp, Poller
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, UNSURE, row, text
from capsule.tui.mission import TURNS, phase_lines
from capsule.tui.model import WIDE
from capsule.tui.rows import Page

HOLD, GLANCE, CARD = 2.2, 0.5, 5.0
"""Seconds for a lie that is caught, for any other step, and for the card at the end."""
_TICK = 0.1
_ROOMY = 36
"""From so many lines on there is room for the phases, too."""


@dataclass(frozen=True)
class DemoControls:
    """Functions that the view is given, each called from a thread of its own."""

    play: Callable[[Callable[[str], None]], Sequence[str]]
    """Runs the story, hands on what is said before each scene, and returns the command that failed, if one did."""
    look: Callable[[], Board]
    next: str
    """Where to look afterwards."""


@dataclass(frozen=True)
class Caught:
    """A claim that does not hold."""

    mission: str
    phase: str
    claimed: str
    seen: str


class DemoView(CapsuleApp[bool]):
    """`open` returns whether it came to its end; False if the user left before."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,ctrl+c,ctrl+q", "leave", priority=True)]

    def __init__(self, controls: DemoControls) -> None:
        super().__init__()
        self._controls = controls
        self._board = Board()
        self.failed: Sequence[str] = ()
        self._over, self._done = False, False
        self._told: set[tuple[str, str]] = set()
        self._until = 0.0
        self._began, self._ticks = time.monotonic(), 0
        self._shown: tuple[MissionSummary, Attempt] | None = None
        self._caught: list[Caught] = []
        self._announced: list[str] = []
        """What is said before missions that are still to be shown."""
        self._beside = BackgroundTasks(self.call_later)
        self._looking = Poller(controls.look, self.call_later, self._looked, lambda board: board.missions)
        self._top, self._say = Static(id="top", classes="bar"), Static(id="say")
        self._claim, self._seen, self._phases = Page(id="claim"), Page(id="seen"), Page(id="phases")
        self._banner, self._keys = Static(id="banner"), Static(id="keys", classes="bar")
        self._sides = Horizontal(id="sides")

    def compose(self) -> ComposeResult:
        yield from (self._top, self._say)
        with self._sides:
            yield from (self._claim, self._seen)
        yield from (self._banner, self._phases, self._keys)

    def on_mount(self) -> None:
        self._claim.border_title, self._seen.border_title = "Agent says", "Capsule saw"
        for page in (self._claim, self._seen, self._phases):
            page.can_focus = False
        drawing.put(self._keys, text("any key: next   q: stop the demo", FAINT))
        self._looking.start()
        self._beside.ask("story", lambda: self._controls.play(self._announce), self._ended)
        self.set_interval(_TICK, self._tick)

    def on_unmount(self) -> None:
        self._looking.end()

    def action_leave(self) -> None:
        self.exit(False)

    def on_key(self, _: Key) -> None:
        self._until = 0.0

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # ---- what came

    def _announce(self, words: str) -> None:
        """Called from the thread of the story, which is ahead of what is shown."""
        self.call_later(self._announced.append, words)

    def _looked(self, got: Board | CapsuleError) -> None:
        if isinstance(got, Board):
            self._board = got

    def _ended(self, got: Sequence[str] | CapsuleError) -> None:
        if isinstance(got, CapsuleError):
            raise got
        self.failed = got
        self.set_timer(1.0, self._mark_over)  # the last result may still be on its way

    def _mark_over(self) -> None:
        self._over = True

    def _untold(self) -> Iterator[tuple[MissionSummary, Attempt]]:
        """List agents' attempts that ended and were not shown, the oldest first."""
        for view in sorted(self._board.missions, key=lambda each: each.began):
            for attempt in view.attempts:
                if attempt.ended and attempt.agent and (view.mission, attempt.key) not in self._told:
                    yield view, attempt

    def _tick(self) -> None:
        self._ticks += 1
        if time.monotonic() >= self._until:
            self._next()
        self._draw_top()

    def _next(self) -> None:
        step = next(self._untold(), None)
        if self._announced and (not self._shown or (step and step[0].mission != self._shown[0].mission)):
            drawing.put(self._say, text(self._announced.pop(0)))
        if step is not None:
            view, attempt = self._shown = step
            self._told.add((view.mission, attempt.key))
            lies = [Caught(view.mission, attempt.phase, e.claimed, e.observed) for e in refuted(attempt.evidence)]
            self._caught += lies
            self._until = time.monotonic() + (HOLD if lies else GLANCE)
            self._draw()
        elif self._done:
            self.exit(True)
        elif self._over:
            self._done, self._until = True, time.monotonic() + CARD
            self._draw_card()

    # ---- drawing

    def _draw_top(self) -> None:
        turn = f"{TURNS[self._ticks // 2 % len(TURNS)]} " if self.animation_level != "none" and not self._over else ""
        parts = [text("capsule demo  ", STRONG)]
        for view in sorted(self._board.missions, key=lambda each: each.began):
            at = f" {view.phase}" if view.running and view.phase else ""
            parts += [drawing.status_of(view)[:1], text(f" {clean(view.mission)}{at}   ")]
        seconds = text(f"{turn}{drawing.elapsed(int(time.monotonic() - self._began))}", BUSY)
        drawing.put(self._top, drawing.both_ends(row(*parts), seconds, max(20, self.size.width - 2)))

    def _draw(self) -> None:
        self._phases.display = self.size.height >= _ROOMY and not self._done
        if self._shown is None or self._done:
            return
        view, attempt = self._shown
        self._claim.read(claim_lines(view, attempt, max(10, self._claim.room - 1)))
        self._seen.read(seen_lines(attempt, max(10, self._seen.room - 1)))
        words, style = outcome_of(attempt)
        width = max(20, self.size.width)
        self._banner.set_class(attempt.verdict == Verdict.REFUTED, "-refuted")
        drawing.put(self._banner, drawing.said(f" {words}", width, f"{style} bold"))
        newest = self._board.mission(view.mission) or view
        self._phases.read(phase_lines(newest, max(20, self._phases.room), folded=True, blocks=True))

    def _draw_card(self) -> None:
        width = max(20, self.size.width - 4)
        self._claim.border_title, self._seen.border_title = "Caught", "Next"
        self._banner.remove_class("-refuted")
        self._banner.add_class("-card")
        self._say.display = False
        drawing.put(self._banner, text(f"✓ {card_words(self._board, self._caught)}", "bold"))
        drawing.put(self._keys, text("any key: close", FAINT))
        self.screen.move_child(self._banner, before=self._sides)
        stacked = self.size.width < WIDE
        self.screen.set_class(stacked, "-stacked")
        room = width if stacked else width // 2
        self._claim.read([line for lie in enumerate(self._caught, 1) for line in caught_lines(*lie, room, low=stacked)])
        told: list[Content] = []
        for line in self._controls.next.rstrip().split("\n"):
            indent = " " * (len(line) - len(line.lstrip()))
            told += drawing.paragraph(line, room - 2, first=indent) if line or not stacked else []
        self._seen.read(told)
        self._draw()


def caught_lines(number: int, lie: Caught, width: int, *, low: bool) -> list[Content]:
    """Draw one lie of the card: the claim, and what was seen; `low`: on as few lines as can be."""
    head = row(text(f"{number}. {clean(lie.mission)} {clean(lie.phase)}", STRONG), "  " if low else "")
    quote = f"“{lie.claimed}”"
    seen = drawing.paragraph(lie.seen, width - 3, BAD, first=text("   ✗ ", BAD))
    if low:
        return [*drawing.paragraph(quote, width, FAINT, first=head), *seen]
    return [head, *drawing.paragraph(quote, width, FAINT, first="   "), *seen, Content("")]


def claim_lines(view: MissionSummary, attempt: Attempt, width: int) -> list[Content]:
    """Draw an agent's claims."""
    again = f", attempt {attempt.number}" if attempt.number > 1 else ""
    signal = attempt.ended.outcome.signal if attempt.ended else None
    lines = drawing.paragraph(f"{view.mission}: {view.title}", width, FAINT)
    lines += [text(f"{clean(attempt.phase)}{again}", STRONG), Content("")]
    lines += drawing.paragraph(f"“{(signal.feedback or signal.summary) if signal else ''}”", width)
    lines.append(Content(""))
    for piece in refuted(attempt.evidence):
        lines += drawing.paragraph(piece.claimed, width, STRONG, first="claims: ")
    return lines


def seen_lines(attempt: Attempt, width: int) -> list[Content]:
    """Draw the evidence, contradictions first."""
    lines: list[Content] = []
    for piece in _refuted_first(attempt):
        good = piece.standing is EvidenceStatus.CONFIRMED
        sign, style = ("✓ ", GOOD) if good else ("✗ ", BAD) if piece in refuted((piece,)) else ("? ", UNSURE)
        words = f"{comparable_claim(piece)}: {piece.observed}" if good else piece.observed
        lines += drawing.paragraph(words, width, "" if good else f"{style} bold", first=text(sign, style))
        if sign == "✗ " and piece.detail:
            lines += drawing.passage(piece.detail, width, indent="  │ ", style=FAINT, most=6)
            lines.append(Content(""))
    return lines or [text("nothing to check: this is an opinion", FAINT)]


def _refuted_first(attempt: Attempt) -> list[Evidence]:
    return sorted(attempt.evidence, key=lambda piece: piece not in refuted((piece,)))


def outcome_of(attempt: Attempt) -> tuple[str, str]:
    """Return the result of a claim in one line, and its style."""
    who = clean(attempt.phase)
    if attempt.verdict == Verdict.REFUTED:
        return f"✗ REFUTED: {who} claimed {attempt.claimed}, and the evidence says no", ""
    if attempt.sent_back:
        return f"↺ {who} sends the work back", UNSURE
    return f"✓ {who} {drawing.verdict_of(attempt)[0]}", GOOD


def card_words(board: Board, caught: Sequence[object]) -> str:
    """`2 merged · 3 lies caught`"""
    merged = sum(bool(view.merged) for view in board.missions)
    return f"{merged} merged · {count(len(caught), 'lie')} caught"
