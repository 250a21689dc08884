"""Write the skills that phases name from their prompts, one file each, with templates of documents.

A phase's `skill: /changes:0-prd:create-prd ...` is workflows/0-prd/create-prd.md in the folder of skills. A person
invokes it the same way, on a change of their own, so values that only Capsule knows become placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from capsule.catalog import Catalog
from capsule.core.errors import CapsuleError
from capsule.core.workflow import Phase
from capsule.project import Project
from capsule.wiring import SKILLS

_FORM = re.compile(r"~~~markdown\n\{\{TEMPLATE\}\}\n~~~")
_NAME = re.compile(r"\{\{([A-Z_]+)\}\}")
_PATHS = {"CHANGE_FOLDER": "CHANGE_FOLDER", "IDEA_PATH": "_ideas/ID_*.md", "SPEC_PATH": "CHANGE_FOLDER/*_SPEC.md"}
_FOR_CAPSULE = re.compile(r"^(?:Report `|With `FAILED`|Capsule looks|\{\{RESULT_CONTRACT\}\})")
"""Paragraphs that only make sense in a phase's prompt."""
_LOOKS = re.compile(r" Capsule (?:looks|runs)\b.*", re.DOTALL)
"""The end of such a paragraph."""
_INDEX = """\
---
name: changes
description: The phases of a change, from requirements to review. Use it for /changes:... commands.
---

# Changes

`/changes:FOLDER:NAME CHANGE_FOLDER MODE [DEPTH]` means: follow `workflows/FOLDER/NAME.md` beside this file.

- CHANGE_FOLDER is where the documents of one change lie, such as `changes/{prefix}-001_a-title/`.
- MODE is `autonomous` (decide, and write each assumption down) or `interactive` (ask the person).
- DEPTH is `light`, `medium` or `deep`; without one it is `medium`.

| phase | file |
|---|---|
{rows}

The forms of the documents are in `templates/`. An idea has one too: `templates/idea-template.md`.
"""


def skill_files(project: Project) -> dict[str, str]:
    """Return every skill that a workflow of this project names, the templates, and an index page, by path."""
    words = Catalog.on_disk(project.root)
    phases = {skill_file(phase): phase for phase in _phases(words)}
    found = {f"{SKILLS}/{file}": _page(words, phase) for file, phase in phases.items()}
    forms = dict.fromkeys(["change/idea.md", *(phase.form for phase in phases.values() if phase.form)])
    prefix = project.settings.project.prefix
    for form in forms:
        text = words.template(form).replace("{{ITEM_ID}}", f"{prefix}-001")
        found[f"{SKILLS}/{_template_of(form)}"] = text.replace("{{ITEM_TITLE}}", "the title of the change")
    rows = "\n".join(f"| {phase.name} | `{file}` |" for file, phase in sorted(phases.items()))
    return {f"{SKILLS}/SKILL.md": _INDEX.format(prefix=prefix, rows=rows), **found}


def skill_names(project: Project) -> list[str]:
    """List the files of all workflows' skills in the folder of skills."""
    return sorted({skill_file(phase) for phase in _phases(Catalog.on_disk(project.root))})


def skill_file(phase: Phase) -> str:
    """Return the file of a phase's skill in the folder of skills."""
    return f"workflows/{'/'.join(phase.skill.split()[0].split(':')[1:])}.md"


def _phases(words: Catalog) -> Iterator[Phase]:
    """Yield the phases with a skill and a prompt to make it from."""
    for name in words.names("workflow"):
        try:
            workflow = words.workflow(name)
        except CapsuleError:
            continue  # `init` and `doctor` report the fault
        yield from (phase for phase in workflow.phases if phase.skill and phase.prompt)


def _page(words: Catalog, phase: Phase) -> str:
    """Return the prompt of a phase without Capsule's own values and requests."""
    text = words.prompt(phase.prompt)
    form = f"`{SKILLS}/{_template_of(phase.form)}`" if phase.form else ""
    known = {**_PATHS, "ARTEFACT_PATH": f"CHANGE_FOLDER/*_{phase.artefact}.md", "PREAMBLE": _arguments(phase)}
    parts = [part for part in _FORM.sub(form, text).split("\n\n") if not _FOR_CAPSULE.match(part)]
    kept = "\n\n".join(_LOOKS.sub("", part) for part in parts)
    return _NAME.sub(lambda found: known.get(found[1], ""), kept).rstrip() + "\n"


def _arguments(phase: Phase) -> str:
    given = ["CHANGE_FOLDER", "MODE", "DEPTH"][: len(phase.skill.split()) - 1]
    return f"Arguments: {', '.join(given)} (see `{SKILLS}/SKILL.md`)."


def _template_of(form: str) -> str:
    """`change/TECH_RESEARCH.md` is templates/tech-research-template.md."""
    name = form.rpartition("/")[2].removesuffix(".md").lower().replace("_", "-")
    return f"templates/{name}-template.md"
