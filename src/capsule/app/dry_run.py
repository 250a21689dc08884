"""Describe what a run would do: the order, the cost, prompts, commands and gate. Nothing is changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from msgspec.structs import replace

from capsule.app.missions import mission_names, states_of
from capsule.app.ordering import queued
from capsule.app.planning import MissionPlan, RunRequest, expected_state, plan_mission
from capsule.app.queue_plan import CampaignPlan, cap_of, refuse_container, refuse_whole_queue, under_way_in
from capsule.catalog import Catalog
from capsule.core.budget import cost_so_far
from capsule.core.campaign import to_do
from capsule.core.item import Item, with_values
from capsule.core.ledger import values_asking_person
from capsule.core.schedule import QueuePosition, choose, in_order, within_reach
from capsule.core.state import MissionState, Step, agent_for
from capsule.core.text import count
from capsule.core.workflow import Workflow
from capsule.engine.brief import brief, check_prompts
from capsule.engine.job import Job
from capsule.project import Project
from capsule.reports.live import FanOut
from capsule.rules import choose_workflow, guardrails_of, words_at
from capsule.services import Services
from capsule.wiring import open_services

_MOST_READ = 50
"""How many earlier missions are read: a dry run answers at once, even with a long journal."""
_MOST_SHOWN = 100

Queued = Callable[[Sequence[Item]], Sequence[QueuePosition]]


def preview(plan: MissionPlan, model: str) -> Iterator[str]:
    """Describe the price, the prompts, the commands and the gate of one mission."""
    price = _cost_so_far(plan.project, {plan.order.workflow.name})
    yield from _mission(plan, model, price)
    yield _end(price)


def preview_queue(project: Project, request: RunRequest) -> Iterator[str]:
    """Describe the order in which items would be taken, its cost, and the first agent's prompt."""
    refuse_whole_queue(request)
    only, tracker = request.items, project.tracker
    for item_id in only:
        refuse_container(tracker.item(item_id))
    items = tracker.everything()
    states = states_of(project, [item.id for item in items])
    first, asked = request.triage_first or None, dict[str, str]()
    would_run = _as_asked(project, asked, partial(queued, project, states, resumed=only, triage_first=first))
    places = would_run(items)
    for place in places:
        if not only or place.item.id in only:
            yield f"{place.item.id}  {'would run' if place.actionable else _not_now(place, asked)}: {place.why}"
    item = choose(places, only or None)
    if item is None:
        yield _nothing(places, asked, only)
        return
    reach = within_reach(places, (), only or None)
    taken = islice((place.item for place in places if place.item.id in reach), _MOST_SHOWN)
    yield (total := _in_all(project, request, [*taken], states))
    yield ""
    yield from _mission(plan_mission(project, item.id, request), request.model)
    yield _end(total)


def preview_campaign(plan: CampaignPlan, project: Project, request: RunRequest) -> Iterator[str]:
    """Describe the order in which everything would be done, its cost, and the first agent's prompt."""
    items = project.tracker.everything()
    states = states_of(project, [item.id for item in items])
    wanted = {item.id for item in to_do(plan.members)}
    asked = dict[str, str]()
    would_run = _as_asked(project, asked, partial(queued, project, states, resumed=under_way_in(states)))
    found = in_order(items, wanted, would_run, _MOST_SHOWN)
    for number, place in enumerate(found, 1):
        word = f"{number}. would run" if place.actionable else _not_now(place, asked)
        yield f"{place.item.id}  {word}: {place.why}"
    if more := len(wanted) - len(found):
        yield f"... and {more} more"
    if not found or not found[0].actionable:
        yield _nothing(found, asked, ())
        return
    yield (total := _in_all(project, request, [place.item for place in found if place.actionable], states))
    yield ""
    first = plan_mission(project, found[0].item.id, request, start=f"refs/heads/{plan.into}")
    yield from _mission(first, request.model)
    yield _end(total)


# ---- questions for a person instead of an agent


def _as_asked(project: Project, asked: dict[str, str], queued: Queued) -> Queued:
    """Return the queue for agents: items that would be blocked first carry the question.

    Each such item is put into `asked`, with the reason.
    """
    guardrails = guardrails_of(project.settings)

    def for_agents(place: QueuePosition) -> QueuePosition:
        values = values_asking_person(place.item, guardrails) if place.actionable else {}
        question = with_values(place.item, values).blocked if values else None
        if question is None:
            return place
        asked[place.item.id] = question.reason
        return replace(place, actionable=False, why=question.reason)

    return lambda items: [*map(for_agents, queued(items))]


