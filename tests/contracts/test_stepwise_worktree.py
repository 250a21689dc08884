"""What a user may count on whose branch is moved step by step: it goes where they take it, and the work follows."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from capsule.adapters import StateCommit
from capsule.core.assignment import Assign
from capsule.core.briefing import SandboxPaths
from capsule.core.documents import is_of_another_item
from capsule.core.errors import CapsuleError, Refused
from capsule.core.evidence import Checkpoint
from capsule.system.git import Git
from capsule.system.process import SupervisorClient
from capsule.workspaces.provision import RunSetup
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.shell import SupervisedShell
from capsule.workspaces.state_store import GitStateStore
from capsule.workspaces.stepwise_worktree import StepwiseWorktree
from tests.costs import LONG

from ..conftest import Repo
from .test_state_store import LINES, OWN, lines, now, rewrite, understand
from .test_workspaces import NAMES

BRANCH = "refs/heads/capsule-x-1"
BASE = "refs/capsule/base/x-1"


class Desk:
    """The user's checkout of main, and a mission that works for it in a place of its own."""

    def __init__(self, repo: Repo) -> None:
        repo.write("_worklog/2026-11.md", "# Worklog\n")
        repo.write("src/deep/old.py", "old\n")
        self.base = repo.commit("items", ITEMS="last 1\nX-1 new\n", long="".join(LINES))
        self.repo = repo
        git = Git.find(repo.path)
        exclude_artefacts(git, self.base)
        self.state_store = GitStateStore(git, rewrite, understand, OWN, now)
        self.place = self.again()
        self.place.prepare(self.base)
        self.path = self.place.path
        self.agent = Repo(self.path)

    def again(self, mission: str = "x-1") -> StepwiseWorktree:
        """Another process: nothing remembered."""
        not_ours = partial(is_of_another_item, mission)
        return StepwiseWorktree(
            Git.find(self.repo.path), mission, into="main", artefacts=OWN, not_ours=not_ours, run_setup=no_shell
        )

    def start(self) -> Checkpoint:
        return self.place.base_checkpoint(self.base)

    def work(self) -> Checkpoint:
        """Something changed, removed, new, staged."""
        self.agent.write("src/app.py", "print('two')\n")
        self.agent.write("new/deep/file.py", "new\n")
        shutil.rmtree(self.path / "src/deep", ignore_errors=True)
        self.agent.git("add", "new")
        return self.place.checkpoint("build#1")

    def book(self, work: Checkpoint | None, key: str = "build#1") -> str:
        """The step goes to the branch; the commit."""
        handed = self.place.commit_step(work, "m", key) if work else None
        entry = StateCommit(f"x-1/{key}", f"[X-1] {key}", (Assign("X-1", {"status": key}),), branch="main", work=handed)
        return self.state_store.write(entry).commit

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.path.rglob("*") if path != self.path / ".git")
        return {str(path.relative_to(self.path)): path.read_bytes() for path in paths if path.is_file()}

    def changed(self, since: Checkpoint) -> set[str]:
        """What the phase that started from there has changed, as the engine asks."""
        place = self.place
        return {change.path for change in place.trees.changes(place.delivered(since), place.tree())}

    def salvaged(self) -> list[str]:
        return self.repo.refs("refs/capsule/salvage")

    def show(self, ref: str, path: str) -> str:
        return self.repo.git("show", f"{ref}:{path}")


WORK = {"new/deep/file.py", "src/app.py", "src/deep/old.py"}


def no_shell(command: str, cwd: Path, log: Path) -> None:
    raise AssertionError(command)


@pytest.fixture
def desk(a_repo: Repo) -> Desk:
    return Desk(a_repo)


# Several at a time


