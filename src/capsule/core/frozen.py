"""Find the files that judge the code and are frozen while it is written: more than the obvious test files.

A coder who must not change a test may try to change what runs it. So these count as tests, too: what the runner
collected, its configuration, snapshots and golden files, helpers that only tests use, every script that the test
command reaches, any number of steps away, and modules that would stand in for the runner or the standard library.
Shared files count by the part that speaks to the runner (`runner_parts`), tests inside of sources by their own text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from capsule.core.detection import JUSTFILES, MAKEFILES, TASKFILES, TreeFiles
from capsule.core.globs import is_test, taken_out
from capsule.core.manifests import is_manifest
from capsule.core.runner_parts import changes_tests, is_shared, only_for_tests, rules_of, runner_part, scripts_of
from capsule.core.syntax import parse

CONFIGURATION = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", ".coveragerc", "noxfile.py"),
    *("jest.config.*", "jest.setup.*", "vitest.*.[cm][jt]s", "vitest.*.[jt]s", ".mocharc*", ".taprc", "ava.config.*"),
    *("karma.conf.*", "playwright.config.*", "cypress.config.*", ".nycrc*", ".c8rc*", "go.work", "nextest.toml"),
    *(".rspec", "phpunit*.xml*", "CTestCustom.*", "CTestConfig.*", "*.runsettings", "testng.xml"),
)
"""What configures a test runner and nothing else, in any project."""
SNAPSHOTS = (
    *(
        "**/__snapshots__/**",
        "**/__fixtures__/**",
        "**/golden/**",
        "**/goldens/**",
        "**/testdata/**",
        "**/cassettes/**",
    ),
    *("*.snap", "*.golden", "*.approved.*"),
)
"""Files that tests compare with."""
TEST_FILE = "a test file"
_VENDORED = r"(?:^|/)(?:vendor|_vendor|vendored|third_party|node_modules|bower_components)/"


def is_vendored(path: str) -> bool:
    """Tell whether a path belongs to third-party code that is kept in the project."""
    return re.search(_VENDORED, path) is not None


class Judges:
    """What judges the code of a tree, as it was when its tests were approved (`before`)."""

    def __init__(
        self,
        globs: Sequence[str],
        command: str,
        before: TreeFiles,
        now: TreeFiles,
        collected: Collection[str] = (),
    ) -> None:
        """`collected` are the origins of tests as their runner names them, before and on the base."""
        self._globs = (*globs, *CONFIGURATION, *SNAPSHOTS)
        self._command, self._before, self._now = command, before, now
        self._collected = frozenset(collected) & before.files

    def why_frozen(self, path: str) -> str:
        """Say why a coder must not change a path; '' if it may change."""
        why = self._why_test(path) or self._why_stand_in(path)
        if not why and path in self._before.files and self.is_source(path):
            before, now = (inner_tests(path, here.read(path)) for here in (self._before, self._now))
            why = "" if all(each in now for each in before) else "tests in it"
        return why or ("only tests use it" if path in self._before.files and self._only_tests_use(path) else "")

    def is_for_tests(self, path: str) -> bool:
        """Tell whether a test-writer may change a path."""
        if self._why_stand_in(path):
            return False
        texts = self._before.read(path), self._now.read(path)
        if self._why_test(path) or only_for_tests(path, *texts) or self._only_tests_use(path):
            return True
        inside = [inner_tests(path, text) for text in texts]
        return inside[0] != inside[1] and sources_alone(path, texts[0]) == sources_alone(path, texts[1])

    def is_source(self, path: str) -> bool:
        """Tell whether a path holds both tests and code, so that a list of changed files says little."""
        return path.endswith(".rs") or (path in self._collected and not self._is_file_of_tests(path))

    def _why_test(self, path: str) -> str:
        if taken_out(path, self._globs):
            return ""
        if is_test(path, self._globs) and (path in self._collected or not is_vendored(path)):
            return TEST_FILE
        if self._is_file_of_tests(path):
            return "the test runner collects it"
        apart = is_shared(path) or is_manifest(path) or path.endswith((".md", ".rst"))
        if path in self._reach.files and not apart:
            return "the test command runs it"
        return "it speaks to the test runner" if self._changes_tests(path) else ""

    def _is_file_of_tests(self, path: str) -> bool:
        """Tell a file of tests that the runner collected from a source with tests inside."""
        return path in self._collected and not path.endswith(".rs") and not self._used_by_sources(path)

    def _changes_tests(self, path: str) -> bool:
        if not is_shared(path):
            return False
        name = path.rpartition("/")[2]
        if name in MAKEFILES and not {"make", "gmake", "MAKE"} & self._reach.words:
            return False
        if name == "go.mod" and path not in self._before.files:  # it takes its folder out of the module around it
            folder = path.removesuffix("go.mod")
            return any(each.startswith(folder) and each.endswith("_test.go") for each in self._before.files)
        return changes_tests(path, self._before.read(path), self._now.read(path), self._reach.words)

    def _only_tests_use(self, path: str) -> bool:
        """Tell whether test files name a file, no source does, and it is made for tests."""
        here = self._before if path in self._before.files else self._now
        if taken_out(path, self._globs) or is_vendored(path) or not _made_for_tests(path, here.read(path)):
            return False
        tests, _ = self._texts_before if here is self._before else self._texts_now
        return any(_names(text, path) for text in tests.values()) and not self._used_by_sources(path)

    def _used_by_sources(self, path: str) -> bool:
        _, sources = self._texts_before if path in self._before.files else self._texts_now
        return any(_names(text, path) for each, text in sources.items() if each != path)

    @cached_property
    def _texts_before(self) -> tuple[dict[str, str], dict[str, str]]:
        return self._texts(self._before)

    @cached_property
    def _texts_now(self) -> tuple[dict[str, str], dict[str, str]]:
        return self._texts(self._now)

    def _texts(self, here: TreeFiles) -> tuple[dict[str, str], dict[str, str]]:
        """Read the code of a tree: that of tests, and all other."""
        code = sorted(path for path in here.files if path.endswith(_CODE) and not is_vendored(path))
        tests = [path for path in code if self._looks_like_test(path)][:_MOST_READ]
        others = [path for path in code if not self._looks_like_test(path)][:_MOST_READ]
        return {path: here.read(path) for path in tests}, {path: here.read(path) for path in others}

    def _looks_like_test(self, path: str) -> bool:
        return path in self._collected or is_test(path, self._globs)

    def _why_stand_in(self, path: str) -> str:
        """Name the module that a new file would shadow: folders on the path come before installed packages."""
        if re.search(r"(?:^|/)[^/]+\.(?:dist-info|egg-info)/|\.pth$", path):
            return "it registers itself with Python"
        folder, _, name = path.rpartition("/")
        stem = name.partition(".")[0] if name.endswith((".py", ".so", ".pyd", ".pyc")) else ""
        if name == "__init__.py":
            folder, _, stem = folder.rpartition("/")
        suspect = stem in _NEVER_OURS or (stem in _STANDARD and path not in self._before.files)
        return f"it stands in for {stem}" if suspect and self._on_the_path(folder) else ""

    def _on_the_path(self, folder: str) -> bool:
        """Tell whether Python looks for modules in a folder: where it starts, and where test files lie."""
        if folder in ("", "src", "lib") or f"{folder}/" in self._reach.folders:
            return True
        package = f"{folder}/__init__.py" in self._before.files
        return not package and any(each.rpartition("/")[0] == folder for each in self._texts_before[0])

    @cached_property
    def _reach(self) -> Reach:
        """Follow the test command before and now: a file may become a script of it by being added."""
        old, new = reach(self._command, self._before), reach(self._command, self._now, named=False)
        return Reach(old.files | new.files, old.words | new.words, old.folders | new.folders)


_MOST_READ = 3000
_RUNNER_MODULES = (
    "pytest _pytest pluggy iniconfig packaging exceptiongroup tomli coverage xdist pygments nose nose2 mock"
)
_NEVER_OURS = frozenset(("unittest", "pytest", "_pytest", "pluggy", "sitecustomize", "usercustomize"))
_STANDARD = frozenset((*sys.stdlib_module_names, *_RUNNER_MODULES.split())) - {"__main__", "this", "test", "tests"}


# ---- what the test command reaches

_PROGRAMS = (
    r"(?:python[\d.]*|pypy[\d.]*|node|bun|deno|tsx|ts-node|ruby|perl|php|sh|bash|dash|zsh|ksh|source|exec|env|time|\.)"
)
_RUN = rf"(?m)(?:^|[\s;&|(`\"'@/-])(?:{_PROGRAMS}\s+(?:-[^m\s]\S*\s+|run\s+|\w+=\S+\s+)*)([\w./+-]+)"
_STARTED = r"(?m)(?:^|[;&|(`@]|\b(?:then|do|else|exec)\b)[ \t]*(?:\w+=\S*[ \t]+)*([\w./+-]+)"
_MODULE = r"\bpython[\d.]*\s+(?:-\w+\s+)*-m\s*([\w.]+)"
_CHANGED_FOLDER = r"(?:\b(?:cd|pushd)|\s-C|--prefix|--directory|--cwd)[\s=]+[\"']?([\w./-]+)"
_CODE = (
    *(".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".go", ".rs", ".java", ".kt", ".rb", ".php"),
    *(".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cs", ".swift", ".scala", ".ex", ".exs", ".pl"),
)
_FOLLOWED = 200_000
"""The longest text that is looked through for further scripts."""


class Reach(NamedTuple):
    """Everything that a command reaches."""

    files: frozenset[str]
    """The files that it runs, directly or indirectly."""
    words: frozenset[str]
    """All words of the commands on the way."""
    folders: frozenset[str]
    """The folders that it changes into: each ends with a slash, the top is empty."""
    text: str = ""
    """The command and all that it reaches by make, npm and scripts, one below the other."""


def reach(command: str, tree: TreeFiles, *, named: bool = True) -> Reach:
    """Follow a command from script to script, until nothing is added.

    Code counts if it is run; as an argument of a compiler or a linter it is the subject, not the judge. Other files
    count where they are run, where the command itself names them (unless `named` is false), and where they are settings
    or scripts by their name.
    """
    texts = {"": command}
    while True:
        joined = "\n".join(texts.values())
        words = {*_words(joined)}
        gone_to = {each.strip("/").removeprefix("./") for each in re.findall(_CHANGED_FOLDER, joined)} - {"", ".", ".."}
        folders = {"", *(f"{each}/" for each in gone_to)}
        wanted = {word.removeprefix("./") for form in (_RUN, _STARTED) for word in re.findall(form, joined)}
        modules = [module.replace(".", "/") for module in re.findall(_MODULE, joined)]
        wanted |= {f"{module}{end}" for module in modules for end in (".py", "/__main__.py")}
        wanted |= {name for program, names in _READ_BY.items() if program in words for name in names}
        wanted |= {word for word in words if re.search(_SETTINGS, word)}
        commands = [text for path, text in texts.items() if named and path.rpartition("/")[2] in _COMMANDS]
        wanted |= {word for text in commands for word in _words(text) if not word.endswith(_CODE)}
        found = {folder + word for folder in folders for word in wanted} & tree.files
        after = {"": command, **{path: _followed(path, tree.read(path), words) for path in sorted(found)}}
        if after == texts:
            return Reach(frozenset(found), frozenset(words), frozenset(folders), joined)
        texts = after


_SETTINGS = r"\.(?:sh|bash|zsh|mk|mak|rc|cfg|ini|conf|toml|ya?ml|env|bat|ps1)$"
_COMMANDS = ("", "package.json", *MAKEFILES)
"""Texts that hold only commands: typed ones, npm scripts, recipes."""
_READ_BY = {
    # The files that a program reads without being told to.
    **dict.fromkeys(("make", "gmake", "MAKE"), MAKEFILES),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun", "npx"), ("package.json", ".npmrc", ".yarnrc", ".yarnrc.yml")),
    "pnpm": ("package.json", ".npmrc", ".pnpmfile.cjs"),
    "tox": ("tox.ini", "pyproject.toml"),
    "nox": ("noxfile.py",),
    "just": JUSTFILES,
    "task": TASKFILES,
    "rake": ("Rakefile",),
    "deno": ("deno.json", "deno.jsonc"),
    "composer": ("composer.json",),
}


def _followed(path: str, text: str, words: Collection[str]) -> str:
    """Return the part of a file that may name further scripts."""
    name = path.rpartition("/")[2]
    if len(text) > _FOLLOWED:
        return ""
    if name in MAKEFILES:
        recipes = (re.split(r"[;\n]", rule, maxsplit=1)[1] for rule in rules_of(text, words).values())
        rules = "\n".join(re.sub(r"(?m)^\t[-@+]*", "", recipe) for recipe in recipes)
        return "\n".join((rules, *re.findall(r"(?m)^\s*-?s?include\s+[^\n]*|^[\w.]+\s*[:?+]?=[^\n]*", text)))
    if name in ("package.json", "composer.json"):
        scripts = scripts_of(text, words) if name == "package.json" else runner_part(path, text, words)
        return "\n".join(map(str, scripts.values()))
    if name.endswith((".md", ".rst", ".txt", ".lock", ".html", ".svg")) or is_manifest(path):
        return ""
    if name.endswith((".py", ".js", ".mjs", ".cjs", ".ts")):  # what it starts, it names in quotes
        return "\n".join(f"sh {word}" for word in re.findall(r"[\"']([\w./-]+\.\w+)[\"']", text))
    return re.sub(r"(?m)^\s*#.*$", "", text)


def _words(text: str) -> list[str]:
    """Split a command into words that may be paths."""
    return [word.removeprefix("./") for word in re.split(r"[\s;&|()<>{}`\"'=,$]+", text) if word]


# ---- what only tests use

_DATA = (
    ".txt",
    ".json",
    ".yaml",
    ".yml",
    ".csv",
    ".tsv",
    ".xml",
    ".out",
    ".expected",
    ".dat",
    ".bin",
    ".golden",
    ".stdout",
)
_FRAMEWORKS = (
    r"(?m)^\s*(?:import|from)\s+(?:pytest|unittest|hypothesis|nose2?|testtools)\b"
    r"|(?:require\(|from\s+)[\"'](?:node:test|chai|vitest|@jest/|sinon|@testing-library/|expect\b)"
    r"|^\s*(?:\w+\s+)?\"testing\"$|stretchr/testify|org\.junit|^\s*use\s+proptest\b"
)
_ASSERTION = r"\bassert\w*\b|\bexpect\(|\braise\s+AssertionError|\bAssertionError\("
_FUNCTION = r"(?m)^[ \t]*(?:async\s+)?def \w+|^\s*(?:export\s+)?(?:async\s+)?function\s+\w+|\bexports\.\w+\s*="


def _made_for_tests(path: str, text: str) -> bool:
    """Tell whether a file is a test helper, not code: it asserts in every function or needs a test framework."""
    if path.endswith(_DATA):
        return not is_manifest(path)
    if not path.endswith(_CODE):
        return False
    if re.search(_FRAMEWORKS, text):
        return True
    starts = [found.start() for found in re.finditer(_FUNCTION, text)]
    pieces = [text[start:end] for start, end in pairwise((*starts, len(text)))]
    return bool(pieces) and all(re.search(_ASSERTION, piece) for piece in pieces)


def _names(text: str, wanted: str) -> bool:
    """Tell whether the text of one file imports another, or has its name in quotes."""
    folder, _, name = wanted.rpartition("/")
    stem = name.rpartition(".")[0]
    if wanted.endswith(_DATA):
        return name in text
    if wanted.endswith(".go"):
        return f'{folder.rpartition("/")[2]}"' in text and "import" in text
    if wanted.endswith(".py"):
        stem = folder.rpartition("/")[2] if stem == "__init__" else stem
        return (
            re.search(
                rf"(?m)^\s*(?:from\s+[\w.]*\b{re.escape(stem)}\s+import|import\s+[^\n#]*\b{re.escape(stem)}\b"
                rf"|from\s+[\w.]+\s+import\s+[^\n#]*\b{re.escape(stem)}\b)",
                text,
            )
            is not None
        )
    return re.search(rf"[\"'][^\"'\n]*\b{re.escape(stem)}(?:\.\w+)?[\"']", text) is not None


# ---- tests inside of sources


def inner_tests(path: str, text: str) -> list[str]:
    """Return the tests inside of a source file, with blanks folded."""
    if path.endswith(".rs"):
        source = text.encode()
        return [*_fenced(text)] + [
            " ".join(source[start:end].decode(errors="replace").split()) for start, end in sorted(_rust_tests(source))
        ]
    if path.endswith(".py"):
        examples = re.findall(r"(?m)^[ \t]*>>> [^\n]*(?:\n[ \t]*(?!>>>|\"\"\"|''')\S[^\n]*)*", text)
        functions = re.findall(
            r"(?m)^(?:@[^\n]*\n)*(?:async )?def test_\w*[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", text
        )
        return [" ".join(each.split()) for each in (*examples, *functions)]
    return []


def is_in_tests(path: str, source: bytes, at: int) -> bool:
    """Tell whether a definition in a source belongs to its inner tests."""
    return path.endswith(".rs") and any(start <= at < end for start, end in _rust_tests(source))


def sources_alone(path: str, text: str) -> str:
    """Return a source without its inner tests, blanks folded."""
    if not path.endswith(".rs"):
        return text
    source, rest, at = text.encode(), b"", 0
    for start, end in sorted(_rust_tests(source)):
        rest, at = rest + source[at:start] + b" ", end
    return " ".join((rest + source[at:]).decode(errors="replace").split())


def _fenced(text: str) -> Iterator[str]:
    """Find the examples in the comments of a Rust source, which run as tests."""
    comments = "\n".join(found[1] for found in re.finditer(r"(?m)^\s*//[/!] ?(.*)$", text))
    for example in re.findall(r"(?ms)^```[^\n]*\n.*?^```$", comments):
        yield " ".join(example.split())


_RUST_TEST = rb"(?s)#\[(?:cfg\(.*\btest\b.*|(?:\w+::)*test\b.*|rstest.*)\]"


def _rust_tests(source: bytes) -> Iterator[tuple[int, int]]:
    """Find the items that exist for tests only: from their first attribute to their end."""
    root = parse("lib.rs", source)
    waiting = [root] if root else []
    while waiting:
        node, start, tested = waiting.pop(), -1, False
        inner = []
        for child in node.named_children:
            if child.type == "attribute_item":
                start = child.start_byte if start < 0 else start
                tested = tested or re.fullmatch(_RUST_TEST, source[child.start_byte : child.end_byte]) is not None
                continue
            if child.type.endswith("comment"):
                continue
            if tested:
                yield start, child.end_byte
            else:
                inner.append(child)
            start, tested = -1, False
        waiting += reversed([child for child in inner if child.type in ("mod_item", "declaration_list", "impl_item")])
