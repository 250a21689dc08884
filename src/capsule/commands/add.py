"""Add an item to the tracker. A title is enough.

It works during a run, which then takes up the item too. In a backlog the item is new, and what you know of it helps the
triage; the backlog is committed, unless the tree has other uncommitted changes. --size, --complexity, --risk and
--impact are for a backlog. In beads the item is open; --type, --priority and --parent are for beads, and tags become
labels.

  capsule add "Sort the list by name"
  capsule add "Fix the clock" --size small --risk low --impact high --tag ui --tag bug
  capsule add "Ship it" --depends-on WRK-003 --description - < notes.md
  capsule add "Validate fax numbers" --type task --priority 1 --parent demo-1.1

Prints the new id and the title. Exit code: 0 added; 1 an item it depends on or belongs to is unknown, or the tracker
refuses it; 2 usage.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import LEVELS, TYPES, ItemDraft, add_item, title_of
from capsule.commands.arguments import ITEM_ID, commit_option, plain, text_of, warn
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="describe the change in one line")
    parser.add_argument("--description", metavar="TEXT", help="more about it; - reads it from stdin")
    for name, levels in LEVELS.items():
        parser.add_argument(f"--{name}", metavar="LEVEL", help=f"{', '.join(levels)} (backlog)")
    parser.add_argument("--type", metavar="TYPE", help=f"{TYPES} (beads; default: task)")
    parser.add_argument("--priority", metavar="N", help="0 (most urgent) to 4 (beads; default: 2)")
    of = "the epic or feature it belongs to (beads)"
    parser.add_argument("--parent", metavar="ID", type=ITEM_ID, help=of)
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="may be given several times")
    first = "an item that must be done first"
    parser.add_argument("--depends-on", metavar="ID", type=ITEM_ID, action="append", default=[], help=first)
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    draft = ItemDraft(
        title=title_of(args.title),
        description=text_of(args.description),
        tags=tuple(filter(None, map(plain, args.tag))),
        depends_on=tuple(args.depends_on),
        type=plain(args.type or ""),
        priority=args.priority or "",
        parent=args.parent or "",
        **{name: getattr(args, name) or "" for name in LEVELS},
    )
    project = open_project(args.project_dir)
    name, warnings = add_item(project, draft, no_commit=args.no_commit)
    warn(warnings)
    print(f"{name}  {draft.title}")
    return 0
