"""Pictures of screens, compared with those that were looked at and found good.

`CAPSULE_UPDATE_GOLDENS=1 pytest tests/screens` writes them anew; then look at them, and at what `git diff` says.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from textual.app import App

SNAPSHOTS = Path(__file__).parent / "snapshots"
_UPDATE = bool(os.environ.get("CAPSULE_UPDATE_GOLDENS"))
"""Asked when this is imported: tests run without any setting of ours."""
_DRAWN_ID = re.compile(r"terminal-\d+")
_FONTS_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def assert_golden(name: str, text: str, folder: Path = SNAPSHOTS) -> None:
    file = folder / name
    if _UPDATE:
        folder.mkdir(exist_ok=True)
        file.write_text(text)
        return
    how = "CAPSULE_UPDATE_GOLDENS=1 writes it anew"
    assert file.exists(), f"there is no {file.name} yet: {how}"
    same = text == file.read_text()  # two long texts side by side say nothing
    assert same, f"{file.name} looks different now: {how}; then look at it"


def picture(app: App[Any]) -> str:
    """What is on the screen as SVG, the same on every machine, and asking for nothing from any other."""
    drawn = _FONTS_FROM_ELSEWHERE.sub("", app.export_screenshot(title="capsule", simplify=True))
    drawn = drawn.replace("font-family: Fira Code", "font-family: ui-monospace, Menlo, Consolas")
    return "\n".join(line.rstrip() for line in _DRAWN_ID.sub("terminal", drawn).splitlines()) + "\n"


def lines_of(app: App[Any]) -> list[str]:
    """What is on the screen as text."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]
