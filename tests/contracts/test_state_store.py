"""What everyone may count on when a tracker's state is committed: all or nothing, and no byte of anyone's lost."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from capsule.adapters import ClaimedState, StateCommit, StateStore, StateWritten
from capsule.core.assignment import Absent, Assign, Assignment, Exists, LogEntry
from capsule.core.errors import BranchMoved, CapsuleError, Conflicts, Overlap, Refused, TrackerError, TwinClosed
from capsule.core.evidence import Checkpoint
from capsule.core.item import Item, Status
from capsule.core.signal import FollowUp
from capsule.project import open_project, open_tracker
from capsule.system.files import CannotWrite
from capsule.system.git import Git
from capsule.system.lock import FileLock
from capsule.trackers.backlog import BacklogTracker
from capsule.trackers.memory import MemoryTracker
from capsule.workspaces import checkouts
from capsule.workspaces import state_store as store_module
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.state_store import GitStateStore, Read, open_state_store
from capsule.workspaces.stepwise_worktree import StepwiseWorktree

from ..conftest import Repo

OWN = ("ITEMS", "_worklog")
FIRST = "# ours and yours\nlast 1\nX-1 new\n"


def rewrite(
    read: Read, assignments: Sequence[Assignment], ids: Sequence[str], last_given: int = 0
) -> tuple[Mapping[str, bytes], tuple[str, ...], tuple[str, ...]]:
    """A tracker of lines, `X-1 new`: small, but it keeps every rule that a real one keeps."""
    lines = (read("ITEMS") or b"last 0\n").decode().splitlines()
    logs: dict[str, bytes] = {}
    added: list[str] = []
    known = list(ids)
    for what in assignments:
        if isinstance(what, Assign):
            lines = [f"{what.item} {what.values['status']}" if ln.startswith(f"{what.item} ") else ln for ln in lines]
        elif isinstance(what, Absent):
            lines = [line for line in lines if not line.startswith(f"{what.item} ")]
        elif isinstance(what, Exists):
            lines, name = _with_item(lines, str(what.values["title"]), known.pop(0) if known else "", last_given)
            added.append(name)
        elif isinstance(what, LogEntry):
            path = f"_worklog/{what.month}.md"
            there = logs.get(path, read(path) or b"")
            logs[path] = there if what.text.encode() in there else what.text.encode() + there
    content = ("\n".join(lines) + "\n").encode()
    changed = {"ITEMS": content, **logs}
    return {path: new for path, new in changed.items() if new != read(path)}, tuple(ids) or tuple(added), ()


def _with_item(lines: list[str], title: str, known: str, last_given: int) -> tuple[list[str], str]:
    at = next(number for number, line in enumerate(lines) if line.startswith("last "))
    last = int(lines[at].split()[1])
    if known and int(known[2:]) <= last:
        return lines, known
    last = max(last, 0 if known else last_given)
    name = f"X-{last + 1}"
    return [*lines[:at], f"last {last + 1}", *lines[at + 1 :], f"{name} {title}"], name


def understand(data: bytes) -> tuple[Mapping[str, Item], int]:
    """Lines that are no items, such as a comment, mean nothing; a status that there is not is a fault."""
    rows = [line.split() for line in data.decode().splitlines() if line and line[0] not in "#"]
    last = next((int(value) for name, value in rows if name == "last"), 0)
    try:
        return {name: Item(id=name, title="t", status=Status(word)) for name, word in rows if name != "last"}, last
    except ValueError as fault:
        raise TrackerError(str(fault)) from None


def now() -> str:
    return "2026-11-16T10:00:00Z"


class Office:
    """A project with a tracker's file in it."""

    def __init__(self, repo: Repo) -> None:
        self.repo = repo
        self.start = repo.commit("items", ITEMS=FIRST)
        self.state_store = self.again()

    def again(self) -> GitStateStore:
        """Another process: nothing remembered."""
        return GitStateStore(Git.find(self.repo.path), rewrite, understand, OWN, now)

    def items(self, ref: str = "") -> str:
        return self.repo.git("show", f"{ref}:ITEMS") + "\n" if ref else (self.repo.path / "ITEMS").read_text()

    def commits(self, since: str = "") -> list[str]:
        return self.repo.git("log", "--format=%s", f"{since or self.start}..HEAD").splitlines()

    def files_of(self, commit: str) -> list[str]:
        return self.repo.git("diff-tree", "--root", "--no-commit-id", "--name-only", "-r", commit).split()


@pytest.fixture
def office(a_repo: Repo) -> Office:
    return Office(a_repo)


def entry(status: str = "ready", key: str = "x-1/triage#1", *more: Assignment, **facts: object) -> StateCommit:
    known = {"work", "branch", "since", "judged", "twin"} & set(facts)
    assert known == set(facts)
    return StateCommit(key, f"[X-1][TRIAGE] {status}", (Assign("X-1", {"status": status}), *more), **facts)  # type: ignore[arg-type]


LOG = LogEntry("2026-11", "## X-1 | triage\n")
FOUND = Exists("x-1/triage#1/0", {"title": "found"})


def test_is_the_state_store(office: Office) -> None:
    adapter: StateStore = office.state_store
    assert adapter.write(entry()).commit == office.repo.head()


# One commit


