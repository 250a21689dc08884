"""Killed around every call of bd that a claim and a close are made of, and while bd runs: closed once, when merged.

With the fake bd; `tests/live` does the same with the real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts import fake_bd

from .beads_project import ADAPTERS, make_beads_project
from .beads_stage import Stage, check_complete, check_killed_alone, check_killed_in_a_row, make_stage


@pytest.fixture
def beads_template(tmp_path: Path) -> Path:
    make_beads_project(tmp_path / "template", fake_bd.install(tmp_path / "bin") / "bd")
    return tmp_path / "template"


@pytest.fixture
def stages(beads_template: Path, tmp_path: Path, mark: str) -> dict[str, Stage]:
    return {
        adapter: make_stage(adapter, beads_template, tmp_path / adapter, mark, tmp_path / "bin/bd")
        for adapter in ADAPTERS
    }


def test_killed_at_one_call_after_the_other_it_ends_the_same(
    stages: dict[str, Stage], beads_template: Path, mark: str
) -> None:
    """And at one call alone; in one test, because the stages are what is costly."""
    check_complete(stages)
    check_killed_alone(stages, mark)
    check_killed_in_a_row(stages, beads_template, mark)
