"""Agents that hang, lie, flood, vandalise or leave things behind: each costs its phase, never main, never the work."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from capsule.core.event import StepEnded
from tests.costs import LONG

from .conftest import COMMIT, ITEM, PASS, Project, Turn, honest, said

pytestmark = pytest.mark.slow

FLOOD = 200 * 1024 * 1024
MEASURED = """
import resource, subprocess, sys
nothing = subprocess.DEVNULL
code = subprocess.call(sys.argv[1:], stdin=nothing, stdout=nothing, stderr=nothing)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""From a small process: what is started by a large one counts as large as that was."""
WORK = honest()["execute"]
REVIEW = "execute-review#1"


@pytest.fixture
def a_project(a_mission_at_execute: Project) -> Project:
    return a_mission_at_execute


def stops_once(project: Project, turn: Turn, **env: str) -> str:
    """The execute agent does this, then (when told to go on) its work: exit 2, nothing lost, and the rest succeeds.

    What was said when it stopped.
    """
    project.play(honest(execute=[turn, *WORK]))
    main = project.head("main")
    answer = project.run(**env)
    assert answer.code == 2, answer
    assert f"next:        capsule answer {ITEM} --retry" in answer.out
    assert "Traceback" not in answer.err
    assert project.head("main") == main
    assert project.status_of() == "in_progress"
    again = project.run()
    assert again.code == 0, again
    assert project.walked().count("test-writer PASS") == 1
    assert project.answer() == "42"
    project.fsck()
    return answer.out


@pytest.mark.promise("processes.timeouts")
def test_an_agent_that_hangs_is_ended_after_its_time(a_project: Project) -> None:
    limit = {"CAPSULE_EXECUTION__PHASE_TIMEOUT_MINUTES": "0.015"}
    assert "Agent timed out" in stops_once(a_project, {"run": ["while :; do echo busy; sleep 0.1; done"]}, **limit)


@pytest.mark.promise("processes.timeouts")
def test_an_agent_that_falls_silent_is_ended(a_project: Project) -> None:
    limit = {"CAPSULE_EXECUTION__IDLE_TIMEOUT_MINUTES": "0.015"}
    assert "Agent was silent for too long" in stops_once(a_project, said("PASS", sleep=60), **limit)


@pytest.mark.promise("signals.exit-code")
def test_an_agent_that_exits_badly_has_not_passed(a_project: Project) -> None:
    assert "Agent exited with 7" in stops_once(a_project, said("PASS", exit=7, write={"answer": "42\n"}))


@pytest.mark.promise("signals.exit-code")
def test_an_agent_that_says_nothing_has_not_passed(a_project: Project) -> None:
    assert "No signal JSON found in phase output" in stops_once(a_project, {"write": {"answer": "42\n"}})


@pytest.mark.promise("signals.exit-code")
def test_an_agent_that_is_killed_has_not_passed(a_project: Project) -> None:
    assert "No signal JSON found" in stops_once(a_project, said("PASS", run=["kill -9 $PPID"]))


def test_an_agent_with_a_faulty_signal_has_not_passed(a_project: Project) -> None:
    assert "Invalid status value: FINE" in stops_once(a_project, {"signal": {**PASS, "status": "FINE"}})


@pytest.mark.promise("errors.agent-git")
def test_an_agent_that_deletes_its_worktree_loses_its_phase_alone(a_project: Project) -> None:
    turn = said("PASS", say=["I will clean up"], run=['rm -rf "$CAPSULE_WORKTREE"'])
    assert "is broken" in stops_once(a_project, turn)
    kept = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs"
    assert any("I will clean up" in log.read_text() for log in kept.glob("execute-2*.log"))


def test_an_agent_that_puts_a_link_in_the_worktrees_place_is_not_followed(a_project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    swap = f'cd / && mv "$CAPSULE_WORKTREE" {elsewhere} && ln -s {elsewhere} "$CAPSULE_WORKTREE"'
    assert "is broken" in stops_once(a_project, said("PASS", run=[swap]))
    assert (elsewhere / "answer").read_text() == "41\n"


@pytest.mark.promise("processes.odd-bytes")
def test_invalid_text_and_nul_bytes_around_a_signal_do_no_harm(a_project: Project) -> None:
    noise = r"printf '\377\376 \000\000 {\n \033[2J \r\n'"
    a_project.play(honest(execute=[said("PASS", run=[noise], write={"answer": "42\n"})]))
    answer = a_project.run()
    assert answer.code == 0, answer
    log = next((a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs").glob("execute-2*.log"))
    assert log.read_bytes().startswith(b"\xff\xfe \x00\x00")


@pytest.mark.promise("processes.large-output")
def test_a_flood_of_output_costs_neither_memory_nor_the_signal(a_project: Project) -> None:
    flood = f"head -c {FLOOD} /dev/zero | tr '\\0' '{{'; echo"
    a_project.play(honest(execute=[said("PASS", run=[flood], write={"answer": "42\n"})]))
    argv = [sys.executable, "-c", MEASURED, sys.executable, "-m", "capsule", "run", ITEM]
    measured = subprocess.run(argv, cwd=a_project.path, env=a_project.environment(), capture_output=True, check=True)
    code, peak = map(int, measured.stdout.split())
    assert code == 0
    assert peak * 1024 < 100 * 1024 * 1024
    log = next((a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs").glob("execute-2*.log"))
    assert log.stat().st_size > FLOOD


@pytest.mark.promise("errors.agent-git")
def test_an_agent_that_commits_by_itself_is_merged_all_the_same(a_project: Project) -> None:
    commit = said("PASS", write={"answer": "42\n"}, run=["git add -A && git commit -q -m 'my own commit'"])
    rest = "git add answer tests && (git diff --cached --quiet || git commit -q -m rest)"
    a_project.play(honest(execute=[commit], merge=[said("PASS", run=[rest])]))
    assert a_project.run().code == 0
    assert a_project.answer() == "42"
    merged = a_project.git("ls-tree", "-r", "--name-only", "main").split()
    assert "worklog.md" not in merged
    assert "worklog.md" not in a_project.git("log", "--name-only", "--format=", "main")


@pytest.mark.promise("processes.daemons")
def test_a_daemon_left_behind_is_ended_and_named(a_project: Project, tmp_path: Path) -> None:
    pid = tmp_path / "daemon.pid"
    leave = f"setsid sh -c 'echo $$ > {pid}; exec sleep 300' >/dev/null 2>&1 & while [ ! -s {pid} ]; do :; done"
    a_project.play(honest(execute=[said("PASS", run=[leave], write={"answer": "42\n"})]))
    answer = a_project.run()
    assert answer.code == 0, answer
    assert "still running when the agent ended" in answer.err
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_an_agent_that_moves_main_moves_its_own_copy(a_project: Project) -> None:
    push = (
        "git update-ref refs/heads/main $(git commit-tree -p main -m sneaky main^{tree}) && git log -1 --format=%s main"
    )
    a_project.play(honest(execute=[said("PASS", run=[push], write={"answer": "42\n"})]))
    assert a_project.run().code == 0
    assert "sneaky" not in a_project.git("log", "--format=%s", "main")
    assert a_project.answer() == "42"


def test_an_agent_that_takes_its_git_file_away_loses_nothing(a_project: Project) -> None:
    a_project.play(honest(execute=[said("PASS", run=["rm .git"], write={"answer": "42\n"})]))
    answer = a_project.run()
    assert answer.code == 0, answer
    assert a_project.answer() == "42"


@pytest.mark.promise("evidence.refuted")
def test_an_agent_that_claims_green_is_refuted_and_told_why(a_project: Project) -> None:
    a_project.play(honest(execute=[said("PASS", write={"answer": "43\n"}), *WORK]))
    assert a_project.run().code == 0
    assert a_project.walked()[3:5] == ["execute REFUTED", "execute PASS"]
    told = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs" / "feedback-execute-2.md"
    assert "`sh tests/all.sh` is red, exit 1" in told.read_text()
    assert "tests/test_answer.sh fails" in told.read_text()


def test_an_agent_that_bends_the_tests_is_refuted(a_project: Project) -> None:
    bend = said("PASS", write={"answer": "43\n", "tests/test_answer.sh": "true\n"})
    mend = said("PASS", write={"answer": "42\n", "tests/test_answer.sh": "grep -qx 42 answer\n"})
    a_project.play(honest(execute=[bend, mend]))
    assert a_project.run().code == 0
    refuted = next(e for e in a_project.events() if isinstance(e, StepEnded) and e.decision.verdict == "REFUTED")
    assert [piece.check for piece in refuted.outcome.evidence if piece.standing == "refuted"] == ["untouched-tests"]


@pytest.mark.promise("evidence.debris")
def test_debris_is_found_before_it_is_signed_off(a_project: Project) -> None:
    leave = said("PASS", write={"answer": "42\n", "notes.tmp": "x"})
    clear = said("PASS", remove=["notes.tmp"])
    a_project.play(honest(execute=[leave, clear]))
    assert a_project.run().code == 0
    assert a_project.walked()[3:5] == ["execute REFUTED", "execute PASS"]
    refuted = next(e for e in a_project.events() if isinstance(e, StepEnded) and e.decision.verdict == "REFUTED")
    assert [piece.check for piece in refuted.outcome.evidence if piece.standing == "refuted"] == ["no-debris"]
    assert "notes.tmp" not in a_project.git("ls-tree", "-r", "--name-only", "main")


def test_what_the_merge_agent_leaves_uncommitted_is_not_lost(a_project: Project) -> None:
    half = said("PASS", run=["git add answer && git commit -q -m half"])
    a_project.play(honest(merge=[half, said("PASS", run=["git add tests && git commit -q -m rest"])]))
    main = a_project.head("main")
    answer = a_project.run()
    assert answer.code == 1
    assert "tests/test_answer.sh" in answer.err
    assert a_project.head("main") == main
    assert a_project.run().code == 0
    assert "tests/test_answer.sh" in a_project.git("ls-tree", "-r", "--name-only", "main")


def test_a_runner_told_to_stop_ends_its_agent_and_goes_on_later(a_project: Project, tmp_path: Path) -> None:
    sign = tmp_path / "at-work"
    a_project.play(honest(execute=[{"run": [f"echo $$ > {sign}; sleep 300"]}, *WORK]))
    with a_project.running() as process:
        _wait_for(sign)
        process.terminate()
        assert process.wait(LONG) == 130
    assert not Path(f"/proc/{sign.read_text().strip()}").exists()
    a_project.play(honest())
    assert a_project.run().code == 0
    assert a_project.walked().count("test-writer PASS") == 1


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + LONG
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


@pytest.mark.sweep
@pytest.mark.parametrize("place", ["missions", "missions/demo-1.1", "missions/demo-1.1/outputs"])
@pytest.mark.parametrize("instead", ["echo mine >", "mkfifo"])
def test_an_agent_that_spoils_our_papers_loses_its_own_output_alone(
    a_project: Project, place: str, instead: str
) -> None:
    turn = said("PASS", run=[f"rm -rf ../../{place}; {instead} ../../{place}"])
    assert "No signal JSON found" in stops_once(a_project, turn)
    assert not (a_project.path / ".capsule" / "missions" / ITEM).exists()


@pytest.mark.sweep
@pytest.mark.parametrize("place", ["missions", "missions/demo-1.1", "missions/demo-1.1/outputs"])
def test_what_an_agent_spoiled_can_be_cleaned(a_project: Project, place: str) -> None:
    a_project.play(honest(execute=[said("PASS", run=[f"rm -rf ../../{place}; touch ../../{place}"])]))
    assert a_project.run().code == 2
    answer = a_project.capsule("clean", ITEM)
    assert answer.code == 0, answer
    assert not a_project.worktree.exists()


def test_a_link_that_an_agent_puts_over_our_papers_is_not_followed(a_project: Project, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / ITEM).mkdir(parents=True)
    (precious / ITEM / "thesis").write_text("years of work\n")
    keep_the_log = f"mv ../../missions/{ITEM}/outputs {precious / ITEM}"
    swap = f"{keep_the_log}; rm -rf ../../missions; ln -s {precious} ../../missions"
    a_project.play(honest(merge=[said("PASS", run=[COMMIT, swap])]))
    assert a_project.run().code == 0
    assert (precious / ITEM / "thesis").read_text() == "years of work\n"


@pytest.mark.parametrize("place", ["missions/demo-1.1", "missions/demo-1.1/outputs"])
def test_a_file_in_the_place_of_our_folder_is_archived(a_project: Project, place: str) -> None:
    assert "No signal" in stops_once(a_project, said("PASS", run=[f"rm -rf ../../{place}; echo mine > ../../{place}"]))
    kept = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs" / "found-in-its-place.log"
    assert kept.read_text() == "mine\n"


@pytest.mark.parametrize("instead", ["mkfifo", "mkdir", "ln -s /dev/full"])
def test_a_live_file_that_cannot_be_written_stops_nobody(a_project: Project, instead: str) -> None:
    live = "../../missions/demo-1.1/live.jsonl"
    a_project.play(honest(execute=[said("PASS", write={"answer": "42\n"}, run=[f"rm -f {live}; {instead} {live}"])]))
    answer = a_project.run()
    assert answer.code == 0, answer
    assert a_project.answer() == "42"


def test_a_nul_in_what_an_agent_says_reaches_the_next_one_as_text(a_project: Project) -> None:
    a_project.play(honest(execute_review=[said("NEEDS_WORK", "be\0 bold\x07\n\tand brief"), said("PASS")]))
    answer = a_project.run()
    assert answer.code == 0, answer
    (review,) = [event for event in a_project.events() if isinstance(event, StepEnded) and event.key == REVIEW]
    assert review.outcome.signal.feedback == "be bold\n\tand brief"


def test_what_an_agent_says_steers_no_terminal(a_project: Project) -> None:
    a_project.play(honest(execute=[said("ERROR", "bad\x1b[2J\x1b]0;x\x07")]))
    answer = a_project.run()
    assert answer.code == 2
    assert "failed at execute: bad" in answer.out
    assert not set(answer.out) & {"\x1b", "\x07"}


def test_a_merge_on_red_says_so_in_the_end(a_new_project: Project) -> None:
    """`verify: warn` lets it through, but nobody may believe that it was green."""
    words = "NOT GREEN: the gate was red on the merge result (verify: warn)"
    a_new_project.play(honest(execute=[said("PASS", write={"answer": "1\n"})]))
    answer = a_new_project.run("--verify=warn")
    assert answer.code == 0, answer
    assert words in answer.out
    assert words in a_new_project.capsule("show", ITEM).out


def test_a_merge_on_green_says_nothing_of_the_kind(a_new_project: Project) -> None:
    answer = a_new_project.run("--verify=warn")
    assert answer.code == 0, answer
    assert "NOT GREEN" not in answer.out + a_new_project.capsule("show", ITEM).out
