"""Commands that change the backlog: what they change, what they commit, what they refuse, and whom they tell."""

from __future__ import annotations

import argparse
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from capsule.catalog import Catalog
from capsule.commands.arguments import parse
from capsule.core.assignment import Assign
from capsule.core.decide import Decision, Move
from capsule.core.errors import UsageError
from capsule.core.event import Abandoned, Event, MissionStarted, MovedByHand, Outcome, Policy, StepBegun, StepEnded
from capsule.core.evidence import Evidence, EvidenceStatus, ExamMark, ExamResult, ExamTest
from capsule.core.item import Status
from capsule.core.signal import Signal, Verdict
from capsule.core.state import replay
from capsule.journals.sqlite import SqliteJournal
from capsule.system.lock import FileLock

from .backlog_project import STAMP, BacklogProject, blocked, unchanged
from .conftest import Project, assert_clear, begin

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
PLANNED = ("PRD", "TECH_RESEARCH", "DESIGN", "SPEC")
MOVERS = (("advance",), ("unblock",), ("approve",), ("complete",), ("close", "--reason=no"))


@pytest.fixture
def an_interrupted_mission(a_backlog: BacklogProject) -> BacklogProject:
    """WRK-001 was at its design when somebody pulled the plug."""
    a_backlog.hold({"status": "in_progress", "phase": "design"})
    _begin_mission(a_backlog)
    return a_backlog


def _begin_mission(project: BacklogProject) -> None:
    item, workflow = project.item(), Catalog().workflow("change")
    with _journal(project) as journal, journal.claim("WRK-001"):
        started = MissionStarted(
            at=STAMP, mission="WRK-001", item=item, workflow=workflow, base=project.head(), into="main"
        )
        journal.note("WRK-001", started)
        journal.note("WRK-001", StepBegun(at=STAMP, key="design#1", phase="design", run=1, attempt=1))


@contextmanager
def _journal(project: BacklogProject) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(project.path / ".git" / "capsule")
    yield journal
    journal.close()


def _last(project: BacklogProject, kind: type[Event]) -> Any:
    found = [event for event in project.events("WRK-001") if isinstance(event, kind)]
    assert found, project.events("WRK-001")
    return found[-1]


# ---- add


@pytest.mark.promise("004-commands.add", "004-follow-ups.times")
def test_add_adds_to_the_backlog_and_prints_confirmation(a_backlog: BacklogProject) -> None:
    answer = a_backlog.capsule("add", "Test item")
    assert answer == (0, "WRK-001  Test item\n", "")
    item = a_backlog.item()
    assert (item.title, item.status, item.phase) == ("Test item", Status.NEW, "")
    assert RFC_3339.fullmatch(item.created)
    assert item.created == item.updated


def test_add_commits_the_backlog_alone(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "One")
    assert a_backlog.subjects()[-1] == "[WRK-001][ADD] One"
    assert a_backlog.git("show", "--name-only", "--format=") == "BACKLOG.yaml"
    assert a_backlog.status() == ""


def test_add_takes_everything_that_is_known(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "First")
    words = ("--size=Small", "--risk", "LOW", "--complexity=medium", "--impact=high", "--tag=ui", "--tag", "bug")
    answer = a_backlog.say("add", "Second", *words, "--depends-on=WRK-001", "--description=More\n- [ ] about it")
    assert answer.out == "WRK-002  Second\n"
    item, levels = a_backlog.item("WRK-002"), a_backlog.item("WRK-002").assessment
    assert (levels.size, levels.complexity, levels.risk, levels.impact) == ("small", "medium", "low", "high")
    assert (item.tags, item.dependencies) == (("ui", "bug"), ("WRK-001",))
    assert item.description == "More\n- [ ] about it"


@pytest.mark.promise("commands.add-short")
@pytest.mark.parametrize(("size", "risk"), [("S", "H"), ("s", "h"), ("small", "High")])
def test_levels_have_short_forms(a_backlog: BacklogProject, size: str, risk: str) -> None:
    answer = a_backlog.say("add", "One", "-s", size, "-r", risk, "--complexity=M", "--impact=l")
    assert (answer.code, answer.err) == (0, "")
    levels = a_backlog.item().assessment
    assert (levels.size, levels.complexity, levels.risk, levels.impact) == ("small", "medium", "high", "low")


def test_the_letter_l_is_large_for_a_size_and_low_for_a_risk(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "One", "-sL", "-rL")
    assert (a_backlog.item().assessment.size, a_backlog.item().assessment.risk) == ("large", "low")


@pytest.mark.promise("commands.add-lines")
def test_every_line_of_stdin_becomes_an_item(a_backlog: BacklogProject) -> None:
    answer = a_backlog.say("add", "-", "--tag=ui", stdin="One\n\n  Two · ü \r\nThree".encode())
    assert answer == (0, "WRK-001  One\nWRK-002  Two · ü\nWRK-003  Three\n", "")
    assert [item.tags for item in a_backlog.tracker.everything()] == [("ui",)] * 3
    assert a_backlog.subjects()[-1] == "[WRK-001][ADD] 3 items"


@pytest.mark.promise("commands.add-lines")
def test_lines_of_a_list_lose_their_markers_and_are_one_commit(a_backlog: BacklogProject) -> None:
    before = a_backlog.head()
    lines = b"- Three\n* Four\n1. Five\n  - [ ] Six\n-7 is too cold\n"
    titles = ["Three", "Four", "Five", "Six", "-7 is too cold"]
    assert a_backlog.say("add", "-", stdin=lines).code == 0
    assert [item.title for item in a_backlog.tracker.everything()] == titles
    assert a_backlog.subjects(before) == ["[WRK-001][ADD] 5 items"]


