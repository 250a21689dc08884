"""Plays a script as if it were an agent: `python _player.py SCRIPT -p PROMPT`, in the worktree.

A script maps items to phases to runs, in order; the last run repeats, and `*` stands for any item or phase:

    demo-1.1.1:
      execute:
        - say: ["Reading worklog.md ..."]        lines printed before the signal
          write: {src/a.py: "..."}               whole files
          edit: [{file: src/a.py, find: x, replace: y}]    exact, must occur once
          remove: [old.py]
          run: ["git add src/a.py"]              shell commands in the worktree
          sleep: 0.2
          result: {...}                          written to $CAPSULE_RESULT
          signal: {status: PASS, ...}            printed last, as one line of JSON
          exit: 0

Which run it is, Capsule says by environment. It imports as little as it can: it is started for every phase.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


def main(argv: list[str]) -> int:
    turn = _turn(_load(argv[1]), os.environ)
    if turn is None:
        print(f"The script says nothing about {os.environ.get('CAPSULE_PHASE')}.")  # noqa: T201
        return 3
    for name, act in _ACTS.items():
        if name in turn:
            act(turn[name])
    return int(turn.get("exit", 0))


def _load(path: str) -> Any:
    text = Path(path).read_text(encoding="utf-8")
    if path.endswith(".json"):
        return json.loads(text)
    from yaml12 import parse_yaml  # noqa: PLC0415 - a JSON script needs no YAML

    return parse_yaml(text)


def _turn(script: Any, env: Any) -> Any:
    """What to do this time."""
    for pattern, phases in script.items():
        if fnmatchcase(env.get("CAPSULE_ITEM", ""), str(pattern)):
            turns = phases.get(env.get("CAPSULE_PHASE", "")) or phases.get("*")
            if turns:
                return turns[min(int(env.get("CAPSULE_RUN", "1")), len(turns)) - 1]
    return None


def _say(lines: list[str]) -> None:
    for line in lines:
        print(line, flush=True)  # noqa: T201


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def _edit(edits: list[dict[str, str]]) -> None:
    for edit in edits:
        path = Path(edit["file"])
        text = path.read_text(encoding="utf-8")
        if text.count(edit["find"]) != 1:
            sys.exit(f"{path}: the text to replace occurs {text.count(edit['find'])} times, not once.")
        path.write_text(text.replace(edit["find"], edit["replace"]), encoding="utf-8")


def _remove(names: list[str]) -> None:
    for name in names:
        Path(name).unlink()


def _run(commands: list[str]) -> None:
    for command in commands:
        subprocess.run(command, shell=True, check=True)  # noqa: S602 - the script's author runs their own commands


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _result(answer: dict[str, Any]) -> None:
    Path(os.environ["CAPSULE_RESULT"]).write_text(json.dumps(answer), encoding="utf-8")


def _signal(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, ensure_ascii=False), flush=True)  # noqa: T201


_ACTS: dict[str, Callable[[Any], None]] = {
    "say": _say,
    "write": _write,
    "edit": _edit,
    "remove": _remove,
    "sleep": _sleep,
    "run": _run,
    "result": _result,
    "signal": _signal,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv))
