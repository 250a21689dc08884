"""A repository without git: agents work in plain folders, and trees, commits and branches are held in memory.

For tests of what the engine decides. tests/contracts/test_memory_place.py holds it, beside git, to what the engine
relies on; what only git can be asked (hostile names, hooks, kills, checkouts) is asked of git there.

An agent commits by leaving a file `.commit` that lists paths, one per line.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from capsule.adapters import BranchStep, Candidate, Draft, Published, TestSite
from capsule.core.briefing import SandboxPaths
from capsule.core.errors import Refused, WorkspaceBroken
from capsule.core.evidence import Change, Checkpoint
from capsule.core.hazards import AddedFile
from capsule.core.merge_queue import is_batch, step_name
from capsule.workspaces.trees import ARTEFACTS, is_artefact

File = tuple[str, bytes]
"""A mode, as git writes it, and the content; of a link, where it leads."""
Tree = dict[str, File]
_COMMIT = ".commit"
_PLAIN, _PROGRAM, _LINK = "100644", "100755", "120000"


@dataclass(frozen=True)
class Commit:
    tree: str
    parents: tuple[str, ...]
    message: str


def _name(*parts: object) -> str:
    return hashlib.sha1(repr(parts).encode(), usedforsecurity=False).hexdigest()


def _is_work(path: str) -> bool:
    return not is_artefact(path.encode(), ARTEFACTS)


@dataclass
class MemoryRepository:
    root: Path
    trees: dict[str, Tree] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    salvaged: dict[str, str] = field(default_factory=dict)

    def add_tree(self, files: Mapping[str, File]) -> str:
        tree = dict(sorted(files.items()))
        name = _name("tree", list(tree.items()))
        self.trees[name] = tree
        return name

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        commit = Commit(tree, tuple(parents), message)
        name = _name("commit", commit)
        self.commits[name] = commit
        return name

    def commit_files(self, branch: str, message: str = "more", **files: str) -> str:
        """What a person commits, as name=text, with __ for a dot."""
        tip = self.branches.get(branch, "")
        new = {name.replace("__", "."): (_PLAIN, text.encode()) for name, text in files.items()}
        tree = self.add_tree({**(self.files(tip) if tip else {}), **new})
        self.branches[branch] = self.commit(tree, [tip] if tip else [], message)
        return self.branches[branch]

    def tree_of(self, name: str) -> str:
        return self.commits[name].tree if name in self.commits else name

    def files(self, name: str) -> Tree:
        return self.trees[self.tree_of(name)]

    def history(self, tip: str) -> Iterator[str]:
        seen, left = set(), [tip]
        while left:
            if (commit := left.pop()) not in seen:
                seen.add(commit)
                left += self.commits[commit].parents
                yield commit

    def graft(self, tree: str, artefacts: str) -> str:
        """One tree's work with another one's artefacts."""
        work = {path: file for path, file in self.files(tree).items() if _is_work(path)}
        kept = {path: file for path, file in self.files(artefacts).items() if not _is_work(path)}
        return self.add_tree(work | kept)

    def merged(self, base: str, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
        """File by file; one that both changed is a conflict, and holds markers."""
        old, left, right = self.files(base), self.files(ours), self.files(theirs)
        result, conflicts = {}, []
        for path in sorted({*old, *left, *right}):
            was, one, other = old.get(path), left.get(path), right.get(path)
            chosen = other if one == was else one
            if one not in (was, other) and other != was:
                conflicts.append(path)
                texts = [file[1] if file else b"" for file in (one, other)]
                chosen = (_PLAIN, b"<<<<<<< ours\n%s=======\n%s>>>>>>> theirs\n" % tuple(texts))
            if chosen:
                result[path] = chosen
        return self.add_tree(result), tuple(conflicts)

    def write_out(self, name: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path, (mode, content) in self.files(name).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if mode == _LINK:
                file.symlink_to(content.decode())
            else:
                file.write_bytes(content)
                file.chmod(int(mode[-3:], 8))

    def read_in(self, folder: Path) -> str:
        found = {}
        for file in folder.rglob("*"):
            if file.is_symlink():
                found[str(file.relative_to(folder))] = (_LINK, str(file.readlink()).encode())
            elif file.is_file():
                mode = _PROGRAM if file.stat().st_mode & 0o100 else _PLAIN
                found[str(file.relative_to(folder))] = (mode, file.read_bytes())
        return self.add_tree(found)


class MemoryTrees:
    """The Trees adapter; `base` and `head` say where the mission started and stands."""

    def __init__(self, repository: MemoryRepository, base: Callable[[], str], head: Callable[[], str]) -> None:
        self._repository, self._base, self._head = repository, base, head

    def changes(self, since: str, until: str) -> Sequence[Change]:
        old, new = self._repository.files(since), self._repository.files(until)
        differing = [path for path in sorted({*old, *new}) if old.get(path) != new.get(path) and _is_work(path)]
        return [Change(path, _kind(old.get(path), new.get(path))) for path in differing]

    def files(self, tree: str) -> Sequence[str]:
        return list(self._repository.files(tree))

    def odd_files(self, tree: str) -> set[str]:
        return {path for path, (mode, _) in self._repository.files(tree).items() if mode != _PLAIN}

    def added_files(self, tree: str) -> Sequence[AddedFile]:
        known = {*self._repository.history(self._base())}
        between = [self._repository.tree_of(c) for c in self._repository.history(self._head()) if c not in known]
        old, found = self._repository.files(self._base()), []
        for each in dict.fromkeys((*between, tree)):
            new = self._repository.files(each)
            for change in self.changes(self._base(), each):
                if change.path in new:
                    mode, content = new[change.path]
                    before = old[change.path][1].splitlines() if change.path in old else []
                    added = [line for line in content.splitlines() if line not in before]
                    found.append(AddedFile(change.path, mode, b"\n".join(added).decode(errors="replace")))
        return found

    def read(self, tree: str, path: str) -> bytes | None:
        file = self._repository.files(tree).get(path)
        return file[1] if file else None

    def test_cache_key(self, tree: str) -> str:
        return tree

    def apply_human_edits(self, approved: str, left: str, now: str) -> str:
        files, new = dict(self._repository.files(approved)), self._repository.files(now)
        for change in self.changes(left, now):
            files.pop(change.path, None)
            if change.path in new:
                files[change.path] = new[change.path]
        return self._repository.add_tree(files)

    def rebased_tree(self, tree: str, onto: str) -> str:
        return self._repository.graft(self._repository.merged(self._base(), onto, tree)[0], onto)


class MemoryGuard:
    """The Guard adapter: there is nothing outside of the place that an agent could reach."""

    def snapshot(self) -> Sequence[str]:
        return ()

    def restore(self) -> Sequence[str]:
        return ()

    def release(self) -> None:
        """Forget nothing."""


class MemoryPlace:
    """The Place adapter for work that is merged at the end."""

    publishes_to = ""

    def __init__(self, repository: MemoryRepository, mission: str) -> None:
        self.path = repository.root / ".capsule" / "worktrees" / mission
        self.branch = f"capsule-{mission}"
        self._repository, self._mission = repository, mission
        self._base = ""
        self.trees = MemoryTrees(repository, lambda: self._base, self.head)
        self.guard = MemoryGuard()

    def prepare(self, base: str) -> Sequence[str]:
        self._base = self._base or base
        head = self._repository.branches.setdefault(self.branch, base)
        if not self.path.is_dir():
            self._repository.write_out(head, self.path)
        return []

    def restore(self, checkpoint: Checkpoint) -> str:
        kept = ""
        if self.path.is_dir():
            found, wanted = self._there(), self._repository.files(checkpoint.commit)
            lost = any(wanted.get(path) != file for path, file in self._repository.files(found).items())
            kept = self._keep(found, "before a phase") if lost else ""
        self._repository.write_out(checkpoint.commit, self.path)
        self._repository.branches[self.branch] = checkpoint.head
        return kept

    def follow(self, checkpoint: Checkpoint) -> None:
        """Stay: the work stands on its own base until it is merged."""

    def worklog(self) -> str:
        file = self.path / "worklog.md"
        return file.read_text() if file.is_file() else ""

    def write_worklog(self, text: str) -> None:
        self._require_whole()
        (self.path / "worklog.md").write_text(text)

    def tree(self) -> str:
        return self._repository.graft(self._there(), self._base)

    def checkpoint(self, label: str) -> Checkpoint:
        everything, head = self._there(), self.head()
        commit = self._repository.commit(everything, [head], label)
        return Checkpoint(commit, head, self._repository.graft(everything, self._base))

    def delivered(self, checkpoint: Checkpoint) -> str:
        if checkpoint.commit == checkpoint.head:
            return checkpoint.tree
        return self._repository.graft(checkpoint.commit, self._base)

    def base_checkpoint(self, base: str) -> Checkpoint:
        return Checkpoint(base, base, self._repository.tree_of(base))

    def beginning(self, base: str) -> Checkpoint:
        return self.base_checkpoint(base)

    def touched_outside_commit(self) -> Sequence[str]:
        return [change.path for change in self.trees.changes(self.head(), self.tree())]

    def head(self) -> str:
        self._require_whole()
        return self._repository.branches[self.branch]

    def gate(self, tree: str, edits: Mapping[str, bytes] | None = None) -> TestSite:
        place = self._repository.root / ".capsule" / "gates" / self._mission
        self._repository.write_out(tree, place)
        for path, content in (edits or {}).items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        reports = place.with_name(f"{self._mission}+reports")
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir(parents=True)
        return TestSite(place, None, reports)

    def variables(self, folder: Path) -> Mapping[str, str]:
        return {}

    def keep_caches(self, tree: str) -> None:
        """It has none."""

    def missing_setup(self, tree: str) -> tuple[str, str]:
        return "", ""

    def strays(self, tree: str, folder: Path, test: str, ask: Callable[[str], str]) -> Sequence[tuple[str, str]]:
        return ()

    def rebase(self, onto: str, message: str = "") -> tuple[Checkpoint, Sequence[str]]:
        before = self.checkpoint("before a rebase")
        merged, conflicts = self._repository.merged(self._base, onto, before.tree)
        everything, work = self._repository.graft(merged, before.commit), self._repository.graft(merged, onto)
        rebuilt = message and not conflicts and work != self._repository.tree_of(onto)
        head = self._repository.commit(work, [onto], f"{message}\n") if rebuilt else onto
        commit = self._repository.commit(everything, [head, before.commit], "rebased")
        checkpoint = Checkpoint(commit, head, work)
        self.restore(checkpoint)
        self._base = onto
        return checkpoint, conflicts

    def write(self, path: str, content: bytes) -> None:
        if path.startswith("/") or {"..", ".git"} & set(path.split("/")) or not _is_work(path):
            raise Refused(f"{path!r} is no path of the work.", "Choose another path.")
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:
        work, head = self.delivered(checkpoint), self.head()
        if self._repository.tree_of(head) != work:
            self._repository.branches[self.branch] = self._repository.commit(work, [head], f"{message}\n\n{key}")
        return None

    def checkpoint_at(self, commit: str) -> Checkpoint:
        return self.checkpoint("settled")

    def hooks(self, tree: str, message: str) -> tuple[bool, str] | None:
        return None

    def open_sandbox(self) -> SandboxPaths:
        self._require_whole()
        return SandboxPaths()

    def import_commits(self) -> None:
        """Import what the agent committed."""
        self._require_whole()
        listed = self.path / _COMMIT
        if not listed.is_file():
            return
        paths = listed.read_text().splitlines()
        listed.unlink()
        there, files = self._repository.files(self._there()), dict(self._repository.files(self.head()))
        for path in [*files, *there] if paths == ["."] else paths:
            files.pop(path, None)
            if path in there and _is_work(path):
                files[path] = there[path]
        commit = self._repository.commit(self._repository.add_tree(files), [self.head()], "by an agent")
        self._repository.branches[self.branch] = commit

    def notices(self) -> Sequence[str]:
        return ()

    def salvage_and_reset(self, why: str) -> str:
        return ""

    def salvage(self, why: str) -> str:
        tip = self._repository.branches.get(self.branch, "")
        if not tip:
            return ""
        there = self._there() if self.path.is_dir() else self._repository.tree_of(tip)
        new = any(self.trees.changes(self._base, tree) for tree in (there, tip))
        return self._keep(there, why) if new else ""

    def remove(self, *, branch: bool) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if branch:
            self._repository.branches.pop(self.branch, None)
            self._base = ""

    def _keep(self, tree: str, why: str) -> str:
        ref = f"refs/capsule/salvage/{self._mission}/{len(self._repository.salvaged) + 1}"
        self._repository.salvaged[ref] = self._repository.commit(tree, [], why)
        return ref

    def _there(self) -> str:
        self._require_whole()
        return self._repository.read_in(self.path)

    def _require_whole(self) -> None:
        if not self.path.is_dir():
            raise WorkspaceBroken(f"The worktree {self.path} is broken: it is gone.")


def _kind(old: File | None, new: File | None) -> str:
    if old is None or new is None:
        return "A" if old is None else "D"
    return "T" if (old[0] == _LINK) != (new[0] == _LINK) else "M"


class MemoryTrunk:
    """The Trunk adapter on a branch in memory."""

    at_remote = ""

    def __init__(self, repository: MemoryRepository, branch: str) -> None:
        self.branch = branch
        self._repository = repository

    def refresh(self) -> None:
        pass

    def tip(self) -> str:
        return self._repository.branches[self.branch]

    def holds(self, commit: str) -> bool:
        return commit in self._repository.history(self.tip())

    def tree(self, commit: str = "") -> str:
        return self._repository.commits[commit or self.tip()].tree

    def propose(
        self, tip: str, base: str, message: str, draft: Draft | None = None, subject: str = "", *, onto: str = ""
    ) -> Candidate:
        assert draft is None, "a tracker that keeps its state in the project needs git"
        onto = onto or self.tip()
        if not self.holds(base):
            raise Refused(f"{self.branch} was rewritten.", "Rebuild the work on it: run with --rebase")
        merged, conflicts = self._repository.merged(base, onto, tip)
        said = self._repository.commits[tip]
        if subject and tip != base and said.message.partition("\n")[0] != subject:
            tip = self._repository.commit(said.tree, said.parents, f"{subject}\n\n{said.message.strip()}\n")
        tree = self._repository.graft(merged, onto)
        return Candidate(self._repository.commit(tree, [onto, tip], message), tree, onto, conflicts)

    def gather(self, last: str, onto: str, message: str) -> Candidate:
        tree = self.tree(last)
        return Candidate(self._repository.commit(tree, [onto, last], message), tree, onto)

    def steps(self, base: str, tip: str) -> list[BranchStep]:
        found = list[BranchStep]()
        while tip != base:
            commit = self._repository.commits[tip]
            made = (
                self.steps(*commit.parents)
                if is_batch(commit.parents, commit.message)
                else [BranchStep(tip, step_name(tip, commit.parents, commit.message))]
            )
            found, tip = [*made, *found], commit.parents[0]
        return found

    def publish(self, candidate: Candidate, works: Mapping[str, str] | None = None) -> Published:
        if candidate.conflicts:
            raise Refused(f"The merge into {self.branch} has conflicts.", "Rebuild the work on it: run with --rebase")
        if self.tip() == candidate.onto:
            self._repository.branches[self.branch] = candidate.commit
        return Published(moved=self.holds(candidate.commit))

    def about_to_move(self) -> AbstractContextManager[None]:
        return nullcontext()

    def kept_still(self) -> AbstractContextManager[None]:
        return nullcontext()