@pytest.mark.parametrize(
    ("words", "stdin", "cause", "what_next"),
    [
        (("-",), b" \n\n", "Stdin has no titles.", "capsule add - < ideas.txt"),
        (("-",), "über\n".encode("latin-1"), "Stdin is not UTF-8 text.", "iconv -t UTF-8"),
        (("-", "--description=-"), b"One\n", "cannot both come from stdin", "as an argument"),
        (("-",), b"One\n" * 100_000, "larger than 256 KiB", "into a file of the project"),
    ],
)
def test_titles_that_cannot_be_read_add_nothing(
    a_backlog: BacklogProject, words: tuple[str, ...], stdin: bytes, cause: str, what_next: str
) -> None:
    with unchanged(a_backlog):
        assert_clear(a_backlog.say("add", *words, stdin=stdin), 2, cause, what_next)


def test_a_description_can_come_on_stdin(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "One", "--description", "-", stdin=b"from a file\nof two lines \xff\x1b\n")
    assert a_backlog.item().description == "from a file\nof two lines \ufffd"


def test_a_whole_book_is_no_description(a_backlog: BacklogProject) -> None:
    answer = a_backlog.say("add", "One", "--description=-", stdin=b"x" * 300_000)
    assert_clear(answer, 2, "larger than 256 KiB", "into a file of the project")


def test_any_title_reads_back_as_it_was_typed(a_backlog: BacklogProject) -> None:
    titles = ("no", "12:30", "2026-02-11", "0123", "- a: b # c", "日本語 👍", 'it\'s "quoted"', "{a}")
    for number, title in enumerate(titles, 1):
        assert a_backlog.say("add", title, "--no-commit").out == f"WRK-{number:03}  {title}\n"
        assert a_backlog.item(f"WRK-{number:03}").title == title


@pytest.mark.promise("004-follow-ups.levels")
@pytest.mark.parametrize(
    ("words", "code", "cause", "what_next"),
    [
        (("",), 2, "An item needs a title.", "capsule add"),
        ((" \t ",), 2, "An item needs a title.", "capsule add"),
        (("one\ntwo",), 2, "A title is one line, and this one has several.", "--description"),
        (("\udcfcber",), 2, "The title is not UTF-8 text.", "a locale with UTF-8"),
        (("x", "--risk=hihg"), 2, "--risk is 'hihg'; it must be low, medium or high.", "Did you mean `high`?"),
        (("x", "--size=7"), 2, "--size is '7'; it must be small, medium or large.", "Leave it out"),
        (("x", "--depends-on=WRK-009"), 1, "There is no item WRK-009 to depend on.", "`capsule status`"),
        (("x", "--depends-on=../x"), 2, "'../x' is not a valid item id.", "An id has 1 to 64"),
    ],
)
def test_add_refuses_what_it_cannot_take(
    a_backlog: BacklogProject, words: tuple[str, ...], code: int, cause: str, what_next: str
) -> None:
    with unchanged(a_backlog):
        assert_clear(a_backlog.say("add", *words), code, cause, what_next)


def test_ids_go_on_counting_after_an_item_was_archived(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "One")
    a_backlog.say("complete", "WRK-001")
    assert a_backlog.say("add", "Two", "--depends-on=WRK-001").out == "WRK-002  Two\n"


def test_items_added_at_the_same_moment_get_ids_of_their_own(a_backlog: BacklogProject) -> None:
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(a_backlog.capsule("add", f"T{n}").out)) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line.split()[0] for line in said) == ["WRK-001", "WRK-002", "WRK-003"]
    committed = {subject[1:8]: subject.split("] ")[1] for subject in a_backlog.subjects()[-3:]}
    assert committed == {line.split()[0]: line.split()[1] for line in said}


def test_add_works_while_a_mission_runs(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "build"})
    with FileLock(a_backlog.path / ".git/capsule/locks/mission-WRK-001.lock"):
        assert a_backlog.say("add", "Meanwhile").out == "WRK-002  Meanwhile\n"


# ---- committed, or not


@pytest.mark.promise("backlog.user-file")
def test_other_changes_in_the_tree_stay_out_of_the_commit(a_backlog: BacklogProject) -> None:
    a_backlog.write("README", "as it was\n")
    a_backlog.commit("a file")
    a_backlog.write("README", "edited\n")
    a_backlog.write("staged.txt", "staged\n")
    a_backlog.git("add", "staged.txt")
    a_backlog.write("mine.txt", "mine\n")
    others = a_backlog.status()
    assert a_backlog.say("add", "One") == (0, "WRK-001  One\n", "")
    assert a_backlog.git("show", "--format=%s", "--name-only", "HEAD").split("\n\n") == [
        "[WRK-001][ADD] One",
        "BACKLOG.yaml",
    ]
    assert a_backlog.status() == others


def test_the_first_commit_of_a_repository_with_files_is_left_to_the_user(tmp_path: Path) -> None:
    project = BacklogProject(begin(tmp_path / "shop").path, tmp_path)
    project.write("README", "hello\n")
    project.say("init")
    answer = project.say("add", "One")
    assert answer == (0, "WRK-001  One\n", "not committed: the repository has files, but no commit yet\n")
    assert project.git("for-each-ref", "refs/heads") == "" and project.item().title == "One"


