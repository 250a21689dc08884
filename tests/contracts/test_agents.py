"""What every agent promises. Each file in agents/ is enrolled because it is there.

A rig stands a shell script in the CLI's place, so that the suite can say what "the agent" does. A CLI that is looked up
on the PATH needs no rig of its own: `Rig` puts the script there under the name the agent asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from capsule.adapters import Agent
from capsule.core.briefing import LONGEST_ARGUMENT, Briefing, Transcript
from capsule.core.errors import PrerequisiteMissing
from capsule.core.failure import Kind
from capsule.project import adapters
from capsule.settings import PhaseOptions
from capsule.system.process import SupervisorClient
from capsule.system.stop import Stop
from tests.costs import LONG, as_soon_as, given_time
from tests.shared import a_connection

MISLEADING = {"GIT_DIR": "/misleading", "CAPSULE_VERIFY": "off", "CAPSULE_PHASE": "misleading", "UNASKED": "yes"}
"""What the user's shell may hold, and an agent must not take for its own, or is not to know."""
RECORDED = Path(__file__).parent / "recorded"
REPORTING = [name for name in adapters("agents") if (RECORDED / name / "ok.jsonl").exists()]
"""Agents that print events; how those look was recorded with the real CLI."""
TOOLS = "/usr/local/bin:/usr/bin:/bin"


class Rig:
    """A CLI of the agent's own name on the PATH."""

    own_argv = "$$"
    """The process whose command line is the agent's, as the script sees it."""
    by_stdin = False
    """The prompt always goes by stdin, however short it is."""

    def __init__(self, name: str, folder: Path, supervisor: SupervisorClient, stop: Stop) -> None:
        self.name, self.folder, self.supervisor, self.stop = name, folder, supervisor, stop
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.phases: dict[str, PhaseOptions] = {}
        self.quiet: float | None = None
        """How long it may be silent after its last word, where the test cannot wait for that."""

    def options(self) -> Mapping[str, object]:
        """What the settings say about this agent."""
        return {}

    def agent(self, **env: str) -> Agent:
        connection = a_connection(
            name=self.name,
            supervisor=self.supervisor,
            root=self.folder,
            env=env,
            base_env={"PATH": f"{self.bin}:{TOOLS}", "ALLOWED": "yes", **MISLEADING},
            allow=("ALLOWED",),
            phases=self.phases,
            stop=self.stop,
            **self.options(),
        )
        made: Agent = import_module(adapters("agents")[self.name]).connect(connection)
        if self.quiet is not None:
            made.quiet_after_signal = made.quiet_after_event = self.quiet  # type: ignore[attr-defined]
        return made

    def does(self, script: str) -> None:
        """What the CLI does when it is started."""
        path = self.bin / self.program()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def program(self) -> str:
        return str(self.agent().describe(a_briefing(self.folder))[0])


class OpencodeRig(Rig):
    """It takes words that look like options for options, so it gets none."""

    by_stdin = True


class CommandRig(Rig):
    """`command` runs whatever the settings say."""

    def options(self) -> Mapping[str, object]:
        return {"command": ("some-cli", "--quietly")}


class ScriptedRig(Rig):
    """Always installed: what can be missing is its script."""

    own_argv = "$PPID"

    def options(self) -> Mapping[str, object]:
        return {"args": ("script.json",)}

    def does(self, script: str) -> None:
        turn = {"run": [f"{script}\n"]}
        self._script.write_text(json.dumps({"*": {"*": [turn]}}))

    @property
    def _script(self) -> Path:
        return self.folder / "script.json"


RIGS: dict[str, type[Rig]] = {"command": CommandRig, "opencode": OpencodeRig, "scripted": ScriptedRig}


def a_briefing(folder: Path, prompt: str = "Do it.\nNow.", **more: object) -> Briefing:
    place = folder / "worktree"
    place.mkdir(exist_ok=True)
    about = {"mission": "m", "item": "m", "phase": "code", "run": 1, "timeout": 30.0, "idle_timeout": 0.0}
    log = place / ".capsule" / "output" / "code-1-2.log"
    return Briefing(prompt=prompt, cwd=str(place), log=str(log), **{**about, **more})  # type: ignore[arg-type]


