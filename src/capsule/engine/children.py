"""Run a phase as child missions: one for each phase of the SPEC, or for each part in the tracker.

Merged is PASS (or MORE, while parts are left), parked is BLOCKED, aborted is FAILED. The parent sees a child's merge by
its commit: one that was merged just before a crash is counted, not repeated.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from capsule.adapters import Order
from capsule.core.decide import Move
from capsule.core.documents import artefact_paths, phases_of, ticked
from capsule.core.errors import Paused
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState
from capsule.engine.job import Job, Report, load_state, passed
from capsule.engine.work import first_checkpoint


class _Part(Struct, frozen=True):
    """One part of the phase: the task of its mission, and the document with its tick box."""

    number: int
    item: Item
    last: bool
    document: str = ""


def run_child(job: Job) -> Report:
    """Run the next part as child mission `<id>.<phase>.<n>`; resume a halted child, count a merged one."""
    checkpoint = job.state.checkpoint or first_checkpoint(job)
    job.place.follow(checkpoint)
    part = _next_part(job)
    if part is None:
        return Report(_nothing_left(job))
    child = f"{job.mission}.{job.phase.name}.{part.number}"
    state = load_state(job.services, child)
    if not state.finished or state.facts.get("merged") == job.state.facts.get(child):
        state = job.run_until_halt(_order(job, child, part), job.services)
    if state.under_way and not state.halt:
        raise Paused(f"{child} is as far as this run may go.")
    job.place.follow(checkpoint)  # to what the child has merged
    if state.finished and part.document:
        path, text = _document(job)
        if any(phase.number == part.number and phase.open for phase in phases_of(text)):
            job.place.write(path, ticked(text, part.number).encode())
    facts = {child: state.facts.get("merged", ""), _count(job): str(part.number)} if state.finished else {}
    return Report(_signal(state, last=part.last), facts=facts)


def _order(job: Job, child: str, part: _Part) -> Order:
    return Order(
        mission=child,
        item=msgspec.structs.replace(part.item, id=child),
        workflow=job.services.words.workflow(job.phase.workflow),
        into=job.place.publishes_to or job.place.branch,
        base=job.place.head(),
        policy=job.state.policy,
        parent=job.mission,
        notes=job.state.item.unblock_context,
    )


def _count(job: Job) -> str:
    return f"{job.phase.name}.parts"


def _next_part(job: Job) -> _Part | None:
    if job.phase.artefact:
        return _next_of_document(job)
    number = int(job.state.facts.get(_count(job), "0")) + 1
    parts = job.services.tracker.parts(job.state.item, job.phase.name)
    return _Part(number, parts[min(number, len(parts)) - 1], last=number >= len(parts))


def _next_of_document(job: Job) -> _Part | None:
    path, text = _document(job)
    left = [phase for phase in phases_of(text) if phase.open]
    if not left:
        return None
    item, phase = job.state.item, left[0]
    words = f"Part of {item.id}: {item.title}\n\n{phase.text}"
    part = Item(id=item.id, title=phase.name or f"{item.title}, part {phase.number}", description=words)
    return _Part(phase.number, part, last=len(left) == 1, document=path)


def _document(job: Job) -> tuple[str, str]:
    """Read the SPEC: its path and its text."""
    head = job.place.head()
    paths = artefact_paths(job.state.item.id, job.phase.artefact, job.place.trees.files(head))
    return (paths[0], (job.place.trees.read(head, paths[0]) or b"").decode(errors="replace")) if paths else ("", "")


def _nothing_left(job: Job) -> Signal:
    path, text = _document(job)
    if phases_of(text):
        return passed(f"every phase of {path} is complete")
    reason = f"{path} has no phases: each needs a heading such as `### Phase 1: name`" if path else "there is no SPEC"
    return Signal(verdict=Verdict.FAILED, feedback=reason, summary=reason)


def _signal(child: MissionState, *, last: bool) -> Signal:
    if child.finished:
        done = passed(f"{child.mission} is merged")
        return done if last else msgspec.structs.replace(done, verdict=Verdict.MORE)
    reason = f"{child.mission}: {child.halt.reason if child.halt else 'not finished'}"
    verdict = Verdict.BLOCKED if child.halt and child.halt.move is Move.PARK else Verdict.FAILED
    return Signal(verdict=verdict, feedback=reason, summary=reason)
