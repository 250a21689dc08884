"""A board as plain text: whole sentences, one below the other, nothing that has to be seen to be understood.

For terminals without a screen, for screen readers and for pipes. `overview`, `board_lines` and `item_lines` tell how
everything stands; `changes` what is different from one look to the next, a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from capsule.core.board import Board, MissionView, RunView
from capsule.core.budget import duration
from capsule.core.cards import Attempt
from capsule.core.event import Waiting
from capsule.core.evidence import EvidenceStatus
from capsule.core.outline import OutlineEntry
from capsule.core.stamps import clock_time
from capsule.core.standpoint import ENDED, HALTED, Word, let_pass
from capsule.core.text import sentence
from capsule.reports.account_words import LET_PASS, agents_used
from capsule.reports.style import clean

_GROUPS = {
    "running": (Word.RUNNING,),
    "waiting for you": HALTED,
    "to go on": (Word.INTERRUPTED, Word.WAITING),
    "ended": ENDED,
}
_ENDED_SHOWN = 10


def overview(board: Board) -> str:
    """`2 running, 1 waiting for you, 3 ended`"""
    counts = {group: sum(view.word in words for view in board.missions) for group, words in _GROUPS.items()}
    told = ", ".join(f"{number} {group}" for group, number in counts.items() if number)
    return told or "no missions yet"


def board_lines(board: Board) -> Iterator[str]:
    """Runs that go on, then every mission; of what has ended the last ones."""
    yield f"Missions: {overview(board)}."
    for run in board.runs:
        if run.running:
            yield f"{clean(run.name)}: {run_sentence(run)}"
    ended = [view for view in board.missions if view.word in ENDED]
    for view in board.missions:
        if view.word not in ENDED or view in ended[:_ENDED_SHOWN]:
            yield ""
            yield from mission_lines(view)
    if len(ended) > _ENDED_SHOWN:
        yield ""
        yield f"And {len(ended) - _ENDED_SHOWN} more that ended before."


def mission_lines(view: MissionView) -> Iterator[str]:
    yield f"{view.mission}: {clean(view.title)}"
    yield f"  {sentence(clean(view.sentence))}"
    if view.unverified:
        yield f"  {sentence(view.unverified)}"
    if view.pid is not None:
        yield f"  stage {view.stage} of {view.stages}{_attempt(view)}; {duration(int(view.seconds))} in all"
    if view.waiting:
        yield f"  {_wait(view.waiting)}"
    if view.doing:
        yield f"  doing: {clean(view.doing[-1])}"
    last = next((attempt for attempt in reversed(view.attempts) if attempt.ended), None)
    if last:
        yield f"  last: {attempt_sentence(last)}"
    if view.spent.runs:
        yield f"  {agents_used(view.spent)}"
    for warning in view.warnings:
        yield f"  warning: {clean(warning)}"
    yield f"  next: {view.next}"


def attempt_sentence(attempt: Attempt) -> str:
    """What was claimed, and what was seen: `execute#1 claimed PASS, and is REFUTED: the tests are red`."""
    refuted = [clean(piece.observed) for piece in attempt.evidence if piece.standing is EvidenceStatus.REFUTED]
    unsure = sum(piece.standing is EvidenceStatus.UNVERIFIED for piece in attempt.evidence)
    held = sum(piece.standing is EvidenceStatus.CONFIRMED for piece in attempt.evidence)
    judged = f"claimed {attempt.claimed}, and is {attempt.verdict}" if attempt.agent else f"is {attempt.verdict}"
    if refuted:
        though = f", {LET_PASS}" if let_pass(attempt.verdict, attempt.evidence) else ""
        return f"{attempt.key} {judged}{though}: {'; '.join(refuted)}"
    seen = [f"{held} confirmed"] * bool(held) + [f"{unsure} could not be checked"] * bool(unsure)
    return f"{attempt.key} {judged} ({', '.join(seen)})" if seen else f"{attempt.key} {judged}"


def run_sentence(run: RunView) -> str:
    card, ended = run.card, run.card.ended
    agents = f"{card.spawns} of {card.cap} agents" if card.cap else f"{card.spawns} agents"
    if run.running:
        progress = next(iter(card.progress.values()), None)
        far = f", {progress.done} of {progress.of} done" if progress else ""
        at = f", now at {card.missions[-1]}" if card.missions else ""
        return f"running for {duration(int(run.seconds))}, {agents}{far}{at}"
    if not ended:
        return f"interrupted after {agents}"
    counts = {"done": len(ended.done), "blocked": len(ended.blocked), "failed": len(ended.failed)}
    told = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    return f"ended: {clean(ended.why)}{f' ({told})' if told else ''}, {agents}"


def item_lines(entries: Iterable[OutlineEntry]) -> Iterator[str]:
    """An outline: each below what holds it, and what is known of it in words."""
    for entry in entries:
        indent = "  " * min(entry.depth, 8)
        if entry.item is None:
            yield f"{indent}{entry.title}: {entry.of}"
            continue
        item = entry.item
        stands = entry.word or ("" if item.blocked else item.status.value.replace("_", " "))
        known = [item.type] * (item.type != "task") + [stands] * bool(stands)
        known += [f"{entry.done} of {entry.of} done"] * bool(entry.of)
        known += [f"waits for {', '.join(map(clean, entry.waits_for))}"] * bool(entry.waits_for)
        known += [f"blocked: {clean(item.blocked.reason)}"] if item.blocked else []
        yield f"{indent}{entry.key}: {clean(entry.title)} ({', '.join(known)})"


# ---- from one look to the next


def changes(before: Board, after: Board) -> Iterator[str]:
    known = {view.mission: view for view in before.missions}
    for view in after.missions:
        yield from _changed(known.get(view.mission), view)
    runs = {run.card.stream: run for run in before.runs}
    for run in after.runs:
        earlier = runs.get(run.card.stream)
        if _stand(earlier) != _stand(run):
            yield f"{clean(run.name)}: {run_sentence(run)}"


def _wait(waiting: Waiting) -> str:
    until = clock_time(waiting.at, waiting.seconds)
    return f"waits for its provider until {until}: {clean(waiting.failure.reason)}"


def _changed(before: MissionView | None, after: MissionView) -> Iterator[str]:
    told = {attempt.key for attempt in before.attempts if attempt.ended} if before else set()
    for attempt in after.attempts if before else ():
        if attempt.ended and attempt.key not in told:
            yield f"{after.mission}: {attempt_sentence(attempt)}"
    if after.waiting and (before is None or before.waiting != after.waiting):
        yield f"{after.mission}: {_wait(after.waiting)}"
    if before is None or (before.sentence, before.attempt) != (after.sentence, after.attempt):
        yield f"{after.mission}: {clean(after.sentence)}{_attempt(after)}"
    if after.unverified and (before is None or before.unverified != after.unverified):
        yield f"{after.mission}: {after.unverified}"


def _attempt(view: MissionView) -> str:
    return f", attempt {view.attempt}" if view.pid is not None and view.attempt > 1 else ""


def _stand(run: RunView | None) -> tuple[bool, bool, str] | None:
    return (run.running, run.card.ended is not None, run.card.began) if run else None
