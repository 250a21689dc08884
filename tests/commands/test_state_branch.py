"""A backlog whose main takes requests only: its state is on a branch of its own, its code in a request per mission."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..conftest import Repo
from ..fake_forge import Forge
from ..git_server import GitServer, run
from .at_a_server import LAYOUTS
from .backlog_project import BacklogAtServer, BacklogProject
from .backlog_script import honest as by_documents
from .backlog_script import stem
from .conftest import assert_clear, honest, said
from .test_merge_to_remote import _RACE as RACE

STATE = "refs/heads/capsule-state"


class InReview(BacklogAtServer):
    """A project with a backlog on main, which takes requests only, on a server with a forge."""

    def __init__(self, project: BacklogProject, server: GitServer, folder: Path) -> None:
        super().__init__(project, server, "team/project", to="request")
        server.refuse("refs/heads/main", "main is protected: open a request", "team/project")
        self.forge = Forge(folder, self.bare)
        project.always |= {
            "PATH": os.pathsep.join([str(self.forge.install("gh")), os.environ["PATH"]]),
            "CAPSULE_MERGE__REQUEST__FORGE": "github",
            "CAPSULE_WORKFLOW__DEFAULT": "tdd",
        }
        project.test = "sh -c 'for t in tests/*; do test ! -e $t || sh $t || exit 1; done'"
        project.play(honest(merge=[said("PASS")]))

    @property
    def here(self) -> BacklogProject:
        """The backlog as the checkout of its branch has it."""
        return at_state(self.project)

    def files(self, ref: str) -> list[str]:
        return run("ls-tree", "-r", "--name-only", ref, cwd=self.bare).splitlines()

    def sync(self, code: int = 0) -> str:
        answer = self.project.capsule("sync")
        assert answer.code == code, answer
        return answer.out + answer.err

    def assert_state_only_forward(self) -> None:
        self.assert_only_forward(STATE, begun_here=True)


def at_state(project: BacklogProject) -> BacklogProject:
    there = BacklogProject.__new__(BacklogProject)
    there.path = project.path / ".capsule/backlog"
    return there


@pytest.fixture
def there(a_backlog: BacklogProject, server: GitServer, tmp_path: Path) -> InReview:
    return InReview(a_backlog, server, tmp_path / "forge")


@pytest.fixture
def waiting(there: InReview) -> InReview:
    there.project.add()
    answer = there.project.run()
    assert answer.code == 0, answer
    return there


# The branch


@pytest.mark.promise("state-branch.apart")
def test_what_is_added_is_committed_to_a_branch_of_its_own(there: InReview) -> None:
    main = there.at("main")
    assert there.project.add() == "WRK-001"
    assert there.at("main") == main == there.project.head()
    assert there.files("capsule-state") == ["BACKLOG.yaml"]
    assert "WRK-001" in there.show("capsule-state:BACKLOG.yaml")
    assert there.here.ids() == ["WRK-001"]
    assert there.project.status() == ""
    assert "WRK-001" in there.project.say("list").out


@pytest.mark.promise("state-branch.apart")
def test_a_mission_is_proposed_by_a_request_without_the_files_of_the_tracker(waiting: InReview) -> None:
    request = waiting.forge.request
    assert (request["branch"], request["base"]) == ("capsule/WRK-001", "main")
    changed = run("diff", "--name-only", "main", "capsule/WRK-001", cwd=waiting.bare).splitlines()
    assert changed and not [path for path in changed if "BACKLOG" in path or "worklog" in path], changed
    assert waiting.here.item().status == "in_progress"
    assert "status: in_progress" in waiting.show("capsule-state:BACKLOG.yaml")
    waiting.assert_state_only_forward()
    assert waiting.project.status() == ""


@pytest.mark.promise("state-branch.merged", "request.merged")
def test_a_merge_archives_the_item_on_that_branch(waiting: InReview) -> None:
    merged = waiting.forge.merge("squash", delete=True)
    assert "WRK-001 was merged: https://" in waiting.sync()
    assert waiting.here.ids() == []
    assert any(path.startswith("_worklog/") for path in waiting.files("capsule-state"))
    assert waiting.project.head("main") == merged
    assert (waiting.project.path / "answer").read_text() == "42\n"
    waiting.assert_state_only_forward()


@pytest.mark.promise("request.second-run", "request.waits")
def test_a_second_run_waits_and_opens_nothing(waiting: InReview) -> None:
    state, agents = waiting.at("capsule-state"), waiting.project.spawns()
    for words in ([], ["WRK-001"]):
        answer = waiting.project.run(*words)
        assert answer.code == 0, answer
        assert "waits for review: https://" in answer.out + answer.err
    assert waiting.project.spawns() == agents and len(waiting.forge.requests) == 1
    assert waiting.at("capsule-state") == state
    assert "waiting" in waiting.project.say("status").out
    assert "waits for review: https://" in " ".join(waiting.project.say("explain").out.split())


@pytest.mark.promise("state-branch.merged", "request.queue")
def test_an_item_that_depends_on_another_waits_for_its_merge(there: InReview) -> None:
    there.project.add()
    there.project.add("Ask", "--depends-on", "WRK-001")
    question = honest(
        test_writer=[said("PASS", write={"tests/test_ask.sh": "test -e question\n"})],
        execute=[said("PASS", write={"question": "6x9\n"})],
        merge=[said("PASS")],
    )
    there.project.play(question, "WRK-002")
    answer = there.project.run()
    assert answer.code == 0, answer
    assert [row["branch"] for row in there.forge.requests] == ["capsule/WRK-001"]
    there.forge.merge("squash")
    answer = there.project.run()
    assert answer.code == 0, answer
    assert [row["branch"] for row in there.forge.requests] == ["capsule/WRK-001", "capsule/WRK-002"]
    assert there.here.ids() == ["WRK-002"]
    there.forge.merge("merge")
    there.sync()
    assert there.here.ids() == []


@pytest.mark.promise("state-branch.merged", "request.closed")
def test_a_request_that_is_closed_makes_its_item_ready_again(waiting: InReview) -> None:
    waiting.forge.close()
    assert "WRK-001 is free again" in waiting.sync()
    assert waiting.here.item().status == "ready"
    assert "status: ready" in waiting.show("capsule-state:BACKLOG.yaml")
    waiting.assert_state_only_forward()


@pytest.mark.promise("request.changes")
def test_what_reviewers_ask_for_comes_back_and_is_pushed_on_top(waiting: InReview) -> None:
    before = waiting.at("capsule/WRK-001")
    waiting.forge.review("Name the question, too.")
    assert "changes requested by ada" in waiting.sync()
    waiting.project.play(
        honest(execute=[said("PASS", write={"question": "6x9\n"})], merge=[said("PASS")]),
    )
    answer = waiting.project.run("WRK-001")
    assert answer.code == 0, answer
    run("merge-base", "--is-ancestor", before, "capsule/WRK-001", cwd=waiting.bare)
    assert "question" in waiting.files("capsule/WRK-001")
    waiting.forge.merge("merge")
    waiting.sync()
    assert waiting.here.ids() == []


# Switching, clones, and people


@pytest.mark.promise("state-branch.begun")
def test_a_backlog_that_main_has_goes_on_there(a_backlog: BacklogProject, server: GitServer, tmp_path: Path) -> None:
    a_backlog.add("One")
    a_backlog.add("Two")
    there = InReview(a_backlog, server, tmp_path / "forge")
    for words in (["status"], ["list"], ["explain"], ["run", "--dry-run"], ["doctor"]):  # these only look
        assert "WRK-001" in there.project.say(*words).out or words == ["doctor"]
    assert run("for-each-ref", STATE, cwd=there.bare) == "" and not there.here.path.exists()
    assert there.project.add("Three") == "WRK-003"
    assert there.here.ids() == ["WRK-001", "WRK-002", "WRK-003"]
    assert "WRK-003" not in there.project.backlog.read_text()
    assert there.project.status() == ""
    assert run("rev-list", "--max-parents=0", "--count", "capsule-state", cwd=there.bare) == "1"
    assert run("log", "--format=%s", "capsule-state", cwd=there.bare).splitlines()[-1] == "The state of the backlog"


@pytest.mark.promise("state-branch.begun")
def test_a_backlog_that_differs_here_and_on_main_is_not_guessed(there: InReview) -> None:
    clone = there.clone()
    (there.bare / "hooks/pre-receive").unlink()
    clone.always = {name: value for name, value in clone.always.items() if "MERGE" not in name}
    clone.add("Theirs")
    clone.git("push", "-q", "origin", "main")
    there.project.backlog.write_text(f"# mine\n{there.project.backlog.read_text()}")
    assert_clear(there.project.say("add", "Mine"), 1, "BACKLOG.yaml differs here and on origin/main", "git pull")
    there.project.git("checkout", "-q", "BACKLOG.yaml")
    assert there.project.add("Mine") == "WRK-002"


@pytest.mark.promise("state-branch.clones")
def test_a_fresh_clone_reads_the_branch_although_main_has_an_old_backlog(there: InReview) -> None:
    there.project.add()
    clone = there.clone()
    there.server.down = True
    assert "WRK-001" in clone.say("list").out
    assert at_state(clone).ids() == ["WRK-001"] and clone.status() == ""
    there.server.down = False
    assert clone.add("Two") == "WRK-002"
    assert there.project.add("Three") == "WRK-003"
    there.assert_state_only_forward()


@pytest.mark.promise("state-branch.clones")
def test_a_clone_of_one_branch_asks_the_remote(there: InReview) -> None:
    there.project.add()
    assert "WRK-001" in there.clone("ci", "--single-branch").say("list").out


@pytest.mark.promise("state-branch.clones")
def test_a_backlog_that_main_has_lost_is_found(there: InReview) -> None:
    there.project.add()
    (there.bare / "hooks/pre-receive").unlink()
    there.project.git("rm", "-q", "BACKLOG.yaml")
    there.project.git("commit", "-q", "-m", "The backlog has a branch of its own")
    there.project.git("push", "-q", "origin", "main")
    assert "WRK-001" in there.project.say("list").out
    assert "WRK-001" in there.clone().say("list").out


@pytest.mark.promise("state-branch.people")
def test_edits_in_its_checkout_go_along_with_the_next_commit(there: InReview) -> None:
    there.project.add()
    there.here.edit("Find the answer", "Find it")
    there.project.add("Two")
    assert "title: Find it" in there.show("capsule-state:BACKLOG.yaml")


@pytest.mark.promise("state-branch.people")
def test_what_people_push_to_it_is_followed(there: InReview) -> None:
    there.project.add()
    run("clone", "-q", "--branch", "capsule-state", there.server.url("team/project"), str(there.bare.parent / "bob"))
    bob = Repo(there.bare.parent / "bob")
    file = bob.path / "BACKLOG.yaml"
    bob.commit("by Bob", **{"BACKLOG.yaml": file.read_text().replace("Find the answer", "Find it")})
    run("push", "-q", "origin", "HEAD", cwd=bob.path)
    there.project.add("Two")
    assert [item.title for item in there.here.tracker.everything()] == ["Find it", "Two"]
    there.assert_state_only_forward()


@pytest.mark.promise("state-branch.people")
def test_an_edit_of_the_copy_on_main_is_not_read_and_that_is_said(there: InReview) -> None:
    there.project.add()
    assert "not read" not in there.project.say("list").err
    there.project.backlog.write_text("# mine\n")
    answer = there.project.say("list")
    assert "BACKLOG.yaml is edited in your checkout, and not read there" in answer.out + answer.err
    assert ".capsule/backlog/BACKLOG.yaml" in answer.out + answer.err


@pytest.mark.promise("state-branch.checkout")
def test_its_checkout_can_be_removed_and_comes_back(there: InReview) -> None:
    there.project.add()
    run("worktree", "remove", "--force", ".capsule/backlog", cwd=there.project.path)
    assert "WRK-001" in there.project.say("list").out
    assert there.project.add("Two") == "WRK-002"


@pytest.mark.promise("state-branch.verbs")
def test_verbs_change_it_and_undo_changes_it_back(there: InReview) -> None:
    project = there.project
    project.add()
    main = project.head()
    for words in (["edit", "WRK-001", "--title", "Find it"], ["hold", "WRK-001", "--reason", "later"]):
        assert project.say(*words).code == 0
        assert project.say("undo").code == 0, words
        assert there.at("capsule-state") == at_state(project).head()
    assert project.say("close", "WRK-001", "--reason", "no").code == 0
    assert there.here.ids() == []
    assert project.say("reopen", "WRK-001").code == 0
    assert there.here.ids() == ["WRK-001"]
    assert project.head() == main and project.status() == ""
    assert there.at("capsule-state") == at_state(project).head()
    there.assert_state_only_forward()


# What goes wrong


@pytest.mark.promise("state-branch.trouble")
def test_nothing_changes_while_the_remote_cannot_be_reached(there: InReview) -> None:
    there.project.add()
    state = there.here.backlog.read_bytes()
    there.server.down = True
    assert_clear(there.project.say("add", "More"), 3, "origin/capsule-state cannot be reached", "git fetch origin")
    assert there.project.run().code == 3
    assert there.here.backlog.read_bytes() == state
    assert there.project.say("list").code == 0


@pytest.mark.promise("state-branch.trouble")
def test_without_a_remote_nothing_is_begun(a_backlog: BacklogProject) -> None:
    a_backlog.always["CAPSULE_MERGE__TO"] = "request"
    before = a_backlog.backlog.read_bytes()
    assert_clear(a_backlog.say("add", "More"), 1, "this repository has no remote origin", "merge.remote")
    (a_backlog.path / ".gitignore").unlink()
    assert_clear(a_backlog.say("init"), 1, "this repository has no remote origin", "merge.remote")
    assert not (a_backlog.path / ".gitignore").exists()
    assert a_backlog.backlog.read_bytes() == before and not (a_backlog.path / ".capsule/backlog").exists()


@pytest.mark.promise("state-branch.trouble")
def test_it_is_not_begun_while_the_remote_is_down(there: InReview) -> None:
    there.server.down = True
    before = there.project.head()
    assert_clear(there.project.say("add", "More"), 3, "origin/capsule-state cannot be reached", "once it answers")
    assert there.project.say("list").code == 0
    assert there.project.head() == before and there.project.status() == ""


@pytest.mark.promise("state-branch.trouble")
def test_a_server_that_refuses_the_branch_is_quoted(there: InReview) -> None:
    there.server.refuse("refs/heads/*", "only ada/* here", "team/project")
    answer = there.project.say("add", "More")
    assert_clear(answer, 1, "only ada/* here", "merge.state_branch")
    there.server.refuse("refs/heads/main", "no", "team/project")
    assert there.project.add("More") == "WRK-001"


@pytest.mark.promise("state-branch.trouble")
def test_a_branch_that_was_deleted_is_put_back(there: InReview) -> None:
    there.project.add()
    run("branch", "-D", "capsule-state", cwd=there.bare)
    assert_clear(there.project.say("add", "More"), 1, "origin/capsule-state", "git push origin capsule-state")
    there.project.git("push", "-q", "origin", "capsule-state")
    assert there.project.add("More") == "WRK-002"


def test_another_name_can_be_given_and_main_cannot(there: InReview) -> None:
    there.project.always["CAPSULE_MERGE__STATE_BRANCH"] = "main"
    assert_clear(there.project.say("add", "More"), 1, "origin/main takes the requests", "merge.state_branch")
    there.project.always["CAPSULE_MERGE__STATE_BRANCH"] = "work/backlog"
    there.project.add()
    assert there.files("work/backlog") == ["BACKLOG.yaml"]


@pytest.mark.promise("state-branch.clones")
def test_a_lost_race_is_tried_again_on_the_new_tip(there: InReview) -> None:
    there.project.add()
    there.hook("pre-receive", RACE.format(count=there.bare / "races").replace("main", "capsule-state"))
    (there.bare / "races").write_text("3\n")
    there.project.add("Two")
    subjects = run("log", "--format=%s", "capsule-state", cwd=there.bare).splitlines()
    assert subjects[:2] == ["[WRK-002][ADD] Two", "by Bob 1"]
    assert there.here.ids() == ["WRK-001", "WRK-002"]
    there.assert_state_only_forward()


# Around it


@pytest.mark.promise("state-branch.trouble")
def test_doctor_says_where_the_state_is_and_what_main_has_still(there: InReview) -> None:
    assert "the first change of the backlog begins origin/capsule-state" in there.project.say("doctor").out
    there.project.add()
    said = " ".join(there.project.say("doctor").out.split())
    assert "the state of the backlog is on origin/capsule-state; its checkout is .capsule/backlog" in said
    assert "main still has BACKLOG.yaml, which is not read any more" in said
    assert "Propose its removal" in said


@pytest.mark.promise("state-branch.begun")
def test_init_makes_an_empty_backlog_on_its_branch(there: InReview) -> None:
    (there.bare / "hooks/pre-receive").unlink()
    there.project.git("rm", "-q", "BACKLOG.yaml")
    there.project.git("commit", "-q", "-m", "No backlog")
    there.project.git("push", "-q", "origin", "main")
    before = there.project.head()
    answer = there.project.say("init")
    assert answer.code == 0, answer
    assert "made   .capsule/backlog/BACKLOG.yaml\ncommitted to origin/capsule-state" in answer.out
    assert there.project.head() == before and not there.project.backlog.exists()
    assert "exists .capsule/backlog/BACKLOG.yaml" in there.project.say("init").out
    assert there.project.add() == "WRK-001"
    assert there.project.status() == ""


def test_a_mission_that_publishes_its_steps_is_finished_before(
    a_backlog: BacklogProject, server: GitServer, tmp_path: Path
) -> None:
    a_backlog.add()
    assert a_backlog.say("step", "WRK-001").code == 0
    assert a_backlog.say("step", "WRK-001").code == 0
    there = InReview(a_backlog, server, tmp_path / "forge")
    answer = there.project.run("WRK-001")
    assert answer.code == 1, answer
    assert "WRK-001 commits its steps to main itself" in " ".join(answer.out.split()), answer.out
    assert "merge.to: remote" in " ".join(answer.out.split()), answer.out


@pytest.mark.promise("state-branch.verbs")
def test_a_merge_is_not_undone_past_the_requests(waiting: InReview) -> None:
    waiting.forge.merge("squash")
    waiting.sync()
    main = waiting.project.head("main")
    answer = waiting.project.say("undo", "WRK-001")
    assert_clear(answer, 1, "main takes requests only", "capsule reopen WRK-001")
    assert waiting.project.head("main") == main
    assert waiting.project.say("reopen", "WRK-001").code == 0
    assert waiting.here.item().status == "ready"


# Documents


@pytest.fixture
def specified(there: InReview) -> InReview:
    """An item that was triaged, specified, built and reviewed, and whose work is proposed."""
    del there.project.always["CAPSULE_WORKFLOW__DEFAULT"]
    there.project.play(by_documents())
    there.project.add()
    answer = there.project.run()
    assert answer.code == 0, answer
    return there


@pytest.mark.promise("state-branch.documents")
def test_a_link_in_its_checkout_is_never_followed(there: InReview, tmp_path: Path) -> None:
    there.project.add()
    (tmp_path / "secret").write_text("secret\n")
    link = there.here.path / "_ideas/WRK-001_find-the-answer.md"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "secret")
    del there.project.always["CAPSULE_WORKFLOW__DEFAULT"]
    copied = tmp_path / "seen"
    script = by_documents()
    script["triage"][0] = script["triage"][0] | {"run": [f"ls -R . > {copied}"]}
    there.project.play(script)
    answer = there.project.say("triage")
    assert answer.code == 0, answer
    assert "BACKLOG.yaml" in copied.read_text() and "_ideas" not in copied.read_text()


def test_settings_that_publish_steps_have_no_effect_and_that_is_said(there: InReview) -> None:
    there.project.always["CAPSULE_WORKSPACE__PUBLISH"] = "steps"
    there.project.add()
    answer = there.project.run("WRK-001")
    assert answer.code == 0 and len(there.forge.requests) == 1, answer
    assert "workspace.publish: steps has no effect with merge.to: request" in answer.out + answer.err


@pytest.mark.promise("state-branch.documents")
def test_documents_are_on_the_branch_and_not_in_the_request(specified: InReview) -> None:
    changed = run("diff", "--name-only", "main", "capsule/WRK-001", cwd=specified.bare).splitlines()
    assert changed == ["answer", "question"]
    commits = run("log", "--name-only", "--format=", "main..capsule/WRK-001", cwd=specified.bare).split()
    assert not [path for path in commits if path.startswith("changes/")]
    kinds = [path.rpartition("_")[2] for path in specified.files("capsule-state") if path.startswith("changes/")]
    assert sorted(kinds) == ["DESIGN.md", "PRD.md", "RESEARCH.md", "SPEC.md"]
    assert "[x]" in specified.show(f"capsule-state:{stem()}_SPEC.md")
    assert (specified.project.path / f".capsule/backlog/{stem()}_PRD.md").exists()
    assert specified.project.status() == "" and at_state(specified.project).status() == ""
    specified.forge.merge("squash")
    specified.sync()
    assert specified.here.ids() == []
    assert specified.project.status() == ""


@pytest.mark.promise("state-branch.documents")
def test_a_mission_begins_with_the_documents_that_are_there(there: InReview) -> None:
    del there.project.always["CAPSULE_WORKFLOW__DEFAULT"]
    there.project.add()
    at_state(there.project).write(f"{stem()}_PRD.md", "# By a person\n")
    run("add", "-A", cwd=there.here.path)
    run("commit", "-q", "-m", "A document", cwd=there.here.path)
    run("push", "-q", "origin", "capsule-state", cwd=there.here.path)
    script = by_documents()
    script["prd"][0] = script["prd"][0] | {"write": {}}
    there.project.play(script)
    answer = there.project.run()
    assert answer.code == 0, answer
    assert there.show(f"capsule-state:{stem()}_PRD.md") == "# By a person"
    assert len(there.forge.requests) == 1


@pytest.mark.promise("state-branch.documents")
@pytest.mark.parametrize("stale", [True, False])
def test_agents_see_the_current_backlog_and_its_diary(there: InReview, stale: bool) -> None:
    del there.project.always["CAPSULE_WORKFLOW__DEFAULT"]
    there.project.add("Known")
    if not stale:
        (there.bare / "hooks/pre-receive").unlink()
        there.project.git("rm", "-q", "BACKLOG.yaml")
        there.project.git("commit", "-q", "-m", "No backlog")
        there.project.git("push", "-q", "origin", "main")
    copied = there.project.path.parent / "seen"
    script = by_documents()
    script["triage"][0] = script["triage"][0] | {"run": [f"cat BACKLOG.yaml > {copied}; echo mine >> BACKLOG.yaml"]}
    there.project.play(script)
    answer = there.project.say("triage")
    assert answer.code == 0, answer
    assert "Known" in copied.read_text()
    assert "dropped" not in answer.out + answer.err and "mine" not in there.show("capsule-state:BACKLOG.yaml")


# Layouts, and several at once


@pytest.mark.promise("state-branch.clones", "remote.clones")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_backlog_is_proposed_from_a_linked_worktree_and_from_one_of_a_bare_repository(
    there: InReview, tmp_path: Path, layout: str
) -> None:
    project = LAYOUTS[layout](there, there.project, tmp_path / layout)
    assert project.add() == "WRK-001"
    answer = project.run()
    assert answer.code == 0, answer
    assert there.forge.request["branch"] == "capsule/WRK-001"
    there.forge.merge("merge")
    assert "WRK-001 was merged" in project.say("sync").out
    assert "Completed" in there.show("capsule-state:BACKLOG.yaml") + "".join(
        there.show(f"capsule-state:{path}") for path in there.files("capsule-state")
    )
    assert project.status() == "" and project.head("main") == there.main()
    there.assert_state_only_forward()


@pytest.mark.slow
@pytest.mark.promise("state-branch.clones", "state-branch.once")
def test_two_clones_work_on_one_backlog_at_once(there: InReview) -> None:
    items = [there.project.add(f"Make {number}") for number in range(1, 7)]
    script = {
        item: honest(
            test_writer=[said("PASS", write={f"tests/{item}.sh": f"test -e {item}.txt\n"})],
            execute=[said("PASS", write={f"{item}.txt": "x\n"})],
            merge=[said("PASS")],
        )
        for item in items
    }
    clone = there.clone()
    for project in (there.project, clone):
        for item, plays in script.items():
            project.play(plays, item)
    with ThreadPoolExecutor(2) as pool:
        answers = [*pool.map(lambda project: project.capsule("run", "--jobs", "2"), (there.project, clone))]
    assert [answer.code for answer in answers] == [0, 0], "\n".join(f"{one.out}\n{one.err}" for one in answers)
    assert sorted(row["branch"] for row in there.forge.requests) == [f"capsule/{item}" for item in items]
    steps = run("log", "--format=%(trailers:key=Capsule-Step,valueonly)", "capsule-state", cwd=there.bare).split()
    assert len(steps) == len({*steps})
    for item in items:
        assert sum(step.startswith(f"{item}/sign-off") for step in steps) == 1, item
    there.assert_state_only_forward()
    for project in (there.project, clone):
        assert project.say("add", f"By {project.path.parent.name}").code == 0
        assert project.status() == ""


# Back again, and odd ends


@pytest.mark.promise("state-branch.begun")
def test_a_backlog_that_is_kept_apart_is_not_forgotten_when_the_settings_change(there: InReview) -> None:
    there.project.add()
    (there.bare / "hooks/pre-receive").unlink()
    there.project.always["CAPSULE_MERGE__TO"] = "local"
    answer = there.project.say("list")
    assert "the state of the backlog is in .capsule/backlog" in answer.out + answer.err
    there.project.backlog.write_bytes(there.here.backlog.read_bytes())
    answer = there.project.run("WRK-001")
    assert answer.code == 1 and there.project.spawns() == 0, answer
    assert "git worktree remove .capsule/backlog" in " ".join((answer.out + answer.err).split())
    there.project.git("worktree", "remove", ".capsule/backlog")
    assert "kept apart" not in there.project.say("list").err
    answer = there.project.run("WRK-001")
    assert answer.code == 0, answer


@pytest.mark.promise("request.deleted-branch")
def test_a_branch_that_was_deleted_is_asked_about_and_pushed_again(waiting: InReview) -> None:
    run("update-ref", "-d", "refs/heads/capsule/WRK-001", cwd=waiting.bare)
    with waiting.forge.changed() as row:
        row["state"] = "open"
        row["kind"] = "glab"
    assert "WRK-001 needs you" in waiting.sync(1)
    assert "was deleted" in waiting.project.say("questions").out
    assert waiting.project.say("answer", "WRK-001", "--retry").code == 0
    answer = waiting.project.run("WRK-001")
    assert answer.code == 0, answer
    assert waiting.at("capsule/WRK-001")
    waiting.forge.merge("merge")
    assert "was merged" in waiting.sync()
    assert waiting.here.ids() == []


@pytest.mark.promise("state-branch.merged")
def test_an_item_that_is_closed_while_its_request_waits_says_that_this_is_open(waiting: InReview) -> None:
    answer = waiting.project.say("close", "WRK-001", "--reason", "not needed")
    assert answer.code == 0 and "its request is still open: https://" in answer.out + answer.err, answer
    assert waiting.here.ids() == []
    assert waiting.sync() == "Nothing waits for a review.\n"
