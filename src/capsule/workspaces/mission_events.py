"""The events of missions in git: a ref for each mission, at the remote, so that any machine can go on with it.

Each commit holds all events so far, one file for each time that some were added, and has the checkpoints among them as
further parents: who fetches the ref has the work, too. A commit names its fence, which grows with each attempt at a
step. A writer replaces what has a lower fence, and gives way to a higher one: a machine that was cut off, and comes
back after another one has taken over, writes nothing any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from capsule.core.errors import HeldElsewhere, RemoteFault
from capsule.core.event import Event, decode, encode
from capsule.core.evidence import Checkpoint
from capsule.core.item import check_id
from capsule.core.remote import Kind, Trouble
from capsule.core.stamps import moment
from capsule.system.git import Git
from capsule.system.git_objects import CAPSULE, TreeEntry
from capsule.workspaces.remote import Remote

_FENCE = re.compile(r"^Capsule-Fence: (\S+)$", re.MULTILINE)
_TRIES = 5
Answer = TypeVar("Answer")
_LARGEST = 64 * 1024 * 1024


class MissionEvents:
    """Read and write the events of missions at a remote; `namespace` is where their refs are."""

    def __init__(self, git: Git, remote: Remote, namespace: str) -> None:
        self._git, self._remote, self._namespace = git, remote, namespace

    def fetch(self, mission: str) -> str:
        """Fetch a mission's events; return the commit that has them, or '' if there are none."""
        ref = self._ref(mission)
        there = self._answered(self._remote.refs(ref))
        if not there.get(ref):
            return ""
        if self._git.resolve(there[ref]) and self._git.ref(self._tracked(mission)) == there[ref]:
            return there[ref]
        return self._answered(self._remote.fetch_ref(ref, self._tracked(mission)))

    def fetch_all(self) -> Trouble | None:
        """Fetch the events of all missions; return what keeps us from that."""
        found = self._remote.fetch_ref(f"{self._namespace}*", self._tracked("*"))
        return found if isinstance(found, Trouble) and found.kind is not Kind.ABSENT else None

    def known(self) -> Mapping[str, str]:
        """Return the missions whose events were fetched, each with the commit that has them."""
        prefix = self._tracked("")
        return {ref.removeprefix(prefix): commit for ref, commit in self._git.refs(prefix.rstrip("/")).items()}

    def read(self, commit: str) -> list[Event]:
        """Read the events of a commit, in order."""
        if not commit:
            return []
        blobs = [entry.oid for entry in self._git.list_tree(commit) if entry.kind == "blob"]
        texts = self._git.read_blobs(blobs, _LARGEST) or []
        return [decode(line) for text in texts for line in text.splitlines() if line]

    def add(self, mission: str, onto: str, events: Sequence[Event], fence: str, now: str) -> str:
        """Add events to those of a commit, and put them at the remote; return the new commit.

        Raise HeldElsewhere if somebody with a higher fence has written meanwhile.
        """
        commit = self._commit(mission, onto, events, fence, now) if events else onto
        ref, old = self._ref(mission), self._git.ref(self._tracked(mission))
        for _ in range(_TRIES):
            if commit == old:
                return commit
            if old and self._fence(old) > fence:
                raise HeldElsewhere(f"Another machine works on {mission} by now.", f"capsule show {mission}")
            trouble = self._remote.replace(commit, ref, old)
            if trouble is None:
                return commit
            if trouble.kind is not Kind.LOST:
                raise RemoteFault(f"{self._remote.name} ({ref})", trouble)
            old = self.fetch(mission)
        raise HeldElsewhere(f"The events of {mission} change all the time.", f"capsule show {mission}")

    def _commit(self, mission: str, onto: str, events: Sequence[Event], fence: str, now: str) -> str:
        rows = list(self._git.list_tree(onto)) if onto else []
        number, held = len(rows) + 1, _checkpoints(events)
        text = b"".join(encode(event) + b"\n" for event in events)
        rows.append(TreeEntry("100644", "blob", self._git.write_blob(text), f"{number:06d}.jsonl".encode()))
        # A tree that people or a rebase made of approved work is in no commit.
        trees = dict.fromkeys(one.tree for one in held)
        rows += [
            TreeEntry("040000", "tree", tree, f"{number:06d}-{place}".encode()) for place, tree in enumerate(trees)
        ]
        commits = dict.fromkeys(commit for one in held for commit in (one.commit, one.head))
        message = f"Capsule: {mission}, {len(events)} more events\n\nCapsule-Fence: {fence}\n"
        return self._git.commit_tree(
            self._git.make_tree(rows),
            [*([onto] if onto else []), *commits],
            message,
            by=CAPSULE,
            date=f"{moment(now):.0f} +0000",
        )

    def _fence(self, commit: str) -> str:
        found = _FENCE.search(self._git.commit(commit).message)
        return found[1] if found else ""

    def _answered(self, answer: Answer | Trouble) -> Answer:
        if isinstance(answer, Trouble):
            raise RemoteFault(self._remote.name, answer)
        return answer

    def _ref(self, mission: str) -> str:
        return f"{self._namespace}{check_id(mission)}"

    def _tracked(self, mission: str) -> str:
        return f"refs/capsule/events/{self._remote.name}/{mission}"


def _checkpoints(events: Sequence[Event]) -> list[Checkpoint]:
    """Return the checkpoints that these events name, each once."""
    named = [
        each
        for event in events
        for part in (event, getattr(event, "outcome", None))
        for each in (getattr(part, "checkpoint", None), *getattr(part, "approved", {}).values())
    ]
    return list(dict.fromkeys(filter(None, named)))
