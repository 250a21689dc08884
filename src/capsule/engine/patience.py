"""Wait for a remote that cannot be reached: with growing pauses, and no longer than for a provider."""

from __future__ import annotations

from capsule.core.budget import duration
from capsule.core.errors import Interrupted, RemoteFault
from capsule.core.event import Waiting
from capsule.core.failure import Failure, Kind, pause
from capsule.core.remote import Kind as Trouble
from capsule.core.stamps import clock_time
from capsule.core.state import MissionState
from capsule.core.text import sentence
from capsule.engine.job import note
from capsule.services import Services


class Patience:
    """How long one step has waited for a remote so far."""

    def __init__(self, services: Services, state: MissionState, phase: str, key: str) -> None:
        self._services = services
        self._state = state
        self._phase = phase
        self._key = key
        self._tries = 0
        self._since = 0.0

    def wait_for(self, fault: RemoteFault) -> bool:
        """Wait until the next try; return False at once if waiting does not help."""
        services, mission, trouble = self._services, self._state.mission, fault.trouble
        again = f"`capsule run {self._state.parent or mission}`"
        stopped = f"Stopped while {self._phase} was waiting for {fault.remote}; nothing is lost."
        if trouble.kind is Trouble.STOPPED:
            raise Interrupted(stopped, f"Go on with {again}.")
        if not trouble.passes:
            return False
        at, now = services.clock.now(), services.clock.seconds()
        self._since = self._since if self._tries else now
        seconds, waited = pause(self._tries, None, services.clock.chance()), now - self._since
        if waited + seconds > services.limits.wait_seconds:
            so_far = f" It has waited {duration(waited)} already." if self._tries else ""
            limit = "execution.max_wait_minutes says how long to wait."
            fault.message = f"{sentence(fault.message)}{so_far}"
            fault.hint = f"Nothing is lost: once it is back, {again}. {limit}"
            raise fault
        failure = Failure(Kind.CONNECTION, fault.message)
        waiting = Waiting(at=at, key=self._key, failure=failure, seconds=round(seconds, 1), remote=fault.remote)
        note(services, mission, waiting)
        words = f"waits for {fault.remote}: {trouble.words} (next try {clock_time(at, seconds)})"
        services.observer.activity(mission, words)
        if not services.clock.wait(seconds):
            raise Interrupted(stopped, f"Go on with {again}.")
        self._tries += 1
        return True
