"""Every attack of the table in a whole mission, with a sandbox and without: no planted program is ever run.

An agent that stays in its place leaves the user's `.git` byte for byte as it was; so does one that leaves it, with
bubblewrap. Without, it is noticed where something would run as the user: the old bytes are put back, those found are
kept, and the mission waits for a person.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..commands.conftest import Project, Said, honest, said
from ..conftest import SANDBOXED, UNSANDBOXED
from .attacks import ALL, BATCHES, Attack
from .conftest import IN_ITS_PLACE, LEAVING, Evil, differing, git_folder, use_git_as_ever

THE_WORK = "echo 42 > answer"


def attacked(project: Project, evil: Evil, attacks: Sequence[Attack], variant: str, level: dict[str, str]) -> Said:
    """A mission whose agent attacks while it writes the code, and says that all is well."""
    attack = said("PASS", run=[*evil.scripts(project.path, attacks, variant), THE_WORK])
    project.play(
        honest(execute=[attack], merge=[said("PASS", run=['git add -A && git commit -qm "$CAPSULE_COMMIT_MSG"'])])
    )
    return project.run(**level)


def assert_nothing_runs(project: Project, evil: Evil) -> None:
    assert evil.have_run() == {}, "run by Capsule"
    use_git_as_ever(project.path)
    assert evil.have_run() == {}, "run by the user's git"


@pytest.fixture(scope="session")
def undisturbed(_prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of `.git` that a mission changes by itself, and how they are after it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(_prepared, folder / "project", symlinks=True)
    project = Project(folder / "project", folder)
    before = git_folder(project.path)
    assert project.run().code == 0
    after = git_folder(project.path)
    return {name: after[name] for name in differing(before, after)}


def test_there_are_at_least_45_attacks_each_with_a_name() -> None:
    assert len({attack.name for attack in ALL}) == len(ALL) >= 45


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("variant", "level"),
    [
        pytest.param(IN_ITS_PLACE, UNSANDBOXED, id="in its place, off"),
        pytest.param(IN_ITS_PLACE, SANDBOXED, id="in its place, bubblewrap", marks=pytest.mark.sandboxed),
        pytest.param(LEAVING, SANDBOXED, id="leaving it, bubblewrap", marks=pytest.mark.sandboxed),
    ],
)
def test_an_attack_changes_no_byte_of_the_users_git_and_the_mission_merges(
    a_project: Project, evil: Evil, undisturbed: dict[str, str], batch: str, variant: str, level: dict[str, str]
) -> None:
    before, main = git_folder(a_project.path), a_project.head("main")
    answer = attacked(a_project, evil, BATCHES[batch], variant, level)
    assert answer.code == 0, answer
    after = git_folder(a_project.path)
    assert differing(before, after) == set(undisturbed)
    assert after["info/exclude"] == undisturbed["info/exclude"]
    work = {"answer", "tests/test_answer.sh", ".gitattributes"}
    assert set(a_project.git("diff", "--name-only", main, "main", "--", ".", ":!.beads").split()) <= work
    assert a_project.answer() == "42"
    assert a_project.dirt() == ""
    assert "Quarantined" not in answer.out
    assert_nothing_runs(a_project, evil)
    a_project.fsck()


@pytest.mark.parametrize("batch", BATCHES)
def test_without_a_sandbox_what_was_planted_outside_of_the_place_never_runs_and_is_told(
    a_project: Project, evil: Evil, batch: str
) -> None:
    answer = attacked(a_project, evil, BATCHES[batch], LEAVING, UNSANDBOXED)
    told = " ".join(f"{answer.out} {answer.err}".split())
    missing = [attack.name for attack in BATCHES[batch] if attack.named not in told]
    assert not missing, told
    if any(attack.named for attack in BATCHES[batch]):
        assert answer.code == 1, answer
        assert "Quarantined" in told
        assert "if it was you, do it again now" in told
        kept = re.findall(r"kept as (\.git/capsule/salvaged/[^\s)]+)", told)
        assert kept or batch == "pipes", told
        assert all(os.path.lexists(a_project.path / file) for file in kept), kept
    assert_nothing_runs(a_project, evil)
