"""A form for each command: its fields are the command's arguments, and what is sent becomes its words.

This module knows no commands: the server gets the forms passed in, made from the parsers of the command line. The words
after `capsule` are made in one place, for the line that is shown and for the one that is run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from capsule.core.text import without_controls

LONGEST_TEXT = 100_000
"""Characters of one field; the kernel hands a program no argument of more than 128 KiB."""

TOO_LONG = f"longer than {LONGEST_TEXT:,} characters. Put the rest into a file of the project."


class Kind(StrEnum):
    LINE = "line"
    TEXT = "text"
    """A field of many lines."""
    CHOICE = "choice"
    FLAG = "flag"
    MANY = "many"
    """Several values, one to a line."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a command."""

    name: str
    label: str
    help: str = ""
    option: str = ""
    """'' for an argument that stands by itself."""
    kind: Kind = Kind.LINE
    choices: tuple[str, ...] = ()
    required: bool = False
    is_item: bool = False
    """It is the id of an item."""
    stdin: bool = False
    """Its text is passed on stdin, and a dash for it."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    verb: str
    group: str
    says: str
    """Its line in the list of commands."""
    about: str = ""
    """Its help."""
    fields: tuple[Field, ...] = ()
    rare: tuple[Field, ...] = ()
    """The rarely needed fields."""
    starts: bool = False
    """It starts a process in the background."""
    changes: bool = True
    """False if it only shows something."""

    @property
    def every_field(self) -> tuple[Field, ...]:
        return (*self.fields, *self.rare)


class Faulty(Exception):
    """The sent fields make no command; the message is for a person."""


Values = Mapping[str, Sequence[str]]
"""The sent values, by the name of the field."""


def words_of(form: Form, values: Values) -> list[str]:
    """Return the words after `capsule`. A value that begins with a dash is never read as an option."""
    options: list[str] = []
    others: list[str] = []
    for field in form.every_field:
        given = _values(field, values)
        if field.required and not given:
            raise Faulty(f"{field.label}: required.")
        if field.kind is Kind.FLAG:
            options += [field.option] if given else []
        elif field.stdin:
            others += ["-"] * bool(given)
        elif field.option:
            for value in given:
                options += [f"{field.option}={value}"] if value.startswith("-") else [field.option, value]
        else:
            others += given
    dashed = any(value.startswith("-") and value != "-" for value in others)
    return [form.verb, *options, "--", *others] if dashed else [form.verb, *others, *options]


def stdin_of(form: Form, values: Values) -> str:
    """Return the text that the command reads from stdin."""
    return "".join(text for field in form.every_field if field.stdin for text in _values(field, values))


def command_line(words: Sequence[str]) -> str:
    return shlex.join(["capsule", *words])


def _values(field: Field, values: Values) -> list[str]:
    given = [tidy(value) for value in values.get(field.name, ())]
    if field.kind is Kind.MANY:
        given = [line.strip() for value in given for line in value.splitlines()]
    elif field.kind is not Kind.TEXT:
        given = [" ".join(value.split()) for value in given]
    given = [value for value in given if value]
    for value in given:
        if len(value.encode()) > LONGEST_TEXT:
            raise Faulty(f"{field.label}: {TOO_LONG}")
        if field.kind is Kind.CHOICE and value not in field.choices:
            raise Faulty(f"{field.label}: {value!r} is none of {', '.join(field.choices)}.")
    return given


def tidy(text: str) -> str:
    """Return a browser's text with our line ends and without terminal controls."""
    return without_controls(text.replace("\r\n", "\n").encode(errors="replace").decode()).strip()
