"""What a place needs besides its files: the project's installed dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from capsule.core.errors import SettingsError
from capsule.system.git import Git
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.python_environment import site_packages

from ..conftest import Repo


def folder(path: Path, *files: str) -> None:
    """A folder that is there, with a file in it."""
    path.mkdir(parents=True)
    for name in files or ("x",):
        (path / name).write_text("")


def commit(repo: Repo, files: dict[str, str]) -> None:
    for name, text in files.items():
        repo.write(name, text)
    repo.commit()


def found(repo: Repo, *named: str) -> set[str]:
    git = Git.find(repo.path)
    return set(Dependencies(git, named).paths(repo.head()))


def test_environments_and_packages_beside_a_manifest_are_found(a_repo: Repo) -> None:
    ignore = ".venv/\nnode_modules/\nvendor\n"
    commit(
        a_repo, {".gitignore": ignore, "package.json": "{}", "packages/a/package.json": "{}", "api/composer.json": "{}"}
    )
    folder(a_repo.path / ".venv", "pyvenv.cfg")
    for name in ("node_modules", "packages/a/node_modules", "api/vendor", "packages/b/node_modules"):
        folder(a_repo.path / name)

    assert found(a_repo) == {".venv", "node_modules", "packages/a/node_modules", "api/vendor"}


def test_an_environment_that_ignores_itself_is_found(a_repo: Repo) -> None:
    folder(a_repo.path / "venv", "pyvenv.cfg")
    (a_repo.path / "venv/.gitignore").write_text("*\n")

    assert found(a_repo) == {"venv"}


def test_a_linked_environment_is_found_and_its_target_is_the_layer(a_repo: Repo, tmp_path: Path) -> None:
    commit(a_repo, {".gitignore": ".venv\n"})
    folder(tmp_path / "elsewhere", "pyvenv.cfg")
    (a_repo.path / ".venv").symlink_to(tmp_path / "elsewhere")
    dependencies = Dependencies(Git.find(a_repo.path))

    assert dependencies.layers(a_repo.head(), Path("/at")) == (("/at/.venv", str(tmp_path / "elsewhere")),)


def test_a_folder_called_env_that_is_no_environment_is_not_shared(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "env\n"})
    folder(a_repo.path / "env", "production.json")

    assert found(a_repo) == set()


def test_what_git_tracks_or_does_not_ignore_is_part_of_the_work(a_repo: Repo) -> None:
    commit(a_repo, {"go.mod": "", "vendor/modules.txt": "", "package.json": "{}"})
    folder(a_repo.path / "node_modules")

    assert found(a_repo) == set()


@pytest.mark.promise("workflows.build-output")
def test_build_output_is_never_shared(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "target\nbuild\ndist\n.next\n.tox\n", "Cargo.toml": "", "package.json": "{}"})
    for name in ("target", "build", "dist", ".next", ".tox"):
        folder(a_repo.path / name)

    assert found(a_repo) == set()
    with pytest.raises(SettingsError, match="build output"):
        found(a_repo, "target")


def test_settings_name_further_folders(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "third_party\n"})
    folder(a_repo.path / "third_party")

    assert found(a_repo, "third_party", "absent") == {"third_party"}
    for bad in ("/etc", "../other", ".", ".git", ".capsule/x"):
        with pytest.raises(SettingsError, match=r"workspace\.dependencies"):
            found(a_repo, bad)


class Project:
    """A checkout with dependencies, and a place that holds its files and nothing else."""

    def __init__(self, repo: Repo, place: Path, env: dict[str, str] | None = None) -> None:
        self.repo, self.place = repo, place
        self.notes = place.with_name("notes")
        self.env = {"PATH": os.environ["PATH"]} if env is None else env
        repo.git("worktree", "add", "-q", "--detach", str(place))

    def dependencies(self) -> Dependencies:
        return Dependencies(Git.find(self.repo.path), env=self.env)

    def provide(self, *, anew: bool = True) -> set[str]:
        return set(self.dependencies().provide(self.repo.head(), self.place, self.notes, anew=anew))

    def variables(self, *, judged: bool = False) -> dict[str, str]:
        return self.dependencies().variables(self.repo.head(), self.place, judged=judged)

    def says(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.place,
            env=self.env | self.variables(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def bytes_below(top: Path) -> dict[str, bytes]:
    files = (path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path): path.read_bytes() for path in files if "__pycache__" not in path.parts}


WHERE = "import app, pathlib; print(pathlib.Path(app.__file__).parent.parent)"


@pytest.fixture
def an_editable_install(a_repo: Repo, tmp_path: Path) -> Project:
    """A src layout whose environment knows the project as setuptools writes it: by a path file."""
    commit(a_repo, {".gitignore": ".venv/\n", "pyproject.toml": "", "src/app/__init__.py": ""})
    venv.create(a_repo.path / ".venv", with_pip=False)
    (site,) = site_packages(a_repo.path / ".venv")
    (site / "__editable__.app-1.0.pth").write_text(f"{a_repo.path}/src\n")
    (site / "installed_library.py").write_text("")
    (site.parents[2] / "bin/tool").write_text(f"#!{a_repo.path}/.venv/bin/python\n{WHERE}\n")
    (site.parents[2] / "bin/tool").chmod(0o755)
    return Project(a_repo, tmp_path / "place")


@pytest.mark.parametrize(
    "program", [f"python3 -c '{WHERE}'", f".venv/bin/python -c '{WHERE}'", ".venv/bin/tool", "tool"]
)
def test_an_editable_install_leads_to_the_places_own_code(an_editable_install: Project, program: str) -> None:
    assert an_editable_install.provide() == {".venv"}

    assert an_editable_install.says(program) == str(an_editable_install.place / "src")
    assert an_editable_install.says("python3 -c 'import installed_library'") == ""


def test_the_finder_of_an_editable_install_leads_to_the_places_own_code(an_editable_install: Project) -> None:
    root = an_editable_install.repo.path
    commit(an_editable_install.repo, {"packages/other/lib/part/__init__.py": ""})
    an_editable_install.repo.git(
        "checkout", "-q", "--detach", an_editable_install.repo.head(), cwd=an_editable_install.place
    )
    (site,) = site_packages(root / ".venv")
    finder = f"MAPPING = {{'part': '{root}/packages/other/lib/part'}}\n"
    (site / "__editable___part_1_0_finder.py").write_text(finder)
    an_editable_install.provide()

    where = "import part; print(part.__file__)"
    assert an_editable_install.says(f"python3 -c '{where}'").startswith(str(an_editable_install.place / "packages"))


@pytest.mark.promise("workflows.changed-dependencies")
def test_what_is_installed_in_the_place_stays_there(an_editable_install: Project) -> None:
    an_editable_install.provide()
    before = bytes_below(an_editable_install.repo.path / ".venv")
    into = an_editable_install.says("python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'")
    Path(into, "new_library.py").write_text("")

    assert an_editable_install.says("python3 -c 'import new_library'") == ""
    assert Path(into).is_relative_to(an_editable_install.place)
    assert bytes_below(an_editable_install.repo.path / ".venv") == before
    assert Repo(an_editable_install.place).status() == ""

    an_editable_install.provide()
    assert not Path(into, "new_library.py").exists()


def test_an_active_environment_of_the_checkout_is_the_places_one(an_editable_install: Project) -> None:
    root, place = an_editable_install.repo.path, an_editable_install.place
    an_editable_install.env = {"PATH": f"{root}/.venv/bin:/usr/bin", "VIRTUAL_ENV": f"{root}/.venv", "PYTHONPATH": "/x"}

    assert an_editable_install.variables() == {
        "PATH": f"{place}/.venv/bin:/usr/bin",
        "VIRTUAL_ENV": f"{place}/.venv",
        "PYTHONPATH": f"{place}/src:{place}:/x",
    }


def test_every_variable_that_leads_to_files_of_the_checkout_leads_to_those_of_the_place(
    an_editable_install: Project, tmp_path: Path
) -> None:
    """Tests that find the code by a variable of the user's shell would judge the checkout."""
    root, place = an_editable_install.repo.path, an_editable_install.place
    (tmp_path / "link").symlink_to(root)
    an_editable_install.env = {
        "PATH": f"{tmp_path}/link/.venv/bin:/usr/bin",
        "PROJECT_ROOT": f"{tmp_path}/link",
        "APP_CODE": f"/x:{root}/src",
        "KEY_FILE": f"{root}/ignored/key",
        "HOME": str(root),
        "PWD": str(root),
        "VIRTUAL_ENV": "",
        "NODE_PATH": "",
    }
    told = an_editable_install.variables(judged=True)

    assert told["PATH"].split(":")[-2:] == [f"{place}/.venv/bin", "/usr/bin"]
    assert (told["PROJECT_ROOT"], told["APP_CODE"]) == (str(place), f"/x:{place}/src")
    assert not {"KEY_FILE", "HOME", "PWD", "NODE_PATH"} & {*told}
    assert "APP_CODE" not in an_editable_install.variables(), "agents are told what is on their list"


