"""What is made of opencode's own words, and what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.agents._stream import decoded
from capsule.core.failure import Kind, Reaction
from capsule.system.process import SupervisorClient
from tests.contracts.recordings import RECORDINGS, Bench, Endings, recorded
from tests.costs import given_time

ENDINGS: Endings = {
    "ok": (0, None, ""),
    "denied": (0, Kind.PERMISSION, "write"),
    "401": (1, Kind.AUTH, "Incorrect API key"),
    "403": (1, Kind.AUTH, "no access"),
    "402": (1, Kind.QUOTA, "Insufficient credits"),
    "404": (1, Kind.CONFIGURATION, "no such model"),
    "too-long": (1, Kind.CONTEXT, "maximum context length"),
    "quota": (1, Kind.QUOTA, "exceeded your current quota"),
    "empty": (0, Kind.SILENT, "without any output"),
    "max-tokens": (0, Kind.CUT_SHORT, "cut"),
    "refusal": (1, Kind.REFUSAL, "content filter"),
    "unknown-model": (1, Kind.CRASH, "server error"),
}
LOG = 'timestamp=2026-11-16T06:02:33Z level=ERROR run=1 message="stream error" small={} error.error="{}"\n'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Bench("opencode", tmp_path, supervisor)


def test_every_recording_has_an_ending() -> None:
    assert sorted(ENDINGS) == recorded("opencode")


@pytest.mark.promise("agents.recordings")
@pytest.mark.parametrize("recording", ENDINGS)
def test_how_it_ended_has_a_kind_and_a_reason_of_one_line(recording: str, bench: Bench) -> None:
    bench.assert_ends(recording, ENDINGS)


def test_what_it_reports_is_summed_over_the_steps_and_no_price_is_unknown(bench: Bench) -> None:
    transcript = bench.plays("ok")
    usage = transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (200, 20, None)
    assert usage.session.startswith("ses_")
    assert transcript.text == b'{"status":"PASS"}\n'


def test_whoever_watches_sees_its_tools_and_its_words(bench: Bench) -> None:
    lines = (RECORDINGS / "opencode" / "ok.jsonl").read_bytes().splitlines()
    shown = [bench.agent().activity(event) for line in lines if (event := decoded(line))]
    assert [line for line in shown if line] == ["bash: echo made > made.txt; ls", '{"status":"PASS"}']


def test_the_costs_of_the_steps_are_added_up(bench: Bench) -> None:
    part = {"reason": "stop", "tokens": {"input": 1, "output": 2, "reasoning": 3, "cache": {}}, "cost": 0.25}
    steps = [json.dumps({"type": "step_finish", "sessionID": "s", "part": part})] * 3
    bench.does("cat <<'END'\n" + "\n".join(steps) + "\nEND")
    usage = bench.agent().run(bench.briefing()).usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (3, 15, 0.75)


@pytest.mark.parametrize(
    ("logged", "kind"),
    [
        ("AI_APICallError: Rate limit reached", Kind.RATE_LIMIT),
        ("AI_APICallError: You exceeded your current quota", Kind.QUOTA),
        ("AI_APICallError: slow down", Kind.OVERLOAD),
        ("Error: The socket connection was closed unexpectedly", Kind.CONNECTION),
        ("TypeError: undefined is not a function", Kind.TIMEOUT),
    ],
)
def test_an_agent_ended_while_it_tried_again_and_again_says_why(bench: Bench, logged: str, kind: Kind) -> None:
    log = LOG.format("false", logged) + LOG.format("true", "AI_APICallError: incorrect api key")
    bench.does(f"cat >&2 <<'END'\n{log}END\nsleep 60")
    failure = given_time(
        lambda seconds: bench.agent().run(bench.briefing(timeout=seconds)), lambda _: bench.printed()
    ).failure
    assert failure is not None
    assert failure.kind is kind


def test_an_error_that_points_to_the_log_is_read_there(bench: Bench) -> None:
    failure = bench.plays("unknown-model", 1, LOG.format("false", "ProviderModelNotFoundError: nope/nope")).failure
    assert failure is not None
    assert (failure.kind, failure.reaction) == (Kind.CONFIGURATION, Reaction.STOP)


def test_nobody_is_asked_and_the_users_settings_stay(bench: Bench) -> None:
    theirs = {"OPENCODE_CONFIG_CONTENT": '{"model": "a/b", "permission": {"bash": "ask"}}'}
    settings = json.loads(bench.sees('echo "settings: $OPENCODE_CONFIG_CONTENT"', base_env=theirs).partition(" ")[2])
    assert settings == {"model": "a/b", "permission": "allow", "share": "disabled", "autoupdate": False}


def test_the_prompt_goes_by_stdin_whatever_its_length(bench: Bench) -> None:
    assert bench.sees("cat; echo; echo \"$@\" | grep -c 'Do it'") == "Do it.\n0\n"


@pytest.mark.promise("agents.trust")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".opencode/plugin/evil.js", ""),
        (".opencode/plugins/evil.ts", ""),
        ("opencode.json", '{"plugin": ["evil"]}'),
        ("opencode.jsonc", '{"\\u0070lugin": ["evil"]}'),
        (".opencode/opencode.json", '{"plugins": ["evil"]}'),
    ],
)
def test_code_of_the_repository_keeps_it_from_being_started_unless_it_is_trusted(
    bench: Bench, name: str, text: str
) -> None:
    (bench.place / name).parent.mkdir(parents=True, exist_ok=True)
    (bench.place / name).write_text(text)
    bench.does("echo started")
    refused = bench.agent().run(bench.briefing())
    assert refused.failure is not None
    assert (refused.failure.kind, refused.text) == (Kind.CONFIGURATION, b"")
    assert name in refused.failure.reason
    assert bench.agent(trust_project=True).run(bench.briefing()).text == b"started\n"


def test_settings_of_the_repository_without_plugins_are_only_left_out(bench: Bench) -> None:
    (bench.place / "opencode.json").write_text('{"mcp": {}}')
    assert bench.sees('echo "$OPENCODE_DISABLE_PROJECT_CONFIG"') == "1\n"


@pytest.mark.promise("agents.retry-times")
def test_the_time_of_the_next_try_is_read_from_the_answer_it_hands_on(bench: Bench) -> None:
    data = {"message": "Slow down", "statusCode": 429, "isRetryable": True, "responseHeaders": {"retry-after": "42"}}
    error = {"type": "error", "sessionID": "s", "error": {"name": "APIError", "data": data}}
    bench.does(f"cat <<'END'\n{json.dumps(error)}\nEND\nexit 1")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert (failure.kind, failure.resets_in) == (Kind.RATE_LIMIT, 42.0)
