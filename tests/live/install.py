"""Install the real agent CLIs, bd, servers and test runners, pinned, into a cache that every clone of this user finds.

The cache is `capsule-live` in the user's cache folder (XDG_CACHE_HOME, ~/.cache, or ~/Library/Caches on a Mac), or the
folder that CAPSULE_LIVE_CACHE names. Each program has a folder there, named after it and its version. The programs
themselves run with a home of their own, in the cache.

`python -m tests.live.install` (or `... codex uv`) says on stderr what it has and what it cannot get, and prints
the folders that belong on the PATH. Each program is installed beside its place and moved there when it is whole, so a
run that is cut short leaves nothing that looks finished; another process that wants the same waits for a lock. What
cannot be had is skipped by name in the tests.

bd is built from source, with Go, once: the one of the Dolt era takes some twelve minutes of a processor. It is not put
on the PATH, because a project with beads is read otherwise where there is a bd; the tests that want it put it there.
So is Temporal's server, with the tool that makes its tables in Postgres.

Chromium is the one that this machine has. Where it has none, it is installed as packages are: by root, with apt-get.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.live import browser

_PATIENCE = 600
_PATIENCE_WITH_GO = 3600
_SIGN_OF_LIFE = 20
_CHROMIUM = ("apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")


@dataclass(frozen=True)
class Pin:
    package: str
    version: str
    native: bool = False
    """Its program must be a native one: npm may leave a stub in its place."""


PINS = {
    "claude": Pin("@anthropic-ai/claude-code", "2.1.325", native=True),
    "codex": Pin("@openai/codex", "0.166.0"),
    "gemini": Pin("@google/gemini-cli", "0.61.0"),
    "opencode": Pin("opencode-ai", "1.18.33"),
}
UV = "0.13.7"
GITHUB_SCHEMA, GRAPHQL = "15.26.1", "3.3.2"
"""What GitHub's API can be asked, as its makers publish it; and what checks a question against it."""
AXE = "4.14.0"
"""What looks for faults that keep people from using a page, run in the browser."""
PYTHON_RUNNERS = {"pytest": "9.2.0", "pytest-xdist": "3.8.0", "tox": "4.67.13", "nox": "2026.10.20", "django": "5.2.19"}
NODE_RUNNERS = {"jest": "30.5.2", "vitest": "4.1.12", "mocha": "12.0.3", "deno": "2.9.6"}
OPEN_SOURCE = {
    "itsdangerous": "2.2.0",
    "more-itertools": "10.5.0",
    "github.com/google/uuid": "v1.6.0",
    "fastrand": "2.1.1",
}
"""Real projects with their tests, one registry each for Go and Rust; and what the tests of the Python ones import."""
_THEIR_TESTS = {"pytest": PYTHON_RUNNERS["pytest"], "freezegun": "1.5.1"}
NEXTEST, JUNIT, SUREFIRE = "0.9.151", "5.13.4", "3.5.4"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>calc</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId>
      <version>{JUNIT}</version><scope>test</scope>
    </dependency>
  </dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-surefire-plugin</artifactId>
    <version>{SUREFIRE}</version>
  </plugin></plugins></build>
</project>
"""
_JAVA_TEST = "import org.junit.jupiter.api.Test;\nclass FirstTest { @Test void runs() { } }\n"
_MODULE = "github.com/steveyegge/beads"


@dataclass(frozen=True)
class Source:
    """A release of bd, as the Go module proxy has it."""

    go: str
    """The release of the language that it asks for."""
    cgo: bool
    """Its database is built with a C compiler."""
    sums: tuple[str, str]
    """Of the module and of its go.mod: what was built once is what is built."""


BD = {
    "0.47.1": Source(
        go="1.24.0",
        cgo=False,
        sums=("2y5dFWwubAmjffP76Sx3n3B4n8S6nkuU7u9SsQdOhwg=", "YfL1Wqx5ap12cU5OUJeukc1p8C8Pw7gZJbODYg2Ixfc="),
    ),
    "1.0.5": Source(
        go="1.26.2",
        cgo=True,
        sums=("QTq03ptLLYIuTuDEqcRX45fz9/QfNAGOTUWUG90dDpI=", "CodbEZdY9w+nAXlkm4A+sPTD2tmn4B6tQL+ZI3pW8W8="),
    ),
}
"""One of the SQLite era and one of the Dolt era, of those that can be built from the proxy alone."""
GITEA = "1.26.0"
"""The newest release whose modules the proxy has, all of them."""
_GITEA_MODULE, _GITEA_SUM = "code.gitea.io/gitea", "h1:fJP9dqLbzKrKWUVnCVTfVersZdVDuyJQLEDzCAOmKKA="
_GITEA_FILES = ("options", "public", "templates")
"""Read by the server when it runs."""
TEMPORAL = "1.32.0"
_TEMPORAL_MODULE = "go.temporal.io/server"
_TEMPORAL_PROGRAMS = {"temporal-server": "cmd/server", "temporal-sql-tool": "cmd/tools/sql"}


class NotToBeHad(Exception):
    """Said to whoever asked for it; the tests that need it are skipped."""


class BuildFailed(NotToBeHad):
    """It was begun: what it has downloaded and compiled so far is kept for the next try."""


def _cache() -> Path:
    if named := os.environ.get("CAPSULE_LIVE_CACHE"):
        return Path(named).absolute()
    of_the_user = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(of_the_user).is_absolute():  # by the standard, anything else is to be ignored
        of_the_user = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(of_the_user).expanduser() / "capsule-live"


_CACHE = _cache()
"""Computed on import: within a test, home and environment are the test's."""


