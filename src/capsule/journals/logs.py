"""A mission's logs: under way in `.capsule/missions/<id>/`, kept at the end in `.capsule/logs/<id>/`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from capsule.core.item import check_id
from capsule.system.files import NotRegular, TooLarge, head_bytes, read_regular, sweep_temps, write_atomically
from capsule.system.folders import remove_tree

LARGEST_TEXT = 64 * 1024 * 1024
LARGEST_RESULT = 4 * 1024 * 1024
_LONGEST_STEP = 4096
_COMPLETE = "summary.md"
"""Written last: an archive that has it is a whole one."""
_UNFINISHED = ".unfinished"
"""Exists until the working folder is removed."""
_STEP = ".step"
"""The step that made the archive: when it is repeated, it finds its own."""
_FOUND = "found-in-its-place.log"
"""The name for a file in the place of a folder; it is archived like any other output."""


class LogFolders:
    """All paths are below the project's `.capsule`, and every id is checked before it becomes one.

    `redact` takes secrets out of whatever is written or, in the place of an agent, read.
    """

    def __init__(self, root: Path, redact: Callable[[bytes], bytes] = lambda data: data) -> None:
        self._home = root / ".capsule"
        self._redact = redact

    def folder(self, mission: str) -> Path:
        """Return the path of the working folder."""
        return self._home / "missions" / check_id(mission)

    def working_folder(self, mission: str) -> Path:
        folder = self.folder(mission)
        for place in (folder.parent, folder, folder / "outputs"):
            _make_folder(place)
        return folder

    def put(self, mission: str, name: str, text: str) -> Path:
        path = self.working_folder(mission) / name
        write_atomically(path, self._redact(text.encode()))
        return path

    def text(self, mission: str, name: str) -> str:
        try:
            return read_regular(self.folder(mission) / name, LARGEST_TEXT).decode(errors="replace")
        except OSError:
            return ""

    def result_path(self, item: str, phase: str, *, dry: bool = False) -> Path:
        path = self._result(item, phase)
        if dry:
            return path
        _make_folder(path.parent)
        remove_tree(path)
        return path

    def take_result(self, item: str, phase: str) -> bytes | str | None:
        path = self._result(item, phase)
        try:
            return self._redact(read_regular(path, LARGEST_RESULT))
        except (NotRegular, TooLarge) as fault:
            return fault.strerror or str(fault)
        except OSError:
            return None
        finally:
            remove_tree(path)

    def store(self, mission: str, logs: Mapping[str, str], step: str = "") -> Path:
        place = self._home / "logs" / check_id(mission)
        again = (place / _UNFINISHED).exists() or (step and head_bytes(place / _STEP, _LONGEST_STEP) == step.encode())
        if (place / _COMPLETE).exists() and not again:
            _move_aside(place)
        _make_folder(place.parent)
        _make_folder(place)
        sweep_temps(place)
        write_atomically(place / _UNFINISHED, "")
        write_atomically(place / _STEP, step)
        _copy_outputs(self._outputs(mission), place / "phase-outputs")
        for name, text in sorted(logs.items(), key=lambda paper: paper[0] == _COMPLETE):
            if text or not (place / name).exists():  # a repetition may lack a text that the first try wrote
                write_atomically(place / name, self._redact(text.encode(errors="replace")))
        return place

    def under_way(self) -> Sequence[str]:
        folder = self._home / "missions"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def has_outputs(self, mission: str) -> bool:
        return bool(self._outputs(mission))

    def _outputs(self, mission: str) -> list[Path]:
        """Find the outputs of phases: in the mission's folder, or in its worktree if a phase was run by hand."""
        working, by_hand = self.folder(mission), self._home / "worktrees" / check_id(mission) / ".capsule" / "output"
        found = [*working.glob("outputs/*"), *working.glob("*.log"), *working.glob("*.md")]
        if not by_hand.is_symlink() and not by_hand.parent.is_symlink():
            found += by_hand.glob("*.log*")
        return [file for file in found if file.is_file() and not file.is_symlink()]

    def drop_working_folder(self, mission: str) -> None:
        """Remove it: only now is the archive finished; before, a repeated step writes it again."""
        folder = self.folder(mission)
        if os.path.lexists(folder) and not folder.parent.is_symlink():
            remove_tree(folder)
        (self._home / "logs" / check_id(mission) / _UNFINISHED).unlink(missing_ok=True)

    def _result(self, item: str, phase: str) -> Path:
        return self._home / "results" / f"phase_result_{check_id(item)}_{check_id(phase)}.json"


def _make_folder(place: Path) -> None:
    """Make a folder of ours; a file or a link that an agent put there is moved into it."""
    if place.is_dir() and not place.is_symlink():
        return
    aside = place.with_name(f"{place.name}.{_FOUND}")
    if os.path.lexists(place):
        place.rename(aside)
    place.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(aside):
        aside.rename(place / _FOUND)


def _move_aside(place: Path) -> None:
    """Move an earlier archive of the same item to `<id>/1/`, `<id>/2/`, ...: never deleted."""
    numbers = [int(child.name) for child in place.iterdir() if child.name.isdigit() and child.is_dir()]
    older = place / str(max(numbers, default=0) + 1)
    older.mkdir()
    for child in [child for child in place.iterdir() if not child.name.isdigit()]:
        child.rename(older / child.name)


def _copy_outputs(outputs: Sequence[Path], target: Path) -> None:
    """Make hard links where the file system allows it: a gigabyte of output is not written twice."""
    target.mkdir(exist_ok=True)
    for file in outputs:
        kept = target / file.name
        if kept.exists():
            continue
        try:
            os.link(file, kept)
        except OSError:
            shutil.copy2(file, kept, follow_symlinks=False)
