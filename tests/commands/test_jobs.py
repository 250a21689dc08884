"""`capsule run --jobs N`: several missions at the same time, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from capsule.core.event import (
    Advanced,
    MissionStarted,
    Rebased,
    Recorded,
    RunEnded,
    RunStarted,
    Spawned,
    StepBegun,
    StepEnded,
    Taken,
)
from capsule.journals.sqlite import SqliteJournal
from tests.costs import LONG, eventually

from ..contracts import fake_bd
from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .chaos import parent, supervisors
from .conftest import PASS, Project, Script, assert_clear
from .test_campaign import FLOW, row

pytestmark = pytest.mark.slow

NAMES = ("cup", "jug", "pan", "pot")


def waits(condition: str) -> str:
    """A command that ends once the condition holds, and fails where it never does."""
    return f"i=0; until {condition}; do sleep 0.05; i=$((i+1)); [ $i -lt 600 ] || exit 1; done"


def meets(folder: Path, others: int) -> str:
    """A command that ends once so many missions have begun it."""
    return f"touch {folder}/$CAPSULE_ITEM; " + waits(f"[ $(ls {folder} | wc -l) -ge {others} ]")


def makes(name: str, *first: str) -> Script:
    commit = f'echo {name} > {name} && git add {name} && git commit -q -m "$CAPSULE_COMMIT_MSG"'
    return {"make": [{"run": [*first, commit], "signal": {**PASS, "summary": f"made {name}"}}]}


class Shelf(Project):
    """Four tasks that have nothing to do with each other, each with one agent."""

    def plays(self, by_item: dict[str, Script]) -> None:
        self._script.write_text(json.dumps({name: makes(name) for name in NAMES} | by_item))

    def merged(self) -> list[str]:
        subjects = self.git("log", "--first-parent", "--merges", "--format=%s", "main").splitlines()
        return sorted(subject.partition(":")[0].removeprefix("Merge ") for subject in subjects)

    def is_running(self, mission: str) -> bool:
        return SqliteJournal(self.path / ".git" / "capsule", read_only=True).holder(mission) is not None

    def under_way(self) -> list[str]:
        return [name for name in NAMES if self.is_running(name)]

    def has_spawned(self, mission: str, times: int) -> bool:
        return self.spawned().count(mission) == times

    def runner(self, mission: str) -> int:
        """Return the process that runs a mission."""
        pid = SqliteJournal(self.path / ".git" / "capsule", read_only=True).holder(mission)
        assert pid
        return pid

    def halted(self) -> list[str]:
        return [
            name for name in NAMES if any(isinstance(e, StepEnded) and e.decision.exhausted for e in self.events(name))
        ]

    def spawned(self) -> list[str]:
        return [event.mission for event in self.events("_queue") if isinstance(event, Spawned)]

    def is_adopted(self) -> bool:
        """Tell whether a second queue has begun, and has had the time to look for runners."""
        told = [event for event in self.events("_queue") if isinstance(event, RunStarted)]
        return len(told) == 2 and self.is_running("_queue") and not eventually(lambda: False, 1)

    def counted(self, stream: str = "_queue") -> list[str]:
        """Return what the run wrote down of how far it is."""
        events = [event for event in self.events(stream) if isinstance(event, Advanced)]
        return [f"{event.item}{event.done}/{event.of}" for event in events]

    @contextmanager
    def working(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """`capsule run` as a process that may be killed; what it says is in a file, which runners share with it."""
        with self.said.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "capsule", "run", *words],
                cwd=self.path,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    @property
    def said(self) -> Path:
        return self.path.parent / "said"


@pytest.fixture
def shelf(a_project: Project) -> Shelf:
    a_project.__class__ = Shelf
    assert isinstance(a_project, Shelf)
    a_project.write(".capsule/workflows/short.yaml", FLOW)
    a_project.beads.write_text("".join(map(row, NAMES)))
    a_project.commit("a shelf")
    a_project.always |= {"CAPSULE_WORKFLOW__DEFAULT": "short", "CAPSULE_TRACKER": "beads-file"}
    a_project.plays({})
    return a_project


@pytest.mark.promise("jobs.side-by-side")
def test_so_many_missions_are_run_at_the_same_time(shelf: Shelf, tmp_path: Path) -> None:
    """Each agent waits until two others are at work, so one after the other would never end."""
    room = tmp_path / "room"
    room.mkdir()
    shelf.plays({name: makes(name, meets(room, 3)) for name in NAMES})
    said = shelf.capsule("run", "--jobs", "3")
    assert said.code == 0, said
    assert shelf.merged() == sorted(NAMES)
    started = next(event for event in shelf.events("_queue") if isinstance(event, RunStarted))
    assert started.jobs == 3


@pytest.mark.promise("commands.overlap")
def test_an_item_that_names_the_file_of_a_mission_under_way_is_started_after_others(shelf: Shelf) -> None:
    """The jug is more urgent than the pan. It comes at last all the same: overlap delays a start, and forbids none."""
    both = {"description": "Change glaze.txt"}
    rows = [row("cup", priority=0, **both), row("jug", priority=1, **both), row("pan", priority=2)]
    shelf.beads.write_text("".join(rows))
    shelf.commit("a glaze", **{"glaze.txt": "blue\n"})
    begun = waits(f"[ -e {shelf.path}/.capsule/worktrees/pan ]")
    shelf.plays({"cup": makes("cup", begun)})
    said = shelf.capsule("run", "--jobs", "2")
    assert said.code == 0, said
    assert [event.mission for event in shelf.events("_queue") if isinstance(event, Taken)] == ["cup", "pan", "jug"]
    assert shelf.merged() == ["cup", "jug", "pan"]


@pytest.mark.promise("jobs.side-by-side")
def test_named_tasks_and_epics_too(shelf: Shelf, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    shelf.plays({name: makes(name, meets(room, 2)) for name in ("cup", "jug")})
    said = shelf.capsule("run", "cup", "--target", "jug", "--jobs", "2")
    assert said.code == 0 and shelf.merged() == ["cup", "jug"], said
    shelf.beads.write_text(
        shelf.beads.read_text() + row("set", "epic") + row("fork", parent="set") + row("spoon", parent="set")
    )
    for path in room.iterdir():
        path.unlink()
    shelf.plays({name: makes(name, meets(room, 2)) for name in ("fork", "spoon")})
    said = shelf.capsule("run", "set", "--jobs", "2")
    assert said.code == 0 and shelf.merged() == ["cup", "fork", "jug", "spoon"], said


@pytest.mark.promise("jobs.side-by-side")
def test_missions_side_by_side_ask_bd_one_at_a_time(shelf: Shelf, tmp_path: Path) -> None:
    program = fake_bd.install(tmp_path / "bd", slow={"update": 0.2, "close": 0.2}) / "bd"
    given = tmp_path / "given.jsonl"
    shelf.beads.rename(given)
    for words in (["init", "--prefix=shelf"], ["import", "-i", str(given)]):
        subprocess.run([program, *words], cwd=shelf.path, check=True, capture_output=True)
    shelf.always |= {"CAPSULE_TRACKER": "beads", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    room = tmp_path / "room"
    room.mkdir()
    shelf.plays({name: makes(name, meets(room, 4)) for name in NAMES})
    said = shelf.capsule("run", "--jobs", "4")
    assert said.code == 0 and shelf.merged() == sorted(NAMES), said
    assert {row["status"] for row in fake_bd.beads(shelf.path).values()} == {"closed"}
    writes = [call for call in fake_bd.calls(shelf.path) if call["command"] in ("update", "close")]
    assert len(writes) >= 8 and all(one["ended"] <= other["started"] for one, other in pairwise(writes))


@pytest.mark.promise("jobs.header")
def test_a_run_of_several_at_a_time_knows_how_far_it_is(shelf: Shelf) -> None:
    """`pot` waits for `pan`, so it is to come; what waits for somebody's answer is not."""
    asked = row("sink", status="blocked") + row("tap", waits_for="sink")
    shelf.beads.write_text("".join([*map(row, NAMES[:3]), row("pot", waits_for="pan"), asked]))
    said = shelf.capsule("run", "cup", "--target", "jug", "--jobs", "2", "--output", "plain")
    counted = shelf.counted("_run-cup")
    assert said.code == 0 and (counted[0], counted[-1]) == ("0/2", "2/2"), said
    assert "\n2 of 2 done\n" in said.err, said
    said = shelf.capsule("run", "--jobs", "2")
    assert said.code == 0 and shelf.counted()[-3:] == ["0/2", "1/2", "2/2"], said


