"""Ask a tree: run the test command on it in the gate, once, and tell what was seen.

The gate is a clean place that holds exactly the tree in question. What was seen there is journaled by tree, so nothing
is run twice and nothing an agent left lying about can colour it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field

from capsule.adapters import Place, Ran
from capsule.core.detection import detect
from capsule.core.errors import CapsuleError, Interrupted, NeedsPerson, NoResult
from capsule.core.event import Observed, TestsFound, cut
from capsule.core.evidence import REUSABLE, Change, Colour, Observation
from capsule.core.frozen import Judges, Snapshot, commands_behind
from capsule.core.proof import Baseline, TestEdits, baseline_of, edits_of, judge_green, split_name
from capsule.core.signal import Signal
from capsule.core.state import MissionState, baseline, kept_code
from capsule.core.test_report import TestReport
from capsule.core.test_runs import colour_of, killed_by
from capsule.core.text import one_line
from capsule.core.workflow import Phase
from capsule.services import Services

TAIL = 6000
TRIES = 2
"""How often a command is run that somebody kills."""
SHOWN = 12
Edit = Callable[[], tuple[Mapping[str, bytes], Sequence[str]]]
"""Makes the content of the files that differ from a tree, and says what was done to them, one line each."""
AGAIN = "again"


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
    seen: dict[str, tuple[Observation, TestReport]] = field(default_factory=dict)

    def observe(self, tree: str) -> Observation:
        """Return the result of the test command on a tree: from the journal where it is known, else by running it."""
        return self.run_of(tree)[0]

    def run_of(self, tree: str, variant: str = "", edit: Edit | None = None) -> tuple[Observation, TestReport]:
        """Return the result of the test command on a tree, and how each test ended.

        A `variant` names a run of its own: a second one, or one with an edit of the tree, which is made if it is run.
        """
        suffix = f"\0{variant}" if variant else ""
        key = observation_key(self.place.trees.test_cache_key(tree) + suffix, self.state.policy.test)
        known = self.seen.get(key) or self.remembered(key)
        if known:
            return known
        files, lines = edit() if edit else ({}, ())
        observation, report = _run_tests(self, tree, files)
        observation = msgspec.structs.replace(observation, edits=tuple(lines))
        if observation.colour in REUSABLE:
            if report.results or report.errors:
                text = self.services.redact(msgspec.json.encode(report).decode())
                self.services.archive.put(self.state.mission, _report_name(key), text)
                observation = msgspec.structs.replace(observation, report=_hash(text))
            event = Observed(at=self.services.clock.now(), key=key, observation=observation)
            self.services.journal.note(self.state.mission, event)
            self.services.observer.event(self.state.mission, event)
            self.seen[key] = observation, report
        return observation, report

    def remembered(self, key: str) -> tuple[Observation, TestReport] | None:
        """Return a run that the journal knows; None where the names of its tests are gone, so that it runs again."""
        observation = self.state.observations.get(key)
        if observation is None or not observation.report:
            return (observation, TestReport()) if observation else None
        text = self.services.archive.text(self.state.mission, _report_name(key))
        if _hash(text) != observation.report:
            return None
        return observation, msgspec.json.decode(text, type=TestReport)

    def baseline(self) -> Baseline | None:
        """Return how the tests of the base ended, by name; None where they told no names."""
        if self.state.policy.first_tests:
            return Baseline(TestReport(complete=True))
        tree = self.place.base_checkpoint(self.state.base).tree
        seen, report = self.run_of(tree)
        if seen.colour is Colour.EMPTY and not report.results:
            return Baseline(TestReport(complete=True))
        if not report.complete:
            return None
        again = self.run_of(tree, AGAIN)[1] if report.red else None
        return baseline_of(report, again if again and again.complete else None)

    def test_edits(self, since: str = "") -> TestEdits:
        """Compare the test files with those of the base, or of another tree."""
        read, since = self.place.trees.read, since or self.state.base
        judges = judges_of(self, since)
        paths = [each.path for each in self.changes(since) if judges.is_for_tests(each.path)]
        return edits_of((path, read(since, path), read(self.tree, path)) for path in paths)

    def known(self, tree: str) -> TestReport:
        """Return how each test ended on a tree, where that is known already; nothing is run for it."""
        key = observation_key(self.place.trees.test_cache_key(tree), self.state.policy.test)
        found = self.seen.get(key) or self.remembered(key)
        return found[1] if found else TestReport()

    def since_document(self) -> str:
        """Return the tree that the phase left which writes this phase's document; where there was none, the base."""
        names = self.state.workflow.names()
        earlier = self.state.workflow.phases[: names.index(self.phase.name)]
        writers = [p.name for p in earlier if p.artefact == self.phase.artefact != "" and p.name in self.state.approved]
        return self.place.delivered(self.state.approved[writers[-1]]) if writers else self.state.base

    def since(self) -> str:
        """Return the tree that the last review let pass; where there was none, the base."""
        approved = baseline(self.state, self.phase.name)
        return self.place.delivered(approved) if approved else self.kept() or self.state.base

    def kept(self) -> str:
        """Return the tree that went back to have its tests mended, code and all; '' where none did."""
        code = kept_code(self.state)
        return self.place.delivered(code) if code else ""

    def is_green(self) -> bool:
        """Tell whether the tests are known to pass on the tree; nothing is run to find out."""
        key = observation_key(self.place.trees.test_cache_key(self.tree), self.state.policy.test)
        if not self.state.policy.test or not self.remembered(key):
            return False
        seen, now = self.run_of(self.tree)
        base = self.baseline()
        if base is None or not now.complete:
            return seen.colour is Colour.GREEN
        return judge_green(base, now, self.test_edits(), seen_red(self, base), frozen=True).holds

    def changes(self, since: str) -> Sequence[Change]:
        return self.place.trees.changes(since, self.tree)


