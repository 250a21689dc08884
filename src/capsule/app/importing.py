"""Add many items at once, and leave out what the tracker knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from msgspec import convert

from capsule.app.moves import BEADS_FIELDS, LEVELS, ItemDraft, add_all, checked_draft
from capsule.core.errors import UsageError
from capsule.core.importing import Imported
from capsule.core.item import check_id
from capsule.core.project_log import same_title
from capsule.project import Project


class Entry(NamedTuple):
    """One entry of the list and its item."""

    draft: ItemDraft
    known_as: str = ""
    """The existing item with the same reference or title; '' for a new one."""
    left_out: tuple[str, ...] = ()
    """Its fields that the tracker lacks."""


def plan_import(project: Project, entries: Sequence[Imported]) -> list[Entry]:
    """Match each entry with an existing item; refuse all if one has a field that cannot be read."""
    tracker = project.tracker
    items = tracker.under("")
    by_title = {same_title(title): name for name, title, _ in tracker.gone()}
    by_title |= {same_title(item.title): item.id for item in items}
    by_reference = {item.origin: item.id for item in items if item.origin}
    return [*_planned(project, entries, by_title, by_reference)]


def _planned(
    project: Project, entries: Sequence[Imported], by_title: dict[str, str], by_reference: dict[str, str]
) -> Iterator[Entry]:
    for entry in entries:
        reference = entry.reference or f"capsule/import/{sha256(entry.title.encode()).hexdigest()[:16]}"
        lacking = {*BEADS_FIELDS, *LEVELS} - {*project.tracker.traits.fields}
        fields = {name: value for name, value in entry.fields.items() if name not in lacking}
        given = convert({**fields, "title": entry.title, "tags": entry.tags, "reference": reference}, ItemDraft)
        try:
            draft = checked_draft(project, given)
        except UsageError as fault:  # nobody typed an option
            raise UsageError(f"{entry.title}: {fault.message.removeprefix('--')}", fault.hint) from None
        if draft.parent:
            project.tracker.item(check_id(draft.parent))
        title = same_title(draft.title) or draft.title
        known = by_reference.get(reference) or by_title.get(title, "")
        by_title.setdefault(title, "an entry above")
        yield Entry(draft, known, tuple(name for name in entry.fields if name in lacking))


def import_all(project: Project, plan: Sequence[Entry], *, no_commit: bool) -> tuple[list[str], tuple[str, ...]]:
    """Add new entries; return their ids, '' for one that the tracker already had, and warnings."""
    return add_all(project, [entry.draft for entry in plan if not entry.known_as], no_commit=no_commit)
