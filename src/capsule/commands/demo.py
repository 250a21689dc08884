"""`capsule demo`: two tasks through the whole pipeline, with an agent that follows a script.

Only the agent is played. The project, the worktrees, the tests, the gate and the merges are what `capsule run` does
anywhere, by the same code. At the end the demo looks for itself whether what it promised has come true.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.setup_template import TEMPLATE, make_project
from capsule.core.errors import PrerequisiteMissing

if TYPE_CHECKING:
    from capsule.core.event import StepEnded
    from capsule.core.state import MissionState
    from capsule.wiring import Project

DESCRIPTION = """\
Make the demo project and take its two tasks through the whole pipeline, to main. It needs git and python3: no key, no
agent, no tracker, and it takes some ten seconds.

The agent is scripted. It does not think: it plays back what a file tells it, and some of that is lies. Everything else
is real: the git repository, the worktrees, the tests that are run, the gate and the merges. What it was told to claim
is not told to Capsule, which has to find out.

  capsule demo               in a fresh temporary directory, which is kept for you to look around
  capsule demo my-demo       in my-demo, which is made for it
  capsule demo --backlog     the other workflow: one-line ideas, a queue that works itself, and one question to you

Progress goes to stderr, what came of it to stdout. Exit code: 0 when everything ended as told and every lie was caught,
1 when something did not come out as promised, 2 when it could not start.
"""

STORY = {
    "demo-1.1.1": "The first agent writes tests. Watch the review find a criterion without one, and send it back.",
    "demo-1.1.2": (
        "This one lies. Watch it report PASS while a test is red, then bend that test until it is green. "
        "Both times it is caught, told what was seen, and sent back; only then does it do the work."
    ),
}
"""What to watch for. Whether it comes true is checked at the end, against the journal and the repository."""
LIES = 2
_INTRODUCTION = """\
The agent is scripted: it plays {script}, it does not think.
Everything else is real: git, worktrees, tests, gate, merge.
The project is {root}
"""
_WHERE_TO_LOOK = """\
Look around:
  cd {root}
  capsule show {last}
  capsule logs {last}
  less .capsule/logs/{last}/summary.md

The same with a real agent:
  capsule setup-template --tracker=file my-demo && cd my-demo && capsule run {first}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", help="where to make the project (default: a temporary directory)"
    )
    parser.add_argument("--backlog", action="store_true", help="a backlog that is worked through, instead of two tasks")


def run(args: argparse.Namespace) -> int:
    if args.backlog:
        from capsule.commands.demo_backlog import play

        return play(args.directory)
    project = _prepare(Path(args.directory) if args.directory else None)
    for item, watch in STORY.items():
        print(f"\n--- {item} ---\n{textwrap.fill(watch, 100)}\n", file=sys.stderr)
        if _play(project, item).halt:
            break
    return _conclude(project)


def _prepare(target: Path | None) -> Project:
    from capsule.wiring import open_project

    check_python()
    root = make_project(target, "file", prefix="capsule-demo-")
    print(_INTRODUCTION.format(script=_script().name, root=root), end="", file=sys.stderr)
    return open_project(str(root), _flags())


def check_python() -> None:
    if not shutil.which("python3"):
        raise PrerequisiteMissing(
            "The demo project's tests need `python3`, which is not on the PATH.", "Put it there, and try again."
        )


def _script() -> Path:
    return TEMPLATE / "demo.script.yaml"


def _flags() -> dict[str, object]:
    """Said as flags, so that no settings of the user's bend the story."""
    return {
        "agent": "scripted",
        "agents.scripted.kind": "scripted",
        "agents.scripted.args": [str(_script())],
        "tracker": "beads-file",
        "verify": "strict",
        "evidence.test": "auto",
        "evidence.test_globs": "auto",
        "workspace.setup": "none",
        "workspace.copy": [],
        "project.main": "main",
        "execution.max_retries": 3,
    }


def _play(project: Project, item: str) -> MissionState:
    """What `capsule run ITEM` does, in this very process."""
    from capsule.commands import run
    from capsule.commands.arguments import parse
    from capsule.wiring import open_tracker

    args = parse("run", run, [item, "--workflow", "tdd", "--no-tui"])
    state = run.pursue_plan(run.plan_mission(project, open_tracker(project), item, args), args)
    print(f"\n{run.closing_words(state, project)}", file=sys.stderr)
    return state


