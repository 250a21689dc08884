"""Projects of the version before, with missions under way and halted, come to their end under this one.

How they were made, and at which moment each was left, is told in tests/fixtures/upgrade/make.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from capsule.core.event import StepEnded
from tests.fixtures.upgrade.make import PLACE, change, mission

from .backlog_project import BacklogProject
from .conftest import Project, Script

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1] / "fixtures" / "upgrade"
UNDER_WAY, GAVE_UP, USED_UP, PARKED = MISSIONS = ("demo-1", "demo-2", "demo-3", "demo-4")
ASKS, FAILS, KILLED = "WRK-001", "WRK-002", "WRK-003"
Level = Mapping[str, str]


# ---- unpacking


def unpack(name: str, folder: Path) -> Path:
    """Unpack a project into `folder/project`; what names the place where it was made names this one then."""
    with tarfile.open(HERE / f"{name}.tar.gz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)
    project = folder / "project"
    old, new = bytes(PLACE), bytes(project)
    for path in project.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.name.startswith("journal.db"):
            continue
        if old in (content := path.read_bytes()):
            path.write_bytes(content.replace(old, new))
    for note in project.glob(".git/capsule/watched/*.note"):
        _move_note(note, old, new)
    _move_journal(project / ".git" / "capsule" / "journal.db", old, new)
    return project


def _move_note(note: Path, old: bytes, new: bytes) -> None:
    """A note keeps files in base64, and its digest in a mark beside it."""
    known = json.loads(note.read_bytes())
    for found in known["files"].values():
        found[2] = base64.b64encode(base64.b64decode(found[2]).replace(old, new)).decode()
    note.write_text(json.dumps(known))
    mark = note.with_suffix(".on")
    if mark.exists():
        mark.write_text(hashlib.sha256(note.read_bytes()).hexdigest())


def _move_journal(journal: Path, old: bytes, new: bytes) -> None:
    database = sqlite3.connect(journal)
    for stream, seq, data in database.execute("SELECT stream, seq, data FROM events").fetchall():
        if old in bytes(data):
            changed = (bytes(data).replace(old, new), stream, seq)
            database.execute("UPDATE events SET data = ? WHERE stream = ? AND seq = ?", changed)
    database.commit()
    database.close()


@pytest.fixture
def missions(tmp_path: Path) -> Callable[[str], Project]:
    """A project with tdd missions, by the moment at which it was left; `.env` is the user's, and ignored."""
    return lambda name: Project(unpack(name, tmp_path), tmp_path)


@pytest.fixture
def backlog(tmp_path: Path) -> Callable[[str], BacklogProject]:
    """The same with a backlog."""

    def make(name: str) -> BacklogProject:
        project = BacklogProject(unpack(name, tmp_path), tmp_path)
        project.test = "sh tests.sh"
        return project

    return make


# ---- what holds at the end


def assert_nothing_is_left(project: Project) -> None:
    """No place, branch, mark, private folder or lock is left, the user's ignored file is, and git is content."""
    ours = project.path / ".git" / "capsule"
    assert list(ours.glob("watched/*.on")) == []
    assert [*ours.glob("places/*"), *ours.glob("private/*")] == []
    assert [*project.path.glob(".capsule/worktrees/*"), *project.path.glob(".capsule/missions/*/gate")] == []
    assert project.git("worktree", "list", "--porcelain").count("worktree ") == 1
    assert [ref for ref in project.refs("refs") if not ref.startswith("refs/capsule/salvage/")] == ["refs/heads/main"]
    assert [lock for lock in (project.path / ".git").rglob("*.lock") if lock.parent.name != "locks"] == []
    assert (project.path / ".env").read_text() == "the user's own\n"
    project.fsck()


def assert_kept(project: Project, item: str, **files: str) -> None:
    """What a killed agent had written is under a salvage ref, or was gone on with and is on main."""
    where = [*project.refs(f"refs/capsule/salvage/{item}"), "main"]
    for name, text in files.items():
        assert text in [content(project, ref, name.replace("__", ".")) for ref in where], name


def content(project: Project, ref: str, name: str) -> str:
    there = project.git("ls-tree", "-r", "--name-only", ref).splitlines()
    return project.git("show", f"{ref}:{name}") if name in there else ""


def steps(project: Project, item: str) -> list[str]:
    """The steps that came to an end, in order, as `execute PASS`."""
    ended = [event for event in project.events(item) if isinstance(event, StepEnded)]
    return [f"{event.phase} {event.decision.verdict.value}" for event in ended]


def assert_merged(project: Project, *items: str) -> None:
    for item in items:
        assert project.git("show", f"main:code/{item}") == "whole"
        assert project.status_of(item) == "closed"
        assert project.git("log", "--format=%s", "main").splitlines().count(f"Merge {item}: Make {item}") == 1
        assert (project.path / "code" / item).read_text() == "whole\n", "the checkout is brought along"


