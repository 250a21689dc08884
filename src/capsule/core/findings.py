"""Keep the findings of a review from round to round, and detect rounds without progress.

Each finding has an id (`R1`, `R2`, ...) that is unique in the mission. A review that sends the work back is read by
this table, top down; one that passes has settled its findings, and is never stopped.

    a review that sends the work back             then
    asks for the opposite of a finding            park
    withdraws a finding that was done             park
    asks for a finding for the third time         park
    anything else                                 rework, as long as there are retries

The first three are parked also where no retries are left: the question is a person's, and no failure.

The opposite is a remark that names the finding in `reverses`. A finding was done where the worker said so by its id, or
the review itself once called it resolved: to withdraw any other is to be convinced, and that is progress. Where a
review sent text alone, it is parked only if every point of it was asked for twice before, since a text also holds
points that ask for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from capsule.core.signal import Remark, RemarkStatus, Signal
from capsule.core.text import count, one_line, shortened

MOST_ASKED: Final = 3
"""A finding that is raised this often needs a person."""
MOST_REMARKS: Final = 40
_LONGEST_TOLD: Final = 1000
_LONGEST_ANSWER_TOLD: Final = 300
"""The most an agent is told of a finding and of its answer; people see the full text."""
_SIMILAR: Final = 0.5
"""The share of words that a finding's new words have in common with its old ones, where only its id names it."""


class FindingStatus(StrEnum):
    OPEN = "open"
    RESOLVED = "resolved"
    WITHDRAWN = "withdrawn"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that a review asks for, with its state after the last round."""

    id: str
    text: str
    file: str = ""
    status: FindingStatus = FindingStatus.OPEN
    asked: int = 0
    """In how many rounds it was asked for."""
    counted: int = 0
    """In how many of them since a person last resumed the mission."""
    done: bool = False
    """Whether the worker said that it is done, or the review that it is resolved."""
    answer: str = ""
    """The worker's last words about it."""

    @property
    def is_open(self) -> bool:
        return self.status is FindingStatus.OPEN


Ledger = tuple[Finding, ...]
"""The findings of one phase, in the order of their ids."""


class ReviewRound(msgspec.Struct, frozen=True):
    """A review that sends the work back: the findings after it, and what it did to them. All ids."""

    ledger: Ledger
    asked: tuple[str, ...]
    taken_back: dict[str, str] = {}
    """The review's new words, by id."""
    by_remarks: bool = True
    """Whether it sent remarks, and not text alone."""


# ---- one round


def review_round(ledger: Ledger, signal: Signal, first_number: int) -> ReviewRound:
    """Return the findings after a review that sends the work back; new ones are numbered from `first_number`."""
    remarks = signal.findings[:MOST_REMARKS]
    asks = [remark for remark in remarks if remark.asks]
    by_remarks = bool(asks)
    if not by_remarks:
        asks = [Remark(text=text) for text in points(signal.feedback or signal.summary)[:MOST_REMARKS]]
    known = {finding.id: finding for finding in ledger}
    answered = {finding.id: remark for remark in remarks if not remark.asks and (finding := _named(known, remark))}
    withdrawn = {id: remark.text for id, remark in answered.items() if remark.status is RemarkStatus.WITHDRAWN}
    taken_back = {id: text for id, text in withdrawn.items() if known[id].done and known[id].counted}
    asked = dict[str, None]()
    for remark in asks:
        reversed_one = known.get(remark.reverses)
        if reversed_one and reversed_one.counted:
            taken_back[reversed_one.id] = remark.text
        finding = _match(known, remark)
        if finding is None:
            if not remark.text:
                continue
            finding = Finding(id=f"R{first_number}", text=remark.text.strip(), file=remark.file.strip())
            first_number += 1
        if finding.id not in asked:
            again = {"asked": finding.asked + 1, "counted": finding.counted + 1, "done": False}
            known[finding.id] = replace(finding, status=FindingStatus.OPEN, **again)
            asked[finding.id] = None
    settled = {id: _settled(finding, answered.get(id)) for id, finding in known.items() if id not in asked}
    return ReviewRound(tuple({**known, **settled}.values()), tuple(asked), taken_back, by_remarks)


