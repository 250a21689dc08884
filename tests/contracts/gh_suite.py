"""The items of the suite as issues on GitHub, which numbers them itself. Import it once the suite may be rewritten."""

from __future__ import annotations

from typing import Any

from capsule.core.item import Item, Status
from capsule.trackers.github import PREFIX
from tests.contracts.tracker_suite import ITEMS

LABEL = "capsule"
NUMBERS = {item.id: number for number, item in enumerate(ITEMS, 1)}
NAMES = {name: f"{PREFIX}{number}" for name, number in NUMBERS.items()} | {
    "demo-1.1.7": f"{PREFIX}33",  # nobody's
    "demo-33": f"{PREFIX}98",
    "demo-77": f"{PREFIX}97",
}
_KINDS = {"bug": "bug", "feature": "enhancement", "epic": "epic"}


def issue(item: Item) -> dict[str, Any]:
    """The issue that somebody would write for an item of the suite."""
    lines = [
        *[f"Part of #{NUMBERS[name]}" for name in [item.parent] if name],
        *[f"Depends on #{NUMBERS[other]}" for other in item.dependencies],
    ]
    block = "\n".join(("", "", "<!-- capsule: -->", *lines, "<!-- /capsule -->")) if lines else ""
    labels = [
        LABEL,
        *[label for kind, label in _KINDS.items() if kind == item.type],
        *[f"P{item.priority}"] * (item.priority != 2),
        *["blocked"] * (item.status is Status.BLOCKED),
        *item.tags,
    ]
    state = "CLOSED" if item.status is Status.DONE else "OPEN"
    body = f"{item.description}{block}"
    return {"number": NUMBERS[item.id], "title": item.title, "body": body, "labels": labels, "state": state}
