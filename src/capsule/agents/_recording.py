"""Record what agents were told and did, as a script that the `scripted` agent plays.

One exchange is one run of one phase: the prompt, what was said at last, what changed in the worktree, how it ended and
what it used. The file is rewritten after each one, next to itself and then renamed: a mission that is killed leaves a
recording that is whole as far as it goes, and a mission that goes on adds to it. What is recorded for a run replaces
what was there for it and for later ones of the same phase: that run was interrupted, or it was another mission's. A
mission that is started over begins its part of the file anew, although its runs are counted on: `number` says so.

A run that its provider turned away is no run: it starts again from the same state, so only why it was turned away is
kept, beside the run that came of it.

What changed is read from git by id, through the helper that trusts nothing in the worktree: a tree from before, a tree
from after, and the two commits that the branch stood at. Playing begins with the tree from before; each commit says
only what the worktree does not hold yet at that point, so the usual commit of finished work is a message and paths.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from yaml12 import format_yaml, parse_yaml

from capsule.adapters import Place
from capsule.agents._player import RECORDING
from capsule.agents.scripted import portable
from capsule.core.briefing import Briefing, Transcript
from capsule.core.errors import CapsuleError, UsageError, WorkspaceBroken
from capsule.core.event import Usage
from capsule.core.failure import Reaction
from capsule.system.files import NotRegular, TooLarge, read_regular, write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import GITLINK

VERSION = 1
LARGEST_FILE = 256 * 1024 * 1024
_LONGEST_ANSWER = 1024 * 1024
_LARGEST_RESULT = 4 * 1024 * 1024
_ABOUT = """\
# What agents were told and did, recorded by `capsule run --record`. To see the same again, without any agent:
#   capsule run ID --replay FILE
"""
_LARGEST_CONTENT = 8 * 1024 * 1024
_EXECUTABLE, _LINK = "100755", "120000"

Acts = dict[str, Any]
Clean = Callable[[bytes], bytes]
Side = tuple[str, str] | None
"""Mode and object id of a file; None where there is none."""


class _Start(NamedTuple):
    """State of the place when the agent was started."""

    tree: str
    head: str
    worklog: str


class Recorder:
    """Record what agents are told and do; `redact` removes secrets from every text."""

    def __init__(
        self, file: Path, git: Git, redact: Callable[[str], str], *, base: str, start_over: bool = False
    ) -> None:
        self._file, self._git, self._redact, self._start_over = file, git, redact, start_over
        self._met: set[str] = set()
        self._script = opened(file) or {RECORDING: {"version": VERSION, "base": base, "check_prompts": False}}
        self._turned_away: dict[tuple[str, str, int], list[Acts]] = {}
        self._save()  # refuse an unwritable file before an agent is paid

    def __call__(self, place: Place, before: str) -> Callable[[Briefing, Transcript], None]:
        return partial(self._record, place, _Start(before, place.head(), place.worklog()))

    def _record(self, place: Place, start: _Start, briefing: Briefing, transcript: Transcript) -> None:
        if transcript.why == "stopped":
            return
        run = (briefing.item, briefing.phase, briefing.run)
        turned_away = self._turned_away.setdefault(run, [])
        ending = _ending(transcript)
        if transcript.failure and transcript.failure.reaction is not Reaction.JUDGE:
            turned_away.append(ending)
            self._keep(briefing, {"turned_away": list(turned_away)})
            return
        said, complaint = _cut(transcript.text), _cut(transcript.stderr)
        turn = {
            **({"turned_away": list(turned_away)} if turned_away else {}),
            "prompt": portable(briefing.prompt, briefing.cwd, str(self._git.root)),
            **{name: text for name, text in (("say", said), ("stderr", complaint)) if text},
            **self._changes(place, start),
            **_result(briefing.result_path),
            **ending,
        }
        self._keep(briefing, turn)

    def _changes(self, place: Place, start: _Start) -> Acts:
        try:
            acts = acts_between(self._git, start.tree, place.tree(), (start.head, place.head()), self._clean)
            # The worklog is not in the tree. Text added at its end also fits a worklog with other stamps.
            after = place.worklog()
            if after == start.worklog:
                return acts
            if after.startswith(start.worklog):
                return {**acts, "append": {"worklog.md": after.removeprefix(start.worklog)}}
            return {**acts, "write": {**acts.get("write", {}), "worklog.md": after}}
        except WorkspaceBroken as broken:
            return {"left_out": {"everything": broken.message}}

    def _clean(self, data: bytes) -> bytes:
        """Remove secrets from the content of a file, binary or not."""
        return self._redact(data.decode("latin-1")).encode("latin-1", errors="replace")

    def _keep(self, briefing: Briefing, turn: Acts) -> None:
        if self._start_over and briefing.item not in self._met:
            self._script.pop(briefing.item, None)
        self._met.add(briefing.item)
        phases = self._script.setdefault(briefing.item, {})
        turns = phases.get(briefing.phase, [])
        kept = [old for place, old in enumerate(turns, 1) if old.get("number", place) < briefing.run]
        number = {} if briefing.run == len(kept) + 1 else {"number": briefing.run}
        phases[briefing.phase] = [*kept, {**number, **_map_texts(turn, self._redact)}]
        self._save()

    def _save(self) -> None:
        write_atomically(self._file, as_script(self._script))


def opened(file: Path) -> dict[str, Any] | None:
    """Return the recording to continue, or None if there is none yet; refuse any other file."""
    try:
        data = read_regular(file, LARGEST_FILE)
    except FileNotFoundError:
        return None
    except (NotRegular, TooLarge) as fault:
        raise UsageError(f"{file} cannot be recorded into: it is {fault.strerror}.", "Name another file.") from None
    except OSError as fault:
        raise UsageError(f"{file} cannot be read: {fault.strerror}.", "Name a file that you may write.") from None
    if not data.strip():
        return None
    try:
        script: Any = parse_yaml(data.decode())
    except ValueError:  # neither YAML nor UTF-8
        script = None
    if not isinstance(script, dict) or RECORDING not in script:
        raise UsageError(f"{file} is no recording.", "Name another file: this one is left as it is.")
    found: dict[str, Any] = script
    return found


def as_script(script: dict[str, Any]) -> str:
    """Return YAML that reads back as the same, or JSON (which is YAML, too) if some text needs it."""
    text = _ABOUT + format_yaml(script) + "\n"
    try:
        same = parse_yaml(text) == script
    except ValueError:
        same = False
    return text if same else _ABOUT + json.dumps(script, indent=1) + "\n"


def _cut(data: bytes) -> str:
    """Return the end of a text, which holds the signal."""
    left_out = len(data) - _LONGEST_ANSWER
    note = f"[the first {left_out} bytes were not recorded]\n" if left_out > 0 else ""
    return note + data[-_LONGEST_ANSWER:].decode(errors="replace")


def _ending(transcript: Transcript) -> Acts:
    """Describe how the agent ended, leaving out what is usual."""
    ending: Acts = {"exit": transcript.exit_code} if transcript.exit_code else {}
    if transcript.why != "exited":
        ending["ended"] = transcript.why
    ending["seconds"] = round(transcript.seconds, 3)
    usage = msgspec.to_builtins(msgspec.structs.replace(transcript.usage or Usage(), seconds=None))
    if usage:
        ending["usage"] = usage
    if transcript.failure:
        ending["failure"] = msgspec.to_builtins(transcript.failure)
    return ending


def _result(path: str) -> Acts:
    try:
        return {"result": read_regular(Path(path), _LARGEST_RESULT).decode(errors="replace")} if path else {}
    except OSError:  # none, or no regular file, or too large
        return {}


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_texts(part, change) for key, part in value.items()}
    return [_map_texts(part, change) for part in value] if isinstance(value, list) else value


def about(file: Path) -> dict[str, Any]:
    """Return what a recording says about itself."""
    script = opened(file)
    if script is None:
        raise CapsuleError(f"{file} holds no recording.", "Make one: capsule run ID --record FILE")
    head = script[RECORDING]
    return head if isinstance(head, dict) else {}


def acts_between(git: Git, before: str, after: str, heads: tuple[str, str], clean: Clean) -> Acts:
    """Describe the way from one tree to the other through the commits between the two heads, without secrets."""
    played = _Played(git, before, clean)
    old, new = heads
    shared = git.merge_base(old, new) if old and new and old != new else ""
    acts: Acts = {}
    if shared:
        if taken_back := int(git.content("rev-list", "--first-parent", "--count", f"{shared}..{old}").out):
            acts["uncommit"] = taken_back
        commits = git.content("rev-list", "--first-parent", "--reverse", f"{shared}..{new}").out.decode().split()
        if commits:
            acts["commit"] = [played.commit(oid) for oid in commits]
    acts |= played.become(_files(git, after))
    return acts | ({"left_out": played.left_out} if played.left_out else {})


class _Played:
    """Track the worktree while the acts so far are played."""

    def __init__(self, git: Git, tree: str, clean: Clean) -> None:
        self._git, self._clean = git, clean
        self._files = _files(git, tree)
        self.left_out: dict[str, str] = {}

    def commit(self, oid: str) -> Acts:
        commit = self._git.commit(oid)
        parent = self._git.commit(commit.parents[0]).tree
        changed = {d.path: None if d.kind == "D" else d.new for d in self._git.differences(parent, commit.tree)}
        acts = self._put(changed)
        named = [path for path in map(self._name, sorted(changed)) if path]
        return {**acts, **({"paths": named} if named else {}), "message": commit.message}

    def become(self, wanted: dict[bytes, Side]) -> Acts:
        gone: dict[bytes, Side] = {path: None for path in self._files if path not in wanted}
        return self._put(gone | wanted)

    def _put(self, wanted: dict[bytes, Side]) -> Acts:
        differing = {path: side for path, side in sorted(wanted.items()) if side != self._files.get(path)}
        removed = [name for path, side in differing.items() if side is None and (name := self._name(path))]
        written = {
            name: content
            for path, side in differing.items()
            if side and (name := self._name(path)) and (content := self._content(name, path, side)) is not None
        }
        self._files = {path: side for path, side in (self._files | differing).items() if side}
        return ({"remove": removed} if removed else {}) | ({"write": written} if written else {})

    def _name(self, path: bytes) -> str:
        try:
            return path.decode()
        except UnicodeDecodeError:
            self.left_out[path.decode(errors="backslashreplace")] = "its name is no UTF-8"
            return ""

    def _content(self, name: str, path: bytes, side: tuple[str, str]) -> str | Acts | None:
        mode, oid = side
        if mode == GITLINK:
            self.left_out[name] = "it is a repository of its own"
            return None
        data = self._clean(self._git.content("cat-file", "blob", oid).out)
        if len(data) > _LARGEST_CONTENT:
            self.left_out[name] = f"it is larger than {_LARGEST_CONTENT // 1024**2} MiB"
            return None
        if mode == _LINK:
            return {"link": data.decode(errors="replace")}
        was = self._files.get(path)
        executable = {"executable": mode == _EXECUTABLE} if _EXECUTABLE in (mode, was[0] if was else "") else {}
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(data).decode(), **executable}
        return {"text": text, **executable} if executable else text


def _files(git: Git, tree: str) -> dict[bytes, Side]:
    return {entry.path: (entry.mode, entry.oid) for entry in git.list_tree(tree, recursive=True)}
