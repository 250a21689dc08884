"""A review that goes round in circles needs a person; one that finds something else in each round does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from capsule.adapters import Order
from capsule.core.briefing import Briefing, Transcript
from capsule.core.history import NOBODY, MissionSummary, read_mission
from capsule.core.state import MissionState
from capsule.engine.run_mission import run_until_halt
from tests.engine.test_tdd import CODE, OK, SENT_BACK, story

from .conftest import PASS, Scene

AT = "2026-01-05T09:00:00Z"


def sends_back(*findings: str | dict[str, str]) -> dict[str, Any]:
    """A turn of a reviewer that lists what has to change."""
    return {"signal": {**PASS, "status": "NEEDS_WORK", "feedback": "Not yet.", "findings": list(findings)}}


def does(**answer: str) -> dict[str, Any]:
    return {**CODE, "signal": {**PASS, "summary": "greeted", "findings": [answer] if answer else []}}


def seen(scene: Scene) -> MissionSummary:
    return read_mission(event for _, event in scene.journal.events("one")).summary(NOBODY, AT)


def reviews(scene: Scene) -> list[str]:
    return [move for move in scene.moves("one") if move.startswith("execute-review")]


@pytest.mark.promise("convergence.third-time", "convergence.told")
@pytest.mark.parametrize("turn", [sends_back("Greet by name."), SENT_BACK], ids=["listed", "in words"])
def test_the_same_finding_a_third_time_needs_a_person(scene: Scene, turn: dict[str, Any]) -> None:
    scene.plays(story(execute=[CODE, *[does()] * 3], execute_review=[turn] * 4))
    state = scene.run("one", "tdd")
    assert reviews(scene) == ["execute-review#1 rework", "execute-review#2 rework", "execute-review#3 park"]
    assert state.halt and state.halt.exit_code == 1
    assert state.halt.reason == "R1 was asked for 3 times: “Greet by name.”; execute answered “greeted”"
    summary = seen(scene)
    assert summary.status.words == "needs you"
    assert summary.next == 'capsule answer one --notes "..."'
    worklog = scene.services.place("one", "").worklog()
    assert "- Finding R1 (open, asked 3 times): Greet by name." in worklog


@pytest.mark.promise("convergence.taken-back")
def test_a_review_that_takes_back_what_was_done_needs_a_person(scene: Scene) -> None:
    undo = sends_back({"id": "R1", "status": "withdrawn", "text": "Nobody has a name."}, "Say hello to all.")
    scene.plays(story(execute=[CODE, does(id="R1", status="resolved", text="By name now.")], execute_review=[
        sends_back("Greet by name."), undo,
    ]))  # fmt: skip
    state = scene.run("one", "tdd")
    assert reviews(scene) == ["execute-review#1 rework", "execute-review#2 park"]
    assert state.halt and state.halt.reason == (
        "R1 is taken back: it asked for “Greet by name.”, now it says “Nobody has a name.”; "
        "execute answered “By name now.”"
    )
    assert seen(scene).status.words == "needs you"


@pytest.mark.promise("convergence.honest", "convergence.ids")
def test_a_review_that_converges_in_three_rounds_is_merged(scene: Scene) -> None:
    second = sends_back({"id": "R1", "status": "resolved"}, "Mind an empty name.")
    third = sends_back({"id": "R2", "status": "resolved"}, "Mind a long name.")
    scene.plays(story(execute=[CODE, *[does()] * 3], execute_review=[sends_back("Greet."), second, third, OK]))
    assert scene.run("one", "tdd").finished
    assert reviews(scene)[-1] == "execute-review#4 advance"
    assert [(phase, each.id, each.status, each.asked) for phase, each in seen(scene).findings] == [
        ("execute-review", "R1", "resolved", 1),
        ("execute-review", "R2", "resolved", 1),
        ("execute-review", "R3", "resolved", 1),
    ]


@pytest.mark.promise("convergence.afresh")
def test_a_person_who_answers_starts_the_counts_afresh(scene: Scene) -> None:
    turn = sends_back("Greet by name.")
    scene.plays(story(execute=[CODE, *[does()] * 8], execute_review=[*[turn] * 5, OK]))
    state = scene.run("one", "tdd")
    assert state.halt
    state = going_on(scene, state, "By first name.")
    assert state.finished, scene.moves("one")
    assert reviews(scene)[3:] == ["execute-review#4 rework", "execute-review#5 rework", "execute-review#6 advance"]
    assert [each.asked for _, each in seen(scene).findings] == [5]


def going_on(scene: Scene, state: MissionState, notes: str) -> MissionState:
    order = Order(
        mission="one",
        item=scene.tracker.item("one"),
        workflow=state.workflow,
        base=state.base,
        into="main",
        policy=state.policy,
    )
    return run_until_halt(replace(order, notes=notes), scene.services)


@pytest.mark.promise("convergence.ids", "convergence.afresh")
def test_each_agent_is_told_what_it_has_to_answer(scene: Scene) -> None:
    told = dict[str, str]()

    def write_down(briefing: Briefing, _: Transcript) -> None:
        told[f"{briefing.phase}#{briefing.run}"] = briefing.prompt

    turn = sends_back({"text": "Greet by name.", "file": "hello"})
    scene.plays(story(execute=[CODE, *[does(id="R1", status="declined", text="No names.")] * 4], execute_review=[
        *[turn] * 3, OK,
    ]))  # fmt: skip
    scene.services = replace(scene.services, recorder=lambda *_: write_down)
    state = scene.run("one", "tdd")
    assert "### Findings" in told["execute-review#1"] and "So Far" not in told["execute-review#1"]
    assert "### Findings" not in told["execute#1"]
    assert "Not yet.\n\n- R1 (open, asked 1 time) in hello: Greet by name." in told["execute#2"]
    listed = "- R1 (open, asked 1 time) in hello: Greet by name.\n  execute says: No names."
    assert listed in told["execute-review#2"].partition("## Your Findings So Far")[2]
    going_on(scene, state, "Names are wanted.")
    findings, feedback = told["execute-review#4"].split("## Previous Feedback")
    assert "asked 3 times" in findings and "Names are wanted." in feedback
