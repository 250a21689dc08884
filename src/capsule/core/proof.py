"""Judge by name: new tests, failing tests, harmed tests.

A change is proven red and green by its own tests, and everything that passed on the base has to pass still. What failed
there already is known and may stay as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from capsule.core.evidence import ProofPart
from capsule.core.syntax import grown_definitions, texts_of
from capsule.core.test_report import RED, LoadError, Result, TestReport

_SHOWN = 5


class TestEdits(msgspec.Struct, frozen=True):
    """What a change did to the test files of the base."""

    __test__ = False

    paths: tuple[str, ...] = ()
    """Test files that were added or changed."""
    touched: dict[str, tuple[str, ...]] = {}
    """By path: the definitions of the base that read otherwise now, and those that are gone."""
    moved: dict[str, tuple[str, ...]] = {}
    """By definition: other test files that hold the removed text of one, word for word."""
    grown: dict[str, tuple[str, ...]] = {}
    """By path: definitions that were touched, by lines at their end and by nothing else."""

    def touches(self, test: str) -> bool:
        """Tell whether the text of a test of the base was changed, or of a helper in its file that it calls."""
        return _is_among(self.touched, test)

    def only_adds_to(self, test: str) -> bool:
        """Tell whether a test of the base was given more to assert, and still asserts what it did."""
        return _is_among(self.grown, test)


SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".mts", ".cts", ".rs", ".rb", ".exs")
"""Of names that begin with the path of their file; others (Go, Java, C) begin with a package or class."""


def split_name(test: str) -> tuple[str, str]:
    """Return the place and the bare name of a test: `tests/test_x.py`, `test_a` of `tests/test_x.py::C::test_a[1]`."""
    place, _, rest = test.partition("::")
    name = re.split(r"::| > |/", re.sub(r"\[.*\]$", "", rest))
    last = name[-1] if " > " in rest or "::" in rest else name[0]
    place = place.rpartition(":")[2] if place.endswith(".rs") else place
    return place, last.rpartition(".")[2] if re.fullmatch(r"[\w.]+", last) else last


def _is_among(definitions: Mapping[str, Sequence[str]], test: str) -> bool:
    path, name = split_name(test)
    if path.endswith(SUFFIXES):
        return name in definitions.get(path, ())
    return any(name in names for names in definitions.values())


def edits_of(changed: Iterable[tuple[str, bytes | None, bytes | None]]) -> TestEdits:
    """Compare test files, each given with its text in the base and its text now."""
    paths, touched, grown = [], {}, {}
    added: dict[tuple[str, bytes], list[str]] = {}
    taken: list[tuple[str, bytes]] = []
    for path, before, after in changed:
        old, new = (texts_of(path, text) if text else {} for text in (before, after))
        taken += [(name, text) for name, text in old.items() if name not in new]
        for name, text in new.items():
            if name not in old:
                added.setdefault((name, text), []).append(path)
        if after is not None:
            paths.append(path)
        if before is None:
            continue
        differing = {name for name, text in old.items() if new.get(name) != text}
        callers = {name for name, text in old.items() if any(_mentions(text, other) for other in differing - {name})}
        if differing:
            touched[path] = tuple(sorted(differing | callers))
            rewritten = differing - grown_definitions(path, before, after or b"")
            intact = (n for n in differing | callers if n not in rewritten)
            grown[path] = tuple(n for n in sorted(intact) if not any(_mentions(old[n], other) for other in rewritten))
    moved = {name: tuple(added[name, text]) for name, text in taken if (name, text) in added}
    return TestEdits(tuple(paths), touched, moved, grown)


def texts_of_all(files: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the text of each definition of these test files by its name."""
    found: dict[str, bytes] = {}
    for path, source in files:
        for name, text in texts_of(path, source).items():
            found[name] = found.get(name, b"") + text
    return found


def mentions_any(text: bytes | None, names: Iterable[str]) -> bool:
    """Tell whether a definition's text holds one of these names; a definition that was not found may hold any."""
    return text is None or any(_mentions(text, name) for name in names)


