"""Whole missions by the four real CLIs: from an item to main, in two workflows, in bubblewrap and without."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from tests.live.clis import CLIS, in_a_sandbox
from tests.live.grid_page import cells
from tests.live.missions import RECEIPT, SENT_BACK_ONCE, Flown, fly, fly_backlog

WORKFLOWS, SANDBOXES = ("tdd", "backlog"), ("bubblewrap", "none")
QUICK = {
    ("tdd", "bubblewrap", "claude"),
    ("tdd", "none", "codex"),
    ("backlog", "bubblewrap", "codex"),
    ("tdd", "none", "gemini"),
    ("backlog", "none", "opencode"),
}
"""A cross-section for `make live`; `make tables` has the rest."""
CELLS = [
    pytest.param(
        *cell,
        id="-".join(cell),
        marks=[
            *([pytest.mark.sandboxed] if cell[1] == "bubblewrap" else []),
            *([] if cell in QUICK else [pytest.mark.soak]),
        ],
    )
    for cell in product(WORKFLOWS, SANDBOXES, CLIS)
]


@pytest.mark.promise("agents.live")
@pytest.mark.parametrize(("workflow", "sandbox", "cli"), CELLS)
def test_a_mission_comes_to_main_and_its_cost_is_counted(
    workflow: str, sandbox: str, cli: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    driven, path, level = CLIS[cli], "", "off"
    if sandbox == "bubblewrap":
        driven, path, level = in_a_sandbox(driven), str(request.getfixturevalue("bubblewrap").parent), "required"
    if workflow == "tdd":
        flown = fly(driven, SENT_BACK_ONCE, tmp_path, path=path, SANDBOX=level)
        flown.assert_merged_and_green(SENT_BACK_ONCE)
        assert "NEEDS_WORK" in flown.shown
    else:
        flown = fly_backlog(driven, tmp_path, path=path, SANDBOX=level)
        flown.assert_committed_and_green(RECEIPT)
        assert flown.shown.count("REFUTED") >= 1
    assert _told(flown) == cells("Missions")[f"{workflow}, {sandbox}", cli]


def _told(flown: Flown) -> str:
    spent, answers = json.loads(flown.shown)["spent"], flown.model.billed
    assert spent["tokens"] == sum(answers), (spent, answers)
    return "merged; tokens and dollars counted" if spent["usd"] else "merged; tokens counted"
