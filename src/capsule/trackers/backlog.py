"""The project's own backlog: BACKLOG.yaml holds open items, `_worklog/` finished ones.

A finished item leaves the file; of it the file only knows that its number is not above `last_id`. A mission's steps
change these files by `rewrite`, from old to new content without the disk, because the state is committed first and
saved afterwards. `claim`, `release` and `close` change the file alone, under the lock and atomically, for workflows
whose steps are not recorded by commits.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from capsule.core.assignment import Absent, Assign, Assignment, LogEntry
from capsule.core.errors import Refused, TrackerError, UnknownItem
from capsule.core.item import Item, ItemValues, NewItem, Status, check_id, check_move
from capsule.core.project_log import archived, archived_titles, done_since, same_title
from capsule.core.tracker_traits import TrackerTraits
from capsule.system.clock import SystemClock
from capsule.system.files import CannotWrite, read_regular, sweep_temps, write_atomically
from capsule.system.lock import held
from capsule.trackers import BaseTracker, already_closed, unknown
from capsule.trackers._backlog_page import LARGEST, number_of
from capsule.trackers._backlog_read import Backlog, read_backlog

# The code that changes the file is loaded on use, for the start-up of `status`.

FILE = "BACKLOG.yaml"
WORKLOG = "_worklog"
PREFIX = "WRK"
LOCK_WAIT = 10.0
_now = SystemClock().now
_NAMED = r"(?m)^## [^|\n]{1,40}\| ([^|\s]{1,64}) \|"
"""The item that an entry of a worklog is about."""


def find(root: Path) -> Path | None:
    """Return the file that holds a project's backlog, if there is one."""
    path = root / FILE
    return path if path.exists() or path.is_symlink() else None


def connect(
    root: Path,
    lock: Path | None = None,
    *,
    prefix: str = PREFIX,
    elsewhere: Callable[[str], bytes | None] = lambda _path: None,
    apart: Callable[[], Path | None] = lambda: None,
    stray: Callable[[], str] = str,
) -> BacklogTracker:
    tracker = BacklogTracker(root, lock=lock, prefix=prefix, elsewhere=elsewhere, apart=apart, stray=stray)
    if find(tracker.root) is None:
        raise TrackerError(f"There is no {FILE} in {tracker.root}.", "Create one: capsule init")
    return tracker


