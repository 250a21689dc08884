"""Publish the work of a mission: build the merge, run the gate on exactly that tree, and move main by compare-and-swap.

Several that wait may be tested together and enter main with one commit, whose second parent is the chain of their own
merges. A red batch is halved until the first that is red is found; those before it are merged.

Work that conflicts or is red on the branch goes back, and is told with which commit: that is found by bisection, too,
after the turn is over, so that nobody waits for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile

from msgspec.structs import replace

from capsule.adapters import Candidate
from capsule.core.errors import (
    CapsuleError,
    HeldElsewhere,
    MergedElsewhere,
    Overlap,
    RemoteFault,
    UnknownItem,
    WentBack,
)
from capsule.core.event import Batched, MissionStarted, MovedByHand, Proposed, Returned, Served, Stacked
from capsule.core.evidence import Colour, Evidence, EvidenceStatus, Observation, company, refuted
from capsule.core.history import read_mission
from capsule.core.item import Status, as_asked, same_words
from capsule.core.ledger import archived
from capsule.core.merge_queue import BATCH, merged_meanwhile
from capsule.core.proven import trailers_of
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MERGED_INTO, MissionState
from capsule.core.test_report import TestReport
from capsule.core.text import sentence
from capsule.core.workflow import Role
from capsule.engine.checks import NO_COMMAND, unharmed, verify_merge, with_acceptance
from capsule.engine.job import (
    MOST_ROUNDS,
    Job,
    Report,
    commit_message,
    guard_repository,
    load_state,
    parked,
    passed,
    quarantined,
    round_on,
    sent_back,
    state_store_of,
)
from capsule.engine.merge_turn import Turn, merge_turn, proposed
from capsule.engine.patience import Patience
from capsule.engine.requesting import open_request
from capsule.engine.verification import SHOWN, Verification, detect_tests
from capsule.services import Requests, Services

ARCHIVED_AT = "archived_at"
"""The time at which a merge removed the item from its tracker; the archive uses the same."""
_MOST_RETURNS = 2
"""How often a mission's work goes back by itself after merges of others."""
_MOST_LOST = 3
"""How often in a row others may move the branch of a remote first."""
_SAID = "the merge result is green"


def publish(job: Job) -> Report:
    """Merge the work when it is its turn; wait for a remote that cannot be reached."""
    work, patience = _Work(job), Patience(job.services, job.state, job.phase.name, job.step.key)
    away = False
    while True:
        try:
            if away:  # it comes back to the line once the remote answers
                work.trunk.refresh()
            found = _at_its_turn(job, work)
        except RemoteFault as fault:  # the turn is over, and others may have theirs
            if not patience.wait_for(fault):
                return Report(parked(_refused_by(job, fault)))
            away = True
            continue
        if found:
            return found if isinstance(found, Report) else _report_clash(work, found)
        work = _Work(job)  # another mission merged it along, and a person reverted that since: wait again


def _at_its_turn(job: Job, work: _Work) -> Report | Candidate | None:
    """Merge the work at its turn; a part of another mission has a branch to itself."""
    if job.state.parent:
        return _merged_before(job, work) or _unless_changed(job, work)
    if job.services.by_request:
        return _requested(job, work, job.services.requests())
    with merge_turn(job, work) as turn:
        work.trunk.refresh()
        found: Report | Candidate | None = _merged_before(job, work, turn)
        if not found and not turn.served:
            found = _unless_changed(job, work, turn)
        return found


