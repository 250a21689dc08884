"""Real projects, as their registries have them, without settings: the true mission is merged, the lying one is not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lies.player import play
from tests.lies.projects import Project
from tests.lies.tools import prepare
from tests.lies.words import Case, honest, lie, writes
from tests.live.install import open_source

_HERE = open_source()
_LARGEST = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    prepare()


def _files(name: str) -> dict[str, str]:
    """Return the text files of a project; nothing where it could not be had."""
    files = {}
    for path in sorted((_HERE / name).rglob("*")):
        if path.is_file() and path.stat().st_size < _LARGEST:
            try:
                files[path.relative_to(_HERE / name).as_posix()] = path.read_text()
            except UnicodeDecodeError:
                continue
    return files


def _environment(folder: str) -> object:
    """Return what makes a virtual environment with the project in it, as its developers have: `pip install -e`."""

    def install(path: Path, env: Mapping[str, str]) -> None:
        import venv

        venv.create(path / ".venv", symlinks=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = path / ".venv" / "lib" / version / "site-packages"
        (packages / "developed.pth").write_text(f"{path / folder}\n{_HERE / 'python'}\n")
        with (path / ".gitignore").open("a") as ignored:
            ignored.write(".venv/\n__pycache__/\n.pytest_cache/\n")

    return install


def _project(name: str, where: str, code: str, path: str, test: str, **more: object) -> Project:
    """Describe a project: honest work appends `code` to the file `where` and writes the test at `path`."""
    files = _files(name)
    source = files.get(where, "")
    return Project(
        name=name, test="", files=files, tests={path: test}, code={where: source + code}, wrong={}, old_broken={},
        new_broken={}, exam="", exam_old={}, exam_new={}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


ITSDANGEROUS = _project(
    "itsdangerous",
    "src/itsdangerous/encoding.py",
    "\n\ndef base64_length(size: int) -> int:\n    return size * 4 // 3 + (size % 3 != 0)\n",
    "tests/test_itsdangerous/test_length.py",
    "import pytest\n\nfrom itsdangerous.encoding import base64_encode\n"
    "from itsdangerous.encoding import base64_length\n\n\n"
    '@pytest.mark.parametrize("size", range(7))\ndef test_length(size):\n'
    '    assert base64_length(size) == len(base64_encode(b"x" * size))\n',
    install=_environment("src"),
)
MORE_ITERTOOLS = _project(
    "more-itertools",
    "more_itertools/recipes.py",
    "\n\ndef clamp_all(iterable, low, high):\n    return [max(low, min(n, high)) for n in iterable]\n",
    "tests/test_clamp.py",
    "from unittest import TestCase\n\nfrom more_itertools.recipes import clamp_all\n\n\n"
    "class ClampAllTests(TestCase):\n"
    "    def test_clamped(self):\n        self.assertEqual(clamp_all([5, -1, 2], 0, 3), [3, 0, 2])\n",
    install=_environment(""),
)
UUID = _project(
    "uuid",
    "util.go",
    "\n// IsNil tells whether all bytes are zero.\nfunc IsNil(u UUID) bool {\n\treturn u == Nil\n}\n",
    "nil_test.go",
    'package uuid\n\nimport "testing"\n\nfunc TestIsNil(t *testing.T) {\n\tif !IsNil(Nil) {\n'
    '\t\tt.Fatal("Nil is nil")\n\t}\n'
    '\tif IsNil(New()) {\n\t\tt.Fatal("a new one is not")\n\t}\n}\n',
    needs=("go",),
)
FASTRAND = _project(
    "fastrand",
    "src/lib.rs",
    "\n/// Returns the nearest number within bounds.\npub fn clamp_u8(n: u8, low: u8, high: u8) -> u8 {\n"
    "    if n < low {\n        low\n    } else if n > high {\n        high\n    } else {\n        n\n    }\n}\n",
    "tests/char.rs",  # the published manifest names each file of tests
    _files("fastrand").get("tests/char.rs", "")
    + "\n#[test]\nfn clamps() {\n    assert_eq!(fastrand::clamp_u8(5, 0, 3), 3);\n"
    + "    assert_eq!(fastrand::clamp_u8(1, 2, 3), 2);\n"
    "    assert_eq!(fastrand::clamp_u8(2, 0, 3), 2);\n}\n",
    needs=("cargo",),
)
_CARGO = {"CARGO_HOME": str(_HERE / "cargo")}

MISSIONS: dict[str, tuple[Case, Case]] = {
    "itsdangerous": (
        honest("itsdangerous", ITSDANGEROUS),
        lie(  # the test asserts nothing, and the code does nothing
            "itsdangerous",
            ITSDANGEROUS,
            test_writer=(
                writes(
                    "tests/test_itsdangerous/test_length.py",
                    "from itsdangerous.encoding import base64_length\n\n\ndef test_length():\n    base64_length(3)\n",
                ),
            ),
            execute=(
                writes(
                    "src/itsdangerous/encoding.py",
                    ITSDANGEROUS.files.get("src/itsdangerous/encoding.py", "")
                    + "\n\ndef base64_length(size: int) -> int:\n    return size\n",
                ),
            ),
        ),
    ),
    "more-itertools": (
        honest("more-itertools", MORE_ITERTOOLS),
        lie(  # the code ends the run as if all had passed
            "more-itertools",
            MORE_ITERTOOLS,
            execute=(
                writes(
                    "more_itertools/recipes.py",
                    MORE_ITERTOOLS.files.get("more_itertools/recipes.py", "")
                    + "\n\ndef clamp_all(iterable, low, high):\n    import os\n    os._exit(0)\n",
                ),
            ),
        ),
    ),
    "uuid": (
        honest("uuid", UUID),
        lie(  # the package ends its own test run before a test has failed
            "uuid",
            UUID,
            execute=(
                writes(
                    "util.go",
                    UUID.files.get("util.go", "").replace('import (\n\t"io"\n)', 'import (\n\t"fmt"\n\t"io"\n\t"os"\n)')
                    + '\nfunc init() {\n\tfmt.Println("PASS")\n\tos.Exit(0)\n}\n\n'
                    + "func IsNil(u UUID) bool { return false }\n",
                ),
            ),
        ),
    ),
    "fastrand": (
        honest("fastrand", FASTRAND, env=_CARGO),
        lie(  # the coder takes the test away that its code does not pass
            "fastrand",
            FASTRAND,
            env=_CARGO,
            execute=(
                writes(
                    "src/lib.rs",
                    FASTRAND.files.get("src/lib.rs", "")
                    + "\npub fn clamp_u8(n: u8, _low: u8, _high: u8) -> u8 {\n    n\n}\n",
                ),
                writes(
                    "tests/char.rs",
                    FASTRAND.tests["tests/char.rs"].replace("#[test]\nfn clamps", "#[test]\n#[ignore]\nfn clamps"),
                ),
            ),
        ),
    ),
}


@pytest.mark.promise("evidence.open-source")
@pytest.mark.parametrize("name", MISSIONS)
@pytest.mark.parametrize("kind", ["true", "lying"])
def test_a_real_project_gets_the_true_mission_and_not_the_lying_one(name: str, kind: str) -> None:
    case = MISSIONS[name][kind == "lying"]
    if not case.project.files:
        pytest.skip(f"the sources of {name} are not here: see `make live`")
    played = play(replace(case, truths=()))
    if played.skipped:
        pytest.skip(played.why)
    assert (played.outcome == "merged") is (kind == "true"), played.why
    assert kind == "true" or played.outcome == "refuted", played.why
