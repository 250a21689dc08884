"""What the engine relies on in a place and in the branch that work is merged into, of git and of its stand-in alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsule.adapters import BranchStep, Place, Trunk
from capsule.core.errors import Refused, WorkspaceBroken
from capsule.core.evidence import Change
from capsule.core.merge_queue import BATCH
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.trunk import GitTrunk
from tests.conftest import Repo
from tests.memory_place import MemoryPlace, MemoryRepository, MemoryTrunk


@dataclass
class Situation:
    """A prepared place on a main of two files."""

    place: Place
    trunk: Trunk
    commit_on_main: Callable[..., str]
    commit_in_place: Callable[[list[str]], None]

    def __post_init__(self) -> None:
        self.base = self.trunk.tip()
        assert list(self.place.prepare(self.base)) == []

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.place.path / name).write_text(text)

    def commit(self, *paths: str) -> None:
        """As an agent does while it is in the place."""
        self.place.open_sandbox()
        self.commit_in_place(list(paths))
        self.place.import_commits()

    def text(self, tree: str, path: str) -> str:
        content = self.place.trees.read(tree, path)
        assert content is not None
        return content.decode()


def in_git(folder: Path, a_repo: Repo) -> Situation:
    git = Git.find(a_repo.path)
    exclude_artefacts(git, a_repo.head())
    place = GitWorktree(git, "x-1")

    def commit(paths: list[str]) -> None:
        a_repo.git("add", *paths, cwd=place.path)
        a_repo.git("commit", "-q", "-m", "work", cwd=place.path)

    return Situation(place, GitTrunk(git, "main"), a_repo.commit, commit)


def in_memory(folder: Path, a_repo: Repo) -> Situation:
    repository = MemoryRepository(folder / "memory")
    repository.commit_files("main", **{"src/app.py": "print('one')\n", "README": "hello\n"})
    place = MemoryPlace(repository, "x-1")

    def commit(paths: list[str]) -> None:
        (place.path / ".commit").write_text("\n".join(paths))

    return Situation(
        place,
        MemoryTrunk(repository, "main"),
        lambda word, **files: repository.commit_files("main", word, **files),
        commit,
    )


@pytest.fixture(params=[in_git, in_memory], ids=["git", "memory"])
def it(request: pytest.FixtureRequest, tmp_path: Path, a_repo: Repo) -> Situation:
    situation: Situation = request.param(tmp_path, a_repo)
    return situation


def test_a_place_starts_from_its_base_and_can_be_prepared_again(it: Situation) -> None:
    assert it.place.head() == it.base
    assert (it.place.path / "src/app.py").read_text() == "print('one')\n"
    assert it.place.trees.changes(it.base, it.place.tree()) == []
    it.write(README="work")
    assert list(it.place.prepare(it.base)) == []
    assert (it.place.path / "README").read_text() == "work"


def test_the_worklog_is_read_and_is_no_part_of_the_work(it: Situation) -> None:
    assert it.place.worklog() == ""
    it.place.write_worklog("# Log\n")
    assert it.place.worklog() == "# Log\n"
    assert it.place.trees.changes(it.base, it.place.tree()) == []
    checkpoint = it.place.checkpoint("one")
    assert it.text(checkpoint.commit, "worklog.md") == "# Log\n"
    assert it.place.trees.read(checkpoint.tree, "worklog.md") is None


def test_what_differs_is_told_by_path_and_kind(it: Situation) -> None:
    it.write(README="edited\n", new="n\n")
    (it.place.path / "src/app.py").unlink()
    assert list(it.place.trees.changes(it.base, it.place.tree())) == [
        Change("README", "M"), Change("new", "A"), Change("src/app.py", "D"),
    ]  # fmt: skip
    assert sorted(it.place.touched_outside_commit()) == ["README", "new", "src/app.py"]


def test_trees_are_looked_into(it: Situation) -> None:
    it.write(tool="#!/bin/sh\n")
    (it.place.path / "tool").chmod(0o755)
    (it.place.path / "link").symlink_to("README")
    tree = it.place.tree()
    assert {"README", "src/app.py", "tool", "link"} <= set(it.place.trees.files(tree))
    assert set(it.place.trees.odd_files(tree)) == {"tool", "link"}
    assert it.text(tree, "README") == "hello\n"
    assert it.place.trees.read(tree, "nothing") is None
    assert it.place.trees.test_cache_key(tree) == it.place.trees.test_cache_key(it.place.tree())


def test_a_place_goes_back_to_a_checkpoint_and_keeps_what_would_be_lost(it: Situation) -> None:
    it.write(new="first\n")
    it.place.write_worklog("# Log\n")
    checkpoint = it.place.checkpoint("one")
    assert it.place.restore(checkpoint) == ""
    it.place.open_sandbox()
    it.write(new="second\n", more="m\n")
    it.place.import_commits()
    kept = it.place.restore(checkpoint)
    assert kept.startswith("refs/capsule/salvage/x-1/")
    assert (it.place.path / "new").read_text() == "first\n"
    assert not (it.place.path / "more").exists()
    assert it.place.worklog() == "# Log\n"
    assert it.place.tree() == it.place.delivered(checkpoint) == checkpoint.tree


def test_a_missing_file_is_put_back_and_is_no_loss(it: Situation) -> None:
    checkpoint = it.place.checkpoint("one")
    it.place.open_sandbox()
    (it.place.path / "README").unlink()
    it.place.import_commits()
    assert it.place.restore(checkpoint) == ""
    assert (it.place.path / "README").exists()


def test_a_place_that_is_gone_is_broken_until_it_is_restored(it: Situation) -> None:
    import shutil

    checkpoint = it.place.checkpoint("one")
    it.place.open_sandbox()
    shutil.rmtree(it.place.path)
    with pytest.raises(WorkspaceBroken):
        it.place.import_commits()
    with pytest.raises(WorkspaceBroken):
        it.place.tree()
    it.place.restore(checkpoint)
    assert it.place.tree() == checkpoint.tree


def test_what_an_agent_commits_moves_the_head_and_going_back_takes_it_along(it: Situation) -> None:
    before = it.place.checkpoint("one")
    it.write(new="n\n", loose="l\n")
    it.commit("new")
    assert it.place.head() != it.base
    assert it.place.touched_outside_commit() == ["loose"]
    assert it.text(it.place.head(), "new") == "n\n"
    it.place.restore(before)
    assert it.place.head() == it.base


def test_a_step_is_committed_to_the_branch_once(it: Situation) -> None:
    it.write(new="n\n")
    checkpoint = it.place.checkpoint("one")
    assert it.place.commit_step(checkpoint, "A step", "build#1") is None
    head = it.place.head()
    assert it.text(head, "new") == "n\n"
    assert it.place.commit_step(checkpoint, "A step", "build#1") is None
    assert it.place.head() == head
    assert it.place.checkpoint_at(head).tree == checkpoint.tree


def test_what_a_change_brings_is_told_with_earlier_commits(it: Situation) -> None:
    it.write(new="secret\n")
    it.commit("new")
    it.write(new="nothing\n", README="hello\nmore\n")
    brought = {(file.path, file.added.strip()) for file in it.place.trees.added_files(it.place.tree())}
    assert brought == {("new", "secret"), ("new", "nothing"), ("README", "more")}


def test_the_gate_holds_exactly_a_tree(it: Situation) -> None:
    it.write(new="n\n")
    tree = it.place.tree()
    it.write(other="o\n")
    place, *_ = it.place.gate(tree)
    assert place != it.place.path
    assert (place / "new").read_text() == "n\n"
    assert not (place / "other").exists()


def test_what_a_person_changed_is_added_to_what_was_approved(it: Situation) -> None:
    it.write(approved="a\n")
    approved = it.place.tree()
    it.write(left="by an agent\n")
    left = it.place.tree()
    it.write(README="by a person\n")
    apply_human_edits = it.place.trees.apply_human_edits(approved, left, it.place.tree())
    assert it.text(apply_human_edits, "README") == "by a person\n"
    assert it.text(apply_human_edits, "approved") == "a\n"
    assert it.place.trees.read(apply_human_edits, "left") is None


def test_work_is_rebuilt_on_another_commit(it: Situation) -> None:
    it.write(new="n\n")
    it.place.write_worklog("# Log\n")
    tree, onto = it.place.tree(), it.commit_on_main("other", other="o\n")
    rebased = it.place.trees.rebased_tree(tree, onto)
    checkpoint, conflicts = it.place.rebase(onto)
    assert list(conflicts) == []
    assert checkpoint.tree == rebased == it.place.tree()
    assert it.place.head() == onto
    assert (it.place.path / "other").read_text() == "o\n"
    assert it.place.worklog() == "# Log\n"
    assert [change.path for change in it.place.trees.changes(onto, it.place.tree())] == ["new"]


def test_work_that_is_rebuilt_with_a_message_is_committed_unless_it_conflicts(it: Situation) -> None:
    it.write(new="n\n")
    onto = it.commit_on_main("other", other="o\n")
    checkpoint, _ = it.place.rebase(onto, "The work")
    assert it.place.head() == checkpoint.head != onto and not it.place.touched_outside_commit()
    it.write(other="mine\n")
    assert it.text(it.place.tree(), "other") == "mine\n"
    onto = it.commit_on_main("more", other="theirs\n")
    checkpoint, conflicts = it.place.rebase(onto, "The work")
    assert it.place.head() == checkpoint.head == onto and list(conflicts) == ["other"]


def test_a_conflict_is_named_and_holds_markers(it: Situation) -> None:
    it.write(README="work\n")
    _, conflicts = it.place.rebase(it.commit_on_main("other", README="main\n"))
    assert list(conflicts) == ["README"]
    text = (it.place.path / "README").read_text()
    assert "<<<<<<<" in text and "work\n" in text and "main\n" in text


def test_we_write_only_into_the_work(it: Situation) -> None:
    it.place.write("docs/new.md", b"words\n")
    assert it.text(it.place.tree(), "docs/new.md") == "words\n"
    for path in ("../elsewhere", "/tmp/elsewhere", "worklog.md", ".git/config"):
        with pytest.raises(Refused):
            it.place.write(path, b"")


def test_what_was_not_merged_is_salvaged_and_the_place_is_removed_for_good(it: Situation) -> None:
    assert it.place.salvage("nothing yet") == ""
    it.write(new="n\n")
    assert it.place.salvage("left").startswith("refs/capsule/salvage/x-1/")
    for _ in range(2):
        it.place.remove(branch=True)
        assert not it.place.path.exists()
    it.place.prepare(it.base)
    assert it.place.head() == it.base
    assert not (it.place.path / "new").exists()


# The branch that it is merged into


def test_work_is_merged_with_what_came_meanwhile(it: Situation) -> None:
    it.write(new="n\n")
    it.commit("new")
    other = it.commit_on_main("other", other="o\n")
    candidate = it.trunk.propose(it.place.head(), it.base, "Merge it")
    assert (candidate.onto, candidate.conflicts) == (other, ())
    assert {"new", "other", "README"} <= set(it.place.trees.files(candidate.tree))
    assert it.trunk.tip() == other
    assert not it.trunk.holds(candidate.commit)
    for _ in range(2):
        assert it.trunk.publish(candidate).moved
        assert it.trunk.tip() == candidate.commit
    assert it.trunk.holds(it.place.head()) and it.trunk.holds(it.base)


def test_the_same_merge_is_the_same_candidate(it: Situation) -> None:
    it.write(new="n\n")
    it.commit("new")
    once, again = (it.trunk.propose(it.place.head(), it.base, "Merge it") for _ in range(2))
    assert once == again


@pytest.mark.promise("merge.subject")
def test_the_commit_that_is_merged_has_the_subject_that_is_asked_for(it: Situation) -> None:
    it.write(new="n\n")
    it.commit("new")
    plain, titled, again = (
        it.trunk.propose(it.place.head(), it.base, "Merge it", subject=subject) for subject in ("", "x: it", "x: it")
    )
    assert plain.tree == titled.tree and plain.commit != titled.commit
    assert titled == again
    assert it.trunk.publish(titled).moved and not it.trunk.holds(it.place.head())


def test_a_candidate_is_published_only_onto_what_it_was_built_on(it: Situation) -> None:
    it.write(new="n\n")
    it.commit("new")
    candidate = it.trunk.propose(it.place.head(), it.base, "Merge it")
    other = it.commit_on_main("other", other="o\n")
    assert not it.trunk.publish(candidate).moved
    assert it.trunk.tip() == other


def test_a_conflict_is_named_and_not_published(it: Situation) -> None:
    it.write(README="work\n")
    it.commit("README")
    it.commit_on_main("other", README="main\n")
    candidate = it.trunk.propose(it.place.head(), it.base, "Merge it")
    assert candidate.conflicts == ("README",)
    with pytest.raises(Refused):
        it.trunk.publish(candidate)


def test_it_tells_how_the_branch_went_on_with_the_merges_that_a_batch_brought(it: Situation) -> None:
    it.write(new="n\n")
    it.commit("new")
    person = it.commit_on_main("By a person\n\nCapsule-Mission: of-nobody", other="o\n")
    first = it.trunk.propose(it.place.head(), it.base, "Merge it\n\nCapsule-Mission: first")
    it.write(more="m\n")
    it.commit("more")
    second = it.trunk.propose(it.place.head(), it.base, "Merge it\n\nCapsule-Mission: second", onto=first.commit)
    batch = it.trunk.gather(second.commit, person, f"Merge 2\n\n{BATCH}first, second\n")
    assert it.trunk.publish(batch).moved
    assert list(it.trunk.steps(it.base, it.trunk.tip())) == [
        BranchStep(person, f'{person[:12]} "By a person"'),
        BranchStep(first.commit, "first"),
        BranchStep(second.commit, "second"),
    ]
    assert not it.trunk.steps(it.trunk.tip(), it.trunk.tip())
