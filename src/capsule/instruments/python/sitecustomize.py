"""Have unittest write how each test ended into a file of its own (one line of JSON each).

Python imports this module at its start, because its folder is on PYTHONPATH; the one that it hides is imported after.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _record(result_class: Any) -> None:
    """Wrap the methods of unittest.TestResult by which every runner is told of every test."""
    import json

    files: dict[int, int] = {}

    def write(to: Any, **row: Any) -> None:
        key = id(to)
        if key not in files:
            name = f"unittest-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
            path = os.path.join(os.environ["CAPSULE_REPORTS"], name)
            files[key] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            write(to, runner="unittest")
        os.write(files[key], (json.dumps(row) + "\n").encode())

    def name_of(test: Any) -> str:
        module = sys.modules.get(type(test).__module__)
        path = os.path.realpath(getattr(module, "__file__", None) or "")
        tree = os.path.realpath(os.environ["CAPSULE_TREE"])
        name = f"{type(test).__qualname__}.{getattr(test, '_testMethodName', '')}".rstrip(".")
        inside = path.startswith(tree + os.sep) and type(test).__module__ != "unittest.suite"
        return f"{os.path.relpath(path, tree).replace(os.sep, '/')}::{name}" if inside else str(test.id())

    def wrap(method: str, outcome: str) -> None:
        original = getattr(result_class, method)

        def wrapped(self: Any, test: Any, *args: Any) -> Any:
            if type(test).__name__ in ("_FailedTest", "ModuleImportFailure"):
                module = str(test.id()).rpartition("_FailedTest.")[2]
                write(self, error=module, text=str(getattr(test, "_exception", ""))[-4000:])
            elif method != "addSubTest" or args[1] is not None:
                write(self, test=name_of(test), result=outcome)
            return original(self, test, *args)

        setattr(result_class, method, wrapped)

    for method, outcome in {
        "addSuccess": "passed",
        "addFailure": "failed",
        "addError": "errored",
        "addSkip": "skipped",
        "addExpectedFailure": "xfailed",
        "addUnexpectedSuccess": "failed",
        "addSubTest": "failed",
    }.items():
        wrap(method, outcome)
    started, stopped = result_class.startTestRun, result_class.stopTestRun

    def start(self: Any) -> Any:
        write(self, begun=True)
        return started(self)

    def stop(self: Any) -> Any:
        write(self, ended=0 if self.wasSuccessful() else 1)
        return stopped(self)

    result_class.startTestRun, result_class.stopTestRun = start, stop


class _Hook(importlib.abc.MetaPathFinder):
    """Record once `unittest.result` is imported: most processes never do."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if fullname != "unittest.result":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _record(module.TestResult)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("CAPSULE_REPORTS"):
    sys.meta_path.insert(0, _Hook())

_rest = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _hidden and _hidden.loader:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
