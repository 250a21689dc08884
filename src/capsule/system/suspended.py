"""Processes that are suspended, by Ctrl-Z or SIGSTOP: they keep their locks, and go on once somebody continues them."""

from __future__ import annotations

from pathlib import Path

_STOPPED = ("T", "t")


def is_suspended(pid: int) -> bool:
    """Tell whether a process is suspended; False if there is none."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode()
    except OSError:
        state = "" if Path("/proc/self").exists() else _state_from_ps(pid)
    return state.strip().startswith(_STOPPED)


def _state_from_ps(pid: int) -> str:
    import subprocess  # noqa: PLC0415 - start-up; only where there is no /proc

    command = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, check=False, text=True).stdout


def how_to_continue(pid: int) -> str:
    """Name what lets it go on."""
    return f"`fg` in its terminal or `kill -CONT {pid}`"
