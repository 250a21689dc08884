"""`abort`, `clean` and `teardown`: what they take away, what they keep, and that nothing is lost on the way."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsule.adapters import ClaimedState
from capsule.app.endings import _release, abandon, clean_all
from capsule.core.errors import LockHeld, TrackerError
from capsule.project import open_project
from capsule.system.lock import FileLock
from capsule.trackers.memory import MemoryTracker

from .conftest import ITEM, Project, assert_clear, honest, nothing_changes, said

BRANCH = f"refs/heads/capsule-{ITEM}"
SALVAGE = f"refs/capsule/salvage/{ITEM}"


@pytest.fixture
def with_a_draft(a_halted_mission: Project) -> Project:
    """A halted mission with a file in its worktree that nobody committed."""
    (a_halted_mission.worktree / "draft.txt").write_text("my draft\n")
    return a_halted_mission


@pytest.fixture
def running(a_project: Project, tmp_path: Path) -> Iterator[tuple[Project, int, int]]:
    """A mission whose agent is at work: the project, the runner's pid, the agent's."""
    sign = tmp_path / "at-work"
    a_project.play(honest(test_writer=[{"run": [f"echo $$ > {sign}; sleep 300"]}]))
    with a_project.running() as process:
        while not (sign.exists() and sign.read_text().strip()):
            assert process.poll() is None
            time.sleep(0.02)
        yield a_project, process.pid, int(sign.read_text())


def salvaged(project: Project) -> str:
    (ref,) = project.refs(SALVAGE)
    return project.git("show", f"{ref}:draft.txt")


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("durability.fresh")
@pytest.mark.parametrize("words", [("abort", ITEM), ("clean", ITEM), ("clean", "--all"), ("teardown",)])
def test_the_worktree_goes_and_everything_in_it_is_kept(with_a_draft: Project, words: tuple[str, ...]) -> None:
    main = with_a_draft.head("main")
    answer = with_a_draft.capsule(*words)
    assert answer.code == 0, answer
    assert SALVAGE in answer.out
    assert not with_a_draft.worktree.exists()
    assert bool(with_a_draft.refs(BRANCH)) is (words[0] == "abort")
    assert salvaged(with_a_draft) == "my draft"
    assert with_a_draft.status_of() == "open"
    assert with_a_draft.head("main") == main
    logs = with_a_draft.path / ".capsule" / "logs" / ITEM
    assert "test-writer" in (logs / "worklog.md").read_text()
    assert list((logs / "phase-outputs").glob("test-writer-*.log"))
    assert str(with_a_draft.worktree) not in with_a_draft.git("worktree", "list")


@pytest.mark.promise("side-by-side.given-back")
@pytest.mark.parametrize("words", [(ITEM,), ("--all",)])
def test_clean_gives_back_worktree_and_gate(a_project: Project, words: tuple[str, ...]) -> None:
    a_project.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert a_project.run().code == 2
    ours, gates = a_project.path / ".git/capsule", a_project.home / ".cache/capsule/gates"
    folders = (a_project.worktree.parent, gates, ours / "places", ours / "private")

    def taken() -> list[Path]:
        return [path for folder in folders for path in folder.rglob(f"{ITEM}*")]

    before = taken()
    assert a_project.worktree in before and any(gates in path.parents for path in before), before
    assert a_project.capsule("clean", *words).code == 0
    assert not taken()
    assert len(a_project.git("worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("command", ["abort", "clean"])
def test_doing_it_twice_is_doing_it_once(with_a_draft: Project, command: str) -> None:
    assert with_a_draft.capsule(command, ITEM).code == 0
    refs = with_a_draft.git("for-each-ref")
    assert with_a_draft.capsule(command, ITEM).code == 0
    assert with_a_draft.git("for-each-ref") == refs


@pytest.mark.sweep
@pytest.mark.parametrize("command", ["abort", "clean"])
def test_the_item_can_be_run_again_from_the_start(with_a_draft: Project, command: str) -> None:
    """The branch that abort keeps is ours, and no obstacle."""
    assert with_a_draft.capsule(command, ITEM).code == 0
    with_a_draft.play(honest())
    answer = with_a_draft.run()
    assert answer.code == 0, answer
    assert with_a_draft.answer() == "42"


@pytest.mark.promise("commands.free-again")
@pytest.mark.parametrize("command", ["abort", "clean"])
def test_the_item_is_free_for_the_queue_again(with_a_draft: Project, command: str) -> None:
    assert with_a_draft.capsule(command, ITEM).code == 0
    with_a_draft.play(honest())
    assert f"{ITEM}  would run" in with_a_draft.capsule("run", "--dry-run").out
    answer = with_a_draft.capsule("run")
    assert answer.code == 0, answer
    assert with_a_draft.answer() == "42"


@pytest.mark.parametrize("command", ["abort", "clean"])
def test_an_unknown_mission_is_named(a_project: Project, command: str) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.capsule(command, ITEM), 1, f"There is no mission {ITEM}", "")


def test_usage(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.capsule("clean"), 2, "takes IDs, or --all", "capsule clean --help")
        assert_clear(a_project.capsule("clean", ITEM, "--all"), 2, "takes IDs, or --all", "")
        assert_clear(a_project.capsule("abort"), 2, "required: ID", "capsule abort --help")
        assert_clear(a_project.capsule("teardown", "everything"), 1, "everything", "capsule teardown --help")


@pytest.mark.parametrize("words", [("clean", "--all"), ("teardown",)])
def test_with_nothing_to_do_it_says_so(a_project: Project, words: tuple[str, ...]) -> None:
    answer = a_project.capsule(*words)
    assert (answer.code, answer.out) == (0, "Nothing to clean.\n")


@pytest.mark.promise("commands.teardown-output")
def test_teardown_empties_the_output_folder_and_keeps_the_logs(a_project: Project) -> None:
    a_project.write(".capsule/output/old.log", "old\n")
    a_project.write(".capsule/logs/demo-0/worklog.md", "kept\n")
    assert "Emptied .capsule/output." in a_project.capsule("teardown").out
    assert list((a_project.path / ".capsule/output").iterdir()) == []
    assert (a_project.path / ".capsule/logs/demo-0/worklog.md").read_text() == "kept\n"


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("name", ["", "worktrees", "missions", "logs", "output", "results"])
def test_a_link_in_the_place_of_a_folder_of_ours_is_refused(a_project: Project, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    (precious / "output").mkdir(parents=True)
    (precious / "output" / "file").write_text("mine\n")
    place = a_project.path / ".capsule" / name
    if place.is_dir():
        place.rename(tmp_path / "before")
    place.symlink_to(precious)
    for words in (("teardown",), ("clean", "--all"), ("run", ITEM)):
        assert_clear(a_project.capsule(*words), 2, f"{place} is a symbolic link", "in its place")
    assert (precious / "output" / "file").read_text() == "mine\n"


@pytest.fixture
def with_strangers(a_project: Project) -> Project:
    """Folders where worktrees are, made by hand: one plain, one with a name no item has, one a worktree of git."""
    folder = a_project.path / ".capsule" / "worktrees"
    a_project.git("worktree", "add", "-q", "-b", "feature", str(folder / "feature"))
    for name in ("mine", "not an id", "feature"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "thesis").write_text("years of work\n")
    return a_project


@pytest.mark.parametrize("words", [("clean", "--all"), ("teardown",)])
def test_what_capsule_did_not_make_is_named_and_left_alone(with_strangers: Project, words: tuple[str, ...]) -> None:
    with nothing_changes(with_strangers):
        answer = with_strangers.capsule(*words)
    assert answer.code == 0, answer
    for name in ("mine", "not an id", "feature"):
        assert f".capsule/worktrees/{name} was not made by Capsule; left alone." in answer.out


@pytest.mark.parametrize("command", ["abort", "clean"])
def test_what_capsule_did_not_make_is_not_ended_by_name_either(with_strangers: Project, command: str) -> None:
    with_strangers.git("branch", "capsule-own")
    with nothing_changes(with_strangers):
        for name in ("mine", "feature", "own"):
            answer = with_strangers.capsule(command, name)
            assert_clear(answer, 1, "was not made by Capsule; left alone", "remove it yourself")


def test_a_worktree_that_was_only_prepared_is_ours_to_clean(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM).code == 0
    assert a_project.capsule("clean", "--all").out.startswith(f"{ITEM} is cleaned.")
    assert not a_project.worktree.exists()


@pytest.mark.promise("commands.ending")
def test_abort_ends_a_running_mission_and_its_agent(running: tuple[Project, int, int]) -> None:
    project, _, agent = running
    answer = project.capsule("abort", ITEM)
    assert answer.code == 0, answer
    assert "was running; it has been stopped" in answer.out
    assert not Path(f"/proc/{agent}").exists()
    assert not project.worktree.exists()
    assert project.status_of() == "open"


@pytest.mark.sweep
@pytest.mark.promise("commands.ending")
@pytest.mark.parametrize("words", [("teardown",), ("clean", "--all")])
def test_a_running_mission_is_left_alone_by_name(running: tuple[Project, int, int], words: tuple[str, ...]) -> None:
    project, runner, agent = running
    answer = project.capsule(*words)
    assert answer.code == 0
    assert f"{ITEM} is running (pid {runner}); left alone" in answer.out
    assert Path(f"/proc/{agent}").exists()
    assert project.worktree.is_dir()


def test_a_mission_can_be_removed_where_its_tracker_has_gone(with_a_draft: Project) -> None:
    with_a_draft.beads.unlink()
    assert with_a_draft.capsule("clean", ITEM).code == 0
    assert salvaged(with_a_draft) == "my draft"


def test_version_and_unknown_commands(a_project: Project) -> None:
    assert a_project.capsule("version").out.startswith("capsule ")
    assert a_project.capsule("--version").code == 0
    assert_clear(a_project.capsule("rnu", ITEM), 2, "no command `rnu`", "Did you mean `capsule run`?")
    assert_clear(a_project.capsule("frobnicate"), 2, "no command `frobnicate`", "capsule --help")
    assert_clear(a_project.capsule("run", ITEM, "--frobnicate"), 2, "--frobnicate", "capsule run --help")


def test_what_abort_left_is_found_by_clean_all(with_a_draft: Project) -> None:
    assert with_a_draft.capsule("abort", ITEM).code == 0
    assert with_a_draft.capsule("clean", "--all").code == 0
    assert not with_a_draft.refs(BRANCH)
    assert not with_a_draft.refs("refs/capsule/base")


def test_the_archive_of_an_abandoned_mission_tells_its_story(with_a_draft: Project) -> None:
    assert with_a_draft.capsule("clean", ITEM).code == 0
    logs = with_a_draft.path / ".capsule" / "logs" / ITEM
    assert "| test-writer | 1 |" in (logs / "summary.md").read_text()
    assert "mission_started" in (logs / "journal.jsonl").read_text()


def test_the_output_of_a_phase_run_by_hand_is_archived_too(a_project: Project) -> None:
    a_project.play(honest())
    assert a_project.capsule("prep", ITEM).code == 0
    (a_project.worktree / ".capsule" / "output").mkdir(parents=True)
    (a_project.worktree / ".capsule" / "output" / "test-writer-1-2.log").write_text("by hand\n")
    assert a_project.capsule("clean", ITEM).code == 0
    kept = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs" / "test-writer-1-2.log"
    assert kept.read_text() == "by hand\n"


class _Locked(MemoryTracker):
    """A tracker whose database somebody else holds."""

    def release(self, item_id: str) -> None:
        raise TrackerError(f"{item_id}: the database is locked.", "Try again.")


@pytest.mark.parametrize(("tracker", "told"), [(_Locked(), "is still claimed in its tracker"), (MemoryTracker(), "")])
def test_a_claim_that_cannot_be_taken_back_is_told(tracker: MemoryTracker, told: str) -> None:
    services = SimpleNamespace(state_store=ClaimedState(tracker), tracker=tracker)
    warnings = _release(services, "demo-1")  # type: ignore[arg-type]
    assert (told in warnings[0]) if told else not warnings


def test_a_mission_that_runs_where_it_cannot_be_seen_is_left_alone(
    with_a_draft: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a process in another container, or on another machine, names no pid."""
    monkeypatch.setattr("capsule.system.lock._pid_from_kernel", lambda _: 0)
    monkeypatch.setattr("capsule.system.lock._PROBE_ALLOWANCE", 0.0)
    project = open_project(str(with_a_draft.path))
    lock = project.state_folder / "locks" / f"mission-{ITEM}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [ended.running for ended in clean_all(project, [ITEM])] == [0]
    assert with_a_draft.worktree.is_dir()


@pytest.mark.parametrize("fault", [ProcessLookupError, PermissionError])
def test_a_process_that_cannot_be_signalled_is_no_bug(
    with_a_draft: Project, monkeypatch: pytest.MonkeyPatch, fault: type[OSError]
) -> None:
    """It may end just before it is told to stop, or belong to somebody else."""
    project = open_project(str(with_a_draft.path))
    lock = FileLock(project.state_folder / "locks" / f"mission-{ITEM}.lock")
    lock.acquire(1)

    def kill(_pid: int, _signal: int, real: Callable[[int, int], None] = os.kill) -> None:
        monkeypatch.setattr("os.kill", real)
        if fault is ProcessLookupError:
            lock.release()
        raise fault

    monkeypatch.setattr("os.kill", kill)
    if fault is ProcessLookupError:
        ended = abandon(project, ITEM, branch=False)
        assert ended
        assert ended.was_running
    else:
        with lock, pytest.raises(LockHeld, match="another user"):
            abandon(project, ITEM, branch=False)
