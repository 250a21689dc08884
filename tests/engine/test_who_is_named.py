"""Work that is green alone, and not on what came meanwhile, is told with which commit it does not go together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.core.errors import Interrupted
from capsule.core.event import Event, Observed, Proposed, Returned, StepEnded
from capsule.core.merge_queue import BATCH, merge_stream
from capsule.core.workflow import Workflow

from .conftest import PASS, Scene, workflow
from .test_mending import GLOBS, UNITTEST

Turn = dict[str, object]
FLOW = workflow(
    phases=[
        {"name": "prep", "role": "action", "do": "prep"},
        {"name": "make", "role": "worker", "prompt": "make", "checks": ["committed", "green"]},
        {"name": "publish", "role": "action", "do": "publish"},
        {"name": "archive", "role": "action", "do": "archive"},
    ],
    prompts={"make": "Make it. {{SIGNAL_CONTRACT}}"},
)
TESTS = "! { [ -e mine ] && [ -e theirs ]; }\n"
pytestmark = pytest.mark.in_git


class Meanwhile:
    """What comes to main while the work is made."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.commits: dict[str, str] = {}

    def commit(self, name: str, file: str, text: str = "x\n") -> None:
        self._write(file, text)
        self.scene.git("commit", "-q", "-m", name)
        self.commits[name] = self.scene.git("rev-parse", "HEAD")

    def merge(self, name: str, file: str = "", text: str = "x\n") -> None:
        """As a mission's merge is made."""
        self.scene.git("checkout", "-q", "-b", name)
        self._write(file or name, text)
        self.scene.git("commit", "-q", "-m", name)
        self.scene.git("checkout", "-q", "-")
        self.scene.git("merge", "-q", "--no-ff", "-m", f"Merge {name}\n\nCapsule-Mission: {name}", name)
        self.commits[name] = self.scene.git("rev-parse", "HEAD")

    def batch(self, **files: str) -> None:
        """Merges that come with one commit, whose second parent is their chain."""
        self.scene.git("checkout", "-q", "-b", "chain")
        for name, file in files.items():
            self.merge(name, file)
        self.scene.git("checkout", "-q", "main")
        self.scene.git("merge", "-q", "--no-ff", "-m", f"Merge missions\n\n{BATCH}{', '.join(files)}", "chain")

    def _write(self, file: str, text: str) -> None:
        (self.scene.root / file).write_text(text)
        self.scene.git("add", file)


def innocents(main: Meanwhile, many: int, start: int = 0) -> None:
    for number in range(start, start + many):
        main.merge(f"other-{number}")


def nine_after_it(main: Meanwhile) -> str:
    main.merge("culprit", "theirs")
    innocents(main, 9)
    return "culprit"


def five_before_it_and_four_after(main: Meanwhile) -> str:
    innocents(main, 5)
    main.merge("culprit", "theirs")
    innocents(main, 4, 5)
    return "culprit"


def in_a_batch(main: Meanwhile) -> str:
    innocents(main, 3)
    main.batch(one="one", culprit="theirs", three="three")
    innocents(main, 3, 3)
    return "culprit"


def by_a_person(main: Meanwhile) -> str:
    innocents(main, 4)
    main.commit("Tidy \x1b[31mup", "theirs")
    innocents(main, 4, 4)
    return "Tidy \x1b[31mup"


def alone(main: Meanwhile) -> str:
    main.merge("culprit", "theirs")
    return "culprit"


def gone_back(scene: Scene, happens: Callable[[Meanwhile], str], make: list[Turn], flow: Workflow = FLOW) -> Returned:
    """Run the work, let this happen before it is merged, and return why it went back first."""
    (scene.root / "tests.sh").write_text(TESTS)
    (scene.root / "shared").write_text("first\n")
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "Tests")
    hear, main = scene.watcher.event, Meanwhile(scene)

    def event(mission: str, event: Event) -> None:
        hear(mission, event)
        if isinstance(event, StepEnded) and event.key == "make#1":
            main.commits["named"] = main.commits[happens(main)]
        elif isinstance(event, StepEnded) and event.key == "make#2":
            innocents(main, 2, 100)

    scene.watcher.event = event  # type: ignore[method-assign]
    scene.plays({"one": {"make": make}})
    with suppress(Interrupted):
        scene.run("one", flow)
    returned = next(event for _, event in scene.journal.events("one") if isinstance(event, Returned))
    assert [*returned.others.values()] == [main.commits["named"]], returned
    assert f" (git diff {main.commits['named'][:12]}^1 " in returned.why
    return returned


MINE: Turn = {"write": {"mine": "x\n"}, "run": ["git add -A && git commit -qm mine"], "signal": PASS}
UNCHANGED: Turn = {"run": MINE["run"], "signal": PASS}
NOT_MINE: Turn = {"run": ["git rm -q mine && git commit -qm less"], "signal": PASS}


