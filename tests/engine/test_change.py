"""The backlog's workflow is data already: its contract, documents and repeated build walk on the same engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from capsule.core.history import NOBODY, read_mission
from capsule.core.item import Item, Status
from capsule.trackers.memory import MemoryTracker

from .conftest import Scene


def result(phase: str, code: str = "PHASE_COMPLETE", **more: Any) -> dict[str, Any]:
    return {"item_id": "wrk-1", "phase": phase, "result": code, "summary": f"{phase} is done", **more}


def document(phase: str, kind: str, text: str = "# Words\n") -> dict[str, Any]:
    return {"write": {f"changes/WRK-1_say-hello/WRK-1_say-hello_{kind}.md": text}, "result": result(phase)}


BOXES = "- [ ] one\n- [ ] two\n"
SPEC = "changes/WRK-1_say-hello/WRK-1_say-hello_SPEC.md"


def tick(box: str) -> dict[str, Any]:
    return {"edit": [{"file": SPEC, "find": f"- [ ] {box}", "replace": f"- [x] {box}"}]}


IDEA = {"write": {"_ideas/WRK-1_say-hello.md": "# An idea\n"}}
CODE = {"write": {"hello.py": "print('hello')\n"}}
BUILD = [
    {**tick("one"), **CODE, "result": result("build", "SUBPHASE_COMPLETE")},
    {**tick("two"), "result": result("build")},
]


def story(**changes: list[dict[str, Any]]) -> dict[str, Any]:
    clean = {
        "triage": [{"result": result("triage", updated_assessments={"size": "small", "risk": "low"})}],
        "prd": [document("prd", "PRD")],
        "research": [document("research", "TECH_RESEARCH")],
        "design": [document("design", "DESIGN")],
        "spec": [document("spec", "SPEC", BOXES)],
        "build": BUILD,
        "review": [{"result": result("review")}],
    }
    return {"WRK-1": {**clean, **changes}}


def with_item(scene: Scene, **fields: Any) -> None:
    item = Item(id="WRK-1", title="Say hello", status=Status.NEW)
    scene.tracker = MemoryTracker([msgspec.structs.replace(item, **fields), Item(id="WRK-9", title="The same")])
    scene.services = replace(scene.services, tracker=scene.tracker)


@pytest.mark.promise("workflows.backlog", "004-pipeline.all-phases")
def test_an_idea_walks_to_its_archive(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story())
    state = scene.run("WRK-1", "change")
    assert state.finished, scene.moves("WRK-1")
    assert scene.moves("WRK-1") == [
        "triage#1 advance", "idea-research#1 skip", "prd#1 advance", "research#1 advance", "design#1 advance",
        "spec#1 advance", "build#1 repeat", "build#2 advance", "review#1 advance", "archive#1 advance",
    ]  # fmt: skip
    assert state.item.assessment.size == "small"


@pytest.mark.promise("backlog.duplicate")
def test_triage_can_close_a_duplicate_without_another_spawn(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(triage=[{"result": result("triage", duplicate_of="WRK-9")}]))
    state = scene.run("WRK-1", "change")
    assert state.finished
    assert state.closed_as == "duplicate of WRK-9"
    assert scene.moves("WRK-1") == ["triage#1 close", "archive#1 advance"]


@pytest.mark.promise("backlog.already-done")
def test_already_done_waits_for_a_person_unless_it_is_trusted(scene: Scene) -> None:
    with_item(scene)
    done = {"result": result("triage", already_done=True, summary="hello.py:1 says it")}
    scene.plays(story(triage=[done]))
    state = scene.run("WRK-1", "change")
    assert scene.moves("WRK-1") == ["triage#1 park"]
    assert state.halt is not None and state.halt.reason.endswith("hello.py:1 says it")
    scene.run("WRK-1", "change", already_done="trust")
    with_item(scene, id="WRK-2")
    scene.plays({"WRK-2": {"triage": [{"result": {**done["result"], "item_id": "WRK-2"}}]}})
    assert scene.run("WRK-2", "change", already_done="trust").closed_as == "already done: hello.py:1 says it"


@pytest.mark.promise("backlog.built")
def test_a_build_of_nothing_but_ticks_and_comments_is_refuted(scene: Scene) -> None:
    with_item(scene)
    ticks = [
        {**tick("one"), "result": result("build", "SUBPHASE_COMPLETE")},
        {**tick("two"), "result": result("build")},
    ]
    notes = "changes/WRK-1_say-hello/WRK-1_say-hello_NOTES.md"
    papers = {"write": {notes: "Built.\n"}, "result": result("build")}
    built = {"write": {"hello.py": "print('hello')\n"}, "result": result("build")}
    scene.plays(story(build=[*ticks, papers, built]))
    assert scene.run("WRK-1", "change").finished
    assert [move for move in scene.moves("WRK-1") if move.startswith("build")] == [
        "build#1 repeat", "build#2 retry", "build#3 retry", "build#4 advance",
    ]  # fmt: skip
    pieces = [e for event in scene.ended("WRK-1") for e in event.outcome.evidence if e.check == "built"]
    assert [piece.observed for piece in pieces][-1] == "hello.py"
    assert "nothing but documents and comments" in pieces[0].observed


@pytest.mark.promise("backlog.built")
def test_a_last_part_that_only_verifies_may_pass(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story())
    assert scene.run("WRK-1", "change").finished


@pytest.mark.sweep
@pytest.mark.promise("backlog.boxes")
@pytest.mark.parametrize("text", ["", "# Done\n", "- [x] one\n", "<!-- - [ ] one -->\n<!-- - [ ] two -->\n"])
def test_a_spec_that_has_lost_its_boxes_is_not_finished(scene: Scene, text: str) -> None:
    with_item(scene)
    lost = {"write": {SPEC: text, "hello.py": "print('hello')\n"}, "result": result("build")}
    back = {"write": {SPEC: BOXES.replace("[ ]", "[x]")}, "result": result("build")}
    scene.plays(story(build=[lost, back]))
    assert scene.run("WRK-1", "change").finished
    assert [move for move in scene.moves("WRK-1") if move.startswith("build")] == ["build#1 retry", "build#2 advance"]


@pytest.mark.sweep
@pytest.mark.promise("backlog.boxes")
@pytest.mark.parametrize("text", ["# Words\n", "- [x] one\n"])
def test_a_plan_without_open_boxes_is_no_plan(scene: Scene, text: str) -> None:
    with_item(scene)
    scene.plays(story(spec=[document("spec", "SPEC", text), document("spec", "SPEC", BOXES)]))
    assert scene.run("WRK-1", "change").finished
    assert [move for move in scene.moves("WRK-1") if move.startswith("spec")] == ["spec#1 retry", "spec#2 advance"]


@pytest.mark.promise("backlog.duplicate")
def test_a_duplicate_of_nothing_is_refuted(scene: Scene) -> None:
    with_item(scene)
    lie = {"result": result("triage", duplicate_of="WRK-77")}
    scene.plays(story(triage=[lie, {"result": result("triage", duplicate_of="WRK-1")}, *story()["WRK-1"]["triage"]]))
    assert scene.run("WRK-1", "change").finished
    assert scene.moves("WRK-1")[:3] == ["triage#1 retry", "triage#2 retry", "triage#3 advance"]


@pytest.mark.promise("backlog.planning")
def test_a_planning_phase_that_touches_code_is_refuted(scene: Scene) -> None:
    with_item(scene)
    stray = document("prd", "PRD")
    stray["write"] = {**stray["write"], "code.py": "print(1)\n"}
    mended = {**document("prd", "PRD"), "remove": ["code.py"]}
    scene.plays(story(prd=[stray, mended]))
    assert scene.run("WRK-1", "change").finished
    assert scene.moves("WRK-1")[2:4] == ["prd#1 retry", "prd#2 advance"]
    told = scene.ended("WRK-1")[2].decision.feedback
    assert "code.py" in told and "Restore these files" in told


@pytest.mark.promise("decisions.guardrails")
def test_a_guardrail_parks_before_the_next_spawn(scene: Scene) -> None:
    from capsule.core.decide import Guardrails

    with_item(scene)
    levels = {"size": "small", "risk": "high"}
    scene.plays(story(triage=[{"result": result("triage", updated_assessments=levels), **IDEA}]))
    state = scene.run("WRK-1", "change", guardrails=Guardrails(max_risk="low"))
    assert state.halt is not None
    assert state.halt.reason == "risk is high, above the guardrail low"


def test_a_block_parks_with_its_reason(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(design=[{"result": result("design", "BLOCKED", context="Which colour?")}]))
    state = scene.run("WRK-1", "change")
    assert state.halt is not None
    assert (state.halt.phase, state.halt.reason) == ("design", "Which colour?")


def test_a_failure_is_tried_again_with_its_context_and_parks_when_retries_are_gone(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(prd=[{"result": result("prd", "FAILED", context="no idea")}]))
    state = scene.run("WRK-1", "change")
    assert scene.moves("WRK-1")[2:] == ["prd#1 retry", "prd#2 retry", "prd#3 park"]
    assert state.halt is not None


@pytest.mark.promise("convergence.third-time")
def test_a_review_that_asks_for_the_same_a_third_time_needs_a_person(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(review=[{"result": result("review", "FAILED", findings=["Greet by name."])}]))
    state = scene.run("WRK-1", "change")
    assert scene.moves("WRK-1")[-3:] == ["review#1 retry", "review#2 retry", "review#3 park"]
    assert state.halt and state.halt.reason.startswith("R1 was asked for 3 times: “Greet by name.”")
    summary = read_mission(event for _, event in scene.journal.events("WRK-1")).summary(NOBODY, "")
    assert (summary.status.words, summary.next) == ("needs you", 'capsule answer WRK-1 --notes "..."')


@pytest.mark.promise("evidence.more")
def test_a_document_that_was_never_written_is_refuted(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(prd=[{"result": result("prd")}, document("prd", "PRD")]))
    assert scene.run("WRK-1", "change").finished
    assert scene.moves("WRK-1")[2:4] == ["prd#1 retry", "prd#2 advance"]


@pytest.mark.promise("evidence.more")
def test_more_without_a_change_is_refuted_and_open_boxes_are_not_done(scene: Scene) -> None:
    with_item(scene)
    idle = {"result": result("build", "SUBPHASE_COMPLETE")}
    scene.plays(story(build=[idle, {"result": result("build")}, BUILD[0], BUILD[1]]))
    scene.run("WRK-1", "change")
    assert [move for move in scene.moves("WRK-1") if move.startswith("build")] == [
        "build#1 retry", "build#2 retry", "build#3 repeat", "build#4 advance",
    ]  # fmt: skip


@pytest.mark.promise("004-agents.result-file")
def test_a_result_for_another_item_is_no_result(scene: Scene) -> None:
    with_item(scene)
    wrong = {"result": {**result("triage"), "item_id": "WRK-2"}}
    scene.plays(story(triage=[wrong, {"result": result("triage"), **IDEA}]))
    scene.run("WRK-1", "change")
    assert scene.moves("WRK-1")[:2] == ["triage#1 retry", "triage#2 advance"]


def test_the_last_json_in_the_output_serves_where_no_file_was_written(scene: Scene) -> None:
    with_item(scene)
    scene.plays(story(triage=[{"signal": result("triage"), **IDEA}]))
    scene.run("WRK-1", "change")
    assert scene.moves("WRK-1")[0] == "triage#1 advance"
