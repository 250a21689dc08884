"""Running bd: one call at a time in a repository, none for ever.

Whoever changes something looks afterwards whether it is so (see beads.py), and before each new attempt: what bd prints
(_bd_answer.py) and its exit code are no proof. A call runs in a process group of its own, without input, and is ended
with all of its group when it takes too long.

We never run `init`, `migrate` or `doctor --fix`, and never say `--force`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from capsule.core.errors import PrerequisiteMissing, TrackerError
from capsule.core.text import sentence
from capsule.system.environment import for_commands
from capsule.system.lock import held
from capsule.system.umask import of_the_user
from capsule.trackers._bd_answer import NO_COMMAND, Answer
from capsule.trackers._beads import file_in

GET_BD = "https://github.com/steveyegge/beads"
OLDEST = (0, 44)
EVERYTHING = "--limit=1000000"
"""Every version cuts lists short unless told otherwise; only some take 0 for all."""

_BY_HAND = "`tracker: beads-file` in .capsule/config.yaml does without bd"
_LARGEST = 256 * 1024 * 1024
_GRACE = 2.0
_LOOK = 1.0
"""Seconds between two looks at how much it has printed."""
_OWN_VARIABLES = ("BD_*", "BEADS_*", "DOLT_*")
_ELSEWHERE = ("BEADS_DIR", "BEADS_DB", "BD_DB", "BEADS_DATABASE")
"""Would have us change the beads of another project."""
_QUIET = {"BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}

_NO_DATABASE = re.compile(r"no beads database|database .{0,40}not (?:found|initiali[sz]ed)|no \.beads", re.IGNORECASE)
_SKEW = re.compile(
    r"schema[ _-]?(?:skew|drift)|schema version mismatch|migrations ahead|newer schema|schema .{0,60}\bnewer",
    re.IGNORECASE,
)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class Patience:
    """How long we wait, in seconds."""

    answer: float = 60.0
    """For one call."""
    turn: float = 120.0
    """For other processes of ours that are at it."""
    pauses: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)
    """Before each new attempt where somebody else holds the database."""


class Bd:
    """The bd on the PATH, for the project at `root`."""

    def __init__(
        self,
        root: Path,
        *,
        lock: Path | None = None,
        patience: Patience | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._root = root
        self._lock = lock
        ours = for_commands(os.environ if env is None else env, _OWN_VARIABLES) | _QUIET
        self._env = {name: value for name, value in ours.items() if name not in _ELSEWHERE}

    @cached_property
    def program(self) -> str:
        found = shutil.which("bd", path=self._env.get("PATH", ""))  # which has no relative entries any more
        if found is None:
            raise PrerequisiteMissing("bd (beads) is not on the PATH.", f"Get it: {GET_BD}. Or: {_BY_HAND}.")
        return found

    @cached_property
    def version(self) -> str:
        """As it says itself; '' where it does not."""
        known = _VERSIONS.get(mark := (self.program, Path(self.program).stat().st_mtime_ns))
        if known is None:
            known = _VERSIONS[mark] = self._asked_version()
        return known

    @property
    def warnings(self) -> list[str]:
        """What is known to be wrong with the version that is here."""
        return list(_about(self.version))

    def read(self, *args: str) -> Answer:
        """A question, repeated while somebody else holds the database; raises TrackerError where it has no answer."""
        answer = self.ask(*args)
        if answer.failed:
            raise self.fault(answer)
        return answer

    def ask(self, *args: str) -> Answer:
        """The same, whatever the answer is."""
        answer = self.run(*args)
        for pause in self.patience.pauses:
            if not answer.busy:
                break
            time.sleep(pause)
            answer = self.run(*args)
        return answer

    def run(self, *args: str) -> Answer:
        """One call. A version that cannot do what we need is not called at all."""
        numbers = _numbers(self.version)
        if numbers and numbers[:2] < OLDEST:
            hint = f"Get 0.47.1, or 1.0.5 and newer: {GET_BD}. Or: {_BY_HAND}."
            raise TrackerError(f"bd {self.version} is too old: it cannot do what is needed of it.", hint)
        return self._run(args)

    def fault(self, answer: Answer) -> TrackerError:
        """Why a call came to nothing, and what to do next."""
        command, said = f"bd {answer.args[0]}", answer.err + answer.out
        if answer.late:
            hint = f"See whether `{command}` answers by hand: another process may hold the database. Then go on."
            return TrackerError(f"`{command}` gave no answer for {self.patience.answer:g} s and was ended.", hint)
        if answer.busy:
            hint = "Another program is at the database of beads: wait until it has ended, then go on."
            return TrackerError(f"`{command}` found the database locked: {sentence(answer.words)}", hint)
        if _SKEW.search(said):
            hint = f"Get the bd that the database was made with, or a newer one: {GET_BD}. Or: {_BY_HAND}."
            return TrackerError(f"The database of beads is newer than bd {self.version}, which refuses it.", hint)
        if _NO_DATABASE.search(said):
            return TrackerError("bd finds no database of beads in this project.", self._way_to_a_database())
        if answer.unknown_here:
            hint = f"Get 0.47.1, or 1.0.5 and newer: {GET_BD}. Or: {_BY_HAND}."
            return TrackerError(f"bd {self.version} cannot do what is needed: {sentence(answer.words)}", hint)
        words = answer.words or f"exit code {answer.code}, and not a word"
        return TrackerError(f"`{command}` failed: {sentence(words)}", f"Try `{command}` by hand in {self._root}.")

    def _way_to_a_database(self) -> str:
        file = file_in(self._root)
        if file and file.stat().st_size:
            return f"A fresh clone has only the file: `bd init` by hand makes a database. Or: {_BY_HAND}."
        return "The beads are not in this clone: by hand, `bd init` makes a database and `bd dolt pull` fetches them."

    def is_refusal(self, answer: Answer) -> bool:
        """bd understood and said no; everything else that goes wrong is a fault."""
        said = answer.err + answer.out
        known = (_SKEW, _NO_DATABASE, NO_COMMAND)
        return not (answer.late or answer.busy or any(kind.search(said) for kind in known)) and bool(answer.words)

    def _asked_version(self) -> str:
        answer = self._run(("version", "--json"))
        if answer.late:
            raise self.fault(answer)
        value = answer.value
        stated = value.get("version") if isinstance(value, dict) else None
        found = _VERSION.search(str(stated) if stated else answer.out) or _VERSION.search(self._run(("version",)).out)
        return found.group() if found else ""

    def _run(self, args: tuple[str, ...]) -> Answer:
        with held(self._lock, self.patience.turn), tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            code = self._wait_for([self.program, *args], out, err)
            return Answer(args, code, _text(out), _text(err))

    def _wait_for(self, argv: list[str], out: IO[bytes], err: IO[bytes]) -> int | None:
        """Files, not pipes: a server that bd leaves running would keep a pipe open for ever."""
        try:
            with _STARTING:  # one that is started while we leave is seen by `_end_all` as well
                process = subprocess.Popen(
                    argv,
                    cwd=self._root,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    umask=of_the_user(),
                )
                _UNDER_WAY.add(process)
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            raise TrackerError(f"`bd {argv[1]}` cannot be started: {why}.", f"Get a bd that runs: {GET_BD}") from None
        deadline = time.monotonic() + self.patience.answer
        try:
            while (left := deadline - time.monotonic()) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(min(left, _LOOK))
                _refuse_a_flood(out, err)
            return None
        finally:
            if process.poll() is None:
                _end(process)
            _UNDER_WAY.discard(process)


_STARTING = threading.Lock()
_UNDER_WAY: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_all() -> None:
    """A screen asks in a thread, and a person who leaves does not wait for the answer."""
    _STARTING.acquire()  # for good: nothing is started any more
    for process in [*_UNDER_WAY]:
        if process.poll() is None:
            _end(process)


_VERSIONS: dict[tuple[str, int], str] = {}
"""What each program said it is: it is asked once."""


def _end(process: subprocess.Popen[bytes]) -> None:
    """All of its group, first politely: it may be writing."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    process.wait()


def _refuse_a_flood(*files: IO[bytes]) -> None:
    if any(os.fstat(file.fileno()).st_size > _LARGEST for file in files):
        raise TrackerError("bd printed more than can be read.", "See what `bd export` prints.")


def _text(file: IO[bytes]) -> str:
    _refuse_a_flood(file)
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.match(version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _about(version: str) -> Iterator[str]:
    numbers = _numbers(version)
    if not numbers:
        yield "bd does not say which version it is; what it answers is taken as it comes."
    elif (0, 51) <= numbers < (0, 63):
        yield f"bd {version} is one of those (0.51 to 0.62) whose storage was being rebuilt; 1.0.5 or newer is safer."
    elif numbers in ((1, 2, 0), (1, 2, 1)):
        yield f"bd {version} converts a database when it reads it, and older ones cannot open it then; 1.2.2 does not."
    elif numbers[0] > 1:
        yield f"bd {version} is newer than any that was tried; what it answers is taken as it comes."
