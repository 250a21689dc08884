"""An agent without a sandbox that leaves its place plants nothing that git would run; what the user does stays."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capsule.core.errors import WorkspaceBroken
from capsule.system.git import Git
from capsule.system.lock import FileLock
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.stepwise_worktree import StepwiseWorktree
from capsule.workspaces.tripwire import Tripwire, check_after_a_crash

from ..conftest import Repo

ITEM = "x-1"


@pytest.fixture
def place(a_repo: Repo) -> Iterator[GitWorktree]:
    """A worktree, prepared, and a phase that has begun."""
    a_repo.git("config", "user.name", "Ada")
    a_repo.git("config", "extensions.worktreeConfig", "true")
    a_repo.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    a_repo.git("remote", "add", "team", "https://example.org/x")
    a_repo.git("config", "include.path", "../.gitconfig")
    a_repo.write(".git/hooks/pre-commit", "#!/bin/sh\necho husky\n").chmod(0o755)
    for module in ("lib/a", "lib/a/modules/b"):
        a_repo.write(f".git/modules/{module}/HEAD", "ref: refs/heads/main\n")
        a_repo.write(f".git/modules/{module}/config", "[core]\n\tbare = false\n")
    place = GitWorktree(Git.find(a_repo.path), ITEM)
    place.prepare(a_repo.head())
    place.guard.snapshot()
    yield place
    place.guard.release()


def shell(command: str, cwd: Path) -> None:
    subprocess.run(["sh", "-ec", command], cwd=cwd, check=True, capture_output=True)


def steering(repo: Repo) -> dict[str, bytes]:
    """The files by which somebody could make git run or read something."""
    folder = repo.path / ".git"
    names = ("config", "config.worktree", "commondir", "objects/info/alternates", "objects/info/http-alternates")
    below = ("hooks/**/*", "info/*", "worktrees/*/config.worktree", "worktrees/*/commondir", "modules/**/*")
    paths = [*(folder / name for name in names), *(path for pattern in below for path in folder.glob(pattern))]
    paths += [path for path in (folder / "capsule/git").rglob("*") if path.relative_to(folder).parts[2] != "objects"]
    kept = [path for path in paths if path.is_file() and path.suffix != ".sample" and path.name != "sparse-checkout"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


PLANTED = {
    "a setting that names a program": ("git config core.fsmonitor ./evil", "core.fsmonitor"),
    "where hooks are": ("git config core.hooksPath /tmp/evil", "core.hookspath"),
    "an editor": ("git config core.editor evil", "core.editor"),
    "an attributes file elsewhere": ("git config core.attributesFile /tmp/evil", "core.attributesfile"),
    "a worktree elsewhere": ("git config core.worktree /tmp", "core.worktree"),
    "a program for ssh": ("git config core.sshCommand evil", "core.sshcommand"),
    "a filter": ("git config filter.zz.clean evil", "filter.zz.clean"),
    "another program for a filter of the user's": ("git config filter.lfs.clean evil", "filter.lfs.clean"),
    "a filter of the user's that is gone": ("git config --unset filter.lfs.clean", "filter.lfs.clean"),
    "a merge driver": ("git config merge.zz.driver evil", "merge.zz.driver"),
    "a diff program": ("git config diff.zz.textconv evil", "diff.zz.textconv"),
    "a program that signs": ("git config gpg.program evil", "gpg.program"),
    "another file of settings": ("git config include.path /tmp/evil", "include.path"),
    "another file of settings by a condition": (
        "git config includeIf.gitdir:/.path /tmp/evil",
        "includeif.gitdir:/.path",
    ),
    "a proxy that reads along": ("git config http.https://example.org/.proxy evil", "http.https://example.org/.proxy"),
    "a helper with passwords": ("git config credential.helper evil", "credential.helper"),
    "another address for all remotes": (
        "git config url.https://evil/.insteadOf https://",
        "url.https://evil/.insteadof",
    ),
    "a transport that runs programs": ("git config protocol.ext.allow always", "protocol.ext.allow"),
    "an alias that is a program": ("git config alias.st '!evil'", "alias.st"),
    "an alias that leads to a program": ("git config alias.st 'grep -Oevil 4'", "alias.st"),
    "a program that shows": ("git config pager.log evil", "pager.log"),
    "a program that packs": ("git config tar.tgz.command evil", "tar.tgz.command"),
    "a hook by its settings": ("git config hook.zz.command evil", "hook.zz.command"),
    "a program that knows what is young": ("git config gc.recentObjectsHook evil", "gc.recentobjectshook"),
    "a program that adds trailers": ("git config trailer.zz.cmd evil", "trailer.zz.cmd"),
    "a template for new repositories": ("git config init.templateDir /tmp/evil", "init.templatedir"),
    "a tunnel": ("git config imap.tunnel evil", "imap.tunnel"),
    "a program that sends mail": ("git config sendemail.smtpServer /tmp/evil", "sendemail.smtpserver"),
    "a program that transfers": ("git config lfs.customtransfer.zz.path evil", "lfs.customtransfer.zz.path"),
    "a program that shows what differs": ("git config difftool.zz.cmd evil", "difftool.zz.cmd"),
    "a program that updates a submodule": ("git config submodule.zz.update '!evil'", "submodule.zz.update"),
    "a repository with hooks to push to": ("git config remote.theirs.pushurl /tmp/evil.git", "remote.theirs.pushurl"),
    "another repository to fetch from": ("git config remote.theirs.url ../evil.git", "remote.theirs.url"),
    "a program to push to": ("git config remote.theirs.url 'ext::evil'", "remote.theirs.url"),
    "a program for fetching": ("git config remote.origin.uploadpack evil", "remote.origin.uploadpack"),
    "settings of a worktree": (
        "git config --worktree core.fsmonitor evil",
        "core.fsmonitor",
    ),
    "settings of the checkout alone": (
        'git config --file "$COMMON/config.worktree" core.pager evil',
        "settings in .git/config.worktree were changed: core.pager",
    ),
    "settings that git cannot read": ('echo "[" >> "$COMMON/config"', "cannot read"),
    "no settings": ('rm "$COMMON/config"', ".git/config was removed"),
    "a link for settings": (
        'cp "$COMMON/config" ../c; rm "$COMMON/config"; ln -s "$PWD/../c" "$COMMON/config"',
        "not a regular file",
    ),
    "a hook": ('echo evil > "$COMMON/hooks/post-checkout"', "hooks/post-checkout appeared"),
    "another text for a hook": ('echo evil >> "$COMMON/hooks/pre-commit"', "hooks/pre-commit was changed"),
    "a hook that runs no more": ('chmod -x "$COMMON/hooks/pre-commit"', "hooks/pre-commit was changed"),
    "no hook": ('rm "$COMMON/hooks/pre-commit"', "hooks/pre-commit was removed"),
    "a link for a hook": ('ln -s /tmp/evil "$COMMON/hooks/post-merge"', "hooks/post-merge appeared"),
    "a folder of hooks elsewhere": (
        'mv "$COMMON/hooks" ../h && ln -s "$PWD/../h" "$COMMON/hooks"',
        ".git/hooks appeared",
    ),
    "attributes": ('echo "* filter=zz" > "$COMMON/info/attributes"', "info/attributes appeared"),
    "grafted history": ('git rev-parse main > "$COMMON/info/grafts"', "info/grafts appeared"),
    "ignored files": ('echo "secret*" >> "$COMMON/info/exclude"', "info/exclude was changed"),
    "objects of somebody else": ('echo /tmp/evil > "$COMMON/objects/info/alternates"', "alternates appeared"),
    "another repository in all but name": ('echo /tmp/evil > "$COMMON/commondir"', ".git/commondir appeared"),
    "a repository that was moved": (
        'mv "$COMMON" ../g; echo "gitdir: $PWD/../g" > "$COMMON"; git --git-dir=../g config core.fsmonitor evil',
        ".git was moved to",
    ),
    "a repository behind a link": ('mv "$COMMON" ../g; ln -s "$PWD/../g" "$COMMON"', ".git was moved to"),
    "a copy of the repository": ('mv "$COMMON" "$COMMON.2"; cp -r "$COMMON.2" "$COMMON"', ".git was moved to"),
    "a repository that is away": ('mv "$COMMON" ../g', ".git was moved to"),
    "a pipe for a HEAD": ('rm "$COMMON/HEAD"; mkfifo "$COMMON/HEAD"', ".git/HEAD was not a regular file"),
    "a link to a pipe for a HEAD": (
        'mkfifo ../pipe; rm "$COMMON/HEAD"; ln -s "$PWD/../pipe" "$COMMON/HEAD"',
        ".git/HEAD was not a regular file",
    ),
    "no HEAD": ('rm "$COMMON/HEAD"', ".git/HEAD was removed"),
    "a pipe for packed refs": ('rm -f "$COMMON/packed-refs"; mkfifo "$COMMON/packed-refs"', ".git/packed-refs"),
    "a pipe for an index": ('rm "$COMMON/index"; mkfifo "$COMMON/index"', ".git/index was not a regular file"),
    "a pipe for settings": ('rm "$COMMON/config"; mkfifo "$COMMON/config"', "not a regular file"),
    "a pipe for a hook": ('mkfifo "$COMMON/hooks/post-merge"', "hooks/post-merge appeared"),
    "a pipe for attributes": ('mkfifo "$COMMON/info/attributes"', "info/attributes appeared"),
    "a pipe for ignored files": (
        'rm "$COMMON/info/exclude"; mkfifo "$COMMON/info/exclude"',
        "info/exclude was changed",
    ),
    "settings of a submodule": (
        'git config --file "$COMMON/modules/lib/a/config" core.fsmonitor evil',
        "settings in .git/modules/lib/a/config were changed: core.fsmonitor",
    ),
    "a hook of a submodule's submodule": (
        'mkdir -p "$COMMON/modules/lib/a/modules/b/hooks"; echo evil > "$COMMON/modules/lib/a/modules/b/hooks/update"',
        "modules/b/hooks/update appeared",
    ),
    "attributes of a submodule": (
        'mkdir -p "$COMMON/modules/lib/a/info"; echo "* filter=zz" > "$COMMON/modules/lib/a/info/attributes"',
        "modules/lib/a/info/attributes appeared",
    ),
    "a common folder of a submodule": ('echo /tmp > "$COMMON/modules/lib/a/commondir"', "lib/a/commondir appeared"),
    "a common folder elsewhere": ('echo /tmp/evil > "$COMMON/worktrees/x-1/commondir"', "x-1/commondir was changed"),
    "a link that is named like the common folder": (
        'ln -sf "../..\n" "$COMMON/worktrees/x-1/commondir"',
        "x-1/commondir was changed",
    ),
    "settings of our own git": (
        'git config --file "$COMMON/capsule/git/config" filter.a.clean evil',
        "capsule/git/config",
    ),
    "what we have copied of the user's settings": (
        r'printf "filter.a.clean\nevil\0" >> "$COMMON/capsule/git/settings"',
        "capsule/git/settings was changed",
    ),
    "a common folder of our own git": ('echo /tmp > "$COMMON/capsule/git/commondir"', "capsule/git/commondir appeared"),
    "a hook of our own git": (
        'mkdir -p "$COMMON/capsule/git/hooks"; echo evil > "$COMMON/capsule/git/hooks/reference-transaction"',
        "capsule/git/hooks/reference-transaction appeared",
    ),
}


@pytest.mark.sweep(cases=12)
@pytest.mark.promise("attacks.tripwire")
@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_named_and_taken_away(a_repo: Repo, place: GitWorktree, what: str) -> None:
    command, words = PLANTED[what]
    before = steering(a_repo)
    assert place.guard.restore() == ()
    shell(f"export COMMON={a_repo.path}/.git; {command}", place.path)
    told = place.guard.restore()
    assert words in "; ".join(told), told
    assert steering(a_repo) == before
    assert place.guard.restore() == told, "found a second time"
    a_repo.fsck()
    assert a_repo.head() == a_repo.head("main")


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
    "another branch": "git switch -qc feature && echo mine > README && git commit -qam mine",
    "no branch": "git switch -q --detach",
    "an amended commit": "git commit -q --amend --allow-empty -m better",
    "a merge": "git branch side && git commit -q --allow-empty -m one && git switch -q side "
    "&& git commit -q --allow-empty -m two && git switch -q main && git merge -q -m merged side",
    "a commit taken back": "git reset -q --hard HEAD~1",
    "branches and tags": "git branch one && git tag two && git branch three && git branch -D three",
    "a branch of another name": "git branch -m main trunk",
    "a stash": "echo wip > README && git stash -q",
    "a worktree of their own": "git worktree add -q ../theirs -b theirs && git worktree lock ../theirs",
    "a worktree that git has begun to make": "mkdir .git/worktrees/new "
    "&& echo initializing > .git/worktrees/new/locked && touch .git/worktrees/new/commondir",
    "tidying up": "git pack-refs --all && git reflog expire --expire=now --all && git gc -q --prune=now",
    "a sparse checkout": "git sparse-checkout set --cone src",
    "a shallow history": "git rev-parse HEAD > .git/shallow",
    "a replaced commit": "git replace HEAD HEAD~1",
    "a staged file": "echo new > new && git add new",
    "a file that git does not look at": "git update-index --skip-worktree README",
    "an example of a hook": "echo example > .git/hooks/update.sample",
    "what Capsule adds to the ignored files": "printf '/.capsule/*\\n/worklog.md\\n' >> .git/info/exclude",
}


@pytest.mark.sweep(cases=6)
@pytest.mark.promise("attacks.tripwire")
@pytest.mark.parametrize("what", USERS)
def test_what_the_user_does_meanwhile_stays_and_nobody_is_accused(a_repo: Repo, place: GitWorktree, what: str) -> None:
    main = a_repo.head("main")
    shell(USERS[what], a_repo.path)
    before = (steering(a_repo), a_repo.git("for-each-ref"), a_repo.status(), a_repo.git("config", "--list"))
    assert place.guard.restore() == ()
    moved = a_repo.git("branch", "--show-current") == "main" and a_repo.head("main")
    noted = [f"main moved to {moved[:12]} while it ran"] if moved and moved != main else []
    assert place.notices() == noted
    after = (steering(a_repo), a_repo.git("for-each-ref"), a_repo.status(), a_repo.git("config", "--list"))
    assert after == before


def test_another_mission_that_begins_meanwhile_is_nobodys_fault(a_repo: Repo, place: GitWorktree) -> None:
    git = Git.find(a_repo.path)
    exclude_artefacts(git, a_repo.head())
    other = StepwiseWorktree(git, "x-2", into="main")
    other.prepare(a_repo.head())
    assert place.guard.restore() == ()
    other.remove(branch=True)
    assert place.guard.restore() == ()


def test_what_the_user_sets_stays_where_something_dangerous_is_taken_out(a_repo: Repo, place: GitWorktree) -> None:
    shell("git config user.name Grace; git config core.pager evil; git config filter.lfs.clean evil", a_repo.path)
    assert "core.pager" in place.guard.restore()[0]
    assert a_repo.git("config", "user.name") == "Grace"
    assert a_repo.git("config", "filter.lfs.clean") == "git-lfs clean -- %f"
    assert "evil" not in (a_repo.path / ".git/config").read_text()


STEERS_A_REMOTE = (
    "core.sshCommand",
    "core.gitProxy",
    "core.askPass",
    "ssh.variant",
    "credential.helper",
    "credential.https://example.org.username",
    "credential.useHttpPath",
    "http.proxy",
    "http.https://example.org/.proxy",
    "http.proxyAuthMethod",
    "http.proxySSLCAInfo",
    "http.extraHeader",
    "http.cookieFile",
    "http.saveCookies",
    "http.followRedirects",
    "http.curloptResolve",
    "http.sslVerify",
    "http.sslCAInfo",
    "http.sslBackend",
    "http.pinnedPubkey",
    "http.delegation",
    "http.emptyAuth",
    "http.proactiveAuth",
    "http.schannelUseSSLCAInfo",
    "url.https://evil.example/.insteadOf",
    "url.https://evil.example/.pushInsteadOf",
    "protocol.allow",
    "protocol.file.allow",
    "include.path",
    "includeIf.gitdir:/.path",
    "extensions.partialClone",
    "fetch.bundleURI",
    "transfer.bundleURI",
    "bundle.evil.uri",
    "push.pushOption",
    "remote.pushDefault",
    "remote.team.url",
    "remote.team.pushurl",
    "remote.team.uploadpack",
    "remote.team.receivepack",
    "remote.team.vcs",
    "remote.team.proxy",
    "remote.team.proxyAuthMethod",
    "remote.team.serverOption",
    "remote.team.promisor",
    "remote.team.partialCloneFilter",
    "remote.team.mirror",
    "remote.team.push",
    "remote.team.lfsurl",
    "remote.team.lfspushurl",
    "lfs.url",
    "lfs.pushurl",
)
"""Every setting of git by which somebody decides where a remote is, or how it is talked to."""


@pytest.mark.sweep(cases=4)
@pytest.mark.promise("attacks.tripwire")
@pytest.mark.parametrize("key", STEERS_A_REMOTE)
def test_nothing_that_leads_to_another_remote_or_another_way_to_it_stays(
    a_repo: Repo, place: GitWorktree, key: str
) -> None:
    before = steering(a_repo)
    a_repo.git("config", key, "https://evil.example/x")
    (told,) = place.guard.restore()
    assert told.lower().startswith(f"settings in .git/config were changed: {key.lower()}"), told
    assert steering(a_repo) == before


@pytest.mark.promise("attacks.tripwire")
@pytest.mark.parametrize(
    "command",
    [
        "git remote set-url team https://evil.example/x",
        "git remote set-url --push team https://evil.example/x",
        "git remote set-url --add team https://evil.example/x",
        "git remote remove team",
        "git remote rename team other && git remote add team https://evil.example/x",
        "git config --worktree remote.team.pushurl https://evil.example/x",
        'git config --file "$(git rev-parse --git-path config.worktree)" remote.team.url https://evil.example/x',
    ],
)
def test_a_remote_that_was_there_keeps_its_address(a_repo: Repo, place: GitWorktree, command: str) -> None:
    """Also of another server: what is fetched from there would count as main, and work would be pushed to it."""
    shell(command, a_repo.path)
    assert "remote.team." in place.guard.restore()[0]
    assert a_repo.git("remote", "get-url", "--all", "team") == "https://example.org/x"
    assert a_repo.git("remote", "get-url", "--push", "--all", "team") == "https://example.org/x"


def test_a_remote_that_was_bent_leads_where_it_led(a_repo: Repo, place: GitWorktree) -> None:
    place.guard.release()
    a_repo.git("remote", "add", "origin", "https://example.org/x")
    place.guard.snapshot()
    shell("git config user.name Grace; git remote set-url origin /tmp/evil", a_repo.path)
    assert "remote.origin.url" in place.guard.restore()[0]
    assert a_repo.git("config", "remote.origin.url") == "https://example.org/x"
    assert a_repo.git("config", "user.name") == "Grace"


def test_what_was_found_is_kept(a_repo: Repo, place: GitWorktree) -> None:
    shell("echo evil > .git/hooks/post-merge", a_repo.path)
    told = place.guard.restore()
    shelf = a_repo.path / ".git/capsule/salvaged"
    assert any("(kept as .git/capsule/salvaged/post-merge-" in words for words in told), told
    assert [file.read_text() for file in shelf.glob("post-merge-*")] == ["evil\n"]


@pytest.mark.promise("attacks.tripwire")
def test_an_agent_that_stays_in_its_place_changes_nothing_here(a_repo: Repo, place: GitWorktree) -> None:
    before = steering(a_repo), a_repo.git("for-each-ref")
    place.open_sandbox()
    shell(
        "git config core.fsmonitor evil; git config core.hooksPath x; git config alias.st '!evil'; "
        "git update-ref refs/heads/main HEAD~1; git branch more; git replace HEAD HEAD~1; touch .git.lock; "
        'mkdir -p "$(git rev-parse --git-dir)/hooks"; echo evil > "$(git rev-parse --git-dir)/hooks/pre-commit"',
        place.path,
    )
    assert place.guard.restore() == ()
    place.import_commits()
    assert place.guard.restore() == ()
    assert (steering(a_repo), a_repo.git("for-each-ref")) == before


def test_files_of_an_index_that_was_destroyed_are_still_known(a_repo: Repo, place: GitWorktree) -> None:
    shell("rm .git/index; mkfifo .git/index", a_repo.path)
    assert place.guard.restore()
    assert a_repo.status().split() == ["??", ".capsule/"]


def test_a_repository_that_is_gone_for_good_is_said_with_a_way_out(a_repo: Repo, place: GitWorktree) -> None:
    shell("cp -r .git ../copy; rm -rf .git; cp -r ../copy .git", a_repo.path)
    with pytest.raises(WorkspaceBroken, match="was replaced") as broken:
        place.guard.restore()
    assert str(a_repo.path / ".git") in broken.value.hint


def test_between_phases_everything_is_the_users(a_repo: Repo, place: GitWorktree) -> None:
    place.guard.release()
    hook = a_repo.write(".git/hooks/post-merge", "echo mine\n")
    a_repo.git("config", "core.pager", "less")
    assert place.guard.restore() == ()
    place.guard.snapshot()
    assert place.guard.restore() == ()
    assert hook.read_text() == "echo mine\n"
    assert a_repo.git("config", "core.pager") == "less"


def test_in_a_sandbox_nothing_is_looked_at(a_repo: Repo) -> None:
    place = GitWorktree(Git.find(a_repo.path), ITEM, mounted=True, confined=True)
    place.prepare(a_repo.head())
    place.guard.snapshot()
    a_repo.git("config", "core.fsmonitor", "theirs")
    assert place.guard.restore() == ()
    assert a_repo.git("config", "core.fsmonitor") == "theirs"
    assert not (a_repo.path / ".git/capsule/watched").exists()
    place.guard.release()


def test_looking_starts_no_program_where_nothing_changed(a_repo: Repo, place: GitWorktree) -> None:
    git = place._git
    place.guard.restore()
    calls = git.calls
    place.guard.restore()
    assert git.calls == calls


# Locks


LOCKS = (
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "refs/heads/main.lock",
    "worktrees/x-1/index.lock",
)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_that_nobody_holds_is_removed_and_told(a_repo: Repo, place: GitWorktree, lock: str) -> None:
    (a_repo.path / ".git" / lock).touch()
    assert place.guard.restore() == ()
    assert place.notices() == [f".git/{lock} was left behind by no running git, and removed"]
    assert place.notices() == []
    a_repo.commit("works", new="x\n")


def test_a_lock_of_a_git_at_work_stays(a_repo: Repo, place: GitWorktree) -> None:
    asked = ["git", "cat-file", "--batch-check"]
    waiting = subprocess.Popen(asked, cwd=a_repo.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert waiting.stdin
    assert waiting.stdout
    waiting.stdin.write(b"HEAD\n")
    waiting.stdin.flush()
    waiting.stdout.readline()  # until it answers, it may not yet go by the name of git
    lock = a_repo.path / ".git/index.lock"
    lock.touch()
    try:
        assert place.guard.restore() == ()
        assert lock.exists()
        assert place.notices() == []
    finally:
        waiting.communicate()


def test_a_lock_that_was_there_before_stays(a_repo: Repo, place: GitWorktree) -> None:
    place.guard.release()
    lock = a_repo.path / ".git/index.lock"
    lock.touch()
    place.guard.snapshot()
    assert place.guard.restore() == ()
    assert lock.exists()


# Crashes

WATCH_AND_DIE = """
import os, sys
from pathlib import Path
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
place = GitWorktree(Git.find(Path(sys.argv[1])), "x-1")
place.guard.snapshot()
place.open_sandbox()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(a_repo: Repo, place: GitWorktree) -> Repo:
    """An agent was let in, and nobody saw the end of it: what a kill leaves."""
    place.guard.release()
    gone = GitWorktree(Git.find(a_repo.path), ITEM)
    gone.guard.snapshot()
    gone.open_sandbox()
    return a_repo


