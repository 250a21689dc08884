"""The supervisor itself: what it sees, what it ignores, and how little it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capsule.system import supervisor as keeping
from capsule.system.process import SupervisorClient

from .conftest import Place, is_alive, output_of

HEAVY = {"json", "re", "subprocess", "pathlib", "typing", "dataclasses", "threading", "contextlib", "msgspec", "enum"}


def test_starting_it_loads_none_of_the_heavy_modules() -> None:
    packages = str(Path(keeping.__file__).parents[2])
    code = "import sys; sys.path.append(sys.argv[1]); import capsule.system.supervisor, ctypes; print(*sys.modules)"
    loaded = output_of(sys.executable, "-I", "-S", "-c", code, packages)
    assert "capsule.system.supervisor" in loaded.split()
    assert HEAVY & set(loaded.split()) == set()


def test_descendants_are_all_below_and_nobody_else() -> None:
    table = {pid: (parent, 0, False) for pid, parent in {1: 0, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5}.items()}
    assert keeping.descendants(table, {2}) == {3, 4}
    assert keeping.descendants(table, {2, 5}) == {3, 4, 6}
    assert keeping.descendants(table, {4}) == set()


def test_a_table_with_a_loop_is_walked_once() -> None:
    assert keeping.descendants({1: (2, 0, False), 2: (1, 0, False)}, {1}) == {1, 2}


def test_a_process_with_brackets_and_spaces_in_its_name_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "300"], start_new_session=True) as process:
        try:
            assert keeping.process_table()[process.pid] == (os.getpid(), process.pid, False)
        finally:
            process.kill()


def test_ps_tells_the_same_tree_as_proc() -> None:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        try:
            assert keeping._table_from_ps()[process.pid] == (os.getpid(), process.pid, False)
        finally:
            process.kill()


def test_zombies_are_marked_as_such() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert keeping.process_table()[process.pid][2]
    assert keeping._table_from_ps()[process.pid][2]
    process.wait()


def test_bearers_carry_exactly_the_marker() -> None:
    with (
        subprocess.Popen(["sleep", "300"], env={**os.environ, "MARK": "abc"}) as marked,
        subprocess.Popen(["sleep", "300"], env={**os.environ, "MARK": "abcd", "REMARK": "abc"}) as other,
    ):
        try:
            assert set(keeping.pids_with_marker("MARK", "abc")) == {marked.pid}
        finally:
            marked.kill()
            other.kill()


def test_a_directory_on_the_path_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    with pytest.raises(FileNotFoundError):
        keeping.find_program(b"tool", os.fsencode(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ignores_the_signals_meant_for_its_runner(supervisor: SupervisorClient, place: Place, number: int) -> None:
    supervisor.run(place.command("true"))
    pid = supervisor.pid
    assert pid
    os.kill(pid, number)
    assert supervisor.run(place.command("true")).ok
    assert supervisor.pid == pid


def test_it_lives_in_a_session_of_its_own_and_in_nobody_s_directory(supervisor: SupervisorClient, place: Place) -> None:
    supervisor.run(place.command("true"))
    assert supervisor.pid
    assert os.getsid(supervisor.pid) == supervisor.pid
    if keeping.has_proc():
        assert Path(f"/proc/{supervisor.pid}/cwd").readlink() == Path("/")


def test_closing_its_input_ends_it_and_all_below(supervisor: SupervisorClient, place: Place) -> None:
    supervisor.run(place.command("true"))
    pid = supervisor.pid
    supervisor.close()
    assert pid and not is_alive(pid)


def test_a_stop_that_arrives_after_the_end_does_not_touch_the_next_command(
    supervisor: SupervisorClient, place: Place
) -> None:
    supervisor.run(place.command("true"))
    assert supervisor._process and supervisor._process.stdin
    supervisor._process.stdin.write(b"8\nstop\x000.1")
    assert supervisor.run(place.shell("sleep 0.2; exit 4")).exit_code == 4
