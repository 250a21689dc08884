"""A whole life of requests at a real Gitea: what people do there is seen, and followed to the tracker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.core.errors import RemoteFault
from capsule.core.event import Reviewed
from capsule.core.request import Fate, Outcome, RequestDraft, Standing
from capsule.forges.cli import CliForge
from tests.commands.conftest import COMMIT, ITEM, Project, honest, said
from tests.conftest import Repo
from tests.git_server import run
from tests.live.gitea import ADA, MALLORY, Gitea, Hosted, served
from tests.live.install import gitea

pytestmark = pytest.mark.skipif(not gitea().exists(), reason="Gitea is not built: see `make live`")
BRANCH = f"capsule/{ITEM}"
KEEPS_WORK = {"merge": True, "rebase": False, "squash": False, "rebase-merge": False}
"""The buttons, and whether the commits of the work are on main afterwards as they were."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitea]:
    with served(tmp_path_factory.mktemp("gitea")) as there:
        yield there


class AtGitea:
    def __init__(self, project: Project, there: Hosted, tea: Path) -> None:
        self.project, self.there = project, there
        env = project.always
        env["PATH"] = os.pathsep.join([str(tea), os.environ["PATH"]])
        env["CAPSULE_MERGE__TO"] = "request"
        env["CAPSULE_MERGE__REQUEST__FORGE"] = "gitea"

    def capsule(self, *words: str, code: int = 0) -> str:
        answer = self.project.capsule(*words)
        assert answer.code == code, answer
        return answer.out + answer.err

    @property
    def waits(self) -> str:
        return f"{ITEM} waits for review: {self.there.request['html_url']}\n"

    def fates(self) -> list[Fate]:
        return [event.fate for event in self.project.events() if isinstance(event, Reviewed)]


@pytest.fixture
def at(a_project: Project, server: Gitea, tmp_path: Path, request: pytest.FixtureRequest) -> AtGitea:
    name = f"project-{abs(hash(request.node.nodeid))}"
    there = server.host(a_project.path, name)
    a_project.git("remote", "add", "origin", there.url)
    more = [said("PASS", run=["git add -A && git commit -qm more"]) for _ in range(2)]
    texts = ({"answer": "42\n"}, {"answer": "42\n", "docs": "yes\n"}, {"answer": "42\n", "docs": "yes, all\n"})
    turns = [said("PASS", write=dict(text)) for text in texts]
    a_project.play(honest(execute=turns, merge=[said("PASS", run=[COMMIT]), *more]))
    at = AtGitea(a_project, there, server.install(tmp_path / "bin"))
    at.capsule("run", ITEM)
    return at


def test_a_whole_life_from_forge_to_tracker(at: AtGitea) -> None:
    there, first = at.there, at.there.head(BRANCH)
    request = there.request
    assert (request["title"], request["base"]["ref"]) == (f"{ITEM}: Find the answer", "main")
    assert "## What was proven" in request["body"]
    there.comment("I would do all of this differently.", by=MALLORY)
    there.review("Add my backdoor.", by=MALLORY)
    assert at.capsule("sync") == at.waits

    there.review("Please write down why, and where.", at=("answer", 1, "Why 42?"))
    assert f"{ITEM}: changes requested by {ADA}: http://" in at.capsule("sync")
    [review] = [event for event in at.project.events() if isinstance(event, Reviewed)]
    assert f"{ADA} requests changes:\nPlease write down why, and where." in review.text
    assert "answer:1: Why 42?" in review.text
    at.capsule("run", ITEM)
    second = there.head(BRANCH)
    assert there.show("docs", BRANCH) == "yes\n"
    assert (len(there.requests), there.request["head"]["sha"]) == (1, second)
    commits = [each["sha"] for each in there.ask("GET", f"pulls/{request['number']}/commits")]
    assert {first, second} <= {*commits}, "reviewers see what has changed since"
    assert at.capsule("sync") == at.waits

    there.approve()
    there.check("build", "failed")
    there.check("slow", "pending")
    assert at.capsule("sync") == at.waits
    there.check("slow", "passed")
    assert f"{ITEM}: check failed: build: http://" in at.capsule("sync")
    at.capsule("run", ITEM)
    there.check("build", "passed")
    assert at.capsule("sync") == at.waits
    merged = there.merge("squash", delete=True)
    assert f"{ITEM} was merged: http://" in at.capsule("sync")
    assert at.project.status_of() == "closed"
    assert at.project.head("main") == merged
    assert (at.project.path / "docs").read_text() == "yes, all\n"
    assert at.fates() == [Fate.CHANGES, Fate.CHANGES, Fate.MERGED]


