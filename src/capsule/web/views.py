"""The content of each page: from its path and the current project to parts with their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from capsule.actions import DashboardVerb, Details, available, target_of, target_of_none
from capsule.core.board import Board
from capsule.core.campaign import is_container
from capsule.core.errors import CapsuleError
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.inbox import Question
from capsule.core.item import Item
from capsule.core.merges import merge_records
from capsule.core.outline import OutlineEntry, matching
from capsule.core.progress import progress_on
from capsule.core.proven import proof_of
from capsule.core.status import MissionStatus, Tone
from capsule.pages.diff import File, files
from capsule.reports.board_lines import overview
from capsule.web.actions import Printed, WebActions
from capsule.web.forms import Field, Form, Values, command_line
from capsule.web.jobs import Job, Jobs
from capsule.web.pages import NAV, Page, Part
from capsule.web.reader import Reader, Snapshot, mission_key
from capsule.web.threads import Crew

MOST_QUESTIONS = 20
"""Shown in full on one page; the others are links."""
MOST_WORDS = 60_000
"""The most characters of all questions on one page."""
MOST_CARDS = 60
"""The most cards in one column of the board."""
MOST_ROWS = 150
MOST_RUNS = 40
MOST_LINES = 900
"""The most lines of a diff on one page, unless one file has more."""
COLUMNS = (
    MissionStatus.NEEDS_YOU,
    MissionStatus.FAILED,
    MissionStatus.RUNNING,
    MissionStatus.WAITING,
    MissionStatus.READY,
    MissionStatus.STOPPED,
    MissionStatus.DONE,
)
_ALWAYS = (MissionStatus.NEEDS_YOU, MissionStatus.RUNNING, MissionStatus.READY, MissionStatus.DONE)
"""Columns that are shown even if empty."""
_ANSWERS = ("unblock", "approve", "reopen")
"""Actions that an answer replaces."""
_KEYS = Page(title="Keyboard", nav="keys", parts=(Part(id="keys", template="web/keys.html", key=""),), is_live=False)
_OVER_A_RUN = "The journal has no such run any more."


class Views:
    def __init__(self, actions: WebActions, reader: Reader, jobs: Jobs) -> None:
        self._actions, self._reader, self._jobs = actions, reader, jobs
        self._crew = Crew("details", 4)
        self._details: dict[str, tuple[object, Details]] = {}
        self._plain: Mapping[str, Callable[[Snapshot], Page]] = {
            "": self._inbox,
            "board": self._board,
            "runs": self._runs,
            "merges": self._merges,
            "commands": self._commands,
            "keys": lambda _: _KEYS,
        }

    async def page(self, path: str, query: Mapping[str, str]) -> Page:
        """Return the page of a path, or the page for an unknown one."""
        now = await self._reader.snapshot()
        return self._framed(await self._found(now, path.split("/"), query), now)

    async def _found(self, now: Snapshot, path: Sequence[str], query: Mapping[str, str]) -> Page:
        match path:
            case [name] if name in self._plain:
                page = self._plain[name](now)
            case ["items"]:
                page = self._items(now, query.get("q", "")[:200], _number(query.get("from")))
            case ["run", stream]:
                page = self._run(now, stream)
            case ["command", verb]:
                page = self.command(verb, self._given(verb, query))
            case ["done", name]:
                page = self._done(name)
            case ["item", name]:
                page = self._item(now, name)
            case ["item", name, "changes"]:
                page = await self._changes(now, name, _number(query.get("from")))
            case ["item", name, "logs"]:
                page = await self._logs(now, name, query.get("show", ""))
            case ["item", name, "worklog"]:
                page = await self._worklog(now, name)
            case _:
                page = missing("There is no such page.")
        return page

    def framed(self, page: Page) -> Page:
        """Return a page made from a sent form, with the common parts."""
        return self._framed(page, self._reader.last)

    def _framed(self, page: Page, now: Snapshot) -> Page:
        """Add the common parts of every page: navigation and warnings."""
        counts = {"": len(now.questions), "runs": sum(run.running for run in now.board.runs)}
        counts["merges"] = len(now.board.queued)
        nav = Part(
            id="nav",
            template="web/nav.html",
            values={"entries": NAV, "current": page.nav, "counts": counts},
            key=(page.nav, *counts.values()),
        )
        trouble = Part(id="trouble", template="web/trouble.html", values={"faults": now.trouble}, key=now.trouble)
        return msgspec.structs.replace(page, parts=(nav, trouble, *page.parts), waiting=len(now.questions))

    # ---- the inbox

    def _inbox(self, now: Snapshot) -> Page:
        questions, told, length = now.questions, 0, 0
        for each in questions[:MOST_QUESTIONS]:
            length += len(each.asked)
            if told and length > MOST_WORDS:
                break
            told += 1
        values = {
            "questions": questions[:told],
            "others": questions[told:],
            "overview": overview(now.board),
            "running": now.board.running,
            "has_items": bool(now.items or now.board.missions),
        }
        part = Part(id="inbox", template="web/inbox.html", values=values, key=now.number)
        return Page(title=f"Needs you ({len(questions)})", nav="", parts=(part,))

    def question(self, name: str) -> Question | None:
        return next((each for each in self._reader.last.questions if each.id == name), None)

    # ---- items

    def _board(self, now: Snapshot) -> Page:
        columns = [
            (status, cards[:MOST_CARDS], max(0, len(cards) - MOST_CARDS))
            for status, cards in _by_status(now).items()
            if cards or status in _ALWAYS
        ]
        part = Part(
            id="board",
            template="web/board.html",
            values={"columns": columns, "verbs": self._general(now)},
            key=now.number,
        )
        return Page(title="Board", nav="board", parts=(part,))

    def _items(self, now: Snapshot, words: str, first: int) -> Page:
        entries = now.entries
        found = [entry for entry in (matching(entries, words) if words.strip() else entries) if entry.item]
        known = {entry.key for entry in entries}
        gone = [view for view in now.board.missions if view.mission not in known and not view.parent]
        past = [view for view in gone if _has(view, words)]
        rows = [*found, *past]
        values = {
            "words": words,
            "rows": rows[first : first + MOST_ROWS],
            "first": first,
            "all": len(rows),
            "step": MOST_ROWS,
            "missions": now.missions,
            "tracker": now.listing.tracker,
            "base": int(now.listing.by_status),
            "verbs": self._general(now),
        }
        search = Part(id="search", template="web/search.html", values={"words": words}, key=words)
        part = Part(id="items", template="web/items.html", values=values, key=(now.number, words, first))
        return Page(title="Items", nav="items", parts=(search, part))

    def _item(self, now: Snapshot, name: str) -> Page:
        view, item = now.missions.get(name), now.items.get(name)
        if view is None and item is None:
            return missing(f"There is no item or mission {name}.")
        key: list[object] = [item, mission_key(view) if view else None, self.question(name) is not None]
        if view and view.running:
            key.append(view.as_of[:18])  # redraw running work every ten seconds
        run = next((each for each in now.board.runs if each.running and name in each.missions), None)
        values: dict[str, Any] = {
            "id": name,
            "item": item,
            "view": view,
            "question": self.question(name),
            "run": run,
            "verbs": self._verbs(now, name),
            "entry": next((entry for entry in now.entries if entry.key == name), None),
        }
        told = {"view": view, "proof": proof_of(view) if view else None}
        parts = (  # all of them from the beginning: a page that is open has a place for a mission that begins
            Part(id="item", template="web/item.html", values=values, key=(*key, run is not None)),
            Part(id="mission", template="web/mission.html", values=told, key=tuple(key)),
            Part(id="about", template="web/about.html", values={"item": item}, key=item),
        )
        title = view.title if view else item.title if item else ""
        return Page(title=f"{name}: {title}", nav="items", parts=parts)

    def _verbs(self, now: Snapshot, name: str) -> list[DashboardVerb]:
        """Return the actions that fit an item, but those that its question offers with its answers."""
        question = self.question(name)
        answered = {*_ANSWERS, *(answer.verb for answer in question.answers)} if question else set()
        fitting = available(target_of(now.board, now.listing, name))
        return [verb for verb in fitting if verb.of_item and verb.word not in answered]

    @staticmethod
    def _general(now: Snapshot) -> list[DashboardVerb]:
        """Return the actions that are about no item."""
        return [verb for verb in available(target_of_none(now.listing)) if not verb.of_item]

    async def _changes(self, now: Snapshot, name: str, first: int) -> Page:
        view = now.missions.get(name)
        if view is None:
            return missing(f"{name} has no mission, so nothing was changed for it.")
        try:
            key, details = await self._detailed(view)
        except CapsuleError as fault:
            return missing(f"{fault.message} {fault.hint}")
        known, after = _of_one_page(files(details.diff), first)
        values = {"view": view, "details": details, "files": known, "first": first, "after": after}
        part = Part(id="changes", template="web/changes.html", values=values, key=(key, first))
        return Page(title=f"Changes of {name}", nav="items", parts=(_tabs(name, "changes"), part))

    async def _worklog(self, now: Snapshot, name: str) -> Page:
        view = now.missions.get(name)
        if view is None:
            return missing(f"{name} has no mission, and no worklog.")
        try:
            key, details = await self._detailed(view)
        except CapsuleError as fault:
            return missing(f"{fault.message} {fault.hint}")
        part = Part(id="worklog", template="web/worklog.html", values={"text": details.worklog}, key=key)
        return Page(title=f"Worklog of {name}", nav="items", parts=(_tabs(name, "worklog"), part))

    async def _logs(self, now: Snapshot, name: str, chosen: str) -> Page:
        view = now.missions.get(name)
        if view is None:
            return missing(f"{name} has no mission, and no agent has printed anything.")
        try:
            outputs: Sequence[Printed] = await self._crew.do(lambda: self._actions.printed(name))
        except CapsuleError as fault:
            return missing(f"{fault.message} {fault.hint}")
        number = _number(chosen) if 0 < _number(chosen) <= len(outputs) else len(outputs)
        values = {
            "view": view,
            "outputs": outputs,
            "number": number,
            "follows": not chosen,
            "shown": outputs[number - 1] if outputs else None,
        }
        part = Part(id="logs", template="web/logs.html", values=values, key=(outputs, number, view.running))
        return Page(title=f"Output of the agents of {name}", nav="items", parts=(_tabs(name, "logs"), part))

    async def _detailed(self, view: MissionSummary) -> tuple[object, Details]:
        """Read a mission's files, again only after a change."""
        name, key = view.mission, mission_key(view)
        known = self._details.get(name)
        if known is None or known[0] != key:
            known = key, await self._crew.do(lambda: self._actions.dashboard.details(name))
            self._details = {name: known}  # one is enough; viewers of several wait a little
        return known

    # ---- runs and merges

    def _runs(self, now: Snapshot) -> Page:
        runs = [(run, progress_on(now.board, run)) for run in now.board.runs[:MOST_RUNS]]
        left = len(now.board.runs) - len(runs)
        part = Part(id="runs", template="web/runs.html", values={"runs": runs, "left": left}, key=now.number)
        return Page(title="Runs", nav="runs", parts=(part,))

    def _run(self, now: Snapshot, stream: str) -> Page:
        run = next((each for each in now.board.runs if each.stream == stream), None)
        if run is None:
            return missing(_OVER_A_RUN)
        named = {*run.all_missions, *run.progress}
        missions = [view for view in now.board.missions if view.mission in named]
        oldest_first = sorted(missions, key=lambda view: (view.began, view.mission))
        values = {
            "run": run,
            "missions": oldest_first,
            "progress": progress_on(now.board, run),
            "outcomes": list(_outcomes(run)),
        }
        key = (now.number, run.as_of[:18] if run.running else "")
        part = Part(id="run", template="web/run.html", values=values, key=key)
        return Page(title=f"Run: {run.name}", nav="runs", parts=(part,))

    def _merges(self, now: Snapshot) -> Page:
        board = now.board
        records = {each.branch: each for each in merge_records([q.train for q in board.merges], board.missions)}
        queues = {each.branch: each for each in board.merges}
        branches = [(branch, queues.get(branch), records.get(branch)) for branch in sorted({*records, *queues})]
        part = Part(id="merges", template="web/merges.html", values={"branches": branches}, key=now.number)
        return Page(title="Merge queue", nav="merges", parts=(part,))

    # ---- commands

    def _commands(self, _now: Snapshot) -> Page:
        groups: dict[str, list[Form]] = {}
        for form in self._actions.forms.values():
            groups.setdefault(form.group, []).append(form)
        jobs = self._jobs.last
        key = tuple((job.name, job.result is None) for job in jobs)
        last = Part(id="jobs", template="web/jobs.html", values={"jobs": jobs[:20]}, key=key)
        listed = Part(id="commands", template="web/commands.html", values={"groups": groups}, key="")
        return Page(title="Commands", nav="commands", parts=(last, listed))

    def _given(self, verb: str, query: Mapping[str, str]) -> Values:
        """Return the values in a link: `item` is the command's item, under any field name."""
        form = self._actions.forms.get(verb)
        about = next((field.name for field in form.fields if field.is_item and not field.option), "") if form else ""
        return {about if name == "item" and about else name: [value] for name, value in query.items()}

    def command(self, verb: str, values: Values, fault: str = "", line: str = "") -> Page:
        """Return the prefilled form of a command; `line` is the resulting command line."""
        form = self._actions.forms.get(verb)
        if form is None:
            return missing(f"There is no command {verb} here.")
        given = {name: "\n".join(texts) for name, texts in values.items()}
        about = next((given.get(field.name, "") for field in form.fields if field.is_item), "")
        last = self._reader.last
        has = _present(last.items.get(about), last.listing.edits) if verb == "edit" else {}
        shown = {"form": form, "given": given, "has": has, "fault": fault, "line": line or _template(form, given)}
        part = Part(
            id="command", template="web/command.html", values=shown, key=(verb, tuple(given.items()), fault, line)
        )
        return Page(title=f"capsule {verb}", nav="commands", parts=(part,), is_live=False, status=400 if fault else 200)

    def answer(self, question: Question, verb: str, text: str, fault: str = "", line: str = "") -> Page:
        """Return one question with a prefilled answer."""
        shown = {"each": question, "verb": verb, "text": text, "fault": fault, "line": line}
        part = Part(id="question", template="web/one_question.html", values=shown)
        return Page(title=question.heading, nav="", parts=(part,), is_live=False, status=400 if fault else 200)

    def _done(self, name: str) -> Page:
        job: Job | None = self._jobs.job(name)
        if job is None:
            return missing("This command is forgotten: only the last ones are kept.")
        about = next((word for word in job.words[1:] if word in self._reader.last.items), "")
        key = (job.pid, job.result is None)
        part = Part(id="done", template="web/done.html", values={"job": job, "about": about}, key=key)
        return Page(title=job.words[0], nav="commands", parts=(part,))


