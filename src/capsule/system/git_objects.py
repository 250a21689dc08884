"""The objects of a repository as data, read through one git that stays, and written as git does.

Paths are bytes, as git gives them, until somebody has to read them (`shown`).

**Reading.** `git cat-file --batch-command` is started at the first question and kept. It is asked for whole ids only.
It finds objects that were added since, holds no lock, and stands in `/`, so that nobody takes it for a git at work in
the repository. It ends when its pipe closes, with us at the latest. Where it dies, the question goes unanswered (None)
and the next one starts another; whoever gets no answer asks an ordinary git, which says what is wrong.

**Writing.** A loose object is a file, named by the hash of what it holds: written beside, then renamed, so that a crash
leaves a `tmp_obj_…` at most, which `git gc` removes. What asks for more than that is left to git (None).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import hashlib

ABSENT = "000000"
GITLINK = "160000"
SUBTREE = "040000"
FILE = "100644"
PROGRAM = "100755"
LINK = "120000"


class Identity(NamedTuple):
    name: str
    email: str


CAPSULE = Identity("Capsule", "capsule@localhost")
"""The author of commits that no person sees on a branch."""


class TreeEntry(NamedTuple):
    """One row of a tree or of an index."""

    mode: str
    kind: str
    oid: str
    path: bytes


class Difference(NamedTuple):
    """One path that differs between two trees; `kind` is A, M, D or T."""

    path: bytes
    kind: str
    old: tuple[str, str]
    new: tuple[str, str]
    """Mode and object id on either side."""


class Commit(NamedTuple):
    tree: str
    parents: tuple[str, ...]
    author: Identity
    author_date: str
    committer_date: str
    message: str

    @property
    def committed_at(self) -> int:
        return int(self.committer_date.split()[0].lstrip("@"))


class Checkout(NamedTuple):
    """A worktree as git lists it; no branch means a detached HEAD."""

    path: Path
    head: str
    branch: str


class RefMove(NamedTuple):
    """`old` empty: the ref must be new; None: any value. `new` empty: delete it."""

    ref: str
    new: str
    old: str | None = None


def shown(path: bytes) -> str:
    """Return a path for people and JSON: bytes that are not UTF-8 are spelled out, so that no name breaks a report."""
    return path.decode("utf-8", "backslashreplace")


def as_instruction(move: RefMove) -> bytes:
    if not move.new:
        return f"delete {move.ref}\0{move.old or ''}\0".encode()
    if move.old == "":
        return f"create {move.ref}\0{move.new}\0".encode()
    return f"update {move.ref}\0{move.new}\0{move.old or ''}\0".encode()


def read_checkout(record: bytes) -> Checkout:
    rows = dict(row.partition(b" ")[::2] for row in record.split(b"\0"))
    branch = rows.get(b"branch", b"").decode().removeprefix("refs/heads/")
    return Checkout(Path(os.fsdecode(rows[b"worktree"])), rows.get(b"HEAD", b"").decode(), branch)


def read_entry(row: bytes) -> TreeEntry:
    facts, path = row.split(b"\t", 1)
    mode, kind, oid = facts.decode().split()
    return TreeEntry(mode, kind, oid, path)


def read_differences(listing: bytes) -> tuple[list[Difference], bytes]:
    """Read the rows of `diff-tree -z --raw`, and the patch where one was asked for: it comes after one more NUL."""
    found, at = [], 0
    while listing[at : at + 1] == b":":
        middle = listing.index(b"\0", at)
        end = listing.index(b"\0", middle + 1)
        old_mode, new_mode, old, new, kind = listing[at + 1 : middle].decode().split()
        found.append(Difference(listing[middle + 1 : end], kind[0], (old_mode, old), (new_mode, new)))
        at = end + 1
    return found, listing[at + 1 :]


def read_commit(raw: bytes) -> Commit:
    header, _, message = raw.decode(errors="surrogateescape").partition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in header.splitlines():
        key, _, value = line.partition(" ")
        fields.setdefault(key, []).append(value)
    author, author_date = read_person(fields.get("author", [""])[0])
    _, committer_date = read_person(fields.get("committer", [""])[0])
    return Commit(fields["tree"][0], tuple(fields.get("parent", ())), author, author_date, committer_date, message)


def read_person(line: str) -> tuple[Identity, str]:
    """Read `Name <email> 1700000000 +0100` as far as it is valid: an agent can write any commit."""
    name, _, rest = line.partition("<")
    email, _, date = rest.rpartition(">")
    plausible = re.fullmatch(r" (\d{1,10} [+-]\d{4})", date)
    return Identity(name.strip(), email), f"@{plausible[1] if plausible else '0 +0000'}"


# ── reading and writing ────────────────────────────────────────────────────────────────────────────────────────────

_AT_ONCE = 50
"""The most requests that fit into any pipe, so that neither side blocks."""
_ID = r"[0-9a-f]{40}|[0-9a-f]{64}"
_READ = 1 << 16


class Object(NamedTuple):
    kind: str
    size: int
    content: bytes


class ObjectReader:
    """One git that answers questions about objects until it is closed."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], timeout: float) -> None:
        self._start = start
        self._timeout = timeout
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._heard = b""
        self.started = 0
        """How many processes it took so far."""

    def read(self, oids: Sequence[str]) -> list[Object | None]:
        """Return kind and content of each; None without an answer."""
        return self._ask("contents", oids)

    def kinds(self, oids: Sequence[str]) -> list[str]:
        """Return the kind of each of these, or ''."""
        return [found.kind if found else "" for found in self._ask("info", oids)]

    def sizes(self, oids: Sequence[str]) -> list[int]:
        """Return how many bytes each of these holds; 0 without an answer."""
        return [found.size if found else 0 for found in self._ask("info", oids)]

    def close(self) -> None:
        process, self._process, self._heard = self._process, None, b""
        if process is None or self._owner != os.getpid():
            return
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
        process.kill()  # it only reads
        process.wait()

    def _ask(self, command: str, oids: Sequence[str]) -> list[Object | None]:
        found: list[Object | None] = []
        with self._lock:
            for at in range(0, len(oids), _AT_ONCE):
                some = oids[at : at + _AT_ONCE]
                try:
                    found += self._answers(command, some)
                except (OSError, EOFError, ValueError):
                    self.close()
                    found += [None] * len(some)
                except BaseException:
                    self.close()  # half an answer is pending, and the next request must not read it
                    raise
        return found

    def _answers(self, command: str, oids: Sequence[str]) -> list[Object | None]:
        if not all(re.fullmatch(_ID, oid) for oid in oids):
            return [None] * len(oids)
        # Never share one with a parent process: both would read each other's answers.
        if self._process is None or self._owner != os.getpid():
            self._process, self._owner, self._heard = self._start(), os.getpid(), b""
            self.started += 1
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        stdin.write("".join(f"{command} {oid}\n" for oid in oids).encode())
        return [self._answer(stdout.fileno(), with_content=command == "contents") for _ in oids]

    def _answer(self, fd: int, *, with_content: bool) -> Object | None:
        while (end := self._heard.find(b"\n")) < 0:
            self._hear(fd)
        words, self._heard = self._heard[:end].decode().split(" "), self._heard[end + 1 :]
        if len(words) != 3:
            return None
        size = int(words[2])
        if not with_content:
            return Object(words[1], size, b"")
        pieces, have = [self._heard], len(self._heard)
        while have <= size:  # a line break follows it
            self._heard = b""
            self._hear(fd)
            pieces.append(self._heard)
            have += len(self._heard)
        whole = b"".join(pieces)
        self._heard = whole[size + 1 :]
        return Object(words[1], size, whole[:size])

    def _hear(self, fd: int) -> None:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        if not waiting.poll(self._timeout * 1000):
            raise EOFError("no answer")
        more = os.read(fd, _READ)
        if not more:
            raise EOFError("it has ended")
        self._heard += more


