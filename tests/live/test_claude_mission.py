"""TDD missions in which something goes wrong, by the real claude, offline."""

from __future__ import annotations

import json
from pathlib import Path

from capsule.agents.claude import OWN_RETRIES
from tests.live.missions import DISHONEST, SCRIPT, SENT_BACK_ONCE, fly, killed_in_the_middle
from tests.live.model_server import Fail, Mission, Outage, turns
from tests.live.test_claude_table import CLAUDE


def test_an_agent_that_claims_what_is_not_so_is_caught_and_its_work_merged_when_it_is_done(tmp_path: Path) -> None:
    flown = fly(CLAUDE, DISHONEST, tmp_path, SANDBOX="off", EVIDENCE__MUTANTS="3")
    flown.assert_merged_and_green(DISHONEST)
    assert flown.shown.count("REFUTED") >= 2


def test_an_outage_costs_time_and_no_attempt(tmp_path: Path) -> None:
    overloaded = [Fail(529, "Overloaded")] * (OWN_RETRIES + 1)
    script = Outage(*overloaded, then=Mission(SCRIPT, SENT_BACK_ONCE))
    flown = fly(CLAUDE, SENT_BACK_ONCE, tmp_path, script=script, SANDBOX="off")
    flown.assert_merged_and_green(SENT_BACK_ONCE)
    assert "529 Overloaded" in flown.run.stderr
    assert len(json.loads(flown.shown)["waited"]) == 1


def test_a_key_that_is_refused_stops_the_run_and_leaves_the_item_where_it_was(tmp_path: Path) -> None:
    flown = fly(CLAUDE, SENT_BACK_ONCE, tmp_path, script=turns(Fail(401, "invalid x-api-key")), SANDBOX="off")
    assert flown.run.returncode == 2
    assert "set ANTHROPIC_API_KEY" in flown.run.stderr
    shown = json.loads(flown.shown)
    assert (shown["status"], shown["to_do"][0]) == ("interrupted", "test-writer")
    assert list(flown.survivors) == []


def test_nothing_survives_a_capsule_that_is_killed(tmp_path: Path) -> None:
    assert killed_in_the_middle(CLAUDE, tmp_path, SANDBOX="off")
