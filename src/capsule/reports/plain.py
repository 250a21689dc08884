"""Plain lines that a person can follow: `[2/5] test-writer ...`, attempt, verdict, seconds, and what was seen."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from typing import Any, TextIO

from capsule.core.budget import Allowance, Budget, Spending, duration, in_words, left, price
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Advanced,
    Discovered,
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Observed,
    Outcome,
    ParentClosed,
    Policy,
    Rebased,
    Reopened,
    RunEnded,
    Salvaged,
    StepBegun,
    StepEnded,
    Stopped,
    Usage,
    Waiting,
    Warned,
    is_mission,
)
from capsule.core.evidence import Colour, Evidence
from capsule.core.history import halt_status, let_pass, unverified
from capsule.core.signal import Verdict
from capsule.core.stamps import clock_time
from capsule.core.state import MissionState, apply
from capsule.core.text import sentence
from capsule.reports.pulse import Pulse
from capsule.reports.style import TONES, Style, clean, output_width
from capsule.reports.words import EVIDENCE, LET_PASS, VERDICTS, claim_and_evidence

_INDENT = " " * 8
SIGN_OF_LIFE = 15.0
NO_LIMITS = Budget()


class PlainReport:
    """An observer that prints. Keeps each mission's state to know its stages."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        width: int | None = None,
        standing: Callable[[str], MissionState] = lambda _: MissionState(),
        budget: Budget = NO_LIMITS,
        sign_of_life: float = SIGN_OF_LIFE,
    ) -> None:
        """`standing` tells how a mission stands that this report has not seen begin."""
        self._stream = stream or sys.stderr
        self._style = Style(self._stream, colour)
        self._width = width or max(40, output_width(self._stream))
        self._standing = standing
        self._budget = budget
        self._states: dict[str, MissionState] = {}
        self._pulse = Pulse(self._sign, sign_of_life)

    def event(self, mission: str, event: Event) -> None:
        known = self._states.get(mission)
        # A mission that goes on begins in the middle: what the journal holds of it includes this event.
        self._states[mission] = apply(known, event) if known else self._look_up(mission, event)
        line = self.lines().get(type(event))
        with self._pulse.held():
            if line:
                line(self, mission, event)
        self._follow(mission, event)

    def _follow(self, mission: str, event: Event) -> None:
        """Tell the pulse what is going on, for when nothing else is said for a while."""
        if isinstance(event, StepBegun):
            self._pulse.begin(mission, event.phase, within=bool(self._states[mission].parent))
        elif isinstance(event, StepEnded | Stopped):
            self._pulse.end(mission)
        elif isinstance(event, Waiting):
            until = clock_time(event.at, event.seconds)
            self._pulse.now(mission, f"waiting for the provider ({event.failure.kind.value}), next try at {until}")
        elif isinstance(event, Observed):
            self._pulse.now(mission, "")
        elif isinstance(event, RunEnded):
            self._pulse.end()

    def lines(self) -> dict[type, Callable[..., None]]:
        """Return which events are printed, and how."""
        return _LINES

    def activity(self, mission: str, text: str) -> None:
        """A sign of life now and then, for phases that take long; also where nobody has anything to say."""
        self._pulse.now(mission, text)

    def _sign(self, seconds: float, text: str) -> None:
        line = clean(f"... {duration(round(seconds))}: {text}")
        self._say(line[: self._width - len(_INDENT)], _INDENT)

    def _look_up(self, mission: str, event: Event) -> MissionState:
        seen_begin = isinstance(event, MissionStarted) or not is_mission(mission)
        return apply(MissionState(), event) if seen_begin else self._standing(mission)

    def _say(self, text: str, indent: str = "") -> None:
        first = True
        for line in textwrap.wrap(clean(text), self._width - len(indent), break_on_hyphens=False) or [""]:
            self._stream.write(f"{indent}{'' if first else '  '}{line}\n")
            first = False
        self._stream.flush()

    def _started(self, mission: str, event: MissionStarted) -> None:
        self._print("bold", f"{mission}: {clean(event.item.title)}")
        self._say(f"workflow {event.workflow.name}, base {event.base[:12]}, into {event.into}", "  ")
        if not self._doubted(event.policy):
            self._say(f"tests by `{event.policy.test}`", "  ")

    def _doubted(self, policy: Policy) -> bool:
        """Says from the first on what will not be checked."""
        why = unverified(policy)
        if why:
            self._print("yellow", f"  {why}")
            if policy.verify != "off":
                self._say("Name one: evidence.test in .capsule/config.yaml.", "  ")
        return bool(why)

    def _begun(self, mission: str, event: StepBegun) -> None:
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        agent = f" by {event.agent}" if event.agent else ""
        self._stream.write(f"{self._stage(mission, event.phase)} {event.phase} ...{again}{agent}\n")
        self._stream.flush()

    def _ended(self, mission: str, event: StepEnded) -> None:
        decision, outcome = event.decision, event.outcome
        word = self._verdict(event, decision.verdict.value)
        stage = self._stage(mission, event.phase)
        cost = f", {price(outcome.usage)}" if price(outcome.usage) else ""
        self._stream.write(f"{stage} {event.phase} {word} {outcome.seconds:.1f} s{cost}{_claim(event)}\n")
        if outcome.signal.summary and decision.verdict is not Verdict.REFUTED:
            self._say(outcome.signal.summary, _INDENT)
        for piece in outcome.evidence:
            self._evidence(piece)
        self._failure(outcome)
        for warning in outcome.warnings:
            self._say(f"! {warning}", _INDENT)
        self._cost(mission, outcome)
        self._consequence(decision)

    def _verdict(self, event: StepEnded, word: str) -> str:
        """A success that what was seen speaks against says so itself."""
        verdict = event.decision.verdict
        if let_pass(verdict, event.outcome.evidence):
            return self._style.paint("yellow", f"{word} ({LET_PASS})")
        return self._style.paint(TONES[VERDICTS[verdict].tone], word)

    def _cost(self, mission: str, outcome: Outcome, indent: str = _INDENT) -> None:
        """Print the mission's total; the first agent's price is all of it, and was printed already."""
        spent, allowed = self._states[mission].spending, self._budget.mission
        if price(outcome.usage) and (spent.runs > 1 or allowed != NO_LIMITS.mission):
            self._say(f"so far: {in_words(spent)}{_left(spent, allowed)}", indent)

    def _failure(self, outcome: Outcome, indent: str = _INDENT) -> None:
        """Print what a person can do about a failure; its reason is printed with the consequence."""
        if outcome.failure and outcome.failure.hint:
            self._say(f"! {outcome.failure.kind.value}: {outcome.failure.hint}", indent)

    def _evidence(self, piece: Evidence) -> None:
        look = EVIDENCE[piece.standing]
        self._stream.write(f"{_INDENT}{self._style.paint(TONES[look.tone], look.sign)} ")
        lines = textwrap.wrap(clean(claim_and_evidence(piece)), self._width - len(_INDENT) - 2, break_on_hyphens=False)
        self._stream.write(f"\n{_INDENT}  ".join(lines) + "\n")

    def _consequence(self, decision: Decision) -> None:
        words = _CONSEQUENCES.get(decision.move)
        if words:
            self._say(words(decision), _INDENT)

    def _observed(self, _mission: str, event: Observed) -> None:
        seen = event.observation
        colour = "green" if seen.colour is Colour.GREEN else "red"
        word = self._style.paint(colour, seen.colour.value)
        self._stream.write(f"{_INDENT}tests on {seen.tree[:12]}: {word} ({seen.seconds:.1f} s)\n")

    def _stage(self, mission: str, phase: str) -> str:
        workflow = self._states[mission].workflow
        stages = workflow.stages()
        found = workflow.phase(phase)
        return f"[{stages.index(found.stage or found.name) + 1}/{len(stages)}]"

    def _print(self, colour: str, text: str) -> None:
        self._stream.write(self._style.paint(colour, text) + "\n")
        self._stream.flush()


