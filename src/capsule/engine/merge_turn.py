"""Wait for the turn to merge: one mission at a time for each branch, first come first served.

If no mission waits, the turn begins at once and nothing is written. Otherwise the mission queues up, and waits until
those before it have had their turn, are gone or are suspended. The one at its turn holds the claim of the queue's
stream until its branch has moved, so each is tested on the main that it enters. No mission waits for another one's
claim.

If several may be tested at a time, each also builds its merge on top of those before it while it waits, and the first
of a car tests that car. None of that counts unless the branch then holds exactly the commit it was built on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from typing import Protocol

from msgspec import Struct

from capsule.adapters import Candidate
from capsule.core.errors import Interrupted, LockHeld
from capsule.core.event import Batched, Event, HandedIn, Proposed, Queued, Served, Stacked, is_mission
from capsule.core.merge_queue import MergeQueue, cars, merge_queue
from capsule.core.stream_cache import CachedState
from capsule.engine.job import Job, note
from capsule.services import Services

_LOOK_AGAIN = 0.1
"""Seconds between polls of the first waiting missions."""
_LOOK_SELDOM = 2.0
"""Seconds between polls of all others."""
_LOOK_FOR_SUSPENDED = 2.0
"""Seconds between checks of whether those before it are suspended."""


class Work(Protocol):
    """A mission's work on its way to the branch (engine/merging.py)."""

    gate: str
    """Identifies how its merge is tested."""
    archived_at: str
    """The time at which its merges remove the item from its tracker; '' if they do not."""

    def propose(self, onto: str = "") -> Candidate:
        """Build its merge on the branch, or on a possible future commit of it."""

    def is_green(self, candidate: Candidate, along: Sequence[str] = ()) -> bool:
        """Run the tests on a merge, unless the result is known; it may contain other missions."""

    def tree(self, commit: str = "") -> str:
        """Return the tree of a commit, or of the branch."""

    def holds(self, commit: str) -> bool:
        """Tell whether the branch has this commit."""


class Turn(Struct, frozen=True):
    """The turn of a mission to merge, or the result if another mission merged it."""

    job: Job
    queue: CachedState[MergeQueue]
    served: bool = False
    """It was merged together with an earlier one."""

    @property
    def stream(self) -> str:
        return self.queue.stream

    def note(self, event: Event) -> None:
        self.job.services.journal.note(self.stream, event)

    def line(self, queue: MergeQueue) -> list[str]:
        """Name the waiting missions in order, without those that have no process any more."""
        journal = self.job.services.journal
        epochs = journal.epochs() if queue.waiting else {}
        return [name for name, one in queue.waiting.items() if epochs.get(name) == one.epoch and journal.is_held(name)]

    def car(self, candidate: Candidate, work: Work) -> Sequence[Stacked]:
        """Return the merges that may be tested together, this one first."""
        limits, queue = self.job.services.limits, self.queue.now()
        under = work.tree(candidate.onto)
        chain = [*queue.chain(self.line(queue), under)]
        ours = chain and (chain[0].mission, chain[0].tree) == (self.job.mission, candidate.tree)
        # under an equal tree may lie a merge that main has in another version: it would come along a second time
        if not ours or not work.holds(chain[0].onto):
            chain = [stacked(self.job, candidate, work, under)]
            if limits.stacks_merges:  # others may build on it, and it would have to be told from their batch
                note(self.job.services, self.job.mission, proposed(self.job, candidate, work), (self.stream, chain[0]))
        return cars(chain, min(queue.car, limits.batch))[0]


def stacked(job: Job, candidate: Candidate, work: Work, under: str) -> Stacked:
    """Return the event for a merge that was built on those before it; without a commit if it conflicts."""
    return Stacked(
        at=job.services.clock.now(),
        mission=job.mission,
        commit="" if candidate.conflicts else candidate.commit,
        tree=candidate.tree,
        onto=candidate.onto,
        under=under,
        gate=work.gate,
    )


def proposed(job: Job, candidate: Candidate, work: Work) -> Proposed:
    """Return the event by which a mission finds its merge on the branch."""
    now, at = job.services.clock.now(), work.archived_at
    return Proposed(at=now, commit=candidate.commit, tree=candidate.tree, onto=candidate.onto, archived_at=at)


@contextmanager
def merge_turn(job: Job, work: Work) -> Iterator[Turn]:
    """Wait for the mission's turn in the merge queue of its branch, and hold the queue for the block."""
    services, limits = job.services, job.services.limits
    turn = Turn(job, merge_queue(services.journal.events, job.state.into))
    with ExitStack() as held:
        at_once = not limits.stacks_merges and not turn.line(turn.queue.now())
        in_line = not (at_once and _try_claim(held, turn.stream, services))
        if in_line:
            _hand_in(turn)
            turn = _Waiting(turn, work).wait_for_turn(held)
        began = services.clock.seconds()
        try:
            yield turn
        finally:
            if in_line and not turn.served:
                seconds = round(services.clock.seconds() - began, 3)
                turn.note(Served(at=services.clock.now(), mission=job.mission, key=job.step.key, seconds=seconds))


def _try_claim(held: ExitStack, stream: str, services: Services) -> bool:
    with suppress(LockHeld):
        held.enter_context(services.journal.claim(stream))
        return True
    return False


