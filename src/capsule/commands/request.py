"""The options of commands that start agents: as a RunRequest, and as settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from capsule.app.planning import RunRequest
from capsule.core.errors import UsageError
from capsule.core.item import check_id

_OPTIONS = set(RunRequest.__struct_fields__) - {"items"}


def request_of(args: argparse.Namespace) -> RunRequest:
    """Turn a command's options into plain values; use defaults for missing ones."""
    options = {name: value for name, value in vars(args).items() if value is not None and name in _OPTIONS}
    named = [getattr(args, "item", None), *getattr(args, "target", ())]
    return RunRequest(tuple(check_id(name) for name in named if name is not None), **options)


def flags_of(args: argparse.Namespace) -> dict[str, object]:
    """Return the options that are settings, by their dotted key. A recording replaces every agent."""
    names = {
        "agent": "agent",
        "verify": "verify",
        "max_retries": "execution.max_retries",
        "jobs": "execution.jobs",
        "on": "engine",
    }
    flags = {key: getattr(args, name) for name, key in names.items() if getattr(args, name, None) is not None}
    if getattr(args, "replay", None) is None:
        return flags
    if args.agent:
        raise UsageError("--replay replaces every agent, so it cannot be used with --agent.", "Drop one.")
    script = [str(Path(args.replay).absolute())]
    return flags | {"agent": "scripted", "agents.scripted.kind": "scripted", "agents.scripted.args": script}