def _mentions(text: bytes, name: str) -> bool:
    return re.search(rb"\b" + re.escape(name.encode()) + rb"\b", text) is not None


class Baseline(msgspec.Struct, frozen=True):
    """How the tests of the base ended, once, or twice where some of them failed."""

    report: TestReport
    flaky: tuple[str, ...] = ()
    """Failed in one of two runs."""

    @property
    def passing(self) -> set[str]:
        return {*self.report.passed, *self.flaky}

    @property
    def failing(self) -> set[str]:
        return {*self.report.red} - {*self.flaky}


def baseline_of(first: TestReport, second: TestReport | None = None) -> Baseline:
    """Tell known failures from flaky tests, by two runs."""
    if second is None:
        return Baseline(first)
    flaky = {*first.red} ^ {*second.red}
    return Baseline(first, tuple(sorted(flaky & {*first.results} & {*second.results})))


class Judgement(NamedTuple):
    """What was seen, in one line; whether the claim holds; and the details that an agent needs to fix it."""

    observed: str
    holds: bool
    detail: str = ""
    in_tests: bool = False
    """Whether the tests are at fault, not the code."""
    proven: Mapping[str, str] = {}
    tests: Mapping[str, Sequence[str]] = {}
    """As in `Evidence`."""


def judge_red(base: Baseline, now: TestReport, edits: TestEdits, absent: Collection[str] = ()) -> Judgement:
    """Judge new tests before there is code: at least one fails, and no test of the base was harmed.

    `absent` are errors that stand for red: new tests name what does not exist yet (`red_by_absence`).
    """
    fresh = fresh_tests(base, now, edits)
    failing = [name for name in fresh if now.results[name] in RED]
    at_once = [name for name in fresh if now.results[name] is Result.PASSED and name not in base.report.results]
    faults = [*_harm(base, now, edits, absent), *_weakened(base, now, edits)]
    if not failing and not absent:
        faults.insert(0, "no new test fails" if fresh else "there is no new test")
    seen = [f"red by name ({len(failing)} new)" if failing else "red by absence" if absent else "not red"]
    proven: dict[str, str] = {ProofPart.RED: seen[0]}
    many = "new test passes" if len(at_once) == 1 else "new tests pass"
    seen += [f"{len(at_once)} {many} before there is code"] if at_once else []
    tests = {**_by_age(base, fresh), "green before there is code": at_once}
    observed = "; ".join((*faults, *([] if faults else seen)))
    return Judgement(observed, not faults, _details(faults, now), proven=proven, tests=tests)


def judge_green(
    base: Baseline, now: TestReport, edits: TestEdits, proven: Collection[str] = (), *, frozen: bool = False
) -> Judgement:
    """Judge finished work: each new test passes by name, and so does everything that passed on the base.

    `proven` are the tests that were seen red before there was code. Where tests are `frozen`, the code cannot have
    touched them: one of the base that was rewritten and is gone or skipped is a fault of the tests.
    """
    fresh = {*fresh_tests(base, now, edits), *proven}
    wrong = {name: now.results.get(name) for name in sorted(fresh) if now.results.get(name) is not Result.PASSED}
    faults = [f"{name} {_ENDED[result]}" for name, result in wrong.items()]
    faults += _harm(base, now, edits)
    harmed = _harmed_by_hand(base, now, edits) if frozen else []
    faults = [*harmed, *(fault for fault in faults if fault not in harmed)]
    faults += [f"{error.where or 'a file'} cannot be loaded" for error in new_errors(base, now)]
    known = sorted({*now.red} & base.failing)
    others = len({*now.passed} - fresh)
    unharmed = f"{others} other{'' if others == 1 else 's'} unharmed"
    seen = [f"green by name ({len(fresh)} new, {unharmed})"]
    seen += [f"{len(known)} known to fail on the base: {_listed(known)}"] if known else []
    words: dict[str, str] = {ProofPart.GREEN: "green by name", ProofPart.UNHARMED: unharmed}
    tests = {**_by_age(base, sorted(fresh)), KNOWN: known}
    observed = "; ".join(faults[:_SHOWN] or seen)
    return Judgement(observed, not faults, _details(faults, now), bool(harmed), words, tests)