@pytest.mark.promise("jobs.side-by-side")
def test_documents_of_others_that_came_while_tests_ran_are_no_part_of_the_work(desk: Desk) -> None:
    """Tests may reach the place, so it is put back after them: as it was, and not as the branch is by then."""
    desk.work()
    desk.place.gate(desk.place.tree())
    theirs = "changes/X-2_else/X-2_else_SPEC.md"
    tip = desk.repo.commit("[X-2][SPEC]", **{theirs.replace(".", "__"): "- [ ] it\n"})
    point = desk.place.checkpoint("build#1")
    handed = desk.place.commit_step(point, "m", "build#1")
    assert handed and handed.head == desk.base
    assert {change.path for change in desk.place.trees.changes(handed.head, handed.tree)} == WORK
    assert desk.place.restore(point) == "" and (desk.path / theirs).exists(), "the next phase begins at the branch"
    assert desk.repo.head("main") == tip


# The user's checkout


def test_a_mission_leaves_no_trace_in_the_users_checkout(desk: Desk) -> None:
    assert desk.place.publishes_to == "main"
    desk.work()
    desk.place.write_worklog("log")
    desk.place.gate(desk.place.tree())
    assert desk.again().worklog() == "log"
    assert not (desk.path / "worklog.md").exists()
    assert desk.repo.status() == ""
    assert desk.repo.head("main") == desk.base


def test_edits_in_the_users_checkout_are_no_part_of_the_work(desk: Desk) -> None:
    desk.repo.write("README", "my edit\n")
    desk.repo.write("staged", "mine\n")
    desk.repo.git("add", "staged")
    before = desk.repo.status()
    point = desk.work()
    assert {change.path for change in desk.place.trees.changes(point.head, point.tree)} == WORK
    desk.place.salvage_and_reset("failed")
    assert desk.repo.status() == before


# The branch moves


def committed(desk: Desk) -> None:
    desk.repo.commit("mine", README="mine\n")


def merged(desk: Desk) -> None:
    desk.repo.git("switch", "-q", "-c", "side")
    desk.repo.commit("side", side="x\n")
    desk.repo.git("switch", "-q", "main")
    desk.repo.git("merge", "-q", "--no-ff", "--no-edit", "side")


def undone(desk: Desk) -> None:
    desk.repo.git("reset", "-q", "--hard", "HEAD~1")


def amended(desk: Desk) -> None:
    desk.repo.write("README", "mine\n")
    desk.repo.git("commit", "-q", "-a", "--amend", "-m", "better")


def booked_by_another_mission(desk: Desk) -> None:
    other = desk.again("x-2")
    other.prepare(desk.repo.head("main"))
    Repo(other.path).write("other.py", "x\n")
    entry = StateCommit("x-2/build#1", "[X-2]", (), branch="main", work=other.checkpoint("build#1"))
    desk.state_store.write(entry)


MOVES = (committed, merged, undone, amended, booked_by_another_mission)


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("later", [False, True])
def test_a_phase_starts_from_where_the_branch_is(desk: Desk, move: Callable[[Desk], None], later: bool) -> None:
    desk.agent.write("done.py", "done\n")
    landed = desk.place.checkpoint_at(desk.book(desk.place.checkpoint("build#1")))
    move(desk)
    tip = desk.repo.head("main")
    if later:
        desk.place = desk.again()
    assert desk.place.restore(landed) == ""
    assert desk.place.head() == tip == desk.agent.head()
    assert desk.agent.status() == desk.repo.status() == ""
    assert desk.place.tree() == desk.repo.head(f"{tip}^{{tree}}")
    assert desk.changed(landed) == set()
    assert desk.place.notices() == desk.salvaged() == []


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("move", MOVES)
def test_work_in_progress_follows_the_branch(desk: Desk, move: Callable[[Desk], None]) -> None:
    landed = desk.place.checkpoint_at(desk.book(None, "triage#1"))
    point = desk.work()
    move(desk)
    tip = desk.repo.head("main")
    desk.place = desk.again()
    assert desk.place.restore(point) == ""
    assert desk.place.head() == tip
    assert {change.path for change in desk.place.trees.changes(tip, desk.place.tree())} == WORK
    assert desk.changed(point) == set()
    desk.agent.write("more.py", "more\n")
    assert desk.changed(point) == {"more.py"}
    assert desk.place.notices() == []
    assert landed.head != tip


