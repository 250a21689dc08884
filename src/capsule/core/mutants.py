"""Break a change on purpose, in small ways: if no test notices, no test demands it.

A **mutant** is one edit of one file, on lines that the change added or rewrote: a function that returns at once with
its default value, a condition negated, a boundary moved, an operator swapped, a constant changed, a statement left out.
The mutants depend only on the two versions of a file, and the choice among them on the tree: the same tree always has
the same mutants.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from capsule.core.syntax import (
    Definition,
    definitions,
    language_of,
    other_value,
    parse,
    parses,
    text_of,
    texts_of,
    values_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

BODY = "body"
"""The kind of mutant that removes a whole function body."""


class Mutant(msgspec.Struct, frozen=True):
    """One edit: the bytes from `start` to `end` of a file become `text`."""

    path: str
    function: str
    kind: str
    start: int
    end: int
    text: str
    said: str
    """What it does, for people: `if n > 0` → `if n >= 0` in src/x.py:14."""

    @property
    def place(self) -> str:
        """Name the function for people."""
        return f"`{self.function}` in {self.path}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(path: str, before: bytes, after: bytes) -> list[Mutant]:
    """List the mutants of a changed file: those that parse, on lines that differ, in functions that have a body."""
    root = parse(path, after)
    if root is None or root.has_error:
        return []
    lines = changed_lines(before, after)
    boring = {n for n, line in enumerate(after.split(b"\n")) if re.search(_BORING, line)}
    found: list[Mutant] = []
    for each in _changed_functions(path, after, lines):
        if (stub := _stub(path, after, each)) is not None:
            found.append(stub)
        assert each.body
        inner = [d for d in definitions(path, after) if d.body and each.start < d.start and d.end <= each.end]
        for node in _nodes(root, *each.body):
            elsewhere = any(d.start <= node.start_byte < d.end for d in inner)
            if node.start_point.row in lines - boring and not elsewhere:
                found += _of_node(path, after, each.name, node)
    made = (each for each in found if each.applied(after) != after and parses(path, each.applied(after)))
    return list({each.said: each for each in made}.values())  # they are found again by their text


def moved_functions(sources: Mapping[str, tuple[bytes, bytes]], removed: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Name the functions, with their path, that stood word for word in another file of the base."""
    before = {path: text for path, (text, _) in sources.items()} | dict(removed)
    known = {text for path, source in before.items() for text in texts_of(path, source).items()}
    now = [(path, text) for path, (_, after) in sources.items() for text in texts_of(path, after).items()]
    return {(path, text[0]) for path, text in now if text in known}


def choose(found: Iterable[Mutant], seed: str, most: int) -> list[Mutant]:
    """Choose a handful, the same for the same seed: each function's body first, then in turn from all functions."""
    by_function: dict[tuple[str, str], list[Mutant]] = {}
    for each in sorted(found, key=lambda each: hashlib.sha256(f"{seed}\0{each.said}\0{each.start}".encode()).digest()):
        by_function.setdefault((each.path, each.function), []).append(each)
    rows = [sorted(row, key=lambda each: each.kind != BODY) for row in by_function.values()]
    turns = (row[turn] for turn in range(max(map(len, rows), default=0)) for row in rows if turn < len(row))
    return list(turns)[:most]


def stubs(path: str, before: bytes, after: bytes) -> list[Mutant]:
    """Return the body-removed mutant of every changed function."""
    lines = changed_lines(before, after)
    found = [_stub(path, after, each) for each in _changed_functions(path, after, lines)]
    return [each for each in found if each is not None and parses(path, each.applied(after))]


def fillings(path: str, before: bytes, after: bytes) -> list[Mutant]:
    """Return a mutant with a value for every changed function that does nothing and returns nothing.

    They are for a change without any other function.
    """
    found = []
    for each in _changed_functions(path, after, changed_lines(before, after), idle=True):
        stub = None if _is_declared_only(path, each) else _stub(path, after, each)
        nothing = _NONE.get(language_of(path), "")
        if stub is not None and nothing and nothing in stub.text:  # 1 is what vacuous tests put up with
            words = (text.replace(nothing, "1", 1) for text in (stub.text, stub.said))
            found.append(replace(stub, **dict(zip(("text", "said"), words, strict=True))))
    return [each for each in found if parses(path, each.applied(after))]


