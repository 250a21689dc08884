"""The real agent CLIs against a scripted model. `make live` gets them and runs this; `make test` leaves it alone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.live.install import PINS, programs, search_path

collect_ignore_glob = [] if os.environ.get("CAPSULE_LIVE") else ["test_*.py"]

# Looked up before any test changes the environment.
_PROGRAMS = {name: programs(name) / name for name in PINS}
_SEARCH_PATH = search_path()
_BUBBLEWRAP = shutil.which("bwrap", path=f"{_SEARCH_PATH}:{os.environ.get('PATH', '')}")


def program(name: str) -> Path:
    """The real CLI; whoever needs one that is not there is skipped, by name."""
    if not _PROGRAMS[name].exists():
        pytest.skip(f"{name} {PINS[name].version} is not installed: see `make live`")
    return _PROGRAMS[name]


@pytest.fixture
def bubblewrap() -> Path:
    if _BUBBLEWRAP is None:
        pytest.skip("bwrap is not installed: see `make live`")
    return Path(_BUBBLEWRAP)
