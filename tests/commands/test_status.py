"""`capsule status`: the order, the columns, what does not fit, and what is going on."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest

from capsule.core.event import MissionStarted, StepBegun, Waiting
from capsule.core.failure import Failure, Kind
from capsule.core.item import Item
from capsule.core.stamps import clock_time
from capsule.core.workflow import Phase, Workflow
from capsule.journals.sqlite import SqliteJournal
from capsule.reports.table import column, fit, width_of
from capsule.system.clock import SystemClock
from capsule.system.lock import FileLock

from .backlog_project import STAMP, BacklogProject, blocked
from .conftest import assert_clear

FULL: dict[str, Any] = {"size": "small", "complexity": "low", "risk": "low", "impact": "high", "tags": "[ui]"}


def rows(text: str) -> list[list[str]]:
    """The table, row by row, up to the empty line before the footer."""
    return [line.split() for line in text.partition("\n\n")[0].splitlines()]


@pytest.mark.promise("004-commands.status")
def test_status_displays_formatted_table(a_backlog: BacklogProject) -> None:
    a_backlog.hold({**FULL, "status": "in_progress", "phase": "prd", "title": "First"}, {"title": "Second"})
    answer = a_backlog.capsule("status")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        "ID       Status       Phase  Title   Impact  Size   Risk\n"
        "WRK-001  in_progress  prd    First   high    small  low\n"
        "WRK-002  new          -      Second  -       -      -\n"
        "\n"
        "2 items: 1 in_progress, 1 new\n"
    )


@pytest.mark.promise("004-commands.status")
def test_items_are_sorted_in_progress_blocked_ready_by_impact_then_age_scoped_researching_new(
    a_backlog: BacklogProject,
) -> None:
    a_backlog.hold(
        {"status": "new"},
        {"status": "researching"},
        {"status": "scoped"},
        {"status": "ready", "impact": "low"},
        {"status": "ready", "impact": "high", "created": "2026-03-01T00:00:00Z"},
        {"status": "ready", "impact": "high", "created": "2026-01-01T00:00:00Z"},
        blocked(),
        {"status": "in_progress", "phase": "build"},
    )
    shown = [row[0] for row in rows(a_backlog.say("status").out) if row[0].startswith("WRK")]
    assert shown == [f"WRK-00{n}" for n in (8, 7, 6, 5, 4, 3, 2, 1)]


@pytest.mark.promise("004-commands.status")
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_title_is_truncated_to_fit_the_terminal(a_backlog: BacklogProject, width: int) -> None:
    a_backlog.hold({**FULL, "title": "word " * 60}, {**FULL, "title": "短" * 100})
    out = a_backlog.say("status", env={"COLUMNS": str(width)}).out
    table = out.splitlines()[:3]
    assert max(map(width_of, table)) == width
    assert all("…" in line for line in table[1:])
    assert len({_cells_before(line, word) for line, word in zip(table, ("Impact", "high", "high"), strict=True)}) == 1


def _cells_before(line: str, word: str) -> int:
    return width_of(line[: line.rindex(word)])


@pytest.mark.promise("screens.waiting")
def test_a_ready_item_that_waits_is_counted_as_waiting_and_says_for_what(a_backlog: BacklogProject) -> None:
    ready = {**FULL, "status": "ready"}
    a_backlog.hold(ready, {**ready, "title": "Later", "dependencies": "[WRK-001]"})
    out = a_backlog.say("status").out
    assert "\n  waiting for WRK-001\n" in re.sub(r"(?m)^ +", "  ", out)
    assert "2 items: 1 ready, 1 waiting" in out


def test_nothing_is_cut_or_wrapped_in_a_pipe(a_backlog: BacklogProject) -> None:
    question = "which of these is meant? " * 20
    a_backlog.hold({**FULL, "title": "x" * 200}, {**blocked(title="Paint it"), "blocked_reason": question})
    lines = a_backlog.capsule("status").out.splitlines()
    assert any("x" * 200 in line for line in lines)
    assert any(question.strip() in line for line in lines)


def test_a_question_wraps_on_a_terminal_and_is_never_cut(a_backlog: BacklogProject) -> None:
    question = "which of these is meant? " * 20
    a_backlog.hold({**blocked(title="Paint it"), "blocked_reason": question})
    shown = a_backlog.say("status", env={"COLUMNS": "60"}).out
    assert max(map(width_of, shown.splitlines())) <= 60
    assert " ".join(shown.split()).count("which of these is meant?") == 20


def test_a_terminal_that_is_too_narrow_still_gets_a_title(a_backlog: BacklogProject) -> None:
    a_backlog.hold({**FULL, "title": "x" * 200})
    assert "xxxxxxxxxxx…" in a_backlog.say("status", env={"COLUMNS": "20"}).out


def test_a_blocked_item_shows_what_it_waits_for(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(title="Paint it"), blocked("decision", title="Risk it"))
    lines = a_backlog.say("status").out.splitlines()
    assert lines[2].strip() == "clarification: which colour?"
    assert lines[2].index("clarification") == lines[1].index("Paint")
    assert lines[4].strip() == "decision: risk is high, above the guardrail low"


def test_text_of_strangers_cannot_repaint_the_screen(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"title": '"red \\e[31malert\\e[0m \\a bell"'})
    out = a_backlog.say("status").out
    assert all(character == "\n" or unicodedata.category(character) != "Cc" for character in out)
    assert "alert" in out


def test_an_empty_backlog_says_how_to_fill_it(a_backlog: BacklogProject) -> None:
    answer = a_backlog.say("status")
    assert answer.code == 0
    assert answer.out == 'The backlog is empty. Add an item: capsule add "Describe the change in one line"\n'


def test_json_has_every_field_of_every_item(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(**FULL, title='"No: 日本"'), {"status": "ready"})
    first, second = json.loads(a_backlog.say("status", "--json").out)
    assert set(first) == set(second) == set(Item.__struct_fields__)
    assert first["title"] == "No: 日本"
    assert first["blocked"] == {"from_status": "ready", "reason": "which colour?", "kind": "clarification"}
    assert first["assessment"] == {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}
    assert (first["tags"], second["blocked"], second["created"]) == (["ui"], None, STAMP)
    assert json.loads(a_backlog.say("status", "--json", "--only=status=done").out) == []


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("status=new", ["WRK-001"]),
        ("status=new,READY", ["WRK-002", "WRK-003", "WRK-001"]),
        ("status=new,ready,tag=ui", ["WRK-002", "WRK-001"]),
        ("tag=ui, impact=high", ["WRK-002"]),
        ("risk=medium", []),
    ],
)
def test_only_some_are_shown_where_asked(a_backlog: BacklogProject, only: str, expected: list[str]) -> None:
    a_backlog.hold({"tags": "[ui]"}, {"status": "ready", **FULL}, {"status": "ready"})
    answer = a_backlog.say("status", f"--only={only}")
    assert [row[0] for row in rows(answer.out) if row[0].startswith("WRK")] == expected
    assert (
        (f"{len(expected)} of 3 items" in answer.out or len(expected) == 3)
        if expected
        else (answer.out == "No items match --only.\n")
    )


@pytest.mark.parametrize(
    ("only", "cause", "what_next"),
    [
        ("stats=new", "has no field for 'stats=new'", "Did you mean `status`?"),
        ("new", "has no field for 'new'", "such as --only status=new"),
        ("status=redy", "There is no status 'redy'", "Did you mean `ready`?"),
    ],
)
def test_a_condition_that_means_nothing_is_a_usage_error(
    a_backlog: BacklogProject, only: str, cause: str, what_next: str
) -> None:
    assert_clear(a_backlog.say("status", "--only", only), 2, cause, what_next)


def test_what_is_odd_about_the_file_goes_to_stderr(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"colour": "red"})
    answer = a_backlog.say("status")
    assert answer.err.startswith("warning: ")
    assert "colour" in answer.err
    assert "warning" not in answer.out


def test_a_file_that_cannot_be_read_is_one_clear_error(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "redy"})
    assert_clear(a_backlog.say("status"), 2, 'line 6: WRK-001: status is "redy"', "ready")


def test_a_project_without_a_tracker_is_told_how_to_get_one(a_backlog: BacklogProject) -> None:
    a_backlog.backlog.unlink()
    assert_clear(a_backlog.say("status"), 2, "has no tracker", "capsule init")


def test_a_mission_that_runs_is_marked_by_its_lock_alone(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"}, {})
    with FileLock(a_backlog.path / ".git/capsule/locks/mission-WRK-001.lock"):
        out = a_backlog.say("status").out
    assert "▶ WRK-001 running (pid " in out
    assert "WRK-002 is running" not in out
    assert "running" not in a_backlog.say("status").out


@pytest.mark.promise("agents.status-of-waits")
def test_a_mission_that_waits_says_for_what_and_until_when(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"})
    journal = SqliteJournal(a_backlog.path / ".git/capsule")
    workflow = Workflow(name="w", phases=(Phase(name="prd", prompt="prd"),))
    with journal.claim("WRK-001"):
        item = a_backlog.item()
        started = MissionStarted(at=STAMP, mission="WRK-001", item=item, workflow=workflow, base="", into="main")
        journal.note("WRK-001", started)
        journal.note("WRK-001", StepBegun(at=STAMP, key="prd#1", phase="prd", run=1, attempt=1))
        failure = Failure(Kind.RATE_LIMIT, "Too many requests")
        journal.note("WRK-001", Waiting(at=STAMP, key="prd#1", failure=failure, seconds=3600))
        tried_again, now = a_backlog.say("status").out, SystemClock().now()
        journal.note("WRK-001", Waiting(at=now, key="prd#1", failure=failure, seconds=3600))
        out = a_backlog.say("status").out
    journal.close()
    until = clock_time(now, 3600)
    assert f"WRK-001 waiting at prd for the agent's provider until {until}: Too many requests" in out
    assert "▶ WRK-001 running" in tried_again and "waiting" not in tried_again, "that wait is over"


def test_a_mission_that_was_interrupted_is_marked(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"status": "in_progress", "phase": "prd"})
    (a_backlog.path / ".capsule/missions/WRK-001").mkdir(parents=True)
    journal = SqliteJournal(a_backlog.path / ".git/capsule")
    workflow = Workflow(name="w", phases=(Phase(name="prd", prompt="prd"),))
    with journal.claim("WRK-001"):
        item = a_backlog.item()
        started = MissionStarted(at=STAMP, mission="WRK-001", item=item, workflow=workflow, base="", into="main")
        journal.note("WRK-001", started)
        journal.note("WRK-001", StepBegun(at=STAMP, key="prd#1", phase="prd", run=1, attempt=1))
    journal.close()
    assert a_backlog.say("status").out.endswith("\n‖ WRK-001 stopped at prd (capsule run WRK-001)\n")


def test_looking_makes_no_journal(a_backlog: BacklogProject) -> None:
    a_backlog.hold({})
    for verb in ("status", "explain"):
        assert a_backlog.say(verb).code == 0
    assert not (a_backlog.path / ".git/capsule/journal.db").exists()


def test_columns_line_up_in_every_script() -> None:
    """Cells are counted, not characters: what is padded or cut always takes exactly its column."""
    for text in ("plain", "漢字", "e\u0301a\u0300", "👍 good", "a" * 30, "漢" * 30, "e\u0301" * 30):
        assert width_of(column(text, 12)) == 12
    assert fit("漢字漢字", 5) == "漢字…"
    assert fit("漢字漢字", 8) == "漢字漢字"
    assert (fit("abc", 1), fit("abc", 0)) == ("…", "")


@pytest.mark.promise("backlog.done-lately")
def test_what_was_done_since_yesterday_is_named(a_backlog: BacklogProject) -> None:
    a_backlog.add("Paint it")
    a_backlog.add("Frame it")
    assert "Done since" not in a_backlog.say("status").out
    a_backlog.say("complete", "WRK-001")
    assert "\nDone since yesterday: WRK-001 Paint it\n" in a_backlog.say("status").out
    a_backlog.say("close", "WRK-002", "--reason", "nobody asks")
    assert a_backlog.say("status").out.endswith("\nDone since yesterday: WRK-001 Paint it\n")
    log = next((a_backlog.path / "_worklog").glob("*.md"))
    log.write_text(log.read_text().replace("## 2", "## 1"))
    assert "Done since" not in a_backlog.say("status").out, "long ago"
