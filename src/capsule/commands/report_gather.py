"""What a report is made from: journals read, missions chosen, locks looked at, differences counted. Nothing changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from capsule.core.account import MissionAccount, Where, mission_account, to_compare
from capsule.core.errors import CapsuleError, LockHeld, UsageError
from capsule.core.event import CAMPAIGN, RUN, Event, MissionStarted, is_mission
from capsule.core.run_account import RunAccount, RunStory, last_run, run_account
from capsule.core.stamps import moment

if TYPE_CHECKING:
    from capsule.journals.sqlite import SqliteJournal
    from capsule.project import Project
    from capsule.reports.story import Story

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NAMED = 8


@dataclass(frozen=True)
class Wanted:
    items: tuple[str, ...] = ()
    run: str = ""
    since: str = ""


def gather(project: Project, wanted: Wanted) -> RunAccount:
    from capsule.system.clock import SystemClock

    as_of = SystemClock().now()
    since = _since(wanted.since, as_of)
    journal = project.journal(read_only=True)
    try:
        library = Library(journal)
        run = library.run(wanted.run) if wanted.run else None
        names = _chosen(project, library, wanted.items, run)
        kept = [name for name in names if not since or moment(library.events(name)[-1].at) >= since]
        missions = _told(project, library, kept, as_of)
    finally:
        journal.close()
    title = _title(library, wanted, run, names)
    return run_account(missions, project=project.root.name, title=title, as_of=as_of, run=run)


@dataclass
class Library:
    """The journal, each stream of which is read once."""

    journal: SqliteJournal
    _read: dict[str, list[Event]] = field(default_factory=dict)

    def events(self, stream: str) -> list[Event]:
        if stream not in self._read:
            self._read[stream] = [event for _, event in self.journal.events(stream)]
        return self._read[stream]

    def start(self, mission: str) -> MissionStarted | None:
        return next((event for event in reversed(self.events(mission)) if isinstance(event, MissionStarted)), None)

    def running(self, mission: str) -> int | None:
        """The pid of whoever is at it; 0 where it is somebody who cannot be named from here."""
        try:
            return self.journal.running(mission)
        except LockHeld:
            return 0

    def run(self, name: str) -> RunStory:
        streams = [stream.removeprefix(RUN) for stream in self.journal.streams() if not is_mission(stream)]
        for stream in (name, f"campaign-{name}", f"run-{name}"):
            found = last_run(stream, self.events(f"{RUN}{stream}")) if stream in streams else None
            if found:
                return found
        hint = f"There are: {', '.join(streams[:_NAMED])}." if streams else "`capsule run` without an ID makes one."
        raise CapsuleError(f"There is no run {name!r}.", hint, exit_code=1)


# ---- which missions


def _chosen(project: Project, library: Library, items: Sequence[str], run: RunStory | None) -> list[str]:
    """Of streams that are not asked for, no more is read than their names. One may hold no start of a mission."""
    known = library.journal.missions()
    if not items and run is None:
        return [name for name in known if library.start(name)]
    wanted = dict.fromkeys(run.missions if run else ())
    for item in items:
        wanted |= dict.fromkeys([item] if item in known else _held_by(project, library, known, item))
    there = set(known)
    return _with_parts(library, known, [name for name in wanted if name in there and library.start(name)])


def _with_parts(library: Library, known: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """And the missions that phases of them were, however deep."""
    found = dict.fromkeys(chosen)
    for name in sorted(known):  # a part is called `<mission>.<phase>.<number>`; so may others be
        whole = name.rsplit(".", 2)[0]
        start = library.start(name) if whole in found and name != whole else None
        if start and start.parent == whole:
            found[name] = None
    return list(found)


def _held_by(project: Project, library: Library, known: Sequence[str], item: str) -> list[str]:
    """The missions of what an epic or a feature holds: as they say themselves, as its campaign says, or its tracker."""
    below = {*_campaign(library, item), *_tracked(project, item)}
    found = [name for name in known if name in below or item in _ancestors(library, name)]
    if found:
        return found
    if below:
        hint = f"Start it with `capsule run {item}`."
        raise CapsuleError(f"Nothing of what {item} holds has been started yet.", hint, exit_code=1)
    others = f"There are: {', '.join(known[:_NAMED])}{', ...' if len(known) > _NAMED else ''}."
    hint = others if known else f"Start it with `capsule run {item}`."
    raise CapsuleError(f"There is no mission {item}.", hint, exit_code=1)


def _ancestors(library: Library, mission: str) -> Iterator[str]:
    start = library.start(mission)
    if start:
        yield start.item.parent
        yield from (above.id for above in (start.lineage.feature, start.lineage.epic) if above)


def _campaign(library: Library, item: str) -> tuple[str, ...]:
    story = last_run(item, library.events(f"{CAMPAIGN}{item}"))
    return story.missions if story else ()


def _tracked(project: Project, item: str) -> list[str]:
    """Nothing where nobody can tell."""
    from capsule.project import tracker_if_there

    try:
        tracker = tracker_if_there(project)
        return [] if tracker.keeps_phases else [each.id for each in tracker.under(item)]
    except CapsuleError:
        return []


def _since(text: str, now: str) -> float:
    """Seconds since the epoch; 0 where nobody asked."""
    if not text:
        return 0.0
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if ago:
        return moment(now) - int(ago[1]) * _UNITS[ago[2]]
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "Say how long ago (30m, 12h, 2d, 1w), or since which day (2026-11-01)."
        raise UsageError(f"--since does not know when {text!r} is.", hint) from None
    return (day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()


def _title(library: Library, wanted: Wanted, run: RunStory | None, names: Sequence[str]) -> str:
    if run:
        return "The last run of the queue" if run.name == "queue" else f"The last run: {run.name}"
    if len(wanted.items) == 1:
        title = next(iter(_titles(library, wanted.items[0], names)), "")
        return f"{wanted.items[0]}: {title}" if title else wanted.items[0]
    if wanted.items:
        return ", ".join(wanted.items[:_NAMED]) + (", ..." if len(wanted.items) > _NAMED else "")
    return f"All missions since {wanted.since}" if wanted.since else "All missions"


def _titles(library: Library, item: str, names: Sequence[str]) -> Iterator[str]:
    """What an epic or a feature is called, as the missions below it remember."""
    for start in filter(None, map(library.start, names)):
        yield from (above.title for above in (start.lineage.feature, start.lineage.epic) if above and above.id == item)


# ---- what each came to


def _told(project: Project, library: Library, names: Sequence[str], as_of: str) -> list[MissionAccount]:
    from capsule.commands.report_diff import Differences
    from capsule.reports.story import Story

    stories = {name: Story(library.events(name), library.running(name), project.root) for name in names}
    asked = {name: to_compare(story.events, story.state) for name, story in stories.items()}
    counted = Differences(project.git, [pair for pairs, _ in asked.values() for pair in pairs])
    return [
        mission_account(
            library.events(name), story.state, _where(story), as_of=as_of, diff=counted.between(*asked[name])
        )
        for name, story in stories.items()
    ]


def _where(story: Story) -> Where:
    point = story.standpoint()
    return Where(word=point.word, sentence=point.sentence, unverified=story.unverified())
