"""tools/pose.py FILE STEP... -- WORD...: runs `capsule WORD...` on a screen of its own, and draws that into FILE.

It is the command itself, on a terminal; only where its screen would be drawn there, it is kept. A step is `see:PATTERN`
(wait until the screen shows it), `press:KEY`, `draw`, `draw:NAME` (beside FILE, in every size, dark and light), or
`film` (draw every moment up to its end, as one picture that moves). After the last one the command goes on to its own
end.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from html import unescape
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

from capsule.cli import main
from capsule.core.errors import CapsuleError
from capsule.tui.app import CapsuleApp
from capsule.tui.themes import DARK, LIGHT

sys.path.insert(0, str(Path(__file__).parent))
from film import Frame, drawn_line, film

SIZE = (120, 32)
SIZES = ((80, 24), (120, 40), (200, 60))
PATIENCE = 120.0
_LOOK = 0.2
_FONTS_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def follow(pilot: Pilot[object], title: str, steps: list[str], file: Path) -> None:
    for step in steps:
        kind, _, what = step.partition(":")
        if kind == "see":
            await _until_seen(pilot.app, what)
        elif kind == "press":
            await pilot.press(what)
        elif kind == "film":
            file.write_text(await _filmed(pilot.app, title), encoding="utf-8")
        elif what:
            await _draw_in_every_size(pilot, title, file.with_name(what))
        else:
            await _settle(pilot)
            file.write_text(_drawn(pilot.app, title), encoding="utf-8")


async def _settle(pilot: Pilot[object]) -> None:
    await pilot.pause()
    await pilot.pause()  # what was laid out anew is drawn


async def _draw_in_every_size(pilot: Pilot[object], title: str, file: Path) -> None:
    for theme in (DARK, LIGHT):
        pilot.app.theme = theme.name
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await asyncio.sleep(_LOOK)
            await _settle(pilot)
            name = f"{file.name}-{width}x{height}-{theme.name.removeprefix('capsule-')}.svg"
            file.with_name(name).write_text(_drawn(pilot.app, title), encoding="utf-8")
    pilot.app.theme = DARK.name
    await pilot.resize_terminal(*SIZE)


async def _filmed(app: App[object], title: str) -> str:
    """Look a few times a second; what only ticks on the way is no frame of its own."""
    frames: list[Frame] = []
    still, began = 0, time.monotonic()
    while app.is_running and app.screen_stack:
        strips = app.screen._compositor.render_strips()
        lines = tuple(drawn_line(strip) for strip in strips)
        now = time.monotonic() - began
        if not frames or lines[1:] != frames[-1].lines[1:]:  # the first line has the clock
            frames.append(Frame(now, lines))
            if any("REFUTED" in line for line in lines) and any("fails" in line for line in lines):
                still = len(frames) - 1
        await asyncio.sleep(_LOOK)
    return film(title, frames, SIZE[0], still=still)


async def _until_seen(app: App[object], pattern: str) -> None:
    for _ in range(round(PATIENCE * 10)):
        if re.search(pattern, unescape(re.sub(r"<[^>]+>", "", _drawn(app))).replace("\xa0", " ")):
            return
        await asyncio.sleep(0.1)
    raise CapsuleError(f"The screen never showed {pattern!r}.", "Look at the steps in tools/pictures.")


def _drawn(app: App[object], title: str = "") -> str:
    picture = _FONTS_FROM_ELSEWHERE.sub("", app.export_screenshot(title=title))
    return picture.replace("font-family: Fira Code", "font-family: ui-monospace, Menlo, Consolas").rstrip() + "\n"


def pose(file: Path, title: str, steps: list[str]) -> None:
    async def pilot_of(pilot: Pilot[object]) -> None:
        await follow(pilot, title, steps, file)

    drawn_elsewhere = App.run
    CapsuleApp.run = lambda self: drawn_elsewhere(self, headless=True, size=SIZE, auto_pilot=pilot_of)  # type: ignore


if __name__ == "__main__":
    at = sys.argv.index("--")
    words = sys.argv[at + 1 :]
    pose(Path(sys.argv[1]), f"capsule {' '.join(words)}", sys.argv[2:at])
    sys.exit(main(words))
