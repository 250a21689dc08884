"""What keeps us from a remote, read from what git and its server say.

Four kinds are told apart, because each asks for something else: a lost race is tried again on the new tip, what passes
is waited for, what was refused needs a person, who is shown the server's own words, and what is absent was never there.
Rows of the table are tried in order. What nothing matches counts as refused: a person reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import combinations

from msgspec import Struct

from capsule.core.text import one_line

BRANCHES = "refs/heads/"
_OF_REQUESTS = "refs/heads/capsule/"
_LONGEST = 600
_MOST_LINES = 8
_STEERING = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
_PROGRESS = r"[=*\- ]+|\w+ing [a-z ]*(?:objects|deltas|references)\b.*|Total \d+ .*"
_USER_INFO = r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@']+@"
_CREDENTIAL = r"(?i)\b((?:bearer|basic|token)\s+|(?:access_token|private_token|password|token)=)[^\s&'\"]+"


class Kind(StrEnum):
    LOST = "lost"
    """The ref is not where we thought it was: somebody was faster."""
    OFFLINE = "offline"
    """The remote cannot be reached, is too slow or overloaded: that passes."""
    REFUSED = "refused"
    """No credentials, a protected branch, a hook, a quota: only a person can help."""
    ABSENT = "absent"
    """There is no such remote, repository or branch."""
    STOPPED = "stopped"
    """The user asked Capsule to stop."""


SAYS = {
    Kind.LOST: "has moved meanwhile",
    Kind.OFFLINE: "cannot be reached",
    Kind.REFUSED: "refused",
    Kind.ABSENT: "was not found",
    Kind.STOPPED: "was not asked",
}
"""What a remote does, in words for people."""


class Trouble(Struct, frozen=True):
    """Why a call to a remote did not succeed, in the words of git or of the server."""

    kind: Kind
    words: str
    way: str = ""
    """What helps, where that is known."""

    @property
    def passes(self) -> bool:
        return self.kind is Kind.OFFLINE


def request_namespace(refs: str) -> str:
    """Return where the branches of requests are: the place that is set for work, if it is one for branches."""
    return refs if refs.startswith(BRANCHES) else _OF_REQUESTS


def overlapping(places: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the names of two places for refs, of which one is the other or lies in it; None if all are apart."""
    for (one, ref), (other, another) in combinations(places.items(), 2):
        inner, outer = sorted((f"{ref.rstrip('/')}/", f"{another.rstrip('/')}/"), key=len, reverse=True)
        if inner.startswith(outer):
            return one, other
    return None


_TABLE: tuple[tuple[Kind, str], ...] = (
    (
        Kind.LOST,
        r"\((?:stale info|fetch first|non-fast-forward|needs force|already exists|remote ref updated since checkout)\)"
        r"|reference already exists|incorrect old value|is at [0-9a-f]{40,64} but expected"
        r"|cannot lock ref [^\n]*File exists|unable to create [^\n]*\.lock': File exists"
        r"|cannot lock ref [^\n]*(?:reference is missing|unable to resolve reference)",
    ),
    (
        Kind.OFFLINE,
        r"could not resolve host|failed to connect|couldn't connect|connection (?:refused|timed out|reset|closed)"
        r"|network is (?:unreachable|down)|no route to host|name resolution|operation (?:timed out|too slow)"
        r"|returned error: (?:408|429|5\d\d)|early EOF|remote end hung up|unexpected disconnect|RPC failed"
        r"|timed out|empty reply from server|recv failure|send failure|gnutls_handshake|ssl_error_syscall"
        r"|kex_exchange_identification|broken pipe|transfer closed|service unavailable|too many requests",
    ),
    (
        Kind.ABSENT,
        r"couldn't find remote ref|repository [^\n]*not found|returned error: 404|not appear to be a git repository"
        r"|no such remote|project you were looking for could not be found",
    ),
    (Kind.REFUSED, r""),
)
_DECIDED = r"remote rejected|authentication failed|permission denied|access denied|returned error: (?:401|403|413)"
"""The server has answered: it hangs up after that, too."""


def read_trouble(said: str) -> Trouble:
    """Read why a command failed from everything that it printed."""
    for kind, pattern in _TABLE:
        settled = kind is Kind.OFFLINE and re.search(_DECIDED, said, re.IGNORECASE)
        if not settled and re.search(pattern, said, re.IGNORECASE):
            return Trouble(kind, told(said))
    raise AssertionError("the last row matches everything")


def read_push(listing: str, said: str) -> Trouble | None:
    """Read how the push of one ref ended (`git push --porcelain`); None if the remote has it now."""
    rows = [row.split("\t") for row in listing.splitlines() if row.count("\t") == 2]
    flags = {row[0] for row in rows}
    if rows and "!" not in flags:
        return None
    reasons = "\n".join(row[2] for row in rows if row[0] == "!")
    return read_trouble(f"{reasons}\n{said}")


def told(said: str) -> str:
    """Return what the server says, else what git says, on one line and without credentials."""
    lines = [one_line(re.sub(_STEERING, "", line)) for line in said.splitlines()]
    lines = [line for line in dict.fromkeys(lines) if line]
    reasons = [line for line in lines if line.startswith("[")]
    server = [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]
    server = [line for line in server if line and not re.fullmatch(_PROGRESS, line)]
    git = [line for line in lines if line.startswith(("fatal:", "error:", "ssh:")) and "failed to push" not in line]
    chosen = [*server, *reasons] if server else [*reasons, *git] if reasons or git else lines[-1:]
    words = " ".join(chosen[:_MOST_LINES]) or "it said nothing"
    return without_credentials(words)[:_LONGEST]


def without_credentials(text: str) -> str:
    """Take user names, passwords and tokens out of the URLs in a text."""
    return re.sub(_CREDENTIAL, r"\1***", re.sub(_USER_INFO, r"\1", text))
