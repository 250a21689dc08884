"""Print a completion script for your shell.

  capsule completion bash > ~/.local/share/bash-completion/completions/capsule
  capsule completion zsh > ~/.zfunc/_capsule

Shells that start afterwards complete commands and options. For zsh, ~/.zfunc must be in $fpath.
"""

from __future__ import annotations

import argparse

import shtab

from capsule.commands.arguments import Parser, parser_for
from capsule.commands.verbs import VERBS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(args: argparse.Namespace) -> int:
    print(shtab.complete(whole_parser(), args.shell))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Build one parser of all commands, which the command line itself never needs."""
    parser = Parser(prog="capsule")
    parser.add_argument("--version", action="store_true", help="the version")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, verb in VERBS.items():
        own = parser_for(name)
        commands.add_parser(
            name, help=verb.help, description=own.description, parents=[own], conflict_handler="resolve"
        )
    return parser
