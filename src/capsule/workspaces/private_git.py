"""A git directory of an agent's own, for as long as it works: it can commit, and change nothing of the repository.

    <common>/capsule/private/<id>/git       the place's `.git` while an agent or a command is in it
    <common>/capsule/private/<id>/was       where the mission's branch stood then
    <common>/capsule/private/<id>/inside.*  the same in words that hold inside a sandbox: see `mounted_paths`

Refs, index and settings in there are copies, objects are its own, and those of the repository can be read through
`alternates`. Nothing of it is ever believed. When the agent has gone, no git of ours runs in there, or by settings from
there. Two files are read, HEAD and the mission's branch, and they are taken for nothing but ids. Its objects are sorted
out (plain files with the names of objects; no graph, no index, no alternates), and what is missing in the repository to
make up those commits goes into a pack, which is checked as if it came from a stranger over the network: each object by
its name, by what it says (no tree with a `.git`), and by what it points to.

**Everything can be repeated.** The directory is there from the moment it is whole until its commits are ours. A later
run takes over one that it finds, after a crash as after a phase. The branch moves from where it was, and from nowhere
else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import WorkspaceBroken
from capsule.system import git_environment
from capsule.system.files import head_bytes
from capsule.system.folders import make_own_folder, make_writable, remove_tree
from capsule.system.git import INSIDE_A_SANDBOX, Git, GitFailed
from capsule.system.git_directory import as_alternate, quoted
from capsule.system.git_objects import RefMove
from capsule.workspaces.salvage import keep_commit, shelve

_SEEN = ("refs/heads", "refs/tags", "refs/remotes")
_SETTINGS: tuple[git_environment.Setting, ...] = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
_OID = r"[0-9a-f]{40}|[0-9a-f]{64}"
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38,62}")
_PACK = re.compile(r"pack/pack-[0-9a-f]{40,64}\.pack")
_LONGEST_REF = 4096
_content = partial(head_bytes, limit=64 * 1024 * 1024)
_MOST_STEPS = 5
"""From one symbolic ref to the next."""
_OBJECTS = f"{Path(INSIDE_A_SANDBOX).parent}/objects"
"""The path at which a sandbox shows the repository's objects."""


class LeftCommits(NamedTuple):
    """The commits at which an agent left the mission's branch and its HEAD; '' is nowhere, or on the branch."""

    was: str
    branch: str
    stray: str

    @property
    def tips(self) -> list[str]:
        return [oid for oid in dict.fromkeys((self.branch, self.stray)) if oid and oid != self.was]


