"""Commands run to their end, whatever they do, and nothing outlives them. Every process here is real."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.system.process import MARKER, Ended, SupervisorClient, sweep
from capsule.system.stop import Stop, StopNow
from tests.costs import LONG, as_soon_as, best_of, eventually, given_time, in_some_round

from .conftest import Place, is_alive, output_of


def interrupt(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


# ── an ordinary command ──


def test_output_goes_to_the_files_and_the_exit_code_is_kept(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.shell("echo one; echo two >&2; exit 7"))
    assert (ended.exit_code, ended.signal, ended.why, ended.ok) == (7, None, "exited", False)
    assert (place.out, (place.path / "err").read_text()) == ("one\n", "two\n")


def test_success_is_ok(supervisor: SupervisorClient, place: Place) -> None:
    assert supervisor.run(place.command("true")).ok


def test_a_deadly_signal_is_named(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.shell("kill -SEGV $$"))
    assert (ended.exit_code, ended.signal, ended.why) == (None, signal.SIGSEGV, "exited")


def test_standard_input_is_closed_unless_a_file_is_given(supervisor: SupervisorClient, place: Place) -> None:
    assert supervisor.run(place.command("cat")).ok
    assert place.out == ""
    (place.path / "in").write_text("the prompt")
    assert supervisor.run(place.command("cat", stdin=place.path / "in")).ok
    assert place.out == "the prompt"


def test_a_command_has_its_own_session_its_directory_and_only_its_environment(
    supervisor: SupervisorClient, place: Place
) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), os.getcwd(), sorted(os.environ))"
    assert supervisor.run(place.python(code, env={"LC_ALL": "C.UTF-8"})).ok
    assert place.out == f"True {place.path.resolve()} {sorted([MARKER, 'LC_ALL'])}\n"


def test_a_command_starts_with_default_signals_and_three_descriptors(
    supervisor: SupervisorClient, place: Place
) -> None:
    code = """
        import os, signal, sys
        names = ("SIGTERM", "SIGHUP", "SIGQUIT")
        print([signal.getsignal(getattr(signal, name)) == signal.SIG_DFL for name in names])
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        opened = 0
        for fd in range(3, 100):
            try: os.fstat(fd); opened += 1
            except OSError: pass
        print(opened)
    """
    assert supervisor.run(place.python(textwrap.dedent(code))).ok
    assert place.out == "[True, True, True]\nset()\n0\n"


def test_arguments_arrive_byte_for_byte(supervisor: SupervisorClient, place: Place) -> None:
    words = ["", "a b", "new\nline", "ümläut", "\udcff", "$(id)", "x" * 100_000]
    assert supervisor.run(place.python("import sys; print(ascii(sys.argv[1:]))", *words)).ok
    assert place.out == ascii(words) + "\n"


def test_stdout_and_stderr_may_share_a_file(supervisor: SupervisorClient, place: Place) -> None:
    command = place.shell("echo one; echo two >&2; echo three")
    assert supervisor.run(
        type(command)(command.argv, command.cwd, command.env, place.path / "out", place.path / "out")
    ).ok
    assert place.out == "one\ntwo\nthree\n"


def test_forty_commands_through_one_keeper_each_give_their_own_exit_code(
    supervisor: SupervisorClient, place: Place
) -> None:
    assert [supervisor.run(place.shell(f"exit {n}")).exit_code for n in range(40)] == list(range(40))


def test_the_keeper_process_is_started_by_the_first_command_and_kept(place: Place) -> None:
    with SupervisorClient() as supervisor:
        pids = [supervisor.pid]
        for _ in range(2):
            supervisor.run(place.command("true"))
            pids.append(supervisor.pid)
    before, first, second = pids
    assert before is None
    assert first is not None
    assert first == second
    assert not is_alive(first)


# ── what cannot be started ──


def test_a_program_is_looked_up_on_the_path_it_is_given(supervisor: SupervisorClient, place: Place) -> None:
    tool = place.path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    assert supervisor.run(place.command("tool", env={"PATH": str(tool.parent)})).ok
    assert place.out == "mine\n"
    assert supervisor.run(place.command("tool")).why == "not-started"


def test_the_working_directory_is_never_searched_for_programs(supervisor: SupervisorClient, place: Place) -> None:
    tool = place.path / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert supervisor.run(place.command("tool", env={"PATH": ".::"})).why == "not-started"
    assert supervisor.run(place.command("./tool")).ok


def prepare_odd_programs(path: Path) -> None:
    for name, text, mode in (
        ("unexecutable", "#!/bin/sh\n", 0o644),
        ("shebangless", "echo hello\n", 0o755),
        ("orphan-script", "#!/no/such/interpreter\n", 0o755),
    ):
        (path / name).write_text(text)
        (path / name).chmod(mode)


@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("no-such-program",), "not found on PATH"),
        (("./no-such-program",), "not found"),
        (("./unexecutable",), "not executable"),
        (("./shebangless",), "not a program"),
        (("./orphan-script",), "interpreter is missing"),
        (("./",), "not executable"),
        (("true", "x" * 4_000_000), "longer than this system allows"),
        (("true", "a\0b"), "NUL"),
        (("true", "\ud800"), "half a character"),
        (("",), "not found"),
        ((), "empty"),
    ],
)
def test_what_cannot_be_started_is_an_answer_and_not_a_crash(
    supervisor: SupervisorClient, place: Place, argv: tuple[str, ...], words: str
) -> None:
    prepare_odd_programs(place.path)
    ended = supervisor.run(place.command(*argv))
    assert (ended.why, ended.exit_code, ended.ok) == ("not-started", None, False)
    assert words in ended.detail
    assert supervisor.run(place.command("true")).ok


def test_a_missing_directory_or_log_is_named(supervisor: SupervisorClient, place: Place) -> None:
    gone = place.path / "gone"
    assert "working directory does not exist" in supervisor.run(place.command("true", cwd=gone)).detail
    assert str(gone) in supervisor.run(place.command("true", stdin=gone)).detail
    command = place.command("true")
    ended = supervisor.run(type(command)(command.argv, command.cwd, command.env, gone / "out", place.path / "err"))
    assert (ended.why, ended.detail) == ("not-started", f"{gone / 'out'}: No such file or directory")


def test_a_link_or_fifo_planted_where_the_log_will_be_is_refused(supervisor: SupervisorClient, place: Place) -> None:
    victim = place.path / "victim"
    victim.write_text("precious")
    (place.path / "out").symlink_to(victim)
    assert supervisor.run(place.shell("echo spoiled")).why == "not-started"
    assert victim.read_text() == "precious"
    (place.path / "out").unlink()
    os.mkfifo(place.path / "out")
    assert supervisor.run(place.shell("echo spoiled")).why == "not-started"


# ── ending ──


def until_trapped(supervisor: SupervisorClient, place: Place, reply: str) -> Ended:
    script = f"trap '{reply}' TERM; echo trapped; while :; do sleep 0.05; done"
    return given_time(
        lambda seconds: supervisor.run(place.shell(script, timeout=seconds)), lambda _: "trapped" in place.out
    )


def test_a_time_out_ends_a_command_politely(supervisor: SupervisorClient, place: Place) -> None:
    ended = until_trapped(supervisor, place, "echo bye; exit 3")
    assert (ended.why, ended.exit_code, ended.ok) == ("timeout", 3, False)
    assert place.out == "trapped\nbye\n"
    assert 0.4 <= ended.seconds < LONG


def test_a_time_out_is_no_success_even_if_the_command_then_exits_with_zero(
    supervisor: SupervisorClient, place: Place
) -> None:
    ended = until_trapped(supervisor, place, "exit 0")
    assert (ended.why, ended.exit_code, ended.ok) == ("timeout", 0, False)


def run_until_all_five_are_there(supervisor: SupervisorClient, place: Place, *how: str) -> Ended:
    def run(seconds: float) -> Ended:
        (place.path / "pids").unlink(missing_ok=True)
        return supervisor.run(place.hostile_tree(*how, timeout=seconds))

    return given_time(run, lambda _: len(place.pids()) == 5)


@pytest.mark.promise("004-agents.timeout")
def test_five_that_ignore_sigterm_are_killed_after_the_grace(supervisor: SupervisorClient, place: Place) -> None:
    ended = run_until_all_five_are_there(supervisor, place)
    assert (ended.why, ended.signal) == ("timeout", signal.SIGKILL)
    assert len(place.pids()) == 5
    assert place.survivors() == []
    assert 0.4 + 0.4 <= ended.seconds < LONG


def test_a_stopped_process_is_ended_too(supervisor: SupervisorClient, place: Place) -> None:
    script = "echo going; kill -STOP $$"
    ended = given_time(lambda seconds: supervisor.run(place.shell(script, timeout=seconds)), lambda _: place.out)
    assert (ended.why, ended.signal) == ("timeout", signal.SIGTERM)


@pytest.mark.promise("processes.daemons", "004-agents.timeout")
def test_what_a_command_leaves_running_is_ended_with_it(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.hostile_tree("leave"))
    assert (ended.exit_code, ended.leftovers, ended.why) == (0, 4, "exited")
    assert len(place.pids()) == 5
    assert place.survivors() == []


def test_leftovers_that_go_when_told_cost_no_grace(place: Place) -> None:
    with SupervisorClient(grace=4 * LONG) as patient:
        ended = patient.run(place.shell("sleep 300 & exit 5"))
    assert (ended.exit_code, ended.leftovers) == (5, 1)
    assert ended.seconds < LONG


def test_a_chain_of_forks_is_caught(supervisor: SupervisorClient, place: Place) -> None:
    chain = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if os.fork(): os._exit(0)
            os.setsid()
    """
    ended = supervisor.run(place.python(textwrap.dedent(chain), str(place.path)))
    assert ended.exit_code == 0
    assert str(place.path) not in output_of("ps", "-A", "-ww", "-o", "args=")
    assert ended.seconds < LONG
    assert ended.detail == ""


