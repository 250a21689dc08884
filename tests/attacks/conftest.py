"""A project, programs that leave a mark, an agent that runs attacks, and a user who goes on as ever."""

from __future__ import annotations

import hashlib
import os
import pty
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..commands.conftest import Project, _prepared, _prepared_backlog, a_backlog, a_project
from .attacks import HOOKS, Attack

__all__ = ["_prepared", "_prepared_backlog", "a_backlog", "a_project"]

SECRET = "c4n4ry-0f-the-c0al-m1ne"
IN_ITS_PLACE = """g() { git "$@"; }; AT=$(sed -n 's/^gitdir: //p' .git); COMMON=/nowhere"""
LEAVING = """g() { git -C "$ROOT" "$@"; }; COMMON="$ROOT/.git"; AT="$COMMON" """


@dataclass(frozen=True)
class Evil:
    """Whoever runs a planted program is noted under the attack's name, unless it is the agent itself (or its tests)."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def prepare(self, attack: Attack) -> dict[str, str]:
        """Lay out what an attack finds outside of the repository; what it is given to know."""
        payload = f'#!/bin/sh\n[ "$MUTE" ] || echo "$0 $*" >> "{self.folder}/{attack.slug}.mark"\nexit 0\n'
        program, out = self.folder / f"{attack.slug}.sh", self.out / attack.slug
        _write_program(program, payload)
        if "$OUT" in attack.script:
            for hook in HOOKS:
                _write_program(out / "hooks" / hook, payload)
            (out / "settings").write_text(f"[core]\n\tfsmonitor = {program}\n")
            (out / "attributes").write_text("* filter=aa\n")
            (out / "objects").mkdir()
            plain_git("init", "-q", "-b", "main", str(out / "own"), cwd=self.folder)
            plain_git("config", "core.fsmonitor", str(program), cwd=out / "own")
        return {"EVIL": str(program), "OUT": str(out), "PAYLOAD": payload}

    def scripts(self, root: Path, attacks: Iterable[Attack], variant: str) -> list[str]:
        """For `sh`, each on its own, none to fail."""
        return [self._script(root, attack, variant) for attack in attacks]

    def _script(self, root: Path, attack: Attack, variant: str) -> str:
        common = {"ROOT": str(root), "MUTE": "1", "SECRET": SECRET}
        given = "".join(f"export {name}='{value}'\n" for name, value in {**common, **self.prepare(attack)}.items())
        plant = 'plant() { rm -f "$1"; printf "%s" "$PAYLOAD" > "$1"; chmod +x "$1"; }'
        return f"({given}{plant}\n{variant}\n{attack.script}\n) > /dev/null 2>&1 < /dev/null || true"

    def have_run(self) -> dict[str, str]:
        """The attacks whose program somebody has run, and how."""
        return {mark.stem: mark.read_text() for mark in self.folder.glob("*.mark")}


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    (tmp_path / "evil").mkdir()
    return Evil(tmp_path / "evil")


def _write_program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def plain_git(*words: str, cwd: Path, terminal: bool = False, given: bytes = b"") -> str:
    """As its user types it: their settings, their hooks, and no question whether it succeeds."""
    env = {
        name: value for name, value in os.environ.items() if name not in ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_PAGER")
    }
    env |= {"TERM": "dumb", "PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    if not terminal:
        done = subprocess.run(
            ["git", *words], cwd=cwd, env=env, input=given, capture_output=True, check=False, timeout=20
        )
        return os.fsdecode(done.stdout)
    ours, theirs = pty.openpty()
    subprocess.run(
        ["git", *words],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        check=False,
        timeout=20,
    )
    os.close(theirs)
    os.close(ours)
    return ""


def use_git_as_ever(project: Path, enough: Callable[[], object] = lambda: False) -> None:
    """What somebody types in the days after a mission; until it is enough."""
    for _ in _as_ever(project):
        if enough():
            return


def _as_ever(project: Path) -> Iterator[object]:
    def git(*words: str, terminal: bool = False, given: bytes = b"") -> str:
        return plain_git(*words, cwd=project, terminal=terminal, given=given)

    yield git("status")
    yield git("diff")
    (project / "README.md").write_text("as ever\n")
    yield git("diff")
    yield git("difftool", "-y", "-t", "zz")
    yield git("commit", "-qam", "as ever")
    yield git("commit", "--amend", "-q")
    yield git("commit", "--amend", "-qm", "as ever")
    yield git("log", "-p", "-2", "--ext-diff")
    yield git("log", "-1", terminal=True)
    yield git("lg")
    yield git("switch", "-qc", "elsewhere", "HEAD~1")
    (project / "README.md").write_text("elsewhere\n")
    yield git("commit", "-qam", "elsewhere")
    yield git("switch", "-q", "main")
    yield git("merge", "-q", "-m", "merged", "elsewhere")
    yield git("checkout", "-q", "--theirs", "README.md")
    yield git("commit", "-qam", "merged")
    yield git("rebase", "-q", "-i", "HEAD~1")
    yield git("rebase", "--abort")
    yield git("interpret-trailers", given=b"words\n")
    yield git("archive", "--format=zz", "HEAD")
    yield git("credential", "fill", given=b"protocol=https\nhost=localhost\n\n")
    for address in ("ssh://localhost:1/x", "git://localhost:1/x", "https://localhost:1/x"):
        yield git("ls-remote", address)
    origin = project.parent / "origin.git"
    yield plain_git("init", "-q", "--bare", str(origin), cwd=project.parent)
    yield git("config", "remote.origin.url", str(origin))
    yield git("push", "-q", "origin", "main")
    yield git("fetch", "-q", "origin")
    yield git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "-b", "main", str(origin), "sub")
    yield git("commit", "-qm", "sub")
    yield plain_git("checkout", "-q", "HEAD~1", cwd=project / "sub")
    yield git("submodule", "update")
    yield git("gc", "-q")


def git_folder(project: Path) -> dict[str, str]:
    """Each file of the user's `.git`, by its kind, mode and content; our own folder and refs aside, and objects."""
    return {name: told for name, told in _files_below(project / ".git", "") if not _is_ours(name)}


def _is_ours(name: str) -> bool:
    first, *rest = name.split("/")
    if first == "objects":
        return rest[0] == "pack" or len(rest[0]) == 2
    ours = (
        "capsule/",
        "worktrees/",
        "refs/capsule/",
        "refs/heads/capsule-",
        "logs/refs/heads/capsule-",
        "logs/refs/capsule/",
    )
    return name.startswith(ours)


def _files_below(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    for child in sorted(os.scandir(folder), key=lambda entry: entry.name):
        mode = child.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _files_below(Path(child.path), f"{name}{child.name}/")
        elif stat.S_ISREG(mode):
            yield f"{name}{child.name}", f"{mode:o} {hashlib.sha256(Path(child.path).read_bytes()).hexdigest()}"
        else:
            yield f"{name}{child.name}", f"{mode:o} {Path(child.path).readlink() if stat.S_ISLNK(mode) else ''}"


def differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}


def steering(project: Project) -> dict[str, bytes]:
    """What decides about git in this repository; ignored files aside, which we add to."""
    folder = project.path / ".git"
    names = ("config", "config.worktree", "info/attributes", "objects/info/alternates", "shallow", "HEAD", "commondir")
    worktrees = [p for p in folder.glob("worktrees/*/commondir") if p.read_bytes() != b"../..\n"]
    paths = [*(folder / name for name in names), *(folder / "hooks").iterdir(), *worktrees]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.is_file() and p.suffix != ".sample"}
