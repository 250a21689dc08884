"""`capsule init` as a user meets it: in an empty repository, in a lived-in one, and where it cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from .backlog_project import BacklogProject
from .conftest import assert_clear, begin

MADE = ["BACKLOG.yaml", ".capsule/config.yaml", ".gitignore"]
SKILLS = (
    "0-prd/create-prd",
    "1-tech-research/tech-research",
    "2-design/design",
    "3-spec/create-spec",
    "4-build/implement-spec-autonomous",
    "5-review/change-review",
)


@pytest.fixture
def an_empty_repository(tmp_path: Path) -> BacklogProject:
    """Nothing but `git init`: no commit, no file."""
    return BacklogProject(begin(tmp_path / "project").path, tmp_path)


@pytest.fixture
def a_lived_in_repository(an_empty_repository: BacklogProject) -> BacklogProject:
    """One commit, a .gitignore whose last line has no end."""
    (an_empty_repository.path / ".gitignore").write_text("*.pyc\nbuild/")
    an_empty_repository.commit("start", README="hello\n")
    return an_empty_repository


def _committed(project: BacklogProject, ref: str = "HEAD") -> set[str]:
    return set(project.git("ls-tree", "-r", "--name-only", ref).splitlines())


@pytest.mark.promise("004-commands.init", "004-follow-ups.command-tests")
def test_init_creates_correct_directory_structure_and_files(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    answer = project.capsule("init")
    assert answer.code == 0, answer
    assert answer.err == ""
    assert all((project.path / name).is_dir() for name in ("_ideas", "_worklog", "changes", ".capsule"))
    assert "schema_version: 1" in project.backlog.read_text()
    assert "prefix: WRK" in (project.path / ".capsule/config.yaml").read_text()
    for name in MADE:
        assert f"made   {name}\n" in answer.out
    assert answer.out.endswith('next: capsule add "Describe the change in one line"\n')


@pytest.mark.promise("004-commands.init")
def test_init_outside_a_git_repository_errors_clearly_and_creates_nothing(tmp_path: Path) -> None:
    project = BacklogProject(tmp_path / "project", tmp_path)
    project.path.mkdir()
    assert_clear(project.say("init"), 2, "is not in a git repository", "git init")
    assert list(project.path.iterdir()) == []


def test_init_commits_exactly_its_files_also_where_there_is_no_commit_yet(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    answer = project.say("init")
    assert project.subjects() == ["[INIT] A backlog for Capsule"]
    assert f"committed as {project.head()[:12]}" in answer.out
    assert _committed(project) == set(MADE)
    assert project.status() == ""


def test_init_makes_nothing_where_git_does_not_know_who_commits(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    project.git("config", "--unset", "user.email")
    assert_clear(project.say("init"), 2, "Git does not know who you are", "git config")
    assert {path.name for path in project.path.iterdir()} == {".git"}


@pytest.mark.parametrize("name", ["trunk", "main", "master"])
def test_init_names_a_main_branch_with_an_unusual_name(an_empty_repository: BacklogProject, name: str) -> None:
    project = an_empty_repository
    project.git("symbolic-ref", "HEAD", f"refs/heads/{name}")
    project.commit("start", README="hello\n")
    assert project.say("init").code == 0
    named = '  main: "trunk"    # work is merged into it\n' in (project.path / ".capsule/config.yaml").read_text()
    assert named is (name == "trunk")


def test_init_does_not_guess_the_main_branch_among_several(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.git("branch", "-m", "develop")
    project.git("switch", "-q", "-c", "feature")
    assert project.say("init").code == 0
    assert "main:" not in (project.path / ".capsule/config.yaml").read_text()
    project.add()
    ended = project.run()
    assert ended.code == 0 and "Cannot tell" not in ended.err, "steps go to the branch that is checked out"


def test_init_is_safe_to_repeat(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    project.say("init")
    before = project.head(), [(project.path / name).read_bytes() for name in MADE]
    again = project.say("init", "--prefix=WRK")
    assert again.code == 0
    assert "made" not in again.out
    assert again.out.endswith("next: capsule status\n")
    assert (project.head(), [(project.path / name).read_bytes() for name in MADE]) == before


def test_init_leaves_what_exists_byte_for_byte(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    mine = {
        "BACKLOG.yaml": "# mine\nschema_version: 1\nitems: []\n",
        ".capsule/config.yaml": "verify: warn\n",
    }
    for name, text in mine.items():
        project.write(name, text)
    project.git("add", "-Af")
    project.commit("mine")
    answer = project.say("init")
    assert answer.code == 0, answer
    assert {name: (project.path / name).read_text() for name in mine} == mine
    assert "exists BACKLOG.yaml\nexists .capsule/config.yaml\nmade   .gitignore\n" in answer.out


def test_init_appends_to_gitignore_what_is_not_to_be_committed(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.say("init", "--prompts")
    text = (project.path / ".gitignore").read_text()
    assert text.startswith("*.pyc\nbuild/\n/.capsule/*\n")
    for name in (".capsule/worktrees/x", ".capsule/logs/x", ".capsule/missions/x"):
        assert project.git("check-ignore", name) == name
    for name in (".capsule/workflows/mine.yaml", ".capsule/prompts/mine.md", "sub/.capsule/x"):
        project.write(name, "kept\n")
    assert ".capsule/workflows/" in project.git("status", "--porcelain", "-uall")
    assert "sub/.capsule/x" in project.git("status", "--porcelain", "-uall")


def test_init_keeps_the_line_ends_of_a_gitignore(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    (project.path / ".gitignore").write_bytes(b"*.pyc\r\n")
    project.commit("windows")
    project.say("init")
    assert (project.path / ".gitignore").read_bytes().startswith(b"*.pyc\r\n/.capsule/*\r\n!/.capsule/config.yaml\r\n")


def test_the_prefix_is_what_ids_begin_with(an_empty_repository: BacklogProject) -> None:
    an_empty_repository.say("init", "--prefix", "APP")
    assert an_empty_repository.say("add", "One").out == "APP-001  One\n"


def test_another_prefix_is_refused_and_nothing_is_changed(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    project.say("init")
    before = project.head()
    answer = project.say("init", "--prefix=APP")
    assert_clear(answer, 1, "The prefix of this project is already WRK.", "Change project.prefix in .capsule/config")
    assert project.head() == before


@pytest.mark.promise("commands.init-prefix")
@pytest.mark.parametrize("prefix", ["", "1A", "A-B", "A" * 17, "Ä", "A\nB"])
def test_a_bad_prefix_is_refused_before_anything_is_made(an_empty_repository: BacklogProject, prefix: str) -> None:
    answer = an_empty_repository.say("init", "--prefix", prefix)
    assert_clear(answer, 2, "1 to 16 letters and digits, a letter first", "capsule init --prefix APP")
    assert {path.name for path in an_empty_repository.path.iterdir()} == {".git"}


def test_a_beads_project_gets_no_backlog_unless_asked(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.write(".beads/issues.jsonl", '{"id": "b-1", "title": "A bead", "status": "open"}\n')
    project.commit("beads")
    answer = project.say("init")
    assert answer.code == 0
    assert not project.backlog.exists()
    assert "exists .beads/, which has the items" in answer.out
    assert "b-1" in project.say("status").out


def test_a_beads_project_gets_a_backlog_where_asked(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.write(".beads/issues.jsonl", '{"id": "b-1", "title": "A bead", "status": "open"}\n')
    project.commit("beads")
    answer = project.say("init", "--tracker=backlog")
    assert (answer.code, answer.err) == (0, "")
    assert project.say("add", "One").out == "WRK-001  One\n"
    assert "b-1" not in project.say("status").out


def test_the_prompts_are_copied_for_editing_and_never_overwritten(an_empty_repository: BacklogProject) -> None:
    project = an_empty_repository
    mine = project.write(".capsule/prompts/change/prd.md", "My own words. {{RESULT_PATH}}\n")
    answer = project.say("init", "--prompts")
    assert mine.read_text() == "My own words. {{RESULT_PATH}}\n"
    assert (project.path / ".capsule/prompts/tdd/execute.md").read_bytes()
    assert (project.path / ".capsule/prompts/parts/preamble.md").read_bytes()
    assert "1 kept)" in answer.out
    assert "(0 prompts copied" in project.say("init", "--prompts").out


def test_other_changes_in_the_tree_are_not_committed_along(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.write("README", "my edit\n")
    project.write("new.txt", "mine\n")
    before = project.head()
    answer = project.say("init")
    assert (answer.code, answer.err) == (0, "not committed: 2 other changes in the tree\n")
    assert project.head() == before
    assert project.backlog.exists()


def test_init_without_a_commit_only_makes_the_files(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    before = project.head()
    answer = project.say("init", "--no-commit")
    assert (answer.code, answer.err, project.head()) == (0, "", before)
    assert "BACKLOG.yaml" in project.status()


@pytest.mark.promise("004-commands.init-uncommitted")
@pytest.mark.parametrize("words", [("init",), ("init", "--no-commit")])
def test_init_names_what_is_uncommitted_also_the_second_time(
    an_empty_repository: BacklogProject, words: tuple[str, ...]
) -> None:
    project = an_empty_repository
    project.write("mine", "not committed yet\n")
    named = "uncommitted: .capsule/config.yaml, .gitignore, BACKLOG.yaml\n"
    files = ".capsule/config.yaml .gitignore BACKLOG.yaml"
    for _ in range(2):
        answer = project.say(*words)
        assert answer.code == 0
        assert f'{named}  git add {files} && git commit -m "Settings for Capsule" -- {files}\n' in answer.out
    project.git("add", *files.split())
    project.git("commit", "-q", "-m", "A backlog")
    assert "uncommitted" not in project.say(*words).out


@pytest.mark.promise("004-follow-ups.init")
def test_init_says_which_skills_are_missing(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    for skill in SKILLS[1:]:
        project.write(f".claude/skills/changes/workflows/{skill}.md", "a skill\n")
    project.commit("skills")
    assert ".claude/skills/changes lacks workflows/0-prd/create-prd.md;" in project.say("init").err
    project.write(f".claude/skills/changes/workflows/{SKILLS[0]}.md", "a skill\n")
    assert project.say("init").err == ""


def test_init_says_that_skills_which_must_be_there_are_not(a_lived_in_repository: BacklogProject) -> None:
    answer = a_lived_in_repository.say("init", env={"CAPSULE_SKILLS": "always"})
    assert answer.code == 0
    assert all(f"workflows/{skill}.md" in answer.err for skill in SKILLS)


@pytest.mark.promise("004-follow-ups.init")
def test_a_workflow_that_cannot_run_is_named(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.write(".capsule/workflows/mine.yaml", "phases: [{name: a, prompt: no-such-prompt}]\n")
    project.git("add", "-Af")
    project.commit("workflow")
    assert "warning: .capsule/workflows/mine.yaml: phase 'a': There is no prompt named" in project.say("init").err


@pytest.mark.promise("004-follow-ups.init")
def test_broken_settings_stop_it_before_anything_is_made(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.write(".capsule/config.yaml", "verify: strickt\n")
    assert_clear(project.say("init"), 2, "`verify` is 'strickt'", "Did you mean `strict`?")
    assert not project.backlog.exists()


def test_settings_in_the_other_spelling_are_left_in_force(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.commit("toml", orchestrate__toml='[project]\nprefix = "OLD"\n')
    assert project.say("init").code == 0
    assert not (project.path / ".capsule/config.yaml").exists()
    assert project.say("add", "One").out == "OLD-001  One\n"
    assert_clear(project.say("init", "--prefix=NEW"), 1, "is already OLD", "project.prefix")


@pytest.mark.parametrize("name", ["changes", "_ideas"])
def test_a_file_where_a_folder_belongs_stops_it(a_lived_in_repository: BacklogProject, name: str) -> None:
    a_lived_in_repository.write(name, "a file\n")
    assert_clear(a_lived_in_repository.say("init"), 2, f"{name} is not a folder", "Move it away")
    assert not a_lived_in_repository.backlog.exists()


@pytest.mark.parametrize("name", ["BACKLOG.yaml", ".gitignore"])
def test_nothing_is_written_through_a_link(a_lived_in_repository: BacklogProject, name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    place = a_lived_in_repository.path / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(elsewhere)
    assert_clear(a_lived_in_repository.say("init"), 2, f"{name} is not a plain file", "put a plain file in its place")
    assert elsewhere.read_text() == ""


def test_init_works_from_a_subdirectory_and_from_afar(a_lived_in_repository: BacklogProject, tmp_path: Path) -> None:
    project = a_lived_in_repository
    (project.path / "sub").mkdir()
    assert project.say("init", cwd=project.path / "sub").code == 0
    assert project.backlog.exists()
    assert project.say("add", "One", f"--project-dir={project.path}", cwd=tmp_path).out == "WRK-001  One\n"


def test_a_detached_head_gets_the_files_and_no_commit(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.git("checkout", "-q", "--detach")
    before = project.head()
    assert project.say("init").err == "not committed: HEAD is detached\n"
    assert (project.head(), project.backlog.exists()) == (before, True)


def test_settings_behind_a_link_are_left_as_they_are(a_lived_in_repository: BacklogProject, tmp_path: Path) -> None:
    elsewhere, place = tmp_path / "shared.yaml", a_lived_in_repository.path / ".capsule/config.yaml"
    elsewhere.write_text("project: {prefix: OUR}\n")
    place.parent.mkdir()
    place.symlink_to(elsewhere)
    assert a_lived_in_repository.say("init").code == 0
    assert place.is_symlink()
    elsewhere.unlink()
    answer = a_lived_in_repository.say("init")
    assert_clear(answer, 2, ".capsule/config.yaml is not a plain file", "put a plain file in its place")


def test_init_names_ignored_files_that_agents_and_tests_may_want(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.commit("more", **{".gitignore": ".env\nlocal.*\n*.pyc\n.claude/\nbuild/\n"})
    for name in (".env", "api/local.settings.json", "x.pyc", "build/.env", ".claude/settings.local.json"):
        project.write(name, "")
    answer = project.say("init")
    assert "git ignores .env, api/local.settings.json," in answer.out
    assert "workspace: {copy: [.env]}" in answer.out
    again = project.say("init", env={"CAPSULE_WORKSPACE__COPY": "[.env, 'api/*']"})
    assert "git ignores" not in again.out


def test_init_says_to_push_first_where_commands_follow_a_remote(a_lived_in_repository: BacklogProject) -> None:
    project = a_lived_in_repository
    project.always["CAPSULE_MERGE__TO"] = "remote"
    answer = project.capsule("init")
    assert answer.code == 0, answer
    assert answer.out.endswith('next: git push origin main, then capsule add "Describe the change in one line"\n')
