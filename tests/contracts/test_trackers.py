"""What every tracker promises. To enrol one, add a function to TRACKERS that opens it with the items given.

A tracker that has no place for some fields of an item says so in HAS_NO, and is held to everything else.
See docs/how-to/add-a-tracker.md. What follows the shared suite is about the beads file alone: which rows it reads, and
that writing leaves everybody else's bytes alone.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule.core.errors import CapsuleError, InvalidId, LockHeld, Refused, TrackerError, UnknownItem
from capsule.core.item import Item, Status
from capsule.doors import Tracker
from capsule.system.lock import FileLock
from capsule.trackers import backlog
from capsule.trackers.beads_file import BeadsFileTracker, connect, find, splice
from capsule.trackers.memory import MemoryTracker

ITEMS = (
    Item(id="demo-1", title="All of it", type="epic"),
    Item(id="demo-1.1", title="A part of it", type="feature", parent="demo-1"),
    Item(id="demo-1.1.1", title="A task", parent="demo-1.1", priority=1, tags=("ui", "quick")),
    Item(id="demo-1.1.2", title="Another", parent="demo-1.1", dependencies=("demo-1.1.1",)),
    Item(
        id="lone-3",
        title="${HOME} {{TASK_ID}} $(id)\n\t[31m\u2028",
        description="{{FEEDBACK}}\n`id`",
        acceptance="- a",
    ),
    Item(id="under-epic", title="Straight below", parent="demo-1"),
    Item(id="old", title="Long done", status=Status.DONE),
)

STATUS_WORDS = {Status.READY: "open", Status.IN_PROGRESS: "in_progress", Status.DONE: "closed"}


def bead(item: Item) -> dict[str, object]:
    edges = [("parent-child", item.parent)] * bool(item.parent) + [("blocks", other) for other in item.dependencies]
    return {
        "id": item.id,
        "title": item.title,
        "description": item.description,
        "acceptance_criteria": item.acceptance,
        "status": STATUS_WORDS[item.status],
        "priority": item.priority,
        "issue_type": item.type,
        "labels": list(item.tags),
        "dependencies": [{"issue_id": item.id, "depends_on_id": other, "type": kind} for kind, other in edges],
    }


def in_memory(_: Path, items: Sequence[Item]) -> Tracker:
    return MemoryTracker(items)


def in_a_beads_file(folder: Path, items: Sequence[Item]) -> Tracker:
    write_beads(folder, *(json.dumps(bead(item)) for item in items))
    return connect(folder, lock=folder / "locks/tracker.lock")


def in_a_backlog(folder: Path, items: Sequence[Item]) -> Tracker:
    fields = ("id", "title", "description", "status", "tags", "dependencies")
    rows = [{name: getattr(item, name) for name in fields} for item in items]
    texts = ["\n    ".join(f"{name}: {json.dumps(value)}" for name, value in row.items()) for row in rows]
    content = "schema_version: 1\nitems:\n" + "".join(f"  - {text}\n" for text in texts)
    (folder / backlog.FILE).write_text(content)
    return backlog.connect(folder, lock=folder / "locks/tracker.lock")


TRACKERS: dict[str, Callable[[Path, Sequence[Item]], Tracker]] = {
    "memory": in_memory,
    "beads-file": in_a_beads_file,
    "backlog": in_a_backlog,
}

HAS_NO: dict[str, tuple[str, ...]] = {"backlog": ("type", "parent", "priority", "acceptance")}
"""Fields that a tracker has no place for: they arrive as if nobody had set them."""


def as_held(tracker: Tracker, item: Item) -> Item:
    blank = Item(id="blank", title="Blank")
    return msgspec.structs.replace(item, **{name: getattr(blank, name) for name in HAS_NO.get(tracker.name, ())})


def is_closed(tracker: Tracker, item_id: str) -> bool:
    """A tracker shows a closed item as done, or says that it was archived."""
    try:
        return tracker.item(item_id).status is Status.DONE
    except UnknownItem as fault:
        return "was archived" in fault.message


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Tracker:
    return TRACKERS[request.param](tmp_path, ITEMS)


@pytest.fixture(params=[name for name in TRACKERS if "parent" not in HAS_NO.get(name, ())])
def tracker_of_families(request: pytest.FixtureRequest, tmp_path: Path) -> Tracker:
    return TRACKERS[request.param](tmp_path, ITEMS)


# ---- the promises


def test_its_name_is_the_one_in_the_settings(tracker: Tracker) -> None:
    assert tracker.name in TRACKERS


def test_items_are_all_that_is_not_closed_in_order(tracker: Tracker) -> None:
    assert [item.id for item in tracker.items()] == [item.id for item in ITEMS if item.status is not Status.DONE]


@pytest.mark.parametrize("given_item", ITEMS, ids=lambda item: item.id)
def test_an_item_arrives_as_it_was_given(tracker: Tracker, given_item: Item) -> None:
    assert tracker.item(given_item.id) == as_held(tracker, given_item)


def test_hostile_text_arrives_as_text(tracker: Tracker) -> None:
    assert tracker.item("lone-3").title == ITEMS[4].title


def test_items_can_be_written_down(tracker: Tracker) -> None:
    for item in tracker.items():
        assert msgspec.json.decode(msgspec.json.encode(item), type=Item) == item


def test_an_unknown_id_is_named_with_its_nearest(tracker: Tracker) -> None:
    with pytest.raises(UnknownItem) as caught:
        tracker.item("demo-1.1.3")
    assert "demo-1.1.3" in caught.value.message and "demo-1.1.1" in caught.value.hint


@pytest.mark.parametrize("bad", ["../../etc", "a..b", "x.lock", "", "-rf", "a/b", "a b", "a\nb", "ä", "x" * 300])
def test_an_id_that_may_not_become_a_path_is_refused(tracker: Tracker, bad: str) -> None:
    for ask in (tracker.item, tracker.claim, tracker.release, lambda item_id: tracker.close(item_id, "")):
        with pytest.raises(InvalidId):
            ask(bad)


def test_lineage_is_the_feature_and_its_epic(tracker_of_families: Tracker) -> None:
    lineage = tracker_of_families.lineage(tracker_of_families.item("demo-1.1.1"))
    assert lineage.feature and lineage.feature.id == "demo-1.1"
    assert lineage.epic and lineage.epic.id == "demo-1"


def test_lineage_of_a_task_right_below_an_epic_has_no_feature(tracker_of_families: Tracker) -> None:
    lineage = tracker_of_families.lineage(tracker_of_families.item("under-epic"))
    assert lineage.feature is None and lineage.epic and lineage.epic.id == "demo-1"


def test_an_item_without_parents_has_no_lineage(tracker: Tracker) -> None:
    lineage = tracker.lineage(tracker.item("lone-3"))
    assert (lineage.feature, lineage.epic) == (None, None)


def test_claim_says_that_work_has_begun(tracker: Tracker) -> None:
    for _ in range(2):
        tracker.claim("lone-3")
        assert tracker.item("lone-3").status is Status.IN_PROGRESS


def test_release_takes_the_claim_back(tracker: Tracker) -> None:
    tracker.claim("lone-3")
    for _ in range(2):
        tracker.release("lone-3")
        assert tracker.item("lone-3").status is Status.READY


def test_a_closed_item_stays_closed_when_it_is_released(tracker: Tracker) -> None:
    tracker.claim("lone-3")
    for _ in range(2):
        tracker.close("lone-3", "merged")
        tracker.release("lone-3")
        assert is_closed(tracker, "lone-3")
    assert "lone-3" not in [item.id for item in tracker.items()]


def test_a_closed_item_cannot_be_claimed(tracker: Tracker) -> None:
    with pytest.raises(Refused):
        tracker.claim("old")
    assert tracker.item("old").status is Status.DONE


@pytest.mark.parametrize("change", ["claim", "release", "close"])
def test_changing_an_unknown_item_is_refused(tracker: Tracker, change: str) -> None:
    with pytest.raises(UnknownItem):
        getattr(tracker, change)("nobody", *["because"] * (change == "close"))


def test_a_change_touches_no_other_item(tracker: Tracker) -> None:
    before = {item.id: item for item in tracker.items()}
    tracker.claim("demo-1.1")
    tracker.close("lone-3", "done")
    after = {item.id: item for item in tracker.items()}
    assert {key: item for key, item in before.items() if key not in ("lone-3", "demo-1.1")} == {
        key: item for key, item in after.items() if key != "demo-1.1"
    }


def test_an_item_is_one_part_unless_the_tracker_knows_better(tracker: Tracker) -> None:
    item = tracker.item("lone-3")
    assert list(tracker.parts(item, "any")) == [item]


def test_own_files_are_relative_and_inside_the_project(tracker: Tracker) -> None:
    assert all(not Path(path).is_absolute() and ".." not in Path(path).parts for path in tracker.own_files())


def test_memory_hands_out_the_parts_it_was_given() -> None:
    whole, part = ITEMS[4], Item(id="lone-3.build.1", title="First")
    tracker = MemoryTracker([whole], parts={("lone-3", "build"): [part]})
    assert tracker.parts(whole, "build") == [part]


# ---- the beads file: what is read


def write_beads(folder: Path, *lines: str, end: str = "\n", name: str = "issues.jsonl") -> Path:
    path = folder / ".beads" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode("utf-8", "surrogatepass"))
    return path


def beads(folder: Path, *rows: object) -> BeadsFileTracker:
    write_beads(folder, *(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return connect(folder)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["issues.jsonl", "beads.jsonl"], "issues.jsonl"),
        (["beads.jsonl", "other.jsonl"], "beads.jsonl"),
        (["mine.jsonl"], "mine.jsonl"),
        (["mine.jsonl", "interactions.jsonl"], "mine.jsonl"),
        (["mine.jsonl", "yours.jsonl"], None),
        (["interactions.jsonl"], None),
        ([], None),
    ],
)
def test_the_file_is_found_by_its_usual_names(tmp_path: Path, names: list[str], expected: str | None) -> None:
    for name in names:
        write_beads(tmp_path, name=name)
    found = find(tmp_path)
    assert (found and found.name) == expected


def test_without_a_file_there_is_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(TrackerError) as caught:
        connect(tmp_path)
    assert "bd export" in caught.value.hint


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("open", Status.READY),
        ("in_progress", Status.IN_PROGRESS),
        ("hooked", Status.IN_PROGRESS),
        ("blocked", Status.BLOCKED),
        ("deferred", Status.BLOCKED),
        ("waiting-for-legal", Status.BLOCKED),
        ("closed", Status.DONE),
    ],
)
def test_statuses_become_ours_and_the_word_is_kept(tmp_path: Path, word: str, status: Status) -> None:
    item = beads(tmp_path, {"id": "a", "title": "A", "status": word}).item("a")
    assert item.status is status
    assert (item.blocked is not None and word in item.blocked.reason) == (status is Status.BLOCKED)


def test_memories_and_tombstones_are_no_beads(tmp_path: Path) -> None:
    rows = [
        {"_type": "memory", "key": "k", "value": "v"},
        {"id": "gone", "title": "Gone", "status": "tombstone"},
        {"_type": "issue", "id": "a", "title": "A"},
    ]
    assert [item.id for item in beads(tmp_path, *rows).items()] == ["a"]


@pytest.mark.parametrize(
    ("extra", "parent"),
    [
        ({"dependencies": [{"depends_on_id": "p", "type": "parent-child"}], "parent": "q"}, "p"),
        ({"parent": "q"}, "q"),
        ({}, "q.1"),
        ({"dependencies": [{"issue_id": "p", "depends_on_id": "q", "type": "parent-child"}]}, "q.1"),
        ({"dependencies": [{"depends_on_id": "nobody", "type": "parent-child"}, None, 3, {}]}, "q.1"),
        ({"dependencies": None, "parent": 7}, "q.1"),
    ],
)
def test_the_parent_is_an_edge_else_a_field_else_in_the_id(
    tmp_path: Path, extra: dict[str, object], parent: str
) -> None:
    others = [{"id": name, "title": name} for name in ("p", "q", "q.1")]
    assert beads(tmp_path, *others, {"id": "q.1.1", "title": "x", **extra}).item("q.1.1").parent == parent


def test_an_id_with_dots_has_no_parent_that_does_not_exist(tmp_path: Path) -> None:
    assert beads(tmp_path, {"id": "v1.2", "title": "x"}).item("v1.2").parent == ""


def test_no_bead_is_its_own_parent(tmp_path: Path) -> None:
    assert beads(tmp_path, {"id": "a", "title": "x", "parent": "a"}).item("a").parent == ""


def test_only_open_blockers_hold_a_bead_up(tmp_path: Path) -> None:
    edges = [{"issue_id": "a", "depends_on_id": other, "type": "blocks"} for other in ("b", "c", "gone", "b")]
    edges.append({"issue_id": "a", "depends_on_id": "d", "type": "related"})
    rows = [{"id": "b", "title": "b"}, {"id": "c", "title": "c", "status": "closed"}, {"id": "d", "title": "d"}]
    assert beads(tmp_path, {"id": "a", "title": "a", "dependencies": edges}, *rows).item("a").dependencies == ("b",)


def test_fields_of_any_type_are_taken_as_data(tmp_path: Path) -> None:
    row = {"id": "a", "title": 7, "description": None, "priority": "high", "labels": "x", "issue_type": ["odd"]}
    item = beads(tmp_path, row).item("a")
    assert (item.title, item.description, item.priority, item.tags, item.type) == ("7", "", 2, (), '["odd"]')


def test_control_characters_are_left_out_but_for_line_ends_and_tabs(tmp_path: Path) -> None:
    row = {"id": "a", "title": "x\0y\x1b[2J", "description": "one\r\n\ttwo\x9b", "labels": ["u\x7fi"]}
    item = beads(tmp_path, row).item("a")
    assert (item.title, item.description, item.tags) == ("xy[2J", "one\n\ttwo", ("ui",))


def test_half_a_character_becomes_a_replacement(tmp_path: Path) -> None:
    item = beads(tmp_path, '{"id": "a", "title": "x\\ud800y", "labels": ["\\udfff"]}').item("a")
    assert (item.title, item.tags) == ("x\ufffdy", ("\ufffd",))
    msgspec.json.encode(item)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ('{"id": "b",', "Mend"),
        ("[1]", "Mend"),
        ("<<<<<<< HEAD", "merge conflict"),
        ("[" * 100_000, "Mend"),
        ('{"n": ' + "9" * 5000 + "}", "Mend"),
        ('{"title": "no id"}', "Give it one"),
        ('{"id": 5}', "Give it one"),
    ],
)
def test_a_line_that_is_no_bead_is_named(tmp_path: Path, line: str, hint: str) -> None:
    with pytest.raises(TrackerError) as caught:
        beads(tmp_path, {"id": "a", "title": "A"}, "", line).items()
    assert "issues.jsonl, line 3" in caught.value.message and hint in caught.value.hint


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = write_beads(tmp_path, '{"id": "a"}')
    path.write_bytes(path.read_bytes() + b'{"id": "\xff"}\n')
    with pytest.raises(TrackerError, match="line 2"):
        connect(tmp_path).items()


def test_an_id_given_twice_names_both_lines(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="lines 1 and 3"):
        beads(tmp_path, {"id": "a", "title": "1"}, {"id": "b", "title": "2"}, {"id": "a", "title": "3"}).items()


def test_beads_with_impossible_ids_are_left_out_with_a_warning(tmp_path: Path) -> None:
    bad = ["../../x", "a/b", "x" * 300, "\ud800", "a\nb"]
    tracker = beads(tmp_path, *({"id": name, "title": "t"} for name in bad), {"id": "good", "title": "t"})
    assert [item.id for item in tracker.items()] == ["good"]
    assert len(tracker.warnings) == len(bad)
    assert "line 1" in tracker.warnings[0] and all("\n" not in warning for warning in tracker.warnings)


def test_an_empty_file_is_an_empty_tracker(tmp_path: Path) -> None:
    assert beads(tmp_path).items() == []
    assert beads(tmp_path, "", "  ", "").items() == []


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_only_a_regular_file_is_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = write_beads(tmp_path)
    path.unlink()
    make(path)
    with pytest.raises(TrackerError, match="cannot be read"):
        BeadsFileTracker(path).items()


def test_a_hand_edit_is_seen_at_once(tmp_path: Path) -> None:
    tracker = beads(tmp_path, {"id": "a", "title": "one"})
    assert tracker.item("a").title == "one"
    write_beads(tmp_path, '{"id": "a", "title": "two"}')
    assert tracker.item("a").title == "two"


# ---- the beads file: what is written

NOW = "2026-01-02T03:04:05Z"


def test_closing_writes_status_time_and_reason(tmp_path: Path) -> None:
    path = write_beads(tmp_path, '{"id": "a", "title": "A", "status": "open"}')
    BeadsFileTracker(path, now=lambda: NOW).close("a", 'merged "well" ü')
    assert json.loads(path.read_text()) == {
        "id": "a",
        "title": "A",
        "status": "closed",
        "closed_at": NOW,
        "close_reason": 'merged "well" ü',
        "updated_at": NOW,
    }


def test_the_rest_of_a_changed_line_keeps_its_bytes(tmp_path: Path) -> None:
    line = '{ "updated_at":"x","n":1.50e+3,  "id":"a","x":{"status":"open"},"status" : "open","t":"\\u003cü\\ud800"} \t'
    path = write_beads(tmp_path, line, end="\r\n")
    BeadsFileTracker(path, now=lambda: NOW).claim("a")
    expected = line.replace('"status" : "open"', '"status" : "in_progress"').replace('"x","n"', f'"{NOW}","n"')
    assert path.read_bytes() == (expected + "\r\n").encode()


def test_what_is_already_so_is_not_written_again(tmp_path: Path) -> None:
    path = write_beads(tmp_path, '{"id":"a","status":"open"}', '{"id":"b","status":"closed"}')
    tracker = BeadsFileTracker(path)
    tracker.claim("a")
    before = path.stat()
    tracker.claim("a")
    tracker.close("b", "again")
    tracker.release("b")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_without_a_last_line_end_stays_so(tmp_path: Path) -> None:
    path = write_beads(tmp_path)
    path.write_bytes(b'\xef\xbb\xbf{"id":"a"}\n\n{"id":"b"}')
    BeadsFileTracker(path, now=lambda: NOW).claim("a")
    BeadsFileTracker(path, now=lambda: NOW).claim("b")
    added = f',"status":"in_progress","updated_at":"{NOW}"}}'.encode()
    assert path.read_bytes() == b'\xef\xbb\xbf{"id":"a"' + added + b'\n\n{"id":"b"' + added


def test_the_file_keeps_its_mode(tmp_path: Path) -> None:
    path = write_beads(tmp_path, '{"id":"a"}')
    path.chmod(0o640)
    BeadsFileTracker(path).claim("a")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_held_lock_is_waited_for_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock = write_beads(tmp_path, '{"id":"a"}'), tmp_path / "locks/tracker.lock"
    monkeypatch.setattr("capsule.trackers.beads_file.LOCK_WAIT", 0.2)
    before = path.read_bytes()
    with FileLock(lock), pytest.raises(LockHeld):
        BeadsFileTracker(path, lock=lock).claim("a")
    assert path.read_bytes() == before


def test_writers_side_by_side_lose_nothing(tmp_path: Path) -> None:
    names = [f"bead-{number}" for number in range(24)]
    path = write_beads(tmp_path, *(json.dumps({"id": name}) for name in names))

    def close_every(start: int) -> None:
        for name in names[start::4]:
            BeadsFileTracker(path, lock=tmp_path / "tracker.lock").close(name, "done")

    threads = [threading.Thread(target=close_every, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert connect(tmp_path).items() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.dictionaries(st.text(max_size=8) | st.sampled_from(["status", "closed_at"]), VALUES, max_size=6)


@given(FIELDS, st.booleans(), st.booleans())
def test_splicing_sets_the_fields_and_nothing_else(data: dict[str, object], ascii_only: bool, compact: bool) -> None:
    text = json.dumps(data, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
    wanted = {"status": "closed", "updated_at": 'now "ü"'}
    assert json.loads(splice(text, wanted)) == {**data, **wanted}
    assert splice(splice(text, wanted), wanted) == splice(text, wanted)


STEPS = st.lists(st.tuples(st.sampled_from(["claim", "release", "close"]), st.integers(0, 4)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(FIELDS, min_size=5, max_size=5), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_sequence_of_changes_leaves_other_lines_alone(
    steps: list[tuple[str, int]], extras: list[dict[str, object]], end: str, last_end: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            json.dumps({**extra, "id": f"b{n}", "status": "open"}, ensure_ascii=False) for n, extra in enumerate(extras)
        ]
        path = Path(folder) / "issues.jsonl"
        path.write_bytes((end.join(lines) + end * last_end).encode())
        before = path.read_bytes().split(b"\n")
        tracker = BeadsFileTracker(path)
        for change, number in steps:
            try:
                getattr(tracker, change)(f"b{number}", *["why"] * (change == "close"))
            except Refused:
                assert tracker.item(f"b{number}").status is Status.DONE
        after = path.read_bytes().split(b"\n")
        touched = {number for _, number in steps}
        assert len(after) == len(before)
        assert [line for n, line in enumerate(after) if n not in touched] == [
            line for n, line in enumerate(before) if n not in touched
        ]
        for number in touched:
            kept = {key: value for key, value in extras[number].items() if key not in WRITTEN}
            assert kept.items() <= json.loads(after[number]).items()


WRITTEN = ("id", "status", "closed_at", "close_reason", "updated_at")


def test_ten_thousand_beads_cost_linear_time(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        rows = [
            bead(Item(id=f"bead-{n}", title="t" * 80, description="d" * 300, parent="bead-0")) for n in range(count)
        ]
        write_beads(tmp_path, *map(json.dumps, rows))
        tracker = connect(tmp_path)
        start = time.perf_counter()
        assert len(tracker.items()) == count
        tracker.claim(f"bead-{count - 1}")
        with pytest.raises(CapsuleError):
            tracker.item("bead-x")
        return time.perf_counter() - start

    seconds(100)
    assert seconds(10_000) < 30 * seconds(1_000)
