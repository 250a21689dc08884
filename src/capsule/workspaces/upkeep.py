"""The tracker's files lie where agents work. What only the outcome of a step may change is looked after.

How the files are to be is known without asking the disk: as they were when the phase began, with everything assigned
since by commands and by other missions (`Assigned`). What people type meanwhile is kept, as far as it is text: titles,
descriptions, tags, dependencies, comments, new items. What is found in the place of a file that cannot be kept so goes
on the shelf, and whoever watches is told where.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from capsule.core.assignment import Assign, Assignment
from capsule.core.errors import CapsuleError
from capsule.core.item import Item, Status, Value, with_values
from capsule.core.ledger import UNBLOCKED, guarded
from capsule.system.files import append_line, read_regular, write_atomically
from capsule.system.git import Git
from capsule.workspaces.salvage import put_aside

Understand = Callable[[bytes], tuple[Mapping[str, Item], int]]
"""The items that a tracker's file holds, and the last number it gave."""

LARGEST = 64 * 1024 * 1024
_LONG = 16 * 1024 * 1024
_AS_NEW: dict[str, Value] = {
    "status": Status.NEW.value,
    "phase": None,
    "requires_human_review": None,
    "unblock_context": None,
    "guardrail_override": None,
    **UNBLOCKED,
}


class _Line(msgspec.Struct, frozen=True):
    assignments: tuple[Assignment, ...]
    added: tuple[str, ...]


class Assigned:
    """A list of everything that was assigned, by whom ever of us; each line may be applied twice."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, assignments: Sequence[Assignment], added: Sequence[str]) -> None:
        if assignments:
            append_line(self._file, msgspec.json.encode(_Line(tuple(assignments), tuple(added))).decode())

    def mark(self) -> int:
        """Where the list ends now; one that has grown long begins anew."""
        size = self._file.stat().st_size if self._file.exists() else 0
        if size > _LONG:
            self._file.unlink()
            return 0
        return size

    def since(self, mark: int) -> Iterator[_Line]:
        try:
            content = read_regular(self._file, LARGEST)
        except OSError:
            return
        for line in content[mark if mark <= len(content) else 0 :].splitlines():
            try:
                yield msgspec.json.decode(line, type=_Line)
            except msgspec.MsgspecError:  # a crash left half of it
                continue


class Upkeep:
    """Of the file that holds the items, which is the first of the tracker's own, and of the logs in its folders."""

    def __init__(self, git: Git, own_files: Sequence[str], understand: Understand) -> None:
        self.items, *self._folders = own_files
        self._git = git
        self._understand = understand
        self._odd: set[str] = set()
        """Logs that were no plain files to begin with."""

    def logs(self) -> dict[str, bytes]:
        found = self._logs()
        self._odd = {path for path, content in found.items() if content is None}
        return {path: content for path, content in found.items() if content is not None}

    def put_logs_right(self, wanted: Mapping[str, bytes]) -> list[str]:
        told = [self._shelved(folder) for folder in self._folders if _is_no_folder(self._git.root / folder)]
        there = self._logs()
        logs = {path: content for path, content in wanted.items() if path != self.items}
        for path in sorted((there.keys() | logs.keys()) - self._odd):
            if path in logs and there.get(path) == logs[path]:
                continue
            told.append(self._shelved(path) if path in there else f"{path} was taken away, and is back")
            if path in logs:
                self._put(path, logs[path])
        return told

    def put_items_right(self, wanted: bytes) -> tuple[list[str], list[Assign]]:
        """What to tell, and what is left to be assigned where the file as such can stay."""
        try:
            known, last = self._understand(wanted)
        except CapsuleError:  # it could not be read to begin with
            return [], []
        try:
            now, newest = self._understand(read_regular(self._git.root / self.items, LARGEST))
        except FileNotFoundError:
            return self._replaced("was taken away", wanted), []
        except (OSError, CapsuleError) as fault:
            why = fault.message if isinstance(fault, CapsuleError) else fault.strerror
            return self._replaced(f"could not be read any more ({why})", wanted), []
        gone = [item for item in known if item not in now]
        if gone:
            return self._replaced(f"had lost {', '.join(gone[:5])}", wanted), []
        if newest < last:
            return self._replaced("would have given ids twice", wanted), []
        due = [amends for item in now.values() if (amends := _amends(item, known.get(item.id)))]
        return [f"{each.item} was changed in the tracker while an agent was at work, and put back" for each in due], due

    def last_given(self, items: bytes) -> int:
        try:
            return self._understand(items)[1]
        except CapsuleError:
            return 0

    def _replaced(self, how: str, wanted: bytes) -> list[str]:
        kept = self._put_aside(self.items)
        self._put(self.items, wanted)
        return [f"{self.items} {how}, and was put back{f'; what was found is kept as {kept}' if kept else ''}"]

    def _shelved(self, path: str) -> str:
        kept = self._put_aside(path)
        where = f"; what was there is kept as {kept}" if kept else ""
        return f"{path} was changed while an agent was at work, and put back{where}"

    def _put_aside(self, path: str) -> str:
        """Where it is now; '' where there was nothing to keep."""
        file, shelf = self._git.root / path, self._git.capsule_dir / "salvaged"
        if not os.path.lexists(file):
            return ""
        before = set(shelf.iterdir()) if shelf.is_dir() else set()
        put_aside(self._git, file)
        return next((str(kept) for kept in shelf.iterdir() if kept not in before), "") if shelf.is_dir() else ""

    def _put(self, path: str, content: bytes) -> None:
        file = self._git.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)

    def _logs(self) -> dict[str, bytes | None]:
        """None where it is no plain file, or larger than any that we would write."""
        tops = (self._git.root / folder for folder in self._folders)
        files = (file for top in tops if top.is_dir() and not top.is_symlink() for file in sorted(top.glob("*.md")))
        return {file.relative_to(self._git.root).as_posix(): _plain(file) for file in files}


def _amends(item: Item, known: Item | None) -> Assign | None:
    """An item that is new is there by its words alone."""
    wanted = known or with_values(item, _AS_NEW)
    if guarded(item) == guarded(wanted):
        return None
    return Assign(item.id, guarded(known) if known else _AS_NEW)


def _plain(file: Path) -> bytes | None:
    try:
        return read_regular(file, LARGEST)
    except OSError:
        return None


def _is_no_folder(path: Path) -> bool:
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir())
