"""What the engine does itself: prepare a workspace, publish a merge, archive a mission.

Actions are named in workflows (`do: prep`). Each can be killed anywhere and repeated: it looks at how things stand and
does what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from capsule.adapters import Candidate, Trunk
from capsule.core.errors import CapsuleError, Overlap, Refused
from capsule.core.event import (
    Discovered,
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Proposed,
    Salvaged,
    StepEnded,
    as_json_line,
)
from capsule.core.evidence import Colour, Evidence, EvidenceStatus
from capsule.core.exam import joining
from capsule.core.history import read_mission
from capsule.core.item import NewItem, Status, same_words
from capsule.core.ledger import MOST_FOLLOW_UPS, archived
from capsule.core.proven import trailers_of
from capsule.core.signal import FollowUp, Verdict
from capsule.core.state import MissionState
from capsule.core.text import one_line
from capsule.core.workflow import Role
from capsule.core.worklog import open_worklog, summary
from capsule.engine.checks import NO_COMMAND, unharmed, verify, with_acceptance
from capsule.engine.job import (
    Job,
    Report,
    commit_message,
    guard_repository,
    note,
    parked,
    passed,
    sent_back,
    state_store_of,
)
from capsule.engine.verification import Verification, detect_tests
from capsule.engine.work import first_checkpoint, start_from_checkpoint
from capsule.services import Services

ARCHIVED_AT = "archived_at"
"""When the item left its tracker with a merge: the archive says the same."""
_LONGEST_TITLE, _LONGEST_CONTEXT = 200, 4000
_MOST_ROUNDS = 8
"""How often main may move while we merge before we say that it is too busy."""


def prep(job: Job) -> Report:
    """Claim the item, make the worktree and its worklog, set it up, and check that the base is green."""
    state, services, place = job.state, job.services, job.place
    warnings = tuple(place.prepare(state.base))
    state_store_of(state, services).claim(state.item.id)  # after the place: without one, the item must not be held
    if not place.worklog():
        template = services.words.template("worklog.md.template")
        worklog = open_worklog(template, state, services.clock.now())
        place.write_worklog(services.redact(worklog))
    checkpoint = place.checkpoint(job.step.key)
    signal = passed(f"worktree {place.path.name} on {place.branch}")
    evidence = verify(Verification(state, job.phase, signal, place, services, checkpoint.tree, checkpoint.tree))
    red = next((piece for piece in evidence if piece.standing is EvidenceStatus.REFUTED), None)
    if red:
        then = f"once it is mended, `capsule run {job.mission} --rebase` starts from there"
        signal = parked(red.instead or f"base is red: {red.observed}; {then}")
    return Report(signal, evidence=evidence, checkpoint=checkpoint, warnings=warnings)


def commit(job: Job) -> Report:
    """Commit exactly what the last review approved, as one commit of the mission's branch."""
    before = start_from_checkpoint(job)
    item, place = job.state.item, job.place
    held = job.state.checkpoint or first_checkpoint(job)
    place.commit_step(held, commit_message(item.id, item.title), f"{job.mission}/{job.step.key}")
    return Report(passed("committed as it was approved"), before, checkpoint=place.checkpoint(job.step.key))


def join_exam(job: Job) -> Report:
    """Put the tests of a passed exam among the work that is merged; `evidence.exam: drop` leaves them out."""
    before = start_from_checkpoint(job)
    files = joining(job.state)
    for path, content in files.items():
        job.place.write(path, content)
    many = len(files) > 1
    said = "the exam stays hidden"
    if files:
        said = f"{len(files)} file{'s' if many else ''} of the exam join{'' if many else 's'} the suite"
    return Report(passed(said), before, checkpoint=job.place.checkpoint(job.step.key), files=tuple(files))


def publish(job: Job) -> Report:
    """Build the merge result, run the gate on exactly that tree, and move main by compare-and-swap."""
    trunk = job.services.trunk(job.state.into)
    before = job.state.proposed
    if before and trunk.holds(before.commit):
        return _published(trunk, Candidate(before.commit, before.tree, before.onto))
    objection = _changed_under_us(job) or _moved_branch(job)
    return Report(parked(objection)) if objection else _merge(job, trunk)


