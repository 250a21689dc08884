"""Tell the kind of failure from the error messages of CLIs and their providers.

Most CLIs hand on what the provider said, with a status code in it or without. The message comes first: it knows more
than the code (a 429 may mean a spent budget, a 400 a key that is not valid or a prompt that is too long). Specific
phrases stand before vague ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from capsule.agents._stream import shortened
from capsule.core.failure import Failure, Kind
from capsule.system.process import Ended

_LONGEST_WAIT = timedelta(hours=6)
"""A limit that ends later than this is reported to a person instead of waited for."""

_PHRASES: tuple[tuple[str, Kind], ...] = (
    (r"context.window|context.length|context_length|contextoverflow|input token count|input_too_large", Kind.CONTEXT),
    (r"prompt is too long|maximum number of tokens|413 payload", Kind.CONTEXT),
    (r"content.?filter|usage policy|flagged|blocked due to safety|prohibited", Kind.REFUSAL),
    (r"max_output_tokens|max session turns|turnlimited", Kind.CUT_SHORT),
    (r"api key not valid|incorrect api key|invalid.{0,4}api.{0,2}key|unauthenticated|unauthorized", Kind.AUTH),
    (r"missing environment variable|not logged in|log ?in again|token.{0,40}(expired|revoked|refresh)", Kind.AUTH),
    (r"must specify the \w+ environment variable|set an auth method|default credentials|forbidden", Kind.AUTH),
    (r"invalid auth method|no api key|api key is missing|loadapikeyerror|providerautherror", Kind.AUTH),
    (r"daily quota|quota exceeded|insufficient.?(quota|credit|balance|fund)|billing hard limit", Kind.QUOTA),
    (r"(exceeded your current quota)(?!.*retry (in|after))|credit balance|payment required", Kind.QUOTA),
    (
        r"rate.?limit|too many requests|resource.{0,12}exhausted|usage limit|exceeded your current quota",
        Kind.RATE_LIMIT,
    ),
    (r"overloaded|high demand|at capacity|service unavailable|internal server error|bad gateway", Kind.OVERLOAD),
    (r"stream (disconnected|ended|closed)|fetch failed|connection|network|econn|socket|terminated$", Kind.CONNECTION),
    (
        r"model.{0,40}not.{0,8}found|no such model|unknown (argument|option|flag)|unexpected argument",
        Kind.CONFIGURATION,
    ),
    (r"error loading config|modelnotfound|trusted directory|invalid configuration", Kind.CONFIGURATION),
)
_BEFORE_IT_BEGINS = (Kind.AUTH, Kind.CONFIGURATION, Kind.CONTEXT)
_STATUS = re.compile(r"(?:status:?|code\D{0,3}) ?([45]\d\d)\b")
_STATUSES = {
    **{401: Kind.AUTH, 402: Kind.QUOTA, 403: Kind.AUTH},
    **{408: Kind.CONNECTION, 413: Kind.CONTEXT, 429: Kind.RATE_LIMIT},
}
_CLASSES = {4: Kind.CONFIGURATION, 5: Kind.OVERLOAD}
_LATER = "It should pass by itself."
_HINTS: Mapping[Kind, str] = {
    Kind.CONTEXT: "Make the item smaller, or the prompt shorter.",
    Kind.REFUSAL: "Put the item into other words, or name another model.",
    Kind.CUT_SHORT: "Make the item smaller, or raise the limit in the CLI's own settings.",
    Kind.QUOTA: "Add credit, or use another key or agent, then run the same command again.",
    Kind.RATE_LIMIT: _LATER,
    Kind.OVERLOAD: _LATER,
    Kind.CONNECTION: "Check the network, the proxy and the address of the provider.",
}
_SPAN = r"(\d+(?:\.\d+)?) ?(ms|milli|[smhd])[a-z]*"
_PAUSE = re.compile(rf"(?:try again|retry)(?: in| after) ((?:{_SPAN}[, and]*)+)", re.IGNORECASE)
_PART = re.compile(_SPAN, re.IGNORECASE)
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HEADERS = (("retry-after-ms", 0.001), ("retry-after", 1.0))
_MOMENT = re.compile(r"try again at (?:(\w{3} \d+)(?:st|nd|rd|th), (\d{4}) )?(\d+:\d\d [AP]M)", re.IGNORECASE)


def classify(
    name: str,
    said: str,
    hints: Mapping[Kind, str],
    *,
    status: int | None = None,
    headers: Mapping[str, object] | None = None,
    now: datetime | None = None,
) -> Failure:
    """Turn an agent's error message into a Failure; `hints` are the adapter's own hints.

    `headers` are those of the provider's answer, where the CLI hands them on.
    """
    kind, pause = kind_of(said, status), _asked_for(headers or {}) or _pause(said, now or datetime.now())
    if kind is Kind.RATE_LIMIT and pause is not None and pause > _LONGEST_WAIT:
        kind = Kind.QUOTA
    waits = pause.total_seconds() if pause is not None and kind in (Kind.RATE_LIMIT, Kind.OVERLOAD) else None
    return Failure(kind, f"{name}: {shortened(said)}", hints.get(kind, _HINTS.get(kind, "")), waits)


def startup_failure(name: str, stderr: str, ended: Ended, hints: Mapping[Kind, str]) -> Failure | None:
    """Explain why a CLI printed no event, by the first known line of stderr.

    Anything may stand there, and a wrapper may be in the CLI's place: only what must stop the run counts.
    """
    if ended.why != "exited" or not ended.exit_code:
        return None
    found = (line.strip() for line in stderr.splitlines() if kind_of(line) in _BEFORE_IT_BEGINS)
    line = next(found, "")
    return classify(name, line, hints) if line else None


def kind_of(said: str, status: int | None = None) -> Kind:
    """Return the kind of failure by phrases in the message, then by its status code."""
    words = said.lower()
    for phrase, kind in _PHRASES:
        if re.search(phrase, words):
            return kind
    found = _STATUS.search(words)
    code = status or (int(found[1]) if found else 0)
    return _STATUSES.get(code) or _CLASSES.get(code // 100, Kind.CRASH)


def _asked_for(headers: Mapping[str, object]) -> timedelta | None:
    """Return the seconds to wait from the headers of an answer; dates are ignored."""
    for name, unit in _HEADERS:
        value = str(headers.get(name, ""))
        if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
            return timedelta(seconds=float(value) * unit)
    return None


def _pause(said: str, now: datetime) -> timedelta | None:
    """Return how long the provider asks us to wait: as a span, or until a moment of local time."""
    span, moment = _PAUSE.search(said), _MOMENT.search(said)
    try:
        if span:
            parts = _PART.findall(span[1].lower())
            return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
        if not moment:
            return None
        day, year, clock = moment.groups()
        date = datetime.strptime(f"{day} {year}", "%b %d %Y") if day else now
        at = datetime.combine(date, datetime.strptime(clock, "%I:%M %p").time())
        tomorrow = timedelta(days=0 if day or at >= now else 1)  # without a day, the next time the clock shows this
        return max(timedelta(), at + tomorrow - now)
    except OverflowError:  # longer than any calendar
        return timedelta.max
    except ValueError:
        return None
