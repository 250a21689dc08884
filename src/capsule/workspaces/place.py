"""The half of a mission's place that needs no files: named states, trees to look into, the gate, salvage.

`git_worktree` adds the worktree to it.

refs/capsule/base/<id>               where the mission started; made first, removed last: "this mission is ours"
refs/capsule/checkpoints/<id>        the newest named state; earlier ones are its ancestors
refs/capsule/salvage/<id>/<n>        what would have been lost
<common>/capsule/places/<id>/        our own index of the files, and notes: the base, copied files, set-ups
(`gate`)                             a folder of our own where claims are checked
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import Refused
from capsule.core.evidence import Change, Checkpoint
from capsule.core.hazards import AddedFile
from capsule.core.manifests import how_to_install, is_manifest, wanted_by
from capsule.system.files import write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import CAPSULE, Difference, RefMove, shown
from capsule.workspaces.added_files import added_files
from capsule.workspaces.checkouts import leads_astray
from capsule.workspaces.gate import Gate
from capsule.workspaces.mission_refs import RefReader
from capsule.workspaces.probe import strays
from capsule.workspaces.provision import Provisions
from capsule.workspaces.salvage import keep_commit
from capsule.workspaces.snapshot import Snapshots
from capsule.workspaces.trees import ARTEFACTS, graft, is_artefact, with_changes

PLAIN = "100644"


class GitTrees:
    """Answer from git's objects what trees hold and how they differ, without artefacts such as the tracker's files.

    `base` and `head` say where the mission started and stands.
    """

    def __init__(
        self,
        git: Git,
        branch: str,
        artefacts: Sequence[str],
        *,
        base: Callable[[], str],
        head: Callable[[], str],
    ) -> None:
        self._git = git
        self._branch = branch
        self._artefacts = artefacts
        self._base = base
        self._head = head
        self._added: dict[tuple[str, str], list[AddedFile]] = {}
        """By base and tree: the same tree is judged by several phases."""

    def changes(self, since: str, until: str) -> Sequence[Change]:
        differences = self.work_between(self._git.tree_of(since), self._git.tree_of(until))
        return [Change(shown(d.path), d.kind) for d in differences]

    def files(self, tree: str) -> Sequence[str]:
        return [shown(entry.path) for entry in self._git.list_tree(tree, recursive=True)]

    def odd_files(self, tree: str) -> set[str]:
        return {shown(e.path) for e in self._git.list_tree(tree, recursive=True) if e.mode != PLAIN}

    def added_files(self, tree: str) -> Sequence[AddedFile]:
        """Commits of the mission's branch are merged with all they hold."""
        head, onto = self._head(), self._base()
        trees = [*dict.fromkeys((*self.trees_between(onto, head), tree))]
        for key in ((onto, each) for each in trees if (onto, each) not in self._added):
            self._added[key] = added_files(self._git, *key)
        self._added = {(onto, each): self._added[onto, each] for each in trees}
        files = [file for each in trees for file in self._added[onto, each]]
        return [file for file in files if not is_artefact(file.path.encode(), self._artefacts)]

    def trees_between(self, base: str, *tips: str) -> list[str]:
        known = self._git.commits_since(base, *tips)
        if known is not None:
            return [commit.tree for commit in known]
        return self._git.content("log", "--format=%T", *tips, f"^{base}", "--").out.decode().split()

    def read(self, tree: str, path: str) -> bytes | None:
        return self._git.read_file(tree, path)

    def test_cache_key(self, tree: str) -> str:
        return tree

    def work_between(self, old: str, new: str) -> list[Difference]:
        return [d for d in self._git.differences(old, new) if not is_artefact(d.path, self._artefacts)]

    # What a human adds to what was approved

    def apply_human_edits(self, approved: str, left: str, now: str) -> str:
        return with_changes(self._git, approved, self.work_between(left, now))

    def rebased_tree(self, tree: str, onto: str) -> str:
        merged, _ = self.merged(tree, onto)
        return graft(self._git, merged, onto, self._artefacts)

    def merged(self, tree: str, onto: str) -> tuple[str, tuple[str, ...]]:
        base = self._base()
        if not self._git.is_ancestor(base, onto):
            # Rewritten: what the base held and `onto` does not was taken out there, and is no part of the work.
            base = self.commit(self._git.tree_in(base), [], "base")
            onto = self.commit(self._git.tree_in(onto), [base], "onto")
        work = self.commit(tree, [base], "work")
        return self._git.merge_trees(onto, work, called=self._branch)

    # Commits of ours

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        """By nobody in particular and as old as the base, so that the same state gives the same commit."""
        date = self._git.commit(self._base()).committer_date
        return self._git.commit_tree(tree, list(dict.fromkeys(filter(None, parents))), message, by=CAPSULE, date=date)


