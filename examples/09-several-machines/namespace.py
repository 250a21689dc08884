"""Make a namespace on a Temporal server that has no certificate: python3 namespace.py NAME [ADDRESS]"""

import asyncio
import sys

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

RETENTION = 30 * 24 * 3600
"""Seconds for which the server keeps what has ended; the events of missions stay at the remote anyway."""


async def make(name: str, address: str = "127.0.0.1:7233") -> None:
    client = await Client.connect(address)
    kept = Duration(seconds=RETENTION)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
    )


asyncio.run(make(*sys.argv[1:]))
