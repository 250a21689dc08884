"""What a human changed in a mission's workspace, and what that does to what was approved."""

from __future__ import annotations

from capsule.core.errors import WorkspaceBroken
from capsule.core.evidence import Checkpoint
from capsule.core.state import MissionState
from capsule.engine.job import place_of
from capsule.services import Services


def edited_by_hand(state: MissionState, services: Services) -> Checkpoint | None:
    """A human's repair of a halted mission is kept: it becomes the state that the next phase starts from."""
    place = place_of(state, services)
    if state.checkpoint is None or state.unsettled or not place.path.exists():
        return None
    try:
        now = place.checkpoint("edited by hand")
    except WorkspaceBroken:  # nothing to adopt: the next phase restores the last checkpoint
        return None
    same = (now.tree, now.head) == (state.checkpoint.tree, state.checkpoint.head)
    return None if same else now


def approved_with_edits(state: MissionState, now: Checkpoint, services: Services) -> dict[str, Checkpoint]:
    """A human's word counts for the paths they changed; what an agent left behind is not approved by that."""
    place = place_of(state, services)
    left = place.delivered(state.checkpoint) if state.checkpoint else now.tree
    trees = {name: place.trees.adopted(place.delivered(held), left, now.tree) for name, held in state.approved.items()}
    return {name: bare(tree, now.head) for name, tree in trees.items()}


def bare(tree: str, head: str) -> Checkpoint:
    """A state that only its tree is asked of."""
    return Checkpoint(commit=head, head=head, tree=tree)
