"""Put away what an earlier version left in the checkout: backlog missions used to work there."""

from __future__ import annotations

import os

from capsule.system.files import temp_path
from capsule.system.git import Git
from capsule.system.git_objects import CAPSULE
from capsule.workspaces.checkouts import bring_files, settle_index
from capsule.workspaces.repository import dirty_paths
from capsule.workspaces.salvage import keep_commit


def put_away_old_work(git: Git) -> list[str]:
    """Keep the changes in the checkout of a killed run of an earlier version, and revert the files.

    Such a run wrote down that its agent was at work. The agent could change the tracker's files too, so they are as
    committed again. Returns the refs under which everything is kept.
    """
    kept = []
    for note in sorted((git.capsule_dir / "places").glob("*/at-work")):
        head = git.resolve("HEAD")
        dirty = dirty_paths(git, head=head)
        if dirty:
            index, files = temp_path(note.parent), b"\0".join(map(os.fsencode, dirty))
            try:
                git.content("read-tree", head, index=index)
                git.content("update-index", "-z", "--add", "--remove", "--stdin", index=index, input=files)
                there = git.write_tree(index)
            finally:
                index.unlink(missing_ok=True)
            held, date = git.tree_in(head), git.commit(head).committer_date
            commit = git.commit_tree(there, [head], "left in the checkout", by=CAPSULE, date=date)
            kept.append(keep_commit(git, note.parent.name, commit, "left in the checkout by an earlier version"))
            bring_files(git, git.root, git.differences(there, held))
            settle_index(git, head)
        note.unlink()
    return kept