@pytest.fixture(params=adapters("agents"))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with Stop() as stop, SupervisorClient(grace=0.5) as supervisor:
        yield RIGS.get(request.param, Rig)(request.param, tmp_path, supervisor, stop)


def run(rig: Rig, script: str, **more: object) -> Transcript:
    rig.does(script)
    return rig.agent().run(a_briefing(rig.folder, **more))  # type: ignore[arg-type]


# ── what it is given


def test_a_dry_run_can_show_the_command_line(rig: Rig) -> None:
    rig.does("true")
    argv = rig.agent().describe(a_briefing(rig.folder))
    assert any("Do it.\nNow." in word for word in argv) != rig.by_stdin
    assert not (rig.folder / "worktree" / ".capsule").exists()


@pytest.mark.promise("agents.one-suite", "004-follow-ups.no-mock")
def test_the_prompt_arrives_whole(rig: Rig) -> None:
    prompt = "Line one\n\n  `ticks` $HOME {prompt} 'quotes' \"both\" ünï ☃\n"
    assert prompt.encode() in run(rig, f"cat /proc/{rig.own_argv}/cmdline -", prompt=prompt).text


def test_a_nul_in_the_prompt_does_not_keep_it_from_starting(rig: Rig) -> None:
    transcript = run(rig, f"cat /proc/{rig.own_argv}/cmdline - | tr '\\0' '\\n'", prompt="red:\0 it\x1b failed")
    assert b"red: it failed" in transcript.text


def test_a_prompt_too_long_for_an_argument_arrives_by_stdin_or_file(rig: Rig) -> None:
    prompt = "x" * (LONGEST_ARGUMENT + 50_000) + " the end"
    words = f"$(tr '\\0' ' ' < /proc/{rig.own_argv}/cmdline)"
    transcript = run(rig, f"cat; for word in {words}; do case $word in *.prompt) cat $word;; esac; done", prompt=prompt)
    assert transcript.exit_code == 0, transcript.detail
    assert prompt.encode() in transcript.text


def test_stdin_is_closed(rig: Rig) -> None:
    transcript = run(rig, "cat > /dev/null; echo read to the end", timeout=LONG)
    assert transcript.text == b"read to the end\n"


def test_it_works_in_its_directory(rig: Rig) -> None:
    assert run(rig, "pwd").text == f"{rig.folder / 'worktree'}\n".encode()


def test_its_environment_is_the_users_the_settings_and_the_missions(rig: Rig) -> None:
    rig.does('echo "$ALLOWED $FROM_SETTINGS $CAPSULE_PHASE ${GIT_DIR-unset} ${CAPSULE_VERIFY-unset} ${UNASKED-unset}"')
    agent = rig.agent(FROM_SETTINGS="set")
    briefing = a_briefing(rig.folder, env={"CAPSULE_PHASE": "code", "CAPSULE_ITEM": "m", "CAPSULE_RUN": "1"})
    assert agent.run(briefing).text == b"yes set code unset unset unset\n"


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("agents.per-phase")
def test_its_environment_can_differ_from_phase_to_phase(rig: Rig) -> None:
    rig.phases["code"] = PhaseOptions(env={"FROM_SETTINGS": "for this phase"})
    rig.does('echo "$FROM_SETTINGS"')
    agent = rig.agent(FROM_SETTINGS="for all")
    said = {phase: agent.run(a_briefing(rig.folder, phase=phase)).text for phase in ("code", "other")}
    assert said == {"code": b"for this phase\n", "other": b"for all\n"}


# ── a folder of its own


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("agents.one-suite")
def test_its_temporary_files_are_in_a_folder_of_its_own_that_goes_with_it(rig: Rig) -> None:
    transcript = run(
        rig, 'cd "$TMPDIR"; stat -c "%a %n" "$PWD"; mkdir -p closed/in && touch litter closed/in/x && chmod 0 closed'
    )
    mode, _, folder = transcript.text.decode().strip().partition(" ")
    assert mode == "700"
    assert not Path(folder).exists()


