"""Verify a claim of success against observations.

A check is a function with a row above it: its name and the claim that it verifies. It returns what was observed and
whether the claim holds, or None if it does not apply. Checks that run something come first in this file and run last,
in this order: if a cheap one refutes the claim, nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TypeVar

from msgspec.structs import replace

from capsule.core.canary import Canary, canary, old_test_files, silent
from capsule.core.documents import (
    Boxes,
    artefact_paths,
    boxes_of,
    idea_paths,
    is_document,
    is_planning_document,
    own_documents,
)
from capsule.core.errors import NeedsPerson
from capsule.core.event import MissionStarted, StepEnded
from capsule.core.evidence import (
    ASKED_ALONE,
    NOT_EXECUTED,
    SURVIVED,
    Change,
    Colour,
    Evidence,
    EvidenceStatus,
    Observation,
    ProofPart,
    company,
    refuted,
)
from capsule.core.exam import joining
from capsule.core.frozen import TEST_FILE
from capsule.core.globs import is_test, matches
from capsule.core.hazards import allowed_secrets, asks_if_tested, hazards
from capsule.core.item import Status, with_values
from capsule.core.manifests import is_manifest
from capsule.core.mutants import BODY, works_outside_functions
from capsule.core.proof import (
    FLAKY,
    KNOWN,
    Baseline,
    Judgement,
    fresh_tests,
    judge_green,
    judge_kept,
    judge_mended,
    judge_red,
    new_errors,
    red_by_absence,
    split_name,
    suspects,
)
from capsule.core.signal import Verdict
from capsule.core.state import acceptance_key, other_kinds
from capsule.core.syntax import parses, same_code
from capsule.core.test_report import Result, TestReport
from capsule.core.test_runs import missing_runner
from capsule.core.text import count, one_line
from capsule.core.unreachable_tests import unreachable_tests
from capsule.core.workflow import TESTS
from capsule.engine.exam import CHECK, examine
from capsule.engine.mutants import (
    Tried,
    about_the_change,
    changed_sources,
    kill,
    killers,
    loose_functions,
    mutants_about,
    noticed_before,
    run_mutant,
    run_stubs,
    survivors,
    try_mutants,
    without_bodies,
)
from capsule.engine.verification import AGAIN, SHOWN, Verification, detect_tests

NO_COMMAND = "no test command is known, so nothing was run"
DUPLICATE = "known-duplicate"
CHECKS: dict[str, Callable[[Verification], Evidence | None]] = {}
_RUNNING: list[str] = []
"""The checks that run something, in the order in which they are made."""
_ALWAYS = ("fit-for-main", "files-changed")
_ON_MERGES = ("canary", "demanded", "as-demanded")


_Piece = TypeVar("_Piece", Evidence, Evidence | None)


def _check(
    name: str, claimed: str = "", *, runs: bool = False
) -> Callable[[Callable[[Verification], _Piece]], Callable[[Verification], _Piece]]:
    """Enrol a check under its name; its evidence gets the name and the claim unless it has its own."""

    def enrol(function: Callable[[Verification], _Piece]) -> Callable[[Verification], _Piece]:
        @wraps(function)
        def check(claim: Verification) -> _Piece:
            piece = function(claim)
            return piece and replace(piece, check=piece.check or name, claimed=piece.claimed or claimed)

        CHECKS[name] = check
        _RUNNING.extend([name] if runs else [])
        return check

    return enrol


def verify(claim: Verification) -> tuple[Evidence, ...]:
    """Run the checks that the phase names and those that always apply, cheap ones first; none without a claim.

    If another mission may have caused a refutation, the red run is repeated alone, and that result counts.
    """
    if claim.state.policy.verify == "off" or claim.signal.verdict not in (Verdict.PASS, Verdict.MORE):
        return ()
    detect_tests(claim)
    found = _make_checks(claim)
    against = {piece.check for piece in refuted(found)}
    if not against or not claim.ask_alone():
        return found
    return tuple(
        replace(piece, observed=f"{piece.observed}, {ASKED_ALONE}")
        if piece.check in against and ASKED_ALONE not in piece.observed
        else piece
        for piece in _make_checks(claim)
    )


def verify_merge(claim: Verification) -> tuple[Evidence, ...]:
    """Repeat the checks that must also hold for a merge: its test run is honest, and tests notice a broken function
    that the merge combined from two versions."""
    named = {name for phase in claim.state.workflow.phases for name in phase.checks}
    found = (CHECKS[name](claim) for name in _ON_MERGES if name in named)
    return tuple(with_acceptance(claim, piece, claim.tree) for piece in found if piece)


def _make_checks(claim: Verification) -> tuple[Evidence, ...]:
    found: tuple[Evidence, ...] = ()
    wanted = (*_ALWAYS, *claim.phase.checks, *(("hooks",) if claim.state.policy.hooks else ()))
    for name in sorted(wanted, key=lambda name: _RUNNING.index(name) if name in _RUNNING else -1):
        if name in _RUNNING and refuted(found):
            break
        try:
            piece = CHECKS[name](claim)
        except NeedsPerson as fault:  # nothing was run, and no agent can fix that: park at once
            said, words = "the tests can be run", f"{fault.message} {fault.hint}".strip()
            piece = Evidence(name, said, fault.message, EvidenceStatus.REFUTED, words, patience=0, instead=words)
        else:
            piece = piece and with_acceptance(claim, piece, claim.tree)
        found += (piece,) if piece else ()
    return found


def with_acceptance(claim: Verification, piece: Evidence, tree: str) -> Evidence:
    """Add what a refuted claim is about; mark it as accepted if a person accepted it for that."""
    if piece.standing is not EvidenceStatus.REFUTED:
        return piece
    judged = claim.place.trees.test_cache_key(tree)
    because = claim.state.accepted.get(acceptance_key(piece.check, judged))
    if because is None:
        return replace(piece, tree=judged)
    observed = f"{piece.observed}; a person accepted it, because: {because}"
    return Evidence(piece.check, piece.claimed, observed, EvidenceStatus.ACCEPTED, tree=judged)


# ---- how evidence is made


def _evidence(observed: str, holds: bool, detail: str = "", proven: Mapping[str, str] | None = None) -> Evidence:
    """Confirm a claim with its proof, or refute it with the details that are needed to fix it."""
    if holds:
        return Evidence("", "", observed, EvidenceStatus.CONFIRMED, proven={**(proven or {})})
    return Evidence("", "", observed, EvidenceStatus.REFUTED, detail)


def _unverified(observed: str = NO_COMMAND) -> Evidence:
    return Evidence("", "", observed, EvidenceStatus.UNVERIFIED)


def _judged(found: Judgement, detail: str = "") -> Evidence:
    """Make evidence of a judgement by name, with its tests."""
    tests = {kind: tuple(name[:300] for name in names[:_NAMED]) for kind, names in found.tests.items() if names}
    return replace(_evidence(found.observed, found.holds, detail, found.proven), tests=tests)


_NAMED = 50
"""How many tests of a kind evidence names."""


def _by_exit_code(part: ProofPart, seen: Observation, wanted: Colour) -> Evidence:
    """Make evidence of a test run that reported no test names."""
    observed, words = f"{_seen(seen)} (exit code only)", f"{wanted.value} (exit code only)"
    return _evidence(observed, seen.colour is wanted, seen.tail, {part: words})


def _seen(observation: Observation) -> str:
    code = "" if observation.exit_code is None else f", exit {observation.exit_code}"
    return f"`{observation.command}` is {observation.colour.value}{code}{company(observation)}"


def _paths(changes: Sequence[Change]) -> str:
    return _listed([change.path for change in changes])


def _listed(names: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return between.join(names[:SHOWN]) + more


# ---- what the tests show


@_check("base-green", "the tests pass before anything is done", runs=True)
def _base_green(claim: Verification) -> Evidence:
    """Tests pass before anything is done; failing ones are recorded as known (`evidence.base`)."""
    if not claim.state.policy.test:
        return _unverified()
    seen = claim.observe(claim.base_tree)
    if seen.colour in (Colour.GREEN, Colour.EMPTY):
        return _evidence(_seen(seen), holds=True)
    base = claim.baseline() if claim.state.policy.base != "strict" else None
    if base is None or not base.passing or base.report.errors:
        named = base is not None and base.report.results
        if not named and (missing := missing_runner(seen.exit_code, seen.tail)):
            return _evidence(f"`{seen.command}` cannot be run: {missing}", False, seen.tail)
        none = "no test passes; " if named and base and not base.passing else ""
        return _evidence(f"{none}{_seen(seen)}", False, seen.tail)
    known, flaky = sorted(base.failing), sorted(base.flaky)
    words = [f"{len(base.passing)} pass by name"]
    words += [f"known to fail: {_listed(known)}"] if known else []
    words += [f"flaky: {_listed(flaky)}"] if flaky else []
    return _judged(Judgement("; ".join(words), True, tests={KNOWN: known, FLAKY: flaky}))


@_check("tests-kept", "the tests of the base are kept", runs=True)
def _tests_kept(claim: Verification) -> Evidence:
    """No test of the base is gone, skipped or rewritten, unless it fails as it was; lines may be added at its end."""
    if not claim.state.policy.test:
        return _unverified()
    base, now, since = claim.baseline(), claim.now, claim.state.base
    judges, tested = claim.judges(since), {split_name(name)[0] for name in now.results}

    def harms(change: Change) -> bool:
        """Tell whether it judges the code and existed before, or holds no test of its own, such as a `conftest.py`."""
        why = judges.why_frozen(change.path)
        untested = why != TEST_FILE or (change.path.endswith(".py") and change.path not in tested)
        return bool(why) and not judges.is_source(change.path) and (change.kind != "A" or untested)

    changed = [change.path for change in claim.changes(since) if harms(change)]
    if base is None or not (now.complete or (base.passing and changed)):
        # without names it is unknown what a changed test file still tests
        observed = f"changed: {_listed(changed)} (exit code only)"
        return _unverified(observed) if changed else _evidence("no test file of the base differs", holds=True)
    names = suspects(base, now, claim.test_edits())
    if not names:
        kept = len(base.passing)
        observed = f"{count(kept, 'test')} of the base {'is as it was' if kept == 1 else 'are as they were'}"
        return _evidence(observed, holds=True, proven={ProofPart.KEPT: "tests of the base kept"})

    def edit() -> tuple[Mapping[str, bytes], Sequence[str]]:
        return {path: claim.text(path, since) for path in changed}, [f"{path} as it was" for path in changed]

    old = claim.run_of(claim.tree, "tests of the base", edit)[1] if changed else now
    found = judge_kept(names, now, old)
    return _judged(found, f"{found.detail}\n\n{_KEEP}")


_KEEP = "Restore these tests, which pass, and add new ones."


@_check("red", "the new tests fail, because the code is missing", runs=True)
def _red(claim: Verification) -> Evidence:
    """A new test fails by name, and every test of the base is unharmed. Nothing red twice stops the item as “seems
    already done”, or as “no test was written” where nothing differs."""
    if not claim.state.policy.test:
        changes = claim.changes(claim.state.base)
        if changes and all(is_document(change.path) for change in changes):
            return _evidence(f"no test was written: {_paths(changes)}", False, "Write tests that can be run.")
        return _unverified()
    if claim.kept():
        return replace(_mended(claim), claimed="the mended tests notice broken code")
    seen, now = claim.run_of(claim.tree)
    base = claim.baseline()
    if base is None or not (now.complete or now.errors):
        piece = _by_exit_code(ProofPart.RED, seen, Colour.RED)
        return _seems_done(claim, piece) if seen.colour is Colour.GREEN else piece
    found, absent = _judged_red(claim, base, now)
    if not found.holds and {*now.red} & {*base.passing}:  # one that passes the next time is flaky
        again = claim.run_of(claim.tree, AGAIN)[1]
        second, then_absent = _judged_red(claim, base, again)
        found, absent = (_with_flaky(second, base, now, again), then_absent) if second.holds else (found, absent)
    piece = _judged(found, f"{found.detail}\n\n{seen.tail}".strip())
    piece = replace(piece, by_absence=found.holds and absent)
    return _seems_done(claim, piece) if seen.colour is Colour.GREEN and not found.holds else piece


def _judged_red(claim: Verification, base: Baseline, now: TestReport) -> tuple[Judgement, bool]:
    """Judge a run of new tests; say also whether they are red by absence."""
    edits = claim.test_edits()
    absent = red_by_absence(new_errors(base, now), edits, lambda path: parses(path, claim.text(path)))
    return judge_red(base, now, edits, absent), bool(absent)


def _seems_done(claim: Verification, piece: Evidence) -> Evidence:
    """Give up after a second time: a third one would not help if nothing can be made red."""
    if claim.kept():
        return replace(piece, patience=1, instead=f"the tests were not mended: {piece.observed}")
    offer = other_kinds(claim.state)
    offered = f"; nothing to make red: {offer}" if offer else ""
    found = "seems already done" if claim.changes(claim.state.base) else "no test was written"
    return replace(piece, patience=1, instead=f"{found}{offered}")


def _mended(claim: Verification) -> Evidence:
    """Judge tests that were mended while the code was there: each passes on it, and notices a mutant that survived."""
    kept, (seen, now) = claim.kept(), claim.run_of(claim.tree)
    base, before = claim.baseline(), claim.run_of(kept)[1]
    if base is None or not now.complete or not before.complete:
        known = survivors(claim)
        noticed = [mutant for mutant in known if run_mutant(claim, mutant)[0].colour is Colour.RED]
        words = f"{_seen(seen)}; {len(noticed)} of {len(known)} mutants are noticed now (exit code only)"
        return _evidence(words, seen.colour is Colour.RED or bool(noticed) or not known, _DEMAND)
    since = claim.test_edits(kept)
    found = judge_mended(base, Baseline(before), now, claim.test_edits(), since)
    if not found.holds:
        return _evidence(found.observed, False, f"{found.detail}\n\n{seen.tail}".strip())
    killed = {mutant: killers(now, *run_mutant(claim, mutant)) for mutant in survivors(claim)}
    fresh = [name for name in fresh_tests(Baseline(before), now, since) if now.results[name] is Result.PASSED]
    idle = [name for name in fresh if killed and not any(name in by for by in killed.values())]
    alive = [mutant.said for mutant, by in killed.items() if not by and mutant.kind == BODY]
    fail = "fails" if len(idle) == 1 else "fail"
    faults = [f"{_listed(idle)} {fail} with none of the changes that no test noticed"] if idle else []
    faults += [f"no test notices {line} yet" for line in alive if fresh]
    unproven = _red_by_name(claim)
    faults += [unproven.observed] if unproven and unproven.standing is EvidenceStatus.REFUTED else []
    share = f"{sum(map(bool, killed.values()))} of {len(killed)} mutants" if killed else ""
    observed = f"{found.observed}; {share} are noticed now" if killed else found.observed
    detail = "\n".join((*faults, *(f"{m.said}: {SURVIVED}" for m, by in killed.items() if not by)))
    words = f"tests mended ({share} noticed)" if killed else "tests mended"
    piece = _evidence("; ".join(faults) or observed, not faults, detail, {ProofPart.MENDED: words})
    return replace(piece, tests={"mended": tuple(fresh[:_NAMED])})


@_check("green", "all tests pass", runs=True)
def _green(claim: Verification) -> Evidence:
    """Every new test passes by name, and so does every test that passed on the base."""
    if not claim.state.policy.test:
        return _unverified()
    seen, now = claim.run_of(claim.tree)
    base = claim.baseline()
    if base is None or not now.complete:
        return _by_exit_code(ProofPart.GREEN, seen, Colour.GREEN)
    edits, proven = claim.test_edits(), claim.seen_red(base)
    frozen = bool(claim.state.workflow.writer(TESTS, claim.phase.name))
    found = judge_green(base, now, edits, proven, frozen=frozen)
    new_pass = all(now.results[name] is Result.PASSED for name in fresh_tests(base, now, edits))
    if not found.holds and not found.in_tests and new_pass and seen.colour is Colour.RED:
        again = claim.run_of(claim.tree, AGAIN)[1]  # an old test that passes then is flaky, whatever the change
        second = judge_green(base, again, edits, proven)
        found = _with_flaky(second, base, now, again) if again.complete and second.holds else found
    if found.holds and seen.exit_code and not now.red:
        found = Judgement(f"{_seen(seen)}, although by name {count(len(now.passed), 'test')} passed", False)
    elif found.holds and seen.colour is Colour.EMPTY:
        found = Judgement(f"{_seen(seen)}: no test passed", False)
    piece = _judged(found, f"{found.detail}\n\n{seen.tail}".strip())
    return replace(piece, mend=TESTS) if found.in_tests else piece


def _with_flaky(second: Judgement, base: Baseline, now: TestReport, again: TestReport) -> Judgement:
    """Name what failed in the first run only."""
    flaky = sorted({*now.red} - {*again.red} - base.failing)
    return second._replace(observed=f"{second.observed}; flaky: {_listed(flaky)}", tests={**second.tests, FLAKY: flaky})


@_check("green-when-done", runs=True)
def _green_when_done(claim: Verification) -> Evidence | None:
    """The test command is green; for PASS only, not for MORE."""
    return _green(claim) if claim.signal.verdict is Verdict.PASS else None


@_check("unharmed", runs=True)
def unharmed(claim: Verification) -> Evidence:
    """Every test that passed on the base passes. A project without tests is unverified."""
    piece = replace(_green(claim), check="unharmed")
    base = claim.baseline() if claim.state.policy.test else None
    empty = base is not None and not base.report.results
    if piece.standing is EvidenceStatus.REFUTED and empty and claim.observe(claim.tree).colour is Colour.EMPTY:
        return replace(_unverified("there are no tests"), claimed=piece.claimed)
    return piece


@_check("red-by-name", "every new test fails without the change", runs=True)
def _red_by_name(claim: Verification) -> Evidence | None:
    """Every new test fails by name when the bodies of all changed functions are taken out; where tests were red only
    because what they name did not exist."""
    if not claim.state.policy.test or not claim.state.by_absence:
        return None
    sources, base, now = changed_sources(claim), claim.baseline(), claim.now
    fresh = [name for name in claim.new_tests() if now.results[name] is Result.PASSED]
    if base is None or not sources or not fresh:
        return None
    proven = claim.seen_red(base)
    passing = [name for name in fresh if name not in proven]
    for other in (False, True):  # one that asks for the default value passes with the first kind of stub
        report = run_stubs(claim, other=other)[1] if passing else TestReport(complete=True)
        if not report.complete or (new_errors(Baseline(now), report) and not report.results):
            return _unverified("the code cannot be built without its bodies")
        passing = [name for name in passing if report.results.get(name) is Result.PASSED]
    if {*passing} != {*fresh}:  # beside tests of the change there may be first tests of what was there
        passing = about_the_change(claim, passing)
    if not passing:
        words = f"red by name ({len(fresh)} new)"
        return _evidence(f"{words} with the change taken out", holds=True, proven={ProofPart.RED: words})
    observed = f"{_listed(passing)} {'passes' if len(passing) == 1 else 'pass'} with the change taken out"
    if any(works_outside_functions(path, *texts) for path, texts in sources.items()):
        return _unverified(f"{observed}, except what is in no function")
    return replace(_evidence(observed, False, f"{observed}.\n{_DEMAND}"), mend=TESTS, instead=observed)


@_check("kills", "each new test notices broken code", runs=True)
def _kills(claim: Verification) -> Evidence:
    """Each new test passes, and fails when code that it is about is broken on purpose."""
    if not claim.state.policy.test:
        return _unverified()
    if claim.baseline() is None or not claim.now.complete:
        return _unverified("the tests tell no names (exit code only)")
    fresh = claim.new_tests()
    if not fresh:
        return _evidence("there is no new test", holds=False)
    if not claim.state.policy.mutants:
        return _unverified("no mutants are tried (evidence.mutants)")
    about = {name: mutants_about(claim, name) for name in fresh}
    if not any(about.values()):
        return _unverified("no code is known to break on purpose")
    killed, tried = kill(claim, about)
    idle = [name for name in fresh if name not in killed and {*about[name]} <= tried]
    unsure = len({*fresh} - killed - {*idle})
    rest = f", {unsure} not tried" if unsure else ""
    observed = f"no mutant makes {_listed(idle)} fail" if idle else f"{len(killed)} of {len(fresh)} kill a mutant{rest}"
    detail = "\n".join((*(f"{mutant.said}: they still pass" for mutant in tried), _DEMAND))
    words = f"{len(killed)} of {len(fresh)} new tests kill a mutant{rest}"
    return _evidence(observed, not idle, detail, {ProofPart.KILLS: words})


@_check("canary", "the test run tells the truth", runs=True)
def _canary(claim: Verification) -> Evidence | None:
    """Failing tests that Capsule puts among the new ones and into a few old files fail by name, and so do new tests
    with other expected values. Every test was loaded as its file has it. A new test that can never run is named."""
    fresh = claim.new_tests() if claim.state.policy.test else []
    if not fresh:
        return None
    places = {*claim.test_edits().paths, *(split_name(name)[0] for name in fresh)}
    names = {split_name(name)[1] for name in fresh}
    texts = [(path, text) for path in sorted(places) if (text := claim.place.trees.read(claim.tree, path)) is not None]
    if idle := unreachable_tests(dict(texts), {path: claim.text(path, claim.state.base) for path, _ in texts}):
        return replace(_evidence("; ".join(idle[:SHOWN]), False, "\n".join(idle)), mend=TESTS)
    if not any(canary(path, text, "mark", names) for path, text in texts):
        return _unverified("no canary is known for this test runner")

    def edit(*, old: bool) -> tuple[Mapping[str, bytes], Sequence[str]]:
        made = [canary(path, text, claim.services.token(), names) for path, text in texts]
        return _with_canaries([*filter(None, made), *(_in_old_files(claim) if old else ())])

    base = claim.baseline()
    if claim.now.rewritten and not (base and base.report.rewritten):
        return _evidence(f"not run as written: {_listed(claim.now.rewritten)}", False, _NOT_TRUSTED)
    seen, report = claim.run_of(claim.tree, "canary", partial(edit, old=True))
    old = {path: mark for path, mark, *_ in (line.split("\t") for line in seen.edits) if path not in places}
    if old and not {*map(split_name, claim.now.results)} <= {*map(split_name, report.results)}:
        # a runner that stops at the first failure may come to an old file before a new one
        seen, report = claim.run_of(claim.tree, "canary in new files", partial(edit, old=False))
        old = {}
    harmed = _lost_tests(claim, seen, report, old)
    if not harmed and new_errors(Baseline(claim.now), report) and not report.red:
        return _unverified("the test files with canaries cannot be loaded")
    faults = [*harmed, *silent(seen.edits, report, fresh, places)]
    files = len({line.partition("\t")[0] for line in seen.edits})
    observed = "; ".join(faults[:SHOWN]) or f"canary seen in {files} test file{'s' if files != 1 else ''}"
    return _evidence(observed, not faults, _NOT_TRUSTED, {ProofPart.CANARY: "canary seen"})


def _with_canaries(made: Sequence[tuple[Canary, bytes]]) -> tuple[Mapping[str, bytes], Sequence[str]]:
    return {each.path: text for each, text in made}, [line for each, _ in made for line in each.lines]


_OLD_FILES = 3
"""How many test files that the change did not touch get a canary."""


def _in_old_files(claim: Verification, known: Mapping[str, str] | None = None) -> list[tuple[Canary, bytes]]:
    """Put canaries into a few test files that the change did not touch; `known` are the marks of an earlier run."""
    base, changed = claim.baseline(), {change.path for change in claim.changes(claim.state.base)}
    files = {*claim.place.trees.files(claim.tree)} - changed
    made: list[tuple[Canary, bytes]] = []
    for path, tests in old_test_files(base, claim.now, files, changed, claim.tree) if base else ():
        if known is not None and path not in known:
            continue
        mark = known[path] if known is not None else claim.services.token()
        one = canary(path, claim.text(path), mark, (), tests)
        made += [one] if one else []
        if len(made) == _OLD_FILES:
            break
    return made


def _lost_tests(claim: Verification, seen: Observation, report: TestReport, old: Mapping[str, str]) -> list[str]:
    """Name old test files that pass with a canary now, and failed with it on the base."""
    faults = silent(seen.edits, report, places=old)
    if not faults:
        return []
    edit = partial(_with_canaries, _in_old_files(claim, old))
    before, on_base = claim.run_of(claim.base_tree, f"canary {claim.tree}", edit)
    idle = silent(before.edits, on_base)
    return [f"the test run cannot be trusted: {fault}" for fault in faults if fault not in idle]


_NOT_TRUSTED = (
    "The test run cannot be trusted: it must report a failing test as failed, whatever the code under test does."
)


@_check("demanded", "the tests demand the change", runs=True)
def _demanded(claim: Verification) -> Evidence | None:
    """Some test fails when a changed function is broken on purpose. One that no test executes is *not covered*."""
    tried = try_mutants(claim)
    if not tried:
        return None
    score = f"demanded {sum(tried.noticed.values())} of {len(tried.noticed)}{tried.rest}"
    uncovered = [f"{m.function} in {m.path}" for m in tried.not_covered]
    loose = [f"{function} in {path}" for path, function in loose_functions(tried)][len(uncovered) :]
    seen = [score] if tried.noticed else []
    seen += [f"not covered: no test executes {_listed(uncovered)}"] if uncovered else []
    seen += [f"no test notices when {_listed(loose)} is broken"] if loose else []
    piece = _of_mutants("; ".join(seen), not (uncovered or loose), tried, score)
    return replace(piece, mend=TESTS, instead=piece.observed) if uncovered or loose else piece


@_check("as-demanded", "the tests notice what they noticed before", runs=True)
def _as_demanded(claim: Verification) -> Evidence | None:
    """Tests still notice each mutant of the base that they noticed before."""
    tried = try_mutants(claim)
    if not tried:
        return None
    loose = loose_functions(tried)
    before = noticed_before(claim, {path for path, _ in loose})
    lost = [
        f"{function} in {path}"
        for path, function in loose
        if before.get((path, function), all(seen for (other, _), seen in before.items() if other == path))
    ]
    score = f"{sum(tried.noticed.values())} of {len(tried.noticed)} mutants noticed{tried.rest}"
    observed = f"{score}; no test notices any more when {_listed(lost)} is broken" if lost else score
    return _of_mutants(observed, not lost, tried, score)


def _of_mutants(observed: str, holds: bool, tried: Tried, score: str) -> Evidence:
    """Make evidence of mutants, with those that survived and the functions that no test executes."""
    uncovered = tuple(mutant.place for mutant in tried.not_covered)
    alive = tuple(mutant.said for mutant, noticed in tried.noticed.items() if not noticed)
    lines = [f"{place} is not covered: {NOT_EXECUTED}" for place in uncovered]
    lines += [f"{said}: {SURVIVED}" for said in alive]
    piece = _evidence(observed, holds, "\n".join((*lines, _DEMAND)), {ProofPart.DEMANDED: score})
    return replace(piece, survivors=alive, not_covered=uncovered)


_DEMAND = "Write tests that fail when this code is broken: assert what it returns or changes."


@_check(CHECK, "it passes its exam", runs=True)
def _exam(claim: Verification) -> Evidence | None:
    """Tests by somebody who has seen neither the code nor its tests pass. Those that also pass with the changed bodies
    taken out, or cannot find their names, do not count and are named."""
    if not claim.state.exam:
        return None
    if not claim.state.policy.test:
        return _unverified()

    def run(variant: str, files: Mapping[str, bytes], lines: Sequence[str]) -> tuple[Observation, TestReport]:
        return claim.run_of(claim.tree, variant, lambda: (files, lines))

    try:
        return examine(claim.state, run, partial(without_bodies, claim), partial(claim.place.trees.read, claim.tree))
    finally:
        claim.place.gate(claim.tree)  # keep nothing of the exam


@_check("hooks", "the project's commit hooks agree", runs=True)
def _hooks(claim: Verification) -> Evidence | None:
    """Your commit hooks pass. Every phase is checked if `git.hooks` is true and work is published in steps."""
    answer = claim.place.hooks(claim.tree, f"[{claim.state.item.id}] {claim.signal.summary}")
    return _evidence("they pass" if answer[0] else "they fail", *answer) if answer else None


# ---- which files differ


@_check("changed")
def _changed(claim: Verification) -> Evidence:
    """Something differs from what the last review approved."""
    changes = claim.changes(claim.state.base if claim.state.taken_over else claim.since())
    piece = _differing(claim, changes)
    return piece if changes or "red" not in claim.phase.checks else _seems_done(claim, piece)


@_check("changed-now")
def _changed_now(claim: Verification) -> Evidence | None:
    """Something differs from when this phase began. PASS may find that nothing was left to do."""
    changes = claim.changes(claim.before)
    if not changes and claim.signal.verdict is Verdict.PASS and claim.changes(claim.state.base):
        return None
    return _differing(claim, changes)


@_check("more-is-more")
def _more_is_more(claim: Verification) -> Evidence | None:
    """For MORE: something differs from when this phase began."""
    return _changed_now(claim) if claim.signal.verdict is Verdict.MORE else None


def _differing(claim: Verification, changes: Sequence[Change]) -> Evidence:
    named = ", ".join(claim.signal.files_changed[:SHOWN])
    piece = _evidence(_paths(changes) or "no file differs", bool(changes))
    return replace(piece, claimed=f"changed {named}" if named else "something was done")


@_check("files-changed")
def _files_changed(claim: Verification) -> Evidence | None:
    """The files that an agent says it changed did change. If not, that is shown and costs nothing."""
    place = str(claim.place.path)
    named = [path.removeprefix(f"{place}/").removeprefix("./").rstrip("/") for path in claim.signal.files_changed]
    changed = {change.path for since in (claim.before, claim.state.base) for change in claim.changes(since)}

    def differs(name: str) -> bool:
        ours = name == "worklog.md" or name.startswith(".capsule/")
        return ours or any(name == p or p.startswith(f"{name}/") or name.endswith(f"/{p}") for p in changed)

    strange = [name for name in named if name and not differs(name)]
    if not strange:
        return None
    said, shown = (_listed([one_line(name)[:200] for name in names]) for names in (named, strange))
    return replace(_evidence(f"{shown} did not change", holds=False), claimed=f"changed {said}", harmless=True)


@_check("only-tests", "only test files were changed")
def _only_tests(claim: Verification) -> Evidence | None:
    """Only test files differ from the base, and what tests need: their data, helpers and dependencies. Where tests are
    mended, from the tree that was judged."""
    since = claim.kept() or claim.state.base
    changes = claim.changes(since)
    if not changes:
        return _evidence("nothing differs", False, "Write the tests that the task needs.")
    judges = claim.judges(since)
    others = [change for change in changes if not judges.is_for_tests(change.path)]
    if claim.state.policy.first_tests:  # without a manifest there is nothing to run them with
        others = [change for change in others if not is_manifest(change.path)]
    observed = f"also changed: {_paths(others)}" if others else "only test files differ"
    if others and all(judges.is_source(change.path) for change in others):
        return _unverified(f"{observed} (tests live in sources)")
    return _or_warning(claim, _evidence(observed, not others))


@_check("untouched-tests", "the reviewed tests were not touched")
def _untouched_tests(claim: Verification) -> Evidence | None:
    """Nothing that judges the code was added, changed or removed since the last review approved it: test files, their
    data and helpers, the test runner's settings, scripts of the test command."""
    since = claim.since()
    judges = claim.judges(since)
    reasons = [(change, judges.why_frozen(change.path)) for change in claim.changes(since)]
    touched = [f"{c.path} ({_KINDS[c.kind]}{'' if why == TEST_FILE else f': {why}'})" for c, why in reasons if why]
    detail = "Restore these files to their reviewed version, and make the code fit the tests."
    return _or_warning(claim, _evidence(_listed(touched, "; ") or "no test file differs", not touched, detail))


