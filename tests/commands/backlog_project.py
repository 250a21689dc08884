"""A project with a backlog, as `capsule init` makes it, and commands typed in it.

`say` runs the command line in this process, which is quick; `capsule` starts the real program, which is slower and
proves that the two are the same.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from capsule.cli import main
from capsule.core.item import Item
from capsule.plain_files import parse_yaml
from capsule.wiring import open_project, open_tracker

from .conftest import Project, Said

STAMP = "2026-02-11T09:30:00Z"


class BacklogProject(Project):
    def say(self, *words: str, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(cwd or self.path),
            mock.patch.dict(os.environ, self.environment(**env), clear=True),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main(list(words))
            except SystemExit as stop:  # argparse's own way to end after --help
                code = int(stop.code or 0)
        return Said(code, out.getvalue(), err.getvalue())

    @property
    def backlog(self) -> Path:
        return self.path / "BACKLOG.yaml"

    def hold(self, *items: dict[str, Any], last_id: int = 0) -> None:
        """These items are in the backlog; the file is the tracker's own, so it need not be committed."""
        rows = ["schema_version: 1", f"last_id: {last_id or len(items)}", "items:" if items else "items: []"]
        for number, item in enumerate(items, 1):
            values = {"id": f"WRK-{number:03}", "title": f"Item {number}", "status": "new", "created": STAMP} | item
            first, *rest = (f"{name}: {value}" for name, value in values.items())
            rows += [f"  - {first}", *(f"    {row}" for row in rest)]
        self.backlog.write_text("\n".join(rows) + "\n")

    def item(self, item_id: str = "WRK-001") -> Item:
        with mock.patch.dict(os.environ, self.environment(), clear=True):
            return open_tracker(open_project(str(self.path))).item(item_id)

    def fields(self, item_id: str = "WRK-001") -> dict[str, Any]:
        """An item exactly as the file has it."""
        data: Any = parse_yaml(self.backlog.read_bytes(), "BACKLOG.yaml")
        return next(item for item in data["items"] if item["id"] == item_id)

    def subjects(self, count: int = 1) -> list[str]:
        return self.git("log", f"-{count}", "--format=%s").splitlines()

    def documents(self, *kinds: str, item: str = "WRK-001", text: str = "written\n") -> None:
        for kind in kinds:
            self.write(f"changes/{item}_item-1/{item}_item-1_{kind}.md", text)
        self.commit("documents")


def prepared(folder: Path) -> Path:
    """A repository in which somebody said `capsule init`, and nothing else."""
    project = BacklogProject(folder / "project", folder)
    project.path.mkdir()
    project.git("init", "-q", "-b", "main")
    project.git("config", "user.name", "Ada")
    project.git("config", "user.email", "ada@example.org")
    assert project.say("init").code == 0
    return project.path


def copied(prepared: Path, folder: Path) -> BacklogProject:
    shutil.copytree(prepared, folder / "project", symlinks=True)
    return BacklogProject(folder / "project", folder)


def blocked(kind: str = "clarification", **fields: Any) -> dict[str, Any]:
    """An item that waits for a human, as the file has it."""
    reason = "which colour?" if kind == "clarification" else "risk is high, above the guardrail low"
    came_from = {"blocked_from_status": "ready", "blocked_reason": f'"{reason}"', "blocked_type": kind}
    return {"status": "blocked", **came_from, **fields}


@contextlib.contextmanager
def unchanged(project: BacklogProject) -> Iterator[None]:
    """Neither a commit nor a byte of any file of the project; Capsule's own folder in .git is not looked at."""
    before = project.head(), _files(project.path)
    yield
    assert (project.head(), _files(project.path)) == before


def _files(root: Path) -> dict[str, bytes]:
    inside = (path for path in root.rglob("*") if ".git" not in path.relative_to(root).parts[:1])
    return {str(path): path.read_bytes() for path in inside if path.is_file()}