@pytest.mark.sweep(cases=2)
def test_what_a_killed_run_left_there_is_gone_for_the_next(rig: Rig) -> None:
    folder = Path(run(rig, 'echo "$TMPDIR"').text.decode().strip())
    folder.mkdir()
    (folder / "left").touch()
    place, *found = run(rig, 'echo "$TMPDIR"; ls "$TMPDIR"').text.decode().splitlines()
    assert place == str(folder)
    assert "left" not in found
    assert not folder.exists()


@pytest.mark.sweep(cases=2)
def test_a_link_that_stands_there_is_not_entered(rig: Rig) -> None:
    folder, elsewhere = Path(run(rig, 'echo "$TMPDIR"').text.decode().strip()), rig.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    folder.symlink_to(elsewhere)
    try:
        other = Path(run(rig, 'touch "$TMPDIR/x"; echo "$TMPDIR"').text.decode().strip())
    finally:
        folder.unlink()
    assert other != folder
    assert not other.exists()
    assert [file.name for file in elsewhere.iterdir()] == ["mine"]


# ── what is kept of it


@pytest.mark.promise("004-follow-ups.output")
def test_output_and_errors_go_to_two_files(rig: Rig) -> None:
    transcript = run(rig, "echo out; echo err >&2")
    output = rig.folder / "worktree" / ".capsule" / "output"
    assert (transcript.why, transcript.exit_code, transcript.text) == ("exited", 0, b"out\n")
    assert (output / "code-1-2.log").read_text() == "out\n"
    assert (output / "code-1-2.log.stderr").read_text() == "err\n"


def test_how_long_it_took_is_known_and_what_it_used_is_not(rig: Rig) -> None:
    transcript = run(rig, "echo out")
    usage = transcript.usage
    assert usage is not None
    assert usage.seconds == transcript.seconds
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (None, None, None)


@pytest.mark.promise("agents.other-output")
def test_words_that_are_no_events_are_plain_words(rig: Rig) -> None:
    transcript = run(rig, """echo '{"status": "PASS"}'; echo '{"type": "nobody knows"}'; echo the end; exit 3""")
    assert transcript.text == b'{"status": "PASS"}\n{"type": "nobody knows"}\nthe end\n'
    assert transcript.failure is None
    output = rig.folder / "worktree" / ".capsule" / "output"
    assert not (output / "code-1-2.log.events").exists()
    assert (output / "code-1-2.log").read_bytes() == transcript.text


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("agents.logs")
@pytest.mark.parametrize("rig", REPORTING, indirect=True)
@pytest.mark.parametrize("keep", ["", "kept"])
def test_the_log_holds_the_last_word_and_the_events_stand_beside_it(rig: Rig, keep: str) -> None:
    recording = RECORDED / rig.name / "ok.jsonl"
    transcript = run(rig, f"cat {recording}", keep=str(rig.folder / keep) if keep else "")
    output = rig.folder / "worktree" / ".capsule" / "output"
    assert transcript.failure is None
    assert transcript.text
    assert (output / "code-1-2.log").read_bytes() == transcript.text
    assert (output / "code-1-2.log.events").read_bytes() == recording.read_bytes()
    assert transcript.text != recording.read_bytes()


@pytest.mark.sweep
def test_of_a_flood_the_end_is_read(rig: Rig) -> None:
    transcript = run(rig, "head -c 40000000 /dev/zero; echo last words")
    assert transcript.text.endswith(b"\x00last words\n")
    assert len(transcript.text) < 20_000_000


def test_invalid_text_is_kept_as_it_is(rig: Rig) -> None:
    assert run(rig, r"printf '\377\000\n'").text == b"\xff\x00\n"


def test_an_agent_that_deletes_its_worktree_takes_no_output_with_it(rig: Rig) -> None:
    keep = rig.folder / "kept"
    transcript = run(rig, f"echo before; echo err >&2; rm -rf {rig.folder}/worktree; echo after", keep=str(keep))
    assert transcript.text == b"before\nafter\n"
    assert (keep / "code-1-2.log").read_text() == "before\nafter\n"
    assert (keep / "code-1-2.log.stderr").read_text().startswith("err\n")
    assert not (rig.folder / "worktree").exists()