def test_a_pipe_for_a_path_file_keeps_nobody_waiting(an_editable_install: Project) -> None:
    site = next((an_editable_install.repo.path / ".venv").glob("lib/python*/site-packages"))
    os.mkfifo(site / "a.pth")

    assert an_editable_install.dependencies().import_folders(an_editable_install.repo.head()) == ["src", "."]


def test_an_empty_variable_stays_empty(a_repo: Repo, tmp_path: Path) -> None:
    project = Project(a_repo, tmp_path / "place")
    project.env = {"PATH": "/usr/bin", "VIRTUAL_ENV": "", "NODE_PATH": "", "PYTHONPATH": ""}

    assert project.variables(judged=True) == {}


def test_another_environment_that_is_active_stays_so(an_editable_install: Project, tmp_path: Path) -> None:
    place = an_editable_install.place
    an_editable_install.env = {"PATH": f"{tmp_path}/other/bin:/usr/bin", "VIRTUAL_ENV": f"{tmp_path}/other"}

    assert an_editable_install.variables() == {"PYTHONPATH": f"{place}/src:{place}"}


def test_tests_of_ours_do_not_let_uv_install_anything(an_editable_install: Project) -> None:
    assert an_editable_install.variables(judged=True)["UV_NO_SYNC"] == "1"


