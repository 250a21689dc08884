"""The same stand-in without the start of a Python for each call: what runs is a shell that asks a server of ours.

The server forks for each call, and finds what it is about where Linux keeps it: the words, the environment, the folder
and the streams of the shell that waits. Whoever ends a call does not end what was forked for it, and one call of a
project comes after the other: for tests in which bd hangs, dies or is called by several, `install` is the right one.
"""

from __future__ import annotations

# pathlib would cost more than the rest of the start:
# ruff: noqa: PTH100, PTH118, PTH120, PTH123
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen
    from typing import NoReturn

_CLIENT = """#!/bin/sh
echo $$ {era} > {pipes}.asked
read code < {pipes}.answered
exit $code
"""
_servers: dict[str, Popen[bytes]] = {}


def install_served(folder: Path, era: str) -> Path:
    """As `install`; where there is no /proc, it is that."""
    from tests.contracts import fake_bd

    fake_bd.install(folder, era)
    if os.path.exists("/proc/self/environ"):
        pipes = str(folder / "bd")
        _serve(pipes)
        (folder / "bd").write_text(_CLIENT.format(era=era, pipes=pipes), encoding="utf-8")
    return folder


def end_servers() -> None:
    """Waits for them, so that what they cost is counted."""
    for server in _servers.values():
        server.communicate()
    _servers.clear()


def _serve(pipes: str) -> None:
    import subprocess

    for name in ("asked", "answered"):
        os.mkfifo(f"{pipes}.{name}")
    argv = [sys.executable, "-SEs", "-Xutf8", os.path.abspath(__file__), pipes]
    _servers[pipes] = subprocess.Popen(argv, stdin=subprocess.PIPE)


def main(pipes: str) -> None:
    import select

    # Open for both: neither waits for the other end, nor sees it closed.
    asked, answered = (os.open(f"{pipes}.{name}", os.O_RDWR) for name in ("asked", "answered"))
    while asked in select.select([asked, 0], [], [])[0]:
        number, era = os.read(asked, 4096).decode().split()
        pid = os.fork()
        if pid == 0:
            _become(int(number), era)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(answered, f"{code}\n".encode())


def _become(shell: int, era: str) -> NoReturn:
    from tests.contracts.fake_bd.program import main as answer

    about = f"/proc/{shell}"
    os.environ.clear()
    for variable in _parts(f"{about}/environ"):
        name, _, value = variable.partition("=")
        os.environ[name] = value
    os.chdir(f"{about}/cwd")
    sys.argv = _parts(f"{about}/cmdline")[1:]
    for number in (1, 2):
        os.dup2(os.open(f"{about}/fd/{number}", os.O_WRONLY | os.O_APPEND), number)
    answer(era, "{}")


def _parts(path: str) -> list[str]:
    with open(path, "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]


if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    sys.path[0] = root
    import tests.contracts.fake_bd.program  # noqa: F401 before the first call, once for all of them

    main(sys.argv[1])
