"""`capsule demo`, from end to end: real git, real worktrees, real tests; only the agent is played."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import capsule
from capsule.commands.demo import SHOP, _look_around, read_demo
from capsule.commands.setup_template import TEMPLATE
from capsule.project import open_project
from capsule.system.lock import holder
from tests.costs import LONG, eventually, processor_seconds
from tests.shared import settings_of_nobody

from ..house.pages import ROOT, blocks, pattern
from .conftest import Project
from .terminal import Terminal

pytestmark = pytest.mark.slow

PACKAGE = Path(capsule.__file__).parent


class Played(NamedTuple):
    done: subprocess.CompletedProcess[str]
    project: Path
    worked: float

    def git(self, *args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=self.project, capture_output=True, text=True, check=True
        ).stdout.strip()

    def capsule(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "capsule", *words]
        env = settings_of_nobody()
        return subprocess.run(
            command, cwd=self.project, env=env, capture_output=True, text=True, check=False, timeout=2 * LONG
        )


def play(project: Path, **env: str) -> Played:
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "capsule", "demo", str(project)],
        env=settings_of_nobody() | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * LONG,
    )
    return Played(done, project, processor_seconds() - before)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once, on a machine whose settings say otherwise."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "home/.config/capsule").mkdir(parents=True)
    (folder / "home/.config/capsule/config.yaml").write_text("agent: codex\nverify: off\n")
    bent = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", "CAPSULE_EXECUTION__MAX_RETRIES": "0"}
    return play(folder / "it's here", **bent)


@pytest.mark.promise("commands.demo")
def test_it_comes_out_as_promised_within_half_a_minute(played: Played) -> None:
    assert played.done.returncode == 0, played.done.stderr
    assert played.worked < 30


def test_the_readme_shows_what_it_prints(played: Played) -> None:
    """Its last words are all that goes to stdout."""
    [shown] = blocks((ROOT / "README.md").read_text(), "demo")
    said = played.done.stderr + played.done.stdout
    assert pattern(f"...\n{shown}...\n").fullmatch(said), said


@pytest.mark.promise("commands.demo-honest")
def test_it_says_plainly_that_the_agent_is_scripted(played: Played) -> None:
    opening = played.done.stderr.splitlines()[:3]
    assert opening[0] == "The agent is scripted: it plays demo.script.yaml."
    assert opening[1] == "Everything else is real: git, worktrees, tests, gate, merge."
    assert opening[2] == f"The project is {played.project}"


@pytest.mark.promise("commands.demo")
def test_main_holds_two_merges_and_nothing_of_the_pipeline(played: Played) -> None:
    assert played.git("log", "--merges", "--reverse", "--format=%s", "main").splitlines() == [
        "Merge demo-1.1.1: Validate email format",
        "Merge demo-1.1.2: Validate phone format",
    ]
    names = played.git("ls-tree", "-r", "--name-only", "main").splitlines()
    assert not [name for name in names if "worklog" in name or name.startswith(".capsule")]
    assert played.git("status", "--porcelain", "--", "src", "tests") == ""
    assert played.git("worktree", "list").count("\n") == 0
    assert played.git("branch", "--format=%(refname:short)") == "main"


def test_both_tasks_work_and_are_closed(played: Played) -> None:
    code = "from src.contact import *; assert validate_phone('1' * 15) and not validate_phone('1' * 16)"
    subprocess.run([sys.executable, "-B", "-c", code], cwd=played.project, check=True)
    beads = [json.loads(line) for line in (played.project / ".beads/issues.jsonl").read_text().splitlines()]
    assert [bead["status"] for bead in beads] == ["open", "open", "closed", "closed"]


@pytest.mark.promise("commands.demo")
def test_the_three_lies_are_told_from_the_journal(played: Played) -> None:
    told = played.done.stdout.partition("Caught: 3 false claims\n")[2].partition("\n\n")[0]
    seen = "tests/test_phone.py::PhoneTest.test_rejects_more_than_fifteen_digits fails"
    assert told.count("said PASS") == 3
    assert "no test notices when validate_phone in src/contact.py is broken" in told
    assert f"claimed: all tests pass\n    seen:    {seen}" in told
    assert "claimed: the reviewed tests were not touched\n    seen:    tests/test_phone.py (changed)" in told


def test_a_review_sends_work_back(played: Played) -> None:
    facts = json.loads(played.capsule("show", "demo-1.1.1", "--json").stdout)
    verdicts = [attempt["verdict"] for attempt in facts["attempts"] if attempt["phase"] == "test-review"]
    assert verdicts == ["NEEDS_WORK", "PASS"]


def test_what_it_tells_to_type_next_works(played: Played) -> None:
    lines = played.done.stdout.splitlines()
    place = next(line for line in lines if line.startswith("  cd "))
    where = subprocess.run(["sh", "-c", f"{place} && pwd"], capture_output=True, text=True, check=True)
    assert where.stdout.strip() == str(played.project)
    assert "  capsule show demo-1.1.2" in lines
    assert "REFUTED" in played.capsule("show", "demo-1.1.2").stdout
    assert "==> sign-off#2 PASS" in played.capsule("logs", "demo-1.1.2").stdout
    assert (played.project / ".capsule/logs/demo-1.1.2/summary.md").is_file()
    assert lines[-1] == "  capsule setup-template --tracker=file my-demo && cd my-demo && capsule run demo-1.1.1"


@pytest.mark.parametrize("demo", [TEMPLATE, SHOP])
def test_what_it_tells_to_type_also_works_where_it_is_not_installed(
    demo: Path, a_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make demo`, in a clone."""
    bare, ours = tmp_path / "bare", tmp_path / "it's ours"
    for folder in (bare, ours):
        folder.mkdir()
    (ours / "capsule").write_text("#!/bin/sh\necho $PWD: $*\n")
    (ours / "capsule").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ours / "python"))

    project = open_project(str(a_project.path))

    def typed() -> str:
        lines = _look_around(read_demo(demo), project).splitlines()
        show = next(number for number, line in enumerate(lines) if line.startswith("  capsule show"))
        script = "\n".join(line for line in lines[1 : show + 1] if line.split()[0] not in ("git", "cat"))
        return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False).stdout

    monkeypatch.setenv("PATH", str(bare))
    assert typed().startswith(f"{a_project.path}: show ")
    monkeypatch.setenv("PATH", str(ours))
    assert "PATH=" not in _look_around(read_demo(demo), project)


