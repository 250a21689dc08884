"""A mission's story, told from its events: for people (`lines`) and for programs (`facts`). Nothing is touched.

Whether it runs is not in the events: begun with nobody at it is *interrupted*. Only the part since the mission was last
started is told; what came before was abandoned, and its salvage refs are still named.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from capsule.core.board import waiting_feedback
from capsule.core.budget import Spending, as_facts, duration, price, total
from capsule.core.cards import Attempt
from capsule.core.event import (
    Abandoned,
    Event,
    MissionStarted,
    Recorded,
    Salvaged,
    StepBegun,
    StepEnded,
    Stopped,
    Waiting,
    Warned,
)
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.standpoint import (
    DELIVERED,
    Situation,
    Standpoint,
    Word,
    let_pass,
    merged_on_red,
    standpoint,
    unverified,
)
from capsule.core.state import MissionState, replay
from capsule.reports.account_words import agents_used
from capsule.reports.style import Style, clean, printable

_SIGNS = {
    EvidenceStatus.CONFIRMED: ("✓", "green"),
    EvidenceStatus.REFUTED: ("✗", "red"),
    EvidenceStatus.UNVERIFIED: ("?", "yellow"),
}
_VERDICTS = {"PASS": "green", "MORE": "green", "SKIPPED": "dim", "NEEDS_WORK": "yellow", "BLOCKED": "yellow"}
_WORDS = {Word.MERGED: "green", Word.PARKED: "yellow", Word.INTERRUPTED: "yellow", Word.STOPPED: "red"}
_PROOF_LINES = 6
_FEEDBACK_LINES = 20
NARROWEST = 32


class Story:
    def __init__(
        self, events: Sequence[Event], pid: int | None, root: Path, children: Sequence[MissionState] = ()
    ) -> None:
        self._children = children
        self._all = events
        starts = [number for number, event in enumerate(events) if isinstance(event, MissionStarted)]
        self.events = events[starts[-1] :] if starts else events
        self.state: MissionState = replay(events)
        self.pid = pid
        self.root = root

    @property
    def mission(self) -> str:
        return self.state.mission

    def attempts(self) -> list[Attempt]:
        """In the order in which they began; a step that was begun again is told once."""
        found: dict[str, Attempt] = {}
        for event in self.events:
            if isinstance(event, StepBegun):
                found[event.key] = Attempt(event.key, event.phase, event.attempt, event.agent, event.at)
            elif isinstance(event, StepEnded):
                begun = found.get(event.key)
                number, agent, began = (begun.number, begun.agent, begun.began) if begun else (event.run, "", "")
                agent = event.outcome.agent or agent
                found[event.key] = Attempt(event.key, event.phase, number, agent, began, event)
        return list(found.values())

    def standpoint(self) -> Standpoint:
        last = self.events[-1] if self.events else None
        stopped = last.cause if isinstance(last, Stopped) else ""
        return standpoint(
            Situation(state=self.state, pid=self.pid, commits=len(self.commits()), stopped=stopped),
        )

    def salvaged(self) -> list[tuple[str, str]]:
        """Every ref that keeps something of this mission, also of starts before the last one."""
        kept = [(event.ref, event.why) for event in self._all if isinstance(event, Salvaged)]
        ended = [(event.salvage, event.how) for event in self._all if isinstance(event, Abandoned) and event.salvage]
        return list(dict.fromkeys(kept + ended))

    def spent(self) -> Spending:
        """With its child missions."""
        return total([self.state.spending, *(child.spending for child in self._children)])

    def waits(self) -> list[Waiting]:
        return [event for event in self.events if isinstance(event, Waiting)]

    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned)]

    def commits(self) -> list[str]:
        """The commits that hold its steps, where the tracker lives in the project."""
        return [event.commit for event in self.events if isinstance(event, Recorded) and event.commit]

    def places(self) -> dict[str, str]:
        """What exists of the mission's papers and worktree, by what it is."""
        home = self.root / ".capsule"
        places = {
            "worktree": home / "worktrees" / self.mission,
            "under way": home / "missions" / self.mission,
            "papers": home / "logs" / self.mission,
        }
        return {what: str(path) for what, path in places.items() if path.is_dir()}

    def unverified(self) -> str:
        return unverified(self.state.policy, on_red=merged_on_red(self.events))


