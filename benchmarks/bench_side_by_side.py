"""Many missions at once, with agents that sleep: is each merged exactly once, and what does each cost?

`MISSIONS` (50) tdd missions are run by one `capsule run --jobs` (all at once); then a few one after the other; then
as many as before, of which `CONFLICTS` (20) percent change the same line, and half as many besides are green alone and
red together; then `SEPARATE` (32) by a `capsule run ID` each, started by hand from a shell.

Prints what was merged and what needs a person, wall time, CPU of our own for each mission (that of agents and tests,
measured bare in the same run, is taken off), the memory of a runner with its supervisor while most of them run (PSS,
at its largest), and whether every commit of main's first-parent line is green when it is tried afterwards. The exit
code is 1 where a mission was not merged, or twice, or needs a person who is not told which other one stands in its way,
or is told one that does not; where a commit is red; and where a figure is above its limit. Memory has one where many
run, which share pages.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from capsule.core.state import replay
from capsule.project import open_project

MISSIONS = int(os.environ.get("MISSIONS", "50"))
SEPARATE = int(os.environ.get("SEPARATE", "32"))
ONE_BY_ONE = 5
CONFLICTS = int(os.environ.get("CONFLICTS", "20"))
SLEEP = float(os.environ.get("SLEEP", "6"))
"""Seconds that an agent takes: so long that the first is still at work when the last one has begun."""
MOST_CPU, MOST_MB = 0.7, 25.0
"""Of our own for one mission: seconds, and PSS of its runner and supervisor."""
CAPSULE = [str(Path(sys.executable).with_name("capsule"))]
AGENT = """\
sleep %s
case $CAPSULE_PHASE in
test-writer) echo "test -e made-$CAPSULE_ITEM" > tests-$CAPSULE_ITEM.sh;;
execute)
    touch made-$CAPSULE_ITEM
    case $CAPSULE_ITEM in
    text-*) if grep -q '<<<<' shared; then grep -v '^[<=>|]' shared | sort -u > new; mv new shared; fi
            grep -q "^$CAPSULE_ITEM$" shared || echo $CAPSULE_ITEM >> shared;;
    both-*) [ $CAPSULE_RUN -gt 1 ] || touch both-$CAPSULE_ITEM;;
    esac;;
merge) git add -A .; git commit -q -m "$CAPSULE_COMMIT_MSG";;
esac
echo '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
"""
TEST = "for t in tests-*.sh; do test ! -e $t || sh $t || exit 1; done; test $(ls -d both-* 2>/dev/null | wc -l) -le 1"
SPAWNS = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    **{f"GIT_{who}_{what}": "bench@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def make_project(folder: Path, names: list[str], seconds: float) -> Path:
    root, agent = folder / "project", folder / "agent.sh"
    for each in (root / ".beads", root / ".capsule"):
        each.mkdir(parents=True)
    agent.write_text(AGENT % seconds)
    rows = ({"id": name, "title": f"Make {name}", "status": "open", "issue_type": "task"} for name in names)
    (root / ".beads/issues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / ".capsule/config.yaml").write_text(
        f"agent: sleepy\nagents: {{sleepy: {{command: [sh, {agent}]}}}}\nsandbox: 'off'\n"
        f"execution: {{default_phase_cap: 100000}}\nevidence: {{test: \"{TEST}\", test_globs: ['tests-*.sh']}}\n"
    )
    (root / "shared").write_text("first\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, check=True, env=ENVIRONMENT)
    return root


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bare(folder: Path) -> float:
    """CPU of the agents and test runs of one mission, started bare."""
    (folder / "bare").mkdir()
    (folder / "bare.sh").write_text(AGENT % 0)
    subprocess.run(["git", "init", "-q"], cwd=folder / "bare", check=True, env=ENVIRONMENT)
    (folder / "bare/shared").write_text("first\n")
    before = cpu()
    for phase in SPAWNS:
        env = {
            **ENVIRONMENT,
            "CAPSULE_PHASE": phase,
            "CAPSULE_ITEM": "x",
            "CAPSULE_RUN": "1",
            "CAPSULE_COMMIT_MSG": "x",
        }
        subprocess.run(["sh", folder / "bare.sh"], cwd=folder / "bare", env=env, check=True, capture_output=True)
        subprocess.run(["sh", "-c", TEST], cwd=folder / "bare", env=env, check=False)
    return cpu() - before


def memory(queue: int) -> list[float]:
    """MB (PSS) of each runner of a queue with its supervisor, now."""
    parents, sizes = dict[int, int](), dict[int, float]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            if b"supervisor.main()" not in line and b"_runner" not in line.split(b"\0"):
                continue
            parent = re.search(r"PPid:\s+(\d+)", (folder / "status").read_text())
            pss = re.search(r"Pss:\s+(\d+)", (folder / "smaps_rollup").read_text())
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(parent[1]) if parent else 0
        sizes[int(folder.name)] = int(pss[1]) / 1024 if pss else 0.0
    runners = [pid for pid, parent in parents.items() if parent == queue]
    return sorted(sum(sizes[pid] for pid in sizes if runner in (pid, parents[pid])) for runner in runners)


class Outcome(NamedTuple):
    """What came of a run: missions that were merged, twice, or need a person; what is wrong with it."""

    merged: int
    needs_you: int
    faults: list[str]


def outcome(root: Path, names: list[str]) -> Outcome:
    """Compare main with the journal, and try every commit of main's first-parent line."""
    subjects = git(root, "log", "--first-parent", "--merges", "--format=%s", "main").splitlines()
    merged = Counter(subject.split(":")[0].removeprefix("Merge ") for subject in subjects)
    faults = [f"{name} was merged {count} times" for name, count in merged.items() if count > 1]
    brought = git(root, "ls-tree", "--name-only", "main").split()
    faults += [f"{name} was merged without its work" for name in merged if f"made-{name}" not in brought]
    journal = open_project(str(root)).journal()
    states = {name: replay(event for _, event in journal.events(name)) for name in names if name not in merged}
    journal.close()
    for name, state in states.items():
        reason = state.halt.reason if state.halt else ""
        if not reason:
            faults.append(f"{name} is neither merged nor needs a person")
        elif not names_whom_it_clashes_with(name, reason):
            faults.append(f"{name} does not name those that it clashes with, and no other: {reason[:300]}")
    for commit in git(root, "rev-list", "--first-parent", "--merges", "main").split():
        git(root, "worktree", "add", "-q", "--detach", "--force", str(root.parent / "tried"), commit)
        if subprocess.run(["sh", "-c", TEST], cwd=root.parent / "tried", check=False).returncode:
            faults.append(f"{commit} is red")
        git(root, "worktree", "remove", "--force", str(root.parent / "tried"))
    return Outcome(len(merged), len(states), faults)


