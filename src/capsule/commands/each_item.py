"""Handle several items: report failures and continue with the others; split ids from text."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from capsule.app.items import one_verb
from capsule.commands.arguments import ITEM_ID, plain, tell
from capsule.core.errors import CapsuleError
from capsule.core.item import check_id


def items_argument(parser: argparse.ArgumentParser, *, nargs: str = "+") -> None:
    parser.add_argument("item", metavar="ID", type=ITEM_ID, nargs=nargs, help="the ids of items in their tracker")


def do_each(ids: Sequence[str], do: Callable[[str], object]) -> int:
    """Handle each item once; return 0, or the highest exit code of failed ones."""
    with one_verb():
        return do_in_turn([check_id(item) for item in dict.fromkeys(ids)], do)


def do_in_turn(names: Sequence[str], do: Callable[[str], object]) -> int:
    """Handle each, even if another one failed; return as `do_each` does."""
    if len(names) == 1:
        do(names[0])
        return 0
    worst = 0
    for name in names:
        try:
            do(name)
        except CapsuleError as fault:
            worst = max(worst, fault.exit_code)
            tell("\n  ".join(filter(None, (f"capsule: {fault.message}", fault.hint))))
    return worst


def ids_and_words(words: Sequence[str]) -> tuple[list[str], str]:
    """Split arguments into ids and the answer: a last word that does not look like an id."""
    if len(words) > 1 and not _looks_like_an_id(words[-1], words[0]):
        return [check_id(word) for word in words[:-1]], plain(words[-1])
    return [check_id(word) for word in words], ""


def _looks_like_an_id(word: str, other: str) -> bool:
    """Tell a mistyped id from an answer of one word."""
    one_word = word.replace("-", "").replace(".", "").replace("_", "").isalnum()
    family, dash, _ = word.partition("-")
    return one_word and (any(letter.isdigit() for letter in word) or bool(dash and family == other.partition("-")[0]))
