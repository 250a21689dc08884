"""Killed around every call of bd that a claim and a close are made of, and while bd runs: closed once, when merged.

With the fake bd; `tests/live` does the same with the real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts import fake_bd

from .beads_project import DOORS, make_beads_project
from .beads_stage import Stage, check_complete, check_killed_alone, check_killed_in_a_row, make_stage


@pytest.fixture(scope="session")
def made() -> dict[str, Stage]:
    return {}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beads-points")


@pytest.fixture
def beads_template(folder: Path) -> Path:
    if not (folder / "template").exists():
        make_beads_project(folder / "template", fake_bd.install(folder / "bin") / "bd")
    return folder / "template"


@pytest.fixture
def stages(made: dict[str, Stage], beads_template: Path, folder: Path, mark: str) -> dict[str, Stage]:
    for door in DOORS:
        if door not in made:
            made[door] = make_stage(door, beads_template, folder / door, mark, folder / "bin/bd")
    return made


def test_killed_at_one_call_after_the_other_it_ends_the_same(
    stages: dict[str, Stage], beads_template: Path, mark: str
) -> None:
    check_complete(stages)
    check_killed_in_a_row(stages, beads_template, mark)


def test_killed_around_one_call_it_goes_on_the_same(stages: dict[str, Stage], mark: str) -> None:
    check_killed_alone(stages, mark)
