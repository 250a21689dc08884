"""Compare agents: honesty, quality and cost over all missions of a report, by agent and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from capsule.core.budget import Spending
from capsule.core.history import SUCCESSES, Attempt, MissionSummary
from capsule.core.workflow import Role


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One agent with one model. `--json` prints these names."""

    agent: str
    model: str
    """'' where it did not say."""
    attempts: int
    claims: int
    """How often it claimed success."""
    refuted: int
    """How many of these claims the evidence contradicted."""
    phases: int
    """How many phases it ended first. Reviews do not count: one that sends work back does its job."""
    first_pass: int
    """How many of those passed, and never had to be done again."""
    merged: int
    """How many delivered missions it took part in."""
    spending: Spending
    """The cost of all its attempts, delivered or not."""

    @property
    def refuted_rate(self) -> float | None:
        return self.refuted / self.claims if self.claims else None

    @property
    def first_pass_rate(self) -> float | None:
        return self.first_pass / self.phases if self.phases else None

    @property
    def usd_per_merged(self) -> float | None:
        """Return None if nothing was delivered, or if a part of the cost is unknown."""
        known = self.merged and self.spending.priced == self.spending.runs
        return self.spending.usd / self.merged if known else None


class _Paid(NamedTuple):
    mission: str
    delivered: bool
    attempt: Attempt
    is_first: bool
    """The first of its phase that ended; not of a review."""
    at_once: bool
    """It passed, and its phase never had to be done again."""


def by_agent(missions: Iterable[MissionSummary]) -> tuple[AgentRecord, ...]:
    """Sum up what each agent did, the one with the most attempts first."""
    rows: dict[tuple[str, str], list[_Paid]] = {}
    for mission in missions:
        for paid in _paid(mission, mission):
            rows.setdefault((paid.attempt.agent, paid.attempt.model), []).append(paid)
    found = [_record(agent, model, paid) for (agent, model), paid in rows.items()]
    return tuple(sorted(found, key=lambda one: (-one.attempts, one.agent, one.model)))


def _paid(view: MissionSummary, whole: MissionSummary) -> Iterator[_Paid]:
    """Yield the attempts of agents in a mission and in its parts."""
    reviews = {phase.name for phase in view.state.workflow.phases if phase.role is Role.REVIEW}
    ended = [attempt for attempt in view.attempts if attempt.ended]
    often = Counter(attempt.phase for attempt in ended)
    firsts = {attempt.phase: attempt.key for attempt in reversed(ended) if attempt.phase not in reviews}
    for attempt in view.attempts:
        if attempt.agent and not attempt.repeated and not attempt.under_way:
            is_first = firsts.get(attempt.phase) == attempt.key and attempt.ended is not None
            passed = attempt.verdict in SUCCESSES and not attempt.passed_despite_evidence
            at_once = is_first and passed and often[attempt.phase] == 1
            yield _Paid(whole.mission, whole.delivered, attempt, is_first, at_once)
    for part in view.parts:
        yield from _paid(part, whole)


def _record(agent: str, model: str, paid: Sequence[_Paid]) -> AgentRecord:
    attempts = [each.attempt for each in paid]
    spent = Spending()
    for attempt in attempts:
        spent = spent.plus(attempt.ended.outcome.usage if attempt.ended else None)
    return AgentRecord(
        agent=agent,
        model=model,
        attempts=len(attempts),
        claims=sum(attempt.claimed in SUCCESSES for attempt in attempts),
        refuted=sum(attempt.wrong_claim for attempt in attempts),
        phases=sum(each.is_first for each in paid),
        first_pass=sum(each.at_once for each in paid),
        merged=len({each.mission for each in paid if each.delivered}),
        spending=spent,
    )
