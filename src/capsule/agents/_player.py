"""Play a script as if it were an agent: `python _player.py SCRIPT -p PROMPT`, in the worktree.

A script maps items to phases to runs, in order; the last run repeats, and `*` stands for any item or phase:

    demo-1.1.1:
      execute:
        - say: ["Reading worklog.md ..."]        lines printed before the signal; a text is printed as it is
          stderr: "..."                          printed there
          commit: [{paths: [src/a.py], message: Add a}]    each may write and remove first; `uncommit: 1` takes one back
          remove: [old.py]
          write: {src/a.py: "..."}               whole files; {text, base64 or link, executable} where text will not do
          append: {worklog.md: "..."}
          edit: [{file: src/a.py, find: x, replace: y}]    exact, must occur once
          run: ["git add src/a.py"]              shell commands in the worktree
          sleep: 0.2
          result: {...}                          written to $CAPSULE_RESULT; a text is written as it is
          signal: {status: PASS, ...}            printed last, as one line of JSON
          exit: 0

`--record` writes such a script. It has `_recording` beside the items; then no run repeats, and a run may also hold what
`scripted.py` reads: the prompt, how the agent ended, what it used and how often its provider turned it away.

The environment says which run it is. It imports as little as it can: it is started for every phase.
"""

# ruff: noqa: PTH101, PTH103, PTH106, PTH108, PTH114, PTH120, PTH123, PTH208, PTH211
# (pathlib, typing and subprocess together would cost more than all the rest of the start-up)

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

RECORDING = "_recording"
"""Marks a script as a recording. No item can have this name."""


def main(argv: list[str]) -> int:
    turn = turn_for(load(argv[1]), os.environ)
    if turn is None:
        print(f"The script says nothing about {os.environ.get('CAPSULE_PHASE')}.")  # noqa: T201
        return 3
    play(turn)
    return int(turn.get("exit", 0))


def load(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".json"):
        return json.loads(text)
    from yaml12 import parse_yaml  # noqa: PLC0415 - a JSON script needs no YAML

    return parse_yaml(text)


def turn_for(script: Any, env: Mapping[str, str]) -> Any:
    """Return the entry of the script for this run, or None."""
    run, item = int(env.get("CAPSULE_RUN", "1")), env.get("CAPSULE_ITEM", "")
    for pattern, phases in script.items():
        if pattern == RECORDING:
            continue
        if str(pattern) not in ("*", item):
            from fnmatch import fnmatchcase  # noqa: PLC0415 - nearly every script does without

            if not fnmatchcase(item, str(pattern)):
                continue
        turns = phases.get(env.get("CAPSULE_PHASE", "")) or phases.get("*")
        if turns and run > len(turns):
            return None if RECORDING in script else turns[-1]
        if turns:
            return turns[run - 1]
    return None


def play(turn: dict[str, Any]) -> None:
    """Do everything that the turn says: words first, then files, then the answer."""
    if "left_out" in turn:
        told = "; ".join(f"{path}: {why}" for path, why in turn["left_out"].items())
        sys.exit(f"This run cannot be played: not everything was recorded. {told}. Without `left_out` it goes on.")
    said = turn.get("say", "")
    sys.stdout.buffer.write((said if isinstance(said, str) else "".join(f"{line}\n" for line in said)).encode())
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(turn.get("stderr", "").encode())
    sys.stderr.buffer.flush()
    if "uncommit" in turn:
        _git("reset", "--soft", f"HEAD~{turn['uncommit']}")
    for commit in turn.get("commit", []):
        _remove(commit.get("remove", []))
        _write(commit.get("write", {}))
        _commit(commit.get("paths", []), commit["message"])
    _remove(turn.get("remove", []))
    _write(turn.get("write", {}))
    for name, text in turn.get("append", {}).items():
        with open(name, "ab") as file:
            file.write(text.encode())
    for edit in turn.get("edit", []):
        _replace(edit["file"], edit["find"], edit["replace"])
    time.sleep(turn.get("sleep", 0))
    for command in turn.get("run", []):
        import subprocess  # noqa: PLC0415 - few turns start anything

        subprocess.run(command, shell=True, check=True)  # noqa: S602 - the script's author runs their own commands
    if "result" in turn:
        result = turn["result"]
        with open(os.environ["CAPSULE_RESULT"], "w", encoding="utf-8") as file:
            file.write(result if isinstance(result, str) else json.dumps(result))
    if "signal" in turn:
        print(json.dumps(turn["signal"], ensure_ascii=False), flush=True)  # noqa: T201


def _commit(paths: list[str], message: str) -> None:
    """Commit exactly these paths as they are now on top of HEAD, whatever else is staged; run no hook."""
    index = f"{_git('rev-parse', '--absolute-git-dir').strip()}/index.replayed"
    listed = "".join(f"{path}\0" for path in paths)
    apart = {"GIT_INDEX_FILE": index}
    try:
        _git("read-tree", "HEAD", **apart)
        _git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=listed, **apart)
        tree = _git("write-tree", **apart).strip()
        commit = _git("commit-tree", "-p", "HEAD", tree, given=message).strip()
        _git("update-ref", "-m", "replayed", "HEAD", commit)
    finally:
        if os.path.lexists(index):
            os.unlink(index)
    _git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=listed)


def _git(*args: str, given: str = "", **env: str) -> str:
    import subprocess  # noqa: PLC0415 - few turns start anything

    done = subprocess.run(
        ["git", *args], input=given, capture_output=True, text=True, check=False, env={**os.environ, **env}
    )
    if done.returncode:
        sys.exit(f"git {args[0]}: {done.stderr.strip()}")
    return done.stdout


def _remove(names: list[str]) -> None:
    """Remove files, and folders that are then empty: something else may take their place."""
    for name in names:
        os.unlink(name)
        folder = os.path.dirname(name)
        while folder and not os.listdir(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def _write(files: dict[str, Any]) -> None:
    for name, given in files.items():
        content = given if isinstance(given, dict) else {"text": given}
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        if os.path.islink(name) or ("link" in content and os.path.lexists(name)):
            os.unlink(name)
        if "link" in content:
            os.symlink(content["link"], name)
            continue
        if "base64" in content:
            from base64 import b64decode  # noqa: PLC0415 - few files are binary

            data = b64decode(content["base64"])
        else:
            data = str(content["text"]).encode()
        with open(name, "wb") as file:
            file.write(data)
        if "executable" in content:
            os.chmod(name, 0o755 if content["executable"] else 0o644)


def _replace(name: str, find: str, replacement: str) -> None:
    with open(name, encoding="utf-8") as file:
        text = file.read()
    if text.count(find) != 1:
        sys.exit(f"{name}: the text to replace occurs {text.count(find)} times, not once.")
    with open(name, "w", encoding="utf-8") as file:
        file.write(text.replace(find, replacement))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
