"""A whole TDD mission by the real gemini, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.missions import SENT_BACK_ONCE, fly
from tests.live.test_gemini_table import GEMINI


@pytest.mark.promise("agents.live")
def test_a_mission_with_a_review_that_sends_work_back_is_merged_and_green(tmp_path: Path) -> None:
    flown = fly(GEMINI, SENT_BACK_ONCE, tmp_path, SANDBOX="off")
    flown.assert_merged_and_green(SENT_BACK_ONCE)
    assert "NEEDS_WORK" in flown.shown


@pytest.mark.sandboxed
def test_the_same_in_a_sandbox(tmp_path: Path, bubblewrap: Path) -> None:
    flown = fly(GEMINI, SENT_BACK_ONCE, tmp_path, path=str(bubblewrap.parent), SANDBOX="required")
    flown.assert_merged_and_green(SENT_BACK_ONCE)
