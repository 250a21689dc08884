"""Read and write rows of beads, and turn a row into an `Item` of ours.

A row of the JSONL file and of `bd export` holds its dependencies as edges; `bd show` puts the whole bead that is
depended on in their place, under the same name. Both are read here, and whatever is unknown is data. A row is changed
as text: inside a line that keeps all its other characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid4, uuid5

import msgspec
from msgspec import Struct

from capsule.core.errors import CapsuleError
from capsule.core.item import Blocked, Item, ItemValues, NewItem, Status
from capsule.core.text import cleaned
from capsule.system.git import Git

FOLDER = ".beads"

STATUSES = {
    "open": Status.READY,
    "in_progress": Status.IN_PROGRESS,
    "hooked": Status.IN_PROGRESS,
    "closed": Status.DONE,
}
"""Every other status (blocked, deferred, pinned, a team's own) means: not now, and not by us."""

PRIORITIES = range(5)
PARENT, BLOCKS, FOUND_IN = "parent-child", "blocks", "discovered-from"

USUAL_NAMES = ("issues.jsonl", "beads.jsonl")
_OTHER_TABLES = ("interactions.jsonl", "deletions.jsonl", "routes.jsonl")


AUTHOR = "capsule"
_SPACE = re.compile(r"[ \t\r\n]*")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 3


class Edge(Struct, gc=False):
    """One dependency of a bead. If the other bead is included, `dependency_type`, `id` and `status` are set."""

    issue_id: str = ""
    depends_on_id: str = ""
    type: str = ""
    dependency_type: str = ""
    id: str = ""
    status: str = ""


class Bead(Struct, gc=False, rename={"kind": "_type"}):
    """The fields that we read of a row, in bd's order, with clean texts."""

    id: str
    title: str = ""
    description: str = ""
    acceptance_criteria: str = ""
    status: str = ""
    priority: int = 2
    issue_type: str = ""
    assignee: str = ""
    created_at: str = ""
    updated_at: str = ""
    closed_at: str = ""
    defer_until: str = ""
    external_ref: str = ""
    labels: tuple[str, ...] = ()
    dependencies: tuple[Edge, ...] = ()
    comments: Any = ()
    parent: str = ""
    kind: str = "issue"


_TEXTS = (
    *("title", "description", "acceptance_criteria", "issue_type", "status", "parent", "assignee"),
    *("created_at", "updated_at", "closed_at", "defer_until", "external_ref"),
)
_decode = msgspec.json.Decoder(Bead).decode
_ESCAPED = re.compile(rb"\\(?:[bfr]|u(?!00[2-6]))")
"""Characters that `cleaned` may replace, as JSON spells them."""


def usual_row(line: bytes) -> Bead | None:
    """Read a row as bd writes it, fast; None for anything else, which `parsed` and `bead_of` understand."""
    try:
        bead = _decode(line)
    except (ValueError, RecursionError):
        return None
    if (b"\\" in line and _ESCAPED.search(line)) or not line.isascii() or b"\x7f" in line:
        _clean(bead)
    return bead


def bead_of(row: Mapping[str, Any]) -> Bead:
    """Return the bead of a row with an id and any other fields."""
    try:
        bead = msgspec.convert(row, Bead)
    except msgspec.ValidationError:
        bead = Bead(
            id=row["id"],
            **{name: _text_of(row, name) for name in _TEXTS},
            kind=str(row.get("_type", "issue")),
            priority=row["priority"] if type(row.get("priority")) is int else 2,
            labels=tuple(label for label in _list_of(row, "labels") if isinstance(label, str)),
            dependencies=tuple(
                Edge(**{name: str(edge[name]) for name in Edge.__struct_fields__ if name in edge})
                for edge in _list_of(row, "dependencies")
                if isinstance(edge, dict)
            ),
            comments=row.get("comments"),
        )
    _clean(bead)
    return bead


def _clean(bead: Bead) -> None:
    for name in _TEXTS:
        if not (text := getattr(bead, name)).isprintable():
            setattr(bead, name, cleaned(text))
    bead.labels = tuple(map(cleaned, bead.labels))


def _text_of(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _list_of(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    return value if isinstance(value, list) else []


def parsed(text: bytes | str) -> Any:
    """Parse JSON as Python does, whose slower reader is asked only for half characters, NaN and endless numbers."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text if isinstance(text, str) else text.decode())


def file_in(root: Path) -> Path | None:
    """Return the file that holds a project's beads, if there is one."""
    folder = root / FOLDER
    usual = [folder / name for name in USUAL_NAMES if (folder / name).exists()]
    others = [path for path in sorted(folder.glob("*.jsonl")) if path.name not in _OTHER_TABLES]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def our_name(root: Path, env: Mapping[str, str]) -> str:
    """Return the name that bd knows us by, in the order in which it looks itself."""
    try:
        name = env.get("BEADS_ACTOR") or env.get("BD_ACTOR") or Git.find(root).identity.name
    except CapsuleError:
        name = env.get("USER", "")
    return cleaned(name).strip()


def taken_by(bead: Bead, us: Callable[[], str]) -> str:
    """Return the other person who has it in progress; '' if that, or our own name, is unknown."""
    theirs = bead.assignee.strip()
    if not theirs or status_of(bead) is not Status.IN_PROGRESS:
        return ""
    ours = us()
    return theirs if ours and theirs != ours else ""


def is_work(bead: Bead) -> bool:
    """Tell work from memories and tombstones, which are rows, too."""
    return bead.kind == "issue" and bead.status != "tombstone"


def item_of(bead: Bead, beads: Mapping[str, Bead], us: Callable[[], str]) -> Item:
    """Return the bead as an item; `beads` are all there are, by id. `us` is only called if it matters."""
    status = status_of(bead)
    parent, waits_for = _relatives(bead, beads)
    return Item(
        id=bead.id,
        title=bead.title,
        description=bead.description,
        acceptance=bead.acceptance_criteria,
        type=bead.issue_type or "task",
        status=status,
        priority=bead.priority if bead.priority in PRIORITIES else 2,
        parent=parent,
        blocked=Blocked(Status.READY, f"beads says {bead.status}", kind="") if status is Status.BLOCKED else None,
        origin=bead.external_ref,
        tags=bead.labels,
        dependencies=waits_for,
        taken_by=taken_by(bead, us) if bead.assignee else "",
        created=bead.created_at,
        updated=(bead.closed_at if status is Status.DONE else "") or bead.updated_at,
    )


def _relatives(bead: Bead, beads: Mapping[str, Bead]) -> tuple[str, tuple[str, ...]]:
    """Return its parent and its dependencies; like bd, ignore edges to beads that are gone."""
    own, parent = bead.id, ""
    is_open: dict[str, bool] = {}
    for edge in bead.dependencies:
        kind, to = edge.type, edge.depends_on_id
        if edge.dependency_type:  # what came along with the row is newer than what was known before
            kind, to = edge.dependency_type, edge.id
        elif to not in beads or edge.issue_id not in (own, ""):  # gone, or stored here and of another bead
            continue
        if kind == BLOCKS:
            is_open[to] = (edge if edge.dependency_type else beads[to]).status != "closed"
        elif kind == PARENT and to != own:
            parent = parent or to
    if not parent and (bead.parent or "." in own):
        names = (bead.parent, own.rpartition(".")[0])
        parent = next((name for name in names if name in beads and name != own), "")
    return parent, tuple([other for other in is_open if is_open[other]]) if is_open else ()


def status_of(bead: Bead) -> Status:
    return STATUSES.get(bead.status or "open", Status.BLOCKED)


def remarks_of(bead: Bead) -> list[dict[str, Any]]:
    """List the comments on a bead."""
    return [each for each in bead.comments if isinstance(each, dict)] if isinstance(bead.comments, list) else []


# ---- new rows


def new_row(name: str, new: NewItem, now: str, *, found_in: str = "") -> str:
    """Return a row for one more bead, with its fields in the order in which bd writes them."""
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
    """Return the file with one more line; if its last line has no line end, the new last line has none either."""
    end = b"\r\n" if data.rstrip(b"\n").endswith(b"\r") or data.endswith(b"\r\n") else b"\n"
    content = line.encode("utf-8")
    if not data or data.endswith(b"\n"):
        return data + content + end
    return data + end + content


def child_id(parent: str, taken: Collection[str]) -> str:
    """Return one more than the highest number that was ever given below this parent."""
    own = re.compile(re.escape(parent) + r"\.([0-9]+)(?:\.|$)", re.ASCII)
    numbers = (int(found.group(1)) for name in taken if (found := own.match(name)))
    return f"{parent}.{max(numbers, default=0) + 1}"


def short_id(names: Iterable[str], taken: Collection[str], folder: str, seed: str) -> str:
    """Return `<prefix>-<a few letters>`, with the most frequent prefix, or as bd does the folder's name."""
    prefixes = Counter(name.partition(".")[0].rpartition("-")[0] for name in names)
    prefixes.pop("", None)
    usual = re.sub(r"[^a-z0-9-]+", "-", folder.lower()).strip("-") or "bead"
    prefix = prefixes.most_common(1)[0][0] if prefixes else usual
    length = _SHORTEST
    for attempt in range(1_000_000):
        number = uuid5(NAMESPACE_OID, f"{cleaned(seed)}\n{attempt}").int
        letters = "".join(_ALPHABET[number // 36**place % 36] for place in range(length))
        if (name := f"{prefix}-{letters}") not in taken:
            return name
        length = _SHORTEST + (attempt + 1) // 30
    raise AssertionError("a million names, and none is free")


def new_comment(bead_id: str, text: str, now: str, beads: Iterable[Bead]) -> dict[str, object]:
    """Return a comment, numbered where all are (as the older bd does), else with a unique name."""
    known = [each.get("id") for bead in beads for each in remarks_of(bead)]
    numbers = [number for number in known if type(number) is int]
    name: object = max(numbers, default=0) + 1 if len(numbers) == len(known) else str(uuid4())
    return {"id": name, "issue_id": bead_id, "author": AUTHOR, "text": text, "created_at": now}


# ---- changing fields inside a line


def splice(text: str, fields: Mapping[str, str]) -> str:
    """Return the text of a JSON object with these top-level fields set; all its other characters stay as they are."""
    return _with_members(text, {key: json.dumps(value) for key, value in fields.items()})


_COLUMNS = {"title": "title", "description": "description", "type": "issue_type", "priority": "priority"}
"""The names of our fields in a row."""


def with_values(text: str, values: ItemValues, now: str) -> str:
    """Return the row with these fields set; all its other characters stay as they are."""
    fields: dict[str, object] = {
        column: cleaned(value) if isinstance(value := values[name], str) else value
        for name, column in _COLUMNS.items()
        if name in values
    }
    if "tags" in values:
        fields["labels"] = [cleaned(tag) for tag in texts_of(values["tags"])]
    if "status" in values:
        fields["status"] = values["status"]
    if "parent" in values or "dependencies" in values:
        fields["dependencies"] = _edges_after(parsed(text), values, now)
    return _with_members(text, {name: _dumped(value) for name, value in {**fields, "updated_at": now}.items()})


def _edges_after(row: dict[str, Any], values: ItemValues, now: str) -> list[object]:
    """Return the edges of a row; those that stay are as they were."""
    known = [each for each in row.get("dependencies") or () if isinstance(each, dict)]
    wanted = {
        BLOCKS: [*texts_of(values.get("dependencies"))],
        PARENT: [*filter(None, texts_of([values.get("parent")]))],
    }
    changed = [*([BLOCKS] if "dependencies" in values else []), *([PARENT] if "parent" in values else [])]
    stay = [
        each for each in known if each.get("type") not in changed or each.get("depends_on_id") in wanted[each["type"]]
    ]
    there = {(each.get("type"), each.get("depends_on_id")) for each in stay}
    new = [
        {"issue_id": row["id"], "depends_on_id": other, "type": kind, "created_at": now, "created_by": AUTHOR}
        for kind in changed
        for other in wanted[kind]
        if (kind, other) not in there
    ]
    return [*stay, *new]


def texts_of(value: object) -> list[str]:
    """Return the texts of a list; nothing for anything else."""
    return [str(each) for each in value if each] if isinstance(value, list) else []


def with_element(text: str, key: str, element: Mapping[str, Any]) -> str:
    """Return the text with one more element in a list, which is made where there is none."""
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
    """Yield each top-level key of a valid JSON object, with where its value starts and ends."""
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
