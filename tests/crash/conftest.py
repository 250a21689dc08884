"""The undisturbed run that every other is compared with, once for each worker."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from .ending import Ending, check_no_strays, check_papers, ending_of, events_of, names_of
from .project import Project, make_project

EVENTS = ("mission_started", "step_begun", "step_ended", "observed", "proposed", "item_closed")


@dataclass(frozen=True)
class Undisturbed:
    ending: Ending
    events: list[str]
    """The name of each event, by the journal."""
    points: list[str]
    """Every point passed, by the driver: events, calls through doors, effects."""


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
def a_project(template: Callable[[], Path], tmp_path: Path, mark: str) -> Iterator[Callable[[], Project]]:
    """Fresh copies of the project."""
    made: list[Project] = []

    def make() -> Project:
        made.append(Project(template(), tmp_path / f"project-{len(made)}", mark))
        return made[-1]

    yield make


_known: dict[str, Undisturbed] = {}


@pytest.fixture
def undisturbed(a_project: Callable[[], Project], tmp_path: Path, mark: str) -> Undisturbed:
    if not _known:
        project, record = a_project(), tmp_path / "points"
        ran = project.drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
        assert ran.returncode == 0, ran.stderr
        check_no_strays(project, mark)
        check_papers(project)
        points = [line.partition("\t")[0] for line in record.read_text().splitlines()]
        _known["run"] = Undisturbed(ending_of(project), names_of(events_of(project)), points)
        project.remove()
    return _known["run"]
