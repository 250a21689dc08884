"""The commands that only read."""

from __future__ import annotations

import json

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH123
from tests.contracts.fake_bd.answers import Answers, Failed, escaped
from tests.contracts.fake_bd.rows import Row


class Reading(Answers):
    def export(self) -> None:
        rows = self._rows()
        order = sorted(self.rows.values(), key=lambda row: str(row["id"])) if self.era.classic else rows.in_order()
        text = "".join(_line(rows.exported(row)) for row in order)
        if output := self.words.flags.get("output"):
            with open(output, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            self.out.append(text)

    def list_rows(self) -> None:
        rows, flags = self._rows(), self.words.flags
        found = rows.in_order()
        if status := flags.get("status"):
            found = [row for row in found if row["status"] in status.split(",")]
        elif not self.words.has("all"):
            found = [row for row in found if row["status"] != "closed"]
        if above := flags.get("parent"):
            found = [row for row in found if rows.parent(row) == above]
        if kind := flags.get("type"):
            found = [row for row in found if row["issue_type"] == kind]
        if labels := set(self.words.many("label")):
            found = [row for row in found if labels <= set(row.get("labels", ()))]
        if "assignee" in flags:
            found = [row for row in found if row.get("assignee", "") == flags["assignee"]]
        shown = self._limited(found, 50)
        if len(shown) < len(found) and self.era.says_what_was_hidden:
            self.err.append(
                f"\nShowing {len(shown)} issues; more results matched but were hidden by --limit. "
                "Use --limit 0 for all, or --limit N to raise the cap.\n"
            )
        self._array([rows.listed(row) for row in shown])

    def ready(self) -> None:
        rows = self._rows()
        found = rows.all_ready()
        shown = self._limited(found, self.era.ready_limit)
        if len(shown) < len(found) and self.era.says_what_was_hidden:
            self.err.append(
                f"Showing {len(shown)} of {len(found)} ready issues. "
                "Use --limit 0 for all, or --limit N to raise the cap.\n"
            )
        self._array([rows.ready(row) for row in shown])

    def _limited(self, rows: list[Row], default: int) -> list[Row]:
        limit = self.words.number("limit", default)
        return rows[:limit] if limit > 0 else rows

    def show(self) -> None:
        rows, era = self._rows(), self.era
        dependents = not era.counts_in_show or self.words.has("include-dependents")
        comments = not era.counts_in_show or self.words.has("include-comments")
        found = []
        for bead in self.words.plain:
            if row := self.rows.get(bead):
                found.append(rows.shown(row, dependents, comments))
            else:
                self.err.append(f'Error fetching {bead}: no issue found matching "{bead}"\n')
        if found:
            self._array(found)
        elif era.says_not_found:
            raise Failed("no issues found matching the provided IDs")


def _line(content: Row) -> str:
    return escaped(json.dumps(content, separators=(",", ":"), ensure_ascii=False)) + "\n"
