"""List what needs you, with all that you need to answer.

That is questions of agents, decisions above a guardrail, reviews without progress, refuted claims that you may accept,
conflicts, red gates, and items without retries: each with the work so far, its cost, the evidence, the command that
shows the changes, and those that answer it. The oldest comes first. Nothing is changed, so it is safe during a run.

  capsule questions
  capsule questions WRK-003
  capsule questions --json | jq -r '.[].id'
  capsule questions --form > answers.md  for `capsule answer --file answers.md`

Answer with `capsule answer`.
Exit code: 0 shown, also where nothing needs you; 1 a named item does not need you, or there is no such item.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from capsule.app.inbox import questions_of
from capsule.app.items import find_item
from capsule.commands.arguments import item_argument, warn
from capsule.commands.watching import JournalWatcher, MissionReader
from capsule.core.answer_form import render_form
from capsule.core.board import Board, gather_board
from capsule.core.errors import CapsuleError
from capsule.core.inbox import Question
from capsule.core.item import status_and_phase
from capsule.core.state import children_of
from capsule.project import Project, open_project
from capsule.reports.questions import question_facts, question_lines
from capsule.reports.style import Style, clean, output_width
from capsule.system.clock import SystemClock


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="*")
    parser.add_argument("--form", action="store_true", help="a form for `capsule answer --file`, in Markdown")
    parser.add_argument("--json", action="store_true", help="a list of questions, with all details")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    questions = open_questions(project, list(dict.fromkeys(args.item)))
    warn(f"warning: {warning}" for warning in project.tracker.warnings)
    if args.form:
        print(render_form(questions))
        return 0
    if args.json:
        facts = [question_facts(question) for question in questions]
        print(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())
        return 0
    now = SystemClock().now()
    print("\n".join(question_lines(questions, now, Style(sys.stdout), output_width(sys.stdout))))
    return 0


def open_questions(project: Project, ids: Sequence[str] = ()) -> tuple[Question, ...]:
    """Read what needs you, or only of these items, in this order; refuse an item that does not need you."""
    if not ids:
        return questions_of(project, JournalWatcher(project).look())
    with MissionReader(project) as reader:
        board = _board_of(reader, ids)
    known = {question.id: question for question in questions_of(project, board)}
    for item_id in ids:
        if item_id not in known:
            view = board.mission(item_id)
            stands = view.sentence if view and not view.over else status_and_phase(find_item(project.tracker, item_id))
            hint = "`capsule questions` lists what needs you."
            raise CapsuleError(f"{item_id} does not need you: it is {clean(stands)}.", hint, exit_code=1)
    return tuple(known[item_id] for item_id in ids)


def _board_of(reader: MissionReader, ids: Sequence[str]) -> Board:
    """Read only these missions and their children."""
    now = SystemClock().now()
    found = {name for name in ids if reader.history(name).state.started}
    for name in [*found]:
        found |= {
            child.mission for child in children_of(reader.history(name).state, lambda one: reader.history(one).state)
        }
    return gather_board([reader.summary(name, now) for name in sorted(found)], (), now)
