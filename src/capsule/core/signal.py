"""Read what an agent claims when it stops: the signal contract, and the result contract of the change workflow.

Both end in one `Signal`. An answer that breaks its contract becomes a synthetic signal whose feedback names the fault,
so that no caller has to handle an exception or a missing claim. Shape is judged strictly, content leniently: a required
key must be there, but feedback that is a list instead of a text is kept as the JSON it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from capsule.core.json_scan import last_object
from capsule.core.text import without_controls

SYNTHETIC_SUMMARY: Final = "Phase did not produce a signal"
SHOWN_OF_A_BAD_VALUE: Final = 200


class Verdict(StrEnum):
    """The verdict on a phase. The first six are claims; REFUTED and SKIPPED are ours."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    MORE = "MORE"
    NEEDS_WORK = "NEEDS_WORK"
    FAILED = "FAILED"
    BLOCKED = "BLOCKED"
    ERROR = "ERROR"
    REFUTED = "REFUTED"
    SKIPPED = "SKIPPED"


class FollowUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unrelated work that an agent noticed."""

    title: str
    context: str = ""
    suggested_size: str = ""
    suggested_risk: str = ""


class RemarkStatus(StrEnum):
    """The answer to a finding. A reviewer says the first three, a worker `resolved` or `declined`."""

    OPEN = "open"
    RESOLVED = "resolved"
    WITHDRAWN = "withdrawn"
    DECLINED = "declined"
    NONE = ""


class Remark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finding as an agent sends it: something to be done, or an answer to one that has an id."""

    id: str = ""
    """The id that Capsule gave it in an earlier round."""
    text: str = ""
    file: str = ""
    status: RemarkStatus = RemarkStatus.NONE
    reverses: str = ""
    """The id of the finding that this one asks for the opposite of."""

    @property
    def asks(self) -> bool:
        return self.status in (RemarkStatus.OPEN, RemarkStatus.NONE)


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim. `synthetic` means that Capsule made it, because the agent's own could not be read."""

    verdict: Verdict
    feedback: str = ""
    files_changed: tuple[str, ...] = ()
    summary: str = ""
    extra: dict[str, object] = {}
    synthetic: bool = False
    block_type: str = ""
    requires_human_review: bool = False
    assessments: dict[str, str] = {}
    follow_ups: tuple[FollowUp, ...] = ()
    duplicate_of: str = ""
    already_done: bool = False
    findings: tuple[Remark, ...] = ()

    @property
    def closes(self) -> bool:
        """Tell whether it says that there is nothing to do."""
        return bool(self.duplicate_of or self.already_done)


def error_signal(reason: str) -> Signal:
    """Return the signal of a phase that gave none."""
    return Signal(verdict=Verdict.ERROR, feedback=reason, summary=SYNTHETIC_SUMMARY, synthetic=True)


# --- the signal contract --------------------------------------------------------------------------------------------

SIGNAL_FIELDS: Final = ("status", "feedback", "files_changed", "summary")
STATUSES: Final = {verdict.value: verdict for verdict in (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.ERROR)}


def read_signal(data: bytes) -> Signal:
    """Return the signal in an agent's output, or a synthetic ERROR that names the fault; quoted ones do not count."""
    found = last_object(data, quoted=False)
    if found is None:
        return error_signal("No signal JSON found in phase output")
    if fault := _missing(found, SIGNAL_FIELDS):
        return error_signal(fault)
    verdict, files = STATUSES.get(_text(found["status"])), found["files_changed"]
    if verdict is None:
        return error_signal(f"Invalid status value: {_shown(found['status'])} (must be PASS, NEEDS_WORK, or ERROR)")
    if not isinstance(files, list):
        return error_signal("files_changed must be an array")
    return Signal(
        verdict=verdict,
        feedback=_text(found["feedback"]),
        files_changed=tuple(map(_text, files)),
        summary=_text(found["summary"]),
        extra=_others(found, SIGNAL_FIELDS),
        follow_ups=_follow_ups(found),
        findings=_findings(found),
    )


def signal_object(signal: Signal) -> dict[str, object]:
    """Return the signal as its contract writes it: the four fields, then the agent's other keys."""
    fields: dict[str, object] = {
        "status": signal.verdict.value,
        "feedback": signal.feedback,
        "files_changed": list(signal.files_changed),
        "summary": signal.summary,
    }
    return fields | _others(signal.extra, SIGNAL_FIELDS)


def signal_json(signal: Signal) -> str:
    """Return one line that is safe to print: no control characters, and valid UTF-8."""
    return re.sub(_UNPRINTABLE, _escaped, _compact(signal_object(signal)))


# --- the result contract --------------------------------------------------------------------------------------------

RESULT_FIELDS: Final = ("item_id", "phase", "result", "summary")
RESULTS: Final = {
    "PHASE_COMPLETE": Verdict.PASS,
    "SUBPHASE_COMPLETE": Verdict.MORE,
    "FAILED": Verdict.FAILED,
    "BLOCKED": Verdict.BLOCKED,
}
OPTIONAL_RESULT_FIELDS: Final = (
    *("context", "block_type", "blocked_type", "requires_human_review", "updated_assessments", "follow_ups"),
    *("duplicate_of", "already_done", "findings"),
)
_SIZES, _DEGREES = ("small", "medium", "large"), ("low", "medium", "high")
ASSESSED: Final = {"size": _SIZES, "complexity": _DEGREES, "risk": _DEGREES, "impact": _DEGREES}
BLOCK_TYPES: Final = ("clarification", "decision")
DEFAULT_BLOCK_TYPE: Final = "clarification"