def test_at_the_checkouts_own_path_only_the_environment_is_made_active(an_editable_install: Project) -> None:
    root = an_editable_install.repo.path
    an_editable_install.env = {"PATH": "/usr/bin"}
    told = an_editable_install.dependencies().variables(an_editable_install.repo.head(), root, judged=True)

    assert told == {"PATH": f"{root}/.venv/bin:/usr/bin", "VIRTUAL_ENV": f"{root}/.venv"}


def test_a_project_without_dependencies_needs_no_variables(a_repo: Repo, tmp_path: Path) -> None:
    project = Project(a_repo, tmp_path / "place")

    assert (project.provide(), project.variables(judged=True)) == (set(), {})


@pytest.fixture
def npm_workspaces(a_repo: Repo, tmp_path: Path) -> Project:
    commit(a_repo, {".gitignore": "node_modules/\n", "package.json": "{}", "packages/a/index.js": "checkout"})
    modules = a_repo.path / "node_modules"
    folder(modules / "left-pad")
    (modules / "left-pad/index.js").write_text("good")
    (modules / "a").symlink_to("../packages/a")
    return Project(a_repo, tmp_path / "place")


def test_workspace_links_lead_to_the_places_own_packages(npm_workspaces: Project) -> None:
    assert npm_workspaces.provide() == {"node_modules"}

    assert (npm_workspaces.place / "node_modules/a").resolve() == npm_workspaces.place / "packages/a"
    assert (npm_workspaces.place / "node_modules/left-pad/index.js").is_file()


def test_packages_are_copies_and_no_hard_links(npm_workspaces: Project) -> None:
    npm_workspaces.provide()
    (npm_workspaces.place / "node_modules/left-pad/index.js").write_text("changed")

    assert (npm_workspaces.repo.path / "node_modules/left-pad/index.js").read_text() == "good"


def test_packages_are_copied_once(npm_workspaces: Project) -> None:
    npm_workspaces.provide()
    copied = (npm_workspaces.place / "node_modules/left-pad/index.js").stat()
    npm_workspaces.provide()

    assert (npm_workspaces.place / "node_modules/left-pad/index.js").stat().st_ino == copied.st_ino


_KILLED = """
import os, sys
from pathlib import Path
from capsule.system.git import Git
from capsule.workspaces.dependencies import Dependencies
root, tree, place, notes = sys.argv[1:]
dependencies = Dependencies(Git.find(Path(root)))
dependencies.paths(tree)
sys.addaudithook(lambda event, args: os.kill(os.getpid(), 9) if event in ("os.symlink", "subprocess.Popen") else None)
dependencies.provide(tree, Path(place), Path(notes), anew=False)
"""


def killed_while_it_provides(project: Project) -> None:
    told = (project.repo.path, project.repo.head(), project.place, project.notes)
    assert subprocess.run([sys.executable, "-c", _KILLED, *map(str, told)], check=False).returncode == -9


