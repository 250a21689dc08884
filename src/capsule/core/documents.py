"""Name and find an item's documents, and read the phases of a SPEC from its headings.

    changes/{ID}_{slug}/{ID}_{slug}_{KIND}.md        _ideas/{ID}_{slug}.md

They are found by the item's id. A slug is made of the title only where nothing is found: a retitled item keeps the
folder it has, and whatever is added to that folder takes the folder's own name.

    ### Phase 2: name
    **Phase Status:** not_started
    - [ ] a task
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from capsule.core.globs import matches
from capsule.core.item import Item
from capsule.core.syntax import language_of

ALSO_READ = {"TECH_RESEARCH": ("RESEARCH",)}
"""Other names that are accepted for a kind of document if the usual one is missing."""
PLANS = ("PRD", "DESIGN", "SPEC")
"""Kinds of documents that describe the change."""
FOLDERS = ("changes/", "_ideas/")
PAPER = (".md", ".txt", ".svg", ".png", ".jpg")
_LONGEST_SLUG = 50


_HEADING = r"(#{1,6})[ \t]+(.*)"
_PHASE = r"(?i)phase[ \t]+(\d{1,6})(?!\d)[ \t]*[:.–—-]?(.*)"
_STATUS = r"(?m)^(\*\*Phase Status:\*\*[ \t]*)(\S*)(.*)$"
_OPEN_BOX = r"(?m)^([ \t]*(?:[-*+]|\d{1,9}[.)]) \[) (\] )"
_BOX = r"[ \t]*(?:[-*+]|\d{1,9}[.)]) \[([ xX])\] "
_LABEL = r"(?:\*\*|__)([^*_]{1,80}?):?(?:\*\*|__):?"
_COUNTED = ("task", "verification")
"""Beginnings of the parts of a phase whose boxes count; other parts describe later work."""
LARGEST = 1024 * 1024
"""Longer documents are cut here: nobody writes them by hand."""
_FENCE = r"^\s*(```|~~~)"
COMPLETE = "complete"


def own_documents(item_id: str, paths: Iterable[str]) -> list[str]:
    """Return the paths that belong to an item's documents, in order. Planning an item changes nothing else."""
    folder, idea = f"changes/{item_id}_", f"_ideas/{item_id}_"
    return sorted(p for p in paths if p.startswith(idea) or (p.startswith(folder) and "/" in p[len(folder) :]))


def is_of_an_item(path: str) -> bool:
    """Tell whether a path belongs to the documents of any item."""
    return re.match(r"changes/[A-Za-z][A-Za-z0-9]*-[0-9]+_[^/]*/|_ideas/[A-Za-z][A-Za-z0-9]*-[0-9]+_", path) is not None


def is_of_another_item(mission: str, path: str) -> bool:
    """Tell whether a path belongs to the documents of an item outside this mission."""
    item = re.match(r"([A-Za-z]+-)[0-9]+", mission)
    found = re.match(r"(?:changes|_ideas)/(([A-Za-z]+-)[0-9]+)_", path)
    return item is not None and found is not None and found[2] == item[1] and found[1] != item[0]


def is_planning_document(item_id: str, path: str, test_globs: Sequence[str] = ()) -> bool:
    """Tell whether planning an item may write this path: text that nothing runs and no test runner looks at."""
    text = path.lower().endswith(PAPER) and not any(matches(path, glob) for glob in test_globs)
    return text and bool(own_documents(item_id, [path]))


