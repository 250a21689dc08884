"""Where no sandbox keeps an agent out of `.git`: what steers git is remembered before a phase and compared after it.

Whatever an agent plants there, a hook, a filter, a setting that names a program, would run as the user the next time
*they* type `git status`. (Our own git takes no part in it: see `system.git`.) How each file is compared and put back
is said in `control_rules`; branches, replaced objects and the flags of the index are the business of `control_refs`,
and what must hold before any git is asked that of `control_ground`.

Somebody else is always at work in the same repository, the user or another mission. Nothing is compared that they have
reason to change: other settings, worktrees of theirs, branches. What stood there before the phase is never in question,
be it a hook of the user's or their LFS. What is found goes on the shelf.

**It is looked at often and costs little:** a file is read again only if its stamp differs, and no program can choose
its own ctime. **A crash changes nothing:** what is remembered is written down, with its digest in a mark beside it, and
whoever comes next and finds the mark, and nobody who is watching, puts everything right before anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from capsule.core.text import one_line
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git
from capsule.system.lock import holder
from capsule.workspaces.control_ground import Ground, no_files, put_no_files_aside
from capsule.workspaces.control_refs import Refs, RefWatch
from capsule.workspaces.control_rules import RULES, Case, Found, look_at, rule_of

_LARGEST = 1024 * 1024
_LARGEST_NOTE = 256 * 1024 * 1024


class Note(msgspec.Struct, frozen=True):
    """Everything that is remembered, as it is written down."""

    files: dict[str, Found]
    refs: Refs
    no_files: tuple[str, ...] = ()
    """What stood where git reads a file, and was none."""


Stamp = tuple[int, int, int, int, int]


class ControlFiles:
    """Of one repository, on behalf of one mission."""

    def __init__(
        self,
        git: Git,
        mission: str,
        refs: RefWatch,
        *,
        also: Callable[[], Sequence[str]] = tuple,
        confined: bool = False,
    ) -> None:
        """`also` looks after what is the workspace's own; `confined`: a sandbox sees to all the rest."""
        self._git = git
        self._mission = mission
        self._refs = refs
        self._also = also
        self._confined = confined
        self._folder = git.capsule_dir / "watched"
        self._note, self._mark = self._folder / f"{mission}.note", self._folder / f"{mission}.on"
        self._stamps: dict[str, tuple[Stamp, Found]] = {}
        self._watching = False
        self._before: Note | None = None
        self._written = ""
        self._told: list[str] = []
        self._ground: Ground | None = None

    # What a workspace is asked

    def watch(self) -> None:
        """From now on. Where somebody was cut short while they watched, what they would have found is found first."""
        if self._watching:
            return
        self._told = self.left_by_a_crash()
        if not self._confined:
            refs = self._refs.now()  # first: by asking git we make our own git directory, where there is none yet
            self._before = Note(self._files(), refs, _on_paper(no_files(str(self._git.common_dir))))
            self._write_down(self._before)
            self._ground = Ground(self._git)
        self._watching = True

    def put_right(self) -> Sequence[str]:
        """All that was found and put right since `watch`, in words."""
        if self._watching:
            found = self._mended(self._before) if self._before else []
            self._told += [words for words in (*found, *self._also()) if words not in self._told]
        return tuple(self._told)

    def notices(self) -> Sequence[str]:
        """What was not put right, because it may well have been the user's doing; told once."""
        return self._refs.notices()

    def stand_down(self) -> None:
        """Until the next `watch` it is all the user's again."""
        self._watching, self._before, self._told = False, None, []
        if self._ground:
            self._ground.let_go()
            self._ground = None
        with contextlib.suppress(NotADirectoryError):  # `.git` was replaced, and could not be put back
            self._mark.unlink(missing_ok=True)

    def forget(self) -> None:
        """The mission is over."""
        self.stand_down()
        self._note.unlink(missing_ok=True)

    # Remembering

    def _write_down(self, note: Note) -> None:
        """The note only where it differs from the last one; the mark costs nothing."""
        content = msgspec.json.encode(msgspec.structs.replace(note, files=_written(note.files)))
        digest = hashlib.sha256(content).hexdigest()
        if digest != self._written or not self._note.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._note, content, mode=0o600)
            self._written = digest
        self._mark.unlink(missing_ok=True)
        with self._mark.open("x") as mark:  # never through a link that somebody planted
            mark.write(digest)

    def left_by_a_crash(self) -> list[str]:
        """What was done in a phase that nobody saw the end of, put right and in words."""
        told = _found_earlier(self._folder, self._mission)
        if not self._mark.exists():
            return told
        note = _believed(self._note, self._mark)
        self._mark.unlink(missing_ok=True)
        return told + (self._mended(note) if note else ["Capsule's note of how things were had been changed"])

    # Comparing

    def _mended(self, before: Note) -> list[str]:
        """In an order in which no git of ours is asked before what it reads is as it was."""
        told = self._ground.put_right() if self._ground else []
        no_files = put_no_files_aside(self._git, frozenset(_off_paper(before.no_files)))
        told += [*no_files.values(), *self._put_files_right(before.files)]
        if "index" in no_files:
            self._refs.make_an_index()
        return told + self._refs.put_right(before.refs)

    def _put_files_right(self, before: dict[str, Found]) -> list[str]:
        now = self._files()
        changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
        told: list[str] = []
        for name in sorted(changed, key=partial(_order, now)):
            words = RULES[rule_of(name)](Case(self._git, name, before.get(name), now.get(name), bool(told)))
            told += [words] if words else []
        return told

    def _files(self) -> dict[str, Found]:
        """By their names below the git directory."""
        common, seen = str(self._git.common_dir), {}
        for name in _steering(common, self._mission):
            with contextlib.suppress(OSError):
                seen[name] = self._what_is(common, name)
        return seen

    def _what_is(self, common: str, name: str) -> Found:
        path = f"{common}/{name}"
        state = os.lstat(path)
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)
        known = self._stamps.get(name)
        if known is None or known[0] != stamp:
            known = self._stamps[name] = (stamp, look_at(Path(path), state.st_mode, name))
        return known[1]