@pytest.fixture
def really_killed(a_repo: Repo, place: GitWorktree) -> Repo:
    place.guard.release()
    done = subprocess.run([sys.executable, "-c", WATCH_AND_DIE, str(a_repo.path)], check=False)
    assert done.returncode == -9
    return a_repo


def told_by(repo: Repo) -> str:
    """What the next run of the mission hears."""
    again = GitWorktree(Git.find(repo.path), ITEM)
    again.guard.snapshot()
    told = "; ".join(again.guard.restore())
    again.guard.release()
    return told


def test_after_a_crash_it_is_put_right_and_the_mission_is_told(killed: Repo) -> None:
    before = steering(killed)
    shell("git config core.fsmonitor evil; echo evil > .git/hooks/post-merge", killed.path)
    check_after_a_crash(Git.find(killed.path))
    assert steering(killed) == before
    told = told_by(killed)
    assert all(words in told for words in ("core.fsmonitor", "post-merge appeared")), told
    assert told_by(killed) == "", "told once"


def test_after_a_crash_without_harm_nothing_is_told(killed: Repo) -> None:
    shell("git config user.name Grace; git commit -q --allow-empty -m mine", killed.path)
    check_after_a_crash(Git.find(killed.path))
    assert told_by(killed) == ""
    assert list((killed.path / ".git/capsule/watched").iterdir()) == []


