"""Make a form for each command from its parser, so that new options appear in the browser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from capsule.commands.arguments import ITEM_ID, parser_for
from capsule.commands.verbs import GROUPS
from capsule.web.forms import Field, Form, Kind

_NOT_IN_A_BROWSER = {
    *("dashboard", "demo", "setup-template", "run-phase", "parse-signal", "completion", "version", "run-pipeline"),
    *("prep", "teardown"),
}
"""They need a terminal or stdin, work outside of a project, or are for scripts."""
_STARTING = ("run",)
_SHOWING = ("doctor", "show", "report", "logs", "config", "status", "explain", "list", "ls", "questions")
_NOT_FOR_PEOPLE = {"help", "project_dir", "output", "no_tui", "follow", "json", "html", "format", "editor", "edit"}
"""Options that choose the output, or need a terminal."""
_COMMON = {
    "notes",
    "because",
    "reason",
    "description",
    "title",
    "to",
    "check",
    "jobs",
    "item",
    "items",
    "impact",
    "size",
}
_ON_STDIN = {
    ("import", "file"): ("List", "a Markdown list, CSV with a column `title`, or the JSON of `gh issue list`"),
}
"""Arguments that name a file: the browser sends its text. By command and argument: label and help."""
_LONG = ("TEXT", "WHY", "NOTES")


def forms() -> Mapping[str, Form]:
    """Return the forms, by command, in the order of `capsule --help`."""
    return {
        name: _form(name, group, verb.help)
        for group, verbs in GROUPS.items()
        for name, verb in verbs.items()
        if name not in _NOT_IN_A_BROWSER
    }


def _form(name: str, group: str, says: str) -> Form:
    parser = parser_for(name)
    fields = [_with_text(name, field) for field in _fields(parser)]
    common = [field for field in fields if field.required or not field.option or field.name in _COMMON]
    return Form(
        verb=name,
        group=group,
        says=says,
        about=parser.description or "",
        fields=tuple(common),
        rare=tuple(field for field in fields if field not in common),
        starts=name in _STARTING,
        changes=name not in _SHOWING,
    )


def _with_text(verb: str, field: Field) -> Field:
    if (verb, field.name) not in _ON_STDIN:
        return field
    label, says = _ON_STDIN[verb, field.name]
    return replace(field, label=label, help=says, kind=Kind.TEXT, stdin=True)


def _fields(parser: argparse.ArgumentParser) -> Iterator[Field]:
    for action in parser._actions:  # argparse has no public way to list arguments
        if action.dest in _NOT_FOR_PEOPLE or action.help == argparse.SUPPRESS:
            continue
        options = action.option_strings
        flag, many = action.nargs == 0, action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction)
        name = action.dest.replace("_", " ")
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        kind = Kind.FLAG if flag else Kind.CHOICE if action.choices else Kind.MANY if many else Kind.LINE
        yield Field(
            name=action.dest,
            label=f"{name[:1].upper()}{name[1:]}".replace("Item", "Item id"),
            help=(action.help or "").replace("; - reads it from stdin", "").replace("; - reads titles from stdin", ""),
            option=options[-1] if options else "",
            kind=Kind.TEXT if kind is Kind.LINE and metavar in _LONG and action.dest != "title" else kind,
            choices=tuple(map(str, action.choices or ())),
            required=bool(action.required) and action.nargs not in ("?", "*"),
            is_item=action.type == ITEM_ID,
        )
