"""Run a forge's own program, one call at a time, and read its answers.

Its credentials are the user's own: it runs in the user's environment, never in that of an agent or a test.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from capsule.core.errors import PrerequisiteMissing, RemoteFault, SettingsError
from capsule.core.remote import Kind, Trouble
from capsule.core.request import RequestDraft, Seen, address_in, forge_trouble
from capsule.core.text import shortened
from capsule.forges.presets import PRESETS, QUERIES, BranchRights, Preset, Wanted, guessed, read_own
from capsule.system.environment import for_commands
from capsule.system.program import call

_T = TypeVar("_T")

LOOK_SECONDS = 20.0
_OPEN_SECONDS = 60.0
_NAME = re.compile(r"\{([a-z_]+)\}")
_LONGEST_BODY = 60_000
"""In characters; GitHub takes 65,536."""
_LOUD = ("GH_DEBUG", "DEBUG", "GH_FORCE_TTY", "GH_REPO", "GLAB_DEBUG")
"""Variables that would change an answer, or make it about another repository."""
_QUIET = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GLAB_CHECK_UPDATE": "false",
    "NO_PROMPT": "1",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}
_STATUS = re.compile(r"HTTP/\S+ ([45]\d\d[^\r\n]*)")
"""The status that a program shows before the headers of an answer: `tea api` succeeds whatever the server says."""
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://)(?:[^/@]*@)?(?P<host>[^/]+)/(?P<path>.+)", re.IGNORECASE)
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/:]+):(?P<path>(?!//).+)")


class Home(Struct, frozen=True):
    """Where a remote is, as its forge calls it."""

    host: str
    path: str
    """`OWNER/NAME`; GitLab has groups in groups."""

    @property
    def values(self) -> dict[str, str]:
        owner, _, name = self.path.rpartition("/")
        return {
            "host": self.host,
            "hostname": self.host.partition(":")[0],
            "path": self.path,
            "project": quote(self.path, safe=""),
            "owner": owner,
            "name": name,
        }


def home_of(url: str) -> Home:
    """Read host and path from the address of a remote; both are '' for a folder."""
    found = _URL.fullmatch(url) or _SCP.fullmatch(url)
    if not found or url.lower().startswith("file:"):
        return Home("", "")
    ssh = url.lower().startswith("ssh:")
    host = found["host"].partition(":")[0] if ssh else found["host"]
    return Home(host, found["path"].strip("/").removesuffix(".git"))


_UNTIL_KNOWN = (0.5, 1.0, 2.0, 4.0)
"""Seconds between tries to open a request for a branch that its forge does not find."""


class CliForge:
    """The Forge adapter on a forge's own program."""

    def __init__(
        self,
        root: Path,
        url: str,
        *,
        kind: str = "auto",
        opens: Sequence[str] = (),
        looks: Sequence[str] = (),
        env: Mapping[str, str],
        patience: float = LOOK_SECONDS,
    ) -> None:
        """`opens` and `looks` are commands of the user's own, in place of a preset.

        A question may take `patience` seconds: a queue asks, and has other work.
        """
        self._home = home_of(url)
        self._root = root
        self._patience = patience
        self._kind = kind
        self._own = (opens, looks)
        self._given = env

    @property
    def name(self) -> str:
        return self._preset.program

    @property
    def host(self) -> str:
        return self._home.host

    @cached_property
    def _preset(self) -> Preset:
        opens, looks = self._own
        return _described(opens, looks) if opens else _known(self._home, self._kind)

    @cached_property
    def _env(self) -> dict[str, str]:
        given = for_commands(self._given, self._preset.passes)
        return {name: value for name, value in given.items() if name not in _LOUD} | _QUIET

    def check(self) -> None:
        """Refuse to begin without its program."""
        self._program(self._preset.open[0])

    def find(self, branch: str, number: int, ours: Sequence[str]) -> Seen | None:
        """Return the request of a branch as it is now; None if there is none, or nobody can tell."""
        if not self._preset.questions:
            return None
        return self._preset.read(self._ask, Wanted(branch, number, ours))

    def protects(self, branch: str) -> bool | None:
        """Tell whether a branch takes requests only; None if the forge is not asked that."""
        if "branch" not in self._preset.questions:
            return None
        return self._ask("branch", BranchRights, branch=branch).by_request_only

    def open(self, draft: RequestDraft) -> str:
        """Open a request; return its address if the program names it."""
        body = shortened(draft.body, _LONGEST_BODY)
        values = {"branch": draft.branch, "base": draft.base, "title": draft.title, "body": body}
        with tempfile.TemporaryDirectory() as folder:
            files = {"body_file": (Path(folder, "body.md"), body), "title_file": (Path(folder, "title"), draft.title)}
            for file, text in files.values():
                file.write_text(text, encoding="utf-8")
            values |= {name: str(file) for name, (file, _) in files.items()}
            said = self._run_once_known(values)
        return address_in(said)

    def _run_once_known(self, values: Mapping[str, str]) -> str:
        """Open the request; a branch that was pushed a moment ago may be unknown to its forge for some seconds."""
        for pause in _UNTIL_KNOWN:
            try:
                return self._run(self._preset.open, values, _OPEN_SECONDS)
            except RemoteFault as fault:
                if "HTTP 404" not in fault.trouble.words:
                    raise
                time.sleep(pause)
        return self._run(self._preset.open, values, _OPEN_SECONDS)

    def _ask(self, question: str, kind: type[_T], **values: str) -> _T:
        words = self._preset.questions[question]
        said = self._run(words, values, self._patience)
        try:
            return msgspec.json.decode(said or "null", type=kind)
        except (msgspec.DecodeError, RecursionError):
            trouble = forge_trouble(said)
            if trouble.kind is not Kind.OFFLINE:
                start = " ".join(words[:2])
                trouble = Trouble(Kind.REFUSED, f"`{start}` printed something else than was asked for: {trouble.words}")
            raise RemoteFault(self.name, trouble, f"Get it, and log in: {self._preset.get}") from None

    def _run(self, words: Sequence[str], values: Mapping[str, str], patience: float) -> str:
        """Run a command to its end, and return what it prints."""
        known = {**self._home.values, **QUERIES, **values, "branch_quoted": quote(values.get("branch", ""), safe="")}
        program, *rest = (_NAME.sub(lambda found: known.get(found[1], found[0]), word) for word in words)
        try:
            code, out, err = call([self._program(program), *rest], self._root, self._env, patience)
        except (OSError, ValueError) as fault:
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            raise PrerequisiteMissing(f"{program} cannot be started: {why}.", f"Get it: {self._preset.get}") from None
        if code is None:
            raise RemoteFault(self.name, Trouble(Kind.OFFLINE, f"no answer within {patience:g} s"))
        if code:
            raise RemoteFault(self.name, forge_trouble(err.strip() or out), self._preset.login)
        if refused := _STATUS.match(err):
            raise RemoteFault(self.name, forge_trouble(f"HTTP {refused[1]}: {_message(out)}"), self._preset.login)
        return out

    def _program(self, name: str) -> str:
        path = str(self._root / name) if "/" in name else name
        found = shutil.which(path, path=self._env.get("PATH", ""))
        if found is None:
            message = f"{name} is not on the PATH, and requests are opened by it."
            raise PrerequisiteMissing(message, f"Get it: {self._preset.get}")
        return found