_KINDS = {"A": "added", "M": "changed", "D": "removed", "T": "changed its type"}


def _or_warning(claim: Verification, piece: Evidence) -> Evidence:
    """Downgrade it to a warning if no test files are known."""
    policy = claim.state.policy
    if policy.test or policy.test_globs or piece.standing is not EvidenceStatus.REFUTED:
        return piece
    return _unverified(f"{piece.observed} (no test files are known)")


@_check("only-docs", "only documents were changed")
def _only_docs(claim: Verification) -> Evidence:
    """Only documents, comments and docstrings differ from the base."""
    globs, odd = claim.state.policy.test_globs, claim.place.trees.odd_files(claim.tree)

    def is_harmless(change: Change) -> bool:
        unchanged = change.kind == "M" and _same_code(claim, claim.state.base, change.path)
        return change.path not in odd and (is_document(change.path, globs) or unchanged)

    others = [change for change in claim.changes(claim.state.base) if not is_harmless(change)]
    observed = f"also changed: {_paths(others)}" if others else "nothing but documents and comments differs"
    detail = "Restore these files: only documents may change."
    return _evidence(observed, not others, detail, {ProofPart.DOCS: "only documents and comments differ"})


def _same_code(claim: Verification, since: str, path: str) -> bool:
    old, new = (claim.place.trees.read(tree, path) for tree in (since, claim.tree))
    if old is None and new is None:  # not to be read by this name
        return False
    return same_code(path, old or b"", new or b"")


