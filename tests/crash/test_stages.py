"""What lies between two events: a run is killed around every effect of a stretch, and goes on as if nothing had been.

A stage is a stretch from one event to a later one. Each of its points is tried from a copy that was killed right before
the stage, at the same path every time, because git and the journal know a project by its path. Whoever was killed at a
point runs to the end of the stage, and everything is compared with an undisturbed run up to there: the repository, the
files of project and place, the gate's folder and what is left of layers.

The stages of the tdd workflow are tried in a sandbox only; without one, test_every_point goes through the whole
mission. A sample of the points is tried, or, with CAPSULE_CRASH_ALL=1, all of them: around each effect, though of a
folder's removal only the beginning, the middle and the end; and, without a sandbox, around calls through adapters.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

import pytest

from .backlog_ending import backlog_ending_of, check_backlog, check_count
from .ending import check_no_strays, check_nothing_lost, ending_of, gone_soon
from .every_turn import WALKED, BacklogProject, make_backlog_project
from .points import ALL, between_effects, is_effect, is_event, sample, told_apart
from .project import ITEM, Project, make_project

GROUPS = 8 if ALL else 1
EFFECTS_TRIED, CALLS_TRIED = 2, 4
ADAPTERS = ("place", "state_store", "archive", "tracker", "trunk", "shell", "agent")
MOVES_REFS = "git update-ref"
SANDBOX = "supervisor bwrap"
ROLL = ".git/capsule/keepers"
DRAFT = re.compile(r"(capsule/places|missions|worktrees)/[^/]+/(.*/)?\.capsule-[^/]*\.tmp$")


@dataclass(frozen=True)
class Course:
    """A kind of run: how its project is made, started, and looked at."""

    make: Callable[[Path], None]
    project: type[Project]
    item: str
    ending: Callable[[Any], Any]
    check: Callable[[Any, Any], None]
    """What holds at any instant; told which tree main may have besides its first."""

    def standing(self, project: Project) -> Any:
        """Tell how a killed run left things: its own supervisor may still be registered, and drafts lie in folders
        that go with the mission."""
        assert len(list((project.path / ROLL).glob("*"))) <= 1, "a runner that was killed earlier is on the roll"
        found = self.ending(project)
        in_git = tuple(name for name in found.left_in_git if "keepers" not in name and not DRAFT.match(name))
        in_project = tuple(name for name in found.left_in_project if not DRAFT.match(name))
        return replace(found, left_in_git=in_git, left_in_project=in_project)


def check_run(project: BacklogProject, _: object) -> None:
    check_backlog(project)
    check_count(project)


COURSES = {
    "tdd": Course(make_project, Project, ITEM, ending_of, check_nothing_lost),
    "backlog": Course(make_backlog_project, BacklogProject, "", backlog_ending_of, check_run),
}


def user_commits(name: str) -> Callable[[Project], None]:
    """By hand, to the branch that the work is published to."""

    def commit(project: Project) -> None:
        (project.path / name).write_text("theirs\n")
        project.git("add", name)
        project.git("commit", "-q", "-m", "by hand")

    return commit


@dataclass(frozen=True)
class Stretch:
    since: str
    """Where the project is killed before the stage begins; '' is the very beginning."""
    until: str
    calls: tuple[str, ...]
    """What is called on the way, or it is not the stretch that was meant."""
    effects: tuple[str, ...]
    """What is done on the way, by the words of its effects; '*' before those that only a sandbox has."""
    begins: str = ""
    """A part of the first point's name; '' where that is `since`."""
    meanwhile: Callable[[Project], None] | None = None
    """What the user does before the stage begins."""
    in_a_sandbox: bool = True
    """Whether a sandbox makes a difference."""


def step(key: str, *calls: str, of: str = WALKED, until: str = "step_ended", **more: Any) -> Stretch:
    return Stretch(f"before step_begun {of}/{key}", f"after {until} {of}/{key}", calls, **more)


