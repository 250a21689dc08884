"""Write rows of JSON, one file per test process, and keep all of it from the environment of what tests start."""

import json
import os
from typing import Any, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = os.environ.get("CAPSULE_REPORTS", "")
_TREE = os.path.realpath(os.environ.get("CAPSULE_TREE") or ".")
_OWNER = os.getpid()
_open: "Optional[Rows]" = None
_ASKED = {
    "NODE_OPTIONS": "NODE",
    "TOX_OVERRIDE": "TOX",
    "TOX_TESTENV_PASSENV": "TOX3",
    "SPEC_OPTS": "RSPEC",
    "PHP_INI_SCAN_DIR": "PHP",
}
"""Variables that other runners read, and where the piece of ours in them is named."""


class Rows:
    def __init__(self, runner: str) -> None:
        name = f"{runner}-{_OWNER}-{os.urandom(4).hex()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(os.path.join(_FOLDER, name), flags, 0o600)
        self.write(runner=runner)

    def write(self, **row: Any) -> None:
        if os.getpid() == _OWNER:  # a fork of a test is no runner
            os.write(self._file, (json.dumps(row) + "\n").encode())

    def end(self, code: int) -> None:
        global _open  # noqa: PLW0603
        self.write(ended=code)
        if _open is self:
            _open = None


def wanted() -> bool:
    """Tell whether a run that begins here and now is to be told of."""
    return bool(_FOLDER) and _open is None and os.getpid() == _OWNER


def rows(runner: str) -> Optional[Rows]:
    """Begin the rows of a run; None where nobody asks, or where the run is part of a test of another run."""
    global _open  # noqa: PLW0603
    if not wanted():
        return None
    _open = Rows(runner)
    _withdraw()
    return _open


def place(path: str) -> str:
    """Return the path of a file, from the top of the tree."""
    return os.path.relpath(os.path.realpath(path), _TREE).replace(os.sep, "/")


def is_ours(path: str) -> bool:
    return bool(path) and not place(path).startswith("../")


def _withdraw() -> None:
    """Take what asks for names out of the environment: runners that tests start are part of those tests."""
    for name, piece in _ASKED.items():
        rest = os.environ.get(name, "").replace(os.environ.get(f"CAPSULE_ASK_{piece}") or "\0", "").strip(" ;")
        _set(name, rest)
    ours = (_HERE, os.path.join(os.path.dirname(_HERE), "bin"))
    for name in ("PYTHONPATH", "PATH"):
        _set(name, os.pathsep.join(each for each in os.environ.get(name, "").split(os.pathsep) if each not in ours))
    for name in [name for name in os.environ if name.startswith(("CAPSULE_ASK", "CAPSULE_REPORTS", "CAPSULE_TREE"))]:
        del os.environ[name]


def _set(name: str, value: str) -> None:
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)
