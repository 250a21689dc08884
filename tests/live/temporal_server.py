"""Temporal's real server on a database in one file, with our own configuration; it can be killed and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

LOOPBACK = "127.0.0.1"
NAMESPACE = "capsule"
_SERVICES = ("frontend", "history", "matching", "worker")
_PATIENCE = 120.0
"""Seconds; on a quiet machine it serves after about three."""
_RETENTION = timedelta(days=1)


class TemporalServer:
    """A server with a folder of its own: what it knows is still there when it is started again.

    All of it listens on one address, at ports that stay the same.
    """

    def __init__(self, program: Path, folder: Path, ip: str = LOOPBACK) -> None:
        self.folder = folder
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        ports = _free_ports(ip, 2 * len(_SERVICES))
        self.address = f"{ip}:{ports[0]}"
        self._config = folder / "config.yaml"
        self._config.write_text(json.dumps(_configuration(folder / "temporal.db", ip, ports), indent=2))

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
        asyncio.run(self._serving(namespaces))

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

    async def _serving(self, namespaces: tuple[str, ...]) -> None:
        client = await self._insisting(lambda: Client.connect(self.address))
        for name in namespaces:
            await self._insisting(lambda name=name: _register(client, name))
            await self._insisting(lambda name=name: _list(client, name))

    async def _insisting(self, act: Any) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return await act()
            except (RPCError, RuntimeError) as fault:
                assert self._process is not None and self._process.poll() is None, self.log()[-2000:]
                assert time.monotonic() < deadline, f"{fault}\n{self.log()[-2000:]}"
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


async def _list(client: Client, name: str) -> None:
    """Ask what only works when every part of the server knows the namespace."""
    await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    elsewhere = await Client.connect(client.service_client.config.target_host, namespace=name)
    await elsewhere.count_workflows()


def _free_ports(ip: str, number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((ip, 0))
        return [each.getsockname()[1] for each in sockets]


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
def temporal_server(program: Path, folder: Path, *namespaces: str, ip: str = LOOPBACK) -> Iterator[TemporalServer]:
    server = TemporalServer(program, folder, ip)
    try:
        server.start(*namespaces)
        yield server
    finally:
        server.kill()
