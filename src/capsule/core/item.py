"""Work items as trackers return them, and the table of allowed status moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from capsule.core.errors import InvalidId, Refused
from capsule.core.text import shortened

_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)


class Status(StrEnum):
    NEW = "new"
    RESEARCHING = "researching"
    SCOPED = "scoped"
    READY = "ready"
    IN_PROGRESS = "in_progress"
    BLOCKED = "blocked"
    DONE = "done"


EARLY = (Status.NEW, Status.RESEARCHING)
"""Not scoped yet."""
ACTIVE = (Status.NEW, Status.RESEARCHING, Status.SCOPED, Status.READY, Status.IN_PROGRESS)

MOVES: dict[Status, tuple[Status, ...]] = {
    Status.NEW: (Status.RESEARCHING, Status.SCOPED, Status.BLOCKED),
    Status.RESEARCHING: (Status.SCOPED, Status.BLOCKED),
    Status.SCOPED: (Status.READY, Status.BLOCKED),
    Status.READY: (Status.IN_PROGRESS, Status.BLOCKED),
    Status.IN_PROGRESS: (Status.DONE, Status.BLOCKED),
    Status.BLOCKED: ACTIVE,
    Status.DONE: (),
}


LEVELS = {"": 0, "small": 1, "low": 1, "medium": 2, "large": 3, "high": 3}
"""The order of the words of an assessment."""


class Assessment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Size, complexity, risk and impact of an item. Empty means unknown."""

    size: str = ""
    complexity: str = ""
    risk: str = ""
    impact: str = ""

    def updated(self, new: dict[str, str]) -> Assessment:
        return msgspec.structs.replace(self, **{k: v for k, v in new.items() if v and k in self.__struct_fields__})


HELD = "held"
"""The kind of a block that only its tracker can lift: a date, a gate."""


class Blocked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status a blocked item came from, and what it waits for."""

    from_status: Status
    reason: str
    kind: str = "clarification"
    """The question for a person; empty if the tracker only says that the item is blocked."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of work. Its texts are untrusted: data, never instructions."""

    id: str
    title: str
    description: str = ""
    acceptance: str = ""
    type: str = "task"
    status: Status = Status.READY
    phase: str = ""
    priority: int = 2
    parent: str = ""
    assessment: Assessment = Assessment()
    requires_human_review: bool = False
    blocked: Blocked | None = None
    unblock_context: str = ""
    """Notes of the person who unblocked it; kept until a phase succeeds with them."""
    guardrail_override: Assessment = Assessment()
    """Levels above the guardrails that a person approved for this item."""
    origin: str = ""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    """Dependencies that were closed without being done, each with the reason: a person decides whether to continue."""
    holds: tuple[str, ...] = ()
    """Ids of its children, closed ones included: it is done when they are."""
    taken_by: str = ""
    """Another person who has claimed it."""
    created: str = ""
    updated: str = ""

    @property
    def will_ask(self) -> str:
        """Return the question that a person will be asked before the item is begun; '' if there is none."""
        asks = self.unmet and self.status is not Status.IN_PROGRESS and not self.blocked
        return f"you will be asked: {'; '.join(self.unmet)}" if asks else ""


class NewItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of work to be put into a tracker."""

    title: str
    description: str = ""
    type: str = "task"
    priority: int = 2
    parent: str = ""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    found_in: str = ""
    """The item during whose mission it was discovered."""
    reference: str = ""
    """A unique name: adding it again returns the existing item."""

    def as_item(self, item_id: str) -> Item:
        """Return the item that a tracker creates from it."""
        kept = (name for name in self.__struct_fields__ if name in Item.__struct_fields__)
        return Item(id=item_id, origin=self.reference, **{name: getattr(self, name) for name in kept})


Value = str | bool | list[str] | dict[str, str] | None
"""A field of an item as it is written down; None for an empty field."""

ItemValues = Mapping[str, Value | int]
"""Fields of an item that a person changes, by the names that they have in `Item`; tags and dependencies are lists."""

_BLOCK = ("blocked_from_status", "blocked_reason", "blocked_type")


def with_values(item: Item, values: Mapping[str, Value]) -> Item:
    """Return the item with these fields set, by the names they have in a backlog."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if name == "status":
            plain[name] = Status(str(value))
        elif name == "guardrail_override":
            plain[name] = Assessment(**value) if isinstance(value, dict) else Assessment()
        elif name in Item.__struct_fields__:
            empty: Value = False if name == "requires_human_review" else ""
            plain[name] = tuple(value) if isinstance(value, list) else empty if value is None else value
    levels = {name: str(values[name] or "") for name in Assessment.__struct_fields__ if name in values}
    if levels:
        plain["assessment"] = msgspec.structs.replace(item.assessment, **levels)
    if any(name in values for name in _BLOCK):
        origin = values.get("blocked_from_status")
        reason, kind = values.get("blocked_reason") or "", values.get("blocked_type") or ""
        plain["blocked"] = Blocked(Status(str(origin)), str(reason), str(kind)) if origin else None
    return msgspec.structs.replace(item, **plain)


class Lineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The feature and the epic of an item, if it has them."""

    feature: Item | None = None
    epic: Item | None = None


_DUPLICATE = "duplicate of "
_FOUND_BY = r"Found by [A-Za-z0-9._-]+/[A-Za-z0-9_-]+: "


def duplicate_of(twin: str) -> str:
    """Return the reason for closing an item as a duplicate of another one."""
    return f"{_DUPLICATE}{twin}"


def twin_of(why: str) -> str:
    """Return the item that another one was closed as a duplicate of; '' for any other reason."""
    words = why.strip().rstrip(".")
    return words[len(_DUPLICATE) :] if words.lower().startswith(_DUPLICATE) else ""


def found_by(origin: str, context: str) -> str:
    """Return the paragraph that tells in an item's description what the agent of another one found about it."""
    return f"Found by {origin}: " + re.sub(r"\n\s*\n", "\n", context.strip())