def _named(known: Mapping[str, Finding], remark: Remark) -> Finding | None:
    return known.get(remark.id) or _match(known, remark)


def _match(known: Mapping[str, Finding], remark: Remark) -> Finding | None:
    """Return the finding that a remark refers to.

    An id alone counts, and so does one with a status: it shows that the list was read. An id with quite different words
    comes from a reviewer that numbers from R1 in every round.
    """
    named = known.get(remark.id)
    if named and (remark.status or not remark.text or _alike(named.text, remark.text)):
        return named
    same = (each for each in known.values() if _same(each, remark))
    return next(same, None)


def _settled(finding: Finding, remark: Remark | None) -> Finding:
    """Record the status of a finding that a review no longer raises; without one, an open finding is settled."""
    if remark and remark.status is RemarkStatus.WITHDRAWN:
        return replace(finding, status=FindingStatus.WITHDRAWN)
    if remark and remark.status is RemarkStatus.RESOLVED:
        return replace(finding, status=FindingStatus.RESOLVED, done=True)
    return replace(finding, status=FindingStatus.RESOLVED) if finding.is_open else finding


def stuck(judged: ReviewRound, worker: str) -> str:
    """Say why another round would not help, quoting both agents; '' if it may help."""
    known = {finding.id: finding for finding in judged.ledger}
    for id, now in judged.taken_back.items():
        said = f", now it says “{one_line(now)}”" if now.strip() else ""
        return f"{id} is taken back: it asked for “{one_line(known[id].text)}”{said}{_answered(known[id], worker)}"
    often = [known[id] for id in judged.asked if known[id].counted >= MOST_ASKED]
    if not often or not (judged.by_remarks or len(often) == len(judged.asked)):
        return ""
    first, *others = often
    more = f"; as often: {', '.join(finding.id for finding in others)}" if others else ""
    times = count(first.counted, "time")
    return f"{first.id} was asked for {times}: “{one_line(first.text)}”{_answered(first, worker)}{more}"


def _answered(finding: Finding, worker: str) -> str:
    return f"; {worker} answered “{one_line(finding.answer)}”" if finding.answer else ""


# ---- between rounds


def settle_all(ledger: Ledger, signal: Signal) -> Ledger:
    """Return the findings after a review that passed: all are settled."""
    known = {finding.id: finding for finding in ledger}
    answered = {finding.id: remark for remark in signal.findings if (finding := _named(known, remark))}
    return tuple(_settled(finding, answered.get(finding.id)) for finding in ledger)


def with_answers(ledger: Ledger, signal: Signal) -> Ledger:
    """Record a worker's answers to the open findings: its remark by id, else its summary."""
    said = {remark.id: remark for remark in signal.findings}
    return tuple(_with_answer(each, said.get(each.id), signal) if each.is_open else each for each in ledger)


def _with_answer(finding: Finding, remark: Remark | None, signal: Signal) -> Finding:
    words = (remark and (remark.text or remark.status.value)) or signal.summary
    done = remark is not None and remark.status is RemarkStatus.RESOLVED
    return replace(finding, answer=words.strip(), done=done)


def afresh(ledgers: Mapping[str, Ledger]) -> dict[str, Ledger]:
    """Reset the counts after a person has resumed the mission."""
    return {phase: tuple(replace(each, counted=0) for each in ledger) for phase, ledger in ledgers.items()}


def next_number(ledgers: Iterable[Ledger]) -> int:
    return 1 + sum(map(len, ledgers))


# ---- in words


def finding_line(finding: Finding) -> str:
    """`R1 (open, asked 2 times) in pay.py: name the unit`."""
    where = f" in {one_line(finding.file)}" if finding.file else ""
    times = count(finding.asked, "time")
    return f"{finding.id} ({finding.status.value}, asked {times}){where}: {one_line(finding.text)}"


