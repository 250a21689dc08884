"""`capsule doctor`, on machines and projects in all states of health."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capsule.catalog import Catalog
from capsule.commands.doctor import notify_findings
from capsule.core.event import MissionStarted, StepBegun
from capsule.core.item import Item
from capsule.journals.sqlite import SqliteJournal
from tests import warm
from tests.costs import LONG
from tests.system.fake_sandbox_exec import FakeSandboxExec

from ..git_server import git_server, run
from .backlog_project import BacklogProject

BEAD = '{"id": "demo-1", "title": "A task", "status": "open", "priority": 1, "issue_type": "task"}\n'
AT = "2026-01-05T09:00:00Z"


def doctor(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    process = warm.Forked(["-m", "capsule", "doctor", *words], place, {**os.environ, **env})
    out, err = process.communicate(timeout=LONG)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def findings(place: Path, **env: str) -> dict[str, dict[str, str]]:
    """By name; of several with one name, the last."""
    done = doctor(place, "--json", **env)
    checks = json.loads(done.stdout)["checks"]
    assert json.loads(done.stdout)["ok"] is (done.returncode == 0)
    return {check["name"]: check for check in checks}


def program(folder: Path, name: str, said: str = "") -> Path:
    """Somebody else's program, for as long as it is only looked for."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{said}'\n")
    (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> str:
    """git and what runs tests, and nothing else that is looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").symlink_to(str(shutil.which("git")))
    (folder / "sh").symlink_to("/bin/sh")
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python3").chmod(0o755)
    return str(folder)


@pytest.fixture
def path_with_claude(path: str) -> str:
    return str(program(Path(path), "claude"))


@pytest.fixture
def healthy(a_repo: Any) -> Path:
    """A project that lacks nothing."""
    a_repo.write(".beads/issues.jsonl", BEAD)
    a_repo.write("tests/test_it.py", "import unittest\n")
    a_repo.commit("a tracker and tests")
    root: Path = a_repo.path
    return root


def test_a_healthy_project_is_exit_0(healthy: Path, path_with_claude: str) -> None:
    done = doctor(healthy, PATH=path_with_claude)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.endswith("Ready.\n")


def test_every_door_and_file_is_named(healthy: Path, path_with_claude: str) -> None:
    found = findings(healthy, PATH=path_with_claude)
    assert "2." in found["git"]["found"]
    assert found["identity"]["found"] == "commits are by Ada <ada@example.org>"
    assert found["agent claude"]["found"] == f"{path_with_claude}/claude (selected)"
    assert found["repository"]["found"] == str(healthy)
    assert found["main"]["found"] == "work is merged into main"
    assert "built-in workflows/tdd.yaml" in found["workflow tdd"]["found"]
    assert found["tracker"]["found"] == "beads-file, with 1 open item"
    assert found["tests"]["found"].startswith("`python3 -m unittest discover")
    assert "scripted" in found["adapters"]["found"]


@pytest.mark.promise("commands.doctor")
def test_the_test_command_is_tried(healthy: Path, a_repo: Any, path_with_claude: str) -> None:
    found = findings(healthy, PATH=path_with_claude)["tests"]
    assert (found["state"], found["found"]) == ("warning", "`python3 -m unittest discover -s tests` found no tests")
    case = "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 1)\n"
    a_repo.write("tests/test_it.py", case)
    a_repo.commit("a test")
    found = findings(healthy, PATH=path_with_claude)["tests"]
    assert (found["state"], found["found"]) == ("ok", "`python3 -m unittest discover -s tests`: 1 test by name")
    a_repo.write("tests/test_it.py", case + "    def test_b(self): self.assertEqual(1, 2)\n")
    a_repo.commit("a red test")
    found = findings(healthy, PATH=path_with_claude)["tests"]
    assert (found["state"], found["hint"]) == (
        "warning",
        "A mission may leave them as they are; what fails besides is refuted.",
    )
    assert "1 of them red: tests/test_it.py::A.test_b" in found["found"]
    assert not [*healthy.glob(".git/capsule/private/*")]


CASE = "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): "
PASSES = "    def test_b(self): pass\n"
UNUSABLE = {
    "no test passes": (f"{CASE}self.fail()", "known", "wrong", "1 of them red", "while no test passes"),
    "a file cannot be loaded": ("import no_such", "known", "wrong", "test_it cannot be loaded", "does not start"),
    "no red is allowed": (f"{CASE}self.fail()\n{PASSES}", "strict", "wrong", "1 of them red", "while a test fails"),
    "all are skipped": (f"{CASE}self.skipTest('x')", "known", "warning", "none of them passed", "first tests"),
    "it is killed": (
        f"{CASE}import os; os.kill(os.getpid(), 9)",
        "known",
        "warning",
        "was killed by SIGKILL",
        "Try again",
    ),
}


@pytest.mark.slow
@pytest.mark.promise("commands.doctor")
@pytest.mark.parametrize("case", UNUSABLE, ids=UNUSABLE)
def test_tests_that_prove_nothing_are_not_ok(case: str, healthy: Path, a_repo: Any, path_with_claude: str) -> None:
    text, base, state, said, hint = UNUSABLE[case]
    a_repo.write(".capsule/config.yaml", f"evidence: {{base: {base}}}\n")
    a_repo.write("tests/test_it.py", text)
    a_repo.write("tests/test_other.py", f"{CASE}pass" if "loaded" in said else "")
    a_repo.commit("tests")
    found = findings(healthy, PATH=path_with_claude)["tests"]
    assert found["state"] == state
    assert said in found["found"]
    assert hint in found["hint"]


JUNIT = '<testsuite><testcase classname="A" name="a"/></testsuite>'


@pytest.mark.sweep
@pytest.mark.promise("commands.doctor")
@pytest.mark.parametrize(
    ("check", "report", "said"),
    [
        ("exit 0\nphpunit tests", "", "`sh check` found no tests"),
        ("exit 0", "", "`sh check` passes, by its exit code only: it does not name its tests"),
        (f"echo '{JUNIT}' > out.xml", ", report: [out.xml]", "`sh check`: 1 test by name"),
    ],
    ids=["a known runner that shows nothing", "an unknown one", "one that leaves a report"],
)
def test_what_stands_behind_a_script_is_seen(
    check: str, report: str, said: str, healthy: Path, a_repo: Any, path_with_claude: str
) -> None:
    a_repo.write(".capsule/config.yaml", f"evidence: {{test: sh check{report}}}\n")
    a_repo.write("check", f"{check}\n")
    a_repo.commit("a script")
    assert findings(healthy, PATH=path_with_claude)["tests"]["found"] == said


@pytest.mark.promise("commands.doctor")
def test_a_test_runner_that_is_missing_is_not_ok(healthy: Path, a_repo: Any, path_with_claude: str) -> None:
    a_repo.write(".capsule/config.yaml", "evidence: {test: no-such-runner --all}\n")
    a_repo.commit("another command")
    found = findings(healthy, PATH=path_with_claude)["tests"]
    assert found["state"] == "missing"
    assert "cannot be run" in found["found"]


@pytest.mark.promise("commands.doctor")
def test_a_missing_agent_is_exit_1_with_how_to_get_it(healthy: Path, path: str) -> None:
    done = doctor(healthy, PATH=path)
    assert done.returncode == 1
    assert "npm install -g @anthropic-ai/claude-code" in done.stdout
    assert done.stdout.endswith("Needs attention: agent claude.\n")


@pytest.mark.slow
def test_only_the_agent_that_does_the_work_is_needed(healthy: Path, path: str) -> None:
    program(Path(path), "mine")
    env = {"CAPSULE_AGENT": "mine", "CAPSULE_AGENTS__MINE__COMMAND": '["mine", "{prompt}"]', "PATH": path}
    found = findings(healthy, **env)
    assert found["agent mine"]["state"] == "ok"
    assert {found[f"agent {name}"]["state"] for name in ("claude", "codex", "gemini", "opencode")} == {"optional"}
    assert doctor(healthy, **env).returncode == 0


@pytest.mark.promise("sandbox.required")
def test_the_level_of_the_sandbox_is_named(healthy: Path, path_with_claude: str) -> None:
    found = findings(healthy, PATH=path_with_claude, CAPSULE_SANDBOX="auto")["sandbox"]
    assert found["state"] == "warning"
    assert "none (bubblewrap is not installed)" in found["found"]
    assert "apt" in found["hint"]
    assert findings(healthy, PATH=path_with_claude, CAPSULE_SANDBOX="required")["sandbox"]["state"] == "missing"


@pytest.mark.sandboxed
def test_a_sandbox_that_works_is_named_with_its_program(healthy: Path, path_with_claude: str) -> None:
    path = f"{path_with_claude}:{os.environ['PATH']}"
    found = findings(healthy, PATH=path, CAPSULE_SANDBOX="auto")["sandbox"]
    assert found["state"] == "ok"
    assert str(shutil.which("bwrap")) in found["found"]


@pytest.mark.promise("sandbox.macos")
def test_a_sandbox_that_nobody_has_tried_on_a_mac_is_called_that(healthy: Path, path_with_claude: str) -> None:
    fake = FakeSandboxExec(healthy.parent / "fake")
    path = f"{path_with_claude}:{fake.folder}"
    found = findings(healthy, PATH=path, CAPSULE_SANDBOX="sandbox-exec")
    assert found["sandbox"]["state"] == "warning"
    assert found["sandbox"]["found"].startswith(f"sandbox-exec at {fake.program}, untested on a Mac: agents and tests")
    assert "hooks and settings of the repository are checked after each phase" in found["sandbox"]["found"]
    assert "layers" not in found
    missing = findings(healthy, PATH=path_with_claude, CAPSULE_SANDBOX="sandbox-exec")["sandbox"]
    assert (missing["state"], "sandbox-exec is not on the PATH" in missing["found"]) == ("missing", True)


@pytest.mark.sandboxed
def test_it_says_whether_installed_dependencies_get_a_layer(
    healthy: Path, path_with_claude: str, tmp_path: Path
) -> None:
    path = f"{path_with_claude}:{os.environ['PATH']}"
    assert findings(healthy, PATH=path, CAPSULE_SANDBOX="auto")["layers"]["state"] in ("ok", "optional")
    refusing = tmp_path / "refusing" / "unshare"
    refusing.parent.mkdir()
    refusing.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2; exit 1\n")
    refusing.chmod(0o755)
    found = findings(healthy, PATH=f"{refusing.parent}:{path}", CAPSULE_SANDBOX="auto")["layers"]
    assert found["state"] == "optional"
    assert "none (unshare: Operation not permitted): tests see installed dependencies read-only" in found["found"]
    assert "layers" not in findings(healthy, PATH=path, CAPSULE_SANDBOX="off")


@pytest.mark.promise("commands.doctor")
def test_a_missing_git_is_named_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = findings(tmp_path, PATH=str(tmp_path / "empty"))
    assert (found["git"]["state"], found["python"]["state"], found["bd"]["state"]) == ("missing", "ok", "optional")
    assert "git-scm.com" in found["git"]["hint"]


def test_an_old_git_is_as_good_as_none(tmp_path: Path) -> None:
    folder = program(tmp_path / "old", "git", "git version 2.30.1")
    assert findings(tmp_path, PATH=str(folder))["git"]["found"].startswith("git version 2.30.1 is too old")


def test_outside_of_a_project_the_machine_is_looked_at(tmp_path: Path, path_with_claude: str) -> None:
    found = findings(tmp_path, PATH=path_with_claude)
    assert found["project"]["state"] == "optional"
    assert {check["about"] for check in found.values()} == {"machine"}


def test_a_project_that_is_named_must_be_one(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--project-dir", str(tmp_path))
    assert done.returncode != 0
    assert "is not in a git repository" in done.stderr


def test_a_wrong_setting_is_shown_with_file_and_key(healthy: Path, path_with_claude: str) -> None:
    (healthy / ".capsule").mkdir()
    (healthy / ".capsule/config.yaml").write_text("exection: {max_retries: 1}\n")
    found = findings(healthy, PATH=path_with_claude)
    assert found["settings"]["state"] == "wrong"
    assert found["settings"]["found"] == ".capsule/config.yaml: there is no setting `exection`."
    assert found["settings"]["hint"] == "Did you mean `execution`?"
    assert found["tracker"]["state"] == "ok"


def test_a_workflow_of_the_project_is_checked_and_its_prompts_are_traced(a_repo: Any, path_with_claude: str) -> None:
    a_repo.write(".capsule/workflows/mine.yaml", "phases: [{name: go, prompt: go}]\n")
    a_repo.write(".capsule/workflows/bad.yaml", "phases: [{name: look, role: review, prompt: go}]\n")
    a_repo.write(".capsule/workflows/odd.yaml", "phases: [{name: go, prompt: go, checks: [vibes]}]\n")
    a_repo.write(".capsule/prompts/go.md", "Go.\n")
    a_repo.write(".capsule/prompts/execute.md", "Do it our way.\n")
    a_repo.commit("words of our own")
    found = findings(a_repo.path, PATH=path_with_claude)
    assert found["workflow mine"]["found"] == (
        "1 phase, from .capsule/workflows/mine.yaml; its own prompts: mine/go is .capsule/prompts/go.md"
    )
    assert "tdd/execute is .capsule/prompts/execute.md" in found["workflow tdd"]["found"]
    assert (found["workflow bad"]["state"], found["workflow odd"]["state"]) == ("wrong", "wrong")
    assert "must name the phase it sends back to" in found["workflow bad"]["found"]
    assert "unknown check 'vibes'" in found["workflow odd"]["found"]


def test_a_project_without_tracker_tests_or_commits_is_told_so(tmp_path: Path, path_with_claude: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "new"], check=True)
    found = findings(tmp_path / "new", PATH=path_with_claude)
    assert (found["main"]["state"], found["tracker"]["state"]) == ("missing", "missing")
    assert found["main"]["found"] == "the repository has no commit yet"
    assert 'git add -A && git commit -m "First commit"' in found["main"]["hint"]


def test_a_main_branch_that_is_unknown_is_named_with_the_setting(healthy: Path, path_with_claude: str) -> None:
    subprocess.run(["git", "branch", "-m", "develop"], cwd=healthy, check=True)
    found = findings(healthy, PATH=path_with_claude)
    assert (found["repository"]["state"], found["main"]["state"]) == ("ok", "wrong")
    assert found["main"]["hint"] == "Name it in .capsule/config.yaml: `project: {main: BRANCH}`. Branches: develop"


def test_uncommitted_changes_that_would_stop_a_run_are_a_warning(a_backlog: BacklogProject) -> None:
    a_backlog.write("README", "edited\n")
    assert "checkout" not in findings(a_backlog.path), "nothing is to be run"
    a_backlog.add()
    found = findings(a_backlog.path)["checkout"]
    assert (found["state"], found["found"]) == ("warning", "1 uncommitted change, such as README: no run starts")
    assert found["hint"] == "Commit first, or: `capsule run --allow-dirty`"
    a_backlog.settings("workspace: {publish: merge}")
    assert "checkout" not in findings(a_backlog.path)


@pytest.mark.promise("remote.doctor")
def test_a_remote_that_could_take_the_work_is_proposed(healthy: Path, tmp_path: Path, path_with_claude: str) -> None:
    assert "remote" not in findings(healthy, PATH=path_with_claude)
    with git_server(tmp_path / "server") as server:
        server.host(healthy)
        run("remote", "add", "origin", server.url(), cwd=healthy)
        found = findings(healthy, PATH=path_with_claude)["remote"]
        assert found["state"] == "optional" and "origin/main can be read and pushed to" in found["found"]
        assert "merge: {to: remote}" in found["hint"]
        both = findings(healthy, PATH=path_with_claude, CAPSULE_MERGE__TO="remote")
        found = both["remote"]
        assert (found["state"], found["found"]) == ("ok", f"work is merged into origin/main at {server.url()}")
        assert both["main"]["found"] == "your branch main follows what is merged at origin"


def test_the_program_that_opens_requests_is_looked_for(healthy: Path, tmp_path: Path, path_with_claude: str) -> None:
    with git_server(tmp_path / "server") as server:
        server.host(healthy, "team/project")
        run("remote", "add", "origin", server.url("team/project"), cwd=healthy)
        told = {"CAPSULE_MERGE__TO": "request", "CAPSULE_MERGE__REQUEST__FORGE": "gitlab"}
        found = findings(healthy, PATH=path_with_claude, **told)["remote"]
        assert (found["state"], found["found"]) == ("wrong", "glab is not on the PATH, and requests are opened by it.")
        there = tmp_path / "own" / "glab"
        there.parent.mkdir(exist_ok=True)
        there.write_text("#!/bin/sh\necho '{}'\n")
        there.chmod(0o755)
        found = findings(healthy, PATH=f"{there.parent}:{path_with_claude}", **told)["remote"]
        assert (found["state"], found["found"]) == ("ok", "work is merged into origin/main by requests that glab opens")


@pytest.mark.promise("remote.doctor")
def test_a_remote_that_cannot_take_the_work_is_named_with_what_helps(
    healthy: Path, tmp_path: Path, path_with_claude: str
) -> None:
    with git_server(tmp_path / "server") as server:
        bare = server.host(healthy)
        run("remote", "add", "origin", server.url(), cwd=healthy)
        run("branch", "-m", "main", "trunk", cwd=bare)
        told = {"PATH": path_with_claude, "CAPSULE_MERGE__TO": "remote"}
        found = findings(healthy, **told)["remote"]
        assert found["state"] == "wrong" and "merge.branch: trunk" in found["hint"]
        run("config", "http.receivepack", "false", cwd=bare)
        found = findings(healthy, **told, CAPSULE_MERGE__BRANCH="trunk")["remote"]
        assert found["state"] == "wrong" and "origin/trunk refused" in found["found"]
        server.down = True
        assert findings(healthy, **told)["remote"]["state"] == "warning"
        assert findings(healthy, PATH=path_with_claude)["remote"]["state"] == "optional"


def test_no_test_command_is_a_warning(a_repo: Any, path_with_claude: str) -> None:
    found = findings(a_repo.path, PATH=path_with_claude)
    assert found["tests"]["state"] == "warning"
    assert "unverified" in found["tests"]["found"]


def test_a_bd_that_is_passed_over_is_mentioned(healthy: Path, path_with_claude: str) -> None:
    program(Path(path_with_claude), "bd")
    found = findings(healthy, PATH=path_with_claude)
    assert (found["tracker"]["state"], found["beads"]["state"]) == ("ok", "optional")
    assert found["beads"]["found"].startswith("bd is installed, and has no database here: the JSONL file")


def test_what_was_left_half_done_is_found(healthy: Path, path_with_claude: str) -> None:
    journal = SqliteJournal(healthy / ".git" / "capsule")
    item, workflow = Item(id="demo-1", title="A task"), Catalog().workflow("tdd")
    (healthy / ".capsule/worktrees/stray").mkdir(parents=True)
    (healthy / ".capsule/worktrees/demo-1").mkdir()
    with journal.claim("demo-1"):
        journal.note(
            "demo-1",
            MissionStarted(at=AT, mission="demo-1", item=item, workflow=workflow, base="a" * 40, into="main"),
        )
        journal.note("demo-1", StepBegun(at=AT, key="prep#1", phase="prep", run=1, attempt=1))
        assert findings(healthy, PATH=path_with_claude)["mission"]["found"] == "demo-1 is running"
    found = findings(healthy, PATH=path_with_claude)
    assert found["mission"]["found"] == "demo-1 was interrupted"
    assert found["worktree"]["found"] == "stray has a worktree and no mission"
    journal.close()


def test_no_setting_can_steer_the_terminal(healthy: Path, path_with_claude: str) -> None:
    (healthy / ".capsule").mkdir()
    (healthy / ".capsule/config.yaml").write_text('agents: {"\\e[2Jmine": {command: ["no\\e[31mne"]}}\n')
    done = doctor(healthy, PATH=path_with_claude)
    assert "mine" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [50, 100])
def test_lines_fit_the_terminal_and_commands_stay_whole(healthy: Path, path: str, columns: int) -> None:
    done = doctor(healthy, PATH=path, COLUMNS=str(columns))
    whole = [line for line in done.stdout.splitlines() if len(line.split()) > 3]
    assert max(map(len, whole)) <= columns
    assert "https://github.com/steveyegge/beads" in done.stdout


# ---- who is called


@pytest.mark.parametrize(
    ("notify", "state", "found"),
    [
        ("bell", "ok", "the terminal's bell"),
        ('A=1 notify-me "$CAPSULE_NOTIFICATION_WORDS"', "ok", "notify-me"),
        ("case $CAPSULE_NOTIFICATION in done) ;; *) notify-me;; esac", "ok", "case"),
        ("$MAILER me", "ok", "$MAILER"),
        ("call-me", "warning", "`call-me` is not installed"),
        ("/nowhere/call-me now", "warning", "`/nowhere/call-me` is not installed"),
        ("if true", "warning", "is not a valid shell command"),
    ],
)
def test_whether_somebody_could_be_called(
    path: str, monkeypatch: pytest.MonkeyPatch, notify: str, state: str, found: str
) -> None:
    program(Path(path), "notify-me")
    monkeypatch.setenv("PATH", path)
    (finding,) = notify_findings(notify, None)
    assert (finding.state, found in finding.found) == (state, True), finding


def test_a_program_that_agents_can_change_is_no_good_one_to_be_called_by(tmp_path: Path) -> None:
    inside = program(tmp_path / "tools", "tell") / "tell"
    (finding,) = notify_findings(str(inside), tmp_path)
    assert (finding.state, "agents can change it" in finding.found) == ("warning", True), finding


def test_who_is_called_is_among_the_findings(a_repo: Any, path: str) -> None:
    assert findings(a_repo.path, PATH=path, CAPSULE_NOTIFY="bell")["notify"]["state"] == "ok"
    assert "notify" not in findings(a_repo.path, PATH=path)
