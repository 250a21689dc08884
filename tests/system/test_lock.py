"""One holder at a time, released by the kernel, whatever the file says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.core.errors import CapsuleError, LockHeld
from capsule.system import lock as locking
from capsule.system.lock import FileLock, holder, suspended_holder
from tests.costs import LONG, eventually

HOLD = """
import sys, time; from pathlib import Path; from capsule.system.lock import FileLock
FileLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(300)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "mission-WRK-001.lock"


@pytest.fixture
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Somebody else who holds the lock until killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.promise("004-types.lock")
def test_a_held_lock_is_refused_and_its_holder_named(path: Path, another_process: subprocess.Popen[str]) -> None:
    with pytest.raises(LockHeld, match=rf"mission-WRK-001 is locked by pid {another_process.pid}") as caught:
        FileLock(path).acquire()
    assert str(another_process.pid) in caught.value.hint
    assert caught.value.exit_code == 3
    assert holder(path) == another_process.pid


@pytest.mark.promise("merge-queue.suspended")
def test_a_holder_that_is_suspended_is_called_that_and_nobody_is_told_to_kill_it(
    path: Path, another_process: subprocess.Popen[str]
) -> None:
    assert suspended_holder(path) is None
    pid = another_process.pid
    another_process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: suspended_holder(path) == pid)
    with pytest.raises(LockHeld, match=f"is locked by pid {pid} .*, which is suspended") as refused:
        FileLock(path).acquire()
    assert f"`kill -CONT {pid}`" in refused.value.hint and f"kill {pid}" not in refused.value.hint
    another_process.send_signal(signal.SIGCONT)
    assert eventually(lambda: suspended_holder(path) is None)


@pytest.mark.promise("durability.lock", "004-types.lock")
def test_kill_nine_releases_it(path: Path, another_process: subprocess.Popen[str]) -> None:
    another_process.kill()
    another_process.wait()
    assert holder(path) is None
    with FileLock(path):
        assert holder(path) == os.getpid()


def test_a_program_started_under_the_lock_does_not_hold_it(path: Path) -> None:
    with FileLock(path):
        child = subprocess.Popen(["sleep", "300"], close_fds=False)
    try:
        assert holder(path) is None
    finally:
        child.kill()
        child.wait()


def test_it_is_exclusive_within_one_process_too(path: Path) -> None:
    with FileLock(path), pytest.raises(LockHeld, match=str(os.getpid())):
        FileLock(path).acquire()
    with FileLock(path):
        pass


def test_taking_one_object_twice_is_a_mistake_that_says_so(path: Path) -> None:
    lock = FileLock(path)
    lock.acquire()
    with pytest.raises(RuntimeError, match="already held"):
        lock.acquire()
    lock.release()
    lock.release()
    lock.acquire()
    lock.release()


def test_waiting_ends_as_soon_as_it_is_free(path: Path) -> None:
    first = FileLock(path)
    first.acquire()
    began = time.monotonic()
    timer = threading.Timer(0.3, first.release)
    timer.start()
    second = FileLock(path)
    second.acquire(wait=4 * LONG)
    assert 0.29 < time.monotonic() - began < LONG
    second.release()
    timer.join()


def test_waiting_ends_when_the_time_is_up(path: Path, another_process: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    with pytest.raises(LockHeld):
        FileLock(path).acquire(wait=0.3)
    assert 0.3 <= time.monotonic() - began < LONG


def test_the_file_is_information_only(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("1 init\n")
    assert holder(path) is None
    with FileLock(path):
        assert path.read_text().startswith(f"{os.getpid()} ")
    assert path.exists()


def test_nobody_holds_what_was_never_made(path: Path) -> None:
    assert holder(path) is None
    assert not path.parent.exists()


def test_asking_never_makes_a_lock_fail(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "_pid_from_kernel", lambda status: None)
    path.parent.mkdir()
    path.touch()
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.0005):
            with contextlib.suppress(LockHeld):  # we may be too quick for a holder to have signed
                holder(path)

    asker = threading.Thread(target=ask)
    asker.start()
    taken = 0
    try:
        for _ in range(2000):
            with FileLock(path):
                taken += 1
    finally:
        done.set()
        asker.join()
    assert taken == 2000


def test_where_the_kernel_lists_no_locks_the_signature_names_the_holder(
    path: Path, another_process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "_pid_from_kernel", lambda status: None)
    assert holder(path) == another_process.pid
    with pytest.raises(LockHeld, match=str(another_process.pid)):
        FileLock(path).acquire()


def test_a_holder_that_cannot_be_named_is_still_a_holder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "_pid_from_kernel", lambda status: None)
    path.parent.mkdir()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(LockHeld, match="cannot be seen"):
            holder(path)
        with pytest.raises(LockHeld, match="another process"):
            FileLock(path).acquire()
    finally:
        os.close(fd)


def test_a_planted_link_is_refused_and_its_target_left_alone(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "victim").write_text("precious")
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(CapsuleError, match="Cannot open the lock"):
        FileLock(path).acquire()
    assert (tmp_path / "victim").read_text() == "precious"
