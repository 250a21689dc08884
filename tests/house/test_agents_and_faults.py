"""The page about agents and faults has a cell for each, so that tests/live can hold it to what it says."""

from __future__ import annotations

from itertools import product

import pytest

from tests.live.clis import CLIS
from tests.live.faults import FAULTS
from tests.live.grid_page import cells
from tests.live.test_mission_grid import SANDBOXES, WORKFLOWS

MISSIONS = [", ".join(row) for row in product(WORKFLOWS, SANDBOXES)]


@pytest.mark.parametrize(("title", "rows"), [("Missions", MISSIONS), ("Faults", list(FAULTS))])
def test_each_row_says_what_each_cli_comes_to(title: str, rows: list[str]) -> None:
    assert list(cells(title)) == list(product(rows, CLIS))
    assert all(cells(title).values())
