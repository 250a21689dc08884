"""What an agent plays in a project with a backlog: one item, from its triage to its review."""

from __future__ import annotations

from typing import Any

from .conftest import Script, Turn

SPEC = """\
### Phase 1: one

**Phase Status:** not_started

- [ ] it

### Phase 2: two

**Phase Status:** not_started

- [ ] more
"""
HALF = SPEC.replace("not_started", "complete", 1).replace("[ ]", "[x]", 1)
WHOLE = SPEC.replace("not_started", "complete").replace("[ ]", "[x]")


def stem(item: str = "WRK-001", title: str = "find-the-answer") -> str:
    """What the papers of an item begin with."""
    return f"changes/{item}_{title}/{item}_{title}"


def says(phase: str, code: str = "PHASE_COMPLETE", item: str = "WRK-001", **more: Any) -> dict[str, Any]:
    return {"item_id": item, "phase": phase, "result": code, "summary": f"{phase} done", **more}


def turn(phase: str, code: str = "PHASE_COMPLETE", *, item: str = "WRK-001", **more: Any) -> Turn:
    """One run of a phase: what is written, and the result that is claimed."""
    acts: Turn = {name: more.pop(name) for name in ("write", "run", "sleep", "remove", "exit", "say") if name in more}
    return {**acts, "result": says(phase, code, item, **more)}


def honest(item: str = "WRK-001", title: str = "find-the-answer", **instead: list[Turn]) -> Script:
    """An agent that does what it is asked; a phase may be given other turns, as `idea_research=[...]`."""
    papers = stem(item, title)
    question = "6x9\n" if item == "WRK-001" else f"6x9, asks {item}\n"  # each item builds something
    small = {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}

    def document(phase: str, kind: str, text: str = "# Words\n") -> list[Turn]:
        return [turn(phase, item=item, write={f"{papers}_{kind}.md": text})]

    plays: Script = {
        "triage": [turn("triage", item=item, updated_assessments=small)],
        "idea-research": [turn("idea-research", item=item, write={f"_ideas/{item}_{title}.md": "# An idea\n"})],
        "prd": document("prd", "PRD"),
        "research": document("research", "TECH_RESEARCH"),
        "design": document("design", "DESIGN"),
        "spec": document("spec", "SPEC", SPEC),
        "build": [
            turn("build", "SUBPHASE_COMPLETE", item=item, write={"answer": "42\n", f"{papers}_SPEC.md": HALF}),
            turn("build", item=item, write={"question": question, f"{papers}_SPEC.md": WHOLE}),
        ],
        "review": [turn("review", item=item)],
    }
    return plays | {name.replace("_", "-"): turns for name, turns in instead.items()}
