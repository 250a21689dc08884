"""Run two tasks through the whole pipeline, with a scripted agent.

The demo makes a project and takes its two tasks to main, in some ten seconds. It needs git and python3: no key, no
agent, no tracker.

The agent is scripted. It does not think: it plays back a file, and some of what it claims is false. Everything else is
real: the git repository, the worktrees, the tests, the gate and the merges. Capsule is not told which claims are false;
it has to find out.

  capsule demo               in a fresh temporary directory, which is kept for you to look around
  capsule demo my-demo       in my-demo, which is created
  capsule demo --backlog     the other workflow: one-line ideas, a queue, and one question to you

Progress goes to stderr, results to stdout. Exit code: 0 every task was merged and every false claim was caught; 1
something came out differently; 2 the demo could not start.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from capsule.app.planning import RunRequest, plan_mission
from capsule.app.running import PLAIN, run_item
from capsule.commands.arguments import parse
from capsule.commands.running import output_for
from capsule.commands.setup_template import (
    TEMPLATE,
    all_or_nothing,
    copy_files,
    make_project,
    run_git,
    start_repository,
)
from capsule.commands.summary import closing_words
from capsule.core.errors import CapsuleError, PrerequisiteMissing, Refused
from capsule.core.event import StepEnded
from capsule.core.evidence import refuted
from capsule.core.item import Status
from capsule.core.state import MissionState
from capsule.project import Project, open_project, open_tracker
from capsule.reports.style import clean
from capsule.rules import policy_at
from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell

STORY = {
    "demo-1.1.1": "The first agent writes tests. Watch the review find a criterion without one, and send it back.",
    "demo-1.1.2": (
        "This one lies. Watch it report PASS while a test is red, then bend that test until it is green. "
        "Both times it is caught, told what was seen, and sent back; only then does it do the work."
    ),
}
"""Each task, and the turn to watch for; both are checked at the end against the journal and the repository."""
LIES = 2
SCRIPT = TEMPLATE / "demo.script.yaml"
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
        return play_backlog(args.directory)
    check_python()
    root = make_project(Path(args.directory) if args.directory else None, "file", prefix="capsule-demo-")
    print(_INTRODUCTION.format(script=SCRIPT.name, root=root), end="", file=sys.stderr)
    project = open_project(str(root), _flags())
    for item, watch in STORY.items():
        print(f"\n--- {item} ---\n{textwrap.fill(watch, 100)}\n", file=sys.stderr)
        if _play(project, item).halt:
            break
    return _conclude(project)


def check_python() -> None:
    if not shutil.which("python3"):
        raise PrerequisiteMissing(
            "The demo project's tests need `python3`, which is not on the PATH.", "Put it there, and try again."
        )


def _flags() -> dict[str, object]:
    """Said as flags, so that no settings of the user's bend the story."""
    return {
        "agent": "scripted",
        "agents.scripted.kind": "scripted",
        "agents.scripted.args": [str(SCRIPT)],
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
    """Run an item as `capsule run ITEM` does, in this process."""
    request = RunRequest((item,), workflow="tdd")
    plan = plan_mission(project, open_tracker(project), item, request)
    state = run_item(plan, request, output_for(project, PLAIN))
    print(f"\n{closing_words(state, project)}", file=sys.stderr)
    return state


def _conclude(project: Project) -> int:
    endings = [(item, event) for item in STORY for event in _endings(project, item)]
    complaints = [*_complaints_about_the_story(endings), *_complaints_about_main(project)]
    for complaint in complaints:
        print(f"capsule: the demo did not come out as promised: {complaint}", file=sys.stderr)
    sys.stderr.flush()
    print(f"\nMerged into main:\n{_history(project)}\n")
    _print_caught(project, STORY)
    first, *_, last = STORY
    print("\n" + _WHERE_TO_LOOK.format(root=shlex.quote(str(project.root)), first=first, last=last), end="")
    return 1 if complaints else 0


def _history(project: Project) -> str:
    log = project.git.repository("log", "--graph", "--oneline", "--no-decorate", "--end-of-options", "main")
    return "\n".join(f"  {line.rstrip()}" for line in log.out.decode(errors="replace").splitlines())


def _print_caught(project: Project, items: Iterable[str]) -> None:
    caught = list(refutations(project, items))
    print(f"Caught: {len(caught)} false claim{'' if len(caught) == 1 else 's'}")
    for line in caught:
        print(line)


def refutations(project: Project, items: Iterable[str]) -> Iterator[str]:
    """List every claim that did not hold, beside what was seen."""
    for item in items:
        yield from (_told(item, e) for e in _endings(project, item) if e.decision.verdict.value == "REFUTED")


def _endings(project: Project, item: str) -> list[StepEnded]:
    journal = project.journal(read_only=True)
    try:
        return [event for _, event in journal.events(item) if isinstance(event, StepEnded)]
    finally:
        journal.close()


def _told(item: str, event: StepEnded) -> str:
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
    policy, _ = policy_at(project, project.git.resolve("main"))
    with tempfile.TemporaryDirectory() as folder, SupervisorClient() as supervisor:
        log = Path(folder, "tests.log")
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        ran = SupervisedShell(supervisor, None).run(policy.test, project.root, log, timeout=60, env=quiet)
    return ran.why == "exited" and ran.exit_code == 0


# ---- the backlog

SHOP = Path(__file__).parent.parent / "templates" / "demo-backlog"
SHOP_SCRIPT = SHOP / "demo.script.yaml"
SHOP_FILES = ("shop", "tests", "README.md", ".gitignore")
FIRST_COMMIT = "A shop that can add up prices"
ANSWER = "Ten percent from a total of 100.00 on."

SHOP_INTRODUCTION = """\
The agent is scripted: it plays {script}, it does not think.
Everything else is real: git, the backlog, the tests, the gate, the commits.
The project is {root}
"""
SHOP_STORY: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
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
"""Words, and the commands that are typed after them."""

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
SHOP_ITEMS = ("WRK-001", "WRK-002", "WRK-003")
SHOP_LIES = 1
SHOP_WHERE_TO_LOOK = """\
Look around:
  cd {root}
  git show --stat HEAD~2
  cat _worklog/*.md
  capsule show WRK-001

The same in your own project, with a real agent:
  capsule init && capsule add "Describe the change in one line" && capsule run
"""


def play_backlog(directory: str | None) -> int:
    check_python()
    root = _make_shop(Path(directory).absolute() if directory else None)
    print(SHOP_INTRODUCTION.format(script=SHOP_SCRIPT.name, root=root), end="", file=sys.stderr)
    with _settings_of_our_own():
        failed = next((words for words in _shop_commands() if _type(words, root)), ())
        return _conclude_shop(root, shlex.join(failed))


def _shop_commands() -> Iterator[tuple[str, ...]]:
    """Every command of the story, after the words that go before it."""
    for words, commands in SHOP_STORY:
        print(f"\n{textwrap.fill(words, 100)}", file=sys.stderr)
        yield from commands


def _type(words: tuple[str, ...], root: Path) -> int:
    """Run `capsule WORDS` in this process, with plain lines."""
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
    values = {
        "agent": "scripted",
        "agents__scripted__kind": "scripted",
        "agents__scripted__args": json.dumps([str(SHOP_SCRIPT)]),
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


def _make_shop(target: Path | None) -> Path:
    """The shop in a repository of its own, with one commit; its absolute path."""
    if target is not None and (target.is_symlink() or target.exists()):
        raise Refused(f"{target} is there already.", "Name a directory that does not exist yet.")
    try:
        place = target or Path(tempfile.mkdtemp(prefix="capsule-demo-")).resolve()
        with all_or_nothing(place, fresh=target is None):
            copy_files(SHOP, SHOP_FILES, place)
            start_repository(place)
            run_git(place, "add", "--", *SHOP_FILES)
            run_git(place, "commit", "--quiet", f"--message={FIRST_COMMIT}")
    except OSError as fault:
        raise CapsuleError(
            f"The project cannot be made: {fault}.", "Choose a directory that you may write to."
        ) from None
    return place


# ---- what the demo promised, looked at for itself


def _conclude_shop(root: Path, failed: str) -> int:
    project = open_project(str(root))
    complaints = [*_complaints_about_shop(project, failed)]
    for complaint in complaints:
        print(f"capsule: the demo did not come out as promised: {complaint}", file=sys.stderr)
    print("\n$ git log --oneline --reverse", file=sys.stderr)
    sys.stderr.flush()
    print(_git_says(project, "log", "--oneline", "--reverse", "--no-decorate"))
    print()
    _print_caught(project, SHOP_ITEMS)
    print("\n" + SHOP_WHERE_TO_LOOK.format(root=shlex.quote(str(root))), end="")
    return 1 if complaints else 0


def _complaints_about_shop(project: Project, failed: str) -> Iterator[str]:
    if failed:
        yield f"`capsule {failed}` did not end with 0."
    history = _git_says(project, "log", "--reverse", "--format=%s").splitlines()
    for told, found in zip(COMMITS, history, strict=False):
        if told != found:
            yield f"the commit “{told}” was promised, and “{found}” was made."
            break
    if len(history) != len(COMMITS):
        yield f"{len(history)} of {len(COMMITS)} commits were made."
    if (caught := len(list(refutations(project, SHOP_ITEMS)))) != SHOP_LIES:
        yield f"{caught} of {SHOP_LIES} lies were caught."
    if left := [item.id for item in open_tracker(project).items()]:
        yield f"{', '.join(left)} is still in the backlog."
    if dirt := _git_says(project, "status", "--porcelain"):
        yield f"the tree is not clean: {dirt}."
    if not is_green(project):
        yield "the tests are not green."


def _git_says(project: Project, *words: str) -> str:
    return project.git.repository(*words).out.decode(errors="replace").strip()