@pytest.mark.promise("jobs.header")
def test_a_run_of_one_at_a_time_writes_down_what_it_always_did(shelf: Shelf) -> None:
    assert shelf.capsule("run").code == 0
    assert shelf.merged() == sorted(NAMES) and shelf.counted() == []


@pytest.mark.promise("jobs.side-by-side")
def test_items_of_a_backlog_are_in_different_phases_at_the_same_time(a_backlog: BacklogProject, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    for number, title in ((1, "find-the-answer"), (2, "ask-again")):
        item = f"WRK-{number:03}"
        a_backlog.add(title.replace("-", " ").capitalize())
        prd = turn("prd", item=item, run=[meets(room, 2)])
        prd["write"] = {f"changes/{item}_{title}/{item}_{title}_PRD.md": "# Words\n"}
        script = honest(item, title, prd=[prd])
        script["build"][1]["write"][f"question-{number}"] = script["build"][1]["write"].pop("question")  # no conflict
        a_backlog.play(script, item)
    said = a_backlog.capsule("run", "--jobs", "2")
    assert said.code == 0 and a_backlog.ids() == [], said
    stored = [
        event.commit
        for item in ("WRK-001", "WRK-002")
        for event in a_backlog.events(item)
        if isinstance(event, Recorded)
    ]
    assert len(stored) == len(set(stored)) == 18, "one commit for each step"
    assert set(a_backlog.git("rev-list", "--first-parent", "main").split()) > set(stored)
    assert not a_backlog.git("status", "--porcelain")


@pytest.mark.promise("merge-queue.named")
@pytest.mark.parametrize("mended", [True, False])
def test_a_step_of_a_backlog_that_is_red_with_another_missions_names_that_mission(
    a_backlog: BacklogProject, tmp_path: Path, mended: bool
) -> None:
    """Each is green alone; the step is found that brought what it does not go together with."""
    a_backlog.test = "! { test -e left && test -e right; } || grep -qx 42 other"
    begun = tmp_path / "begun"
    for item, title in (("WRK-001", "be-left"), ("WRK-002", "be-right")):
        a_backlog.add(title.replace("-", " ").capitalize())
        first, second = honest(item, title)["build"]
        name = title.removeprefix("be-")
        second["write"] = {f"{item}-{path}" if path == "question" else path: t for path, t in second["write"].items()}
        done = {**second, "write": {**second["write"], name: "made\n"}}
        again = {**done, "write": {**done["write"], **({"other": "42\n"} if mended else {})}}
        build = [first, {**done, "run": [waits(f"test -e {begun}")]}]
        if item == "WRK-001":
            late = waits(f"git -C {a_backlog.path} cat-file -e main:right 2>/dev/null")
            build = [first, {**done, "run": [f"touch {begun}; {late}"]}, again, again, again]
        a_backlog.play(honest(item, title, build=build), item)
    said = a_backlog.capsule("run", "--jobs", "2", "--max-retries", "1")
    events = a_backlog.events("WRK-001")
    rebased = next((event for event in events if isinstance(event, Rebased)), None)
    assert rebased, said.err
    assert "together with what came to main meanwhile. Merged meanwhile: WRK-002 (git diff " in rebased.why, said
    assert [*rebased.others] == ["WRK-002"] and rebased.others["WRK-002"][:12] in rebased.why
    brought = a_backlog.git("show", "--format=", "--name-only", rebased.others["WRK-002"]).split()
    assert "right" in brought, brought
    if mended:
        assert said.code == 0 and a_backlog.ids() == [], said
    else:
        assert a_backlog.ids() == ["WRK-001"]
        assert "merged meanwhile: WRK-002 (git diff " in " ".join(a_backlog.say("show", "WRK-001").out.split())


@pytest.mark.promise("jobs.one-cap")
def test_two_runners_never_both_take_the_last_agent(shelf: Shelf) -> None:
    said = shelf.capsule("run", "--jobs", "4", "--cap", "3")
    assert said.code == 0, said
    assert len(shelf.spawned()) == 3
    assert len(shelf.merged()) == 3
    assert "cap: 3 of 3 phases used" in said.out


@pytest.mark.promise("jobs.breaker")
def test_the_breaker_reads_ends_in_the_order_they_were_journaled(shelf: Shelf, tmp_path: Path) -> None:
    """Two fail while a third is at work: that one goes to its end, and the fourth, which waits for it, never starts."""
    shelf.beads.write_text("".join([*map(row, NAMES[:3]), row("pot", waits_for="pan")]))
    fails = {"make": [{"write": {"tests/test_clay.sh": "exit 1\n"}, "signal": PASS}]}
    wait = waits(f"[ -e {tmp_path}/over ]")
    shelf.plays({"cup": fails, "jug": fails, "pan": makes("pan", wait)})
    shelf.always["CAPSULE_EXECUTION__MAX_RETRIES"] = "0"
    with shelf.working("--jobs", "3", "--output", "plain") as run:
        assert eventually(lambda: len(shelf.halted()) == 2, 10), shelf.said.read_text()
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 3, shelf.said.read_text()
    assert "breaker: 2 items in a row" in shelf.said.read_text()
    assert shelf.merged() == ["pan"] and not shelf.events("pot")


@pytest.mark.promise("jobs.killed-queue")
def test_a_queue_that_was_killed_finds_its_runners_and_keeps_the_count(shelf: Shelf, tmp_path: Path) -> None:
    wait = waits(f"[ -e {tmp_path}/over ]")
    shelf.plays({name: makes(name, wait) for name in NAMES})
    with shelf.working("--jobs", "2", "--cap", "3") as run:
        assert eventually(lambda: len(shelf.spawned()) == 2)
        run.kill()
        run.wait()
    with shelf.working("--jobs", "2") as again:
        assert eventually(lambda: sum(isinstance(event, RunStarted) for event in shelf.events("_queue")) == 2)
        (tmp_path / "over").touch()
        assert again.wait(5 * LONG) == 0, shelf.said.read_text()
    begun = [event for name in NAMES for event in shelf.events(name) if isinstance(event, StepBegun) and event.spawns]
    assert len(begun) == len(shelf.spawned()) == 4, "nothing is started twice"
    assert sum(isinstance(event, MissionStarted) for name in NAMES for event in shelf.events(name)) == 4
    assert shelf.merged() == sorted(NAMES)
    assert (shelf.counted()[0], shelf.counted()[-1]) == ("0/4", "4/4")


@pytest.mark.promise("jobs.killed-queue")
def test_runners_that_have_started_no_agent_yet_are_found_too(shelf: Shelf, tmp_path: Path) -> None:
    """Both prepare their worktree when the queue is killed: the next one starts nothing beside them."""
    setup = f"touch {tmp_path}/in; {waits(f'[ -e {tmp_path}/over ]')}"
    shelf.always |= {"CAPSULE_SANDBOX": "off", "CAPSULE_WORKSPACE__SETUP": setup}
    with shelf.working("--jobs", "2") as run:
        assert eventually(lambda: (tmp_path / "in").exists() and len(shelf.under_way()) == 2)
        run.kill()
        run.wait()
    with shelf.working("--jobs", "2") as again:
        assert eventually(shelf.is_adopted)
        said = shelf.capsule("jobs")
        assert "the queue: 2 at a time; running: cup, jug" in said.out, said
        assert shelf.under_way() == ["cup", "jug"]
        (tmp_path / "over").touch()
        assert again.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted(NAMES)
    assert sum(isinstance(event, MissionStarted) for name in NAMES for event in shelf.events(name)) == 4


@pytest.mark.promise("jobs.killed-queue")
def test_a_runner_that_is_past_its_merge_is_left_to_finish(shelf: Shelf, tmp_path: Path) -> None:
    after = f"  - {{name: after, role: action, run: 'touch {tmp_path}/in; {waits(f'[ -e {tmp_path}/over ]')}'}}\n"
    shelf.write(".capsule/workflows/short.yaml", FLOW.replace("  - {name: archive,", f"{after}  - {{name: archive,"))
    shelf.commit("something comes after the merge")
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("--jobs", "2") as run:
        assert eventually((tmp_path / "in").exists), shelf.said.read_text()
        run.kill()
        run.wait()
    with shelf.working("--jobs", "2") as again:
        assert eventually(shelf.is_adopted), shelf.said.read_text()
        (tmp_path / "over").touch()
        assert again.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted(NAMES)
    ended = [event for event in shelf.events("_queue") if isinstance(event, RunEnded)]
    assert len(ended) == 1 and sorted(ended[0].done) == sorted(NAMES)


@pytest.mark.promise("jobs.killed-queue")
def test_what_another_run_has_finished_meanwhile_is_not_begun_again(shelf: Shelf, tmp_path: Path) -> None:
    """A queue has chosen it, and the runner that it started for it comes when all is done."""
    shelf.plays({"cup": makes("cup", f"touch {tmp_path}/in", waits(f"[ -e {tmp_path}/over ]"))})
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("cup") as other:
        assert eventually((tmp_path / "in").exists), shelf.said.read_text()
        with shelf.working("--jobs", "1") as queue:
            assert eventually(partial(runners_of, queue.pid)), shelf.said.read_text()
            late = runners_of(queue.pid)[0]
            os.kill(late, signal.SIGSTOP)
            (tmp_path / "over").touch()
            assert other.wait(5 * LONG) == 0, shelf.said.read_text()
            os.kill(late, signal.SIGCONT)
            assert queue.wait(5 * LONG) == 0, shelf.said.read_text()
    assert sum(isinstance(event, MissionStarted) for event in shelf.events("cup")) == 1
    assert shelf.merged() == sorted(NAMES)
    assert shelf.git("worktree", "list").count("\n") == 0


def runners_of(queue: int) -> list[int]:
    """Return the runners that it has started, as soon as they are there."""
    children = Path(f"/proc/{queue}/task/{queue}/children").read_text().split()
    return [int(pid) for pid in children if b"_runner" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.promise("jobs.killed-runner")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_survives_the_death_of_a_runner(shelf: Shelf, tmp_path: Path, jobs: str) -> None:
    """The mission goes on where it was, in a new process; the others notice nothing."""
    there = tmp_path / "there"
    shelf.plays({"cup": makes("cup", f"[ -e {there} ] || {{ touch {there}; sleep 600; }}")})
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("--jobs", jobs) as run:
        assert eventually(there.exists)
        os.kill(shelf.runner("cup"), signal.SIGKILL)
        assert run.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted(NAMES)
    assert sum(isinstance(event, MissionStarted) for event in shelf.events("cup")) == 1


@pytest.mark.promise("jobs.killed-runner")
def test_an_epic_survives_the_death_of_a_runner(shelf: Shelf, tmp_path: Path) -> None:
    """Nothing has failed: a campaign that ends with the first failure goes on, too."""
    there = tmp_path / "there"
    shelf.beads.write_text(row("set", "epic") + "".join(row(name, parent="set") for name in NAMES))
    shelf.plays({"cup": makes("cup", f"[ -e {there} ] || {{ touch {there}; sleep 600; }}")})
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("set", "--jobs", "2", "--on-failure", "stop") as run:
        assert eventually(there.exists)
        os.kill(shelf.runner("cup"), signal.SIGKILL)
        assert run.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted(NAMES)


@pytest.mark.promise("jobs.killed-runner")
def test_a_runner_of_a_killed_queue_is_started_again_when_it_dies(shelf: Shelf, tmp_path: Path) -> None:
    shelf.plays({name: makes(name, waits(f"[ -e {tmp_path}/over ]")) for name in NAMES})
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("--jobs", "2") as run:
        assert eventually(lambda: len(shelf.spawned()) == 2)
        run.kill()
        run.wait()
    with shelf.working("--jobs", "2") as again:
        assert eventually(shelf.is_adopted)
        os.kill(shelf.runner("cup"), signal.SIGKILL)
        assert eventually(partial(shelf.has_spawned, "cup", 2)), shelf.said.read_text()
        (tmp_path / "over").touch()
        assert again.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted(NAMES)
    assert sum(isinstance(event, MissionStarted) for event in shelf.events("cup")) == 1


@pytest.mark.promise("jobs.killed-runner")
def test_a_mission_whose_process_is_killed_again_and_again_needs_you(shelf: Shelf) -> None:
    shelf.plays({"cup": makes("cup", "sleep 600")})
    with shelf.working("--jobs", "2") as run:
        for started in (1, 2, 3):
            assert eventually(partial(shelf.has_spawned, "cup", started))
            os.kill(shelf.runner("cup"), signal.SIGKILL)
        assert run.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == sorted({*NAMES} - {"cup"})
    said = shelf.said.read_text()
    assert "The process of cup was killed by SIGKILL" in said and "capsule run cup" in said


@pytest.mark.promise("jobs.killed-runner")
def test_no_agent_works_on_when_its_runner_and_its_supervisor_are_killed_for_the_last_time(
    shelf: Shelf, tmp_path: Path
) -> None:
    """Nobody starts the mission again, and so nobody would look for what it left, while others are at work."""
    agents = tmp_path / "agents"
    shelf.beads.write_text("".join(map(row, NAMES[:2])))
    stays = makes("jug", waits(f"[ -e {tmp_path}/over ]"))
    shelf.plays({"cup": makes("cup", f"echo $$ >> {agents}; exec sleep 600"), "jug": stays})
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("--jobs", "2") as run:
        for started in (1, 2, 3):
            assert eventually(lambda: len(_lines(agents)) == started), shelf.said.read_text()  # noqa: B023
            kill_with_its_supervisor(shelf.runner("cup"))
        assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in _lines(agents))), _lines(agents)
        assert run.poll() is None and shelf.is_running("jug")
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == ["jug"]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kill_with_its_supervisor(runner: int) -> None:
    """Suspend the runner first, or it would end what its supervisor kept."""
    os.kill(runner, signal.SIGSTOP)
    for supervisor in supervisors():
        if parent(supervisor) == runner:
            os.kill(supervisor, signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)


