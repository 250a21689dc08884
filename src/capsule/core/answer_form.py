"""A form for all questions at once, as Markdown: one section for each item, which may be left empty.

The questions are comments, so their text is no part of an answer. A section begins at any line `## ID:`; other headings
are part of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from capsule.core.answers import Answer
from capsule.core.errors import UsageError
from capsule.core.inbox import Question
from capsule.core.text import one_line, without_controls

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"##[ \t]+([A-Za-z0-9][A-Za-z0-9._-]*):(?:[ \t].*)?")
_HEAD = """\
<!--
Write your answers below the questions, save, and close the editor. A section that you
leave empty is left alone. An answer may also begin with one of the words that stand
below its question, such as `approve` or `close: the reason`.
-->
"""
_WORDS = {"approve": "approve", "accept": "accept: why", "try-again": "retry", "close": "close: why"}
"""The words that stand for an answer in a form, by its verb."""


def render_form(questions: Sequence[Question]) -> str:
    return "\n".join([_HEAD, *map(_section, questions)])


def _section(question: Question) -> str:
    at = f" at {question.phase}" if question.phase else ""
    asked = "\n".join(f"> {line}".rstrip() for line in without_controls(question.asked).strip().splitlines())
    ways = ", ".join(f"`{_WORDS[each.verb]}`" for each in question.answers if each.verb in _WORDS)
    comment = f"{question.kind.words}{at}\n\n{asked}\n\nor: {ways}".replace("-->", "--\\>")
    return f"## {question.id}: {one_line(without_controls(question.title))}\n<!-- {comment}\n-->\n\n"


def read_form(text: str) -> dict[str, str]:
    """Return the answers by item, without those that are empty."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _COMMENT.sub("", text).splitlines():
        heading = _HEADING.fullmatch(line.rstrip())
        if heading is None:
            lines.append(line)
        elif heading[1] in found:
            raise UsageError(f"The form answers {heading[1]} twice.", "Put both answers into one section.")
        else:
            if not found and any(each.strip() for each in lines):
                _refuse_what_belongs_to_nobody(lines)
            lines = found[heading[1]] = []
    if not found and any(each.strip() for each in lines):
        _refuse_what_belongs_to_nobody(lines)
    return {item: answer for item, given in found.items() if (answer := "\n".join(given).strip())}


def _refuse_what_belongs_to_nobody(lines: Sequence[str]) -> None:
    first = next(one_line(line) for line in lines if line.strip())
    raise UsageError(
        f"No item is named for the answer {first[:40]!a}.", "Write it below a line such as `## WRK-003: its title`."
    )


def said_in_words(question: Question, text: str) -> tuple[Answer | None, str]:
    """Return the answer named by the first word of a section, and the rest; None if it is plain text."""
    first, _, rest = text.partition("\n")
    word, colon, reason = first.partition(":")
    name = word.strip().lower().strip("`")
    for answer in question.answers:
        known = _WORDS.get(answer.verb, "").partition(":")
        if name == known[0] and (bool(colon) or not known[1]):
            return answer, "\n".join(filter(None, (reason.strip(), rest.strip())))
    return None, text
