"""The grid of faults, by the four real CLIs: what happened, cost counted, budget held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.clis import CLIS, SUBSCRIBED
from tests.live.faults import FAULTS, Ran, assert_nothing_was_lost, assert_the_budget_held, cost_of, play, told
from tests.live.grid_page import cells

QUICK = {
    ("429 with retry-after", "claude"),
    ("limit for five hours", "claude"),
    ("context too long", "claude"),
    ("reset mid-stream", "codex"),
    ("quota", "codex"),
    ("limit for five hours", "codex"),
    ("tool loop", "gemini"),
    ("401", "gemini"),
    ("refusal", "opencode"),
}
"""A cross-section for `make live`; `make tables` has the rest."""
CELLS = [
    pytest.param(name, cli, id=f"{name}-{cli}", marks=() if (name, cli) in QUICK else pytest.mark.soak)
    for name in FAULTS
    for cli in CLIS
]


@pytest.mark.promise("agents.faults")
@pytest.mark.parametrize(("name", "cli"), CELLS)
def test_what_a_fault_leads_to_is_as_the_page_says(name: str, cli: str, tmp_path: Path) -> None:
    driven = SUBSCRIBED if (name, cli) == ("limit for five hours", "claude") else CLIS[cli]
    cell = play(driven, name, tmp_path)
    assert told(name, cell.free) == cells("Faults")[name, cli], cell.free
    assert_the_budget_held(name, cell)
    assert_nothing_was_lost(cell)


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (300, "counted to the last answer but one"),
        (200, "counted to the last answer but one"),
        (250, "0.5 answers not counted"),
        (100, "2 answers not counted"),
        (350, "counted, torn answers too"),
    ],
)
def test_of_an_endless_fault_exactly_one_answer_may_be_on_its_way(counted: int, words: str) -> None:
    mission = {"spent": {"tokens": counted}}
    ran = Ran(2, "it timed out", starts=1, asked=3, billed=(100, 100, 100), mission=mission, kept="main")
    assert cost_of("tool loop", ran) == words
