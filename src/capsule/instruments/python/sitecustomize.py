"""Have pytest and unittest write how each test ended, and tox pass on that they are asked to.

Python imports this module at its start, because its folder is on PYTHONPATH; the one that it hides is imported after.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Callable, Dict

_HERE = os.path.dirname(os.path.abspath(__file__))
_OPTIONS = "-p capsule_pytest --continue-on-collection-errors --maxfail=0"


def _ask_pytest(config: Any) -> None:
    """Load our plugin into every session that this process starts by itself."""
    import capsule_rows

    prepare = config._prepareconfig

    def prepareconfig(*args: Any, **options: Any) -> Any:
        before = os.environ.get("PYTEST_ADDOPTS")
        if capsule_rows.wanted():
            os.environ["PYTEST_ADDOPTS"] = f"{before or ''} {_OPTIONS}".strip()
        try:
            return prepare(*args, **options)
        finally:
            if before is None:
                os.environ.pop("PYTEST_ADDOPTS", None)
            else:
                os.environ["PYTEST_ADDOPTS"] = before

    config._prepareconfig = prepareconfig


def _ask_unittest(module: Any) -> None:
    """Wrap the methods of unittest.TestResult by which every runner is told of every test."""
    import capsule_rows

    kind = module.TestResult
    running: Dict[int, Any] = {}
    early = capsule_rows.rows("unittest") if _is_unittest() else None  # what ends the process while tests load is seen

    def begin(result: Any) -> None:
        nonlocal early
        rows, early = early or capsule_rows.rows("unittest"), None
        if rows:
            running[id(result)] = rows

    def name_of(test: Any) -> str:
        module, name = type(test).__module__, f"{type(test).__qualname__}.{getattr(test, '_testMethodName', '')}"
        if module == "unittest.suite":  # what failed is a fixture: `setUpClass (tests.test_x.Case)`
            fixture, _, where = str(test.id()).rstrip(")").partition(" (")
            parts = where.split(".")
            known = [end for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in sys.modules] or [len(parts)]
            module, name = ".".join(parts[: known[0]]), ".".join((*parts[known[0] :], fixture))
        path = getattr(sys.modules.get(module), "__file__", None) or ""
        return f"{capsule_rows.place(path)}::{name.rstrip('.')}" if capsule_rows.is_ours(path) else str(test.id())

    def wrap(method: str, outcome: str) -> None:
        original = getattr(kind, method)

        def wrapped(self: Any, test: Any, *args: Any) -> Any:
            rows = running.get(id(self))
            if rows is None:
                pass
            elif type(test).__name__ in ("_FailedTest", "ModuleImportFailure"):
                error = str(test.id()).rpartition("_FailedTest.")[2]
                rows.write(error=error, text=str(getattr(test, "_exception", ""))[-4000:])
            elif method != "addSubTest" or args[1] is not None:
                rows.write(test=name_of(getattr(test, "test_case", test)), result=outcome)
                if not capsule_rows.is_as_written(getattr(test, getattr(test, "_testMethodName", ""), None)):
                    rows.write(rewritten=name_of(test))
            return original(self, test, *args)

        setattr(kind, method, wrapped)

    for method, outcome in _OUTCOMES.items():
        wrap(method, outcome)
    started, stopped = kind.startTestRun, kind.stopTestRun

    def start(self: Any) -> Any:
        begin(self)
        return started(self)

    def stop(self: Any) -> Any:
        rows = running.pop(id(self), None)
        if rows:
            rows.end(0 if self.wasSuccessful() else 1)
        return stopped(self)

    kind.startTestRun, kind.stopTestRun = start, stop


_OUTCOMES = {
    "addSuccess": "passed",
    "addFailure": "failed",
    "addError": "errored",
    "addSkip": "skipped",
    "addExpectedFailure": "xfailed",
    "addUnexpectedSuccess": "failed",
    "addSubTest": "failed",
}


def _is_unittest() -> bool:
    words = getattr(sys, "orig_argv", [])
    pairs = [*zip(words, words[1:])]  # noqa: B905, RUF007 - as old a Python as the project's
    return ("-m", "unittest") in pairs or any(a.endswith("manage.py") and b == "test" for a, b in pairs)


def _ask_tox(api: Any) -> None:
    """Pass on what asks for names, whatever `pass_env` says: tox hides the rest of the environment."""
    load = api.ToxEnv._load_pass_env
    if not isinstance(vars(api.ToxEnv).get("_load_pass_env"), staticmethod):
        return
    names = ("PYTHONPATH", "CAPSULE_REPORTS", "CAPSULE_TREE", "CAPSULE_ASK*")
    api.ToxEnv._load_pass_env = staticmethod(lambda pass_env: load([*pass_env, *names]))


_ASKED: Dict[str, Callable[[Any], None]] = {
    "_pytest.config": _ask_pytest,
    "unittest.result": _ask_unittest,
    "tox.tox_env.api": _ask_tox,
}


class _Hook(importlib.abc.MetaPathFinder):
    """Ask a runner once it is imported: most processes never do."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if fullname not in _ASKED:
            return None
        ask = _ASKED.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            with contextlib.suppress(Exception):  # another release of the runner: it is judged by what it prints
                ask(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("CAPSULE_REPORTS"):
    sys.meta_path.insert(0, _Hook())

_rest = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _hidden and _hidden.loader:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
