"""The last words of a run: a sign, what it was about, what it took, what was caught, and one command to type next."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from capsule.app.missions import mission_state
from capsule.commands.summary import closing_words, dressed
from capsule.project import open_project
from capsule.reports.style import knows_links

from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .conftest import ITEM, Project, Said

CARD = """\
✓ x-1 is merged into main as c0ffee.
  The task · 3 s
  report:      .capsule/logs/x-1/summary.md
  next:        go"""


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with that report, and a terminal that knows links and colours."""
    for name in ("NO_COLOR", "TMUX", "STY", "COLUMNS", "VTE_VERSION", "TERM_PROGRAM", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VTE_VERSION", "7600")
    file = tmp_path / ".capsule" / "logs" / "x-1" / "summary.md"
    file.parent.mkdir(parents=True)
    file.write_text("# x-1\n")
    return tmp_path


def words_at_the_end(project: Project) -> list[str]:
    opened = open_project(str(project.path))
    return closing_words(mission_state(opened, ITEM), opened).splitlines()


@pytest.mark.promise("screens.closing-card")
def test_what_was_merged_says_what_it_was_and_took_and_what_to_type_next(merged_saying: Said) -> None:
    head, glance, *rows = merged_saying.out.splitlines()
    assert head.startswith(f"✓ {ITEM} is merged into main as ")
    assert re.fullmatch(r"  .+ · [\d.]+ (s|min \d+ s)", glance)
    assert [row.split()[0] for row in rows if row.lstrip().startswith(("next:", "or:"))] == ["next:"]
    assert any(row == f"  report:      .capsule/logs/{ITEM}/summary.md" for row in rows)


@pytest.mark.promise("screens.closing-card")
def test_what_needs_you_or_failed_is_seen_by_its_sign_and_its_word(a_halted_mission: Project) -> None:
    head, glance, *rows = words_at_the_end(a_halted_mission)
    assert re.match(rf"(✗ {ITEM} failed|■ {ITEM} needs you) at ", head)
    assert " · " in glance and "is merged" not in head
    assert sum(row.startswith("  next:  ") for row in rows) == 1


@pytest.mark.promise("screens.closing-card")
def test_a_run_counts_the_lies_of_its_own_agents_and_no_others(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.play(honest(prd=[turn("prd"), turn("prd"), *honest()["prd"]]))
    assert "  0 done · 1 lie caught · " in a_backlog.run("--cap", "2").out, "its item has neither ended nor halted"
    assert "  0 done · 1 lie caught · " in a_backlog.run("--cap", "1").out
    last = a_backlog.run().out
    assert re.search(r"^  1 done · [\d.]+ s$", last, re.MULTILINE), last
    assert "WRK-001: Find the answer" in last and "2 lies caught\n" in last, "of the mission as a whole"


@pytest.mark.promise("screens.closing-card")
@pytest.mark.parametrize(
    ("words", "left", "then"),
    [
        ("run --cap 1", "WRK-001, WRK-002, WRK-004", "capsule run"),
        ("run WRK-002 --cap 1", "WRK-002", "capsule run WRK-002"),
        ("triage --cap 1", "WRK-002, WRK-004", "capsule triage"),
    ],
)
def test_a_run_that_its_cap_ends_names_what_is_left(
    a_backlog: BacklogProject, words: str, left: str, then: str
) -> None:
    for number, title in enumerate(("Find the answer", "Second", "Third", "Fourth"), 1):
        item = a_backlog.add(title, *(["--depends-on", "WRK-002"] if number == 3 else []))
        a_backlog.play(honest(item, title.lower().replace(" ", "-")), item)
    rows = [line.split(None, 1) for line in a_backlog.say(*words.split()).out.splitlines()[2:]]
    assert ["left:", left] in rows and ["next:", then] in rows
    assert (["not", "run:   WRK-003: waits for WRK-002 (new)"] in rows) is ("WRK-002" not in words)


@pytest.mark.promise("screens.closing-card")
def test_a_duplicate_that_was_closed_says_of_what(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.hold({}, {})
    a_backlog.commit("backlog")
    a_backlog.play({"triage": [turn("triage", duplicate_of="WRK-002")]})
    [done] = [line for line in a_backlog.run("WRK-001").out.splitlines() if line.startswith("  done:")]
    assert re.fullmatch(r"  done: +WRK-001: Item 1 · [\d.]+ s · closed as duplicate of WRK-002", done)


@pytest.mark.promise("screens.closing-card")
def test_what_needs_you_comes_before_what_is_left(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.add("Second")
    a_backlog.play({"triage": [turn("triage", "BLOCKED", context="Which colour?")]})
    rows = [line.split(None, 1) for line in a_backlog.run("--cap", "1").out.splitlines()[2:]]
    assert ["left:", "WRK-002"] in rows
    assert [what for name, what in rows if name == "next:"] == ['capsule answer WRK-001 --notes "..."']
    done = a_backlog.run("WRK-001").out
    assert "  left:" not in done, "it was not asked for"


@pytest.mark.promise("screens.closing-card")
@pytest.mark.parametrize(("sign", "colour"), [("✓", 32), ("✗", 31), ("■", 33)])
def test_on_a_terminal_the_first_line_has_the_colour_of_its_sign(known: Path, sign: str, colour: int) -> None:
    card = CARD.replace("✓", sign)
    head, *rest = dressed(card, known, Tty()).splitlines()
    assert head == f"\x1b[{colour}m{card.splitlines()[0]}\x1b[0m"
    assert "\x1b[3" not in "".join(rest)


def test_without_colours_the_sign_and_the_word_remain(known: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert dressed(CARD, known, Tty()).splitlines()[0] == CARD.splitlines()[0]


@pytest.mark.promise("screens.closing-card")
def test_a_terminal_that_knows_links_has_one_to_the_report(known: Path) -> None:
    uri = (known / ".capsule/logs/x-1/summary.md").as_uri()
    shown = dressed(CARD, known, Tty())
    assert f"\x1b]8;;{uri}\x1b\\.capsule/logs/x-1/summary.md\x1b]8;;\x1b\\" in shown
    (known / ".capsule/logs/x-1/summary.md").unlink()
    assert "\x1b]8" not in dressed(CARD, known, Tty())


@pytest.mark.promise("screens.closing-card")
def test_elsewhere_the_path_is_text_and_a_pipe_gets_the_words_alone(
    known: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dressed(CARD, known, io.StringIO()) == CARD
    monkeypatch.setenv("COLUMNS", "40")
    assert "\n  The task" in dressed(CARD, known, Tty())
    monkeypatch.setenv("TMUX", "/tmp/tmux,1,0")
    assert "\x1b]8" not in dressed(CARD, known, Tty())


@pytest.mark.parametrize(
    ("name", "value", "knows"),
    [
        ("VTE_VERSION", "5202", True),
        ("VTE_VERSION", "4600", False),
        ("VTE_VERSION", "new", False),
        ("TERM_PROGRAM", "WezTerm", True),
        ("TERM_PROGRAM", "Apple_Terminal", False),
        ("TERM", "xterm-kitty", True),
        ("WT_SESSION", "1", True),
    ],
)
def test_only_terminals_that_are_known_to_show_links_get_one(
    known: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, knows: bool
) -> None:
    monkeypatch.delenv("VTE_VERSION")
    monkeypatch.setenv(name, value)
    assert knows_links(Tty()) is knows
    assert not knows_links(io.StringIO())
