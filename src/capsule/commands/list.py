"""List items that contain all the words: in id, title, status, phase, type, tag or description.

  capsule list
  capsule list login timeout
  capsule list --only status=new,tag=ui  as in `capsule status`
  capsule list --all pay                 also items that are done or closed
  capsule list --json | jq -r '.[].id'

`capsule status` also tells which missions are under way, and `capsule questions` what needs you.
Exit code: 0 listed, also where nothing matches; 2 usage, or the tracker cannot be read.
"""

from __future__ import annotations

import argparse
import sys

from capsule.commands.arguments import warn
from capsule.commands.item_table import (
    LIST,
    TREE,
    as_json,
    as_tree,
    conditions,
    has_words,
    listed,
    matches,
    nothing_yet,
    table_lines,
)
from capsule.core.item import Item, Status, as_shown
from capsule.core.text import count
from capsule.project import open_project
from capsule.reports.style import Style, clean, fitted, output_width


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="*", help="a word that must occur")
    parser.add_argument("--only", metavar="FIELD=VALUE[,...]", help="items of this kind, such as status=new,tag=ui")
    parser.add_argument("--all", action="store_true", help="also items that are done or closed")
    parser.add_argument("--json", action="store_true", help="a list of items, with all their fields")


def run(args: argparse.Namespace) -> int:
    wanted = conditions(args.only or "")
    tracker = open_project(args.project_dir).tracker
    known, closed = {item.id: item for item in tracker.under("")}, dict[str, str]()
    if args.all:
        gone = tracker.gone()
        known |= {name: Item(id=name, title=title, status=Status.DONE) for name, title, _ in gone}
        closed = {name: f"closed: {clean(why)}" for name, _, why in gone if why}
    open_ones = [item for item in known.values() if args.all or item.status is not Status.DONE]
    items = [item for item in open_ones if matches(item, wanted) and has_words(item, args.words)]
    warn(f"warning: {warning}" for warning in tracker.warnings)
    if args.json:
        print(as_json(as_shown(items)))
        return 0
    if not items:
        print(fitted("No items match." if open_ones else nothing_yet(tracker), sys.stdout))
        return 0
    in_a_list = tracker.traits.by_status
    rows = listed(as_shown(items), known) if in_a_list else as_tree(items, known)
    rows = [row._replace(why=closed.get(row.item.id, row.why)) for row in rows]
    table = table_lines(LIST if in_a_list else TREE, rows, Style(sys.stdout), output_width(sys.stdout))
    of = f" of {len(open_ones):,}" if len(items) < len(open_ones) else ""
    print("\n".join([*table, "", f"{len(items):,}{of} items" if of else count(len(items), "item")]))
    return 0
