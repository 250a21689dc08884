"""Every way in which a run of the real claude can end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from capsule.core.failure import Kind, Reaction
from tests.live.model_server import LAST_WORD
from tests.live.table import RETRY_AFTER, SITUATIONS, Cli, Seen, SeenIn, play

_AS_ROOT = {"IS_SANDBOX": "1"} if os.getuid() == 0 else {}
"""It refuses to work as root unless it is told that this is a sandbox; whoever tests as root has made one."""


def _env(url: str, home: Path) -> Mapping[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-dummy", "HOME": str(home), **_AS_ROOT}


CLAUDE = Cli(
    name="claude",
    env=_env,
    args={
        "denied permission": ("--settings", '{"permissions": {"ask": ["Write"]}}'),
        "max turns": ("--max-turns", "1"),
    },
    classes={
        "ok": None,
        "denied permission": Kind.PERMISSION,
        "401": Kind.AUTH,
        "429": Kind.RATE_LIMIT,
        "429 with retry-after": Kind.RATE_LIMIT,
        "529": Kind.OVERLOAD,
        "dropped stream": Kind.CONNECTION,
        "silent stream": Kind.SILENT,
        "empty answer": Kind.SILENT,
        "max turns": Kind.CUT_SHORT,
        "max tokens": Kind.CUT_SHORT,
        "refusal": Kind.REFUSAL,
        "prompt of 200 KB": None,
        "SIGTERM": Kind.CRASH,
        "tool still running at time-out": Kind.TIMEOUT,
    },
)


@pytest.fixture(scope="module")
def seen_in(tmp_path_factory: pytest.TempPathFactory) -> SeenIn:
    """Each situation is played once for all that is asked about it."""
    return cache(lambda situation: play(CLAUDE, situation, tmp_path_factory.mktemp("played")))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_how_it_ended_has_its_class_and_nothing_survives(situation: str, seen_in: SeenIn) -> None:
    seen = seen_in(situation)
    failure = seen.transcript.failure
    assert (failure.kind if failure else None) is CLAUDE.classes[situation], (failure, seen.transcript)
    assert seen.survivors == []


def test_success_has_all_that_is_to_be_known(seen_in: SeenIn) -> None:
    seen = seen_in("ok")
    usage = seen.transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out) == (3 * 123, 3 * 7)
    assert usage.usd
    assert usage.model.startswith("claude-")
    assert usage.session
    assert usage.seconds == seen.transcript.seconds
    assert seen.transcript.text.decode() == f"{LAST_WORD}\n"
    assert (seen.place / "made.txt").read_text() == "made\n"


def test_its_words_are_kept_and_its_temporary_files_are_not(seen_in: SeenIn) -> None:
    seen = seen_in("ok")
    output = seen.place / ".capsule" / "output"
    assert (output / "execute-1.log").read_text() == f"{LAST_WORD}\n"
    assert '"subtype":"init"' in (output / "execute-1.log.events").read_text().splitlines()[0]
    assert not Path((seen.place / "tmpdir.txt").read_text().strip()).exists()


def test_whoever_watches_sees_what_it_does(seen_in: SeenIn) -> None:
    seen = seen_in("tool still running at time-out")
    assert "Bash: touch endless; tail -f endless" in seen.told


@pytest.mark.parametrize("situation", ["429", "429 with retry-after", "529", "dropped stream"])
def test_its_own_retries_are_few_and_ours_cost_nothing(situation: str, seen_in: SeenIn) -> None:
    seen = seen_in(situation)
    assert seen.transcript.failure is not None
    assert seen.transcript.failure.reaction is Reaction.WAIT
    assert len(seen.model.asked) <= 4
    expected = RETRY_AFTER if "retry-after" in situation else None
    assert seen.transcript.failure.resets_in == expected


def test_a_prompt_of_200_kb_arrives_whole(seen_in: SeenIn) -> None:
    seen = seen_in("prompt of 200 KB")
    assert SITUATIONS["prompt of 200 KB"].prompt in seen.model.asked[0].prompt


@pytest.mark.skipif(os.getuid() != 0, reason="only root is refused")
def test_root_without_a_sandbox_is_told_what_to_do(tmp_path: Path) -> None:
    seen = play(CLAUDE, "ok", tmp_path, IS_SANDBOX="")
    _assert_stops(seen, Kind.CONFIGURATION, "bubblewrap")


def test_a_key_that_is_not_accepted_stops_the_run_and_says_how_to_log_in(seen_in: SeenIn) -> None:
    _assert_stops(seen_in("401"), Kind.AUTH, "ANTHROPIC_API_KEY")


def _assert_stops(seen: Seen, kind: Kind, hint: str) -> None:
    failure = seen.transcript.failure
    assert failure is not None
    assert (failure.kind, failure.reaction) == (kind, Reaction.STOP)
    assert hint in failure.hint
