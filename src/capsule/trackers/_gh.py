"""Run gh, one call at a time in a repository, and explain its errors.

Words of issues are arguments of their own, joined to their flag (`--title=...`), so that none is ever taken for a flag
or read by a shell. gh gets no terminal, so it asks no questions, opens no editor and no browser.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from capsule.core.errors import CapsuleError, PrerequisiteMissing, Refused, TrackerError
from capsule.core.text import one_line, sentence, shortened
from capsule.system.environment import for_commands
from capsule.system.program import call

_T = TypeVar("_T")

GET_GH = "https://cli.github.com"

_OWN_VARIABLES = ("GH_*", "GITHUB_*")
"""Its tokens, and its GitHub host."""
_LOUD = ("GH_DEBUG", "DEBUG", "GH_FORCE_TTY", "GH_REPO")
"""Variables that would change its answers, or make it use another repository."""
_QUIET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}
_LONGEST = 300
_NOT_LOGGED_IN = 4
"""Its exit code without a login."""

_BY_REPOSITORY = "Say which: `tracker: {github: {repository: OWNER/NAME}}` in .capsule/config.yaml."
_LOGIN = "`gh auth login` logs in; `gh auth status` says who is."
_FAULTS: tuple[tuple[str, str, str], ...] = (
    (r"gh auth login|HTTP 401|Bad credentials|authentication token", "gh is not logged in to GitHub.", _LOGIN),
    (
        r"rate limit|HTTP 429|abuse detection",
        "GitHub's rate limit is reached.",
        "Wait until it is over: `gh api rate_limit` says when. Then go on.",
    ),
    (
        r"no git remotes|none of the git remotes|set-default|no default remote",
        "gh cannot tell which repository on GitHub this is.",
        _BY_REPOSITORY,
    ),
    (
        r"could not resolve to a repository|HTTP 404|expected the \"\[HOST/\]OWNER/REPO\"",
        "GitHub knows no such repository, or does not show it to you.",
        f"{_BY_REPOSITORY} {_LOGIN}",
    ),
    (
        r"has disabled issues",
        "The repository has no issues: they are turned off in its settings.",
        "Turn them on, or choose another tracker in .capsule/config.yaml.",
    ),
    (
        r"SAML|single sign-on",
        "GitHub wants a single sign-on for this organization.",
        "`gh auth refresh` signs in again.",
    ),
    (
        r"error connecting to|dial tcp|no such host|connection refused|network is unreachable|i/o timeout|proxyconnect"
        r"|TLS handshake|connection reset",
        "GitHub cannot be reached.",
        "Look at the network, and at https://www.githubstatus.com; then go on.",
    ),
    (
        r"unknown flag|unknown command|unknown JSON field",
        "This gh is too old: it cannot do what is needed of it.",
        f"Get 2.23 or newer: {GET_GH}",
    ),
)
"""By its words: the fault, and what to do."""
_NO_PERMISSION = re.compile(r"HTTP 403|not accessible by|does not have .{0,60}permission|must have .{0,40}rights", re.I)
_MOMENTARY = re.compile(r"HTTP 50[0234]|connection reset|unexpected EOF|TLS handshake timeout", re.IGNORECASE)
_NO_LABEL = re.compile(r"(?:^|: )'(.+)' not found$", re.MULTILINE)
_NO_ISSUE = re.compile(r"could not resolve to an? issue|issue was not found", re.IGNORECASE)


class GhAnswer(Struct, frozen=True):
    """The output of a call, and how it ended; without a code it was ended by us, because it took too long."""

    args: tuple[str, ...]
    code: int | None
    out: str
    err: str

    @property
    def failed(self) -> bool:
        return self.code != 0

    @property
    def not_found(self) -> bool:
        """Tell whether there is no issue of that number."""
        return self.failed and _NO_ISSUE.search(self.err) is not None

    @property
    def missing_label(self) -> str:
        """Return the label that the repository lacks; '' for any other error."""
        asked = any(word.startswith(("--label=", "--add-label=")) for word in self.args)
        found = _NO_LABEL.search(self.err) if self.failed and asked and "milestone" not in self.err else None
        return found[1] if found else ""

    @property
    def command(self) -> str:
        return " ".join(("gh", *self.args[:2]))

    @property
    def words(self) -> str:
        """Return its output on one line."""
        return shortened(one_line(self.err or self.out), _LONGEST)


class Patience(Struct, frozen=True):
    """How long we wait, in seconds."""

    answer: float = 60.0
    """For one call."""
    pauses: tuple[float, ...] = (0.5, 2.0)
    """Before each new attempt to read after a short failure of GitHub."""


class Gh:
    """The gh on the PATH, for the project at `root`."""

    def __init__(
        self,
        root: Path,
        repository: str = "",
        *,
        patience: Patience | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._root = root
        self._repository = (f"--repo={repository}",) if repository else ()
        given = for_commands(os.environ if env is None else env, _OWN_VARIABLES)
        self._env = {name: value for name, value in given.items() if name not in _LOUD} | _QUIET

    @cached_property
    def program(self) -> str:
        found = shutil.which("gh", path=self._env.get("PATH", ""))  # which has no relative entries any more
        if found is None:
            raise PrerequisiteMissing(
                "gh is not on the PATH, and the issues on GitHub are read by it.",
                f"Get it: {GET_GH}, then `gh auth login`. Or choose another tracker in .capsule/config.yaml.",
            )
        return found

    def read(self, kind: type[_T], *args: str) -> _T:
        """Ask, again after a short failure of GitHub; return the JSON that it prints, checked."""
        return self.understood(self.ask(*args), kind)

    def ask(self, *args: str) -> GhAnswer:
        """Ask, again after a short failure of GitHub; return any answer."""
        answer = self.run(*args)
        for pause in self.patience.pauses:
            if not (answer.failed and _MOMENTARY.search(answer.err)):
                break
            time.sleep(pause)
            answer = self.run(*args)
        return answer

    def understood(self, answer: GhAnswer, kind: type[_T]) -> _T:
        if answer.failed:
            raise self.fault(answer)
        try:
            return msgspec.json.decode(answer.out, type=kind)
        except (msgspec.DecodeError, RecursionError) as fault:
            cause = f"`{answer.command}` printed something else than was asked for: {fault}"
            raise TrackerError(
                sentence(cause), f"Run `{answer.command} --json number` yourself to see its output."
            ) from None

    def run(self, *args: str) -> GhAnswer:
        """Make one call."""
        try:
            argv = [self.program, *args[:2], *(self._repository if args[0] != "api" else ()), *args[2:]]
            return GhAnswer(args, *call(argv, self._root, self._env, self.patience.answer))
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            raise TrackerError(f"gh cannot be started: {why}.", f"Get a gh that runs: {GET_GH}") from None

    def fault(self, answer: GhAnswer) -> CapsuleError:
        """Return the error of a failed call, with a hint."""
        if answer.code is None:
            hint = f"See whether `{answer.command}` answers by hand. Then go on."
            return TrackerError(
                f"`{answer.command}` gave no answer for {self.patience.answer:g} s and was ended.", hint
            )
        if _NO_PERMISSION.search(answer.err) and "rate limit" not in answer.err:
            hint = f"Ask for the right to triage issues, or log in with an account that has it. {_LOGIN}"
            return Refused(f"GitHub does not let you do that: {sentence(answer.words)}", hint)
        for message, hint in _known_faults(answer):
            return TrackerError(message, hint)
        words = answer.words or f"exit code {answer.code}, and not a word"
        return TrackerError(f"`{answer.command}` failed: {sentence(words)}", f"Try it by hand in {self._root}.")


def _known_faults(answer: GhAnswer) -> Iterator[tuple[str, str]]:
    if answer.code == _NOT_LOGGED_IN:
        yield _FAULTS[0][1:]
    yield from ((message, hint) for words, message, hint in _FAULTS if re.search(words, answer.err, re.IGNORECASE))
