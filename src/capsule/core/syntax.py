"""Read source files by their grammar: which definitions they hold, and where.

One row per language. A grammar is loaded when the first file of its language is read; a file whose language is unknown
has no definitions.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


class Language(NamedTuple):
    """A grammar, and the kinds of nodes that define something with a body."""

    module: str
    functions: tuple[str, ...]
    grammar: str = "language"


_VALUES = {
    **{"variable_declarator": ("name", "value"), "assignment_expression": ("left", "right"), "pair": ("key", "value")},
    **{"field_definition": ("property", "value"), "public_field_definition": ("name", "value")},
    "assignment": ("left", "right"),
}
"""Nodes that define a function if their value is one, with the fields of name and value."""
_FUNCTION_VALUES = ("arrow_function", "function_expression", "lambda")
_JAVASCRIPT = ("function_declaration", "generator_function_declaration", "method_definition", *list(_VALUES)[:-1])
LANGUAGES: dict[str, Language] = {
    "py": Language("tree_sitter_python", ("function_definition", "assignment")),
    "js": Language("tree_sitter_javascript", _JAVASCRIPT),
    "ts": Language("tree_sitter_typescript", _JAVASCRIPT, "language_typescript"),
    "tsx": Language("tree_sitter_typescript", _JAVASCRIPT, "language_tsx"),
    "go": Language("tree_sitter_go", ("function_declaration", "method_declaration")),
    "rs": Language("tree_sitter_rust", ("function_item",)),
    "java": Language("tree_sitter_java", ("method_declaration", "constructor_declaration")),
    "c": Language("tree_sitter_c", ("function_definition",)),
    "cpp": Language("tree_sitter_cpp", ("function_definition",)),
    "cs": Language(
        "tree_sitter_c_sharp", ("method_declaration", "constructor_declaration", "local_function_statement")
    ),
    "rb": Language("tree_sitter_ruby", ("method", "singleton_method")),
    "php": Language("tree_sitter_php", ("function_definition", "method_declaration"), "language_php"),
}
_OTHER_SUFFIXES = {
    **dict.fromkeys(("mjs", "cjs", "jsx"), "js"),
    **dict.fromkeys(("mts", "cts"), "ts"),
    **dict.fromkeys(("pyi", "pyw"), "py"),
    **dict.fromkeys(("cc", "cxx", "hpp", "hh", "hxx"), "cpp"),
    "h": "c",
}
_TEST_CALLS = rb"(?:Deno\.|RSpec\.)?(?:it|test|specify|describe|context|suite)(?:\.\w+)*"


class Definition(NamedTuple):
    """A function, a method, or a test that is given to a call by name (`it("adds", …)`)."""

    name: str
    start: int
    end: int
    body: tuple[int, int] | None
    node: Node
    """Its lines, with decorators and attributes."""


def language_of(path: str) -> str:
    """Return the key of `LANGUAGES` for a file; '' if no grammar knows it."""
    suffix = path.rpartition(".")[2].lower() if "." in path else ""
    suffix = _OTHER_SUFFIXES.get(suffix, suffix)
    return suffix if suffix in LANGUAGES else ""


@cache
def _parser(language: str) -> Parser:
    import tree_sitter  # noqa: PLC0415 - most commands read no source

    row = LANGUAGES[language]
    return tree_sitter.Parser(tree_sitter.Language(getattr(importlib.import_module(row.module), row.grammar)()))


def parse(path: str, source: bytes) -> Node | None:
    """Return the root of a file's syntax tree; None if its language is unknown."""
    language = language_of(path)
    return _parser(language).parse(source).root_node if language else None


def walk(root: Node) -> Iterator[Node]:
    """Yield the named nodes of a syntax tree, outer ones before those that they hold."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += reversed(node.named_children)
        yield node


def text_of(node: Node | None) -> str:
    return node.text.decode(errors="replace") if node is not None and node.text else ""


_LITERALS = {
    **dict.fromkeys(("integer", "number", "int_literal", "integer_literal", "decimal_integer_literal"), "number"),
    "number_literal": "number",
    **dict.fromkeys(("string", "interpreted_string_literal", "string_literal", "encapsed_string"), "string"),
    **dict.fromkeys(("true", "false", "boolean_literal", "boolean"), "truth"),
}
_FLIPPED = {"true": "false", "false": "true", "True": "False", "False": "True"}


def is_literal(node: Node) -> bool:
    return node.type in _LITERALS


def other_value(literal: Node) -> str:
    """Return another value of the same kind, as the language writes it; '' if there is no simple one."""
    text, kind = text_of(literal), _LITERALS.get(literal.type)
    if kind == "number":
        return str(int(text) + 1) if text.isdigit() else ""
    if kind == "truth":
        return _FLIPPED.get(text, "")
    quoted = kind == "string" and len(text) > 1 and text[-1] in "\"'`" and text[:3] not in ('"""', "'''")
    return f"{text[:-1]}~{text[-1]}" if quoted else ""


