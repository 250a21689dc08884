"""Every test runner, for every way in which a run can end, plain and behind make, npm and a script: no wrong green.

Behind a wrapper, `make live` has one proving case and one other of each runner; `make soak` has the whole table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from capsule.core.detection import TreeFiles
from capsule.core.evidence import Colour
from capsule.core.frozen import reach
from capsule.core.test_runs import colour_of
from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell
from tests.live.runner_projects import CASES, RUNNERS, SAYS, WRAPPERS, environment, make, missing

_ROWS = os.environ.get("CAPSULE_RUNNER_ROWS")  # a file that takes what is said, for runs in several processes
PROVING = ("passes", "two")
_PATIENCE = 300
_SMALL = 100_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str, str], str]]:
    """What was said; printed at the end where output is shown (`-s`)."""
    said: dict[tuple[str, str, str], str] = {}
    yield said
    print("\n\n" + drawn(said))


def drawn(said: dict[tuple[str, str, str], str]) -> str:
    """Draw the table for the documents: one cell where all wrappers say the same."""
    rows = [f"| runner | {' | '.join(CASES.values())} |", "|---" * (len(CASES) + 1) + "|"]
    for name in dict.fromkeys(name for name, _, _ in said):
        cells = []
        for case in CASES:
            by_wrapper = {wrapper: said[name, case, wrapper] for wrapper in WRAPPERS if (name, case, wrapper) in said}
            plain = by_wrapper.get("plain", "–")
            others = [f"{text} ({wrapper})" for wrapper, text in by_wrapper.items() if text != plain]
            cells.append("; ".join((plain, *others)))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def play(folder: Path, name: str, case: str, wrapper: str) -> tuple[str, list[str]]:
    """Return what Capsule says of a run, and the names of what passed."""
    tree, reports = folder / "tree", folder / "reports"
    tree.mkdir()
    reports.mkdir()
    command = make(tree, name, case, wrapper)
    (tree / ".home").mkdir()
    env = {**environment(), "HOME": str(tree / ".home")}
    with SupervisorClient() as supervisor:
        shell = SupervisedShell(supervisor, base_env=os.environ)
        ran = shell.run(command, tree, folder / "log", timeout=_PATIENCE, env=env, reports=reports)
    files = [
        path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file() and path.stat().st_size < _SMALL
    ]
    behind = reach(command, TreeFiles(frozenset(files), lambda path: (tree / path).read_text(errors="replace"))).text
    colour = colour_of(ran.why, ran.exit_code, ran.tail, behind, ran.report)
    shown = colour in (Colour.GREEN, Colour.RED, Colour.EMPTY) and ran.report.complete and ran.report.results
    by_name = " by name" if shown else ""
    return f"{colour.value}{by_name}", ran.report.passed


def test_no_row_is_green_without_a_passing_test() -> None:
    """But for ctest and cargo-nextest: each test is a process there, and one that ends with 0 has passed."""
    rows = [
        (name, case) for name, row in RUNNERS.items() for case, text in {**SAYS, **row.says}.items() if "green" in text
    ]
    assert {(name, case) for name, case in rows if case not in PROVING} == {
        ("cargo-nextest", "forged"),
        ("ctest", "forged"),
    }


def cross_section() -> set[tuple[str, str, str]]:
    """Return the cells of the table for `make live`: which cases are behind which wrapper goes round the runners."""
    others = [case for case in CASES if case not in PROVING]
    cells = {(name, case, "plain") for name in RUNNERS for case in CASES}
    for number, name in enumerate(RUNNERS):
        for turn, wrapper in enumerate(WRAPPERS):
            cells.add((name, PROVING[(number + turn) % len(PROVING)], wrapper))
            cells.add((name, others[(number + turn) % len(others)], wrapper))
    return cells


def test_the_cross_section_has_every_runner_and_every_case_behind_every_wrapper() -> None:
    cells = cross_section()
    for wrapper in WRAPPERS:
        assert {case for _, case, behind in cells if behind == wrapper} == set(CASES)
        for name in RUNNERS:
            cases = {case for runner, case, behind in cells if (runner, behind) == (name, wrapper)}
            assert cases & set(PROVING)
            assert cases - set(PROVING)


CELLS = [
    pytest.param(*cell, id="-".join(cell), marks=() if cell in cross_section() else pytest.mark.soak)
    for cell in product(RUNNERS, CASES, WRAPPERS)
]


@pytest.mark.parametrize(("name", "case", "wrapper"), CELLS)
def test_what_is_said_of_a_run(
    name: str, case: str, wrapper: str, tmp_path: Path, table: dict[tuple[str, str, str], str]
) -> None:
    runner = RUNNERS[name]
    if lacking := missing(runner):
        pytest.skip(f"{lacking} is not installed: see `make live`")
    said, passed = play(tmp_path, name, case, wrapper)
    table[name, case, wrapper] = said
    if _ROWS:
        with Path(_ROWS).open("a") as file:
            file.write(json.dumps([name, case, wrapper, said]) + "\n")
    log = (tmp_path / "log").read_text(errors="replace")
    assert said == {**SAYS, **runner.says}[case], log
    if case == "two":
        assert len(passed) >= 2, json.dumps(passed)
