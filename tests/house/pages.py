"""Find and parse the documents, and run the commands that they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import UNSANDBOXED

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str, word: str) -> Iterator[str]:
    """Yield the bodies of fenced blocks whose info string has this word."""
    return (found["body"] for found in _FENCE.finditer(text) if word in found["info"].split())


def prose(text: str) -> str:
    return _FENCE.sub("", text)


class Told(NamedTuple):
    """One command of a console block, and the output shown for it."""

    command: str
    output: str


def told(block: str) -> list[Told]:
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [Told(*part.partition("\n")[::2]) for part in parts]


def pattern(shown: str) -> re.Pattern[str]:
    """Compile shown output, in which `...` stands for any text within a line, or alone for any number of lines."""
    lines = [
        r"(?:[^\n]*\n)*?" if line == "..." else r"[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in shown.splitlines()
    ]
    return re.compile("".join(lines))


class Reader:
    """Run the commands of a page one after the other."""

    _MARKER = "--- where we are now ---"

    def __init__(self, folder: Path, **env: str) -> None:
        self.cwd = folder
        self._last = 0
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        plain = {"PATH": path, "NO_COLOR": "1", "COLUMNS": "100", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": ""}
        self._env = {**os.environ, **plain, **UNSANDBOXED, **env}

    def follow(self, page: str) -> int:
        """Write the files and run the commands that a page shows; return the number of commands."""
        typed = 0
        for found in _FENCE.finditer(page):
            language, _, file = found["info"].strip().partition(" file=")
            if file:
                self._write(file, found["body"])
            for step in told(found["body"]) if language == "console" else ():
                said = self.type(step.command)
                assert pattern(step.output).fullmatch(said), f"$ {step.command}\n{said}\n--- shown:\n{step.output}"
                typed += 1
        return typed

    def type(self, command: str) -> str:
        """Return its output. The next command starts in the same folder and knows its exit code."""
        script = f"(exit {self._last}); {command}\nrc=$?; printf '\\n%s%s' '{self._MARKER}' \"$PWD\"; exit $rc"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output, _, place = done.stdout.rpartition(f"\n{self._MARKER}")
        self.cwd, self._last = Path(place), done.returncode
        return output if output.endswith("\n") or not output else output + "\n"

    def _write(self, name: str, text: str) -> None:
        file = self.cwd / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