def parses(path: str, source: bytes) -> bool:
    """Tell whether a file is free of syntax errors, as far as its language is known."""
    root = parse(path, source)
    return root is None or not root.has_error


def same_code(path: str, before: bytes, after: bytes) -> bool:
    """Tell whether two versions of a source file differ only in comments, docstrings and blanks."""
    old, new = parse(path, before), parse(path, after)
    if old is None or new is None or old.has_error or new.has_error:
        return before == after
    docstrings = language_of(path) == "py"
    return list(_tokens(old, docstrings)) == list(_tokens(new, docstrings))


_DIRECTIVE = (
    rb"#!|//\s*(?:go:|\+build|export |line )|/[*/]\s*(?:eslint|@ts-|tslint|istanbul|c8|v8|webpack|@jsx)"
    rb"|#.*(?:\btype:|\bnoqa|\bpragma|\bpylint|\bfmt:|\bcoding[:=]|-\*-|\bfrozen_string_literal|\brubocop)|#cgo"
)
"""Comments that a tool obeys: they are code."""


def _tokens(root: Node, docstrings: bool) -> Iterator[tuple[int, str, bytes]]:
    """Yield the nodes of a program in order, each with its depth, and words with their text; comments are left out."""
    waiting = [(0, root)]
    while waiting:
        depth, node = waiting.pop()
        text = node.text or b""
        if "comment" in node.type:
            if re.match(_DIRECTIVE, text):
                yield depth, node.type, text
        elif docstrings and _is_docstring(node):
            continue
        elif node.child_count and "string" not in node.type:
            yield depth, node.type, b""
            waiting += [(depth + 1, each) for each in reversed(node.children)]
        else:
            yield depth, node.type, text


def _is_docstring(node: Node) -> bool:
    """Tell whether a statement is nothing but a string; a doctest in it is code."""
    if node.type != "expression_statement" or node.child_count != 1 or node.children[0].type != "string":
        return False
    return b">>>" not in (node.text or b"")


def definitions(path: str, source: bytes) -> list[Definition]:
    """List the functions and named tests of a file, outer ones before those that they hold."""
    root = parse(path, source)
    return list(_definitions(root, source, language_of(path))) if root else []


def texts_of(path: str, source: bytes) -> dict[str, bytes]:
    """Return the text of each definition, with blanks folded: moved or indented otherwise, it is the same."""
    found: dict[str, bytes] = {}
    for each in definitions(path, source):
        found[each.name] = found.get(each.name, b"") + b" ".join(source[each.start : each.end].split())
    return found


def grown_definitions(path: str, before: bytes, after: bytes) -> set[str]:
    """Name the definitions that only gained lines at their end, outside of any inner block."""
    old, new = ({each.name: each for each in definitions(path, text)} for text in (before, after))
    return {
        name
        for name, each in old.items()
        if name in new and _grew(before[each.start : each.end], after[new[name].start : new[name].end])
    }


def _grew(old: bytes, new: bytes) -> bool:
    """Compare up to the brace that closes the definition; in Python, which has none, to its end."""
    kept, brace, rest = old.rpartition(b"}") if old.rstrip(b");\n").endswith(b"}") else (old, b"", b"")
    kept, tail = kept.rstrip(), brace + rest
    added = new[len(kept) : len(new) - len(tail)]
    if not new.startswith(kept) or not new.endswith(tail) or not added.startswith(b"\n") or not added.strip():
        return False
    first = re.search(rb"\n([ \t]*)\S", kept)  # the first statement of the body; a signature may take several lines
    line = re.match(rb"\s*\n([ \t]*)(?=\S)(?!(?:except|else|elif|finally)\b)", added)
    return bool(first and line and line[1] == first[1]) and not re.search(rb"\byield\b", added)


