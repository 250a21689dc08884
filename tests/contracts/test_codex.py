"""What is made of codex's own words, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.core.briefing import SandboxPaths, Transcript
from capsule.core.failure import Kind
from capsule.system.process import SupervisorClient
from tests.contracts.recordings import Bench, Endings, recorded
from tests.costs import given_time

ENDINGS: Endings = {
    "ok": (0, None, ""),
    "401": (1, Kind.AUTH, "Incorrect API key"),
    "403": (1, Kind.AUTH, "403 Forbidden"),
    "no-key": (1, Kind.AUTH, "Missing environment variable"),
    "404": (1, Kind.CONFIGURATION, "model not found"),
    "429": (1, Kind.RATE_LIMIT, "429 Too Many Requests"),
    "rate-limit": (1, Kind.RATE_LIMIT, "try again in 11.054s"),
    "quota": (1, Kind.QUOTA, "Quota exceeded"),
    "usage-limit": (1, Kind.QUOTA, "usage limit"),
    "500": (1, Kind.OVERLOAD, "high demand"),
    "503": (1, Kind.OVERLOAD, "503"),
    "529": (1, Kind.OVERLOAD, "529"),
    "reconnecting": (1, Kind.OVERLOAD, "503"),
    "at-capacity": (1, Kind.OVERLOAD, "at capacity"),
    "context-window": (1, Kind.CONTEXT, "context window"),
    "too-long": (1, Kind.CONTEXT, "context_length_exceeded"),
    "dropped": (1, Kind.CONNECTION, "stream disconnected"),
    "no-network": (143, Kind.CONNECTION, "waiting for network"),
    "empty": (0, Kind.SILENT, "without any output"),
    "refusal": (0, Kind.SILENT, "without any output"),
    "max-tokens": (1, Kind.CUT_SHORT, "max_output_tokens"),
    "filtered": (1, Kind.REFUSAL, "content_filter"),
    "flagged": (1, Kind.REFUSAL, "usage policy"),
}
PROVIDER = '[model_providers.own]\nname = "own"\nbase_url = "http://127.0.0.1:9"\nenv_key = "OWN_KEY"\n'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Bench("codex", tmp_path, supervisor)


@pytest.fixture
def users_home(bench: Bench) -> Path:
    home = bench.home / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(PROVIDER)
    (home / "auth.json").write_text("the login")
    return home


def test_every_recording_has_an_ending() -> None:
    assert sorted(ENDINGS) == recorded("codex")


@pytest.mark.promise("agents.recordings")
@pytest.mark.parametrize("recording", ENDINGS)
def test_how_it_ended_has_a_kind_and_a_reason_of_one_line(recording: str, bench: Bench) -> None:
    bench.assert_ends(recording, ENDINGS)


def test_what_it_reports_is_known_and_the_rest_is_not(bench: Bench) -> None:
    transcript = bench.plays("ok")
    usage = transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd, usage.model) == (200, 20, None, "")
    assert usage.session == "01a1e30d-1443-7120-be86-4180b45e14cb"
    assert transcript.text == b'{"status":"PASS"}\n'


ROLLOUT = """\
{"type":"event_msg","payload":{"type":"token_count","info":null}}
{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"output_tokens":7}}}}
{"type":"response_item","payload":{"text":"\\"token_count\\": mine"}}
{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":250,"output_tokens":19}}}}
"""
"""As 0.166.0 writes it below its home, left out what does not matter; each count is that of the whole thread so far."""


@pytest.mark.promise("agents.usage-when-ended")
def test_what_one_that_was_ended_had_used_is_read_from_its_own_record(bench: Bench) -> None:
    (bench.folder / "rollout").write_text(ROLLOUT)
    day = '"$CODEX_HOME/sessions/2026/11/17"'
    copies = "; ".join(f"cp {bench.folder}/rollout {day}/rollout-{thread}.jsonl" for thread in (1, 2))
    bench.does(
        f"mkdir -p {day}; {copies}\n"
        """echo '{"type":"thread.started","thread_id":"t"}'; sleep 300"""
    )
    transcript = bench.agent().run(bench.briefing(timeout=3.0))
    usage = transcript.usage
    assert usage is not None
    assert (transcript.why, usage.tokens_in, usage.tokens_out, usage.session) == ("timeout", 500, 38, "t")


def test_a_pause_that_the_provider_asks_for_is_told(bench: Bench) -> None:
    failure = bench.plays("rate-limit", 1).failure
    assert failure is not None
    assert failure.resets_in == pytest.approx(11.054)


def ended_while_it_slept(bench: Bench, recording: str) -> Transcript:
    return given_time(
        lambda seconds: bench.plays(recording, then="sleep 60", timeout=seconds), lambda _: bench.printed()
    )


def test_an_agent_ended_while_it_waits_for_the_network_is_not_to_blame(bench: Bench) -> None:
    transcript = ended_while_it_slept(bench, "no-network")
    assert transcript.why == "timeout"
    assert transcript.failure is not None
    assert transcript.failure.kind is Kind.CONNECTION


def test_an_agent_ended_in_the_middle_of_its_work_timed_out(bench: Bench) -> None:
    failure = ended_while_it_slept(bench, "ok").failure
    assert failure is not None
    assert failure.kind is Kind.TIMEOUT


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("error: unexpected argument '--nope' found\n\nUsage: codex exec [OPTIONS]", "'--nope'"),
        ("Error loading config.toml: model_providers.x: provider name must not be empty", "config.toml"),
    ],
)
def test_a_command_line_or_settings_that_it_refuses_stop_the_run(bench: Bench, stderr: str, words: str) -> None:
    bench.does(f'echo "{stderr}" >&2; exit 2')
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert failure.kind is Kind.CONFIGURATION
    assert words in failure.reason


def test_whoever_watches_sees_the_command_and_not_the_shell_around_it(bench: Bench) -> None:
    bench.plays("ok")
    assert "Bash: echo made > made.txt; ls" in bench.told


def test_its_home_holds_the_users_settings_and_a_link_to_the_login(bench: Bench, users_home: Path) -> None:
    seen = bench.sees('cat "$CODEX_HOME/config.toml"; readlink "$CODEX_HOME/auth.json"; echo "$CODEX_HOME"')
    *settings, link, home = seen.splitlines()
    assert "\n".join(settings) + "\n" == PROVIDER
    assert link == str(users_home / "auth.json")
    assert home != str(users_home)
    assert not Path(home).exists()


def test_what_an_agent_writes_to_its_settings_does_not_reach_the_users(bench: Bench, users_home: Path) -> None:
    bench.sees('echo \'notify = ["evil"]\' >> "$CODEX_HOME/config.toml"; echo renewed > "$CODEX_HOME/auth.json"')
    assert (users_home / "config.toml").read_text() == PROVIDER
    assert (users_home / "auth.json").read_text() == "renewed\n"


def test_a_home_that_the_settings_name_is_used_as_it_is(bench: Bench, tmp_path: Path) -> None:
    assert bench.sees('echo "$CODEX_HOME"', env={"CODEX_HOME": str(tmp_path)}) == f"{tmp_path}\n"


def test_a_provider_of_the_users_own_gets_its_key_and_retries_little(bench: Bench, users_home: Path) -> None:
    given = {"OWN_KEY": "sk-own", "OTHER_KEY": "sk-other"}
    seen = bench.sees('echo "$OWN_KEY,$OTHER_KEY"; echo "$@"', base_env=given)
    assert seen.startswith("sk-own,\n")
    assert "model_providers.own.request_max_retries=1" in seen
    assert (users_home / "config.toml").exists()


@pytest.mark.promise("agents.trust")
@pytest.mark.parametrize(("trusted", "said"), [(False, True), (True, False)])
def test_the_repository_takes_no_part_unless_it_is_trusted(bench: Bench, trusted: bool, said: bool) -> None:
    argv = bench.agent(trust_project=trusted).describe(bench.briefing(cwd='/a "b"/c'))
    assert ('projects={"/a \\"b\\"/c"={trust_level="untrusted"}}' in argv) is said


def test_the_checkouts_path_is_not_trusted_either_where_the_place_is_seen_there(bench: Bench) -> None:
    argv = bench.agent().describe(bench.briefing(cwd="/a/place", sandbox_paths=SandboxPaths(place="/a/place", at="/a")))
    untrusted = '{trust_level="untrusted"}'
    assert f'projects={{"/a/place"={untrusted},"/a"={untrusted}}}' in argv


def test_a_prompt_that_looks_like_a_flag_is_a_prompt(bench: Bench) -> None:
    assert tuple(bench.agent().describe(bench.briefing(prompt="--help")))[-2:] == ("--", "--help")


def test_settings_that_are_no_toml_leave_its_complaint_to_codex(bench: Bench, users_home: Path) -> None:
    (users_home / "config.toml").write_text("= broken")
    assert bench.sees('cat "$CODEX_HOME/config.toml"') == "= broken"
