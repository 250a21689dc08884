"""Issues on GitHub, through its own program, `gh`.

An item is an issue with the labels, milestone and assignee that the settings ask for. Its status is a label too, or the
person it is assigned to. Its dependencies and its parent are lines of its body (`Depends on #12`, `Part of #3`), and a
task list of issues (`- [ ] #12`) holds them.

Open issues are listed without a filter, and filtered here: asked for a label, GitHub answers from its search index,
which learns of a change some seconds after it is made. The current state of one issue is read from the issue itself.

Everybody can write an issue and, in their own, change every word at any time. A label is set by people who may triage;
so by default only labelled issues are items. Their words are data, which no shell sees; what GitHub does not show, in a
comment of HTML, is left out.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from capsule.core.errors import Refused, SettingsError, TrackerError, UnknownItem
from capsule.core.item import HELD, Blocked, Item, ItemValues, NewItem, Status, check_id, with_holders, without_findings
from capsule.core.text import cleaned
from capsule.core.tracker_traits import TrackerTraits
from capsule.settings import GitHubOptions
from capsule.system.lock import held
from capsule.trackers import BaseTracker, cannot_change, unknown
from capsule.trackers._gh import Gh, GhAnswer, Patience

_T = TypeVar("_T")

PREFIX = "GH-"
MOST_OPEN = 1000
MOST_CLOSED = 200
FIELDS = "number,title,body,state,labels,assignees,milestone,createdAt,updatedAt,closedAt,url"
LOCK_WAIT = 120.0

TYPES = {"bug": "bug", "epic": "epic", "enhancement": "feature", "documentation": "docs"}
PRIORITIES = {f"P{number}": number for number in range(5)}
USUAL_PRIORITY = 2
EDITS = ("title", "description", "type", "priority", "tags", "status")
"""What can be changed from here: what an issue depends on, or is part of, is said in its own words."""

_LONGEST_TITLE = 256
_LONGEST_TEXT = 60_000
"""In characters; GitHub takes 65,536."""
_LONGEST_BYTES = 120_000
"""The length of an argument is limited."""
_MOST_LABELS = 50
_COLOUR = "ededed"

_ID = re.compile(rf"{PREFIX}([1-9][0-9]{{0,8}})")
_NUMBER_OF_URL = re.compile(r"/issues/([1-9][0-9]{0,8})\s*$")
_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_CODE_OR_COMMENT = re.compile(rf"{_CODE.pattern}|<!--.*?(?:-->|\Z)", re.MULTILINE | re.DOTALL)
_OURS = re.compile(r"\n*<!-- capsule: ?(\S*) -->.*?<!-- /capsule -->\n?", re.DOTALL)
"""What `create` writes below the description: relations, and the reference."""
_MARK = re.compile(r"<!-- (/?capsule)")
_PARENT = re.compile(r"^\s*(?:part of|parent):?\s+#([1-9][0-9]{0,8})\b", re.IGNORECASE | re.MULTILINE)
_DEPENDS = re.compile(
    r"\b(?:depends on|blocked by):?\s+(#[1-9][0-9]{0,8}(?:(?:\s*,\s*|\s+and\s+|\s*&\s*)#[1-9][0-9]{0,8})*)\b",
    re.IGNORECASE,
)
_TASK = re.compile(r"^\s*[-*+] \[[ xX]\]\s+#([1-9][0-9]{0,8})\b", re.MULTILINE)
_REFERENCE = re.compile(r"#([1-9][0-9]*)")
_MOST_RELATIONS = 200


def _only_code(found: re.Match[str]) -> str:
    return found[0] if found[1] else ""


class _Named(Struct, frozen=True):
    name: str = ""
    title: str = ""
    login: str = ""


class Issue(Struct, frozen=True, rename="camel"):
    """An issue as `gh issue list --json` prints it."""

    number: int
    title: str = ""
    body: str | None = ""
    state: str = "OPEN"
    labels: tuple[_Named, ...] = ()
    assignees: tuple[_Named, ...] = ()
    milestone: _Named | None = None
    created_at: str | None = ""
    updated_at: str | None = ""
    closed_at: str | None = ""
    url: str = ""

    @property
    def is_open(self) -> bool:
        return self.state.upper() == "OPEN"

    @property
    def text(self) -> str:
        return cleaned(self.body or "")

    @property
    def shown(self) -> str:
        """Return the visible part: a person who labels an issue does not see HTML comments."""
        return _CODE_OR_COMMENT.sub(_only_code, self.text)

    @property
    def described(self) -> str:
        return _CODE_OR_COMMENT.sub(_only_code, _OURS.sub("", self.text))

    def has(self, label: str) -> bool:
        """Tell whether it has this label; on GitHub, case makes no difference."""
        return any(each.name.casefold() == label.casefold() for each in self.labels)


class _Remark(Struct, frozen=True):
    body: str = ""


class _Remarks(Struct, frozen=True):
    comments: tuple[_Remark, ...] = ()


class _Table(Struct, frozen=True):
    """The issues as they were read."""

    issues: dict[int, Issue]
    """All that are read, whether they are items or not."""

    @property
    def open(self) -> set[int]:
        return {number for number, issue in self.issues.items() if issue.is_open}


def connect(root: Path, lock: Path | None = None, options: GitHubOptions | None = None) -> GitHubTracker:
    return GitHubTracker(root, options or GitHubOptions(), lock=lock)


class GitHubTracker(BaseTracker):
    name = "github"

    def __init__(
        self,
        root: Path,
        options: GitHubOptions,
        *,
        lock: Path | None = None,
        patience: Patience | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if options.claim == "assignee" and options.assignee:
            raise SettingsError(
                "With tracker.github.claim: assignee, every item of tracker.github.assignee would be claimed already.",
                "Set one of the two in .capsule/config.yaml; `claim: label` goes with any assignee.",
            )
        self._options = options
        self._lock = lock
        self._gh = Gh(root, options.repository, patience=patience, env=env)
        self._known: _Table | None = None
        self._me = ""
        self._left_out: tuple[str, ...] = ()
        asked = " and ".join(_asked(options))
        quoted = shlex.quote(_as_list(options.labels)).replace("{", "{{").replace("}", "}}")
        marks = f" --label={quoted}" if options.labels else ""
        self.traits = TrackerTraits(
            own_commands={
                "add": f"gh issue create{marks}",
                "show": "gh issue view {}",
                "edit": "gh issue edit {}",
                "reopen": "gh issue reopen {}",
            },
            id_prefix=PREFIX,
            edits=EDITS,
            fields_hint="An issue has --type, --priority (0 to 4) and --parent. What it depends on is a line of it: "
            "`Depends on #12`.",
            empty=f"No open issue on GitHub {asked}. Add one" if asked else "No open issues on GitHub. Add one",
        )

    @property
    def warnings(self) -> Sequence[str]:
        return self._left_out

    def writing(self) -> AbstractContextManager[object]:
        return held(self._lock, LOCK_WAIT)

    def all_items(self) -> Mapping[str, Item]:
        self._known = self._read()
        return self._items()

    def item(self, item_id: str) -> Item:
        """Read the issue again if all were read before: its text may have changed."""
        known = self._known is not None
        issue = self._issue(item_id)
        table = self._table()
        if known or issue.number not in table.issues:
            table.issues[issue.number] = issue
        if lack := _lacking(issue, self._options, self._login):
            how = f"`gh issue edit {issue.number} {lack.flag}`"
            hint = f"Make it one with {how}, or change tracker.github in .capsule/config.yaml."
            raise UnknownItem(f"{item_id} is an issue, but no item: it is not {lack.words}.", hint)
        return self._items()[item_id]

    def knows(self, item_id: str) -> bool:
        number = _number_of(item_id)
        return number is not None and (number in self._table().issues or self._view(number) is not None)

    def claim(self, item_id: str) -> None:
        if theirs := self.item(item_id).taken_by:
            number = item_id.removeprefix(PREFIX)
            hint = f"Let them finish, or take it from them: `gh issue edit {number} --remove-assignee {theirs}`."
            raise Refused(f"{item_id} is claimed by {theirs}.", hint)
        super().claim(item_id)

    def set_status(self, item_id: str, status: Status, reason: str = "") -> None:
        issue, options = self._issue(item_id), self._options
        number = str(issue.number)
        marks = [label for label in (options.in_progress, options.blocked) if issue.has(label)]
        if status is Status.DONE:
            self._say(issue.number, reason)
            self._change(issue, lambda now: not now.is_open, "issue", "close", number)
            if marks:  # last: an open issue without them can be taken by others
                self._edit(issue, [], marks)
        elif status is Status.BLOCKED:
            self._say(issue.number, reason)
            self._edit(issue, [options.blocked], [])
        elif status is Status.IN_PROGRESS and options.claim == "assignee":
            self._change(issue, self._is_mine, "issue", "edit", number, "--add-assignee=@me")
        elif status is Status.IN_PROGRESS:
            self._edit(issue, [options.in_progress], [])
        else:
            if marks:
                self._edit(issue, [], marks)
            if options.claim == "assignee" and self._is_mine(issue):
                self._change(
                    issue, lambda now: not self._is_mine(now), "issue", "edit", number, "--remove-assignee=@me"
                )

    def create(self, new: NewItem) -> str:
        table = self._known = self._read()
        for number, issue in table.issues.items():
            if new.reference and _reference_of(issue) == new.reference:
                return f"{PREFIX}{number}"
        marks = {"--label": _as_list(self._labels_of(new)), "--milestone": self._options.milestone}
        given = {"--title": _title(new.title), "--body": _body(new), **marks, "--assignee": self._options.assignee}
        args = ["issue", "create", *(f"{flag}={value}" for flag, value in given.items() if value or flag == "--body")]
        answer = self._run_with_labels(*args)
        found = _NUMBER_OF_URL.search(answer.out)
        self._known = self._read() if answer.failed or not found else None
        if found and not answer.failed:
            return f"{PREFIX}{found[1]}"
        again = (number for number, issue in self._table().issues.items() if _reference_of(issue) == new.reference)
        number = next(again, 0) if new.reference else 0  # it may have been created before the call failed
        if number:
            return f"{PREFIX}{number}"
        raise self._gh.fault(answer)

    def comment(self, item_id: str, text: str) -> None:
        self._say(self._issue(item_id).number, text)

    def change(self, item_id: str, values: ItemValues) -> None:
        """Change labels, title and description; keep our lines below the description."""
        if values.keys() - EDITS:
            raise cannot_change(self.item(item_id).id, self.name, self.traits)
        with self.writing():
            item, issue = self.item(item_id), self._issue(item_id)
            block = _OURS.search(issue.text)
            given = {"title": _title(str(values.get("title", "")))} if "title" in values else {}
            if "description" in values:
                text = _with_what_is_hidden(issue, item.description.rstrip(), str(values["description"] or ""))
                parts = [_cut(_without_our_lines(text)).rstrip("\n"), *([block[0].strip()] if block else [])]
                given["body"] = "\n\n".join(filter(None, parts))
            add, remove = self._labels_to_change(issue, item, values)
            if values.get("status") == Status.BLOCKED:
                add.append(self._options.blocked)
            if given or add or remove:
                self._edit(issue, add, remove, given)

    def _labels_to_change(self, issue: Issue, item: Item, values: ItemValues) -> tuple[list[str], list[str]]:
        """Return the labels to add and to remove for another type, priority or tags."""
        types, priorities = _folded(self._options.types, TYPES), _folded(self._options.priorities, PRIORITIES)
        add: list[str] = []
        gone: list[str] = []
        there = [label.name for label in issue.labels]
        if "type" in values and values["type"] != item.type:
            gone += [label for label in there if label.casefold() in types]
            add += self._label_of_type(str(values["type"]))
        if "priority" in values and values["priority"] != item.priority:
            gone += [label for label in there if label.casefold() in priorities]
            add += self._label_of_priority(int(str(values["priority"])))
        if isinstance(tags := values.get("tags"), list):
            gone += [tag for tag in item.tags if tag not in tags]
            add += [cleaned(tag) for tag in tags if tag not in item.tags]
        return add, gone

    # ---- reading

    def _read(self) -> _Table:
        read = self._list("open", MOST_OPEN)
        found = {issue.number: issue for issue in read}
        self._left_out = ()
        if len(read) == MOST_OPEN:
            asked = [f"--label={_as_list(self._options.labels)}"] if self._options.labels else []
            searched = self._list("open", MOST_OPEN, *asked) if asked else []
            found = {issue.number: issue for issue in searched} | found  # the list is newer than the index
            self._left_out = (f"There are more than {MOST_OPEN:,} open issues; of the oldest, some may be left out.",)
        if self._options.state == "all":
            found |= {issue.number: issue for issue in self._list("closed", MOST_CLOSED)}
        return _Table(found)

    def _list(self, state: str, most: int, *more: str) -> list[Issue]:
        args = ("issue", "list", f"--state={state}", f"--limit={most}", *more, f"--json={FIELDS}")
        return self._gh.read(list[Issue], *args)

    def _table(self) -> _Table:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _issue(self, item_id: str) -> Issue:
        """Return an issue as it is now; raise UnknownItem if it is none."""
        number = _number_of(check_id(item_id))
        first = self._known is None
        if number and first and number in self._table().issues:
            return self._table().issues[number]
        issue = self._view(number) if number else None
        if issue is None:
            if item_id.isdigit() and int(item_id) in self._table().issues:
                raise UnknownItem(f"There is no item {item_id}.", f"Did you mean {PREFIX}{item_id}?")
            raise unknown(item_id, self._items())
        return issue

    def _view(self, number: int) -> Issue | None:
        answer = self._gh.ask("issue", "view", str(number), f"--json={FIELDS}")
        if answer.not_found:
            return None
        issue = self._gh.understood(answer, Issue)
        return issue if "/pull/" not in issue.url else None  # gh shows a pull request under this command too

    def _items(self) -> dict[str, Item]:
        table = self._table()
        chosen = {
            number: issue
            for number, issue in sorted(table.issues.items())
            if not _lacking(issue, self._options, self._login)
        }
        parents = _parents(chosen)
        items = (self._item(issue, chosen, table.open, parents) for issue in chosen.values())
        return with_holders({item.id: item for item in items})

    def _item(
        self, issue: Issue, chosen: Mapping[int, Issue], still_open: set[int], parents: Mapping[int, int]
    ) -> Item:
        options = self._options
        types, priorities = _folded(options.types, TYPES), _folded(options.priorities, PRIORITIES)
        labels = [cleaned(label.name) for label in issue.labels]
        folded = [label.casefold() for label in labels]
        meaning = {*types, *priorities, *map(str.casefold, (*options.labels, options.in_progress, options.blocked))}
        waits = [number for number in _waits_for(issue) if number in still_open]
        elsewhere = [number for number in waits if number not in chosen]
        status, blocked, taken_by = self._stands(issue, elsewhere)
        return Item(
            id=f"{PREFIX}{issue.number}",
            title=cleaned(issue.title),
            description=issue.described,
            type=next((types[label] for label in folded if label in types), "task"),
            priority=min((priorities[label] for label in folded if label in priorities), default=USUAL_PRIORITY),
            status=status,
            blocked=blocked,
            taken_by=taken_by,
            parent=f"{PREFIX}{parents[issue.number]}" if issue.number in parents else "",
            origin=_reference_of(issue),
            tags=tuple(label for label, low in zip(labels, folded, strict=True) if low not in meaning),
            dependencies=tuple(f"{PREFIX}{number}" for number in waits if number in chosen),
            created=issue.created_at or "",
            updated=(issue.closed_at if not issue.is_open else issue.updated_at) or "",
        )

    def _stands(self, issue: Issue, elsewhere: Sequence[int]) -> tuple[Status, Blocked | None, str]:
        """Return an issue's status, its block, and another person who has it."""
        if not issue.is_open:
            return Status.DONE, None, ""
        if issue.has(self._options.blocked):
            reason = f"it has the label {self._options.blocked}"
            return Status.BLOCKED, Blocked(Status.READY, reason, ""), ""
        by_assignee = self._options.claim == "assignee"
        if (by_assignee and issue.assignees) or (not by_assignee and issue.has(self._options.in_progress)):
            theirs = issue.assignees[0].login if by_assignee and not self._is_mine(issue) else ""
            return Status.IN_PROGRESS, None, cleaned(theirs)
        if elsewhere:
            names = ", ".join(f"#{number}" for number in elsewhere)
            reason = f"it depends on {names}, open on GitHub and not among the items"
            return Status.BLOCKED, Blocked(Status.READY, reason, HELD), ""
        return Status.READY, None, ""

    def _is_mine(self, issue: Issue) -> bool:
        return any(each.login.casefold() == self._login().casefold() for each in issue.assignees)

    def _login(self) -> str:
        """Return our login on GitHub; read once, on first use."""
        if not self._me:
            answer = self._gh.ask("api", "user", "--jq=.login")
            self._me = answer.out.strip()
            if answer.failed or not self._me:
                raise self._gh.fault(answer)
        return self._me

    # ---- changing

    def _edit(
        self, issue: Issue, add: Sequence[str], remove: Sequence[str], texts: Mapping[str, str] | None = None
    ) -> None:
        given = texts or {}
        labels = {"add-label": _as_list(add) if add else "", "remove-label": _as_list(remove) if remove else ""}
        flags = {**given, **{flag: value for flag, value in labels.items() if value}}

        def is_so(now: Issue) -> bool:
            said = {"title": cleaned(now.title), "body": now.text.strip()}
            same = all(said[name] == text.strip() for name, text in given.items())
            return same and all(map(now.has, add)) and not any(map(now.has, remove))

        args = [f"--{flag}={value}" for flag, value in flags.items()]
        self._change(issue, is_so, "issue", "edit", str(issue.number), *args)

    def _change(self, issue: Issue, is_so: Callable[[Issue], bool], *args: str) -> None:
        """Make a change and verify it by reading back: gh may die after the work is done."""
        answer = self._run_with_labels(*args)
        now = self._view(issue.number)
        if now is not None:
            self._table().issues[issue.number] = now
        if now is None or not is_so(now):
            if answer.failed:
                raise self._gh.fault(answer)
            hint = "Look at the issue on GitHub; then go on."
            raise TrackerError(f"`{answer.command} {issue.number}` said that it is done, and it is not.", hint)

    def _run_with_labels(self, *args: str) -> GhAnswer:
        """Make a call; first create labels that the repository lacks."""
        answer = self._gh.run(*args)
        for _ in range(_MOST_LABELS):
            if not (label := answer.missing_label):
                break
            made = self._gh.run("label", "create", f"--color={_COLOUR}", "--", label)
            if made.failed and "already exists" not in made.err:
                raise self._gh.fault(made)
            answer = self._gh.run(*args)
        return answer

    def _say(self, number: int, text: str) -> None:
        """Comment on an issue, unless that is its last comment already."""
        words = _cut(text).strip()
        if not words:
            return
        there = self._gh.read(_Remarks, "issue", "view", str(number), "--json=comments").comments
        if there and cleaned(there[-1].body).strip() == words:
            return
        answer = self._gh.run("issue", "comment", str(number), f"--body={words}")
        if answer.failed:
            raise self._gh.fault(answer)

    def _labels_of(self, new: NewItem) -> list[str]:
        kinds = (*self._label_of_type(new.type), *self._label_of_priority(new.priority))
        return [*self._options.labels, *kinds, *map(cleaned, new.tags)]

    def _label_of_type(self, kind: str) -> list[str]:
        """Return the first label for it; none for a task, the type of an issue without a label."""
        types = {**self._options.types, **TYPES}
        found = [label for label, known in types.items() if known == kind][:1]
        if not found and kind != "task":
            known = ", ".join(dict.fromkeys(types.values()))
            hint = f"It is task, {known}, or what a label in tracker.github.types stands for."
            raise Refused(f"No label stands for the type {kind!a}.", hint)
        return found if kind != "task" else []

    def _label_of_priority(self, number: int) -> list[str]:
        priorities = {**self._options.priorities, **PRIORITIES}
        found = [label for label, known in priorities.items() if known == number][:1]
        return found if number != USUAL_PRIORITY else []