def resume(project: Project, item: str, script: Script, **env: str) -> None:
    project.play(script, item)
    answer = project.capsule("run", item, env=env)
    assert answer.code == 0, answer


# ---- tdd missions


@pytest.mark.sweep
@pytest.mark.promise("durability.upgrade")
@pytest.mark.parametrize("order", [MISSIONS, MISSIONS[::-1]], ids=["the killed one first", "the halted ones first"])
def test_a_mission_under_way_and_halted_ones_are_merged(
    missions: Callable[[str], Project], level: Level, order: tuple[str, ...]
) -> None:
    project = missions("tdd-in-execute")
    for item in order:
        resume(project, item, mission(item), **level)
    assert_merged(project, *MISSIONS)
    assert steps(project, UNDER_WAY).count("test-writer PASS") == 1, "what was done is not done again"
    assert_kept(project, UNDER_WAY, loose__txt="loose", **{f"code/{UNDER_WAY}": "half\nmore"})
    assert "half of it" in project.git("log", "--format=%s", *project.refs(f"refs/capsule/salvage/{UNDER_WAY}"))
    assert "half of it" not in project.git("log", "--format=%s", "main")
    assert project.dirt().splitlines() == ["M README.md", "?? mine.txt"]
    assert (project.path / "README.md").read_text() == "A project, and more.\n"
    assert (project.path / "mine.txt").read_text() == "the user's own\n"
    assert_nothing_is_left(project)


def test_a_mission_killed_in_the_sandbox_is_merged(missions: Callable[[str], Project], level: Level) -> None:
    project = missions("tdd-in-execute-sandboxed")
    resume(project, UNDER_WAY, mission(UNDER_WAY), **level)
    assert_merged(project, UNDER_WAY)
    assert_kept(project, UNDER_WAY, loose__txt="loose", **{f"code/{UNDER_WAY}": "half\nmore"})
    assert project.dirt() == ""
    assert_nothing_is_left(project)


@pytest.mark.sweep
@pytest.mark.promise("durability.upgrade")
@pytest.mark.parametrize("moment", ["tdd-between-steps", "tdd-before-publish", "tdd-after-publish"])
def test_a_mission_killed_without_an_agent_is_merged_once(missions: Callable[[str], Project], moment: str) -> None:
    project = missions(moment)
    resume(project, UNDER_WAY, mission(UNDER_WAY))
    assert_merged(project, UNDER_WAY)
    walk = [step.split()[0] for step in steps(project, UNDER_WAY)]
    phases = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge", "publish", "archive")
    assert walk == ["prep", *phases]
    assert project.dirt() == ""
    assert_nothing_is_left(project)


def test_looking_at_a_killed_mission_costs_it_nothing(missions: Callable[[str], Project]) -> None:
    project = missions("tdd-in-execute")
    assert [project.capsule(*words).code for words in (("status",), ("show", UNDER_WAY), ("explain",))] == [0, 0, 0]
    assert (project.worktree.parent / UNDER_WAY / "loose.txt").read_text() == "loose\n"
    resume(project, UNDER_WAY, mission(UNDER_WAY))
    assert_merged(project, UNDER_WAY)
    assert_kept(project, UNDER_WAY, loose__txt="loose", **{f"code/{UNDER_WAY}": "half\nmore"})


# ---- items of a backlog


def assert_archived(project: BacklogProject, item: str) -> None:
    """Every step has exactly one commit, and both parts are on main and in the checkout."""
    tags = [line.split("[")[2].split("]")[0] for line in project.subjects() if line.startswith(f"[{item}]")]
    walk = ["PRD", "RESEARCH", "DESIGN", "SPEC", "BUILD", "BUILD", "REVIEW", "ARCHIVE"]
    assert [tag for tag in tags if tag in walk] == walk
    assert item not in project.ids()
    for part in ("one", "two"):
        assert project.git("show", f"main:{item}.{part}") == "whole"
        assert (project.path / f"{item}.{part}").read_text() == "whole\n"


@pytest.mark.promise("durability.upgrade")
@pytest.mark.parametrize("words", [("run", KILLED), ("run",)], ids=["by name", "by the queue"])
def test_an_item_under_way_and_blocked_ones_are_archived(
    backlog: Callable[[str], BacklogProject], level: Level, words: tuple[str, ...]
) -> None:
    project = backlog("backlog-in-build")
    for item in (ASKS, FAILS, KILLED):
        project.play(change(item), item)
    answer = project.capsule(*words, env=level)
    assert answer.code == 0, answer
    assert_archived(project, KILLED)
    assert_kept(project, KILLED, loose__txt="loose", README__md="changed", **{f"{KILLED}.one": "half"})
    assert project.status() == ""
    assert project.ids() == [ASKS, FAILS], "who is blocked waits on"
    for item in (ASKS, FAILS):
        assert project.capsule("unblock", item, "--notes", "blue", env=level).code == 0
    answer = project.capsule("run", env=level)
    assert answer.code == 0, answer
    assert_archived(project, ASKS)
    assert_archived(project, FAILS)
    assert (project.status(), project.ids()) == ("", [])
    assert_nothing_is_left(project)


