"""Workflows as data: an ordered list of phases, each with a role and exactly one doer.

The role says what a verdict means (see the table in `core.decide`); the doer says who does the work:
`prompt` (an agent), `run` (a shell command: a gate), `do` (an action of the engine) or `workflow` (a child mission).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from capsule.core.errors import SettingsError
from capsule.core.item import EARLY, Assessment, Item, Status
from capsule.core.text import nearest


class Role(StrEnum):
    WORKER = "worker"
    REVIEW = "review"
    SOLO = "solo"
    ACTION = "action"


class Contract(StrEnum):
    """The form in which agents of a workflow answer."""

    SIGNAL = "signal"
    RESULT = "result"


class Escalation(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """After a number of setbacks, another agent or model tries."""

    after: int
    """How many setbacks."""
    agent: str = ""
    """The agent that tries then. Default: the same agent, with the other model."""
    model: str = ""
    """The model that agent uses."""


class When(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A phase with conditions runs only if all of them hold; otherwise it is skipped."""

    changed: tuple[str, ...] = ()
    """Globs; at least one file that differs from the base matches."""
    status: tuple[str, ...] = ()
    """The item's status is one of these."""
    size: tuple[str, ...] = ()
    """The item's size is one of these."""
    complexity: tuple[str, ...] = ()
    """The item's complexity is one of these."""
    risk: tuple[str, ...] = ()
    """The item's risk is one of these."""
    impact: tuple[str, ...] = ()
    """The item's impact is one of these."""

    def matches_item(self, item: Item) -> bool:
        """Tell whether the item itself meets the conditions; `changed` is checked elsewhere."""
        if self.status and item.status.value not in self.status:
            return False
        levels = ((getattr(self, name), getattr(item.assessment, name)) for name in Assessment.__struct_fields__)
        return all(not wanted or level in wanted for wanted, level in levels)


