"""`capsule run`: from an item to main, and from wherever it stopped to main."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from capsule.agents._player import RECORDING
from capsule.core.event import Abandoned

from .conftest import COMMIT, ITEM, PHASES, Project, Said, assert_clear, bead, honest, nothing_changes, said


def test_a_mission_ends_on_main(a_merged_mission: Project, merged_saying: Said) -> None:
    project = a_merged_mission
    assert project.answer() == "42"
    assert (project.path / "answer").read_text() == "42\n"
    assert project.dirt() == ""
    assert project.status_of() == "closed"
    assert not project.worktree.exists()
    assert project.git("branch", "--list", "capsule-*") == ""
    assert f"{ITEM} is merged into main" in merged_saying.out
    assert {"worklog.md", "journal.jsonl", "summary.md", "phase-outputs"} <= {
        path.name for path in (project.path / ".capsule" / "logs" / ITEM).iterdir()
    }
    project.fsck()


@pytest.mark.promise("merge.undo")
def test_the_summary_names_the_line_that_undoes_it(a_merged_mission: Project, merged_saying: Said) -> None:
    lines = merged_saying.out.splitlines()
    undo = next(line for line in lines if "to undo it:" in line).partition(":")[2].split()
    a_merged_mission.git("-c", "core.editor=true", *undo[1:])
    assert a_merged_mission.answer() == "41"


PROVEN = "red (exit code only) · green (exit code only) · mutants not tried · no canary · reviewed (its word)"


@pytest.mark.promise("evidence.proven")
def test_the_summary_says_what_was_proven_and_explain_says_it_again(
    a_merged_mission: Project, merged_saying: Said
) -> None:
    assert f"  proven:      {PROVEN}\n" in merged_saying.out
    assert a_merged_mission.say("explain", ITEM).out == f"{ITEM} is closed.\n  proven: {PROVEN}\n"


@pytest.mark.promise("commands.output")
def test_progress_is_on_stderr_and_the_summary_on_stdout(merged_saying: Said) -> None:
    answer = merged_saying
    for line in ("[1/5] prep PASS", "[2/5] test-writer PASS", "[4/5] sign-off PASS", "[5/5] merge PASS"):
        assert line in answer.err
        assert line not in answer.out


def test_run_again_after_the_end_changes_nothing(a_merged_mission: Project) -> None:
    with nothing_changes(a_merged_mission):
        answer = a_merged_mission.run()
    assert answer.code == 0
    assert "is done: merged as" in answer.out


@pytest.mark.parametrize("words", [("run-pipeline", ITEM), ("run", "--target", ITEM), ("run", f"--target={ITEM}")])
def test_there_are_three_ways_to_say_it(a_project: Project, words: tuple[str, ...]) -> None:
    with nothing_changes(a_project):
        answer = a_project.capsule(*words, "--dry-run")
    assert answer.code == 0
    assert answer.out.startswith(f"{ITEM}: Find the answer")


def test_it_finds_the_project_from_below_and_from_afar(a_project: Project) -> None:
    below = a_project.path / "tests"
    afar = a_project.path.parent
    for words, cwd in (
        ((), below),
        (("--project-dir", str(below)), afar),
        ((f"--project-dir={a_project.path}",), afar),
    ):
        assert a_project.capsule("run", ITEM, "--dry-run", *words, cwd=cwd).code == 0


@pytest.mark.promise("commands.dry-run")
def test_a_dry_run_shows_prompts_commands_and_gate_and_does_nothing(a_project: Project) -> None:
    with nothing_changes(a_project):
        answer = a_project.run("--dry-run", CAPSULE_AGENT="claude")
    assert answer.code == 0
    assert "gate: sh tests/all.sh" in answer.out
    assert answer.out.count("$ claude -p PROMPT --dangerously-skip-permissions") == len(PHASES)
    assert "# Merge Phase" in answer.out
    assert answer.err == ""


@pytest.mark.promise("agents.price")
def test_a_dry_run_has_a_price(a_project: Project) -> None:
    answer = a_project.run("--dry-run", CAPSULE_AGENT="claude")
    assert f"{len(PHASES)} by an agent (claude for {', '.join(PHASES)})" in answer.out
    price = "cost of earlier missions by tdd: unknown (none is done yet)"
    assert price in answer.out and answer.out.splitlines()[-1] == f"Nothing was started: {price}"


@pytest.mark.promise("agents.price")
def test_a_dry_run_says_what_such_missions_have_cost(a_project: Project, tmp_path: Path) -> None:
    used = {"usage": {"tokens_in": 100, "tokens_out": 20, "usd": 0.25}}
    turns = {phase: [{**turn, **used} for turn in turns] for phase, turns in honest().items()}
    (tmp_path / "recording").write_text(json.dumps({RECORDING: {}, "*": turns}))
    assert a_project.run(CAPSULE_AGENTS__SCRIPTED__ARGS=json.dumps([str(tmp_path / "recording")])).code == 0
    a_project.beads.write_text(a_project.beads.read_text() + json.dumps(bead(id="demo-2", title="More")) + "\n")
    for words in (("run", "demo-2", "--dry-run"), ("run", "--dry-run")):
        told = a_project.say(*words).out
        assert "cost of earlier missions by tdd: 1 mission done for $1.50, 720 tokens" in told


# ── sent back, and giving up


@pytest.mark.promise("decisions.feedback")
def test_a_review_sends_work_back_with_its_feedback(a_project: Project) -> None:
    a_project.play(honest(test_review=[said("NEEDS_WORK", "cover the empty file"), said("PASS")]))
    assert a_project.run().code == 0
    assert a_project.walked()[1:5] == [
        "test-writer PASS",
        "test-review NEEDS_WORK",
        "test-writer PASS",
        "test-review PASS",
    ]
    kept = a_project.path / ".capsule" / "logs" / ITEM / "phase-outputs" / "feedback-test-writer-2.md"
    assert kept.read_text() == "cover the empty file"


@pytest.mark.slow
@pytest.mark.promise("decisions.sign-off")
def test_sign_off_sends_back_the_execute_pair(a_project: Project) -> None:
    a_project.play(honest(sign_off=[said("NEEDS_WORK", "tidy up"), said("PASS")]))
    assert a_project.run().code == 0
    assert a_project.walked()[5:9] == ["sign-off NEEDS_WORK", "execute PASS", "execute-review PASS", "sign-off PASS"]


@pytest.mark.slow
@pytest.mark.promise("decisions.exhausted")
def test_exhausted_retries_keep_the_worktree(a_project: Project) -> None:
    a_project.play(honest(execute_review=[said("NEEDS_WORK", "not like this")]))
    main = a_project.head("main")
    answer = a_project.run("--max-retries", "1")
    assert answer.code == 1
    assert "retries exhausted (1 allowed): not like this" in answer.out
    assert a_project.walked().count("execute-review NEEDS_WORK") == 2
    assert (a_project.worktree / "answer").read_text() == "42\n"
    assert a_project.head("main") == main
    a_project.play(honest())
    assert a_project.run().code == 0
    assert a_project.walked().count("test-writer PASS") == 1


@pytest.mark.promise("decisions.retries")
def test_no_retries_is_exactly_one_attempt(a_project: Project) -> None:
    a_project.play(honest(test_review=[said("NEEDS_WORK", "no")]))
    assert a_project.run("--max-retries=0").code == 1
    assert a_project.walked() == ["prep PASS", "test-writer PASS", "test-review NEEDS_WORK"]


@pytest.mark.promise("decisions.worker-needs-work")
def test_a_worker_cannot_send_itself_back(a_project: Project) -> None:
    a_project.play(honest(execute=[said("NEEDS_WORK", "I would rather not")]))
    answer = a_project.run()
    assert answer.code == 2
    assert "I would rather not" in answer.out


@pytest.mark.sweep
@pytest.mark.promise("decisions.error-stops")
@pytest.mark.parametrize("phase", ["test-writer", "test-review", "sign-off", "merge"])
def test_an_error_in_any_phase_stops_and_the_next_run_goes_on_there(a_project: Project, phase: str) -> None:
    a_project.play(honest() | {phase: [said("ERROR", "no idea"), *honest()[phase]]})
    main = a_project.head("main")
    answer = a_project.run()
    assert answer.code == 2, answer
    assert f"{ITEM} failed at {phase}: no idea" in answer.out
    assert a_project.head("main") == main
    again = a_project.run()
    assert again.code == 0, again
    assert a_project.walked().count("prep PASS") == 1
    assert a_project.answer() == "42"


@pytest.mark.promise("durability.human-repair")
def test_a_human_repair_of_a_halted_mission_is_kept(a_halted_mission: Project) -> None:
    (a_halted_mission.worktree / "answer").write_text("42\n")
    a_halted_mission.play(honest(execute=[said("PASS")]))
    answer = a_halted_mission.run()
    assert answer.code == 0, answer
    assert "with your changes" in answer.err
    assert a_halted_mission.answer() == "42"


@pytest.mark.slow
@pytest.mark.promise("durability.fresh")
def test_fresh_salvages_what_was_there(a_halted_mission: Project) -> None:
    (a_halted_mission.worktree / "draft.txt").write_text("my draft\n")
    answer = a_halted_mission.run("--fresh")
    assert answer.code == 0, answer
    assert any(isinstance(event, Abandoned) for event in a_halted_mission.events())
    refs = a_halted_mission.refs(f"refs/capsule/salvage/{ITEM}")
    assert refs
    assert a_halted_mission.git("show", f"{refs[0]}:draft.txt") == "my draft"
    assert refs[0] in answer.err
    earlier = a_halted_mission.path / ".capsule" / "logs" / ITEM / "1"
    assert "the disk is full" in (earlier / "worklog.md").read_text()
    assert list((earlier / "phase-outputs").glob("execute-2*.log"))


@pytest.mark.promise("evidence.rules-from-base")
def test_what_is_fixed_at_the_start_is_not_changed_in_silence(a_halted_mission: Project) -> None:
    answer = a_halted_mission.run("--verify=off", "--max-retries", "9")
    assert answer.code == 0
    assert "note: --verify: fixed when the mission started" in answer.err


# ── how strictly it is judged


@pytest.mark.slow
@pytest.mark.promise("evidence.unverified")
def test_without_a_test_command_it_says_unverified_everywhere(a_project: Project) -> None:
    answer = a_project.run(CAPSULE_EVIDENCE__TEST="none")
    assert answer.code == 0
    assert "UNVERIFIED: no test command is known" in answer.err
    assert "UNVERIFIED" in answer.out
    assert "nverified" in (a_project.path / ".capsule" / "logs" / ITEM / "summary.md").read_text()


@pytest.mark.slow
@pytest.mark.promise("evidence.warn-and-off")
def test_warn_records_a_refuted_claim_and_goes_on(a_project: Project) -> None:
    a_project.play(honest(execute=[said("PASS", write={"answer": "43\n"})]))
    answer = a_project.run("--verify=warn")
    assert answer.code == 0, answer
    assert "✗" in answer.err
    assert a_project.answer() == "43"


@pytest.mark.slow
@pytest.mark.promise("evidence.warn-and-off")
def test_off_looks_at_nothing_and_says_so(a_project: Project) -> None:
    a_project.play(honest(test_writer=[said("PASS")], execute=[said("PASS", write={"answer": "43\n"})]))
    answer = a_project.run("--verify", "off")
    assert answer.code == 0, answer
    assert "verify is off" in answer.err
    assert "UNVERIFIED" in answer.out
    assert a_project.answer() == "43"


@pytest.mark.parametrize("word", ["--max-retries=-1", "--max-retries=many", "--output=xml", "--max-retries"])
def test_an_option_with_a_wrong_value_is_refused(a_project: Project, word: str) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.run(word), 2, word.partition("=")[0].strip("-").replace("-", "")[:3], "")


def test_an_unknown_way_to_verify_is_refused(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.run("--verify=stric"), 2, "verify", "strict")


# ── for machines


@pytest.mark.promise("commands.output")
def test_json_output_is_one_documented_event_a_line(a_project: Project) -> None:
    answer = a_project.run("--output=json")
    assert answer.code == 0
    assert answer.err == ""
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["v"] for event in events} == {1}
    assert {event["mission"] for event in events} == {ITEM}
    assert all(event["at"].endswith("Z") for event in events)
    assert events[0]["event"] == "mission_started"
    ended = [event for event in events if event["event"] == "step_ended"]
    assert [event["phase"] for event in ended] == ["prep", *PHASES, "publish", "archive"]
    assert ended[1]["outcome"]["signal"]["verdict"] == "PASS"
    assert ended[1]["decision"]["move"] == "advance"
    assert ended[1]["outcome"]["evidence"][0].keys() >= {"check", "claimed", "observed", "standing"}


@pytest.mark.slow
def test_a_mission_that_is_done_says_nothing_in_json(a_project: Project) -> None:
    assert a_project.run("--verify=off", "--output", "json").code == 0
    again = a_project.run("--output", "json")
    assert (again.code, again.out) == (0, "")


@pytest.mark.slow
def test_several_items_are_taken_one_after_the_other(a_project: Project) -> None:
    rows = [bead(), bead(id="demo-1.2", title="Ask the question")]
    a_project.beads.write_text("".join(json.dumps(row) + "\n" for row in rows))
    a_project.play(honest(merge=[said("PASS", run=[f"{COMMIT} || true"])]))
    answer = a_project.run("--target", "demo-1.2", "--verify=off")
    assert answer.code == 0, answer
    assert f"{ITEM} is merged" in answer.out
    assert "demo-1.2 is merged" in answer.out


def test_json_and_an_error_leave_stdout_to_the_machine(a_project: Project) -> None:
    answer = a_project.capsule("run", "demo-9", "--output=json")
    assert_clear(answer, 2, "demo-9", "")
    assert answer.out == ""


# ── workflows and workspaces of the user's own

OWN = """\
retries: 2
prompts: {code: "Make the answer 42. {{SIGNAL_CONTRACT}}", save: "Commit. {{SIGNAL_CONTRACT}}"}
phases:
  - {name: prep, role: action, do: prep}
  - {name: code, prompt: code, agent: plain, timeout_minutes: 1, escalate: {after: 1, agent: scripted}}
  - {name: lint, role: review, run: "grep -qx 42 answer || { echo it is $(cat answer); exit 1; }", rework: code}
  - {name: docs, prompt: code, when: {changed: ["docs/**"]}}
  - {name: save, role: action, prompt: save}
  - {name: publish, role: action, do: publish}
  - {name: archive, role: action, do: archive, closing: true}
