"""Write rows of JSON, one file per test process, and keep all of it from the environment of what tests start."""

import io
import json
import os
from types import CodeType
from typing import Any, Callable, Dict, FrozenSet, Optional

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
_open_file, _compile = io.open, compile  # before code under test can put others in their place
_written: Dict[str, FrozenSet[Any]] = {}


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


def compiled(source: Any, path: str) -> Any:
    return _compile(source, path, "exec", dont_inherit=True)


def is_as_written(function: Any, compiler: Callable[[Any, str], Any] = compiled) -> bool:
    """Tell whether a test was loaded as its file has it; a decorator's own code is not asked."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    loaded = getattr(function, "__code__", None)
    if loaded is None or not is_ours(loaded.co_filename):
        return True
    path = loaded.co_filename
    try:
        if path not in _written:
            with _open_file(path, "rb") as file:
                source = file.read()
            codes = (compiled(source, path), compiler(source, path))
            _written[path] = frozenset(shape for code in codes for shape in _shapes(code))
    except Exception:  # noqa: BLE001 - not Python, gone, or another release of the runner: nobody can tell
        return True
    return _shape(loaded) in _written[path]


def _shapes(code: CodeType) -> Any:
    yield _shape(code)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _shapes(each)


def _shape(each: Any) -> Any:
    """Return something to compare: equal numbers of two types are two values, and a set has no order."""
    if isinstance(each, CodeType):
        return (each.co_name, each.co_firstlineno, each.co_code, each.co_names, _shape(each.co_consts))
    if isinstance(each, tuple):
        return tuple(map(_shape, each))
    if isinstance(each, frozenset):
        return frozenset(map(_shape, each))
    return (type(each).__name__, repr(each))


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
