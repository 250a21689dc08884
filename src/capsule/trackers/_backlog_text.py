"""Changes to BACKLOG.yaml, made in its text: one field is one line, and every other byte stays as a person left it.

The file is read, the assignments become a plan (which items change, go, or are new), and the plan is carried out in the
text. Assignments may be applied twice, so a plan holds only what is not so already.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property

import msgspec

from capsule.core.assignment import Absent, Assign, Assignment, Exists, LogEntry
from capsule.core.item import Status, Value
from capsule.core.ledger import same_title
from capsule.trackers._backlog_cuts import EditPlan, carried_out
from capsule.trackers._backlog_page import BOM, BacklogPage, number_of, opened
from capsule.trackers._backlog_read import Backlog, check_version, highest_number, read_backlog
from capsule.trackers._backlog_scalars import meant

__all__ = ["Backlog", "Rewrite", "new_backlog", "number_of", "read_backlog", "rewritten", "with_entry"]

_EMPTY = """\
# What is to be done: each item is worked on in turn, and leaves this file when it is done.
# `capsule add "A title"` adds one; edit the rest by hand as you like, comments included.
schema_version: 1
last_id: 0
items: []
"""


class Rewrite(msgspec.Struct, frozen=True):
    data: bytes
    added: tuple[str, ...] = ()
    """Ids of the items that were not there before, in the order of their assignments."""


def new_backlog() -> bytes:
    """The file as `init` makes it."""
    return _EMPTY.encode()


def rewritten(
    data: bytes,
    assignments: Sequence[Assignment],
    *,
    where: str,
    prefix: str,
    archived: Callable[[], Container[str]],
    ids: Sequence[str] = (),
    above: Callable[[], int] = lambda: 0,
) -> Rewrite:
    """The file as these assignments leave it. `ids` are those that an earlier application of the same list gave; new
    ones are above `above`, which is asked only where one is given."""
    page = opened(data, where)
    check_version(page)
    plan = _planned(page, assignments, prefix, _Known(page, archived, above), list(ids))
    if plan.is_empty():
        return Rewrite(data)
    bom = BOM if data.startswith(BOM) else b""
    return Rewrite(bom + carried_out(page, plan).encode(), tuple(plan.added))


def with_entry(worklog: bytes, entry: LogEntry) -> bytes:
    """The month's worklog with this entry on top. One that is there already is not repeated."""
    eol = b"\r\n" if b"\r\n" in worklog else b"\n"
    text = entry.text.strip("\n").encode("utf-8", "replace")
    if b"\n" + text + b"\n" in b"\n" + worklog.replace(b"\r\n", b"\n") + b"\n":
        return worklog
    heading, _, rest = worklog.partition(b"\n") if worklog.startswith((b"# ", BOM + b"# ")) else (b"", b"", worklog)
    heading = heading.rstrip(b"\r") or f"# Worklog {entry.month}".encode()
    rest = rest.lstrip(b"\r\n")
    return heading + eol * 2 + text.replace(b"\n", eol) + eol + (eol + rest if rest else b"")


# ---- the plan


class _Known:
    """Titles that are there, or were. All of them are looked at only where somebody asks for a title, and the archive
    only where the file does not know it."""

    def __init__(self, page: BacklogPage, archived: Callable[[], Container[str]], above: Callable[[], int]) -> None:
        self._page = page
        self._above = above
        self._ask = archived
        self._added: dict[str, str] = {}

    def title_of(self, item_id: str) -> str | None:
        """None where there is no such item."""
        number = self._page.numbers.get(item_id)
        return self._added.get(item_id) if number is None else _told_apart(_title(self._page, number))

    @cached_property
    def _titles(self) -> set[str]:
        return {_told_apart(_title(self._page, number)) for number in range(len(self._page.items))}

    @cached_property
    def above(self) -> int:
        """The highest number that is known elsewhere to be taken."""
        return self._above()

    @cached_property
    def _archived(self) -> Container[str]:
        return self._ask()

    def __contains__(self, title: str) -> bool:
        return title in self._added.values() or title in self._titles or title in self._archived

    def add(self, item_id: str, title: str) -> None:
        self._added[item_id] = title


def _planned(
    page: BacklogPage, assignments: Sequence[Assignment], prefix: str, known: _Known, ids: list[str]
) -> EditPlan:
    numbers = page.numbers
    plan = EditPlan(highest_number(page))
    for assignment in assignments:
        if isinstance(assignment, Assign) and assignment.item in numbers:
            plan.changed.setdefault(numbers[assignment.item], {}).update(assignment.values)
        elif isinstance(assignment, Absent) and assignment.item in numbers:
            plan.gone.add(numbers[assignment.item])
        elif isinstance(assignment, Exists):
            _plan_new(plan, assignment, prefix, known, ids)
    changed = ((number, _differing(page.items[number], values)) for number, values in plan.changed.items())
    plan.changed = {number: values for number, values in changed if values and number not in plan.gone}
    return plan


def _plan_new(plan: EditPlan, wanted: Exists, prefix: str, known: _Known, ids: list[str]) -> None:
    title = _told_apart(str(wanted.values["title"]))
    if ids and known.title_of(ids[0]) == title:
        ids.pop(0)
        return
    if wanted.unless_known and title in known:
        return
    earlier = ids.pop(0) if ids else ""
    if earlier and (known.title_of(earlier) is not None or (number_of(earlier) or 0) <= plan.last_id):
        return
    if not earlier:
        plan.last_id = max(plan.last_id, known.above)
    item_id = earlier or f"{prefix}-{plan.last_id + 1:03}"
    plan.last_id = max(plan.last_id + 1, number_of(item_id) or 0)
    values = {name: value for name, value in wanted.values.items() if value is not None}
    start = {"id": item_id, "title": values["title"], "status": Status.NEW.value}
    plan.added[item_id] = {**start, **values, "id": item_id}
    known.add(item_id, title)


def _differing(old: Mapping[str, object], values: Mapping[str, Value]) -> dict[str, Value]:
    """What really changes: an empty value and no value are the same."""
    wanted = {name: meant(value) for name, value in values.items() if name != "id"}
    return {name: value for name, value in wanted.items() if old.get(name) != value and (value or old.get(name))}


def _title(page: BacklogPage, number: int) -> str:
    value = page.items[number].get("title")
    return value if isinstance(value, str) else page.source(number, "title")


def _told_apart(title: str) -> str:
    return same_title(title) or title
