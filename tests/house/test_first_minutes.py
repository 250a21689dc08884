"""Test the first minutes: what README says under *Use it*, typed literally by a new user."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.backlog_script import WHOLE, honest, stem, turn

from .pages import ROOT, Reader, blocks

TITLE = "print-a-receipt"
SHOP = "def total(prices):\n    return sum(prices)\n"
RECEIPT = "import shop\n\n\ndef last_line(prices):\n    return f'total {shop.total(prices)}'\n"


def case(module: str, assertion: str) -> str:
    return (
        f"import unittest\n\nimport {module}\n\n\nclass {module.title()}Test(unittest.TestCase):\n"
        f"    def test_it(self):\n        {assertion}\n"
    )


def used() -> tuple[str, list[str]]:
    """Return how README installs Capsule, and what it types in one's own project."""
    section = (ROOT / "README.md").read_text().partition("\n## Use it\n")[2].partition("\n## ")[0]
    install, first = blocks(section, "sh")
    return install, first.splitlines()


def a_clone(folder: Path) -> Path:
    """Clone what is tested, with edits that are not committed."""
    clone = folder / "capsule"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    return clone


def a_project(folder: Path) -> Path:
    """One module with one test, in one commit; git does not know who the user is."""
    project = folder / "my-shop"
    project.mkdir()
    files = {"shop.py": SHOP, "test_shop.py": case("shop", "self.assertEqual(shop.total([1, 2]), 3)")}
    for name, text in files.items():
        (project / name).write_text(text)
    someone = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*someone, "commit", "-q", "-m", "A shop"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    return project


def a_script(folder: Path) -> Path:
    """What the scripted agent plays in place of a real one."""
    files = {
        "receipt.py": RECEIPT,
        "test_receipt.py": case("receipt", "self.assertEqual(receipt.last_line([1, 2]), 'total 3')"),
    }
    build = turn("build", write={**files, f"{stem(title=TITLE)}_SPEC.md": WHOLE})
    script = folder / "agent.json"
    script.write_text(json.dumps({"WRK-001": honest(title=TITLE, build=[build])}))
    return script


def installed(folder: Path, home: Path, install: str) -> tuple[Path, str]:
    """Return the folder of programs and the command that installs Capsule there: README's, or venv and pip."""
    wanted = re.findall(r"(?:uv tool|pipx) install \.", install)
    assert wanted == ["uv tool install .", "pipx install ."]
    for command in wanted:
        if shutil.which(command.split()[0]):
            return home / ".local/bin", command
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    return folder / "venv/bin", "python3 -m pip install --quiet ."


@pytest.mark.slow
@pytest.mark.promise("house.first-minutes")
def test_a_new_user_gets_from_a_clone_to_a_merged_item_with_five_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install, first = used()
    assert first == ['capsule init && capsule add "Print a receipt"', "capsule run"]
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")  # on any machine, git guesses no identity
    programs, command = installed(tmp_path, home, install)
    scripted = {"CAPSULE_AGENT": "scripted", "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(a_script(tmp_path))])}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    user = Reader(a_clone(tmp_path), HOME=str(home), PATH=path, GIT_CONFIG_NOSYSTEM="1", **scripted)
    typed: list[str] = []

    def types(line: str) -> str:
        typed.append(line)
        return user.type(line)

    said = types(command)
    assert user.type("command -v capsule").strip() == str(programs / "capsule"), said
    user.cwd = a_project(tmp_path)

    refused = types(first[0])
    assert refused.startswith("capsule: Git does not know who you are.\n"), refused
    assert types(refused.splitlines()[1].strip()) == ""
    assert types(first[0]).endswith("WRK-001  Print a receipt\n")
    assert user.type("capsule").endswith(
        "next: capsule run\n      works through what is ready; `capsule status` lists it\n"
    )

    ended = types(first[1])
    assert "✓ Run ended: nothing is left to do.\n  1 done" in ended, ended
    assert user.type("git show main:receipt.py") == RECEIPT
    assert user.type("git status --short") == ""
    assert "by name" in ended and "Ran 2 tests" in user.type("python3 -m unittest discover")
    assert "**Done." in user.type("capsule report")
    assert len(typed) == 5, typed
