"""What the real bd says now is what was recorded; tests/contracts holds the fake to the recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.fake_bd.script import RECORDINGS, program, recorded, run
from tests.live.install import cache

_CACHE = cache()  # before any test changes the environment


@pytest.mark.parametrize("version", sorted(file.stem for file in RECORDINGS.glob("*.json")))
def test_the_real_bd_says_what_was_recorded(version: str, tmp_path: Path) -> None:
    bd = _CACHE / f"bd-{version}" / "bd"
    if not bd.exists():
        pytest.skip(f"bd {version} is not installed: `make live` builds the two that are pinned")
    said = {answer.name: answer for answer in run(program(bd), version, tmp_path)}
    real = recorded(version)
    assert list(said) == [answer.name for answer in real]
    assert [said[answer.name] for answer in real if said[answer.name] != answer] == []
