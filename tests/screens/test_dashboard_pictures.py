"""The dashboard as it looks: seven situations at two sizes, compared with pictures that were looked at."""

from __future__ import annotations

import pytest

from .boards import SCENES
from .stage import LARGE, SMALL, Play, looks_as, play

pytestmark = pytest.mark.slow

KEYS = {
    "idle": (),
    "busy": ("j", "j"),
    "blocked": ("j", "j"),
    "failing": ("j", "j", "enter"),
    "finished": ("4",),
    "forty": ("3", "j"),
    "merging": ("5", "j", "j"),
}
"""How one gets to what is looked at."""


@pytest.mark.promise("screens.keys")
@pytest.mark.parametrize("name", SCENES)
def test_the_dashboard_looks_as_it_should(name: str) -> None:
    async def act(on: Play) -> None:
        await on.press(*KEYS[name])
        for width, height in (SMALL, LARGE):
            await on.pilot.resize_terminal(width, height)
            await on.until(lambda width=width: on.app.screen.size.width == width)  # type: ignore[misc]
            await looks_as(f"dashboard-{name}-{width}x{height}.svg", on.pilot)

    play(SCENES[name](), act)
