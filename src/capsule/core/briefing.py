"""Compose an agent's prompt; describe its answer.

Templates know two forms: `{{NAME}}`, and `{{#NAME}} ... {{/NAME}}` which is kept only where NAME has a value.
Substitution is one pass by a function: a value is never expanded again, so `{{TASK_ID}}` in an item's title stays text.
What people, trackers and earlier agents wrote stands in fences that their words cannot end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from capsule.core.documents import artefact_path, change_folder, idea_path
from capsule.core.errors import SettingsError
from capsule.core.event import Usage, cut
from capsule.core.failure import Failure
from capsule.core.item import LEVELS, Assessment
from capsule.core.state import MissionState
from capsule.core.text import without_controls

_BLOCK = re.compile(r"^[ \t]*\{\{#([A-Z_]+)\}\}[ \t]*\n(.*?)^[ \t]*\{\{/\1\}\}[ \t]*\n?", re.DOTALL | re.MULTILINE)
_INLINE_BLOCK = re.compile(r"\{\{#([A-Z_]+)\}\}(.*?)\{\{/\1\}\}", re.DOTALL)
_LONE = re.compile(r"\{\{([#/])([A-Z_]+)\}\}")
_NAME = re.compile(r"\{\{([A-Z_]+)\}\}")

LONGEST_FEEDBACK = 24 * 1024
LONGEST_ARGUMENT = 100 * 1024
"""A prompt longer than this goes by stdin: the kernel refuses arguments over 128 KiB."""


class SandboxPaths(msgspec.Struct, frozen=True):
    """Paths that an agent may touch where a sandbox can enforce it; everything else it can at most read."""

    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    """Read-only again, although it lies inside what is writable."""
    stand_ins: tuple[tuple[str, str], ...] = ()
    """(path, what the agent sees there instead), writable."""
    place: str = ""
    """The folder where the work is done, writable; in the sandbox it is seen at `at`, and nowhere else."""
    at: str = ""
    """The checkout's own path, where `place` is mounted; '' leaves `place` at its own."""
    shown: tuple[tuple[str, str], ...] = ()
    """(path, what the agent sees there instead), read only."""
    layers: tuple[tuple[str, str], ...] = ()
    """(path, folder): the folder's content is seen there below a layer of this run's own that is thrown away."""
    hidden: tuple[str, ...] = ()
    """Folders that are hidden, except for what the other fields name and a place that is mounted over them."""


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one agent run needs. Paths are text: the core does not touch them."""

    mission: str
    item: str
    phase: str
    run: int
    prompt: str
    cwd: str
    log: str
    """stdout goes here, stderr to `<log>.stderr`, raw events to `<log>.events`."""
    keep: str = ""
    """A folder outside the agent's reach that holds the same files, so that deleting the worktree loses no output."""
    timeout: float
    idle_timeout: float
    model: str = ""
    env: dict[str, str] = {}
    result_path: str = ""
    sandbox_paths: SandboxPaths = SandboxPaths()
    most_usd: float | None = None
    """The most this run may cost, for CLIs that can enforce it."""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an agent run; `text` is its last output, enough to hold any signal.

    No failure means that the CLI reported success, or that it does not report in a form we can read: then the exit
    code and the text are all there is. `agents/_recording.py` keeps the fields that a replay needs, and
    `agents/scripted.py` plays them.
    """

    why: str
    """exited, timeout, idle, stopped or not-started."""
    exit_code: int | None
    seconds: float
    text: bytes
    stderr: bytes = b""
    """The end of what it printed there."""
    failure: Failure | None = None
    usage: Usage | None = None
    leftovers: int = 0
    detail: str = ""
    withheld: tuple[str, ...] = ()
    """Names of the user's variables that it was not given; told where it exited badly."""
    orphaned: bool = False
    """It was ended because its supervisor had died."""


