"""A project whose missions take no time to think: instant agents, instant tests, and every kind of turn on the way.

The mission of each item meets a review that sends back, a claim that the evidence refutes, agents that leave untracked
and ignored files, and agents that *append*: work done twice shows in the tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import warm
from tests.conftest import SANDBOXED
from tests.costs import LONG

ITEM, OTHER = "mend-1.1", "mend-1.2"
DIARY = "CRASH_DIARY"
"""Where agents note what they were started for: outside the project, where nothing is ever put back."""
STAMP = "2026-01-05T09:00:00Z"
_CONFIG = """\
agent: scripted
agents: {scripted: {args: [script.json]}}
evidence: {test: sh run-tests.sh, test_globs: ["tests/*"]}
"""


def _signal(status: str, said: str, *files: str) -> dict[str, object]:
    return {"status": status, "feedback": said, "files_changed": list(files), "summary": said}


def turn(*commands: str, status: str = "PASS", said: str = "done") -> dict[str, object]:
    """One run of an agent, which notes it in its worklog."""
    return {"run": [*commands, 'echo "- $CAPSULE_PHASE $CAPSULE_RUN" >> worklog.md'], "signal": _signal(status, said)}


def script_for(item: str) -> dict[str, list[dict[str, object]]]:
    test, code, page = f"tests/{item}.sh", f"src/{item}.txt", f"docs/{item}.md"
    return {
        "test-writer": [
            turn(f"echo 'grep -q whole {code}' >> {test}"),
            turn(f"echo '! grep -q broken {code}' >> {test}"),
        ],
        "test-review": [turn(status="NEEDS_WORK", said="one case is missing"), turn()],
        "execute": [
            turn(
                f"mkdir -p docs build; echo half >> {code}; echo one >> {page}; echo x >> build/out", said="all green"
            ),
            turn(f"echo whole >> {code}; echo two >> {page}"),
        ],
        "execute-review": [turn(f"echo reviewed >> {page}")],
        "sign-off": [turn()],
        "merge": [turn(f'git add {test} {code} {page} && git commit -q -m "$CAPSULE_COMMIT_MSG"')],
    }


def waiting_script(item: str, phase: str, sign: Path) -> dict[str, Any]:
    """The same mission, but the agent of one phase says where it is and waits, with a process below it that hides."""
    script: dict[str, Any] = script_for(item)
    script[phase] = [{"run": [f"setsid sleep 300 & echo half-done >> src/{item}.txt; touch {sign}; sleep 300"]}]
    return script


def issue(name: str, kind: str, title: str, parent: str = "") -> dict[str, object]:
    links = [{"issue_id": name, "depends_on_id": parent, "type": "parent-child", "created_at": STAMP}]
    return {
        "id": name,
        "title": title,
        "description": f"{title}, please.",
        "acceptance_criteria": "- it is whole",
        "status": "open",
        "priority": 1,
        "issue_type": kind,
        "created_at": STAMP,
        "updated_at": STAMP,
    } | ({"dependencies": links} if parent else {})


def make_project(path: Path) -> None:
    issues = [
        issue("mend-1", "feature", "Mend everything"),
        issue(ITEM, "task", "Mend the one", "mend-1"),
        issue(OTHER, "task", "Mend the other", "mend-1"),
    ]
    files = {
        "run-tests.sh": 'for test in tests/*.sh; do sh -e "$test" || exit 1; done\n',
        "tests/first.sh": "test -f README\n",
        "README": "hello\n",
        "src/app.txt": "app\n",
        ".gitignore": "build/\nnode_modules/\n",
        ".capsule/config.yaml": _CONFIG,
        "script.json": json.dumps({item: script_for(item) for item in (ITEM, OTHER)}, indent=1),
        ".beads/issues.jsonl": "".join(json.dumps(issue) + "\n" for issue in issues),
    }
    first_commit(path, files)


def first_commit(path: Path, files: Mapping[str, str]) -> None:
    """A repository with these files, and with installed dependencies, which git ignores."""
    for name, text in {**files, "node_modules/left-pad/index.js": "left\n"}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=path, check=True)


class Project:
    """One copy of the project, with what it has outside of itself, and what a person can do with it."""

    def __init__(self, template: Path, path: Path, mark: str, *, sandboxed: bool = False) -> None:
        shutil.copytree(template, path, symlinks=True)
        self.path, self.outside, self.diary = path, outside(path), outside(path) / "diary"
        self.cache, self.temporary = self.outside / "cache", self.outside / "tmp"
        shutil.rmtree(self.outside, ignore_errors=True)
        if outside(template).exists():
            shutil.copytree(outside(template), self.outside, symlinks=True)
        for folder in (self.cache, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        self.diary.touch()
        ours = {"CRASH_MARK": mark, "CAPSULE_ENVIRONMENT__ALLOW": "[CRASH_*]", "XDG_CACHE_HOME": str(self.cache)}
        ours |= {"TMPDIR": str(self.temporary), DIARY: str(self.diary), "PYTHONDONTWRITEBYTECODE": "1"}
        ours |= {"CAPSULE_CONFINEMENT__WRITABLE": f"[{self.diary}]"} | (SANDBOXED if sandboxed else {})
        self._environment = os.environ | ours

    def allow(self, **settings: str) -> None:
        self._environment = self._environment | settings

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", *args], cwd=self.path, capture_output=True, check=False, text=True)
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr}"
        return done.stdout.strip()

    def run(self, item: str = ITEM) -> subprocess.CompletedProcess[str]:
        """The command as people type it."""
        return self._finished(self._start(["-m", "capsule"], item, {}))

    def say(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._finished(warm.Forked(["-m", "capsule", *words], self.path, self._environment))

    @property
    def issues_file(self) -> Path:
        return self.path / ".beads" / "issues.jsonl"

    def issues(self) -> str:
        return self.issues_file.read_text()

    def drive(self, item: str = ITEM, **told: str) -> subprocess.CompletedProcess[str]:
        """The same, watched."""
        shared = self.outside / "points-passed"
        try:
            told = {**told, "CRASH_SHARED": str(shared)}
            return self._finished(self._start([str(Path(__file__).with_name("driver.py"))], item, told))
        finally:
            shared.unlink(missing_ok=True)

    def start(self, item: str = ITEM, **told: str) -> subprocess.Popen[str]:
        """Under way, to be talked to by signals."""
        return subprocess.Popen(
            [sys.executable, "-m", "capsule", *_words(item)],
            cwd=self.path,
            env=self._environment | told,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _start(self, program: list[str], item: str, told: dict[str, str]) -> subprocess.Popen[str]:
        return warm.Forked([*program, *_words(item)], self.path, self._environment | told)

    @staticmethod
    def _finished(runner: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        said, explained = runner.communicate(timeout=5 * LONG)
        return subprocess.CompletedProcess(runner.args, runner.returncode, said, explained)

    def moved_to(self, place: Path) -> None:
        shutil.move(self.path, place)
        shutil.move(self.outside, outside(place))

    def remove(self) -> None:
        shutil.rmtree(self.path)
        shutil.rmtree(self.outside)


def outside(project: Path) -> Path:
    """Gates and layers lie outside their project, and belong to the state that a crash leaves."""
    return project.with_name(f"{project.name}.outside")


def server_of(project: Project) -> Path:
    """The bare repository of a project that is hosted."""
    return project.outside / "server.git"


def _words(item: str) -> list[str]:
    return ["run", *([item] if item else [])]