def test_silence_ends_a_command_and_output_does_not(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.shell("echo hello; exec sleep 300", idle_timeout=0.4))
    assert (ended.why, ended.signal) == ("idle", signal.SIGTERM)
    talking = "for i in 1 2 3 4 5 6; do echo $i >&2; sleep 0.15; done"
    assert in_some_round(lambda: supervisor.run(place.shell(talking, idle_timeout=0.6)).ok)


def test_a_command_that_has_said_its_last_word_is_ended_as_if_it_had_exited(
    supervisor: SupervisorClient, place: Place
) -> None:
    command = place.shell("echo last; exec sleep 300", last_word=lambda: 0.3 if "last" in place.out else None)
    ended = supervisor.run(command)
    assert (ended.why, ended.exit_code, ended.signal, ended.ok) == ("exited", 0, None, True)
    assert "did not exit after its last word" in ended.detail
    assert ended.seconds < LONG


def test_a_command_that_goes_on_after_what_looked_like_its_last_word_is_not_ended(
    supervisor: SupervisorClient, place: Place
) -> None:
    """Also where it is asked about while the next word is on its way."""
    script = "echo last; sleep 1.5; echo more; exec sleep 3"
    command = place.shell(script, last_word=lambda: 2.5 if place.out.endswith("last\n") else None)
    ended = supervisor.run(command)
    assert (ended.why, ended.exit_code, ended.detail, place.out) == ("exited", 0, "", "last\nmore\n")
    assert ended.seconds >= 4.5


