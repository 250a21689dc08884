"""Errors that a user can fix. Everything else is data (something outside went wrong) or a bug in Capsule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from capsule.core.remote import SAYS, Trouble


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
    """Only the user can resolve this; trying again would not help."""

    exit_code = 1


class UsageError(CapsuleError):
    """The command line is wrong."""


class PrerequisiteMissing(CapsuleError):
    """A program or file that Capsule needs is missing. Nothing has been created."""


class SettingsError(CapsuleError):
    """A settings or workflow file is wrong."""


class InvalidId(CapsuleError):
    """The id cannot be used as a path or a branch name."""


class UnknownItem(CapsuleError):
    """The tracker does not know this id."""


class TrackerError(CapsuleError):
    """The tracker's data cannot be read or written."""


class ToolError(CapsuleError):
    """A provider's own program cannot be used."""


class Refused(CapsuleError):
    """The request is clear, but would lose something or break a rule."""

    exit_code = 1


class Overlap(Refused):
    """Moving a branch would change files that its checkout holds edited."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self.named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        super().__init__(
            f"Your checkout has uncommitted edits of {self.named}, which this would change.",
            "Commit or put away your edits, then run the same command again.",
        )


class Conflicts(Refused):
    """A branch has moved, and its new commits change the same lines as the work."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"The branch changed meanwhile what the work changes: {', '.join(paths)}.")
        self.paths = tuple(paths)


class BranchMoved(CapsuleError):
    """A branch has moved, so the work would be committed on top of something it was not tested with."""


class TwinClosed(CapsuleError):
    """The original of a duplicate was closed meanwhile, so closing the duplicate would lose both."""


class WorkspaceBroken(CapsuleError):
    """An agent left its worktree in a state that cannot be recorded or delivered; the phase ends in an ERROR."""


class NoResult(CapsuleError):
    """The test command or gate was killed twice; the mission stops, and the work is not to blame."""

    exit_code = 1


class ObjectLost(CapsuleError):
    """The repository lacks an object that the journal names: an incomplete copy, or a damaged disk."""


@contextmanager
def lost_objects_of(mission: str) -> Iterator[None]:
    """Add the command that starts the mission over to an ObjectLost raised inside."""
    try:
        yield
    except ObjectLost as lost:
        lost.hint = f"Restore it from an intact copy, or start over: capsule run {mission} --fresh"
        raise


class LockHeld(CapsuleError):
    """Another run holds the lock. Resumable."""

    exit_code = 3


class HeldElsewhere(LockHeld):
    """Another clone works on the item. Resumable once its claim is released, has run out or is taken over."""

    item = ""
    """Which one, where several are published together."""


class ClosedMeanwhile(Refused):
    """The item was closed between the look at the queue and the claim."""


class MergedElsewhere(Refused):
    """Another clone has merged the item, whose claim this one took over."""

    item = ""
    """Which one, where several are published together."""


class Interrupted(CapsuleError):
    """A stop was requested. The mission stays where it was, and `run` resumes it."""

    exit_code = 130


class Paused(CapsuleError):
    """The run has reached its limit. The mission stays where it was, and the next run resumes it."""

    exit_code = 0


class RunnerDied(CapsuleError):
    """The process of a mission was killed or crashed; recorded progress is kept."""


class AgentKilled(RunnerDied):
    """An agent was killed because its supervisor was. This is not a verdict and costs no retry."""


class NotYet(CapsuleError):
    """Other running agents hold the rest of the run's budget: wait until one of them has ended."""

    exit_code = 0


class WentBack(CapsuleError):
    """The work does not go together with what others merged: its mission rebuilds it and goes on from there."""


class BudgetSpent(CapsuleError):
    """The budget is spent. Resumable."""

    exit_code = 3
    of_the_run = False
    """Whether the budget of the whole run is spent, so that no other item can start either."""

    def __init__(self, message: str, hint: str = "", *, of_the_run: bool = False) -> None:
        super().__init__(message, hint)
        self.of_the_run = of_the_run


class ProviderLimit(CapsuleError):
    """The provider's rate limit outlasted the wait. Resumable."""

    exit_code = 3


class RemoteFault(CapsuleError):
    """A remote cannot be reached, which is resumable, or refused: then a person has to help."""

    exit_code = 3

    def __init__(self, remote: str, trouble: Trouble, hint: str = "") -> None:
        code = 3 if trouble.passes else 1
        super().__init__(f"{remote} {SAYS[trouble.kind]}: {trouble.words}", trouble.way or hint, exit_code=code)
        self.remote = remote
        self.trouble = trouble


class AgentUnavailable(CapsuleError):
    """The agent could not run. This is not a verdict and costs no retry."""