def detect_tests(claim: Verification) -> None:
    """Look for the test command again where the base had none: once there are tests, they judge. It is journaled."""
    policy = claim.state.policy
    if not policy.detect or policy.test:
        return
    files, read = claim.place.trees.files(claim.tree), claim.place.trees.read
    names = frozenset(files)
    command, globs, in_sources = detect(
        files, lambda path: (read(claim.tree, path) or b"").decode(errors="replace") if path in names else ""
    )
    if not command:
        return
    policy = msgspec.structs.replace(
        policy, test=command, test_globs=policy.test_globs or globs, tests_in_sources=in_sources, first_tests=True
    )
    event = TestsFound(at=claim.services.clock.now(), policy=policy)
    claim.services.journal.note(claim.state.mission, event)
    claim.services.observer.event(claim.state.mission, event)
    claim.state = msgspec.structs.replace(claim.state, policy=policy)


def seen_red(claim: Verification, base: Baseline) -> list[str]:
    """Return the new tests that were seen red on the tree that the last review let pass, where that run is known."""
    since = claim.since()
    if since == claim.state.base:
        return []
    return [name for name in claim.known(since).red if name not in base.failing]


def judges_of(claim: Verification, since: str) -> Judges:
    """Return what judges the code, as the tree `since` has it."""
    policy = claim.state.policy
    base = claim.place.base_checkpoint(claim.state.base).tree
    reports = [claim.known(tree) for tree in (base, *((since,) if since != claim.state.base else ()))]
    places = {split_name(name)[0] for report in reports for name in report.results}
    return Judges(policy.test_globs, policy.test, _snapshot(claim, since), _snapshot(claim, claim.tree), places)


def _snapshot(claim: Verification, tree: str) -> Snapshot:
    trees = claim.place.trees
    return Snapshot(frozenset(trees.files(tree)), lambda path: (trees.read(tree, path) or b"").decode(errors="replace"))


def observation_key(tree: str, command: str) -> str:
    return hashlib.sha256(f"{tree}\0{command}".encode()).hexdigest()[:24]


def _report_name(key: str) -> str:
    return f"report-{key}.json"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _run_tests(claim: Verification, tree: str, edits: Mapping[str, bytes]) -> tuple[Observation, TestReport]:
    """Run the test command; where it was killed, once more, and then it is for a person to find out why."""
    for _ in range(TRIES):
        seen, report = _run_tests_once(claim, tree, edits)
        if seen.colour is not Colour.NO_RESULT:
            return seen, report
    raise no_result_of(seen.command, killed_by(seen.exit_code, seen.tail), seen.log, claim.state)


def no_result_of(command: str, killed_by: str, log: str, state: MissionState) -> NoResult:
    return NoResult(
        f"No result: `{command}` was ended by {killed_by}, twice. Memory may have run short, or somebody ended it: "
        f"see {log}; then go on with `capsule run {state.parent or state.mission}`."
    )


def _run_tests_once(claim: Verification, tree: str, edits: Mapping[str, bytes]) -> tuple[Observation, TestReport]:
    state, services = claim.state, claim.services
    _require_dependencies(claim, tree)
    folder, sandbox_paths, reports = claim.place.gate(tree, edits)
    log = services.archive.working_folder(state.mission) / f"tests-{tree[:12]}.log"
    env = {**claim.place.variables(folder), **services.exported}
    run = partial(services.shell.run, env=env, sandbox_paths=sandbox_paths)
    _require_own_code(claim, tree, folder, run)
    services.observer.activity(state.mission, f"running {state.policy.test}")
    limit = state.policy.test_timeout_minutes * 60
    ran = run(state.policy.test, folder, log, timeout=limit, reports=reports, junit=state.policy.report)
    if ran.why == "stopped":
        raise Interrupted("Stopped while the tests were running.")
    if ran.why == "not-started":  # the machine's fault: neither red nor anybody's work to mend
        hint = f"Mend that, then go on with `capsule run {state.parent or state.mission}`."
        raise CapsuleError(f"The tests could not be started: {one_line(ran.tail)}.", hint)
    touched = claim.place.guard.restore()  # tests are an agent's code: before any git of ours meets what they left
    behind = commands_behind(state.policy.test, *_snapshot(claim, tree))
    colour = Colour.NOT_RUN if touched else colour_of(ran.why, ran.exit_code, ran.tail, behind, ran.report)
    observation = Observation(
        tree=tree,
        command=state.policy.test,
        colour=colour,
        exit_code=ran.exit_code,
        seconds=round(ran.seconds, 3),
        tail=cut("\n".join((ran.tail[-TAIL:], *touched))),
        log=str(log),
        tests=len(ran.report.results),
        passed=len(ran.report.passed),
        failing=tuple(name[:300] for name in ran.report.red[:SHOWN]),
    )
    return observation, ran.report


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
