"""What a user may count on who lets a mission work in their own checkout: it stays theirs, whatever the agent does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from capsule.workspaces.checkout import Checkout
from capsule.workspaces.ours import note_as_ours, ours_on

from capsule.core.errors import CapsuleError, Refused
from capsule.core.evidence import Checkpoint
from capsule.system.git import Git
from capsule.system.process import Keeper
from capsule.workspaces import checkout as checkout_module
from capsule.workspaces.checkouts import bring_files
from capsule.workspaces.claim import agent_left_something
from capsule.workspaces.provision import RunSetup
from capsule.workspaces.shell import SupervisedShell
from capsule.workspaces.trunk import GitTrunk
from tests.costs import LONG, costs_below, processor_seconds

from ..conftest import Repo
from .test_workspaces import NAMES

OWN = ("ITEMS", "_worklog")


class Desk:
    """The user's checkout, a tracker's file in it, and an agent at work there."""

    def __init__(self, repo: Repo) -> None:
        repo.write("_worklog/2026-11.md", "# Worklog\n")
        repo.write("src/deep/old.py", "old\n")
        self.base = repo.commit("items", ITEMS="X-1 new\n")
        self.repo = repo
        self.path = repo.path
        self.place = self.again()

    def again(self, mission: str = "x-1") -> Checkout:
        """Another process: nothing remembered."""
        return Checkout(Git.find(self.repo.path), mission, artefacts=OWN)

    def begin(self) -> Desk:
        self.place.prepare(self.base)
        self.place.restore(self.start())
        return self

    def start(self) -> Checkpoint:
        return self.place.base_checkpoint(self.base)

    def work(self) -> None:
        """Something changed, removed, new, staged."""
        self.repo.write("src/app.py", "print('two')\n")
        self.repo.write("new/deep/file.py", "new\n")
        shutil.rmtree(self.path / "src/deep")
        self.repo.git("add", "new")

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.path.rglob("*") if ".git" not in path.parts and ".capsule" not in path.parts)
        return {str(path.relative_to(self.path)): path.read_bytes() for path in paths if path.is_file()}

    def salvaged(self) -> list[str]:
        return self.repo.refs("refs/capsule/salvage")

    def show(self, ref: str, path: str) -> str:
        return self.repo.git("show", f"{ref}:{path}")


@pytest.fixture
def desk(a_repo: Repo) -> Desk:
    return Desk(a_repo)


@pytest.fixture
def at_work(desk: Desk) -> Desk:
    """A phase has begun."""
    return desk.begin()


# Beginning


def test_a_mission_begins_without_a_trace_in_the_checkout(desk: Desk) -> None:
    before = desk.files()
    assert list(desk.place.prepare(desk.base)) == []
    assert (desk.place.path, desk.place.branch) == (desk.path, "main")
    assert desk.files() == before
    assert desk.repo.status() == ""
    assert desk.repo.head("refs/capsule/base/x-1") == desk.base
    desk.place.write_worklog("log")
    assert desk.again().worklog() == "log"
    assert (desk.path / ".capsule/missions/x-1/worklog.md").read_text() == "log"
    assert not (desk.path / "worklog.md").exists()


def test_a_dirty_tree_is_refused_by_name(desk: Desk) -> None:
    desk.repo.write("README", "my edit\n")
    for number in range(6):
        desk.repo.write(f"new-{number}", "new\n")
    with pytest.raises(Refused, match=r"not clean: README, new-0, .* and 2 more") as refused:
        desk.place.prepare(desk.base)
    assert "git stash -u" in refused.value.hint
    assert desk.repo.refs("refs/capsule") == []


def test_the_trackers_own_files_are_never_dirty(desk: Desk) -> None:
    desk.repo.write("ITEMS", "X-1 typed\n")
    desk.repo.write("_worklog/2026-12.md", "new month\n")
    desk.place.prepare(desk.base)
    assert desk.place.tree() == desk.repo.head("HEAD^{tree}")
    assert desk.place.touched_outside_commit() == []


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_an_edit_that_git_was_told_to_overlook_is_not_taken_for_work(desk: Desk, flag: str) -> None:
    desk.repo.git("update-index", flag, "README")
    desk.repo.write("README", "for my eyes only\n")
    assert desk.repo.status() == ""
    with pytest.raises(Refused, match="told not to look at: README"):
        desk.place.prepare(desk.base)


def detached(repo: Repo) -> None:
    repo.git("switch", "-q", "--detach")


def merging(repo: Repo) -> None:
    (repo.path / ".git/MERGE_HEAD").write_text(repo.head())


def unborn(repo: Repo) -> None:
    repo.git("switch", "-q", "--orphan", "empty")


@pytest.mark.parametrize(
    "state,words", [(detached, "detached"), (merging, "merge is under way"), (unborn, "no commits yet")]
)
def test_a_checkout_in_no_state_to_work_in_is_refused(desk: Desk, state: Callable[[Repo], None], words: str) -> None:
    state(desk.repo)
    with pytest.raises(CapsuleError, match=words) as refused:
        desk.again().prepare(desk.base)
    assert refused.value.hint
    assert desk.repo.refs("refs/capsule") == []


def test_a_base_that_is_not_checked_out_is_refused(desk: Desk) -> None:
    desk.repo.git("switch", "-q", "-c", "other", "HEAD~1")
    with pytest.raises(Refused, match="does not hold"):
        desk.again().prepare(desk.base)


def test_a_mission_under_way_goes_on_in_what_a_crash_left(at_work: Desk) -> None:
    at_work.work()
    left = at_work.files()
    assert list(at_work.again().prepare(at_work.base)) == []
    assert at_work.files() == left
    with pytest.raises(Refused, match="not clean"):
        at_work.again("x-2").prepare(at_work.base)


def test_a_user_who_switched_branches_meanwhile_is_not_overruled(at_work: Desk) -> None:
    at_work.repo.git("switch", "-q", "-c", "topic")
    at_work.repo.commit("topic work", topic="x")
    for ask in (at_work.again().head, at_work.again().tree, lambda: at_work.again().restore(at_work.start())):
        with pytest.raises(Refused, match="works on main, and topic is checked out") as refused:
            ask()
    assert "git switch main" in refused.value.hint
    assert at_work.repo.git("branch", "--show-current") == "topic"
    assert at_work.again().salvage("clean") == ""


# Naming


def test_a_checkpoint_holds_the_work_and_moves_nothing(at_work: Desk) -> None:
    at_work.work()
    at_work.repo.write("ITEMS", "X-1 bent\n")
    at_work.repo.write("x.pyc", "ignored")
    before = (at_work.files(), at_work.repo.status())
    point = at_work.place.checkpoint("build#1")
    changed = {change.path: change.kind for change in at_work.place.changes(point.head, point.tree)}
    assert changed == {"new/deep/file.py": "A", "src/app.py": "M", "src/deep/old.py": "D"}
    assert point.head == at_work.repo.head() == at_work.base
    assert at_work.place.delivered(point) == point.tree == at_work.repo.head(f"{point.commit}^{{tree}}")
    assert (at_work.files(), at_work.repo.status()) == before
    assert at_work.place.hand_over(point, "m", "k") == point


def test_what_tests_change_after_the_look_is_not_named(at_work: Desk) -> None:
    at_work.work()
    tree = at_work.place.tree()
    at_work.place.gate(tree)
    at_work.repo.write("src/app.py", "reached in from the gate\n")
    assert at_work.place.checkpoint("build#1").tree == tree


def test_names_of_any_kind_survive(at_work: Desk) -> None:
    for name in NAMES:
        (at_work.path / name).write_text("x")
    point = at_work.place.checkpoint("names")
    kept = at_work.place.withdraw("failed")
    assert not [name for name in NAMES if os.path.lexists(at_work.path / name)]
    assert at_work.repo.head(f"{kept}^{{tree}}") == point.tree
    at_work.place.restore(point)
    assert all((at_work.path / name).exists() for name in NAMES)


# A phase starts from a named state


def test_a_phase_after_a_commit_starts_from_a_clean_tree(at_work: Desk) -> None:
    at_work.work()
    commit = at_work.repo.commit("[X-1][BUILD] work\n\nCapsule-Step: x-1/build#1")
    settled = at_work.again().settled(commit)
    assert settled == Checkpoint(commit, commit, at_work.repo.head("HEAD^{tree}"))
    assert at_work.again().restore(settled) == ""
    assert at_work.repo.status() == ""


def test_refuted_work_is_there_again_for_the_next_try(at_work: Desk) -> None:
    at_work.work()
    wanted = at_work.files()
    point = at_work.place.checkpoint("build#1")
    assert at_work.place.restore(point) == ""
    assert at_work.files() == wanted
    at_work.place.withdraw("a pause")
    assert at_work.again().restore(point) == ""
    assert at_work.files() == wanted


def test_refuted_work_goes_on_top_of_what_was_booked_meanwhile(at_work: Desk) -> None:
    at_work.work()
    point = at_work.place.checkpoint("build#1")
    at_work.place.withdraw("a pause")
    tip = at_work.repo.commit("capsule add", ITEMS="X-1 new\nX-2 new\n")
    assert at_work.again().restore(point) == ""
    assert at_work.again().head() == tip
    assert (at_work.path / "ITEMS").read_text() == "X-1 new\nX-2 new\n"
    assert (at_work.path / "src/app.py").read_text() == "print('two')\n"


def test_work_that_is_committed_already_is_not_put_back(at_work: Desk) -> None:
    """Killed after the books were written and before that was journaled: the checkpoint is from before the commit."""
    at_work.work()
    point = at_work.place.checkpoint("build#1")
    at_work.repo.commit("[X-1][BUILD] work\n\nCapsule-Step: x-1/build#1")
    assert at_work.again().restore(point) == ""
    assert at_work.repo.status() == ""
    assert at_work.salvaged() == []


def test_writing_out_cut_short_is_finished(at_work: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work.work()
    wanted = at_work.files()
    point = at_work.place.checkpoint("build#1")
    at_work.place.withdraw("a pause")
    at_work.repo.write("src/app.py", "print('two')\n")  # one file was written, the others not yet
    assert at_work.again().restore(point) == ""
    assert at_work.files() == wanted


def test_a_head_that_was_noted_and_is_gone_is_not_believed(at_work: Desk) -> None:
    (at_work.repo.path / ".git/capsule/places/x-1/head").write_text("12" * 20)
    assert at_work.again().head() == at_work.base


def test_the_dirt_of_a_crash_is_kept_and_left_in_place(at_work: Desk) -> None:
    at_work.work()
    left = at_work.files()
    kept = at_work.again().restore(at_work.start())
    assert kept == "refs/capsule/salvage/x-1/1"
    assert at_work.files() == left
    assert at_work.show(kept, "new/deep/file.py") == "new"
    assert at_work.again().restore(at_work.start()) == kept
    assert at_work.salvaged() == [kept]
    assert {change.path for change in at_work.place.changes(at_work.base, at_work.place.tree())} == {
        "new/deep/file.py",
        "src/app.py",
        "src/deep/old.py",
    }


# What people do between the phases is theirs


@pytest.fixture
def paused(desk: Desk) -> Desk:
    """A step was booked, and the run has ended."""
    desk.begin()
    desk.repo.write("done.py", "done\n")
    desk.place.checkpoint("build#1")
    desk.base = booked(desk, "[X-1][BUILD] done\n\nCapsule-Step: x-1/build#1")
    desk.place.settled(desk.base)
    return desk


def committed(desk: Desk) -> None:
    desk.repo.commit("mine", README="mine\n")


def merged(desk: Desk) -> None:
    desk.repo.git("switch", "-q", "-c", "side")
    desk.repo.commit("side", side="x\n")
    desk.repo.git("switch", "-q", "main")
    desk.repo.git("merge", "-q", "--no-ff", "--no-edit", "side")


def undone(desk: Desk) -> None:
    desk.repo.git("reset", "-q", "--hard", "HEAD~1")


@pytest.mark.parametrize("theirs,later", [(committed, False), (committed, True), (merged, True), (undone, True)])
def test_what_the_user_did_to_the_branch_meanwhile_stays(
    paused: Desk, theirs: Callable[[Desk], None], later: bool
) -> None:
    theirs(paused)
    tip, files = paused.repo.head(), paused.files()
    place = paused.again() if later else paused.place
    assert place.restore(paused.start()) == ""
    assert place.head() == tip == paused.repo.head("main")
    assert paused.files() == files
    assert place.notices() == paused.salvaged() == []
    before = place.delivered(paused.start())
    assert place.changes(before, place.tree()) == place.changes(paused.base, place.tree()) == []


def test_what_the_user_committed_is_not_undone_by_work_from_before(desk: Desk) -> None:
    lines = [f"line {number}\n" for number in range(12)]
    desk.base = desk.repo.commit("lines", README="".join(lines), notes="one\n")
    desk.begin()
    desk.repo.write("README", "".join([*lines[:-1], "the agent's\n"]))
    desk.repo.write("notes", "the agent's\n")
    desk.repo.write("new", "the agent's\n")
    point = desk.place.checkpoint("build#1")
    desk.place.withdraw("a pause")
    desk.repo.commit("mine", README="".join(["mine\n", *lines[1:]]), notes="mine\n")
    place = desk.again()
    place.restore(point)
    assert (desk.path / "README").read_text().splitlines()[::11] == ["mine", "the agent's"]
    assert (desk.path / "notes").read_text() == "mine\n"
    assert (desk.path / "new").read_text() == "the agent's\n"
    assert "notes" in place.notices()[0]


@pytest.mark.parametrize("later", [False, True])
def test_what_the_user_has_not_committed_is_refused_and_left(paused: Desk, later: bool) -> None:
    paused.repo.write("README", "an hour of work\n")
    for number in range(6):
        paused.repo.write(f"new-{number}", "new\n")
    files = paused.files()
    place = paused.again() if later else paused.place
    with pytest.raises(Refused, match=r"not clean: README, new-0, .* and 2 more"):
        place.restore(paused.start())
    with pytest.raises(Refused, match=r"not clean: README, new-0, .* and 2 more"):
        place.prepare(paused.base)
    assert place.withdraw("stopped") == ""
    assert paused.files() == files
    assert not agent_left_something(Git.find(paused.path), "x-1")


@pytest.mark.parametrize("named", [False, True])
def test_it_is_known_whose_the_dirt_is(at_work: Desk, named: bool) -> None:
    """Also between naming a state and booking it: killed there, the work lies in the checkout and in no commit."""
    git = Git.find(at_work.path)
    at_work.work()
    if named:
        at_work.place.checkpoint("build#1")
    assert agent_left_something(git, "x-1")
    assert at_work.again().restore(at_work.start())
    at_work.place.withdraw("failed")
    assert not agent_left_something(git, "x-1")


def test_commits_after_a_named_state_are_the_users(at_work: Desk) -> None:
    at_work.work()
    at_work.place.checkpoint("build#1")
    at_work.repo.git("stash", "-q", "-u")
    tip = at_work.repo.commit("mine", mine="x\n")
    assert at_work.again().head() == tip


def test_what_a_test_commits_while_it_runs_is_taken_off(at_work: Desk) -> None:
    at_work.work()
    tree = at_work.place.tree()
    at_work.place.gate(tree)
    at_work.repo.commit("from the gate")
    assert at_work.place.checkpoint("build#1").tree == tree
    assert at_work.repo.head("main") == at_work.base


def test_a_place_whose_notes_and_refs_are_gone_is_made_again(paused: Desk) -> None:
    shutil.rmtree(paused.path / ".git/capsule/places")
    for ref in paused.repo.refs("refs/capsule"):
        paused.repo.git("update-ref", "-d", ref)
    place = paused.again()
    assert place.restore(place.base_checkpoint(paused.base)) == ""
    assert place.head() == paused.base
    paused.work()
    assert place.checkpoint("build#2").head == paused.base


# What an agent is judged by


@pytest.fixture
def ruled(desk: Desk) -> Desk:
    desk.repo.write(".capsule/config.yaml", "verify: strict\n")
    desk.repo.git("add", "-f", ".capsule/config.yaml")
    desk.base = desk.repo.commit("rules", **{"orchestrate.toml": "a = 1\n"})
    desk.repo.write(".git/info/exclude", ".capsule/prompts\n")
    desk.repo.write(".capsule/prompts/mine.md", "ignored by git, and mine\n")
    return desk.begin()


def rules_changed(desk: Desk) -> None:
    desk.repo.write(".capsule/config.yaml", "verify: off\n")
    desk.repo.write("orchestrate.toml", "a = 2\n")


def rules_gone(desk: Desk) -> None:
    shutil.rmtree(desk.path / ".capsule/prompts")
    (desk.path / ".capsule/config.yaml").unlink()


def rules_added(desk: Desk) -> None:
    desk.repo.write(".capsule/prompts/build.md", "evil\n")
    desk.repo.write(".capsule/workflows/change.yaml", "evil\n")


def rules_replaced(desk: Desk) -> None:
    rules_gone(desk)
    (desk.path / ".capsule/prompts").symlink_to(desk.path / "src")
    desk.repo.write(".capsule/config.yaml/inner", "x")


@pytest.mark.parametrize(
    "bend,crashed", [(rules_changed, False), (rules_gone, True), (rules_added, True), (rules_replaced, False)]
)
def test_settings_and_prompts_lie_there_as_before(ruled: Desk, bend: Callable[[Desk], None], crashed: bool) -> None:
    bend(ruled)
    place = ruled.again() if crashed else ruled.place
    assert place.touched_outside_commit() == []
    assert place.notices()[0].startswith("settings were changed")
    assert (ruled.path / ".capsule/config.yaml").read_text() == "verify: strict\n"
    assert (ruled.path / "orchestrate.toml").read_text() == "a = 1\n"
    assert [path.name for path in (ruled.path / ".capsule/prompts").iterdir()] == ["mine.md"]
    assert not (ruled.path / ".capsule/workflows/change.yaml").exists()
    assert place.head() == ruled.base
    assert place.notices() == []


def test_own_files_are_not_even_looked_at(at_work: Desk) -> None:
    """Otherwise git would be busy for a minute with five gigabytes of nothing."""
    (at_work.path / "ITEMS").unlink()
    os.mkfifo(at_work.path / "ITEMS")
    with (at_work.path / "_worklog/2026-12.md").open("wb") as file:
        file.truncate(5 * 1024**3)
    assert costs_below(5, at_work.place.touched_outside_commit, processor_seconds)
    assert at_work.place.touched_outside_commit() == []


# A step that failed


def test_withdrawn_work_is_kept_and_the_tree_is_as_before(at_work: Desk) -> None:
    before = at_work.files()
    at_work.work()
    at_work.repo.write("x.pyc", "ignored")
    at_work.repo.write("ITEMS", "X-1 typed\n")
    at_work.repo.write("_worklog/2026-12.md", "December\n")
    at_work.repo.git("add", "ITEMS")
    kept = at_work.place.withdraw("build failed")
    own = {"ITEMS": b"X-1 typed\n", "_worklog/2026-12.md": b"December\n", "x.pyc": b"ignored"}
    assert at_work.files() == before | own
    assert not (at_work.path / "new").exists()
    assert at_work.repo.status().splitlines() == ["M  ITEMS", "?? _worklog/2026-12.md"]
    assert at_work.show(kept, "src/app.py") == "print('two')"
    assert at_work.show(kept, "new/deep/file.py") == "new"
    assert "src/deep/old.py" not in at_work.repo.git("ls-tree", "-r", "--name-only", kept)
    assert at_work.place.withdraw("again") == ""
    at_work.place.restore(at_work.start())
    at_work.work()
    assert at_work.again().withdraw("build failed") == kept
    at_work.repo.fsck()


def test_what_is_ignored_is_the_users_to_say(at_work: Desk) -> None:
    """An agent that lifts an ignore rule must not have the user's `.env` taken away, nor hide its own files by one."""
    at_work.repo.write(".env", "SECRET=1\n")
    at_work.repo.write(".gitignore", "hidden\n")
    at_work.repo.write("hidden", "the agent's\n")
    at_work.repo.write("plain", "the agent's\n")
    at_work.place.checkpoint("build#1")
    kept = at_work.place.withdraw("failed")
    assert (at_work.path / ".env").read_text() == "SECRET=1\n"
    assert not (at_work.path / "hidden").exists()
    assert not (at_work.path / "plain").exists()
    assert at_work.show(kept, "hidden") == "the agent's"
    assert at_work.repo.status() == ""


