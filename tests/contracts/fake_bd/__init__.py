"""A stand-in for `bd` that answers as each era of it does, for tests that must not need Go or a database.

    folder = install(tmp_path / "bin", era="0.47.1", slow={"show": 2})      # then put `folder` first on the PATH

Its beads lie in the project's `.beads/fake-bd.json`; every call is one line of `.beads/fake-bd.calls` (see `calls`).
It keeps bytecode and imports next to nothing: a call costs little more than a bare Python start.

Behaviour, given to `install` or, between two calls, to `switch`; commands go by their first word ("comments", "dep"):

    hang=("close",)             never answers; nothing is done
    slow={"show": 0.5}          waits before it begins; "*" is every command
    noise="text"                printed on stdout before anything else
    noise_stderr="text"         the same on stderr
    locked=2                    the first two calls of each command fail as that era words it; -1: for ever;
                                {"close": 2} only there
    fail={"close": "words"}     fails with these words; nothing is done
    die_after={"close": "kill"} does the work and is killed before it says so; a number: that exit code;
                                "hang": it never ends
    taken="somebody"            somebody else's claim comes first; {"demo-1": "somebody"} only there
    before={"close": [argv]}    a command run in the project before the work; its exit code and output are in the log
    after={"close": [argv]}     the same after it
    version="1.2.1"             what it says it is, whatever it does
    too_old=True                a bd from before `--claim` and `export`
    no_database=True            `.beads` is there, the database is not
    schema_skew=True            the database is newer than the program

The eras: 0.44.0, 0.47.1 and 1.0.5 are compared with recordings of the real programs; 0.60.0, 0.63.3 and 1.0.0 follow
their source; 0.49.5, 0.50.3 and 2.0 (enveloped answers, as announced) follow bd's documents and threads only.
"""

from __future__ import annotations

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH100, PTH118, PTH120
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

ERAS = ("0.44.0", "0.47.1", "0.49.5", "0.50.3", "0.60.0", "0.63.3", "1.0.0", "1.0.5", "2.0")

SWITCHES = "fake-bd.switches"
CALLS = "fake-bd.calls"
STATE = "fake-bd.json"

_BEHAVIOURS = frozenset(
    ("hang", "slow", "noise", "noise_stderr", "locked", "fail", "die_after", "taken", "before", "after", "version")
) | {"too_old", "no_database", "schema_skew"}
_PROGRAM = """#!{python} -SEs
import sys
sys.path.insert(0, {root!r})
from tests.contracts.fake_bd.program import main
main({era!r}, {behaviour!r})
"""


def install(folder: Path, era: str = "1.0.5", **behaviour: object) -> Path:
    """Puts an executable `bd` into `folder`, which is made and returned: it belongs first on the PATH."""
    if era not in ERAS:
        raise ValueError(f"no such era: {era}")
    _known(behaviour)
    root = os.path.dirname(os.path.abspath(__file__)).removesuffix(os.path.join("tests", "contracts", "fake_bd"))
    folder.mkdir(parents=True, exist_ok=True)
    text = _PROGRAM.format(python=sys.executable, root=root, era=era, behaviour=json.dumps(behaviour))
    beside = folder / f".bd.{os.getpid()}"
    beside.write_text(text, encoding="utf-8")
    beside.chmod(0o755)
    beside.rename(folder / "bd")
    return folder


def switch(project: Path, **behaviour: object) -> None:
    """From the next call on it behaves like this in this project; what is not named is as it was installed."""
    _known(behaviour)
    beside = project / ".beads" / f"{SWITCHES}.{os.getpid()}"
    beside.write_text(json.dumps(behaviour), encoding="utf-8")
    beside.rename(project / ".beads" / SWITCHES)


def calls(project: Path, command: str | None = None) -> list[dict[str, Any]]:
    """What it was asked, in the order in which the calls began.

    argv, started, ended, exit (both None: still running, or killed), changed (the ids whose row is another one since),
    before, after (what the commands of that name answered: exit and output).
    """
    file = project / ".beads" / CALLS
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [call for call in found if command is None or call["command"] == command]


def beads(project: Path) -> dict[str, dict[str, Any]]:
    """Its rows by id, as they lie there now."""
    state = json.loads((project / ".beads" / STATE).read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = state["issues"]
    return found


def _known(behaviour: dict[str, object]) -> None:
    if unknown := set(behaviour) - _BEHAVIOURS:
        raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