@pytest.mark.parametrize("bend", ["../../evil", "/etc/evil"])
def test_a_copy_that_was_changed_is_not_believed(killed: Repo, bend: str) -> None:
    note = killed.path / ".git/capsule/watched/x-1.json"
    note.write_bytes(note.read_bytes().replace(b'"hooks/pre-commit"', f'"{bend}"'.encode()))
    check_after_a_crash(Git.find(killed.path))
    assert "copy of git's settings and hooks was changed" in told_by(killed)
    assert not (killed.path.parent / "evil").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_a_copy_that_is_none_is_said(killed: Repo, content: bytes) -> None:
    (killed.path / ".git/capsule/watched/x-1.json").write_bytes(content)
    check_after_a_crash(Git.find(killed.path))
    assert "copy of git's settings and hooks was changed" in told_by(killed)


def test_a_copy_that_another_run_has_judged_meanwhile_is_no_breach(killed: Repo) -> None:
    """Many runners start at once, and each looks after what a killed one left; a phase may end while they look."""
    git, note = Git.find(killed.path), killed.path / ".git/capsule/watched/x-1.json"
    check_after_a_crash(git)
    assert not note.exists() and Tripwire(git, ITEM).restore_from(note) == []


def test_a_mission_that_somebody_runs_is_left_to_them(a_repo: Repo, place: GitWorktree) -> None:
    shell("git config core.fsmonitor evil", a_repo.path)
    with FileLock(a_repo.path / ".git/capsule/locks/mission-x-1.lock"):
        check_after_a_crash(Git.find(a_repo.path))
    assert a_repo.git("config", "core.fsmonitor") == "evil"
    assert place.guard.restore()


