"""`capsule advance ID`: a human moves an item on."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import Refused, UsageError
from capsule.core.item import EARLY, Item, Status, Value, check_move, stands_at, with_values

if TYPE_CHECKING:
    from capsule.commands.moving import Grip
    from capsule.core.workflow import Workflow

DESCRIPTION = """\
Move an item one step on: new and researching ones become scoped, scoped ones ready, ready ones are begun, and one that
is in progress goes to its next phase. With --to it goes to that phase: forwards where the documents of every phase in
between are written, backwards always. It is for the items of a backlog: beads have no phases to be moved between.

  capsule advance WRK-003
  capsule advance WRK-003 --to build      the PRD, TECH_RESEARCH, DESIGN and SPEC are there already
  capsule advance WRK-003 --to design     design it again

Exit code: 0 moved; 1 the move is refused, or there is no such item; 2 there is no such phase; 3 it is running.
"""

ONWARDS = {
    Status.NEW: Status.SCOPED,
    Status.RESEARCHING: Status.SCOPED,
    Status.SCOPED: Status.READY,
    Status.READY: Status.IN_PROGRESS,
}
_LARGEST_DOCUMENT = 4 * 1024 * 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--to", metavar="PHASE", help="the phase to go on from")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.moving import grip, move, refuse_beads
    from capsule.wiring import open_project, open_tracker

    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    refuse_beads(tracker, "advance", f"Go on with a bead: capsule run {args.item}, or capsule step {args.item}")
    with grip(project, tracker, args.item) as held:
        before, values = held.item, _values(held, args.to)
        move(held, "ADVANCE", _way(before, with_values(before, values)), values, no_commit=args.no_commit)
    print(f"{before.id} is {stands_at(with_values(before, values))}; it was {stands_at(before)}.")
    return 0


def _way(before: Item, after: Item) -> str:
    same = before.status is after.status and before.phase
    return f"{before.phase} -> {after.phase}" if same else f"{stands_at(before)} -> {stands_at(after)}"


def _values(held: Grip, wanted: str | None) -> dict[str, Value]:
    """The status and phase that it gets; refused where the table of moves, or a missing document, says so."""
    item, workflow = held.item, _workflow(held)
    _refuse_if_stuck(item)
    phases = _phases(workflow)
    if not wanted and item.phase in workflow.names() and workflow.phase(item.phase).doer == "do":
        hint = f"Go on with `capsule run {item.id}`, or say that it is done: capsule complete {item.id}"
        raise Refused(f"{item.id} is at {item.phase}, which Capsule does by itself.", hint)
    if wanted:
        return _to(held, _named(wanted.lower(), phases, workflow), phases, workflow)
    if item.status is Status.IN_PROGRESS:
        return {"phase": _next(item, phases)}
    status = ONWARDS[item.status]
    check_move(item, status)
    early = status is Status.SCOPED
    return {"status": status.value} if early else {"status": status.value, "phase": _where(item, phases)}


def _workflow(held: Grip) -> Workflow:
    """A mission keeps the workflow that it started with."""
    from capsule.rules import choose_workflow, words_at

    if held.mission.under_way:
        return held.mission.workflow
    project = held.project
    return choose_workflow(project, held.item, words_at(project, project.git.resolve("HEAD")))


def _phases(workflow: Workflow) -> tuple[str, ...]:
    """What an item goes through once it is ready; what Capsule does by itself in between is nobody's to choose."""
    names = workflow.names()
    return tuple(name for name in names[names.index(workflow.entry()) :] if workflow.phase(name).doer != "do")


def _refuse_if_stuck(item: Item) -> None:
    if item.blocked:
        raise Refused(f"{item.id} is blocked: {item.blocked.reason}", f"Let it go on first: capsule unblock {item.id}")
    if item.status is Status.DONE:
        raise Refused(f"{item.id} is done.", f"Archive it: capsule complete {item.id}")


def _named(name: str, phases: tuple[str, ...], workflow: Workflow) -> str:
    if name in phases:
        return name
    from difflib import get_close_matches

    near = get_close_matches(name, phases, 1)
    hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(phases)}."
    raise UsageError(f"An item of the workflow {workflow.name} cannot be moved to a phase {name!a}.", hint)


def _where(item: Item, phases: tuple[str, ...]) -> str:
    return item.phase if item.phase in phases else phases[0]


def _next(item: Item, phases: tuple[str, ...]) -> str:
    here = phases.index(_where(item, phases))
    if here + 1 == len(phases):
        raise Refused(
            f"{item.id} is at {phases[here]}, and there is no phase after that.",
            f"Say that it is done: capsule complete {item.id}",
        )
    return phases[here + 1]


def _to(held: Grip, target: str, phases: tuple[str, ...], workflow: Workflow) -> dict[str, Value]:
    item = held.item
    if item.status in EARLY:
        raise Refused(
            f"{item.id} is {item.status.value}, and has to be scoped before it can go to {target}.",
            f"Say that it is: capsule advance {item.id}",
        )
    if item.status is Status.IN_PROGRESS and item.phase == target:
        raise Refused(f"{item.id} is at {target} already.", f"Go on with it: capsule run {item.id}")
    skipped = phases[phases.index(_where(item, phases)) : phases.index(target)]
    _check_documents(held, [workflow.phase(name).artefact for name in skipped], target)
    if item.status is Status.IN_PROGRESS:
        return {"phase": target}
    status = ONWARDS[item.status]
    check_move(item, status)
    return {"status": status.value, "phase": target}


def _check_documents(held: Grip, kinds: Iterable[str], target: str) -> None:
    """Refuse to skip a phase whose document is not written, in the place or, before there is one, in the checkout."""
    from capsule.core.documents import artefact_path, artefact_paths

    item, worktree = held.item, held.project.root / ".capsule" / "worktrees" / held.item.id
    root = worktree if worktree.is_dir() else held.project.root
    paths = [path.relative_to(root).as_posix() for path in root.glob(f"changes/{item.id}_*/*")]
    for kind in filter(None, kinds):
        if not any(_is_written(root / path) for path in artefact_paths(item.id, kind, paths)):
            raise Refused(
                f"{item.id} cannot skip to {target}: its {kind} is missing or empty.",
                f"Write it first: {artefact_path(item, kind, paths)}",
            )


def _is_written(path: Path) -> bool:
    from capsule.system.files import read_regular

    try:
        return bool(read_regular(path, _LARGEST_DOCUMENT).strip())
    except OSError:
        return False
