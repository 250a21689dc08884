"""Find secrets in text and take them out, also where the text arrives in pieces.

Overlapping secrets are covered together: replacing only the one found first would leave a piece of the other.
 Of a stream, only what could be the beginning of a secret is held back; the rest goes on at
once. What is held back may already be covered by a secret: then it is only kept to be compared with
what follows,
 and `_covered` says how much of it has its mark already.

The supervisor uses this, so nothing is imported that would slow its start, `typing` included.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import AnyStr

Span = tuple[int, int]

MARK = "[redacted]"


def spans(text: AnyStr, secrets: Sequence[AnyStr], covered: int = 0) -> list[Span]:
    """Return where secrets are, overlaps joined; the first `covered` characters count as one."""
    found = [(0, covered)] if covered else []
    for secret in secrets:
        at = text.find(secret)
        while at >= 0:
            found.append((at, at + len(secret)))
            at = text.find(secret, at + 1)
    joined: list[Span] = []
    for start, stop in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def without(text: AnyStr, secrets: Sequence[AnyStr], mark: AnyStr) -> AnyStr:
    """Return the text with a mark in the place of each secret; the same object where there is none."""
    found = spans(text, secrets)
    return _marked(text, found, mark, len(text)) if found else text


class SecretFilter:
    """Filters one stream of bytes in pieces; `occurs` may be a faster test for a secret in a piece."""

    def __init__(self, secrets: Sequence[bytes], occurs: Callable[[bytes, bytes], bool] = bytes.__contains__) -> None:
        self._secrets = secrets
        self._occurs = occurs
        self._held = b""
        self._covered = 0

    def through(self, piece: bytes) -> bytes:
        """Return what may go on now."""
        text = self._held + piece if self._held else piece
        occurs = self._covered or any(self._occurs(text, secret) for secret in self._secrets)
        found = spans(text, self._secrets, self._covered) if occurs else []
        # Hold back the longest end of the text that could go on as a secret.
        end = min((_start_of(secret, text) for secret in self._secrets), default=len(text))
        out = _marked(text, found, MARK.encode(), end, already=bool(self._covered)) if found else text[:end]
        self._held = text[end:]
        has_its_mark = 1 if self._covered and end == 0 else end  # whatever begins before that
        self._covered = max([0, *(stop - end for start, stop in found if start < has_its_mark)])
        return out

    def rest(self) -> bytes:
        """Return what was held back, at the end of the stream; half a secret or more is not shown."""
        text, covered = self._held, self._covered
        self._held, self._covered = b"", 0
        too_much = any(secret.startswith(text) and len(secret) <= 2 * len(text) for secret in self._secrets)
        found = [(0, len(text))] if too_much else spans(text, self._secrets, covered)
        return _marked(text, found, MARK.encode(), len(text), already=bool(covered))


def _start_of(secret: bytes, text: bytes) -> int:
    at = text.find(secret[:1], max(0, len(text) - len(secret) + 1))
    while at >= 0 and not secret.startswith(text[at:]):
        at = text.find(secret[:1], at + 1)
    return at if at >= 0 else len(text)


def _marked(text: AnyStr, found: list[Span], mark: AnyStr, end: int, *, already: bool = False) -> AnyStr:
    """Return the text up to `end`, with marks; `already`: the first stretch, at the very beginning, has its mark."""
    pieces: list[AnyStr] = []
    at = 0
    for start, stop in found:
        if start < end:
            pieces += [text[at:start], mark[:0] if already and start == 0 else mark]
            at = min(stop, end)
    pieces.append(text[at:end])
    return mark[:0].join(pieces)
