"""A mission's events as the engine writes them, without the engine: for tests of what is made of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Event,
    MissionStarted,
    Outcome,
    Policy,
    Reopened,
    StepBegun,
    StepEnded,
    Stopped,
    Usage,
    Waiting,
)
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.failure import Failure, Kind
from capsule.core.history import MissionSummary, Presence, read_mission
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Phase, Role, Workflow

FLOW = Workflow(
    name="flow",
    phases=(
        Phase(name="prepare", role=Role.ACTION, do="prep", stage="Begin"),
        Phase(name="code", prompt="c", stage="Work"),
        Phase(name="look", role=Role.REVIEW, prompt="r", rework="code", stage="Work"),
        Phase(name="deliver", role=Role.ACTION, do="publish"),
    ),
)
HELD = Evidence("changed", "changed a.py", "a.py", EvidenceStatus.CONFIRMED)
RED = Evidence("green", "all tests pass", "`make test` is red, exit 1", EvidenceStatus.REFUTED, "1 failed, 15 passed")
PAID = Usage(tokens_in=900, tokens_out=100, usd=0.25, model="large", seconds=20.0)


class Told:
    """Each thing that happens takes its time on a clock of the mission's own."""

    def __init__(self, mission: str = "x-1", title: str = "The task", at: str = "2026-01-05T09:00:00Z") -> None:
        self.mission, self.title = mission, title
        self._now = datetime.fromisoformat(at)
        self._runs: dict[str, int] = {}
        self.events: list[Event] = []

    @property
    def at(self) -> str:
        return self._now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def pass_time(self, seconds: float) -> Told:
        self._now += timedelta(seconds=seconds)
        return self

    def start(self, **more: Any) -> Told:
        item = Item(id=self.mission, title=self.title, parent=more.pop("item_parent", ""))
        rules: dict[str, Any] = {
            "workflow": FLOW,
            "base": "b" * 40,
            "into": "main",
            "policy": Policy(test="make test"),
        } | more
        self.events.append(MissionStarted(at=self.at, mission=self.mission, item=item, **rules))
        return self

    def begin(self, phase: str = "code", agent: str = "claude") -> Told:
        run = self._runs.get(phase, 0) + 1
        spawns = bool(agent)
        key = f"{phase}#{run}"
        self.events.append(
            StepBegun(at=self.at, key=key, phase=phase, run=run, attempt=run, agent=agent, spawns=spawns)
        )
        return self

    def wait(self, seconds: float, phase: str = "code") -> Told:
        failure = Failure(Kind.RATE_LIMIT, "too many requests")
        key = f"{phase}#{self._runs.get(phase, 0) + 1}"
        self.events.append(Waiting(at=self.at, key=key, failure=failure, seconds=seconds))
        return self.pass_time(seconds)

    def end(
        self,
        phase: str = "code",
        verdict: Verdict = Verdict.PASS,
        move: Move = Move.ADVANCE,
        *,
        claimed: Verdict | None = None,
        seconds: float = 30.0,
        agent: str = "claude",
        evidence: tuple[Evidence, ...] = (),
        usage: Usage | None = None,
        facts: dict[str, str] | None = None,
        summary: str = "did as asked",
        **decided: Any,
    ) -> Told:
        self.pass_time(seconds)
        run = self._runs[phase] = self._runs.get(phase, 0) + 1
        signal = Signal(verdict=claimed or verdict, summary=summary)
        outcome = Outcome(
            signal=signal, evidence=evidence, seconds=seconds, agent=agent, usage=usage, facts=facts or {}
        )
        decision = Decision(move=move, verdict=verdict, **decided)
        ended = StepEnded(at=self.at, key=f"{phase}#{run}", phase=phase, run=run, outcome=outcome, decision=decision)
        self.events.append(ended)
        return self

    def step(self, phase: str = "code", *args: Any, **more: Any) -> Told:
        return self.begin(phase, more.get("agent", "claude")).end(phase, *args, **more)

    def refuted(self, **more: Any) -> Told:
        """The agent said PASS, and the tests are red."""
        back = {"back_to": "code", "counter": "look", "feedback": "You reported PASS, but one test is red."} | more
        evidence = (HELD, RED)
        return self.step("code", Verdict.REFUTED, Move.RETRY, claimed=Verdict.PASS, evidence=evidence, **back)

    def sent_back(self, feedback: str = "Name it better.", **more: Any) -> Told:
        back = {"back_to": "code", "counter": "look", "feedback": feedback} | more
        return self.step("look", Verdict.NEEDS_WORK, Move.REWORK, **back)

    def blocked(self) -> Told:
        return self.step("code", Verdict.BLOCKED, Move.PARK, reason="which colour?", exit_code=1)

    def failed(self) -> Told:
        return self.step("code", Verdict.ERROR, Move.ABORT, reason="the disk is full", exit_code=2)

    def reopened(self, notes: str = "") -> Told:
        self.events.append(Reopened(at=self.at, notes=notes))
        return self

    def stopped(self) -> Told:
        self.events.append(Stopped(at=self.at, cause="Stopped by SIGINT.", exit_code=130))
        return self

    def delivered(self, merged: str = "c" * 40, **facts: str) -> Told:
        """Everything went well from here on."""
        self.step("code", evidence=(HELD,)).step("look")
        return self.step("deliver", agent="", facts={"merged": merged, **facts}, seconds=1.0)

    def summary(self, *, running: bool = False, as_of: str = "", **more: Any) -> MissionSummary:
        """The mission as its events tell it; `more` replaces what they say."""
        summary = read_mission(self.events).summary(Presence(4711 if running else None), as_of or self.at)
        return msgspec.structs.replace(summary, **more)


def prepared(mission: str = "x-1", title: str = "The task", at: str = "2026-01-05T09:00:00Z", **more: Any) -> Told:
    return Told(mission, title, at).start(**more).step("prepare", agent="", seconds=2.0)


def part_of(parent: Told, number: int = 1) -> Told:
    return prepared(f"{parent.mission}.code.{number}", f"part {number}", parent.at, parent=parent.mission)


def a_long_story() -> Told:
    """Money, lies, a review, a provider that had enough, a night's sleep, and a merge in the end."""
    told = prepared(title="Rename the widget")
    told.refuted(usage=PAID, seconds=95).begin().pass_time(20).wait(120)
    told.end(usage=msgspec.structs.replace(PAID, usd=0.5), seconds=200, evidence=(HELD,))
    told.sent_back(usage=PAID).blocked().pass_time(14 * 3600).reopened("Blue, please.")
    told.begin().pass_time(40).stopped().pass_time(600)
    return told.delivered()
