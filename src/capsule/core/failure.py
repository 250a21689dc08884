"""Name what goes wrong with an agent, in one vocabulary, and what is done about it.

Agents report API errors as success, deny themselves permissions and still say PASS, or stop printing. Each adapter
translates its CLI's way of saying so into one of these kinds; the table says what follows from it. Only what the agent
itself is to blame for is judged; what its provider or the machine is to blame for costs no retry.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate limit"
    OVERLOAD = "overload"
    CONNECTION = "connection"
    CONFIGURATION = "configuration"
    MISSING = "missing"
    """The CLI is not installed, or cannot be started."""
    CONTEXT = "context too long"
    REFUSAL = "refusal"
    PERMISSION = "permission denied"
    CUT_SHORT = "cut short"
    """It hit a limit of its own: turns, tokens of one answer, its budget."""
    CRASH = "crash"
    TIMEOUT = "time-out"
    SILENT = "silent"
    """It printed nothing for too long, or ended without output."""


class Reaction(StrEnum):
    WAIT = "wait"
    """The engine waits and starts it again; no retry is spent."""
    STOP = "stop"
    """The run stops at once, the cause named; the item stays where it was."""
    JUDGE = "judge"
    """The phase has ended badly, and the table of verdicts says what follows."""


REACTIONS: dict[Kind, Reaction] = {
    **dict.fromkeys(Kind, Reaction.JUDGE),
    **dict.fromkeys((Kind.RATE_LIMIT, Kind.OVERLOAD, Kind.CONNECTION), Reaction.WAIT),
    **dict.fromkeys((Kind.AUTH, Kind.QUOTA, Kind.CONFIGURATION, Kind.MISSING), Reaction.STOP),
}

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 15 * 60.0
_JITTER = 0.25


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure of an agent, in one line, and advice for people."""

    kind: Kind
    reason: str
    hint: str = ""
    resets_in: float | None = None
    """Seconds until the next try, as the provider says."""

    @property
    def reaction(self) -> Reaction:
        return REACTIONS[self.kind]


def pause(tries: int, resets_in: float | None, chance: float) -> float:
    """Return seconds to wait after so many tries: as the provider says, else doubling, up to a cap.

    A provider that refused again after its own stated pause is not asked sooner than that. `chance` lies between 0 and
    1 and spreads the retries of many agents that were refused at once.
    """
    grown = min(FIRST_PAUSE * float(2 ** min(tries, 20)), LONGEST_PAUSE) * (1 - _JITTER + 2 * _JITTER * chance)
    if resets_in is None:
        return grown
    asked = max(1.0, resets_in) * (1 + _JITTER * chance / 5)
    return max(asked, grown) if tries else asked
