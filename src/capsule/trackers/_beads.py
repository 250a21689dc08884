"""What a bead means: from a row of beads, however it was come by, to an `Item` of ours.

A row of the JSONL file and of `bd export` holds its dependencies as edges; `bd show` puts the whole bead that is
depended on in their place, under the same name. Both are read here, and whatever is unknown is data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from capsule.core.errors import CapsuleError
from capsule.core.item import Blocked, Item, Status
from capsule.core.text import without_controls
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

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Bead = Mapping[str, Any]


class Edge(NamedTuple):
    """One dependency of a bead; `target` is the bead it points to, where the row brought it along."""

    kind: str
    to: str
    target: Bead | None = None


def file_in(root: Path) -> Path | None:
    """The file that holds a project's beads, if there is one."""
    folder = root / FOLDER
    usual = [folder / name for name in USUAL_NAMES if (folder / name).exists()]
    others = [path for path in sorted(folder.glob("*.jsonl")) if path.name not in _OTHER_TABLES]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def our_name(root: Path, env: Mapping[str, str]) -> str:
    """Whom bd takes us for, in the order in which it looks itself."""
    try:
        name = env.get("BEADS_ACTOR") or env.get("BD_ACTOR") or Git.find(root).identity.name
    except CapsuleError:
        name = env.get("USER", "")
    return cleaned(name).strip()


def taken_by(bead: Bead, us: Callable[[], str]) -> str:
    """Who else has it in progress; '' where nobody says, or nobody knows who we are."""
    theirs = text_of(bead, "assignee").strip()
    if status_of(bead) is not Status.IN_PROGRESS or not theirs:
        return ""
    ours = us()
    return theirs if ours and theirs != ours else ""


def is_work(bead: Bead) -> bool:
    """Memories, and what is left of beads that were deleted, lie among the rows too."""
    return bead.get("_type", "issue") == "issue" and bead.get("status") != "tombstone"


def item_of(bead: Bead, beads: Mapping[str, Bead], us: Callable[[], str]) -> Item:
    """The bead as an item; `beads` are all there are, by id. Who we are is asked only where it matters."""
    status = text_of(bead, "status") or "open"
    ours = STATUSES.get(status, Status.BLOCKED)
    priority = bead.get("priority")
    return Item(
        id=bead["id"],
        title=text_of(bead, "title"),
        description=text_of(bead, "description"),
        acceptance=text_of(bead, "acceptance_criteria"),
        type=text_of(bead, "issue_type") or "task",
        status=ours,
        priority=priority if type(priority) is int and priority in PRIORITIES else 2,
        parent=_parent(bead, beads),
        blocked=Blocked(Status.READY, f"beads says {status}", kind="") if ours is Status.BLOCKED else None,
        tags=tuple(cleaned(label) for label in list_of(bead, "labels") if isinstance(label, str)),
        dependencies=_blockers(bead, beads),
        taken_by=taken_by(bead, us),
        created=text_of(bead, "created_at"),
        updated=text_of(bead, "updated_at"),
    )


def status_of(bead: Bead) -> Status:
    return STATUSES.get(text_of(bead, "status") or "open", Status.BLOCKED)


def text_of(bead: Bead, key: str) -> str:
    value = bead.get(key)
    return "" if value is None else cleaned(value if isinstance(value, str) else json.dumps(value))


def cleaned(text: str) -> str:
    """JSON can spell half a character, which nothing after us could write down, and a NUL, which nobody could pass."""
    return _LONE_SURROGATE.sub("\ufffd", without_controls(text))


def list_of(bead: Bead, key: str) -> list[Any]:
    value = bead.get(key)
    return value if isinstance(value, list) else []


def edges_of(bead: Bead) -> Iterator[Edge]:
    """What this bead points to; an edge that is stored with it but belongs to another bead is not ours."""
    for edge in list_of(bead, "dependencies"):
        if not isinstance(edge, dict):
            continue
        if "dependency_type" in edge:
            yield Edge(str(edge["dependency_type"]), str(edge.get("id", "")), edge)
        elif edge.get("issue_id", bead["id"]) == bead["id"]:
            yield Edge(str(edge.get("type", "")), str(edge.get("depends_on_id", "")))


def _parent(bead: Bead, beads: Mapping[str, Bead]) -> str:
    edges = [edge for edge in edges_of(bead) if edge.kind == PARENT]
    named = [Edge(PARENT, text_of(bead, "parent")), Edge(PARENT, bead["id"].rpartition(".")[0])]
    there = (edge.to for edge in (*edges, *named) if edge.target or edge.to in beads)
    return next((parent for parent in there if parent != bead["id"]), "")


def _blockers(bead: Bead, beads: Mapping[str, Bead]) -> tuple[str, ...]:
    """Only what is still to be done holds a bead up; bd ignores edges to beads that are gone, and so do we.

    What came along with the row is newer than what was known before.
    """
    wanted = {edge.to: edge.target or beads.get(edge.to) for edge in edges_of(bead) if edge.kind == BLOCKS}
    return tuple(other for other, target in wanted.items() if target and target.get("status") != "closed")