# ---- for programs


def facts(story: Story) -> dict[str, Any]:
    """One JSON object."""
    state, point = story.state, story.standpoint()
    return {
        "mission": state.mission,
        "item": {"id": state.item.id, "title": state.item.title, "closed": state.item_closed},
        "workflow": state.workflow.name,
        "base": state.base,
        "into": state.into,
        "status": point.word,
        "standing": point.sentence,
        "pid": story.pid,
        "merged": state.facts.get("merged"),
        "verify": state.policy.verify,
        "test": state.policy.test or None,
        "to_do": list(state.to_do),
        "attempts": [_attempt_facts(attempt) for attempt in story.attempts()],
        "spent": as_facts(story.spent()),
        "waited": [{"key": w.key, "kind": w.failure.kind.value, "seconds": w.seconds} for w in story.waits()],
        "feedback": waiting_feedback(state),
        "salvaged": [{"ref": ref, "why": why} for ref, why in story.salvaged()],
        "warnings": story.warnings(),
        "places": story.places(),
        "next": point.next,
        "events": len(story.events),
    }


def _attempt_facts(attempt: Attempt) -> dict[str, Any]:
    known = {"key": attempt.key, "phase": attempt.phase, "attempt": attempt.number, "agent": attempt.agent or None}
    if attempt.ended is None:
        return {**known, "verdict": None}
    outcome, decision = attempt.ended.outcome, attempt.ended.decision
    return {
        **known,
        "claimed": outcome.signal.verdict.value,
        "verdict": decision.verdict.value,
        "move": decision.move.value,
        "reason": decision.reason,
        "seconds": round(outcome.seconds, 3),
        "ended": attempt.ended.at,
        "summary": outcome.signal.summary,
        "files": list(outcome.files),
        "usage": msgspec.to_builtins(outcome.usage) if outcome.usage else None,
        "failure": msgspec.to_builtins(outcome.failure) if outcome.failure else None,
        "evidence": [msgspec.to_builtins(piece) for piece in outcome.evidence],
        "warnings": list(outcome.warnings),
    }


# ---- for people


def lines(story: Story, style: Style, width: int) -> Iterator[str]:
    """What `capsule show` prints."""
    width = max(NARROWEST, width)
    yield from _header(story, style, width)
    yield ""
    yield from _phases(story, style, width)
    yield from _feedback(story, style, width)
    yield from _labelled("salvaged", (f"{ref} ({why})" for ref, why in story.salvaged()), width)
    yield from _labelled("warning", story.warnings(), width)
    yield ""
    for what, path in story.places().items():
        yield f"{what + ':':<12}{path}"
    yield f"{'next:':<12}{story.standpoint().next}"


def _header(story: Story, style: Style, width: int) -> Iterator[str]:
    state, point = story.state, story.standpoint()
    for line in _wrapped(f"{state.item.id}: {state.item.title}", width, ""):
        yield style.paint("bold", line)
    yield from _wrapped(f"workflow {state.workflow.name}, base {state.base[:12]}, into {state.into}", width, "  ")
    colour = "yellow" if story.unverified() and point.word in DELIVERED else _WORDS.get(point.word, "")
    for line in _wrapped(point.sentence, width, "  "):
        yield style.paint(colour, line)
    if story.spent().runs:
        waited = sum(wait.seconds for wait in story.waits())
        paused = f"; {duration(waited)} of waiting for the provider" if waited else ""
        yield from _wrapped(f"{agents_used(story.spent())}{paused}", width, "  ")
    if story.unverified():
        yield style.paint("yellow", f"  {story.unverified()}")


