"""Every way in which a run of the real codex can end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from capsule.core.failure import Kind, Reaction
from tests.live.conftest import program
from tests.live.model_server import LAST_WORD
from tests.live.table import SITUATIONS, Cli, SeenIn, play

_SETTINGS = """\
model = "m"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""


def _env(url: str, home: Path) -> Mapping[str, str]:
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(_SETTINGS.format(url=url))
    return {"HOME": str(home), "SCRIPTED_KEY": "dummy"}


CODEX = Cli(
    name="codex",
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
        "max tokens": Kind.CUT_SHORT,
        "refusal": Kind.SILENT,  # it drops the refusal, and ends as if all were well
        "prompt of 200 KB": None,
        "SIGTERM": Kind.CRASH,
        "tool still running at time-out": Kind.TIMEOUT,
    },
    cannot_show={
        "denied permission": "it is started without approvals and sandbox: nothing is left to be denied",
        "max turns": "it has no limit of turns",
    },
)


@pytest.fixture(scope="module")
def seen_in(tmp_path_factory: pytest.TempPathFactory) -> SeenIn:
    """Each situation is played once for all that is asked about it."""
    return cache(lambda situation: play(CODEX, situation, tmp_path_factory.mktemp("played")))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_how_it_ended_has_its_class_and_nothing_survives(situation: str, seen_in: SeenIn) -> None:
    seen = seen_in(situation)
    failure = seen.transcript.failure
    assert (failure.kind if failure else None) is CODEX.classes[situation], (failure, seen.transcript)
    assert seen.survivors == []


def test_success_has_all_that_is_to_be_known(seen_in: SeenIn) -> None:
    seen = seen_in("ok")
    usage = seen.transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out, usage.usd) == (3 * 100, 3 * 7, None)
    assert usage.session
    assert seen.transcript.text.decode() == f"{LAST_WORD}\n"
    assert (seen.place / "made.txt").read_text() == "made\n"
    assert any(line.startswith("Bash: ") for line in seen.told)


@pytest.mark.parametrize("situation", ["429", "529", "dropped stream"])
def test_its_own_retries_are_few_and_ours_cost_nothing(situation: str, seen_in: SeenIn) -> None:
    seen = seen_in(situation)
    assert seen.transcript.failure is not None
    assert seen.transcript.failure.reaction is Reaction.WAIT
    assert len(seen.model.asked) <= 4


def test_a_prompt_of_200_kb_arrives_whole(seen_in: SeenIn) -> None:
    seen = seen_in("prompt of 200 KB")
    assert SITUATIONS["prompt of 200 KB"].prompt in seen.model.asked[0].prompt


def test_its_home_is_a_copy_that_goes_with_the_run(tmp_path: Path) -> None:
    play(CODEX, "ok", tmp_path)
    (kept,) = (tmp_path / "home" / ".codex").iterdir()
    assert kept.name == "config.toml"
    assert "projects" not in kept.read_text()


def test_a_login_is_renewed_in_place_through_a_link(tmp_path: Path) -> None:
    """What the adapter's link to the user's login rests on."""
    login, home = tmp_path / "auth.json", tmp_path / "home"
    login.write_text("{}")
    home.mkdir()
    (home / "auth.json").symlink_to(login)
    words = [str(program("codex")), "login", "--with-api-key"]
    env = {"HOME": str(tmp_path), "CODEX_HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(words, input=b"sk-renewed", env=env, check=True, capture_output=True)
    assert "sk-renewed" in login.read_text()


@pytest.mark.parametrize("trusted", [False, True])
def test_tool_servers_of_the_repository_start_only_where_it_is_trusted(trusted: bool, tmp_path: Path) -> None:
    settings = tmp_path / "place" / ".codex" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[mcp_servers.evil]\ncommand = "touch"\nargs = ["{tmp_path}/started"]\n')
    seen = play(CODEX, "ok", tmp_path, trust_project=trusted)
    assert seen.transcript.failure is None
    assert (tmp_path / "started").exists() is trusted