def finding_list(ledger: Iterable[Finding]) -> str:
    """List findings for an agent, the long ones in short."""
    return "\n".join(map(_short_line, ledger))


def _short_line(finding: Finding) -> str:
    return f"- {finding_line(replace(finding, text=shortened(finding.text, _LONGEST_TOLD)))}"


def told_to_reviewer(ledger: Ledger, worker: str) -> str:
    """List the findings of earlier rounds for the next one, each with the worker's answer; the open ones come first."""
    return "\n".join(
        _short_line(each)
        + (f"\n  {worker} says: {shortened(one_line(each.answer), _LONGEST_ANSWER_TOLD)}" if each.answer else "")
        for each in sorted(ledger, key=lambda finding: not finding.is_open)
    )


# ---- text


_ITEM = r"(?P<indent>[ \t]*)(?:[-*+•]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)"
_FENCE = r"[ \t]*(?:```|~~~)"
_HEADING = r"#{1,6}[ \t]"


def points(text: str) -> list[str]:
    """Take feedback apart: the items of its list, where it has one; else its paragraphs."""
    items, paragraphs = list[list[str]](), list[list[str]]()
    fenced = ends = False
    margin: int | None = None
    for line in text.splitlines():
        item = None if fenced else re.fullmatch(_ITEM, line)
        fenced ^= bool(re.match(_FENCE, line))
        indent = len(item["indent"].expandtabs(4)) if item else 0
        margin = indent if item and margin is None else margin
        if item and margin is not None and indent <= margin:
            items.append([item["text"]])
            ends = False
        elif items and not ends:
            ends = not fenced and not line.strip()
            items[-1].append(line)
        if line.strip() or fenced:
            paragraphs = paragraphs or [[]]
            paragraphs[-1].append(line)
        elif paragraphs and paragraphs[-1]:
            paragraphs.append([])
    found = items or [lines for lines in paragraphs if not (len(lines) == 1 and re.match(_HEADING, lines[0]))]
    return [kept for lines in found if (kept := "\n".join(lines).strip())]


_LINE_NUMBER = r"\blines?\s+\d+(?:\s*(?:-|to|and)\s*\d+)?|(?P<file>\.[A-Za-z]\w*):\d+(?::\d+)?"
_WORD = r"-*[^\W_]+(?:[_.'/\\-]+[^\W_]+)*|!=|[<>=]+"
_FILLERS: Final = frozenset(
    (
        *("a", "an", "the", "this", "that", "it", "its", "is", "are", "was", "were", "be", "been", "being", "there"),
        *("still", "again", "yet", "already", "also", "please", "just", "now", "so", "here", "before", "said", "say"),
        *("must", "should", "needs", "need", "has", "have", "had", "i", "we", "you", "your", "as", "and", "of"),
        *("to", "at", "in", "on"),
    )
)
"""Words without meaning for the comparison. Negations are not among them."""


def meaning(text: str) -> tuple[str, ...]:
    """Return the words that count, in order: without case, markup, line numbers and fillers."""
    bare = re.sub(_LINE_NUMBER, lambda found: found["file"] or " ", text)
    words = (found[0].casefold() for found in re.finditer(_WORD, bare))
    return tuple(word for word in words if word not in _FILLERS)


def _same(finding: Finding, remark: Remark) -> bool:
    """Tell whether a remark asks for the same thing in the same words; different words count as a different thing."""
    other_file = bool(finding.file and remark.file) and finding.file != remark.file
    words = meaning(remark.text)
    return bool(words) and not other_file and words == meaning(finding.text)


def _alike(one: str, other: str) -> bool:
    mine, theirs = set(meaning(one)), set(meaning(other))
    return len(mine & theirs) >= _SIMILAR * max(len(mine), len(theirs), 1)


def findings_of(ledgers: Mapping[str, Ledger]) -> Iterator[tuple[str, Finding]]:
    """Yield every finding of a mission with its phase, in the order of their ids."""
    found = [(phase, finding) for phase, ledger in ledgers.items() for finding in ledger]
    yield from sorted(found, key=lambda each: int(each[1].id[1:]))