def _left(spent: Spending, allowed: Allowance) -> str:
    rest = left(spent, allowed)
    time = duration(rest.seconds) if rest.seconds is not None else ""
    parts = [part for part in (price(Usage(usd=rest.usd, tokens_in=rest.tokens)), time) if part]
    return f"; left of its budget: {', '.join(parts)}" if parts else ""


def _claim(event: StepEnded) -> str:
    claimed, verdict = event.outcome.signal.verdict, event.decision.verdict
    return f" (it claimed {claimed.value})" if claimed is not verdict else ""


_CONSEQUENCES: dict[Move, Callable[[Decision], str]] = {
    Move.RETRY: lambda d: f"→ back to {d.back_to} with the evidence",
    Move.REWORK: lambda d: f"→ back to {d.back_to}: {d.reason}",
    Move.PARK: lambda d: f"→ {halt_status(d).words}: {d.reason}",
    Move.ABORT: lambda d: f"→ {halt_status(d).words}: {d.reason}",
    Move.CLOSE: lambda d: f"→ closed: {d.reason}",
}


def _says(words: Callable[[str, Any], str], indent: str = "") -> Callable[..., None]:
    return lambda report, mission, event: report._say(words(mission, event), indent)


def _moved(mission: str, event: MovedByHand) -> str:
    if event.item:
        return f"! {mission} was moved by hand: {event.expected} → {event.found}"
    return f"! {event.what} was {event.found} by hand"


def _waiting(_mission: str, event: Waiting) -> str:
    until = clock_time(event.at, event.seconds)
    return f"! {sentence(event.failure.reason)} Waiting {duration(event.seconds)}, next try at {until}."


_LINES: dict[type, Callable[..., None]] = {
    MissionStarted: PlainReport._started,
    StepBegun: PlainReport._begun,
    StepEnded: PlainReport._ended,
    Observed: PlainReport._observed,
    Reopened: _says(lambda mission, event: f"{mission} resumes{', with your changes' if event.checkpoint else ''}."),
    Rebased: _says(
        lambda mission, event: f"{mission} was rebuilt on {event.base[:12]}; it resumes at {event.re_enter}."
    ),
    Salvaged: _says(lambda _, event: f"salvaged: {event.ref} ({event.why})", _INDENT),
    MovedByHand: _says(_moved, _INDENT),
    Waiting: _says(_waiting, _INDENT),
    Warned: _says(lambda _, event: f"! {event.text}"),
    ItemClosed: _says(lambda mission, _: f"{mission} is closed in the tracker", _INDENT),
    Advanced: _says(lambda _, event: f"{event.item} {event.title}: {event.done} of {event.of} done"),
    ParentClosed: _says(lambda _, event: f"{event.item} {event.title} is closed: {event.reason}"),
    Discovered: _says(
        lambda _, event: f"follow-ups filed: {'; '.join(f'{item} {title}' for item, title in event.items.items())}",
        _INDENT,
    ),
}
