"""What Capsule itself costs: one mission with an instant agent and tracker, beside two floors measured in the same run.

The *fixed* floor is a hundred short git processes and the agent and test spawns of the mission, started bare, one after
the other: about what a mission takes whose every question to git is a process of its own. It does not change with what
Capsule does, so figures of different versions can be compared by it, and the aim of at most three times refers to it.
The *own* floor is the very git commands that this mission started, bare, in a copy of the repository, and the same
spawns: fewer processes make it lower, so the multiple of it says how much is not git, not which version is better.

Where the mission's agents and tests ran in bubblewrap, those of the floors do too, in one that shows the whole machine.

Prints git processes, wall time and CPU of the mission and both floors, as medians of interleaved rounds; and the
start-up of `--version` and `show` beside bare Python, as the least CPU of any round, which other work on the same
machine changes least. Ends with 1 if a limit is passed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = int(os.environ.get("ROUNDS", "7"))
CAPSULE = [str(Path(sys.executable).with_name("capsule"))]
AGENT = """\
case $CAPSULE_PHASE in
test-writer) echo 'test -e hello' > tests.sh;;
execute) echo hello > hello;;
merge) git add hello tests.sh; git commit -q -m "$CAPSULE_COMMIT_MSG";;
esac
echo '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
"""
TEST = "test ! -e tests.sh || sh tests.sh"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    "GIT_AUTHOR_NAME": "Bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "Bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
}  # fmt: skip
RECORDER = """\
import json, sys
from pathlib import Path
import capsule.system.git as git, capsule.system.git_objects as store, capsule.system.process as process
from capsule.cli import main
out, spawn, open_reader, answers = [], git._spawn, store.ObjectReader.__init__, store.ObjectReader._answers
run = process.SupervisorClient.run
def recorded_spawn(args, environment, cwd, given=None, umask=-1):
    text = (given or b"").decode("latin1")
    out.append({"argv": ["git", *args], "env": dict(environment), "cwd": str(cwd), "in": text})
    return spawn(args, environment, cwd, given, umask)
def recorded_reader(self, start, timeout):
    def recorded_start():
        process = start()
        words = Path(f"/proc/{process.pid}/environ").read_bytes().decode("latin1").split("\\0")
        argv = ["git", "cat-file", "--batch-command"]
        out.append({"argv": argv, "env": dict(word.split("=", 1) for word in words if word), "cwd": "/", "in": ""})
        return process
    open_reader(self, recorded_start, timeout)
def recorded_answers(self, command, oids):
    found = answers(self, command, oids)
    reader = next(call for call in reversed(out) if "--batch-command" in call["argv"])
    reader["in"] += "".join(f"{command} {oid}\\n" for oid in oids)
    return found
def recorded_run(self, command, **more):
    out.append({"argv": list(command.argv), "env": dict(command.env), "cwd": str(command.cwd), "in": ""})
    return run(self, command, **more)
git._spawn, process.SupervisorClient.run = recorded_spawn, recorded_run
store.ObjectReader.__init__, store.ObjectReader._answers = recorded_reader, recorded_answers
code = main(["run", "one"])
Path(sys.argv[1]).write_text(json.dumps(out))
sys.exit(code)
"""
GITS_OF_THE_FIXED_FLOOR = 100
MOST_GITS = 60
MOST_FOR_VERSION = 1.2
"""As a multiple of bare Python's start."""


def make_project(root: Path) -> None:
    (root / ".beads").mkdir(parents=True)
    (root / ".capsule").mkdir()
    agent = root.parent / "agent.sh"
    agent.write_text(AGENT)
    (root / "README.md").write_text("A project.\n")
    (root / ".beads" / "issues.jsonl").write_text(
        '{"id":"one","title":"Say hello","status":"open","issue_type":"task"}\n'
    )
    (root / ".capsule" / "config.yaml").write_text(
        f"agent: instant\nagents: {{instant: {{command: [sh, {agent}]}}}}\n"
        f'evidence: {{test: "{TEST}", test_globs: [tests.sh]}}\n'
    )
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, check=True, env=ENVIRONMENT)


