"""The table: every way in which a run of an agent CLI can end, for every CLI that these tests drive.

A situation is what the model, the prompt or the outside world does; it is the same for all. A `Cli` says how to point
one CLI at the scripted model, what a situation needs of its command line, and which class it must come out as. What
a CLI cannot show is listed with the reason, and skipped by name.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import pytest

from capsule.core.briefing import Briefing, Transcript
from capsule.core.failure import Kind
from capsule.system.process import SupervisorClient
from capsule.system.supervisor import descendants, process_table
from tests.live.conftest import program
from tests.live.model_server import Bash, Drop, Fail, FallSilent, Refuse, RunOutOfTokens, Say, Script, Write, turns
from tests.live.model_server.server import ModelServer
from tests.shared import a_connection

RETRY_AFTER = 3
ENDLESS = Bash("touch endless; tail -f endless")
"""A standalone `sleep` is refused by some CLIs; this runs until it is ended."""


@dataclass(frozen=True)
class Situation:
    script: Script
    prompt: str = "Do what the script says."
    timeout: float = 60.0
    idle_timeout: float = 0.0
    terminated: bool = False
    """Somebody sends the CLI a SIGTERM while its tool is running."""


SITUATIONS: Mapping[str, Situation] = {
    "ok": Situation(turns(Write("made.txt", "made\n"), Bash("echo $TMPDIR > tmpdir.txt"), Say())),
    "denied permission": Situation(turns(Write("made.txt", "made\n"), Say())),
    "401": Situation(turns(Fail(401, "invalid x-api-key"))),
    "429": Situation(turns(Fail(429, "slow down"))),
    "429 with retry-after": Situation(turns(Fail(429, "slow down", retry_after=RETRY_AFTER))),
    "529": Situation(turns(Fail(529, "Overloaded"))),
    "dropped stream": Situation(turns(Drop())),
    "silent stream": Situation(turns(FallSilent()), idle_timeout=3.0),
    "empty answer": Situation(turns(Write("made.txt", "made\n"), Say(""))),
    "max turns": Situation(turns(Write("made.txt", "made\n"), Say())),
    "max tokens": Situation(turns(RunOutOfTokens())),
    "refusal": Situation(turns(Refuse())),
    "prompt of 200 KB": Situation(turns(Say()), prompt="Read this: " + "word " * 40_000 + "the end."),
    "SIGTERM": Situation(turns(ENDLESS, Say()), terminated=True),
    "tool still running at time-out": Situation(turns(ENDLESS, Say()), timeout=6.0),
}


@dataclass(frozen=True)
class Cli:
    """How one CLI is driven, and what each situation must come out as; None is success."""

    name: str
    env: Callable[[str, Path], Mapping[str, str]]
    """Environment that points it at the model's address, with a home of its own."""
    classes: Mapping[str, Kind | None]
    args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What is added to its command line, by situation; `*` for all."""
    cannot_show: Mapping[str, str] = field(default_factory=dict)
    """Situations that this CLI cannot be brought into, and why."""
    patience: Mapping[str, float] = field(default_factory=dict)
    """Seconds after which we end a situation, where this CLI starts slowly or would never end by itself."""


@dataclass(frozen=True)
class Seen:
    transcript: Transcript
    model: ModelServer
    place: Path
    survivors: list[str]
    told: list[str]


SeenIn = Callable[[str], Seen]


def play(cli: Cli, situation: str, folder: Path, *, trust_project: bool = False, **more: str) -> Seen:
    """One run of the real CLI in a situation, with more environment where it is given."""
    if situation in cli.cannot_show:
        pytest.skip(f"{cli.name}: {situation}: {cli.cannot_show[situation]}")
    what, home, place, told = SITUATIONS[situation], folder / "home", folder / "place", list[str]()
    for made in (home, place):
        made.mkdir(exist_ok=True)
    with ModelServer(what.script) as model, SupervisorClient(grace=2.0) as supervisor:
        connection = a_connection(
            name=cli.name,
            supervisor=supervisor,
            root=place,
            command=(str(program(cli.name)),),
            args=(*cli.args.get("*", ()), *cli.args.get(situation, ())),
            env={**cli.env(model.url, home), **more},
            base_env={"PATH": f"{program(cli.name).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home)},
            trust_project=trust_project,
            tell=lambda _mission, text: told.append(text),
        )
        agent = import_module(f"capsule.agents.{cli.name}").connect(connection)
        with _terminating(supervisor, model) if what.terminated else _nothing():
            transcript = agent.run(_briefing(_limited(what, cli.patience.get(situation)), place))
        return Seen(transcript, model, place, survivors(folder), told)


def _limited(what: Situation, seconds: float | None) -> Situation:
    """With another limit where the CLI needs one: on its silence, if that is what the situation is about."""
    if seconds is None:
        return what
    return replace(what, idle_timeout=seconds) if what.idle_timeout else replace(what, timeout=seconds)


def _briefing(what: Situation, place: Path) -> Briefing:
    return Briefing(
        mission="live",
        item="live",
        phase="execute",
        run=1,
        prompt=what.prompt,
        cwd=str(place),
        log=str(place / ".capsule" / "output" / "execute-1.log"),
        keep=str(place.parent / "kept"),
        timeout=what.timeout,
        idle_timeout=what.idle_timeout,
    )


def survivors(folder: Path, processes: Path = Path("/proc")) -> list[str]:
    """Processes that have to do with this run: its folder in their environment, or as their working directory."""
    mark, found = os.fsencode(str(folder)), []
    for process in processes.glob("[0-9]*"):
        try:
            hers = mark in (process / "environ").read_bytes() or mark in os.fsencode((process / "cwd").readlink())
            words = (process / "cmdline").read_bytes() if hers and int(process.name) != os.getpid() else None
        except OSError:  # it has ended meanwhile
            continue
        if words is not None:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _terminating(supervisor: SupervisorClient, model: ModelServer) -> Iterator[None]:
    """Sends SIGTERM to what the supervisor started, once the tool is running."""
    done = threading.Event()

    def wait_and_send() -> None:
        while not done.wait(0.1):
            below = descendants(table := process_table(), {supervisor.pid or -1})
            if model.asked and any(_is_the_tool(pid) for pid in below):
                time.sleep(0.3)
                for pid in (pid for pid in below if table[pid][0] == supervisor.pid):
                    os.kill(pid, signal.SIGTERM)
                return

    thread = threading.Thread(target=wait_and_send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _is_the_tool(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b"tail\0-f\0endless\0"
    except OSError:
        return False
