"""Find how a project runs its tests, by its files at the top or in the folders below.

An ecosystem is a row: which files mark it, with which command its tests run, and what test files are called there. A
project's own settings come before any of them. Where the top is no project, the topmost folders that are one are
tested one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

Reader = Callable[[str], str]
"""The text of a file in the base; '' if it does not exist."""


class TreeFiles(NamedTuple):
    """The files of a tree, or of one folder in it as if there were nothing else."""

    files: frozenset[str]
    read: Reader

    def has_match(self, pattern: str) -> bool:
        """Tell whether a path matches from its beginning to its end."""
        return any(re.fullmatch(pattern, name) for name in self.files)


class Ecosystem(NamedTuple):
    name: str
    command: Callable[[TreeFiles], str]
    """Return the command that runs the tests of a folder; '' if it is not of this kind."""
    globs: tuple[str, ...]
    """Globs of test files and of what belongs to them."""
    program: str = ""
    """The first words of its commands."""
    tests_in_sources: bool = False


class Detection(NamedTuple):
    """The command that was found, and which files are tests; an empty command if nothing was found."""

    command: str = ""
    globs: tuple[str, ...] = ()
    tests_in_sources: bool = False


MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which make looks for them."""
JUSTFILES = ("justfile", "Justfile", ".justfile")
TASKFILES = ("Taskfile.yml", "Taskfile.yaml")
_PYTHON_TESTS = ("test_*.py", "*_test.py", "tests.py", "**/tests/**", "**/test/**", "**/Tests/**")
_NODE_TESTS = (
    *("*.test.*", "*.spec.*", "test-*.[cm]js", "test-*.[jt]s", "*[-_]test.[cm]js", "*[-_]test.[jt]s", "test.[cm]js"),
    *("test.[jt]s", "**/__tests__/**", "**/__mocks__/**", "**/test/**", "**/tests/**", "**/spec/**"),
)
_JVM_TESTS = ("**/src/test/**", "**/src/*Test/**", "**/src/it/**")
_OTHER_TESTS = (*_PYTHON_TESTS, *_NODE_TESTS, *_JVM_TESTS, "*_test.*", "**/testdata/**", "*_spec.rb")
"""The test globs of a task runner that does not name what it runs."""


