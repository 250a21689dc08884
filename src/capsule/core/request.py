"""A request to merge, such as a pull request: what its forge says, and what follows from that.

The forge's answer counts: work that it squashed or rebased is merged, whatever the commits are called. What people
wrote there is untrusted. Only reviews that request changes come back, of people who may write to the repository where
the forge says who may; a comment by anybody else does nothing. What has come back once does not come back again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from capsule.core.remote import Kind, Trouble, read_trouble, without_credentials
from capsule.core.text import cleaned, one_line, shortened

MOST_REVIEWS = 20
MOST_REMARKS = 50
MOST_CHECKS = 30
_LONGEST_TEXT = 4000
_LONGEST_FEEDBACK = 12_000
_LONGEST_NAME = 120
_LONGEST_ADDRESS = 300
_LONGEST_WORDS = 600
_PAUSE, _LONGEST_PAUSE, _MOST_DOUBLINGS = 300.0, 3600.0, 10
_JOINER = "\u2060"
"""Prints nothing, and keeps a forge from taking a word for a mention, or a number for an issue that is to be closed."""
_MENTION = re.compile(
    r"(?<=@)(?=\w)|(?<=[#!])(?=\d)|(?:(?<=\bGH-)|(?<=/issues/)|(?<=/work_items/)|(?<=/pull/)|(?<=/merge_requests/))(?=\d)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://[^\s<>\"'`]+")


class Standing(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"
    """Closed without a merge."""


class Outcome(StrEnum):
    """What a check on the proposed commit came to."""

    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"


class LineRemark(Struct, frozen=True):
    """A remark about a line of a file, or about the file."""

    text: str
    path: str = ""
    line: int | None = None


class ChangeRequest(Struct, frozen=True):
    """A review that requests changes."""

    id: str
    author: str = ""
    text: str = ""
    remarks: tuple[LineRemark, ...] = ()


class ForgeCheck(Struct, frozen=True):
    name: str
    outcome: Outcome
    url: str = ""


class Seen(Struct, frozen=True, kw_only=True):
    """A request as its forge shows it."""

    standing: Standing
    number: int = 0
    url: str = ""
    head: str = ""
    """The commit that it proposes now."""
    base: str = ""
    """The branch that it is for; people may choose another one. '' if the forge does not say."""
    merged_as: str = ""
    """The commit that brought it to its branch; '' if the forge does not say."""
    reviews: tuple[ChangeRequest, ...] = ()
    """Those that request changes, by people whose reviews count."""
    checks: tuple[ForgeCheck, ...] = ()

    def went_elsewhere(self, base: str) -> bool:
        """Tell whether it was merged into another branch than this one."""
        return self.standing is Standing.MERGED and self.base not in ("", base)


class RequestDraft(Struct, frozen=True):
    """A request to be opened."""

    branch: str
    base: str
    title: str
    body: str


class Request(Struct, frozen=True, kw_only=True):
    """The request of a mission, as its journal knows it."""

    url: str
    number: int = 0
    branch: str = ""
    commit: str = ""
    """The commit that was pushed last."""
    phase: str = ""
    """The phase that opened it."""
    waits: bool = True
    """Whether it is up to reviewers now."""
    rounds: int = 0
    """How often its work went back since a person last resumed it."""
    heard: tuple[str, ...] = ()
    """Reviews and failed checks that came back already."""


class Fate(StrEnum):
    """What has become of a request."""

    MERGED = "merged"
    CLOSED = "closed"
    CHANGES = "changes"
    """It goes back to an agent."""
    STUCK = "stuck"
    """It needs a person."""


class News(Struct, frozen=True):
    """What a forge says that the mission does not know yet."""

    fate: Fate
    text: str = ""
    """The feedback, or the reason."""
    by: tuple[str, ...] = ()
    """Who reviewed, and which checks failed."""
    ids: tuple[str, ...] = ()
    commit: str = ""
    red: tuple[str, ...] = ()
    """The checks that failed."""


def news(seen: Seen, known: Request, *, head: str, ours: Collection[str], base: str) -> News | None:
    """Decide what follows from a forge's answer; None as long as it waits.

    `head` is the commit of its branch at the remote, '' if there is no such branch; `ours` are those that we pushed;
    `base` is the branch that the work is for.
    """
    gone = f"its branch {known.branch} was deleted" if not head else ""
    if seen.standing is not Standing.OPEN:
        return _end(seen, gone, base)
    if gone:
        return News(Fate.STUCK, f"{gone} while its request is open")
    reviews, failed = _that_fit(
        [review for review in seen.reviews if review.id not in known.heard],
        [check for check in _failed(seen) if check_id(seen.head, check) not in known.heard],
        seen.url or known.url,
    )
    if not reviews and not failed:
        return None
    ids = (*(review.id for review in reviews), *(check_id(seen.head, check) for check in failed))
    red = tuple(_name(check.name) for check in failed)
    by = (*dict.fromkeys(_name(review.author) for review in reviews), *red)
    text = feedback(seen.url or known.url, reviews, failed)
    if head not in ours:
        why = f"{head[:12]} on {known.branch} was pushed by somebody else, so the branch is left as it is"
        return News(Fate.STUCK, f"{why}.\n\n{text}", by, ids)
    return News(Fate.CHANGES, text, by, ids, red=red)


def _end(seen: Seen, gone: str, base: str) -> News:
    if seen.went_elsewhere(base):
        why = f"its request was merged into {_name(seen.base)}, not into {base}"
        return News(Fate.STUCK, f"{why}: complete the item if it belongs there; if it goes on, it is proposed again")
    if seen.standing is Standing.MERGED:
        return News(Fate.MERGED, commit=seen.merged_as)
    return News(Fate.CLOSED, f"its request was closed without a merge{f', and {gone}' if gone else ''}")


def _failed(seen: Seen) -> list[ForgeCheck]:
    """Return failed checks once none is under way any more: they come back together."""
    if any(check.outcome is Outcome.PENDING for check in seen.checks):
        return []
    return [check for check in seen.checks if check.outcome is Outcome.FAILED]


def _that_fit(
    reviews: Sequence[ChangeRequest], failed: Sequence[ForgeCheck], url: str
) -> tuple[Sequence[ChangeRequest], Sequence[ForgeCheck]]:
    """Return as many, at least one, as one feedback has room for: the others come back with the next one."""
    reviews, failed = reviews[:MOST_REVIEWS], failed[:MOST_CHECKS]
    for number in range(1, len(reviews) + len(failed)):
        checks = max(0, number - len(reviews))
        more = (reviews, failed[: checks + 1]) if number >= len(reviews) else (reviews[: number + 1], ())
        if len(_in_full(url, *more)) > _LONGEST_FEEDBACK:
            return reviews[:number], failed[:checks]
    return reviews, failed


def check_id(commit: str, check: ForgeCheck) -> str:
    return f"check {commit[:12]} {_name(check.name)}"


def feedback(url: str, reviews: Iterable[ChangeRequest], failed: Iterable[ForgeCheck]) -> str:
    """Write down what reviewers and checks say, bounded, for an agent that reads it as data."""
    return shortened(_in_full(url, reviews, failed), _LONGEST_FEEDBACK)


def _in_full(url: str, reviews: Iterable[ChangeRequest], failed: Iterable[ForgeCheck]) -> str:
    parts = [f"This work is under review: {_address(url)}"]
    parts += [part for review in reviews for part in _review_parts(review)]
    checks = [f"- {_name(check.name)}{f' ({_address(check.url)})' if check.url else ''}" for check in failed]
    parts += [f"Checks that failed on it:\n{chr(10).join(checks)}"] if checks else []
    return "\n\n".join(parts)


def _review_parts(review: ChangeRequest) -> Iterator[str]:
    said = shortened(cleaned(review.text).strip(), _LONGEST_TEXT)
    yield f"{_name(review.author) or 'A reviewer'} requests changes{f':{chr(10)}{said}' if said else '.'}"
    for remark in review.remarks[:MOST_REMARKS]:
        line = f":{remark.line}" if remark.line else ""
        where = f"{_name(remark.path)}{line}: " if remark.path else ""
        yield f"{where}{shortened(cleaned(remark.text).strip(), _LONGEST_TEXT)}"


def _name(text: str) -> str:
    return shortened(one_line(text), _LONGEST_NAME)


def _address(text: str) -> str:
    """Return the address if it is one; a forge's answer may hold anything."""
    return text[:_LONGEST_ADDRESS] if _ADDRESS.fullmatch(text) else "(no address)"


def inert(text: str) -> str:
    """Return the text as one that mentions nobody, refers to nothing and closes nothing at a forge."""
    return _MENTION.sub(_JOINER, text)


def address_in(text: str) -> str:
    """Return the last address in what a command printed; '' if there is none."""
    found = _ADDRESS.findall(text)
    return found[-1].rstrip(".,)")[:_LONGEST_ADDRESS] if found else ""


def look_again_after(faults: int) -> float:
    """Return the seconds between two looks at all requests, after so many in a row that got no answer."""
    return min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(faults, _MOST_DOUBLINGS))


_OFFLINE = re.compile(
    r"error connecting to|dial tcp|no such host|i/o timeout|proxyconnect|TLS handshake|unexpected EOF|deadline exceeded"
    r"|HTTP (?:408|429|5\d\d)|\b50[0234] [A-Z]|rate limit|server misbehaving",
    re.IGNORECASE,
)


def forge_trouble(said: str) -> Trouble:
    """Read why a forge's program failed from everything that it printed."""
    words = shortened(without_credentials(one_line(said)), _LONGEST_WORDS) or "it said nothing"
    return Trouble(Kind.OFFLINE if _OFFLINE.search(said) else read_trouble(said).kind, words)
