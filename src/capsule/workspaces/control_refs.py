"""Refs and flags that an agent has no business to move, and that the user moves every day.

A branch moves because its user commits, pulls, resets or merges, because another mission is published, or because an
agent put it there. Nobody signs a move, so it is told by what goes along with it:

- Whoever commits, pulls or merges in the main checkout leaves a row in its reflog, and so do we. The branch that is
  checked out there cannot move without one, except behind its checkout's back.
  Where that log was cut short meanwhile, it says nothing.
- Otherwise it is the agent's if it brings commits that this mission's worktree made: its HEAD, its branch or its reflog
  leads to them, and neither the main checkout's reflog nor a remote does.

Then the branch is put back, from exactly where it was found; the commits are kept under a ref, and the checkout is
brought along where that loses nothing. Any other move is somebody's own affair: an agent that commits in the user's
checkout cannot be told from its user, so a move of the branch that is checked out there is *told*.

A replaced object (`git replace`) makes the user see another history than everybody else: new ones go, and what they
held is kept.

The flags of the main index that hide an edited file from `git status` are taken off again, where they are new.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from capsule.system.files import read_regular
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import Entry, Identity, RefMove, shown
from capsule.system.lock import FileLock
from capsule.workspaces.checkouts import bring_along, places_on
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.ours import ours_on
from capsule.workspaces.salvage import keep_commit

_HEADS, _REPLACED = "refs/heads/", "refs/replace/"
_LARGEST_LOG = 64 * 1024 * 1024
_MOST_TIPS = 200
_LOCK_WAIT = 60.0
_NAMED = 5
_NOT_MADE_THERE = ("Fast-forward", "moving", "checkout", "(start)", "(finish)", "(abort)", "reset")
"""Words of a reflog where HEAD only went to a commit that was there already."""
_CAPSULE = Identity("Capsule", "capsule@localhost")


class Refs(msgspec.Struct, frozen=True):
    """What is remembered of refs, and of the main index."""

    heads: dict[str, str]
    replaced: dict[str, str]
    logged: int
    """How long the main checkout's reflog was."""
    hidden: tuple[str, ...]
    """Files of the main index that git was told not to look at: flag and name, byte by byte."""
    home: str = ""
    """The branch that is checked out there."""


