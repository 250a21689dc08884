"""Hosts on one machine: network namespaces with a name and a home, whose connections to two servers can be cut.

Every host has two network cards, on two bridges: one leads to the server of the engine, the other to the remote. A
connection is cut by closing the card's port on the bridge, so that packets vanish both ways, as with a pulled cable:
nothing is refused, and what was sent is sent again once it is healed. Nothing here is reachable from outside.

It needs root on Linux, iproute2 and unshare. What it makes has names of its own, and is removed with the block.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.costs import LONG

ENGINE, REMOTE = "engine", "remote"
"""What a host can be cut off from."""
_LINKS = (ENGINE, REMOTE)
_FORWARDING, _DISABLED = "3", "0"
_NAMED = 'echo "$1" > /proc/sys/kernel/hostname && shift && exec "$@"'


def unusable() -> str:
    """Tell why there can be no hosts here, or nothing."""
    if sys.platform != "linux" or os.geteuid():
        return "hosts are network namespaces, which only root on Linux can make"
    if lacking := [name for name in ("ip", "bridge", "unshare") if not shutil.which(name)]:
        return f"{lacking[0]} is not installed"
    name = f"try{secrets.token_hex(4)}"
    tried = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False)
    _remove("link", "delete", name)
    return "" if tried.returncode == 0 else f"no network can be made here: {tried.stderr.decode().strip()}"


@dataclass(frozen=True)
class Host:
    name: str
    home: Path
    environment: Mapping[str, str]
    _cards: Mapping[str, str]
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = LONG
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever comes of it."""
        return subprocess.run(
            self._inside(words),
            cwd=cwd or self.home,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(
        self, *words: str, log: Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command that lasts."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                self._inside(words),
                cwd=cwd or self.home,
                env={**self.environment, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def pids(self) -> list[int]:
        """Return all that runs here, whoever started it."""
        return [int(pid) for pid in _ip("netns", "pids", self.name).split()]

    def kill(self) -> None:
        """End all processes, as a power cut does: none of them sees another one end."""
        self.suspend()
        deadline = time.monotonic() + LONG
        while found := [pid for pid in self.pids() if not _is_zombie(pid)]:
            assert time.monotonic() < deadline, f"{found} cannot be killed"
            _signal(found, signal.SIGKILL)
            time.sleep(0.01)
        for process in self._started:
            process.wait(LONG)

    def suspend(self) -> None:
        """Stop all processes; what one of them has just started is stopped too."""
        stopped: set[int] = set()
        while more := {*self.pids()} - stopped:
            _signal(more, signal.SIGSTOP)
            stopped |= more

    def wake(self) -> None:
        _signal(self.pids(), signal.SIGCONT)

    def cut(self, link: str) -> None:
        """Let nothing through between this host and the engine's server, or the remote."""
        _run("bridge", "link", "set", "dev", self._cards[link], "state", _DISABLED)

    def heal(self) -> None:
        for card in self._cards.values():
            _run("bridge", "link", "set", "dev", card, "state", _FORWARDING)

    def _inside(self, words: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", _NAMED, "sh", self.name, *words]


@dataclass(frozen=True)
class Network:
    ips: Mapping[str, str]
    """Where a server must listen to be reached from the hosts."""
    hosts: Sequence[Host]


@contextmanager
def network(folder: Path, number: int, **environment: str) -> Iterator[Network]:
    """Make this many hosts; `environment` is that of all their commands, beside HOME and PATH."""
    tag = f"cap{secrets.token_hex(3)}"
    subnets = dict(zip(_LINKS, _free_subnets(len(_LINKS)), strict=True))
    made = [
        Host(f"{tag}-{at}", folder / f"host-{at}", *_particulars(folder, tag, at, environment)) for at in range(number)
    ]
    try:
        for link in _LINKS:
            _make_bridge(_bridge(tag, link), f"{subnets[link]}.1/24")
        for at, host in enumerate(made):
            host.home.mkdir(parents=True)
            _make_host(host.name)
            for link, card in host._cards.items():
                _plug_in(host.name, card, link, _bridge(tag, link), f"{subnets[link]}.{at + 11}/24")
        yield Network({link: f"{subnet}.1" for link, subnet in subnets.items()}, made)
    finally:
        for host in made:
            with suppress(AssertionError):
                host.kill()
            _remove("netns", "delete", host.name)
        for link in _LINKS:
            _remove("link", "delete", _bridge(tag, link))


@contextmanager
def some_network(folder: Path, number: int, **environment: str) -> Iterator[Network]:
    """Make hosts, or skip the test, by name, where there can be none."""
    if why := unusable():
        pytest.skip(why)
    with network(folder, number, **environment) as made:
        yield made


def _particulars(
    folder: Path, tag: str, at: int, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    home = str(folder / f"host-{at}")
    return {"PATH": os.environ["PATH"], **environment, "HOME": home}, {link: f"{tag}{link[0]}{at}" for link in _LINKS}


def _bridge(tag: str, link: str) -> str:
    return f"{tag}{link[0]}"


def _free_subnets(number: int) -> list[str]:
    taken = _ip("-4", "address", "show") + _ip("route", "show")
    offered = (f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}" for _ in range(1000))
    found = {subnet: None for subnet in offered if f"{subnet}." not in taken}
    return list(found)[:number]


def _make_bridge(name: str, address: str) -> None:
    _ip("link", "add", name, "type", "bridge", "stp_state", "0")
    _ip("address", "add", address, "dev", name)
    _ip("link", "set", name, "up")


def _make_host(name: str) -> None:
    _ip("netns", "add", name)
    _ip("-n", name, "link", "set", "lo", "up")


def _plug_in(host: str, card: str, link: str, bridge: str, address: str) -> None:
    _ip("link", "add", card, "type", "veth", "peer", "name", link, "netns", host)
    _ip("link", "set", card, "master", bridge, "up")
    _ip("-n", host, "address", "add", address, "dev", link)
    _ip("-n", host, "link", "set", link, "up")


def _is_zombie(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def _signal(pids: Iterable[int], by: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, by)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def _remove(*words: str) -> None:
    """Remove what may never have been made."""
    subprocess.run(["ip", *words], capture_output=True, check=False)
