"""`capsule run --dry-run`: show prompts, commands and gate; do nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from capsule.app.dry_run import preview, preview_campaign, preview_queue
from capsule.app.planning import RunRequest
from capsule.app.queue_plan import plan_campaign, plan_task, refuse_on_failure, runs_as_queue
from capsule.commands.arguments import say
from capsule.core.campaign import is_container
from capsule.project import Project


def start(project: Project, request: RunRequest, _: argparse.Namespace) -> int:
    """Describe what a run of the items or the queue would do."""
    if runs_as_queue(project, request):
        refuse_on_failure(request)
        say("\n".join(preview_queue(project, request)))
        return 0
    for item_id in request.items:
        say("\n".join(_described(project, item_id, request)))
    return 0


def _described(project: Project, item_id: str, request: RunRequest) -> Iterable[str]:
    item = project.tracker.item(item_id)
    if is_container(item):
        return preview_campaign(plan_campaign(project, item, request), project, request)
    return preview(plan_task(project, item_id, request), request.model)
