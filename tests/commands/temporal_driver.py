"""Drive the steps of missions as their workflows do, without a server: one machine after the other does one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count, cycle

import msgspec

from capsule.core.event import Event
from capsule.core.state import MissionState, apply, next_step
from capsule.temporal.messages import Asked, Permit, StepReport, StepTask

from .conftest import Project

MOST_STEPS = 60


class Driver:
    """The loop of a mission's workflow, with machines that take turns."""

    def __init__(self, hosts: list[Project], item: str) -> None:
        self.hosts, self.item = cycle(hosts), item
        self.state, self.at, self.events = MissionState(), "", list[Event]()
        self.fences = (f"{number:05d}" for number in count(1))
        self.reports: list[StepReport] = []
        self.keys: list[str] = []

    def task(self, key: str = "", *, spawns: bool = False, turn: bool = False) -> StepTask:
        permit = Permit("r") if spawns else None
        asked = Asked(self.item)
        return StepTask(asked, next(self.fences), f"test/{self.item}", self.at, key, permit, turn)

    def steps(self) -> Iterator[StepReport]:
        """Do step after step, each on the next machine; yield what each reports."""
        report, turn = self.do(self.task()), False
        yield report
        while report.upcoming and not report.trouble:
            step = next_step(self.state)
            assert step and step.key == report.upcoming.key
            turn = bool(report.wants_turn) or (turn and self.keys[-1] == step.key)
            self.keys.append(step.key)
            report = self.do(self.task(step.key, spawns=report.upcoming.spawns, turn=turn))
            yield report
            assert len(self.reports) < MOST_STEPS

    def do(self, task: StepTask) -> StepReport:
        report = do_step(next(self.hosts), task)
        if report.state:
            self.state = report.state
        for event in report.events:
            self.state = apply(self.state, event)
        self.at, self.events = report.at, [*self.events, *report.events]
        self.reports.append(report)
        return report

    def to_the_end(self) -> StepReport:
        return [*self.steps()][-1]


def do_step(host: Project, task: StepTask) -> StepReport:
    """Have a machine do a step, in a process of its own, as its worker does."""
    with begin_step(host, task) as process:
        assert process.stdout
        out = process.stdout.read()
        assert process.wait() == 0
    return msgspec.json.decode(out, type=StepReport)


def begin_step(host: Project, task: StepTask) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "capsule", "_step"],
        cwd=host.path,
        env=host.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin
    process.stdin.write(msgspec.json.encode((str(host.path), task)) + b"\n")
    process.stdin.flush()
    return process
