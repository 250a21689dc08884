"""Verify a claim of success: gather the observations that it is held against.

Each check is a row of `CHECKS`: a small function that sets one claim beside what is to be seen, and says whether it
stands. Cheap checks (which files differ) come before dear ones (running the tests): where a cheap one refutes the
claim, the tests are not run. The test command runs in the gate, a clean place that holds exactly the tree in question,
and its result is journaled by tree, so nothing is run twice and nothing an agent left lying about can colour it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field

from capsule.adapters import Place, Ran
from capsule.core.documents import artefact_paths, idea_paths, is_paper, open_boxes
from capsule.core.errors import CapsuleError, Interrupted, NeedsPerson, NoResult
from capsule.core.event import Observed, cut
from capsule.core.evidence import REUSABLE, Change, Colour, Evidence, EvidenceStatus, Observation, refuted
from capsule.core.hazards import hazards
from capsule.core.item import Status, with_values
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, baseline
from capsule.core.test_runs import SHARED_CONFIGURATION, colour_of, is_test, killed_by, matches, runner_part
from capsule.core.text import one_line
from capsule.core.workflow import Phase
from capsule.services import Services

TAIL = 6000
TRIES = 2
"""How often a command is run that somebody kills."""
_SHOWN = 12


class Verification(Struct):
    """One phase's claim, and the services to check it with."""

    state: MissionState
    phase: Phase
    signal: Signal
    place: Place
    services: Services
    tree: str
    """What would be delivered as things stand."""
    before: str
    """The same when the phase began."""
    seen: dict[str, Observation] = field(default_factory=dict)

    def observe(self, tree: str) -> Observation:
        """Return the result of the test command on a tree: from the journal where it is known, else by running it."""
        policy = self.state.policy
        key = observation_key(self.place.trees.test_cache_key(tree), policy.test)
        known = self.seen.get(key) or self.state.observations.get(key)
        if known:
            return known
        observation = _run_tests(self, tree)
        if observation.colour in REUSABLE:
            event = Observed(at=self.services.clock.now(), key=key, observation=observation)
            self.services.journal.note(self.state.mission, event)
            self.services.observer.event(self.state.mission, event)
            self.seen[key] = observation
        return observation

    def since(self) -> str:
        """Return the tree that the last review let pass; where there was none, the base."""
        approved = baseline(self.state, self.phase.name)
        return self.place.delivered(approved) if approved else self.state.base

    def changes(self, since: str) -> Sequence[Change]:
        return self.place.trees.changes(since, self.tree)


def verify(claim: Verification) -> tuple[Evidence, ...]:
    """Make the checks that the phase names and those that always apply, cheap ones first; none without a claim."""
    if claim.state.policy.verify == "off" or claim.signal.verdict not in (Verdict.PASS, Verdict.MORE):
        return ()
    found: tuple[Evidence, ...] = ()
    wanted = (*_ALWAYS, *claim.phase.checks, *(("hooks",) if claim.state.policy.hooks else ()))
    for check in sorted(wanted, key=lambda name: name in _DEAR):
        if check in _DEAR and refuted(found):
            break
        try:
            piece = CHECKS[check](claim)
        except NeedsPerson as fault:  # nothing was run, and no agent can change that: it is parked at once
            said, words = "the tests can be run", f"{fault.message} {fault.hint}".strip()
            piece = Evidence(check, said, fault.message, EvidenceStatus.REFUTED, words, patience=0, instead=words)
        found += (piece,) if piece else ()
    return found


def observation_key(tree: str, command: str) -> str:
    return hashlib.sha256(f"{tree}\0{command}".encode()).hexdigest()[:24]


def _run_tests(claim: Verification, tree: str) -> Observation:
    """Run the test command; where it was killed, once more, and then it is for a person to find out why."""
    for _ in range(TRIES):
        seen = _run_tests_once(claim, tree)
        if seen.colour is not Colour.NO_RESULT:
            return seen
    raise no_result_of(seen.command, killed_by(seen.exit_code, seen.tail), seen.log, claim.state)


def no_result_of(command: str, killed_by: str, log: str, state: MissionState) -> NoResult:
    return NoResult(
        f"No result: `{command}` was ended by {killed_by}, twice. Memory may have run short, or somebody ended it: "
        f"see {log}; then go on with `capsule run {state.parent or state.mission}`."
    )


