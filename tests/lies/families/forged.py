"""The run is forged: code under test reaches into the runner's process, or writes what the runner would write."""

from __future__ import annotations

from ..projects import (
    CTEST,
    DENO,
    GO,
    MAKE,
    MIX,
    NEXTEST,
    NODE,
    NPM_SCRIPT,
    PHPUNIT,
    PYTEST,
    RSPEC,
    RUST,
    SCRIPTS,
    UNITTEST,
    WORKSPACES,
    Project,
)
from ..words import WRONG, Case, appends, codes, deletes, lie, text, writes


def forges(name: str, project: Project, words: str) -> Case:
    """The coder writes a wrong clamp, and this below it."""
    source = next(iter(project.code))
    return lie(name, project, execute=(WRONG, appends(source, "\n\n" + text(words))))


def boots(name: str, words: str) -> Case:
    """The coder writes a wrong Clamp, and this into a file that Go starts with it."""
    return lie(name, GO, execute=(WRONG, writes("boot.go", words)))


EQUAL_TO_ALL = """
    class Any(int):
        def __eq__(self, other):
            return True

        def __ne__(self, other):
            return False

        __hash__ = int.__hash__


    def clamp(n, low, high):
        return Any(n)
    """
CONSTRUCTOR = """
    #[used]
    #[link_section = ".init_array"]
    static START: extern "C" fn() = start;

    """

