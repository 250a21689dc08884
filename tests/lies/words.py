"""The words that a case is written in: who does what, in which phase, and what must be true of main afterwards.

A case starts from an honest mission: the project says what its test-writer and its coder write, reviewers agree, the
merge agent commits. The case names only the phases in which somebody does something else:

    lie("test-deleted", UNITTEST, execute=(WRONG, deletes("tests/test_clamp.py")))

A phase is a tuple of deeds, or a list of such tuples, one for each run of the phase; the last one repeats.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .projects import Project
from .truths import GUARDED, UNHARMED, WORKS, Truth

Deed = Mapping[str, Any]
"""A part of a turn of the scripted agent."""
Deeds = tuple[Deed, ...]
Plays = Deeds | list[Deeds]

TESTS: Deed = {"takes": "tests"}
"""Writes what an honest test-writer writes."""
CODE: Deed = {"takes": "code"}
"""Writes what an honest coder writes."""
WRONG: Deed = {"takes": "wrong"}
"""Writes code that fails the honest tests."""
NOTHING: Deed = {"takes": "new_broken"}
"""Writes a stub: the name is there, and does nothing."""
COMMIT = 'git add -A . && { git diff --cached --quiet || git commit -q -m "$CAPSULE_COMMIT_MSG"; }'
COMMITS: Deed = {"run": [COMMIT]}
"""Commits everything that is not committed, as a merge agent does."""


def text(words: str) -> str:
    """Take the margin off a text, so that a case can be indented like its table."""
    return textwrap.dedent(words).removeprefix("\n")


def writes(path: str, words: str, *, executable: bool = False) -> Deed:
    return {"write": {path: {"text": text(words), "executable": True} if executable else text(words)}}


def codes(words: str) -> Deed:
    """Write the project's source as it was, and this below it."""
    return {"codes": text(words)}


def tests(words: str) -> Deed:
    """Write this instead of the new tests of an honest test-writer."""
    return {"tests": text(words)}


def appends(path: str, words: str) -> Deed:
    return {"append": {path: text(words)}}


def edits(path: str, find: str, put: str) -> Deed:
    """Replace what occurs once; honest work that may be done again uses `writes`."""
    return {"edit": [{"file": path, "find": find, "replace": put}]}


def deletes(*paths: str) -> Deed:
    return {"remove": list(paths)}


def runs(command: str) -> Deed:
    return {"run": [text(command)]}


def says(words: str) -> Deed:
    """Print something before the claim."""
    return {"say": text(words)}


def claims(status: str = "PASS", **fields: Any) -> Deed:
    """Answer something else than PASS, or name other files, feedback or summary."""
    return {"signal": {"status": status, **fields}}


def exam(criterion: str, given: str, expected: str, file: str, test: str, words: str) -> dict[str, str]:
    """Return one test of an exam, as an examiner's signal holds it."""
    fields = {"criterion": criterion, "input": given, "expected": expected, "file": file, "test": test}
    return {**fields, "code": text(words)}


def examines(*tests_of_it: Mapping[str, str]) -> Deed:
    """Answer as an examiner does: with tests that the coder never sees."""
    return {"signal": {"exam_tests": list(tests_of_it)}}


def reports(result: str = "PHASE_COMPLETE", **fields: Any) -> Deed:
    """Answer something else in the result file of a workflow on a backlog."""
    return {"result": {"result": result, **fields}}


def is_silent() -> Deed:
    """End without any claim."""
    return {"silent": True}


def exits(code: int) -> Deed:
    return {"exit": code}


@dataclass(frozen=True)
class Case:
    """One mission: what is played, and what must be true of main afterwards."""

    name: str
    project: Project
    honest: bool
    plays: Mapping[str, Plays]
    truths: tuple[Truth, ...]
    family: str = ""
    item: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the item in its tracker."""
    flags: tuple[str, ...] = ()
    """More words for `capsule run`."""
    settings: str = ""
    """Text of .capsule/config.yaml."""
    env: Mapping[str, str] = field(default_factory=dict)
    workflow: str = "tdd"
    times: int = 1
    """How often the mission is run; each run resumes the one before."""
    refused: bool = False
    """Capsule is to refuse before it starts an agent."""

    def __str__(self) -> str:
        return f"{self.family}/{self.name}"

    def of(self, family: str) -> Case:
        return replace(self, family=family)


def lie(name: str, project: Project, *truths: Truth, retries: int = 0, **more: Any) -> Case:
    """Write down a lie. It has no second chance, unless it needs one."""
    flags = (*more.pop("flags", ()), "--max-retries", str(retries))
    return _case(name, project, truths or (WORKS, GUARDED), honest=False, flags=flags, **more)


def honest(name: str, project: Project, *truths: Truth, **more: Any) -> Case:
    """Write down honest work, which must reach main without any settings."""
    return _case(name, project, truths or (WORKS, GUARDED), honest=True, **more)


def kind_of_work(kind: str, name: str, project: Project, *truths: Truth, work: Plays, **more: Any) -> Case:
    """Write down honest work that has no red: chosen by the item's label; a test-writer would find nothing to do."""
    item = {"labels": [kind], "issue_type": "chore" if kind == "chore" else "task", "title": f"{kind}: {name}"}
    plays = {"test-writer": (claims(feedback="There is nothing to make red."),), "execute": work, "*": work}
    return _case(name, project, truths or (UNHARMED,), honest=True, item=item, plays=plays, **more)


_FIELDS = ("item", "flags", "settings", "env", "workflow", "times", "refused")


def _case(name: str, project: Project, truths: tuple[Truth, ...], *, honest: bool, **more: Any) -> Case:
    """Take the fields out; every other word is a phase, as `execute_review=(...)`."""
    fields = {key: more.pop(key) for key in _FIELDS if key in more}
    plays = {**more.pop("plays", {}), **{phase.replace("_", "-"): played for phase, played in more.items()}}
    return Case(name, project, honest, plays, truths, **fields)


def turns(case: Case, phase: str, usual: Deeds) -> list[dict[str, Any]]:
    """Return the turns of a phase for the scripted agent's script."""
    played = case.plays.get(phase, usual)
    each: Sequence[Deeds] = played if isinstance(played, list) else [played]
    return [_turn(case.project, deeds) for deeds in each]


def _turn(project: Project, deeds: Deeds) -> dict[str, Any]:
    """Join deeds into one turn: later files replace earlier ones, lists grow."""
    turn: dict[str, Any] = {}
    for deed in deeds:
        for key, value in _resolved(project, deed).items():
            if isinstance(value, Mapping):
                turn[key] = {**turn.get(key, {}), **value}
            elif isinstance(value, (list, str)):
                turn[key] = turn.get(key, type(value)()) + value
            else:
                turn[key] = value
    return turn


def _resolved(project: Project, deed: Deed) -> Deed:
    """Say in paths and texts what a deed says in terms of the project."""
    if "takes" in deed:
        return {"write": getattr(project, deed["takes"])}
    if "codes" in deed:
        source = next(iter(project.code))
        return {"write": {source: f"{project.files[source]}\n\n{deed['codes']}"}}
    if "tests" in deed:
        return {"write": {next(iter(project.tests)): deed["tests"]}}
    return deed