def test_a_step_that_its_user_undid_does_not_come_back_with_later_work(desk: Desk) -> None:
    """Its commit is no longer on the branch, and no work of the phase either."""
    desk.agent.write("undone.py", "undone\n")
    landed = desk.place.checkpoint_at(desk.book(desk.place.checkpoint("build#1")))
    desk.place.restore(landed)
    desk.agent.write("long", lines(at_1="the work's"))
    point = desk.place.checkpoint("build#2")
    undone(desk)
    desk.repo.commit("mine", long=lines(at_10="mine"))
    desk.place.restore(point)
    assert (desk.path / "long").read_text() == lines(at_1="the work's", at_10="mine")
    assert not (desk.path / "undone.py").exists()
    assert not (desk.book(point, "build#2") and (desk.repo.path / "undone.py").exists())


def test_papers_of_another_item_are_no_part_of_a_step_wherever_the_place_has_moved(desk: Desk) -> None:
    """The place is put on the newest commit after tests ran in it; its step is still recorded against its own base."""
    papers = "changes/x-2_other/x-2_other_SPEC.md"
    point = desk.work()
    desk.repo.commit("x-2 SPEC", **{papers: "- [ ] one\n"})
    desk.place.restore(point)
    desk.repo.commit("x-2 BUILD", **{papers: "- [x] one\n"})
    booked = desk.book(point)
    assert desk.show(booked, papers) == "- [x] one"
    assert set(desk.repo.git("diff", "--name-only", f"{booked}~1", booked).split()) == {*WORK, "ITEMS"}


def test_lines_that_both_changed_are_as_on_the_branch_and_told(desk: Desk) -> None:
    desk.agent.write("long", lines(at_1="the work's", at_5="the work's"))
    desk.agent.write("README", "the work's\n")
    desk.agent.write("new.py", "the work's\n")
    point = desk.place.checkpoint("build#1")
    desk.repo.commit("mine", long=lines(at_10="mine"), README="mine\n")
    desk.place.restore(point)
    assert (desk.path / "long").read_text() == lines(at_1="the work's", at_5="the work's", at_10="mine")
    assert (desk.path / "README").read_text() == "mine\n"
    assert (desk.path / "new.py").read_text() == "the work's\n"
    [told] = desk.place.notices()
    assert told == "the work and main changed the same lines; as main has it now: README"
    assert desk.place.notices() == []
    assert desk.repo.git("show", f"{point.commit}:README") == "the work's"


def test_following_cut_short_is_finished(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    point = desk.work()
    desk.repo.commit("mine", README="mine\n", long=lines(at_3="mine"))
    whole = StepwiseWorktree._write_out

    def cut_short(place: StepwiseWorktree, tree: str) -> None:
        whole(place, tree)
        (desk.path / "long").write_text("to")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StepwiseWorktree, "_write_out", cut_short)
        desk.place.follow(point)
    desk.place = desk.again()
    desk.place.restore(point)
    assert desk.place.head() == desk.repo.head("main")
    assert {change.path for change in desk.place.trees.changes(desk.repo.head("main"), desk.place.tree())} == WORK
    assert (desk.path / "long").read_text() == lines(at_3="mine")


def test_a_place_that_is_gone_follows_all_the_same(desk: Desk) -> None:
    point = desk.work()
    committed(desk)
    shutil.rmtree(desk.path)
    desk.place.follow(point)
    assert {change.path for change in desk.place.trees.changes(desk.repo.head("main"), desk.place.tree())} == WORK


def test_a_branch_that_was_deleted_is_refused_with_a_way_back(desk: Desk) -> None:
    desk.work()
    desk.repo.git("switch", "-q", "-c", "other")
    desk.repo.git("branch", "-q", "-D", "main")
    with pytest.raises(Refused, match="main, which x-1 works for") as refused:
        desk.again().restore(desk.start())
    desk.repo.git(*refused.value.hint.partition("git ")[2].split())
    assert desk.repo.head("main") == desk.base
    desk.again().restore(desk.start())


