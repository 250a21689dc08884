"""The two stretches of a mission in which bd is told something: killed in the middle, they come out the same.

The claim is in the mission's first step, the close in its last. Each stretch is run from a copy that stands right
before it, at the same path every time, because git knows its worktrees by their paths.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

from capsule.core.event import StepEnded

from .beads_project import MOMENTS, WRITES, BeadsProject, ask, bead
from .ending import check_no_strays, events_of, levelled, names_in, refs_of
from .points import ALL
from .project import ITEM

FROM = {"claim": "", "close": f"before step_begun {ITEM}/archive#1"}
UNTIL = {"claim": f"after step_ended {ITEM}/prep#1", "close": ""}
"""Points of the driver's; '' is the very beginning and the very end."""


@dataclass(frozen=True)
class BeadsEnding:
    tree: str
    commits: tuple[str, ...]
    refs: tuple[str, ...]
    worktrees: int
    own_edits: str
    beads: tuple[tuple[str, ...], ...]
    ended: tuple[str, ...]
    left_in_project: tuple[str, ...]
    left_in_git: tuple[str, ...]


def beads_ending_of(project: BeadsProject) -> BeadsEnding:
    return BeadsEnding(
        tree=project.git("rev-parse", "main^{tree}"),
        commits=tuple(project.git("log", "--format=%s", "main").splitlines()),
        refs=tuple(ref for ref in refs_of(project) if not ref.startswith("refs/capsule/salvage/")),
        worktrees=project.git("worktree", "list", "--porcelain").count("worktree "),
        own_edits=project.git("status", "--porcelain", "--untracked-files=all", "--", ":!.beads"),
        beads=tuple(sorted(map(_told, ask(project.bd, project.path, "export").splitlines()))),
        ended=tuple(event.key for event in events_of(project) if isinstance(event, StepEnded)),
        left_in_project=names_in(project.path / ".capsule", but=("logs/", "missions/")),
        left_in_git=names_in(project.path / ".git", but=("objects/", "logs/", "refs/", "capsule/keepers/")),
    )


def _told(line: str) -> tuple[str, ...]:
    """What of a bead a mission changes, and how often it was remarked upon."""
    row = json.loads(line)
    told = (levelled(str(row.get(name, ""))) for name in ("id", "status", "assignee", "close_reason"))
    return *told, str(len(row.get("comments") or ()))


@dataclass(frozen=True)
class Stage:
    adapter: str
    snapshot: Path
    place: Path
    bd: Path
    moment: float
    points: tuple[str, ...]
    """Everything that an undisturbed run passes, calls of bd included."""
    ending: BeadsEnding

    def begin(self, mark: str) -> BeadsProject:
        return BeadsProject(self.snapshot, self.place, mark, self.bd, self.moment)

    def kill_points(self) -> list[str]:
        """Around every call of bd; and while it runs, where it is told something."""
        calls = [call.removeprefix("bd ") for call in self.points if call.startswith(f"bd {self.adapter} ")]
        return [
            f"{moment} {call}"
            for call in calls
            for moment in MOMENTS
            if moment in ("before", "after") or call.split()[-1] in WRITES
        ]


def make_stage(adapter: str, template: Path, folder: Path, mark: str, bd: Path, moment: float = 0.02) -> Stage:
    place, snapshot = folder / "project", folder / "snapshot"
    project = BeadsProject(template, place, mark, bd, moment)
    if FROM[adapter]:
        project.killed_at(FROM[adapter], mark)
    shutil.copytree(place, snapshot, symlinks=True)
    points = go_on(project, adapter, mark)
    check_no_strays(project, mark)
    return Stage(adapter, snapshot, place, bd, moment, points, beads_ending_of(project))


def go_on(project: BeadsProject, adapter: str, mark: str) -> tuple[str, ...]:
    """To where the stretch ends; the points passed on the way."""
    if UNTIL[adapter]:
        project.killed_at(UNTIL[adapter], mark)
    else:
        project.finishes()
    return tuple(project.points())


def _check_killed_and_gone_on(stage: Stage, point: str, mark: str) -> None:
    project = stage.begin(mark)
    project.killed_at(point, mark)
    check_instant(project)
    go_on(project, stage.adapter, mark)
    check_same(beads_ending_of(project), stage.ending, point)
    if stage.adapter == "close":
        check_closed_once(project, point)
    check_no_strays(project, mark)


def check_same(ending: BeadsEnding, undisturbed: BeadsEnding, point: str) -> None:
    expected = asdict(undisturbed)
    other = {name: (found, expected[name]) for name, found in asdict(ending).items() if found != expected[name]}
    assert not other, f"killed at {point}: {other}"


def check_instant(project: BeadsProject) -> None:
    """At any instant: what bd calls closed is merged."""
    if bead(project.bd, project.path)["status"] == "closed":
        assert f"Merge {ITEM}: Mend the one" in project.git("log", "--format=%s", "main").splitlines()


def check_closed_once(project: BeadsProject, point: str) -> None:
    """bd agreed to it once, when the merge was in main; of a bd that was killed nobody knows whether it had agreed."""
    agreed = project.closes()
    unknown: list[list[str]] = [[]] if point.startswith("within close") else []
    assert agreed in [["merged"], *unknown], f"killed at {point}: {agreed}"


def check_complete(stages: Mapping[str, Stage]) -> None:
    """bd is told something once in a claim, once in a close, and nowhere else."""
    for adapter, stage in stages.items():
        calls = [point.split() for point in stage.points if point.startswith("bd ")]
        assert [call[1] for call in calls if call[-1] in WRITES] == [adapter], calls
        assert len(stage.kill_points()) >= len(MOMENTS)


def in_a_row(stages: Mapping[str, Stage]) -> list[str]:
    """Points that one mission can be killed at, one after the other: up to where bd is told, and right after that."""

    def of(stage: Stage) -> list[str]:
        points = stage.kill_points()
        before = takewhile(lambda point: not point.startswith("under"), points)
        told = next(point for point in points if point.startswith("after") and point.split()[-1] in WRITES)
        return [*before, told]

    return [point for stage in stages.values() for point in of(stage)]


def check_killed_alone(stages: Mapping[str, Stage], mark: str) -> None:
    """Where no mission comes to that was killed before; or, with CAPSULE_CRASH_ALL=1, everywhere."""
    tried = [] if ALL else in_a_row(stages)
    for stage in stages.values():
        for point in stage.kill_points():
            if point not in tried:
                _check_killed_and_gone_on(stage, point, mark)


def check_killed_in_a_row(stages: Mapping[str, Stage], template: Path, mark: str) -> None:
    close = stages["close"]
    project = BeadsProject(template, close.place, mark, close.bd, close.moment)
    for point in in_a_row(stages):
        project.killed_at(point, mark)
        check_instant(project)
    project.finishes()
    check_same(beads_ending_of(project), close.ending, "one point after the other")
    check_closed_once(project, point)
    check_no_strays(project, mark)
