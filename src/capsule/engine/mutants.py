"""Break the change on purpose, and see whether a test notices.

With all changed bodies removed, every new test has to fail. With one mutant at a time, some test has to.
`core/mutants.py` makes the mutants; this module chooses among them, within a time limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from capsule.core.evidence import Colour, Observation
from capsule.core.frozen import is_in_tests, is_vendored
from capsule.core.globs import is_test
from capsule.core.mutants import (
    BODY,
    Mutant,
    choose,
    ending,
    fillings,
    leftovers,
    moved_functions,
    mutants,
    stubbed,
    stubs,
)
from capsule.core.proof import SUFFIXES, mentions_any, split_name, texts_of_all
from capsule.core.syntax import definitions, language_of, signatures
from capsule.core.test_report import Result, TestReport
from capsule.engine.verification import Verification


def changed_sources(claim: Verification) -> dict[str, tuple[bytes, bytes]]:
    """Return the text of each changed source file, before and after."""
    base, judges = claim.state.base, claim.judges(claim.state.base)
    changed = [each.path for each in claim.changes(base) if each.kind != "D"]
    paths = [path for path in changed if not judges.is_for_tests(path) and not is_vendored(path)]
    return {path: (claim.text(path, base), claim.text(path)) for path in paths}


def signatures_of(claim: Verification) -> list[tuple[str, list[str]]]:
    """List the public signatures of what differs from the base, file by file: names and types, no bodies."""
    return [(path, signatures(path, *texts)) for path, texts in changed_sources(claim).items()]


def without_bodies(claim: Verification, other: bool) -> dict[str, bytes]:
    return {
        path: stubbed(path, *texts, partial(is_in_tests, path, texts[1]), other=other)
        for path, texts in changed_sources(claim).items()
    }


def run_stubs(claim: Verification, *, other: bool) -> tuple[Observation, TestReport]:
    def edit() -> tuple[Mapping[str, bytes], Sequence[str]]:
        made = without_bodies(claim, other)
        return made, [f"every changed body taken out in {path}" for path in made]

    return claim.run_of(claim.tree, f"stubs{' with other values' if other else ''}", edit)


def about_the_change(claim: Verification, tests: Sequence[str]) -> list[str]:
    """Choose the tests whose text names a changed function."""
    functions = {stub.function for path, texts in changed_sources(claim).items() for stub in stubs(path, *texts)}
    texts = texts_of_all((path, claim.text(path)) for path in claim.test_edits().paths)
    return [name for name in tests if mentions_any(texts.get(split_name(name)[1]), functions)]


def mutants_of_change(claim: Verification) -> list[Mutant]:
    """List the mutants of the change, without functions that were only moved."""
    base, sources = claim.state.base, changed_sources(claim)
    removed = {each.path: claim.text(each.path, base) for each in claim.changes(base) if each.kind == "D"}
    moved = moved_functions(sources, removed)

    def found(make: Callable[[str, bytes, bytes], Sequence[Mutant]]) -> list[Mutant]:
        all_of = [(texts[1], mutant) for path, texts in sources.items() for mutant in make(path, *texts)]
        changed = [(text, mutant) for text, mutant in all_of if (mutant.path, mutant.function) not in moved]
        changed = [(text, mutant) for text, mutant in changed if not _was_signed_off(claim, mutant, text)]
        return [mutant for text, mutant in changed if not is_in_tests(mutant.path, text, mutant.start)]

    if made := found(mutants) or found(fillings):
        return made
    # a change without a function: new files count too that new tests name, such as their data
    judges, tests = claim.judges(base), b"\n".join(map(claim.text, claim.test_edits().paths))
    added = [each.path for each in claim.changes(base) if each.kind == "A"]
    named = [path for path in added if path.rpartition("/")[2].encode() in tests and not judges.why_frozen(path)]
    sources |= {path: (b"", claim.text(path)) for path in named}
    return found(leftovers) if claim.new_tests() and not claim.signed_off else []


def _was_signed_off(claim: Verification, mutant: Mutant, text: bytes) -> bool:
    """Tell whether one of the merged works has the same function: its mutants were tried there."""
    around = [d for d in definitions(mutant.path, text) if d.start <= mutant.start and mutant.end <= d.end]
    whole = text[around[0].start : around[0].end] if around else text
    return any(whole in work.text(mutant.path) for work in claim.signed_off)


def survivors(claim: Verification) -> list[Mutant]:
    """Return the mutants that no test noticed when the work went back and that still exist."""
    known = claim.state.mending
    if known is None or not (known.survivors or known.not_covered):
        return []
    uncovered = [m for m in mutants_of_change(claim) if m.kind == BODY and m.place in known.not_covered]
    return uncovered + [m for m in mutants_of_change(claim) if m.said in known.survivors]


class Tried(NamedTuple):
    """The tried mutants and their results."""

    noticed: Mapping[Mutant, bool] = {}
    not_covered: Sequence[Mutant] = ()
    """The body mutants of functions that no test executes: other mutants of these need no run."""
    left: int = 0
    """How many were not tried, for lack of time or because they do not compile."""

    def __bool__(self) -> bool:
        return bool(self.noticed or self.not_covered)

    @property
    def rest(self) -> str:
        return f", {self.left} not tried" if self.left else ""


def try_mutants(claim: Verification) -> Tried:
    """Break the change on purpose, within limits."""
    policy = claim.state.policy
    if not policy.test or not policy.mutants:
        return Tried()
    now = claim.now
    choice = choose(mutants_of_change(claim), claim.tree, policy.mutants)
    # The survivors are tried again with every function's body: new code may be untested.
    first = list(dict.fromkeys([*(mutant for mutant in choice if mutant.kind == BODY), *survivors(claim)]))
    room = max(policy.mutants - len(first), 0)
    chosen = first + [mutant for mutant in choice if mutant not in first][:room]
    time = _MutantTime(claim)

    def ask(mutant: Mutant) -> bool | None:
        if not time.is_left:
            return None
        broken, report = run_mutant(claim, mutant)
        time.spent += broken.seconds
        return was_noticed(now, broken, report)

    tried: dict[Mutant, bool] = {}
    not_covered: dict[str, Mutant] = {}
    left = 0
    for mutant in chosen:
        if mutant.place in not_covered:
            continue
        noticed = ask(mutant)
        if noticed is None:
            left += 1
        elif not noticed and (end := ending(mutant, claim.text(mutant.path))) and ask(end) is False:
            not_covered[mutant.place] = mutant
        else:
            tried[mutant] = noticed
    return Tried(tried, [*not_covered.values()], left)


class _MutantTime:
    """The time limit of all mutants: as long as the suite itself, or half a minute; one is always tried."""

    def __init__(self, claim: Verification) -> None:
        self._each = claim.observe(claim.tree).seconds
        self._most = min(claim.state.policy.mutant_minutes * 60, max(self._each, _LEAST_SECONDS))
        self.spent = 0.0

    @property
    def is_left(self) -> bool:
        return not self.spent or self.spent + self._each <= self._most


_LEAST_SECONDS = 30
_HANGS = 3
"""How many times the suite's duration, plus half a minute, a mutant may run before it counts as noticed."""