@pytest.mark.promise("backlog.one-commit")
def test_state_worklog_and_follow_ups_are_one_commit(office: Office) -> None:
    booked = office.state_store.write(entry("ready", "x-1/triage#1", FOUND, LOG))
    assert booked == StateWritten(office.repo.head(), ("X-2",))
    assert office.commits() == ["[X-1][TRIAGE] ready"]
    assert office.files_of("HEAD") == ["ITEMS", "_worklog/2026-11.md"]
    assert office.items("HEAD") == office.items() == "# ours and yours\nlast 2\nX-1 ready\nX-2 found\n"
    assert office.repo.status() == ""
    said = office.repo.git("log", "-1", "--format=%an|%cI|%(trailers:only,unfold)")
    assert said == "Ada|2026-11-16T10:00:00+00:00|Capsule-Step: x-1/triage#1\nCapsule-Added: X-2"
    office.repo.fsck()


@pytest.mark.promise("backlog.killed-write")
def test_writing_it_again_changes_nothing(office: Office) -> None:
    once = office.state_store.write(entry("ready", "x-1/triage#1", FOUND, LOG))
    assert office.again().write(entry("ready", "x-1/triage#1", FOUND, LOG)) == once
    assert office.again().write(entry("ready", "x-1/triage#1", FOUND, since=office.start)) == once
    assert office.commits() == ["[X-1][TRIAGE] ready"]
    assert office.items() == office.items("HEAD")


def test_an_entry_repeated_late_does_not_turn_back_what_came_after(office: Office) -> None:
    office.state_store.write(entry("ready"))
    office.state_store.write(entry("done", "x-1/build#1"))
    office.again().write(entry("ready"))
    assert office.items() == office.items("HEAD") == "# ours and yours\nlast 1\nX-1 done\n"


def test_a_step_before_the_one_we_start_from_is_not_taken_for_ours(office: Office) -> None:
    first = office.state_store.write(entry("ready"))
    second = office.state_store.write(entry("done", since=first.commit))
    assert second.commit not in ("", first.commit)


def test_words_of_an_agent_are_no_trailers(office: Office) -> None:
    sly = StateCommit("a", "sly\n\nCapsule-Step: b\nCapsule-Added: X-9", (Assign("X-1", {"status": "one"}),))
    office.state_store.write(sly)
    booked = office.state_store.write(entry("two", "b"))
    assert booked == StateWritten(office.repo.head())
    assert len(office.commits()) == 2


def test_nothing_that_differs_makes_no_commit(office: Office) -> None:
    assert office.state_store.write(entry("new")) == StateWritten("")
    assert office.commits() == []


def test_only_the_file_is_changed_where_no_commit_is_wanted(office: Office) -> None:
    assert office.state_store.write(entry("ready", "k", FOUND), commit=False) == StateWritten("", ("X-2",))
    assert office.commits() == []
    assert office.repo.status() == "M ITEMS"
    assert "X-2 found" in office.items()


