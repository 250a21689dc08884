"""Folders that can be written to inside and stay as they are: with real overlays where there are any, and without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from capsule.core.briefing import SandboxPaths
from capsule.system import layers
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import PROGRAM, sandbox_error
from tests.costs import given_time

from .conftest import Place
from .rooms import NOBODY, Room, a_program, as_an_ordinary_user, needs_bubblewrap, needs_root

pytestmark = needs_bubblewrap
BUBBLEWRAP = shutil.which(PROGRAM) or ""
needs_layers = pytest.mark.skipif(bool(layers.fault(BUBBLEWRAP)), reason="the kernel makes no overlays for us")


def digest(top: Path) -> dict[str, str]:
    files = (path for path in sorted(top.rglob("*")) if path.is_file() or path.is_symlink())
    return {str(path): str(path.readlink()) if path.is_symlink() else path.read_text() for path in files}


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where upper halves are kept: a folder of this test's own, on a disk."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def dependencies(room: Room) -> Iterator[SandboxPaths]:
    """A place at the checkout's path, with a `.venv` and a nested `node_modules` of the checkout in layers."""
    for name in (".venv/lib/package", "apps/one/node_modules/left-pad"):
        (room.root / name).mkdir(parents=True)
        (room.root / name / "code").write_text("as it was installed")
    (room.root / ".venv" / "lib64").symlink_to("lib")
    (room.place / "apps" / "one").mkdir(parents=True)
    names = (".venv", "apps/one/node_modules")
    before = digest(room.root / ".venv") | digest(room.root / "apps")
    paths = tuple((str(room.root / name), str(room.root / name)) for name in names)
    yield SandboxPaths(place=str(room.place), at=str(room.root), layers=paths)
    assert digest(room.root / ".venv") | digest(room.root / "apps") == before


WRITE = (
    "cat .venv/lib/package/code apps/one/node_modules/left-pad/code && echo && rm -rf .venv/lib/package"
    " && mkdir .venv/lib/package && ls .venv/lib/package"
    " && mv apps/one/node_modules/left-pad apps/one/node_modules/moved"
    " && echo evil > .venv/evil.pth && ls .venv && ls apps/one/node_modules"
)
INSTALLED = "as it was installed" * 2


@pytest.mark.promise("sandbox.layers")
@needs_layers
def test_what_is_written_into_a_layer_is_thrown_away(room: Room, dependencies: SandboxPaths, scratch: Path) -> None:
    """Removed, replaced and moved, as `npm install` does it; the next command finds what was installed."""
    for _ in range(2):
        assert room.sh(WRITE, sandbox_paths=dependencies).split() == [
            *INSTALLED.split(),
            "evil.pth",
            "lib",
            "lib64",
            "moved",
        ]
        assert [path.name for path in scratch.iterdir()] == [f"capsule-layers-{os.geteuid()}"]
        assert not any(any(home.iterdir()) for home in scratch.iterdir())
    assert sorted(str(path.relative_to(room.place)) for path in room.place.rglob("*")) == ["apps", "apps/one"]


