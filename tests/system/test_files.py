"""Files are whole or untouched, and what strangers left is looked at with care."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.system import layers
from capsule.system.files import (
    CannotWrite,
    NotRegular,
    TooLarge,
    append_line,
    read_regular,
    sweep_temps,
    tail_bytes,
    write_atomically,
)
from capsule.system.folders import remove_by_force, remove_tree

from .conftest import output_of


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ── writing ──


@pytest.mark.parametrize(("data", "content"), [("grüße\n", "grüße\n".encode()), (b"\x00\xff", b"\x00\xff"), ("", b"")])
def test_what_is_written_is_what_is_read(tmp_path: Path, data: bytes | str, content: bytes) -> None:
    write_atomically(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == content
    assert names_in(tmp_path) == {"file"}


def test_a_new_file_gets_what_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_the_mode_of_an_existing_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text("old")
    file.chmod(0o751)
    write_atomically(file, "new")
    assert (file.read_text(), mode_of(file)) == ("new", 0o751)


def test_a_mode_can_be_demanded(tmp_path: Path) -> None:
    write_atomically(tmp_path / "secret", "x", mode=0o600)
    assert mode_of(tmp_path / "secret") == 0o600


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    write_atomically(link, "new")
    assert (victim.read_text(), link.read_text(), link.is_symlink()) == ("precious", "new", False)


@pytest.mark.promise("durability.atomic-files", "004-file.atomic")
def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    versions = {letter * 200_000 for letter in "ab"}
    write_atomically(file, "a" * 200_000)
    code = """
import sys; from pathlib import Path; from capsule.system.files import write_atomically
while True:
    for letter in "ab": write_atomically(Path(sys.argv[1]), letter * 200_000)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(file)]) as writer:
        try:
            assert all(file.read_text() in versions for _ in range(300))
        finally:
            writer.kill()


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "inside").touch()
    with pytest.raises(CannotWrite, match=r"Cannot write .*taken") as caught:
        write_atomically(tmp_path / "taken", "x")
    assert caught.value.hint
    assert names_in(tmp_path) == {"taken"}


def test_a_missing_directory_is_said_kindly(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="No such file") as caught:
        write_atomically(tmp_path / "no" / "file", "x")
    assert caught.value.hint == "Make sure that its directory exists."


FULL_DISK = """
import os, sys
from pathlib import Path
from capsule.system.files import CannotWrite, write_atomically
disk = Path(sys.argv[1])
write_atomically(disk / "file", "old" * 100)
try:
    write_atomically(disk / "file", "new" * 1_000_000)
except CannotWrite as error:
    print(error.message, error.hint)
print((disk / "file").read_text() == "old" * 100, os.listdir(disk))
"""