class _Work:
    """The mission's work, and the merges that were built and tested for it in this step."""

    def __init__(self, job: Job) -> None:
        state = job.state
        self.job, self.trunk = job, job.services.trunk(state.into)
        # A proposal that is repeated, after a kill for example, is the same commit: it archives at the same time.
        known = state.proposed
        again = known is not None and known.archived_at and known.onto == self.trunk.tip()
        self.at = known.archived_at if known and again else job.services.clock.now()
        alone = f" of {job.mission}" if state.policy.verify == "warn" else ""  # its own red result concerns only itself
        self.gate = f"{state.policy.verify}{alone}: {state.policy.test}"
        self._evidence: dict[str, tuple[Evidence, ...]] = {}
        self._seen: dict[str, tuple[Observation, TestReport]] = {}
        """Test runs of this step, as in `Verification`."""
        self.has_run = False
        """Whether a test run was needed, which gives people time to change the item."""
        self.left_out: set[str] = set()
        """Missions that are not merged along, because their claims are lost."""
        self.breaches: dict[str, list[str]] = {}
        """By tree, the breaches of its tests, which were reverted."""
        self.draft = state_store_of(state, job.services).draft(
            archived(state.item, self.at, state.workflow.names()[-1])
        )
        self.archived_at = self.at if self.draft else ""

    def tree(self, commit: str = "") -> str:
        return self.trunk.tree(commit)

    def holds(self, commit: str) -> bool:
        return self.trunk.holds(commit)

    def propose(self, onto: str = "") -> Candidate:
        """Build the merge; if the tracker is in the project, the same commit removes the item from it."""
        state = self.job.state
        title = commit_message(state.item.id, state.item.title)
        subject = title if any("committed" in phase.checks for phase in state.workflow.phases) else ""
        message = _merge_message(self.job)
        return self.trunk.propose(self._approved, state.base, message, self.draft, subject, onto=onto)

    @property
    def _approved(self) -> str:
        state = self.job.state
        return state.checkpoint.head if state.checkpoint else self.job.place.head()

    def clashes(self, candidate: Candidate, onto: str) -> bool:
        """Tell whether work that conflicts or is red on the branch does so on an older commit of it, too."""
        state = self.job.state
        older = self.trunk.propose(self._approved, state.base, "", onto=onto)
        if candidate.conflicts or older.conflicts:
            return not candidate.conflicts or not {*candidate.conflicts}.isdisjoint(older.conflicts)
        if not refuted(self.evidence(candidate)[:1]):
            return bool(refuted(self.evidence(older)))  # green as a whole, and its tests cannot be trusted
        claim = self._claim(state, older.tree)
        detect_tests(claim)
        with guard_repository(self.job.place):
            return bool(claim.state.policy.test and refuted((_tested_as_a_whole(claim),)))

    def evidence(self, candidate: Candidate, along: Sequence[str] = ()) -> tuple[Evidence, ...]:
        if candidate.tree not in self._evidence:
            self._evidence[candidate.tree] = self._gate(candidate, along)
        return self._evidence[candidate.tree]

    def is_green(self, candidate: Candidate, along: Sequence[str] = ()) -> bool:
        red = refuted(self.evidence(candidate, along)) and self.job.state.policy.verify != "warn"
        return not red and candidate.tree not in self.breaches

    def is_green_after_all(self, candidate: Candidate) -> bool:
        """Test a red merge once more before its mission is sent back."""
        if candidate.tree in self.breaches:
            return False
        again = self._gate(candidate, once_more=True)
        if refuted(again):
            return False
        self._evidence[candidate.tree] = again
        return True

    def _gate(
        self, candidate: Candidate, along: Sequence[str] = (), *, once_more: bool = False
    ) -> tuple[Evidence, ...]:
        """Test the merge and the honesty of its test run; only look results up if main has not moved since sign-off."""
        job = self.job
        if job.state.policy.verify == "off":
            return ()
        claim = self._claim(job.state, candidate.tree)
        detect_tests(claim)
        if not claim.state.policy.test:
            return (Evidence("gate", _SAID, NO_COMMAND, EvidenceStatus.UNVERIFIED),)
        self.has_run = self.has_run or once_more or not claim.known(candidate.tree)
        with guard_repository(job.place) as breaches:
            tested = _tested_as_a_whole(claim, once_more=once_more)
            rest = () if refuted((tested,)) else self._proven_again(claim, candidate, along)
        if breaches:
            self.breaches[candidate.tree] = breaches
        return (tested, *rest)

    def _proven_again(self, claim: Verification, candidate: Candidate, along: Sequence[str]) -> tuple[Evidence, ...]:
        """Verify what a merge contains beyond the sign-off; nothing if the tree is the same."""
        states = [claim.state, *(load_state(self.job.services, name) for name in along)]
        works = [self._claim(one, self.job.place.delivered(one.checkpoint)) for one in states if one.checkpoint]
        if candidate.tree in [work.tree for work in works]:
            return ()
        onto = replace(claim.state, base=candidate.onto)
        return verify_merge(replace(claim, state=onto, signed_off=works))

    def facts(self, commit: str, onto: str, archived_at: str) -> dict[str, str]:
        """Return what the journal keeps of a merge that is on the branch."""
        merged = {"merged": commit, "onto": onto, MERGED_INTO: self.trunk.branch}
        return merged | ({ARCHIVED_AT: archived_at} if archived_at else {})

    def main_is_red(self, commit: str) -> bool:
        """Tell whether the tests also fail without this mission's work."""
        with guard_repository(self.job.place):
            return self._claim(self.job.state, commit).observe(commit).colour is Colour.RED

    def _claim(self, state: MissionState, tree: str) -> Verification:
        job = self.job
        signal, by = passed(""), job.mission
        return Verification(state, job.phase, signal, job.place, job.services, tree, tree, self._seen, tested_by=by)

    def tested_with(self, others: Sequence[str], candidate: Candidate, tree: str) -> None:
        """Record that it is green as part of a tree that was tested in the same way."""
        policy = self.job.state.policy
        if policy.verify == "off" or not policy.test:
            return
        together = f", tested with {', '.join(others)}" if others else ""
        observed = f"`{policy.test}` is green on {tree[:12]}{together}"
        self._evidence.setdefault(candidate.tree, (Evidence("gate", _SAID, observed, EvidenceStatus.CONFIRMED),))


