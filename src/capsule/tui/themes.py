"""The two themes, dark and light: Textual's own, with readable colours on all our backgrounds."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import BUILTIN_THEMES

DARK = replace(
    BUILTIN_THEMES["textual-dark"],
    name="capsule-dark",
    variables={"block-cursor-background": "#005fa8", "text-error": "#eba3b2", "warning-muted": "#4a3315"},
)
LIGHT = replace(
    BUILTIN_THEMES["textual-light"],
    name="capsule-light",
    foreground="#141414",
    variables={
        "text-success": "#1b5a30",
        "text-warning": "#6b4208",
        "text-accent": "#0a4a7a",
    },
)