def _conclude(project: Project) -> int:
    endings = [(item, event) for item in STORY for event in _endings(project, item)]
    complaints = [*_complaints_about_the_story(endings), *_complaints_about_main(project)]
    for complaint in complaints:
        print(f"capsule: the demo did not come out as promised: {complaint}", file=sys.stderr)
    sys.stderr.flush()
    print(f"\nMerged into main:\n{_history(project)}\n")
    print("Caught, by looking instead of believing:")
    for line in refutations(project, STORY):
        print(line)
    first, *_, last = STORY
    print("\n" + _WHERE_TO_LOOK.format(root=shlex.quote(str(project.root)), first=first, last=last), end="")
    return 1 if complaints else 0


def _history(project: Project) -> str:
    log = project.git.repository("log", "--graph", "--oneline", "--no-decorate", "--end-of-options", "main")
    return "\n".join(f"  {line.rstrip()}" for line in log.out.decode(errors="replace").splitlines())


def refutations(project: Project, items: Iterable[str]) -> Iterator[str]:
    """What was claimed and what was seen, for every claim that did not hold."""
    for item in items:
        yield from (_told(item, e) for e in _endings(project, item) if e.decision.verdict.value == "REFUTED")


def _endings(project: Project, item: str) -> list[StepEnded]:
    from capsule.core.event import StepEnded

    journal = project.journal(read_only=True)
    try:
        return [event for _, event in journal.events(item) if isinstance(event, StepEnded)]
    finally:
        journal.close()


def _told(item: str, event: StepEnded) -> str:
    from capsule.core.evidence import refuted
    from capsule.reports.style import clean

    said = event.outcome.signal
    word = "SUBPHASE_COMPLETE" if said.verdict.value == "MORE" else said.verdict.value
    head = f"  {item} {event.key} said {word}: “{clean(said.feedback or said.summary)}”"
    seen = [
        f"    claimed: {clean(piece.claimed)}\n    seen:    {clean(piece.observed)}"
        for piece in refuted(event.outcome.evidence)
    ]
    return "\n".join([head, *seen])


# ---- what the demo promised, looked at for itself


def _complaints_about_the_story(endings: list[tuple[str, StepEnded]]) -> Iterator[str]:
    """Read from the journal: whoever changes the script changes what is told, and must tell it right."""
    verdicts = [event.decision.verdict.value for _, event in endings]
    if "NEEDS_WORK" not in verdicts:
        yield "no review sent work back."
    if (caught := verdicts.count("REFUTED")) != LIES:
        yield f"{caught} of {LIES} lies were caught."


def _complaints_about_main(project: Project) -> Iterator[str]:
    from capsule.core.item import Status
    from capsule.wiring import open_tracker

    main = project.git.resolve("main")
    merges = project.git.repository("log", "--merges", "--format=%s", main).out.decode(errors="replace").splitlines()
    tracker = open_tracker(project)
    for item in STORY:
        if sum(subject.startswith(f"Merge {item}: ") for subject in merges) != 1:
            yield f"{item} is not merged exactly once."
        if tracker.item(item).status is not Status.DONE:
            yield f"{item} is not closed."
    artefacts = [path for path in _files(project, main) if path == "worklog.md" or path.startswith(".capsule/")]
    if artefacts:
        yield f"main holds {', '.join(artefacts)}."
    if not is_green(project):
        yield "the tests on main are not green."


def _files(project: Project, commit: str) -> list[str]:
    return [entry.path.decode(errors="replace") for entry in project.git.list_tree(commit, recursive=True)]


def is_green(project: Project) -> bool:
    """The project's own test command, in its checkout of main, by the supervised shell that checks agents too."""
    import tempfile

    from capsule.rules import policy_at
    from capsule.system.process import SupervisorClient
    from capsule.workspaces.shell import SupervisedShell

    policy, _ = policy_at(project, project.git.resolve("main"))
    with tempfile.TemporaryDirectory() as folder, SupervisorClient() as supervisor:
        log = Path(folder, "tests.log")
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        ran = SupervisedShell(supervisor, None).run(policy.test, project.root, log, timeout=60, env=quiet)
    return ran.why == "exited" and ran.exit_code == 0
