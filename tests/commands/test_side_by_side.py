"""Missions side by side: each has numbers of its own, and is not blamed for what another did to its tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from capsule.core.event import Observed
from capsule.project import open_project
from capsule.system.runner_slots import PORTS_EACH, PORTS_FROM, RunnerSlots
from capsule.workspaces.state_store import commit_files
from capsule.workspaces.trunk import GitTrunk
from tests.costs import LONG

from .backlog_project import BacklogProject
from .conftest import ITEM, Project, honest, said

NUMBERS = 'echo "$CAPSULE_SLOT $CAPSULE_PORT_BASE"'


@pytest.mark.promise("side-by-side.slots")
def test_agents_and_tests_of_a_mission_have_the_same_slot_and_ports(a_project: Project, tmp_path: Path) -> None:
    told = tmp_path / "told"
    write = {"answer": "42\n"}
    a_project.play(honest(execute=[said("PASS", run=[f"{NUMBERS} >> {told}.agent"], write=write)]))
    with closing(RunnerSlots(a_project.home / ".cache" / "capsule")) as other:
        assert other.slot == 0
        answer = a_project.run(CAPSULE_EVIDENCE__TEST=f"{NUMBERS} >> {told}.tests; sh tests/all.sh")
    assert answer.code == 0, answer
    for who in ("agent", "tests"):
        assert {*Path(f"{told}.{who}").read_text().splitlines()} == {f"1 {PORTS_FROM + PORTS_EACH}"}


RUN_BOTH = """
import json, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
command = [sys.executable, "-m", "capsule", "run", sys.argv[1]]
runs = [subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL) for cwd, env in json.load(sys.stdin)]
sys.exit(max(run.wait() for run in runs))
"""


def two_that_want(port: int, project: Project, folder: Path) -> tuple[Project, Project]:
    """The same project twice, for the same user, with a suite that serves at this port for a second."""
    python = shutil.which("python3", path=project.environment()["PATH"])
    serve = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(1)"
    project.write("tests/serve.py", serve)
    project.write("tests/test_serve.sh", f"{python} -S tests/serve.py\n")
    project.commit("a server")
    (folder / "beside").mkdir()
    shutil.copytree(project.path, folder / "beside" / "project", symlinks=True)
    other = Project(folder / "beside" / "project", folder / "beside")
    other.always |= {**project.always, "HOME": str(project.home)}
    return project, other


def asked_alone(both: tuple[Project, Project]) -> bool:
    """Tell whether tests of either had to be asked again; both have to be merged."""
    assert [project.answer() for project in both] == ["42", "42"]
    events = [event for project in both for event in project.events()]
    return any(event.observation.alone for event in events if isinstance(event, Observed))


@pytest.mark.slow
@pytest.mark.promise("side-by-side.asked-alone")
def test_two_suites_that_want_the_same_port_are_both_merged(a_project: Project, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    both = two_that_want(port, a_project, tmp_path)
    with both[0].running() as one, both[1].running() as two:
        assert (one.wait(5 * LONG), two.wait(5 * LONG)) == (0, 0)
    assert asked_alone(both)


@pytest.mark.slow
@pytest.mark.promise("side-by-side.asked-alone")
def test_two_suites_that_want_port_8000_are_both_merged(a_project: Project, tmp_path: Path) -> None:
    """On a machine of which they have the network to themselves."""
    alone = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("ip") or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network can be made here (unshare --net, ip)")
    both = two_that_want(8000, a_project, tmp_path)
    given = json.dumps([(str(each.path), each.environment()) for each in both])
    command = [*alone, sys.executable, "-c", RUN_BOTH, ITEM]
    ran = subprocess.run(command, input=given, text=True, capture_output=True, check=False, timeout=5 * LONG)
    assert ran.returncode == 0, ran
    assert asked_alone(both)


@pytest.mark.promise("side-by-side.disk")
def test_doctor_and_run_warn_where_a_mission_does_not_fit(a_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is room for a mission" in a_project.say("doctor", "--no-tests").out
    usage = shutil.disk_usage(a_project.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))  # a real one takes a mount
    words = "1.0 MB are left on the disk of"
    assert words in a_project.say("doctor", "--no-tests").out
    for target in ((ITEM,), ()):
        ran = a_project.say("run", *target)
        assert words in ran.out + ran.err, target


@contextmanager
def while_other_missions_move_main(project: BacklogProject) -> Iterator[None]:
    """Commit a document to main again and again, as each step of a mission does."""
    over, git = threading.Event(), open_project(str(project.path)).git

    def steps() -> None:
        number, trunk = 0, GitTrunk(git, "main")
        while not over.wait(0.1):
            number += 1
            with trunk.about_to_move():
                commit_files(git, ("BACKLOG.yaml",), {"other.md": f"{number}\n".encode()}, f"step {number}")

    others = threading.Thread(target=steps)
    others.start()
    try:
        yield
    finally:
        over.set()
        others.join()


@pytest.mark.slow
@pytest.mark.promise("merge-queue.all-merged")
@pytest.mark.parametrize("publish", ["steps", "merge"])
def test_work_gets_in_however_often_steps_of_others_move_main(a_backlog: BacklogProject, publish: str) -> None:
    """Tests take longer than others need for a step; after two tries they wait for as long as the tests take."""
    a_backlog.settings(f"workspace: {{publish: {publish}}}")
    a_backlog.test = "test ! -e answer || { sleep 0.7; grep -qx 42 answer; }"
    item = a_backlog.add()
    with while_other_missions_move_main(a_backlog):
        said = a_backlog.capsule("run", item)
    assert (said.code, a_backlog.ids(), a_backlog.git("show", "main:answer")) == (0, [], "42"), said
    assert int(a_backlog.git("show", "main:other.md")) > 3
