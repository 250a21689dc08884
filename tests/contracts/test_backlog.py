"""BACKLOG.yaml belongs to people as well: what is read, what is refused by line and field, what a change leaves alone.

The last part is a model: random assignments are spliced into a file full of comments and compared with a dictionary.
"""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml12
from hypothesis import example, given
from hypothesis import strategies as st

from capsule.core.assignment import Absent, Assign, Assignment, Exists, LogEntry
from capsule.core.errors import CapsuleError, LockHeld, Refused, TrackerError, UnknownItem
from capsule.core.item import Assessment, Blocked, Item, Status, Value, found_by
from capsule.core.project_log import archived_titles, log_entry
from capsule.system.lock import FileLock
from capsule.trackers import NEW_BACKLOG, _backlog_edit, _backlog_page, backlog
from capsule.trackers._backlog_edit import Rewrite, rewritten, with_entry
from capsule.trackers._backlog_read import Backlog, read_backlog
from tests.costs import examples, grows_linearly

WHERE = "BACKLOG.yaml"
HEAD = "schema_version: 1\nlast_id: 9\nitems:\n"

FULL = """\
# The team's list.
schema_version: 1   # do not touch
last_id: 14

items:
  # Ann asked for this one.
  - id: WRK-001   # first
    title: "Make it: fast"  # as always
    status: ready
    size: small
    complexity: LOW
    risk: low
    impact: High
    requires_human_review: false
    origin: ~
    tags:
      - ui
      # more to come
      - quick
    dependencies: [WRK-003, WRK-012]
    team: blue
    description: |
      # Not a comment

      Two lines.
    created: 2026-02-11

  # The one that waits.
  - id: WRK-003
    status: blocked
    title: 'It''s "odd"'
    blocked_from_status: scoped
    blocked_reason: >-
      Which of the
      two?
    blocked_type: Decision
    guardrail_override: {size: large, risk: high}
    updated:

# The end.
"""


def read(text: str) -> Backlog:
    return read_backlog(text.encode(), WHERE)


def one(fields: str) -> Item:
    """The item with these lines below its id."""
    lines = "".join(f"    {line}\n" for line in fields.split("\n"))
    return read(f"{HEAD}  - id: WRK-001\n{lines}").items["WRK-001"]


def change(text: str, *assignments: Assignment, archived: Mapping[str, str] = {}, ids: Sequence[str] = ()) -> Rewrite:
    data = text.encode()
    return rewritten(data, assignments, where=WHERE, prefix="WRK", archived=lambda: archived, ids=ids)


def changed(text: str, *assignments: Assignment, archived: Mapping[str, str] = {}, ids: Sequence[str] = ()) -> str:
    return change(text, *assignments, archived=archived, ids=ids).data.decode()


def assign(**values: Value) -> Assign:
    return Assign("WRK-001", values)


def follow_up(title: str, key: str = "k", **values: Value) -> Exists:
    return Exists(key, {"title": title, "status": "new", **values}, unless_known=True)


def differing(before: str, after: str) -> list[tuple[str, str]]:
    """The lines that differ, where none was added or removed."""
    old, new = before.split("\n"), after.split("\n")
    assert len(old) == len(new)
    return [(was, now) for was, now in zip(old, new, strict=True) if was != now]


# ---- what is read


@pytest.mark.promise("004-types.round-trip")
def test_everything_a_person_may_write_is_read() -> None:
    read_one = read(FULL)
    first, second = read_one.items.values()
    assert first == Item(
        id="WRK-001",
        title="Make it: fast",
        status=Status.READY,
        description="# Not a comment\n\nTwo lines.\n",
        assessment=Assessment("small", "low", "low", "high"),
        tags=("ui", "quick"),
        dependencies=("WRK-003",),
        created="2026-02-11",
    )
    assert second.blocked == Blocked(Status.SCOPED, "Which of the two?", "decision")
    assert (second.title, second.guardrail_override) == ('It\'s "odd"', Assessment(size="large", risk="high"))
    assert read_one.last_id == 14


def test_a_new_file_is_an_empty_backlog() -> None:
    assert read_backlog(NEW_BACKLOG, WHERE) == Backlog({}, 0)
    assert NEW_BACKLOG.startswith(b"#")


@pytest.mark.parametrize("items", ["items: []", "items:", "items: null", "items: ~ # none yet", ""])
def test_no_items_are_no_fault(items: str) -> None:
    assert read(f"schema_version: 1\n{items}\n").items == {}


@pytest.mark.promise("004-follow-ups.times")
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("no", "no"),
        ("12:30:00", "12:30:00"),
        ("2026-02-11", "2026-02-11"),
        ("0123", "0123"),
        ("12", "12"),
        ("1.50", "1.50"),
        ("0x1F  # hex", "0x1F"),
        ("True", "True"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        ('"null"', "null"),
        ("Löse 问题 🎉", "Löse 问题 🎉"),
        ('"a\\u0007b\\e[31m"', "ab[31m"),
        ("|-\n      two\n      lines", "two\nlines"),
        ("folded\n      plain", "folded plain"),
    ],
)
def test_a_title_stays_the_text_that_was_written(written: str, text: str) -> None:
    assert one(f"title: {written}\nstatus: new").title == text


@pytest.mark.parametrize("tags", ["[1.0, no, 007, x]", "\n      - 1.0\n      - no # yes\n      - 007\n      - x"])
def test_tags_stay_texts(tags: str) -> None:
    assert one(f"title: t\nstatus: new\ntags: {tags}").tags == ("1.0", "no", "007", "x")


def test_an_id_that_looks_like_a_number_stays_as_it_was_written() -> None:
    text = f"{HEAD}  - id: 007\n    title: t\n    status: new\n"
    assert list(read(text).items) == ["007"]
    assert "status: ready" in changed(text, Assign("007", {"status": "ready"}))


@pytest.mark.parametrize(("word", "meant"), [("yes", True), ("On", True), ("no", False), ("true", True), ("", False)])
def test_yes_and_no_are_taken_as_meant(word: str, meant: bool) -> None:
    assert one(f"title: t\nstatus: new\nrequires_human_review: {word}").requires_human_review is meant


@pytest.mark.promise("004-types.round-trip")
@pytest.mark.parametrize("word", ["in_progress", "In Progress", "IN-PROGRESS"])
def test_statuses_are_read_in_any_case(word: str) -> None:
    assert one(f"title: t\nstatus: {word}\nphase: build").status is Status.IN_PROGRESS


@pytest.mark.parametrize(
    "text",
    [
        "schema_version: 1\nitems:\n- id: WRK-001\n  title: t\n  status: new\n",
        "schema_version: 1\nitems:\n  -\n    id: WRK-001\n    title: t\n    status: new\n",
        "schema_version: 1\nitems:\n  - {id: WRK-001, title: t, status: new}\n",
        "schema_version: 1\nitems: [{id: WRK-001, title: t,\n  status: new}]\n",
        '{"schema_version": 1, "items": [{"id": "WRK-001", "title": "t", "status": "new"}]}',
        "\ufeffschema_version: 1\r\nitems:\r\n  - id: WRK-001\r\n    title: t\r\n    status: new\r\n",
        "---\nitems:\n    - status: new\n      title: t\n      id: WRK-001\nschema_version: 1\n...\n",
    ],
)
def test_every_way_to_write_an_item_is_read(text: str) -> None:
    assert read(text) == Backlog({"WRK-001": Item(id="WRK-001", title="t", status=Status.NEW)}, 1)


