"""The first signal is a request, the second an order."""

from __future__ import annotations

import os
import select
import signal
import sys

import pytest

from capsule.system.stop import Stop, StopNow

from .conftest import output_of


def is_readable(stop: Stop) -> bool:
    return bool(select.select([stop], [], [], 0)[0])


def is_requested(stop: Stop) -> bool:
    return stop.requested


@pytest.mark.promise("004-agents.signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number: int) -> None:
    with Stop() as stop:
        assert not is_requested(stop)
        assert not is_readable(stop)
        os.kill(os.getpid(), number)
        assert is_requested(stop)
        assert is_readable(stop)
        assert is_readable(stop)


def test_the_second_signal_is_an_order() -> None:
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StopNow):
            os.kill(os.getpid(), signal.SIGINT)
        assert is_requested(stop)


def test_an_order_looks_like_an_interrupt_to_those_who_do_not_know_it() -> None:
    assert issubclass(StopNow, KeyboardInterrupt)
    assert not issubclass(StopNow, Exception)


@pytest.mark.promise("004-agents.signals")
def test_handlers_are_put_back_even_after_an_error() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ZeroDivisionError), Stop():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.promise("004-follow-ups.stop")
def test_it_can_be_used_again_and_starts_unrequested() -> None:
    stop = Stop()
    with stop:
        stop.request()
        stop.request()
        assert is_requested(stop)
    with stop:
        assert not is_requested(stop)
        assert not is_readable(stop)


def test_waiting_outside_the_block_is_a_mistake_that_says_so() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        Stop().fileno()


def test_no_descriptor_is_left_open() -> None:
    def opened() -> int:
        fd = os.dup(0)
        os.close(fd)
        return fd

    before = opened()
    for _ in range(5):
        with Stop():
            pass
    assert opened() == before


def test_a_select_wakes_up_at_once() -> None:
    code = """
import os, select, signal, time
from capsule.system.stop import Stop
with Stop() as stop:
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    began = time.monotonic()
    print(select.select([stop], [], [], 50)[0] == [stop], time.monotonic() - began < 25)
"""
    assert output_of(sys.executable, "-c", code) == "True True\n"