def _unless_changed(job: Job, work: _Work, turn: Turn | None = None) -> Report | Candidate:
    if objection := _changed_under_us(job) or _moved_branch(job):
        return Report(parked(objection))
    if left := _uncommitted(job):
        return Report(sent_back(left))
    return _merge(job, work, turn)


def _requested(job: Job, work: _Work, requests: Requests) -> Report | Candidate:
    """Propose the work by a request if its merge is green now; return the merge itself if it is not."""
    work.trunk.refresh()
    if objection := _changed_under_us(job) or _moved_branch(job):
        return Report(parked(objection))
    if left := _uncommitted(job):
        return Report(sent_back(left))
    candidate = work.propose()
    if candidate.conflicts or not (work.is_green(candidate) or work.is_green_after_all(candidate)):
        return candidate
    if work.has_run and (objection := _changed_under_us(job)):
        return Report(parked(objection))
    return open_request(job, requests, candidate, work.evidence(candidate))


def _merged_before(job: Job, work: _Work, turn: Turn | None = None) -> Report | None:
    """Find out whether a merge of this work is on the branch: ours, before a crash, or with others'."""
    found = merges_on_the_branch(job.state, job.services)
    if not found:
        return None
    batch = turn.queue.now().batches.get(job.mission) if turn else None
    own = next((one for one in found if not batch or one.commit != batch.commit), found[0])
    candidate, at = Candidate(own.commit, own.tree, own.onto), own.archived_at
    if batch is None or not work.trunk.holds(batch.commit):
        return _published(work, candidate, at=at)
    if found[0].commit == batch.commit:  # it had the turn, and checkouts may not be updated yet
        work.trunk.publish(Candidate(batch.commit, batch.tree, found[0].onto))
    work.tested_with([name for name in batch.missions if name != job.mission], candidate, batch.tree)
    said = f"{work.trunk.branch} is now {batch.commit[:12]}"
    return Report(passed(said), evidence=work.evidence(candidate), facts=work.facts(own.commit, own.onto, at))


