"""Test the architecture rules that import-linter cannot check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import capsule
from capsule.catalog import Catalog
from capsule.cli import main
from capsule.commands.verbs import VERBS
from capsule.project import adapters

from ..conftest import Repo

PACKAGE = Path(capsule.__file__).parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts]
PURE = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] in ("core", "engine")]


def modules_after(statement: str, where: Path = PACKAGE) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.promise("house.pure-core")
def test_core_can_be_imported_without_any_means_to_touch_the_world() -> None:
    """Check at run time that importing the core loads no other part of Capsule."""
    names = ", ".join(
        f"capsule.core.{path.stem}" for path in PURE if path.parent.name == "core" and path.stem[0] != "_"
    )
    loaded = {name for name in modules_after(f"import {names}") if name.startswith("capsule.")}
    assert loaded == {name for name in loaded if name.startswith("capsule.core")}
    assert len(loaded) > 10


@pytest.mark.promise("house.imports")
def test_the_command_that_runs_missions_never_loads_a_terminal_interface() -> None:
    loaded = modules_after(
        "import capsule.commands.run, capsule.wiring, capsule.engine.run_mission, capsule.reports.plain"
    )
    assert not {name for name in loaded if name.split(".")[0] in ("textual", "rich")}


@pytest.mark.promise("house.imports")
def test_asking_for_the_version_loads_next_to_nothing() -> None:
    loaded = modules_after("from capsule.cli import main; sys.argv=['capsule','--version']; main()")
    assert not {"argparse", "msgspec", "sqlite3", "typing", "capsule.wiring"} & loaded


@pytest.mark.promise("house.imports")
def test_only_who_draws_a_page_loads_templates(a_repo: Repo) -> None:
    engines = {"jinja2", "markupsafe", "pygments"}
    every = ", ".join(f"capsule.commands.{verb.module}" for verb in VERBS.values())
    assert not modules_after(f"import {every}") & engines
    report = "from capsule.cli import main; sys.argv=['capsule','report'{}]; main()"
    assert not modules_after(report.format(""), a_repo.path) & engines
    assert modules_after(report.format(",'--html','page.html'"), a_repo.path) & engines == {"jinja2", "markupsafe"}


def test_showing_a_backlog_loads_what_reads_it_and_nothing_else(a_repo: Repo) -> None:
    a_repo.commit("backlog", **{"BACKLOG.yaml": "schema_version: 1\nitems:\n- {id: WRK-001, title: t, status: new}\n"})
    show = "from capsule.cli import main; sys.argv=['capsule','status']; main()"
    loaded = modules_after(show, a_repo.path)
    assert "capsule.trackers.backlog" in loaded
    costly = {"dataclasses", "difflib", "json", "shutil", "sqlite3"}
    others = {"catalog", "adapters", "core.decide", "core.event", "journals", "trackers.beads_file", "workspaces"}
    writing = {"trackers._backlog_edit"}
    assert not loaded & {*costly, *(f"capsule.{name}" for name in others | writing)}


@pytest.mark.promise("house.no-names")
@pytest.mark.parametrize("path", PURE, ids=lambda path: path.name)
def test_core_and_engine_name_no_phase_workflow_or_agent(path: Path) -> None:
    workflows = Catalog().names("workflow")
    words = {phase.name for name in workflows for phase in Catalog().workflow(name).phases if not phase.do}
    words |= {*workflows} | set(adapters("agents")) - {"command"}
    literals = {
        n.value
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    assert not literals & (words - {"review", "tests"})  # a role has that name too, and a folder of projects


def test_only_the_keeper_waits_for_any_child_and_nobody_forks() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert "preexec_fn=" not in text
        assert "os.fork(" not in text
        assert "multiprocessing" not in text
        if path.name != "supervisor.py":
            assert "waitpid(-1" not in text


def test_git_is_started_in_one_place() -> None:
    """Allow setup-template and doctor, which may have no repository, and the scripted agent's player process."""
    starts = {path.name for path in SOURCES if re.search(r"""[\[(]\s*["']git["'],""", path.read_text())}
    assert starts <= {"git.py", "setup_template.py", "doctor.py", "_player.py"}


@pytest.mark.promise("errors.no-swallowing", "004-follow-ups.typed-errors")
def test_no_exception_is_swallowed_without_a_word() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                assert not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)), f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", VERBS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert not end.value.code
    assert shown.startswith("usage: capsule ")
    assert len(shown.splitlines()) > 4
    assert all(len(line) <= 120 for line in shown.splitlines())


LOSES_WORK = re.compile(r"git (stash|clean|restore|reset --hard|checkout (--|-f)|push -f|branch -D)|--abort\b|\brm -")
NOTHING_TO_LOSE = ("Restore it: git checkout -- ", "Restore it with `git checkout -- ")
"""Of a backlog that is not there, or blank."""


@pytest.mark.promise("errors.safe-hints")
def test_no_hint_names_a_command_that_can_hide_or_lose_work() -> None:
    found = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        documented = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documented]
        told = [(str(node.value), node.lineno) for node in texts if node.value not in NOTHING_TO_LOSE]
        found += [f"{path.name}:{line}" for text, line in told if LOSES_WORK.search(text)]
    assert found == []


def test_every_agent_file_can_be_connected() -> None:
    from importlib import import_module

    for module in adapters("agents").values():
        assert callable(import_module(module).connect)
