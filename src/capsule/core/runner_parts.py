"""Read the parts of shared files that configure tests: a coder may change the rest, a test-writer only these.

`pyproject.toml`, `package.json`, `Makefile` and others hold much that has nothing to do with tests. A row per file name
says which part configures the runner. Two versions change the tests if that part differs. If a file cannot be read, all
of it counts, so that a change is noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from capsule.core.detection import MAKEFILES
from capsule.core.manifests import ini_of, is_manifest, toml_of

Words = Collection[str]
"""All words of the test command and of the scripts that it reaches."""
Part = Mapping[str, Any]
_ALL = "all of it"
_GROWS = "+ "
"""Prefix of a list that may grow, such as the members of a workspace."""
PartReader = Callable[[str, Words], Part]
_PARTS: dict[str, PartReader] = {}
"""By file name pattern: the reader of the part for the test runner."""


def _part_of(names: str) -> Callable[[PartReader], PartReader]:
    """Enrol a reader for the files with these names."""

    def enrol(reader: PartReader) -> PartReader:
        _PARTS[rf"(?s)(?:.*/)?(?:{names})"] = reader
        return reader

    return enrol


def _reader(path: str) -> PartReader | None:
    return next((reader for names, reader in _PARTS.items() if re.fullmatch(names, path)), None)


def is_shared(path: str) -> bool:
    """Tell whether a file is compared by its part."""
    return _reader(path) is not None


def changes_tests(path: str, before: str, after: str, words: Words = ()) -> bool:
    """Tell whether two versions of a shared file configure the test runner differently."""
    old, new = (runner_part(path, text, words) for text in (before, after))
    for name in {*old, *new}:
        was, now = old.get(name), new.get(name)
        grown = was is None or (isinstance(was, list) and isinstance(now, list) and all(each in now for each in was))
        if was != now and not (name.startswith(_GROWS) and grown):
            return True
    return False


def runner_part(path: str, text: str, words: Words = ()) -> Part:
    """Return the part of a shared file that configures the test runner; empty if there is none."""
    reader = _reader(path)
    if reader is None or not text.strip():
        return {}
    try:
        part = reader(text, words)
    except (ValueError, RecursionError):
        part = {_ALL: text}
    return {name: value for name, value in part.items() if value not in ({}, [], "", None)}


def only_for_tests(path: str, before: str, after: str) -> bool:
    """Tell whether two versions of a manifest differ only in test dependencies and runner settings."""
    name = path.rpartition("/")[2]
    if re.fullmatch(_LOCKS, name):
        return True
    if re.fullmatch(r"[^/]*requirements[^/]*\.txt", name):
        return re.search(r"test|dev", path) is not None
    reader = _RESTS.get(name)
    if reader is None or not is_manifest(path):
        return False
    try:
        return reader(before) == reader(after)
    except (ValueError, RecursionError):
        return False


_LOCKS = (
    r"package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|bun\.lockb?|go\.sum"
    r"|(?:yarn|poetry|uv|pdm|Pipfile|Cargo|Gemfile|composer|mix)\.lock"
)


# ---- Python


_TASK_RUNNERS = {"hatch": "hatch", "poe": "poethepoet", "pdm": "pdm", "taskipy": "task", "rye": "rye"}


@_part_of(r"pyproject\.toml")
def _pyproject(text: str, words: Words) -> Part:
    parsed = toml_of(text)
    tools = _table(parsed, "tool")
    part: dict[str, Any] = {key: tools[key] for key in tools if key.startswith(_TEST_TOOLS)}
    part["entry points"] = _path(parsed, "project", "entry-points", "pytest11")
    part["poetry's"] = _path(tools, "poetry", "plugins", "pytest11")
    for tool, program in _TASK_RUNNERS.items():
        if {tool, program} & {*words}:
            part[tool] = {key: tools[tool][key] for key in ("envs", "tasks", "scripts") if key in _table(tools, tool)}
    return part


_TEST_TOOLS = ("pytest", "tox", "coverage", "nox")
_TEST_GROUPS = r"(?i).*(?:test|dev|ci|lint|cover).*"


def _pyproject_rest(text: str) -> object:
    parsed = toml_of(text)
    tools = _table(parsed, "tool")
    for key in [key for key in tools if key.startswith(_TEST_TOOLS)]:
        del tools[key]
    parsed.pop("dependency-groups", None)
    optional = _table(_table(parsed, "project"), "optional-dependencies")
    groups = _table(_table(tools, "poetry"), "group")
    for table in (optional, groups):
        for key in [key for key in table if re.fullmatch(_TEST_GROUPS, key)]:
            del table[key]
    for tool in ("uv", "pdm", "poetry"):
        _table(tools, tool).pop("dev-dependencies", None)
    _table(tools, "hatch").pop("envs", None)
    return _pruned(parsed)


def _pruned(value: Any) -> Any:
    """Leave out tables that have become empty."""
    if not isinstance(value, dict):
        return value
    return {key: found for key, each in value.items() if (found := _pruned(each)) not in ({}, None)}


@_part_of(r"setup\.cfg|tox\.ini")
def _ini_part(text: str, words: Words) -> Part:
    sections = ini_of(text, strict=False, default_section="")
    of_tox = ("tox", "testenv") if "tox" in words else ()
    names = ("tool:pytest", "pytest", "coverage", "nosetests", "unittest", "aliases", *of_tox)
    part: dict[str, Any] = {name: found for name, found in sections.items() if name.startswith(names)}
    points = sections.get("options.entry_points", {})
    return part | {"entry points": {name: value for name, value in points.items() if "pytest11" in name}}


@_part_of(r"setup\.py")
def _setup_py(text: str, _: Words) -> Part:
    return {"plugins": re.findall(r"pytest11[\s\S]{0,400}|tests_require[^\n]*|test_suite[^\n]*", text)}


# ---- JavaScript

_NODE_RUNNERS = ("jest", "mocha", "vitest", "ava", "tap", "c8", "nyc", "tape", "karma", "wireit")


def _json(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("no object")  # noqa: TRY004 - it is read like a broken file
    return parsed


def scripts_of(text: str, words: Words) -> dict[str, str]:
    """Return the scripts of a package.json that the test command runs, and those that these run."""
    try:
        scripts = {name: str(value) for name, value in _table(_json(text), "scripts").items()}
    except (ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    waiting = [name for name in scripts if name == "test" or name in words]
    while waiting:
        name = waiting.pop()
        if name not in scripts or name in found:
            continue
        found[name] = scripts[name]
        waiting += [f"pre{name}", f"post{name}", *re.split(r"[^\w:./-]+", scripts[name])]
    return found


@_part_of(r"package\.json")
def _package_json(text: str, words: Words) -> Part:
    parsed = _json(text)
    part: dict[str, Any] = {f"scripts.{name}": value for name, value in scripts_of(text, words).items()}
    part |= {key: parsed[key] for key in _NODE_RUNNERS if key in parsed}
    return {**part, f"{_GROWS}workspaces": parsed.get("workspaces")}


def _package_json_rest(text: str) -> object:
    parsed = _json(text or "{}")
    scripts = {name: value for name, value in _table(parsed, "scripts").items() if "test" not in name}
    return _without(parsed, "devDependencies", "scripts", *_NODE_RUNNERS) | ({"scripts": scripts} if scripts else {})


_HARMLESS_FOR_NPM = (
    r"(?:@[^:]*:)?registry|//.*|save.*|engine-strict|fund|audit.*|loglevel|package-lock.*|legacy-peer-deps|strict-.*"
    r"|ca(?:file)?|cert|key|.*proxy|email|init[-.].*|auto-install-peers|hoist.*|public-hoist.*|shamefully.*|always-auth"
    r"|_auth.*|cache|color|progress|update-notifier|lockfile.*|prefer-.*|resolution-mode|tag.*|git-tag.*|message|sign.*"
)


@_part_of(r"\.npmrc")
def _npmrc(text: str, _: Words) -> Part:
    lines = (line.partition("=") for line in text.splitlines() if not re.match(r"\s*(?:[#;]|$)", line))
    pairs = {key.strip(): value.strip() for key, _, value in lines}
    return {key: value for key, value in pairs.items() if not re.fullmatch(_HARMLESS_FOR_NPM, key)}


@_part_of(r"deno\.jsonc?")
def _deno_json(text: str, words: Words) -> Part:
    parsed = _json(re.sub(r"(?m)^\s*//.*$", "", text))
    tasks = {name: task for name, task in _table(parsed, "tasks").items() if name == "test" or name in words}
    return {"test": parsed.get("test"), "tasks": tasks, "exclude": parsed.get("exclude")}


@_part_of(r"vite\.config\.[cm]?[jt]s")
def _vite_config(text: str, _: Words) -> Part:
    return {"test": [_braced(text, found.end() - 1) for found in re.finditer(r"\btest\s*:\s*\{", text)]}


def _braced(text: str, start: int) -> str:
    """Return the text from an opening brace to the one that closes it, blanks folded."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return " ".join(text[start : at + 1].split())
    return " ".join(text[start:].split())


