"""One and the same mission on every screen: state, attempts, what was sent back, time at work and cost are the same.

Each rendering is read as a person reads it: what it says is taken out of its words, and set beside the others'.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from capsule.cli import main
from capsule.core.board import gather_board
from capsule.core.budget import duration
from capsule.core.decide import Move
from capsule.core.event import Event, RunEnded, RunStarted, Spawned
from capsule.core.history import NOBODY, RunSummary, read_run
from capsule.core.report import Report, nested
from capsule.core.signal import Verdict
from capsule.core.worklog import summary as summary_page
from capsule.pages.report import page as html
from capsule.reports.board_lines import board_lines
from capsule.reports.facts import mission_facts, report_facts
from capsule.reports.markdown import markdown
from capsule.reports.show import show_lines
from capsule.reports.style import Style
from capsule.tui.lines import mission_line, past_line, strip_lines
from capsule.tui.mission import mission_lines
from capsule.tui.run_view import job_lines
from tests.conftest import Repo
from tests.told import PAID, Told, a_long_story, part_of, prepared

NIGHT = 14 * 3600
WIDTH = 100


class Story(NamedTuple):
    told: Told
    running: bool = False
    parts: tuple[Told, ...] = ()


def finished() -> Story:
    return Story(prepared().delivered())


def refuted_and_retried() -> Story:
    return Story(prepared().refuted(usage=PAID, seconds=95).delivered())


def retried_and_running() -> Story:
    return Story(prepared().refuted(usage=PAID, seconds=95).begin().pass_time(40), running=True)


def parked() -> Story:
    return Story(prepared().refuted().blocked())


def parked_overnight_and_finished() -> Story:
    return Story(prepared().blocked().pass_time(NIGHT).reopened("Blue.").pass_time(60).delivered())


def parked_overnight_and_running() -> Story:
    told = prepared().blocked().pass_time(NIGHT).reopened("Blue.").begin()
    return Story(told.pass_time(40), running=True)


def failed() -> Story:
    gone = {"reason": "retries exhausted (2 allowed): one test is red", "exhausted": True, "exit_code": 1}
    told = prepared().refuted().refuted()
    return Story(told.step("code", Verdict.REFUTED, Move.ABORT, claimed=Verdict.PASS, **gone))


def killed_overnight_and_finished() -> Story:
    return Story(prepared().begin().pass_time(NIGHT).delivered())


def stopped_overnight_and_finished() -> Story:
    return Story(prepared().begin().pass_time(40).stopped().pass_time(NIGHT).delivered())


def stopped() -> Story:
    return Story(prepared().refuted().begin().pass_time(40).stopped())


def waiting() -> Story:
    told = prepared().refuted().begin().pass_time(20).wait(120).pass_time(-60)
    return Story(told, running=True)


def a_long_one() -> Story:
    return Story(a_long_story())


def with_a_part() -> Story:
    whole = prepared().begin(agent="")
    part = part_of(whole).refuted(usage=PAID, seconds=95).delivered()
    whole.end(agent="", seconds=187).step("look", usage=PAID).step("deliver", agent="", facts={"merged": "c" * 40})
    return Story(whole, parts=(part,))


STORIES = (
    *(
        finished,
        refuted_and_retried,
        retried_and_running,
        parked,
        parked_overnight_and_finished,
        parked_overnight_and_running,
        failed,
    ),
    *(killed_overnight_and_finished, stopped_overnight_and_finished, stopped, waiting, a_long_one, with_a_part),
)


class Shown(NamedTuple):
    """What every screen shows of one mission, in its own words."""

    show: str
    shown: dict[str, Any]
    markdown: str
    table: str
    html: str
    told: dict[str, Any]
    board: str
    pane: str
    row: str
    past: str
    job: str
    strip: str
    page: str


def on_every_screen(story: Story) -> Shown:
    told = story.told
    views = [told.summary(running=story.running), *(part.summary(as_of=told.at) for part in story.parts)]
    whole, *_ = nested(views)
    report = Report(project="shop", title="All missions", as_of=told.at, missions=(whole,))
    other = prepared("other", at=told.at).summary()
    board = gather_board(views, (), told.at)
    on_board = next(view for view in board.missions if view.mission == whole.mission)
    return Shown(
        show="\n".join(show_lines(whole, Path("nowhere"), Style(io.StringIO(), colour=False), WIDTH)),
        shown=mission_facts(whole, Path("nowhere")),
        markdown=markdown(report),
        table=next(
            line
            for line in markdown(Report(project="", title="", as_of=told.at, missions=(whole, other))).splitlines()
            if line.startswith(f"| {whole.mission} |")
        ),
        html=unescape(html(report)),
        told=report_facts(report)["missions"][0],
        board="\n".join(board_lines(board)),
        pane="\n".join(line.plain for line in mission_lines(on_board, WIDTH, whole=False)),
        row=mission_line(on_board, WIDTH, 8).plain,
        past=past_line(on_board, WIDTH, 8).plain,
        job="".join(line.plain for line in job_lines([on_board], WIDTH, 9)),
        strip="".join(line.plain for line in strip_lines(board, WIDTH, 9)),
        page=summary_page(told.events),
    )


@pytest.fixture(params=STORIES, ids=lambda story: story.__name__)
def story(request: pytest.FixtureRequest) -> Story:
    tell: Callable[[], Story] = request.param
    return tell()


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, f"{pattern} is not in:\n{text[-3000:]}"
    return match[1]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def same(**said: object) -> None:
    assert len({repr(each) for each in said.values()}) == 1, said


DURATION = r" (\d+ h \d+ min|\d+ min \d+ s|[\d.]+ s)\b"
WORDS = r"(ready|running|waiting|needs you|failed|stopped|done)"


@pytest.mark.promise("screens.agree")
def test_every_screen_has_the_same_word_and_sign_for_a_mission(story: Story) -> None:
    shown = on_every_screen(story)
    status = story.told.summary(running=story.running).status
    said = f"{status.sign} {status.words}"
    same(
        expected=said,
        markdown=found(rf"\n(\S \*\*{WORDS}\*\*)", shown.markdown).replace("**", ""),
        table=cells(shown.table)[2],
        html=found(r'class="chip \w+">(.*?)</span>', shown.html),
        pane=found(rf"(\S {WORDS})  ", shown.pane.splitlines()[0]),
        row=found(rf"^(\S {WORDS})", shown.row),
        past=found(rf"\d  (\S {WORDS})", shown.past),
    )
    assert not story.running or shown.job.startswith(f"{status.sign} ")
    assert not story.running or shown.strip.startswith(f"{status.sign} ")
    same(json=str(shown.told["state"]), show=str(shown.shown["state"]), expected=status.value)
    same(show=found(r"\n  (\S) ", shown.show), board=found(r"\n  (\S) ", shown.board), expected=status.sign)


@pytest.mark.promise("screens.agree")
def test_every_screen_counts_the_same_attempts(story: Story) -> None:
    shown = on_every_screen(story)
    heading, *rows = shown.show.partition("\nphase ")[2].partition("\n")[2].splitlines() or [""]
    in_show = re.findall(r"^([a-z]+) +(\d+) ", "\n".join([heading, *rows]), re.MULTILINE)
    timeline = found(r"(?s)## Timeline\n\n(.*?)\n\n", f"{shown.markdown}\n\n").splitlines()[2:]
    drawn = re.findall(r'<tr><th scope="row">(\w+)</th><td data-label="attempt">(\d+)</td>(.*?)</tr>', shown.html)
    pages = re.findall(r"^\| (\w+) \| (\d+) \|", shown.page, re.MULTILINE)
    told = [(each["phase"], str(each["number"]), each["how"]) for each in shown.told["attempts"]]
    of_it = [(phase, number) for phase, number, how in told]
    same(
        show=in_show,
        json=[(each["phase"], str(each["attempt"])) for each in shown.shown["attempts"]],
        markdown=without_repeated((cells(row)[0], cells(row)[1]) for row in timeline),
        html=without_repeated((phase, number) for phase, number, _ in drawn[: len(told)]),
        report=without_repeated(of_it),
    )
    assert pages == [(phase, number) for phase, number, how in told if how == "ended"]
    attempts = len(in_show) + sum(len(part.summary().attempts) for part in story.parts)
    counted = found(r"Attempts: (\d+) ", shown.markdown)
    same(markdown=counted, html=found(r"<dt>attempts</dt><dd>(\d+)<", shown.html), counted=str(attempts))


def without_repeated(attempts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """A step that was interrupted and begun again is the same attempt."""
    return list(dict.fromkeys(attempts))


@pytest.mark.promise("screens.agree")
def test_every_screen_names_the_attempt_that_is_under_way_or_was_the_last(story: Story) -> None:
    shown = on_every_screen(story)
    view = story.told.summary(running=story.running)
    if not view.phase:
        return
    last = next(each for each in reversed(shown.shown["attempts"]) if each["phase"] == view.phase)
    number = str(last["attempt"])
    pane = re.search(r", attempt (\d+)", shown.pane.splitlines()[2])
    row = re.search(r" #(\d+) ", shown.row)
    same(show=number, pane=pane[1] if pane else "1", row=row[1] if row else "1")
    if story.running:
        board, job = re.search(r", attempt (\d+);", shown.board), re.search(r" #(\d+) ", shown.job)
        same(show=number, board=board[1] if board else "1", job=job[1] if job else "1")


@pytest.mark.promise("screens.agree")
def test_every_screen_counts_what_was_sent_back_and_refuted_alike(story: Story) -> None:
    shown = on_every_screen(story)
    sent_back = found(r"sent back (\d+) time", shown.markdown)
    same(
        markdown=sent_back,
        table=cells(shown.table)[3],
        html=found(r"sent back (\d+) time", shown.html),
        json=str(shown.told["sent_back"]),
    )
    assert f"sent back {sent_back} time{'' if sent_back == '1' else 's'};" in shown.markdown
    same(markdown=found(r"time\w?; (\d+) refuted", shown.markdown), json=str(shown.told["refuted"]))


@pytest.mark.promise("screens.agree")
def test_every_screen_has_the_same_time_and_parked_time_is_not_work(story: Story) -> None:
    shown = on_every_screen(story)
    active = found(r"\((.*?) active", shown.markdown)
    ends = {} if story.running else {"row": found(DURATION, shown.row)}
    same(
        markdown=active,
        table=cells(shown.table)[4],
        html=found(r">([^<>]*?) active", shown.html),
        json=duration(shown.told["busy_seconds"]),
        pane=found(DURATION, shown.pane.splitlines()[0]),
        past=found(DURATION, shown.past),
        **ends,
    )
    if story.running:
        same(markdown=active, board=found(r"; (.*) in all", shown.board), job=found(DURATION, shown.job))
    assert shown.told["busy_seconds"] < NIGHT


@pytest.mark.promise("screens.agree")
def test_every_screen_has_the_same_cost(story: Story) -> None:
    shown = on_every_screen(story)
    cost = cells(shown.table)[6]
    if "$" not in cost:
        return
    amount = found(r"(\d+\.\d\d)", cost)
    same(
        table=amount,
        markdown=found(r"Agents cost: \D*(\d+\.\d\d)", shown.markdown),
        show=found(r"agents used \D*(\d+\.\d\d)", shown.show),
        board=found(r"agents used \D*(\d+\.\d\d)", shown.board),
        pane=found(r"\$(\d+\.\d\d)", shown.pane.splitlines()[1]),
        row=found(r"\$(\d+\.\d\d)", shown.row),
        past=found(r"\$(\d+\.\d\d)", shown.past),
        **({"job": found(r"\$(\d+\.\d\d)", shown.job)} if story.running else {}),
    )


# ---- items


HELD = """\
schema_version: 1
last_id: 7
items:
  - {id: WRK-001, title: Item 1, status: ready}
  - {id: WRK-002, title: Item 2, status: ready, dependencies: [WRK-001]}
  - {id: WRK-003, title: Item 3, status: new}
  - {id: WRK-004, title: Item 4, status: blocked, blocked_from_status: new, blocked_reason: which?}
  - {id: WRK-005, title: Item 5, status: in_progress, phase: prd}
  - {id: WRK-006, title: Item 6, status: new, dependencies: [WRK-003]}
  - {id: WRK-007, title: Item 7, status: ready, dependencies: [WRK-005]}
