"""The gate's own cache for Go: a second run is about as quick as one by hand, with and without a sandbox."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsule.system.git import Git
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import Bubblewrap, Level, homes
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.shell import SupervisedShell

FILES = {
    "go.mod": "module example.org/serve\n\ngo 1.21\n",
    "serve.go": """package serve

import (
	"fmt"
	"net/http"
)

func Serve(w http.ResponseWriter, n int) { fmt.Fprint(w, n) }
""",
    "serve_test.go": """package serve

import (
	"net/http/httptest"
	"testing"
)

func TestServe(t *testing.T) {
	seen := httptest.NewRecorder()
	Serve(seen, 3)
	if seen.Body.String() != "3" {
		t.Fatal(seen.Body)
	}
}
""",
}
MOST = 2.0
ROUNDS = 5


@dataclass
class Bench:
    root: Path
    place: GitWorktree
    shell: SupervisedShell

    @property
    def tree(self) -> str:
        git = Git.find(self.root)
        return git.tree_in(git.resolve("HEAD"))

    @property
    def by_hands(self) -> Path:
        """The cache of whoever works in the checkout."""
        return self.root.parent / "by-hand"

    def by_hand(self) -> float:
        began = time.perf_counter()
        env = os.environ | {"GOCACHE": str(self.by_hands)}
        subprocess.run(["go", "test", "-count=1", "./..."], cwd=self.root, env=env, check=True, capture_output=True)
        return time.perf_counter() - began

    def in_gate(self) -> float:
        """What the engine does for one run of the tests."""
        began = time.perf_counter()
        folder, paths, reports = self.place.gate(self.tree)
        env = self.place.variables(folder)
        log = self.root.parent / "tests.log"
        ran = self.shell.run("go test ./...", folder, log, timeout=600, env=env, sandbox_paths=paths, reports=reports)
        assert (ran.why, ran.exit_code) == ("exited", 0), ran.tail
        assert list(ran.report.passed) == ["example.org/serve::TestServe"], "no result is remembered"
        return time.perf_counter() - began


@pytest.fixture(params=["no sandbox", "bubblewrap"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if not shutil.which("go"):
        pytest.skip("go is not installed")
    level = Level()
    if request.param == "bubblewrap":
        level = Level(str(request.getfixturevalue("bubblewrap")), "bubblewrap", polite=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    root = tmp_path / "project"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    git = Git.find(root)
    sandbox = Bubblewrap(level, (str(root), str(git.common_dir)), homes(os.environ)) if level.program else None
    with ExitStack() as stack:
        supervisor = stack.enter_context(SupervisorClient())
        place = GitWorktree(git, "one", mounted=sandbox is not None, confined=sandbox is not None)
        place.prepare(git.resolve("HEAD"))
        yield Bench(root, place, SupervisedShell(supervisor, sandbox=sandbox))


@pytest.mark.promise("workflows.warm-caches")
def test_a_second_run_costs_at_most_twice_a_warm_one_by_hand(bench: Bench) -> None:
    cold = bench.in_gate()
    bench.place.keep_caches(bench.tree)
    compiled = bench.place.variables(bench.place.gate(bench.tree).folder)["GOCACHE"]
    shutil.copytree(compiled, bench.by_hands)
    bench.by_hand()  # it goes by the folder's path too
    warm = [(bench.in_gate(), bench.by_hand()) for _ in range(ROUNDS)]
    gate, hand = (min(column) for column in zip(*warm, strict=True))
    said = f"cold {cold:.1f} s, warm {gate:.2f} s, by hand {hand:.2f} s: {gate / hand:.2f} times"
    print(said)
    assert gate <= MOST * hand, said


@pytest.mark.promise("workflows.warm-caches")
def test_what_a_run_left_in_the_cache_is_gone_in_the_next(bench: Bench) -> None:
    folder, paths, reports = bench.place.gate(bench.tree)
    log, env = bench.root.parent / "tests.log", bench.place.variables(folder)
    forge = 'mkdir -p "$GOCACHE/ab" && echo forged > "$GOCACHE/ab/forged-a" && ls "$GOCACHE/ab"'
    ran = bench.shell.run(forge, folder, log, timeout=60, env=env, sandbox_paths=paths, reports=reports)
    assert ran.tail.split() == ["forged-a"]

    folder, paths, reports = bench.place.gate(bench.tree)
    ran = bench.shell.run('ls -A "$GOCACHE"', folder, log, timeout=60, env=env, sandbox_paths=paths, reports=reports)
    assert (ran.exit_code, ran.tail.split()) == (0, [])