def merges_on_the_branch(state: MissionState, services: Services) -> list[Proposed]:
    """Return the merges of a mission that its branch holds, the newest first; it may not have recorded them yet."""
    trunk = services.trunk(state.into)
    return [event for event in _proposed_this_time(state, services) if trunk.holds(event.commit)]


def look_for_its_merge(state: MissionState, services: Services) -> None:
    """See where a branch at a remote is by now, if the mission may be merged without having heard of that."""
    trunk = services.trunk(state.into)
    if not trunk.at_remote or "merged" in state.facts or not _proposed_this_time(state, services):
        return
    try:
        trunk.refresh()
    except RemoteFault as fault:
        fault.message = f"{state.mission} may be merged already: {fault.message}"
        fault.hint = (
            f"Everything is kept. See what `git fetch {trunk.at_remote}` says, then run the same command again."
        )
        raise


def _proposed_this_time(state: MissionState, services: Services) -> list[Proposed]:
    """Return what a mission proposed since it was started, the newest first."""
    events = [event for _, event in services.journal.events(state.mission)]
    this_time = takewhile(lambda event: not isinstance(event, MissionStarted), reversed(events))
    return [event for event in this_time if isinstance(event, Proposed)]


def left_with_its_merge(state: MissionState, services: Services) -> bool:
    """Tell whether a merge that the mission has not recorded yet took its item out of the tracker."""
    return any(merge.archived_at for merge in merges_on_the_branch(state, services))


def _merge(job: Job, work: _Work, turn: Turn | None) -> Report | Candidate:
    """Build the merge, test it and publish it; repeat when the branch or the batch has changed meanwhile.

    Return the merge itself if it conflicts or is red.
    """
    lost, most = 0, _MOST_LOST if work.trunk.at_remote else MOST_ROUNDS
    for number in range(MOST_ROUNDS):
        with round_on(work.trunk, number):
            found = _merge_as_it_stands(job, work, turn)
        if found is None:
            continue
        if isinstance(found, Candidate) or found.signal.verdict is not Verdict.NEEDS_WORK:
            return found
        lost += 1
        if lost == most:
            break
        work.trunk.refresh()
        if turn and work.trunk.at_remote and (merged := _merged_before(job, work, turn)):
            return merged  # by a push of a run that was killed
    return Report(_too_busy(job, work))


def _merge_as_it_stands(job: Job, work: _Work, turn: Turn | None) -> Report | Candidate | None:
    """Build, test and publish the merge; return None if it has to be built without a mission of its batch."""
    candidate = work.propose()
    car = _green_together(work, turn, candidate) if turn and not candidate.conflicts else ()
    if candidate.conflicts or not (car if turn else work.is_green(candidate)):
        return candidate
    if work.has_run and (objection := _changed_under_us(job)):  # tests may take long
        return Report(parked(objection))
    waiting = turn.line(turn.queue.now()) if turn and car[1:] else ()
    if not all(one.mission in waiting and not _withdrawn(job, one.mission) for one in car[1:]):
        return None  # one was stopped or withdrawn while the car was tested
    return _publish_car(work, turn, candidate, car)


def _report_clash(work: _Work, candidate: Candidate) -> Report:
    """Send back work that conflicts or is red, and name what it does not go together with."""
    if not candidate.conflicts:
        return _report_red(work.job, work, candidate)
    job, state, paths = work.job, work.job.state, ", ".join(candidate.conflicts)
    way = f"`capsule run {state.parent or job.mission} --rebase`"
    then = f"{way} rebuilds the work on {state.into} and goes on from there"
    others = _others(work, candidate)
    _go_back(job, f"Its merge into {state.into} conflicts in {paths}.{_named(others)}", candidate, others)
    return Report(sent_back(f"conflict with {state.into} in {paths}; {then}.{_named(others)}"))