RECORDED = ("place.commit_step", "state_store.write", "place.checkpoint_at")
BROUGHT_ALONG = ("git update-ref", "os.rename hello.txt", "os.remove books.json")
WORKED = ("place.restore", "place.open_sandbox", "agent.run", "place.import_commits", "place.tree")
LAYERS = ("*os.symlink node_modules", "*open mounts", f"*{SANDBOX}", "*os.rmdir node_modules")
IMPORTED = ("os.rename half", "git pack-objects", "git index-pack", "os.rename git")
JUDGED = ("place.gate", "shell.run")
STAGES = {
    "backlog": {
        "start": Stretch(
            f"before mission_started {WALKED}",
            f"after step_ended {WALKED}/triage#1",
            WORKED,
            ("git worktree", "git read-tree", "os.rename half", "*unshare -m", *LAYERS),
        ),
        "import": step("build#3", *WORKED, *JUDGED, effects=(*IMPORTED, *LAYERS)),
        "record": Stretch(
            f"after step_ended {WALKED}/build#2",
            f"after recorded {WALKED}/build#2",
            RECORDED,
            BROUGHT_ALONG,
            begins="commit_step",
            in_a_sandbox=False,
        ),
        "moved": Stretch(
            f"after step_ended {WALKED}/build#2",
            f"after recorded {WALKED}/build#2",
            (*RECORDED, *JUDGED),
            (*BROUGHT_ALONG, *LAYERS),
            begins="commit_step",
            meanwhile=user_commits("src/theirs.txt"),
        ),
        "conflict": Stretch(
            f"after step_ended {WALKED}/build#2",
            f"after step_ended {WALKED}/build#3",
            ("place.commit_step", "state_store.combined", *WORKED, *JUDGED),
            ("git merge-tree", *IMPORTED),
            begins="commit_step",
            meanwhile=user_commits("src/hello.txt"),
            in_a_sandbox=False,
        ),
        "archive": step(
            "archive#1",
            *("archive.store", "place.salvage", "place.remove", "state_store.write"),
            until="recorded",
            effects=("git update-ref", "os.remove books.json"),
            in_a_sandbox=False,
        ),
    },
    "tdd": {
        "start": Stretch(
            "",
            f"after step_ended {ITEM}/prep#1",
            ("place.prepare", "tracker.claim", "place.checkpoint", *JUDGED),
            ("git worktree", "git read-tree", "*unshare -m", *LAYERS),
        ),
        "phase": step("execute#2", *WORKED, *JUDGED, of=ITEM, effects=("os.rename half", "os.rename git", *LAYERS)),
        "import": step("merge#1", *WORKED, of=ITEM, effects=(*IMPORTED, *LAYERS)),
        "publish": step(
            "publish#1", "trunk.propose", "trunk.publish", of=ITEM, effects=("git update-ref", f"os.rename {ITEM}.txt")
        ),
    },
}


# ---- situations


@dataclass(frozen=True)
class Stage:
    """A project that was killed right before a stretch, to be begun from again and again."""

    course: Course
    until: str
    folder: Path
    sandboxed: bool
    points: dict[str, str]
    """What is passed from there to the end of the stretch, effects included, and what each is about."""
    ending: Any
    """How everything stands there."""

    def begin(self, mark: str) -> Project:
        shutil.rmtree(self.folder / "project", ignore_errors=True)
        return self.course.project(self.folder / "snapshot", self.folder / "project", mark, sandboxed=self.sandboxed)

    def calls(self) -> list[str]:
        """Calls through adapters: of those that lie between the same two effects, one."""
        return sample(list(filter(is_call, between_effects(self.points))), CALLS_TRIED)

    @cached_property
    def _effects(self) -> list[str]:
        return told_apart({point: about for point, about in self.points.items() if is_effect(point)})

    def effects(self) -> list[str]:
        """A sample; and always where a ref has moved and nothing else has followed yet."""
        effects = self._effects
        moved = [point for point in effects if point.startswith("after") and MOVES_REFS in self.points[point]]
        chosen = {*sample(effects, EFFECTS_TRIED), *(now for before, now in pairwise(effects) if before in moved)}
        return [point for point in effects if point in chosen]

    def effects_of_the_sandbox(self) -> list[str]:
        """Around the place that is mounted, and a sample of all others."""
        mounted = [point for point in self._effects if point.startswith("during")]
        return self._effects if ALL else [*sample(self._effects, EFFECTS_TRIED), *mounted[:1]]

    def tried(self) -> list[str]:
        return self.effects_of_the_sandbox() if self.sandboxed else [*self.calls(), *self.effects()]


def is_call(point: str) -> bool:
    return not is_event(point) and not is_effect(point) and point.split()[2].partition(".")[0] in ADAPTERS


