"""Several hosts with a worker each, Temporal's server and a remote: missions on all of them, and faults at random.

An agent writes into a diary, which lies outside of all hosts, when it starts and when it ends. So there is a witness of
what really ran, and where, beside what the missions' events say.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from capsule.core.event import Event, decode
from tests.conftest import UNSANDBOXED, Repo
from tests.costs import LONG
from tests.git_server import GitServer, git_server, run
from tests.live.hosts import ENGINE, REMOTE, Host, Network, some_network
from tests.live.temporal_server import NAMESPACE, TemporalServer

PROJECT = "pottery"
HEARTBEAT = 6.0
"""Seconds after which another worker does what a silent one was doing."""
EVENTS = "refs/capsule/events/"
_FLOW = """\
description: Two agents, then the merge.
phases:
  - {name: prep, role: action, do: prep}
  - {name: make, role: worker, prompt: make, checks: [green]}
  - {name: polish, role: worker, prompt: make, checks: [green]}
  - {name: publish, role: action, do: publish}
  - {name: archive, role: action, do: archive, closing: true}
prompts:
  make: |
    Make it. {{SIGNAL_CONTRACT}}
"""
_SETTINGS = f"""\
project: {{id: {PROJECT}}}
tracker: backlog
workflow: {{default: short}}
workspace: {{publish: merge}}
merge: {{to: remote}}
evidence: {{test: sh all.sh, mutants: 0}}
environment: {{allow: [DIARY]}}
engine: temporal
temporal: {{namespace: {NAMESPACE}, heartbeat_seconds: {HEARTBEAT:.0f}}}
"""
_TESTS = """\
for polished in polished-*; do
    test ! -e $polished || test -e made-${polished#*-} || { echo $polished was never made; exit 1; }
done
"""
_NOTE = 'echo "{what} $(uname -n) $CAPSULE_ITEM $CAPSULE_PHASE $(date +%s.%N)" >> "$DIARY"'
_COMMIT = 'git add -A . && { git diff --cached --quiet || git commit -q -m "$CAPSULE_COMMIT_MSG"; }'
_PASS = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done as asked"}


def _agent(file: str, seconds: float) -> list[object]:
    acts = [_NOTE.format(what="start"), f"sleep {seconds}", f"echo done > {file}", _COMMIT, _NOTE.format(what="end")]
    return [{"run": acts, "signal": _PASS}]


class Entry(NamedTuple):
    """One line of the diary."""

    what: str
    host: str
    item: str
    phase: str
    at: float


class Fault(NamedTuple):
    """What was done to whom, and when; it lasted so many seconds."""

    kind: str
    host: str
    at: float
    lasted: float


@dataclass
class Fleet:
    folder: Path
    network: Network
    server: TemporalServer
    remote: GitServer
    items: Sequence[str]
    slots: int
    chance: random.Random
    faults: list[Fault] = field(default_factory=list)

    # ---- commands

    @property
    def clone(self) -> Path:
        """The clone of the person who starts runs and watches them."""
        return self.folder / "person" / "project"

    def capsule(self, *words: str, timeout: float = 5 * LONG) -> subprocess.CompletedProcess[str]:
        """Run a command of the person's."""
        return subprocess.run(
            [sys.executable, "-m", "capsule", *words],
            cwd=self.clone,
            env={**self.environment(), "HOME": str(self.clone.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
            **UNSANDBOXED,
            "CAPSULE_AGENT": "scripted",
            "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(self.folder / "script.json")]),
            "CAPSULE_TEMPORAL__ADDRESS": self.server.address,
            "DIARY": str(self.folder / "diary"),
        }

    def work(self, host: Host) -> subprocess.Popen[bytes]:
        """Start the worker of a host."""
        words = (sys.executable, "-m", "capsule", "worker", "--slots", str(self.slots))
        return host.start(*words, log=host.home / "log", cwd=host.home / "project", env=self.environment())

    # ---- what came of it

    def merged(self) -> Counter[str]:
        """Return how often each mission is merged into the main branch of the remote."""
        told = "%(trailers:key=Capsule-Mission,valueonly,separator=%x20)"
        return Counter(run("log", "--merges", f"--format={told}", "main", cwd=self.remote.repository()).split())

    def events(self, item: str) -> list[Event]:
        """Return the events of a mission, as the remote has them."""
        bare = self.remote.repository()
        names = run("ls-tree", "--name-only", f"{EVENTS}{item}", cwd=bare).split()
        texts = [run("show", f"{EVENTS}{item}:{name}", cwd=bare) for name in sorted(names) if name.endswith(".jsonl")]
        return [decode(line.encode()) for text in texts for line in text.splitlines()]

    def diary(self) -> list[Entry]:
        rows = [row.split() for row in (self.folder / "diary").read_text().splitlines()]
        return [Entry(what, host, item, phase, float(at)) for what, host, item, phase, at in rows]

    def told(self) -> str:
        """What the workers said last, for whoever looks into a failure."""
        logs = [(host.name, (host.home / "log").read_text(errors="replace")[-3000:]) for host in self.network.hosts]
        return "\n".join(f"---- {name}\n{text}" for name, text in logs)

    # ---- faults

    @contextmanager
    def faults_at_random(self, kinds: Sequence[str], every: tuple[float, float]) -> Iterator[None]:
        """Let one fault follow another, each kind in its turn; at the end everything is well again."""
        over = threading.Event()

        def disturb() -> None:
            left = list[str]()
            while not over.wait(self.chance.uniform(*every)):
                left = left or self.chance.sample(kinds, len(kinds))
                kind, host = left.pop(), self.chance.choice(self.network.hosts)
                began = time.time()
                _FAULTS[kind](self, host)
                self.faults.append(Fault(kind, host.name, began, time.time() - began))

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(10 * LONG)

    def _killed(self, host: Host) -> None:
        host.kill()
        time.sleep(self.chance.uniform(0, HEARTBEAT))
        self.work(host)

    def _suspended(self, host: Host) -> None:
        host.suspend()
        time.sleep(HEARTBEAT + self.chance.uniform(2, 6))
        host.wake()

    def _cut_off(self, host: Host, link: str) -> None:
        host.cut(link)
        time.sleep(self.chance.uniform(1, 2.5 * HEARTBEAT))
        host.heal()

    def _server_killed(self) -> None:
        self.server.kill()
        time.sleep(self.chance.uniform(0, HEARTBEAT))
        self.server.start()

    def _remote_down(self) -> None:
        self.remote.down = True
        time.sleep(self.chance.uniform(1, 2 * HEARTBEAT))
        self.remote.down = False


_FAULTS: Mapping[str, Callable[[Fleet, Host], None]] = {
    "host killed": Fleet._killed,
    "host suspended": Fleet._suspended,
    "cut off from the server": lambda fleet, host: fleet._cut_off(host, ENGINE),
    "cut off from the remote": lambda fleet, host: fleet._cut_off(host, REMOTE),
    "server killed": lambda fleet, _host: fleet._server_killed(),
    "remote down": lambda fleet, _host: fleet._remote_down(),
}
FAULTS = tuple(_FAULTS)


@contextmanager
def fleet(
    program: Path, folder: Path, *, hosts: int, missions: int, slots: int, agent_seconds: float = 0.5, seed: int = 1
) -> Iterator[Fleet]:
    """A project with this many missions, and hosts whose workers run."""
    items = [f"WRK-{number:03}" for number in range(1, missions + 1)]
    _write_script(folder, items, agent_seconds)
    with ExitStack() as stack:
        network = stack.enter_context(some_network(folder, hosts))
        remote = stack.enter_context(git_server(folder / "remote", network.ips[REMOTE]))
        server = TemporalServer(program, folder / "temporal", network.ips[ENGINE])
        stack.callback(server.kill)
        server.start(NAMESPACE)
        made = Fleet(folder, network, server, remote, items, slots, random.Random(seed))
        remote.host(_a_project(folder / "project", items))
        _clone(remote, made.clone)
        for host in network.hosts:
            _clone(remote, host.home / "project")
            made.work(host)
        yield made


def _a_project(place: Path, items: Sequence[str]) -> Path:
    place.mkdir()
    project = Repo(place)
    project.git("init", "-q", "-b", "main")
    rows = ["schema_version: 1", f"last_id: {len(items)}", "items:"]
    for item in items:
        rows += [f"  - id: {item}", f"    title: Make {item}", "    status: new", '    created: "2026-02-11T09:30:00Z"']
    project.write("BACKLOG.yaml", "\n".join(rows) + "\n")
    project.write(".capsule/config.yaml", _SETTINGS)
    project.write(".capsule/workflows/short.yaml", _FLOW)
    project.write("all.sh", _TESTS)
    project.commit("what is to be done")
    return place


def _write_script(folder: Path, items: Sequence[str], seconds: float) -> None:
    folder.mkdir(exist_ok=True)
    plays = {
        item: {"make": _agent(f"made-{item}", seconds), "polish": _agent(f"polished-{item}", seconds)} for item in items
    }
    (folder / "script.json").write_text(json.dumps(plays))
    (folder / "diary").touch()


def _clone(remote: GitServer, place: Path) -> None:
    place.parent.mkdir(exist_ok=True)
    run("clone", "-q", remote.url(), str(place))