KNOWN, FLAKY = "known to fail", "flaky"


def _by_age(base: Baseline, fresh: Iterable[str]) -> dict[str, Sequence[str]]:
    """Tell new tests from those of the base that were rewritten."""
    found: dict[str, list[str]] = {"new": [], "rewritten": []}
    for name in fresh:
        found["rewritten" if name in base.report.results else "new"].append(name)
    return {**found}


def judge_mended(base: Baseline, kept: Baseline, now: TestReport, edits: TestEdits, since: TestEdits) -> Judgement:
    """Judge tests that were mended while the code was there: nothing that passed has gone, or is skipped.

    `kept` is how they ended before, and `since` what was done to them after that. A new test that fails has found a
    fault in the code.
    """
    fresh = fresh_tests(kept, now, since)
    failing = [name for name in fresh if now.results[name] in RED]
    idle = [name for name in fresh if now.results[name] not in (Result.PASSED, *RED)]
    faults = [f"{name} {_ENDED[now.results[name]]}" for name in idle]
    faults += [f"{name} is gone" for name in sorted({*kept.passing, *base.passing} - {*now.results})]
    faults += [fault for fault in (*_harm(kept, now, since), *_harmed_by_hand(base, now, edits)) if fault not in faults]
    faults += [f"{error.where or 'a file'} cannot be loaded" for error in new_errors(kept, now)]
    seen = f"{len(fresh)} test{'s' if len(fresh) != 1 else ''} new or rewritten"
    seen += f", and a fault found: {_listed(failing)} {'fails' if len(failing) == 1 else 'fail'}" if failing else ""
    if not fresh and not faults:
        faults = ["no test is new or rewritten"]
    return Judgement("; ".join(faults[:_SHOWN]) or seen, not faults, _details(faults, now))


def _harmed_by_hand(base: Baseline, now: TestReport, edits: TestEdits) -> list[str]:
    """Name rewritten tests of the base that are gone, or neither pass nor fail."""
    idle = (Result.SKIPPED, Result.XFAILED, Result.XPASSED)
    names = [name for name in sorted(base.passing) if edits.touches(name)]
    gone = [f"{name} is gone" for name in names if name not in now.results and now.complete]
    return gone + [f"{name} {_ENDED[now.results[name]]}" for name in names if now.results.get(name) in idle]


def suspects(base: Baseline, now: TestReport, edits: TestEdits) -> list[str]:
    """List the tests of the base that were rewritten, skipped or removed; a moved one keeps its status."""
    texts = dict(edits.moved)
    found = []
    for name in sorted(base.passing):
        result, bare = now.results.get(name), split_name(name)[1]
        moved = result is None and any(
            split_name(other)[1] == bare and other not in base.report.results and split_name(other)[0] in texts[bare]
            for other in now.passed
            if bare in texts
        )
        rewritten = edits.touches(name) and not edits.only_adds_to(name)
        if not moved and (result not in (Result.PASSED, *RED) or rewritten):
            found.append(name)
    return found


def judge_kept(names: Collection[str], now: TestReport, old: TestReport) -> Judgement:
    """Judge tests that were rewritten, skipped or removed: the old version of each must fail on the new code.

    `old` is a run of the new code with the test files of the base.
    """
    needed = sorted(name for name in names if old.results.get(name) is not Result.PASSED)
    faults = [f"{name} {_CHANGED[now.results.get(name)]}, and passes as it was" for name in names if name not in needed]
    seen = f"changed on purpose: {_listed(needed)}" if needed else "every test of the base is as it was"
    words = f"{len(needed)} changed on purpose" if needed else "tests of the base kept"
    observed, detail = "; ".join(faults[:_SHOWN]) or seen, "\n".join(faults)
    tests = {"changed on purpose": needed}
    return Judgement(observed, not faults, detail, proven={ProofPart.KEPT: words}, tests=tests)


