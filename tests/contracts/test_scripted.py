"""`scripted`: what a script may say, and what of a recording no process could act out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capsule.agents._recording import as_script, opened
from capsule.agents.scripted import ScriptedAgent
from capsule.core.briefing import Transcript
from capsule.core.errors import SettingsError
from capsule.core.failure import Kind
from capsule.system.process import SupervisorClient
from tests.shared import a_connection

from .test_agents import a_briefing


class Stage:
    """A worktree with git in it, and an agent that plays what it is told there."""

    def __init__(self, folder: Path, supervisor: SupervisorClient) -> None:
        self.folder, self.place = folder, folder / "worktree"
        self.place.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.place / "old").write_text("old\n")
        (self.place / "folder").mkdir()
        (self.place / "folder" / "inner").write_text("inner\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "start")
        self._agent = ScriptedAgent(
            a_connection(name="scripted", supervisor=supervisor, root=folder, args=("script.json",))
        )

    def git(self, *args: str) -> str:
        return subprocess.run(["git", *args], cwd=self.place, capture_output=True, text=True, check=True).stdout.strip()

    def tell(self, *turns: Any, recorded: bool = False, **about: Any) -> None:
        head = {"_recording": {"version": 1, **about}} if recorded else {}
        (self.folder / "script.json").write_text(json.dumps(head | {"*": {"code": turns}}))

    def play(self, run: int = 1, prompt: str = "Do it.") -> Transcript:
        env = {"CAPSULE_ITEM": "m", "CAPSULE_PHASE": "code", "CAPSULE_RUN": str(run)}
        return self._agent.run(a_briefing(self.folder, prompt, run=run, env=env))

    def check(self) -> None:
        self._agent.check()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Stage(tmp_path, supervisor)


# ── what it plays


def test_files_of_every_kind_are_written_and_removed(stage: Stage) -> None:
    stage.tell(
        {
            "remove": ["folder/inner"],
            "write": {
                "folder": "now a file\n",
                "blob": {"base64": "/wA="},
                "tool": {"text": "#!/bin/sh\n", "executable": True},
                "link": {"link": "tool"},
            },
            "append": {"old": "and new\n"},
        }
    )
    assert stage.play().exit_code == 0
    place = stage.place
    assert (place / "folder").read_text() == "now a file\n"
    assert (place / "blob").read_bytes() == b"\xff\0"
    assert (place / "tool").stat().st_mode & 0o111
    assert (place / "link").readlink() == Path("tool")
    assert (place / "old").read_text() == "old\nand new\n"


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine\n")
    (stage.place / "notes").symlink_to(tmp_path / "precious")
    stage.tell({"write": {"notes": "theirs\n"}})
    stage.play()
    assert (tmp_path / "precious").read_text() == "mine\n"
    assert (stage.place / "notes").read_text() == "theirs\n"


def test_a_commit_holds_its_paths_and_nothing_else(stage: Stage) -> None:
    (stage.place / "staged").write_text("staged\n")
    stage.git("add", "staged")
    commit = {"write": {"new": "1\n"}, "remove": ["old"], "paths": ["new", "old"], "message": "One\n\nMore words.\n"}
    stage.tell({"commit": [commit, {"message": "Empty\n"}], "write": {"new": "2\n"}})
    assert stage.play().exit_code == 0, stage.play().stderr
    assert stage.git("log", "--format=%B", "-2").split() == ["Empty", "One", "More", "words."]
    assert stage.git("diff", "--name-status", "HEAD~2", "HEAD").split() == ["A", "new", "D", "old"]
    assert stage.git("show", "HEAD:new") == "1"
    assert stage.git("status", "--porcelain", "--", ".", ":!.capsule").splitlines() == ["M new", "A  staged"]


def test_commits_are_taken_back_with_their_files_in_place(stage: Stage) -> None:
    stage.tell({"uncommit": 1, "commit": [{"paths": ["old"], "message": "Other\n"}]})
    (stage.place / "old").write_text("newer\n")
    stage.git("commit", "-qam", "wrong")
    assert stage.play().exit_code == 0
    assert stage.git("log", "--format=%s").split() == ["Other", "start"]
    assert stage.git("show", "HEAD:old") == "newer"


def test_what_could_not_be_recorded_is_not_passed_over(stage: Stage) -> None:
    stage.tell({"left_out": {"film.mp4": "it is larger than 8 MiB"}, "say": "Done.\n"})
    played = stage.play()
    assert played.exit_code == 1
    assert b"film.mp4: it is larger than 8 MiB" in played.stderr
    assert played.text == b""


def test_the_last_run_repeats_in_a_script_and_not_in_a_recording(stage: Stage) -> None:
    stage.tell({"say": ["one"]}, {"say": "two"})
    assert [stage.play(run).text for run in (1, 2, 3)] == [b"one\n", b"two", b"two"]
    stage.tell({"say": ["one"]}, recorded=True)
    played = stage.play(2)
    assert played.failure
    assert (played.failure.kind, "no run 2 of code" in played.failure.reason) == (Kind.CONFIGURATION, True)


# ── what no process could act out


def test_a_refusal_comes_as_often_as_it_came_and_then_the_work(stage: Stage) -> None:
    limit = {"failure": {"kind": "rate limit", "reason": "Slow down.", "resets_in": 3600.0}, "usage": {"usd": 0.5}}
    stage.tell({"turned_away": [limit, limit], "say": "Done.\n"}, recorded=True)
    first, second, third = stage.play(), stage.play(), stage.play()
    for refused in (first, second):
        assert refused.failure
        assert (refused.failure.kind, refused.failure.resets_in, refused.text) == (Kind.RATE_LIMIT, 0.0, b"")
        assert refused.usage
        assert refused.usage.usd == 0.5
    assert (third.failure, third.text) == (None, b"Done.\n")


def test_a_recording_that_ends_in_a_refusal_ends_there(stage: Stage) -> None:
    stage.tell({"turned_away": [{"failure": {"kind": "overload", "reason": "Busy."}}]}, recorded=True)
    assert stage.play().failure
    ended = stage.play().failure
    assert ended
    assert (ended.kind, "ends at code" in ended.reason) == (Kind.CONFIGURATION, True)


@pytest.mark.parametrize("wrong", [{"failure": {"kind": "bad mood"}}, {"usage": {"usd": "much"}}])
def test_a_mistake_in_a_recording_is_named(stage: Stage, wrong: dict[str, Any]) -> None:
    stage.tell({"say": "Done.\n", **wrong}, recorded=True)
    failure = stage.play().failure
    assert failure
    assert (failure.kind, "invalid" in failure.reason) == (Kind.CONFIGURATION, True)


def test_how_it_ended_is_as_it_was(stage: Stage) -> None:
    crash = {"kind": "crash", "reason": "It was killed."}
    stage.tell({"say": "Half\n", "exit": 137, "seconds": 9.5, "failure": crash}, recorded=True)
    played = stage.play()
    assert played.failure
    assert (played.failure.kind, played.exit_code, played.seconds, played.text) == (Kind.CRASH, 137, 9.5, b"Half\n")


def test_a_player_that_fails_is_not_covered_up(stage: Stage) -> None:
    stage.tell({"remove": ["nothing-there"], "say": "Done.\n", "seconds": 1.0}, recorded=True)
    assert stage.play().exit_code == 1


@pytest.mark.parametrize(
    ("recorded", "given", "same"),
    [
        ("Do it in {worktree}.", "Do it in {place}.", True),
        ("Ran 2 tests in 0.003s at 1a2b3c4d", "Ran 2 tests in 0.120s at 9f8e7d6c", True),
        ("Ran 2 tests in 0.003s", "Ran 3 tests in 0.003s", False),
        ("Do it.", "Do it.\nQuickly.", False),
    ],
)
def test_prompts_are_compared_but_for_what_always_differs(stage: Stage, recorded: str, given: str, same: bool) -> None:
    stage.tell({"prompt": recorded, "say": "Done.\n"}, recorded=True, check_prompts=True)
    played = stage.play(prompt=given.replace("{place}", str(stage.place)))
    assert (played.failure is None) == same
    stage.tell({"prompt": recorded, "say": "Done.\n"}, recorded=True, check_prompts=False)
    assert stage.play(prompt=given).failure is None


def test_a_script_with_a_mistake_is_named_before_anything_is_done(stage: Stage) -> None:
    for text in ("{", "[]", '"x"'):
        (stage.folder / "script.json").write_text(text)
        with pytest.raises(SettingsError):
            stage.check()


# ── the file


PLAIN = ("", " ", "a\n", " a\n  b", "a \n\n", "\n\na", "\n", "a\n ", "x" * 5000, "ünï ☃ 😀", "\t\tx\n\ty")
LIKE_YAML = ("- x", "# y", "a: b", "yes", "1e3", "~", "'\"`", "{{X}}", "%TAG", "---\n...\n", "|\n>\n", "? x", "&a *a")
STRANGE = ("a\r\nb", "\x1b[0m\0", "\u2028\u0085\ufeff", "\ufffe")


@pytest.mark.parametrize("text", [*PLAIN, *LIKE_YAML, *STRANGE])
def test_every_text_comes_back_as_it_was(text: str, tmp_path: Path) -> None:
    script = {"_recording": {"version": 1}, "m": {"p": [{"say": text, "write": {text: text}}]}}
    (tmp_path / "tape.yaml").write_bytes(as_script(script).encode())
    assert opened(tmp_path / "tape.yaml") == script
