"""A PATH on which one program is missing."""

from __future__ import annotations

import os
from pathlib import Path


def path_without(program: str, folder: Path, path: str = "") -> str:
    """Return our PATH or the one given; where a directory has `program`, one of links to all else, below `folder`."""
    entries = (path or os.environ.get("PATH", os.defpath)).split(os.pathsep)
    for position, entry in enumerate(entries):
        if (Path(entry) / program).exists():
            stand_in = folder / str(position)
            stand_in.mkdir(parents=True)
            for other in Path(entry).iterdir():
                if other.name != program:
                    (stand_in / other.name).symlink_to(other)
            entries[position] = str(stand_in)
    return os.pathsep.join(entries)
