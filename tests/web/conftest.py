"""The situations of the commands' tests, with a page served from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.commands.conftest import (  # noqa: F401 - fixtures
    Project,
    _halted,
    _merged,
    _prepared,
    _prepared_backlog,
    a_backlog,
    a_halted_mission,
    a_merged_mission,
    a_project,
)

from .served import Server, serving, started

Serve = Callable[[Project], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve the page of a project, with its environment; until the test is over."""
    with ExitStack() as stack:

        def served(project: Project) -> Server:
            command = serving(sys.executable, "-c", "")
            return stack.enter_context(started(command, project.path, project.home, project.environment()))

        yield served