def test_a_user_on_another_branch_changes_nothing_for_the_mission(desk: Desk) -> None:
    point = desk.work()
    desk.repo.git("switch", "-q", "-c", "topic")
    topic = desk.repo.commit("topic", README="the topic's\n")
    desk.place.restore(point)
    assert desk.place.checkpoint_at(desk.book(point)).head == desk.repo.head("main")
    assert desk.repo.head() == topic
    assert desk.repo.status() == ""


# A step is kept


@pytest.mark.promise("backlog.agent-commits")
def test_commits_of_an_agent_become_one_with_the_trackers_state(desk: Desk) -> None:
    desk.place.restore(desk.start())
    desk.place.open_sandbox()
    ours = [desk.agent.commit("one", one="1\n"), desk.agent.commit("two", two="2\n", one="1.1\n")]
    desk.agent.write("three", "3\n")
    desk.place.import_commits()
    point = desk.place.checkpoint("build#1")
    assert point.head == desk.base
    assert desk.place.touched_outside_commit() == ["one", "three", "two"]
    booked = desk.book(point)
    assert desk.repo.git("log", "--format=%s", f"{desk.base}..main") == "[X-1] build#1"
    assert desk.repo.git("show", "--format=", "--name-only", booked).split() == ["ITEMS", "one", "three", "two"]
    assert desk.show(booked, "one") == "1.1"
    assert desk.salvaged() == []
    landed = desk.place.checkpoint_at(booked)
    assert landed == Checkpoint(booked, booked, desk.repo.head(f"{booked}^{{tree}}"))
    assert desk.agent.status() == ""
    assert desk.agent.head() == booked
    assert not set(ours) & set(desk.repo.git("rev-list", "main").split())


def test_commits_whose_content_is_in_no_file_are_kept(desk: Desk) -> None:
    desk.place.restore(desk.start())
    desk.place.open_sandbox()
    lost = desk.agent.commit("work", new="work\n")
    desk.agent.git("reset", "-q", "--hard", "HEAD~1")
    desk.agent.git("switch", "-q", "--detach", lost)
    (desk.path / "new").unlink()
    desk.place.import_commits()
    [kept] = desk.salvaged()
    assert desk.show(kept, "new") == "work"
    assert desk.place.tree() == desk.repo.head("main^{tree}")


def test_commits_that_a_person_made_in_the_place_are_work(desk: Desk) -> None:
    desk.place.restore(desk.start())
    mine = desk.agent.commit("by hand", mine="mine\n")
    desk.place = desk.again()
    point = desk.place.checkpoint("build#1")
    assert point.head == desk.base == desk.agent.head()
    assert [change.path for change in desk.place.trees.changes(desk.base, point.tree)] == ["mine"]
    assert desk.agent.status() == "?? mine"
    assert desk.show(desk.book(point), "mine") == "mine"
    assert desk.salvaged() == []
    assert mine not in desk.repo.git("rev-list", "main")


def test_commits_that_a_person_made_after_a_kill_are_work(desk: Desk) -> None:
    desk.place.restore(desk.start())
    desk.place.open_sandbox()
    desk.place = desk.again()
    assert desk.agent.status() == ""
    desk.agent.commit("by hand", mine="mine\n")
    desk.place.import_commits()
    assert desk.place.touched_outside_commit() == ["mine"]
    assert desk.agent.head() == desk.base
    assert desk.show(desk.book(desk.place.checkpoint("build#1")), "mine") == "mine"


def test_a_settled_place_is_as_the_commit(desk: Desk) -> None:
    booked = desk.book(desk.work())
    assert desk.again().checkpoint_at(booked) == Checkpoint(booked, booked, desk.repo.head(f"{booked}^{{tree}}"))
    assert desk.agent.status() == ""
    assert desk.repo.head(BASE) == desk.agent.head() == booked


