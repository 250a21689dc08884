"""Profiles for `sandbox-exec`: their text, and what it says of each path. No Mac has read them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError, PrerequisiteMissing
from capsule.system.layers import Mount
from capsule.system.sandbox import Level, level, sandbox_error
from capsule.system.sandbox_exec import SandboxExec
from capsule.system.seatbelt import profile, quoted

from .fake_sandbox_exec import FakeSandboxExec
from .profile_reader import Rules
from .rooms import Room, a_program

PROFILES = Path(__file__).parent / "profiles"


# Which level


@pytest.fixture
def fake(tmp_path: Path) -> FakeSandboxExec:
    return FakeSandboxExec(tmp_path / "fake")


@pytest.mark.promise("sandbox.macos")
@pytest.mark.parametrize(
    ("wanted", "platform", "there", "name"),
    [
        ("auto", "darwin", True, "sandbox-exec"),
        ("auto", "darwin", False, "none"),
        ("auto", "linux", True, "none"),
        ("required", "darwin", True, "sandbox-exec"),
        ("required", "darwin", False, "refused"),
        ("required", "linux", True, "refused"),
        ("sandbox-exec", "linux", True, "sandbox-exec"),
        ("sandbox-exec", "darwin", False, "refused"),
        ("bubblewrap", "darwin", True, "refused"),
        ("off", "darwin", True, "none"),
    ],
)
def test_the_machine_and_the_settings_choose(
    fake: FakeSandboxExec, wanted: str, platform: str, there: bool, name: str
) -> None:
    env = {"PATH": fake.folder if there else "/nonexistent"}
    try:
        found = level(wanted, env, platform)
    except PrerequisiteMissing as missing:
        assert (name, missing.exit_code) == ("refused", 2)
        return
    assert found.name == name
    assert (found.mounts, found.proven) == (False, False)


def test_one_that_does_not_take_our_rules_is_not_used(tmp_path: Path) -> None:
    a_program(tmp_path / "sandbox-exec", "echo 'sandbox-exec: unbound variable: mach-host*' >&2; exit 65")
    found = level("auto", {"PATH": str(tmp_path)}, "darwin")
    assert (found.program, found.why) == ("", "sandbox-exec does not work here (unbound variable: mach-host*)")


@pytest.mark.parametrize(
    ("printed", "code", "fault"),
    [
        (b"sandbox-exec: invalid data type\n", 65, "sandbox-exec: invalid data type"),
        (b"sandbox-exec: said by a command\n", 0, ""),
        (b"error\nsandbox-exec: later\n", 65, ""),
    ],
)
def test_its_own_fault_is_told_from_the_commands(printed: bytes, code: int, fault: str) -> None:
    assert sandbox_error(printed, code) == fault


# The text

SITUATIONS = {
    "an-agent-in-its-place": (
        [
            ("/private/tmp", Mount("--tmpfs")),
            ("/Users/ada", Mount("--tmpfs")),
            ("/Users/ada/.gitconfig", Mount("--ro-bind", "/Users/ada/.gitconfig")),
            ("/Users/ada/project/.capsule/worktrees/x-1", Mount("--bind", "/Users/ada/project/.capsule/worktrees/x-1")),
        ],
        True,
        (),
    ),
    "tests-without-network": ([("/Users/ada", Mount("--tmpfs")), ("/Users/ada/gate", Mount("--bind", "x"))], False, ()),
    "a-daemon-that-the-settings-name": ([], True, ("/Users/ada/.docker/run/docker.sock",)),
}


@pytest.mark.promise("sandbox.macos")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_text_is_as_it_was_read_by_a_person(situation: str) -> None:
    rows, network, sockets = SITUATIONS[situation]
    text = profile(rows, network=network, sockets=sockets)
    assert text == (PROFILES / f"{situation}.sb").read_text()


HOSTILE = [
    '/a"b',
    "/a\\",
    '/a\\"))(allow default)("',
    "/two\nlines",
    "/a\ttab\x7f\x01end",
    "/(x) ; no comment #t",
    "/größe/日本/\U0001f600",
    "/not-utf8-\udcff",
]


@pytest.mark.promise("sandbox.macos")
@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_stays_one_path_whatever_it_holds(path: str) -> None:
    before = Rules(profile([], network=False)).lines
    text = profile([(path, Mount("--bind", path))], network=False)
    rules = Rules(text)
    assert len(rules.lines) == len(before) + 2
    assert rules.writes(f"{path}/x") and not rules.writes("/x") and not rules.allow("file-write-unlink", path)
    assert os.fsencode(text).decode(errors="surrogateescape") == text
    assert quoted(path).isprintable() or not path.isascii()


def test_what_is_never_allowed() -> None:
    rules = Rules(profile([], network=True))
    for operation in ("appleevent-send", "lsopen", "job-creation", "mach-register", "file-write-create", "default"):
        assert not rules.allow(operation, "/x"), operation
    assert not rules.allow("network-outbound", "/private/var/run/docker.sock")
    assert rules.allow("network-outbound", "/private/var/run/mDNSResponder")
    assert not Rules(profile([], network=False)).allow("network-outbound", "/private/var/run/mDNSResponder")


# What it says of each path


@dataclass
class Entered:
    rules: Rules
    argv: tuple[str, ...]

    @property
    def home(self) -> Path:
        return Path(self.argv[7])


@pytest.fixture
def boxed(room: Room, fake: FakeSandboxExec) -> Iterator[Room]:
    """The room that bubblewrap is tried in."""
    (room.place / ".git").write_text("gitdir: elsewhere")
    (room.root / ".git/objects").mkdir()
    found = Level(str(fake.program), "sandbox-exec")
    room.sandbox = SandboxExec(found, shown=(str(room.root),), homes=(str(room.home),))  # type: ignore[assignment]
    room.env["PATH"] = "/usr/bin:/bin"
    yield room
    room.leave()


def entered(room: Room, *words: str, **more: object) -> Entered:
    argv = room.argv(*(words or ("true",)), **more)
    return Entered(Rules(os.fsdecode(Path(argv[2]).read_bytes())), argv)


def the_place(room: Room) -> SandboxPaths:
    return SandboxPaths(
        place=str(room.place),
        protected=(str(room.place / ".git"),),
        shown=((str(room.root / ".git/objects"), str(room.root / ".git/objects")),),
        hidden=(str(room.root), str(room.root / ".git")),
    )


@pytest.mark.promise("sandbox.macos")
def test_only_the_place_is_seen_of_the_project_and_only_it_can_be_changed(boxed: Room) -> None:
    rules = entered(boxed, sandbox_paths=the_place(boxed)).rules
    assert rules.writes(boxed.place / "code") and rules.reads(boxed.place / "code")
    assert rules.reads(boxed.place / ".git") and not rules.writes(boxed.place / ".git")
    assert rules.reads(boxed.root / ".git/objects/aa/bb") and not rules.writes(boxed.root / ".git/objects/aa/bb")
    for hidden in (boxed.root / "code", boxed.root / ".git/config", boxed.home / ".ssh/id", "/tmp/x"):
        assert not rules.reads(hidden) and not rules.writes(hidden), hidden
        assert rules.allow("file-read-metadata", str(hidden))
    assert rules.reads("/etc/hosts") and not rules.writes("/etc/hosts")
    assert rules.writes("/dev/null") and not rules.writes("/dev/disk0")


@pytest.mark.promise("sandbox.macos")
def test_neither_the_place_nor_a_way_to_what_is_protected_can_be_moved(boxed: Room) -> None:
    paths = SandboxPaths(writable=(str(boxed.root),), protected=(str(boxed.root / ".git/config"),))
    rules = entered(boxed, sandbox_paths=paths).rules
    for pinned in (boxed.root, boxed.root / ".git", boxed.root / ".git/config"):
        assert not rules.allow("file-write-unlink", str(pinned)), pinned
    assert rules.allow("file-write-unlink", str(boxed.root / ".git/other"))
    assert rules.writes(boxed.root / ".git/HEAD") and not rules.writes(boxed.root / ".git/config")


@pytest.mark.promise("sandbox.macos")
def test_the_home_is_an_empty_folder_with_links_to_what_is_opened(boxed: Room) -> None:
    for name in (".gitconfig", ".agent/login", ".agent/settings"):
        (boxed.home / name).parent.mkdir(exist_ok=True)
        (boxed.home / name).touch()
    boxed.sandbox = replace(boxed.sandbox, readable=("~/papers",))
    (boxed.home / "papers").mkdir()
    own = entered(boxed, home=(".agent/login",), readable=(str(boxed.home / ".agent/settings"),))
    found = {str(link.relative_to(own.home)): link.resolve() for link in own.home.rglob("*") if link.is_symlink()}
    wanted = (".gitconfig", ".agent/login", ".agent/settings", "papers", ".cargo/bin", "src/project")
    assert found == {name: boxed.home / name for name in wanted}
    assert own.rules.writes(boxed.home / ".agent/login") and not own.rules.writes(boxed.home / ".agent/settings")
    assert own.rules.reads(boxed.home / "papers/x") and not own.rules.reads(boxed.home / ".agent/other")
    assert own.rules.writes(own.home / "x") and not own.rules.reads(own.argv[2])
    boxed.leave()
    assert not own.home.exists()


def test_a_link_on_the_way_is_resolved(boxed: Room, tmp_path: Path) -> None:
    """As `/tmp` and `/var` of macOS lead to `/private`."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/cache").mkdir()
    (tmp_path / "tmp").symlink_to("private")
    boxed.sandbox = replace(boxed.sandbox, writable=(str(tmp_path / "tmp/cache"),))
    rules = entered(boxed).rules
    assert rules.writes(tmp_path / "private/cache/x") and not rules.writes(tmp_path / "tmp/cache/x")


