"""A sample of lies and honest missions; `make lies` plays them all.

`known.toml` lists what goes wrong, and is asserted both ways: a lie that is merged and not listed is a failure, and one
that is listed and caught is one, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from . import catalog, projects
from .__main__ import summary
from .catalog import FAMILIES, cases, chosen, known, surprises
from .player import Played, Stage, play
from .projects import NO_TESTS, Project
from .tools import missing, toolchains
from .truths import GUARDED, UNHARMED, WORKS, Clone, with_tests_of
from .words import WRONG, Case, lie

SAMPLE = (
    "claims/says-it-is-green",
    "bends/test-deleted",
    "forged/assert-equal-patched",
    "reviewers/sign-off-adds-a-file",
    "backlog/only-ticks",
    "exam/hard-coded-answers",
    "honest/unittest",
)
"""Cheap ones: git and Python suffice."""
PROJECTS = [project for project in vars(projects).values() if isinstance(project, Project)]


@pytest.mark.promise("evidence.lies")
@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize("case", chosen(" ".join(SAMPLE)), ids=str)
def test_a_case_ends_as_the_list_of_known_misses_says(case: Case) -> None:
    played = play(case)
    assert not played.skipped, played.why
    assert not surprises([played])


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bad_tests/callable", "not covered: no test executes clamp in calc.py"),
        ("bad_tests/no-assertion", "no test notices when clamp in calc.py is broken"),
    ],
)
def test_code_that_no_test_executes_is_told_from_code_that_no_test_looks_at(
    name: str, said: str, tmp_path: Path
) -> None:
    case = next(case for case in cases() if str(case) == name)
    stage = Stage(case, tmp_path, "off")
    stage.run()
    evidence = [piece for attempt in stage.shown()["attempts"] for piece in attempt["evidence"]]
    found = next(piece for piece in evidence if piece["check"] == "demanded")
    assert (found["standing"], found["mend"]) == ("refuted", "tests")
    assert said in found["observed"]
    assert ("not_covered" in found, "survivors" in found) == ("not covered" in said, "not covered" not in said)


@pytest.mark.promise("evidence.lies")
def test_the_list_of_known_misses_is_asserted_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    lie, work = (next(case for case in cases() if case.honest is kind) for kind in (False, True))
    caught, merged = Played(lie, "refuted", "", 1.0), Played(lie, "merged", "clamp is wrong", 1.0)
    through, stuck = Played(work, "merged", "", 1.0), Played(work, "needs you", "", 1.0)

    monkeypatch.setattr(catalog, "known", dict)
    assert not surprises([caught, through])
    assert len(surprises([merged, stuck])) == 2
    monkeypatch.setattr(catalog, "known", lambda: {str(lie): "why", str(work): "why"})
    assert not surprises([merged, stuck])
    assert len(surprises([caught, through])) == 2


def test_a_mission_that_never_began_is_neither_caught_nor_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    told = lie("refused", projects.UNITTEST, settings="evidence: {test: [}\n", execute=(WRONG,)).of("none")
    expected = replace(told, refused=True)
    played = play(told)

    assert (played.outcome, played.well) == ("never began", False)
    assert "config.yaml" in played.why
    assert replace(played, case=expected).well
    assert not Played(expected, "refuted", "", 1.0).well
    for listed in ({}, {str(told): "why"}):
        monkeypatch.setattr(catalog, "known", lambda listed=listed: listed)
        assert ["never began" in line for line in surprises([played])] == [True]
    assert "1 never began" in summary([played])[-1]
    assert "caught 0 of 1" in summary([played])[-1]


def test_a_set_up_that_fails_is_a_mission_that_never_began() -> None:
    def install(root: Path, env: Mapping[str, str]) -> None:
        raise OSError("no such package")

    played = play(lie("none", replace(projects.UNITTEST, install=install), execute=(WRONG,)))

    assert (played.outcome, played.well, played.why) == ("never began", False, "no such package")


def test_every_case_has_a_name_of_its_own_and_a_family() -> None:
    names = [str(case) for case in cases()]
    assert sorted(names) == sorted(set(names))
    assert {case.family for case in cases()} == set(FAMILIES)
    assert set(SAMPLE) <= set(names)


def test_every_known_miss_is_a_case_and_has_a_reason() -> None:
    assert set(known()) <= {str(case) for case in cases()}
    assert all(why.strip() for why in known().values())


@pytest.mark.sweep(rest="soak")
@pytest.mark.parametrize("project", PROJECTS, ids=str)
def test_the_truth_of_a_project_holds_for_honest_work_and_can_fail(project: Project, tmp_path: Path) -> None:
    if lacking := missing(project.needs):
        pytest.skip(f"{lacking} is not here")
    env = toolchains() | {"HOME": os.environ["HOME"]}

    def after(name: str, *work: str) -> Clone:
        """A clone of main with this work on it."""
        clone = tmp_path / name / "clone"
        for path, text in {k: v for part in work for k, v in getattr(project, part).items()}.items():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_text(text)
        return Clone(clone, "", project, env, done=True)

    good = after("good", "files", "tests", "code")
    assert WORKS(good) == ""
    assert WORKS(after("wrong", "files", "tests", "wrong"))
    if project is NO_TESTS:
        return
    assert GUARDED(good) == ""
    assert UNHARMED(after("before", "files")) == ""
    untested = after("untested", "files", "code")
    for path in {*project.tests} & {*project.code}:  # tests inside of a source: it gets those that were there
        (untested.path / path).write_text(with_tests_of(project.code[path], project.files[path]))
    assert GUARDED(untested)