@pytest.mark.promise("merge-queue.named")
@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("happens", [nine_after_it, in_a_batch, five_before_it_and_four_after, alone])
def test_the_mission_with_which_it_is_red_is_named_and_no_other(
    scene: Scene, happens: Callable[[Meanwhile], str]
) -> None:
    returned = gone_back(scene, happens, [MINE, NOT_MINE])
    assert [*returned.others] == ["culprit"]
    assert "Merged meanwhile: culprit (git diff " in returned.why and "other-" not in returned.why


@pytest.mark.promise("merge-queue.named")
def test_a_commit_by_a_person_is_named_by_its_id_and_subject(scene: Scene) -> None:
    returned = gone_back(scene, by_a_person, [MINE, NOT_MINE])
    ((name, commit),) = returned.others.items()
    assert name == f'{commit[:12]} "Tidy [31mup"' and f"Merged meanwhile: {name} (" in returned.why


@pytest.mark.promise("merge-queue.named")
def test_work_that_is_still_red_with_what_sent_it_back_is_told_that_one_again(scene: Scene) -> None:
    """Nothing but the merge asks whether it is green, and others are merged meanwhile."""
    prep, make, *others = FLOW.phases
    flow = replace(FLOW, phases=(prep, replace(make, checks=("committed",)), *others))
    first = gone_back(scene, nine_after_it, [MINE, UNCHANGED, UNCHANGED], flow)
    returned = [event for _, event in scene.journal.events("one") if isinstance(event, Returned)]
    assert len(returned) == 2 and [event.others for event in returned] == [first.others] * 2


@pytest.mark.promise("merge-queue.asked-again")
def test_of_a_merge_that_is_asked_once_more_the_second_run_counts(scene: Scene, tmp_path: Path) -> None:
    """One test fails on the base, too, and is no reason; another one fails in the first run only."""
    once = tmp_path / "once"
    flaky = f"import os\n\nonce = {str(once)!r}\nred = not os.path.exists(once)\nopen(once, 'w').close()\n"
    case = "import unittest\n\n\nclass {0}(unittest.TestCase):\n    def test_it(self):\n        self.assertFalse({1})\n"
    (scene.root / "test_known.py").write_text(case.format("Known", "True"))
    (scene.root / "test_work.py").write_text(case.format("Work", "False"))
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "A known failure")
    prep, make, *others = FLOW.phases
    flow, hear = replace(FLOW, phases=(prep, replace(make, checks=("committed",)), *others)), scene.watcher.event

    def event(mission: str, event: Event) -> None:
        hear(mission, event)
        if isinstance(event, StepEnded) and event.key == "make#1":
            Meanwhile(scene).commit("flaky", "test_flaky.py", flaky + case.format("Flaky", "red"))

    scene.watcher.event = event  # type: ignore[method-assign]
    scene.plays({"one": {"make": [MINE]}})
    assert scene.run("one", flow, test=UNITTEST, test_globs=GLOBS).finished
    assert once.exists()


@pytest.mark.promise("merge-queue.named")
def test_the_first_commit_with_which_it_conflicts_is_named(scene: Scene) -> None:
    def conflicts(main: Meanwhile) -> str:
        innocents(main, 2)
        main.merge("culprit", "shared", "theirs\n")
        innocents(main, 7, 2)
        return "culprit"

    mine: Turn = {"write": {"shared": "mine\n"}, "run": ["git add -A && git commit -qm mine"], "signal": PASS}
    returned = gone_back(scene, conflicts, [mine, mine])
    assert [*returned.others] == ["culprit"] and "conflicts in shared" in returned.why
    events = [event for _, event in scene.journal.events("one")]
    made = next(n for n, event in enumerate(events) if isinstance(event, StepEnded) and event.key == "make#1")
    searched = events[made : events.index(returned)]
    assert not any(isinstance(event, Observed | Proposed) for event in searched), "no test runs, and nothing to publish"


@pytest.mark.promise("merge-queue.named")
@pytest.mark.slow
@pytest.mark.parametrize("happens,runs", [(nine_after_it, 3), (five_before_it_and_four_after, 4), (alone, 0)])
def test_the_commit_is_found_by_bisection_while_others_get_on(
    scene: Scene, happens: Callable[[Meanwhile], str], runs: int
) -> None:
    hear, waited_for = scene.watcher.event, list[bool]()

    def event(mission: str, event: Event) -> None:
        hear(mission, event)
        if isinstance(event, Observed):
            waited_for.append(scene.journal.is_held(merge_stream("main")))
        elif isinstance(event, StepEnded) and event.key == "make#1":
            waited_for.clear()
        elif isinstance(event, Returned):
            raise Interrupted("that is all")

    scene.watcher.event = event  # type: ignore[method-assign]
    gone_back(scene, happens, [MINE, NOT_MINE])
    the_merge_twice, main_without_it = [True] * 2, [False]
    assert waited_for == the_merge_twice + main_without_it + [False] * runs
