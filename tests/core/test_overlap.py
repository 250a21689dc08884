"""Which files an item is likely to touch, and which mission under way touches them too."""

from __future__ import annotations

import time

import pytest

from capsule.core.decide import Decision, Move
from capsule.core.event import MissionStarted, Outcome, StepEnded
from capsule.core.item import Item
from capsule.core.overlap import Footprint, PathIndex, changed_files, likely_overlaps, named_paths
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Workflow

KNOWN = PathIndex(
    (
        *("Makefile", "answer", "setup.py", ".github/workflows/ci.yml", "docs/api.md", "docs/deep/er/notes.md"),
        *("src/api.py", "src/app/[id]/page.tsx", "src/db/__init__.py", "src/db/setup.py", "src/web/__init__.py"),
    )
)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Mend src/api.py.", {"src/api.py"}),
        ("(see `api.py`, ./setup.py)", {"src/api.py", "setup.py"}),
        (
            "src/api.py:12, src/db/setup.py::test_it and docs/api.md#top",
            {"src/api.py", "src/db/setup.py", "docs/api.md"},
        ),
        ("[the page](docs/api.md) @src/api.py <src/api.py>", {"docs/api.md", "src/api.py"}),
        ("'src/app/[id]/page.tsx' [page.tsx]", {"src/app/[id]/page.tsx"}),
        ("everything in docs/ and er/", {"docs/", "docs/deep/er/"}),
        ("src/db/*.py", {"src/db/"}),
        (".github/workflows/ci.yml", {".github/workflows/ci.yml"}),
        ("The answer is in `answer`, `make` reads `Makefile`", {"answer", "Makefile"}),
    ],
)
def test_a_text_names_paths(text: str, paths: set[str]) -> None:
    assert named_paths(text, KNOWN) == paths


@pytest.mark.parametrize(
    "text",
    [
        "__init__.py is there twice",
        "find the answer with the Makefile",
        "https://example.com/src/api.py and http://api.py/",
        "GET /docs/ and /src/api.py",
        "my_api.py, xsrc/api.py, api.pyc, src, docs",
        "`find the answer`",
        ". .. / // ./ ../ `.` `/` : # [ ]",
        "",
    ],
)
def test_what_only_looks_like_a_path_is_none(text: str) -> None:
    assert named_paths(text, KNOWN) == frozenset()


def test_a_name_that_very_many_files_share_counts_only_as_a_whole_path() -> None:
    many = PathIndex(["__init__.py", *(f"src/p{number}/__init__.py" for number in range(1000))])
    assert named_paths("__init__.py p7/__init__.py src/p8/__init__.py", many) == {"__init__.py", "src/p8/__init__.py"}


@pytest.mark.parametrize(
    "text",
    [
        "`" * 400_000,
        "/" * 400_000,
        "a/" * 200_000,
        "[" * 400_000,
        "x." * 200_000,
        " ".join(f"p{number}/__init__.py" for number in range(20_000)),
    ],
    ids=["ticks", "slashes", "folders", "brackets", "dots", "names"],
)
def test_hostile_texts_and_repositories_take_no_time(text: str) -> None:
    known = PathIndex([*(f"src/p{number}/__init__.py" for number in range(20_000)), "d/" * 2000 + "file"])
    began = time.process_time()
    named_paths(text, known)
    assert time.process_time() - began < 1


def test_what_a_mission_changes_counts_from_its_start() -> None:
    started = MissionStarted(
        at="", mission="a", item=Item(id="a", title=""), workflow=Workflow(name="w", phases=()), base="", into=""
    )

    def ended(*files: str) -> StepEnded:
        outcome = Outcome(signal=Signal(verdict=Verdict.PASS), files=files)
        return StepEnded(at="", key="", phase="", run=1, outcome=outcome, decision=Decision(Move.ADVANCE, Verdict.PASS))

    assert changed_files([started, ended("old"), started, ended("b", "a"), ended("c", "a")]) == {"a", "b", "c"}


def changing(*paths: str) -> Footprint:
    return Footprint(changed=frozenset(paths))


def naming(*paths: str) -> Footprint:
    return Footprint(named=frozenset(paths))


@pytest.mark.promise("commands.overlap")
def test_the_file_and_the_mission_are_named() -> None:
    under_way = {"WRK-004": changing("src/api.py"), "WRK-005": naming("docs/api.md")}
    candidates = {"one": naming("src/api.py"), "two": changing("docs/api.md"), "three": naming("setup.py")}
    assert likely_overlaps(candidates, under_way) == {
        "one": "likely to touch src/api.py, which WRK-004 is changing",
        "two": "likely to touch docs/api.md, as WRK-005 is",
    }


def test_of_several_files_one_that_is_being_changed_is_named() -> None:
    under_way = {"a": naming("1", "3"), "b": changing("2", "3"), "c": changing("2")}
    assert likely_overlaps({"x": naming("1", "2", "3")}, under_way) == {
        "x": "likely to touch 2, which b is changing (and 2 more)"
    }


@pytest.mark.parametrize(
    ("mine", "theirs", "named"),
    [
        ("docs/", "docs/deep/notes.md", "docs/deep/notes.md"),
        ("docs/deep/notes.md", "docs/", "docs/deep/notes.md"),
        ("docs/", "docs/deep/", "docs/deep/"),
        ("docs/deep/", "docs/", "docs/deep/"),
        ("docs/", "docs/", "docs/"),
    ],
)
def test_a_folder_stands_for_what_is_below_it(mine: str, theirs: str, named: str) -> None:
    assert likely_overlaps({"x": naming(mine)}, {"a": naming(theirs)}) == {"x": f"likely to touch {named}, as a is"}


@pytest.mark.parametrize(("mine", "theirs"), [("docs/a", "docs/b"), ("docs/", "docs2/a"), ("a", "A"), ("a/b", "a")])
def test_neighbours_do_not_overlap(mine: str, theirs: str) -> None:
    assert likely_overlaps({"x": naming(mine)}, {"a": naming(theirs)}) == {}


def test_a_path_that_does_not_print_is_told_on_one_short_line() -> None:
    path = "a\x1b[2J\nb" + "c" * 5000
    [words] = likely_overlaps({"x": naming(path)}, {"a": changing(path)}).values()
    assert words.isprintable() and len(words) < 200 and words.endswith(", which a is changing")


def test_many_candidates_and_missions_take_no_time() -> None:
    deep = "d/" * 2000
    under_way = {f"m{n}": changing(*(f"src/m{n}/f{k}.py" for k in range(200)), f"{deep}{n}") for n in range(50)}
    candidates = {f"c{n}": naming(*(f"src/m{n % 60}/f{k}.py" for k in range(20)), f"{deep}x") for n in range(500)}
    began = time.process_time()
    assert len(likely_overlaps(candidates, under_way)) == sum(n % 60 < 50 for n in range(500))
    assert time.process_time() - began < 1
