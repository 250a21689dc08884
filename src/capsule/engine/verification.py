"""Run the test command on a tree in the gate, once, and return what was seen.

The gate is a clean place that holds exactly this tree. Results are journaled by tree, so nothing is run twice, and
leftovers of an agent do not affect it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from capsule.adapters import Place, Ran
from capsule.core.detection import TreeFiles, detect
from capsule.core.errors import CapsuleError, Interrupted, NeedsPerson, NoResult
from capsule.core.event import Observed, TestsFound, cut
from capsule.core.evidence import REUSABLE, Change, Colour, Observation, is_doubtful
from capsule.core.frozen import Judges, reach
from capsule.core.proof import Baseline, TestEdits, baseline_of, edits_of, fresh_tests, judge_green, split_name
from capsule.core.signal import Signal
from capsule.core.state import MissionState, baseline, kept_code
from capsule.core.test_report import TestReport
from capsule.core.test_runs import colour_of, killed_by
from capsule.core.text import one_line
from capsule.core.workflow import Phase
from capsule.services import Services

TAIL = 6000
TRIES = 2
"""How often a command that is killed from outside is run."""
SHOWN = 12
Edit = Callable[[], tuple[Mapping[str, bytes], Sequence[str]]]
"""Return the changed files of a tree, and one line for each change."""
AGAIN = "again"
"""The variant of a second run, which finds flaky tests."""
_ALONE = "\0alone"
"""The variant of a run while no other tests run."""


class Verification(Struct):
    """One phase's claim, and the services to check it with."""

    state: MissionState
    phase: Phase
    signal: Signal
    place: Place
    services: Services
    tree: str
    """The tree that would be delivered now."""
    before: str
    """That tree when the phase began."""
    seen: dict[str, tuple[Observation, TestReport]] = field(default_factory=dict)
    doubtful: dict[str, Callable[[], tuple[Observation, TestReport]]] = field(default_factory=dict)
    """Red runs that another mission may have caused: by key, the call that repeats it alone."""
    signed_off: Sequence[Verification] = ()
    """Of a merge: the signed-off trees of all its works, to find what is new."""
    tested_by: str = ""
    """The mission that runs the tests, and has their results in its stream, if that is another one."""

    @property
    def tester(self) -> str:
        return self.tested_by or self.state.mission

    @property
    def base_tree(self) -> str:
        return self.place.base_checkpoint(self.state.base).tree

    @property
    def now(self) -> TestReport:
        """Return how each test ends on the tree."""
        return self.run_of(self.tree)[1]

    def text(self, path: str, tree: str = "") -> bytes:
        """Return the content of a file, in the tree or in another; empty if there is none of that name."""
        return self.place.trees.read(tree or self.tree, path) or b""

    def observe(self, tree: str) -> Observation:
        """Return the result of the test command on a tree: from the journal, or by running it.

        If it is red while other missions run, it is repeated alone.
        """
        self.run_of(tree)
        if ask := self.doubtful.pop(self._key(tree), None):
            ask()
        return self.run_of(tree)[0]

    def ask_alone(self) -> bool:
        """Repeat, alone, what was red while other missions ran; return whether there was anything."""
        asked = [*self.doubtful.values()]
        self.doubtful.clear()
        for ask in asked:
            ask()
        return bool(asked)

    def observe_again(self) -> Observation:
        """Run the test command on the tree once more; the claim is then judged by that run."""
        self.seen[self._key(self.tree, _ALONE)] = again = self.run_of(self.tree, AGAIN)
        return again[0]

    def run_of(
        self, tree: str, variant: str = "", edit: Edit | None = None, timeout: float | None = None
    ) -> tuple[Observation, TestReport]:
        """Return the result of the test command on a tree, and how each test ended.

        A `variant` names a run of its own: a second one, or one with an edit of the tree, which is made if it is run.
        With a `timeout` of its own, in seconds, a run that is too slow is a result like any other.
        """
        found = self.known(tree, variant) or self._run(self._key(tree, variant), tree, edit, timeout)
        if is_doubtful(found[0]) and not timeout:  # a mutant has a time-out of its own
            key = self._key(tree, f"{variant}{_ALONE}")
            self.doubtful[self._key(tree, variant)] = partial(self._run, key, tree, edit, None, alone=True)
        return found

    def _run(
        self, key: str, tree: str, edit: Edit | None, timeout: float | None, *, alone: bool = False
    ) -> tuple[Observation, TestReport]:
        files, lines = edit() if edit else ({}, ())
        seconds = timeout or self.state.policy.test_timeout_minutes * 60
        observation, report = _run_tests(self, tree, files, seconds, alone=alone)
        observation = replace(observation, edits=tuple(lines), alone=alone)
        counts = observation.colour in REUSABLE or (timeout and observation.colour is Colour.TIMED_OUT)
        if counts:
            if report.results or report.errors:
                text = self.services.redact(msgspec.json.encode(report).decode())
                self.services.archive.put(self.tester, _report_name(key), text)
                observation = replace(observation, report=_hash(text))
            self.note(Observed(at=self.services.clock.now(), key=key, observation=observation))
        if counts or alone:
            self.seen[key] = observation, report
        return observation, report

    def known(self, tree: str, variant: str = "") -> tuple[Observation, TestReport] | None:
        """Return a known result for a tree, without running anything."""
        alone = self._remembered(self._key(tree, f"{variant}{_ALONE}"))
        return alone or self._remembered(self._key(tree, variant))

    def _key(self, tree: str, variant: str = "") -> str:
        suffix = f"\0{variant}" if variant else ""
        return _hash(f"{self.place.trees.test_cache_key(tree)}{suffix}\0{self.state.policy.test}")

    def _remembered(self, key: str) -> tuple[Observation, TestReport] | None:
        """Return a run from the journal; None if its test names are gone, so that it runs again."""
        observation = self.state.observations.get(key)
        if key in self.seen or observation is None:
            return self.seen.get(key)
        if not observation.report:
            return observation, TestReport()
        text = self.services.archive.text(self.state.mission, _report_name(key))
        return (observation, msgspec.json.decode(text, type=TestReport)) if _hash(text) == observation.report else None

    def note(self, event: Observed | TestsFound) -> None:
        self.services.journal.note(self.tester, event)
        self.services.observer.event(self.tester, event)

    def baseline(self) -> Baseline | None:
        """Return how the tests of the base ended, by name; None if only an exit code is known."""
        if self.signed_off:
            return self.signed_off[0].baseline()
        if self.state.policy.first_tests:
            return Baseline(TestReport(complete=True))
        seen, report = self.observe(self.base_tree), self.run_of(self.base_tree)[1]
        if seen.colour is Colour.EMPTY and not report.results:
            return Baseline(TestReport(complete=True))
        if not report.complete:
            return None
        again = self.run_of(self.base_tree, AGAIN)[1] if report.red else None
        return baseline_of(report, again if again and again.complete else None)

    def new_tests(self) -> list[str]:
        """Return the tests that are new or changed, by name; empty without test names."""
        if self.signed_off:
            return list(dict.fromkeys(name for work in self.signed_off for name in work.new_tests()))
        base, now = self.baseline(), self.now
        return fresh_tests(base, now, self.test_edits()) if base and now.complete else []

    def seen_red(self, base: Baseline) -> list[str]:
        """Return the new tests that were red on the tree that the last review approved, if that run is known."""
        since = self.since()
        known = self.known(since) if since != self.state.base else None
        again = self.known(since, AGAIN)
        flaky = again[1].passed if again else ()
        return [name for name in known[1].red if name not in base.failing and name not in flaky] if known else []

    def is_green(self) -> bool:
        """Tell whether the tests are known to pass on the tree, without running them."""
        known = self.known(self.tree) if self.state.policy.test else None
        if known is None:
            return False
        (seen, now), base = known, self.baseline()
        if base is None or not now.complete:
            return seen.colour is Colour.GREEN
        return judge_green(base, now, self.test_edits(), self.seen_red(base), frozen=True).holds

    def changes(self, since: str) -> Sequence[Change]:
        return self.place.trees.changes(since, self.tree)

    def test_edits(self, since: str = "") -> TestEdits:
        """Compare the test files with those of the base, or of another tree."""
        read, since = self.place.trees.read, since or self.state.base
        judges = self.judges(since)
        paths = [each.path for each in self.changes(since) if judges.is_for_tests(each.path)]
        return edits_of((path, read(since, path), read(self.tree, path)) for path in paths)

    def judges(self, since: str) -> Judges:
        """Return what judges the code, as the tree `since` has it."""
        policy = self.state.policy
        runs = [self.known(tree) for tree in (self.base_tree, *((since,) if since != self.state.base else ()))]
        places = {split_name(name)[0] for known in runs if known for name in known[1].results}
        return Judges(policy.test_globs, policy.test, self.snapshot(since), self.snapshot(self.tree), places)

    def snapshot(self, tree: str) -> TreeFiles:
        files = frozenset(self.place.trees.files(tree))
        return TreeFiles(files, lambda path: self.text(path, tree).decode(errors="replace") if path in files else "")

    def since(self) -> str:
        """Return the tree that the last review approved, or the base."""
        approved = baseline(self.state, self.phase.name)
        return self.place.delivered(approved) if approved else self.kept() or self.state.base

    def kept(self) -> str:
        """Return the tree that went back for better tests, including its code; '' if none did."""
        code = kept_code(self.state)
        return self.place.delivered(code) if code else ""

    def since_document(self) -> str:
        """Return the tree after the phase that writes this phase's document, or the base."""
        names = self.state.workflow.names()
        earlier = self.state.workflow.phases[: names.index(self.phase.name)]
        writers = [p.name for p in earlier if p.artefact == self.phase.artefact != "" and p.name in self.state.approved]
        return self.place.delivered(self.state.approved[writers[-1]]) if writers else self.state.base


