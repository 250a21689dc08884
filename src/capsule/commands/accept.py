"""Accept one refuted claim of a mission, with the reason; `capsule answer ID --accept CHECK` also lets it go on.

Capsule checked what an agent claims, and the claim does not hold: no test notices when the code is broken, say. If you
know better, accept it. Your reason is recorded, and shown with the mission, in its worklog and in every report. It
holds for that check on exactly that state of the files, and for nothing else: if they change, the check runs
again.
 `capsule show ID` lists the checks.

  capsule accept demo-1.1.2 demanded --because "The branch is only reached on Windows."
  capsule accept WRK-003 fit-for-main --because - < reason.md

Then go on with `capsule run ID`. An item of a backlog that was blocked by it is unblocked.
Exit code: 0 accepted; 1 nothing of that name is refuted, or there is no such item; 2 no reason is given; 3 it is
running.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import accept
from capsule.commands.arguments import commit_option, item_argument, say, text_of, warn
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("check", metavar="CHECK", help="the name of the check, such as demanded")
    parser.add_argument("--because", metavar="TEXT", required=True, help="the reason; - reads it from stdin")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    because = " ".join(text_of(args.because).split())
    done, left, warnings = accept(project, args.item, args.check, because, no_commit=args.no_commit)
    warn(warnings)
    say(f"{args.item}: accepted at {done.phase} that {done.claimed}, although {done.observed}.")
    for check in left:
        say(f'  {check} is refuted as well: capsule accept {args.item} {check} --because "..."')
    if not left:
        say(f"Go on with it: capsule run {args.item}")
    return 0
