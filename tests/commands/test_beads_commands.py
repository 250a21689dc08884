"""The commands that change items, on beads: by the file, and by `bd`; and which of the two it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from capsule.commands.doctor import OLDEST_BD
from capsule.core.errors import CapsuleError
from capsule.core.event import Reopened
from capsule.project import open_project, tracker_name
from capsule.trackers._bd import OLDEST

from ..conftest import Repo
from ..contracts import fake_bd
from .conftest import ITEM, Project, assert_clear, bead, honest, nothing_changes

pytestmark = pytest.mark.slow

# ---- which tracker it is

BY_BD = {".beads/metadata.json": "{}"}
JSONL = {".beads/issues.jsonl": '{"id": "b-1", "title": "A bead"}\n'}
BACKLOG = {"BACKLOG.yaml": "schema_version: 2\nitems: []\n"}


@pytest.mark.parametrize(
    ("files", "bd", "expected"),
    [
        (BY_BD, True, "beads"),
        (BY_BD | JSONL, True, "beads"),
        (BY_BD | JSONL, False, "beads-file"),
        (JSONL, True, "beads-file"),
        (BACKLOG, True, "backlog"),
        (BACKLOG | BY_BD, False, "backlog"),
    ],
)
def test_auto_takes_bd_where_bd_made_the_folder_and_is_there(
    a_repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], bd: bool, expected: str
) -> None:
    assert _chosen(a_repo, tmp_path, monkeypatch, files, bd) == expected


@pytest.mark.parametrize(
    ("files", "bd", "cause", "what_next"),
    [
        (BACKLOG | BY_BD, True, "both BACKLOG.yaml and a .beads", "`tracker: backlog` or `tracker: beads`"),
        (BACKLOG | JSONL, False, "both BACKLOG.yaml and a .beads", "`tracker: backlog` or `tracker: beads-file`"),
        (BY_BD, False, "bd is not on the PATH", "`bd export -o .beads/issues.jsonl`"),
        ({}, True, "This project has no tracker", "`capsule init`, or beads with `bd init`"),
    ],
)
def test_where_it_cannot_be_told_the_question_is_asked(
    a_repo: Repo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    bd: bool,
    cause: str,
    what_next: str,
) -> None:
    with pytest.raises(CapsuleError) as refused:
        _chosen(a_repo, tmp_path, monkeypatch, files, bd)
    assert cause in refused.value.message
    assert what_next in refused.value.hint


def _chosen(repo: Repo, folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], bd: bool) -> str:
    for name, text in files.items():
        repo.write(name, text)
    if bd:
        monkeypatch.setenv("PATH", str(fake_bd.install(folder / "bd")), prepend=os.pathsep)
    return tracker_name(open_project(str(repo.path)))


# ---- by bd


@pytest.fixture
def a_bd_project(a_project: Project, tmp_path: Path) -> Project:
    """The same project; its bead, and an epic that holds it, are kept by `bd`."""
    edge = {"issue_id": ITEM, "depends_on_id": "demo", "type": "parent-child"}
    family = [bead(id="demo", title="The epic", issue_type="epic"), bead(dependencies=[edge])]
    given = tmp_path / "given.jsonl"
    given.write_text("".join(f"{json.dumps(row)}\n" for row in family))
    a_project.beads.unlink()
    program = fake_bd.install(tmp_path / "bd") / "bd"
    for words in (["init", "--prefix=demo"], ["import", "-i", str(given)]):
        subprocess.run([program, *words], cwd=a_project.path, check=True, capture_output=True)
    a_project.always["PATH"] = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return a_project


def test_a_bead_is_added_through_bd_with_all_that_is_known_of_it(a_bd_project: Project) -> None:
    words = ("--type=bug", "--priority=P0", "--parent=demo", "--tag=ui", "--tag=a b", f"--depends-on={ITEM}")
    answer = a_bd_project.say("add", "Check the answer", *words, "--description=-", stdin=b"- twice\n- by hand\n")
    assert (answer.code, answer.out, answer.err) == (0, "demo.1  Check the answer\n", "")
    row = fake_bd.beads(a_bd_project.path)["demo.1"]
    found = {name: row[name] for name in ("title", "description", "issue_type", "priority", "labels")}
    assert found == {
        "title": "Check the answer",
        "description": "- twice\n- by hand",
        "issue_type": "bug",
        "priority": 0,
        "labels": ["ui", "a b"],
    }
    edges = {(edge["type"], edge["depends_on_id"]) for edge in row["dependencies"]}
    assert edges == {("parent-child", "demo"), ("blocks", ITEM)}
    refused = a_bd_project.say("add", "Check it", "--type=wonky")
    assert_clear(refused, 1, "invalid issue type: wonky", "--type is task, bug, feature, epic, or what else")


@pytest.mark.promise("trackers.bd-changes")
def test_what_bd_refuses_is_shown_and_nothing_is_forced(a_bd_project: Project) -> None:
    answer = a_bd_project.say("close", "demo", "--reason=too much")
    assert_clear(answer, 1, f"demo holds what is still open: {ITEM}.", "Complete or close these first")
    assert fake_bd.calls(a_bd_project.path, "close") == [], "we say so ourselves: not every bd would"
    fake_bd.switch(a_bd_project.path, fail={"close": "a gate is shut"})
    answer = a_bd_project.say("close", ITEM, "--reason=too much")
    assert_clear(answer, 1, "a gate is shut", "Nothing is forced")
    assert fake_bd.beads(a_bd_project.path)[ITEM]["status"] == "open"
    fake_bd.switch(a_bd_project.path)
    assert [call["argv"] for call in fake_bd.calls(a_bd_project.path) if "--force" in call["argv"]] == []
    assert fake_bd.beads(a_bd_project.path)["demo"]["status"] == "open"
    assert a_bd_project.say("close", ITEM, "--reason=nobody asks").code == 0
    closed = fake_bd.beads(a_bd_project.path)[ITEM]
    assert (closed["status"], closed["close_reason"]) == ("closed", "nobody asks")
    assert_clear(a_bd_project.say("complete", ITEM), 1, f"{ITEM} is closed already", f"bd reopen {ITEM}")
    assert a_bd_project.say("complete", "demo").out == "demo is completed: The epic\n"


@pytest.mark.promise("commands.undo-merge")
def test_after_its_merge_was_undone_a_bead_is_reopened_by_bd_and_done_again(a_bd_project: Project) -> None:
    a_bd_project.play({name: 2 * turns for name, turns in honest().items()})
    assert a_bd_project.capsule("run", ITEM).code == 0
    undone = a_bd_project.say("undo", ITEM)
    reopen = f"bd reopen {ITEM}"
    assert undone.code == 0 and f"reopen it:  {reopen}\n" in undone.out, undone
    assert_clear(a_bd_project.say("reopen", ITEM), 1, f"{ITEM} is closed in its tracker", f"Reopen it: {reopen}")
    bd = Path(a_bd_project.always["PATH"].split(os.pathsep)[0]) / "bd"
    subprocess.run([bd, "update", ITEM, "--status=open"], cwd=a_bd_project.path, check=True)  # as that does
    again = a_bd_project.capsule("run", ITEM)
    assert again.code == 0 and a_bd_project.answer() == "42", again


def test_a_bead_that_bd_calls_blocked_is_opened_again(a_bd_project: Project) -> None:
    subprocess.run(
        [Path(a_bd_project.always["PATH"].split(os.pathsep)[0]) / "bd", "update", ITEM, "--status=blocked"],
        cwd=a_bd_project.path,
        check=True,
        capture_output=True,
    )
    answer = a_bd_project.say("unblock", ITEM, "--notes=It is 42.")
    assert answer.code == 0, answer
    assert f"{ITEM} is open again: capsule run {ITEM}\n  No mission is waiting for notes, so they were" in answer.out
    row = fake_bd.beads(a_bd_project.path)[ITEM]
    assert (row["status"], [comment["text"] for comment in row["comments"]]) == ("open", ["It is 42."])
    assert_clear(a_bd_project.say("unblock", ITEM), 1, f"{ITEM} is not blocked: it is ready.", "capsule explain")


def test_doctor_names_bd_its_version_and_how_fast_it_is(a_bd_project: Project) -> None:
    def findings() -> dict[str, list[dict[str, Any]]]:
        before = fake_bd.beads(a_bd_project.path)
        checks = json.loads(a_bd_project.say("doctor", "--json").out)["checks"]
        assert fake_bd.beads(a_bd_project.path) == before
        return {name: [each for each in checks if each["name"] == name] for name in ("tracker", "beads")}

    found = findings()
    assert [each["found"] for each in found["tracker"]] == ["beads, with 2 open items"]
    assert found["beads"][0]["found"].startswith("bd 1.0.5 reaches its database, and answers in ")
    fake_bd.install(a_bd_project.path.parent / "bd", version="1.2.1", slow={"show": 2.0})
    found = findings()
    assert (found["tracker"][1]["state"], "1.2.1" in found["tracker"][1]["found"]) == ("warning", True)
    assert found["beads"][0]["state"] == "warning"
    fake_bd.switch(a_bd_project.path, no_database=True)
    found = findings()
    assert (found["tracker"][0]["state"], found["beads"]) == ("wrong", [])
    fake_bd.install(a_bd_project.path.parent / "bd", version="0.30.0")
    checks = {each["name"]: each for each in json.loads(a_bd_project.say("doctor", "--json").out)["checks"]}
    for name, state in (("bd", "warning"), ("tracker", "wrong")):
        assert checks[name]["state"] == state
        assert checks[name]["found"].startswith("bd 0.30.0 is too old: it lacks features that Capsule needs.")
    assert OLDEST_BD == OLDEST


# ---- by the file


def test_a_bead_is_added_to_the_file(a_project: Project) -> None:
    answer = a_project.say("add", "Check it", "--priority=1", "--parent=demo-1.1")
    assert (answer.code, answer.out) == (0, "demo-1.1.1  Check it\n"), answer
    row = json.loads(a_project.beads.read_text().splitlines()[-1])
    assert (row["title"], row["priority"], row["status"]) == ("Check it", 1, "open")


@pytest.mark.parametrize(
    ("words", "code", "cause", "what_next"),
    [
        (
            ["--size=small"],
            2,
            "--size is for a backlog, and this project's tracker is beads-file",
            "--type, --priority",
        ),
        (["--no-commit"], 2, "--no-commit is for a backlog", "nothing is committed"),
        (["--priority=5"], 2, "--priority is '5'; it must be 0 to 4", "0 is the most urgent"),
        (["--parent=demo-1.2"], 1, "no item demo-1.2 to belong to", "Did you mean demo-1.1?"),
        (["--depends-on=demo-1.2"], 1, "no item demo-1.2 to depend on", "Did you mean demo-1.1?"),
    ],
)
def test_what_a_bead_cannot_have_is_refused(
    a_project: Project, words: list[str], code: int, cause: str, what_next: str
) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.say("add", "Check it", *words), code, cause, what_next)


@pytest.mark.parametrize(
    ("words", "what_next"),
    [
        (("advance", ITEM), f"capsule run {ITEM}, or capsule step {ITEM}"),
        (("approve", ITEM), f"capsule unblock {ITEM}, or capsule run {ITEM}"),
        (("triage",), "`capsule run` works through them"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_for_a_backlog_says_so(a_project: Project, words: tuple[str, ...], what_next: str) -> None:
    with nothing_changes(a_project):
        cause = f"`capsule {words[0]}` is for the items of a backlog, and this project's tracker is beads-file."
        assert_clear(a_project.say(*words), 1, cause, what_next)


def test_a_mission_ended_by_hand_with_its_item_is_not_to_be_run_again(a_halted_mission: Project) -> None:
    assert a_halted_mission.say("complete", ITEM).code == 0
    assert a_halted_mission.say("show", ITEM).out.splitlines()[-1] == f"next:       capsule logs {ITEM}"
    a_halted_mission.set_bead(status="open")
    assert a_halted_mission.say("show", ITEM).out.splitlines()[-1] == f"next:       capsule run {ITEM}"


@pytest.mark.promise("processes.answers")
def test_a_mission_that_halted_goes_on_with_the_notes_of_whoever_let_it(a_halted_mission: Project) -> None:
    """The queue leaves it alone until then; what was mended by hand until then is kept."""
    project = a_halted_mission
    last = project.say("status").out.splitlines()[-1]
    assert last == f"✗ {ITEM} failed at execute: the disk is full (capsule answer {ITEM} --retry)"
    (project.worktree / "tests" / "mended").write_text("by hand\n")
    answer = project.say("unblock", ITEM, "--notes=Use the other disk.")
    assert answer.out == f"{ITEM} resumes at execute with your notes: capsule run {ITEM}\n", answer
    event = project.events()[-1]
    assert isinstance(event, Reopened)
    assert event.notes == "Use the other disk."
    assert_clear(project.say("unblock", ITEM), 1, f"{ITEM} is not blocked", f"capsule explain {ITEM}")
    assert f"{ITEM}  next: " in project.say("explain").out
    assert "Use the other disk." in project.say("run", ITEM, "--dry-run").out
    answer = project.capsule("run")
    assert answer.code == 0, answer
    assert (project.answer(), project.status_of()) == ("42", "closed")
    assert project.git("show", "main:tests/mended") == "by hand"
    logs = project.path / ".capsule/logs" / ITEM
    told = (logs / "worklog.md").read_text().partition("### Phase 3: execute")[2].partition("\n### ")[0]
    assert told.count("- Answered by a person: Use the other disk.\n") == 1
    assert "Use the other disk." in (logs / "summary.md").read_text()
