"""What everyone may count on when a remote is talked to: over HTTP, and as a folder on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from capsule.core.remote import Kind, Trouble, read_push, read_trouble, told, without_credentials
from capsule.system import git as git_module
from capsule.system.environment import for_agents, for_commands
from capsule.system.git import Git
from capsule.system.stop import Stop
from capsule.workspaces.remote import Remote

from ..conftest import Repo
from ..git_server import GitServer, git_server, moves_of, run

MAIN = "refs/heads/main"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "server") as served:
        yield served


@pytest.fixture(params=["http", "file"])
def a_clone(request: pytest.FixtureRequest, a_repo: Repo, server: GitServer) -> Repo:
    """A repository whose origin has the same main."""
    bare = server.host(a_repo.path)
    a_repo.git("remote", "add", "origin", server.url() if request.param == "http" else bare.as_uri())
    return a_repo


@pytest.fixture
def over_http(a_repo: Repo, server: GitServer) -> Repo:
    server.host(a_repo.path)
    a_repo.git("remote", "add", "origin", server.url())
    return a_repo


def remote_of(repo: Repo, **limits: float) -> Remote:
    return Remote(Git.find(repo.path), **limits)  # type: ignore[arg-type]


def by_another(server: GitServer, tmp_path: Path, **files: str) -> str:
    """Push to main from another clone; return the commit."""
    other = tmp_path / f"other-{time.monotonic_ns()}"
    run("clone", "-q", str(server.repository()), str(other))
    commit = Repo(other).commit("theirs", **files)
    run("push", "-q", "origin", "HEAD:main", cwd=other)
    return commit


def kind(answer: object) -> Kind | None:
    assert answer is None or isinstance(answer, Trouble)
    return answer.kind if answer else None


# Looking and fetching


def test_the_tip_of_a_branch_is_fetched_with_its_history(a_clone: Repo, server: GitServer, tmp_path: Path) -> None:
    remote, before = remote_of(a_clone), a_clone.head()
    theirs = by_another(server, tmp_path, new="x")
    assert remote.tip("main") == ""
    assert remote.fetch("main") == theirs == remote.tip("main")
    git = Git.find(a_clone.path)
    assert git.is_ancestor(before, theirs) and git.read_file(theirs, "new") == b"x"


@pytest.mark.promise("remote.look")
def test_fetching_changes_nothing_of_the_users(a_clone: Repo, server: GitServer, tmp_path: Path) -> None:
    def theirs() -> list[str]:
        return [a_clone.status(), *a_clone.refs("refs/heads"), *a_clone.refs("refs/remotes"), a_clone.head()]

    before = theirs()
    by_another(server, tmp_path, new="x")
    remote_of(a_clone).fetch("main")
    assert theirs() == before
    assert not (a_clone.path / ".git/FETCH_HEAD").exists()


def test_a_rewritten_branch_is_fetched_as_it_is(a_clone: Repo, server: GitServer) -> None:
    remote, older = remote_of(a_clone), a_clone.head("HEAD~1")
    remote.fetch("main")
    run("update-ref", MAIN, older, cwd=server.repository())
    assert remote.fetch("main") == older == remote.tip("main")


def test_a_fetch_during_which_a_push_moves_our_ref_is_tried_again(
    over_http: Repo, server: GitServer, tmp_path: Path
) -> None:
    remote = remote_of(over_http)
    first = remote.fetch("main")
    assert isinstance(first, str)
    newest = by_another(server, tmp_path, more="more")
    tracked, other = remote.tracked("main"), over_http.commit("a push of ours", ours="ours")
    server.slow = 0.5  # it asks three times: what there is, for which refs, for the objects
    moving = threading.Timer(1.25, lambda: over_http.git("update-ref", tracked, other, first))
    moving.start()
    assert remote.fetch("main") == newest
    moving.join()


def test_refs_are_listed_by_pattern(a_clone: Repo) -> None:
    remote, head = remote_of(a_clone), a_clone.head()
    assert remote.refs("refs/capsule/*") == {}
    assert remote.create(head, "refs/capsule/x") is None
    assert remote.refs("refs/capsule/*") == {"refs/capsule/x": head}
    assert remote.refs(MAIN) == {MAIN: head}
    assert remote.default_branch() == "main"


def test_any_ref_is_fetched_into_one_of_ours(a_clone: Repo) -> None:
    remote, head = remote_of(a_clone), a_clone.head()
    remote.create(head, "refs/capsule/x")
    assert remote.fetch_ref("refs/capsule/x", "refs/capsule/there") == head


def test_what_is_not_there_is_absent(a_clone: Repo) -> None:
    assert kind(remote_of(a_clone).fetch("nowhere")) is Kind.ABSENT
    a_clone.git("remote", "set-url", "origin", a_clone.git("remote", "get-url", "origin").replace("project", "gone"))
    assert kind(remote_of(a_clone).fetch("main")) is Kind.ABSENT


def test_a_name_that_is_no_remote_is_never_taken_for_a_path(a_repo: Repo) -> None:
    """git would push into the folder, and start its hooks."""
    run("init", "-q", "--bare", str(a_repo.path / "planted"))
    remote = Remote(Git.find(a_repo.path), "planted")
    assert kind(remote.create(a_repo.head(), "refs/heads/x")) is Kind.ABSENT
    assert kind(remote.fetch("main")) is Kind.ABSENT


def test_a_shallow_clone_is_deepened_until_it_is_enough(a_repo: Repo, server: GitServer, tmp_path: Path) -> None:
    base = a_repo.head()
    for number in range(3):
        a_repo.commit(f"commit {number}", new=str(number))
    bare = server.host(a_repo.path)
    run("clone", "-q", "--depth=1", bare.as_uri(), str(tmp_path / "shallow"))
    git = Git.find(tmp_path / "shallow")
    remote = Remote(git)
    tip = remote.fetch("main")
    assert isinstance(tip, str) and not git.resolve(base)
    assert remote.deepen("main", lambda: bool(git.resolve(base)) and git.is_ancestor(base, tip)) is None
    assert git.is_ancestor(base, tip)


# Pushing


@pytest.mark.promise("remote.lease")
def test_a_branch_moves_from_exactly_where_it_was(a_clone: Repo, server: GitServer, tmp_path: Path) -> None:
    remote, old = remote_of(a_clone), a_clone.head()
    ours = a_clone.commit("ours", mine="x")
    theirs = by_another(server, tmp_path, new="x")
    assert kind(remote.push(ours, MAIN, old)) is Kind.LOST
    assert remote.refs(MAIN) == {MAIN: theirs}
    assert remote.fetch("main") == theirs
    a_clone.git("rebase", "-q", theirs)
    assert remote.push(a_clone.head(), MAIN, theirs) is None
    assert remote.refs(MAIN) == {MAIN: a_clone.head()}


@pytest.mark.promise("remote.lease")
def test_a_branch_never_moves_to_what_does_not_descend_from_it(a_clone: Repo, server: GitServer) -> None:
    """A lease alone lets a forced update through."""
    remote, old = remote_of(a_clone), a_clone.head()
    a_clone.git("reset", "-q", "--hard", "HEAD~1")
    with pytest.raises(AssertionError, match="forced update"):
        remote.push(a_clone.commit("instead", mine="x"), MAIN, old)
    assert moves_of(server.repository(), MAIN) == []


def test_pushing_again_what_is_there_changes_nothing(a_clone: Repo, server: GitServer) -> None:
    remote, old = remote_of(a_clone), a_clone.head()
    ours = a_clone.commit("ours", mine="x")
    assert remote.push(ours, MAIN, old) is None
    assert remote.push(ours, MAIN, old) is None
    assert moves_of(server.repository(), MAIN) == [(old, ours)]


@pytest.mark.promise("remote.lease")
def test_only_one_of_many_creates_a_ref(a_clone: Repo) -> None:
    oids = [a_clone.git("commit-tree", "HEAD^{tree}", "-m", f"claim {number}") for number in range(4)]
    answers: dict[str, Trouble | None] = {}

    def create(oid: str) -> None:
        answers[oid] = remote_of(a_clone).create(oid, "refs/capsule/claims/x")

    threads = [threading.Thread(target=create, args=(oid,)) for oid in oids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = [oid for oid, answer in answers.items() if answer is None]
    assert remote_of(a_clone).refs("refs/capsule/claims/*") == {"refs/capsule/claims/x": won}
    assert {kind(answers[oid]) for oid in oids if oid != won} == {Kind.LOST}


def test_a_ref_is_replaced_and_deleted_only_from_exactly_where_it_was(a_clone: Repo) -> None:
    one, two = (a_clone.git("commit-tree", "HEAD^{tree}", "-m", text) for text in "12")
    remote, ref = remote_of(a_clone), "refs/capsule/claims/x"
    assert remote.create(one, ref) is None
    assert kind(remote.replace(two, ref, two[::-1])) is Kind.LOST
    assert remote.replace(two, ref, one) is None
    assert kind(remote.delete(ref, one)) is Kind.LOST
    assert remote.delete(ref, two) is None
    assert remote.refs(ref) == {}


def test_objects_of_any_kind_can_be_pushed(a_clone: Repo) -> None:
    (a_clone.path / "claim").write_text("me")
    blob = a_clone.git("hash-object", "-w", "claim")
    assert remote_of(a_clone).create(blob, "refs/capsule/claims/x") is None


# Two addresses


@pytest.fixture
def a_fork(over_http: Repo, server: GitServer) -> Path:
    """What is pushed goes to another repository than what is fetched comes from."""
    fork = server.host(over_http.path, "fork")
    over_http.git("remote", "set-url", "--push", "origin", server.url("fork"))
    return fork


@pytest.mark.promise("remote.one-address")
@pytest.mark.parametrize("ref", ["refs/capsule/claims/x", MAIN])
def test_what_arrives_elsewhere_than_it_is_read_is_refused_in_words(
    over_http: Repo, server: GitServer, a_fork: Path, ref: str
) -> None:
    """The fork has the same main, so the lease alone finds nothing."""
    remote, old = remote_of(over_http), over_http.head()
    ours = over_http.commit("ours", mine="x")
    trouble = remote.push(ours, MAIN, old) if ref == MAIN else remote.create(ours, ref)
    assert trouble and trouble.kind is Kind.REFUSED
    assert f"pushes to origin go to {server.url('fork')}" in trouble.words and server.url() in trouble.words
    assert "merge.remote" in trouble.way and "git remote -v" in trouble.way
    assert run("rev-parse", MAIN, cwd=server.repository()) == old


@pytest.mark.promise("remote.one-address")
def test_a_fork_that_lags_behind_is_no_lost_race(
    over_http: Repo, server: GitServer, a_fork: Path, tmp_path: Path
) -> None:
    theirs = by_another(server, tmp_path, new="x")
    remote = remote_of(over_http)
    assert remote.fetch("main") == theirs
    over_http.git("reset", "-q", "--hard", theirs)
    trouble = remote.push(over_http.commit("ours", mine="x"), MAIN, theirs)
    assert trouble and trouble.kind is Kind.REFUSED and "pushes to origin go to" in trouble.words


@pytest.mark.promise("remote.one-address")
@pytest.mark.parametrize("way", ["pushurl", "pushInsteadOf"])
def test_one_repository_may_have_another_address_for_pushes(over_http: Repo, server: GitServer, way: str) -> None:
    """As where everybody may read, and only ssh may write."""
    there, old = server.repository().as_uri(), over_http.head()
    key = "remote.origin.pushurl" if way == "pushurl" else f"url.{there}.pushInsteadOf"
    over_http.git("config", key, there if way == "pushurl" else server.url())
    remote = remote_of(over_http)
    ours = over_http.commit("ours", mine="x")
    assert remote.push(ours, MAIN, old) is None
    assert server.pushes == 0
    assert kind(remote.push(over_http.commit("more", mine="y"), MAIN, old)) is Kind.LOST
    assert remote.create(ours, "refs/capsule/x") is None
    assert remote.replace(old, "refs/capsule/x", ours) is None
    assert remote.delete("refs/capsule/x", old) is None


@pytest.mark.promise("remote.one-address")
@pytest.mark.parametrize("push", [[], ["--push"]], ids=["url", "pushurl"])
def test_several_addresses_are_refused_before_anything_is_pushed(
    over_http: Repo, server: GitServer, a_fork: Path, push: list[str]
) -> None:
    over_http.git("remote", "set-url", *push, "--add", "origin", a_fork.as_uri())
    if not push:
        over_http.git("config", "--unset-all", "remote.origin.pushurl")
    remote, old = remote_of(over_http), over_http.head()
    trouble = remote.push(over_http.commit("ours", mine="x"), MAIN, old)
    assert trouble and trouble.kind is Kind.REFUSED and "goes to 2 addresses" in trouble.words
    assert a_fork.as_uri() in trouble.words and "merge.remote" in trouble.way
    assert server.pushes == 0 and run("rev-parse", MAIN, cwd=a_fork) == old


# Trouble


@pytest.mark.promise("remote.kinds")
@pytest.mark.parametrize("call", ["fetch", "refs", "create"])
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"down": True}, Kind.OFFLINE),
        ({"status": 503}, Kind.OFFLINE),
        ({"status": 429}, Kind.OFFLINE),
        ({"status": 403}, Kind.REFUSED),
        ({"status": 404}, Kind.ABSENT),
        ({"password": "sesame"}, Kind.REFUSED),
    ],
)
def test_a_server_that_cannot_serve_is_told_from_one_that_will_not(
    over_http: Repo, server: GitServer, call: str, fault: dict[str, object], expected: Kind
) -> None:
    for name, value in fault.items():
        setattr(server, name, value)
    remote = remote_of(over_http)
    calls: dict[str, Callable[[], object]] = {
        "fetch": lambda: remote.fetch("main"),
        "refs": remote.refs,
        "create": lambda: remote.create(over_http.head(), "refs/capsule/x"),
    }
    answer = calls[call]()
    assert isinstance(answer, Trouble) and answer.kind is expected, answer
    assert answer.passes is (expected is Kind.OFFLINE)


def test_a_server_that_is_not_there_is_offline(over_http: Repo, server: GitServer) -> None:
    server.close()
    assert kind(remote_of(over_http).refs()) is Kind.OFFLINE


def test_a_slow_server_is_given_up_in_time(over_http: Repo, server: GitServer) -> None:
    server.slow = 20.0
    began = time.monotonic()
    trouble = remote_of(over_http, look=0.5).refs()
    assert isinstance(trouble, Trouble) and trouble.kind is Kind.OFFLINE and "no answer within" in trouble.words
    assert time.monotonic() - began < 5


@pytest.mark.promise("remote.line")
def test_a_fetch_is_given_up_once_the_server_is_silent_for_too_long(over_http: Repo, server: GitServer) -> None:
    """It may last long, as long as something comes: others wait for it."""
    server.slow = 30.0
    began = time.monotonic()
    trouble = remote_of(over_http, look=1.0, transfer=30.0).fetch("main")
    assert isinstance(trouble, Trouble) and trouble.passes and "nothing was heard for 1 s" in trouble.words
    assert time.monotonic() - began < 10


def test_a_fetch_lasts_as_long_as_something_is_heard(a_repo: Repo, server: GitServer, tmp_path: Path) -> None:
    a_repo.git("remote", "add", "origin", server.host(a_repo.path).as_uri())
    pack = tmp_path / "slow-pack"
    pack.write_text(
        '#!/bin/sh\nfor i in 1 2 3 4 5 6; do echo working >&2; sleep 0.5; done\nexec git-upload-pack "$@"\n'
    )
    pack.chmod(0o755)
    a_repo.git("config", "remote.origin.uploadpack", str(pack))
    began = time.monotonic()
    assert remote_of(a_repo, look=1.5, transfer=30.0).fetch("main") == a_repo.head()
    assert time.monotonic() - began > 2.5


@pytest.mark.skipif(sys.platform != "linux", reason="the process is found by /proc")
def test_a_git_that_is_killed_is_tried_again(over_http: Repo, server: GitServer) -> None:
    server.slow = 20.0

    def kill() -> None:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = process.read_bytes().split(b"\0")
                if b"ls-remote" in words and process.parent.joinpath("cwd").readlink() == over_http.path:
                    os.kill(int(process.parent.name), signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    trouble = remote_of(over_http).refs()
    assert isinstance(trouble, Trouble) and trouble.passes and "killed by signal 9" in trouble.words


def test_a_stop_ends_a_call_with_everything_it_started(over_http: Repo, server: GitServer) -> None:
    server.slow = 20.0
    with Stop() as stop:
        threading.Timer(0.5, stop.request).start()
        began = time.monotonic()
        answer = Remote(Git.find(over_http.path), stop=stop).refs()
    assert isinstance(answer, Trouble) and answer.kind is Kind.STOPPED
    assert time.monotonic() - began < 5
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True, text=True).stdout
    assert not [line for line in listed.splitlines() if server.address in line]


@pytest.mark.promise("remote.kinds")
def test_a_refusal_is_in_the_servers_own_words(a_clone: Repo, server: GitServer) -> None:
    server.refuse(MAIN, "main is protected: open a request")
    trouble = remote_of(a_clone).push(a_clone.commit("ours", mine="x"), MAIN, a_clone.head("HEAD~1"))
    assert trouble and trouble.kind is Kind.REFUSED
    assert "main is protected: open a request" in trouble.words and "pre-receive hook declined" in trouble.words


def test_a_refused_ref_keeps_no_other_from_its_place(a_clone: Repo, server: GitServer) -> None:
    server.refuse("refs/capsule/*", "only branches here")
    remote, old = remote_of(a_clone), a_clone.head()
    ours = a_clone.commit("ours", mine="x")
    assert kind(remote.create(ours, "refs/capsule/missions/x")) is Kind.REFUSED
    assert remote.push(ours, MAIN, old) is None


_FLOOD = """#!/bin/sh
printf 'the reason comes first\\n' >&2
yes "remote says nothing of use, again and again" | head -c {bytes} >&2
printf '\\nand the rest last\\n' >&2
exit 1
"""


@pytest.mark.promise("remote.kinds")
def test_a_server_that_prints_without_end_fills_no_memory(a_repo: Repo, server: GitServer) -> None:
    bare, size = server.host(a_repo.path), 50_000_000
    a_repo.git("remote", "add", "origin", bare.as_uri())
    server.refuse(MAIN, "").write_text(_FLOOD.format(bytes=size))
    ours = a_repo.commit("ours", mine="x")
    tracemalloc.start()
    try:
        trouble = remote_of(a_repo).push(ours, MAIN, a_repo.head("HEAD~1"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trouble and trouble.kind is Kind.REFUSED and len(trouble.words) < 1000
    assert trouble.words.startswith("the reason comes first") and "pre-receive hook declined" in trouble.words
    assert peak < size / 10


@pytest.mark.promise("remote.kinds")
def test_a_listing_without_end_is_no_listing(a_clone: Repo, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it would say that the rest is not there."""
    for number in range(50):
        run("update-ref", f"refs/capsule/claims/x-{number}", "main", cwd=server.repository())
    assert len(cast("Mapping[str, str]", remote_of(a_clone).refs("refs/capsule/*"))) == 50
    monkeypatch.setattr(git_module, "_MOST_ANSWERED", 1000)
    trouble = remote_of(a_clone).refs("refs/capsule/*")
    assert isinstance(trouble, Trouble) and trouble.kind is Kind.REFUSED
    assert "answer is longer than " in trouble.words


