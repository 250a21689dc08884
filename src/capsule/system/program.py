"""Run a provider's own program, one call at a time, with a time limit, and return its output.

A call runs in a process group of its own, without input, and is ended with all of its group when it takes too long.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from capsule.core.errors import ToolError
from capsule.system.umask import of_the_user

LARGEST = 256 * 1024 * 1024
_GRACE = 2.0
_LOOK = 1.0
"""Seconds between two checks of the size of its output."""


def call(argv: Sequence[str], root: Path, env: Mapping[str, str], patience: float) -> tuple[int | None, str, str]:
    """Run it to its end; return its exit code (None if it took too long and was ended), stdout and stderr.

    Raise OSError or ValueError if it cannot be started. Files, not pipes: a server that it leaves running would keep a
    pipe open for ever.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _STARTING:  # one that is started while we leave is seen by `_end_all` as well
            process = subprocess.Popen(
                argv,
                cwd=root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                umask=of_the_user(),
            )
            _UNDER_WAY.add(process)
        code = _wait_for(process, patience, out, err)
        return code, _text(process, out), _text(process, err)


def _wait_for(process: subprocess.Popen[bytes], patience: float, *printed: IO[bytes]) -> int | None:
    deadline = time.monotonic() + patience
    try:
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(min(left, _LOOK))
            _refuse_a_flood(process, *printed)
        return None
    finally:
        if process.poll() is None:
            _end(process)
        _UNDER_WAY.discard(process)


_STARTING = threading.Lock()
_UNDER_WAY: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_all() -> None:
    """End calls at exit: a screen calls in a thread, and leaving it must not wait for the answer."""
    _STARTING.acquire()  # for good: nothing is started from now on
    for process in [*_UNDER_WAY]:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all of its group, first politely: it may be writing."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    process.wait()


def _refuse_a_flood(process: subprocess.Popen[bytes], *files: IO[bytes]) -> None:
    if any(os.fstat(file.fileno()).st_size > LARGEST for file in files):
        argv = process.args if isinstance(process.args, list) else [str(process.args)]
        name, command = Path(argv[0]).name, " ".join(argv[1:2])
        raise ToolError(f"{name} printed more than can be read.", f"See what `{name} {command}` prints.")


def _text(process: subprocess.Popen[bytes], file: IO[bytes]) -> str:
    _refuse_a_flood(process, file)
    file.seek(0)
    return file.read().decode("utf-8", "replace")
