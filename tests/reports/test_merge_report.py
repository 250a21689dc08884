"""The merge queue in a report: who waited, who was batched, what was bisected; as a page, as Markdown and as JSON."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from tests.told import Told

from capsule.core.event import Batched, Event, HandedIn, Returned, Served
from capsule.core.history import MissionSummary
from capsule.core.merge_train import MergeTrain
from capsule.core.merges import merge_records
from capsule.core.report import Report
from capsule.pages.report import page
from capsule.reports.facts import report_facts
from capsule.reports.markdown import markdown

from .test_report_page import NASTY, OURS, Reader

NAMES = ("one", "two", "three", "four")


def at(second: int) -> str:
    return f"2026-01-05T09:{second // 60:02}:{second % 60:02}Z"


def ready(mission: str) -> Told:
    return Told(mission).start().step("code", seconds=30).step("look", seconds=30).begin("deliver", "")


def batched(second: int, count: int, *, green: bool, commit: str = "", seconds: float = 9) -> Batched:
    return Batched(at=at(second), missions=NAMES[:count], tree="t", green=green, commit=commit, seconds=seconds)


def served(mission: str, second: int, seconds: float = 0.0) -> Served:
    return Served(at=at(second), mission=mission, key="deliver#1", seconds=seconds)


def bisected(why: str = "conflicts with two") -> Report:
    """Four are red together, the first two green, three red; the third goes back, and the fourth still waits."""
    events: list[Event] = [HandedIn(at=at(60 + n), mission=name, key="d#1", epoch=1) for n, name in enumerate(NAMES)]
    events += [batched(80, 4, green=False), batched(90, 2, green=True), batched(100, 3, green=False)]
    events += [batched(101, 2, green=True, commit="c0ffee" * 4, seconds=0), served("two", 102), served("one", 102, 40)]
    events += [served("three", 112, 10)]
    train = reduce(MergeTrain.after, events, MergeTrain(stream="_merges-main"))
    back = ready("three").pass_time(50)
    back.events.append(Returned(at=back.at, why=why))
    missions: list[MissionSummary] = [
        *(ready(name).end("deliver", agent="", facts={"merged": "f00"}, seconds=43).summary() for name in NAMES[:2]),
        *(back.summary(), ready("four").summary()),
    ]
    merges = merge_records([train], missions)
    return Report(project="p", title="All", as_of=at(200), missions=tuple(missions), merges=merges)


@pytest.mark.promise("merge-queue.seen")
def test_the_page_draws_who_waited_who_was_batched_and_what_was_bisected() -> None:
    drawn = page(bisected())
    read = Reader(drawn)
    assert read.tags() <= OURS
    words = " ".join(read.texts)
    assert "Merge queue: main" in words and "one, two, three, four" in words
    assert "✗ red, halved" in words and "✓ green, merged as c0ffeec0ffee" in words and "↳" in words
    assert "↺ went back" in words and "conflicts with two" in words
    assert "two: merged, waited 41 s" in words and drawn.count('class="wait"') >= 3


@pytest.mark.promise("merge-queue.seen")
def test_markdown_tells_the_same() -> None:
    text = markdown(bisected())
    assert "## Merge queue: main" in text
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.startswith("|")]
    rides = {row[0]: row[2:] for row in table if row[0] in NAMES and row[2][:1] in "░█" and row[2]}
    assert rides["one"] == ["░" + "█" * 16, "2 s", "40 s", "✓ merged", "two"]
    assert rides["two"][1:] == ["41 s", "–", "✓ merged", "one"] and {*rides["two"][0]} == {"░"}
    assert rides["three"][3:] == ["↺ went back", "conflicts with two"] and "four" not in rides
    assert (
        "- ✗ one, two, three, four: red, halved (9 s)\n"
        "  - ✓ one, two: green, merged as c0ffeec0ffee (9 s)\n"
        "  - ✗ one, two, three: red (9 s)"
    ) in text


@pytest.mark.promise("merge-queue.seen")
def test_programs_get_the_same() -> None:
    [queue] = report_facts(bisected())["merges"]
    rides: dict[str, dict[str, Any]] = {one["mission"]: one for one in queue["passages"]}
    assert queue["branch"] == "main" and [*rides] == ["one", "two", "three"]
    assert (rides["two"]["result"], rides["two"]["with"], rides["two"]["waited_seconds"]) == ("merged", ["one"], 41)
    assert (rides["three"]["result"], rides["three"]["why"]) == ("went_back", "conflicts with two")
    told = [(len(one["missions"]), one["green"], one["part"], one["bisected"]) for one in queue["tested"]]
    assert told == [(4, False, False, True), (2, True, True, False), (3, False, True, False)]


def test_no_word_of_a_stranger_becomes_markup_here() -> None:
    read = Reader(page(bisected(NASTY)))
    assert read.tags() <= OURS and "alert(1)" in "".join(read.texts)
    assert "<script>" not in markdown(bisected(NASTY)).replace("\\<script\\>", "")


def test_where_nobody_waited_there_is_no_picture() -> None:
    alone = ready("one").end("deliver", agent="", facts={"merged": "f00"}, seconds=3).summary()
    report = Report(project="p", title="All", as_of=at(200), missions=(alone,))
    assert "Merge queue" not in page(report) + markdown(report) and report_facts(report)["merges"] == []