def cache() -> Path:
    return _CACHE


def place(name: str) -> Path:
    return cache() / f"{name}-{PINS[name].version}"


def programs(name: str) -> Path:
    return place(name) / "node_modules" / ".bin"


def bd(version: str) -> Path:
    return cache() / f"bd-{version}" / "bd"


def gitea() -> Path:
    """The server; the files that it reads lie beside it."""
    return cache() / f"gitea-{GITEA}" / "gitea"


def temporal() -> Path:
    """The folder of the server and its tool."""
    return cache() / f"temporal-{TEMPORAL}"


def uv() -> Path:
    return cache() / f"uv-{UV}" / "bin" / "uv"


def github_schema() -> Path:
    """A folder with the schema, and with what reads it in `python`."""
    return cache() / f"github-schema-{GITHUB_SCHEMA}-{GRAPHQL}"


def axe() -> Path:
    return cache() / f"axe-core-{AXE}" / "node_modules" / "axe-core" / "axe.min.js"


def _key(pins: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(pins.items())).encode()).hexdigest()[:8]


def python_runners() -> Path:
    """A virtual environment: it is made in its place, and whole if `made` lies in it."""
    return cache() / f"python-runners-{sys.version_info[0]}.{sys.version_info[1]}-{_key(PYTHON_RUNNERS)}"


def node_runners() -> Path:
    return cache() / f"node-runners-{_key(NODE_RUNNERS)}"


def nextest() -> Path:
    return cache() / f"cargo-nextest-{NEXTEST}" / "bin"


def maven_repository() -> Path:
    """What Maven needs for tests with JUnit, without a network."""
    return cache() / f"junit-{JUNIT}-surefire-{SUREFIRE}"


def open_source() -> Path:
    """Sources of real projects, each in a folder of its name; `python` and `cargo` hold what their tests need."""
    return cache() / f"open-source-{sys.version_info[0]}.{sys.version_info[1]}-{_key(OPEN_SOURCE | _THEIR_TESTS)}"


def bubblewrap() -> Path:
    return _unpacked("bubblewrap")


def gh() -> Path:
    return _unpacked("gh") / "usr" / "bin" / "gh"


