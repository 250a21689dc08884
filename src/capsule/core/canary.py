"""Put failing tests among new ones, to see whether the runner tells the truth.

Code under test runs in the runner's own process and can forge what it says: it may end the process with 0, patch
assertions, skip, or compare equal to everything. A test may also be there and never run its body. So each new test file
gets canaries, in the gate only: a test that fails, at its end; one expected value changed, in one of its own tests; and
in every other new test all expected values. A few old test files get a failing test and one changed value, for new ones
may hollow them out. Canaries have to fail **by name**. A run in which one does not proves nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from capsule.core.proof import Baseline, split_name
from capsule.core.syntax import Definition, definitions, is_literal, language_of, other_value, parse, parses, walk
from capsule.core.test_report import RED, Result, TestReport

if TYPE_CHECKING:
    from tree_sitter import Node


class Canary(msgspec.Struct, frozen=True):
    """A test file with canaries in it, and the names that have to fail."""

    path: str
    appended: str
    """Part of the name of the test that was added; '' where a value was changed in a file that names no test."""
    changed: tuple[tuple[str, str], ...]
    """The tests whose expected values were changed, and how."""

    @property
    def lines(self) -> list[str]:
        return ["\t".join((self.path, self.appended, *each)) for each in self.changed or (("", ""),)]


def canary(
    path: str, source: bytes, mark: str, fresh: Collection[str], old: Collection[str] = ()
) -> tuple[Canary, bytes] | None:
    """Put canaries into a test file; None if it has no known grammar or no known test.

    `mark` is random: it names the test that is added, and chooses among the expected values there are. `fresh` are the
    bare names of the tests that are new, and `old` of those that are not: one value is changed in one of them.
    """
    if language_of(path) in _PROGRAMS:
        return _in_program(path, source, mark)
    tests = [each for each in definitions(path, source) if each.name in fresh or each.name in old]
    addition = _failing_test(path, source, mark) if tests else ""
    if not addition:
        return None
    values = sorted(_expected_values(path, source, tests))
    new = [each for each in values if each.test in fresh]
    one = _one_of([each for each in new if each.sure], mark)
    chosen = [each for each in new if one in (None, each) or (one and each.test != one.test)]
    other = _one_of([each for each in values if each.sure and each.test not in fresh], mark)
    chosen += [other] if other else []
    edited = source
    for each in sorted(chosen, key=lambda each: -each.start):
        edited = edited[: each.start] + each.new.encode() + edited[each.end :]
    at = edited.rfind(b"}") if language_of(path) in ("java", "php") else len(edited)
    whole = edited[:at] + addition.encode() + edited[at:]
    changed = {name: ", ".join(_replacement_words(source, e) for e in chosen if e.test == name) for name, *_ in chosen}
    return (Canary(path, mark, tuple(changed.items())), whole) if parses(path, whole) else None


class _Value(NamedTuple):
    """An expected value of a test, and another one for it."""

    test: str
    start: int
    end: int
    new: str
    sure: bool = True
    """Whether the test compares with it in every run, as far as its text tells."""


def _one_of(values: Sequence[_Value], mark: str) -> _Value | None:
    return values[zlib.crc32(mark.encode()) % len(values)] if values else None


def _replacement_words(source: bytes, value: _Value) -> str:
    return f"`{source[value.start : value.end].decode(errors='replace')}` → `{value.new}`"


def silent(
    lines: Iterable[str], report: TestReport, fresh: Collection[str] = (), places: Collection[str] | None = None
) -> list[str]:
    """Return the canaries that did not fail by name, one sentence each; they are given as `Canary.lines`.

    `fresh` are the new tests: one of them has to fail where a file does not say what its tests are called. `places` are
    the only files to check.
    """
    red = report.names(*RED)
    bare = {split_name(name)[1] for name in red}
    found = []
    for path, appended, changed, said in (line.split("\t", 3) for line in lines):
        if places is not None and path not in places:
            continue
        if not any(appended in name for name in red if appended or name in fresh):
            other = f"{path} did not fail with another expected value ({said})"
            found.append(f"a failing test that was added to {path} did not fail" if appended else other)
        if changed and changed not in bare:
            found.append(f"{changed} in {path} did not fail with another expected value ({said})")
    return list(dict.fromkeys(found))


# ---- old test files


def old_test_files(
    base: Baseline, now: TestReport, files: Collection[str], changed: Collection[str], seed: str
) -> Iterator[tuple[str, set[str]]]:
    """Yield test files that a change did not touch, with the bare names of their passing tests.

    `files` are those to choose from. Files near what was `changed` come first, and `seed` decides on the rest.
    """
    tests: dict[str, set[str]] = {}
    for name in base.report.results:
        place, bare = split_name(name)
        tests.setdefault(place, set()).add(bare)
    unsettled = {split_name(name)[0] for name in base.flaky}
    for report in (base.report, now):
        unsettled |= {split_name(name)[0] for name, result in report.results.items() if result is not Result.PASSED}
    told = {split_name(name)[0] for name in now.results}
    found: dict[str, set[str]] = {}
    for place in (tests.keys() & told) - unsettled:
        for path in [place] if place in files else [each for each in files if _is_place_of(each, place)]:
            found.setdefault(path, set()).update(tests[place])
    folders, stems = {_folder(each) for each in changed}, {_stem(each) for each in changed}

    def rank(path: str) -> tuple[bool, int]:
        near = _folder(path) in folders or any(stem in _stem(path) for stem in stems)
        return not near, zlib.crc32(f"{seed}{path}".encode())

    for path in sorted(found, key=rank):
        yield path, found[path]


def _is_place_of(path: str, place: str) -> bool:
    """Tell whether tests of a file are named by its package (Go) or its class (Java, PHP)."""
    if path.endswith("_test.go"):
        return not _folder(path) or place.endswith(f"/{_folder(path)}")
    return path.endswith((".java", ".php")) and _stem(path) == re.split(r"[.\\]", place)[-1].partition("$")[0]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


# ---- a test that fails


_FAILING = {
    "py": (
        "\n\nimport unittest as _{mark}\n\n\nclass Test{mark}(_{mark}.TestCase):\n"
        '    def test_{mark}(self):\n        self.assertEqual("{mark}", "")\n'
    ),
    "go": '\n\nfunc Test{mark}(t *testing.T) {{ t.Fatal("{mark}") }}\n',
    "rs": '\n\n#[cfg(test)]\nmod {mark} {{\n    #[test]\n    fn fails() {{ assert_eq!("{mark}", "") }}\n}}\n',
    "java": '\n    @{annotation} public void {mark}() {{ throw new AssertionError("{mark}"); }}\n',
    "js": "\n;{call}('{mark}', () => {{ throw new Error('{mark}'); }});\n",
    "rb": "\n\nRSpec.describe('{mark}') {{ it('{mark}') {{ raise '{mark}' }} }}\n",
    "php": "\n    public function test{mark}(): void {{ throw new \\Exception('{mark}'); }}\n",
}
_CALL = rb"(?m)^[ \t]*((?:it|test|Deno\.test))\("
_FOR_RSPEC = rb"\bRSpec\.|\)\.(?:not_)?to\b"


def _failing_test(path: str, source: bytes, mark: str) -> str:
    language = {"ts": "js", "tsx": "js"}.get(language_of(path), language_of(path))
    called = re.search(_CALL, source)
    if language not in _FAILING or (language == "js" and called is None):
        return ""
    if language == "rb" and not re.search(_FOR_RSPEC, source):
        return ""
    annotation = "org.junit.jupiter.api.Test" if b"org.junit.jupiter" in source else "org.junit.Test"
    return _FAILING[language].format(mark=mark, annotation=annotation, call=called[1].decode() if called else "")


# ---- a program that is a test


_PROGRAMS = ("c", "cpp")
"""Here a test is a program, or a macro that no grammar knows: its name is in another file."""
_ASSERTS = rb"(?i)\w*(?:assert|expect|check|require|verify)\w*"
_ASKS_EQUAL = rb"(?i)\w*(?:_|assert|expect|check)_?(?:int_|str_)?(?:eq|equal|equals)(?:_\w+)?"
_GIVES_UP = rb"\breturn\s+(?!0\s*;)|\bexit\s*\(\s*(?!0)|\babort\b|(?i:fail)"


def _in_program(path: str, source: bytes, mark: str) -> tuple[Canary, bytes] | None:
    """Change one expected value; the program has to fail then."""
    root = parse(path, source)
    found = _asserted(root) if root else ()
    one = _one_of(sorted(_Value("", each.start_byte, each.end_byte, other_value(each)) for each in found), mark)
    if one is None:
        return None
    whole = source[: one.start] + one.new.encode() + source[one.end :]
    return (Canary(path, "", (("", _replacement_words(source, one)),)), whole) if parses(path, whole) else None


def _asserted(root: Node) -> Iterator[Node]:
    """Yield the literals that a program requires: in `assert(a == 1 && …)`, or in `if (a != 1 || …) return 1;`."""
    for node in walk(root):
        if node.type == "if_statement":
            condition, then = (node.child_by_field_name(name) for name in ("condition", "consequence"))
            if condition is not None and then is not None and re.search(_GIVES_UP, then.text or b""):
                yield from _joined(condition, "||", "!=")
        elif node.type == "call_expression":
            called, given = (node.child_by_field_name(name) for name in ("function", "arguments"))
            values = given.named_children if given is not None else []
            name = (called.text or b"") if called is not None else b""
            if len(values) == 1 and re.fullmatch(_ASSERTS, name):
                yield from _joined(values[0], "&&", "==")
            elif len(values) > 1 and re.fullmatch(_ASKS_EQUAL, name):
                literals = [each for each in values[:2] if is_literal(each) and other_value(each)]
                yield from literals if len(literals) == 1 else ()


def _joined(condition: Node, joint: str, operator: str) -> Iterator[Node]:
    """Yield the literal of each comparison, where all of them are joined in the same way."""
    node = condition
    while node.type in ("parenthesized_expression", "condition_clause") and node.named_child_count == 1:
        node = node.named_children[0]
    if node.type == "binary_expression" and len(node.children) == 3 and node.children[1].type == joint:
        yield from _joined(node.children[0], joint, operator)
        yield from _joined(node.children[2], joint, operator)
    elif node.type == "binary_expression":
        literal = _literal_of(node, operator)
        yield from [literal] if literal is not None and other_value(literal) else []


# ---- an expected value


_EQUAL_CALLS = (
    rb"(?:self\.|t\.|assert\.|Assert(?:ions)?\.)?(?:assertEquals?|assertEqual|assert_eq|equal|strictEqual|deepEqual"
    rb"|deepStrictEqual|Equal|assertListEqual|assertDictEqual)"
)
_MATCHERS = (b"toBe", b"toEqual", b"toStrictEqual", b"equal", b"eq", b"eql", b"equals")
_FAILS = rb"\b(?:t|tb|b|f|T\(\)|self)\.(?:[fF]ail(?:Now)?|Errorf?|Fatalf?)\("
_ASKS_TO_FAIL = rb"\b(?:raises|assertRaises\w*|throws\w*|assertThrows\w*|toThrow\w*|rejects)\b"


def _expected_values(path: str, source: bytes, tests: list[Definition]) -> Iterator[_Value]:
    """Yield the literals that stand as the expected value of an equality."""
    root = parse(path, source)
    if root is None:
        return
    names = [each.name for each in tests]
    waiting: list[tuple[Node, _Above]] = [(root, None)]
    while waiting:
        node, above = waiting.pop()
        waiting += [(each, (node, above)) for each in node.named_children]
        reader = _READERS.get(node.type)
        literal = reader(node) if reader else None
        new = other_value(literal) if literal is not None else ""
        if literal is None or not new:
            continue
        around = [each for each in tests if each.start <= literal.start_byte < each.end]
        if around and not _has_to_fail(above, around[-1]):
            test = around[-1]
            straight = not re.search(rb"\breturn\b", source[test.start : node.start_byte])
            sure = straight and names.count(test.name) == 1 and _is_always_reached(above, test)
            yield _Value(test.name, literal.start_byte, literal.end_byte, new, sure)


_Above = tuple["Node", "_Above"] | None
"""The ancestors of a node, inner ones first: asking a node for its parent is slow."""


def _inside(test: Definition, above: _Above) -> Iterator[Node]:
    """Yield the ancestors of a node, up to its test."""
    while above is not None and above[0].start_byte >= test.start:
        yield above[0]
        above = above[1]


_PERHAPS = re.compile(
    r"(?:if|for|while|try|match|switch|case|with|when|unless|rescue|conditional|ternary|list|set|dictionary|generator)"
    r"_?\w*|enhanced_for_statement|boolean_operator|binary_expression|not_operator|unary_expression"
)
"""Nodes whose content may be skipped or negated."""
_BODY = re.compile(r"\w*(?:function|lambda|closure|method_de|func_literal|method$)\w*|do_block")


def _is_always_reached(above: _Above, test: Definition) -> bool:
    """Tell whether a test always reaches an assertion: it is in no condition, and in no other function."""
    kinds = [each.type for each in _inside(test, above)]
    return not any(map(_PERHAPS.fullmatch, kinds)) and sum(_BODY.fullmatch(kind) is not None for kind in kinds) <= 1


def _has_to_fail(above: _Above, test: Definition) -> bool:
    """Tell whether a test expects an assertion to fail: then it also fails with another value."""
    mark = test.node.prev_sibling
    while mark is not None and mark.type == "attribute_item":
        if b"should_panic" in (mark.text or b""):
            return True
        mark = mark.prev_sibling
    for each in _inside(test, above):
        asked = each.named_children[0] if each.type == "with_statement" else _last_word(_called(each))
        if asked is not None and re.search(_ASKS_TO_FAIL, asked.text or b""):
            return True
    return False


def _called(call: Node) -> Node | None:
    return call.child_by_field_name("function") or call.child_by_field_name("name") if "call" in call.type else None


def _last_word(called: Node | None) -> Node | None:
    """Return the name of a function or method: `toThrow` of `expect(…).toThrow`."""
    if called is None or called.type == "identifier":
        return called
    return called.child_by_field_name("property") or called.child_by_field_name("attribute")


def _in_assert(node: Node) -> Node | None:
    asserted = node.named_children[:1]
    return _literal_of(asserted[0], "==") if asserted and asserted[0].type == "comparison_operator" else None


def _in_condition(node: Node) -> Node | None:
    condition, then = (node.child_by_field_name(name) for name in ("condition", "consequence"))
    fails = then is not None and re.search(_FAILS, then.text or b"")
    return _literal_of(condition, "!=") if condition is not None and fails else None


def _in_call(node: Node) -> Node | None:
    if node.child_by_field_name("method") is not None:
        return _first_value(node, b"eq", b"eql") if _asks_in_ruby(node) else None
    called = node.child_by_field_name("function") or node.child_by_field_name("name")
    given = node.child_by_field_name("arguments")
    if called is None or given is None or not _asks_equal(called.text or b""):
        return None
    values = given.named_children
    if node.type == "method_invocation" and len(values) > _SIDES:  # a message may come first, and a tolerance last
        number = values[_SIDES].type.endswith(("integer_literal", "floating_point_literal"))
        values = [] if number else values[1:_SIDES] if values[0].type == "string_literal" else values
    return next((each for each in reversed(values[:_SIDES]) if is_literal(each)), None)


_SIDES = 2


def _asks_equal(called: bytes) -> bool:
    """Tell whether a call compares two values, or matches an expected one, without negation."""
    if re.fullmatch(_EQUAL_CALLS, called):
        return True
    expects = re.match(rb"(?:\w+\.)?expect\b", called) is not None or b".should." in called
    return expects and b".not." not in called and called.rpartition(b".")[2] in _MATCHERS


def _in_macro(node: Node) -> Node | None:
    sides: list[list[Node]] = [[]]
    for token in node.named_children[-1].children[1:-1] if (node.text or b"").startswith(b"assert_eq!") else ():
        if token.type == ",":
            sides.append([])
        else:
            sides[-1].append(token)
    alone = [side[-1] for side in sides[:_SIDES] if [each.type for each in side[:-1]] in ([], ["-"]) and side]
    return next((each for each in reversed(alone) if is_literal(each)), None)


_READERS = {
    "assert_statement": _in_assert,
    "if_statement": _in_condition,
    **dict.fromkeys(("call", "call_expression", "method_invocation"), _in_call),
    **dict.fromkeys(
        ("member_call_expression", "scoped_call_expression"),
        lambda node: _first_value(node, b"assertSame", b"assertEquals"),
    ),
    "macro_invocation": _in_macro,
}


def _first_value(call: Node, *names: bytes) -> Node | None:
    """Return the first argument of a call with one of these names, in Ruby or PHP, if it is a literal."""
    called = call.child_by_field_name("method") or call.child_by_field_name("name")
    given = call.child_by_field_name("arguments")
    if called is None or called.text not in names or given is None or not given.named_children:
        return None
    first = given.named_children[0]
    first = first.named_children[0] if first.type == "argument" and first.named_children else first
    return first if is_literal(first) else None


def _asks_in_ruby(matcher: Node) -> bool:
    """Tell whether a matcher is the only argument of `to`."""
    given = matcher.parent
    asks = given.parent if given is not None and given.type == "argument_list" else None
    method = asks.child_by_field_name("method") if asks is not None else None
    return method is not None and method.text == b"to"


def _literal_of(comparison: Node, operator: str) -> Node | None:
    sides = comparison.children
    if len(sides) != 3 or sides[1].type != operator:
        return None
    return next((each for each in (sides[2], sides[0]) if is_literal(each)), None)
