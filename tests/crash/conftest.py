"""The undisturbed run that every other is compared with, once for each worker."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.shared import found_once

from ..git_server import run
from .ending import Ending, check_no_strays, check_papers, ending_of, events_of, names_of
from .project import ITEM, Project, make_project, outside, server_of

EVENTS = ("mission_started", "step_begun", "step_ended", "observed", "proposed", "item_closed")


@dataclass(frozen=True)
class Undisturbed:
    ending: Ending
    events: list[str]
    """The name of each event, by the journal."""
    points: list[str]
    """Every point passed, by the driver: events, calls through adapters, effects."""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    @cache
    def make() -> Path:
        path = tmp_path_factory.mktemp("crash") / "template"
        make_project(path)
        return path

    return make


@pytest.fixture
def mark() -> str:
    """What every process of this test carries in its environment."""
    return secrets.token_hex(8)


@pytest.fixture
def a_project(template: Callable[[], Path], tmp_path: Path, mark: str) -> Callable[[], Project]:
    """Fresh copies of the project."""
    numbers = count()
    return lambda: Project(template(), tmp_path / f"project-{next(numbers)}", mark)


MakeProject = Callable[[], Project]


@pytest.fixture(scope="session")
def templates() -> dict[str, Path]:
    """What the first test made for those after it."""
    return {}


@pytest.fixture
def hosted(
    templates: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mark: str
) -> Callable[..., MakeProject]:
    """Copies of a project, each with a server of its own; `prepare` gets each of them."""
    numbers = count()

    def copies(
        make: Callable[[Path], None], prepare: Callable[[Project], None], kind: type[Project] = Project
    ) -> MakeProject:
        if make.__name__ not in templates:
            template = tmp_path_factory.mktemp("hosted") / "template"
            make(template)
            server = outside(template) / "server.git"
            run("clone", "-q", "--bare", str(template), str(server))
            run("config", "core.logAllRefUpdates", "always", cwd=server)
            run("remote", "add", "origin", "somewhere", cwd=template)
            templates[make.__name__] = template

        def copy() -> Project:
            project = kind(templates[make.__name__], tmp_path / f"project-{next(numbers)}", mark)
            project.git("remote", "set-url", "origin", str(server_of(project)))
            prepare(project)
            return project

        return copy

    return copies


@pytest.fixture(scope="session")
def memory() -> dict[str, Undisturbed]:
    """What one test found out for those after it; a home that nobody can reach is there only within a test."""
    return {}


@pytest.fixture
def undisturbed(
    memory: dict[str, Undisturbed],
    a_project: Callable[[], Project],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    mark: str,
) -> Undisturbed:
    def find() -> Undisturbed:
        project, record = a_project(), tmp_path / "points"
        ran = project.drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
        assert ran.returncode == 0, ran.stderr
        check_no_strays(project, mark)
        check_papers(project)
        points = [line.partition("\t")[0] for line in record.read_text().splitlines()]
        found = Undisturbed(ending_of(project), names_of(ITEM, events_of(project)), points)
        project.remove()
        return found

    if not memory:
        memory["run"] = found_once(tmp_path_factory, "undisturbed", find)
    return memory["run"]
