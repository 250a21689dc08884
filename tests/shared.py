"""What tests of several folders need: what is costly to find out, found out by one worker for all of them.

Only for what can be pickled: a project is known to git by its path, so each worker makes its own.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from capsule.agents._cli import Connection
from capsule.settings import AgentOptions
from tests.conftest import UNSANDBOXED

Found = TypeVar("Found")


def found_once(folders: pytest.TempPathFactory, name: str, find: Callable[[], Found]) -> Found:
    """What the first found; the others wait for it. Where that failed, the next one tries."""
    own = folders.getbasetemp()
    file = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"{name}.pickle"
    with file.open("ab+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        if written := kept.read():
            found: Found = pickle.loads(written)
            return found
        found = find()
        pickle.dump(found, kept)
        return found


def settings_of_nobody() -> dict[str, str]:
    """Our environment without settings but that of the sandbox: the tests' own switches would be mistyped ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAPSULE_", "COLUMNS"))}
    return kept | UNSANDBOXED


def a_connection(**about: Any) -> Connection:
    """Everything an agent is made from; what is a setting of agents is given by its own name."""
    options = {name: about.pop(name) for name in AgentOptions.__struct_fields__ if name in about}
    return Connection(options=AgentOptions(**options), **about)
