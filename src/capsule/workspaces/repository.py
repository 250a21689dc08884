"""Facts about the repository that a mission starts from."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Sequence

from capsule.core.errors import CapsuleError, Refused
from capsule.system.files import sweep_temps, temp_path, write_atomically
from capsule.system.git import EXCLUDED, Git
from capsule.system.git_objects import GITLINK, shown
from capsule.workspaces import checkouts
from capsule.workspaces.trees import is_artefact

_USUAL = ("main", "master")
_ORIGIN = "refs/remotes/origin"
_STATUS = ("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")


def main_branch(git: Git, configured: str = "auto") -> str:
    """Return the branch that work is merged into: as configured, else the remote's, else by its usual names."""
    branches = [name.removeprefix("refs/heads/") for name in git.refs("refs/heads")]
    if configured not in ("", "auto"):
        if configured in branches:
            return configured
        raise CapsuleError(f"project.main is {configured}, and there is no such branch.", _choices(branches))
    for name in (_head_of_origin(git), *_USUAL):
        if name and name in branches:
            return name
    raise CapsuleError("Cannot tell which branch is the main one.", _choices(branches))


def only_branch(git: Git) -> str:
    """Return the only branch, if nothing but the settings can say that it is the main one; else ''."""
    branch = git.checked_out()
    named = branch in _USUAL or _head_of_origin(git) or not branch.isprintable()
    return "" if named or {*git.refs("refs/heads")} - {f"refs/heads/{branch}"} else branch


def _head_of_origin(git: Git) -> str:
    """Ask git only if there may be an answer: a symbolic ref is always a file of its own."""
    if not (git.common_dir / _ORIGIN / "HEAD").exists() and not (git.common_dir / "reftable").exists():
        return ""
    answer = git.repository("symbolic-ref", "--quiet", f"{_ORIGIN}/HEAD", ok=(0, 1, 128))
    return answer.out.decode(errors="replace").strip().removeprefix(f"{_ORIGIN}/")


def refuse_if_gone(git: Git) -> None:
    """Refuse if the checked-out branch was deleted: a commit there would begin another history."""
    branch = git.checked_out()
    if branch and not git.ref(f"refs/heads/{branch}") and git.refs("refs"):
        hint = f"Make it again where it was: git branch {branch} COMMIT (git log --all lists what there is)"
        raise CapsuleError(f"The branch {branch} no longer exists, but the repository has commits.", hint)


def base_of(git: Git, ref: str = "HEAD") -> str:
    """Return the commit a mission starts from."""
    found = git.resolve(ref)
    if found:
        return found
    if ref == "HEAD":
        refuse_if_gone(git)
        raise CapsuleError("This repository has no commits yet.", 'git add -A && git commit -m "First commit"')
    raise CapsuleError(f"There is no commit called {ref}.", "List the branches there are: git branch --all")


def commit_command(message: str, paths: Sequence[str]) -> str:
    """Return the command that commits these paths, and nothing else that is staged."""
    named = shlex.join(paths)
    return f'git add {named} && git commit -m "{message}" -- {named}'


def ahead_of(git: Git, base: str, into: str) -> bool:
    """Tell whether the base holds commits that the branch merged into lacks."""
    return _lacks(git, git.resolve(f"refs/heads/{into}"), base)


def _lacks(git: Git, tip: str, base: str) -> bool:
    return tip != base and not git.is_ancestor(base, tip)


def refuse_if_ahead(git: Git, base: str, into: str) -> None:
    refuse_if_it_lacks(git, git.resolve(f"refs/heads/{into}"), base, into)


def refuse_if_it_lacks(git: Git, tip: str, base: str, into: str) -> None:
    if _lacks(git, tip, base):
        hint = f"Start from it with --base {into}, or merge into your own branch with --into BRANCH"
        raise CapsuleError(f"HEAD holds commits that {into} lacks; they would be merged too.", hint)


