"""A repository on GitHub as far as issues go, in one JSON file: what the stand-in for gh and the API in tests share."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOW = "2026-01-02T03:04:05Z"
OWNER, NAME, LOGIN = "tester", "demo", "tester"
LABELS = ("bug", "documentation", "enhancement")

Row = dict[str, Any]


def new_hub(issues: list[Row] | None = None, **more: Any) -> Row:
    """Return a repository with these issues; `more` replaces what else it has."""
    rows = issues or []
    labels = dict.fromkeys((*LABELS, *(label for row in rows for label in row.get("labels", ()))))
    usual = {
        "login": LOGIN,
        "people": [LOGIN, "alice"],
        "labels": [*labels],
        "milestones": ["v1"],
        "disabled": False,
        "pulls": [],
        "issues": [new_issue(**row) for row in rows],
    }
    return usual | more


def new_issue(number: int, title: str, **more: Any) -> Row:
    usual = {
        "number": number,
        "title": title,
        "body": "",
        "state": "OPEN",
        "labels": [],
        "assignees": [],
        "milestone": None,
        "comments": [],
        "createdAt": NOW,
        "updatedAt": NOW,
        "closedAt": None,
    }
    return usual | more


@contextmanager
def opened(path: Path) -> Iterator[Row]:
    """Read the repository, and write it back after the block; one process at a time."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hub: Row = json.loads(path.read_text())
        yield hub
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(hub))
        beside.rename(path)


def find(hub: Row, number: int) -> Row | None:
    return next((row for row in hub["issues"] if row["number"] == number), None)


def label_named(hub: Row, name: str) -> str | None:
    return next((label for label in hub["labels"] if label.casefold() == name.casefold()), None)


def url(number: int) -> str:
    return f"https://github.com/{OWNER}/{NAME}/issues/{number}"


def listed(hub: Row, states: tuple[str, ...]) -> list[Row]:
    """Return issues in these states, the newest first, as GitHub lists them."""
    return sorted((row for row in hub["issues"] if row["state"] in states), key=lambda row: -int(row["number"]))


def create(hub: Row, title: str, body: str, labels: list[str], assignees: list[str], milestone: str | None) -> Row:
    taken = [row["number"] for row in hub["issues"]] + hub["pulls"]
    row = new_issue(
        max(taken, default=0) + 1, title, body=body, labels=labels, assignees=assignees, milestone=milestone
    )
    hub["issues"].append(row)
    return row


def close(row: Row) -> None:
    row["state"], row["closedAt"] = "CLOSED", NOW


def reopen(row: Row) -> None:
    row["state"], row["closedAt"] = "OPEN", None
