"""Arguments, and the one error handler. Only the verb that was typed is loaded, and only what it needs."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from capsule import __version__


class Verb:
    """A command: its module, its line in the list, and the exit code of a usage error."""

    def __init__(self, module: str, words: str, usage_error: int = 2) -> None:
        self.module = module
        self.help = words
        self.usage_error = usage_error


GROUPS: dict[str, dict[str, Verb]] = {
    "See it work": {
        "demo": Verb("demo", "run two tasks through the whole pipeline, with a scripted agent"),
        "doctor": Verb("doctor", "what is installed, what is missing, how to get it"),
    },
    "Work": {
        "run": Verb("run", "take an item through its workflow, to main"),
        "step": Verb("step", "take an item one agent further, then stop"),
        "triage": Verb("triage", "have every new item of the backlog assessed"),
        "dashboard": Verb("dashboard", "browse items, watch missions, do what there is to do; also in a browser"),
        "show": Verb("show", "where a mission stands: phases, claims against evidence, feedback"),
        "report": Verb("report", "what missions came to, as a page to look at: times, claims, cost, changes"),
        "logs": Verb("logs", "what the agents of a mission printed"),
        "abort": Verb("abort", "end a mission; keep its branch"),
        "clean": Verb("clean", "end missions and delete their branches; everything is salvaged first"),
        "config": Verb("config", "every effective setting, and where it comes from"),
    },
    "Items": {
        "init": Verb("init", "make a backlog in this project"),
        "add": Verb("add", "put an item into the tracker: a backlog, or beads"),
        "status": Verb("status", "every open item, what it waits for, and which missions are under way"),
        "explain": Verb("explain", "which item is next, and why every other is not"),
        "advance": Verb("advance", "move an item of the backlog one step on, or to a phase"),
        "unblock": Verb("unblock", "let an item go on that is blocked or has halted, with notes for its next agent"),
        "approve": Verb("approve", "say yes to an item of the backlog that waits for a decision"),
        "complete": Verb("complete", "say that an item is done; it is archived, or closed in its tracker"),
        "close": Verb("close", "say that an item will not be done; it is archived, or closed in its tracker"),
    },
    "Step by step": {
        "setup-template": Verb("setup_template", "make the demo project", 1),
        "run-pipeline": Verb("run_pipeline", "take one item through its workflow; never the queue"),
        "prep": Verb("prep", "make a worktree and a worklog for an item", 1),
        "run-phase": Verb("run_phase", "run one agent with one prompt in a directory"),
        "parse-signal": Verb("parse_signal", "read the signal from an agent's output on stdin"),
        "merge": Verb("merge", "merge a mission that is signed off"),
        "teardown": Verb("teardown", "remove all worktrees; keep logs and journal", 1),
    },
    "Other": {
        "completion": Verb("completion", "shell completion for bash, zsh or tcsh"),
        "version": Verb("version", "the version"),
    },
}
_READING = (
    *("show", "status", "explain", "logs", "report", "doctor", "config", "dashboard"),
    *("demo", "setup-template", "run-phase", "parse-signal", "completion", "version"),
)
"""What can be asked from inside a phase too."""
_WORKING = ("run", "run-pipeline", "step", "triage")
_UNHEARD = 141
"""As the shell says it of a program whose listener has left: 0 would mean that the work is done."""
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    _make_streams_usable()
    if words[:1] in (["--version"], ["-V"], ["version"]) and len(words) == 1:
        print(f"capsule {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        return _help(words[1:])
    from capsule.system.umask import own_files_closed_to_others

    try:
        with own_files_closed_to_others():
            return _run(words[0], words[1:])
    except BrokenPipeError:
        _silence_stdout()
        return _UNHEARD if words[0] in _WORKING else 0
    except KeyboardInterrupt:
        return 130
    except Exception as fault:  # noqa: BLE001 - the one place where everything is caught
        return _explain(fault, words)


def _make_streams_usable() -> None:
    """Whatever the terminal's encoding, and where there is no stream: odd characters and closed ends are no bug."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - pathlib is not loaded for this
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _run(name: str, words: list[str]) -> int:
    from capsule.core.errors import UsageError

    if name not in VERBS:
        raise UsageError(f"There is no command `{name}`.", _nearest(name))
    from importlib import import_module

    from capsule.commands.arguments import parse

    gc.set_threshold(100_000)  # most commands end before there is any garbage
    atexit.register(gc.freeze)  # and look for none when all goes at once: a tenth of what `status` costs
    _load_msgspec()
    verb = VERBS[name]
    module = import_module(f"capsule.commands.{verb.module}")
    args = parse(name, module, words, usage_error=verb.usage_error)
    if os.environ.get("CAPSULE_REPOSITORY") and name not in _READING:
        _refuse_inside_a_phase(name, getattr(args, "project_dir", None) or ".")
    code = int(module.run(args))
    sys.stdout.flush()  # while a full disk can still be reported
    return code


