"""One fixed row of calls: what the real programs were recorded with, and what the fake is compared on.

`python -m tests.contracts.fake_bd.script PROGRAM VERSION` records a real bd into `recorded/bd/VERSION.json`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "recorded" / "bd"
_TIME = "2025-12-20T10:00:00Z"
_PATIENCE = 120

_SCRIPT = """
nothing here       : list --json
init               : init --prefix demo --quiet --skip-hooks {more}
version            : version
version json       : version --json
empty list         : list --json
empty ready        : ready --json
empty export       : export
import             : import {rows}
export             : export
list               : list --json
list all           : list --json --all --limit 0
list one           : list --json --limit 1
list closed        : list --json --status closed
list below         : list --json --parent demo-1.1
ready              : ready --json --limit 0
show epic          : show demo-1 --json
show feature       : show demo-1.1 --json
show first         : show demo-1.1.1 --json
show second        : show demo-1.1.2 --json
show all of it     : show demo-1.1 --json --include-dependents --include-comments
show two           : show demo-1.1.1 demo-2 --json
show nobody        : show demo-99 --json
show one of two    : show demo-99 demo-2 --json
update nobody      : update demo-99 --claim --json
close nobody       : close demo-99 --reason x --json
comment nobody     : comments add demo-99 x --json
claim              : update demo-1.1.1 --claim --json
claim again        : update demo-1.1.1 --claim --json
claim taken        : update demo-2 --claim --json
claim as other     : --actor other update demo-1.1.1 --claim --json
ready then         : ready --json --limit 0
release            : update demo-1.1.1 --status open --assignee '' --json
show released      : show demo-1.1.1 --json
comment            : comments add demo-1.1.1 'A remark.' --json
comment dashed     : comments add --json -- demo-1.1.1 '--force is a word'
comments           : comments demo-1.1.1 --json
show commented     : show demo-1.1.1 --json
close blocked      : close demo-1.1.2 --reason x --json
close feature      : close demo-1.1 --reason x --json
reopen feature     : update demo-1.1 --status open --json
close epic         : close demo-1 --reason x --json
reopen epic        : update demo-1 --status open --json
close              : close demo-1.1.1 '--reason=It is done.' --json
close again        : close demo-1.1.1 '--reason=Once more.' --json
close one of two   : close demo-99 demo-4 --reason=x --json
close dashed       : close --json --reason=-x -- demo-4
close unsaid       : close demo-3 --json
show closed        : show demo-1.1.1 --json
ready at last      : ready --json --limit 0
claim closed       : update demo-1.1.1 --claim --json
create             : create 'A new one' --json
create child       : create 'A child' --parent demo-1.1 --type task -p 1 -d Text. --json
create next        : create '--title=-a dash' --parent=demo-1.1 --labels=a,b --json
create quoted      : create Quoted --parent=demo-2 '--labels="a,b","say ""x"" twice"' --labels=c -d x --json
create deep        : create Deep --parent=demo-1.1.2 --json
create deeper      : create Deeper --parent=demo-1.1.2.1 --json
create full        : create --title=Full --type=bug --priority=3 '--description=a<b & c' --external-ref=capsule/1
                     --labels=x --deps=discovered-from:demo-2,demo-5 '--acceptance=It works.' --json
