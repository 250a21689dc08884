"""The fake bd says what the real one said: era by era against recordings, and for the others what is known of them.

0.44.0, 0.47.1 and 1.0.5 were run and recorded (tests/live runs them again). 0.60.0, 0.63.3 and 1.0.0 follow their
source; 0.49.5, 0.50.3 and 2.0 follow bd's documents and threads: those six are not measured.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.fake_bd import ERAS, beads, calls, install, switch
from tests.contracts.fake_bd.eras import Era
from tests.contracts.fake_bd.program import Call
from tests.contracts.fake_bd.script import RECORDINGS, ROWS, Answer, recorded, run

MEASURED = sorted(file.stem for file in RECORDINGS.glob("*.json"))
Fake = Callable[..., subprocess.CompletedProcess[str]]


def in_process(era: str) -> Callable[[list[str], Path, dict[str, str]], tuple[int, str, str]]:
    """The same program without a process of its own: the script is long."""

    def ask(argv: list[str], cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _only(env):
            code = Call(Era(era), {}, argv).answer()
        return code, out.getvalue(), err.getvalue()

    return ask


@contextlib.contextmanager
def _only(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Answer]]:
    known: dict[str, dict[str, Answer]] = {}

    def of(era: str) -> dict[str, Answer]:
        if era not in known:
            said = run(in_process(era), Era(era).version, tmp_path_factory.mktemp("era"))
            known[era] = {answer.name: answer for answer in said}
        return known[era]

    return of


def test_the_eras_that_can_be_run_were_recorded() -> None:
    assert {"0.44.0", "0.47.1", "1.0.5"} <= set(MEASURED)


@pytest.mark.promise("trackers.fake-bd")
@pytest.mark.parametrize("era", [era for era in ERAS if era in MEASURED])
def test_it_says_what_the_real_one_said(era: str, answers: Callable[[str], dict[str, Answer]]) -> None:
    said = answers(era)
    real = recorded(era)
    assert list(said) == [answer.name for answer in real]
    assert [answer for answer in real if said[answer.name] != answer] == []


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("trackers.fake-bd")
@pytest.mark.parametrize("era", ERAS)
def test_each_era_has_its_shapes(era: str, answers: Callable[[str], dict[str, Answer]]) -> None:
    said, version = answers(era), Era(era).version

    def data(name: str) -> Any:
        found = json.loads(said[name].stdout)
        return found["data"] if era == "2.0" else found

    assert data("version json")["version"] == version
    assert said["show nobody"].exit == (0 if version < "0.50" else 1)
    assert bool(said["show nobody"].stdout) == (version > "0.50")
    assert "no issue found" in said["show nobody"].stderr
    if era == "0.60.0":
        assert "unknown command" in said["import"].stderr
        return
    assert isinstance(data("show first"), list)
    assert isinstance(data("create child"), dict)
    assert data("create child")["id"] == "demo-1.1.3"
    assert ("dependency_count" in data("ready")[0]) == (version > "0.49")
    assert any("parent" in row for row in data("list")) == (version > "0.57")
    assert ("dependents" in data("show epic")[0]) == (version < "1.0.5")
    assert isinstance(data("comment")["id"], str if version > "0.63" else int)
    assert said["count: ready"].stdout == f"{100 if version > '1.0.3' else 10} rows"
    assert said["count: list"].stdout == "50 rows"
    assert said["close blocked"].exit == (1 if version > "0.57" else 0)
    assert ("blocked by open issues" in said["close blocked"].stderr) == (version != "0.44.0")
    assert ("open child" in said["close epic"].stderr) == (version > "0.57")


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Installed at its first call, in a project with the script's beads in it."""
    project, folder = tmp_path / "project", tmp_path / "bin"
    project.mkdir()

    def ask(*argv: str) -> subprocess.CompletedProcess[str]:
        if not (folder / "bd").exists():
            install(folder)
            _bd(folder, project, "init", "--prefix=demo")
            text = "".join(json.dumps(row) + "\n" for row in ROWS)
            assert _bd(folder, project, "import", "-", stdin=text).returncode == 0
        return _bd(folder, project, *argv)

    return ask


