"""Claims at the remote: an item is worked on by one clone at a time.

A claim is a ref, made only if there is none, and moved only from exactly where it was seen. Its holder renews it in a
thread, beside the work, by the clock on the wall: a process that was suspended finds at once that its time is over.

A lease alone does not keep a holder that was suspended in the middle of a push from pushing once it is woken. So each
commit that is about to become main is noted in the claim before it is pushed. Who takes the claim over inherits the
note, and pushes only onto a tip whose history it has searched for that commit: had the other push arrived after that,
main would have moved, and this one would be refused.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from capsule.adapters import Claims
from capsule.core.claim import (
    Claim,
    Holder,
    Standing,
    as_message,
    held_by_others,
    items_of,
    new_claim,
    ran_out_elsewhere,
    read_claim,
    ref_of,
)
from capsule.core.errors import CapsuleError, HeldElsewhere, MergedElsewhere, RemoteFault
from capsule.core.remote import SAYS, Kind, Trouble
from capsule.core.stamps import clock_time, moment, stamp_after
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import CAPSULE, RefMove
from capsule.system.lock import held as locked
from capsule.workspaces.remote import Remote

_TRANSFER_SECONDS = 20.0
_LOOK_SECONDS = 15.0
_FRESH_SECONDS = 20.0
"""How long a queue goes by what it has seen of others' claims."""
_TRIES = 5
"""How often a claim may change between a look and a move."""
_RENEWALS = 3
"""How often a claim is renewed in the time that it lasts."""
_TICKS = 20
_LONGEST_TICK = 5.0
_WHOLE_ID = r"[0-9a-f]{40}|[0-9a-f]{64}"
_LARGEST = 4096
_BRANCHES = "refs/heads/"


class Lasting(NamedTuple):
    """How many seconds a claim lasts."""

    while_running: float
    afterwards: float


class _Clone(msgspec.Struct, frozen=True):
    """The random name of this clone; a copy of its folder has other inodes, and gets another name."""

    name: str
    inode: int


class _Found(NamedTuple):
    """A claim, and the commit that it is."""

    claim: Claim
    commit: str


class _Held(msgspec.Struct):
    """A claim of this process."""

    claim: Claim
    commit: str
    renewed: str
    """When it was renewed last."""
    tried: str
    trouble: Trouble | None = None
    """What keeps it from being renewed."""
    lost: HeldElsewhere | None = None
    remarks: list[str] = msgspec.field(default_factory=list)


