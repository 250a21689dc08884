"""A backlog whose one run meets every kind of turn, with agents and tests that take no time.

WRK-001 is triaged to ready and walked through all phases: a document that is missing (refuted), a design that failed,
a build that is red (refuted), one that is done in part and finds two things to do, of which the backlog knows one, and
one that is done and commits.
WRK-002 is blocked at triage, WRK-003 by a guardrail, and WRK-004, which was found on the way, is a duplicate.

In the checkout, what an interrupted phase left stays: so agents write whole files. What they were started for they note
in a diary outside the project, where nothing is ever put back.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .project import DIARY, STAMP, Project, first_commit

WALKED, BLOCKED, GUARDED, FOUND = "WRK-001", "WRK-002", "WRK-003", "WRK-004"
QUEUE = "_queue"
_FOLDER = f"changes/{WALKED}_say-hello/{WALKED}_say-hello"
HALF_DONE = f"{_FOLDER}_HALF.md"
_SPEC = "### Phase 1: hello\n\n- [{}] say it\n\n### Phase 2: bye\n\n- [{}] say it\n"
_FOLLOW_UPS = ["ask the owner!", {"title": "Greet in French", "context": "seen on the way", "suggested_size": "small"}]
_CONFIG = """\
agent: scripted
agents: {scripted: {args: [script.json]}}
evidence: {test: sh run-tests.sh, test_globs: ["tests/*"]}
"""
_BACKLOG = f"""\
# People write here too.
schema_version: 1
last_id: 3
items:
  - {{id: {WALKED}, title: Say hello, status: new, created: "{STAMP}"}}
  - id: {BLOCKED}
    title: Ask the owner  # who is it?
    status: new
    created: "{STAMP}"
  - id: {GUARDED}
    title: Move everything
    status: scoped
    risk: high
    created: "{STAMP}"
"""


def _turn(item: str, phase: str, result: str = "PHASE_COMPLETE", **more: Any) -> dict[str, Any]:
    """One run of an agent: the files it writes, by `write`, and everything else its result says."""
    write = more.pop("write", {})
    said = {"item_id": item, "phase": phase, "result": result, "summary": f"{phase}: {result.lower()}"}
    noted = f'echo "$CAPSULE_ITEM/$CAPSULE_PHASE#$CAPSULE_RUN" >> "${DIARY}"'
    return {"run": [noted], "write": write, "result": said | more}


def _document(phase: str, kind: str, text: str = "# Words\n") -> dict[str, Any]:
    return _turn(WALKED, phase, write={f"{_FOLDER}_{kind}.md": text})


def _build(said: str, one: str, two: str, files: Mapping[str, str], **more: Any) -> dict[str, Any]:
    write = {f"{_FOLDER}_SPEC.md": _SPEC.format(one, two), **files}
    return _turn(WALKED, "build", said, write=write, **more)


def _committed(turn: dict[str, Any], name: str, text: str) -> dict[str, Any]:
    """The same turn of an agent that commits some of its work."""
    return turn | {"run": [*turn["run"], f"echo {text} > {name} && git add {name} && git commit -q -m more"]}


def script() -> dict[str, dict[str, list[dict[str, Any]]]]:
    small = {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}
    walked = {
        "triage": [_turn(WALKED, "triage", updated_assessments=small)],
        "prd": [_turn(WALKED, "prd"), _document("prd", "PRD")],
        "research": [_document("research", "TECH_RESEARCH")],
        "design": [
            _turn(WALKED, "design", "FAILED", context="no idea", write={f"{_FOLDER}_DESIGN.md": "# Half\n"}),
            _document("design", "DESIGN"),
        ],
        "spec": [_document("spec", "SPEC", _SPEC.format(" ", " "))],
        "build": [
            _build("SUBPHASE_COMPLETE", "x", " ", {"src/hello.txt": "broken\n"}),
            _build("SUBPHASE_COMPLETE", "x", " ", {"src/hello.txt": "hello\n"}, follow_ups=_FOLLOW_UPS),
            _committed(_build("PHASE_COMPLETE", "x", "x", {}), "src/bye.txt", "bye"),
        ],
        "review": [_turn(WALKED, "review")],
    }
    return {
        WALKED: walked,
        BLOCKED: {"triage": [_turn(BLOCKED, "triage", "BLOCKED", context="who is it?")]},
        FOUND: {"triage": [_turn(FOUND, "triage", duplicate_of=WALKED)]},
    }


def waiting_script(phase: str, sign: Path) -> dict[str, Any]:
    """The same, but one agent of the walked item says where it is and waits, with a process below it that hides."""
    changed: dict[str, Any] = script()
    half_done = f"mkdir -p {Path(HALF_DONE).parent}; echo half-done > {HALF_DONE}"
    changed[WALKED][phase] = [{"run": [f"setsid sleep 300 & {half_done}; touch {sign}; sleep 300"]}]
    return changed


def make_backlog_project(path: Path) -> None:
    files = {
        "run-tests.sh": 'for test in tests/*.sh; do sh -e "$test" || exit 1; done\n',
        "tests/first.sh": "! grep -rq broken src\n",
        "src/app.txt": "app\n",
        "changes/README": "One folder for each item.\n",
        ".gitignore": "/.capsule/*\n!/.capsule/config.yaml\nnode_modules/\n",
        ".capsule/config.yaml": _CONFIG,
        "script.json": json.dumps(script(), indent=1),
        "BACKLOG.yaml": _BACKLOG,
    }
    first_commit(path, files)


class BacklogProject(Project):
    """One copy of it, and the diary of its agents."""

    def work(self) -> subprocess.CompletedProcess[str]:
        """`capsule run`, as people type it."""
        return self.run("")

    def killed_at(self, point: str, **told: str) -> subprocess.CompletedProcess[str]:
        return self.drive("", CRASH_AT=point, **told)

    def agents_started(self) -> list[str]:
        return self.diary.read_text().splitlines()

    def file(self, name: str, commit: str = "") -> str:
        """As committed, or as it lies there; '' where there is none."""
        if commit:
            shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=self.path, capture_output=True, check=False)
            return shown.stdout.decode()
        path = self.path / name
        return path.read_text() if path.exists() else ""
