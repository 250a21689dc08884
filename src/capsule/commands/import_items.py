"""Add many items at once, from a file or from stdin.

It takes a Markdown list (an entry at the margin is a title, what is indented below it the description; `- [x]` is left
out), CSV with a column `title` (and description, tags, size, complexity, risk, impact, type, priority, parent, url), or
the JSON of `gh issue list`. Entries that the tracker already has, by reference or title, are skipped: the same list can
be imported again. Fields that the tracker lacks are left out, with a note. A backlog is changed by one commit.

  capsule import ideas.md --dry-run      the entries that it would add or skip
  capsule import ideas.md --tag q3
  capsule import export.csv
  gh issue list --json number,title,body,labels,url | capsule import -

Exit code: 0 added, or nothing is new; 1 a parent is unknown, or the tracker refuses it; 2 usage, or there are no items
in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from capsule.app.importing import Entry, import_all, plan_import
from capsule.commands.arguments import commit_option, plain, say, tell, text_of, warn
from capsule.commands.editor import text_of_file
from capsule.core.importing import read_items
from capsule.core.text import count
from capsule.project import open_project
from capsule.reports.style import clean

_LARGEST = 16 * 1024 * 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the list; - is stdin")
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="a tag for all of them")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be added")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    whole = text_of("-", _LARGEST, strict=True) if args.file == "-" else _text_in(Path(args.file))
    tags = tuple(filter(None, map(plain, args.tag)))
    entries = [replace(each, tags=(*each.tags, *tags)) for each in read_items(whole)]
    project = open_project(args.project_dir)
    plan = plan_import(project, entries)
    new = [entry for entry in plan if not entry.known_as]
    if left_out := dict.fromkeys(name for entry in plan for name in entry.left_out):
        this = project.tracker.traits.described.format(project.tracker.name)
        tell(f"note: {', '.join(left_out)} left out: {this}. {project.tracker.traits.fields_hint}")
    if args.dry_run:
        for entry in new:
            say(f"would add  {clean(entry.draft.title)}")
        _say_skipped(plan)
        say(f"{count(len(new), 'item')} would be added, {len(plan) - len(new)} skipped. Nothing was changed.")
        return 0
    names, warnings = import_all(project, plan, no_commit=args.no_commit)
    warn(warnings)
    for name, entry in zip(names, new, strict=True):
        say(f"{name}  {clean(entry.draft.title)}" if name else f"skipped  {clean(entry.draft.title)} (known)")
    _say_skipped(plan)
    added = sum(map(bool, names))
    say(f"{count(added, 'item')} added, {len(plan) - added} skipped.")
    return 0


def _text_in(file: Path) -> str:
    return plain(text_of_file(file, _LARGEST, strict=True))


def _say_skipped(plan: Sequence[Entry]) -> None:
    for entry in plan:
        if entry.known_as:
            say(f"skipped  {clean(entry.draft.title)} (known as {entry.known_as})")
