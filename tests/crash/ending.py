"""How a mission ended, as data: two endings are equal if nobody could tell which of the runs was killed on the way.

Only stamps, durations, pids and commit ids are levelled out; what was salvaged may differ, it is there to be more.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capsule.core.event import Event, StepEnded, kind
from capsule.journals.sqlite import SqliteJournal
from capsule.system.lock import holder
from tests.costs import LONG

from .driver import event_name
from .project import ITEM, Project

_PASSING = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z|\b\d+\.\d+ s\b|\bR?[0-9a-f]{12,40}\b|\b\d+\.\d+ \|")
_SALVAGED = re.compile(r"refs/capsule/salvage/[\w.-]+/\d+")
"""What is dropped or was left is kept by these; a mission that was killed has more of them."""
_STAMPED_NAME = re.compile(r"\d{17}-\d+|\b[0-9a-f]{12}\b")


@dataclass(frozen=True)
class Ending:
    tree: str
    commits: tuple[str, ...]
    refs: tuple[str, ...]
    worktrees: int
    own_edits: str
    issues: tuple[str, ...]
    ended: tuple[str, ...]
    papers: tuple[str, ...]
    worklog: str
    left_in_project: tuple[str, ...]
    left_in_git: tuple[str, ...]
    left_outside: tuple[str, ...]


def ending_of(project: Project, item: str = ITEM) -> Ending:
    """Also of a mission that is under way: its worklog is in its place by then."""
    logs, place = (project.path / ".capsule" / name / item for name in ("logs", "worktrees"))
    worklogs = (folder / "worklog.md" for folder in (logs, place))
    told = "".join(path.read_text() for path in worklogs if path.exists())
    assert {*_SALVAGED.findall(told)} <= {*refs_of(project)}, "a worklog names what is not kept"
    return Ending(
        tree=project.git("rev-parse", "main^{tree}"),
        commits=tuple(project.git("log", "--format=%s", "main").splitlines()),
        refs=tuple(ref for ref in refs_of(project) if not ref.startswith("refs/capsule/salvage/")),
        worktrees=project.git("worktree", "list", "--porcelain").count("worktree "),
        own_edits=project.git("status", "--porcelain", "--untracked-files=all", "--", ":!.beads"),
        issues=tuple(map(levelled, (project.path / ".beads" / "issues.jsonl").read_text().splitlines())),
        ended=tuple(event.key for event in events_of(project, item) if isinstance(event, StepEnded)),
        papers=names_in(logs, but="phase-outputs/"),
        worklog=levelled(_SALVAGED.sub("~", told)),
        left_in_project=kinds(names_in(project.path / ".capsule", but="logs/")),
        left_in_git=names_in(project.path / ".git", but=("objects/", "logs/", "refs/")),
        left_outside=left_outside(project),
    )


def ending_after(project: Project, points: Sequence[str], merged: str, mark: str, **told: str) -> Ending:
    """How a mission ends that was killed at these points, one after the other, and resumed."""
    for point in points:
        killed = project.drive(CRASH_AT=point, **told)
        assert killed.returncode == -signal.SIGKILL, f"not killed at {point}: {killed.stderr}"
        assert gone_soon(mark), point
        check_nothing_lost(project, merged)
    resumed = project.run()
    assert resumed.returncode == 0, f"killed at {points}: {resumed.stderr}"
    ending = ending_of(project)
    check_papers(project)
    check_no_strays(project, mark)
    return ending


def left_outside(project: Project) -> tuple[str, ...]:
    """Gates, in a folder that has the repository's name, and layers; Python tries a temporary folder with a file."""
    gates = (name.split("/", 3) for name in names_in(project.cache, but=()))
    ours = (name for name in names_in(project.temporary, but=()) if name.startswith("capsule"))
    return (*sorted(parts[3] for parts in gates if len(parts) > 3), *ours)


def events_of(project: Project, item: str = ITEM) -> list[Event]:
    journal = SqliteJournal(project.path / ".git" / "capsule", read_only=True)
    events = [event for _, event in journal.events(item)]
    journal.close()
    return events


def names_of(stream: str, events: Sequence[Event]) -> list[str]:
    """What each event's point is called, worked out from the journal alone."""
    return [event_name(stream, event, events[:position]) for position, event in enumerate(events)]


def check_nothing_lost(project: Project, merged: str) -> None:
    """At any instant: main is the old commit or has the green tree, and every state that the journal names is there."""
    tree = project.git("rev-parse", "main^{tree}")
    first = project.git("rev-list", "--max-parents=0", "main")
    assert project.git("rev-parse", "main") == first or tree == merged
    ended = [event.outcome.checkpoint for event in events_of(project) if isinstance(event, StepEnded)]
    if named := [checkpoint.commit for checkpoint in ended if checkpoint]:
        project.git("rev-list", "--no-walk", "--quiet", *named)
    check_places(project)


def check_places(project: Project) -> None:
    """At any instant: a person can look at every mission's place with plain git, before any command of ours."""
    for place in (project.path / ".capsule" / "worktrees").glob("[!.]*"):
        if (place / ".git").exists():
            status = subprocess.run(["git", "-C", str(place), "status"], capture_output=True, text=True, check=False)
            assert status.returncode == 0, f"{place}: {status.stderr}"


def check_papers(project: Project, item: str = ITEM) -> None:
    """The archive tells the whole story: what each recorded step printed, and every event up to the archive's own."""
    logs = project.path / ".capsule" / "logs" / item
    events = events_of(project, item)
    outputs = {path.name for path in (logs / "phase-outputs").iterdir()}
    for event in events:
        if isinstance(event, StepEnded) and event.outcome.log:
            assert Path(event.outcome.log).name in outputs
    told = [json.loads(line)["event"] for line in (logs / "journal.jsonl").read_text().splitlines()]
    assert told == [kind(event) for event in events][: len(told)]
    assert told.count("step_ended") == sum(isinstance(event, StepEnded) for event in events) - 1
    assert (logs / "summary.md").read_text().startswith(f"# {item}: ")


def check_no_strays(project: Project, mark: str) -> None:
    """No process, no mount, no lock held or left by git, and a repository that git finds sound."""
    assert gone_soon(mark), f"still running: {survivors(mark)}"
    mounts = Path("/proc/self/mounts")
    assert not mounts.exists() or str(project.path) not in mounts.read_text()
    for lock in (project.path / ".git").rglob("*.lock"):
        assert lock.parent.name == "locks", f"git left {lock}"
        assert holder(lock) is None, f"{lock} is held"
    project.git("fsck", "--strict", "--no-dangling")


def survivors(mark: str) -> list[str]:
    """Processes that a run with this mark started, however far they went."""
    needle, found = f"CRASH_MARK={mark}".encode(), []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            if needle in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it ended while we looked, or is another user's
            continue
    return found


def gone_soon(mark: str, within: float = LONG) -> bool:
    deadline = time.monotonic() + within
    while survivors(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def refs_of(project: Project) -> list[str]:
    return project.git("for-each-ref", "--format=%(refname)").splitlines()


def names_in(folder: Path, but: str | tuple[str, ...]) -> tuple[str, ...]:
    paths = (path.relative_to(folder).as_posix() + "/" * path.is_dir() for path in folder.rglob("*"))
    return tuple(sorted(path for path in paths if not path.startswith(but)))


def kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    """An agent that was interrupted leaves one more output of its phase: what there is, not how many."""
    return tuple(sorted({_STAMPED_NAME.sub("~", name) for name in names}))


def levelled(text: str) -> str:
    return _PASSING.sub("~", text)
