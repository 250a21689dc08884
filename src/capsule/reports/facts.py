"""Missions and reports for programs: JSON objects. null is unknown, or not there yet; it is never zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from capsule.core.budget import as_facts
from capsule.core.by_agent import AgentRecord
from capsule.core.decide import HALTS, SETBACKS
from capsule.core.history import Attempt, MissionSummary
from capsule.core.merges import MergeRecord
from capsule.core.proven import proof_of
from capsule.core.report import Report
from capsule.reports.questions import question_facts
from capsule.reports.words import acceptance, exam

VERSION = 1


def mission_facts(summary: MissionSummary, root: Path) -> dict[str, Any]:
    """Return what `capsule show --json` prints."""
    state = summary.state
    waits = [wait for attempt in summary.attempts for wait in attempt.waits]
    return {
        "mission": summary.mission,
        "item": {"id": state.item.id, "title": summary.title, "closed": state.item_closed},
        "workflow": summary.workflow,
        "base": summary.base,
        "into": summary.into,
        "state": summary.status,
        "status": summary.condition,
        "standing": summary.sentence,
        "pid": summary.pid,
        "merged": summary.merged or None,
        "verify": state.policy.verify,
        "test": state.policy.test or None,
        "proof": _proof(summary),
        "to_do": list(state.to_do),
        "attempts": [_shown_attempt(attempt) for attempt in summary.attempts if not attempt.repeated],
        "spent": as_facts(summary.spent_with_parts),
        "waited": [{"key": w.key, "kind": w.failure.kind.value, "seconds": w.seconds} for w in waits],
        "feedback": summary.feedback,
        "findings": _findings(summary),
        "accepted": [msgspec.to_builtins(each) for each in summary.accepted],
        "exam": exam(summary.state),
        "salvaged": [{"ref": ref, "why": why} for ref, why in summary.salvaged.items()],
        "warnings": list(summary.warnings),
        "places": places(summary.mission, root),
        "next": summary.next,
        "events": summary.events,
    }


def _shown_attempt(attempt: Attempt) -> dict[str, Any]:
    known = {"key": attempt.key, "phase": attempt.phase, "attempt": attempt.number, "agent": attempt.agent or None}
    if attempt.ended is None:
        return {**known, "verdict": None}
    outcome, decision = attempt.ended.outcome, attempt.ended.decision
    return {
        **known,
        "claimed": attempt.claimed,
        "verdict": attempt.verdict,
        "move": decision.move.value,
        "reason": decision.reason,
        "seconds": round(outcome.seconds, 3),
        "ended": attempt.ended.at,
        "summary": attempt.summary,
        "files": list(outcome.files),
        "usage": msgspec.to_builtins(outcome.usage) if outcome.usage else None,
        "failure": msgspec.to_builtins(outcome.failure) if outcome.failure else None,
        "evidence": [msgspec.to_builtins(piece) for piece in outcome.evidence],
        "warnings": list(outcome.warnings),
    }


def _proof(summary: MissionSummary) -> dict[str, Any]:
    """Keep the proof apart from mere claims."""
    proof = proof_of(summary)
    return {"line": proof.line, **msgspec.to_builtins(proof)}


def _findings(summary: MissionSummary) -> list[dict[str, Any]]:
    return [{"phase": phase, **msgspec.structs.asdict(finding)} for phase, finding in summary.findings]


def places(mission: str, root: Path) -> dict[str, str]:
    """Return the existing paths of a mission's worktree and logs."""
    home = root / ".capsule"
    known = {"worktree": "worktrees", "under way": "missions", "papers": "logs"}
    return {what: str(home / name / mission) for what, name in known.items() if (home / name / mission).is_dir()}


# ---- capsule report --json


def agent_facts(report: Report) -> dict[str, Any]:
    """Return what `capsule report --by agent --json` prints."""
    return {**_head(report), "agents": [_agent(each) for each in report.agents]}


def _head(report: Report) -> dict[str, Any]:
    return {"v": VERSION, "project": report.project, "title": report.title, "as_of": report.as_of}


def _agent(record: AgentRecord) -> dict[str, Any]:
    rates = {name: getattr(record, name) for name in ("refuted_rate", "first_pass_rate", "usd_per_merged")}
    return {
        **msgspec.structs.asdict(record),
        "model": record.model or None,
        **{name: None if rate is None else round(rate, 4) for name, rate in rates.items()},
        "spending": as_facts(record.spending),
    }


