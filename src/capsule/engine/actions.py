"""What the engine does itself: prepare a workspace, publish a merge, archive a mission.

Actions are named in workflows (`do: prep`). Each can be killed anywhere and repeated: it looks at how things stand and
does what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from capsule.adapters import Candidate, Draft, Trunk
from capsule.core.errors import CapsuleError, Overlap
from capsule.core.event import ItemClosed, MovedByHand, Proposed, Salvaged, as_json_line
from capsule.core.evidence import Colour, Evidence, EvidenceStatus
from capsule.core.item import Status, same_words
from capsule.core.ledger import archived
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState
from capsule.core.workflow import Role
from capsule.core.worklog import open_worklog, summary
from capsule.engine.discovered import file_discovered
from capsule.engine.job import (
    Job,
    Report,
    claims_its_item,
    commit_message,
    note,
    parked,
    passed,
    sent_back,
    state_store_of,
)
from capsule.engine.verify import Verification, verify
from capsule.services import Services

ARCHIVED_AT = "archived_at"
"""When the item left its tracker with a merge: the archive says the same."""
_MOST_ROUNDS = 8
"""How often main may move while we merge before we say that it is too busy."""


def prep(job: Job) -> Report:
    """The workspace made and usable, the item claimed, the worklog in place, and the base seen green."""
    state, services, place = job.state, job.services, job.place
    warnings = tuple(place.prepare(state.base))
    if claims_its_item(state, services):  # only now: whoever cannot have the place must not hold the item either
        services.tracker.claim(state.item.id)
    if not place.worklog():
        template = services.words.template("worklog.md.template")
        worklog = open_worklog(template, state.item, state.lineage, services.clock.now(), state.earlier)
        place.write_worklog(services.redact(worklog))
    checkpoint = place.checkpoint(job.step.key)
    signal = passed(f"worktree {place.path.name} on {place.branch}")
    evidence = verify(Verification(state, job.phase, signal, place, services, checkpoint.tree, checkpoint.tree))
    red = next((piece for piece in evidence if piece.standing is EvidenceStatus.REFUTED), None)
    if red:
        then = f"once it is mended, `capsule run {job.mission} --rebase` starts from there"
        signal = parked(red.instead or f"base is red: {red.observed}; {then}\n\n{red.detail}")
    return Report(signal, evidence, checkpoint, warnings=warnings)


def publish(job: Job) -> Report:
    """Main moves to the merge result, if the gate is green on exactly that tree, and only from what it was built on."""
    trunk = job.services.trunk(job.state.into)
    before = job.state.proposed
    if before and trunk.holds(before.commit):
        return _published(trunk, Candidate(before.commit, before.tree, before.onto))
    objection = _changed_under_us(job) or _moved_branch(job)
    return Report(parked(objection)) if objection else _merge(job, trunk)


def _merge(job: Job, trunk: Trunk) -> Report:
    at = job.services.clock.now()
    for _ in range(_MOST_ROUNDS):
        candidate = trunk.propose(job.place.head(), job.state.base, _merge_message(job), _draft(job, at))
        if candidate.conflicts:
            return Report(_conflict(job, candidate))
        evidence = _gate(job, candidate)
        if any(piece.standing is EvidenceStatus.REFUTED for piece in evidence) and job.state.policy.verify != "warn":
            return Report(_gate_red(evidence), evidence)
        job.note(
            Proposed(at=job.services.clock.now(), commit=candidate.commit, tree=candidate.tree, onto=candidate.onto)
        )
        try:
            report = _published(trunk, candidate, evidence)
        except Overlap as edited:
            return Report(parked(_in_the_way(job, edited)), evidence)
        if report.signal.verdict is Verdict.PASS:
            left_with_it = {ARCHIVED_AT: at} if state_store_of(job.state, job.services) else {}
            return replace(report, facts={**report.facts, **left_with_it})
    return Report(sent_back(f"{trunk.branch} moved {_MOST_ROUNDS} times while the merge was being checked."))


def _in_the_way(job: Job, edited: Overlap) -> str:
    """Main does not move over an edit of the user's: left as it is, their next commit would take the merge out."""
    state = job.state
    reviewed = any(phase.role is Role.REVIEW for phase in state.workflow.phases)
    mission = state.parent or state.mission
    merge = f"capsule merge {mission}" if reviewed else f"capsule run {mission}"
    then = f"capsule unblock {mission}; capsule run {mission}" if state_store_of(state, job.services) else merge
    return f"your checkout has an uncommitted edit of {edited.named}: commit it or put it away, then `{then}`"


def _draft(job: Job, at: str) -> Draft | None:
    """Where the tracker lives in the project, the item leaves it in the very commit that brings its work."""
    state_store, last = state_store_of(job.state, job.services), job.state.workflow.names()[-1]
    if state_store is None:
        return None
    return lambda onto: state_store.drafted(archived(job.state.item, at, last), onto)


def _published(trunk: Trunk, candidate: Candidate, evidence: tuple[Evidence, ...] = ()) -> Report:
    published = trunk.publish(candidate)
    if not published.moved:
        return Report(sent_back(f"{trunk.branch} moved."))
    left = ", ".join(published.left_alone)
    warnings = (f"your own edits were kept, so these files are not as merged: {left}",) if left else ()
    facts = {"merged": candidate.commit, "onto": candidate.onto}
    return Report(passed(f"{trunk.branch} is now {candidate.commit[:12]}"), evidence, warnings=warnings, facts=facts)


def _merge_message(job: Job) -> str:
    item = job.state.item
    words = f"Merge {commit_message(item.id, item.title)}"
    return f"{words}\n\nCapsule-Step: {job.mission}/{job.step.key}\n" if job.state.parent else words


