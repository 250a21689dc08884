"""What can be seen and changed from inside, tried from inside, with the real bubblewrap where it is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError, PrerequisiteMissing
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import Level, homes, level
from tests.costs import given_time

from .conftest import Place
from .rooms import Room, a_program, as_an_ordinary_user, needs_root

# Which level


def test_a_test_that_is_not_marked_finds_no_bubblewrap_whatever_the_machine_has() -> None:
    assert level("auto", os.environ).why == "bubblewrap is not installed"


@pytest.mark.sandboxed
def test_a_test_that_is_marked_finds_it() -> None:
    assert level("auto", os.environ).program == shutil.which("bwrap")


def test_without_bubblewrap_there_is_no_sandbox_and_it_says_why() -> None:
    found = level("auto", {"PATH": "/nonexistent"})
    assert (found.name, found.why) == ("none", "bubblewrap is not installed")


def test_a_required_sandbox_that_is_missing_is_an_error_that_says_how_to_get_it() -> None:
    with pytest.raises(PrerequisiteMissing, match="require a sandbox, and bubblewrap is not installed") as caught:
        level("required", {"PATH": "/nonexistent"})
    assert "apt" in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_bubblewrap_that_does_not_work_here_is_told_from_one_that_does(tmp_path: Path) -> None:
    a_program(tmp_path / "bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    found = level("auto", {"PATH": str(tmp_path)})
    assert found.name == "none"
    assert found.why == "bubblewrap does not work here (setting up uid map: Permission denied)"
    assert "user namespaces" in found.hint


def test_a_bubblewrap_in_the_current_folder_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(tmp_path / "bwrap", "exit 0")
    monkeypatch.chdir(tmp_path)
    assert level("auto", {"PATH": f".:{os.curdir}"}).program == ""


def test_off_is_off() -> None:
    assert level("off", os.environ) == Level(why="the settings say `sandbox: off`")


# What can be changed


@pytest.mark.promise("sandbox.writable")
@pytest.mark.sandboxed
def test_only_its_own_place_can_be_changed(room: Room) -> None:
    said = room.sh(f"touch mine; touch {room.root}/theirs /etc/theirs /usr/theirs; echo x >> {room.root}/.git/config")
    assert said.count("Read-only file system") == 4
    assert (room.place / "mine").exists()
    assert (room.root / ".git/config").read_text() == "as it was"


@pytest.mark.promise("sandbox.writable")
@pytest.mark.sandboxed
def test_what_it_writes_elsewhere_is_gone_with_it(room: Room) -> None:
    assert room.sh("touch ~/x /tmp/capsule-x && echo written") == "written\n"
    assert not (room.home / "x").exists()
    assert not Path("/tmp/capsule-x").exists()


@pytest.mark.promise("sandbox.protected")
@pytest.mark.sandboxed
def test_what_is_protected_cannot_be_moved_out_of_the_way(room: Room) -> None:
    """A mount point stays where it is; without mounts on the way to it, its parents would not."""
    sandbox_paths = SandboxPaths(writable=(str(room.root),), protected=(str(room.root / ".git" / "config"),))
    room.sh(
        "cd ../../..; echo evil > .git/config; mv .git old && cp -r old .git && echo evil > .git/config",
        sandbox_paths=sandbox_paths,
    )
    assert (room.root / ".git/config").read_text() == "as it was"
    assert not (room.root / "old").exists()
    room.sh("cd ../../..; rm -rf .git; mkdir .git; echo evil > .git/config", sandbox_paths=sandbox_paths)
    assert (room.root / ".git/config").read_text() == "as it was"


@pytest.mark.sandboxed
def test_a_narrower_rule_wins_over_a_wider_one(room: Room) -> None:
    results = room.root / ".capsule" / "results"
    results.mkdir()
    sandbox_paths = SandboxPaths(writable=(str(room.root), str(results)), protected=(str(room.root / ".capsule"),))
    said = room.sh(
        f"cd {room.root}; touch code .capsule/results/x; touch .capsule/config.yaml", sandbox_paths=sandbox_paths
    )
    assert "Read-only" in said
    assert (room.root / "code").exists()
    assert (results / "x").exists()


@pytest.mark.sandboxed
def test_something_else_stands_in_its_place(room: Room, tmp_path: Path) -> None:
    instead = room.root / "instead"
    instead.mkdir()
    sandbox_paths = SandboxPaths(writable=(str(room.place),), stand_ins=((str(room.root / ".git"), str(instead)),))
    room.sh(f"echo evil > {room.root}/.git/config", sandbox_paths=sandbox_paths)
    assert (room.root / ".git/config").read_text() == "as it was"
    assert (instead / "config").read_text() == "evil\n"


@pytest.mark.promise("sandbox.protected")
@pytest.mark.sandboxed
def test_a_link_does_not_lead_a_permission_elsewhere(room: Room, tmp_path: Path) -> None:
    (room.root / "results").symlink_to(tmp_path)
    with pytest.raises(CapsuleError, match="symbolic link"):
        room.argv("true", sandbox_paths=SandboxPaths(writable=(str(room.root / "results"),)))


@pytest.mark.sandboxed
def test_what_the_settings_open_is_open(room: Room, tmp_path: Path) -> None:
    for name in ("cache", "papers"):
        (room.home / name).mkdir()
    room.sandbox = replace(room.sandbox, readable=("~/papers",), writable=("~/cache", "~/nowhere"))
    assert "Read-only" in room.sh("touch ~/cache/x; touch ~/papers/x")
    assert (room.home / "cache/x").exists()


@pytest.mark.promise("sandbox.root")
@pytest.mark.sandboxed
@needs_root
def test_root_cannot_mount_its_way_out(room: Room) -> None:
    theirs = room.root / "theirs"
    said = room.sh(f"mount -o remount,rw / ; mount -o remount,rw,bind {room.root}; mknod x b 8 0; touch {theirs}")
    assert not theirs.exists()
    assert not (room.place / "x").exists()
    assert "permission denied" in said.lower()


@pytest.mark.promise("sandbox.root")
@pytest.mark.sandboxed
@needs_root
def test_an_ordinary_user_gets_the_same(open_folder: Path) -> None:
    """Through a user namespace, and without any capability."""
    home = open_folder / "home"
    home.mkdir()
    script = "touch /tmp/mine; touch /etc/theirs; grep CapEff /proc/self/status; touch ~/x"
    done = as_an_ordinary_user(open_folder, script, home=home, sandbox_paths="SandboxPaths()")
    assert "CapEff:\t0000000000000000" in done.stdout, done.stderr
    assert done.stderr.count("Read-only file system") == 2, done.stderr


# What can be seen


@pytest.mark.promise("sandbox.home")
@pytest.mark.sandboxed
def test_the_home_is_hidden_but_for_tools(room: Room) -> None:
    a_program(room.home / ".cargo/bin/tool", "echo a tool")
    room.env["PATH"] += f":{room.home}/.cargo/bin"
    said = room.sh("tool; cat ~/.ssh/id ~/.cargo/credentials.toml; ls -A ~")
    assert "a tool" in said
    assert "private key" not in said
    assert "token" not in said
    assert said.splitlines()[:3] == ["a tool", ".cargo", "src"]


@pytest.mark.promise("sandbox.home")
@pytest.mark.sandboxed
def test_a_tool_finds_what_its_link_leads_to(room: Room) -> None:
    """As package managers install it: a link to a folder of its own, with libraries beside it."""
    package = room.home / "opt/lib/node_modules/agent"
    a_program(package / "cli.sh", f"cat {room.home}/opt/lib/node_modules/other/words")
    (package.parent / "other").mkdir()
    (package.parent / "other/words").write_text("found")
    kept = a_program(room.home / "share/tools/neat/bin/neat", f"cat {room.home}/share/tools/neat/lib/words")
    (kept.parents[1] / "lib").mkdir()
    (kept.parents[1] / "lib/words").write_text("formatted")
    links = room.home / "links"
    links.mkdir()
    (links / "agent").symlink_to(package / "cli.sh")
    (links / "neat").symlink_to(kept)
    (links / "key").symlink_to(room.home / ".ssh/nothing")
    room.env["PATH"] += f":{links}"
    assert room.sh("agent; neat") == "foundformatted"


@pytest.mark.sandboxed
def test_what_a_cli_keeps_in_the_home_is_its_own(room: Room) -> None:
    (room.home / ".agent").mkdir()
    room.sh("echo session > ~/.agent/state; echo x > ~/.other", home=(".agent", ".missing"))
    assert (room.home / ".agent/state").read_text() == "session\n"
    assert not (room.home / ".other").exists()


@pytest.mark.sandboxed
def test_a_file_that_it_is_told_of_can_be_read_and_not_changed(room: Room, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("words")
    assert "words" in room.sh(f"cat {script}; echo evil > {script}", readable=(str(script),))
    assert script.read_text() == "words"


@pytest.mark.sandboxed
def test_a_temporary_folder_of_its_own_is_kept_and_everybodys_is_hidden(room: Room, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    room.env["TMPDIR"] = str(own)
    room.sh("touch $TMPDIR/x")
    assert (own / "x").exists()
    room.env["TMPDIR"] = "/tmp"
    assert str(own) not in room.sh("ls -d /tmp/*/*/*")


@pytest.mark.sandboxed
@pytest.mark.parametrize("home", ["", "/", "the project", "/nonexistent"])
def test_an_odd_home_breaks_nothing(room: Room, home: str) -> None:
    home = str(room.root) if home == "the project" else home
    room.sandbox = replace(room.sandbox, homes=homes({"HOME": home}))
    room.env |= {"HOME": home}
    said = room.sh(f"touch mine && echo done; touch {room.root}/.git/config2")
    assert said.startswith("done")
    assert "Read-only" in said


@pytest.mark.sandboxed
def test_a_home_that_is_reached_by_a_link_is_hidden_too(room: Room, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(room.home)
    room.sandbox = replace(room.sandbox, homes=(str(link),))
    room.env["HOME"] = str(link)
    assert "private key" not in room.sh(f"cat ~/.ssh/id {room.home}/.ssh/id; touch ~/x")
    assert not (room.home / "x").exists()


# Processes and the network


@pytest.mark.sandboxed
def test_our_own_processes_are_not_to_be_seen(room: Room) -> None:
    assert str(os.getpid()) not in room.sh("cd /proc; ls -d [0-9]*").split()


@pytest.mark.promise("sandbox.no-survivors")
@pytest.mark.sandboxed
def test_nothing_survives_and_nothing_counts_as_left_running(
    room: Room, supervisor: SupervisorClient, place: Place
) -> None:
    script = "setsid sh -c 'sleep 297' & sleep 297 & echo said"
    ended = supervisor.run(place.command(*room.argv("sh", "-c", script), env=room.env))
    assert (ended.why, ended.exit_code, ended.leftovers) == ("exited", 0, 0)
    assert place.out == "said\n"
    assert subprocess.run(["pgrep", "-f", "sleep 297"], capture_output=True, check=False).stdout == b""


@pytest.mark.promise("sandbox.no-survivors")
@pytest.mark.sandboxed
def test_it_is_given_time_for_its_last_words(room: Room, place: Place) -> None:
    script = "trap 'echo last words; exit 7' TERM; echo begun; while :; do sleep 0.05; done"
    with SupervisorClient(grace=3) as supervisor:
        argv = room.argv("sh", "-c", script)
        ended = given_time(
            lambda seconds: supervisor.run(place.command(*argv, env=room.env, timeout=seconds)),
            lambda _: place.out.startswith("begun\n"),
        )
    assert (ended.why, ended.exit_code) == ("timeout", 7)
    assert place.out == "begun\nlast words\n"


@pytest.mark.sandboxed
@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137)])
def test_exit_codes_are_the_commands_own(
    room: Room, supervisor: SupervisorClient, place: Place, script: str, code: int
) -> None:
    assert supervisor.run(place.command(*room.argv("sh", "-c", script), env=room.env)).exit_code == code
    assert (place.path / "err").read_text() == ""


@pytest.mark.sandboxed
def test_a_program_that_is_missing_is_left_to_whoever_starts_it(
    room: Room, supervisor: SupervisorClient, place: Place
) -> None:
    ended = supervisor.run(place.command(*room.argv("no-such-agent", "-p"), env=room.env))
    assert ended.why == "not-started"
    assert "no-such-agent" in ended.detail


@pytest.mark.sandboxed
@pytest.mark.parametrize(("network", "reached"), [(True, "reached"), (False, "not reached")])
def test_the_network_is_on_unless_told_otherwise(room: Room, network: bool, reached: str) -> None:
    room.sandbox = replace(room.sandbox, network=network)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        python = shutil.which("python3", path=room.env["PATH"])
        assert room.sh(f'{python} -c "{code}" 2>/dev/null && echo reached || echo not reached').strip() == reached
