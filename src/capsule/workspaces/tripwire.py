"""Detect an agent without a sandbox that leaves its place and plants programs in the repository.

Agents work in a git directory of their own, so one that stays in its place changes nothing here. One that does not can
still write a hook, a filter or a setting that names a program, and the next `git status` that its user types would run
it. So what git would execute or be led astray by is copied before a phase: hooks, `info/`, the settings that start a
program, the files that redirect a repository, and those of the git directory of our own (`system.git`). Where they
differ after it, the old bytes are put back, what was found goes on the shelf, and the mission needs a person.

Everything else moves by itself while people and other missions work: branches, HEAD, the index, other settings,
worktrees that come and go. None of it counts as a breach. Lock files without a holder are removed and reported.

**A crash changes nothing:** the copy is on the disk before the agent starts, and the next run that finds it without a
holder compares first.
"""

# ruff: noqa: PTH110, PTH112, PTH114, PTH115
# (strings: each phase looks several times, and pathlib would cost more than the system calls)

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from capsule.core.errors import WorkspaceBroken
from capsule.core.text import one_line
from capsule.system import git_locks
from capsule.system.files import read_regular, sweep_temps, write_atomically
from capsule.system.git import EXCLUDED, Git
from capsule.system.lock import is_locked
from capsule.workspaces.salvage import put_aside

_LARGEST = 16 * 1024 * 1024
_LARGEST_NOTE = 256 * 1024 * 1024
_LONGEST_PATH = 1024
_REDIRECTS = ("commondir", "objects/info/alternates", "objects/info/http-alternates")
_OUR_OWN = ("HEAD", "config", "config.worktree", "settings", "commondir", "info/attributes", "info/grafts")
_SETTINGS = ("config", "config.worktree")
_PLAIN = ("HEAD", "packed-refs", "index")
"""A pipe in their place would block every git; their content is not watched."""
_TO_THE_REPOSITORY = b"../..\n"


class _Found(NamedTuple):
    """The entry at a path: `file`, `link`, `folder` or `other`, with its mode and content."""

    kind: str
    mode: int
    content: bytes


class _Copy(msgspec.Struct, frozen=True):
    """The recorded control files of the repository before a phase; names byte by byte."""

    files: dict[str, _Found]
    locks: tuple[str, ...]


