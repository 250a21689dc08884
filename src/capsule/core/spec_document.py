"""A SPEC's phases: read from their headings, ticked off one by one.

### Phase 2: name
**Phase Status:** not_started
- [ ] a task
"""

from __future__ import annotations

import re

import msgspec

_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_PHASE = re.compile(r"phase[ \t]+(\d{1,6})(?!\d)[ \t]*[:.–—-]?(.*)", re.IGNORECASE)
_STATUS = re.compile(r"^(\*\*Phase Status:\*\*[ \t]*)(\S*)(.*)$", re.MULTILINE)
_OPEN_BOX = re.compile(r"^([ \t]*[-*] \[) (\] )", re.MULTILINE)
LARGEST = 1024 * 1024
"""Longer documents are read no further: nobody writes one by hand."""
_FENCE = re.compile(r"^\s*(```|~~~)")
COMPLETE = "complete"


class SpecPhase(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str
    first_line: int
    last_line: int

    @property
    def open(self) -> bool:
        """Tell whether it is not marked complete, or has tasks left."""
        status = _STATUS.search(self.text)
        return bool(_OPEN_BOX.search(self.text)) or status is None or status.group(2).lower() != COMPLETE


def phases_of(spec: str) -> list[SpecPhase]:
    """Return every phase of the document, in order; a number that occurs twice counts once."""
    lines = spec[:LARGEST].splitlines()
    headings = _headings(lines)
    found: dict[int, SpecPhase] = {}
    for (line, _, title), end in zip(headings, _ends(headings, len(lines)), strict=True):
        match = _PHASE.fullmatch(title)
        if match and int(match.group(1)) not in found:
            number, name = int(match.group(1)), match.group(2).strip()
            found[number] = SpecPhase(number, name, "\n".join(lines[line + 1 : end]).strip(), line + 1, end)
    return list(found.values())


def open_boxes(document: str) -> int:
    """Count the tasks that are not ticked."""
    return len(_OPEN_BOX.findall(document))


def ticked(spec: str, number: int) -> str:
    """Return the document with all tasks of one phase done, and its status complete."""
    phase = next(phase for phase in phases_of(spec) if phase.number == number)
    lines = spec.splitlines(keepends=True)
    body = "".join(lines[phase.first_line : phase.last_line])
    done = _OPEN_BOX.sub(r"\1x\2", _STATUS.sub(rf"\g<1>{COMPLETE}", body))
    if not _STATUS.search(done):
        done = f"\n**Phase Status:** {COMPLETE}\n{done}"
    return "".join([*lines[: phase.first_line], done, *lines[phase.last_line :]])


def _ends(headings: list[tuple[int, int, str]], last: int) -> list[int]:
    """Return where each section ends: at the next heading that is not below its own. In one pass, from the back."""
    ends: list[int] = []
    open_at: dict[int, int] = {}
    for line, level, _ in reversed(headings):
        ends.append(min((at for deep, at in open_at.items() if deep <= level), default=last))
        open_at = {deep: at for deep, at in open_at.items() if deep < level} | {level: line}
    return ends[::-1]


def _headings(lines: list[str]) -> list[tuple[int, int, str]]:
    """Return line, level and title of each heading that is not inside a fence."""
    found, fence = [], ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark:
            fence = "" if fence == mark.group(1) else fence or mark.group(1)
        heading = _HEADING.match(line)
        if heading and not fence:
            found.append((number, len(heading.group(1)), heading.group(2).strip().rstrip("#").rstrip()))
    return found