@pytest.mark.promise("004-file.ids")
def test_the_last_id_is_the_highest_ever_seen() -> None:
    item = "  - {{id: {}, title: t, status: new}}\n"
    assert read(HEAD + item.format("OLD-120") + item.format("x")).last_id == 120
    assert read(HEAD + item.format("WRK-002")).last_id == 9
    assert read(HEAD + item.format("A-12-30") + item.format("x12") + item.format("x-70a")).last_id == 30


def test_what_is_archived_or_done_holds_nothing_up() -> None:
    rows = [
        "{id: WRK-001, title: a, status: new, dependencies: [WRK-004, WRK-002, WRK-003, WRK-003]}",
        "{id: WRK-002, title: b, status: done}",
        "{id: WRK-003, title: c, status: new}",
    ]
    assert read(HEAD + "".join(f"  - {row}\n" for row in rows)).items["WRK-001"].dependencies == ("WRK-003",)


@pytest.mark.promise("backlog.closed-dependencies")
@pytest.mark.parametrize(
    ("endings", "waits", "unmet"),
    [
        ({}, (), ()),
        ({"WRK-004": ""}, (), ()),
        ({"WRK-004": "too dear"}, (), ("WRK-004 was closed: too dear",)),
        ({"WRK-004": "duplicate of WRK-002"}, ("WRK-002",), ()),
        ({"WRK-004": "duplicate of WRK-005", "WRK-005": "duplicate of WRK-002"}, ("WRK-002",), ()),
        ({"WRK-004": "duplicate of WRK-005", "WRK-005": ""}, (), ()),
        ({"WRK-004": "duplicate of WRK-001"}, (), ()),
        (
            {"WRK-004": "duplicate of WRK-005", "WRK-005": "duplicate of WRK-004"},
            (),
            ("WRK-004 was closed: duplicate of WRK-005",),
        ),
    ],
)
def test_a_dependency_that_was_closed_is_not_done(
    endings: dict[str, str], waits: tuple[str, ...], unmet: tuple[str, ...]
) -> None:
    rows = (
        "  - {id: WRK-001, title: a, status: new, dependencies: [WRK-004]}\n  - {id: WRK-002, title: b, status: new}\n"
    )
    item = read_backlog((HEAD + rows).encode(), "BACKLOG.yaml", lambda: endings).items["WRK-001"]
    assert (item.dependencies, item.unmet) == (waits, unmet)


# ---- what is refused

ITEM = "  - id: WRK-001\n    title: t\n    status: new\n"
FAULTS = {
    "empty": ("", "is empty", "`git checkout -- BACKLOG.yaml`. A backlog without items is `schema_version: 1`"),
    "only comments": ("# nothing\n", "is empty", "A backlog without items is `schema_version: 1` and `items: []`."),
    "a list": ("- a\n", "not a mapping", "schema_version: 1"),
    "corrupt": (f"{HEAD}  - id: 'x\n", "line 4", "valid YAML"),
    "unquoted colon": (f"{HEAD}  - id: a\n    title: Fix: it\n", "line 5", "needs quotes"),
    "conflict": (
        f"{HEAD}<<<<<<< HEAD\n{ITEM}=======\n>>>>>>> x\n",
        "line 4: this is the marker of a merge conflict",
        "Resolve",
    ),
    "no version": ("items: []\n", "no schema_version", "`schema_version: 1`"),
    "newer version": ("# c\nschema_version: 2\nitems: []\n", "line 2: schema_version is", "newer Capsule"),
    "text version": ('schema_version: "1"\nitems: []\n', "line 1: schema_version", "version 1"),
    "two documents": (f"{HEAD}{ITEM}---\na: 1\n", "2 YAML documents", "Keep one"),
    "items no list": ("schema_version: 1\nitems: 5\n", "not a list", "items: []"),
    "item no mapping": (f"{HEAD}{ITEM}  - x\n", "line 7: item 2 is not a mapping", "- id:"),
    "bad last_id": ("schema_version: 1\nlast_id: many\nitems: []\n", 'line 2: last_id is "many"', "never given twice"),
    "negative last_id": ("schema_version: 1\nlast_id: -1\nitems: []\n", "line 2: last_id", "never given twice"),
    "same id": (f"{HEAD}{ITEM}{ITEM}", "holds WRK-001 twice on lines 4 and 7", "another id"),
    "same key": (f"{HEAD}{ITEM}    title: u\n", "line 7: the key `title` was given on line 5", "Keep one"),
    "same key in braces": (f"{HEAD}{ITEM}  - {{id: a, title: b, title: c}}\n", "line 7: the key `title`", "Keep one"),
    "same key, evened out by one in braces": (
        f"{HEAD}{ITEM}    title: u\n  - {{id: a, title: b}}\n",
        "line 7: the key `title` was given on line 5",
        "Keep one",
    ),
    "same level": (
        f"{HEAD}{ITEM}    guardrail_override:\n      size: large\n      size: small\n",
        "line 9: the key `size` was given on line 8",
        "Keep one",
    ),
    "items twice": (f"{HEAD}{ITEM}items: []\n", "line 7: `items` was given on line 3", "Keep one"),
    "no id": (f"{HEAD}  - title: t\n    status: new\n", "line 4: item 1: there is no id", "Give it one"),
    "no title": (f"{HEAD}  - id: a\n    status: new\n", "line 4: a: there is no title", "Give it one"),
    "null title": (f"{HEAD}  - id: a\n    title: null\n    status: new\n", "line 5: a: there is no title", "quote"),
    "blank title": (f"{HEAD}  - id: a\n    title: ' '\n    status: new\n", "line 5: a: there is no title", "Give"),
    "no status": (f"{HEAD}  - id: a\n    title: t\n", "line 4: a: there is no status", "Give it one"),
    "bad id": (f"{HEAD}  - id: ../../etc\n    title: t\n    status: new\n", "line 4: '../../etc' is not", "letters"),
    "list as title": (f"{HEAD}  - id: a\n    title: [b]\n    status: new\n", "line 5: a: title is", "quotes"),
    "tag as title": (f"{HEAD}  - id: a\n    title: !x b\n    status: new\n", "line 5: a: title is", "quotes"),
    "unknown status": (
        f"{HEAD}  - id: a\n    title: t\n    status: redy\n",
        'line 6: a: status is "redy"',
        "mean ready",
    ),
    "unknown level": (
        f"{HEAD}{ITEM}    size: tiny\n",
        'line 7: WRK-001: size is "tiny"; it must be one of small',
        "Use",
    ),
    "unknown override": (f"{HEAD}{ITEM}    guardrail_override: {{size: tiny}}\n", "line 7: WRK-001: guardrail", "Use"),
    "unknown dimension": (f"{HEAD}{ITEM}    guardrail_override: {{mood: low}}\n", 'names "mood"', "size, complexity"),
    "override no mapping": (
        f"{HEAD}{ITEM}    guardrail_override: [x]\n",
        "line 7: WRK-001: guardrail",
        "{size: large}",
    ),
    "tags no list": (f"{HEAD}{ITEM}    tags: ui\n", "line 7: WRK-001: tags is", "[one, two]"),
    "tags nested": (f"{HEAD}{ITEM}    tags: [[a]]\n", "line 7: WRK-001: tags is", "[one, two]"),
    "maybe": (f"{HEAD}{ITEM}    requires_human_review: maybe\n", "line 7: WRK-001: requires_human", "one of them"),
    "blocked from nowhere": (
        f"{HEAD}  - id: a\n    title: t\n    status: blocked\n    blocked_from_status: done\n",
        "line 7: a: blocked_from_status is",
        "Use",
    ),
    "unknown block": (
        f"{HEAD}  - id: a\n    title: t\n    status: blocked\n    blocked_from_status: new\n    blocked_type: mood\n",
        "line 8: a: blocked_type is",
        "Use",
    ),
    "unknown dependency": (f"{HEAD}{ITEM}    dependencies: [WRK-010]\n", "line 7: WRK-001: it depends on", "WRK-001?"),
    "odd dependency": (f"{HEAD}{ITEM}    dependencies: [somebody]\n", 'depends on "somebody"', "up to 9"),
    "itself": (f"{HEAD}{ITEM}    dependencies: [WRK-001]\n", "WRK-001 → WRK-001", "Remove one"),
    "bomb": ("a: &a [x]\nb: [" + "*a, " * 20 + "*a]\n", "21 YAML aliases", "10 are the most"),
    "bomb in braces": ('{"a":&a [x], "b":[' + "*a, " * 20 + "*a]}\n", "21 YAML aliases", "10 are the most"),
    "bomb behind a quote": ('{"x": [{" &x":&a [x]}, ' + "*a, " * 20 + "x]}\n", "20 YAML aliases", "10 are the most"),
    "bomb behind a mark": ("a: &a\ufeff[x]\nb: [" + "*a, " * 20 + "x]\n", "20 YAML aliases", "10 are the most"),
    "bomb with odd names": ("a: &\u2003 [x]\nb: [" + "*\u2003, " * 20 + "x]\n", "20 YAML aliases", "10 are the most"),
    "nested": ("schema_version: 1\nx:\n  " + "- " * 50_000 + "x\n", "nested too deeply", "flat"),
    "nested by lines": ("".join(" " * n + "a:\n" for n in range(1001)), "nested too deeply", "flat"),
    "nested at once": ("? " * 50_000 + "x\n", "nested too deeply", "flat"),
}