def can_mount_a_small_disk() -> bool:
    if not shutil.which("unshare"):
        return False
    return output_of("unshare", "-Urm", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt && echo yes") == "yes\n"


@pytest.mark.promise("durability.atomic-files")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    if not can_mount_a_small_disk():
        pytest.skip("no small tmpfs can be mounted here (unshare -Urm)")
    script = 'mount -t tmpfs -o size=64k none "$1" && exec "$2" -c "$3" "$1"'
    said = output_of("unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FULL_DISK)
    assert "No space left on device Free some space" in said
    assert said.endswith("True ['file']\n")


@pytest.mark.promise("004-file.atomic")
def test_a_writer_killed_midway_leaves_the_old_file_and_a_temp_that_is_swept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    code = """
import os, sys; from pathlib import Path; from capsule.system import files
os.fsync = lambda fd: os.kill(os.getpid(), 9)
files.write_atomically(Path(sys.argv[1]), "new")
"""
    killed = subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.read_text() == "old"
    (debris,) = set(tmp_path.iterdir()) - {file}
    assert sweep_temps(tmp_path) == [debris]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="without /proc nobody tells")
def test_a_sweep_takes_what_a_process_left_that_nobody_waits_for(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    debris = tmp_path / f".capsule-{process.pid}-0123abcd.tmp"
    debris.touch()
    assert sweep_temps(tmp_path) == [debris]
    process.wait()


def test_a_sweep_spares_the_living_and_the_foreign(tmp_path: Path) -> None:
    names = {f".capsule-{os.getpid()}-0123abcd.tmp", ".capsule-x-0123abcd.tmp", "notes.tmp", ".capsule-999999999.tmp"}
    for name in names:
        (tmp_path / name).touch()
    assert sweep_temps(tmp_path) == []
    assert names_in(tmp_path) == names


# ── appending ──


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    for line in ("one", "zwölf"):
        append_line(tmp_path / "log", line)
    assert (tmp_path / "log").read_text() == "one\nzwölf\n"


def test_a_torn_line_is_ended_before_the_next(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"half":')
    append_line(tmp_path / "log", "whole")
    assert (tmp_path / "log").read_text() == '{"half":\nwhole\n'


def test_two_lines_in_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one line"):
        append_line(tmp_path / "log", "a\nb")


def test_lines_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious\n")
    (tmp_path / "log").symlink_to(tmp_path / "victim")
    with pytest.raises(CannotWrite, match="symbolic link"):
        append_line(tmp_path / "log", "x")
    assert (tmp_path / "victim").read_text() == "precious\n"


# ── reading ──


@pytest.mark.parametrize(("limit", "tail"), [(3, b"def"), (6, b"abcdef"), (100, b"abcdef"), (0, b"")])
def test_the_tail_is_the_end(tmp_path: Path, limit: int, tail: bytes) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert tail_bytes(tmp_path / "file", limit) == tail


def test_the_tail_of_a_huge_file_is_cheap(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    assert tail_bytes(tmp_path / "huge", 3) == b"end"


def test_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"123456")
    with pytest.raises(TooLarge, match="larger than the 5 bytes allowed"):
        read_regular(tmp_path / "file", 5)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("/etc/hostname"), "a symbolic link"),
        (lambda path: path.symlink_to("/nowhere"), "a symbolic link"),
        (lambda path: path.mkdir(), "a directory"),
        (os.mkfifo, "a FIFO"),
        (make_socket, "a socket"),
    ],
)
def test_what_is_no_regular_file_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    odd = Path("odd")
    make(odd)
    for read in (read_regular, tail_bytes):
        with pytest.raises(NotRegular, match=kind):
            read(odd, 100)


def test_a_device_is_no_regular_file() -> None:
    with pytest.raises(NotRegular, match="a device"):
        read_regular(Path("/dev/zero"), 100)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 100)


def a_deep_folder(top: Path, depth: int = 2500) -> Path:
    """Deeper than a path can be long, and than Python can call itself."""
    top.mkdir()
    code = f"import os\nfor _ in range(int({depth})): os.mkdir('deep'); os.chdir('deep')\nopen('file', 'w')"
    subprocess.run([sys.executable, "-c", code], cwd=top, check=True)
    return top


@pytest.mark.parametrize("remove", [remove_by_force, remove_tree, layers._remove])
def test_a_folder_is_removed_however_deep_it_is(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    folder = a_deep_folder(tmp_path / "folder")
    remove(folder)
    assert not folder.exists()


@pytest.mark.parametrize("remove", [remove_by_force, remove_tree, layers._remove])
def test_a_folder_is_removed_with_what_is_closed_in_it_and_nothing_behind_a_link(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    (tmp_path / "folder/closed/inner").mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/kept").write_text("kept")
    (tmp_path / "theirs").chmod(0o500)
    (tmp_path / "folder/link").symlink_to(tmp_path / "theirs")
    (tmp_path / "folder/closed/inner").chmod(0)
    (tmp_path / "folder/closed").chmod(0)
    (tmp_path / "folder").chmod(0)
    remove(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    assert (tmp_path / "theirs/kept").read_text() == "kept"
    assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == 0o500
