"""The four agent CLIs that the grids are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.live.table import Cli
from tests.live.test_claude_table import CLAUDE
from tests.live.test_codex_table import CODEX
from tests.live.test_gemini_table import GEMINI
from tests.live.test_opencode_table import OPENCODE

CLIS: Mapping[str, Cli] = {cli.name: cli for cli in (CLAUDE, CODEX, GEMINI, OPENCODE)}


def _with_a_subscription(url: str, home: Path) -> Mapping[str, str]:
    """A limit for hours is one of subscriptions; what claude would ask its vendor about them reaches nobody."""
    nobody = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    key = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}
    return {**CLAUDE.env(url, home), **key, **nobody}


def in_a_sandbox(cli: Cli) -> Cli:
    """In bubblewrap, where claude must work as root without a word of ours about sandboxes."""

    def env(url: str, home: Path) -> Mapping[str, str]:
        return {name: value for name, value in cli.env(url, home).items() if name != "IS_SANDBOX"}

    return replace(cli, env=env)


SUBSCRIBED = replace(CLAUDE, env=_with_a_subscription)
