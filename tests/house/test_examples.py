"""Run every example as its page says, with real git, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import ROOT, Reader

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
IN_LIVE = {ROOT / "examples" / "09-several-machines"}
"""Examples that need a server: `make live` runs them."""


@pytest.mark.slow
@pytest.mark.promise("backlog.demo", "house.documents")
@pytest.mark.parametrize("example", sorted({*EXAMPLES} - IN_LIVE), ids=lambda path: path.name)
def test_an_example_works_as_its_page_says(example: Path, tmp_path: Path) -> None:
    assert Reader(tmp_path, EXAMPLE=str(example)).follow((example / "README.md").read_text()) > 5


def test_every_folder_is_an_example_and_is_listed() -> None:
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir()]
    listed = (ROOT / "examples" / "README.md").read_text()
    assert sorted(folders) == EXAMPLES
    assert [path.name for path in EXAMPLES if f"({path.name}/README.md)" not in listed] == []
