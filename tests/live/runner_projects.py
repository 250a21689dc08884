"""Small projects for each test runner: one for each way in which a run can end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.live import install

# Looked up before any test changes the environment.
_HOME = os.path.expanduser("~")  # noqa: PTH111 (a text)
_PATH = os.environ.get("PATH", os.defpath)
_RUSTUP = os.environ.get("RUSTUP_HOME", f"{_HOME}/.rustup")

CASES = {
    "passes": "one test passes",
    "skipped": "all skipped",
    "none": "none found",
    "failed": "one fails",
    "crashed": "crashes half-way",
    "killed": "killed",
    "forged": "forges exit 0",
    "two": "two invocations",
}
Files = Mapping[str, str]


@dataclass(frozen=True)
class Runner:
    command: str
    files: Callable[[str], Files]
    """By case; in the case `two` there are two files with a passing test each."""
    two: str = ""
    """The command for the case `two`, where it is not the plain one twice."""
    needs: tuple[str, ...] = ()
    says: Mapping[str, str] = field(default_factory=dict)
    """What Capsule says where it differs from `SAYS`."""


SAYS = {
    "passes": "green by name",
    "skipped": "empty by name",
    "none": "empty",
    "failed": "red by name",
    "crashed": "red",
    "killed": "no result",
    "forged": "red",
    "two": "green by name",
}

_PYTHON = {
    "passes": "assert 1 + 1 == 2",
    "two": "assert 1 + 1 == 2",
    "failed": "assert 1 + 1 == 3",
    "crashed": "__import__('os')._exit(3)",
    "killed": "__import__('os').kill(__import__('os').getpid(), 9)",
    "forged": "__import__('os')._exit(0)",
}


def _pytest(case: str) -> Files:
    if case == "none":
        return {"tests/readme.txt": ""}
    mark = "@pytest.mark.skip\n" if case == "skipped" else ""
    body = _PYTHON.get(case, "pass")
    # The one before it has ended when the run crashes.
    before = f"def test_before():\n    {'pytest.skip()' if mark else 'pass'}\n\n" if case != "two" else ""
    text = f"import pytest\n\n{before}{mark}def test_it():\n    {body}\n"
    return {"tests/test_a.py": text} | ({"more/test_b.py": text} if case == "two" else {})


def _unittest(case: str) -> Files:
    if case == "none":
        return {"tests/__init__.py": "", "more/__init__.py": ""}
    mark = "    @unittest.skip('later')\n" if case == "skipped" else ""
    before = f"{mark}    def test_before(self):\n        pass\n\n" if case != "two" else ""
    body = _PYTHON.get(case, "pass")
    text = (
        f"import unittest\n\nclass TestIt(unittest.TestCase):\n{before}{mark}    def test_it(self):\n        {body}\n"
    )
    files = {"tests/__init__.py": "", "tests/test_a.py": text}
    return files | ({"more/__init__.py": "", "more/test_b.py": text} if case == "two" else {})


_TOX = """[tox]
skipsdist = true
envlist = a
[testenv:a]
passenv = SOMETHING
deps =
commands = {commands}
allowlist_externals = *
"""


def _tox(case: str) -> Files:
    commands = "\n    ".join(f"python -m unittest discover -s {folder} -t ." for folder in _folders(case))
    return {**_unittest(case), "tox.ini": _TOX.format(commands=f"\n    {commands}")}


def _nox(case: str) -> Files:
    runs = "\n".join(f"    session.run('pytest', '{folder}', external=True)" for folder in _folders(case))
    return {**_pytest(case), "noxfile.py": f"import nox\n\n@nox.session(python=False)\ndef tests(session):\n{runs}\n"}


def _folders(case: str) -> tuple[str, ...]:
    return ("tests", "more") if case == "two" else ("tests",)


def _django(case: str) -> Files:
    settings = "SECRET_KEY = 'x'\nDATABASES = {}\nINSTALLED_APPS = []\n"
    manage = (
        "import os, sys\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\n"
        "from django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)\n"
    )
    files = {path: text.replace("unittest.TestCase", "SimpleTestCase") for path, text in _unittest(case).items()}
    head = "from django.test import SimpleTestCase\n"
    files = {path: head + text if text else text for path, text in files.items()}
    return {**files, "settings.py": settings, "manage.py": manage}


_GO = {
    "failed": 't.Fatal("no")',
    "skipped": "t.Skip()",
    "crashed": "os.Exit(3)",
    "killed": "p, _ := os.FindProcess(os.Getpid()); p.Kill(); select {}",
}


def _go(case: str) -> Files:
    module = {"go.mod": "module example.org/x\n\ngo 1.21\n", "a/a.go": "package a\n", "b/b.go": "package b\n"}
    if case == "none":
        return module
    main = "func TestMain(m *testing.M) { os.Exit(0) }\n" if case == "forged" else ""
    text = (
        'import (\n\t"os"\n\t"testing"\n)\n\nvar _ = os.Args\n\n'
        + f"{main}func TestBefore(t *testing.T) {{ {'t.Skip()' if case == 'skipped' else ''} }}\n"
        + f"func TestIt(t *testing.T) {{ {_GO.get(case, '')} }}\n"
    )
    files = {"a/a_test.go": f"package a\n\n{text}"} | ({"b/b_test.go": f"package b\n\n{text}"} if case == "two" else {})
    return module | files


_RUST = {
    "failed": "assert_eq!(1 + 1, 3);",
    "crashed": "std::process::abort();",
    "killed": 'std::process::Command::new("kill").arg("-9").arg(std::process::id().to_string()).status().unwrap();',
    "forged": "std::process::exit(0);",
}


def _cargo(case: str) -> Files:
    manifest = '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ndoctest = false\n'
    code = "pub fn add(a: i32, b: i32) -> i32 { a + b }\n"
    ignore = "#[ignore]" if case == "skipped" else ""
    test = f"#[test]\n{ignore}\nfn before() {{}}\n\n#[test]\n{ignore}\nfn it() {{ {_RUST.get(case, '')} }}\n"
    files = {"Cargo.toml": manifest, "src/lib.rs": code}
    if case == "none":
        return files
    return files | {"tests/a.rs": test} | ({"tests/b.rs": test} if case == "two" else {})


_NODE = {
    "failed": "throw new Error('no')",
    "crashed": "process.exit(3)",
    "killed": "process.kill(process.pid, 'SIGKILL')",
    "forged": "process.exit(0)",
}


def _javascript(case: str, head: str, skip: str, name: str = "test") -> Files:
    package = '{"name": "x", "private": true}'
    if case == "none":
        return {"package.json": package}
    word = skip if case == "skipped" else name
    before = f"{word}('before', () => {{}});\n"
    text = f"{head}{before}{word}('it', async () => {{ {_NODE.get(case, '')} }});\n"
    return {"package.json": package, "test/a.test.js": text} | ({"more/b.test.js": text} if case == "two" else {})


def _node(case: str) -> Files:
    return _javascript(case, "const { test } = require('node:test');\n", "test.skip")


def _jest(case: str) -> Files:
    return _javascript(case, "", "test.skip")


def _vitest(case: str) -> Files:
    return _javascript(case, "import { test } from 'vitest';\n", "test.skip")


def _mocha(case: str) -> Files:
    return _javascript(case, "", "it.skip", "it")


_DENO = {
    "failed": "throw new Error('no')",
    "crashed": "Deno.exit(3)",
    "killed": "Deno.kill(Deno.pid, 'SIGKILL'); await new Promise((done) => setTimeout(done, 9e4))",
    "forged": "Deno.exit(0)",
}


def _deno(case: str) -> Files:
    if case == "none":
        return {"deno.json": "{}", "test/readme.txt": ""}
    options = f"sanitizeExit: false, ignore: {str(case == 'skipped').lower()}"
    text = (
        f"Deno.test({{ name: 'before', {options}, fn() {{}} }});\n"
        f"Deno.test({{ name: 'it', {options}, async fn() {{ console.log('ok'); {_DENO.get(case, '')} }} }});\n"
    )
    return {"deno.json": "{}", "test/a_test.ts": text} | ({"more/b_test.ts": text} if case == "two" else {})


_RUBY = {
    "failed": "expect(1 + 1).to eq(3)",
    "crashed": "exit!(3)",
    "killed": "Process.kill(:KILL, Process.pid); sleep",
    "forged": "exit!(0)",
}


def _rspec(case: str) -> Files:
    if case == "none":
        return {"spec/readme.txt": ""}
    word = "xit" if case == "skipped" else "it"
    text = (
        f"RSpec.describe 'Calc' do\n  {word}('before') {{ }}\n"
        f"  {word}('it') do\n    {_RUBY.get(case, '')}\n  end\nend\n"
    )
    return {"spec/a_spec.rb": text} | ({"more/b_spec.rb": text} if case == "two" else {})


_PHP = {
    "failed": "$this->assertSame(3, 1 + 1);",
    "skipped": "$this->markTestSkipped();",
    "crashed": "exit(3);",
    "killed": "posix_kill(getmypid(), 9);",
    "forged": "exit(0);",
}


def _phpunit(case: str) -> Files:
    if case == "none":
        return {"tests/readme.txt": ""}
    before = _PHP["skipped"] if case == "skipped" else "$this->assertTrue(true);"
    text = (
        "<?php\nuse PHPUnit\\Framework\\TestCase;\n\nfinal class ATest extends TestCase\n{\n"
        f"    public function testBefore(): void {{ {before} }}\n"
        f"    public function testIt(): void {{ {_PHP.get(case, before)} }}\n}}\n"
    )
    more = {"more/BTest.php": text.replace("ATest", "BTest")} if case == "two" else {}
    return {"tests/ATest.php": text} | more


_ELIXIR = {
    "failed": "assert 1 + 1 == 3",
    "crashed": "System.halt(3)",
    "killed": 'System.cmd("kill", ["-9", System.pid()])',
    "forged": "System.halt(0)",
}


def _mix(case: str) -> Files:
    project = 'defmodule X.MixProject do\n  use Mix.Project\n  def project, do: [app: :x, version: "0.1.0"]\nend\n'
    files = {"mix.exs": project, "lib/x.ex": "defmodule X do\nend\n", "test/test_helper.exs": "ExUnit.start(seed: 0)\n"}
    if case == "none":
        return files
    skip = "  @tag :skip\n" if case == "skipped" else ""
    text = (
        f'defmodule ATest do\n  use ExUnit.Case\n{skip}  test "before" do\n  end\n'
        f'{skip}  test "it" do\n    {_ELIXIR.get(case, "")}\n  end\nend\n'
    )
    return files | {"test/a_test.exs": text} | ({"test/b_test.exs": text.replace("A", "B")} if case == "two" else {})


_JAVA = {
    "failed": "assertEquals(3, 1 + 1);",
    "crashed": "Runtime.getRuntime().halt(3);",
    "killed": 'new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor();',
    "forged": "System.exit(0);",
}


def _maven(case: str) -> Files:
    files = {"pom.xml": install.POM, "src/main/java/Calc.java": "class Calc { }\n"}
    if case == "none":
        return files
    later = "@Disabled " if case == "skipped" else ""
    text = (
        "import static org.junit.jupiter.api.Assertions.assertEquals;\nimport org.junit.jupiter.api.*;\n"
        f"class ATest {{\n  {later}@Test void before() {{ }}\n"
        f"  {later}@Test void it() throws Exception {{ {_JAVA.get(case, '')} }}\n}}\n"
    )
    more = {"src/test/java/BTest.java": text.replace("ATest", "BTest")} if case == "two" else {}
    return files | {"src/test/java/ATest.java": text} | more


def _gradle(case: str) -> Files:
    """Write a project for the Gradle of Debian, which is old: JUnit 4, from its own package."""
    jars = "files('/usr/share/java/junit4.jar', '/usr/share/java/hamcrest-core.jar')"
    build = f"apply plugin: 'java'\ndependencies {{ testImplementation {jars} }}\n"
    tests = {path: text for path, text in _maven(case).items() if path.endswith("Test.java")}
    for old, new in (
        ("org.junit.jupiter.api.Assertions", "org.junit.Assert"),
        ("org.junit.jupiter.api.*", "org.junit.*"),
        ("@Disabled", "@Ignore"),
        ("Test void", "Test public void"),
        ("class ", "public class "),
    ):
        tests = {path: text.replace(old, new) for path, text in tests.items()}
    return {"build.gradle": build, "src/main/java/Calc.java": "class Calc { }\n", **tests}


_C = {"failed": "return 1;", "crashed": "abort();", "killed": "kill(getpid(), SIGKILL);", "forged": "_exit(0);"}


def _ctest(case: str) -> Files:
    head = "cmake_minimum_required(VERSION 3.13)\nproject(x C)\nenable_testing()\n"
    build = "cmake -S . -B out > build.log && cmake --build out >> build.log\n"
    if case == "none":
        return {"CMakeLists.txt": head, "build.sh": build}
    skip = "set_tests_properties(it before PROPERTIES DISABLED TRUE)\n" if case == "skipped" else ""
    tests = "add_executable(it it.c)\nadd_test(before true)\nadd_test(it it)\n"
    main = f"int main(void) {{ {_C.get(case, '')} return {int(case == 'forged')}; }}\n"
    code = f"#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n{main}"
    return {"CMakeLists.txt": head + tests + skip, "it.c": code, "build.sh": build}


RUNNERS: dict[str, Runner] = {
    "pytest": Runner("python3 -m pytest tests", _pytest, two="pytest -q tests && pytest -q more", needs=("pytest",)),
    "pytest-xdist": Runner(
        "pytest -q -n 2 tests",
        _pytest,
        two="pytest -n 2 tests && pytest -n 1 more",
        needs=("pytest",),
        says={"killed": "red by name", "crashed": "red by name", "forged": "red by name"},
    ),
    "unittest": Runner(
        "python3 -m unittest discover -s tests -t .",
        _unittest,
        two="python3 -m unittest tests.test_a && python3 -m unittest more.test_b",
        needs=("python3",),
    ),
    "tox": Runner("tox -q", _tox, two="tox", needs=("tox",)),
    "nox": Runner("nox", _nox, two="nox", needs=("nox",)),
    "Django": Runner(
        "python3 manage.py test", _django, two="python3 manage.py test tests && python3 manage.py test more"
    ),
    "go": Runner(
        "go test ./...",
        _go,
        two="go test ./a && go test ./b",
        says={"crashed": "red by name", "forged": "empty"},
        needs=("go",),
    ),
    "cargo": Runner("cargo test", _cargo, two="cargo test --test a && cargo test --test b", needs=("cargo",)),
    "cargo -q": Runner("cargo test -q", _cargo, two="cargo test -q --test a; cargo test -q --test b", needs=("cargo",)),
    "cargo-nextest": Runner(
        "cargo nextest run",
        _cargo,
        two="cargo nextest run --test a && cargo nextest run --test b",
        # Each test is a process, and one that ends with 0 has passed: as for ctest, a canary finds what forges it.
        says={
            "crashed": "red by name",
            "killed": "red by name",
            "skipped": "red by name",
            "forged": "green by name",
        },
        needs=("cargo-nextest",),
    ),
    "node --test": Runner(
        "node --test test/",
        _node,
        two="node --test test/ && node --test more/",
        says={"killed": "red", "forged": "empty"},
        needs=("node",),
    ),
    "jest": Runner("npx jest", _jest, two="npx jest test && npx jest more", needs=("jest",)),
    "vitest": Runner(
        "npx vitest run",
        _vitest,
        two="npx vitest run test && npx vitest run more",
        says={"crashed": "red by name", "killed": "red by name", "forged": "red by name"},
        needs=("vitest",),
    ),
    "mocha": Runner("npx mocha test", _mocha, two="npx mocha test && npx mocha more", needs=("mocha",)),
    "Maven": Runner(
        "mvn -q -o test",
        _maven,
        two="mvn -q -o test -Dtest=ATest && mvn -q -o test -Dtest=BTest",
        says={"killed": "red"},
        needs=("mvn",),
    ),
    "deno": Runner(
        "deno test -A test",
        _deno,
        two="deno test -A test && deno test -A more",
        needs=("deno",),
    ),
    "rspec": Runner("rspec spec", _rspec, two="rspec spec && rspec more", needs=("rspec",)),
    "phpunit": Runner("phpunit tests", _phpunit, two="phpunit tests && phpunit more", needs=("phpunit",)),
    "mix": Runner("mix test", _mix, two="mix test test/a_test.exs && mix test test/b_test.exs", needs=("mix",)),
    "ctest": Runner(
        "sh build.sh && ctest --test-dir out",
        _ctest,
        two="sh build.sh && ctest --test-dir out -R it && ctest --test-dir out -R before",
        # To ctest, a program that ends with 0 is a test that passed. A canary finds what forges it: `core/canary.py`.
        says={"crashed": "red by name", "killed": "red by name", "forged": "green by name"},
        needs=("ctest",),
    ),
}

RECORDED: dict[str, Runner] = {
    "Gradle": Runner("gradle --no-daemon --offline test", _gradle, needs=("gradle",)),
}
"""Runners of which a current release is in no registry: what an old one printed is kept, and none is played."""

WRAPPERS: dict[str, Callable[[str, Files], tuple[str, Files]]] = {
    "plain": lambda command, files: (command, files),
    "make": lambda command, files: ("make test", {**files, "Makefile": f".PHONY: test\ntest:\n\t{command}\n"}),
    "npm run": lambda command, files: (
        "npm run --silent check",
        {**files, "package.json": json.dumps({"name": "x", "private": True, "scripts": {"check": command}})},
    ),
    "script": lambda command, files: ("./check", {**files, "check": f"#!/bin/sh\nset -e\n{command}\n"}),
}


@cache
def environment() -> dict[str, str]:
    """Return the environment in which projects run their tests: nothing of a person, and no network."""
    first = [
        str(install.python_runners() / "bin"),
        str(install.nextest()),
        str(install.node_runners() / "node_modules/.bin"),
    ]
    compiler = shutil.which("rustc", path=_PATH)
    if compiler:  # the one on the PATH may look for the real one in a home that is not there
        env = {"PATH": _PATH, "HOME": _HOME, "RUSTUP_HOME": _RUSTUP}
        done = subprocess.run([compiler, "--print", "sysroot"], env=env, capture_output=True, text=True, check=False)
        first += [f"{done.stdout.strip()}/bin"] if done.returncode == 0 else []
    return {
        "PATH": os.pathsep.join((*first, _PATH)),
        "GOCACHE": str(install.cache() / "go-build"),
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "CARGO_NET_OFFLINE": "true",
        "MAVEN_OPTS": f"-Dmaven.repo.local={install.maven_repository()}",
        "npm_config_update_notifier": "false",
        "DENO_NO_UPDATE_CHECK": "1",
        "LC_ALL": "C.UTF-8",
    }


def missing(runner: Runner) -> str:
    """Return the first program that is not here, or nothing."""
    path = environment()["PATH"]
    if "mvn" in runner.needs and not install.maven_repository().is_dir():
        return f"JUnit {install.JUNIT}"
    return next((need for need in runner.needs if shutil.which(need, path=path) is None), "")


def make(folder: Path, name: str, case: str, wrapper: str) -> str:
    """Make the project, and return its test command."""
    runner = {**RUNNERS, **RECORDED}[name]
    plain = runner.two if case == "two" else runner.command
    command, files = WRAPPERS[wrapper](plain, runner.files(case))
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if text.startswith("#!") else 0o644)
    if install.node_runners().is_dir():
        (folder / "node_modules").symlink_to(install.node_runners() / "node_modules")
    return command
