"""Where the fake keeps its beads and what it was asked: a JSON file, replaced whole, under a lock."""

from __future__ import annotations

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH105, PTH112, PTH113, PTH118, PTH120, PTH123
import fcntl
import json
import os
import time

from tests.contracts.fake_bd import CALLS, STATE, SWITCHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ROOM = 2000
"""For what is known of a call only at its end."""


class Held:
    """The one lock of a project."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "fake-bd.lock")

    def __enter__(self) -> None:
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.file)


class Log:
    """One line a call, written when it begins and again, in place, when it ends: a killed call is there too."""

    def __init__(self, folder: str, command: str, argv: list[str]) -> None:
        self.entry: dict[str, Any] = {"command": command, "argv": argv, "started": time.time()}
        self.entry |= {"ended": None, "exit": None, "changed": [], "pid": os.getpid()}
        self.path = os.path.join(folder, CALLS)
        self.size = len(json.dumps(self.entry).encode()) + _ROOM
        with Held(folder):
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self.at = os.lseek(file, 0, os.SEEK_END)
            self._write(file)

    def end(self, code: int | None) -> None:
        self.entry["exit"] = code
        self.entry["ended"] = time.time()
        self.note()

    def note(self) -> None:
        self._write(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))

    def _write(self, file: int) -> None:
        line = json.dumps(self.entry).encode()
        os.pwrite(file, line.ljust(self.size) + b"\n", self.at)
        os.close(file)


class Store:
    """The beads, read at the beginning; `save` writes them if they are others by then."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, STATE)
        self.state: dict[str, Any] = read(self.path) or {}
        self.rows: dict[str, dict[str, Any]] = self.state.setdefault("issues", {})
        self.was = {key: json.dumps(row) for key, row in self.rows.items()}

    @property
    def is_there(self) -> bool:
        return "prefix" in self.state

    def save(self) -> list[str]:
        changed = [key for key, row in self.rows.items() if self.was.get(key) != json.dumps(row)]
        write(self.path, self.state)
        return changed


def read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write(path: str, content: object) -> None:
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(beside, path)


def switches(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = read(os.path.join(folder, SWITCHES)) or {}
    return found


def times_before(folder: str, what: str) -> int:
    """How often this was counted before; counted once more."""
    path = os.path.join(folder, "fake-bd.counts")
    with Held(folder):
        counts = read(path) or {}
        counts[what] = counts.get(what, 0) + 1
        write(path, counts)
    return int(counts[what]) - 1


def beads_folder(start: str) -> str | None:
    """`.beads` of this folder or of one above it; in a worktree, of the repository it belongs to."""
    if named := os.environ.get("BEADS_DIR"):
        return named
    folder = start
    while True:
        if os.path.isdir(os.path.join(folder, ".beads")):
            return _of_main(folder) or os.path.join(folder, ".beads")
        if os.path.isfile(os.path.join(folder, ".git")):
            return _of_main(folder)
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)


def _of_main(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, ".git"), encoding="utf-8") as file:
            words = file.read()
    except (FileNotFoundError, IsADirectoryError):
        return None
    place = words.partition(":")[2].strip()
    main, found, _ = place.partition("/.git/worktrees/")
    beads = os.path.join(main, ".beads")
    return beads if found and os.path.isdir(beads) else None
