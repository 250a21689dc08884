"""Every way in which a run of the real opencode can end. It starts slowly, and seldom gives up by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from capsule.core.failure import Kind, Reaction
from tests.live.model_server import LAST_WORD
from tests.live.table import SITUATIONS, Cli, Seen, play

_QUIET = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")


def _env(url: str, home: Path) -> Mapping[str, str]:
    """The provider stands in the user's settings file: what the adapter adds must leave it in force."""
    model = {"name": "m", "limit": {"context": 200_000, "output": 8192}, "cost": {"input": 1, "output": 2}}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": options, "models": {"m": model}}
    settings = {"model": "scripted/m", "small_model": "scripted/m", "provider": {"scripted": provider}}
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(settings))
    return {"HOME": str(home), **{f"OPENCODE_DISABLE_{name}": "1" for name in _QUIET}}


def _asking(url: str, home: Path) -> Mapping[str, str]:
    return {**_env(url, home), "OPENCODE_PERMISSION": json.dumps({"edit": "ask"})}


OPENCODE = Cli(
    name="opencode",
    env=_env,
    classes={
        "ok": None,
        "denied permission": Kind.PERMISSION,
        "401": Kind.AUTH,
        "429": Kind.OVERLOAD,  # the log has the provider's words and no status, and these words say little
        "429 with retry-after": Kind.OVERLOAD,
        "529": Kind.OVERLOAD,
        "silent stream": Kind.SILENT,
        "empty answer": Kind.SILENT,
        "max tokens": Kind.CUT_SHORT,
        "refusal": Kind.REFUSAL,
        "prompt of 200 KB": None,
        "SIGTERM": Kind.CRASH,
        "tool still running at time-out": Kind.TIMEOUT,
        "dropped stream": Kind.CONNECTION,
    },
    cannot_show={"max turns": "it has no limit of turns"},
    patience={
        **dict.fromkeys(("429", "429 with retry-after", "529", "dropped stream"), 30.0),
        **dict.fromkeys(("silent stream", "tool still running at time-out"), 30.0),
    },
)
_WHERE_IT_GIVES_UP = dict.fromkeys(("429", "429 with retry-after"), Kind.RATE_LIMIT)
"""On a quick machine it sometimes has tried often enough before its time is up, and then names the status."""
_VARIANTS = {"denied permission": replace(OPENCODE, env=_asking)}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_how_it_ended_has_its_class_and_nothing_survives(situation: str, tmp_path: Path) -> None:
    seen = play(_VARIANTS.get(situation, OPENCODE), situation, tmp_path)
    failure = seen.transcript.failure
    kind, expected = failure.kind if failure else None, OPENCODE.classes[situation]
    assert kind in (expected, _WHERE_IT_GIVES_UP.get(situation, expected)), (failure, seen.transcript)
    assert seen.survivors == []
    assert seen.model.asked
    if situation == "ok":
        _assert_all_is_known(seen)
    if situation in ("429", "429 with retry-after", "529", "dropped stream"):
        assert failure is not None
        assert failure.reaction is Reaction.WAIT
    if situation == "prompt of 200 KB":
        assert SITUATIONS[situation].prompt in seen.model.asked[0].prompt


def _assert_all_is_known(seen: Seen) -> None:
    usage = seen.transcript.usage
    assert usage is not None
    assert (usage.tokens_in, usage.tokens_out) == (3 * 100, 3 * 7)
    assert usage.usd
    assert usage.session
    assert seen.transcript.text.decode() == f"{LAST_WORD}\n"
    assert (seen.place / "made.txt").read_text() == "made\n"
    assert any(line.startswith("write: ") for line in seen.told)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_repositorys_plugins_run_only_where_it_is_trusted(trusted: bool, tmp_path: Path) -> None:
    plugin = tmp_path / "place" / ".opencode" / "plugin" / "evil.js"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(f"require('fs').writeFileSync('{tmp_path}/started', ''); export const Evil = async () => ({{}})")
    seen = play(OPENCODE, "ok", tmp_path, trust_project=trusted)
    failure = seen.transcript.failure
    assert (failure.kind if failure else None) is (None if trusted else Kind.CONFIGURATION)
    assert (tmp_path / "started").exists() is trusted


def test_tool_servers_of_the_repository_do_not_start(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    server = {"type": "local", "command": ["touch", f"{tmp_path}/started"], "enabled": True}
    (tmp_path / "place" / "opencode.json").write_text(json.dumps({"mcp": {"evil": server}, "permission": "deny"}))
    seen = play(OPENCODE, "ok", tmp_path)
    assert seen.transcript.failure is None
    assert not (tmp_path / "started").exists()
