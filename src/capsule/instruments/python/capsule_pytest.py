"""A pytest plugin: write how each test ended."""

import ast
import os
from typing import Any

import capsule_rows
import pytest
from _pytest.assertion.rewrite import rewrite_asserts

# Begun before any code of the project is loaded: what ends the process from a conftest is seen. A worker of xdist is
# not asked, because its master has withdrawn from the environment; the master hears of all tests.
_ROWS = capsule_rows.rows("pytest")
_parse, _rewrite = ast.parse, rewrite_asserts


class _Recorder:
    def __init__(self, config: Any, rows: Any) -> None:
        self._config = config
        self._root = str(getattr(config, "rootpath", config.rootdir))
        self._rows = rows

    def _id(self, node: str) -> str:
        path, colons, rest = node.partition("::")
        return f"{capsule_rows.place(os.path.join(self._root, path))}{colons}{rest}"

    def pytest_runtest_logreport(self, report: Any) -> None:
        expected = hasattr(report, "wasxfail")
        if report.failed:
            result = "failed" if report.when == "call" else "errored"
        elif report.skipped:
            result = "xfailed" if expected else "skipped"
        elif report.when == "call" and report.passed:  # not one that a plugin runs again
            result = "xpassed" if expected else "passed"
        else:
            return
        self._rows.write(test=self._id(report.nodeid), result=result)

    def pytest_runtest_teardown(self, item: Any) -> None:
        if not capsule_rows.is_as_written(getattr(item, "function", None), self._compiled):
            self._rows.write(rewritten=self._id(item.nodeid))

    def _compiled(self, source: bytes, path: str) -> Any:
        """Compile a file as pytest does, which has assertions explain themselves."""
        tree = _parse(source, path)
        _rewrite(tree, source, path, self._config)
        return capsule_rows.compiled(tree, path)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._rows.write(error=self._id(report.nodeid), text=str(report.longrepr)[-4000:])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Any:
    global _ROWS  # noqa: PLW0603
    rows = _ROWS or (None if hasattr(config, "workerinput") else capsule_rows.rows("pytest"))
    if rows:
        config.pluginmanager.register(_Recorder(config, rows), "capsule-rows")
    outcome = yield
    _ROWS = None
    if rows:
        failed = getattr(outcome, "excinfo", None) or getattr(outcome, "exception", None)
        rows.end(1 if failed else int(outcome.get_result() or 0))
