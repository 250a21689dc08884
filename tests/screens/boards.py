"""Seven boards as the dashboard meets them, each with the items behind it, at a moment that never changes."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from msgspec.structs import replace

from capsule.actions import Listing
from capsule.core.board import Board, gather_board
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Advanced,
    Batched,
    Event,
    HandedIn,
    ItemClosed,
    Returned,
    RunEnded,
    Served,
    Stacked,
    Warned,
)
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.item import Blocked, Item, Status, with_holders
from capsule.core.merge_train import MergeSummary, MergeTrain
from capsule.core.signal import Verdict
from capsule.core.tracker_traits import BEADS_EDITS
from capsule.trackers.backlog import BacklogTracker

from .missions import DOING, NOT_GREEN, ONLY_TESTS, PID, RED, SENT_BACK, at, begun, ended, shown, started

NOW = 120.0
PHASES = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge", "publish", "archive")
NASTY = "Sort [red]by name[/red]\x1b[2J\x07 \u202eeman yb"
"""A title that would paint, clear and turn the screen around."""


class Scene(NamedTuple):
    board: Board
    listing: Listing


def beads(*items: Item) -> Listing:
    return Listing(
        tuple(with_holders({item.id: item for item in items}).values()),
        by_status=False,
        tracker="beads",
        edits=BEADS_EDITS,
    )


SHOP = (
    Item(id="shop-1", title="A shop that people trust", type="epic", priority=1),
    Item(id="shop-1.1", title="Prices", type="feature", parent="shop-1"),
    Item(
        id="shop-1.1.1",
        title="Round prices to the cent",
        parent="shop-1.1",
        tags=("money",),
        description="A price of 1.005 is shown as 1.01.\n\n## Acceptance criteria\n- half a cent is rounded up",
    ),
    Item(id="shop-1.1.2", title="Show prices with tax", parent="shop-1.1", dependencies=("shop-1.1.1",)),
    Item(id="shop-1.2", title="Orders", type="feature", parent="shop-1"),
    Item(id="shop-1.2.1", title=NASTY, parent="shop-1.2", tags=("ui",)),
    Item(id="shop-2", title="Say thank you", priority=3),
)
BACKLOG = (
    Item(id="WRK-001", title="Sort the list", status=Status.IN_PROGRESS, phase="build"),
    Item(
        id="WRK-002",
        title="Delete old orders",
        status=Status.BLOCKED,
        phase="design",
        blocked=Blocked(Status.IN_PROGRESS, "it deletes data: is that meant?", "decision"),
    ),
    Item(
        id="WRK-003",
        title="Call the customer",
        status=Status.BLOCKED,
        blocked=Blocked(Status.READY, "which customer?"),
    ),
    Item(id="WRK-004", title="A faster search", status=Status.READY),
    Item(id="WRK-005", title="Something with colours", status=Status.NEW, tags=("ui",)),
)


def told(mission: str, title: str, events: list[Event]) -> list[Event]:
    """The same story of another mission."""
    return [started(mission, title), *events]


def up_to(phase: str) -> list[Event]:
    """Every phase before it passed; it is under way."""
    events: list[Event] = [begun("prep", 0, agent=""), ended("prep", 1, agent="", summary="")]
    for number, name in enumerate(PHASES[: PHASES.index(phase)]):
        agent = "" if name == "publish" else "scripted"
        events += [begun(name, 1 + 10 * number, agent=agent), _passed(name, 11 + 10 * number, agent)]
    agent = "" if phase in ("publish", "archive") else "scripted"
    return [*events, begun(phase, 1 + 10 * PHASES.index(phase), agent=agent)]


def _passed(phase: str, when: float, agent: str) -> Event:
    event = ended(phase, when, RED, ONLY_TESTS, agent=agent)
    facts = {"merged": "feedc0ffee012345"} if phase == "publish" else {}
    return replace(event, outcome=replace(event.outcome, facts=facts))


def to_the_end() -> list[Event]:
    return [*up_to("archive"), ended("archive", 85, agent="", summary=""), ItemClosed(at=at(86))]


def refuted() -> list[Event]:
    """Its PASS does not hold, and it is at it again."""
    failed = ended("execute", 60, NOT_GREEN, decision=SENT_BACK, summary="the prices are rounded now")
    return [*up_to("execute"), failed, begun("execute", 61, run=2)]


def stopped() -> list[Event]:
    gone = Decision(Move.ABORT, Verdict.ERROR, reason="execute has used up its retries", exit_code=1)
    failed = ended("execute", 61, NOT_GREEN, run=2, decision=gone, summary="the prices are rounded now")
    return [*refuted(), failed, Warned(at=at(62), text="the answer was cut: it was longer than allowed")]


def parked() -> list[Event]:
    asks = Decision(Move.PARK, Verdict.BLOCKED, reason="which of the two roundings is meant?")
    return [*up_to("execute"), ended("execute", 60, claimed=Verdict.BLOCKED, decision=asks, summary="I need an answer")]


def at_rest(mission: str, title: str, events: list[Event]) -> MissionSummary:
    return shown(told(mission, title, events), NOW, pid=None)


def at_work(mission: str, title: str, events: list[Event], *doing: str, pid: int = PID) -> MissionSummary:
    return shown(told(mission, title, events), NOW, *doing, pid=pid)


def board(
    *views: MissionSummary,
    runs: tuple[RunSummary, ...] = (),
    pid: int | None = None,
    merges: tuple[MergeSummary, ...] = (),
) -> Board:
    return gather_board(views, [replace(run, pid=pid, as_of=at(NOW)) for run in runs], at(NOW), merges)


ROUNDING = ("shop-1.1.1", "Round prices to the cent")


def idle() -> Scene:
    return Scene(Board(at=at(NOW)), beads(*SHOP))


def busy() -> Scene:
    """A campaign at its second task, and somebody else's mission."""
    progress = {"shop-1": Advanced(at=at(90), item="shop-1", title="A shop that people trust", done=1, of=3)}
    run = RunSummary(
        stream="_campaign-shop-1",
        cap=10,
        spawns=4,
        missions=("shop-1.1.1",),
        progress=progress,
        began=at(0),
        last=at(90),
    )
    views = (
        at_work(*ROUNDING, refuted(), *DOING),
        at_work("shop-2", "Say thank you", up_to("test-writer"), "reads README.md", pid=PID + 1),
        at_rest("shop-0", "The first thing", to_the_end()),
    )
    return Scene(board(*views, runs=(run,), pid=PID), beads(*SHOP))


