"""Gets the real agent CLIs, pinned, into a cache of their own: never globally, never into anybody's home.

The cache is `.cache/live` in this repository, or the folder that CAPSULE_LIVE_CACHE names.

`python -m tests.live.install` says on stderr what it has and what it cannot get, and prints the folders that belong on
the PATH. Each CLI is installed beside its place and moved there when it is whole, so a run that is cut short leaves
nothing that looks finished. What cannot be had is skipped by name in the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_PATIENCE = 600


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


class NotToBeHad(Exception):
    """Said to whoever asked for it; the tests that need it are skipped."""


def cache() -> Path:
    return Path(os.environ.get("CAPSULE_LIVE_CACHE") or Path(__file__).parents[2] / ".cache" / "live").absolute()


def place(name: str) -> Path:
    return cache() / f"{name}-{PINS[name].version}"


def programs(name: str) -> Path:
    return place(name) / "node_modules" / ".bin"


def bubblewrap() -> Path:
    return cache() / "bubblewrap"


def search_path() -> str:
    """What the real CLIs need on the PATH, for those that are there."""
    folders = [*map(programs, PINS), bubblewrap() / "usr" / "bin"]
    return ":".join(str(folder) for folder in folders if folder.is_dir())


def main() -> int:
    cache().mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Callable[[], str]] = {f"{name} {pin.version}": partial(_get, name) for name, pin in PINS.items()}
    for what, get in {**jobs, "bubblewrap": _get_bubblewrap}.items():
        try:
            print(f"{what}: {get()}", file=sys.stderr)
        except NotToBeHad as why:
            print(f"{what}: not to be had, its tests will be skipped: {why}", file=sys.stderr)
    print(search_path())
    return 0


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


def _get_bubblewrap() -> str:
    if found := shutil.which("bwrap"):
        return f"{found} is used"
    program = bubblewrap() / "usr" / "bin" / "bwrap"
    if program.exists():
        return "there already"
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotToBeHad("neither bwrap nor apt-get is on the PATH")
    with _beside(bubblewrap()) as folder:
        _run("apt-get", "download", "bubblewrap", cwd=folder)
        for package in folder.glob("*.deb"):
            _run("dpkg-deb", "-x", package.name, ".", cwd=folder)
        folder.rename(bubblewrap())
    return "unpacked"


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder next to where it is to be; it goes away unless it was renamed."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(*words: str, cwd: Path) -> str:
    home = cache() / "home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), "npm_config_cache": str(cache() / "npm"), "DISABLE_AUTOUPDATER": "1"}
    settings = Path.home() / ".npmrc"
    if settings.is_file():
        env.setdefault("npm_config_userconfig", str(settings))
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
    sys.exit(main())
