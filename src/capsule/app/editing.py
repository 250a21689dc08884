"""Edit items: their fields, their dependencies, and holds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from capsule.app.items import Moved, find_item, lock_item, move
from capsule.app.moves import LEVELS, PRIORITIES, level_of, title_of
from capsule.core.errors import Refused, UsageError
from capsule.core.item import Blocked, Item, ItemValues, Status, Value, check_id, check_move
from capsule.core.ledger import DECISION, blocked
from capsule.core.text import one_line
from capsule.project import Project


class Edit(Struct, frozen=True):
    """The changes to an item; None keeps a field."""

    title: str | None = None
    description: str | None = None
    type: str | None = None
    priority: str | None = None
    parent: str | None = None
    size: str | None = None
    complexity: str | None = None
    risk: str | None = None
    impact: str | None = None
    tags: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()

    @property
    def given(self) -> list[str]:
        """Name the fields that are to change."""
        plain = [name for name in self.__struct_fields__ if name not in ("tags", "untag")]
        return [name for name in plain if getattr(self, name) is not None] + ["tags"] * bool(self.tags or self.untag)


def edit(project: Project, item_id: str, wanted: Edit, *, no_commit: bool = False) -> Moved | None:
    """Change fields of an item; return None if nothing differs."""
    _check_fields(project, wanted.given)
    item = find_item(project.tracker, item_id)
    values: dict[str, Value | int] = {}
    for name in wanted.given:
        given = str(getattr(wanted, name, "") or "")
        if name in LEVELS:
            values[name] = level_of(name, given) if given else None
        elif name == "title":
            values[name] = title_of(given)
        elif name == "priority":
            values[name] = _priority(given)
        elif name == "parent":
            values[name] = _parent(project, item, given)
        elif name != "tags":
            values[name] = given
    if wanted.tags or wanted.untag:
        kept = dict.fromkeys((*item.tags, *wanted.tags))
        values["tags"] = [tag for tag in kept if tag not in wanted.untag]
    different = {name: value for name, value in values.items() if (value or None) != (_now(item, name) or None)}
    words = f"{', '.join(different)} changed"
    return _change(project, item_id, "EDIT", words, different, no_commit=no_commit) if different else None


def depend(
    project: Project, item_id: str, on: Sequence[str], off: Sequence[str], *, no_commit: bool = False
) -> Moved | None:
    """Add or remove dependencies of an item; refuse a cycle."""
    _check_fields(project, ["dependencies"])
    known = {item.id: item for item in project.tracker.under("")}
    item = find_item(project.tracker, item_id)
    for other in on:
        find_item(project.tracker, other)
        way = _way(other, item_id, known)
        if way:
            circle = " → ".join([item_id, *way])
            hint = f"Take one out: capsule depend {way[-2]} --off {item_id}" if way[1:] else "Name another item."
            raise Refused(f"{item_id} would wait for itself: {circle}.", hint)
    for other in off:
        if other not in (*item.dependencies, *known.get(item_id, item).dependencies):
            hint = f"It depends on {', '.join(item.dependencies) or 'nothing'}."
            raise Refused(f"{item_id} does not depend on {check_id(other)}.", hint)
    wanted = [other for other in dict.fromkeys((*item.dependencies, *on)) if other not in off]
    if wanted == [*item.dependencies]:
        return None
    words = f"waits for {', '.join(wanted)}" if wanted else "waits for nothing"
    return _change(project, item_id, "DEPEND", words, {"dependencies": wanted}, no_commit=no_commit)


def hold(project: Project, item_id: str, reason: str, kind: str = DECISION, *, no_commit: bool = False) -> Moved:
    """Put an item on hold until a person resumes it; `kind` is its type of block, '' for none."""
    why = one_line(reason)
    if not why:
        raise UsageError("The reason is empty.", "Say what it waits for; the reason is shown with the item.")
    _check_fields(project, ["status"])
    item = find_item(project.tracker, item_id)
    if item.status is Status.BLOCKED:
        why_now = item.blocked.reason if item.blocked else ""
        raise Refused(f"{item_id} is blocked already: {why_now}", f"See: capsule questions {item_id}")
    if item.status is Status.DONE:
        raise Refused(f"{item_id} is done.", "There is nothing to hold.")
    if project.tracker.traits.authoritative:
        check_move(item, Status.BLOCKED)
        return _change(project, item_id, "HOLD", why, {**blocked(item, why, kind)}, no_commit=no_commit)
    moved = _change(project, item_id, "HOLD", why, {"status": Status.BLOCKED.value}, no_commit=no_commit)
    project.tracker.comment(item_id, f"On hold: {why}")
    return moved._replace(after=replace(moved.after, blocked=Blocked(item.status, why, kind)))


def _change(project: Project, item_id: str, tag: str, words: str, values: ItemValues, *, no_commit: bool) -> Moved:
    """Change an item by a commit of its tracker's files, or through its tracker."""
    tracker = project.tracker
    if tracker.traits.authoritative:
        plain: dict[str, Value] = {name: value for name, value in values.items() if not isinstance(value, int)}
        with lock_item(project, item_id) as held:
            return move(held, tag, words, plain, no_commit=no_commit)
    if no_commit:
        this = tracker.traits.described.format(tracker.name)
        raise UsageError(f"--no-commit is for a backlog, and {this}.", "Leave it out: nothing is committed.")
    with lock_item(project, item_id) as held:
        tracker.change(item_id, values)
        return Moved(held.item, tracker.item(item_id))


def _check_fields(project: Project, names: Sequence[str]) -> None:
    """Refuse fields that this tracker's items lack or that cannot be changed here."""
    tracker = project.tracker
    for name in names:
        if name not in tracker.traits.edits:
            this = tracker.traits.described.format(tracker.name)
            if tracker.traits.edits:
                raise UsageError(f"An item has no {name} here: {this}.", tracker.traits.fields_hint)
            there = tracker.traits.own_command("edit", "ID", ".")
            raise Refused(f"Items cannot be changed from here: {this}.", f"Change them in the tracker itself{there}")


def _priority(given: str) -> int:
    number = given.lower().removeprefix("p")
    if number not in PRIORITIES:
        raise UsageError(f"--priority is {given!a}; it must be 0 to 4.", "0 is the most urgent, 2 the usual.")
    return int(number)


def _parent(project: Project, item: Item, given: str) -> str:
    below = {each.id for each in project.tracker.under(item.id)} if given else {}
    if given and find_item(project.tracker, given).id in {item.id, *below}:
        raise Refused(f"{item.id} would hold itself.", f"{given} lies below it.")
    return given


def _now(item: Item, name: str) -> object:
    held = item.assessment if name in LEVELS else item
    value = getattr(held, name)
    return [*value] if isinstance(value, tuple) else value


def _way(start: str, end: str, known: dict[str, Item]) -> list[str]:
    """Return a path along dependencies; empty if there is none."""
    ways = [[start]]
    seen = {start}
    for way in ways:  # grows as we go
        if way[-1] == end:
            return way
        item = known.get(way[-1])
        for other in item.dependencies if item else ():
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []
