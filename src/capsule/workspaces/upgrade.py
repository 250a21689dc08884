"""Put away what an earlier version left in the checkout: missions of a backlog used to work there."""

from __future__ import annotations

import os
import stat

from capsule.system.git import Git
from capsule.system.git_objects import ABSENT, CAPSULE, Difference
from capsule.workspaces.checkouts import bring_files, settle_index
from capsule.workspaces.repository import dirty_paths
from capsule.workspaces.salvage import keep_commit
from capsule.workspaces.trees import with_changes


def put_away_old_work(git: Git) -> list[str]:
    """Keep what was in the checkout when a run of an earlier version was killed, and take it off the files.

    Such a run wrote down that its agent was at work. The agent could change the tracker's files too, so they are as
    committed again. Returns the refs under which everything is kept.
    """
    kept = []
    for note in sorted((git.capsule_dir / "places").glob("*/at-work")):
        head = git.resolve("HEAD")
        dirty = dirty_paths(git, head=head)
        if dirty:
            held, date = git.tree_in(head), git.commit(head).committer_date
            there = with_changes(git, held, [_on_disk(git, path) for path in dirty])
            commit = git.commit_tree(there, [head], "left in the checkout", by=CAPSULE, date=date)
            kept.append(keep_commit(git, note.parent.name, commit, "left in the checkout by an earlier version"))
            bring_files(git, git.root, git.differences(there, held))
            settle_index(git, head)
        note.unlink()
    return kept


def _on_disk(git: Git, path: str) -> Difference:
    file, name = git.root / path, os.fsencode(path)
    try:
        mode = file.lstat().st_mode
    except OSError:
        return Difference(name, "D", (ABSENT, ""), (ABSENT, "0" * 40))
    if stat.S_ISLNK(mode):
        return Difference(name, "M", (ABSENT, ""), ("120000", git.write_blob(os.fsencode(file.readlink()))))
    blob = git.content("hash-object", "-w", "--", str(file))
    return Difference(name, "M", (ABSENT, ""), ("100755" if mode & 0o100 else "100644", blob.out.decode().strip()))
