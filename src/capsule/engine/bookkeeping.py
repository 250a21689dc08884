"""Mission and tracker kept in agreement, where the tracker keeps its state in the project.

The tracker says where an item stands, the journal how it got there. After a step the tracker is told (`_record`);
before the next one it is asked (`_agree`). Where the two differ a human has moved the item, and the tracker wins. Not
while a step runs: then it may have been the agent, so what only the step's outcome may change is put back and reported.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from capsule.core.assignment import Assign
from capsule.core.decide import SETBACKS
from capsule.core.errors import UnknownItem
from capsule.core.event import Abandoned, MovedByHand, Recorded, StepEnded, Warned
from capsule.core.item import Item, stands_at
from capsule.core.ledger import Ending, assignments_of, guarded, subject
from capsule.core.state import MissionState
from capsule.doors import BookEntry, Books
from capsule.engine.actions import ARCHIVED_AT
from capsule.engine.hand_edits import approved_with_edits, edited_by_hand
from capsule.engine.job import Job, books_of, note, place_of
from capsule.world import World


def told(job: Job, ended: StepEnded) -> StepEnded:
    """The outcome, with what the tracker is to be told of it."""
    state, books = job.state, job.world.books
    ending = Ending(
        state.workflow, job.phase, job.step.key, state.item, ended.outcome.signal, ended.decision, state.closed_as
    )
    assignments = () if state.parent else assignments_of(ending, state.facts.get(ARCHIVED_AT, ended.at))
    if books is None:  # nobody to tell, but the mission has to know where its item stands
        assignments = tuple(each for each in assignments if isinstance(each, Assign))
    message = subject(ending) if books and assignments else ""
    return msgspec.structs.replace(ended, assignments=assignments, message=message)


def set_right(state: MissionState, world: World) -> bool:
    """Tell the tracker what it has not heard, else ask it; whether there was anything to write down."""
    books = books_of(state, world)
    if books is None:
        return False
    if state.unrecorded:
        _record(state, state.unrecorded, world, books)
        return True
    return state.under_way and _agree(state, world, books)


def _record(state: MissionState, ended: StepEnded, world: World, books: Books) -> None:
    """One commit holds the step: state, documents, code, worklog and follow-ups together."""
    place, held = place_of(state, world), ended.outcome.checkpoint
    work = place.hand_over(held, ended.message, ended.key) if held and ended.decision.keeps_the_work else None
    entry = BookEntry(
        key=f"{state.mission}/{ended.key}",
        message=ended.message,
        assignments=ended.assignments,
        branch=state.into,
        since=state.base,
        work=work,
    )
    booked = books.write(entry)
    for warning in booked.warnings:
        note(world, state.mission, Warned(at=world.clock.now(), text=warning))
    event = Recorded(
        at=world.clock.now(),
        key=ended.key,
        commit=booked.commit,
        checkpoint=place.settled(booked.commit) if held and ended.decision.move not in SETBACKS else None,
        follow_ups=booked.added,
    )
    note(world, state.mission, event)


def _agree(state: MissionState, world: World, books: Books) -> bool:
    try:
        found = world.tracker.item(state.item.id)
    except UnknownItem:
        if ARCHIVED_AT in state.facts:  # it left with the merge
            return False
        note(world, state.mission, Abandoned(at=world.clock.now(), how="archived by hand"))
        return True
    if state.begun and _put_back(state.item, found, books):
        words = f"{state.item.id} was changed in the tracker while {state.begun.phase} ran; put back"
        note(world, state.mission, Warned(at=world.clock.now(), text=words))
        found = world.tracker.item(state.item.id)
    if _same(state.item, found):
        return False
    now = edited_by_hand(state, world)
    moved = MovedByHand(
        at=world.clock.now(),
        what="item",
        expected=stands_at(state.item),
        found=stands_at(found) if stands_at(found) != stands_at(state.item) else "edited",
        item=found,
        checkpoint=now,
        approved=approved_with_edits(state, now, world) if now else {},
    )
    note(world, state.mission, moved)
    return True


def tracker_files(job: Job) -> Mapping[str, bytes]:
    """The tracker's files before an agent is let loose."""
    return job.world.books.files() if job.world.books else {}


def look_after(job: Job, before: Mapping[str, bytes]) -> tuple[str, ...]:
    """What only the outcome may change is as it was; what was changed is said."""
    return job.world.books.look_after(before) if job.world.books else ()


def _put_back(known: Item, found: Item, books: Books) -> bool:
    if guarded(known) == guarded(found):
        return False
    books.write(BookEntry(key="", message="", assignments=(Assign(known.id, guarded(known)),)), commit=False)
    return True


def _same(one: Item, other: Item) -> bool:
    return guarded(one) == guarded(other) and (one.title, one.description) == (other.title, other.description)
