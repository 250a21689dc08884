"""beads through its own program, `bd`, of any version since 0.44.

Everything there is comes from one `bd export`, whose rows are those of the beads file; what can be worked on is decided
by `bd ready`. A single bead is read again with `bd show`: a person may have closed it.

Every change reads first, is made once, and counts when reading back shows it, not by bd's exit code: older versions
refuse with 0. It is repeated only if the database was locked and the change is missing. bd takes a part of an id for an
id too, so nothing is changed that was not found under exactly the id we mean.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule.core.campaign import ancestors, is_container
from capsule.core.errors import CapsuleError, Refused, TrackerError
from capsule.core.item import (
    HELD,
    Blocked,
    Item,
    ItemValues,
    Lineage,
    NewItem,
    Status,
    below,
    check_id,
    lineage_of,
    with_holders,
)
from capsule.core.text import cleaned, sentence
from capsule.core.tracker_traits import BEADS_EDITS, TrackerTraits
from capsule.trackers import already_closed, lately_done, unknown
from capsule.trackers._bd import EVERYTHING, Bd, BdResult, Patience
from capsule.trackers._beads import (
    FOLDER,
    FOUND_IN,
    Bead,
    bead_of,
    is_work,
    item_of,
    our_name,
    remarks_of,
    status_of,
    taken_by,
    texts_of,
)

_LONGEST_TITLE = 500
"""In bytes, as bd counts, although it says characters."""
_LONGEST_TEXT = 100_000
"""In bytes: the length of an argument is limited."""
_SHOWN_AT_ONCE = 100
_DEFERRED = "deferred"
_NUMBER = re.compile("([0-9]+)")


def connect(root: Path, lock: Path | None = None) -> BeadsTracker:
    return BeadsTracker(root, lock=lock)


class _Table(Struct, frozen=True):
    """All beads at one moment, in the order of their ids."""

    beads: dict[str, Bead]
    items: dict[str, Item]


class BeadsTracker:
    name = "beads"
    traits = TrackerTraits(
        edits=BEADS_EDITS,
        own_commands={
            "add": "bd create",
            "show": "bd show {}",
            "reopen": "bd reopen {}",
            "release": "bd update {} --status=open",
        },
    )

    def __init__(
        self,
        root: Path,
        *,
        lock: Path | None = None,
        patience: Patience | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._env = os.environ if env is None else env
        self._bd = Bd(root, lock=lock, patience=patience, env=env)
        self._known: _Table | None = None
        self.warnings: Sequence[str] = ()
        """Oddities of the beads that were read last, and of this version of bd."""

    @property
    def version(self) -> str:
        return self._bd.version

    def items(self) -> Sequence[Item]:
        return [item for item in self._current_items().values() if item.status is not Status.DONE]

    def everything(self) -> Sequence[Item]:
        return self.items()

    def item(self, item_id: str) -> Item:
        check_id(item_id)
        if self._known is None and item_id in self._read().items:
            return self._with_ready_state(self._table().items[item_id])
        bead = self._existing(item_id)
        self._update_known(bead)
        table = self._table()
        known = table.items.get(item_id)
        anew = msgspec.structs.replace(self._as_item(bead, table.beads), holds=known.holds if known else ())
        return self._with_ready_state(anew)

    def lineage(self, item: Item) -> Lineage:
        return lineage_of(item, self._table().items)

    def knows(self, item_id: str) -> bool:
        return item_id in self._table().items or self._show(item_id) is not None

    def closed_as(self, item_id: str) -> str:  # noqa: ARG002 - what bd calls closed holds nobody up
        return ""

    def done_since(self, at: str) -> Sequence[tuple[str, str]]:
        return lately_done(self._table().items.values(), at)

    def gone(self) -> Sequence[tuple[str, str, str]]:
        return []

    def under(self, item_id: str) -> Sequence[Item]:
        items = self._current_items()
        if item_id and check_id(item_id) not in items:
            raise unknown(item_id, items)
        return below(item_id, items)

    def parts(self, item: Item, phase: str) -> Sequence[Item]:  # noqa: ARG002 - a bead is done in one piece
        return [item]

    def own_files(self) -> Sequence[str]:
        return [FOLDER]

    # ---- changes

    def claim(self, item_id: str) -> None:
        bead = self._existing(item_id)
        if not (self._is_claimed(bead) and bead.assignee):
            self._change(item_id, self._is_claimed, "update", item_id, "--claim", *self._actor_flag, "--json")

    def release(self, item_id: str) -> None:
        bead = self._existing(item_id)
        if status_of(bead) is Status.IN_PROGRESS and bead.assignee in ("", self._actor):
            self._change(
                item_id, _is_open, "update", item_id, "--status=open", "--assignee=", *self._actor_flag, "--json"
            )

    def reopen(self, item_id: str) -> None:
        bead = self._existing(item_id)
        until = bead.defer_until
        with contextlib.suppress(ValueError):
            date = datetime.fromisoformat(until)
            ahead = (date if date.tzinfo else date.replace(tzinfo=UTC)) > datetime.now(UTC)
            if ahead and status_of(bead) in (Status.READY, Status.BLOCKED):
                way = f"undefer {item_id}" if bead.status == _DEFERRED else f"update {item_id} --defer="
                raise Refused(f"bd defers {item_id} until {until}.", f"Remove the date: `bd {way}`")
        if status_of(bead) is Status.BLOCKED:
            self._change(item_id, _is_open, "update", item_id, "--status=open", *self._actor_flag, "--json")

    def close(self, item_id: str, reason: str) -> None:
        bead = self._existing(item_id)
        if status_of(bead) is not Status.DONE:
            args = ("close", item_id, f"--reason={_cut_text(reason)}", *self._actor_flag, "--json")
            self._change(item_id, lambda found: status_of(found) is Status.DONE, *args)

    def add(self, new: NewItem) -> str:
        before = self._read().beads
        known = (bead.id for bead in before.values() if new.reference and bead.external_ref == new.reference)
        if there := next(known, ""):
            return str(there)
        for other in (new.parent, *new.dependencies):
            if other and other not in before:
                raise unknown(other, before)
        args = ("create", *_as_flags(new, before), *self._actor_flag, "--json")

        def given_id(answer: BdResult) -> str:
            if not answer.failed and answer.rows and answer.rows[0]["id"] not in before:
                return check_id(answer.rows[0]["id"])
            # It failed before it printed the id: look for a new bead.
            beads, title = self._read().beads, _title(new)
            fresh = (bead for name, bead in beads.items() if name not in before and bead.title == title)
            return next((bead.id for bead in fresh if bead.external_ref == new.reference), "")

        added = self._run_until_seen(args, given_id)
        self._known = None
        return added

    def change(self, item_id: str, values: ItemValues) -> None:
        before = self.item(item_id)
        flags = [f"--{name}={_cut_text(str(values[name]))}" for name in _FLAGS if name in values]
        tags, others = texts_of(values.get("tags")), texts_of(values.get("dependencies"))
        if "tags" in values:
            flags += [f"--add-label={_as_list([tag])}" for tag in tags if tag not in before.tags]
            flags += [f"--remove-label={_as_list([tag])}" for tag in before.tags if tag not in tags]
        if flags:
            told = {name: value for name, value in values.items() if name != "dependencies"}
            self._change(item_id, lambda bead: self._shows(bead, told), "update", item_id, *flags, *self._saying)
        for other in others if "dependencies" in values else ():
            if other not in before.dependencies:
                self._change(item_id, partial(self._waits, other), "dep", "add", item_id, other, *self._saying)
        for other in before.dependencies if "dependencies" in values else ():
            if other not in others:
                is_gone = partial(self._waits, other, wanted=False)
                self._change(item_id, is_gone, "dep", "remove", item_id, other, *self._saying)
        self._known = None

    @property
    def _saying(self) -> tuple[str, ...]:
        return (*self._actor_flag, "--json")

    def _shows(self, bead: Bead, values: ItemValues) -> bool:
        """Tell whether a bead has these values now."""
        item = self._as_item(bead, self._table().beads)
        tags = {*map(cleaned, texts_of(values.get("tags")))}
        if "tags" in values and tags != {*item.tags}:
            return False
        wanted = ((name, value) for name, value in values.items() if name != "tags")
        texts = ((name, cleaned(_cut_text(value)) if isinstance(value, str) else value) for name, value in wanted)
        return all(getattr(item, name) == value for name, value in texts)

    def _waits(self, other: str, bead: Bead, *, wanted: bool = True) -> bool:
        """Tell whether a bead waits for another one, or not, as wanted; a closed one blocks nothing."""
        waits = other in self._as_item(bead, self._table().beads).dependencies
        is_closed = self._table().items[other].status is Status.DONE
        return waits is wanted or (wanted and is_closed)

    def comment(self, item_id: str, text: str) -> None:
        self._existing(item_id)
        words = _cut_text(text).strip()
        if not words:
            return

        def is_there(answer: BdResult) -> str:
            if not answer.failed and isinstance(answer.value, dict):
                return item_id
            bead = self._read().beads.get(item_id)
            return item_id if bead and any(each.get("text") == words for each in remarks_of(bead)) else ""

        self._run_until_seen(("comments", "add", *self._actor_flag, "--json", "--", item_id, words), is_there)

    def _change(self, item_id: str, is_so: Callable[[Bead], bool], *args: str) -> None:
        def now(_: BdResult) -> str:
            bead = self._existing(item_id)
            self._update_known(bead)
            return item_id if is_so(bead) else ""

        self._run_until_seen(args, now)

    def _run_until_seen(self, args: tuple[str, ...], done: Callable[[BdResult], str]) -> str:
        """Make a change, read it back, and repeat it only if it is missing because the database was locked."""
        answer = self._bd.run(*args)
        for pause in self._bd.patience.pauses:
            if not answer.busy:
                break
            time.sleep(pause)
            if found := done(answer):
                return found
            answer = self._bd.run(*args)
        if found := done(answer):
            return found
        if not self._bd.is_refusal(answer):
            raise self._bd.fault(answer)
        hint = "Nothing is forced: resolve it in bd, then go on."
        asked = " ".join(word for word in args[:2] if not word.startswith("-"))
        why = sentence(answer.words) if answer.failed else "bd reported success, but the bead is unchanged."
        raise Refused(f"`bd {asked}` was refused: {why}", hint)

    def _is_claimed(self, bead: Bead) -> bool:
        """Tell whether it is ours and in progress; it may be closed between the claim and this check."""
        if status_of(bead) is Status.DONE:
            raise already_closed(bead.id)
        if theirs := taken_by(bead, lambda: self._actor):
            hint = f"Wait until they finish, or reassign it: `bd update {bead.id} --status=open --assignee=`."
            raise Refused(f"{bead.id} is claimed by {theirs}.", hint)
        return status_of(bead) is Status.IN_PROGRESS

    @cached_property
    def _actor(self) -> str:
        return our_name(self._root, self._env)

    @property
    def _actor_flag(self) -> tuple[str, ...]:
        return (f"--actor={self._actor}",) if self._actor else ()

    # ---- reading

    def _table(self) -> _Table:
        return self._known or self._read()

    def _read(self) -> _Table:
        found: dict[str, Bead] = {}
        left_out = []
        exported = self._bd.ask("export")
        if exported.failed and not exported.unknown_here:
            raise self._bd.fault(exported)
        listed = exported.beads
        for bead in filter(is_work, listed if listed and not exported.failed else self._beads_by_list()):
            try:
                found[check_id(bead.id)] = bead
            except CapsuleError as fault:
                left_out.append(f"bd: {fault.message} The bead is left out.")
        found = {bead.id: bead for bead in sorted(found.values(), key=_sort_key)}
        items = with_holders({name: self._as_item(bead, found) for name, bead in found.items()})
        self._known = _Table(found, items)
        self.warnings = [*self._bd.warnings, *left_out]
        return self._known

    def _beads_by_list(self) -> list[Bead]:
        """Read beads by `bd list` if `export` has nothing; show each, as a list may lack dependencies."""
        answer = self._bd.read("list", "--all", EVERYTHING, "--json")
        if not isinstance(answer.value, list) and not answer.rows:
            raise TrackerError("`bd list` gave no list.", f"Try `bd list --json` by hand in {self._root}.")
        names = [row["id"] for row in answer.rows]
        asked = [name for name in names if not name.startswith("-")]
        beads: list[Bead] = []
        for start in range(0, len(asked), _SHOWN_AT_ONCE):
            beads += map(bead_of, self._bd.read("show", *asked[start : start + _SHOWN_AT_ONCE], "--json").rows)
        return beads

    def _current_items(self) -> dict[str, Item]:
        """Return all current items; block those that bd does not call ready."""
        items = self._read().items
        if not any(item.status is Status.READY for item in items.values()):
            return items
        ready, beads = self._ready(), self._table().beads
        return {
            name: _held_back(item, beads[name]) if name not in ready and _lacks_reason(item, items) else item
            for name, item in items.items()
        }

    def _with_ready_state(self, item: Item) -> Item:
        """Block an item that bd does not call ready."""
        table = self._table()
        if not _lacks_reason(item, table.items) or item.id in self._ready():
            return item
        return _held_back(item, table.beads.get(item.id) or Bead(item.id))

    def _ready(self) -> set[str]:
        answer = self._bd.read("ready", EVERYTHING, "--json")
        if not isinstance(answer.value, list):
            raise TrackerError("`bd ready` gave no list.", f"Try `bd ready --json` by hand in {self._root}.")
        return {row["id"] for row in answer.rows}

    def _as_item(self, bead: Bead, beads: Mapping[str, Bead]) -> Item:
        item = item_of(bead, beads, lambda: self._actor)
        return _held_back(item, bead) if bead.status == _DEFERRED else item

    def _update_known(self, bead: Bead) -> None:
        if self._known and bead.id in self._known.beads:
            self._known.beads[bead.id] = bead

    def _existing(self, item_id: str) -> Bead:
        bead = self._show(check_id(item_id))
        if bead is None:
            raise unknown(item_id, self._table().items)
        return bead

    def _show(self, item_id: str) -> Bead | None:
        """Read one bead again; bd may answer with another whose id only ends like this one."""
        answer = self._bd.ask("show", item_id, "--json")
        exact = next((bead_of(row) for row in answer.rows if row["id"] == item_id), None)
        if exact is None and answer.failed and not answer.not_found:
            raise self._bd.fault(answer)
        return exact if exact and is_work(exact) else None


_FLAGS = ("title", "description", "type", "priority", "parent", "status")
"""The options of `bd update` by the names of items' fields."""


