"""A small forge on top of a bare repository, asked by stand-ins for `gh`, `glab`, `tea` and a program of one's own.

    forge = Forge(folder, bare); path = forge.install("gh")        # then put `path` first on the PATH

Its requests are in one JSON file. What a forge does by itself it does here, too: a request shows the commit that its
branch is at, until it ends; GitHub and Gitea close a request whose branch is deleted, GitLab leaves it open; no second
request is opened for the same branch. The answers have the form of the real ones (program.py).

`calls` are the arguments of every call. `behave` makes it misbehave: `offline`, `refuse` (with these words), or
`die_after_open`: it opens a request, and is killed before it says so.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..git_server import run

Row = dict[str, Any]
_PROGRAM = """#!{python} -SEs
import sys
sys.path.insert(0, {root!r})
from tests.fake_forge.program import main
main({name!r}, {folder!r})
"""
AS_ADA = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


class Forge:
    def __init__(self, folder: Path, bare: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"bare": str(bare), "requests": [], "behave": {}, "next": 1}))
        self.bare = bare

    @property
    def _file(self) -> Path:
        return self.folder / "forge.json"

    def install(self, name: str) -> Path:
        """Put the program into a folder, which is returned: it belongs first on the PATH."""
        there = self.folder / "bin"
        there.mkdir(exist_ok=True)
        root = str(Path(__file__).parents[2])
        (there / name).write_text(_PROGRAM.format(python=sys.executable, root=root, name=name, folder=str(self.folder)))
        (there / name).chmod(0o755)
        return there

    @contextmanager
    def opened(self) -> Iterator[Row]:
        """Read everything, and write it back after the block; one process at a time."""
        with (self.folder / "forge.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            hub: Row = json.loads(self._file.read_text())
            yield hub
            beside = self._file.with_suffix(".new")
            beside.write_text(json.dumps(hub))
            beside.rename(self._file)

    def behave(self, **how: Any) -> None:
        """From the next call on it behaves like this."""
        with self.opened() as hub:
            hub["behave"] = how

    @property
    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def requests(self) -> list[Row]:
        with self.opened() as hub:
            return [settled(hub, row) for row in hub["requests"]]

    @property
    def request(self) -> Row:
        [row] = self.requests
        return row

    @contextmanager
    def changed(self) -> Iterator[Row]:
        """The newest request, to be changed."""
        with self.opened() as hub:
            yield settled(hub, hub["requests"][-1])

    # What people and machines do there

    def review(
        self, text: str, *, by: str = "ada", writes: bool = True, at: tuple[str, int, str] | None = None
    ) -> None:
        """Request changes; `at` is a remark on a line of a file."""
        with self.changed() as row:
            row["reviews"].append({"id": _next(row), "by": by, "text": text, "writes": writes, "at": at})

    def comment(self, text: str, by: str = "mallory") -> None:
        with self.changed() as row:
            row["comments"].append({"id": _next(row), "by": by, "text": text})

    def check(self, name: str, outcome: str) -> None:
        """Report on the commit that is proposed now."""
        with self.changed() as row:
            row["checks"].setdefault(row["head"], {})[name] = outcome

    def close(self) -> None:
        with self.changed() as row:
            row["state"] = "closed"

    def reopen(self) -> None:
        with self.changed() as row:
            row["state"] = "open"

    def retarget(self, base: str) -> None:
        """Have it merged into another branch, which is made of main if it is new."""
        with self.changed() as row:
            row["base"] = base
        if not run("for-each-ref", f"refs/heads/{base}", cwd=self.bare):
            run("update-ref", f"refs/heads/{base}", "refs/heads/main", cwd=self.bare)

    def merge(self, how: str = "merge", *, delete: bool = False) -> str:
        """Merge the newest request as the button does: `merge`, `squash` or `rebase`; return the commit on its base."""
        with self.changed() as row:
            base = f"refs/heads/{row['base']}"
            main = run("rev-parse", base, cwd=self.bare)
            tree = run("merge-tree", "--write-tree", main, row["head"], cwd=self.bare).splitlines()[0]
            parents = [main, row["head"]] if how == "merge" else [main]
            words = [word for parent in parents for word in ("-p", parent)]
            commit = run(
                *AS_ADA, "commit-tree", tree, *words, "-m", f"{row['title']} (!{row['number']})", cwd=self.bare
            )
            run("update-ref", base, commit, main, cwd=self.bare)
            row.update(state="merged", merged_as=commit)
            if delete:
                run("update-ref", "-d", f"refs/heads/{row['branch']}", cwd=self.bare)
        return commit

    def delete_branch(self) -> None:
        run("update-ref", "-d", f"refs/heads/{self.request['branch']}", cwd=self.bare)


def _next(row: Row) -> int:
    return 1 + sum(len(row[kind]) for kind in ("reviews", "comments"))


def settled(hub: Row, row: Row) -> Row:
    """Bring an open request up to date with its branch."""
    if row["state"] == "open":
        head = head_of(hub, row["branch"])
        row["head"] = head or row["head"]
        if not head and row["kind"] != "glab":
            row["state"] = "closed"
    return row


def head_of(hub: Row, branch: str) -> str:
    listed = run("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}", cwd=Path(hub["bare"]))
    return listed.splitlines()[0] if listed else ""
