"""Lines of `capsule status` about runs and missions: a module of its own, as most often there is none."""

from __future__ import annotations

from collections.abc import Mapping

from capsule.commands.watching import MissionReader
from capsule.core.inbox import way_on
from capsule.core.item import Item
from capsule.core.status import MissionStatus
from capsule.project import Project
from capsule.reports.style import clean
from capsule.reports.words import progress_words
from capsule.system.clock import SystemClock


def mission_lines(project: Project, pids: Mapping[str, int], begun: Mapping[str, Item]) -> list[str]:
    """Describe runs and running missions, by their pids, then the missions of these items, which are not running.

    A backlog tells itself at which phase an item is: there only interrupted missions are described, and those that
    wait for a person or for a review.
    """
    lines, now = [], SystemClock().now()
    with MissionReader(project) as reader:
        for run, progress in reader.progress(now) if pids else ():
            lines.append(f"{run.status.sign} {clean(run.name)} {' · '.join(progress_words(progress))}")
        for name, pid in pids.items():
            history, sign = reader.history(name), MissionStatus.RUNNING.sign
            doing = f"running (pid {pid})" if pid else "running"
            standing = reader.summary(name, now) if history.waiting or history.queued else None
            if standing and standing.status is MissionStatus.WAITING:
                sign, doing = standing.status.sign, clean(standing.sentence)
            lines.append(f"{sign} {name} {doing}: capsule logs {name} -f")
        for name, item in begun.items():
            summary = reader.whole(name, "")
            told = summary.state.begun or summary.state.in_review or way_on(summary, item)
            if project.tracker.traits.authoritative and not told:
                continue
            lines.append(f"{summary.status.sign} {name} {clean(summary.sentence)} ({summary.next})")
    return lines
