"""What a sandboxed agent may change in its user's home: its login, and nothing that a next session would obey."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.agents import command
from capsule.core.briefing import SandboxPaths
from capsule.presets import presets
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import Bubblewrap, level
from tests.contracts.recordings import Bench
from tests.shared import a_connection

pytestmark = pytest.mark.sandboxed

OBEYED = {
    "claude": (
        *(".claude.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/CLAUDE.md"),
        *(".claude/hooks/x.sh", ".claude/statusline.sh", ".claude/skills/x/SKILL.md", ".claude/plugins/x.json"),
        ".claude/projects/-home-me-shop/memory/MEMORY.md",
    ),
    "codex": (".codex/config.toml", ".codex/AGENTS.md", ".codex/hooks.json", ".codex/prompts/x.md"),
    "gemini": (
        ".gemini/settings.json",
        ".gemini/GEMINI.md",
        ".gemini/extensions/x/x.json",
        ".config/gcloud/properties",
    ),
    "opencode": (
        *(".config/opencode/opencode.json", ".config/opencode/AGENTS.md", ".config/opencode/plugin/x.js"),
        *(".config/opencode/node_modules/x.js", ".cache/opencode/node_modules/x.js", ".cache/opencode/bin/rg"),
        *(".local/share/opencode/bin/gopls", ".local/state/opencode/x.json"),
    ),
    "aider": (".aider.conf.yml", ".aider/oauth-keys.env"),
    "copilot": (".copilot/mcp-config.json", ".copilot/config.json", ".cache/copilot/pkg/index.js"),
    "qwen": (".qwen/settings.json", ".qwen/QWEN.md", ".qwen/extensions/x.js"),
    "pi": (".pi/agent/settings.json", ".pi/agent/extensions/x.ts", ".pi/agent/AGENTS.md"),
    "kiro": (".kiro/settings/mcp.json", ".kiro/agents/x.json"),
    "amp": (".config/amp/settings.json", ".config/amp/plugins/x.ts"),
}
LOGINS = {
    "claude": ".claude/.credentials.json",
    "codex": ".codex/auth.json",
    "opencode": ".local/share/opencode/auth.json",
    "qwen": ".qwen/oauth_creds.json",
    "pi": ".pi/agent/auth.json",
    "kiro": ".local/share/kiro-cli/data.sqlite3",
    "amp": ".local/share/amp/secrets.json",
}
PLANT = """
plant() {
    {
        mkdir -p "$(dirname "$1")"
        for _ in 1 2; do
            echo planted > "$1"
            rm -f "$1"
            mv "$1" "$1.old"
        done
        echo planted > "$1"
    } 2>/dev/null
}
"""


@pytest.fixture
def supervisor() -> Iterator[SupervisorClient]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield supervisor


def _plays(name: str, folder: Path, supervisor: SupervisorClient, script: str) -> bytes:
    """Runs a script in the place of the CLI, in a sandbox; returns what it printed."""
    bench = Bench(name, folder, supervisor) if not (folder / "home").exists() else _again(name, folder, supervisor)
    bench.does(script)
    sandbox = Bubblewrap(level("auto", os.environ), (str(bench.place),), (str(bench.home),))
    briefing = bench.briefing(sandbox_paths=SandboxPaths(writable=(str(bench.place),)))
    preset = presets().get(name)
    if preset is None:
        return bench.agent(sandbox=sandbox).run(briefing).text
    connection = a_connection(
        name=name,
        supervisor=supervisor,
        root=folder,
        command=(name, "{prompt}"),
        preset=preset,
        base_env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(bench.home)},
        sandbox=sandbox,
    )
    return command.connect(connection).run(briefing).text


def _again(name: str, folder: Path, supervisor: SupervisorClient) -> Bench:
    bench = Bench.__new__(Bench)
    bench.name, bench.folder, bench.supervisor = name, folder, supervisor
    bench.home, bench.place, bench.told = folder / "home", folder / "place", []
    bench.place.mkdir(exist_ok=True)
    return bench


def _put(home: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine\n")


def _files(home: Path) -> dict[str, str]:
    return {str(file.relative_to(home)): file.read_text() for file in home.rglob("*") if file.is_file()}


def test_every_agent_that_is_known_is_tried() -> None:
    assert {*OBEYED} == {"claude", "codex", "gemini", "opencode", *presets()}


@pytest.mark.sweep(cases=4)
@pytest.mark.promise("sandbox.planted-home")
@pytest.mark.parametrize("there", ["all of it", "its folders", "nothing"])
@pytest.mark.parametrize("name", OBEYED)
def test_what_a_next_session_would_obey_cannot_be_planted(
    name: str, there: str, tmp_path: Path, supervisor: SupervisorClient
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if there == "all of it":
        _put(home, OBEYED[name])
    if there == "its folders":
        for file in OBEYED[name]:
            (home / file).parent.mkdir(parents=True, exist_ok=True)
    before = _files(home)
    plant = "; ".join(f'plant "$HOME/{file}"' for file in OBEYED[name])
    assert _plays(name, tmp_path, supervisor, f"{PLANT}{plant}; echo tried").endswith(b"tried\n")
    assert _files(home) == before


@pytest.mark.promise("sandbox.planted-home")
@pytest.mark.parametrize("name", LOGINS)
def test_a_login_that_was_renewed_is_kept(name: str, tmp_path: Path, supervisor: SupervisorClient) -> None:
    home = tmp_path / "home"
    home.mkdir()
    _put(home, (LOGINS[name], *OBEYED[name]))
    folder = "$CODEX_HOME" if name == "codex" else f"~/{Path(LOGINS[name]).parent}"
    _plays(name, tmp_path, supervisor, f"echo renewed > {folder}/{Path(LOGINS[name]).name}")
    assert (home / LOGINS[name]).read_text() == "renewed\n"


@pytest.mark.parametrize("name", ["claude", "opencode", "pi"])
def test_what_the_user_has_set_up_is_seen_by_the_agent(name: str, tmp_path: Path, supervisor: SupervisorClient) -> None:
    """Also where a folder of settings is a link to where its user keeps such things."""
    home = tmp_path / "home"
    (home / "dotfiles").mkdir(parents=True)
    first = next(file for file in OBEYED[name] if "/" in file)
    top = Path(first).parent
    (home / top).parent.mkdir(parents=True, exist_ok=True)
    (home / top).symlink_to(home / "dotfiles")
    (home / "dotfiles" / Path(first).name).write_text("mine\n")
    assert b"mine" in _plays(name, tmp_path, supervisor, f"cat ~/{first}")