class Tripwire:
    """Guards one repository on behalf of one mission; an idle one copies nothing, where a sandbox keeps agents away."""

    def __init__(self, git: Git, mission: str, *, idle: bool = False) -> None:
        self._idle = idle
        self._git = git
        self._common = git.common_dir
        self._folder = git.capsule_dir / "watched"
        self._note = self._folder / f"{mission}.json"
        self._before: _Copy | None = None
        self._fd = -1
        self._breaches: list[str] = []
        self._notices: list[str] = []
        self._branch = ("", "")
        """The branch that is checked out, and where it was."""

    def snapshot(self) -> Sequence[str]:
        """Copy git's settings and hooks; return the breaches of a killed run. A second time changes nothing."""
        if self._idle or self._before is not None:
            return tuple(self._breaches)
        self._breaches = _found_after_a_crash(self._note)
        self._git.make_own_directory()
        self._before = _Copy(self._files(), tuple(map(_encoded_name, self._locks())))
        self._folder.mkdir(parents=True, exist_ok=True)
        sweep_temps(self._folder)
        write_atomically(self._note, msgspec.json.encode(self._before), mode=0o600)
        self._fd = os.open(self._common, os.O_RDONLY | os.O_DIRECTORY)
        self._branch = self._checked_out()
        return tuple(self._breaches)

    def restore(self) -> Sequence[str]:
        """Revert what was changed since `snapshot`; return one sentence for each breach so far."""
        if self._before is not None:
            found = [*self._bring_back_repository(), *self._compare(self._before)]
            self._breaches += [words for words in found if words not in self._breaches]
            # People and other missions move the user's branch: that is reported, but is no breach.
            (before, old), (branch, new) = self._branch, self._checked_out()
            if before == branch and old != new and new:
                self._branch = (branch, new)
                self._notices.append(f"{branch} moved to {new[:12]} while it ran")
        return tuple(self._breaches)

    def restore_from(self, note: Path) -> list[str]:
        """Revert what was changed since a copy of a killed run; return the breaches."""
        try:
            before = msgspec.json.decode(read_regular(note, _LARGEST_NOTE), type=_Copy)
        except FileNotFoundError:  # its phase has ended meanwhile, or another run was quicker
            return []
        except (OSError, msgspec.MsgspecError):
            return ["Capsule's copy of git's settings and hooks was changed"]
        strays = [name for name in before.files if ".." in name.split("/") or name.startswith("/")]
        return ["Capsule's copy of git's settings and hooks was changed"] if strays else self._compare(before)

    def release(self) -> None:
        """End the phase: until the next `snapshot` the user may change everything."""
        if self._before is not None:
            os.close(self._fd)
        self._before, self._fd, self._breaches = None, -1, []
        with contextlib.suppress(NotADirectoryError):  # `.git` was replaced, and could not be restored
            self._note.unlink(missing_ok=True)

    def notices(self) -> Sequence[str]:
        """Return, once, what was cleaned up without a known cause."""
        told, self._notices = self._notices, []
        return told

    def _checked_out(self) -> tuple[str, str]:
        branch = self._git.checked_out()
        return branch, self._git.ref(f"refs/heads/{branch}") if branch else ""

    # What is watched

    def _files(self) -> dict[str, _Found]:
        found = {}
        for name in self._names():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found[_encoded_name(name)] = _look_at(f"{self._common}/{name}")
        return found

    def _names(self) -> Iterator[str]:
        yield from (*_SETTINGS, *_REDIRECTS, "HEAD", "packed-refs")
        yield from self._below("hooks")
        yield from (name for name in self._below("info") if name not in ("info/sparse-checkout", "info/refs"))
        for entry in self._children("worktrees"):
            yield from (f"worktrees/{entry.name}/{name}" for name in ("config.worktree", "commondir"))
        for module in self._modules("modules"):
            yield from (f"{module}/{name}" for name in (*_SETTINGS, "commondir", "info/attributes"))
            yield from self._below(f"{module}/hooks")
        yield from (f"capsule/git/{name}" for name in _OUR_OWN)
        yield from self._below("capsule/git/hooks")

    def _below(self, folder: str) -> Iterator[str]:
        """Yield all files and links, without following links and without samples."""
        top = f"{self._common}/{folder}"
        if os.path.lexists(top) and (os.path.islink(top) or not os.path.isdir(top)):
            yield folder
        for name, entry in self._walk(folder):
            sample = any(part.endswith(".sample") for part in name.removeprefix(folder).split("/"))
            if not sample and not entry.is_dir(follow_symlinks=False):
                yield name

    def _modules(self, folder: str) -> Iterator[str]:
        """Yield the git directories of submodules, and of theirs; a name may have slashes in it."""
        for child in self._children(folder):
            name = f"{folder}/{child.name}"
            if os.path.exists(f"{self._common}/{name}/HEAD"):
                yield name
                yield from self._modules(f"{name}/modules")
            else:
                yield from self._modules(name)

    def _children(self, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder; nothing for a link."""
        path = f"{self._common}/{folder}"
        with contextlib.suppress(OSError):
            if not os.path.islink(path):
                with os.scandir(path) as entries:
                    return sorted(entries, key=lambda entry: entry.name)
        return []

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield everything below a folder; the system calls of a walk are most of its cost."""
        for entry in self._children(folder):
            name = f"{folder}/{entry.name}"
            yield name, entry
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(name)

    def _locks(self) -> list[str]:
        """Return the lock files where git keeps its own."""
        worktrees = (f"worktrees/{entry.name}" for entry in self._children("worktrees"))
        tops = ("objects/info", "objects/info/commit-graphs", *worktrees)
        found = [entry.name for entry in self._children("")]
        found += [name for name, _ in self._walk("refs")]
        found += [f"{top}/{entry.name}" for top in tops for entry in self._children(top)]
        return [name for name in found if name.endswith(".lock")]

    def _pipes(self, folder: str) -> Iterator[str]:
        """Yield everything below that is neither file, folder nor link: reading it could block."""
        for name, entry in self._walk(folder):
            plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink()
            if not plain and os.path.lexists(entry.path):  # refs come and go while people work
                yield name

    # Comparing, in an order in which everything that our git reads is restored before it runs

    def _compare(self, before: _Copy) -> list[str]:
        for name in self._locks():
            known = _encoded_name(name) in before.locks
            lock, folders = self._common / name, [self._git.root]
            if not known and git_locks.clear_if_stale(lock, self._common, folders, older_than=0):
                self._notices.append(one_line(f".git/{name} was left behind by no running git, and removed"))
        told = [*self._unblock(before)]
        now = self._files()
        names = [name for name in {**before.files, **now} if before.files.get(name) != now.get(name)]
        for name in sorted(names, key=lambda name: (_decoded_name(name).endswith(_SETTINGS), name)):
            words = self._mend(_decoded_name(name), before.files, now.get(name))
            told += [words] if words else []
        index = self._common / "index"
        if ".git/index was not a regular file" in told and not index.exists() and (head := self._git.resolve("HEAD")):
            self._git.content("read-tree", head, index=index)
        return told

    def _unblock(self, before: _Copy) -> Iterator[str]:
        """Remove what is no file where git reads one; without a HEAD git would look for another `.git`."""
        for name in (*_PLAIN, *self._pipes("refs"), *self._pipes("logs"), *self._pipes("worktrees")):
            path, known = self._common / name, before.files.get(name)
            there = os.path.lexists(path)
            link = name == "HEAD" and path.is_symlink() and path.readlink().parts[:1] == ("refs",)
            if there and (stat.S_ISREG(path.lstat().st_mode) or link):  # early versions of git linked HEAD
                continue
            if there:
                put_aside(self._git, path)
                yield f".git/{name} was not a regular file"
            elif name == "HEAD" and known:
                yield f".git/{name} was removed"
            else:
                continue
            if known:
                _put(path, known)

    def _mend(self, name: str, files: Mapping[str, _Found], now: _Found | None) -> str:
        """Restore one file unless its change is ordinary use of git; return the breach in words, or ''."""
        path, leaf, before = self._common / name, name.rpartition("/")[2], files.get(_encoded_name(name))
        if name in _PLAIN:
            return ""
        if leaf in _SETTINGS and not name.startswith("capsule/"):
            along = files.get("config") if leaf == "config.worktree" else None
            return self._mend_settings(name, before, now, along.content if along else b"")
        if name == "info/exclude" and now and _without_ours(now) == _without_ours(before):
            return ""  # another Capsule has added what it always adds
        if name.startswith("worktrees/") and leaf == "commondir":
            if now is None or (now.kind == "file" and now.content in (b"", _TO_THE_REPOSITORY)):
                return ""  # worktrees come and go, and git makes the file before it writes it; then it never changes
            before = _Found("file", 0o644, _TO_THE_REPOSITORY)
        if name.startswith("modules/") and now is None:
            return ""  # so do submodules
        kept = put_aside(self._git, path) if now else ""
        if before:
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(path, before)
        verb = "was changed" if before and now else "was removed" if before else "appeared"
        return one_line(f".git/{name} {verb}") + _kept_as(kept)

    def _mend_settings(self, name: str, before: _Found | None, now: _Found | None, along: bytes) -> str:
        from capsule.workspaces import dangerous_settings  # noqa: PLC0415 - hardly ever needed, and slow to load

        if now is None:
            if name != "config" or before is None:
                return ""
            _put(self._common / name, before)
            return f".git/{name} was removed"
        old = before.content if before else b""
        readable = now.kind == "file" and (before is None or before.kind == "file")
        scratch = self._git.capsule_dir / "git"
        new_module = before is None and name.startswith("modules/")
        content, changed = (
            dangerous_settings.mended(self._git, old, now.content, scratch, along=along, new_module=new_module)
            if readable
            else (old, ["all of it: not a regular file"])
        )
        if not changed:
            return ""
        kept = put_aside(self._git, self._common / name)
        if content or before:
            write_atomically(self._common / name, content, mode=now.mode or 0o644)
        return one_line(f"settings in .git/{name} were changed: {', '.join(changed)}") + _kept_as(kept)

    def _bring_back_repository(self) -> list[str]:
        """Move a repository back that was moved away; its open descriptor tells where it is."""
        path = self._common
        with contextlib.suppress(OSError):
            if os.path.samestat(path.lstat(), os.fstat(self._fd)):
                return []
        where = _path_of(self._fd)
        strange = path.with_name(f"{path.name}-{os.urandom(4).hex()}")
        try:
            if where is None:
                raise FileNotFoundError(2, "it is nowhere")
            if os.path.lexists(path):
                path.rename(strange)
            where.rename(path)
        except OSError as error:
            hint = f"Put the repository back in its place, {path}, from wherever it is now."
            raise WorkspaceBroken(f"{path} was replaced ({error.strerror}); it is now {where}.", hint) from error
        kept = put_aside(self._git, strange) if os.path.lexists(strange) else ""
        return [one_line(f".git was moved to {where}, and something else put in its place") + _kept_as(kept)]


def check_after_a_crash(git: Git) -> None:
    """Check the leftovers of phases without a recorded end; leave running missions to their own process."""
    folder = git.capsule_dir / "watched"
    for old in (*folder.glob("*.on"), *folder.glob("*.note")):  # of versions that watched more than they had to
        old.unlink(missing_ok=True)
    for note in folder.glob("*.json"):
        mission = note.name.removesuffix(".json")
        if not is_locked(git.capsule_dir / "locks" / f"mission-{mission}.lock"):
            told = Tripwire(git, mission).restore_from(note)
            note.unlink(missing_ok=True)
            if told:
                write_atomically(note.with_suffix(".found"), msgspec.json.encode(told))


def _found_after_a_crash(note: Path) -> list[str]:
    file = note.with_suffix(".found")
    try:
        told = msgspec.json.decode(read_regular(file, _LARGEST), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError):
        told = ["Capsule's note of what was found was changed"]
    file.unlink(missing_ok=True)
    return [one_line(words) for words in told]


def _look_at(path: str) -> _Found:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return _Found("link", 0, os.fsencode(os.readlink(path)))
    if not stat.S_ISREG(mode):
        return _Found("folder" if stat.S_ISDIR(mode) else "other", 0, b"")
    try:
        return _Found("file", stat.S_IMODE(mode), read_regular(Path(path), _LARGEST))
    except OSError:
        return _Found("other", 0, b"")


def _put(path: Path, found: _Found) -> None:
    if found.kind == "file":
        write_atomically(path, found.content, mode=found.mode)
    elif found.kind == "link":
        path.symlink_to(os.fsdecode(found.content))
    elif found.kind == "folder":
        path.mkdir()


def _kept_as(kept: str) -> str:
    """Name the path where it is kept; '' for a pipe."""
    return f" (kept as {one_line(kept)})" if kept else ""


def _without_ours(found: _Found | None) -> list[bytes]:
    lines = found.content.splitlines() if found and found.kind == "file" else []
    return [line for line in lines if line.decode(errors="replace") not in EXCLUDED]


def _path_of(fd: int) -> Path | None:
    with contextlib.suppress(OSError):
        if hasattr(fcntl, "F_GETPATH"):
            return Path(os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(_LONGEST_PATH)).rstrip(b"\0")))
        return Path(f"/proc/self/fd/{fd}").readlink()
    return None


def _encoded_name(name: str) -> str:
    """Encode a file name, which may be any bytes, as text for JSON."""
    return os.fsencode(name).decode("latin-1")


def _decoded_name(name: str) -> str:
    return os.fsdecode(name.encode("latin-1"))