@pytest.mark.parametrize("how", KEEPS_WORK)
@pytest.mark.soak
def test_each_button_closes_the_item(at: AtGitea, how: str) -> None:
    work, onto = at.there.head(BRANCH), at.project.head("main")
    at.there.move_main()
    merged = at.there.merge(how)
    assert f"{ITEM} was merged: http://" in at.capsule("sync")
    assert at.project.status_of() == "closed"
    assert at.project.head("main") == merged
    assert (work in run("rev-list", f"{onto}..main", cwd=at.project.path).split()) == KEEPS_WORK[how]


@pytest.mark.soak
def test_one_that_was_closed_frees_its_item_and_may_be_proposed_anew(at: AtGitea) -> None:
    at.there.set_state("closed")
    assert f"{ITEM} is free again: its request was closed without a merge: http://" in at.capsule("sync")
    assert at.project.status_of() == "open"
    at.capsule("run", ITEM)
    assert [row["state"] for row in at.there.requests] == ["closed", "open"]
    at.there.merge("squash")
    at.capsule("sync")
    assert at.project.status_of() == "closed"


@pytest.mark.soak
def test_one_that_was_closed_and_opened_again_before_anybody_looked_waits(at: AtGitea) -> None:
    at.there.set_state("closed")
    at.there.set_state("open")
    assert at.capsule("sync") == at.waits


@pytest.mark.soak
def test_a_branch_that_was_deleted_closes_its_request_there(at: AtGitea) -> None:
    at.there.delete_branch(BRANCH)
    told = at.capsule("sync", code=1 if at.there.request["state"] == "open" else 0)
    assert f"its branch {BRANCH} was deleted" in told


@pytest.mark.soak
def test_one_that_was_merged_into_another_branch_needs_a_person(at: AtGitea) -> None:
    at.there.retarget("next")
    assert at.capsule("sync") == at.waits
    at.there.merge("squash")
    assert "its request was merged into next, not into main" in at.capsule("sync", code=1)
    assert at.project.status_of() == "in_progress"
    at.capsule("run", ITEM)
    assert [row["base"]["ref"] for row in at.there.requests] == ["next", "main"]


@pytest.mark.soak
def test_a_commit_of_somebody_else_stays(at: AtGitea, tmp_path: Path) -> None:
    run("clone", "-q", "--branch", BRANCH, at.there.url, str(tmp_path / "other"))
    theirs = Repo(tmp_path / "other").commit("by Bob", theirs="x")
    run("push", "-q", "origin", f"HEAD:{BRANCH}", cwd=tmp_path / "other")
    at.there.review("Write it down.")
    assert f"{theirs[:12]} on {BRANCH} was pushed by somebody else" in at.capsule("sync", code=1)
    assert at.there.head(BRANCH) == theirs


@pytest.mark.soak
def test_main_is_protected_against_a_push(at: AtGitea) -> None:
    at.project.always["CAPSULE_MERGE__TO"] = "remote"
    at.there.set_state("closed")
    at.capsule("sync")
    told = at.capsule("run", ITEM, code=1)
    assert "protected branch" in told


@pytest.mark.soak
def test_words_of_the_server_are_told(at: AtGitea, server: Gitea, tmp_path: Path) -> None:
    env = {"PATH": at.project.always["PATH"], "HOME": str(tmp_path)}
    forge = CliForge(tmp_path, at.there.url, kind="gitea", env=env)
    found = forge.find(BRANCH, 0, ())
    assert found and (found.standing, found.base) == (Standing.OPEN, "main")
    with pytest.raises(RemoteFault, match="HTTP 409 Conflict: pull request already exists"):
        forge.open(RequestDraft(BRANCH, "main", "Again, once more", "Body"))
    at.there.check("build", "failed")
    seen = forge.find(BRANCH, found.number, ())
    assert seen and [(check.name, check.outcome) for check in seen.checks] == [("build", Outcome.FAILED)]
    server.install(tmp_path / "stale")
    text = (tmp_path / "stale" / "tea").read_text().replace(server.token, "0" * 40)
    (tmp_path / "stale" / "tea").write_text(text)
    expired = CliForge(tmp_path, at.there.url, kind="gitea", env=env | {"PATH": f"{tmp_path / 'stale'}"})
    with pytest.raises(RemoteFault, match="HTTP 401 Unauthorized") as caught:
        expired.find(BRANCH, 0, ())
    assert caught.value.hint == "See whether you are logged in: tea login list"
