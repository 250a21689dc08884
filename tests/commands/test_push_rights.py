"""Whoever may push is the user: agents and tests run beside real credentials, and see none of them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ..git_server import GitServer
from .conftest import COMMIT, Project, honest, said
from .test_merge_to_remote import AtRemote

pytestmark = pytest.mark.slow

SECRET = "sesame-0123456789"
IN_A_HEADER = base64.b64encode(f"ada:{SECRET}".encode()).decode()


def helper(project: Project, server: GitServer) -> None:
    """A program of the user's, which git asks."""
    file = project.home / ".keys" / "helper"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\nprintf 'username=ada\\npassword={SECRET}\\n'\n")
    file.chmod(0o755)
    (project.home / ".gitconfig").write_text(f"[credential]\n\thelper = {file}\n")


def store(project: Project, server: GitServer) -> None:
    """Git's own file of passwords."""
    address = server.address.replace("://", f"://ada:{SECRET}@")
    (project.home / ".git-credentials").write_text(f"{address}\n")
    (project.home / ".gitconfig").write_text("[credential]\n\thelper = store\n")


def askpass(project: Project, server: GitServer) -> None:
    """A script with a token from the environment, as in CI."""
    file = project.home / ".keys" / "askpass"
    file.parent.mkdir()
    file.write_text('#!/bin/sh\ncase "$1" in Username*) echo ada;; *) echo "$DEPLOY_TOKEN";; esac\n')
    file.chmod(0o755)
    project.always |= {"GIT_ASKPASS": str(file), "DEPLOY_TOKEN": SECRET}


def header(project: Project, server: GitServer) -> None:
    """A setting of git in the environment, as in CI."""
    name = f"http.{server.address}/.extraHeader"
    project.always |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": name}
    project.always["GIT_CONFIG_VALUE_0"] = f"Authorization: Basic {IN_A_HEADER}"


WAYS = {way.__name__: way for way in (helper, store, askpass, header)}


def looks(seen: Path, who: str, server: GitServer, home: Path, *, confined: bool) -> str:
    """Write down, backwards, what a command finds: secrets in outputs would be taken out."""
    finds = ["env", "git config --list", 'cat .git "$(git rev-parse --git-dir)/config"', "git remote -v"]
    finds += ["cat /proc/[0-9]*/cmdline"]
    if confined:
        asks = f"printf 'protocol=http\\nhost={server.address.removeprefix('http://')}\\n\\n'"
        finds += [f"cat {home}/.keys/* {home}/.git-credentials ~/.git-credentials", "cat /proc/[0-9]*/environ"]
        finds += [f"{asks} | GIT_TERMINAL_PROMPT=0 git credential fill"]
        finds += [f"GIT_TERMINAL_PROMPT=0 git push -q {server.url()} HEAD:refs/heads/by-{who}"]
    return f"( {'; '.join(finds)} ) 2>&1 < /dev/null | tr '\\0' '\\n' | rev >> {seen}/{who}"


@pytest.mark.promise("remote.credentials")
@pytest.mark.parametrize("way", WAYS)
def test_agents_and_tests_see_nothing_of_what_may_push(
    a_project: Project, server: GitServer, tmp_path: Path, level: dict[str, str], way: str
) -> None:
    """Without a sandbox they run as the user, and can read the user's files; nobody hands them anything."""
    seen, confined = tmp_path / "seen", level["CAPSULE_SANDBOX"] == "required"
    seen.mkdir()
    a_project.always |= {**level, "CAPSULE_CONFINEMENT__WRITABLE": f"[{seen}]"}
    a_project.write("tests/test_looks.sh", looks(seen, "tests", server, a_project.home, confined=confined) + "\n")
    a_project.commit("its tests look around")
    there = AtRemote(a_project, server)
    server.password = SECRET
    WAYS[way](a_project, server)
    agent = looks(seen, "agent", server, a_project.home, confined=confined)
    a_project.play(
        honest(execute=[said("PASS", run=[agent], write={"answer": "42\n"})], merge=[said("PASS", run=[COMMIT])])
    )
    answer = a_project.run()
    assert answer.code == 0, answer
    there.assert_merged_once()  # by the user's own credentials
    for who in ("agent", "tests"):
        found = "\n".join(line[::-1] for line in (seen / who).read_text(errors="replace").splitlines())
        assert "PATH=" in found and "capsule" in found.lower()
        for secret in (SECRET, IN_A_HEADER):
            assert secret not in found, f"{who} found it"
    assert not [*there.server.repository().glob("refs/heads/by-*")]
