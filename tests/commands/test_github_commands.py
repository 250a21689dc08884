"""Issues on GitHub from the command line: listed, added, worked on, and closed with the merge."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ..contracts import fake_gh
from ..contracts.fake_gh.hub import Row, new_hub, opened
from ..house.pages import ROOT, Reader
from .conftest import ITEM, Project, assert_clear, honest, said
from .test_campaign import FLOW
from .test_jobs import makes, meets

_MOST_CALLS = 40
"""Of gh in a mission; each takes about a second, and there are 5,000 in an hour."""
HUB = {"number": 1, "title": "Find the answer", "body": "Make it 42.", "labels": ["capsule", "bug", "P1"]}


@pytest.fixture
def a_github_project(a_project: Project, tmp_path: Path) -> Project:
    """The same project; its item is an issue."""
    a_project.beads.unlink()
    a_project.beads.parent.rmdir()
    (tmp_path / "hub.json").write_text(json.dumps(new_hub([HUB, {"number": 2, "title": "A stranger's", "labels": []}])))
    folder = fake_gh.install(tmp_path / "gh", tmp_path / "hub.json")
    settings = "evidence: {test: sh tests/all.sh}\ntracker: {name: github, github: {repository: tester/demo}}\n"
    a_project.write(".capsule/config.yaml", settings)
    a_project.git("add", "-A")
    a_project.git("commit", "-qm", "issues are on GitHub")
    a_project.always["PATH"] = os.pathsep.join([str(folder), os.environ["PATH"]])
    return a_project


def issue(folder: Path, number: int) -> Row:
    with opened(folder / "hub.json") as hub:
        return next(row for row in hub["issues"] if row["number"] == number)


@pytest.mark.promise("trackers.github-closed")
def test_an_issue_is_claimed_worked_on_and_closed_with_its_merge(a_github_project: Project, tmp_path: Path) -> None:
    answer = a_github_project.capsule("run", "GH-1")
    assert answer.code == 0, answer
    assert a_github_project.answer() == "42"
    closed = issue(tmp_path, 1)
    merged = a_github_project.git("rev-parse", "--short=12", "main").strip()
    assert (closed["state"], closed["labels"]) == ("CLOSED", ["capsule", "bug", "P1"])
    (comment,) = closed["comments"]
    assert comment.startswith(f"Merged as {merged}; proven: red (exit code only) · green (exit code only)")
    calls = [" ".join(call[:2]) for call in fake_gh.calls(tmp_path / "hub.json")]
    assert calls.index("issue edit") < calls.index("issue close")
    assert len(calls) <= _MOST_CALLS


@pytest.mark.slow
@pytest.mark.promise("jobs.side-by-side", "trackers.github-closed")
def test_issues_are_worked_on_side_by_side_and_each_is_closed_with_its_merge(
    a_github_project: Project, tmp_path: Path
) -> None:
    """Each agent waits until the other is at work."""
    project, room = a_github_project, tmp_path / "room"
    room.mkdir()
    with opened(tmp_path / "hub.json") as hub:
        next(row for row in hub["issues"] if row["number"] == 2)["labels"].append("capsule")
    project.write(".capsule/workflows/short.yaml", FLOW)
    project.commit("a short workflow")
    project.always["CAPSULE_WORKFLOW__DEFAULT"] = "short"
    project._script.write_text(json.dumps({name: makes(name, meets(room, 2)) for name in ("GH-1", "GH-2")}))
    answer = project.capsule("run", "--jobs", "2")
    assert answer.code == 0, answer
    for number in (1, 2):
        closed = issue(tmp_path, number)
        merged = project.git("log", "--merges", "--format=%h", "--abbrev=12", f"--grep=^Capsule-Mission: GH-{number}$")
        (comment,) = closed["comments"]
        assert (closed["state"], "in-progress" in closed["labels"]) == ("CLOSED", False)
        assert merged and comment.startswith(f"Merged as {merged.strip()}")
        assert (project.path / f"GH-{number}").exists()


@pytest.mark.slow
@pytest.mark.promise("commands.undo-merge")
def test_after_its_merge_was_undone_an_issue_is_reopened_by_gh_and_done_again(
    a_github_project: Project, tmp_path: Path
) -> None:
    a_github_project.play({name: 2 * turns for name, turns in honest().items()})
    assert a_github_project.capsule("run", "GH-1").code == 0
    undone = a_github_project.say("undo", "GH-1")
    reopen = "gh issue reopen 1"
    assert undone.code == 0 and f"reopen it:  {reopen}\n" in undone.out, undone
    assert_clear(a_github_project.say("reopen", "GH-1"), 1, "GH-1 is closed in its tracker", f"Reopen it: {reopen}")
    with opened(tmp_path / "hub.json") as hub:  # as that does
        next(row for row in hub["issues"] if row["number"] == 1)["state"] = "OPEN"
    again = a_github_project.capsule("run", "GH-1")
    assert again.code == 0 and a_github_project.answer() == "42", again


def test_issues_are_listed_added_and_unblocked(a_github_project: Project, tmp_path: Path) -> None:
    listed = a_github_project.say("status")
    assert listed.code == 0 and "GH-1" in listed.out and "GH-2" not in listed.out
    added = a_github_project.say("add", "--type=bug", "--depends-on=GH-1", "--", "Answer $(id)")
    assert (added.code, added.out) == (0, "GH-3  Answer $(id)\n")
    assert issue(tmp_path, 3)["labels"] == ["capsule", "bug"]
    assert "waits for GH-1" in a_github_project.say("explain", "GH-3").out
    with opened(tmp_path / "hub.json") as hub:
        hub["labels"].append("blocked")
        next(row for row in hub["issues"] if row["number"] == 1)["labels"].append("blocked")
    assert_clear(a_github_project.say("run", "GH-1"), 1, "blocked", "capsule answer GH-1")
    assert a_github_project.say("unblock", "GH-1", "--notes", "go").code == 0
    assert (issue(tmp_path, 1)["comments"], "blocked" in issue(tmp_path, 1)["labels"]) == (["go"], False)


def test_the_page_about_it_works(a_github_project: Project) -> None:
    env = a_github_project.environment()
    path = os.pathsep.join([str(Path(sys.executable).parent), env.pop("PATH")])
    reader = Reader(a_github_project.path, PATH=path, **env)
    assert reader.follow((ROOT / "docs/how-to/work-with-github-issues.md").read_text()) > 5


def test_a_mission_that_ends_takes_its_claim_back(a_github_project: Project, tmp_path: Path) -> None:
    a_github_project.play({"test-writer": [said("ERROR", "no")]})
    assert a_github_project.capsule("run", "GH-1").code == 2
    assert "in-progress" in issue(tmp_path, 1)["labels"]
    assert a_github_project.say("abort", "GH-1").code == 0
    assert "in-progress" not in issue(tmp_path, 1)["labels"]


def test_what_issues_cannot_do_is_refused_with_what_helps(a_github_project: Project) -> None:
    say = a_github_project.say
    assert_clear(say("advance", "GH-1"), 1, "for the items of a backlog", "Go on with it: capsule run GH-1")
    assert_clear(say("add", "--size=small", "x"), 2, "--size is for a backlog", "`Depends on #12`")
    assert_clear(say("run", "GH-2"), 2, "it is not labelled capsule", "`gh issue edit 2 --add-label=capsule`")
    assert say("close", "GH-1", "--reason=no").code == 0
    assert "gh issue create --label=capsule" in say("status").out


def test_doctor_says_that_gh_is_missing(a_github_project: Project) -> None:
    answer = a_github_project.say("doctor", "--no-tests", "--json", env={"PATH": "/usr/bin:/bin"})
    found = {check["name"]: check for check in json.loads(answer.out)["checks"]}["tracker"]
    assert (found["state"], "https://cli.github.com" in found["hint"], found["fix"]) == ("missing", True, "")


def test_without_a_tracker_github_is_offered_where_its_issues_could_be_asked_for(
    a_project: Project, tmp_path: Path
) -> None:
    a_project.beads.unlink()
    a_project.beads.parent.rmdir()
    assert "github" not in a_project.say("run", ITEM).err
    a_project.git("remote", "add", "origin", "https://github.com/tester/demo.git")
    folder = fake_gh.install(tmp_path / "gh", tmp_path / "hub.json")
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    assert_clear(a_project.say("run", ITEM, env={"PATH": path}), 2, "no tracker", "Or set `tracker: github`")
    assert fake_gh.calls(tmp_path / "hub.json") == []