@pytest.mark.sweep(cases=20)
@pytest.mark.promise("004-file.faults")
@pytest.mark.parametrize(("text", "words", "hint"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_with_its_place_and_a_way_out(text: str, words: str, hint: str) -> None:
    with pytest.raises(TrackerError) as caught:
        read(text)
    assert words in caught.value.message and hint in caught.value.hint
    assert caught.value.message.startswith(WHERE) and "\n" not in caught.value.message


def test_a_circle_is_drawn() -> None:
    rows = [("WRK-001", "WRK-002"), ("WRK-002", "WRK-003"), ("WRK-003", "WRK-002")]
    text = "".join(f"  - {{id: {one}, title: t, status: new, dependencies: [{other}]}}\n" for one, other in rows)
    with pytest.raises(TrackerError, match="WRK-002 → WRK-003 → WRK-002"):
        read(HEAD + text)


def test_bytes_that_are_no_text_are_named_by_line() -> None:
    with pytest.raises(TrackerError, match="line 4: this is not UTF-8"):
        read_backlog(f"{HEAD}  - id: ".encode() + b"\xff\n", WHERE)


def test_a_file_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backlog_page, "LARGEST", 1024 * 1024)
    with pytest.raises(TrackerError, match="larger than 1 MiB"):
        read_backlog(b"#" * (1024 * 1024 + 1), WHERE)


@examples(150)
@given(st.randoms(use_true_random=False), st.sampled_from([FULL, HEAD + ITEM * 2]))
def test_a_damaged_file_is_read_or_refused_and_never_crashes(chance: random.Random, text: str) -> None:
    data = bytearray(text.encode())
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data))
        data[place : place + chance.randint(0, 3)] = chance.choice([b"", b"\n", b" ", b":", b"- ", b"{", b"'", b"\xc3"])
    try:
        read_backlog(bytes(data), WHERE)
    except CapsuleError as fault:
        assert fault.hint and isinstance(fault, TrackerError)


# ---- what is odd, but no fault


@pytest.mark.promise("004-file.faults")
@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ("status: new\nteam: blue", 'line 6: WRK-001: "team" is no field of ours; it is kept.'),
        ("status: new\nstaus: ready", "Did you mean status?"),
        ("status: in_progress", "line 5: WRK-001: it is in progress without a phase; the first one is assumed."),
        ("status: blocked", "line 5: WRK-001: it is blocked, but does not say from which status; new is assumed."),
        ("status: new\nblocked_reason: why", "line 6: WRK-001: blocked_reason is ignored"),
    ],
)
def test_what_is_odd_is_a_warning(fields: str, warning: str) -> None:
    lines = "".join(f"    {line}\n" for line in fields.split("\n"))
    found = read(f"schema_version: 1\nitems:\n  - id: WRK-001\n    title: t\n{lines}").warnings
    assert len(found) == 1 and warning in found[0]


@pytest.mark.promise("004-follow-ups.block")
def test_an_item_blocked_from_nowhere_goes_back_to_new() -> None:
    assert one("title: t\nstatus: blocked").blocked == Blocked(Status.NEW, "", "")


@pytest.mark.promise("004-file.faults")
def test_an_unknown_field_in_many_items_is_one_warning() -> None:
    items = "".join(f"  - {{id: WRK-{n}, title: t, status: new, team: x}}\n" for n in range(1, 40))
    found = read(f"schema_version: 1\nowner: us\nlast_id: 39\nitems:\n{items}").warnings
    assert len(found) == 2
    assert 'line 2: "owner"' in found[0] and "(and in 38 other items)" in found[1]


# ---- texts, both ways


def yaml_1_2(text: str) -> Any:
    return yaml12.parse_yaml(text)


def yaml_1_1(text: str) -> Any:
    return pytest.importorskip("yaml").safe_load(text)


# fmt: off
ODD = [
    "0 -", "a\n-", "-\nb", "a\n b", "a\n\tb",
    "+-0", "0x-1", "0o+7", "--1", "+.5", "-.inf",
    "no", "No", "null", "~", "true", "y", "=", "<<", "0123", "12", "1e3", "1_000", "0x1F", "0b1", "0o17",
    ".5", ".inf", ".", "...", "---", "12:30", "12:30:00", "1:2", "190:20:30.15", "2026-02-11",
    "2026-02-11T10:00:00Z", "2026-02-11 10:00", "a: b", "a:", "a #b", "a#b", "#a", "- a", "-a", "-", "? a",
    "?", ": a", "*a", "&a", "!a", "%a", "@a", "`a", "'a", "\"a", "a\"b'c", "[a]", "{a}", "a, b", " a", "a ",
    "a\tb", "a", "b", "", "a\\nb", "é", "问题", "🎉", "👩\u200d👩\u200d👧", "a\u2028b", "a\x85b", "\ufeff", "\x00",
    "\x1b[31m", "a\r", "\u202eabc", ">", "\\", "x", ",a", "1.", "+1", "-1", "0", "00", "1e", "_1", "e1",
    "1__", "a\nb", "\n", "a\n", " a\nb", "a\n\n\nb", "a\r\nb",
]
# fmt: on


