"""Ask the forge about requests that wait for review, and go on as it says. No agent is started here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from capsule.app.endings import end_unmerged
from capsule.app.missions import states_of
from capsule.core.errors import CapsuleError, LockHeld, RemoteFault
from capsule.core.item import Status
from capsule.core.request import Fate, News
from capsule.core.state import MissionState
from capsule.engine.claiming import release_if_over
from capsule.engine.job import load_state
from capsule.engine.requesting import look
from capsule.engine.run_mission import run
from capsule.project import Project
from capsule.services import RunLimits, Services


class NoAgents(RunLimits, frozen=True):
    """Stops a mission before its next agent."""

    def should_stop(self, state: MissionState, *, spawns: bool) -> bool:  # noqa: ARG002
        return spawns


class Followed(Struct, frozen=True):
    """What was found out about the request of one mission."""

    state: MissionState
    url: str = ""
    news: News | None = None
    fault: CapsuleError | None = None
    """Why the forge or the remote could not be asked."""
    kept: str = ""
    """The ref with the work of a request that was closed."""
    warnings: tuple[str, ...] = ()


def in_review(project: Project) -> list[str]:
    """Name the missions whose request is not merged yet, in the order of their tracker."""
    claimed = [item.id for item in project.tracker.items() if item.status is Status.IN_PROGRESS]
    states = states_of(project, claimed)
    return [item for item in claimed if item in states and states[item].in_review]


def follow_all(services: Services, missions: Iterable[str]) -> Iterator[Followed]:
    """Follow the requests of these missions, except those that another process works on.

    Once the forge has not answered, the others are not asked about: they have the same one.
    """
    fault: RemoteFault | None = None
    for mission in missions:
        if fault:
            state = load_state(services, mission)
            yield Followed(state, state.request.url if state.request else "", fault=fault)
            continue
        with suppress(LockHeld):
            found = follow(services, mission)
            fault = found.fault if isinstance(found.fault, RemoteFault) else None
            yield found


def follow(services: Services, mission: str) -> Followed:
    """Ask about one request, and do what needs no agent: archive what is merged, give back what was closed."""
    with services.journal.claim(mission):
        before = load_state(services, mission)
        url = before.request.url if before.request else ""
        try:
            looked = look(mission, services)
        except CapsuleError as fault:
            return Followed(before, url, fault=fault)
        if looked.news is None:
            return Followed(looked.state, url)
        if looked.news.fate is Fate.CLOSED:
            kept, warnings = end_unmerged(services, mission, f"{looked.news.text}: {url}")
            warnings += _released(services, mission)
            return Followed(load_state(services, mission), url, looked.news, kept=kept, warnings=warnings)
        if looked.news.fate is Fate.MERGED:
            state = run(mission, replace(services, run_limits=NoAgents()))
            return Followed(state, url, looked.news, warnings=_released(services, mission))
        return Followed(looked.state, url, looked.news)


def _released(services: Services, mission: str) -> tuple[str, ...]:
    warning = release_if_over(mission, services)
    return (f"warning: {warning}",) if warning else ()


def words_of(found: Followed) -> str:
    """Say in one line what has become of a request."""
    mission, url, state, news = found.state.mission, found.url, found.state, found.news
    if news is None:
        why = f" ({found.fault.message.rstrip('.')})" if found.fault else ""
        asks = f"still needs you: {state.halt.reason}" if state.halt else ""
        return f"{mission} {asks or ('still waits for review' if why else 'waits for review')}: {url}{why}"
    closed = "its item is closed" if state.item_closed else "its item could not be closed yet"
    kept = f"; its work is kept as {found.kept}" if found.kept else ""
    return {
        Fate.MERGED: f"{mission} was merged: {url}; {closed}",
        Fate.CLOSED: f"{mission} is free again: {news.text}: {url}{kept}",
        Fate.STUCK: f"{mission} needs you: {news.text.partition(chr(10))[0].rstrip('.')}: {url}",
        Fate.CHANGES: f"{mission}: {_asked(news)}: {url}",
    }[news.fate]


def _asked(news: News) -> str:
    """Say who requested changes, and which checks failed."""
    people = news.by[: len(news.by) - len(news.red)]
    asked = [f"changes requested by {', '.join(name or 'a reviewer' for name in people)}"] if people else []
    failed = f"check{'s' if len(news.red) > 1 else ''} failed: {', '.join(news.red)}"
    return "; ".join([*asked, *([failed] if news.red else [])])