def fill(template: str, values: Mapping[str, str], *, source: str = "template") -> str:
    """Substitute once; a name without a value is an error, since it would otherwise reach an agent as is."""
    kept = template
    for block in (_BLOCK, _INLINE_BLOCK):
        kept = block.sub(lambda found: found.group(2) if _value(values, found.group(1), source) else "", kept)
    if lone := _LONE.search(kept):
        mark, name = lone.groups()
        other = "/" if mark == "#" else "#"
        missing = f"{{{{{other}{name}}}}}"
        raise SettingsError(f"{source} has {lone[0]} without {missing}.", f"Add {missing}, or remove {lone[0]}.")
    return _NAME.sub(lambda found: _value(values, found.group(1), source), kept)


def _value(values: Mapping[str, str], name: str, source: str) -> str:
    if name not in values:
        known = ", ".join(sorted(values)) or "none"
        raise SettingsError(f"{source} uses {{{{{name}}}}}, which has no meaning here.", f"Names that do: {known}.")
    return values[name]


def compose(
    prompt: str,
    values: Mapping[str, str],
    feedback_part: str,
    feedback: str,
    *,
    findings_part: str = "",
    findings: str = "",
    source: str = "prompt",
) -> str:
    """Return the prompt with a review's earlier findings after it, and the last review's feedback at its very end."""
    text = fill(prompt, values, source=source).rstrip() + "\n"
    if findings:
        text += f"\n{fill(findings_part, {**values, 'FINDINGS': fenced(findings)}).strip()}\n"
    return f"{text}\n{fill(feedback_part, {'FEEDBACK': fenced(feedback)}).strip()}\n" if feedback else text


def fitting(feedback: str, full_text_at: str) -> str:
    """Cut feedback to a length that an agent reads in one go, and name the file with all of it."""
    return cut(feedback, LONGEST_FEEDBACK, full_text_at)


def with_parts(values: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, str]:
    """Add each part as a value of its own, filled in with the values."""
    filled = {name: fill(text, values, source=f"the part {name}").strip() for name, text in parts.items()}
    return {**values, **filled}


def prompt_values(
    state: MissionState, phase: str, result_path: str, *, paths: Sequence[str] = (), skills: bool = False
) -> dict[str, str]:
    """Return a value for every name that a prompt may use; `paths` are the item's documents in the tree."""
    item, plan = state.item, state.workflow.phase(phase)
    levels = {name: getattr(item.assessment, name) for name in item.assessment.__struct_fields__}
    values = {
        "ITEM_ID": item.id,
        "ITEM_TITLE": without_controls(" ".join(item.title.split())),
        "ITEM_ORIGIN": without_controls(" ".join(item.origin.split())),
        "ITEM_DESCRIPTION": fenced(item.description),
        "ITEM_ACCEPTANCE": fenced(item.acceptance),
        "ASSESSMENTS": ", ".join(f"{name} {value}" for name, value in levels.items() if value),
        "DEPTH": depth(item.assessment),
        "UNBLOCK_NOTES": fenced(item.unblock_context),
        "PREVIOUS_SUMMARY": fenced(state.summary),
        "EARLIER_WORK": fenced(state.earlier),
        "FAILURE_CONTEXT": fenced(cut(state.feedback.get(phase, ""), LONGEST_FEEDBACK)),
        "RESULT_PATH": result_path,
        "CHANGE_FOLDER": change_folder(item, paths),
        "SPEC_PATH": artefact_path(item, "SPEC", paths),
        "ARTEFACT_PATH": artefact_path(item, plan.artefact, paths) if plan.artefact else "",
        "IDEA_PATH": idea_path(item, paths),
        "PHASE": phase,
        "TEST_COMMAND": state.policy.test,
        "SIGNATURES": "",
    }
    return {**values, "SKILL": fill(plan.skill, values, source=f"skill of {phase}") if skills else ""}


DEPTHS = ("light", "medium", "deep")


def depth(assessment: Assessment) -> str:
    """Return how far research and design should go, by the larger of size and complexity.

    Unknown counts as medium.
    """
    return DEPTHS[max(LEVELS.get(level or "medium", 2) for level in (assessment.size, assessment.complexity)) - 1]


def fenced(text: str) -> str:
    """Put untrusted words into a fence longer than any fence in them; leave empty text empty."""
    words = without_controls(text).strip("\n")
    if not words.strip():
        return ""
    longest = max(map(len, re.findall(r"`+|~+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{words}\n{fence}"