def read_back(title: str) -> list[tuple[str, list[str], str]]:
    """Title, tags and description of an item that has this text in all of them, as YAML 1.2 and 1.1 read it."""
    wanted = Exists("k", {"title": title, "tags": [title, "x"], "description": title})
    text = changed("schema_version: 1\nitems: []\n", wanted)
    items = (yaml_1_2(text)["items"][0], yaml_1_1(text)["items"][0])
    return [(item["title"], item["tags"], item["description"]) for item in items]


@pytest.mark.sweep(cases=24)
@pytest.mark.parametrize("title", ODD, ids=ascii)
def test_an_odd_title_reads_back_as_itself(title: str) -> None:
    assert read_back(title) == [(title, [title, "x"], title)] * 2


@examples(300)
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(r"[-+0-9_.:eExXTZ ]{1,12}", fullmatch=True))
@example("a: b # c\n- d")
def test_any_title_reads_back_as_itself(title: str) -> None:
    assert read_back(title) == [(title, [title, "x"], title)] * 2


@pytest.mark.parametrize(
    "title", ["Make it fast", "问题 🎉 ü", "it's 5 o'clock", "C++ & Rust (again)", "a:b", "3 things"]
)
def test_what_needs_no_quotes_gets_none(title: str) -> None:
    assert f"title: {title}\n" in changed("schema_version: 1\nitems: []\n", follow_up(title))


def test_half_a_character_becomes_a_replacement() -> None:
    text = changed(HEAD + ITEM, assign(title="x\ud800y"), follow_up("\udfff z"))
    assert [item.title for item in read(text).items.values()] == ["x\ufffdy", "\ufffd z"]


def test_a_file_without_a_last_line_end_reads_alike_everywhere() -> None:
    text = changed((HEAD + ITEM).removesuffix("\n"), assign(description="a\nb\n"))
    assert yaml_1_1(text) == yaml_1_2(text)


def test_a_description_keeps_its_lines() -> None:
    text = changed(HEAD + ITEM, assign(description="one\n\n  two: #\nthree"))
    assert text == f"{HEAD}{ITEM}    description: |-\n      one\n\n        two: #\n      three\n"


# ---- what a change leaves alone


@pytest.mark.promise("004-file.lossless")
@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        ({"status": "in_progress"}, "    status: ready", "    status: in_progress"),
        ({"title": "Slow"}, '    title: "Make it: fast"  # as always', "    title: Slow  # as always"),
        ({"complexity": "high"}, "    complexity: LOW", "    complexity: high"),
        ({"requires_human_review": True}, "    requires_human_review: false", "    requires_human_review: true"),
        ({"origin": "WRK-002/build"}, "    origin: ~", "    origin: WRK-002/build"),
        ({"dependencies": ["a"]}, "    dependencies: [WRK-003, WRK-012]", "    dependencies: [a]"),
        ({"created": "2026-02-12"}, "    created: 2026-02-11", '    created: "2026-02-12"'),
    ],
)
def test_one_field_is_one_line(values: dict[str, Value], before: str, after: str) -> None:
    assert differing(FULL, changed(FULL, Assign("WRK-001", values))) == [(before, after)]


@pytest.mark.parametrize(
    ("values", "gone", "put"),
    [
        (
            {"tags": ["a, b", "c"]},
            "    tags:\n      - ui\n      # more to come\n      - quick\n",
            '    tags: ["a, b", c]\n',
        ),
        ({"tags": None}, "    tags:\n      - ui\n      # more to come\n      - quick\n", ""),
        ({"size": None}, "    size: small\n", ""),
        (
            {"description": "Short"},
            "    description: |\n      # Not a comment\n\n      Two lines.\n",
            "    description: Short\n",
        ),
        (
            {"phase": "build", "updated": "now"},
            "    created: 2026-02-11\n",
            "    created: 2026-02-11\n    phase: build\n    updated: now\n",
        ),
    ],
)
def test_a_field_of_several_lines_is_replaced_as_a_whole(values: dict[str, Value], gone: str, put: str) -> None:
    assert FULL.count(gone) == 1
    assert changed(FULL, Assign("WRK-001", values)) == FULL.replace(gone, put)


@pytest.mark.promise("004-follow-ups.block")
def test_unblocking_takes_the_block_away() -> None:
    values: dict[str, Value] = {"blocked_from_status": None, "blocked_reason": None, "blocked_type": None}
    text = changed(FULL, Assign("WRK-003", {"status": "scoped", **values, "unblock_context": "The first: #1"}))
    block = FULL[FULL.index("    blocked_from_status") : FULL.index("    guardrail_override")]
    expected = FULL.replace(block, "").replace("status: blocked", "status: scoped")
    assert text == expected.replace("    updated:\n", '    updated:\n    unblock_context: "The first: #1"\n')


@pytest.mark.parametrize(
    "values", [{"status": "ready"}, {"phase": None}, {"origin": None}, {"unblock_context": ""}, {"id": "other"}, {}]
)
def test_what_is_so_already_changes_nothing(values: dict[str, Value]) -> None:
    assert changed(FULL, Assign("WRK-001", values)) == FULL


def test_an_item_that_is_gone_is_not_missed() -> None:
    assert changed(FULL, Assign("WRK-002", {"status": "new"}), Absent("WRK-002")) == FULL


def test_line_ends_a_mark_at_the_start_and_a_missing_last_line_end_stay() -> None:
    data = b"\xef\xbb\xbf" + (HEAD + ITEM).replace("\n", "\r\n").encode().removesuffix(b"\r\n")
    given_list: list[Assignment] = [assign(status="ready", phase="prd"), follow_up("Next", description="a\nb")]
    after = rewritten(data, given_list, where=WHERE, prefix="WRK", archived=dict).data
    expected = data.replace(b"status: new", b"status: ready\r\n    phase: prd").replace(b"last_id: 9", b"last_id: 10")
    added = b"\r\n  - id: WRK-010\r\n    title: Next\r\n    status: new\r\n    description: |-\r\n      a\r\n      b"
    assert after == expected + added


TOP = "schema_version: 1\nitems:\n"
SHAPES = {
    "no indent": TOP + "- id: WRK-001\n  title: 0123\n  status: new\n# end\n",
    "dash alone": TOP + "  - # c\n    # d\n    id: WRK-001\n    title: 0123\n    status: new\n",
    "wide": TOP + "    -   id: WRK-001\n        title: 0123\n        status: new\n\nowner: x\n",
    "braces": TOP + "  - {id: WRK-001, title: 0123, status: new} # c\n",
    "braces on lines": TOP + '  - {"id":"WRK-001", title: 0123, # c\n     status: "ne\\\n     w"}\n',
    "brackets": "schema_version: 1\nitems: [{id: WRK-001, title: 0123, status: new}]\nowner: x\n",
    "quoted keys": "schema_version: 1\n'items':\n  - \"id\": WRK-001\n    'title': 0123\n    \"status\": new\n",
    "kept blanks": TOP + "  - id: WRK-001\n    title: 0123\n    status: new\n    x: |+\n      a\n\n\n# e\n",
    "inner dashes": TOP + "  - id: WRK-001\n    status: new\n    title: 0123\n    tags:\n    - a\n    - b\n",
    "other item": f"{HEAD}{ITEM.replace('001', '002')}\n{ITEM.replace('title: t', 'title: 0123')}",
}