class Route(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The next status of an item when a phase has passed; the first route whose conditions hold is taken."""

    status: Status
    """The new status; a `scoped` item that passes all guardrails becomes `ready` at once."""
    when: When | None = None
    """Conditions on the item, its new assessments included."""


class Phase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    """Letters, digits, `-` and `_`; unique in the file."""
    role: Role = Role.WORKER
    """How a verdict is treated; see [roles](#roles)."""
    stage: str = ""
    """The label behind `[2/5]`; phases may share one. Default: the name."""
    prompt: str = ""
    """**Doer**: an agent with this prompt (from `prompts`, the project, or built in)."""
    run: str = ""
    """**Doer**: a shell command. Exit 0 is PASS, anything else NEEDS_WORK with the end of its output."""
    do: str = ""
    """**Doer**: an [action](#actions) of the engine."""
    workflow: str = ""
    """**Doer**: child missions that run this workflow."""
    rework: str = ""
    """The earlier phase that work is sent back to. A review must name one."""
    retries: int | None = None
    """How often this phase may send work back or be tried again."""
    agent: str = ""
    """The agent to use, by its name in the settings."""
    model: str = ""
    """The model that agent uses."""
    timeout_minutes: float | None = None
    """Time limit. Default: `execution.phase_timeout_minutes`."""
    idle_timeout_minutes: float | None = None
    """How long an agent may print nothing. Default: `execution.idle_timeout_minutes`."""
    when: When | None = None
    """Conditions; if one does not hold, the phase is skipped."""
    leads_to: tuple[Route, ...] = ()
    """The status of a backlog item when the phase has passed; see [route](#route)."""
    escalate: Escalation | None = None
    """Another agent or model after a number of setbacks."""
    checks: tuple[str, ...] = ()
    """What Capsule verifies when the phase claims success; see [checks](#checks)."""
    artefact: str = ""
    """The document that the checks `artefact` and `spec-done` look for, such as `SPEC`."""
    writes: str = ""
    """What this phase is responsible for: `tests`, or `hidden-tests`. Refuted work that only better tests can mend goes
    back to the phase that writes `tests`. One that writes `hidden-tests`, an exam, works in a copy of the base."""
    may_strike: bool = False
    """Whether its agent may strike out a test of an exam that is mistaken, in writing."""
    skill: str = ""
    """The project's own skill for this phase, if it has one. Names like `{{CHANGE_FOLDER}}` are filled in."""
    form: str = ""
    """The template that the prompt's `{{TEMPLATE}}` stands for."""
    may_close: bool = False
    """Whether its agent may report that the item is a duplicate, or done: then only `closing` phases follow."""
    closing: bool = False
    """Whether the phase also runs if an item is closed without a merge."""
    reads_only: bool = False
    """Whether what it writes is dropped, except the worklog: its verdict is about the work it was given."""

    @property
    def doer(self) -> str:
        return next(kind for kind in DOERS if getattr(self, kind))

    @property
    def works_in_place(self) -> bool:
        """Tell whether an agent or a command works in the workspace."""
        return bool(self.prompt or self.run)

    def route(self, item: Item) -> Route | None:
        """Return the next status of an item that has passed this phase."""
        return next((route for route in self.leads_to if route.when is None or route.when.matches_item(item)), None)


class Workflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    """Leave it out: a workflow has the name of its file."""
    phases: tuple[Phase, ...]
    """The phases, in order."""
    description: str = ""
    """One line for people."""
    contract: Contract = Contract.SIGNAL
    """How agents answer: by a signal at the end of their output, or by a result file."""
    workspace: str = "worktree"
    """How work is published, as journals store it; write `publish: merge` or `publish: steps` instead."""
    retries: int = 3
    """How often each review may send work back, unless the phase or the settings set it."""
    prompts: dict[str, str] = {}
    """Prompts by name, in this file."""
    otherwise: tuple[str, ...] = ()
    """Workflows to offer if there is nothing to write a failing test for."""

    @property
    def publishes_steps(self) -> bool:
        return self.workspace == "checkout"

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    def names(self) -> tuple[str, ...]:
        return tuple(phase.name for phase in self.phases)

    def sent_back(self, judge: str, target: str) -> tuple[str, ...]:
        """Return the phases done again when `judge` sends the work back to `target`, both included."""
        names = self.names()
        return names[names.index(target) : names.index(judge) + 1]

    def writer(self, kind: str, judge: str) -> str:
        """Return the last phase before `judge` that writes this; '' if there is none."""
        earlier = self.phases[: self.names().index(judge)]
        return next((phase.name for phase in reversed(earlier) if phase.writes == kind), "")

    def counter(self, name: str) -> str:
        """Return the phase whose retries a setback of this one uses: for a worker, the review it is paired with."""
        if self.phase(name).role is not Role.WORKER:
            return name
        later = self.phases[self.names().index(name) + 1 :]
        return next((phase.name for phase in later if phase.role is Role.REVIEW and phase.rework == name), name)

    def allowed_retries(self, name: str) -> int:
        own = self.phase(name).retries
        return self.retries if own is None else own

    def entry(self) -> str:
        """Return the phase where a ready item enters: the first that asks for no earlier status."""
        return next((p.name for p in self.phases if not (p.when and p.when.status)), self.phases[0].name)

    def remaining(self, item: Item) -> tuple[str, ...]:
        """Return the remaining phases for an item with this status and phase."""
        names, phase = self.names(), item.phase.lower()
        status = item.blocked.from_status if item.blocked else item.status
        if status is Status.DONE:
            return self.closing()
        if status in EARLY:
            waiting = (p.name for p in self.phases if p.when and status.value in p.when.status)
            return names[names.index(next(waiting, self.entry())) :]
        return names[names.index(phase if phase in names else self.entry()) :]

    def closing(self) -> tuple[str, ...]:
        """Return the phases that also run for an item closed without a merge."""
        return tuple(phase.name for phase in self.phases if phase.closing)

    def stages(self) -> tuple[str, ...]:
        """Return the labels behind `[2/5]`, in order."""
        return tuple(dict.fromkeys(phase.stage or phase.name for phase in self.phases))


TESTS, EXAM = "tests", "hidden-tests"
"""The values of a phase's `writes`."""
DOERS = ("prompt", "run", "do", "workflow")


def parse_workflow(data: object, *, source: str, name: str) -> Workflow:
    """Read a workflow from a YAML file's content; every error names the file and the phase."""
    if not isinstance(data, dict):
        raise SettingsError(
            f"{source} is not a workflow.", "It needs a `phases:` list; see docs/how-to/add-a-workflow."
        )
    try:
        workflow = msgspec.convert({"name": name, **data}, Workflow)
    except msgspec.ValidationError as fault:
        text, phases = str(fault), data.get("phases")
        # msgspec says `$.phases[3].role`; people know phases by name.
        for number, phase in enumerate(phases if isinstance(phases, list) else ()):
            if isinstance(phase, dict) and f"$.phases[{number}]" in text:
                text += f" (phase {phase.get('name', number)!r})"
                break
        words = text.split("`")
        known = (*Phase.__struct_fields__, *Workflow.__struct_fields__, *When.__struct_fields__)
        near = nearest(words[1], known) if len(words) > 1 else []
        hint = f"Did you mean `{near[0]}`?" if near else "Fix the file; `capsule doctor` checks it again."
        raise SettingsError(f"{source}: {text}", hint) from None
    for complaint in complaints(workflow):
        raise SettingsError(f"{source}: {complaint}", "Fix the file; `capsule doctor` checks it again.")
    return workflow


def complaints(workflow: Workflow) -> list[str]:
    """Return everything that makes a workflow unrunnable, as sentences."""
    names = workflow.names()
    twice = [name for name, count in Counter(names).items() if count > 1]
    found = [f"phase {name!r} occurs twice." for name in twice]
    if not names:
        found.append("there are no phases.")
    for position, phase in enumerate(workflow.phases):
        doers = [kind for kind in DOERS if getattr(phase, kind)]
        faults = []
        if not phase.name.replace("-", "").replace("_", "").isalnum() or not phase.name.isascii():
            faults.append("has a name with other characters than letters, digits, - and _.")
        if len(doers) != 1:
            faults.append(f"needs exactly one of {', '.join(DOERS)}; it has {' and '.join(doers) or 'none'}.")
        if phase.role is Role.REVIEW and not phase.rework:
            faults.append("is a review and must name the phase it sends back to (rework).")
        if phase.rework and phase.rework not in names[: position + 1]:
            faults.append(f"sends back to {phase.rework!r}, which is not an earlier phase.")
        if phase.writes not in ("", TESTS, EXAM):
            faults.append(f"writes {phase.writes!r}; it can only say `{TESTS}` or `{EXAM}`.")
        if phase.writes == EXAM and not phase.prompt:
            faults.append("writes an exam and needs a prompt.")
        if phase.retries is not None and phase.retries < 0:
            faults.append("has negative retries.")
        if phase.escalate and phase.escalate.after < 1:
            faults.append("escalates after less than one failure.")
        found += [f"phase {phase.name!r} {fault}" for fault in faults]
    return found
