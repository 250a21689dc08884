"""`capsule demo --backlog`: two ideas become code, a third turns out to be the second, and a human is asked once.

Every line with a `$` is a command of ours, run here as you would type it. Only the agent is played. At the end the demo
looks for itself whether what it told has come true: in the journal, in git and by running the tests.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.demo import check_python, is_green, refutations
from capsule.commands.setup_template import all_or_nothing, run_git, start_repository
from capsule.core.errors import CapsuleError, Refused

if TYPE_CHECKING:
    from capsule.wiring import Project

TEMPLATE = Path(__file__).parent.parent / "templates" / "demo-backlog"
SCRIPT = TEMPLATE / "demo.script.yaml"
PROJECT_FILES = ("shop", "tests", "README.md", ".gitignore")
FIRST_COMMIT = "A shop that can add up prices"
ANSWER = "Ten percent from a total of 100.00 on."

INTRODUCTION = """\
The agent is scripted: it plays {script}, it does not think.
Everything else is real: git, the backlog, the tests, the gate, the commits.
The project is {root}
"""
STORY: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "A backlog is a file in the project. An idea needs one line; the rest is found out.",
        (("init",), ("add", "Print a receipt"), ("add", "Give a discount"), ("status",)),
    ),
    (
        "Now the queue works itself: a fresh agent for each phase, and one commit for each that is proven. "
        "Watch the first build claim that its tests pass. Watch it file a follow-up, WRK-003, which triage finds to "
        "be WRK-002 in other words. And WRK-002 asks something that no agent should decide.",
        (("run",), ("status",)),
    ),
    (
        "Nothing waited for you but that one question. You answer it, and the queue goes on where it stood.",
        (("unblock", "WRK-002", "--notes", ANSWER), ("run",), ("status",)),
    ),
)
"""What is said, and what is typed then."""

COMMITS = (
    FIRST_COMMIT,
    "[INIT] A backlog for Capsule",
    "[WRK-001][ADD] Print a receipt",
    "[WRK-002][ADD] Give a discount",
    "[WRK-001][TRIAGE] A small one, straight into the workflow",
    "[WRK-001][PRD] Two requirements",
    "[WRK-001][RESEARCH] Cents stay whole: divmod, no floats",
    "[WRK-001][DESIGN] One module, two functions",
    "[WRK-001][SPEC] Two phases: amounts, then the receipt",
    "[WRK-001][BUILD] amount() pads its cents",
    "[WRK-001][BUILD] receipt() lists everything and the total",
    "[WRK-001][REVIEW] Both requirements hold",
    "[WRK-001][ARCHIVE] Completed: Print a receipt",
    "[WRK-002][TRIAGE] Not small: wrote down the idea, to be researched",
    "[WRK-002][BLOCKED] From which total on is there a discount, and how much?",
    "[WRK-003][TRIAGE] duplicate of WRK-002",
    "[WRK-003][ARCHIVE] Closed: Make large orders cheaper (duplicate of WRK-002)",
    f"[WRK-002][UNBLOCK] {ANSWER}",
    "[WRK-002][IDEA-RESEARCH] Ten percent from 100.00 on, as was decided",
    "[WRK-002][PRD] One requirement",
    "[WRK-002][RESEARCH] Whole cents again",
    "[WRK-002][DESIGN] One function beside total()",
    "[WRK-002][SPEC] One phase",
    "[WRK-002][BUILD] to_pay() takes ten percent off",
    "[WRK-002][REVIEW] As it was decided",
    "[WRK-002][ARCHIVE] Completed: Give a discount",
)
"""The whole history that was promised. The build that was refuted is not in it."""
ITEMS = ("WRK-001", "WRK-002", "WRK-003")
LIES = 1
WHERE_TO_LOOK = """\
Look around:
  cd {root}
  git show --stat HEAD~2
  cat _worklog/*.md
  capsule show WRK-001

The same in your own project, with a real agent:
  capsule init && capsule add "What is to be done" && capsule run
"""


def play(directory: str | None) -> int:
    check_python()
    root = _make_project(Path(directory).absolute() if directory else None)
    print(INTRODUCTION.format(script=SCRIPT.name, root=root), end="", file=sys.stderr)
    with _settings_of_our_own():
        failed = next((words for words in _told() if _type(words, root)), ())
        return _conclude(root, shlex.join(failed))


def _told() -> Iterator[tuple[str, ...]]:
    """Every command of the story, after the words that go before it."""
    for words, commands in STORY:
        print(f"\n{textwrap.fill(words, 100)}", file=sys.stderr)
        yield from commands


def _type(words: tuple[str, ...], root: Path) -> int:
    """What `capsule WORDS` does, in this very process; in lines, which are the story."""
    from capsule.commands.arguments import parse

    name, *rest = words
    print(f"\n$ capsule {shlex.join(words)}", file=sys.stderr)
    sys.stderr.flush()
    module = import_module(f"capsule.commands.{name}")
    plainly = ["--no-tui"] if name == "run" else []
    ending = int(module.run(parse(name, module, [*rest, *plainly, "--project-dir", str(root)])))
    sys.stdout.flush()
    return ending


@contextmanager
def _settings_of_our_own() -> Iterator[None]:
    """Set every setting but `sandbox` by the environment, which wins over all files, so that none bends the story."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("CAPSULE_") and name != "CAPSULE_SANDBOX"]:
        del os.environ[name]
    os.environ.update(_environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _environment() -> Mapping[str, str]:
    import json

    values = {
        "agent": "scripted",
        "agents__scripted__kind": "scripted",
        "agents__scripted__args": json.dumps([str(SCRIPT)]),
        "tracker": "backlog",
        "verify": "strict",
        "build": "agent",
        "skills": "never",
        "evidence__test": "auto",
        "evidence__test_globs": "auto",
        "execution__max_retries": "2",
        "execution__default_phase_cap": "100",
        "guardrails__max_size": "medium",
        "guardrails__max_complexity": "medium",
        "guardrails__max_risk": "low",
        "git__hooks": "false",
        "project__main": "main",
        "project__prefix": "WRK",
        "workflow__default": "auto",
        "workspace__publish": "steps",
        "workspace__setup": "none",
        "workspace__copy": "[]",
    }
    return {f"CAPSULE_{name.upper()}": value for name, value in values.items()}


# ---- the project


def _make_project(target: Path | None) -> Path:
    """The shop in a repository of its own, with one commit; its absolute path."""
    if target is not None and (target.is_symlink() or target.exists()):
        raise Refused(f"{target} is there already.", "Name a directory that does not exist yet.")
    try:
        place = target or Path(tempfile.mkdtemp(prefix="capsule-demo-")).resolve()
        with all_or_nothing(place, fresh=target is None):
            _copy(place)
            start_repository(place)
            run_git(place, "add", "--", *PROJECT_FILES)
            run_git(place, "commit", "--quiet", f"--message={FIRST_COMMIT}")
    except OSError as fault:
        raise CapsuleError(
            f"The project cannot be made: {fault}.", "Choose a directory that you may write to."
        ) from None
    return place


def _copy(place: Path) -> None:
    for name in PROJECT_FILES:
        source = TEMPLATE / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copyfile(source, place / name)


# ---- what the demo promised, looked at for itself


def _conclude(root: Path, failed: str) -> int:
    from capsule.wiring import open_project

    project = open_project(str(root))
    complaints = [*_complaints(project, failed)]
    for complaint in complaints:
        print(f"capsule: the demo did not come out as promised: {complaint}", file=sys.stderr)
    print("\n$ git log --oneline --reverse", file=sys.stderr)
    sys.stderr.flush()
    print(_git_says(project, "log", "--oneline", "--reverse", "--no-decorate"))
    print("\nCaught, by looking instead of believing:")
    for line in refutations(project, ITEMS):
        print(line)
    print("\n" + WHERE_TO_LOOK.format(root=shlex.quote(str(root))), end="")
    return 1 if complaints else 0


def _complaints(project: Project, failed: str) -> Iterator[str]:
    from capsule.wiring import open_tracker

    if failed:
        yield f"`capsule {failed}` did not end with 0."
    history = _git_says(project, "log", "--reverse", "--format=%s").splitlines()
    for told, found in zip(COMMITS, history, strict=False):
        if told != found:
            yield f"the commit “{told}” was promised, and “{found}” was made."
            break
    if len(history) != len(COMMITS):
        yield f"{len(history)} of {len(COMMITS)} commits were made."
    if (caught := len(list(refutations(project, ITEMS)))) != LIES:
        yield f"{caught} of {LIES} lies were caught."
    if left := [item.id for item in open_tracker(project).items()]:
        yield f"{', '.join(left)} is still in the backlog."
    if dirt := _git_says(project, "status", "--porcelain"):
        yield f"the tree is not clean: {dirt}."
    if not is_green(project):
        yield "the tests are not green."


def _git_says(project: Project, *words: str) -> str:
    return project.git.repository(*words).out.decode(errors="replace").strip()
