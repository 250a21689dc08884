"""Situations with real git, and a home that no test can reach."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest

from capsule.system import sandbox
from capsule.system.git import Git
from tests import warm
from tests.contracts.fake_bd import served
from tests.without import path_without

# How long an example takes is the machine's affair.
for _profile, _examples in (("all examples", 100), ("a fifth of the examples", 20)):
    hypothesis.settings.register_profile(
        _profile, max_examples=_examples, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )

pytest.register_assert_rewrite("tests.contracts.tracker_suite")  # before anything imports it

_MEMORY = Path("/dev/shm")
_ROOM = 3 * 1024**3
_NOBODY_ELSES = ("GIT_", "XDG_", "CAPSULE_", "BEADS_", "BD_", "COLUMNS")
_LEVEL = sandbox.level("auto", os.environ)
UNBROKEN = {"CAPSULE_EVIDENCE__MUTANTS": "0"}
"""No mutants: they cost more than the mission. Tests about them set their own number."""
UNSANDBOXED = {"CAPSULE_SANDBOX": "off", **UNBROKEN}
SANDBOXED = {"CAPSULE_SANDBOX": "required", **UNBROKEN}


def pytest_configure(config: pytest.Config) -> None:
    """Projects lie in memory where they can: thousands of them are made, flushed to the disk and thrown away."""
    for marker in (
        "sandboxed: runs in bubblewrap; skipped where bubblewrap does not work",
        "slow: for `make check`, too costly for `make test`",
        "quick: in tests/crash, where all else is slow",
        "in_git: a mission of the engine's tests, in a real repository",
        "sweep(cases=1, rest='slow'): only the first cases are for `make test`; the others are slow, or for a soak",
        "soak: for `make soak`, the rest of a table of which `make check` and `make live` have a cross-section",
    ):
        config.addinivalue_line("markers", marker)
    # A shell ignores SIGINT for what it starts in the background, and children inherit that: they would miss Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    daily = "not slow" in config.option.markexpr
    hypothesis.settings.load_profile("a fifth of the examples" if daily else "all examples")
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ and _memory_will_do():
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY)


def _memory_will_do() -> bool:
    """Tell whether programs may be started in memory, and whether it has room."""
    if not os.access(_MEMORY, os.W_OK):
        return False
    about = os.statvfs(_MEMORY)
    return not about.f_flag & getattr(os, "ST_NOEXEC", 0) and about.f_bavail * about.f_frsize >= _ROOM


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow, before `-m` selects: the rest of a sweep, what is for `make soak`, and kills of a whole mission."""
    seen: Counter[str] = Counter()
    for item in items:
        if sweep := item.get_closest_marker("sweep"):
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > sweep.kwargs.get("cases", 1):
                item.add_marker(sweep.kwargs.get("rest", "slow"))
        killed = item.path.parent.name == "crash" and not item.get_closest_marker("quick")
        if killed or item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("sandboxed") and not _LEVEL.program:
        pytest.skip(_LEVEL.why)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Make a folder in memory, or on disk for a test in a sandbox, which has a `/dev` of its own."""
    if not request.node.get_closest_marker("sandboxed"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="capsule-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture(params=["off", pytest.param("bubblewrap", marks=pytest.mark.sandboxed)])
def level(request: pytest.FixtureRequest) -> dict[str, str]:
    """Each protection that an agent can be under, as settings in the environment."""
    return UNSANDBOXED if request.param == "off" else SANDBOXED


class Repo:
    """A repository as a person has it, worked on with plain git."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *args: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *args], cwd=cwd or self.path, capture_output=True, check=False)
        assert done.returncode == 0, f"git {' '.join(args)}: {os.fsdecode(done.stderr)}"
        return os.fsdecode(done.stdout).strip()

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def commit(self, message: str = "more", **files: str) -> str:
        """Commits everything; files may be given as name=text, with __ for a dot."""
        for name, text in files.items():
            self.write(name.replace("__", "."), text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.head()

    def head(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", ref)

    def refs(self, below: str) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)", below).split()

    def status(self) -> str:
        return self.git("status", "--porcelain")

    def fsck(self) -> None:
        self.git("fsck", "--strict", "--no-dangling")


@pytest.fixture(scope="session")
def path_without_bd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A `bd` of whoever runs the tests changes what `tracker: auto` means: a test that wants one brings its own."""
    return path_without("bd", tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="session")
def path_without_bubblewrap(path_without_bd: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """No colour depends on whether there is a bubblewrap: only a test that is marked `sandboxed` can find it."""
    return path_without("bwrap", tmp_path_factory.mktemp("bin"), path_without_bd)


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names for thousands of homes, in a folder of their own: `mktemp` looks at all names to find the next number."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def unreachable_home(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    _homes: Iterator[Path],
    path_without_bd: str,
    path_without_bubblewrap: str,
) -> Path:
    """An empty home, empty git settings, no sandbox, and an identity by environment."""
    home = next(_homes)
    home.mkdir()
    for name in [name for name in os.environ if name.startswith(_NOBODY_ELSES)]:
        monkeypatch.delenv(name)
    (home / "gitconfig").touch()
    monkeypatch.setenv("HOME", str(home))
    sandboxed = request.node.get_closest_marker("sandboxed")
    monkeypatch.setenv("PATH", path_without_bd if sandboxed else path_without_bubblewrap)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name, value in UNSANDBOXED.items():
        monkeypatch.setenv(name, value)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")
    return home


@pytest.fixture(scope="session", autouse=True)
def _servers_end() -> Iterator[None]:
    yield
    warm.end_server()
    served.end_server()


@pytest.fixture(scope="session", autouse=True)
def _memory_is_given_back(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where something failed, what it left is kept to be looked at, as on a disk."""
    yield
    folders = tmp_path_factory.getbasetemp()
    if folders.is_relative_to(_MEMORY) and not request.session.testsfailed:
        shutil.rmtree(folders, ignore_errors=True)


@pytest.fixture
def a_repo(_two_commits: list[Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Two commits on main, a folder, an ignored name."""
    if not _two_commits:
        _two_commits.append(_make_two_commits(tmp_path_factory.mktemp("two-commits") / "project"))
    shutil.copytree(_two_commits[0], tmp_path / "project", symlinks=True)
    repo = Repo(tmp_path / "project")
    repo.git("update-index", "-q", "--refresh")
    return repo


@pytest.fixture(scope="session")
def _two_commits() -> list[Path]:
    """What the first test made for those after it; a home that nobody can reach is there only within a test."""
    return []


def _make_two_commits(path: Path) -> Path:
    path.mkdir()
    repo = Repo(path)
    repo.git("init", "-q", "-b", "main")
    repo.write(".gitignore", "*.pyc\nbuild/\n.env\n")
    repo.write("src/app.py", "print('one')\n")
    repo.commit("first")
    repo.commit("second", README="hello\n")
    return path


@pytest.fixture
def a_dirty_repo(a_repo: Repo) -> Repo:
    """One file edited, one staged, one new."""
    a_repo.write("README", "my edit\n")
    a_repo.write("staged.txt", "staged\n")
    a_repo.git("add", "staged.txt")
    a_repo.write("new.txt", "new\n")
    return a_repo


@pytest.fixture
def a_repo_with_conflict(a_repo: Repo) -> Repo:
    """Branch `work` and main changed the same line."""
    a_repo.git("switch", "-q", "-c", "work")
    a_repo.commit("theirs", README="from work\n")
    a_repo.git("switch", "-q", "main")
    a_repo.commit("ours", README="from main\n")
    return a_repo


@pytest.fixture
def git(a_repo: Repo) -> Git:
    return Git.find(a_repo.path)


@pytest.fixture
def local_time_is(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts this process into a time zone, as TZ names it, until the test is over."""

    def choose(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield choose
    monkeypatch.undo()
    time.tzset()
