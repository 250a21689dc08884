"""Plays a script as if it were an agent: `python _player.py SCRIPT -p PROMPT`, in the worktree.

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

Which run it is, Capsule says by environment. It imports as little as it can: it is started for every phase.
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
    from collections.abc import Callable, Mapping
    from typing import Any

RECORDING = "_recording"
"""What makes a script a recording. No item can be called so."""


def main(argv: list[str]) -> int:
    turn = turn_for(load(argv[1]), os.environ)
    if turn is None:
        print(f"The script says nothing about {os.environ.get('CAPSULE_PHASE')}.")  # noqa: T201
        return 3
    for name, act in _ACTS.items():
        if name in turn:
            act(turn[name])
    return int(turn.get("exit", 0))


def load(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".json"):
        return json.loads(text)
    from yaml12 import parse_yaml  # noqa: PLC0415 - a JSON script needs no YAML

    return parse_yaml(text)


def turn_for(script: Any, env: Mapping[str, str]) -> Any:
    """What to do this time."""
    run = int(env.get("CAPSULE_RUN", "1"))
    for pattern, phases in script.items():
        if pattern != RECORDING and _is_about(str(pattern), env.get("CAPSULE_ITEM", "")):
            turns = phases.get(env.get("CAPSULE_PHASE", "")) or phases.get("*")
            if turns:
                return _of_run(turns, run, repeats=RECORDING not in script)
    return None


def _is_about(pattern: str, item: str) -> bool:
    if pattern in ("*", item):
        return True
    from fnmatch import fnmatchcase  # noqa: PLC0415 - nearly every script does without

    return fnmatchcase(item, pattern)


def _of_run(turns: list[Any], run: int, *, repeats: bool) -> Any:
    if run > len(turns):
        return turns[-1] if repeats else None
    return turns[run - 1]


def _say(words: str | list[str]) -> None:
    text = words if isinstance(words, str) else "".join(f"{line}\n" for line in words)
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _complain(text: str) -> None:
    sys.stderr.buffer.write(text.encode())
    sys.stderr.buffer.flush()


def _refuse(missing: dict[str, str]) -> None:
    told = "; ".join(f"{path}: {why}" for path, why in missing.items())
    sys.exit(
        f"This run cannot be played: not everything was recorded. {told}. Without `left_out` it goes on regardless."
    )


def _uncommit(how_many: int) -> None:
    _git("reset", "--soft", f"HEAD~{how_many}")


def _commit(commits: list[dict[str, Any]]) -> None:
    for commit in commits:
        _remove(commit.get("remove", []))
        _write(commit.get("write", {}))
        _commit_paths(commit.get("paths", []), commit["message"])


def _commit_paths(paths: list[str], message: str) -> None:
    """Exactly these paths, as they are now, on top of HEAD, whatever else is staged; no hook has a say."""
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
    """With the folders that are empty then: something else may take their place."""
    for name in names:
        os.unlink(name)
        folder = os.path.dirname(name)
        while folder and not os.listdir(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def _write(files: dict[str, Any]) -> None:
    for name, content in files.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        if os.path.islink(name):
            os.unlink(name)
        _fill(name, content if isinstance(content, dict) else {"text": content})


def _fill(name: str, content: dict[str, Any]) -> None:
    if "link" in content:
        if os.path.lexists(name):
            os.unlink(name)
        os.symlink(content["link"], name)
        return
    with open(name, "wb") as file:
        file.write(_bytes_of(content))
    if "executable" in content:
        os.chmod(name, 0o755 if content["executable"] else 0o644)


def _bytes_of(content: dict[str, Any]) -> bytes:
    if "base64" not in content:
        return str(content["text"]).encode()
    from base64 import b64decode  # noqa: PLC0415 - few files are no text

    return b64decode(content["base64"])


def _append(files: dict[str, str]) -> None:
    for name, text in files.items():
        with open(name, "ab") as file:
            file.write(text.encode())


def _edit(edits: list[dict[str, str]]) -> None:
    for edit in edits:
        with open(edit["file"], encoding="utf-8") as file:
            text = file.read()
        if text.count(edit["find"]) != 1:
            sys.exit(f"{edit['file']}: the text to replace occurs {text.count(edit['find'])} times, not once.")
        with open(edit["file"], "w", encoding="utf-8") as file:
            file.write(text.replace(edit["find"], edit["replace"]))


def _run(commands: list[str]) -> None:
    import subprocess  # noqa: PLC0415 - few turns start anything

    for command in commands:
        subprocess.run(command, shell=True, check=True)  # noqa: S602 - the script's author runs their own commands


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _result(answer: str | dict[str, Any]) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    with open(os.environ["CAPSULE_RESULT"], "w", encoding="utf-8") as file:
        file.write(text)


def _signal(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, ensure_ascii=False), flush=True)  # noqa: T201


_ACTS: dict[str, Callable[[Any], None]] = {
    "left_out": _refuse,
    "say": _say,
    "stderr": _complain,
    "uncommit": _uncommit,
    "commit": _commit,
    "remove": _remove,
    "write": _write,
    "append": _append,
    "edit": _edit,
    "sleep": _sleep,
    "run": _run,
    "result": _result,
    "signal": _signal,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv))
