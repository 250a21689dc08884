"""A claim at the remote: which clone works on an item, since when, and until when nobody else may.

It is a commit without files, whose message is for people, and as JSON for Capsule. Whoever may push can write one: what
cannot be read counts as the claim of somebody unknown, which only a person takes over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from capsule.core.errors import InvalidId
from capsule.core.item import check_id
from capsule.core.stamps import clock_time, moment
from capsule.core.text import one_line, shortened

_LARGEST = 16_384
_LONGEST_NAME = 60
_MOST_CANDIDATES = 50
_UNKNOWN = "somebody"
_END_OF_TIME = moment("2200-01-01T00:00:00Z")
"""No clock says more."""


class Standing(StrEnum):
    """How the mission stands for which an item is claimed."""

    RUNNING = "running"
    NEEDS_YOU = "needs_you"
    """It waits for a person, who answers in that clone."""
    STOPPED = "stopped"
    """It can be resumed in that clone."""


class Holder(NamedTuple):
    """Who takes a claim."""

    clone: str
    host: str
    token: str


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A clone's right to work on an item."""

    item: str
    clone: str = ""
    """A random name of the clone; empty: it cannot be read whose it is."""
    host: str = _UNKNOWN
    token: str = ""
    """A random name of the process that took it: a copy of a clone is another holder."""
    since: str = ""
    until: str = ""
    """Afterwards another clone may take it over; empty: never by itself."""
    standing: Standing = Standing.RUNNING
    candidates: tuple[str, ...] = ()
    """Commits that were about to become main, each noted before it was pushed."""
    earlier: tuple[str, ...] = ()
    """Those of earlier holders, who lost the claim: one of them may have arrived after all."""

    def has_run_out(self, now: str) -> bool:
        return bool(self.until) and moment(self.until) <= moment(now)

    def about_to_publish(self, commit: str) -> Claim:
        """Return the claim with one more candidate."""
        known = [one for one in self.candidates if one != commit]
        return replace(self, candidates=tuple([*known, commit][-_MOST_CANDIDATES:]))

    def passed_on(self, holder: Holder, now: str, until: str) -> Claim:
        """Return the claim as another holder takes it, who has to look for what this one may have published."""
        earlier = tuple(dict.fromkeys([*self.earlier, *self.candidates]))[-_MOST_CANDIDATES:]
        return replace(new_claim(self.item, holder, now, until), earlier=earlier)

    def who(self, now: str) -> str:
        """Say who holds it and since when: `is worked on by ada's-laptop since 12:03`."""
        since = f" since {_clock(self.since, now)}" if self.since else ""
        if self.standing is Standing.RUNNING:
            return f"is worked on by {self.host}{since}"
        if self.standing is Standing.NEEDS_YOU:
            return f"needs you on {self.host}, claimed{since}" if since else f"needs you on {self.host}"
        return f"is kept by {self.host}{since}: it was stopped there"

    def until_when(self, now: str) -> str:
        """Say until when it holds: `lasts until 12:33`."""
        return f"{'ran out at' if self.has_run_out(now) else 'lasts until'} {_clock(self.until, now)}"

    def in_words(self, now: str) -> str:
        """Say who holds it, since when and until when."""
        until = f"its claim {self.until_when(now)}" if self.until else "it does not say until when"
        return f"{self.who(now)} ({until})"


def new_claim(item: str, holder: Holder, now: str, until: str) -> Claim:
    """Return the first claim on an item."""
    return Claim(item=item, clone=holder.clone, host=holder.host, token=holder.token, since=now, until=until)


def as_message(claim: Claim) -> str:
    """Return the message of the commit that is the claim."""
    body = msgspec.json.format(msgspec.json.encode(claim), indent=1).decode()
    return f"Capsule: {claim.item} is claimed by {claim.host}, {claim.since} to {claim.until}\n\n{body}\n"


def read_claim(item: str, message: str) -> Claim:
    """Read a claim; one that cannot be read, or is about another item, is that of somebody unknown."""
    found = Claim(item="")
    with suppress(ValueError, msgspec.MsgspecError):
        if len(message) <= _LARGEST:
            found = msgspec.json.decode(message[message.index("\n{") :], type=Claim)
    dated = all(0 < moment(stamp) < _END_OF_TIME for stamp in (found.since, found.until))
    if found.item != item or not (found.clone and found.token and dated):
        return Claim(item=item)
    return replace(found, host=shortened(one_line(found.host), _LONGEST_NAME) or _UNKNOWN)


def ref_of(namespace: str, item: str) -> str:
    """Return the ref at the remote that claims an item."""
    return f"{namespace}{check_id(item)}"


def items_of(namespace: str, refs: Mapping[str, str]) -> dict[str, str]:
    """Return what claims each item, of the refs that a remote lists; others in there are none of ours."""
    found = {}
    for ref, oid in refs.items():
        name = ref.removeprefix(namespace)
        if name != ref and _is_id(name):
            found[name] = oid
    return found


def _is_id(name: str) -> bool:
    try:
        return check_id(name) == name
    except InvalidId:
        return False


def held_by_others(claims: Iterable[Claim], clone: str, now: str) -> dict[str, Claim]:
    """Return the claims that keep this clone from items."""
    return {claim.item: claim for claim in claims if claim.clone != clone and not claim.has_run_out(now)}


def ran_out_elsewhere(claims: Iterable[Claim], clone: str, now: str) -> set[str]:
    """Name the items that other clones left in the middle of the work; not those that wait for a person there."""
    left = [claim for claim in claims if claim.clone != clone and claim.has_run_out(now)]
    return {claim.item for claim in left if claim.standing is not Standing.NEEDS_YOU}


def _clock(stamp: str, now: str) -> str:
    """Return the local time of a stamp in minutes, with the date if it is another day than now."""
    return re.sub(r"(:\d\d):\d\d$", r"\1", clock_time(now, moment(stamp) - moment(now)))
