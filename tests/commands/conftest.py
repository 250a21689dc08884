"""A project as a user has it, an agent that plays what a test tells it, and the real `capsule`.

The project is as small as a project can be, so that a whole mission takes a second: its code is the file `answer`, its
test command runs every `tests/test_*.sh`. Its one task is to make the answer 42.

`capsule` starts the program as a process; `say` runs the same command line in this one, which is quicker.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pytest

from capsule.cli import main
from capsule.core.event import Event, StepEnded
from capsule.journals.sqlite import SqliteJournal
from tests import warm
from tests.costs import LONG
from tests.git_server import GitServer, git_server

from ..conftest import UNSANDBOXED, Repo

if TYPE_CHECKING:
    from .backlog_project import BacklogProject

ITEM = "demo-1.1"
PASS = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done as asked"}
COMMIT = 'git add answer tests && git commit -q -m "$CAPSULE_COMMIT_MSG"'
TESTS = "for t in tests/test_*.sh; do sh $t || { echo $t fails; exit 1; }; done\n"
PHASES = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge")

Turn = dict[str, Any]
Script = dict[str, list[Turn]]


def said(status: str, feedback: str = "", **more: Any) -> Turn:
    """A turn that ends in this signal."""
    return {**more, "signal": {**PASS, "status": status, "feedback": feedback}}


def honest(**instead: list[Turn]) -> Script:
    """An agent that does what it is asked; a phase may be given other turns, as `test_writer=[...]`."""
    plays: Script = {
        "test-writer": [said("PASS", write={"tests/test_answer.sh": "grep -qx 42 answer\n"})],
        "test-review": [said("PASS")],
        "execute": [said("PASS", write={"answer": "42\n"})],
        "execute-review": [said("PASS")],
        "sign-off": [said("PASS")],
        "merge": [said("PASS", run=[COMMIT])],
    }
    return plays | {name.replace("_", "-"): turns for name, turns in instead.items()}


def bead(**fields: Any) -> dict[str, Any]:
    return {"id": ITEM, "title": "Find the answer", "description": "Make it 42.", "status": "open"} | fields


class Said(NamedTuple):
    """What a command said: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