@_check("no-debris", "no temporary files are left")
def _no_debris(claim: Verification) -> Evidence:
    """No file that matches `evidence.debris` was added."""
    changes = [change for change in claim.changes(claim.state.base) if change.kind != "D"]
    debris = [c for c in changes if any(matches(c.path, glob) for glob in claim.state.policy.debris)]
    debris = [c for c in debris if not _is_test_data(claim, c.path)]
    return _evidence(_paths(debris) or "none", not debris, "Remove these files.")


def _is_test_data(claim: Verification, path: str) -> bool:
    """Tell whether a file lies among the tests, and one of them names it."""
    globs, name = claim.state.policy.test_globs, path.rsplit("/", 1)[-1].encode()
    if not is_test(path, globs):
        return False
    others = [other for other in claim.place.trees.files(claim.tree) if other != path and is_test(other, globs)]
    return any(name in claim.text(other) for other in others)


@_check("fit-for-main", "it brings nothing that must not be merged")
def _fit_for_main(claim: Verification) -> Evidence | None:
    """Neither the work nor a commit of its branch adds a secret, a link that leads out of the repository, a
    pointer to another repository, a `.git`, code that names the folder it was written in, or code that asks whether it
    is being tested. Every phase is checked."""
    added, named = allowed_secrets(claim.place.trees.added_files(claim.tree), claim.state.policy.allow)
    place = claim.place.path  # a short path such as `/app` may be meant for another machine
    folders = [str(each) for each in (place, *place.parents[2:3]) if len(each.parts) >= _DEEP]
    found = hazards(added, claim.services.redact, folders)
    if asking := asks_if_tested(added):
        judges = claim.judges(claim.state.base)
        found += [words for path, words in asking.items() if judges.is_source(path) or not judges.is_for_tests(path)]
    if not found:
        return _evidence("; ".join(named[:SHOWN]), holds=True) if named else None
    return _evidence("; ".join(found[:SHOWN]), False, "\n".join((*found, _TAKE_IT_OUT)))