# ---- Go and Rust


@_part_of(r"go\.mod")
def _go_mod(text: str, _: Words) -> Part:
    plain = re.sub(r"//[^\n]*", "", text)
    blocks = re.findall(r"(?ms)^(module|replace|ignore)\s+(\([^)]*\)|[^\n]+)", plain)
    return {f"{kind} {n}": " ".join(value.split()) for n, (kind, value) in enumerate(blocks)}


@_part_of(r"Cargo\.toml")
def _cargo_toml(text: str, _: Words) -> Part:
    parsed = toml_of(text)
    package, workspace = _table(parsed, "package"), _table(parsed, "workspace")
    part: dict[str, Any] = {key: package[key] for key in ("autotests", "autolib", "workspace") if key in package}
    targets = {"lib": [_table(parsed, "lib")], **{kind: parsed.get(kind, []) for kind in ("test", "bin", "example")}}
    for kind, rows in targets.items():
        wanted = ("test", "doctest", "harness") if kind != "test" else (*_TEST_TARGET, "harness")
        found = [{key: row[key] for key in ("name", *wanted) if key in row} for row in rows if isinstance(row, dict)]
        part[kind] = [row for row in found if kind == "test" or {*row} & {*wanted}]
    part["profile"] = _path(parsed, "profile", "test")
    part |= {key: workspace.get(key) for key in ("exclude", "default-members")}
    return {**part, f"{_GROWS}members": workspace.get("members")}