def test_what_was_only_saved_is_committed_with_the_next_change(a_backlog: BacklogProject) -> None:
    a_backlog.say("add", "One", "--no-commit")
    assert a_backlog.status() == "M BACKLOG.yaml"
    a_backlog.say("add", "Two")
    assert a_backlog.status() == ""
    assert "One" in a_backlog.git("show", "HEAD:BACKLOG.yaml")


def test_nothing_is_committed_in_the_middle_of_a_merge_or_on_no_branch(a_backlog: BacklogProject) -> None:
    merging = a_backlog.path / ".git" / "MERGE_HEAD"
    merging.write_text(a_backlog.head() + "\n")
    assert a_backlog.say("add", "One").err == "not committed: a merge is under way\n"
    merging.unlink()
    a_backlog.commit("one")
    a_backlog.git("checkout", "-q", "--detach")
    assert a_backlog.say("add", "Two").err == "not committed: HEAD is detached\n"
    assert a_backlog.item("WRK-002").title == "Two"


@pytest.mark.parametrize("verb", ["advance", "unblock", "approve", "complete", "close"])
def test_every_change_can_be_left_uncommitted(a_backlog: BacklogProject, verb: str) -> None:
    a_backlog.hold(blocked("decision") if verb in ("unblock", "approve") else {})
    before = a_backlog.head()
    answer = a_backlog.say(verb, "WRK-001", "--no-commit", *(["--reason=no"] if verb == "close" else []))
    assert (answer.code, answer.err, a_backlog.head()) == (0, "", before)
    assert "BACKLOG.yaml" in a_backlog.status()


@pytest.mark.promise("backlog.user-file")
def test_an_edit_changes_only_the_lines_it_must(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "scoped", "phase": "prd", "updated": STAMP})
    a_backlog.backlog.write_text("# my notes\n" + a_backlog.backlog.read_text())
    a_backlog.commit("notes")
    a_backlog.say("advance", "WRK-001")
    assert a_backlog.git("show", "--numstat", "--format=") == "2\t2\tBACKLOG.yaml"


# ---- advance


@pytest.mark.promise("004-commands.advance-unblock", "commands.advance-without-phase")
@pytest.mark.parametrize(
    ("status", "phase", "then"),
    [
        ("new", "", "scoped"),
        ("researching", "", "scoped"),
        ("scoped", "", "ready at prd"),
        ("ready", "prd", "in_progress at prd"),
        ("ready", "design", "in_progress at design"),
        ("in_progress", "prd", "in_progress at research"),
        ("in_progress", "build", "in_progress at review"),
        ("in_progress", "", "in_progress at prd"),
    ],
)
def test_advance_moves_one_step(a_backlog: BacklogProject, status: str, phase: str, then: str) -> None:
    a_backlog.hold({"status": status, **({"phase": phase} if phase else {})})
    answer = a_backlog.say("advance", "WRK-001", "--no-commit")
    assert (answer.code, answer.out.partition(";")[0]) == (0, f"WRK-001 is {then}")
    item = a_backlog.item()
    assert f"{item.status.value} at {item.phase}".removesuffix(" at ") == then
    assert RFC_3339.fullmatch(item.updated)


@pytest.mark.promise("004-file.skipping")
def test_advance_to_a_phase_with_the_documents_of_those_skipped(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"})
    a_backlog.documents(*PLANNED)
    assert a_backlog.say("advance", "WRK-001", "--to", "build").code == 0
    assert a_backlog.item().phase == "build"
    assert a_backlog.subjects()[-1] == "[WRK-001][ADVANCE] prd -> build"


@pytest.mark.promise("004-file.skipping")
@pytest.mark.parametrize(("kinds", "text"), [(("PRD", "DESIGN"), "written\n"), (("PRD", "TECH_RESEARCH"), " \n")])
def test_advance_to_a_phase_without_them_fails(a_backlog: BacklogProject, kinds: tuple[str, ...], text: str) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "research"})
    a_backlog.documents(*kinds, text=text)
    with unchanged(a_backlog):
        answer = a_backlog.say("advance", "WRK-001", "--to=spec")
        missing = "changes/WRK-001_item-1/WRK-001_item-1_TECH_RESEARCH.md"
        assert_clear(answer, 1, "cannot skip to spec: its TECH_RESEARCH is missing or empty", missing)


def test_research_by_its_other_name_counts_and_so_does_a_folder_of_an_old_title(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "research", "title": "Retitled since"})
    a_backlog.documents("RESEARCH")
    assert a_backlog.say("advance", "WRK-001", "--to=design").code == 0


@pytest.mark.parametrize(("status", "then"), [("ready", "in_progress at research"), ("scoped", "ready at research")])
def test_an_item_can_enter_at_a_later_phase(a_backlog: BacklogProject, status: str, then: str) -> None:
    a_backlog.hold({"status": status})
    a_backlog.documents("PRD")
    assert a_backlog.say("advance", "WRK-001", "--to=research").out.startswith(f"WRK-001 is {then};")


def test_backwards_is_always_allowed(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "review"})
    assert a_backlog.say("advance", "WRK-001", "--to=PRD").code == 0
    assert a_backlog.item().phase == "prd"