_DEEP = 4
_TAKE_IT_OUT = """
Take it out of the files. If a commit of this branch holds it, make the branch without that commit
(git reset --soft to where it began, then commit what is right): commits are merged with all they hold.
A key that is test data is permitted by a person: evidence.allow in .capsule/config.yaml names its file."""


@_check("as-approved", "the work is as it was signed off")
def _as_approved(claim: Verification) -> Evidence:
    """Nothing differs from what the last review approved, except tests of a passed exam."""
    joined, read = joining(claim.state), partial(claim.place.trees.read, claim.tree)
    changes = [c for c in claim.changes(claim.since()) if c.path not in joined or joined[c.path] != read(c.path)]
    return _evidence(_paths(changes) or "no file differs", not changes)


@_check("committed", "everything is committed")
def _committed(claim: Verification) -> Evidence:
    """Everything to be delivered is in a commit of the branch."""
    left = claim.place.touched_outside_commit()
    observed = f"not committed: {', '.join(left[:SHOWN])}" if left else "nothing is left uncommitted"
    return _evidence(observed, not left, "Stage exactly these paths and commit them.")


# ---- what documents and the tracker say


@_check("artefact")
def _artefact(claim: Verification) -> Evidence:
    """The document exists and is not empty."""
    wanted = claim.phase.artefact
    found = artefact_paths(claim.state.item.id, wanted, claim.place.trees.files(claim.tree))
    written = [path for path in found if claim.text(path).strip()]
    observed = ", ".join(written) or ("it is empty" if found else "there is no such file")
    return replace(_evidence(observed, bool(written)), claimed=f"the {wanted} document is written")