def _unpacked(package: str) -> Path:
    """A package of the distribution; its version is the one that this release has."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return cache() / f"{package}-{release.get('ID', 'any')}-{release.get('VERSION_ID', 'any')}"


def search_path() -> str:
    """What the real CLIs need on the PATH, for those that are there."""
    folders = [*map(programs, PINS), bubblewrap() / "usr" / "bin"]
    return ":".join(str(folder) for folder in folders if folder.is_dir())


def main(only: Collection[str] = ()) -> int:
    cache().mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Callable[[], str]] = {f"{name} {pin.version}": partial(_get, name) for name, pin in PINS.items()}
    jobs |= {f"uv {UV}": _get_uv, "bubblewrap": _get_bubblewrap, "gh": _get_gh, "chromium": _get_chromium}
    jobs |= {"python-runners": _get_python_runners, "node-runners": _get_node_runners}
    jobs |= {"open-source": _get_open_source, f"axe-core {AXE}": _get_axe}
    jobs |= {f"github-schema {GITHUB_SCHEMA}": _get_github_schema}
    jobs |= {f"junit {JUNIT}": _get_junit, f"cargo-nextest {NEXTEST}": _get_nextest}
    meanwhile = ThreadPoolExecutor(1)
    try:
        wanted = {what: get for what, get in jobs.items() if not only or what.split()[0] in only}
        told = [meanwhile.submit(_tell, what, get) for what, get in wanted.items()]
        _get_what_go_builds(only)
        for one in told:
            one.result()
    finally:
        meanwhile.shutdown(cancel_futures=True)
    print(search_path())
    return 0


def _tell(what: str, get: Callable[[], str]) -> Exception | None:
    try:
        with _one_at_a_time(what):
            _say(f"{what}: {get()}")
    except NotToBeHad as why:
        _say(f"{what}: not to be had, its tests will be skipped: {why}")
        return why
    return None


@contextmanager
def _one_at_a_time(what: str) -> Iterator[None]:
    """Wait for another process that installs the same; the kernel frees the lock of one that was killed."""
    with (cache() / f".{what.replace(' ', '-')}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{what}: another process is at it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _get(name: str) -> str:
    if place(name).is_dir():
        _check(name, programs(name) / name)
        return "there already"
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad("npm is not on the PATH")
    pin = PINS[name]
    with _beside(place(name)) as folder:
        words = (npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"{pin.package}@{pin.version}")
        _run(*words, cwd=folder)
        _check(name, folder / "node_modules" / ".bin" / name)
        folder.rename(place(name))
    return "installed"


def _check(name: str, program: Path) -> None:
    """npm may choose another version than it was told, and may leave a stub: neither is what the tests are about."""
    pin = PINS[name]
    if not program.exists():
        raise NotToBeHad(f"npm has put no {name} there")
    with program.resolve().open("rb") as file:
        if pin.native and file.read(4) != b"\x7fELF":
            raise NotToBeHad("its program is not a native one")
    said = _run(str(program), "--version", cwd=cache())
    if pin.version not in said:
        raise NotToBeHad(f"it says that it is {said.strip()!r}")


def _get_uv() -> str:
    if uv().exists():
        return "there already"
    with _beside(uv().parents[1]) as folder:
        _run(sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), f"uv=={UV}", cwd=folder)
        folder.rename(uv().parents[1])
    return "installed"


def _get_axe() -> str:
    if axe().exists():
        return "there already"
    place = cache() / f"axe-core-{AXE}"
    with _beside(place) as folder:
        _install_files(f"axe-core@{AXE}", folder)
        folder.rename(place)
    return "installed"


def _get_github_schema() -> str:
    if github_schema().exists():
        return "there already"
    with _beside(github_schema()) as folder:
        _install_files(f"@octokit/graphql-schema@{GITHUB_SCHEMA}", folder)
        pip = (sys.executable, "-m", "pip", "install", "-q", "--target", str(folder / "python"))
        _run(*pip, f"graphql-core=={GRAPHQL}", cwd=folder, at_home=True)
        folder.rename(github_schema())
    return "installed"


def _install_files(package: str, folder: Path) -> None:
    """Install a package of npm that is only read."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad("npm is not on the PATH")
    _run(npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", package, cwd=folder)


def _get_python_runners() -> str:
    folder = python_runners()
    if (folder / "made").exists():
        return "there already"
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(folder), cwd=cache())
    pins = [f"{name}=={version}" for name, version in PYTHON_RUNNERS.items()]
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *pins, cwd=folder, at_home=True)
    (folder / "made").touch()
    return "installed"


