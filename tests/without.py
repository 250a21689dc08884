"""A PATH on which one program is missing: `python3 -m tests.without bwrap make test`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def path_without(program: str, folder: Path) -> str:
    """Return our PATH; a directory that has `program` is replaced by links, made below `folder`, to all else in it."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for position, entry in enumerate(entries):
        if (Path(entry) / program).exists():
            stand_in = folder / str(position)
            stand_in.mkdir(parents=True)
            for other in Path(entry).iterdir():
                if other.name != program:
                    (stand_in / other.name).symlink_to(other)
            entries[position] = str(stand_in)
    return os.pathsep.join(entries)


def main(program: str, command: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="capsule-without-") as folder:
        path = path_without(program, Path(folder).resolve())
        return subprocess.run(command, env={**os.environ, "PATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