def test_after_a_kill_plain_git_works_in_the_place_before_anything_of_ours_runs(really_killed: Repo) -> None:
    person = Repo(really_killed.path / ".capsule/worktrees/x-1")
    assert person.status() == ""
    assert person.git("branch", "--show-current") == "capsule-x-1"
    mine = person.commit("by hand, after the crash", mine="mine\n")
    place = GitWorktree(Git.find(really_killed.path), ITEM)
    kept = place.restore(place.base_checkpoint(really_killed.head("main")))
    assert really_killed.git("show", f"{kept}:mine") == "mine"
    assert really_killed.git("merge-base", "--is-ancestor", mine, kept) == ""


def test_commits_that_a_person_made_after_a_kill_are_taken_over(really_killed: Repo) -> None:
    mine = Repo(really_killed.path / ".capsule/worktrees/x-1").commit("by hand", mine="mine\n")
    place = GitWorktree(Git.find(really_killed.path), ITEM)
    place.import_commits()
    assert place.head() == mine == really_killed.head("capsule-x-1")
    assert really_killed.git("worktree", "list").count("\n") == 1


# The project is moved to another folder


def moved(repo: Repo) -> Repo:
    return Repo(repo.path.rename(repo.path.with_name("elsewhere")))


def copied(repo: Repo) -> Repo:
    shutil.copytree(repo.path, repo.path.with_name("elsewhere"), symlinks=True)
    return Repo(repo.path.with_name("elsewhere"))