_TEST_TARGET = ("name", "path", "test", "required-features")


@_part_of(r"\.cargo/config(?:\.toml)?")
def _cargo_config(text: str, _: Words) -> Part:
    harmless = ("net", "registries", "registry", "source", "http", "term", "cargo-new", "patch")
    return {key: value for key, value in toml_of(text).items() if key not in harmless}


# ---- make, CMake, Java and others

_RULE = r"(?m)^([^\s:#=][^:#=]*?)\s*::?(?![:=])([^\n]*(?:\n(?:\t[^\n]*|[ \t]*#[^\n]*|[ \t]*(?=\n\t)))*)"
_ASSIGNED = r"(?:(?:export|override|unexport)\s+)*([\w.-]+)\s*(?:[:+?!]|::)?="
_STEERS = (
    r"SHELL|\.SHELLFLAGS|\.RECIPEPREFIX|\.DEFAULT_GOAL|MAKE.*|PATH|HOME|LD_.*|(?:PYTHON|PYTEST|TOX|NODE|NPM|GO|CARGO|RUST"
    r"|JAVA|MAVEN|GRADLE|RUBY|BUNDLE|CTEST)\w*"
)
_TOO_CLEVER = r"(?m)^\s*-?s?include\b|^\s*define\b|\$\((?:eval|call|foreach)\b|^\.SECONDEXPANSION"


def rules_of(text: str, words: Words) -> dict[str, str]:
    """Return the rules of a makefile that making these words uses, with their prerequisites, by target."""
    rules: dict[str, str] = {}
    for found in re.finditer(_RULE, text.replace("\\\n", " ")):
        for target in found[1].split():
            rules[target] = rules.get(target, "") + found[2] + "\n"
    named = [target for target in rules if target in words]
    waiting = named or [target for target in rules if not target.startswith((".", "%"))][:1]
    used: dict[str, str] = {}
    while waiting:
        target = waiting.pop()
        if target not in rules or target in used:
            continue
        used[target] = rules[target]
        prerequisites, _, recipe = rules[target].partition("\n")
        waiting += prerequisites.partition(";")[0].split()
        waiting += recipe.split() if re.search(r"\$[({]MAKE[)}]|\bmake\b", recipe) else []
    return used


