"""The report as a page and as Markdown: whole, honest, and nobody's text is more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from tests.costs import costs_below
from tests.told import HELD, PAID, RED, Told, a_long_story, part_of, prepared

from capsule.core.account import Diff, FileChange, MissionAccount
from capsule.core.board import MARKS
from capsule.core.decide import Move
from capsule.core.event import Warned
from capsule.core.run_account import RunAccount, run_account
from capsule.core.signal import Verdict
from capsule.core.standpoint import Word
from capsule.reports.account_facts import facts
from capsule.reports.html import POLICY, page
from capsule.reports.markdown import markdown

NASTY = (
    "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&<b>"
    "\x1b[31m\u202e`|[x](http://evil.example)![y](z)\n# head"
)
DIFF = Diff(files=(FileChange("src/a.py", 40, 3), FileChange("logo.png", None, None)), note="what the merge brought")


def together(*missions: MissionAccount, **more: Any) -> RunAccount:
    return run_account(missions, project="p", title="All missions", as_of="2026-01-06T00:00:00Z", **more)


def hostile() -> RunAccount:
    """The same nastiness wherever somebody else can write."""
    told = Told("x-1", NASTY).start()
    piece = msgspec.structs.replace(RED, claimed=NASTY, observed=NASTY, detail=NASTY)
    usage = msgspec.structs.replace(PAID, model=NASTY)
    decided = {"back_to": NASTY, "feedback": NASTY, "reason": NASTY, "summary": NASTY, "counter": "look"}
    told.step("code", Verdict.REFUTED, Move.REPEAT, evidence=(piece,), agent=NASTY, usage=usage, **decided)
    told.step("look", Verdict.BLOCKED, Move.PARK, summary=NASTY, reason=NASTY).reopened(NASTY)
    told.events.append(Warned(at=told.at, text=NASTY))
    files = (FileChange(NASTY, 1, 2),)
    account = told.account("parked", sentence=NASTY, unverified=NASTY, diff=Diff(files=files, note=NASTY))
    attempts = [msgspec.structs.replace(each, phase=NASTY, move="retry") for each in account.attempts]
    rounds = [msgspec.structs.replace(each, by=NASTY) for each in account.rounds]
    fields = {"workflow": NASTY, "into": NASTY, "salvaged": (NASTY,), "attempts": attempts, "rounds": rounds}
    account = msgspec.structs.replace(account, **fields)
    return together(account, msgspec.structs.replace(account, mission="x-2"))


class Reader(HTMLParser):
    """Which elements and attributes a browser would find, and whether all that is opened is closed."""

    EMPTY = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.found}


WRITTEN = (
    "bdi",
    "br",
    "code",
    "h1",
    "h2",
    "h3",
    "p",
    "pre",
    "span",
    "strong",
    "a",
    "li",
    "ul",
    "dl",
    "dt",
    "dd",
    "div",
)
LAID_OUT = ("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "section")
DRAWN = ("svg", "defs", "pattern", "rect", "circle", "line", "text", "title")
OURS = {"html", "head", "meta", "style", "body", "header", "main", "footer", *WRITTEN, *LAID_OUT, *DRAWN}


@pytest.mark.promise("screens.report")
def test_no_word_of_a_stranger_becomes_markup() -> None:
    read = Reader(page(hostile()))
    assert read.tags() <= OURS
    attributes = [(name, value or "") for _, attrs in read.found for name, value in attrs.items()]
    assert [name for name, _ in attributes if name.startswith("on") or name in ("src", "style")] == []
    assert {value[:9] for name, value in attributes if name == "href"} == {"#mission-"}
    assert "alert(1)" in "".join(read.texts)


def test_no_stranger_can_turn_a_line_around_or_colour_it() -> None:
    for text in (page(hostile()), markdown(hostile())):
        assert not set(text) & {"\x1b", "\u202e"}


def test_no_word_of_a_stranger_becomes_markdown() -> None:
    text = re.sub(r"^ *(`{3,})text\n.*?^ *\1$", "", markdown(hostile()), flags=re.MULTILINE | re.DOTALL)
    assert "alert" in text
    assert re.findall(r"(?<!\\)[<>]", text) == []
    assert re.findall(r"(?<!\\)\]\(", text) == []
    assert [line for line in text.splitlines() if line.startswith("# ")] == ["# All missions"]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows if "prepare" in row or "code" in row} <= {8, 9}


@pytest.mark.promise("screens.report")
def test_the_page_forbids_itself_to_load_or_run_anything() -> None:
    """And asks for nothing: no script, no link, no picture, no font from elsewhere."""
    text = page(together(a_long_story().account(diff=DIFF)))
    read = Reader(text)
    policies = [attrs["content"] for _, attrs in read.found if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [POLICY]
    assert POLICY.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not read.tags() & {"script", "link", "img", "iframe", "object", "form"}
    assert re.findall(r"https?:|@import|url\((?!#)", text) == []


def test_every_table_and_picture_can_be_listened_to() -> None:
    read = Reader(page(together(a_long_story().account(diff=DIFF), prepared("y").refuted().account("running"))))
    assert [attrs for tag, attrs in read.found if tag == "th" and attrs.get("scope") not in ("row", "col")] == []
    tags = [tag for tag, _ in read.found]
    assert tags.count("table") == tags.count("caption") >= 6
    silent = [
        attrs
        for (tag, attrs), (after, _) in zip(read.found, read.found[1:], strict=False)
        if tag == "svg" and after != "title" and attrs.get("aria-hidden") != "true"
    ]
    assert silent == []


def test_a_verdict_is_a_word_and_a_sign_and_never_a_colour_alone() -> None:
    text = page(together(a_long_story().account()))
    for chip in ("✗ REFUTED", "✓ PASS", "↺ NEEDS_WORK", "■ BLOCKED", "‖ interrupted", "✓ merged"):
        assert f"{chip}</span>" in text
    assert '<rect class="wait" x=' in text
    assert "waiting for the provider</li>" in text


@pytest.mark.promise("screens.report")
def test_what_an_agent_says_is_never_where_what_was_checked_stands() -> None:
    text = page(together(prepared().refuted(summary="everything is perfect").account()))
    row = next(row for row in text.split("<tr>") if "everything is perfect" in row)
    left, right = re.findall(r'<td class="full">(.*?)</td>', row, re.DOTALL)
    assert "“PASS”" in left and "everything is perfect" in left
    assert "everything is perfect" not in right
    assert "all tests pass: <strong><code>make test</code> is red, exit 1</strong>" in right
    assert "1 failed, 15 passed" in right


def test_a_success_that_nobody_checked_is_not_green_and_says_so() -> None:
    told = prepared().step("code", evidence=(HELD,)).step("look")
    for text in (page(together(told.account())), markdown(together(told.account()))):
        assert text.count("PASS, unchecked") >= 1
    chips = re.findall(r'<span class="chip (\w+)">✓ (PASS[^<]*)<', page(together(told.account())))
    assert set(chips) == {("good", "PASS"), ("quiet", "PASS, unchecked")}


def test_what_was_let_pass_against_the_evidence_says_so() -> None:
    told = prepared().step("code", evidence=(HELD, RED))
    for text in (page(together(told.account())), markdown(together(told.account()))):
        assert "PASS, though refuted" in text


def test_what_capsule_itself_let_pass_says_so_too() -> None:
    told = prepared().step("deliver", evidence=(RED,), agent="")
    chips = re.findall(r'<span class="chip (\w+)">✓ (PASS[^<]*)<', page(together(told.account("merged"))))
    assert ("warn", "PASS, though refuted") in chips
    assert "✓ PASS, though refuted" in markdown(together(told.account("merged")))


def test_what_was_merged_unverified_is_not_green() -> None:
    chips = [
        re.findall(r'<span class="chip (\w+)">✓ merged<', page(together(prepared().account("merged", unverified=why))))
        for why in ("", "NOT GREEN: the gate was red")
    ]
    assert [set(each) for each in chips] == [{"good"}, {"warn"}]


@pytest.mark.parametrize("word", Word)
def test_reports_and_screens_have_one_sign_for_one_word(word: Word) -> None:
    assert f"{MARKS[word].value} {word}</span>" in page(together(prepared().account(word)))
    assert f"{MARKS[word].value} **{word}**" in markdown(together(prepared().account(word)))


def test_engine_steps_claim_nothing() -> None:
    read = "".join(Reader(page(together(prepared().account("waiting")))).texts)
    assert "Capsule’s own work" in read
    assert "“PASS”" not in read


@pytest.mark.promise("screens.money")
def test_unknown_money_is_never_zero() -> None:
    silent, paid = prepared("a").step(), prepared("b").step(usage=PAID)
    for text in (page(together(silent.account())), markdown(together(silent.account()))):
        assert "unknown" in text
        assert "$0" not in text
    both = together(silent.account(), paid.account())
    assert "at least $0.25" in page(both)
    assert "at least $0.25" in markdown(both)
    assert facts(together(silent.account()))["totals"]["spending"]["usd"] is None


def test_money_is_a_bar_beside_each_mission_where_it_is_known() -> None:
    dear = msgspec.structs.replace(PAID, usd=1.0)
    text = page(together(prepared("a").step(usage=PAID).account(), prepared("b").step(usage=dear).account()))
    assert re.findall(r'class="money" x="0.00%" width="([\d.]+)%"', text) == ["25.00", "100.00"]


def test_a_run_has_its_figures_and_every_mission_its_row() -> None:
    account = together(prepared("a").delivered().account(), prepared("b").refuted().delivered().account())
    text = page(account)
    assert "<dt>first-pass rate</dt>" in text
    assert "50 %" in text
    assert '<a href="#mission-a">' in text and 'id="mission-a"' in text
    assert "- First-pass rate: 50 % (1 of 2)" in markdown(account)


def test_parts_are_told_inside_their_mission() -> None:
    parent = prepared("a")
    account = together(part_of(parent).delivered().account(), parent.delivered().account("done"))
    assert page(account).index('id="mission-a.code.1"') > page(account).index("Claims against evidence")
    assert "## a.code.1: part 1" in markdown(account).replace("\\", "")


def test_files_are_bars_and_what_is_no_text_says_so() -> None:
    text = page(together(a_long_story().account(diff=DIFF)))
    assert "+40 −3 in 2 files" in text
    assert "not text" in text
    assert "src/a.py: 40 lines added, 3 removed" in text


def test_commits_that_are_gone_are_said_to_be() -> None:
    account = together(prepared().account(diff=Diff(note="its commits are gone")))
    assert "its commits are gone" in page(account)
    assert "its commits are gone" in markdown(account)


def test_unverified_is_said_loudly() -> None:
    account = together(prepared().account(unverified="UNVERIFIED: no test command is known"))
    assert "<strong>UNVERIFIED: no test command is known</strong>" in page(account)
    assert "**UNVERIFIED: no test command is known**" in markdown(account)


def test_nothing_yet_is_said_kindly() -> None:
    for text in (page(together()), markdown(together())):
        assert "There is no mission to tell of." in text
        assert "capsule run ID" in text
    Reader(page(together()))


def test_json_keeps_what_was_said_and_what_was_checked_in_places_of_their_own() -> None:
    told = facts(together(a_long_story().account(diff=DIFF)))
    lie = told["missions"][0]["attempts"][1]
    assert lie["said"] == {"claimed": "PASS", "summary": "did as asked", "files_changed": [], "made_for_it": False}
    assert [piece["standing"] for piece in lie["checked"]] == ["confirmed", "refuted"]
    killed = next(each for each in told["missions"][0]["attempts"] if each["how"] == "interrupted")
    assert (killed["verdict"], killed["usage"]) == (None, None)
    assert told["totals"]["first_pass_rate"] == 0.0
    assert told["missions"][0]["diff"]["added"] == 40


@pytest.fixture(scope="module")
def endless() -> MissionAccount:
    """Two thousand attempts, each with its evidence and feedback."""
    told = prepared()
    for _ in range(2000):
        told.refuted(feedback="It is red.\n" * 50)
    return told.account("stopped")


def test_the_middle_of_a_long_mission_is_summarised(endless: MissionAccount) -> None:
    for text in (page(together(endless)), markdown(together(endless))):
        assert "1,921 attempts left out" in text
        assert len(text) < 1_000_000


def test_a_long_mission_is_a_page_in_a_moment(endless: MissionAccount) -> None:
    assert costs_below(2, lambda: page(together(endless)))


def test_the_same_account_gives_the_same_page() -> None:
    account = together(a_long_story().account(diff=DIFF), prepared("y", "Other").step(evidence=(HELD,)).account())
    assert page(account) == page(account)