def test_every_run_of_a_phase_keeps_its_own_output(played: Played) -> None:
    """Also where two runs begin in the same second."""
    shown = played.capsule("logs", "demo-1.1.2", "--phase", "execute").stdout
    assert [line.split()[1:3] for line in shown.splitlines() if line.startswith("==> ")] == [
        ["execute#1", "PASS"],
        ["execute#2", "REFUTED"],
        ["execute#3", "REFUTED"],
        ["execute#4", "PASS"],
    ]


@pytest.mark.promise("commands.demo")
def test_a_test_that_asks_for_nothing_goes_back_to_who_wrote_it(played: Played) -> None:
    facts = json.loads(played.capsule("show", "demo-1.1.2", "--json").stdout)
    moves = {attempt["key"]: (attempt["verdict"], attempt["move"]) for attempt in facts["attempts"]}
    assert moves["sign-off#1"] == ("REFUTED", "rework")
    assert moves["test-writer#2"] == ("PASS", "advance")
    assert facts["proof"]["line"] == (
        "red by name (1 new) · tests mended (3 of 3 mutants noticed) · green by name · 9 others unharmed · "
        "demanded 3 of 3 · canary seen · reviewed (its word)"
    )


@pytest.mark.promise("commands.demo-honest")
def test_a_demo_that_does_not_come_out_as_promised_says_so(tmp_path: Path) -> None:
    """In a copy of the script the first agent gives up: nothing is caught, and the demo does not pretend otherwise."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "capsule")
    script = source / "capsule/templates/demo-capsule/demo.script.yaml"
    text = script.read_text()
    script.write_text(text.replace("status: PASS", "status: ERROR", 1))
    assert script.read_text() != text
    other = play(tmp_path / "demo", PYTHONPATH=str(source))
    assert other.done.returncode == 1
    told = [line.partition(" promised: ")[2] for line in other.done.stderr.splitlines() if " promised: " in line]
    assert told == [
        "`capsule run demo-1.1.1 --workflow tdd --no-tui` failed.",
        "no review sent work back.",
        "0 of 3 false claims were caught.",
        "1 of 3 commits were made.",
        "demo-1.1.1 is not closed.",
        "demo-1.1.2 is not closed.",
    ]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    refused = play(tmp_path)
    assert (refused.done.returncode, refused.done.stdout) == (1, "")
    assert "is a git repository already" in refused.done.stderr


# ---- on a terminal


def on_a_terminal(tmp_path: Path) -> Terminal:
    return Terminal(("demo", "shown"), tmp_path, settings_of_nobody() | {"CI": ""}, (120, 40))


@pytest.mark.promise("screens.demo")
def test_on_a_terminal_it_shows_each_lie_and_ends_by_itself(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path) as terminal:
        assert terminal.shows("Agent says") and terminal.shows("Capsule saw")
        assert terminal.shows("REFUTED: sign-off claimed PASS, and the evidence says no")
        assert terminal.shows("2 merged · 3 lies caught")
        assert terminal.ends() == 0, terminal.afterwards
        assert "2 merged · 3 lies caught" in terminal.afterwards
        assert "Caught: 3 false claims" in terminal.afterwards and "capsule show demo-1.1.2" in terminal.afterwards


@pytest.mark.promise("screens.demo")
def test_ctrl_c_leaves_it_and_nothing_goes_on(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path) as terminal:
        assert terminal.shows("demo-1.1.1 test-writer")
        terminal.type("\x03")
        assert terminal.ends() == 130
        assert "The demo was stopped." in terminal.afterwards and "Traceback" not in terminal.afterwards
    locks = tmp_path / "shown/.git/capsule/locks"
    assert eventually(lambda: not [lock for lock in locks.glob("mission-*.lock") if holder(lock) is not None])
