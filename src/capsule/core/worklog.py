"""Events as Markdown: the worklog that agents read and write, and the summary that is left at the end.

Agents may write their own entries; Capsule always adds its stamped one under the phase's section. Nothing is ever read
back from the worklog to decide something, except by the standalone `merge`, which has no journal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from capsule.core.briefing import fenced, fill
from capsule.core.decide import HALTS, Decision, Move
from capsule.core.event import Event, Outcome, StepEnded
from capsule.core.evidence import NOT_EXECUTED, SURVIVED, Evidence, EvidenceStatus, ProofPart
from capsule.core.findings import finding_line
from capsule.core.history import comparable_claim, read_mission
from capsule.core.item import acceptance_criteria
from capsule.core.proven import Proof, last_mutant_evidence, line_of, proof_of, tests_of, words_of
from capsule.core.state import MissionState
from capsule.core.text import shortened
from capsule.core.workflow import Role, Workflow

_MARKS = {
    EvidenceStatus.CONFIRMED: "confirmed",
    EvidenceStatus.REFUTED: "REFUTED",
    EvidenceStatus.UNVERIFIED: "unverified",
    EvidenceStatus.ACCEPTED: "ACCEPTED by a person",
}
_SHOWN_FILES = 20
_OURS = "<!-- capsule "


def open_worklog(template: str, state: MissionState, timestamp: str) -> str:
    """Fill in the worklog template, with a heading for each phase that works or reviews."""
    workflow, item, lineage = state.workflow, state.item, state.lineage
    phases = [phase.name for phase in workflow.phases if phase.role is not Role.ACTION and phase.doer != "do"]
    epic, feature = lineage.epic, lineage.feature
    values = {
        "EPIC_ID": epic.id if epic else "",
        "EPIC_TITLE": epic.title if epic else "",
        "EPIC_GOAL": fenced(epic.description) if epic else "",
        "FEATURE_ID": feature.id if feature else "",
        "FEATURE_TITLE": feature.title if feature else "",
        "FEATURE_GOAL": fenced(feature.description) if feature else "",
        "TASK_ID": item.id,
        "TASK_TITLE": item.title,
        "TASK_DESCRIPTION": fenced(item.description),
        "ACCEPTANCE_CRITERIA": fenced(acceptance_criteria(item)),
        "TIMESTAMP": timestamp,
        "EARLIER_WORK": fenced(state.earlier),
        "PHASES": "\n\n".join(f"### {section_of(workflow, name)}" for name in phases),
    }
    return fill(template, values, source="worklog template")


def section_of(workflow: Workflow, phase: str) -> str:
    """Return the heading of a phase, `Phase 3: execute`: agents' phases are numbered in the order of the workflow."""
    numbered = [p.name for p in workflow.phases if p.doer != "do"]
    return f"Phase {numbered.index(phase) + 1}: {phase}"


def entry(key: str, attempt: int, outcome: Outcome, decision: Decision, at: str, *, answer: str = "") -> str:
    """Write Capsule's own entry: a person's answer before it, the claim, the observation, the next step."""
    reason = _whole(decision.reason) if decision.move in HALTS else _one_line(decision.reason)
    said = reason if decision.move is not Move.ADVANCE else ""
    lines = [
        f"{_OURS}{key} -->",
        f"**{at} · attempt {attempt} · claimed {outcome.signal.verdict.value} · Verdict: {decision.verdict.value}**"
        f" · {outcome.seconds:.1f} s{f' · {outcome.agent}' if outcome.agent else ''}",
        "",
        *([f"- Answered by a person: {_whole(answer)}"] if answer else []),
        f"- Summary: {_one_line(outcome.signal.summary) or 'none'}",
        f"- Files: {_files(outcome.files)}",
        *(_evidence_line(piece) for piece in outcome.evidence),
        *_proven_lines(outcome.evidence),
        *(f"- Finding {finding_line(finding)}" for finding in decision.findings),
        *(f"- Warning: {_one_line(warning)}" for warning in outcome.warnings),
        f"- Next: {_move(decision)}{f' ({said})' if said else ''}",
    ]
    return "\n".join(lines)


def with_entry(worklog: str, section: str, text: str) -> str:
    """Return the worklog with the entry at the end of its section; a section that is missing is added at the end.

    After a crash the same step's entry may be there already: then it is replaced.
    """
    lines = worklog.rstrip("\n").split("\n")
    found = _span(lines, section)
    if found is None:
        return "\n".join([*lines, "", f"### {section}", "", text, ""])
    start, end = found
    body, mark = lines[start + 1 : end], text.partition("\n")[0]
    if mark.startswith(_OURS) and mark in body:  # an entry is a head and a list: it ends before the second empty line
        at = body.index(mark)
        ends = [number for number, line in enumerate(body[at:], at) if not line.strip()][1:2]
        body = body[:at] + (body[ends[0] :] if ends else [])
    while body and not body[-1].strip():
        body.pop()
    return "\n".join([*lines[: start + 1], *body, "", text, "", *lines[end:]]).rstrip("\n") + "\n"


