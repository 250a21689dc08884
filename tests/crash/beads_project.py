"""A project whose beads are kept by bd, and a bd that ends whoever called it.

The program on the PATH is a small one of ours that stands before bd, whether that is the fake or the real one. It
writes every call beside the points that `driver.py` passes, so that the calls of a claim and of a close are known by
name, and at one of them it can kill Capsule, by a signal nothing can catch:

    before close 2 close    bd is about to be started, and never is
    under close 2 close     bd has just been started, and goes on without anybody waiting for it
    within close 2 close    the same, but bd is killed as well, a moment later
    after close 2 close     bd has done it, and nobody has heard of it yet
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .ending import gone_soon
from .project import ITEM, Project, make_project

MOMENTS = ("before", "under", "within", "after")
ADAPTERS = ("claim", "close")
WRITES = ("update", "close")
"""Of what bd is asked in a claim and a close."""
_STAND_IN = """\
here=${0%/*}
for word; do case $word in show|update|close|export|list|ready|version|create|comments) break ;; esac; done
name=$(awk '
    /^before .* tracker[.](claim|close) / { sub(".*[.]", "", $3); call = $3; number = 0 }
    /^after .* tracker[.](claim|close) / { call = "" }
    /^bd / { number += 1 }
    END { if (call) print call, number + 1 }
' "$here/points" 2>/dev/null)
echo "bd $name $word" >> "$here/points"
merged=unmerged
if [ "$word" = close ] && git -C "$project" log --format=%s main | grep -q '^Merge '; then merged=merged; fi
call() {
    "$bd" "$@"
    code=$?
    if [ "$word" = close ] && [ $code = 0 ]; then echo $merged >> "$here/closes"; fi
    return $code
}
case $(cat "$here/order" 2>/dev/null) in
"before $name $word") kill -9 $PPID; exit 1 ;;
"under $name $word") kill -9 $PPID; call "$@" > "$here/said" 2>&1 ;;
"within $name $word") "$bd" "$@" > "$here/said" 2>&1 & sleep "$moment"; kill -9 $!; kill -9 $PPID ;;
"after $name $word") call "$@" > "$here/said" 2>&1; kill -9 $PPID ;;
*) call "$@" ;;
esac
"""


def make_beads_project(path: Path, bd: Path) -> None:
    """The project of the other crash tests, with a mission that goes straight through, and its beads kept by bd."""
    make_project(path)
    script = {ITEM: {phase: [turn] for phase, turn in _turns()}}
    (path / "script.json").write_text(json.dumps(script))
    with (path / ".capsule/config.yaml").open("a") as config:
        config.write("tracker: beads\n")
    issues = path.with_name("issues.jsonl")
    shutil.move(path / ".beads/issues.jsonl", issues)
    shutil.rmtree(path / ".beads")
    ask(bd, path, "init", "--prefix=mend", "--quiet", "--skip-hooks")
    ask(bd, path, "import", "-i", str(issues))
    for command in (["add", "-A"], ["commit", "-q", "-m", "second"]):
        subprocess.run(["git", *command], cwd=path, check=True)


def _turns() -> Iterator[tuple[str, dict[str, object]]]:
    def turn(*commands: str) -> dict[str, object]:
        said = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
        return {"run": list(commands), "signal": said}

    test, code = f"tests/{ITEM}.sh", f"src/{ITEM}.txt"
    yield "test-writer", turn(f"echo 'grep -q whole {code}' >> {test}")
    yield "test-review", turn()
    yield "execute", turn(f"echo whole >> {code}")
    yield "execute-review", turn()
    yield "sign-off", turn()
    yield "merge", turn(f'git add {test} {code} && git commit -q -m "$CAPSULE_COMMIT_MSG"')


def ask(bd: Path, project: Path, *words: str) -> str:
    """What bd itself says, to whoever types it by hand."""
    env = {**os.environ, "BEADS_NO_DAEMON": "1"}
    done = subprocess.run([bd, *words], cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"bd {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def bead(bd: Path, project: Path, name: str = ITEM) -> dict[str, object]:
    rows = (json.loads(line) for line in ask(bd, project, "export").splitlines())
    return next(row for row in rows if row.get("id") == name)


class BeadsProject(Project):
    """One copy of it, run with our program before bd. Two at the same path are the same project at different times."""

    def __init__(self, template: Path, path: Path, mark: str, bd: Path, moment: float = 0.02) -> None:
        if path.exists():
            shutil.rmtree(path)
        super().__init__(template, path, mark)
        self.bd = bd
        self._here = path.with_name(f"{path.name}-bd")
        shutil.rmtree(self._here, ignore_errors=True)
        self._here.mkdir(parents=True)
        told = f"bd='{bd}'\nproject='{path}'\nmoment={moment}\nexport CRASH_MARK={mark}\n"
        (self._here / "bd").write_text(f"#!/bin/sh\n{told}{_STAND_IN}")
        (self._here / "bd").chmod(0o755)
        self._environment["PATH"] = f"{self._here}:{os.environ['PATH']}"

    def killed_at(self, point: str, mark: str) -> None:
        """At a call of bd, or at a point of the driver's."""
        moment, adapter, *_ = point.split()
        of_bd = moment in MOMENTS and adapter in ADAPTERS
        (self._here / "order").write_text(point if of_bd else "")
        killed = self.drive(**({} if of_bd else {"CRASH_AT": point}))
        (self._here / "order").unlink()
        assert killed.returncode == -signal.SIGKILL, f"not killed at {point}: {killed.stdout}{killed.stderr}"
        assert gone_soon(mark), point

    def finishes(self) -> None:
        ran = self.drive()
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def points(self) -> list[str]:
        """What the last process passed, calls of bd included."""
        return [line.partition("\t")[0] for line in (self._here / "points").read_text().splitlines()]

    def closes(self) -> list[str]:
        """Every close that bd agreed to: whether the merge was in main when it was asked."""
        log = self._here / "closes"
        return log.read_text().split() if log.exists() else []

    def drive(self, item: str = ITEM, **told: str) -> subprocess.CompletedProcess[str]:
        points = self._here / "points"
        points.unlink(missing_ok=True)
        return super().drive(item, CRASH_RECORD=str(points), **told)