@pytest.mark.parametrize(
    ("item", "words", "code", "cause", "what_next"),
    [
        (
            {"status": "in_progress", "phase": "review"},
            (),
            1,
            "at review, and there is no phase after",
            "capsule complete",
        ),
        (blocked(), (), 1, "WRK-001 is blocked: which colour?", "capsule answer WRK-001 --notes"),
        (blocked(), ("--to=prd",), 1, "WRK-001 is blocked: which colour?", "capsule answer WRK-001 --notes"),
        ({"status": "done"}, (), 1, "WRK-001 is done.", "capsule complete WRK-001"),
        ({}, ("--to=prd",), 1, "is new, and has to be scoped before it can go to prd", "capsule advance WRK-001"),
        ({"status": "in_progress", "phase": "prd"}, ("--to=prd",), 1, "is at prd already", "capsule run WRK-001"),
        ({"status": "ready"}, ("--to=desing",), 2, "cannot be moved to a phase 'desing'", "Did you mean `design`?"),
        ({"status": "ready"}, ("--to=triage",), 2, "cannot be moved to a phase 'triage'", "There are: prd, research"),
        ({"status": "ready"}, ("--to=archive",), 2, "cannot be moved to a phase 'archive'", "There are: prd, research"),
    ],
)
def test_a_refused_move_changes_nothing(
    a_backlog: BacklogProject, item: dict[str, Any], words: tuple[str, ...], code: int, cause: str, what_next: str
) -> None:
    a_backlog.hold(item)
    with unchanged(a_backlog):
        assert_clear(a_backlog.say("advance", "WRK-001", *words), code, cause, what_next)


# ---- unblock, approve


@pytest.mark.promise("004-file.moves")
@pytest.mark.parametrize("status", ["new", "researching", "scoped", "ready", "in_progress"])
def test_unblock_restores_exactly_the_status_it_was_blocked_from(a_backlog: BacklogProject, status: str) -> None:
    a_backlog.hold(blocked(blocked_from_status=status, phase="design"))
    answer = a_backlog.say("unblock", "WRK-001", "--notes", "The blue one: #00f", "--no-commit")
    assert (answer.code, answer.out) == (0, f"WRK-001 is {status} at design again.\n")
    item = a_backlog.item()
    assert (item.status.value, item.phase, item.blocked) == (status, "design", None)
    assert item.unblock_context == "The blue one: #00f"
    assert not [name for name in a_backlog.fields() if name.startswith("blocked")]


@pytest.mark.promise("004-commands.advance-unblock")
def test_unblock_is_committed_with_what_was_said(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(), blocked())
    a_backlog.say("unblock", "WRK-001", "--notes=The blue one")
    a_backlog.say("unblock", "WRK-002")
    assert a_backlog.subjects()[-2:] == ["[WRK-001][UNBLOCK] The blue one", "[WRK-002][UNBLOCK] which colour?"]
    assert a_backlog.status() == ""


def test_unblock_notes_can_come_on_stdin_and_stay_where_none_are_given(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(), blocked(unblock_context="said before"))
    a_backlog.say("unblock", "WRK-001", "--notes=-", stdin=b"two\nlines\n")
    a_backlog.say("unblock", "WRK-002")
    assert [a_backlog.item(name).unblock_context for name in ("WRK-001", "WRK-002")] == ["two\nlines", "said before"]


@pytest.mark.parametrize("verb", ["unblock", "approve"])
def test_a_human_lets_pass_what_a_guardrail_stopped(a_backlog: BacklogProject, verb: str) -> None:
    a_backlog.hold(blocked("decision", risk="high", size="medium", complexity="high", requires_human_review="true"))
    assert a_backlog.say(verb, "WRK-001").code == 0
    item = a_backlog.item()
    assert a_backlog.fields()["guardrail_override"] == {"complexity": "high", "risk": "high"}
    assert (item.requires_human_review, item.status) == (False, Status.READY)


def test_what_was_let_pass_before_stays_let_pass(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked("decision", risk="medium", guardrail_override="{risk: high, size: large}"))
    a_backlog.say("unblock", "WRK-001")
    assert a_backlog.fields()["guardrail_override"] == {"size": "large", "risk": "high"}


def test_the_answer_to_a_question_is_no_leave_to_pass_a_guardrail(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(risk="high", requires_human_review="true"))
    a_backlog.say("unblock", "WRK-001", "--notes=blue")
    assert "guardrail_override" not in a_backlog.fields()
    assert a_backlog.item().requires_human_review


def test_approve_leaves_a_question_for_unblock(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked())
    with unchanged(a_backlog):
        answer = a_backlog.say("approve", "WRK-001")
        assert_clear(answer, 1, "waits for an answer, not for a decision: which colour?", "answer WRK-001 --notes")


@pytest.mark.parametrize("verb", ["unblock", "approve"])
def test_what_is_not_blocked_cannot_be_unblocked(a_backlog: BacklogProject, verb: str) -> None:
    a_backlog.hold({"status": "ready"})
    with unchanged(a_backlog):
        answer = a_backlog.say(verb, "WRK-001")
        assert_clear(answer, 1, "WRK-001 is not blocked: it is ready.", "capsule explain WRK-001")


# ---- complete, close


@pytest.mark.promise("004-file.archive")
@pytest.mark.parametrize("item", [{}, blocked(), {"status": "in_progress", "phase": "prd"}, {"status": "done"}])
def test_complete_archives_from_any_status(a_backlog: BacklogProject, item: dict[str, Any]) -> None:
    a_backlog.hold(item)
    assert a_backlog.say("complete", "WRK-001") == (0, "WRK-001 is completed: Item 1\n", "")
    [worklog] = (a_backlog.path / "_worklog").glob("*.md")
    assert "| WRK-001 | archive | Completed\n\n**Item 1**" in worklog.read_text()
    assert "WRK-001" not in a_backlog.backlog.read_text()
    assert a_backlog.subjects()[-1] == "[WRK-001][ARCHIVE] Completed: Item 1"
    assert a_backlog.status() == ""