def test_a_folder_turned_into_a_link_is_put_back_and_not_followed(at_work: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("untouched")
    before = at_work.files()
    shutil.rmtree(at_work.path / "src")
    (at_work.path / "src").symlink_to(outside)
    assert at_work.place.withdraw("failed")
    assert (outside / "app.py").read_text() == "untouched"
    assert at_work.files() == before
    assert at_work.repo.status() == ""


def test_files_turned_into_folders_and_back_are_put_right(at_work: Desk) -> None:
    before = at_work.files()
    (at_work.path / "README").unlink()
    at_work.repo.write("README/inner", "x")
    shutil.rmtree(at_work.path / "src")
    at_work.repo.write("src", "a file now")
    at_work.place.withdraw("failed")
    assert at_work.files() == before
    assert at_work.repo.status() == ""


def test_a_repository_that_an_agent_made_is_kept_and_goes(at_work: Desk) -> None:
    nested = Repo(at_work.path / "sub")
    nested.path.mkdir()
    nested.git("init", "-q")
    nested.commit("inner", file="precious")
    kept = at_work.place.withdraw("failed")
    assert at_work.show(kept, "sub/file") == "precious"
    assert not (at_work.path / "sub").exists()
    assert len(list((at_work.path / ".git/capsule/salvaged").iterdir())) == 1


def test_what_somebody_types_while_we_write_is_left_alone(at_work: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work.work()

    def typing(*args: object) -> list[str]:
        at_work.repo.write("src/app.py", "typed at this very moment\n")
        return bring_files(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(checkout_module, "bring_files", typing)
    at_work.place.withdraw("failed")
    assert (at_work.path / "src/app.py").read_text() == "typed at this very moment\n"
    assert "src/app.py" in at_work.place.notices()[0]


def test_a_withdrawal_cut_short_is_finished(at_work: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = at_work.files()
    at_work.work()

    def cut_short(*_: object) -> NoReturn:
        (at_work.path / "new/deep/file.py").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkout_module, "bring_files", cut_short)
        at_work.place.withdraw("failed")
    at_work.again().withdraw("failed")
    assert at_work.files() == before
    assert at_work.repo.status() == ""
    assert at_work.show(at_work.salvaged()[0], "new/deep/file.py") == "new"


# Commits that nobody asked for


def test_an_agents_commit_is_taken_off_the_branch_and_its_files_stay(at_work: Desk) -> None:
    at_work.work()
    left = at_work.files()
    unasked = at_work.repo.commit("I know better")
    assert at_work.place.head() == at_work.base == at_work.repo.head("main")
    assert at_work.files() == left
    assert set(at_work.place.touched_outside_commit()) == {"new/deep/file.py", "src/app.py", "src/deep/old.py"}
    [kept] = at_work.salvaged()
    assert at_work.repo.git("merge-base", "--is-ancestor", unasked, kept) == ""
    [told] = at_work.place.notices()
    assert kept in told
    assert at_work.place.notices() == []
    assert at_work.repo.git("diff", "--cached", "--name-only") == ""


def amended(desk: Desk) -> None:
    desk.repo.git("add", "-A")
    desk.repo.git("commit", "-q", "--amend", "-m", "better")


def reset_to_before(desk: Desk) -> None:
    desk.repo.git("reset", "-q", "--soft", "HEAD~1")


def on_a_branch_of_its_own(desk: Desk) -> None:
    desk.repo.git("switch", "-q", "-c", "feature")
    desk.repo.commit("on a branch")


def on_no_branch(desk: Desk) -> None:
    desk.repo.git("switch", "-q", "--detach")
    desk.repo.commit("on no branch")


def without_our_branch(desk: Desk) -> None:
    on_no_branch(desk)
    desk.repo.git("branch", "-D", "main")


def another_history(desk: Desk) -> None:
    desk.repo.git("checkout", "-q", "--orphan", "fresh")
    desk.repo.commit("from nothing")
    desk.repo.git("branch", "-M", "fresh", "main")


def in_the_middle_of_a_merge(desk: Desk) -> None:
    tip = desk.repo.git("commit-tree", "-p", "HEAD", "-m", "side", desk.repo.git("write-tree"))
    (desk.path / ".git/MERGE_HEAD").write_text(tip + "\n")
    (desk.path / ".git/MERGE_MSG").write_text("Merge\n")


@pytest.mark.parametrize(
    "astray",
    [
        amended,
        reset_to_before,
        on_a_branch_of_its_own,
        on_no_branch,
        without_our_branch,
        another_history,
        in_the_middle_of_a_merge,
    ],
)
def test_wherever_an_agent_takes_the_branch_it_comes_home(at_work: Desk, astray: Callable[[Desk], None]) -> None:
    at_work.work()
    left = at_work.files()
    astray(at_work)
    gone = at_work.repo.head()
    point = at_work.place.checkpoint("build#1")
    assert point.head == at_work.base == at_work.repo.head("main")
    assert at_work.repo.git("branch", "--show-current") == "main"
    assert at_work.files() == left
    assert {change.path for change in at_work.place.changes(point.head, point.tree)} == {
        "new/deep/file.py",
        "src/app.py",
        "src/deep/old.py",
    }
    assert at_work.place.notices()
    assert at_work.repo.git("for-each-ref", "--contains", gone)
    assert not list((at_work.path / ".git").glob("MERGE_*"))
    at_work.place.withdraw("failed")
    assert at_work.repo.status() == ""
    at_work.repo.fsck()


def test_a_conflict_that_an_agent_left_half_done_goes(at_work: Desk) -> None:
    before = at_work.files()
    at_work.repo.git("switch", "-q", "-c", "side")
    at_work.repo.commit("side", README="side\n")
    at_work.repo.git("switch", "-q", "main")
    at_work.repo.commit("mine", README="mine\n")
    assert subprocess.run(["git", "merge", "-q", "side"], cwd=at_work.path, capture_output=True, check=False).returncode
    assert "UU README" in at_work.repo.status()
    kept = at_work.place.withdraw("failed")
    assert "<<<<<<<" in at_work.show(kept, "README")
    assert at_work.repo.status() == ""
    assert at_work.files() == before


def booked(desk: Desk, message: str, **files: str) -> str:
    """A commit as the books make it: its id is noted."""
    commit = desk.repo.commit(message, **files)
    note_as_ours(Git.find(desk.path), commit, "main")
    return commit


def test_book_keeping_of_others_stays(at_work: Desk) -> None:
    tip = booked(at_work, "capsule add", ITEMS="X-1 new\nX-2 new\n")
    assert at_work.place.head() == tip
    assert at_work.place.notices() == at_work.salvaged() == []


def test_book_keeping_on_top_of_what_nobody_asked_for_stays(at_work: Desk) -> None:
    at_work.work()
    at_work.repo.commit("I know better")
    booked(at_work, "capsule add\n\nCapsule-Step: add/2", ITEMS="X-1 new\nX-2 new\n")
    head = at_work.place.head()
    assert at_work.repo.git("log", "--format=%s", f"{at_work.base}..main") == "capsule add"
    assert at_work.repo.git("diff-tree", "--name-only", "--no-commit-id", "-r", head) == "ITEMS"
    assert "Capsule-Step: add/2" in at_work.repo.git("log", "-1", "--format=%B")
    assert set(at_work.place.touched_outside_commit()) == {"new/deep/file.py", "src/app.py", "src/deep/old.py"}
    assert head in ours_on(Git.find(at_work.path), "main")  # built anew, and ours still


def a_step_of_its_own(desk: Desk) -> None:
    desk.work()
    desk.repo.commit("mine\n\nCapsule-Step: x-1/build#1")


def a_step_of_another(desk: Desk) -> None:
    desk.work()
    desk.repo.commit("mine\n\nCapsule-Step: x-2/build#1")


def book_keeping(desk: Desk) -> None:
    desk.repo.commit("[X-1] done", ITEMS="X-1 done\n")


def settings(desk: Desk) -> None:
    desk.repo.write(".capsule/config.yaml", "verify: off\n")
    desk.repo.git("add", "-f", ".capsule/config.yaml")
    desk.repo.git("commit", "-qm", "easier")


def a_merge(desk: Desk) -> None:
    desk.work()
    desk.repo.git("add", "-A")
    commit = desk.repo.git("commit-tree", "-p", "HEAD", "-m", "Merge x-2", desk.repo.git("write-tree"))
    desk.repo.git("update-ref", "-m", "capsule: merge", "refs/heads/main", commit)


def what_was_made_for_another_branch(desk: Desk) -> None:
    desk.work()
    note_as_ours(Git.find(desk.path), desk.repo.commit("a step over there"), "topic")


@pytest.mark.parametrize(
    "forge,crashed",
    [
        (a_step_of_its_own, False),
        (a_step_of_another, True),
        (book_keeping, False),
        (settings, False),
        (a_merge, True),
        (what_was_made_for_another_branch, False),
    ],
)
def test_an_agent_cannot_pass_for_a_step(at_work: Desk, forge: Callable[[Desk], None], crashed: bool) -> None:
    forge(at_work)
    place = at_work.again() if crashed else at_work.place
    assert place.head() == at_work.base == at_work.repo.head("main")
    [kept] = at_work.salvaged()
    assert kept in place.notices()[-1]
    place.withdraw("failed")
    assert at_work.repo.status() in ("", "M  ITEMS", "M ITEMS")  # the books look after that one


def published(desk: Desk, **files: str) -> str:
    """A mission in a worktree of its own is merged."""
    other = Repo(desk.path.parent / "other")
    desk.repo.git("worktree", "add", "-q", "-b", "work", str(other.path), desk.base)
    other.commit("the work", **files)
    trunk = GitTrunk(Git.find(desk.path), "main")
    candidate = trunk.propose(other.head(), desk.base, "Merge x-2: title")
    assert trunk.publish(candidate).moved
    return candidate.commit


def test_a_merge_that_was_published_meanwhile_stays(at_work: Desk) -> None:
    at_work.repo.write("src/app.py", "print('two')\n")
    merge = published(at_work, merged="x\n")
    assert at_work.place.head() == merge == at_work.repo.head()
    assert at_work.place.touched_outside_commit() == ["src/app.py"]
    assert at_work.place.notices() == at_work.salvaged() == []


def test_work_does_not_undo_a_merge_in_the_same_file(desk: Desk) -> None:
    lines = [f"line {number}\n" for number in range(12)]
    desk.base = desk.repo.commit("lines", README="".join(lines), src__txt="one\n")
    desk.begin()
    desk.repo.write("README", "".join([*lines[:-1], "the agent's\n"]))
    desk.repo.write("src.txt", "the agent's\n")
    merge = published(desk, README="".join(["the merge's\n", *lines[1:]]), src__txt="the merge's\n")
    point = desk.place.checkpoint("build#1")
    assert point.head == merge
    read = desk.place.read(point.tree, "README") or b""
    assert read.decode().splitlines()[::11] == ["the merge's", "the agent's"]
    assert (desk.path / "README").read_bytes() == read
    assert desk.place.read(point.tree, "src.txt") == b"the agent's\n"
    [told] = desk.place.notices()
    assert told.startswith("src.txt")


def test_nothing_the_agent_plants_is_run(at_work: Desk, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hook = at_work.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    hook.chmod(0o755)
    for name in ("post-commit", "reference-transaction", "post-index-change", "pre-commit"):
        shutil.copy(hook, hook.with_name(name))
    for key in ("core.fsmonitor", "filter.zz.clean", "filter.zz.smudge"):
        at_work.repo.git("config", key, str(hook))
    at_work.repo.write(".gitattributes", "* filter=zz\n")
    marker.unlink(missing_ok=True)
    at_work.repo.write("new", "x")
    point = at_work.again().checkpoint("a")
    at_work.again().gate(point.tree)
    at_work.again().restore(point)
    at_work.again().withdraw("failed")
    assert not marker.exists()


# Ending


def test_salvage_keeps_what_is_in_no_commit_and_leaves_it(at_work: Desk) -> None:
    assert at_work.again().salvage("abandoned") == ""
    at_work.work()
    left = at_work.files()
    kept = at_work.again().salvage("abandoned")
    assert at_work.show(kept, "src/app.py") == "print('two')"
    assert at_work.again().salvage("abandoned") == kept
    assert at_work.files() == left


def test_work_that_only_a_checkpoint_holds_is_salvaged(at_work: Desk) -> None:
    at_work.work()
    point = at_work.place.checkpoint("build#1")
    at_work.repo.git("reset", "-q", "--hard")
    shutil.rmtree(at_work.path / "new", ignore_errors=True)
    kept = at_work.again().salvage("abandoned")
    assert at_work.repo.git("merge-base", "--is-ancestor", point.commit, kept) == ""
    assert at_work.show(kept, "src/app.py") == "print('two')"


def test_what_was_withdrawn_or_committed_is_not_salvaged_again(at_work: Desk) -> None:
    at_work.work()
    at_work.place.checkpoint("build#1")
    kept = at_work.place.withdraw("failed")
    assert at_work.again().salvage("abandoned") == ""
    at_work.place.restore(at_work.start())
    at_work.repo.write("other", "x\n")
    at_work.place.checkpoint("build#2")
    at_work.place.settled(at_work.repo.commit("done\n\nCapsule-Step: x-1/build#2"))
    assert at_work.again().salvage("done") == ""
    assert at_work.salvaged() == [kept]


@pytest.mark.parametrize("branch", [True, False])
def test_remove_takes_our_things_and_nothing_else(at_work: Desk, branch: bool) -> None:
    at_work.work()
    left = at_work.files()
    point = at_work.place.checkpoint("build#1")
    at_work.place.gate(point.tree)
    for place in (at_work.again(), at_work.again()):
        place.remove(branch=branch)
    assert at_work.files() == left
    assert at_work.repo.refs("refs/capsule") == []
    assert at_work.repo.head("main") == at_work.base
    assert not (at_work.path / ".git/capsule/places/x-1").exists()
    assert len(at_work.repo.git("worktree", "list").splitlines()) == 1


def test_a_checkout_is_not_rebased(at_work: Desk) -> None:
    with pytest.raises(Refused, match="works in the checkout"):
        at_work.place.rebase(at_work.base)


def test_setup_runs_in_the_gate_and_never_in_the_users_checkout(desk: Desk) -> None:
    places: list[Path] = []
    place = Checkout(Git.find(desk.path), "x-1", setup="make", run_setup=lambda _, cwd, __: places.append(cwd))
    place.prepare(desk.base)
    gate = place.gate(place.tree())
    assert places == [gate]


# Hooks of the user's


@contextmanager
def ended_after(limit: float) -> Iterator[RunSetup]:
    with Keeper() as keeper:
        shell = SupervisedShell(keeper)

        def command(line: str, cwd: Path, log: Path) -> None:
            ran = shell.run(line, cwd, log, timeout=limit, env={})
            if ran.why != "exited" or ran.exit_code:
                raise CapsuleError(f"{ran.why} {ran.exit_code}")

        yield command


class Hooked:
    def __init__(self, desk: Desk, run: RunSetup) -> None:
        self.desk = desk
        self.place = Checkout(Git.find(desk.path), "x-1", artefacts=OWN, run_setup=run)

    def add(self, name: str, script: str) -> None:
        folder = self.desk.path / ".git/hooks"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    def ask(self) -> tuple[bool, str]:
        self.desk.begin()
        self.desk.work()
        return self.place.hooks(self.place.tree(), "[X-1][BUILD] work\n")


@pytest.fixture
def hooked(desk: Desk) -> Iterator[Hooked]:
    with ended_after(LONG) as run:
        yield Hooked(desk, run)


def test_no_hooks_are_no_objection(hooked: Hooked) -> None:
    assert hooked.ask() == (True, "")


def test_hooks_see_what_is_to_be_committed(hooked: Hooked) -> None:
    hooked.add("pre-commit", "git diff --cached --name-status; pwd")
    hooked.add("commit-msg", 'cat "$1"')
    passed, said = hooked.ask()
    assert passed
    listed = ["A\tnew/deep/file.py", "M\tsrc/app.py", "D\tsrc/deep/old.py"]
    assert said.splitlines() == [*listed, str(hooked.desk.path), "[X-1][BUILD] work"]
    assert hooked.desk.repo.status().splitlines()[0] == "A  new/deep/file.py"


def edited(hooked: Hooked) -> None:
    hooked.add("pre-commit", "exit 0")


def added(hooked: Hooked) -> None:
    hooked.add("commit-msg", "exit 0")


def moved(hooked: Hooked) -> None:
    hooked.desk.repo.git("config", "core.hooksPath", "src")


@pytest.mark.parametrize("bend", [edited, added, moved])
def test_hooks_that_changed_while_an_agent_was_at_work_do_not_run(
    hooked: Hooked, bend: Callable[[Hooked], None]
) -> None:
    hooked.add("pre-commit", "touch ran; exit 1")
    hooked.desk.begin()
    bend(hooked)
    assert hooked.place.hooks(hooked.place.tree(), "m") == (False, "the hooks were changed while an agent was at work")
    assert not (hooked.desk.path / "ran").exists()


def test_hooks_kept_elsewhere_are_found(hooked: Hooked, tmp_path: Path) -> None:
    hooked.add("pre-commit", "echo from elsewhere; exit 1")
    (hooked.desk.path / ".git/hooks").rename(tmp_path / "hooks")
    hooked.desk.repo.git("config", "core.hooksPath", str(tmp_path / "hooks"))
    passed, said = hooked.ask()
    assert not passed
    assert "from elsewhere" in said


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


def test_a_hook_that_hangs_is_a_no(desk: Desk) -> None:
    with ended_after(0.5) as run:
        hooked = Hooked(desk, run)
        hooked.add("pre-commit", "sleep 300")
        passed, said = hooked.ask()
    assert not passed
    assert "pre-commit hook refused" in said
