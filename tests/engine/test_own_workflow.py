"""A workflow of the user's own: gate, condition, close, escalation, child missions. No Python, only data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from capsule.core.item import Item

from .conftest import PASS, Scene, workflow

WORK = {"name": "work", "prompt": "p"}
PUBLISH: list[dict[str, Any]] = [
    {"name": "commit", "role": "action", "run": "git add -A . && git commit -q -m work"},
    {"name": "publish", "role": "action", "do": "publish"},
    {"name": "archive", "role": "action", "do": "archive", "closing": True},
]
PREP = {"name": "prep", "role": "action", "do": "prep"}


def flow(*phases: dict[str, Any], **more: Any) -> Any:
    return workflow(phases=list(phases), prompts={"p": "Work. {{SIGNAL_CONTRACT}}"}, **more)


@pytest.mark.in_git
@pytest.mark.promise("workflows.own")
def test_a_gate_that_fails_sends_back_with_its_output_and_then_passes(scene: Scene) -> None:
    gate = {"name": "gate", "role": "review", "run": "cat a && grep -q right a", "rework": "work"}
    turns = [{"write": {"a": f"{word}\n"}, "signal": PASS} for word in ("wrong", "right")]
    scene.plays({"one": {"work": turns}})
    state = scene.run("one", flow(PREP, WORK, gate, *PUBLISH))
    assert state.finished
    assert scene.moves("one")[1:5] == ["work#1 advance", "gate#1 rework", "work#2 advance", "gate#2 advance"]
    sent_back = next(event for event in scene.ended("one") if event.key == "gate#1")
    assert "wrong" in sent_back.decision.feedback


@pytest.mark.promise("backlog.hooks")
def test_hooks_that_were_not_run_are_no_evidence(scene: Scene) -> None:
    scene.plays({"one": {"work": [{"write": {"src/a.py": "x"}, "signal": PASS}]}})
    scene.run("one", flow(PREP, WORK, *PUBLISH), hooks=True)
    assert "hooks" not in {piece.check for event in scene.ended("one") for piece in event.outcome.evidence}


@pytest.mark.promise("workflows.own")
def test_a_condition_on_changed_files_skips_or_runs(scene: Scene) -> None:
    docs = {"name": "docs", "role": "review", "rework": "work", "run": "true", "when": {"changed": ["docs/**"]}}
    code = {"name": "code", "role": "review", "rework": "work", "run": "true", "when": {"changed": ["*.py"]}}
    scene.plays({"one": {"work": [{"write": {"src/a.py": "x"}, "signal": PASS}]}})
    scene.run("one", flow(PREP, WORK, docs, code))
    assert scene.moves("one")[2:] == ["docs#1 skip", "code#1 advance"]


@pytest.mark.in_git
def test_a_worker_can_close_the_item_and_only_the_closing_phases_follow(scene: Scene) -> None:
    solo = {"name": "work", "prompt": "p", "role": "solo", "may_close": True}
    answer = {"item_id": "one", "phase": "work", "result": "PHASE_COMPLETE", "summary": "in v2", "already_done": True}
    scene.plays({"one": {"work": [{"result": answer}]}})
    state = scene.run("one", flow(PREP, solo, *PUBLISH, contract="result"), already_done="trust")
    assert scene.moves("one")[1:] == ["work#1 close", "archive#1 advance"]
    assert state.closed_as == "already done: in v2"
    assert scene.git("worktree", "list").count("\n") == 0


@pytest.mark.promise("workflows.own")
def test_after_enough_failures_another_agent_tries(scene: Scene) -> None:
    phase = {**WORK, "checks": ["changed"], "escalate": {"after": 1, "agent": "wiser"}}
    scene.plays({"one": {"work": [{"signal": PASS}]}})
    other = scene.script.with_name("wiser.json")
    other.write_text(json.dumps({"one": {"work": [{"write": {"a": "x"}, "signal": PASS}]}}))
    with agent_called(scene, "wiser", str(other)):
        state = scene.run("one", flow(PREP, phase))
    assert state.finished
    assert [(e.key, e.outcome.agent) for e in scene.ended("one")][1:] == [("work#1", "scripted"), ("work#2", "wiser")]


@contextmanager
def agent_called(scene: Scene, name: str, script: str) -> Iterator[None]:
    from msgspec.structs import replace

    from capsule.settings import load_settings
    from capsule.system.process import SupervisorClient
    from capsule.wiring import agent_maker

    flags = {
        "agent": "scripted",
        "agents.scripted.args": [str(scene.script)],
        f"agents.{name}.kind": "scripted",
        f"agents.{name}.args": [script],
    }
    settings = load_settings(scene.root, env={}, flags=flags).settings
    with SupervisorClient() as supervisor:
        scene.services = replace(scene.services, agent=agent_maker(settings, scene.root, supervisor, None))
        yield


@pytest.mark.in_git
@pytest.mark.promise("workflows.own")
def test_a_phase_can_be_child_missions_each_merged_into_the_parents_branch(scene: Scene) -> None:
    parts = [Item(id="x", title="First half"), Item(id="y", title="Second half")]
    scene.tracker.parts = lambda item, phase: parts  # type: ignore[method-assign]
    inner = flow(PREP, WORK, *PUBLISH, name="inner")
    outer = flow(PREP, {"name": "build", "role": "solo", "workflow": "inner"}, *PUBLISH[1:])
    scene.services.words.workflow = lambda name: inner  # type: ignore[method-assign]
    scene.plays(
        {
            "one.build.1": {"work": [{"write": {"a": "1"}, "signal": PASS}]},
            "one.build.2": {"work": [{"run": ["test -e a"], "write": {"b": "2"}, "signal": PASS}]},
        }
    )
    state = scene.run("one", outer)
    assert state.finished, scene.moves("one")
    assert scene.moves("one") == [
        "prep#1 advance", "build#1 repeat", "build#2 advance", "publish#1 advance", "archive#1 advance",
    ]  # fmt: skip
    assert set(scene.git("ls-tree", "--name-only", "main").split()) == {"README.md", "a", "b"}
    assert scene.git("worktree", "list").count("\n") == 0


@pytest.mark.in_git
def test_a_child_that_is_parked_parks_its_parent_and_is_gone_on_with(scene: Scene) -> None:
    work = {**WORK, "checks": ["changed"], "retries": 0, "role": "solo"}
    inner = flow(PREP, work, *PUBLISH, name="inner", contract="result")
    outer = flow(PREP, {"name": "build", "role": "solo", "workflow": "inner"}, *PUBLISH[1:])
    scene.services.words.workflow = lambda name: inner  # type: ignore[method-assign]
    answer = {"item_id": "one.build.1", "phase": "work", "summary": "s"}
    blocked = {"result": {**answer, "result": "BLOCKED", "context": "which one?"}}
    done = {"write": {"a": "1"}, "result": {**answer, "result": "PHASE_COMPLETE"}}
    scene.plays({"one.build.1": {"work": [blocked, done]}})
    state = scene.run("one", outer)
    assert state.halt is not None
    assert "which one?" in state.halt.reason
    assert scene.run("one", outer).finished
    assert scene.moves("one.build.1")[1:3] == ["work#1 park", "work#2 advance"]