def _of_one_page(known: Sequence[File], first: int) -> tuple[Sequence[File], int]:
    """Return the files that fit on a page from the first one on, and the number of the next one; 0: none."""
    lines, number = 0, first
    for number, file in enumerate(known[first:], first):
        lines += len(file.lines)
        if lines > MOST_LINES and number > first:
            return known[first:number], number
    return known[first:], 0


def missing(words: str, status: int = 404) -> Page:
    part = Part(id="missing", template="web/missing.html", values={"words": words})
    title = "Not found" if status == 404 else "Refused"
    return Page(title=title, nav="none", parts=(part,), status=status, is_live=False)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 8 else 0


def _tabs(name: str, current: str) -> Part:
    return Part(id="tabs", template="web/tabs.html", values={"id": name, "current": current}, key=(name, current))


def _by_status(now: Snapshot) -> dict[MissionStatus, list[tuple[str, str, OutlineEntry | None, MissionSummary | None]]]:
    """Return items by status; finished ones last, the newest first."""
    columns: dict[MissionStatus, list[tuple[str, str, OutlineEntry | None, MissionSummary | None]]] = {
        status: [] for status in COLUMNS
    }
    shown = set()
    for entry in now.entries:
        if entry.item and not is_container(entry.item):
            shown.add(entry.key)
            columns[entry.status].append((entry.key, entry.title, entry, now.missions.get(entry.key)))
    for view in now.board.missions:
        if view.mission not in shown and not view.parent:
            columns[view.status].append((view.mission, view.title, None, view))
    for cards in columns.values():
        cards.sort(key=lambda card: card[3].last if card[3] else "", reverse=True)
    return columns


