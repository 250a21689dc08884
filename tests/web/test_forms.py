"""From what a form sends to the words of a command."""

from __future__ import annotations

import shlex

import pytest

from capsule.commands.arguments import parser_for
from capsule.commands.verbs import VERBS
from capsule.commands.web_forms import _NOT_IN_A_BROWSER, forms
from capsule.web.forms import LONGEST_TEXT, Faulty, Field, Form, Kind, command_line, words_of

_FORM = Form(
    verb="add",
    group="Items",
    says="",
    fields=(
        Field(name="title", label="Title", required=True),
        Field(name="notes", label="Notes", option="--notes", kind=Kind.TEXT),
        Field(name="how", label="How", option="--how", kind=Kind.CHOICE, choices=("stop", "continue")),
    ),
    rare=(
        Field(name="tag", label="Tag", option="--tag", kind=Kind.MANY),
        Field(name="dry", label="Dry", option="--dry", kind=Kind.FLAG),
    ),
)


@pytest.mark.promise("screens.forms")
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"title": ["A title"]}, ["add", "A title"]),
        ({"title": ["  two\nlines "]}, ["add", "two lines"]),
        ({"title": ["-x"]}, ["add", "--", "-x"]),
        ({"title": ["--project-dir=/etc"], "notes": ["n"]}, ["add", "--notes", "n", "--", "--project-dir=/etc"]),
        ({"title": ["t"], "notes": ["--force"]}, ["add", "t", "--notes=--force"]),
        ({"title": ["t"], "notes": ["one\r\ntwo\n"]}, ["add", "t", "--notes", "one\ntwo"]),
        ({"title": ["t"], "notes": ["\x1b[31m\0red"]}, ["add", "t", "--notes", "[31mred"]),
        ({"title": ["t"], "tag": ["a\n\n b "]}, ["add", "t", "--tag", "a", "--tag", "b"]),
        ({"title": ["t"], "dry": ["1"], "how": [""]}, ["add", "t", "--dry"]),
        ({"title": ["t"], "other": ["is no field"]}, ["add", "t"]),
        ({"title": ["$(rm -rf /); `x`"]}, ["add", "$(rm -rf /); `x`"]),
    ],
)
def test_what_is_sent_becomes_words_and_nothing_of_it_an_option(values: dict[str, list[str]], words: list[str]) -> None:
    assert words_of(_FORM, values) == words
    assert shlex.split(command_line(words)) == ["capsule", *words]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "Title: required."),
        ({"title": [" \n"]}, "Title: required."),
        ({"title": ["t"], "how": ["explode"]}, "How: 'explode' is none of stop, continue."),
        ({"title": ["t"], "notes": ["x" * (LONGEST_TEXT + 1)]}, "Notes: longer than 100,000 characters."),
        ({"title": ["t"], "notes": ["ü" * (LONGEST_TEXT - 1)]}, "Notes: longer than 100,000 characters."),
    ],
)
def test_what_makes_no_command_is_said(values: dict[str, list[str]], said: str) -> None:
    with pytest.raises(Faulty, match=said):
        words_of(_FORM, values)


def test_a_title_is_one_line_and_a_description_many() -> None:
    kinds = {field.name: field.kind for field in forms()["edit"].every_field}
    assert (kinds["title"], kinds["description"]) == (Kind.LINE, Kind.TEXT)


def test_every_command_has_a_form_and_each_form_makes_words_that_are_understood() -> None:
    found = forms()
    assert set(found) == set(VERBS) - _NOT_IN_A_BROWSER
    for name, form in found.items():
        values = {field.name: [(field.choices or ("7",))[0]] for field in form.fields if field.kind is not Kind.FLAG}
        args = parser_for(name).parse_args(words_of(form, values)[1:])
        assert all(getattr(args, field) for field in values), name
        assert not {"project_dir", "json", "output"} & {field.name for field in form.every_field}
