"""A mission with every agent and every test in `sandbox-exec`: a stand-in, because only macOS has the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.fake_sandbox_exec import FakeSandboxExec
from tests.system.profile_reader import Rules

from .backlog_project import BacklogProject
from .conftest import Project, honest, said


@pytest.fixture
def fake(tmp_path: Path) -> FakeSandboxExec:
    return FakeSandboxExec(tmp_path / "fake")


def settings(fake: FakeSandboxExec) -> dict[str, str]:
    return {"CAPSULE_SANDBOX": "sandbox-exec", "PATH": f"{fake.folder}:{os.environ['PATH']}"}


@pytest.mark.promise("sandbox.macos")
def test_a_mission_is_sent_back_refuted_and_merged(a_project: Project, fake: FakeSandboxExec) -> None:
    project = a_project
    project.always |= settings(fake)
    (project.home / ".gitconfig").write_text("[user]\n\tname = Ada\n")
    asks = "echo $HOME; git -C / config user.name; ls -A ~; touch ~/x $TMPDIR/x && echo touched"
    looks = f"({asks}) > {project.path.parent}/seen"
    work = said("PASS", run=[looks], write={"answer": "42\n"})
    reviews = [said("NEEDS_WORK", "one more look"), said("PASS")]
    project.play(honest(execute=[said("PASS", write={"answer": "43\n"}), work, work], execute_review=reviews))
    answer = project.run()
    assert answer.code == 0, answer
    assert "note: sandboxed by sandbox-exec, untested on a Mac; hooks and settings" in answer.err
    walk = project.walked()[3:8]
    assert walk == [
        *("execute REFUTED", "execute PASS", "execute-review NEEDS_WORK", "execute PASS", "execute-review PASS")
    ]
    assert (project.answer(), project.dirt(), project.status_of()) == ("42", "", "closed")
    assert not project.worktree.exists()
    project.fsck()
    home, *rest = (project.path.parent / "seen").read_text().splitlines()
    assert rest == ["Ada", ".gitconfig", "touched"]
    assert home != str(project.home) and not Path(home).exists() and not (project.home / "x").exists()
    assert len(fake.profiles()) > len(walk)
    for profile in fake.profiles():
        rules = Rules(profile)
        assert not rules.writes(project.path / "answer") and not rules.reads(project.path / "answer")
        assert not rules.reads(project.path / ".git/config") and rules.reads(project.path / ".git/objects/pack")
        assert not rules.reads(project.home / ".ssh/id") and rules.reads(project.home / ".gitconfig")
        assert not rules.writes(project.home / ".gitconfig")


@pytest.mark.slow
def test_an_item_walks_from_add_to_archive(a_backlog: BacklogProject, fake: FakeSandboxExec) -> None:
    a_backlog.always |= settings(fake)
    a_backlog.add()
    answer = a_backlog.run()
    assert answer.code == 0, answer
    assert a_backlog.subjects()[-1] == "[WRK-001][ARCHIVE] Completed: Find the answer"
    assert (a_backlog.status(), a_backlog.ids()) == ("", [])
    assert fake.profiles()
