"""What several commands do: find the project, the mission, and say how things stand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, UsageError

if TYPE_CHECKING:
    from capsule.core.state import MissionState
    from capsule.services import Services
    from capsule.wiring import Project


def root_of(args: argparse.Namespace) -> Path | None:
    """The project's root, or None outside of any."""
    from capsule.system.git import Git, NotARepository

    try:
        return Git.find(Path(args.project_dir or ".").absolute()).root
    except NotARepository:
        if args.project_dir:
            raise
        return None


def flags_of(args: argparse.Namespace) -> dict[str, object]:
    """Options that are settings, by their dotted key."""
    names = {"agent": "agent", "verify": "verify", "max_retries": "execution.max_retries"}
    flags = {key: getattr(args, name) for name, key in names.items() if getattr(args, name, None) is not None}
    return flags | replay_flags(args)


def replay_flags(args: argparse.Namespace) -> dict[str, object]:
    """A recording is a script; whoever plays it is the only agent there is."""
    file = getattr(args, "replay", None)
    if file is None:
        return {}
    if args.agent:
        raise UsageError("--replay takes the place of every agent, also of the one that --agent names.", "Drop one.")
    script = [str(Path(file).absolute())]
    return {"agent": "scripted", "agents.scripted.kind": "scripted", "agents.scripted.args": script}


def on_tape(services: Services, project: Project, args: argparse.Namespace) -> Services:
    """The services as `--replay` and `--record` want it."""
    from capsule.wiring import recorded, replayed

    if getattr(args, "replay", None):
        services, note = replayed(services, project, Path(args.replay).absolute())
        if note:
            print(f"note: {note}", file=sys.stderr)
    if getattr(args, "record", None):
        services = recorded(services, project, Path(args.record).absolute(), start_over=args.fresh)
    return services


def mission_state(project: Project, mission: str) -> MissionState:
    """Where a mission stands, without touching anything."""
    from capsule.core.state import replay

    journal = project.journal(read_only=True)
    state = replay(event for _, event in journal.events(mission))
    journal.close()
    return state


def known_mission(project: Project, mission: str) -> MissionState:
    state = mission_state(project, mission)
    if state.started:
        return state
    raise CapsuleError(
        f"There is no mission {mission}.",
        f"Start it with `capsule run {mission}`." if not _others(project) else f"There are: {_others(project)}.",
        exit_code=1,
    )


def _others(project: Project) -> str:
    journal = project.journal(read_only=True)
    names = journal.missions()
    journal.close()
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