def leftovers(path: str, before: bytes, after: bytes) -> list[Mutant]:
    """Return a mutant of what lies in no function: every value on changed lines is 1, or a new file is emptied.

    They are for a change without functions.
    """
    root = parse(path, after)
    if root is None:  # new tests were red on the old file as it was
        put, said = ("", f"`{path}` emptied") if after else ("capsule\n", f"`{path}` filled")
        known = bool(before) or path.rpartition("/")[2] in _MARKERS
        return [] if known else [Mutant(path, "what it holds", BODY, 0, len(after), put, said)]
    lines, inside = changed_lines(before, after), [(d.start, d.end) for d in definitions(path, after)]
    values = [
        node
        for node in values_of(root)
        if node.start_point.row in lines and not any(a <= node.start_byte < b for a, b in inside)
    ]
    if not values or root.has_error:
        return []
    start, text, at = values[0].start_byte, b"", values[0].start_byte
    for node in values:
        text += after[at : node.start_byte] + (b"2" if node.text == b"1" else b"1")
        at = node.end_byte
    said = f"every value on new lines → `1` in {path}:{_line(after, start)}"
    mutant = Mutant(path, "what is in no function", BODY, start, at, text.decode(errors="replace"), said)
    return [mutant] if parses(path, mutant.applied(after)) else []


_MARKERS = ("py.typed", ".nojekyll", ".gitkeep", ".keep")
"""Files that are empty by their nature."""
_NONE = {**{"py": "None", "rb": "nil", "php": "null"}, **dict.fromkeys(("js", "ts", "tsx"), "undefined")}


def _is_declared_only(path: str, each: Definition) -> bool:
    """Tell whether a function only declares types, or is abstract."""
    around, node = each.node.text or b"", each.node.parent
    while node is not None:
        if node.type in ("class_definition", "decorated_definition"):
            around += (node.text or b"").partition(b":")[0]
        node = node.parent
    return path.endswith(".pyi") or re.search(rb"\b(?:Protocol|overload|abstractmethod)\b", around) is not None


def stubbed(
    path: str, before: bytes, after: bytes, keeps: Callable[[int], bool] = lambda _: False, *, other: bool = False
) -> bytes:
    """Return the file with the body of every changed function taken out, except where `keeps` says of its place.

    With `other` they return a value that equals no other, where there is one: a test that asks for the default value
    passes with the first kind of stub, and fails with the second.
    """
    outer: list[Mutant] = []
    for each in sorted(stubs(path, before, after), key=lambda each: (each.start, -each.end)):
        if not keeps(each.start) and (not outer or each.start >= outer[-1].end):
            outer.append(each)
    text = after
    for each in reversed(outer):
        text = replace(each, text=_other(path, each.text)).applied(text) if other else each.applied(text)
    return text if parses(path, text) else after


_OTHERS = {
    "py": (r"\bNone", "object()"),
    "rb": ("nil", "Object.new"),
    "js": (r"\bundefined", 'Symbol("capsule")'),
    "ts": (r"\bundefined", 'Symbol("capsule")'),
    "tsx": (r"\bundefined", 'Symbol("capsule")'),
    "php": ("return null", "return new \\stdClass()"),
    "rs": (r"return [^;]+;", 'panic!("capsule");'),
    "java": (r"return [^;]+;", 'throw new RuntimeException("capsule");'),
    "cs": (r"return [^;]+;", 'throw new System.Exception("capsule");'),
    "go": (r"var capsule\d.*; return [^}]+", 'panic("capsule") '),
}
_GO_VALUES = ((r"(?:u?int\d*|float\d+|byte|rune)", "77"), ("string", '"capsule"'), ("bool", "true"))


