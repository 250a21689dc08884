"""Find tests that can never run, by the syntax of their files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from capsule.core.frozen import is_in_tests
from capsule.core.syntax import Definition, definitions, language_of


class _New(NamedTuple):
    """A definition that a change brings to a test file."""

    path: str
    source: bytes
    found: Definition
    namesakes: int
    """How many definitions of its block have its name, itself included."""
    mentions: int
    """How often its name occurs in all of the test files."""


def unreachable_tests(files: Mapping[str, bytes], known: Mapping[str, bytes]) -> list[str]:
    """Name the new definitions that look like tests and cannot run, and say why; `known` are the files in the base."""
    words = Counter(word for text in files.values() for word in re.findall(rb"\w+", text))
    said = []
    for path, source in files.items():
        rule = _RULES.get(language_of(path))
        if rule is None:
            continue
        old = {each.name for each in definitions(path, known.get(path, b""))}
        fresh = [each for each in definitions(path, source) if each.name not in old]
        plain = [each for each in fresh if each.start == each.node.start_byte]  # without a decorator
        names = Counter((each.name, _block(each)) for each in plain)
        for each in fresh:
            why = rule(_New(path, source, each, names[each.name, _block(each)], words[each.name.encode()]))
            said += [f"{each.name} in {path} {why}"] if why else []
    return list(dict.fromkeys(said))


def _block(each: Definition) -> int:
    return each.node.parent.id if each.node.parent is not None else 0


def _python(new: _New) -> str:
    hidden = new.namesakes > 1 and new.found.name.startswith("test")
    return f"is defined {new.namesakes} times, and only the last one runs" if hidden else ""


_GO_TEST = re.compile(rb"func [a-z_]\w*\(\w+ \*testing\.[TBF]\) *\{")


def _go(new: _New) -> str:
    idle = new.mentions == 1 and new.path.endswith("_test.go") and _GO_TEST.match(new.source, new.found.start)
    return "never runs: its name does not begin with Test, and nothing calls it" if idle else ""


_RUST_TEST = re.compile(rb"fn (?!main\b)\w+\(\)[^{]*\{.*\b(?:assert\w*|panic)!", re.S)


def _rust(new: _New) -> str:
    before = new.found.node.prev_named_sibling
    marked = before is not None and before.type == "attribute_item"
    inside = "tests" in new.path.split("/")[:-1] or is_in_tests(new.path, new.source, new.found.start)
    idle = new.mentions == 1 and inside and not marked
    asks = idle and _RUST_TEST.match(new.source[new.found.start : new.found.end])
    return "never runs: it has no #[test], and nothing calls it" if asks else ""


_RULES: Mapping[str, Callable[[_New], str]] = {"py": _python, "go": _go, "rs": _rust}
