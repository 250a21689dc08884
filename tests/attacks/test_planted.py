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
from .attacks import ALL, BATCHES, CONTENT, Attack
from .conftest import IN_ITS_PLACE, LEAVING, Evil, differing, git_folder, use_git_as_ever

THE_WORK = "echo 42 > answer"
_THE_SAME = (pytest.mark.sandboxed, pytest.mark.soak)
"""In its place an agent may do in a sandbox what it may do without one, and that is tried in `make live`."""


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


@pytest.mark.promise("attacks.planted")
def test_there_are_at_least_45_attacks_each_with_a_name() -> None:
    assert len({attack.name for attack in ALL}) == len(ALL) >= 45


@pytest.mark.promise("attacks.planted")
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("variant", "level"),
    [
        pytest.param(IN_ITS_PLACE, UNSANDBOXED, id="in its place, off"),
        pytest.param(IN_ITS_PLACE, SANDBOXED, id="in its place, bubblewrap", marks=_THE_SAME),
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


@pytest.mark.promise("attacks.planted")
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
        assert "if it was yours, repeat it now" in told
        kept = re.findall(r"kept as (\.git/capsule/salvaged/[^\s)]+)", told)
        assert kept or batch == "pipes", told
        assert all(os.path.lexists(a_project.path / file) for file in kept), kept
    assert_nothing_runs(a_project, evil)


def test_what_steers_git_from_within_the_tree_runs_nothing(
    a_project: Project, evil: Evil, undisturbed: dict[str, str], level: dict[str, str]
) -> None:
    """Attributes, a submodule's command and settings of lfs are files like others: they are merged, and no more."""
    before = git_folder(a_project.path)
    names = ("attributes", "a submodule that runs a program", "settings of lfs")
    answer = attacked(a_project, evil, [Attack(name, CONTENT[name]) for name in names], IN_ITS_PLACE, level)
    assert answer.code == 0, answer
    assert differing(before, git_folder(a_project.path)) == set(undisturbed)
    assert {".gitattributes", ".gitmodules", ".lfsconfig"} <= set(a_project.git("ls-files").split())
    assert_nothing_runs(a_project, evil)


def test_what_is_planted_in_the_place_is_there_while_the_agent_is(
    a_project: Project, evil: Evil, level: dict[str, str]
) -> None:
    """Or else nothing would be tried above."""
    look = """
        { g config --list; ls "$AT/hooks"; cat "$AT/info/attributes"; g ls-files -v; g for-each-ref; } > landed
        git config core.hooksPath /dev/null; git config core.fsmonitor false
    """
    undone = ("core.hooksPath", "a replaced commit", "staged", "no index")  # by others, or they hide them
    batches = ("index flags", "settings", "attributes", "hooks", "refs")
    planted = [attack for batch in batches for attack in BATCHES[batch] if attack.name not in undone]
    answer = attacked(a_project, evil, [*planted, Attack("look", look)], IN_ITS_PLACE, level)
    assert answer.code == 0, answer
    landed = a_project.git("show", "main:landed")
    expected = [attack.named for attack in BATCHES["settings"] if attack.name not in undone]
    expected += [attack.name for attack in BATCHES["hooks"]]
    expected += ["* merge=zz", "S README.md", "h answer", "refs/tags/v9", "refs/heads/kept"]
    assert [words for words in expected if words not in landed] == []
