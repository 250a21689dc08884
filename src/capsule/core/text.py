"""Words of strangers, fit to be handed on."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    """Line ends and tabs stay. A NUL could go into no command line, and the rest only steers terminals."""
    return _CONTROL.sub("", text)