def blocked() -> Scene:
    """A backlog: one waits for a decision, one for an answer, and a mission is parked."""
    views = (at_rest("WRK-002", "Delete old orders", parked()), at_work("WRK-001", "Sort the list", up_to("execute")))
    return Scene(
        board(*views),
        Listing(
            BACKLOG,
            by_status=True,
            tracker="backlog",
            verbs=("advance", "approve", "triage"),
            edits=BacklogTracker.traits.edits,
        ),
    )


def failing() -> Scene:
    return Scene(board(at_rest(*ROUNDING, stopped())), beads(*SHOP))


def finished() -> Scene:
    done = RunEnded(at=at(100), why="nothing is left to do", spawns=8, done=("shop-1.1.1",), failed={"shop-2": "no"})
    run = RunSummary(
        stream="_queue", cap=100, spawns=8, missions=("shop-1.1.1",), began=at(0), last=at(100), ended=done
    )
    views = (at_rest(*ROUNDING, to_the_end()), at_rest("shop-2", "Say thank you", to_the_end()))
    done_ones = {view.mission for view in views}
    items = (replace(item, status=Status.DONE) if item.id in done_ones else item for item in SHOP)
    return Scene(board(*views, runs=(run,)), beads(*items))


def forty() -> Scene:
    views = [
        at_work(f"many-{n:02}", f"Task number {n}", up_to(PHASES[n % 6]), f"edits src/file_{n}.py", pid=PID + n)
        for n in range(1, 41)
    ]
    items = [Item(id=view.mission, title=view.title, status=Status.IN_PROGRESS) for view in views]
    return Scene(board(*views), beads(*items))


def queue_of(*events: Event, at_it: str = "", tested: tuple[int, int] = (4, 1)) -> MergeSummary:
    """A merge queue in which everybody who came still waits."""
    train = reduce(MergeTrain.after, events, MergeTrain(stream="_merges-main"))
    places = train.places(lambda _one: True, at_it)
    line = [*filter(None, [at_it]), *(place.mission for place in places)]
    return MergeSummary(train=train, at_it=at_it, places=places, cars=train.cars(line, *tested))


def handed_in(mission: str, when: float) -> HandedIn:
    return HandedIn(at=at(when), mission=mission, key="publish#1", epoch=1)


def served(mission: str, when: float, seconds: float) -> Served:
    return Served(at=at(when), mission=mission, key="publish#1", seconds=seconds)


def stacked(mission: str, onto: str) -> Stacked:
    return Stacked(at=at(80), mission=mission, commit=mission, tree=mission, onto=onto, under=onto)


def batched(when: float, *missions: str, green: bool, commit: str = "") -> Batched:
    seconds = 0.0 if commit else 2.0
    return Batched(at=at(when), missions=missions, tree="".join(missions), green=green, commit=commit, seconds=seconds)


def went_back() -> list[Event]:
    why = "Its merge into main conflicts in [b]prices.py[/b]. Merged meanwhile: shop-4 (git diff 1^1 1)."
    return [*up_to("publish"), Returned(at=at(78), why=why), begun("execute", 79, run=2)]


def merging() -> Scene:
    """Three of a batch were red together and two of them merged; another went back; three wait now."""
    ended_ones = [at_rest(name, f"Task {name}", to_the_end()) for name in ("shop-4", "shop-5")]
    waiting = [at_work(f"shop-{n}", f"Wait for {n}", up_to("publish"), pid=PID + n) for n in (7, 8, 9)]
    back = at_work("shop-6", "Sort the prices", went_back(), "edits prices.py", pid=PID + 6)
    queue = queue_of(
        *(handed_in("shop-4", 61), handed_in("shop-5", 62), handed_in("shop-6", 63)),
        *(batched(65, "shop-4", "shop-5", "shop-6", green=False), batched(67, "shop-4", green=True)),
        *(batched(69, "shop-4", "shop-5", green=True), batched(70, "shop-4", "shop-5", green=True, commit="f00")),
        *(served("shop-5", 70, 0.0), served("shop-4", 70, 8.0), served("shop-6", 78, 2.0)),
        *(handed_in("shop-7", 79), handed_in("shop-8", 85), handed_in("shop-9", 90)),
        *(stacked("shop-7", "main"), stacked("shop-8", "shop-7")),
        at_it="shop-7",
    )
    progress = {"": Advanced(at=at(90), item="", title="", done=2, of=7)}
    names = tuple(f"shop-{number}" for number in range(4, 10))
    run = RunSummary(
        stream="_queue", cap=40, jobs=4, spawns=9, missions=names, progress=progress, began=at(0), last=at(90)
    )
    return Scene(board(*ended_ones, back, *waiting, runs=(run,), pid=PID, merges=(queue,)), beads(*SHOP))


SCENES = {scene.__name__: scene for scene in (idle, busy, blocked, failing, finished, forty, merging)}