@pytest.mark.promise("sandbox.layers")
@needs_layers
@needs_root
def test_an_ordinary_user_gets_layers_too_and_stays_who_they_are(open_folder: Path, scratch: Path) -> None:
    home, place = open_folder / "home", open_folder / "home" / "project" / "place"
    (place.parent / ".venv" / "lib").mkdir(parents=True)
    place.mkdir()
    (place.parent / ".venv/lib/code").write_text("as it was installed")
    for path in (scratch, home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    root = str(place.parent)
    sandbox_paths = (
        f"SandboxPaths(place={str(place)!r}, at={root!r}, layers=(({root + '/.venv'!r}, {root + '/.venv'!r}),))"
    )
    script = "id -u; cat .venv/lib/code; rm -rf .venv/lib; touch .venv/x; ls .venv; grep CapEff /proc/self/status"
    done = as_an_ordinary_user(
        open_folder, script, home=home, sandbox_paths=sandbox_paths, cwd=str(place), TMPDIR=str(scratch)
    )
    assert (done.stdout, done.stderr) == (f"{NOBODY}\nas it was installedx\nCapEff:\t{'0' * 16}\n", "")
    assert (place.parent / ".venv/lib/code").read_text() == "as it was installed"
    assert not (place.parent / ".venv/x").exists()
    assert not any(any(folder.iterdir()) for folder in scratch.iterdir())


@needs_layers
@pytest.mark.parametrize("name", ["a,b", "a:b", "a b", "a\\b", "a\nb", "ä'\"$(x)"])
def test_odd_names_are_names(room: Room, dependencies: SandboxPaths, name: str) -> None:
    odd = room.home / name
    shutil.copytree(room.root / ".venv", odd / ".venv", symlinks=True)
    sandbox_paths = replace(dependencies, layers=((str(room.root / ".venv"), str(odd / ".venv")),))
    assert (
        room.sh("cat .venv/lib64/package/code; rm -r .venv/lib", sandbox_paths=sandbox_paths) == "as it was installed"
    )
    assert (odd / ".venv/lib/package/code").exists()


@needs_layers
def test_two_commands_at_the_same_time_have_layers_of_their_own(room: Room, dependencies: SandboxPaths) -> None:
    one = room.argv("sh", "-c", "echo > .venv/one; sleep 0.3; ls .venv", sandbox_paths=dependencies)
    two = room.argv("sh", "-c", "echo > .venv/two; sleep 0.3; ls .venv", sandbox_paths=dependencies)
    running = [subprocess.Popen(argv, env=room.env, stdout=subprocess.PIPE, text=True) for argv in (one, two)]
    said = [process.communicate(timeout=30)[0].split() for process in running]
    assert said == [["lib", "lib64", "one"], ["lib", "lib64", "two"]]


@needs_layers
def test_what_the_work_itself_put_there_goes_before_a_layer(room: Room, dependencies: SandboxPaths) -> None:
    (room.place / ".venv").symlink_to("elsewhere")
    said = room.sh("readlink .venv; cat apps/one/node_modules/left-pad/code", sandbox_paths=dependencies)
    assert said == "elsewhere\nas it was installed"


@needs_layers
def test_upper_halves_are_hidden_inside(room: Room, dependencies: SandboxPaths, scratch: Path) -> None:
    room.sandbox = replace(room.sandbox, readable=(str(scratch),))
    assert room.sh(f"ls -A {scratch}/*", sandbox_paths=dependencies) == ""


@pytest.mark.promise("sandbox.layers")
@needs_layers
def test_an_environment_that_names_the_checkout_imports_the_places_code(room: Room, dependencies: SandboxPaths) -> None:
    """An editable install by its path, a workspace of npm's by a relative link: both lead to the place."""
    for top, text in ((room.root, "the checkout's"), (room.place, "the place's")):
        (top / "src").mkdir()
        (top / "src" / "package.py").write_text(f'print("{text}")')
    libraries = room.root / ".venv/lib/python/site-packages"
    libraries.mkdir(parents=True)
    (libraries / "editable.pth").write_text(f"{room.root}/src\n")
    (room.root / "apps/one/node_modules/package").symlink_to("../../../src")
    python = shutil.which("python3", path=room.env["PATH"])
    script = f"import site; site.addsitedir('{libraries}'); import package"
    said = room.sh(
        f'{python} -B -c "{script}"; cat apps/one/node_modules/package/package.py', sandbox_paths=dependencies
    )
    assert said == "the place's\nprint(\"the place's\")"
    shutil.rmtree(libraries.parent)
    (room.root / "apps/one/node_modules/package").unlink()


# Processes


@needs_layers
def test_nothing_survives_a_layered_command(
    room: Room, dependencies: SandboxPaths, supervisor: SupervisorClient, place: Place
) -> None:
    argv = room.argv("sh", "-c", "setsid sleep 296 & sleep 296 & echo said", sandbox_paths=dependencies)
    ended = supervisor.run(place.command(*argv, env=room.env))
    assert (ended.why, ended.exit_code, ended.leftovers, place.out) == ("exited", 0, 0, "said\n")
    assert subprocess.run(["pgrep", "-f", "sleep 296"], capture_output=True, check=False).stdout == b""


@needs_layers
def test_a_layered_command_is_given_time_for_its_last_words(
    room: Room, dependencies: SandboxPaths, place: Place
) -> None:
    script = "trap 'echo last words; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
    with SupervisorClient(grace=3) as supervisor:
        argv = room.argv("sh", "-c", script, sandbox_paths=dependencies)
        ended = given_time(
            lambda seconds: supervisor.run(place.command(*argv, env=room.env, timeout=seconds)),
            lambda _: place.out.startswith("begun\n"),
        )
    assert (ended.why, ended.exit_code, place.out) == ("timeout", 7, "begun\nlast words\n")


@needs_layers
@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137)])
def test_exit_codes_of_a_layered_command_are_its_own(
    room: Room, dependencies: SandboxPaths, supervisor: SupervisorClient, place: Place, script: str, code: int
) -> None:
    argv = room.argv("sh", "-c", script, sandbox_paths=dependencies)
    assert supervisor.run(place.command(*argv, env=room.env)).exit_code == code
    assert (place.path / "err").read_text() == ""


