"""Merge the work of a mission by a request: push its branch, open the request, and follow what becomes of it.

The commit is journaled before it is pushed, and the request is looked for before it is opened: killed at any point, the
step finds what there is. A branch that has a commit of somebody else's is left as it is.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from capsule.adapters import Candidate, Order
from capsule.core.errors import CapsuleError, HeldElsewhere, MergedElsewhere
from capsule.core.event import RequestPrepared, Reviewed
from capsule.core.evidence import Evidence
from capsule.core.request import Fate, News, RequestDraft, Seen, Standing, inert, news
from capsule.core.state import (
    MERGED_INTO,
    REQUEST,
    REQUEST_BRANCH,
    REQUEST_COMMIT,
    REQUEST_NUMBER,
    MissionState,
)
from capsule.core.text import times
from capsule.engine.job import Job, Report, commit_message, load_state, note, parked, passed
from capsule.services import Requests, Services


def open_request(job: Job, requests: Requests, candidate: Candidate, evidence: tuple[Evidence, ...]) -> Report:
    """Push the work and open its request, or bring the one there is up to date."""
    state, branch, mission = job.state, requests.branch, job.mission
    name, work, head = branch.name(mission), branch.work(candidate.commit), branch.head(mission)
    trunk = job.services.trunk(state.into)
    known = state.request
    goes_on = known is not None and head in state.pushed
    commit = branch.on_top(mission, work, state.base, head) if goes_on else work
    found = requests.forge.find(name, known.number if known else 0, (commit,))
    if found and found.went_elsewhere(branch.base(state.into)):
        found = None
    if found and found.standing is not Standing.OPEN:  # it was merged or closed meanwhile: its end is read from there
        ended = _Proposal(known.commit if known else commit, name, trunk.branch, evidence)
        return ended.report("has ended", found, known.url if known else "")
    if trunk.holds(work):
        return Report(parked(f"there is nothing to propose: {trunk.branch} has all of it"), evidence=evidence)
    if head and head not in state.pushed:
        return Report(parked(_pushed_by_another(requests, mission, name, head)), evidence=evidence)
    if commit != head:
        job.services.claims.confirm(mission)
        at, base = job.services.clock.now(), branch.base(state.into)
        job.note(RequestPrepared(at=at, commit=commit, branch=name, base=base))
        if not branch.push(mission, commit, head):
            now = branch.head(mission)
            return Report(parked(_pushed_by_another(requests, mission, name, now)), evidence=evidence)
    proposal = _Proposal(commit, name, trunk.branch, evidence)
    if found:
        return proposal.report("is up to date", found, known.url if known else "")
    address = requests.forge.open(_draft(job, requests, name, evidence))
    return proposal.report("is opened", requests.forge.find(name, 0, (commit,)), address)


def _draft(job: Job, requests: Requests, name: str, evidence: tuple[Evidence, ...]) -> RequestDraft:
    state, redact = job.state, job.services.redact
    item = state.item.id
    title = redact(commit_message(item, state.item.title)).removeprefix(item)
    base = requests.branch.base(state.into)
    return RequestDraft(name, base, f"{item}{inert(title)}", redact(requests.body(job.mission, evidence)))


class _Proposal(Struct, frozen=True):
    """What a request proposes."""

    commit: str
    branch: str
    into: str
    evidence: tuple[Evidence, ...]

    def report(self, said: str, found: Seen | None, address: str = "") -> Report:
        url = (found.url if found else "") or address or self.branch
        facts = {
            REQUEST: url,
            REQUEST_NUMBER: str(found.number if found else 0),
            REQUEST_BRANCH: self.branch,
            REQUEST_COMMIT: self.commit,
            MERGED_INTO: self.into,
        }
        return Report(passed(f"the request {said}: {url}"), evidence=self.evidence, facts=facts)


def _pushed_by_another(requests: Requests, mission: str, name: str, head: str) -> str:
    author = requests.branch.author(mission, head)
    whose = f" ({author})" if author else ""
    return (
        f"somebody else pushed {head[:12]}{whose} to {name}, so the branch is left as it is; nothing was pushed. "
        f"Put it back to a commit of ours or delete it, then `capsule run {mission}`"
    )


def refuse_if_proposed(order: Order, services: Services) -> None:
    """Refuse a new mission whose work another clone has proposed: its branch could not be pushed over."""
    state, item = load_state(services, order.mission), order.mission
    if not services.by_request or state.under_way:
        return
    requests = services.requests()
    name = requests.branch.name(item)
    head = requests.branch.head(item)
    if not head or head in state.pushed:
        return
    found = requests.forge.find(name, 0, (head,))
    if found and found.standing is Standing.OPEN:
        hint = f"Leave it to its reviewers. To do it anew: close that request there, and delete its branch {name}"
        raise HeldElsewhere(f"{item} is under review already: {found.url}.", hint)
    if found and found.standing is Standing.MERGED and not found.went_elsewhere(requests.branch.base(order.into)):
        hint = f"Close it: capsule complete {item}. To do it anew: delete the branch {name} there"
        raise MergedElsewhere(f"{item} was merged by {found.url}.", hint)


# ---- what becomes of it


_NOT_BY_REQUEST = (
    "changes are requested, and `merge.to` is not `request` any more: set it again; or close that request there, and "
    "the work is merged as the settings say once it is changed"
)


class Looked(Struct, frozen=True):
    """What was found out about a mission's request."""

    state: MissionState
    news: News | None = None


