"""What is made of gemini's own words, and what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.core.failure import Kind
from capsule.system.process import SupervisorClient
from tests.contracts.recordings import Bench, Endings, recorded
from tests.costs import LONG, given_time

ENDINGS: Endings = {
    "ok": (0, None, ""),
    "401": (145, Kind.AUTH, "API key not valid"),
    "key-not-valid": (144, Kind.AUTH, "API key not valid"),
    "403": (147, Kind.AUTH, "Permission denied"),
    "404": (1, Kind.CONFIGURATION, "model not found"),
    "too-long": (144, Kind.CONTEXT, "input token count"),
    "429": (173, Kind.RATE_LIMIT, "exhausted"),
    "429-retry": (173, Kind.RATE_LIMIT, "retry in 36.5s"),
    "daily-quota": (173, Kind.QUOTA, "daily quota"),
    "500": (244, Kind.OVERLOAD, "internal"),
    "503": (247, Kind.OVERLOAD, "overloaded"),
    "dropped": (0, Kind.CONNECTION, "without a finish reason"),
    "blocked": (0, Kind.CONNECTION, "without a finish reason"),
    "no-network": (1, Kind.CONNECTION, "fetch failed"),
    "empty": (0, Kind.SILENT, "empty answer"),
    "refusal": (0, Kind.REFUSAL, "safety"),
    "max-turns": (53, Kind.CUT_SHORT, "max session turns"),
    "max-tokens": (0, None, ""),
    "loop": (0, Kind.CUT_SHORT, "Loop detected"),
}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Bench("gemini", tmp_path, supervisor)


@pytest.fixture
def users_folder(bench: Bench) -> Path:
    folder = bench.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text('{"general": {"vimMode": true}, // a comment\n "ui": {"theme": "// none"}}')
    (folder / "oauth_creds.json").write_text("old")
    return folder


def test_every_recording_has_an_ending() -> None:
    assert sorted(ENDINGS) == recorded("gemini")


@pytest.mark.promise("agents.recordings")
@pytest.mark.parametrize("recording", ENDINGS)
def test_how_it_ended_has_a_kind_and_a_reason_of_one_line(recording: str, bench: Bench) -> None:
    bench.assert_ends(recording, ENDINGS)


def test_what_it_reports_is_known_and_the_rest_is_not(bench: Bench) -> None:
    transcript = bench.plays("ok")
    usage = transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd, usage.model) == (200, 20, None, "gemini-2.5-pro")
    assert usage.session
    assert transcript.text == b'{"status":"PASS"}\n'


CHAT = """\
{"sessionId":"s","kind":"main"}
{"id":"one","type":"gemini","content":"","tokens":{"input":100,"output":7,"cached":40,"thoughts":0,"tool":0,"total":107}}
{"id":"one","type":"gemini","content":"","tokens":{"input":100,"output":7,"cached":40,"thoughts":3,"tool":0,"total":110},"toolCalls":[]}
{"id":"asked","type":"user","content":[{"text":"\\"tokens\\""}]}
{"id":"two","type":"gemini","content":"","tokens":{"input":150,"output":9,"cached":40,"thoughts":0,"tool":0,"total":159}}
"""
"""As 0.61.0 writes it below its home, left out what does not matter; a message stands there again when it has grown."""


@pytest.mark.promise("agents.usage-when-ended")
def test_what_one_that_was_ended_had_used_is_read_from_its_own_record(bench: Bench) -> None:
    (bench.folder / "chat").write_text(CHAT)
    chats = '"$GEMINI_CLI_HOME/.gemini/tmp/place/chats"'
    bench.does(
        f"mkdir -p {chats}; cp {bench.folder}/chat {chats}/session-1.jsonl\n"
        """echo '{"type":"init","session_id":"s","model":"m"}'; sleep 300"""
    )
    transcript = bench.agent().run(bench.briefing(timeout=3.0))
    usage = transcript.usage
    assert usage is not None
    assert (transcript.why, usage.tokens_in, usage.tokens_out, usage.session) == ("timeout", 250, 19, "s")


def test_a_run_that_reached_no_model_has_used_an_unknown_amount(bench: Bench) -> None:
    usage = bench.plays("401", 145).usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out) == (None, None)


def test_words_in_pieces_are_put_together_and_those_before_a_tool_left_out(bench: Bench) -> None:
    said = ["Let me look.", "PA", "SS"]
    tool = {"type": "tool_use", "tool_name": "read_file"}
    messages = [{"type": "message", "role": "assistant", "content": text, "delta": True} for text in said]
    result = {"type": "result", "status": "success"}
    events = [{"type": "init"}, messages[0], tool, *messages[1:], result]
    bench.does("cat <<'END'\n" + "\n".join(map(json.dumps, events)) + "\nEND")
    assert bench.agent().run(bench.briefing()).text == b"PASS\n"


def test_a_pause_that_the_provider_asks_for_is_told(bench: Bench) -> None:
    failure = bench.plays("429-retry", 173).failure
    assert failure is not None
    assert failure.resets_in == pytest.approx(36.5)


def test_a_run_that_broke_off_is_no_success_though_it_says_so(bench: Bench) -> None:
    bench.does('echo \'{"type":"init","session_id":"s"}\'; exit 0')
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert failure.kind is Kind.CRASH


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("When using Gemini API, you must specify the GEMINI_API_KEY environment variable.", Kind.AUTH),
        ("Please set an Auth method in your settings.json", Kind.AUTH),
        ("Invalid auth method selected.", Kind.AUTH),
        ("Unknown argument: nope", Kind.CONFIGURATION),
        ("Gemini CLI is not running in a trusted directory.", Kind.CONFIGURATION),
    ],
)
def test_what_it_says_before_it_begins_stops_the_run(bench: Bench, line: str, kind: Kind) -> None:
    bench.does(f"echo 'YOLO mode is enabled.' >&2; echo '{line}' >&2; exit 41")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert (failure.kind, line in failure.reason) == (kind, True)


@pytest.mark.parametrize("code", [0, 1])
def test_words_on_stderr_mean_nothing_where_it_went_well_or_was_ended_by_us(bench: Bench, code: int) -> None:
    bench.does(f"echo 'Unknown argument: nope' >&2; echo plain words; [ {code} = 0 ] || sleep 60; exit {code}")
    transcript = given_time(
        lambda seconds: bench.agent().run(bench.briefing(timeout=seconds if code else LONG)), lambda seen: seen.text
    )
    assert transcript.text == b"plain words\n"
    assert (transcript.failure.kind if transcript.failure else None) is (Kind.TIMEOUT if code else None)


def test_the_users_settings_are_taken_along_with_few_retries(bench: Bench, users_folder: Path) -> None:
    settings = json.loads(bench.sees('cat "$GEMINI_CLI_HOME/.gemini/settings.json"'))
    assert settings["general"] == {
        "vimMode": True,
        "maxAttempts": 2,
        "disableAutoUpdate": True,
        "enableAutoUpdate": False,
    }
    assert settings["ui"] == {"theme": "// none"}
    assert "maxAttempts" not in (users_folder / "settings.json").read_text()


@pytest.mark.promise("agents.trust")
@pytest.mark.parametrize("trusted", [False, True])
def test_the_repository_takes_no_part_unless_it_is_trusted(bench: Bench, trusted: bool) -> None:
    seen = bench.sees('cat "$GEMINI_CLI_HOME/.gemini/settings.json"; echo; echo "$@"', trust_project=trusted)
    settings, argv = seen.splitlines()[:2]
    assert ("ignoreLocalEnv" in settings) is not trusted
    assert ("useExternal" in settings) is not trusted
    assert ("--skip-trust" in argv) is not trusted


def test_a_login_that_was_renewed_goes_back_to_the_user(bench: Bench, users_folder: Path) -> None:
    bench.sees('printf new > "$GEMINI_CLI_HOME/.gemini/oauth_creds.json"; rm "$GEMINI_CLI_HOME/.gemini/settings.json"')
    assert (users_folder / "oauth_creds.json").read_text() == "new"
    assert "vimMode" in (users_folder / "settings.json").read_text()


def test_a_key_in_the_users_file_is_given_unless_another_is_set(bench: Bench, users_folder: Path) -> None:
    (users_folder / ".env").write_text("GEMINI_API_KEY='on file'\nGOOGLE_CLOUD_PROJECT=mine\nNODE_OPTIONS=evil\n")
    say = 'echo "$GEMINI_API_KEY,$GOOGLE_CLOUD_PROJECT,$NODE_OPTIONS"'
    assert bench.sees(say) == "on file,mine,\n"
    assert bench.sees(say, base_env={"GEMINI_API_KEY": "set"}) == "set,mine,\n"


def test_a_prompt_that_looks_like_a_flag_is_a_prompt(bench: Bench) -> None:
    assert bench.agent().describe(bench.briefing(prompt="--help"))[-1] == "--prompt=--help"
