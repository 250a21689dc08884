"""Words, signs and tones that screens and reports share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from capsule.core.budget import Spending, duration, in_words, price
from capsule.core.by_agent import AgentRecord
from capsule.core.event import Accepted, Allowance
from capsule.core.evidence import NOT_EXECUTED, SURVIVED, Evidence, EvidenceStatus, ExamMark, ExamResult
from capsule.core.exam import joining
from capsule.core.findings import FindingStatus, finding_line
from capsule.core.forecast import in_minutes
from capsule.core.history import (
    SUCCESSES,
    Attempt,
    Diff,
    Mark,
    MissionSummary,
    Round,
    RunSummary,
    comparable_claim,
    evidence_counts,
    run_counts,
)
from capsule.core.merge_train import BatchTest, Car, MergeSummary
from capsule.core.merges import Passage
from capsule.core.progress import RunProgress
from capsule.core.proven import Proof, joined
from capsule.core.report import Report, Totals
from capsule.core.signal import Verdict
from capsule.core.stamps import moment
from capsule.core.state import MissionState
from capsule.core.status import MissionStatus, Tone, count_statuses
from capsule.core.text import count, times
from capsule.reports.style import TONES, Style, clean, printable, wrapped

Row = TypeVar("Row")
Shown = TypeVar("Shown")

SHOWN = 40
"""The rows that are shown from either end of a long list."""


class Look(NamedTuple):
    """A tone, and the sign with the same meaning without colour."""

    tone: Tone
    sign: str


VERDICTS = {
    "PASS": Look(Tone.GOOD, Mark.DONE),
    "MORE": Look(Tone.GOOD, Mark.DONE),
    "SKIPPED": Look(Tone.QUIET, Mark.SKIPPED),
    "NEEDS_WORK": Look(Tone.WARN, Mark.AGAIN),
    "BLOCKED": Look(Tone.WARN, Mark.NEEDS_YOU),
    "REFUTED": Look(Tone.BAD, "✗"),
    "FAILED": Look(Tone.BAD, "!"),
    "ERROR": Look(Tone.BAD, "!"),
    "interrupted": Look(Tone.QUIET, Mark.INTERRUPTED),
    "went back": Look(Tone.WARN, Mark.AGAIN),
    "under way": Look(Tone.LIVE, Mark.NOW),
}
MENDED = Look(Tone.WARN, Mark.AGAIN)
EVIDENCE = {
    EvidenceStatus.CONFIRMED: Look(Tone.GOOD, "✓"),
    EvidenceStatus.REFUTED: Look(Tone.BAD, "✗"),
    EvidenceStatus.UNVERIFIED: Look(Tone.WARN, "?"),
    EvidenceStatus.ACCEPTED: Look(Tone.WARN, "!"),
}
FINDINGS = {
    FindingStatus.OPEN: Look(Tone.WARN, "○"),
    FindingStatus.RESOLVED: Look(Tone.GOOD, "✓"),
    FindingStatus.WITHDRAWN: Look(Tone.QUIET, "–"),
}
_CHECKED = {
    EvidenceStatus.CONFIRMED: "held",
    EvidenceStatus.REFUTED: "refuted",
    EvidenceStatus.ACCEPTED: "accepted by a person",
    EvidenceStatus.UNVERIFIED: "could not be checked",
}
UNVERIFIED, LET_PASS = "unverified", "though refuted"
NO_MISSIONS = "No missions yet."
HOW_TO_BEGIN = "capsule run ID"
NO_AGENTS = "No agent has been started yet."


# ---- one mission, one attempt


def tone_of(summary: MissionSummary) -> Tone:
    """Return the tone of a mission; delivered work is green only if it was checked."""
    return Tone.WARN if summary.unverified and summary.delivered else summary.status.tone


def outcome_of(attempt: Attempt) -> str:
    """`PASS`, `PASS, unverified`, `REFUTED, mended at attempt 3`, `interrupted`."""
    mended = f", mended at attempt {attempt.mended}" if attempt.mended else ""
    return f"{verdict_of(attempt)}{mended}"


def verdict_of(attempt: Attempt) -> str:
    """`PASS`, `PASS, unverified`, `REFUTED`, `interrupted`."""
    return ", ".join(filter(None, (attempt.verdict or attempt.how, caveat(attempt))))


def look_of(attempt: Attempt) -> Look:
    if attempt.mended:
        return MENDED
    look, doubt = VERDICTS.get(attempt.verdict or attempt.how, Look(Tone.QUIET, "·")), caveat(attempt)
    return look._replace(tone=Tone.WARN if doubt == LET_PASS else Tone.QUIET) if doubt else look


def caveat(attempt: Attempt) -> str:
    """Say why a success is not reliable; '' if it was checked and held."""
    if attempt.passed_despite_evidence:
        return LET_PASS
    confirmed = evidence_counts(attempt.evidence)[EvidenceStatus.CONFIRMED]
    to_be_checked = attempt.verdict in SUCCESSES and (attempt.agent or attempt.evidence)
    return UNVERIFIED if to_be_checked and not confirmed else ""


def judged(attempt: Attempt) -> str:
    """Describe the result of a claim: `PASS, 2 checks hold`, `REFUTED by 1 of 3 checks`."""
    verdict, evidence = attempt.verdict, attempt.evidence
    counts, checks = evidence_counts(evidence), count(len(evidence), "check")
    refuted, unsure = counts[EvidenceStatus.REFUTED], counts[EvidenceStatus.UNVERIFIED]
    if refuted and verdict == Verdict.REFUTED:
        return f"{verdict} by {refuted} of {checks}"
    if refuted:
        though = "though " if verdict in SUCCESSES else ""
        return f"{verdict}, {though}{refuted} of {checks} {'refutes' if refuted == 1 else 'refute'} it"
    if accepted := counts[EvidenceStatus.ACCEPTED]:
        return f"{verdict}, {accepted} of {checks} accepted by a person"
    if unsure:
        return f"{verdict}, {unsure} of {checks} could not be made"
    if evidence:
        return f"{verdict}, {checks} {'hold' if len(evidence) > 1 else 'holds'}"
    return f"{verdict} (unverified)" if attempt.agent and verdict == attempt.claimed in SUCCESSES else verdict


def checked(evidence: Iterable[Evidence]) -> str:
    """Count the results of claims: `3 held, 1 refuted`."""
    counts = evidence_counts(evidence)
    return ", ".join(f"{counts[standing]} {word}" for standing, word in _CHECKED.items() if counts[standing])


def claim_of(attempt: Attempt) -> str:
    """Return what the agent claimed; '' if Capsule itself did the step, or it has not ended."""
    if not attempt.ended or not attempt.agent:
        return ""
    return "no readable claim" if attempt.ended.outcome.signal.synthetic else attempt.claimed


def made_by(attempt: Attempt) -> str:
    return " · ".join(filter(None, (attempt.agent or "Capsule", attempt.model)))


def origin(each: Round) -> str:
    """Say who sent it back: `execute-review, attempt 1 (claude): said by the agent`."""
    if each.of_request:
        return f"the review of its request, by {clean(each.by)}"
    if not each.by:
        return "notes from a person"
    agent = f" ({clean(each.agent)})" if each.agent and not each.seen else ""
    source = "checked by Capsule" if each.seen else "said by the agent"
    return f"{clean(each.by)}, attempt {each.attempt}{agent}: {source}"


def evidence_lines(piece: Evidence, style: Style, width: int, indent: str) -> Iterator[str]:
    """Return the claim and what was seen, with the sign of the evidence."""
    look, said = EVIDENCE[piece.standing], f"claimed: {comparable_claim(piece)}; seen: {piece.observed}"
    first, *rest = wrapped(said, width, f"{indent}  ", "")
    yield f"{indent}{style.paint(TONES[look.tone], look.sign)} {first.lstrip()}"
    yield from rest


def acceptance(each: Accepted) -> str:
    """Describe a refuted claim that a person accepted, with the reason."""
    return f"{each.check} at {each.phase}: {each.observed}; accepted by a person, because: {each.because}"


def exam(state: MissionState) -> list[str]:
    """Describe each test of an exam and its result, and the tests that join the suite."""
    struck = {name: ExamResult(name, ExamMark.STRUCK, because) for name, because in state.struck.items()}
    results = {**state.exam_results, **struck}
    lines = []
    for test in state.exam:
        result = results.get(test.id)
        seen = "seen:" if result and result.mark is ExamMark.FAILED else "because"
        lines.append(
            f"{test.id} {result.mark.value if result else 'not held yet'}: {test.criterion}; input: {test.input}; "
            f"expected: {test.expected}{f'; {seen} {result.seen}' if result and result.seen else ''}"
        )
    passed = [test.id for test in state.exam if test.id in results and results[test.id].mark is ExamMark.PASSED]
    if not passed:
        return lines
    names, plural = " and ".join(filter(None, (", ".join(passed[:-1]), passed[-1]))), len(passed) > 1
    if not joining(state):
        return [*lines, f"{names} {'stay' if plural else 'stays'} hidden (evidence.exam: drop)"]
    when = "" if "merged" in state.facts else " when the work is merged"
    return [*lines, f"{names} {'join' if plural else 'joins'} the test suite{when}"]


def note_rows(summary: MissionSummary) -> Iterator[tuple[str, str]]:
    """Yield a mission's notes: findings, returns, exam, accepted claims, salvage, warnings."""
    yield from (("finding", f"{phase}: {finding_line(finding)}") for phase, finding in summary.findings)
    if request := summary.state.request:
        yield "request", f"{request.url} ({request.branch} at {request.commit[:12]})"
    yield from (("went back", event.why.partition("\n")[0]) for event in summary.returns)
    yield from (("exam", text) for text in exam(summary.state))
    yield from (("accepted", acceptance(each)) for each in summary.accepted)
    yield from (("salvaged", f"{ref} ({why})") for ref, why in summary.salvaged.items())
    yield from (("warning", text) for text in summary.warnings)
    for attempt in summary.attempts:
        for text in attempt.ended.outcome.warnings if attempt.ended else ():
            yield "warning", f"{attempt.phase}, attempt {attempt.number}: {text}"