def detect_tests(claim: Verification) -> None:
    """Look for the test command again if the base had none, and journal it: new tests then judge the work."""
    policy = claim.state.policy
    if not policy.detect or policy.test:
        return
    tree = claim.snapshot(claim.tree)
    command, globs, in_sources = detect(tree)
    if not command:
        return
    found = replace(
        policy, test=command, test_globs=policy.test_globs or globs, tests_in_sources=in_sources, first_tests=True
    )
    claim.note(TestsFound(at=claim.services.clock.now(), policy=found))
    claim.state = replace(claim.state, policy=found)


def _run_tests(
    claim: Verification, tree: str, edits: Mapping[str, bytes], timeout: float, *, alone: bool
) -> tuple[Observation, TestReport]:
    """Run the test command; if it was killed, once more, and then ask a person."""
    for _ in range(TRIES):
        seen, report = _run_tests_once(claim, tree, edits, timeout, alone=alone)
        if seen.colour is not Colour.NO_RESULT:
            return seen, report
    raise no_result_of(seen.command, killed_by(seen.exit_code, seen.tail), seen.log, claim.state)


def no_result_of(command: str, killed_by: str, log: str, state: MissionState) -> NoResult:
    return NoResult(
        f"No result: `{command}` was ended by {killed_by}, twice. Memory may have run short, or it was killed: "
        f"see {log}; {_then(state)}."
    )


