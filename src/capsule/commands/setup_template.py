"""Make a small project to try the pipeline on.

It is a contact list in Python whose tracker asks for two functions that do not exist yet. It becomes a git repository
with one commit. Only its path is printed on stdout.

  capsule setup-template my-demo                    the items in beads, by `bd init` and `bd import`
  capsule setup-template --tracker=file my-demo     the items in a JSONL file; needs nothing but git
  cd "$(capsule setup-template --tracker=file)"     in a fresh temporary directory

The git hooks and agent instructions of `bd init` are left out, so that they cannot change the demo. A directory that is
a git repository already, or holds files of the same names, is refused and left as it is.
Exit code: 0 made, 1 not made.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from capsule.commands.doctor import bd_version, too_old
from capsule.core.errors import CapsuleError, PrerequisiteMissing, Refused
from capsule.core.text import one_line
from capsule.project import GET_BD
from capsule.system.git_environment import hardened
from capsule.system.umask import of_the_user

TEMPLATE = Path(__file__).parent.parent / "templates" / "demo-capsule"
PROJECT_FILES = ("src", "tests", "CLAUDE.md", "README.md", ".gitignore")
FIXTURES = TEMPLATE / "issues.jsonl"
COMMIT_MESSAGE = "Add template project and bead fixtures"
OWN_SETTINGS = {"user.name": "Capsule Demo", "user.email": "demo@example.com", "commit.gpgSign": "false"}
"""A test user, and no signing: an agent's commit in here must not wait for a passphrase."""
ELSEWHERE = ("BEADS_", "BD_", "DOLT_")
"""Prefixes of variables that could make bd use another database."""
INIT_OPTIONS = ("--quiet", "--skip-hooks", "--skip-agents", "--skip-merge-driver", "--non-interactive")
"""No version of bd knows all of them; unknown ones are left out."""
BY_BD = ("AGENTS.md", ".agents", ".claude", ".codex", ".gitattributes")
"""Files that `bd init` writes or changes outside of `.beads`, unless told not to."""
WITHOUT_BD = "Try `capsule setup-template --tracker=file`, which needs no bd."
PATIENCE = 120.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TARGET_DIR", nargs="?", help="where to make it (default: a fresh temporary directory)"
    )
    parser.add_argument(
        "--tracker", choices=("bd", "file"), default="bd", help="where its items live: beads, or a JSONL file"
    )


def run(args: argparse.Namespace) -> int:
    target = Path(args.target) if args.target else None
    try:
        print(make_project(target, args.tracker))
    except CapsuleError as fault:
        fault.exit_code = 1
        raise
    return 0


def make_project(
    target: Path | None,
    tracker: str,
    *,
    prefix: str = "capsule-template-",
    template: Path = TEMPLATE,
    files: Sequence[str] = PROJECT_FILES,
    message: str = COMMIT_MESSAGE,
) -> Path:
    """Make a project of these files and one commit; return its absolute path.

    Obstacles are checked first. If something fails later, what was made is removed.
    """
    _check_prerequisites(tracker, [template / name for name in files])
    own = [*files, *([] if tracker == "none" else [".beads"])]
    if target is not None:
        _check_target(target.absolute(), (*own, *(BY_BD if tracker == "bd" else ())))
    try:
        place = target.absolute() if target else Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        with _all_or_nothing(place, fresh=target is None):
            _git(place, "init", "--quiet", "--initial-branch=main")
            for key, value in OWN_SETTINGS.items():
                _git(place, "config", "--local", key, value)
            if tracker == "bd":
                _bd_tracker(place)
            elif tracker == "file":
                (place / ".beads").mkdir()
                shutil.copyfile(FIXTURES, place / ".beads" / FIXTURES.name)
            for name in files:
                if (template / name).is_dir():
                    shutil.copytree(
                        template / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
                    )
                else:
                    shutil.copyfile(template / name, place / name)
            _git(place, "add", "--", *own)  # other files in there belong to the user
            _git(place, "commit", "--quiet", f"--message={message}")
    except OSError as fault:
        raise CapsuleError(
            f"The project cannot be made: {fault}.", "Choose a directory that you may write to."
        ) from None
    return place


def _check_prerequisites(tracker: str, files: Sequence[Path]) -> None:
    if not shutil.which("git"):
        raise PrerequisiteMissing("git is not installed.", "Get it: https://git-scm.com/downloads")
    if tracker == "bd" and not shutil.which("bd"):
        raise PrerequisiteMissing(
            "`bd` (beads) is not installed.",
            f"Do without it: `capsule setup-template --tracker=file`. Or get it: {GET_BD}",
        )
    if tracker == "bd" and (complaint := too_old(bd_version())):  # Capsule could not work with it later either
        raise PrerequisiteMissing(complaint, f"{WITHOUT_BD} Or get a newer one: {GET_BD}")
    if missing := [file.name for file in (*files, FIXTURES) if not file.exists()]:
        raise PrerequisiteMissing(f"The template lacks {', '.join(missing)}.", "Install Capsule again.")