def _merge(job: Job, trunk: Trunk) -> Report:
    """Merge; where the tracker lives in the project, the item leaves it in the very commit that brings its work."""
    at, state = job.services.clock.now(), job.state
    message, title = _merge_message(job), commit_message(state.item.id, state.item.title)
    draft = state_store_of(state, job.services).draft(archived(state.item, at, state.workflow.names()[-1]))
    by_agent = any("committed" in phase.checks for phase in state.workflow.phases)
    for _ in range(_MOST_ROUNDS):
        candidate = trunk.propose(job.place.head(), state.base, message, draft, title if by_agent else "")
        if candidate.conflicts:
            paths, way = ", ".join(candidate.conflicts), f"`capsule run {job.mission} --rebase`"
            then = f"{way} rebuilds the work on {state.into} and goes on from there"
            return Report(sent_back(f"conflict with {state.into} in {paths}; {then}"))
        evidence = _gate(job, candidate)
        if any(piece.standing is EvidenceStatus.REFUTED for piece in evidence) and job.state.policy.verify != "warn":
            way = f"`capsule run {state.parent or job.mission} --rebase` rebuilds the work on it"
            then = f"; {state.into} has moved: {way}" if candidate.onto != state.base else ""
            red = f"gate red on the merge result: {evidence[0].observed}{then}\n\n{evidence[0].detail}"
            return Report(sent_back(red), evidence=evidence)
        job.note(
            Proposed(at=job.services.clock.now(), commit=candidate.commit, tree=candidate.tree, onto=candidate.onto)
        )
        try:
            report = _published(trunk, candidate, evidence)
        except Overlap as edited:
            return Report(parked(_in_the_way(job, edited)), evidence=evidence)
        if report.signal.verdict is Verdict.PASS:
            return replace(report, facts={**report.facts, **({ARCHIVED_AT: at} if draft else {})})
    return Report(sent_back(f"{trunk.branch} moved {_MOST_ROUNDS} times while the merge was being checked."))


def _merge_message(job: Job) -> str:
    """Name the item; trailers say what made the merge, so that `git log` can be asked."""
    state, events = job.state, job.services.journal.events(job.mission)
    trailers = trailers_of(read_mission(event for _, event in events))
    if state.parent:
        trailers.append(f"Capsule-Step: {job.mission}/{job.step.key}")
    rows = "\n".join(trailers)
    return job.services.redact(f"Merge {commit_message(state.item.id, state.item.title)}\n\n{rows}\n")


def _in_the_way(job: Job, edited: Overlap) -> str:
    """Main does not move over an edit of the user's: left as it is, their next commit would take the merge out."""
    state = job.state
    reviewed = any(phase.role is Role.REVIEW for phase in state.workflow.phases)
    mission = state.parent or state.mission
    merge = f"capsule merge {mission}" if reviewed else f"capsule run {mission}"
    blocked = state_store_of(state, job.services).waits_for_unblock
    then = f"capsule unblock {mission}; capsule run {mission}" if blocked else merge
    return f"your checkout has an uncommitted edit of {edited.named}: commit it or put it away, then `{then}`"


def _published(trunk: Trunk, candidate: Candidate, evidence: tuple[Evidence, ...] = ()) -> Report:
    published = trunk.publish(candidate)
    if not published.moved:
        return Report(sent_back(f"{trunk.branch} moved."))
    left = ", ".join(published.left_alone)
    warnings = (f"your own edits were kept, so these files are not as merged: {left}",) if left else ()
    facts = {"merged": candidate.commit, "onto": candidate.onto}
    return Report(
        passed(f"{trunk.branch} is now {candidate.commit[:12]}"), evidence=evidence, warnings=warnings, facts=facts
    )


def _gate(job: Job, candidate: Candidate) -> tuple[Evidence, ...]:
    """Run the test command on the merge result; a look-up where main has not moved since the sign-off."""
    said = "the merge result is green"
    if job.state.policy.verify == "off":
        return ()
    claim = Verification(job.state, job.phase, passed(""), job.place, job.services, candidate.tree, candidate.tree)
    detect_tests(claim)
    if not claim.state.policy.test:
        return (Evidence("gate", said, NO_COMMAND, EvidenceStatus.UNVERIFIED),)
    with guard_repository(job.place):
        seen = claim.observe(candidate.tree)
        judged = unharmed(claim) if seen.colour in (Colour.RED, Colour.EMPTY) else None
    if judged and judged.standing is not EvidenceStatus.REFUTED:  # what fails is known from the base
        return (Evidence("gate", said, judged.observed, judged.standing),)
    standing = EvidenceStatus.CONFIRMED if seen.colour is Colour.GREEN else EvidenceStatus.REFUTED
    observed = f"`{seen.command}` is {seen.colour.value} on {candidate.tree[:12]}"
    return (with_acceptance(claim, Evidence("gate", said, observed, standing, seen.tail), candidate.tree),)


def _changed_under_us(job: Job) -> str:
    """Ask before anything is merged, where a human closed or rewrote the item meanwhile."""
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
    """Object to commits that came after the last recorded step, unverified; going on by hand adopts them."""
    known, found = job.state.checkpoint, job.place.head()
    if known is None or known.head == found:
        return ""
    job.note(MovedByHand(at=job.services.clock.now(), what="branch", expected=known.head, found=found))
    return f"the branch moved to {found[:12]} after it was approved; nothing was merged, everything is kept"


