"""Every place that names the command for what needs you names the same one, and typing it makes the mission go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from . import conftest
from .backlog_project import BacklogProject, blocked
from .backlog_script import honest, turn
from .conftest import ITEM, Project, Said, Script, said
from .test_accept import a_mission_that_needs_you  # noqa: F401 - a situation of that file
from .test_bad_merges import a_conflict  # noqa: F401 - a situation of that file

LARGE = {"size": "large", "complexity": "low", "risk": "low", "impact": "high"}
IDEA = {"_ideas/WRK-001_find-the-answer.md": "# An idea\n"}


def next_in(card: Said) -> str:
    (command,) = (line.split("next:")[1].strip() for line in card.out.splitlines() if line.lstrip().startswith("next:"))
    return command


def named(project: Project, item: str, card: Said) -> Iterator[tuple[str, str]]:
    """The command for the item, by the place that names it."""
    yield "card", next_in(card)
    yield "show", json.loads(project.say("show", item, "--json").out)["next"]
    (question,) = json.loads(project.say("questions", item, "--json").out)
    yield "questions", question["answers"][0]["command"]
    (explained,) = (each for each in json.loads(project.say("explain", "--json").out) if each["id"] == item)
    yield "explain", explained["to_move_it"]
    (line,) = (line for line in project.say("status").out.splitlines() if line.startswith((f"■ {item} ", f"✗ {item} ")))
    yield "status", line.rpartition(" (")[2].removesuffix(")")
    if isinstance(project, BacklogProject):  # a bead would go on
        again = project.run(item)
        yield "run", again.err.strip().partition("Answer it: ")[2] if again.code == 1 else next_in(again)


def the_only(project: Project, item: str, card: Said) -> str:
    """The one command that all places name."""
    commands = dict(named(project, item, card))
    assert len({*commands.values()}) == 1, commands
    return commands["card"]


def type_it(project: Project, command: str) -> Said:
    program, *words = shlex.split(command.replace('"..."', '"Blue."'))
    assert program == "capsule"
    return project.say(*words)


def halted(project: BacklogProject, script: Script, *words: str) -> Said:
    project.play(script)
    project.add()
    return project.run(*words)


HALTS: dict[str, tuple[Script, str]] = {
    "clarification": (
        honest(prd=[turn("prd", "BLOCKED", context="Which colour?"), *honest()["prd"]]),
        'capsule answer WRK-001 --notes "..."',
    ),
    "decision": (
        honest(triage=[turn("triage", updated_assessments=LARGE, write=IDEA)]),
        "capsule answer WRK-001 --approve",
    ),
    "retries gone": (
        honest(triage=[*[turn("triage", "FAILED", summary="no idea")] * 3, *honest()["triage"]]),
        "capsule answer WRK-001 --retry",
    ),
}


@pytest.mark.promise("commands.next-helps")
@pytest.mark.parametrize("name", HALTS)
def test_a_halted_step_of_a_backlog_goes_on_with_the_command_that_every_place_names(
    a_backlog: BacklogProject, name: str
) -> None:
    script, command = HALTS[name]
    card = halted(a_backlog, script)
    compared = [line.split()[-2:] for line in a_backlog.say("questions").out.splitlines() if "git diff" in line]
    assert all(before != after for before, after in compared), compared
    assert the_only(a_backlog, "WRK-001", card) == command
    assert type_it(a_backlog, command).code == 0
    spawns = a_backlog.spawns()
    assert a_backlog.run().code == 0 and a_backlog.spawns() > spawns


@pytest.mark.promise("commands.next-helps")
def test_a_failure_at_the_end_of_a_backlogs_tdd_goes_on_with_the_command_that_every_place_names(
    a_backlog: BacklogProject,
) -> None:
    """Its item is not blocked, so that a run takes it, and meets the same failure."""
    a_backlog.test = conftest.TESTS
    a_backlog.commit("a green start", **{"tests/test_nothing.sh": "true\n"})
    card = halted(
        a_backlog, conftest.honest(merge=[said("ERROR", "the disk is full"), said("PASS")]), "WRK-001", "--workflow=tdd"
    )
    command = the_only(a_backlog, "WRK-001", card)
    assert command == "capsule answer WRK-001 --retry"
    spawns = a_backlog.spawns()
    assert type_it(a_backlog, command).code == 0
    assert a_backlog.run("WRK-001").code == 0 and a_backlog.spawns() > spawns and a_backlog.ids() == []


@pytest.mark.promise("commands.next-helps")
def test_a_red_gate_is_passed_by_the_command_that_every_place_names(a_backlog: BacklogProject) -> None:
    a_backlog.test = conftest.TESTS
    card = halted(a_backlog, conftest.honest(merge=[said("PASS")]), "WRK-001", "--workflow=tdd")
    assert "base is red" in card.out
    command = the_only(a_backlog, "WRK-001", card)
    assert command == "capsule run WRK-001 --rebase"
    a_backlog.commit("mended", **{"tests/test_nothing.sh": "true\n"})
    assert type_it(a_backlog, command).code == 0 and a_backlog.ids() == []


@pytest.mark.promise("commands.next-helps")
def test_a_failed_bead_goes_on_with_the_command_that_every_place_names(a_halted_mission: Project) -> None:
    command = the_only(a_halted_mission, ITEM, a_halted_mission.say("show", ITEM))
    assert command == f"capsule answer {ITEM} --retry"
    assert type_it(a_halted_mission, command).code == 0
    assert a_halted_mission.say("run").code == 0 and a_halted_mission.answer() == "42"


@pytest.mark.promise("commands.next-helps")
def test_a_refuted_claim_is_accepted_by_the_command_that_every_place_names(
    a_mission_that_needs_you: Project,  # noqa: F811
) -> None:
    project = a_mission_that_needs_you
    command = the_only(project, ITEM, project.say("show", ITEM))
    assert command == f'capsule answer {ITEM} --accept demanded --because "..."'
    assert type_it(project, command).code == 0
    assert project.run().code == 0


@pytest.mark.promise("commands.next-helps")
def test_a_conflict_is_rebuilt_by_the_command_that_every_place_names(a_conflict: Project) -> None:  # noqa: F811
    command = the_only(a_conflict, ITEM, a_conflict.say("show", ITEM))
    assert command == f"capsule run {ITEM} --rebase"
    assert type_it(a_conflict, command).code == 0 and a_conflict.answer() == "42"


# ---- the card of a queue


@pytest.mark.promise("screens.closing-card")
def test_the_card_of_a_queue_names_the_report_and_what_to_type_next(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    card = a_backlog.run()
    assert card.out.startswith("✓ ")
    assert "\n  report:    .capsule/logs/WRK-001/summary.md\n" in card.out
    assert next_in(card) == "capsule show WRK-001"


@pytest.mark.promise("screens.closing-card", "commands.next-helps")
def test_a_queue_in_which_all_waits_for_you_is_no_success(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(), blocked("decision"))
    card = a_backlog.run()
    head, score, *_ = card.out.splitlines()
    assert head.startswith("■ ") and "2 need you" in score
    assert next_in(card) == 'capsule answer WRK-001 --notes "..."'


@pytest.mark.promise("screens.closing-card", "screens.agree")
def test_what_failed_in_an_earlier_run_is_still_called_failed(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.play({"triage": [turn("triage", "FAILED", context="It is dark.")]})
    first, then = a_backlog.run("--max-retries", "0"), a_backlog.run()
    assert [card.out.splitlines()[1].rpartition(" · ")[0] for card in (first, then)] == ["  0 done · 1 failed"] * 2
    assert "1 open item: 1 failed\n" in a_backlog.say().out


def test_a_run_that_reached_its_cap_is_continued_by_the_same_words(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    assert next_in(a_backlog.run("WRK-001", "--cap", "1")) == "capsule run WRK-001"
    assert next_in(a_backlog.run("--cap", "1")) == "capsule run"
