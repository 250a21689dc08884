"""The project's own skills are somebody else's code: an agent that is kept from them is not sent to them either."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from capsule.core.errors import SettingsError
from capsule.project import Project
from capsule.system.git import Git
from capsule.wiring import SKILLS, uses_skills


@pytest.fixture
def a_project_with_skills(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / SKILLS).mkdir(parents=True)
    return tmp_path


def uses(root: Path, **flags: Any) -> bool:
    return uses_skills(Project(Git.find(root), {name.replace("__", "."): value for name, value in flags.items()}, {}))


@pytest.mark.promise("agents.trust")
def test_an_agent_that_is_kept_from_the_projects_settings_is_not_sent_to_its_skills(
    a_project_with_skills: Path,
) -> None:
    assert not uses(a_project_with_skills)
    assert not uses(a_project_with_skills, agent="mine", agents__mine__kind="claude")
    assert uses(a_project_with_skills, agents__claude__trust_project=True)
    assert uses(a_project_with_skills, agent="scripted")
    assert not uses(a_project_with_skills, agent="scripted", skills="never")


def test_whoever_insists_on_skills_is_told_what_is_in_the_way(a_project_with_skills: Path) -> None:
    with pytest.raises(SettingsError, match="kept from finding them") as caught:
        uses(a_project_with_skills, skills="always")
    assert "agents.claude.trust_project" in caught.value.hint
    assert uses(a_project_with_skills, skills="always", agents__claude__trust_project=True)