class BacklogTracker(BaseTracker):
    name = "backlog"
    traits = TrackerTraits(
        authoritative=True,
        by_status=True,
        documents=True,
        folders=(WORKLOG, "changes", "_ideas"),
        verbs=("advance", "approve", "triage"),
        fields=("size", "complexity", "risk", "impact"),
        edits=("title", "description", "size", "complexity", "risk", "impact", "tags", "dependencies", "status"),
        fields_hint="An item of a backlog has --size, --complexity, --risk and --impact; a higher impact comes first.",
        described="this project has a backlog",
        empty="The backlog is empty. Add an item",
    )

    def __init__(
        self,
        root: Path,
        *,
        lock: Path | None = None,
        prefix: str = PREFIX,
        now: Callable[[], str] = _now,
        elsewhere: Callable[[str], bytes | None] = lambda _path: None,
        apart: Callable[[], Path | None] = lambda: None,
        stray: Callable[[], str] = str,
    ) -> None:
        """`elsewhere`: the content of our file if it is not the one on disk (the user has switched branches).
        `apart`: the folder of our files, where they have a branch of their own. `stray`: a warning about a file of that
        name which is not ours."""
        self._elsewhere = elsewhere
        self._project = root
        self._apart = apart
        self._stray = stray
        self._lock = lock
        self._prefix = prefix
        self._now = now
        self._data = b""
        self._known = Backlog({}, 0)

    @property
    def warnings(self) -> Sequence[str]:
        """Return the warnings of the last reading of the file."""
        stray = self._stray()
        return [*([stray] if stray else ()), *self._known.warnings]

    @property
    def root(self) -> Path:
        """Return the folder that our files are in."""
        return self._apart() or self._project

    @property
    def last_id(self) -> int:
        """Return the highest number that was ever given."""
        return self._backlog().last_id

    def all_items(self) -> Mapping[str, Item]:
        return self._backlog().items

    def everything(self) -> Sequence[Item]:
        """Return every item in the file: a finished one stays in it until it is archived."""
        return list(self.all_items().values())

    def item(self, item_id: str) -> Item:
        backlog = self._backlog()
        if check_id(item_id) in backlog.items:
            return backlog.items[item_id]
        prefixes = {self._prefix, *(name.rpartition("-")[0] for name in backlog.items)}
        if self._was_archived(item_id) and (item_id.rpartition("-")[0] in prefixes or item_id in self._endings()):
            raise UnknownItem(f"{item_id} was archived.", f"See {WORKLOG}/ and `git log`.")
        raise unknown(item_id, backlog.items)

    def writing(self) -> AbstractContextManager[object]:
        return held(self._lock, LOCK_WAIT)

    def claim(self, item_id: str) -> None:
        with self.writing():
            if self._was_archived(item_id) or self.item(item_id).status is Status.DONE:
                raise already_closed(item_id)
            item = self.item(item_id)
            if item.status is Status.BLOCKED:
                raise Refused(f"{item_id} is blocked.", f"Unblock it: capsule unblock {item_id}")
            if item.status is not Status.IN_PROGRESS:
                check_move(item, Status.IN_PROGRESS)
                self.set_status(item_id, Status.IN_PROGRESS)

    def release(self, item_id: str) -> None:
        if not self._was_archived(item_id):
            super().release(item_id)

    def reopen(self, item_id: str) -> None:
        raise Refused(f"{item_id}: a backlog is changed only by commits.", f"capsule unblock {item_id}")

    def close(self, item_id: str, reason: str) -> None:  # noqa: ARG002 - the caller writes the worklog
        with self.writing():
            if not self._was_archived(item_id):
                self._apply([Absent(self.item(item_id).id)])

    def knows(self, item_id: str) -> bool:
        return item_id in self._backlog().items or self._was_archived(item_id)

    def closed_as(self, item_id: str) -> str:
        return "" if item_id in self._backlog().items else self._endings().get(item_id, "")

    def done_since(self, at: str) -> Sequence[tuple[str, str]]:
        months = [*self._worklogs(since=at[:7])]
        return [done for text in reversed(months) for done in done_since(text, at)]

    def create(self, new: NewItem) -> str:
        raise Refused(f"{new.title!a}: items are added to a backlog only by commits.", f'capsule add "{new.title}"')

    def change(self, item_id: str, values: ItemValues) -> None:  # noqa: ARG002
        raise Refused(f"{item_id}: a backlog is changed by what is committed.", f"capsule edit {item_id}")

    def comment(self, item_id: str, text: str) -> None:
        """Do nothing: a backlog has no comments; the worklog is its record."""

    def own_files(self) -> Sequence[str]:
        return [FILE, WORKLOG]

    def rewrite(
        self,
        read: Callable[[str], bytes | None],
        assignments: Sequence[Assignment],
        ids: Sequence[str] = (),
        last_given: int = 0,
    ) -> tuple[dict[str, bytes], tuple[str, ...], tuple[str, ...]]:
        """Return the old and new content of each of our files that changes, ids that were given, and remarks.

        `last_given` is a number that is known to be taken.
        """
        from capsule.trackers._backlog_edit import rewritten, with_entry  # noqa: PLC0415

        before = read(FILE)
        if before is None:
            raise _missing()
        after = rewritten(
            before,
            assignments,
            where=FILE,
            prefix=self._prefix,
            archived=self._archived,
            ids=ids,
            above=lambda: max(last_given, self._highest_archived()),
        )
        old: dict[str, bytes | None] = {FILE: before}
        new = {FILE: after.data}
        for entry in assignments:
            if isinstance(entry, LogEntry):
                path = f"{WORKLOG}/{entry.month}.md"
                old[path] = read(path) if path not in old else old[path]
                new[path] = with_entry(new.get(path) or old[path] or b"", entry)
        return {path: data for path, data in new.items() if data != old[path]}, after.added, after.known

    def parse_file(self, data: bytes) -> tuple[dict[str, Item], int]:
        """Return the items that a file of ours holds, and the last number that was given."""
        backlog = read_backlog(data, FILE)
        return backlog.items, backlog.last_id

    def _archived(self) -> dict[str, str]:
        """Collect the ids of everything that ever left the backlog by title, as the worklogs on the disk have them."""
        found: dict[str, str] = {}
        for text in self._worklogs():
            newest_last = reversed([*archived_titles(text)])
            found |= {same_title(title): item for item, title in newest_last}
        return found

    def gone(self) -> Sequence[tuple[str, str, str]]:
        here = self._backlog().items
        found = {left[0]: left for left in self._left() if left[0] not in here}
        return [*reversed(found.values())]

    def _left(self) -> Iterator[tuple[str, str, str]]:
        """Yield what ever left the backlog, the newest last, as `gone` does."""
        for text in self._worklogs():
            yield from reversed([*archived(text)])  # the newest is on top

    def _endings(self) -> dict[str, str]:
        """Collect why each item was closed that left the backlog; '' for one that was completed."""
        return {name: why for name, _, why in self._left()}

    def _highest_archived(self) -> int:
        """Return the highest number in the worklogs: an id is never given twice, even if `last_id` was changed."""
        found = (name for text in self._worklogs() for name in re.findall(_NAMED, text))
        return max((number_of(name) or 0 for name in found), default=0)

    def _worklogs(self, since: str = "") -> Iterator[str]:
        """Read the worklogs of all months from this one on."""
        for path in sorted(path for path in (self.root / WORKLOG).glob("*.md") if path.stem >= since):
            with contextlib.suppress(OSError):  # our worklogs are plain files
                yield read_regular(path, LARGEST).decode("utf-8", "replace").replace("\r\n", "\n")

    def _was_archived(self, item_id: str) -> bool:
        backlog = self._backlog()
        number = number_of(check_id(item_id))
        return item_id not in backlog.items and number is not None and number <= backlog.last_id

    def _backlog(self) -> Backlog:
        """Return the current content of the file; parse it again only after a change."""
        try:
            data = self._elsewhere(FILE) or read_regular(self.root / FILE, LARGEST)
        except FileNotFoundError:
            raise _missing() from None
        except OSError as fault:
            hint = "Make it a plain file that you may read."
            raise TrackerError(f"{self.root / FILE} cannot be read: {fault.strerror}.", hint) from None
        if data != self._data or not data:
            self._known = read_backlog(data, FILE, self._endings)
            self._data = data
        return self._known

    def set_status(self, item_id: str, status: Status, reason: str = "") -> None:  # noqa: ARG002
        self._apply([Assign(item_id, {"status": status.value, "updated": self._now()})])

    def _apply(self, assignments: Sequence[Assignment]) -> None:
        contents, *_ = self.rewrite({FILE: self._data}.get, assignments)
        if FILE not in contents:
            return
        path = self.root / FILE
        if not path.lstat().st_mode & 0o222:
            raise TrackerError(f"{path} is read-only; nothing was changed.", f"Make it writable: chmod u+w {FILE}")
        try:
            sweep_temps(self.root)
            write_atomically(path, contents[FILE])
        except (CannotWrite, OSError) as fault:
            hint = fault.hint if isinstance(fault, CannotWrite) else "Make sure that you may write there."
            raise TrackerError(f"{fault}; nothing was changed.", hint) from None


def _missing() -> TrackerError:
    return TrackerError(
        f"{FILE} is missing.", f"Restore it: git checkout -- {FILE}; or start with an empty one: capsule init"
    )
