"""Run two tasks through the whole pipeline, with a scripted agent.

The demo makes a project and takes its two tasks to main, in less than half a minute. It needs git and python3: no key,
no agent, no tracker.

The agent is scripted. It plays back a file, and some of its claims are false. Everything else is real: the git
repository, the worktrees, the tests, the gate and the merges. Capsule does not know which claims are false.

  capsule demo               in a fresh temporary directory, which is kept for you to look around
  capsule demo my-demo       in my-demo, which is created
  capsule demo --backlog     the other workflow: one-line ideas, a queue, and one question to you
  capsule demo --no-tui      plain lines, also on a terminal

On a terminal a view shows the agent's claims next to what Capsule saw; any key continues, q stops the demo. Otherwise,
and with --backlog, progress goes to stderr. Results go to stdout. Exit code: 0 every task was merged and every false
claim was caught; 1 something else happened; 2 the demo could not start; 130 it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import Event

import msgspec

from capsule.app.runners import Runner, start_runner
from capsule.commands.arguments import parse, say, tell
from capsule.commands.output import is_for_a_screen
from capsule.commands.setup_template import TEMPLATE, make_project
from capsule.commands.show import is_closed
from capsule.commands.watching import JournalWatcher, MissionReader
from capsule.core.errors import Interrupted, PrerequisiteMissing, Refused
from capsule.core.event import StepEnded
from capsule.core.evidence import refuted
from capsule.core.signal import Verdict
from capsule.core.text import count
from capsule.plain_files import parse_yaml
from capsule.project import Project, open_project
from capsule.reports.style import clean, output_width
from capsule.reports.table import wrap
from capsule.rules import policy_at
from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell

SHOP = TEMPLATE.with_name("demo-backlog")
SHOP_FILES = ("shop", "tests", "README.md", ".gitignore")
PREFIX = "capsule-demo-"
PROGRAM = "capsule"
SCRIPT, STORY = "demo.script.yaml", "demo.story.yaml"
_INTRODUCTION = """\
The agent is scripted: it plays {script}.
Everything else is real: {real}.
The project is {root}
"""


class _Scene(msgspec.Struct, frozen=True):
    """A text, and the commands that are typed after it."""

    say: str
    type: tuple[tuple[str, ...], ...]


class Demo(msgspec.Struct, frozen=True):
    """A demo from its file: texts, commands, and what must be true at the end."""

    real: str
    settings: dict[str, object]
    story: tuple[_Scene, ...]
    items: tuple[str, ...]
    commits: tuple[str, ...]
    false_claims: int
    log: tuple[str, ...]
    look_around: str
    sent_back_by_a_review: int = 0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", help="where to make the project (default: a temporary directory)"
    )
    parser.add_argument("--backlog", action="store_true", help="work through a backlog instead of two tasks")
    parser.add_argument("--no-tui", action="store_true", help="plain lines, also on a terminal")


def run(args: argparse.Namespace) -> int:
    if not shutil.which("python3"):
        raise PrerequisiteMissing("The demo project's tests need `python3`, which is not on the PATH.", "Install it.")
    template = SHOP if args.backlog else TEMPLATE
    demo = read_demo(template)
    target = Path(args.directory) if args.directory else None
    if args.backlog:
        if target is not None and (target.is_symlink() or target.exists()):
            raise Refused(f"{target} exists already.", "Name a directory that does not exist yet.")
        first = demo.commits[0]
        root = make_project(target, "none", prefix=PREFIX, template=SHOP, files=SHOP_FILES, message=first)
    else:
        root = make_project(target, "file", prefix=PREFIX)
    tell(_INTRODUCTION.format(script=SCRIPT, real=demo.real, root=root).rstrip())
    with _settings_of_our_own({**demo.settings, "agents.scripted.args": [str(template / SCRIPT)]}):
        project = open_project(str(root))
        if not args.backlog and not args.no_tui and is_for_a_screen():
            failed = _on_a_screen(demo, project)
            project = open_project(str(root))
            say(f"\n{_card(demo, project)}\n")
        else:
            failed = next((words for words in _commands(demo) if _type(words, root)), ())
        return _conclude(demo, open_project(str(root)), failed)


def _on_a_screen(demo: Demo, project: Project) -> Sequence[str]:
    """Play the story in a view; return the command that failed, if one did."""
    from capsule.tui.demo_view import DemoControls, DemoView  # noqa: PLC0415 - Textual is loaded only for a screen

    runners: list[Runner] = []
    left = Event()

    def play(announce: Callable[[str], None]) -> Sequence[str]:
        for scene in demo.story:
            announce(scene.say)
            for words in scene.type:
                if left.is_set():
                    return ()
                runners.append(start_runner(project.root, [word for word in words if word != "--no-tui"]))
                if runners[-1].wait():
                    return words
        return ()

    view = DemoView(DemoControls(play, JournalWatcher(project).look, _look_around(demo, project)))
    try:
        finished = view.open()
    finally:
        left.set()
        for runner in runners:
            if not runner.ended():
                runner.stop()
                runner.wait()
    if not finished:
        raise Interrupted("The demo was stopped.", f"Its project is kept: {project.root}")
    return view.failed


def _look_around(demo: Demo, project: Project) -> str:
    """Return what to type next; where no shell finds `capsule`, also the line after which it does."""
    place = f"cd {shlex.quote(str(project.root))}"
    ours = Path(sys.executable).parent
    if not shutil.which(PROGRAM) and (ours / PROGRAM).is_file():
        place += f"\n  PATH={shlex.quote(str(ours))}:$PATH"
    return demo.look_around.replace("cd {root}", place).rstrip()


def _card(demo: Demo, project: Project) -> str:
    """`2 merged · 3 lies caught`"""
    with MissionReader(project) as reader:
        known = [reader.history(item) for item in demo.items]
    lies = sum(attempt.verdict == Verdict.REFUTED for history in known for attempt in history.attempts)
    return f"{sum(bool(history.merged) for history in known)} merged · {count(lies, 'lie')} caught"


def read_demo(template: Path) -> Demo:
    return msgspec.convert(parse_yaml((template / STORY).read_bytes(), STORY), Demo)


@contextmanager
def _settings_of_our_own(settings: dict[str, object]) -> Iterator[None]:
    """Set every setting of the demo by the environment; of the user's variables keep only the sandbox."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("CAPSULE_") and name != "CAPSULE_SANDBOX"]:
        del os.environ[name]
    for key, value in settings.items():
        name = f"CAPSULE_{key.replace('.', '__').upper()}"
        os.environ[name] = value if isinstance(value, str) else json.dumps(value)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _commands(demo: Demo) -> Iterator[tuple[str, ...]]:
    """Yield every command of the story, after printing its text."""
    for scene in demo.story:
        tell("\n" + "\n".join(wrap(scene.say, min(100, output_width(sys.stderr)))))
        yield from scene.type