def test_a_link_does_not_lead_a_permission_elsewhere(boxed: Room, tmp_path: Path) -> None:
    (boxed.root / "results").symlink_to(tmp_path)
    with pytest.raises(CapsuleError, match="symbolic link"):
        entered(boxed, sandbox_paths=SandboxPaths(writable=(str(boxed.root / "results"),)))


def test_dependencies_of_the_checkout_can_be_read(boxed: Room) -> None:
    (boxed.root / ".venv").mkdir()
    layers = ((str(boxed.place / ".venv"), str(boxed.root / ".venv")),)
    rules = entered(boxed, sandbox_paths=replace(the_place(boxed), layers=layers)).rules
    assert rules.reads(boxed.root / ".venv/lib") and not rules.writes(boxed.root / ".venv/lib")
    assert rules.writes(boxed.place / ".venv/lib")


def test_daemons_are_named_or_gone(boxed: Room) -> None:
    (boxed.home / "docker.sock").touch()
    boxed.env |= {"DOCKER_HOST": "unix:///elsewhere", "BUILDKIT_HOST": "x"}
    boxed.sandbox = replace(boxed.sandbox, daemons=(str(boxed.home / "docker.sock"), "DOCKER_HOST"))
    own = entered(boxed, "/bin/sh", "-c", "echo $DOCKER_HOST,$BUILDKIT_HOST")
    assert own.rules.allow("network-outbound", str(boxed.home / "docker.sock"))
    assert not own.rules.allow("network-outbound", str(boxed.home / "other.sock"))
    assert own.rules.allow("network-bind", str(boxed.place / "my.sock"))
    done = subprocess.run(own.argv, env=boxed.env, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "unix:///elsewhere,\n"


@pytest.mark.parametrize("home", ["", "/", "/nonexistent", "the user's"])
def test_a_command_has_a_home_and_a_temporary_folder_of_its_own(boxed: Room, home: str) -> None:
    boxed.env |= {"HOME": str(boxed.home) if home == "the user's" else home, "TMPDIR": "/tmp"}
    own = entered(boxed, "sh", "-c", 'touch "$HOME/x" "$TMPDIR/x" && echo "$@"', "sh", 'a "b"', "c=d")
    done = subprocess.run(own.argv, env=boxed.env, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == 'a "b" c=d\n', done
    assert own.home.name == "home" and Path(own.argv[8]).name == "tmpdir"
    assert not (boxed.home / "x").exists()


def test_folders_that_were_made_for_a_command_stay_its_own(boxed: Room, tmp_path: Path) -> None:
    for name in ("HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        boxed.env[name] = str(tmp_path / name)
    own = entered(boxed)
    assert own.argv[7:9] == (str(tmp_path / "HOME"), str(tmp_path / "TMPDIR"))
    assert own.rules.writes(tmp_path / "HOME/x") and own.rules.writes(tmp_path / "TMPDIR/x")


def test_a_program_that_is_missing_is_left_to_whoever_starts_it(boxed: Room) -> None:
    assert boxed.argv("no-such-agent", "-p") == ("no-such-agent", "-p")


@pytest.mark.promise("sandbox.macos")
@pytest.mark.sandboxed
def test_bubblewrap_and_the_profile_agree(room: Room, fake: FakeSandboxExec) -> None:
    """Ask the real bubblewrap and the profile about the same files."""
    for name in ("papers/p", "cache/c", ".cargo/bin/tool", ".gitconfig", "src/project/code", "src/project/.env"):
        (room.home / name).parent.mkdir(exist_ok=True, parents=True)
        (room.home / name).write_text("x")
    (room.place / "work").write_text("x")
    (room.place / "kept").write_text("x")
    room.sandbox = replace(room.sandbox, readable=("~/papers",), writable=("~/cache",))
    paths = SandboxPaths(writable=(str(room.place),), protected=(str(room.place / "kept"),))
    files = [file for file in sorted(room.home.rglob("*")) if file.is_file()] + [
        Path("/etc/passwd"),
        Path(sys.executable),
    ]
    script = 'for f; do a=-; b=-; [ -r "$f" ] && a=r; (: >> "$f") 2>/dev/null && b=w; echo "$a$b $f"; done'
    try:
        asked = room.argv("sh", "-c", script, "sh", *map(str, files), sandbox_paths=paths)
        told = subprocess.run(asked, env=room.env, capture_output=True, text=True, timeout=30, check=False).stdout
    finally:
        room.leave()
    said = {path: answer for answer, path in (line.split(" ", 1) for line in told.splitlines())}
    other = SandboxExec(**{**asdict(room.sandbox), "level": Level(str(fake.program), "sandbox-exec")})
    with other.around(("true",), cwd=room.place, env=room.env, sandbox_paths=paths) as argv:
        rules = Rules(Path(argv[2]).read_text())
    ours = {str(f): ("r" if rules.reads(f) else "-") + ("w" if rules.writes(f) else "-") for f in files}
    in_memory = {path for path, answer in said.items() if answer == "-w"}  # a new file in an empty folder
    assert ours == {path: "--" if path in in_memory else answer for path, answer in said.items()}
    assert {"rw", "r-", "--"} == {*ours.values()}
