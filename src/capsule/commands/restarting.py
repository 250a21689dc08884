"""`run ID --rebase` and `run ID --fresh` for an item of a backlog: a human lets it go on in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsule.core.errors import Refused

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.core.item import Item
    from capsule.wiring import Project


def rebuild(project: Project, tracker: Tracker, item: Item) -> None:
    """Whoever has the work rebuilt on the new main answers what it was blocked for."""
    from capsule.commands.common import known_mission
    from capsule.commands.moving import grip, move
    from capsule.core.ledger import unblocked
    from capsule.rules import guardrails_of

    state = known_mission(project, item.id)
    if state.workflow.publishes_steps:
        hint = f"Go on: capsule run {item.id}"
        raise Refused(f"{item.id} follows {state.into} by itself: there is nothing to rebase.", hint)
    if item.blocked:
        with grip(project, tracker, item.id) as held:
            move(
                held,
                "UNBLOCK",
                "To be rebuilt on the new main",
                unblocked(item, guardrails_of(project.settings)),
                no_commit=False,
            )


def start_anew(project: Project, tracker: Tracker, item: Item) -> None:
    """A new mission from the first phase; what the old one had in its worktree is salvaged."""
    from capsule.commands.common import mission_state
    from capsule.commands.ending import end_mission
    from capsule.commands.moving import grip, move
    from capsule.core.ledger import unblocked
    from capsule.rules import guardrails_of

    state = mission_state(project, item.id)
    if not state.under_way:
        return
    entry = state.workflow.entry()
    if state.workflow.publishes_steps:
        hint = f"Go back to where it is to start again: capsule advance {item.id} --to {entry}"
        raise Refused(f"What was done for {item.id} is committed already.", hint)
    end_mission(project, item.id, how="started over", branch=True)
    with grip(project, tracker, item.id) as held:
        values = {**unblocked(item, guardrails_of(project.settings)), "phase": entry}
        move(held, "ADVANCE", "Starts over", values, no_commit=False)
