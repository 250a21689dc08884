"""When the agent's provider turns it away, and when the money is gone: nothing is judged, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from capsule.adapters import Agent, Ran
from capsule.core.briefing import Briefing, SandboxPaths, Transcript
from capsule.core.budget import Budget, as_facts, total
from capsule.core.errors import AgentUnavailable, BudgetSpent, CapsuleError, Interrupted, ProviderLimit
from capsule.core.event import Abandoned, Allowance, Salvaged, Spent, StepBegun, Stopped, Usage, Waiting
from capsule.core.failure import REACTIONS, Failure, Kind, Reaction
from capsule.core.state import MissionState, apply
from capsule.engine.job import load_state, note
from capsule.services import Limits

from .conftest import PASS, Scene
from .test_own_workflow import PREP, flow

pytestmark = pytest.mark.slow

PHASES = ("first", "second", "third")
SHORT = flow(PREP, *({"name": name, "prompt": "p"} for name in PHASES))
"""Three agents, and nothing to prove: what is looked at here is whether they are started at all."""
PAID = Usage(tokens_in=900, tokens_out=100, usd=0.50, seconds=10.0)


@dataclass
class Moody:
    """The scripted agent, whose provider has moods: a failure for each time it is started, None for a good one."""

    agent: Agent
    moods: Iterator[Failure | None]
    usage: Usage | None = PAID
    briefings: list[Briefing] = field(default_factory=list)
    name: str = "moody"
    deadly: bool = False

    def check(self) -> None: ...

    def describe(self, briefing: Briefing) -> Sequence[str]:
        return self.agent.describe(briefing)

    def run(self, briefing: Briefing) -> Transcript:
        if self.deadly:
            raise CapsuleError("killed")
        self.briefings.append(briefing)
        transcript = self.agent.run(briefing)
        return msgspec.structs.replace(transcript, failure=next(self.moods, None), usage=self.usage)


@dataclass
class Clock:
    """Waits in no time, and remembers how long."""

    waits: list[float] = field(default_factory=list)
    patience: int = 1000

    def now(self) -> str:
        return f"2026-01-01T00:{len(self.waits):02}:00Z"

    def seconds(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) <= self.patience

    def chance(self) -> float:
        return 0.5


def put_in_a_mood(scene: Scene, *moods: Failure | None, **limits: Any) -> tuple[Moody, Clock]:
    scene.plays({"one": {"*": [{"write": {"note": "x"}, "signal": PASS}]}})
    agent, clock = Moody(scene.services.agent("", ""), iter(moods)), Clock()
    scene.services = replace(
        scene.services, agent=lambda _name, _model: agent, clock=clock, limits=Limits(**limits) if limits else Limits()
    )
    return agent, clock


def overloaded(**more: Any) -> Failure:
    return Failure(Kind.OVERLOAD, "The provider is overloaded.", **more)


@pytest.mark.promise("agents.outages", "004-follow-ups.rate-limits")
@pytest.mark.parametrize("kind", [kind for kind in Kind if REACTIONS[kind] is Reaction.WAIT])
def test_what_passes_by_itself_is_waited_for_and_costs_no_retry(scene: Scene, kind: Kind) -> None:
    failure = Failure(kind, "Not now.")
    _, clock = put_in_a_mood(scene, failure, failure)
    state = scene.run("one", SHORT)
    assert state.finished
    assert clock.waits == [5.0, 10.0]
    assert state.used == {}
    assert [event.key for event in scene.ended("one")][1:] == ["first#1", "second#1", "third#1"]


@pytest.mark.promise("agents.outages")
def test_the_provider_says_how_long(scene: Scene) -> None:
    _, clock = put_in_a_mood(scene, overloaded(resets_in=100.0))
    assert scene.run("one", SHORT).finished
    assert 100.0 <= clock.waits[0] <= 106.0


@pytest.mark.in_git
def test_the_agent_starts_afresh_and_what_it_had_done_is_kept(scene: Scene) -> None:
    put_in_a_mood(scene, overloaded())
    scene.run("one", SHORT)
    events = [event for _, event in scene.journal.events("one")]
    waiting = next(event for event in events if isinstance(event, Waiting))
    assert (waiting.key, waiting.failure.kind) == ("first#1", Kind.OVERLOAD)
    kept = next(event for event in events if isinstance(event, Salvaged))
    assert "note" in scene.git("ls-tree", "--name-only", kept.ref)


@pytest.mark.promise("agents.wait-limit")
def test_waiting_has_an_end_and_the_mission_goes_on_later(scene: Scene) -> None:
    agent, clock = put_in_a_mood(scene, *[overloaded()] * 50, wait_seconds=60.0)
    with pytest.raises(ProviderLimit, match="overloaded") as caught:
        scene.run("one", SHORT)
    assert caught.value.exit_code == 3
    assert sum(clock.waits) <= 60.0
    assert load_state(scene.services, "one").halt is None
    agent.moods = iter(())
    assert scene.run("one", SHORT).finished


def test_a_limit_that_lasts_longer_than_we_wait_is_not_waited_for(scene: Scene) -> None:
    _, clock = put_in_a_mood(scene, overloaded(resets_in=30_000.0))
    with pytest.raises(ProviderLimit, match="8 h 32 min"):
        scene.run("one", SHORT)
    assert clock.waits == []


@pytest.mark.promise("agents.five-hours")
def test_a_limit_of_five_hours_is_waited_for_by_default(scene: Scene) -> None:
    _, clock = put_in_a_mood(scene, Failure(Kind.RATE_LIMIT, "Usage limit reached.", resets_in=5 * 3600.0))
    assert scene.run("one", SHORT).finished
    assert 5 * 3600 <= clock.waits[0] <= 6 * 3600


@pytest.mark.promise("agents.five-hours")
def test_an_error_about_a_limit_tells_the_time_of_the_next_try(
    scene: Scene, local_time_is: Callable[[str], None]
) -> None:
    local_time_is("IST-5:30")
    put_in_a_mood(scene, overloaded(resets_in=80_000.0))
    with pytest.raises(ProviderLimit) as caught:
        scene.run("one", SHORT)
    # the wait begins at 05:30 there, and is 2.5 percent longer than asked for
    assert "The next try would be at Fri 04:16, in 22 h 46 min" in str(caught.value)


@pytest.mark.promise("agents.wait-limit")
def test_stop_is_heard_while_waiting(scene: Scene) -> None:
    _, clock = put_in_a_mood(scene, overloaded())
    clock.patience = 0
    with pytest.raises(Interrupted, match="waiting for its provider"):
        scene.run("one", SHORT)
    assert isinstance(scene.journal.events("one")[-1][1], Stopped)


@pytest.mark.promise("agents.no-credit")
@pytest.mark.parametrize("kind", [kind for kind in Kind if REACTIONS[kind] is Reaction.STOP])
def test_what_needs_a_person_stops_the_run_with_nothing_parked(scene: Scene, kind: Kind) -> None:
    agent, clock = put_in_a_mood(scene, Failure(kind, "No key.", "Log in."))
    with pytest.raises(AgentUnavailable, match="No key") as caught:
        scene.run("one", SHORT)
    assert (caught.value.hint, caught.value.exit_code, clock.waits) == ("Log in.", 2, [])
    assert load_state(scene.services, "one").halt is None
    agent.moods = iter(())
    assert scene.run("one", SHORT).finished


@pytest.mark.promise("agents.claim-and-failure")
@pytest.mark.parametrize("kind", [kind for kind in Kind if REACTIONS[kind] is Reaction.JUDGE])
def test_a_claim_of_success_does_not_outweigh_a_failure(scene: Scene, kind: Kind) -> None:
    """The scripted worker says PASS, and did the work; its CLI says that something went wrong."""
    _, clock = put_in_a_mood(scene, Failure(kind, "Write was denied."))
    state = scene.run("one", SHORT)
    assert state.halt is not None
    assert "Write was denied." in state.halt.reason
    assert clock.waits == []
    outcome = scene.ended("one")[-1].outcome
    assert outcome.failure is not None
    assert outcome.failure.kind is kind


# ---- money


def test_what_agents_used_adds_up_over_phases_and_outages(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene, overloaded())
    state = scene.run("one", SHORT)
    assert len(agent.briefings) == 4
    assert total(state.spent.values()).usd == pytest.approx(2.0)
    assert state.spent["first"].runs == 2
    assert len([event for _, event in scene.journal.events("one") if isinstance(event, Spent)]) == 1


def test_what_an_agent_does_not_report_stays_unknown(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene)
    agent.usage = Usage(tokens_in=5, seconds=1.0)
    spent = as_facts(total(scene.run("one", SHORT).spent.values()))
    assert (spent["usd"], spent["without_usd"], spent["tokens"]) == (None, 3, 15)


@pytest.mark.promise("agents.budget")
@pytest.mark.parametrize(
    ("budget", "starts", "whose"),
    [
        (Budget(mission=Allowance(usd=1.0)), 2, "mission"),
        (Budget(mission=Allowance(tokens=1500)), 2, "mission"),
        (Budget(mission=Allowance(seconds=15.0)), 2, "mission"),
        (Budget(run=Allowance(usd=0.4)), 1, "run"),
    ],
)
def test_nothing_is_started_once_the_budget_is_spent(scene: Scene, budget: Budget, starts: int, whose: str) -> None:
    agent, _ = put_in_a_mood(scene, budget=budget)
    with pytest.raises(BudgetSpent, match=f"budget of the {whose} is spent") as caught:
        scene.run("one", SHORT)
    assert (len(agent.briefings), caught.value.exit_code) == (starts, 3)
    assert f"budget.{whose}" in caught.value.hint
    with pytest.raises(BudgetSpent):  # it survives a restart: what was spent is in the journal
        scene.run("one", SHORT)
    assert len(agent.briefings) == starts
    scene.services = replace(scene.services, limits=Limits())
    assert scene.run("one", SHORT).finished


@pytest.mark.promise("agents.budget")
def test_a_phase_has_its_own_budget_for_all_its_attempts(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene, budget=Budget(phase=Allowance(usd=1.0)))
    again = {"signal": {**PASS, "status": "NEEDS_WORK", "feedback": "more"}}
    scene.plays({"one": {"work": [{"signal": PASS}], "look": [again]}})
    pair = flow(
        PREP, {"name": "work", "prompt": "p"}, {"name": "look", "prompt": "p", "role": "review", "rework": "work"}
    )
    with pytest.raises(BudgetSpent, match="budget of the phase"):
        scene.run("one", pair)
    assert [each.phase for each in agent.briefings] == ["work", "look"] * 2


def test_an_agent_is_told_what_is_left(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene, budget=Budget(mission=Allowance(usd=10.0, seconds=100.0)))
    scene.run("one", SHORT)
    assert [each.most_usd for each in agent.briefings[:3]] == [10.0, 9.5, 9.0]
    assert [each.timeout for each in agent.briefings[:3]] == [100.0, 90.0, 80.0]


def test_whoever_limits_dollars_is_told_when_an_agent_does_not_count_them(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene, budget=Budget(mission=Allowance(usd=10.0)))
    agent.usage = Usage(tokens_in=5)
    scene.run("one", SHORT)
    assert any("does not say what it costs" in words for words in scene.ended("one")[1].outcome.warnings)


def test_an_agent_that_was_killed_with_us_counts_as_unknown(scene: Scene) -> None:
    agent, _ = put_in_a_mood(scene)
    agent.deadly = True
    with pytest.raises(CapsuleError, match="killed"):
        scene.run("one", SHORT)
    agent.deadly = False
    spent = scene.run("one", SHORT).spent["first"]
    assert (spent.runs, spent.priced) == (2, 1)


def test_an_agent_that_held_itself_to_the_budget_is_not_to_blame(scene: Scene) -> None:
    agent, _ = put_in_a_mood(
        scene, Failure(Kind.CUT_SHORT, "Reached maximum budget."), budget=Budget(mission=Allowance(usd=0.5))
    )
    with pytest.raises(BudgetSpent):
        scene.run("one", SHORT)
    assert load_state(scene.services, "one").halt is None
    assert len(agent.briefings) == 1


def test_an_agent_that_is_cut_short_with_money_left_is_judged(scene: Scene) -> None:
    put_in_a_mood(scene, Failure(Kind.CUT_SHORT, "Max turns."), budget=Budget(mission=Allowance(usd=9.0)))
    assert scene.run("one", SHORT).halt is not None


def test_what_was_spent_while_it_was_turned_away_counts_before_the_next_try(scene: Scene) -> None:
    agent, clock = put_in_a_mood(scene, overloaded(), overloaded(), budget=Budget(mission=Allowance(usd=0.9)))
    with pytest.raises(BudgetSpent):
        scene.run("one", SHORT)
    assert (len(agent.briefings), len(clock.waits)) == (2, 1)


def test_a_mission_that_is_started_over_has_not_been_given_its_money_back(scene: Scene) -> None:
    put_in_a_mood(scene)
    scene.run("one", SHORT)
    with scene.journal.claim("one"):
        note(scene.services, "one", Abandoned(at="2026-01-01T00:00:00Z", how="started over"))
    assert scene.run("one", SHORT).spending.runs == 6


def test_an_agent_that_is_still_at_it_is_counted_as_unknown() -> None:
    begun = StepBegun(at="", key="first#1", phase="first", run=1, attempt=1, spawns=True)
    spending = apply(MissionState(mission="one"), begun).spending
    assert (spending.runs, spending.priced) == (1, 0)


# ---- the machine


@dataclass
class Broken:
    """A shell that starts nothing."""

    def run(
        self,
        command: str,
        cwd: Path,
        log: Path,
        *,
        timeout: float | None,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths | None = None,
        reports: Path | None = None,
        junit: Sequence[str] = (),
        alone: bool | None = None,
    ) -> Ran:
        return Ran(exit_code=1, why="not-started", seconds=0.0, tail="bwrap: no namespace left", log=log)


def test_tests_that_could_not_be_started_are_nobodys_fault(scene: Scene) -> None:
    scene.services = replace(scene.services, shell=Broken())
    with pytest.raises(CapsuleError, match="could not be started: bwrap: no namespace left"):
        scene.run("one", "tdd")
    assert load_state(scene.services, "one").halt is None


def test_a_gate_that_could_not_be_started_sends_nothing_back(scene: Scene) -> None:
    scene.plays({"one": {"*": [{"signal": PASS}]}})
    scene.services = replace(scene.services, shell=Broken())
    gate = {"name": "gate", "role": "review", "run": "true", "rework": "work"}
    with pytest.raises(CapsuleError, match="gate could not be started"):
        scene.run("one", flow(PREP, {"name": "work", "prompt": "p"}, gate))
    assert load_state(scene.services, "one").used == {}


# ── silence


STALLED = Failure(Kind.SILENT, "The agent printed nothing for too long.")


@dataclass
class Quiet:
    """An agent that says nothing at first, as often as it is told to."""

    agent: Agent
    times: int
    why: str = "exited"
    starts: int = 0
    name: str = "quiet"

    def check(self) -> None: ...

    def describe(self, briefing: Briefing) -> Sequence[str]:
        return self.agent.describe(briefing)

    def run(self, briefing: Briefing) -> Transcript:
        self.starts += 1
        transcript = replace(self.agent.run(briefing), usage=PAID)
        if self.starts > self.times:
            return transcript
        return replace(transcript, text=b"", why=self.why, failure=STALLED if self.why == "idle" else None)


def falls_silent(scene: Scene, times: int, why: str = "exited", **limits: Any) -> Quiet:
    scene.plays({"one": {"*": [{"write": {"note": "x"}, "signal": PASS}]}})
    agent = Quiet(scene.services.agent("", ""), times, why)
    scene.services = replace(
        scene.services,
        agent=lambda _name, _model: agent,
        clock=Clock(),
        limits=Limits(**limits) if limits else Limits(),
    )
    return agent


@pytest.mark.promise("agents.one-silence")
@pytest.mark.parametrize("why", ["idle", "exited"])
def test_one_stalled_stream_or_empty_answer_costs_no_retry(scene: Scene, why: str) -> None:
    agent = falls_silent(scene, 1, why)
    state = scene.run("one", SHORT)
    assert state.finished and state.used == {} and agent.starts == 4
    waits = [event for _, event in scene.journal.events("one") if isinstance(event, Waiting)]
    assert [wait.failure.kind for wait in waits] == [Kind.SILENT]
    assert state.spending.runs == 4, "what the silent one used counts"


@pytest.mark.promise("agents.one-silence")
@pytest.mark.parametrize("why", ["idle", "exited"])
def test_the_second_silence_is_judged(scene: Scene, why: str) -> None:
    agent = falls_silent(scene, 2, why)
    state = scene.run("one", SHORT)
    assert state.halt is not None and agent.starts == 2


@pytest.mark.promise("agents.one-silence")
def test_silence_of_a_phase_with_retries_of_its_own_is_judged_at_once(scene: Scene) -> None:
    agent = falls_silent(scene, 1)
    state = scene.run("one", flow(PREP, {"name": "alone", "prompt": "p", "role": "solo"}))
    assert state.finished and agent.starts == 2
    assert not [event for _, event in scene.journal.events("one") if isinstance(event, Waiting)]


@pytest.mark.promise("agents.one-silence")
def test_whoever_waits_for_nothing_gets_no_second_try(scene: Scene) -> None:
    agent = falls_silent(scene, 1, wait_seconds=0.0)
    assert scene.run("one", SHORT).halt is not None and agent.starts == 1