def _pytest(folder: TreeFiles) -> str:
    read = folder.read
    configured = (
        not {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}.isdisjoint(folder.files)
        or "[tool.pytest" in read("pyproject.toml")
        or "[tool:pytest]" in read("setup.cfg")
        or re.search(r"(?m)^\[pytest\]", read("tox.ini"))
        or any(name.endswith("conftest.py") for name in _python_files(folder))
    )
    tests = [name for name in _python_files(folder) if re.fullmatch(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py", name)]
    written = any(re.search(_FOR_PYTEST, read(name)) for name in tests[:_MOST_READ])
    return "python3 -m pytest -q" if configured or written else ""


_MOST_READ = 20
_FOR_PYTEST = r"(?m)^(?:import pytest\b|from pytest\b|(?:async )?def test_)"
"""The tests are functions or import pytest, so unittest would find nothing."""
_PYTHON_MANIFEST = r"pyproject\.toml|setup\.(?:py|cfg)|tox\.ini|[^/]*requirements[^/]*\.txt|Pipfile"


def _python_files(folder: TreeFiles) -> Iterator[str]:
    """List Python files that belong to this folder, not to a project of their own further down."""
    manifest = folder.has_match(_PYTHON_MANIFEST)
    for name in sorted(folder.files):
        first = name.partition("/")[0]
        ours = manifest or first in (name, "tests", "test", "src") or f"{first}/__init__.py" in folder.files
        if name.endswith(".py") and ours:
            yield name


def _unittest(folder: TreeFiles) -> str:
    """Return a command that starts in a test folder, where that is no package: unittest enters nothing but packages."""
    tests = [name for name in folder.files if re.fullmatch(r"(?:.*/)?test[^/]*\.py", name)]
    for start in ("tests", "test", "Tests"):
        loose = f"{start}/__init__.py" not in folder.files
        if loose and any(name.startswith(f"{start}/test") and name.count("/") == 1 for name in tests):
            return f"python3 -m unittest discover -s {start}"
    for name in tests:
        parts = name.split("/")[:-1]
        if all(f"{'/'.join(parts[: n + 1])}/__init__.py" in folder.files for n in range(len(parts))):
            return "python3 -m unittest discover"
    return ""


def _npm(folder: TreeFiles) -> str:
    manifest = _parsed(folder.read("package.json"))
    if re.search(_NPM_TEST, _script(manifest)):
        return "yarn test" if ".pnp.cjs" in folder.files else "npm test"
    packages = [name for name in folder.files if name.endswith("/package.json") and "node_modules/" not in name]
    if manifest.get("workspaces") and any(re.search(_NPM_TEST, _script(_parsed(folder.read(p)))) for p in packages):
        return "npm test --workspaces --if-present"
    return ""


def _node(folder: TreeFiles) -> str:
    """Return the runner for tests that no script runs: an installed one, or node's own."""
    manifest = _parsed(folder.read("package.json"))
    tests = sorted(name for name in _node_files(folder, manifest) if re.fullmatch(_NODE_FILES, name))
    if any(re.search(_FOR_NODE, folder.read(name)) for name in tests[:_MOST_READ]):
        return "node --test"
    installed = {name for key in ("dependencies", "devDependencies") for name in _table(manifest, key)}
    return next((command for name, command in _INSTALLED.items() if tests and name in installed), "")


def _node_files(folder: TreeFiles, manifest: dict[str, Any]) -> Iterator[str]:
    """List files that belong to this package: those of its workspaces too, but not those of a package further down."""
    below = (
        ()
        if manifest.get("workspaces")
        else tuple(name.removesuffix("package.json") for name in folder.files if name.endswith("/package.json"))
    )
    own = "package.json" in folder.files
    for name in folder.files:
        ours = own or name.partition("/")[0] in (name, "test", "tests", "__tests__", "src", "lib")
        if ours and not name.startswith(below) and "node_modules/" not in name:
            yield name


_INSTALLED = {"vitest": "npx --no vitest run", "jest": "npx --no jest", "mocha": "npx --no mocha"}
_NODE_FILES = (
    r"(?:.*/)?(?:[^/]*[.\-_](?:test|spec)|test-[^/]*|test)\.[cm]?[jt]sx?|(?:.*/)?(?:test|__tests__)/.*\.[cm]?[jt]sx?"
)
_FOR_NODE = r"(?:\brequire\(|\bfrom\s*|\bimport\s*)[\"']node:test[\"']"
_NPM_TEST = r"^(?!echo \"Error: no test)\s*\S"


def _script(manifest: dict[str, Any]) -> str:
    return str(_table(manifest, "scripts").get("test", ""))


def _table(manifest: dict[str, Any], key: str) -> dict[str, Any]:
    found = manifest.get(key)
    return found if isinstance(found, dict) else {}


def _parsed(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _deno(folder: TreeFiles) -> str:
    text = folder.read("deno.json") or folder.read("deno.jsonc")
    plain = re.sub(r"(?m)^\s*//.*$", "", text)
    return "deno task test" if "test" in _table(_parsed(plain), "tasks") else "deno test" if text else ""


def _cargo(folder: TreeFiles) -> str:
    """Return a command for all members: in a package that is also a workspace, cargo would test that package alone."""
    text = folder.read("Cargo.toml")
    both = all(re.search(rf"(?m)^\[{table}\]", text) for table in ("workspace", "package"))
    return f"cargo test{' --workspace' if both else ''}" if "Cargo.toml" in folder.files else ""


def _maven(folder: TreeFiles) -> str:
    if "pom.xml" not in folder.files:
        return ""
    return "./mvnw -B test" if "mvnw" in folder.files else "mvn -B test"


def _gradle(folder: TreeFiles) -> str:
    if not folder.has_match(r"(?:build|settings)\.gradle(?:\.kts)?"):
        return ""
    return f"{'./gradlew' if 'gradlew' in folder.files else 'gradle'} --no-daemon test"


def _ruby(folder: TreeFiles) -> str:
    start = "bundle exec " if "Gemfile" in folder.files else ""
    if folder.has_match(r"spec/.*_spec\.rb"):
        return f"{start}rspec"
    return f"{start}rake test" if "Rakefile" in folder.files and folder.has_match(r"test/.*\.rb") else ""


def _php(folder: TreeFiles) -> str:
    manifest = _parsed(folder.read("composer.json"))
    if _script(manifest):
        return "composer test"
    if "pestphp/pest" in _table(manifest, "require-dev"):
        return "vendor/bin/pest"
    if "composer.json" in folder.files and folder.has_match(r"phpunit\.(?:dist\.)?xml(?:\.dist)?"):
        return "vendor/bin/phpunit"
    written = "phpunit/phpunit" in _table(manifest, "require-dev") and folder.has_match(r"tests/.*Test\.php")
    return "vendor/bin/phpunit tests" if written else ""


def _dotnet(folder: TreeFiles) -> str:
    """Return a command for what lies at the top, or for the test projects in a folder of their own."""
    projects = sorted(name for name in folder.files if re.search(r"\.(?:cs|fs|vb)proj$", name))
    tested = [name for name in projects if re.search(r"Microsoft\.NET\.Test\.Sdk|MSTest\.Sdk", folder.read(name))]
    if tested and folder.has_match(r"[^/]+\.(?:sln|slnx|csproj|fsproj|vbproj)"):
        return "dotnet test"
    below = [name for name in tested if re.fullmatch(r"(?i)tests?/[^/]+/[^/]+", name)]
    return " && ".join(f"dotnet test {_quoted(name)}" for name in below)


def _marked_by(name: str, command: str) -> Callable[[TreeFiles], str]:
    return lambda folder: command if name in folder.files else ""


def _where(names: Sequence[str], pattern: str, command: str) -> Callable[[TreeFiles], str]:
    """Return the command for folders where the first existing one of these files matches."""
    return lambda folder: command if re.search(pattern, next(filter(None, map(folder.read, names)), "")) else ""


_MAKE_TEST = r"(?m)^(?:[^\s:#=]+ +)*test(?: +[^\s:#=]+)* *:(?!=)"
_JUST_TEST = r"(?m)^@?test(?: [^:\n]*)?:(?!=)"
_TASK_TEST = r"(?m)^tasks:\n(?:[ \t#].*\n|\n)*? +test:"
_CMAKE_TEST = r"(?im)^\s*(?:enable_testing|include)\s*\(\s*(?:CTest)?\s*\)"
_CTEST = "cmake -S . -B build && cmake --build build && ctest --test-dir build --output-on-failure"
_C_TESTS = ("**/tests/**", "**/test/**", "*_test.*", "test_*.*", "*_tests.*")


ECOSYSTEMS: tuple[Ecosystem, ...] = (
    Ecosystem("pytest", _pytest, _PYTHON_TESTS, "pytest"),
    Ecosystem("go", _marked_by("go.mod", "go test ./..."), ("*_test.go", "**/testdata/**"), "go"),
    Ecosystem("cargo", _cargo, ("**/tests/**",), "cargo", tests_in_sources=True),
    Ecosystem("npm", _npm, _NODE_TESTS, "npm"),
    Ecosystem("node", _node, _NODE_TESTS, "node"),
    Ecosystem("deno", _deno, (*_NODE_TESTS, "*_test.*"), "deno"),
    Ecosystem("maven", _maven, _JVM_TESTS, "mvn"),
    Ecosystem("gradle", _gradle, _JVM_TESTS, "gradle"),
    Ecosystem("mix", _marked_by("mix.exs", "mix test"), ("**/test/**", "*_test.exs"), "mix"),
    Ecosystem("ruby", _ruby, ("**/spec/**", "**/test/**", "*_spec.rb", "*_test.rb"), "bundle"),
    Ecosystem("php", _php, ("**/tests/**", "**/test/**", "*Test.php"), "composer"),
    Ecosystem("dotnet", _dotnet, ("*Tests.cs", "*Test.cs", "**/*.Tests/**", "**/*.Test/**", "**/tests/**"), "dotnet"),
    Ecosystem("make", _where(MAKEFILES, _MAKE_TEST, "make test"), _OTHER_TESTS, "make"),
    Ecosystem("just", _where(JUSTFILES, _JUST_TEST, "just test"), _OTHER_TESTS, "just"),
    Ecosystem("task", _where(TASKFILES, _TASK_TEST, "task test"), _OTHER_TESTS, "task"),
    Ecosystem("ctest", _where(("CMakeLists.txt",), _CMAKE_TEST, _CTEST), _C_TESTS, "ctest"),
    Ecosystem(
        "django", _where(("manage.py",), "DJANGO_SETTINGS_MODULE", "python3 manage.py test"), _PYTHON_TESTS, "manage.py"
    ),
    Ecosystem("unittest", _unittest, _PYTHON_TESTS),
)
ANY_TESTS = tuple(dict.fromkeys(glob for row in ECOSYSTEMS for glob in row.globs))
_DEEPEST = 3
_NOT_OURS = (
    r"(?i)(?:^|/)(?:\.[^/]*|node_modules|vendor|third_party|external|testdata|fixtures?|examples?|samples?|templates?|docs?"
    r"|tests?|spec|benchmarks?|target|dist|build)(?:/|$)"
)


def detect(tree: TreeFiles) -> Detection:
    """Return how the tests of a tree are run: those at the top, else those of the topmost folders with any."""
    found = list(_found(tree))
    if not found:
        return Detection()
    commands = [f"cd {_quoted(folder)} && {command}" if folder else command for folder, _, command in found]
    joined = " && ".join(f"({command})" for command in commands) if len(commands) > 1 else commands[0]
    rows = [row for _, row, _ in found]
    globs = tuple(dict.fromkeys(glob for row in rows for glob in row.globs))
    return Detection(joined, globs, any(row.tests_in_sources for row in rows))


def _found(tree: TreeFiles) -> Iterator[tuple[str, Ecosystem, str]]:
    """Find the projects: folder, ecosystem and command of each."""
    inside: dict[str, set[str]] = {"": {*tree.files}}
    for path in tree.files:
        parts = path.split("/")
        for depth in range(1, min(len(parts), _DEEPEST + 1)):
            inside.setdefault("/".join(parts[:depth]), set()).add("/".join(parts[depth:]))
    taken: list[str] = []
    for name in sorted(inside, key=lambda name: (name.count("/") if name else -1, name)):
        if re.search(_NOT_OURS, name) or any(not top or name.startswith(f"{top}/") for top in taken):
            continue
        folder = TreeFiles(frozenset(inside[name]), _below(name, tree.read) if name else tree.read)
        row = next(((row, command) for row in ECOSYSTEMS if (command := row.command(folder))), None)
        if row:
            taken.append(name)
            yield name, *row


def _below(folder: str, read: Reader) -> Reader:
    return lambda path: read(f"{folder}/{path}")


def _quoted(folder: str) -> str:
    return folder if re.fullmatch(r"[\w./-]+", folder) else "'" + folder.replace("'", "'\\''") + "'"


def globs_for(command: str, tree: TreeFiles) -> tuple[tuple[str, ...], bool]:
    """Return test globs for a command given in the settings, and whether tests live inside source files."""
    words = re.split(r"[\s;&|()/]+", command)
    named = [row for row in ECOSYSTEMS if row.name in words or (row.program and row.program in words)]
    if named:
        globs = tuple(dict.fromkeys(glob for row in named for glob in row.globs))
        return globs, any(row.tests_in_sources for row in named)
    found = detect(tree)
    return (found.globs, found.tests_in_sources) if found.command else (ANY_TESTS, False)


_RUNNERS = r"(?:^|[;&|]\s*)((?:uv|poetry|pdm|pipenv|hatch|rye)\s+run)\s"
_PYTHON = r"(?:^|[\s;&|(])((?:[\w./~-]+/)?(?:python|pypy)[\d.]*)(?=\s|$)"
_BESIDE = r"(?:^|[\s;&|(])([\w./~-]+/)(?:pytest|py\.test|tox|nox)(?=\s|$)"


def interpreter_of(command: str) -> str:
    """Return the words that start it: as in the command, next to its test runner, or the one on the PATH."""
    if runner := re.search(_RUNNERS, command):
        return f"{runner[1]} python"
    if named := re.search(_PYTHON, command):
        return named[1]
    if beside := re.search(_BESIDE, command):
        return f"{beside[1]}python"
    return "$(command -v python3 || command -v python)"
