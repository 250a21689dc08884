"""How runners behind a command are asked: through the environment, which tests do not inherit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell

SEEN = "import json, os, pathlib\n\ndef test_it():\n    pathlib.Path('seen').write_text(json.dumps(dict(os.environ)))\n"
OWN = {"SPEC_OPTS": "--tag fast", "PHP_INI_SCAN_DIR": "/etc/mine", "NODE_OPTIONS": "--no-warnings"}


@pytest.mark.sweep
@pytest.mark.parametrize("own", [{}, OWN], ids=["nothing set", "set by a person"])
def test_what_a_test_starts_is_not_asked(own: dict[str, str], tmp_path: Path) -> None:
    tree, reports = tmp_path / "tree", tmp_path / "reports"
    tree.mkdir()
    reports.mkdir()
    (tree / "test_a.py").write_text(SEEN)
    base = {**{name: value for name, value in os.environ.items() if name not in OWN}, **own}
    with SupervisorClient() as supervisor:
        shell = SupervisedShell(supervisor, base_env=base)
        command = f"{sys.executable} -m pytest -q -p no:cacheprovider"
        ran = shell.run(command, tree, tmp_path / "log", timeout=60, env={}, reports=reports)
    assert ran.report.passed == ["test_a.py::test_it"], ran.tail
    seen = json.loads((tree / "seen").read_text())
    assert {name: seen.get(name) for name in OWN} == {name: own.get(name) for name in OWN}
    assert not {"CAPSULE_ASK", "CAPSULE_ASK_PHP", "CAPSULE_ASK_RSPEC", "CAPSULE_REPORTS", "CAPSULE_TREE"} & {*seen}
    assert "instruments" not in f"{seen['PATH']} {seen.get('PYTHONPATH', '')}"


TESTS = """\
import functools
import unittest
from unittest import mock

import code_under_test


def plain(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


class Test(unittest.TestCase):
    def test_value(self):
        self.assertEqual(code_under_test.value(), 3)

    @plain
    @mock.patch("code_under_test.other", 1)
    def test_others(self):
        self.assertIn(code_under_test.other, {1, 2.0, "x", (3, -0.0)})
        assert [each for each in range(3) if (lambda: each)()] == [1, 2]
"""
VALUE = "other = 0\n\ndef value():\n    return {value}\n"
READ_OTHERWISE = """
import pathlib, importlib.machinery
def wrong(read):
    return lambda *args: read(*args).replace(b"value(), 3", b"value(), 4")
pathlib.Path.read_bytes = wrong(pathlib.Path.read_bytes)
importlib.machinery.SourceFileLoader.get_data = wrong(importlib.machinery.SourceFileLoader.get_data)
"""


@pytest.mark.promise("evidence.lies")
@pytest.mark.parametrize("runner", ["unittest", "pytest -q -p no:cacheprovider"])
@pytest.mark.parametrize("tampers", ["", READ_OTHERWISE], ids=["as written", "read otherwise"])
def test_a_test_that_was_not_loaded_as_its_file_has_it_is_named(runner: str, tampers: str, tmp_path: Path) -> None:
    tree, reports = tmp_path / "tree", tmp_path / "reports"
    tree.mkdir()
    reports.mkdir()
    (tree / "code_under_test.py").write_text(VALUE.format(value=4 if tampers else 3) + tampers)
    (tree / "test_a.py").write_text("import code_under_test\n\ndef test_a():\n    pass\n")
    (tree / "test_value.py").write_text(TESTS)
    with SupervisorClient() as supervisor:
        shell = SupervisedShell(supervisor, base_env=os.environ)
        ran = shell.run(f"{sys.executable} -m {runner}", tree, tmp_path / "log", timeout=60, env={}, reports=reports)
    assert {name.rpartition("test_")[2] for name in ran.report.passed} >= {"value", "others"}, ran.tail
    assert [name.rpartition("test_")[2] for name in ran.report.rewritten] == (["value"] if tampers else [])
