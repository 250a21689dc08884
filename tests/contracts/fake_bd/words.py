"""How bd reads its arguments: flags anywhere, `--flag=value`, `--flag value`, `-p1`, and `--` before plain words."""

from __future__ import annotations

import _csv

_GLOBAL = {"actor": str, "db": str, "json": bool, "quiet": bool, "verbose": bool, "readonly": bool, "sandbox": bool}
_CLASSIC = {
    "no-daemon": bool, "no-db": bool, "no-auto-flush": bool, "no-auto-import": bool, "allow-stale": bool,
    "lock-timeout": str,
}  # fmt: skip
_DOLT = {"directory": str, "ignore-schema-skew": bool, "dolt-auto-commit": str}
_FIELDS = {
    "title": str, "description": str, "acceptance": str, "design": str, "notes": str, "priority": str, "type": str,
    "assignee": str, "external-ref": str, "parent": str, "estimate": str,
}  # fmt: skip
_OWN: dict[str, dict[str, type]] = {
    "version": {},
    "init": {"prefix": str, "skip-hooks": bool, "stealth": bool, "from-jsonl": bool, "force": bool},
    "import": {"input": str, "dry-run": bool},
    "export": {"output": str, "force": bool},
    "list": {"all": bool, "limit": str, "status": str, "parent": str, "type": str, "label": str, "assignee": str},
    "ready": {"limit": str, "priority": str, "type": str, "assignee": str, "sort": str, "unassigned": bool},
    "show": {"short": bool},
    "update": _FIELDS | {"claim": bool, "status": str, "add-label": str, "remove-label": str, "set-labels": str},
    "close": {"reason": str, "force": bool, "continue": bool, "suggest-next": bool},
    "create": _FIELDS | {"labels": str, "deps": str, "id": str, "silent": bool, "force": bool, "body-file": str},
    "comments": {},
    "dep": {"type": str, "blocks": str},
}
_NEWER: dict[str, dict[str, type]] = {
    "init": {"skip-agents": bool, "non-interactive": bool, "reinit-local": bool},
    "show": {"include-dependents": bool, "include-comments": bool},
    "ready": {"claim": bool, "explain": bool},
    "close": {"reason-file": str, "claim-next": bool},
    "list": {"flat": bool, "tree": bool},
}
_SHORT = {
    "p": "priority", "t": "type", "d": "description", "l": "labels", "a": "assignee", "r": "reason", "f": "force",
    "i": "input", "o": "output", "n": "limit", "s": "status", "q": "quiet", "v": "verbose", "C": "directory",
    "e": "estimate",
}  # fmt: skip

_LISTS = frozenset({"labels", "deps", "label", "add-label", "remove-label", "set-labels"})
COMMANDS = frozenset(_OWN)


class Wrong(Exception):
    """A flag it does not know, or a value that is missing: bd's own words."""


class Words:
    def __init__(self, argv: list[str], newer: bool, without: frozenset[str]) -> None:
        shared: dict[str, type] = _GLOBAL | (_DOLT if newer else _CLASSIC)
        self.command = _command(argv, shared)
        own = _OWN.get(self.command, {}) | (_NEWER.get(self.command, {}) if newer else {})
        self.known: dict[str, type] = {k: v for k, v in {**shared, **own}.items() if k not in without}
        self.flags: dict[str, str] = {}
        self.plain: list[str] = []
        self._read(list(argv))
        self.plain = self.plain[1:]

    def _read(self, rest: list[str]) -> None:
        while rest:
            word = rest.pop(0)
            if word == "--":
                self.plain += rest
                return
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
                self._take(name, value if equals else None, rest, f"--{name}")
            elif word.startswith("-") and len(word) > 1:
                name = self._long(word[1])
                self._take(name, word[2:].removeprefix("=") or None, rest, f"'{word[1]}' in {word}")
            else:
                self.plain.append(word)

    def _long(self, letter: str) -> str:
        if letter == "l" and self.command == "list":
            return "label"
        return _SHORT.get(letter, "")

    def _take(self, name: str, value: str | None, rest: list[str], shown: str) -> None:
        if name not in self.known:
            raise Wrong(f"unknown {'flag: ' if shown.startswith('--') else 'shorthand flag: '}{shown}")
        if self.known[name] is bool:
            self.flags[name] = value or "true"
        elif value is not None or rest:
            given = value if value is not None else rest.pop(0)
            before = self.flags.get(name) if name in _LISTS else None
            self.flags[name] = f"{before},{given}" if before else given
        else:
            raise Wrong(f"flag needs an argument: {shown}")

    def has(self, name: str) -> bool:
        return self.flags.get(name, "false") != "false"

    def many(self, name: str) -> list[str]:
        """A line of CSV, quotes and all."""
        found = next(_csv.reader([self.flags.get(name, "")]), [])
        return [each.strip() for each in found if each.strip()]

    def number(self, name: str, default: int) -> int:
        return int(self.flags.get(name, default))


def _command(argv: list[str], shared: dict[str, type]) -> str:
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return word
        name = word[2:] if word.startswith("--") else _SHORT.get(word[1:], "")
        if shared.get(name) is str and "=" not in word and rest:
            rest.pop(0)
    return ""