def test_work_that_is_committed_already_is_not_put_back(desk: Desk) -> None:
    """Killed after the state was written and before that was journaled: the checkpoint is from before the commit."""
    point = desk.work()
    booked = desk.book(point)
    desk.place = desk.again()
    assert desk.place.restore(point) == ""
    assert desk.place.head() == booked
    assert desk.agent.status() == ""
    assert desk.book(point) == booked
    assert desk.place.notices() == desk.salvaged() == []


def test_it_is_not_rebased(desk: Desk) -> None:
    with pytest.raises(Refused, match="follows main automatically"):
        desk.place.rebase(desk.base)


# What is no part of the work


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("backlog.agent-copy")
@pytest.mark.parametrize(
    "path",
    ["BACKLOG.yaml", "ITEMS", "_worklog/2026-11.md", ".capsule/config.yaml", "changes/X-2_other/PLAN.md"],
)
@pytest.mark.parametrize("committed", [False, True])
def test_changes_that_are_no_part_of_the_work_are_dropped_and_told(desk: Desk, path: str, committed: bool) -> None:
    desk.place = place = StepwiseWorktree(
        Git.find(desk.repo.path), "X-1", into="main", artefacts=OWN, not_ours=partial(is_of_another_item, "X-1")
    )
    place.prepare(desk.base)
    agent = Repo(place.path)
    place.open_sandbox()
    agent.write(path, "bent\n")
    agent.write("changes/X-1_mine/PLAN.md", "mine\n")
    if committed:
        agent.git("add", "-f", path)
        agent.commit("all of it")
    place.import_commits()
    assert [change.path for change in place.trees.changes(desk.base, place.tree())] == ["changes/X-1_mine/PLAN.md"]
    [told] = place.notices()
    assert f"changes to {path} were dropped" in told
    assert place.notices() == []
    booked = desk.book(place.checkpoint("build#1"))
    names = desk.repo.git("show", "--format=", "--name-only", booked).split()
    assert names == ["ITEMS", "changes/X-1_mine/PLAN.md"]
    assert "bent" not in desk.show(booked, "ITEMS")


def test_many_dropped_changes_are_told_in_one_line(desk: Desk) -> None:
    for number in range(8):
        desk.agent.write(f"_worklog/{number}.md", "bent\n")
    desk.place.tree()
    [told] = desk.place.notices()
    assert told.endswith("were dropped: they are no part of this work") and "and 3 more" in told


# A step that failed


@pytest.mark.promise("backlog.failed-work")
def test_withdrawn_work_is_kept_and_the_place_is_as_before(desk: Desk) -> None:
    before = desk.files()
    desk.work()
    desk.agent.write("x.pyc", "ignored")
    kept = desk.place.salvage_and_reset("build failed")
    assert desk.files() == before | {"x.pyc": b"ignored"}
    assert desk.agent.status() == ""
    assert desk.show(kept, "src/app.py") == "print('two')"
    assert desk.show(kept, "new/deep/file.py") == "new"
    assert "src/deep/old.py" not in desk.repo.git("ls-tree", "-r", "--name-only", kept)
    assert desk.place.salvage_and_reset("again") == ""
    desk.place.restore(desk.start())
    desk.work()
    assert desk.again().salvage_and_reset("build failed") == kept
    desk.repo.fsck()


def a_folder_for_a_link(desk: Desk) -> None:
    shutil.rmtree(desk.path / "src")
    (desk.path / "src").symlink_to("/")


def files_for_folders(desk: Desk) -> None:
    (desk.path / "README").unlink()
    desk.agent.write("README/inner", "x")
    shutil.rmtree(desk.path / "src")
    desk.agent.write("src", "a file now")


def a_repository_inside(desk: Desk) -> None:
    nested = Repo(desk.path / "sub")
    nested.path.mkdir()
    nested.git("init", "-q")
    nested.commit("inner", file="precious")


