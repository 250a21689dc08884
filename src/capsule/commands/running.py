"""Shared by the commands that start agents: options as a RunRequest, and the output of a run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from capsule.app.missions import mission_state
from capsule.app.planning import RunRequest
from capsule.app.running import JSON, NONE, PLAIN, RunContext
from capsule.commands.arguments import tell
from capsule.commands.summary import say_summary
from capsule.core.errors import UsageError
from capsule.core.item import check_id
from capsule.engine.dispatch import RunReport
from capsule.project import Project
from capsule.reports.json_lines import JsonReport
from capsule.reports.live import FanOut
from capsule.reports.plain import PlainReport
from capsule.wiring import budget_of

_OPTIONS = set(RunRequest.__struct_fields__) - {"items"}


def request_of(args: argparse.Namespace) -> RunRequest:
    """Turn a command's options into plain values; use defaults for missing ones."""
    options = {name: value for name, value in vars(args).items() if value is not None and name in _OPTIONS}
    named = [getattr(args, "item", None), *getattr(args, "target", ())]
    return RunRequest(tuple(check_id(name) for name in named if name is not None), **options)


def flags_of(args: argparse.Namespace) -> dict[str, object]:
    """Return the options that are settings, by their dotted key. A recording replaces every agent."""
    names = {"agent": "agent", "verify": "verify", "max_retries": "execution.max_retries", "jobs": "execution.jobs"}
    flags = {key: getattr(args, name) for name, key in names.items() if getattr(args, name, None) is not None}
    if getattr(args, "replay", None) is None:
        return flags
    if args.agent:
        raise UsageError("--replay replaces every agent, so it cannot be used with --agent.", "Drop one.")
    script = [str(Path(args.replay).absolute())]
    return flags | {"agent": "scripted", "agents.scripted.kind": "scripted", "agents.scripted.args": script}


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
