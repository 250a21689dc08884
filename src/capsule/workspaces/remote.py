"""A remote: the one place that talks to it.

Every call names what it moves and from where. A ref moves only by exact lease (`--force-with-lease=REF:OLD`), which the
server checks again; a lease alone would let a forced update through, so a branch moves only to a commit that descends
from OLD. Each ref is pushed on its own: with several, a server that refuses one could refuse them all.

Where the user's settings have pushes go to another address, a push counts once it is seen where the remote is read:
one repository may be read and written in two ways, and a fork is another one.

What goes wrong is data (`core/remote.py`). Credentials come from the user's own git and its helpers, in the processes
of these commands only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from capsule.core.remote import Kind, Trouble, read_push, read_trouble, without_credentials
from capsule.system.git import Git, GitFailed, GitResult
from capsule.system.git_objects import RefMove
from capsule.system.lock import held
from capsule.system.stop import Stop

TRANSFER_SECONDS = 600.0
"""Time limit of a fetch or a push."""
LOOK_SECONDS = 60.0
"""Time limit of a question."""
_TRACKED = "refs/capsule/remote/"
_ONE_ADDRESS = "Name a remote in `merge.remote` that is read where it is pushed to: git remote -v lists them."
_PLAIN_NAME = r"[\w./-]{1,100}"
_FETCHES = 3
_DEEPER = ("--deepen=100", "--deepen=1000", "--unshallow")


class _Addresses(NamedTuple):
    read: str
    pushed: tuple[str, ...]


class Remote:
    """A remote of the user's repository, by its name."""

    def __init__(
        self,
        git: Git,
        name: str = "origin",
        *,
        stop: Stop | None = None,
        transfer: float = TRANSFER_SECONDS,
        look: float = LOOK_SECONDS,
    ) -> None:
        self.name = name
        self._git = git
        self._stop = stop
        self._transfer = transfer
        self._look = look

    @cached_property
    def url(self) -> str:
        """Return the address as it may be shown; '' if there is no such remote."""
        return self._addresses.read

    @property
    def pushed_elsewhere(self) -> Sequence[str]:
        """Return the addresses that pushes go to, as they may be shown, if they are not just where it is read."""
        return self._addresses.pushed

    @cached_property
    def _addresses(self) -> _Addresses:
        answer = self._git.across("config", "-z", "--get-regexp", r"^(remote|url)\.", seconds=self._look)
        rows = [row.partition("\n") for row in answer.out.decode(errors="replace").split("\0") if row]
        urls = [url for key, _, url in rows if key == f"remote.{self.name}.url"]
        if not urls:
            return _Addresses("", ())
        read, rewritten = without_credentials(urls[0]), any(key.startswith("url.") for key, _, _ in rows)
        if len(urls) == 1 and not rewritten and f"remote.{self.name}.pushurl" not in [key for key, _, _ in rows]:
            return _Addresses(read, ())
        pushed = self._listed("--push", "--all")
        return _Addresses(read, () if pushed == self._listed() else tuple(map(without_credentials, pushed)))

    def _listed(self, *which: str) -> list[str]:
        """List addresses as git uses them, with all that is rewritten."""
        answer = self._git.across("remote", "get-url", *which, self.name, seconds=self._look)
        return answer.out.decode(errors="replace").splitlines()

    # Looking

    def refs(self, *patterns: str) -> Mapping[str, str] | Trouble:
        """List refs of the remote by their full names: those that match a pattern, or all; none if there are none."""
        answer = self._ask(self._look, "ls-remote", "--quiet", "--refs", self.name, *patterns)
        if isinstance(answer, Trouble):
            return answer
        rows = (line.split("\t", 1) for line in answer.out.decode(errors="replace").splitlines() if "\t" in line)
        return {name: oid for oid, name in rows}

    def default_branch(self) -> str | Trouble:
        """Return the branch that HEAD of the remote names; '' if it names none."""
        answer = self._ask(self._look, "ls-remote", "--quiet", "--symref", self.name, "HEAD")
        if isinstance(answer, Trouble):
            return answer
        rows = (line.partition("\t")[0] for line in answer.out.decode(errors="replace").splitlines())
        named = (row.removeprefix("ref: refs/heads/") for row in rows if row.startswith("ref: refs/heads/"))
        return next(named, "")

    # Fetching

    def tracked(self, branch: str) -> str:
        """Return the ref of our own that holds the fetched tip of a branch."""
        return f"{_TRACKED}{self.name}/{branch}"

    def tip(self, branch: str) -> str:
        """Return the tip of a branch as it was fetched last; '' if it never was."""
        return self._git.ref(self.tracked(branch))

    def fetch(self, branch: str) -> str | Trouble:
        """Fetch the tip of a branch, with its history, and return it."""
        found = self._fetch(f"refs/heads/{branch}", self.tracked(branch))
        missing = isinstance(found, Trouble) and found.kind is Kind.ABSENT and self.url
        default = self.default_branch() if missing else ""
        if isinstance(found, str) or not isinstance(default, str) or not re.fullmatch(_PLAIN_NAME, default):
            return found
        return replace(found, way=f"Its default branch is {default}: `merge.branch: {default}` in .capsule/config.yaml")

    def fetch_ref(self, ref: str, into: str) -> str | Trouble:
        """Fetch any ref of the remote into a ref of our own, and return what it points to."""
        return self._fetch(ref, into)

    def deepen(self, branch: str, enough: Callable[[], bool]) -> Trouble | None:
        """Fetch more history into a shallow clone, until there is enough of it or no more."""
        for more in _DEEPER:
            if enough() or not (self._git.common_dir / "shallow").exists():
                return None
            found = self._fetch(f"refs/heads/{branch}", self.tracked(branch), more)
            if isinstance(found, Trouble):
                return found
        return None

    def _fetch(self, ref: str, into: str, *more: str) -> str | Trouble:
        # Progress tells a long fetch from one that got stuck, which others would wait for.
        alone = ("--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=")
        # One at a time: another one, begun earlier, could put an older tip in the place of a newer one.
        with held(self._git.capsule_dir / "locks" / "remote.lock", self._transfer + self._look):
            command = ("fetch", *alone, *more, self.name, f"+{ref}:{into}")
            for _ in range(_FETCHES):
                answer = self._ask(self._transfer, *command, silence=self._look)
                if not (isinstance(answer, Trouble) and answer.kind is Kind.LOST):  # else a push has moved our ref
                    break
            return answer if isinstance(answer, Trouble) else self._git.ref(into)

    # Pushing

    def push(self, commit: str, ref: str, old: str) -> Trouble | None:
        """Move a ref of the remote from exactly `old` to a commit that descends from it."""
        if not self._git.is_ancestor(old, commit):
            raise AssertionError(f"{commit} does not descend from {old}: it would be a forced update")
        return self._push(ref, old, commit)

    def create(self, oid: str, ref: str) -> Trouble | None:
        """Create a ref at the remote; a lost race if there is one of that name already."""
        return self._push(ref, "", oid)

    def replace(self, oid: str, ref: str, old: str) -> Trouble | None:
        """Move a ref that only Capsule writes from exactly `old` ('': it is new) to any other object."""
        return self._push(ref, old, oid)

    def delete(self, ref: str, old: str) -> Trouble | None:
        """Delete a ref of the remote that is at exactly `old`."""
        return self._push(ref, old, "")

    def may_push(self, branch: str) -> Trouble | None:
        """Ask whether we may push at all, changing nothing; a server does not tell which branches it protects."""
        if scattered := self._scattered():
            return scattered
        answer = self._ask(
            self._look, "push", "--dry-run", "--quiet", self.name, f"{self.tip(branch)}:refs/heads/{branch}"
        )
        return answer if isinstance(answer, Trouble) else None

    def note_pushed(self, branch: str, commit: str, old: str) -> None:
        """Take note that a branch of the remote is at a commit of ours now, unless more was fetched meanwhile."""
        with suppress(GitFailed):
            self._git.move_refs(RefMove(self.tracked(branch), commit, old), why="capsule: pushed")

    def _push(self, ref: str, old: str, new: str) -> Trouble | None:
        """Move a ref from `old` to `new`; '': there is none."""
        if refused := self._missing() or self._scattered():
            return refused
        options = ("--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", f"--force-with-lease={ref}:{old}")
        answer = self._git.across("push", *options, self.name, f"{new}:{ref}", seconds=self._transfer, stop=self._stop)
        if answer.ended or answer.code < 0:
            return self._ended(answer, self._transfer)
        trouble = read_push(answer.out.decode(errors="replace"), answer.err) if answer.code else None
        if not self.pushed_elsewhere or (trouble and trouble.kind is not Kind.LOST):
            return trouble
        return self._seen_where_it_is_read(ref, old, new, trouble)

    def _seen_where_it_is_read(self, ref: str, old: str, new: str, said: Trouble | None) -> Trouble | None:
        """Return what a push by another address came to: it counts only if it is seen by the one of fetches."""
        there = self.refs(ref)
        if isinstance(there, Trouble):
            return there
        now = there.get(ref, "")
        if now == new:
            return said
        if now != old:
            return said or Trouble(Kind.LOST, f"{ref} has moved meanwhile")
        words = f"pushes to {self.name} go to {self.pushed_elsewhere[0]}, and do not arrive at {self.url}"
        return Trouble(Kind.REFUSED, f"{words}, where it is read", _ONE_ADDRESS)

    def _scattered(self) -> Trouble | None:
        """Refuse several addresses: a push could arrive at one of them."""
        pushed = self.pushed_elsewhere
        if len(pushed) < 2:
            return None
        words = f"what is pushed to {self.name} goes to {len(pushed)} addresses ({', '.join(pushed)})"
        return Trouble(Kind.REFUSED, words, _ONE_ADDRESS)

    # Answers

    def _ask(self, seconds: float, *args: str, silence: float | None = None) -> GitResult | Trouble:
        if missing := self._missing():
            return missing
        answer = self._git.across(*args, seconds=seconds, silence=silence, stop=self._stop)
        if answer.ended or answer.code < 0:
            return self._ended(answer, seconds)
        return read_trouble(answer.err) if answer.code else answer

    def _missing(self) -> Trouble | None:
        """Refuse a name that is no remote: git would take it for a path."""
        return None if self.url else Trouble(Kind.ABSENT, f"this repository has no remote {self.name}")

    def _ended(self, answer: GitResult, seconds: float) -> Trouble:
        if answer.ended == "stopped":
            return Trouble(Kind.STOPPED, "stopped")
        if answer.ended == "silent":
            return Trouble(Kind.OFFLINE, f"nothing was heard for {self._look:.0f} s")
        if answer.ended == "flooded":
            return Trouble(Kind.REFUSED, f"its answer is longer than {len(answer.out) >> 10:,} KiB")
        if not answer.ended:
            return Trouble(Kind.OFFLINE, f"git was killed by signal {-answer.code}")
        return Trouble(Kind.OFFLINE, f"no answer within {seconds:.0f} s")
