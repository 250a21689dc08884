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


@pytest.mark.promise("jobs.auto")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("limit", "left"), [("3", 2), ("max", 1 << 62)])
def test_a_container_may_have_less_than_the_machine(tmp_path: Path, version: int, limit: str, left: int) -> None:
    """Of three gigabytes two are used, and one of those is files that can be dropped."""
    for name, gigabytes in zip(machine._MEMORY_FILES[2 - version], (limit, "2"), strict=True):
        (tmp_path / name).write_text(f"{int(gigabytes) << 30 if gigabytes.isdecimal() else gigabytes}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 30}\n")
    assert machine._free_in(tmp_path) == (left << 30 if left < 1 << 62 else left)


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="there are no cgroups")
def test_the_groups_that_limit_us_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [row.split(":", 2) for row in Path("/proc/self/cgroup").read_text().splitlines()]
    controllers = next(each for _, each, _ in rows if each in ("", "memory"))
    monkeypatch.setattr(machine, "_CGROUPS", str(tmp_path))
    top = tmp_path / controllers
    top.mkdir(exist_ok=True)
    for name, content in {"memory.max": 7 << 30, "memory.current": (7 << 30) - 5, "memory.stat": "anon 1"}.items():
        (top / name).write_text(str(content))
    assert machine.free_memory() == 5
