"""A terminal with somebody at it: real programs on a real pty, typed at and read from."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.costs import LONG, best_of, eventually

SCREEN_OPENS = "\x1b[?1049h"
SCREEN_CLOSES = "\x1b[?1049l"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_=>])")


class Terminal:
    """`capsule WORDS` on a terminal of its own; gone with the block, and the program with it."""

    def __init__(
        self, words: tuple[str, ...], cwd: Path, env: Mapping[str, str], size: tuple[int, int] = (100, 30)
    ) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        # Whoever leads a session and opens a terminal has it for its own, and is hung up on when it goes.
        shell = ["sh", "-c", 'exec "$@" <"$TTY" >"$TTY" 2>"$TTY"', "sh"]
        self.process = subprocess.Popen(
            [*shell, sys.executable, "-m", "capsule", *words],
            cwd=cwd,
            env={"TERM": "xterm-256color", **env, "TTY": os.ttyname(theirs)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)  # so that it is at its end when the last program has let go of it
        self._read, self._gone = bytearray(), False
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LONG)
        self.hang_up()

    @property
    def raw(self) -> str:
        return self._read.decode(errors="replace")

    @property
    def text(self) -> str:
        return _SEQUENCE.sub("", self.raw)

    @property
    def afterwards(self) -> str:
        """What was printed after the screen was closed; all of it where there never was one."""
        return _SEQUENCE.sub("", self.raw.rpartition(SCREEN_CLOSES)[2]).replace("\r", "")

    def shows(self, words: str) -> bool:
        return eventually(lambda: words in self.text or not self._reader.is_alive()) and words in self.text

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def ends(self) -> int:
        """Its exit code, once everything is read that it has printed."""
        code = self.process.wait(LONG)
        self._reader.join(LONG)
        return code

    def hang_up(self) -> None:
        """The number of a file that is closed is soon that of another: whoever reads has to have ended by then."""
        if not self._gone:
            self._gone = True
            self._reader.join()
            os.close(self._ours)

    def _listen(self) -> None:
        while not self._gone:
            if select.select([self._ours], [], [], 0.05)[0]:
                try:
                    new = os.read(self._ours, 65536)
                except OSError:  # nobody is there any more who could print
                    return
                if not new:
                    return
                self._read += new


def bare_screen() -> float:
    """Processor seconds that it takes to load the library alone, on this machine."""
    load = [sys.executable, "-c", "import textual.app, textual.widgets"]
    return best_of(lambda: subprocess.run(load, check=True), 1, lambda: sum(os.times()[2:4]))


def seconds_used(process: int) -> float:
    """Processor time of a process that runs, as /proc tells it."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
