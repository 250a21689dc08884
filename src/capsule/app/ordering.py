"""The order in which items are taken, from their tracker and missions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from capsule.app.missions import running, states_of
from capsule.core.decide import Move
from capsule.core.event import CAMPAIGN
from capsule.core.item import Item
from capsule.core.schedule import QueuePosition, queue, within_reach
from capsule.core.state import MissionState
from capsule.engine.job import only_to_be_closed
from capsule.project import Project
from capsule.rules import guardrails_of


def queued(
    project: Project,
    states: Mapping[str, MissionState],
    items: Sequence[Item],
    left_alone: Mapping[str, str] | None = None,
    *,
    resumed: Collection[str] = (),
    triage_first: bool | None = None,
) -> list[QueuePosition]:
    """Order these items as a queue. `resumed` are halted missions, and those that a person began, to be continued."""
    guardrails = guardrails_of(project.settings)
    first = project.settings.execution.triage_first if triage_first is None else triage_first
    if project.tracker.traits.authoritative:
        interrupted = {n for n, state in states.items() if state.begun and not state.halt and n not in resumed}
        return queue(
            items,
            under_way=interrupted,
            halted=_in_review(states),
            left_alone=left_alone,
            guardrails=guardrails,
            triage_first=first,
        )
    standing = {name: words for name, state in states.items() if (words := _how_it_goes_on(state))}
    halted = _in_review(states)
    for name, state in states.items():
        if state.halt and state.under_way and name not in resumed:
            word = "needs you" if state.halt.move is Move.PARK else "failed"
            why = f"{state.halt.phase}: {state.halt.reason} (`capsule show {name}` names the way on)"
            halted[name] = f"its mission {word} at {why}"
    return queue(
        items,
        under_way={name for name, state in states.items() if state.under_way and not state.halt},
        halted=halted,
        left_alone=left_alone,
        ours={*standing, *resumed},
        standing=standing,
        guardrails=guardrails,
        by_priority=True,
    )


def _in_review(states: Mapping[str, MissionState]) -> dict[str, str]:
    """Return the missions whose request is not merged yet, with its address in words."""
    found = ((name, state.request) for name, state in states.items() if state.in_review)
    return {name: f"waits for review: {request.url}" for name, request in found if request}


def still_to_come(project: Project, stream: str, named: Sequence[str] = ()) -> list[QueuePosition]:
    """Return the items that a run will still take up, in order; `named` are those it was given."""
    tracker = project.tracker
    items = tracker.everything()
    ids = {item.id for item in items}
    only = {*named} or None
    if stream.startswith(CAMPAIGN):
        only = {item.id for item in tracker.under(stream.removeprefix(CAMPAIGN))}
    busy = running(project, ids)
    states = states_of(project, ids)
    places = queued(project, states, items, dict.fromkeys(busy, "it is running"), resumed=named)
    reach = within_reach(places, busy, only)
    return [place for place in places if place.item.id in reach]


def _how_it_goes_on(state: MissionState) -> str:
    """Describe the next step of a mission; '' if it is finished."""
    if only_to_be_closed(state) or (state.under_way and "merged" in state.facts):
        return "merged, still to be closed"
    return f"goes on at {state.to_do[0]}" if state.under_way else ""
