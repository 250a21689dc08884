"""Describe what sets a tracker apart, as data; the defaults fit one whose items are only claimed and closed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

BEADS_EDITS = ("title", "description", "type", "priority", "parent", "tags", "dependencies", "status")
"""What can be changed where an item has type, priority and parent."""


class TrackerTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a tracker's items have, what can be done with them, and what they are called."""

    authoritative: bool = False
    """It says where an item stands and what it waits for, and is believed before a journal; commits change it."""
    by_status: bool = False
    """Items are listed by status, each with its phase; else as a tree of what holds what."""
    documents: bool = False
    """Each item has documents in changes/ and _ideas/, which the missions of others leave alone."""
    folders: tuple[str, ...] = ()
    """Folders of the project that the tracker and the agents of its items write to."""
    verbs: tuple[str, ...] = ()
    """Commands that not every tracker has a use for."""
    fields: tuple[str, ...] = ("type", "priority", "parent")
    """What `add` can say of an item, besides what all items have."""
    edits: tuple[str, ...] = ()
    """Fields that `edit`, `depend` and `hold` (`status`) can change of an item."""
    fields_hint: str = "An item has --type, --priority (0 to 4) and --parent there."
    described: str = "this project's tracker is {}"
    """`{}` is its name."""
    empty: str = "No open items in {}. Add one"
    own_commands: Mapping[str, str] = {}
    """The provider's own command for `add`, `show`, `reopen` or `release`; `{}` is the item."""
    id_prefix: str = ""
    """What stands in our ids before the provider's own."""

    def own_command(self, verb: str, item_id: str, otherwise: str, before: str = ": ") -> str:
        """End a hint with the provider's own command, or with other words where it has none."""
        known = self.own_commands.get(verb)
        return f"{before}{known.format(item_id.removeprefix(self.id_prefix))}" if known else otherwise