def test_words_on_stderr_are_no_life_after_the_last_word(supervisor: SupervisorClient, place: Place) -> None:
    script = "echo last; while :; do echo still here >&2; sleep 0.05; done"
    ended = supervisor.run(place.shell(script, timeout=LONG, last_word=lambda: 0.5))
    assert (ended.why, ended.exit_code) == ("exited", 0)


def test_a_stop_and_a_time_out_go_before_the_last_word(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.shell("echo last; exec sleep 300", timeout=0.4, last_word=lambda: 30.0))
    assert (ended.why, ended.signal) == ("timeout", signal.SIGTERM)


def test_growing_output_is_told_a_few_times_a_second_and_once_at_the_end(
    supervisor: SupervisorClient, place: Place
) -> None:
    seen: list[int] = []
    script = "i=0; while [ $i -lt 100 ]; do echo $i; i=$((i+1)); sleep 0.01; done"
    ended = supervisor.run(place.shell(script), on_output=lambda: seen.append(len(place.out)))
    assert seen == sorted(set(seen))
    assert seen[-1] == len(place.out)
    assert 2 <= len(seen) <= ended.seconds * 4 + 1


def test_an_error_in_the_caller_ends_the_command(supervisor: SupervisorClient, place: Place) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        supervisor.run(place.shell(f"echo $$ | tee {place.path}/pids; exec sleep 300"), on_output=fail)
    assert len(place.pids()) == 1
    assert place.survivors() == []


# ── being stopped ──


@pytest.mark.promise("processes.signals")
def test_one_interrupt_ends_the_whole_tree_and_says_stopped(supervisor: SupervisorClient, place: Place) -> None:
    with Stop() as stop:
        somebody = as_soon_as(lambda: len(place.pids()) == 5, interrupt)
        ended = supervisor.run(place.hostile_tree(), stop=stop)
        somebody.join()
    assert (ended.why, ended.signal) == ("stopped", signal.SIGKILL)
    assert len(place.pids()) == 5
    assert place.survivors() == []


def test_a_stop_is_noticed_at_once(supervisor: SupervisorClient, place: Place) -> None:
    supervisor.run(place.command("true"))
    with Stop() as stop:
        somebody = as_soon_as(lambda: place.out, lambda: interrupt(signal.SIGTERM))
        ended = supervisor.run(place.shell("echo going; exec sleep 300"), stop=stop)
        somebody.join()
    assert (ended.why, ended.signal) == ("stopped", signal.SIGTERM)
    assert ended.seconds < LONG


def test_a_second_interrupt_does_not_wait_for_the_grace(place: Place) -> None:
    def interrupt_twice() -> None:
        interrupt()
        time.sleep(0.3)
        interrupt()

    with SupervisorClient(grace=4 * LONG) as supervisor, Stop() as stop:
        somebody = as_soon_as(lambda: len(place.pids()) == 5, interrupt_twice)
        before = time.monotonic()
        with pytest.raises(StopNow):
            supervisor.run(place.hostile_tree(), stop=stop)
        somebody.join()
        assert time.monotonic() - before < LONG
        assert len(place.pids()) == 5
        assert place.survivors() == []


