"""`capsule status`: the backlog at a glance."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from capsule.commands.arguments import project_option, terminal_width
from capsule.core.errors import UsageError
from capsule.core.item import Item, Status, as_shown

if TYPE_CHECKING:
    from capsule.reports.style import Style
    from capsule.wiring import Project

DESCRIPTION = """\
Show every item: what is in progress first, then what is blocked and why, what is ready (by impact, then age), and what
has still to be scoped, researched or triaged. Nothing is changed, so it is safe while a run is going.

  capsule status
  capsule status --only status=new,blocked,tag=ui     new or blocked ones, of those the ones with this tag
  capsule status --json | jq '.[] | select(.blocked)'

--only takes status, phase, type, tag, size, complexity, risk and impact.
Exit code: 0 shown; 2 usage, or the tracker cannot be read.
"""

HEADINGS = ("ID", "Status", "Phase", "Title", "Impact", "Size", "Risk")
TITLE = HEADINGS.index("Title")
NARROWEST_TITLE = 12
GAP = "  "
COLOURS = {Status.IN_PROGRESS: "green", Status.BLOCKED: "yellow", Status.NEW: "dim"}
FIELDS = ("status", "phase", "type", "tag", "size", "complexity", "risk", "impact")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a list of items, with all their fields")
    parser.add_argument("--only", metavar="FIELD=VALUE[,...]", help="items of this kind, such as status=new,tag=ui")
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.wiring import open_project, open_tracker

    wanted = _conditions(args.only or "")
    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    every = tracker.everything()
    items = [item for item in as_shown(every) if _suits(item, wanted)]
    for warning in tracker.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.json:
        import json

        print(json.dumps([_plain(item) for item in items], indent=2, ensure_ascii=False))
        return 0
    print("\n".join(_page(project, items, len(every), filtered=bool(wanted))))
    return 0


def _page(project: Project, items: Sequence[Item], all_of_them: int, *, filtered: bool) -> Iterator[str]:
    from capsule.reports.style import Style

    if not items:
        yield "Nothing here is of that kind." if filtered and all_of_them else NOTHING_YET
        return
    width = terminal_width()
    yield from _table(items, Style(sys.stdout), width)
    yield ""
    yield _counts(items, all_of_them)
    yield from _missions(project, {item.id for item in items})


NOTHING_YET = 'The backlog is empty. Put something into it: capsule add "Sort the list by name"'


# ---- which items


def _conditions(text: str) -> dict[str, set[str]]:
    """`status=new,blocked,tag=ui`: a value without a name belongs to the name before it."""
    found: dict[str, set[str]] = {}
    name = ""
    for part in filter(None, (part.strip() for part in text.split(","))):
        before, equals, value = part.rpartition("=")
        name = before.strip().lower() if equals else name
        _check_field(name, part)
        found.setdefault(name, set()).add(_checked(name, value.strip()))
    return found


def _check_field(name: str, part: str) -> None:
    if name in FIELDS:
        return
    from difflib import get_close_matches

    near = get_close_matches(name, FIELDS, 1)
    hint = f"Did you mean `{near[0]}`?" if near else f"It takes {', '.join(FIELDS)}, such as --only status=new."
    raise UsageError(f"--only does not know what to do with {part!a}.", hint)


def _checked(name: str, value: str) -> str:
    if name == "tag":
        return value
    known = [status.value for status in Status]
    if name == "status" and value.lower() not in known:
        from difflib import get_close_matches

        near = get_close_matches(value.lower(), known, 1)
        raise UsageError(f"There is no status {value!a}.", f"Did you mean `{near[0]}`?" if near else ", ".join(known))
    return value.lower()


def _suits(item: Item, wanted: dict[str, set[str]]) -> bool:
    return all(values & _values(item, name) for name, values in wanted.items())


def _values(item: Item, name: str) -> set[str]:
    if name == "tag":
        return set(item.tags)
    held = item if name in ("status", "phase", "type") else item.assessment
    return {str(getattr(held, name)).lower()}


# ---- for people


def _table(items: Sequence[Item], style: Style, width: int) -> Iterator[str]:
    from capsule.reports.style import clean
    from capsule.reports.table import column, fit, widest

    rows = [(item.id, item.status.value, clean(item.phase) or "-", clean(item.title), *_levels(item)) for item in items]
    widths = [widest(cells) for cells in zip(HEADINGS, *rows, strict=True)]
    room = width - sum(widths) + widths[TITLE] - len(GAP) * (len(widths) - 1)
    widths[TITLE] = min(widths[TITLE], max(room, NARROWEST_TITLE))
    indent = " " * sum(cell + len(GAP) for cell in widths[:TITLE])
    yield style.paint("bold", GAP.join(map(column, HEADINGS, widths)).rstrip())
    for item, row in zip(items, rows, strict=True):
        yield style.paint(COLOURS.get(item.status, ""), GAP.join(map(column, row, widths)).rstrip())
        if item.blocked:
            why = f"{item.blocked.kind}: {clean(item.blocked.reason)}"
            yield indent + fit(why, max(width - len(indent), NARROWEST_TITLE))


def _levels(item: Item) -> tuple[str, str, str]:
    levels = item.assessment
    return levels.impact or "-", levels.size or "-", levels.risk or "-"


def _counts(items: Sequence[Item], all_of_them: int) -> str:
    counts = Counter(item.status.value for item in items)
    shown = f"{len(items)} of {all_of_them}" if len(items) != all_of_them else str(all_of_them)
    return f"{shown} item{'' if all_of_them == 1 else 's'}: {', '.join(f'{n} {word}' for word, n in counts.items())}"


def _missions(project: Project, ids: set[str]) -> Iterator[str]:
    """What runs now, by its lock, and what was begun and is held by nobody."""
    from capsule.commands.moving import running, under_way

    pids = running(project, ids)
    for name, pid in pids.items():
        yield f"▶ {name} is running{f' (pid {pid})' if pid else ''}: capsule logs {name} -f"
    for name, state in under_way(project, ids - pids.keys()).items():
        if state.begun:
            yield f"‖ {name} was interrupted at {state.begun.phase}: capsule run {name}"


# ---- for programs


def _plain(value: Any) -> Any:
    """Structs with all their fields, also the empty ones."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value