def _run_tests_once(claim: Verification, tree: str) -> Observation:
    state, services = claim.state, claim.services
    _require_dependencies(claim, tree)
    folder, sandbox_paths = claim.place.gate(tree)
    log = services.archive.working_folder(state.mission) / f"tests-{tree[:12]}.log"
    env = {**claim.place.variables(folder), **services.exported}
    run = partial(services.shell.run, env=env, sandbox_paths=sandbox_paths)
    _require_own_code(claim, tree, folder, run)
    services.observer.activity(state.mission, f"running {state.policy.test}")
    ran = run(state.policy.test, folder, log, timeout=state.policy.test_timeout_minutes * 60)
    if ran.why == "stopped":
        raise Interrupted("Stopped while the tests were running.")
    if ran.why == "not-started":  # the machine's fault: neither red nor anybody's work to mend
        hint = f"Mend that, then go on with `capsule run {state.parent or state.mission}`."
        raise CapsuleError(f"The tests could not be started: {one_line(ran.tail)}.", hint)
    touched = claim.place.guard.restore()  # tests are an agent's code: before any git of ours meets what they left
    colour = Colour.NOT_RUN if touched else colour_of(ran.why, ran.exit_code, ran.tail, state.policy.test)
    return Observation(
        tree=tree,
        command=state.policy.test,
        colour=colour,
        exit_code=ran.exit_code,
        seconds=round(ran.seconds, 3),
        tail=cut("\n".join((ran.tail[-TAIL:], *touched))),
        log=str(log),
    )


def _require_dependencies(claim: Verification, tree: str) -> None:
    """Require that what the tree depends on is installed: with other dependencies its tests say nothing."""
    manifest, command = claim.place.missing_setup(tree)
    if manifest:
        cause = f"{manifest} asks for other dependencies than are installed in your checkout."
        hint = f"Set `workspace.setup: {command}`, or what installs them, in .capsule/config.yaml; {_then(claim)}."
        raise NeedsPerson(cause, hint)


def _require_own_code(claim: Verification, tree: str, folder: Path, run: Callable[..., Ran]) -> None:
    """Require that tests load the tree's own code: with the checkout's they would be green whatever the tree holds."""
    state, services = claim.state, claim.services

    def ask(command: str) -> str:
        log = services.archive.working_folder(state.mission) / "probe.log"
        return run(command, folder, log, timeout=_PROBE_SECONDS).tail

    found = claim.place.strays(tree, folder, state.policy.test, ask)
    if found:
        name, path = found[0]
        cause = f"The tests would not test the change: `{name}` is loaded from {path}, in your checkout."
        hint = f"Set a `workspace.setup` that installs the project where it runs, such as `{_INSTALL}`; {_then(claim)}."
        raise NeedsPerson(cause, hint)


_PROBE_SECONDS = 60
_INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."


def _then(claim: Verification) -> str:
    return f"then go on with `capsule run {claim.state.parent or claim.state.mission}`"


def _evidence(check: str, claimed: str, observed: str, holds: bool, detail: str = "") -> Evidence:
    standing = EvidenceStatus.CONFIRMED if holds else EvidenceStatus.REFUTED
    return Evidence(check, claimed, observed, standing, "" if holds else detail)


def _unverified(check: str, claimed: str) -> Evidence:
    return Evidence(check, claimed, "no test command is known, so nothing was run", EvidenceStatus.UNVERIFIED)


def _seen(observation: Observation) -> str:
    code = "" if observation.exit_code is None else f", exit {observation.exit_code}"
    return f"`{observation.command}` is {observation.colour.value}{code}"


def _paths(changes: Sequence[Change]) -> str:
    names = [change.path for change in changes]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _tests(claim: Verification, changes: Sequence[Change], since: str) -> list[Change]:
    """List test files, and files of other purposes whose words to the test runner differ."""
    globs = claim.state.policy.test_globs
    return [c for c in changes if is_test(c.path, globs) or _bends_the_runner(claim, c.path, since)]


def _bends_the_runner(claim: Verification, path: str, since: str) -> bool:
    """Dependencies may change; what a shared configuration file tells the test runner may not."""
    if path.rsplit("/", 1)[-1] not in SHARED_CONFIGURATION:
        return False
    before, after = (claim.place.trees.read(tree, path) or b"" for tree in (since, claim.tree))
    parts = [runner_part(path, text.decode(errors="replace")) for text in (before, after)]
    return parts[0] != parts[1]


def _base_green(claim: Verification) -> Evidence:
    """The test command is green, or finds no tests, before anything is done."""
    said = "the tests are green before anything is done"
    if not claim.state.policy.test:
        return _unverified("base-green", said)
    observation = claim.observe(claim.place.base_checkpoint(claim.state.base).tree)
    holds = observation.colour in (Colour.GREEN, Colour.EMPTY)
    return _evidence("base-green", said, _seen(observation), holds, observation.tail)


def _red(claim: Verification) -> Evidence:
    """The test command is red. Green twice stops the item as “seems already done”."""
    said = "the new tests fail, because the code is missing"
    if not claim.state.policy.test:
        return _unverified("red", said)
    observation = claim.observe(claim.tree)
    piece = _evidence("red", said, _seen(observation), observation.colour is Colour.RED, observation.tail)
    return _seems_done(piece) if observation.colour is Colour.GREEN else piece


