"""Read the grids in docs/reference/agents-and-faults.md: each cell is what a test expects to see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agents-and-faults.md"


def cells(title: str) -> Mapping[tuple[str, str], str]:
    """Return the cells of the table below a heading, by the names of their row and column."""
    section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return {(row[0], name.strip("`")): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)}
