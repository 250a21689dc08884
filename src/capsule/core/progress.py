"""The progress of a run with several missions: counts, cost and the time left, from the journal alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from capsule.core.board import Board
from capsule.core.budget import Spending, total
from capsule.core.event import Allowance
from capsule.core.forecast import time_left
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.status import MissionStatus

_REMEMBERED = 50
"""The number of newest missions that predict the next ones."""


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, in numbers."""

    done: int
    of: int
    """0 if unknown."""
    running: int
    queued: int
    """How many wait to be merged."""
    needs_you: int
    failed: int
    spent: Spending
    """Without running agents: their cost is not reported yet."""
    budget: Allowance
    left: float | None
    """Seconds until it is done; None if no similar mission is known."""


def progress_of(
    run: RunSummary, missions: Sequence[MissionSummary], known: Iterable[MissionSummary], queued: Iterable[str]
) -> RunProgress:
    """Count the missions of a run, without parts of others.

    `known` are all missions of the project, `queued` those that wait to be merged.
    """
    own = [view for view in missions if not view.parent]
    counts, waiting = Counter(view.status for view in own), {view.mission for view in own} & {*queued}
    counted = next((one for one in run.progress.values() if one.of), None)
    done, of = (counted.done, counted.of) if counted else (counts[MissionStatus.DONE], 0)
    needs_you, failed = counts[MissionStatus.NEEDS_YOU], counts[MissionStatus.FAILED]
    running = [view for view in own if view.running]
    to_do = of - done - needs_you - failed - len(running)
    return RunProgress(
        done=done,
        of=of,
        running=len(running) - len(waiting),
        queued=len(waiting),
        needs_you=needs_you,
        failed=failed,
        spent=total(total(one.state.spent.values()) if one.running else one.spent for one in missions),
        budget=run.budget,
        left=time_left(earlier_durations(own, known), [v.busy_seconds for v in running], to_do, run.jobs)
        if of
        else None,
    )


def progress_on(board: Board, run: RunSummary) -> RunProgress:
    """Return the progress of a run on a board."""
    missions = [view for view in board.missions if view.mission in run.missions or view.parent in run.missions]
    return progress_of(run, missions, board.missions, board.queued)


def earlier_durations(own: Iterable[MissionSummary], known: Iterable[MissionSummary]) -> list[float]:
    """Return the durations of the newest delivered missions with the same workflows, also of earlier runs."""
    workflows = {view.workflow for view in own}
    like = [view for view in known if view.delivered and not view.parent and view.workflow in workflows]
    newest = sorted(like, key=lambda view: view.last)[-_REMEMBERED:]
    return [view.busy_seconds for view in newest]
