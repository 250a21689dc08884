"""Keep secrets out of everything that is stored or shown: one `Redactor`, used at every sink."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from capsule.core.secret_filter import MARK, without

T = TypeVar("T")


class Redactor:
    """Replace every spelling of every secret; without secrets, return what is given."""

    def __init__(self, spellings: Iterable[str] = ()) -> None:
        self.spellings = tuple(spellings)
        self._bytes = tuple(spelling.encode(errors="surrogateescape") for spelling in self.spellings)

    def text(self, text: str) -> str:
        return without(text, self.spellings, MARK)

    def data(self, data: bytes) -> bytes:
        return without(data, self._bytes, MARK.encode())

    def event(self, event: T) -> T:
        """Redact the texts of an event or any other struct; return the same object where nothing changed.

        Only texts are looked at, never the encoded form: a secret of digits must not break a number, nor one
        that ends in an n the end of a line.
        """
        redacted: T = self._value(event) if self.spellings else event
        return redacted

    def _value(self, value: Any) -> Any:
        if type(value) is str:
            return self.text(value)
        if isinstance(value, msgspec.Struct):
            old = {name: getattr(value, name) for name in value.__struct_fields__}
            new = {name: self._value(part) for name, part in old.items()}
            return value if new == old else msgspec.structs.replace(value, **new)
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        if isinstance(value, dict):
            return {key: self._value(part) for key, part in value.items()}
        return value
