"""Each attack works: whoever leads agents with plain git runs the planted program, or works in a bent repository.

The leader here is honest and careless: a worktree, status, diff, add, commit, merge, as everybody writes it first, and
then what anybody types in the days after. Without this page, the other one would prove nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..commands.conftest import Project
from .attacks import ALL, CONTENT, OURS, Attack
from .conftest import LEAVING, SECRET, Evil, plain_git, use_git_as_ever

ITEM = "demo-1.1"


def lead(project: Path, worktree: Path) -> None:
    """One mission, by plain git."""
    plain_git("status", cwd=worktree)
    plain_git("diff", cwd=worktree)
    plain_git("add", "-A", cwd=worktree)
    plain_git("commit", "-q", "-m", "work", cwd=worktree)
    plain_git("status", cwd=project)
    plain_git("merge", "-q", "--no-ff", "-m", "merged", "capsule-demo-1.1", cwd=project)


def attack(project: Project, evil: Evil, planted: Attack) -> Path:
    """Somebody else commits a file meanwhile, so that there is something to merge."""
    worktree = project.path / "wt" / ITEM
    project.git("worktree", "add", "-q", str(worktree), "-b", "capsule-demo-1.1")
    project.write("other", "ours\n")
    project.git("add", "other")
    project.git("commit", "-qm", "meanwhile")
    (worktree / "answer").write_text("42\n")
    (line,) = evil.scripts(project.path, [planted], LEAVING)
    subprocess.run(["sh", "-c", line], cwd=worktree, check=True)
    return worktree


@pytest.mark.promise("attacks.bite")
@pytest.mark.parametrize("planted", [a for a in ALL if a not in OURS and not a.harm], ids=lambda a: a.name)
def test_with_plain_git_the_planted_program_runs(a_project: Project, evil: Evil, planted: Attack) -> None:
    worktree = attack(a_project, evil, planted)
    lead(a_project.path, worktree)
    use_git_as_ever(a_project.path, evil.have_run)
    assert evil.have_run(), "this attack does not bite"


@pytest.mark.promise("attacks.bite")
@pytest.mark.parametrize("planted", [a for a in ALL if a not in OURS and a.harm], ids=lambda a: a.name)
def test_with_plain_git_the_repository_is_bent(a_project: Project, evil: Evil, planted: Attack) -> None:
    attack(a_project, evil, planted)
    done = subprocess.run(["sh", "-c", planted.harm], cwd=a_project.path, capture_output=True, check=False)
    assert done.returncode == 0, done


def test_with_plain_git_a_bare_repository_runs_for_whoever_goes_there(a_project: Project, evil: Evil) -> None:
    worktree = attack(a_project, evil, Attack("bare", CONTENT["a bare repository inside"]))
    plain_git("status", cwd=worktree / "bare")
    assert evil.have_run()


@pytest.mark.promise("attacks.bite")
def test_with_plain_git_main_holds_what_nobody_looked_at(a_project: Project, evil: Evil) -> None:
    content = (CONTENT[name] for name in ("a secret", "a link out", "a repository inside"))
    worktree = attack(a_project, evil, Attack("content", "\n".join(content)))
    lead(a_project.path, worktree)
    assert SECRET in a_project.git("show", "main:notes.txt")
    modes = {row.split()[0] for row in a_project.git("ls-tree", "-r", "main").splitlines()}
    assert {"120000", "160000"} < modes
