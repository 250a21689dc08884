"""Edit an item: title, description, levels, tags, priority, parent. `set` is the same.

Without an option title and description are opened in your editor. Fields that the tracker lacks are refused: size,
complexity, risk and impact belong to a backlog, type, priority and parent to the others. The item's mission reads the
change at its next phase; an item that is running is not changed.

  capsule edit WRK-003
  capsule edit WRK-003 --title "Sort by surname" --description - < notes.md
  capsule edit WRK-003 WRK-004 --impact high --tag ui --untag bug
  capsule edit demo-1.1.2 --priority 0 --parent demo-1.2

An empty value clears a field: --size "".
Exit code: 0 changed, or so already; 1 it is refused, or there is no such item; 2 usage; 3 it is running.
"""

from __future__ import annotations

import argparse
import os

from capsule.app.editing import Edit, edit
from capsule.app.items import Moved, find_item
from capsule.app.moves import LEVELS, TYPES
from capsule.commands.arguments import commit_option, plain, say, text_of, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.commands.editor import can_edit, edited
from capsule.core.errors import CapsuleError, UsageError
from capsule.project import Project, open_project
from capsule.reports.style import clean

_FIELDS = ("title", "type", "priority", "parent", *LEVELS)


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser)
    parser.add_argument("--title", metavar="TEXT", help="the change in one line")
    parser.add_argument("--description", metavar="TEXT", help="more about it; - reads it from stdin")
    for name, levels in LEVELS.items():
        parser.add_argument(f"--{name}", metavar="LEVEL", help=f"{', '.join(levels)}, or its first letter (backlog)")
    parser.add_argument("--type", metavar="TYPE", help=f"{TYPES} (beads)")
    parser.add_argument("--priority", metavar="N", help="0 (most urgent) to 4 (beads)")
    parser.add_argument("--parent", metavar="PARENT", help="the epic or feature it belongs to (beads)")
    more = "add a tag; may be given several times"
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help=more)
    parser.add_argument("--untag", metavar="TAG", action="append", default=[], help="remove a tag")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    wanted = Edit(
        description=None if args.description is None else text_of(args.description),
        tags=tuple(filter(None, map(plain, args.tag))),
        untag=tuple(map(plain, args.untag)),
        **{name: None if getattr(args, name) is None else plain(getattr(args, name)) for name in _FIELDS},
    )
    if len(set(args.item)) > 1 and (wanted.title is not None or wanted.description is not None):
        raise UsageError("Several items cannot have the same title or description.", "Edit them one by one.")
    project = open_project(args.project_dir)
    if not wanted.given:
        if len(set(args.item)) > 1 or not can_edit():
            raise UsageError("There is nothing to change.", 'Name a field: capsule edit ID --title "..." --impact high')
        wanted = _in_editor(project, args.item[0])
    return do_each(args.item, lambda item: tell(item, edit(project, item, wanted, no_commit=args.no_commit)))


def tell(item: str, moved: Moved | None) -> None:
    if moved is None:
        say(f"{item}: nothing to change.")
        return
    warn(moved.warnings)
    say(f"{item} is changed: {clean(moved.after.title)}")


def _in_editor(project: Project, item_id: str) -> Edit:
    """Open title and description in the editor: the first line is the title."""
    item = find_item(project.tracker, item_id)
    file = project.state_folder / f"edit-{os.getpid()}.md"
    text = plain(edited(file, f"# {item.title}\n\n{item.description}\n"))
    title, _, description = text.partition("\n")
    if not title.startswith("# "):
        cause = "The first line is not the title."
        raise CapsuleError(cause, f"It begins with `# `. What you wrote: {file}", exit_code=1)
    file.unlink(missing_ok=True)
    return Edit(title=title.removeprefix("# ").strip(), description=description.strip())
