"""What a user can fix. Everything else is data (the world misbehaved) or a bug (we are wrong)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class CapsuleError(Exception):
    """One line of cause, one line of what to do next, and the exit code."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if exit_code is not None:
            self.exit_code = exit_code


class NeedsPerson(CapsuleError):
    """What stands in the way of a phase can be settled by nobody but the user; trying again would be in vain."""

    exit_code = 1


class UsageError(CapsuleError):
    """The command line is off."""


class PrerequisiteMissing(CapsuleError):
    """Something Capsule needs is not installed. Nothing has been created."""


class SettingsError(CapsuleError):
    """A settings or workflow file is wrong."""


class InvalidId(CapsuleError):
    """An id that may not become a path or a branch name."""


class UnknownItem(CapsuleError):
    """The tracker does not know this id."""


class TrackerError(CapsuleError):
    """The tracker's data cannot be read or written."""


class Refused(CapsuleError):
    """The request is clear, and would lose something or break a rule."""

    exit_code = 1


class Overlap(Refused):
    """Moving a branch would change files that a checkout of it holds edited."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self.named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            f"Your checkout has uncommitted edits of {self.named}, which this would change.",
            "Commit your edits, or put them away; then run the same command again.",
        )


class Conflicts(Refused):
    """A branch has moved, and what came there changes the same lines as the work."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"The branch changed meanwhile what the work changes: {', '.join(paths)}.")
        self.paths = tuple(paths)


class BranchMoved(CapsuleError):
    """A branch has moved, so that work would be committed together with what it was not judged with."""


class WorkspaceBroken(CapsuleError):
    """An agent left its place in a state that cannot be named or delivered: the phase ends in an ERROR."""


class NoResult(CapsuleError):
    """A command that was to judge the work was killed, twice: the mission halts, and nobody's work is to blame."""

    exit_code = 1


class ObjectLost(CapsuleError):
    """The repository lacks an object that the journal names: a copy that is not whole, or a damaged disk."""


@contextmanager
def lost_objects_of(mission: str) -> Iterator[None]:
    """Name the command that starts the mission over, wherever in it an object turns out to be lost."""
    try:
        yield
    except ObjectLost as lost:
        lost.hint = f"Bring it back from a copy that is whole, or start over: capsule run {mission} --fresh"
        raise


class LockHeld(CapsuleError):
    """Somebody else is at it. Resumable."""

    exit_code = 3


class Interrupted(CapsuleError):
    """Somebody said stop. The mission stays where it was, and `run` goes on from there."""

    exit_code = 130


class Paused(CapsuleError):
    """As far as this run may go. The mission stays where it was, and the next run goes on from there."""

    exit_code = 0


class BudgetSpent(CapsuleError):
    """Nothing is left to pay another agent with. Resumable."""

    exit_code = 3

    def __init__(self, message: str, hint: str = "", *, of_the_run: bool = False) -> None:
        super().__init__(message, hint)
        self.of_the_run = of_the_run
        """Not of one mission: no other item can be paid for either."""


class ProviderLimit(CapsuleError):
    """The provider's rate limit outlasted the wait. Resumable."""

    exit_code = 3


class AgentUnavailable(CapsuleError):
    """The agent could not run at all. Not a verdict: it costs no retry."""