def measured(work: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds, children included."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(argv: list[str], cwd: Path, env: Mapping[str, str] = ENVIRONMENT, given: bytes = b"") -> int:
    done = subprocess.run(argv, cwd=cwd, env=env, input=given, capture_output=True, check=False)
    return done.returncode


def replay(calls: list[dict[str, Any]], old: Path, new: Path) -> None:
    """The same commands, bare, in another copy of the repository."""
    for call in calls:
        text = json.dumps(call).replace(str(old), str(new))
        again = json.loads(text)
        cwd = Path(again["cwd"])
        argv = again["argv"] if again["argv"][0] == "git" else bare_spawn(again["argv"], new)
        run(argv, cwd if cwd.is_dir() else new, again["env"], again["in"].encode("latin1"))


def bare_spawn(argv: list[str], root: Path) -> list[str]:
    """The agent or the test command of this mission, in a plain sandbox if it was in one."""
    agent = str(root.parent / "agent.sh")
    command = ["sh", agent] if agent in argv else ["sh", "-c", TEST]
    boxed = next((word for word in argv if word.endswith("/bwrap")), "")
    return [boxed, "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", *command] if boxed else command


def bare_gits(calls: list[dict[str, Any]], old: Path, new: Path) -> None:
    """The fixed floor: as many short gits as a mission asked for when each question was one, and its other spawns."""
    for _ in range(GITS_OF_THE_FIXED_FLOOR):
        run(["git", "rev-parse", "--verify", "HEAD"], new)
    replay([call for call in calls if call["argv"][0] != "git"], old, new)


def fresh(template: Path) -> Path:
    """Copy the project into a folder of its own.

    None is removed between the rounds: before it makes a file, ext4 passes over all that were deleted in the last
    minute, and that would be counted as the next mission's CPU.
    """
    target = Path(tempfile.mkdtemp(dir=template.parent)) / "project"
    shutil.copytree(template, target, symlinks=True)
    return target


def start_up(project: Path) -> dict[str, float]:
    """Least milliseconds of CPU of commands that start no agent, interleaved with bare Python."""
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "capsule --version": [*CAPSULE, "--version"],
        "capsule show": [*CAPSULE, "show", "one"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS * 3):
        for name, argv in commands.items():
            seconds[name].append(measured(partial(_checked, argv, project))[1])
    return {name: min(taken) * 1000 for name, taken in seconds.items()}


def _checked(argv: list[str], project: Path) -> None:
    if run(argv, project) != 0:
        raise SystemExit(f"{argv} failed")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template"
        make_project(template)
        recorder, log = Path(folder) / "recorder.py", Path(folder) / "calls.json"
        recorder.write_text(RECORDER)
        recorded = fresh(template)
        _checked([sys.executable, str(recorder), str(log)], recorded)
        calls = json.loads(log.read_text())
        missions, own, fixed = [], [], []
        for _ in range(ROUNDS):
            project = fresh(template)
            missions.append(measured(partial(_checked, [*CAPSULE, "run", "one"], project)))
            own.append(measured(partial(replay, calls, recorded, fresh(template))))
            fixed.append(measured(partial(bare_gits, calls, recorded, fresh(template))))
        report(calls, missions, {"fixed": fixed, "own": own}, start_up(project))


def report(
    calls: list[dict[str, Any]],
    missions: list[tuple[float, float]],
    floors: dict[str, list[tuple[float, float]]],
    starts: dict[str, float],
) -> None:
    gits = sum(call["argv"][0] == "git" for call in calls)
    spawns = len(calls) - gits
    wall, cpu = (statistics.median(column) for column in zip(*missions, strict=True))
    print(f"one mission:   {wall * 1000:6.0f} ms wall  {cpu * 1000:6.0f} ms CPU  ({gits} git processes, at most "
          f"{MOST_GITS}; {spawns} agent and test spawns)")  # fmt: skip
    for name, floor in floors.items():
        floor_wall, floor_cpu = (statistics.median(column) for column in zip(*floor, strict=True))
        about = f"{gits if name == 'own' else GITS_OF_THE_FIXED_FLOOR} gits and the spawns, bare"
        print(f"{name + ' floor:':<15}{floor_wall * 1000:6.0f} ms wall  {floor_cpu * 1000:6.0f} ms CPU  ({about})")
        print(f"ratio:         {wall / floor_wall:6.2f} x wall   {cpu / floor_cpu:6.2f} x CPU"
              + ("   (aim: at most 3)" if name == "fixed" else ""))  # fmt: skip
    print(f"of it:         {starts['capsule show']:6.0f} ms CPU for the start-up of a command")
    for name, limit in (("capsule --version", f", at most {MOST_FOR_VERSION}"), ("capsule show", "")):
        print(f"{name + ':':<19}{starts[name]:6.1f} ms  {starts[name] / starts['python']:5.2f} x bare Python start "
              f"({starts['python']:.1f} ms){limit}")  # fmt: skip
    if gits > MOST_GITS or starts["capsule --version"] > MOST_FOR_VERSION * starts["python"]:
        raise SystemExit("A limit is passed.")


if __name__ == "__main__":
    main()
