"""The states of a mission, in one vocabulary for every screen, report and message.

`MissionStatus` is the word a person reads, derived from the events and the lock. `Condition` is the finer word behind
it, which `--json` prints as `status`. 004's statuses of an item are `core.item.Status`; they are stored, these are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Tone(StrEnum):
    """The meaning of a colour; each screen has its own shade, always with a sign and a word."""

    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    LIVE = "live"
    QUIET = "quiet"


class MissionStatus(StrEnum):
    READY = "ready"
    """Not begun, or released for the next run."""
    RUNNING = "running"
    WAITING = "waiting"
    """For another item, a limit, a slot, a review elsewhere."""
    NEEDS_YOU = "needs_you"
    """A question, a decision, an approval."""
    FAILED = "failed"
    """Retries are gone, a conflict, a red gate."""
    STOPPED = "stopped"
    """By Ctrl-C, a crash or `abort`; it can be resumed."""
    DONE = "done"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")

    @property
    def sign(self) -> str:
        return _LOOKS[self][0]

    @property
    def tone(self) -> Tone:
        return _LOOKS[self][1]


_LOOKS = {
    MissionStatus.READY: ("○", Tone.QUIET),
    MissionStatus.RUNNING: ("▶", Tone.LIVE),
    MissionStatus.WAITING: ("◔", Tone.QUIET),
    MissionStatus.NEEDS_YOU: ("■", Tone.WARN),
    MissionStatus.FAILED: ("✗", Tone.BAD),
    MissionStatus.STOPPED: ("‖", Tone.QUIET),
    MissionStatus.DONE: ("✓", Tone.GOOD),
}


class Condition(StrEnum):
    """The finer word, for programs."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"
    PARKED = "parked"
    STOPPED = "stopped"
    MERGED = "merged"
    DONE = "done"
    CLOSED = "closed"
    """It was not needed."""
    ABANDONED = "abandoned"


DELIVERED = (Condition.MERGED, Condition.DONE)
ENDED = (*DELIVERED, Condition.CLOSED, Condition.ABANDONED)
UNFINISHED = (Condition.RUNNING, Condition.INTERRUPTED, Condition.WAITING)


def count_statuses(statuses: Mapping[MissionStatus, int]) -> str:
    """Return `2 running, 1 needs you`, in the order of the vocabulary; '' for nothing."""
    counts = {status: statuses.get(status, 0) for status in MissionStatus}
    return ", ".join(
        f"{number:,} {'need you' if status is MissionStatus.NEEDS_YOU and number > 1 else status.words}"
        for status, number in counts.items()
        if number
    )
