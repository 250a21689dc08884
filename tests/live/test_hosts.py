"""Hosts on one machine are apart where it matters: processes, home, and what they can reach."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.costs import eventually
from tests.git_server import GitServer, git_server
from tests.live.hosts import ENGINE, REMOTE, Network, some_network

ASK = """
import socket, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port)), 1) as server:
    server.settimeout(1)
    server.sendall(b"GET /none HTTP/1.0\\r\\n\\r\\n")
    print(server.recv(4).decode())
"""
TALK = """
import socket, sys
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
server.sendall(b"a")
server.recv(1)
server.sendall(b"b")
print(server.recv(1).decode(), flush=True)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with some_network(tmp_path, 2) as made:
        yield made


@pytest.fixture
def servers(hosts: Network, tmp_path: Path) -> Iterator[dict[str, GitServer]]:
    """A server at each of the two addresses."""
    with (
        git_server(tmp_path / "engine", hosts.ips[ENGINE]) as engine,
        git_server(tmp_path / "remote", hosts.ips[REMOTE]) as remote,
    ):
        yield {ENGINE: engine, REMOTE: remote}


def reached(hosts: Network, servers: dict[str, GitServer]) -> list[set[str]]:
    """Return what each host reaches."""

    def answers(at: int, link: str) -> bool:
        address = servers[link].address.removeprefix("http://")
        return hosts.hosts[at].run(sys.executable, "-c", ASK, address).stdout.strip() == "HTTP"

    return [{link for link in servers if answers(at, link)} for at in range(len(hosts.hosts))]


def test_each_host_is_cut_off_from_one_server_without_the_other(hosts: Network, servers: dict[str, GitServer]) -> None:
    one, two = hosts.hosts
    assert reached(hosts, servers) == [{ENGINE, REMOTE}, {ENGINE, REMOTE}]
    one.cut(ENGINE)
    two.cut(REMOTE)
    assert reached(hosts, servers) == [{REMOTE}, {ENGINE}]
    one.heal()
    assert reached(hosts, servers) == [{ENGINE, REMOTE}, {ENGINE}]
    two.heal()
    assert reached(hosts, servers) == [{ENGINE, REMOTE}, {ENGINE, REMOTE}]


def test_a_connection_that_was_cut_goes_on_when_it_is_healed(hosts: Network, tmp_path: Path) -> None:
    """Nothing is refused: a program only waits."""
    host, log = hosts.hosts[0], tmp_path / "log"
    with socket.create_server((hosts.ips[ENGINE], 0)) as server:
        server.settimeout(30)
        client = host.start(sys.executable, "-c", TALK, hosts.ips[ENGINE], str(server.getsockname()[1]), log=log)
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(30)
            assert accepted.recv(1) == b"a"
            host.cut(ENGINE)
            accepted.sendall(b"x")
            accepted.settimeout(1)
            with pytest.raises(TimeoutError):
                accepted.recv(1)
            host.heal()
            accepted.settimeout(30)
            assert accepted.recv(1) == b"b"
            accepted.sendall(b"y")
            assert client.wait(30) == 0, log.read_text()
    assert log.read_text().strip() == "y"


def test_a_killed_host_leaves_no_process_and_the_other_goes_on(hosts: Network, tmp_path: Path) -> None:
    script = "setsid sh -c 'while :; do sleep 0.1 & sleep 0.05; done' & wait"
    started = [host.start("sh", "-c", script, log=tmp_path / "log") for host in hosts.hosts]
    one, two = hosts.hosts
    assert eventually(lambda: len(one.pids()) > 1 and len(two.pids()) > 1)
    one.kill()
    assert started[0].wait(10) < 0
    assert one.pids() == []
    assert len(two.pids()) > 1 and started[1].poll() is None


def test_a_suspended_host_stands_still_until_it_is_woken(hosts: Network, tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    host = hosts.hosts[0]
    host.start("sh", "-c", f"while :; do echo x >> {ticks}; sleep 0.02; done", log=tmp_path / "log")
    assert eventually(ticks.exists)
    host.suspend()
    then = ticks.stat().st_size
    assert not eventually(lambda: ticks.stat().st_size > then, 0.5)
    host.wake()
    assert eventually(lambda: ticks.stat().st_size > then, 10)


def test_each_host_has_a_name_and_a_home_of_its_own(hosts: Network) -> None:
    mine = platform.node()
    said = [host.run("sh", "-c", "uname -n; echo $HOME; pwd").stdout.split() for host in hosts.hosts]
    assert said == [[host.name, *[str(host.home)] * 2] for host in hosts.hosts]
    assert platform.node() == mine


def test_nothing_is_left_of_hosts_and_their_networks(tmp_path: Path) -> None:
    def there() -> tuple[str, str]:
        words = (["ip", "-brief", "link"], ["ip", "netns", "list"])
        first, second = (subprocess.run(each, capture_output=True, text=True, check=True).stdout for each in words)
        return first, second

    with some_network(tmp_path, 1) as made:
        host = made.hosts[0]
        process = host.start("sleep", "1000", log=tmp_path / "log")
        tag = host.name.partition("-")[0]
        assert tag in there()[0] and tag in there()[1]
    assert process.wait(10) < 0
    assert tag not in there()[0] and tag not in there()[1]
    assert not Path("/run/netns", host.name).exists()