def look(mission: str, services: Services) -> Looked:
    """Ask the forge about a request that waits, and journal what is new. The caller holds the mission.

    A request that was closed is only told: whoever asked ends its mission.
    """
    state = load_state(services, mission)
    if not state.in_review or state.request is None:
        return Looked(state)
    known, requests = state.request, services.requests()
    seen = requests.forge.find(known.branch, known.number, (known.commit,)) or _seen_by_git(state, services)
    if seen is None:
        return Looked(state)
    head = "" if seen.standing is Standing.MERGED else requests.branch.head(mission)
    found = news(seen, known, head=head, ours=state.pushed, base=requests.branch.base(state.into))
    if found is None or (state.halt and found.fate in (Fate.CHANGES, Fate.STUCK)):  # a person is asked already
        return Looked(state)
    if found.fate is Fate.CLOSED:
        return Looked(state, found)
    if found.fate is Fate.CHANGES and not services.by_request:
        found = replace(found, fate=Fate.STUCK, text=f"{_NOT_BY_REQUEST}.\n\n{found.text}")
    if found.fate is Fate.CHANGES and known.rounds >= state.workflow.retries:
        why = f"its reviewers asked for changes again, after it went back {times(known.rounds)}"
        found = replace(found, fate=Fate.STUCK, text=f"{why}.\n\n{found.text}")
    services.trunk(state.into).refresh()
    note(services, mission, _reviewed(found, known.url, requests, services))
    return Looked(load_state(services, mission), found)


def _seen_by_git(state: MissionState, services: Services) -> Seen | None:
    """Tell a merge by the branch's history, where the forge cannot be asked."""
    trunk, commit = services.trunk(state.into), state.request.commit if state.request else ""
    trunk.refresh()
    return Seen(standing=Standing.MERGED, head=commit) if commit and trunk.holds(commit) else None


def _reviewed(found: News, url: str, requests: Requests, services: Services) -> Reviewed:
    parents = requests.branch.parents(found.commit)
    return Reviewed(
        at=services.clock.now(),
        fate=found.fate,
        url=url,
        text=services.redact(found.text),
        by=found.by,
        ids=found.ids,
        commit=found.commit if parents else "",
        onto=parents[0] if parents else "",
        squashed=len(parents) == 1,
    )


def follow_merge(state: MissionState, services: Services) -> tuple[str, ...]:
    """Bring the user's own branch to the merge of a request; return what keeps it where it is."""
    trunk, commit = services.trunk(state.into), state.facts.get("merged", "")
    if state.request is None or not commit or not trunk.holds(commit):
        return ()
    try:
        return trunk.publish(Candidate(commit, trunk.tree(commit), trunk.tip())).remarks
    except CapsuleError as fault:
        return (f"your branch {state.into} stays where it is: {fault.message}",)
