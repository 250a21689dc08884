"""A mission's logs: under way in `.capsule/missions/<id>/`, kept at the end in `.capsule/logs/<id>/`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from capsule.core.item import check_id
from capsule.system.files import NotRegular, TooLarge, read_regular, sweep_temps, write_atomically

LARGEST_TEXT = 64 * 1024 * 1024
LARGEST_RESULT = 4 * 1024 * 1024
_COMPLETE = "summary.md"
"""Written last: an archive that has it is a whole one."""
_UNFINISHED = ".unfinished"
"""There until the working folder has gone."""
_STEP = ".step"
"""Who made the archive: a step that is repeated after everything was put away finds its own."""
_FOUND = "found-in-its-place.log"
"""What stood where a folder belongs; by this name it is archived like any other output."""


class LogFolders:
    """All paths are below the project's `.capsule`, and every id is checked before it becomes one.

    `redact` takes secrets out of whatever is written or, in the place of an agent, read.
    """

    def __init__(self, root: Path, redact: Callable[[bytes], bytes] = lambda data: data) -> None:
        self._home = root / ".capsule"
        self._redact = redact

    def folder(self, mission: str) -> Path:
        """The working folder, whether it is there or not."""
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
        except (NotRegular, TooLarge, OSError):
            return ""

    def result_path(self, item: str, phase: str, *, dry: bool = False) -> Path:
        path = self._result(item, phase)
        if dry:
            return path
        _make_folder(path.parent)
        _remove(path)
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
            _remove(path)

    def store(self, mission: str, logs: Mapping[str, str], step: str = "") -> Path:
        place = self._home / "logs" / check_id(mission)
        if (place / _COMPLETE).exists() and not _is_ours(place, step):
            _move_aside(place)
        _make_folder(place.parent)
        _make_folder(place)
        sweep_temps(place)
        write_atomically(place / _UNFINISHED, "")
        write_atomically(place / _STEP, step)
        _copy_outputs(self._outputs(mission), place / "phase-outputs")
        for name, text in sorted(logs.items(), key=lambda paper: paper[0] == _COMPLETE):
            if text or not (place / name).exists():  # what a repetition cannot tell any more was told before
                write_atomically(place / name, self._redact(text.encode(errors="replace")))
        return place

    def has_outputs(self, mission: str) -> bool:
        return bool(self._outputs(mission))

    def _outputs(self, mission: str) -> list[Path]:
        """Find what phases printed: beside the mission, or in its worktree where a phase was run by hand."""
        working, by_hand = self.folder(mission), self._home / "worktrees" / check_id(mission) / ".capsule" / "output"
        found = [*working.glob("outputs/*"), *working.glob("*.log"), *working.glob("*.md")]
        if not by_hand.is_symlink() and not by_hand.parent.is_symlink():
            found += by_hand.glob("*.log*")
        return [file for file in found if file.is_file() and not file.is_symlink()]

    def drop_working_folder(self, mission: str) -> None:
        """Only now is the archive finished: a repetition of the step before this writes the same one again."""
        folder = self.folder(mission)
        if os.path.lexists(folder) and not folder.parent.is_symlink():
            _remove(folder)
        (self._home / "logs" / check_id(mission) / _UNFINISHED).unlink(missing_ok=True)

    def _result(self, item: str, phase: str) -> Path:
        return self._home / "results" / f"phase_result_{check_id(item)}_{check_id(phase)}.json"


def _make_folder(place: Path) -> None:
    """An agent can put a file or a link where our folder was: it is moved into the folder that takes its place."""
    if place.is_dir() and not place.is_symlink():
        return
    aside = place.with_name(f"{place.name}.{_FOUND}")
    if os.path.lexists(place):
        place.rename(aside)
    place.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(aside):
        aside.rename(place / _FOUND)


def _is_ours(place: Path, step: str) -> bool:
    made_by = place / _STEP
    return (place / _UNFINISHED).exists() or (bool(step) and made_by.exists() and made_by.read_text() == step)


def _move_aside(place: Path) -> None:
    """An earlier archive of the same item becomes `<id>/1/`, `<id>/2/`, ...: never deleted."""
    numbers = [int(child.name) for child in place.iterdir() if child.name.isdigit() and child.is_dir()]
    older = place / str(max(numbers, default=0) + 1)
    older.mkdir()
    for child in [child for child in place.iterdir() if not child.name.isdigit()]:
        child.rename(older / child.name)


def _copy_outputs(outputs: Sequence[Path], target: Path) -> None:
    """Hard links where the file system allows it: a gigabyte of output is not written twice."""
    target.mkdir(exist_ok=True)
    for file in outputs:
        kept = target / file.name
        if kept.exists():
            continue
        try:
            os.link(file, kept)
        except OSError:
            shutil.copy2(file, kept, follow_symlinks=False)


def _remove(path: Path) -> None:
    """Remove a file, a link, a pipe or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
