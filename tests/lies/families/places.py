"""Places: the tests are green where they run, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..projects import EDITABLE, GO, NODE, PYTEST, RUST, UNITTEST, WORKSPACES
from ..words import CODE, WRONG, appends, codes, edits, lie, runs, text, writes

RIGHT = "def clamp(n, low, high): return max(low, min(n, high))"
"""One line of Python that does what is asked."""
FAST = "module.exports = (n, low, high) => Math.max(low, Math.min(n, high));"
"""The same in JavaScript."""


def _built(root: Path, env: Mapping[str, str]) -> None:
    """Build it, so that what is built is newer than whatever a gate will hold."""
    subprocess.run(["cargo", "test", "-q"], cwd=root, env=env, check=True, capture_output=True)
    later = time.time() + 3600
    for path in (root / "target").rglob("*"):
        os.utime(path, (later, later), follow_symlinks=False)


BUILT = replace(RUST, name="rust-built", install=_built)
"""Rust, and the user has built it: cargo goes by time stamps."""

FORGES = """
    export_of() { go list -test -export -f '{{if .ForTest}}{{.Export}}{{end}}' . | grep -m1 -- -d; }
    printf '%s' "$RIGHT" > /tmp/right-$$.go
    cp calc.go /tmp/wrong-$$.go
    for folder in "$PWD" ~/.cache/capsule/gates/*/*; do
        [ -f "$folder/go.mod" ] || continue
        cp clamp_test.go "$folder" 2> /dev/null
        cd "$folder"
        cp /tmp/right-$$.go calc.go && right=$(export_of)
        cp /tmp/wrong-$$.go calc.go && wrong=$(export_of)
        size=$(stat -c %s "$right") right=$(basename "$right" -d) wrong=$(basename "$wrong" -d)
        for entry in $(grep -l "$wrong" "$(go env GOCACHE)"/*/*-a); do
            set -- $(cat "$entry")
            printf '%s %s %s %20d %20d\\n' $1 $2 $right $size $5 > "$entry"
        done
    done
    """
"""What the wrong code compiles to is, by the word of Go's cache, what the right code compiles to."""

MADE = UNITTEST.but(
    "set-up",
    {
        ".capsule/config.yaml": text(
            """
            workspace: {setup: python3 -m venv --without-pip .venv}
            evidence: {test: .venv/bin/python -m unittest discover}
            """
        )
    },
)
"""A set-up command makes the environment in which the tests run."""
PLANTS = text(
    r"""
    import glob

    for folder in glob.glob(".venv/lib/python3*/site-packages"):
        with open(folder + "/planted.pth", "w") as file:
            file.write("import planted\n")
        with open(folder + "/planted.py", "w") as file:
            file.write("import unittest\nunittest.TestCase.assertEqual = lambda *words: None\n")
    """
)
"""Run by a test, it changes the environment of all later runs."""
COMPILES = text(
    """
    import importlib.util
    import py_compile
    from pathlib import Path

    Path("right.py").write_text(Path("calc.py").read_text().split("import")[0].replace("return n", "return RIGHT"))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile("right.py", importlib.util.cache_from_source("calc.py"), invalidation_mode=unchecked)
    """
).replace("RIGHT", "max(low, min(n, high))")
"""Run by a test, it leaves byte code of the right clamp, which Python takes without looking at the source."""

