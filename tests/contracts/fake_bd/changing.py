"""Claiming, changing and closing."""

from __future__ import annotations

from tests.contracts.fake_bd.answers import FLAGS, Answers, Failed
from tests.contracts.fake_bd.rows import Row, Rows, bare

_STATUSES = ("open", "in_progress", "blocked", "deferred", "closed", "pinned", "hooked")


class Changing(Answers):
    def update(self) -> None:
        era, flags = self.era, self.words.flags
        if "status" in flags and flags["status"] not in _STATUSES and not era.classic:
            raise Failed(
                f'invalid status "{flags["status"]}" (built-in: {", ".join(_STATUSES)}; '
                "or configure custom statuses via 'bd config set status.custom')"
            )
        if not set(flags) & {*FLAGS, "claim", "priority", "add-label", "remove-label", "set-labels", "parent"}:
            self.out.append("No updates specified\n")
            return
        changed = []
        for bead in self.words.plain:
            row = self.rows.get(bead)
            if row is None and era.strict_update:
                raise Failed(f'no issue found matching "{bead}"')
            if row is None:
                self.err.append(f'Error resolving {bead}: no issue found matching "{bead}"\n')
            elif self._may_be_claimed(row) and self._set(row):
                changed.append(bare(row))
        if changed:
            self._array(changed)
        elif era.fails_when_none_changed:
            self.code = 1

    def _may_be_claimed(self, row: Row) -> bool:
        if not self.words.has("claim"):
            return True
        if somebody := self.taken.get(row["id"]) if isinstance(self.taken, dict) else self.taken:
            row |= {"assignee": somebody, "status": "in_progress", "updated_at": self._now()}
        era, actor, holder = self.era, self._actor(), row.get("assignee")
        issue = "" if era.classic else "issue "
        if row["status"] == "closed" and era.refuses_claim_of_closed:
            self.err.append(f"Error claiming {row['id']}: issue not claimable: status closed\n")
        elif holder and not (holder == actor and era.claims_again):
            self.err.append(f"Error claiming {row['id']}: {issue}already claimed by {holder}\n")
        else:
            if holder != actor or row["status"] != "in_progress":
                self._begin(row, actor)
            return True
        return False

    def _begin(self, row: Row, actor: str) -> None:
        row |= {"assignee": actor, "status": "in_progress", "updated_at": self._now()}
        _drop(row, "closed_at", "close_reason")
        if self.era.started_at:
            row["started_at"] = row["updated_at"]

    def _set(self, row: Row) -> bool:
        flags = self.words.flags
        if flags.get("status", "open") not in _STATUSES:
            self.err.append(f"Error updating {row['id']}: validate field update: invalid status: {flags['status']}\n")
            return False
        for flag, name in FLAGS.items():
            if flag in flags:
                row[name] = flags[flag]
        if "priority" in flags:
            row["priority"] = self._priority(flags["priority"])
        labels = row.get("labels", [])
        labels += [each for each in self.words.many("add-label") if each not in labels]
        row["labels"] = [each for each in labels if each not in self.words.many("remove-label")]
        if "set-labels" in flags:
            row["labels"] = self.words.many("set-labels")
        if "parent" in flags:
            others = [edge for edge in row.get("dependencies", ()) if edge["type"] != "parent-child"]
            edge = {"issue_id": row["id"], "depends_on_id": flags["parent"], "type": "parent-child"}
            row["dependencies"] = [*others, *([edge] if flags["parent"] else [])]
        if set(flags) & {*FLAGS, "priority"}:
            row["updated_at"] = self._now()
        if flags.get("status") == "closed":
            row["closed_at"] = row["updated_at"]
        elif "status" in flags:
            _drop(row, "closed_at", "close_reason")
        return True

    def close(self) -> None:
        for bead in self.words.plain:
            if bead not in self.rows:
                raise Failed(f'resolving ID {bead}: no issue found matching "{bead}"')
        rows, closed = self._rows(), []
        for bead in self.words.plain:
            row = self.rows[bead]
            if refusal := None if self.words.has("force") else self._refusal(rows, row):
                self.err.append(f"cannot close {refusal}\n")
                continue
            now = self._now()
            row |= {"status": "closed", "updated_at": now, "closed_at": now}
            row["close_reason"] = self.words.flags.get("reason") or "Closed"
            closed.append(bare(row))
            self._unblocked(rows, bead)
        if closed:
            self._array(closed)
        elif self.era.fails_when_none_changed:
            self.code = 1

    def _refusal(self, rows: Rows, row: Row) -> str | None:
        era, bead = self.era, row["id"]
        still_open = [child for child in rows.children(bead) if child["status"] != "closed"]
        if era.refuses_open_children and row["issue_type"] == "epic" and still_open:
            many = f"{len(still_open)} open child issue(s)"
            return f"epic {bead}: {many}; close children first or use --force to override"
        if era.refuses_gates and row["issue_type"] == "gate" and row.get("await_type"):
            return f"{bead}: gate condition not satisfied: waiting for {row['await_type']} (use --force to override)"
        blockers = rows.open_blockers(row)
        if era.refuses_blocked and blockers:
            return f"{bead}: blocked by open issues [{' '.join(blockers)}] (use --force to override)"
        return None

    def _unblocked(self, rows: Rows, bead: str) -> None:
        if self.era.classic:
            return
        for edge, row in rows.held_by.get(bead, ()):
            if edge["type"] == "blocks" and row["status"] != "closed":
                row["updated_at"] = self._now()


def _drop(row: Row, *names: str) -> None:
    for name in names:
        row.pop(name, None)
