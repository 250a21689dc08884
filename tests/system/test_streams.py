"""What a command prints on its way to its file: all of it, in order, and no secret on the disk at any time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.system.process import Command, SupervisorClient
from tests.costs import LONG, eventually, given_time

from .conftest import Place, output_of

SECRET = "hunter22-hunter22"
SPLIT = f"""
import sys, time
for letter in "<{SECRET}>":
    sys.stdout.write(letter)
    sys.stdout.flush()
    time.sleep(0.004)
"""


@pytest.fixture(params=[True, False], ids=["subreaper", "without-subreaper"])
def discreet(request: pytest.FixtureRequest) -> Iterator[SupervisorClient]:
    """A supervisor that knows a secret."""
    with SupervisorClient(grace=0.4, subreaper=request.param, secrets=(SECRET, "other-secret")) as supervisor:
        yield supervisor


def test_a_secret_reaches_neither_file(discreet: SupervisorClient, place: Place) -> None:
    assert discreet.run(place.shell(f"echo a {SECRET} b; echo other-secret >&2")).ok
    assert place.out == "a [redacted] b\n"
    assert (place.path / "err").read_text() == "[redacted]\n"


def test_a_secret_printed_letter_by_letter_is_found(discreet: SupervisorClient, place: Place) -> None:
    assert discreet.run(place.python(SPLIT)).ok
    assert place.out == "<[redacted]>"


def test_a_secret_across_the_pieces_of_a_flood_is_found(discreet: SupervisorClient, place: Place) -> None:
    code = f"import sys\nfor n in range(40): sys.stdout.write('x' * 131_063 + '{SECRET}')"
    assert discreet.run(place.python(code)).ok
    assert place.out == ("x" * 131_063 + "[redacted]") * 40


def test_what_is_printed_is_there_while_the_command_runs(discreet: SupervisorClient, place: Place) -> None:
    seen: list[str] = []
    script = "echo one; printf 'two h'; until [ -e seen ]; do sleep 0.02; done; echo i"

    def look() -> None:
        seen.append(place.out)
        if seen[-1] == "one\ntwo ":
            (place.path / "seen").touch()

    assert discreet.run(place.shell(script, timeout=LONG), on_output=look).ok
    assert "one\ntwo " in seen
    assert place.out == "one\ntwo hi\n"


def test_in_one_file_the_order_of_both_outputs_is_kept(discreet: SupervisorClient, place: Place) -> None:
    both = place.path / "both"
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
    assert discreet.run(Command(("sh", "-c", script), place.path, {"PATH": os.environ["PATH"]}, both, both)).ok
    assert both.read_text().split() == [word for i in range(1, 10) for word in ("out", str(i), "err", str(i))]


def test_last_words_after_a_polite_end_are_kept(discreet: SupervisorClient, place: Place) -> None:
    script = "trap 'head -c 3000000 /dev/zero; echo bye; exit 0' TERM; echo trapped; while :; do sleep 0.05; done"
    ended = given_time(
        lambda seconds: discreet.run(place.shell(script, timeout=seconds)), lambda _: place.out.endswith("bye\n")
    )
    assert ended.why == "timeout"
    assert place.out.endswith("bye\n")


def test_a_daemon_that_holds_the_pipe_is_ended_and_what_it_said_is_kept(
    discreet: SupervisorClient, place: Place
) -> None:
    daemon = "(trap '' TERM; echo daemon; touch ready; sleep 300)"
    ended = discreet.run(place.shell(f"{daemon} & until [ -e ready ]; do sleep 0.01; done; echo main"))
    assert ended.leftovers >= 1
    assert sorted(place.out.split()) == ["daemon", "main"]
    assert ended.seconds < LONG


@pytest.mark.parametrize("sign", ["TERM", "HUP"])
def test_nobody_adds_to_it_when_the_command_has_ended(discreet: SupervisorClient, place: Place, sign: str) -> None:
    """One waits to be told to go, the other just waits; both outlive the command by a moment."""
    daemon = f"trap '' TERM; trap 'echo forged; exit' {sign}; touch ready; for i in 1 2 3 4 5 6; do sleep 0.05; done"
    script = f"({daemon}; echo forged) & until [ -e ready ]; do sleep 0.01; done; echo last"
    assert discreet.run(place.shell(script)).leftovers >= 1
    assert place.out == "last\n"


def test_a_disk_that_takes_no_more_does_not_hang_the_command_and_is_said(
    discreet: SupervisorClient, place: Place
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    full = Path("/dev/full")
    env = {"PATH": os.environ["PATH"]}
    ended = discreet.run(Command(("sh", "-c", "head -c 5000000 /dev/zero; exit 7"), place.path, env, full, full))
    assert ended.exit_code == 7
    assert "No space left" in ended.detail
    assert discreet.run(place.command("true")).detail == ""


def test_nothing_is_in_the_environment_or_on_the_command_line_of_anything(place: Place) -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("no /proc here")
    with SupervisorClient(secrets=(SECRET,)) as supervisor:
        assert (
            supervisor.run(
                place.shell("cat /proc/$PPID/environ /proc/$PPID/cmdline | tr '\\0' '\\n' | grep -c hunter")
            ).signal
            is None
        )
        assert place.out == "0\n"


RUNNER = """
import os, sys
from pathlib import Path
from capsule.system.process import Command, SupervisorClient
place = Path(sys.argv[1])
command = Command(tuple(sys.argv[3:]), place, dict(os.environ), place / "out", place / "err")
SupervisorClient(secrets=(sys.argv[2],)).run(command)
"""


@pytest.mark.promise("agents.secrets")
def test_no_secret_is_on_the_disk_even_if_all_are_killed_in_the_middle(place: Place) -> None:
    script = f"while :; do printf 'secret: {SECRET}'; done"
    argv = [sys.executable, "-c", RUNNER, str(place.path), SECRET, "sh", "-c", script]
    runner = subprocess.Popen(argv, start_new_session=True)
    assert eventually(lambda: (place.path / "out").exists() and len(place.out) > 100_000)
    supervisor = int(output_of("pgrep", "-P", str(runner.pid)).split()[0])
    os.kill(supervisor, 9)
    runner.kill()
    runner.wait()
    assert "hunter" not in place.out
    assert "[redacted]" in place.out


def test_memory_stays_flat_however_much_is_printed(place: Place) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc here")

    def peak(megabytes: int) -> int:
        with SupervisorClient(secrets=(SECRET,)) as supervisor:
            assert supervisor.run(place.shell(f"head -c {megabytes}000000 /dev/zero")).ok
            return int(Path(f"/proc/{supervisor.pid}/status").read_text().partition("VmHWM:")[2].split()[0])

    assert peak(100) < peak(10) + 8 * 1024
