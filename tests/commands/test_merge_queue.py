"""Missions that are ready at the same time are merged one after the other, and none is parked for being late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from capsule.core.event import Batched, HandedIn, Observed, Queued, Rebased, Returned, Served, StepEnded
from capsule.core.merge_queue import merge_stream
from capsule.journals.sqlite import SqliteJournal
from tests.costs import LONG, eventually

from .conftest import PASS, Project, Script, Turn
from .test_campaign import FLOW, row
from .test_jobs import meets, waits

pytestmark = pytest.mark.slow

COMMIT = 'git add -A . && git commit -q -m "$CAPSULE_COMMIT_MSG"'
ANSWER = "grep -q '<<<<' shared && { grep -v '[<>=]' shared | sort -u > new; mv new shared; }; " + COMMIT


def makes(*commands: str) -> Turn:
    return {"run": [*commands], "signal": PASS}


class Race(Project):
    """Tasks that are run at the same time, by a command each."""

    def set_up(self, names: list[str], scripts: dict[str, Script]) -> None:
        self.write(".capsule/workflows/short.yaml", FLOW)
        self.write("shared", "first\n")
        self.write("tests/test_together.sh", "! { [ -e left ] && [ -e right ]; }\n")
        self.beads.write_text("".join(map(row, names)))
        self.commit("a race")
        self.always |= {"CAPSULE_WORKFLOW__DEFAULT": "short", "CAPSULE_TRACKER": "beads-file"}
        self._script.write_text(json.dumps(scripts))

    def run_all(self, names: list[str]) -> dict[str, int]:
        """Run each by a command of its own, all at once; return their exit codes."""
        with ExitStack() as files:
            running = {name: self._start(name, files.enter_context(self._said(name).open("wb"))) for name in names}
            try:
                return {name: process.wait(5 * LONG) for name, process in running.items()}
            finally:
                for process in running.values():
                    process.kill()

    def _start(self, name: str, said: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "capsule", "run", name],
            cwd=self.path,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )

    def _said(self, name: str) -> Path:
        return self.path.parent / f"{name}.said"

    def words(self, name: str) -> str:
        return self._said(name).read_text()

    def merges(self) -> list[str]:
        return self.git("log", "--first-parent", "--merges", "--format=%s", "main").splitlines()

    def assert_every_merge_was_tested(self, names: list[str]) -> None:
        """Each tree on main was green, and seen to be so."""
        green = {
            event.observation.tree
            for name in names
            for event in self.events(name)
            if isinstance(event, Observed) and event.observation.colour.value == "green"
        }
        for commit in self.git("rev-list", "--first-parent", "--merges", "main").split():
            assert self.git("rev-parse", f"{commit}^{{tree}}") in green

    def assert_merged_once(self, names: list[str]) -> None:
        """Each has a merge of its own in the history of main, which brings what it made and nothing else."""
        told = self.git("log", "--merges", "--format=%H %(trailers:key=Capsule-Mission,valueonly,separator=)", "main")
        merged = sorted((line.split()[1], line.split()[0]) for line in told.splitlines() if " " in line.strip())
        assert [name for name, _ in merged] == sorted(names)
        for name, commit in merged:
            assert self.git("diff", "--name-only", f"{commit}^1", commit) == name

    def assert_never_both(self) -> None:
        """No commit that main ever was at is red."""
        for commit in self.git("rev-list", "--first-parent", "main").split():
            assert not {"left", "right"} <= {*self.git("ls-tree", "--name-only", commit).split()}

    def trailers(self, commit: str) -> dict[str, str]:
        rows = self.git("log", "-1", "--format=%(trailers:only,unfold)", commit).splitlines()
        return {name: value for name, _, value in (row.partition(": ") for row in rows)}

    def assert_reported(self, names: list[str], parked: str) -> None:
        """The report tells of the queue what its stream says: who waited, who was merged together, what was halved."""
        [queue] = json.loads(self.capsule("report", "--json").out)["merges"]
        merged = {one["mission"]: one for one in queue["passages"] if one["result"] == "merged"}
        assert sorted(merged) == [name for name in names if name != parked]
        assert {one["result"] for one in queue["passages"] if one["mission"] == parked} <= {"went_back", "not_merged"}
        for batch in self.batches():
            for name in batch.missions if batch.commit else ():
                assert {*merged[name]["with"]} == {*batch.missions} - {name}
        assert any(one["bisected"] for one in queue["tested"]), queue["tested"]
        assert any(one["waited_seconds"] for one in queue["passages"])
        assert "Merge queue: main" in self.capsule("report", "--html", "-").out
        assert "red, halved" in self.capsule("report").out

    def batches(self) -> list[Batched]:
        return [event for event in self.events(merge_stream("main")) if isinstance(event, Batched)]


@pytest.fixture
def race(a_project: Project) -> Race:
    a_project.__class__ = Race
    assert isinstance(a_project, Race)
    return a_project


@pytest.mark.promise("merge-queue.all-merged", "merge-queue.in-turn")
def test_eight_that_are_ready_at_once_are_all_merged(race: Race, tmp_path: Path) -> None:
    """The gate is slow, so that each has to wait for the others; without a queue they would overtake each other."""
    names = [f"task-{number}" for number in range(8)]
    room = tmp_path / "room"
    room.mkdir()
    race.write("tests/test_slow.sh", "sleep 0.3\n")
    race.set_up(names, {name: {"make": [makes(meets(room, 8), f"touch {name}", COMMIT)]} for name in names})
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    assert len(race.merges()) == len(set(race.merges())) == 8
    race.assert_every_merge_was_tested(names)
    tried = [sum(isinstance(event, StepEnded) and event.phase == "publish" for event in race.events(n)) for n in names]
    assert tried == [1] * 8
    waited = [name for name in names if any(isinstance(event, Queued) for event in race.events(name))]
    turns = [event.mission for event in race.events(merge_stream("main")) if isinstance(event, Served)]
    assert len(waited) >= 4 and sorted(turns) == sorted(waited)
    assert not race.git("worktree", "list").splitlines()[1:]


@pytest.mark.promise("merge-queue.returned")
def test_work_that_conflicts_goes_back_by_itself_and_is_told_with_whom(race: Race, tmp_path: Path) -> None:
    names, room = ["early", "late"], tmp_path / "room"
    room.mkdir()
    turns = {name: [makes(meets(room, 2), f"echo {name} >> shared", COMMIT), makes(ANSWER)] for name in names}
    race.set_up(names, {name: {"make": turn} for name, turn in turns.items()})
    assert race.run_all(names) == {"early": 0, "late": 0}, [race.words(name) for name in names]
    assert sorted(race.git("show", "main:shared").split()) == ["early", "first", "late"]
    race.assert_every_merge_was_tested(names)
    first, second = (subject.split(":")[0].removeprefix("Merge ") for subject in reversed(race.merges()))
    returned = [event for event in race.events(second) if isinstance(event, Returned)]
    assert [first in event.why and "conflicts in shared" in event.why for event in returned] == [True]
    assert sum(isinstance(event, Rebased) for event in race.events(second)) == 1
    assert not any(isinstance(event, Returned) for event in race.events(first))
    assert f"! {second} goes back: Its merge into main conflicts in shared." in race.words(second)


@pytest.mark.promise("merge-queue.returned", "merge-queue.needs-you")
def test_two_that_are_green_alone_and_red_together_do_not_both_get_in(race: Race, tmp_path: Path) -> None:
    names, room = ["left", "right"], tmp_path / "room"
    room.mkdir()
    make = {name: [makes(meets(room, 2), f"touch {name}", COMMIT), makes("true"), makes("true")] for name in names}
    race.set_up(names, {name: {"make": turns} for name, turns in make.items()})
    codes = race.run_all(names)
    assert sorted(codes.values()) == [0, 1], [race.words(name) for name in names]
    merged, parked = sorted(names, key=codes.__getitem__)
    assert race.merges() == [f"Merge {merged}: The {merged}"]
    events = race.events(parked)
    returned = [event for event in events if isinstance(event, Returned)]
    assert returned and all(f"Merged meanwhile: {merged} (git diff " in event.why for event in returned)
    retries = [event.decision.feedback for event in events if isinstance(event, StepEnded) and event.decision.back_to]
    assert retries and all(f"Merged meanwhile: {merged} (git diff " in feedback for feedback in retries)
    assert [
        event.decision.by_others for event in events if isinstance(event, StepEnded) and event.decision.exhausted
    ] == [True]
    assert f"merged meanwhile: {merged} (git diff " in race.capsule("status").out, "it needs a person, who is told too"
    assert "went back: The work is green alone, " in race.capsule("show", parked).out
    assert not any(isinstance(event, StepEnded) and "merged" in event.outcome.facts for event in events)


@pytest.mark.promise("merge-queue.needs-you")
def test_work_that_is_red_again_at_its_merge_needs_you_and_names_the_other_mission(race: Race, tmp_path: Path) -> None:
    """Nothing but the merge asks whether it is green; main has not moved again since it went back."""
    names, room = ["left", "right"], tmp_path / "room"
    room.mkdir()
    race.set_up(names, {n: {"make": [makes(meets(room, 2), f"touch {n}", COMMIT), makes(COMMIT)]} for n in names})
    race.write(".capsule/workflows/short.yaml", FLOW.replace("checks: [green]", "checks: [committed]"))
    race.commit("only the merge is tested")
    codes = race.run_all(names)
    assert sorted(codes.values()) == [0, 1], [race.words(name) for name in names]
    merged, parked = sorted(names, key=codes.__getitem__)
    assert sum(isinstance(event, Returned) for event in race.events(parked)) == 1
    halt = next(event for event in reversed(race.events(parked)) if isinstance(event, StepEnded)).decision
    first = halt.reason.splitlines()[0]
    assert first.startswith("gate red on the merge result") and f"Merged meanwhile: {merged} (git diff " in first


@pytest.mark.promise("merge-queue.batch")
def test_a_batch_enters_main_as_one_commit_and_each_keeps_its_own_merge(race: Race, tmp_path: Path) -> None:
    names = [f"task-{number}" for number in range(8)]
    room = tmp_path / "room"
    room.mkdir()
    race.write("tests/test_slow.sh", "sleep 0.5\n")
    race.set_up(names, {name: {"make": [makes(meets(room, 8), f"touch {name}", COMMIT)]} for name in names})
    race.always |= {"CAPSULE_MERGE__BATCH": "4"}
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    race.assert_every_merge_was_tested(names)
    race.assert_merged_once(names)
    published = [batch for batch in race.batches() if batch.commit]
    assert sorted(name for batch in published for name in batch.missions) == names
    assert race.git("rev-list", "--first-parent", "--merges", "main").split() == [
        batch.commit for batch in reversed(published)
    ]
    assert len(published) <= 5 and all(len(batch.missions) <= 4 for batch in published)
    assert race.git("status", "--porcelain", "--", ".", ":!.beads") == ""
    together = next(batch for batch in published if len(batch.missions) > 1)
    for name in together.missions:
        others = [other for other in together.missions if other != name]
        ended = next(e for e in race.events(name) if isinstance(e, StepEnded) and e.phase == "publish")
        assert all(other in ended.outcome.evidence[0].observed for other in others)
        race.git("revert", "--no-edit", "-m", "1", ended.outcome.facts["merged"])
        assert not (race.path / name).exists()


@pytest.mark.promise("merge-queue.batch")
def test_work_whose_last_phase_has_no_test_run_comes_along_too(race: Race, tmp_path: Path) -> None:
    """The first of a batch finds the new tests of the others for itself; their streams are not its own."""
    names, room = [f"task-{number}" for number in range(4)], tmp_path / "room"
    room.mkdir()
    polish = "  - {name: polish, role: worker, prompt: make, checks: [committed]}\n"
    race.write("tests/test_slow.sh", "sleep 0.5\n")
    makes_it = {n: [makes(f"touch {n}", COMMIT)] for n in names}
    polishes = {n: [makes(meets(room, 4), f"echo 1 > {n}", COMMIT)] for n in names}
    race.set_up(names, {n: {"make": makes_it[n], "polish": polishes[n]} for n in names})
    flow = FLOW.replace("[green]", "[green, canary]").replace("  - {name: publish", f"{polish}  - {{name: publish")
    race.write(".capsule/workflows/short.yaml", flow)
    race.commit("the last phase is not tested")
    race.always |= {"CAPSULE_MERGE__BATCH": "4"}
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    race.assert_merged_once(names)
    assert any(len(batch.missions) > 1 for batch in race.batches() if batch.commit)


@pytest.mark.promise("evidence.trailers", "merge-queue.batch")
def test_each_merge_of_a_batch_says_what_made_it_and_the_batch_names_them(race: Race, tmp_path: Path) -> None:
    names = [f"task-{number}" for number in range(4)]
    room = tmp_path / "room"
    room.mkdir()
    race.write("tests/test_slow.sh", "sleep 0.5\n")
    race.set_up(names, {name: {"make": [makes(meets(room, 4), f"touch {name}", COMMIT)]} for name in names})
    race.always |= {"CAPSULE_MERGE__BATCH": "2"}
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    batch = next(batch for batch in race.batches() if batch.commit and len(batch.missions) == 2)
    assert race.trailers(batch.commit) == {"Capsule-Batch": ", ".join(batch.missions)}
    base, chain = race.git("rev-parse", f"{batch.commit}^1", f"{batch.commit}^2").split()
    inner = race.git("rev-list", "--first-parent", "--reverse", f"{base}..{chain}").split()
    assert [_without_uuid(race.trailers(commit)) for commit in inner] == [
        {"Capsule-Mission": name, "Capsule-Agents": "scripted", "Capsule-Proven": "green (exit code only)"}
        for name in batch.missions
    ]


def _without_uuid(trailers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in trailers.items() if name != "Capsule-Uuid"}


@pytest.mark.promise("merge-queue.batch")
def test_a_red_batch_is_halved_until_the_one_is_found_that_is_red(race: Race, tmp_path: Path) -> None:
    """The two that do not go together are in the middle of the line, and those behind build their merges on them."""
    pairs, again = (("one", "zero"), ("left", "right"), ("three", "two")), [makes("true"), makes("true")]
    names = sorted(name for pair in pairs for name in pair)
    race.write("tests/test_slow.sh", "sleep 0.6\n")
    turns = {n: makes(waits(f"[ -e {tmp_path}/go-{n} ]"), f"touch {n}", COMMIT) for n in names}
    race.set_up(names, {name: {"make": [turns[name], *again]} for name in names})
    race.always |= {"CAPSULE_MERGE__BATCH": "4"}

    def line_up() -> None:
        come = list[str]()
        for pair in pairs:
            come.extend(pair)
            for name in pair:
                (tmp_path / f"go-{name}").touch()
            assert eventually(lambda: sorted(in_line(race)) == sorted(come), LONG)

    with while_nobody_merges(race, line_up):
        codes = race.run_all(names)
    parked = [name for name, code in codes.items() if code]
    assert parked in (["left"], ["right"]), [race.words(name) for name in names]
    race.assert_every_merge_was_tested(names)
    race.assert_merged_once([name for name in names if name not in parked])
    race.assert_never_both()
    other = next(name for name in ("left", "right") if name not in parked)
    returned = [event for event in race.events(parked[0]) if isinstance(event, Returned)]
    assert returned and all(other in event.why for event in returned)
    assert not any(isinstance(event, Returned) for name in names if name not in parked for event in race.events(name))
    race.assert_reported(names, parked[0])


@pytest.mark.promise("merge-queue.train")
def test_several_are_tested_at_the_same_time_each_on_those_before_it(race: Race, tmp_path: Path) -> None:
    names = [f"task-{number}" for number in range(6)]
    room, tests = tmp_path / "room", tmp_path / "tests"
    room.mkdir()
    tests.mkdir()
    busy = f"touch {tests}/$$; sleep 1; ls {tests} | wc -l >> {tmp_path}/at-once; rm {tests}/$$\n"
    race.set_up(names, {name: {"make": [makes(meets(room, 6), f"touch {name}", COMMIT)]} for name in names})
    race.write("tests/test_busy.sh", f"[ -e task-0 ] || [ -e task-1 ] || exit 0; {busy}")
    race.commit("busy tests")
    race.always |= {"CAPSULE_EXECUTION__GATES": "3", "CAPSULE_SANDBOX": "off"}
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    race.assert_every_merge_was_tested(names)
    race.assert_merged_once(names)
    assert len(race.merges()) == 6
    assert max(map(int, (tmp_path / "at-once").read_text().split())) >= 2


@pytest.mark.promise("merge-queue.train", "merge-queue.named")
@pytest.mark.parametrize("batch", ["1", "2"])
def test_a_red_one_in_a_train_goes_back_and_those_behind_it_are_merged(race: Race, tmp_path: Path, batch: str) -> None:
    names, room = ["left", "one", "right", "two", "zero"], tmp_path / "room"
    room.mkdir()
    race.write("tests/test_slow.sh", "sleep 0.4\n")
    again = [makes("true"), makes("true")]
    race.set_up(names, {n: {"make": [makes(meets(room, 5), f"touch {n}", COMMIT), *again]} for n in names})
    race.always |= {"CAPSULE_EXECUTION__GATES": "2", "CAPSULE_MERGE__BATCH": batch}
    codes = race.run_all(names)
    parked = [name for name, code in codes.items() if code]
    assert parked in (["left"], ["right"]), [race.words(name) for name in names]
    race.assert_every_merge_was_tested(names)
    race.assert_merged_once([name for name in names if name not in parked])
    race.assert_never_both()
    returned = {name: [e for e in race.events(name) if isinstance(e, Returned)] for name in names}
    assert [name for name in names if returned[name]] == parked
    assert {other for event in returned[parked[0]] for other in event.others} == {"left", "right"} - {*parked}


@pytest.mark.promise("merge-queue.asked-again")
def test_a_merge_that_is_red_only_once_is_merged(race: Race, tmp_path: Path) -> None:
    """The first test run with both pieces of work fails, and the second does not."""
    names, room, once = ["early", "late"], tmp_path / "room", tmp_path / "once"
    room.mkdir()
    race.write(
        "tests/test_flaky.sh", f"[ -e early ] && [ -e late ] || exit 0; [ -e {once} ] || {{ touch {once}; exit 1; }}\n"
    )
    race.set_up(names, {name: {"make": [makes(meets(room, 2), f"touch {name}", COMMIT)]} for name in names})
    race.always |= {"CAPSULE_SANDBOX": "off"}
    assert race.run_all(names) == {"early": 0, "late": 0}, [race.words(name) for name in names]
    assert once.exists() and len(race.merges()) == 2
    assert not any(isinstance(event, Returned) for name in names for event in race.events(name))


# ---- what people do while a merge is tested


@contextmanager
def while_it_is_tested(race: Race, folder: Path, when: str, does: Callable[[], object]) -> Iterator[None]:
    """Let the tests wait, once a tree is tested for which `when` holds, until somebody has done this."""
    now, done = folder / "now", folder / "done"
    race.write("tests/test_slow.sh", f"sleep 0.3; {when} || exit 0; touch {now}; {waits(f'[ -e {done} ]')}\n")
    race.always |= {"CAPSULE_SANDBOX": "off"}

    def meanwhile() -> None:
        try:
            assert eventually(now.exists, LONG)
            does()
        finally:
            done.touch()

    somebody = threading.Thread(target=meanwhile)
    somebody.start()
    yield
    somebody.join()


@contextmanager
def while_nobody_merges(race: Race, does: Callable[[], object]) -> Iterator[None]:
    """Let somebody hold the merge queue until they have done this."""
    began = threading.Event()

    def hold_up() -> None:
        journal = SqliteJournal(race.path / ".git" / "capsule")
        with closing(journal), journal.claim(merge_stream("main")):
            began.set()
            does()

    somebody = threading.Thread(target=hold_up)
    somebody.start()
    assert began.wait(LONG)
    yield
    somebody.join()


def pid_of(race: Race, mission: str) -> int:
    with closing(SqliteJournal(race.path / ".git" / "capsule", read_only=True)) as journal:
        pid = journal.holder(mission)
    assert pid
    return pid


@pytest.mark.promise("merge-queue.suspended")
def test_one_that_is_suspended_while_it_merges_is_named_and_never_merges_what_it_tested_before(
    race: Race, tmp_path: Path
) -> None:
    """Main moves by hand meanwhile: once it goes on, its merge is built and tested again, on that."""
    names = ["early", "late"]

    def meanwhile() -> None:
        pid = pid_of(race, "early")
        os.kill(pid, signal.SIGSTOP)
        words = f"early has the turn and is suspended: continue it with `fg` in its terminal or `kill -CONT {pid}`"
        try:
            assert eventually(lambda: words in race.words("late"), LONG), race.words("late")
            race.write("by-hand", "precious\n")
            race.git("add", "by-hand")
            race.git("commit", "-q", "-m", "by hand", "--", "by-hand")
            (tmp_path / "done").touch()
            assert not eventually(race.merges, 2), "whoever waits never merges past it"
        finally:
            os.kill(pid, signal.SIGCONT)

    scripts = {"early": makes("touch early", COMMIT)}
    scripts["late"] = makes(waits(f"[ -e {tmp_path}/now ]"), "touch late", COMMIT)
    with while_it_is_tested(race, tmp_path, "[ -e early ]", meanwhile):
        race.set_up(names, {name: {"make": [scripts[name]]} for name in names})
        flow = FLOW.replace("checks: [green]", "checks: [committed]")
        race.write(".capsule/workflows/short.yaml", flow)
        race.commit("only the merge is tested")
        assert race.run_all(names) == {"early": 0, "late": 0}, [race.words(name) for name in names]
    assert race.merges() == ["Merge late: The late", "Merge early: The early"]
    assert "by-hand" in race.git("ls-tree", "--name-only", "main~1^1").split(), "early is merged onto what came by hand"
    race.assert_every_merge_was_tested(names)


@pytest.mark.promise("merge-queue.suspended")
def test_one_that_is_suspended_while_it_waits_is_passed_over_until_it_goes_on(race: Race, tmp_path: Path) -> None:
    names = ["first", "second", "third"]

    def meanwhile() -> None:
        (tmp_path / "go-second").touch()
        assert eventually(lambda: "second" in in_line(race), LONG), race.words("second")
        os.kill(asleep := pid_of(race, "second"), signal.SIGSTOP)
        (tmp_path / "go-third").touch()
        assert eventually(lambda: "third" in in_line(race), LONG), race.words("third")
        threading.Thread(target=go_on_later, args=(asleep,)).start()

    def go_on_later(asleep: int) -> None:
        eventually(lambda: "Merge third: The third" in race.merges(), LONG)
        os.kill(asleep, signal.SIGCONT)

    with while_it_is_tested(race, tmp_path, "[ -e first ]", meanwhile):
        scripts = {n: makes(waits(f"[ -e {tmp_path}/go-{n} ]"), f"touch {n}", COMMIT) for n in names}
        race.set_up(names, {name: {"make": [scripts[name]]} for name in names})
        flow = FLOW.replace("checks: [green]", "checks: [committed]")
        race.write(".capsule/workflows/short.yaml", flow)
        race.commit("only the merge is tested")
        (tmp_path / "go-first").touch()
        assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    assert race.merges() == [f"Merge {name}: The {name}" for name in ("second", "third", "first")]
    race.assert_every_merge_was_tested(names)


THREE_TOGETHER = "[ $(ls task-* 2>/dev/null | wc -l) -ge 3 ]"


def four_in_a_batch(race: Race, folder: Path) -> list[str]:
    names, room = [f"task-{number}" for number in range(4)], folder / "room"
    room.mkdir()
    race.set_up(names, {name: {"make": [makes(meets(room, 4), f"touch {name}", COMMIT)]} for name in names})
    race.always |= {"CAPSULE_MERGE__BATCH": "4"}
    return names


def in_line(race: Race) -> list[str]:
    waiting = list[str]()
    for event in race.events(merge_stream("main")):
        if isinstance(event, HandedIn):
            waiting.append(event.mission)
        elif isinstance(event, Served) and event.mission in waiting:
            waiting.remove(event.mission)
    return waiting


@pytest.mark.promise("merge-queue.batch")
def test_a_commit_that_comes_while_a_batch_is_tested_stays_on_main(race: Race, tmp_path: Path) -> None:
    def commit() -> None:
        race.write("by-hand", "precious\n")
        race.git("add", "by-hand")
        race.git("commit", "-q", "-m", "by hand", "--", "by-hand")

    with while_it_is_tested(race, tmp_path, THREE_TOGETHER, commit):
        names = four_in_a_batch(race, tmp_path)
        assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    assert {"by-hand", *names} <= {*race.git("ls-tree", "--name-only", "main").split()}
    race.assert_every_merge_was_tested(names)


@pytest.mark.promise("merge-queue.batch", "merge-queue.withdrawn")
def test_one_that_is_stopped_while_its_batch_is_tested_is_not_merged(race: Race, tmp_path: Path) -> None:
    stopped = list[str]()

    def stop() -> None:
        stopped.append(in_line(race)[1])
        assert race.capsule("stop", *stopped).code == 0

    with while_it_is_tested(race, tmp_path, THREE_TOGETHER, stop):
        names = four_in_a_batch(race, tmp_path)
        codes = race.run_all(names)
    assert {name: code for name, code in codes.items() if code} == dict.fromkeys(stopped, 130)
    assert not {*stopped} & {*race.git("ls-tree", "--name-only", "main").split()}
    race.assert_merged_once([name for name in names if name not in stopped])


@pytest.mark.promise("merge-queue.withdrawn")
def test_an_item_that_is_closed_while_its_merge_is_tested_is_not_merged(race: Race, tmp_path: Path) -> None:
    moves = f"cd {race.path} && touch moved && git add moved && git commit -qm moved -- moved"
    closed = row("one", status="closed")
    with while_it_is_tested(race, tmp_path, "[ -e moved ] && [ -e one ]", lambda: race.beads.write_text(closed)):
        race.set_up(["one"], {"one": {"make": [makes("touch one", COMMIT, moves)]}})
        assert race.run_all(["one"]) == {"one": 1}, race.words("one")
    assert not race.merges() and "was closed in the tracker" in race.words("one")


@pytest.mark.promise("merge-queue.withdrawn")
def test_one_whose_item_is_gone_does_not_stop_the_others_of_its_batch(race: Race, tmp_path: Path) -> None:
    names, gone = four_in_a_batch(race, tmp_path), list[str]()

    def remove() -> None:
        assert eventually(lambda: len(in_line(race)) == 4, LONG)
        gone.append(in_line(race)[3])
        rows = [line for line in race.beads.read_text().splitlines() if f'"{gone[0]}"' not in line]
        race.beads.write_text("\n".join(rows) + "\n")

    with while_nobody_merges(race, remove):
        codes = race.run_all(names)
    assert [name for name, code in codes.items() if code] == gone, [race.words(name) for name in names]


@pytest.mark.promise("merge-queue.batch")
def test_work_that_was_changed_since_it_waited_is_tested_again(race: Race) -> None:
    race.set_up(["one"], {"one": {"make": [makes("echo v1 > one", COMMIT)]}})
    race.write("tests/test_one.sh", "! grep -q bad one 2>/dev/null\n")
    race.commit("tests")
    race.always |= {"CAPSULE_MERGE__BATCH": "2"}
    race.write("one", "in the way\n")
    assert race.capsule("run", "one").code == 1
    (race.path / "one").unlink()
    place = race.path / ".capsule" / "worktrees" / "one"
    (place / "one").write_text("bad\n")
    subprocess.run(["git", "commit", "-qam", "by hand"], cwd=place, check=True)
    assert race.capsule("run", "one").code == 1
    assert not race.merges()


@pytest.mark.promise("merge-queue.batch")
def test_what_was_green_by_other_tests_is_tested_again(race: Race) -> None:
    """The same tree waited to be merged before the test command was changed."""
    race.set_up(["one"], {"one": {"make": [makes("touch one", COMMIT), makes("touch one", COMMIT)]}})
    race.write(".capsule/workflows/short.yaml", FLOW.replace("checks: [green]", "checks: [committed]"))
    race.commit("only the merge is tested")
    race.always |= {"CAPSULE_MERGE__BATCH": "2"}
    race.write("one", "in the way\n")
    said = race.capsule("run", "one")
    assert said.code == 1 and "green on" in said.err and "uncommitted edit of one" in said.out, said
    (race.path / "one").unlink()
    race.always |= {"CAPSULE_EVIDENCE__TEST": "! [ -e one ]"}
    assert race.capsule("run", "one", "--fresh").code == 1
    assert not race.merges()


@pytest.mark.promise("merge-queue.in-turn")
def test_each_of_a_batch_is_served_once(race: Race, tmp_path: Path) -> None:
    names, room = [f"task-{number}" for number in range(6)], tmp_path / "room"
    room.mkdir()
    race.write("tests/test_slow.sh", "sleep 0.5\n")
    race.set_up(names, {name: {"make": [makes(meets(room, 6), f"touch {name}", COMMIT)]} for name in names})
    race.always |= {"CAPSULE_MERGE__BATCH": "4"}
    assert race.run_all(names) == dict.fromkeys(names, 0), [race.words(name) for name in names]
    assert sorted(e.mission for e in race.events(merge_stream("main")) if isinstance(e, Served)) == names
