"""`capsule prep ID`: a worktree and a worklog for an item, nothing more."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.core.errors import CapsuleError, Refused
from capsule.core.item import Status, check_id

if TYPE_CHECKING:
    from pathlib import Path

    from capsule.adapters import Tracker
    from capsule.core.item import Item
    from capsule.wiring import Project

DESCRIPTION = """\
Make a git worktree at .capsule/worktrees/ID on branch capsule-ID, from HEAD, with a worklog.md that holds the item's
briefing. `capsule run ID` adopts it later.

Prints the worktree, the branch and the worklog. Exit code: 0 made; 1 anything else.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        worktree, branch, notes = prepare(args)
    except CapsuleError as refused:
        refused.exit_code = refused.exit_code if refused.exit_code == 3 else 1
        raise
    import sys

    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"Worktree: {worktree}")
    print(f"Branch: {branch}")
    print(f"Worklog: {worktree / 'worklog.md'}")
    return 0


def prepare(args: argparse.Namespace) -> tuple[Path, str, tuple[str, ...]]:
    from capsule.core.worklog import open_worklog
    from capsule.reports.live import FanOut
    from capsule.rules import words_at
    from capsule.system.git import check_version
    from capsule.wiring import open_project, open_services, open_tracker
    from capsule.workspaces import repository

    item_id = check_id(args.item)
    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    item = tracker.item(item_id)
    if item.status is Status.DONE:
        raise Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
    _refuse_to_prepare_many(tracker, item)
    check_version()
    project.git.identity  # noqa: B018 - raises where git does not know who we are
    repository.refuse_if_under_way(project.git)
    base = repository.base_of(project.git, "HEAD")
    repository.exclude_artefacts(project.git, base)
    words, ahead = words_at(project, base), _ahead(project, base)
    with open_services(project, tracker, words, FanOut(), None) as services, services.journal.claim(item_id):
        workspace = services.place(item_id, "")
        if workspace.path.exists():
            raise Refused(
                f"{item_id} has a worktree already: {workspace.path}.",
                f"Go on with `capsule run {item_id}`, or remove it with `capsule clean {item_id}`.",
            )
        notes = (*ahead, *workspace.prepare(base))
        template = words.template("worklog.md.template")
        worklog = open_worklog(template, item, tracker.lineage(item), services.clock.now())
        workspace.write_worklog(services.redact(worklog))
        (project.root / ".capsule" / "logs").mkdir(parents=True, exist_ok=True)
        return workspace.path, workspace.branch, notes


def _refuse_to_prepare_many(tracker: Tracker, item: Item) -> None:
    """What holds others has no worktree of its own: each of these has."""
    from capsule.core.campaign import is_container, to_do

    if tracker.keeps_phases or not is_container(item):
        return
    left = to_do(tracker.under(item.id))
    hint = f"Name one of them: capsule prep {left[0].id}" if left else "There is nothing to work on in it."
    raise Refused(f"{item.id} is done by doing what it holds, so there is no worktree for it.", hint)


def _ahead(project: Project, base: str) -> tuple[str, ...]:
    from capsule.workspaces import repository

    main = repository.main_branch(project.git, project.settings.project.main)
    ahead = repository.ahead_of(project.git, base, main)
    return (f"HEAD holds commits that {main} lacks; they would be merged along.",) if ahead else ()
