"""`capsule setup-template`, typed as people type it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capsule.trackers import beads_file

Done = subprocess.CompletedProcess[str]

FAKE_BD = """#!/bin/sh
echo "$@" >> "$BD_CALLS"
case "$1" in
  init) mkdir -p .beads && echo '{}' > .beads/metadata.json ;;
  import) %s ;;
esac
"""


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
    return path_with(tmp_path / "bin", "git", "python3", "sh", "mkdir", "echo")


def path_with(folder: Path, *programs: str) -> str:
    folder.mkdir()
    for name in programs:
        found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
        target = found.stdout.strip()
        if target.startswith("/"):
            (folder / name).symlink_to(target)
    return str(folder)


def fake_bd(folder: Path, on_import: str = "echo imported") -> None:
    """Not ours: a stand-in for somebody else's program."""
    (folder / "bd").write_text(FAKE_BD % on_import)
    (folder / "bd").chmod(0o755)


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


def test_bd_is_asked_to_init_and_to_import(tmp_path: Path, without_bd: str) -> None:
    fake_bd(Path(without_bd))
    done = setup_template(tmp_path / "demo", PATH=without_bd, BD_CALLS=str(tmp_path / "calls"))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'demo'}\n"), done.stderr
    init, imported = (tmp_path / "calls").read_text().splitlines()
    assert init == "init --prefix=demo"
    assert imported.startswith("import -i ")
    assert ".beads/metadata.json" in git(tmp_path / "demo", "ls-files")


def test_a_bd_that_takes_the_file_as_an_argument_is_served_too(tmp_path: Path, without_bd: str) -> None:
    fake_bd(Path(without_bd), on_import='if [ "$2" = -i ]; then exit 1; fi')
    done = setup_template(tmp_path / "demo", PATH=without_bd, BD_CALLS=str(tmp_path / "calls"))
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 3


@pytest.mark.parametrize("was_there", [False, True])
def test_a_failure_half_way_leaves_no_trace(tmp_path: Path, without_bd: str, was_there: bool) -> None:
    fake_bd(Path(without_bd), on_import="echo no database >&2; exit 3")
    place = tmp_path / "deep" / "demo"
    if was_there:
        place.mkdir(parents=True)
        (place / "notes.txt").write_text("mine\n")
    done = setup_template(place, PATH=without_bd, BD_CALLS=str(tmp_path / "calls"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "`bd import` failed: no database" in done.stderr
    assert contents(place) == ({"notes.txt": b"mine\n"} if was_there else {})
    assert (tmp_path / "deep").exists() is was_there
