"""Everything a project does at one moment, in the order in which people look at it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from capsule.core.history import MissionSummary, RunSummary, with_parts
from capsule.core.merge_train import MergeSummary
from capsule.core.status import MissionStatus


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """Missions in the order of a screen: running, needing a person, then over."""

    at: str = ""
    missions: tuple[MissionSummary, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    """The ones that run first, then the last ended first."""
    merges: tuple[MergeSummary, ...] = ()
    """The merge queues, by branch."""

    def mission(self, name: str) -> MissionSummary | None:
        return next((view for view in self.missions if view.mission == name), None)

    @property
    def queued(self) -> tuple[str, ...]:
        """Name the missions that wait to be merged."""
        return tuple(place.mission for merges in self.merges for place in merges.places)

    @property
    def running(self) -> tuple[MissionSummary, ...]:
        return tuple(view for view in self.missions if view.running)


def gather_board(
    missions: Iterable[MissionSummary], runs: Iterable[RunSummary], at: str, merges: Iterable[MergeSummary] = ()
) -> Board:
    newest_run = sorted(runs, key=lambda run: (run.last, run.name), reverse=True)
    return Board(
        at=at,
        missions=in_order(with_parts(missions)),
        runs=tuple(sorted(newest_run, key=lambda run: not run.running)),
        merges=tuple(sorted(merges, key=lambda each: each.branch)),
    )


def in_order(missions: Iterable[MissionSummary]) -> tuple[MissionSummary, ...]:
    """Sort running missions by their start, then all others, the newest first."""
    newest = sorted(missions, key=lambda view: (view.last, view.mission), reverse=True)
    by_age = sorted(newest, key=lambda view: (view.began, view.mission) if view.running else ("", ""))
    rest = {MissionStatus.READY: 2}
    return tuple(sorted(by_age, key=lambda view: 0 if view.running else 3 if view.over else rest.get(view.status, 1)))
