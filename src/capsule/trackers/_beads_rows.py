"""Rows of a beads file as text: new ones, and fields changed inside a line that keeps all its other characters."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any
from uuid import uuid4

from capsule.core.item import NewItem
from capsule.trackers._beads import BLOCKS, FOUND_IN, PARENT, Bead, cleaned, list_of

AUTHOR = "capsule"

_SPACE = re.compile(r"[ \t\r\n]*")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 3


# ---- new rows


def new_row(name: str, new: NewItem, now: str, *, found_in: str = "") -> str:
    """One more bead, with its fields in the order in which bd writes them."""
    edges = [(PARENT, new.parent)] * bool(new.parent) + [(BLOCKS, other) for other in new.dependencies]
    if found_in and found_in not in (new.parent, *new.dependencies):
        edges.append((FOUND_IN, found_in))
    row: dict[str, object] = {
        "id": name,
        "title": cleaned(new.title).strip(),
        "description": cleaned(new.description),
        "status": "open",
        "priority": new.priority,
        "issue_type": cleaned(new.type),
        "created_at": now,
        "created_by": AUTHOR,
        "updated_at": now,
        "external_ref": cleaned(new.reference),
        "labels": [cleaned(tag) for tag in new.tags],
        "dependencies": [
            {"issue_id": name, "depends_on_id": other, "type": kind, "created_at": now, "created_by": AUTHOR}
            for kind, other in edges
        ],
    }
    return _dumped({key: value for key, value in row.items() if value or value == 0})


def with_line(data: bytes, line: str) -> bytes:
    """The file with one more line; where its last line has no end, the new last line has none either."""
    end = b"\r\n" if data.rstrip(b"\n").endswith(b"\r") or data.endswith(b"\r\n") else b"\n"
    content = line.encode("utf-8")
    if not data or data.endswith(b"\n"):
        return data + content + end
    return data + end + content


def child_id(parent: str, taken: Collection[str]) -> str:
    """One more than the highest number that was ever given below this parent."""
    own = re.compile(re.escape(parent) + r"\.([0-9]+)(?:\.|$)", re.ASCII)
    numbers = (int(found.group(1)) for name in taken if (found := own.match(name)))
    return f"{parent}.{max(numbers, default=0) + 1}"


def short_id(names: Iterable[str], taken: Collection[str], folder: str, seed: str) -> str:
    """`<prefix>-<a few letters>`, with the prefix that most have; as bd does, the folder's name where there is none."""
    prefixes = Counter(name.partition(".")[0].rpartition("-")[0] for name in names)
    prefixes.pop("", None)
    usual = re.sub(r"[^a-z0-9-]+", "-", folder.lower()).strip("-") or "bead"
    prefix = prefixes.most_common(1)[0][0] if prefixes else usual
    length = _SHORTEST
    for attempt in range(1_000_000):
        number = int.from_bytes(sha256(f"{seed}\n{attempt}".encode("utf-8", "replace")).digest()[:8])
        letters = "".join(_ALPHABET[number // 36**place % 36] for place in range(length))
        if (name := f"{prefix}-{letters}") not in taken:
            return name
        length = _SHORTEST + (attempt + 1) // 30
    raise AssertionError("a million names, and none is free")


def new_comment(bead_id: str, text: str, now: str, beads: Iterable[Bead]) -> dict[str, object]:
    """Numbered where all are, for that is how the older bd has it; else with a name that nobody else can have."""
    remarks = [each for bead in beads for each in list_of(bead, "comments") if isinstance(each, dict)]
    known = [each.get("id") for each in remarks]
    numbers = [number for number in known if type(number) is int]
    name: object = max(numbers, default=0) + 1 if len(numbers) == len(known) else str(uuid4())
    return {"id": name, "issue_id": bead_id, "author": AUTHOR, "text": text, "created_at": now}


# ---- changing fields inside a line


def splice(text: str, fields: Mapping[str, str]) -> str:
    """The text of a JSON object with these top-level fields set; all its other characters stay as they are."""
    return _with_members(text, {key: json.dumps(value) for key, value in fields.items()})


def with_element(text: str, key: str, element: Mapping[str, Any]) -> str:
    """The same with one more element in a list, which is made where there is none."""
    spans = [text[start:end] for name, start, end in _members(text) if name == key]
    listed = spans[-1][:-1].rstrip() if spans and spans[-1].startswith("[") else "["
    comma = "" if listed == "[" else ","
    return _with_members(text, {key: f"{listed}{comma}{_dumped(element)}]"})


def _with_members(text: str, fields: Mapping[str, str]) -> str:
    spans = {key: (start, end) for key, start, end in _members(text)}
    missing = [key for key in fields if key not in spans]
    for key, (start, end) in sorted(spans.items(), key=lambda entry: entry[1], reverse=True):
        if key in fields:
            text = text[:start] + fields[key] + text[end:]
    closing = text.rindex("}")
    head = text[:closing].rstrip()
    colon = ": " if re.search(r'":\s', text) else ":"
    comma = ", " if re.search(r'[\]}"\d],\s', text) else ","
    added = comma.join(f"{json.dumps(key)}{colon}{fields[key]}" for key in missing)
    return head + (comma if added and spans else "") + added + text[len(head) :]


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """Each top-level key of a valid JSON object, with where its value starts and ends."""
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while text[(at := _skip(text, at))] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, start)
        yield key, start, at
        at = _skip(text, at)
        at += text[at] == ","


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
