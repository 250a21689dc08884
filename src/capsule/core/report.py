"""Several missions together: a run of the queue, a campaign, or everything a project has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from capsule.core.budget import Spending, total
from capsule.core.by_agent import AgentRecord, by_agent
from capsule.core.evidence import EvidenceStatus
from capsule.core.history import MissionSummary, RunSummary, evidence_counts, with_parts
from capsule.core.inbox import Question
from capsule.core.merges import MergeRecord
from capsule.core.stamps import moment
from capsule.core.status import Condition, MissionStatus


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """`--json` prints these names."""

    missions: int
    delivered: int
    parked: int
    stopped: int
    abandoned: int
    closed: int
    under_way: int
    judged: int
    """How many count for the first-pass rate: those that ended or halted and were needed."""
    first_pass: int
    attempts: int
    sent_back: int
    refuted: int
    mended: int
    """How many refuted attempts were mended by a later one."""
    claimed_wrongly: int
    """How often an agent claimed success, and the evidence said otherwise."""
    caught: int
    """How many of those did not pass."""
    claims: int
    claims_confirmed: int
    claims_refuted: int
    claims_accepted: int
    spending: Spending
    wall_seconds: float
    busy_seconds: float
    waited_seconds: float

    @property
    def first_pass_rate(self) -> float | None:
        """Return the share that passed at first; None where no mission has ended yet."""
        return self.first_pass / self.judged if self.judged else None

    @property
    def claims_unverified(self) -> int:
        return self.claims - self.claims_confirmed - self.claims_refuted - self.claims_accepted


class Report(msgspec.Struct, frozen=True, kw_only=True):
    project: str
    title: str
    as_of: str
    missions: tuple[MissionSummary, ...] = ()
    run: RunSummary | None = None
    merges: tuple[MergeRecord, ...] = ()
    """The merge queues in which one of the missions waited, was tested with others or went back."""
    questions: tuple[Question, ...] = ()
    """What needs a person, the oldest first."""

    @property
    def alone(self) -> bool:
        """Tell whether it is about one mission, not a run."""
        return len(self.missions) == 1 and not self.run

    @property
    def heading(self) -> str:
        if self.alone:
            return f"{self.missions[0].mission}: {self.missions[0].title}"
        return self.title

    @property
    def agents(self) -> tuple[AgentRecord, ...]:
        return by_agent(self.missions)

    @property
    def statuses(self) -> Counter[MissionStatus]:
        return Counter(each.status for each in self.missions)

    @property
    def totals(self) -> Totals:
        missions = self.missions
        conditions = Counter(each.condition for each in missions)
        judged = [each for each in missions if each.at_an_end and each.condition is not Condition.CLOSED]
        attempts = [attempt for each in missions for attempt in each.all_attempts()]
        claims = evidence_counts(piece for attempt in attempts for piece in attempt.evidence)
        began = min((moment(each.began) for each in missions), default=0.0)
        ended = max((moment(each.ended or each.as_of) for each in missions), default=0.0)
        return Totals(
            missions=len(missions),
            delivered=sum(each.delivered for each in missions),
            parked=conditions[Condition.PARKED],
            stopped=conditions[Condition.STOPPED],
            abandoned=conditions[Condition.ABANDONED],
            closed=conditions[Condition.CLOSED],
            under_way=sum(not each.at_an_end for each in missions),
            judged=len(judged),
            first_pass=sum(each.first_pass for each in judged),
            attempts=sum(each.attempts_made for each in missions),
            sent_back=sum(attempt.sent_back for attempt in attempts),
            refuted=sum(attempt.caught for attempt in attempts),
            mended=sum(bool(attempt.mended) for attempt in attempts),
            claimed_wrongly=sum(attempt.wrong_claim for attempt in attempts),
            caught=sum(attempt.wrong_claim and attempt.caught for attempt in attempts),
            claims=sum(claims.values()),
            claims_confirmed=claims[EvidenceStatus.CONFIRMED],
            claims_refuted=claims[EvidenceStatus.REFUTED],
            claims_accepted=claims[EvidenceStatus.ACCEPTED],
            spending=total(each.spent_with_parts for each in missions),
            wall_seconds=max(0.0, ended - began),
            busy_seconds=sum(each.busy_seconds for each in missions),
            waited_seconds=sum(each.waited_seconds for each in missions),
        )


def nested(missions: Iterable[MissionSummary]) -> tuple[MissionSummary, ...]:
    """Order missions by age, and put parts below the mission that they are parts of."""
    ordered = sorted(missions, key=lambda each: (each.began, each.ended or each.as_of, each.mission))
    known = {each.mission for each in ordered}
    return tuple(each for each in with_parts(ordered) if each.parent not in known)
