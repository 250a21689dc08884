"""Words can be read on every ground that they stand on: a contrast of at least 4.5, in both themes and in the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.color import Color
from textual.constants import DIM_FACTOR
from textual.theme import Theme

import capsule.tui
from capsule.pages.environment import HERE
from capsule.tui.drawing import STYLES
from capsule.tui.themes import DARK, LIGHT

LEAST = 4.5
CURSORS = ("block-cursor-background", "block-cursor-blurred-background")
TONES = ("good", "bad", "warn", "live", "quiet")


def contrast(one: Color, other: Color) -> float:
    """As WCAG counts it."""

    def luminance(colour: Color) -> float:
        parts = [part / 255 for part in (colour.r, colour.g, colour.b)]
        red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def colour_on(ground: Color, said: str) -> Color:
    """What is seen: `auto 87%` is black or white, and what is not opaque lets the ground through."""
    if said.startswith("auto"):
        return ground + ground.get_contrast_text(float(said.removeprefix("auto").strip(" %") or 100) / 100)
    return ground + Color.parse(said)


@pytest.mark.promise("screens.contrast")
@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_every_colour_of_a_screen_can_be_read_on_every_ground(theme: Theme) -> None:
    variables = {**theme.to_color_system().generate(), **theme.variables}
    page = Color.parse(variables["background"])
    css = Path(capsule.tui.__file__).with_name("capsule.tcss").read_text()
    named = {*re.findall(r"[{;\s]background: \$([\w-]+)", css), "background"}
    assert {"panel", "surface", "warning-muted", *CURSORS} <= named
    plain = variables["foreground"]
    inks = {name.lstrip("$"): variables[name.lstrip("$")] for name in STYLES.values() if name.startswith("$")}
    found: dict[str, float] = {}
    for name in named - {*CURSORS}:
        ground = page + Color.parse(variables[name])
        for ink, said in {**inks, "foreground": plain}.items():
            found[f"{ink} on {name}"] = contrast(colour_on(ground, said), ground)
        found[f"dim on {name}"] = contrast(ground.blend(Color.parse(plain), DIM_FACTOR), ground)
    focused, blurred = (page + Color.parse(variables[name]) for name in CURSORS)
    found["cursor"] = contrast(colour_on(focused, variables["block-cursor-foreground"]), focused)
    found["cursor elsewhere"] = contrast(colour_on(blurred, plain), blurred)
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < LEAST} == {}


@pytest.mark.promise("screens.contrast")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_the_page_can_be_read_on_every_ground(theme: str) -> None:
    css = (HERE / "report.css").read_text()
    light, _, dark = css.partition("prefers-color-scheme: dark")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", light if theme == "light" else dark))
    pairs = [(ink, ground) for ink in ("ink", "soft", "live") for ground in ("page", "card", "track")]
    pairs += [(tone, ground) for tone in ("good", "bad", "warn") for ground in ("page", "card")]  # signs
    pairs += [(tone, f"{tone}-bg") for tone in TONES] + [("ink", "warn-bg")]
    code = ("ink", "word", "string", "name", "quiet", "soft")
    pairs += [(ink, ground) for ink in code for ground in ("card", "good-bg", "bad-bg")]
    ratios = {pair: contrast(Color.parse(colours[pair[0]]), Color.parse(colours[pair[1]])) for pair in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < LEAST} == {}
