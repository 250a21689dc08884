"""Answer anything that needs you; a run under way continues with the item at once.

Text answers a question; a failed item tries again with it. Other options approve a decision (--approve), accept a
refuted claim (--accept), resume an item without text (--retry), or close it (--close). `capsule questions` names the
answers that each accepts.

  capsule answer WRK-003 "Use the second API; the first is being retired."
  capsule answer WRK-003 --notes - < answer.md
  capsule answer WRK-003 WRK-004 --approve
  capsule answer demo-1.1.2 --accept demanded --because "only on Windows"
  capsule answer demo-1.1.3 --retry
  capsule answer WRK-005 --close "the customer has left"
  capsule answer                         all open questions, in your editor
  capsule questions --form > answers.md  the same as a file
  capsule answer --file answers.md       the answers that you wrote there

A section of such a form that you leave empty is left alone. The last word is the answer unless it looks like an id.
With IDs, --file has the answer for each of them. Every ID is looked up before anything is changed. In a section of the
form, `approve`, `retry`, `accept: the reason` and `close: the reason` do what these options do.

Exit code: 0 answered, or nothing needs you; 1 an item does not need you or cannot be answered so; 2 usage; 3 it is
running.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from capsule.app.answers import AcceptedClaim, ClosedItem, Given, Reply, fitting, give, reply_in_words
from capsule.commands import complete, unblock
from capsule.commands.arguments import ITEM_ID, commit_option, plain, say, text_of, warn
from capsule.commands.each_item import do_each, ids_and_words
from capsule.commands.editor import can_edit, edited, text_of_file
from capsule.commands.questions import open_questions
from capsule.core.answer_form import read_form, render_form
from capsule.core.errors import CapsuleError, UsageError
from capsule.core.inbox import Question
from capsule.project import Project, open_project

_WAYS = ("notes", "file", "approve", "retry", "accept", "close")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "item", metavar="ID", type=ITEM_ID, nargs="*", help="ids of items; the last word may be the answer"
    )
    parser.add_argument("--notes", metavar="TEXT", help="the answer; - reads it from stdin")
    parser.add_argument("--file", metavar="FILE", help="the file with the answer, or with a form; - is stdin")
    parser.add_argument("--all", action="store_true", help="all open questions, in your editor")
    parser.add_argument("--approve", action="store_true", help="approve a decision; with optional notes")
    parser.add_argument("--retry", action="store_true", help="resume it; with optional notes")
    parser.add_argument("--accept", metavar="CHECK", help="accept the claim that this check refutes")
    parser.add_argument("--because", metavar="TEXT", help="the reason to accept it; - reads it from stdin")
    parser.add_argument("--close", metavar="REASON", help="close it, as it will not be done; - reads it from stdin")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    ids, words = ids_and_words(args.item)
    reply = _reply(args, words)
    if args.all and ids:
        raise UsageError("--all is for every open question, and some are named.", "Leave out --all, or the IDs.")
    if not ids and reply:
        how = {"try-again": "--retry", "approve": "--approve"}.get(reply.verb, '--notes "..."')
        raise UsageError("No item is named.", f"Name it: capsule answer ID {how}")
    project = open_project(args.project_dir)
    questions = open_questions(project, list(dict.fromkeys(ids)))
    if reply:
        replies = {question.id: fitting(question, reply) for question in questions}
    elif args.file and ids:
        text = _file(args.file)
        replies = {question.id: reply_in_words(question, text) for question in questions}
    elif args.file:
        replies = _of_form(questions, _file(args.file))
    elif not questions:
        say("Nothing needs you.")
        return 0
    else:
        return _in_editor(project, questions, named=bool(ids), no_commit=args.no_commit)
    return _give_all(project, replies, no_commit=args.no_commit)


def _reply(args: argparse.Namespace, words: str) -> Reply | None:
    """Return the reply in the options; None if the answer is in a file, or still to be written."""
    given = [f"--{name}" for name in _WAYS if getattr(args, name) not in (None, False)]
    if words and args.notes is not None:
        raise UsageError("There are two answers: one as a word, one with --notes.", "Leave out one of them.")
    ways = [name for name in given if name not in ("--notes", "--file")]
    if len(ways) > 1 or (args.file and len(given) > 1) or (args.file and words):
        both = " and ".join([*given, *(["an answer"] if words else [])])
        raise UsageError(f"{both} exclude each other.", "Leave out one of them.")
    if bool(args.accept) != bool(args.because):
        cause = "--accept needs the reason." if args.accept else "--because is for --accept."
        raise UsageError(cause, 'capsule answer ID --accept CHECK --because "..."')
    if ways and ways[0] in ("--accept", "--close") and (words or args.notes):
        raise UsageError(f"{ways[0]} takes no notes.", "Put everything into the reason.")
    text = words or text_of(args.notes)
    if args.accept:
        return Reply("accept", text_of(args.because), args.accept)
    if args.close is not None:
        return Reply("close", text_of(args.close))
    if args.approve or args.retry:
        return Reply("approve" if args.approve else "try-again", text)
    if args.notes is not None and not text:
        raise UsageError("The answer is empty.", "Resume it without text: capsule answer ID --retry")
    return Reply("text", text) if text else None


def _file(name: str) -> str:
    text = plain(text_of("-") if name == "-" else text_of_file(Path(name)))
    if not text:
        raise UsageError(f"{'Stdin' if name == '-' else name} is empty.", "`capsule questions --form` prints a form.")
    return text


def _of_form(questions: Sequence[Question], text: str) -> dict[str, Reply]:
    """Return the replies of a form; refuse the whole form if one reply is invalid."""
    said, known = read_form(text), {question.id: question for question in questions}
    unknown = [item for item in said if item not in known]
    if unknown:
        cause = f"The form has answers for items that do not need you: {', '.join(unknown)}."
        raise CapsuleError(cause, "`capsule questions` lists those that do. Nothing was changed.", exit_code=1)
    return {item: reply_in_words(known[item], answer) for item, answer in said.items()}


def _in_editor(project: Project, questions: Sequence[Question], *, named: bool, no_commit: bool) -> int:
    """Ask in the editor; keep the text until every answer is given."""
    if not can_edit():
        hint = questions[0].answers[0].command if named else "capsule questions --form > answers.md"
        raise UsageError("No answer is given, and there is no terminal to write one on.", hint)
    file = project.state_folder / f"answers-{os.getpid()}.md"
    text = plain(edited(file, render_form(questions)))
    try:
        code = _give_all(project, _of_form(questions, text), no_commit=no_commit)
    except CapsuleError as fault:
        fault.hint = f"{fault.hint} Your answers: capsule answer --file {file}"
        raise
    if code:
        say(f"Your answers are kept: {file}")
    else:
        file.unlink(missing_ok=True)
    return code


def _give_all(project: Project, replies: Mapping[str, Reply], *, no_commit: bool) -> int:
    if not replies:
        say("No section is filled in: nothing was changed.")
        return 0
    return do_each(
        [*replies], lambda item: _tell(item, replies[item], give(project, item, replies[item], no_commit=no_commit))
    )


def _tell(item: str, reply: Reply, given: Given) -> None:
    if isinstance(given, ClosedItem):
        complete.report(given, "closed")
    elif isinstance(given, AcceptedClaim):
        accepted(item, given)
    else:
        unblock.report(given, reply.text)


def accepted(item: str, given: AcceptedClaim) -> None:
    warn(given.warnings)
    say(f"{item}: accepted at {given.event.phase} that {given.event.claimed}, although {given.event.observed}.")
    for check in given.left:
        say(f'  {check} is refuted as well: capsule answer {item} --accept {check} --because "..."')
    if not given.left:
        say(f"{given.taken_up_by} goes on with it." if given.taken_up_by else f"Go on with it: capsule run {item}")
