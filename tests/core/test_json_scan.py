"""The scanner against a brute-force reference, the shapes agents really print, and hostile megabytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.costs import costs_below, examples, grows_linearly

from capsule.core.json_scan import DEEPEST, WINDOW, last_object, trailing_object

SIGNAL: dict[str, object] = {
    "status": "PASS",
    "feedback": 'say "hi" to {braces} \\ and ] } [ {',
    "files_changed": ["a.py", "dir/ü.py"],
    "summary": "done",
    "meta": {"status": "ERROR", "list": [{"a": [1, 2.5, True, None]}]},
}
COMPACT = json.dumps(SIGNAL, separators=(",", ":")).encode()
PRETTY = json.dumps(SIGNAL, indent=2, ensure_ascii=False).encode()


# --- the reference --------------------------------------------------------------------------------------------------


def brute_force(text: str) -> object:
    """The definition, word by word and slow.

    From every bracket that opens something, try to read JSON: what can be read is a container. A container that lies
    inside another one is not top-level. Of the top-level objects take the one that ends last.
    """
    containers = [found for start in range(len(text)) if (found := container_at(text, start))]
    top_level = [
        (stop, value)
        for start, stop, value in containers
        if not any(s <= start and stop <= e and (s, e) != (start, stop) for s, e, _ in containers)
    ]
    objects = [found for found in top_level if isinstance(found[1], dict)]
    return max(objects, key=lambda found: found[0])[1] if objects else None


def container_at(text: str, start: int) -> tuple[int, int, object] | None:
    if text[start] not in "{[":
        return None
    try:
        value, stop = READER.raw_decode(text, start)
    except ValueError:
        return None
    return start, stop, value


def no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def number(digits: str) -> object:
    """Whatever does not fit 64 bits stays as written."""
    value = float(digits)
    if digits.lstrip("-").isdigit():
        return int(digits) if -(2**63) <= int(digits) < 2**64 else digits
    return value if abs(value) < float("inf") else digits


READER = json.JSONDecoder(parse_constant=no_constant, parse_int=number, parse_float=number)


# Every neighbourhood of two tokens arises from these: valid, broken and overlapping containers all turn up often.
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    ":",
    "\\",
    " ",
    "\n",
    "1",
    "-0.5e3",
    "true",
    "NaN",
    "a",
    "\\u00e9",
    '"a":',
    '"b"',
]
WHOLE = [
    "{}",
    "[]",
    '{"a":1}',
    '{"a":{"b":[]}}',
    '[{"c":2}]',
    '{"a":"{"}',
    '":1}',
    '"{}"',
    '\\"',
    '"\\\\"',
    '{"a":"\\""}',
]


@pytest.mark.slow
@pytest.mark.promise("signals.last-object")
@examples(1500)
@given(st.lists(st.sampled_from(PIECES + WHOLE), max_size=24).map("".join))
@example('{"a":"{"}":1}')
@example('{"a":"["}"]')
@example('["{}"]')
@example('{"a":"\\\\"} "}')
@example('{} {"a":[}')
def test_agrees_with_brute_force_on_token_soup(text: str) -> None:
    assert last_object(text.encode()) == brute_force(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=6), json_values, max_size=4)
prose = st.text(st.characters(exclude_characters="{}[]\x1b", exclude_categories=["Cs"]), max_size=30)


@examples(400)
@given(json_objects, st.sampled_from([None, 0, 2]), st.booleans(), prose, prose)
def test_finds_any_object_in_any_prose(
    value: dict[str, object], indent: int | None, ascii_only: bool, before: str, after: str
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert last_object(f"{before}{written}{after}".encode()) == json.loads(written)


@pytest.mark.slow
@examples(400)
@given(json_objects, st.data())
def test_a_mutilated_object_reads_as_brute_force_reads_it(value: dict[str, object], data: st.DataObject) -> None:
    written = json.dumps(value, ensure_ascii=False)
    cut = data.draw(st.integers(0, len(written) - 1))
    damaged = written[:cut] + data.draw(st.sampled_from(["", *PIECES])) + written[cut + 1 :]
    assert last_object(damaged.encode()) == brute_force(damaged)


@pytest.mark.promise("signals.no-crash")
@examples(500)
@given(
    st.lists(
        st.sampled_from(
            [*(piece.encode() for piece in PIECES + WHOLE), b"\x00", b"\xff", b"\xe2", b"\x1b[3", b"m", b"\\ud800"]
        )
    )
)
def test_never_raises_and_always_answers_with_encodable_data(pieces: list[bytes]) -> None:
    found = last_object(b"".join(pieces))
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


# --- what agents print ----------------------------------------------------------------------------------------------


def coloured(text: bytes) -> bytes:
    """Every token in its own colour, as `jq -C` and terminals do it."""
    text = re.sub(rb"[]{}:,[]", lambda token: b"\x1b[1;39m" + token[0] + b"\x1b[0m", text)
    return b"\x1b[?25l" + text + b"\x1b(B\x1b[m"


@pytest.mark.promise("signals.any-format")
@pytest.mark.parametrize(
    "output",
    [
        pytest.param(COMPACT, id="alone"),
        pytest.param(PRETTY, id="pretty"),
        pytest.param(b"Here it is:\n```json\n" + PRETTY + b"\n```\nThat is all.\n", id="fenced"),
        pytest.param(b"\n".join(b"    " + line for line in PRETTY.splitlines()), id="indented"),
        pytest.param(PRETTY.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(b"Signal: " + COMPACT + b" (end of phase)", id="text on the same line"),
        pytest.param(COMPACT + b'\n[1, 2]\n"text"\n42\nnull\n[{"status": "ERROR"}]\n["{}"]\n', id="other JSON after"),
        pytest.param(
            COMPACT + b'\nMind the } and the ] and the [link](x) and 5" wide {things}.', id="brackets in prose"
        ),
        pytest.param(b'He said "wait { and [\n' + COMPACT, id="stray openers and quotes before"),
        pytest.param(b'{"status": "ERROR"}' + COMPACT, id="after another object"),
        pytest.param(b"\xef\xbb\xbf" + COMPACT, id="byte order mark"),
        pytest.param(b"\x00\xff\xfe" + COMPACT + b"\x00\xc3", id="bytes that are no text"),
        pytest.param(b"\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[" + COMPACT, id="cut-off escape before"),
    ],
)
def test_the_signal_is_found_however_it_is_printed(output: bytes) -> None:
    assert last_object(output) == SIGNAL


@pytest.mark.promise("signals.any-format")
def test_colours_are_ignored_around_and_between_tokens() -> None:
    plain = {"status": "PASS", "files_changed": ["x"], "n": {"deep": 1}}
    assert last_object(b"log\n" + coloured(json.dumps(plain, indent=1).encode()) + b"\n") == plain


@pytest.mark.promise("signals.last-object")
@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b'{"outer": {"status": "PASS"}}', {"outer": {"status": "PASS"}}),
        (b'{"text": "{\\"status\\": 1} {}"}', {"text": '{"status": 1} {}'}),
        (b'{"broken": {"status": "PASS"}', {"status": "PASS"}),
        (b'{"a": 1} {"b": 2,}', {"a": 1}),
        (b'{"a": 1} {"b": NaN}', {"a": 1}),
        (b'{"a": 1} {"b": 01}', {"a": 1}),
        (b'{"a": 1} {"b": "two\nlines"}', {"a": 1}),
        (b'{"a": 1} {"b": "\\x"}', {"a": 1}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'[{"status": "PASS"}]', None),
        (b"", None),
        (b"{status: PASS}", None),
    ],
)
def test_what_is_top_level_and_what_is_json(output: bytes, expected: object) -> None:
    assert last_object(output) == expected


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", "18446744073709551616"),
        (b"-9223372036854775809", "-9223372036854775809"),
        (b"9" * 5000, "9" * 5000),
        (b"1e999", "1e999"),
        (b"1.5", 1.5),
        (rb'"\ud83d\ude00 \ud83d \ude00 \\ud83d"', "\U0001f600 � � \\ud83d"),
        (b'"\xff\xc3"', "��"),
    ],
)
def test_values_that_break_encoders_are_made_harmless(written: bytes, read: object) -> None:
    found = last_object(b'{"v": ' + written + b"}")
    assert found == {"v": read}
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_too_deep_an_object_is_not_read_and_still_hides_what_it_encloses() -> None:
    def wrapped(levels: int) -> bytes:
        return b'{"a":' * levels + COMPACT + b"}" * levels

    deepest_within = COMPACT.count(b"[") + 2
    assert last_object(wrapped(DEEPEST - deepest_within - 3)) is not None
    assert last_object(wrapped(DEEPEST)) is None
    assert last_object(wrapped(100_000)) is None


def test_only_the_window_is_searched() -> None:
    assert last_object(COMPACT + b"." * (WINDOW - len(COMPACT))) == SIGNAL
    assert last_object(COMPACT + b"." * WINDOW) is None


# --- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.promise("speed.parse-signal")
def test_a_hundred_megabytes_with_the_signal_at_the_end_cost_half_a_second() -> None:
    line = b'12:00:01 INFO "GET /items" -> {"n": 1, "tags": ["a"]} [ok]\n'
    log = line * (100_000_000 // len(line)) + COMPACT + b"\n"
    assert last_object(log) == SIGNAL
    assert costs_below(0.5, lambda: last_object(log))


@pytest.mark.sweep
@pytest.mark.promise("speed.parse-signal")
@pytest.mark.parametrize("unit", [b"{", b'{"a":', b"}", b"{}", b'"', b"\\", b"[{", b"\x1b[", b"\x1b]", b'"}'])
def test_sixteen_hostile_mebibytes_cost_seconds_at_most(unit: bytes) -> None:
    hostile = unit * (WINDOW // len(unit))
    assert costs_below(3, lambda: last_object(hostile))


NESTS: list[Callable[[int], bytes]] = [
    lambda n: b"{" * n + b"}" * n,
    lambda n: b"{}" + b"[" * n + b"]" * n,
    lambda n: b'{"a":' * n + b"1" + b"}" * n,
    lambda n: b'{"}"' * n,
    lambda n: b'{"a":1}' + b'"]' * n,
    lambda n: b'{"k":"' + b"x" * n + b'",' + b'"k":"{",' * n,
    lambda n: b"{}" * n + b',"a":1}',
    lambda n: b"{x" * n + b"}" * n,
    lambda n: b"{x}" * n,
]


@pytest.mark.sweep
@pytest.mark.promise("speed.parse-signal")
@pytest.mark.parametrize("nest", NESTS)
def test_cost_grows_in_proportion_to_the_input(nest: Callable[[int], bytes]) -> None:
    def work(size: int) -> Callable[[], object]:
        text = nest(size)
        return lambda: last_object(text)

    assert grows_linearly(work, 20_000, 160_000)


AT_THE_END = {
    "alone": (b'{"a": 1}', {"a": 1}),
    "after words": (b'Done: {"a": 1}\n', {"a": 1}),
    "in a fence": (b'```json\n{"a": 1}\n```\n\n', {"a": 1}),
    "in colour": (b'\x1b[32m{"a": 1}\x1b[0m\n', {"a": 1}),
    "the last of two": (b'{"b": 2} {"a": 1}', {"a": 1}),
    "before a word": (b'{"a": 1} or so', None),
    "before half an object": (b'{"a": 1}\n{"b": ', None),
    "before a brace": (b'{"a": 1}\nint main() { }}', None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize(("text", "found"), AT_THE_END.values(), ids=AT_THE_END.keys())
def test_an_object_at_the_end_has_nothing_behind_it(text: bytes, found: dict[str, object] | None) -> None:
    assert trailing_object(text) == found
