"""Every way in which a run of the real gemini can end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from capsule.core.failure import Kind, Reaction
from tests.live.model_server import LAST_WORD
from tests.live.table import RETRY_AFTER, SITUATIONS, Cli, play


def _env(url: str, home: Path) -> Mapping[str, str]:
    return {"HOME": str(home), "GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}


def _with_one_turn(url: str, home: Path) -> Mapping[str, str]:
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text('{"model": {"maxSessionTurns": 1} /* no flag for it */}')
    return _env(url, home)


GEMINI = Cli(
    name="gemini",
    env=_env,
    classes={
        "ok": None,
        "401": Kind.AUTH,
        "429": Kind.RATE_LIMIT,
        "429 with retry-after": Kind.RATE_LIMIT,
        "529": Kind.OVERLOAD,
        "dropped stream": Kind.CONNECTION,
        "silent stream": Kind.SILENT,
        "empty answer": Kind.SILENT,
        "max turns": Kind.CUT_SHORT,
        "max tokens": None,  # it reports success, with half an answer: the missing signal has to tell
        "refusal": Kind.REFUSAL,
        "prompt of 200 KB": None,
        "SIGTERM": Kind.CRASH,
        "tool still running at time-out": Kind.TIMEOUT,
    },
    cannot_show={"denied permission": "nothing is asked with --yolo, and tools that are excluded are not offered"},
    patience={"tool still running at time-out": 12.0, "silent stream": 8.0},
)
_VARIANTS = {"max turns": replace(GEMINI, env=_with_one_turn)}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_how_it_ended_has_its_class_and_nothing_survives(situation: str, tmp_path: Path) -> None:
    seen = play(_VARIANTS.get(situation, GEMINI), situation, tmp_path)
    failure = seen.transcript.failure
    assert (failure.kind if failure else None) is GEMINI.classes[situation], (failure, seen.transcript)
    assert seen.survivors == []
    if situation == "429 with retry-after":
        assert failure is not None
        assert failure.resets_in == RETRY_AFTER
    if failure and failure.reaction is Reaction.WAIT:
        assert len(seen.model.asked) <= 4


def test_success_has_all_that_is_to_be_known(tmp_path: Path) -> None:
    seen = play(GEMINI, "ok", tmp_path)
    usage = seen.transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (3 * 100, 3 * 7, None)
    assert (usage.model, bool(usage.session)) == ("gemini-2.5-pro", True)
    assert seen.transcript.text.decode() == f"{LAST_WORD}\n"
    assert (seen.place / "made.txt").read_text() == "made\n"
    assert "write_file: made.txt" in seen.told
    assert not (tmp_path / "home" / ".gemini").exists()


def test_a_prompt_of_200_kb_arrives_whole(tmp_path: Path) -> None:
    seen = play(GEMINI, "prompt of 200 KB", tmp_path)
    assert SITUATIONS["prompt of 200 KB"].prompt in seen.model.asked[0].prompt


def test_a_key_is_found_where_users_keep_it(tmp_path: Path) -> None:
    def without_a_key(url: str, home: Path) -> Mapping[str, str]:
        (home / ".gemini").mkdir()
        (home / ".gemini" / ".env").write_text("export GEMINI_API_KEY='dummy'\n")
        return {"HOME": str(home), "GOOGLE_GEMINI_BASE_URL": url}

    assert play(replace(GEMINI, env=without_a_key), "ok", tmp_path).transcript.failure is None


def test_no_key_at_all_stops_the_run_and_says_how_to_log_in(tmp_path: Path) -> None:
    seen = play(replace(GEMINI, env=lambda _url, home: {"HOME": str(home)}), "ok", tmp_path)
    assert seen.transcript.failure is not None
    assert seen.transcript.failure.kind is Kind.AUTH
    assert "GEMINI_API_KEY" in seen.transcript.failure.hint


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("file", [".env", ".gemini/.env"])
def test_tool_servers_and_variables_of_the_repository_count_only_where_it_is_trusted(
    file: str, trusted: bool, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    (place / ".gemini").mkdir(parents=True)
    server = {"command": "touch", "args": [f"{tmp_path}/started"], "trust": True}
    (place / ".gemini" / "settings.json").write_text(json.dumps({"mcpServers": {"evil": server}}))
    (tmp_path / "evil.sh").write_text(f"touch {tmp_path}/sourced\n")
    (place / file).write_text(f"BASH_ENV={tmp_path}/evil.sh\n")
    seen = play(GEMINI, "ok", tmp_path, trust_project=trusted)
    assert seen.transcript.failure is None
    assert (tmp_path / "started").exists() is trusted
    assert (tmp_path / "sourced").exists() is trusted