def half_a_merge(desk: Desk) -> None:
    desk.place.open_sandbox()
    desk.agent.git("switch", "-q", "-c", "side")
    desk.agent.commit("side", README="side\n")
    desk.agent.git("switch", "-q", "capsule-x-1")
    desk.agent.commit("mine", README="mine\n")
    assert subprocess.run(["git", "merge", "-q", "side"], cwd=desk.path, capture_output=True, check=False).returncode
    desk.place.import_commits()


def names_of_any_kind(desk: Desk) -> None:
    for name in NAMES:
        (desk.path / name).write_text("x")


@pytest.mark.parametrize(
    "spoil", [a_folder_for_a_link, files_for_folders, a_repository_inside, half_a_merge, names_of_any_kind]
)
def test_whatever_a_failed_step_left_is_kept_and_goes(desk: Desk, spoil: Callable[[Desk], None]) -> None:
    before = desk.files()
    spoil(desk)
    kept = desk.place.salvage_and_reset("failed")
    assert desk.repo.head(f"{kept}^") == desk.base
    assert desk.files() == before
    assert desk.agent.status() == ""
    assert desk.place.head() == desk.base


def test_a_withdrawal_cut_short_is_finished(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = desk.files()
    desk.work()

    def cut_short(*_: object) -> None:
        (desk.path / "new/deep/file.py").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StepwiseWorktree, "_write_out", cut_short)
        desk.place.salvage_and_reset("failed")
    desk.again().salvage_and_reset("failed")
    assert desk.files() == before
    assert desk.show(desk.salvaged()[0], "new/deep/file.py") == "new"


def test_refuted_work_is_there_again_for_the_next_try(desk: Desk) -> None:
    point = desk.work()
    wanted = desk.files()
    desk.place.salvage_and_reset("a pause")
    assert desk.again().restore(point) == ""
    assert desk.files() == wanted


@pytest.mark.promise("backlog.dirty-checkout")
def test_what_a_crash_left_is_kept_and_the_phase_starts_clean(desk: Desk) -> None:
    before = desk.files()
    desk.place.restore(desk.start())
    desk.agent.write("half-done.py", "x = (\n")
    kept = desk.again().restore(desk.start())
    assert desk.show(kept, "half-done.py") == "x = ("
    assert desk.files() == before


# Ending


def test_salvage_keeps_what_is_in_no_commit_and_leaves_it(desk: Desk) -> None:
    assert desk.again().salvage("abandoned") == ""
    desk.work()
    left = desk.files()
    kept = desk.again().salvage("abandoned")
    assert desk.show(kept, "src/app.py") == "print('two')"
    assert desk.again().salvage("abandoned") == kept
    assert desk.files() == left


def test_work_whose_place_is_gone_is_salvaged_from_its_checkpoint(desk: Desk) -> None:
    desk.work()
    shutil.rmtree(desk.path)
    assert desk.show(desk.again().salvage("abandoned"), "src/app.py") == "print('two')"


@pytest.mark.promise("durability.salvage")
def test_a_place_and_a_checkpoint_that_are_lost_keep_nobody_from_starting_over(desk: Desk) -> None:
    lost = desk.work().commit
    shutil.rmtree(desk.path)
    (desk.repo.path / ".git/objects" / lost[:2] / lost[2:]).unlink()
    desk.again().salvage("abandoned")
    desk.again().remove(branch=True)
    desk.again().prepare(desk.base)


def test_what_was_committed_is_not_salvaged(desk: Desk) -> None:
    desk.place.checkpoint_at(desk.book(desk.work()))
    assert desk.again().salvage("done") == ""
    committed(desk)
    desk.place.restore(desk.place.base_checkpoint(desk.repo.head("main")))
    assert desk.again().salvage("done") == ""


@pytest.mark.parametrize("branch", [True, False])
def test_remove_leaves_nothing_but_the_users_branch(desk: Desk, branch: bool) -> None:
    booked = desk.book(desk.work())
    desk.place.gate(desk.place.tree())
    for _ in range(2):
        desk.again().remove(branch=branch)
    assert not desk.path.exists()
    assert desk.repo.refs("refs/capsule") == desk.repo.refs(BRANCH) == []
    assert desk.repo.head("main") == booked
    assert len(desk.repo.git("worktree", "list").splitlines()) == 1