class RefWatch:
    """On behalf of one mission, whose own branch is its own affair."""

    def __init__(self, git: Git, mission: str, worktree: Path | None, branch: Callable[[], str]) -> None:
        self._git = git
        self._mission = mission
        self._worktree = worktree
        self._branch = branch
        self._log = git.git_dir / "logs" / "HEAD"
        self._flags: tuple[object, tuple[str, ...]] = (None, ())
        self._known: tuple[object, dict[str, str]] = (None, {})
        self._notices: list[str] = []
        self._noticed: set[str] = set()

    def now(self) -> Refs:
        refs = self._refs()
        return Refs(
            {name: oid for name, oid in refs.items() if name.startswith(_HEADS)},
            {name: oid for name, oid in refs.items() if name.startswith(_REPLACED)},
            _size(self._log),
            self._hidden(),
            self._home(),
        )

    def notices(self) -> list[str]:
        told, self._notices = self._notices, []
        return told

    def put_right(self, before: Refs) -> list[str]:
        refs = self._refs()
        told = [*self._put_replaced_right(before, refs), *self._put_heads_right(before, refs)]
        return [*told, *self._show_what_is_hidden(before)]

    def _refs(self) -> dict[str, str]:
        """Git is asked only where a file of refs has another stamp."""
        stamp = self._stamp()
        if self._known[0] != stamp:
            self._known = (stamp, self._ask())
        return self._known[1]

    def _ask(self) -> dict[str, str]:
        """Any program can make a branch whose name is no text; such a one is nobody's main branch."""
        format, names = "--format=%(objectname) %(refname)", (_HEADS.rstrip("/"), _REPLACED.rstrip("/"))
        found = {}
        for row in self._git.repository("for-each-ref", format, *names).out.splitlines():
            oid, _, name = row.partition(b" ")
            with contextlib.suppress(UnicodeDecodeError):
                found[name.decode()] = oid.decode()
        found.pop(_HEADS + self._branch(), None)
        return found

    def _stamp(self) -> object:
        common = str(self._git.common_dir)
        files = [f"{common}/packed-refs", f"{common}/reftable/tables.list"]
        for folder in (f"{common}/{_HEADS}", f"{common}/{_REPLACED}"):
            files += [f"{place.rstrip('/')}/{name}" for place, _, names in os.walk(folder) for name in names]
        own = f"{common}/{_HEADS}{self._branch()}"
        return [(file, _stamp_of(file)) for file in files if file != own]

    # Branches

    def _put_heads_right(self, before: Refs, now: dict[str, str]) -> list[str]:
        moved = [(name, old, now.get(name, "")) for name, old in before.heads.items() if now.get(name) != old]
        if not moved:
            return []
        home = self._home()
        told = [words for name, old, new in moved if (words := self._put_head_right(name, old, new, home, before))]
        self._notice_moves([row for row in moved if row[0] in (home, before.home)])
        return told

    def _home(self) -> str:
        return _read(self._git.git_dir / "HEAD").decode(errors="replace").strip().removeprefix("ref: ")

    def _notice_moves(self, moved: Sequence[tuple[str, str, str]]) -> None:
        """Where the branch still is where we neither put it nor put it back from."""
        now = self._refs() if moved else {}
        for name, _, new in moved:
            branch = name.removeprefix(_HEADS)
            if new and now.get(name) == new and new not in self._noticed | ours_on(self._git, branch):
                self._noticed.add(new)
                self._notices.append(f"{branch} moved to {new[:12]} while it ran, not by Capsule")

    def _put_head_right(self, name: str, old: str, new: str, home: str, before: Refs) -> str:
        called, logged = name.removeprefix(_HEADS), self._logged_since(before.logged)
        if not new:
            return self._back(name, old, new, f"{called} was removed") if name == home else ""
        log_is_whole = self._log.exists() and _size(self._log) >= before.logged
        behind_its_back = name == home and log_is_whole and new not in logged
        if behind_its_back or self._brings_work_of_ours(called, old, new, logged):
            return self._back(name, old, new, f"{called} was moved to {new[:12]}")
        return ""

    def _brings_work_of_ours(self, branch: str, old: str, new: str, logged: Sequence[str]) -> bool:
        made, tips = self._tips()
        arrived = self._reached([new], [old])
        work = arrived & self._reached(tips, [old]) if tips else set()
        if not work:
            return False
        elsewhere = [oid for oid in logged if oid not in made]
        remotes = list(self._git.refs("refs/remotes").values())
        others = self._reached(elsewhere, [old], "--first-parent") | self._reached(remotes, [old])
        return bool(work - others - (ours_on(self._git, branch) - made))

    def _back(self, name: str, old: str, new: str, words: str) -> str:
        lock = FileLock(self._git.capsule_dir / "locks" / "main.lock")
        lock.acquire(_LOCK_WAIT)
        with lock:
            kept = keep_commit(self._git, self._mission, new, "a branch that was moved") if new else ""
            try:
                self._git.move_refs(RefMove(name, old, new), why="capsule: put back")
            except GitFailed:  # it has moved on: by somebody who knows better than we do
                return ""
            self._known = (None, {})
            if new:
                for place in places_on(self._git, name.removeprefix(_HEADS)):
                    bring_along(self._git, place, new, old)
        return f"{words} (kept as {kept})" if kept else words

    def _tips(self) -> tuple[set[str], list[str]]:
        """What this worktree's reflog says was made there, and every commit that its HEAD, branch and reflog name."""
        entry = LinkedWorktree(self._git, self._worktree).entry() if self._worktree else None
        rows = _rows(entry / "logs" / "HEAD") if entry else []
        made = {oid for oid, words in rows if words and not any(said in words for said in _NOT_MADE_THERE)}
        head = self._git.resolve("HEAD", entry) if entry else ""
        named = [head, self._git.resolve(_HEADS + self._branch()), *(oid for oid, _ in rows[-_MOST_TIPS:])]
        return made, [oid for oid in dict.fromkeys(named) if oid]

    def _reached(self, tips: Iterable[str], without: Iterable[str], *flags: str) -> set[str]:
        """Commits that these lead to; one that is not there any more leads nowhere."""
        words = "\n".join((*tips, *(f"^{oid}" for oid in without))).encode()
        listed = self._git.content("rev-list", "--ignore-missing", *flags, "--stdin", input=words, ok=(0, 128))
        return set(listed.out.decode().split())

    def _logged_since(self, size: int) -> list[str]:
        """Where the main checkout's HEAD has been since; a log that was tidied up meanwhile counts as a whole."""
        return [oid for oid, _ in _rows(self._log, size if _size(self._log) >= size else 0)]

    # Replaced objects

    def _put_replaced_right(self, before: Refs, now: dict[str, str]) -> list[str]:
        found = {name: oid for name, oid in now.items() if name.startswith(_REPLACED)}
        new = [name for name, oid in found.items() if before.replaced.get(name) != oid]
        gone = [name for name in before.replaced if name not in found]
        moves = [RefMove(name, before.replaced.get(name, ""), found.get(name, "")) for name in (*new, *gone)]
        if not moves:
            return []
        kept = [self._keep_object(found[name]) for name in new]
        self._git.move_refs(*moves, why="capsule: put back")
        self._known = (None, {})
        return [f"{len(moves)} objects were replaced by others" + (f" (kept as {', '.join(kept)})" if kept else "")]

    def _keep_object(self, oid: str) -> str:
        """In a commit, whatever it is: nothing else can be kept under a ref of ours."""
        kind = self._git.content("cat-file", "-t", oid).out.decode().strip()
        if kind == "commit":
            return keep_commit(self._git, self._mission, oid, "a replaced object")
        entry = Entry("040000" if kind == "tree" else "100644", kind, oid, b"replacement")
        tree = self._git.make_tree([entry] if kind in ("tree", "blob") else [])
        commit = self._git.commit_tree(tree, [], "a replaced object", by=_CAPSULE, date="@0 +0000")
        return keep_commit(self._git, self._mission, commit, "a replaced object")

    # The main index

    def _hidden(self) -> tuple[str, ...]:
        index = self._git.git_dir / "index"
        stamp = _stamp_of(index)
        if self._flags[0] != stamp:
            rows = self._git.content("ls-files", "-v", "-z", index=index).out.split(b"\0") if stamp else []
            marked = [row for row in rows if row[:1] == b"S" or row[:1].islower()]
            self._flags = (stamp, tuple(row.decode("latin-1") for row in marked))
        return self._flags[1]

    def make_an_index(self) -> None:
        """Where there is none, the next `git commit -a` would take every file out."""
        head = self._git.resolve("HEAD")
        if head:
            self._git.content("read-tree", head, index=self._git.git_dir / "index")

    def _show_what_is_hidden(self, before: Refs) -> list[str]:
        """A file that is not on disk is hidden by a sparse checkout, which is the user's to choose."""
        new = [row for row in self._hidden() if row not in before.hidden]
        named = [(row[0], row[2:].encode("latin-1")) for row in new]
        paths = [path for flag, path in named if flag != "S" or os.path.lexists(self._git.root / os.fsdecode(path))]
        if not paths:
            return []
        rows = b"\0".join(paths)
        for flag in ("--no-skip-worktree", "--no-assume-unchanged"):
            command = ("update-index", "-z", flag, "--stdin")
            self._git.content(*command, index=self._git.git_dir / "index", input=rows, ok=(0, 128))
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        names = ", ".join(map(shown, paths[:_NAMED]))
        return [f"git was told not to look at {names}{more} in the checkout"]


def _rows(log: Path, since: int = 0) -> list[tuple[str, str]]:
    """The commits a reflog leads to, and its words."""
    lines = _read(log)[since:].decode(errors="replace").splitlines()
    parts = (line.partition("\t") for line in lines)
    return [(facts.split(" ", 2)[1], words) for facts, _, words in parts if facts.count(" ") > 1]


def _read(file: Path) -> bytes:
    with contextlib.suppress(OSError):
        return read_regular(file, _LARGEST_LOG)
    return b""


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.lstat().st_size
    return 0


def _stamp_of(file: str | Path) -> tuple[int, int, int, int] | None:
    with contextlib.suppress(OSError):
        found = os.lstat(file)
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None