_CHANGED: Mapping[Result | None, str] = {
    None: "is gone",
    Result.SKIPPED: "is skipped",
    Result.XFAILED: "is expected to fail",
    Result.XPASSED: "is expected to fail",
    **dict.fromkeys((Result.PASSED, *RED), "was rewritten"),
}


def fresh_tests(base: Baseline, now: TestReport, edits: TestEdits) -> list[str]:
    """List the tests that are new, or that the change rewrote."""
    return [name for name in now.results if name not in base.report.results or edits.touches(name)]


def new_errors(base: Baseline, now: TestReport) -> list[LoadError]:
    known = {error.where for error in base.report.errors}
    return [error for error in now.errors if error.where not in known]


def _harm(base: Baseline, now: TestReport, edits: TestEdits, absent: Collection[str] = ()) -> list[str]:
    """List tests that passed on the base, were not rewritten, and no longer pass."""
    faults = []
    cut_short = now.invocations < base.report.invocations or not now.complete
    for name in sorted(base.passing):
        result = now.results.get(name)
        if result is Result.PASSED or edits.touches(name):
            continue
        place, _ = split_name(name)
        if result is None and (absent or cut_short or any(place in error.where for error in now.errors)):
            continue  # its file could not be loaded, or its runner was never started: that is judged by its own
        faults.append(f"{name} {_ENDED[result]}")
    return faults


def _weakened(base: Baseline, now: TestReport, edits: TestEdits) -> list[str]:
    """List rewritten tests of the base whose old version still passes, or that no longer run."""
    ended = {name: now.results.get(name) for name in sorted(base.passing) if edits.touches(name)}
    faults = [f"{name} was rewritten and {_ENDED[how]}" for name, how in ended.items() if how and how not in RED]
    gone = [f"{name} is gone" for name, how in ended.items() if how is None and now.complete and not now.errors]
    return faults + gone


_ENDED: Mapping[Result | None, str] = {
    None: "did not run",
    Result.PASSED: "passes as before",
    Result.FAILED: "fails",
    Result.ERRORED: "cannot be run",
    Result.SKIPPED: "is skipped",
    Result.XFAILED: "is expected to fail",
    Result.XPASSED: "is expected to fail",
}


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _details(faults: list[str], now: TestReport) -> str:
    errors = [f"{error.where}: {error.text.strip()}" for error in now.errors]
    return "\n".join((*faults, *errors))


_ABSENT = (
    # How compilers and interpreters say that a test names what does not exist: the group is the name.
    r"undefined: (?:\w+\.)?(\w+)",  # Go
    r"\w+\.(\w+) undefined",
    r"no required module provides package (\S+?)[;:]|package (\S+) is not in std",
    r"cannot find (?:function|value|type|struct|macro|module or crate)[^`]*`([^`]+)`",  # Rust
    r"unresolved imports? `([^`]+)`|no (?:method|function or associated item|variant[^`]*) named `(\w+)`",
    r"cannot import name '(\w+)'|No module named '([\w.]+)'",  # Python
    r"has no attribute '(\w+)'",
    r"Cannot find (?:module|package) '([^']+)'",  # Node, TypeScript
    r"does not provide an export named '(\w+)'",
    r"has no exported member '(\w+)'|Cannot find name '(\w+)'|Property '(\w+)' does not exist",
    r"cannot find symbol\s+\S*\s*symbol:\s+\w+ (\w+)|package ([\w.]+) does not exist",  # Java
)


def red_by_absence(errors: Iterable[LoadError], edits: TestEdits, parses: Callable[[str], bool]) -> list[str]:
    """Return the missing names that new tests use, if they explain every error; else none."""
    names: list[str] = []
    for error in errors:
        found = [next(filter(None, match.groups())) for each in _ABSENT for match in re.finditer(each, error.text)]
        modules = {path.rpartition(".")[0].replace("/", ".") for path in edits.paths}
        where = f"{error.where}\n{error.text}"
        if not found or not (error.where in modules or any(path in where for path in edits.paths)):
            return []
        names += found
    return list(dict.fromkeys(names)) if all(map(parses, edits.paths)) else []
