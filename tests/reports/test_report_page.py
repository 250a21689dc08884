"""The report as a page and as Markdown: whole, honest, and nobody's text is more than text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from tests.costs import costs_below
from tests.told import HELD, PAID, RED, Told, a_long_story, part_of, prepared

from capsule.core.board import Board
from capsule.core.decide import Move
from capsule.core.event import Accepted, Warned
from capsule.core.history import Diff, FileChange, MissionSummary
from capsule.core.inbox import inbox
from capsule.core.report import Report, nested
from capsule.core.signal import Verdict
from capsule.core.status import MissionStatus
from capsule.pages.report import POLICY, page
from capsule.reports.facts import report_facts as facts
from capsule.reports.markdown import markdown

NASTY = (
    "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&<b>"
    "\x1b[31m\u202e`|[x](http://evil.example)![y](z)\n# head"
)
DIFF = Diff(files=(FileChange("src/a.py", 40, 3), FileChange("logo.png", None, None)), note="what the merge brought")


def together(*missions: MissionSummary, **more: Any) -> Report:
    whole = nested(missions)
    asked = inbox(Board(missions=whole), None)
    return Report(
        project="p", title="All missions", as_of="2026-01-06T00:00:00Z", missions=whole, questions=asked, **more
    )


def hostile() -> Report:
    """The same nastiness wherever somebody else can write."""
    told = Told("x-1", NASTY).start()
    piece = msgspec.structs.replace(RED, claimed=NASTY, observed=NASTY, detail=NASTY)
    usage = msgspec.structs.replace(PAID, model=NASTY)
    decided = {"back_to": "code", "feedback": NASTY, "reason": NASTY, "summary": NASTY, "counter": "look"}
    told.step("code", Verdict.REFUTED, Move.RETRY, evidence=(piece,), agent=NASTY, usage=usage, **decided)
    told.step("look", Verdict.BLOCKED, Move.PARK, summary=NASTY, reason=NASTY).reopened(NASTY)
    told.events.append(Warned(at=told.at, text=NASTY))
    files = (FileChange(NASTY, 1, 2),)
    diff = Diff(files=files, note=NASTY)
    summary = told.summary(sentence=NASTY, unverified=NASTY, next=NASTY, diff=diff, salvaged={NASTY: NASTY})
    workflow = msgspec.structs.replace(summary.state.workflow, name=NASTY)
    state = msgspec.structs.replace(summary.state, workflow=workflow, into=NASTY)
    attempts = tuple(msgspec.structs.replace(each, phase=NASTY) for each in summary.attempts)
    summary = msgspec.structs.replace(summary, state=state, attempts=attempts)
    other = msgspec.structs.replace(state, mission="x-2")
    return together(summary, msgspec.structs.replace(summary, state=other))


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
    text = page(together(a_long_story().summary(diff=DIFF)))
    read = Reader(text)
    policies = [attrs["content"] for _, attrs in read.found if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [POLICY]
    assert POLICY.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not read.tags() & {"script", "link", "img", "iframe", "object", "form"}
    assert re.findall(r"https?:|@import|url\((?!#)", text) == []


def test_every_table_and_picture_can_be_listened_to() -> None:
    read = Reader(
        page(together(a_long_story().summary(diff=DIFF), prepared("y").refuted().begin().summary(running=True)))
    )
    assert [attrs for tag, attrs in read.found if tag == "th" and attrs.get("scope") not in ("row", "col")] == []
    tags = [tag for tag, _ in read.found]
    assert tags.count("table") == tags.count("caption") >= 6
    silent = [
        attrs
        for (tag, attrs), (after, _) in zip(read.found, read.found[1:], strict=False)
        if tag == "svg" and after != "title" and attrs.get("aria-hidden") != "true" and not attrs.get("aria-label")
    ]
    assert silent == []


def test_a_verdict_is_a_word_and_a_sign_and_never_a_colour_alone() -> None:
    text = page(together(a_long_story().summary()))
    text += page(together(prepared().refuted().summary()))
    for chip in (
        "✗ REFUTED",
        "↺ REFUTED, mended at attempt 2",
        "✓ PASS",
        "↺ NEEDS_WORK",
        "■ BLOCKED",
        "‖ interrupted",
        "✓ done",
    ):
        assert f"{chip}</span>" in text
    assert '<rect class="wait" x=' in text
    assert "waiting for the provider</li>" in text


@pytest.mark.promise("screens.report")
def test_what_an_agent_says_is_never_where_what_was_checked_stands() -> None:
    text = page(together(prepared().refuted(summary="everything is perfect").summary()))
    row = next(row for row in text.split("<tr>") if "everything is perfect" in row)
    left, right = re.findall(r'<td class="full">(.*?)</td>', row, re.DOTALL)
    assert "“PASS”" in left and "everything is perfect" in left
    assert "everything is perfect" not in right
    assert "all tests pass: <strong><code>make test</code> is red, exit 1</strong>" in right
    assert "1 failed, 15 passed" in right


def test_a_success_that_nobody_checked_is_not_green_and_says_so() -> None:
    told = prepared().step("code", evidence=(HELD,)).step("look")
    for text in (page(together(told.summary())), markdown(together(told.summary()))):
        assert text.count("PASS, unverified") >= 1
    chips = re.findall(r'<span class="chip (\w+)">✓ (PASS[^<]*)<', page(together(told.summary())))
    assert set(chips) == {("good", "PASS"), ("quiet", "PASS, unverified")}


def test_what_was_let_pass_against_the_evidence_says_so() -> None:
    told = prepared().step("code", evidence=(HELD, RED))
    for text in (page(together(told.summary())), markdown(together(told.summary()))):
        assert "PASS, though refuted" in text


def test_what_capsule_itself_let_pass_says_so_too() -> None:
    told = prepared().step("deliver", evidence=(RED,), agent="")
    chips = re.findall(r'<span class="chip (\w+)">✓ (PASS[^<]*)<', page(together(told.summary())))
    assert ("warn", "PASS, though refuted") in chips
    assert "✓ PASS, though refuted" in markdown(together(told.summary()))


def test_what_was_merged_unverified_is_not_green() -> None:
    merged = prepared().delivered()
    chips = [
        re.findall(r'<span class="chip (\w+)">✓ done<', page(together(merged.summary(unverified=why))))
        for why in ("", "NOT GREEN: the gate was red")
    ]
    assert [set(each) for each in chips] == [{"good"}, {"warn"}]


@pytest.mark.parametrize("status", MissionStatus)
def test_reports_and_screens_have_one_sign_for_one_word(status: MissionStatus) -> None:
    summary = prepared().summary(status=status)
    assert f"{status.sign} {status.words}</span>" in page(together(summary))
    assert f"{status.sign} **{status.words}**" in markdown(together(summary))


def test_a_question_is_never_cut() -> None:
    question = "Which of these two colours is meant? " * 50
    told = prepared().step("code", Verdict.BLOCKED, Move.PARK, reason=question, exit_code=1)
    for text in (page(together(told.summary())), markdown(together(told.summary()))):
        assert question.strip() in text.replace("\\", "")
        assert "capsule answer x-1 --notes" in text


def test_a_confirmed_claim_stands_beside_nothing_that_differs_from_it() -> None:
    piece = msgspec.structs.replace(HELD, claimed="changed a.py", observed="a.py, b.py")
    told = prepared().step("code", evidence=(piece,))
    for text in (page(together(told.summary())), markdown(together(told.summary()))):
        assert "files were changed: " in text
        assert "changed a.py" not in text


def test_engine_steps_claim_nothing() -> None:
    read = "".join(Reader(page(together(prepared().summary()))).texts)
    assert "Capsule’s own work" in read
    assert "“PASS”" not in read


@pytest.mark.promise("screens.money")
def test_unknown_money_is_never_zero() -> None:
    silent, paid = prepared("a").step(), prepared("b").step(usage=PAID)
    for text in (page(together(silent.summary())), markdown(together(silent.summary()))):
        assert "unknown" in text
        assert "$0" not in text
    both = together(silent.summary(), paid.summary())
    assert "at least $0.25" in page(both)
    assert "at least $0.25" in markdown(both)
    assert facts(together(silent.summary()))["totals"]["spending"]["usd"] is None


def test_money_is_a_bar_beside_each_mission_where_it_is_known() -> None:
    dear = msgspec.structs.replace(PAID, usd=1.0)
    text = page(together(prepared("a").step(usage=PAID).summary(), prepared("b").step(usage=dear).summary()))
    assert re.findall(r'class="money" x="0.00%" width="([\d.]+)%"', text) == ["25.00", "100.00"]


def test_a_run_has_its_figures_and_every_mission_its_row() -> None:
    account = together(prepared("a").delivered().summary(), prepared("b").refuted().delivered().summary())
    text = page(account)
    assert "<dt>first-pass rate</dt>" in text
    assert "50 %" in text
    assert '<a href="#mission-a">' in text and 'id="mission-a"' in text
    assert "- First-pass rate: 50 % (1 of 2 that ended" in markdown(account)


def test_parts_are_told_inside_their_mission() -> None:
    parent = prepared("a")
    account = together(part_of(parent).delivered().summary(), parent.delivered().summary())
    assert page(account).index('id="mission-a.code.1"') > page(account).index("Claims against evidence")
    assert "## a.code.1: part 1" in markdown(account).replace("\\", "")


def test_files_are_bars_and_what_is_no_text_says_so() -> None:
    text = page(together(a_long_story().summary(diff=DIFF)))
    assert "+40 −3 in 2 files" in text
    assert "not text" in text
    assert "src/a.py: 40 lines added, 3 removed" in text


def test_commits_that_are_gone_are_said_to_be() -> None:
    account = together(prepared().summary(diff=Diff(note="its commits are gone")))
    assert "its commits are gone" in page(account)
    assert "its commits are gone" in markdown(account)


def test_warnings_and_what_was_salvaged_and_accepted_are_in_every_report() -> None:
    told = prepared().step("code", evidence=(HELD,))
    told.events.append(Warned(at=told.at, text="the disk is nearly full"))
    accepted = Accepted(
        at=told.at, phase="code", check="green", tree="t", claimed="x", observed="y", because="known flake"
    )
    summary = told.summary(salvaged={"refs/capsule/salvage/x-1/1": "left behind"}, accepted=(accepted,))
    for text in (page(together(summary)), markdown(together(summary))):
        for words in ("warning: the disk is nearly full", "salvage/x-1/1 (left behind)", "because: known flake"):
            assert words in text.replace("\\", "")


def test_unverified_is_said_loudly() -> None:
    account = together(prepared().summary(unverified="UNVERIFIED: no test command is known"))
    assert "<strong>UNVERIFIED: no test command is known</strong>" in page(account)
    assert "**UNVERIFIED: no test command is known**" in markdown(account)


# ---- the first sentence, and what needs a person


def night() -> tuple[Told, ...]:
    """One that is done after two lies, one that asks, one that has failed."""
    lied = prepared("a").refuted(usage=PAID).refuted(usage=PAID).delivered()
    return lied, prepared("b").refuted(usage=PAID).blocked(), prepared("c").failed()


SENTENCES = {
    "one that is done": ([prepared().delivered()], "Done. No claim of success was refuted. Cost unknown, 1 min 3 s."),
    "one that lied once": (
        [prepared().refuted(usage=PAID)],
        "Stopped at code. Agents claimed success wrongly once; caught. $0.25, 32 s.",
    ),
    "one that asks": ([prepared().blocked()], "Needs you at code. No claim was checked. Cost unknown, 32 s."),
    "one that has begun": ([prepared()], "Stopped at code. No claim was checked. 2 s."),
    "what warn let pass": (
        [prepared().step("code", evidence=(RED,))],
        "Stopped at look. Agents claimed success wrongly once; let pass. Cost unknown, 32 s.",
    ),
    "several": (
        night(),
        "1 of 3 done, 1 needs you, 1 failed. Agents claimed success wrongly 3 times; all caught. "
        "At least $0.75, 3 min 37 s.",
    ),
    "several without a lie": (
        [prepared("a").delivered(), prepared("b").delivered()],
        "2 of 2 done. No claim of success was refuted. Cost unknown, 2 min 6 s.",
    ),
    "two lies": (
        [prepared("a").refuted(), prepared("b").refuted().delivered()],
        "1 of 2 done, 1 stopped. Agents claimed success wrongly twice; both caught. Cost unknown, 2 min 5 s.",
    ),
}


@pytest.mark.promise("screens.first-sentence")
@pytest.mark.parametrize("case", SENTENCES)
def test_the_first_sentence_says_how_far_how_honest_and_at_what_cost(case: str) -> None:
    told, sentence = SENTENCES[case]
    report = together(*(each.summary() for each in told))
    text = markdown(report).replace("\\", "")
    assert text.split("\n\n")[2] == f"**{sentence}**"
    lead = re.search(r'<p class="lead">(.*?)</p>', page(report))
    assert lead and re.sub(r"<span.*?</span> ?", "", lead[1]) == sentence


def test_a_command_that_lies_is_no_agent() -> None:
    report = together(prepared().step("deliver", Verdict.REFUTED, Move.PARK, agent="", evidence=(RED,)).summary())
    assert "No claim of success was refuted" in markdown(report)


@pytest.mark.promise("screens.first-sentence")
def test_what_needs_you_comes_before_the_figures_with_the_commands_that_answer_it() -> None:
    report = together(*(each.summary() for each in night()))
    for text, figures in ((page(report), "first-pass rate</dt>"), (markdown(report), "First-pass rate")):
        asked = text.partition(figures)[0]
        assert asked.index("Needs you (2)") < asked.index("which colour?")
        assert "the disk is full" in asked
        for command in ("capsule answer b --notes", "capsule answer c --retry"):
            assert command in asked
    assert "Needs you (" not in markdown(together(prepared().delivered().summary()))


def test_a_question_of_several_lines_keeps_them() -> None:
    lines = "Which one?\n\n1. red\n2. *blue*"
    told = prepared().step("code", Verdict.BLOCKED, Move.PARK, reason="Which one? 1. red 2. *blue*", summary=lines)
    report = together(told.summary())
    assert "> Which one?\n>\n> 1. red\n> 2. \\*blue\\*" in markdown(report)
    assert f"{lines}</blockquote>" in page(report)


@pytest.mark.promise("screens.mended")
def test_what_was_caught_and_mended_is_no_open_fault() -> None:
    mended = together(prepared().refuted().refuted().step("code", evidence=(HELD,)).summary())
    for text in (page(mended), markdown(mended)):
        assert text.count("caught, then mended at attempt 3") == 2
        assert "2 refuted, all mended since" in text
        assert "✗ REFUTED" not in text and "↺ REFUTED, mended at attempt 3" in text
    open_still = together(prepared().refuted().step("code", evidence=(HELD,)).sent_back().refuted().summary())
    for text in (page(open_still), markdown(open_still)):
        assert text.count("caught, then mended at attempt 2") == 1 and "✗ REFUTED" in text
        assert "2 refuted, 1 mended since" in text
    let_pass = together(prepared().refuted().step("code", evidence=(RED,)).summary())
    assert "mended" not in markdown(let_pass)


def test_nothing_yet_is_said_kindly() -> None:
    for text in (page(together()), markdown(together())):
        assert "No missions yet." in text
        assert "capsule run ID" in text
    Reader(page(together()))


def test_json_keeps_what_was_said_and_what_was_checked_in_places_of_their_own() -> None:
    told = facts(together(a_long_story().summary(diff=DIFF)))
    lie = told["missions"][0]["attempts"][1]
    assert lie["said"] == {"claimed": "PASS", "summary": "did as asked", "files_changed": [], "made_for_it": False}
    assert [piece["standing"] for piece in lie["checked"]] == ["confirmed", "refuted"]
    killed = next(each for each in told["missions"][0]["attempts"] if each["how"] == "interrupted")
    assert (killed["verdict"], killed["usage"]) == (None, None)
    assert told["totals"]["first_pass_rate"] == 0.0
    assert told["missions"][0]["diff"]["added"] == 40


def test_programs_read_the_word_that_people_see_beside_the_finer_one() -> None:
    told = facts(together(prepared("a").blocked().summary(), prepared("b").delivered().summary()))
    words = [(mission["state"], mission["status"]) for mission in told["missions"]]
    assert words == [("needs_you", "parked"), ("done", "merged")]


@pytest.fixture(scope="module")
def endless() -> MissionSummary:
    """Two thousand attempts, each with its evidence and feedback."""
    told = prepared()
    for _ in range(2000):
        told.refuted(feedback="It is red.\n" * 50)
    return told.summary()


def test_the_middle_of_a_long_mission_is_summarised(endless: MissionSummary) -> None:
    for text in (page(together(endless)), markdown(together(endless))):
        assert "1,921 attempts left out" in text
        assert len(text) < 1_000_000


def test_a_long_mission_is_a_page_in_a_moment(endless: MissionSummary) -> None:
    assert costs_below(2, lambda: page(together(endless)))


def test_the_same_account_gives_the_same_page() -> None:
    account = together(a_long_story().summary(diff=DIFF), prepared("y", "Other").step(evidence=(HELD,)).summary())
    assert page(account) == page(account)
