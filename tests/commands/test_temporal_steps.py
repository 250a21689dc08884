"""A step of a mission is done on any machine that has a clone, and the next one on any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.core.event import Proposed, Reopened, StepBegun, StepEnded

from ..git_server import GitServer, git_server, moves_of, run
from .conftest import ITEM, Project, honest, said
from .temporal_driver import Driver, begin_step, do_step

MAIN = "refs/heads/main"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "server") as served:
        yield served


@pytest.fixture
def hosts(a_project: Project, server: GitServer, tmp_path: Path) -> list[Project]:
    """Two clones of one remote, on two machines."""
    bare = server.host(a_project.path)
    made = []
    for name in ("left", "right"):
        folder = tmp_path / name
        folder.mkdir()
        run("clone", "-q", str(bare), str(folder / "project"))
        host = Project(folder / "project", folder)
        host.git("config", "user.name", "Ada")
        host.git("config", "user.email", "ada@example.org")
        host.git("remote", "set-url", "origin", server.url())
        host.always |= {"CAPSULE_MERGE__TO": "remote", "CAPSULE_ENGINE": "temporal", "CAPSULE_PROJECT__ID": "test"}
        made.append(host)
    return made


@pytest.mark.slow
def test_a_mission_is_merged_by_steps_on_one_machine(hosts: list[Project], server: GitServer) -> None:
    driver = Driver(hosts[:1], ITEM)
    last = driver.to_the_end()
    assert (last.word, last.trouble) == ("done", None)
    assert run("show", "main:answer", cwd=server.repository()) == "42"


@pytest.mark.promise("machines.any")
def test_steps_of_a_mission_are_done_by_turns_on_two_machines(hosts: list[Project], server: GitServer) -> None:
    driver = Driver(hosts, ITEM)
    last = driver.to_the_end()
    assert (last.word, last.trouble) == ("done", None)
    assert run("show", "main:answer", cwd=server.repository()) == "42"
    assert len(moves_of(server.repository(), MAIN)) == 1
    keys = [event.key for event in driver.events if isinstance(event, StepEnded)]
    assert len(keys) == len({*keys})
    assert {event.commit for event in driver.events if isinstance(event, Proposed)} == {driver.state.facts["merged"]}


@pytest.mark.promise("machines.record")
def test_a_step_that_is_not_on_record_is_done_again_by_another_machine(hosts: list[Project], server: GitServer) -> None:
    driver = Driver(hosts, ITEM)
    steps = driver.steps()
    while not (driver.state.to_do and driver.state.to_do[0] == "execute"):
        next(steps)
    unheard = do_step(hosts[0], driver.task("execute#1", spawns=True))
    assert any(isinstance(event, StepEnded) for event in unheard.events)
    heard = do_step(hosts[1], driver.task("execute#1", spawns=True))
    assert heard.at != unheard.at
    assert run("rev-parse", f"refs/capsule/events/{ITEM}", cwd=server.repository()) == heard.at


@pytest.mark.promise("machines.any")
def test_a_machine_begins_with_the_settings_that_the_remote_has_by_then(
    hosts: list[Project], server: GitServer
) -> None:
    driver, (first, second) = Driver(hosts, ITEM), hosts
    first.write(".capsule/config.yaml", "execution: {max_retries: 7}\n")
    first.git("add", "-f", ".capsule/config.yaml")
    first.git("commit", "-q", "-m", "settings")
    first.git("push", "-q", "origin", "HEAD:main")
    do_step(second, driver.task())
    assert second.head() == run("rev-parse", "main", cwd=server.repository())
    assert (second.path / ".capsule" / "config.yaml").read_text() == "execution: {max_retries: 7}\n"


@pytest.mark.promise("machines.record")
def test_what_lies_on_a_machine_where_a_mission_is_continued_is_no_edit_of_a_person(
    hosts: list[Project], server: GitServer
) -> None:
    for host in hosts:
        host.play(honest(execute_review=[said("ERROR", "no light"), said("PASS")]))
    driver = Driver(hosts, ITEM)
    assert driver.to_the_end().word == "failed"
    for host in hosts:
        assert host.worktree.exists()
        (host.worktree / "answer").write_text("41, of an agent that was lost\n")
    [reopened] = driver.do(driver.task()).events
    assert isinstance(reopened, Reopened) and reopened.checkpoint is None
    driver.to_the_end()
    assert run("show", "main:answer", cwd=server.repository()) == "42"


@pytest.mark.promise("machines.record")
def test_the_place_of_a_mission_that_went_on_meanwhile_is_not_tidied_away(
    hosts: list[Project], server: GitServer
) -> None:
    driver = Driver(hosts, ITEM)
    steps = driver.steps()
    while not (driver.state.to_do and driver.state.to_do[0] == "execute"):
        next(steps)
    late = replace(driver.task(), tidies=True)
    next(steps)
    for host in hosts:
        do_step(host, late)
        assert host.worktree.exists()


@pytest.mark.promise("machines.record")
def test_an_agent_of_a_lost_machine_is_on_record_with_the_step_that_is_done_again(
    hosts: list[Project], server: GitServer
) -> None:
    driver = Driver(hosts, ITEM)
    steps = driver.steps()
    while not (driver.state.to_do and driver.state.to_do[0] == "execute"):
        next(steps)
    began = "2026-02-11T09:30:00Z"
    report = driver.do(replace(driver.task("execute#1", spawns=True), lost=(began,)))
    begun = [event for event in report.events if isinstance(event, StepBegun)]
    assert [(event.key, event.spawns) for event in begun] == [("execute#1", True)] * 2 and begun[0].at == began
    assert [event.key for event in report.events if isinstance(event, StepEnded)] == ["execute#1"]
    assert [event.attempt for event in begun] == [1, 1], "a lost one is no retry"


@pytest.mark.promise("machines.record")
def test_a_machine_that_comes_back_after_another_took_over_writes_nothing(
    hosts: list[Project], server: GitServer
) -> None:
    driver = Driver(hosts, ITEM)
    steps = driver.steps()
    while not (driver.state.to_do and driver.state.to_do[0] == "execute"):
        next(steps)
    late = driver.task("execute#1", spawns=True)
    heard = do_step(hosts[1], driver.task("execute#1", spawns=True))
    with begin_step(hosts[0], late) as zombie:
        assert zombie.wait() != 0
    assert run("rev-parse", f"refs/capsule/events/{ITEM}", cwd=server.repository()) == heard.at
