"""What providers say in plain words, and what it means."""

from __future__ import annotations

from datetime import datetime

import pytest

from capsule.agents._provider_errors import classify, kind_of
from capsule.core.failure import Kind

NOW = datetime(2030, 3, 17, 16, 46)


@pytest.mark.promise("agents.retry-times")
@pytest.mark.parametrize(
    ("said", "kind", "resets_in"),
    [
        ("rate limit reached. Please try again in 11.05s.", Kind.RATE_LIMIT, 11.05),
        ("Rate limit: try again in 350ms", Kind.RATE_LIMIT, 0.35),
        ("You've hit your usage limit. Try again at 5:46 PM.", Kind.RATE_LIMIT, 3600.0),
        ("You've hit your usage limit. Try again at Mar 17th, 2030 5:46 PM.", Kind.RATE_LIMIT, 3600.0),
        ("You've hit your usage limit. Try again at Mar 21st, 2030 5:46 PM.", Kind.QUOTA, None),
        ("You've hit your usage limit. Try again at 4:45 PM.", Kind.QUOTA, None),
        ("You've hit your usage limit. Try again at 99:99 PM.", Kind.RATE_LIMIT, None),
        ("Rate limit reached. Please try again in 99999999999999s.", Kind.QUOTA, None),
        (f"Rate limit reached. Please try again in {'9' * 400}h.", Kind.QUOTA, None),
        ("You've hit your usage limit.", Kind.RATE_LIMIT, None),
        ("You've hit your usage limit. Try again in 2 hours 5 minutes.", Kind.RATE_LIMIT, 7500.0),
        ("You've hit your usage limit. Try again in 1 minute and 30 seconds.", Kind.RATE_LIMIT, 90.0),
        ("You've hit your usage limit. Try again in 3 days 4 hours.", Kind.QUOTA, None),
    ],
)
def test_a_limit_is_waited_for_where_it_is_lifted_soon(said: str, kind: Kind, resets_in: float | None) -> None:
    failure = classify("cli", said, {}, now=NOW)
    assert (failure.kind, failure.resets_in) == (kind, resets_in)


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [
        ("something", 401, Kind.AUTH),
        ("something", 402, Kind.QUOTA),
        ("something", 429, Kind.RATE_LIMIT),
        ("something", 503, Kind.OVERLOAD),
        ("something", 400, Kind.CONFIGURATION),
        ("something", None, Kind.CRASH),
        ("unexpected status 502 Whatever", None, Kind.OVERLOAD),
        ("insufficient_quota", 429, Kind.QUOTA),
        ("maximum context length is 8192 tokens", 400, Kind.CONTEXT),
        ("API key not valid", 400, Kind.AUTH),
    ],
)
def test_words_know_more_than_a_status(said: str, status: int | None, kind: Kind) -> None:
    assert kind_of(said, status) is kind


def test_the_adapters_hint_comes_before_the_general_one() -> None:
    assert classify("cli", "quota exceeded", {Kind.QUOTA: "Pay."}).hint == "Pay."
    assert "credit" in classify("cli", "quota exceeded", {}).hint


@pytest.mark.promise("agents.retry-times")
@pytest.mark.parametrize(
    ("headers", "kind", "resets_in"),
    [
        ({"retry-after": "30"}, Kind.RATE_LIMIT, 30.0),
        ({"retry-after": "30", "retry-after-ms": "1500"}, Kind.RATE_LIMIT, 1.5),
        ({"retry-after": "604800"}, Kind.QUOTA, None),
        ({"retry-after": "Wed, 21 Oct 2030 07:28:00 GMT"}, Kind.RATE_LIMIT, None),
        ({"retry-after": 30}, Kind.RATE_LIMIT, 30.0),
        ({"retry-after": "9" * 400}, Kind.RATE_LIMIT, None),
    ],
)
def test_the_headers_of_an_answer_say_how_long(headers: dict[str, object], kind: Kind, resets_in: float | None) -> None:
    failure = classify("cli", "Too many requests", {}, status=429, headers=headers, now=NOW)
    assert (failure.kind, failure.resets_in) == (kind, resets_in)