def _number_of(item_id: str) -> int | None:
    found = _ID.fullmatch(item_id)
    return int(found[1]) if found else None


def _asked(options: GitHubOptions) -> list[str]:
    """Describe what makes an issue an item."""
    labels = ", ".join(options.labels)
    return [
        *[f"with the label {labels}"] * bool(labels),
        *[f"of the milestone {options.milestone}"] * bool(options.milestone),
        *[f"assigned to {options.assignee}"] * bool(options.assignee),
    ]


class _Lack(Struct, frozen=True):
    """What an issue lacks to be an item, and the flag that adds it."""

    words: str
    flag: str


def _lacking(issue: Issue, options: GitHubOptions, me: Callable[[], str]) -> _Lack | None:
    """Return what an issue lacks to be an item; None for an item."""
    if without := [label for label in options.labels if not issue.has(label)]:
        return _Lack(f"labelled {', '.join(without)}", f"--add-label={shlex.quote(_as_list(without))}")
    if options.milestone and (issue.milestone is None or issue.milestone.title != options.milestone):
        return _Lack(f"of the milestone {options.milestone}", f"--milestone={shlex.quote(options.milestone)}")
    if options.assignee:
        login = me() if options.assignee == "@me" else options.assignee
        if not any(each.login.casefold() == login.casefold() for each in issue.assignees):
            return _Lack(f"assigned to {login}", f"--add-assignee={shlex.quote(login)}")
    return None