def _get_node_runners() -> str:
    if node_runners().is_dir():
        return "there already"
    npm = shutil.which("npm")
    if npm is None:
        raise NotToBeHad("npm is not on the PATH")
    with _beside(node_runners()) as folder:
        pins = [f"{name}@{version}" for name, version in NODE_RUNNERS.items()]
        _run(npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", *pins, cwd=folder)
        folder.rename(node_runners())
    return "installed"


def _get_open_source() -> str:
    """Get each project from its registry; one that cannot be had is left out, by name."""
    folder = open_source()
    folder.mkdir(exist_ok=True)
    lacking = []
    for get in (_get_python_projects, _get_go_project, _get_rust_project):
        try:
            get(folder)
        except NotToBeHad as why:
            lacking.append(str(why))
    if lacking:
        raise NotToBeHad("; ".join(lacking))
    return "there"


def _get_python_projects(folder: Path) -> None:
    if not (folder / "python").is_dir():
        with _beside(folder / "python") as made:
            pins = [f"{name}=={version}" for name, version in _THEIR_TESTS.items()]
            pip = (sys.executable, "-m", "pip", "install", "-q", "--target", str(made), *pins)
            _run(*pip, cwd=made, at_home=True)
            made.rename(folder / "python")
    for name in ("itsdangerous", "more-itertools"):
        if not (folder / name).is_dir():
            with _beside(folder / name) as made:
                words = ("download", "-q", "--no-deps", "--no-binary", ":all:", f"{name}=={OPEN_SOURCE[name]}")
                _run(sys.executable, "-m", "pip", *words, cwd=made, at_home=True)
                shutil.unpack_archive(next(made.glob("*.tar.gz")), made, filter="data")
                next(each for each in made.iterdir() if each.is_dir()).rename(folder / name)


def _get_go_project(folder: Path) -> None:
    go, name = shutil.which("go"), "github.com/google/uuid"
    if go is None:
        raise NotToBeHad("go is not on the PATH")
    if not (folder / "uuid").is_dir():
        with _beside(folder / "uuid") as made:
            said = _run(go, "mod", "download", "-json", f"{name}@{OPEN_SOURCE[name]}", cwd=made, at_home=True)
            shutil.copytree(json.loads(said)["Dir"], made / "uuid", copy_function=shutil.copyfile)
            for each in (made / "uuid", *(made / "uuid").rglob("*")):  # a store of modules is read-only
                each.chmod(0o755 if each.is_dir() else 0o644)
            (made / "uuid").rename(folder / "uuid")


def _get_rust_project(folder: Path) -> None:
    """Get it with the crates that its tests need, into a store of their own, and lock their versions."""
    cargo, name = shutil.which("cargo"), "fastrand"
    if cargo is None:
        raise NotToBeHad("cargo is not on the PATH")
    if not (folder / name).is_dir():
        with _beside(folder / name) as made:
            (made / "src").mkdir()
            (made / "src" / "lib.rs").touch()
            manifest = made / "Cargo.toml"
            package = '[package]\nname = "fetch"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n'
            manifest.write_text(f'{package}{name} = "={OPEN_SOURCE[name]}"\n')
            store = ("env", f"CARGO_HOME={folder / 'cargo'}", cargo, "fetch", "-q", "--manifest-path")
            _run(*store, str(manifest), cwd=made, at_home=True)
            found = next((folder / "cargo").glob(f"registry/src/*/{name}-{OPEN_SOURCE[name]}"))
            shutil.copytree(found, made / name)
            _run(*store, str(made / name / "Cargo.toml"), cwd=made, at_home=True)
            (made / name).rename(folder / name)


def _get_junit() -> str:
    """Have Maven run one test, with a repository of its own: that holds what it needs afterwards."""
    if maven_repository().is_dir():
        return "there already"
    maven = shutil.which("mvn")
    if maven is None:
        raise NotToBeHad("mvn is not on the PATH")
    with _beside(maven_repository()) as folder, tempfile.TemporaryDirectory(dir=cache()) as scratch:
        test = Path(scratch, "src", "test", "java", "FirstTest.java")
        test.parent.mkdir(parents=True)
        test.write_text(_JAVA_TEST)
        Path(scratch, "pom.xml").write_text(POM)
        _run(maven, "-q", "-B", f"-Dmaven.repo.local={folder}", "test", cwd=Path(scratch), at_home=True)
        folder.rename(maven_repository())
    return "installed"


def _get_nextest() -> str:
    """It is built from source, for some ten minutes of a processor."""
    if nextest().is_dir():
        return "there already"
    cargo = shutil.which("cargo")
    if cargo is None:
        raise NotToBeHad("cargo is not on the PATH")
    with _beside(nextest().parent) as folder, tempfile.TemporaryDirectory(dir=cache()) as scratch:
        version = ("--version", NEXTEST, "--locked", "--root", str(folder))
        words = (
            cargo,
            "install",
            "cargo-nextest",
            *version,
            "--no-default-features",
            "--features",
            "default-no-update",
        )
        _build(f"cargo-nextest {NEXTEST}", words, Path(scratch), {"HOME": str(Path.home())})
        folder.rename(nextest().parent)
    return "built"


def _get_what_go_builds(only: Collection[str]) -> None:
    """One after the other: they have much in common. What Go leaves behind is large, and of no use afterwards."""
    jobs: dict[str, Callable[[], str]] = {f"bd {version}": partial(_get_bd, version) for version in BD}
    jobs |= {f"temporal {TEMPORAL}": _get_temporal, f"gitea {GITEA}": _get_gitea}
    wanted = {what: get for what, get in jobs.items() if not only or what.split()[0] in only}
    if not wanted:
        return
    with _one_at_a_time("go"):
        failures = [_tell(what, get) for what, get in wanted.items()]
        if not any(isinstance(failure, BuildFailed) for failure in failures):
            shutil.rmtree(cache() / "go", ignore_errors=True)


def _get_bd(version: str) -> str:
    if bd(version).exists():
        _check_bd(version, bd(version))
        return "there already"
    go, source = shutil.which("go"), BD[version]
    if go is None:
        raise NotToBeHad("go is not on the PATH")
    if source.cgo and not shutil.which("gcc"):
        raise NotToBeHad("gcc is not on the PATH")
    with _beside(bd(version).parent) as folder, tempfile.TemporaryDirectory(dir=cache()) as scratch:
        _write_module(Path(scratch), version)
        words = (go, "build", "-v", "-o", str(folder / "bd"), f"{_MODULE}/cmd/bd")
        _build(f"bd {version}", words, Path(scratch), _go_environment(go, cgo=source.cgo))
        _check_bd(version, folder / "bd")
        folder.rename(bd(version).parent)
    return "built"


def _write_module(folder: Path, version: str) -> None:
    """`go install` wants each package from the proxy as a module of its own; a module that requires bd's does not."""
    source = BD[version]
    code, requirements = source.sums
    (folder / "go.mod").write_text(f"module bd.test\n\ngo {source.go}\n\nrequire {_MODULE} v{version}\n")
    (folder / "go.sum").write_text(f"{_MODULE} v{version} h1:{code}\n{_MODULE} v{version}/go.mod h1:{requirements}\n")


def _get_gitea() -> str:
    """Build it as a module of its own, with the versions that it was released with; some eight minutes of a processor.

    It has no pages: those are built from its sources by other tools. Its API and git over HTTP need none.
    """
    if gitea().exists():
        _check_gitea(gitea())
        return "there already"
    go = shutil.which("go")
    if go is None or not shutil.which("gcc"):
        raise NotToBeHad("go or gcc is not on the PATH")
    with _beside(gitea().parent) as folder, tempfile.TemporaryDirectory(dir=cache()) as scratch:
        environment = _go_environment(go, cgo=True) | {"GOFLAGS": "-modcacherw -trimpath -buildvcs=false"}
        words = ("mod", "download", "-json", f"{_GITEA_MODULE}@v{GITEA}")
        found = json.loads(_run("env", *(f"{k}={v}" for k, v in environment.items()), go, *words, cwd=Path(scratch)))
        if found["Sum"] != _GITEA_SUM:
            raise NotToBeHad(f"its source has another sum: {found['Sum']}")
        source = shutil.copytree(found["Dir"], Path(scratch, "source"), copy_function=shutil.copyfile)
        for name in _GITEA_FILES:
            shutil.copytree(Path(source, name), folder / name, copy_function=shutil.copyfile)
        named = f"-s -w -X main.Version={GITEA}"
        build = (go, "build", "-v", "-tags", "sqlite,sqlite_unlock_notify", "-ldflags", named)
        _build(f"gitea {GITEA}", (*build, "-o", str(folder / "gitea"), "."), Path(source), environment)
        _check_gitea(folder / "gitea")
        folder.rename(gitea().parent)
    return "built"


def _check_gitea(program: Path) -> None:
    said = _run(str(program), "--version", cwd=cache())
    if f" {GITEA} " not in said:
        raise NotToBeHad(f"it says that it is {said.strip()!r}")


def _get_temporal() -> str:
    if temporal().is_dir():
        _check_temporal(temporal())
        return "there already"
    go = shutil.which("go")
    if go is None:
        raise NotToBeHad("go is not on the PATH")
    with _beside(temporal()) as folder, tempfile.TemporaryDirectory(dir=cache()) as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(Path(__file__).with_name("temporal") / name, Path(scratch, name))
        environment = _go_environment(go, cgo=False) | {"GOFLAGS": "-mod=mod -modcacherw -trimpath -buildvcs=false"}
        for program, package in _TEMPORAL_PROGRAMS.items():
            words = (go, "build", "-v", "-ldflags", "-s -w", "-o", str(folder / program))
            _build(f"{program} {TEMPORAL}", (*words, f"{_TEMPORAL_MODULE}/{package}"), Path(scratch), environment)
        _check_temporal(folder)
        folder.rename(temporal())
    return "built"


def _check_temporal(folder: Path) -> None:
    said = _run(str(folder / "temporal-server"), "--version", cwd=cache())
    if TEMPORAL not in said:
        raise NotToBeHad(f"it says that it is {said.strip()!r}")


def _go_environment(go: str, *, cgo: bool) -> dict[str, str]:
    """Where the user gets modules and tools from is as they have it; what Go writes goes into the cache."""
    own = cache() / "go"
    return {
        "GOENV": _run(go, "env", "GOENV", cwd=cache(), at_home=True).strip(),
        "GOPATH": str(own),
        "GOMODCACHE": str(own / "modules"),
        "GOCACHE": str(own / "build"),
        "GOFLAGS": "-mod=mod -modcacherw -trimpath -buildvcs=false -tags=gms_pure_go",
        "GOWORK": "off",
        "CGO_ENABLED": str(int(cgo)),
    }


def _build(what: str, words: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> None:
    """Says now and then how far it is."""
    began, log = time.monotonic(), cwd / "log"
    with log.open("wb") as out:
        build = subprocess.Popen(
            words,
            cwd=cwd,
            env={**_environment(), **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        while (code := _ended(build)) is None:
            passed, packages = time.monotonic() - began, log.read_bytes().count(b"\n")
            if passed > _PATIENCE_WITH_GO:
                raise BuildFailed(f"{what}: the build has not ended after {passed:.0f} s")
            _say(f"{what}: being built, {passed:.0f} s, {packages} steps so far")
    finally:
        build.kill()
        build.wait()
    if code:
        said = log.read_text(errors="replace").strip() or "it said nothing"
        raise BuildFailed(f"{Path(words[0]).name} {words[1]} exited with {code}: {' | '.join(said.splitlines()[-3:])}")


def _ended(build: subprocess.Popen[bytes]) -> int | None:
    try:
        return build.wait(_SIGN_OF_LIFE)
    except subprocess.TimeoutExpired:
        return None


def _check_bd(version: str, program: Path) -> None:
    said = _run(str(program), "version", cwd=cache())
    if f" {version} " not in f"{said.strip()} ":
        raise NotToBeHad(f"it says that it is {said.strip()!r}")


def _get_bubblewrap() -> str:
    if found := shutil.which("bwrap"):
        return f"{found} is used"
    return _get_package("bubblewrap", bubblewrap())


def _get_gh() -> str:
    """It is not put on the PATH: the tests that want it put it there, with an API of ours."""
    return _get_package("gh", _unpacked("gh"))


def _get_package(name: str, place: Path) -> str:
    if place.exists():
        return "there already"
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotToBeHad(f"neither {name} nor apt-get is on the PATH")
    with _beside(place) as folder:
        _run("apt-get", "download", name, cwd=folder)
        for package in folder.glob("*.deb"):
            _run("dpkg-deb", "-x", package.name, ".", cwd=folder)
        folder.rename(place)
    return "unpacked"


def _get_chromium() -> str:
    if found := browser.found():
        return f"{found} is used"
    if os.geteuid() or not shutil.which("apt-get"):
        raise NotToBeHad("it is not on the PATH, and packages are installed only by root, with apt-get")
    try:
        _run(*_CHROMIUM, cwd=cache())
    except NotToBeHad:  # what it knows of packages may be old
        _run("apt-get", "update", cwd=cache())
        _run(*_CHROMIUM, cwd=cache())
    if not browser.found():
        raise NotToBeHad("apt-get has put no such program on the PATH")
    return "installed"


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder next to where it is to be; it goes away unless it was renamed."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    home = cache() / "home"
    home.mkdir(exist_ok=True)
    own = {
        "HOME": str(home),
        "npm_config_cache": str(cache() / "npm"),
        "DISABLE_AUTOUPDATER": "1",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    env = {**os.environ, **own, "BEADS_NO_DAEMON": "1"}
    settings = Path.home() / ".npmrc"
    if settings.is_file():
        env.setdefault("npm_config_userconfig", str(settings))
    return env


def _run(*words: str, cwd: Path, at_home: bool = False) -> str:
    env = None if at_home else _environment()
    try:
        nothing = subprocess.DEVNULL
        ran = subprocess.run(
            words, cwd=cwd, env=env, stdin=nothing, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise NotToBeHad(f"{words[0]}: {fault}") from None
    if ran.returncode:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it said nothing").splitlines()[-1]
        raise NotToBeHad(f"{Path(words[0]).name} {words[1]} exited with {ran.returncode}: {last}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
