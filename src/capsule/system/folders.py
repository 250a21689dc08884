"""Folders that strangers filled: opened and removed, whatever rights they gave them."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove whatever stands there, closed folders included; a link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except OSError:
        make_writable(path)
        shutil.rmtree(path)


def make_writable(path: Path) -> None:
    """Open this folder, and every folder below it, to ourselves."""
    path.chmod(stat.S_IRWXU)
    for folder, names, _ in os.walk(path):
        for name in names:
            child = Path(folder, name)
            if not child.is_symlink():
                child.chmod(child.stat().st_mode | stat.S_IRWXU)
