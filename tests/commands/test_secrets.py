"""Two canaries: one in our own environment, one that the settings give to the agent. An agent that tells them to
everybody it can reach tells nobody in the end: no file that Capsule writes and no screen holds either of them."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import ITEM, Project, Said, honest, said

OURS = "canary-0123456789-ours"
GIVEN = 'canary "given" by/the+settings'
CHATTER = (
    f"echo stdout {OURS}",
    'echo given "$CHATTY_TOKEN"',
    f"echo stderr {OURS} >&2; echo $CHATTY_TOKEN >&2",
    f"printf {OURS[:9]}; sleep 0.05; echo {OURS[9:]}",
    f"echo encoded {base64.b64encode(OURS.encode()).decode()}",
    f"echo '- noted: {OURS}' >> worklog.md",
)


@pytest.fixture
def a_chatty_project(a_project: Project) -> Project:
    """A mission in which the secrets are in outputs, claims, feedback, failing tests and the worklog."""
    tell = f"it is {OURS}, and {GIVEN}"
    failing = f"echo test says {OURS[:9]}''{OURS[9:]}\ngrep -qx 42 answer\n"  # a file that holds it would be refused
    a_project.play(
        honest(
            test_writer=[said("PASS", tell, run=list(CHATTER), write={"tests/test_answer.sh": failing})],
            test_review=[said("NEEDS_WORK", tell, run=list(CHATTER)), said("PASS", tell)],
            execute=[said("PASS", tell), said("PASS", tell, run=list(CHATTER), write={"answer": "42\n"})],
            sign_off=[{**said("NEEDS_WORK", tell), "run": list(CHATTER)}, said("PASS", tell)],
        )
    )
    (a_project.path.parent / "tmp").mkdir()
    settings = a_project.home / ".config" / "capsule" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"agents": {"scripted": {"env": {"CHATTY_TOKEN": GIVEN}}}}))
    return a_project


def environment(project: Project) -> dict[str, str]:
    return {"DEPLOY_TOKEN": OURS, "TMPDIR": str(project.path.parent / "tmp")}


def spellings() -> list[bytes]:
    in_json = GIVEN.replace('"', '\\"')
    return [text.encode() for text in (OURS, GIVEN, in_json, base64.b64encode(OURS.encode()).decode())]


def telling(project: Project) -> list[str]:
    """Files that hold a canary, but for what the agent itself wrote: its worktree, and what was merged of it."""
    places = [project.path / ".capsule", project.path / ".git", project.path / ".beads", project.path.parent / "tmp"]
    files = [file for place in places for file in place.rglob("*") if file.is_file() and not file.is_symlink()]
    ours = [file for file in files if "worktrees" not in file.relative_to(project.path.parent).parts]
    assert len(ours) > 20
    return [str(file) for file in ours if any(form in file.read_bytes() for form in spellings())]


def assert_discreet(answer: Said) -> None:
    for form in spellings():
        assert form.decode() not in answer.out + answer.err, answer


@pytest.mark.promise("agents.secrets")
def test_no_canary_is_in_any_file_or_on_any_screen(a_chatty_project: Project) -> None:
    project, env = a_chatty_project, environment(a_chatty_project)
    answer = project.run(**env)
    assert answer.code == 0, answer
    assert "[redacted]" in answer.err
    assert_discreet(answer)
    assert telling(project) == []
    archive = project.path / ".capsule" / "logs" / ITEM
    for paper in ("worklog.md", "journal.jsonl"):
        assert "[redacted]" in (archive / paper).read_text()
    outputs = "".join(file.read_text() for file in (archive / "phase-outputs").iterdir())
    assert "stdout [redacted]" in outputs
    assert "given [redacted]" in outputs
    assert "stderr [redacted]" in outputs
    assert "test says [redacted]" in outputs
    for words in (("show", ITEM), ("show", ITEM, "--json"), ("logs", ITEM), ("status",), ("config",)):
        assert_discreet(project.capsule(*words, env=env))


@pytest.mark.promise("agents.git-credentials")
def test_git_credentials_of_the_environment_reach_neither_an_agent_nor_a_test_nor_a_log(a_project: Project) -> None:
    look = ["env", "git config --list --show-scope", f"echo said {OURS}"]
    test = f"env\ngit config --list --show-scope\necho said {OURS[:9]}''{OURS[9:]}\ngrep -qx 42 answer\n"
    a_project.play(honest(test_writer=[said("PASS", run=look, write={"tests/test_answer.sh": test})]))
    (a_project.path.parent / "tmp").mkdir()
    env = {
        "TMPDIR": str(a_project.path.parent / "tmp"),
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "http.https://example.org/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {OURS}",
        "GIT_CONFIG_KEY_1": "core.abbrev",
        "GIT_CONFIG_VALUE_1": "11",
        "GIT_CONFIG_KEY_2": f"url.https://x-access-token:{OURS}@example.org/.insteadOf",
        "GIT_CONFIG_VALUE_2": "https://example.org/",
        "GIT_CONFIG_PARAMETERS": f"'http.extraheader=Authorization: bearer {OURS}'",
        "GIT_SSH_COMMAND": f"sshpass -p {OURS} ssh",
    }
    answer = a_project.run(**env)
    assert answer.code == 0, answer
    assert_discreet(answer)
    assert telling(a_project) == []
    outputs = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs"
    printed = "".join(file.read_text() for file in outputs.iterdir())
    assert "said [redacted]" in printed
    assert "core.abbrev=11" in printed
    for word in ("extraheader", "insteadof", "sshpass"):
        assert word not in printed.lower()


@pytest.mark.slow
def test_json_lines_are_discreet_too(a_chatty_project: Project) -> None:
    answer = a_chatty_project.run("--output=json", **environment(a_chatty_project))
    assert answer.code == 0, answer
    assert "[redacted]" in answer.out
    assert_discreet(answer)


@pytest.mark.slow
def test_a_prompt_repeats_no_secret_that_feedback_told(a_chatty_project: Project) -> None:
    project = a_chatty_project
    given = project.path.parent / "given"
    review = [said("NEEDS_WORK", f"it is {OURS}"), said("PASS")]
    keep = f"tr '\\0' '\\n' < /proc/$PPID/cmdline >> {given}"
    writer = [{**honest()["test-writer"][0], "run": [keep]}]
    project.play(honest(test_writer=writer, test_review=review))
    assert project.run(**environment(project)).code == 0
    if Path("/proc/self/cmdline").exists():
        assert "it is [redacted]" in given.read_text()
        assert OURS not in given.read_text()


@pytest.mark.slow
def test_what_the_user_wrote_into_an_item_or_a_prompt_is_not_passed_on_either(a_chatty_project: Project) -> None:
    project = a_chatty_project
    given = project.path.parent / "given"
    keep = f"tr '\\0' '\\n' < /proc/$PPID/cmdline >> {given}"
    project.play(honest(test_writer=[{**honest()["test-writer"][0], "run": [keep]}]))
    project.set_bead(title=f"Find {OURS}", description=f"It is {OURS}.")
    project.write(".capsule/prompts/tdd/test-writer.md", f"Ask {OURS}.\n\n{{{{SIGNAL_CONTRACT}}}}\n")
    answer = project.run(**environment(project))
    assert answer.code == 0, answer
    assert f"{ITEM}: Find [redacted]" in answer.err
    assert_discreet(answer)
    if Path("/proc/self/cmdline").exists():
        assert "Ask [redacted]." in given.read_text()
        assert OURS not in given.read_text()


@pytest.mark.slow
@pytest.mark.promise("agents.secrets")
def test_killed_with_nine_in_the_middle_nothing_is_told_either(a_chatty_project: Project) -> None:
    project, env = a_chatty_project, environment(a_chatty_project)
    flood = f"while :; do echo {OURS} $CHATTY_TOKEN; echo {OURS} >> worklog.md; done"
    project.play(honest(execute=[said("PASS", run=[flood])]))
    with project.running(**env) as process:
        log_grows(project, 1_000_000)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert telling(project) == []
    project.play(honest())
    again = project.run(**env)
    assert again.code == 0, again
    assert telling(project) == []


@pytest.mark.slow
@pytest.mark.promise("agents.no-orphans")
def test_processes_that_outlived_capsule_and_its_keeper_are_ended_by_the_next_run(a_project: Project) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here")
    pids = a_project.path.parent / "pids"
    stay = f"(trap '' TERM; echo $$ >> {pids}; exec sleep 60) & setsid sleep 61 & echo $! >> {pids}; sleep 62"
    a_project.play(honest(execute=[said("PASS", run=[stay])]))
    with a_project.running() as process:
        assert waits_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        stayed = [int(pid) for pid in pids.read_text().split()]
        assert waits_for(lambda: any(read(f"/proc/{pid}/cmdline").startswith(b"sleep") for pid in stayed))
        supervisor = next(pid for pid in children(process.pid) if b"supervisor" in read(f"/proc/{pid}/cmdline"))
        process.send_signal(signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert any(read(f"/proc/{pid}/cmdline").startswith(b"sleep") for pid in stayed)
    a_project.play(honest())
    assert a_project.run().code == 0
    assert [pid for pid in stayed if read(f"/proc/{pid}/cmdline").startswith(b"sleep")] == []


def log_grows(project: Project, size: int) -> None:
    assert waits_for(lambda: any(f.stat().st_size > size for f in project.outputs().glob("execute*.log")))


def waits_for(promise: object, seconds: float = 30) -> bool:
    assert callable(promise)
    deadline = time.monotonic() + seconds
    while not promise():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def children(pid: int) -> list[int]:
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
