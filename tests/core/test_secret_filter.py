"""Secrets in a stream: found wherever the pieces are cut, and nothing else is touched or kept waiting."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest

from capsule.core.secret_filter import MARK, SecretFilter, spans, without


def sieved(secrets: list[str], pieces: list[str]) -> str:
    sieve = SecretFilter([secret.encode() for secret in secrets])
    return (b"".join(sieve.through(piece.encode()) for piece in pieces) + sieve.rest()).decode()


def test_a_secret_is_replaced_and_the_rest_is_not() -> None:
    assert without("a hunter22 b", ["hunter22"], MARK) == "a [redacted] b"


def test_without_any_the_same_object_comes_back() -> None:
    text = "nothing to hide"
    assert without(text, ["hunter22"], MARK) is text


def test_where_two_overlap_nothing_of_either_is_left() -> None:
    assert without("<xxxxabcdyyyy>", ["xxxxabcd", "abcdyyyy"], MARK) == "<[redacted]>"


def test_one_inside_another_is_one() -> None:
    assert spans("<abcdefgh>", ["cdef", "abcdefgh"]) == [(1, 9)]


@pytest.mark.parametrize("cut", range(1, 18))
def test_a_secret_cut_in_two_is_found(cut: int) -> None:
    text = "pass hunter2222 ok"
    assert sieved(["hunter2222"], [text[:cut], text[cut:]]) == "pass [redacted] ok"


def test_a_secret_that_comes_byte_by_byte_is_found() -> None:
    assert sieved(["hunter2222"], list("-hunter2222-")) == "-[redacted]-"


def test_what_cannot_be_the_beginning_of_a_secret_goes_on_at_once() -> None:
    assert SecretFilter([b"hunter2222"]).through(b"progress: 10 %\r") == b"progress: 10 %\r"


def test_what_could_be_one_waits_and_goes_on_when_it_is_none() -> None:
    sieve = SecretFilter([b"hunter2222"])
    assert sieve.through(b"the hunt") == b"the "
    assert sieve.through(b"ing season") == b"hunting season"


def test_at_the_end_a_little_of_a_secret_is_shown_and_half_of_one_is_not() -> None:
    assert sieved(["hunter2222"], ["say hu"]) == "say hu"
    assert sieved(["hunter2222"], ["say hunte"]) == "say [redacted]"


def test_a_short_secret_at_the_end_that_could_become_a_longer_one_is_not_shown() -> None:
    assert sieved(["hunter22", "hunter22hunter22hunter22"], ["say hunter22"]) == "say [redacted]"


def test_an_endless_run_of_overlapping_secrets_is_not_kept() -> None:
    sieve = SecretFilter([b"aaaaaaaa"])
    out = b"".join(sieve.through(b"a" * 1000) for _ in range(100))
    assert len(sieve._held) < 8
    assert b"a" not in out.replace(MARK.encode(), b"")


def test_however_a_text_is_cut_the_result_is_the_same() -> None:
    """Short secrets over two letters, so that every way of overlapping and of beginning anew occurs."""
    chance = random.Random(4)
    for _ in range(4000):
        secrets = ["".join(chance.choices("ab", k=chance.randint(2, 6))) for _ in range(chance.randint(1, 3))]
        text = "".join(chance.choices("abc", k=chance.randint(0, 40))) + "c"
        cuts = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randint(0, 9))))
        pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
        marks_joined = re.sub(r"(\[redacted\])+", MARK, sieved(secrets, pieces))
        assert marks_joined == without(text, secrets, MARK), (secrets, pieces)