@pytest.mark.promise("004-file.lossless")
@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_every_way_to_write_an_item_can_be_changed(text: str) -> None:
    before = read(text).items["WRK-001"]
    after = read(changed(text, assign(status="ready", phase="prd", size="small"))).items["WRK-001"]
    assert (after.status, after.phase, after.assessment.size) == (Status.READY, "prd", "small")
    assert (before.title, after.title, after.tags) == ("0123", "0123", before.tags)
    kept = [line for line in text.split("\n") if line.startswith(("owner", "#"))]
    assert all(line in changed(text, assign(status="ready")) for line in kept)


@pytest.mark.promise("004-file.archive")
@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_every_way_to_write_an_item_can_be_archived(text: str) -> None:
    after = changed(text, Absent("WRK-001"))
    backlog_after = read(after)
    assert "WRK-001" not in backlog_after.items and backlog_after.last_id >= 1
    again = read(changed(after, follow_up("New")))
    assert list(again.items)[-1] == f"WRK-{backlog_after.last_id + 1:03}"


def test_aliases_survive_or_the_change_is_refused() -> None:
    text = HEAD + ITEM.replace(" t\n", " &name t\n") + ITEM.replace("001", "002").replace(" t\n", " *name\n")
    after = changed(text, Assign("WRK-002", {"status": "ready"}))
    assert read(after).items["WRK-002"].title == "t"
    with pytest.raises(TrackerError):
        changed(text, Absent("WRK-001"))


@pytest.mark.parametrize("value", ["!t x", "!t {a: 1}", "{!t a: b}", "{[a]: b}", "{1: 2}", "{null: 2}", "[!t x]"])
@pytest.mark.parametrize("field", ["guardrail_override", "tags", "team", "!t team", "title"])
def test_a_value_with_a_tag_is_kept_or_refused_by_name(field: str, value: str) -> None:
    named = {"title": "t", field: value}
    in_lines = HEAD + ITEM.replace("    title: t\n", "".join(f"    {name}: {each}\n" for name, each in named.items()))
    in_braces = f"{HEAD}  - {{id: WRK-001, status: new, {', '.join(f'{n}: {v}' for n, v in named.items())}}}\n"
    for text in (in_lines, in_braces):
        for change in (Assign("WRK-001", {"status": "ready"}), Absent("WRK-001")):
            try:
                assert read(changed(text, change)) != read(text)
            except TrackerError as fault:
                assert fault.message.startswith(WHERE) and fault.hint


LONG = HEAD + "".join(ITEM.replace("001", f"{number:03}") for number in range(1, 13))


def test_one_change_in_a_long_list_reads_its_neighbours_again_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    given, understood = list[str](), _backlog_page.documents_in

    def counted(text: str) -> list[object]:
        given.append(text)
        return understood(text)

    monkeypatch.setattr(_backlog_page, "documents_in", counted)
    after = changed(LONG, Assign("WRK-006", {"status": "ready"}))
    assert read(after).items["WRK-006"].status is Status.READY
    whole, near, *_ = given
    assert whole == LONG and near.count("- id:") < 7 and "status: ready" in near


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("WRK-006\n    title: t", "WRK-006\n    title: t\n    description: |+\n      Kept.\n\n# no text"),
        ("  - id: WRK-006", "  - |\n  - id: WRK-006"),
        ("  - id: WRK-006", "  - |1\n  - - id: WRK-006"),
        ("WRK-006\n    title: t", 'WRK-006\n    title: "t\n  - id: x"'),
        ("  - id: WRK-006", "other:\n  - id: WRK-006"),
        ("WRK-006\n    title: t", "WRK-006\n    title: &name t"),
        ("WRK-006\n    title: t", "WRK-006\n    title: t\n---"),
        ("WRK-006\n    title: t", "WRK-006\n    title: t\n..."),
        ("WRK-006\n    title: t", "WRK-006\n    title: t\r...\r"),
        ("schema_version: 1", "%TAG ! tag:x,1:\n---\nschema_version: !s 1"),
        ("schema_version: 1", '"items":\n  - 1\nschema_version: 1'),
    ],
)
def test_a_long_list_means_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    text = LONG.replace(old, new, 1)
    if "&name" in new:
        text = text.replace("WRK-012\n    title: t", "WRK-012\n    title: *name")
    monkeypatch.setattr(_backlog_page, "_PART", 1)
    try:
        whole = yaml12.parse_yaml(text, multi=True)
    except ValueError:
        whole = []
    in_parts = _backlog_page._in_parts(text)
    assert in_parts in ([], whole)
    if not old:
        assert in_parts and len(in_parts[0]["items"]) == 12


@pytest.mark.promise("004-file.atomic")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WRK-006\n    title: t", "WRK-006\n    title: &name t"),
        ("WRK-006\n    title: t", 'WRK-006\n    x: {"y":&name t}\n    title: t'),
    ],
)
def test_what_is_named_from_far_away_does_not_go(old: str, new: str) -> None:
    text = LONG.replace(old, new).replace("WRK-012\n    title: t", "WRK-012\n    title: *name")
    assert read(text).items["WRK-012"].title == "t"
    with pytest.raises(TrackerError, match="nothing was changed"):
        changed(text, Absent("WRK-006"))


@pytest.mark.promise("004-file.atomic")
def test_a_cut_that_takes_from_its_neighbour_changes_nothing() -> None:
    text = LONG.replace("  - id: WRK-006", "    description: |\n      a\n      # b\n  - id: WRK-006")
    with pytest.raises(TrackerError, match="nothing was changed"):
        changed(text, Absent("WRK-006"))


def test_what_cannot_be_changed_safely_is_refused() -> None:
    text = '{"schema_version": 1, "items": [{"id": "WRK-001", "title": "t", "status": "new"}]}'
    for assignment in (assign(status="ready"), Absent("WRK-001"), follow_up("x")):
        with pytest.raises(TrackerError, match="nothing was changed"):
            changed(text, assignment)


@pytest.mark.promise("004-file.atomic")
def test_a_mistake_of_ours_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backlog_edit, "written", lambda value: f"{value} oops")
    for assignment in (assign(status="ready"), follow_up("x")):
        with pytest.raises(TrackerError, match="nothing was changed"):
            changed(HEAD + ITEM, assignment)


def test_an_item_more_than_was_meant_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = _backlog_edit._cut
    monkeypatch.setattr(_backlog_edit, "_cut", lambda text, cuts: cut(text, cuts) + ITEM)
    for assignment in (assign(status="ready"), Absent("WRK-001"), follow_up("x")):
        with pytest.raises(TrackerError, match="nothing was changed"):
            changed(HEAD + ITEM, assignment)


def test_the_same_bytes_are_understood_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, whole = FULL + "# read once\n", list[str]()
    understood = _backlog_page.documents_in

    def counted(given: str) -> list[object]:
        whole.append(given)
        return understood(given)

    monkeypatch.setattr(_backlog_page, "documents_in", counted)
    read(text)
    after = changed(text, assign(status="ready"), follow_up("One more"))
    assert changed(text, assign(status="ready"), follow_up("One more")) == after
    assert read(after).last_id == 15
    assert whole == [text, after]


def test_a_last_id_that_is_oddly_written_is_replaced_as_a_whole() -> None:
    text = changed("schema_version: 1\nlast_id:\n  9\nitems: []\n", Exists("k", {"title": "x"}))
    assert text == "schema_version: 1\nlast_id: 10\nitems:\n  - id: WRK-010\n    title: x\n    status: new\n"


