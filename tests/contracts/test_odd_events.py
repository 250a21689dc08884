"""Valid JSON of a form that no CLI prints: a wrapper might, an agent that prints in its CLI's place certainly can."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capsule.agents._cli import Connection
from capsule.agents._stream import Event, Events, StreamAgent, StreamResult, decoded
from capsule.project import adapters
from capsule.system.process import Ended, SupervisorClient
from tests.contracts.recordings import RECORDINGS, recorded

STREAMS = [(name, recording) for name in adapters("agents") for recording in recorded(name)]
DEEP = json.loads("[" * 900 + "]" * 900)
ODD: tuple[Any, ...] = ([], {}, 5, None, True, "", "\ud800", "x" * 100_000, 1e308, 10**4000, [[{}]], {"a": [5]}, DEEP)
TRIES = 24
"""For each recording; all of them would take minutes."""
ENDS = (Ended(0, None, "exited", 1.0, 0), Ended(1, None, "exited", 1.0, 0), Ended(None, 15, "idle", 1.0, 0))
Spot = tuple[int, tuple[str | int, ...]]


def spots(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to each value inside."""
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from spots(part, (*path, key))


def with_odd(events: list[Event], spot: Spot, odd: Any) -> list[Event]:
    number, (*way, last) = spot
    changed = copy.deepcopy(events[number])
    place: Any = changed
    for key in way:
        place = place[key]
    place[last] = odd
    return [*events[:number], changed, *events[number + 1 :]]


def agent(name: str, folder: Path) -> StreamAgent:
    connection = Connection(name=name, supervisor=SupervisorClient(), root=folder, base_env={})
    made: StreamAgent = import_module(f"capsule.agents.{name}").connect(connection)
    return made


def said(reading: StreamResult | None) -> bytes:
    """As it goes into the journal, which takes nothing but proper text and numbers of sane size."""
    return msgspec.json.encode((reading.failure, reading.usage)) if reading else b""


@pytest.mark.parametrize(("name", "recording"), STREAMS)
def test_no_odd_value_anywhere_in_a_stream_breaks_its_reading(name: str, recording: str, tmp_path: Path) -> None:
    path, chance, reader = tmp_path / "log.events", random.Random(f"{name} {recording}"), agent(name, tmp_path)
    lines = (RECORDINGS / name / f"{recording}.jsonl").read_bytes().splitlines()
    events = [event for line in lines if (event := decoded(line)) is not None]
    every = [(number, way) for number, event in enumerate(events) for way in spots(event)]
    for spot in chance.sample(every, min(TRIES, len(every))):
        changed = with_odd(events, spot, chance.choice(ODD))
        path.write_text("".join(f"{json.dumps(event)}\n" for event in changed))
        assert said(reader.read(Events(path), chance.choice(ENDS), "")) is not None
        shown = decoded(json.dumps(changed[spot[0]]).encode())
        assert isinstance(reader.activity(shown or Event()), str)


def test_there_are_streams_of_every_agent_that_reports() -> None:
    assert {name for name, _ in STREAMS} == {"claude", "codex", "gemini", "opencode"}
