"""Describe CLIs that need no adapter of their own, as data (agents/presets.yaml).

`agent: aider` in the settings then just works: the `command` adapter runs what the preset describes. What the settings
say about the same name wins; a `command` in the settings replaces the preset altogether.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from capsule.plain_files import parse_yaml, read_plain
from capsule.settings import AgentOptions, Settings, Texts

_FILE = Path(__file__).parent / "agents" / "presets.yaml"


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One CLI."""

    about: str = ""
    """Notes for users."""
    tested: str = ""
    """Version, date and how; empty where nobody has tried."""
    get: str = ""
    """How to get it."""
    command: Texts = ()
    prompt: str = "argument"
    model_args: Texts = ()
    env: dict[str, str] = {}
    passes: Texts = ()
    """Variables of the user's environment that it needs."""
    home: Texts = ()
    """Paths below the user's home that it must read and write: its login."""
    home_read_only: dict[str, Texts] = {}
    """Paths there that it reads and its user's next session would obey; of each folder the names that are its own."""
    failures: dict[str, str] = {}

    @property
    def mark(self) -> str:
        return f"tested: {self.tested}" if self.tested else "untested"


@cache
def presets() -> dict[str, Preset]:
    return msgspec.convert(parse_yaml(read_plain(_FILE) or b"", _FILE.name), dict[str, Preset])


def described(settings: Settings, name: str) -> tuple[AgentOptions, Preset]:
    """Return the settings of an agent, completed by the preset of its name or kind; a path is a program of its own."""
    by_path = AgentOptions(kind="command", command=(name,)) if "/" in name else AgentOptions()
    options = settings.agents.get(name, by_path)
    preset = Preset() if options.command else presets().get(options.kind or name, Preset())
    if not preset.command:
        return options, preset
    completed = msgspec.structs.replace(
        options,
        kind="command",
        command=preset.command,
        prompt=preset.prompt,
        model_args=options.model_args or preset.model_args,
        env={**preset.env, **options.env},
        failures={**preset.failures, **options.failures},
    )
    return completed, preset
