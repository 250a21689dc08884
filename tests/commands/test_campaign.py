"""`capsule run EPIC`: all it holds, as a user sees it. Missions have one agent phase here, to be quick."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capsule.commands.summary import campaign_summary
from capsule.core.event import Advanced, MissionStarted
from capsule.engine.dispatch import RunReport
from capsule.project import open_project

from .conftest import PASS, Project, Said, Turn, assert_clear, nothing_changes, said

pytestmark = pytest.mark.slow

FLOW = """\
description: One agent, then the merge.
phases:
  - {name: prep, role: action, do: prep}
  - {name: make, role: worker, prompt: make, checks: [green]}
  - {name: publish, role: action, do: publish}
  - {name: archive, role: action, do: archive, closing: true}
prompts:
  make: |
    {{#EARLIER_WORK}}
    Before you:
    {{EARLIER_WORK}}
    {{/EARLIER_WORK}}
    Make it. {{SIGNAL_CONTRACT}}
"""


def row(name: str, kind: str = "task", parent: str = "", waits_for: str = "", **fields: Any) -> str:
    edges = [(parent, "parent-child"), (waits_for, "blocks")]
    links = [{"issue_id": name, "depends_on_id": other, "type": edge} for other, edge in edges if other]
    bead = {"id": name, "title": f"The {name}", "status": "open", "issue_type": kind, "dependencies": links} | fields
    return json.dumps(bead) + "\n"


def makes(name: str, **signal: Any) -> dict[str, list[Turn]]:
    commit = f'echo x > {name} && git add {name} && git commit -q -m "$CAPSULE_COMMIT_MSG"'
    return {"make": [{"run": [commit], "signal": {**PASS, "summary": f"made {name}", **signal}}]}


FAILS = {"make": [said("ERROR", "no clay left")]}


class Pottery(Project):
    """An epic of three tasks: the lid waits for the pot, the sign for nobody."""

    def plays(self, **by_item: dict[str, list[Turn]]) -> None:
        self._script.write_text(json.dumps({"lid": makes("lid"), "pot": makes("pot"), "sign": makes("sign")} | by_item))

    def statuses(self) -> dict[str, str]:
        return {bead["id"]: bead["status"] for bead in map(json.loads, self.beads.read_text().splitlines())}


@pytest.fixture
def pottery(a_project: Project) -> Pottery:
    a_project.__class__ = Pottery
    assert isinstance(a_project, Pottery)
    rows = [
        row("kiln", "epic"),
        row("ware", "feature", "kiln"),
        row("lid", parent="ware", waits_for="pot", priority=0),
        row("pot", parent="ware", priority=3),
        row("sign", parent="kiln", priority=4),
        row("bare", "epic"),
    ]
    a_project.write(".capsule/workflows/short.yaml", FLOW)
    a_project.beads.write_text("".join(rows))
    a_project.commit("a campaign")
    a_project.always |= {"CAPSULE_WORKFLOW__DEFAULT": "short", "CAPSULE_TRACKER": "beads-file"}
    a_project.plays()
    return a_project


def summary(answer: Said) -> set[tuple[str, str]]:
    """The rows of a summary: label and text without figures, however wide the column is."""
    rows = (line.strip().partition("  ") for line in answer.out.splitlines())
    return {(label, text.strip().partition(" · ")[0]) for label, _, text in rows}


@pytest.mark.promise("campaigns.epic", "campaigns.progress", "backlog.order")
def test_an_epic_is_run_as_a_whole_from_the_tip_of_main(pottery: Pottery) -> None:
    """Whatever is checked out: the user's own branch stays as it is."""
    pottery.git("switch", "-q", "-c", "mine")
    pottery.commit("not on main", own="own\n")
    answer = pottery.say("run", "kiln")
    assert answer.code == 0, answer
    assert set(pottery.statuses().items()) == {
        *((name, "closed") for name in ("kiln", "ware", "lid", "pot", "sign")), ("bare", "open")
    }  # fmt: skip
    merges = pottery.git("log", "--first-parent", "--merges", "--reverse", "--format=%s", "main").splitlines()
    assert merges == ["Merge pot: The pot", "Merge lid: The lid", "Merge sign: The sign"]
    assert "own" not in pottery.git("ls-tree", "--name-only", "main").split()
    lid, sign = (event for name in ("lid", "sign") for event in pottery.events(name)[:1])
    assert isinstance(lid, MissionStarted) and isinstance(sign, MissionStarted)
    assert lid.base == pottery.head("main~2"), "the main that holds the pot"
    assert [line.split(" (")[0] for line in sign.earlier.splitlines()] == ["- pot The pot", "- lid The lid"]
    said_first = answer.err.splitlines()[:4]
    assert "order:   pot (ready, priority P3), sign (ready, priority P4)" in said_first
    assert "not now: lid (waits for pot (ready))" in said_first
    assert "kiln The kiln: 2 of 3 done\nware The ware: 2 of 2 done\nware The ware is closed: all 2 items" in answer.err
    assert answer.out.splitlines()[0] == "✓ Campaign kiln ended: kiln is done."
    undo = [" ".join(line.split()) for line in answer.out.splitlines() if "revert" in line]
    tips = [pottery.head(tip)[:12] for tip in ("main", "main~1", "main~2")]
    assert undo == [
        f"undo {name}: git revert -m 1 {tip}" for name, tip in zip(("sign", "lid", "pot"), tips, strict=True)
    ]
    assert answer.out.splitlines()[-2:] == ["  kiln  The kiln  3 of 3 done", "  ware  The ware  2 of 2 done"]
    assert pottery.say("run", "kiln").out == "kiln is done: all 2 items it holds are done.\n"


@pytest.mark.promise("campaigns.on-failure")
def test_it_stops_at_the_first_that_fails_and_goes_on_with_it(pottery: Pottery) -> None:
    pottery.plays(pot=FAILS)
    answer = pottery.say("run", "kiln")
    assert answer.code == 2
    head, *rows = answer.out.splitlines()
    assert head == "✗ Campaign kiln ended: pot failed (--on-failure continue keeps going)."
    assert "  failed:    pot: no clay left" in rows
    assert "  not run:   lid: waits for pot (in_progress)" in rows
    assert "  not run:   sign: not started" in rows
    assert [line for line in rows if "capsule" in line] == [
        "  details:   capsule show pot",
        "  next:      capsule answer pot --retry",
    ]
    pottery.plays()
    again = pottery.say("run", "kiln")
    assert again.code == 0, again
    assert "pot resumes" in again.err
    assert "open" not in {status for name, status in pottery.statuses().items() if name != "bare"}


@pytest.mark.promise("campaigns.on-failure")
def test_it_can_go_on_with_what_does_not_depend_on_it(pottery: Pottery) -> None:
    pottery.plays(pot=FAILS, sign=makes("sign", follow_ups=[{"title": "Fire it"}]))
    answer = pottery.say("run", "kiln", "--on-failure", "continue", env={"CAPSULE_CAMPAIGN__FILE_DISCOVERED": "true"})
    assert answer.code == 2
    assert answer.out.startswith("✗ Campaign kiln ended: the rest of kiln cannot be worked on now.\n")
    assert {("done:", "sign: The sign"), ("not run:", "lid: waits for pot (in_progress)")} <= summary(answer)
    now = pottery.statuses()
    assert (now["sign"], now["kiln"], now["lid"]) == ("closed", "open", "open")
    (new,) = now.keys() - {"kiln", "ware", "lid", "pot", "sign", "bare"}
    assert ("follow-ups:", new) in summary(answer)
    assert f"follow-ups filed: {new} Fire it" in answer.err


def test_what_others_have_in_hand_is_not_taken_and_stops_nothing(pottery: Pottery) -> None:
    rows = pottery.beads.read_text().replace('"priority": 3', '"priority": 3, "assignee": "alice"')
    rows = rows.replace('"title": "The pot", "status": "open"', '"title": "The pot", "status": "in_progress"')
    pottery.beads.write_text(rows + row("glaze", parent="kiln", status="in_progress"))
    with nothing_changes(pottery):
        refused = pottery.say("run", "pot")
        assert_clear(refused, 1, "pot is claimed by alice.", "Wait until they finish, or reassign it in the tracker.")
        queue = pottery.say("run", "--dry-run").out.splitlines()
    by_hand = "in progress without a mission; start it: capsule run glaze"
    assert {"pot  not now: claimed by alice", f"glaze  not now: {by_hand}"} <= {*queue}
    answer = pottery.say("run", "kiln")
    assert answer.code == 1
    assert {("done:", "sign: The sign"), ("not run:", "pot: claimed by alice")} <= summary(answer)
    assert ("not run:", f"glaze: {by_hand}") in summary(answer) and "  failed: " not in answer.out
    assert "glaze" not in pottery.git("branch", "--list"), "nobody has begun with it"
    assert pottery.say("run", "glaze", "--dry-run").code == 0, "whoever names it takes it up"


def test_a_mission_between_two_steps_is_ours_and_says_where_it_goes_on(pottery: Pottery) -> None:
    polish = "  - {name: polish, role: worker, prompt: make}\n  - {name: publish,"
    pottery.write(".capsule/workflows/short.yaml", FLOW.replace("  - {name: publish,", polish))
    pottery.commit("two agents")
    answer = pottery.say("run", "ware", "--cap", "1")
    assert answer.out.startswith("‖ Campaign ware ended: cap: 1 of 1 phases used."), answer
    assert pottery.statuses()["pot"] == "in_progress"
    assert pottery.say("run", "kiln", "--dry-run").out.startswith("pot  1. would run: goes on at polish\n")
    assert pottery.say("explain", "pot").out.startswith("pot  next: goes on at polish\n")


def test_a_dry_run_shows_the_order_and_the_first_prompt(pottery: Pottery) -> None:
    with nothing_changes(pottery):
        answer = pottery.say("run", "kiln", "--dry-run")
    assert answer.code == 0
    assert answer.out.splitlines()[:3] == [
        "pot  1. would run: ready, priority P3",
        "lid  2. would run: ready, priority P0",
        "sign  3. would run: ready, priority P4",
    ]
    assert "=== make" in answer.out and "Make it." in answer.out
    assert "3 items, up to 3 agents (retries not counted); cost of earlier missions by short: unknown" in answer.out


@pytest.mark.parametrize(
    ("words", "code", "cause", "what_next"),
    [
        (["run", "bare"], 1, "bare is an epic that holds nothing", "capsule add TITLE --parent bare"),
        (["run", "kiln", "--fresh"], 2, "--fresh starts one task over", "capsule run lid --fresh"),
        (["run", "kiln", "--rebase"], 2, "--rebase rebuilds the work of one task", "capsule run lid --rebase"),
        (["run", "kiln", "--base", "main"], 2, "--base says where one task starts", "capsule run lid --base main"),
        (["run", "kiln", "--into", "nowhere"], 2, "There is no branch nowhere", "git branch"),
        (["run", "pot", "--on-failure", "stop"], 2, "--on-failure is for an item that holds others", "capsule run ID"),
        (["run", "--on-failure", "stop"], 2, "--on-failure is for an item that holds others", "capsule run ID"),
        (["step", "kiln"], 1, "kiln holds other items", "capsule run kiln"),
        (["prep", "kiln"], 1, "kiln holds other items", "capsule prep lid"),
        (["prep", "bare"], 1, "bare holds other items", "There is nothing to work on in it."),
        (["show", "kiln"], 1, "kiln is run as a whole", "`capsule show ID` is for one of lid, pot, sign."),
        (["logs", "ware"], 1, "ware is run as a whole", "`capsule logs ID` is for one of lid, pot."),
        (["show", "bare"], 1, "There is no mission bare", "capsule run bare"),
        (["complete", "kiln"], 1, "kiln holds what is still open: lid, pot, sign.", "capsule run kiln"),
        (["close", "ware", "--reason=no"], 1, "ware holds what is still open: lid, pot.", "close these first"),
    ],
)
def test_what_makes_no_sense_is_refused(
    pottery: Pottery, words: list[str], code: int, cause: str, what_next: str
) -> None:
    with nothing_changes(pottery):
        assert_clear(pottery.say(*words), code, cause, what_next)


def test_an_epic_that_was_closed_over_open_work_is_not_run(pottery: Pottery) -> None:
    pottery.beads.write_text(pottery.beads.read_text().replace('"status": "open"', '"status": "closed"', 1))
    assert_clear(pottery.say("run", "kiln"), 1, "kiln is closed already, and lid is not", "capsule run lid")


def test_what_was_stopped_says_where_once(pottery: Pottery) -> None:
    """The error that follows the summary has the words."""
    progress = [Advanced(at="", item="kiln", title="The kiln", done=1, of=3)]
    report = RunReport(progress=progress, ended_because="Stopped during make", exit_code=130)
    lines = campaign_summary(report, "kiln", open_project(str(pottery.path))).splitlines()
    assert (lines[0], "Stopped" in "".join(lines)) == ("‖ Campaign kiln was stopped.", False)
    assert "  next:      capsule run kiln" in lines


@pytest.mark.promise("commands.next-helps")
def test_an_epic_whose_rest_waits_for_a_person_names_the_command_that_helps(pottery: Pottery) -> None:
    rows = row("kiln", "epic") + row("glaze", parent="kiln", status="blocked") + row("tile", "task", "kiln", "glaze")
    pottery.beads.write_text(rows)
    answer = pottery.say("run", "kiln")
    assert answer.code == 1 and "not run:   tile: waits for glaze (blocked)\n" in answer.out
    assert '  next:      capsule answer glaze --notes "..."\n' in answer.out


def test_what_an_epic_needs_to_move_is_said(pottery: Pottery) -> None:
    ways = {row["id"]: row["to_move_it"] for row in json.loads(pottery.say("explain", "--json").out)}
    assert ways == {
        "kiln": "capsule run kiln runs the items in it",
        "ware": "capsule run ware runs the items in it",
        "bare": "add an item to it: capsule add TITLE --parent bare",
        "lid": "finish pot first, or remove the dependency",
        "pot": "capsule run pot",
        "sign": "capsule run sign",
    }


@pytest.mark.promise("campaigns.containers")
def test_a_feature_that_holds_nothing_is_one_mission(pottery: Pottery) -> None:
    pottery.beads.write_text(row("lone", "feature"))
    answer = pottery.say("run", "lone", "--dry-run")
    assert answer.out.startswith("lone: The lone\nworkflow short, ")
