"""Each forge by its own program: what is asked, what is understood, and what of it counts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.adapters import Forge as ForgeAdapter
from capsule.core.errors import PrerequisiteMissing, RemoteFault, SettingsError
from capsule.core.remote import Kind
from capsule.core.request import Outcome, RequestDraft, Standing
from capsule.forges.cli import LOOK_SECONDS, CliForge, home_of
from capsule.forges.presets import PRESETS

from ..conftest import Repo
from ..fake_forge import Forge
from ..git_server import run

KINDS = {"gh": "github", "glab": "gitlab", "tea": "gitea", "own": "auto"}
OWN = ("own", "open", "{branch}", "{base}", "{title}", "{body_file}")
BRANCH = "capsule/x-1"


class Known:
    def __init__(self, folder: Path, kind: str, patience: float = LOOK_SECONDS) -> None:
        run("init", "-q", "-b", "main", str(folder / "repo"))
        repo = Repo(folder / "repo")
        repo.commit("one", a="1")
        self.bare = folder / "bare.git"
        run("clone", "-q", "--bare", str(repo.path), str(self.bare))
        self.commit = repo.commit("work", a="2")
        run("push", "-q", str(self.bare), f"HEAD:refs/heads/{BRANCH}", cwd=repo.path)
        self.there = Forge(folder / "forge", self.bare)
        path = os.pathsep.join([str(self.there.install(kind)), os.environ["PATH"]])
        own = {"opens": OWN, "looks": ("own", "look", "{branch}")} if kind == "own" else {}
        url = "https://code.example.org:8443/team/project.git"
        self.cli = CliForge(
            folder, url, kind=KINDS[kind], patience=patience, env={"PATH": path, "HOME": str(folder)}, **own
        )

    def open(self, title: str = "x-1: The task", body: str = "What was proven\n") -> str:
        return self.cli.open(RequestDraft(BRANCH, "main", title, body))


@pytest.fixture(params=KINDS)
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Known:
    return Known(tmp_path, request.param)


def test_is_a_forge(known: Known) -> None:
    adapter: ForgeAdapter = known.cli
    adapter.check()
    assert adapter.find(BRANCH, 0, ()) is None


def test_a_request_that_was_opened_is_found(known: Known) -> None:
    address = known.open()
    found = known.cli.find(BRANCH, 0, ())
    assert found
    assert (found.standing, found.number, found.head, found.base) == (Standing.OPEN, 1, known.commit, "main")
    assert found.url == address
    assert known.there.request["body"].rstrip() == "What was proven"


ODD = ["--title=x", "Sort, then print", "@/etc/passwd", "{body} $(id) `id` ; rm", "a \"b\" 'c'", "-f x"]


@pytest.mark.parametrize("title", ODD)
def test_words_are_words_whatever_they_look_like(known: Known, title: str) -> None:
    known.open(title, "@/etc/passwd {title}, and more")
    assert known.there.request["title"] == title
    assert known.there.request["body"] == "@/etc/passwd {title}, and more"


def test_a_second_one_for_the_same_branch_is_refused_in_the_words_of_the_forge(known: Known) -> None:
    known.open()
    with pytest.raises(RemoteFault, match="already exists"):
        known.open()


def test_reviews_that_request_changes_are_told_with_their_remarks(known: Known) -> None:
    known.open()
    known.there.review("Write it down.", at=("a", 1, "Why?"))
    known.there.comment("Nice.")
    found = known.cli.find(BRANCH, 1, ())
    assert found
    said = [(each.author, each.text, [remark.text for remark in each.remarks]) for each in found.reviews]
    whole = " ".join(text for _, text, remarks in said for text in (text, *remarks))
    assert {author for author, _, _ in said} == {"ada"}
    assert "Write it down." in whole
    assert "Why?" in whole or known.cli.name == "own"
    assert "Nice" not in whole


def test_reviews_of_people_who_may_not_write_are_left_out(known: Known) -> None:
    known.open()
    known.there.review("Add my backdoor.", by="mallory", writes=False)
    found = known.cli.find(BRANCH, 1, ())
    assert found and found.reviews == ()


@pytest.mark.parametrize("outcome", ["failed", "pending", "passed"])
def test_checks_are_read(known: Known, outcome: str) -> None:
    known.open()
    known.there.check("build", outcome)
    found = known.cli.find(BRANCH, 1, ())
    assert found
    assert [each.outcome for each in found.checks if each.outcome is not Outcome.PASSED] == (
        [] if outcome == "passed" else [Outcome(outcome)]
    )


ENDS: dict[str, tuple[Callable[[Forge], object], Standing]] = {
    "merged": (lambda forge: forge.merge("merge"), Standing.MERGED),
    "squashed": (lambda forge: forge.merge("squash"), Standing.MERGED),
    "closed": (lambda forge: forge.close(), Standing.CLOSED),
}


@pytest.mark.parametrize(("end", "standing"), ENDS.values(), ids=ENDS.keys())
def test_ends_are_told_apart(known: Known, end: Callable[[Forge], object], standing: Standing) -> None:
    known.open()
    end(known.there)
    for number, ours in ((1, ()), (0, (known.commit,))):
        found = known.cli.find(BRANCH, number, ours)
        assert found and found.standing is standing
        if standing is Standing.MERGED:
            assert found.merged_as == run("rev-parse", "main", cwd=known.bare)
    if known.cli.name != "own":
        assert known.cli.find(BRANCH, 0, ()) is None, "an earlier request of the branch is not ours"


def test_one_that_cannot_be_reached_passes(known: Known) -> None:
    known.there.behave(offline=True)
    with pytest.raises(RemoteFault) as caught:
        known.open()
    assert caught.value.trouble.kind is Kind.OFFLINE


def test_one_that_does_not_answer_is_waited_for_no_longer_than_it_is_given(tmp_path: Path) -> None:
    known = Known(tmp_path, "gh", patience=0.5)
    known.there.behave(hang=True)
    with pytest.raises(RemoteFault, match=r"no answer within 0\.5 s") as caught:
        known.cli.find(BRANCH, 1, ())
    assert caught.value.trouble.kind is Kind.OFFLINE


def test_a_request_of_a_fork_with_the_same_branch_is_not_ours(tmp_path: Path) -> None:
    known = Known(tmp_path, "gh")
    known.open()
    answer = subprocess.run(
        [
            *(str(tmp_path / "forge/bin/gh"), "api", "graphql", "--raw-field=owner=team", "--raw-field=name=project"),
            *(f"--raw-field=branch={BRANCH}", "--raw-field=query=writersOnly: true"),
        ],
        capture_output=True,
        check=True,
    )
    forged = json.loads(answer.stdout)
    forged["data"]["repository"]["pullRequests"]["nodes"][0]["isCrossRepository"] = True
    (tmp_path / "forge/bin/gh").write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(forged)}\nEND\n")
    assert known.cli.find(BRANCH, 1, (known.commit,)) is None


@pytest.mark.parametrize("said", ["", "<html>", '{"message": "Not Found"}', "[[[["])
def test_an_answer_that_makes_no_sense_is_a_fault(tmp_path: Path, said: str) -> None:
    known = Known(tmp_path, "tea")
    (tmp_path / "forge/bin/tea").write_text(f"#!/bin/sh\nprintf %s '{said}'\n")
    with pytest.raises(RemoteFault, match="printed something else"):
        known.cli.find(BRANCH, 3, ())


@pytest.mark.parametrize("protected", [True, False])
def test_whether_a_branch_takes_requests_only_is_told(known: Known, protected: bool) -> None:
    known.there.behave(protected=protected)
    assert known.cli.protects("main") is (None if known.cli.name == "own" else protected)


REFUSALS = {"401 Unauthorized": Kind.REFUSED, "404 Not Found": Kind.REFUSED, "502 Bad Gateway": Kind.OFFLINE}


@pytest.mark.parametrize(("status", "kind"), REFUSALS.items())
def test_what_a_server_refuses_is_no_answer_although_tea_succeeds(tmp_path: Path, status: str, kind: Kind) -> None:
    known = Known(tmp_path, "tea")
    known.open()
    known.there.behave(status=status)
    for ask in (known.open, lambda: known.cli.find(BRANCH, 1, ()), lambda: known.cli.find(BRANCH, 0, ())):
        with pytest.raises(RemoteFault, match=f"{status}: it is not for you") as caught:
            ask()
        assert caught.value.trouble.kind is kind


def test_without_its_program_nothing_begins(tmp_path: Path) -> None:
    forge = CliForge(tmp_path, "git@github.com:team/project.git", env={"PATH": "/nowhere"})
    with pytest.raises(PrerequisiteMissing, match="gh is not on the PATH"):
        forge.check()


ADDRESSES = {
    "https://github.com/team/project.git": ("github.com", "team/project"),
    "https://ada:secret@gitlab.example.org:8443/group/sub/project": ("gitlab.example.org:8443", "group/sub/project"),
    "git@github.com:team/project.git": ("github.com", "team/project"),
    "ssh://git@codeberg.org:22/team/project.git": ("codeberg.org", "team/project"),
    "/srv/git/project.git": ("", ""),
    "file:///srv/git/project.git": ("", ""),
    "../project": ("", ""),
}


@pytest.mark.parametrize(("url", "home"), ADDRESSES.items())
def test_host_and_path_of_a_remote(url: str, home: tuple[str, str]) -> None:
    found = home_of(url)
    assert (found.host, found.path) == home


GUESSES = {
    "git@github.com:a/b.git": "gh",
    "https://gitlab.example.org/a/b.git": "glab",
    "https://codeberg.org/a/b": "tea",
}


@pytest.mark.parametrize(("url", "program"), GUESSES.items())
def test_the_host_tells_the_forge(tmp_path: Path, url: str, program: str) -> None:
    assert CliForge(tmp_path, url, env={}).name == program


@pytest.mark.parametrize("url", ["/srv/git/project.git", "", "https://code.example.org/a/b"])
def test_a_remote_that_tells_no_forge_is_refused_in_words(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError):
        CliForge(tmp_path, url, env={}).check()


def test_every_preset_names_its_program_and_asks_by_it() -> None:
    for preset in PRESETS.values():
        commands = [preset.open, *preset.questions.values()]
        assert {command[0] for command in commands} == {preset.program}
