"""Actions of the engine: prepare a workspace, commit, archive a mission; merging.py publishes it.

Actions are named in workflows (`do: prep`). Each can be killed anywhere and repeated: it inspects, and then does what
is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from capsule.core.errors import CapsuleError, Refused
from capsule.core.event import (
    Discovered,
    Event,
    ItemClosed,
    MissionStarted,
    Salvaged,
    StepEnded,
    as_json_line,
)
from capsule.core.evidence import EvidenceStatus
from capsule.core.exam import joining
from capsule.core.history import read_mission
from capsule.core.item import Item, NewItem, with_finding
from capsule.core.ledger import MOST_FOLLOW_UPS
from capsule.core.project_log import same_title
from capsule.core.proven import proof_of
from capsule.core.signal import FollowUp
from capsule.core.state import MissionState
from capsule.core.text import one_line
from capsule.core.worklog import open_worklog, summary
from capsule.engine.checks import verify
from capsule.engine.job import (
    Job,
    Report,
    commit_message,
    lost_worklog,
    note,
    parked,
    passed,
    state_store_of,
)
from capsule.engine.merging import publish
from capsule.engine.requesting import follow_merge
from capsule.engine.verification import Verification
from capsule.engine.work import first_checkpoint, start_from_checkpoint
from capsule.services import Services

_LONGEST_TITLE, _LONGEST_CONTEXT = 200, 4000


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
        then = f"once it is mended, `capsule run {state.parent or job.mission} --rebase` starts from there"
        signal = parked(red.instead or f"base is red: {red.observed}; {then}")
    return Report(signal, evidence=evidence, checkpoint=checkpoint, warnings=warnings)


def commit(job: Job) -> Report:
    """Commit exactly what the last review approved, as one commit of the mission's branch."""
    before = start_from_checkpoint(job)
    item, place = job.state.item, job.place
    held = job.state.checkpoint or first_checkpoint(job)
    place.commit_step(held, commit_message(item.id, item.title), f"{job.mission}/{job.step.key}")
    return Report(passed("committed exactly as approved"), before, checkpoint=place.checkpoint(job.step.key))


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


def archive(job: Job) -> Report:
    """Store the logs, remove worktree and branch, and close the item.

    The working folder stays until that is recorded: by it a mission is found whose item no tracker lists any more.
    """
    services, place = job.services, job.place
    # The worktree may be gone already, by an agent or by a first try at this step.
    worklog = lost_worklog(place, job.state.checkpoint) or place.worklog()
    logs = logs_of(job.mission, services, worklog)
    folder = services.archive.store(job.mission, logs, job.step.key)
    kept = (*_salvage(job), *follow_merge(job.state, services))
    place.remove(branch=True)
    warnings = kept + file_discovered(job) + _close_item(job)
    return Report(passed(f"archived in {folder.name}"), warnings=warnings, facts={"archive": str(folder)})


def logs_of(mission: str, services: Services, worklog: str) -> dict[str, str]:
    """Gather a mission's journal and logs for its archive."""
    events = services.journal.events(mission)
    return {
        "worklog.md": worklog,
        "journal.jsonl": b"".join(as_json_line(mission, seq, event) + b"\n" for seq, event in events).decode(),
        "summary.md": summary([event for _, event in events]),
    }


def _salvage(job: Job) -> tuple[str, ...]:
    """Salvage all of an unmerged mission; of a merged one, what was in no commit."""
    merged = "merged" in job.state.facts
    why = "left in the worktree, in no commit" if merged else "closed without a merge"
    if merged and not _uncommitted(job):
        if not _merged_as_another(job):
            return ()
        why = "merged by its request, as another commit"
    ref = job.place.salvage(why)
    if not ref:
        return ()
    job.note(Salvaged(at=job.services.clock.now(), ref=ref, why=why))
    return (f"{why}: kept as {ref}",)


def _merged_as_another(job: Job) -> bool:
    """Tell whether a forge has squashed or rebased the work, so that its own commits are on no branch."""
    state = job.state
    return state.request is not None and not job.services.trunk(state.into).holds(state.request.commit)


def _uncommitted(job: Job) -> bool:
    """Tell whether the worktree, if it is still there, holds anything that the branch does not."""
    try:
        return job.place.path.exists() and bool(job.place.touched_outside_commit())
    except CapsuleError:  # git cannot read it: then everything in it is kept
        return True