class ObjectWriter:
    """Writes loose objects into one folder of objects."""

    def __init__(self, objects: Path, object_format: str) -> None:
        self._objects = os.fspath(objects)
        self._object_format = object_format

    def write(self, kind: str, content: bytes) -> str | None:
        """Write an object and return its id; None if it could not be written."""
        oid = self.name(kind, content)
        whole = f"{kind} {len(content)}\0".encode() + content
        folder, file = f"{self._objects}/{oid[:2]}", f"{self._objects}/{oid[:2]}/{oid[2:]}"
        try:
            if os.path.exists(file):  # noqa: PTH110 (a str)
                os.utime(file)  # a fresh time stamp, as after git's own write, protects it from pruning
            else:
                _write(folder, file, zlib.compress(whole, 1))
        except OSError:
            return None
        return oid

    def name(self, kind: str, content: bytes) -> str:
        """Return the id that such an object has, here or anywhere."""
        return self._hash(f"{kind} {len(content)}\0".encode() + content).hexdigest()

    def _hash(self, start: bytes) -> hashlib._Hash:
        import hashlib  # noqa: PLC0415 - OpenSSL takes its time to load, and many commands write nothing

        return hashlib.new(self._object_format, start, usedforsecurity=False)

    def name_of_file(self, file: Path) -> str:
        """Return the id of what a plain file holds, read piece by piece; '' if it grows meanwhile."""
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            found = self._hash(f"blob {size}\0".encode())
            while piece := opened.read(1 << 20):
                found.update(piece)
            return found.hexdigest() if opened.tell() == size else ""


