"""What a mission that has its turn to merge takes along, and how it looks at those that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.adapters import Candidate, Journal
from capsule.core.event import Batched, HandedIn, MissionStarted, Proposed, Stacked
from capsule.core.item import Item
from capsule.core.merge_queue import merge_queue, merge_stream
from capsule.core.state import MissionState, Step, apply
from capsule.engine.job import Job
from capsule.engine.merge_turn import Turn
from capsule.engine.run_mission import run_until_halt
from capsule.journals.sqlite import SqliteJournal
from capsule.system import lock

from .conftest import Scene

GATE = "required: sh tests.sh"
NAMES = ("first", "second")
pytestmark = pytest.mark.in_git


class Built:
    """Work whose merges are there already."""

    gate, archived_at = GATE, ""

    def __init__(self, scene: Scene) -> None:
        self._trunk = scene.services.trunk("main")

    def propose(self, onto: str = "") -> Candidate:
        raise AssertionError(f"{onto}: nothing is to be built")

    def is_green(self, candidate: Candidate, along: Sequence[str] = ()) -> bool:
        raise AssertionError(f"{candidate}, {along}: nothing is to be tested")

    def tree(self, commit: str = "") -> str:
        return self._trunk.tree(commit)

    def holds(self, commit: str) -> bool:
        return self._trunk.holds(commit)


@contextmanager
def turn_of_the_first(scene: Scene, journal: Journal) -> Iterator[Turn]:
    """Two missions are in the line, and the first of them has the turn."""
    services = replace(scene.services, journal=journal, limits=replace(scene.services.limits, batch=4))
    flow = services.words.workflow("tdd")
    started = MissionStarted(
        at="", mission="first", item=Item(id="first", title="First"), workflow=flow, base="", into="main"
    )
    job = Job(Step("first", "publish", 1), apply(MissionState(), started), flow.phases[-1], services, run_until_halt)
    stream = merge_stream("main")
    with ExitStack() as held:
        for name in NAMES:
            epoch = held.enter_context(journal.claim(name))
            with journal.claim(stream):
                journal.note(stream, HandedIn(at="", mission=name, key="publish.1", epoch=epoch))
        held.enter_context(journal.claim(stream))
        yield Turn(job, merge_queue(journal.events, "main"))


def made_on(scene: Scene, parent: str, name: str, files: Sequence[str]) -> Candidate:
    """Commit these files on top of a commit, and leave every branch where it is."""
    scene.git("read-tree", "main")
    for file in files:
        scene.git("update-index", "--add", "--cacheinfo", f"100644,{scene.git('rev-parse', 'main:README.md')},{file}")
    tree = scene.git("write-tree")
    return Candidate(scene.git("commit-tree", "-p", parent, "-m", name, tree), tree, parent)


def stacked(mission: str, candidate: Candidate, under: str) -> Stacked:
    onto = candidate.onto
    return Stacked(
        at="", mission=mission, commit=candidate.commit, tree=candidate.tree, onto=onto, under=under, gate=GATE
    )


@pytest.mark.parametrize("lost", [False, True])
def test_no_merge_comes_along_on_one_that_main_took_in_another_version(scene: Scene, lost: bool) -> None:
    """Equal trees are not enough: main's history would have that merge twice."""
    tip = scene.git("rev-parse", "main")
    under = made_on(scene, tip, "Another mission, built again", ()).commit if lost else tip
    first, again = made_on(scene, under, "Merge first", ["a"]), made_on(scene, tip, "Merge first", ["a"])
    second = made_on(scene, first.commit, "Merge second", ["a", "b"])
    tree = scene.git("rev-parse", "main^{tree}")
    with turn_of_the_first(scene, scene.journal) as turn:
        turn.note(Batched(at="", missions=("another",), tree=tree, green=True, commit=tip))  # two may come together
        turn.note(stacked("first", first, tree))
        turn.note(stacked("second", second, first.tree))
        car = turn.car(again, Built(scene))
    assert [one.commit for one in car] == ([again.commit] if lost else [first.commit, second.commit])


def test_a_merge_that_others_may_build_on_is_told_from_their_batch_after_a_crash(scene: Scene) -> None:
    """Its own stream names it, so that a batch in which it enters main is never taken for it."""
    first = made_on(scene, scene.git("rev-parse", "main"), "Merge first", ["a"])
    with turn_of_the_first(scene, scene.journal) as turn:
        assert [one.commit for one in turn.car(first, Built(scene))] == [first.commit]
    told = [event for _, event in scene.journal.events("first")]
    assert [event.commit for event in told if isinstance(event, Proposed)] == [first.commit]


def test_those_who_wait_are_looked_at_without_a_list_of_all_locks(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel stops every lock of the machine while it lists them, and a hundred may wait and look."""
    with closing(SqliteJournal(tmp_path / "journal")) as journal, turn_of_the_first(scene, journal) as turn:
        monkeypatch.setattr(lock, "_pid_from_kernel", lambda _: pytest.fail("the list of all locks was read"))
        assert turn.line(turn.queue.now()) == [*NAMES]