def _order(now: dict[str, Found], name: str) -> tuple[bool, bool, bool, str]:
    """First what git would wait for or be led astray by, then our own git, which is asked about the others; `config`
    after the files that say what to make of it."""
    first = name == "commondir" or rule_of(name) == "sound" or (name in now and now[name].kind == "other")
    return not first, not name.startswith("capsule/git"), not name.endswith("config.worktree"), name


def put_right_after_a_crash(git: Git) -> None:
    """Before anything else is done in a repository; a mission that somebody is running is left to them."""
    for mark in (git.capsule_dir / "watched").glob("*.on"):
        mission = mark.name.removesuffix(".on")
        if holder(git.capsule_dir / "locks" / f"mission-{mission}.lock") is None:
            refs = RefWatch(git, mission, git.root / ".capsule" / "worktrees" / mission, partial(_branch_of, mission))
            told = ControlFiles(git, mission, refs).left_by_a_crash()
            if told:
                write_atomically(mark.with_suffix(".found"), msgspec.json.encode(told))


def _branch_of(mission: str) -> str:
    return f"capsule-{mission}"


def _found_earlier(folder: Path, mission: str) -> list[str]:
    file = folder / f"{mission}.found"
    try:
        told = msgspec.json.decode(read_regular(file, _LARGEST), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError):
        told = ["Capsule's note of what was found had been changed"]
    file.unlink(missing_ok=True)
    return [one_line(words) for words in told]


def _believed(note: Path, mark: Path) -> Note | None:
    try:
        content = read_regular(note, _LARGEST_NOTE)
        if hashlib.sha256(content).hexdigest().encode() != read_regular(mark, 1024):
            return None
        known = msgspec.json.decode(content, type=Note)
        strays = [name for name in known.files if ".." in name.split("/") or name.startswith("/")]
        return None if strays else msgspec.structs.replace(known, files=_read_back(known.files))
    except (OSError, msgspec.MsgspecError):
        return None


# Which files


_STEERING = {
    "": ("commondir", "HEAD", "packed-refs", "config", "config.worktree", "shallow"),
    "info": ("attributes", "exclude", "grafts"),
    "objects/info": ("alternates", "http-alternates"),
    "capsule": ("ours", "assigned"),
    "capsule/git": ("HEAD", "config", "config.worktree", "settings", "commondir", "shallow", "hooks", "objects"),
    "capsule/git/info": ("attributes", "exclude", "grafts"),
    "capsule/places/{mission}": ("base", "branch"),
}


def _steering(common: str, mission: str) -> Iterator[str]:
    """Every file that steers git, and every link in the place of a folder of such; none is followed."""
    for folder, names in _STEERING.items():
        yield from _among(common, folder.format(mission=mission), names)
    yield from (name for name in _below(common, "hooks") if not name.endswith(".sample"))
    for entry in _children(common, "worktrees"):
        yield from _among(common, f"worktrees/{entry.name}", ("commondir", "config.worktree", "HEAD", "gitdir"))
    for module in _modules(common, "modules"):
        yield from _among(common, module, ("config", "config.worktree", "commondir"))
        yield from _among(common, f"{module}/info", ("attributes",))
        yield from (name for name in _below(common, f"{module}/hooks") if not name.endswith(".sample"))


def _modules(common: str, folder: str) -> Iterator[str]:
    """The git directories of submodules, and of theirs; a name may have slashes in it."""
    for child in _children(common, folder):
        name = f"{folder}/{child.name}"
        if child.is_dir(follow_symlinks=False):
            its_own = os.path.lexists(f"{common}/{name}/HEAD")
            yield from (name,) if its_own else ()
            yield from _modules(common, f"{name}/modules" if its_own else name)


def _among(common: str, folder: str, names: Sequence[str]) -> Iterator[str]:
    if os.path.islink(f"{common}/{folder}"):  # noqa: PTH114 (asked often)
        yield folder
    else:
        yield from (f"{folder}/{name}" if folder else name for name in names)


def _below(common: str, folder: str) -> Iterator[str]:
    if os.path.islink(f"{common}/{folder}"):  # noqa: PTH114 (asked often)
        yield folder
        return
    for child in _children(common, folder):
        name = f"{folder}/{child.name}"
        yield from _below(common, name) if child.is_dir(follow_symlinks=False) else (name,)


def _children(common: str, folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(f"{common}/{folder}") as found:
        return list(found)
    return []


# A name is whatever bytes somebody gave it, which not every name on paper can be


def _on_paper(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.fsencode(name).decode("latin-1") for name in names)


def _off_paper(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(os.fsdecode(name.encode("latin-1")) for name in names)


def _written(files: dict[str, Found]) -> dict[str, Found]:
    return dict(zip(_on_paper(files), files.values(), strict=True))


def _read_back(files: dict[str, Found]) -> dict[str, Found]:
    return dict(zip(_off_paper(files), files.values(), strict=True))