class _Refusal(Struct, frozen=True):
    """What a server says instead of an answer."""

    message: str


def _message(said: str) -> str:
    try:
        return msgspec.json.decode(said, type=_Refusal).message
    except (msgspec.DecodeError, RecursionError):
        return said


def _known(home: Home, kind: str) -> Preset:
    """Return the preset that was named, or that the address tells."""
    name = guessed(home.host) if kind == "auto" else kind
    if not home.path:
        cause = "merge.to: request needs a remote on a server, and this one is a folder, or has no address."
        raise SettingsError(cause, "Name another one: `merge.remote` in .capsule/config.yaml (git remote -v)")
    if not name:
        hint = (
            f"Say which: `merge.request.forge` in .capsule/config.yaml ({', '.join(PRESETS)}), or `.open`, a command."
        )
        raise SettingsError(f"{home.host} does not tell which kind of forge it is.", hint)
    return PRESETS[name]


def _described(opens: Sequence[str], looks: Sequence[str]) -> Preset:
    questions = {"look": tuple(looks)} if looks else {}
    return Preset(
        program=Path(opens[0]).name,
        login=f"See whether it is logged in: {Path(opens[0]).name}",
        get="it is named by merge.request.open in .capsule/config.yaml",
        hosts=(),
        passes=("*",),
        open=tuple(opens),
        questions=questions,
        read=read_own,
    )