def _not_now(place: QueuePosition, asked: Mapping[str, str]) -> str:
    return "needs you" if asked.get(place.item.id) == place.why else "not now"


def _nothing(places: Sequence[QueuePosition], asked: Mapping[str, str], only: Collection[str]) -> str:
    """Describe a run that would do nothing, or only ask."""
    asks = any(_not_now(place, asked) == "needs you" for place in places if not only or place.item.id in only)
    return "No agent would be started." if asks else "Nothing would be done."


# ---- cost


def _in_all(project: Project, request: RunRequest, items: Sequence[Item], states: Mapping[str, MissionState]) -> str:
    """Describe how many agents all these items need, and the cost of such missions so far."""
    words, agents, workflows = words_at(project, project.git.resolve("HEAD")), 0, set()
    for item in items:
        workflow, to_do = _still_to_do(project, request, item, states.get(item.id), words)
        agents += sum(bool(workflow.phase(name).prompt) for name in to_do)
        workflows.add(workflow.name)
    cap = cap_of(project, request)
    known = f"{'the first ' if len(items) == _MOST_SHOWN else ''}{count(len(items), 'item')}"
    counted = f"retries not counted{f'; the cap is {cap}' if cap < agents else ''}"
    return f"{known}, up to {count(agents, 'agent')} ({counted}); {_cost_so_far(project, workflows)}"


def _still_to_do(
    project: Project, request: RunRequest, item: Item, state: MissionState | None, words: Catalog
) -> tuple[Workflow, Sequence[str]]:
    """Return an item's workflow and the phases that are still to do."""
    if state and state.under_way and not request.fresh:
        return state.workflow, state.to_do
    workflow = choose_workflow(project, item, words, request.workflow)
    return workflow, workflow.remaining(item)


def _cost_so_far(project: Project, workflows: Collection[str]) -> str:
    """Describe the cost of missions by these workflows so far."""
    names = mission_names(project)
    earlier = states_of(project, names[-_MOST_READ:]).values()
    done = [each for each in earlier if each.finished and each.workflow.name in workflows and not each.parent]
    some = f", among the last {_MOST_READ} by id" if len(names) > _MOST_READ else ""
    return (
        f"cost of earlier missions by {', '.join(sorted(workflows))}{some}: "
        f"{cost_so_far([each.spending for each in done])}"
    )


# ---- one mission


def _mission(plan: MissionPlan, model: str, price: str = "") -> Iterator[str]:
    order = plan.order
    state = expected_state(plan)
    yield f"{order.mission}: {' '.join(order.item.title.split())}"
    yield f"workflow {order.workflow.name}, base {state.base[:12]}, into {state.into}, verify {state.policy.verify}"
    yield f"gate: {state.policy.test or 'none found: the mission would be UNVERIFIED'}"
    with open_services(
        plan.project, plan.project.tracker, plan.words, FanOut(), None, model=model, dry=True
    ) as services:
        check_prompts(services.words, state, skills=services.skills)
        yield _agents(state, services)
        if price:
            yield price
        for name in state.to_do:
            phase = state.workflow.phase(name)
            yield f"\n=== {name} ({phase.role.value}; checks: {', '.join(phase.checks) or 'none'})"
            if phase.run:
                yield f"$ {phase.run}"
            elif phase.do or phase.workflow:
                yield f"{'action' if phase.do else 'child missions by workflow'}: {phase.do or phase.workflow}"
            if not phase.prompt:
                continue
            job = Job(Step(state.mission, name, state.runs.get(name, 0) + 1), state, phase, services, _never)
            agent_name, phase_model = agent_for(state, phase)
            briefing = brief(job, phase_model, dry=True)
            argv = services.agent(agent_name, phase_model).describe(briefing)
            yield "$ " + shlex.join("PROMPT" if word == briefing.prompt else word for word in argv)
            yield services.redact(briefing.prompt)


def _end(total: str) -> str:
    """Repeat what it would cost: after the prompts the beginning is far away."""
    return f"\nNothing was started: {total}"


def _never(*_: object) -> MissionState:
    raise AssertionError


def _agents(state: MissionState, services: Services) -> str:
    """Describe the agents that would be started, with their phases."""
    asked: dict[str, list[str]] = {}
    for phase in map(state.workflow.phase, state.to_do):
        if phase.prompt:
            asked.setdefault(services.agent(*agent_for(state, phase)).name, []).append(phase.name)
    number = sum(map(len, asked.values()))
    named = "; ".join(f"{agent} for {', '.join(phases)}" for agent, phases in asked.items())
    return f"phases: {len(state.to_do)} to do, {number} by an agent{f' ({named})' if named else ''}"