def _check_target(place: Path, names: Sequence[str]) -> None:
    if place.is_symlink() or place.exists():
        if not place.is_dir():
            raise Refused(f"{place} is not a directory.", "Name one that does not exist yet.")
        bare = all((place / name).exists() for name in ("HEAD", "objects", "refs"))
        if bare or (place / ".git").exists() or (place / ".git").is_symlink():
            raise Refused(f"{place} is a git repository already.", "Name a directory that does not exist yet.")
        if taken := [name for name in names if (place / name).exists() or (place / name).is_symlink()]:
            raise Refused(f"{place} has {', '.join(taken)} already.", "Name a directory that does not exist yet.")


@contextmanager
def _all_or_nothing(place: Path, *, fresh: bool) -> Iterator[None]:
    """Make the directory; if the block fails, remove everything that was not there before."""
    missing = [folder for folder in (place, *place.parents) if not folder.exists()]
    before = set() if missing else set(place.iterdir())
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        whole = missing[-1:] or ([place] if fresh else [])
        for path in whole or [path for path in place.iterdir() if path not in before]:
            _remove(path)
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _bd_tracker(place: Path) -> None:
    """Create beads first: some versions commit what they find, and change common files."""
    there = set(place.iterdir())
    _bd_init(place)
    if not (place / ".beads").is_dir():
        raise CapsuleError("`bd init` succeeded, but made no .beads folder.", WITHOUT_BD)
    try:
        _bd(place, "import", "-i", str(FIXTURES))
    except CapsuleError as fault:  # some versions take the file as an argument instead
        if "unknown shorthand flag" not in fault.message:
            raise
        _bd(place, "import", str(FIXTURES))
    # Newer versions only keep a database, which git does not get, so a clone would have no items.
    file = place / ".beads" / FIXTURES.name
    if not (file.is_file() and file.stat().st_size) and not _is_ignored(place, file):
        _bd(place, "export", "-o", str(file))
    for path in set(place.iterdir()) - there - {place / ".beads"}:
        _remove(path)
    # Some versions commit by themselves: the project has one commit, which is ours.
    _git(place, "symbolic-ref", "HEAD", "refs/heads/main")
    _git(place, "update-ref", "-d", "refs/heads/main")
    _git(place, "read-tree", "--empty")


def _bd_init(place: Path) -> None:
    options = list(INIT_OPTIONS)
    while True:
        try:
            return _bd(place, "init", "--prefix=demo", *options)
        except CapsuleError as fault:
            strange = [option for option in options if f"unknown flag: {option}" in fault.message]
            if not strange:
                raise
            options.remove(strange[0])


def _is_ignored(place: Path, file: Path) -> bool:
    """Tell whether a .gitignore that bd wrote ignores this file."""
    try:
        _git(place, "check-ignore", "--quiet", str(file))
    except CapsuleError:
        return False
    return True


def _git(place: Path, *args: str) -> None:
    """Run git with the environment of `system.git`, which cannot open a repository that does not exist yet."""
    places = {"GIT_DIR": str(place / ".git"), "GIT_WORK_TREE": str(place)}
    _call(("git", *args), place, hardened() | places, "")


def _bd(place: Path, *args: str) -> None:
    """Run bd without a daemon, questions, or another database."""
    env = {name: value for name, value in hardened().items() if not name.startswith(ELSEWHERE)}
    _call(("bd", *args), place, env | {"BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1"}, WITHOUT_BD)


def _call(argv: Sequence[str], place: Path, env: dict[str, str], hint: str) -> None:
    """Run a command to its end, and end its leftover processes. Its output goes to a file, not to a pipe."""
    name = f"`{' '.join(argv[:2])}`"
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv,
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=of_the_user(),
        )
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise CapsuleError(f"{name} did not end within {PATIENCE:.0f} s.", hint) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            output.seek(0)
            lines = [line for line in map(one_line, output.read().decode(errors="replace").splitlines()) if line]
            errors = (line[len("error") :].lstrip(": ") for line in lines if line.lower().startswith("error"))
            said = next(errors, lines[-1] if lines else "")  # bd prints its usage after the error
            raise CapsuleError(f"{name} failed: {said or f'exit code {code}'}", hint)