def run_mutant(claim: Verification, mutant: Mutant, tree: str = "") -> tuple[Observation, TestReport]:
    tree = tree or claim.tree

    def edit() -> tuple[Mapping[str, bytes], Sequence[str]]:
        return {mutant.path: mutant.applied(claim.text(mutant.path, tree))}, (mutant.said,)

    policy, own = claim.state.policy, claim.observe(tree).seconds
    timeout = min(60 * min(policy.mutant_minutes, policy.test_timeout_minutes), _HANGS * own + _LEAST_SECONDS)
    return claim.run_of(tree, f"mutant {mutant.path} {mutant.start} {mutant.end} {mutant.text}", edit, timeout)


def was_noticed(now: TestReport, broken: Observation, report: TestReport) -> bool | None:
    """Tell whether a test noticed a mutant; None if the mutant does not compile, or nothing ran."""
    if broken.colour is Colour.TIMED_OUT:
        return True
    if broken.colour is not Colour.RED:
        return False if broken.colour is Colour.GREEN else None
    if report.complete and now.complete and {*now.passed} <= {*report.passed}:
        return False
    return True if report.results or not report.errors else None


def killers(now: TestReport, broken: Observation, report: TestReport) -> set[str]:
    """Return the passing tests that do not pass with a mutant."""
    if broken.colour is Colour.TIMED_OUT or not report.complete:
        return {*now.passed} if was_noticed(now, broken, report) else set()
    return {*now.passed} - {*report.passed}


