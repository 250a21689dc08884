"""One engine of decisions, and two that drive it: the same mission ends alike on this machine and on Temporal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from capsule.core.event import Abandoned, Event, MovedByHand, Recorded, Reopened, Returned, StepEnded, kind
from tests.commands.conftest import TESTS, Project, Script, bead, begin, honest, said
from tests.costs import LONG, eventually
from tests.git_server import GitServer, git_server, run
from tests.live.temporal_server import NAMESPACE, TemporalServer, temporal_server

TOLD = (StepEnded, Returned, Reopened, MovedByHand, Recorded, Abandoned)
FALSE = [said("PASS", write={"answer": "43\n"}), said("PASS", write={"answer": "42\n"})]
SCRIPTS: dict[str, Script] = {
    "honest": honest(),
    "a refuted claim": honest(execute=FALSE),
    "work that is sent back": honest(execute_review=[said("NEEDS_WORK", "Say it in words."), said("PASS")]),
    "a status that there is not": honest(execute=[said("BLOCKED", "Which answer?")]),
    "retries used up": honest(execute=[said("PASS", write={"answer": "43\n"})] * 9),
    "an agent that gives up": honest(sign_off=[said("ERROR", "No.")]),
    "no signal": honest(test_review=[{"run": ["echo nothing"]}]),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, temporal_server_program: Path) -> Iterator[TemporalServer]:
    with temporal_server(temporal_server_program, tmp_path_factory.mktemp("temporal"), NAMESPACE) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "server") as served:
        yield served


@pytest.mark.promise("machines.alike")
@pytest.mark.sweep(cases=3, rest="soak")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=[*SCRIPTS])
def test_a_mission_ends_alike_on_both_engines(
    server: GitServer, engine: TemporalServer, tmp_path: Path, script: Script
) -> None:
    here = a_project(tmp_path / "here", server, script)
    there = a_project(tmp_path / "there", server, script)
    there.always |= {
        "CAPSULE_ENGINE": "temporal",
        "CAPSULE_PROJECT__ID": f"p{abs(hash(tmp_path))}",
        "CAPSULE_TEMPORAL__ADDRESS": engine.address,
        "CAPSULE_TEMPORAL__NAMESPACE": NAMESPACE,
    }
    first = here.run()
    with a_worker(there):
        second = there.run()
        assert story(there) == story(here), (first, second)
    assert second.code == first.code, (first, second)
    assert tree(server, "there") == tree(server, "here")


def story(project: Project) -> list[tuple[str, ...]]:
    """How each step ended, and what followed; ids of commits, and how often a step was begun anew, may differ."""
    return [_row(event) for event in events_of(project) if isinstance(event, TOLD)]


def _row(event: Event) -> tuple[str, ...]:
    if isinstance(event, StepEnded):
        made = event.decision
        return event.key, made.verdict.value, made.move.value, re.sub(r"[0-9a-f]{12,}", "ID", made.reason)
    return (kind(event),)


def events_of(project: Project) -> list[Event]:
    project.capsule("status")  # which follows what other machines have done
    return project.events()


def tree(server: GitServer, name: str) -> str:
    return run("rev-parse", "main^{tree}", cwd=server.repository(name))


def a_project(folder: Path, server: GitServer, script: Script, files: Mapping[str, str] | None = None) -> Project:
    """A project with one item, whose main is on the server; `files` are in it, too."""
    folder.mkdir()
    repo = begin(folder / "project")
    repo.write(".capsule/config.yaml", "evidence: {test: sh tests/all.sh}\nmerge: {to: remote}\n")
    repo.write("tests/all.sh", TESTS)
    repo.write("tests/test_start.sh", "test -f answer\n")
    repo.write("answer", "41\n")
    repo.write(".beads/issues.jsonl", f"{json.dumps(bead())}\n")
    repo.commit("start", **(files or {}))
    server.host(repo.path, folder.name)
    repo.git("remote", "add", "origin", server.url(folder.name))
    project = Project(repo.path, folder)
    project.play(script)
    return project


@contextmanager
def a_worker(project: Project, slots: int = 2) -> Iterator[None]:
    log = project.path.parent / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "capsule", "worker", "--slots", str(slots)],
            cwd=project.path,
            env=project.environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        assert eventually(lambda: "works for" in log.read_text(), LONG), log.read_text()
        yield
    finally:
        process.terminate()
        assert process.wait(LONG) == 0, log.read_text()
