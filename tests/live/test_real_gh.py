"""The real gh, on an API of ours: the tracker keeps its promises with it, and the stand-in says what it says."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from capsule.adapters import Tracker
from capsule.core.errors import TrackerError
from capsule.forges.presets import PRESETS
from capsule.settings import GitHubOptions
from capsule.trackers._gh import Patience
from capsule.trackers.github import FIELDS
from tests.contracts import fake_gh, gh_projects, gh_suite
from tests.contracts.fake_gh.hub import new_hub
from tests.contracts.fake_gh.program import FIELDS as KNOWN_FIELDS
from tests.contracts.fake_gh.program import FLAGS
from tests.contracts.tracker_suite import ITEMS, TrackerContract
from tests.live.github_api import served
from tests.live.install import gh

_GH = gh()  # before any test changes the environment
pytestmark = pytest.mark.skipif(not _GH.exists(), reason="gh cannot be had: `make live` unpacks Debian's")


@contextlib.contextmanager
def real(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a gh that talks to the repository in that folder."""
    with served(folder / "hub.json") as own:
        yield gh_projects.environment(_GH.parent, folder) | own


def said(argv: list[str], env: Mapping[str, str], cwd: Path) -> tuple[int, object, str]:
    quiet = {**env, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    nothing = subprocess.DEVNULL
    done = subprocess.run(argv, cwd=cwd, env=quiet, stdin=nothing, capture_output=True, text=True, check=False)
    out: object = done.stdout
    with contextlib.suppress(ValueError):
        out = json.loads(done.stdout)
    return done.returncode, out, done.stderr.partition("\n\nUsage:")[0].rstrip("\n")  # usage is not what we read


class TestRealGh(TrackerContract):
    has_no: ClassVar = ("acceptance",)
    names: ClassVar = gh_suite.NAMES

    @pytest.fixture(scope="class")
    @classmethod
    def tracker(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
        folder = tmp_path_factory.mktemp("gh")
        (folder / "hub.json").write_text(json.dumps(new_hub([gh_suite.issue(item) for item in ITEMS])))
        with real(folder) as env:
            yield gh_projects.opened(folder, None, env)


SCRIPT = (
    ("issue", "list", "--state=open", "--limit=1000", f"--json={FIELDS}"),
    ("issue", "list", "--state=closed", "--limit=1", f"--json={FIELDS}"),
    ("issue", "view", "1", f"--json={FIELDS}"),
    ("issue", "view", "9", f"--json={FIELDS}"),
    ("issue", "view", "3", "--json=number,url"),
    ("issue", "view", "1", "--json=comments"),
    ("issue", "create", "--title=--force $(id)", "--body=", "--label=capsule"),
    ("label", "create", "--color=ededed", "--", "--force"),
    ("label", "create", "--color=ededed", "--", "a,b"),
    ("label", "create", "--color=ededed", "--", "BUG"),
    ("issue", "create", "--title=--force $(id)", "--body=x\n'y'", '--label=Bug,"a,b",--force', "--milestone=v1"),
    ("issue", "create", "--title=Mine", "--body=", "--assignee=@me"),
    ("issue", "create", "--title=His", "--body=", "--assignee=bob"),
    ("issue", "create", "--title=Late", "--body=", "--milestone=v9"),
    ("issue", "view", "4", f"--json={FIELDS}"),
    ("issue", "edit", "1", "--add-label=in-progress"),
    ("issue", "edit", "1", "--add-label=documentation", "--remove-label=bug"),
    ("issue", "edit", "1", "--add-assignee=@me"),
    ("issue", "edit", "1", "--title=--web", "--body=$(id)\ntwo", "--add-label=enhancement"),
    ("issue", "edit", "1", "--body="),
    ("issue", "edit", "1", "--add-assignee=bob"),
    ("issue", "edit", "9", "--add-assignee=@me"),
    ("issue", "comment", "1", "--body=--force\n$(id)"),
    ("issue", "comment", "9", "--body=x"),
    ("issue", "view", "1", "--json=assignees,comments,labels"),
    ("issue", "edit", "1", "--remove-assignee=@me"),
    ("issue", "close", "1"),
    ("issue", "close", "1"),
    ("issue", "close", "9"),
    ("api", "user", "--jq=.login"),
    ("issue", "list", "--jsn=number"),
    ("issue", "list", "--json=nummer"),
    ("issue", "view", "1", "--repo=tester/else", "--json=number"),
)


def test_the_stand_in_says_what_gh_says(tmp_path: Path) -> None:
    rows = [{"number": 1, "title": "One", "labels": ["bug"]}, {"number": 2, "title": "Two", "state": "CLOSED"}]
    folders = [tmp_path / name for name in ("real", "fake")]
    for folder in folders:
        folder.mkdir()
        (folder / "hub.json").write_text(json.dumps(new_hub(rows, pulls=[3])))
    fake = fake_gh.install(folders[1] / "bin", folders[1] / "hub.json") / "gh"
    told = []
    with real(folders[0]) as env:
        for program, folder in ((_GH, folders[0]), (fake, folders[1])):
            answers = []
            for words in SCRIPT:
                where = (
                    () if words[0] == "api" or "--repo=" in " ".join(words) else (f"--repo={gh_projects.REPOSITORY}",)
                )
                answers.append((words, said([str(program), *words[:2], *where, *words[2:]], env, folder)))
            told.append(answers)
    assert told[0] == told[1]
    assert json.loads((folders[0] / "hub.json").read_text()) == json.loads((folders[1] / "hub.json").read_text())


@pytest.mark.parametrize("command", ["issue list", "issue view"])
def test_gh_knows_the_fields_that_are_asked_for(command: str, tmp_path: Path) -> None:
    words = [*command.split(), *["1"] * (command == "issue view"), "--json"]
    code, _, err = said([str(_GH), *words], gh_projects.environment(_GH.parent, tmp_path), tmp_path)
    known = err.split()[err.split().index("`--json`:") + 1 :]
    assert code == 1 and tuple(known) == KNOWN_FIELDS
    assert set(FIELDS.split(",")) < set(known)


@pytest.mark.parametrize("command", FLAGS)
def test_gh_knows_the_flags_that_are_used(command: str, tmp_path: Path) -> None:
    words = command.split()[: 1 if command.startswith("api") else 2]  # `gh api` takes any path
    code, out, _ = said([str(_GH), *words, "--help"], gh_projects.environment(_GH.parent, tmp_path), tmp_path)
    assert code == 0 and all(f"--{flag} " in str(out) for flag in FLAGS[command])


@pytest.mark.parametrize(
    "command",
    [PRESETS["github"].open, *PRESETS["github"].questions.values()],
    ids=["open", *PRESETS["github"].questions],
)
def test_gh_knows_the_flags_by_which_requests_are_opened_and_followed(command: tuple[str, ...], tmp_path: Path) -> None:
    verbs = command[1:2] if command[1] == "api" else command[1:3]
    code, out, _ = said([str(_GH), *verbs, "--help"], gh_projects.environment(_GH.parent, tmp_path), tmp_path)
    flags = {word.partition("=")[0] for word in command if word.startswith("--")}
    assert code == 0 and flags and all(f"{flag} " in str(out) for flag in flags)


def trouble(root: Path, env: Mapping[str, str], options: GitHubOptions | None = None) -> TrackerError:
    """How the tracker words what the real gh says."""
    given = gh_projects.environment(_GH.parent, root) | {**env}
    with pytest.raises(TrackerError) as caught:
        gh_projects.opened(root, options, given, Patience(pauses=())).items()
    return caught.value


def test_who_is_not_logged_in_is_told_how(tmp_path: Path) -> None:
    assert trouble(tmp_path, {}).message == "gh is not logged in to GitHub."


def test_a_project_without_a_remote_is_told_which_setting_says_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env={**os.environ}, check=True)
    fault = trouble(tmp_path, {"GH_TOKEN": "not-a-token"}, GitHubOptions())
    assert fault.message == "gh cannot tell which repository on GitHub this is." and "OWNER/NAME" in fault.hint


def test_who_is_offline_is_told_so(tmp_path: Path) -> None:
    nobody = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    assert trouble(tmp_path, {"GH_TOKEN": "not-a-token", **nobody}).message == "GitHub cannot be reached."


def test_an_unknown_repository_and_one_without_issues_are_named(tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_text(json.dumps(new_hub(disabled=True)))
    with real(tmp_path) as env:
        assert trouble(tmp_path, env).message.startswith("The repository has no issues")
        strange = GitHubOptions(repository="tester/else")
        assert trouble(tmp_path, env, strange).message.startswith("GitHub knows no such repository")
