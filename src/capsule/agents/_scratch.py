"""Make a folder for one agent run only: for its temporary files, and for settings that it litters.

Its name follows from the project and the mission, so that the next run finds what a killed one left, and removes it.
Other users can write to the system's temporary folder: a folder of that name that is not ours is left alone, and
another one is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.files import read_regular, write_atomically
from capsule.system.folders import remove_tree

_LARGEST_BORROWED = 4 * 1024 * 1024


@contextmanager
def private_folder(project: Path, mission: str, temp: str = "") -> Iterator[Path]:
    """Make a folder that only we can enter; remove it at the end."""
    digest = hashlib.sha256(os.fsencode(f"{project.absolute()}\0{mission}")).hexdigest()[:12]
    name, place = f"capsule-{os.getuid()}-{digest}", None
    if Path(temp).is_absolute():
        with contextlib.suppress(OSError):  # an unusable one is no reason to stop
            place = _make(Path(temp) / name)
    try:
        place = place or _make(Path(tempfile.gettempdir()).absolute() / name)
    except OSError as fault:
        hint = "Set TMPDIR to one that can be written."
        raise CapsuleError(f"No folder for temporary files: {fault}.", hint) from None
    try:
        yield place
    finally:
        remove(place)


def _make(place: Path) -> Path:
    remove(place)
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    return place


def remove(place: Path) -> None:
    """Remove a folder of ours with any permissions in it, but no link and no other user's folder."""
    with contextlib.suppress(OSError):
        found = place.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            remove_tree(place)


@contextmanager
def borrowed(source: Path, target: Path, names: Sequence[str], *, returned: Sequence[str] = ()) -> Iterator[Path]:
    """Copy the user's files into a folder of the run's own; copy changed ones in `returned` back."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    seeds = {name: content for name in names if (content := _content((source / name).resolve())) is not None}
    for name, content in seeds.items():
        _put(target / name, content)
    try:
        yield target
    finally:
        for name in returned:
            after = _content(target / name)
            if after is not None and after != seeds.get(name):
                _put((source / name).resolve(), after)


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content, mode=0o600)


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_BORROWED)
    except OSError:
        return None
