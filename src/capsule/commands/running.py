"""The output of a run, shared by the commands that start agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from capsule.app.missions import mission_state
from capsule.app.planning import RunRequest
from capsule.app.running import JSON, NONE, PLAIN, RunContext
from capsule.commands.arguments import tell
from capsule.commands.summary import say_summary
from capsule.engine.dispatch import RunReport
from capsule.project import Project
from capsule.reports.json_lines import JsonReport
from capsule.reports.live import FanOut
from capsule.reports.plain import PlainReport
from capsule.wiring import budget_of


def run_of(project: Project, request: RunRequest, how: str, lines: type[PlainReport] = PlainReport) -> RunContext:
    """Write the events of a run by `--output`: JSON on stdout, lines on stderr, or nothing."""
    if how == JSON:
        return RunContext(project, request, JsonReport(), tell, JSON)
    if how == NONE:
        return RunContext(project, request, FanOut(), tell, NONE)
    report = lines(standing=partial(mission_state, project), budget=budget_of(project.settings))
    return RunContext(project, request, report, tell, PLAIN)


@contextmanager
def summed_up(run: RunContext, sum_up: Callable[[RunReport], str]) -> Iterator[RunReport]:
    """Print the summary at any end of the run, if there is something to sum up."""
    report = RunReport()
    try:
        yield report
    finally:
        if run.form != JSON and report.ended_because and (report.spawns or report.exit_code != 2):
            say_summary(sum_up(report), run.project)