def _is_open(bead: Bead) -> bool:
    return status_of(bead) is Status.READY


def _sort_key(bead: Bead) -> list[str | int]:
    """Sort `demo-1.10` after `demo-1.9`: of a checked id, every second part is a number."""
    parts: list[str | int] = [*_NUMBER.split(bead.id)]
    parts[1::2] = map(int, parts[1::2])
    return parts


def _lacks_reason(item: Item, items: Mapping[str, Item]) -> bool:
    """Tell whether an open item has no dependency that explains why bd does not call it ready."""
    if item.status is not Status.READY or is_container(item):
        return False
    return not any(each.dependencies for each in (item, *ancestors(item, items)))


def _held_back(item: Item, bead: Bead) -> Item:
    """Block an item with bd's reason; some versions omit the date when they list beads."""
    until, deferred = bead.defer_until, bead.status == _DEFERRED
    reason = f"bd defers it until {until}" if until else "bd defers it" if deferred else "bd does not count it as ready"
    return msgspec.structs.replace(item, status=Status.BLOCKED, blocked=Blocked(Status.READY, reason, HELD))


def _as_flags(new: NewItem, known: Mapping[str, Bead]) -> list[str]:
    """Return flags, each with its value in one word, so that no value is ever taken for a flag.

    A bare id is what the new bead depends on; `blocks:` has meant either direction.
    """
    found_in = new.found_in if new.found_in in known and new.found_in not in (new.parent, *new.dependencies) else ""
    deps = [*new.dependencies, *[f"{FOUND_IN}:{found_in}"] * bool(found_in)]
    given = {
        "title": _title(new),
        "description": _cut_text(new.description),
        "type": cleaned(new.type),
        "priority": str(new.priority),
        "labels": _as_list(new.tags),
        "parent": new.parent,
        "deps": _as_list(deps),
        "external-ref": cleaned(new.reference),
    }
    return [f"--{name}={value}" for name, value in given.items() if value]


def _title(new: NewItem) -> str:
    return cleaned(new.title).strip().encode()[:_LONGEST_TITLE].decode("utf-8", "ignore").rstrip()


def _as_list(values: Sequence[str]) -> str:
    """Return a list as bd reads it: comma-separated values, in which a comma can be quoted."""
    if not values:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([cleaned(value) for value in values])
    return line.getvalue()


def _cut_text(text: str) -> str:
    data = cleaned(text).encode()
    return data.decode() if len(data) <= _LONGEST_TEXT else data[:_LONGEST_TEXT].decode("utf-8", "ignore") + " ..."
