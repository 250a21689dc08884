"""The list of processes that a run has left behind."""

from __future__ import annotations

from pathlib import Path

from tests.live.table import survivors


def test_a_process_that_goes_while_it_is_looked_at_is_no_survivor(tmp_path: Path) -> None:
    gone, left = tmp_path / "proc" / "90001", tmp_path / "proc" / "90002"
    for process in (gone, left):
        process.mkdir(parents=True)
        (process / "environ").write_bytes(f"TMPDIR={tmp_path}/run\0".encode())
    (left / "cmdline").write_bytes(b"tail\0-f\0endless\0")
    assert survivors(tmp_path / "run", tmp_path / "proc") == ["tail -f endless "]
