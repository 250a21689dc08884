"""Which workflow an item takes: by flag, tag, type, by its kind of work, and by default."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from capsule.catalog import Catalog
from capsule.core.item import Item
from capsule.project import Project
from capsule.rules import choose_workflow
from capsule.system.git import Git


@pytest.fixture
def a_repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    return tmp_path


def chosen(root: Path, name: str | None = None, settings: dict[str, Any] | None = None, **item: Any) -> str:
    project = Project(Git.find(root), {"tracker": "beads-file", **(settings or {})}, env={})
    return choose_workflow(project, Item(id="x-1", title="t", **item), Catalog.on_disk(root), name).name


@pytest.mark.promise("workflows.kinds")
@pytest.mark.parametrize(
    ("item", "workflow"),
    [
        ({}, "tdd"),
        ({"type": "bug", "tags": ("urgent",)}, "tdd"),
        ({"type": "chore"}, "chore"),
        ({"tags": ("ui", "documentation")}, "docs"),
        ({"tags": ("refactor",), "type": "chore"}, "refactor"),
        ({"tags": ("tests",)}, "tests"),
    ],
)
def test_a_kind_of_work_that_has_nothing_to_make_red_takes_its_own_workflow(
    a_repository: Path, item: dict[str, Any], workflow: str
) -> None:
    assert chosen(a_repository, **item) == workflow


@pytest.mark.promise("workflows.kinds")
def test_flag_and_settings_come_before_the_kind_of_work(a_repository: Path) -> None:
    assert chosen(a_repository, "tdd", tags=("docs",)) == "tdd"
    assert chosen(a_repository, None, {"workflow.by_tag": {"docs": "chore"}}, tags=("docs",)) == "chore"
    assert chosen(a_repository, None, {"workflow.by_type": {"chore": "tdd"}}, type="chore") == "tdd"
    assert chosen(a_repository, None, {"workflow.default": "tdd"}, tags=("docs",)) == "tdd"


def test_an_item_of_a_backlog_is_planned_whatever_its_tags(a_repository: Path) -> None:
    assert chosen(a_repository, None, {"tracker": "backlog"}, tags=("docs",)) == "change"
