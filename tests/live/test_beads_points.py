"""Killed around every call that a claim and a close are made of, with the real bd: as in `tests/crash`."""

from __future__ import annotations

import secrets
from pathlib import Path

from tests.crash.beads_project import ADAPTERS, make_beads_project
from tests.crash.beads_stage import check_complete, check_killed_alone, check_killed_in_a_row, make_stage


def test_killed_around_every_call_of_a_claim_and_a_close_it_ends_the_same(any_bd: Path, tmp_path: Path) -> None:
    template, mark = tmp_path / "template", secrets.token_hex(8)
    make_beads_project(template, any_bd)
    stages = {
        adapter: make_stage(adapter, template, tmp_path / adapter, mark, any_bd, moment=0.1) for adapter in ADAPTERS
    }
    check_complete(stages)
    check_killed_in_a_row(stages, template, mark)
    check_killed_alone(stages, mark)