def names_whom_it_clashes_with(name: str, reason: str) -> bool:
    """Two of the same kind, `text` or `both`, clash; nothing else does."""
    kind, named = name.partition("-")[0], re.findall(r"(\S+) \(git diff", reason)
    return kind != "task" and bool(named) and all(n.startswith(f"{kind}-") and n != name for n in named)


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def names_of(many: int, conflicts: int) -> list[str]:
    clash = many * conflicts // 100
    kinds = ["text"] * clash + ["both"] * (clash // 2)
    return [f"{(kinds[number] if number < len(kinds) else 'task')}-{number}" for number in range(many)]


def side_by_side(many: int, jobs: int, *, conflicts: int = 0) -> list[str]:
    """Run so many with so many at a time; print what came of it and what it cost, and return what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder, names, seconds = Path(name), names_of(many, conflicts), SLEEP if jobs > 1 else 1.0
        root = make_project(folder, names, seconds)
        floor = bare(folder)
        before, began, sizes = cpu(), time.perf_counter(), list[float]()
        with (folder / "said").open("wb") as said:
            run = subprocess.Popen(
                [*CAPSULE, "run", "--jobs", str(jobs)], cwd=root, env=ENVIRONMENT, stdout=said, stderr=said
            )
            while run.poll() is None:
                time.sleep(1)
                sizes = max(memory(run.pid), sizes, key=lambda found: (len(found), sum(found)))
        wall, each = time.perf_counter() - began, (cpu() - before) / many
        own, (merged, needs_you, faults) = each - floor, outcome(root, names)
        clashing = f", {conflicts} % in conflict" if conflicts else ""
        print(f"--jobs {jobs}: {many} missions{clashing}: {merged} merged, {needs_you} need you, exit {run.returncode}")
        print(f"  {wall:.1f} s wall; {each:.2f} s CPU each, {own:.2f} of it ours (limit {MOST_CPU})")
        middle, most = (statistics.median(sizes), sizes[-1]) if sizes else (0.0, 0.0)
        told = f"{len(sizes)} runners with supervisors at once"
        limit = f"limit {MOST_MB}" if jobs > 1 else "no limit: it shares its pages with no other"
        print(f"  {told}: {middle:.1f} MB PSS, at most {most:.1f} ({limit})")
        if not conflicts:
            faults += [f"{needs_you} need you, exit {run.returncode}"] * bool(needs_you or run.returncode)
            faults += [f"{own:.2f} s CPU for a mission"] * (own > MOST_CPU)
        faults += [f"{most:.1f} MB for a runner"] * (jobs > 1 and most > MOST_MB)
        faults += [f"only {len(sizes)} of {jobs} ran at once"] * (len(sizes) < min(jobs, many))
        if faults:
            print((folder / "said").read_text()[-2000:])
        return faults


def separate(many: int) -> list[str]:
    """Start each by a command of its own, all at once; print what came of it, and return what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        names = names_of(many, 0)
        root, began = make_project(Path(name), names, SLEEP), time.perf_counter()
        said = [(Path(name) / f"{item}.said").open("wb") for item in names]
        runs = [
            subprocess.Popen([*CAPSULE, "run", item], cwd=root, env=ENVIRONMENT, stdout=out, stderr=out)
            for item, out in zip(names, said, strict=True)
        ]
        codes = [run.wait() for run in runs]
        for out in said:
            out.close()
        wall, (merged, needs_you, faults) = time.perf_counter() - began, outcome(root, names)
        print(
            f"{many} separate runs: {merged} merged, {needs_you} need you, {codes.count(0)} exit 0, {wall:.1f} s wall"
        )
        told = [
            (item, code, (Path(name) / f"{item}.said").read_text()) for item, code in zip(names, codes, strict=True)
        ]
        return faults + [f"{item} ended with {code}: {text[-600:]}" for item, code, text in told if code]


def main() -> int:
    faults = list[str]()
    if MISSIONS:
        faults += side_by_side(MISSIONS, MISSIONS)
        faults += side_by_side(ONE_BY_ONE, 1)
    if MISSIONS and CONFLICTS:
        faults += side_by_side(MISSIONS, MISSIONS, conflicts=CONFLICTS)
    if SEPARATE:
        faults += separate(SEPARATE)
    print("\n".join(faults) or "each was merged once, or needs a person who is told why")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