def test_a_file_for_a_newer_capsule_is_not_changed() -> None:
    with pytest.raises(TrackerError, match="schema_version"):
        changed(FULL.replace("schema_version: 1", "schema_version: 2"), assign(status="new"))


@pytest.mark.parametrize("remark", ["# [x]", "# 'c'", "# it's", "  # a: b"])
@pytest.mark.parametrize("value", ["[a, 'b # c']", "{a: b}", "'a # b'", '"a \\" # b"', "it's a#b", "plain words", "~"])
def test_a_remark_behind_a_value_stays(value: str, remark: str) -> None:
    text = f"{HEAD}{ITEM}    odd: {value} {remark}\n    phase: prd\n"
    assert changed(text, assign(odd="new")) == text.replace(value, "new", 1)


@pytest.mark.parametrize("value", ["", " &name t", " *name", "\n      - a\n      - b", " folded\n      plain"])
def test_a_remark_behind_a_value_that_is_oddly_written_stays(value: str) -> None:
    text = f"{HEAD}{ITEM.replace('title: t', 'title: &name t')}    odd:{value} # why\n    phase: prd\n"
    assert changed(text, assign(odd="new")) == text.replace(f"odd:{value}", "odd: new")


@pytest.mark.parametrize("shape", ["\n  - {%s} # why\n", " [{%s}] # why\n"])
def test_an_item_in_braces_is_written_anew_with_its_numbers_as_they_were(shape: str) -> None:
    given = "id: 007, title: 1.50, status: new, info: [0x1F, 'no', {a_1: true}], field_2: ~"
    after = changed(f"schema_version: 1\nitems:{shape % given}", Assign("007", {"status": "ready"}))
    lines = ["id: 007", "title: 1.50", "status: ready", 'info: [0x1F, "no", {a_1: true}]', "field_2: null"]
    assert [line.removesuffix(" # why").lstrip(" -") for line in after.splitlines()[2:]] == lines
    assert after.count(" # why\n") == 1


def test_a_comment_at_the_fields_indent_stays_with_its_item() -> None:
    text = HEAD + ITEM + "    # inside\n  # outside\n"
    after = changed(text, assign(phase="prd"), Exists("k", {"title": "Next"}))
    lines = "    # inside\n    phase: prd\n  - id: WRK-010\n    title: Next\n    status: new\n  # outside\n"
    assert after == HEAD.replace("9", "10") + ITEM + lines
    assert "inside" not in changed(text, Absent("WRK-001"))


def test_all_items_can_be_replaced_at_once() -> None:
    after = changed(HEAD + ITEM, Absent("WRK-001"), Exists("k", {"title": "Next"}))
    assert after == HEAD.replace("9", "10") + "  - id: WRK-010\n    title: Next\n    status: new\n"


# ---- items that come and go


def test_an_archived_item_takes_its_own_comments_along() -> None:
    text = changed(FULL, Absent("WRK-001"))
    assert text == FULL[: FULL.index("  # Ann")] + FULL[FULL.index("  # The one that") :]
    assert changed(text, Absent("WRK-003")) == (
        "# The team's list.\nschema_version: 1   # do not touch\nlast_id: 14\n\nitems: []\n\n# The end.\n"
    )


def test_items_next_to_each_other_can_go_together() -> None:
    items = "\n".join(ITEM.replace("001", f"00{n}") for n in range(1, 6))
    for gone in ([1, 2], [4, 5], [2, 3, 4], [1, 5], [5], [1, 2, 3, 4, 5]):
        after = changed(HEAD + items, *(Absent(f"WRK-00{n}") for n in gone))
        assert list(read(after).items) == [f"WRK-00{n}" for n in range(1, 6) if n not in gone]
        assert "\n\n\n" not in after and not after.endswith("\n\n")


@pytest.mark.promise("004-file.ids")
def test_ids_are_never_given_twice() -> None:
    text = "schema_version: 1\nitems:\n" + ITEM.replace("001", "007")
    text = changed(text, Absent("WRK-007"))
    assert text == "schema_version: 1\nlast_id: 7\nitems: []\n"
    after = change(text, follow_up("Next"))
    assert after.added == ("WRK-008",)
    assert after.data.decode().startswith("schema_version: 1\nlast_id: 8\nitems:\n  - id: WRK-008\n    title: Next\n")


def test_archiving_below_the_mark_leaves_the_mark_alone() -> None:
    assert changed(HEAD + ITEM, Absent("WRK-001")) == "schema_version: 1\nlast_id: 9\nitems: []\n"


def test_a_new_item_is_set_apart_where_the_others_are() -> None:
    values: dict[str, Value] = {"title": "Next", "size": None, "origin": "WRK-001/build", "tags": ["a"]}
    text = changed(FULL, Exists("k", values))
    added = "\n  - id: WRK-015\n    title: Next\n    status: new\n    origin: WRK-001/build\n    tags: [a]\n"
    assert text == FULL.replace("    updated:\n", "    updated:\n" + added).replace("last_id: 14", "last_id: 15")


@pytest.mark.promise("004-file.ids")
@pytest.mark.parametrize("items", ["items: []", "items:", "items: null", "items: [ ]  # none"])
def test_the_first_item_finds_its_place(items: str) -> None:
    text = changed(f"schema_version: 1\n{items}\n# end\n", follow_up("First"))
    assert list(read(text).items) == ["WRK-001"] and text.endswith("# end\n")
    assert ("# none" in items) == ("# none" in text)


def test_without_a_list_there_will_be_one() -> None:
    assert list(read(changed("schema_version: 1", follow_up("First"))).items) == ["WRK-001"]


def test_what_is_known_is_not_added_again() -> None:
    wanted = [follow_up("Make it -- FAST!"), follow_up("Was done"), follow_up("New one"), follow_up("new ONE")]
    after = change(FULL, *wanted, archived={"was done": "WRK-002"})
    assert after.added == ("WRK-015",)
    assert change(after.data.decode(), *wanted, archived={"was done": "WRK-002"}).data == after.data


def test_what_a_person_adds_is_added_even_if_it_is_known() -> None:
    assert change(FULL, Exists("k", {"title": "Make it: fast"})).added == ("WRK-015",)


@pytest.mark.promise("backlog.known-follow-ups")
def test_a_follow_up_that_is_known_is_named_and_its_context_is_added_once() -> None:
    text = HEAD + "  - {id: WRK-001, title: Fix it, status: new, description: It is broken.}\n"
    wanted = follow_up("fix IT", description="It also loses rows.\n\nAnd columns.", origin="WRK-002/prd")
    after = change(text, wanted)
    found = "Found by WRK-002/prd: It also loses rows.\nAnd columns."
    assert read(after.data.decode()).items["WRK-001"].description == f"It is broken.\n\n{found}"
    assert not after.added
    assert after.known == ("a follow-up is known already, as WRK-001: its context is in the description there",)
    assert change(after.data.decode(), wanted).data == after.data, "applied again after a crash"
    assert change(text, follow_up("fix IT")).known == ("a follow-up is known already, as WRK-001",)
    full = text.replace("It is broken.", "x" * 16_000)
    assert change(full, wanted).data.decode() == full
    assert "WRK-001, whose description has no room for its context" in change(full, wanted).known[0]
    archived = change(text, follow_up("Gone"), archived={"gone": "WRK-007"})
    assert archived.data.decode() == text and "was archived as WRK-007: Gone" in archived.known[0]


