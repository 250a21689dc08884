"""What reading beads costs, as a multiple of a floor that no implementation could leave out.

Of the file, the floor is to read it and `json.loads` each of its lines. Of bd, it is the same with what one bare `bd
export` prints, by a stand-in that does nothing else; ours asks for what is ready as well. What counts is the time that
processors worked for it, children included. Both are measured in the same rounds, and the best of them counts.

Then whole commands, as a user runs them, on ten and on ten thousand beads of either kind, as multiples of `capsule
version`: what ten cost is start-up.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from capsule.trackers import beads, beads_file

SIZES = (10, 1_000)
MANY = 10_000
CAPSULE = str(Path(sys.executable).with_name("capsule"))
COMMANDS = (["status"], ["run", "--dry-run"])
ROUNDS = int(os.environ.get("ROUNDS", "7"))
STAMP = "2026-01-05T09:00:00Z"
STAND_IN = """\
#!/bin/sh
for word; do
    case $word in
    version) echo '{"version": "1.0.5"}'; exit ;;
    export) exec cat .beads/issues.jsonl ;;
    ready) exec cat .beads/ready.json ;;
    show) exec grep -m 1 -F "\\"id\\": \\"$2\\"" .beads/issues.jsonl ;;
    esac
done
exit 1
"""


def bead(number: int) -> dict[str, object]:
    """One of ten is a feature that holds the nine after it, each of which waits for the one before."""
    name, feature = f"bench-{number}", f"bench-{number - number % 10}"
    links = [("parent-child", feature)] if number % 10 else []
    links += [("blocks", f"bench-{number - 1}")] if number % 10 > 1 else []
    return {
        "id": name,
        "title": f"Bead {number} of many, with a title of usual length",
        "description": "What is to be done, and why, in a sentence or two that somebody wrote. " * 4,
        "status": "open",
        "priority": number % 5,
        "issue_type": "task" if number % 10 else "feature",
        "created_at": STAMP,
        "updated_at": STAMP,
        "dependencies": [{"issue_id": name, "depends_on_id": to, "type": kind} for kind, to in links],
    }


def make_project(root: Path, count: int) -> None:
    """Its bd is a stand-in that costs as little as a program can, so that the rest is ours."""
    rows = [bead(number) for number in range(count)]
    (root / ".beads").mkdir()
    (root / ".beads/issues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / ".beads/ready.json").write_text(json.dumps([row for number, row in enumerate(rows) if number % 10 < 2]))
    program = root / "bin/bd"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)


def ratio(work: Callable[[], object], floor: Callable[[], object]) -> float:
    """Both in turn, so that what disturbs one disturbs the other."""
    taken = [(_seconds(work), _seconds(floor)) for _ in range(ROUNDS)]
    return min(mine for mine, _ in taken) / min(bare for _, bare in taken)


def _seconds(work: Callable[[], object]) -> float:
    start = _worked()
    work()
    return _worked() - start


def _worked() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def parsed(rows: bytes) -> list[object]:
    return [json.loads(row) for row in rows.splitlines()]


def of_the_file(root: Path) -> float:
    rows = root / ".beads/issues.jsonl"
    return ratio(lambda: beads_file.connect(root).items(), lambda: parsed(rows.read_bytes()))


def of_bd(root: Path) -> float:
    os.environ["PATH"] = f"{root / 'bin'}:{os.environ['PATH']}"
    return ratio(
        lambda: beads.connect(root, root / "lock").items(),
        lambda: parsed(subprocess.run(["bd", "export"], cwd=root, capture_output=True, check=True).stdout),
    )


def of_commands(root: Path, tracker: str) -> list[float]:
    """Each command on a project of this tracker, as a multiple of saying the version."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))}
    (root / ".capsule").mkdir(exist_ok=True)
    (root / ".capsule/config.yaml").write_text(
        f"tracker: {tracker}\nagent: instant\nagents: {{instant: {{command: [sh]}}}}\n"
    )

    def run(*argv: str) -> None:
        subprocess.run(argv, cwd=root, env=env, capture_output=True, check=True)

    run("git", "init", "-q")
    run("git", "-c", "user.name=Bench", "-c", "user.email=bench@localhost", "commit", "-q", "--allow-empty", "-m", "x")
    return [ratio(partial(run, CAPSULE, *words), partial(run, CAPSULE, "version")) for words in COMMANDS]


def main() -> None:
    print(f"{'beads':>6}  {'file: items / rows parsed':>25}  {'bd: items / export, rows parsed':>31}")
    for count in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            make_project(Path(folder), count)
            print(f"{count:>6,}  {of_the_file(Path(folder)):>25.1f}  {of_bd(Path(folder)):>31.1f}")
    print("whole commands, as multiples of `capsule version` (aim at ten thousand: at most 10)")
    for tracker, count in product(("beads-file", "beads"), (SIZES[0], MANY)):
        with tempfile.TemporaryDirectory() as folder:
            make_project(Path(folder), count)
            os.environ["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
            found = zip(COMMANDS, of_commands(Path(folder), tracker), strict=True)
            cells = "".join(f"   {' '.join(words)}: {times:.1f}" for words, times in found)
            print(f"{count:>6,}  {tracker:>10}{cells}")


if __name__ == "__main__":
    main()
