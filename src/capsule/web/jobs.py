"""Commands that were started from the page, with their results."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from capsule.actions import CommandResult, DashboardActions, StartedRun
from capsule.core.errors import CapsuleError
from capsule.web.forms import command_line
from capsule.web.threads import Crew

MOST_JOBS = 100
"""The number of last commands that are kept."""
MOST_AT_A_TIME = 16
LONGEST_OUTPUT = 60_000


class Job(msgspec.Struct, kw_only=True):
    """One command."""

    name: str
    words: tuple[str, ...]
    stdin: str = ""
    starts: bool = False
    pid: int = 0
    result: CommandResult | None = None

    @property
    def command(self) -> str:
        return command_line(self.words)

    @property
    def output(self) -> str:
        said = "\n".join(filter(None, (self.result.out.strip(), self.result.err.strip()))) if self.result else ""
        return said if len(said) <= LONGEST_OUTPUT else f"…{said[-LONGEST_OUTPUT:]}"


class Jobs:
    def __init__(self, actions: DashboardActions, ended: Callable[[], None]) -> None:
        """`ended` is called when one has ended, because items may have changed."""
        self._actions, self._ended = actions, ended
        self._crew = Crew("command", MOST_AT_A_TIME)
        self._known: OrderedDict[str, Job] = OrderedDict()
        self._under_way: set[asyncio.Task[None]] = set()

    def job(self, name: str) -> Job | None:
        return self._known.get(name)

    @property
    def last(self) -> list[Job]:
        return list(reversed(self._known.values()))

    @property
    def busy(self) -> bool:
        return sum(job.result is None for job in self._known.values() if not job.starts) >= MOST_AT_A_TIME

    def begin(self, words: Sequence[str], stdin: str = "", *, starts: bool) -> Job:
        job = Job(name=secrets.token_urlsafe(8), words=tuple(words), stdin=stdin, starts=starts)
        self._known[job.name] = job
        over = (name for name, each in self._known.items() if each.result)
        while len(self._known) > MOST_JOBS and (oldest := next(over, "")):
            del self._known[oldest]
            over = (name for name, each in self._known.items() if each.result)
        task = asyncio.get_running_loop().create_task(self._start(job) if starts else self._do(job))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return job

    async def _do(self, job: Job) -> None:
        try:
            job.result = await self._crew.do(lambda: self._actions.do(job.words, job.stdin))
        except (CapsuleError, OSError) as fault:
            job.result = _failed(fault)
        self._ended()

    async def _start(self, job: Job) -> None:
        try:
            started: StartedRun = await self._crew.do(lambda: self._actions.start(job.words))
        except (CapsuleError, OSError) as fault:
            job.result = _failed(fault)
            return
        job.pid, loop = started.pid, asyncio.get_running_loop()

        def wait() -> None:
            """Wait in a thread of its own, perhaps for days; the thread ends with the server."""
            job.result = started.wait()
            loop.call_soon_threadsafe(self._ended)

        threading.Thread(target=wait, name=f"run-{started.pid}", daemon=True).start()


def _failed(fault: CapsuleError | OSError) -> CommandResult:
    if isinstance(fault, CapsuleError):
        return CommandResult(fault.exit_code, err=f"{fault.message}\n{fault.hint}")
    return CommandResult(1, err=str(fault.strerror or fault))
