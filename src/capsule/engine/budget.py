"""Check money, tokens and time before an agent is started."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from capsule.core.budget import Budget, Spending, least, left, overdrawn, total
from capsule.core.errors import BudgetSpent
from capsule.core.event import Allowance
from capsule.core.state import MissionState, Step, children_of
from capsule.engine.job import load_state
from capsule.services import Services


def require_budget(state: MissionState, phase: str, services: Services) -> None:
    """Raise if nothing is left for another agent; the mission keeps its state."""
    for whose, (spent, allowed) in _accounts(state, phase, services).items():
        used = overdrawn(spent, allowed)
        if used:
            raise BudgetSpent(
                f"The budget of the {whose} is spent: {used}.",
                f"Raise budget.{whose} in the settings; `capsule run {state.parent or state.mission}` then goes on.",
                of_the_run=whose == "run",
            )


def allowance_of(state: MissionState, step: Step, services: Services) -> Allowance:
    """Return the most that the agent of a step may use, including its share of the run's budget."""
    rest = {whose: left(*account) for whose, account in _accounts(state, step.phase, services).items()}
    share = services.run_limits.may_use(step)
    parts = list((rest if share is None else {**rest, "run": share}).values())
    return Allowance(usd=least(*(each.usd for each in parts)), seconds=least(*(each.seconds for each in parts)))


def _accounts(state: MissionState, phase: str, services: Services) -> dict[str, tuple[Spending, Allowance]]:
    """Yield each budget with its limit and what was spent. A mission started alone is a run of its own."""
    budget = services.limits.budget
    if budget == Budget():
        return {}
    mission = total(_family(state, services))
    run = services.run_limits.spending()
    return {
        "phase": (state.spent.get(phase, Spending()), budget.phase),
        "mission": (mission, budget.mission),
        "run": (mission if run is None else run, budget.run),
    }


def _family(state: MissionState, services: Services) -> Iterator[Spending]:
    """List what a mission and its relatives, parent and children, have spent."""
    root = load_state(services, state.parent) if state.parent else state
    yield from root.spent.values()
    for child in children_of(root, partial(load_state, services)):
        yield from (state if child.mission == state.mission else child).spent.values()