def _close_item(job: Job) -> tuple[str, ...]:
    """Close the item, once; if the tracker refuses, warn, and let the next run try again."""
    if job.state.item_closed:
        return ()
    try:
        close_item(job.state, job.services)
    except CapsuleError as refused:
        return (f"{job.state.item.id} is merged, but could not be closed in the tracker: {refused.message}",)
    return ()


def close_item(state: MissionState, services: Services) -> bool:
    """Close the item in the tracker and journal that. Safe to repeat."""
    reason = state.closed_as or services.redact(_how_it_was_done(state, services))
    told = state_store_of(state, services).close(state.item.id, reason)
    if told:
        note(services, state.mission, ItemClosed(at=services.clock.now(), reason=reason))
    return told


def _how_it_was_done(state: MissionState, services: Services) -> str:
    """Name the commit and its proof for readers of the item."""
    merged = state.facts.get("merged", "")
    if not merged:
        return "Done"
    proof = proof_of(read_mission(event for _, event in services.journal.events(state.mission)))
    return f"Merged as {merged[:12]}" + (f"; {proof.label}: {proof.line}" if proof.line else "")


def file_discovered(job: Job) -> tuple[str, ...]:
    """Add the follow-ups that agents reported as items without a parent; name those that an open item has already.

    Safe to repeat. What cannot be added is a warning; the mission's logs have it.
    """
    state, services = job.state, job.services
    if not state.policy.file_discovered:
        return ()
    events = services.journal.events(state.mission)
    found = state_store_of(state, services).unfiled(noticed(event for _, event in events))
    filed: dict[str, str] = {}
    remarks: list[str] = []
    fault = ""
    known: dict[str, Item] | None = None
    for reference, follow_up in list(found.items())[:MOST_FOLLOW_UPS]:
        new = _new_item(job, reference, follow_up)
        title = same_title(new.title) or new.title
        try:
            known = _open_titles(job) if known is None else known
            if title in known:
                known[title], remark = _add_to_known(known[title], new, f"{state.item.id}/{reference}", services)
                remarks.append(remark)
                continue
            added = services.tracker.add(new)
            filed[added], known[title] = new.title, new.as_item(added)
        except Refused as refused:
            fault = f": {refused.message}"
        except CapsuleError as trouble:  # a tracker that hangs is not asked again
            fault = f": {trouble.message}"
            break
    if filed:
        job.note(Discovered(at=services.clock.now(), items=filed))
    left = len(found) - len(filed) - len(remarks)
    what = f"{left} follow-up{'s were' if left > 1 else ' was'} not put into the tracker"
    return (*remarks, *([f"{what}{fault or f', after the first {MOST_FOLLOW_UPS}'}"] if left else []))


def _new_item(job: Job, reference: str, follow_up: FollowUp) -> NewItem:
    redact = job.services.redact
    return NewItem(
        title=redact(one_line(follow_up.title))[:_LONGEST_TITLE].rstrip(),
        description=redact(follow_up.context)[:_LONGEST_CONTEXT],
        found_in=job.state.item.id,
        reference=f"{_filed_by(job)}{reference}",
    )


def _filed_by(job: Job) -> str:
    """Return the start of the references of all that this mission files."""
    return f"capsule/{job.mission}/"


def _open_titles(job: Job) -> dict[str, Item]:
    """Return the open items by title, without the mission's own and what it has filed before a crash."""
    others = (item for item in job.services.tracker.items() if item.id != job.state.item.id)
    return {same_title(item.title) or item.title: item for item in others if not item.origin.startswith(_filed_by(job))}


def _add_to_known(known: Item, new: NewItem, origin: str, services: Services) -> tuple[Item, str]:
    """Add what is new to the description of an item that is known already; return the item, and what to say."""
    said = f"a follow-up is known already, as {known.id}"
    description, where = with_finding(known.description, origin.partition("#")[0], new.description)
    if description == known.description:
        return known, f"{said}{where}"
    if "description" not in services.tracker.traits.edits:
        return known, said
    try:
        services.tracker.change(known.id, {"description": description})
    except CapsuleError as refused:
        return known, f"{said}; its context could not be added: {refused.message}"
    return replace(known, description=description), f"{said}{where}"


def noticed(events: Iterable[Event]) -> dict[str, FollowUp]:
    """Collect the follow-ups that a mission's agents reported since its start, each once, by step and number."""
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
