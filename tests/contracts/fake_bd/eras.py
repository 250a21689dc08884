"""What differs between the eras of bd: each line is one fact, and from which version on it holds."""

from __future__ import annotations

import os


class Era:
    def __init__(self, version: str) -> None:
        self.version = "2.0.0" if version == "2.0" else version
        numbers = tuple(int(part) for part in self.version.split("."))
        self.classic = numbers < (0, 50)
        """SQLite; nanoseconds in times; edges count whatever their type; errors while updating exit 0."""
        self.says_not_found = numbers >= (0, 50)
        self.fails_when_none_changed = numbers >= (0, 58)
        self.strict_update = numbers < (0, 47)
        """An unknown id ends `update` with an error object instead of a line of text."""
        self.reasons_beside = numbers >= (0, 50)
        """In `show`, a closed dependency comes with its reason."""
        self.names_owner = numbers >= (0, 47)
        self.refuses_blocked = numbers >= (0, 47, 1)
        self.refuses_open_children = numbers >= (0, 58)
        self.refuses_gates = numbers >= (0, 58)
        self.blocks_points_away = numbers >= (0, 58)
        """`--deps blocks:X` says that the new one blocks X; before, that it is blocked by X."""
        self.counts_in_ready = numbers >= (0, 49, 5)
        self.counts_comments = numbers >= (0, 49, 5)
        self.edges_in_lists = numbers >= (0, 57)
        self.counts_in_export = numbers >= (0, 57)
        self.types_in_export = numbers >= (1, 0, 3)
        self.in_progress_is_ready = numbers < (0, 57)
        self.claims_again = numbers >= (0, 63, 3)
        self.refuses_claim_of_closed = numbers >= (1, 0, 5)
        self.comment_ids_are_words = numbers >= (0, 63, 3)
        self.counts_in_show = numbers >= (1, 0, 5)
        """Instead of dependents and comments."""
        self.started_at = numbers >= (1, 0, 0)
        self.schema_version = numbers >= (1, 0, 3)
        self.says_what_was_hidden = numbers >= (1, 0, 4)
        self.ready_limit = 100 if numbers >= (1, 0, 4) else 10
        self.lock = "sqlite" if self.classic else "flock" if (0, 63, 3) <= numbers < (1, 0, 4) else "dolt"
        self.depth = 3 if self.classic else None
        self.imports_by_flag = numbers < (0, 56) or numbers >= (1, 0, 3)
        self.imports_by_name = numbers >= (0, 61)
        self.errors_as_json = numbers >= (0, 60)
        """Errors of `create` and of opening the database, on stderr; `create` sorts the keys of its answer."""
        self.import_answers_json = numbers >= (1, 0, 3)
        self.warns_without_description = numbers < (0, 57)
        self.actor = "BD_ACTOR" if self.classic else "BEADS_ACTOR"
        asked = os.environ.get("BD_JSON_ENVELOPE") == "1"
        self.envelope = numbers >= (2,) or (asked and self.schema_version)