class PrivateGit:
    def __init__(self, git: Git, mission: str, branch: str) -> None:
        self._git = git
        self._mission = mission
        self._ref = f"refs/heads/{branch}"
        self._home = git.capsule_dir / "private" / mission
        self._was = self._home / "was"
        self.path = self._home / "git"

    # Before

    def make(self, entry: Path) -> None:
        """Fill it under another name, and rename it when it is whole."""
        self.remove()
        make_own_folder(self._home.parent)
        half = self._home / "half"
        fill_git_directory(self._git, half, head=f"ref: {self._ref}", index=entry / "index")
        self._was.write_text(self._git.ref(self._ref))
        half.rename(self.path)

    # After

    def left(self) -> LeftCommits:
        """Read as text where the agent left its branch and HEAD; no git of ours runs in there."""
        head = self._read("HEAD")
        home = head.startswith("ref:") and head.removeprefix("ref:").strip() == self._ref
        was = _content(self._was).decode()
        was = was if re.fullmatch(_OID, was) else ""
        return LeftCommits(was, self._follow(self._ref), "" if home else self._follow("HEAD"))

    def import_commits(self, left: LeftCommits) -> None:
        """Bring the commits of branch and HEAD into the repository, checked; no ref moves."""
        if not left.tips:
            return
        try:
            for pack in self._sorted_out():
                self._git.content("index-pack", str(pack), env=self._agent_environment)
            self._fetch(left)
        except (GitFailed, OSError, RecursionError) as fault:
            words = f"What the agent committed is refused: {fault}."
            raise WorkspaceBroken(words, "Its files are still there.") from fault

    def move_branch(self, left: LeftCommits) -> None:
        """Move the mission's branch to where the agent left it; commits that it cannot take are kept under a ref."""
        if left.branch in ("", left.was):
            return
        try:
            self._git.move_refs(RefMove(self._ref, left.branch, left.was), why="capsule: an agent's commits")
        except GitFailed:
            now = self._git.ref(self._ref)
            if now == left.was:
                raise
            if now != left.branch:
                keep_commit(self._git, self._mission, left.branch, "commits on a branch that was moved meanwhile")

    def remove(self) -> None:
        """Rename it out of the way in one step, then remove it."""
        if self.path.is_dir() and not self._home.is_symlink():
            remove_tree(self._home / "gone")
            self.path.rename(self._home / "gone")
        remove_tree(self._home)

    def shelve_refused(self) -> None:
        """Keep a refused directory, for a person to look into."""
        shelve(self._git, self.path, f"{self._mission}-{os.urandom(4).hex()}.git")
        self.remove()

    # What it says

    def _follow(self, name: str) -> str:
        """Return the id behind a ref, or ''."""
        for _ in range(_MOST_STEPS):
            told = self._read(name)
            if re.fullmatch(_OID, told):
                return told
            if not told.startswith("ref:"):
                packed = _content(self.path / "packed-refs").decode(errors="replace")
                found = re.search(rf"(?m)^({_OID}) {re.escape(name)}$", packed)
                return found[1] if found else ""
            name = told.removeprefix("ref:").strip()
        return ""

    def _read(self, name: str) -> str:
        if name != "HEAD" and (not name.startswith("refs/") or ".." in name or "\0" in name):
            return ""
        return head_bytes(self.path / name, _LONGEST_REF).decode(errors="replace").strip()

    # What it holds

    @property
    def _agent_environment(self) -> dict[str, str]:
        return {"GIT_OBJECT_DIRECTORY": str(self.path / "objects")}

    def _sorted_out(self) -> list[Path]:
        """Remove all but plain files with the names of objects and packs; return the packs."""
        objects = self.path / "objects"
        if objects.is_symlink() or not objects.is_dir() or not _content(self._was):
            raise OSError("it is not as it was made")
        make_writable(objects)
        packs = []
        for file in (Path(folder, name) for folder, *names in os.walk(objects) for name in chain(*names)):
            if file.is_dir() and not file.is_symlink():
                continue
            name = file.relative_to(objects).as_posix()
            plain = file.is_file() and not file.is_symlink()
            if plain and _PACK.fullmatch(name):
                packs.append(file)
            elif not (plain and _LOOSE.fullmatch(name)):
                file.unlink()
        (objects / "info").mkdir(exist_ok=True)
        (objects / "info/alternates").write_bytes(as_alternate(self._git.common_dir / "objects"))
        return packs

    def _fetch(self, left: LeftCommits) -> None:
        """Pack what the repository lacks of these commits, check the pack, and move it in."""
        asked = "".join(f"{oid}\n" for oid in left.tips) + f"^{left.was}\n"
        command = ("pack-objects", "-q", "--revs", "--local", "--non-empty", "--threads=1", str(self._home / "pack"))
        name = self._git.content(*command, env=self._agent_environment, input=asked.encode()).out.decode().strip()
        if not name:
            return
        pack, index = self._home / f"pack-{name}.pack", self._home / "checked.idx"
        index.unlink(missing_ok=True)
        self._git.content("index-pack", "--strict", "--threads=1", "-o", str(index), str(pack))
        target = self._git.common_dir / "objects" / "pack"
        target.mkdir(exist_ok=True)
        pack.replace(target / pack.name)
        index.replace((target / pack.name).with_suffix(".idx"))


