"""Projects without any settings: a mission each to the merge, and none with the project's own package broken.

With and without a sandbox. What the tests of a change judge is the change, and never the user's checkout.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from capsule.core.event import Observed
from tests.commands.conftest import ITEM, PHASES, Project, Script, bead, begin, said
from tests.conftest import UNSANDBOXED

from .kinds import CARGO, EDITABLE, KINDS, Files, Kind, tool

pytestmark = pytest.mark.usefixtures("unreachable_home")
_SETUP = "python3 -m venv --without-pip .venv && cd .venv/lib/python3*/site-packages && echo $OLDPWD/src > app.pth"
_LIVE = bool(os.environ.get("CAPSULE_LIVE"))


def a_project(kind: Kind, folder: Path, level: dict[str, str]) -> Project:
    """As its user has it: committed, installed, tried."""
    if kind.live and not _LIVE:
        pytest.skip("in `make live`")
    path = os.pathsep.join(dict.fromkeys([*(str(Path(tool(name)).parent) for name in kind.needs), os.environ["PATH"]]))
    repo = begin(folder / "project")
    for name, text in kind.files.items():
        repo.write(name, text)
    repo.write(".beads/issues.jsonl", json.dumps(bead()) + "\n")
    kind.install(repo.path)
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "start")
    project = Project(repo.path, folder)
    project.always = {"PATH": path, **level}
    return project


def agents(kind: Kind, code: Files) -> Script:
    add = " ".join((*kind.tests, *code))
    return {
        **{phase: [said("PASS")] for phase in PHASES},
        "test-writer": [said("PASS", write=dict(kind.tests))],
        "execute": [said("PASS", write=dict(code))],
        "merge": [said("PASS", run=[f'git add {add} && git commit -q -m "$CAPSULE_COMMIT_MSG"'])],
    }


@pytest.mark.promise("workflows.dependencies")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_mission_is_merged_without_any_settings(kind: Kind, level: dict[str, str], tmp_path: Path) -> None:
    project = a_project(kind, tmp_path, level)
    project.play(agents(kind, kind.code))
    answer = project.run()

    assert answer.code == 0, f"{answer.out}\n{answer.err}"
    for path, text in kind.code.items():
        assert project.git("show", f"main:{path}") == text.strip()
    assert project.dirt() == ""
    assert not any((project.home / ".cache/capsule/gates").rglob("*.py"))


@pytest.mark.promise("workflows.dependencies")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_broken_package_is_not_merged(kind: Kind, level: dict[str, str], tmp_path: Path) -> None:
    project = a_project(kind, tmp_path, level)
    before = project.head("main")
    project.play(agents(kind, kind.broken))
    answer = project.run("--max-retries", "0")

    assert answer.code == 1, f"{answer.out}\n{answer.err}"
    assert project.head("main") == before
    assert "execute REFUTED" in project.walked()


@pytest.mark.promise("workflows.build-output")
def test_what_the_user_has_built_is_no_part_of_a_cargo_gate(level: dict[str, str], tmp_path: Path) -> None:
    """Cargo goes by time stamps: over a newer `target`, broken code would be reported as passed."""
    project = a_project(CARGO, tmp_path, level)
    project.play(agents(CARGO, CARGO.broken))
    project.run("--max-retries", "0")
    seen = [event.observation for event in project.events() if isinstance(event, Observed)]

    assert (project.path / "target").is_dir()
    assert seen[-1].colour == "red"
    assert "Compiling words" in seen[-1].tail


@pytest.mark.promise("workflows.new-dependencies")
def test_a_change_of_dependencies_waits_for_a_person_with_the_command_proposed(
    level: dict[str, str], tmp_path: Path
) -> None:
    project = a_project(EDITABLE, tmp_path, level)
    manifest = EDITABLE.files["pyproject.toml"].replace("[build-system]", 'dependencies = ["x"]\n[build-system]')
    project.play(agents(EDITABLE, {**EDITABLE.code, "pyproject.toml": manifest}))
    answer = project.run()

    assert answer.code == 1
    assert "pyproject.toml needs other dependencies than those installed in your checkout." in answer.out
    assert "`workspace.setup: python3 -m venv .venv && .venv/bin/pip install -e .`" in answer.out
    assert project.walked().count("execute REFUTED") == 1

    again = project.run(CAPSULE_WORKSPACE__SETUP=_SETUP)
    assert again.code == 0, f"{again.out}\n{again.err}"
    assert 'dependencies = ["x"]' in project.git("show", "main:pyproject.toml")


@pytest.mark.promise("workflows.checkout-code")
def test_a_project_whose_tests_would_load_the_checkouts_code_is_refused_before_an_agent_is_paid(tmp_path: Path) -> None:
    project = a_project(EDITABLE, tmp_path, UNSANDBOXED)
    elsewhere = tmp_path / "environment"
    shutil.copytree(project.path / ".venv", elsewhere, symlinks=True)
    shutil.rmtree(project.path / ".venv")
    (site,) = elsewhere.glob("lib/python*/site-packages")
    (site / "__editable__.app-1.0.pth").write_text("import app_loader\n")
    (site / "app_loader.py").write_text(
        "import importlib.util, sys\n"
        "class Finder:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        file = '{project.path}/src/app/__init__.py'\n"
        "        return importlib.util.spec_from_file_location(name, file) if name == 'app' else None\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    project.always |= {"VIRTUAL_ENV": str(elsewhere), "PATH": f"{elsewhere}/bin:{project.always['PATH']}"}
    project.play(agents(EDITABLE, EDITABLE.code))
    answer = project.run()

    assert answer.code == 1
    assert f"`app` is loaded from {project.path}/src/app/__init__.py, in your checkout." in answer.out
    assert project.walked() == ["prep BLOCKED"]
    assert ITEM in answer.out