def test_kept_output_is_shown_in_the_worktree_too(rig: Rig) -> None:
    run(rig, "echo out", keep=str(rig.folder / "kept"))
    assert (rig.folder / "worktree/.capsule/output/code-1-2.log").read_text() == "out\n"


@pytest.mark.sweep(cases=4)
@pytest.mark.parametrize("keep", ["", "kept"])
@pytest.mark.parametrize("link", [".capsule", ".capsule/output"])
def test_a_link_in_the_worktree_is_not_followed(rig: Rig, keep: str, link: str) -> None:
    elsewhere, place = rig.folder / "elsewhere", rig.folder / "worktree" / link
    elsewhere.mkdir()
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    run(rig, "echo out", keep=str(rig.folder / keep) if keep else "")
    assert not list(elsewhere.iterdir())
    assert (rig.folder / "worktree/.capsule/output/code-1-2.log").read_text() == "out\n"


# ── how it ends: data, never an exception


@pytest.mark.sweep(cases=2)
def test_its_exit_code_is_told(rig: Rig) -> None:
    transcript = run(rig, "echo some; exit 3")
    assert transcript.why == "exited"
    assert transcript.exit_code not in (0, None)
    assert transcript.text.startswith(b"some\n")
    assert transcript.failure is None


def test_a_signal_is_told_as_a_shell_would(rig: Rig) -> None:
    assert run(rig, f"kill -9 {rig.own_argv}").exit_code == 137


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("004-agents.timeout")
def test_it_is_ended_when_its_time_is_up(rig: Rig) -> None:
    transcript = given_time(lambda seconds: run(rig, "echo some; sleep 60", timeout=seconds), lambda seen: seen.text)
    assert (transcript.why, transcript.text) == ("timeout", b"some\n")
    assert transcript.seconds < 50
    assert transcript.failure is not None
    assert transcript.failure.kind is Kind.TIMEOUT


def test_it_is_ended_when_it_falls_silent(rig: Rig) -> None:
    transcript = run(rig, "echo some; sleep 60", idle_timeout=0.4)
    assert transcript.why == "idle"
    assert transcript.failure is not None
    assert transcript.failure.kind is Kind.SILENT


SIGNAL = '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
PLAIN = [name for name in adapters("agents") if name not in REPORTING]


@pytest.mark.promise("agents.no-exit")
@pytest.mark.parametrize("rig", REPORTING, indirect=True)
def test_one_that_prints_its_final_event_and_does_not_exit_is_ended_and_judged(rig: Rig) -> None:
    rig.quiet = 0.5
    transcript = run(rig, f"cat {RECORDED / rig.name / 'ok.jsonl'}; sleep 300", timeout=LONG)
    assert (transcript.why, transcript.exit_code, transcript.failure) == ("exited", 0, None)
    assert json.loads(transcript.text)["status"] == "PASS"
    assert "did not exit after its last word" in transcript.detail


@pytest.mark.sweep
@pytest.mark.promise("agents.no-exit")
@pytest.mark.parametrize("rig", REPORTING, indirect=True)
def test_one_that_is_silent_before_its_final_event_is_not_ended(rig: Rig) -> None:
    """A signal among its words is no final event."""
    rig.quiet = 0.3
    recording = RECORDED / rig.name / "ok.jsonl"
    script = f"head -n -1 {recording}; echo '{SIGNAL}'; sleep 3; touch worked; tail -n 1 {recording}"
    transcript = run(rig, script, timeout=LONG)
    assert (transcript.why, transcript.exit_code, transcript.detail) == ("exited", 0, "")
    assert (rig.folder / "worktree" / "worked").exists()