def test_works_without_any_commit(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    repo.git("init", "-q", "-b", "trunk")
    repo.write("ITEMS", FIRST)
    repo.write("mine.txt", "mine")
    booked = GitStateStore(Git.find(tmp_path), rewrite, understand, OWN, now).write(entry("ready"))
    assert repo.git("log", "--format=%H %P %D") == f"{booked.commit}  HEAD -> trunk"
    assert repo.git("ls-tree", "-r", "--name-only", "HEAD") == "ITEMS"
    assert repo.status() == "?? mine.txt"


def test_a_detached_head_is_refused_and_nothing_is_changed(office: Office) -> None:
    office.repo.git("switch", "-q", "--detach")
    with pytest.raises(Refused, match="detached") as refused:
        office.state_store.write(entry())
    assert "git switch" in refused.value.hint
    assert office.items() == FIRST


def test_a_branch_that_is_not_there_is_refused(office: Office) -> None:
    with pytest.raises(Refused, match="no branch nowhere"):
        office.state_store.write(entry(branch="nowhere"))


def test_a_merge_under_way_is_not_disturbed(office: Office) -> None:
    (office.repo.path / ".git/MERGE_HEAD").write_text(office.start)
    with pytest.raises(Refused, match="merge is under way"):
        office.state_store.write(entry())
    assert office.repo.head() == office.start
    assert office.items() == FIRST
    (office.repo.path / ".git/MERGE_HEAD").unlink()
    office.state_store.write(entry())
    assert office.items() == office.items("HEAD")


def test_somebody_who_has_the_store_is_waited_for(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkouts, "_LOCK_WAIT", 0.1)
    with FileLock(office.repo.path / ".git/capsule/locks/backlog.lock"), pytest.raises(CapsuleError, match="locked"):
        office.state_store.write(entry())
    assert office.items() == FIRST


def test_writers_side_by_side_lose_nothing(office: Office) -> None:
    def add(number: int) -> None:
        found = Exists(f"k{number}", {"title": f"title-{number}"})
        office.again().write(StateCommit(f"add/{number}", f"add {number}", (found,)))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert office.items() == office.items("HEAD")
    assert sorted(line.split()[0] for line in office.items().splitlines()[2:]) == ["X-1", "X-2", "X-3", "X-4", "X-5"]
    assert len(office.commits()) == 4


def test_somebody_quicker_on_the_branch_is_built_upon(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    build = GitStateStore._build
    rounds: list[str] = []

    def overtaken(self: GitStateStore, *args: object) -> object:
        built = build(self, *args)  # type: ignore[arg-type]
        if not rounds:
            rounds.append(office.repo.commit("quicker", other="theirs"))
        return built

    monkeypatch.setattr(GitStateStore, "_build", overtaken)
    booked = office.state_store.write(entry())
    assert office.repo.head(f"{booked.commit}^") == rounds[0]
    assert office.files_of("HEAD") == ["ITEMS"]


# The work goes along


LINES = [f"line {number}\n" for number in range(12)]


def lines(**changed: str) -> str:
    """Twelve lines, some of them otherwise: `at_3="three"`."""
    return "".join(changed.get(f"at_{number}", line.rstrip("\n")) + "\n" for number, line in enumerate(LINES))


class Worked:
    """A mission whose steps go to main, and an agent's work in its place."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.repo = office.repo
        office.repo.write("_worklog/2026-10.md", "# October\n")
        office.start = office.repo.commit("october", gone="old\n", long="".join(LINES))
        git = Git.find(office.repo.path)
        exclude_artefacts(git, office.start)
        self.place = StepwiseWorktree(git, "x-1", into="main", artefacts=OWN)
        self.place.prepare(office.start)
        self.agent = Repo(self.place.path)

    def work(self, **files: str) -> Checkpoint:
        for name, text in files.items():
            self.agent.write(name, text)
        return self.place.checkpoint("build#1")

    def write(self, work: Checkpoint, **facts: object) -> StateWritten:
        handed = self.place.commit_step(work, "m", "k")
        return self.office.state_store.write(entry("done", "x-1/build#1", work=handed, branch="main", **facts))

    def judged(self, work: Checkpoint, tip: str) -> str:
        """What the work is judged as, together with what the branch holds at `tip`."""
        return self.place.trees.test_cache_key(self.office.state_store.combined(work, tip))


@pytest.fixture
def worked(office: Office) -> Worked:
    return Worked(office)


@pytest.mark.promise("backlog.one-commit", "004-commands.git-formats")
def test_work_and_state_are_one_commit_of_exactly_their_paths(worked: Worked) -> None:
    office, place = worked.office, worked.place
    worked.agent.write("src/app.py", "print('two')\n")
    worked.agent.write("new dir/ü.py", "new\n")
    (place.path / "gone").unlink()
    point = place.checkpoint("build#1")
    worked.agent.write("later.txt", "after the checkpoint\n")
    handed = place.commit_step(point, "m", "k")
    booked = office.state_store.write(entry("done", "x-1/build#1", LOG, work=handed, branch="main"))
    listed = office.repo.git("-c", "core.quotePath=false", "diff", "--name-only", f"{booked.commit}^", booked.commit)
    assert listed.splitlines() == ["ITEMS", "_worklog/2026-11.md", "gone", "new dir/ü.py", "src/app.py"]
    assert office.repo.status() == ""
    assert (office.repo.path / "src/app.py").read_text() == "print('two')\n"
    assert not (office.repo.path / "gone").exists()
    landed = place.checkpoint_at(booked.commit)
    assert landed == Checkpoint(booked.commit, booked.commit, office.repo.head("HEAD^{tree}"))
    assert office.repo.git("show", f"{place.restore(landed)}:later.txt") == "after the checkpoint"
    assert worked.agent.status() == ""


def test_own_files_and_artefacts_are_never_taken_from_the_work(office: Office) -> None:
    office.repo.write("BACKLOG.yaml", "bent")
    office.repo.write("_worklog/2026-10.md", "bent")
    office.repo.git("add", "-f", "BACKLOG.yaml", "_worklog")
    tree = office.repo.git("write-tree")
    booked = office.state_store.write(entry("done", work=Checkpoint(office.start, office.start, tree)))
    assert not {"BACKLOG.yaml", "_worklog/2026-10.md"} & set(office.files_of(booked.commit))


def test_work_beside_what_the_branch_changed_meanwhile_is_merged(worked: Worked) -> None:
    point = worked.work(long=lines(at_1="the work's"), **{"src/app.py": "print('two')\n"})
    tip = worked.repo.commit("theirs", long=lines(at_10="theirs"), README="theirs\n")
    booked = worked.write(point)
    assert worked.repo.head(f"{booked.commit}^") == tip
    assert (worked.repo.path / "long").read_text() == lines(at_1="the work's", at_10="theirs")
    assert (worked.repo.path / "README").read_text() == "theirs\n"
    assert worked.repo.status() == ""


@pytest.mark.parametrize(
    "theirs",
    [
        lambda repo: repo.commit("theirs", long=lines(at_1="theirs")),
        lambda repo: repo.git("rm", "-q", "long") or repo.commit("gone"),
        lambda repo: repo.commit("theirs", new="theirs\n"),
    ],
    ids=["the same line", "the file is gone", "a file of the same name"],
)
def test_work_on_lines_that_the_branch_changed_meanwhile_conflicts(
    worked: Worked, theirs: Callable[[Repo], str]
) -> None:
    point = worked.work(long=lines(at_1="the work's"), new="the work's\n")
    tip = theirs(worked.repo)
    with pytest.raises(Conflicts) as found:
        worked.write(point)
    assert set(found.value.paths) <= {"long", "new"} and found.value.paths
    assert worked.repo.head() == tip
    assert "X-1 new" in worked.office.items()
    assert not (worked.repo.path / ".git/capsule/books.json").exists()


def test_work_that_the_branch_has_already_is_no_conflict(worked: Worked) -> None:
    point = worked.work(new="the same\n")
    worked.repo.commit("theirs", new="the same\n")
    assert worked.office.files_of(worked.write(point).commit) == ["ITEMS"]


def test_work_is_committed_only_together_with_what_it_was_judged_with(worked: Worked) -> None:
    point = worked.work(new="new\n")
    judged = worked.judged(point, worked.office.start)
    tip = worked.repo.commit("theirs", README="theirs\n")
    with pytest.raises(BranchMoved):
        worked.write(point, judged=judged)
    assert worked.repo.head() == tip
    booked = worked.write(point, judged=worked.judged(point, tip))
    assert worked.repo.head(f"{booked.commit}^") == tip


def test_a_branch_that_moves_between_the_judgement_and_the_swap_is_noticed(
    worked: Worked, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = worked.work(new="new\n")
    judged = worked.judged(point, worked.office.start)
    swap = GitStateStore._swap

    def overtaken(*args: Any) -> bool:
        if worked.repo.head() == worked.office.start:
            worked.repo.commit("quicker", README="theirs\n")
        return swap(*args)

    monkeypatch.setattr(GitStateStore, "_swap", overtaken)
    with pytest.raises(BranchMoved):
        worked.write(point, judged=judged)
    assert worked.repo.git("log", "-1", "--format=%s") == "quicker"


def test_book_keeping_of_others_is_no_move_of_the_branch(worked: Worked) -> None:
    point = worked.work(new="new\n")
    judged = worked.judged(point, worked.office.start)
    worked.office.again().write(StateCommit("add/1", "add", (Exists("k", {"title": "another"}),)))
    assert worked.write(point, judged=judged).commit == worked.repo.head()


@pytest.mark.promise("backlog.duplicate")
def test_an_item_is_not_closed_as_the_duplicate_of_one_that_is_closed(office: Office) -> None:
    store = GitStateStore(
        Git.find(office.repo.path),
        rewrite,
        understand,
        OWN,
        now,
        closed_as=lambda name: {"X-2": "duplicate of X-1"}.get(name, ""),
    )
    with pytest.raises(TwinClosed, match="X-2 was closed itself: duplicate of X-1"):
        store.write(entry(twin="X-2"))
    assert office.commits() == []
    before_it = office.state_store.write(entry()).commit
    assert store.write(entry(twin="X-2")).commit == before_it, "it was closed first, and the process was killed"


# The user is at work in the checkout


def unstaged(repo: Repo) -> None:
    repo.write("README", "an hour of typing\n")


def staged(repo: Repo) -> None:
    unstaged(repo)
    repo.git("add", "README")


def staged_and_turned_back_on_disk(repo: Repo) -> None:
    staged(repo)
    repo.write("README", "hello\n")


def deleted(repo: Repo) -> None:
    (repo.path / "README").unlink()


def untracked_in_the_way(repo: Repo) -> None:
    repo.write("new", "mine, never added\n")


def a_folder_behind_a_link(repo: Repo) -> None:
    (repo.path / "src").rename(repo.path.parent / "elsewhere")
    (repo.path / "src").symlink_to(repo.path.parent / "elsewhere")


def assumed_unchanged(repo: Repo) -> None:
    repo.git("update-index", "--assume-unchanged", "README")
    unstaged(repo)


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize(
    "edit,path",
    [
        (unstaged, "README"),
        (staged, "README"),
        (staged_and_turned_back_on_disk, "README"),
        (deleted, "README"),
        (untracked_in_the_way, "new"),
        (a_folder_behind_a_link, "src/app.py"),
        (assumed_unchanged, "README"),
    ],
)
def test_a_file_that_the_user_has_edited_keeps_the_branch_where_it_is(
    worked: Worked, edit: Callable[[Repo], None], path: str
) -> None:
    point = worked.work(README="the work's\n", new="the work's\n", **{"src/app.py": "the work's\n"})
    edit(worked.repo)
    before, held = worked.repo.status(), worked.office.items()
    with pytest.raises(Overlap) as found:
        worked.write(point)
    assert found.value.paths == (path,)
    assert path in found.value.message
    assert worked.repo.head() == worked.office.start
    assert (worked.repo.status(), worked.office.items()) == (before, held)
    worked.office.again().finish()
    assert worked.office.items() == held


def test_a_step_goes_on_once_the_user_has_committed(worked: Worked) -> None:
    point = worked.work(long=lines(at_1="the work's"))
    worked.repo.write("long", lines(at_10="mine"))
    with pytest.raises(Overlap):
        worked.write(point)
    worked.repo.commit("mine")
    worked.write(point)
    assert (worked.repo.path / "long").read_text() == lines(at_1="the work's", at_10="mine")


def test_edits_of_other_files_are_no_obstacle_and_keep_their_bytes(worked: Worked) -> None:
    point = worked.work(new="the work's\n")
    worked.repo.write("README", "mine\n")
    worked.repo.write("staged", "mine\n")
    worked.repo.git("add", "staged")
    assert worked.write(point).warnings == ()
    assert worked.repo.status().splitlines() == ["M README", "A  staged"]
    assert worked.repo.git("show", "--name-only", "--format=", "HEAD").split() == ["ITEMS", "new"]


def test_an_edit_that_is_the_work_itself_is_no_obstacle(worked: Worked) -> None:
    point = worked.work(README="the same\n", new="the same\n")
    worked.repo.write("README", "the same\n")
    worked.repo.write("new", "the same\n")
    worked.repo.git("add", "new")
    assert worked.write(point).warnings == ()
    assert worked.repo.status() == ""


def test_own_files_are_no_obstacle_however_they_were_edited(worked: Worked) -> None:
    point = worked.work(new="the work's\n")
    worked.repo.write("ITEMS", FIRST + "# typed\n")
    worked.repo.git("add", "ITEMS")
    worked.repo.write("ITEMS", FIRST + "# typed, and more\n")
    worked.repo.write("_worklog/2026-10.md", "# mine\n")
    worked.write(point)
    assert worked.office.items() == worked.office.items("HEAD") == FIRST.replace("new", "done") + "# typed, and more\n"
    assert worked.repo.git("show", "HEAD:new") == "the work's"


def test_edits_in_a_linked_worktree_on_the_branch_count_too(worked: Worked, tmp_path: Path) -> None:
    worked.repo.git("switch", "-q", "-c", "topic")
    elsewhere = Repo(tmp_path / "elsewhere")
    worked.repo.git("worktree", "add", "-q", str(elsewhere.path), "main")
    point = worked.work(README="the work's\n")
    elsewhere.write("README", "mine\n")
    with pytest.raises(Overlap):
        worked.write(point)
    assert worked.repo.head("main") == worked.office.start


def test_a_user_on_another_branch_is_not_disturbed(worked: Worked) -> None:
    """Its files are another branch's: nothing of the step is for them."""
    point = worked.work(README="the work's\n", new="the work's\n")
    worked.repo.git("switch", "-q", "-c", "topic", "HEAD~1")
    worked.repo.commit("topic", README="the topic's\n", ITEMS="# another list\nlast 7\nX-1 new\n")
    worked.repo.write("src/app.py", "mine\n")
    before = (worked.repo.status(), worked.office.items())
    booked = worked.write(point)
    assert worked.repo.head("main") == booked.commit
    assert (worked.repo.status(), worked.office.items()) == before
    assert worked.repo.git("show", "main:README") == "the work's"
    assert "X-1 done" in worked.office.items("main")
    worked.repo.git("stash", "-q")
    worked.repo.git("switch", "-q", "main")
    assert worked.repo.status() == ""


def test_a_backlog_is_read_from_its_branch_once_the_user_is_on_another(a_repo: Repo) -> None:
    def backlog(status: str) -> str:
        return f"schema_version: 1\nlast_id: 1\nitems:\n- id: WRK-001\n  title: t\n  status: {status}\n"

    a_repo.git("branch", "topic")
    a_repo.commit("backlog", **{"BACKLOG.yaml": backlog("new")})
    project = open_project(str(a_repo.path))
    tracker = open_tracker(project)
    state_store = open_state_store(tracker, project.git, project.branch)
    assert state_store and tracker.item("WRK-001").status is Status.NEW
    a_repo.git("switch", "-q", "topic")
    assert not (a_repo.path / "BACKLOG.yaml").exists()
    state_store.write(StateCommit("k", "m", (Assign("WRK-001", {"status": "scoped"}),), branch="main"))
    assert tracker.item("WRK-001").status is Status.SCOPED
    assert a_repo.status() == ""
    assert not (a_repo.path / "BACKLOG.yaml").exists()
    a_repo.git("switch", "-q", "main")
    a_repo.write("BACKLOG.yaml", backlog("ready"))
    assert tracker.item("WRK-001").status is Status.READY


def test_a_user_who_switches_between_the_swap_and_the_save_is_not_disturbed(
    worked: Worked, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked.repo.git("branch", "topic", "HEAD~1")
    point = worked.work(README="the work's\n")
    dies_at(worked.office, monkeypatch, "after the swap", entry("done", work=point, branch="main"))
    worked.repo.git("checkout", "-q", "-f", "topic")
    before = (worked.repo.status(), worked.office.items())
    GitStateStore(Git.find(worked.repo.path), rewrite, understand, OWN, now).finish()
    assert (worked.repo.status(), worked.office.items()) == before
    worked.repo.git("switch", "-q", "main")
    assert worked.repo.status() == ""
    assert "X-1 done" in worked.office.items()


# People have the file too


def test_what_was_typed_and_not_committed_is_committed_along(office: Office) -> None:
    office.repo.write("ITEMS", FIRST + "# a thought\n")
    office.state_store.write(entry("ready"))
    assert office.items() == office.items("HEAD") == "# ours and yours\nlast 1\nX-1 ready\n# a thought\n"
    assert office.repo.status() == ""


def test_what_was_typed_between_the_swap_and_the_save_stays_and_is_not_committed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = GitStateStore._swap

    def swap_and_type(*args: Any) -> bool:
        office.repo.write("ITEMS", FIRST + "# just now\n")
        return swap(*args)

    monkeypatch.setattr(GitStateStore, "_swap", swap_and_type)
    office.state_store.write(entry("ready", "k", FOUND))
    assert office.items("HEAD") == "# ours and yours\nlast 2\nX-1 ready\nX-2 found\n"
    assert office.items() == "# ours and yours\nlast 2\nX-1 ready\n# just now\nX-2 found\n"
    assert office.repo.status() == "M ITEMS"


def test_what_nobody_touched_meanwhile_is_worked_out_once(office: Office) -> None:
    asked: list[Sequence[str]] = []

    def counted(read: Any, assignments: Sequence[Assignment], ids: Sequence[str], last: int) -> Any:
        asked.append(ids)
        return rewrite(read, assignments, ids, last)

    GitStateStore(Git.find(office.repo.path), counted, understand, OWN, now).write(entry("ready", "k", FOUND))
    assert office.items() == office.items("HEAD") == "# ours and yours\nlast 2\nX-1 ready\nX-2 found\n"
    assert asked == [()]


def test_what_somebody_did_by_hand_already_is_committed_all_the_same(office: Office) -> None:
    office.repo.write("ITEMS", FIRST.replace("new", "ready"))
    booked = office.state_store.write(entry("ready"))
    assert office.items("HEAD") == office.items() == "# ours and yours\nlast 1\nX-1 ready\n"
    assert office.repo.git("log", "-1", "--format=%H", "--grep=Capsule-Step: x-1/triage#1") == booked.commit


@pytest.mark.promise("004-commands.git-formats")
def test_other_edits_and_what_is_staged_stay_as_they_are(office: Office) -> None:
    office.repo.write("README", "my edit\n")
    office.repo.write("staged", "staged\n")
    office.repo.git("add", "staged")
    office.repo.write("loose", "loose\n")
    booked = office.state_store.write(entry("ready"))
    assert office.files_of(booked.commit) == ["ITEMS"]
    assert office.repo.status().splitlines() == ["M README", "A  staged", "?? loose"]


def test_the_files_mode_survives(office: Office) -> None:
    (office.repo.path / "ITEMS").chmod(0o600)
    office.state_store.write(entry("ready"))
    assert stat.S_IMODE((office.repo.path / "ITEMS").stat().st_mode) == 0o600
    assert office.repo.git("ls-tree", "HEAD", "ITEMS").startswith("100644")


def test_line_ends_are_as_the_user_has_them(office: Office) -> None:
    office.repo.git("config", "core.autocrlf", "true")
    (office.repo.path / ".git/capsule/git/settings").unlink(missing_ok=True)
    (office.repo.path / "ITEMS").write_bytes(FIRST.replace("\n", "\r\n").encode())

    def with_crlf(read: Read, *rest: object) -> tuple[Mapping[str, bytes], tuple[str, ...], tuple[str, ...]]:
        lf: Read = lambda path: (read(path) or b"").replace(b"\r\n", b"\n")  # noqa: E731
        contents, added, _ = rewrite(lf, *rest)  # type: ignore[arg-type]
        return {path: content.replace(b"\n", b"\r\n") for path, content in contents.items()}, added, ()

    GitStateStore(Git.find(office.repo.path), with_crlf, understand, OWN, now).write(entry("ready"))
    assert (office.repo.path / "ITEMS").read_bytes() == b"# ours and yours\r\nlast 1\r\nX-1 ready\r\n"
    assert office.repo.git("cat-file", "blob", "HEAD:ITEMS") == "# ours and yours\nlast 1\nX-1 ready"
    assert office.repo.status() == ""


def a_link_for_the_file(office: Office, outside: Path) -> None:
    (office.repo.path / "ITEMS").rename(outside / "ITEMS")
    (office.repo.path / "ITEMS").symlink_to(outside / "ITEMS")


def a_link_for_the_folder(office: Office, outside: Path) -> None:
    (office.repo.path / "_worklog").symlink_to(outside)


def a_pipe_for_the_file(office: Office, outside: Path) -> None:
    (office.repo.path / "ITEMS").unlink()
    os.mkfifo(office.repo.path / "ITEMS")


@pytest.mark.parametrize("plant", [a_link_for_the_file, a_link_for_the_folder, a_pipe_for_the_file])
@pytest.mark.parametrize("commit", [True, False])
def test_nothing_is_read_or_written_through_a_link(
    office: Office, tmp_path: Path, plant: Callable[[Office, Path], None], commit: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    plant(office, outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    with pytest.raises(Refused):
        office.state_store.write(entry("ready", "k", LOG), commit=commit)
    assert office.repo.head() == office.start
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


def test_a_link_is_refused_before_another_branch_moves(office: Office, tmp_path: Path) -> None:
    office.repo.git("switch", "-q", "-c", "topic")
    a_link_for_the_file(office, tmp_path)
    with pytest.raises(Refused, match="link"):
        office.state_store.write(entry("ready", branch="main"))
    assert office.repo.head("main") == office.start
    assert (tmp_path / "ITEMS").read_text() == FIRST


def test_a_step_that_an_agent_claims_in_a_commit_that_was_merged_is_not_adopted(office: Office) -> None:
    office.repo.git("switch", "-q", "-c", "capsule-x-2")
    office.repo.commit("mine\n\nCapsule-Step: x-1/triage#1", other="x\n")
    office.repo.git("switch", "-q", "main")
    office.repo.git("merge", "-q", "--no-ff", "-m", "Merge x-2", "capsule-x-2")
    merged = office.repo.head()
    booked = office.state_store.write(entry("ready"))
    assert office.repo.head(f"{booked.commit}^") == merged
    assert "X-1 ready" in office.items()


def test_an_id_that_the_branch_knows_of_is_not_given_again(office: Office) -> None:
    office.state_store.write(StateCommit("add/1", "add", (Exists("j", {"title": "new"}),)))
    office.repo.write("ITEMS", FIRST)  # as it was before, by an editor that was open all the time
    assert office.state_store.write(StateCommit("add/2", "add", (Exists("k", {"title": "new"}),))).added == ("X-3",)


def test_an_id_that_a_worklog_names_is_not_given_again(a_repo: Repo) -> None:
    a_repo.write(
        "_worklog/2026-10.md", "# Worklog\n\n## 2026-10-01 10:00:00 UTC | WRK-041 | review | Completed\n\n**T**\n"
    )
    a_repo.commit("backlog", **{"BACKLOG.yaml": "schema_version: 1\nlast_id: 3\nitems: []\n"})
    tracker = BacklogTracker(a_repo.path)
    state_store = GitStateStore(Git.find(a_repo.path), tracker.rewrite, tracker.parse_file, tracker.own_files(), now)
    assert state_store.write(StateCommit("add/1", "add", (Exists("k", {"title": "t"}),))).added == ("WRK-042",)


@pytest.mark.parametrize("typed", ["# a thought\n", "X-7 new\n"])
def test_what_was_staged_before_is_not_staged_backwards_after(office: Office, typed: str) -> None:
    office.repo.write("ITEMS", FIRST + typed)
    office.repo.git("add", "ITEMS")
    office.state_store.write(entry("ready"))
    assert office.repo.status() == ""


def test_a_draft_touches_nothing(office: Office) -> None:
    draft = office.state_store.draft((Assign("X-1", {"status": "done"}),))
    assert draft
    assert draft(office.start) == {"ITEMS": FIRST.replace("new", "done").encode()}
    assert office.items() == FIRST
    assert office.repo.head() == office.start


# Other branches and other checkouts


def test_a_branch_that_is_not_checked_out_is_written_from_its_own_state(office: Office) -> None:
    office.repo.git("switch", "-q", "-c", "topic")
    office.repo.commit("topic work", topic="x")
    office.repo.write("ITEMS", FIRST + "# typed on topic\n")
    booked = office.again().write(entry("ready", branch="main"))
    assert office.repo.head("main") == booked.commit
    assert office.items("main") == "# ours and yours\nlast 1\nX-1 ready\n"
    assert office.items() == "# ours and yours\nlast 1\nX-1 ready\n# typed on topic\n"
    assert office.repo.git("branch", "--show-current") == "topic"
    assert office.commits("main~1") == ["topic work"]


def test_a_linked_worktree_on_the_branch_comes_along(office: Office, tmp_path: Path) -> None:
    office.repo.git("switch", "-q", "-c", "topic")
    elsewhere = Repo(tmp_path / "elsewhere")
    office.repo.git("worktree", "add", "-q", str(elsewhere.path), "main")
    office.state_store.write(entry("ready", branch="main"))
    assert elsewhere.status() == ""
    assert "X-1 ready" in (elsewhere.path / "ITEMS").read_text()


# Crashes


class Crash(BaseException):
    """The process is gone."""


def crash(*_: object, **__: object) -> NoReturn:
    raise Crash


def dies_at(office: Office, monkeypatch: pytest.MonkeyPatch, where: str, what: StateCommit) -> None:
    with monkeypatch.context() as patch, pytest.raises(Crash):
        if where == "before the swap":
            patch.setattr(GitStateStore, "_swap", crash)
        elif where == "after the swap":
            patch.setattr(GitStateStore, "_save", crash)
        elif where == "between two files":
            put = GitStateStore._put
            patch.setattr(GitStateStore, "_put", lambda *args: (put(*args), crash()))
        elif where == "before the index":
            patch.setattr(store_module, "bring_along", crash)
        elif where == "before the note is gone":
            patch.setattr(GitStateStore, "_bring_along", lambda *_: crash())
        office.state_store.write(what)


MOMENTS = ("before the swap", "after the swap", "between two files", "before the index", "before the note is gone")


@pytest.mark.sweep
@pytest.mark.promise("backlog.killed-write", "004-follow-ups.archive-order")
@pytest.mark.parametrize("where", MOMENTS)
def test_a_write_killed_anywhere_is_finished_by_the_same_write(
    office: Office, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    what = entry("ready", "x-1/triage#1", FOUND, LOG)
    dies_at(office, monkeypatch, where, what)
    booked = office.again().write(what)
    assert booked.added == ("X-2",)
    assert office.commits() == ["[X-1][TRIAGE] ready"]
    assert office.items() == office.items("HEAD") == "# ours and yours\nlast 2\nX-1 ready\nX-2 found\n"
    assert (office.repo.path / "_worklog/2026-11.md").read_text() == LOG.text
    assert office.repo.status() == ""
    assert not (office.repo.path / ".git/capsule/books.json").exists()


@pytest.mark.sweep
@pytest.mark.parametrize("where", MOMENTS)
def test_whoever_writes_next_does_not_undo_what_a_killed_one_booked(
    office: Office, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The disk is behind the branch then: who trusted it would commit the old state again, and give the id twice."""
    what = entry("ready", "x-1/triage#1", FOUND)
    dies_at(office, monkeypatch, where, what)
    office.again().write(StateCommit("add/1", "add", (Exists("k", {"title": "another"}),)))
    office.again().write(what)
    lines = office.items("HEAD").splitlines()
    assert {line.split()[1] for line in lines[2:]} == {"ready", "found", "another"}
    assert sorted(line.split()[0] for line in lines[2:]) == ["X-1", "X-2", "X-3"]
    assert office.items() == office.items("HEAD")
    assert office.repo.status() == ""


@pytest.mark.promise("backlog.user-file")
def test_what_was_typed_after_a_crash_is_spliced_into(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    dies_at(office, monkeypatch, "after the swap", entry("ready", "k", FOUND))
    office.repo.write("ITEMS", FIRST + "# typed meanwhile\n")
    office.again().finish()
    assert office.items("HEAD") == "# ours and yours\nlast 2\nX-1 ready\nX-2 found\n"
    assert office.items() == "# ours and yours\nlast 2\nX-1 ready\n# typed meanwhile\nX-2 found\n"
    assert office.repo.status() == "M ITEMS"


def test_a_note_that_is_not_ours_is_no_harm(office: Office) -> None:
    office.state_store.write(entry("ready"))
    note = office.repo.path / ".git/capsule/books.json"
    for text in ("{", '{"branch": "main"}', ""):
        note.write_text(text)
        office.again().finish()
        assert not note.exists()
    assert office.items() == office.items("HEAD")


@pytest.mark.promise("004-follow-ups.worklog-errors")
def test_a_file_that_cannot_be_written_is_said_and_finished_later(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: GitStateStore, path: str, content: bytes) -> NoReturn:
        raise CannotWrite(Path(path), OSError(28, "No space left on device"))

    with monkeypatch.context() as patch, pytest.raises(CannotWrite, match="No space left"):
        patch.setattr(GitStateStore, "_put", full)
        office.state_store.write(entry("ready"))
    assert office.items() == FIRST
    assert office.again().write(entry("ready")).commit == office.repo.head()
    assert office.items() == office.items("HEAD")


# Files of `init`


def test_files_are_written_and_committed_without_any_commit_before(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    repo.git("init", "-q", "-b", "main")
    repo.write("mine.txt", "mine")
    state_store = GitStateStore(Git.find(tmp_path), rewrite, understand, OWN, now)
    files = {"ITEMS": b"last 0\n", ".capsule/config.yaml": b"verify: strict\n", ".gitignore": b"/.capsule/*\n"}
    commit = state_store.commit_files(files, "[CAPSULE][INIT] begin")
    assert repo.head() == commit
    assert set(repo.git("ls-tree", "-r", "--name-only", "HEAD").split()) == set(files)
    assert repo.status() == "?? mine.txt"
    assert state_store.commit_files(files, "[CAPSULE][INIT] begin") == ""
    state_store.write(StateCommit("add/1", "add", (Exists("k", {"title": "t"}),)))
    assert repo.git("log", "--format=%s").splitlines() == ["add", "[CAPSULE][INIT] begin"]


def test_files_are_committed_beside_other_edits(office: Office) -> None:
    office.repo.write("README", "my edit\n")
    office.repo.write("staged", "x")
    office.repo.git("add", "staged")
    office.state_store.commit_files({".gitignore": b"*.pyc\n/.capsule/*\n"}, "init")
    assert office.files_of("HEAD") == [".gitignore"]
    assert office.repo.status().splitlines() == ["M README", "A  staged"]


# Files and a revert, made from one commit


@pytest.fixture
def reverted(office: Office) -> tuple[dict[str, bytes], Checkpoint]:
    """The way back from a commit that changed ITEMS and added `code`."""
    office.repo.write("code", "x\n")
    merged = office.repo.commit("merged", ITEMS=FIRST.replace("new", "done"))
    before = office.repo.git("rev-parse", f"{merged}^^{{tree}}")
    return {"ITEMS": FIRST.encode()}, Checkpoint("", merged, before)


@pytest.mark.parametrize("where", ["before the swap", "after the swap", "before the index"])
def test_a_revert_that_is_killed_is_finished_by_the_next_process_or_has_not_happened(
    office: Office, reverted: tuple[dict[str, bytes], Checkpoint], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    files, work = reverted
    places: dict[str, tuple[object, str]] = {
        "before the swap": (GitStateStore, "_swap"),
        "after the swap": (GitStateStore, "_save"),
        "before the index": (store_module, "bring_along"),
    }
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(*places[where], crash)
        office.state_store.commit_onto(work.head, files, "undone", work)
    office.again().finish()
    undone = where != "before the swap"
    assert (office.items() == FIRST, not (office.repo.path / "code").exists()) == (undone, undone)
    assert (office.commits()[0], office.repo.status()) == ("undone" if undone else "merged", "")


def test_what_was_made_from_another_commit_than_the_tip_changes_nothing(
    office: Office, reverted: tuple[dict[str, bytes], Checkpoint]
) -> None:
    files, work = reverted
    tip = office.repo.commit("meanwhile", ITEMS=FIRST.replace("new", "ready"))
    with pytest.raises(Refused, match="moved meanwhile"):
        office.state_store.commit_onto(work.head, files, "undone", work)
    assert (office.repo.head(), office.repo.status(), office.items()) == (tip, "", FIRST.replace("new", "ready"))


def test_nobody_in_particular_cannot_commit(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    with pytest.raises(CapsuleError, match="who you are"):
        office.state_store.write(entry("ready"))
    assert office.items() == FIRST


# ---- those that commit nothing

STEP = (Assign("x-1", {"status": "ready"}), FOUND)
FOLLOW_UP = {"build#1/0": FollowUp("More to do")}


def test_a_store_that_keeps_nothing_tells_nobody_and_journals_only_what_the_mission_needs() -> None:
    store = StateStore()
    assert store.close("x-1", "done") is False
    assert store.updates(STEP, "a message") == (STEP[:1], "")
    assert store.write(entry("ready")) == StateWritten("")
    assert store.unfiled(FOLLOW_UP) == {} and store.draft(STEP) is None
    item = Item(id="x-1", title="One")
    assert store.current(item) is item


def test_a_store_of_claims_tells_the_tracker_when_work_begins_and_ends() -> None:
    tracker = MemoryTracker([Item(id="x-1", title="One")])
    store = ClaimedState(tracker)
    seen = []
    for change in (store.claim, store.release, store.claim):
        change("x-1")
        seen.append(tracker.item("x-1").status)
    assert seen == [Status.IN_PROGRESS, Status.READY, Status.IN_PROGRESS]
    assert store.close("x-1", "Merged") and tracker.closed_because == {"x-1": "Merged"}
    assert store.unfiled(FOLLOW_UP) == FOLLOW_UP and store.updates(STEP, "a message") == (STEP[:1], "")


def test_a_store_of_commits_journals_every_assignment_and_needs_a_message_only_for_some(office: Office) -> None:
    assert office.state_store.updates(STEP, "a message") == (STEP, "a message")
    assert office.state_store.updates((), "a message") == ((), "")
