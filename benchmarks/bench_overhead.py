"""What Capsule itself costs: one mission with an instant agent and tracker, beside the floor measured in the same run.

The floor is what no implementation could leave out: the same git commands and the same agent and test spawns, started
bare, one after the other, in a copy of the same repository. Prints wall time and CPU of both, their ratio, where the
rest goes, and the start-up of `--version` and `show` beside bare Python. Figures are medians of interleaved rounds.
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
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    "GIT_AUTHOR_NAME": "Bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "Bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
}  # fmt: skip
RECORDER = """\
import json, sys
from pathlib import Path
import capsule.system.git as git, capsule.system.process as process
from capsule.cli import main
out, spawn, run = [], git._spawn, process.SupervisorClient.run
def recorded_spawn(args, environment, cwd, given=None):
    text = (given or b"").decode("latin1")
    out.append({"argv": ["git", *args], "env": dict(environment), "cwd": str(cwd), "in": text})
    return spawn(args, environment, cwd, given)
def recorded_run(self, command, **more):
    out.append({"argv": list(command.argv), "env": dict(command.env), "cwd": str(command.cwd), "in": ""})
    return run(self, command, **more)
git._spawn, process.SupervisorClient.run = recorded_spawn, recorded_run
code = main(["run", "one"])
Path(sys.argv[1]).write_text(json.dumps(out))
sys.exit(code)
"""


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
        'evidence: {test: "test ! -e tests.sh || sh tests.sh", test_globs: [tests.sh]}\n'
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


def replay(calls: list[dict[str, object]], old: Path, new: Path) -> None:
    """The same commands, bare, in another copy of the repository."""
    for call in calls:
        text = json.dumps(call).replace(str(old), str(new))
        again = json.loads(text)
        cwd = Path(again["cwd"])
        run(again["argv"], cwd if cwd.is_dir() else new, again["env"], again["in"].encode("latin1"))


def fresh(template: Path, name: str) -> Path:
    target = template.parent / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(template, target, symlinks=True)
    return target


def start_up(project: Path) -> dict[str, float]:
    """Median milliseconds of commands that start no agent, interleaved with bare Python."""
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "capsule --version": [*CAPSULE, "--version"],
        "capsule show": [*CAPSULE, "show", "one"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS * 3):
        for name, argv in commands.items():
            seconds[name].append(measured(partial(_checked, argv, project))[0])
    return {name: statistics.median(taken) * 1000 for name, taken in seconds.items()}


def _checked(argv: list[str], project: Path) -> None:
    if run(argv, project) != 0:
        raise SystemExit(f"{argv} failed")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template"
        make_project(template)
        recorder, log = Path(folder) / "recorder.py", Path(folder) / "calls.json"
        recorder.write_text(RECORDER)
        recorded = fresh(template, "recorded")
        _checked([sys.executable, str(recorder), str(log)], recorded)
        calls = json.loads(log.read_text())
        missions, floors = [], []
        for _ in range(ROUNDS):
            project = fresh(template, "mission")
            missions.append(measured(partial(_checked, [*CAPSULE, "run", "one"], project)))
            bare = fresh(template, "floor")
            floors.append(measured(partial(replay, calls, recorded, bare)))
        report(calls, missions, floors, start_up(project))


def report(
    calls: list[dict[str, object]],
    missions: list[tuple[float, float]],
    floors: list[tuple[float, float]],
    starts: dict[str, float],
) -> None:
    wall, cpu = (statistics.median(column) for column in zip(*missions, strict=True))
    floor_wall, floor_cpu = (statistics.median(column) for column in zip(*floors, strict=True))
    gits = sum(call["argv"][0] == "git" for call in calls)  # type: ignore[index]
    print(f"one mission:   {wall * 1000:6.0f} ms wall  {cpu * 1000:6.0f} ms CPU")
    print(f"its floor:     {floor_wall * 1000:6.0f} ms wall  {floor_cpu * 1000:6.0f} ms CPU  "
          f"({gits} git commands, {len(calls) - gits} agent and test spawns, bare)")  # fmt: skip
    print(f"ratio:         {wall / floor_wall:6.2f} x wall   {cpu / floor_cpu:6.2f} x CPU   (aim: at most 3)")
    rest = wall - floor_wall - starts["capsule show"] / 1000
    print(f"of the rest:   {starts['capsule show']:6.0f} ms start-up of a command, {rest * 1000:.0f} ms deciding, "
          "journal, files and supervision")  # fmt: skip
    for name in ("capsule --version", "capsule show"):
        print(f"{name + ':':<19}{starts[name]:6.1f} ms  {starts[name] / starts['python']:5.2f} x bare Python start "
              f"({starts['python']:.1f} ms)")  # fmt: skip


if __name__ == "__main__":
    main()
