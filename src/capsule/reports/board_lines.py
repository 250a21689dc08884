"""A board as plain text: whole sentences, one below the other, for pipes, screen readers and plain terminals.

`board_lines` and `item_lines` describe the current state, `changes` the differences between two boards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from capsule.core.board import Board
from capsule.core.budget import duration
from capsule.core.event import Waiting
from capsule.core.evidence import EvidenceStatus
from capsule.core.findings import finding_line
from capsule.core.history import Attempt, MissionSummary, RunSummary
from capsule.core.merge_train import MergeSummary
from capsule.core.merges import merge_records
from capsule.core.outline import OutlineEntry
from capsule.core.progress import progress_on
from capsule.core.proven import proof_of
from capsule.core.stamps import clock_time
from capsule.core.status import MissionStatus, count_statuses
from capsule.core.text import sentence
from capsule.reports.style import clean
from capsule.reports.words import (
    LET_PASS,
    agents_used,
    car_words,
    checked,
    passage_words,
    progress_words,
    queue_words,
    run_sentence,
)

_ENDED_SHOWN = 10


def overview(board: Board) -> str:
    """`2 running, 1 needs you, 3 done`"""
    return count_statuses(Counter(view.status for view in board.missions)) or "no missions yet"


def overviews(board: Board) -> Iterator[str]:
    """Yield the overview, then the same with fewer and fewer parts, for where there is less room."""
    parts = overview(board).split(", ")
    yield from (", ".join(parts[:most]) for most in range(len(parts), 0, -1))


def board_lines(board: Board) -> Iterator[str]:
    """Describe every run under way, then every mission; of finished ones only the last."""
    yield f"Missions: {overview(board)}."
    for run in board.runs:
        if run.running:
            yield f"{clean(run.name)}: {run_sentence(run)}"
            if run.jobs > 1:
                yield f"  {' · '.join(progress_words(progress_on(board, run)))}"
    over = [view for view in board.missions if view.over]
    for view in (*(view for view in board.missions if not view.over), *over[:_ENDED_SHOWN]):
        yield ""
        yield from _mission_lines(view)
    if len(over) > _ENDED_SHOWN:
        yield ""
        yield f"And {len(over) - _ENDED_SHOWN} more that ended before."
    yield from _merge_lines(board)


def _merge_lines(board: Board) -> Iterator[str]:
    """Describe each branch's merge queue: the one being merged, waiting ones, batches, and the last results."""
    records = {record.branch: record for record in merge_records([q.train for q in board.merges], board.missions)}
    queues = {queue.branch: queue for queue in board.merges if queue.at_it or queue.places}
    for branch in sorted({*records, *queues}):
        queue, record = queues.get(branch), records.get(branch)
        if not queue and not (record and record.queued):
            continue
        yield ""
        yield f"Merge queue of {clean(branch)}: {queue_words(queue)}."
        yield from _queue_lines(queue) if queue else ()
        for passage in reversed(record.passages[-_ENDED_SHOWN:] if record else ()):
            told = f"{passage.result.value} at {clock_time(passage.ended)}"
            words = clean(passage_words(passage))
            yield f"  {passage.result.sign} {passage.mission}: {told}{f' ({words})' if words else ''}"


def _queue_lines(queue: MergeSummary) -> Iterator[str]:
    if queue.at_it:
        yield f"  {MissionStatus.RUNNING.sign} {queue.at_it}: being merged"
    for place in queue.places:
        yield f"  {MissionStatus.WAITING.sign} {place.mission}: {place.words}, since {clock_time(place.came)}"
    for car in queue.cars:
        yield f"  {MissionStatus.DONE.sign if car.green else MissionStatus.RUNNING.sign} {car_words(car)}"


