"""The order in which items are taken, by what their tracker and their missions say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from capsule.core.decide import Move
from capsule.core.item import Item
from capsule.core.schedule import QueuePosition, queue
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
    """Order these items as a queue. `resumed` are halted missions, and those that a person began, which are to go
    on."""
    guardrails = guardrails_of(project.settings)
    first = project.settings.execution.triage_first if triage_first is None else triage_first
    if project.tracker.traits.authoritative:
        interrupted = {n for n, state in states.items() if state.begun and not state.halt and n not in resumed}
        return queue(items, under_way=interrupted, left_alone=left_alone, guardrails=guardrails, triage_first=first)
    standing = {name: words for name, state in states.items() if (words := _how_it_goes_on(state))}
    halted = {}
    for name, state in states.items():
        if state.halt and state.under_way and name not in resumed:
            word = "needs you" if state.halt.move is Move.PARK else "failed"
            why = f"{state.halt.phase}: {state.halt.reason} (`capsule run {name}` resumes it)"
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


def _how_it_goes_on(state: MissionState) -> str:
    """Say how a mission goes on; '' where it is finished."""
    if only_to_be_closed(state) or (state.under_way and "merged" in state.facts):
        return "merged, still to be closed"
    return f"goes on at {state.to_do[0]}" if state.under_way else ""
