"""Which Python a test command runs."""

from __future__ import annotations

import re

_RUNNERS = re.compile(r"(?:^|[;&|]\s*)((?:uv|poetry|pdm|pipenv|hatch|rye)\s+run)\s")
_PYTHON = re.compile(r"(?:^|[\s;&|])((?:[\w./~-]+/)?(?:python|pypy)[\d.]*)(?=\s|$)")
_BESIDE = re.compile(r"(?:^|[\s;&|])([\w./~-]+/)(?:pytest|py\.test|tox|nox)(?=\s|$)")


def interpreter_of(command: str) -> str:
    """Return the words that start it: as the command names it, beside its test runner, or the one on the PATH."""
    if runner := _RUNNERS.search(command):
        return f"{runner[1]} python"
    if named := _PYTHON.search(command):
        return named[1]
    if beside := _BESIDE.search(command):
        return f"{beside[1]}python"
    return "$(command -v python3 || command -v python)"
