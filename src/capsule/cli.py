"""The entry point: `--version` and `--help` load next to nothing, and a command only what it needs."""

from __future__ import annotations

import os
import sys

from capsule import __version__
from capsule.commands.verbs import ALIASES, GROUPS, OVERVIEW, VERBS
from capsule.system.output import LastingOutput


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    _make_streams_usable()
    try:
        return _answer(words)
    except OSError as fault:  # `--version` and `--help`, to a full disk or a closed pipe
        from capsule.invoke import failed  # noqa: PLC0415 - start-up

        return failed(fault, words)


def _answer(words: list[str]) -> int:
    if words[:1] in (["--version"], ["-V"], ["version"]) and len(words) == 1:
        print(f"capsule {__version__}", flush=True)
        return 0
    if words and words[0] in ("-h", "--help", "help") and words[1:2] and words[1] in {**VERBS, **ALIASES}:
        words = [words[1], "--help"]
    elif words and words[0] in ("-h", "--help", "help"):
        return _help()
    from capsule.invoke import invoke  # noqa: PLC0415 - start-up of `--version` and `--help`

    return invoke(words or [OVERVIEW])


def _make_streams_usable() -> None:
    """Replace odd characters, closed streams and a stderr that cannot be written to: none of them is a bug."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - pathlib is not loaded for this
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if not isinstance(sys.stderr, LastingOutput):
        sys.stderr = LastingOutput(sys.stderr)


def _help() -> int:
    print("usage: capsule COMMAND [options]\n")
    print("Runs coding agents unattended, checks their claims, and merges what is proven.")
    for title, group in GROUPS.items():
        print(f"\n{title}:")
        for name, verb in group.items():
            print(f"  {name:<15} {verb.help}")
    print("\nStart with `capsule demo`. `capsule` alone says what to type next in a project.")
    print("`capsule COMMAND --help` says more about each.", flush=True)
    return 0