# ── when the guardians die ──

RUNNER = """
import os, sys
from pathlib import Path
from capsule.system.process import Command, SupervisorClient
place = Path(sys.argv[1])
SupervisorClient().run(Command(tuple(sys.argv[2:]), place, dict(os.environ), place / "out", place / "err"))
"""


@pytest.mark.promise("processes.killed-runner")
def test_a_runner_killed_with_nine_leaves_nobody(place: Place) -> None:
    argv = place.hostile_tree().argv
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(place.path), *argv])
    assert eventually(lambda: len(place.pids()) == 5)
    runner.kill()
    runner.wait()
    assert eventually(lambda: not place.survivors())


def test_a_keeper_killed_by_its_child_is_noticed_and_the_tree_swept(supervisor: SupervisorClient, place: Place) -> None:
    ended = supervisor.run(place.hostile_tree("keep-environment", "kill-supervisor"))
    assert (ended.why, ended.exit_code, ended.signal, ended.ok) == ("exited", None, signal.SIGKILL, False)
    assert "supervisor process died (signal 9)" in ended.detail
    assert ended.leftovers == 5
    assert eventually(lambda: not place.survivors())
    assert supervisor.run(place.command("true")).ok


def test_without_a_keeper_a_cleared_environment_hides_nobody_of_the_same_session(
    supervisor: SupervisorClient, place: Place
) -> None:
    script = f"(env -i sleep 300 & echo $! > {place.path}/pids); sleep 0.2; kill -9 $PPID; sleep 300"
    assert "supervisor process died" in supervisor.run(place.shell(script)).detail
    assert len(place.pids()) == 1
    assert eventually(lambda: not place.survivors())


def test_a_keeper_stopped_by_its_child_does_not_hang_the_runner(supervisor: SupervisorClient, place: Place) -> None:
    ended = run_until_all_five_are_there(supervisor, place, "pause-supervisor")
    assert ended.why == "timeout"
    assert ended.seconds < LONG
    assert place.survivors() == []


def test_a_keeper_that_dies_between_commands_is_replaced(supervisor: SupervisorClient, place: Place) -> None:
    supervisor.run(place.command("true"))
    assert supervisor.pid
    os.kill(supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: not is_alive(supervisor.pid or 0))
    assert supervisor.run(place.command("true")).ok


def test_without_a_subreaper_group_tree_and_marker_still_find_them(
    keeper_without_subreaper: SupervisorClient, place: Place
) -> None:
    ended = keeper_without_subreaper.run(place.hostile_tree("keep-environment", "leave"))
    assert (ended.exit_code, ended.leftovers) == (0, 4)
    assert place.survivors() == []
    ended = run_until_all_five_are_there(keeper_without_subreaper, place, "keep-environment")
    assert ended.why == "timeout"
    assert len(place.pids()) == 5
    assert place.survivors() == []


@pytest.mark.slow
def test_a_sweep_spares_its_own_process_and_its_ancestors(place: Place) -> None:
    code = f"""
        import subprocess
        from capsule.system.process import sweep
        other = subprocess.Popen(["sleep", "300"])
        print(sweep("{MARKER}-test", "{place.path}"), other.wait())
    """
    env = {**os.environ, f"{MARKER}-test": str(place.path)}
    marked_parent = ("sh", "-c", '"$@"; echo spared', "sh", sys.executable, "-c", textwrap.dedent(code))
    assert output_of(*marked_parent, env=env) == "1 -9\nspared\n"
    assert sweep(f"{MARKER}-test", str(place.path)) == 0


# ── cost ──


@pytest.mark.slow
@pytest.mark.promise("processes.large-output")
def test_300_megabytes_of_output_cost_the_runner_no_memory(supervisor: SupervisorClient, place: Place) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert supervisor.run(place.shell("head -c 300000000 /dev/zero"), on_output=lambda: None).ok
    assert (place.path / "out").stat().st_size == 300_000_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 * 1024 * (1024 if sys.platform == "darwin" else 1)


@pytest.mark.promise("speed.command")
def test_a_command_costs_about_what_a_bare_subprocess_costs(supervisor: SupervisorClient, place: Place) -> None:
    def clocked(act: Callable[[], object]) -> float:
        return best_of(act, 15, time.perf_counter)

    command = place.command("true")
    supervisor.run(command)
    assert in_some_round(
        lambda: (
            clocked(lambda: supervisor.run(command))
            < 4 * clocked(lambda: subprocess.run(["true"], check=True, stdin=subprocess.DEVNULL)) + 0.002
        )
    )
