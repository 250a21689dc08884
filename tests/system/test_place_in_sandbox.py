"""A place that is seen at the checkout's own path: tried from inside, with the real bubblewrap and the real git."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_fields

from capsule.agents.command import connect
from capsule.core.briefing import Briefing, SandboxPaths
from capsule.core.errors import CapsuleError
from capsule.system.git import Git
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import MountedPlace, at_its_own_path
from capsule.workspaces.private_git import fill_git_directory
from capsule.workspaces.shell import SupervisedShell
from tests.shared import a_connection

from .rooms import Room, a_program, a_room, needs_bubblewrap

pytestmark = needs_bubblewrap

SIGNED = {f"GIT_{role}_{what}": "us@localhost" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass
class Project:
    """A repository with a tag, a worktree in it, and a git directory for whoever works there."""

    room: Room
    sandbox_paths: SandboxPaths

    @property
    def root(self) -> Path:
        return self.room.root

    @property
    def place(self) -> Path:
        return self.room.place

    def git(self, *argv: str, cwd: Path | None = None) -> str:
        env = {**os.environ, **SIGNED}
        done = subprocess.run(["git", *argv], cwd=cwd or self.root, env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def sh(self, script: str, **more: object) -> str:
        return self.room.sh(script, **{"sandbox_paths": self.sandbox_paths, **more})

    def digest(self) -> dict[str, str]:
        """Every file of the user's `.git`, our own folder apart."""
        top = self.root / ".git"
        files = [file for file in sorted(top.rglob("*")) if file.is_file() and top / "capsule" not in file.parents]
        return {str(file.relative_to(top)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    room = a_room(tmp_path)
    shutil.rmtree(room.root)
    room.root.mkdir()
    made = Project(room, SandboxPaths())
    made.git("init", "-q", "-b", "main")
    (room.root / "code").write_text("the checkout's")
    (room.root / ".gitignore").write_text(".capsule/\n.venv/\n")
    made.git("add", "-A")
    made.git("commit", "-q", "-m", "First")
    made.git("tag", "-a", "-m", "One", "v1.0")
    made.git("worktree", "add", "-q", "-b", "capsule-x-1", str(room.place))
    (room.place / "code").write_text("the place's")
    (room.root / "secret").write_text("only in the checkout")
    (room.root / ".capsule" / "results").mkdir()
    made.sandbox_paths = _the_layout(room)
    room.env |= {**SIGNED, "CAPSULE_WORKTREE": str(room.place)}
    yield made
    room.leave()


def _the_layout(room: Room) -> SandboxPaths:
    """As a worktree hands it in: git directory and objects elsewhere, and two files that name those paths."""
    private = room.root / ".git" / "capsule" / "private" / "x-1"
    fill_git_directory(
        Git.find(room.root),
        private / "git",
        head="ref: refs/heads/capsule-x-1",
        index=room.root / ".git" / "worktrees" / "x-1" / "index",
    )
    (private / "dot-git").write_text("gitdir: /run/capsule/git\n")
    (private / "alternates").write_text("/run/capsule/objects\n")
    return SandboxPaths(
        place=str(room.place),
        at=str(room.root),
        stand_ins=(("/run/capsule/git", str(private / "git")),),
        shown=(
            ("/run/capsule/objects", str(room.root / ".git" / "objects")),
            ("/run/capsule/git/objects/info/alternates", str(private / "alternates")),
            (str(room.root / ".git"), str(private / "dot-git")),
        ),
    )


# What is seen


@pytest.mark.promise("sandbox.checkout-path")
def test_the_place_is_seen_at_the_checkouts_own_path(project: Project) -> None:
    said = project.sh("pwd; echo $PWD; echo $CAPSULE_WORKTREE; cat code; echo; echo mine > new")
    assert said.splitlines() == [str(project.root)] * 3 + ["the place's"]
    assert (project.place / "new").read_text() == "mine\n"
    assert not (project.root / "new").exists()
    assert (project.root / "code").read_text() == "the checkout's"


@pytest.mark.promise("sandbox.checkout-path")
def test_nothing_of_the_checkout_is_seen(project: Project) -> None:
    said = project.sh(f"cat secret; ls -A; ls {project.place}; ls .capsule .git/config")
    assert "only in the checkout" not in said
    assert said.count("No such file") == 3
    assert "Not a directory" in said
    assert set(said.splitlines()) & {".capsule", "code"} == {"code"}


def test_a_folder_of_the_place_is_the_same_folder_of_the_checkout(project: Project) -> None:
    (project.place / "a" / "b").mkdir(parents=True)
    assert project.sh("pwd", cwd=project.place / "a" / "b") == f"{project.root}/a/b\n"


def test_a_place_beside_the_checkout_is_not_seen_at_its_own_path(project: Project, tmp_path: Path) -> None:
    project.room.sandbox = replace(project.room.sandbox, readable=(str(tmp_path),))
    beside = tmp_path / "gates" / "x-1"
    shutil.copytree(project.place, beside)
    said = project.sh(
        f"pwd; cat {beside}/code code", cwd=beside, sandbox_paths=with_fields(project.sandbox_paths, place=str(beside))
    )
    assert said.startswith(f"{project.root}\nthe place's")
    assert "No such file" in said


def test_a_git_directory_that_lies_elsewhere_is_hidden_too(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.git"
    (project.root / ".git").rename(elsewhere)
    (project.root / ".git").write_text(f"gitdir: {elsewhere}\n")
    shown = (str(project.root), str(elsewhere))
    project.room.sandbox = replace(project.room.sandbox, shown=shown, readable=(str(tmp_path),))
    sandbox_paths = SandboxPaths(place=str(project.place), at=str(project.root))
    assert "No such file" in project.sh(f"cat {elsewhere}/config", sandbox_paths=sandbox_paths)


def test_programs_and_variables_name_the_place_as_it_is_seen(project: Project) -> None:
    a_program(project.place / "bin" / "tool", "echo a tool of the place")
    a_program(project.root / "bin" / "tool", "echo a tool of the checkout")
    project.room.env["PATH"] = f"{project.root}/bin:{project.room.env['PATH']}"
    project.room.env["LIBRARIES"] = f"/usr/lib:{project.place}/lib:{project.place}x"
    assert project.sh("tool; echo $LIBRARIES").splitlines() == [
        "a tool of the place",
        f"/usr/lib:{project.root}/lib:{project.place}x",
    ]
    argv = project.room.argv("./bin/tool", f"{project.place}/code", sandbox_paths=project.sandbox_paths)
    assert argv[-2:] == (f"{project.root}/bin/tool", f"{project.root}/code")


def test_what_the_settings_name_in_the_checkout_is_seen_where_the_place_lacks_it(project: Project) -> None:
    named = (str(project.root / "secret"), str(project.root / "code"))
    project.room.sandbox = replace(project.room.sandbox, readable=named)
    said = project.sh("cat secret; echo; cat code; echo evil > secret")
    assert said.startswith("only in the checkout\nthe place's")
    assert "Read-only" in said
    assert not (project.place / "secret").exists()


def test_a_checkout_that_is_reached_by_a_link_is_covered_by_its_real_name(project: Project, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(project.room.home)
    at = link / "src" / "project"
    pairs = tuple((path.replace(str(project.root), str(at)), source) for path, source in project.sandbox_paths.shown)
    extra = (f"{at}/.venv/extra", str(project.root / "secret"))
    sandbox_paths = with_fields(project.sandbox_paths, at=str(at), shown=(*pairs, extra))
    said = project.sh("cat code .venv/extra; git status --short", sandbox_paths=sandbox_paths)
    assert said == "the place'sonly in the checkout M code\n"


# git


@pytest.mark.promise("sandbox.checkout-path")
def test_git_works_inside_and_changes_nothing_of_the_users(project: Project) -> None:
    before = project.digest()
    said = project.sh(
        "git status --short && git commit -qam Work && git log --format=%s && git describe && git branch -f main HEAD "
        "&& git config core.pager evil && git gc -q --prune=now && git rev-parse --show-toplevel && git fsck"
    )
    lines = said.splitlines()
    assert lines[:3] == [" M code", "Work", "First"]
    assert lines[3].startswith("v1.0-1-g")
    assert lines[4] == str(project.root)
    assert project.digest() == before
    assert project.git("log", "--format=%s").splitlines() == ["First"]


@pytest.mark.promise("sandbox.checkout-path")
def test_outside_the_place_is_a_valid_worktree_at_any_moment(project: Project) -> None:
    """Also while somebody is in it: nothing is rewritten, other files are only seen over its own."""
    argv = project.room.argv("sh", "-c", "echo in; read x; echo out", sandbox_paths=project.sandbox_paths)
    with subprocess.Popen(argv, env=project.room.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
        assert inside.stdout and inside.stdout.readline() == b"in\n"
        assert project.git("status", "--short", cwd=project.place) == " M code\n"
        inside.communicate(b"\n")
    assert inside.returncode == 0
    assert project.git("status", "--short", cwd=project.place) == " M code\n"


def test_the_files_that_lead_to_the_git_directory_cannot_be_replaced(project: Project) -> None:
    said = project.sh("rm .git; mv .git x; echo gitdir: /evil > .git; rm /run/capsule/git/objects/info/alternates")
    assert said.count("busy") + said.count("Read-only") == 4
    assert project.git("status", "--short", cwd=project.place) == " M code\n"


def test_the_repositorys_objects_can_be_read_only(project: Project) -> None:
    assert "Read-only" in project.sh("touch /run/capsule/objects/x")


# Mount points


def test_a_result_can_be_written_below_the_hidden_checkout(project: Project) -> None:
    results = project.root / ".capsule" / "results"
    sandbox_paths = with_fields(project.sandbox_paths, writable=(str(results),))
    assert project.sh(f"echo PASS > {results}/x.json; git status --short", sandbox_paths=sandbox_paths) == " M code\n"
    assert (results / "x.json").read_text() == "PASS\n"
    assert sorted(path.name for path in project.place.iterdir()) == [".git", ".gitignore", "code"]


def test_mount_points_that_hold_something_stay(project: Project) -> None:
    theirs = project.place / ".capsule" / "results" / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    project.sh(
        "true", sandbox_paths=with_fields(project.sandbox_paths, writable=(str(project.root / ".capsule" / "results"),))
    )
    assert theirs.is_file()


def test_a_writable_folder_of_the_place_stays_though_it_is_empty(project: Project) -> None:
    own = project.place / "own"
    own.mkdir()
    project.sh("true", sandbox_paths=with_fields(project.sandbox_paths, writable=(str(own),)))
    assert own.is_dir()


def test_mount_points_are_not_removed_behind_a_link_that_was_put_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "place/packages").mkdir(parents=True)
    (tmp_path / "theirs/node_modules").mkdir(parents=True)
    view = MountedPlace.of(SandboxPaths(place=str(tmp_path / "place"), at=str(tmp_path / "checkout")))
    with view.mount_points_removed([str(tmp_path / "checkout/packages/node_modules")]):
        (tmp_path / "place/packages").rmdir()
        (tmp_path / "place/packages").symlink_to(tmp_path / "theirs")

    assert (tmp_path / "theirs/node_modules").is_dir()


def test_mount_points_that_kill_9_leaves_are_nothing_to_git_and_removed_by_the_next_command(project: Project) -> None:
    (project.root / ".venv").mkdir()
    sandbox_paths = with_fields(
        project.sandbox_paths,
        writable=(str(project.root / ".capsule" / "results"),),
        layers=((str(project.root / "unignored"), str(project.root / ".venv")),),
    )
    project.room.sh("test -d unignored -a -d .capsule/results || exit 9", sandbox_paths=sandbox_paths)
    argv = project.room.argv("sh", "-c", "kill -9 -1", sandbox_paths=sandbox_paths)
    subprocess.run(argv, env=project.room.env, check=False)
    assert (project.place / "unignored").is_dir(), "nobody has tidied up yet"
    assert project.git("status", "--short", "--ignored", cwd=project.place) == " M code\n"
    killed = project.room.entered.pop_all()  # it was to tidy up, and will not
    project.sh("true", sandbox_paths=sandbox_paths)
    assert sorted(path.name for path in project.place.iterdir()) == [".git", ".gitignore", "code"], "the next one has"
    killed.close()


@pytest.mark.parametrize("link", [".capsule", ".capsule/results", ".git"])
def test_a_link_in_the_place_does_not_lead_a_mount_elsewhere(project: Project, tmp_path: Path, link: str) -> None:
    planted = project.place / link
    planted.parent.mkdir(exist_ok=True)
    planted.unlink(missing_ok=True)
    planted.symlink_to(os.path.relpath(tmp_path, planted.parent))
    sandbox_paths = with_fields(project.sandbox_paths, writable=(str(project.root / ".capsule" / "results"),))
    with pytest.raises(CapsuleError, match="symbolic link"):
        project.sh("true", sandbox_paths=sandbox_paths)


def test_an_agent_is_told_the_paths_that_it_sees_and_its_result_arrives(
    project: Project, supervisor: SupervisorClient
) -> None:
    result = project.root / ".capsule" / "results" / "x.json"
    sandbox_paths = with_fields(project.sandbox_paths, writable=(str(result.parent),))
    script = (
        'pwd; echo "$CAPSULE_WORKTREE"; echo PASS > "$CAPSULE_RESULT"; git commit -qam Work; git log --format=%s -1\n'
        'echo "$0"'
    )
    agent = connect(
        a_connection(
            name="mine",
            supervisor=supervisor,
            root=project.root,
            command=("sh", "-c", script, "{prompt}"),
            base_env=project.room.env,
            sandbox=project.room.sandbox,
        )
    )
    briefing = Briefing(
        mission="x-1",
        item="x-1",
        phase="work",
        run=1,
        prompt=f"(full text: {project.place}/log)",
        cwd=str(project.place),
        log=str(project.place / ".capsule" / "output" / "log"),
        timeout=30,
        idle_timeout=30,
        env={"CAPSULE_WORKTREE": str(project.place), "CAPSULE_RESULT": str(result)},
        result_path=str(result),
        sandbox_paths=sandbox_paths,
    )
    transcript = agent.run(briefing)
    told = [str(project.root), str(project.root), "Work", f"(full text: {project.root}/log)"]
    assert transcript.text.decode().splitlines() == told, transcript
    assert result.read_text() == "PASS\n"


# At its own path


def test_a_place_without_a_checkouts_path_stays_where_it_is(project: Project) -> None:
    said = project.sh(
        f"pwd; touch new; cat {project.root}/secret", sandbox_paths=SandboxPaths(place=str(project.place))
    )
    assert said == f"{project.place}\nonly in the checkout"
    assert (project.place / "new").exists()


@pytest.mark.promise("sandbox.daemons")
@pytest.mark.parametrize(("at_checkout_path", "seen"), [(True, "root"), (False, "place")])
def test_commands_run_at_the_places_own_path_where_the_settings_say_so(
    project: Project, supervisor: SupervisorClient, at_checkout_path: bool, seen: str
) -> None:
    sandbox, env = project.room.sandbox, project.room.env
    shell = SupervisedShell(supervisor, base_env=env, sandbox=sandbox, at_checkout_path=at_checkout_path)
    log = project.room.home / "log"
    command = "pwd; git rev-parse --show-toplevel; git status --short"
    ran = shell.run(command, project.place, log, timeout=30, env={}, sandbox_paths=project.sandbox_paths)
    path = str(getattr(project, seen))
    assert (ran.exit_code, ran.tail.splitlines()) == (0, [path, path, " M code"])


@pytest.mark.promise("side-by-side.test-network")
@pytest.mark.parametrize(("tests", "code"), [(True, 0), (False, 1)])
def test_tests_with_a_network_of_their_own_find_every_port_free_and_other_commands_do_not(
    project: Project, supervisor: SupervisorClient, tests: bool, code: int
) -> None:
    shell = SupervisedShell(supervisor, base_env=project.room.env, sandbox=project.room.sandbox, own_network=True)
    reports = project.room.home / "reports"
    reports.mkdir()
    python = shutil.which("python3", path=project.room.env["PATH"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"import socket; socket.create_server(('127.0.0.1', {taken.getsockname()[1]}))"
        ran = shell.run(
            f'{python} -c "{bind}"',
            project.place,
            project.room.home / "log",
            timeout=30,
            env={},
            sandbox_paths=project.sandbox_paths,
            reports=reports if tests else None,
        )
    assert ran.exit_code == code, ran.tail


def test_at_its_own_path_only_what_lay_below_the_checkout_moves() -> None:
    sandbox_paths = SandboxPaths(
        place="/p/.capsule/worktrees/x",
        at="/p",
        shown=(("/p/.git", "/s"), ("/run/capsule/git", "/g")),
        layers=(("/p/v", "/p/v"),),
    )
    moved = at_its_own_path(sandbox_paths)
    assert (moved.place, moved.at) == (sandbox_paths.place, "")
    assert moved.shown == ((f"{sandbox_paths.place}/.git", "/s"), ("/run/capsule/git", "/g"))
    assert moved.layers == ((f"{sandbox_paths.place}/v", "/p/v"),)


def test_a_home_that_is_the_checkout_is_not_covered(project: Project) -> None:
    """Whoever keeps their home in git has their tools below the checkout's path."""
    a_program(project.root / ".local/bin/agent", "pwd; cat code")
    project.room.sandbox = replace(project.room.sandbox, homes=(str(project.root),))
    project.room.env |= {"HOME": str(project.root), "PATH": f"{project.root}/.local/bin:{os.environ['PATH']}"}
    assert project.sh("agent; git status --short") == f"{project.place}\nthe place's M code\n"


# Daemons outside


@pytest.mark.promise("sandbox.daemons")
def test_daemons_outside_are_not_found(project: Project, tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(runtime / "docker.sock"))
        daemon.listen()
        address = f"unix://{runtime}/docker.sock"
        project.room.sandbox = replace(project.room.sandbox, readable=(str(tmp_path),))
        project.room.env |= {"XDG_RUNTIME_DIR": str(runtime), "DOCKER_HOST": address}
        script = "echo ${DOCKER_HOST-unset}; ls -A $XDG_RUNTIME_DIR /run /var/run"
        said = project.sh(script)
        assert said.startswith("unset\n")
        assert "docker" not in said
        named = (str(runtime / "docker.sock"),)
        project.room.sandbox = replace(project.room.sandbox, daemons=named)
        assert project.sh(script).startswith(f"{address}\n/run:\n")
        assert "docker.sock" in project.sh(script)
        project.room.env["DOCKER_HOST"] = "tcp://127.0.0.1:2375"
        assert project.sh("echo ${DOCKER_HOST-unset}") == "unset\n"
        project.room.sandbox = replace(project.room.sandbox, daemons=("DOCKER_HOST",))
        assert project.sh("echo ${DOCKER_HOST-unset}") == "tcp://127.0.0.1:2375\n"


@pytest.mark.promise("sandbox.daemons")
def test_a_cache_that_is_opened_tells_of_no_daemon(project: Project) -> None:
    home = project.room.home
    for folder in (".gradle/daemon/8.5", ".gradle/caches", ".cache/bazel/_bazel_me/abc/server"):
        (home / folder).mkdir(parents=True)
        (home / folder / "registry").write_text("port 4711")
    project.room.sandbox = replace(project.room.sandbox, writable=("~/.gradle", "~/.cache"))
    said = project.sh("find ~/.gradle ~/.cache -name registry; echo x > ~/.gradle/daemon/new")
    assert said == f"{home}/.gradle/caches/registry\n"
    assert not (home / ".gradle/daemon/new").exists()