def _other(path: str, stub: str) -> str:
    """Return the stub with another value, or with a panic if the type has no simple one."""
    language = language_of(path)
    if language == "go":
        for kind, value in _GO_VALUES:
            stub = re.sub(rf"(var capsule\d+ {kind})(?=;)", rf"\1 = {value}", stub)
        if " = " in stub:
            return stub
    pattern, value = _OTHERS.get(language, ("", ""))
    return re.sub(pattern, lambda _: value, stub, count=1) if pattern else stub


def ending(mutant: Mutant, source: bytes) -> Mutant | None:
    """Make a function whose body was taken out end the whole program: if all tests pass even then, none executes it.

    An error would not do: tests and code catch errors. None if the language has no row, or the mutant is not a function
    body.
    """
    language = language_of(mutant.path)
    is_body = any(each.body and each.body[0] == mutant.start for each in definitions(mutant.path, source))
    if mutant.kind != BODY or language not in _ENDS or not is_body:
        return None
    start, end = mutant.start, _ENDS[language]
    text = f"{{ {end}; " if mutant.text.startswith("{") else end + "".join(mutant.text.partition("\n")[1:])
    if language == "go" and (package := re.search(rb"(?m)^package \w+", source)):  # what ends it has to be imported
        text = '; import capsuleos "os"' + source[package.end() : start].decode(errors="replace") + text
        start = package.end()
    made = replace(mutant, start=start, text=text, said=f"{mutant.place} ends the program")
    return made if parses(mutant.path, made.applied(source)) else None


_ENDS = {
    "py": '__import__("os")._exit(97)',
    "rb": "exit!(97)",
    "js": "process.reallyExit(97)",
    **dict.fromkeys(("ts", "tsx"), "(globalThis as any).process.reallyExit(97)"),
    "php": "if (true) exit(97)",
    "rs": "if true { std::process::exit(97) }",
    "java": "if (true) Runtime.getRuntime().halt(97)",
    "cs": "if (true) System.Environment.Exit(97)",
    "go": "if true { capsuleos.Exit(97) }",
    **dict.fromkeys(("c", "cpp"), "if (1) __builtin_trap()"),
}
"""By language: what ends the program at once, past every handler."""


def works_outside_functions(path: str, before: bytes, after: bytes) -> bool:
    """Tell whether a change also touches what no stub covers: a constant, a table, a function without a default."""
    made = stubs(path, before, after)
    spans = [(each.body or (0, 0)) for each in _changed_functions(path, after, changed_lines(before, after))]
    if len(spans) != len(made):
        return True
    covered = {n for start, end in spans for n in range(_line(after, start) - 1, _line(after, end))}
    lines = after.split(b"\n")
    return any(lines[n].strip() and not re.match(_PLAIN, lines[n]) for n in changed_lines(before, after) - covered)


_PLAIN = (
    rb"\s*(?:#|//|/?\*|\"\"\"|'{3}|@|[{}()\[\];,]+\s*$|(?:async\s+)?def\b|class\b|import\b|from\b|export\s*\{|use\b|package\b"
    rb"|(?:(?:export|default|async|public|private|protected|static|final|pub(?:\([^)]*\))?|unsafe|const)\s+)*"
    rb"(?:function|func|fn|impl|interface|struct|mod|module|require)\b)|.*[{]\s*$"
)


def changed_lines(before: bytes, after: bytes) -> set[int]:
    """Return the numbers, from 0, of the lines of the new text that the old one does not have there."""
    old, new = before.split(b"\n"), after.split(b"\n")
    matcher = SequenceMatcher(None, old, new, autojunk=len(new) > _LONG)
    return {n for kind, _, _, start, end in matcher.get_opcodes() if kind != "equal" for n in range(start, end)}


_LONG = 5000
_BORING = (
    rb"\b(?:log(?:ger|ging)?|console|warnings?)\b[.(]|\bprint(?:ln|f)?!?\(|^\s*(?:import|from|use|#include|package)\b"
    rb"|\bassert\b.*\bisinstance\b|\b(?:raise|throw|panic)\b"
)
_DOCSTRING = rb'(?s)^\s*(?:"""|\'\'\').*?(?:"""|\'\'\')'
_TRIVIAL = (
    rb"(?s)[{\s]*(?:pass|\.\.\.|(?:return\s+)?(?:None|nil|null|undefined)|return|raise NotImplementedError.*|)[;}\s]*"
)