def _phases(story: Story, style: Style, width: int) -> Iterator[str]:
    """A table; under each row what was claimed there, and what was seen."""
    attempts = story.attempts()
    cells = [_HEADINGS, *(_cells(attempt, story.pid) for attempt in attempts)]
    if not story.spent().priced and not story.spent().counted:
        cells = [{name: cell for name, cell in row.items() if name != "cost"} for row in cells]
    columns = _fitting(cells, width)
    heading, *rows = columns
    yield style.paint("dim", _row(heading, rows))
    for attempt, row in zip(attempts, rows, strict=True):
        doubted = not attempt.ended or let_pass(attempt.verdict, attempt.evidence)
        yield style.paint("yellow" if doubted else _VERDICTS.get(attempt.verdict, "red"), _row(row, columns))
        failure = attempt.ended.outcome.failure if attempt.ended else None
        if failure:
            yield from _wrapped(f"{failure.kind.value}: {failure.reason} {failure.hint}", width, "  ")
        for piece in attempt.evidence:
            yield from _evidence(piece, style, width)
    to_do = story.state.to_do[1:] if story.state.begun else story.state.to_do
    if to_do and not story.state.abandoned:
        yield from _wrapped(f"still to do: {', '.join(to_do)}", width, "")


_HEADINGS = {name: name for name in ("phase", "try", "claimed", "verdict", "time", "by", "cost")}
_DISPENSABLE = ("cost", "by", "time", "try", "claimed")
"""What a narrow terminal does without, first things first."""

Cells = dict[str, str]


def _cells(attempt: Attempt, pid: int | None) -> Cells:
    ended = attempt.ended
    begun = {"phase": clean(attempt.phase), "try": str(attempt.number), "by": clean(attempt.agent)}
    if ended is None:
        word = "interrupted" if pid is None else "under way"
        return {**begun, "claimed": "", "verdict": word, "time": "", "cost": ""}
    return {
        **begun,
        "claimed": ended.outcome.signal.verdict.value,
        "verdict": ended.decision.verdict.value,
        "time": f"{ended.outcome.seconds:.1f} s",
        "cost": (price(ended.outcome.usage) or "unknown") if ended.outcome.agent else "",
    }


def _fitting(rows: list[Cells], width: int) -> list[Cells]:
    """The rows without the columns there is no room for."""
    for dropped in range(len(_DISPENSABLE) + 1):
        kept = [name for name in rows[0] if name not in _DISPENSABLE[:dropped]]
        shown = [{name: row[name] for name in kept} for row in rows]
        if sum(_widths(shown).values()) + 2 * (len(kept) - 1) <= width:
            break
    return shown


def _widths(rows: Iterable[Cells]) -> dict[str, int]:
    widths: dict[str, int] = {}
    for row in rows:
        for name, cell in row.items():
            widths[name] = max(widths.get(name, 0), len(cell))
    return widths


def _row(row: Cells, among: Sequence[Cells]) -> str:
    widths = _widths([row, *among])
    return "  ".join(f"{cell:<{widths[name]}}" for name, cell in row.items()).rstrip()


def _evidence(piece: Evidence, style: Style, width: int) -> Iterator[str]:
    """The claim beside what was seen; the proof only where the two disagree."""
    sign, colour = _SIGNS[piece.standing]
    first, *rest = _wrapped(f"claimed: {piece.claimed}; seen: {piece.observed}", width - 2, "  ")
    yield f"  {style.paint(colour, sign)} {first.lstrip()}"
    yield from (f"  {line}" for line in rest)
    if piece.standing is EvidenceStatus.REFUTED:
        for line in printable(piece.detail).strip().splitlines()[-_PROOF_LINES:]:
            yield style.paint("dim", f"    | {line.expandtabs(4)[: width - 6]}".rstrip())


def _feedback(story: Story, style: Style, width: int) -> Iterator[str]:
    for phase, text in waiting_feedback(story.state).items():
        yield ""
        yield style.paint("bold", f"feedback waiting for {phase}:")
        told = printable(text).strip().splitlines()
        for line in told[:_FEEDBACK_LINES]:
            yield from textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="  ") or [""]
        if len(told) > _FEEDBACK_LINES:
            yield f"  ... and {len(told) - _FEEDBACK_LINES} more lines: --json has them all"


def _labelled(label: str, texts: Iterable[str], width: int) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number == 0:
            yield ""
        yield from _wrapped(f"{label}: {text}", width, "")


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """A stranger's sentence on as many lines as it needs."""
    wrapped = textwrap.wrap(
        clean(printable(text)),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
    )
    return wrapped or [""]