def _hand_in(turn: Turn) -> None:
    job, services = turn.job, turn.job.services
    now, line, journal = services.clock.now(), turn.line(turn.queue.now()), services.journal
    merging = journal.holder(turn.stream)
    # the one that merges now is in the line, unless it did not have to wait
    unlisted = merging is not None and all(journal.holder(name) != merging for name in line)
    ahead, epoch = len(line) + unlisted, journal.epochs()[job.mission]
    handed_in = HandedIn(at=now, mission=job.mission, key=job.step.key, epoch=epoch)
    note(services, job.mission, Queued(at=now, branch=job.state.into, ahead=ahead), (turn.stream, handed_in))


class _Waiting:
    """A mission that waits in the line: it polls, and prepares its merge meanwhile."""

    def __init__(self, turn: Turn, work: Work) -> None:
        self._turn, self._work, self._job = turn, work, turn.job
        self._limits = turn.job.services.limits
        self._tested = ""
        self._told = ""
        self._looked = -inf
        self._passes = False
        """All before it are suspended, and none of them has the turn."""
        self._held_up = ""
        """Who has the turn and is suspended, and what lets that mission go on."""

    def wait_for_turn(self, held: ExitStack) -> Turn:
        """Wait; read the journal only after it has changed."""
        job, services, version = self._job, self._job.services, -1
        while True:
            if (now := services.journal.version()) != version:
                version, queue = now, self._turn.queue.now()
            line = self._turn.line(queue)
            ahead = line.index(job.mission) if job.mission in line else 0
            if job.mission not in queue.waiting:  # only a mission that merges it along takes it out of the line
                return Turn(job, self._turn.queue, served=True)
            self._look_for_suspended(line[:ahead])
            if (not ahead or self._passes) and _try_claim(held, self._turn.stream, services):
                return self._turn
            if self._prepare(queue, line, ahead):
                version = -1  # our own events do not change it
                continue
            place = queue.place_in_words(max(ahead, 1))
            self._tell(f"waits to be merged into {job.state.into}: {place}{self._held_up}")
            far = ahead - self._limits.gates * self._limits.batch
            if not services.clock.wait(min(_LOOK_AGAIN * max(1, far), _LOOK_SELDOM)):
                raise Interrupted(f"Stopped while it waited to be merged into {job.state.into}; nothing is lost.")

    def _look_for_suspended(self, before: Sequence[str]) -> None:
        """See now and then who cannot go on by itself: who has the turn keeps it, who waits is passed over."""
        journal, now = self._job.services.journal, self._job.services.clock.seconds()
        if now - self._looked < _LOOK_FOR_SUSPENDED:
            return
        self._looked, self._held_up = now, ""
        found = journal.suspended(self._turn.stream)
        if found:
            pid, way_on = found
            names = (name for name in journal.epochs() if is_mission(name) and journal.holder(name) == pid)
            who = next(names, "another mission")
            self._held_up = f"; {who} has the turn and is suspended: continue it with {way_on}"
        self._passes = not found and all(journal.suspended(name) for name in before)

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._job.services.observer.activity(self._job.mission, words)
            self._told = words

    def _prepare(self, queue: MergeQueue, line: Sequence[str], ahead: int) -> bool:
        """Build the merge on those before it, or test its batch if it is the first; return whether it did either."""
        size = min(queue.car, self._limits.batch)
        reach = self._limits.gates * size
        if not ahead or not self._limits.stacks_merges or ahead >= reach + self._limits.batch:
            return False
        tree = self._work.tree()
        chain = [*queue.chain(line, tree)]
        before = [one for one in chain if one.mission in line[:ahead]]
        conflicting = {name for name, one in queue.stacked.items() if not one.commit}
        settled = {one.mission for one in chain} | conflicting
        if {*line[:ahead]} <= settled and not self._is_up_to_date(before, tree, queue):
            self._stack(before)
            return True
        return self._test_car(queue, line, cars(chain, size))

    def _is_up_to_date(self, before: Sequence[Stacked], tree: str, queue: MergeQueue) -> bool:
        mine = queue.stacked.get(self._job.mission)
        if not mine or not before:
            return mine is not None and mine.under == tree
        return mine.under == before[-1].tree and mine.onto == before[-1].commit

    def _stack(self, before: Sequence[Stacked]) -> None:
        job, services = self._job, self._job.services
        candidate = self._work.propose(before[-1].commit if before else "")
        one = stacked(job, candidate, self._work, self._work.tree(candidate.onto))
        note(services, job.mission, proposed(job, candidate, self._work), (self._turn.stream, one))

    def _test_car(self, queue: MergeQueue, line: Sequence[str], train: Sequence[Sequence[Stacked]]) -> bool:
        """Test a batch before its turn, if several may be tested at a time."""
        job, services = self._job, self._job.services
        car = next((each for each in train[1 : self._limits.gates] if each[0].mission == job.mission), ())
        full = car and (len(car) == min(queue.car, self._limits.batch) or car[-1].mission == line[-1])
        if not full or (self._work.gate, car[-1].tree) in queue.green or self._tested == car[-1].tree:
            return False
        self._tested = car[-1].tree
        began = services.clock.seconds()
        names = tuple(one.mission for one in car)
        self._tell(f"tested with {', '.join(names[1:])}" if names[1:] else "tested before its turn")
        green = self._work.is_green(Candidate(car[-1].commit, car[-1].tree, car[0].onto), names[1:])
        seconds = round(services.clock.seconds() - began, 3)
        now, gate = services.clock.now(), self._work.gate
        batched = Batched(at=now, missions=names, tree=car[-1].tree, green=green, gate=gate, seconds=seconds)
        queued = Queued(at=batched.at, branch=job.state.into, ahead=line.index(job.mission))
        note(services, job.mission, queued, (self._turn.stream, batched))
        return True