def _folded(own: Mapping[str, _T], known: Mapping[str, _T]) -> dict[str, _T]:
    return {label.casefold(): value for label, value in {**known, **own}.items()}


def _relating(issue: Issue) -> str:
    """Return the text that may relate an issue to others: not code, nor what agents found about it."""
    return _CODE.sub("", without_findings(issue.shown))


def _waits_for(issue: Issue) -> list[int]:
    text = _relating(issue)
    found = [int(number) for names in _DEPENDS.findall(text) for number in _REFERENCE.findall(names)]
    return [number for number in dict.fromkeys(found) if number != issue.number][:_MOST_RELATIONS]


def _parents(issues: Mapping[int, Issue]) -> dict[int, int]:
    """Return each issue's parent: as it says itself, else the first issue whose task list has it."""
    texts = {number: _relating(issue) for number, issue in issues.items()}
    found = {
        int(part): number for number, text in reversed(texts.items()) for part in _TASK.findall(text)[:_MOST_RELATIONS]
    }
    found |= {number: int(said[1]) for number, text in texts.items() if (said := _PARENT.search(text))}
    return {part: whole for part, whole in found.items() if part in issues and whole in issues and part != whole}


def _reference_of(issue: Issue) -> str:
    found = _OURS.search(issue.text)
    return found[1] if found else ""


