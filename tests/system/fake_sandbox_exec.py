"""A `sandbox-exec` for machines that have none: it keeps the profiles that it is given, and runs the command."""

from __future__ import annotations

from pathlib import Path

from .rooms import a_program

_TEXT = """\
case $1 in
-f) cp "$2" '{kept}'/$$ || exit 65 ;;
-p) ;;
*) echo 'sandbox-exec: no profile' >&2; exit 64 ;;
esac
shift 2
exec "$@"
"""


class FakeSandboxExec:
    def __init__(self, folder: Path) -> None:
        self.kept = folder / "profiles"
        self.kept.mkdir(parents=True)
        self.program = a_program(folder / "bin" / "sandbox-exec", _TEXT.format(kept=self.kept))

    @property
    def folder(self) -> str:
        return str(self.program.parent)

    def profiles(self) -> list[str]:
        files = sorted(self.kept.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        return [file.read_text() for file in files]
