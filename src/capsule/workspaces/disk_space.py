"""Check whether worktrees and gates of more missions fit on the disk.

A mission has the files of the project twice: in its worktree, beside the checkout, and in its gate, in the user's
cache. What a set-up installs and tests build there is not known beforehand; `_BESIDES` stands for it.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from capsule.system.git import Git
from capsule.workspaces.gate import gates_folder

_BESIDES = 200 << 20
_PLENTY = 20 << 30
"""Bytes for one mission, without counting the files."""
_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"))


def disk_shortage(git: Git, env: Mapping[str, str], missions: int = 1) -> str:
    """Return a warning if so many more missions do not fit; '' if they do."""
    free: dict[int, int] = {}
    folders: dict[int, list[Path]] = defaultdict(list)
    for wanted in (git.root, gates_folder(git, env)):
        folder = next(path for path in (wanted, *wanted.parents) if path.exists())
        device = folder.stat().st_dev
        folders[device].append(folder)
        free[device] = shutil.disk_usage(folder).free
    scarce = [device for device in folders if free[device] < _PLENTY * missions]
    one = _size_of_files(git) + _BESIDES if scarce else 0
    for device in scarce:
        need = one * missions * len(folders[device])
        if free[device] < need:
            what = "a mission of this project needs" if missions == 1 else f"{missions} missions of this project need"
            left = f"{_in_words(free[device])} are left on the disk of {folders[device][0]}"
            return f"{left}, and {what} about {_in_words(need)}: `capsule clean` gives back what ended missions hold"
    return ""


def _size_of_files(git: Git) -> int:
    """Sum up what the last commit holds; of a partial clone, what is there."""
    listed = git.content("ls-tree", "-r", "--format=%(objectsize)", git.resolve("HEAD"), ok=(0, 128))
    return sum(int(size) for size in listed.out.split() if size != b"-")  # a submodule has none


def _in_words(size: int) -> str:
    unit, name = next((each for each in _UNITS if size >= each[0]), _UNITS[-1])
    return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size // unit} {name}"