def _body(new: NewItem) -> str:
    """Return the description and our lines for what GitHub has no field for."""
    own = _number_of(new.found_in)
    lines = [
        *[f"Part of #{_number_of(new.parent)}"] * bool(new.parent),
        *[f"Depends on {', '.join(f'#{_number_of(each)}' for each in new.dependencies)}"] * bool(new.dependencies),
        *[f"Found while working on #{own}"] * bool(own),
    ]
    text = _cut(_without_our_lines(new.description)).rstrip("\n")
    if not (lines or new.reference):
        return text
    block = "\n".join((f"<!-- capsule: {cleaned(new.reference)} -->", *lines, "<!-- /capsule -->"))
    return f"{text}\n\n{block}" if text else block


def _without_our_lines(text: str) -> str:
    """Return a description in which nothing reads as the lines that we write below it."""
    return _MARK.sub(r"<!--\1", _OURS.sub("", text))


def _with_what_is_hidden(issue: Issue, shown: str, text: str) -> str:
    """Return the new text of an issue; one that only adds to the old text keeps what GitHub does not show."""
    adds = bool(shown) and text.startswith(shown)
    return _OURS.sub("", issue.text).rstrip() + text[len(shown) :] if adds else text


def _title(text: str) -> str:
    return cleaned(text).strip()[:_LONGEST_TITLE].rstrip()


def _cut(text: str) -> str:
    short = cleaned(text)[:_LONGEST_TEXT]
    data = short.encode()[:_LONGEST_BYTES].decode("utf-8", "ignore")
    return data if data == cleaned(text) else f"{data} ..."


def _as_list(values: Iterable[str]) -> str:
    """Return a list as gh reads it: comma-separated values, in which a comma can be quoted."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([*values])
    return line.getvalue()