def _load_msgspec() -> None:
    """Without typing_extensions, which loads half of the standard library: msgspec tries it, and needs none of it."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]


def _refuse_inside_a_phase(name: str, folder: str) -> None:
    """An agent's or a test's own `capsule` changes nothing in the repository it works for; others are free."""
    from pathlib import Path

    from capsule.core.errors import Refused
    from capsule.system.git import Git, NotARepository

    try:
        common = Git.find(Path(folder).absolute()).common_dir
    except (NotARepository, OSError):
        return
    if str(common) == os.environ["CAPSULE_REPOSITORY"]:
        whose = f" of {os.environ['CAPSULE_MISSION']}" if os.environ.get("CAPSULE_MISSION") else ""
        hint = "Say in the phase's own answer what is left to do; a person or the next phase decides."
        raise Refused(f"`capsule {name}` is not for use inside a phase{whose}: nothing was changed.", hint)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, VERBS, 1)
    return f"Did you mean `capsule {near[0]}`?" if near else "`capsule --help` lists the commands."


def _help(words: list[str]) -> int:
    if words and words[0] in VERBS:
        return _run(words[0], ["--help"])
    print("usage: capsule COMMAND [options]\n")
    print("Runs coding agents unattended, checks what they claim, and merges only what is proven.")
    for title, group in GROUPS.items():
        print(f"\n{title}:")
        for name, verb in group.items():
            print(f"  {name:<15} {verb.help}")
    print("\nStart with `capsule demo`. `capsule COMMAND --help` says more about each.")
    return 0


def _explain(fault: Exception, words: list[str]) -> int:
    """One line of cause, one of what to do next; a traceback goes to a file, never to the user."""
    from capsule.core.errors import CapsuleError

    if isinstance(fault, OSError):
        fault = _disk_fault(fault) or fault
    from capsule.core.redaction import Redactor
    from capsule.system.secrets import spelled, values_of

    safe = Redactor(spelled(values_of(os.environ))).text
    if isinstance(fault, CapsuleError):
        print(f"capsule: {safe(fault.message)}", file=sys.stderr)
        if fault.hint:
            print(f"  {safe(fault.hint)}", file=sys.stderr)
        return fault.exit_code
    from capsule.crash_report import write

    print(f"capsule: this is a bug in Capsule: {type(fault).__name__}: {safe(str(fault))}", file=sys.stderr)
    print(f"  Nothing is lost. Please report it with {write(fault, words, safe)}.", file=sys.stderr)
    return 2


def _disk_fault(fault: OSError) -> Exception | None:
    """A disk that takes no more is the user's to mend, wherever we noticed it."""
    import errno
    from pathlib import Path

    if fault.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return None
    from capsule.system.files import CannotWrite

    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    return CannotWrite(Path(os.fsdecode(fault.filename or "the output")), fault)


def _silence_stdout() -> None:
    """Whoever read our output has left; the interpreter must not complain about that when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
