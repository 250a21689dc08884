"""Control running work: how many missions at a time, which to stop, which to resume.

Requests are written into a run's stream, with a stream of our own (`CONTROL`): its queue looks there every second. A
mission is stopped by one signal to the process that holds its lock: a second signal would kill. So a queue is told
first, and continues without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from msgspec import Struct, field

from capsule.adapters import Journal, JournalReader
from capsule.core.errors import LockHeld, Refused
from capsule.core.event import CAMPAIGN, CONTROL, RUN, AnswerGiven, JobsSet, StopAsked, is_mission, is_run
from capsule.core.run import open_run
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.stop import interrupt

_PATIENCE = 30.0
"""Seconds for a process to end its agents (5 s at most), record that, and release its lock."""
_LOOK = 0.05
_STILL = 5.0
"""Seconds between messages about what has not stopped yet."""
_QUEUE = f"{RUN}queue"
_ELSEWHERE = ("runs in another container or on another machine", "Stop it there.")


class RunJobs(Struct, frozen=True):
    """A run under way: how many missions it may work on at the same time, and which it works on."""

    stream: str
    allowed: int
    running: tuple[str, ...]


def jobs_of_runs(project: Project) -> list[RunJobs]:
    """Return the jobs of each run under way; refuse if there is none."""
    with closing(project.journal(read_only=True)) as journal:
        held = _held(journal)
        found = [_jobs(journal, stream, held) for stream in held if is_run(stream)]
    if not found:
        raise Refused("No run is under way that works on several missions.", "Start one: capsule run --jobs N")
    return found


def set_jobs(project: Project, jobs: int) -> list[RunJobs]:
    """Set the number of missions of every run under way; return their state before."""
    before = jobs_of_runs(project)
    with closing(project.journal()) as journal, _asking(journal):
        for run in before:
            event = JobsSet(at=SystemClock().now(), jobs=jobs)
            journal.note(CONTROL, event, (run.stream, event))
    return before


def _jobs(journal: JournalReader, stream: str, held: Collection[str]) -> RunJobs:
    run = open_run(event for _, event in journal.events(stream))
    running = {mission for mission in run.missions if mission in held}
    return RunJobs(stream, run.jobs, tuple(sorted(running)))


@contextmanager
def _asking(journal: Journal) -> Iterator[None]:
    """Claim the stream of requests; processes that ask at the same moment wait for each other."""
    give_up = time.monotonic() + _PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(journal.claim(CONTROL))
                break
            except LockHeld:
                if time.monotonic() > give_up:
                    raise
            time.sleep(_LOOK)
        yield


# ---- resume


def tell_answered(project: Project, item: str) -> str:
    """Tell every run under way that a person resumed an item; return the one that takes it up, or ''."""
    with closing(project.journal(read_only=True)) as looked:
        runs = [stream for stream in looked.epochs() if is_run(stream) and looked.is_held(stream)]
    if not runs:
        return ""
    event = AnswerGiven(at=SystemClock().now(), mission=item)
    with closing(project.journal()) as journal, _asking(journal):
        for run in runs:
            journal.note(CONTROL, event, (run, event))
        return next((name_of(run) for run in runs if _takes_up(project, journal, run, item)), "")


def _takes_up(project: Project, journal: JournalReader, stream: str, item: str) -> bool:
    """Tell whether an item is one of a run's own."""
    if stream == _QUEUE or item in open_run(event for _, event in journal.events(stream)).missions:
        return True
    root = stream.removeprefix(CAMPAIGN)
    return root != stream and any(each.id == item for each in project.tracker.under(root))


# ---- stop

Reason = tuple[str, str]
"""The reason why something does not stop, and a hint."""


class StopReport(Struct):
    """What was stopped and what was not."""

    runs: list[str] = field(default_factory=list)
    """Streams of runs."""
    missions: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    """Missions that did not run."""
    left_out: bool = False
    """Missions that a run under way will no longer start."""
    left: dict[str, Reason] = field(default_factory=dict)
    """What has not stopped, by stream."""


def stop_all(project: Project, tell: Callable[[str], None]) -> StopReport:
    """Stop every run of the project, and then every mission that runs alone; wait until they have stopped."""
    report = StopReport()
    with closing(project.journal(read_only=True)) as journal:
        before = [stream for stream in _held(journal) if is_mission(stream)]
        runs = [stream for stream in _held(journal) if is_run(stream)]
        report.left |= _stop(journal, runs, tell)
        report.runs += [stream for stream in runs if stream not in report.left]
        if not report.left:  # the missions of a queue were stopped by their queue
            rest = [stream for stream in _held(journal) if is_mission(stream)]
            report.left |= _stop(journal, rest, tell)
        held = _held(journal)
        report.missions += [mission for mission in before if mission not in held]
    return report


