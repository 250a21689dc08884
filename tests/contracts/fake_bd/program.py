"""What runs in bd's place: the trouble a test asked for, then the command, under the project's lock."""

from __future__ import annotations

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH103, PTH109, PTH118, PTH120
import json
import os
import signal
import sys
import time

from tests.contracts.fake_bd.answers import shaped
from tests.contracts.fake_bd.commands import Bd
from tests.contracts.fake_bd.eras import Era
from tests.contracts.fake_bd.store import Held, Log, Store, beads_folder, switches, times_before
from tests.contracts.fake_bd.words import COMMANDS, Words, Wrong

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_NO_DATABASE_CLASSIC = """Error: no beads database found
Hint: run 'bd init' to create a database in the current directory
      or use 'bd --no-db' to work with JSONL only (no SQLite)
      or set BEADS_DIR to point to your .beads directory
"""
_NO_DATABASE = """Error: no beads database found
Hint: run 'bd where' to inspect the resolved workspace, or 'bd init' to create a new database
      or set BEADS_DIR to point to your .beads directory
"""
_LOCKED = {
    "sqlite": "failed to open database: failed to enable WAL mode: sqlite3: database is locked",
    "flock": "failed to open database: embeddeddolt: another process holds the exclusive lock on .beads/embeddeddolt; "
    "the embedded backend supports only one writer at a time — use the dolt server backend for concurrent access",
    "dolt": "failed to open database: the database is locked by another dolt process",
}
_SKEW = "schema version mismatch: database is at v66, binary knows up to v53 (13 migrations ahead)"
_SKEW_HINT = "BD_IGNORE_SCHEMA_SKEW=1 bd <command>  or  bd --ignore-schema-skew <command>"


def main(version: str, behaviour: str) -> NoReturn:
    argv = sys.argv[1:]
    call = Call(Era(version), json.loads(behaviour), argv)
    code = call.answer()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Call:
    def __init__(self, era: Era, behaviour: dict[str, Any], argv: list[str]) -> None:
        self.era, self.argv = era, argv
        self.folder = beads_folder(os.getcwd())
        self.behaviour = behaviour | (switches(self.folder) if self.folder else {})
        self.newer = not era.classic
        self.log: Log | None = None

    def answer(self) -> int:
        try:
            words = Words(self.argv, self.newer, self._unknown_flags())
        except Wrong as wrong:
            return self._ends(1, err=f"Error: {wrong}\nUsage:\n  bd {' '.join(self.argv[:1])} [flags]\n")
        if self.folder:
            self.log = Log(self.folder, words.command, self.argv)
        return self._trouble(words) or self._go(words)

    def _unknown_flags(self) -> frozenset[str]:
        found = {"claim"} if self.behaviour.get("too_old") else set[str]()
        return frozenset(found if self.era.imports_by_flag else {*found, "input"})

    def _trouble(self, words: Words) -> int:
        command = words.command
        if noise := self.behaviour.get("noise"):
            _say(sys.stdout, str(noise))
        if noise := self.behaviour.get("noise_stderr"):
            _say(sys.stderr, str(noise))
        slow = self.behaviour.get("slow", {})
        time.sleep(slow.get(command, slow.get("*", 0)))
        if command in self.behaviour.get("hang", ()):
            _hang()
        if not self._is_known(command):
            return self._ends(1, err=f'Error: unknown command "{command}" for "bd"\nRun \'bd --help\' for usage.\n')
        if failure := self.behaviour.get("fail", {}).get(command):
            return self._fails(str(failure), words)
        if command not in ("version", "init") and self._is_locked(command):
            return self._fails(_LOCKED[self.era.lock], words)
        if self.behaviour.get("schema_skew") and command != "version":
            return self._skewed(words)
        return 0

    def _is_known(self, command: str) -> bool:
        missing = set[str]()
        if not self.era.imports_by_flag and not self.era.imports_by_name:
            missing.add("import")
        if self.behaviour.get("too_old"):
            missing |= {"export", "comments"}
        return command in COMMANDS - missing

    def _is_locked(self, command: str) -> bool:
        locked = self.behaviour.get("locked", 0)
        times = locked.get(command, 0) if isinstance(locked, dict) else locked
        if not times or self.folder is None:
            return False
        before = times_before(self.folder, f"locked {command} {json.dumps(locked)}")
        return bool(times < 0 or before < times)

    def _fails(self, why: str, words: Words) -> int:
        if words.has("json") and self.era.errors_as_json:
            return self._ends(1, err=self._object({"error": why}))
        return self._ends(1, err=f"Error: {why}\n")

    def _skewed(self, words: Words) -> int:
        if not words.has("json"):
            return self._ends(1, err=f"{_SKEW}\n\n  Your bd binary is stale.\n")
        versions = {"current_version": 66, "delta": 13, "required_version": 53}
        return self._ends(1, err=self._object({"error": _SKEW, "hint": _SKEW_HINT, "schema_skew": versions}))

    def _go(self, words: Words) -> int:
        if words.command == "version":
            return self._version(words)
        if words.command == "init" and self.folder is None:
            self.folder = os.path.join(os.getcwd(), ".beads")
            os.makedirs(self.folder, exist_ok=True)
            self.log = Log(self.folder, words.command, self.argv)
        if self.folder is None or self.behaviour.get("no_database"):
            return self._without_database()
        self._hook("before", words.command)
        with Held(self.folder):
            store = Store(self.folder)
            if not store.is_there and words.command != "init":
                return self._without_database()
            bd = Bd(self.era, words, store, self.behaviour.get("taken"))
            bd.run()
            changed = store.save() if words.command in _WRITING else []
        if self.log:
            self.log.entry["changed"] = changed
        self._hook("after", words.command)
        self._die(words.command)
        return self._ends(bd.code, "".join(bd.out), "".join(bd.err))

    def _version(self, words: Words) -> int:
        said = self.behaviour.get("version") or ("0.20.1" if self.behaviour.get("too_old") else self.era.version)
        if not words.has("json"):
            return self._ends(0, f"bd version {said} (dev)\n")
        return self._ends(0, self._object({"branch": "main", "build": "dev", "version": said}))

    def _object(self, content: dict[str, Any]) -> str:
        return shaped(self.era, content)

    def _without_database(self) -> int:
        return self._ends(1, err=_NO_DATABASE_CLASSIC if self.era.classic else _NO_DATABASE)

    def _hook(self, when: str, command: str) -> None:
        argv = self.behaviour.get(when, {}).get(command)
        if not argv or not self.folder or not self.log:
            return
        import subprocess

        done = subprocess.run(argv, cwd=os.path.dirname(self.folder), capture_output=True, text=True, check=False)
        self.log.entry[when] = {"exit": done.returncode, "output": (done.stdout + done.stderr)[:500]}

    def _die(self, command: str) -> None:
        how = self.behaviour.get("die_after", {}).get(command)
        if how is None or self.log is None:
            return
        if how == "hang":
            self.log.note()
            _hang()
        if how == "kill":
            self.log.end(-signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        self.log.end(int(how))
        os._exit(int(how))

    def _ends(self, code: int, out: str = "", err: str = "") -> int:
        sys.stdout.write(out)
        sys.stderr.write(err)
        if self.log:
            self.log.end(code)
        return code


_WRITING = frozenset({"init", "import", "update", "close", "create", "comments", "dep"})


def _say(stream: Any, text: str) -> None:
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)
