"""Print a completion script for your shell.

  capsule completion bash > ~/.local/share/bash-completion/completions/capsule
  capsule completion zsh > ~/.zfunc/_capsule

Shells that start afterwards complete commands, options, and the ids of items. For zsh, ~/.zfunc must be in $fpath.
"""

from __future__ import annotations

import argparse

import shtab

from capsule.commands.arguments import ITEM_ID, Parser, parser_for
from capsule.commands.verbs import VERBS

_IDS = {
    "bash": '_capsule_ids() { compgen -W "$(capsule _ids 2>/dev/null)" -- "$1"; }',
    "zsh": '_capsule_ids() { local ids=(${(f)"$(capsule _ids 2>/dev/null)"}); compadd -a ids }',
}
"""The functions that ask for ids; in tcsh there is none."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace) -> int:
    print(shtab.complete(whole_parser(), args.shell, preamble=_IDS.get(args.shell, "")))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Build one parser of all commands; only completion needs it."""
    parser = Parser(prog="capsule")
    parser.add_argument("--version", action="store_true", help="the version")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, verb in VERBS.items():
        own = parser_for(name)
        for action in own._actions:
            if action.type == ITEM_ID or action.dest == "parent":
                action.complete = dict.fromkeys(_IDS, "_capsule_ids")  # type: ignore[attr-defined]
        commands.add_parser(
            name, help=verb.help, description=own.description, parents=[own], conflict_handler="resolve"
        )
    return parser
