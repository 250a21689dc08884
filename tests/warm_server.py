"""Everything of Capsule imported once; then each command is a process of its own, forked from here: see warm.py.

A request is JSON, with the files for its standard streams and the pipe to answer on. The answer is the pid at once, and
the exit code, as `waitpid` has it, when it has ended.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from typing import Any, Literal, NoReturn

import capsule

LONGEST = 1 << 20


def main() -> None:
    for module in pkgutil.walk_packages(capsule.__path__, "capsule."):
        if not module.name.rpartition(".")[2].startswith("__") and not module.name.startswith("capsule.tui"):
            importlib.import_module(module.name)
    gc.freeze()
    with socket.socket(fileno=0) as asked:
        _serve(asked)


def _serve(asked: socket.socket) -> None:
    answers: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 4096)
                _tell_who_ended(answers)
            if asked.fileno() in ready:
                request, fds, _, _ = socket.recv_fds(asked, LONGEST, 4)
                if not request:
                    return
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    _become(json.loads(request), fds, [asked.fileno(), woken, wake, *answers.values()])
                for fd in fds[:3]:
                    os.close(fd)
                answers[pid] = fds[3]
                os.write(fds[3], struct.pack("i", pid))


def _tell_who_ended(answers: dict[int, int]) -> None:
    for pid in list(answers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            answer = answers.pop(pid)
            os.write(answer, struct.pack("i", os.waitstatus_to_exitcode(status)))
            os.close(answer)


def _become(request: dict[str, Any], fds: list[int], not_ours: list[int]) -> NoReturn:
    """What a fresh interpreter would be at this point, and then the program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd in not_ours:
        os.close(fd)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.stdin = _text(0, "rb", "surrogateescape")
    sys.stdout = _text(1, "wb", "surrogateescape")
    sys.stderr = _text(2, "wb", "backslashreplace")
    os._exit(_run(request["args"]))


def _text(fd: int, mode: Literal["rb", "wb"], errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(fd, mode), encoding="utf-8", errors=errors, line_buffering=fd == 2)


def _run(args: list[str]) -> int:
    """`-m MODULE WORDS` or `SCRIPT WORDS`; the exit code that Python would end with."""
    code = 1
    try:
        if args[0] == "-m":
            sys.argv = args[1:]
            runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = args
            runpy.run_path(args[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 as Python does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
