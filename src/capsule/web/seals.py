"""Proof that a form is ours: the seal of its session, and an id that counts once.

An id is a random word with its signature, so forms that are only viewed need no memory. For sent ones the result is
kept: sent again, a form leads there and does nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

MOST_REMEMBERED = 10_000
"""The most forms that a session may send; out of reach by hand."""


@dataclass
class Seals:
    """Of one session."""

    seal: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _sent: OrderedDict[str, str] = field(default_factory=OrderedDict, repr=False)

    def form_id(self) -> str:
        word = secrets.token_urlsafe(12)
        return f"{word}.{self._signature(word)}"

    def is_ours(self, seal: str, form_id: str) -> bool:
        word, _, signature = form_id.partition(".")
        good = hmac.compare_digest(seal.encode(errors="replace"), self.seal.encode())
        return good and hmac.compare_digest(signature.encode(errors="replace"), self._signature(word).encode())

    @property
    def used_up(self) -> bool:
        return len(self._sent) >= MOST_REMEMBERED

    def sent(self, form_id: str) -> str | None:
        """Return where the form led when it was sent before; None if it was not."""
        return self._sent.get(form_id)

    def remember(self, form_id: str, led_to: str) -> None:
        self._sent[form_id] = led_to

    def _signature(self, word: str) -> str:
        return hmac.new(self._key, word.encode(errors="replace"), hashlib.sha256).hexdigest()[:32]