@_check("planned", "there are tasks to build")
def _planned(claim: Verification) -> Evidence | None:
    """For PASS: the document has phases or lists with `- [ ]` to tick, and not all are ticked."""
    if claim.signal.verdict is not Verdict.PASS:
        return None
    boxes = _boxes(claim, claim.tree)
    observed = f"{boxes.open} of {boxes.all} boxes open" if boxes.all else "there is no box"
    detail = "Write each task as `- [ ] …` under **Tasks:** of its phase."
    return _evidence(observed, bool(boxes.open), detail)


@_check("spec-done", "every task of the spec is done")
def _spec_done(claim: Verification) -> Evidence | None:
    """For PASS: no `- [ ]` is left in the document, and none was taken out since it was planned."""
    if claim.signal.verdict is not Verdict.PASS:
        return None
    planned, now = _boxes(claim, claim.since_document()), _boxes(claim, claim.tree)
    if not now.all or now.all < planned.all:
        observed = f"{now.all} of {planned.all} boxes are left" if planned.all else "there is no box"
        detail = "Restore the planned tasks, and tick those that are done."
        return _evidence(observed, holds=False, detail=detail)
    return _evidence(f"{now.open} of {now.all} boxes open", not now.open)


def _boxes(claim: Verification, tree: str) -> Boxes:
    paths = artefact_paths(claim.state.item.id, claim.phase.artefact, claim.place.trees.files(tree))
    counted = [boxes_of(claim.text(path, tree).decode(errors="replace")) for path in paths]
    return Boxes(sum(each.open for each in counted), sum(each.all for each in counted))


