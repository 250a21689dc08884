"""What a bead looks like in each kind of answer: the order of its fields is that of bd's own."""

from __future__ import annotations

from tests.contracts.fake_bd.eras import Era

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Row = dict[str, "Any"]

FIELDS = (
    *("id", "title", "description", "design", "acceptance_criteria", "notes", "spec_id", "status", "priority"),
    *("issue_type", "assignee", "owner", "estimated_minutes", "created_at", "created_by", "updated_at", "started_at"),
    *("closed_at", "close_reason", "due_at", "defer_until", "external_ref", "source_system", "metadata", "labels"),
    *("dependencies", "comments", "await_type", "await_id", "pinned", "ephemeral"),
)
_NEVER = "0001-01-01T00:00:00Z"
_ALWAYS = ("priority",)


def bare(row: Row, *more: str) -> Row:
    """The row itself, with its labels; without edges and comments unless they are named."""
    left_out = [name for name in ("dependencies", "comments") if name not in more]
    shown = (name for name in FIELDS if name in row and name not in left_out)
    found = {name: row[name] for name in shown if row[name] or name in _ALWAYS}
    return found | ({"labels": sorted(set(found["labels"]))} if "labels" in found else {})


class Rows:
    def __init__(self, era: Era, rows: dict[str, Row]) -> None:
        self.era, self.rows = era, rows
        self.held_by: dict[str, list[tuple[Row, Row]]] = {}
        """Who points at a bead: the edge, and whose it is."""
        for row in rows.values():
            for edge in row.get("dependencies", ()):
                self.held_by.setdefault(edge["depends_on_id"], []).append((edge, row))

    def parent(self, row: Row) -> str | None:
        found = (edge["depends_on_id"] for edge in row.get("dependencies", ()) if edge["type"] == "parent-child")
        return next(found, None)

    def children(self, bead: str) -> list[Row]:
        return [row for edge, row in self.held_by.get(bead, ()) if edge["type"] == "parent-child"]

    def open_blockers(self, row: Row) -> list[str]:
        ids = [edge["depends_on_id"] for edge in row.get("dependencies", ()) if edge["type"] == "blocks"]
        return [bead for bead in ids if self.rows.get(bead, {}).get("status", "closed") != "closed"]

    def is_held_up(self, row: Row, seen: frozenset[str] = frozenset()) -> bool:
        """By a blocker of its own, or by one of what it belongs to."""
        if self.open_blockers(row):
            return True
        above = self.parent(row)
        if above is None or above in seen or above not in self.rows:
            return False
        return self.is_held_up(self.rows[above], seen | {above})

    def listed(self, row: Row) -> Row:
        era = self.era
        shown = bare(row, "dependencies") if era.edges_in_lists else bare(row)
        if era.edges_in_lists and "dependencies" in shown:
            shown["dependencies"] = self.edges(row)
        shown |= self._counts(row)
        above = self.parent(row)
        return shown | ({"parent": above} if above and era.edges_in_lists else {})

    def ready(self, row: Row) -> Row:
        era = self.era
        if era.edges_in_lists:
            return self.listed(row)
        return bare(row) | (self._counts(row) if era.counts_in_ready else {})

    def exported(self, row: Row) -> Row:
        era = self.era
        shown: Row = {"_type": "issue"} if era.types_in_export else {}
        shown |= bare(row, "dependencies") if era.classic else bare(row, "dependencies", "comments")
        if "dependencies" in shown:
            shown["dependencies"] = self.edges(row)
        return shown | (self._counts(row) if era.counts_in_export else {})

    def edges(self, row: Row) -> list[Row]:
        edges = [dict(edge) for edge in row["dependencies"]]
        if self.era.classic:
            return edges
        edges.sort(key=lambda edge: (edge["type"], edge["depends_on_id"]))
        return [edge | {"metadata": edge.get("metadata", "{}")} for edge in edges]

    def _counts(self, row: Row) -> Row:
        every = self.era.classic
        to = [edge for edge in row.get("dependencies", ()) if every or edge["type"] == "blocks"]
        of = [edge for edge, _ in self.held_by.get(row["id"], ()) if every or edge["type"] == "blocks"]
        counts = {"dependency_count": len(to), "dependent_count": len(of)}
        return counts | ({"comment_count": len(row.get("comments", ()))} if self.era.counts_comments else {})

    def shown(self, row: Row, with_dependents: bool, with_comments: bool) -> Row:
        era, shown = self.era, bare(row)
        edges = [(edge, self.rows.get(edge["depends_on_id"])) for edge in row.get("dependencies", ())]
        to = [self._beside(edge, other) for edge, other in edges if other]
        of = [self._beside(edge, other, era.counts_in_show) for edge, other in self.held_by.get(row["id"], ())]
        comments = row.get("comments", [])
        shown |= {"dependencies": self._by_priority(to)} if to else {}
        shown |= {"dependents": self._by_priority(of)} if of and with_dependents else {}
        shown |= {"comments": comments} if comments and with_comments else {}
        shown |= {"parent": above} if (above := self.parent(row)) else {}
        if era.counts_in_show:
            shown |= {"dependent_count": len(of), "dependency_count": len(to), "comment_count": len(comments)}
        return shown

    def _beside(self, edge: Row, other: Row, outline: bool = False) -> Row:
        shown = bare(other)
        if outline:
            shown = {name: shown[name] for name in ("id", "title", "status", "priority", "issue_type")}
            shown |= {"created_at": _NEVER, "updated_at": _NEVER}
        if not self.era.reasons_beside:
            shown.pop("close_reason", None)
        return shown | {"dependency_type": edge["type"]}

    def _by_priority(self, rows: list[Row]) -> list[Row]:
        if not self.era.classic:
            rows.sort(key=lambda row: str(row["id"]))
        rows.sort(key=lambda row: str(row["created_at"]), reverse=not self.era.classic)
        return sorted(rows, key=lambda row: int(row["priority"]))

    def in_order(self) -> list[Row]:
        """As lists have it: by priority, the newest first; then as they came (classic) or by id."""
        rows = list(self.rows.values())
        if not self.era.classic:
            rows.sort(key=lambda row: str(row["id"]))
        rows.sort(key=lambda row: str(row["created_at"]), reverse=True)
        return sorted(rows, key=lambda row: int(row["priority"]))

    def all_ready(self) -> list[Row]:
        era = self.era
        wanted = ("open", "in_progress") if era.in_progress_is_ready else ("open",)
        rows = [row for row in self.rows.values() if row["status"] in wanted]
        rows = [row for row in rows if not self.is_held_up(row) and not row.get("defer_until")]
        rows = [row for row in rows if row["issue_type"] not in ("gate", "molecule", "message")]
        if not era.classic:
            rows.sort(key=lambda row: str(row["id"]))
        rows.sort(key=lambda row: str(row["created_at"]))
        return sorted(rows, key=lambda row: (era.classic and row["status"] == "open", int(row["priority"])))