show full          : show {made} --json
create blocking    : create Blocking --deps=blocks:demo-2 -d x --json
show blocking      : show {made} --json
show demo-2        : show demo-2 --json
create dashed      : create --json -d x -- '-dashed title'
create lost        : create Lost --parent=demo-77 --json
create odd type    : create Odd --type=nonsense --json
create odd number  : create Odd --priority=9 --json
create odd edge    : create Odd --deps=demo-78 --json
create untitled    : create --json
depend             : dep add demo-1.1.3 {made} --json
depend in a circle : dep add demo-1.1.1 demo-1.1.2 --json
depend on nobody   : dep add demo-2 demo-79 --json
unknown command    : nonsense --json
unknown flag       : list --json --nonsense
update nothing     : update demo-2 --json
update odd status  : update demo-2 --status nonsense --json
update             : update demo-2 --notes=Noted. --priority=1 --add-label=q --json
envelope list      : BD_JSON_ENVELOPE=1 list --json --limit 1
envelope version   : BD_JSON_ENVELOPE=1 version --json
envelope comment   : BD_JSON_ENVELOPE=1 comments add demo-2 x --json
envelope nobody    : BD_JSON_ENVELOPE=1 show demo-99 --json
any order: export  : export
import again       : import {rows}
import many        : import {many} --json
count: ready       : ready --json
count: ready, all  : ready --json --limit 0
count: list        : list --json
count: list, all   : list --json --all --limit 0
"""


def _row(bead: str, title: str, kind: str, *edges: tuple[str, str], **more: object) -> dict[str, object]:
    row: dict[str, object] = {"id": bead, "title": title, "status": "open", "priority": 2, "issue_type": kind}
    row |= {"created_at": _TIME, "updated_at": _TIME} | more
    made = {"created_at": _TIME, "created_by": "import"}
    held = [{"issue_id": bead, "depends_on_id": to, "type": of} | made for to, of in edges]
    return row | ({"dependencies": held} if held else {})


_TASK = {"description": "Do it.", "acceptance_criteria": "It is done.", "labels": ["python", "tests"], "priority": 1}
ROWS = [
    _row("demo-1", "The epic", "epic", priority=1, description="All of it."),
    _row("demo-1.1", "The feature", "feature", ("demo-1", "parent-child")),
    _row("demo-1.1.1", "The first task", "task", ("demo-1.1", "parent-child"), **_TASK),
    _row("demo-1.1.2", "The second task", "task", ("demo-1.1", "parent-child"), ("demo-1.1.1", "blocks")),
    _row("demo-2", "Apart", "bug", priority=0, assignee="somebody", external_ref="gh-9", of_its_own="is lost"),
    _row("demo-3", "Put off", "task", status="deferred"),
    _row("demo-4", "Held up", "task", status="blocked"),
    _row("demo-5", "Done", "task", status="closed", closed_at=_TIME, close_reason="it was"),
]
_MANY = [_row(f"demo-m{number:03}", f"Many {number}", "task", priority=4) for number in range(110)]


@dataclass(frozen=True)
class Answer:
    name: str
    argv: list[str]
    exit: int
    stdout: str
    stderr: str


Ask = Callable[[list[str], Path, dict[str, str]], tuple[int, str, str]]
"""Words, where, and with which environment → exit code, stdout, stderr."""


def run(ask: Ask, version: str, folder: Path) -> Iterator[Answer]:
    """Every answer, with what differs from one run to the next taken out. `folder` is made to be a project."""
    env = _environment(folder)
    project = folder / "project"
    subprocess.run(["git", "init", "-q", "-b", "main", project], env=env, check=True)
    for name, rows in {"rows": ROWS, "many": _MANY}.items():
        (project / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made: list[str] = []
    for name, words in calls(version):
        argv = [word.replace("{made}", made[-1] if made else "") for word in words]
        more = dict(argv.pop(0).split("=") for _ in argv[:1] if re.match(r"[A-Z_]+=", argv[0]))
        code, out, err = ask(argv, project, env | more)
        if found := re.search(r'^  "id": "(demo-[a-z0-9]+)"', out, re.MULTILINE):
            made += [found[1]] if "create" in argv else []
        same = _Same(made, project)
        stdout = _in_order(same(out))
        if name.startswith("count: "):
            stdout = f"{stdout.count(chr(34) + 'issue_type' + chr(34))} rows"
        if name.startswith("any order: "):
            stdout = "\n".join(sorted(stdout.splitlines()))
        yield Answer(name, [same(word) for word in words], code, stdout, _without_noise(same(err)))


def program(path: Path) -> Ask:
    def ask(argv: list[str], cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(
            [path, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return ask


def calls(version: str) -> Iterator[tuple[str, list[str]]]:
    """Versions differ in how they are told a file's name, and in what keeps `init` from doing more than it must."""
    named = at_least(version, "0.60.0")
    about = {"{more}": "--skip-agents --non-interactive" if at_least(version, "1.0.0") else ""}
    about |= {f"{{{each}}}": f"{each}.jsonl" if named else f"-i {each}.jsonl" for each in ("rows", "many")}
    for line in _SCRIPT.strip().replace("\n  ", " ").splitlines():
        name, _, words = line.partition(" : ")
        for hole, filling in about.items():
            words = words.replace(hole, filling)
        yield name.strip(), shlex.split(words)


def at_least(version: str, other: str) -> bool:
    return [int(part) for part in version.split(".")] >= [int(part) for part in other.split(".")]


def recorded(version: str) -> list[Answer]:
    rows = json.loads((RECORDINGS / f"{version}.json").read_text(encoding="utf-8"))
    return [Answer(**row) for row in rows]


def record(path: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        answers = [asdict(answer) for answer in run(program(path), version, Path(folder))]
    RECORDINGS.mkdir(exist_ok=True)
    text = json.dumps(answers, indent=1, ensure_ascii=False)
    (RECORDINGS / f"{version}.json").write_text(text + "\n", encoding="utf-8")


def _environment(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir(parents=True)
    who = {f"GIT_{role}_{what}": "tester@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    bd = {"BD_ACTOR": "tester", "BEADS_ACTOR": "tester", "BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1", "CI": "1"}
    return {"PATH": os.environ["PATH"], "HOME": str(home)} | who | bd


class _Same:
    """Takes out times, ids that bd made up, and folders."""

    def __init__(self, made: list[str], project: Path) -> None:
        self.made, self.project = made, project

    def __call__(self, text: str) -> str:
        for number, bead in enumerate(self.made, 1):
            text = re.sub(rf"{re.escape(bead)}(?![\w.])", f"<made {number}>", text)
        text = text.replace(str(self.project), "<project>")
        text = re.sub(r"(?!2025|0001)\d{4}-\d\d-\d\dT[\d:]+\.\d+Z", "<now, fine>", text)
        text = re.sub(r"(?!2025|0001)\d{4}-\d\d-\d\dT[\d:]+Z", "<now>", text)
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>", text)


def _in_order(text: str) -> str:
    """With edges sorted: Dolt has them in another order each time."""
    if text.startswith('{"'):
        return "".join(json.dumps(_sorted(json.loads(line))) + "\n" for line in text.splitlines())
    return json.dumps(_sorted(json.loads(text)), indent=2) + "\n" if text[:1] in ("{", "[") else text


def _sorted(content: Any) -> Any:
    if isinstance(content, list):
        return [_sorted(each) for each in content]
    if not isinstance(content, dict):
        return content
    found = {name: _sorted(value) for name, value in content.items()}
    for name in {"dependencies", "dependents"} & set(found):
        found[name].sort(key=lambda edge: str(edge.get("depends_on_id") or edge.get("id")))
    return found


def _without_noise(stderr: str) -> str:
    """Without the list of flags, and without what 0.4x says now and then about its own JSONL file."""
    stderr = re.sub(r"\nUsage:\n.*", "\n", stderr, flags=re.DOTALL)
    stderr = re.sub(r"⚠️  WARNING: JSONL file hash mismatch.*?re-export\.\n", "", stderr, flags=re.DOTALL)
    return re.sub(r"Warning: failed to clear dirty issues: .*\n", "", stderr)


if __name__ == "__main__":
    record(Path(sys.argv[1]).absolute(), sys.argv[2])
