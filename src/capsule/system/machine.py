"""Measure what this machine has room for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_MOST = 4
_FOR_ONE = 1 << 30
"""Bytes of memory for one mission: an agent, and the tests that it runs."""
_UNKNOWN = 1 << 62
_CGROUPS = "/sys/fs/cgroup"
_MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""The limit of a group and what it uses, in the second version of cgroups and the first."""


def most_jobs() -> int:
    """Return how many missions fit: one for each processor and each free gigabyte, from 1 to 4."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # on systems with CPU affinity
        processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, _MOST, free_memory() // _FOR_ONE))


def free_memory() -> int:
    """Return how many bytes are free, or could be at once; a very large number if the system does not report it.

    A container, or any other cgroup with a limit, may have less than the machine.
    """
    return min([_free_on_machine(), *map(_free_in, _groups())])


def _free_on_machine() -> int:
    with suppress(OSError, ValueError), Path("/proc/meminfo").open(encoding="ascii") as rows:
        found = dict(row.split(":") for row in rows)
        return int(found["MemAvailable"].split()[0]) << 10
    return _UNKNOWN


def _groups() -> Iterator[Path]:
    """Yield the folders of the groups that limit this process, its own and those above it."""
    with suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = row.split(":", 2)
            if controllers in ("", "memory"):
                own = Path(_CGROUPS, controllers, path.lstrip("/"))
                yield from (own, *list(own.parents)[: len(own.parts) - len(Path(_CGROUPS, controllers).parts)])


def _free_in(group: Path) -> int:
    """Return what a group has left; files that are only kept in memory can be dropped."""
    for limit, used in _MEMORY_FILES:
        with suppress(OSError, ValueError):
            most, now = int((group / limit).read_text()), int((group / used).read_text())
            kept = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
            return max(0, most - now + int(kept.get("inactive_file", 0)))
    return _UNKNOWN
