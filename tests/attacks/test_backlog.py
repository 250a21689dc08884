"""The same for a backlog: an agent changes its own work and nothing else, killed or not, by hand or by `capsule`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from ..commands.backlog_project import BacklogProject
from ..commands.backlog_script import honest, turn
from ..commands.conftest import Script
from ..conftest import UNSANDBOXED
from .attacks import BATCHES
from .conftest import IN_ITS_PLACE, LEAVING, Evil, differing, git_folder

CAPSULE = f'"{sys.executable}" -m capsule'
MAIN_MOVES = {
    "COMMIT_EDITMSG",
    "ORIG_HEAD",
    "index",
    "info/exclude",
    "logs/HEAD",
    "logs/refs/heads/main",
    "refs/heads/main",
}
TWO = ({"title": "Find the answer"}, {"title": "Another"})
KEY = "-----BEGIN " + "EC PRIVATE KEY-----\n"
FORGED = "sed -i '/WRK-002/,$ s/status: .*/status: done/' BACKLOG.yaml"


def building(run: list[str], **more: Any) -> list[dict[str, Any]]:
    """An agent of `build` that does this besides its work, and then the rest of it."""
    first, last = honest()["build"]
    return [{**first, "run": run, **more}, last]


def killed(project: BacklogProject, done: Path, *words: str, **env: str) -> None:
    """A run that is killed when its agent has done what it had to do."""
    process = subprocess.Popen(
        [sys.executable, "-m", "capsule", "run", *words],
        cwd=project.path,
        env=project.environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(SIGKILL)
    process.wait(30)
    assert done.exists()


@pytest.mark.promise("attacks.planted")
@pytest.mark.parametrize("batch", ["settings", "attributes", "hooks", "refs", "index flags", "locks", "our own files"])
def test_an_agent_that_stays_in_its_place_changes_no_byte_of_the_users_git(
    a_backlog: BacklogProject, evil: Evil, level: dict[str, str], batch: str
) -> None:
    a_backlog.hold(TWO[0])
    before = git_folder(a_backlog.path)
    scripts = evil.scripts(a_backlog.path, BATCHES[batch], IN_ITS_PLACE)
    a_backlog.play(honest(build=building([*scripts, "rm -f .gitattributes"])))
    answer = a_backlog.capsule("run", "WRK-001", env=level)
    assert answer.code == 0, answer
    assert differing(before, git_folder(a_backlog.path)) <= MAIN_MOVES
    assert evil.have_run() == {}
    assert a_backlog.git("show", "main:answer") == "42"
    a_backlog.fsck()


@pytest.mark.promise("attacks.planted")
@pytest.mark.parametrize("batch", ["settings", "attributes", "hooks", "pipes", "our own files"])
def test_without_a_sandbox_one_that_leaves_it_is_parked(a_backlog: BacklogProject, evil: Evil, batch: str) -> None:
    a_backlog.hold(TWO[0])
    scripts = evil.scripts(a_backlog.path, BATCHES[batch], LEAVING)
    a_backlog.play(honest(build=building(scripts)))
    answer = a_backlog.capsule("run", "WRK-001", env=UNSANDBOXED)
    assert answer.code == 1, answer
    assert a_backlog.moves()[-1] == "build park"
    reason = " ".join(str(a_backlog.events()[-1]).split()) + answer.out
    assert "Quarantined" in reason
    assert evil.have_run() == {}


@pytest.mark.promise("attacks.forged")
def test_what_is_not_its_work_is_dropped_and_told_in_one_line(a_backlog: BacklogProject, level: dict[str, str]) -> None:
    a_backlog.hold(*TWO)
    a_backlog.write("changes/WRK-002_another/WRK-002_another_PRD.md", "theirs\n")
    a_backlog.commit("another's")
    wrong = [
        FORGED,
        "mkdir -p _worklog; echo forged > _worklog/forged.md",
        "echo 'evidence: {test: true}' >> .capsule/config.yaml",
        "echo mine > changes/WRK-002_another/WRK-002_another_PRD.md",
    ]
    a_backlog.play(honest(build=building(wrong)))
    answer = a_backlog.capsule("run", "WRK-001", env=level)
    assert answer.code == 0, answer
    assert a_backlog.item("WRK-002").status != "done"
    assert a_backlog.git("show", "main:changes/WRK-002_another/WRK-002_another_PRD.md") == "theirs"
    assert "forged" not in a_backlog.git("ls-tree", "-r", "--name-only", "main")
    assert "test: true" not in a_backlog.git("show", "main:.capsule/config.yaml")
    told = [line for line in (answer.out + answer.err).splitlines() if "were dropped" in line]
    assert len(told) == 1, answer


@pytest.mark.promise("attacks.unfit")
@pytest.mark.parametrize("bad", [{"write": {"key.pem": KEY}}, {"run": ["ln -s /etc out"]}], ids=["a key", "a link out"])
def test_what_must_not_be_merged_is_not_committed_either(a_backlog: BacklogProject, bad: dict[str, Any]) -> None:
    a_backlog.hold(TWO[0])
    first, last = honest()["build"]
    clean = {**first, "run": ["rm -f key.pem out"]}
    spoiled = {**first, **bad, "write": {**first["write"], **bad.get("write", {})}}
    a_backlog.play(honest(build=[spoiled, clean, last]))
    answer = a_backlog.capsule("run", "WRK-001")
    assert answer.code == 0, answer
    assert "build retry" in a_backlog.moves()
    assert "PRIVATE" not in a_backlog.git("log", "-p", "main")
    assert not {"out", "key.pem"} & set(a_backlog.git("log", "--name-only", "--format=", "main").split())


def another() -> Script:
    """What the agents of WRK-002 do: the same in files of their own."""
    script = honest("WRK-002", "another")
    own = {"answer": "other", "question": "more"}
    for played in script["build"]:
        played["write"] = {own.get(name, name): text for name, text in played["write"].items()}
    return script


@pytest.mark.promise("attacks.forged")
def test_a_forged_done_is_believed_by_no_later_run(a_backlog: BacklogProject, level: dict[str, str]) -> None:
    """The run is killed; the next ones archive nothing that no agent has worked on."""
    a_backlog.hold(*TWO)
    forged = f"{FORGED}; grep -q 'status: done' BACKLOG.yaml && touch .capsule/done; sleep 60"
    a_backlog.play(honest(build=building([forged])))
    done = a_backlog.path / ".capsule" / "worktrees" / "WRK-001" / ".capsule" / "done"
    killed(a_backlog, done, "WRK-001", **level)
    a_backlog.play(honest())
    answer = a_backlog.capsule("run", "WRK-001", env=level)
    assert answer.code == 0, answer
    assert a_backlog.ids() == ["WRK-002"]
    assert a_backlog.item("WRK-002").status != "done"
    assert a_backlog.spawns("WRK-002") == 0
    a_backlog.play(another(), "WRK-002")
    answer = a_backlog.capsule("run", env=level)
    assert answer.code == 0, answer
    agents = [played for phase, turns in another().items() for played in turns if phase != "idea-research"]
    assert a_backlog.spawns("WRK-002") == len(agents), "a small item skips idea-research, and nothing else"


@pytest.mark.promise("attacks.locks-and-moves")
def test_a_killed_run_with_dirty_files_and_a_higher_item_in_progress_goes_on(
    a_backlog: BacklogProject, level: dict[str, str]
) -> None:
    """The item that ranks higher is further on; whichever item comes next, no run refuses."""
    a_backlog.hold(*TWO)
    a_backlog.play(honest(prd=[turn("prd", run=["echo dirt > dirt; touch .capsule/done; sleep 60"])]))
    a_backlog.play(another(), "WRK-002")
    for _ in range(5):
        assert a_backlog.capsule("step", "WRK-002", env=level).code == 0
    assert a_backlog.fields("WRK-002")["status"] == "in_progress"
    place = a_backlog.path / ".capsule" / "worktrees" / "WRK-001"
    killed(a_backlog, place / ".capsule" / "done", "WRK-001", **level)
    assert (place / "dirt").exists()
    a_backlog.play(honest())
    answer = a_backlog.capsule("run", env=level)
    assert answer.code == 0, answer
    assert "stash" not in answer.out + answer.err
    assert a_backlog.ids() == []
    assert a_backlog.git("show", "main:answer") == "42"
    assert "dirt" not in a_backlog.git("ls-tree", "--name-only", "main").split()
    assert a_backlog.git("status", "--porcelain") == ""


REFUSED = (
    *(
        "complete WRK-002",
        "close WRK-002 --reason no",
        "add more",
        "advance WRK-002",
        "unblock WRK-002",
        "approve WRK-002",
    ),
    *("run WRK-002", "run", "init", "triage", "step WRK-002", "merge WRK-002", "abort WRK-002", "clean", "teardown"),
)


@pytest.mark.promise("attacks.nested")
def test_capsule_inside_a_phase_changes_nothing_of_its_own_repository(
    a_backlog: BacklogProject, level: dict[str, str]
) -> None:
    """From the place and from the checkout; another repository is free."""
    a_backlog.hold(*TWO)
    said = a_backlog.path / ".capsule" / "worktrees" / "WRK-001" / ".capsule"
    calls = [
        f"into=$PWD/.capsule/{number}-{at}; cd {where}; {CAPSULE} {words} > $into.said 2>&1; echo $? > $into.code"
        for number, words in enumerate(REFUSED)
        for at, where in enumerate((".", a_backlog.path))
    ]
    theirs = "cd $(mktemp -d) && git init -q && git config user.name Ada && git config user.email ada@example.org"
    free = f"{theirs} && {CAPSULE} init && {CAPSULE} add Free"
    other = f"into=$PWD/.capsule/free; {free}; echo $? > $into"
    asked = f"{CAPSULE} status; echo $? > .capsule/asked"
    papers = {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}
    a_backlog.play(honest(triage=[turn("triage", run=[*calls, other, asked], updated_assessments=papers)]))
    before = a_backlog.fields("WRK-002")
    answer = a_backlog.capsule("step", "WRK-001", env=level)
    assert answer.code == 0, answer
    assert a_backlog.fields("WRK-002") == before
    assert a_backlog.ids() == ["WRK-001", "WRK-002"]
    for file in sorted(said.glob("*.said")):
        words = REFUSED[int(file.name.partition("-")[0])]
        assert "inside a phase" in file.read_text(), (words, file.read_text())
        assert file.with_suffix(".code").read_text() == "1\n", words
    assert len(list(said.glob("*.said"))) == 2 * len(REFUSED)
    assert (said / "free").read_text() == "0\n"
    assert (said / "asked").exists()


def test_a_branch_that_was_deleted_is_named_and_nobody_is_told_to_commit_without_it(a_backlog: BacklogProject) -> None:
    a_backlog.hold(TWO[0])
    tip = a_backlog.head()
    a_backlog.git("branch", "other")
    a_backlog.git("update-ref", "-d", "refs/heads/main")
    answer = a_backlog.capsule("run", "WRK-001")
    assert answer.code == 2, answer
    assert "The branch main no longer exists" in answer.err
    assert "git branch main COMMIT" in answer.err
    a_backlog.git("branch", "main", tip)
    assert a_backlog.capsule("run", "WRK-001").code == 0