def test_close_archives_as_not_done_and_keeps_the_reason(a_backlog: BacklogProject) -> None:
    a_backlog.hold({})
    assert a_backlog.say("close", "WRK-001", "--reason", "nobody\nwants it").out == "WRK-001 is closed: Item 1\n"
    [worklog] = (a_backlog.path / "_worklog").glob("*.md")
    assert "| Closed\n\n**Item 1**\n\nnobody wants it\n" in worklog.read_text()
    assert a_backlog.subjects()[-1] == "[WRK-001][ARCHIVE] Closed: Item 1 (nobody wants it)"


@pytest.mark.parametrize(
    ("words", "cause"),
    [((), "The following arguments are required: --reason"), (("--reason= ",), "The reason is empty")],
)
def test_close_wants_a_reason(a_backlog: BacklogProject, words: tuple[str, ...], cause: str) -> None:
    a_backlog.hold({})
    answer = a_backlog.say("close", "WRK-001", *words)
    assert_clear(answer, 2, cause, "`capsule close --help`" if not words else "Give the reason")


def test_what_was_archived_cannot_be_archived_again(a_backlog: BacklogProject) -> None:
    a_backlog.hold({})
    a_backlog.say("complete", "WRK-001")
    with unchanged(a_backlog):
        assert_clear(a_backlog.say("complete", "WRK-001"), 1, "WRK-001 was archived.", "_worklog/")


# ---- missions


@pytest.mark.promise("backlog.moved-by-hand")
def test_a_move_by_hand_is_told_to_the_mission(an_interrupted_mission: BacklogProject) -> None:
    project = an_interrupted_mission
    assert project.say("advance", "WRK-001", "--to=prd").code == 0
    event = _last(project, MovedByHand)
    assert (event.expected, event.found) == ("in_progress at design", "in_progress at prd")
    assert event.item == project.item()
    state = replay(project.events("WRK-001"))
    assert (state.to_do[0], state.begun) == ("prd", None)


def test_unblocking_is_told_to_the_mission(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(blocked_from_status="in_progress", phase="design"))
    _begin_mission(a_backlog)
    a_backlog.say("unblock", "WRK-001", "--notes=blue")
    event = _last(a_backlog, MovedByHand)
    assert (event.item.status, event.item.unblock_context) == (Status.IN_PROGRESS, "blue")
    assert replay(a_backlog.events("WRK-001")).halt is None


@pytest.mark.parametrize(
    ("words", "how"), [(("complete",), "completed by hand"), (("close", "--reason=no"), "closed by hand")]
)
def test_archiving_ends_the_mission(an_interrupted_mission: BacklogProject, words: tuple[str, ...], how: str) -> None:
    project = an_interrupted_mission
    answer = project.say(words[0], "WRK-001", *words[1:])
    assert answer.code == 0, answer
    assert "its mission has ended" in answer.out
    assert _last(project, Abandoned).how == how


@pytest.mark.promise("backlog.agent-copy")
@pytest.mark.parametrize("words", MOVERS, ids=lambda words: words[0])
def test_an_item_whose_mission_runs_is_left_alone(
    an_interrupted_mission: BacklogProject, words: tuple[str, ...]
) -> None:
    project = an_interrupted_mission
    lock = FileLock(project.path / ".git/capsule/locks/mission-WRK-001.lock")
    with unchanged(project), lock:
        answer = project.say(words[0], "WRK-001", *words[1:])
    assert answer.code == 3
    assert re.search(r"is running \(pid \d+\)\.\n  Stop it with `capsule stop \S+`", answer.err)


def test_what_a_step_has_found_out_is_recorded_before_a_human_moves_the_item(
    an_interrupted_mission: BacklogProject,
) -> None:
    """The outcome is journaled and the power failed before the backlog was told: it would undo what is said now."""
    project = an_interrupted_mission
    ended = StepEnded(
        at=STAMP,
        key="design#1",
        phase="design",
        run=1,
        outcome=Outcome(signal=Signal(verdict=Verdict.PASS, summary="designed")),
        decision=Decision(move=Move.ADVANCE, verdict=Verdict.PASS),
        assignments=(Assign("WRK-001", {"status": "in_progress", "phase": "spec", "risk": "low"}),),
        message="[WRK-001][DESIGN] designed",
    )
    with _journal(project) as journal, journal.claim("WRK-001"):
        journal.note("WRK-001", ended)
    assert project.say("advance", "WRK-001").out == "WRK-001 is in_progress at build; it was in_progress at spec.\n"
    assert project.subjects()[-2:] == ["[WRK-001][DESIGN] designed", "[WRK-001][ADVANCE] spec -> build"]
    assert project.item().assessment.risk == "low"
    state = replay(project.events("WRK-001"))
    assert (state.unrecorded, state.to_do[0]) == (None, "build")


def test_explain_says_how_to_go_on_with_a_mission_that_stopped(a_halted_mission: Project) -> None:
    lines = a_halted_mission.say("explain", "demo-1.1").out.splitlines()
    assert lines[0].startswith("demo-1.1  not now: its mission failed at execute: the disk is full")
    assert lines[1] == "  next: capsule answer demo-1.1 --retry"
    assert lines[2] == "  proven: red (exit code only) · reviewed (its word)"


