"""Prompts name the documents that are in the tree the phase starts from, and the project's skills where it has them."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from capsule.core.event import MissionStarted
from capsule.core.item import Item
from capsule.core.state import MissionState, Step, apply
from capsule.engine.brief import brief
from capsule.engine.job import Job
from capsule.engine.run_mission import run_until_halt
from capsule.services import Services

from .conftest import Scene

OLD_SPEC = "changes/WRK-1_old-title/WRK-1_old-title_SPEC.md"


def prompt_for(scene: Scene, phase: str, services: Services | None = None) -> str:
    """What the agent of a mission that has not begun would be told."""
    flow = msgspec.structs.replace(scene.services.words.workflow("change"), workspace="worktree")
    item = Item(id="WRK-1", title="Say hello")
    base = scene.git("rev-parse", "HEAD")
    state = apply(
        MissionState(), MissionStarted(at="", mission="WRK-1", item=item, workflow=flow, base=base, into="main")
    )
    job = Job(Step("WRK-1", phase, 1), state, flow.phase(phase), services or scene.services, run_until_halt)
    return brief(job, "", dry=True).prompt


@pytest.fixture
def a_retitled_item(scene: Scene) -> Scene:
    spec = scene.root / OLD_SPEC
    spec.parent.mkdir(parents=True)
    spec.write_text("- [ ] one\n")
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "A spec from before")
    return scene


@pytest.mark.in_git
@pytest.mark.promise("004-names.existing")
def test_a_retitled_item_goes_on_in_the_folder_it_has(a_retitled_item: Scene) -> None:
    prompt = prompt_for(a_retitled_item, "build")
    assert f"`{OLD_SPEC}`" in prompt
    assert "say-hello" not in prompt


def test_a_new_item_is_given_a_folder_by_its_title(scene: Scene) -> None:
    assert "`changes/WRK-1_say-hello/WRK-1_say-hello_PRD.md`" in prompt_for(scene, "prd")


def test_skills_are_invoked_only_where_the_world_has_them(scene: Scene) -> None:
    call = "/changes:2-design:design changes/WRK-1_say-hello autonomous medium"
    assert call in prompt_for(scene, "design", replace(scene.services, skills=True))
    assert call not in prompt_for(scene, "design")