def fill_git_directory(git: Git, target: Path, *, head: str, index: Path | None = None) -> None:
    """Make a git directory that reads the repository's objects and holds copies of its refs, and shares nothing else.

    `head` is the content of its HEAD: an id, or `ref: refs/heads/…`. Commits there are written into this directory.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in ("", "objects", "objects/info", "refs", "info"):
        (target / folder).mkdir()
    common = git.common_dir
    files = {
        "HEAD": f"{head}\n".encode(),
        "config": _settings(git),
        "packed-refs": "".join(f"{oid} {name}\n" for name, oid in git.refs(*_SEEN).items()).encode(),
        "objects/info/alternates": as_alternate(common / "objects"),
        "info/exclude": _content(common / "info/exclude"),
        "info/attributes": _content(common / "info/attributes"),
    }
    for name, content in files.items():
        if content:
            (target / name).write_bytes(content)
    for name, source in (("index", index), ("shallow", common / "shallow")):
        if source and source.exists():
            shutil.copy2(source, target / name)  # with its age: see `Snapshots.copy_index`


def mounted_paths(git: Git, place: Path, private: Path, layers: Sequence[tuple[str, str]] = ()) -> SandboxPaths:
    """Say how a sandbox shows a place at the checkout's own path, with this git directory for its `.git`.

    Below that path lie the repository's objects and the private directory too, so both are shown elsewhere; a `.git`
    file and a list of alternates that lead there are laid over the real ones, which stay valid outside at any moment.
    """
    dot_git, alternates = private.parent / "inside.git", private.parent / "inside.alternates"
    nothing = private.parent / "inside.nothing"
    folders = object_folders(git)
    inside = [f"{_OBJECTS}-{number}" for number, _ in enumerate(folders)]
    dot_git.write_text(f"gitdir: {INSIDE_A_SANDBOX}\n")
    alternates.write_text("".join(f"{path}\n" for path in inside))
    nothing.touch()
    objects = list(zip(inside, map(str, folders), strict=True))
    borrowing = [path for path, folder in objects if Path(folder, "info/alternates").exists()]
    return SandboxPaths(
        place=str(place),
        at=str(git.root),
        stand_ins=((INSIDE_A_SANDBOX, str(private)),),
        shown=(
            (str(git.root / ".git"), str(dot_git)),
            *objects,
            *((f"{path}/info/alternates", str(nothing)) for path in borrowing),
            (f"{INSIDE_A_SANDBOX}/objects/info/alternates", str(alternates)),
        ),
        layers=tuple(layers),
    )


def unmounted_paths(git: Git, place: Path, private: Path, layers: Sequence[tuple[str, str]] = ()) -> SandboxPaths:
    """Say what a sandbox without mounts lets through: the place, whose `.git` file names this git directory.

    Nothing else is seen of the checkout and its repository but objects, and the dependencies that the place has copies
    of: an environment's copy reads the original.
    """
    return SandboxPaths(
        place=str(place),
        writable=(str(private),),
        protected=(str(place / ".git"), str(private / "objects/info/alternates")),
        shown=tuple((folder, folder) for folder in map(str, object_folders(git))),
        layers=tuple(layers),
        hidden=(str(git.root), str(git.common_dir)),
    )


def object_folders(git: Git) -> list[Path]:
    """List the repository's objects, and those of every repository that it borrows from."""
    found = [git.common_dir / "objects"]
    for folder in found:
        lines = _content(folder / "info/alternates").splitlines()
        named = (Path(os.path.normpath(folder / os.fsdecode(line))) for line in lines if line and line[:1] != b"#")
        found += [path for path in named if path.is_dir() and path not in found]
    return found


def _settings(git: Git) -> bytes:
    """Say whose commits they are, and what decides how files are stored; no remote, no hook, no key to sign with."""
    person, ours = git.identity, git.capsule_dir / "git"
    kept = git_environment.about_content(_content(ours / "settings"))
    lines = [os.fsdecode(_content(ours / "config"))]
    for name, value in (*kept, *_SETTINGS, ("user.name", person.name), ("user.email", person.email)):
        section, _, rest = name.partition(".")
        inner, _, key = rest.rpartition(".")  # the text between the first and the last dot is arbitrary
        header = f"[{section} {quoted(inner)}]" if inner else f"[{section}]"
        lines.append(f"{header}\n\t{key} = {quoted(value)}\n")
    return os.fsencode("".join(lines))