def test_what_a_mission_left_is_salvaged_when_its_item_is_completed(a_halted_mission: Project) -> None:
    answer = a_halted_mission.say("complete", "demo-1.1")
    assert answer.code == 0, answer
    ref = re.search(r"its work is kept as (refs/capsule/salvage/demo-1.1/\S+)", answer.out)
    assert ref
    assert a_halted_mission.git("show", f"{ref[1]}:tests/test_answer.sh") == "grep -qx 42 answer"
    assert (a_halted_mission.status_of(), a_halted_mission.worktree.exists()) == ("closed", False)


def test_the_mission_of_an_item_that_never_ran_hears_nothing(a_backlog: BacklogProject) -> None:
    a_backlog.hold({})
    a_backlog.say("advance", "WRK-001")
    assert a_backlog.events("WRK-001") == []


# ---- explain


def test_explain_says_which_is_next_and_why_every_other_is_not(a_backlog: BacklogProject) -> None:
    a_backlog.hold(
        {"status": "new"},
        {"status": "ready", "impact": "low"},
        {"status": "ready", "impact": "high"},
        {"status": "ready", "dependencies": "[WRK-003]"},
        blocked(),
        {"status": "scoped", "risk": "high"},
    )
    assert a_backlog.capsule("explain").out.splitlines() == [
        "WRK-003  next: ready, impact high",
        "WRK-002  after WRK-003: ready, impact low",
        "WRK-004  not now: waits for WRK-003 (ready)",
        "WRK-006  after WRK-002: scoped; you will be asked: risk is high, above the guardrail low",
        "WRK-001  after WRK-006: needs triage",
        "WRK-005  not now: blocked (clarification): which colour?",
    ]


@pytest.mark.parametrize(
    ("item", "line", "way"),
    [
        ({"status": "ready"}, "after WRK-002: ready, impact unknown", "capsule run WRK-001"),
        (blocked(), "not now: blocked (clarification): which colour?", 'capsule answer WRK-001 --notes "..."'),
        (blocked("decision"), "not now: blocked (decision): risk", "capsule answer WRK-001 --approve"),
        (
            {"status": "ready", "dependencies": "[WRK-002]"},
            "not now: waits for WRK-002 (in_progress)",
            "finish WRK-002 first",
        ),
    ],
)
def test_explain_says_what_would_make_an_item_move(
    a_backlog: BacklogProject, item: dict[str, Any], line: str, way: str
) -> None:
    a_backlog.hold(item, {"status": "in_progress", "phase": "prd"})
    first, second = a_backlog.say("explain", "WRK-001").out.splitlines()
    assert first.startswith(f"WRK-001  {line}")
    assert second.startswith(f"  next: {way}")


ASKED = (("greets", "Ann", "hello Ann"), ("trims", "' Ann '", "hello Ann"), ("shouts", "!", "HO"), ("yells", "?", "OY"))
EXAM = tuple(
    ExamTest(f"E{n}", *asked, f"tests/test_e{n}.py", "test_it", "assert secret") for n, asked in enumerate(ASKED, 1)
)
MARKS = (
    ExamResult("E1", ExamMark.PASSED),
    ExamResult("E2", ExamMark.FAILED, "hello, Ann"),
    ExamResult("E3", ExamMark.DROPPED, "it passes with the change taken out"),
    ExamResult("E4", ExamMark.FAILED, "hello"),
)


@pytest.mark.promise("exam.counts")
@pytest.mark.parametrize(
    ("kept", "fate"), [("keep", "E1 joins the test suite when the work is merged"), ("drop", "E1 stays hidden")]
)
def test_explain_tells_the_exam(a_backlog: BacklogProject, kept: str, fate: str) -> None:
    a_backlog.hold({"status": "in_progress"})
    examined = Evidence("exam-passed", "it does what was asked", "seen", EvidenceStatus.REFUTED, exam=MARKS)
    struck = Signal(verdict=Verdict.PASS, extra={"struck": {"test": "E4", "because": "nobody asked for it"}})
    on = Decision(Move.ADVANCE, Verdict.PASS)
    back = Decision(Move.REWORK, Verdict.REFUTED, back_to="execute", counter="exam")
    outcomes = [
        ("exam", Outcome(signal=Signal(verdict=Verdict.PASS), exam=EXAM, evidence=(examined,)), back),
        ("execute", Outcome(signal=Signal(verdict=Verdict.PASS)), on),
        ("execute-review", Outcome(signal=struck), on),
    ]
    with _journal(a_backlog) as journal, journal.claim("WRK-001"):
        journal.note(
            "WRK-001",
            MissionStarted(
                at=STAMP,
                mission="WRK-001",
                item=a_backlog.item(),
                workflow=Catalog().workflow("exam"),
                base=a_backlog.head(),
                into="main",
                policy=Policy(test="make test", exam=kept),
            ),
        )
        for phase, outcome, decision in outcomes:
            key = f"{phase}#1"
            journal.note("WRK-001", StepBegun(at=STAMP, key=key, phase=phase, run=1, attempt=1))
            ended = StepEnded(at=STAMP, key=key, phase=phase, run=1, outcome=outcome, decision=decision)
            journal.note("WRK-001", ended)
    told = [line for line in a_backlog.say("explain", "WRK-001").out.splitlines() if "exam:" in line]
    assert told[:4] == [
        "  exam: E1 passed: greets; input: Ann; expected: hello Ann",
        "  exam: E2 failed: trims; input: ' Ann '; expected: hello Ann; seen: hello, Ann",
        "  exam: E3 dropped: shouts; input: !; expected: HO; because it passes with the change taken out",
        "  exam: E4 struck out: yells; input: ?; expected: OY; because nobody asked for it",
    ]
    assert told[4].startswith(f"  exam: {fate}")
    assert "secret" not in "".join(told)


