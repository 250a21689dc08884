"""Checks that the demo project is what the pipeline's tests take it for. Run it: python3 test_fixtures.py

Plain functions on the standard library, so that test discovery finds nothing in here to run by accident.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src" / "contact.py"

BEADS = {
    "demo-1": ("epic", "Demo Capsule Feature Set", None),
    "demo-1.1": ("feature", "Add input validation", "demo-1"),
    "demo-1.1.1": ("task", "Validate email format", "demo-1.1"),
    "demo-1.1.2": ("task", "Validate phone format", "demo-1.1"),
}
GAPS = ("validate_email", "validate_phone")
FILES = (".gitignore", "CLAUDE.md", "README.md", "src/contact.py", "tests/test_contact.py")


def beads() -> list[dict]:
    lines = (HERE / "issues.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def parent(bead: dict) -> str | None:
    edges = [edge for edge in bead.get("dependencies", []) if edge["type"] == "parent-child"]
    assert all(edge["issue_id"] == bead["id"] for edge in edges), f"{bead['id']} holds an edge of another bead"
    return edges[0]["depends_on_id"] if edges else None


def check_the_files_are_there() -> None:
    missing = [name for name in FILES if not (HERE / name).is_file()]
    assert not missing, f"missing: {', '.join(missing)}"


def check_four_beads_with_the_known_ids() -> None:
    ids = [bead["id"] for bead in beads()]
    assert ids == list(BEADS), f"ids are {ids}"


def check_types_and_titles() -> None:
    for bead in beads():
        seen = (bead["issue_type"], bead["title"])
        assert seen == BEADS[bead["id"]][:2], f"{bead['id']} is {seen}"


def check_task_under_feature_under_epic() -> None:
    for bead in beads():
        assert parent(bead) == BEADS[bead["id"]][2], f"{bead['id']} has the parent {parent(bead)}"


def check_all_beads_are_open() -> None:
    closed = [bead["id"] for bead in beads() if bead["status"] != "open"]
    assert not closed, f"not open: {closed}"


def check_each_task_has_acceptance_criteria() -> None:
    for bead in beads():
        if bead["issue_type"] == "task":
            told = bead.get("acceptance_criteria") or bead["description"].partition("## Acceptance Criteria")[2]
            assert "\n- " in f"\n{told.strip()}", f"{bead['id']} has no criteria"


def check_the_gaps_are_open() -> None:
    nodes = ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
    closed = [node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name in GAPS]
    assert not closed, f"already there: {closed}"


def check_the_gaps_are_documented() -> None:
    told = ast.get_docstring(ast.parse(SOURCE.read_text(encoding="utf-8"))) or ""
    silent = [gap for gap in GAPS if f"Feature gap: there is no `{gap}`" not in told]
    assert not silent, f"not mentioned: {silent}"


def check_the_project_is_green() -> None:
    command = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Ran 0 tests" not in run.stderr, "no tests ran"


def main() -> int:
    failures = 0
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            label = name.removeprefix("check_").replace("_", " ")
            try:
                check()
            except AssertionError as error:
                failures += 1
                print(f"FAIL  {label}: {error}")
            else:
                print(f"ok    {label}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
