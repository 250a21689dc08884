"""Run every example as its page says, with real git, in an empty folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..git_server import git_server
from .pages import ROOT, Reader

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
AT_A_SERVER = ("06-", "07-", "08-")
"""Examples whose remote is served over HTTP by git's own server, though their pages name a folder."""
IN_LIVE = {ROOT / "examples" / "09-several-machines"}
"""Examples that need a server: `make live` runs them."""


@pytest.mark.slow
@pytest.mark.promise("backlog.demo", "house.documents")
@pytest.mark.parametrize("example", sorted({*EXAMPLES} - IN_LIVE), ids=lambda path: path.name)
def test_an_example_works_as_its_page_says(example: Path, tmp_path: Path) -> None:
    page = (example / "README.md").read_text()
    if not example.name.startswith(AT_A_SERVER):
        assert Reader(tmp_path, EXAMPLE=str(example)).follow(page) > 5
        return
    with git_server(tmp_path / "work") as server:
        server.takes_pushes = True
        settings = tmp_path / "gitconfig"
        theirs, served = os.environ["GIT_CONFIG_GLOBAL"], server.url("server")
        settings.write_text(f'[include]\n\tpath = {theirs}\n[url "{served}"]\n\tinsteadOf = ../server.git\n')
        reader = Reader(tmp_path / "work", EXAMPLE=str(example), GIT_CONFIG_GLOBAL=str(settings))
        assert reader.follow(page) > 5
        assert server.pushes > 0


def test_every_folder_is_an_example_and_is_listed() -> None:
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir()]
    listed = (ROOT / "examples" / "README.md").read_text()
    assert sorted(folders) == EXAMPLES
    assert [path.name for path in EXAMPLES if f"({path.name}/README.md)" not in listed] == []
