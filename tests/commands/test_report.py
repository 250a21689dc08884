"""`capsule report`, on journals written as the engine writes them, and on a mission that really ran."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capsule.app.changes import MOST_LINES
from capsule.cli import main
from capsule.core.event import Event, RunEnded, RunStarted, Spawned
from capsule.core.item import Item, Lineage
from capsule.journals.sqlite import SqliteJournal
from tests.conftest import Repo
from tests.told import PAID, Told, part_of, prepared

from .conftest import ITEM, Project, Said, assert_clear

AT = "2026-01-05T09:00:00Z"
EPIC, FEATURE = Item(id="big", title="The big thing", type="epic"), Item(id="mid", title="A part", type="feature")

Write = Callable[..., None]
Report = Callable[..., Said]


@pytest.fixture
def write(a_repo: Repo) -> Write:
    """Put what was told into the project's journal."""

    def append(*stories: Told, **streams: list[Event]) -> None:
        journal = SqliteJournal(a_repo.path / ".git" / "capsule")
        for stream, events in {**{told.mission: told.events for told in stories}, **streams}.items():
            with journal.claim(stream):
                for event in events:
                    journal.note(stream, event)
        journal.close()

    return append


@pytest.fixture
def report(a_repo: Repo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(a_repo.path)

    def run(*words: str) -> Said:
        code = main(["report", *words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def told_in(said: Said) -> dict[str, Any]:
    assert said.code == 0, said
    facts: dict[str, Any] = json.loads(said.out)
    return facts


def missions_in(said: Said) -> list[str]:
    return [each["mission"] for each in told_in(said)["missions"]]


def below(*above: Item, mission: str) -> Told:
    by_type = {item.type: item for item in above}
    return prepared(mission, lineage=Lineage(by_type.get("feature"), by_type.get("epic")))


# ---- what it prints


def test_where_nothing_has_run_it_says_so_kindly_and_makes_nothing(report: Report, a_repo: Repo) -> None:
    said = report()
    assert (said.code, said.err) == (0, "")
    assert "No missions yet. Start one: `capsule run ID`" in said.out
    assert told_in(report("--json"))["missions"] == []
    assert not (a_repo.path / ".git" / "capsule").exists()


def test_by_default_it_is_markdown_of_every_mission_the_newest_last(report: Report, write: Write) -> None:
    write(prepared("b", "Second", "2026-02-01T09:00:00Z").refuted(), prepared("a", "First").delivered())
    out = report().out
    assert out.startswith("# All missions\n")
    assert out.index("## a: First") < out.index("## b: Second")


def test_each_form_is_what_it_is_called(report: Report, write: Write) -> None:
    write(prepared().delivered())
    assert report("--html", "-").out.startswith("<!DOCTYPE html>")
    assert missions_in(report("--json")) == ["x-1"]
    assert report("x-1").out.startswith("# x-1: The task\n")


def test_a_page_is_written_and_its_path_is_all_that_is_said(report: Report, write: Write, a_repo: Repo) -> None:
    write(prepared().delivered())
    said = report("--html", "out.html")
    page = a_repo.path / "out.html"
    assert (said.code, said.out, said.err) == (0, f"{page}\n", "")
    assert "x-1: The task" in page.read_text()


def test_it_writes_neither_through_a_link_nor_over_a_directory(report: Report, write: Write, a_repo: Repo) -> None:
    write(prepared().delivered())
    (a_repo.path / "link.html").symlink_to("README")
    os.mkfifo(a_repo.path / "pipe")
    assert_clear(report("--html", "link.html"), 1, "is a symbolic link", "or - for stdout")
    assert_clear(report("--html", "src"), 1, "src is a directory", "--html src/report.html")
    assert_clear(report("--html", "pipe"), 1, "not a regular file", "Name another file")
    assert_clear(report("--html", "nowhere/r.html"), 2, "Cannot write", "directory exists")
    assert (a_repo.path / "README").read_text() == "hello\n"


# ---- which missions


def test_an_unknown_id_is_exit_1_with_those_there_are(report: Report, write: Write) -> None:
    write(prepared())
    assert_clear(report("y-9"), 1, "There is no mission y-9", "There are: x-1.")
    assert_clear(report("x-1", "y-9", "--html", "r.html"), 1, "There is no mission y-9", "There are: x-1.")


def test_an_epic_or_a_feature_is_what_it_holds(report: Report, write: Write) -> None:
    write(below(EPIC, FEATURE, mission="a"), below(EPIC, mission="b"), prepared("c"))
    assert missions_in(report("big", "--json")) == ["a", "b"]
    assert missions_in(report("mid", "c", "--json")) == ["a", "c"]
    assert told_in(report("big", "--json"))["title"] == "big: The big thing"


def test_a_mission_comes_with_its_parts_and_with_nothing_that_is_only_called_like_it(
    report: Report, write: Write
) -> None:
    parent = prepared("x-1")
    write(parent, part_of(parent, 1), part_of(parent, 2), prepared("x-1.1"))
    [mission] = told_in(report("x-1", "--json"))["missions"]
    assert [part["mission"] for part in mission["parts"]] == ["x-1.code.1", "x-1.code.2"]
    assert missions_in(report("--json")) == ["x-1", "x-1.1"]
    assert missions_in(report("x-1.code.2", "--json")) == ["x-1.code.2"]


def test_the_last_run_of_the_queue_is_what_it_worked_on(report: Report, write: Write) -> None:
    start, end = RunStarted(at=AT, cap=9), RunEnded(at=AT, why="nothing is left to do")
    queue: list[Event] = [start, Spawned(at=AT, mission="a", key="k"), end, start]
    write(prepared("a"), prepared("b"), _queue=[*queue, Spawned(at=AT, mission="b", key="k"), end])
    assert missions_in(report("--run", "queue", "--json")) == ["b"]
    assert "nothing is left to do" in report("--run", "queue").out
    assert_clear(report("--run", "big"), 1, "There is no run 'big'", "Known runs: queue.")


def test_a_campaign_is_known_by_what_was_run(report: Report, write: Write) -> None:
    spawned = Spawned(at=AT, mission="a", key="k")
    write(prepared("a"), prepared("b"), **{"_campaign-big": [RunStarted(at=AT, cap=9), spawned]})
    assert missions_in(report("--run", "big", "--json")) == ["a"]
    assert missions_in(report("big", "--json")) == ["a"]


def test_since_leaves_out_what_was_over_before(report: Report, write: Write) -> None:
    write(prepared("old", at="2020-01-05T09:00:00Z"), prepared("new", at="2026-01-05T09:00:00Z"))
    assert missions_in(report("--since", "2026-01-05", "--json")) == ["new"]
    assert missions_in(report("--since", "2020-01-05T09:00:03Z", "--json")) == ["new"]
    assert missions_in(report("--since", "9999w", "--json")) == ["old", "new"]
    assert_clear(report("--since", "soon"), 2, "--since cannot read 'soon'", "30m, 12h, 2d")


# ---- forms


@pytest.mark.promise("screens.card")
def test_a_card_is_markdown_on_stdout_or_a_picture(report: Report, write: Write, a_repo: Repo) -> None:
    write(prepared().refuted(usage=PAID).delivered(), prepared("y").blocked())
    assert report("--format", "card").out.startswith("### ■ All missions\n**1 of 2 done, 1 needs you.")
    said = report("--svg", "card.svg")
    assert said.out.strip() == str(a_repo.path / "card.svg")
    drawn, printed = (a_repo.path / "card.svg").read_text(), report("--svg", "-").out
    clock = re.compile(r"[\d:]+ UTC")  # the two are drawn at different moments
    assert clock.sub("", drawn) == clock.sub("", printed) != drawn
    assert_clear(report("--svg", "src"), 1, "src is a directory", "--svg src/report.svg")


@pytest.mark.promise("screens.by-agent")
def test_by_agent_is_a_table_in_every_form(report: Report, write: Write) -> None:
    write(prepared().refuted(usage=PAID).delivered())
    assert "| claude · large | 1 | 1 | 1 (100 %) | 0 of 1 (0 %) | 1 | $0.25 | $0.25 |" in report("--by", "agent").out
    assert "claude · large</th>" in report("--by", "agent", "--html", "-").out
    told = told_in(report("--by", "agent", "--json"))
    assert [(each["agent"], each["model"], each["refuted"]) for each in told["agents"]] == [
        ("claude", None, 0),
        ("claude", "large", 1),
    ]
    assert told_in(report("--json"))["agents"] == told["agents"]
    assert_clear(report("--by", "agent", "--format", "card"), 2, "A card has no table of agents", "Leave out --by")


# ---- how things stand


def test_running_is_read_from_the_lock(report: Report, write: Write, a_repo: Repo) -> None:
    write(prepared().begin())
    journal = SqliteJournal(a_repo.path / ".git" / "capsule")
    with journal.claim("x-1"):
        [held] = told_in(report("--json"))["missions"]
    journal.close()
    [free] = told_in(report("--json"))["missions"]
    assert (held["status"], held["attempts"][-1]["how"], held["ended"]) == ("running", "under way", None)
    assert (free["status"], free["attempts"][-1]["how"]) == ("interrupted", "interrupted")


def test_looking_changes_nothing_in_the_journal(report: Report, write: Write, a_repo: Repo) -> None:
    write(prepared().refuted(usage=PAID))
    before = (a_repo.path / ".git" / "capsule" / "journal.db").read_bytes()
    report("--html", "r.html")
    assert (a_repo.path / ".git" / "capsule" / "journal.db").read_bytes() == before


# ---- what was changed


def test_a_merge_is_counted_in_lines_against_what_it_went_onto(report: Report, write: Write, a_repo: Repo) -> None:
    onto = a_repo.head()
    odd = f"{onto} {onto}\nname"
    merged = a_repo.commit("work", README="one\ntwo\n", **{odd: "x\n", "blob__bin": "\0"})
    write(prepared().delivered(merged, onto=onto))
    [mission] = told_in(report("--json"))["missions"]
    files = {file["path"]: (file["added"], file["removed"]) for file in mission["diff"]["files"]}
    assert files == {"README": (2, 1), odd: (1, 0), "blob.bin": (None, None)}
    assert (mission["diff"]["added"], mission["diff"]["note"]) == (3, "merged into main")


_EMPTY = "schema_version: 1\nitems: []\n"


@pytest.mark.promise("screens.bookkeeping")
@pytest.mark.parametrize(
    "kept",
    [
        {"BACKLOG__yaml": f"{_EMPTY}last_id: 1\n", "_worklog/a__md": "x\n"},
        {".beads/issues__jsonl": "{}\n"},
        {".capsule/config__yaml": "agent: claude\n", ".capsule/workflows/own__yaml": "x\n"},
    ],
)
def test_what_is_only_kept_about_a_mission_is_no_change_of_it(
    report: Report, write: Write, a_repo: Repo, kept: dict[str, str]
) -> None:
    onto = a_repo.head()
    merged = a_repo.commit("work", README="one\n", **kept)
    write(prepared().delivered(merged, onto=onto))
    [mission] = told_in(report("--json"))["missions"]
    assert [file["path"] for file in mission["diff"]["files"]] == ["README"]


def test_the_page_of_one_mission_shows_its_diff(report: Report, write: Write, a_repo: Repo) -> None:
    onto = a_repo.head()
    merged = a_repo.commit("work", README="<one>\ntwo\n", BACKLOG__yaml=f"{_EMPTY}last_id: 1\n", blob__bin="\0")
    write(prepared().delivered(merged, onto=onto), prepared("y"))
    page = report("x-1", "--html", "-").out
    assert "<code>&lt;one&gt;</code>" in page and "last_id" not in page
    assert re.findall(r'<details class="diff".*?<code>(.*?)</code>', page) == ["README", "blob.bin"]
    assert 'class="diff"' not in report("--html", "-").out
    assert 'class="diff"' not in report("y", "--html", "-").out


def test_a_diff_that_nobody_reads_is_only_counted(report: Report, write: Write, a_repo: Repo) -> None:
    onto = a_repo.head()
    merged = a_repo.commit("work", README="one\n", long="x\n" * MOST_LINES)
    write(prepared().delivered(merged, onto=onto))
    page = report("x-1", "--html", "-").out
    assert "+5,001" in page and 'class="diff"' not in page


def test_a_first_commit_is_counted_against_nothing(report: Report, write: Write, a_repo: Repo) -> None:
    first = a_repo.git("rev-list", "--max-parents=0", "HEAD")
    write(prepared("a").delivered(first), prepared("b").delivered(a_repo.head()))
    one, other = told_in(report("--json"))["missions"]
    assert {file["path"] for file in one["diff"]["files"]} == {".gitignore", "src/app.py"}
    assert {file["path"] for file in other["diff"]["files"]} == {"README"}


def test_commits_that_are_gone_are_said_to_be(report: Report, write: Write) -> None:
    write(prepared().delivered("c" * 40, onto="d" * 40))
    [mission] = told_in(report("--json"))["missions"]
    assert mission["diff"]["files"] == []
    assert "no longer in the repository" in mission["diff"]["note"]


def test_a_mission_that_really_ran_is_told_as_it_was(a_merged_mission: Project) -> None:
    project = a_merged_mission
    [mission] = told_in(project.say("report", ITEM, "--json"))["missions"]
    assert (mission["status"], mission["first_pass"], mission["merged"]) == ("merged", True, project.head("main"))
    assert [each["phase"] for each in mission["attempts"]][-3:] == ["merge", "publish", "archive"]
    files = {file["path"]: (file["added"], file["removed"]) for file in mission["diff"]["files"]}
    assert files == {"answer": (1, 1), "tests/test_answer.sh": (1, 0)}
    assert mission["spending"]["usd"] is None
    page = Path(project.say("report", "--html", str(project.home / "r.html")).out.strip())
    assert "✓ done" in page.read_text()
