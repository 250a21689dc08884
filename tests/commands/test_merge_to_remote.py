"""`merge.to: remote`: main is on a server, moves while agents work, and is only ever moved forward."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.core.event import MissionStarted, Proposed, StepBegun, StepEnded, Waiting
from tests.costs import LONG, eventually

from ..conftest import Repo
from ..git_server import GitServer, moves_of, run
from .at_a_server import MAIN, AtServer, in_a_bare_clone
from .conftest import COMMIT, ITEM, Project, assert_clear, honest, nothing_changes, said

_RACE = """#!/bin/sh
# A person is faster: main moves while the push is checked, so many times.
grep -q "refs/heads/main$" || exit 0
left=$(cat {count}); [ "$left" -gt 0 ] || exit 0
echo $((left - 1)) > {count}
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
export GIT_AUTHOR_NAME=Bob GIT_AUTHOR_EMAIL=bob@example.org GIT_COMMITTER_NAME=Bob GIT_COMMITTER_EMAIL=bob@example.org
git update-ref refs/heads/main $(git commit-tree "main^{{tree}}" -p main -m "by Bob $left")
"""


class AtRemote(AtServer):
    """A project whose main is on a server."""

    def __init__(self, project: Project, server: GitServer) -> None:
        super().__init__(project, server)
        self.project = project

    def by_another(self, **files: str) -> str:
        """A person pushes to main from a clone of their own."""
        other = self.project.path.parent / f"other-{time.monotonic_ns()}"
        run("clone", "-q", str(self.bare), str(other))
        commit = Repo(other).commit("by Bob", **files)
        run("push", "-q", "origin", "HEAD:main", cwd=other)
        return commit

    def lose(self, times: int) -> None:
        """Have the next pushes to main lose their race."""
        count = self.bare / "races"
        count.write_text(f"{times}\n")
        self.hook("pre-receive", _RACE.format(count=count))

    def agents(self) -> int:
        return sum(isinstance(event, StepBegun) and event.spawns for event in self.project.events())

    def assert_merged_once(self) -> None:
        assert self.log("--merges", "--format=%s").count(f"Merge {ITEM}: Find the answer") == 1
        assert run("show", "main:answer", cwd=self.bare) == "42"
        self.assert_only_forward()


@pytest.fixture
def there(a_project: Project, server: GitServer) -> AtRemote:
    return AtRemote(a_project, server)


@pytest.fixture
def signed_off(there: AtRemote) -> AtRemote:
    """The server refuses main, so that the mission waits for a person with everything done but the push."""
    hook = there.server.refuse(MAIN, "main is protected: ask Ada")
    answer = there.project.run()
    assert answer.code == 1, answer
    hook.unlink()
    return there


# Merging


@pytest.mark.promise("remote.merged")
def test_work_is_merged_into_the_branch_at_the_remote(there: AtRemote) -> None:
    before = there.main()
    answer = there.project.run()
    assert answer.code == 0, answer
    there.assert_merged_once()
    assert f"{ITEM} is merged into origin/main as {there.main()[:12]}" in answer.out
    assert f"note: {ITEM} starts from origin/main at {before[:12]}." in answer.out + answer.err
    assert moves_of(there.bare, MAIN) == [(before, there.main())]
    assert there.project.status_of() == "closed"


@pytest.mark.promise("remote.follows")
def test_the_users_branch_and_checkout_follow(there: AtRemote) -> None:
    assert there.project.run().code == 0
    assert there.project.head("main") == there.main()
    assert (there.project.path / "answer").read_text() == "42\n"
    assert there.project.dirt() == ""


@pytest.mark.promise("remote.from-the-tip")
def test_a_mission_starts_from_the_tip_at_the_remote_and_is_merged_onto_it(there: AtRemote) -> None:
    theirs = there.by_another(new="x")
    answer = there.project.run()
    assert answer.code == 0, answer
    assert f"starts from origin/main at {theirs[:12]}; your main is behind it." in answer.out + answer.err
    [started] = [event for event in there.project.events() if isinstance(event, MissionStarted)]
    assert started.base == theirs
    assert there.log("--format=%P", "-1")[0].split()[0] == theirs
    assert (there.project.path / "new").read_text() == "x"


def test_commits_that_come_while_agents_work_are_under_the_merge(there: AtRemote) -> None:
    run("clone", "-q", str(there.bare), str(there.project.path.parent / "bob"))
    bob = there.project.path.parent / "bob"
    push = (
        f"cd {bob} && echo x > new && git add new && git {_as_bob()} commit -qm theirs && git push -q origin HEAD:main"
    )
    there.project.play(honest(merge=[said("PASS", run=[COMMIT, f"({push})"])]))
    assert there.project.run().code == 0
    assert there.log("--format=%s")[:2] == [f"Merge {ITEM}: Find the answer", "theirs"]
    there.assert_merged_once()


def _as_bob() -> str:
    return "-c user.name=Bob -c user.email=bob@example.org"


@pytest.mark.promise("remote.work")
def test_the_work_is_at_the_remote_before_the_merge(there: AtRemote) -> None:
    there.server.refuse(MAIN, "no")
    assert there.project.run().code == 1
    work = run("rev-parse", f"refs/capsule/missions/{ITEM}", cwd=there.bare)
    assert run("show", f"{work}:answer", cwd=there.bare) == "42"
    assert run("log", "-1", "--format=%s", work, cwd=there.bare) == f"{ITEM}: Find the answer"


def test_the_merge_names_a_mission_that_no_other_clone_has(there: AtRemote) -> None:
    assert there.project.run().code == 0
    [started] = [event for event in there.project.events() if isinstance(event, MissionStarted)]
    told = there.log("-1", "--format=%(trailers:key=Capsule-Uuid,valueonly)")[0]
    assert told == started.uuid and len(told) > 8


def test_another_branch_of_the_remote_takes_the_work(there: AtRemote) -> None:
    run("branch", "trunk", "main", cwd=there.bare)
    before = there.main()
    there.project.always["CAPSULE_MERGE__BRANCH"] = "trunk"
    assert there.project.run().code == 0
    assert there.main() == before
    assert run("show", "trunk:answer", cwd=there.bare) == "42"


# The user's own branch


def test_a_branch_with_commits_of_its_own_stays_where_it_is(there: AtRemote) -> None:
    mine = there.project.commit("mine", mine="x")
    answer = there.project.run()
    assert answer.code == 0, answer
    assert there.project.head("main") == mine
    assert "your branch main stays where it is: it has commits that origin/main lacks" in answer.err
    assert "mine" not in run("ls-tree", "--name-only", "main", cwd=there.bare).split()


@pytest.mark.promise("remote.follows")
def test_an_edit_of_the_users_keeps_their_branch_where_it_is_and_the_work_is_merged(there: AtRemote) -> None:
    before = there.project.head()
    there.project.write("answer", "my own idea\n")
    answer = there.project.run()
    assert answer.code == 0, answer
    there.assert_merged_once()
    assert there.project.head("main") == before
    assert (there.project.path / "answer").read_text() == "my own idea\n"
    assert "your checkout has an uncommitted edit of answer" in answer.err


def test_a_user_on_another_branch_keeps_their_checkout(there: AtRemote) -> None:
    there.project.git("switch", "-q", "-c", "feature")
    there.project.write("notes", "x\n")
    assert there.project.run().code == 0
    assert there.project.head("main") == there.main()
    assert (there.project.path / "answer").read_text() == "41\n"
    assert there.project.git("branch", "--show-current") == "feature"


# Races


@pytest.mark.promise("remote.races")
def test_a_lost_race_is_tried_again_on_the_new_tip(there: AtRemote) -> None:
    there.lose(2)
    answer = there.project.run()
    assert answer.code == 0, answer
    there.assert_merged_once()
    assert there.log("--format=%s")[:3] == [f"Merge {ITEM}: Find the answer", "by Bob 1", "by Bob 2"]


@pytest.mark.promise("remote.races")
def test_after_three_lost_races_it_needs_you_and_no_agent_is_paid_again(there: AtRemote) -> None:
    there.lose(3)
    answer = there.project.run()
    assert answer.code == 1, answer
    assert "origin/main moved 3 times in a row" in answer.out and "merge.to: request" in answer.out
    assert f"capsule merge {ITEM}" in answer.out
    agents = there.agents()
    again = there.project.capsule("merge", ITEM)
    assert again.code == 0, again
    assert there.agents() == agents
    there.assert_merged_once()


_OVERTAKEN = """#!/bin/sh
# What a killed run was still pushing gets there first, and a person pushes on top of it.
read old new ref; [ "$ref" = refs/heads/main ] && [ ! -e overtaken ] || exit 0
touch overtaken
cp -r $GIT_QUARANTINE_PATH/* objects/
unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
export GIT_AUTHOR_NAME=Bob GIT_AUTHOR_EMAIL=bob@example.org GIT_COMMITTER_NAME=Bob GIT_COMMITTER_EMAIL=bob@example.org
git update-ref refs/heads/main $new
git update-ref refs/heads/main $(git commit-tree "main^{tree}" -p main -m "by Bob")
"""


@pytest.mark.promise("remote.once")
def test_a_race_lost_against_its_own_earlier_push_merges_nothing_twice(there: AtRemote) -> None:
    hook = there.server.refuse(MAIN, "")
    hook.write_text(_OVERTAKEN)
    answer = there.project.run()
    assert answer.code == 0, answer
    assert there.log("--format=%s")[:2] == ["by Bob", f"Merge {ITEM}: Find the answer"]
    there.assert_merged_once()


# Refusals


@pytest.mark.promise("remote.refused")
def test_a_protected_main_needs_you_with_the_servers_own_words_and_the_next_command(there: AtRemote) -> None:
    there.server.refuse(MAIN, "main is protected: ask Ada")
    answer = there.project.run()
    assert answer.code == 1
    assert "main is protected: ask Ada" in answer.out and "Nothing was merged, everything is kept" in answer.out
    assert f"capsule merge {ITEM}" in answer.out
    assert "main is protected: ask Ada" in there.project.capsule("questions").out
    assert moves_of(there.bare, MAIN) == []


@pytest.mark.promise("remote.refused")
def test_what_was_refused_goes_on_without_an_agent(signed_off: AtRemote) -> None:
    agents = signed_off.agents()
    assert signed_off.project.capsule("merge", ITEM).code == 0
    assert signed_off.agents() == agents
    signed_off.assert_merged_once()


@pytest.mark.promise("remote.work")
def test_a_server_that_takes_branches_only_is_answered_by_a_setting_that_is_named(there: AtRemote) -> None:
    there.server.refuse("refs/capsule/*", "only branches here")
    there.project.always["CAPSULE_MERGE__CLAIMS"] = "refs/heads/capsule-claims/"
    answer = there.project.run()
    assert answer.code == 1
    assert "only branches here" in answer.out and "`merge.refs`" in answer.out and "refs/heads/capsule/" in answer.out
    there.project.always["CAPSULE_MERGE__REFS"] = "refs/heads/capsule/"
    assert there.project.capsule("merge", ITEM).code == 0
    there.assert_merged_once()
    assert run("show", f"capsule/{ITEM}:answer", cwd=there.bare) == "42"


@pytest.mark.promise("remote.refused")
def test_a_branch_that_was_renamed_meanwhile_needs_you_with_its_new_name(there: AtRemote) -> None:
    rename = f"(unset GIT_DIR; cd {there.bare} && git branch -m main trunk && git symbolic-ref HEAD refs/heads/trunk)"
    there.project.play(honest(merge=[said("PASS", run=[COMMIT, rename])]))
    answer = there.project.run()
    assert answer.code == 1, answer
    assert "origin was not found" in answer.out and "Its default branch is trunk: `merge.branch: trunk`" in answer.out
    agents, there.project.always["CAPSULE_MERGE__BRANCH"] = there.agents(), "trunk"
    assert there.project.capsule("merge", ITEM).code == 0
    assert there.agents() == agents and there.show("trunk:answer") == "42"


@pytest.mark.promise("remote.refused")
@pytest.mark.parametrize("fault", ["a hook", "a limit"])
def test_a_quota_at_the_server_needs_you_and_goes_on_once_there_is_room(there: AtRemote, fault: str) -> None:
    if fault == "a hook":
        hook, words = there.server.refuse("*", "error: disk quota exceeded for this repository"), "disk quota exceeded"
        there.project.always["CAPSULE_MERGE__CLAIMS"] = "refs/heads/capsule-claims/"
        hook.write_text(hook.read_text().replace("*)", "refs/heads/main|refs/capsule/missions/*)"))
    else:
        run("config", "receive.maxInputSize", "400", cwd=there.bare)
        words = "pack exceeds maximum allowed size"
    answer = there.project.run()
    assert answer.code == 1, answer
    assert words in answer.out and f"capsule merge {ITEM}" in answer.out
    assert moves_of(there.bare, MAIN) == []
    agents = there.agents()
    if fault == "a hook":
        hook.unlink()
    run("config", "receive.maxInputSize", "0", cwd=there.bare)
    assert there.project.capsule("merge", ITEM).code == 0
    assert there.agents() == agents
    there.assert_merged_once()


def test_expired_credentials_need_you(there: AtRemote) -> None:
    there.project.play(honest(merge=[said("PASS", run=[COMMIT, f"touch {there.bare}/expired"])]))
    with _when(there.bare / "expired", lambda: setattr(there.server, "password", "new")):
        answer = there.project.run()
    assert answer.code == 1, answer
    assert "origin refused" in answer.out and f"capsule merge {ITEM}" in answer.out
    there.server.password = ""
    assert there.project.capsule("merge", ITEM).code == 0


class _when:
    """Do something as soon as a file is there."""

    def __init__(self, file: Path, act: Callable[[], None]) -> None:
        self._file, self._act, self._over = file, act, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            if self._file.exists():
                self._act()
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# Offline


@pytest.mark.promise("remote.offline")
def test_nothing_begins_while_the_remote_cannot_be_reached(there: AtRemote) -> None:
    there.server.down = True
    with nothing_changes(there.project):
        answer = there.project.run()
    assert_clear(answer, 3, f"{ITEM} was not begun", "git fetch origin")
    assert "origin/main cannot be reached" in answer.err


def test_a_remote_without_such_a_branch_is_named(there: AtRemote) -> None:
    there.project.always["CAPSULE_MERGE__BRANCH"] = "trunk"
    with nothing_changes(there.project):
        assert_clear(there.project.run(), 1, "origin/trunk was not found", "`merge.branch: main`")
    there.project.always |= {"CAPSULE_MERGE__REMOTE": "upstream", "CAPSULE_MERGE__BRANCH": "auto"}
    assert_clear(there.project.run(), 1, "this repository has no remote upstream", "`merge.remote`")


@pytest.mark.promise("remote.offline")
def test_a_remote_that_is_down_for_a_moment_is_waited_for(there: AtRemote) -> None:
    """The merge agent's last act is to wait until the server is gone."""
    down = there.bare / "down"
    there.project.play(honest(merge=[said("PASS", run=[COMMIT, f"touch {there.bare}/ready; {_until(down)}"])]))

    def go_down() -> None:
        there.server.down = True
        down.touch()

    def waits() -> bool:
        return any(isinstance(event, Waiting) for event in there.project.events())

    with _when(there.bare / "ready", go_down), there.project.running() as process:
        assert eventually(waits, LONG)
        status = there.project.capsule("status").out
        there.server.down = False
        assert process.wait(LONG) == 0
    assert "waiting at publish for origin until" in status
    there.assert_merged_once()
    ended = [event for event in there.project.events() if isinstance(event, StepEnded) and event.phase == "publish"]
    assert len(ended) == 1


def _until(file: Path) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


@pytest.mark.promise("remote.offline")
def test_a_remote_that_stays_away_for_too_long_ends_the_run_and_loses_nothing(there: AtRemote) -> None:
    there.project.play(
        honest(merge=[said("PASS", run=[COMMIT, f"touch {there.bare}/ready; {_until(there.bare / 'down')}"])])
    )

    def go_down() -> None:
        there.server.down = True
        (there.bare / "down").touch()

    with _when(there.bare / "ready", go_down):
        answer = there.project.run(CAPSULE_EXECUTION__MAX_WAIT_MINUTES="0.01")
    assert answer.code == 3, answer
    assert "origin cannot be reached" in answer.err and f"capsule run {ITEM}" in answer.err
    there.server.down = False
    agents = there.agents()
    assert there.project.run().code == 0
    assert there.agents() == agents
    there.assert_merged_once()


# Killed


@pytest.mark.promise("remote.once")
def test_a_push_whose_answer_was_lost_is_found_at_the_remote(signed_off: AtRemote) -> None:
    """The candidate is journaled before it is pushed; the run was killed before it heard that it is merged."""
    project = signed_off.project
    proposed = [event for event in project.events() if isinstance(event, Proposed)][-1]
    project.git("push", "-q", "origin", f"{proposed.commit}:main")
    signed_off.by_another(new="x")
    assert project.capsule("merge", ITEM).code == 0
    signed_off.assert_merged_once()
    assert project.head("main") == signed_off.main()
    assert len([event for event in project.events() if isinstance(event, Proposed)]) == 1


@pytest.fixture
def unheard(signed_off: AtRemote) -> AtRemote:
    """Its push arrived; the run was killed before it heard of that."""
    project = signed_off.project
    proposed = [event for event in project.events() if isinstance(event, Proposed)][-1]
    project.git("push", "-q", str(signed_off.bare), f"{proposed.commit}:main")  # which no ref here follows
    return signed_off


def claims(there: AtRemote) -> str:
    return run("for-each-ref", "--format=%(refname:lstrip=3)", "refs/capsule/claims", cwd=there.bare)


@pytest.mark.promise("remote.once")
@pytest.mark.parametrize("verb", ["abort", "clean"])
def test_given_up_after_a_push_that_was_not_heard_of_its_item_is_closed(unheard: AtRemote, verb: str) -> None:
    answer = unheard.project.capsule(verb, ITEM)
    assert answer.code == 0, answer
    assert f"{ITEM} was merged as {unheard.main()[:12]}; its item is closed" in answer.out
    assert unheard.project.status_of() == "closed"
    assert claims(unheard) == ""
    unheard.assert_merged_once()


@pytest.mark.promise("remote.once")
@pytest.mark.parametrize("words", [["abort", ITEM], ["clean", ITEM], ["clean", "--all"]], ids=" ".join)
def test_what_may_be_merged_is_not_given_up_while_the_remote_cannot_be_reached(
    unheard: AtRemote, words: list[str]
) -> None:
    unheard.server.down = True
    before = unheard.project.events()
    answer = unheard.project.capsule(*words)
    assert_clear(answer, 3, f"{ITEM} may be merged already: origin cannot be reached", "git fetch origin")
    assert unheard.project.events() == before and unheard.project.worktree.exists()
    assert unheard.project.status_of() == "in_progress" and claims(unheard) == ITEM
    unheard.server.down = False
    assert unheard.project.capsule(*words).code == 0
    assert unheard.project.status_of() == "closed"


def test_what_was_never_proposed_is_given_up_without_the_remote(there: AtRemote) -> None:
    there.project.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert there.project.run().code == 2
    there.server.down = True
    assert there.project.capsule("clean", ITEM).code == 0
    assert there.project.status_of() == "open"


@pytest.mark.promise("remote.once")
def test_what_was_merged_unheard_of_is_not_started_over(unheard: AtRemote) -> None:
    before = unheard.project.events()
    refused = unheard.project.run("--fresh")
    assert_clear(refused, 1, f"{ITEM} was merged as {unheard.main()[:12]}", f"capsule run {ITEM}")
    assert unheard.project.events() == before and unheard.project.worktree.exists()
    assert unheard.project.run().code == 0
    assert unheard.project.status_of() == "closed"
    unheard.assert_merged_once()


# Kinds of clones


@pytest.mark.promise("remote.clones")
def test_a_clone_that_became_shallow_is_deepened_to_where_the_work_began(signed_off: AtRemote) -> None:
    project = signed_off.project
    [started] = [event for event in project.events() if isinstance(event, MissionStarted)]
    for number in range(3):
        signed_off.by_another(**{f"new{number}": "x"})
    project.git("fetch", "-q", "--depth=1", "origin", "main")
    assert started.base not in project.git("rev-list", "origin/main").split()
    assert project.capsule("merge", ITEM).code == 0
    signed_off.assert_merged_once()


@pytest.mark.promise("remote.clones")
def test_a_mission_begins_and_ends_in_a_shallow_clone(there: AtRemote, tmp_path: Path) -> None:
    base = there.project.head()
    there.by_another(new="x")
    shallow = Project(tmp_path / "shallow", _folder(tmp_path / "of-shallow"))
    run("clone", "-q", "--depth=1", there.bare.as_uri(), str(shallow.path))
    assert base not in shallow.git("rev-list", "--all").split()
    shallow.git("config", "user.name", "Ada")
    shallow.git("config", "user.email", "ada@example.org")
    shallow.always = there.project.always
    answer = shallow.run()
    assert answer.code == 0, answer
    there.assert_merged_once()


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.promise("remote.clones")
def test_a_linked_worktree_as_the_project_merges_to_the_remote(there: AtRemote, tmp_path: Path) -> None:
    there.project.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    answer = there.project.capsule("run", ITEM, cwd=tmp_path / "linked")
    assert answer.code == 0, answer
    there.assert_merged_once()
    assert there.project.head("main") == there.main()


@pytest.mark.promise("remote.clones")
def test_a_worktree_of_a_bare_repository_merges_to_the_remote(there: AtRemote, tmp_path: Path) -> None:
    project = in_a_bare_clone(there, there.project, tmp_path / "of-bare")
    answer = project.run()
    assert answer.code == 0, answer
    there.assert_merged_once()
    assert project.head("main") == there.main() and (project.path / "answer").read_text() == "42\n"


# Two addresses


@pytest.mark.promise("remote.one-address")
def test_where_pushes_go_to_a_fork_nothing_begins(there: AtRemote) -> None:
    before, fork = there.main(), there.server.host(there.project.path, "fork")
    there.project.git("remote", "set-url", "--push", "origin", there.server.url("fork"))
    answer = there.project.run()
    assert_clear(answer, 1, f"pushes to origin go to {there.server.url('fork')}", "Name a remote in `merge.remote`")
    assert there.agents() == 0 and there.main() == before
    assert moves_of(fork, MAIN) == []
    doctor = there.project.capsule("doctor")
    assert f"pushes go to {there.server.url('fork')}, and count only where they arrive there" in doctor.out


@pytest.mark.promise("remote.one-address")
def test_an_address_of_its_own_for_pushes_to_the_same_repository_is_used(there: AtRemote) -> None:
    there.project.git("remote", "set-url", "--push", "origin", there.bare.as_uri())
    answer = there.project.run()
    assert answer.code == 0, answer
    assert there.server.pushes == 0
    there.assert_merged_once()


# Refused settings


@pytest.mark.promise("claims.namespace")
def test_work_is_not_put_where_the_branch_is(there: AtRemote) -> None:
    """A mission of the name of the branch would be pushed over it."""
    run("branch", "-m", "main", "capsule/main", cwd=there.bare)
    there.project.git("branch", "-m", "main", "capsule/main")
    there.project.always |= {"CAPSULE_MERGE__REFS": "refs/heads/capsule/", "CAPSULE_PROJECT__MAIN": "capsule/main"}
    with nothing_changes(there.project):
        refused = there.project.run()
    assert_clear(refused, 2, "merge.refs (refs/heads/capsule/) and merge.branch (refs/heads/capsule/main)", "Name two")


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"CAPSULE_TRACKER__COMMIT": "true"}, "tracker.commit"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(there: AtRemote, more: dict[str, str], cause: str) -> None:
    with nothing_changes(there.project):
        assert_clear(there.project.run(**more), 2, cause, "Set ")
