"""The TDD workflow, walked: red, reviewed, green, reviewed, signed off, merged, and nothing believed on the way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from capsule.agents._player import RECORDING
from capsule.core.event import Event, StepBegun
from capsule.core.evidence import EvidenceStatus
from capsule.core.history import read_mission
from capsule.core.item import Status
from capsule.core.proven import proof_of

from .conftest import PASS, Scene

TESTS = {"write": {"tests.sh": "test -e hello\n"}, "signal": PASS}
CODE = {"write": {"hello": "hello\n"}, "signal": PASS}
COMMIT = {"run": ['git add hello tests.sh && git commit -q -m "$CAPSULE_COMMIT_MSG"'], "signal": PASS}
OK = {"signal": PASS}
SENT_BACK = {"signal": {**PASS, "status": "NEEDS_WORK", "feedback": "Greet by name."}}


def story(**changes: list[dict[str, Any]]) -> dict[str, Any]:
    clean = {
        "test-writer": [TESTS],
        "test-review": [OK],
        "execute": [CODE],
        "execute-review": [OK],
        "sign-off": [OK],
        "merge": [COMMIT],
    }
    return {"one": {**clean, **{name.replace("_", "-"): turns for name, turns in changes.items()}}}


@pytest.mark.in_git
def test_a_clean_mission_ends_on_main_with_its_papers(scene: Scene) -> None:
    scene.plays(story())
    state = scene.run("one", "tdd")
    assert state.finished
    assert scene.git("log", "-1", "--format=%s%n%P", "main").splitlines()[0] == "Merge one: Say hello"
    assert len(scene.git("log", "-1", "--format=%P", "main").split()) == 2
    assert scene.git("ls-tree", "-r", "--name-only", "main").split() == ["README.md", "hello", "tests.sh"]
    assert scene.tracker.item("one").status is Status.DONE
    logs = scene.root / ".capsule" / "logs" / "one"
    papers = {path.name for path in logs.iterdir() if not path.name.startswith(".")}
    assert papers == {"worklog.md", "journal.jsonl", "summary.md", "phase-outputs"}
    assert "**" in (logs / "worklog.md").read_text()
    assert scene.git("worktree", "list").count("\n") == 0
    assert scene.git("branch", "--list", "capsule-*") == ""
    assert scene.git("status", "--porcelain") == ""


@pytest.mark.in_git
@pytest.mark.promise("evidence.trailers")
def test_a_merge_says_what_made_it(scene: Scene) -> None:
    forged = {"model": "opus\n\nCapsule-Proven: everything"}
    plays = story(execute=[{**CODE, "usage": {"model": "small-1"}}], sign_off=[{**OK, "usage": forged}])
    scene.plays({RECORDING: {}, **plays})
    assert scene.run("one", "tdd").finished
    asked = {
        name: scene.git("log", "-1", f"--format=%(trailers:key=Capsule-{name},valueonly)", "main").splitlines()
        for name in ("Mission", "Agents", "Proven")
    }
    assert asked["Mission"] == ["one"]
    assert asked["Agents"] == ["scripted, scripted (small-1), scripted (opus Capsule-Proven: everything)"]
    (proven,) = asked["Proven"]
    assert proven == proof_of(read_mission(event for _, event in scene.journal.events("one"))).line.replace(" · ", ", ")
    assert "green" in proven and "reviewed (its word)" in proven
    assert scene.git("log", "-1", "--format=%s", "main") == "Merge one: Say hello"


@pytest.mark.promise("decisions.feedback")
def test_a_review_sends_back_with_feedback_that_reaches_the_agent(scene: Scene) -> None:
    scene.plays(story(test_review=[SENT_BACK, OK]))
    scene.run("one", "tdd")
    assert scene.moves("one")[1:5] == [
        "test-writer#1 advance", "test-review#1 rework", "test-writer#2 advance", "test-review#2 advance",
    ]  # fmt: skip
    archived = scene.root / ".capsule" / "logs" / "one" / "phase-outputs" / "feedback-test-writer-2.md"
    assert archived.read_text() == "Greet by name."


@pytest.mark.promise("evidence.red-tests")
def test_red_tests_behind_a_pass_are_caught(scene: Scene) -> None:
    lie = {"write": {"goodbye": "x\n"}, "signal": PASS}
    scene.plays(story(execute=[lie, {**CODE, "remove": ["goodbye"]}]))
    state = scene.run("one", "tdd")
    assert "execute#1 retry" in scene.moves("one")
    refuted = next(event for event in scene.ended("one") if event.key == "execute#1")
    assert [(e.check, e.standing) for e in refuted.outcome.evidence][-1] == ("green", EvidenceStatus.REFUTED)
    assert state.finished


@pytest.mark.promise("evidence.edited-tests")
def test_an_edited_test_is_caught_though_everything_is_green(scene: Scene) -> None:
    cheat = {"write": {"tests.sh": "true\n", "hello": "x\n"}, "signal": PASS}
    scene.plays(story(execute=[cheat, {**CODE, "write": {"tests.sh": "test -e hello\n", "hello": "hello\n"}}]))
    scene.run("one", "tdd")
    event = next(event for event in scene.ended("one") if event.key == "execute#1")
    refuted = [piece for piece in event.outcome.evidence if piece.standing is EvidenceStatus.REFUTED]
    assert [(piece.check, piece.observed) for piece in refuted] == [("untouched-tests", "tests.sh (changed)")]


@pytest.mark.promise("evidence.only-tests")
def test_a_test_writer_that_writes_code_is_sent_back(scene: Scene) -> None:
    eager = {"write": {"tests.sh": "test -e hello\n", "half": "x"}, "signal": PASS}
    scene.plays(story(test_writer=[eager, {**TESTS, "remove": ["half"]}]))
    scene.run("one", "tdd")
    assert scene.moves("one")[1:3] == ["test-writer#1 retry", "test-writer#2 advance"]


@pytest.mark.promise("processes.worklog")
@pytest.mark.parametrize("lose", [{"remove": ["worklog.md"]}, {"write": {"worklog.md": "\n"}}], ids=["gone", "empty"])
def test_a_worklog_that_an_agent_loses_is_restored_for_those_after_it(scene: Scene, lose: dict[str, Any]) -> None:
    scene.plays(story(test_review=[{**lose, "signal": PASS}]))
    assert scene.run("one", "tdd").finished, scene.moves("one")
    told = {event.phase: event.outcome.warnings for event in scene.ended("one")}
    [lost] = [phase for phase, warnings in told.items() if any("worklog.md was missing" in each for each in warnings)]
    worklog = (scene.root / ".capsule/logs/one/worklog.md").read_text()
    assert lost == "test-review" and "- Warning: worklog.md was missing; it is restored" in worklog
    assert [worklog.count(f"<!-- capsule {phase}#1 -->") for phase in ("test-writer", "test-review", "merge")] == [
        1
    ] * 3
    assert worklog.startswith("# ") and "### Phase 1: test-writer" in worklog


@pytest.mark.promise("evidence.reviewers", "evidence.edited-tests")
def test_what_a_reviewer_writes_is_dropped_and_named(scene: Scene) -> None:
    bent = {"write": {"tests.sh": "true\n", "cache/x.pyc": "x", "worklog.md": "Reviewed.\n"}, "signal": PASS}
    late = {"write": {"hello": "bent\n"}, "signal": PASS}
    scene.plays(story(test_review=[bent], execute_review=[late], sign_off=[late]))
    state = scene.run("one", "tdd", debris=("*.pyc",))
    assert state.finished, scene.moves("one")
    told = {event.phase: event.outcome.warnings for event in scene.ended("one")}
    assert any("may only read: cache/x.pyc, tests.sh dropped" in warning for warning in told["test-review"])
    assert any("may only read: hello dropped" in warning for warning in told["sign-off"])
    files = scene.services.place("one", "").trees
    assert files.read(scene.git("rev-parse", "main"), "hello") == b"hello\n"
    assert "Reviewed." in (scene.root / ".capsule/logs/one/worklog.md").read_text()


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("evidence.reviewers")
def test_a_commit_of_a_reviewer_is_dropped_too(scene: Scene) -> None:
    door = {"write": {"door": "x\n"}, "run": ["git add -A && git commit -qm door"], "signal": PASS}
    scene.plays(story(execute_review=[door], sign_off=[door]))
    state = scene.run("one", "tdd")
    assert state.finished, scene.moves("one")
    assert scene.git("ls-tree", "-r", "--name-only", "main").split() == ["README.md", "hello", "tests.sh"]
    warned = [w for event in scene.ended("one") if event.phase == "sign-off" for w in event.outcome.warnings]
    kept = warned[0].rpartition("kept as ")[2]
    assert scene.git("show", f"{kept}:door") == "x"


@pytest.mark.promise("evidence.already-done")
def test_tests_that_are_green_at_once_park_the_item_after_one_more_try(scene: Scene) -> None:
    scene.plays(story(test_writer=[{"write": {"tests.sh": "true\n"}, "signal": PASS}]))
    state = scene.run("one", "tdd")
    assert scene.moves("one")[1:] == ["test-writer#1 retry", "test-writer#2 park"]
    assert state.halt is not None
    assert state.halt.exit_code == 1
    assert state.halt.reason.startswith(
        "seems already done; nothing to make red: `capsule run one --fresh --workflow refactor` (or docs, tests, chore)"
    )


@pytest.mark.in_git
@pytest.mark.promise("evidence.red-base")
def test_a_red_base_parks_the_item_before_an_agent_is_paid(scene: Scene) -> None:
    (scene.root / "tests.sh").write_text("false\n")
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "Break it")
    scene.plays(story())
    state = scene.run("one", "tdd")
    assert scene.moves("one") == ["prep#1 park"]
    assert state.halt is not None
    assert state.halt.reason.startswith("base is red")


@pytest.mark.in_git
def test_a_test_runner_that_is_missing_is_named_as_the_reason(scene: Scene) -> None:
    (scene.root / "tests.sh").write_text("echo /usr/bin/python3: No module named pytest >&2\nfalse\n")
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "Break it")
    scene.plays(story())
    state = scene.run("one", "tdd")
    assert state.halt is not None
    command = state.policy.test
    assert state.halt.reason.startswith(
        f"base is red: `{command}` cannot be run: /usr/bin/python3: No module named pytest;"
    )


@pytest.mark.in_git
@pytest.mark.promise("evidence.debris")
def test_debris_is_refused_in_the_phase_that_leaves_it(scene: Scene) -> None:
    messy = {"write": {"hello": "hello\n", "notes.orig": "x"}, "signal": PASS}
    tidy = {"remove": ["notes.orig"], "signal": PASS}
    scene.plays(story(execute=[messy, tidy]))
    scene.run("one", "tdd", debris=("*.orig",))
    assert "execute#1 retry" in scene.moves("one")
    assert "notes.orig" not in scene.git("ls-tree", "--name-only", "main")


@pytest.mark.slow
def test_test_data_that_a_test_names_is_no_debris(scene: Scene) -> None:
    tests = {"tests.sh": "test -e hello && test -e test_data.orig\n", "test_data.orig": "x", "test_other.orig": "x"}
    tidy = {**TESTS, "remove": ["test_other.orig"], "write": {k: tests[k] for k in ("tests.sh", "test_data.orig")}}
    commit = {"run": ['git add -A && git commit -q -m "$CAPSULE_COMMIT_MSG"'], "signal": PASS}
    scene.plays(story(test_writer=[{"write": tests, "signal": PASS}, tidy], merge=[commit]))
    state = scene.run("one", "tdd", debris=("*.orig",))
    assert state.finished, scene.moves("one")
    left = next(e for event in scene.ended("one") for e in event.outcome.evidence if e.check == "no-debris")
    assert (left.standing, left.observed) == (EvidenceStatus.REFUTED, "test_other.orig")


@pytest.mark.promise("evidence.files-changed")
def test_files_that_did_not_change_are_shown_as_refuted_and_cost_nothing(scene: Scene) -> None:
    lie = {**CODE, "signal": {**PASS, "files_changed": ["./hello", "docs/hello.md", "worklog.md"]}}
    scene.plays(story(execute=[lie]))
    assert scene.run("one", "tdd").finished
    event = next(event for event in scene.ended("one") if event.key == "execute#1")
    piece = next(e for e in event.outcome.evidence if e.check == "files-changed")
    assert (piece.standing, piece.observed) == (EvidenceStatus.REFUTED, "docs/hello.md did not change")
    assert event.decision.move.value == "advance"
    assert "docs/hello.md did not change — REFUTED" in (scene.root / ".capsule/logs/one/worklog.md").read_text()


@pytest.mark.promise("decisions.sign-off")
def test_sign_off_that_needs_work_runs_the_whole_pair_again(scene: Scene) -> None:
    scene.plays(story(sign_off=[SENT_BACK, OK]))
    scene.run("one", "tdd")
    phases = [event.phase for event in scene.ended("one")]
    assert phases[5:9] == ["sign-off", "execute", "execute-review", "sign-off"]


@pytest.mark.promise("merge.as-signed-off")
def test_code_changed_after_the_sign_off_is_not_merged(scene: Scene) -> None:
    sneaky = {**COMMIT, "write": {"hello": "evil\n"}}
    scene.plays(story(merge=[sneaky]))
    before = scene.git("rev-parse", "main")
    state = scene.run("one", "tdd")
    assert state.halt is not None
    assert state.halt.phase == "merge"
    assert scene.git("rev-parse", "main") == before


@pytest.mark.promise("merge.uncommitted")
def test_work_left_uncommitted_is_not_merged_and_not_lost(scene: Scene) -> None:
    scene.plays(story(merge=[{**COMMIT, "run": ["git add hello && git commit -q -m half"]}]))
    state = scene.run("one", "tdd")
    assert state.halt is not None
    assert state.halt.exit_code == 1
    assert state.halt.reason.startswith("it claimed that everything is committed, and not committed: tests.sh; ")
    assert (scene.root / ".capsule" / "worktrees" / "one" / "tests.sh").exists()


@pytest.mark.in_git
@pytest.mark.promise("merge.main-moved")
def test_main_moving_meanwhile_is_merged_with_and_gated_again(scene: Scene) -> None:
    move = f"cd {scene.root} && echo more > other && git add other && git commit -q -m Other"
    scene.plays(story(sign_off=[{"run": [move], "signal": PASS}]))
    state = scene.run("one", "tdd")
    assert state.finished
    assert {"other", "hello"} <= set(scene.git("ls-tree", "--name-only", "main").split())
    assert scene.kinds("one").count("observed") == 4  # base, red, green, and the merge result


@pytest.mark.in_git
@pytest.mark.promise("merge.gate")
def test_a_merge_result_that_is_red_never_reaches_main(scene: Scene) -> None:
    breaks = f"cd {scene.root} && printf 'false\\n' > test_more && git add -A . && git commit -q -m Other"
    scene.plays(story(sign_off=[{"run": [breaks], "signal": PASS}]))
    state = scene.run("one", "tdd", test="(test ! -e tests.sh || sh tests.sh) && (test ! -e test_more || sh test_more)")
    assert state.halt is not None
    assert state.halt.reason.startswith("main itself is red at ") and "--rebase" in state.halt.reason
    assert not state.returns, "no agent is paid to mend what it did not break"
    assert scene.git("log", "-1", "--format=%s", "main") == "Other"


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("merge.conflict")
def test_a_conflict_goes_back_to_the_code_twice_and_then_needs_a_person(scene: Scene) -> None:
    from capsule.adapters import Order
    from capsule.engine.run_mission import run_until_halt

    clash = f"cd {scene.root} && echo $CAPSULE_RUN > hello && git add hello && git commit -q -m Other"
    scene.plays(story(sign_off=[*[{"run": [clash], "signal": PASS}] * 3, OK]))
    state = scene.run("one", "tdd")
    assert state.halt is not None and state.returns == 2
    assert state.halt.reason.startswith("conflict with main in hello")
    assert scene.git("log", "-1", "--format=%s", "main") == "Other"
    order = Order("one", state.item, state.workflow, state.base, "main", state.policy)
    assert run_until_halt(replace(order, rebase=True), scene.services).finished
    assert scene.git("show", "main:hello") == "hello"


@pytest.mark.promise("durability.human-repair")
def test_a_humans_repair_of_a_halted_mission_is_kept(scene: Scene) -> None:
    scene.plays(story(execute=[{"signal": {**PASS, "status": "ERROR", "feedback": "stuck"}}, OK]))
    assert scene.run("one", "tdd").halt is not None
    (scene.root / ".capsule" / "worktrees" / "one" / "hello").write_text("hello\n")
    state = scene.run("one", "tdd")
    assert state.finished
    assert "reopened" in scene.kinds("one")


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("processes.garbage")
def test_a_parked_mission_outlives_a_collection_of_garbage(scene: Scene) -> None:
    """No object that a later phase needs hangs in the air: everything is reached by a ref, or made again."""
    lie, stuck = {"write": {"half": "x"}, "signal": PASS}, {"signal": {**PASS, "status": "ERROR", "feedback": "stuck"}}
    scene.plays(story(execute=[lie, stuck, {**CODE, "remove": ["half"]}]))
    assert scene.run("one", "tdd").halt is not None
    scene.git("reflog", "expire", "--expire=now", "--all")
    scene.git("gc", "--quiet", "--prune=now")
    scene.services.place.cache_clear()  # type: ignore[attr-defined]
    assert scene.run("one", "tdd").finished


@pytest.mark.promise("merge.closed-item")
def test_an_item_closed_meanwhile_is_not_merged(scene: Scene) -> None:
    scene.plays(story())
    close = scene.tracker.close
    scene.plays(story(merge=[COMMIT]))
    watcher_event = scene.watcher.event

    def close_before_publish(mission: str, event: Event) -> None:
        watcher_event(mission, event)
        if isinstance(event, StepBegun) and event.phase == "publish":
            close("one", "by hand")

    scene.watcher.event = close_before_publish  # type: ignore[method-assign]
    state = scene.run("one", "tdd")
    assert state.halt is not None
    assert "was closed in the tracker" in state.halt.reason


@pytest.mark.promise("merge.closed-item", "backlog.known-follow-ups")
@pytest.mark.parametrize(
    ("added", "merged"), [("Found by two/triage: It peels.\nA lot.", True), ("Paint it, too.", False)]
)
def test_what_another_mission_found_stops_no_merge_and_what_a_person_adds_does(
    scene: Scene, added: str, merged: bool
) -> None:
    scene.plays(story(merge=[COMMIT]))
    watcher_event = scene.watcher.event

    def add_before_publish(mission: str, event: Event) -> None:
        watcher_event(mission, event)
        if isinstance(event, StepBegun) and event.phase == "publish":
            known = scene.tracker.item("one").description
            scene.tracker.change("one", {"description": f"{known.rstrip()}\n\n{added}"})

    scene.watcher.event = add_before_publish  # type: ignore[method-assign]
    state = scene.run("one", "tdd")
    assert state.finished is merged
    assert merged or "was rewritten in the tracker" in (state.halt.reason if state.halt else "")


def test_verify_off_looks_at_nothing_and_warn_goes_on(scene: Scene) -> None:
    scene.plays(story(execute=[{"signal": PASS}], merge=[{**COMMIT, "run": ["git add tests.sh && git commit -qm x"]}]))
    assert scene.run("one", "tdd", verify="warn").finished
    event = next(event for event in scene.ended("one") if event.key == "execute#1")
    assert any(piece.standing is EvidenceStatus.REFUTED for piece in event.outcome.evidence)


@pytest.mark.promise("evidence.unverified")
def test_without_a_test_command_everything_is_called_unverified(scene: Scene) -> None:
    scene.plays(story())
    assert scene.run("one", "tdd", test="").finished
    pieces = [piece for event in scene.ended("one") for piece in event.outcome.evidence]
    assert {p.standing for p in pieces if p.check in ("green", "red", "gate")} == {EvidenceStatus.UNVERIFIED}


@pytest.mark.promise("evidence.wrote-nothing")
def test_an_agent_that_wrote_nothing_has_not_found_it_done(scene: Scene) -> None:
    scene.plays(story(test_writer=[{"signal": PASS}]))
    state = scene.run("one", "tdd")
    assert state.halt is not None
    assert "seems already done" not in state.halt.reason
    assert state.halt.reason.startswith("no test was written")
    judged = {piece.check: piece for piece in scene.ended("one")[-1].outcome.evidence}
    assert judged["only-tests"].standing is not EvidenceStatus.CONFIRMED
    assert judged["only-tests"].observed == "nothing differs"
