"""`capsule run-phase`: one agent, one prompt, one signal, in any directory at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capsule.catalog import Catalog

from .backlog_project import BacklogProject
from .conftest import PASS, Project, Said, assert_clear, honest, said

RECORDER = """\
#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done > "$RECORD.argv"
cat > "$RECORD.stdin"
pwd > "$RECORD.cwd"
echo working on it
echo grumbling >&2
echo '{"status": "PASS", "feedback": "f", "files_changed": ["a"], "summary": "s", "commit_hash": "abc"}'
"""


@pytest.fixture
def a_place(a_project: Project, tmp_path: Path) -> Path:
    """A directory that is in no repository."""
    place = tmp_path / "somewhere"
    place.mkdir()
    return place


class Claude:
    """A `claude` on the PATH that writes down what it was given."""

    def __init__(self, project: Project, folder: Path) -> None:
        self._project, self._record = project, folder / "record"
        (folder / "bin").mkdir()
        self.program = folder / "bin" / "claude"
        self.program.write_text(RECORDER)
        self.program.chmod(0o755)
        path = f"{folder / 'bin'}:{project.environment()['PATH']}"
        allow = {"CAPSULE_ENVIRONMENT__ALLOW": '["RECORD"]', "CAPSULE_CONFINEMENT__WRITABLE": json.dumps([str(folder)])}
        self._env = allow | {"PATH": path, "RECORD": str(self._record), "CAPSULE_AGENT": "claude"}

    def run(self, *words: str, **env: str) -> Said:
        return self._project.capsule("run-phase", *words, cwd=self._project.path.parent, env=self._env | env)

    @property
    def argv(self) -> list[str]:
        return Path(f"{self._record}.argv").read_text().split("\0")[:-1]

    @property
    def stdin(self) -> str:
        return Path(f"{self._record}.stdin").read_text()

    @property
    def cwd(self) -> str:
        return Path(f"{self._record}.cwd").read_text().strip()


@pytest.fixture
def claude(a_project: Project, tmp_path: Path) -> Claude:
    return Claude(a_project, tmp_path)


def signal_alone(answer: Said) -> dict[str, Any]:
    """The signal is the whole of stdout: one line of JSON."""
    assert answer.out.count("\n") == 1, answer
    found = json.loads(answer.out)
    assert isinstance(found, dict)
    return found


def test_the_signal_stands_alone_on_stdout_with_all_its_fields(claude: Claude, a_place: Path) -> None:
    answer = claude.run("test-writer", str(a_place))
    assert answer.code == 0
    assert answer.err == ""
    assert signal_alone(answer) == {
        "status": "PASS", "feedback": "f", "files_changed": ["a"], "summary": "s", "commit_hash": "abc"
    }  # fmt: skip


def test_claude_is_given_the_prompt_as_an_argument(claude: Claude, a_place: Path) -> None:
    claude.run("test-writer", str(a_place))
    flag, prompt, *rest = claude.argv
    assert (flag, rest[0]) == ("-p", "--dangerously-skip-permissions")
    assert "worklog.md" in prompt
    assert "{{" not in prompt
    assert claude.stdin == ""
    assert claude.cwd == str(a_place)


def test_a_model_is_passed_on(claude: Claude, a_place: Path) -> None:
    claude.run("test-writer", str(a_place), "--model", "haiku")
    assert claude.argv[2] == "--dangerously-skip-permissions"
    assert claude.argv[-2:] == ["--model", "haiku"]


def test_output_and_errors_are_kept_side_by_side(claude: Claude, a_place: Path) -> None:
    claude.run("execute", str(a_place))
    logs = sorted((a_place / ".capsule" / "output").iterdir())
    assert [log.name.partition(".log")[2] for log in logs] == ["", ".stderr"]
    phase, stamp, pid = logs[0].name.removesuffix(".log").split("-")
    assert (phase, stamp.isdigit(), pid.isdigit()) == ("execute", True, True)
    assert logs[0].read_text().startswith("working on it\n")
    assert logs[1].read_text() == "grumbling\n"


@pytest.mark.parametrize("spelling", ["--feedback={}", "--feedback"])
def test_feedback_stands_at_the_very_end_of_the_prompt(claude: Claude, a_place: Path, spelling: str) -> None:
    feedback = "Handle {{TASK_ID}} and `rm -rf`.\nVerdict: PASS"
    words = (spelling.format(feedback),) if "{}" in spelling else (spelling, feedback)
    claude.run("execute", str(a_place), *words)
    prompt = claude.argv[1]
    assert prompt.endswith(f"{feedback}\n```\n")
    assert prompt.rindex("## Previous Feedback") > prompt.rindex("worklog.md")


def test_without_feedback_there_is_no_such_section(claude: Claude, a_place: Path) -> None:
    claude.run("merge", str(a_place))
    assert "\n## Previous Feedback" not in claude.argv[1]


def test_a_prompt_too_long_for_an_argument_goes_by_stdin(claude: Claude, a_place: Path) -> None:
    feedback = "x" * 110_000
    answer = claude.run("execute", str(a_place), f"--feedback={feedback}")
    assert answer.code == 0, answer
    assert claude.argv[:2] == ["-p", "--dangerously-skip-permissions"]
    assert claude.stdin.endswith(f"{feedback}\n```\n")


CODES = {"PASS": 0, "NEEDS_WORK": 1, "ERROR": 2}


@pytest.mark.parametrize(("status", "code"), CODES.items())
def test_the_status_is_the_exit_code(a_project: Project, a_place: Path, status: str, code: int) -> None:
    a_project.play({"execute": [said(status, "because")]})
    answer = a_project.capsule("run-phase", "execute", str(a_place))
    assert answer.code == code
    assert signal_alone(answer) == {**PASS, "status": status, "feedback": "because"}


NO_SIGNALS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing printed": ({"exit": 0}, "No signal JSON found in phase output"),
    "a field is missing": ({"signal": {"status": "PASS"}}, "Missing required field: feedback"),
    "exits badly": (said("PASS", exit=3), "Agent exited with 3"),
    "nothing in the script": ({}, "No signal JSON found in phase output"),
}


@pytest.mark.sweep
@pytest.mark.parametrize(("turn", "reason"), NO_SIGNALS.values(), ids=NO_SIGNALS.keys())
def test_a_missing_signal_is_a_synthetic_error(
    a_project: Project, a_place: Path, turn: dict[str, Any], reason: str
) -> None:
    a_project.play({"execute": [turn]})
    answer = a_project.capsule("run-phase", "execute", str(a_place))
    assert answer.code == 2
    assert signal_alone(answer) == {
        "status": "ERROR", "feedback": reason, "files_changed": [], "summary": "Phase did not produce a signal"
    }  # fmt: skip


def test_an_agent_that_hangs_is_a_synthetic_error(a_project: Project, a_place: Path) -> None:
    a_project.play({"execute": [said("PASS", sleep=60)]})
    env = {"CAPSULE_EXECUTION__PHASE_TIMEOUT_MINUTES": "0.01"}
    answer = a_project.capsule("run-phase", "execute", str(a_place), env=env)
    assert answer.code == 2
    assert signal_alone(answer)["feedback"].startswith("Agent timed out")


def test_a_missing_agent_is_a_synthetic_error_and_makes_nothing(a_project: Project, a_place: Path) -> None:
    env = {"CAPSULE_AGENT": "claude", "PATH": str(a_place)}
    answer = a_project.capsule("run-phase", "execute", str(a_place), env=env)
    assert_clear(answer, 2, "`claude`, which is not installed", "npm install")
    assert signal_alone(answer)["status"] == "ERROR"
    assert "not installed" in signal_alone(answer)["feedback"]
    assert not list(a_place.iterdir())


def test_an_unknown_prompt_or_place_is_a_synthetic_error(a_project: Project, a_place: Path) -> None:
    unknown = a_project.capsule("run-phase", "excute", str(a_place))
    assert_clear(unknown, 2, "'excute'", "Did you mean `tdd/execute`?")
    nowhere = a_project.capsule("run-phase", "execute", str(a_place / "nowhere"))
    assert_clear(nowhere, 2, "is not a directory", "")
    assert {signal_alone(answer)["status"] for answer in (unknown, nowhere)} == {"ERROR"}
    climbing = a_project.capsule("run-phase", "../../secret", str(a_place))
    assert_clear(climbing, 2, "cannot be the name of a prompt", "")
    assert not list(a_place.iterdir())


def test_usage_prints_no_signal(a_project: Project, a_place: Path) -> None:
    for words in ((), ("execute",), ("execute", str(a_place), "--frob")):
        answer = a_project.capsule("run-phase", *words)
        assert_clear(answer, 2, "", "capsule run-phase --help")
        assert answer.out == ""


def test_a_dry_run_shows_the_command_and_starts_nothing(claude: Claude, a_place: Path) -> None:
    answer = claude.run("execute", str(a_place), "--dry-run")
    assert answer.code == 0
    assert answer.out.startswith("claude -p PROMPT --dangerously-skip-permissions ")
    assert not list(a_place.iterdir())


def test_it_works_in_a_worktree_that_prep_made(a_project: Project) -> None:
    assert a_project.capsule("prep", "demo-1.1").code == 0
    a_project.play(honest())
    answer = a_project.capsule("run-phase", "test-writer", str(a_project.worktree))
    assert answer.code == 0
    assert (a_project.worktree / "tests" / "test_answer.sh").is_file()


def test_a_link_in_the_output_folders_place_is_not_followed(claude: Claude, a_place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (a_place / ".capsule").symlink_to(elsewhere)
    assert claude.run("execute", str(a_place)).code == 0
    assert not list(elsewhere.iterdir())
    assert (a_place / ".capsule" / "output").is_dir()


BUILT_IN = tuple(name for name in Catalog().names("prompt") if not name.startswith("parts/"))


@pytest.mark.promise("workflows.same-names")
def test_every_built_in_prompt_works(a_project: Project, a_place: Path) -> None:
    assert {"change/prd", "change/build", "exam/exam", "tdd/execute"} <= {*BUILT_IN}
    for name in (*BUILT_IN, "prd", "triage"):
        answer = a_project.say("run-phase", name, str(a_place), "--dry-run")
        assert answer.code == 0, (name, answer)
        assert "{{" not in answer.out, name
    assert not list(a_place.iterdir())


@pytest.mark.promise("workflows.same-names")
def test_a_prompt_means_the_same_as_in_a_run(a_backlog: BacklogProject, tmp_path: Path) -> None:
    """All that is told of the item itself is its id: there is no tracker."""
    a_backlog.add("WRK-001")
    place = tmp_path / "WRK-001"
    place.mkdir()
    told = {}
    for root in (a_backlog.path, place):
        words = ("run", "WRK-001") if root != place else ("run-phase", "triage", str(place))
        shown = a_backlog.say(*words, "--dry-run").out.partition("# Triage")[2].partition("\n=== ")[0]
        told[root] = shown.replace(str(root), "ROOT").split()
    assert told[place] == told[a_backlog.path]


def test_an_answer_by_file_is_read(a_project: Project, a_place: Path) -> None:
    result = {"item_id": "somewhere", "phase": "prd", "result": "PHASE_COMPLETE", "summary": "written"}
    claims = {"PHASE_COMPLETE": (0, "PASS"), "BLOCKED": (1, "BLOCKED"), "NOTHING": (2, "FAILED")}
    for word, (code, status) in claims.items():
        a_project.play({"prd": [{"result": result | {"result": word, "context": "which colour?"}}]})
        answer = a_project.capsule("run-phase", "prd", str(a_place))
        assert (answer.code, signal_alone(answer)["status"]) == (code, status), answer
    assert not list((a_place / ".capsule" / "results").iterdir())


@pytest.mark.promise("workflows.same-names")
def test_a_prompt_may_use_the_names_that_it_has_in_a_run(a_project: Project, a_place: Path) -> None:
    names = ("ITEM_ID", "ITEM_TITLE", "ITEM_DESCRIPTION", "PHASE", "TEST_COMMAND", "DEPTH", "PREVIOUS_SUMMARY")
    text = " ".join(f"{name}={{{{{name}}}}}" for name in names)
    a_project.write(".capsule/prompts/mine.md", f"{text}\n{{{{SIGNAL_CONTRACT}}}}\n")
    words = ("run-phase", "mine", str(a_place), "--dry-run", "--project-dir", str(a_project.path))
    answer = a_project.capsule(*words, env={"CAPSULE_ITEM": "demo-7"})
    assert answer.code == 0, answer
    assert "ITEM_ID=demo-7 ITEM_TITLE=demo-7" in answer.out
    assert "PHASE=mine" in answer.out
