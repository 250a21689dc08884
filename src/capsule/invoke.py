"""Run the command that was typed, and turn whatever goes wrong into an exit code and a line for people."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from pathlib import Path

from capsule.commands.arguments import parse
from capsule.commands.verbs import ALIASES, HINTS, INTERNAL, VERBS
from capsule.core.errors import Refused, UsageError
from capsule.core.text import nearest
from capsule.system.output import LastingOutput, silence
from capsule.system.umask import own_files_closed_to_others

_READING = (
    *("show", "status", "list", "questions", "explain", "logs", "report", "doctor", "config", "dashboard"),
    *("demo", "setup-template", "run-phase", "parse-signal", "completion", "version"),
)
"""Commands that can be used from inside a phase too."""
_WORKING = ("run", "run-pipeline", "step", "triage", "merge")
"""Commands whose work counts, and not whether somebody reads their last words."""
_LASTING = (*_WORKING, "dashboard", "demo", "logs")
"""Commands that go on for as long as there is work, or somebody looks."""
_UNHEARD = 141
"""As the shell says it of a program whose listener has left: 0 would mean that the work is done."""


def invoke(words: list[str]) -> int:
    """Run `capsule WORDS`; every exception is caught here, and nowhere else."""
    try:
        with own_files_closed_to_others():
            return _run(words[0], words[1:])
    except KeyboardInterrupt:
        return 130
    except Exception as fault:  # noqa: BLE001 - the one place where everything is caught
        return failed(fault, words)


def failed(fault: Exception, words: list[str]) -> int:
    """Say what went wrong; return the exit code."""
    from capsule.faults import explain  # noqa: PLC0415 - start-up

    if not isinstance(fault, BrokenPipeError):
        return explain(fault, words)
    silence(sys.stdout)
    return _UNHEARD if words[:1] and words[0] in _WORKING else 0


def _run(name: str, words: list[str]) -> int:
    if name not in VERBS and name not in INTERNAL:
        name, words = _meant(name, words)
    lasts = name in _LASTING or name == "_runner"
    gc.set_threshold(100_000 if lasts else 1_000_000)  # most commands end before there is any garbage
    atexit.register(gc.freeze)  # and look for none when all goes at once: a tenth of what `status` costs
    _load_msgspec()
    args = parse(name, words)
    if os.environ.get("CAPSULE_REPOSITORY") and name in VERBS and name not in _READING:
        _refuse_inside_a_phase(name, getattr(args, "project_dir", None) or ".")
    if name in _WORKING:
        return _work(args)
    code = int(args.command(args))
    sys.stdout.flush()  # while a full disk can still be reported
    return code


def _meant(name: str, words: list[str]) -> tuple[str, list[str]]:
    """Return the command that another word for it stands for; refuse what may mean several, or nothing."""
    if name in ALIASES:
        meant, *options = ALIASES[name]
        return meant, [*options, *words]
    if name in HINTS:
        raise UsageError(f"There is no command `{name}`.", HINTS[name])
    near = nearest(name, [*VERBS, *ALIASES])
    hint = f"Did you mean `capsule {near[0]}`?" if near else "`capsule --help` lists the commands."
    raise UsageError(f"There is no command `{name}`.", hint)


def _work(args: argparse.Namespace) -> int:
    """Run a command that is as successful as its work, also where its output cannot be written."""
    stdout = sys.stdout
    output = LastingOutput(stdout)
    sys.stdout = output
    try:
        code = int(args.command(args))
        output.flush()
    finally:
        sys.stdout = stdout
    if output.lost and not isinstance(output.lost, BrokenPipeError):
        print(f"note: not all output could be written: {output.lost.strerror}; see `capsule status`", file=sys.stderr)
    return code


def _load_msgspec() -> None:
    """Load msgspec without typing_extensions, which it tries and does not need: that costs a fifth of `status`."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401, PLC0415 - start-up

        del sys.modules["typing_extensions"]


def _refuse_inside_a_phase(name: str, folder: str) -> None:
    """Keep an agent's or a test's own `capsule` from changing the repository it works for; others are free."""
    from capsule.system.git import Git, NotARepository  # noqa: PLC0415 - start-up

    try:
        common = Git.find(Path(folder).absolute()).common_dir
    except (NotARepository, OSError):
        return
    if str(common) == os.environ["CAPSULE_REPOSITORY"]:
        whose = f" of {os.environ['CAPSULE_MISSION']}" if os.environ.get("CAPSULE_MISSION") else ""
        hint = "Say in the phase's own answer what is left to do; a person or the next phase decides."
        raise Refused(f"`capsule {name}` is not for use inside a phase{whose}: nothing was changed.", hint)