# Credentials and settings


@pytest.mark.promise("remote.credentials")
def test_credentials_come_from_the_users_helper(over_http: Repo, server: GitServer, tmp_path: Path) -> None:
    server.password = "sesame"
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\nprintf 'username=ada\\npassword=sesame\\n'\n")
    helper.chmod(0o755)
    run("config", "--global", "credential.helper", str(helper))
    assert remote_of(over_http).fetch("main") == over_http.head()
    assert remote_of(over_http).create(over_http.head(), "refs/capsule/x") is None


def test_a_script_answers_for_the_user_as_in_ci(
    over_http: Repo, server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.password = "sesame"
    script = tmp_path / "askpass"
    script.write_text('#!/bin/sh\ncase "$1" in Username*) echo ada;; *) echo sesame;; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("GIT_ASKPASS", str(script))
    assert remote_of(over_http).fetch("main") == over_http.head()


def test_addresses_are_rewritten_as_the_user_has_set(over_http: Repo, server: GitServer) -> None:
    over_http.git("remote", "set-url", "origin", "work:project.git")
    run("config", "--global", f"url.{server.address}/.insteadOf", "work:")
    assert remote_of(over_http).fetch("main") == over_http.head()


@pytest.mark.promise("remote.credentials")
def test_no_window_asks_for_a_password(over_http: Repo, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.password, asked = "sesame", over_http.path / "asked"
    script = over_http.path / "window"
    script.write_text(f"#!/bin/sh\ntouch {asked}\necho sesame\n")
    script.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(script))
    monkeypatch.setenv("DISPLAY", ":0")
    over_http.git("config", "core.askPass", str(script))
    assert kind(remote_of(over_http).fetch("main")) is Kind.REFUSED
    assert not asked.exists()


def test_hooks_of_the_repository_do_not_run(a_clone: Repo) -> None:
    ran = a_clone.path / "ran"
    for name in ("pre-push", "reference-transaction", "post-checkout"):
        hook = a_clone.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
        hook.chmod(0o755)
    remote, old = remote_of(a_clone), a_clone.head()
    tree = a_clone.git("rev-parse", "HEAD^{tree}")
    ours = a_clone.git("commit-tree", tree, "-p", old, "-m", "ours")
    assert remote.fetch("main") == old
    assert remote.push(ours, MAIN, old) is None
    assert not ran.exists()


@pytest.mark.promise("remote.credentials")
def test_no_credential_is_in_what_is_told(a_repo: Repo, server: GitServer) -> None:
    server.host(a_repo.path)
    server.status = 500
    a_repo.git("remote", "add", "origin", server.url(user_info="ada:sesame"))
    remote = remote_of(a_repo)
    trouble = remote.fetch("main")
    assert isinstance(trouble, Trouble) and server.address in trouble.words
    assert "sesame" not in trouble.words and "sesame" not in remote.url and "ada" not in remote.url


# What is read


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ssh: connect to host example.org port 22: Connection refused\nfatal: Could not read from", Kind.OFFLINE),
        ("ssh: Could not resolve hostname example.org: Name or service not known", Kind.OFFLINE),
        ("kex_exchange_identification: Connection closed by remote host", Kind.OFFLINE),
        ("error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502", Kind.OFFLINE),
        ("fatal: the remote end hung up unexpectedly", Kind.OFFLINE),
        ("git@example.org: Permission denied (publickey).\nfatal: Could not read from remote", Kind.REFUSED),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", Kind.REFUSED),
        ("fatal: Authentication failed for 'https://example.org/x.git/'", Kind.REFUSED),
        ("fatal: could not read Username for 'https://example.org': terminal prompts disabled", Kind.REFUSED),
        ("fatal: unable to access 'https://x/': SSL certificate problem: expired", Kind.REFUSED),
        ("remote: fatal: write error: No space left on device\n[remote rejected] (unpacker error)", Kind.REFUSED),
        ("remote: error: GH006: Protected branch update failed\n! [remote rejected] (protected branch)", Kind.REFUSED),
        ("remote: Permission denied\nfatal: the remote end hung up unexpectedly", Kind.REFUSED),
        (f"[remote rejected] (cannot lock ref '{MAIN}': is at {'a' * 40} but expected {'b' * 40})", Kind.LOST),
        ("remote: Repository not found.\nfatal: repository 'https://x/y.git/' not found", Kind.ABSENT),
        ("something nobody has ever read", Kind.REFUSED),
    ],
)  # fmt: skip
def test_gits_answers_are_read(said: str, expected: Kind) -> None:
    assert read_trouble(said).kind is expected