def test_titles_without_letters_are_told_apart() -> None:
    assert len(change(HEAD + ITEM, follow_up("!!!"), follow_up("???"), follow_up("!!!")).added) == 2


def test_the_archive_is_asked_once_and_only_if_needed() -> None:
    asked: list[int] = []

    def archived() -> dict[str, str]:
        asked.append(1)
        return {}

    for wanted, times in ([follow_up("t")], 0), ([follow_up("a"), follow_up("b")], 1):
        rewritten((HEAD + ITEM).encode(), wanted, where=WHERE, prefix="WRK", archived=archived)
        assert len(asked) == times


def test_what_an_earlier_application_added_is_not_added_again() -> None:
    wanted = [Exists("a", {"title": "A"}), follow_up("t"), Exists("b", {"title": "B"})]
    first = change(HEAD + ITEM, *wanted)
    text = first.data.decode()
    assert first.added == ("WRK-010", "WRK-011")
    assert changed(text, *wanted, ids=first.added) == text
    retitled = text.replace("title: A", "title: Another")
    assert changed(retitled, *wanted, ids=first.added) == retitled
    archived = changed(text, Absent("WRK-010"))
    assert changed(archived, *wanted, ids=first.added) == archived
    assert changed(HEAD + ITEM, *wanted, ids=first.added) == text


@pytest.mark.promise("004-file.ids")
def test_a_prefix_of_ones_own_and_many_digits() -> None:
    data = HEAD.replace("9", "999").encode()
    after = rewritten(data, [follow_up("x")], where=WHERE, prefix="CAP", archived=dict)
    assert after.added == ("CAP-1000",)


def test_applying_a_list_twice_is_applying_it_once() -> None:
    wanted: list[Assignment] = [
        assign(status="in_progress", phase="build", updated="2026-02-12T00:00:00Z", size=None),
        follow_up("One: more", size="small"),
        Absent("WRK-003"),
        LogEntry("2026-02", "## x\n"),
    ]
    once = changed(FULL, *wanted)
    assert once != FULL and changed(once, *wanted) == once


# ---- the worklog

ENTRY = log_entry(Item(id="WRK-001", title="Make it"), "2026-11-16T10:00:00Z", "review", "Completed", "Done.")
LATER = log_entry(Item(id="WRK-002", title="Next"), "2026-11-16T11:00:00Z", "prd", "PASS", "Wrote it.")


@pytest.mark.promise("004-commands.worklog")
def test_the_newest_entry_is_on_top() -> None:
    text = with_entry(with_entry(b"", ENTRY), LATER).decode()
    assert text.startswith("# Worklog 2026-11\n\n## 2026-11-16 11:00:00 UTC | WRK-002 | prd | PASS\n")
    assert text.index("WRK-002") < text.index("WRK-001") and text.endswith("Done.\n")
    assert [title for _, title in archived_titles(text)] == ["Make it"]


@pytest.mark.promise("004-follow-ups.worklog")
@pytest.mark.parametrize("before", [b"", b"# Ours\r\n\r\nwords\r\n", b"# Ours", b"no heading\xff\n", b"\n\n"])
def test_an_entry_is_there_once_and_loses_nothing(before: bytes) -> None:
    once = with_entry(before, ENTRY)
    assert with_entry(once, ENTRY) == once
    assert all(line in once.split(b"\n") for line in before.split(b"\n") if line.strip() and b"\r" in line)
    assert before.strip() in once or before.startswith(b"# Ours")
    assert with_entry(with_entry(once, LATER), ENTRY).count(b"WRK-001") == 1


# ---- the adapter


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / WHERE).write_text(FULL)
    return tmp_path


def test_it_is_found_by_its_name(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    assert backlog.find(project) == project / WHERE and backlog.find(empty) is None
    with pytest.raises(TrackerError) as caught:
        backlog.connect(empty)
    assert "capsule init" in caught.value.hint


def test_claiming_and_closing_change_the_file_alone(project: Path) -> None:
    tracker = backlog.connect(project, lock=project / "lock")
    (project / WHERE).chmod(0o640)
    tracker.claim("WRK-001")
    text = (project / WHERE).read_text()
    assert differing(FULL, text.replace(text[text.index("    updated: ") :].split("\n")[0] + "\n", "", 1)) == [
        ("    status: ready", "    status: in_progress")
    ]
    assert stat.S_IMODE((project / WHERE).stat().st_mode) == 0o640
    assert tracker.item("WRK-001").status is Status.IN_PROGRESS and "without a phase" in tracker.warnings[0]
    tracker.close("WRK-001", "merged")
    assert [item.id for item in tracker.everything()] == ["WRK-003"] and tracker.last_id == 14


def test_an_archived_item_is_known_to_be_so(project: Path) -> None:
    tracker = backlog.connect(project)
    with pytest.raises(UnknownItem, match="There is no item OLD-014"):
        tracker.item("OLD-014")
    with pytest.raises(UnknownItem, match="WRK-014 was archived"):
        tracker.item("WRK-014")
    with pytest.raises(UnknownItem, match="no item WRK-015"):
        tracker.item("WRK-015")
    with pytest.raises(Refused):
        tracker.claim("WRK-014")
    tracker.release("WRK-014")
    tracker.close("WRK-014", "again")
    assert (project / WHERE).read_text() == FULL


@pytest.mark.parametrize(("status", "hint"), [("blocked", "unblock"), ("new", "researching"), ("scoped", "ready")])
def test_only_what_is_ready_can_be_claimed(project: Path, status: str, hint: str) -> None:
    (project / WHERE).write_text(HEAD + ITEM.replace("new", status))
    with pytest.raises(Refused) as caught:
        backlog.connect(project).claim("WRK-001")
    assert hint in caught.value.hint and status in (project / WHERE).read_text()


def test_a_done_item_waits_to_be_archived(project: Path) -> None:
    (project / WHERE).write_text(HEAD + ITEM.replace("new", "done"))
    tracker = backlog.connect(project)
    assert tracker.items() == [] and [item.id for item in tracker.everything()] == ["WRK-001"]
    tracker.close("WRK-001", "archived")
    assert tracker.everything() == []


def test_a_hand_edit_is_seen_at_once_and_kept(project: Path) -> None:
    tracker = backlog.connect(project)
    assert tracker.item("WRK-001").title == "Make it: fast"
    (project / WHERE).write_text(FULL.replace("Make it: fast", "By hand"))
    assert tracker.item("WRK-001").title == "By hand"
    tracker.claim("WRK-001")
    assert '"By hand"  # as always' in (project / WHERE).read_text()


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("other.yaml")], ids=["directory", "FIFO", "link"]
)
def test_only_a_plain_file_is_read_and_nothing_else_is_touched(project: Path, make: Callable[[Path], None]) -> None:
    (project / WHERE).rename(project / "other.yaml")
    make(project / WHERE)
    tracker = backlog.connect(project)
    for ask in (tracker.items, lambda: tracker.claim("WRK-001"), lambda: tracker.close("WRK-001", "")):
        with pytest.raises(TrackerError, match="cannot be read") as caught:
            ask()
        assert caught.value.hint == "Make it a plain file that you may read."
    assert (project / "other.yaml").read_text() == FULL


