"""Run an epic or a feature as a whole: choose its items, brief each on the others, close finished parents.

A campaign has no state of its own: tracker and journal are read again after every item, so a killed campaign continues
where it was, and items that are added or closed meanwhile count. A parent is closed if the tracker has all its items
closed, and their merges are in their branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capsule.core.campaign import FinishedWork, account, closing_words, is_container, progress, to_close, to_do
from capsule.core.decide import PROGRESS
from capsule.core.errors import CapsuleError
from capsule.core.event import Advanced, Event, ParentClosed, StepEnded, Warned
from capsule.core.item import Item, Status, below
from capsule.core.schedule import QueuePosition
from capsule.core.signal import Verdict
from capsule.core.state import MissionState, replay
from capsule.core.workflow import Role
from capsule.engine.job import load_state, note, only_to_be_archived
from capsule.services import Services


class Campaign:
    """All items that one item holds, as a group for a run."""

    def __init__(self, root: str, services: Services, stream: str) -> None:
        self.root, self._services, self._stream = root, services, stream
        self._read: dict[str, Item] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._warned: set[str] = set()
        self._deeds: dict[str, FinishedWork] = {}
        self._merged: set[str] = set()
        self._archived: set[str] = set()

    def wanted(self) -> set[str]:
        """Name the items to work on, as the tracker has them now."""
        return {item.id for item in to_do(self._members())} | {
            place.item.id for place in self.interrupted_after_close()
        }

    def interrupted_after_close(self) -> list[QueuePosition]:
        """Return missions that were killed between close and archive of their item: no queue lists them."""
        closed = [each for each in self._members() if each.status is Status.DONE and each.id not in self._archived]
        found = [each for each in closed if only_to_be_archived(load_state(self._services, each.id))]
        self._archived |= {each.id for each in closed} - {each.id for each in found}
        return [QueuePosition(each, actionable=True, why="merged, still to be archived") for each in found]

    def settle(self) -> list[Advanced]:
        """Read all progress from the tracker, report what is new, and close what can be closed."""
        self._read = {}
        at = self._services.clock.now()
        found = [
            Advanced(at=at, item=row.item.id, title=row.item.title, done=row.done, of=row.of)
            for row in progress(self._family[self.root], self._members())
        ]
        for event in found:
            seen = self._counted.get(event.item)
            if seen != (event.done, event.of) and (seen is not None or event.item == self.root):
                note(self._services, self._stream, event)
        self._counted = {event.item: (event.done, event.of) for event in found}
        self._close_parents()
        return found

    @property
    def done(self) -> bool:
        return self._family[self.root].status is Status.DONE

    def left_over(self, places: Sequence[QueuePosition]) -> dict[str, str]:
        """Give the reason for each item that was not tried."""
        why = {place.item.id: "not started" if place.actionable else place.why for place in places}
        members = self._members()
        held = {item.id: item for item in members if item.status is not Status.DONE}
        empty = {name: "it is empty" for name, item in held.items() if is_container(item) and not item.holds}
        root = self._family[self.root]
        unclosed = {item.id: "everything in it is done, but it is not closed" for item in to_close(root, members)}
        left = {name: empty.get(name) or why.get(name, "") for name in held if name in empty or not held[name].holds}
        return left | unclosed

    # ---- what has been done

    def earlier(self, item: Item) -> str:
        """Describe the finished missions of this campaign to the next one."""
        members = self._members()
        done = [each for each in members if each.status is Status.DONE and not is_container(each)]
        found = {each.id for each in done if self._finished_work(each)}
        # As they were found, one after the other: two that ended in the same second have the same stamp.
        deeds = [deed for name, deed in self._deeds.items() if name in found]
        return self._services.redact(account(item, deeds, self._family))

    def _finished_work(self, item: Item) -> FinishedWork | None:
        if item.id not in self._deeds:
            events = [event for _, event in self._services.journal.events(item.id)]
            state = replay(events)
            if state.finished and "merged" in state.facts:
                self._deeds[item.id] = FinishedWork(
                    item, _what_was_done(state, events), state.facts["merged"], events[-1].at
                )
        return self._deeds.get(item.id)

    # ---- what can be closed

    def _close_parents(self) -> None:
        root, members = self._family[self.root], self._members()
        refused = {place.item.id for place in self.interrupted_after_close()}
        known = {each.id: each for each in members}
        for item in to_close(root, members):
            held = below(item.id, known)
            if not refused.isdisjoint(each.id for each in held) or not self._closed(item, held):
                refused.add(item.id)

    def _closed(self, item: Item, held: Sequence[Item]) -> bool:
        services, reason = self._services, closing_words(item, held)
        objection = next(filter(None, map(self._why_not_merged, (item, *held))), "")
        if objection:
            self._warn(f"{item.id} is not closed: {objection}")
            return False
        try:
            services.tracker.close(item.id, reason)
        except CapsuleError as refusal:
            self._warn(f"{item.id} could not be closed in the tracker: {refusal.message}")
            return False
        self._read = {}
        closed = ParentClosed(at=services.clock.now(), item=item.id, title=item.title, reason=reason)
        note(services, self._stream, closed)
        return True

    def _why_not_merged(self, item: Item) -> str:
        """Say why a closed item is not done: its work is not in its branch."""
        if item.id in self._merged:
            return ""
        state = load_state(self._services, item.id)
        if state.under_way:
            return f"the mission of {item.id} is not finished (capsule run {item.id}, or capsule abort {item.id})"
        merged = state.facts.get("merged", "") if state.finished else ""
        if merged and not self._services.trunk(state.into).holds(merged):
            return f"the merge of {item.id}, {merged[:12]}, is not in {state.into}"
        self._merged.add(item.id)
        return ""

    def _warn(self, text: str) -> None:
        """Warn once: the same close is tried again after every item."""
        if text not in self._warned:
            self._warned.add(text)
            note(self._services, self._stream, Warned(at=self._services.clock.now(), text=text))

    def _members(self) -> Sequence[Item]:
        return below(self.root, self._family)

    @property
    def _family(self) -> Mapping[str, Item]:
        """Return all items, read once a round and after each close, as asking the tracker may be slow."""
        if not self._read:
            self._read = {item.id: item for item in self._services.tracker.under("")}
            if self.root not in self._read:  # deleted meanwhile
                self._read[self.root] = self._services.tracker.item(self.root)
        return self._read


def _what_was_done(state: MissionState, events: Sequence[Event]) -> str:
    """Return the summary of the last phase that built something, else of the last review."""
    told: Mapping[bool, str] = {
        state.workflow.phase(event.phase).role is Role.REVIEW: event.outcome.signal.summary
        for event in events
        if isinstance(event, StepEnded) and _tells_of_work(state, event)
    }
    return told.get(False) or told.get(True) or ""


def _tells_of_work(state: MissionState, event: StepEnded) -> bool:
    passed = event.decision.verdict in (Verdict.PASS, Verdict.MORE) and event.decision.move in PROGRESS
    known = event.phase in state.workflow.names() and state.workflow.phase(event.phase).role is not Role.ACTION
    return passed and known and bool(event.outcome.signal.summary)
