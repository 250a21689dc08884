"""Five processes that ignore SIGTERM: a command, its child, its grandchild, one that left the session, and a daemon
with an empty environment. Each writes its pid to the file named first. `leave`: the command itself then exits with 0;
`keep-environment`: the daemon keeps its variables; `pause-supervisor` and `kill-supervisor` do that to the parent."""

import os
import signal
import sys
import time
from pathlib import Path

pids, options = Path(sys.argv[1]), sys.argv[2:]
parent = os.getppid()


def note() -> None:
    with pids.open("a") as file:
        file.write(f"{os.getpid()}\n")


def rest(environment: dict[str, str]) -> None:
    note()
    os.execvpe("sleep", ["sleep", "300"], environment)


signal.signal(signal.SIGTERM, signal.SIG_IGN)
note()
if os.fork() == 0:
    if os.fork() == 0:
        rest(dict(os.environ))
    rest(dict(os.environ))
if os.fork() == 0:
    os.setsid()
    rest(dict(os.environ))
if (middle := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        rest(dict(os.environ) if "keep-environment" in options else {})
    os._exit(0)
os.waitpid(middle, 0)
while len(pids.read_text().split()) < 5:
    time.sleep(0.01)
if "pause-supervisor" in options:
    os.kill(parent, signal.SIGSTOP)
if "kill-supervisor" in options:
    os.kill(parent, signal.SIGKILL)
if "leave" not in options:
    time.sleep(300)
