"""What follows from what a forge says about a request; and what of it an agent is told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from capsule.core.event import Rebased, Reopened, RequestPrepared, Reviewed
from capsule.core.evidence import Checkpoint
from capsule.core.remote import Kind
from capsule.core.request import (
    ChangeRequest,
    Fate,
    ForgeCheck,
    LineRemark,
    News,
    Outcome,
    Request,
    Seen,
    Standing,
    address_in,
    feedback,
    forge_trouble,
    look_again_after,
    news,
)
from capsule.core.state import REQUEST, REQUEST_COMMIT, MissionState, next_step, replay
from capsule.core.status import Condition, MissionStatus

from ..told import Told, prepared

OURS, THEIRS = "a" * 40, "b" * 40
URL = "https://forge.example.org/team/project/pull/7"
KNOWN = Request(url=URL, number=7, branch="capsule/x-1", commit=OURS)
ASKED = ChangeRequest("R1", "ada", "Write it down.", (LineRemark("Why?", "a.py", 3),))
RED = ForgeCheck("build", Outcome.FAILED, "https://ci.example.org/1")
OPEN = Seen(standing=Standing.OPEN, number=7, url=URL, head=OURS, base="main")

CASES: dict[str, tuple[Seen, str, Fate | None]] = {
    "open": (OPEN, OURS, None),
    "merged": (replace(OPEN, standing=Standing.MERGED, merged_as=THEIRS), "", Fate.MERGED),
    "closed": (replace(OPEN, standing=Standing.CLOSED), OURS, Fate.CLOSED),
    "merged into another branch": (replace(OPEN, standing=Standing.MERGED, base="next"), OURS, Fate.STUCK),
    "proposed for another branch": (replace(OPEN, base="next"), OURS, None),
    "closed with its branch": (replace(OPEN, standing=Standing.CLOSED), "", Fate.CLOSED),
    "branch deleted": (OPEN, "", Fate.STUCK),
    "changes": (replace(OPEN, reviews=(ASKED,)), OURS, Fate.CHANGES),
    "failed check": (replace(OPEN, checks=(RED,)), OURS, Fate.CHANGES),
    "a check under way": (replace(OPEN, checks=(RED, ForgeCheck("slow", Outcome.PENDING))), OURS, None),
    "a commit of somebody else's": (OPEN, THEIRS, None),
    "changes, and a commit of somebody else's": (replace(OPEN, reviews=(ASKED,)), THEIRS, Fate.STUCK),
}


@pytest.mark.parametrize(("seen", "head", "fate"), CASES.values(), ids=CASES.keys())
def test_what_follows(seen: Seen, head: str, fate: Fate | None) -> None:
    found = news(seen, KNOWN, head=head, ours=(OURS,), base="main")
    assert (found and found.fate) == fate


def test_what_came_back_once_does_not_come_back_again() -> None:
    seen = replace(OPEN, reviews=(ASKED,), checks=(RED,))
    first = news(seen, KNOWN, head=OURS, ours=(OURS,), base="main")
    assert first
    known = Request(url=URL, branch="b", heard=first.ids)
    assert news(seen, known, head=OURS, ours=(OURS,), base="main") is None
    pushed = replace(seen, head=THEIRS)  # the same check on another commit is news
    assert isinstance(news(pushed, known, head=OURS, ours=(OURS,), base="main"), News)


def _heard_in_turn(seen: Seen) -> list[News]:
    """What comes back, one after the other, until nothing is new."""
    told: list[News] = []
    known = KNOWN
    while found := news(seen, known, head=OURS, ours=(OURS,), base="main"):
        told.append(found)
        known = replace(known, heard=(*known.heard, *found.ids))
    return told


@pytest.mark.parametrize("text", ["Write it down.", "x" * 3_900, "x" * 20_000])
def test_each_review_and_each_failed_check_comes_back_once_even_if_there_are_many(text: str) -> None:
    reviews = tuple(ChangeRequest(f"R{number}", f"ada{number}", text) for number in range(25))
    checks = tuple(ForgeCheck(f"check{number}.", Outcome.FAILED) for number in range(35))
    told = _heard_in_turn(replace(OPEN, reviews=reviews, checks=checks))
    for names in ([f"{review.author} requests" for review in reviews], [f"- {check.name}" for check in checks]):
        assert [sum(name in found.text for found in told) for name in names] == [1] * len(names)


def test_one_review_that_is_too_long_comes_back_shortened() -> None:
    remarks = tuple(LineRemark("y" * 4_000) for _ in range(40))
    [found] = _heard_in_turn(replace(OPEN, reviews=(replace(ASKED, remarks=remarks),)))
    assert len(found.text) <= 12_000


def test_feedback_is_bounded_and_has_nothing_that_steers_a_terminal() -> None:
    rude = ChangeRequest("R", "ada\n\x1b[2J", "\x1b[31m" + "x" * 100_000, (LineRemark("y" * 100_000, "p\nq"),) * 99)
    text = feedback(URL, [rude], [ForgeCheck("c\n" * 500, Outcome.FAILED, "javascript:alert(1)")])
    assert len(text) <= 12_000
    assert "\x1b" not in text
    assert "javascript" not in feedback("", [], [ForgeCheck("c", Outcome.FAILED, "javascript:alert(1)")])


ADDRESSES = {
    "Opened.\nSee https://x.example.org/1.\n": "https://x.example.org/1",
    "old https://a.example.org/1\nnew https://a.example.org/2 done": "https://a.example.org/2",
    "nothing": "",
}


@pytest.mark.parametrize(("said", "address"), ADDRESSES.items())
def test_an_address_is_found_in_what_a_command_prints(said: str, address: str) -> None:
    assert address_in(said) == address


WORDS = {
    "error connecting to api.github.com\ncheck your internet connection": Kind.OFFLINE,
    "dial tcp: lookup gitlab.com: no such host": Kind.OFFLINE,
    "HTTP 502: Bad Gateway (https://api.github.com/graphql)": Kind.OFFLINE,
    "To get started with GitHub CLI, please run:  gh auth login": Kind.REFUSED,
    "GraphQL: Could not resolve to a Repository": Kind.REFUSED,
}


@pytest.mark.parametrize(("said", "kind"), WORDS.items())
def test_faults_of_a_forge_are_told_apart(said: str, kind: Kind) -> None:
    assert forge_trouble(said).kind is kind


PAUSES = {0: 300, 1: 600, 2: 1200, 3: 2400, 4: 3600, 50: 3600}


@pytest.mark.parametrize(("faults", "seconds"), PAUSES.items())
def test_a_forge_that_does_not_answer_is_asked_less_and_less(faults: int, seconds: float) -> None:
    assert look_again_after(faults) == seconds


# The mission


def _requested() -> Told:
    told = prepared().step("code").step("look")
    facts = {REQUEST: URL, "request_number": "7", "request_branch": "capsule/x-1", REQUEST_COMMIT: OURS}
    return told.step("deliver", agent="", facts=facts)


def _reviewed(told: Told, fate: Fate, text: str = "", **more: Any) -> MissionState:
    told.events.append(Reviewed(at=told.at, fate=fate, url=URL, text=text, **more))
    return replay(told.events)


def test_a_mission_with_a_request_waits_and_is_not_finished() -> None:
    told = _requested()
    state = replay(told.events)
    assert state.in_review
    assert not state.finished
    assert next_step(state) is None
    summary = told.summary()
    assert (summary.status, summary.condition) == (MissionStatus.WAITING, Condition.WAITING)
    assert summary.sentence == f"waiting for review: {URL}"
    assert summary.next == "capsule sync x-1"


def test_a_merge_ends_it_and_says_how_to_undo_it() -> None:
    told = _requested()
    state = _reviewed(told, Fate.MERGED, commit=THEIRS, onto="c" * 40, squashed=True)
    assert state.finished
    assert told.summary().sentence.startswith(f"merged into main as {THEIRS[:12]} by {URL}")
    assert told.summary().undo == f"git revert {THEIRS[:12]}"


def test_a_merge_whose_commit_nobody_knows_is_undone_there() -> None:
    told = _requested()
    _reviewed(told, Fate.MERGED)
    assert told.summary().merged == OURS
    assert told.summary().undo == f"revert it there: {URL}"


def test_requested_changes_send_it_back_with_the_words_as_feedback() -> None:
    told = _requested()
    state = _reviewed(told, Fate.CHANGES, "Write it down.", by=("ada",), ids=("R1",))
    assert not state.in_review
    assert state.returned and state.returned.why == "Write it down."
    rebuilt = Rebased(at=told.at, base="d" * 40, checkpoint=Checkpoint("e" * 40, "d" * 40, "f" * 40), re_enter="code")
    told.events.append(rebuilt)
    state = replay(told.events)
    assert state.feedback["code"] == "Write it down."
    step = next_step(state)
    assert step and step.phase == "code"
    [back] = [each for each in told.summary().rounds if each.of_request]
    assert (back.by, back.text) == ("ada", "Write it down.")


def test_one_that_is_stuck_asks_a_person_and_goes_on_with_the_words_of_the_review() -> None:
    told = _requested()
    state = _reviewed(told, Fate.STUCK, "somebody else pushed.\n\nWrite it down.", by=("ada",), ids=("R1",))
    assert state.halt and state.halt.reason == "somebody else pushed."
    summary = told.summary()
    assert summary.status is MissionStatus.NEEDS_YOU
    assert summary.next == "capsule answer x-1 --retry"
    told.events.append(Reopened(at=told.at, notes="I took it back."))
    state = replay(told.events)
    assert state.returned and state.returned.why == "Write it down.\n\nI took it back."


def test_one_that_is_stuck_without_a_review_is_proposed_again() -> None:
    told = _requested()
    _reviewed(told, Fate.STUCK, "its branch was deleted")
    told.events.append(Reopened(at=told.at))
    step = next_step(replay(told.events))
    assert step and step.phase == "deliver"


def test_commits_that_were_pushed_are_known_after_it_is_started_over() -> None:
    told = prepared()
    told.events.append(RequestPrepared(at=told.at, commit=OURS, branch="capsule/x-1", base="main"))
    assert replay(told.start().events).pushed == (OURS,)
