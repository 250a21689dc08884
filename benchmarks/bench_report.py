"""What a report costs, as a multiple of what nobody can do without: decoding the events it is made from.

One mission of 20, 200 and 2,000 attempts, each with evidence and feedback, and 200 missions of ten attempts. The best
of some rounds counts, so the ratios hold on any machine. What is rendered of a long mission is its beginning and its
end, so a page stops growing; the account, which knows all of it, grows with the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from capsule.core.decide import Decision, Move
from capsule.core.event import Event, MissionStarted, Outcome, StepBegun, StepEnded, Usage, decode, encode
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import NOBODY, read_mission
from capsule.core.item import Item
from capsule.core.report import Report, nested
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Phase, Workflow
from capsule.pages.report import page
from capsule.reports.facts import report_facts
from capsule.reports.markdown import markdown

ROUNDS = 5
AT = "2026-01-05T{:02}:{:02}:{:02}Z"
FLOW = Workflow(name="flow", phases=(Phase(name="code", prompt="c"),))
RED = Evidence("green", "all tests pass", "`make test` is red, exit 1", EvidenceStatus.REFUTED, "FAILED test_a\n" * 40)


def stamp(second: int) -> str:
    return AT.format(second // 3600 % 24, second // 60 % 60, second % 60)


def story(mission: str, attempts: int) -> list[Event]:
    item = Item(id=mission, title="Rename the widget")
    events: list[Event] = [
        MissionStarted(at=stamp(0), mission=mission, item=item, workflow=FLOW, base="b" * 40, into="main")
    ]
    signal = Signal(verdict=Verdict.PASS, summary="Renamed it, and all tests pass.", feedback="as asked")
    outcome = Outcome(
        signal=signal, evidence=(RED, RED), seconds=8.0, agent="claude", usage=Usage(tokens_in=9000, usd=0.1)
    )
    decision = Decision(Move.REPEAT, Verdict.REFUTED, feedback="You reported PASS, and it is red.\n" * 20)
    for run in range(1, attempts + 1):
        key, at = f"code#{run}", run * 10
        events.append(StepBegun(at=stamp(at), key=key, phase="code", run=run, attempt=run, agent="claude"))
        events.append(StepEnded(at=stamp(at + 8), key=key, phase="code", run=run, outcome=outcome, decision=decision))
    return events


def told(stories: Sequence[Sequence[Event]]) -> Report:
    missions = [read_mission(events).summary(NOBODY, stamp(86399)) for events in stories]
    return Report(project="bench", title="All missions", as_of=stamp(86399), missions=nested(missions))


def decoded(rows: Sequence[bytes]) -> list[Event]:
    return [decode(row) for row in rows]


def best(work: Callable[[], object]) -> float:
    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return min(once() for _ in range(ROUNDS))


CASES = {
    "1 mission, 20 attempts": (1, 20),
    "1 mission, 200 attempts": (1, 200),
    "1 mission, 2,000 attempts": (1, 2000),
    "200 missions, 10 attempts each": (200, 10),
}


def main() -> None:
    print(f"{'':32}{'decode':>10}{'account':>16}{'HTML':>16}{'Markdown':>16}{'JSON':>16}{'page':>10}")
    for name, (missions, attempts) in CASES.items():
        stories = [story(f"x-{number}", attempts) for number in range(missions)]
        rows = [encode(event) for events in stories for event in events]
        account = told(stories)
        floor = best(partial(decoded, rows))
        costs = [
            best(partial(told, stories)),
            *(best(partial(form, account)) for form in (page, markdown, report_facts)),
        ]
        cells = "".join(f"{cost * 1000:8.1f} ms {cost / floor:4.1f}x" for cost in costs)
        print(f"{name:32}{floor * 1000:7.1f} ms{cells}{len(page(account)) / 1024:7.0f} KB")


if __name__ == "__main__":
    main()