def _changed_functions(path: str, source: bytes, lines: set[int], *, idle: bool = False) -> Iterator[Definition]:
    """Yield functions on changed lines, nested ones too: those with a body, or those that do nothing."""
    for each in definitions(path, source):
        if each.body is None:
            continue
        body = source[slice(*each.body)]
        code = re.sub(_DOCSTRING, b"", body) if language_of(path) == "py" else body
        if bool(re.fullmatch(_TRIVIAL, code)) is not idle:
            continue
        first = source.count(b"\n", 0, each.body[0])
        last = first + source.count(b"\n", *each.body)
        if lines & set(range(first, last + 1)):
            yield each


def _nodes(root: Node, start: int, end: int) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.end_byte <= start or node.start_byte >= end:
            continue
        if start <= node.start_byte and node.end_byte <= end:
            yield node
        waiting += reversed(node.children)


# ---- a function's body


_ZERO = {
    "rs": {"bool": "false", "String": "String::new()", "&str": '""', "&'static str": '""'},
    "java": {"boolean": "false", "char": "'a'"},
    "php": {"int": "0", "float": "0.0", "string": "''", "bool": "false", "array": "[]"},
}
"""By language: default values of types that are not numbers."""
_RETURN_TYPE = {"rs": "return_type", "php": "return_type", "cs": "returns"}
_NUMBERS = r"[iu](?:8|16|32|64|128|size)|f(?:32|64)|int|long|short|byte|float|double|size_t|u?int\d*_t|unsigned.*"


def _stub(path: str, source: bytes, each: Definition) -> Mutant | None:
    """Make the function return its default value at once. The old body stays below, so that it compiles."""
    assert each.body
    start, end = each.body
    body, language, where = source[start:end], language_of(path), f"in {path}:{_line(source, start)}"
    if language in ("py", "rb"):
        text = "nil" if language == "rb" else "None" if each.node.type == "assignment" else "return None"
        said = f"the body of `{each.name}` → `{text}` {where}"
        if language == "py" and re.search(rb"\byield\b", body):
            text += f"\n{' ' * _column(source, start)}yield"
        return Mutant(path, each.name, BODY, start, end, text, said)
    if language in ("js", "ts", "tsx") and not body.startswith(b"{"):
        text = "undefined" if language == "js" else "(undefined as any)"
        return Mutant(path, each.name, BODY, start, end, text, f"the body of `{each.name}` → `{text}` {where}")
    value = _default(language, each.node)
    if value is None or not body.startswith(b"{"):
        return None
    return Mutant(path, each.name, BODY, start, start + 1, f"{{ {value} ", f"`{each.name}` → `{value}` at once {where}")


def _default(language: str, node: Node) -> str | None:  # noqa: PLR0911 - one line per language
    """Return the statement that returns a function's default value; None if its type has none."""
    if language in ("js", "ts", "tsx"):
        named = node.child_by_field_name("name")
        cast = " as any" if language != "js" else ""
        return None if named is not None and named.text == b"constructor" else f"if (true) return undefined{cast};"
    if language == "go":
        return _go_default(node)
    declared = node.child_by_field_name(_RETURN_TYPE.get(language, "type")) or node.child_by_field_name("type")
    kind, pointer = text_of(declared).strip(), "*" in text_of(node).partition("(")[0]
    if node.type == "constructor_declaration":
        return None
    if language == "rs":
        return _rust_default(kind)
    if language == "php":
        return "if (true) return;" if kind == "void" else f"if (true) return {_ZERO['php'].get(kind, 'null')};"
    if kind == "void" and not pointer:
        return "if (1) return;" if language in ("c", "cpp") else "if (true) return;"
    if language == "cs":
        return "if (true) return default;"
    if language == "java":
        value = _ZERO["java"].get(kind) or ("0" if re.fullmatch(_NUMBERS, kind) else "null")
        return f"if (true) return {value};"
    plain = re.fullmatch(_NUMBERS, kind) or kind in ("bool", "char", "") or pointer
    return "if (1) return 0;" if plain else "if (1) return {};" if language == "cpp" else None


