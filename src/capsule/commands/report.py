"""`capsule report`: what missions came to, as a page, as Markdown or as JSON."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.arguments import ITEM_ID, project_option
from capsule.core.errors import Refused
from capsule.core.item import check_id

if TYPE_CHECKING:
    from capsule.core.run_account import RunAccount

DESCRIPTION = """\
Tell what missions came to: who ran when, for how long and at which attempt; what agents said, and beside it what
Capsule checked; feedback, cost, and what was changed. Of several missions also the totals: how many were merged, how
many passed at first, retries, money and time. An epic or a feature stands for what it holds; without an ID it is every
mission.

  capsule report demo-1.1.2                        Markdown, on stdout
  capsule report --html report.html                one page that needs no network; its path is printed
  capsule report --since 2d --json | jq .totals
  capsule report --run queue                       the last run of the queue
  capsule report --run demo-1                      the last run of that campaign

Nothing is changed, so it is safe while missions run: what is under way is told as it stands now. What nobody has
reported, such as the cost of some agents, is unknown, and never counted as zero.

Exit code: 0 told, also where there is nothing to tell yet, 1 there is no such mission or run.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "items", metavar="ID", type=ITEM_ID, nargs="*", help="missions, or epics and features that hold some"
    )
    project_option(parser)
    parser.add_argument("--run", metavar="NAME", help="the missions of one run: queue, or what `capsule run` was given")
    parser.add_argument("--since", metavar="WHEN", help="only what happened since: 30m, 12h, 2d, 1w, or a date (UTC)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", help="write one HTML page; - is stdout")
    form.add_argument("--format", choices=("markdown", "html", "json"), default="markdown", help="what to print")
    form.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    from capsule.commands.report_gather import Wanted, gather
    from capsule.project import open_project

    wanted = Wanted(tuple(check_id(name) for name in args.items), args.run or "", args.since or "")
    file = Path(args.html) if args.html not in (None, "-") else None
    if file:
        _refuse_what_is_no_file(file)
    account = gather(open_project(args.project_dir), wanted)
    form = "json" if args.json else "html" if args.html else args.format
    text = _rendered(account, form)
    if file is None:
        sys.stdout.write(text)
        return 0
    from capsule.system.files import write_atomically

    write_atomically(file, text)
    print(file.absolute())
    return 0


def _refuse_what_is_no_file(file: Path) -> None:
    """Before any work is done: what is there may be somebody's, and a link leads elsewhere."""
    if file.is_symlink():
        raise Refused(f"{file} is a symbolic link; left alone.", "Name the file itself, or - for stdout.")
    if file.is_dir():
        raise Refused(f"{file} is a directory.", f"Name a file in it: --html {os.path.join(file, 'report.html')}")  # noqa: PTH118
    if file.exists() and not file.is_file():
        raise Refused(f"{file} is not a regular file; left alone.", "Name another file, or - for stdout.")


def _rendered(account: RunAccount, form: str) -> str:
    if form == "json":
        import json

        from capsule.reports.account_facts import facts

        return json.dumps(facts(account), indent=2) + "\n"
    if form == "html":
        from capsule.reports.html import page as told
    else:
        from capsule.reports.markdown import markdown as told
    return told(account).encode(errors="replace").decode()
