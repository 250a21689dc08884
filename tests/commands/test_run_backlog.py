"""`capsule run` on a backlog: the queue works itself, and stops where a human should decide."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from capsule.app.planning import RunRequest, refuse_dirty
from capsule.commands.watching import JournalWatcher
from capsule.core.errors import CapsuleError
from capsule.core.event import (
    RUN,
    MovedByHand,
    Observed,
    Rebased,
    RunEnded,
    RunStarted,
    Salvaged,
    Spawned,
    StepEnded,
    Warned,
)
from capsule.core.item import Status
from capsule.core.status import MissionStatus
from capsule.journals.sqlite import SqliteJournal
from capsule.project import open_project
from capsule.reports.words import run_sentence
from capsule.workspaces.checkouts import locked
from tests.costs import LONG

from . import conftest
from .backlog_project import STAMP, BacklogProject, blocked
from .backlog_script import HALF, SPEC, WHOLE, honest, says, stem, turn
from .conftest import Script, assert_clear

STEM = stem()
WALK = ["TRIAGE", "PRD", "RESEARCH", "DESIGN", "SPEC", "BUILD", "BUILD", "REVIEW"]


# ---- the happy path


@pytest.mark.promise("004-agents.result-file", "004-pipeline.all-phases")
def test_an_item_walks_from_add_to_archive_in_the_commits_named(a_backlog: BacklogProject) -> None:
    before = a_backlog.head()
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0, said.err
    tags = [line.split("[")[2].split("]")[0] for line in a_backlog.subjects(before)]
    assert tags == ["ADD", *WALK, "ARCHIVE"]
    assert a_backlog.subjects()[-1] == "[WRK-001][ARCHIVE] Completed: Find the answer"
    assert a_backlog.status() == "" and a_backlog.ids() == []
    assert (a_backlog.path / "answer").read_text() == "42\n"
    tested = [event for event in a_backlog.events() if isinstance(event, Observed)]
    assert len(tested) == 3, (
        "the base, and two parts: what changed since a part was built is paper: it is not tested again"
    )


@pytest.mark.slow
@pytest.mark.promise("backlog.one-commit")
def test_every_commit_holds_state_documents_worklog_and_a_clean_tree(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    for number, tag in enumerate(WALK, 1):
        assert a_backlog.say("step", "WRK-001").code == 0
        assert a_backlog.status() == "", tag
        commits = [line for line in a_backlog.subjects() if line.startswith("[WRK-001]") and "ADD" not in line]
        assert len(commits) == number + (tag == "REVIEW"), commits
        files = a_backlog.git("show", "--name-only", "--format=", "HEAD").splitlines()
        assert any(name.startswith("_worklog/") for name in files)
        assert "BACKLOG.yaml" in files or tag == "BUILD", "a part that is done moves nothing but the stamp"
    assert a_backlog.ids() == []


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.progress")
def test_the_lines_on_stderr_tell_the_story(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "FAILED", context="no paper"), *honest()["prd"]]))
    a_backlog.add()
    said = a_backlog.run("--cap", "3")
    assert "[WRK-001][TRIAGE] Starting phase (attempt 1/3)\n" in said.err
    assert "[WRK-001][TRIAGE] Result: PHASE_COMPLETE — triage done\n" in said.err
    assert "[WRK-001][PRD] Result: FAILED — no paper\n" in said.err
    assert "[WRK-001][PRD] Starting phase (attempt 2/3)\n" in said.err
    assert "Progress: 3/3 phases used\n" in said.err
    assert "phases:    3 of 3" in said.out and "cap: 3 of 3 phases used" in said.out


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.before")
def test_a_larger_item_gets_an_idea_file_and_is_researched_first(a_backlog: BacklogProject) -> None:
    medium = {"size": "medium", "complexity": "low", "risk": "low", "impact": "low"}
    idea = {"_ideas/WRK-001_find-the-answer.md": "# A first thought\n"}
    unwritten = turn("triage", updated_assessments=medium)
    a_backlog.play(honest(triage=[unwritten, {**unwritten, "write": idea}]))
    a_backlog.add()
    assert a_backlog.say("triage").code == 0
    assert a_backlog.moves() == ["triage retry", "triage advance"], "an item to be researched has an idea file"
    assert a_backlog.item().status is Status.RESEARCHING
    a_backlog.run("--cap", "1")
    assert (a_backlog.item().status, a_backlog.item().phase) == (Status.READY, "prd")
    assert a_backlog.git("show", "HEAD:_ideas/WRK-001_find-the-answer.md") == "# An idea"


# ---- where it stops


@pytest.mark.promise("004-agents.scripted", "004-pipeline.retry")
def test_a_retry_carries_the_failure_and_exhaustion_blocks(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "FAILED", context="no paper left")]))
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 1
    assert a_backlog.moves() == ["triage advance", "idea-research skip", "prd retry", "prd retry", "prd park"]
    item = a_backlog.item()
    assert item.status is Status.BLOCKED and item.blocked is not None
    assert item.blocked.from_status is Status.IN_PROGRESS and "no paper left" in item.blocked.reason
    assert a_backlog.status() == ""
    prompts = [e.decision.feedback for e in a_backlog.events() if isinstance(e, StepEnded) and e.phase == "prd"]
    assert all("no paper left" in text for text in prompts)


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.retry")
def test_max_retries_zero_is_exactly_one_attempt(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "FAILED")]))
    a_backlog.add()
    a_backlog.run("--max-retries", "0")
    assert a_backlog.moves()[2:] == ["prd park"]


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.blocked")
def test_blocked_parks_and_the_queue_moves_on(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "BLOCKED", context="Which colour?", block_type="decision")]))
    a_backlog.play(honest("WRK-002", "other"), "WRK-002")
    a_backlog.add()
    a_backlog.add("Other")
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert a_backlog.ids() == ["WRK-001"]
    blocked = a_backlog.item().blocked
    assert blocked is not None and (blocked.reason, blocked.kind) == ("Which colour?", "decision")
    assert "needs you: WRK-001: Which colour?" in said.out and "done:      WRK-002" in said.out


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.blocked")
def test_a_run_does_not_resume_what_it_began_itself(a_backlog: BacklogProject) -> None:
    a_backlog.settings("workflow: {default: tdd}")
    a_backlog.add()
    a_backlog.play(conftest.honest(merge=[conftest.said("PASS")]))
    said = a_backlog.run("--verify", "off")
    assert said.code == 0 and "[5/5] publish PASS" in said.err, said
    assert "Resuming" not in said.err


def test_unblock_goes_on_with_the_notes_until_a_phase_succeeds(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "BLOCKED", context="Which colour?"), *honest()["prd"]]))
    a_backlog.add()
    a_backlog.run()
    assert a_backlog.run("WRK-001").code == 1, "a blocked item is not run"
    assert a_backlog.say("unblock", "WRK-001", "--notes", "Blue, please").code == 0
    shown = a_backlog.run("WRK-001", "--dry-run").out
    assert "Blue, please" in shown
    assert a_backlog.say("step", "WRK-001").code == 0
    assert (a_backlog.item().unblock_context, a_backlog.item().phase) == ("", "research")
    assert a_backlog.run("--cap", "1").code == 0 and a_backlog.item().phase == "design"


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.breaker", "004-pipeline.progress")
def test_two_exhausted_items_in_a_row_trip_the_breaker(a_backlog: BacklogProject) -> None:
    for number in (1, 2, 3):
        item = f"WRK-00{number}"
        a_backlog.play({"triage": [turn("triage", "FAILED", item=item)]}, item)
        a_backlog.add(f"Item {number}")
    said = a_backlog.run("--max-retries", "0")
    assert said.code == 3
    assert "Circuit breaker: 2/2 consecutive failures" in said.err and "breaker" in said.out
    assert a_backlog.item("WRK-003").status is Status.NEW
    assert a_backlog.status() == ""


@pytest.mark.slow
@pytest.mark.promise("convergence.third-time", "004-pipeline.breaker")
def test_the_breaker_does_not_count_who_asks_for_the_same_a_third_time(a_backlog: BacklogProject) -> None:
    for item in ("WRK-001", "WRK-002"):
        a_backlog.play({"triage": [turn("triage", "FAILED", item=item, findings=["Say which shop."])]}, item)
        a_backlog.add(f"Item {item}")
    said = a_backlog.run()
    assert (said.code, "Circuit breaker" in said.err) == (0, False)
    for item in ("WRK-001", "WRK-002"):
        assert a_backlog.moves(item) == ["triage retry", "triage retry", "triage park"]
        block = a_backlog.item(item).blocked
        assert block and block.kind == "clarification"
        assert block.reason.startswith("R1 was asked for 3 times: “Say which shop.”")
        assert block.reason in said.out
    assert a_backlog.say("status").out.count("clarification: R1 was asked for 3 times") == 2


@pytest.mark.slow
@pytest.mark.promise("screens.failed", "screens.agree")
def test_a_run_ended_by_the_breaker_is_failed_on_every_screen(a_backlog: BacklogProject) -> None:
    for number in (1, 2):
        item = f"WRK-00{number}"
        a_backlog.play({"triage": [turn("triage", "FAILED", item=item)]}, item)
        a_backlog.add(f"Item {number}")
    said = a_backlog.run("--max-retries", "0")
    assert said.code == 3
    shown = {
        words: a_backlog.say(*words.split()).out
        for words in ("status", "show WRK-001", "report", "report --run queue", "dashboard --plain --once")
    }
    for words, text in {**shown, "run": said.out + said.err}.items():
        assert "clarification" not in text, (words, text)
        assert "✓" not in text.replace("✓ claimed", ""), (words, text)
        assert "retries exhausted" in text, (words, text)
    assert "| WRK-001 | Item 1 | ✗ failed |" in shown["report"]
    assert "✗ " in shown["dashboard --plain --once"] and "✗ failed" in shown["report --run queue"]
    watcher = JournalWatcher(open_project(str(a_backlog.path)))
    [run] = watcher.look().runs
    assert watcher.journal
    watcher.journal.close()
    assert run.status is MissionStatus.FAILED
    told = "ended: breaker: 2 items in a row used up their retries (2 failed), 2 of 100 agents"
    took = re.findall(r"^  time: +(.*)$", said.out, re.MULTILINE)
    assert run_sentence(run) == ", ".join([told, *took]) and f"{told}, {took[0]}\n" in shown["report --run queue"]


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.triage", "004-follow-ups.triage")
def test_triage_has_a_cap_and_a_breaker(a_backlog: BacklogProject) -> None:
    for number in (1, 2, 3):
        item = f"WRK-00{number}"
        idea = {f"_ideas/{item}_idea.md": "# An idea\n"}
        a_backlog.play({"triage": [turn("triage", item=item, write=idea)]}, item)
        a_backlog.add(f"Item {number}")
    said = a_backlog.say("triage", "--cap", "2")
    assert said.code == 0 and "cap: 2 of 2 phases used" in said.out
    assert [a_backlog.item(f"WRK-00{n}").status.value for n in (1, 2, 3)] == ["researching", "researching", "new"]
    a_backlog.play({"triage": [turn("triage", "FAILED", item="WRK-003")]}, "WRK-003")
    a_backlog.play({"triage": [turn("triage", "FAILED", item="WRK-004")]}, "WRK-004")
    a_backlog.add("Item 4")
    assert a_backlog.say("triage", "--cap", "50").code == 3


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.cap")
def test_every_spawn_counts_toward_the_cap_retries_too(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(triage=[turn("triage", "FAILED"), turn("triage", "FAILED"), *honest()["triage"]]))
    a_backlog.add()
    said = a_backlog.run("--cap", "3")
    assert said.code == 0 and a_backlog.spawns() == 3
    assert isinstance(a_backlog.events("_queue")[-1], RunEnded)


def test_a_cap_below_one_is_a_usage_error(a_backlog: BacklogProject) -> None:
    said = a_backlog.run("--cap", "0")
    assert said.code == 2 and "--cap must be 1 or more" in said.err


# ---- guardrails and reviews


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.guardrails")
def test_a_guardrail_blocks_after_the_assessment_and_keeps_the_document(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[{**honest()["prd"][0], "result": says("prd", updated_assessments={"risk": "high"})}]))
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0
    item = a_backlog.item()
    assert item.blocked is not None and item.blocked.kind == "decision"
    assert item.blocked.reason == "risk is high, above the guardrail low"
    assert item.requires_human_review and item.phase == "research"
    assert a_backlog.git("show", f"HEAD:{STEM}_PRD.md") == "# Words"
    assert a_backlog.say("approve", "WRK-001").code == 0
    assert a_backlog.item().guardrail_override.risk == "high"
    assert a_backlog.run("--cap", "1").code == 0 and a_backlog.item().phase == "design", "the override lets it go on"


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.needs-human")
def test_an_item_that_needs_a_human_is_blocked_before_its_first_phase(a_backlog: BacklogProject) -> None:
    idea = {"_ideas/WRK-001_find-the-answer.md": "# An idea\n"}
    a_backlog.play(honest(triage=[turn("triage", requires_human_review=True, write=idea)]))
    a_backlog.add()
    a_backlog.run()
    item = a_backlog.item()
    assert item.blocked is not None and item.blocked.kind == "decision"
    assert a_backlog.moves() == ["triage park"]
    a_backlog.say("approve", "WRK-001")
    assert a_backlog.item().status is Status.RESEARCHING
    assert a_backlog.run("--cap", "2").code == 0 and a_backlog.moves()[-1] == "prd advance"


# ---- follow-ups


@pytest.mark.slow
@pytest.mark.promise("004-file.follow-ups", "004-pipeline.follow-ups")
def test_follow_ups_join_the_same_run_and_are_not_filed_twice(a_backlog: BacklogProject) -> None:
    twice = ["Paint it", {"title": "paint IT!", "context": "again"}, {"title": "Find the answer"}]
    a_backlog.play(honest(prd=[{**honest()["prd"][0], "result": says("prd", follow_ups=twice)}]))
    a_backlog.play({"triage": [turn("triage", item="WRK-002", duplicate_of="WRK-001")]}, "WRK-002")
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert "Follow-ups: 1 new item added to backlog (WRK-002)" in said.err
    assert a_backlog.ids() == []
    assert a_backlog.subjects()[-1].startswith("[WRK-002][ARCHIVE] Closed: Paint it (duplicate of WRK-001")
    assert a_backlog.tracker.last_id == 2


@pytest.mark.promise("backlog.duplicate")
def test_two_ideas_that_name_each_other_as_duplicates_do_not_both_vanish(a_backlog: BacklogProject) -> None:
    a_backlog.play({"triage": [turn("triage", duplicate_of="WRK-002")]})
    a_backlog.play({"triage": [turn("triage", item="WRK-002", duplicate_of="WRK-001")]}, "WRK-002")
    a_backlog.add()
    a_backlog.add("Find an answer")
    said = a_backlog.run("--max-retries", "0")
    assert "WRK-001 was closed itself: duplicate of WRK-002" in said.err
    assert a_backlog.ids() == ["WRK-002"] and a_backlog.item("WRK-002").status is Status.BLOCKED


@pytest.mark.promise("backlog.duplicate")
def test_a_duplicate_stays_where_its_twin_is_closed_before_it_is_archived(a_backlog: BacklogProject) -> None:
    """As two that are triaged at the same time do, and one that was killed between its triage and its archive."""
    a_backlog.play({"triage": [turn("triage", item="WRK-002", duplicate_of="WRK-001")]}, "WRK-002")
    a_backlog.add()
    a_backlog.add("Find an answer")
    env = {"CRASH_AT": "before step_begun WRK-002/archive#1", "CRASH_SHARED": str(a_backlog.home / "points")}
    words = [sys.executable, str(Path(__file__).parents[1] / "crash/driver.py"), "run", "WRK-002", "--output", "none"]
    killed = subprocess.run(words, cwd=a_backlog.path, env=a_backlog.environment(**env), check=False)
    assert (killed.returncode, a_backlog.moves("WRK-002")) == (-signal.SIGKILL, ["triage close"])
    a_backlog.say("close", "WRK-001", "--reason", "duplicate of WRK-002")
    said = a_backlog.run("--max-retries", "0")
    assert "! WRK-002 goes back to triage: WRK-001 was closed itself: duplicate of WRK-002." in said.err
    assert a_backlog.ids() == ["WRK-002"] and a_backlog.item("WRK-002").status is Status.BLOCKED
    assert a_backlog.say("accept", "WRK-002", "known-duplicate", "--because", "Neither is needed.").code == 0
    assert (a_backlog.run().code, a_backlog.ids()) == (0, [])


@pytest.mark.promise("backlog.closed-dependencies", "backlog.answers")
def test_what_depends_on_an_item_that_was_closed_asks_a_person(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Frame it", "--depends-on", "WRK-001")
    a_backlog.say("close", "WRK-001", "--reason", "nobody asks")
    for words in ("status", "explain", "dashboard --plain --once"):
        assert "you will be asked: WRK-001 was closed: nobody asks" in a_backlog.say(*words.split()).out, words
    said = a_backlog.run()
    assert said.code == 0 and "WRK-001 was closed: nobody asks" in said.out
    assert a_backlog.item("WRK-002").blocked and "capsule answer WRK-002 --approve" in said.out
    assert a_backlog.spawns("WRK-002") == 0
    a_backlog.play(honest("WRK-002", "frame-it"), "WRK-002")
    assert a_backlog.say("approve", "WRK-002", "--notes", "It stands by itself").code == 0
    assert a_backlog.item("WRK-002").status is Status.NEW and "dependencies" not in a_backlog.fields("WRK-002")
    worklog = next((a_backlog.path / "_worklog").glob("*.md")).read_text()
    assert "| Answered\n\n**Frame it**\n\nIt stands by itself\n" in worklog
    assert a_backlog.run("--cap", "1").code == 0 and a_backlog.moves("WRK-002") == ["triage advance"]


@pytest.mark.promise("backlog.closed-dependencies")
def test_what_depends_on_a_duplicate_waits_for_its_twin(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Frame it", "--depends-on", "WRK-001")
    a_backlog.add("Find an answer")
    a_backlog.say("close", "WRK-001", "--reason", "duplicate of WRK-003")
    assert "not now: waits for WRK-003 (new)" in a_backlog.say("explain", "WRK-002").out
    a_backlog.say("complete", "WRK-003")
    assert "WRK-002  next: " in a_backlog.say("explain", "WRK-002").out


@pytest.mark.promise("backlog.triage-first", "backlog.order")
@pytest.mark.parametrize(
    ("words", "env"),
    [(("--triage-first",), {}), ((), {"CAPSULE_EXECUTION__TRIAGE_FIRST": "true"})],
    ids=["word", "set"],
)
def test_with_triage_first_what_is_new_is_assessed_before_anything_is_built(
    a_backlog: BacklogProject, words: tuple[str, ...], env: dict[str, str]
) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"}, {"status": "ready"}, {"title": "It is on fire"})
    a_backlog.play(honest("WRK-003", "it-is-on-fire"), "WRK-003")
    said = a_backlog.run(*words, "--cap", "1", **env)
    assert said.code == 0, said.err
    order = "WRK-003 (needs triage), WRK-001 (goes on at prd), WRK-002 (ready, impact unknown)"
    assert f"order:   {order}\n" in said.err
    assert a_backlog.moves("WRK-003") == ["triage advance"] and not a_backlog.moves()


@pytest.mark.promise("backlog.triage-first", "commands.dry-run")
@pytest.mark.parametrize(("words", "first"), [((), "WRK-001"), (("--triage-first",), "WRK-002")])
def test_a_dry_run_shows_the_order_of_triage_first(
    a_backlog: BacklogProject, words: tuple[str, ...], first: str
) -> None:
    a_backlog.hold({"status": "ready", "risk": "low", "size": "small", "complexity": "low"}, {})
    said = a_backlog.run("--dry-run", *words)
    assert said.code == 0, said
    assert said.out.startswith(f"{first}  would run: ")


@pytest.mark.promise("agents.price")
def test_a_dry_run_has_one_price_for_all_that_would_run(a_backlog: BacklogProject) -> None:
    """One goes on, one waits for it, one is new; one asks a person first, one waits for that."""
    a_backlog.hold(
        {"status": "in_progress", "phase": "review"},
        {"dependencies": "[WRK-001]"},
        {"title": "It is new"},
        {"status": "scoped", "size": "small", "complexity": "low", "risk": "high", "impact": "high"},
        {"dependencies": "[WRK-004]"},
    )
    told = a_backlog.run("--dry-run").out.splitlines()
    assert "WRK-004  needs you: risk is high, above the guardrail low" in told
    price, at_the_end = [line for line in told if " agents (retries not counted)" in line]
    assert price == (
        "3 items, up to 17 agents (retries not counted); cost of earlier missions by change: unknown (none is done yet)"
    )
    assert at_the_end == told[-1] == f"Nothing was started: {price}"
    capped = a_backlog.run("--dry-run", "--cap", "5").out
    assert "3 items, up to 17 agents (retries not counted; the cap is 5)" in capped


@pytest.mark.promise("agents.price")
def test_what_asks_a_person_has_no_price(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "scoped", "size": "small", "complexity": "low", "risk": "high", "impact": "high"})
    for words in ((), ("WRK-001",)):
        told = a_backlog.run(*words, "--dry-run").out
        assert told.splitlines()[1:] == ["No agent would be started."], told


@pytest.mark.promise("backlog.parts")
def test_the_agent_of_the_next_part_is_told_nothing_of_the_last_ones_failures(a_backlog: BacklogProject) -> None:
    spec = f"{stem()}_SPEC.md"
    first = turn("build", "SUBPHASE_COMPLETE", write={"answer": "42\n", spec: HALF})
    last = turn("build", write={"question": "6x9\n", spec: WHOLE})
    failures = [turn("build", "FAILED", summary=f"the {part} part is hard") for part in ("first", "second")]
    a_backlog.play(honest(build=[failures[0], first, failures[1], last]))
    a_backlog.add()
    said = a_backlog.run("--max-retries", "1")
    assert (said.code, a_backlog.ids()) == (0, []), said.err
    told = sorted((a_backlog.path / ".capsule/logs/WRK-001").rglob("feedback-build-*.md"))
    assert [("first part" in page.read_text(), "second part" in page.read_text()) for page in told] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.promise("backlog.known-follow-ups")
def test_a_run_names_the_follow_up_that_was_archived(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Paint it")
    a_backlog.say("close", "WRK-002", "--reason", "nobody asks")
    script = honest()
    script["triage"][0]["result"]["follow_ups"] = [{"title": "paint IT", "context": "It peels off."}]
    a_backlog.play(script)
    said = a_backlog.run("--cap", "1")
    assert "a follow-up is not new, it was archived as WRK-002: paint IT" in said.err


@pytest.mark.promise("backlog.known-follow-ups")
def test_a_run_names_the_follow_up_that_is_known(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Paint it")
    script = honest()
    script["triage"][0]["result"]["follow_ups"] = [{"title": "paint IT", "context": "It peels off."}]
    a_backlog.play(script)
    said = a_backlog.run("--cap", "1")
    assert "a follow-up is known already, as WRK-002" in said.err
    assert (
        a_backlog.item("WRK-002").description == "Found by WRK-001/triage: It peels off." and len(a_backlog.ids()) == 2
    )


@pytest.mark.promise("backlog.answers")
def test_the_answer_to_a_question_is_in_the_worklog(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked())
    assert a_backlog.say("unblock", "WRK-001", "--notes", "Blue").code == 0
    worklog = next((a_backlog.path / "_worklog").glob("*.md")).read_text()
    assert "| WRK-001 | blocked | Answered\n\n**Item 1**\n\nBlue\n" in worklog


QUEUE = f"{RUN}queue"


@pytest.mark.promise("backlog.cap-from-now")
@pytest.mark.parametrize(("words", "phases"), [(["--cap", "2"], "3 of 3"), ([], "9 of 100")])
def test_a_cap_that_is_typed_counts_from_now_on(a_backlog: BacklogProject, words: list[str], phases: str) -> None:
    a_backlog.add()
    journal = SqliteJournal(a_backlog.path / ".git/capsule")
    with journal.claim(QUEUE):  # a run that was killed while its first agent worked
        journal.note(QUEUE, RunStarted(at=STAMP, cap=1))
        journal.note(QUEUE, Spawned(at=STAMP, mission="WRK-001", key="triage#1"))
    journal.close()
    said = a_backlog.run(*words)
    assert said.code == 0 and f"phases:    {phases}" in said.out, said.out
    assert "1/1 phases used" not in said.err


@pytest.mark.promise("backlog.order")
def test_a_run_with_nothing_but_waiting_items_names_them(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(), {"dependencies": "[WRK-001]"})
    said = a_backlog.run()
    assert said.code == 0 and "Run ended: nothing else can be worked on." in said.out
    assert "not run:   WRK-001: blocked (clarification): which colour?" in said.out
    assert "not run:   WRK-002: waits for WRK-001 (blocked)" in said.out


# ---- what agents do wrong


@pytest.mark.slow
@pytest.mark.promise("backlog.planning")
def test_red_tests_after_a_build_are_refuted_and_nothing_is_committed(a_backlog: BacklogProject) -> None:
    red = turn("build", "SUBPHASE_COMPLETE", write={"answer": "41\n", f"{STEM}_SPEC.md": HALF})
    a_backlog.play(honest(build=[red, *honest()["build"]]))
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert "build retry" in a_backlog.moves()
    assert a_backlog.git("log", "--format=%s", "-S41", "--", "answer") == ""


@pytest.mark.slow
@pytest.mark.promise("backlog.failed-work")
def test_a_failed_phase_leaves_a_clean_tree_and_its_leftovers_under_a_ref(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "FAILED", write={"junk/a.txt": "half\n", f"{STEM}_PRD.md": "x"})]))
    a_backlog.add()
    a_backlog.run("--max-retries", "0")
    assert a_backlog.status() == "" and not (a_backlog.path / "junk").exists()
    kept = [event for event in a_backlog.events() if isinstance(event, Salvaged)]
    assert a_backlog.git("show", f"{kept[0].ref}:junk/a.txt") == "half"
    ended = next(e for e in reversed(a_backlog.events()) if isinstance(e, StepEnded))
    assert kept[0].ref in ended.decision.feedback


PROMOTE = "sed -i 's/status: new/status: ready/; s/^    title: Find.*/&\\n    phase: review/' BACKLOG.yaml"


@pytest.mark.sweep
@pytest.mark.promise("backlog.agent-copy")
@pytest.mark.parametrize("code", ["FAILED", "PHASE_COMPLETE"])
def test_an_agent_that_promotes_itself_changes_nothing_and_is_told(a_backlog: BacklogProject, code: str) -> None:
    idea = {"_ideas/WRK-001_find-the-answer.md": "# An idea\n"}
    act = turn("triage", code, run=[PROMOTE], write=idea, updated_assessments={"size": "large"})
    a_backlog.play(honest(triage=[act]))
    a_backlog.add()
    said = a_backlog.run("--cap", "1")
    assert "changes to BACKLOG.yaml were dropped" in said.err
    expected = Status.NEW if code == "FAILED" else Status.BLOCKED
    assert a_backlog.item().status is expected and a_backlog.item().phase == ""
    assert a_backlog.item().assessment.size == "large", "what was learnt is kept"


@pytest.mark.promise("commands.next-helps")
@pytest.mark.parametrize(
    ("act", "command"),
    [
        (turn("triage", "BLOCKED", context="Which colour?"), 'capsule answer WRK-001 --notes "..."'),
        (turn("triage", updated_assessments={"size": "large"}), "capsule answer WRK-001 --approve"),
    ],
)
def test_the_summary_names_the_command_that_helps(a_backlog: BacklogProject, act: dict[str, Any], command: str) -> None:
    idea = {"_ideas/WRK-001_find-the-answer.md": "# An idea\n"}
    a_backlog.play(honest(triage=[{**act, "write": idea}]))
    a_backlog.add()
    assert a_backlog.run().out.splitlines()[-1].split(maxsplit=1) == ["next:", command]
    assert a_backlog.say("show", "WRK-001").out.splitlines()[-1].split(maxsplit=1) == ["next:", command]


@pytest.mark.sweep
@pytest.mark.promise("backlog.agent-copy")
@pytest.mark.parametrize("spoil", ["rm BACKLOG.yaml", "echo '{' > BACKLOG.yaml", "echo 'items: []' > BACKLOG.yaml"])
def test_an_agent_that_spoils_the_backlog_spoils_its_own_copy(a_backlog: BacklogProject, spoil: str) -> None:
    a_backlog.play(honest(triage=[turn("triage", run=[spoil], updated_assessments={"size": "small", "risk": "low"})]))
    a_backlog.add()
    said = a_backlog.run("--cap", "1")
    assert said.code == 0 and "changes to BACKLOG.yaml were dropped" in said.err
    assert a_backlog.item().status is Status.READY and a_backlog.status() == ""


@pytest.mark.slow
@pytest.mark.promise("backlog.agent-commits")
def test_an_agent_that_commits_has_its_commit_taken_off_and_its_work_judged(a_backlog: BacklogProject) -> None:
    commit = "git add -A && git commit -q -m mine"
    a_backlog.play(honest(prd=[{**honest()["prd"][0], "run": [commit]}]))
    a_backlog.add()
    said = a_backlog.run("--cap", "2")
    assert said.code == 0, said.err
    assert "mine" not in a_backlog.subjects() and a_backlog.subjects()[-1] == "[WRK-001][PRD] prd done"
    assert a_backlog.status() == ""


@pytest.mark.sweep
@pytest.mark.promise("004-agents.result-file", "backlog.named-faults")
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (
            """printf '{"item_id": "WRK-001", "follow_ups": [{"title": "x"}], "summ' > $CAPSULE_RESULT""",
            "the result file is cut off after 60 bytes",
        ),
        ("""printf '{"item_id": {"a": 1}' > $CAPSULE_RESULT""", "the result file is cut off after 20 bytes"),
        ("""printf '\\377\\376{\\0}\\0' > $CAPSULE_RESULT""", "the result file is not UTF-8 text"),
        (": > $CAPSULE_RESULT", "the result file is empty"),
        ("echo '{}' > $CAPSULE_RESULT", "Missing required field: item_id"),
        ("ln -s /etc/passwd $CAPSULE_RESULT", "the result file is a symbolic link"),
        ("mkfifo $CAPSULE_RESULT", "the result file is a FIFO"),
        ("mkdir $CAPSULE_RESULT", "the result file is a directory"),
        ("truncate -s 5G $CAPSULE_RESULT", "the result file is larger than"),
        ("true", "No result JSON found"),
    ],
)
def test_a_hostile_result_is_a_failure_with_its_reason(a_backlog: BacklogProject, act: str, reason: str) -> None:
    a_backlog.play(honest(triage=[{"run": [act]}]))
    a_backlog.add()
    said = a_backlog.run("--max-retries", "0")
    assert said.code == 1
    assert reason in a_backlog.item().blocked.reason  # type: ignore[union-attr]


@pytest.mark.promise("backlog.stale-result")
def test_a_result_from_before_the_phase_is_not_read_and_warned_about(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.write(".capsule/results/phase_result_WRK-001_triage.json", json.dumps(says("triage", "FAILED")))
    said = a_backlog.run("--cap", "1")
    assert said.code == 0
    assert "a result file from before this attempt was removed unread" in said.err
    assert a_backlog.item().status is Status.READY
    assert "from before this attempt" not in a_backlog.run("--cap", "2").err


@pytest.mark.promise("backlog.resuming")
def test_resuming_is_said_where_the_journal_does_not_know_the_item(a_backlog: BacklogProject) -> None:
    a_backlog.documents("PRD", "TECH_RESEARCH")
    a_backlog.hold({"status": "in_progress", "phase": "design"})
    a_backlog.commit("backlog")
    said = a_backlog.run("--cap", "1")
    assert "Resuming WRK-001 at design" in said.err


@pytest.mark.promise("backlog.resuming")
def test_a_small_item_resumes_at_the_phase_that_follows_its_triage(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    assert a_backlog.say("triage").code == 0
    assert "Resuming WRK-001 at prd\n" in a_backlog.run("--cap", "1").err


@pytest.mark.parametrize("lock", ["backlog", "main"])
def test_what_another_mission_is_writing_just_now_is_no_uncommitted_change(
    a_backlog: BacklogProject, lock: str
) -> None:
    project, half_written, begun = open_project(str(a_backlog.path)), a_backlog.path / "half", threading.Event()

    def write_a_step() -> None:
        with locked(project.git, lock):
            half_written.write_text("its commit follows\n")
            begun.set()
            time.sleep(0.5)
            half_written.unlink()

    step = threading.Thread(target=write_a_step)
    step.start()
    assert begun.wait(LONG)
    refuse_dirty(project, RunRequest())
    step.join()
    half_written.write_text("a person's own\n")
    with pytest.raises(CapsuleError, match="uncommitted changes: half"):
        refuse_dirty(project, RunRequest())


@pytest.mark.promise("backlog.named-faults")
@pytest.mark.parametrize("name", ["_worklog", "changes", "_ideas"])
def test_a_file_in_the_place_of_a_folder_is_named_before_an_agent_is_paid(a_backlog: BacklogProject, name: str) -> None:
    a_backlog.add()
    (a_backlog.path / name).rmdir()
    a_backlog.write(name, "a file\n")
    a_backlog.git("add", "-f", name)
    a_backlog.commit("a file")
    before = a_backlog.head()
    needing = (("run",), ("run", "WRK-001"), *([("complete", "WRK-001")] if name == "_worklog" else []))
    for words in needing:
        answer = a_backlog.say(*words)
        assert_clear(answer, 2, f"{name} is a file, and the backlog needs a folder {name}/.", f"git mv {name}")
    assert (a_backlog.spawns(), a_backlog.head()) == (0, before)
    found = json.loads(a_backlog.say("doctor", "--no-tests", "--json").out)["checks"]
    [tracker] = [check for check in found if check["name"] == "tracker"]
    assert (tracker["state"], f"{name} is a file" in tracker["found"]) == ("wrong", True)


@pytest.mark.promise("backlog.reverted-archive")
def test_a_reverted_archive_commit_brings_the_item_back_to_its_phase(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    assert a_backlog.run().code == 0
    a_backlog.git("revert", "--no-edit", "HEAD")
    item = a_backlog.item()
    assert (item.status, item.phase) == (Status.IN_PROGRESS, "review")
    shown = a_backlog.say("show", "WRK-001").out
    assert "; its item was opened again: in_progress at review\n" in shown and "is closed" not in shown
    assert shown.endswith("next:       capsule run WRK-001\n")
    said = a_backlog.run()
    assert (said.code, a_backlog.ids()) == (0, [])
    assert a_backlog.say("show", "WRK-001").out.endswith("next:       capsule logs WRK-001\n")
    assert "Resuming WRK-001 at review" in said.err
    assert (
        a_backlog.moves()[-2:] == ["review advance", "archive advance"]
        and a_backlog.moves().count("review advance") == 2
    )


@pytest.mark.slow
@pytest.mark.promise("backlog.reverted-archive")
def test_a_reverted_merge_brings_the_item_back_to_be_started_over(a_backlog: BacklogProject) -> None:
    a_backlog.settings("workspace: {publish: merge}")
    a_backlog.play(honest(build=2 * honest()["build"]))
    a_backlog.add()
    assert a_backlog.run().code == 0
    a_backlog.git("revert", "--no-edit", "-m", "1", "HEAD")
    assert a_backlog.item().status is Status.IN_PROGRESS
    assert a_backlog.say("show", "WRK-001").out.endswith("next:       capsule run WRK-001 --fresh\n")
    before = a_backlog.head()
    for words in ((), ("WRK-001",)):
        said = a_backlog.run(*words)
        assert (said.code, "WRK-001 is at merge, and its work is not here." in said.out) == (1, True), said
        assert "next:      capsule run WRK-001 --fresh\n" in said.out
    assert (a_backlog.head(), a_backlog.status()) == (before, "")
    said = a_backlog.run("WRK-001", "--fresh")
    assert (said.code, a_backlog.ids(), a_backlog.git("show", "main:answer")) == (0, [], "42"), said


@pytest.mark.promise("004-agents.bad-exit")
def test_a_valid_result_is_respected_although_the_agent_failed(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(triage=[{**honest()["triage"][0], "exit": 7}]))
    a_backlog.add()
    said = a_backlog.run("--cap", "1")
    assert "the agent exited with 7, but left a valid result" in said.err
    assert a_backlog.item().status is Status.READY


# ---- people


@pytest.mark.promise("backlog.user-file")
def test_a_hand_edit_during_a_run_is_merged_not_overwritten(a_backlog: BacklogProject) -> None:
    edit = f"sed -i 's/^items:/# mine\\nitems:/; s/title: Find the answer/title: Find THE answer/' {a_backlog.backlog}"
    a_backlog.play(honest(triage=[{**honest()["triage"][0], "run": [edit]}]))
    a_backlog.add()
    assert a_backlog.run("--cap", "1").code == 0
    text = a_backlog.backlog.read_text()
    assert "# mine\n" in text and "title: Find THE answer" in text and "status: ready" in text
    assert a_backlog.status() == ""


@pytest.mark.slow
@pytest.mark.promise("backlog.moved-by-hand")
def test_an_item_moved_by_an_editor_goes_on_from_there(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "2")
    a_backlog.edit("phase: research", "phase: spec")
    said = a_backlog.run("--cap", "1")
    moved = [event for event in a_backlog.events() if isinstance(event, MovedByHand)]
    assert (moved[0].expected, moved[0].found) == ("in_progress at research", "in_progress at spec")
    assert a_backlog.moves()[-1] == "spec advance", said.err


@pytest.mark.promise("004-follow-ups.no-phase")
def test_an_item_in_progress_without_a_phase_starts_at_the_first(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.edit("status: new", "status: in_progress")
    assert a_backlog.run("--cap", "1").code == 0
    assert a_backlog.moves() == ["prd advance"]


@pytest.mark.promise("backlog.dirty-checkout", "004-commands.clean-tree")
def test_a_dirty_checkout_is_refused_before_anything_starts(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.write("mine.txt", "precious\n")
    said = a_backlog.run()
    assert said.code == 2 and "mine.txt" in said.err and "--allow-dirty" in said.err and "stash" not in said.err
    assert (a_backlog.path / "mine.txt").read_text() == "precious\n" and a_backlog.spawns() == 0


@pytest.mark.slow
@pytest.mark.promise("backlog.dirty-checkout")
def test_a_dirty_checkout_is_worked_beside_where_the_user_says_so(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.write("mine.txt", "precious\n")
    said = a_backlog.run("--allow-dirty")
    assert said.code == 0, said.err
    assert a_backlog.status() == "?? mine.txt" and a_backlog.git("show", "HEAD:answer") == "42"


@pytest.mark.slow
@pytest.mark.promise("merge.user-edits")
def test_work_never_goes_over_an_edit_of_the_users_and_goes_on_once_it_is_put_away(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "5")
    mine = a_backlog.write("answer", "my own\n")
    said = a_backlog.run("--allow-dirty")
    assert said.code == 0 and "needs you: WRK-001: Your checkout has uncommitted edits of answer" in said.out, said
    assert mine.read_text() == "my own\n" and "BUILD" not in "".join(a_backlog.subjects())
    assert said.out.splitlines()[-1].split() == ["next:", "capsule", "run", "WRK-001"], said.out
    assert (
        "stopped before build (Your checkout has uncommitted edits of answer"
        in a_backlog.capsule("show", "WRK-001").out
    )
    named = a_backlog.run("WRK-001", "--allow-dirty")
    assert named.code == 1 and "uncommitted edits of answer" in named.err
    mine.unlink()
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert a_backlog.git("show", "HEAD:answer") == "42" and a_backlog.status() == ""


@pytest.mark.promise("004-types.lock")
def test_two_runs_at_once_are_refused(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    with SqliteJournal(a_backlog.path / ".git/capsule").claim("_queue"):
        said = a_backlog.run()
    assert said.code == 3 and "The run queue is running" in said.err


@pytest.mark.slow
def test_an_item_waits_for_what_it_depends_on(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest("WRK-002", "second"), "WRK-002")
    a_backlog.add()
    a_backlog.add("Second", "--depends-on", "WRK-001", "--impact", "high")
    assert "waits for WRK-001" in a_backlog.say("explain", "WRK-002").out
    assert a_backlog.run().code == 0
    archived = [line for line in a_backlog.subjects() if "ARCHIVE" in line]
    assert [line[1:8] for line in archived] == ["WRK-001", "WRK-002"]


@pytest.mark.slow
@pytest.mark.promise("004-pipeline.selection")
def test_a_named_item_is_taken_to_its_end_and_others_are_left(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest("WRK-002", "second"), "WRK-002")
    a_backlog.add("First")
    a_backlog.add("Second")
    said = a_backlog.run("--target", "WRK-002")
    assert said.code == 0, said.err
    assert a_backlog.ids() == ["WRK-001"] and a_backlog.item().status is Status.NEW


def test_an_unknown_and_an_archived_item_are_named(a_backlog: BacklogProject) -> None:
    assert a_backlog.run("WRK-009").code == 2
    a_backlog.add()
    a_backlog.say("close", "WRK-001", "--reason", "not wanted")
    said = a_backlog.run("WRK-001")
    assert said.code == 2 and "WRK-001 was archived" in said.err


@pytest.mark.promise("004-pipeline.cap")
def test_nothing_to_do_is_a_good_ending(a_backlog: BacklogProject) -> None:
    said = a_backlog.run()
    assert said.code == 0 and "nothing is left to do" in said.out


# ---- hooks


@pytest.mark.slow
@pytest.mark.promise("backlog.hooks")
def test_a_failing_hook_is_a_failed_phase_where_hooks_are_wanted(a_backlog: BacklogProject) -> None:
    a_backlog.settings("git: {hooks: true}")
    hook = a_backlog.path / ".git" / "hooks" / "pre-commit"
    hook.write_text(
        "#!/bin/sh\ngit diff --cached --name-only HEAD | grep -q PRD && { echo no paper; exit 1; }\nexit 0\n"
    )
    hook.chmod(0o755)
    a_backlog.add()
    said = a_backlog.run("--max-retries", "0")
    assert said.code == 1
    ended = next(e for e in a_backlog.events() if isinstance(e, StepEnded) and e.phase == "prd")
    assert "no paper" in ended.decision.feedback
    assert a_backlog.status() == "" and not any("[PRD]" in line for line in a_backlog.subjects())


# ---- in a worktree, and by the TDD mission


@pytest.mark.slow
@pytest.mark.promise("backlog.merged")
def test_in_a_worktree_a_change_is_merged_with_its_archive(a_backlog: BacklogProject) -> None:
    a_backlog.settings("workspace: {kind: worktree}")
    a_backlog.write("mine.txt", "the user's own\n")
    a_backlog.add("Find the answer", "--no-commit")
    before = a_backlog.head()
    said = a_backlog.run()
    assert said.code == 0, said.err
    merge = a_backlog.git("log", "--merges", "--format=%H %s")
    assert merge.endswith("Merge WRK-001: Find the answer")
    oid = merge.split()[0]
    assert "WRK-001" not in a_backlog.git("show", f"{oid}:BACKLOG.yaml").replace("last_id", "")
    for commit in a_backlog.git("rev-list", "--first-parent", f"{before}..{oid}^").split():
        touched = a_backlog.git("show", "--name-only", "--format=", commit).splitlines()
        assert all(name == "BACKLOG.yaml" or name.startswith("_worklog/") for name in touched), touched
    for commit in a_backlog.git("rev-list", f"{oid}^2", f"^{oid}^1").split():
        touched = a_backlog.git("show", "--name-only", "--format=", commit).splitlines()
        assert not any(name == "BACKLOG.yaml" or name.startswith("_worklog/") for name in touched), touched
    assert a_backlog.git("show", "main:answer") == "42"
    assert a_backlog.status() == "?? mine.txt"


@pytest.mark.slow
@pytest.mark.promise("backlog.tdd")
def test_build_can_be_a_tdd_mission_for_each_phase_of_the_spec(a_backlog: BacklogProject) -> None:
    a_backlog.settings("build: tdd\nevidence: {test_globs: ['tests/*']}")
    ok = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
    a_backlog.test = "for t in tests/*.sh; do test ! -e $t || sh $t || exit 1; done"

    def child(number: int) -> None:
        commit = 'git add one* two* tests && git commit -q -m "$CAPSULE_COMMIT_MSG"'
        name = ("one", "two")[number - 1]
        a_backlog.play(
            {
                "test-writer": [{"write": {f"tests/{name}.sh": f"test -e {name}\n"}, "signal": ok}],
                "execute": [{"write": {name: "x\n"}, "signal": ok}],
                "merge": [{"run": [commit.replace("one* two*", name)], "signal": ok}],
                "*": [{"signal": ok}],
            },
            f"WRK-001.build.{number}",
        )

    child(1)
    child(2)
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert (a_backlog.path / "one").exists() and (a_backlog.path / "two").exists()
    assert a_backlog.git("log", "--merges", "--reverse", "--format=%s").splitlines() == [
        "Merge WRK-001.build.1: one",
        "Merge WRK-001.build.2: two",
    ]
    assert "- [ ]" not in a_backlog.git("show", f"HEAD:{STEM}_SPEC.md")
    assert [move for move in a_backlog.moves() if move.startswith("build")] == ["build repeat", "build advance"]
    assert a_backlog.status() == "" and a_backlog.ids() == []


@pytest.mark.slow
@pytest.mark.promise("backlog.tdd")
def test_a_parked_child_blocks_the_item_and_goes_on_after_unblock(a_backlog: BacklogProject) -> None:
    a_backlog.settings("build: tdd")
    ok = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
    a_backlog.play(honest(spec=[turn("spec", write={f"{STEM}_SPEC.md": SPEC.split("### Phase 2")[0]})]))
    a_backlog.play({"*": [{"signal": ok}]}, "WRK-001.build.1")
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0
    blocked = a_backlog.item().blocked
    assert blocked is not None and "WRK-001.build.1" in blocked.reason
    assert a_backlog.status() == ""


# ---- stopping


@pytest.mark.slow
@pytest.mark.promise("004-agents.signals", "004-pipeline.crash")
def test_a_signal_stops_it_cleanly_and_the_next_run_goes_on(a_backlog: BacklogProject) -> None:
    slow = {**honest()["prd"][0], "sleep": 300}
    a_backlog.play(honest(prd=[slow, *honest()["prd"]]))
    a_backlog.add()
    process = subprocess.Popen(
        [sys.executable, "-m", "capsule", "run"],
        cwd=a_backlog.path,
        env=a_backlog.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    paper = a_backlog.path / ".capsule/worktrees/WRK-001" / f"{STEM}_PRD.md"
    deadline = time.monotonic() + LONG
    while not paper.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130
    assert a_backlog.status() == ""
    a_backlog.play(honest())
    said = a_backlog.run()
    assert said.code == 0 and "Resuming WRK-001 at prd" in said.err
    kept = [event for event in a_backlog.events() if isinstance(event, Salvaged)]
    assert kept and a_backlog.git("show", f"{kept[0].ref}:{STEM}_PRD.md") == "# Words"


# ---- what was there before


@pytest.mark.slow
def test_a_stale_result_is_gone_before_the_agent_starts(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(triage=[{"say": ["nothing written"]}]))
    a_backlog.add()
    stale = a_backlog.path / ".capsule" / "results" / "phase_result_WRK-001_triage.json"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.write_text(json.dumps(says("triage", updated_assessments={"size": "small", "risk": "low"})))
    assert a_backlog.run("--max-retries", "0").code == 1
    assert "No result JSON found" in a_backlog.item().blocked.reason  # type: ignore[union-attr]
    assert not stale.exists()


@pytest.mark.parametrize("name", ["MERGE_HEAD", "rebase-merge", "CHERRY_PICK_HEAD"])
def test_a_checkout_in_the_middle_of_something_is_refused(a_backlog: BacklogProject, name: str) -> None:
    a_backlog.add()
    (a_backlog.path / ".git" / name).mkdir()
    said = a_backlog.run()
    assert said.code == 2 and "is under way" in said.err and "--continue" in said.err
    assert a_backlog.spawns() == 0


def test_a_detached_head_is_refused(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.git("checkout", "-q", "--detach")
    said = a_backlog.run()
    assert said.code == 2 and "HEAD is detached" in said.err and "git switch" in said.err


# ---- words of agents


@pytest.mark.slow
def test_a_word_outside_the_vocabulary_says_nothing_and_spoils_nothing(a_backlog: BacklogProject) -> None:
    odd = turn(
        "triage",
        updated_assessments={"size": "huge", "risk": "low"},
        follow_ups=[5, {"title": "More", "suggested_size": "giant"}],
    )
    a_backlog.play(honest(triage=[{**odd, "write": {"_ideas/WRK-001_find-the-answer.md": "# An idea\n"}}]))
    a_backlog.add()
    assert a_backlog.run("--cap", "1").code == 0
    assert (a_backlog.item().assessment.size, a_backlog.item().assessment.risk) == ("", "low")
    assert a_backlog.item("WRK-002").title == "More" and a_backlog.ids() == ["WRK-001", "WRK-002"]


@pytest.mark.slow
def test_ten_thousand_follow_ups_are_twenty(a_backlog: BacklogProject) -> None:
    many = honest()["triage"][0]
    many["result"]["follow_ups"] = [{"title": f"{n} " + "x" * 300} for n in range(10_000)]
    a_backlog.play(honest(triage=[many]))
    a_backlog.add()
    said = a_backlog.run("--cap", "1")
    assert said.code == 0 and "9980 follow-ups more than 20 were left out" in said.err
    assert len(a_backlog.ids()) == 21 and max(len(item.title) for item in a_backlog.tracker.everything()) <= 200


@pytest.mark.slow
def test_a_block_keeps_the_whole_question(a_backlog: BacklogProject) -> None:
    a_backlog.play(honest(prd=[turn("prd", "BLOCKED", context="Which colour?\nBlue or red?")]))
    a_backlog.add()
    a_backlog.run()
    assert a_backlog.item().blocked.reason == "Which colour? Blue or red?"  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_planning_agent_cannot_smuggle_a_test_or_a_program_among_its_papers(a_backlog: BacklogProject) -> None:
    papers = {f"{STEM}_PRD.md": "# Words\n", "changes/WRK-001_find-the-answer/test_red.py": "assert False\n"}
    a_backlog.play(honest(prd=[turn("prd", write=papers), turn("prd", write=papers, run=[f"chmod +x {STEM}_PRD.md"])]))
    a_backlog.add()
    assert a_backlog.run("--max-retries", "1").code == 1
    assert a_backlog.moves()[2:] == ["prd retry", "prd park"]


# ---- the queue


@pytest.mark.slow
def test_what_is_in_progress_goes_before_what_is_ready_whatever_its_impact(a_backlog: BacklogProject) -> None:
    low = honest(triage=[turn("triage", updated_assessments={"size": "small", "risk": "low", "impact": "low"})])
    a_backlog.play(low)
    a_backlog.play(honest("WRK-002", "second"), "WRK-002")
    a_backlog.add()
    a_backlog.add("Second")
    a_backlog.run("WRK-001", "--cap", "2")
    a_backlog.say("triage")
    assert a_backlog.say("explain").out.splitlines()[0].startswith("WRK-001  next: goes on at research")


def test_an_item_that_waits_says_so_when_it_is_named(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Second", "--depends-on", "WRK-001")
    said = a_backlog.run("WRK-002")
    assert said.code == 1 and "WRK-002 waits for WRK-001 (new)." in said.err


def test_a_mistyped_phase_is_an_error_and_not_the_first_one(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.edit("status: new", "status: in_progress\n    phase: desgin")
    said = a_backlog.run()
    assert said.code == 2 and "'desgin' is no phase" in said.err and "Did you mean design?" in said.err


def test_a_ready_item_above_the_guardrails_is_blocked_before_it_is_paid_for(a_backlog: BacklogProject) -> None:
    a_backlog.add("Find the answer", "--size", "large")
    a_backlog.edit("status: new", "status: ready")
    said = a_backlog.run()
    assert said.code == 0 and "[WRK-001][BLOCKED] size is large, above the guardrail medium" in said.err
    assert a_backlog.spawns() == 0 and a_backlog.item().blocked.kind == "decision"  # type: ignore[union-attr]
    assert a_backlog.status() == ""


@pytest.mark.slow
@pytest.mark.promise("merge-queue.returned")
def test_an_item_whose_merge_conflicts_goes_back_to_its_build_by_itself(a_backlog: BacklogProject) -> None:
    a_backlog.settings("workspace: {kind: worktree}")
    theirs = f"cd {a_backlog.path} && echo 41 > answer && git add answer && git commit -qm theirs"
    whole = {**honest()["build"][1]["write"], "answer": "42\n"}
    again = turn("build", write=whole)
    a_backlog.play(honest(review=[turn("review", run=[theirs]), turn("review")], build=[*honest()["build"], again]))
    a_backlog.add()
    said = a_backlog.run()
    assert said.code == 0 and "WRK-001 goes back: Its merge into main conflicts in answer." in said.err, said
    assert "were dropped" not in said.err, "no agent has touched the backlog's files"
    assert a_backlog.moves()[-5:] == [f"{each} advance" for each in ("review", "build", "review", "merge", "archive")]
    assert a_backlog.git("show", "main:answer") == "42" and a_backlog.ids() == []


@pytest.mark.slow
@pytest.mark.promise("merge.rebuilt")
def test_an_item_that_only_had_to_be_merged_is_merged_after_it_was_rebuilt(a_backlog: BacklogProject) -> None:
    """Main was red by itself, and is mended by then: no agent works on the item again."""
    a_backlog.settings("workspace: {kind: worktree}")
    a_backlog.test = "test ! -e theirs"
    theirs = f"cd {a_backlog.path} && touch theirs && git add theirs && git commit -qm theirs"
    a_backlog.play(honest(review=[turn("review", run=[theirs])]))
    a_backlog.add()
    assert "main itself is red" in a_backlog.run().out
    assert a_backlog.run("WRK-001").code == 1
    a_backlog.git("rm", "-q", "theirs")
    a_backlog.git("commit", "-q", "-m", "away")
    spawns = a_backlog.spawns()
    said = a_backlog.run("WRK-001", "--rebase")
    assert said.code == 0 and a_backlog.spawns() == spawns, said
    assert a_backlog.git("show", "main:answer") == "42" and a_backlog.ids() == []


@pytest.mark.slow
@pytest.mark.promise("merge.by-hand")
def test_a_conflict_of_an_item_that_is_settled_by_hand_is_merged_once_it_is_unblocked(
    a_backlog: BacklogProject,
) -> None:
    """Main has changed the backlog and its worklog since: `git merge main` brings them along."""
    a_backlog.settings("workspace: {publish: merge}")
    theirs = f"cd {a_backlog.path} && git rev-parse HEAD > answer && git add answer && git commit -qm theirs"
    again = turn("build", write={**honest()["build"][1]["write"], "answer": "42\n"})
    a_backlog.play(honest(review=[turn("review", run=[theirs])], build=[*honest()["build"], again]))
    a_backlog.add()
    assert "conflict with main in answer" in a_backlog.run().out, "after two returns by itself"
    where = a_backlog.path / ".capsule/worktrees/WRK-001"
    with pytest.raises(AssertionError, match="git merge"):
        a_backlog.git("merge", "-q", "main", cwd=where)
    (where / "answer").write_text("42\n")
    a_backlog.git("add", "answer", cwd=where)
    a_backlog.git("commit", "-q", "-m", "settled", cwd=where)
    assert a_backlog.say("unblock", "WRK-001").code == 0
    said = a_backlog.run("WRK-001")
    assert (said.code, a_backlog.ids(), a_backlog.git("show", "main:answer")) == (0, [], "42"), said
    assert a_backlog.status() == "" and a_backlog.subjects()[-1].startswith("Merge WRK-001")


@pytest.mark.slow
def test_a_paused_child_goes_on_where_it_stood(a_backlog: BacklogProject) -> None:
    a_backlog.settings("build: tdd")
    a_backlog.play(honest(spec=[turn("spec", write={f"{STEM}_SPEC.md": SPEC.split("### Phase 2")[0]})]))
    ok = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
    commit = 'git add question && git commit -q -m "$CAPSULE_COMMIT_MSG"'
    asks = {"write": {"question": "?\n"}, "signal": ok}
    child: Script = {"execute": [asks], "merge": [{"run": [commit], "signal": ok}], "*": [{"signal": ok}]}
    a_backlog.play(child, "WRK-001.build.1")
    a_backlog.add()
    assert a_backlog.run("WRK-001", "--cap", "6", "--verify", "warn").code == 0
    said = a_backlog.run("WRK-001")
    assert said.code == 0, said.err
    assert "this is a bug" not in said.err and a_backlog.ids() == []


# ---- between two runs


@pytest.mark.slow
def test_edits_between_two_runs_are_refused_and_stay(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "2")
    a_backlog.write("mine.txt", "precious\n")
    said = a_backlog.run()
    assert said.code == 2 and "mine.txt" in said.err and "--allow-dirty" in said.err
    assert (a_backlog.path / "mine.txt").read_text() == "precious\n" and a_backlog.spawns() == 2


@pytest.mark.slow
def test_commits_between_two_runs_stay(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "2")
    a_backlog.commit("theirs", mine__txt="precious\n")
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert "theirs" in a_backlog.subjects() and a_backlog.git("show", "HEAD:mine.txt") == "precious"
    assert "mine.txt" not in a_backlog.git("show", "--name-only", "--format=", ":/RESEARCH")


# ---- a checkout that is worked in all the time


@pytest.mark.slow
def test_a_person_edits_the_checkout_all_the_time_and_keeps_every_byte(a_backlog: BacklogProject) -> None:
    a_backlog.commit("mine", **{"notes/tracked__txt": "0\n", "notes/other__txt": "as it was\n"})
    a_backlog.add()
    written: dict[str, str] = {}
    done = threading.Event()

    def edit() -> None:
        number = 0
        while not done.wait(0.005):
            number += 1
            for name in ("notes/tracked.txt", "notes/new.txt", f"notes/{number % 20}.txt"):
                written[name] = f"{number}\n"
                (a_backlog.path / name).write_text(written[name])

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        said = a_backlog.run("--allow-dirty")
    finally:
        done.set()
        editor.join()
    assert said.code == 0, said.err
    assert len(written) > 10
    assert {name: (a_backlog.path / name).read_text() for name in written} == written
    assert (a_backlog.path / "notes/other.txt").read_text() == "as it was\n"
    dirty = a_backlog.git("status", "--porcelain", "--untracked-files=all").splitlines()
    assert {row.split()[-1] for row in dirty} == set(written), "the tree is clean but for their edits"
    steps = [line for line in a_backlog.subjects() if line.startswith("[WRK-001]")]
    assert len(steps) == len(set(a_backlog.git("log", "--format=%(trailers:key=Capsule-Step,valueonly)").split()))
    touched = a_backlog.git("log", "--format=", "--name-only", ":/^mine..").split()
    assert not [path for path in touched if path.startswith("notes/")], "no commit took an edit along"
    assert a_backlog.git("show", "HEAD:answer") == "42"


@pytest.mark.slow
def test_a_person_who_switches_to_another_branch_meanwhile_is_left_alone(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    switch = f"git -C {a_backlog.path} switch -q -c elsewhere"
    a_backlog.play(honest(prd=[{**honest()["prd"][0], "run": [switch]}]))
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert a_backlog.git("branch", "--show-current") == "elsewhere" and a_backlog.status() == ""
    assert a_backlog.git("show", "main:answer") == "42" and "WRK-001" not in a_backlog.git("show", "main:BACKLOG.yaml")
    assert "phase: prd" in a_backlog.git("show", "elsewhere:BACKLOG.yaml")
    assert a_backlog.backlog.read_text() == a_backlog.git("show", "elsewhere:BACKLOG.yaml") + "\n"


@pytest.mark.slow
def test_work_that_is_red_together_with_what_came_to_the_branch_is_done_again(a_backlog: BacklogProject) -> None:
    a_backlog.test = "test ! -e demand || grep -qx 42 other"
    a_backlog.add()
    a_backlog.run("--cap", "5")
    theirs = f"cd {a_backlog.path} && touch demand && git add demand && git commit -qm theirs"
    first, second = honest()["build"]
    mended = {**second, "write": {**second["write"], "other": "42\n"}}
    a_backlog.play(honest(build=[{**first, "run": [theirs]}, mended, mended]))
    said = a_backlog.run()
    assert said.code == 0, said.err
    assert "theirs" in a_backlog.subjects()
    rebased = [event for event in a_backlog.events() if isinstance(event, Rebased)]
    assert rebased and "red together with what came to main" in rebased[0].why
    assert a_backlog.git("show", "HEAD:other") == "42" and a_backlog.status() == ""


@pytest.mark.slow
def test_a_retired_setting_is_told_once(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    said = a_backlog.run("--cap", "1", CAPSULE_WORKSPACE__KIND="checkout")
    assert said.err.count("workspace.kind is retired") == 1, said.err


@pytest.mark.promise("screens.agree")
def test_the_time_of_a_run_that_was_killed_counts_for_the_one_that_continues_it(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    journal = SqliteJournal(a_backlog.path / ".git" / "capsule")
    with journal.claim("_queue"):
        journal.note("_queue", RunStarted(at="2026-01-05T09:00:00Z", cap=100))
        journal.note("_queue", Warned(at="2026-01-05T09:05:00Z", text="still there"))
    journal.close()
    assert re.search(r"^  time: +5 min \d+ s$", a_backlog.run("--cap", "1").out, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.promise("evidence.trailers")
def test_a_merged_item_of_a_backlog_says_what_made_it(a_backlog: BacklogProject) -> None:
    a_backlog.settings("workspace: {publish: merge}")
    a_backlog.add()
    said = a_backlog.run()
    assert (said.code, a_backlog.ids()) == (0, []), said.err
    merge = a_backlog.git("log", "-1", "--merges", "--format=%H")
    assert a_backlog.git("show", f"{merge}:answer") == "42"
    rows = a_backlog.git("log", "-1", "--format=%(trailers:only,unfold)", merge).splitlines()
    told = {name: value for name, _, value in (row.partition(": ") for row in rows)}
    assert (told.pop("Capsule-Mission"), told.pop("Capsule-Agents")) == ("WRK-001", "scripted")
    assert told.pop("Capsule-Proven").startswith("green (exit code only)")
    assert told.pop("Capsule-Uuid").startswith("R") and not told
