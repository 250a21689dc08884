"""A pytest plugin: write how each test ended into a file of its own (one line of JSON each)."""

from __future__ import annotations

import json
import os
from typing import Any


class Recorder:
    def __init__(self, root: str) -> None:
        self._root = root
        self._tree = os.path.realpath(os.environ["CAPSULE_TREE"])
        name = f"pytest-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
        path = os.path.join(os.environ["CAPSULE_REPORTS"], name)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._ended: dict[str, str] = {}
        self._write(runner="pytest")

    def _write(self, **row: Any) -> None:
        os.write(self._file, (json.dumps(row) + "\n").encode())

    def _id(self, node: str) -> str:
        path, colons, rest = node.partition("::")
        full = os.path.realpath(os.path.join(self._root, path))
        return os.path.relpath(full, self._tree).replace(os.sep, "/") + colons + rest

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = self._id(report.nodeid)
        expected = hasattr(report, "wasxfail")
        if report.failed:
            result = "failed" if report.when == "call" else "errored"
        elif report.skipped:
            result = "xfailed" if expected else "skipped"
        elif report.when == "call":
            result = "xpassed" if expected else "passed"
        else:
            return
        if name in self._ended and report.when == "teardown" and result == "errored" and self._ended[name] == "failed":
            return
        self._ended[name] = result
        self._write(test=name, result=result)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(error=self._id(report.nodeid), text=str(report.longrepr)[-4000:])

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._write(ended=int(exitstatus))


def pytest_configure(config: Any) -> None:
    if not hasattr(config, "workerinput") and os.environ.get("CAPSULE_REPORTS"):  # a worker's tests reach its master
        config.pluginmanager.register(Recorder(str(config.rootpath)), "capsule-recorder")
