"""Many missions at once, with agents that sleep: is each merged exactly once, and what does each cost?

`MISSIONS` (50) tdd missions are run by one `capsule run --jobs` (all at once), then a few one after the other, then
`SEPARATE` (32) by a `capsule run ID` each, started by hand from a shell. `CONFLICTS` (0) is the share in percent of
missions that change the same line, half of it besides of such that are green alone and red together.

Prints what was merged and what needs a person, wall time, CPU of our own for each mission (that of agents and tests,
measured bare in the same run, is taken off), the memory of a runner with its supervisor while all of them run (PSS),
and whether every commit of main's first-parent line is green when it is tried afterwards.
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
from pathlib import Path

MISSIONS = int(os.environ.get("MISSIONS", "50"))
SEPARATE = int(os.environ.get("SEPARATE", "32"))
ONE_BY_ONE = 5
CONFLICTS = int(os.environ.get("CONFLICTS", "0"))
SLEEP = os.environ.get("SLEEP", "2")
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


def make_project(folder: Path, names: list[str]) -> Path:
    root, agent = folder / "project", folder / "agent.sh"
    for each in (root / ".beads", root / ".capsule"):
        each.mkdir(parents=True)
    agent.write_text(AGENT % SLEEP)
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
        subprocess.run(["sh", folder / "agent.sh"], cwd=folder / "bare", env=env, check=True, capture_output=True)
        subprocess.run(["sh", "-c", TEST], cwd=folder / "bare", env=env, check=False)
    return cpu() - before


def memory() -> list[float]:
    """MB (PSS) of each runner with its supervisor, in a moment at which all of them run."""
    found: dict[str, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if not any(b"capsule" in word for word in words[:4]):
                continue
            parent = re.search(r"PPid:\s+(\d+)", (folder / "status").read_text())
            pss = re.search(r"Pss:\s+(\d+)", (folder / "smaps_rollup").read_text())
        except OSError:
            continue
        runner = folder.name if b"_runner" in words else parent[1] if parent else ""
        found[runner] = found.get(runner, 0) + (int(pss[1]) / 1024 if pss else 0)
    runners = {name: size for name, size in found.items() if is_runner(name)}
    return sorted(runners.values())


def is_runner(pid: str) -> bool:
    try:
        return b"_runner" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def outcome(root: Path, names: list[str]) -> dict[str, int]:
    """How many were merged, more than once, and how many need a person; and commits of main that are red."""
    subjects = git(root, "log", "--first-parent", "--merges", "--format=%s", "main").splitlines()
    merged = [subject.split(":")[0].removeprefix("Merge ") for subject in subjects]
    told = json.loads(
        subprocess.run(
            [*CAPSULE, "status", "--json"], cwd=root, env=ENVIRONMENT, capture_output=True, check=True
        ).stdout
    )
    needs = sum("needs" in str(row.get("status", "")) for row in told)
    red = 0
    for commit in git(root, "rev-list", "--first-parent", "--merges", "main").split():
        git(root, "worktree", "add", "-q", "--detach", "--force", str(root.parent / "tried"), commit)
        red += subprocess.run(["sh", "-c", TEST], cwd=root.parent / "tried", check=False).returncode != 0
        git(root, "worktree", "remove", "--force", str(root.parent / "tried"))
    once = {*merged} & {*names}
    return {"merged": len(once), "twice": len(merged) - len({*merged}), "need you": needs, "red commits": red}


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def names_of(many: int) -> list[str]:
    clash = many * CONFLICTS // 100
    kinds = ["text"] * clash + ["both"] * (clash // 2)
    return [f"{(kinds[number] if number < len(kinds) else 'task')}-{number}" for number in range(many)]


def side_by_side(many: int, jobs: int) -> float:
    """Run so many with so many at a time; print, and return our own CPU for each."""
    with tempfile.TemporaryDirectory() as name:
        folder, names = Path(name), names_of(many)
        root, floor = make_project(folder, names), bare(folder) if jobs > 1 else 0.0
        before, began, sizes = cpu(), time.perf_counter(), list[float]()
        with (folder / "said").open("wb") as said:
            run = subprocess.Popen(
                [*CAPSULE, "run", "--jobs", str(jobs)], cwd=root, env=ENVIRONMENT, stdout=said, stderr=said
            )
            while run.poll() is None:
                time.sleep(1)
                now = memory() if jobs > 1 else []
                sizes = now if len(now) > len(sizes) else sizes
        wall, each = time.perf_counter() - began, (cpu() - before) / many
        own = each - floor if floor else each
        print(f"--jobs {jobs}: {many} missions, exit {run.returncode}, {outcome(root, names)}")
        print(
            f"  {wall:.1f} s wall, {each:.2f} s CPU each"
            + (f", {floor:.2f} s of it agents and tests, {own:.2f} s ours (aim: 0.7)" if floor else "")
        )
        if sizes:
            print(
                f"  {len(sizes)} runners with supervisors: {statistics.median(sizes):.1f} MB PSS each, "
                f"at most {sizes[-1]:.1f} (aim: 25)"
            )
        if run.returncode:
            print((folder / "said").read_text()[-2000:])
        return own


def separate(many: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        names = [f"task-{number}" for number in range(many)]
        root, began = make_project(Path(name), names), time.perf_counter()
        said = [(Path(name) / f"{item}.said").open("wb") for item in names]
        runs = [
            subprocess.Popen([*CAPSULE, "run", item], cwd=root, env=ENVIRONMENT, stdout=out, stderr=out)
            for item, out in zip(names, said, strict=True)
        ]
        codes = [run.wait() for run in runs]
        for out in said:
            out.close()
        print(f"{many} separate runs: {codes.count(0)} ended with 0, {outcome(root, names)}, "
              f"{time.perf_counter() - began:.1f} s wall")  # fmt: skip
        for item, code in zip(names, codes, strict=True):
            if code:
                print(f"  {item}: {(Path(name) / f'{item}.said').read_text()[-600:]}")


def main() -> None:
    if MISSIONS:
        side_by_side(MISSIONS, MISSIONS)
        side_by_side(ONE_BY_ONE, 1)
    if SEPARATE:
        separate(SEPARATE)


if __name__ == "__main__":
    main()