def _report_red(job: Job, work: _Work, candidate: Candidate) -> Report:
    """Send back work whose merge is red, without blame if main is red without it."""
    state, evidence = job.state, work.evidence(candidate)
    if candidate.tree in work.breaches:
        return Report(quarantined(work.breaches[candidate.tree]))
    way = f"`capsule run {state.parent or job.mission} --rebase` rebuilds the work on it"
    moved = candidate.onto != state.base
    then = f"; {state.into} has moved: {way}" if moved else ""
    if moved and work.main_is_red(candidate.onto):
        return Report(sent_back(f"{state.into} itself is red at {candidate.onto[:12]}{then}"), evidence=evidence)
    others = _others(work, candidate)
    first = refuted(evidence)[0]
    seen = f"{first.observed}.{_named(others)}\n\n{first.detail}"
    _go_back(job, f"The work is green alone, and not on what others merged meanwhile: {seen}", candidate, others)
    red = f"gate red on the merge result: {first.observed}{then}.{_named(others)}\n\n{first.detail}"
    return Report(sent_back(red), evidence=evidence)


# ---- several at a time


def _green_together(work: _Work, turn: Turn, candidate: Candidate) -> Sequence[Stacked]:
    """Return the merges of the batch that are green together, the mission's own first; none if that is red."""
    car = turn.car(candidate, work)
    leaves = (
        n for n, one in enumerate(car[1:], 1) if one.mission in work.left_out or _withdrawn(turn.job, one.mission)
    )
    car = car[: next(leaves, len(car))]
    known = turn.queue.now().green
    green = next((n for n in range(len(car), 0, -1) if (work.gate, car[n - 1].tree) in known), 0)
    if not green:
        green = _bisect(work, turn, candidate, car)
    if not green:
        return car[:1] if work.is_green_after_all(candidate) else ()
    work.tested_with([one.mission for one in car[1:green]], candidate, car[green - 1].tree)
    return car[:green]


def _bisect(work: _Work, turn: Turn, candidate: Candidate, car: Sequence[Stacked]) -> int:
    """Count how many of the batch are green together; if not all are, find the first red one by bisection."""
    green, red, tried = 0, len(car) + 1, len(car)
    while red - green > 1:
        is_green = _test_car(turn, car[:tried], work, candidate)
        green, red = (tried, red) if is_green else (green, tried)
        tried = (green + red) // 2
    return green


def _test_car(turn: Turn, car: Sequence[Stacked], work: _Work, first: Candidate) -> bool:
    services = turn.job.services
    began = services.clock.seconds()
    names = tuple(one.mission for one in car)
    tree = car[-1].tree
    green = work.is_green(Candidate(car[-1].commit, tree, first.onto), names[1:])
    if services.limits.batch > 1:
        now, seconds = services.clock.now(), round(services.clock.seconds() - began, 3)
        turn.note(Batched(at=now, missions=names, tree=tree, green=green, gate=work.gate, seconds=seconds))
    return green


def _withdrawn(job: Job, mission: str) -> bool:
    """Tell whether a person has closed, rewritten or removed the item of another mission in the batch."""
    try:
        return bool(_item_change(job, load_state(job.services, mission)))
    except CapsuleError:
        return True  # its tracker cannot be asked


