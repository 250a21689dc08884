"""What every tracker promises, kept by the real bd of each era."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from capsule.adapters import Tracker
from capsule.core.item import Item
from tests.contracts.bd_projects import real
from tests.contracts.tracker_suite import TrackerContract
from tests.live.conftest import real_bd
from tests.live.install import BD


class RealBd(TrackerContract):
    version: ClassVar[str]

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        return real(folder, items, real_bd(cls.version).parent)


class TestSqliteEra(RealBd):
    version = "0.47.1"


class TestDoltEra(RealBd):
    version = "1.0.5"


def test_every_version_that_is_built_is_held_to_it() -> None:
    assert {TestSqliteEra.version, TestDoltEra.version} == set(BD)