def test_a_push_without_an_answer_for_its_ref_is_no_success() -> None:
    assert read_push("To http://x\nDone\n", "") == Trouble(Kind.REFUSED, "it said nothing")


@pytest.mark.parametrize(
    "steering",
    [
        "\x1b[31m",
        "\x1b[2J",
        "\x1b]0;a title\x07",
        "\x1b]8;;https://evil\x1b\\",
        "\x9b2K",
        "\x1b(B",
        "\x1bc",
        "\x07",
        "\u202e",
    ],
)
def test_nothing_of_what_a_server_says_steers_a_terminal(steering: str) -> None:
    assert told(f"remote: No{steering}.\n") == ("No." if steering.startswith(("\x1b", "\x9b")) else "No .")


def test_progress_is_no_reason() -> None:
    progress = (
        "Enumerating objects: 5, done.",
        "Counting objects:  20% (1/5)\rremote: Counting objects: 100% (5/5), done.",
        "Compressing objects: 100% (3/3), done.",
        "Resolving deltas: 100% (2/2), completed with 2 local objects.",
        "Total 3 (delta 1), reused 0 (delta 0), pack-reused 0",
    )
    said = "".join(f"remote: {line}\n" for line in progress)
    assert told(f"{said}remote: main is protected\n") == "main is protected"


