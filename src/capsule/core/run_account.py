"""What several missions came to together: a run of the queue, a campaign, or all that a project has ever done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from capsule.core.account import MissionAccount
from capsule.core.budget import Spending, total
from capsule.core.event import Event, RunEnded, RunStarted, Spawned
from capsule.core.evidence import EvidenceStatus
from capsule.core.signal import Verdict
from capsule.core.stamps import moment
from capsule.core.standpoint import Word


class RunStory(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the queue or of a campaign, as its own stream tells it."""

    name: str
    began: str
    ended: str = ""
    why: str = ""
    exit_code: int | None = None
    spawns: int = 0
    missions: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    missions: int
    delivered: int
    parked: int
    stopped: int
    abandoned: int
    closed: int
    under_way: int
    judged: int
    """Of how many it can be said whether they passed at first: they came to an end or to a halt, and were needed."""
    first_pass: int
    attempts: int
    sent_back: int
    refuted: int
    claims: int
    claims_confirmed: int
    claims_refuted: int
    spending: Spending
    wall_seconds: float
    busy_seconds: float
    waited_seconds: float

    @property
    def first_pass_rate(self) -> float | None:
        """None where nothing has come to an end yet: that is no rate of zero."""
        return self.first_pass / self.judged if self.judged else None


class RunAccount(msgspec.Struct, frozen=True, kw_only=True):
    project: str
    title: str
    as_of: str
    missions: tuple[MissionAccount, ...] = ()
    run: RunStory | None = None

    @property
    def totals(self) -> Totals:
        return _totals(self.missions)


def run_account(
    missions: Iterable[MissionAccount], *, project: str, title: str, as_of: str, run: RunStory | None = None
) -> RunAccount:
    """The oldest first, parts with what they are parts of."""
    return RunAccount(project=project, title=title, as_of=as_of, missions=_nested(missions), run=run)


def _nested(missions: Iterable[MissionAccount]) -> tuple[MissionAccount, ...]:
    ordered = sorted(missions, key=lambda each: (each.began, each.ended or each.as_of, each.mission))
    known = {each.mission for each in ordered}
    below: dict[str, list[MissionAccount]] = {}
    for each in ordered:
        below.setdefault(each.parent if each.parent in known else "", []).append(each)

    def whole(each: MissionAccount) -> MissionAccount:
        parts = tuple(map(whole, below.get(each.mission, ())))
        return msgspec.structs.replace(each, parts=parts) if parts else each

    return tuple(map(whole, below.get("", ())))


def last_run(name: str, events: Sequence[Event]) -> RunStory | None:
    """The newest run of a stream; one that was killed and gone on with is one run."""
    ends = [number for number, event in enumerate(events) if isinstance(event, RunEnded)]
    ended = isinstance(events[-1], RunEnded) if events else False
    before = ends[:-1] if ended else ends
    told = events[before[-1] + 1 :] if before else events
    starts = [event for event in told if isinstance(event, RunStarted)]
    if not starts:
        return None
    spawned = [event.mission for event in told if isinstance(event, Spawned)]
    end = told[-1] if isinstance(told[-1], RunEnded) else None
    met = [*spawned, *((*end.done, *end.blocked, *end.failed) if end else ())]
    return RunStory(
        name=name,
        began=starts[0].at,
        ended=end.at if end else "",
        why=end.why if end else "",
        exit_code=end.exit_code if end else None,
        spawns=len(spawned),
        missions=tuple(dict.fromkeys(met)),
    )


def _totals(missions: Sequence[MissionAccount]) -> Totals:
    words = [each.where.word for each in missions]
    judged = [each for each in missions if each.at_an_end and each.where.word != Word.CLOSED]
    attempts = [attempt for each in missions for attempt in each.all_attempts()]
    claims = [piece.standing for attempt in attempts for piece in attempt.evidence]
    began = min((moment(each.began) for each in missions), default=0.0)
    ended = max((moment(each.ended or each.as_of) for each in missions), default=0.0)
    return Totals(
        missions=len(missions),
        delivered=sum(each.delivered for each in missions),
        parked=words.count(Word.PARKED),
        stopped=words.count(Word.STOPPED),
        abandoned=words.count(Word.ABANDONED),
        closed=words.count(Word.CLOSED),
        under_way=sum(not each.at_an_end for each in missions),
        judged=len(judged),
        first_pass=sum(each.first_pass for each in judged),
        attempts=len(attempts),
        sent_back=sum(attempt.sent_back for attempt in attempts),
        refuted=sum(attempt.verdict == Verdict.REFUTED for attempt in attempts),
        claims=len(claims),
        claims_confirmed=claims.count(EvidenceStatus.CONFIRMED),
        claims_refuted=claims.count(EvidenceStatus.REFUTED),
        spending=total(each.whole_spending for each in missions),
        wall_seconds=max(0.0, ended - began),
        busy_seconds=sum(each.busy_seconds for each in missions),
        waited_seconds=sum(each.waited_seconds for each in missions),
    )
