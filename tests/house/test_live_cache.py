"""What `make live` installs is installed once per user and version, whoever asks and however many at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.install import PINS

PIN = PINS["codex"]
NPM = f"""#!/bin/sh
echo "$3" >> "$NPM_CALLS"
sleep 0.3
mkdir -p "$3/node_modules/.bin"
printf '#!/bin/sh\\necho codex {PIN.version}\\n' > "$3/node_modules/.bin/codex"
chmod +x "$3/node_modules/.bin/codex"
"""


@pytest.fixture
def somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with an npm that notes each call."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("NPM_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def install(**env: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.live.install", "codex"]
    root, pipe = Path(__file__).parents[2], subprocess.PIPE
    return subprocess.Popen(words, cwd=root, env={**os.environ, **env}, stdout=pipe, stderr=pipe, text=True)


def test_it_goes_to_the_users_cache_by_name_and_version(somebody: Path) -> None:
    out, err = install(XDG_CACHE_HOME=str(somebody / "kept")).communicate()
    program = somebody / "kept" / "capsule-live" / f"codex-{PIN.version}" / "node_modules" / ".bin"
    assert str(program) in out.strip().split(":"), err
    out, err = install(XDG_CACHE_HOME="relative").communicate()
    folder = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert str(somebody / folder / "capsule-live") in out, err


@pytest.mark.slow
def test_two_at_once_install_it_once_and_the_next_one_finds_it(somebody: Path) -> None:
    for process in [install(), install()]:
        out, err = process.communicate()
        assert f"codex-{PIN.version}" in out, err
    assert "there already" in install().communicate()[1]
    assert len((somebody / "calls").read_text().splitlines()) == 1
