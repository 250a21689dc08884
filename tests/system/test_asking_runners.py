"""How runners behind a command are asked: through the environment, which tests do not inherit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell

SEEN = "import json, os, pathlib\n\ndef test_it():\n    pathlib.Path('seen').write_text(json.dumps(dict(os.environ)))\n"
OWN = {"SPEC_OPTS": "--tag fast", "PHP_INI_SCAN_DIR": "/etc/mine", "NODE_OPTIONS": "--no-warnings"}


@pytest.mark.parametrize("own", [{}, OWN], ids=["nothing set", "set by a person"])
def test_what_a_test_starts_is_not_asked(own: dict[str, str], tmp_path: Path) -> None:
    tree, reports = tmp_path / "tree", tmp_path / "reports"
    tree.mkdir()
    reports.mkdir()
    (tree / "test_a.py").write_text(SEEN)
    base = {**{name: value for name, value in os.environ.items() if name not in OWN}, **own}
    with SupervisorClient() as supervisor:
        shell = SupervisedShell(supervisor, base_env=base)
        command = f"{sys.executable} -m pytest -q -p no:cacheprovider"
        ran = shell.run(command, tree, tmp_path / "log", timeout=60, env={}, reports=reports)
    assert ran.report.passed == ["test_a.py::test_it"], ran.tail
    seen = json.loads((tree / "seen").read_text())
    assert {name: seen.get(name) for name in OWN} == {name: own.get(name) for name in OWN}
    assert not {"CAPSULE_ASK", "CAPSULE_ASK_PHP", "CAPSULE_ASK_RSPEC", "CAPSULE_REPORTS", "CAPSULE_TREE"} & {*seen}
    assert "instruments" not in f"{seen['PATH']} {seen.get('PYTHONPATH', '')}"
