"""The stand-in's command line: what of gh 2.23 Capsule uses, word for word."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from tests.contracts.fake_gh import hub as hubs
from tests.contracts.fake_gh.hub import NAME, OWNER, Row

FLAGS: dict[str, tuple[str, ...]] = {
    "issue list": ("state", "limit", "label", "assignee", "milestone", "json"),
    "issue view": ("json",),
    "issue create": ("title", "body", "label", "assignee", "milestone"),
    "issue edit": ("title", "body", "add-label", "remove-label", "add-assignee", "remove-assignee"),
    "issue close": (),
    "issue comment": ("body",),
    "label create": ("color",),
    "api user": ("jq",),
}
FIELDS = (
    *("assignees", "author", "body", "closed", "closedAt", "comments", "createdAt", "id", "labels", "milestone"),
    *("number", "projectCards", "reactionGroups", "state", "title", "updatedAt", "url"),
)


class _Exit(Exception):
    def __init__(self, words: str, code: int = 1) -> None:
        self.words, self.code = words, code


def main(hub: str) -> NoReturn:
    path, argv = Path(hub), sys.argv[1:]
    with path.with_suffix(".calls").open("a") as log:
        log.write(json.dumps(argv) + "\n")
    try:
        sys.exit(_answered(path, argv))
    except _Exit as end:
        sys.stderr.write(f"{end.words}\n")
        sys.exit(end.code)


def _answered(path: Path, argv: list[str]) -> int:
    name = " ".join(argv[:2])
    if name not in FLAGS:
        raise _Exit(f'unknown command "{argv[1]}" for "gh {argv[0]}"')
    values, words = _parsed(name, argv[2:])
    with hubs.opened(path) as found:
        failure = _misbehaviour(found, name)
    if failure:
        raise failure
    with hubs.opened(path) as found:
        _check(found, name, values)
        out, err = _COMMANDS[name](found, words, values)
        how = found.get("behave", {})
    if name in how.get("die_after", ()):
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(how.get("say", {}).get(name, out))
    sys.stderr.write(err)
    return 0


def _misbehaviour(hub: Row, name: str) -> _Exit | None:
    how = hub.get("behave", {})
    if name in how.get("hang", ()):
        time.sleep(600)
    failure = how.get("fail", {}).get(name) or how.get("once", {}).pop(name, None)
    if failure:
        return _Exit(failure[1], failure[0])
    return None


def _parsed(name: str, argv: list[str]) -> tuple[dict[str, str], list[str]]:
    values: dict[str, str] = {}
    words: list[str] = []
    for place, word in enumerate(argv):
        if word == "--":
            words += argv[place + 1 :]
            break
        if not word.startswith("-"):
            words.append(word)
            continue
        flag, _, value = word.removeprefix("--").partition("=")
        if flag not in (*FLAGS[name], "repo"):
            raise _Exit(f"unknown flag: --{flag}")
        values[flag] = value
    return values, words


def _check(hub: Row, name: str, values: dict[str, str]) -> None:
    if values.get("repo", f"{OWNER}/{NAME}") != f"{OWNER}/{NAME}":
        raise _Exit(f"GraphQL: Could not resolve to a Repository with the name '{values['repo']}'.")
    for field in values["json"].split(",") if "json" in values else ():
        if field not in FIELDS:
            known = "".join(f"\n  {each}" for each in FIELDS)
            raise _Exit(f'Unknown JSON field: "{field}"\nAvailable fields:{known}')
    if hub["disabled"] and name == "issue list":
        raise _Exit(f"the '{OWNER}/{NAME}' repository has disabled issues")


def _list_of(text: str) -> list[str]:
    return next(csv.reader([text])) if text else []


def _row(hub: Row, words: list[str]) -> Row:
    row = hubs.find(hub, int(words[0]))
    if row is None:
        raise _Exit(f"GraphQL: Could not resolve to an issue or pull request with the number of {words[0]}.")
    return row


def _labels(hub: Row, text: str, before: str = "") -> list[str]:
    found = []
    for name in _list_of(text):
        known = hubs.label_named(hub, name)
        if known is None:
            raise _Exit(f"{before}'{name}' not found")
        found.append(known)
    return found


def _people(hub: Row, text: str, before: str = "") -> list[str]:
    names = [hub["login"] if name == "@me" else name for name in _list_of(text)]
    if strange := [name for name in names if name not in hub["people"]]:
        raise _Exit(f"{before}'{strange[0]}' not found")
    return names


def _shown(hub: Row, row: Row, fields: str) -> dict[str, Any]:
    full = {
        **row,
        "url": hubs.url(row["number"]),
        "labels": [{"id": f"id-{name}", "name": name, "description": "", "color": "ededed"} for name in row["labels"]],
        "assignees": [{"id": f"id-{name}", "login": name, "name": ""} for name in row["assignees"]],
        "milestone": {"number": 1, "title": row["milestone"], "description": "", "dueOn": None}
        if row["milestone"]
        else None,
        "comments": [_comment_shown(str(n), body) for n, body in enumerate(row["comments"])],
    }
    return {field: full[field] for field in sorted(fields.split(","))}


def _comment_shown(identity: str, body: str) -> dict[str, Any]:
    return {
        "id": identity,
        "author": {"login": hubs.LOGIN},
        "authorAssociation": "",
        "body": body,
        "createdAt": "0001-01-01T00:00:00Z",
        "includesCreatedEdit": False,
        "isMinimized": False,
        "minimizedReason": "",
        "reactionGroups": [],
        "viewerDidAuthor": False,
    }


def _list(hub: Row, _: list[str], values: dict[str, str]) -> tuple[str, str]:
    states = {"open": ("OPEN",), "closed": ("CLOSED",), "all": ("OPEN", "CLOSED")}[values.get("state", "open")]
    wanted = _list_of(values.get("label", ""))
    rows = [row for row in hubs.listed(hub, states) if all(name in row["labels"] for name in wanted)]
    return _json([_shown(hub, row, values["json"]) for row in rows[: int(values.get("limit", 30))]]), ""


def _view(hub: Row, words: list[str], values: dict[str, str]) -> tuple[str, str]:
    if int(words[0]) in hub["pulls"]:
        pull = hubs.new_issue(int(words[0]), "A pull request")
        shown = _shown(hub, pull, values["json"])
        if "url" in shown:
            shown["url"] = shown["url"].replace("/issues/", "/pull/")
        return _json(shown), ""
    return _json(_shown(hub, _row(hub, words), values["json"])), ""


def _create(hub: Row, _: list[str], values: dict[str, str]) -> tuple[str, str]:
    people = _people(hub, values.get("assignee", ""), "could not assign user: ")
    labels = _labels(hub, values.get("label", ""), "could not add label: ")
    milestone = values.get("milestone") or None
    if milestone and milestone not in hub["milestones"]:
        raise _Exit(f"could not add to milestone '{milestone}': '{milestone}' not found")
    row = hubs.create(hub, values["title"], values["body"], labels, people, milestone)
    return f"{hubs.url(row['number'])}\n", ""


def _edit(hub: Row, words: list[str], values: dict[str, str]) -> tuple[str, str]:
    row = _row(hub, words)
    add, remove = (_labels(hub, values.get(f"{how}-label", "")) for how in ("add", "remove"))
    join, leave = (_people(hub, values.get(f"{how}-assignee", "")) for how in ("add", "remove"))
    row |= {name: values[name] for name in ("title", "body") if name in values}
    row["labels"] = [name for name in dict.fromkeys((*row["labels"], *add)) if name not in remove]
    row["assignees"] = [name for name in dict.fromkeys((*row["assignees"], *join)) if name not in leave]
    return f"{hubs.url(row['number'])}\n", ""


def _close(hub: Row, words: list[str], _: dict[str, str]) -> tuple[str, str]:
    row = _row(hub, words)
    what = f"Issue #{row['number']} ({row['title']})"
    if row["state"] == "CLOSED":
        return "", f"! {what} is already closed\n"
    hubs.close(row)
    return "", f"✓ Closed {what[0].lower()}{what[1:]}\n"


def _comment(hub: Row, words: list[str], values: dict[str, str]) -> tuple[str, str]:
    row = _row(hub, words)
    row["comments"].append(values["body"])
    return f"{hubs.url(row['number'])}#issuecomment-1\n", ""


def _label(hub: Row, words: list[str], _: dict[str, str]) -> tuple[str, str]:
    if hubs.label_named(hub, words[0]):
        advice = "use `--force` to update its color and description"
        raise _Exit(f'label with name "{words[0]}" already exists; {advice}')
    hub["labels"].append(words[0])
    return "", ""


def _user(hub: Row, _: list[str], __: dict[str, str]) -> tuple[str, str]:
    return f"{hub['login']}\n", ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


_COMMANDS = {
    "issue list": _list,
    "issue view": _view,
    "issue create": _create,
    "issue edit": _edit,
    "issue close": _close,
    "issue comment": _comment,
    "label create": _label,
    "api user": _user,
}