@pytest.mark.promise("merge-queue.withdrawn")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_item_that_is_removed_from_its_tracker_ends_its_mission_and_no_other(
    shelf: Shelf, tmp_path: Path, jobs: str
) -> None:
    shelf.plays({"cup": makes("cup", waits(f"[ -e {tmp_path}/over ]"))})
    with shelf.working("--jobs", jobs) as run:
        assert eventually(lambda: "cup" in shelf.spawned())
        shelf.beads.write_text("".join(row for row in shelf.beads.read_text().splitlines(True) if '"cup"' not in row))
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, shelf.said.read_text()
    assert shelf.merged() == ["jug", "pan", "pot"]
    assert "cup was removed from the tracker while the mission ran; nothing was merged" in shelf.said.read_text()


def test_ctrl_c_stops_all_of_them(shelf: Shelf, tmp_path: Path) -> None:
    wait = waits(f"[ -e {tmp_path}/over ]")
    shelf.plays({name: makes(name, wait) for name in NAMES})
    with shelf.working("--jobs", "3") as run:
        assert eventually(lambda: len(shelf.spawned()) == 3)
        assert "\n▶ queue 0/4 · 3 running\n" in shelf.capsule("status").out
        assert "\n  0/4 · 3 running\n" in shelf.capsule("dashboard", "--plain", "--once").out
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(5 * LONG) == 130, shelf.said.read_text()
    assert not any(map(shelf.is_running, NAMES))
    (tmp_path / "over").touch()
    assert shelf.capsule("run", "--jobs", "3").code == 0
    assert shelf.merged() == sorted(NAMES)


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_second_ctrl_c_ends_the_run_as_stopped_and_not_as_done(shelf: Shelf, tmp_path: Path, jobs: str) -> None:
    shelf.plays({name: makes(name, waits(f"[ -e {tmp_path}/over ]")) for name in NAMES})
    shelf.beads.write_text("".join(map(row, NAMES[: int(jobs)])))
    with shelf.working("--jobs", jobs) as run:
        assert eventually(lambda: len(shelf.spawned()) == int(jobs))
        assert not eventually(lambda: run.poll() is not None, 1)
        os.kill(run.pid, signal.SIGINT)
        os.kill(run.pid, signal.SIGTERM)  # two of the same kind may become one
        assert run.wait(5 * LONG) == 130, shelf.said.read_text()
    [ended] = [event for event in shelf.events("_queue") if isinstance(event, RunEnded)]
    assert (ended.why, ended.exit_code) == ("Stopped at once", 130)
    said = shelf.said.read_text()
    assert "‖ Run ended: Stopped at once." in said and "nothing is left" not in said
    assert not any(map(shelf.is_running, NAMES))


def test_ctrl_c_stops_the_runners_of_a_killed_queue_too(shelf: Shelf, tmp_path: Path) -> None:
    shelf.plays({name: makes(name, waits(f"[ -e {tmp_path}/over ]")) for name in NAMES})
    shelf.beads.write_text("".join(map(row, NAMES[:2])))
    with shelf.working("--jobs", "2") as run:
        assert eventually(lambda: len(shelf.spawned()) == 2)
        run.kill()
        run.wait()
    with shelf.working("--jobs", "2") as again:
        assert eventually(shelf.is_adopted)
        os.kill(again.pid, signal.SIGINT)
        assert again.wait(LONG) == 130, shelf.said.read_text()
    assert not shelf.under_way()
    assert "no progress" not in shelf.said.read_text()


@pytest.mark.parametrize("jobs", ["0", "many", "-1", "1.5"])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(shelf: Shelf, jobs: str) -> None:
    assert_clear(shelf.say("run", "--jobs", jobs), 2, "it must be auto or a whole number, 1 or more", "Fix the value")
    assert not shelf.events("_queue")
