"""What the sandbox costs a phase: the same command in the same worktree, once as it is and once in bubblewrap.

One phase is what the engine does around an agent: let it in, run a command under the supervisor, see it out. The
command is `true`, or a commit of one file. Inside, that is a private git directory, a sandbox around the command, and
the import of what was committed; outside it is nothing but the command. Rounds are interleaved, and each starts from
the same state. Printed are the median and the quickest round by the clock, and the time that processors worked for it,
which other people's work on the same machine changes less. What the sandbox adds to the quickest round is to stay
under 30 ms.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from capsule.system.git import Git
from capsule.system.process import Command, SupervisorClient
from capsule.system.sandbox import Bubblewrap, homes, level
from capsule.workspaces.git_worktree import GitWorktree

ROUNDS = int(os.environ.get("ROUNDS", "30"))
FILES = int(os.environ.get("FILES", "300"))
MOST_MS = 30.0
COMMIT = "echo $$ >> grown && git add grown && git commit -q -m grown"
IDENTITY = {f"GIT_{role}_{what}": "bench@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def a_repository(root: Path) -> Git:
    root.mkdir()
    for number in range(FILES):
        file = root / f"folder{number % 20}" / f"file{number}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return Git.find(root)


class Phase:
    """A mission's worktree, and a way to run one command in it as a phase does."""

    def __init__(self, git: Git, mission: str, supervisor: SupervisorClient, sandbox: Bubblewrap | None) -> None:
        self.sandbox, self._supervisor = sandbox, supervisor
        self.place = GitWorktree(git, mission, mounted=sandbox is not None, confined=sandbox is not None)
        self.place.prepare(git.resolve("HEAD"))
        self._out = git.capsule_dir / f"{mission}.out"
        self._env = dict(os.environ)
        self.put_back = self._go_back_to(self.place.base_checkpoint(git.resolve("HEAD")))

    def _go_back_to(self, state: object) -> Callable[[], str]:
        return lambda: self.place.restore(state)  # type: ignore[arg-type]

    def around(self, script: str) -> AbstractContextManager[tuple[str, ...]]:
        argv = ("sh", "-c", script)
        if self.sandbox is None:
            return nullcontext(argv)
        return self.sandbox.around(argv, cwd=self.place.path, env=self._env, sandbox_paths=self.place.open_sandbox())

    def run(self, script: str) -> float:
        self.put_back()
        began = time.perf_counter()
        with self.around(script) as argv:
            ended = self._supervisor.run(Command(argv, self.place.path, self._env, self._out, self._out))
        self.place.import_commits()
        seconds = time.perf_counter() - began
        assert ended.ok, self._out.read_text()
        return seconds * 1000


def by_the_clock(script: str, git: Git, sandbox: Bubblewrap) -> tuple[list[float], list[float]]:
    with SupervisorClient() as supervisor:
        bare, boxed = Phase(git, "bare", supervisor, None), Phase(git, "boxed", supervisor, sandbox)
        rounds = [(bare.run(script), boxed.run(script)) for _ in range(ROUNDS + 1)][1:]
    outside, inside = zip(*rounds, strict=True)
    return sorted(outside), sorted(inside)


def by_processors(script: str, git: Git, sandbox: Bubblewrap | None) -> float:
    """Milliseconds a phase, of ours and of everything that we started; a supervisor's count when it has gone."""
    before = _worked()
    with SupervisorClient() as supervisor:
        phase = Phase(git, "boxed" if sandbox else "bare", supervisor, sandbox)
        for _ in range(ROUNDS):
            phase.run(script)
    return (_worked() - before) / ROUNDS * 1000


def _worked() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> int:
    found = level("auto", os.environ)
    if not found.program:
        print(f"sandbox: skipped, {found.why}")
        return 0
    os.environ.update(IDENTITY)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        git = a_repository(Path(folder, "project"))
        sandbox = Bubblewrap(found, (str(git.root), str(git.common_dir)), homes(os.environ))
        for name, script in (("true", "true"), ("a commit", COMMIT)):
            outside, inside = by_the_clock(script, git, sandbox)
            worst = max(worst, inside[0] - outside[0])
            _say(name, "quickest", outside[0], inside[0])
            _say(name, "median", statistics.median(outside), statistics.median(inside))
            _say(name, "processors", by_processors(script, git, None), by_processors(script, git, sandbox))
    print(f"the sandbox adds {worst:.1f} ms to the quickest phase (limit {MOST_MS:.0f} ms)")
    return 0 if worst < MOST_MS else 1


def _say(name: str, how: str, without: float, within: float) -> None:
    print(f"{name:9} {how:11} without {without:6.1f} ms   with {within:6.1f} ms   {within - without:+6.1f} ms")


if __name__ == "__main__":
    sys.exit(main())
