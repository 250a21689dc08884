"""Provide time and chance."""

from __future__ import annotations

import time

from capsule.system.stop import Stop


class SystemClock:
    def __init__(self, stop: Stop | None = None) -> None:
        self._stop = stop

    def now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def seconds(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        if self._stop is None:
            time.sleep(seconds)
            return True
        return self._stop.wait(seconds)

    def chance(self) -> float:
        import random  # noqa: PLC0415 - asked after a provider's refusal only

        return random.random()  # noqa: S311 (nobody gains by foreseeing it)
