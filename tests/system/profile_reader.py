"""Reads a profile of `sandbox-exec` as the kernel does: of all rules that match, the last decides."""

from __future__ import annotations

import re

_TOKEN = re.compile(r'[()]|#?"(?:[^"\\]|\\.)*"|[^\s()"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)

Expression = "str | list[Expression]"


class Rules:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self._rules = [rule for rule in _expressions(text) if rule[0] in ("allow", "deny")]

    def allow(self, operation: str, path: str = "") -> bool:
        said = "deny"
        for verb, *words in self._rules:
            operations = [word for word in words if isinstance(word, str)]
            filters = [word for word in words if not isinstance(word, str)]
            named = any(_names(each, operation) for each in operations)
            if named and (not filters or any(_matches(each, path) for each in filters)):
                said = verb
        return said == "allow"

    def reads(self, path: object) -> bool:
        return self.allow("file-read-data", str(path))

    def writes(self, path: object) -> bool:
        return self.allow("file-write-data", str(path))


def _names(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (pattern.endswith("*") and operation.startswith(pattern[:-1]))


def _matches(expression: list[str], path: str) -> bool:
    kind, value = expression[0], expression[-1]
    if kind == "subpath":
        return path == value or path.startswith(f"{value.rstrip('/')}/")
    if kind == "regex":
        return bool(re.search(value, path))
    return kind == "literal" and path == value


def _expressions(text: str) -> list[list]:  # type: ignore[type-arg]
    stack: list[list] = [[]]  # type: ignore[type-arg]
    assert not _TOKEN.sub("", text).strip(), "something is no token"
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            whole = stack.pop()
            stack[-1].append(whole)
        else:
            stack[-1].append(_value(token))
    assert len(stack) == 1, "a parenthesis is open"
    return stack[0]


def _value(token: str) -> str:
    if token.startswith("#"):
        return token[2:-1]
    return (
        _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], token[1:-1])
        if token.startswith('"')
        else token
    )
