"""Workflows are data, and a faulty one says what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from capsule.catalog import Catalog
from capsule.core.errors import SettingsError
from capsule.core.workflow import Role, parse_workflow
from capsule.engine.steps import unknown_names

WORKER = {"name": "write", "prompt": "w"}


def parsed(*phases: dict[str, Any], **more: Any) -> Any:
    return parse_workflow({"phases": list(phases), **more}, source="flow.yaml", name="flow")


@pytest.mark.promise("004-types.phases")
@pytest.mark.parametrize("name", ["tdd", "change", "refactor", "docs", "tests", "chore"])
def test_the_built_in_workflows_are_sound(name: str) -> None:
    workflow = Catalog().workflow(name)
    assert workflow.phases
    assert unknown_names(workflow) == []


def test_tdd_has_the_five_stages_of_the_pipeline() -> None:
    workflow = Catalog().workflow("tdd")
    assert len(workflow.stages()) == 5
    assert [p.name for p in workflow.phases if p.prompt] == [
        "test-writer", "test-review", "execute", "execute-review", "sign-off", "merge",
    ]  # fmt: skip
    assert workflow.sent_back("sign-off", "execute") == ("execute", "execute-review", "sign-off")
    assert workflow.counter("test-writer") == "test-review"
    assert workflow.retries == 3


@pytest.mark.parametrize(
    ("phases", "cause"),
    [
        ([], "there are no phases"),
        ([WORKER, WORKER], "'write' occurs twice"),
        ([{"name": "x"}], "needs exactly one of prompt, run, do, workflow; it has none"),
        ([{"name": "x", "prompt": "p", "run": "true"}], "it has prompt and run"),
        ([{"name": "x", "prompt": "p", "role": "review"}], "must name the phase it sends back to"),
        ([WORKER, {"name": "x", "prompt": "p", "role": "review", "rework": "y"}], "'y', which is not an earlier phase"),
        ([{"name": "a/b", "prompt": "p"}], "other characters"),
        ([{"name": "x", "prompt": "p", "retries": -1}], "negative retries"),
        ([{"name": "x", "prompt": "p", "escalate": {"after": 0}}], "less than one failure"),
        ([{"name": "x", "prompt": "p", "role": "boss"}], "'x'"),
    ],
)
def test_a_faulty_workflow_names_the_file_and_the_phase(phases: list[dict[str, Any]], cause: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parsed(*phases)
    assert cause in caught.value.message
    assert caught.value.message.startswith("flow.yaml: ")


@pytest.mark.promise("workflows.faulty")
def test_a_mistyped_key_is_told_the_nearest_one() -> None:
    with pytest.raises(SettingsError) as caught:
        parsed({"name": "x", "prompt": "p", "retrys": 1})
    assert caught.value.hint == "Did you mean `retries`?"


def test_something_else_than_a_workflow_is_refused() -> None:
    with pytest.raises(SettingsError):
        parse_workflow(["a"], source="flow.yaml", name="flow")


def test_a_phase_without_a_pair_counts_for_itself() -> None:
    workflow = parsed(WORKER, {"name": "alone", "role": "solo", "prompt": "p"})
    assert workflow.counter("write") == "write"
    assert workflow.phase("alone").role is Role.SOLO