def refuse_if_rewritten(
    git: Git, mission: str, base: str, into: str, *, rebase: bool = False, fetched: str = ""
) -> None:
    """Refuse unless the target branch exists and holds the commit that the mission started from.

    `fetched` is its tip if it is the branch of a remote.
    """
    tip = fetched or git.ref(f"refs/heads/{into}")
    if not tip:
        others = f"or start over into another one: capsule run {mission} --fresh --into BRANCH"
        raise Refused(
            f"The target branch {into} of {mission} no longer exists.",
            f"Make it again where it was (git branch {into} COMMIT; {mission} started from {base[:12]}), {others}",
        )
    cut_off = (git.common_dir / "shallow").exists()
    if not rebase and not git.is_ancestor(base, tip) and not cut_off:  # a shallow clone is deepened when it merges
        raise Refused(
            f"{into} was rewritten: it no longer holds {base[:12]}, which {mission} started from.",
            f"Rebuild the work on it: capsule run {mission} --rebase",
        )


def refuse_if_under_way(git: Git) -> None:
    if found := checkouts.under_way(git.git_dir, bisect=True):
        raise CapsuleError(f"{found[0].capitalize()} is under way in {git.root}.", f"Finish it first: {found[1]}")


def dirty_paths(git: Git, own_files: Sequence[str] = (), *, head: str = "") -> list[str]:
    """List what is changed, staged or new in the main checkout; the tracker's files and ours never count."""
    head, index = head or git.resolve("HEAD"), temp_path(git.capsule_dir / "git")
    index.parent.mkdir(parents=True, exist_ok=True)
    try:
        # On a copy, so as not to wait for or block a git of the user's.
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(git.git_dir / "index", index)
        listed = git.content(*_STATUS, index=index).out
    finally:
        index.unlink(missing_ok=True)
    found, staged = _read_status(listed)
    files = git.list_tree(head, recursive=True) if head else []
    held = {entry.path: (entry.mode, entry.oid) for entry in files if entry.mode != GITLINK}
    found |= {path for path in {**staged, **held} if staged.get(path) != held.get(path)}
    apart = (".capsule/worktrees", ".capsule/missions", ".capsule/backlog", "worklog.md", *own_files)
    return sorted(shown(path) for path in found if path and not is_artefact(path, apart))


def settled_dirty_paths(git: Git, own_files: Sequence[str]) -> list[str]:
    """List the same, without what another mission is writing just now: its branch moves before its files do."""
    if not dirty_paths(git, own_files):
        return []
    with checkouts.locked(git, "backlog"), checkouts.locked(git, "main"):
        return dirty_paths(git, own_files)


def exclude_artefacts(git: Git, base: str, *, worklog: bool = True) -> None:
    """Have git ignore what Capsule puts into a project, by a file that belongs to this clone alone."""
    if worklog and any(entry.path == b"worklog.md" for entry in git.list_tree(base)):
        hint = "Rename it (git mv worklog.md docs/worklog.md), commit, and start again."
        raise Refused("This project tracks a worklog.md of its own, and missions keep theirs there.", hint)
    file = git.common_dir / "info" / "exclude"
    text = file.read_text(errors="surrogateescape") if file.exists() else ""
    wanted = EXCLUDED if worklog else EXCLUDED[:-1]
    missing = [line for line in wanted if line not in text.splitlines()]
    if missing:
        file.parent.mkdir(exist_ok=True)
        sweep_temps(file.parent)
        ended = text if not text or text.endswith("\n") else text + "\n"
        write_atomically(file, (ended + "\n".join(missing) + "\n").encode(errors="surrogateescape"))


def _choices(branches: Sequence[str]) -> str:
    listed = ", ".join(branches[:10]) or "none yet: commit something first"
    return f"Name it in .capsule/config.yaml: `project: {{main: BRANCH}}`. Branches: {listed}"


def _read_status(listing: bytes) -> tuple[set[bytes], dict[bytes, tuple[str, str]]]:
    """Return the paths that are changed on disk, in conflict or new; and the index, by path.

    The git directory of our own has no commit: all that the index holds counts as added, and its mode and id are told.
    """
    differing: set[bytes] = set()
    staged: dict[bytes, tuple[str, str]] = {}
    for row in filter(None, listing.split(b"\0")):
        if row[:1] in b"?u":
            differing.add(row[2:] if row[:1] == b"?" else row.split(b" ", 10)[10])
            continue
        _, states, _, _, mode, _, _, oid, path = row.split(b" ", 8)
        if mode.decode() != GITLINK:
            if states[:1] != b".":
                staged[path] = (mode.decode(), oid.decode())
            if states[1:] != b".":
                differing.add(path)
    return differing, staged