def _gate(job: Job, candidate: Candidate) -> tuple[Evidence, ...]:
    """The test command on the merge result; a look-up where main has not moved since the sign-off."""
    policy, said = job.state.policy, "the merge result is green"
    if policy.verify == "off":
        return ()
    if not policy.test:
        return (Evidence("gate", said, "no test command is known, so nothing was run", EvidenceStatus.UNVERIFIED),)
    claim = Verification(job.state, job.phase, passed(""), job.place, job.services, candidate.tree, candidate.tree)
    job.place.guard.snapshot()
    try:
        seen = claim.observe(candidate.tree)
    finally:
        job.place.guard.restore()  # tests that were stopped may have planted something too
        job.place.guard.release()
    standing = EvidenceStatus.CONFIRMED if seen.colour is Colour.GREEN else EvidenceStatus.REFUTED
    return (
        Evidence(
            "gate", said, f"`{seen.command}` is {seen.colour.value} on {candidate.tree[:12]}", standing, seen.tail
        ),
    )


def _gate_red(evidence: tuple[Evidence, ...]) -> Signal:
    return sent_back(f"gate red on the merge result: {evidence[0].observed}\n\n{evidence[0].detail}")


def _conflict(job: Job, candidate: Candidate) -> Signal:
    into = job.state.into
    return sent_back(
        f"conflict with {into} in {', '.join(candidate.conflicts)}; "
        f"`capsule run {job.mission} --rebase` rebuilds the work on {into} and goes on from there"
    )


def _changed_under_us(job: Job) -> str:
    """A human who closed or rewrote the item meanwhile is asked before anything is merged."""
    state = job.state
    if state.parent:
        return ""
    now = job.services.tracker.item(state.item.id)
    unchanged = same_words(state.item, now, job.services.redact)
    found = "closed" if now.status is Status.DONE else "" if unchanged else "rewritten"
    if not found:
        return ""
    job.note(MovedByHand(at=job.services.clock.now(), what="item", expected=state.item.status.value, found=found))
    return f"{state.item.id} was {found} in the tracker while the mission ran; nothing was merged, everything is kept"


def _moved_branch(job: Job) -> str:
    """Commits that came after the last recorded step were looked at by nobody; going on by hand adopts them."""
    known, found = job.state.checkpoint, job.place.head()
    if known is None or known.head == found:
        return ""
    job.note(MovedByHand(at=job.services.clock.now(), what="branch", expected=known.head, found=found))
    return f"the branch moved to {found[:12]} after it was approved; nothing was merged, everything is kept"


def archive(job: Job) -> Report:
    """The papers stored, the workspace gone, the item closed: in this order, each safe to repeat."""
    services, place = job.services, job.place
    papers = papers_of(job.mission, services, place.worklog() or _last_worklog(job))
    folder = services.archive.store(job.mission, papers, job.step.key)
    kept = _salvage(job)
    place.remove(branch=True)
    services.archive.drop_working_folder(job.mission)
    warnings = kept + file_discovered(job) + _close_item(job)
    return Report(passed(f"archived in {folder.name}"), warnings=warnings, facts={"archive": str(folder)})


def papers_of(mission: str, services: Services, worklog: str) -> dict[str, str]:
    """What is left of a mission for whoever reads its archive."""
    events = services.journal.events(mission)
    return {
        "worklog.md": worklog,
        "journal.jsonl": b"".join(as_json_line(mission, seq, event) + b"\n" for seq, event in events).decode(),
        "summary.md": summary([event for _, event in events]),
    }


def _last_worklog(job: Job) -> str:
    """The worktree may be gone already, by an agent or by a first try at this step."""
    checkpoint = job.state.checkpoint
    held = job.place.trees.read(checkpoint.commit, "worklog.md") if checkpoint else None
    return (held or b"").decode(errors="replace")


def _salvage(job: Job) -> tuple[str, ...]:
    """All of an unmerged mission; of a merged one, what was in no commit."""
    why = "left in the worktree, in no commit" if "merged" in job.state.facts else "closed without a merge"
    if "merged" in job.state.facts and not _uncommitted(job):
        return ()
    ref = job.place.salvage(why)
    if not ref:
        return ()
    job.note(Salvaged(at=job.services.clock.now(), ref=ref, why=why))
    return (f"{why}: kept as {ref}",)


def _uncommitted(job: Job) -> bool:
    """Whether the worktree, if it is still there, holds anything that the branch does not."""
    try:
        return job.place.path.exists() and bool(job.place.touched_outside_commit())
    except CapsuleError:  # it is in no state to be asked: then everything in it is kept
        return True


def _close_item(job: Job) -> tuple[str, ...]:
    """A tracker that refuses is a warning, and is asked again by the next run: the merge is not lost."""
    if not claims_its_item(job.state, job.services):
        return ()
    try:
        close_item(job.state, job.services)
    except CapsuleError as refused:
        return (f"{job.state.item.id} is merged, but could not be closed in the tracker: {refused.message}",)
    return ()


def close_item(state: MissionState, services: Services) -> None:
    """Say in the tracker that it is done, and write down that this was said. Safe to repeat."""
    merged = state.facts.get("merged", "")
    reason = state.closed_as or (f"Merged as {merged[:12]}" if merged else "Done")
    services.tracker.close(state.item.id, reason)
    note(services, state.mission, ItemClosed(at=services.clock.now(), reason=reason))


ACTIONS: dict[str, Callable[[Job], Report]] = {"prep": prep, "publish": publish, "archive": archive}