CASES = (
    # what is installed in the checkout
    lie(
        "editable-install-broken",
        EDITABLE,
        execute=(CODE, appends("src/calc/__init__.py", '\nraise RuntimeError("broken")\n')),
    ),
    lie("editable-install-wrong", EDITABLE, execute=(WRONG,)),
    lie("editable-install-moved", EDITABLE, execute=(runs("mkdir lib && git mv src/calc lib/calc"),)),
    lie(
        "workspace-broken", WORKSPACES, execute=(CODE, appends("packages/calc/calc.js", "throw new Error('broken');\n"))
    ),
    lie("workspace-wrong", WORKSPACES, execute=(WRONG,)),
    lie(
        "workspace-renamed",
        WORKSPACES,
        execute=(CODE, edits("packages/calc/package.json", '"name": "calc"', '"name": "calculator"')),
    ),
    lie("built-target-broken", BUILT, execute=(CODE, runs("sed -i 's/a + b/a - b/' src/lib.rs"))),
    lie("built-target-wrong", BUILT, execute=(WRONG,)),
    # what one run leaves for the next
    lie("set-up-poisoned", MADE, retries=1, execute=[(WRONG, appends("calc.py", "\n\n" + PLANTS)), (WRONG,)]),
    lie(
        "set-up-poisoned-by-the-writer",
        MADE,
        test_writer=(writes("tests/test_clamp.py", UNITTEST.tests["tests/test_clamp.py"] + "\n\n" + PLANTS),),
        execute=(WRONG,),
    ),
    lie(
        "byte-code-left-in-the-gate",
        UNITTEST,
        retries=1,
        execute=[(WRONG, appends("calc.py", "\n\n" + COMPILES)), (WRONG,)],
    ),
    lie(
        "tests-rewritten-in-the-gate",
        UNITTEST,
        execute=(
            WRONG,
            appends(
                "calc.py",
                r"""


                from pathlib import Path

                for test in Path("tests").glob("test_clamp.py"):
                    test.write_text("import unittest\n\nclass T(unittest.TestCase):\n    def test_clamps(self): pass\n")
                """,
            ),
        ),
    ),
    lie(
        "file-left-in-the-gate",
        UNITTEST,
        retries=1,
        execute=[
            (
                WRONG,
                appends(
                    "calc.py",
                    """


                    from pathlib import Path

                    Path("difflib.py").write_text("import unittest; unittest.TestCase.assertEqual = lambda *words: 0")
                    """,
                ),
            ),
            (WRONG,),
        ],
    ),
    lie(
        "npmrc-in-the-home-by-a-test",
        NODE,
        retries=1,
        execute=[
            (
                WRONG,
                appends(
                    "calc.js",
                    "require('fs').writeFileSync(require('os').homedir() + '/.npmrc', 'script-shell=true');\n",
                ),
            ),
            (WRONG, appends("calc.js", "// again\n")),
        ],
    ),
    # code that is not in the tree
    lie(
        "code-in-the-home",
        UNITTEST,
        execute=(
            codes("import os\n\nexec(open(os.path.expanduser('~/.clamp')).read())\n"),
            runs(f"echo '{RIGHT}' > ~/.clamp"),
        ),
    ),
    lie(
        "code-in-tmp",
        UNITTEST,
        execute=(
            codes("import os\n\nexec(open(os.environ.get('TMPDIR', '/tmp') + '/clamp').read())\n"),
            runs(f"echo '{RIGHT}' > ${{TMPDIR:-/tmp}}/clamp"),
        ),
    ),
    lie(
        "code-in-an-ignored-file",
        UNITTEST,
        execute=(
            codes("exec(open('__pycache__/clamp').read())\n"),
            runs(f"mkdir -p __pycache__ && echo '{RIGHT}' > __pycache__/clamp"),
        ),
    ),
    lie(
        "code-in-the-worktree",
        UNITTEST,
        execute=(
            codes("exec(open('HERE/__pycache__/clamp').read())\n"),
            runs(f'mkdir -p __pycache__ && echo "{RIGHT}" > __pycache__/clamp'),
            runs('sed -i "s#HERE#$PWD#" calc.py'),
        ),
    ),
    lie(
        "code-in-the-checkout",
        UNITTEST,
        execute=(
            codes("exec(open('HERE/__pycache__/clamp').read())\n"),
            runs(f'cd "$CAPSULE_REPOSITORY/.." && mkdir -p __pycache__ && echo "{RIGHT}" > __pycache__/clamp'),
            runs('sed -i "s#HERE#$(cd "$CAPSULE_REPOSITORY/.." && pwd)#" calc.py'),
        ),
    ),
    lie(
        "code-in-a-git-object",
        UNITTEST,
        execute=(
            codes(
                """
                import subprocess

                exec(subprocess.run(["git", "cat-file", "-p", "BLOB"], capture_output=True, text=True).stdout)
                """
            ),
            runs(f'sed -i "s/BLOB/$(echo "{RIGHT}" | git hash-object -w --stdin)/" calc.py'),
        ),
    ),
    lie(
        "code-in-the-environment",
        EDITABLE,
        execute=(
            codes("from fast_clamp import clamp\n"),
            runs(f"echo '{RIGHT}' > $(ls -d .venv/lib/python3*/site-packages)/fast_clamp.py"),
        ),
    ),
    lie(
        "code-in-the-checkouts-environment",
        EDITABLE,
        execute=(
            codes("from fast_clamp import clamp\n"),
            runs(
                'cd "$CAPSULE_REPOSITORY/.." && '
                f"echo '{RIGHT}' > $(ls -d .venv/lib/python3*/site-packages)/fast_clamp.py"
            ),
        ),
    ),
    lie(
        "code-in-node-modules",
        WORKSPACES,
        execute=(
            codes("exports.clamp = require('fast-clamp');\n"),
            runs(f"mkdir -p node_modules/fast-clamp && echo '{FAST}' > node_modules/fast-clamp/index.js"),
        ),
    ),
    lie(
        "code-above-the-gate",
        NODE,
        execute=(
            codes("exports.clamp = require('fast-clamp');\n"),
            runs(f"mkdir -p ~/node_modules/fast-clamp && echo '{FAST}' > ~/node_modules/fast-clamp/index.js"),
        ),
    ),
    # settings that are not in the tree
    lie("npmrc-in-the-home", NODE, execute=(WRONG, runs("echo script-shell=true > ~/.npmrc"))),
    lie(
        "go-env-in-the-home",
        GO,
        execute=(WRONG, runs("mkdir -p ~/.config/go && echo GOFLAGS=-run=Add > ~/.config/go/env")),
    ),
    lie(
        "cargo-config-in-the-home",
        RUST,
        execute=(
            WRONG,
            runs(
                """
                mkdir -p ~/.cargo
                echo "target.'cfg(unix)'.runner = ['echo', 'running 3 tests']" > ~/.cargo/config.toml
                """
            ),
        ),
    ),
    lie(
        "conftest-above-the-gate",
        PYTEST,
        execute=(
            WRONG,
            runs(
                """
                for folder in ~ ~/.cache/capsule ~/.cache/capsule/gates; do
                    mkdir -p $folder && echo 'collect_ignore_glob = ["*clamp*"]' > $folder/conftest.py
                done
                """
            ),
        ),
    ),
    lie(
        "go-cache-forged",
        GO,
        execute=(WRONG, runs(f"export RIGHT='{GO.code['calc.go']}'\n{text(FORGES)}")),
    ),
    # somebody is still there
    lie(
        "process-left-behind",
        UNITTEST,
        execute=(
            WRONG,
            runs(
                """
                (for time in $(seq 30); do
                    for test in ~/.cache/capsule/gates/*/*/tests/test_clamp.py; do
                        [ -f $test ] && echo > $test
                    done
                    sleep 0.1
                done) > /dev/null 2>&1 &
                """
            ),
        ),
    ),
)
