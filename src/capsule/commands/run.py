"""Take an item through its workflow, to main.

Each phase is a fresh agent, each claim is checked against evidence, and main moves only to a tree on which the tests
were green. Without an item, it works through the queue until nothing is left to do, the cap is reached, or two items in
a row have used up their retries.

An epic, or any other item that holds others, is run by running what it holds, dependencies first. Each item starts from
the main that has the work of those before it, and is told what they did. A parent whose items are all done is closed.

Run it again after a failure, a crash or Ctrl-C: it resumes where it stopped, and keeps what was done.

  capsule run                                the queue: items under way, then ready, then new
  capsule run --cap 10                       at most ten agents from now on, retries included
  capsule run --jobs 4                       four missions at the same time; auto: as many as fit
  capsule run --triage-first                 assess new items first, so that urgent ones are known
  capsule run demo-1.1.1                     one task
  capsule run demo-1                         everything in the epic; stops at the first failure
  capsule run demo-1 --on-failure continue   continues with what does not depend on it
  capsule run demo-1.1.1 --agent scripted --max-retries 1
  capsule run demo-1.1.1 --take-over         take it over from another clone (merge.to: remote)
  capsule run demo-1.1.1 --dry-run           show prompts and commands, do nothing
  capsule run demo-1.1.1 --record bug.yaml   record what agents are told and do
  capsule run demo-1.1.1 --replay bug.yaml   replay it without any agent

On a terminal a live view shows the run (q stops it, d detaches, ? shows help); `run` again attaches to one that is
running. Otherwise progress goes to stderr and the closing summary to stdout. Exit code: 0 merged, or the queue ended
normally; 1 it failed or needs you (retries exhausted, conflict, red gate, a question), an item of the queue failed, or
an epic is not done; 2 an agent or a prerequisite failed; 3 the circuit breaker tripped, a budget is spent, the
provider's rate limit outlasted the wait, the remote cannot be reached, or another run or clone works on it; 130 stopped
by a signal.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from capsule.commands.arguments import ITEM_ID, agent_options, dirty_option, item_argument
from capsule.commands.output import output_options, wants_a_screen
from capsule.commands.request import flags_of, request_of
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="?")
    again = "the same as naming the item"
    parser.add_argument("--target", metavar="ID", type=ITEM_ID, action="append", default=[], help=again)
    agent_options(parser)
    parser.add_argument("--workflow", metavar="NAME", help="the workflow (default: by the item's kind)")
    verify = "strict: a refuted PASS goes back; warn: it is recorded; off: nothing is checked"
    parser.add_argument("--verify", metavar="HOW", help=verify)
    parser.add_argument("--dry-run", action="store_true", help="show prompts, commands and gate; do nothing")
    record = "record what agents are told and do; an existing recording is continued"
    parser.add_argument("--record", metavar="FILE", help=record)
    parser.add_argument("--replay", metavar="FILE", help="replay a recording instead of running agents")
    parser.add_argument("--cap", metavar="N", type=int, help="how many agents to start at most, retries included")
    jobs = "how many missions to run at the same time (a number, or auto)"
    parser.add_argument("--jobs", metavar="N", type=_number_or_word, help=jobs)
    first = "assess every new item of a backlog before working on the others"
    parser.add_argument("--triage-first", action="store_true", help=first)
    parser.add_argument(
        "--on-failure", choices=("stop", "continue"), help="for an epic: stop at the first item that fails, or continue"
    )
    parser.add_argument("--max-retries", metavar="N", type=int, help="how often each review may send work back")
    parser.add_argument("--base", metavar="REF", help="start from this commit instead of HEAD")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")
    parser.add_argument("--fresh", action="store_true", help="start over; what was there is salvaged first")
    parser.add_argument(
        "--rebase", action="store_true", help="rebuild the work on the new main and continue from there"
    )
    parser.add_argument("--take-over", action="store_true", help="work on it although another clone has claimed it")
    where = "where missions run: on this machine, or on those of a Temporal server (default: the setting `engine`)"
    parser.add_argument("--on", choices=("local", "temporal"), help=where)
    dirty_option(parser)
    output_options(parser)


def run(args: argparse.Namespace) -> int:
    request = request_of(args)
    project = open_project(args.project_dir, flags_of(args))
    way = "live_view" if wants_a_screen(args) else "dry_run" if args.dry_run else "headless"
    if project.settings.engine == "temporal" and not args.dry_run:
        way = "on_temporal"
    return int(import_module(f"capsule.commands.{way}").start(project, request, args))  # each loads what it needs


def _number_or_word(text: str) -> int | str:
    """Read a number; the settings check any other word."""
    return int(text) if text.removeprefix("-").isdecimal() else text
