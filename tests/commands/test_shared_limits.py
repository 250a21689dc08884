"""A provider's limit that one mission finds is waited for by all that use the same agent."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from capsule.core.event import LIMITS, Limited, StepBegun, Waiting
from tests.costs import LONG, eventually

from .conftest import PASS
from .test_jobs import Shelf, shelf

__all__ = ["shelf"]
pytestmark = pytest.mark.slow

SECONDS = 6
LIMIT = f"Rate limit reached for requests. Please try again in {SECONDS}s."
NO_END = "Rate limit reached for requests."


def line(kind: str, **fields: object) -> str:
    return f"echo '{json.dumps({'type': kind, **fields})}'"


@pytest.fixture
def limited(shelf: Shelf, tmp_path: Path, request: pytest.FixtureRequest) -> Shelf:
    """A shelf whose agent's provider turns the first one away; each start of an agent is a line in `tmp_path/tries`."""
    done = {"type": "agent_message", "text": json.dumps({**PASS, "summary": "made it"})}
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    script = [
        "#!/bin/sh",
        '[ "$1" = --version ] && echo "codex-cli 0.50.0" && exit',
        f"echo $CAPSULE_ITEM >> {tmp_path}/tries",
        line("thread.started", thread_id="t"),
        f"if mkdir {tmp_path}/limited 2> /dev/null; then",
        line("turn.failed", error={"message": getattr(request, "param", LIMIT)}),
        "exit 1",
        "fi",
        'echo clay > "$CAPSULE_ITEM" && git add "$CAPSULE_ITEM" && git commit -q -m "$CAPSULE_COMMIT_MSG"',
        line("item.completed", item=done),
        line("turn.completed", usage={}),
    ]
    program.write_text("\n".join(script) + "\n")
    program.chmod(0o755)
    shelf.always |= {"PATH": f"{program.parent}:{os.environ['PATH']}", "CAPSULE_AGENT": "codex"}
    return shelf


def tries(tmp_path: Path) -> list[str]:
    return (tmp_path / "tries").read_text().split()


def found(shelf: Shelf) -> list[str]:
    return [event.mission for event in shelf.events(LIMITS) if isinstance(event, Limited)]


@pytest.mark.promise("jobs.one-limit")
@pytest.mark.parametrize("limited", [LIMIT, NO_END], ids=["known-end", "unknown-end"], indirect=True)
def test_missions_of_the_same_run_wait_for_a_limit_that_one_of_them_found(limited: Shelf, tmp_path: Path) -> None:
    with limited.working("--jobs", "1", "--output", "plain") as run:
        assert eventually(lambda: found(limited) == ["cup"]), limited.said.read_text()
        assert limited.capsule("jobs", "2").code == 0
        assert run.wait(5 * LONG) == 0, limited.said.read_text()
    said = limited.said.read_text()
    assert "(found by cup). Waiting" in said, said
    waits = [event for event in limited.events("jug") if isinstance(event, Waiting)]
    assert len(waits) == 1 and 0 < waits[0].seconds <= SECONDS * 1.25
    assert tries(tmp_path).count("cup") == 2, "turned away once"
    assert tries(tmp_path).count("jug") == 1 and len(tries(tmp_path)) == 5, "no try was spent"
    assert found(limited) == ["cup"], "what others found is not found anew"
    assert len(limited.merged()) == 4


@pytest.mark.promise("jobs.one-limit")
def test_another_run_waits_too_and_can_be_stopped_meanwhile(limited: Shelf, tmp_path: Path) -> None:
    first = limited.path.parent / "first"
    with limited.working("cup"):
        assert eventually(lambda: found(limited) == ["cup"]), limited.said.read_text()
        limited.said.rename(first)
        with limited.working("jug", "--output", "plain") as run:
            assert eventually(lambda: any(isinstance(event, Waiting) for event in limited.events("jug")))
            os.kill(run.pid, signal.SIGINT)
            assert run.wait(LONG) == 130, limited.said.read_text()
        assert "(found by cup). Waiting" in limited.said.read_text()
        assert tries(tmp_path) == ["cup"]
    said = limited.capsule("run", "jug")
    assert said.code == 0, "nobody waits for that limit any more, and a person may know better"
    begun = [event.attempt for event in limited.events("jug") if isinstance(event, StepBegun) and event.spawns]
    assert set(begun) == {1} and tries(tmp_path).count("jug") == 1, "no retry was spent"
    assert sum(isinstance(event, Waiting) for event in limited.events("jug")) == 1
