"""What sets a tracker apart is data; whoever has none of it is spoken of in general words."""

from __future__ import annotations

from capsule.app.moves import ItemDraft
from capsule.core.tracker_traits import TrackerTraits
from capsule.trackers.backlog import BacklogTracker
from capsule.trackers.beads import BeadsTracker
from capsule.trackers.memory import MemoryTracker


def test_a_hint_ends_with_the_providers_own_command_where_it_has_one() -> None:
    traits = TrackerTraits(own_commands={"show": "todo show {}"})
    assert traits.own_command("show", "t-1", ", in its tracker.") == ": todo show t-1"
    assert traits.own_command("reopen", "t-1", ", in its tracker.") == ", in its tracker."


def test_every_field_that_a_tracker_takes_can_be_said_when_an_item_is_added() -> None:
    for tracker in (BacklogTracker, BeadsTracker, MemoryTracker):
        assert {*tracker.traits.fields} <= {*ItemDraft.__struct_fields__}, tracker.name