@_part_of("|".join(MAKEFILES))
def _makefile(text: str, words: Words) -> Part:
    """Return the rules that the tests need, the variables in them, and everything that is neither."""
    if re.search(_TOO_CLEVER, text):
        return {_ALL: text}
    joined = text.replace("\\\n", " ")
    used = rules_of(text, words)
    part: dict[str, Any] = {f"rule {target}": rule for target, rule in used.items() if target != ".PHONY"}
    phony = " ".join(found[2] for found in re.finditer(_RULE, joined) if found[1] == ".PHONY").split()
    part["phony"] = sorted({*phony} & {*used})
    special = (
        found for found in re.finditer(_RULE, joined) if found[1].startswith((".", "%")) and found[1] != ".PHONY"
    )
    part |= {f"rule {found[1]}": f":{found[2]}" for found in special}
    outside = [
        line for line in re.sub(_RULE, "", joined).splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assigned = [(found[1], line) for line in outside if (found := re.match(_ASSIGNED, line.strip()))]
    reading, known = "".join(map(str, part.values())), set[str]()
    while fresh := {n for n, _ in assigned if n not in known and re.search(rf"\$[({{]{re.escape(n)}\b", reading)}:
        known |= fresh
        reading += "".join(line for name, line in assigned if name in fresh)
    steers = [
        line for name, line in assigned if name in known or re.fullmatch(_STEERS, name) or "export" in line.split()
    ]
    others = [line for line in outside if not re.match(_ASSIGNED, line.strip())]
    return part | {"variables": steers, "directives": others}


_CMAKE_TESTS = (
    r"(?is)\b(?:enable_testing|add_test|set_tests_properties|set_property\s*\(\s*test|gtest_\w+|catch_\w+|doctest_\w+"
    r"|include\s*\(\s*CTest|set\s*\(\s*(?:CTEST|BUILD_TESTING)|add_custom_target\s*\(\s*(?:check|test))[^)]*\)"
)


@_part_of(r"CMakeLists\.txt")
def _cmake(text: str, _: Words) -> Part:
    return {"tests": [" ".join(found.split()) for found in re.findall(_CMAKE_TESTS, re.sub(r"#[^\n]*", "", text))]}


_POM = (
    r"(?s)<plugin>(?:(?!</plugin>).)*?(?:surefire|failsafe)(?:(?!</plugin>).)*</plugin>"
    r"|<(skip\w*|maven\.test[\w.]*|testSourceDirectory|testFailureIgnore|testResources)>.*?</\1>"
)


_POM_DEPENDENCY = (
    r"(?s)<dependency>(?:(?!</dependency>).)*?<scope>\s*test\s*</scope>(?:(?!</dependency>).)*</dependency>"
)


@_part_of(r"pom\.xml")
def _pom(text: str, _: Words) -> Part:
    modules = re.findall(r"<module>\s*(.*?)\s*</module>", text)
    return {"tests": [" ".join(found[0].split()) for found in re.finditer(_POM, text)], f"{_GROWS}modules": modules}


_OF_TESTS = r"(?i)test|spec|ignoreFailures|onlyIf|exclude"
_TEST_DEPENDENCY = r"^\s*(?:test\w*|androidTest\w*)\b.*[\"'(].*[:.].*$|PackageReference|ProjectReference"


@_part_of(r"build\.gradle(?:\.kts)?|mix\.exs|Rakefile|[^/]+\.(?:cs|fs|vb)proj|Directory\.Build\.props")
def _lines_of_tests(text: str, _: Words) -> Part:
    """Return the lines about tests, without those that name a dependency."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return {"lines": [line for line in lines if re.search(_OF_TESTS, line) and not re.search(_TEST_DEPENDENCY, line)]}


@_part_of(r"composer\.json")
def _composer(text: str, words: Words) -> Part:
    scripts = _table(_json(text), "scripts")
    return {name: value for name, value in scripts.items() if "test" in name or name in words}


def _without(parsed: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in parsed.items() if key not in keys}


def _table(parsed: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = parsed.get(name)
    return table if isinstance(table, dict) else {}


def _path(parsed: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        parsed = _table(parsed, name)
    return dict(parsed)


_RESTS: dict[str, Callable[[str], object]] = {
    "pyproject.toml": _pyproject_rest,
    "package.json": _package_json_rest,
    "go.mod": lambda text: sorted(_go_mod(text, ()).values()),
    "Cargo.toml": lambda text: _without(toml_of(text), "dev-dependencies", "test"),
    "pom.xml": lambda text: "".join(re.sub(_POM, "", re.sub(_POM_DEPENDENCY, "", text)).split()),
    "composer.json": lambda text: _without(_json(text or "{}"), "require-dev", "autoload-dev"),
    **dict.fromkeys(("Gemfile", "build.gradle", "build.gradle.kts"), lambda _: ""),
}
"""The parts of a manifest that do not concern tests."""
