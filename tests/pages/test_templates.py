"""Templates escape whatever they are given, and none can forget it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from capsule.core.proven import Proof
from capsule.pages.environment import HERE, environment, macro

TEMPLATES = sorted((HERE / "templates").glob("*.html"))
NASTY = '"><script>alert(1)</script>\x1b[31m\u202e&'


@pytest.mark.promise("screens.report")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_lets_markup_through(path: Path) -> None:
    """Nor has it a script, a style or a handler of its own: pages forbid them."""
    text = path.read_text()
    assert re.findall(r"\|\s*safe\b|autoescape|<script(?! src=)|\sstyle=|\son\w+=|https?:", text) == []


@pytest.mark.promise("screens.report")
def test_text_that_no_filter_was_asked_for_is_escaped_and_cannot_steer() -> None:
    said = environment().from_string('<i title="{{ text }}">{{ text }}</i>').render(text=NASTY)
    assert said == '<i title="{0}">{0}</i>'.format("&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;")


def test_what_stands_between_backticks_is_code_and_still_text() -> None:
    said = environment().from_string("{{ text | ticked }}").render(text="`a<b` is <red>")
    assert said == "<code>a&lt;b</code> is &lt;red&gt;"


def test_a_part_can_be_drawn_by_itself() -> None:
    assert macro("parts.html", "tiles", [("cost", "$1", NASTY)]).count("<script>") == 0
    assert "<dt>cost</dt><dd>$1</dd>" in macro("parts.html", "tiles", [("cost", "$1", "")])


def test_tests_are_named_by_what_became_of_them() -> None:
    proof = Proof(proven=("red by name (1 new)",), tests={"new": ("test_a[<1>]",)}, survivors=("`a > b` in pay.py",))
    drawn = macro("evidence.html", "proof", proof)
    assert 'new tests <span class="soft">(1)</span>' in drawn
    assert "<li><code>test_a[&lt;1&gt;]</code></li>" in drawn
    assert "<li><code>a &gt; b</code> in pay.py: every test still passes</li>" in drawn
