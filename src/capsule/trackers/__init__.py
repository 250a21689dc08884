"""Where work comes from: one file per tracker, each a class that keeps the promises of `capsule.adapters.Tracker`.

A provider's quirks end here: what leaves this folder is an `Item` with a checked id and a status of ours. Below stand
the refusals that all trackers word alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from capsule.core.errors import Refused, UnknownItem
from capsule.core.text import nearest


def unknown(item_id: str, known: Iterable[str]) -> UnknownItem:
    near = nearest(item_id, known, 3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`capsule status` lists what there is."
    return UnknownItem(f"There is no item {item_id}.", hint)


def already_closed(item_id: str) -> Refused:
    return Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
