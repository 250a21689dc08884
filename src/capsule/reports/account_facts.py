"""An account for programs: one JSON object. null is unknown, or not there yet; it is never zero."""

from __future__ import annotations

from typing import Any

import msgspec

from capsule.core.account import AttemptAccount, Diff, MissionAccount
from capsule.core.budget import as_facts
from capsule.core.run_account import RunAccount, Totals

VERSION = 1


def facts(account: RunAccount) -> dict[str, Any]:
    return {
        "v": VERSION,
        "project": account.project,
        "title": account.title,
        "as_of": account.as_of,
        "run": msgspec.structs.asdict(account.run) if account.run else None,
        "totals": _totals(account.totals),
        "missions": [_mission(each) for each in account.missions],
    }


def _totals(totals: Totals) -> dict[str, Any]:
    rate = totals.first_pass_rate
    return {
        **msgspec.structs.asdict(totals),
        "first_pass_rate": None if rate is None else round(rate, 4),
        "spending": as_facts(totals.spending),
    }


def _mission(account: MissionAccount) -> dict[str, Any]:
    plain = ("mission", "title", "workflow", "base", "into", "parent", "as_of", "began", "starts")
    return {
        **{name: getattr(account, name) for name in plain},
        "ended": account.ended or None,
        "status": account.where.word,
        "standing": account.where.sentence,
        "unverified": account.where.unverified or None,
        "merged": account.merged or None,
        "first_pass": account.first_pass if account.at_an_end else None,
        "sent_back": account.sent_back,
        "refuted": account.refuted,
        "wall_seconds": account.wall_seconds,
        "busy_seconds": round(account.busy_seconds, 3),
        "waited_seconds": round(account.waited_seconds, 3),
        "spending": as_facts(account.spending),
        "with_parts": as_facts(account.whole_spending),
        "attempts": [_attempt(attempt) for attempt in account.attempts],
        "feedback": [msgspec.structs.asdict(each) for each in account.rounds],
        "diff": _diff(account.diff),
        "warnings": list(account.warnings),
        "salvaged": list(account.salvaged),
        "parts": [_mission(part) for part in account.parts],
    }


def _attempt(attempt: AttemptAccount) -> dict[str, Any]:
    """What the agent says, and what was checked, each in a place of its own."""
    plain = ("key", "phase", "stage", "number", "how", "seconds", "reason", "files", "warnings")
    ours = ("agent", "model", "began", "ended", "verdict", "move", "back_to", "feedback", "failure")
    said = {
        "claimed": attempt.claimed or None,
        "summary": attempt.summary,
        "files_changed": list(attempt.files_claimed),
        "made_for_it": attempt.spoken_for,
    }
    return {
        **{name: getattr(attempt, name) for name in plain},
        **{name: getattr(attempt, name) or None for name in ours},
        "said": said,
        "checked": [msgspec.structs.asdict(piece) for piece in attempt.evidence],
        "usage": msgspec.structs.asdict(attempt.usage) if attempt.usage else None,
        "waits": [msgspec.structs.asdict(pause) for pause in attempt.waits],
    }


def _diff(diff: Diff) -> dict[str, Any]:
    return {
        "note": diff.note,
        "added": diff.added,
        "removed": diff.removed,
        "files": [msgspec.structs.asdict(file) for file in diff.files],
    }