# A mission that an earlier version began, in the user's checkout


@pytest.mark.parametrize("prepared", [True, False])
def test_a_mission_of_the_version_before_goes_on_in_a_place_of_its_own(desk: Desk, prepared: bool) -> None:
    point = desk.work()
    index = (desk.repo.path / ".git/index").read_bytes()
    desk.repo.git("worktree", "remove", "--force", str(desk.path))
    desk.repo.git("branch", "-q", "-D", "capsule-x-1")
    shutil.rmtree(desk.repo.path / ".git/capsule/places/x-1")
    notes = desk.repo.path / ".git/capsule/places/x-1"
    notes.mkdir(parents=True)
    (notes / "index").write_bytes(index)  # it was that of the checkout's files
    desk.place = desk.again()
    if prepared:
        assert list(desk.place.prepare(desk.base)) == []
    assert desk.place.restore(point) == ""
    assert {change.path for change in desk.place.trees.changes(desk.base, desk.place.tree())} == WORK
    assert desk.agent.git("branch", "--show-current") == "capsule-x-1"
    assert desk.repo.status() == ""
    assert desk.salvaged() == []


# Hooks of the user's


@contextmanager
def ended_after(limit: float) -> Iterator[RunSetup]:
    with SupervisorClient() as supervisor:
        shell = SupervisedShell(supervisor)

        def run(
            command: str,
            cwd: Path,
            log: Path,
            sandbox_paths: SandboxPaths | None = None,
            env: Mapping[str, str] | None = None,
        ) -> None:
            ran = shell.run(command, cwd, log, timeout=limit, env={}, sandbox_paths=sandbox_paths)
            if ran.why != "exited" or ran.exit_code:
                raise CapsuleError(f"{ran.why} {ran.exit_code}")

        yield run


class Hooked:
    def __init__(self, desk: Desk, run: RunSetup) -> None:
        self.desk = desk
        self.place = StepwiseWorktree(Git.find(desk.repo.path), "x-1", into="main", artefacts=OWN, run_setup=run)

    def add(self, name: str, script: str, folder: Path | None = None) -> None:
        home = folder or self.desk.repo.path / ".git/hooks"
        home.mkdir(exist_ok=True, parents=True)
        (home / name).write_text(f"#!/bin/sh\n{script}\n")
        (home / name).chmod(0o755)

    def track(self) -> None:
        """Hooks of the project, found by a path that is relative to wherever it is checked out."""
        self.add("pre-commit", "echo tracked", self.desk.repo.path / ".githooks")
        self.desk.repo.git("config", "core.hooksPath", ".githooks")
        self.desk.base = self.desk.repo.commit("hooks")
        self.place.restore(self.place.base_checkpoint(self.desk.base))

    def ask(self) -> tuple[bool, str]:
        self.desk.work()
        return self.place.hooks(self.place.tree(), "[X-1][BUILD] work\n")


@pytest.fixture
def hooked(desk: Desk) -> Iterator[Hooked]:
    with ended_after(LONG) as run:
        yield Hooked(desk, run)


def test_no_hooks_are_no_objection(hooked: Hooked) -> None:
    assert hooked.ask() == (True, "")


def test_hooks_see_what_is_to_be_committed(hooked: Hooked) -> None:
    hooked.add("pre-commit", "git diff --cached --name-status; pwd; git rev-parse --abbrev-ref HEAD")
    hooked.add("commit-msg", 'cat "$1"')
    passed, said = hooked.ask()
    assert passed
    listed = ["A\tnew/deep/file.py", "M\tsrc/app.py", "D\tsrc/deep/old.py"]
    assert said.splitlines() == [*listed, str(hooked.desk.path), "capsule-x-1", "[X-1][BUILD] work"]
    assert hooked.desk.repo.status() == ""