def _write(folder: str, file: str, compressed: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)  # noqa: PTH102 (a str)
    temp = f"{folder}/tmp_obj_{os.urandom(6).hex()}"  # noqa: S108 (git's own name for it)
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(compressed)
        os.rename(temp, file)  # noqa: PTH104 (a str)
    except BaseException:
        os.unlink(temp)  # noqa: PTH108 (a str)
        raise


# Trees


_CANONICAL = {0o100000: FILE, 0o120000: LINK, 0o040000: SUBTREE}
_KINDS = {SUBTREE: "tree", GITLINK: "commit"}


def read_tree(content: bytes, id_bytes: int) -> Iterator[TreeEntry]:
    """Yield the rows of a tree object; a file is executable or not, whatever else an old tree says of it."""
    at = 0
    while at < len(content):
        middle = content.index(b"\0", at)
        raw, _, name = content[at:middle].partition(b" ")
        at = middle + 1 + id_bytes
        bits = int(raw, 8)
        mode = _CANONICAL.get(bits & 0o170000, GITLINK)
        mode = PROGRAM if mode == FILE and bits & 0o100 else mode
        yield TreeEntry(mode, _KINDS.get(mode, "blob"), content[middle + 1 : at].hex(), name)


def tree_content(rows: Iterable[TreeEntry]) -> bytes:
    """Return the tree object of these rows, sorted as git needs them: folders as if their names ended in a slash."""
    ordered = sorted(rows, key=lambda row: row.path + b"/" if row.mode == SUBTREE else row.path)
    return b"".join(f"{int(row.mode, 8):o} ".encode() + row.path + b"\0" + bytes.fromhex(row.oid) for row in ordered)


# Commits


# Many commands write no commit: these are compiled where they are first used, and `re` remembers them.
_NAME = r"(?![\s.,:;<>\"\\'])[^\x00-\x1f<>]+(?<![\s.,:;<>\"\\'])"
_DATE = r"@((?:0|[1-9]\d{0,9}) (?!-0000)[+-](?:0\d|1[0-4])[0-5]\d)"
_STAMP = r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_LAST_OF_A_PLANE = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NO_CHARACTER = f"[\x00\ufdd0-\ufdef{_LAST_OF_A_PLANE}]"


def commit_content(
    tree: str, parents: Sequence[str], people: Mapping[str, tuple[str, str, str]], message: bytes
) -> bytes | None:
    """Return a commit as `git commit-tree` writes it; None if git would change a name, a date or the text first."""
    rows = [f"tree {tree}", *(f"parent {parent}" for parent in dict.fromkeys(parents))]
    for role, (name, email, date) in people.items():
        plain = re.fullmatch(_DATE, _in_seconds(date))
        if not (re.fullmatch(_NAME, name) and re.fullmatch(_NAME, email) and plain):
            return None
        rows.append(f"{role} {name} <{email}> {plain[1]}")
    try:
        content = "\n".join(rows).encode() + b"\n\n" + message
        return None if re.search(_NO_CHARACTER, content.decode()) else content
    except UnicodeError:
        return None


def _in_seconds(date: str) -> str:
    """Put a tracker's stamp into the form that commits have; leave any other date as it is."""
    if not re.fullmatch(_STAMP, date):
        return date
    try:
        return f"@{datetime.fromisoformat(date).timestamp():.0f} +0000"
    except ValueError:
        return date
