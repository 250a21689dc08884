"""Read the state of missions, and which of them run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError
from capsule.system.lock import holder

if TYPE_CHECKING:
    from capsule.core.state import MissionState
    from capsule.journals.sqlite import SqliteJournal
    from capsule.project import Project


def mission_state(project: Project, mission: str) -> MissionState:
    """Replay a mission's journal."""
    journal = project.journal(read_only=True)
    state = _replayed(journal, mission)
    journal.close()
    return state


def mission_names(project: Project) -> list[str]:
    """Name all missions of the journal, by id."""
    journal = project.journal(read_only=True)
    names = list(journal.missions())
    journal.close()
    return names


def states_of(project: Project, missions: Iterable[str]) -> dict[str, MissionState]:
    """Replay those missions that have begun."""
    journal = project.journal(read_only=True)
    known = set(journal.missions())
    found = {name: _replayed(journal, name) for name in missions if name in known}
    journal.close()
    return found


def _replayed(journal: SqliteJournal, mission: str) -> MissionState:
    from capsule.core.state import replay  # noqa: PLC0415 - start-up of `status`

    return replay(event for _, event in journal.events(mission))


def known_mission(project: Project, mission: str) -> MissionState:
    """Replay a mission; refuse if there is none."""
    state = mission_state(project, mission)
    if state.started:
        return state
    names = mission_names(project)
    others = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    hint = f"There are: {others}." if others else f"Start it with `capsule run {mission}`."
    raise CapsuleError(f"There is no mission {mission}.", hint, exit_code=1)


def under_way(project: Project, ids: set[str]) -> dict[str, MissionState]:
    """Replay the missions of these items that began and are not finished. Only those with a log folder are read."""
    folder = project.root / ".capsule" / "missions"
    names = {path.name for path in folder.iterdir()} & ids if folder.is_dir() else set()
    states = states_of(project, sorted(names)) if names else {}
    return {name: state for name, state in states.items() if state.under_way}


def running(project: Project, ids: set[str]) -> dict[str, int]:
    """Return the running items by their locks, with their pids; 0 if the pid is unknown here."""
    locks = project.state_folder / "locks"
    found = {path.stem.removeprefix("mission-"): path for path in locks.glob("mission-*.lock")}
    pids: dict[str, int] = {}
    for name in sorted(found.keys() & ids):
        try:
            pid = holder(found[name])
        except CapsuleError:
            pid = 0
        if pid is not None:
            pids[name] = pid
    return pids
