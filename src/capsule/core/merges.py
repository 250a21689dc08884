"""The results of merges: each mission's way through the merge queue of its branch, and the batches.

A queue's own stream has turns and batches; the mission's stream tells whether a turn ended in a merge. A mission that
did not wait writes nothing to the queue: its merge is only in its own stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from capsule.core.history import Attempt, MissionSummary
from capsule.core.merge_queue import merge_stream
from capsule.core.merge_train import BatchTest, MergeTrain, PastTurn
from capsule.core.stamps import seconds_between
from capsule.core.status import Tone


class MergeResult(StrEnum):
    MERGED = "merged"
    WENT_BACK = "went back"
    NOT_MERGED = "not merged"

    @property
    def sign(self) -> str:
        return _LOOKS[self][0]

    @property
    def tone(self) -> Tone:
        return _LOOKS[self][1]


_LOOKS = {
    MergeResult.MERGED: ("✓", Tone.GOOD),
    MergeResult.WENT_BACK: ("↺", Tone.WARN),
    MergeResult.NOT_MERGED: ("✗", Tone.BAD),
}


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """One mission's way through the merge queue."""

    mission: str
    came: str
    ended: str
    waited: float
    """Seconds until its turn."""
    seconds: float
    """How long its turn took."""
    result: MergeResult
    together: tuple[str, ...] = ()
    """The missions that entered the branch with the same commit."""
    why: str = ""
    """Why it went back, and what it conflicts with."""


class MergeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The merges into one branch, in the order in which they ended."""

    branch: str
    passages: tuple[Passage, ...] = ()
    tested: tuple[BatchTest, ...] = ()

    @property
    def batches(self) -> tuple[BatchTest, ...]:
        """Return the tests of several missions, of parts of a batch, and red ones; not a single green one."""
        return tuple(one for one in self.tested if one.missions[1:] or one.part or not one.green)

    @property
    def queued(self) -> bool:
        """Tell whether a mission waited, was tested with others or went back."""
        return bool(self.tested) or any(one.waited or one.why or one.together for one in self.passages)


def merge_records(trains: Iterable[MergeTrain], missions: Iterable[MissionSummary]) -> tuple[MergeRecord, ...]:
    """Describe every target branch of these missions."""
    by_branch = {train.branch: train for train in trains}
    views = {view.mission: view for view in missions if not view.parent}
    for view in views.values():
        if (view.merged or view.returns) and view.into not in by_branch:
            by_branch[view.into] = MergeTrain(stream=merge_stream(view.into))
    found = (_record(by_branch[branch], views) for branch in sorted(by_branch))
    return tuple(record for record in found if record.passages or record.tested)


def _record(train: MergeTrain, views: Mapping[str, MissionSummary]) -> MergeRecord:
    waited = [_waited(turn, views[turn.mission], train) for turn in train.turns if turn.mission in views]
    here = (view for view in views.values() if view.into == train.branch)
    at_once = [passage for view in here for passage in _at_once(view, train)]
    return MergeRecord(
        branch=train.branch,
        passages=tuple(sorted((*waited, *at_once), key=lambda one: (one.ended, one.came))),
        tested=tuple(batch for batch in train.tested if not views.keys().isdisjoint(batch.missions)),
    )


def _waited(turn: PastTurn, view: MissionSummary, train: MergeTrain) -> Passage:
    came = turn.came or turn.ended
    back = next((event.why for event in view.returns if came <= event.at <= turn.ended), "")
    batch = train.batch_of(turn.mission)
    together = batch.missions if batch and came <= batch.at <= turn.ended else ()
    merged = bool(together) or any(attempt.began <= turn.ended <= attempt.until for attempt in _merges(view))
    return Passage(
        mission=turn.mission,
        came=came,
        ended=turn.ended,
        waited=turn.waited,
        seconds=turn.seconds,
        result=MergeResult.WENT_BACK if back else MergeResult.MERGED if merged else MergeResult.NOT_MERGED,
        together=tuple(name for name in together if name != turn.mission),
        why=back,
    )


def _at_once(view: MissionSummary, train: MergeTrain) -> Iterator[Passage]:
    """Yield a mission's merges and returns that have no turn in the queue."""
    turns = [(turn.came or turn.ended, turn.ended) for turn in train.turns if turn.mission == view.mission]
    for attempt in _merges(view):
        if not any(attempt.began <= ended <= attempt.until for _, ended in turns):
            yield _passage(view.mission, attempt.began, attempt.until, MergeResult.MERGED)
    for event in view.returns:
        if not any(came <= event.at <= ended for came, ended in turns):
            began = [attempt.began for attempt in view.attempts if attempt.began <= event.at]
            yield _passage(view.mission, began[-1] if began else event.at, event.at, MergeResult.WENT_BACK, event.why)


def _passage(mission: str, came: str, ended: str, result: MergeResult, why: str = "") -> Passage:
    seconds = seconds_between(came, ended)
    return Passage(mission=mission, came=came, ended=ended, waited=0.0, seconds=seconds, result=result, why=why)


def _merges(view: MissionSummary) -> list[Attempt]:
    """Return the attempts that merged its work: one, unless a person undid the merge."""
    if not view.merged:
        return []
    return [attempt for attempt in view.attempts if attempt.ended and "merged" in attempt.ended.outcome.facts]