def signed_off(worklog: str, section: str) -> bool:
    """Tell whether the last verdict under this section is PASS. Only for the standalone merge, which has no journal."""
    lines = worklog.split("\n")
    found = _span(lines, section)
    text = "\n".join(lines[found[0] : found[1]]) if found else ""
    verdicts = re.findall(r"[Vv]erdict:?\**\s*:?\s*\**(PASS|NEEDS_WORK|ERROR|REFUTED)\b", text)
    return bool(verdicts) and verdicts[-1] == "PASS"


def summary(events: Sequence[Event]) -> str:
    """Write the summary for the archive: the item, its course, its cost, its location."""
    history = read_mission(events)
    state = history.state
    ended = [(attempt, attempt.ended) for attempt in history.attempts if attempt.ended]
    proof = proof_of(history)
    lines = [
        f"# {state.item.id}: {_one_line(state.item.title)}",
        "",
        f"- Workflow: {state.workflow.name}",
        f"- Started: {history.began or 'unknown'}",
        f"- Base: `{state.base[:12]}` into `{state.into}`",
        *([f"- Merged: `{state.facts['merged'][:12]}`"] if "merged" in state.facts else []),
        *([f"- Stopped at {state.halt.phase}: {_whole(state.halt.reason)}"] if state.halt else []),
        *([f"- Closed as: {state.closed_as}"] if state.closed_as else []),
        *([] if state.policy.test else ["- **Unverified: no test command was known.**"]),
        *([f"- {proof.label.capitalize()}: {_one_line(proof.line)}"] if proof.line else []),
        *(f"- Only said by {each.phase}: {_one_line(each.summary) or 'it passed'}" for each in proof.reviews),
        *_tests_and_mutants(proof.tests, proof),
        "",
        "| phase | attempt | claimed | verdict | seconds | next |",
        "|---|---|---|---|---|---|",
        *(
            f"| {attempt.phase} | {attempt.number} | {attempt.claimed} | {attempt.verdict} "
            f"| {event.outcome.seconds:.1f} | {_move(event.decision)} |"
            for attempt, event in ended
        ),
        "",
        "## Claims against evidence",
        "",
        *(f"- {attempt.key}: {_evidence_line(piece)[2:]}" for attempt, _ in ended for piece in attempt.evidence),
        *(
            f"- {each.phase}: {_one_line(each.claimed)} — {_one_line(each.observed)} — accepted by a person at "
            f"{each.at}, because: {_one_line(each.because)}"
            for each in history.accepted
        ),
        *(f"- Answered by a person at {event.at}: {_whole(event.notes)}" for event in history.notes),
        *(f"- Finding of {phase}: {finding_line(finding)}" for phase, finding in history.findings),
        *(f"- Salvaged: `{ref}` ({why})" for ref, why in history.salvaged.items()),
        *(
            f"- Follow-up noticed by {event.key}: {_one_line(str(what))}"
            for _, event in ended
            for what in _noticed(event)
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _noticed(event: StepEnded) -> Sequence[object]:
    """Return titles of unrelated work, filed or not."""
    given = event.outcome.signal.extra.get("follow_ups", [])
    told = given if isinstance(given, list) else []
    titles = [follow_up.title for follow_up in event.outcome.signal.follow_ups]
    return titles or [each.get("title", "") if isinstance(each, dict) else each for each in told]


def _span(lines: Sequence[str], section: str) -> tuple[int, int] | None:
    """Return the range of a section. The last such heading counts: an item's text above may hold the same words."""
    starts = [n for n, line in enumerate(lines) if line.startswith("#") and line.lstrip("#").strip() == section]
    if not starts:
        return None
    start = starts[-1]
    level = len(lines[start]) - len(lines[start].lstrip("#"))
    closing = re.compile(rf"#{{1,{min(level, 6)}}}\s")
    return start, next((n for n in range(start + 1, len(lines)) if closing.match(lines[n])), len(lines))


def _evidence_line(piece: Evidence) -> str:
    return f"- Evidence: {comparable_claim(piece)} — {_one_line(piece.observed)} — {_MARKS[piece.standing]}"


def _proven_lines(evidence: Sequence[Evidence]) -> list[str]:
    """Describe what a phase proved; new tests are named by the phase where they were red, not again later."""
    words, line = words_of(evidence), line_of(evidence)
    known = {ProofPart.RED, ProofPart.MENDED, ProofPart.KILLS} & words.keys() or not words
    tests = {kind: names for kind, names in tests_of(evidence).items() if known or kind not in ("new", "rewritten")}
    return [*([f"- Proven: {line}"] if line else []), *_tests_and_mutants(tests, last_mutant_evidence(evidence))]


def _tests_and_mutants(tests: Mapping[str, Sequence[str]], tried: Evidence | Proof | None) -> list[str]:
    return [
        *(f"- Tests, {kind}: {_files(names)}" for kind, names in tests.items()),
        *(f"- Not covered: {_one_line(place)}: {NOT_EXECUTED}" for place in (tried.not_covered if tried else ())),
        *(f"- Survived: {_one_line(line)}: {SURVIVED}" for line in (tried.survivors if tried else ())),
    ]


def _files(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    return (", ".join(f"`{_one_line(name)}`" for name in files[:_SHOWN_FILES]) + more) or "none"


def _move(decision: Decision) -> str:
    return f"{decision.move.value}{f' to {decision.back_to}' if decision.back_to else ''}"


def _whole(text: str) -> str:
    return " ".join(text.split())


def _one_line(text: str) -> str:
    return shortened(_whole(text), 300)
