"""A stand-in for `gh` that answers as gh 2.23 does, for tests that must not need GitHub, or gh.

    folder = install(tmp_path / "bin", tmp_path / "hub.json")      # then put `folder` first on the PATH
    hub.json: the repository (hub.py); every call is one line of `hub.calls` beside it (see `calls`)

tests/live/test_fake_gh_is_faithful.py holds it to a real gh, which talks to the same repository by way of an API of
ours. A key `behave` in the repository makes it misbehave; commands go by their first two words:

    {"fail": {"issue list": [1, "words"]}}      prints these words on stderr and exits so; nothing is done
    {"once": {"issue list": [1, "words"]}}      the same for the next call only
    {"say": {"issue list": "words"}}            prints this on stdout instead of its answer
    {"hang": ["issue close"]}                   never answers; nothing is done
    {"die_after": ["issue create"]}             does the work, and is killed before it says so
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.contracts.fake_gh import hub as hubs

_PROGRAM = """#!{python} -SEs
import sys
sys.path.insert(0, {root!r})
from tests.contracts.fake_gh.program import main
main({hub!r})
"""


def install(folder: Path, hub: Path) -> Path:
    """Put an executable `gh` into `folder`, which is made and returned: it belongs first on the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).parents[3])
    (folder / "gh").write_text(_PROGRAM.format(python=sys.executable, root=root, hub=str(hub)))
    (folder / "gh").chmod(0o755)
    return folder


def behave(hub: Path, **how: Any) -> None:
    """From the next call on it behaves like this."""
    with hubs.opened(hub) as found:
        found["behave"] = how


def calls(hub: Path) -> list[list[str]]:
    """Return the arguments of every call."""
    file = hub.with_suffix(".calls")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
