"""Long titles, ids and questions, in scripts with wide letters: on a terminal of 80 columns, and in a pipe.

On a terminal no line is wider than it, and a question is there word by word. In a pipe nothing is wrapped or cut.
"""

from __future__ import annotations

import pytest

from capsule.commands.verbs import VERBS
from capsule.reports.style import folded
from capsule.reports.table import width_of

from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .conftest import Project
from .terminal import Terminal

WIDTH = 80
TITLE = "Sort the list 短い名前の順 🎨 by name and by date " * 4
QUESTION = "Which 色 is meant 🎨, the first or the second? " * 12
LONG_ID = "a-project-with-a-very-long-name-that-nobody-chose-1.1"
PLAIN = (
    ("status",),
    ("explain",),
    ("explain", "WRK-001"),
    ("show", "WRK-001"),
    ("dashboard", "--plain", "--once"),
)


@pytest.fixture
def asked(a_backlog: BacklogProject) -> BacklogProject:
    """An agent has asked a long question about an item with a long title."""
    asks = turn("prd", "BLOCKED", block_type="clarification", context=QUESTION)
    a_backlog.play(honest(title=_slug(a_backlog.add(TITLE), a_backlog), prd=[asks]))
    return a_backlog


def _slug(item: str, project: BacklogProject) -> str:
    """What the papers of the item will be called: it is asked before one has been written, so anything will do."""
    return f"{project.item(item).id.lower()}-papers"


def on_a_terminal(project: Project, *words: str) -> str:
    with Terminal(words, project.path, project.environment(), (WIDTH, 24)) as terminal:
        terminal.ends()
        return terminal.afterwards


def bare(text: str) -> str:
    """Without blanks and line ends: what is left is what was said, however it was laid out."""
    return "".join(text.split())


def assert_fits(shown: str) -> None:
    """A path or an id is not broken, so that it can be copied: it may be longer than a line, and stands there alone."""
    wide = [line for line in shown.splitlines() if width_of(line) > WIDTH and len(line.split()) > 1]
    assert not wide, "\n".join(wide)


@pytest.mark.promise("screens.eighty-columns")
def test_what_a_run_says_fits_and_has_the_whole_question(asked: BacklogProject) -> None:
    shown = on_a_terminal(asked, "run", "--no-tui")
    assert "Run ended" in shown
    assert_fits(shown)
    assert bare(QUESTION) in bare(shown)
    for words in PLAIN:
        told = on_a_terminal(asked, *words)
        assert_fits(told)
        assert bare(QUESTION) in bare(told), words


@pytest.mark.promise("screens.eighty-columns")
def test_in_a_pipe_nothing_is_wrapped_or_cut(asked: BacklogProject) -> None:
    said = asked.capsule("run")
    assert any(QUESTION.strip() in line for line in said.out.splitlines())
    assert any(QUESTION.strip() in line for line in said.err.splitlines())
    for words in PLAIN:
        lines = asked.capsule(*words).out.splitlines()
        assert any(QUESTION.strip() in line for line in lines), words
        titled = words not in (("explain",), ("explain", "WRK-001"))
        assert not titled or any(TITLE.strip() in line for line in lines), words


@pytest.mark.promise("screens.eighty-columns")
@pytest.mark.parametrize(
    "words",
    [("doctor",), ("config",), ("show", "WRK-999"), ("add", TITLE), ("unblock", "WRK-001", "--notes", TITLE)],
    ids=" ".join,
)
def test_other_commands_fit(asked: BacklogProject, words: tuple[str, ...]) -> None:
    assert_fits(on_a_terminal(asked, *words))


@pytest.mark.promise("screens.eighty-columns")
def test_a_report_fits_and_has_the_whole_question(asked: BacklogProject) -> None:
    asked.add("Another one")
    asked.play(honest("WRK-002", "another-one", triage=[turn("triage", "FAILED", item="WRK-002")]), "WRK-002")
    asked.run("--max-retries", "0")
    for words in (("report",), ("report", "WRK-001"), ("report", "--run", "queue")):
        shown = on_a_terminal(asked, *words)
        assert_fits(shown)
        assert bare(QUESTION) in bare(shown), words
        piped = asked.capsule(*words).out
        assert any(line.startswith("| ") for line in piped.splitlines())
        assert any(QUESTION.strip() in line for line in piped.splitlines())


@pytest.mark.promise("screens.eighty-columns")
def test_what_run_phase_says_fits(a_project: Project) -> None:
    a_project.write(".capsule/prompts/mine.md", "Use {{NOTHING}} of that.\n")
    for words, hint in ((("mine",), "Names that do: "), (("nobody",), "There are: "), (("prd", "--dry-run"), "Result")):
        shown = on_a_terminal(a_project, "run-phase", words[0], ".", *words[1:])
        assert hint in shown
        assert_fits("\n".join(line for line in shown.splitlines() if not line.startswith("{")))


@pytest.mark.promise("screens.eighty-columns")
@pytest.mark.parametrize("length", [60, 75, 80, 90])
def test_a_path_stands_alone_where_it_does_not_fit_beside_its_label(length: int) -> None:
    path = "/" + "x" * (length - 1)
    shown = folded(f"  worktree:    {path}", WIDTH).split("\n")
    assert [line.strip() for line in shown] == ([f"worktree:    {path}"] if length == 60 else ["worktree:", path])
    assert_fits("\n".join(shown))
    assert width_of(shown[-1]) <= WIDTH or length > WIDTH


@pytest.mark.sweep(cases=4)
@pytest.mark.promise("screens.eighty-columns")
@pytest.mark.parametrize("command", ["", *sorted(VERBS, key=lambda name: name != "run")])
def test_help_fits(a_project: Project, command: str) -> None:
    shown = on_a_terminal(a_project, *command.split(), "--help")
    assert "usage: capsule" in shown
    assert_fits(shown)


@pytest.mark.slow
@pytest.mark.promise("screens.eighty-columns")
def test_the_demo_fits(a_project: Project) -> None:
    shown = on_a_terminal(a_project, "demo", "--no-tui")
    assert "Caught: " in shown
    assert_fits(shown)


@pytest.mark.promise("screens.eighty-columns")
def test_a_long_id_fits(a_project: Project) -> None:
    a_project.set_bead(id=LONG_ID, title=TITLE)
    for words in (("status",), ("explain",), ("explain", LONG_ID), ("dashboard", "--plain", "--once")):
        shown = on_a_terminal(a_project, *words)
        assert_fits(shown)
        assert LONG_ID in shown