def _publish_car(work: _Work, turn: Turn | None, candidate: Candidate, car: Sequence[Stacked]) -> Report | None:
    """Move main to the merge, or to one commit that brings all merges of the batch.

    Return None if another mission of the batch has lost its claim.
    """
    job, clock = work.job, work.job.services.clock
    names = tuple(one.mission for one in car)
    entering = candidate
    if names[1:]:
        listed = ", ".join(names)
        message = f"Merge {len(car)} missions: {listed}\n\n{BATCH}{listed}\n"
        entering = work.trunk.gather(car[-1].commit, candidate.onto, message)
    job.note(proposed(job, entering, work))
    if turn and job.services.limits.batch > 1:
        at, tree, commit = clock.now(), entering.tree, entering.commit
        turn.note(Batched(at=at, missions=names, tree=tree, green=True, commit=commit, gate=work.gate))
    works = {one.mission: one.commit for one in car}
    try:
        report = _published(work, entering, work.evidence(candidate), works, work.archived_at)
    except Overlap as edited:
        return Report(parked(_in_the_way(job, edited)), evidence=work.evidence(candidate))
    except (HeldElsewhere, MergedElsewhere) as lost:  # that mission finds it out by itself
        if lost.item not in names[1:]:
            raise
        work.left_out.add(lost.item)
        return None
    if report.signal.verdict is not Verdict.PASS or not turn or not names[1:]:
        return report
    for one in car[1:]:
        turn.note(Served(at=clock.now(), mission=one.mission, key=job.step.key, seconds=0.0))
    return replace(report, facts={**report.facts, "merged": car[0].commit, "onto": car[0].onto})


# ---- one merge


def _go_back(job: Job, why: str, candidate: Candidate, others: Mapping[str, str]) -> None:
    """Send the work back by itself if main has moved; the third time a person decides."""
    state = job.state
    if candidate.onto == state.base or state.parent or state.returns >= _MOST_RETURNS:
        return
    job.note(Returned(at=job.services.clock.now(), why=why, others={**others}))
    raise WentBack(f"{job.mission} goes back.")


def _others(work: _Work, candidate: Candidate) -> Mapping[str, str]:
    """Return the first commit since the work began that it does not go together with, found by bisection.

    If it clashes with the commit it began from, return those that sent it back before.
    """
    state = work.job.state
    steps = work.trunk.steps(state.base, candidate.onto)
    commits = [state.base, *(step.commit for step in steps)]
    first = bisect_left(commits[:-1], True, key=partial(work.clashes, candidate))  # it was tested on the last one
    return {steps[first - 1].name: commits[first]} if first else state.met


def _named(others: Mapping[str, str]) -> str:
    words = merged_meanwhile(others)
    return f" {words[:1].upper()}{words[1:]}." if words else ""


def _merge_message(job: Job) -> str:
    """Name the item; trailers describe the merge for `git log`."""
    state, events = job.state, job.services.journal.events(job.mission)
    trailers = trailers_of(read_mission(event for _, event in events))
    if state.parent:
        trailers.append(f"Capsule-Step: {job.mission}/{job.step.key}")
    rows = "\n".join(trailers)
    return job.services.redact(f"Merge {commit_message(state.item.id, state.item.title)}\n\n{rows}\n")


def _in_the_way(job: Job, edited: Overlap) -> str:
    """Main does not move over an edit of the user's: left as it is, their next commit would take the merge out."""
    then = _to_merge_again(job)
    return f"your checkout has an uncommitted edit of {edited.named}: commit it or put it away, then `{then}`"


def _refused_by(job: Job, fault: RemoteFault) -> str:
    """Name what a remote refused in its own words, and what helps: no agent has to run again."""
    help_first = f" {fault.hint}" if fault.hint else ""
    return (
        f"{sentence(fault.message)}{help_first} Nothing was merged, everything is kept; then `{_to_merge_again(job)}`"
    )


def _too_busy(job: Job, work: _Work) -> Signal:
    """Others were faster every time: at a remote, a person decides."""
    branch = work.trunk.branch
    if not work.trunk.at_remote:
        return sent_back(f"{branch} changed {MOST_ROUNDS} times while the merge was being tested.")
    return parked(
        f"{branch} moved {_MOST_LOST} times in a row while the merge was being tested; nothing was merged, everything "
        f"is kept. `{_to_merge_again(job)}` tries again; `merge.to: request` in the settings opens a request instead"
    )