def _definitions(root: Node, source: bytes, language: str) -> Iterator[Definition]:
    kinds, calls = LANGUAGES[language].functions, language in ("js", "ts", "tsx", "rb")
    for node in walk(root):
        if node.type in kinds:
            name, body = _name(node), node.child_by_field_name("body")
            if node.type in _VALUES:
                target, value = (node.child_by_field_name(field) for field in _VALUES[node.type])
                if value is None or value.type not in _FUNCTION_VALUES or not _is_for_others(node):
                    continue
                name = text_of(target).rpartition(".")[2].strip("\"'`")  # `clamp` of `exports.clamp = …`
                body = value.child_by_field_name("body")
            # decorators of Python are part of it; other languages' attributes are siblings before it
            around = node.parent
            whole = around if around is not None and around.type == "decorated_definition" else node
            if name:
                span = (body.start_byte, body.end_byte) if body else None
                yield Definition(name, whole.start_byte, whole.end_byte, span, node)
        elif calls and node.type in ("call_expression", "call"):
            called = node.child_by_field_name("function") or node.child_by_field_name("method")
            given = node.child_by_field_name("arguments")
            first = given.named_children[0] if given and given.named_children else None
            named = first is not None and first.type in ("string", "template_string")
            if named and first and called and re.fullmatch(_TEST_CALLS, source[node.start_byte : called.end_byte]):
                title = source[first.start_byte + 1 : first.end_byte - 1].decode(errors="replace")
                yield Definition(title, node.start_byte, node.end_byte, None, node)


def values_of(root: Node) -> list[Node]:
    """List the values that are given a name, outer ones only, in order."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        value = node.child_by_field_name(_VALUES[node.type][1]) if node.type in _VALUES else None
        if value is not None and value.type not in _FUNCTION_VALUES:
            found.append(value)
        else:
            waiting += reversed(node.named_children)
    return found


def _name(node: Node) -> str:
    """Return the name of a definition; in C it is nested in declarators."""
    named = node.child_by_field_name("name")
    declarator = node.child_by_field_name("declarator")
    while named is None and declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            named = declarator
        declarator = inner
    return text_of(named)


def _is_for_others(node: Node) -> bool:
    """Tell whether a function has a name that other code can call; a member of an argument has none."""
    holder = node.parent.parent if node.type == "pair" and node.parent is not None else None
    return node.type != "pair" or (holder is not None and holder.type in (*_VALUES, "export_statement"))


def signatures(path: str, before: bytes, after: bytes) -> list[str]:
    """List the heads of public functions and methods that are new or changed: names and types, no bodies."""
    known = {before[each.start : each.end] for each in definitions(path, before)}
    found, language = [], language_of(path)
    for each in definitions(path, after):
        if each.body is None or after[each.start : each.end] in known or not _is_public(language, each, after):
            continue
        head = after[each.node.start_byte : each.body[0]].decode(errors="replace")
        head = " ".join(re.sub(_COMMENT, "", head).split()).removesuffix("=>").rstrip(" {:=")
        owners, around = list[str](), each.node.parent
        while around is not None:
            if re.fullmatch(_OWNERS, around.type):  # `impl Shape` in Rust has a type and no name
                owners.insert(0, text_of(around.child_by_field_name("type")) or _name(around))
            around = around.parent
        owner = ".".join(filter(None, owners))
        found.append(f"{owner}: {head}" if owner else head)
    return list(dict.fromkeys(found))


_COMMENT = r"//.*|/\*.*?\*/|(?<=[\s,(])#.*"
_OWNERS = r"(?:class|interface|impl|module|struct|object|trait)(?:_\w+)?"
_HIDDEN = re.compile(rb"\b(?:private|protected)\b")


def _is_public(language: str, each: Definition, source: bytes) -> bool:
    """Tell whether a definition can be called from outside: it is nested in no other, and not marked as private."""
    head = source[each.start : each.body[0]] if each.body else b""
    inner = each.node.parent
    while inner is not None and inner.type not in LANGUAGES[language].functions:
        inner = inner.parent
    if inner is not None or _HIDDEN.search(head):
        return False
    if language in ("py", "js", "ts", "tsx"):
        return not each.name.startswith(("_", "#")) or each.name.startswith("__")
    if language == "go":
        return each.name[:1].isupper()
    return not (language in ("c", "cpp") and head.lstrip().startswith(b"static"))