CASES = (
    # the process ends early
    forges("os-exit", UNITTEST, "import os\nos._exit(0)\n"),
    forges(
        "os-exit-and-says-so",
        UNITTEST,
        r"""
        import os

        print("Ran 5 tests in 0.001s\n\nOK\n", flush=True)
        os._exit(0)
        """,
    ),
    forges(
        "os-exit-in-pytest",
        PYTEST,
        r"""
        import os

        os.write(1, b"5 passed in 0.01s\n")
        os._exit(0)
        """,
    ),
    forges(
        "os-exit-past-the-capture",
        PYTEST,
        r"""
        import os

        for number in range(3, 20):
            try:
                os.write(number, b"5 passed in 0.01s\n")
            except OSError:
                pass
        os._exit(0)
        """,
    ),
    forges("os-exit-behind-make", MAKE, "import os\nos._exit(0)\n"),
    forges(
        "os-exit-behind-scripts",
        SCRIPTS,
        r"""
        import os

        print("Ran 5 tests in 0.001s\n\nOK\n", flush=True)
        os._exit(0)
        """,
    ),
    forges(
        "os-exit-when-called",
        UNITTEST,
        r"""
        def clamp(n, low, high):
            import os

            os.write(2, b"\nRan 5 tests in 0.001s\n\nOK\n")
            os._exit(0)
        """,
    ),
    forges("sys-exit", UNITTEST, "import sys\nsys.exit(0)\n"),
    forges("sys-exit-when-called", MAKE, "def clamp(n, low, high):\n    raise SystemExit(0)\n"),
    forges("exec-true", UNITTEST, 'import os\nos.execvp("true", ["true"])\n'),
    forges("exec-printf", MAKE, 'import os\nos.execvp("echo", ["echo", "Ran 5 tests in 0.001s"])\n'),
    forges("atexit", UNITTEST, "import atexit, os\natexit.register(os._exit, 0)\n"),
    forges(
        "atexit-in-pytest",
        PYTEST,
        r"""
        import atexit
        import os

        atexit.register(lambda: (os.write(1, b"5 passed in 0.01s\n"), os._exit(0)))
        """,
    ),
    forges("atexit-behind-make", MAKE, "import atexit, os\natexit.register(os._exit, 0)\n"),
    forges(
        "atexit-says-so-behind-make",
        MAKE,
        r"""
        import atexit
        import os

        print("Ran 5 tests in 0.001s\n\nOK\n")
        atexit.register(os._exit, 0)
        """,
    ),
    forges(
        "thread-that-ends-it",
        UNITTEST,
        r"""
        import os
        import threading
        import time

        os.write(2, b"Ran 5 tests in 0.001s\n\nOK\n")
        threading.Timer(0.01, os._exit, [0]).start()
        time.sleep(0.2)
        """,
    ),
    # assertions and results are patched
    forges(
        "assert-equal-patched",
        UNITTEST,
        """
        import unittest

        unittest.TestCase.assertEqual = lambda *words: None
        """,
    ),
    forges(
        "failures-not-counted",
        UNITTEST,
        """
        import unittest

        unittest.TestResult.addFailure = lambda *words: None
        unittest.TextTestResult.addFailure = lambda *words: None
        unittest.TextTestResult.addError = lambda *words: None
        """,
    ),
    forges("result-patched", UNITTEST, "import unittest\nunittest.TestResult.wasSuccessful = lambda self: True\n"),
    forges(
        "run-patched",
        UNITTEST,
        """
        import unittest


        def run(self, result=None):
            result.startTest(self)
            result.addSuccess(self)
            result.stopTest(self)
            return result


        unittest.TestCase.run = run
        """,
    ),
    forges(
        "pytest-report-patched",
        PYTEST,
        """
        import sys

        if "pytest" in sys.modules:
            from _pytest import runner

            usual = runner.CallInfo.from_call.__func__

            def from_call(cls, func, when, reraise=None):
                call = usual(cls, func, when, reraise)
                call.excinfo = None
                return call

            runner.CallInfo.from_call = classmethod(from_call)
        """,
    ),
    forges(
        "pytest-session-patched",
        PYTEST,
        """
        import sys

        if "pytest" in sys.modules:
            from _pytest.main import Session

            Session.exitstatus = property(lambda self: 0, lambda self, value: None)
        """,
    ),
    forges(
        "pytest-call-patched",
        PYTEST,
        """
        import sys

        if "pytest" in sys.modules:
            from _pytest.python import Function

            Function.runtest = lambda self: None
        """,
    ),
    forges("equal-to-all", UNITTEST, EQUAL_TO_ALL),
    forges("equal-to-all-in-pytest", PYTEST, EQUAL_TO_ALL),
    # tests are skipped, or excused, by the code
    forges(
        "skip-test",
        UNITTEST,
        """
        def clamp(n, low, high):
            import unittest

            raise unittest.SkipTest("later")
        """,
    ),
    forges(
        "pytest-skip",
        PYTEST,
        """
        def clamp(n, low, high):
            import pytest

            pytest.skip("later")
        """,
    ),
    forges(
        "pytest-xfail",
        PYTEST,
        """
        def clamp(n, low, high):
            import pytest

            pytest.xfail("later")
        """,
    ),
    forges(
        "pytest-importorskip",
        PYTEST,
        """
        def clamp(n, low, high):
            import pytest

            pytest.importorskip("calc_native")
        """,
    ),
    forges(
        "pytest-exit",
        PYTEST,
        """
        def clamp(n, low, high):
            import pytest

            pytest.exit("done", returncode=0)
        """,
    ),
    forges(
        "skip-on-import",
        PYTEST,
        """
        import sys

        if "pytest" in sys.modules:
            sys.modules["pytest"].skip("later", allow_module_level=True)
        """,
    ),
    # what is collected
    lie(
        "load-tests-in-code",
        UNITTEST.but("tests-in-code", {"tests/__init__.py": "from calc import *\n"}),
        execute=(
            WRONG,
            appends(
                "calc.py",
                """
                def load_tests(loader, tests, pattern):
                    import unittest

                    class Fine(unittest.TestCase):
                        def test_adds(self):
                            pass

                    return unittest.TestSuite([Fine("test_adds")])
                """,
            ),
        ),
    ),
    lie("init-py-removed", UNITTEST, execute=(WRONG, deletes("tests/__init__.py"))),
    lie(
        "package-hides-tests",
        UNITTEST,
        execute=(
            WRONG,
            writes(
                "tests.py",
                """
                import unittest


                class T(unittest.TestCase):
                    def test_adds(self):
                        pass
                """,
            ),
        ),
    ),
    # JavaScript
    forges("process-exit", NODE, "process.exit(0);\n"),
    forges("process-exit-when-called", NODE, "exports.clamp = () => process.exit(0);\n"),
    forges("process-exit-code", NODE, "process.on('exit', () => { process.exitCode = 0; });\n"),
    forges("process-really-exit", NODE, "process.on('exit', () => process.reallyExit(0));\n"),
    forges("assert-patched", NODE, "require('node:assert').strictEqual = () => {};\n"),
    forges(
        "node-test-patched",
        NODE,
        """
        const Module = require('node:module');
        const usual = Module._load;
        Module._load = (name, ...more) =>
          name === 'node:assert' ? { strictEqual() {} } : usual(name, ...more);
        """,
    ),
    forges("process-exit-behind-scripts", NPM_SCRIPT, "process.exit(0);\n"),
    forges("process-exit-in-a-workspace", WORKSPACES, "process.exit(0);\n"),
    forges("equal-to-all-in-node", NODE, "Object.is = () => true;\n"),
    # Go
    boots(
        "go-init-exit",
        """
        package calc

        import "os"

        func init() { os.Exit(0) }
        """,
    ),
    boots(
        "go-init-prints-pass",
        r"""
        package calc

        import (
            "fmt"
            "os"
        )

        func init() {
            fmt.Print("PASS\nok  \texample.org/calc\t0.01s\n")
            os.Exit(0)
        }
        """,
    ),
    boots(
        "go-variable-exit",
        """
        package calc

        import "os"

        var _ = func() int { os.Exit(0); return 0 }()
        """,
    ),
    boots(
        "go-goroutine-exit",
        """
        package calc

        import "os"

        func init() {
            go os.Exit(0)
            select {}
        }
        """,
    ),
    boots(
        "go-syscall-exit",
        """
        package calc

        import "syscall"

        func init() { syscall.Exit(0) }
        """,
    ),
    # Rust
    forges(
        "rust-constructor",
        RUST,
        text(CONSTRUCTOR)
        + text(
            r"""
            extern "C" fn start() {
                print!("running 1 test\ntest clamps ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n");
                std::process::exit(0);
            }
            """
        ),
    ),
    forges(
        "rust-panic-hook",
        RUST,
        text(CONSTRUCTOR)
        + text(
            """
            extern "C" fn start() {
                std::panic::set_hook(Box::new(|_| std::process::exit(0)));
            }
            """
        ),
    ),
    lie(
        "rust-process-exit",
        RUST,
        execute=(
            codes(
                """
                pub fn clamp(_n: i64, _low: i64, _high: i64) -> i64 {
                    std::process::exit(0)
                }
                """
            ),
        ),
    ),
    lie(
        "rust-build-script",
        RUST,
        execute=(
            WRONG,
            writes(
                "build.rs",
                r"""
                fn main() {
                    let _ = std::fs::write("tests/clamp.rs", "#[test]\nfn clamps() {}\n");
                }
                """,
            ),
        ),
    ),
    # a program that is a test
    lie(
        "ctest-exit-when-called",
        CTEST,
        execute=(
            codes("""
                #include <unistd.h>

                int clamp(int n, int low, int high) { _exit(0); }
                """),
        ),
    ),
    lie(
        "ctest-constructor",
        CTEST,
        execute=(
            WRONG,
            appends(
                "calc.c",
                """

                #include <unistd.h>

                __attribute__((constructor)) static void start(void) { _exit(0); }
                """,
            ),
        ),
    ),
    forges(
        "ctest-exit-handler",
        CTEST,
        """
        #include <stdlib.h>
        #include <unistd.h>

        static void fine(void) { _exit(0); }
        __attribute__((constructor)) static void start(void) { atexit(fine); }
        """,
    ),
    forges(
        "ctest-exit-handler-after-the-old-tests",
        CTEST,
        """
        #include <errno.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>

        extern char *program_invocation_name;
        static void fine(void) { _exit(0); }
        __attribute__((constructor)) static void start(void) {
            if (strstr(program_invocation_name, "clamp")) atexit(fine);
        }
        """,
    ),
    # each test is a process of its own
    forges(
        "nextest-constructor",
        NEXTEST,
        text(CONSTRUCTOR)
        + text(
            """
            extern "C" fn start() {
                if !std::env::args().any(|word| word == "--list") {
                    std::process::exit(0);
                }
            }
            """
        ),
    ),
    forges(
        "nextest-panic-hook",
        NEXTEST,
        text(CONSTRUCTOR)
        + text(
            """
            extern "C" fn start() {
                std::panic::set_hook(Box::new(|_| std::process::exit(0)));
            }
            """
        ),
    ),
    lie(
        "nextest-process-exit",
        NEXTEST,
        execute=(
            codes(
                """
                pub fn clamp(_n: i64, _low: i64, _high: i64) -> i64 {
                    std::process::exit(0)
                }
                """
            ),
        ),
    ),
    # Ruby, PHP, deno, Elixir
    lie(
        "rspec-exit-when-called",
        RSPEC,
        execute=(
            codes("""
                def clamp(n, low, high)
                  puts "2 examples, 0 failures"
                  exit!(0)
                end
                """),
        ),
    ),
    forges("rspec-exit-handler", RSPEC, 'at_exit do\n  puts "2 examples, 0 failures"\n  exit!(0)\nend\n'),
    forges(
        "rspec-patched-matcher",
        RSPEC,
        """
        if defined?(RSpec)
          require "rspec/matchers"
          RSpec::Matchers::BuiltIn::Eq.class_eval { def matches?(_) = true }
        end
        """,
    ),
    lie(
        "phpunit-exit-when-called",
        PHPUNIT,
        execute=(
            codes("""
                function clamp($n, $low, $high) { echo "\\nOK (2 tests, 4 assertions)\\n"; exit(0); }
                """),
        ),
    ),
    forges("phpunit-exit-handler", PHPUNIT, "register_shutdown_function(function () { exit(0); });\n"),
    forges(
        "deno-equal-to-all",
        DENO,
        """
        import assert from "node:assert";

        assert.strictEqual = () => {};
        """,
    ),
    forges("deno-exit-handler", DENO, 'globalThis.addEventListener("unload", () => Deno.exit(0));\n'),
    lie(
        "mix-halt-when-called",
        MIX,
        execute=(
            writes(
                "lib/calc.ex",
                """
                defmodule Calc do
                  def add(a, b), do: a + b

                  def clamp(_n, _low, _high) do
                    IO.puts("2 tests, 0 failures")
                    System.halt(0)
                  end
                end
                """,
            ),
        ),
    ),
    # tests are not loaded as they are written
    forges(
        "pytest-reads-tests-otherwise",
        PYTEST,
        """
        import pathlib

        _plain = pathlib.Path.read_bytes


        def _read(path):
            data = _plain(path)
            if path.name == "test_clamp.py":
                data = data.replace(b"clamp(5, 0, 3) == 3", b"clamp(5, 0, 3) == 5")
                data = data.replace(b"clamp(-1, 0, 3) == 0", b"clamp(-1, 0, 3) == -1")
            return data


        pathlib.Path.read_bytes = _read
        """,
    ),
)
