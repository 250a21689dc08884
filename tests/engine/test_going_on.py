"""Going on after a halt: a human's own changes count, and nothing that an agent left behind is approved by them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from capsule.adapters import Order
from capsule.core.state import MissionState
from capsule.engine.run_mission import move_to, run_until_halt

from .conftest import PASS, Scene, workflow
from .test_own_workflow import PREP
from .test_own_workflow import PUBLISH as _COMMITTED
from .test_tdd import CODE, COMMIT, OK, story

BENT = {"write": {"tests.sh": "true\n", "other": "x\n"}, "signal": PASS}
MERGED = _COMMITTED[1:]
COMMIT_ALL = {"run": ["git add -A && git commit -q -m all"], "signal": PASS}


def halted(scene: Scene, **changes: list[dict[str, Any]]) -> MissionState:
    scene.plays(story(**changes))
    state = scene.run("one", "tdd")
    assert state.halt is not None
    return state


def order(state: MissionState) -> Order:
    return Order("one", state.item, state.workflow, state.base, "main", state.policy)


def bent_test_is_on_main(scene: Scene) -> bool:
    files = scene.git("ls-tree", "--name-only", "main").split()
    return "tests.sh" in files and scene.git("show", "main:tests.sh") == "true"


@pytest.mark.sweep
@pytest.mark.in_git
@pytest.mark.promise("processes.resume")
@pytest.mark.parametrize("how", ["an edit elsewhere", "a rebase", "an inner repository taken away"])
def test_a_bent_test_is_not_approved_by_going_on(scene: Scene, how: str) -> None:
    inner = {**BENT, "run": ["git init -q sub"]}
    first = inner if "inner" in how else BENT
    state = halted(scene, execute=[first, *[BENT] * 3, OK], merge=[COMMIT_ALL])
    worktree = scene.root / ".capsule" / "worktrees" / "one"
    if how == "an edit elsewhere":
        (worktree / "notes").write_text("mine\n")
    elif "inner" in how:
        import shutil

        shutil.rmtree(worktree / "sub")
    run_until_halt(replace(order(state), rebase=how == "a rebase"), scene.services)
    assert not bent_test_is_on_main(scene)


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("processes.resume")
def test_a_test_that_the_human_changed_counts_as_approved(scene: Scene) -> None:
    stuck = {"signal": {**PASS, "status": "ERROR", "feedback": "the test is wrong"}}
    halted(scene, execute=[stuck, CODE])
    (scene.root / ".capsule" / "worktrees" / "one" / "tests.sh").write_text("grep -q hello hello\n")
    assert scene.run("one", "tdd").finished
    assert scene.git("show", "main:tests.sh") == "grep -q hello hello"


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("processes.resume")
def test_what_the_tests_do_to_the_worktree_is_no_humans_work(scene: Scene) -> None:
    reaching = f"echo true > {scene.root}/.capsule/worktrees/one/tests.sh\n"
    lie = {"write": {"lib.sh": reaching, "other": "x\n"}, "signal": PASS}
    tests = {"write": {"tests.sh": "test ! -e lib.sh || sh lib.sh\ntest -e hello\n"}, "signal": PASS}
    halted(scene, test_writer=[tests], execute=[lie, lie, lie, lie, OK], merge=[COMMIT_ALL])
    scene.run("one", "tdd")
    assert not bent_test_is_on_main(scene)


@pytest.mark.slow
@pytest.mark.in_git
def test_the_merge_command_does_not_adopt_what_the_merging_agent_bent(scene: Scene) -> None:
    state = halted(scene, merge=[{**COMMIT_ALL, "write": {"tests.sh": "true\n"}}, OK])
    move_to(order(state), scene.services, "merge")
    assert run_until_halt(order(state), scene.services).halt is not None
    assert not bent_test_is_on_main(scene)


@pytest.mark.in_git
@pytest.mark.promise("processes.after-approval")
def test_commits_after_the_approval_are_not_merged_unseen(scene: Scene) -> None:
    scene.plays(story(merge=[COMMIT]))
    worktree = scene.root / ".capsule" / "worktrees" / "one"
    real = scene.watcher.event

    def commit_before_publish(mission: str, event: Any) -> None:
        real(mission, event)
        if getattr(event, "key", "") == "publish#1" and "outcome" not in event.__struct_fields__:
            scene.git("-C", str(worktree), "commit", "-q", "--allow-empty", "-m", "unseen")

    scene.watcher.event = commit_before_publish  # type: ignore[method-assign]
    state = scene.run("one", "tdd")
    assert state.halt is not None
    assert "moved" in state.halt.reason
    assert scene.run("one", "tdd").finished


@pytest.mark.in_git
@pytest.mark.promise("processes.after-merge")
def test_what_was_left_uncommitted_after_the_merge_is_salvaged(scene: Scene) -> None:
    worktree = scene.root / ".capsule" / "worktrees" / "one"
    scene.plays(story())
    real = scene.watcher.event

    def scribble_before_archive(mission: str, event: Any) -> None:
        real(mission, event)
        if getattr(event, "key", "") == "archive#1" and "outcome" not in event.__struct_fields__:
            (worktree / "notes").write_text("mine\n")

    scene.watcher.event = scribble_before_archive  # type: ignore[method-assign]
    assert scene.run("one", "tdd").finished
    refs = scene.git("for-each-ref", "--format=%(refname)", "refs/capsule/salvage").split()
    assert [scene.git("show", f"{ref}:notes") for ref in refs] == ["mine"]


@pytest.mark.slow
def test_a_red_gate_under_warn_is_merged_and_called_red(scene: Scene) -> None:
    from capsule.core.evidence import EvidenceStatus

    scene.plays(
        story(execute=[{"signal": PASS}], merge=[{"run": ["git add -A . && git commit -qm x"], "signal": PASS}])
    )
    assert scene.run("one", "tdd", verify="warn").finished
    gate = next(event for event in scene.ended("one") if event.phase == "publish").outcome.evidence
    assert [piece.standing for piece in gate] == [EvidenceStatus.REFUTED]


def test_without_a_test_command_file_checks_refute_nothing(scene: Scene) -> None:
    scene.plays(story())
    assert scene.run("one", "tdd", test="", test_globs=()).finished


def test_the_words_to_the_test_runner_in_a_shared_file_are_tests_and_its_dependencies_are_not(scene: Scene) -> None:
    def with_file(text: str) -> dict[str, Any]:
        return {"write": {"hello": "hello\n", "pyproject.toml": text}, "signal": PASS}

    bent = with_file("[tool.pytest.ini_options]\naddopts = '--ignore=tests'\n")
    fine = with_file("[project]\ndependencies = ['x']\n")
    scene.plays(story(execute=[bent, fine], merge=[COMMIT_ALL]))
    assert scene.run("one", "tdd").finished
    assert [move for move in scene.moves("one") if move.startswith("execute#")] == [
        "execute#1 retry",
        "execute#2 advance",
    ]


# ---- work that is rebuilt on a main that moved


@pytest.mark.in_git
@pytest.mark.promise("merge.rebuilt")
@pytest.mark.parametrize("work", ["worker", "solo"])
@pytest.mark.parametrize("role", ["action", "worker"])
def test_work_that_conflicts_goes_back_to_an_agent_whatever_the_roles(scene: Scene, work: str, role: str) -> None:
    """Nothing but an agent can settle a conflict, also where a phase of ours has the role of a worker."""
    clash = f"cd {scene.root} && echo theirs > hello && git add hello && git commit -q -m Other"
    settled = {"write": {"hello": "both\n"}, "run": ["git add hello && git commit -q -m settled"], "signal": PASS}
    scene.plays({"one": {"work": [{**settled, "run": [*settled["run"], clash]}, settled]}})
    phases = [PREP, {"name": "work", "prompt": "p", "role": work}, *({**each, "role": role} for each in MERGED)]
    state = scene.run("one", workflow(phases=phases, prompts={"p": "Work. {{SIGNAL_CONTRACT}}"}), test="true")
    assert state.finished and state.returns == 1
    assert scene.git("show", "main:hello") == "both"


@pytest.mark.in_git
@pytest.mark.promise("merge.rebuilt")
def test_work_that_a_command_makes_goes_back_to_the_command(scene: Scene) -> None:
    """Where there is no agent at all."""
    made = 'echo "made of $(cat README.md)" > made && git add made && git commit -q -m made'
    theirs = "echo theirs > made && git add made && git commit -q -m theirs"
    clash = f"test -e {scene.root}/made || {{ cd {scene.root} && {theirs}; }}"
    scene.plays({"one": {}})
    phases = [PREP, {"name": "make", "role": "action", "run": f"{made} && {clash}"}, *MERGED]
    state = scene.run("one", workflow(phases=phases), test="true")
    assert state.finished and state.returns == 1
    assert scene.git("show", "main:made") == "made of A project."


@pytest.mark.in_git
@pytest.mark.promise("merge.rebuilt")
def test_work_that_no_agent_looks_at_again_is_merged_after_it_was_rebuilt(scene: Scene) -> None:
    """Main was red by itself; that was taken back, and the merge is all that is left to do."""
    theirs = f"cd {scene.root} && touch theirs && git add theirs && git commit -q -m Other"
    work = {"write": {"ours": "x\n"}, "run": [f"git add ours && git commit -q -m work && {theirs}"], "signal": PASS}
    scene.plays({"one": {"work": [work]}})
    phases = [PREP, {"name": "work", "prompt": "p", "role": "solo"}, *MERGED]
    flow = workflow(phases=phases, prompts={"p": "Work. {{SIGNAL_CONTRACT}}"})
    state = scene.run("one", flow, test="test ! -e theirs")
    assert state.halt is not None and state.halt.reason.startswith("main itself is red")
    scene.git("rm", "-q", "theirs")
    scene.git("commit", "-q", "-m", "away")
    assert run_until_halt(replace(order(state), rebase=True), scene.services).finished
    assert "ours" in scene.git("ls-tree", "--name-only", "main").split()


@pytest.mark.promise("merge.uncommitted")
def test_work_that_nobody_committed_is_not_thrown_away_by_a_merge(scene: Scene) -> None:
    """A workflow of the user's own, in which nothing asks whether everything is committed."""
    scene.plays({"one": {"work": [{"write": {"ours": "x\n"}, "signal": PASS}]}})
    flow = workflow(phases=[PREP, {"name": "work", "prompt": "p"}, *MERGED], prompts={"p": "Work. {{SIGNAL_CONTRACT}}"})
    state = scene.run("one", flow)
    assert state.halt is not None and state.halt.reason.startswith("not committed: ours")
    assert "merged" not in state.facts
