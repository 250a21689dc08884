"""`capsule demo --backlog`, from end to end: real git, a real backlog, real tests; only the agent is played."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import capsule
from capsule.commands.demo import SHOP, read_demo
from tests.costs import LONG, processor_seconds
from tests.shared import settings_of_nobody

from ..house.pages import ROOT, blocks, pattern

pytestmark = pytest.mark.slow

PACKAGE = Path(capsule.__file__).parent
SCRIPT = "capsule/templates/demo-backlog/demo.script.yaml"
COMMITS = read_demo(SHOP).commits


class Played(NamedTuple):
    code: int
    said: str
    project: Path
    worked: float

    def git(self, *args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=self.project, capture_output=True, text=True, check=True
        ).stdout.strip()


def play(project: Path, **env: str) -> Played:
    """Both streams in one, as on a terminal."""
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "capsule", "demo", "--backlog", str(project)],
        env=settings_of_nobody() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=5 * LONG,
    )
    return Played(done.returncode, done.stdout, project, processor_seconds() - before)


def play_another(tmp_path: Path, *differences: tuple[str, str]) -> Played:
    """The demo with a script that is different."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "capsule")
    text = (source / SCRIPT).read_text()
    for find, replace in differences:
        assert find in text
        text = text.replace(find, replace, 1)
    (source / SCRIPT).write_text(text)
    return play(tmp_path / "demo", PYTHONPATH=str(source))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once, on a machine whose settings say otherwise."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "home/.config/capsule").mkdir(parents=True)
    (folder / "home/.config/capsule/config.yaml").write_text("agent: codex\nverify: off\nproject: {prefix: APP}\n")
    bent = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", "CAPSULE_EXECUTION__DEFAULT_PHASE_CAP": "1"}
    return play(folder / "it's here", **bent)


def test_it_comes_out_as_promised_within_half_a_minute(played: Played) -> None:
    assert played.code == 0, played.said
    assert played.worked < 30


def test_it_tells_of_nothing_that_its_reader_could_mend(played: Played) -> None:
    assert "retired" not in played.said


@pytest.mark.promise("backlog.demo", "004-agents.scripted")
def test_every_step_is_one_commit_and_the_refuted_one_is_none(played: Played) -> None:
    assert played.git("log", "--reverse", "--format=%s").splitlines() == list(COMMITS)
    assert played.git("status", "--porcelain") == ""
    assert played.git("show", "--name-only", "--format=", "HEAD~2").splitlines() == [
        "BACKLOG.yaml",
        f"_worklog/{time.strftime('%Y-%m', time.gmtime())}.md",
        "changes/WRK-002_give-a-discount/WRK-002_give-a-discount_SPEC.md",
        "shop/prices.py",
        "tests/test_discount.py",
    ]


def test_both_ideas_are_code_that_works(played: Played) -> None:
    code = "from shop import prices, receipt; assert prices.to_pay(10000) == 9000; assert receipt.amount(5) == '0.05'"
    subprocess.run([sys.executable, "-B", "-c", code], cwd=played.project, check=True)
    assert not (played.project / "BACKLOG.yaml").read_text().count("- id:")


def test_the_lie_is_shown_with_what_was_seen(played: Played) -> None:
    told = played.said.partition("Caught: 1 false claim\n")[2].partition("\n\n")[0]
    assert told.splitlines() == [
        "  WRK-001 build#1 said SUBPHASE_COMPLETE: “amount() is there and tested”",
        "    claimed: all tests pass",
        "    seen:    tests/test_receipt.py::AmountTest.test_an_amount_has_two_digits_after_the_point fails",
    ]


@pytest.mark.promise("004-pipeline.progress")
def test_what_is_typed_and_what_comes_of_it_stand_in_order(played: Played) -> None:
    """Also where both streams go to one file."""
    stations = [
        "The agent is scripted: it plays demo.script.yaml.",
        "$ capsule init",
        "made   BACKLOG.yaml",
        "$ capsule add 'Print a receipt'",
        "WRK-001  Print a receipt",
        "$ capsule status",
        "2 items: 2 new",
        "$ capsule run --no-tui",
        "Follow-ups: 1 new item added to backlog (WRK-003)",
        "[WRK-001][ARCHIVE] Completed: Print a receipt",
        "[WRK-003][ARCHIVE] Closed: Make large orders cheaper (duplicate of WRK-002)",
        "$ capsule status",
        "1 item: 1 blocked",
        "$ capsule unblock WRK-002 --notes 'Ten percent from a total of 100.00 on.'",
        "WRK-002 is researching again.",
        "$ capsule run --no-tui",
        "[WRK-002][ARCHIVE] Completed: Give a discount",
        "$ git log --oneline --reverse",
    ]
    lines = iter(played.said.splitlines())
    assert [station for station in stations if station not in lines] == []


def test_the_page_about_backlogs_shows_what_it_prints(played: Played) -> None:
    [shown] = blocks((ROOT / "docs/how-to/work-a-backlog.md").read_text(), "backlog-demo")
    assert pattern(f"...\n{shown}...\n").fullmatch(played.said), played.said


def test_what_it_tells_to_look_at_is_there(played: Played) -> None:
    assert "  capsule show WRK-001" in played.said.splitlines()
    shown = subprocess.run(
        [sys.executable, "-m", "capsule", "show", "WRK-001"],
        cwd=played.project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "REFUTED" in shown.stdout
    [month] = (played.project / "_worklog").glob("*.md")
    assert month.read_text().count("| archive | ") == 3


@pytest.mark.promise("backlog.demo")
def test_a_demo_that_does_not_come_out_as_promised_says_so(tmp_path: Path) -> None:
    """In a copy of the script the first item gets nowhere: the demo does not pretend otherwise."""
    other = play_another(tmp_path, ("result: PHASE_COMPLETE", "result: FAILED"))
    assert other.code == 1
    complaints = other.said.split("capsule: the demo did not end as promised: ")[1:]
    told = [complaint.partition("\n")[0] for complaint in complaints]
    assert told[:2] == ["`capsule run --no-tui` failed.", "0 of 1 false claims were caught."]
    assert told[2].startswith("the commit “[WRK-001][PRD] Two requirements” was promised, and “[WRK-001][")
    assert told[3].endswith(f" of {len(COMMITS)} commits were made.")
    assert told[4:] == ["WRK-001 is not closed.", "WRK-002 is not closed."]


def test_whether_there_is_a_sandbox_is_for_the_user_to_say(tmp_path: Path) -> None:
    refused = play(tmp_path / "demo", CAPSULE_SANDBOX="required")
    assert refused.code != 0
    assert "require a sandbox, and bubblewrap is not installed" in refused.said


def test_a_directory_that_exists_is_refused(tmp_path: Path) -> None:
    refused = play(tmp_path)
    assert refused.code == 1
    assert refused.said == f"capsule: {tmp_path} exists already.\n  Name a directory that does not exist yet.\n"