def _to_merge_again(job: Job) -> str:
    """Return the command that publishes the work again."""
    state = job.state
    reviewed = any(phase.role is Role.REVIEW for phase in state.workflow.phases)
    mission = state.parent or state.mission
    if state_store_of(state, job.services).waits_for_unblock:
        return f"capsule answer {mission} --retry"
    return f"capsule merge {mission}" if reviewed else f"capsule run {mission}"


def _published(
    work: _Work,
    candidate: Candidate,
    evidence: tuple[Evidence, ...] = (),
    works: Mapping[str, str] | None = None,
    at: str = "",
) -> Report:
    trunk = work.trunk
    with trunk.about_to_move():
        published = trunk.publish(candidate, works)
    if not published.moved:
        return Report(sent_back(f"{trunk.branch} moved."))
    left = ", ".join(published.left_alone)
    kept = (f"your own edits were kept, so these files are not as merged: {left}",) if left else ()
    warnings = (*kept, *published.remarks)
    facts = work.facts(candidate.commit, candidate.onto, at)
    return Report(
        passed(f"{trunk.branch} is now {candidate.commit[:12]}"), evidence=evidence, warnings=warnings, facts=facts
    )


def _tested_as_a_whole(claim: Verification, *, once_more: bool = False) -> Evidence:
    seen = claim.observe_again() if once_more else claim.observe(claim.tree)
    judged = unharmed(claim) if seen.colour in (Colour.RED, Colour.EMPTY) else None
    if judged and judged.standing is not EvidenceStatus.REFUTED:  # known failures of the base
        return Evidence("gate", _SAID, judged.observed, judged.standing)
    standing = EvidenceStatus.CONFIRMED if seen.colour is Colour.GREEN else EvidenceStatus.REFUTED
    asked = ", asked once more" if once_more else ""
    observed = f"`{seen.command}` is {seen.colour.value} on {claim.tree[:12]}{company(seen)}{asked}"
    return with_acceptance(claim, Evidence("gate", _SAID, observed, standing, seen.tail), claim.tree)


def _changed_under_us(job: Job) -> str:
    """Park before anything is merged if a person closed or rewrote the item meanwhile."""
    state = job.state
    if state.parent:
        return ""
    found = _item_change(job, state)
    if not found:
        return ""
    job.note(MovedByHand(at=job.services.clock.now(), what="item", expected=state.item.status.value, found=found))
    where = "from" if found == "removed" else "in"
    return (
        f"{state.item.id} was {found} {where} the tracker while the mission ran; nothing was merged, everything is kept"
    )


def _item_change(job: Job, state: MissionState) -> str:
    """Return `closed`, `rewritten` or `removed` if a person did that to a mission's item meanwhile, else ''."""
    try:
        now = job.services.tracker.item(state.item.id)
    except UnknownItem:
        return "removed"
    unchanged = same_words(as_asked(state.item), as_asked(now), job.services.redact)
    return "closed" if now.status is Status.DONE else "" if unchanged else "rewritten"


def _uncommitted(job: Job) -> str:
    """Refuse uncommitted work: only commits are merged, and it would be removed with the worktree."""
    held = job.state.checkpoint
    left = job.place.trees.changes(held.head, job.place.delivered(held)) if held else ()
    named = ", ".join(change.path for change in left[:SHOWN])
    more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    then = f"commit it in {job.place.path}, then `capsule run {job.state.parent or job.mission}`"
    return f"not committed: {named}{more}; nothing was merged: {then}" if left else ""


def _moved_branch(job: Job) -> str:
    """Refuse commits after the last recorded step, which are unverified; a person's resume adopts them."""
    known, found = job.state.checkpoint, job.place.head()
    if known is None or known.head == found:
        return ""
    job.note(MovedByHand(at=job.services.clock.now(), what="branch", expected=known.head, found=found))
    return f"the branch moved to {found[:12]} after it was approved; nothing was merged, everything is kept"
