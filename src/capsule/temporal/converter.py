"""Payloads as JSON by msgspec, encrypted if there is a key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
)

KEY_VARIABLE = "CAPSULE_TEMPORAL_KEY"
"""The variable with the key that payloads are encrypted with: 32 bytes, as 64 hexadecimal digits."""
_SEALED = b"binary/capsule-aes-gcm"
_NONCE = 12


class _MsgspecConverter(EncodingPayloadConverter):
    """Structs of `messages.py` as JSON; their type comes from the signature that takes them."""

    @property
    def encoding(self) -> str:
        return "json/capsule"

    def to_payload(self, value: Any) -> Payload | None:
        return Payload(metadata={"encoding": b"json/capsule"}, data=msgspec.json.encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return msgspec.json.decode(payload.data, type=type_hint or Any)


class CapsulePayloads(CompositePayloadConverter):
    """Ours first; plain JSON is what the server's own tools send."""

    def __init__(self) -> None:
        super().__init__(_MsgspecConverter(), JSONPlainPayloadConverter())


class Sealed(PayloadCodec):
    """Encrypt payloads with AES-GCM: the server keeps, and its operator sees, only that."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - optional: only with a key

        self._cipher = AESGCM(key)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._sealed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._opened(payload) for payload in payloads]

    def _sealed(self, payload: Payload) -> Payload:
        nonce = os.urandom(_NONCE)
        data = nonce + self._cipher.encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": _SEALED}, data=data)

    def _opened(self, payload: Payload) -> Payload:
        """Refuse what somebody without the key wrote: a worker would do it."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - optional: only with a key

        if payload.metadata.get("encoding") != _SEALED:
            raise ValueError(f"A message is not encrypted, and {KEY_VARIABLE} is set: give every machine the same key.")
        try:
            return Payload.FromString(self._cipher.decrypt(payload.data[:_NONCE], payload.data[_NONCE:], None))
        except InvalidTag:
            raise ValueError(f"A message is encrypted with another key than {KEY_VARIABLE}.") from None


def data_converter(key: bytes | None = None) -> DataConverter:
    """Return how payloads are written, encrypted if there is a key."""
    return DataConverter(payload_converter_class=CapsulePayloads, payload_codec=Sealed(key) if key else None)
