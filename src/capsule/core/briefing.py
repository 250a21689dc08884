"""What an agent is told, and what it answered.

Templates know two forms: `{{NAME}}`, and `{{#NAME}} ... {{/NAME}}` which is kept only where NAME has a value.
Substitution is one pass by a function: a value is never expanded again, so `{{TASK_ID}}` in an item's title stays text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from capsule.core.errors import SettingsError
from capsule.core.event import Usage, cut
from capsule.core.state import MissionState

_BLOCK = re.compile(r"^[ \t]*\{\{#([A-Z_]+)\}\}[ \t]*\n(.*?)^[ \t]*\{\{/\1\}\}[ \t]*\n?", re.DOTALL | re.MULTILINE)
_INLINE_BLOCK = re.compile(r"\{\{#([A-Z_]+)\}\}(.*?)\{\{/\1\}\}", re.DOTALL)
_NAME = re.compile(r"\{\{([A-Z_]+)\}\}")

LONGEST_FEEDBACK = 24 * 1024
LONGEST_ARGUMENT = 100 * 1024
"""A prompt longer than this goes by stdin: the kernel refuses arguments over 128 KiB."""


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


class Outage(msgspec.Struct, frozen=True):
    """The agent could not run. Not a verdict: it costs no retry, and the item stays where it was."""

    kind: str
    reason: str
    hint: str = ""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent run ended. `text` is the end of its output: enough to hold any signal."""

    why: str
    """exited, timeout, idle, stopped or not-started."""
    exit_code: int | None
    seconds: float
    text: bytes
    outage: Outage | None = None
    usage: Usage | None = None
    leftovers: int = 0
    detail: str = ""


def fill(template: str, values: Mapping[str, str], *, source: str = "template") -> str:
    """Substitute once. A name without a value is an error: it would otherwise reach an agent as is."""
    kept = template
    for block in (_BLOCK, _INLINE_BLOCK):
        kept = block.sub(lambda found: found.group(2) if _value(values, found.group(1), source) else "", kept)
    return _NAME.sub(lambda found: _value(values, found.group(1), source), kept)


def _value(values: Mapping[str, str], name: str, source: str) -> str:
    if name not in values:
        known = ", ".join(sorted(values)) or "none"
        raise SettingsError(f"{source} uses {{{{{name}}}}}, which has no meaning here.", f"Names that do: {known}.")
    return values[name]


def compose(
    prompt: str, values: Mapping[str, str], feedback_part: str, feedback: str, *, source: str = "prompt"
) -> str:
    """The prompt, and at its very end what the last review had to say."""
    text = fill(prompt, values, source=source).rstrip() + "\n"
    return f"{text}\n{fill(feedback_part, {'FEEDBACK': feedback}).strip()}\n" if feedback else text


def fitting(feedback: str, full_text_at: str) -> str:
    """Feedback that an agent can read in one go; the rest is in the file named."""
    return cut(feedback, LONGEST_FEEDBACK, full_text_at)


def prompt_values(state: MissionState, phase: str, result_path: str) -> dict[str, str]:
    """Every name a prompt may use."""
    item = state.item
    levels = {name: getattr(item.assessment, name) for name in item.assessment.__struct_fields__}
    folder = f"changes/{item.id}_{slug(item.title)}"
    stem = f"{folder}/{item.id}_{slug(item.title)}"
    return {
        "ITEM_ID": item.id,
        "ITEM_TITLE": " ".join(item.title.split()),
        "ITEM_DESCRIPTION": item.description,
        "ASSESSMENTS": ", ".join(f"{name} {value}" for name, value in levels.items() if value),
        "PREVIOUS_SUMMARY": state.summary,
        "UNBLOCK_NOTES": "",
        "FAILURE_CONTEXT": state.feedback.get(phase, ""),
        "RESULT_PATH": result_path,
        "CHANGE_FOLDER": folder,
        "SPEC_PATH": f"{stem}_SPEC.md",
        "ARTEFACT_PATH": f"{stem}_{state.workflow.phase(phase).artefact}.md",
        "IDEA_PATH": f"_ideas/{item.id}_{slug(item.title)}.md",
        "PHASE": phase,
    }


def slug(title: str) -> str:
    """ASCII lower case and hyphens, at most 50 characters; `item` where nothing is left."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words)[:50].strip("-") or "item"