def test_explain_knows_what_runs(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"}, {"status": "ready"})
    with FileLock(a_backlog.path / ".git/capsule/locks/mission-WRK-001.lock"):
        out = a_backlog.say("explain").out
    assert re.match(r"WRK-001  not now: it is running \(pid \d+\)\nWRK-002  next: ", out)


@pytest.fixture
def two_about_one_file(a_backlog: BacklogProject) -> BacklogProject:
    """WRK-001 and WRK-002 name the same file, and WRK-003 another one."""
    for path in ("src/api.py", "src/cli.py", "tests/test_api.py"):
        a_backlog.write(path, "")
    a_backlog.commit("sources")
    a_backlog.hold(
        {"status": "in_progress", "phase": "build", "title": "Mend api.py"},
        {"status": "ready", "impact": "high", "title": "Also mend src/api.py"},
        {"status": "ready", "title": "Mend src/cli.py"},
    )
    return a_backlog


@contextmanager
def _running(project: BacklogProject, *files: str, **facts: str) -> Iterator[None]:
    """WRK-001 runs, and a step of it has changed these files and established these facts."""
    started = MissionStarted(
        at=STAMP,
        mission="WRK-001",
        item=project.item(),
        workflow=Catalog().workflow("change"),
        base=project.head(),
        into="main",
        policy=Policy(test_globs=("test_*.py",)),
    )
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS), files=files, facts=facts)
    on = Decision(Move.ADVANCE, Verdict.PASS)
    with _journal(project) as journal, journal.claim("WRK-001"):
        journal.note("WRK-001", started)
        journal.note("WRK-001", StepEnded(at=STAMP, key="spec#1", phase="spec", run=1, outcome=outcome, decision=on))
        yield


@pytest.mark.promise("commands.overlap")
def test_explain_says_which_file_a_mission_that_runs_is_changing(two_about_one_file: BacklogProject) -> None:
    with _running(two_about_one_file, "src/api.py", "changes/WRK-001_item-1/WRK-001_item-1_SPEC.md"):
        first, second, third = two_about_one_file.say("explain").out.splitlines()
        way = two_about_one_file.say("explain", "WRK-002").out.splitlines()[1]
    assert first.startswith("WRK-001  not now: it is running")
    assert second == "WRK-003  next: ready, impact unknown"
    words = "ready, impact high; likely to touch src/api.py, which WRK-001 is changing"
    assert third == f"WRK-002  after WRK-003: {words}"
    assert way == "  next: capsule run WRK-002"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "; likely to touch src/api.py, as WRK-001 is"),
        (("tests/test_api.py",), "; likely to touch src/api.py, as WRK-001 is"),
        (("changes/WRK-001_item-1/WRK-001_item-1_PRD.md",), "; likely to touch src/api.py, as WRK-001 is"),
        (("src/other.py",), ""),
    ],
)
def test_names_count_until_more_than_tests_are_changed(
    two_about_one_file: BacklogProject, files: tuple[str, ...], words: str
) -> None:
    with _running(two_about_one_file, *files):
        out = two_about_one_file.say("explain", "WRK-002").out
    assert out.splitlines()[0].endswith(f"ready, impact high{words}")


def test_a_mission_that_has_journaled_nothing_yet_counts_by_its_item(two_about_one_file: BacklogProject) -> None:
    with FileLock(two_about_one_file.path / ".git/capsule/locks/mission-WRK-001.lock"):
        assert "likely to touch src/api.py, as WRK-001 is" in two_about_one_file.say("explain", "WRK-002").out
    assert "likely" not in two_about_one_file.say("explain").out, "one that does not run delays nobody"


def test_a_mission_that_is_merged_delays_nobody(two_about_one_file: BacklogProject) -> None:
    with _running(two_about_one_file, "src/api.py", merged=two_about_one_file.head()):
        assert "likely" not in two_about_one_file.say("explain").out


def test_a_plan_names_files_too(two_about_one_file: BacklogProject) -> None:
    two_about_one_file.documents("SPEC", item="WRK-003", text="### Phase 1: the API\n- [ ] mend `api.py`\n")
    with _running(two_about_one_file, "src/api.py"):
        out = two_about_one_file.say("explain", "WRK-003").out
    assert "likely to touch src/api.py, which WRK-001 is changing" in out


def test_explain_as_json_and_of_nothing(a_backlog: BacklogProject) -> None:
    assert a_backlog.say("explain").out.startswith("The backlog is empty.")
    a_backlog.hold({"status": "ready"})
    assert '"next": true' in a_backlog.say("explain", "--json").out


# ---- for all of them


@pytest.mark.promise("004-follow-ups.typed-errors")
@pytest.mark.parametrize("words", [*MOVERS, ("explain",)], ids=lambda words: words[0])
def test_an_unknown_id_is_named_with_the_nearest(a_backlog: BacklogProject, words: tuple[str, ...]) -> None:
    a_backlog.hold({"id": "APP-1x"}, last_id=1)
    with unchanged(a_backlog):
        answer = a_backlog.say(words[0], "APP-2x", *words[1:])
        assert_clear(answer, 1, "There is no item APP-2x.", "Did you mean APP-1x?")


@pytest.mark.parametrize("option", ["--type=bug", "--priority=1", "--parent=WRK-001"])
def test_what_only_a_bead_has_is_refused(a_backlog: BacklogProject, option: str) -> None:
    a_backlog.hold({})
    with unchanged(a_backlog):
        cause = f"{option.partition('=')[0]} is for beads, and this project has a backlog."
        assert_clear(a_backlog.say("add", "x", option), 2, cause, "--size, --complexity, --risk and --impact")