def _mission_lines(view: MissionSummary) -> Iterator[str]:
    yield f"{view.mission}: {clean(view.title)}"
    yield f"  {view.status.sign} {sentence(clean(view.sentence))}"
    if view.unverified:
        yield f"  {sentence(view.unverified)}"
    if view.running:
        yield f"  stage {view.stage} of {view.stages}{_attempt(view)}; {duration(int(view.busy_seconds))} in all"
    if view.waiting:
        yield f"  {_wait(view.waiting)}"
    if view.doing:
        yield f"  doing: {clean(view.doing[-1])}"
    last = next((attempt for attempt in reversed(view.attempts) if attempt.ended), None)
    if last:
        yield f"  last: {attempt_sentence(last)}"
    proof = proof_of(view)
    if proof.line:
        yield f"  {proof.label}: {clean(proof.line)}"
    if view.spent_with_parts.runs:
        yield f"  {agents_used(view.spent_with_parts)}"
    for phase, finding in view.open_findings:
        yield f"  finding: {phase}: {clean(finding_line(finding))}"
    for warning in view.warnings:
        yield f"  warning: {clean(warning)}"
    yield f"  next: {view.next}"


def attempt_sentence(attempt: Attempt) -> str:
    """Describe the claim and what was seen: `execute#1 claimed PASS, verdict REFUTED: the tests are red`."""
    claim = f" claimed {attempt.claimed}," if attempt.agent else ""
    judged = f"{attempt.key}{claim} verdict {attempt.verdict}"
    refuted = [clean(piece.observed) for piece in attempt.evidence if piece.standing is EvidenceStatus.REFUTED]
    if refuted:
        return f"{judged}{f', {LET_PASS}' if attempt.passed_despite_evidence else ''}: {'; '.join(refuted)}"
    seen = checked(attempt.evidence)
    return f"{judged} ({seen})" if seen else judged


def item_lines(entries: Iterable[OutlineEntry]) -> Iterator[str]:
    """Draw an outline: each item below its parent, with its state in words."""
    for entry in entries:
        indent = "  " * min(entry.depth, 8)
        if entry.item is None:
            yield f"{indent}{entry.title}: {entry.of}"
            continue
        item = entry.item
        known = [item.type] * (item.type != "task") + [f"{entry.done} of {entry.of} done"] * bool(entry.of)
        waits = entry.waits_for if entry.status is MissionStatus.WAITING else ()
        why = f" for {', '.join(map(clean, waits))}" if waits else ""
        why += f": {clean(item.will_ask)}" if item.will_ask else ""
        why = f": {clean(item.blocked.reason)}" if item.blocked else why
        yield f"{indent}{entry.key}: {clean(entry.title)} ({', '.join([*known, entry.status.words])}{why})"


# ---- from one look to the next


def changes(before: Board, after: Board) -> Iterator[str]:
    known = {view.mission: view for view in before.missions}
    for view in after.missions:
        yield from _changed(known.get(view.mission), view)
    runs = {run.stream: run for run in before.runs}
    for run in after.runs:
        if _phase_of_run(runs.get(run.stream)) != _phase_of_run(run):
            yield f"{clean(run.name)}: {run_sentence(run)}"


def _wait(waiting: Waiting) -> str:
    until = clock_time(waiting.at, waiting.seconds)
    return f"waiting for {waiting.waits_for} until {until}: {clean(waiting.failure.reason)}"


def _changed(before: MissionSummary | None, after: MissionSummary) -> Iterator[str]:
    told = {attempt.key for attempt in before.attempts if attempt.ended} if before else set()
    for attempt in after.attempts if before else ():
        if attempt.ended and attempt.key not in told:
            yield f"{after.mission}: {attempt_sentence(attempt)}"
    if after.waiting and (before is None or before.waiting != after.waiting):
        yield f"{after.mission}: {_wait(after.waiting)}"
    elif before is None or (before.sentence, before.attempt) != (after.sentence, after.attempt):
        yield f"{after.mission}: {clean(after.sentence)}{_attempt(after)}"
    if after.unverified and (before is None or before.unverified != after.unverified):
        yield f"{after.mission}: {after.unverified}"


def _attempt(view: MissionSummary) -> str:
    return f", attempt {view.attempt}" if view.running and view.attempt > 1 else ""


def _phase_of_run(run: RunSummary | None) -> tuple[MissionStatus, bool, str] | None:
    return (run.status, run.ended is not None, run.began) if run else None
