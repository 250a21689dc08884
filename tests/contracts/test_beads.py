"""bd, and what goes wrong with it: each time one line of cause, one of what to do next, and nothing lost or done twice.

What every tracker promises is asked in test_trackers.py. Here a stand-in for bd hangs, dies, is locked, too old, not
there, or answers in a way of its own; what it was asked is in its log, which shows too that we never force anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from capsule.core.errors import CapsuleError, LockHeld, PrerequisiteMissing, Refused, TrackerError, UnknownItem
from capsule.core.item import HELD, Blocked, Item, NewItem, Status
from capsule.system.lock import FileLock
from capsule.trackers._bd import Bd, BdResult, Patience
from capsule.trackers.beads import BeadsTracker
from tests.contracts import fake_bd
from tests.contracts.bd_projects import ACTOR, bead, environment, faked, opened
from tests.costs import LONG, costs_below, eventually

ITEMS = (
    Item(id="demo-1", title="All of it", type="epic"),
    Item(id="demo-1.1", title="One", parent="demo-1"),
    Item(id="demo-1.2", title="Two", parent="demo-1", dependencies=("demo-1.1",)),
    Item(id="demo-2", title="Alone"),
)
CLASSIC, DOLT, ENVELOPED = "0.47.1", "1.0.5", "2.0"
SHAPES = (CLASSIC, DOLT, ENVELOPED)

QUICK = Patience(pauses=(0.01, 0.01, 0.01))
IMPATIENT = Patience(answer=3, pauses=(0.01,))
"""Long enough for a stand-in on a busy machine."""


@pytest.fixture(autouse=True)
def nothing_is_forced(tmp_path: Path) -> Iterator[None]:
    """Whatever happened: no call was one of those that only a human may make."""
    yield
    for call in fake_bd.calls(tmp_path):
        assert call["command"] not in ("init", "migrate", "doctor", "import", "delete"), call
        assert "--force" not in call["argv"] and "-f" not in call["argv"], call


def project(root: Path, era: str = DOLT, patience: Patience = QUICK, **behaviour: object) -> BeadsTracker:
    return faked(root, ITEMS, era, patience, **behaviour)


def asked(root: Path, command: str) -> int:
    return len(fake_bd.calls(root, command))


def changes(root: Path, command: str) -> list[str]:
    """The beads that calls of this command changed, one for each time."""
    return [name for call in fake_bd.calls(root, command) for name in call["changed"]]


def row(root: Path, name: str) -> dict[str, Any]:
    return fake_bd.beads(root)[name]


def changed(root: Path, name: str, **fields: str) -> None:
    """As somebody did it in bd by hand."""
    path = root / ".beads" / fake_bd.STATE
    state = json.loads(path.read_text())
    state["issues"][name] |= fields
    path.write_text(json.dumps(state))


def wrapped(root: Path, script: str) -> None:
    """The stand-in behind a script, which calls it as `real`."""
    program = root / "bin/bd"
    program.rename(root / "bin/real")
    program.write_text(f'#!/bin/sh\nreal="$(dirname "$0")/real"\n{script}')
    program.chmod(0o755)


# ---- it is not there, or not fit


@pytest.mark.promise("trackers.bd-faults")
def test_a_bd_that_is_missing_is_named_with_two_ways_out(tmp_path: Path) -> None:
    tracker = BeadsTracker(tmp_path, env={"PATH": str(tmp_path)})
    with pytest.raises(PrerequisiteMissing) as caught:
        tracker.items()
    assert "bd (beads) is not on the PATH" in caught.value.message
    assert "Get it" in caught.value.hint and "tracker: beads-file" in caught.value.hint


def test_a_bd_in_a_folder_named_relatively_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrerequisiteMissing):
        BeadsTracker(tmp_path, env={"PATH": "bin"}).items()


def test_a_bd_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bd").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "bin/bd").chmod(0o755)
    with pytest.raises(TrackerError, match="cannot be started"):
        opened(tmp_path, tmp_path / "bin").items()


@pytest.mark.promise("trackers.bd-faults")
def test_a_bd_that_is_too_old_is_refused_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    tracker = project(tmp_path, "0.44.0", too_old=True)
    for ask in (tracker.items, lambda: tracker.close("demo-2", "x")):
        with pytest.raises(TrackerError) as caught:
            ask()
        assert "bd 0.20.1 is too old" in caught.value.message and "1.0.5" in caught.value.hint
    assert {call["command"] for call in fake_bd.calls(tmp_path)} == {"version"}


@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.47.1", ""),
        ("0.55.4", "storage was being rebuilt"),
        ("0.62.9", "storage was being rebuilt"),
        ("0.63.3", ""),
        ("1.0.5", ""),
        ("1.2.1", "converts a database"),
        ("1.2.2", ""),
        ("2.0.0", "newer than any that was tried"),
        ("unknown", "does not say which version"),
    ],
)
def test_a_version_with_a_history_is_warned_about_and_used(tmp_path: Path, version: str, words: str) -> None:
    tracker = project(tmp_path, version=version)
    assert len(tracker.items()) == len(ITEMS)
    assert [words in warning for warning in tracker.warnings] == [True] * bool(words)
    tracker.items()
    assert asked(tmp_path, "version") == (2 if version == "unknown" else 1)


@pytest.mark.parametrize("era", SHAPES)
def test_a_project_without_a_database_is_told_how_to_get_one_and_gets_none_from_us(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, no_database=True)
    for ask in (tracker.items, lambda: tracker.claim("demo-2")):
        with pytest.raises(TrackerError) as caught:
            ask()
        assert "no database of beads" in caught.value.message and "`bd dolt pull`" in caught.value.hint
        assert "beads-file" not in caught.value.hint, "there is no file here"
    (tmp_path / ".beads/issues.jsonl").write_text('{"id": "demo-1"}\n')
    with pytest.raises(TrackerError) as caught:
        tracker.items()
    assert "`bd init` by hand" in caught.value.hint and "tracker: beads-file" in caught.value.hint


@pytest.mark.promise("trackers.bd-faults")
def test_a_database_that_is_newer_than_bd_is_left_alone(tmp_path: Path) -> None:
    tracker = project(tmp_path, schema_skew=True)
    for ask in (tracker.items, lambda: tracker.close("demo-2", "x")):
        with pytest.raises(TrackerError) as caught:
            ask()
        assert "newer than bd 1.0.5" in caught.value.message and "a newer one" in caught.value.hint


# ---- it answers oddly

NOISE = "Warning: .beads has permissions 0755\n[1/3] importing {3} rows\nImported 3 issues from issues.jsonl\n"


@pytest.mark.sweep
@pytest.mark.promise("trackers.bd-answers")
@pytest.mark.parametrize("era", SHAPES)
def test_text_before_the_answer_and_beside_it_is_passed_over(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, noise=NOISE, noise_stderr="⚠ Error budget is low\n")
    assert [item.id for item in tracker.items()] == [item.id for item in ITEMS]
    tracker.claim("demo-2")
    tracker.close("demo-2", "done")
    assert tracker.item("demo-2").status is Status.DONE
    assert row(tmp_path, tracker.add(NewItem(title="More")))["title"] == "More"
    with pytest.raises(UnknownItem):
        tracker.item("demo-22")


@pytest.mark.sweep
@pytest.mark.parametrize("era", SHAPES)
def test_without_export_the_same_comes_from_list_and_show(tmp_path: Path, era: str) -> None:
    expected = project(tmp_path, era).items()
    fake_bd.switch(tmp_path, fail={"export": 'unknown command "export" for "bd"'})
    assert opened(tmp_path, tmp_path / "bin", QUICK).items() == expected
    assert asked(tmp_path, "list") == 1


def test_an_empty_database_is_not_taken_for_a_failure(tmp_path: Path) -> None:
    for era in SHAPES:
        assert faked(tmp_path, (), era, QUICK).items() == []


@pytest.mark.promise("trackers.bd-answers")
@pytest.mark.parametrize("era", SHAPES)
def test_no_list_is_cut_short(tmp_path: Path, era: str) -> None:
    many = [Item(id=f"demo-{number}", title="One of many") for number in range(1, 131)]
    items = faked(tmp_path, many, era, QUICK).items()
    assert [item.id for item in items] == [item.id for item in many]
    assert {item.status for item in items} == {Status.READY}


def test_beads_with_impossible_ids_are_left_out_with_a_warning(tmp_path: Path) -> None:
    odd = ("../x", "-rf", "a b", "٣", "9" * 5000)
    state = {"prefix": "demo", "issues": {name: bead(Item(id=name, title="Odd")) for name in (*odd, "demo-1")}}
    tracker = project(tmp_path)
    (tmp_path / ".beads" / fake_bd.STATE).write_text(json.dumps(state))
    assert [item.id for item in tracker.items()] == ["demo-1"]
    assert len(tracker.warnings) == len(odd) and all("is left out" in warning for warning in tracker.warnings)


def test_another_program_of_that_name_is_not_taken_for_an_empty_tracker(tmp_path: Path) -> None:
    script = tmp_path / "bin/bd"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\n[ "$1" = version ] && echo 1.0.5 && exit\necho Hello there\n')
    script.chmod(0o755)
    with pytest.raises(TrackerError, match="gave no list"):
        BeadsTracker(tmp_path, env=environment(script.parent, tmp_path)).items()


def test_a_row_that_is_cut_short_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="cut short"):
        project(tmp_path, noise='{"id": "demo-1", "ti').items()


@pytest.mark.parametrize("era", SHAPES)
def test_what_bd_would_not_hand_out_is_not_open(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era)
    changed(tmp_path, "demo-2", defer_until="2099-01-01T00:00:00Z")
    first = tracker.item("demo-2")
    items = {item.id: item for item in tracker.items()}
    alone = items.pop("demo-2")
    assert alone == first == tracker.item("demo-2"), "however it is asked for"
    assert alone.status is Status.BLOCKED
    assert alone.blocked == Blocked(Status.READY, "bd defers it until 2099-01-01T00:00:00Z", HELD)
    assert {item.status for item in items.values()} == {Status.READY}, "what waits for another is told by that"


@pytest.mark.parametrize(("status", "way"), [("open", "bd update demo-2 --defer="), ("deferred", "bd undefer demo-2")])
def test_what_bd_holds_back_for_a_date_is_not_opened_behind_its_back(tmp_path: Path, status: str, way: str) -> None:
    tracker = project(tmp_path)
    changed(tmp_path, "demo-2", defer_until="2099-01-01T00:00:00Z", status=status)
    with pytest.raises(Refused) as caught:
        tracker.reopen("demo-2")
    assert caught.value.message == "bd defers demo-2 until 2099-01-01T00:00:00Z."
    assert caught.value.hint == f"Remove the date: `{way}`"
    assert tracker.item("demo-2").blocked == Blocked(Status.READY, "bd defers it until 2099-01-01T00:00:00Z", HELD)
    assert asked(tmp_path, "update") == 0
    changed(tmp_path, "demo-2", defer_until="2020-01-01T00:00:00Z", status="deferred")
    tracker.reopen("demo-2")
    assert row(tmp_path, "demo-2")["status"] == "open", "a date that has passed holds nobody up"
    changed(tmp_path, "demo-2", defer_until="", status="deferred")
    assert tracker.item("demo-2").blocked == Blocked(Status.READY, "bd defers it", HELD), "without a date, too"


def test_who_else_has_begun_with_a_bead_is_known(tmp_path: Path) -> None:
    tracker = project(tmp_path)
    changed(tmp_path, "demo-1.1", status="in_progress", assignee="alice")
    changed(tmp_path, "demo-1.2", status="in_progress", assignee=ACTOR)
    changed(tmp_path, "demo-2", assignee="alice")
    assert [item.taken_by for item in tracker.items()] == ["", "alice", "", ""]
    assert tracker.item("demo-1.1").taken_by == "alice"


def test_what_was_odd_is_not_forgotten_when_something_is_added(tmp_path: Path) -> None:
    tracker = project(tmp_path, version="1.2.1")
    tracker.items()
    before = tracker.warnings
    tracker.add(NewItem(title="More"))
    assert before and tracker.warnings == before


# ---- it takes long, or never ends


@pytest.mark.promise("trackers.bd-faults")
def test_a_slow_answer_is_waited_for(tmp_path: Path) -> None:
    tracker = project(tmp_path, patience=Patience(), slow={"*": 0.4})
    tracker.close("demo-2", "done")
    assert changes(tmp_path, "close") == ["demo-2"] and asked(tmp_path, "close") == 1


@pytest.mark.slow
@pytest.mark.promise("trackers.bd-faults")
def test_a_question_without_an_answer_ends_with_all_it_started(tmp_path: Path) -> None:
    tracker = project(tmp_path, patience=IMPATIENT)
    wrapped(tmp_path, '[ "$1" = export ] && { sleep 300 & echo $! > child; wait; }\n"$real" "$@"\n')
    with pytest.raises(TrackerError) as caught:
        tracker.items()
    assert "`bd export` gave no answer for 3 s and was ended" in caught.value.message
    assert "by hand" in caught.value.hint
    child = (tmp_path / "child").read_text().strip()
    state = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True, text=True, check=False).stdout
    assert state.strip()[:1] in ("", "Z"), "what bd had started is gone, or only waits to be buried"


@pytest.mark.promise("trackers.bd-faults")
def test_a_close_that_hangs_is_not_taken_for_one_and_can_be_made_later(tmp_path: Path) -> None:
    tracker = project(tmp_path, patience=IMPATIENT, hang=("close",))
    with pytest.raises(TrackerError, match="`bd close` gave no answer"):
        tracker.close("demo-2", "done")
    assert row(tmp_path, "demo-2")["status"] == "open" and asked(tmp_path, "close") == 1
    fake_bd.switch(tmp_path, hang=())
    tracker.close("demo-2", "done")
    assert changes(tmp_path, "close") == ["demo-2"]


@pytest.mark.slow
def test_what_was_done_before_it_hung_is_seen_and_not_done_again(tmp_path: Path) -> None:
    tracker = project(tmp_path, patience=IMPATIENT, die_after={"close": "hang"})
    tracker.close("demo-2", "done")
    assert changes(tmp_path, "close") == ["demo-2"] and asked(tmp_path, "close") == 1


# ---- it dies on the way


@pytest.mark.sweep
@pytest.mark.promise("trackers.bd-changes")
@pytest.mark.parametrize("end", ["kill", 1])
def test_what_was_done_before_it_died_is_seen_and_not_done_again(tmp_path: Path, end: object) -> None:
    tracker = project(tmp_path, die_after=dict.fromkeys(("update", "close", "create", "comments"), end))
    tracker.claim("demo-2")
    tracker.close("demo-2", "done")
    new = NewItem(title="More", reference="capsule/1")
    assert tracker.add(new) == tracker.add(new)
    plain = tracker.add(NewItem(title="Plain"))
    tracker.comment("demo-1", "A remark")
    assert (changes(tmp_path, "update"), changes(tmp_path, "close")) == (["demo-2"], ["demo-2"])
    assert len(changes(tmp_path, "create")) == 2 and plain in changes(tmp_path, "create")
    assert [remark["text"] for remark in row(tmp_path, "demo-1")["comments"]] == ["A remark"]


# ---- somebody else is at the database


@pytest.mark.sweep
@pytest.mark.parametrize("era", [CLASSIC, "1.0.0", DOLT])
def test_a_lock_is_waited_for_and_nothing_is_done_twice(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, locked=2)
    assert len(tracker.items()) == len(ITEMS)
    tracker.claim("demo-2")
    tracker.close("demo-2", "done")
    tracker.comment("demo-1", "A remark")
    name = tracker.add(NewItem(title="More"))
    assert (changes(tmp_path, "update"), changes(tmp_path, "close")) == (["demo-2"], ["demo-2"])
    assert len(row(tmp_path, "demo-1")["comments"]) == 1
    assert changes(tmp_path, "create") == [name] and asked(tmp_path, "create") == 3


@pytest.mark.promise("trackers.bd-faults")
@pytest.mark.parametrize("era", [CLASSIC, DOLT])
def test_a_lock_for_ever_is_named_after_a_few_attempts(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, locked={"export": -1, "close": -1})
    for ask in (tracker.items, lambda: tracker.close("demo-2", "done")):
        with pytest.raises(TrackerError) as caught:
            ask()
        assert "found the database locked: failed to open database" in caught.value.message
        assert "wait until it has ended" in caught.value.hint
    assert asked(tmp_path, "export") == asked(tmp_path, "close") == 1 + len(QUICK.pauses)
    assert row(tmp_path, "demo-2")["status"] == "open" and changes(tmp_path, "close") == []


@pytest.mark.promise("trackers.bd-changes")
def test_a_lock_that_came_after_the_work_does_not_make_it_twice(tmp_path: Path) -> None:
    """It says `locked` although it closed the bead: looking again comes before saying it again."""
    tracker = project(tmp_path)
    lies = '[ "$1" = close ] || exit 0\necho "Error: database is locked" >&2\nexit 1\n'
    wrapped(tmp_path, f'"$real" "$@" || exit $?\n{lies}')
    tracker.close("demo-2", "done")
    assert asked(tmp_path, "close") == 1 and changes(tmp_path, "close") == ["demo-2"]


def test_a_bead_that_is_only_called_alike_is_not_touched(tmp_path: Path) -> None:
    """bd takes the end of an id for the id: `bd update 1.1 --claim` claims demo-1.1."""
    tracker = project(tmp_path)
    wrapped(
        tmp_path, 'for word; do shift; [ "$word" = 1.1 ] && word=demo-1.1; set -- "$@" "$word"; done\n"$real" "$@"\n'
    )
    for change in (tracker.item, tracker.claim, tracker.release, lambda name: tracker.close(name, "x")):
        with pytest.raises(UnknownItem):
            change("1.1")
    assert row(tmp_path, "demo-1.1")["status"] == "open"
    assert {call["command"] for call in fake_bd.calls(tmp_path)} <= {"version", "export", "show"}


def test_our_own_calls_come_one_after_the_other(tmp_path: Path) -> None:
    project(tmp_path, slow={"*": 0.05})
    threads = [threading.Thread(target=opened(tmp_path, tmp_path / "bin").item, args=("demo-2",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = [call for call in fake_bd.calls(tmp_path) if call["command"] != "version"]
    assert [call["command"] for call in calls].count("export") == len(threads)
    assert all(one["ended"] <= other["started"] for one, other in pairwise(calls))


def test_a_process_of_ours_that_is_at_it_for_too_long_is_named(tmp_path: Path) -> None:
    tracker = project(tmp_path, patience=Patience(turn=0.2))
    with FileLock(tmp_path / "locks/tracker.lock"), pytest.raises(LockHeld) as caught:
        tracker.items()
    assert "tracker is locked by pid" in caught.value.message and fake_bd.calls(tmp_path) == []


# ---- it says no


@pytest.mark.promise("trackers.bd-changes")
@pytest.mark.parametrize("era", ["0.47.1", "0.60.0", "1.0.5"])
def test_a_refusal_to_close_is_shown_in_its_own_words(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era)
    with pytest.raises(Refused) as caught:
        tracker.close("demo-1.2", "--force")
    assert "blocked by open issues [demo-1.1]" in caught.value.message and "Nothing is forced" in caught.value.hint
    assert asked(tmp_path, "close") == 1 and row(tmp_path, "demo-1.2")["status"] == "open"


def test_an_epic_with_open_children_is_not_closed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="open child"):
        project(tmp_path).close("demo-1", "all done")
    assert row(tmp_path, "demo-1")["status"] == "open"


@pytest.mark.parametrize("era", SHAPES)
def test_words_of_bd_are_shown_on_one_line_without_controls_and_cut(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, fail={"close": "gate \x1b[31munmet\a " + "x" * 900})
    with pytest.raises(Refused) as caught:
        tracker.close("demo-2", "done")
    assert "gate [31munmet" in caught.value.message and len(caught.value.message) < 400
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("era", SHAPES)
def test_somebody_elses_claim_is_refused_and_names_them(tmp_path: Path, era: str) -> None:
    tracker = project(tmp_path, era, taken={"demo-2": "somebody"})
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            tracker.claim("demo-2")
        assert (
            caught.value.message == "demo-2 is claimed by somebody." and "Wait until they finish" in caught.value.hint
        )
    tracker.release("demo-2")
    assert (row(tmp_path, "demo-2")["assignee"], row(tmp_path, "demo-2")["status"]) == ("somebody", "in_progress")


@pytest.mark.parametrize("era", [CLASSIC, DOLT])
def test_our_own_claim_is_found_again_by_the_next_process(tmp_path: Path, era: str) -> None:
    project(tmp_path, era).claim("demo-2")
    assert row(tmp_path, "demo-2")["assignee"] == ACTOR
    opened(tmp_path, tmp_path / "bin").claim("demo-2")
    opened(tmp_path, tmp_path / "bin").release("demo-2")
    after = row(tmp_path, "demo-2")
    assert after["status"] == "open" and not after.get("assignee") and asked(tmp_path, "update") == 2


def test_what_a_human_closed_is_seen_when_it_is_asked_for_again(tmp_path: Path) -> None:
    tracker = project(tmp_path)
    assert tracker.item("demo-2").status is Status.READY
    env = environment(tmp_path / "bin", tmp_path)
    subprocess.run(["bd", "close", "demo-2", "--reason=mine"], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert tracker.item("demo-2").status is Status.DONE
    tracker.close("demo-2", "ours")
    assert row(tmp_path, "demo-2")["close_reason"] == "mine"


def test_what_a_human_closes_before_the_claim_is_looked_at_is_said_to_be_closed(tmp_path: Path) -> None:
    tracker = project(tmp_path)
    meanwhile = '[ "$1" = update ] && "$real" close demo-2 --reason=mine >&2\nexit 0\n'
    wrapped(tmp_path, f'"$real" "$@" || exit $?\n{meanwhile}')
    with pytest.raises(Refused, match="demo-2 is closed already"):
        tracker.claim("demo-2")
    assert row(tmp_path, "demo-2")["close_reason"] == "mine" and asked(tmp_path, "update") == 1


@pytest.mark.parametrize("pause", [0.0, 0.3], ids=["while it is waited for", "while it is being started"])
def test_nobody_who_leaves_leaves_a_bd_behind_that_hangs(tmp_path: Path, pause: float) -> None:
    project(tmp_path)
    wrapped(tmp_path, f'case "$1" in version) exec "$real" "$@";; esac\necho $$ > {tmp_path}/pid\nexec sleep 600\n')
    leaving = (
        "import subprocess, sys, threading, time\n"
        "from pathlib import Path; from capsule.trackers.beads import connect\n"
        "class Slow(subprocess.Popen):\n"
        "    def __init__(self, *args, **more):\n"
        f"        super().__init__(*args, **more); time.sleep({pause})\n"
        "root, subprocess.Popen = Path(sys.argv[1]), Slow\n"
        "threading.excepthook = lambda *_: None\n"  # Python dies of a thread that prints while it leaves
        "threading.Thread(target=lambda: connect(root, None).items(), daemon=True).start()\n"
        "while not (root / 'pid').exists(): time.sleep(0.01)\n"
    )
    env = {**environment(tmp_path / "bin", tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", leaving, tmp_path], cwd=tmp_path, env=env, check=True, timeout=LONG)
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_type_that_bd_does_not_have_is_its_to_refuse(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="invalid issue type"):
        project(tmp_path).add(NewItem(title="More", type="whim"))
    assert changes(tmp_path, "create") == []


# ---- how it is called


def test_it_runs_in_the_project_without_input_and_without_our_git(tmp_path: Path) -> None:
    script = tmp_path / "bin/bd"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\n[ "$1" = version ] && echo 1.0.5 && exit\npwd; cat; env | sort\n')
    script.chmod(0o755)
    secret = {
        "GIT_DIR": "/elsewhere",
        "GIT_INDEX_FILE": "x",
        "BEADS_DIR": "/elsewhere",
        "MY_API_TOKEN": "s3cr3t-s3cr3t",
    }
    env = environment(script.parent, tmp_path) | secret | {"BEADS_DOLT_PASSWORD": "theirs"}
    said = Bd(tmp_path, env=env).run("anything").out.splitlines()
    assert said[0] == str(tmp_path.resolve())
    assert {"BEADS_NO_DAEMON=1", "BD_NON_INTERACTIVE=1", "NO_COLOR=1", "BEADS_DOLT_PASSWORD=theirs"} <= set(said)
    assert not [line for line in said if line.partition("=")[0] in (*secret, "BD_JSON_ENVELOPE")]


def test_no_text_becomes_a_flag_and_none_is_too_long(tmp_path: Path) -> None:
    tracker = project(tmp_path)
    long = "--force " + "ü" * 200_000 + "\0"
    name = tracker.add(NewItem(title=long, description=long))
    tracker.comment("demo-1", long)
    tracker.close("demo-2", long)
    assert row(tmp_path, name)["title"] == long[: 8 + 246], "500 bytes, as bd counts"
    texts = (row(tmp_path, name)["description"], row(tmp_path, "demo-2")["close_reason"])
    assert all(text.startswith("--force üü") and text.endswith("ü ...") for text in texts)


# ---- what it prints, taken apart


def answer(out: str = "", err: str = "", code: int | None = 0) -> BdResult:
    return BdResult(("show", "demo-1"), code, out, err)


ROW = {"id": "demo-1", "title": "One"}


@pytest.mark.promise("trackers.bd-answers")
@pytest.mark.parametrize(
    "out",
    [
        json.dumps([ROW]),
        json.dumps(ROW),
        json.dumps({**ROW, "schema_version": 1}),
        json.dumps({"schema_version": 1, "data": [ROW]}, indent=2),
        json.dumps({"schema_version": 1, "data": ROW}),
        json.dumps({"issues": [ROW], "meta": {}}),
        json.dumps({"closed": [ROW], "unblocked": []}),
        "[3] words\n{not json\n" + json.dumps([ROW], indent=2) + "\nand more",
    ],
)
def test_beads_are_found_in_any_shape(out: str) -> None:
    found = answer(out)
    assert [bead["id"] for bead in found.rows] == ["demo-1"] and not found.failed


@pytest.mark.promise("trackers.bd-answers")
@pytest.mark.parametrize(
    ("out", "err", "code", "words"),
    [
        ('{"error": "no such thing"}', "", 1, "no such thing"),
        ('{"error": "no such thing"}', "", 0, "no such thing"),
        ("", '{\n  "error": "no such thing",\n  "schema_version": 1\n}', 1, "no such thing"),
        ('{"schema_version": 1, "error": "no such thing"}', "Error: other words", 1, "no such thing"),
        ('{"schema_version": 1, "data": {"error": "no such thing"}}', "", 1, "no such thing"),
        (
            "",
            "⚠ Creating issue without description.\n  Consider\nError: no such thing\nUsage:\n  bd",
            1,
            "no such thing",
        ),
        ("", "Warning: x\ncannot close it\n", 0, "cannot close it"),
        ("out of luck", "", 3, "out of luck"),
    ],
)
def test_errors_are_found_on_either_stream(out: str, err: str, code: int, words: str) -> None:
    found = answer(out, err, code)
    assert found.failed and found.words == words


@pytest.mark.parametrize(
    "odd", [r'"\ud800 and more"', "NaN", "-Infinity", "1e400", "1" * 40, r'"\ud83d\ude00"', '"\x7f\u2028"', "-0"]
)
def test_values_that_only_some_readers_know_are_read_as_python_reads_them(odd: str) -> None:
    found = answer(f'{{"id": "demo-1", "odd": {odd}}}')
    assert [bead.id for bead in found.beads] == ["demo-1"]
    assert repr(found.rows[0]["odd"]) == repr(json.loads(odd))


def test_whoever_prints_what_only_looks_like_values_costs_no_time() -> None:
    assert costs_below(2.0, lambda: answer("[\n" * 200_000).rows)


@pytest.mark.promise("trackers.bd-answers")
def test_silence_is_not_found_where_a_bead_was_asked_for() -> None:
    assert answer("", 'Error fetching demo-1: no issue found matching "demo-1"').not_found
    assert answer('{"error": "no issues found matching the provided IDs"}', "", 1).not_found
    assert not answer("", "Error: disk on fire", 1).not_found
    assert not answer("", "", None).not_found


@pytest.mark.parametrize(
    "words",
    [
        "failed to open database: failed to initialize schema: sqlite3: database is locked",
        "embeddeddolt: another process holds the exclusive lock on the database",
        "failed to acquire lock: resource temporarily unavailable",
    ],
)
def test_a_lock_is_known_by_its_words_where_the_call_failed(words: str) -> None:
    assert answer("", f"Error: {words}", 1).busy
    assert not answer('[{"id": "demo-1"}]', f"Warning: {words}").busy


def test_nothing_of_this_is_a_traceback(tmp_path: Path) -> None:
    for out in ("[" * 100_000, '{"n": ' + "9" * 5000 + "}", "\x00\xff", "null", "7", '["a"]'):
        tracker = project(tmp_path, noise=out + "\n", fail={"export": "x", "show": "x"})
        for ask in (tracker.items, lambda t=tracker: t.item("demo-2")):
            with pytest.raises(CapsuleError):
                ask()
