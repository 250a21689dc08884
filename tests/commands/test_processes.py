"""What one mission starts: every git process is paid for in each of thousands of missions, so they are counted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from capsule.cli import main

from ..conftest import Repo

MOST = 60
AGENT = """\
case $CAPSULE_PHASE in
test-writer) echo 'test -e hello' > tests.sh;;
execute) echo hello > hello;;
merge) git add hello tests.sh; git commit -q -m "$CAPSULE_COMMIT_MSG";;
esac
echo '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
"""
CONFIG = """\
agent: instant
agents: {instant: {command: [sh, %s]}}
evidence: {test: "test ! -e tests.sh || sh tests.sh", test_globs: [tests.sh]}
"""
ITEM = '{"id":"one","title":"Say hello","status":"open","issue_type":"task"}\n'


def test_one_mission_starts_few_git_processes(
    a_repo: Repo, monkeypatch: pytest.MonkeyPatch, level: dict[str, str]
) -> None:
    agent = a_repo.path.parent / "agent.sh"
    agent.write_text(AGENT)
    a_repo.commit("a tracker", **{".beads/issues.jsonl": ITEM, ".capsule/config.yaml": CONFIG % agent})
    started: list[str] = []

    class Counted(subprocess.Popen[Any]):
        def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
            if Path(args[0]).name == "git":
                started.append(" ".join(args[1:3]))
            super().__init__(args, *rest, **options)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    monkeypatch.chdir(a_repo.path)
    for name, value in level.items():
        monkeypatch.setenv(name, value)
    assert main(["run", "one"]) == 0
    assert (a_repo.path / "hello").read_text() == "hello\n"
    assert len(started) <= MOST, "\n".join(started)