def _type(words: tuple[str, ...], root: Path) -> int:
    """Run `capsule WORDS` in this process."""
    name, *rest = words
    tell(f"\n$ capsule {shlex.join(words)}")
    args = parse(name, [*rest, "--project-dir", str(root)])
    with redirect_stdout(sys.stderr):
        return int(args.command(args))


def _conclude(demo: Demo, project: Project, failed: Sequence[str]) -> int:
    """Check the promises against journal and repository, and show the caught claims."""
    with MissionReader(project) as reader:
        events = [(item, event) for item in demo.items for event in reader.events(item)]
    endings = [(item, event) for item, event in events if isinstance(event, StepEnded)]
    broken = [*_broken_promises(demo, project, Counter(event.decision.verdict for _, event in endings))]
    if failed:
        broken.insert(0, f"`capsule {shlex.join(failed)}` failed.")
    for promise in broken:
        tell(f"capsule: the demo did not end as promised: {promise}")
    tell(f"\n$ git log {' '.join(demo.log)}")
    say(_git(project, "log", "--no-decorate", *demo.log) + "\n")
    caught = [_attempt_line(item, event) for item, event in endings if event.decision.verdict is Verdict.REFUTED]
    say("\n".join([f"Caught: {len(caught)} false claim{'' if len(caught) == 1 else 's'}", *caught, ""]))
    say(_look_around(demo, project))
    return 1 if broken else 0


def _attempt_line(item: str, event: StepEnded) -> str:
    said = event.outcome.signal
    word = "SUBPHASE_COMPLETE" if said.verdict is Verdict.MORE else said.verdict.value
    head = f"  {item} {event.key} said {word}: “{clean(said.feedback or said.summary)}”"
    seen = [
        f"    claimed: {clean(piece.claimed)}\n    seen:    {clean(piece.observed)}"
        for piece in refuted(event.outcome.evidence)
    ]
    return "\n".join([head, *seen])


def _broken_promises(demo: Demo, project: Project, verdicts: Counter[Verdict]) -> Iterator[str]:
    if verdicts[Verdict.NEEDS_WORK] < demo.sent_back_by_a_review:
        yield "no review sent work back."
    if verdicts[Verdict.REFUTED] != demo.false_claims:
        yield f"{verdicts[Verdict.REFUTED]} of {demo.false_claims} false claims were caught."
    history = _git(project, "log", "--first-parent", "--reverse", "--format=%s", "main").splitlines()
    for promised, made in zip(demo.commits, history, strict=False):
        if promised != made:
            yield f"the commit “{promised}” was promised, and “{made}” was made."
            break
    if len(history) != len(demo.commits):
        yield f"{len(history)} of {len(demo.commits)} commits were made."
    for item in demo.items:
        if not is_closed(project, item):
            yield f"{item} is not closed."
    if dirt := _git(project, "status", "--porcelain", "--", ".", ":!.beads"):
        yield f"the tree is not clean: {dirt}."
    files = _git(project, "ls-tree", "-r", "--name-only", "main", "worklog.md", ".capsule").splitlines()
    if artefacts := [file for file in files if file != ".capsule/config.yaml"]:
        yield f"main holds {', '.join(artefacts)}."
    if not _is_green(project):
        yield "the tests on main are not green."


def _git(project: Project, *words: str) -> str:
    return project.git.repository(*words).out.decode(errors="replace").rstrip()


def _is_green(project: Project) -> bool:
    """Run the project's own test command, in its checkout of main, by the supervised shell that checks agents too."""
    policy, _ = policy_at(project, project.git.resolve("main"))
    with tempfile.TemporaryDirectory() as folder, SupervisorClient() as supervisor:
        log = Path(folder, "tests.log")
        quiet = {"PYTHONDONTWRITEBYTECODE": "1"}
        ran = SupervisedShell(supervisor, None).run(policy.test, project.root, log, timeout=60, env=quiet)
    return ran.why == "exited" and ran.exit_code == 0