def _run_tests_once(
    claim: Verification, tree: str, edits: Mapping[str, bytes], timeout: float, *, alone: bool
) -> tuple[Observation, TestReport]:
    state, services = claim.state, claim.services
    _require_dependencies(claim, tree)
    folder, sandbox_paths, reports = claim.place.gate(tree, edits)
    log = services.archive.working_folder(claim.tester) / f"tests-{tree[:12]}.log"
    env = {**claim.place.variables(folder), **services.exported()}
    run = partial(services.shell.run, env=env, sandbox_paths=sandbox_paths)
    _require_own_code(claim, tree, folder, run)
    how = "waiting to run, alone," if alone else "running"
    services.observer.activity(claim.tester, f"{how} {state.policy.test}")
    ran = run(state.policy.test, folder, log, timeout=timeout, reports=reports, junit=state.policy.report, alone=alone)
    if ran.why == "stopped":
        raise Interrupted("Stopped while the tests were running.")
    if ran.why == "not-started":  # the machine's fault: neither red nor to be fixed by an agent
        raise CapsuleError(f"The tests could not be started: {one_line(ran.tail)}.", f"Fix that, {_then(state)}.")
    touched = claim.place.guard.restore()  # tests run an agent's code: before our git touches what they left
    if not edits and not touched:
        claim.place.keep_caches(tree)
    behind = reach(state.policy.test, claim.snapshot(tree)).text
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
        beside=ran.beside,
    )
    return observation, ran.report


def _require_dependencies(claim: Verification, tree: str) -> None:
    """Require that the tree's dependencies are installed: with others its tests prove nothing."""
    manifest, command = claim.place.missing_setup(tree)
    if manifest:
        cause = f"{manifest} needs other dependencies than those installed in your checkout."
        setup = f"Set `workspace.setup: {command}`, or another command that installs them, in .capsule/config.yaml"
        hint = f"{setup}; {_then(claim.state)}."
        raise NeedsPerson(cause, hint)


def _require_own_code(claim: Verification, tree: str, folder: Path, run: Callable[..., Ran]) -> None:
    """Require that tests load the tree's own code: with the checkout's they would be green for any tree."""
    state, services = claim.state, claim.services

    def ask(command: str) -> str:
        log = services.archive.working_folder(claim.tester) / "probe.log"
        return run(command, folder, log, timeout=_PROBE_SECONDS).tail

    found = claim.place.strays(tree, folder, state.policy.test, ask)
    if found:
        name, path = found[0]
        cause = f"The tests would not test the change: `{name}` is loaded from {path}, in your checkout."
        hint = f"Set a `workspace.setup` that installs the project where it runs, such as `{_INSTALL}`; {_then(state)}."
        raise NeedsPerson(cause, hint)


_PROBE_SECONDS = 60
_INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."


def _then(state: MissionState) -> str:
    return f"then go on with `capsule run {state.parent or state.mission}`"


def _report_name(key: str) -> str:
    return f"report-{key}.json"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
