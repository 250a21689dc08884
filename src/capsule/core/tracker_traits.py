"""Describe the differences of a tracker as data; the defaults fit one whose items are only claimed and closed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

BEADS_EDITS = ("title", "description", "type", "priority", "parent", "tags", "dependencies", "status")
"""The editable fields of an item with type, priority and parent."""


class TrackerTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a tracker's items, the commands for them, and their names."""

    authoritative: bool = False
    """It holds each item's state and dependencies, counts more than a journal, and is changed by commits."""
    by_status: bool = False
    """Items are listed by status, each with its phase; else as a tree."""
    documents: bool = False
    """Each item has documents in changes/ and _ideas/, which the missions of others leave alone."""
    folders: tuple[str, ...] = ()
    """Folders of the project that the tracker and the agents of its items write to."""
    verbs: tuple[str, ...] = ()
    """Commands that only some trackers support."""
    fields: tuple[str, ...] = ("type", "priority", "parent")
    """Options of `add` beyond those of all trackers."""
    edits: tuple[str, ...] = ()
    """Fields that `edit`, `depend` and `hold` (`status`) can change of an item."""
    fields_hint: str = "An item has --type, --priority (0 to 4) and --parent there."
    described: str = "this project's tracker is {}"
    """`{}` is its name."""
    empty: str = "No open items in {}. Add one"
    own_commands: Mapping[str, str] = {}
    """The provider's own command, or words, for `add`, `show`, `edit`, `reopen` or `release`; `{}` is the item."""
    id_prefix: str = ""
    """The prefix of our ids before the provider's own."""

    def own_command(self, verb: str, item_id: str, otherwise: str, before: str = ": ") -> str:
        """End a hint with the provider's own command, or with other words if it has none."""
        known = self.own_commands.get(verb)
        return f"{before}{known.format(item_id.removeprefix(self.id_prefix))}" if known else otherwise