"""


@pytest.fixture
def with_items(a_repo: Repo, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(*words: str) -> str:
        assert main([*words, "--project-dir", str(a_repo.path)]) == 0
        return capsys.readouterr().out

    say("init", "--tracker", "backlog")
    a_repo.write("BACKLOG.yaml", HELD)
    return say


@pytest.mark.promise("screens.agree", "screens.waiting")
def test_every_screen_counts_the_same_items(with_items: Callable[..., str]) -> None:
    status, board = with_items("status"), with_items("dashboard", "--plain", "--once")
    counted = re.findall(r"(\d+) ([a-z_]+)(?:,|$)", found(r"\n7 items: (.*)\n", status))
    headings = re.findall(r"^([a-z ]+): (\d+)$", board, re.MULTILINE)
    same(
        status=sorted((word.replace("_", " "), number) for number, word in counted),
        board=sorted(headings),
    )
    assert dict(headings)["waiting"] == "2" and "Items: 7 in backlog." in board


@pytest.mark.promise("screens.agree", "screens.waiting")
def test_an_item_is_ready_on_every_screen_or_on_none(with_items: Callable[..., str]) -> None:
    status, board = with_items("status"), with_items("dashboard", "--plain", "--once")
    for number in (2, 6, 7):
        waits_for = found(rf"WRK-00{number} .*\n +waiting for (.*)\n", status)
        assert f"WRK-00{number}: Item {number} (waiting for {waits_for})" in board
    assert "WRK-005: Item 5 (stopped)" in board


# ---- runs


def a_run(*events: Event) -> RunSummary:
    return read_run("_queue", [RunStarted(at=at(0), cap=9), *events]).summary(NOBODY, at(NIGHT + 100))


@pytest.mark.promise("screens.agree")
def test_a_run_that_was_stopped_by_a_person_is_stopped_and_one_that_ended_badly_has_failed() -> None:
    ends = {130: "stopped", 3: "failed", 1: "failed", 0: "done"}
    shown = {code: a_run(RunEnded(at=at(9), why="why", exit_code=code)).status.words for code in ends}
    assert shown == ends


@pytest.mark.promise("screens.agree", "agents.status-of-waits")
@pytest.mark.parametrize(("passed", "status"), [(119, "waiting"), (120, "running"), (900, "running")])
def test_an_agent_that_is_tried_again_after_a_wait_runs(passed: int, status: str) -> None:
    told = prepared().begin().wait(120).pass_time(passed - 120)
    shown = on_every_screen(Story(told, running=True))
    assert (shown.told["state"], " waiting " in f" {shown.board} ") == (status, status == "waiting")
    assert (shown.shown["state"], "waiting at code" in shown.show) == (status, status == "waiting")


@pytest.mark.promise("screens.agree")
@pytest.mark.parametrize(
    ("told", "running", "waited"),
    [
        (prepared().begin().wait(120).pass_time(-60), True, 60),
        (prepared().begin().wait(120).pass_time(-60).stopped().pass_time(NIGHT), False, 60),
        (prepared().begin().wait(120).pass_time(NIGHT), False, 0),
        (prepared().begin().wait(120).wait(3600).end().step("look").step("deliver"), False, 3720),
    ],
    ids=["under way", "stopped", "killed", "over"],
)
def test_a_wait_for_a_provider_counts_as_long_as_it_took(told: Told, running: bool, waited: int) -> None:
    view = told.summary(running=running)
    report = Report(project="", title="", as_of=told.at, missions=(view,))
    assert (view.waited_seconds, report.totals.waited_seconds) == (waited, waited)
    assert view.waited_seconds <= view.wall_seconds


@pytest.mark.promise("screens.agree")
def test_the_time_between_a_killed_run_and_the_one_that_continues_it_is_not_work() -> None:
    again = RunStarted(at=at(NIGHT), cap=9, spawns=1)
    spawned = [Spawned(at=at(20 + each), mission="x-1", key=f"code#{each}") for each in (1, 2)]
    assert a_run(*spawned, again, RunEnded(at=at(NIGHT + 30), why="why")).seconds == 22 + 30


def at(seconds: float) -> str:
    return prepared().pass_time(seconds - 2).at
