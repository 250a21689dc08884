"""Show every effective setting, its value and the layer that set it.

Layers, from weakest to strongest: default, user (~/.config/capsule/config.yaml), project (.capsule/config.yaml, or
orchestrate.toml), environment (CAPSULE_EXECUTION__MAX_RETRIES=1 sets execution.max_retries) and flag.

  capsule config                     the whole table
  capsule config verify              one value, alone on its line
  capsule config execution           one section
  capsule config --json              [{"key": ..., "value": ..., "layer": ...}, ...]

Values of an agent's `env` whose names look secret are shown as *** unless you ask for the key by its full name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

from capsule.commands.arguments import say, warn
from capsule.core.errors import UsageError
from capsule.core.text import did_you_mean
from capsule.reports.style import output_width
from capsule.settings import load_settings
from capsule.system.git import Git, NotARepository

_SECRET = re.compile(r"agents\..*\.env\..*(KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH)", re.IGNORECASE)

Row = tuple[str, object, str]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="KEY", help="a setting or a section, such as execution.max_retries")
    parser.add_argument("--json", action="store_true", help="machine-readable")


def run(args: argparse.Namespace) -> int:
    try:
        root = Git.find(Path(args.project_dir or ".").absolute()).root
    except NotARepository:
        if args.project_dir:
            raise
        root = None
    loaded = load_settings(root, env=os.environ, flags={})
    warn(f"warning: {warning}" for warning in loaded.warnings)
    rows = _chosen(loaded.rows(), args.key)
    if args.json:
        print(json.dumps([{"key": key, "value": value, "layer": layer} for key, value, layer in rows], indent=2))
    else:
        say(_shown(rows[0][1]) if rows[0][0] == args.key else _as_table(rows))
    return 0


def _chosen(rows: list[Row], key: str | None) -> list[Row]:
    """Return all rows, the one of this key, or those of this section; hide secrets unless named."""
    found = [row for row in rows if not key or row[0] == key or row[0].startswith(f"{key}.")]
    if found:
        return [row if row[0] == key or not _SECRET.match(row[0]) else (row[0], "***", row[2]) for row in found]
    hint = did_you_mean(str(key), [row[0] for row in rows], "`capsule config` lists them all.")
    raise UsageError(f"There is no setting `{key}`.", hint)


def _as_table(rows: list[Row]) -> str:
    """Lay out three columns; a value that is too long moves its layer to the right, or to the next line."""
    cells = [("KEY", "VALUE", "LAYER"), *((key, _shown(value), layer) for key, value, layer in rows)]
    key_width = max(len(key) for key, _, _ in cells)
    room = min(40, output_width(sys.stdout) - key_width - max(len(layer) for _, _, layer in cells) - 4)
    value_width = max((len(value) for _, value, _ in cells if len(value) <= room), default=0)
    return "\n".join(f"{key:<{key_width}}  {value:<{value_width}}  {layer}" for key, value, layer in cells)


def _shown(value: object) -> str:
    """Write a value as in the settings file, on one line without control characters."""
    if value is None:
        return "unset"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    plain = isinstance(value, str) and value.isprintable() and value != ""
    return str(value) if plain else json.dumps(value)
