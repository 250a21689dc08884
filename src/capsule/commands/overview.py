"""Show the state of the project around this directory, and the next command. Nothing is changed."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from capsule.app.inbox import questions_of
from capsule.app.planning import uncommitted_before
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
from capsule.workspaces.repository import dirty_paths

Advice = tuple[str, str]
"""A command, and what it does."""
_MOST = 5
_INIT = "capsule init --ask", "asks three questions; `capsule doctor` checks what is here"
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
        _say_next(*(_first_commit(project, "capsule init --ask") or _INIT))
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
    _say_next(*_next(project, entries, questions, began=bool(items or board.missions)))
    return 0


def _first_commit(project: Project, then: str) -> Advice | None:
    """Advise the first commit, if there is none yet and files to commit."""
    if project.git.resolve("HEAD") or not dirty_paths(project.git):
        return None
    return 'git add -A && git commit -m "First commit"', f"makes the commit that work starts from; then: {then}"


def _run(project: Project, item: Item | None, advice: Advice) -> Advice:
    """Advise what a run of this item needs first; this advice if it needs nothing."""
    try:
        agent_maker(project.settings, project.root, SupervisorClient(), None)("", "").check()
    except CapsuleError as fault:
        return "capsule doctor", f"says how to install the agent: {clean(fault.message)}"
    if first := _first_commit(project, advice[0]):
        return first
    if item and (dirty := uncommitted_before(project, item)):
        changes = f"{count(len(dirty), 'uncommitted change')}, such as {clean(dirty[0])}"
        return "git status", f"shows {changes}: commit first, or: {advice[0]} --allow-dirty"
    return advice


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


def _next(project: Project, entries: Sequence[OutlineEntry], questions: Sequence[Question], *, began: bool) -> Advice:
    """Advise the most helpful command."""
    by_status = {status: [each for each in entries if each.status is status] for status in MissionStatus}
    if questions:
        whose = questions[0].id if len(questions) == 1 else f"all {len(questions)}"
        return "capsule questions", f"shows {whose} in full, with the commands that answer"
    if by_status[MissionStatus.RUNNING]:
        return "capsule dashboard", "watches and controls them"
    stopped, ready = by_status[MissionStatus.STOPPED], by_status[MissionStatus.READY]
    if stopped:
        return _run(project, stopped[0].item, (f"capsule run {stopped[0].key}", "resumes it where it was"))
    if ready:
        return _run(project, ready[0].item, ("capsule run", "works through what is ready; `capsule status` lists it"))
    if by_status[MissionStatus.WAITING]:
        return "capsule explain", "explains what each item waits for"
    return ADD, "adds one more; `capsule report` shows what was done" if began else "adds the first item"


def _say_next(command: str, what: str) -> None:
    say(f"next: {command}\n      {what}")
