"""TDD missions in which something goes wrong, by the real codex, offline."""

from __future__ import annotations

import json
from pathlib import Path

from tests.live.missions import DISHONEST, SCRIPT, SENT_BACK_ONCE, fly, killed_in_the_middle
from tests.live.model_server import Fail, Mission, Outage, turns
from tests.live.test_codex_table import CODEX


def test_an_agent_that_claims_what_is_not_so_is_caught_and_its_work_merged_when_it_is_done(tmp_path: Path) -> None:
    flown = fly(CODEX, DISHONEST, tmp_path, SANDBOX="off", EVIDENCE__MUTANTS="3")
    flown.assert_merged_and_green(DISHONEST)
    assert flown.shown.count("REFUTED") >= 2


def test_an_outage_costs_time_and_no_attempt(tmp_path: Path) -> None:
    script = Outage(Fail(429, "slow down"), then=Mission(SCRIPT, SENT_BACK_ONCE))
    flown = fly(CODEX, SENT_BACK_ONCE, tmp_path, script=script, SANDBOX="off")
    flown.assert_merged_and_green(SENT_BACK_ONCE)
    assert len(json.loads(flown.shown)["waited"]) == 1


def test_a_key_that_is_refused_stops_the_run_and_leaves_the_item_where_it_was(tmp_path: Path) -> None:
    flown = fly(CODEX, SENT_BACK_ONCE, tmp_path, script=turns(Fail(401, "invalid key")), SANDBOX="off")
    assert flown.run.returncode == 2
    assert "codex login" in flown.run.stderr
    shown = json.loads(flown.shown)
    assert (shown["status"], shown["to_do"][0]) == ("interrupted", "test-writer")
    assert list(flown.survivors) == []


def test_nothing_survives_a_capsule_that_is_killed(tmp_path: Path) -> None:
    assert killed_in_the_middle(CODEX, tmp_path, SANDBOX="off")
