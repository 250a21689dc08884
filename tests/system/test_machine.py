"""How many missions fit: as many as there are processors, and gigabytes free, and no more than four."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule.system import machine


@pytest.mark.promise("jobs.auto")
@pytest.mark.parametrize(("processors", "memory", "jobs"), [(1, 1, 1), (3, 1, 3), (64, 1, 4), (64, 1 << 62, 1)])
def test_as_many_missions_fit_as_processors_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, processors: int, memory: int, jobs: int
) -> None:
    """`memory` is what one mission needs: a byte, or more than any machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(processors)), raising=False)
    monkeypatch.setattr(machine, "_FOR_ONE", memory)
    assert machine.most_jobs() == jobs


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="the system does not say what is free")
def test_what_is_free_is_less_than_there_is() -> None:
    assert 0 < machine.free_memory() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
