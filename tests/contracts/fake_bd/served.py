"""The same stand-in without the start of a Python for each call: what runs is a shell that asks a server of ours.

The server forks for each call, and finds what it is about where Linux keeps it: the words, the environment, the folder
and the streams of the shell that waits. Whoever ends a call does not end what was forked for it, and one call comes
after the other: for tests in which bd is ended, or called by several at once, `install` is the right one.
"""

from __future__ import annotations

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH100, PTH110, PTH118, PTH120, PTH123
import json
import os
import sys
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

ENDED = frozenset({"hang", "slow", "die_after"})
"""Behaviour that is for `install` alone."""

_TOLD = "bd.told"
# While it asks, its output is the pipe; so it keeps its own beside it.
_CLIENT = """#!/bin/sh
exec 3>&1 4>&2
echo $$ > {pipes}/asked
read code < {pipes}/answered
exit $code
"""


def install_served(folder: Path, era: str, **behaviour: object) -> Path:
    """As `install`; where there is no /proc, it is that."""
    from tests.contracts import fake_bd

    fake_bd.install(folder, era, **behaviour)
    if os.path.exists("/proc/self/environ"):
        (folder / _TOLD).write_text(json.dumps([era, json.dumps(behaviour)]), encoding="utf-8")
        (folder / "bd").write_text(_CLIENT.format(pipes=_server().pipes), encoding="utf-8")
    return folder


def end_server() -> None:
    """Waits for it, so that what it cost is counted."""
    if _server.cache_info().currsize:
        _server().end()
        _server.cache_clear()


class _Server:
    def __init__(self) -> None:
        import subprocess
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        self.pipes = self._folder.name
        for name in ("asked", "answered"):
            os.mkfifo(f"{self.pipes}/{name}")
        argv = [sys.executable, "-SEs", "-Xutf8", os.path.abspath(__file__), self.pipes]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE)

    def end(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


@cache
def _server() -> _Server:
    return _Server()


def main(pipes: str) -> None:
    import select

    # Open for both: neither waits for the other end, nor sees it closed.
    asked, answered = (os.open(f"{pipes}/{name}", os.O_RDWR) for name in ("asked", "answered"))
    while asked in select.select([asked, 0], [], [])[0]:
        shell = int(os.read(asked, 100))
        pid = os.fork()
        if pid == 0:
            _become(shell)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(answered, f"{code}\n".encode())


def _become(shell: int) -> NoReturn:
    from tests.contracts.fake_bd.program import main as answer

    about = f"/proc/{shell}"
    os.environ.clear()
    for variable in _parts(f"{about}/environ"):
        name, _, value = variable.partition("=")
        os.environ[name] = value
    os.chdir(f"{about}/cwd")
    sys.argv = _parts(f"{about}/cmdline")[1:]
    for number in (1, 2):
        os.dup2(os.open(f"{about}/fd/{number + 2}", os.O_WRONLY | os.O_APPEND), number)
    with open(os.path.join(os.path.dirname(sys.argv[0]), _TOLD), encoding="utf-8") as told:
        era, behaviour = json.load(told)
    answer(era, behaviour)


def _parts(path: str) -> list[str]:
    with open(path, "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]


if __name__ == "__main__":
    sys.path[0] = os.path.abspath(__file__).removesuffix(os.path.join("tests", "contracts", "fake_bd", "served.py"))
    import tests.contracts.fake_bd.program  # noqa: F401 before the first call, once for all of them

    main(sys.argv[1])
