"""`capsule setup-template`, typed as people type it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.commands.setup_template import PROJECT_FILES, TEMPLATE, make_project
from capsule.core.errors import CapsuleError
from capsule.trackers import beads_file

from ..contracts import fake_bd
from ..costs import eventually, given_time
from ..system.conftest import is_alive

pytestmark = pytest.mark.slow

Done = subprocess.CompletedProcess[str]


def setup_template(*words: str | Path, cwd: Path | None = None, **env: str) -> Done:
    command = [sys.executable, "-m", "capsule", "setup-template", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=60
    )


def git(place: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=place, capture_output=True, text=True, check=True).stdout.strip()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def without_bd(tmp_path: Path) -> str:
    """A PATH with git and python3, and no bd."""
    return path_with(tmp_path / "bin", "git", "python3", "sh")


def path_with(folder: Path, *programs: str) -> str:
    folder.mkdir()
    for name in programs:
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


@pytest.fixture
def with_bd(tmp_path: Path) -> Callable[..., str]:
    """A PATH that begins with a `bd` of this era, which behaves like this."""

    def install(era: str = "1.0.5", **behaviour: object) -> str:
        return os.pathsep.join([str(fake_bd.install(tmp_path / f"bd-{era}", era, **behaviour)), os.environ["PATH"]])

    return install


@pytest.mark.promise("commands.setup-template")
def test_the_path_alone_is_printed(tmp_path: Path) -> None:
    done = setup_template("--tracker=file", "deep/down/demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'deep/down/demo'}\n"


def test_without_a_directory_a_fresh_one_is_made(tmp_path: Path) -> None:
    done = setup_template("--tracker", "file", TMPDIR=str(tmp_path))
    place = Path(done.stdout.strip())
    assert (place.is_absolute(), place.parent) == (True, tmp_path.resolve())
    assert (place / "src/contact.py").is_file()


def test_everything_is_in_one_commit_by_a_test_user(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    setup_template("--tracker=file", place)
    assert git(place, "log", "--format=%s|%an|%ce") == (
        "Add template project and bead fixtures|Capsule Demo|demo@example.com"
    )
    assert git(place, "branch", "--show-current") == "main"
    assert git(place, "status", "--porcelain", "--ignored") == ""
    assert set(git(place, "ls-files").splitlines()) == {
        *(".beads/issues.jsonl", ".gitignore", "CLAUDE.md", "README.md"),
        *("src/__init__.py", "src/contact.py", "tests/__init__.py", "tests/test_contact.py"),
    }


def test_its_tracker_holds_the_tasks_and_its_tests_are_green(tmp_path: Path) -> None:
    setup_template("--tracker=file", tmp_path / "demo")
    tracker = beads_file.connect(tmp_path / "demo")
    assert [item.id for item in tracker.items()] == ["demo-1", "demo-1.1", "demo-1.1.1", "demo-1.1.2"]
    tests = [sys.executable, "-B", "-m", "unittest", "discover"]
    assert subprocess.run(tests, cwd=tmp_path / "demo", capture_output=True, check=False).returncode == 0


def test_hooks_and_signing_of_the_user_take_no_part(tmp_path: Path, unreachable_home: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (unreachable_home / "gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n"
    )
    assert setup_template("--tracker=file", tmp_path / "demo").returncode == 0
    assert git(tmp_path / "demo", "config", "commit.gpgSign") == "false"


def test_variables_of_another_repository_are_not_believed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    done = setup_template(
        "--tracker=file", tmp_path / "demo", GIT_DIR=str(elsewhere), GIT_INDEX_FILE=str(tmp_path / "index")
    )
    assert done.returncode == 0
    assert not elsewhere.exists()
    assert (tmp_path / "demo/.git").is_dir()


@pytest.mark.parametrize("what", ["worktree", "bare", "link"])
def test_a_repository_is_refused_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    place = tmp_path / "mine"
    if what == "link":
        place.mkdir()
        (place / ".git").symlink_to(tmp_path / "nowhere")
    else:
        subprocess.run(["git", "init", "-q", *(["--bare"] if what == "bare" else []), place], check=True)
    before = contents(place)
    done = setup_template("--tracker=file", place)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is a git repository already" in done.stderr
    assert contents(place) == before


def test_a_project_inside_another_repository_is_fine(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert setup_template("--tracker=file", tmp_path / "demo").returncode == 0
    assert Path(git(tmp_path / "demo", "rev-parse", "--show-toplevel")) == tmp_path / "demo"


def test_files_of_the_user_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine\n")
    done = setup_template("--tracker=file", tmp_path)
    assert (done.returncode, "README.md" in done.stderr) == (1, True)
    assert contents(tmp_path) == {"README.md": b"mine\n"}


def test_other_files_in_the_directory_stay_out_of_the_commit(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    assert setup_template("--tracker=file", tmp_path).returncode == 0
    assert git(tmp_path, "status", "--porcelain") == "?? notes.txt"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine\n")
    done = setup_template("--tracker=file", tmp_path / place)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--tracker=jira"], ["a", "b"], ["--frobnicate"]])
def test_a_wrong_command_line_is_exit_1(tmp_path: Path, words: list[str]) -> None:
    done = setup_template(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout, contents(tmp_path)) == (1, "", {})


def test_a_missing_bd_is_named_with_the_way_around_it(tmp_path: Path, without_bd: str) -> None:
    done = setup_template(tmp_path / "demo", PATH=without_bd)
    assert (done.returncode, done.stdout) == (1, "")
    assert "`bd`" in done.stderr
    assert "--tracker=file" in done.stderr
    assert not (tmp_path / "demo").exists()


def test_a_missing_git_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = setup_template("--tracker=file", tmp_path / "demo", PATH=str(tmp_path / "empty"))
    assert (done.returncode, "git is not installed" in done.stderr) == (1, True)
    assert not (tmp_path / "demo").exists()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("era", "options", "by_flag"),
    [
        ("0.47.1", ["--quiet", "--skip-hooks"], True),
        ("1.0.0", ["--quiet", "--skip-hooks", "--skip-agents", "--non-interactive"], False),
        ("1.0.5", ["--quiet", "--skip-hooks", "--skip-agents", "--non-interactive"], True),
    ],
)
def test_bd_is_asked_to_init_and_to_import_with_what_it_knows(
    tmp_path: Path, with_bd: Callable[..., str], era: str, options: list[str], by_flag: bool
) -> None:
    place = tmp_path / "demo"
    done = setup_template(place, PATH=with_bd(era))
    assert (done.returncode, done.stdout) == (0, f"{place}\n"), done.stderr
    assert [row["status"] for row in fake_bd.beads(place).values()] == ["open"] * 4
    init, imported, *exported = (call["argv"] for call in fake_bd.calls(place))
    assert init == ["init", "--prefix=demo", *options]
    assert imported[:-1] == (["import", "-i"] if by_flag else ["import"])
    assert "src/contact.py" in git(place, "ls-files")
    assert [words[:2] for words in exported] == [["export", "-o"]]
    committed = git(place, "show", "HEAD:.beads/issues.jsonl").splitlines()
    assert [json.loads(line)["id"] for line in committed] == ["demo-1", "demo-1.1", "demo-1.1.1", "demo-1.1.2"]


def test_what_git_would_not_get_is_not_written_down(tmp_path: Path, with_bd: Callable[..., str]) -> None:
    place, path = tmp_path / "demo", with_bd(after={"init": ["sh", "-c", "echo '*.jsonl' > .beads/.gitignore"]})
    assert setup_template(place, PATH=path).returncode == 0
    assert fake_bd.calls(place, "export") == []


def test_a_bd_that_is_too_old_makes_nothing(tmp_path: Path, with_bd: Callable[..., str]) -> None:
    done = setup_template(tmp_path / "demo", PATH=with_bd(version="0.30.0"))
    assert (done.returncode, done.stdout, (tmp_path / "demo").exists()) == (1, "", False)
    assert "capsule: bd 0.30.0 is too old: it lacks features that Capsule needs.\n" in done.stderr
    assert "--tracker=file" in done.stderr


INTRUSIVE = """
echo be like bd > AGENTS.md; mkdir .claude; echo '{}' > .claude/settings.json; echo '*.db' > .gitignore
git add -A && git commit -q -m 'bd init: initialize' && git config test.hooks "$(git config core.hooksPath)"
git config test.database "${BEADS_DB:-none}" && git config test.daemon "${BEADS_NO_DAEMON:-yes}"
"""


@pytest.mark.promise("trackers.bd-project")
def test_what_else_bd_brings_is_left_out_and_its_commit_is_taken_back(
    tmp_path: Path, with_bd: Callable[..., str]
) -> None:
    """Instructions for agents would bend the demo; the one commit that is promised is ours."""
    place, path = tmp_path / "demo", with_bd(after={"init": ["sh", "-c", INTRUSIVE]})
    done = setup_template(place, PATH=path, BEADS_DB="/elsewhere.db", GIT_DIR=str(tmp_path / "other"))
    assert done.returncode == 0, done.stderr
    assert fake_bd.calls(place, "init")[0]["after"]["exit"] == 0
    assert git(place, "log", "--all", "--format=%s|%an") == "Add template project and bead fixtures|Capsule Demo"
    assert git(place, "status", "--porcelain") == ""
    assert {path.name for path in place.iterdir()} == {".git", ".beads", *PROJECT_FILES}
    assert all((place / name).read_bytes() == (TEMPLATE / name).read_bytes() for name in ("CLAUDE.md", ".gitignore"))
    seen = [git(place, "config", f"test.{name}") for name in ("hooks", "database", "daemon")]
    assert seen == ["/dev/null", "none", "1"]


@pytest.mark.parametrize("name", ["AGENTS.md", ".claude", ".gitattributes"])
def test_what_bd_would_change_must_not_be_there(tmp_path: Path, with_bd: Callable[..., str], name: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine\n")
    done = setup_template(tmp_path / "mine", PATH=with_bd())
    assert (done.returncode, f"has {name} already" in done.stderr) == (1, True)
    assert contents(tmp_path / "mine") == {name: b"mine\n"}


@pytest.mark.promise("commands.setup-template")
@pytest.mark.parametrize("was_there", [False, True])
def test_a_failure_half_way_leaves_no_trace(tmp_path: Path, with_bd: Callable[..., str], was_there: bool) -> None:
    place = tmp_path / "deep" / "demo"
    if was_there:
        place.mkdir(parents=True)
        (place / "notes.txt").write_text("mine\n")
    done = setup_template(place, PATH=with_bd(fail={"import": "no space left"}))
    assert (done.returncode, done.stdout) == (1, "")
    assert "`bd import` failed: " in done.stderr
    assert "no space left" in done.stderr
    assert "--tracker=file" in done.stderr
    assert contents(place) == ({"notes.txt": b"mine\n"} if was_there else {})
    assert (tmp_path / "deep").exists() is was_there


def test_a_bd_without_import_is_named(tmp_path: Path, with_bd: Callable[..., str]) -> None:
    done = setup_template(tmp_path / "demo", PATH=with_bd("0.60.0"))
    assert (done.returncode, (tmp_path / "demo").exists()) == (1, False)
    assert 'capsule: `bd import` failed: unknown command "import" for "bd"\n' in done.stderr


@pytest.mark.promise("trackers.bd-project")
def test_a_bd_that_hangs_is_ended_with_all_it_started(
    tmp_path: Path, with_bd: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "started"
    hang = f"sleep 600 & echo $! > {note}; sleep 600"
    monkeypatch.setenv("PATH", with_bd(before={"init": ["sh", "-c", hang]}))

    def attempt(seconds: float) -> CapsuleError:
        monkeypatch.setattr("capsule.commands.setup_template.PATIENCE", seconds)
        with pytest.raises(CapsuleError) as refused:
            make_project(tmp_path / "demo", "bd")
        return refused.value

    refused = given_time(attempt, lambda _: note.exists() and note.read_text())
    assert refused.message.startswith("`bd init` did not end within")
    assert "--tracker=file" in refused.hint
    assert not (tmp_path / "demo").exists()
    assert eventually(lambda: not is_alive(int(note.read_text())))
