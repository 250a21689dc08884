"""Streams of events of any length, with lines of any length: found in them is what is asked for, at a flat cost."""

from __future__ import annotations

import json
import os
import shlex
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capsule.agents._cli import READ_FROM_THE_END, Connection, Invocation
from capsule.agents._stream import (
    Event,
    Events,
    Follower,
    StreamAgent,
    StreamResult,
    decoded,
    shortened,
)
from capsule.core.briefing import Briefing, Transcript
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind
from capsule.system.process import Ended, SupervisorClient
from tests.costs import given_time

MEGABYTE = 1024 * 1024
Stream = Callable[..., Events]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Lines, given as events or as raw bytes."""

    def write(*lines: dict[str, Any] | bytes, end: bytes = b"\n") -> Events:
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        (tmp_path / "log.events").write_bytes(b"\n".join(raw) + end)
        return Events(tmp_path / "log.events")

    return write


def numbered(events: Iterator[Event] | list[Event]) -> list[int]:
    return [event["n"] for event in events]


# ── what is found


def test_it_is_read_backwards(stream: Stream) -> None:
    assert numbered(stream({"n": 1}, {"n": 2}, {"n": 3}).backwards()) == [3, 2, 1]


def test_it_is_read_backwards_across_blocks_of_any_size(stream: Stream) -> None:
    events = stream(*({"n": n, "pad": "x" * (n * 37 % 5000)} for n in range(500)))
    assert numbered(events.backwards()) == list(reversed(range(500)))


def test_the_last_of_a_kind_is_found_by_its_own_type_and_not_by_one_inside(stream: Stream) -> None:
    real, inner = {"type": "result", "n": 1}, {"type": "user", "n": 2, "inside": {"type": "result"}}
    found = stream({"type": "result", "n": 0}, real, inner).last("result")
    assert found == real
    assert stream(inner).last("result") is None


def test_marked_lines_are_found_in_order_wherever_blocks_end(stream: Stream) -> None:
    lines = ({"type": "step" if n % 7 == 0 else "other", "n": n, "pad": "x" * (n * 911 % 9000)} for n in range(900))
    assert numbered(stream(*lines, end=b"").marked(b'"step"')) == list(range(0, 900, 7))


@pytest.mark.parametrize("size", [MEGABYTE - 1, MEGABYTE, 3 * MEGABYTE, 5 * MEGABYTE + 17])
def test_a_huge_line_hides_none_of_its_neighbours(stream: Stream, size: int) -> None:
    events = stream({"step": 1, "n": 1}, b'{"huge":"' + b"x" * size + b'"}', {"step": 1, "n": 2}, {"step": 1, "n": 3})
    assert numbered(events.marked(b'"step"')) == [1, 2, 3]
    assert next(events.backwards(b'"step"'))["n"] == 3
    assert numbered(events.head) == [1]


def test_a_marked_line_may_be_longer_than_a_block(stream: Stream) -> None:
    events = stream({"n": 1}, {"step": 1, "n": 2, "pad": "x" * (MEGABYTE + MEGABYTE // 2)}, {"n": 3})
    assert numbered(events.marked(b'"step"')) == [2]


def test_a_line_longer_than_we_agreed_to_read_does_not_exist(stream: Stream) -> None:
    events = stream({"n": 1}, b'{"huge":"' + b"x" * READ_FROM_THE_END + b'"}', {"n": 2})
    assert numbered(events.backwards()) == [2]


@pytest.mark.parametrize("cut", [b'{"n": 4, "text": "ha', b"{", b"", b"\xff\xfe", b"[1, 2]", b"7", b'{"n": NaN'])
def test_a_line_that_breaks_off_or_is_no_event_does_not_exist(stream: Stream, cut: bytes) -> None:
    assert numbered(stream({"n": 1}, {"n": 2}, cut, end=b"").backwards()) == [2, 1]


def test_a_line_nested_beyond_reason_does_not_exist(stream: Stream) -> None:
    assert numbered(stream({"n": 1}, b'{"a":' * 100_000).backwards()) == [1]


@pytest.mark.parametrize("how", ["gone", "link", "folder"])
def test_a_file_that_was_taken_away_or_replaced_reads_as_empty(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log.events"
    (tmp_path / "other").write_text('{"n": 1}\n')
    if how == "link":
        path.symlink_to("other")
    elif how == "folder":
        path.mkdir()
    events = Events(path)
    assert (events.head, list(events.backwards()), list(events.marked(b"n"))) == ([], [], [])


# ── at what cost


@pytest.mark.parametrize("look", ["head", "last", "marked"])
def test_memory_does_not_grow_with_the_stream(tmp_path: Path, look: str) -> None:
    path, line = tmp_path / "log.events", json.dumps({"type": "other", "pad": "x" * 2000}).encode() + b"\n"
    with path.open("wb") as file:
        for _ in range(60):
            file.write(line * (MEGABYTE // len(line)))
        file.write(b'{"type": "result"}\n')
    looks: dict[str, Callable[[Events], object]] = {
        "head": lambda events: events.head,
        "last": lambda events: events.last("result"),
        "marked": lambda events: list(events.marked(b'"result"')),
    }
    tracemalloc.start()
    assert looks[look](Events(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * MEGABYTE


def test_memory_does_not_grow_with_a_line_either(stream: Stream) -> None:
    events = stream(b'{"huge":"' + b"x" * 40 * MEGABYTE + b'"}', {"step": 1, "n": 1})
    tracemalloc.start()
    assert numbered(events.marked(b'"step"')) == [1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MEGABYTE


def test_a_look_reads_only_the_end_of_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "log.events"
    follower = Follower(path)
    assert list(follower.new_lines()) == []
    path.write_bytes(b"one\ntwo\nhal")
    assert follower.new_lines() == [b"one", b"two"]
    with path.open("ab") as file:
        file.write(b"f\n" + b"".join(b"%d\n" % n for n in range(100_000)))
    assert follower.new_lines() == [b"%d" % number for number in range(99980, 100_000)]
    assert list(follower.new_lines()) == []


def test_a_look_at_a_line_that_does_not_end_shows_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "log.events"
    path.write_bytes(b"x" * MEGABYTE)
    follower = Follower(path)
    assert list(follower.new_lines()) == []
    with path.open("ab") as file:
        file.write(b"\nnext\n")
    assert follower.new_lines()[-1] == b"next"


# ── what an adapter need not think about


class Talker(StreamAgent):
    """A CLI whose events are `{"say": …}`, `{"do": …}` and `{"wrong": …}`."""

    def program(self) -> str:
        return "sh"

    def invocation(self, briefing: Briefing) -> Invocation:
        return Invocation(("sh", "-c", briefing.prompt))

    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        last = next(events.backwards(), None)
        if last is None:
            return None
        wrong = Failure(Kind.OVERLOAD, last["wrong"]) if "wrong" in last else None
        return StreamResult(last.get("say", ""), wrong, Usage(tokens_in=3))

    def activity(self, event: Event) -> str:
        return str(event.get("do", ""))


class Stage:
    def __init__(self, folder: Path, supervisor: SupervisorClient) -> None:
        self.folder, self.told = folder, list[str]()
        env = {"PATH": os.environ["PATH"]}
        self.agent = Talker(
            Connection(name="talker", supervisor=supervisor, root=folder, base_env=env, tell=self._hear)
        )

    def _hear(self, _mission: str, text: str) -> None:
        self.told.append(text)

    def prints(self, *events: dict[str, Any], then: str = "true", **more: float) -> Transcript:
        script = "".join(f"printf '%s\\n' {shlex.quote(json.dumps(event))};" for event in events)
        about = {"mission": "m", "item": "m", "phase": "p", "run": 1, "timeout": 30.0, "idle_timeout": 0.0, **more}
        log = str(self.folder / ".capsule" / "p.log")
        return self.agent.run(Briefing(prompt=script + then, cwd=str(self.folder), log=log, **about))  # type: ignore[arg-type]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield Stage(tmp_path, supervisor)


def kind_of(transcript: Transcript) -> Kind | None:
    return transcript.failure.kind if transcript.failure else None


def test_a_good_end_is_no_failure(stage: Stage) -> None:
    transcript = stage.prints({"say": "done"})
    assert (transcript.text, transcript.failure) == (b"done\n", None)
    assert transcript.usage == Usage(tokens_in=3, seconds=transcript.seconds)


@pytest.mark.parametrize(
    ("event", "then", "kind"),
    [
        ({"say": "done"}, "exit 3", Kind.CRASH),
        ({"say": "done"}, "kill -9 $$", Kind.CRASH),
        ({"say": " "}, "exit 0", Kind.SILENT),
        ({"wrong": "too many"}, "exit 0", Kind.OVERLOAD),
        ({"wrong": "too many"}, "exit 3", Kind.OVERLOAD),
    ],
)
def test_a_bad_end_is_a_failure_even_if_the_events_do_not_say_so(
    stage: Stage, event: dict[str, Any], then: str, kind: Kind
) -> None:
    assert kind_of(stage.prints(event, then=then)) is kind


def test_what_we_ended_is_not_called_a_crash(stage: Stage) -> None:
    for limit, kind in (("timeout", Kind.TIMEOUT), ("idle_timeout", Kind.SILENT)):

        def ended_after(seconds: float, limit: str = limit) -> Transcript:
            return stage.prints({"say": "x"}, then="sleep 60", **{limit: seconds})

        assert kind_of(given_time(ended_after, lambda seen: seen.text)) is kind


def test_what_it_is_about_is_told_in_one_short_line(stage: Stage) -> None:
    place = "/home/ada/project/.capsule/worktrees/m-1/"
    stage.prints({"do": f"Edit {place}src/a.py\n\x1b[31m" + "x" * 500})
    (told,) = stage.told
    assert told.startswith("Edit src/a.py [31mxxx")
    assert len(told) == 200


def test_numbers_that_are_none_are_unknown() -> None:
    assert [Event(x=value).count("x") for value in (7, 0, -1, True, "7", 7.0, None)] == [
        7,
        0,
        None,
        None,
        None,
        None,
        None,
    ]
    odd = (0.5, 2, -1, True, "1", None, float("inf"), float("nan"))
    assert [Event(x=value).amount("x") for value in odd] == [0.5, 2.0, None, None, None, None, None, None]


def test_a_number_beyond_all_reason_is_unknown() -> None:
    assert [Event(x=10**15).count("x"), Event(x=1e15).amount("x"), Event(x=10**400).amount("x")] == [None, None, None]
    assert [Event(x=10**15 - 1).count("x"), Event(x=10**14).amount("x")] == [10**15 - 1, 1e14]


def test_a_name_is_fit_for_the_journal() -> None:
    assert [
        Event(x="opus").name("x"),
        Event(x="half \ud800 a\nname").name("x"),
        Event(x=[]).name("x"),
        Event(x=None).name("x"),
    ] == [
        "opus",
        "half a name",
        "",
        "",
    ]
    assert len(Event(x="x" * 1000).name("x")) == 200


def test_a_type_that_is_no_word_makes_no_event() -> None:
    lines = (b'{"type": ["x"]}', b'{"type": {}}', b'{"type": null}', b'{"type": 5}', b'{"type": "x"}', b"{}")
    assert [decoded(line) is not None for line in lines] == [False, False, False, False, True, True]


def test_a_reason_is_one_line_of_sane_length() -> None:
    assert shortened("first\nsecond\t\x1b third") == "first second third"
    assert len(shortened("x" * 1000)) == 300
