"""Six boards as the dashboard meets them, each with the items behind it, at a moment that never changes."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from capsule.core.board import Board, gather_board
from capsule.core.decide import Decision, Move
from capsule.core.event import Advanced, Event, ItemClosed, RunEnded, Warned
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.item import Blocked, Item, Status, with_holders
from capsule.core.signal import Verdict
from capsule.tui.actions import Listing

from .missions import DOING, NOT_GREEN, ONLY_TESTS, PID, RED, SENT_BACK, at, begun, ended, shown, started

NOW = 120.0
PHASES = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge", "publish", "archive")
NASTY = "Sort [red]by name[/red]\x1b[2J\x07 \u202eeman yb"
"""A title that would paint, clear and turn the screen around."""


class Scene(NamedTuple):
    board: Board
    listing: Listing


def beads(*items: Item) -> Listing:
    return Listing(tuple(with_holders({item.id: item for item in items}).values()), by_status=False, tracker="beads")


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


def board(*views: MissionSummary, runs: tuple[RunSummary, ...] = (), pid: int | None = None) -> Board:
    return gather_board(views, [replace(run, pid=pid, as_of=at(NOW)) for run in runs], at(NOW))


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
        board(*views), Listing(BACKLOG, by_status=True, tracker="backlog", verbs=("advance", "approve", "triage"))
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


SCENES = {scene.__name__: scene for scene in (idle, busy, blocked, failing, finished, forty)}