@pytest.mark.sweep
@pytest.mark.parametrize("move", [moved, copied])
@pytest.mark.parametrize("kind", [GitWorktree, StepwiseWorktree])
def test_a_project_that_was_moved_after_a_kill_goes_on_without_an_accusation(
    killed: Repo, move: Callable[[Repo], Repo], kind: type[GitWorktree]
) -> None:
    person = Repo(killed.path / ".capsule/worktrees/x-1")
    done = person.commit("done", answer="42\n")
    old = killed.path
    repo = move(killed)
    git = Git.find(repo.path)
    check_after_a_crash(git)
    place = StepwiseWorktree(git, ITEM, into="main") if kind is StepwiseWorktree else GitWorktree(git, ITEM)
    base = place.base_checkpoint(repo.head("main"))
    kept = place.restore(base)
    assert repo.git("show", f"{kept}:answer") == "42"
    assert repo.git("cat-file", "-t", done) == "commit"
    assert Repo(place.path).status() == ""
    assert place.path.is_relative_to(repo.path)
    listed = repo.git("worktree", "list", "--porcelain")
    assert listed.count("worktree ") == 2 and f"{old}/" not in listed and "prunable" not in listed
    assert (repo.path / ".git").samefile(Repo(place.path).git("rev-parse", "--git-common-dir"))
    assert told_by(repo) == ""
    Repo(place.path).commit("on", more="x\n")
    assert place.checkpoint("a").tree != base.tree


def test_a_project_that_was_moved_between_two_phases_goes_on(a_repo: Repo, place: GitWorktree) -> None:
    place.guard.release()
    Repo(place.path).commit("done", answer="42\n")
    point = place.checkpoint("build#1")
    place.gate(point.tree)
    repo = moved(a_repo)
    again = GitWorktree(Git.find(repo.path), ITEM)
    assert list(again.prepare(repo.head("main"))) == []
    assert again.restore(point) == ""
    assert again.head() == point.head
    gate, *_ = again.gate(point.tree)
    assert (gate / "answer").read_text() == "42\n"
    assert repo.git("worktree", "list", "--porcelain").count("worktree ") == 2
    assert "prunable" not in repo.git("worktree", "list", "--porcelain")