def _green(claim: Verification) -> Evidence:
    """The test command is green."""
    said = "all tests pass"
    if not claim.state.policy.test:
        return _unverified("green", said)
    observation = claim.observe(claim.tree)
    return _evidence("green", said, _seen(observation), observation.colour is Colour.GREEN, observation.tail)


def _green_when_done(claim: Verification) -> Evidence | None:
    """The test command is green; for PASS only, not for MORE."""
    return _green(claim) if claim.signal.verdict is Verdict.PASS else None


def _changed(claim: Verification) -> Evidence:
    """Something differs from what the last review approved."""
    changes = claim.changes(claim.state.base if claim.state.taken_over else claim.since())
    piece = _evidence("changed", _claimed_files(claim.signal), _paths(changes) or "no file differs", bool(changes))
    return piece if changes or "red" not in claim.phase.checks else _seems_done(piece)


def _seems_done(piece: Evidence) -> Evidence:
    """Give up after a second time: where there is nothing to write a failing test for, a third is no use."""
    return msgspec.structs.replace(piece, patience=1, instead="seems already done")


def _changed_now(claim: Verification) -> Evidence | None:
    """Something differs from when this phase began. PASS may find that nothing was left to do."""
    changes = claim.changes(claim.before)
    if not changes and claim.signal.verdict is Verdict.PASS and claim.changes(claim.state.base):
        return None
    return _evidence("changed-now", _claimed_files(claim.signal), _paths(changes) or "no file differs", bool(changes))


def _more_is_more(claim: Verification) -> Evidence | None:
    """For MORE: something differs from when this phase began."""
    return _changed_now(claim) if claim.signal.verdict is Verdict.MORE else None


def _claimed_files(signal: Signal) -> str:
    return f"changed {', '.join(signal.files_changed[:_SHOWN])}" if signal.files_changed else "something was done"


def _only_tests(claim: Verification) -> Evidence | None:
    """Only test files differ from the base."""
    changes = claim.changes(claim.state.base)
    tests = _tests(claim, changes, claim.state.base)
    others = [change for change in changes if change not in tests]
    observed = f"also changed: {_paths(others)}" if others else "only test files differ"
    return _or_warning(claim, _evidence("only-tests", "only test files were changed", observed, not others))


def _untouched_tests(claim: Verification) -> Evidence | None:
    """No test file was added, changed or removed since the last review approved it."""
    since = claim.since()
    touched = _tests(claim, claim.changes(since), since)
    observed = (
        "no test file differs" if not touched else "; ".join(f"{c.path} ({_KINDS[c.kind]})" for c in touched[:_SHOWN])
    )
    detail = "Put these files back as the review let them pass, and make the code fit the tests."
    said = "the reviewed tests were not touched"
    return _or_warning(claim, _evidence("untouched-tests", said, observed, not touched, detail))


_KINDS = {"A": "added", "M": "changed", "D": "removed", "T": "changed its type"}


def _or_warning(claim: Verification, piece: Evidence) -> Evidence:
    """Make it a warning where tests live in source files: which files were touched says little then."""
    policy = claim.state.policy
    why = "tests live in sources" if policy.tests_in_sources else "" if policy.test_globs else "no test files are known"
    if piece.standing is EvidenceStatus.REFUTED and why:
        return Evidence(piece.check, piece.claimed, f"{piece.observed} ({why})", EvidenceStatus.UNVERIFIED)
    return piece


def _no_debris(claim: Verification) -> Evidence:
    """No file that matches `evidence.debris` was added."""
    changes = [change for change in claim.changes(claim.state.base) if change.kind != "D"]
    debris = [c for c in changes if any(matches(c.path, glob) for glob in claim.state.policy.debris)]
    detail = "Remove these files."
    return _evidence("no-debris", "no temporary files are left", _paths(debris) or "none", not debris, detail)


def _fit_for_main(claim: Verification) -> Evidence | None:
    """Neither the work nor a commit of its branch adds a secret, a link that leads out of the repository, a
    pointer to another repository or a `.git`. Every phase is checked."""
    found = hazards(claim.place.trees.added_files(claim.tree), claim.services.redact)
    if not found:
        return None
    said, detail = "it brings nothing that must not be merged", "\n".join((*found, _TAKE_IT_OUT))
    return _evidence("fit-for-main", said, "; ".join(found[:_SHOWN]), holds=False, detail=detail)


_TAKE_IT_OUT = """
Take it out of the files. If a commit of this branch holds it, make the branch without that commit
(git reset --soft to where it began, then commit what is right): commits are merged with all they hold."""


def _as_approved(claim: Verification) -> Evidence:
    """Nothing differs from what the last review approved."""
    changes = claim.changes(claim.since())
    return _evidence(
        "as-approved", "the work is as it was signed off", _paths(changes) or "no file differs", not changes
    )


