"""The trackers of ours, held to what every tracker promises (tracker_suite.py); bd on stand-ins for all its eras.

With CAPSULE_BD naming a folder that holds a `bd`, the same is asked of that one. What follows the shared suite is about
the beads file alone: which rows it reads, and that writing leaves everybody else's bytes alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.adapters import Tracker
from capsule.core.errors import CapsuleError, LockHeld, Refused, TrackerError
from capsule.core.item import Item, NewItem, Status
from capsule.project import adapters
from capsule.system.lock import FileLock
from capsule.trackers import backlog, beads_file
from capsule.trackers._beads import file_in, splice
from capsule.trackers.beads_file import BeadsFileTracker, connect
from capsule.trackers.memory import MemoryTracker
from tests.contracts import gh_projects, gh_suite
from tests.contracts.bd_projects import ERAS, bead, faked, real
from tests.contracts.tracker_suite import TrackerContract
from tests.costs import examples, grows_linearly
from tests.live.install import BD


class TestMemory(TrackerContract):
    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        return MemoryTracker(items)


class TestDocumented(TrackerContract):
    """The tracker that docs/how-to/add-a-tracker.md shows, as it stands there."""

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        page = Path(__file__).parents[2] / "docs/how-to/add-a-tracker.md"
        shown = types.ModuleType("documented_tracker")
        sys.modules[shown.__name__] = shown
        exec(page.read_text().split("```python\n")[1].split("```")[0], shown.__dict__)
        (folder / shown.FILE).write_bytes(msgspec.json.encode({"items": {item.id: item for item in items}}))
        tracker: Tracker = shown.connect(folder, folder / "tracker.lock")
        return tracker

    def test_it_has_five_methods(self, tracker: Tracker) -> None:
        own = {name for name, value in vars(type(tracker)).items() if callable(value) and not name.startswith("_")}
        assert own == {"all_items", "set_status", "create", "comment", "own_files"}


class TestBeadsFile(TrackerContract):
    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        write_beads(folder, *(json.dumps(bead(item)) for item in items))
        return connect(folder, lock=folder / "locks/tracker.lock")


class TestGitHub(TrackerContract):
    has_no: ClassVar = ("acceptance",)  # it is a section of the description
    names: ClassVar = gh_suite.NAMES

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        return gh_projects.faked(folder, [gh_suite.issue(item) for item in items])


class TestBacklog(TrackerContract):
    has_no: ClassVar = ("type", "parent", "priority", "acceptance")
    adds: ClassVar = False

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        fields = ("id", "title", "description", "status", "tags", "dependencies")
        rows = [{name: getattr(item, name) for name in fields} | why_blocked(item) for item in items]
        texts = ["\n    ".join(f"{name}: {json.dumps(value)}" for name, value in row.items()) for row in rows]
        content = "schema_version: 1\nitems:\n" + "".join(f"  - {text}\n" for text in texts)
        (folder / backlog.FILE).write_text(content)
        return backlog.connect(folder, lock=folder / "locks/tracker.lock")


def why_blocked(item: Item) -> dict[str, str]:
    if item.blocked is None:
        return {}
    origin, reason, kind = item.blocked.from_status.value, item.blocked.reason, item.blocked.kind
    return {"blocked_from_status": origin, "blocked_reason": reason, "blocked_type": kind}


class BeadsContract(TrackerContract):
    era: ClassVar[str]

    @classmethod
    def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
        return faked(folder, items, cls.era)


for _era in ERAS:
    _name = f"TestBeads_{_era.replace('.', '_')}"
    _marks = [] if _era in BD else [pytest.mark.slow]  # of each kind of database, the one that `make live` builds
    globals()[_name] = type(_name, (BeadsContract,), {"era": _era, "__module__": __name__, "pytestmark": _marks})


if "CAPSULE_BD" in os.environ:

    class TestRealBeads(TrackerContract):
        bd: ClassVar = Path(os.environ["CAPSULE_BD"])

        @classmethod
        def open(cls, folder: Path, items: Sequence[Item]) -> Tracker:
            return real(folder, items, cls.bd)


@pytest.mark.promise("trackers.one-suite")
@pytest.mark.parametrize("name", sorted(adapters("trackers")))
def test_every_tracker_is_enrolled(name: str) -> None:
    wanted = f"Test{''.join(part.capitalize() for part in name.split('-'))}"
    suites = (each for each in globals().values() if isinstance(each, type) and issubclass(each, TrackerContract))
    enrolled = {each.__name__.partition("_")[0].lower() for each in suites}
    how = (
        f"hold it to the suite: `class {wanted}(TrackerContract)` in this file; docs/how-to/add-a-tracker.md shows how"
    )
    assert wanted.lower() in enrolled, how


def test_memory_hands_out_the_parts_it_was_given() -> None:
    whole, part = Item(id="demo-3", title="Whole"), Item(id="demo-3.build.1", title="First")
    tracker = MemoryTracker([whole], parts={("demo-3", "build"): [part]})
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
    found = file_in(tmp_path)
    assert (found and found.name) == expected


def test_without_a_file_there_is_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(TrackerError) as caught:
        connect(tmp_path)
    assert "`bd export -o .beads/issues.jsonl`" in caught.value.hint


def test_who_else_has_begun_is_whoever_git_does_not_take_us_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": "a", "title": "A", "status": "in_progress", "assignee": "alice"},
        {"id": "b", "title": "B", "status": "in_progress", "assignee": "tester"},
        {"id": "c", "title": "C", "status": "open", "assignee": "alice"},
    ]
    monkeypatch.setenv("BEADS_ACTOR", "tester")
    assert [item.taken_by for item in beads(tmp_path, *rows).items()] == ["alice", "", ""]
    nameless = BeadsFileTracker(tmp_path / ".beads/issues.jsonl")
    assert [item.taken_by for item in nameless.items()] == ["", "", ""], "nobody knows who we are"


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
        ('{"id": "b",', "Fix"),
        ("[1]", "Fix"),
        ("<<<<<<< HEAD", "merge conflict"),
        ("[" * 100_000, "Fix"),
        ('{"n": ' + "9" * 5000 + "}", "Fix"),
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


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beads_file, "_SETTLED", -1_000_000_000)  # as if it had been written long ago
    tracker = beads(tmp_path, {"id": "a", "title": "one"})
    path = write_beads(tmp_path, '{"id": "a", "title": "one"}')
    assert tracker.item("a").title == "one"
    before = path.stat()
    time.sleep(0.05)  # longer than the grain of the file system's clock
    write_beads(tmp_path, '{"id": "a", "title": "two"}')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
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


@pytest.mark.promise("trackers.jsonl")
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


@pytest.mark.promise("trackers.jsonl")
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


def tracker_of(path: Path) -> BeadsFileTracker:
    return BeadsFileTracker(path, now=lambda: NOW)


def test_a_new_bead_is_one_more_line_and_all_others_keep_their_bytes(tmp_path: Path) -> None:
    path = write_beads(tmp_path, '{ "id":"team-a1b" , "x":1.50}', '{"_type":"memory","key":"k"}', "", end="\r\n")
    before = path.read_bytes()
    new = NewItem(
        title="More\0",
        description="words <&> ü",
        type="bug",
        priority=0,
        tags=("ui",),
        dependencies=("team-a1b",),
        found_in="team-a1b",
        reference="capsule/1",
    )
    name = tracker_of(path).add(new)
    assert path.read_bytes().startswith(before) and path.read_bytes().endswith(b"}\r\n")
    added = json.loads(path.read_bytes()[len(before) :])
    assert name.startswith("team-") and added.pop("dependencies") == [
        {"issue_id": name, "depends_on_id": "team-a1b", "type": "blocks", "created_at": NOW, "created_by": "capsule"}
    ]
    assert added == {
        "id": name,
        "title": "More",
        "description": "words <&> ü",
        "status": "open",
        "priority": 0,
        "issue_type": "bug",
        "created_at": NOW,
        "created_by": "capsule",
        "updated_at": NOW,
        "external_ref": "capsule/1",
        "labels": ["ui"],
    }


def test_where_a_new_bead_was_found_is_an_edge(tmp_path: Path) -> None:
    tracker = beads(tmp_path, {"id": "a-1", "title": "A"}, {"id": "a-2", "title": "B"})
    name = tracker.add(NewItem(title="More", parent="a-2", found_in="a-1"))
    edges = json.loads((tmp_path / ".beads/issues.jsonl").read_text().splitlines()[-1])["dependencies"]
    assert [(edge["type"], edge["depends_on_id"]) for edge in edges] == [
        ("parent-child", "a-2"),
        ("discovered-from", "a-1"),
    ]
    assert name == "a-2.1" and tracker.item(name).dependencies == ()


@pytest.mark.parametrize(("before", "after"), [(b"", b"%s\n"), (b'{"id":"a-1"}', b'{"id":"a-1"}\n%s')])
def test_the_last_line_ends_as_the_file_had_it(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = write_beads(tmp_path)
    path.write_bytes(before)
    tracker_of(path).add(NewItem(title="More"))
    row = path.read_bytes().strip().split(b"\n")[-1]
    assert json.loads(row)["title"] == "More" and path.read_bytes() == after % row


def test_no_id_is_given_twice_not_even_that_of_a_deleted_bead(tmp_path: Path) -> None:
    rows = [{"id": "p-1"}, {"id": "p-1.2"}, {"id": "p-1.9", "status": "tombstone"}, {"id": "p-1.10.4"}, {"id": "p-1x"}]
    tracker = beads(tmp_path, *rows)
    assert [tracker.add(NewItem(title="Same", parent="p-1")) for _ in range(2)] == ["p-1.11", "p-1.12"]
    names = {tracker.add(NewItem(title="Same")) for _ in range(40)}
    assert len(names) == 40 and all(name.startswith("p-") for name in names)


def test_an_empty_file_takes_its_prefix_from_the_project(tmp_path: Path) -> None:
    folder = tmp_path / "My Project_2"
    folder.mkdir()
    assert beads(folder).add(NewItem(title="First")).startswith("my-project-2-")


COMMENT = {"issue_id": "a", "author": "capsule", "text": "A remark", "created_at": NOW}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id":"a","n":1.50}', '{"id":"a","n":1.50,"comments":[%s]}'),
        ('{"comments" : [ ], "id":"a"}', '{"comments" : [%s], "id":"a"}'),
        (
            '{"id":"a","comments":[{"id":6, "text":"\\u00fc"} ],"z":0}',
            '{"id":"a","comments":[{"id":6, "text":"\\u00fc"},%s],"z":0}',
        ),
        ('{"id":"a","comments":null}', '{"id":"a","comments":[%s]}'),
    ],
)
def test_a_comment_is_put_into_its_list_and_nothing_else_changes(tmp_path: Path, line: str, expected: str) -> None:
    path = write_beads(tmp_path, line, '{"id":"b"}')
    tracker_of(path).comment("a", "A remark")
    first, second = path.read_text().splitlines()
    remark = json.loads(first)["comments"][-1]
    assert remark == {"id": 7 if '"id":6' in line else 1, **COMMENT} and second == '{"id":"b"}'
    assert first == expected % json.dumps(remark, separators=(",", ":"))


def test_comments_with_names_for_ids_get_one_that_nobody_has(tmp_path: Path) -> None:
    row = {"id": "a", "title": "A", "comments": [{"id": "01a1e3d1-dec4", "text": "x"}, {"id": 3}, "odd", None]}
    tracker = beads(tmp_path, row)
    tracker.comment("a", "One")
    tracker.comment("a", "Two")
    ids = [each["id"] for each in json.loads((tmp_path / ".beads/issues.jsonl").read_text())["comments"][4:]]
    assert all(isinstance(name, str) and len(name) == 36 for name in ids) and len(set(ids)) == 2
    assert tracker.item("a").title == "A"


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


@pytest.mark.slow
@examples(60)
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


@pytest.mark.slow
@pytest.mark.promise("speed.linear")
def test_ten_thousand_beads_cost_linear_time(tmp_path: Path) -> None:
    def work(count: int) -> Callable[[], object]:
        rows = [
            bead(Item(id=f"bead-{n}", title="t" * 80, description="d" * 300, parent="bead-0")) for n in range(count)
        ]
        folder = tmp_path / str(count)
        folder.mkdir()
        write_beads(folder, *map(json.dumps, rows))

        def act() -> None:
            tracker = connect(folder)
            assert len(tracker.items()) == count
            tracker.claim(f"bead-{count - 1}")
            with pytest.raises(CapsuleError):
                tracker.item("bead-x")

        return act

    assert grows_linearly(work, 1_000, 10_000)
