"""The branch that keeps the state of a backlog where main takes requests only, and its checkout in `.capsule/backlog`.

It has a history of its own, which holds the files of the tracker and the documents of items alone: it cannot
be merged into main by accident, and a push to it starts none of the checks that the files of main define. Its first
commit has what main had when the first command wrote to it. The copy that may be left on main is not read any more.

The checkout is a linked worktree on a branch of the same name, so that people see and edit the backlog as files. It can
be removed at any time, and is made again from what is known here, or at the remote.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from capsule.core.errors import Refused, RemoteFault
from capsule.core.remote import Kind, Trouble
from capsule.system.clock import SystemClock
from capsule.system.files import NotRegular, read_regular
from capsule.system.git import Git
from capsule.system.git_objects import RefMove
from capsule.workspaces.checkouts import bring_along, locked, passes_link
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.remote import Remote
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.trees import graft, with_files

FOLDER = ".capsule/backlog"
FIRST = "The state of the backlog"
_FILE = "BACKLOG.yaml"
_LARGEST = 64 * 1024 * 1024
_PATIENCE = 15.0
"""Seconds for a question by commands that only read."""
_HELPS = {
    Kind.REFUSED: "The state of a backlog needs a branch that you may push to; `merge.state_branch` names it.",
    Kind.ABSENT: "Name what there is in .capsule/config.yaml: `merge.remote` and `merge.branch` (git remote -v)",
    Kind.OFFLINE: "Run the same command again once it answers.",
}


class StateBranch:
    """A branch at a remote that has the state of a backlog, and its checkout here."""

    def __init__(self, git: Git, remote: str, branch: str, main: Callable[[], str], *, empty: bytes) -> None:
        """`main` names the branch at the remote that requests go to: this one begins with what that has, or with an
        `empty` backlog."""
        self.branch = branch
        self._main = main
        self._empty = empty
        self.folder = git.root / FOLDER
        self._git = git
        self._remote = remote
        self._linked = LinkedWorktree(git, self.folder, branch)
        self._found: Git | None = None
        self._asked = False

    @property
    def label(self) -> str:
        return f"{self._remote}/{self.branch}"

    def checkout(self) -> Git | None:
        """Return the repository as seen from the checkout; None if that is not there."""
        entry = self._linked.whole()
        if entry is None or not (entry / "index").exists():
            self._found = None
        elif self._found is None:
            self._found = self._git.seen_from(self.folder, entry)
        return self._found

    def look(self) -> Git | None:
        """Return the checkout; make it if the branch is known here, or is found at the remote."""
        if here := self.checkout():
            return here
        self._refuse_main()
        tip = self._known()
        if not tip and not self._asked:
            self._asked = True
            remote = Remote(self._git, self._remote, transfer=_PATIENCE, look=_PATIENCE)
            found = remote.fetch(self.branch) if remote.url else ""
            tip = "" if isinstance(found, Trouble) else found
        return self._check_out(tip) if tip else None

    def require(self, remote: Remote, own: Sequence[str]) -> Git:
        """Return the checkout; begin the branch at the remote if nobody has. `own` are the tracker's files."""
        if here := self.checkout():
            return here
        self._refuse_main()
        there = remote.refs(f"refs/heads/{self.branch}")
        tip = self._demand(there if isinstance(there, Trouble) else remote.fetch(self.branch) if there else "")
        if not tip:
            onto = self._demand(remote.fetch(self._main()))
            tip = self._begin(remote, onto, f"{remote.name}/{self._main()}", own)
        return self._check_out(tip)

    def _refuse_main(self) -> None:
        if self.branch == self._main():
            hint = "Name another one in .capsule/config.yaml: `merge.state_branch`"
            raise Refused(f"{self.label} takes the requests, so it cannot keep the state of the backlog.", hint)

    def _demand(self, answer: str | Trouble) -> str:
        if isinstance(answer, Trouble):
            raise RemoteFault(self.label, answer, _HELPS.get(answer.kind, "Run the same command again."))
        return answer

    # The first commit

    def _begin(self, remote: Remote, main: str, label: str, own: Sequence[str]) -> str:
        """Create the branch at the remote, unless another clone is faster; return where it is."""
        git, date = self._git, SystemClock().now()
        tree = self._first_tree(main, label, own)
        if git.entry_at(tree, os.fsencode(own[0])) is None:
            tree = with_files(git, tree, {own[0]: self._empty})
        made = git.commit_tree(tree, [], f"{FIRST}\n\nAs of {label} at {main[:12]}.\n", by=git.identity, date=date)
        trouble = remote.create(made, f"refs/heads/{self.branch}")
        if trouble and trouble.kind is Kind.LOST:
            return self._demand(remote.fetch(self.branch))
        self._demand(trouble or "")
        remote.note_pushed(self.branch, made, "")
        return made

    def _first_tree(self, main: str, label: str, own: Sequence[str]) -> str:
        """Return the tracker's files as main has them, or as they are here if only that is newer."""
        git = self._git
        head = git.resolve("HEAD")
        met = git.merge_base(head, main) if head else ""
        here, ours, theirs = self._on_disk(own), self._only(head, own), self._only(main, own)
        before = self._only(met, own)
        if theirs in (here, before) or theirs == git.make_tree(()):
            return here
        if here == ours == before:
            return theirs
        cause = f"{own[0]} differs here and on {label}, so it is unclear which of them {self.label} begins with."
        raise Refused(cause, "Bring your branch up to date first (git pull --rebase), then run the same command again.")

    def _only(self, commit: str, own: Sequence[str]) -> str:
        """Return a tree of the tracker's files alone, as a commit has them."""
        nothing = self._git.make_tree(())
        return graft(self._git, nothing, commit, own) if commit else nothing

    def _on_disk(self, own: Sequence[str]) -> str:
        top = self._git.root
        places = [place for name in own for place in (top / name, *sorted((top / name).rglob("*")))]
        paths = [place.relative_to(top) for place in places if place.is_symlink() or place.is_file()]
        files = {path.as_posix(): self._read(path) for path in paths}
        return with_files(self._git, self._git.make_tree(()), files, filtered=True)

    def _read(self, path: Path) -> bytes:
        top = self._git.root
        try:
            if passes_link(top, top / path):
                raise NotRegular(0, "it lies behind a link")
            return read_regular(top / path, _LARGEST)
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}.", "Put a plain file there.") from None

    # The checkout

    def _known(self) -> str:
        """Return the tip as far as it is known here."""
        refs = (
            f"refs/heads/{self.branch}",
            f"refs/capsule/remote/{self._remote}/{self.branch}",
            f"refs/remotes/{self._remote}/{self.branch}",
        )
        found = self._git.refs(*refs)
        return next((found[ref] for ref in refs if ref in found), "")

    def _check_out(self, tip: str) -> Git:
        """Make branch and checkout, or complete them; a branch that is there stays where it is."""
        git, ref = self._git, f"refs/heads/{self.branch}"
        with locked(git, "state"):
            if here := self.checkout():
                return here
            if not git.ref(ref):
                git.move_refs(RefMove(ref, tip, ""), why=f"capsule: as {self.label}")
            self._refuse_if_checked_out()
            exclude_artefacts(git, "", worklog=False)
            entry, _ = self._linked.ensure(tip)
            here = git.seen_from(self.folder, entry)
            bring_along(here, self.branch, git.make_tree(()), git.ref(ref))
            if not (entry / "index").exists():
                here.content("read-tree", "--empty", index=entry / "index", worktree=self.folder)
            self._found = here
        return here

    def _refuse_if_checked_out(self) -> None:
        for checkout in self._git.checkouts():
            if checkout.branch == self.branch and checkout.path != self.folder and checkout.path.exists():
                way = f"git -C {shlex.quote(str(checkout.path))} switch NAME"
                raise Refused(f"{self.branch} is checked out in {checkout.path}.", f"Switch to another branch: {way}")

    def files(self, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Read the plain files of the checkout that are wanted, by their paths; links are never followed."""
        found: dict[str, bytes] = {}
        for path in sorted(self.folder.rglob("*")) if self.checkout() else ():
            name = path.relative_to(self.folder).as_posix()
            if wanted(name) and not passes_link(self.folder, path):
                with suppress(OSError):  # a folder, a link, or not to be read
                    found[name] = read_regular(path, _LARGEST)
        return found

    # What is left elsewhere

    def left_on_main(self) -> str:
        """Name the file that main had before this branch, and has still as far as is known here; '' if it is gone."""
        main = self._main()
        refs = (f"refs/capsule/remote/{self._remote}/{main}", f"refs/heads/{main}")
        found = self._git.refs(*refs)
        tip = next((found[ref] for ref in refs if ref in found), "")
        return _FILE if tip and self._git.entry_at(tip, os.fsencode(_FILE)) else ""

    def stray(self) -> str:
        """Warn of an edited BACKLOG.yaml in the user's own checkout: nothing reads it there; '' if there is none."""
        git, head, file = self._git, self._git.resolve("HEAD"), self._git.root / _FILE
        if self.checkout() is None or file.is_symlink() or not file.is_file():
            return ""
        held = git.entry_at(git.tree_in(head), os.fsencode(_FILE)) if head else None
        if held and held.oid == git.blob_of(file):
            return ""
        return f"{_FILE} is edited in your checkout, and not read there: the backlog is {FOLDER}/{_FILE}"