def archive(job: Job) -> Report:
    """Store the logs, remove worktree and branch, and close the item."""
    services, place = job.services, job.place
    checkpoint, worklog = job.state.checkpoint, place.worklog()
    if not worklog and checkpoint:  # the worktree may be gone already, by an agent or by a first try at this step
        worklog = (place.trees.read(checkpoint.commit, "worklog.md") or b"").decode(errors="replace")
    logs = logs_of(job.mission, services, worklog)
    folder = services.archive.store(job.mission, logs, job.step.key)
    kept = _salvage(job)
    place.remove(branch=True)
    services.archive.drop_working_folder(job.mission)
    warnings = kept + file_discovered(job) + _close_item(job)
    return Report(passed(f"archived in {folder.name}"), warnings=warnings, facts={"archive": str(folder)})


def logs_of(mission: str, services: Services, worklog: str) -> dict[str, str]:
    """Gather what is left of a mission for its archive."""
    events = services.journal.events(mission)
    return {
        "worklog.md": worklog,
        "journal.jsonl": b"".join(as_json_line(mission, seq, event) + b"\n" for seq, event in events).decode(),
        "summary.md": summary([event for _, event in events]),
    }


def _salvage(job: Job) -> tuple[str, ...]:
    """Salvage all of an unmerged mission; of a merged one, what was in no commit."""
    why = "left in the worktree, in no commit" if "merged" in job.state.facts else "closed without a merge"
    if "merged" in job.state.facts and not _uncommitted(job):
        return ()
    ref = job.place.salvage(why)
    if not ref:
        return ()
    job.note(Salvaged(at=job.services.clock.now(), ref=ref, why=why))
    return (f"{why}: kept as {ref}",)


def _uncommitted(job: Job) -> bool:
    """Tell whether the worktree, if it is still there, holds anything that the branch does not."""
    try:
        return job.place.path.exists() and bool(job.place.touched_outside_commit())
    except CapsuleError:  # it is in no state to be asked: then everything in it is kept
        return True


def _close_item(job: Job) -> tuple[str, ...]:
    """Close the item; a tracker that refuses is a warning, and is asked again by the next run."""
    try:
        close_item(job.state, job.services)
    except CapsuleError as refused:
        return (f"{job.state.item.id} is merged, but could not be closed in the tracker: {refused.message}",)
    return ()


def close_item(state: MissionState, services: Services) -> bool:
    """Say in the tracker that it is done, and write down that this was said. Safe to repeat."""
    merged = state.facts.get("merged", "")
    reason = state.closed_as or (f"Merged as {merged[:12]}" if merged else "Done")
    told = state_store_of(state, services).close(state.item.id, reason)
    if told:
        note(services, state.mission, ItemClosed(at=services.clock.now(), reason=reason))
    return told


def file_discovered(job: Job) -> tuple[str, ...]:
    """Add what agents noticed as items of their own, without a parent, so that what is under way ends. Safe to repeat.

    What cannot be added is a warning: it is in the mission's logs all the same.
    """
    state, services = job.state, job.services
    if not state.policy.file_discovered:
        return ()
    events = services.journal.events(state.mission)
    found = state_store_of(state, services).unfiled(noticed(event for _, event in events))
    filed: dict[str, str] = {}
    fault = ""
    for reference, follow_up in list(found.items())[:MOST_FOLLOW_UPS]:
        title = services.redact(one_line(follow_up.title))[:_LONGEST_TITLE].rstrip()
        new = NewItem(
            title=title,
            description=services.redact(follow_up.context)[:_LONGEST_CONTEXT],
            found_in=state.item.id,
            reference=f"capsule/{state.mission}/{reference}",
        )
        try:
            filed[services.tracker.add(new)] = title
        except Refused as refused:
            fault = f": {refused.message}"
        except CapsuleError as trouble:  # whoever hangs is not asked for the others
            fault = f": {trouble.message}"
            break
    if filed:
        job.note(Discovered(at=services.clock.now(), items=filed))
    left = len(found) - len(filed)
    what = f"{left} follow-up{'s were' if left > 1 else ' was'} not put into the tracker"
    return (f"{what}{fault or f', after the first {MOST_FOLLOW_UPS}'}",) if left else ()


def noticed(events: Iterable[Event]) -> dict[str, FollowUp]:
    """Gather what a mission's agents reported since it was started, each thing once, by step and number."""
    found: dict[str, FollowUp] = {}
    titles: set[str] = set()
    for event in events:
        if isinstance(event, MissionStarted):
            found, titles = {}, set()
        if not isinstance(event, StepEnded):
            continue
        for number, follow_up in enumerate(event.outcome.signal.follow_ups):
            title = one_line(follow_up.title).casefold()
            if title.strip() and title not in titles:
                titles.add(title)
                found[f"{event.key}/{number}"] = follow_up
    return found


ACTIONS: dict[str, Callable[[Job], Report]] = {
    "prep": prep,
    "commit": commit,
    "join-exam": join_exam,
    "publish": publish,
    "archive": archive,
}
