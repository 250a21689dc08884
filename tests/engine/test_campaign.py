"""A campaign: what an epic holds, one after the other, each on the work of the others, and parents closed at last.

Missions here have one agent phase, so that a campaign of several takes a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from capsule.adapters import ClaimedState, Order, Tracker
from capsule.core.decide import Guardrails
from capsule.core.errors import Refused
from capsule.core.event import Advanced, Discovered, ParentClosed, Policy, RunEnded, Warned
from capsule.core.item import Item, NewItem, Status
from capsule.core.schedule import QueuePosition, queue
from capsule.core.workflow import Contract, Workflow
from capsule.engine.campaign import Campaign
from capsule.engine.dispatch import RunPlan, RunReport, work_through
from capsule.services import Services
from capsule.settings import GitHubOptions
from capsule.trackers.memory import MemoryTracker

from ..contracts import gh_projects
from ..contracts.test_changing import OPENERS
from .conftest import PASS, Scene, workflow

STREAM = "_campaign-e"
FLOW = workflow(
    name="short",
    phases=[
        {"name": "ready", "role": "action", "do": "prep"},
        {"name": "make", "role": "worker", "prompt": "p", "retries": 0, "checks": ["changed"]},
        {"name": "bring", "role": "action", "do": "publish"},
        {"name": "keep", "role": "action", "do": "archive", "closing": True},
    ],
    prompts={"p": "{{#EARLIER_WORK}}\nBefore: {{EARLIER_WORK}}\n{{/EARLIER_WORK}}\nWork. {{SIGNAL_CONTRACT}}"},
)


BY_FILE = msgspec.structs.replace(FLOW, contract=Contract.RESULT)
"""The same, with agents that answer by a file."""


def makes(name: str, **signal: Any) -> dict[str, Any]:
    commit = f'git add {name} && git commit -q -m "$CAPSULE_COMMIT_MSG"'
    done = {"write": {name: "x\n"}, "run": [commit], "signal": {**PASS, "summary": f"made {name}", **signal}}
    return {"make": [done]}


STOPS = {"make": [{"signal": {**PASS, "status": "ERROR", "feedback": "no clay"}}]}
LIES = {"make": [{"signal": PASS}]}


@dataclass
class Table:
    """Where the queue of a scene lies."""

    scene: Scene
    campaign: Campaign
    policy: Policy
    flow: Workflow
    guardrails: Guardrails = field(default_factory=Guardrails)

    def places(self, left_alone: Mapping[str, str]) -> Sequence[QueuePosition]:
        return queue(self.scene.tracker.everything(), left_alone=left_alone, by_priority=True)

    def in_the_way(self, places: Sequence[QueuePosition], under_way: Collection[str]) -> Collection[str]:
        return ()

    def workflow(self, item: Item) -> Workflow:
        return self.flow

    def answered(self, item: str) -> None:
        pass

    def follow_requests(self, *, idle: bool) -> Collection[str]:
        return ()

    def order(self, item: Item) -> tuple[Order, Services]:
        base, earlier = self.scene.git("rev-parse", "main"), self.campaign.earlier(item)
        order = Order(item.id, self.scene.tracker.item(item.id), self.flow, base, "main", self.policy, earlier=earlier)
        return order, self.scene.services


def run(
    scene: Scene, root: str = "e", cap: int = 20, *, stop: bool = True, flow: Workflow = FLOW, **policy: Any
) -> RunReport:
    campaign, report = Campaign(root, scene.services, STREAM), RunReport()
    plan = RunPlan(STREAM, cap, to_the_end=True, group=campaign, stop_on_failure=stop)
    work_through(plan, Table(scene, campaign, Policy(**{"verify": "off", **policy}), flow), scene.services, report)
    return report


def told(scene: Scene, kind: type) -> list[Any]:
    return [event for _, event in scene.journal.events(STREAM) if isinstance(event, kind)]


def counts(scene: Scene) -> list[str]:
    return [f"{event.item} {event.done}/{event.of}" for event in told(scene, Advanced)]


def holding(scene: Scene, *items: Item) -> None:
    scene.tracker = MemoryTracker(items)
    scene.services = replace(scene.services, tracker=scene.tracker, state_store=ClaimedState(scene.tracker))


@pytest.fixture
def epic(scene: Scene) -> Scene:
    """Two features; the second waits for the first, though its task is more urgent."""
    holding(
        scene,
        Item(id="e", title="Everything", type="epic"),
        Item(id="f", title="First", type="feature", parent="e"),
        Item(id="g", title="Second", type="feature", parent="e", dependencies=("f",)),
        Item(id="g1", title="Lid", parent="g", priority=0),
        Item(id="f1", title="Pot", parent="f"),
        Item(id="f2", title="Handle", parent="f", dependencies=("f1",)),
        Item(id="other", title="Not asked for", priority=0),
    )
    scene.plays({name: makes(name) for name in ("f1", "f2", "g1", "other")})
    return scene


def open_in(tracker: MemoryTracker) -> list[str]:
    return [item.id for item in tracker.items()]


class Unwilling(MemoryTracker):
    """Refuses to close or to add what it is told to refuse."""

    refuses: tuple[str, ...] = ()

    def close(self, item_id: str, reason: str) -> None:
        if item_id in self.refuses:
            raise Refused(f"{item_id} has a gate.", "Open the gate.")
        super().close(item_id, reason)

    def add(self, new: NewItem) -> str:
        if new.title in self.refuses:
            raise Refused("The tracker is full.", "")
        return super().add(new)


@pytest.mark.in_git
@pytest.mark.promise("campaigns.epic")
def test_everything_is_done_dependencies_first_and_closed_from_the_inside(epic: Scene) -> None:
    report = run(epic)
    assert (report.exit_code, report.ended_because) == (0, "e is done")
    assert report.done == ["f1", "f2", "g1"]
    assert open_in(epic.tracker) == ["other"], "what was not asked for is left alone"
    assert counts(epic) == ["e 0/3", "e 1/3", "f 1/2", "e 2/3", "f 2/2", "e 3/3", "g 1/1"]
    closed = [(event.item, event.reason) for event in told(epic, ParentClosed)]
    assert closed == [
        ("f", "all 2 items it holds are done"),
        ("g", "the one item it holds is done"),
        ("e", "all 2 items it holds are done"),
    ]
    assert epic.tracker.closed_because["e"] == "all 2 items it holds are done"
    assert [(row.item, row.done, row.of) for row in report.progress] == [("e", 3, 3), ("f", 2, 2), ("g", 1, 1)]
    assert epic.git("ls-tree", "--name-only", "main").split() == ["README.md", "f1", "f2", "g1"]
    started = epic.journal.events("g1")[0][1].earlier  # type: ignore[union-attr]
    assert [line.split(" (")[0] for line in started.splitlines()] == ["- f1 Pot", "- f2 Handle"]
    assert started.endswith(": made f2")
    assert epic.journal.events("f1")[0][1].earlier == ""  # type: ignore[union-attr]


@pytest.mark.promise("campaigns.on-failure")
def test_the_first_that_fails_is_the_last_and_the_next_run_goes_on_with_it(epic: Scene) -> None:
    epic.plays({"f1": makes("f1"), "f2": STOPS, "g1": makes("g1")})
    report = run(epic)
    assert [report.exit_code] == report.halts == [2], "as the mission that stopped"
    assert report.ended_because == "f2 failed (--on-failure continue keeps going)"
    assert (report.done, list(report.stuck)) == (["f1"], ["f2"])
    assert report.waiting == {"g1": "waits for f (ready), as g does"}
    assert told(epic, RunEnded)[0].waiting == report.waiting
    assert told(epic, ParentClosed) == []
    epic.plays({"f2": makes("f2"), "g1": makes("g1")})
    again = run(epic)
    assert (again.exit_code, again.done) == (0, ["f2", "g1"])
    assert open_in(epic.tracker) == ["other"]


def test_what_does_not_depend_on_it_can_go_on(epic: Scene) -> None:
    holding(
        epic,
        Item(id="e", title="Everything", type="epic"),
        Item(id="a", title="A", parent="e"),
        Item(id="b", title="B", parent="e", dependencies=("a",)),
        Item(id="c", title="C", parent="e"),
    )
    epic.plays({"a": STOPS, "c": makes("c")})
    report = run(epic, stop=False)
    assert report.done == ["c"]
    assert report.exit_code == 2
    assert report.waiting == {"b": "waits for a (in_progress)"}
    assert report.ended_because == "the rest of e cannot be worked on now"
    assert epic.tracker.item("e").status is Status.READY


@pytest.mark.promise("campaigns.killed-parent")
def test_whoever_is_killed_before_a_parent_is_closed_closes_it_the_next_time(epic: Scene) -> None:
    for name in ("f1", "f2", "g1"):
        epic.tracker.close(name, "by hand")
    report = run(epic)
    assert (report.exit_code, report.spawns) == (0, 0)
    assert [event.item for event in told(epic, ParentClosed)] == ["g", "f", "e"]
    run(epic)
    assert len(told(epic, ParentClosed)) == 3, "closed once"


@pytest.mark.in_git
@pytest.mark.promise("campaigns.parents")
def test_no_parent_is_closed_while_a_merge_is_not_in_main(epic: Scene) -> None:
    before = epic.git("rev-parse", "main")
    run(epic, root="f")
    epic.git("update-ref", "refs/heads/main", before)
    tracker = MemoryTracker(
        [
            Item(id="f", title="First", type="feature"),
            Item(id="f1", title="Pot", parent="f", status=Status.DONE),
            Item(id="f2", title="Handle", parent="f", status=Status.DONE),
        ]
    )
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    report = run(epic, root="f")
    assert tracker.item("f").status is Status.READY
    assert [event.text.split(",")[0] for event in told(epic, Warned)] == ["f is not closed: the merge of f1"]
    assert (report.exit_code, report.waiting) == (1, {"f": "everything in it is done, but it is not closed"})


@pytest.mark.promise("campaigns.parents")
def test_a_tracker_that_does_not_let_a_parent_be_closed_is_asked_again(epic: Scene) -> None:
    tracker = Unwilling([Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e")])
    tracker.refuses = ("e",)
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    epic.plays({"a": makes("a")})
    report = run(epic)
    assert [event.text for event in told(epic, Warned)] == ["e could not be closed in the tracker: e has a gate."]
    assert (report.exit_code, report.ended_because) == (1, "the rest of e cannot be worked on now")
    assert report.waiting == {"e": "everything in it is done, but it is not closed"}
    tracker.refuses = ()
    again = run(epic)
    assert tracker.item("e").status is Status.DONE
    assert (again.exit_code, again.ended_because) == (0, "e is done")


def test_what_is_merged_is_closed_as_soon_as_its_tracker_lets_it(epic: Scene) -> None:
    items = [Item(id="e", title="E", type="epic"), *(Item(id=name, title=name, parent="e") for name in "ab")]
    tracker = Unwilling(items)
    tracker.refuses = ("a",)
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    epic.plays({"a": makes("a"), "b": makes("b")})
    real = epic.watcher.event

    def lets_go(mission: str, event: Any) -> None:
        real(mission, event)
        if mission == "b":
            tracker.refuses = ()

    epic.watcher.event = lets_go  # type: ignore[method-assign]
    report = run(epic)
    assert (report.done, report.exit_code, tracker.item("e").status) == (["a", "b"], 0, Status.DONE)


def test_an_epic_below_its_own_child_is_not_called_done(epic: Scene) -> None:
    holding(epic, Item(id="e", title="E", type="epic", parent="a"), Item(id="a", title="A", parent="e", type="feature"))
    report = run(epic)
    assert (report.exit_code, epic.tracker.item("e").status) == (1, Status.READY)


@pytest.mark.promise("campaigns.added")
def test_an_item_that_is_added_meanwhile_is_part_of_it(epic: Scene) -> None:
    holding(epic, Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e"))
    epic.plays({"a": makes("a"), "*": makes("late")})
    real = epic.watcher.event

    def watch(mission: str, event: Any) -> None:
        real(mission, event)
        if mission == "a":
            epic.tracker.add(NewItem(title="Late", parent="e", reference="once"))

    epic.watcher.event = watch  # type: ignore[method-assign]
    assert run(epic).done == ["a", "new-3"]
    assert epic.tracker.item("e").status is Status.DONE


@pytest.mark.promise("campaigns.limits")
def test_the_cap_holds_and_what_is_left_is_said(epic: Scene) -> None:
    report = run(epic, cap=1)
    assert (report.done, report.exit_code) == (["f1"], 1)
    assert report.ended_because == "cap: 1 of 1 phases used"
    assert report.waiting == {"f2": "not started", "g1": "waits for f (ready), as g does"}


@pytest.mark.promise("campaigns.limits")
def test_two_in_a_row_that_use_up_their_retries_stop_it_in_either_mode(epic: Scene) -> None:
    tasks = [Item(id=name, title=name, parent="e") for name in ("a", "b", "c")]
    holding(epic, Item(id="e", title="E", type="epic"), *tasks)
    epic.plays({"a": LIES, "b": LIES, "c": makes("c")})
    report = run(epic, stop=False, verify="strict")
    assert (report.exit_code, list(report.failed)) == (3, ["a", "b"])
    assert report.ended_because == "breaker: 2 items in a row used up their retries"
    assert report.waiting == {"c": "not started"}


# ---- what agents notice on the way

NOTICED = [{"title": "Mend the lid", "context": "It leaks."}, "Sweep the floor", {"context": "no title"}]


@pytest.mark.promise("campaigns.discovered")
def test_work_that_was_noticed_becomes_items_of_its_own(epic: Scene) -> None:
    holding(epic, Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e"))
    epic.plays({"a": makes("a", follow_ups=NOTICED)})
    report = run(epic, file_discovered=True)
    assert report.follow_ups == ["new-3", "new-4"]
    assert [(item.id, item.title, item.description, item.parent) for item in epic.tracker.items()] == [
        ("new-3", "Mend the lid", "It leaks.", ""),
        ("new-4", "Sweep the floor", "", ""),
    ]
    assert epic.tracker.item("e").status is Status.DONE, "what was noticed is nobody's child"
    kinds = epic.kinds("a")
    assert kinds.index("discovered") < kinds.index("item_closed")


@pytest.mark.promise("campaigns.discovered")
def test_where_nobody_asked_for_it_it_stays_in_the_signal(epic: Scene) -> None:
    holding(epic, Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e"))
    epic.plays({"a": makes("a", follow_ups=NOTICED)})
    report = run(epic)
    assert (report.follow_ups, epic.tracker.items()) == ([], [])
    signal = epic.ended("a")[1].outcome.signal
    assert (signal.extra["follow_ups"], signal.follow_ups) == (NOTICED, ())
    assert "- Follow-up noticed by make#1: Mend the lid\n" in (epic.root / ".capsule/logs/a/summary.md").read_text()


@pytest.mark.parametrize("allowed", [True, False])
def test_an_agent_that_answers_by_file_is_heard_where_the_settings_allow_it(epic: Scene, allowed: bool) -> None:
    holding(epic, Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e"))
    answer = {"item_id": "a", "phase": "make", "result": "PHASE_COMPLETE", "summary": "made", "follow_ups": NOTICED}
    epic.plays({"a": {"make": [{"run": makes("a")["make"][0]["run"], "result": answer}]}})
    report = run(epic, flow=BY_FILE, file_discovered=allowed)
    assert report.done == ["a"]
    assert [item.title for item in epic.tracker.items()] == ["Mend the lid", "Sweep the floor"] * allowed


@pytest.mark.promise("campaigns.discovered")
def test_what_cannot_be_filed_is_a_warning_and_the_item_is_closed(epic: Scene) -> None:
    tracker = Unwilling([Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e")])
    tracker.refuses = ("Sweep the floor",)
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    epic.plays({"a": makes("a", follow_ups=NOTICED)})
    assert run(epic, file_discovered=True).done == ["a"]
    warnings = [warning for event in epic.ended("a") for warning in event.outcome.warnings]
    assert warnings == ["1 follow-up was not put into the tracker: The tracker is full."]
    filed = [event.items for _, event in epic.journal.events("a") if isinstance(event, Discovered)]
    assert filed == [{"new-3": "Mend the lid"}]


KNOWN = "a follow-up is known already, as floor"
IN_THERE = f"{KNOWN}: its context is in the description there"


def archive_warnings(scene: Scene, mission: str) -> list[str]:
    return [warning for event in scene.ended(mission) for warning in event.outcome.warnings]


@pytest.mark.promise("campaigns.known")
def test_what_is_known_already_is_named_and_its_new_context_is_added_once(epic: Scene) -> None:
    tasks = [Item(id=name, title=name, parent="e") for name in "ab"]
    floor = Item(id="floor", title="SWEEP: the floor", description="Dusty.")
    holding(epic, Item(id="e", title="E", type="epic"), *tasks, floor)
    one = [{"title": "Sweep the floor", "context": "And sticky."}, {"title": "sweep, the floor", "context": "Dusty."}]
    two = [{"title": "Sweep the floor", "context": "And sticky."}, "Sweep the floor!", "b"]
    epic.plays({"a": makes("a", follow_ups=one), "b": makes("b", follow_ups=two)})
    report = run(epic, file_discovered=True)
    assert epic.tracker.item("floor").description == "Dusty.\n\nFound by a/make: And sticky."
    assert archive_warnings(epic, "a") == [IN_THERE, IN_THERE]
    assert archive_warnings(epic, "b") == [IN_THERE, KNOWN]
    assert report.follow_ups == ["new-5"], "the item that a mission closes is not where to look for what is left"
    assert not [event for _, event in epic.journal.events("a") if isinstance(event, Discovered)]


def on_github(folder: Path, items: Sequence[Item]) -> Tracker:
    rows = [{"number": n, "title": item.title, "labels": ["capsule"]} for n, item in enumerate(items, 1)]
    return gh_projects.faked(folder, rows, GitHubOptions(repository=gh_projects.REPOSITORY))


@pytest.mark.promise("campaigns.known")
@pytest.mark.parametrize("opened", [*OPENERS.values(), on_github], ids=[*OPENERS, "github"])
def test_every_tracker_has_what_was_found_about_a_known_item_once(
    epic: Scene, opened: Callable[[Path, Sequence[Item]], Tracker]
) -> None:
    epic.root.joinpath("tracker").mkdir()
    items = [Item(id=f"demo-{n}", title=title) for n, title in enumerate(("Pot", "Lid", "Sweep the floor"), 1)]
    tracker: Any = opened(epic.root / "tracker", items)
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    pot, lid, floor = (item.id for item in tracker.items())
    follow_ups = [{"title": "Sweep the floor", "context": "Dusty."}, "Mend the handle"]
    epic.plays({pot: makes("pot", follow_ups=follow_ups), lid: makes("lid", follow_ups=follow_ups)})
    for name in (pot, lid):
        epic.run(name, FLOW, file_discovered=True, verify="off")
    titles = {item.title: item for item in tracker.items()}
    assert sorted(titles) == ["Mend the handle", "Sweep the floor"] and len(tracker.items()) == 2
    assert titles["Sweep the floor"].description.strip() == f"Found by {pot}/make: Dusty."
    assert archive_warnings(epic, pot) == [f"a follow-up is known already, as {floor}{IN_THERE.removeprefix(KNOWN)}"]
    handle = titles["Mend the handle"].id
    assert archive_warnings(epic, lid)[1:] == [f"a follow-up is known already, as {handle}"]


@pytest.mark.promise("campaigns.known")
def test_what_a_mission_filed_before_it_was_killed_is_not_called_known(epic: Scene) -> None:
    holding(epic, Item(id="e", title="E", type="epic"), Item(id="a", title="A", parent="e"))
    before = NewItem(title="Mend the lid", description="It leaks.", reference="capsule/a/make#1/0")
    filed = epic.tracker.add(before)
    epic.plays({"a": makes("a", follow_ups=NOTICED)})
    assert run(epic, file_discovered=True).follow_ups == [filed, "new-4"]
    assert archive_warnings(epic, "a") == []


@pytest.mark.promise("campaigns.known")
def test_a_tracker_that_changes_nothing_has_its_item_named(epic: Scene) -> None:
    holding(epic, Item(id="a", title="A"), Item(id="floor", title="Sweep the floor"))
    epic.tracker.traits = replace(epic.tracker.traits, edits=())
    epic.plays({"a": makes("a", follow_ups=[{"title": "Sweep the floor", "context": "Dusty."}])})
    epic.run("a", FLOW, file_discovered=True)
    assert archive_warnings(epic, "a") == [KNOWN]
    assert epic.tracker.item("floor").description == ""


class Locked(MemoryTracker):
    def change(self, item_id: str, values: Any) -> None:
        raise Refused(f"{item_id} is locked.", "Unlock it.")


@pytest.mark.promise("campaigns.known")
def test_a_context_that_cannot_be_added_is_said_and_the_item_is_closed(epic: Scene) -> None:
    tracker = Locked([Item(id="a", title="A"), Item(id="floor", title="Sweep the floor")])
    epic.tracker, epic.services = tracker, replace(epic.services, tracker=tracker, state_store=ClaimedState(tracker))
    epic.plays({"a": makes("a", follow_ups=[{"title": "Sweep the floor", "context": "Dusty."}])})
    epic.run("a", FLOW, file_discovered=True)
    assert archive_warnings(epic, "a") == [f"{KNOWN}; its context could not be added: floor is locked."]
    assert tracker.item("a").status is Status.DONE