def stop_missions(project: Project, ids: Sequence[str], tell: Callable[[str], None]) -> StopReport:
    """Stop these missions, or the runs of these epics; a run that works on one of them goes on with the others."""
    report = StopReport()
    with closing(project.journal()) as journal:
        for item in ids:
            if not journal.events(item):
                project.tracker.item(item)
        held = _held(journal)
        campaigns = [f"{CAMPAIGN}{item}" for item in ids if f"{CAMPAIGN}{item}" in held]
        missions = [item for item in ids if f"{CAMPAIGN}{item}" not in campaigns]
        report.left_out = _tell_runs(journal, missions, [stream for stream in held if is_run(stream)])
        report.left |= _stop(journal, [*campaigns, *(item for item in missions if item in held)], tell)
        report.runs += [stream for stream in campaigns if stream not in report.left]
        report.missions += [item for item in missions if item in held and item not in report.left]
        report.idle += [item for item in missions if item not in held]
    return report


def _tell_runs(journal: Journal, missions: Sequence[str], runs: Sequence[str]) -> bool:
    """Tell runs first: they must not count the end of a mission that a person stopped."""
    if not (missions and runs):
        return False
    with _asking(journal):
        for run in runs:
            for mission in missions:
                event = StopAsked(at=SystemClock().now(), mission=mission)
                journal.note(CONTROL, event, (run, event))
    return True


def _stop(journal: JournalReader, streams: Sequence[str], tell: Callable[[str], None]) -> dict[str, Reason]:
    """Signal the process of each stream once, and wait until they are free; return why some are not."""
    left: dict[str, Reason] = {}
    asked: dict[str, int] = {}
    queues = {pid for stream, pid in _held(journal).items() if is_run(stream)}
    for stream in streams:
        pid = journal.holder(stream)  # read just before: an older pid may belong to another process by now
        if pid is None:
            continue
        spared = pid in asked.values() or (is_mission(stream) and pid in queues)  # a queue that is archiving it
        refusal = None if spared else _signalled(pid)
        if refusal:
            left[stream] = refusal
        else:
            asked[stream] = pid
    return left | _wait(journal, asked, tell)


def _signalled(pid: int) -> Reason | None:
    """Ask a process to stop; return None or why that was not possible."""
    if pid == 0:
        return _ELSEWHERE
    try:
        with suppress(ProcessLookupError):  # it has just ended by itself
            interrupt(pid)
    except PermissionError:
        return f"(pid {pid}) is run by another user", "Ask them to stop it."
    return None


def _wait(journal: JournalReader, asked: Mapping[str, int], tell: Callable[[str], None]) -> dict[str, Reason]:
    """Wait until these streams are released, report what is still held, and return what was not released."""
    began = time.monotonic()
    next_word = began
    while still := [stream for stream, pid in asked.items() if journal.holder(stream) == pid]:
        now = time.monotonic()
        if now - began > _PATIENCE:
            return {
                each: (f"(pid {asked[each]}) does not stop", f"End it by hand: kill {asked[each]}.") for each in still
            }
        if now >= next_word:
            tell(f"stopping {', '.join(map(name_of, still))} ...")
            next_word = now + _STILL
        time.sleep(_LOOK)
    return {}


def refuse_what_is_left(report: StopReport) -> None:
    """Raise if something has not stopped, and name all of it."""
    if report.left:
        causes = "; ".join(f"{name_of(stream)} {cause}" for stream, (cause, _) in report.left.items())
        raise LockHeld(f"{causes}.", " ".join(dict.fromkeys(hint for _, hint in report.left.values())))


def name_of(stream: str) -> str:
    """Name a mission or a run for people: `the queue`, `the run of demo-1`."""
    if is_mission(stream):
        return stream
    kind, _, item = stream.lstrip("_").partition("-")
    return f"the run of {item}" if item else f"the {kind}"


def _held(journal: JournalReader) -> dict[str, int]:
    """Name the streams that are held now, with the pid of the holder; 0 if it is unknown here."""
    pids = {stream: journal.holder(stream) for stream in journal.epochs()}
    return {stream: pid for stream, pid in pids.items() if pid is not None}
