"""The stand-ins' command lines: what Capsule uses of gh 2.23, glab 1.5x and tea 0.14, answer for answer."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fake_forge import Forge, Row, head_of, settled
from tests.git_server import run

PATH = "team/project"


class Refusal(Exception):
    pass


def main(name: str, folder: str) -> NoReturn:
    forge = Forge.__new__(Forge)
    forge.folder = Path(folder)
    with (forge.folder / "calls").open("a") as log:
        log.write(json.dumps([name, *sys.argv[1:]]) + "\n")
    with forge.opened() as hub:
        how = hub["behave"]
        if how.get("hang"):
            time.sleep(3600)
        if how.get("offline"):
            sys.exit(f"error connecting to {name}.example.org\ncheck your internet connection")
        if how.get("refuse"):
            sys.exit(how["refuse"])
        known = len(hub["requests"])
        if how.get("status") and name == "tea":
            _say_status(how["status"])
            sys.stdout.write('{"message": "it is not for you", "url": "https://tea.example.org/api/swagger"}')
            sys.exit(0)
        try:
            said = _PROGRAMS[name](hub, sys.argv[1:])
        except Refusal as fault:
            if name == "tea":  # it prints whatever the server answers, and succeeds
                _say_status("409 Conflict")
                sys.stdout.write(json.dumps({"message": str(fault), "url": "https://tea.example.org/api/swagger"}))
                sys.exit(0)
            sys.exit(str(fault))
        if name == "tea":
            _say_status("200 OK")
        dies = how.get("die_after_open") and len(hub["requests"]) > known
    if dies:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(said)
    sys.exit(0)


def _say_status(status: str) -> None:
    if "--include" in sys.argv:
        print(f"HTTP/1.1 {status}\nContent-Type: application/json\n", file=sys.stderr)


def _open(hub: Row, kind: str, branch: str, base: str, title: str, body: str) -> Row:
    head = head_of(hub, branch)
    if not head:
        raise Refusal(f"GraphQL: Head sha can't be blank, Head ref must be a branch ({branch})")
    there = [row for row in hub["requests"] if row["branch"] == branch and settled(hub, row)["state"] == "open"]
    if there:
        raise Refusal(f'a request for branch "{branch}" into branch "{base}" already exists:\n{_url(there[0])}')
    new = run("rev-list", "--count", f"{base}..{head}", cwd=Path(hub["bare"]))
    if new == "0":
        raise Refusal(f"GraphQL: No commits between {base} and {branch} (createPullRequest)")
    row = {
        **{"kind": kind, "number": hub["next"], "branch": branch, "base": base, "title": title, "body": body},
        **{"state": "open", "head": head, "merged_as": "", "reviews": [], "comments": [], "checks": {}},
    }
    hub["next"] += 1
    hub["requests"].append(row)
    return row


def _url(row: Row) -> str:
    where = {"gh": "pull", "glab": "-/merge_requests", "tea": "pulls", "own": "requests"}[row["kind"]]
    return f"https://{row['kind']}.example.org/{PATH}/{where}/{row['number']}"


def _listed(hub: Row, branch: str = "") -> list[Row]:
    rows = [settled(hub, row) for row in reversed(hub["requests"])]
    return [row for row in rows if not branch or row["branch"] == branch]


def _check_host(name: str) -> None:
    """Both programs know a host by its name alone; how it is reached is in their settings."""
    if ":" in name:
        raise Refusal("error parsing --hostname: invalid hostname.")


def _flags(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Read `--name=value`; fields (`--raw-field=a=b`) by their own names, files (`@FILE`) by their content."""
    values: dict[str, str] = {}
    words = []
    for word in argv:
        if not word.startswith("--"):
            words.append(word)
            continue
        flag, _, value = word.removeprefix("--").partition("=")
        if flag in ("raw-field", "field"):
            name, _, value = value.partition("=")
            values[name] = Path(value[1:]).read_text() if flag == "field" and value.startswith("@") else value
        else:
            values[flag] = value
    return values, words


# ---- gh


def _gh(hub: Row, argv: list[str]) -> str:
    values, words = _flags(argv)
    _check_host(values.get("hostname", values.get("repo", "")))
    if words == ["pr", "create"]:
        body = Path(values["body-file"]).read_text()
        row = _open(hub, "gh", values["head"], values["base"], values["title"], body)
        return f"{_url(row)}\n"
    if words == ["api", f"repos/{PATH}/branches/main"]:
        return json.dumps({"name": "main", "protected": _is_protected(hub)})
    assert words == ["api", "graphql"], words
    assert "writersOnly: true" in values["query"]
    assert (values["owner"], values["name"]) == tuple(PATH.split("/"))
    nodes = [_of_github(row) for row in _listed(hub, values["branch"])]
    return json.dumps({"data": {"repository": {"pullRequests": {"nodes": nodes}}}})