def read_result(data: bytes, item_id: str, phase: str) -> Signal:
    """Return the result that an agent left for this item and phase, or a synthetic FAILED that names the fault."""
    found = last_object(data)
    if found is None:
        return no_result("No result JSON found")
    if fault := _missing(found, RESULT_FIELDS):
        return no_result(fault)
    for field, expected in (("item_id", item_id), ("phase", phase)):
        if _text(found[field]).strip().casefold() != expected.casefold():
            return no_result(f"Result is for {field} {_shown(found[field])}, not {expected}")
    verdict = RESULTS.get(_word(found["result"]).upper())
    if verdict is None:
        known = ", ".join(RESULTS)
        return no_result(f"Invalid result value: {_shown(found['result'])} (must be one of {known})")
    blocked = verdict is Verdict.BLOCKED
    summary, context = _text(found["summary"]), _text(found.get("context"))
    asked = _word(found.get("block_type")) or _word(found.get("blocked_type"))
    block_type = asked if asked in BLOCK_TYPES else DEFAULT_BLOCK_TYPE
    return Signal(
        verdict=verdict,
        feedback=context or (summary if blocked else ""),
        summary=summary,
        extra=_others(found, RESULT_FIELDS + OPTIONAL_RESULT_FIELDS),
        block_type=block_type if blocked else "",
        requires_human_review=_flag(found.get("requires_human_review")),
        assessments=_assessments(found.get("updated_assessments")),
        follow_ups=_follow_ups(found),
        duplicate_of=_text(found.get("duplicate_of")).strip(),
        already_done=_flag(found.get("already_done")),
        findings=_findings(found),
    )


def damage(data: bytes) -> str:
    """Say how a result file is damaged as a whole; '' if it is text with a complete object."""
    cut_off = f"cut off after {len(data)} bytes"
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as fault:
        return cut_off if fault.reason == "unexpected end of data" else "not UTF-8 text"
    if not text:
        return "empty"
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as fault:
        ends_early = fault.pos >= len(text) or not text.endswith("}")
        return cut_off if text.startswith("{") and ends_early else ""
    except RecursionError:
        return ""
    return ""


def no_result(reason: str) -> Signal:
    """Return the signal for an agent that left no result file."""
    return Signal(verdict=Verdict.FAILED, feedback=reason, summary="Phase did not produce a result", synthetic=True)


def _assessments(value: object) -> dict[str, str]:
    """Keep the levels that are in the vocabulary."""
    given = value if isinstance(value, dict) else {}
    return {name: level for name, levels in ASSESSED.items() if (level := _word(given.get(name))) in levels}


def _follow_ups(found: Mapping[str, object]) -> tuple[FollowUp, ...]:
    """Read follow-ups; drop those without a title."""
    read = []
    listed = found.get("follow_ups")
    for value in listed if isinstance(listed, list) else ():
        given = value if isinstance(value, dict) else {"title": value}
        title = given.get("title")
        if isinstance(title, str) and _text(title).strip():
            levels = _assessments({"size": given.get("suggested_size"), "risk": given.get("suggested_risk")})
            context, size, risk = _text(given.get("context")), levels.get("size", ""), levels.get("risk", "")
            read.append(FollowUp(_text(title).strip(), context, suggested_size=size, suggested_risk=risk))
    return tuple(read)


_TEXTS: Final = ("text", "title", "finding", "description", "message")
_ANSWERS: Final = {status.value: status for status in RemarkStatus}


def _findings(found: Mapping[str, object]) -> tuple[Remark, ...]:
    """Read findings, objects or plain strings; drop what has neither words nor an id."""
    listed = found.get("findings")
    given = (
        each if isinstance(each, dict) else {"text": each} for each in (listed if isinstance(listed, list) else ())
    )
    read = (
        Remark(
            id=_word(each.get("id")).upper(),
            text=next((said for key in _TEXTS if (said := _stripped(each.get(key)))), ""),
            file=_stripped(each.get("file")),
            status=_ANSWERS.get(_word(each.get("status")).removeprefix("still").strip(" _-"), RemarkStatus.NONE),
            reverses=_word(each.get("reverses")).upper(),
        )
        for each in given
    )
    return tuple(remark for remark in read if remark.id or remark.text)


# --- reading loosely typed values -----------------------------------------------------------------------------------


def _missing(found: Mapping[str, object], required: tuple[str, ...]) -> str:
    absent = next((field for field in required if field not in found), None)
    return f"Missing required field: {absent}" if absent else ""


def _others(found: Mapping[str, object], known: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in found.items() if name not in known}


def _text(value: object) -> str:
    """Return a string without control characters, None as empty, anything else as JSON."""
    if isinstance(value, str):
        return without_controls(value)
    return "" if value is None else without_controls(_compact(value))


def _word(value: object) -> str:
    """Return a value from a fixed vocabulary, in any capitalisation."""
    return _text(value).strip().lower() if isinstance(value, str) else ""


def _stripped(value: object) -> str:
    return _text(value).strip() if isinstance(value, str) else ""


def _flag(value: object) -> bool:
    return value is True or _word(value) in {"true", "yes"}


def _shown(value: object) -> str:
    """Shorten a bad value for a message."""
    shown = without_controls(value if isinstance(value, str) else _compact(value))
    return shown if len(shown) <= SHOWN_OF_A_BAD_VALUE else shown[:SHOWN_OF_A_BAD_VALUE] + "…"


# JSON escapes the first 32 control characters by itself. These would still steer a terminal or break a line.
_UNPRINTABLE = "[\x7f-\x9f\u2028\u2029\ud800-\udfff]"
"""Compiled on first use, and cached by `re`, like all patterns that few missions need."""


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{0xFFFD if 0xD800 <= code <= 0xDFFF else code:04x}"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
