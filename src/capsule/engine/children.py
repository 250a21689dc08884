"""A phase that is a mission of its own.

Merged is PASS (or MORE, while parts are left), parked is BLOCKED, aborted is FAILED.
"""

from __future__ import annotations

import msgspec

from capsule.core.decide import Move
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState
from capsule.engine.job import Job, Order, Report, passed


def run_child(job: Job) -> Report:
    """The next part, as child mission `<id>.<phase>.<n>`; a halted child is gone on with, never started twice."""
    fact = f"{job.phase.name}.parts"
    number = int(job.state.facts.get(fact, "0")) + 1
    parts = job.world.tracker.parts(job.state.item, job.phase.name)
    part = parts[min(number, len(parts)) - 1]
    child = f"{job.mission}.{job.phase.name}.{number}"
    order = Order(
        mission=child,
        item=msgspec.structs.replace(part, id=child),
        workflow=job.world.words.workflow(job.phase.workflow),
        into=job.workspace.branch,
        base=job.workspace.head(),
        policy=job.state.policy,
        parent=job.mission,
    )
    state = job.pursue(order, job.world)
    facts = {fact: str(number)} if state.finished else {}
    return Report(_signal(state, last=number >= len(parts)), facts=facts)


def _signal(child: MissionState, *, last: bool) -> Signal:
    if child.finished:
        done = passed(f"{child.mission} is merged")
        return done if last else msgspec.structs.replace(done, verdict=Verdict.MORE)
    reason = f"{child.mission}: {child.halt.reason if child.halt else 'not finished'}"
    verdict = Verdict.BLOCKED if child.halt and child.halt.move is Move.PARK else Verdict.FAILED
    return Signal(verdict=verdict, feedback=reason, summary=reason)
