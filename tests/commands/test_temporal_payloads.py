"""With a key, the server keeps nothing that can be read, and nothing that others wrote is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from temporalio.api.common.v1 import Payload

from capsule.temporal.converter import data_converter
from capsule.temporal.messages import Asked

KEY, OTHER = b"k" * 32, b"o" * 32
ASKED = Asked("WRK-001", notes="between us")


def written(key: bytes | None) -> list[Payload]:
    return asyncio.run(data_converter(key).encode([ASKED]))


def read(payloads: Sequence[Payload], key: bytes | None) -> object:
    return asyncio.run(data_converter(key).decode(payloads, [Asked]))[0]


@pytest.mark.promise("machines.sealed")
def test_what_is_sent_is_read_with_the_key_only() -> None:
    [sealed] = written(KEY)
    assert b"between us" not in sealed.SerializeToString()
    assert read([sealed], KEY) == ASKED
    with pytest.raises(ValueError, match="another key"):
        read([sealed], OTHER)


@pytest.mark.promise("machines.sealed")
def test_what_was_not_sealed_is_refused_where_there_is_a_key() -> None:
    with pytest.raises(ValueError, match="not encrypted"):
        read(written(None), KEY)