class GitPlace(ABC):
    """Names the states of a mission, and makes its gate."""

    _trees_type = GitTrees

    def __init__(
        self,
        git: Git,
        mission: str,
        path: Path,
        branch: str,
        *,
        artefacts: Sequence[str],
        provisions: Provisions,
        confined: bool,
    ) -> None:
        """`confined`: a sandbox keeps agents to the paths they are given."""
        self.path = path
        self.branch = branch
        self._git = git
        self._mission = mission
        self._artefacts = tuple(dict.fromkeys((*ARTEFACTS, *artefacts)))
        self._notes = git.capsule_dir / "places" / mission
        self._refs = RefReader(git, mission, self._notes / "base", branch)
        self._logs = git.root / ".capsule" / "missions" / mission
        self._provisions = provisions
        self._snapshots = Snapshots(git, path, self._notes)
        self._confined = confined
        self.trees = self._trees_type(git, branch, self._artefacts, base=self._base, head=self.head)
        self._gate = Gate(git, mission, self._notes, provisions, confined=confined)
        self._gated = False
        """The gate was entered since the last checkpoint, by tests that can reach this place as well."""
        self._base_commit = ""
        self._named: dict[str, tuple[str, str]] = {}

    @abstractmethod
    def head(self) -> str:
        """The commit the branch stands at, once it is where it belongs."""

    def base_checkpoint(self, base: str) -> Checkpoint:
        return Checkpoint(commit=base, head=base, tree=self._git.tree_in(base))

    # The gate

    def gate(self, tree: str) -> tuple[Path, SandboxPaths | None]:
        self._gated = not self._confined
        return self._gate.at(tree, self._base()), self._gate.sandbox_paths(self._base())

    def variables(self, folder: Path) -> Mapping[str, str]:
        base = self._base_commit or self._refs.standing().base
        at = self._git.root if self._confined else folder
        judged = folder != self.path
        return self._provisions.dependencies.variables(base, at, folder, judged=judged) if base else {}

    def missing_setup(self, tree: str) -> tuple[str, str]:
        dependencies, base = self._provisions.dependencies, self._base()
        if self._provisions.setup:
            return "", ""
        differing = [os.fsdecode(difference.path) for difference in self.trees.work_between(base, tree)]
        manifests = filter(is_manifest, differing)
        changed = [path for path in manifests if self._wanted_by(base, path) != self._wanted_by(tree, path)]
        return how_to_install(changed, dependencies.paths(base), self.trees.files(tree)) if changed else ("", "")

    def _wanted_by(self, tree: str, path: str) -> str:
        return wanted_by(path, (self._git.read_file(tree, path) or b"").decode(errors="replace"))

    def strays(self, tree: str, folder: Path, test: str, ask: Callable[[str], str]) -> Sequence[tuple[str, str]]:
        folders = self._provisions.dependencies.import_folders(self._base())
        return strays(self._git.root, folder, self.trees.files(tree), folders=folders, test=test, ask=ask)

    # What we write ourselves

    def write(self, path: str, content: bytes) -> None:
        file = self.path / path
        parts = PurePosixPath(path).parts
        if not parts or PurePosixPath(path).is_absolute() or {"..", ".git"} & set(parts):
            raise Refused(f"{path!r} is no path in the project.", "Give one relative to its root.")
        if is_artefact(path.encode(errors="surrogateescape"), self._artefacts):
            raise Refused(f"{path} is kept by Capsule and is no part of the work.", "Choose another path.")
        if leads_astray(self.path, file) or (file.exists() and not file.is_symlink() and not file.is_file()):
            raise Refused(f"{path} is not a plain file in {self.path}.", "Take away what stands in its place.")
        _make_folder(file.parent)
        write_atomically(file, content)

    # Where we stand

    def _base(self) -> str:
        if not self._base_commit:
            self._base_commit = self._refs.standing().base or self._refs.put_base_back()
            if not self._base_commit:
                raise Refused(f"There is no place for {self._mission} yet.", f"Make one: capsule prep {self._mission}")
        return self._base_commit

    def _set_base(self, base: str) -> None:
        self._base_commit = base
        self._refs.note_base(base)

    # Commits of ours

    def _name(self, tree: str, head: str, newest: str, label: str) -> str:
        """The newest checkpoint if it says the same, else a new one that has it for a parent."""
        if newest and self._said_by(newest) == (tree, head):
            return newest
        commit = self.trees.commit(tree, [head, newest], label)
        self._git.move_refs(RefMove(self._refs.checkpoint, commit, newest))
        self._named[commit] = (tree, head)
        return commit

    def _said_by(self, checkpoint: str) -> tuple[str, str]:
        """The tree and the head that a checkpoint names."""
        if checkpoint not in self._named:
            known = self._git.commit(checkpoint)
            self._named[checkpoint] = (known.tree, known.parents[0])
        return self._named[checkpoint]

    def _keep_if_lost(self, there: str, tips: Sequence[str], *, held: Sequence[str], why: str) -> str:
        """Salvages files and commits that no commit in `held` has."""
        files = all(self._has_more(there, than=self._git.tree_in(oid)) for oid in held)
        lost = [tip for tip in tips if tip and not any(self._git.is_ancestor(tip, oid) for oid in held)]
        return self._keep(there, [*lost, *held], why) if files or lost else ""

    def _has_more(self, there: str, *, than: str) -> bool:
        """A file that is merely missing is no loss."""
        return there != than and any(found.kind != "D" for found in self._git.differences(than, there))

    def _keep(self, tree: str, parents: Sequence[str], why: str) -> str:
        """A ref of its own for a state; the same state is kept once."""
        return keep_commit(self._git, self._mission, self.trees.commit(tree, parents, why), why)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} is no folder.", "Take away what stands in its place.") from error
