"""Temporal's real server on a database in one file, with our own configuration; it can be killed and started again."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

LOOPBACK = "127.0.0.1"
NAMESPACE = "capsule"
_SERVICES = ("frontend", "history", "matching", "worker")
_PATIENCE = 120.0
"""Seconds; on a quiet machine it serves after about three."""
_RETENTION = timedelta(days=1)
Got = TypeVar("Got")


class TemporalServer:
    """A server with a folder of its own: what it knows is still there when it is started again.

    All of it listens on one address, at ports that stay the same.
    """

    def __init__(self, program: Path, folder: Path, ip: str = LOOPBACK, longest_history: int = 0) -> None:
        """`longest_history`: after so many events a workflow is asked to continue as new; 0: the server's own limit."""
        self.folder = folder
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(ip, 2 * len(_SERVICES))
        self.address = f"{ip}:{ports[0]}"
        self._config = folder / "config.yaml"
        settings = _configuration(folder / "temporal.db", ip, ports)
        if longest_history:
            limits = folder / "limits.yaml"
            limits.write_text(f"limit.historyCount.suggestContinueAsNew: [{{value: {longest_history}}}]\n")
            settings["dynamicConfigClient"] = {"filepath": str(limits), "pollInterval": "60s"}
        self._config.write_text(json.dumps(settings, indent=2))

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not started"
        return self._process.pid

    def start(self, *namespaces: str) -> None:
        """Start it, and wait until it serves, and knows these namespaces."""
        assert self._process is None, "the server is started already"
        words = [str(self._program), "--config-file", str(self._config), "--allow-no-auth", "start"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        asyncio.run(serving(self.address, namespaces, self._alive))

    def stop(self) -> None:
        """End it as an administrator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGKILL)

    def memory(self) -> int:
        """Return how many bytes of memory are its own."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return 1024 * int(next(row.split()[1] for row in rollup.splitlines() if row.startswith("Pss:")))

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _alive(self) -> str:
        """Return what it said last, for whoever waits for it in vain."""
        assert self._process is not None and self._process.poll() is None, self.log()[-2000:]
        return self.log()[-2000:]


async def serving(
    address: str, namespaces: Sequence[str], said: Callable[[], str], *, tls: TLSConfig | bool = False
) -> None:
    """Wait until a server serves, and knows these namespaces."""
    client = await _insisting(lambda: Client.connect(address, tls=tls), said)
    for name in namespaces:
        elsewhere = await Client.connect(address, namespace=name, tls=tls)
        await _insisting(partial(_register, client, name), said)
        await _insisting(partial(elsewhere.count_workflows, None), said)


async def _insisting(act: Callable[[], Awaitable[Got]], said: Callable[[], str]) -> Got:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return await act()
        except (RPCError, RuntimeError) as fault:
            assert time.monotonic() < deadline, f"{fault}\n{said()}"
            said()
            await asyncio.sleep(0.1)


async def _register(client: Client, name: str) -> None:
    period = Duration()
    period.FromTimedelta(_RETENTION)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=period)
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as fault:
        if fault.status is not RPCStatusCode.ALREADY_EXISTS:
            raise


def free_ports(ip: str, number: int) -> list[int]:
    """Return free ports, of those that the server can write into any database, and that no client is given."""
    with ExitStack() as stack:
        found = dict[int, None]()
        while len(found) < number:
            port, tried = random.randrange(15_000, 32_000), stack.enter_context(socket.socket())
            with suppress(OSError):
                tried.bind((ip, port))
                found[port] = None
        return list(found)


def _configuration(database: Path, ip: str, ports: list[int]) -> dict[str, Any]:
    rpc = zip(_SERVICES, ports[::2], ports[1::2], strict=True)
    return {
        "log": {"stdout": True, "level": "warn"},
        "persistence": {
            "defaultStore": "file",
            "visibilityStore": "file",
            "numHistoryShards": 4,
            "datastores": {"file": {"sql": _sqlite(database)}},
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": ip}},
        "services": {
            name: {"rpc": {"grpcPort": port, "membershipPort": members, "bindOnIP": ip}} for name, port, members in rpc
        },
        "clusterMetadata": {
            "enableGlobalNamespace": False,
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {
                "active": {"enabled": True, "initialFailoverVersion": 1, "rpcAddress": f"{ip}:{ports[0]}"}
            },
        },
    }


def _sqlite(database: Path) -> dict[str, Any]:
    return {
        "pluginName": "sqlite",
        "databaseName": str(database),
        "connectAddr": "localhost",
        "connectProtocol": "tcp",
        "connectAttributes": {"setup": "true", "journal_mode": "wal", "synchronous": "2", "busy_timeout": "10000"},
    }


@contextmanager
def temporal_server(
    program: Path, folder: Path, *namespaces: str, ip: str = LOOPBACK, longest_history: int = 0
) -> Iterator[TemporalServer]:
    server = TemporalServer(program, folder, ip, longest_history)
    try:
        server.start(*namespaces)
        yield server
    finally:
        server.kill()