def _committed(claim: Verification) -> Evidence:
    """Everything to be delivered is in a commit of the branch."""
    left = claim.place.touched_outside_commit()
    detail = "Stage exactly these paths and commit them."
    shown = ", ".join(left[:_SHOWN])
    return _evidence("committed", "everything is committed", shown or "nothing is left uncommitted", not left, detail)


def _artefact(claim: Verification) -> Evidence:
    """The document exists and is not empty."""
    wanted = claim.phase.artefact
    found = _artefacts(claim, wanted)
    written = [path for path in found if (claim.place.trees.read(claim.tree, path) or b"").strip()]
    observed = ", ".join(written) or ("it is empty" if found else "there is no such file")
    return _evidence("artefact", f"the {wanted} document is written", observed, bool(written))


def _spec_done(claim: Verification) -> Evidence | None:
    """For PASS: no `- [ ]` is left in the document."""
    if claim.signal.verdict is not Verdict.PASS:
        return None
    texts = [claim.place.trees.read(claim.tree, path) or b"" for path in _artefacts(claim, claim.phase.artefact)]
    boxes = sum(open_boxes(text.decode(errors="replace")) for text in texts)
    return _evidence("spec-done", "every task of the spec is done", f"{boxes} open boxes", not boxes)


def _artefacts(claim: Verification, kind: str) -> list[str]:
    return artefact_paths(claim.state.item.id, kind, claim.place.trees.files(claim.tree))


def _only_documents(claim: Verification) -> Evidence:
    """Nothing differs from the last commit except the item's own documents."""
    changes = claim.changes(_last_commit(claim))
    item, globs = claim.state.item.id, claim.state.policy.test_globs
    odd = claim.place.trees.odd_files(claim.tree)
    strays = [c for c in changes if c.path in odd or not is_paper(item, c.path, globs)]
    observed = f"also changed: {_paths(strays)}" if strays else "nothing else differs"
    detail = "Put these files back as they were: code is changed when it is built."
    return _evidence("only-documents", "only this item's documents were written", observed, not strays, detail)


def _idea(claim: Verification) -> Evidence | None:
    """An item that is to be researched next has an idea file that is not empty."""
    item, signal = claim.state.item, claim.signal
    route = claim.phase.route(with_values(item, dict(signal.assessments)))
    researched = route is not None and route.status is Status.RESEARCHING
    if signal.verdict is not Verdict.PASS or signal.closes or not researched:
        return None
    ideas = idea_paths(item.id, claim.place.trees.files(claim.tree))
    written = [path for path in ideas if (claim.place.trees.read(claim.tree, path) or b"").strip()]
    return _evidence("idea", "the idea is written down", ", ".join(written) or "there is no idea file", bool(written))


def _last_commit(claim: Verification) -> str:
    """Return where the branch was when the phase began: what an agent commits meanwhile is its work too."""
    known = claim.state.checkpoint
    return known.head if known else claim.state.base


def _known_duplicate(claim: Verification) -> Evidence | None:
    """A duplicate names another item that the tracker knows."""
    twin = claim.signal.duplicate_of
    if not twin:
        return None
    found = twin != claim.state.item.id and claim.services.tracker.knows(twin)
    observed = f"{twin} is in the tracker" if found else f"the tracker knows no other item {twin}"
    return _evidence("known-duplicate", f"it is a duplicate of {twin}", observed, found)


def _hooks(claim: Verification) -> Evidence | None:
    """Your commit hooks pass. Every phase is checked if `git.hooks` is true and work is published in steps."""
    answer = claim.place.hooks(claim.tree, f"[{claim.state.item.id}] {claim.signal.summary}")
    if answer is None:
        return None
    passed, said = answer
    observed = "they let it pass" if passed else "they refuse it"
    return _evidence("hooks", "the project's commit hooks agree", observed, passed, said)


CHECKS: dict[str, Callable[[Verification], Evidence | None]] = {
    "base-green": _base_green,
    "red": _red,
    "green": _green,
    "green-when-done": _green_when_done,
    "changed": _changed,
    "changed-now": _changed_now,
    "more-is-more": _more_is_more,
    "only-tests": _only_tests,
    "untouched-tests": _untouched_tests,
    "no-debris": _no_debris,
    "fit-for-main": _fit_for_main,
    "as-approved": _as_approved,
    "committed": _committed,
    "artefact": _artefact,
    "spec-done": _spec_done,
    "only-documents": _only_documents,
    "idea": _idea,
    "known-duplicate": _known_duplicate,
    "hooks": _hooks,
}
_ALWAYS = ("fit-for-main",)
_DEAR = ("base-green", "red", "green", "green-when-done", "hooks")
