"""Record the histories of workflows on the real server, for tests/commands/test_temporal_histories.py.

`CAPSULE_LIVE=1 .venv/bin/python -m tests.live.record_histories`, after a change that starts missions otherwise; those
that were recorded before stay, as missions under way have them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

from temporalio.client import Client

from capsule.temporal.converter import data_converter
from capsule.temporal.messages import merges_id, mission_id, run_id
from tests.commands.conftest import ITEM, honest, said
from tests.git_server import git_server
from tests.live.install import temporal
from tests.live.temporal_server import NAMESPACE, temporal_server
from tests.live.test_both_engines import a_project, a_worker

HISTORIES = Path(__file__).parent.parent / "fixtures" / "histories"
PROJECT = "recorded"


def main(name: str) -> None:
    folder = Path(tempfile.gettempdir(), "capsule-recorded")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    program = temporal() / "temporal-server"
    with git_server(folder / "server") as server, temporal_server(program, folder / "temporal", NAMESPACE) as engine:
        script = honest(execute=[said("PASS", write={"answer": "43\n"}), said("PASS", write={"answer": "42\n"})])
        project = a_project(folder / "project", server, script)
        project.always |= {
            "CAPSULE_ENGINE": "temporal",
            "CAPSULE_PROJECT__ID": PROJECT,
            "CAPSULE_TEMPORAL__HOST": "host",
            "CAPSULE_TEMPORAL__ADDRESS": engine.address,
            "CAPSULE_TEMPORAL__NAMESPACE": NAMESPACE,
        }
        with a_worker(project):
            print(project.run())
            asyncio.run(_keep(engine.address, name))
    shutil.rmtree(folder)


async def _keep(address: str, name: str) -> None:
    client = await Client.connect(address, namespace=NAMESPACE, data_converter=data_converter())
    ids = {"mission": mission_id(PROJECT, ITEM), "run": run_id(PROJECT), "merges": merges_id(PROJECT, "main")}
    HISTORIES.mkdir(exist_ok=True)
    for kind, workflow in ids.items():
        history = await client.get_workflow_handle(workflow).fetch_history()
        text = json.dumps(history.to_json_dict(), separators=(",", ":"))
        (HISTORIES / f"{name}-{kind}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1])
