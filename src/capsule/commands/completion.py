"""Print a completion script for your shell.

  capsule completion bash > ~/.local/share/bash-completion/completions/capsule
  capsule completion zsh > ~/.zfunc/_capsule
  capsule completion fish > ~/.config/fish/completions/capsule.fish

Shells that start afterwards complete commands, their aliases, options, and the ids of items. For zsh, ~/.zfunc must be
in $fpath.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

from capsule.commands.arguments import ITEM_ID, Parser, parser_for
from capsule.commands.verbs import ALIASES, VERBS

_IDS = {
    "bash": '_capsule_ids() { compgen -W "$(capsule _ids 2>/dev/null)" -- "$1"; }',
    "zsh": '_capsule_ids() { local ids=(${(f)"$(capsule _ids 2>/dev/null)"}); compadd -a ids }',
}
"""The functions that ask for ids; in tcsh there is none."""
_PATHS = ("FILE", "DIR", "TARGET_DIR")
"""The names of arguments that are paths."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))


def run(args: argparse.Namespace) -> int:
    if args.shell == "fish":
        print("\n".join(_fish()))
    else:
        print(shtab.complete(whole_parser(), args.shell, preamble=_IDS.get(args.shell, "")))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Build one parser of all commands and aliases; only completion needs it."""
    parser = Parser(prog="capsule")
    parser.add_argument("--version", action="store_true", help="the version")
    commands = parser.add_subparsers(metavar="COMMAND")
    for word, verb, help_text in _words():
        own = parser_for(verb)
        for action in own._actions:
            if _takes_ids(action):
                action.complete = dict.fromkeys(_IDS, "_capsule_ids")  # type: ignore[attr-defined]
        commands.add_parser(
            word, help=help_text, description=own.description, parents=[own], conflict_handler="resolve"
        )
    return parser


def _words() -> Iterator[tuple[str, str, str]]:
    """Yield each command and alias, with the command it means and its line of help."""
    yield from ((name, name, verb.help) for name, verb in VERBS.items())
    yield from ((alias, meant, f"capsule {' '.join([meant, *more])}") for alias, (meant, *more) in ALIASES.items())


def _takes_ids(action: argparse.Action) -> bool:
    return action.type == ITEM_ID or action.dest == "parent"


def _fish() -> Iterator[str]:
    """Yield the script for fish, which shtab does not know."""
    yield "complete -c capsule -f"
    yield "complete -c capsule -n __fish_use_subcommand -l version -d 'the version'"
    for word, verb, help_text in _words():
        yield f"complete -c capsule -n __fish_use_subcommand -a {word} -d {_quoted(help_text)}"
        here = f"complete -c capsule -n '__fish_seen_subcommand_from {word}'"
        for action in parser_for(verb)._actions:
            told = f" -d {_quoted(action.help)}" if action.help else ""
            values = _values(action)
            if action.option_strings:
                named = (
                    f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings
                )
                takes = "" if action.nargs == 0 else f" -x{values}" if values else _free(action)
                yield f"{here} {' '.join(named)}{takes}{told}"
            elif values or action.metavar in _PATHS:
                yield f"{here}{values or ' -F'}"


def _values(action: argparse.Action) -> str:
    """Return what a value is completed with; '' for any text or file."""
    if _takes_ids(action):
        return " -a '(capsule _ids 2>/dev/null)'"
    return f" -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""


def _free(action: argparse.Action) -> str:
    """Complete a path where an option takes one, else nothing."""
    return " -rF" if action.metavar in _PATHS else " -x"


def _quoted(text: str) -> str:
    """Quote as fish does: in single quotes only a quote and a backslash are special."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