_DOCUMENTS = (
    *("*.md", "*.mdx", "*.markdown", "*.rst", "*.adoc", "*.asciidoc", "*.txt", "*.org", "*.tex", "*.pdf"),
    *("*.svg", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp"),
    *("README*", "CHANGELOG*", "CHANGES*", "CONTRIBUTING*", "LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "AUTHORS*"),
    *("mkdocs.yml", "mkdocs.yaml", ".readthedocs.yaml", ".readthedocs.yml", "docs/**", "doc/**", "man/**"),
)
_NO_DOCUMENTS = ("*requirements*.txt", "constraints*.txt", "CMakeLists.txt", "robots.txt")


def is_document(path: str, test_globs: Sequence[str] = ()) -> bool:
    """Tell whether a path is written for readers: no program, no test, and nothing that a tool installs from."""
    if any(matches(path, glob) for glob in (*_NO_DOCUMENTS, *test_globs)):
        return False
    own_code = bool(language_of(path)) and path.rsplit("/", 1)[-1] != "conf.py"
    return not own_code and any(matches(path, glob) for glob in _DOCUMENTS)


def change_folder(item: Item, paths: Iterable[str] = ()) -> str:
    """Return the item's folder: the first existing one, else one named by its title."""
    there = (p.split("/")[1] for p in own_documents(item.id, paths) if p.startswith("changes/"))
    return f"changes/{next(filter(_quotable, there), named(item))}"


def idea_path(item: Item, paths: Iterable[str] = ()) -> str:
    """Return the item's idea file: the first existing one, else one named by its title."""
    return next(filter(_quotable, idea_paths(item.id, paths)), f"_ideas/{named(item)}.md")


def idea_paths(item_id: str, paths: Iterable[str]) -> list[str]:
    return [p for p in own_documents(item_id, paths) if re.fullmatch(r"_ideas/[^/]+\.md", p)]


def artefact_path(item: Item, kind: str, paths: Iterable[str] = ()) -> str:
    """Return the path of an item's document, or the path to write it to."""
    paths = own_documents(item.id, paths)
    folder = change_folder(item, paths)
    there = filter(_quotable, artefact_paths(item.id, kind, paths))
    return next(there, f"{folder}/{folder.removeprefix('changes/')}_{kind}.md")


def artefact_paths(item_id: str, kind: str, paths: Iterable[str]) -> list[str]:
    """Return every document of a kind in the item's folders; other names count only if none has this one."""
    paths = own_documents(item_id, paths)
    for name in (kind, *ALSO_READ.get(kind, ())):
        found = [p for p in paths if re.fullmatch(rf"changes/[^/]+/[^/]*_{re.escape(name)}\.md", p)]
        if found:
            return found
    return []


def named(item: Item) -> str:
    return f"{item.id}_{slug(item.title)}"


def slug(title: str) -> str:
    """Return the title in ASCII lower case and hyphens, at most 50 characters; `item` where nothing is left."""
    letters = unicodedata.normalize("NFKD", title.casefold()).lower()
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return "-".join(re.findall(r"[a-z0-9]+", bare))[:_LONGEST_SLUG].strip("-") or "item"


def _quotable(path: str) -> bool:
    """Tell whether a path can be shown in a prompt: it must not end the backticks around it."""
    return path.isprintable() and "`" not in path


class SpecPhase(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str
    first_line: int
    last_line: int

    @property
    def open(self) -> bool:
        """Tell whether it is not marked complete or has open tasks."""
        status = re.search(_STATUS, self.text)
        return bool(_count(self.text.splitlines()).open) or status is None or status.group(2).lower() != COMPLETE


def phases_of(spec: str) -> list[SpecPhase]:
    """Return every phase of the document, in order; a number that occurs twice counts once."""
    lines = spec[:LARGEST].splitlines()
    headings = _headings(lines)
    found: dict[int, SpecPhase] = {}
    for (line, _, title), end in zip(headings, _ends(headings, len(lines)), strict=True):
        match = re.fullmatch(_PHASE, title)
        if match and int(match.group(1)) not in found:
            number, name = int(match.group(1)), match.group(2).strip()
            found[number] = SpecPhase(number, name, "\n".join(lines[line + 1 : end]).strip(), line + 1, end)
    return list(found.values())


class Boxes(NamedTuple):
    """How many tasks there are, and how many of them are not ticked."""

    open: int = 0
    all: int = 0


def boxes_of(document: str) -> Boxes:
    """Count the boxes of a SPEC: in its phases, under Tasks and Verification; all of them if it has no phases."""
    phases = phases_of(document)
    if not phases:
        return _count(document[:LARGEST].splitlines(), everywhere=True)
    counted = [_count(phase.text.splitlines()) for phase in phases]
    return Boxes(sum(each.open for each in counted), sum(each.all for each in counted))


def _count(lines: Sequence[str], *, everywhere: bool = False) -> Boxes:
    """Count boxes up to another label or heading, and again below a heading of tasks."""
    opened, found, counts, fence = 0, 0, True, ""
    for line in filter(None, lines):
        if mark := re.match(_FENCE, line):
            fence = "" if fence == mark.group(1) else fence or mark.group(1)
        if fence:
            continue
        label = re.match(_LABEL, line) or re.match(_HEADING, line)
        if label and not everywhere:
            counts = label.group(label.re.groups).strip().lower().startswith((*_COUNTED, *_PART_OF_THE_HEAD))
        elif counts and (box := re.match(_BOX, line)):
            found += 1
            opened += box.group(1) == " "
    return Boxes(opened, found)


_PART_OF_THE_HEAD = ("phase status", "goal", "files", "complexity")
"""Labels above the tasks: a phase may list its boxes right below them."""


def ticked(spec: str, number: int) -> str:
    """Return the document with all tasks of one phase done, and its status complete."""
    phase = next(phase for phase in phases_of(spec) if phase.number == number)
    lines = spec.splitlines(keepends=True)
    body = "".join(lines[phase.first_line : phase.last_line])
    done = re.sub(_OPEN_BOX, r"\1x\2", re.sub(_STATUS, rf"\g<1>{COMPLETE}", body))
    if not re.search(_STATUS, done):
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
        if not line:
            continue
        if mark := re.match(_FENCE, line):
            fence = "" if fence == mark.group(1) else fence or mark.group(1)
        heading = re.match(_HEADING, line)
        if heading and not fence:
            found.append((number, len(heading.group(1)), heading.group(2).strip().rstrip("#").rstrip()))
    return found
