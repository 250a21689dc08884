"""Show the state of the project around this directory, and the next command. Nothing is changed."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from capsule.app.inbox import questions_of
from capsule.commands.arguments import say
from capsule.commands.item_table import ADD
from capsule.commands.watching import JournalWatcher
from capsule.core.campaign import is_container
from capsule.core.errors import CapsuleError
from capsule.core.inbox import Question, needs_you
from capsule.core.item import Item
from capsule.core.outline import OutlineEntry, outline
from capsule.core.status import MissionStatus, count_statuses
from capsule.core.text import count
from capsule.project import Project, has_tracker, open_project
from capsule.reports.style import Style, clean
from capsule.system.git import NotARepository
from capsule.system.process import SupervisorClient
from capsule.wiring import agent_maker

_MOST = 5
_NO_PROJECT = """\
Capsule runs coding agents in a git repository, and merges what is proven. There is none around this directory.
  capsule demo                            shows it on a project of its own, in half a minute
  cd YOUR-PROJECT; capsule init --ask     begins in yours; `capsule --help` lists the commands"""


def arguments(_: argparse.ArgumentParser) -> None: ...


def run(_: argparse.Namespace) -> int:
    try:
        project = open_project(None)
    except NotARepository:
        say(_NO_PROJECT)
        return 0
    name = f"{clean(project.root.name)}, on {project.branch or 'no branch'}"
    if not has_tracker(project):
        say(f"{name}: nothing to work on yet.")
        _say_next("capsule init --ask", "asks three questions; `capsule doctor` checks what is here")
        return 0
    items = project.tracker.under("")
    board = JournalWatcher(project).look()
    entries = [e for e in outline(items, board, by_status=False) if e.item and not is_container(e.item)]
    counts: Counter[MissionStatus] = Counter(
        entry.status for entry in entries if entry.status is not MissionStatus.DONE
    )
    total = sum(counts.values())
    say(f"{name}: {count(total, 'open item')}{f': {count_statuses(counts)}' if counts else ''}")
    questions = questions_of(project, board)
    for line in _lines(entries, questions):
        say(line)
    command, what = _next(entries, questions, items)
    if command.startswith("capsule run") and (lacking := _missing_agent(project)):
        command, what = "capsule doctor", f"tells how to install the agent: {lacking}"
    _say_next(command, what)
    return 0


def _missing_agent(project: Project) -> str:
    """Say why the chosen agent cannot be started, without starting it; '' if it can."""
    try:
        agent_maker(project.settings, project.root, SupervisorClient(), None)("", "").check()
    except CapsuleError as fault:
        return clean(fault.message)
    return ""


def _lines(entries: Sequence[OutlineEntry], questions: Sequence[Question]) -> Iterator[str]:
    """List running missions, and what needs a person."""
    style = Style(sys.stdout)
    running = [entry for entry in entries if entry.status is MissionStatus.RUNNING]
    for entry in running[:_MOST]:
        phase = f", {clean(entry.phase)}" if entry.phase else ""
        yield f"  {entry.status.sign} {entry.key}  {clean(entry.title)} (running{phase})"
    if len(running) > _MOST:
        yield f"  and {len(running) - _MOST} more that run"
    if questions:
        yield style.paint("bold", needs_you(questions))
    for question in questions[:_MOST]:
        yield f"  {question.status.sign} {question.id}  {clean(question.title)} ({question.kind.words})"
    if len(questions) > _MOST:
        yield f"  and {len(questions) - _MOST} more: capsule questions"


def _next(entries: Sequence[OutlineEntry], questions: Sequence[Question], items: Sequence[Item]) -> tuple[str, str]:
    """Return the most helpful command, and its description."""
    by_status = {status: [each for each in entries if each.status is status] for status in MissionStatus}
    if questions:
        whose = questions[0].id if len(questions) == 1 else f"all {len(questions)}"
        return "capsule questions", f"shows {whose} in full, with the commands that answer"
    if by_status[MissionStatus.RUNNING]:
        return "capsule dashboard", "watches and controls them"
    if by_status[MissionStatus.STOPPED]:
        return f"capsule run {by_status[MissionStatus.STOPPED][0].key}", "resumes it where it was"
    if by_status[MissionStatus.READY]:
        return "capsule run", "works through what is ready; `capsule status` lists it"
    if by_status[MissionStatus.WAITING]:
        return "capsule explain", "explains what each item waits for"
    return ADD, "adds the first item" if not items else "adds one more"


def _say_next(command: str, what: str) -> None:
    say(f"next: {command}\n      {what}")