@pytest.mark.parametrize("words", [("complete",), ("close", "--reason=no")], ids=lambda words: words[0])
def test_a_bead_can_be_completed_and_closed(a_project: Project, words: tuple[str, ...]) -> None:
    assert a_project.say(words[0], "demo-1.1", *words[1:]).code == 0
    assert a_project.status_of() == "closed"


PARSED = [
    ("init", [], {"prefix": None, "prompts": False, "tracker": "auto", "no_commit": False}),
    ("init", ["--prefix=APP", "--prompts", "--tracker", "backlog"], {"prefix": "APP", "prompts": True}),
    ("add", ["T", "--size=small", "--risk", "low", "--tag=a", "--tag=b"], {"title": "T", "tag": ["a", "b"]}),
    ("add", ["T", "--depends-on=A-1", "--depends-on", "A-2"], {"depends_on": ["A-1", "A-2"]}),
    ("status", ["--json", "--only=status=new"], {"json": True, "only": "status=new"}),
    ("explain", [], {"item": None, "json": False}),
    ("advance", ["A-1", "--to=build", "--no-commit"], {"item": ["A-1"], "to": "build", "no_commit": True}),
    ("unblock", ["A-1", "--notes", "n"], {"item": ["A-1"], "notes": "n"}),
    ("approve", ["A-1", "--notes=n"], {"item": ["A-1"], "notes": "n"}),
    ("complete", ["A-1", "--project-dir=/x"], {"item": ["A-1"], "project_dir": "/x"}),
    ("close", ["A-1", "--reason", "r"], {"item": ["A-1"], "reason": "r"}),
]


def _parse(verb: str, words: list[str]) -> argparse.Namespace:
    return parse(verb, words)


@pytest.mark.promise("004-commands.arguments", "004-follow-ups.command-tests")
@pytest.mark.parametrize(("verb", "words", "expected"), PARSED)
def test_each_subcommand_parses_its_arguments(verb: str, words: list[str], expected: dict[str, Any]) -> None:
    parsed = vars(_parse(verb, words))
    assert {name: parsed[name] for name in expected} == expected


@pytest.mark.promise("004-commands.arguments")
@pytest.mark.parametrize("verb", ["add", "advance", "unblock", "approve", "complete", "close"])
def test_each_subcommand_says_what_is_missing(verb: str) -> None:
    with pytest.raises(UsageError, match="The following arguments are required: ") as refused:
        _parse(verb, [])
    assert refused.value.exit_code == 2


@pytest.mark.promise("004-commands.arguments")
@pytest.mark.parametrize(
    "verb", ["init", "add", "status", "explain", "advance", "unblock", "approve", "complete", "close"]
)
def test_each_subcommand_refuses_what_it_does_not_know(verb: str) -> None:
    needed = {"add": ["T"], "close": ["A-1", "--reason=r"]}.get(verb, [] if verb in ("init", "status") else ["A-1"])
    with pytest.raises(UsageError, match="Unrecognized arguments: --nonsense"):
        _parse(verb, [*needed, "--nonsense"])


@pytest.mark.promise("004-commands.advance-unblock")
def test_init_add_status_advance_and_unblock_work_in_a_row(a_backlog: BacklogProject) -> None:
    """The whole of a first morning, by the real program."""
    assert a_backlog.capsule("add", "Sort the list", "--impact=high").out == "WRK-001  Sort the list\n"
    for then in ("scoped", "ready at prd", "in_progress at prd"):
        assert a_backlog.capsule("advance", "WRK-001").out.startswith(f"WRK-001 is {then};")
    assert "WRK-001  in_progress  prd    Sort the list  high" in a_backlog.capsule("status").out
    assert a_backlog.capsule("complete", "WRK-001").code == 0
    assert a_backlog.capsule("status").out.startswith("The backlog is empty.")
    assert a_backlog.status() == ""
    a_backlog.fsck()


@pytest.mark.promise("commands.free-again")
@pytest.mark.parametrize("verb", ["abort", "clean"])
def test_an_item_of_a_backlog_is_free_again_and_goes_on_where_it_was(a_backlog: BacklogProject, verb: str) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "2")
    answer = a_backlog.say(verb, "WRK-001")
    assert answer.code == 0 and ("  go on:       capsule run WRK-001\n" in answer.out) is (verb == "abort"), answer
    said = a_backlog.run("--cap", "1")
    assert "Resuming WRK-001 at research" in said.err and "[WRK-001][RESEARCH] Result: PHASE_COMPLETE" in said.err


@pytest.mark.promise("commands.free-again")
@pytest.mark.parametrize(
    ("kind", "command"),
    [("clarification", 'capsule answer WRK-001 --notes "..."'), ("decision", "capsule answer WRK-001 --approve")],
)
def test_abort_of_an_item_that_needs_a_person_names_what_frees_it(
    a_backlog: BacklogProject, kind: str, command: str
) -> None:
    a_backlog.add()
    a_backlog.run("--cap", "1")
    a_backlog.hold(blocked(kind))
    answer = a_backlog.say("abort", "WRK-001")
    assert answer.code == 0 and answer.out.splitlines()[-1].split(maxsplit=1) == ["next:", command], answer
    assert a_backlog.say(*shlex.split(command)[1:]).code == 0
    assert "WRK-001  would run" in a_backlog.say("run", "--dry-run").out
