"""Programs that a repository asks the real claude to start: its hooks, and its tool servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.table import play
from tests.live.test_claude_table import CLAUDE


@pytest.fixture
def planted(tmp_path: Path) -> list[Path]:
    """What would be there if a hook, or a tool server, of the repository had been started."""
    place, traces = tmp_path / "place", [tmp_path / "hook-ran", tmp_path / "server-ran"]
    (place / ".claude").mkdir(parents=True)
    hook = {"hooks": [{"type": "command", "command": f"touch {traces[0]}"}]}
    (place / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"SessionStart": [hook], "Stop": [hook]}}))
    server = {"command": "touch", "args": [str(traces[1])]}
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"planted": server}}))
    return traces


def test_they_do_not_run(planted: list[Path], tmp_path: Path) -> None:
    assert play(CLAUDE, "ok", tmp_path).transcript.failure is None
    assert [trace.name for trace in planted if trace.exists()] == []


def test_they_run_where_the_settings_trust_the_project(planted: list[Path], tmp_path: Path) -> None:
    """Shows that the test above could fail."""
    assert play(CLAUDE, "ok", tmp_path, trust_project=True).transcript.failure is None
    assert [trace.name for trace in planted if trace.exists()] == ["hook-ran", "server-ran"]