def test_a_copy_that_was_cut_short_is_made_whole(npm_workspaces: Project) -> None:
    killed_while_it_provides(npm_workspaces)
    (npm_workspaces.place / "node_modules/left-pad").mkdir(parents=True)  # as far as the copying came
    npm_workspaces.provide(anew=False)

    assert (npm_workspaces.place / "node_modules/left-pad/index.js").read_text() == "good"


def test_an_environment_that_was_cut_short_is_made_whole(an_editable_install: Project) -> None:
    killed_while_it_provides(an_editable_install)
    assert (an_editable_install.place / ".venv/pyvenv.cfg").is_file()
    an_editable_install.provide(anew=False)

    assert an_editable_install.says("python3 -c 'import installed_library'") == ""


def test_what_is_there_already_stays_as_it_is(npm_workspaces: Project) -> None:
    folder(npm_workspaces.place / "node_modules", "theirs")
    assert npm_workspaces.provide(anew=False) == {"node_modules"}

    assert [path.name for path in (npm_workspaces.place / "node_modules").iterdir()] == ["theirs"]


def test_what_was_installed_since_is_copied(npm_workspaces: Project) -> None:
    npm_workspaces.provide()
    folder(npm_workspaces.repo.path / "node_modules/@scope/new", "index.js")
    (npm_workspaces.repo.path / "node_modules/left-pad/index.js").write_text("newer")
    npm_workspaces.provide()

    assert (npm_workspaces.place / "node_modules/@scope/new/index.js").is_file()
    assert (npm_workspaces.place / "node_modules/left-pad/index.js").read_text() == "newer"


@pytest.mark.promise("workflows.changed-dependencies")
def test_what_a_test_wrote_into_a_package_is_gone_the_next_time(npm_workspaces: Project) -> None:
    npm_workspaces.provide()
    file = npm_workspaces.place / "node_modules/left-pad/index.js"
    stood = file.stat()
    file.write_text("evil")  # as long as before, and as old
    os.utime(file, ns=(stood.st_atime_ns, stood.st_mtime_ns))
    folder(npm_workspaces.place / "node_modules/.cache")
    (npm_workspaces.place / "node_modules/a").unlink()
    npm_workspaces.provide()

    assert not (npm_workspaces.place / "node_modules/.cache").exists()
    assert (npm_workspaces.place / "node_modules/a").is_symlink()
    assert file.read_text() == "good"


def test_a_copy_that_was_cut_short_is_made_anew(npm_workspaces: Project) -> None:
    npm_workspaces.provide()
    for note in npm_workspaces.notes.iterdir():
        note.unlink()
    (npm_workspaces.place / "node_modules/left-pad/index.js").unlink()
    npm_workspaces.provide()

    assert (npm_workspaces.place / "node_modules/left-pad/index.js").is_file()


def test_nothing_is_put_where_a_link_of_the_tree_leads_out(npm_workspaces: Project, tmp_path: Path) -> None:
    commit(npm_workspaces.repo, {"packages/a/package.json": "{}"})
    folder(npm_workspaces.repo.path / "packages/a/node_modules")
    shutil.rmtree(npm_workspaces.place / "packages/a")
    (tmp_path / "elsewhere").mkdir()
    (npm_workspaces.place / "packages/a").symlink_to(tmp_path / "elsewhere")

    assert npm_workspaces.provide() == {"node_modules"}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_package_that_the_place_no_longer_has_is_not_found_in_the_checkout(an_editable_install: Project) -> None:
    an_editable_install.provide()
    shutil.rmtree(an_editable_install.place / "src")

    assert an_editable_install.says("unset PYTHONPATH; .venv/bin/tool 2>/dev/null || echo gone") == "gone"


def test_an_environment_that_the_setup_made_is_used_as_if_it_were_active(a_repo: Repo, tmp_path: Path) -> None:
    project = Project(a_repo, tmp_path / "place")
    folder(project.place / ".venv", "pyvenv.cfg")
    of_setup = Dependencies(Git.find(a_repo.path), detect=False, env={"PATH": "/usr/bin"})

    told = of_setup.variables(a_repo.head(), project.place)
    assert told["VIRTUAL_ENV"] == str(project.place / ".venv")
    assert told["PATH"] == f"{project.place}/.venv/bin:/usr/bin"
    seen = of_setup.variables(a_repo.head(), a_repo.path, project.place)
    assert seen == {"VIRTUAL_ENV": str(a_repo.path / ".venv"), "PATH": f"{a_repo.path}/.venv/bin:/usr/bin"}