_LONGEST_DESCRIPTION = 16_000
"""A longer one gets no more findings."""


def with_finding(description: str, origin: str, context: str) -> tuple[str, str]:
    """Return the description of a known item with what another one's agent found about it, and words for where."""
    added = found_by(origin, context) if context.strip() else ""
    if not added:
        return description, ""
    there = ": its context is in the description there"
    if context in description or added in description:
        return description, there
    if len(description) >= _LONGEST_DESCRIPTION:
        return description, ", whose description has no room for its context"
    return "\n\n".join(filter(None, (description.rstrip(), added))), there


def as_asked(item: Item) -> Item:
    """Return the item as people wrote it, without what agents of other items found about it."""
    return msgspec.structs.replace(item, description=without_findings(item.description).strip())


def without_findings(description: str) -> str:
    """Return a description as people wrote it."""
    return "\n\n".join(each for each in description.split("\n\n") if not re.match(_FOUND_BY, each))


def check_id(text: str) -> str:
    """Return the id if it may become a path and a branch name; raise InvalidId otherwise."""
    if _ID.fullmatch(text) and ".." not in text and not text.endswith(".lock"):
        return text
    raise InvalidId(
        f"{shortened(text, 70)!a} is not a valid item id.",
        "An id has 1 to 64 letters, digits, dots, dashes or underscores, and starts and ends with a letter or digit.",
    )


def same_words(one: Item, other: Item, redact: Callable[[str], str] = str) -> bool:
    """Tell whether two readings of an item ask for the same thing; a journaled one is without its secrets."""

    def words(item: Item) -> list[str]:
        return [redact(text) for text in (item.title, item.description, item.acceptance)]

    return words(one) == words(other)


def status_and_phase(item: Item) -> str:
    """Describe an item's state: `in_progress at design`."""
    return f"{item.status.value} at {item.phase}" if item.phase else item.status.value


def check_move(item: Item, to: Status) -> None:
    """Refuse every status move that is not in the table; a blocked item returns exactly where it was."""
    allowed = (item.blocked.from_status,) if item.blocked and item.status is Status.BLOCKED else MOVES[item.status]
    if to not in allowed:
        names = ", ".join(status.value for status in allowed) or "nowhere"
        raise Refused(f"{item.id} cannot go from {item.status.value} to {to.value}.", f"From there it can go: {names}.")


_SHOWN = (Status.IN_PROGRESS, Status.BLOCKED, Status.READY, Status.SCOPED, Status.RESEARCHING, Status.NEW, Status.DONE)
"""The order of statuses on a screen."""


def as_shown(items: Iterable[Item]) -> list[Item]:
    """Sort for people: running items, items that wait for them, the next ones."""
    return sorted(
        items, key=lambda item: (_SHOWN.index(item.status), -LEVELS.get(item.assessment.impact, 0), item.created)
    )


_HEADING = r"^#{1,6}\s+(.*?)\s*:?\s*#*\s*$"


def _section(text: str, title: str) -> str:
    """Return the text under the heading with this title, up to the next heading."""
    found: list[str] | None = None
    for line in text.splitlines():
        heading = re.match(_HEADING, line)
        if heading and found is not None:
            break
        if heading and heading.group(1).strip("*_ ").lower() == title:
            found = []
        elif found is not None:
            found.append(line)
    return "\n".join(found or []).strip()


def acceptance_criteria(item: Item) -> str:
    """Return the item's own field, else the section with that title of its description, as people wrote it."""
    own = as_asked(item).description
    return item.acceptance.strip() or _section(own, "acceptance criteria") or _section(own, "requirements")


def with_holders(items: Mapping[str, Item]) -> dict[str, Item]:
    """Return the items, each with the ids of those right below it."""
    held: dict[str, list[str]] = {}
    for item in items.values():
        if item.parent in items and item.parent != item.id:
            held.setdefault(item.parent, []).append(item.id)
    return {**items, **{name: msgspec.structs.replace(items[name], holds=tuple(ids)) for name, ids in held.items()}}


def below(root: str, items: Mapping[str, Item]) -> list[Item]:
    """List all that an item holds at any depth, a parent before what it holds, else as given. '' holds all."""
    children: dict[str, list[Item]] = {}
    for item in items.values():
        children.setdefault(item.parent, []).append(item)
    found: dict[str, Item] = {}
    waiting = list(reversed(children.get(root, [])))
    while waiting:
        item = waiting.pop()
        if item.id not in found and item.id != root:
            found[item.id] = item
            waiting += reversed(children.get(item.id, []))
    if not root:  # items in a cycle of parents have no root
        found |= {name: item for name, item in items.items() if name not in found}
    return list(found.values())


def lineage_of(item: Item, find: Mapping[str, Item]) -> Lineage:
    """Return the parent feature and its epic, or the parent epic; anything else is left empty."""
    parent = find.get(item.parent)
    if parent is None:
        return Lineage()
    if parent.type == "epic":
        return Lineage(epic=parent)
    if parent.type != "feature":
        return Lineage()
    above = find.get(parent.parent)
    return Lineage(feature=parent, epic=above if above and above.type == "epic" else None)