@_check("built", "something was built")
def _built(claim: Verification) -> Evidence | None:
    """For PASS: the phase, all its parts together, changed more than the item's documents and comments."""
    if claim.signal.verdict is not Verdict.PASS:
        return None
    since = claim.since_document()
    paths = [change.path for change in claim.changes(since)]
    if not claim.state.taken_over:  # what people commit meanwhile is on the same branch
        mine = {change.path for change in claim.changes(claim.before)} | _earlier_files(claim)
        paths = [path for path in paths if path in mine]
    papers = {*own_documents(claim.state.item.id, paths)}
    built = [path for path in paths if path not in papers and not _same_code(claim, since, path)]
    observed = _listed(built) or "nothing but documents and comments differs from when it was planned"
    return _evidence(observed, bool(built), "Build what the document plans.")


def _earlier_files(claim: Verification) -> set[str]:
    """Return the files that earlier runs of this phase changed, since the mission was started."""
    found: set[str] = set()
    for _, event in claim.services.journal.events(claim.state.mission):
        if isinstance(event, MissionStarted):
            found = set()
        elif isinstance(event, StepEnded) and event.phase == claim.phase.name:
            found |= {*event.outcome.files}
    return found


@_check("only-documents", "only this item's documents were written")
def _only_documents(claim: Verification) -> Evidence:
    """Nothing differs from the last commit except the item's own documents."""
    began = claim.state.checkpoint  # what an agent commits meanwhile is its work too
    changes = claim.changes(began.head if began else claim.state.base)
    item, globs = claim.state.item.id, claim.state.policy.test_globs
    odd = claim.place.trees.odd_files(claim.tree)
    strays = [c for c in changes if c.path in odd or not is_planning_document(item, c.path, globs)]
    observed = f"also changed: {_paths(strays)}" if strays else "nothing else differs"
    detail = "Restore these files: code is changed in a later phase."
    return _evidence(observed, not strays, detail)