class Project(Repo):
    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path)
        self.home = folder / "home"
        self.home.mkdir()
        self._script = folder / "script.json"
        self.always: dict[str, str] = {}
        """Set in the environment of every command."""
        self.play(honest())

    def play(self, script: Script, item: str = "*") -> None:
        """What the agent will do from now on."""
        self._script.write_text(json.dumps({item: script}))

    def play_each(self, scripts: Mapping[str, Script]) -> None:
        """What the agent will do for each of these items."""
        self._script.write_text(json.dumps(scripts))

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of whoever runs the tests, no sandbox, and no identity but that of the repository's own settings."""
        ours = {"CAPSULE_AGENT": "scripted", "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(self._script)])}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            **UNSANDBOXED,
            **ours,
            **self.always,
            **more,
        }

    def capsule(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Said:
        process = warm.Forked(["-m", "capsule", *words], cwd or self.path, self.environment(**(env or {})))
        out, err = process.communicate(timeout=5 * LONG)
        return Said(process.returncode, out, err)

    def say(
        self, *words: str, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Said:
        out, err = _listener(), _listener()
        with (
            chdir(cwd or self.path),
            mock.patch.dict(os.environ, self.environment(**(env or {})), clear=True),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                code = main(list(words))
            except SystemExit as stop:  # argparse's own way to end after --help
                code = int(stop.code or 0)
        return Said(code, _heard(out), _heard(err))

    def run(self, *words: str, **env: str) -> Said:
        return self.capsule("run", ITEM, *words, env=env)

    @contextmanager
    def running(self, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """`capsule run` under way; ended with the block, whatever happens in it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "capsule", "run", ITEM, *words],
            cwd=self.path,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(LONG)

    @property
    def worktree(self) -> Path:
        return self.path / ".capsule" / "worktrees" / ITEM

    @property
    def beads(self) -> Path:
        return self.path / ".beads" / "issues.jsonl"

    def status_of(self, item: str = ITEM) -> str:
        rows = [json.loads(line) for line in self.beads.read_text().splitlines()]
        return str(next(row["status"] for row in rows if row["id"] == item))

    def set_bead(self, **fields: Any) -> None:
        self.beads.write_text(json.dumps(bead(**fields)) + "\n")

    def answer(self, ref: str = "main") -> str:
        return self.git("show", f"{ref}:answer")

    def events(self, mission: str = ITEM) -> list[Event]:
        journal = SqliteJournal(self.path / ".git" / "capsule", read_only=True)
        found = [event for _, event in journal.events(mission)]
        journal.close()
        return found

    def walked(self) -> list[str]:
        """The steps that came to an end, in order, as `execute PASS`."""
        ended = [event for event in self.events() if isinstance(event, StepEnded)]
        return [f"{event.phase} {event.decision.verdict.value}" for event in ended]

    def outputs(self) -> Path:
        return self.path / ".capsule" / "missions" / ITEM / "outputs"

    def footprint(self) -> dict[str, str]:
        """Everything a command could have changed: refs, HEAD, worktrees, git's settings, the journal, every file."""
        settings = [self.path / ".git" / name for name in ("HEAD", "config", "info/exclude")]
        files = [path for path in self.path.rglob("*") if ".git" not in path.relative_to(self.path).parts[:1]]
        return {
            "refs": self.git("for-each-ref"),
            "worktrees": self.git("worktree", "list", "--porcelain"),
            "journal": str(self._journaled()),
            **{str(path.relative_to(self.path)): _digest(path) for path in [*settings, *files] if not path.is_dir()},
        }

    def _journaled(self) -> dict[str, int]:
        journal = SqliteJournal(self.path / ".git" / "capsule", read_only=True)
        found = {stream: len(journal.events(stream)) for stream in journal.streams()}
        journal.close()
        return found

    def dirt(self) -> str:
        """What git says is changed; the tracker writes its own file, and is no news."""
        return self.git("status", "--porcelain", "--", ".", ":!.beads")


def _listener() -> io.TextIOWrapper:
    """Like a real stream it takes text, and bytes by its buffer."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")


def _heard(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def _digest(path: Path) -> str:
    if not path.is_file():
        return f"link to {path.readlink()}" if path.is_symlink() else "nothing"
    return f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def assert_clear(answer: Said, code: int, cause: str, what_next: str) -> None:
    """One line of cause, one indented line of what to do next, the right exit code, and nothing else on stderr."""
    assert answer.code == code, answer
    lines = [line for line in answer.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 2, answer.err
    assert lines[0].startswith("capsule: "), answer.err
    assert lines[1].startswith("  "), answer.err
    assert cause in lines[0], answer.err
    assert what_next in lines[1], answer.err


@contextmanager
def nothing_changes(project: Project) -> Iterator[None]:
    before = project.footprint()
    yield
    assert project.footprint() == before


def begin(path: Path) -> Repo:
    """Nothing but `git init`, and an identity in the repository's own settings."""
    repo = Repo(path)
    repo.path.mkdir()
    repo.git("init", "-q", "-b", "main")
    repo.git("config", "user.name", "Ada")
    repo.git("config", "user.email", "ada@example.org")
    return repo


@pytest.fixture(scope="session")
def _prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = begin(tmp_path_factory.mktemp("prepared") / "project")
    repo.write(".capsule/config.yaml", "evidence: {test: sh tests/all.sh}\n")
    repo.write("tests/all.sh", TESTS)
    repo.write("tests/test_start.sh", "test -f answer\n")
    repo.write("answer", "41\n")
    repo.write("README.md", "The answer.\n")
    repo.write(".beads/issues.jsonl", json.dumps(bead()) + "\n")
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "start")
    return repo.path


def _begun(prepared: Path, folder: Path) -> Project:
    shutil.copytree(prepared, folder / "project", symlinks=True)
    return Project(folder / "project", folder)


@pytest.fixture
def a_project(_prepared: Path, tmp_path: Path) -> Project:
    """One commit on main, green tests, one open task."""
    return _begun(_prepared, tmp_path)


@pytest.fixture
def a_new_project(_prepared: Path, tmp_path: Path) -> Project:
    """The same, in a file whose projects are further on."""
    return _begun(_prepared, tmp_path)


@pytest.fixture(scope="session")
def _prepared_backlog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared_backlog")
    project = Project(begin(folder / "project").path, folder)
    answer = project.say("init")
    assert answer.code == 0, answer
    return project.path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "server") as served:
        yield served


@pytest.fixture
def a_backlog(_prepared_backlog: Path, tmp_path: Path) -> BacklogProject:
    """After `capsule init`: an empty backlog, committed, and agents that do what they are asked."""
    from .backlog_project import BacklogProject  # which is itself made of what is in this file

    shutil.copytree(_prepared_backlog, tmp_path / "project", symlinks=True)
    return BacklogProject(tmp_path / "project", tmp_path)


class Stage:
    """A project in which a mission has come somewhere, made once and copied for each test that begins there.

    Every copy is worked on in the same place: git and the journal know a project by its path.
    """

    def __init__(self, folder: Path, prepared: Path) -> None:
        self._place, self._kept = folder / "place", folder / "kept"
        self._prepared = prepared
        self.answer = Said(0, "", "")
        """What was said when it came there."""

    def begin(self, script: Script, code: int, *words: str, times: int = 1) -> Project:
        if not self._kept.exists():
            project = self._copy_of(self._prepared, script)
            for _ in range(times):
                self.answer = project.capsule(*words)
                assert self.answer.code == code, self.answer
            shutil.copytree(project.path, self._kept, symlinks=True)
        return self._copy_of(self._kept, script)

    def _copy_of(self, path: Path, script: Script) -> Project:
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(path, self._place / "project", symlinks=True)
        project = Project(self._place / "project", self._place)
        project.play(script)
        return project


@pytest.fixture(scope="session")
def _halted(_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("halted"), _prepared)


@pytest.fixture
def a_halted_mission(_halted: Stage) -> Project:
    """The execute agent gave up; the tests are written, the worktree is kept."""
    return _halted.begin(honest(execute=[said("ERROR", "the disk is full"), *honest()["execute"]]), 2, "run", ITEM)


@pytest.fixture(scope="session")
def _tests_written(_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("tests-written"), _prepared)


@pytest.fixture
def a_mission_at_execute(_tests_written: Stage) -> Project:
    """The tests are written and reviewed; the execute agent is next."""
    return _tests_written.begin(honest(), 0, "step", ITEM, times=2)


@pytest.fixture(scope="session")
def _merged(_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("merged"), _prepared)


@pytest.fixture
def a_merged_mission(_merged: Stage) -> Project:
    """Everything went well; the answer is on main."""
    return _merged.begin(honest(), 0, "run", ITEM)


@pytest.fixture
def merged_saying(a_merged_mission: Project, _merged: Stage) -> Said:
    """What `run` said of it."""
    return _merged.answer
