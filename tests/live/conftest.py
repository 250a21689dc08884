"""The real agent CLIs on a scripted model, the real bd, a real browser: for `make live`, no part of `make test`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.commands.conftest import _prepared, a_project
from tests.live.browser import found
from tests.live.install import AXE, BD, PINS, TEMPORAL, axe, bd, programs, search_path, temporal

__all__ = ["_prepared", "a_project"]

collect_ignore_glob = [] if os.environ.get("CAPSULE_LIVE") else ["test_*.py"]

# Looked up before any test changes the environment.
_PROGRAMS = {name: programs(name) / name for name in PINS}
_BD = {version: bd(version) for version in BD}
_TEMPORAL = temporal()
_SEARCH_PATH = search_path()
_CHROMIUM = found()
_AXE = axe()
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


@pytest.fixture
def chromium() -> Path:
    if _CHROMIUM is None:
        pytest.skip("Chromium is not installed: see `make live`")
    return _CHROMIUM


@pytest.fixture
def axe_core() -> str:
    """The script that is run in a page to find faults for people who use it in other ways."""
    if not _AXE.exists():
        pytest.skip(f"axe-core {AXE} is not installed: see `make live`")
    return _AXE.read_text(encoding="utf-8")


def real_bd(version: str) -> Path:
    """bd itself; whoever needs a version that is not there is skipped, by name."""
    if not _BD[version].exists():
        pytest.skip(f"bd {version} is not built: see `make live`")
    return _BD[version]


@pytest.fixture(params=BD, ids=lambda version: f"bd-{version}")
def any_bd(request: pytest.FixtureRequest) -> Path:
    """The real bd of each era."""
    return real_bd(request.param)


def temporal_program(name: str = "temporal-server") -> Path:
    """A program of Temporal's; whoever needs one that is not there is skipped, by name."""
    if not (_TEMPORAL / name).exists():
        pytest.skip(f"{name} {TEMPORAL} is not built: see `make live`")
    return _TEMPORAL / name


@pytest.fixture(scope="session")
def temporal_server_program() -> Path:
    return temporal_program()
