"""The demo project kept by the real bd of each era: made, shown, and its whole epic run as one campaign."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.costs import LONG, eventually
from tests.live.demo import BEADS, EPIC, FIRST, SECOND, Demo


@pytest.fixture
def demo(any_bd: Path, tmp_path: Path) -> Demo:
    return Demo(tmp_path, any_bd)


def test_the_project_is_made_whole_and_shown(demo: Demo) -> None:
    assert demo.statuses() == dict.fromkeys(BEADS, "open")
    assert demo.repo.status() == ""
    assert demo.repo.git("log", "--format=%s", "main").count("\n") == 0
    shown = demo.capsule("status")
    assert shown.returncode == 0, shown.stderr
    assert all(name in shown.stdout for name in BEADS)
    demo.assert_sound()


def test_the_whole_epic_is_run_as_one_campaign(demo: Demo) -> None:
    ran = demo.capsule("run", EPIC, "--no-tui")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert demo.statuses() == dict.fromkeys(BEADS, "closed")
    assert demo.merges() == [FIRST, SECOND]
    main = demo.repo.git("rev-parse", "--short=12", "main")
    assert main in demo.beads()[SECOND]["close_reason"]
    demo.assert_sound()


@pytest.mark.promise("merge.tracker-files")
@pytest.mark.sweep(rest="soak")
@pytest.mark.parametrize("words", [("run", FIRST), ("run",), ("run", EPIC)], ids=["item", "queue", "epic"])
def test_where_the_settings_say_so_nothing_of_ours_is_left_uncommitted(words: tuple[str, ...], demo: Demo) -> None:
    (demo.repo.path / "mine").write_text("not committed\n")
    ran = demo.capsule(*words, "--no-tui", TRACKER__COMMIT="true")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert FIRST in demo.merges()
    assert demo.repo.status() == "?? mine"
    assert demo.statuses()[FIRST] == "closed"
    assert demo.repo.status() == "?? mine"
    assert "git commit" not in ran.stdout


def test_the_queue_takes_what_bd_calls_ready_the_most_urgent_first(demo: Demo) -> None:
    demo.told("update", SECOND, "--priority=0")
    ran = demo.capsule("run", "--no-tui")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert demo.merges() == [SECOND, FIRST]
    assert {name: demo.statuses()[name] for name in (FIRST, SECOND)} == {FIRST: "closed", SECOND: "closed"}
    demo.assert_sound()


def test_what_is_blocked_in_bd_is_not_run(demo: Demo) -> None:
    waited_for = json.loads(demo.told("create", "Ask the lawyers", "--type=task", "--json"))["id"]
    demo.told("update", waited_for, "--status=blocked")
    demo.told("dep", "add", SECOND, waited_for)
    ran = demo.capsule("run", "--no-tui")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert demo.merges() == [FIRST]
    assert (demo.statuses()[FIRST], demo.statuses()[SECOND]) == ("closed", "open")
    assert demo.beads()[waited_for]["status"] == "blocked"
    demo.assert_sound()


def test_a_bead_closed_by_hand_meanwhile_is_not_merged(demo: Demo) -> None:
    runner = demo.start("run", FIRST, "--no-tui")
    assert eventually(lambda: demo.has_begun(FIRST) or runner.poll() is not None)
    assert demo.statuses()[FIRST] == "in_progress"
    demo.told("close", FIRST, "--reason=not wanted any more")
    said = runner.communicate(timeout=5 * LONG)
    assert runner.returncode != 0, said
    assert f"{FIRST} was closed in the tracker while the mission ran; nothing was merged" in "".join(said)
    assert demo.merges() == []
    assert demo.beads()[FIRST]["close_reason"] == "not wanted any more"


class Hammer:
    """Somebody else at work with the same bd, as fast as it goes. What bd turns away is tried again."""

    def __init__(self, demo: Demo) -> None:
        self._demo, self._enough = demo, threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.titles: list[str] = []
        self.turned_away = 0

    def __enter__(self) -> Hammer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._enough.is_set():
            title = f"Thought {len(self.titles) + 1}"
            done = self._demo.ask("create", title, "--priority=4", "--type=chore", "--json")
            if done.returncode == 0:
                self.titles.append(title)
            else:
                self.turned_away += 1


def test_somebody_else_busy_with_the_same_beads_loses_nothing_and_breaks_nothing(demo: Demo) -> None:
    with Hammer(demo) as other:
        ran = demo.capsule("run", EPIC, "--no-tui")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert demo.statuses() == dict.fromkeys(BEADS, "closed")
    assert demo.merges() == [FIRST, SECOND]
    assert len(other.titles) > 3
    titles = [bead["title"] for bead in demo.beads().values()]
    assert sorted(title for title in titles if title.startswith("Thought ")) == sorted(other.titles)
    demo.assert_sound()
