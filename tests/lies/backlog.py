"""What honest agents do for an item of a backlog, phase by phase."""

from __future__ import annotations

from .words import CODE, TESTS, Deed, Deeds, reports, writes

STEM = "changes/WRK-001_add-clamp/WRK-001_add-clamp"
SPEC = """\
# Add clamp

## Phases

### Phase 1: clamp

**Phase Status:** not_started

**Tasks:**

- [ ] clamp in calc.py
- [ ] tests for clamp

**Verification:** the tests pass.
"""
DONE = SPEC.replace("[ ]", "[x]").replace("not_started", "complete")
SMALL = {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}


def document(kind: str, text: str = "# Words\n\nWritten.\n") -> Deed:
    return writes(f"{STEM}_{kind}.md", text)


TICKS = document("SPEC", DONE)
"""Ticks every box of the SPEC."""


PHASES: dict[str, Deeds] = {
    "triage": (reports(updated_assessments=SMALL),),
    "prd": (document("PRD"),),
    "research": (document("TECH_RESEARCH"),),
    "design": (document("DESIGN"),),
    "spec": (document("SPEC", SPEC),),
    "build": (TESTS, CODE, TICKS),
    "review": (),
    "*": (),
}
"""An honest mission on an item of the backlog."""