class RemoteClaims(Claims):
    """The Claims adapter on refs of a remote."""

    def __init__(
        self,
        git: Git,
        remote: str,
        namespace: str,
        lasting: Lasting,
        *,
        on_loss: Callable[[], None] = lambda: None,
        tell: Callable[[str, str], None] = lambda _item, _text: None,
        holder: Holder | None = None,
    ) -> None:
        """`on_loss` ends what works for a claim that is lost; `tell` shows what happens beside the work.

        `holder` takes the claims; by default, this clone.
        """
        self._holder = holder
        self._name, self._root = remote, git.root
        self._namespace = namespace
        self._lasting = lasting
        self._on_loss, self._tell = on_loss, tell
        self._held: dict[str, _Held] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: dict[str, Claim] = {}
        self._looked = 0.0

    # To begin and to end

    shared = True

    def take(self, item: str, holds: Callable[[str], bool], *, take_over: bool = False) -> str:
        now = self._now()
        claim = new_claim(item, self._us, now, self._until(now))
        old = told = ""
        with self._lock:
            for _ in range(_TRIES):
                made = self._put(claim, old)
                if isinstance(made, str):
                    self._keep(claim, made)
                    self._refuse_if_merged(claim, holds)
                    return told
                found = self._look(item) if made.kind is Kind.LOST else made
                if isinstance(found, Trouble):
                    return self._go_on_without(item, found)
                old = found.commit if found else ""
                claim, told = self._following(found.claim, now, take_over=take_over) if found else (claim, "")
        raise HeldElsewhere(f"The claim on {item} at {self._name} changes all the time.", f"capsule run {item}")

    def _following(self, claim: Claim, now: str, *, take_over: bool) -> tuple[Claim, str]:
        """Return the claim that comes after another one, and what is to be told; refuse while another clone has it."""
        if claim.clone == self._clone:
            mine = new_claim(claim.item, self._us, claim.since or now, self._until(now))
            return replace(mine, candidates=claim.candidates, earlier=claim.earlier), ""
        if not (take_over or claim.has_run_out(now)):
            raise self._refusal(claim, now)
        told = f"{claim.item} {claim.in_words(now)}; this clone has taken it over"
        return claim.passed_on(self._us, now, self._until(now)), told

    def _go_on_without(self, item: str, trouble: Trouble) -> str:
        """Go on with a claim that this clone has, if the remote cannot be asked and it has not run out."""
        now, commit = self._now(), self._git.ref(self._tracked(item))
        known = self._read(item, commit)
        if not (trouble.passes and known.clone == self._clone and not known.has_run_out(now)):
            raise self._fault(item, trouble)
        self._keep(known, commit)
        self._held[item].trouble = trouble
        return self._unreached(known, trouble)

    def _keep(self, claim: Claim, commit: str) -> None:
        now = self._now()
        self._held[claim.item] = _Held(claim, commit, renewed=now, tried=now)
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_all, daemon=True)
            self._thread.start()

    def let_go(self, item: str, standing: Standing) -> None:
        with self._lock:
            held = self._held.pop(item, None)
            if held is None or held.lost or held.trouble:
                return
            until = stamp_after(self._now(), self._lasting.afterwards)
            self._put(replace(held.claim, standing=standing, until=until), held.commit)

    def release(self, item: str) -> str:
        with self._lock:
            held = self._held.pop(item, None)
            if held and held.lost:
                return ""
            found: _Found | Trouble | None = _Found(held.claim, held.commit) if held else self._look(item)
            for _ in range(_TRIES):
                if isinstance(found, Trouble):
                    return f"{item} stays claimed at {self._name}, which {SAYS[found.kind]}: {found.words}"
                if found is None or found.claim.clone != self._clone:
                    return ""
                trouble = self._remote.delete(self._ref(item), found.commit)
                if trouble is None:
                    self._remember({item: ""})
                    return ""
                found = self._look(item) if trouble.kind is Kind.LOST else trouble
        return ""

    def close(self) -> None:
        self._closed.set()

    # Beside the work

    def check(self, item: str) -> Sequence[str]:
        with self._lock:
            held = self._held.get(item)
            if held is None:
                return ()
            if not held.lost and held.claim.has_run_out(self._now()):
                self._renew(held)
            if held.lost:
                raise held.lost
            if held.trouble and held.claim.has_run_out(self._now()):
                raise self._fault(item, held.trouble, ran_out=held.claim)
            said, held.remarks = held.remarks, []
            return said

    def confirm(self, item: str) -> None:
        with self._lock:
            held = self._held.get(item)
            if held is None:
                return
            if not held.lost:
                self._renew(held)
            if held.lost:
                raise held.lost
            if held.trouble:
                raise self._fault(item, held.trouble)

    def lost(self, item: str) -> CapsuleError | None:
        held = self._held.get(item)
        return held.lost if held else None

    def _renew_all(self) -> None:
        tick = min(_LONGEST_TICK, self._lasting.while_running / _TICKS)
        while not self._closed.wait(tick):
            with self._lock:
                for held in self._held.values():
                    if not held.lost and self._is_due(held):
                        self._renew_or_note(held)

    def _renew_or_note(self, held: _Held) -> None:
        """Renew it; what keeps this machine from that is noted, as what keeps the remote from it."""
        try:
            self._renew(held)
        except (CapsuleError, OSError) as fault:
            held.trouble = Trouble(Kind.OFFLINE, str(fault))
            self._remark(held, self._unreached(held.claim, held.trouble))

    def _is_due(self, held: _Held) -> bool:
        """Tell whether it is time to renew; more often while that fails."""
        often = _TICKS / 2 if held.trouble else _RENEWALS
        return moment(self._now()) - moment(held.tried) >= self._lasting.while_running / often

    def _renew(self, held: _Held) -> None:
        item, now = held.claim.item, self._now()
        held.tried = now
        for _ in range(_TRIES):
            claim = replace(held.claim, until=self._until(now))
            made = self._put(claim, held.commit)
            if isinstance(made, str):
                if held.trouble:
                    self._remark(held, f"{self._name} can be reached again: {item} is claimed as before")
                held.claim, held.commit, held.renewed, held.trouble = claim, made, now, None
                return
            trouble = self._catch_up(held) if made.kind is Kind.LOST else made
            if held.lost:
                return
            if trouble:
                if not held.trouble:
                    self._remark(held, self._unreached(held.claim, trouble))
                held.trouble = trouble
                return

    def _catch_up(self, held: _Held) -> Trouble | None:
        """Find out why a claim is not where this process left it: moved for us, or lost."""
        found = self._look(held.claim.item)
        if isinstance(found, Trouble):
            return found
        if found and found.claim.token == self._us.token:  # by an answer that was lost, or to publish a batch
            held.claim, held.commit = found
            return None
        held.lost = self._loss(held.claim, found.claim if found else None)
        self._on_loss()
        return None

    def _remark(self, held: _Held, text: str) -> None:
        held.remarks.append(text)
        self._tell(held.claim.item, text)

    # To publish

    def about_to_publish(self, items: Iterable[str], commit: str, onto: str) -> None:
        with self._lock:
            for item in items:
                try:
                    self._note_candidate(item, commit, onto)
                except (HeldElsewhere, MergedElsewhere) as lost:
                    lost.item = item
                    raise

    def _note_candidate(self, item: str, commit: str, onto: str) -> None:
        """Note it by a move of the claim: that it succeeds shows that the claim is still this clone's."""
        for _ in range(_TRIES):
            held = self._held.get(item)
            found: _Found | Trouble | None = _Found(held.claim, held.commit) if held else self._look(item)
            if isinstance(found, Trouble):
                raise self._fault(item, found)
            if held and held.lost:
                raise held.lost
            if found is None or found.claim.clone != self._clone:
                raise self._loss(Claim(item=item), found.claim if found else None)
            self._refuse_if_merged(found.claim, partial(self._is_before, onto))
            until = self._until(self._now())
            claim = replace(found.claim.about_to_publish(commit), until=max(until, found.claim.until))
            made = self._put(claim, found.commit)
            if isinstance(made, str):
                if held:
                    held.claim, held.commit, held.trouble = claim, made, None
                return
            trouble = made if made.kind is not Kind.LOST else self._catch_up(held) if held else None
            if trouble:
                raise self._fault(item, trouble)
        raise HeldElsewhere(f"The claim on {item} at {self._name} changes all the time.", f"capsule run {item}")

    def _is_before(self, tip: str, commit: str) -> bool:
        return self._git.is_ancestor(commit, tip)

    def _refuse_if_merged(self, claim: Claim, holds: Callable[[str], bool]) -> None:
        """Look for what earlier holders may have published after they had lost the claim."""
        for commit in claim.earlier:
            if re.fullmatch(_WHOLE_ID, commit) and self._git.resolve(commit) and holds(commit):
                raise MergedElsewhere(
                    f"{claim.item} was merged by another clone, as {commit[:12]}; nothing was merged here.",
                    f"Close it: capsule complete {claim.item}",
                )

    # Of other clones

    def refuse_if_held(self, item: str) -> None:
        found, now = self._look(item), self._now()
        if isinstance(found, _Found) and held_by_others([found.claim], self._clone, now):
            raise self._refusal(found.claim, now)

    def elsewhere(self, *, look: bool = True) -> Mapping[str, Claim]:
        with self._lock:
            if look and (not self._looked or time.monotonic() - self._looked > _FRESH_SECONDS):
                self._looked = time.monotonic()
                self._list()
            elif not look:
                known = self._git.refs(self._tracked("").rstrip("/"))
                self._seen = self._claims_of(items_of(self._tracked(""), known))
            if not self._seen:
                return {}
            return held_by_others(self._seen.values(), self._clone, self._now())

    def left_behind(self) -> Collection[str]:
        return ran_out_elsewhere(self._seen.values(), self._clone, self._now())

    def look_again(self) -> None:
        self._looked = 0.0

    def _list(self) -> None:
        """See all claims with one question, and fetch those that are new together."""
        listed = self._remote.refs(f"{self._namespace}*")
        if isinstance(listed, Trouble):
            return
        there = items_of(self._namespace, listed)
        if any(not self._git.resolve(commit) for commit in there.values()):
            self._remote.fetch_ref(f"{self._namespace}*", self._tracked("*"))
        known = items_of(self._tracked(""), self._git.refs(self._tracked("").rstrip("/")))
        self._remember(dict.fromkeys(known.keys() - there.keys(), "") | there)
        self._seen = self._claims_of(there)

    def _claims_of(self, commits: Mapping[str, str]) -> dict[str, Claim]:
        return {item: self._read(item, commit) for item, commit in commits.items()}

    def _look(self, item: str) -> _Found | Trouble | None:
        """See one claim as it is now; None if there is none."""
        for _ in range(_TRIES):
            there = self._remote.refs(self._ref(item))
            if isinstance(there, Trouble):
                return there
            commit = there.get(self._ref(item), "")
            if not commit:
                self._remember({item: ""})
                return None
            if not self._git.resolve(commit):
                fetched = self._remote.fetch_ref(self._ref(item), self._tracked(item))
                if isinstance(fetched, Trouble) and fetched.kind is Kind.ABSENT:  # released meanwhile
                    continue
                if isinstance(fetched, Trouble):
                    return fetched
                commit = fetched
            self._remember({item: commit})
            return _Found(self._read(item, commit), commit)
        return None

    def _read(self, item: str, commit: str) -> Claim:
        message = self._git.commit(commit).message if commit and self._git.resolve(commit) else ""
        return read_claim(item, message)

    # Words

    def _refusal(self, claim: Claim, now: str) -> HeldElsewhere:
        item = claim.item
        hint = f"Leave it to that clone, or take it over: capsule run {item} --take-over"
        return HeldElsewhere(f"{item} {claim.in_words(now)}.", hint)

    def _loss(self, ours: Claim, theirs: Claim | None) -> HeldElsewhere:
        item, now = ours.item, self._now()
        who = f"{item} {theirs.in_words(now)} by now" if theirs else f"the claim on {item} was released by somebody"
        back = f"capsule run {item}" + (" --take-over takes it back" if theirs else " claims it again")
        return HeldElsewhere(
            f"This clone has lost its claim: {who}. Nothing was pushed, everything is kept.",
            f"Leave it to that clone (capsule clean {item} puts this work away), or: {back}",
        )

    def _fault(self, item: str, trouble: Trouble, *, ran_out: Claim | None = None) -> RemoteFault:
        again = f"Nothing is lost: once it is back, `capsule run {item}`."
        hint = again if trouble.passes else f"Try it by hand: git ls-remote {self._name}"
        if trouble.kind is Kind.REFUSED:
            hint = f"`merge.claims` says where items are claimed; it is {self._namespace} now"
            branches = ": a server may accept only `refs/heads/capsule-claims/`, and `merge.refs: refs/heads/capsule/`"
            hint += "." if self._namespace.startswith(_BRANCHES) else f"{branches}."
        asked = self._name if trouble.passes else f"{self._name} ({self._ref(item)})"
        fault = RemoteFault(asked, trouble, hint)
        why = f"{item} is not claimed"
        if ran_out:
            why = f"{item} stops: its claim {ran_out.until_when(self._now())}, and another clone may take it over"
        fault.message = f"{why}: {fault.message}"
        return fault

    def _unreached(self, claim: Claim, trouble: Trouble) -> str:
        until = clock_time(claim.until)[:5]
        the = "Offline: the" if trouble.passes else "The"
        return (
            f"{the} claim on {claim.item} at {self._name} cannot be renewed ({trouble.words}); it expires at {until}."
        )

    # Objects

    @cached_property
    def _git(self) -> Git:
        """Return a git of our own, as the thread of the work uses the other one meanwhile."""
        return Git.find(self._root)

    @cached_property
    def _remote(self) -> Remote:
        return Remote(self._git, self._name, transfer=_TRANSFER_SECONDS, look=_LOOK_SECONDS)

    def _put(self, claim: Claim, old: str) -> str | Trouble:
        """Move the claim at the remote from exactly `old` ('': there is none), and return the new commit."""
        date = f"{moment(self._now()):.0f} +0000"
        commit = self._git.commit_tree(self._git.make_tree(()), (), as_message(claim), by=CAPSULE, date=date)
        trouble = self._remote.replace(commit, self._ref(claim.item), old)
        if trouble:
            return trouble
        self._remember({claim.item: commit})
        return commit

    def _remember(self, commits: Mapping[str, str]) -> None:
        """Keep what was seen, so that it is known without the remote; '': there is none."""
        known = self._git.refs(self._tracked("").rstrip("/"))
        refs = {self._tracked(item): commit for item, commit in commits.items()}
        moves = [RefMove(ref, new) for ref, new in refs.items() if known.get(ref, "") != new]
        moves = [move for move in moves if not move.new or self._git.resolve(move.new)]
        if moves:
            with suppress(GitFailed):  # another process of this clone has just done so
                self._git.move_refs(*moves, why="capsule: claims")

    def _ref(self, item: str) -> str:
        return ref_of(self._namespace, item)

    def _tracked(self, item: str) -> str:
        """Return the ref of our own that has the claim on an item as it was seen last."""
        return f"refs/capsule/claimed/{self._name}/{item}"

    def _until(self, now: str) -> str:
        return stamp_after(now, self._lasting.while_running)

    @cached_property
    def _us(self) -> Holder:
        return self._holder or Holder(self._clone, platform.node(), os.urandom(8).hex())

    @cached_property
    def _clone(self) -> str:
        """Return the name of this clone, made up at its first claim; or the one that the holder has."""
        if self._holder:
            return self._holder.clone
        note, inode = self._git.capsule_dir / "clone.json", self._git.common_dir.stat().st_ino
        note.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._git.capsule_dir / "locks" / "clone.lock", _LOOK_SECONDS):
            with suppress(OSError, msgspec.MsgspecError):
                found = msgspec.json.decode(read_regular(note, _LARGEST), type=_Clone)
                if found.inode == inode:
                    return found.name
            name = os.urandom(8).hex()
            write_atomically(note, msgspec.json.encode(_Clone(name, inode)))
            return name

    def _now(self) -> str:
        return SystemClock().now()