def _of_github(row: Row) -> Row:
    contexts: list[Row] = []
    for name, outcome in row["checks"].get(row["head"], {}).items():
        done = {"status": "COMPLETED", "conclusion": "FAILURE" if outcome == "failed" else "SUCCESS"}
        state = {"status": "IN_PROGRESS", "conclusion": None} if outcome == "pending" else done
        contexts.append({"name": name, "detailsUrl": f"https://ci.example.org/{name}", **state})
    return {
        "number": row["number"],
        "url": _url(row),
        "state": row["state"].upper(),
        "headRefOid": row["head"],
        "baseRefName": row["base"],
        "isCrossRepository": False,
        "mergeCommit": {"oid": row["merged_as"]} if row["merged_as"] else None,
        "latestOpinionatedReviews": {
            "nodes": [
                {
                    "id": f"PRR_{review['id']}",
                    "state": "CHANGES_REQUESTED",
                    "body": review["text"],
                    "author": {"login": review["by"]},
                    "comments": {
                        "nodes": [
                            {"path": path, "line": line, "body": text}
                            for path, line, text in ([review["at"]] if review["at"] else [])
                        ]
                    },
                }
                for review in _last_of_each([one for one in row["reviews"] if one["writes"]])
            ]
        },
        "commits": {"nodes": [{"commit": {"statusCheckRollup": {"contexts": {"nodes": contexts}}}}]},
    }


def _is_protected(hub: Row) -> bool:
    """GitHub protects main from everybody, the others from us, or they let us push nevertheless."""
    return bool(hub["behave"].get("protected"))


def _last_of_each(reviews: list[Row]) -> list[Row]:
    return [*{review["by"]: review for review in reviews}.values()]


# ---- glab


def _glab(hub: Row, argv: list[str]) -> str:
    values, words = _flags(argv)
    assert words[0] == "api" and "hostname" in values, argv
    _check_host(values["hostname"])
    path, query = _path(words[1], f"projects/{PATH.replace('/', '%2F')}/")
    if values.get("method") == "POST":
        assert path == "merge_requests"
        fields = (values[name] for name in ("source_branch", "target_branch", "title", "description"))
        return json.dumps(_of_gitlab(_open(hub, "glab", *fields)))
    if path == "repository/branches/main":
        return json.dumps({"name": "main", "protected": True, "can_push": not _is_protected(hub)})
    if path == "merge_requests":
        return json.dumps([_of_gitlab(row) for row in _listed(hub, query["source_branch"])])
    if found := re.fullmatch(r"pipelines/(\d+)/jobs", path):
        row = hub["requests"][int(found[1]) - 1]
        failed = [name for name, outcome in _checks(row).items() if outcome == "failed"]
        return json.dumps(
            [{"name": name, "status": "failed", "web_url": "", "allow_failure": False} for name in failed]
        )
    _, number, what = path.split("/")
    [row] = [row for row in _listed(hub) if row["number"] == int(number)]
    answers: dict[str, Callable[[Row], list[Row]]] = {
        "reviewers": _reviewers,
        "discussions": _discussions,
        "pipelines": _pipelines,
    }
    return json.dumps(answers[what](row))


def _checks(row: Row) -> dict[str, str]:
    found: dict[str, str] = row["checks"].get(row["head"], {})
    return found


def _of_gitlab(row: Row) -> Row:
    state = {"open": "opened"}.get(row["state"], row["state"])
    return {
        **{"iid": row["number"], "web_url": _url(row), "state": state, "sha": row["head"]},
        "target_branch": row["base"],
        **{"merge_commit_sha": row["merged_as"] or None, "squash_commit_sha": None},
        **{"source_project_id": 1, "target_project_id": 1},
    }


def _reviewers(row: Row) -> list[Row]:
    asking = {review["by"] for review in row["reviews"] if review["writes"]}
    return [{"user": {"username": name}, "state": "requested_changes"} for name in sorted(asking)]


def _discussions(row: Row) -> list[Row]:
    notes = []
    for review in row["reviews"]:
        if review["text"]:
            notes.append({"id": review["id"] * 10, "body": review["text"], "author": {"username": review["by"]}})
        if review["at"]:
            path, line, text = review["at"]
            position = {"new_path": path, "new_line": line}
            author = {"username": review["by"]}
            notes.append({"id": review["id"] * 10 + 1, "body": text, "author": author, "position": position})
    notes += [{"id": c["id"] * 10, "body": c["text"], "author": {"username": c["by"]}} for c in row["comments"]]
    return [{"notes": [note]} for note in notes]