def proof(piece: Evidence, most: int = 12) -> str:
    """Return the end of what was seen if it contradicts the claim."""
    if piece.standing is not EvidenceStatus.REFUTED:
        return ""
    return "\n".join(printable(piece.detail).strip().splitlines()[-most:])


TESTS = {"new": "new tests", "rewritten": "rewritten tests", "mended": "mended tests", "flaky": "flaky tests"}
_MOST_TESTS = 12


def proof_rows(proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield the proof, the gaps, the mere claims, and their tests and mutants."""
    yield from ((label, joined(said)) for label, said in (("proven", proof.proven), ("not proven", proof.gaps)) if said)
    yield from (("only said", f"{each.phase}: {each.summary or 'it passed'}") for each in proof.reviews)
    for kind, names in proof.tests.items():
        more = f" and {len(names) - _MOST_TESTS} more" if len(names) > _MOST_TESTS else ""
        yield TESTS.get(kind, kind), ", ".join(names[:_MOST_TESTS]) + more
    yield from (("not covered", f"{place}: {NOT_EXECUTED}") for place in proof.not_covered)
    yield from (("survived", f"{line}: {SURVIVED}") for line in proof.survivors)


# ---- time and money


def when(stamp: str) -> str:
    """`16 Nov 2026, 13:08:12`."""
    return f"{datetime.fromtimestamp(moment(stamp), UTC):%-d %b %Y, %H:%M:%S}" if stamp else ""


def took(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)


def period(summary: MissionSummary) -> str:
    until = when(summary.ended) if summary.ended else f"now ({when(summary.as_of)})"
    return f"{when(summary.began)} to {until}, UTC"


def cost_of(attempt: Attempt) -> str:
    """Return the cost in words; '' if no agent was paid or it is still running. Unknown is never zero."""
    if not attempt.agent or attempt.under_way:
        return ""
    return price(attempt.ended.outcome.usage if attempt.ended else None) or "unknown"


def money(spent: Spending) -> str:
    """`$0.12`, `at least $0.12`, `unknown`, or a dash if no agent was paid."""
    if not spent.runs:
        return "–"
    if not spent.priced:
        return "unknown"
    amount = f"${spent.usd:,.2f}" if spent.usd >= 0.01 or not spent.usd else f"${spent.usd:.4f}"
    return amount if spent.priced == spent.runs else f"at least {amount}"


def agents_used(spent: Spending) -> str:
    """`agents used $0.12, 900 tokens, 3 s`, and what is unknown only after a colon."""
    return f"agents used{'' if spent.priced else ':'} {in_words(spent)}"


# ---- several missions


def first_sentence(report: Report) -> str:
    """`3 of 6 done, 3 need you. Agents claimed success wrongly 7 times; all caught. $6.21, 2 h 45 min.`"""
    return " ".join(first_sentences(report))


def first_sentences(report: Report) -> tuple[str, str, str]:
    """Describe progress, honesty and cost."""
    totals, run = report.totals, report.run
    price = money(totals.spending)
    cost = {"unknown": "Cost unknown, ", "–": ""}.get(price, f"{price.replace('at', 'At', 1)}, ")
    took = duration(int(run.seconds) if run else totals.busy_seconds)
    return f"{_how_far(report)}.", f"{_honesty(totals)}.", f"{cost}{took}."


def _how_far(report: Report) -> str:
    if report.alone:
        [only] = report.missions
        at = f" at {clean(only.phase)}" if only.phase else ""
        return f"{only.status.words.capitalize()}{at}"
    statuses = report.statuses
    others = count_statuses({status: number for status, number in statuses.items() if status is not MissionStatus.DONE})
    return ", ".join(filter(None, (f"{statuses[MissionStatus.DONE]:,} of {len(report.missions):,} done", others)))


def _honesty(totals: Totals) -> str:
    wrong, caught = totals.claimed_wrongly, totals.caught
    if not wrong:
        return "No claim of success was refuted" if totals.claims else "No claim was checked"
    return f"Agents claimed success wrongly {times(wrong)}; {caught_words(wrong, caught)}"


def lies_words(wrong: int, caught: int) -> str:
    """`3 lies caught`, `1 lie let pass`, `2 lies caught, 1 let pass`; '' if there was none."""
    let_pass = wrong - caught
    if not caught:
        return f"{count(let_pass, 'lie')} let pass" if let_pass else ""
    return f"{count(caught, 'lie')} caught" + (f", {let_pass:,} let pass" if let_pass else "")


def caught_words(wrong: int, caught: int) -> str:
    """Describe how many of the wrong claims did not pass."""
    if not caught:
        return {1: "let pass", 2: "both let pass"}.get(wrong, "all let pass")
    if caught < wrong:
        return f"{caught:,} caught, {wrong - caught:,} let pass"
    return {1: "caught", 2: "both caught"}.get(wrong, "all caught")


def refuted_words(refuted: int, mended: int) -> str:
    """`3 refuted`, `3 refuted, 2 mended since`, `3 refuted, all mended since`."""
    if not mended:
        return f"{refuted} refuted"
    which = f"{mended} " if mended < refuted else "all " if refuted > 1 else ""
    return f"{refuted} refuted, {which}mended since"


Figure = tuple[str, str, str]
"""A name, a figure, and a remark."""


def report_figures(report: Report) -> list[Figure]:
    """Sum up several missions."""
    totals, share = report.totals, report.totals.first_pass_rate
    attempts = [attempt for each in report.missions for attempt in each.all_attempts()]
    refuted = refuted_words(totals.refuted, totals.mended)
    passed = f"{totals.first_pass} of {totals.judged} that ended had nothing sent back"
    return [
        ("missions", f"{totals.missions:,}", count_statuses(report.statuses)),
        ("first-pass rate", "–" if share is None else f"{100 * share:.0f} %", passed),
        ("retries", f"{totals.sent_back:,}", f"of {count(totals.attempts, 'attempt')}; {refuted}"),
        *_claims_cost_and_time(attempts, totals.spending, totals),
    ]


def mission_figures(summary: MissionSummary) -> list[Figure]:
    sent_back = f"sent back {count(summary.sent_back, 'time')}; {refuted_words(summary.refuted, summary.mended)}"
    return [
        ("attempts", f"{summary.attempts_made:,}", sent_back),
        *_claims_cost_and_time(summary.all_attempts(), summary.spent_with_parts, summary),
        ("change", change_words(summary.diff) or "–", summary.diff.note),
    ]


def _claims_cost_and_time(
    attempts: Iterable[Attempt], spent: Spending, time: Totals | MissionSummary
) -> Iterator[Figure]:
    evidence = [piece for attempt in attempts for piece in attempt.evidence]
    yield "claims checked", f"{len(evidence):,}", checked(evidence)
    at_least = "" if spent.counted == spent.runs else "at least "
    tokens = f"{at_least}{spent.tokens:,} tokens" if spent.counted else "tokens unknown"
    used = f"{tokens}, {duration(spent.seconds)} of agent time"
    yield "agents cost", money(spent), used if spent.runs else "no agent was started"
    waited = f", {duration(time.waited_seconds)} waiting for providers" if time.waited_seconds else ""
    yield "time", f"{duration(time.wall_seconds)} wall clock", f"{duration(time.busy_seconds)} active{waited}"


def run_sentence(run: RunSummary) -> str:
    """`running for 2 min 0 s, 4 of 10 agents, 1 of 3 done, now at shop-1.1.1`, `stopped after 1 agent, 9 min 0 s`."""
    ended = run.ended
    agents = f"{run.spawns} of {count(run.cap, 'agent')}" if run.cap else count(run.spawns, "agent")
    if run.running:
        progress = next(iter(run.progress.values()), None)
        far = f", {progress.done} of {progress.of} done" if progress else ""
        at = f", now at {list(run.missions)[-1]}" if run.missions else ""
        return f"running for {duration(int(run.seconds))}, {agents}{far}{at}"
    took = duration(run.seconds)
    if not ended:
        return f"stopped after {agents}, {took}"
    told = count_statuses(run_counts(ended))
    return f"ended: {clean(ended.why)}{f' ({told})' if told else ''}, {agents}, {took}"


def progress_words(progress: RunProgress) -> list[str]:
    """`12/40`, `6 running`, `2 in the merge queue`, `$4.10 of $10`, `2 need you`, `about 35 min left`."""
    halted = {MissionStatus.NEEDS_YOU: progress.needs_you, MissionStatus.FAILED: progress.failed}
    return [
        f"{progress.done}/{progress.of}" if progress.of else f"{progress.done} done",
        f"{progress.running} running",
        *([f"{progress.queued} in the merge queue"] if progress.queued else []),
        *([spent_of(progress.spent, progress.budget)] if progress.spent.runs else []),
        *(count_statuses({status: number}) for status, number in halted.items() if number),
        *([f"about {in_minutes(progress.left)} left"] if progress.left is not None else []),
    ]


def spent_of(spent: Spending, allowed: Allowance) -> str:
    """`$4.10 of $10`: money if it is known or limited, else tokens; then other limits."""
    parts = []
    if spent.priced or allowed.usd is not None:
        limit = "" if allowed.usd is None else f" of ${allowed.usd:,.2f}".removesuffix(".00")
        known = f"{_at_least(spent, spent.priced)}${spent.usd:,.2f}"
        parts.append(f"{known if spent.priced else 'an unknown part'}{limit}")
    if allowed.tokens is not None or (spent.counted and not parts):
        limit = "" if allowed.tokens is None else f" of {allowed.tokens:,}"
        parts.append(f"{_at_least(spent, spent.counted)}{spent.tokens:,}{limit} tokens")
    if allowed.seconds is not None:
        parts.append(f"{duration(spent.seconds)} of {duration(allowed.seconds)}")
    return ", ".join(parts) or "cost unknown"


def _at_least(spent: Spending, known: int) -> str:
    return "" if known == spent.runs else "≥ "


AGENT_HEADS = ("agent", "attempts", "claims of success", "refuted", "first pass", "merged", "cost", "per merged item")


def agent_cells(record: AgentRecord) -> tuple[str, ...]:
    """Return the row of an agent: `claude · large`, `12`, `9`, `2 (22 %)`, `5 of 6 (83 %)`, `3`, `$4.10`, `$1.37`."""
    each = record.usd_per_merged
    refuted = f"{record.refuted:,}{_share(record.refuted_rate)}" if record.claims else "–"
    first = f"{record.first_pass:,} of {record.phases:,}{_share(record.first_pass_rate)}" if record.phases else "–"
    return (
        " · ".join(filter(None, (record.agent, record.model))),
        f"{record.attempts:,}",
        f"{record.claims:,}",
        refuted,
        first,
        f"{record.merged:,}",
        money(record.spending),
        "–" if not record.merged else "unknown" if each is None else f"${each:,.2f}",
    )


def _share(rate: float | None) -> str:
    return "" if rate is None else f" ({100 * rate:.0f} %)"


AGENTS_EXPLAINED = (
    "Refuted: it claimed success, and the evidence said otherwise. First pass: phases, reviews apart, that passed at "
    "once and never had to be done again. Per merged item: all that it cost, by the missions delivered in which it "
    "took part."
)


# ---- merge queues


def queue_words(queue: MergeSummary | None) -> str:
    """Describe a merge queue: `1 being merged, 3 waiting`."""
    counts = {"being merged": bool(queue and queue.at_it), "waiting": len(queue.places) if queue else 0}
    return ", ".join(f"{number:d} {word}" for word, number in counts.items() if number) or "nobody waits"


def car_words(car: Car) -> str:
    """Describe the missions that are tested together, or whose tests have passed."""
    named = ", ".join(car.missions)
    if car.green:
        return f"tests passed: {named}"
    return f"tested together: {named}" if car.missions[1:] else f"tested: {named}"


def passage_words(passage: Passage) -> str:
    """`with task-2, waited 12 s, took 3.0 s`, or why it went back."""
    if passage.why:
        return passage.why
    together = f"with {', '.join(passage.together)}" if passage.together else ""
    waited = f"waited {duration(passage.waited)}" if passage.waited else ""
    took = f"took {duration(passage.seconds)}" if passage.seconds else ""
    return ", ".join(filter(None, (together, waited, took)))


def batch_words(batch: BatchTest) -> str:
    """`green, merged as f00c0ffee012`, `red, halved`."""
    if batch.green:
        return f"green, merged as {batch.commit[:12]}" if batch.commit else "green"
    return "red, halved" if batch.bisected else "red"


def look_of_batch(batch: BatchTest) -> Look:
    return Look(Tone.GOOD, "✓") if batch.green else Look(Tone.BAD, "✗")


def change_words(diff: Diff) -> str:
    return f"+{diff.added:,} −{diff.removed:,} in {count(len(diff.files), 'file')}" if diff.files else ""


def elided(
    rows: Sequence[Row], show: Callable[[Row], Shown], left_out: Callable[[int], Shown], most: int = SHOWN
) -> list[Shown]:
    """Return the rows; of a long list both ends, with the number of omitted ones in between."""
    count = len(rows) - 2 * most
    if count <= 1:
        return [show(row) for row in rows]
    return [*map(show, rows[:most]), left_out(count), *map(show, rows[-most:])]
