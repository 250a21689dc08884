"""A mission is killed around its claim: as it is taken, renewed, kept for people, noted before a push, and released.

Afterwards the same clone goes on: the item is merged once, each agent has worked as often as without a kill, and the
claim is gone. Or another clone has taken the item over meanwhile: then its claim stays as it is, and nothing more is
merged.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from capsule.core.claim import Holder, as_message, new_claim

from ..git_server import moves_of, run
from .conftest import MakeProject
from .ending import check_no_strays, ending_of, gone_soon
from .project import DIARY, ITEM, Project, make_project, server_of

MAIN = "refs/heads/main"
CLAIM = f"refs/capsule/claims/{ITEM}"
RENEWED_AFTER = "2"
"""Seconds; a claim lasts three times as long."""


class Moment(NamedTuple):
    """A push of the claim."""

    push: str
    halts: bool = False
    """The sign-off fails at first, so that the item needs a person."""
    slow: bool = False
    """The sign-off takes longer than the time after which a claim is renewed."""


MOMENTS = {
    "taken": Moment("outside git.push 1"),
    "renewed": Moment(f"{ITEM}/sign-off#1 git.push 1", slow=True),
    "kept": Moment(f"{ITEM}/sign-off#1 git.push 1", halts=True),
    "noted": Moment(f"{ITEM}/publish#1 git.push 1"),
    "released": Moment(f"{ITEM}/archive#1 git.push 1"),
}
OTHERS = [f"{ITEM}/publish#1 git.push 2", f"{ITEM}/publish#1 git.push 3"]
"""Pushes of the work and of main, which have tests of their own (test_remote_points.py)."""


def make_claimed(path: Path) -> None:
    """Its agents note what they begin."""
    make_project(path)
    script = json.loads((path / "script.json").read_text())
    for turns in script[ITEM].values():
        for turn in turns:
            turn["run"].insert(0, f'echo "$CAPSULE_PHASE" >> "${DIARY}"')
    (path / "script.json").write_text(json.dumps(script))
    subprocess.run(["git", "commit", "-qam", "its agents take notes"], cwd=path, check=True)


@pytest.fixture
def a_project(hosted: Callable[..., MakeProject]) -> MakeProject:
    return hosted(make_claimed, lambda project: project.allow(CAPSULE_MERGE__TO="remote"))


def staged(project: Project, moment: Moment) -> Project:
    """Have the sign-off take its time, or fail at first; the script is not part of what is compared."""
    file = project.outside / "script.json"
    script = json.loads((project.path / "script.json").read_text())
    signs_off = script[ITEM]["sign-off"]
    if moment.halts:
        fails = json.loads(json.dumps(signs_off[0]))
        fails["signal"] |= {"status": "ERROR", "feedback": "the disk is full"}
        signs_off.insert(0, fails)
    if moment.slow:
        signs_off[0]["run"].append(f"sleep $(({RENEWED_AFTER} + 2))")
        project.allow(CAPSULE_MERGE__CLAIM_MINUTES=str(int(RENEWED_AFTER) * 3 / 60))
    file.write_text(json.dumps(script))
    project.allow(CAPSULE_AGENTS__SCRIPTED__ARGS=json.dumps([str(file)]))
    return project


def finished(project: Project, moment: Moment) -> None:
    """Run it to its end; where it halts first, a person runs it again."""
    ran = project.run()
    if moment.halts and ran.returncode == 2:
        ran = project.run()
    closed_before = "is closed already" in ran.stderr
    assert ran.returncode == 0 or closed_before, ran.stderr


@pytest.mark.promise("claims.killed")
def test_every_push_of_a_claim_has_its_points(a_project: MakeProject, tmp_path: Path) -> None:
    passed = {}
    for name in ("taken", "renewed", "kept"):
        record = tmp_path / name
        staged(a_project(), MOMENTS[name]).drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
        points = [line.partition("\t")[0] for line in record.read_text().splitlines()]
        passed[name] = [point.removeprefix("before ") for point in points if "git.push" in point and "before" in point]
    named = {name: moment.push for name, moment in MOMENTS.items()}
    assert passed["taken"] == [named["taken"], named["noted"], *OTHERS, named["released"]]
    assert passed["kept"] == [named["taken"], named["kept"]]
    assert named["renewed"] in passed["renewed"]


@pytest.mark.promise("claims.killed", "remote.once")
@pytest.mark.parametrize("name", MOMENTS)
def test_killed_around_its_claim_an_item_is_worked_on_and_merged_once(
    a_project: MakeProject, mark: str, name: str
) -> None:
    moment, undisturbed = MOMENTS[name], staged(a_project(), MOMENTS[name])
    finished(undisturbed, moment)
    expected = ending_of(undisturbed)
    for side in ("before", "after"):
        project = staged(a_project(), moment)
        killed = project.drive(CRASH_AT=f"{side} {moment.push}", CRASH_EFFECTS="1")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert gone_soon(mark)
        finished(project, moment)
        check_no_strays(project, mark)
        assert merges(project) == 1 and run("for-each-ref", CLAIM, cwd=server_of(project)) == ""
        again = ["sign-off"] if name == "renewed" else []  # what was under way begins anew
        assert agents(project) == agents(undisturbed) + Counter(again)
        found = ending_of(project)
        assert (found.tree, found.commits, found.refs) == (expected.tree, expected.commits, expected.refs)
        assert (found.ended, found.issues, found.worktrees) == (expected.ended, expected.issues, expected.worktrees)
        project.remove()


@pytest.mark.promise("claims.killed", "claims.late")
@pytest.mark.parametrize("name", MOMENTS)
def test_killed_around_its_claim_it_leaves_that_of_another_clone_alone(
    a_project: MakeProject, mark: str, name: str
) -> None:
    moment = MOMENTS[name]
    for side in ("before", "after"):
        project = staged(a_project(), moment)
        killed = project.drive(CRASH_AT=f"{side} {moment.push}", CRASH_EFFECTS="1")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert gone_soon(mark)
        merged, theirs, worked = merges(project), taken_over(project), agents(project)
        ran = project.run()
        assert "is worked on by another" in ran.stderr if name != "released" else not ran.returncode, ran.stderr
        assert run("rev-parse", CLAIM, cwd=server_of(project)) == theirs
        assert merges(project) == merged == (name == "released")
        assert agents(project) == worked
        project.remove()


def merges(project: Project) -> int:
    return len(moves_of(server_of(project), MAIN))


def agents(project: Project) -> Counter[str]:
    return Counter(project.diary.read_text().split())


def taken_over(project: Project) -> str:
    """Another clone takes the item over."""
    claim = new_claim(ITEM, Holder("another", "another", "token"), "2026-11-19T12:00:00Z", "2199-01-01T00:00:00Z")
    server = server_of(project)
    tree = subprocess.run(["git", "mktree"], cwd=server, input=b"", capture_output=True, check=True).stdout.decode()
    commit = run("commit-tree", tree.strip(), "-m", as_message(claim), cwd=server)
    run("update-ref", CLAIM, commit, cwd=server)
    return commit
