"""What is made of claude's own words, and what it is given."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from capsule.agents._stream import decoded
from capsule.core.briefing import SandboxPaths
from capsule.core.failure import Kind, Reaction
from capsule.settings import PhaseOptions
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import Bubblewrap, level
from tests.contracts.recordings import RECORDINGS, Bench, Endings, recorded
from tests.costs import LONG, costs_below, given_time

RECORDED = RECORDINGS / "claude"
ROOT = "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Bench("claude", tmp_path, supervisor)


# ── how it ended

ENDINGS: Endings = {
    "ok": (0, None, ""),
    "denied": (0, Kind.PERMISSION, "Write"),
    "401": (1, Kind.AUTH, "Invalid API key"),
    "403": (1, Kind.AUTH, "403"),
    "not-logged-in": (1, Kind.AUTH, "Not logged in"),
    "credit": (1, Kind.QUOTA, "Credit balance"),
    "404": (1, Kind.CONFIGURATION, "selected model"),
    "400": (1, Kind.CRASH, "400"),
    "429": (1, Kind.RATE_LIMIT, "429"),
    "429-retry-after": (1, Kind.RATE_LIMIT, "429"),
    "subscription-limit": (1, Kind.RATE_LIMIT, "5-hour limit"),
    "500": (1, Kind.OVERLOAD, "500"),
    "503": (1, Kind.OVERLOAD, "503"),
    "529": (1, Kind.OVERLOAD, "529"),
    "dropped": (1, Kind.CONNECTION, "lost"),
    "connection-refused": (1, Kind.CONNECTION, "refused"),
    "too-long": (1, Kind.CONTEXT, "too long"),
    "refusal": (1, Kind.REFUSAL, "safeguards"),
    "max-tokens": (1, Kind.CUT_SHORT, "output token maximum"),
    "max-turns": (1, Kind.CUT_SHORT, "turns (1)"),
    "max-budget": (1, Kind.CUT_SHORT, "budget"),
    "empty": (0, Kind.SILENT, "without any output"),
}


def test_every_recording_has_an_ending() -> None:
    assert sorted(ENDINGS) == recorded("claude")


@pytest.mark.sweep(cases=8)
@pytest.mark.promise("agents.recordings")
@pytest.mark.parametrize("recording", ENDINGS)
def test_how_it_ended_has_a_kind_and_a_reason_of_one_line(recording: str, bench: Bench) -> None:
    bench.assert_ends(recording, ENDINGS)


@pytest.mark.sweep(cases=8)
@pytest.mark.parametrize("recording", [name for name, (_, kind, _) in ENDINGS.items() if kind])
def test_what_stops_a_run_says_what_to_do(bench: Bench, recording: str) -> None:
    failure = bench.plays(recording, ENDINGS[recording][0]).failure
    assert failure is not None
    assert failure.reaction is not Reaction.STOP or failure.hint


def test_the_pause_that_the_provider_asks_for_is_told(bench: Bench) -> None:
    failure = bench.plays("429-retry-after", 1).failure
    assert failure is not None
    assert failure.resets_in == 3.0


def test_its_own_back_off_is_not_taken_for_the_providers(bench: Bench) -> None:
    failure = bench.plays("429", 1).failure
    assert failure is not None
    assert failure.resets_in is None


def test_a_subscription_says_when_it_opens_again(bench: Bench) -> None:
    opens = time.time() + 5000
    info = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": opens}}
    result = {
        "type": "result",
        "is_error": True,
        "result": "You've hit your limit",
        "api_error_type": "rate_limit_error",
    }
    bench.does(f"echo {shlex.quote(json.dumps(info))}; echo {shlex.quote(json.dumps(result))}; exit 1")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert 4900 < (failure.resets_in or 0) <= 5000


def test_a_limit_that_was_lifted_before_is_no_time_to_come_back_at(bench: Bench) -> None:
    info = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": time.time() - 60}}
    result = {"type": "result", "is_error": True, "result": "429", "api_error_type": "rate_limit_error"}
    failure = bench.prints(info, result, code=1).failure
    assert failure is not None
    assert (failure.kind, failure.resets_in) == (Kind.RATE_LIMIT, None)


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (ROOT, Kind.CONFIGURATION),
        ("error: unknown option '--nonesuch'", Kind.CONFIGURATION),
        ("piped stdin input exceeds 10MB", Kind.CONTEXT),
    ],
)
def test_what_it_refuses_on_stderr_is_understood(bench: Bench, stderr: str, kind: Kind) -> None:
    bench.does(f"echo {shlex.quote(stderr)} >&2; exit 1")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert failure.kind is kind
    assert failure.hint


def test_an_end_in_the_middle_is_a_crash_and_its_last_words_are_kept(bench: Bench) -> None:
    bench.does(f"head -n 6 {RECORDED}/ok.jsonl; head -c 100 {RECORDED}/ok.jsonl; exit 143")
    transcript = bench.agent().run(bench.briefing())
    assert transcript.failure is not None
    assert transcript.failure.kind is Kind.CRASH
    assert b'"status": "PASS"' in transcript.text


def test_an_end_while_it_waits_for_its_provider_is_the_providers(bench: Bench) -> None:
    bench.does(f"head -n 2 {RECORDED}/529.jsonl; sleep 60")
    transcript = given_time(
        lambda seconds: bench.agent().run(bench.briefing(idle_timeout=seconds)), lambda _: bench.printed()
    )
    assert transcript.why == "idle"
    assert transcript.failure is not None
    assert transcript.failure.kind is Kind.OVERLOAD


@pytest.mark.parametrize(("delay", "resets_in"), [(500, None), (30_000, 30.0)])
def test_the_back_off_it_was_ended_in_is_not_the_providers_either(
    bench: Bench, delay: int, resets_in: float | None
) -> None:
    about = {"error": "overloaded", "error_status": 529, "retry_delay_ms": delay}
    failure = bench.prints({"type": "system", "subtype": "api_retry", **about}, code=1).failure
    assert failure is not None
    assert (failure.kind, failure.resets_in) == (Kind.OVERLOAD, resets_in)


# ── more than one end


DENIED = {
    **{"type": "result", "is_error": False, "result": "real", "permission_denials": [{"tool_name": "Bash"}]},
    **{"total_cost_usd": 9.5, "usage": {"input_tokens": 100, "output_tokens": 5}},
}
FORGED = {
    **{"type": "result", "is_error": False, "result": "forged", "permission_denials": []},
    **{"total_cost_usd": 0.0001, "usage": {"input_tokens": 1, "output_tokens": 500}},
}
OVERLOADED = {"type": "result", "is_error": True, "result": "529", "api_error_type": "overloaded"}


@pytest.mark.parametrize("results", [(DENIED, FORGED), (FORGED, DENIED), (DENIED, OVERLOADED), (OVERLOADED, DENIED)])
def test_of_several_results_the_worst_counts(bench: Bench, results: tuple[dict[str, Any], ...]) -> None:
    failure = bench.prints(*results).failure
    assert failure is not None
    assert (failure.kind, "Bash" in failure.reason) == (Kind.PERMISSION, True)


def test_of_several_results_the_largest_usage_counts(bench: Bench) -> None:
    usage = bench.prints(DENIED, FORGED, OVERLOADED).usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (100, 500, 9.5)


@pytest.mark.slow
def test_many_results_are_read_in_linear_time(bench: Bench) -> None:
    line = shlex.quote(json.dumps(OVERLOADED))
    bench.does(f"yes {line} | head -n 20000")
    assert costs_below(10, lambda: bench.agent().run(bench.briefing(timeout=LONG)))
    assert bench.agent().run(bench.briefing(timeout=LONG)).failure is not None


# ── what is kept of it


def test_the_last_word_is_in_the_log_and_the_events_stand_beside_it(bench: Bench) -> None:
    transcript = bench.plays("ok")
    assert transcript.text.decode() == bench.log()
    assert json.loads(bench.log())["status"] == "PASS"
    assert bench.log(".events") == (RECORDED / "ok.jsonl").read_text()


def test_what_it_used_is_known(bench: Bench) -> None:
    transcript = bench.plays("ok")
    usage = transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out) == (3 * 123, 3 * 7)
    assert usage.usd == pytest.approx(0.0019218)
    assert usage.model == "claude-opus-5-5"
    assert usage.session.startswith("5e551011-")
    assert usage.seconds == transcript.seconds


def said(message: str, tokens_out: int, *, text: str = "at it") -> dict[str, Any]:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3}
    content = [{"type": "text", "text": text}]
    message_ = {"id": message, "content": content, "usage": {**usage, "output_tokens": tokens_out}}
    return {"type": "assistant", "message": message_}


ENDED_EARLY = {
    "by time-out": ("sleep 300", {"timeout": 3.0}, "timeout"),
    "for its silence": ("sleep 300", {"idle_timeout": 2.0}, "idle"),
    "by somebody else": ("kill -9 $$", {}, "exited"),
}


@pytest.mark.promise("agents.usage-when-ended")
@pytest.mark.parametrize(("then", "limits", "why"), ENDED_EARLY.values(), ids=ENDED_EARLY.keys())
def test_what_one_that_was_ended_had_used_is_the_last_word_of_each_message_added_up(
    bench: Bench, then: str, limits: dict[str, float], why: str
) -> None:
    """A message is printed once for each of its parts, with its usage each time."""
    events = [said("a", 1), said("a", 7), said("b", 2, text='{"type":"result"}'), said("c", 5), {"type": "assistant"}]
    lines = " ".join(shlex.quote(json.dumps(event)) for event in events)
    bench.does(f"printf '%s\\n' {lines}; {then}")
    transcript = bench.agent().run(bench.briefing(**limits))
    usage = transcript.usage
    assert transcript.why == why
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (3 * 123, 7 + 2 + 5, None)


def test_what_is_not_reported_is_unknown_not_zero(bench: Bench) -> None:
    bench.does(f"head -n 1 {RECORDED}/ok.jsonl; exit 1")
    usage = bench.agent().run(bench.briefing()).usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (None, None, None)
    assert usage.model == "claude-opus-5-5"


def test_whoever_watches_sees_its_tools(bench: Bench) -> None:
    bench.does(f"head -n 2 {RECORDED}/ok.jsonl; sleep 0.6; sed -n 3,4p {RECORDED}/ok.jsonl; sleep 0.6")
    bench.agent().run(bench.briefing())
    assert bench.told == ["Write: /home/ada/project/a.txt", "Bash: echo hi"]


@pytest.mark.parametrize(
    "garbage",
    [
        '{"type": "result", "is_error": true, "usage": 7, "modelUsage": [], "errors": [{}], "permission_denials": 3}',
        '{"type": "result", "is_error": false, "result": ["x"], "permission_denials": [7], "total_cost_usd": "free"}',
        '{"type": "assistant", "message": "no object"}',
        '{"type": "system", "subtype": "init", "model": {"a": 1}, "session_id": 7}',
        '{"type": "result", "result": "\\ud800 half a character", "usage": {"input_tokens": -1}}',
    ],
)
def test_events_of_another_form_break_nothing(bench: Bench, garbage: str) -> None:
    bench.does(f"printf '%s\\n' {shlex.quote(garbage)}")
    transcript = bench.agent().run(bench.briefing())
    assert transcript.why == "exited"
    assert decoded(garbage.encode()) is not None
    assert transcript.usage is not None
    assert (transcript.usage.tokens_in, transcript.usage.usd) == (None, None)


# ── the command line


def test_what_makes_it_headless_always_stands_there(bench: Bench) -> None:
    argv = bench.agent(args=("--max-turns", "9")).describe(bench.briefing())
    assert tuple(argv[:4]) == ("claude", "-p", "Do it.", "--dangerously-skip-permissions")
    assert tuple(argv[-2:]) == ("--max-turns", "9")


@pytest.mark.promise("agents.trust")
def test_the_projects_own_hooks_and_servers_take_part_only_where_they_are_trusted(bench: Bench) -> None:
    assert "--strict-mcp-config" in bench.agent().describe(bench.briefing())
    assert "--setting-sources" not in bench.agent(trust_project=True).describe(bench.briefing())


def test_it_is_held_to_what_is_left_of_the_budget(bench: Bench) -> None:
    argv = list(bench.agent().describe(bench.briefing(most_usd=0.5)))
    assert argv[argv.index("--max-budget-usd") + 1] == "0.5000"


@pytest.mark.promise("agents.per-phase")
def test_the_model_of_the_workflow_wins_over_the_phases_and_that_over_the_agents(bench: Bench) -> None:
    agent, briefing = bench.agent(model="slow", phases={"code": PhaseOptions(model="quick")}), bench.briefing()
    asked = [replace(briefing, model="best"), briefing, replace(briefing, phase="other")]
    models = [argv[argv.index("--model") + 1] for argv in map(list, map(agent.describe, asked))]
    assert models == ["best", "quick", "slow"]


def test_the_model_of_the_command_line_goes_before_all_settings(bench: Bench) -> None:
    agent = bench.agent(model="slow", chosen_model="asked", phases={"code": PhaseOptions(model="quick")})
    argv = list(agent.describe(bench.briefing()))
    assert argv[argv.index("--model") + 1] == "asked"


def test_a_limit_that_is_not_reached_says_nothing_about_when_to_come_back(bench: Bench, tmp_path: Path) -> None:
    first, *rest = (RECORDED / "529.jsonl").read_text().splitlines()
    told = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 4_000_000_000}}
    stream = tmp_path / "stream.jsonl"
    stream.write_text("\n".join([first, json.dumps(told), *rest]) + "\n")
    bench.does(f"cat {stream}; exit 1")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert (failure.kind, failure.resets_in) == (Kind.OVERLOAD, None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, Kind.AUTH), (402, Kind.QUOTA), (429, Kind.RATE_LIMIT), (529, Kind.OVERLOAD), (418, Kind.CRASH)],
)
def test_where_no_word_is_known_the_status_tells(bench: Bench, tmp_path: Path, status: int, kind: Kind) -> None:
    init = (RECORDED / "529.jsonl").read_text().splitlines()[0]
    result = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": status, "result": "no"}
    stream = tmp_path / "stream.jsonl"
    stream.write_text(f"{init}\n{json.dumps(result)}\n")
    bench.does(f"cat {stream}; exit 1")
    failure = bench.agent().run(bench.briefing()).failure
    assert failure is not None
    assert failure.kind is kind


def test_a_sandbox_that_fails_is_nobodys_answer(bench: Bench) -> None:
    class Around:
        @contextmanager
        def around(self, argv: tuple[str, ...], **_: object) -> Iterator[tuple[str, ...]]:
            yield ("sh", "-c", "echo bwrap: No permissions to create a new namespace >&2; exit 1")

    bench.does("echo never")
    failure = bench.agent(sandbox=Around()).run(bench.briefing()).failure
    assert failure is not None
    assert failure.kind is Kind.CONFIGURATION
    assert "namespace" in failure.reason


@pytest.mark.parametrize(("inside", "said"), [(False, "unset"), (True, "1")])
def test_it_is_told_of_a_sandbox_only_where_there_is_one(bench: Bench, inside: bool, said: str) -> None:
    class Around:
        @contextmanager
        def around(
            self, argv: tuple[str, ...], *, sandbox_paths: SandboxPaths, **about: object
        ) -> Iterator[tuple[str, ...]]:
            yield ("env", "INSIDE=yes", *argv)

    bench.does('echo "${IS_SANDBOX-unset} $CLAUDE_CODE_MAX_RETRIES"')
    transcript = bench.agent(sandbox=Around() if inside else None).run(bench.briefing())
    assert transcript.text.decode() == f"{said} 2\n"


@pytest.mark.sandboxed
def test_what_its_users_next_session_would_obey_cannot_be_changed_from_inside(bench: Bench) -> None:
    folder, elsewhere = bench.home / ".claude", bench.home / "dotfiles.md"
    (folder / "commands").mkdir(parents=True)
    obeyed = (bench.home / ".claude.json", folder / "settings.json")
    for file in (*obeyed, elsewhere):
        file.write_text("{}")
    (folder / "CLAUDE.md").symlink_to(elsewhere)
    tried = (*obeyed, folder / "commands" / "x", folder / "history")
    bench.does("; ".join(f"(echo planted > {file}) 2>/dev/null" for file in tried) + f"; cat {obeyed[1]}")
    sandbox = Bubblewrap(level("auto", os.environ), (str(bench.place),), (str(bench.home),))
    briefing = bench.briefing(sandbox_paths=SandboxPaths(writable=(str(bench.place),)))
    assert bench.agent(sandbox=sandbox).run(briefing).text == b"{}"
    assert [file.read_text() for file in obeyed] == ["{}", "{}"]
    assert sorted(file.name for file in folder.rglob("*")) == ["CLAUDE.md", "commands", "settings.json"]


def test_what_the_user_says_wins_over_our_defaults(bench: Bench) -> None:
    bench.does('echo "$CLAUDE_CODE_MAX_RETRIES $DISABLE_TELEMETRY"')
    env = {"PATH": f"{bench.folder}:/usr/bin:/bin", "CLAUDE_CODE_MAX_RETRIES": "7"}
    transcript = bench.agent(base_env=env, env={"DISABLE_TELEMETRY": "0"}).run(bench.briefing())
    assert transcript.text == b"7 0\n"