@pytest.mark.promise("agents.no-exit")
@pytest.mark.parametrize("rig", PLAIN, indirect=True)
@pytest.mark.parametrize("around", ["{}", "Done.\n```json\n{}\n```\n"], ids=["bare", "in a fence"])
def test_one_that_ends_its_words_with_a_signal_and_does_not_exit_is_ended_and_judged(rig: Rig, around: str) -> None:
    rig.quiet = 0.5
    words = around.replace("{}", SIGNAL)
    transcript = run(rig, f"cat <<'EOF'\n{words}\nEOF\nsleep 300", timeout=LONG)
    assert (transcript.why, transcript.exit_code, transcript.failure) == ("exited", 0, None)
    assert transcript.text.decode().strip() == words.strip()


NO_LAST_WORDS = {
    "words after it": f"Such as {SIGNAL}, and now I begin",
    "a field is missing": '{"status":"PASS","summary":"done"}',
    "other JSON after it": f'{SIGNAL} {{"tool":"Bash"}}',
    "its prompt, echoed": f"Answer like this:\n```\n{SIGNAL}\n```",
}


@pytest.mark.sweep
@pytest.mark.promise("agents.no-exit")
@pytest.mark.parametrize("rig", PLAIN, indirect=True)
@pytest.mark.parametrize("words", NO_LAST_WORDS.values(), ids=NO_LAST_WORDS.keys())
def test_one_that_has_not_ended_with_a_signal_of_its_own_works_on_in_silence(rig: Rig, words: str) -> None:
    rig.quiet = 0.3
    prompt = NO_LAST_WORDS["its prompt, echoed"]
    transcript = run(rig, f"cat <<'EOF'\n{words}\nEOF\nsleep 3; touch worked; sleep 0", timeout=LONG, prompt=prompt)
    assert (transcript.why, transcript.exit_code, transcript.detail) == ("exited", 0, "")
    assert (rig.folder / "worktree" / "worked").exists()


@pytest.mark.promise("agents.no-exit")
@pytest.mark.parametrize("rig", PLAIN, indirect=True)
def test_one_that_answers_by_file_and_falls_silent_is_judged_by_its_answer(rig: Rig) -> None:
    result = rig.folder / "result.json"
    answer = {"item_id": "m", "phase": "code", "result": "phase_complete", "summary": "done"}
    result.write_text("an older one")
    script = f"echo '{json.dumps(answer)}' > {result}; echo written; sleep 300"
    transcript = run(rig, script, idle_timeout=1.0, result_path=str(result))
    assert (transcript.why, transcript.exit_code, transcript.failure) == ("exited", 0, None)
    result.write_text("{}")
    assert run(rig, "echo some; sleep 300", idle_timeout=0.4, result_path=str(result)).why == "idle"


def test_it_is_ended_when_somebody_says_stop(rig: Rig) -> None:
    at_work = rig.folder / "at-work"
    somebody = as_soon_as(at_work.exists, rig.stop.request)
    transcript = run(rig, f"touch {at_work}; sleep 300", timeout=3 * LONG)
    somebody.join()
    assert transcript.why == "stopped"
    assert transcript.seconds < 2 * LONG


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("agents.one-suite", "004-agents.timeout")
def test_what_it_leaves_running_is_ended_and_counted(rig: Rig) -> None:
    pid = rig.folder / "pid"
    transcript = run(rig, f"setsid sh -c 'echo $$ > {pid}; exec sleep 60' & while [ ! -s {pid} ]; do :; done")
    assert transcript.leftovers == 1
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


# ── where it cannot run at all


@pytest.mark.promise("004-agents.missing")
def test_whoever_lacks_it_is_told_how_to_get_it(rig: Rig) -> None:
    with pytest.raises(PrerequisiteMissing) as missing:
        rig.agent().check()
    assert missing.value.hint
    rig.does("true")
    rig.agent().check()


@pytest.mark.promise("004-agents.missing")
def test_an_agent_that_vanished_since_is_an_outage_not_a_verdict(rig: Rig) -> None:
    transcript = rig.agent().run(a_briefing(rig.folder))
    assert transcript.failure is not None
    assert transcript.failure.reason
    assert transcript.failure.hint


def test_a_program_that_may_not_be_executed_is_an_outage(rig: Rig) -> None:
    rig.does("true")
    for program in rig.bin.iterdir():
        program.chmod(0o644)
        assert rig.agent().run(a_briefing(rig.folder)).failure
