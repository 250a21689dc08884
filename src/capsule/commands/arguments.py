"""Parse the arguments of commands: `--name value` or `--name=value`, no abbreviations, errors as our own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

from capsule.commands.verbs import INTERNAL, VERBS
from capsule.core.errors import UsageError
from capsule.core.text import did_you_mean, without_controls
from capsule.reports.style import fitted, reflowed

LARGEST_TEXT = 256 * 1024
ITEM_ID = "item id"
"""The `type` of every item id argument: an empty id is an error, not the same as no id."""


class Parser(argparse.ArgumentParser):
    usage_error = 2

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("type", ITEM_ID, self._item_id)

    def _item_id(self, text: str) -> str:
        if text.strip():
            return text
        hint = "A variable may be unset. `capsule status` lists the items."
        raise UsageError("The item id is empty.", hint, exit_code=self.usage_error)

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse, fail if it cannot be written."""
        self.description = reflowed(self.description or "", file or sys.stdout)
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        lists = f"`{self.prog} --help` lists its arguments."
        _, _, words = message.partition("unrecognized arguments: ")
        typed = next((word.partition("=")[0] for word in words.split() if word.startswith("--")), "")
        hint = did_you_mean(typed, self._option_string_actions, lists) if typed else lists
        raise UsageError(f"{sentence.rstrip('.')}.", hint, exit_code=self.usage_error)


def parser_for(name: str) -> Parser:
    """Build the parser of a command: its own arguments, and --project-dir if it works in a project."""
    verb = VERBS.get(name) or INTERNAL[name]
    module = import_module(f"capsule.commands.{verb.module}")
    parser = Parser(
        prog=f"capsule {name}",
        description=module.__doc__,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=terminal_width() - 2),
        allow_abbrev=False,
    )
    parser.usage_error = verb.usage_error
    if hasattr(module, "arguments"):
        module.arguments(parser)
    if verb.in_project:
        parser.add_argument("--project-dir", metavar="DIR", help="the project (default: the one around this directory)")
    parser.set_defaults(command=module.run)
    return parser


def parse(name: str, words: list[str]) -> argparse.Namespace:
    """Parse the words after the name of a command; `command(args)` of the result runs it."""
    return parser_for(name).parse_args(words, argparse.Namespace(words=words))


def text_of(option: str | None, most: int = LARGEST_TEXT, *, strict: bool = False) -> str:
    """Return an option's text; `-` reads it from stdin, where `strict` refuses what is no UTF-8."""
    if option != "-":
        return plain(option or "")
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise UsageError(f"The text is larger than {most // 1024} KiB.", "Put it into a file of the project.")
    return plain(decoded(data, "Stdin", strict=strict))


def decoded(data: bytes, name: str, *, strict: bool) -> str:
    """Return the text in these bytes; `strict` refuses what is no UTF-8."""
    try:
        return data.decode("utf-8-sig", errors="strict" if strict else "replace")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text.", "Save it as UTF-8, such as with: iconv -t UTF-8") from None


def plain(text: str) -> str:
    """Return text that can be stored: whole characters, no terminal controls."""
    return without_controls(text.encode(errors="replace").decode()).strip()


def say(text: str) -> None:
    """Print lines for people: folded on a terminal, unchanged in a pipe."""
    print(fitted(text, sys.stdout), flush=True)


def tell(text: str) -> None:
    """Print lines for people on stderr, apart from the results."""
    print(fitted(text, sys.stderr), file=sys.stderr, flush=True)


def warn(lines: Iterable[str]) -> None:
    for line in lines:
        tell(line)


def terminal_width(unknown: int = 80) -> int:
    """Return the width as `shutil` does, without loading it: it imports every archive format."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or unknown
    except (ValueError, OSError):
        return unknown


def item_argument(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    parser.add_argument("item", metavar="ID", type=ITEM_ID, nargs=nargs, help="the id of the item in its tracker")


def agent_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="NAME", help="the agent to use (settings: agent)")
    parser.add_argument("--model", metavar="NAME", help="the model for that agent")


def commit_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-commit", action="store_true", help="only change the files; commit them yourself (backlog)"
    )


def dirty_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        help="start even if the checkout has uncommitted changes; they are left alone (backlog)",
    )
