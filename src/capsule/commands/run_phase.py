"""Run one agent with one prompt in a directory, and print the signal it ended with.

  capsule run-phase test-writer .capsule/worktrees/demo-1.1.1
  capsule run-phase execute DIR --feedback "handle the empty string"

The agent's output goes to DIR/.capsule/output/<phase>-<time>-<pid>.log and .log.stderr; only the signal goes to stdout.
There is no git, tracker or journal, and nothing is checked against evidence: `capsule run` does that.
An agent whose workflow has it answer by file may also say MORE, FAILED or BLOCKED.
Exit code: 0 PASS; 1 any other claim; 2 ERROR, no claim, or it could not run.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from msgspec.structs import replace

from capsule.catalog import Catalog
from capsule.commands.arguments import agent_options, say, tell
from capsule.core.briefing import Briefing, SandboxPaths, prompt_values
from capsule.core.errors import CapsuleError, Interrupted
from capsule.core.failure import Reaction
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict, error_signal, signal_json
from capsule.core.state import MissionState
from capsule.core.workflow import Contract, Phase, Workflow
from capsule.engine.brief import fill_prompt
from capsule.engine.work import result_of, signal_of
from capsule.journals.logs import LogFolders
from capsule.project import redactor_of
from capsule.settings import Settings, load_settings
from capsule.system.clock import SystemClock
from capsule.system.folders import make_folders_inside
from capsule.system.git import Git
from capsule.system.process import SupervisorClient
from capsule.system.stop import Stop
from capsule.wiring import agent_maker, find_sandbox

EXIT = {Verdict.PASS: 0, Verdict.MORE: 1, Verdict.NEEDS_WORK: 1, Verdict.FAILED: 1, Verdict.BLOCKED: 1}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phase", metavar="PHASE", help="the name of a prompt, such as test-writer")
    parser.add_argument("worktree", metavar="DIR", help="where the agent works")
    parser.add_argument("--feedback", metavar="TEXT", default="", help="feedback of the last review")
    agent_options(parser)
    parser.add_argument(
        "--workflow", metavar="NAME", default="tdd", help="the workflow whose prompt is used, if several have one"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the prompt and the command; do nothing")


def run(args: argparse.Namespace) -> int:
    try:
        signal = _run(args)
    except Interrupted:
        raise
    except (CapsuleError, OSError) as trouble:
        if isinstance(trouble, CapsuleError):
            fault = trouble
        else:
            what, hint = trouble.filename or "The directory", "Name a directory you may write to."
            fault = CapsuleError(f"{what} cannot be used: {trouble.strerror or trouble}.", hint)
        print(signal_json(error_signal(fault.message)))
        tell(f"capsule: {fault.message}\n  {fault.hint}".rstrip())
        return 2
    if signal is None:
        return 0
    print(signal_json(signal))
    return 2 if signal.synthetic else EXIT.get(signal.verdict, 2)


def _run(args: argparse.Namespace) -> Signal | None:
    """Run the agent and return its signal; None after a dry run."""
    place = Path(args.worktree).absolute()
    if not place.is_dir():
        raise CapsuleError(f"{place} is not a directory.", "Name the directory the agent should work in.")
    start = Path(args.project_dir).absolute() if args.project_dir else place
    git = _git_around(start)
    root = git.root if git else start
    settings = load_settings(root, env=os.environ, flags={"agent": args.agent}).settings
    redactor = redactor_of(settings, os.environ)
    results = LogFolders(place, redactor.data)
    briefing = _brief(args, place, Catalog.on_disk(root), settings, results)
    with Stop() as stop, SupervisorClient(secrets=redactor.spellings) as supervisor:
        sandbox = find_sandbox(settings, os.environ, (place,))
        make = agent_maker(
            settings, place, supervisor, stop, model=args.model or "", sandbox=sandbox, redact=redactor.text
        )
        agent = make("", "")
        if args.dry_run:
            say(" ".join("PROMPT" if word == briefing.prompt else word for word in agent.describe(briefing)))
            say(redactor.text(briefing.prompt))
            return None
        agent.check()
        if briefing.result_path:
            make_folders_inside(place, Path(briefing.result_path).parent)
            results.result_path(briefing.item, briefing.phase)  # removes leftovers of an earlier agent
        transcript = agent.run(briefing)
    if transcript.why == "stopped":
        raise Interrupted(f"Stopped during {briefing.phase}.")
    failure = transcript.failure
    if failure and failure.reaction is not Reaction.JUDGE:
        raise CapsuleError(failure.reason, failure.hint)
    if briefing.result_path:
        written = results.take_result(briefing.item, briefing.phase)
        return result_of(transcript, written, briefing.item, briefing.phase)
    return signal_of(transcript)


def _git_around(folder: Path) -> Git | None:
    try:
        return Git.find(folder)
    except CapsuleError:
        return None


def _brief(args: argparse.Namespace, place: Path, words: Catalog, settings: Settings, results: LogFolders) -> Briefing:
    execution, item = settings.execution, os.environ.get("CAPSULE_ITEM", place.name)
    git = _git_around(place)  # the agent can commit, and without a mission its commits would not be imported
    stamp = re.sub(r"\D", "", SystemClock().now())
    workflow, phase = _find_phase(words, args.phase, args.workflow)
    state = MissionState(item=Item(id=item, title=item), workflow=workflow)
    result = str(results.result_path(item, phase.name, dry=True)) if workflow.contract is Contract.RESULT else ""
    values = prompt_values(state, phase.name, result)
    prompt = fill_prompt(words, state, phase, values, args.feedback, source=args.phase)
    env = {"CAPSULE_ITEM": item, "CAPSULE_PHASE": phase.name, "CAPSULE_RUN": os.environ.get("CAPSULE_RUN", "1")}
    return Briefing(
        mission="",
        item=item,
        phase=phase.name,
        run=1,
        prompt=prompt,
        cwd=str(place),
        log=str(place / ".capsule" / "output" / f"{phase.name}-{stamp}-{os.getpid()}.log"),
        timeout=execution.phase_timeout_minutes * 60,
        idle_timeout=execution.idle_timeout_minutes * 60,
        env=env | ({"CAPSULE_RESULT": result} if result else {}),
        result_path=result,
        sandbox_paths=SandboxPaths(writable=(str(place), *([str(git.common_dir)] if git else []))),
    )


def _find_phase(words: Catalog, prompt: str, named: str) -> tuple[Workflow, Phase]:
    """Return the phase that uses a prompt: of the named workflow, else of the prompt's own.

    A prompt that no phase uses is a phase by itself.
    """
    known = words.names("workflow")
    chosen = words.workflow(named) if named in known else Workflow(name=named, phases=())
    full = prompt if prompt in chosen.prompts else words.full_name(prompt, named)
    owner = full.partition("/")[0]
    home = words.workflow(owner) if owner in known and "/" in full else chosen
    for workflow in (chosen, home):
        if found := next((phase for phase in workflow.phases if phase.prompt == full), None):
            return workflow, found
    alone = Phase(name=full.rpartition("/")[2], prompt=full)
    return replace(home, phases=(alone,)), alone