def noticed_before(claim: Verification, paths: set[str]) -> dict[tuple[str, str], bool]:
    """Break the functions of the base that the change rewrote, one at a time: did a test notice?

    What does not fit into the time counts as not noticed, so that a change is never blamed for losing it.
    """
    tree = claim.base_tree
    now, time = claim.run_of(tree)[1], _MutantTime(claim)
    found: dict[tuple[str, str], bool] = {}
    for path in sorted(paths):
        for mutant in stubs(path, claim.text(path), claim.text(path, tree)):
            noticed: bool | None = False
            if len(found) < claim.state.policy.mutants and time.is_left:
                broken, report = run_mutant(claim, mutant, tree)
                time.spent += broken.seconds
                noticed = was_noticed(now, broken, report)
            found |= {} if noticed is None else {(path, mutant.function): noticed}
    return found


def loose_functions(tried: Tried) -> list[tuple[str, str]]:
    """List the functions, with their path, that no test notices when they are broken, those not covered first."""
    found = [(m.path, m.function) for m in tried.not_covered]
    for path, function in dict.fromkeys((m.path, m.function) for m, noticed in tried.noticed.items() if not noticed):
        mine = {m: noticed for m, noticed in tried.noticed.items() if (m.path, m.function) == (path, function)}
        if any(m.kind == BODY for m in mine if not mine[m]) or (len(mine) >= _ENOUGH and not any(mine.values())):
            found.append((path, function))
    return found


_ENOUGH = 3
"""How many mutants of one function have to survive before the function counts as loose."""


def kill(claim: Verification, about: Mapping[str, Sequence[Mutant]]) -> tuple[set[str], set[Mutant]]:
    """Break the code under new tests, within limits; return the tests that failed, and the tried mutants."""
    killing, tried = set[str](), set[Mutant]()
    time = _MutantTime(claim)
    while len(tried) < claim.state.policy.mutants and time.is_left:
        waiting = Counter(m for name, found in about.items() if name not in killing for m in found if m not in tried)
        if not waiting:
            break
        mutant = max(waiting, key=lambda each: (waiting[each], each.kind == BODY))
        broken, report = run_mutant(claim, mutant)
        tried.add(mutant)
        time.spent += broken.seconds
        if broken.colour is Colour.TIMED_OUT:
            killing |= {name for name in about if mutant in about[name]}
        killing |= {name for name in about if report.results.get(name) in (Result.FAILED, Result.ERRORED)}
    return killing, tried


def mutants_about(claim: Verification, test: str) -> list[Mutant]:
    """List mutants of the code under a test: of functions that it names, else of modules that it names."""
    read, globs = claim.place.trees.read, claim.state.policy.test_globs
    place, name = split_name(test)
    paths = [place] if place.endswith(SUFFIXES) else list(claim.test_edits().paths)
    texts = [(path, text) for path in paths if (text := read(claim.tree, path)) is not None]
    own = b"\n".join(text[d.start : d.end] for path, text in texts for d in definitions(path, text) if d.name == name)
    around = b"\n".join(text for _, text in texts)
    folders = {path.rpartition("/")[0] for path, _ in texts}
    sources = [p for p in claim.place.trees.files(claim.tree) if language_of(p) and not is_test(p, globs)]
    near = [p for p in sources if _names_module(around, p) or (p.endswith(".go") and p.rpartition("/")[0] in folders)]
    found = [m for path in (near or sources)[:_MOST_SOURCES] for m in mutants(path, b"", claim.text(path))]
    named = [m for m in found if re.search(rb"\b" + re.escape(m.function.encode()) + rb"\b", own or around)]
    return choose(named or found, claim.tree, claim.state.policy.mutants)


_MOST_SOURCES = 50
_ENTRIES = ("__init__", "index", "lib", "mod", "main")


def _names_module(text: bytes, path: str) -> bool:
    """Tell whether a test's file names the module of a source file; `index` goes by its folder."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    word = folder.rpartition("/")[2] if stem in _ENTRIES and folder else stem
    return bool(word) and re.search(rb"\b" + re.escape(word.encode()) + rb"\b", text) is not None
