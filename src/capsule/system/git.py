"""Git: the only module that starts it.

An agent works inside the repository whose git we use, and can change nearly all of it: the settings, the hooks, the
`.git` file of its worktree, the flags in an index. So there are three ways in:

- `content` is for files, trees and commits. It uses a git directory of our own, `<common>/capsule/git`, that shares
  nothing with the repository but its objects: no filter, merge driver or index flag planted in there takes part.
  What the user had set about line endings, filters (LFS, git-crypt) and ignored files is copied when Capsule first
  enters the repository and used from then on. There are no refs in it: name commits and trees by their ids.
- `repository` is for refs and for the list of worktrees. It names the git directory itself, so no `.git` file is
  believed, and it never looks at the content of files.

- `across` is for commands that talk to a remote (`workspaces/remote.py`). Only these run with the user's own settings,
  credentials and transport.

All run without hooks, pager, editor, prompts or replaced objects, the first two without network, and give up after a
time-out.

Most questions need no process: objects are read and written by `git_objects`, refs are read by `git_directory`, trees
are compared here. Anything odd or large, and any error, goes to a git process of its own, and is reported in its words.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import IO, NamedTuple

from capsule.core.errors import CapsuleError, ObjectLost, PrerequisiteMissing, Refused
from capsule.system import git_directory, git_environment, git_locks
from capsule.system.files import head_bytes, sweep_temps, write_atomically
from capsule.system.git_objects import (
    ABSENT,
    Checkout,
    Commit,
    Difference,
    Identity,
    ObjectReader,
    ObjectWriter,
    RefMove,
    TreeEntry,
    as_instruction,
    commit_content,
    read_checkout,
    read_commit,
    read_differences,
    read_entry,
    read_person,
    read_tree,
    shown,
    tree_content,
)
from capsule.system.stop import Stop
from capsule.system.umask import of_the_user

OLDEST = (2, 38)
INSIDE_A_SANDBOX = "/run/capsule/git"
"""The path at which a sandbox shows a mission's private git directory."""
_PRIVATE = re.compile(r"(.+)/capsule/private/[^/]+/git", re.DOTALL)
TIMEOUT = 600.0
_SLICE = 0.2
"""Seconds between looks at whether a command that talks to a remote has ended, or has to."""
_GRACE = 3.0
_MOST_ANSWERED = 64 * 1024 * 1024
"""Bytes of an answer of a remote; one that is longer is none."""
_MOST_SAID = 64 * 1024
"""Bytes that are kept of the beginning, and of the end, of what a server says beside its answer."""
_GET_GIT = "Install git 2.38 or newer: https://git-scm.com/downloads"
_WHOLE_ID = r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b"
_DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv")
_PATCH = ("-p", "-U0", "--text", "--no-color", "--full-index")
_CHECKOUT = "checkout"
"""The note of the main worktree for linked ones: git has none."""
_LONGEST_PATH = 8192
_MANY_FOLDERS = 300
"""For more than this, a separate process is faster."""
_MANY_COMMITS = 100
_LISTINGS = 10
"""How often worktrees are listed while others are made and removed."""
_WHOLE = r"[0-9a-f]{40}|[0-9a-f]{64}"
_FALSE = ("false", "no", "off", "0", "")
_NO_NAMES = {b"", b".", b"..", b".git"}
EXCLUDED = ("/.capsule/*", "!/.capsule/config.yaml", "!/.capsule/workflows/", "!/.capsule/prompts/", "/worklog.md")
"""Patterns for what Capsule puts into a project."""


class GitFailed(CapsuleError):
    """A git command of ours failed, in git's own words: the decisive line as message, everything in `said`."""

    def __init__(self, message: str, hint: str = "", *, said: str = "") -> None:
        super().__init__(message, hint)
        self.said = said


class ObjectMissing(GitFailed, ObjectLost):
    """A command of ours failed because an object is not there, or is damaged."""


class NotARepository(CapsuleError):
    """There is no git repository to work in."""


class GitResult(NamedTuple):
    code: int
    out: bytes
    err: str
    ended: str = ""
    """`timeout`, `silent`, `stopped` or `flooded` (its answer had no end) if we ended it."""


