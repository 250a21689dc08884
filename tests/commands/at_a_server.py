"""A project whose main is on a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..git_server import GitServer, moves_of, run
from .conftest import Project

MAIN = "refs/heads/main"
Made = TypeVar("Made", bound=Project)


class AtServer:
    """Hosts a project, and knows how the server sees it."""

    def __init__(self, project: Project, server: GitServer, name: str = "project", *, to: str = "remote") -> None:
        self.server, self.name = server, name
        self.bare = server.host(project.path, name)
        project.git("remote", "add", "origin", server.url(name))
        project.always["CAPSULE_MERGE__TO"] = to

    def at(self, ref: str) -> str:
        return run("rev-parse", ref, cwd=self.bare)

    def main(self) -> str:
        return self.at(MAIN)

    def show(self, what: str) -> str:
        return run("show", what, cwd=self.bare)

    def log(self, *options: str) -> list[str]:
        return run("log", "--first-parent", *options, "main", cwd=self.bare).splitlines()

    def hook(self, name: str, text: str) -> Path:
        hook = self.bare / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(text)
        hook.chmod(0o755)
        return hook

    def assert_only_forward(self, ref: str = MAIN, *, begun_here: bool = False) -> None:
        """No update of a ref was forced; `begun_here`: its first move made it."""
        for old, new in moves_of(self.bare, ref)[begun_here:]:
            run("merge-base", "--is-ancestor", old, new, cwd=self.bare)


def in_a_linked_worktree(_: AtServer, project: Made, folder: Path) -> Made:
    """A linked worktree of the same repository."""
    project.git("worktree", "add", "-q", "-b", "side", str(folder))
    return like(project, folder)


def in_a_bare_clone(there: AtServer, project: Made, folder: Path) -> Made:
    """A worktree of a bare clone as the project; other than that, it is like the one given."""
    folder.mkdir()
    run("clone", "-q", "--bare", there.server.url(there.name), str(folder / "mine.git"))
    run("worktree", "add", "-q", str(folder / "project"), "main", cwd=folder / "mine.git")
    run("config", "user.name", "Bob", cwd=folder / "mine.git")
    run("config", "user.email", "bob@example.org", cwd=folder / "mine.git")
    return like(project, folder / "project")


def like(project: Made, path: Path) -> Made:
    """The same project, agents and settings, worked on from another folder."""
    other = type(project).__new__(type(project))
    other.__dict__.update(project.__dict__)
    other.path = path
    return other


LAYOUTS: dict[str, Callable[[AtServer, Any, Path], Any]] = {"linked": in_a_linked_worktree, "bare": in_a_bare_clone}