def _has(view: MissionSummary, words: str) -> bool:
    text = f"{view.mission} {view.title} {view.status.words} {view.phase} {view.workflow}".lower()
    return all(word in text for word in words.lower().split())


def _outcomes(run: RunSummary) -> Iterator[tuple[str, Tone, Mapping[str, str]]]:
    ended = run.ended
    if not ended:
        return
    for what, tone, items in (
        ("done", Tone.GOOD, dict.fromkeys(ended.done, "")),
        ("needs you", Tone.WARN, ended.blocked),
        ("failed", Tone.BAD, ended.failed),
        ("not started", Tone.QUIET, ended.waiting),
        ("follow-ups", Tone.QUIET, dict.fromkeys(ended.follow_ups, "")),
    ):
        if items:
            yield what, tone, items


def _present(item: Item | None, names: Sequence[str]) -> dict[str, str]:
    """Return the values that an item has now, of the fields that can be changed."""
    holders = (item.assessment, item) if item else ()
    found = {name: next((getattr(each, name) for each in holders if hasattr(each, name)), "") for name in names}
    return {name: str(value) for name, value in found.items() if value}


def _template(form: Form, given: Mapping[str, str]) -> str:
    """Return the command to type with its known values, and the names of the missing ones."""
    words = [form.verb]
    for field in form.fields:
        if field.required or given.get(field.name):
            words += [field.option] if field.option else []
            words.append(_placeholder(field) if field.stdin else given.get(field.name) or _placeholder(field))
    return command_line(words).replace("'…'", '"…"')


def _placeholder(field: Field) -> str:
    if field.stdin:
        return "-"
    return "ID" if field.is_item else "…" if field.option else field.name.upper()


def board_news(before: Board, after: Board) -> list[str]:
    """Describe changed missions in a few words, for screen readers."""
    known = {view.mission: view.status for view in before.missions}
    return [
        f"{view.mission}: {view.status.words}"
        for view in after.missions
        if not view.parent and known.get(view.mission) is not view.status
    ]