@needs_layers
def test_a_layered_command_dies_with_whoever_started_it(room: Room, dependencies: SandboxPaths) -> None:
    argv = room.argv("sh", "-c", "echo begun; exec sleep 295", sandbox_paths=dependencies)
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", code, *argv], env=room.env, stdout=subprocess.PIPE) as starter:
        assert starter.stdout and starter.stdout.readline() == b"begun\n"
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        assert starter.stdout.read() == b""  # nobody holds its other end any more
    assert subprocess.run(["pgrep", "-f", "sleep 295"], capture_output=True, check=False).stdout == b""


@pytest.mark.promise("sandbox.layers")
@needs_layers
def test_what_a_killed_run_left_is_removed_by_the_next(room: Room, dependencies: SandboxPaths, scratch: Path) -> None:
    code = (
        "import sys\nfrom capsule.system.layers import mounted_layers\n"
        "with mounted_layers(sys.argv[2:], sys.argv[1], copy=False) as found:\n"
        "    print(found.folder, flush=True)\n    sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, BUBBLEWRAP, str(room.root / ".venv")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        folder = Path(owner.stdout.readline().strip())
        room.sh("true", sandbox_paths=dependencies)
        assert folder.is_dir(), "its owner lives"
        (folder / "0/work/work").mkdir(mode=0)
        owner.kill()
    assert folder.is_dir()
    room.sh("true", sandbox_paths=dependencies)
    assert not folder.exists()


# Without overlays


@pytest.fixture
def no_overlays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(tmp_path / "forbidden" / "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/forbidden:{os.environ['PATH']}")


@pytest.mark.promise("sandbox.layers")
@pytest.mark.usefixtures("no_overlays")
def test_without_overlays_tests_read_and_agents_get_a_copy(
    room: Room, dependencies: SandboxPaths, scratch: Path
) -> None:
    said = room.sh(
        "cat .venv/lib64/package/code; touch .venv/x; rm -r apps/one/node_modules/*", sandbox_paths=dependencies
    )
    assert said.startswith("as it was installed")
    assert said.count("Read-only") == 2
    said = room.sh(WRITE, sandbox_paths=dependencies, copy_layers=True)
    assert said.split() == [*INSTALLED.split(), "evil.pth", "lib", "lib64", "moved"]
    assert not any(any(home.iterdir()) for home in scratch.iterdir())


@pytest.mark.usefixtures("no_overlays")
def test_the_reason_why_there_are_no_layers_is_told() -> None:
    assert layers.fault(BUBBLEWRAP) == "unshare: unshare failed: Operation not permitted"


def test_a_bubblewrap_that_cannot_show_layers_gets_none(tmp_path: Path) -> None:
    """It may be allowed what it does by itself, and not what it would have to do in another's namespace."""
    bubblewrap = a_program(tmp_path / "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    assert layers.fault(str(bubblewrap)) == "bwrap: No permissions to create new namespace"


@needs_layers
@pytest.mark.parametrize(
    ("fails", "words"),
    [("unshare", "unshare: refused"), ("mount", "bwrap: a layer could not be mounted: mount: refused")],
)
def test_a_layer_that_fails_is_the_sandboxes_fault(
    room: Room, dependencies: SandboxPaths, tmp_path: Path, fails: str, words: str
) -> None:
    a_program(tmp_path / "bad" / fails, f"echo '{fails}: refused' >&2; exit 1")
    argv = room.argv("true", sandbox_paths=dependencies)
    env = {**room.env, "PATH": f"{tmp_path}/bad:{room.env['PATH']}"}
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    assert sandbox_error(done.stderr, done.returncode) == words
