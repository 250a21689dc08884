"""A SPEC is read by machine: which phases are left, and how one is ticked off."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.costs import costs_below

import capsule
from capsule.core.documents import Boxes, boxes_of, phases_of, ticked

SPEC = """\
# WRK-001: Greet (SPEC)

## Phases

### Phase 1: say hello

**Phase Status:** not_started

- [ ] write greet()
- [ ] test it

```markdown
### Phase 9: inside a fence
- [ ] not a task
```

### Phase 2 - say goodbye

**Phase Status:** complete

- [x] done before

## Assumptions

- [ ] not a task of any phase
"""


def test_phases_are_found_by_their_headings_and_not_inside_fences() -> None:
    assert [(phase.number, phase.name, phase.open) for phase in phases_of(SPEC)] == [
        (1, "say hello", True),
        (2, "say goodbye", False),
    ]
    assert "not a task of any phase" not in phases_of(SPEC)[1].text


def test_ticking_changes_one_phase_and_nothing_else() -> None:
    done = ticked(SPEC, 1)
    before, after = SPEC.splitlines(), done.splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        "**Phase Status:** complete", "- [x] write greet()", "- [x] test it", "- [x] not a task",
    ]  # fmt: skip
    assert not any(phase.open for phase in phases_of(done))
    assert ticked(done, 1) == done


def test_a_phase_without_a_status_gets_one() -> None:
    done = ticked("### Phase 1: a\n- [ ] b\n", 1)
    assert done == "### Phase 1: a\n\n**Phase Status:** complete\n- [x] b\n"


def test_complete_with_an_open_box_is_not_complete() -> None:
    assert phases_of("### Phase 1: a\n**Phase Status:** complete\n- [ ] b\n")[0].open


@pytest.mark.promise("004-names.spec")
def test_our_own_form_has_phases_that_can_be_read() -> None:
    form = (Path(capsule.__file__).parent / "templates/change/SPEC.md").read_text()
    assert [phase.number for phase in phases_of(form)] == [1, 2]
    assert all(phase.open for phase in phases_of(form))


FINISHED = """\
# SPEC

## Open Questions

- [ ] which wording?

## Phases

### Phase 1: one

**Goal:** it works

**Tasks:**

- [x] write it
1. [x] test it

**Verification:**

- [x] the tests pass

**Followups:**

- [ ] a typed error

### Phase 2: two

**Phase Status:** complete

#### Tasks

+ [x] more

#### Notes

- [ ] rename it some day

## Followups Summary

### Low

- [ ] a typed error
"""


@pytest.mark.promise("backlog.boxes")
def test_boxes_count_under_tasks_and_verification_inside_phases_only() -> None:
    assert boxes_of(FINISHED) == Boxes(open=0, all=4)
    assert boxes_of(FINISHED.replace("- [x] the tests", "- [ ] the tests")) == Boxes(open=1, all=4)
    assert boxes_of(SPEC) == Boxes(open=2, all=3)


def test_in_a_document_without_phases_all_boxes_count() -> None:
    assert boxes_of("- [ ] one\n## More\n- [x] two\n<!-- - [ ] three -->\n") == Boxes(open=1, all=2)
    assert boxes_of("- [ ] one\n* [x] two\n+ [ ] three\n") == Boxes(open=2, all=3)


HOSTILE = {
    "blank lines": "\n" * 1_000_000,
    "blanks in a heading": "# a" + " " * 500_000 + "b\n",
    "many headings": "### Phase 1: a\n" * 60_000,
    "deep and shallow": ("# a\n###### b\n" * 40_000),
    "a long number": "### Phase " + "9" * 500_000 + ": a\n",
    "open boxes": "  - [ ] a\n" * 80_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_costs_no_more_than_its_length(name: str) -> None:
    assert costs_below(2, lambda: (phases_of(HOSTILE[name]), boxes_of(HOSTILE[name])))
