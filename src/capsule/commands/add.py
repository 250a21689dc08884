"""Add an item to the tracker. A title is enough.

It works during a run, which then takes up the item too. In a backlog the item is new, and what you know of it helps the
triage; the backlog is committed, and nothing else of yours. --size, --complexity, --risk and --impact are for a
backlog. In beads the item is open; --type, --priority and --parent are for beads, and tags become labels.

  capsule add "Sort the list by name"
  capsule add "Fix the clock" --size small --risk low --impact high --tag ui --tag bug
  capsule add "Ship it" --depends-on WRK-003 --description - < notes.md
  capsule add "Validate fax numbers" --type task --priority 1 --parent demo-1.1
  capsule add - < ideas.txt               one item per line; bullets, numbers and empty lines are left out

Prints the new id and the title. Exit code: 0 added; 1 an item it depends on or belongs to is unknown, or the tracker
refuses it; 2 usage.
"""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from capsule.app.moves import LEVELS, TYPES, ItemDraft, add_item, add_items, title_of
from capsule.commands.arguments import ITEM_ID, commit_option, plain, say, text_of, warn
from capsule.core.errors import UsageError
from capsule.core.importing import without_marker
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="describe the change in one line; - reads titles from stdin")
    parser.add_argument("--description", metavar="TEXT", help="more about it; - reads it from stdin")
    for name, levels in LEVELS.items():
        spellings = [f"-{name[0]}"] * (name in ("size", "risk")) + [f"--{name}"]
        parser.add_argument(*spellings, metavar="LEVEL", help=f"{', '.join(levels)}, or its first letter (backlog)")
    parser.add_argument("--type", metavar="TYPE", help=f"{TYPES} (beads; default: task)")
    parser.add_argument("--priority", metavar="N", help="0 (most urgent) to 4 (beads; default: 2)")
    of = "the epic or feature it belongs to (beads)"
    parser.add_argument("--parent", metavar="ID", type=ITEM_ID, help=of)
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="may be given several times")
    first = "an item that must be done first"
    parser.add_argument("--depends-on", metavar="ID", type=ITEM_ID, action="append", default=[], help=first)
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    titles = _titles(args)
    draft = ItemDraft(
        title=titles[0],
        description=text_of(args.description),
        tags=tuple(filter(None, map(plain, args.tag))),
        depends_on=tuple(args.depends_on),
        type=plain(args.type or ""),
        priority=args.priority or "",
        parent=args.parent or "",
        **{name: getattr(args, name) or "" for name in LEVELS},
    )
    project = open_project(args.project_dir)
    if titles[1:] and project.tracker.traits.authoritative:  # one commit
        drafts = [replace(draft, title=title) for title in titles]
        names, warnings = add_items(project, drafts, no_commit=args.no_commit)
        warn(warnings)
        say("\n".join(f"{name}  {title}" for name, title in zip(names, titles, strict=True)))
        return 0
    for title in titles:
        name, warnings = add_item(project, replace(draft, title=title), no_commit=args.no_commit)
        warn(warnings)
        say(f"{name}  {title}")
    return 0


def _titles(args: argparse.Namespace) -> list[str]:
    """Return the title that was typed, or every line of stdin; all are checked before the first is added."""
    if args.title != "-":
        return [title_of(args.title)]
    if args.description == "-":
        raise UsageError("Titles and the description cannot both come from stdin.", "Write one of them as an argument.")
    titles = [title_of(without_marker(line)) for line in text_of("-", strict=True).splitlines() if line.strip()]
    if not titles:
        raise UsageError("Stdin has no titles.", "Write one title per line: capsule add - < ideas.txt")
    return titles