@pytest.fixture(scope="session")
def on_disk() -> Iterator[Path]:
    """A sandbox has a `/dev` of its own, with nothing in memory."""
    with tempfile.TemporaryDirectory(prefix="capsule-stages-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def make(course: str) -> Path:
        path = tmp_path_factory.mktemp(course) / "template"
        COURSES[course].make(path)
        return path

    return make


@pytest.fixture(scope="session")
def stages() -> dict[tuple[str, str, bool], Stage]:
    """What one test made for those after it."""
    return {}


MakeStage = Callable[[str, str, bool], Stage]


@pytest.fixture
def a_stage(
    stages: dict[tuple[str, str, bool], Stage],
    templates: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    on_disk: Path,
    mark: str,
) -> MakeStage:
    def make(kind: str, name: str, sandboxed: bool) -> Stage:
        course, stretch = COURSES[kind], STAGES[kind][name]
        folder = Path(tempfile.mkdtemp(dir=on_disk)) if sandboxed else tmp_path_factory.mktemp(name)
        project = course.project(templates(kind), folder / "project", mark, sandboxed=sandboxed)
        if stretch.since:
            kill_at(project, course, stretch.since, mark)
        if stretch.meanwhile:
            stretch.meanwhile(project)
        project.moved_to(folder / "snapshot")
        project = course.project(folder / "snapshot", folder / "project", mark, sandboxed=sandboxed)
        record, begins = folder / "points", stretch.begins or stretch.since
        kill_at(project, course, stretch.until, mark, CRASH_RECORD=str(record), CRASH_EFFECTS="1")
        passed = dict(line.split("\t") for line in record.read_text().splitlines())
        assert len(passed) == len(record.read_text().splitlines())
        points = dict(dropwhile(lambda row: begins not in row[0], passed.items()))
        return Stage(course, stretch.until, folder, sandboxed, points, course.standing(project))

    def find(kind: str, name: str, sandboxed: bool) -> Stage:
        if (kind, name, sandboxed) not in stages:
            stages[kind, name, sandboxed] = make(kind, name, sandboxed)
        return stages[kind, name, sandboxed]

    return find


def kill_at(project: Project, course: Course, point: str, mark: str, tree: object = None, **told: str) -> None:
    killed = project.drive(course.item, CRASH_AT=point, **told)
    assert killed.returncode == -signal.SIGKILL, f"not killed at {point}: {killed.stdout}{killed.stderr}"
    assert gone_soon(mark), point
    course.check(project, tree or project.git("rev-parse", "main^{tree}"))


# ---- promises


def check_whole(stage: Stage, stretch: Stretch) -> None:
    """Everything that makes it this stretch is on the way."""
    calls = {point.split()[2] for point in filter(is_call, stage.points)}
    assert calls >= set(stretch.calls)
    done = [about for point, about in stage.points.items() if is_effect(point)]
    wanted = [words.removeprefix("*") for words in stretch.effects if stage.sandboxed or not words.startswith("*")]
    assert [words for words in wanted if not any(about.endswith(words) for about in done)] == []
    assert not stage.sandboxed or not any(about == "supervisor run" for about in done), (
        "a command outside of its sandbox"
    )


def check_killed_and_gone_on(stage: Stage, point: str, mark: str) -> None:
    """Killed there, then run until the stretch is over: everything is as if nothing had happened."""
    project = stage.begin(mark)
    told = {"CRASH_EFFECTS": "1"} if is_effect(point) else {}
    kill_at(project, stage.course, point, mark, stage.ending.tree, **told)
    kill_at(project, stage.course, stage.until, mark)
    assert stage.course.standing(project) == stage.ending, f"killed at {point}: {stage.points[point]}"
    check_no_strays(project, mark)


def cases() -> Iterator[Any]:
    for kind, stretches in STAGES.items():
        for name, stretch in stretches.items():
            if kind == "backlog":
                yield pytest.param(kind, name, False, id=f"{kind}-{name}")
            if stretch.in_a_sandbox:
                yield pytest.param(kind, name, True, id=f"{kind}-{name}-sandboxed", marks=pytest.mark.sandboxed)


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize(("kind", "name", "sandboxed"), [*cases()])
@pytest.mark.promise("backlog.killed-write", "004-follow-ups.archive-order", "durability.every-place")
def test_killed_anywhere_in_a_stage_it_goes_on_the_same(
    kind: str, name: str, sandboxed: bool, group: int, a_stage: MakeStage, mark: str
) -> None:
    stage = a_stage(kind, name, sandboxed)
    check_whole(stage, STAGES[kind][name])
    tried = stage.tried()
    assert tried
    for point in tried[group::GROUPS]:
        check_killed_and_gone_on(stage, point, mark)