class Git:
    """One repository. `root` is its main worktree, wherever in it we were started.

    Where the repository is bare, `root` is the linked worktree we were started in. `git_dir` is the git directory of
    `root`, with its HEAD and its index; `common_dir` holds what all worktrees share. Most often they are the same.
    """

    def __init__(
        self, root: Path, common_dir: Path, object_format: str = "sha1", *, git_dir: Path | None = None
    ) -> None:
        self.root = root
        self.common_dir = common_dir
        self.git_dir = git_dir or common_dir
        self.capsule_dir = common_dir / "capsule"
        self._calls = 0
        self._object_format = object_format
        self._commits: dict[str, Commit] = {}
        self._made: dict[str, str] = {}
        """The trees of commits that we made ourselves."""
        self._folders: dict[str, list[TreeEntry]] = {}
        self._files: tuple[str, list[TreeEntry]] = ("", [])
        self._differences: dict[tuple[str, str], list[Difference]] = {}

    @classmethod
    def find(cls, start: Path) -> Git:
        """Find the repository around `start`; ignore `core.bare` and `core.worktree`, which an agent can set."""
        told = _tell(start, "--git-common-dir", "--absolute-git-dir", "--show-object-format")
        common_dir, git_dir, object_format = Path(told[0]), Path(told[1]), told[2]
        if told[0] == INSIDE_A_SANDBOX:
            hint = "Run it outside: a phase can change files here, and commit them."
            raise Refused("The repository cannot be reached from inside a phase: nothing was changed.", hint)
        if private := _PRIVATE.fullmatch(told[0]):  # a mission's place, with a git directory of its own
            place = Path(_tell(start, "--show-toplevel")[0])
            ours = place.parts[-3:-1] == (".capsule", "worktrees")
            return cls.find(place.parents[2] if ours else Path(private[1]))
        top = git_directory.checkout_around(start, git_dir)
        # A main worktree has an index, from its first commit on, whatever the settings say.
        bare = not (common_dir / "index").exists() and _setting(common_dir, "core.bare") == "true"
        if top is None or (bare and git_dir == common_dir):
            raise _bare(start, common_dir)
        if git_dir == common_dir:
            return cls(top, common_dir, object_format)
        if bare:
            root = git_directory.project_worktree(common_dir, top)
            return cls(root, common_dir, object_format, git_dir=git_directory.entry_of(root, common_dir) or git_dir)
        # Noted by us, or set as git does for a submodule.
        noted = (
            os.fsdecode(head_bytes(common_dir / "capsule" / _CHECKOUT, _LONGEST_PATH)),
            _setting(common_dir, "core.worktree"),
        )
        guesses = [Path(os.path.normpath(common_dir / each)) for each in noted if each]
        root_found = git_directory.main_worktree(common_dir, top, guesses)
        if root_found is None:
            hint = "Name it with --project-dir; missions are kept there."
            raise NotARepository(f"Git does not know where the main worktree of {common_dir} is.", hint)
        return cls(root_found, common_dir, object_format)

    def seen_from(self, worktree: Path, git_dir: Path) -> Git:
        """Return the same repository as seen from a linked worktree, whose git directory is given."""
        return Git(worktree, self.common_dir, self._object_format, git_dir=git_dir)

    # The two ways in

    def content(
        self,
        *args: str,
        worktree: Path | None = None,
        index: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,
        ok: Sequence[int] = (0,),
        umask: int = -1,
    ) -> GitResult:
        """Run a command about files, trees and commits, by id. `umask`: for files that are not our own."""
        place = worktree or self.root
        environment = self._content_environment | {"GIT_WORK_TREE": str(place)} | dict(env or {})
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        return self._ask(args, environment, place, input, ok, umask=umask)

    def repository(
        self,
        *args: str,
        git_dir: Path | None = None,
        input: bytes | None = None,
        ok: Sequence[int] = (0,),
        umask: int | None = None,
    ) -> GitResult:
        """Run a command about refs and worktrees, seen from the main worktree or from another one's git directory.

        What it writes is the user's, by their umask, unless another `umask` is given.
        """
        places = {"GIT_DIR": str(git_dir or self.git_dir), "GIT_COMMON_DIR": str(self.common_dir)}
        environment = self._hardened | places | {"GIT_WORK_TREE": str(self.root)} | git_environment.AS_CAPSULE
        return self._ask(args, environment, self.root, input, ok, umask=of_the_user() if umask is None else umask)

    def across(self, *args: str, seconds: float, silence: float | None = None, stop: Stop | None = None) -> GitResult:
        """Run a command that talks to a remote, as the user would; its failure is data.

        It has neither terminal nor window to ask for a password. It is ended with everything it started when its time
        is over, when it prints nothing for the time of `silence`, or when a stop is requested.
        """
        places = {"GIT_DIR": str(self.git_dir), "GIT_COMMON_DIR": str(self.common_dir), "GIT_WORK_TREE": str(self.root)}
        environment = git_environment.across_the_network() | places
        while True:
            self._calls += 1
            answer = _spawn_across(args, environment, self.root, (seconds, silence or seconds), stop)
            lock = git_locks.in_the_way(answer.err) if answer.code else None
            ours = lock and lock.is_relative_to(self.common_dir)
            if not lock or not ours or not git_locks.wait_for_lock(lock, self.common_dir, [self.root, self.common_dir]):
                return answer

    # Who

    @cached_property
    def identity(self) -> Identity:
        """Return the author of the user's commits; never guessed from the name of the machine."""
        environment = git_environment.as_the_user([("user.useConfigOnly", "true")])
        environment |= {"GIT_DIR": str(self.common_dir), "GIT_WORK_TREE": str(self.root)}
        answer = _spawn(("var", "GIT_COMMITTER_IDENT"), environment, self.root)
        self._calls += 1
        if answer.code:
            hint = 'git config --global user.name "Your Name"; git config --global user.email you@example.org'
            raise CapsuleError("Git does not know who you are.", hint)
        return read_person(answer.out.decode(errors="replace").strip())[0]

    # Refs

    def resolve(self, name: str, git_dir: Path | None = None) -> str:
        """Return the commit of a branch, a tag or an id; '' if there is none."""
        at = git_directory.read_head(git_dir or self.git_dir) if name == "HEAD" else name
        plain = at if not at or re.fullmatch(_WHOLE, at) else git_directory.read_ref(self.common_dir, at)
        if plain and self._reader.kinds([plain]) == ["commit"]:
            return plain
        command = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        answer = self.repository(*command, git_dir=git_dir, ok=(0, 1, 128))
        return "" if answer.code else answer.out.decode().strip()

    def refs(self, *patterns: str) -> dict[str, str]:
        """Return each ref that is one of these or lies below one, and what it points to."""
        read = git_directory.read_refs(self.common_dir, patterns)
        if read is not None:
            return read
        rows = self.repository("for-each-ref", "--format=%(objectname) %(refname)", *patterns).out.decode().splitlines()
        return {name: oid for oid, name in (row.split(" ", 1) for row in rows)}

    def ref(self, name: str) -> str:
        """Return the object of one ref by its full name; '' if there is none."""
        return self.refs(name).get(name, "")

    def move_refs(self, *moves: RefMove, why: str = "capsule") -> None:
        """Move all of these refs or none."""
        lines = b"".join(as_instruction(move) for move in moves)
        self.repository("update-ref", "-m", why, "--stdin", "-z", input=lines)

    def checked_out(self, git_dir: Path | None = None) -> str:
        """Return the branch of the main checkout, or of one whose git directory is given; '' if HEAD is detached.

        It may have no commit yet.
        """
        at = git_directory.read_head(git_dir or self.git_dir)
        if at is None:
            answer = self.repository("symbolic-ref", "--quiet", "HEAD", git_dir=git_dir, ok=(0, 1))
            at = answer.out.decode(errors="replace").strip()
        return at.removeprefix("refs/heads/") if at.startswith("refs/") else ""

    def checkouts(self) -> list[Checkout]:
        """List the main worktree first, unless the repository is bare, then the linked ones."""
        for _ in range(_LISTINGS - 1):
            with contextlib.suppress(GitFailed):  # one was removed while git looked at it
                return self._checkouts()
        return self._checkouts()

    def _checkouts(self) -> list[Checkout]:
        read = git_directory.read_checkouts(self.common_dir, self._main)
        return self._list_worktrees() if read is None else read

    def _list_worktrees(self) -> list[Checkout]:
        """Ask git, which names of the main worktree the git directory itself where that lies elsewhere."""
        records = self.repository("worktree", "list", "--porcelain", "-z").out.split(b"\0\0")
        main, *linked = (read_checkout(record) for record in records if record)
        return [*([main._replace(path=self._main)] if self._main else []), *linked]

    @property
    def _main(self) -> Path | None:
        return self.root if self.git_dir == self.common_dir else None

    # Commits

    def commit(self, oid: str) -> Commit:
        """Read a commit. Commits never change, so each is read once."""
        if oid not in self._commits:
            self._commits[oid] = read_commit(self._object("commit", oid))
        return self._commits[oid]

    def commit_tree(
        self, tree: str, parents: Sequence[str], message: str, *, by: Identity, date: str, author: Commit | None = None
    ) -> str:
        """Make a commit that nothing points to yet: the same arguments give the same commit."""
        named = (author.author, author.author_date) if author else (by, date)
        people = {"author": (*named[0], named[1]), "committer": (*by, date)}
        given = message.encode(errors="surrogateescape")
        content = commit_content(tree, parents, people, given)
        whole = content and self._reader.kinds([tree, *parents]) == ["tree", *("commit" for _ in parents)]
        commit = self._written("commit", content) if content and whole else ""
        commit = commit or self._commit_tree(tree, parents, given, people)
        self._made[commit] = tree
        return commit

    def _commit_tree(
        self, tree: str, parents: Sequence[str], message: bytes, people: Mapping[str, tuple[str, str, str]]
    ) -> str:
        facts = ("NAME", "EMAIL", "DATE")
        told = [(role, *pair) for role, person in people.items() for pair in zip(facts, person, strict=True)]
        env = {f"GIT_{role.upper()}_{fact}": value for role, fact, value in told}
        above = [word for parent in parents for word in ("-p", parent)]
        return self.content("commit-tree", *above, tree, env=env, input=message).out.decode().strip()

    def is_ancestor(self, older: str, newer: str) -> bool:
        near = older == newer or self._is_near(older, newer)
        return near or self.content("merge-base", "--is-ancestor", older, newer, ok=(0, 1)).code == 0

    def _is_near(self, older: str, newer: str) -> bool:
        """Tell whether one is an ancestor of the other, and not far from it."""
        with contextlib.suppress(LookupError):
            return any(older in commit.parents for level in self._back_to(older, [newer]) for commit in level)
        return False

    def commits_since(self, base: str, *tips: str) -> list[Commit] | None:
        """List commits of the tips that the base lacks, newest first; None if only git can find them."""
        with contextlib.suppress(LookupError):
            found = [commit for level in self._back_to(base, tips) for commit in level]
            return found if all(commit.parents for commit in found) else None
        return None

    def _back_to(self, base: str, tips: Sequence[str]) -> Iterator[list[Commit]]:
        """Yield commits from the tips back to the base; raise LookupError if the path is long or incomplete."""
        if (self.common_dir / "shallow").exists():
            raise LookupError
        seen: set[str] = {base}
        level = [*dict.fromkeys(tip for tip in tips if tip != base)]
        while level:
            seen |= {*level}
            unknown = [oid for oid in level if oid not in self._commits]
            for oid, found in zip(unknown, self._reader.read(unknown), strict=True):
                if not found or found.kind != "commit" or len(seen) > _MANY_COMMITS:
                    raise LookupError(oid)
                self._commits[oid] = read_commit(found.content)
            commits = [self._commits[oid] for oid in level]
            yield commits
            level = [*dict.fromkeys(p for commit in commits for p in commit.parents if p not in seen)]

    def merge_base(self, one: str, other: str) -> str:
        """Return the newest common commit; '' if there is none."""
        for older, newer in ((one, other), (other, one)):
            if self._is_near(older, newer):
                return older
        return self.content("merge-base", one, other, ok=(0, 1)).out.decode().strip()

    def merge_trees(self, ours: str, theirs: str, called: str = "") -> tuple[str, tuple[str, ...]]:
        """Return the tree that merging two commits gives, and the paths in conflict, which hold markers in it.

        Markers tell the id of `theirs`, unless it is `called` something: then the same conflict gives the same file.
        """
        if self._is_near(ours, theirs):
            return self.tree_in(theirs), ()
        command = ("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z")
        ref = f"refs/heads/{called}"  # in the git directory of our own, and for as long as this takes
        if called:
            self.content("update-ref", ref, theirs)
        try:
            answer = self.content(*command, ours, called or theirs, ok=(0, 1))
        finally:
            if called:
                self.content("update-ref", "-d", ref)
        tree, *conflicts = answer.out.rstrip(b"\0").split(b"\0")
        return tree.decode(), tuple(dict.fromkeys(shown(path) for path in conflicts if path))

    # Trees and files

    def list_tree(self, tree: str, *, recursive: bool = False) -> list[TreeEntry]:
        """List one folder, which is remembered, or every file below it, of which only the last list is kept."""
        if recursive:
            if self._files[0] != tree:
                self._files = (tree, self._files_below(tree))
            return self._files[1]
        folder = self.tree_of(tree)
        if folder not in self._folders:
            self._fetch_folders([folder])
        return self._folders[folder]

    def _files_below(self, tree: str) -> list[TreeEntry]:
        files: list[TreeEntry] = []
        level, folders = [(b"", self.tree_of(tree))], 0
        while level:
            folders += len(level)
            if folders > _MANY_FOLDERS:
                return self._list_tree("-r", tree)
            self._fetch_folders([oid for _, oid in level])
            rows = [(prefix, entry) for prefix, oid in level for entry in self._folders[oid]]
            files += [entry._replace(path=prefix + entry.path) for prefix, entry in rows if entry.kind != "tree"]
            level = [(prefix + entry.path + b"/", entry.oid) for prefix, entry in rows if entry.kind == "tree"]
        return sorted(files, key=lambda entry: entry.path)

    def _fetch_folders(self, folders: Iterable[str]) -> None:
        unknown = [oid for oid in dict.fromkeys(folders) if oid not in self._folders]
        for oid, found in zip(unknown, self._reader.read(unknown), strict=True):
            rows: list[TreeEntry] | None = None
            if found and found.kind == "commit":
                self._commits[oid] = read_commit(found.content)
                rows = self.list_tree(oid)
            elif found and found.kind == "tree":
                with contextlib.suppress(ValueError):  # a damaged one: git says what is wrong with it
                    rows = [*read_tree(found.content, len(oid) // 2)]
            self._folders[oid] = self._list_tree(oid) if rows is None else rows

    def _list_tree(self, *args: str) -> list[TreeEntry]:
        rows = self.content("ls-tree", "-z", "--full-tree", *args).out.split(b"\0")
        return [read_entry(row) for row in rows if row]

    def entry_at(self, tree: str, path: bytes) -> TreeEntry | None:
        """Return the entry at a path of a tree or commit; its own path is the last name alone."""
        found = None
        for number, name in enumerate(path.split(b"/")):
            if number and (found is None or found.kind != "tree"):
                return None
            rows = self.list_tree(found.oid if found else tree)
            found = next((entry for entry in rows if entry.path == name), None)
        return found

    def make_tree(self, entries: Iterable[TreeEntry]) -> str:
        rows = list(entries)
        kinds = self._reader.kinds([entry.oid for entry in rows])
        whole = all(entry.kind in (kind, "commit") for entry, kind in zip(rows, kinds, strict=True))
        plain = not any(entry.path in _NO_NAMES or b"/" in entry.path for entry in rows)
        tree = self._written("tree", tree_content(rows)) if whole and plain else ""
        if not tree:
            given = b"".join(f"{e.mode} {e.kind} {e.oid}\t".encode() + e.path + b"\0" for e in rows)
            tree = self.content("mktree", "-z", input=given).out.decode().strip()
        self._folders[tree] = rows
        return tree

    def write_blob(self, content: bytes, path: str = "") -> str:
        """Store these bytes as they are, or as the user's filters and line endings make a file of them at this path."""
        how = ("--path", path) if path and self.converts([os.fsencode(path)], self.root) else ("--no-filters",)
        written = self._written("blob", content) if how == ("--no-filters",) else ""
        return written or self.content("hash-object", "-w", "--stdin", *how, input=content).out.decode().strip()

    def blob_of(self, file: Path) -> str:
        """Return the object id of a file's bytes, or of a link."""
        if file.is_symlink():
            return self._names.name("blob", os.fsencode(file.readlink()))
        return self._names.name_of_file(file)

    def read_blob(self, oid: str) -> bytes:
        return self._object("blob", oid)

    def read_blobs(self, oids: Sequence[str], most: int) -> list[bytes] | None:
        """Read these; None if one of them is larger."""
        if any(size > most for size in self._reader.sizes(oids)):
            return None
        return [self.read_blob(oid) for oid in oids]

    def converts(self, paths: Iterable[bytes], worktree: Path) -> bool:
        """Tell whether git may store one of these files differently: its bytes, its mode, a link."""
        if any(_is_odd(key.lower(), value.lower()) for key, value in self._kept):
            return True
        around = {p for path in paths for p in (worktree / os.fsdecode(path)).parents if p.is_relative_to(worktree)}
        general = git_environment.attributes_of_the_user(), self.capsule_dir / "git/info/attributes"
        return any(os.path.lexists(file) for file in (*general, *(folder / ".gitattributes" for folder in around)))

    def ignored(self, paths: Iterable[bytes], worktree: Path | None = None) -> set[bytes]:
        """Return those of these paths that git ignores, whether they are tracked or not."""
        asked = b"\0".join(paths)
        command = ("check-ignore", "-z", "--stdin", "--no-index")
        listed = self.content(*command, worktree=worktree, input=asked, ok=(0, 1)).out if asked else b""
        return {*filter(None, listed.split(b"\0"))}

    def tree_of(self, oid: str) -> str:
        """Return the tree of a commit we have read or made; any other id as it is."""
        known = self._commits.get(oid)
        return known.tree if known else self._made.get(oid, oid)

    def tree_in(self, oid: str) -> str:
        """Return the tree of a commit, reading it if it is unknown; a tree is its own."""
        known = self.tree_of(oid)
        if known != oid or oid in self._folders or self._reader.kinds([oid]) == ["tree"]:
            return known
        return self.commit(oid).tree

    def differences(self, old: str, new: str) -> list[Difference]:
        """List what differs between two ids, which cannot change: remembered."""
        between = (self.tree_of(old), self.tree_of(new))
        if between[0] == between[1]:
            return []
        if between not in self._differences:
            found = self._compared(*between)
            if found is None:
                self._diff(between)
            else:
                self._differences[between] = found
        return self._differences[between]

    def _compared(self, old: str, new: str) -> list[Difference] | None:
        """Compare as `git diff-tree -r --raw` does; None if too many folders differ."""
        nothing = (ABSENT, "0" * len(old))
        found: list[Difference] = []
        level, folders = [(b"", old, new)], 0
        while level:
            folders += len(level)
            if folders > _MANY_FOLDERS:
                return None
            self._fetch_folders(oid for _, *pair in level for oid in pair if oid)
            below = []
            for prefix, *pair in level:
                ours, theirs = ({e.path: e for e in self._folders[oid]} if oid else {} for oid in pair)
                for name in (name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)):
                    sides = (ours.get(name), theirs.get(name))
                    one, other = (side.oid if side and side.kind == "tree" else "" for side in sides)
                    below += [(prefix + name + b"/", one, other)] if one or other else []
                    was, now = ((s.mode, s.oid) if s and s.kind != "tree" else nothing for s in sides)
                    if was != now:
                        kind = "M" if was[0][:3] == now[0][:3] else "T"
                        kind = "A" if was == nothing else "D" if now == nothing else kind
                        found.append(Difference(prefix + name, kind, was, now))
            level = below
        return sorted(found)

    def patch(self, old: str, new: str) -> tuple[list[Difference], bytes]:
        """Return the differences, and their `git diff` without context lines."""
        between = (self.tree_of(old), self.tree_of(new))
        patch = self._diff(between, *_PATCH)
        return self._differences[between], patch

    def _diff(self, between: tuple[str, str], *more: str) -> bytes:
        answer = self.content(*_DIFF, *more, "--end-of-options", *between)
        self._differences[between], rest = read_differences(answer.out)
        return rest

    def read_file(self, tree: str, path: str) -> bytes | None:
        """Return the content of a file in a tree or commit; None if there is no such file."""
        with contextlib.suppress(GitFailed):
            entry = self.entry_at(tree, os.fsencode(path)) if tree else None
            return self._object("blob", entry.oid) if entry and entry.kind == "blob" else None
        return None

    def write_tree(self, index: Path, worktree: Path | None = None) -> str:
        return self.content("write-tree", index=index, worktree=worktree).out.decode().strip()

    # Below the surface

    def make_own_directory(self) -> None:
        """Make the git directory that `content` uses, if it does not exist."""
        assert self._content_environment

    @property
    def calls(self) -> int:
        """Count the processes that were started."""
        return self._calls + self._reader.started

    def _object(self, kind: str, oid: str) -> bytes:
        found = self._reader.read([oid])[0]
        return found.content if found and found.kind == kind else self.content("cat-file", kind, oid).out

    def _written(self, kind: str, content: bytes) -> str:
        """Write an object and return its id; '' where git has to write it."""
        return self._writer.write(kind, content) or "" if self._writer else ""

    @cached_property
    def _reader(self) -> ObjectReader:
        """Make the reader; it is closed with this object, so it must not hold a reference to it."""
        us = weakref.ref(self)

        def start() -> subprocess.Popen[bytes]:
            git = us()
            assert git is not None  # it is in use
            environment, pipe = git._content_environment, subprocess.PIPE
            return subprocess.Popen(
                [_program(environment.get("PATH", os.defpath)), "cat-file", "--batch-command"],
                env=environment,
                cwd="/",
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                process_group=0,
            )

        reader = ObjectReader(start, TIMEOUT)
        weakref.finalize(self, reader.close)
        return reader

    @cached_property
    def _names(self) -> ObjectWriter:
        return ObjectWriter(self.common_dir / "objects", self._object_format)

    @cached_property
    def _writer(self) -> ObjectWriter | None:
        """Return None if objects are shared beyond the umask: then git writes them."""
        return None if any(key.lower() == "core.sharedrepository" for key, _ in self._kept) else self._names

    @cached_property
    def _hardened(self) -> dict[str, str]:
        return git_environment.hardened()

    @cached_property
    def _content_environment(self) -> dict[str, str]:
        own = self.capsule_dir / "git"
        shallow = self.common_dir / "shallow"
        settings = git_environment.with_filters_run_in(self.root, self._kept)
        environment = git_environment.hardened([("lfs.storage", str(self.common_dir / "lfs")), *settings])
        environment |= {"GIT_DIR": str(own), "GIT_OBJECT_DIRECTORY": str(self.common_dir / "objects")}
        return environment | ({"GIT_SHALLOW_FILE": str(shallow)} if shallow.exists() else {})

    @cached_property
    def _kept(self) -> list[git_environment.Setting]:
        """Return the user's settings about content; make our own git directory where there is none yet."""
        own = self.capsule_dir / "git"
        for name in ("refs", "info"):
            (own / name).mkdir(parents=True, exist_ok=True)
        for folder in (own, own / "info"):
            sweep_temps(folder)
        version = 0 if self._object_format == "sha1" else 1
        extension = f"[extensions]\n\tobjectFormat = {self._object_format}\n" if version else ""
        _write_if_new(own / "HEAD", b"ref: refs/heads/none\n")
        _write_if_new(
            own / "config", f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{extension}".encode()
        )
        if self._main and self.common_dir != self.root / ".git":
            _write_if_new(self.capsule_dir / _CHECKOUT, os.fsencode(self.root))
        ignored = "\n".join(("", *EXCLUDED, "/.capsule-*.tmp", "")).encode()
        _write_if_new(own / "info/exclude", _read(self.common_dir / "info/exclude") + ignored)
        file = own / "settings"
        if not file.exists():  # taken once: what appears in the repository's settings later may be an agent's
            environment = git_environment.as_the_user() | {"GIT_DIR": str(self.common_dir)}
            listing = _spawn(("config", "--list", "--includes", "-z"), environment, self.root)
            self._calls += 1
            rows = git_environment.about_content(listing.out)
            text = "".join(f"{key}\n{value}\0" for key, value in rows)
            write_atomically(file, text.encode(errors="surrogateescape"))
        return git_environment.about_content(file.read_bytes())

    def _put_aside_damaged(self, oid: str) -> None:
        """Move a damaged object file away: it keeps git from writing that object again."""
        file = self.common_dir / "objects" / oid[:2] / oid[2:]
        if file.is_file():
            shelf = self.capsule_dir / "damaged"
            shelf.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                file.rename(shelf / oid)

    def _ask(
        self,
        args: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        given: bytes | None,
        ok: Sequence[int],
        *,
        umask: int,
    ) -> GitResult:
        self._calls += 1
        answer = _spawn(args, environment, cwd, given, umask)
        lock = git_locks.in_the_way(answer.err) if answer.code else None
        if lock and git_locks.wait_for_lock(lock, self.common_dir, [self.root, self.common_dir, cwd]):
            return self._ask(args, environment, cwd, given, ok, umask=umask)
        if answer.code not in ok:
            if lost := _missing(args, answer, environment, cwd):
                self._put_aside_damaged(lost)
                hint = "Restore it from an intact copy; `git fsck` lists what is missing."
                raise ObjectMissing(f"The repository lacks the object {lost}.", hint, said=answer.err)
            way_out = (
                f"If no git is at work, remove {lock}" if lock else f"See what git makes of it: git -C {cwd} status"
            )
            message, hint = f"git {args[0]} failed: {_cause(answer)}", f"{way_out}; then run the same command again."
            raise GitFailed(message, hint, said=answer.err)
        return answer


def _missing(args: Sequence[str], answer: GitResult, environment: Mapping[str, str], cwd: Path) -> str:
    """Return the first object that a failed command named or complained about, and that is not there; '' if all are."""

    def kinds(names: Iterable[str]) -> dict[str, str]:
        asked = "".join(f"{name}\n" for name in names).encode()
        listed = _spawn(("cat-file", "--batch-check=%(objecttype)"), environment, cwd, asked).out.decode()
        return dict(zip(names, listed.splitlines(), strict=False)) if asked else {}

    named = dict.fromkeys(re.findall(_WHOLE_ID, f"{answer.err} {' '.join(args)}"))
    found = kinds([oid for oid in named if oid.strip("0")])
    found |= kinds([f"{oid}^{{tree}}" for oid, kind in found.items() if kind == "commit"])
    return next((name for name, kind in found.items() if kind.endswith(" missing")), "")


def _spawn(
    args: Sequence[str], environment: Mapping[str, str], cwd: Path, given: bytes | None = None, umask: int = -1
) -> GitResult:
    """Run git out of reach of the terminal's Ctrl-C: an interrupted one costs more than one that finishes."""
    try:
        with _readable(given) as stdin:
            process = subprocess.Popen(
                [_program(environment.get("PATH", os.defpath)), *args],
                env=environment,
                cwd=cwd,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                umask=umask,
            )
    except FileNotFoundError as error:
        if cwd.is_dir():
            raise PrerequisiteMissing("git is not installed.", _GET_GIT) from error
        raise GitFailed(f"The folder {cwd} does not exist.") from error
    try:
        out, err = _output_of(process)
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {args[0]} did not end within {TIMEOUT:.0f} s") from error
    finally:
        if process.poll() is None:
            process.kill()
        with process:  # closes the pipes and waits
            pass
    return GitResult(process.returncode, out, err.decode(errors="replace"))


def _spawn_across(
    args: Sequence[str], environment: Mapping[str, str], cwd: Path, limits: tuple[float, float], stop: Stop | None
) -> GitResult:
    """Run git in a session of its own, so that neither it nor ssh finds a terminal, and so that it ends as a whole."""
    try:
        process = subprocess.Popen(
            [_program(environment.get("PATH", os.defpath)), *args],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise PrerequisiteMissing("git is not installed.", _GET_GIT) from error
    try:
        out, err, ended = _heard_until(process, limits, stop)
    finally:
        _end_session(process)
    return GitResult(process.returncode, out, err.decode(errors="replace"), ended)


class _Ends:
    """The beginning and the end of what a server says, which may say gigabytes."""

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()

    def add(self, piece: bytes) -> None:
        room = _MOST_SAID - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * _MOST_SAID:
            del self._tail[:-_MOST_SAID]

    def joined(self) -> bytes:
        gap = b"\n" if len(self._tail) > _MOST_SAID else b""
        return bytes(self._head + gap + self._tail[-_MOST_SAID:])


def _heard_until(
    process: subprocess.Popen[bytes], limits: tuple[float, float], stop: Stop | None
) -> tuple[bytes, bytes, str]:
    """Return what it printed until it ended, and why we are to end it, if so: it may last, and be silent, so long.

    A connection that ssh shares stays open behind the command, and holds its streams: they are not waited for.
    """
    assert process.stdout and process.stderr
    answer, said = bytearray(), _Ends()
    heard = {process.stdout.fileno(): answer.extend, process.stderr.fileno(): said.add}
    waiting, left, why = select.poll(), {*heard}, ""
    began = last = time.monotonic()
    for fd in (*heard, *([stop.fileno()] if stop else ())):
        waiting.register(fd, select.POLLIN)
    while not why and len(answer) <= _MOST_ANSWERED:
        ready = {fd for fd, _ in waiting.poll(_SLICE * 1000)} if left else set()
        for fd in ready & left:
            piece, last = os.read(fd, 1 << 16), time.monotonic()
            heard[fd](piece)
            if not piece:
                waiting.unregister(fd)
                left.remove(fd)
        if not left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SLICE)
        if process.poll() is not None and not ready & left:
            break
        now, (whole, silence) = time.monotonic(), limits
        late = "timeout" if now - began > whole else "silent" if now - last > silence else ""
        why = "stopped" if stop and stop.requested else late
    return bytes(answer), said.joined(), why or ("flooded" if len(answer) > _MOST_ANSWERED else "")


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of a command: git removes its locks on SIGTERM."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
    with process:  # closes the pipes
        pass


def _output_of(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return what it printed, once it has ended.

    A git that has closed both its streams ends at once, so it is waited for without a clock: `communicate` would look
    for its end again and again, and sleep in between.
    """
    assert process.stdout and process.stderr
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    waiting, left = select.poll(), {*heard}
    for fd in heard:
        waiting.register(fd, select.POLLIN)
    while left:
        ready = waiting.poll(TIMEOUT * 1000)
        if not ready:
            raise subprocess.TimeoutExpired(process.args, TIMEOUT)
        for fd, _ in ready:
            heard[fd].append(os.read(fd, 1 << 16))
            if not heard[fd][-1]:
                waiting.unregister(fd)
                left.remove(fd)
    process.wait()
    out, err = (b"".join(pieces) for pieces in heard.values())
    return out, err


def _is_odd(key: str, value: str) -> bool:
    """Tell whether a setting makes a file on disk differ from what is stored; filters need attributes to apply."""
    if key in ("core.symlinks", "core.filemode"):
        return value in _FALSE
    return key == "core.attributesfile" or (key == "core.autocrlf" and value not in _FALSE)


@contextlib.contextmanager
def _readable(given: bytes | None) -> Iterator[int | IO[bytes]]:
    """Yield git's input, written in full before git starts.

    From a pipe, a git whose runner is killed would read what was written by then: a `git add` of no paths adds all.
    """
    if given is None:
        yield subprocess.DEVNULL
        return
    if hasattr(os, "memfd_create"):
        nameless: IO[bytes] = os.fdopen(os.memfd_create("given"), "w+b")
    else:
        import tempfile  # noqa: PLC0415 (it costs at every start)

        nameless = tempfile.TemporaryFile()  # noqa: SIM115 (closed below)
    with nameless as file:
        file.write(given)
        file.seek(0)
        yield file


@cache
def _program(path: str) -> str:
    """Find git once, by its absolute path, which no working directory can change."""
    folders = filter(None, git_environment.absolute_entries(path).split(os.pathsep))
    found = (
        file for file in (Path(folder, "git") for folder in folders) if os.access(file, os.X_OK) and file.is_file()
    )
    if first := next(found, None):
        return str(first)
    raise FileNotFoundError("git")


def check_version() -> None:
    """Refuse a git that is too old; called before work begins, and after odd answers of git."""
    said = _spawn(("version",), dict(os.environ), Path("/")).out.decode(errors="replace")
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < OLDEST:
        version = said.strip() or "This git"
        raise PrerequisiteMissing(f"{version} is too old: Capsule needs 2.38 or newer.", _GET_GIT)


def _tell(start: Path, *what: str) -> list[str]:
    """Ask `rev-parse`: one by one where a path holds a line break, so that answers cannot be told apart."""
    answer = _rev_parse(start, *what)
    lines = os.fsdecode(answer.out).removesuffix("\n").split("\n")
    if not answer.code and len(lines) > len(what):
        return [os.fsdecode(_rev_parse(start, each).out).removesuffix("\n") for each in what]
    if not answer.code and len(lines) == len(what):
        return lines
    check_version()
    if "not a git repository" in answer.err:
        raise NotARepository(f"{start} is not in a git repository.", "git init")
    if "bare repository" in answer.err or "work tree" in answer.err:
        raise _bare(start, start)
    raise NotARepository(f"{start}: {_cause(answer)}", f"Find out what git has against it: git -C {start} status")


def _rev_parse(start: Path, *what: str) -> GitResult:
    return _spawn(("rev-parse", "--path-format=absolute", *what), git_environment.as_the_user(), start)


def _setting(common_dir: Path, name: str) -> str:
    command = ("config", "--file", str(common_dir / "config"), "--get", name)
    return os.fsdecode(_spawn(command, git_environment.as_the_user(), common_dir).out).removesuffix("\n")


def _bare(start: Path, git_dir: Path) -> NotARepository:
    files = sorted((git_dir / "worktrees").glob("*/gitdir"))
    linked = [Path(os.fsdecode(_read(file).removesuffix(b"\n"))).parent for file in files]
    theirs = [str(path) for path in linked if ".capsule" not in path.parts and path.is_dir()]
    hint = f"Run Capsule in one of its worktrees: {', '.join(theirs)}" if theirs else "Make a worktree of it first"
    return NotARepository(f"{start} is in a bare repository.", hint if theirs else f"{hint}: git worktree add ../main")


def _cause(answer: GitResult) -> str:
    """Return the line with the cause: the first fatal or error one, else the last."""
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    cause = (telling or lines[-1:] or [f"exit code {answer.code}"])[0]
    return cause.removeprefix("fatal: ").removeprefix("error: ")


def _read(file: Path) -> bytes:
    """Return what a file holds, also one that the user has linked there; empty if there is none."""
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


def _write_if_new(file: Path, content: bytes) -> None:
    if _read(file) != content:
        write_atomically(file, content)
