"""Threads for slow work: a journal, git, a tracker, a command. None of them blocks the end of the server."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Got = TypeVar("Got")


class Crew:
    """A pool of threads, each with one task at a time. The thread that opens a journal owns it."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._asked: queue.SimpleQueue[tuple[Callable[[], object], asyncio.AbstractEventLoop, asyncio.Future[object]]]
        self._asked = queue.SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    async def do(self, act: Callable[[], Got]) -> Got:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._asked.put((act, loop, future))
        return await future  # type: ignore[return-value]

    def _work(self) -> None:
        while True:
            act, loop, future = self._asked.get()
            try:
                done, fault = act(), None
            except Exception as wrong:  # noqa: BLE001 - passed on to the caller
                done, fault = None, wrong
            try:
                loop.call_soon_threadsafe(_tell, future, done, fault)
            except RuntimeError:  # the server has ended meanwhile
                return


def _tell(future: asyncio.Future[object], done: object, fault: Exception | None) -> None:
    if future.cancelled():
        return
    if fault:
        future.set_exception(fault)
    else:
        future.set_result(done)
