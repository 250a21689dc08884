"""GitHub's API as far as `gh issue` asks it, on a repository of tests/contracts/fake_gh: for the real gh, offline.

gh talks plain HTTP to `github.localhost`, and by way of a proxy, which is this server: nothing leaves the machine.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.contracts.fake_gh import hub as hubs
from tests.contracts.fake_gh.hub import NAME, OWNER, Row


@contextmanager
def served(path: Path) -> Iterator[dict[str, str]]:
    """Serve the repository in this file; yield the environment in which a gh talks to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.path = path  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    here = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield {"GH_HOST": "github.localhost", "GH_ENTERPRISE_TOKEN": "not-a-token", "http_proxy": here, "no_proxy": ""}
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        with hubs.opened(self._file) as hub:
            found = {"login": hub["login"]} if self.path.endswith("/user") else None
        self._answer(200 if found else 404, found or {"message": "Not Found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with hubs.opened(self._file) as hub:
            if self.path.endswith("/labels") and hubs.label_named(hub, asked["name"]):
                errors = [{"resource": "Label", "code": "already_exists", "field": "name"}]
                self._answer(422, {"message": "Validation Failed", "errors": errors})
            elif self.path.endswith("/labels"):
                hub["labels"].append(asked["name"])
                self._answer(201, {"name": asked["name"], "color": asked["color"], "description": ""})
            else:
                self._answer(200, _graphql(hub, asked["query"], asked.get("variables") or {}))

    @property
    def _file(self) -> Path:
        path: Path = self.server.path  # type: ignore[attr-defined]
        return path

    def _answer(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Refused(Exception):
    """What GitHub says instead of an answer."""


def _graphql(hub: Row, query: str, given: dict[str, Any]) -> dict[str, Any]:
    found = re.search(r"(?:query|mutation) (\w+)", query)
    name = found[1] if found else ""
    try:
        return {"data": _ANSWERS[name](hub, query, given)}
    except _Refused as why:
        return {"data": {}, "errors": [{"type": "NOT_FOUND", "message": str(why)}]}


def _named(names: list[str]) -> dict[str, Any]:
    nodes = [{"id": f"id-{name}", "name": name, "description": "", "color": "ededed"} for name in names]
    return {"nodes": nodes, "totalCount": len(nodes)}


def _people(names: list[str]) -> dict[str, Any]:
    return {"nodes": [{"id": f"id-{name}", "login": name, "name": ""} for name in names], "totalCount": len(names)}


def _issue(hub: Row, row: Row) -> dict[str, Any]:
    comments = [{"id": str(n), "author": {"login": LOGIN}, "body": body} for n, body in enumerate(row["comments"])]
    return {
        "__typename": "Issue",
        "id": f"issue-{row['number']}",
        "url": hubs.url(row["number"]),
        "labels": _named(row["labels"]),
        "assignees": _people(row["assignees"]),
        "milestone": {"number": 1, "title": row["milestone"]} if row["milestone"] else None,
        "comments": {"nodes": comments, "totalCount": len(comments), "pageInfo": _LAST},
        **{name: row[name] for name in ("number", "title", "body", "state", "createdAt", "updatedAt", "closedAt")},
    }


_LAST = {"hasNextPage": False, "endCursor": ""}
LOGIN = hubs.LOGIN


def _known(given: dict[str, Any]) -> None:
    name = given.get("name") or given.get("repo")
    if (given["owner"], name) != (OWNER, NAME):
        raise _Refused(f"Could not resolve to a Repository with the name '{given['owner']}/{name}'.")


def _list(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    _known(given)
    first = int(given.get("endCursor") or 0)
    rows = hubs.listed(hub, tuple(given["states"]))
    page = rows[first : first + given["limit"]]
    more = {"hasNextPage": first + len(page) < len(rows), "endCursor": str(first + len(page))}
    issues = {"totalCount": len(rows), "nodes": [_issue(hub, row) for row in page], "pageInfo": more}
    return {"repository": {"hasIssuesEnabled": not hub["disabled"], "issues": issues}}


def _by_number(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    _known(given)
    number = given["number"]
    row = hubs.find(hub, number)
    found = _issue(hub, row) if row else None
    if number in hub["pulls"]:
        url = f"https://github.com/{OWNER}/{NAME}/pull/{number}"
        pull = hubs.new_issue(number, "A pull request")
        found = _issue(hub, pull) | {"__typename": "PullRequest", "url": url}
    if found is None:
        raise _Refused(f"Could not resolve to an issue or pull request with the number of {number}.")
    return {"repository": {"hasIssuesEnabled": not hub["disabled"], "issue": found}}


def _comments(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    row = hubs.find(hub, int(given["id"].removeprefix("issue-")))
    assert row
    return {"node": {"comments": _issue(hub, row)["comments"]}}


def _repository(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    _known(given)
    repository = {
        "id": "repo",
        "name": NAME,
        "owner": {"login": OWNER},
        "hasIssuesEnabled": not hub["disabled"],
        "viewerPermission": "WRITE",
        "defaultBranchRef": {"name": "main"},
        "parent": None,
    }
    return {"repository": repository}


def _labels(hub: Row, *_: object) -> dict[str, Any]:
    nodes = [{"id": f"id-{name}", "name": name} for name in hub["labels"]]
    return {"repository": {"labels": {"nodes": nodes, "pageInfo": _LAST}}}


def _assignable(hub: Row, *_: object) -> dict[str, Any]:
    nodes = [{"id": f"id-{name}", "login": name, "name": ""} for name in hub["people"]]
    return {"repository": {"assignableUsers": {"nodes": nodes, "pageInfo": _LAST}}}


def _milestones(hub: Row, *_: object) -> dict[str, Any]:
    nodes = [{"id": f"id-{name}", "title": name} for name in hub["milestones"]]
    return {"repository": {"milestones": {"nodes": nodes, "pageInfo": _LAST}}}


def _resolved(hub: Row, query: str, _: object) -> dict[str, Any]:
    """Look up labels and people by the names that the query itself holds."""
    labels = {key: json.loads(name) for key, name in re.findall(r'(l\d+): label\(name:("(?:[^"\\]|\\.)*")\)', query)}
    people = {key: json.loads(name) for key, name in re.findall(r'(u\d+): user\(login:("(?:[^"\\]|\\.)*")\)', query)}
    known = {key: hubs.label_named(hub, name) for key, name in labels.items()}
    found = {key: {"id": f"id-{name}", "name": name} if name else None for key, name in known.items()}
    users = {key: {"id": f"id-{name}", "login": name} for key, name in people.items() if name in hub["people"]}
    return {"repository": found, **users}


def _viewer(hub: Row, *_: object) -> dict[str, Any]:
    return {"viewer": {"login": hub["login"]}}


def _without_id(names: list[str] | None) -> list[str]:
    return [name.removeprefix("id-") for name in names or ()]


def _create(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    new = given["input"]
    milestone = (new.get("milestoneId") or "").removeprefix("id-") or None
    row = hubs.create(
        hub,
        new["title"],
        new.get("body", ""),
        _without_id(new.get("labelIds")),
        _without_id(new.get("assigneeIds")),
        milestone,
    )
    return {"createIssue": {"issue": {"id": f"issue-{row['number']}", "url": hubs.url(row["number"])}}}


def _row_of(hub: Row, identity: str) -> Row:
    row = hubs.find(hub, int(identity.removeprefix("issue-")))
    assert row
    return row


def _update(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    new = given["input"]
    row = _row_of(hub, new["id"])
    row |= {name: new[name] for name in ("title", "body") if new.get(name) is not None}
    if new.get("assigneeIds") is not None:
        row["assignees"] = _without_id(new["assigneeIds"])
    return {"updateIssue": {"__typename": ""}}


def _label(hub: Row, query: str, given: dict[str, Any]) -> dict[str, Any]:
    new = given["input"]
    row, names = _row_of(hub, new["labelableId"]), _without_id(new["labelIds"])
    if "addLabelsToLabelable" in query:
        row["labels"] += [name for name in names if name not in row["labels"]]
        return {"addLabelsToLabelable": {"__typename": ""}}
    row["labels"] = [name for name in row["labels"] if name not in names]
    return {"removeLabelsFromLabelable": {"__typename": ""}}


def _close(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    row = _row_of(hub, given["input"]["issueId"])
    hubs.close(row)
    return {"closeIssue": {"issue": {"id": given["input"]["issueId"]}}}


def _comment(hub: Row, _: str, given: dict[str, Any]) -> dict[str, Any]:
    row = _row_of(hub, given["input"]["subjectId"])
    row["comments"].append(given["input"]["body"])
    return {"addComment": {"commentEdge": {"node": {"url": f"{hubs.url(row['number'])}#issuecomment-1"}}}}


_ANSWERS: dict[str, Callable[[Row, str, dict[str, Any]], dict[str, Any]]] = {
    "IssueList": _list,
    "IssueByNumber": _by_number,
    "CommentsForIssue": _comments,
    "RepositoryInfo": _repository,
    "RepositoryLabelList": _labels,
    "RepositoryAssignableUsers": _assignable,
    "RepositoryMilestoneList": _milestones,
    "RepositoryResolveMetadataIDs": _resolved,
    "UserCurrent": _viewer,
    "IssueCreate": _create,
    "IssueUpdate": _update,
    "LabelAdd": _label,
    "LabelRemove": _label,
    "IssueClose": _close,
    "CommentCreate": _comment,
}