@_check("idea", "the idea is written down")
def _idea(claim: Verification) -> Evidence | None:
    """An item that is to be researched next has an idea file that is not empty."""
    item, signal = claim.state.item, claim.signal
    route = claim.phase.route(with_values(item, dict(signal.assessments)))
    researched = route is not None and route.status is Status.RESEARCHING
    if signal.verdict is not Verdict.PASS or signal.closes or not researched:
        return None
    ideas = idea_paths(item.id, claim.place.trees.files(claim.tree))
    written = [path for path in ideas if claim.text(path).strip()]
    return _evidence(", ".join(written) or "there is no idea file", bool(written))


@_check(DUPLICATE)
def _known_duplicate(claim: Verification) -> Evidence | None:
    """A duplicate names another item that is open or was completed."""
    twin, tracker = claim.signal.duplicate_of, claim.services.tracker
    if not twin:
        return None
    if twin == claim.state.item.id or not tracker.knows(twin):
        found, observed = False, f"the tracker knows no other item {twin}"
    elif why := tracker.closed_as(twin):  # two that name each other would both be gone
        found, observed = False, f"{twin} was closed itself: {why}"
    else:
        found, observed = True, f"{twin} is in the tracker"
    return replace(_evidence(observed, found), claimed=f"it is a duplicate of {twin}")
