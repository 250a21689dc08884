"""Mutants: small edits of a change that some test has to notice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from capsule.core.mutants import BODY, ending, fillings, leftovers, moved_functions, mutants, stubs


@pytest.mark.parametrize(
    ("path", "source", "stub"),
    [
        ("x.js", "exports.clamp = (n) => n;\n", "exports.clamp = (n) => undefined;\n"),
        ("x.js", "module.exports = { clamp: (n) => n };\n", "module.exports = { clamp: (n) => undefined };\n"),
        ("x.js", "export default { clamp: (n) => n };\n", "export default { clamp: (n) => undefined };\n"),
        ("x.js", "const clamp = (n) => n;\n", "const clamp = (n) => undefined;\n"),
        (
            "x.js",
            "X.clamp = function (n) { return n; };\n",
            "X.clamp = function (n) { if (true) return undefined;  return n; };\n",
        ),
        ("x.js", "class X { clamp = (n) => n; }\n", "class X { clamp = (n) => undefined; }\n"),
        ("x.ts", "class X { clamp = (n: number) => n; }\n", "class X { clamp = (n: number) => (undefined as any); }\n"),
        ("x.py", "clamp = lambda n: n\n", "clamp = lambda n: None\n"),
    ],
)
def test_a_function_that_is_a_value_has_a_body_to_take_out(path: str, source: str, stub: str) -> None:
    (mutant,) = stubs(path, b"", source.encode())
    assert mutant.applied(source.encode()).decode() == stub
    assert mutant.function == "clamp"


def test_a_function_within_an_argument_is_no_function_of_its_own() -> None:
    assert not stubs("x.js", b"", b"build({ order: (a, b) => a - b });\n")


@pytest.mark.parametrize(
    ("path", "source", "filled"),
    [
        ("x.py", b"def clamp(n):\n    return None\n", b"def clamp(n):\n    return 1\n"),
        ("x.py", b"def clamp(n):\n    pass\n", b"def clamp(n):\n    return 1\n"),
        ("x.js", b"function clamp(n) {}\n", b"function clamp(n) { if (true) return 1; }\n"),
        (
            "x.ts",
            b"function f() { return; }\n",
            b"function f() { if (true) return 1 as any;  return; }\n",
        ),
        ("x.rb", b"def clamp(n)\n  return nil\nend\n", b"def clamp(n)\n  1\nend\n"),
    ],
)
def test_a_function_that_does_nothing_has_a_mutant_that_returns_something(
    path: str, source: bytes, filled: bytes
) -> None:
    assert not mutants(path, b"", source)
    (mutant,) = fillings(path, b"", source)
    assert mutant.kind == BODY
    assert mutant.applied(source) == filled
    assert "→" in mutant.said
    assert "None" not in mutant.said


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("x.py", b"from typing import Protocol\n\n\nclass X(Protocol):\n    def clamp(self, n): ...\n"),
        ("x.py", b"class X:\n    @abstractmethod\n    def clamp(self, n):\n        pass\n"),
        ("x.pyi", b"def clamp(n): ...\n"),
        ("x.go", b"package x\n\nfunc F() {}\n"),
        ("X.java", b"class X { void f() {} }\n"),
        ("x.js", b"class X { constructor() {} }\n"),
        ("x.py", b"def clamp(n):\n    return n\n"),
    ],
)
def test_what_is_only_declared_and_what_returns_nothing_by_its_type_are_left_alone(path: str, source: bytes) -> None:
    assert not fillings(path, b"", source)


def test_a_function_that_was_only_moved_is_told_from_one_that_changed() -> None:
    same, clamp = b"def same(n):\n    return n\n", b"def clamp(n):\n    return max(n, 0)\n"
    sources = {"helpers.py": (b"", same + b"\n\n" + clamp), "calc.py": (clamp, b"")}
    assert moved_functions(sources, {"util.py": same}) == {("helpers.py", "same"), ("helpers.py", "clamp")}
    assert moved_functions(sources, {}) == {("helpers.py", "clamp")}
    assert not moved_functions({"helpers.py": (b"", same.replace(b"return n", b"return -n"))}, {"util.py": same})


@pytest.mark.slow
def test_a_large_file_is_read_without_harm_to_the_process() -> None:
    """In a process of its own: with tree-sitter 0.26.0 nodes of a large file read freed memory, and ended it."""
    script = (
        "import argparse, pathlib\n"
        "from capsule.core.mutants import mutants\n"
        "before = pathlib.Path(argparse.__file__).read_bytes()\n"
        "for turn in range(5):\n"
        "    assert mutants('x.py', before, before + b'\\n\\ndef f(n):\\n    return [max(n, x) for x in n]\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "before", "after", "broken"),
    [
        ("calc.py", b"x = 5\n", b"x = 5\nclamp = None\n", b"x = 5\nclamp = 1\n"),
        ("calc.py", b"", b"a = 1\n\nB = {'x': 1}\n", b"a = 2\n\nB = 1\n"),
        ("calc.js", b"", b"exports.clamp = null;\n", b"exports.clamp = 1;\n"),
        ("done.txt", b"", b"yes\n", b""),
        (".done", b"", b"", b"capsule\n"),
    ],
)
def test_what_lies_in_no_function_is_broken_as_a_whole(path: str, before: bytes, after: bytes, broken: bytes) -> None:
    assert not mutants(path, before, after)
    (mutant,) = leftovers(path, before, after)
    assert (mutant.kind, mutant.applied(after)) == (BODY, broken)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("words.json", b"{}\n", b'{"a": 1}\n'),
        ("calc.py", b"x = 5\n", b"x = 5\n# more\n"),
        ("py.typed", b"", b""),
        ("calc.py", b"", b"def f():\n    x = 5\n"),
    ],
)
def test_what_is_no_new_value_and_no_new_file_is_left_alone(path: str, before: bytes, after: bytes) -> None:
    assert not leftovers(path, before, after)


@pytest.mark.parametrize(
    ("path", "source", "ended"),
    [
        ("x.py", "def f(n):\n    return n\n", 'def f(n):\n    __import__("os")._exit(97)\n'),
        ("x.py", "def f(n):\n    yield n\n", 'def f(n):\n    __import__("os")._exit(97)\n    yield\n'),
        ("x.py", "f = lambda n: n\n", 'f = lambda n: __import__("os")._exit(97)\n'),
        ("x.rb", "def f(n)\n  n\nend\n", "def f(n)\n  exit!(97)\nend\n"),
        ("x.js", "const f = (n) => n;\n", "const f = (n) => process.reallyExit(97);\n"),
        ("x.js", "function f(n) { return n; }\n", "function f(n) { process.reallyExit(97);  return n; }\n"),
        (
            "x.ts",
            "function f(n: number) { return n; }\n",
            "function f(n: number) { (globalThis as any).process.reallyExit(97);  return n; }\n",
        ),
        ("x.php", "<?php function f() { return 2; }\n", "<?php function f() { if (true) exit(97);  return 2; }\n"),
        ("x.rs", "fn f() -> u8 { 2 }\n", "fn f() -> u8 { if true { std::process::exit(97) };  2 }\n"),
        (
            "X.java",
            "class X { int f() { return 2; } }\n",
            "class X { int f() { if (true) Runtime.getRuntime().halt(97);  return 2; } }\n",
        ),
        ("x.c", "int f(void) { return 2; }\n", "int f(void) { if (1) __builtin_trap();  return 2; }\n"),
        (
            "x.go",
            "// Package x adds.\npackage x\n\nfunc f() int { return 2 }\n",
            '// Package x adds.\npackage x; import capsuleos "os"\n\n'
            "func f() int { if true { capsuleos.Exit(97) };  return 2 }\n",
        ),
    ],
)
def test_a_function_that_ends_the_program_tells_whether_anybody_calls_it(path: str, source: str, ended: str) -> None:
    (stub,) = stubs(path, b"", source.encode())
    made = ending(stub, source.encode())
    assert made is not None
    assert made.applied(source.encode()).decode() == ended
    assert made.said == f"`f` in {path} ends the program"


def test_only_a_body_can_end_the_program() -> None:
    code = b"def f(n):\n    return n > 1\n"
    smaller = next(each for each in mutants("x.py", b"", code) if each.kind != BODY)
    (value,) = leftovers("x.py", b"", b"LIMIT = 3\n")
    assert ending(smaller, code) is None
    assert ending(value, b"LIMIT = 3\n") is None


def test_two_mutants_never_read_the_same() -> None:
    """Who mends tests hears of a mutant by its words, and it is found again by them."""
    code = b"def total(amount):\n    return amount_of_everything_that_was_bought(amount) + 1 + 2 + 3 + 4\n"
    said = [mutant.said for mutant in mutants("x.py", b"", code)]
    assert len(said) == len({*said})
