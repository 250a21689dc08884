"""An agent's processes at their worst, all bearing one word in their command lines: a child, one that left the session,
a daemon with an empty environment, and one that never stops forking. None of them heeds SIGTERM."""

import os
import signal
import sys
import time

word = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)


def stay(environment: dict[str, str]) -> None:
    os.execvpe("sleep", ["sleep", "60", word], environment)


def keep_moving() -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)
        time.sleep(0.002)
    os._exit(0)


if os.fork() == 0:
    stay(dict(os.environ))
if os.fork() == 0:
    os.setsid()
    stay(dict(os.environ))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay({"PATH": os.environ["PATH"]})
    os._exit(0)
if os.fork() == 0:
    keep_moving()
print("all there", flush=True)
time.sleep(60)