def test_hooks_kept_elsewhere_are_found(hooked: Hooked, tmp_path: Path) -> None:
    hooked.add("pre-commit", "echo from elsewhere; exit 1", tmp_path / "hooks")
    hooked.desk.repo.git("config", "core.hooksPath", str(tmp_path / "hooks"))
    passed, said = hooked.ask()
    assert not passed
    assert "from elsewhere" in said


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("backlog.hooks")
@pytest.mark.parametrize(
    "name,script,words",
    [
        ("pre-commit", "echo no tabs please; exit 1", "no tabs please"),
        ("commit-msg", "echo too short; exit 1", "too short"),
        ("pre-commit", "echo tidied >> src/app.py", "changed files: src/app.py"),
        ("pre-commit", "echo tidied >> src/app.py; git add src/app.py", "changed"),
        ("pre-commit", "git rm -q --cached README", "changed what was to be committed"),
    ],
)
def test_a_hook_that_objects_or_changes_things_is_a_no(hooked: Hooked, name: str, script: str, words: str) -> None:
    hooked.add(name, script)
    passed, said = hooked.ask()
    assert not passed
    assert words in said


def test_hooks_of_the_project_run_as_they_are_in_the_place(hooked: Hooked) -> None:
    hooked.track()
    assert hooked.ask() == (True, "tracked")


def by_its_own_settings(hooked: Hooked) -> None:
    hooked.track()


def by_settings_of_the_user(hooked: Hooked) -> None:
    hooked.track()
    hooked.desk.repo.git("config", "--unset", "core.hooksPath")
    hooked.desk.repo.git("config", "--global", "core.hooksPath", "./.githooks/")


def by_settings_that_are_included(hooked: Hooked) -> None:
    hooked.track()
    hooked.desk.repo.git("config", "--unset", "core.hooksPath")
    included = hooked.desk.repo.path.parent / "included"
    included.write_text("[core]\n\thooksPath = .githooks\n")
    hooked.desk.repo.git("config", "include.path", str(included))


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("backlog.hooks")
@pytest.mark.parametrize("found", [by_its_own_settings, by_settings_of_the_user, by_settings_that_are_included])
@pytest.mark.parametrize("change", ["edited", "added", "removed"])
def test_hooks_that_the_step_itself_changed_are_not_run(
    hooked: Hooked, found: Callable[[Hooked], None], change: str
) -> None:
    found(hooked)
    hook = hooked.desk.path / ".githooks" / ("commit-msg" if change == "added" else "pre-commit")
    if change == "removed":
        hook.unlink()
    else:
        hooked.add(hook.name, "touch ran", hook.parent)
    passed, said = hooked.ask()
    assert not passed
    assert said.startswith("The hooks themselves were changed: .githooks/")
    assert not (hooked.desk.path / "ran").exists()


def test_a_hook_that_hangs_is_a_no(desk: Desk) -> None:
    with ended_after(0.5) as run:
        hooked = Hooked(desk, run)
        hooked.add("pre-commit", "sleep 300")
        passed, said = hooked.ask()
    assert not passed
    assert "pre-commit hook refused" in said


def test_nothing_that_an_agent_leaves_in_the_place_is_run_by_us(desk: Desk, tmp_path: Path) -> None:
    desk.place.open_sandbox()
    marker = tmp_path / "ran"
    script = desk.agent.write("evil.sh", f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "filter.zz.clean", "filter.zz.smudge", "core.hooksPath"):
        desk.agent.git("config", key, str(script if key != "core.hooksPath" else desk.path))
    desk.agent.write(".gitattributes", "* filter=zz\n")
    for name in ("reference-transaction", "post-index-change", "post-checkout"):
        shutil.copy(script, desk.path / name)
    marker.unlink(missing_ok=True)
    desk.place.import_commits()
    point = desk.place.checkpoint("build#1")
    committed(desk)
    desk.again().restore(point)
    desk.again().salvage_and_reset("failed")
    assert not marker.exists()
    assert os.path.lexists(desk.path / ".git")