def _bd(folder: Path, project: Path, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{folder}:/usr/bin:/bin", "BEADS_ACTOR": "tester", "BD_ACTOR": "tester"}
    return subprocess.run(
        [folder / "bd", *argv], cwd=project, env=env, input=stdin, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_trouble_comes_as_it_was_asked_for(fake: Fake, tmp_path: Path) -> None:
    project = tmp_path / "project"
    fake("version")
    switch(project, noise="auto-import: 3 issues", noise_stderr="warning: permissions")
    noisy = fake("show", "demo-1", "--json")
    assert noisy.stdout.startswith("auto-import: 3 issues\n[")
    assert noisy.stderr == "warning: permissions\n"

    switch(project, locked=2)
    locked = [fake("close", "demo-5", "--json") for _ in range(3)]
    assert [done.returncode for done in locked] == [1, 1, 0]
    assert "locked" in locked[0].stderr

    switch(project, fail={"close": "disk full"})
    assert "disk full" in fake("close", "demo-2").stderr
    assert beads(project)["demo-2"]["status"] == "open"

    switch(project, taken="somebody")
    assert "already claimed by somebody" in fake("update", "demo-1.1.1", "--claim", "--json").stderr

    switch(project, schema_skew=True)
    assert "schema version mismatch" in json.loads(fake("export", "--json").stderr)["error"]

    switch(project, no_database=True)
    assert "no beads database found" in fake("export").stderr

    switch(project, version="1.2.1")
    assert json.loads(fake("version", "--json").stdout)["version"] == "1.2.1"
    install(tmp_path / "bin", "0.47.1", fail={"export": "of its own"})
    assert "of its own" in fake("export").stderr

    switch(project, too_old=True)
    assert "unknown flag: --claim" in fake("update", "demo-2", "--claim").stderr


def test_what_it_was_asked_and_did_is_written_down(fake: Fake, tmp_path: Path) -> None:
    project = tmp_path / "project"
    fake("show", "demo-1")
    switch(project, die_after={"close": "kill"}, before={"close": ["git", "--version"]})
    assert fake("close", "demo-2", "--reason=x").returncode == -signal.SIGKILL
    assert beads(project)["demo-2"]["status"] == "closed"
    (call,) = calls(project, "close")
    assert call["argv"] == ["close", "demo-2", "--reason=x"]
    assert call["changed"] == ["demo-2"]
    assert call["exit"] == -signal.SIGKILL
    assert call["started"] <= call["ended"]
    assert call["before"]["output"].startswith("git version")
    assert [each["command"] for each in calls(project)] == ["init", "import", "show", "close"]


def test_a_call_that_hangs_does_nothing_and_is_in_the_log(fake: Fake, tmp_path: Path) -> None:
    project = tmp_path / "project"
    fake("version")
    switch(project, hang=("close",), slow={"show": 0.2})
    with subprocess.Popen([tmp_path / "bin" / "bd", "close", "demo-2"], cwd=project) as hanging:
        while not calls(project, "close"):
            assert hanging.poll() is None
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            hanging.wait(0.3)
        hanging.kill()
    assert beads(project)["demo-2"]["status"] == "open"
    assert [(call["ended"], call["exit"]) for call in calls(project, "close")] == [(None, None)]
    fake("show", "demo-2")
    (call,) = calls(project, "show")
    assert call["ended"] - call["started"] >= 0.2


def test_two_at_once_lose_nothing(fake: Fake, tmp_path: Path) -> None:
    fake("version")
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: fake("create", f"Number {number}", "--parent=demo-2", "--json"), range(8)))
    assert {json.loads(each.stdout)["id"] for each in done} == {f"demo-2.{number}" for number in range(1, 9)}
    assert len(calls(tmp_path / "project", "create")) == 8


def test_a_worktree_shares_the_beads_of_its_repository(fake: Fake, tmp_path: Path) -> None:
    fake("version")
    tree, place = tmp_path / "tree", tmp_path / "project" / ".git" / "worktrees" / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {place}\n")
    assert json.loads(_bd(tmp_path / "bin", tree, "show", "demo-1", "--json").stdout)[0]["id"] == "demo-1"


@pytest.mark.parametrize(("name", "value"), [("era", "0.1"), ("hangs", ("close",))])
def test_what_it_does_not_know_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such"):
        install(tmp_path, **{name: value})
