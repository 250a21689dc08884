"""Each attack works: whoever leads agents with plain git runs the planted program, or merges what nobody looked at.

The leader here is honest and careless: status, diff, add, commit, merge, and the next worktree, as everybody writes it
first. Without this page, the other one would prove nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..commands.conftest import Project
from .attacks import CONTENT, HOOKS, POINTERS, REFS, SETTINGS
from .conftest import SECRET, Evil, plain_git

ITEM = "demo-1.1"


def lead(project: Path, worktree: Path) -> None:
    """One mission, by plain git."""
    plain_git("status", cwd=worktree)
    plain_git("diff", cwd=worktree)
    plain_git("add", "-A", cwd=worktree)
    plain_git("commit", "-q", "-m", "work", cwd=worktree)
    plain_git("show", "--ext-diff", cwd=worktree)
    plain_git("status", cwd=project)
    plain_git("merge", "-q", "--no-ff", "-m", "merged", "capsule-demo-1.1", cwd=project)
    plain_git("worktree", "add", "-q", "../next", "-b", "next", cwd=project)


def attack(project: Project, evil: Evil, script: str, theirs: str = "other") -> Path:
    """Somebody else commits a file meanwhile, so that there is something to merge."""
    worktree = project.path / "wt" / ITEM
    project.git("worktree", "add", "-q", str(worktree), "-b", "capsule-demo-1.1")
    project.write(theirs, "ours\n")
    project.git("add", theirs)
    project.git("commit", "-qm", "meanwhile")
    (worktree / "answer").write_text("42\n")
    (line,) = evil.scripts(project.path, [script])
    subprocess.run(["sh", "-c", line], cwd=worktree, check=True)
    return worktree


EXECUTE = {**SETTINGS, **HOOKS, **POINTERS, "a repository inside": CONTENT["a repository inside"]}
EXECUTE.pop("an alias")


@pytest.mark.parametrize("name", EXECUTE)
def test_with_plain_git_the_planted_program_runs(a_project: Project, evil: Evil, name: str) -> None:
    worktree = attack(a_project, evil, EXECUTE[name], "answer" if "merge driver" in name else "other")
    lead(a_project.path, worktree)
    assert evil.has_run(), "this attack does not bite"


def test_with_plain_git_an_alias_runs_for_whoever_types_it(a_project: Project, evil: Evil) -> None:
    attack(a_project, evil, SETTINGS["an alias"])
    plain_git("lg", cwd=a_project.path)
    assert evil.has_run()


def test_with_plain_git_a_bare_repository_runs_for_whoever_goes_there(a_project: Project, evil: Evil) -> None:
    worktree = attack(a_project, evil, CONTENT["a bare repository inside"])
    plain_git("status", cwd=worktree / "bare")
    assert evil.has_run()


def test_with_plain_git_main_holds_what_nobody_looked_at(a_project: Project, evil: Evil) -> None:
    content = (CONTENT[name] for name in ("a secret", "a link out", "a repository inside"))
    worktree = attack(a_project, evil, "\n".join(content))
    lead(a_project.path, worktree)
    assert SECRET in a_project.git("show", "main:notes.txt")
    modes = {row.split()[0] for row in a_project.git("ls-tree", "-r", "main").splitlines()}
    assert {"120000", "160000"} < modes


def test_with_plain_git_an_agent_merges_itself(a_project: Project, evil: Evil) -> None:
    attack(a_project, evil, REFS["main at its own commit"])
    assert "MERGED" in a_project.git("ls-tree", "--name-only", "main")


def test_with_plain_git_the_user_sees_another_history(a_project: Project, evil: Evil) -> None:
    attack(a_project, evil, REFS["a replaced commit"])
    assert a_project.git("ls-tree", "main") == ""


def test_with_plain_git_an_edit_is_hidden(a_project: Project, evil: Evil) -> None:
    attack(a_project, evil, REFS["a flag that hides an edit"])
    a_project.write("README.md", "edited\n")
    assert "README" not in plain_git("status", cwd=a_project.path)
