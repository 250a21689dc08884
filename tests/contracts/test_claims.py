"""Claims of items at a remote: one clone at a time, whoever is killed, suspended, offline or late."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from capsule.adapters import Claims
from capsule.core.claim import Claim, Holder, Standing, as_message, items_of, new_claim, read_claim, ref_of
from capsule.core.errors import CapsuleError, HeldElsewhere, InvalidId, MergedElsewhere, RemoteFault
from capsule.core.stamps import clock_time
from capsule.system.git import Git, GitResult
from capsule.workspaces.claims import Lasting, RemoteClaims

from ..conftest import Repo
from ..git_server import GitServer, git_server, run

ITEM = "shop-1.1"
NAMESPACE = "refs/capsule/claims/"
LASTS = Lasting(1800, 86_400)
NOW, LATER = "2026-11-19T12:03:00Z", "2026-11-19T12:33:00Z"


class Clones:
    """Two clones of one remote, and what each of their processes has claimed."""

    def __init__(self, server: GitServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.opened: list[RemoteClaims] = []

    def repo(self, name: str) -> Repo:
        path = self.folder / name
        if not path.exists():
            run("clone", "-q", self.server.url(), str(path))
        return Repo(path)

    def opens(
        self, name: str, lasts: Lasting = LASTS, *, losses: list[str] | None = None, told: list[str] | None = None
    ) -> RemoteClaims:
        """Open the claims as a new process of a clone does."""
        noted, said = (losses if losses is not None else []), (told if told is not None else [])
        claims = RemoteClaims(
            Git.find(self.repo(name).path),
            "origin",
            NAMESPACE,
            lasts,
            on_loss=lambda: noted.append(name),
            tell=lambda _, text: said.append(text),
        )
        self.opened.append(claims)
        return claims

    def there(self, item: str = ITEM) -> str:
        return run("for-each-ref", "--format=%(objectname)", f"{NAMESPACE}{item}", cwd=self.server.repository())

    def claim(self, item: str = ITEM) -> Claim:
        return read_claim(item, run("log", "-1", "--format=%B", self.there(item), cwd=self.server.repository()))

    def renewals(self, item: str = ITEM) -> int:
        return len((self.server.repository() / "logs" / NAMESPACE / item).read_text().splitlines())


@pytest.fixture
def clones(a_repo: Repo, tmp_path: Path) -> Iterator[Clones]:
    with git_server(tmp_path / "server") as server:
        server.host(a_repo.path)
        both = Clones(server, tmp_path)
        yield both
        for claims in both.opened:
            claims.close()


def nothing(_commit: str) -> bool:
    return False


def take(claims: Claims, item: str = ITEM, *, take_over: bool = False) -> str:
    return claims.take(item, nothing, take_over=take_over)


def eventually(met: object, seconds: float = 15.0) -> None:
    assert callable(met)
    give_up = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def killed(claims: RemoteClaims) -> None:
    """Renew no more, as a process that was killed: nothing is released."""
    claims.close()


# One clone at a time


@pytest.mark.promise("claims.one")
def test_an_item_is_claimed_by_one_clone(clones: Clones) -> None:
    take(clones.opens("ada"))
    with pytest.raises(HeldElsewhere) as refused:
        take(clones.opens("bob"))
    assert refused.value.exit_code == 3
    assert f"{ITEM} is worked on by " in refused.value.message
    assert f"capsule run {ITEM} --take-over" in refused.value.hint
    take(clones.opens("bob"), "shop-1.2")


@pytest.mark.promise("claims.one")
def test_of_many_that_claim_at_the_same_moment_one_has_it(clones: Clones) -> None:
    names = [f"clone-{number}" for number in range(5)]
    every = [clones.opens(name) for name in names]
    gate = threading.Barrier(len(every))
    ends: list[CapsuleError | None] = []

    def try_it(claims: RemoteClaims) -> None:
        gate.wait()
        try:
            take(claims)
            ends.append(None)
        except CapsuleError as fault:
            ends.append(fault)

    threads = [threading.Thread(target=try_it, args=(claims,)) for claims in every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count(None) == 1
    assert all(isinstance(fault, HeldElsewhere) for fault in ends if fault)


@pytest.mark.promise("claims.words")
def test_the_claim_says_who_works_on_it_for_people_too(clones: Clones) -> None:
    take(clones.opens("ada"))
    text = run("log", "-1", "--format=%an <%ae>%n%B", clones.there(), cwd=clones.server.repository())
    assert text.startswith(f"Capsule <capsule@localhost>\nCapsule: {ITEM} is claimed by ")
    assert run("ls-tree", clones.there(), cwd=clones.server.repository()) == ""
    assert "tester" not in text  # neither name nor address of the user


@pytest.mark.promise("claims.released")
def test_what_is_released_can_be_claimed_by_anybody(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    assert ada.release(ITEM) == ""
    assert clones.there() == ""
    take(clones.opens("bob"))


@pytest.mark.promise("claims.released")
def test_a_clone_releases_what_its_other_process_claimed_and_nothing_of_others(clones: Clones) -> None:
    take(clones.opens("ada"))
    clones.opens("bob").release(ITEM)
    assert clones.there()
    clones.opens("ada").release(ITEM)
    assert not clones.there()


@pytest.mark.promise("claims.back")
def test_a_clone_takes_its_own_claim_back_at_once(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    since = clones.claim().since
    killed(ada)
    assert take(clones.opens("ada")) == ""
    assert clones.claim().since == since


@pytest.mark.promise("claims.back")
def test_killed_between_the_claim_and_taking_note_of_it_a_clone_takes_it_back(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    killed(ada)
    clones.repo("ada").git("update-ref", "-d", f"refs/capsule/claimed/origin/{ITEM}")
    take(clones.opens("ada"))


@pytest.mark.promise("claims.one")
def test_a_copy_of_a_clone_is_another_clone(clones: Clones, tmp_path: Path) -> None:
    take(clones.opens("ada"))
    subprocess.run(["cp", "-r", str(tmp_path / "ada"), str(tmp_path / "copy")], check=True)
    with pytest.raises(HeldElsewhere):
        take(clones.opens("copy"))
    assert isinstance(clones.opens("copy"), RemoteClaims)


@pytest.mark.promise("claims.one")
def test_a_linked_worktree_is_the_same_clone(clones: Clones, tmp_path: Path) -> None:
    ada = clones.opens("ada")
    take(ada)
    killed(ada)
    clones.repo("ada").git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    take(clones.opens("side"))


# Renewing, running out, taking over


@pytest.mark.promise("claims.renewed")
def test_a_claim_is_renewed_beside_long_work(clones: Clones) -> None:
    ada = clones.opens("ada", Lasting(3, 60))
    take(ada)
    first = clones.claim()
    eventually(lambda: clones.renewals() >= 4)
    assert clones.claim().until > first.until and clones.claim().since == first.since
    with pytest.raises(HeldElsewhere):
        take(clones.opens("bob"))
    assert ada.check(ITEM) == []


@pytest.mark.promise("claims.taken-over")
def test_a_claim_that_has_run_out_is_taken_over(clones: Clones) -> None:
    ada, bob = clones.opens("ada", Lasting(2, 60)), clones.opens("bob")
    take(ada)
    killed(ada)
    with pytest.raises(HeldElsewhere):
        take(bob)
    time.sleep(2.1)
    assert "ran out at" in take(bob)
    assert "this clone has taken it over" in take(clones.opens("ada"), take_over=True)


@pytest.mark.promise("claims.taken-over")
def test_a_person_takes_a_claim_over_at_once_and_its_holder_is_stopped(clones: Clones) -> None:
    losses: list[str] = []
    ada = clones.opens("ada", Lasting(3, 60), losses=losses)
    take(ada)
    assert "taken it over" in take(clones.opens("bob"), take_over=True)
    eventually(lambda: losses == ["ada"])
    with pytest.raises(HeldElsewhere, match="lost its claim") as lost:
        ada.check(ITEM)
    assert "is worked on by" in lost.value.message
    assert ada.lost(ITEM) is lost.value
    ada.let_go(ITEM, Standing.STOPPED)
    with pytest.raises(HeldElsewhere):
        take(clones.opens("ada"))


@pytest.mark.promise("claims.taken-over")
def test_of_two_that_take_over_one_has_it(clones: Clones) -> None:
    ada = clones.opens("ada", Lasting(1, 60))
    take(ada)
    killed(ada)
    time.sleep(1.1)
    old = clones.there()
    bob, eve = clones.opens("bob"), clones.opens("eve")
    take(bob)
    fresh = new_claim(ITEM, Holder("eve", "eve", "x"), NOW, LATER)
    trouble = eve._put(fresh, old)  # as it saw the claim before
    assert not isinstance(trouble, str) and trouble.kind == "lost"


@pytest.mark.promise("claims.kept")
@pytest.mark.parametrize(
    ("standing", "words"), [(Standing.NEEDS_YOU, "needs you on "), (Standing.STOPPED, "it was stopped there")]
)
def test_what_needs_a_person_stays_claimed_for_longer(clones: Clones, standing: Standing, words: str) -> None:
    ada = clones.opens("ada", Lasting(2, 3600))
    take(ada)
    ada.let_go(ITEM, standing)
    time.sleep(2.1)
    with pytest.raises(HeldElsewhere, match=words):
        take(clones.opens("bob"))
    take(clones.opens("ada"))
    assert clones.claim().standing is Standing.RUNNING


# Publishing


@pytest.mark.promise("claims.late")
def test_one_whose_claim_was_taken_over_publishes_nothing(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    take(clones.opens("bob"), take_over=True)
    with pytest.raises(HeldElsewhere, match="Nothing was pushed"):
        ada.about_to_publish([ITEM], "1" * 40, clones.repo("ada").head())


@pytest.mark.promise("claims.late")
def test_before_a_step_is_committed_the_claim_is_confirmed(clones: Clones) -> None:
    ada = clones.opens("ada")
    ada.confirm(ITEM)  # nothing is claimed by this process: a person's command
    take(ada)
    ada.confirm(ITEM)
    clones.server.down = True
    with pytest.raises(RemoteFault):
        ada.confirm(ITEM)
    clones.server.down = False
    ada.confirm(ITEM)
    take(clones.opens("bob"), take_over=True)
    with pytest.raises(HeldElsewhere):
        ada.confirm(ITEM)


@pytest.mark.promise("claims.late")
def test_one_whose_claim_was_taken_over_and_released_since_publishes_nothing(clones: Clones) -> None:
    ada, bob = clones.opens("ada"), clones.opens("bob")
    take(ada)
    take(bob, take_over=True)
    bob.release(ITEM)
    with pytest.raises(HeldElsewhere, match="released by somebody"):
        ada.about_to_publish([ITEM], "1" * 40, clones.repo("ada").head())


@pytest.mark.promise("claims.late")
def test_what_an_earlier_holder_pushes_late_is_found_before_anything_is_merged_again(clones: Clones) -> None:
    """Suspended between its last look at the claim and its push, and woken after another has taken over."""
    ada, bob = clones.opens("ada"), clones.opens("bob")
    take(ada)
    before = clones.repo("ada").head()
    late = clones.repo("ada").commit("Merge shop-1.1", answer="42")
    ada.about_to_publish([ITEM], late, before)
    take(bob, take_over=True)
    clones.repo("ada").git("push", "-q", "origin", f"{late}:main")
    bob.about_to_publish(
        [ITEM], "2" * 40, before
    )  # its push is refused, as main has moved: it fetches, and tries again
    clones.repo("bob").git("fetch", "-q", "origin")
    with pytest.raises(MergedElsewhere, match=late[:12]):
        bob.about_to_publish([ITEM], "2" * 40, late)
    bob.let_go(ITEM, Standing.NEEDS_YOU)
    eve = clones.opens("eve")
    eve.take(ITEM, nothing, take_over=True)
    with pytest.raises(MergedElsewhere):  # two holders later, too
        eve.about_to_publish([ITEM], "3" * 40, late)


@pytest.mark.promise("claims.late")
def test_who_takes_over_what_is_merged_is_told_so_at_once(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    late = clones.repo("ada").commit("Merge shop-1.1", answer="42")
    ada.about_to_publish([ITEM], late, "")
    clones.repo("ada").git("push", "-q", "origin", f"{late}:main")
    bob = clones.repo("bob")
    with pytest.raises(MergedElsewhere) as merged:
        clones.opens("bob").take(ITEM, lambda commit: commit == bob.head(), take_over=True)
    assert merged.value.hint == f"Close it: capsule complete {ITEM}"


@pytest.mark.promise("claims.one")
def test_a_mission_publishes_along_what_its_clone_has_claimed(clones: Clones) -> None:
    """Several that are merged with one commit: each is claimed by a process of its own."""
    ada, other, bob = clones.opens("ada"), clones.opens("ada", Lasting(3, 60)), clones.opens("bob")
    take(ada)
    take(other, "shop-1.2")
    ada.about_to_publish([ITEM, "shop-1.2"], "1" * 40, clones.repo("ada").head())
    assert clones.claim("shop-1.2").candidates == ("1" * 40,)
    moved = clones.there("shop-1.2")
    eventually(lambda: clones.there("shop-1.2") != moved)  # its own process renews it further
    assert other.check("shop-1.2") == [] and clones.claim("shop-1.2").candidates == ("1" * 40,)
    take(bob, "shop-1.3")
    with pytest.raises(HeldElsewhere, match=r"shop-1\.3"):
        ada.about_to_publish([ITEM, "shop-1.3"], "1" * 40, clones.repo("ada").head())


# Without the remote


@pytest.mark.promise("claims.offline")
def test_work_goes_on_offline_until_the_claim_runs_out(clones: Clones) -> None:
    told: list[str] = []
    ada = clones.opens("ada", Lasting(4, 60), told=told)
    take(ada)
    clones.server.down = True
    eventually(lambda: told)
    assert told[0].startswith(f"Offline: the claim on {ITEM} at origin cannot be renewed (")
    assert ada.check(ITEM) == told
    with pytest.raises(RemoteFault) as offline:
        ada.about_to_publish([ITEM], "1" * 40, "")
    assert offline.value.trouble.passes
    time.sleep(4.1)
    with pytest.raises(RemoteFault) as ended:
        ada.check(ITEM)
    assert "another clone may take it over" in ended.value.message
    assert ended.value.exit_code == 3
    clones.server.down = False
    ada.check(ITEM)
    ada.about_to_publish([ITEM], "1" * 40, clones.repo("ada").head())


@pytest.mark.promise("claims.offline")
def test_a_mission_goes_on_offline_with_the_claim_that_it_has(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    ada.let_go(ITEM, Standing.STOPPED)
    clones.server.down = True
    told = take(clones.opens("ada"))
    assert told.startswith(f"Offline: the claim on {ITEM} at origin cannot be renewed (")
    assert f"; it expires at {clock_time(clones.claim().until)[:5]}." in told
    with pytest.raises(RemoteFault) as refused:
        take(clones.opens("ada"), "shop-1.2")
    assert refused.value.message.startswith("shop-1.2 is not claimed: ")
    warning = clones.opens("ada").release(ITEM)
    assert warning.startswith(f"{ITEM} stays claimed at origin, which cannot be reached: ")


@pytest.mark.promise("claims.offline")
def test_a_claim_whose_renewal_got_no_answer_is_still_held(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    held = ada._held[ITEM]
    known = held.commit
    ada.about_to_publish([ITEM], "1" * 40, "")
    assert clones.there() == held.commit != known
    held.commit = known  # as if the answer had been lost
    ada._renew(held)
    assert ada.check(ITEM) == [] and clones.there() == held.commit


@pytest.mark.promise("claims.namespace")
def test_a_server_that_refuses_the_namespace_is_quoted_with_the_setting_that_helps(clones: Clones) -> None:
    clones.server.refuse("refs/capsule/*", "only branches here")
    with pytest.raises(RemoteFault) as refused:
        take(clones.opens("ada"))
    assert "only branches here" in refused.value.message
    assert "`merge.claims`" in refused.value.hint and "refs/heads/capsule-claims/" in refused.value.hint
    assert refused.value.exit_code == 1
    ada = RemoteClaims(Git.find(clones.repo("ada").path), "origin", "refs/heads/capsule-claims/", LASTS)
    take(ada)
    ada.close()


# What others hold


@pytest.mark.promise("claims.queue")
def test_all_claims_are_seen_with_one_question(clones: Clones) -> None:
    ada = clones.opens("ada")
    for number in range(5):
        take(ada, f"shop-{number}")
    bob = clones.opens("bob")
    asked: list[tuple[str, ...]] = []
    across = bob._git.across

    def counted(*args: str, **more: Any) -> GitResult:
        asked.append(args)
        return across(*args, **more)

    bob._git.across = counted  # type: ignore[method-assign]
    assert sorted(bob.elsewhere()) == [f"shop-{number}" for number in range(5)]
    assert [each[0] for each in asked if each[0] != "config"] == ["ls-remote", "fetch"]
    assert sorted(bob.elsewhere()) == [f"shop-{number}" for number in range(5)]
    assert len([each for each in asked if each[0] != "config"]) == 2  # seen a moment ago
    assert ada.elsewhere() == {}


@pytest.mark.promise("claims.queue")
def test_what_was_seen_last_is_known_without_the_remote(clones: Clones) -> None:
    ada = clones.opens("ada")
    take(ada)
    assert [*clones.opens("bob").elsewhere()] == [ITEM]
    clones.server.down = True
    assert [*clones.opens("bob").elsewhere(look=False)] == [ITEM]
    assert [*clones.opens("bob").elsewhere()] == []
    clones.server.down = False
    ada.release(ITEM)
    assert not clones.opens("bob").elsewhere() and not clones.opens("bob").elsewhere(look=False)


@pytest.mark.promise("claims.taken-over")
def test_what_another_clone_left_is_named_unless_it_waits_for_a_person(clones: Clones) -> None:
    ada, bob = clones.opens("ada", Lasting(1, 1)), clones.opens("bob")
    for item in (ITEM, "shop-1.2"):
        take(ada, item)
    ada.let_go("shop-1.2", Standing.NEEDS_YOU)
    killed(ada)
    time.sleep(1.1)
    assert bob.elsewhere() == {}
    assert {*bob.left_behind()} == {ITEM}


@pytest.mark.parametrize(
    "planted",
    [
        "",
        "nothing",
        "\n{}",
        '\n{"item":"shop-1.2"}',
        '\n{"item":"shop-1.1","clone":"x"}',
        "\n{" * 20_000,
        '\n{"item":1}',
        '\n{"item":"shop-1.1","clone":"x","token":"y","since":"2026-01-01","until":"9999-12-31T23:59:59Z"}',
        '\n{"item":"shop-1.1","clone":"x","token":"y","since":"0001-01-01","until":"2026-12-31T23:59:59Z"}',
    ],
)
@pytest.mark.promise("claims.foreign")
def test_a_claim_that_cannot_be_read_is_that_of_somebody(clones: Clones, planted: str) -> None:
    repo = clones.repo("ada")
    tree = subprocess.run(["git", "mktree"], cwd=repo.path, input=b"", capture_output=True, check=True).stdout.decode()
    made = ["git", "commit-tree", tree.strip()]
    commit = subprocess.run(made, cwd=repo.path, input=planted.encode(), capture_output=True, check=True).stdout
    repo.git("push", "-q", "origin", f"{commit.decode().strip()}:{NAMESPACE}{ITEM}")
    bob = clones.opens("bob")
    with pytest.raises(HeldElsewhere, match="by somebody"):
        take(bob)
    assert [*bob.elsewhere()] == [ITEM] and not bob.left_behind()
    take(bob, take_over=True)


def test_a_ref_that_is_no_commit_is_a_claim_of_somebody(clones: Clones) -> None:
    repo = clones.repo("ada")
    blob = repo.git("hash-object", "-w", str(repo.write("x", "y")))
    repo.git("push", "-q", "origin", f"{blob}:{NAMESPACE}{ITEM}")
    with pytest.raises(HeldElsewhere, match="by somebody"):
        take(clones.opens("bob"))


@pytest.mark.promise("claims.foreign")
@pytest.mark.parametrize("item", ["a", "WRK-001", "a.b", "a-b_c.d", "x" * 64, "GH-1", "9"])
def test_every_id_of_an_item_is_a_ref(clones: Clones, item: str) -> None:
    assert run("check-ref-format", ref_of(NAMESPACE, item)) == ""
    take(clones.opens("ada"), item)
    assert clones.there(item)


@pytest.mark.promise("claims.foreign")
@pytest.mark.parametrize(
    "item", ["", "..", "a..b", "a/b", "a b", "a~1", "a:b", "a\nb", "-a", ".a", "a.lock", "a*", "ü"]
)
def test_nothing_else_becomes_a_ref(clones: Clones, item: str) -> None:
    with pytest.raises(InvalidId):
        take(clones.opens("ada"), item)
    assert items_of(NAMESPACE, {f"{NAMESPACE}{item}": "1" * 40, f"{NAMESPACE}ok": "2" * 40}) == {"ok": "2" * 40}


@pytest.mark.promise("claims.words")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "X is worked on by ada since 12:03 (its claim lasts until 12:33)"),
        (
            {"standing": Standing.NEEDS_YOU},
            "X needs you on ada, claimed since 12:03 (its claim lasts until 12:33)",
        ),
        (
            {"standing": Standing.STOPPED},
            "X is kept by ada since 12:03: it was stopped there (its claim lasts until 12:33)",
        ),
        ({"until": "2026-11-20T12:03:00Z"}, "X is worked on by ada since 12:03 (its claim lasts until Fri 12:03)"),
        ({"since": "2026-11-18T09:00:00Z"}, "X is worked on by ada since Wed 09:00 (its claim lasts until 12:33)"),
        ({"until": "2026-11-19T12:00:00Z"}, "X is worked on by ada since 12:03 (its claim ran out at 12:00)"),
        (
            {"clone": "", "host": "somebody", "since": "", "until": ""},
            "X is worked on by somebody (it does not say until when)",
        ),
    ],
)
def test_words(monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, object], words: str) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    claim = Claim(**{"item": "X", "clone": "1", "host": "ada", "token": "2", "since": NOW, "until": LATER, **fields})  # type: ignore[arg-type]
    assert f"X {claim.in_words('2026-11-19T12:10:00Z')}" == words


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = new_claim("X", Holder("1", "ada's {laptop}", "2"), NOW, LATER).about_to_publish("1" * 40)
    assert read_claim("X", as_message(claim)) == claim
    assert read_claim("Y", as_message(claim)) == Claim(item="Y")
