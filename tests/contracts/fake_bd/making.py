"""New beads, comments and edges; the database itself."""

from __future__ import annotations

# pathlib would cost more than the rest of a call:
# ruff: noqa: PTH109, PTH118, PTH119, PTH123
import json
import os
import sys

from tests.contracts.fake_bd.answers import FLAGS, Answers, Failed, git, stamp
from tests.contracts.fake_bd.rows import FIELDS, Row, bare

_TYPES = frozenset(
    ("bug", "feature", "task", "epic", "chore", "decision", "message", "molecule", "gate", "spike", "story")
)
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_UNDESCRIBED = """⚠ Creating issue without description.
  Issues without descriptions lack context for future work.
  Consider adding --description="Why this issue exists and what needs to be done"
"""


class Making(Answers):
    def init(self) -> None:
        self.store.state["prefix"] = self.words.flags.get("prefix") or os.path.basename(os.getcwd())

    def import_rows(self) -> None:
        era, words = self.era, self.words
        named = words.flags.get("input") or (words.plain[0] if era.imports_by_name and words.plain else None)
        if named is None and era.imports_by_name and not era.imports_by_flag:
            named = os.path.join(self.store.folder, "issues.jsonl")
        try:
            text = sys.stdin.read() if named in (None, "-") else _read(str(named))
        except OSError:
            raise Failed(f"cannot read {named}: stat {named}: no such file or directory", True, True) from None
        given = [json.loads(line) for line in text.splitlines() if line.strip()]
        given = [row for row in given if row.get("_type", "issue") == "issue" and row.get("status") != "tombstone"]
        if era.classic:
            given.sort(key=lambda row: str(row.get("id", "")).count("."))
        created, updated = [], 0
        for row in given:
            row.setdefault("id", self._new_id())
            known = self.rows.get(row["id"])
            if known is None:
                created.append(row["id"])
            elif known["updated_at"] >= row.get("updated_at", ""):
                continue
            else:
                updated += 1
            self.rows[row["id"]] = self._taken_in(row)
        self._imported(str(named or "-"), created, updated, len(given))

    def _taken_in(self, row: Row) -> Row:
        """Fields that bd does not know are lost."""
        known: Row = {name: row[name] for name in FIELDS if name in row}
        known = {**{"status": "open", "priority": 2, "issue_type": "task"}, **known}
        for name in ("created_at", "updated_at"):
            known.setdefault(name, self._now())
        for edge in known.get("dependencies", ()):
            if not self.era.classic:
                edge["created_by"] = self._actor()
        return known

    def _imported(self, source: str, created: list[str], updated: int, given: int) -> None:
        era, unchanged = self.era, given - len(created) - updated
        if era.classic or not era.imports_by_name:
            rest = f", {unchanged} unchanged" if unchanged else ""
            self.err.append(f"Import complete: {len(created)} created, {updated} updated{rest}\n")
            return
        if era.import_answers_json and not created and not updated:
            raise Failed("commit: dolt commit: Error 1105: nothing to commit", True, True)
        for row in self.rows.values():
            if row["id"] in created and self._rows().open_blockers(row):
                row["updated_at"] = self._now()
        if self.json and era.import_answers_json:
            answer = {"created": len(created), "ids": created, "skipped": 0, "source": source}
            self.out.append(self._object(answer))
        else:
            self.err.append(f"Imported {len(created) + updated} issues from {source}\n")

    def create(self) -> None:
        era, flags, plain = self.era, self.words.flags, self.words.plain
        title = flags.get("title") or (plain[0] if plain else "")
        if not title:
            raise self._not_created("title required (or use --file to create from markdown)")
        if not era.classic and "title" not in flags and title.startswith("-"):
            raise self._not_created(
                f"title \"{title}\" looks like a flag (starts with '-').\n  Run 'bd create --help' for available "
                f'options.\n  To use this title anyway, pass it explicitly: bd create --title="{title}"'
            )
        if era.warns_without_description and not flags.get("description"):
            self.err.append(_UNDESCRIBED)
        priority = self._priority(flags.get("priority", "2"))
        validation = "validation failed" if era.classic else "validation failed for issue "
        parent = flags.get("parent")
        if parent and parent not in self.rows:
            raise self._not_created(f"parent issue {parent} not found")
        if flags.get("type", "task") not in _TYPES:
            raise self._not_created(f"{validation}: invalid issue type: {flags['type']}")
        if len(title) > 500:
            raise self._not_created(f"{validation}: title must be 500 characters or less (got {len(title)})")
        row = self._made(title, parent, priority)
        self.rows[row["id"]] = row
        self._depend(row, self.words.many("deps"))
        self._created(row)

    def _made(self, title: str, parent: str | None, priority: int) -> Row:
        flags, now = self.words.flags, self._now()
        row: Row = {"id": self._child_id(parent) if parent else self._new_id(), "title": title}
        row |= {name: flags[flag] for flag, name in FLAGS.items() if flag in flags and flag != "title"}
        row = {**{"status": "open", "priority": priority, "issue_type": "task"}, **row}
        row |= {"created_at": now, "created_by": self._actor(), "updated_at": now}
        if self.era.names_owner and (owner := os.environ.get("GIT_AUTHOR_EMAIL") or git("user.email")):
            row["owner"] = owner
        if labels := self.words.many("labels"):
            row["labels"] = labels
        if parent:
            row["dependencies"] = [self._edge(row["id"], parent, "parent-child")]
        return row

    def _created(self, row: Row) -> None:
        if not self.json:
            self.out.append(f"✓ Created issue: {row['id']}\n  Title: {row['title']}\n")
            return
        shown = bare(row)
        if self.era.errors_as_json:
            fine = stamp(fine=True)
            shown |= {"created_at": fine, "updated_at": fine}
            shown |= {"labels": row["labels"]} if "labels" in row else {}
        else:
            shown.pop("labels", None)
        self.out.append(self._object(shown))

    def _depend(self, row: Row, deps: list[str]) -> None:
        for each in deps:
            kind, colon, other = each.rpartition(":")
            kind = kind or "blocks"
            source, target = row["id"], other
            if other not in self.rows:
                missing = "dependency target" if self.era.classic else "issue"
                self.err.append(
                    f"Warning: failed to add dependency {source} -> {target}: {missing} {other} not found\n"
                )
                continue
            if colon and kind == "blocks" and self.era.blocks_points_away:
                source, target = target, source
                self.rows[source]["updated_at"] = self._now()
            self.rows[source].setdefault("dependencies", []).append(self._edge(source, target, kind))

    def _edge(self, source: str, target: str, kind: str) -> Row:
        made = {"created_at": self._now(), "created_by": self._actor()}
        return {"issue_id": source, "depends_on_id": target, "type": kind} | made

    def _child_id(self, parent: str) -> str:
        if self.era.depth is not None and parent.count(".") >= self.era.depth:
            raise self._not_created(f"maximum hierarchy depth ({self.era.depth}) exceeded for parent {parent}")
        below = [bead[len(parent) + 1 :] for bead in self.rows if bead.startswith(f"{parent}.")]
        numbers = [int(rest) for rest in below if rest.isdecimal()]
        return f"{parent}.{max(numbers, default=0) + 1}"

    def _new_id(self) -> str:
        while True:
            ending = "".join(_ALPHABET[byte % 36] for byte in os.urandom(3))
            bead = f"{self.store.state['prefix']}-{ending}"
            if bead not in self.rows and not ending.isdecimal():
                return bead

    def comments(self) -> None:
        if self.words.plain[:1] != ["add"]:
            self._array(self._found(self.words.plain[0], "resolving").get("comments", []))
            return
        bead, text = self.words.plain[1], " ".join(self.words.plain[2:])
        row = self._found(bead, "resolving")
        number = sum(len(each.get("comments", ())) for each in self.rows.values()) + 1
        made: Row = {"id": _uuid() if self.era.comment_ids_are_words else number, "issue_id": bead}
        made |= {"author": self._actor(), "text": text, "created_at": stamp()}
        row.setdefault("comments", []).append(made)
        if self.json:
            fine = {} if self.era.classic else {"created_at": stamp(fine=True)}
            self.out.append(self._object(made | fine))
        else:
            self.out.append(f"Comment added to {bead}\n")

    def _found(self, bead: str, doing: str) -> Row:
        if bead not in self.rows:
            raise Failed(f'{doing} {bead}: no issue found matching "{bead}"')
        return self.rows[bead]

    def dep(self) -> None:
        if self.words.plain[:1] not in (["add"], ["remove"]):
            raise Failed("only `dep add` and `dep remove` are known here", plain=True, on_stderr=True)
        source, target = self.words.plain[1:3]
        if self.words.plain[0] == "remove":
            row = self._found(source, "resolving issue ID")
            row["dependencies"] = [edge for edge in row.get("dependencies", ()) if edge["depends_on_id"] != target]
            self.out.append(self._object({"depends_on_id": target, "issue_id": source, "status": "removed"}))
            return
        kind = self.words.flags.get("type", "blocks")
        resolving = "" if self.era.classic else f"resolving issue ID {target}: "
        row = self._found(source, "resolving issue ID")
        if target not in self.rows:
            raise Failed(f'resolving dependency ID {target}: {resolving}no issue found matching "{target}"')
        if self._leads_to(target, source):
            circle = f"({source} → {target} → ... → {source})"
            raise Failed(
                f"cannot add dependency: would create a cycle {circle}"
                if self.era.classic
                else "adding dependency would create a cycle"
            )
        row.setdefault("dependencies", []).append(self._edge(source, target, kind))
        answer = {"depends_on_id": target, "issue_id": source, "status": "added", "type": kind}
        self.out.append(self._object(answer))

    def _leads_to(self, start: str, end: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            bead = todo.pop()
            if bead == end:
                return True
            if bead not in seen:
                seen.add(bead)
                todo += [edge["depends_on_id"] for edge in self.rows.get(bead, {}).get("dependencies", ())]
        return False


def _uuid() -> str:
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], "7" + digits[13:16], "a" + digits[17:20], digits[20:]))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