@pytest.mark.parametrize("moment", ["backlog-in-build-sandboxed", "backlog-in-build"])
def test_what_a_killed_agent_left_in_the_checkout_is_not_lost_by_looking(
    backlog: Callable[[str], BacklogProject], moment: str
) -> None:
    project = backlog(moment)
    item = KILLED if moment == "backlog-in-build" else ASKS
    assert [project.capsule(*words).code for words in (("status",), ("show", item))] == [0, 0]
    assert (project.path / f"{item}.one").read_text() == "half\n"
    assert (project.path / "loose.txt").read_text() == "loose\n"


def test_an_item_killed_in_the_sandbox_is_archived(backlog: Callable[[str], BacklogProject], level: Level) -> None:
    project = backlog("backlog-in-build-sandboxed")
    resume(project, ASKS, change(ASKS), **level)
    assert_archived(project, ASKS)
    assert_kept(project, ASKS, loose__txt="loose", README__md="changed", **{f"{ASKS}.one": "half"})
    assert project.status() == ""
    assert_nothing_is_left(project)


def test_an_item_killed_in_a_worktree_is_merged_and_the_users_file_stays(
    backlog: Callable[[str], BacklogProject], level: Level
) -> None:
    project = backlog("backlog-in-worktree")
    project.write("mine.txt", "the user's own\n")
    resume(project, ASKS, change(ASKS), **level)
    assert "Merge WRK-001: Make it" in project.subjects()
    assert (project.git("show", "main:WRK-001.one"), project.git("show", "main:WRK-001.two")) == ("whole", "whole")
    assert_kept(project, ASKS, loose__txt="loose", README__md="changed", **{f"{ASKS}.one": "half"})
    assert (project.status(), project.ids()) == ("?? mine.txt", [])
    assert (project.path / "mine.txt").read_text() == "the user's own\n"
    assert_nothing_is_left(project)


@pytest.mark.sweep
@pytest.mark.promise("durability.upgrade")
@pytest.mark.parametrize("moment", ["backlog-before-commit", "backlog-between-steps"])
def test_an_item_killed_without_an_agent_goes_on_after_what_is_done(
    backlog: Callable[[str], BacklogProject], moment: str
) -> None:
    project = backlog(moment)
    second = change(ASKS)["build"][1:]
    resume(project, ASKS, change(ASKS, build=second))
    assert_archived(project, ASKS)
    assert [move for move in project.moves(ASKS) if move.startswith("build")] == ["build repeat", "build advance"]
    assert project.status() == ""
    assert_nothing_is_left(project)


def test_an_item_killed_in_its_child_mission_is_archived(
    backlog: Callable[[str], BacklogProject], level: Level
) -> None:
    project = backlog("backlog-by-tdd")
    child = f"{ASKS}.build.1"
    project.play(mission(child), child)
    resume(project, ASKS, change(ASKS), **level)
    assert project.git("show", f"main:code/{child}") == "whole"
    assert project.git("log", "--format=%s", "main").splitlines().count(f"Merge {child}: one") == 1
    assert_kept(project, child, loose__txt="loose", **{f"code/{child}": "half\nmore"})
    assert (project.status(), project.ids()) == ("", [])
    assert_nothing_is_left(project)


def test_an_item_that_was_killed_does_not_stop_one_that_ranks_higher(backlog: Callable[[str], BacklogProject]) -> None:
    project = backlog("backlog-outranked")
    for item in (ASKS, FAILS):
        project.play(change(item), item)
    answer = project.capsule("run")
    assert answer.code == 0, answer
    assert_archived(project, ASKS)
    assert_archived(project, FAILS)
    assert_kept(project, FAILS, loose__txt="loose", README__md="changed", **{f"{FAILS}.one": "half"})
    assert (project.status(), project.ids()) == ("", [])
    assert_nothing_is_left(project)


def test_an_item_that_a_killed_agent_set_to_done_is_worked_on_all_the_same(
    backlog: Callable[[str], BacklogProject],
) -> None:
    project = backlog("backlog-forged")
    for item in (ASKS, FAILS):
        project.play(change(item), item)
    answer = project.capsule("run")
    assert answer.code == 0, answer
    assert_archived(project, ASKS)
    assert_archived(project, FAILS)
    assert project.spawns(FAILS) == len(change(FAILS)["build"]) + 6
    assert (project.status(), project.ids()) == ("", [])
    assert_nothing_is_left(project)