def report_facts(report: Report) -> dict[str, Any]:
    totals, run = report.totals, report.run
    rate = totals.first_pass_rate
    return {
        **_head(report),
        "run": {
            "name": run.stream.lstrip("_"),
            "began": run.began,
            "ended": run.ended.at if run.ended else "",
            "why": run.ended.why if run.ended else "",
            "exit_code": run.ended.exit_code if run.ended else None,
            "spawns": run.spawns,
            "missions": run.all_missions,
        }
        if run
        else None,
        "totals": {
            **msgspec.structs.asdict(totals),
            "first_pass_rate": None if rate is None else round(rate, 4),
            "spending": as_facts(totals.spending),
        },
        "questions": [question_facts(each) for each in report.questions],
        "agents": [_agent(each) for each in report.agents],
        "missions": [_mission(each) for each in report.missions],
        "merges": [_merge_queue(each) for each in report.merges],
    }


def _merge_queue(record: MergeRecord) -> dict[str, Any]:
    return {
        "branch": record.branch,
        "passages": [
            {
                "mission": one.mission,
                "came": one.came,
                "ended": one.ended,
                "waited_seconds": round(one.waited, 3),
                "seconds": round(one.seconds, 3),
                "result": one.result.name.lower(),
                "with": list(one.together),
                "why": one.why or None,
            }
            for one in record.passages
        ],
        "tested": [
            {**msgspec.structs.asdict(one), "missions": list(one.missions), "commit": one.commit or None}
            for one in record.tested
        ],
    }


def _mission(summary: MissionSummary) -> dict[str, Any]:
    plain = ("mission", "title", "workflow", "base", "into", "parent", "as_of", "began", "starts")
    diff = summary.diff
    return {
        **{name: getattr(summary, name) for name in plain},
        "ended": summary.ended or None,
        "state": summary.status,
        "status": summary.condition,
        "standing": summary.sentence,
        "unverified": summary.unverified or None,
        "merged": summary.merged or None,
        "proof": _proof(summary),
        "first_pass": summary.first_pass if summary.at_an_end else None,
        "sent_back": summary.sent_back,
        "refuted": summary.refuted,
        "wall_seconds": summary.wall_seconds,
        "busy_seconds": round(summary.busy_seconds, 3),
        "waited_seconds": round(summary.waited_seconds, 3),
        "spending": as_facts(summary.spent),
        "with_parts": as_facts(summary.spent_with_parts),
        "attempts": [_attempt(summary, attempt) for attempt in summary.attempts],
        "feedback": [msgspec.structs.asdict(each) for each in summary.rounds],
        "findings": _findings(summary),
        "diff": {
            "note": diff.note,
            "added": diff.added,
            "removed": diff.removed,
            "files": [msgspec.structs.asdict(file) for file in diff.files],
        },
        "warnings": list(summary.warnings),
        "accepted": [acceptance(each) for each in summary.accepted],
        "exam": exam(summary.state),
        "salvaged": [f"{ref} ({why})" for ref, why in summary.salvaged.items()],
        "parts": [_mission(part) for part in summary.parts],
    }


def _attempt(summary: MissionSummary, attempt: Attempt) -> dict[str, Any]:
    """Keep claims and evidence in separate fields."""
    outcome = attempt.ended.outcome if attempt.ended else None
    decision, stages = attempt.decision, {phase.name: phase.stage for phase in summary.state.workflow.phases}
    fed_back = decision is not None and decision.move in (*SETBACKS, *HALTS)
    return {
        "key": attempt.key,
        "phase": attempt.phase,
        "stage": stages.get(attempt.phase) or attempt.phase,
        "number": attempt.number,
        "how": attempt.how,
        "seconds": attempt.seconds,
        "reason": decision.reason if decision else "",
        "files": outcome.files if outcome else (),
        "warnings": outcome.warnings if outcome else (),
        "agent": attempt.agent or None,
        "model": attempt.model or None,
        "began": attempt.began or None,
        "ended": (None if attempt.under_way else attempt.until) or None,
        "verdict": attempt.verdict or None,
        "move": decision.move.value if decision else None,
        "back_to": (decision.back_to if decision else "") or None,
        "feedback": (decision.feedback if decision and fed_back else "") or None,
        "failure": attempt.failure or None,
        "said": {
            "claimed": attempt.claimed or None,
            "summary": attempt.summary,
            "files_changed": list(outcome.signal.files_changed) if outcome else [],
            "made_for_it": outcome.signal.synthetic if outcome else False,
        },
        "checked": [msgspec.structs.asdict(piece) for piece in attempt.evidence],
        "usage": msgspec.structs.asdict(outcome.usage) if outcome and outcome.usage else None,
        "waits": [
            {"began": w.at, "seconds": w.seconds, "kind": w.failure.kind.value, "reason": w.failure.reason}
            for w in attempt.waits
        ],
    }