def _pipelines(row: Row) -> list[Row]:
    outcomes = {*_checks(row).values()}
    if not outcomes:
        return []
    status = "running" if "pending" in outcomes else "failed" if "failed" in outcomes else "success"
    return [{"id": row["number"], "status": status, "sha": row["head"], "web_url": "https://ci.example.org/1"}]


def _path(address: str, below: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(address)
    assert parts.path.startswith(below), address
    return parts.path.removeprefix(below), {name: value[0] for name, value in parse_qs(parts.query).items()}


# ---- tea


def _tea(hub: Row, argv: list[str]) -> str:
    assert argv[0] == "api"
    rest, fields, method = argv[1:], {}, "GET"
    while rest[0].startswith("-"):
        flag, *rest = rest
        if flag == "--include":
            continue
        value, *rest = rest
        if flag == "-X":
            method = value
            continue
        for one in value.split(","):  # as 0.12 splits them
            name, is_one, text = one.partition("=")
            if not is_one:
                raise SystemExit(f'Error: invalid field format: "{one}" (expected key=value)')
            is_file = flag == "-F" and text.startswith("@")
            fields[name] = Path(text[1:]).read_text().removesuffix("\n") if is_file else text
    [address] = rest
    path, _ = _path(unquote(address), f"repos/{PATH}/")
    if method == "POST":
        assert path == "pulls"
        row = _open(hub, "tea", *(fields[name] for name in ("head", "base", "title", "body")))
        return json.dumps(_of_gitea(row))
    if path == "branches/main":
        return json.dumps({"name": "main", "protected": True, "user_can_push": not _is_protected(hub)})
    if path == "pulls":
        return json.dumps([_of_gitea(row) for row in _listed(hub)])
    if found := re.fullmatch(r"commits/([0-9a-f]{40})/status", path):
        [row] = [row for row in _listed(hub) if row["head"] == found[1]]
        words = {"failed": "failure", "passed": "success", "pending": "pending"}
        statuses = [{"context": name, "status": words[outcome]} for name, outcome in _checks(row).items()]
        return json.dumps({"state": "", "statuses": statuses or None})
    _, number, *what = path.split("/")
    [row] = [row for row in _listed(hub) if row["number"] == int(number)]
    if not what:
        return json.dumps(_of_gitea(row))
    if what == ["reviews"]:
        return json.dumps([_gitea_review(review) for review in row["reviews"]])
    [review] = [review for review in row["reviews"] if what == ["reviews", str(review["id"]), "comments"]]
    at, line, text = review["at"]
    return json.dumps([{"path": at, "position": line, "body": text}])


def _of_gitea(row: Row) -> Row:
    merged = row["state"] == "merged"
    return {
        **{"number": row["number"], "html_url": _url(row), "state": "open" if row["state"] == "open" else "closed"},
        **{"merged": merged, "merge_commit_sha": row["merged_as"] or None},
        "head": {"ref": row["branch"], "sha": row["head"], "repo_id": 7},
        "base": {"ref": row["base"], "sha": "", "repo_id": 7},
    }


def _gitea_review(review: Row) -> Row:
    return {
        **{"id": review["id"], "state": "REQUEST_CHANGES", "body": review["text"], "official": review["writes"]},
        **{"user": {"login": review["by"]}, "dismissed": False, "comments_count": int(bool(review["at"]))},
    }


# ---- a program of the user's own


def _own(hub: Row, argv: list[str]) -> str:
    if argv[0] == "open":
        _, branch, base, title, body = argv
        return f"Opened.\nSee {_url(_open(hub, 'own', branch, base, title, Path(body).read_text()))}.\n"
    _, branch = argv
    return json.dumps([_of_own(row) for row in _listed(hub, branch)])


def _of_own(row: Row) -> dict[str, Any]:
    return {
        **{"state": row["state"], "number": row["number"], "url": _url(row), "head": row["head"]},
        "base": row["base"],
        "merged_as": row["merged_as"],
        "reviews": [
            {"id": str(one["id"]), "author": one["by"], "text": one["text"]} for one in row["reviews"] if one["writes"]
        ],
        "checks": [{"name": name, "outcome": outcome} for name, outcome in _checks(row).items()],
    }


_PROGRAMS: dict[str, Callable[[Row, list[str]], str]] = {"gh": _gh, "glab": _glab, "tea": _tea, "own": _own}
