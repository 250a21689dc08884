"""Say what this machine has room for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MOST = 4
_FOR_ONE = 1 << 30
"""Bytes of memory for one mission: an agent, and the tests that it runs."""


def most_jobs() -> int:
    """Return how many missions fit: one for each processor and each free gigabyte, from 1 to 4."""
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # where a process can be kept from some of them
        processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, _MOST, free_memory() // _FOR_ONE))


def free_memory() -> int:
    """Return how many bytes are free, or could be at once; very many where the system does not say."""
    with suppress(OSError, ValueError), Path("/proc/meminfo").open(encoding="ascii") as rows:
        found = dict(row.split(":") for row in rows)
        return int(found["MemAvailable"].split()[0]) << 10
    return 1 << 62
