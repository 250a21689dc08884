"""`capsule` as a process, without the fifth of a second that Python takes to import it.

Each command is forked from a server that has imported everything and done nothing: it has its own memory, environment,
directory and streams, may be killed, and what it starts is started by it. Whoever tests how a process begins, or talks
to it while it runs, starts one with `subprocess`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO


class _Server:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # As in a shell without a locale, which is how the tests start `capsule`.
        env = {"PATH": os.environ["PATH"]}
        argv = [sys.executable, str(Path(__file__).with_name("warm_server.py"))]
        self.process = subprocess.Popen(argv, stdin=theirs.fileno(), cwd="/", env=env)
        theirs.close()
        self.socket = ours

    def end(self) -> None:
        self.socket.close()
        self.process.wait()


_ONE_SERVER = threading.Lock()
"""Tests start commands in threads, also the first one."""


@cache
def _server() -> _Server:
    return _Server()


def end_server() -> None:
    """Waits for it, so that what it cost is counted."""
    if _server.cache_info().currsize:
        _server().end()
        _server.cache_clear()


class Forked(subprocess.Popen[str]):
    """What `python ARGS` would be, with nothing on standard input, and its output kept until it has ended."""

    def __init__(self, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._child_created = False  # by us, that is: what ends it is the server's to see
        self.args, self.returncode = list(args), None
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        umask = os.umask(0)
        os.umask(umask)
        about = {"args": self.args, "cwd": str(cwd), "env": dict(env), "umask": umask}
        self._answer, theirs = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        fds = [nothing, self._out.fileno(), self._err.fileno(), theirs]
        with _ONE_SERVER:
            server = _server()
        socket.send_fds(server.socket, [json.dumps(about).encode()], fds)
        os.close(nothing)
        os.close(theirs)
        self.pid = self._told()

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        assert input is None
        if not select.select([self._answer], [], [], timeout)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.returncode = self._told()
        os.close(self._answer)
        return _whole(self._out), _whole(self._err)

    def _told(self) -> int:
        (number,) = struct.unpack("i", os.read(self._answer, struct.calcsize("i")))
        return int(number)


def _whole(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")
