"""Where a run's temporary files go, whatever the environment says about it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from capsule.agents._scratch import private_folder
from capsule.core.errors import CapsuleError


@pytest.fixture(autouse=True)
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the system falls back to."""
    folder = tmp_path / "usual"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_it_is_where_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with private_folder(tmp_path, "m", str(tmp_path / "own")) as folder:
        assert folder.parent == tmp_path / "own"


@pytest.mark.parametrize("temp", ["", "{here}/missing/x", "relative", "{here}/file", "/proc/self"])
def test_a_place_that_cannot_be_used_is_replaced_by_the_usual_one(tmp_path: Path, usual: Path, temp: str) -> None:
    (tmp_path / "relative").mkdir()
    (tmp_path / "file").touch()
    with private_folder(tmp_path, "m", temp.format(here=tmp_path)) as folder:
        assert folder.parent == usual
        assert folder.is_dir()
    assert list(usual.iterdir()) == []


def test_no_place_at_all_is_said_with_what_to_do(tmp_path: Path, usual: Path) -> None:
    usual.rmdir()
    with pytest.raises(CapsuleError, match="No folder for temporary files: ") as told, private_folder(tmp_path, "m"):
        pass
    assert "TMPDIR" in told.value.hint
