"""Work that agents noticed and that is not their item's: put into the tracker, where the settings allow it."""

from __future__ import annotations

from collections.abc import Iterable

from capsule.core.errors import CapsuleError, Refused
from capsule.core.event import Discovered, Event, MissionStarted, StepEnded
from capsule.core.item import NewItem
from capsule.core.ledger import MOST_FOLLOW_UPS
from capsule.core.signal import FollowUp
from capsule.core.text import one_line
from capsule.engine.job import Job, claims_its_item

_LONGEST_TITLE, _LONGEST_CONTEXT = 200, 4000


def file_discovered(job: Job) -> tuple[str, ...]:
    """Each is an item of its own, nobody's child, so that what is under way comes to an end. Safe to repeat.

    What cannot be put there is a warning: it is in the mission's papers all the same.
    """
    state, services = job.state, job.services
    if not state.policy.file_discovered or not claims_its_item(state, services):
        return ()
    found = noticed(event for _, event in services.journal.events(state.mission))
    filed: dict[str, str] = {}
    fault = ""
    for reference, follow_up in list(found.items())[:MOST_FOLLOW_UPS]:
        title = services.redact(one_line(follow_up.title))[:_LONGEST_TITLE].rstrip()
        new = NewItem(
            title=title,
            description=services.redact(follow_up.context)[:_LONGEST_CONTEXT],
            found_in=state.item.id,
            reference=f"capsule/{state.mission}/{reference}",
        )
        try:
            filed[services.tracker.add(new)] = title
        except Refused as refused:
            fault = f": {refused.message}"
        except CapsuleError as trouble:  # whoever hangs is not asked for the others
            fault = f": {trouble.message}"
            break
    if filed:
        job.note(Discovered(at=services.clock.now(), items=filed))
    left = len(found) - len(filed)
    what = f"{left} follow-up{'s were' if left > 1 else ' was'} not put into the tracker"
    return (f"{what}{fault or f', after the first {MOST_FOLLOW_UPS}'}",) if left else ()


def noticed(events: Iterable[Event]) -> dict[str, FollowUp]:
    """What a mission's agents reported since it was started, each thing once, by step and number."""
    found: dict[str, FollowUp] = {}
    titles: set[str] = set()
    for event in events:
        if isinstance(event, MissionStarted):
            found, titles = {}, set()
        if not isinstance(event, StepEnded):
            continue
        for number, follow_up in enumerate(event.outcome.signal.follow_ups):
            title = one_line(follow_up.title).casefold()
            if title.strip() and title not in titles:
                titles.add(title)
                found[f"{event.key}/{number}"] = follow_up
    return found