def test_words_are_one_line_without_what_steers_a_terminal() -> None:
    said = "remote: \x1b[31mNo.\x1b[K\nremote: =====\nremote: Ask Ada.\x1b[K\x07\n! [remote rejected] x -> y (no)\n"
    assert told(said) == "No. Ask Ada."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://ada:pw@example.org/x", "https://example.org/x"),
        ("at ssh://git@example.org/x", "at ssh://example.org/x"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("https://x/?private_token=abc&y", "https://x/?private_token=***&y"),
    ],
)
def test_credentials_are_taken_out(text: str, expected: str) -> None:
    assert without_credentials(text) == expected


WAYS_TO_KEYS = ("SSH_AUTH_SOCK", "SSH_ASKPASS", "GIT_ASKPASS", "GIT_SSH_COMMAND", "GH_TOKEN", "GITLAB_TOKEN")


@pytest.mark.promise("remote.credentials")
@pytest.mark.parametrize("for_whom", [for_agents, for_commands])
def test_agents_and_tests_are_given_no_way_to_keys_that_may_push(
    for_whom: Callable[[Mapping[str, str], Sequence[str]], Mapping[str, str]],
) -> None:
    env = {**os.environ, **dict.fromkeys(WAYS_TO_KEYS, "/run/of-the-user")}
    assert not {*WAYS_TO_KEYS} & {*for_whom(env, ())}
    assert "SSH_AUTH_SOCK" in for_whom(env, ("SSH_AUTH_SOCK",))