"""


@pytest.mark.promise("workflows.own")
def test_a_workflow_of_the_users_own_with_gate_condition_and_escalation(a_project: Project) -> None:
    a_project.write(".capsule/workflows/own.yaml", OWN)
    a_project.commit("our own workflow")
    a_project.play({"code": [said("PASS", write={"answer": "42\n"})], "save": [said("PASS", run=[COMMIT])]})
    plain = ["sh", "-c", f"echo 43 > answer; echo '{json.dumps(said('PASS')['signal'])}'", "{prompt}"]
    own = {"CAPSULE_AGENTS__PLAIN__COMMAND": json.dumps(plain), "CAPSULE_WORKFLOW__DEFAULT": "own"}
    assert "Make the answer 42. " in a_project.run("--dry-run", **own).out
    answer = a_project.run("--workflow", "own", **own)
    assert answer.code == 0, answer
    assert a_project.walked()[1:6] == ["code PASS", "lint NEEDS_WORK", "code PASS", "lint PASS", "docs SKIPPED"]
    assert "it is 43" in (a_project.path / ".capsule/logs" / ITEM / "phase-outputs/feedback-code-2.md").read_text()
    assert a_project.answer() == "42"


@pytest.mark.promise("workflows.faulty")
def test_a_faulty_workflow_names_file_and_phase(a_project: Project) -> None:
    a_project.write(".capsule/workflows/own.yaml", OWN.replace("rework: code", "rework: nobody"))
    with nothing_changes(a_project):
        assert_clear(a_project.run("--workflow=own"), 2, "'lint' sends back to 'nobody'", "")
        assert_clear(a_project.run("--workflow=oww"), 2, "'oww'", "own")


@pytest.mark.slow
@pytest.mark.promise("workflows.setup")
def test_a_workspace_is_set_up_and_given_its_copies(a_project: Project) -> None:
    a_project.write(".gitignore", ".env\ndeps\n")
    a_project.commit("ignore")
    a_project.write(".env", "SECRET=1\n")
    a_project.play(
        honest(
            test_writer=[said("PASS", run=["test -f .env && test -f deps"], write=honest()["test-writer"][0]["write"])]
        )
    )
    settings = {"CAPSULE_WORKSPACE__SETUP": "touch deps", "CAPSULE_WORKSPACE__COPY": '[".env"]'}
    answer = a_project.run(**settings)
    assert answer.code == 0, answer
    assert ".env" not in a_project.git("log", "--name-only", "--format=", "main").split()


@pytest.mark.slow
def test_a_set_up_that_fails_is_named_and_the_next_run_goes_on(a_project: Project) -> None:
    answer = a_project.run(CAPSULE_WORKSPACE__SETUP="echo no such package; exit 3")
    assert answer.code == 2
    assert "workspace.setup `echo no such package; exit 3` exited with 3: no such package" in answer.err
    assert answer.err.splitlines()[-1].startswith("  See its output: ")
    assert a_project.run().code == 0


@pytest.mark.promise("sandbox.required")
def test_a_required_sandbox_that_is_not_there_stops_before_anything_is_made(a_project: Project) -> None:
    with nothing_changes(a_project):
        answer = a_project.run(CAPSULE_SANDBOX="required")
    assert answer.code == 2
    assert "require a sandbox, and bubblewrap is not installed" in answer.err
    assert "apt" in answer.err


@pytest.mark.promise("sandbox.required")
def test_without_a_sandbox_it_says_so_before_the_first_agent_starts(a_project: Project) -> None:
    answer = a_project.run(CAPSULE_SANDBOX="auto")
    told, *_ = answer.err.splitlines()
    assert told.startswith("note: not sandboxed: bubblewrap is not installed; ")
    assert told.endswith("hooks and settings of the repository are checked after each phase.")
    assert "not sandboxed" not in a_project.run("--fresh").err


@pytest.mark.slow
def test_fresh_starts_over_from_a_worktree_that_was_only_prepared(a_project: Project) -> None:
    a_project.play(honest())
    assert a_project.capsule("prep", ITEM).code == 0
    (a_project.worktree / "draft").write_text("mine\n")
    answer = a_project.run("--fresh")
    assert answer.code == 0, answer
    assert "draft" not in a_project.git("ls-tree", "--name-only", "main")
    assert a_project.git("show", f"refs/capsule/salvage/{ITEM}/1:draft") == "mine"


@pytest.mark.slow
def test_a_phase_that_is_mistyped_in_the_settings_is_named(a_project: Project) -> None:
    answer = a_project.run("--dry-run", CAPSULE_AGENTS__SCRIPTED__PHASES="{test-writre: {model: x}, prd: {model: y}}")
    said = a_project.run(CAPSULE_AGENTS__SCRIPTED__PHASES="{test-writre: {model: x}, prd: {model: y}}").err
    assert answer.code == 0
    assert "there is no phase 'test-writre'. Did you mean test-writer?" in said
    assert "'prd'" not in said


FAULTY = {
    "a name that means nothing": (
        b"Merge {{TASK_NAME}}. {{SIGNAL_CONTRACT}}\n",
        "uses {{TASK_NAME}}, which has no meaning",
    ),
    "a faulty name in a block that is left out for now": (
        b"Merge. {{#UNBLOCK_NOTES}}{{TASK_NAME}}{{/UNBLOCK_NOTES}} {{SIGNAL_CONTRACT}}\n",
        "uses {{TASK_NAME}}, which has no meaning",
    ),
    "a block that is not closed": (
        b"Merge. {{#UNBLOCK_NOTES}}notes {{SIGNAL_CONTRACT}}\n",
        "has {{#UNBLOCK_NOTES}} without {{/UNBLOCK_NOTES}}",
    ),
    "a name of a part that comes only later": (
        b"Merge. {{FINDINGS}} {{SIGNAL_CONTRACT}}\n",
        "uses {{FINDINGS}}, which has",
    ),
    "not text": (b"Merge \xff\xfe\n", "is not UTF-8"),
    "empty": (b" \n", ".capsule/prompts/tdd/merge.md is empty"),
}


@pytest.mark.promise("workflows.prompts-first")
@pytest.mark.parametrize(("prompt", "cause"), FAULTY.values(), ids=FAULTY.keys())
@pytest.mark.parametrize("words", [("run", ITEM), ("run",)], ids=["item", "queue"])
def test_a_faulty_prompt_is_found_before_an_agent_is_paid(
    a_project: Project, words: tuple[str, ...], prompt: bytes, cause: str
) -> None:
    file = a_project.path / ".capsule/prompts/tdd/merge.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(prompt)
    a_project.git("add", "-f", ".capsule/prompts")
    a_project.git("commit", "-q", "-m", "prompts")
    answer = a_project.capsule(*words)
    assert answer.code == 2, answer
    assert cause in answer.err
    assert a_project.walked() == []
    assert_clear(a_project.capsule(*words, "--dry-run"), 2, cause, "")
    found = json.loads(a_project.capsule("doctor", "--no-tests", "--json").out)["checks"]
    wrong = next(check for check in found if check["name"] == "workflow tdd")
    assert (wrong["state"], cause in wrong["found"]) == ("wrong", True)


@pytest.mark.promise("workflows.leftover-notes")
def test_the_sign_off_looks_for_leftover_notes(a_project: Project) -> None:
    told = a_project.say("run", ITEM, "--dry-run").out.partition("=== sign-off")[2].partition("\n=== ")[0]
    assert all(f"`{note}`" in told for note in ("TODO", "FIXME", "XXX"))


@pytest.mark.promise("merge.tracker-files")
@pytest.mark.parametrize("words", [("run", ITEM), ("run",)], ids=["item", "queue"])
def test_what_is_left_to_commit_after_a_merge_is_said(a_project: Project, words: tuple[str, ...]) -> None:
    answer = a_project.capsule(*words)
    assert answer.code == 0, answer
    (said,) = uncommitted(answer)
    assert said.endswith("(tracker.commit: true does it)")
    typed_in(a_project, said)
    assert a_project.status() == ""


def uncommitted(answer: Said) -> list[str]:
    """The lines that name what is still to be committed."""
    return [line for line in answer.out.splitlines() if line.split()[:1] in (["uncommitted:"], ["uncommitted"])]


def typed_in(project: Project, line: str) -> None:
    """The command that the line names, as a person would type it."""
    command = line.partition("; ")[2].removesuffix(" (tracker.commit: true does it)")
    subprocess.run(command, shell=True, check=True, cwd=project.path, stdout=subprocess.DEVNULL)


@pytest.mark.promise("merge.tracker-files")
def test_a_tracker_that_was_never_committed_can_be_committed_as_said(a_project: Project) -> None:
    a_project.git("rm", "-q", "--cached", ".beads/issues.jsonl")
    a_project.git("commit", "-q", "-m", "The tracker is no part of it yet")
    answer = a_project.capsule("run", ITEM, env={"CAPSULE_TRACKER": "beads-file"})
    assert answer.code == 0, answer
    typed_in(a_project, uncommitted(answer)[0])
    assert a_project.status() == ""


def test_the_rows_of_a_summary_are_aligned(a_project: Project) -> None:
    answer = a_project.capsule("run")
    head, score, *rows = answer.out.splitlines()
    assert head.startswith("✓ Run ended")
    assert re.fullmatch(r"  1 merged · \d.* s", score)
    assert uncommitted(answer)
    labels = [re.match(r"  \S+(?: \S+)? {2,}", row) for row in rows]
    assert len({label and label.end() for label in labels}) == 1, answer.out


@pytest.fixture
def a_budget_for_one(a_project: Project, tmp_path: Path) -> dict[str, str]:
    """Two tasks, and the first costs all that the run may cost."""
    used = {"usage": {"tokens_in": 100, "tokens_out": 20, "usd": 0.25}}
    turns = {phase: [{**turn, **used} for turn in turns] for phase, turns in honest().items()}
    (tmp_path / "recording").write_text(json.dumps({RECORDING: {}, "*": turns}))
    a_project.beads.write_text(a_project.beads.read_text() + json.dumps(bead(id="demo-2", title="More")) + "\n")
    a_project.commit("two tasks")
    return {
        "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(tmp_path / "recording")]),
        "CAPSULE_BUDGET__RUN__USD": "1.5",
        "CAPSULE_TRACKER__COMMIT": "true",
        "CAPSULE_TRACKER": "beads-file",
    }


@pytest.mark.promise("merge.tracker-files")
def test_the_trackers_files_are_committed_where_the_run_ends_by_an_error(
    a_project: Project, a_budget_for_one: dict[str, str]
) -> None:
    answer = a_project.capsule("run", env=a_budget_for_one)
    assert answer.code == 3, answer
    assert "The budget of the run is spent" in answer.err
    assert a_project.status_of() == "closed"
    assert not uncommitted(answer)
    assert a_project.git("log", "-1", "--format=%s") == "Update the tracker"
    assert a_project.status() == ""


@pytest.mark.promise("merge.tracker-files")
@pytest.mark.parametrize(("budget", "code"), [("1.5", 3), ("9", 0)], ids=["error", "success"])
def test_a_tracker_that_cannot_be_committed_changes_nothing_in_how_the_run_ends(
    a_project: Project, a_budget_for_one: dict[str, str], budget: str, code: int
) -> None:
    (a_project.beads.parent / "link").symlink_to("issues.jsonl")
    words = ("run", ITEM) if code == 0 else ("run",)
    answer = a_project.capsule(*words, env=a_budget_for_one | {"CAPSULE_BUDGET__RUN__USD": budget})
    assert answer.code == code, answer
    assert "note: the tracker's files are not committed: " in answer.err and "link" in answer.err
    assert ("The budget of the run is spent" in answer.err) is (code == 3)
    assert uncommitted(answer)


@pytest.mark.promise("merge.tracker-files")
def test_where_the_setting_is_on_it_is_not_recommended(a_project: Project) -> None:
    a_project.git("switch", "-q", "-c", "elsewhere")
    answer = a_project.capsule("run", env={"CAPSULE_TRACKER__COMMIT": "true", "CAPSULE_TRACKER": "beads-file"})
    assert answer.code == 0, answer
    (said,) = uncommitted(answer)
    assert "git commit" in said and "tracker.commit" not in said


@pytest.mark.promise("merge.tracker-files")
@pytest.mark.parametrize("words", [("run", ITEM), ("run",)], ids=["item", "queue"])
def test_the_trackers_files_are_committed_where_the_settings_say_so(a_project: Project, words: tuple[str, ...]) -> None:
    a_project.write("mine", "not committed\n")
    answer = a_project.capsule(*words, env={"CAPSULE_TRACKER__COMMIT": "true", "CAPSULE_TRACKER": "beads-file"})
    assert answer.code == 0, answer
    assert "uncommitted" not in answer.out.replace("uncommitted change", "")
    assert a_project.git("show", "--name-only", "--format=%s") == "Update the tracker\n\n.beads/issues.jsonl"
    assert a_project.status() == "?? mine"


@pytest.mark.promise("backlog.cap-from-now")
def test_a_cap_that_is_typed_holds_for_one_named_task(a_project: Project) -> None:
    answer = a_project.run("--cap", "2")
    assert answer.code == 0 and "cap: 2 of 2 phases used" in answer.out, answer
    assert a_project.walked() == ["prep PASS", "test-writer PASS", "test-review PASS"]
    assert "2 of 2 phases used" in a_project.run("--cap", "2").out
    assert a_project.run("--cap", "2").code == 0 and a_project.answer() == "42"


def test_a_cap_that_cannot_be_kept_is_refused(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.run("--cap", "0"), 2, "--cap must be 1 or more", "retries included")
        for word in ("--fresh", "--rebase"):
            assert_clear(a_project.run("--cap", "2", word), 2, "--cap does not go with --fresh or --rebase", "the cap")