def _go_default(node: Node) -> str:
    result = node.child_by_field_name("result")
    if result is None:
        return "if true { return };"
    results = result.named_children if result.type == "parameter_list" else [result]
    if result.type == "parameter_list" and any(each.child_by_field_name("name") for each in results):
        return "if true { return };"
    declared = "; ".join(f"var capsule{n} {text_of(each)}" for n, each in enumerate(results))
    return f"if true {{ {declared}; return {', '.join(f'capsule{n}' for n in range(len(results)))} }};"


def _rust_default(kind: str) -> str | None:
    if not kind or kind == "()":
        return "if true { return; }"
    if kind.startswith(("impl", "&mut", "Box<dyn", "!")) or (kind.startswith("&") and "str" not in kind):
        return None
    value = _ZERO["rs"].get(kind) or ("0 as _" if re.fullmatch(_NUMBERS, kind) else "Default::default()")
    value = "None" if kind.startswith("Option<") else "Ok(Default::default())" if kind.startswith("Result<") else value
    return f"if true {{ return {value}; }}"


# ---- smaller edits


_OPERATORS = {
    **{">": ">=", ">=": ">", "<": "<=", "<=": "<", "==": "!=", "!=": "==", "===": "!==", "!==": "==="},
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "*", "and": "or", "or": "and", "&&": "||", "||": "&&"},
    **{"+=": "-=", "-=": "+=", "in": "not in", "is": "is not"},
}
_CALCULATES = r"(?:comparison|boolean|binary)_operator|binary_expression|augmented_assignment(?:_expression)?|binary"
_BRANCHES = ("if_statement", "while_statement", "if_expression", "elif_clause", "ternary_expression")
_RETURNS = ("return_statement", "return_expression", "return")
_NOTHING = {"py": "return None", "js": "return undefined", "php": "return null", "rb": "return nil"}


def _of_node(path: str, source: bytes, function: str, node: Node) -> Iterator[Mutant]:
    language, text, parent = language_of(path), text_of(node), node.parent

    def made(kind: str, new: str) -> Mutant:
        at = _column(source, node.start_byte)
        whole = source[node.start_byte - at :].partition(b"\n")[0].decode(errors="replace")
        mutated = f"{whole[:at]}{new}{whole[at + len(text) :]}" if "\n" not in text else f"{whole[:at]}{new}"
        said = f"`{_short(whole)}` → `{_short(mutated)}` in {path}:{_line(source, node.start_byte)}"
        return Mutant(path, function, kind, node.start_byte, node.end_byte, new, said)

    if not node.is_named and parent is not None and re.fullmatch(_CALCULATES, parent.type) and text in _OPERATORS:
        yield made("operator", _OPERATORS[text])
    elif (other := other_value(node)) and text not in ('""', "''") and not _is_docstring(node):
        yield made("constant", other)
    elif node.type in _RETURNS and language in _NOTHING and node.named_child_count:
        end = ";" if text.endswith(";") else ""
        yield made("return", _NOTHING[language] + end)
    elif node.type == "expression_statement" and language in ("py", "js", "java", "c", "cpp", "php") and _is_call(node):
        yield made("statement", "pass" if language == "py" else ";")
    if parent is not None and parent.type in _BRANCHES and parent.child_by_field_name("condition") == node:
        inner = text[1:-1] if node.type == "parenthesized_expression" else text
        negated = f"not ({inner})" if language == "py" else f"!({inner})"
        yield made("condition", f"({negated})" if node.type == "parenthesized_expression" else negated)


def _is_call(node: Node) -> bool:
    return bool(node.named_children) and node.named_children[0].type in ("call", "call_expression", "method_invocation")


def _is_docstring(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "expression_statement"


def _line(source: bytes, at: int) -> int:
    return source.count(b"\n", 0, at) + 1


def _column(source: bytes, at: int) -> int:
    return at - source.rfind(b"\n", 0, at) - 1


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:59] + "…"
