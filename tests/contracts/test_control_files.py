"""What steers git is as it was after a phase; what is the user's stays, whenever they changed it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capsule.core.errors import WorkspaceBroken
from capsule.system import roll
from capsule.system.git import Git
from capsule.system.lock import FileLock
from capsule.workspaces.checkout import Checkout
from capsule.workspaces.control_files import put_right_after_a_crash
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.ours import note_as_ours

from ..conftest import Repo

ITEM = "x-1"
VOLATILE = ("index", "ORIG_HEAD", "COMMIT_EDITMSG")


@pytest.fixture
def a_watched_place(a_repo: Repo) -> Iterator[GitWorktree]:
    """A worktree, prepared, and a phase that has begun."""
    a_repo.git("config", "user.name", "Ada")
    a_repo.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    a_repo.write(".git/hooks/pre-commit", "#!/bin/sh\necho husky\n").chmod(0o755)
    for module in ("lib/a", "lib/a/modules/b"):
        a_repo.write(f".git/modules/{module}/HEAD", "ref: refs/heads/main\n")
        a_repo.write(f".git/modules/{module}/config", "[core]\n\tbare = false\n")
    place = GitWorktree(Git.find(a_repo.path), ITEM)
    place.prepare(a_repo.head())
    place.watch()
    yield place
    place.stand_down()


def shell(command: str, cwd: Path) -> None:
    subprocess.run(["sh", "-ec", command], cwd=cwd, check=True, capture_output=True)


def control_files(repo: Repo) -> dict[str, bytes]:
    folder = repo.path / ".git"
    names = (
        "config",
        "config.worktree",
        "HEAD",
        "info/exclude",
        "info/attributes",
        "shallow",
        "objects/info/alternates",
        "commondir",
        "packed-refs",
    )
    paths = [*(folder / name for name in names), *(folder / "hooks").iterdir(), *folder.glob("worktrees/*/*")]
    paths += [p for p in folder.glob("modules/**/*") if "objects" not in p.parts]
    paths += [*(folder / "capsule/git").iterdir(), *(folder / "capsule/git/info").iterdir()]
    steering = [p for p in paths if p.is_file() and p.suffix != ".sample" and p.name not in VOLATILE]
    found = {str(p.relative_to(folder)): p.read_bytes() for p in steering}
    return found | {
        "main": repo.head("main").encode(),
        "replaced": b" ".join(map(str.encode, repo.refs("refs/replace"))),
    }


PLANTED = {
    "a setting that names a program": ("git config core.fsmonitor ./evil", "core.fsmonitor"),
    "where hooks are": ("git config core.hooksPath /tmp/evil", "core.hookspath"),
    "a filter": ("git config filter.zz.clean evil", "filter.zz.clean"),
    "another program for a filter of the user's": ("git config filter.lfs.clean evil", "filter.lfs.clean"),
    "a merge driver": ("git config merge.zz.driver evil", "merge.zz.driver"),
    "another file of settings": ("git config include.path /tmp/evil", "include.path"),
    "an alias that is a program": ("git config alias.st '!evil'", "alias.st"),
    "an alias that leads to a program": ("git config alias.st 'grep -Oevil 4'", "alias.st"),
    "a program that packs": ("git config tar.tgz.command evil", "tar.tgz.command"),
    "a hook by its settings": ("git config hook.zz.command evil", "hook.zz.command"),
    "a program that knows what is young": ("git config gc.recentObjectsHook evil", "gc.recentobjectshook"),
    "a tunnel": ("git config imap.tunnel evil", "imap.tunnel"),
    "a program that sends mail": ("git config sendemail.smtpServer /tmp/evil", "sendemail.smtpserver"),
    "a program that transfers": ("git config lfs.customtransfer.zz.path evil", "lfs.customtransfer.zz.path"),
    "a program that shows what differs": ("git config difftool.zz.cmd evil", "difftool.zz.cmd"),
    "a repository with hooks to push to": ("git config remote.theirs.pushurl /tmp/evil.git", "remote.theirs.pushurl"),
    "another repository to fetch from": ("git config remote.theirs.url ../evil.git", "remote.theirs.url"),
    "a program to push to": ("git config remote.theirs.url 'ext::evil'", "remote.theirs.url"),
    "a program for fetching": ("git config remote.origin.uploadpack evil", "remote.origin.uploadpack"),
    "settings of a worktree": (
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor evil",
        "core.fsmonitor",
    ),
    "settings that git cannot read": ('echo "[" >> "$COMMON/config"', "cannot read"),
    "no settings": ('rm "$COMMON/config"', ".git/config was removed"),
    "a hook": ('echo evil > "$COMMON/hooks/post-checkout"', "hooks/post-checkout appeared"),
    "another text for a hook": ('echo evil >> "$COMMON/hooks/pre-commit"', "hooks/pre-commit was changed"),
    "a hook that runs no more": ('chmod -x "$COMMON/hooks/pre-commit"', "hooks/pre-commit was changed"),
    "no hook": ('rm "$COMMON/hooks/pre-commit"', "hooks/pre-commit was removed"),
    "a folder of hooks elsewhere": (
        'mv "$COMMON/hooks" ../h && ln -s "$PWD/../h" "$COMMON/hooks"',
        ".git/hooks appeared",
    ),
    "attributes": ('echo "* filter=zz" > "$COMMON/info/attributes"', "info/attributes appeared"),
    "ignored files": ('echo "secret*" >> "$COMMON/info/exclude"', "info/exclude was changed"),
    "objects of somebody else": ('echo /tmp/evil > "$COMMON/objects/info/alternates"', "alternates appeared"),
    "an end of the history": ('git rev-parse main > "$COMMON/shallow"', ".git/shallow appeared"),
    "a replaced commit": ("git replace main main~1", "1 objects were replaced"),
    "a replaced file": ("git replace $(git rev-parse main:README main:src/app.py)", "1 objects were replaced"),
    "main at a commit of its own": (
        "git commit -q --allow-empty -m evil; git update-ref refs/heads/main HEAD",
        "main was moved",
    ),
    "main at a commit that nobody made": (
        "git update-ref refs/heads/main $(git commit-tree -p main -m evil main:)",
        "main was moved",
    ),
    "main back in its past": ("git update-ref refs/heads/main main~1", "main was moved"),
    "no main": ("git update-ref -d refs/heads/main", "main was removed"),
    "main merged by itself": (
        'echo evil > README; git commit -qam evil; cd "$ROOT" && git merge -q capsule-x-1',
        "main was moved",
    ),
    "a file that git does not look at": (
        'cd "$ROOT" && git update-index --skip-worktree README && echo evil > README && git checkout -q . ',
        "git was told not to look at README",
    ),
    "a file that is assumed to be the same": (
        'cd "$ROOT" && git update-index --assume-unchanged README',
        "not to look at README",
    ),
    "another repository": ("git init -q ../evil; echo gitdir: $PWD/../evil/.git > .git", ".git of the worktree"),
    "another repository in all but name": ('echo /tmp/evil > "$COMMON/commondir"', ".git/commondir appeared"),
    "a repository that was moved": (
        'mv "$COMMON" ../g; echo "gitdir: $PWD/../g" > "$COMMON"; git --git-dir=../g config core.fsmonitor evil',
        ".git was moved to",
    ),
    "a repository behind a link": ('mv "$COMMON" ../g; ln -s "$PWD/../g" "$COMMON"', ".git was moved to"),
    "a copy of the repository": ('mv "$COMMON" "$COMMON.2"; cp -r "$COMMON.2" "$COMMON"', ".git was moved to"),
    "a pipe for a HEAD": ('rm "$COMMON/HEAD"; mkfifo "$COMMON/HEAD"', ".git/HEAD was changed"),
    "a link to a pipe for a HEAD": (
        'mkfifo ../pipe; rm "$COMMON/HEAD"; ln -s "$PWD/../pipe" "$COMMON/HEAD"',
        ".git/HEAD was changed",
    ),
    "no HEAD": ('rm "$COMMON/HEAD"', ".git/HEAD was removed"),
    "a pipe for packed refs": ('rm -f "$COMMON/packed-refs"; mkfifo "$COMMON/packed-refs"', ".git/packed-refs"),
    "a pipe for an index": ('rm "$COMMON/index"; mkfifo "$COMMON/index"', ".git/index was no file"),
    "a pipe for a log": ('rm "$COMMON/logs/HEAD"; mkfifo "$COMMON/logs/HEAD"', ".git/logs/HEAD was no file"),
    "a pipe for a branch": ('mkfifo "$COMMON/refs/heads/zz"', ".git/refs/heads/zz was no file"),
    "a pipe for a branch of our own git": (
        'mkdir -p "$COMMON/capsule/git/refs/heads"; mkfifo "$COMMON/capsule/git/refs/heads/none"',
        "refs/heads/none was no file",
    ),
    "a pipe for git's own word on a worktree": (
        'rm "$COMMON/worktrees/x-1/gitdir"; mkfifo "$COMMON/worktrees/x-1/gitdir"',
        "worktrees/x-1/gitdir was changed",
    ),
    "settings of a submodule": (
        'git config --file "$COMMON/modules/lib/a/config" core.fsmonitor evil',
        "settings in .git/modules/lib/a/config were changed: core.fsmonitor",
    ),
    "a hook of a submodule's submodule": (
        'mkdir -p "$COMMON/modules/lib/a/modules/b/hooks"; echo evil > "$COMMON/modules/lib/a/modules/b/hooks/config"',
        "modules/b/hooks/config appeared",
    ),
    "attributes of a submodule": (
        'mkdir -p "$COMMON/modules/lib/a/info"; echo "* filter=zz" > "$COMMON/modules/lib/a/info/attributes"',
        "modules/lib/a/info/attributes appeared",
    ),
    "a common folder of a submodule": ('echo /tmp > "$COMMON/modules/lib/a/commondir"', "lib/a/commondir appeared"),
    "a common folder elsewhere": ('echo /tmp/evil > "$COMMON/worktrees/x-1/commondir"', "x-1/commondir was changed"),
    "settings of our own git": (
        'git config --file "$COMMON/capsule/git/config" filter.a.clean evil',
        "capsule/git/config",
    ),
    "what we have copied of the user's settings": (
        r'printf "filter.a.clean\nevil\0" >> "$COMMON/capsule/git/settings"',
        "capsule/git/settings was changed",
    ),
    "a common folder of our own git": ('echo /tmp > "$COMMON/capsule/git/commondir"', "capsule/git/commondir appeared"),
    "a base": ('git rev-parse main~1 > "$COMMON/capsule/places/x-1/base"', "places/x-1/base was changed"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_named_and_taken_away(a_repo: Repo, a_watched_place: GitWorktree, what: str) -> None:
    command, words = PLANTED[what]
    before = control_files(a_repo)
    assert a_watched_place.put_right() == ()
    shell(f"export COMMON={a_repo.path}/.git ROOT={a_repo.path}; {command}", a_watched_place.path)
    told = a_watched_place.put_right()
    assert words in "; ".join(told), told
    assert control_files(a_repo) == before
    assert a_watched_place.put_right() == told, "found a second time"
    a_repo.fsck()


USERS = {
    "who they are": "git config user.name Grace && git config user.email grace@example.org",
    "a remote and what a branch follows": "git remote add origin https://example.org/x "
    "&& git config branch.main.remote origin && git config remote.up.url git@example.org:x.git",
    "a submodule that is added": "git init -q ../s && git -C ../s commit -q --allow-empty -m s "
    "&& git -c protocol.file.allow=always submodule --quiet add ../s s",
    "a submodule that is gone": "rm -r .git/modules/lib",
    "a setting that was there": "git config filter.lfs.clean 'git-lfs clean -- %f'",
    "a commit": "echo mine > README && git commit -qam mine",
    "a commit, and a log that is cut short": "echo mine > README && git commit -qam mine "
    "&& git reflog expire --expire=now --all",
    "a commit on another branch": "git switch -qc feature && echo mine > README && git commit -qam mine",
    "an amended commit": "git commit -q --amend --allow-empty -m better",
    "a merge": "git branch side && git commit -q --allow-empty -m one && git switch -q side "
    "&& git commit -q --allow-empty -m two && git switch -q main && git merge -q -m merged side",
    "a commit taken back": "git reset -q --hard HEAD~1",
    "branches and tags": "git branch one && git tag two && git branch three && git branch -D three",
    "a stash": "echo wip > README && git stash -q",
    "a worktree of their own": "git worktree add -q ../theirs -b theirs && git worktree lock ../theirs",
    "tidying up": "git pack-refs --all && git reflog expire --expire=now --all && git gc -q --prune=now",
    "a sparse checkout": "git sparse-checkout set --cone src",
    "a staged file": "echo new > new && git add new",
    "an example of a hook": "echo example > .git/hooks/update.sample",
}


@pytest.mark.parametrize("what", USERS)
def test_what_the_user_does_meanwhile_stays_without_a_word(
    a_repo: Repo, a_watched_place: GitWorktree, what: str
) -> None:
    shell(USERS[what], a_repo.path)
    before = (control_files(a_repo), a_repo.git("for-each-ref"), a_repo.status(), a_repo.git("config", "--list"))
    assert a_watched_place.put_right() == ()
    assert (
        control_files(a_repo),
        a_repo.git("for-each-ref"),
        a_repo.status(),
        a_repo.git("config", "--list"),
    ) == before


FOLLOWING = {
    "fast-forward": "git merge -q main",
    "a merge": "git commit -q --allow-empty -m work; git merge -q -m merged main",
    "a rebase": "git commit -q --allow-empty -m work; git rebase -q main",
    "a reset": "git reset -q --hard main",
}


@pytest.mark.parametrize("how", FOLLOWING)
def test_an_agent_that_follows_the_users_commits_has_not_made_them(
    a_repo: Repo, a_watched_place: GitWorktree, how: str
) -> None:
    shell("echo mine > README && git commit -qam mine && echo more > README && git commit -qam more", a_repo.path)
    mine = a_repo.head("main")
    shell(FOLLOWING[how], a_watched_place.path)
    assert a_watched_place.put_right() == ()
    assert a_repo.head("main") == mine


def test_what_the_user_sets_stays_where_something_dangerous_is_taken_out(
    a_repo: Repo, a_watched_place: GitWorktree
) -> None:
    shell("git config user.name Grace; git config core.pager evil; git config filter.lfs.clean evil", a_repo.path)
    assert "core.pager" in a_watched_place.put_right()[0]
    assert a_repo.git("config", "user.name") == "Grace"
    assert a_repo.git("config", "filter.lfs.clean") == "git-lfs clean -- %f"
    assert "evil" not in (a_repo.path / ".git/config").read_text()


def test_what_was_found_is_kept(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("echo evil > ../../../.git/hooks/post-merge; git commit -q --allow-empty -m mine", a_watched_place.path)
    mine = a_repo.head("capsule-x-1")
    shell("git update-ref refs/heads/main HEAD", a_watched_place.path)
    told = a_watched_place.put_right()
    assert any("kept as refs/capsule/salvage/x-1/1" in words for words in told), told
    assert a_repo.head("refs/capsule/salvage/x-1/1") == mine
    shelf = a_repo.path / ".git/capsule/salvaged"
    assert any("(kept as .git/capsule/salvaged/post-merge-" in words for words in told), told
    assert [file.read_text() for file in shelf.glob("post-merge-*")] == ["evil\n"]


def test_a_merge_by_an_agent_is_taken_out_of_the_checkout_too(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    a_repo.write("mine.txt", "not committed\n")
    shell("echo evil > README; echo new > new; git add -A; git commit -qm evil", a_watched_place.path)
    shell("git merge -q --no-ff -m merged capsule-x-1", a_repo.path)
    assert a_watched_place.put_right()
    assert a_repo.status().split() == ["??", ".capsule/", "??", "mine.txt"]
    assert (a_repo.path / "README").read_text() == "hello\n"


TOLD = {
    "a commit": "git commit -qam mine --allow-empty",
    "a commit under another name": "git switch -qc other; git commit -qm mine --allow-empty; git branch -f main",
    "a row in the log": "new=$(git commit-tree -p main -m evil main:); old=$(git rev-parse main); "
    'git update-ref refs/heads/main $new; printf "$old $new A <a@b> 1 +0000\\tcommit: e\\n" >> .git/logs/HEAD',
}


@pytest.mark.parametrize("how", TOLD)
def test_a_commit_in_the_users_checkout_is_told_once(a_repo: Repo, a_watched_place: GitWorktree, how: str) -> None:
    shell(TOLD[how], a_repo.path)
    assert a_watched_place.put_right() == ()
    assert a_watched_place.put_right() == ()
    assert a_watched_place.notices() == [f"main moved to {a_repo.head('main')[:12]} while it ran, not by Capsule"]
    assert a_watched_place.notices() == []


def test_a_commit_of_ours_is_not_told(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("git commit -qm merged --allow-empty", a_repo.path)
    note_as_ours(Git.find(a_repo.path), a_repo.head("main"), "main")
    assert a_watched_place.put_right() == ()
    assert a_watched_place.notices() == []


def test_a_branch_that_was_put_back_is_not_told_twice(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("git commit -q --allow-empty -m evil; git update-ref refs/heads/main HEAD", a_watched_place.path)
    assert a_watched_place.put_right()
    assert a_watched_place.notices() == []


def test_a_repository_that_is_gone_for_good_is_said_with_a_way_out(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("cp -r .git ../copy; rm -rf .git; cp -r ../copy .git", a_repo.path)
    with pytest.raises(WorkspaceBroken, match="was replaced") as broken:
        a_watched_place.put_right()
    assert str(a_repo.path / ".git") in broken.value.hint


def test_whoever_ran_a_command_is_struck_off_also_where_the_roll_is_gone(tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    entry = roll.enter(tmp_path / "git" / "roll", "marker")
    shell("mv git elsewhere; echo gitdir: elsewhere > git", tmp_path)
    entry.strike()
    (left,) = roll.dead(tmp_path / "elsewhere" / "roll")
    left.strike()
    assert roll.dead(tmp_path / "elsewhere" / "roll") == []


def test_a_remote_that_was_bent_leads_where_it_led(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    a_watched_place.stand_down()
    a_repo.git("remote", "add", "origin", "https://example.org/x")
    a_watched_place.watch()
    shell("git config user.name Grace; git remote set-url origin /tmp/evil", a_repo.path)
    assert "remote.origin.url" in a_watched_place.put_right()[0]
    assert a_repo.git("config", "remote.origin.url") == "https://example.org/x"
    assert a_repo.git("config", "user.name") == "Grace"


def test_files_of_an_index_that_was_destroyed_are_still_known(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("rm .git/index; mkfifo .git/index", a_repo.path)
    assert a_watched_place.put_right()
    assert a_repo.status().split() == ["??", ".capsule/"]


def test_between_phases_everything_is_the_users(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    a_watched_place.stand_down()
    hook = a_repo.write(".git/hooks/post-merge", "echo mine\n")
    a_repo.git("config", "core.pager", "less")
    assert a_watched_place.put_right() == ()
    a_watched_place.watch()
    assert a_watched_place.put_right() == ()
    assert hook.read_text() == "echo mine\n"
    assert a_repo.git("config", "core.pager") == "less"


WATCH_AND_DIE = """
import os, sys
from pathlib import Path
from capsule.system.git import Git
from capsule.system.lock import FileLock
from capsule.workspaces.git_worktree import GitWorktree
place = GitWorktree(Git.find(Path(sys.argv[1])), "x-1")
place.watch()
os.kill(os.getpid(), 9)
"""


def crash_while_watching(repo: Repo) -> None:
    subprocess.run([sys.executable, "-c", WATCH_AND_DIE, str(repo.path)], check=False)


@pytest.mark.parametrize("first", [put_right_after_a_crash, lambda _: None], ids=["another command", "the mission"])
def test_after_a_crash_it_is_put_right_before_anything_else(
    a_repo: Repo, a_watched_place: GitWorktree, first: Callable[[Git], None]
) -> None:
    a_watched_place.stand_down()
    before = control_files(a_repo)
    crash_while_watching(a_repo)
    shell("git config core.fsmonitor evil; echo evil > .git/hooks/post-merge", a_repo.path)
    shell("git commit -q --allow-empty -m e; git update-ref refs/heads/main HEAD", a_watched_place.path)
    first(Git.find(a_repo.path))
    again = GitWorktree(Git.find(a_repo.path), ITEM)
    again.watch()
    told = "; ".join(again.put_right())
    again.stand_down()
    assert control_files(a_repo) == before
    assert all(words in told for words in ("core.fsmonitor", "post-merge appeared", "main was moved")), told


def test_a_note_that_was_changed_is_not_believed(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    a_watched_place.stand_down()
    crash_while_watching(a_repo)
    note = a_repo.path / ".git/capsule/watched/x-1.note"
    note.write_bytes(note.read_bytes().replace(b'"hooks/pre-commit"', b'"../../evil"'))
    again = GitWorktree(Git.find(a_repo.path), ITEM)
    again.watch()
    assert "note" in "; ".join(again.put_right())
    again.stand_down()
    assert not (a_repo.path.parent / "evil").exists()


def test_a_watch_that_is_somebodys_is_left_to_them(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    shell("git config core.fsmonitor evil", a_repo.path)
    with FileLock(a_repo.path / ".git/capsule/locks/mission-x-1.lock"):
        put_right_after_a_crash(Git.find(a_repo.path))
    assert a_repo.git("config", "core.fsmonitor") == "evil"
    assert a_watched_place.put_right()


def test_in_the_checkout_too(a_repo: Repo) -> None:
    place = Checkout(Git.find(a_repo.path), ITEM)
    place.watch()  # before the place is made, as in a workflow that begins with an agent
    place.prepare(a_repo.head())
    place.restore(place.base_checkpoint(a_repo.head()))
    assert place.put_right() == ()
    shell("git config core.fsmonitor evil; echo evil > .git/hooks/post-merge", a_repo.path)
    assert len(place.put_right()) == 2
    assert a_repo.git("config", "--get", "--default", "none", "core.fsmonitor") == "none"
    place.stand_down()


def test_in_a_sandbox_only_the_place_itself_is_looked_at(a_repo: Repo) -> None:
    place = GitWorktree(Git.find(a_repo.path), ITEM, confined=True)
    place.prepare(a_repo.head())
    place.watch()
    a_repo.git("config", "core.fsmonitor", "theirs")
    assert place.put_right() == ()
    (place.path / ".git").unlink()
    (place.path / ".git").write_text("gitdir: /tmp/evil\n")
    assert len(place.put_right()) == 1
    place.stand_down()


def test_looking_costs_a_few_milliseconds_and_starts_no_program(a_repo: Repo, a_watched_place: GitWorktree) -> None:
    git = a_watched_place._git
    a_watched_place.put_right()
    calls = git.calls
    a_watched_place.put_right()
    a_watched_place.stand_down()
    a_watched_place.watch()
    assert git.calls == calls
