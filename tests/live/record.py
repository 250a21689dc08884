"""Record what real test runners print and write, for the tests of how it is read.

    python -m tests.live.record [RUNNER ...]

writes a folder for each runner and case below `tests/core/runner_outputs`, without paths of this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell
from tests.live import install
from tests.live.runner_projects import CASES, RECORDED, RUNNERS, environment, make, missing

OUTPUTS = Path(__file__).resolve().parents[1] / "core" / "runner_outputs"
WHOLE = ("rspec", "phpunit", "mix", "deno")
"""Of these all cases are kept, because few machines can play them."""
_PATIENCE = 600
_MOST = 8000


def main(names: list[str]) -> int:
    known = {**RUNNERS, **RECORDED}
    for name in names or [name for name in known if name not in ("nox", "cargo -q")]:
        lacking = missing(known[name])
        for case in () if lacking else CASES if name in WHOLE else ("failed", "skipped", "forged"):
            _record(name, case)
        print(f"{name}: {f'{lacking} is not installed' if lacking else 'recorded'}")
    return 0


def _record(name: str, case: str) -> None:
    target = OUTPUTS / f"{re.sub(r'[^A-Za-z-]', '', name).lower()}-{case}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "project")
        reports = Path(scratch, "reports")
        folder.mkdir()
        reports.mkdir()
        command = make(folder, name, case, "plain")
        env = {**environment(), "HOME": f"{scratch}/home"}
        with SupervisorClient() as supervisor:
            shell = SupervisedShell(supervisor, base_env=os.environ)
            ran = shell.run(command, folder, Path(scratch, "log"), timeout=_PATIENCE, env=env, reports=reports)
        if name in WHOLE:
            (target / "exit-code").write_text(f"{ran.exit_code}\n")
        kept = {"output.txt": Path(scratch, "log"), **{path.name: path for path in sorted(reports.iterdir())}}
        for left in ("target/surefire-reports/*.xml", "build/test-results/test/*.xml"):
            kept |= {path.name: path for path in sorted(folder.glob(left))}
        for number, (old, path) in enumerate(kept.items()):
            new = re.sub(r"^(begun-\w+|\w+?)-(?:\d+-)?\w{8}(?=\.|$)", rf"\1-{number}", old)
            new = re.sub(r"^(go)-\d+\.ended$", rf"\1-{number - 1}.ended", new)
            (target / new).write_text(_without_this_machine(path.read_text(errors="replace"), scratch))


def _without_this_machine(text: str, scratch: str) -> str:
    """Take out paths of this machine, what it is, and what is long."""
    text = re.sub(r"  <properties>.*?</properties>\n", "", text, flags=re.DOTALL)
    text = re.sub(
        r"<system-out>.*?</system-out>|\n\s+at [^\n]*|'?[^\s']*\.dump(?:stream)?'?", "", text, flags=re.DOTALL
    )
    for path, name in ((f"{os.path.realpath(scratch)}/project", "/project"), (scratch, "/scratch")):
        text = text.replace(path, name)
    for path in (str(install.cache()), os.path.expanduser("~")):  # noqa: PTH111 (a text)
        text = text.replace(path, "/tools")
    return text if len(text) <= _MOST else text[: _MOST // 2] + "\n[…]\n" + text[-_MOST // 2 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
