"""`capsule run --record` and `--replay`: a mission is written down, and happens again without any agent."""

from __future__ import annotations

import os
import shutil
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from yaml12 import format_yaml, parse_yaml

import capsule
from capsule.core.event import StepEnded, Waiting
from tests.costs import LONG

from .backlog_project import BacklogProject
from .conftest import COMMIT, ITEM, Project, Said, assert_clear, honest, nothing_changes, said

pytestmark = pytest.mark.slow

NOBODY = {"CAPSULE_AGENT": "nobody", "CAPSULE_AGENTS__SCRIPTED__ARGS": ""}
"""A machine without any agent."""
WALK = [
    "prep PASS",
    "test-writer PASS",
    "test-review NEEDS_WORK",
    "test-writer PASS",
    "test-review PASS",
    "execute REFUTED",
    "execute PASS",
]


STORY = honest(
    test_writer=[said("PASS", write={"tests/test_answer.sh": "grep -q 2 answer\n"}), *honest()["test-writer"]],
    test_review=[said("NEEDS_WORK", "2 is not 42"), said("PASS")],
    execute=[said("PASS", write={"answer": "43\n"}), *honest()["execute"]],
)
"""A review that sends work back, and a claim that is not true."""


@pytest.fixture(scope="session")
def _recorded(_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the project as it is after the story, and the recording of it."""
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copytree(_prepared, folder / "project", symlinks=True)
    project = Project(folder / "project", folder)
    project.play(STORY)
    answer = project.say("run", ITEM, "--record", str(folder / "tape.yaml"))
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def original(_recorded: Path, tmp_path: Path) -> Project:
    """The project that was recorded, afterwards; only to be looked at."""
    (tmp_path / "original").mkdir()
    return Project(_recorded / "project", tmp_path / "original")


@pytest.fixture
def tape(_recorded: Path, tmp_path: Path) -> Path:
    """The recording of the story."""
    return Path(shutil.copy(_recorded / "tape.yaml", tmp_path))


@pytest.fixture
def new_tape(tmp_path: Path) -> Path:
    return tmp_path / "new.yaml"


def another(project: Project, folder: Path) -> Project:
    """The same project on another machine."""
    shutil.copytree(project.path, folder / "project", symlinks=True)
    return type(project)(folder / "project", folder)


def read(tape: Path) -> dict[str, Any]:
    recording: Any = parse_yaml(tape.read_text())
    assert isinstance(recording, dict)
    return recording


def change(tape: Path, phase: str, run: int, **more: Any) -> None:
    """Somebody edits what is recorded for a run."""
    recording = read(tape)
    recording[ITEM][phase][run - 1] |= more
    tape.write_text(format_yaml(recording))


def record(project: Project, tape: Path, **plays: Any) -> dict[str, Any]:
    project.play(honest(**plays))
    answer = project.say("run", ITEM, "--record", str(tape))
    assert answer.code == 0, answer.err
    return read(tape)


def replay(project: Project, tape: Path, *words: str, code: int = 0) -> str:
    answer = project.say("run", ITEM, "--replay", str(tape), *words, env=NOBODY)
    assert answer.code == code, answer.err
    return answer.err


def decisions(project: Project) -> list[tuple[str, ...]]:
    """Of every step; what publish and archive say has the id of a commit in it."""
    ended = [event for event in project.events() if isinstance(event, StepEnded)]
    told = [(e.key, e.decision.verdict, e.decision.move, *e.outcome.files, e.outcome.signal.summary) for e in ended]
    return [each[:-1] if each[0].startswith(("publish", "archive")) else each for each in told]


# ── the same mission again


@pytest.mark.promise("agents.replay")
def test_a_replay_makes_the_same_decisions_and_the_same_tree(a_project: Project, original: Project, tape: Path) -> None:
    assert original.walked()[: len(WALK)] == WALK
    replay(a_project, tape)
    assert decisions(a_project) == decisions(original)
    assert a_project.head("main^{tree}") == original.head("main^{tree}")
    assert a_project.git("log", "--format=%s", "main") == original.git("log", "--format=%s", "main")


def test_a_recording_says_what_was_said_and_done(tape: Path) -> None:
    recorded = read(tape)[ITEM]
    [first, sent_back], [merged] = recorded["test-writer"], recorded["merge"]
    assert "test-writing agent" in first["prompt"]
    assert "2 is not 42" in sent_back["prompt"]
    assert '"status": "PASS"' in first["say"]
    assert first["write"] == {"tests/test_answer.sh": "grep -q 2 answer\n"}
    assert first["seconds"] > 0
    assert merged["commit"] == [{"paths": ["answer", "tests/test_answer.sh"], "message": f"{ITEM}: Find the answer\n"}]


STRANGE = [
    "printf '\\377\\000' > blob; printf '#!/bin/sh\\n' > tool; chmod +x tool; ln -s README.md link",
    "printf 'one\\r\\n\\033[0m \\ntwo' > odd.txt; rm README.md; mkdir README.md; echo deep > README.md/inner",
    "echo 'I looked at both.' >> worklog.md",
]
COMMITS = {
    "several": [COMMIT, "git add -A; git commit -q -m 'and more'"],
    "amended": ["git add -A; git commit -q -m one; chmod -x tool; git add -A; git commit -q --amend -m other"],
    "left dirty": ["git add -A; git commit -q -m one; echo 41 > answer; git commit -qam wrong; echo 42 > answer"],
}


@pytest.mark.parametrize("commits", COMMITS.values(), ids=COMMITS)
def test_strange_files_and_commits_are_replayed(
    a_project: Project, tmp_path: Path, new_tape: Path, commits: list[str]
) -> None:
    elsewhere = another(a_project, tmp_path / "elsewhere")
    builds = [said("PASS", write={"answer": "42\n"}, run=[*STRANGE, *commits])]
    catches_up = [said("PASS", run=["git add -A; git commit -q -m rest || true"])]
    [built] = record(a_project, new_tape, execute=builds, merge=catches_up)[ITEM]["execute"]
    assert built["append"] == {"worklog.md": "I looked at both.\n"}
    assert '"base64": "/wA="' in str(built).replace("'", '"')
    replay(elsewhere, new_tape)
    assert elsewhere.head("main^{tree}") == a_project.head("main^{tree}")
    assert decisions(elsewhere) == decisions(a_project)
    assert elsewhere.git("log", "--format=%s", "main^2") == a_project.git("log", "--format=%s", "main^2")
    assert "I looked at both." in (elsewhere.path / ".capsule" / "logs" / ITEM / "worklog.md").read_text()


def test_a_replay_starts_no_agent_that_the_workflow_names(a_project: Project, tape: Path, tmp_path: Path) -> None:
    built_in = Path(capsule.__file__).parent / "workflows" / "tdd.yaml"
    own = built_in.read_text().replace("prompt: execute\n", "prompt: execute\n    agent: another\n")
    a_project.write(".capsule/workflows/tdd.yaml", own)
    paid = tmp_path / "paid"
    agent = {"CAPSULE_AGENTS__ANOTHER__COMMAND": f'[touch, "{paid}"]'}
    answer = a_project.say("run", ITEM, "--replay", str(tape), env=NOBODY | agent)
    assert answer.code == 0, answer.err
    assert not paid.exists()


def test_a_queue_is_recorded_and_replayed(a_backlog: BacklogProject, tmp_path: Path) -> None:
    a_backlog.add()
    again = another(a_backlog, tmp_path / "elsewhere")
    assert isinstance(again, BacklogProject)
    tape = a_backlog.path / ".capsule" / "tape.yaml"
    assert a_backlog.run("--record", str(tape)).code == 0
    assert a_backlog.status() == ""
    assert "{project}" in read(tape)["WRK-001"]["prd"][0]["prompt"], "no folder of this machine"
    assert str(a_backlog.path) not in tape.read_text()
    answer = again.run("--replay", str(tape), **NOBODY)
    assert answer.code == 0, answer.err
    assert again.subjects() == a_backlog.subjects()
    assert again.moves() == a_backlog.moves()
    assert (again.path / "question").read_text() == "6x9\n"


# ── failures


@pytest.mark.promise("agents.replay")
def test_a_failure_is_replayed_as_the_same_failure(a_project: Project, tmp_path: Path, new_tape: Path) -> None:
    elsewhere = another(a_project, tmp_path / "elsewhere")
    picky = {"CAPSULE_AGENT": "picky", "CAPSULE_AGENTS__PICKY__COMMAND": '[sh, -c, "echo bad key >&2; exit 1", x]'}
    kinds = {"CAPSULE_AGENTS__PICKY__FAILURES": "{auth: bad key}"}
    first = a_project.say("run", ITEM, "--record", str(new_tape), env=picky | kinds)
    assert first.code == 2
    assert "ended with auth: bad key" in first.err
    again = elsewhere.say("run", ITEM, "--replay", str(new_tape), env=NOBODY)
    assert (again.code, again.err.splitlines()[-2:]) == (first.code, first.err.splitlines()[-2:])
    went_on = record(a_project, new_tape)[ITEM]["test-writer"]
    assert [turn.get("turned_away") for turn in went_on] == [None]


def test_what_a_provider_says_and_takes_is_replayed_and_recorded_again(
    a_project: Project, tape: Path, new_tape: Path
) -> None:
    limit = {"kind": "rate limit", "reason": "Too many requests.", "resets_in": 3600.0}
    usage = {"tokens_in": 1000, "tokens_out": 20, "usd": 0.25, "model": "large"}
    change(tape, "execute", 2, turned_away=[{"failure": limit, "seconds": 0.0}], usage=usage)
    replay(a_project, tape, "--record", str(new_tape))
    [waited] = [event for event in a_project.events() if isinstance(event, Waiting)]
    assert waited.failure.reason == "Too many requests."
    assert waited.seconds < 2, "nobody is there to wait for"
    built = next(e for e in a_project.events() if isinstance(e, StepEnded) and e.key == "execute#2")
    assert built.outcome.usage
    assert (built.outcome.usage.usd, built.outcome.usage.model) == (0.25, "large")
    copied = read(new_tape)[ITEM]["execute"][1]
    assert [refusal["failure"]["kind"] for refusal in copied["turned_away"]] == ["rate limit"]
    assert copied["usage"] == usage


def test_a_time_out_is_replayed_without_waiting(a_project: Project, tape: Path) -> None:
    change(tape, "test-writer", 1, ended="timeout", seconds=1800.0)
    assert "Agent timed out after 1800 s" in replay(a_project, tape, code=2)


# ── recordings that people and accidents change


def test_a_recording_edited_by_hand_plays_what_it_says_now(a_project: Project, tape: Path) -> None:
    text = tape.read_text()
    assert "answer: |\n          42\n" in text
    tape.write_text(text.replace("answer: |\n          42\n", "answer: |\n          41\n"))
    words = replay(a_project, tape, code=2)
    assert a_project.walked()[-1] == "execute REFUTED"
    assert f"The recording has no run 3 of execute for {ITEM}." in words


def test_a_mission_that_was_killed_leaves_a_recording_that_can_be_gone_on_with(
    a_project: Project, tmp_path: Path, new_tape: Path
) -> None:
    elsewhere = another(a_project, tmp_path / "elsewhere")
    a_project.play(honest(execute=[{"sleep": 300}]))
    with a_project.running("--record", str(new_tape)) as process:
        until = time.monotonic() + 60
        while "execute#1" not in str(a_project.events()) and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
        process.wait(LONG)
    assert set(read(new_tape)[ITEM]) == {"test-writer", "test-review"}
    assert set(record(a_project, new_tape)[ITEM]) == set(honest())
    replay(elsewhere, new_tape)
    assert elsewhere.head("main^{tree}") == a_project.head("main^{tree}")


def test_a_mission_started_over_begins_its_recording_anew(a_project: Project, new_tape: Path) -> None:
    new_tape.write_text("_recording: {version: 1}\ndemo-9: {execute: [{say: Hello.}]}\n")
    a_project.play(honest(test_writer=[said("ERROR", "the disk is full")]))
    runs = []
    for words in ((), (), ("--fresh",), ()):
        assert a_project.say("run", ITEM, "--record", str(new_tape), *words).code == 2
        runs.append([turn.get("number") for turn in read(new_tape)[ITEM]["test-writer"]])
    assert runs == [[None], [None, None], [3], [3, 4]]
    assert read(new_tape)["demo-9"] == {"execute": [{"say": "Hello."}]}, "what is about others stays"


def test_a_prompt_that_is_no_longer_the_recorded_one_is_named(a_project: Project, tape: Path) -> None:
    tape.write_text(tape.read_text().replace("check_prompts: false", "check_prompts: true"))
    own = a_project.write("prompts/execute-review.md", "# Execute-Review Phase\n\nBe quick.\n")
    answer = a_project.say("run", ITEM, "--replay", str(tape), env=NOBODY)
    assert answer.code == 2
    assert "The prompt of execute-review, run 1, is not the recorded one. Line 3 was 'You are the" in answer.err
    assert "and is 'Be quick.'" in answer.err
    own.unlink()
    replay(a_project, tape)


def test_a_recording_that_cannot_be_replayed_is_named_before_anything_is_made(
    a_project: Project, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("_recording: {\n")
    (tmp_path / "script.yaml").write_text("'*': {}\n")
    with nothing_changes(a_project):
        for name, cause in {"broken": "is no", "script": "is no", "missing": "holds no"}.items():
            answer = a_project.say("run", ITEM, "--replay", str(tmp_path / f"{name}.yaml"))
            assert answer.code == 2
            assert f"{cause} recording" in complaint(answer)[0]


def test_no_secret_is_recorded(a_project: Project, new_tape: Path) -> None:
    secret = "canary-5e1f0c7d2b"
    leak = {"run": [f"printf '\\377{secret}' > blob; echo {secret} > notes"], "say": [secret], "stderr": secret}
    a_project.play(honest(test_writer=[said("ERROR", secret, **leak)]))
    a_project.write("prompts/test-writer.md", f"Use {secret}.\n")
    assert a_project.say("run", ITEM, "--record", str(new_tape), env={"MY_TOKEN": secret}).code == 2
    [turn] = read(new_tape)[ITEM]["test-writer"]
    assert turn["prompt"] == "Use [redacted].\n"
    assert turn["write"]["notes"] == "[redacted]\n"
    assert b64decode(turn["write"]["blob"]["base64"]) == b"\xff[redacted]"
    assert secret not in new_tape.read_text()


# ── where it cannot be recorded


def complaint(answer: Said) -> list[str]:
    lines = [line for line in answer.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 2, answer.err
    return lines


def test_a_file_that_cannot_be_recorded_into_is_named_before_anything_is_made(
    a_project: Project, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine.yaml").write_text("my: notes\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "mine.yaml")
    os.mkfifo(tmp_path / "pipe")
    faults = {
        "folder": "a directory",
        "mine.yaml": "is no recording",
        "link.yaml": "a symbolic link",
        "pipe": "a FIFO",
        "nowhere/tape.yaml": "No such file or directory",
        "mine.yaml/tape.yaml": "Not a directory",
    }
    with nothing_changes(a_project):
        for name, cause in faults.items():
            answer = a_project.say("run", ITEM, "--record", str(tmp_path / name))
            assert (answer.code, cause in complaint(answer)[0]) == (2, True), answer.err
    assert (tmp_path / "mine.yaml").read_text() == "my: notes\n"


def test_a_recording_is_no_part_of_a_change_in_the_checkout(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    answer = a_backlog.run("--record", str(a_backlog.path / "tape.yaml"))
    assert answer.code == 0, answer.err
    assert a_backlog.status() == "?? tape.yaml"


def test_replay_and_agent_do_not_go_together(a_project: Project, tape: Path) -> None:
    answer = a_project.say("run", ITEM, "--replay", str(tape), "--agent", "claude")
    assert_clear(answer, 2, "--replay replaces every agent", "Drop one")