def test_a_read_only_file_is_left_alone(project: Path) -> None:
    (project / WHERE).chmod(0o444)
    with pytest.raises(TrackerError, match="read-only; nothing was changed"):
        backlog.connect(project).claim("WRK-001")
    assert (project / WHERE).read_text() == FULL


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_directory_is_a_fault_with_a_hint(project: Path) -> None:
    project.chmod(0o555)
    try:
        with pytest.raises(TrackerError, match="nothing was changed"):
            backlog.connect(project).claim("WRK-001")
    finally:
        project.chmod(0o755)


def test_a_held_lock_is_waited_for_then_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "LOCK_WAIT", 0.1)
    with FileLock(project / "lock"), pytest.raises(LockHeld):
        backlog.connect(project, lock=project / "lock").claim("WRK-001")
    assert (project / WHERE).read_text() == FULL


def test_writers_side_by_side_lose_nothing(project: Path) -> None:
    names = [f"WRK-{number:03}" for number in range(1, 25)]
    (project / WHERE).write_text(HEAD + "".join(ITEM.replace("WRK-001", name) for name in names))

    def close_every(start: int) -> None:
        for name in names[start::4]:
            backlog.connect(project, lock=project / "lock").close(name, "done")

    threads = [threading.Thread(target=close_every, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (project / WHERE).read_text() == "schema_version: 1\nlast_id: 24\nitems: []\n"


@pytest.mark.promise("004-follow-ups.worklog")
def test_a_step_rewrites_all_files_at_once(project: Path) -> None:
    (project / "_worklog").mkdir()
    (project / "_worklog/2026-01.md").write_bytes(with_entry(b"", ENTRY))
    (project / "_worklog/link.md").symlink_to("/dev/zero")
    files = {WHERE: FULL.encode()}
    wanted: list[Assignment] = [Absent("WRK-001"), follow_up("make it"), follow_up("Fresh"), ENTRY, LATER]
    tracker = backlog.connect(project)
    new, added, _ = tracker.rewrite(files.get, wanted)
    assert set(new) == {WHERE, "_worklog/2026-11.md"} and added == ("WRK-015",)
    assert new["_worklog/2026-11.md"].index(b"WRK-002") < new["_worklog/2026-11.md"].index(b"WRK-001")
    assert tracker.rewrite((files | new).get, wanted, added)[:2] == ({}, ())
    assert (project / WHERE).read_text() == FULL


def test_a_backlog_that_is_gone_is_said_to_be_so(project: Path) -> None:
    tracker = backlog.connect(project)
    (project / WHERE).unlink()
    for ask in (tracker.items, lambda: tracker.rewrite(lambda _: None, [])):
        with pytest.raises(TrackerError, match="is missing") as caught:
            ask()
        assert "git checkout" in caught.value.hint


# ---- a model of all of it

COMMENTED = "schema_version: 1\nlast_id: 4\n\n# list\nitems:\n" + "\n".join(
    f"""\
  # about {n}
  - id: WRK-00{n}  # id {n}
    title: Title {n}
    unknown: [1, 2]
    status: ready   # status {n}
    # inside {n}
    description: |
      Text {n}

      # no comment
    tags:
      - a
"""
    for n in range(1, 5)
)
FIELD_VALUES: dict[str, st.SearchStrategy[Value]] = {
    "title": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).map(lambda text: f"x{text}x"),
    "status": st.sampled_from(["new", "ready", "in_progress"]),
    "phase": st.none() | st.sampled_from(["prd", "no", "12"]),
    "description": st.none() | st.text(st.sampled_from("ab \n#:-'\""), max_size=12),
    "tags": st.none() | st.lists(st.sampled_from(["a", "b, c", "no", "#", "]"]), max_size=3),
    "requires_human_review": st.booleans(),
    "blocked_reason": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
}
IDS = st.integers(1, 6).map("WRK-{:03}".format)
VALUES = st.fixed_dictionaries({}, optional=FIELD_VALUES)
ASSIGNMENTS = (
    st.builds(Assign, IDS, VALUES)
    | st.builds(Absent, IDS)
    | st.builds(
        Exists,
        st.just("k"),
        st.builds(lambda n, more: {**more, "title": f"Added {n}"}, st.integers(1, 3), VALUES),
        st.just(True),
    )
)


def model_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    items = {item["id"]: item for item in document["items"] or []}
    return {key: {name: value for name, value in item.items() if value} for key, item in items.items()}


def apply_to_model(model: dict[str, dict[str, Any]], last: int, assignment: Assignment) -> int:
    match assignment:
        case Assign(item, values) if item in model:
            model[item] = {name: value for name, value in {**model[item], **values}.items() if value}
        case Absent(item):
            model.pop(item, None)
        case Exists(_, values) if values["title"] not in [item.get("title") for item in model.values()]:
            last += 1
            new = {"id": f"WRK-{last:03}", "status": "new", **values}
            model[f"WRK-{last:03}"] = {name: value for name, value in new.items() if value}
        case Exists(_, values):  # it is known: what is new about it is added
            known = next(item for item in model.values() if item.get("title") == values["title"])
            held, told = known.get("description", ""), str(values.get("description") or "")
            context = found_by("", told)
            if told.strip() and told not in held and context not in held:
                known["description"] = f"{held.rstrip()}\n\n{context}" if held.strip() else context
    return last


@pytest.mark.slow
@pytest.mark.promise("004-file.lossless")
@examples(150)
@given(st.lists(ASSIGNMENTS, max_size=5), st.booleans(), st.booleans())
def test_random_changes_do_what_a_dictionary_does(wanted: list[Assignment], windows: bool, cut_short: bool) -> None:
    text = (COMMENTED.removesuffix("\n") if cut_short else COMMENTED).replace("\n", "\r\n" if windows else "\n")
    model, last = model_of(yaml_1_2(text)), 4
    for assignment in wanted:  # one at a time: within one list an item that goes is not changed before
        text = changed(text, assignment)
        last = apply_to_model(model, last, assignment)
        assert changed(text, assignment) == text
    assert model_of(yaml_1_2(text)) == model
    assert model_of(yaml_1_1(text)) == model
    for number in range(1, 5):
        kept = f"WRK-00{number}" in model
        for comment in (f"# about {number}", f"# id {number}", f"# status {number}", f"# inside {number}"):
            assert (comment in text) == kept
    assert "\r" not in text.replace("\r\n", "") and (windows or "\r" not in text)


@pytest.mark.slow
@pytest.mark.promise("004-follow-ups.bulk-ids")
def test_ten_thousand_items_and_a_thousand_follow_ups_cost_linear_time() -> None:
    fields = "".join(f"    field_{n}: some words\n" for n in range(8))

    def work(count: int) -> Callable[[], object]:
        text = HEAD + "".join(
            f"  - id: WRK-{n}\n    title: Item {n}\n    status: ready\n{fields}" for n in range(count)
        )
        found = [follow_up(f"F {n}") for n in range(count // 10)]
        gone = [Absent(f"WRK-{n}") for n in range(0, count, 2)]

        def act() -> None:
            assert len(read(text).items) == count
            assert len(change(text, Assign(f"WRK-{count - 1}", {"status": "new"}), *found).added) == len(found)
            changed(text, *gone)

        return act

    assert grows_linearly(work, 1_000, 10_000)
