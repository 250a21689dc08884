"""Test the documents: links, commands, options, settings, workflows, promises, generated pages, the tutorial."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from capsule.commands.completion import whole_parser
from capsule.core.workflow import parse_workflow
from capsule.engine.steps import unknown_names
from capsule.plain_files import parse_yaml
from capsule.settings import PROJECT_YAML, load_settings

from .pages import DOCUMENTS, ROOT, Reader, blocks, name_of, pattern, prose

_LINK = re.compile(r"(?<!`)\[[^\]]+\]\((?P<target>[^)\s]+)\)|<img[^>]* src=\"(?P<picture>[^\"]+)\"")


# ---- links


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _broken_links(path: Path) -> Iterator[str]:
    for found in _LINK.finditer(prose(path.read_text())):
        link = found["target"] or found["picture"]
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        place = (path.parent / target).resolve() if target else path
        if not place.exists() or (anchor and anchor not in _anchors(place)):
            yield link


@pytest.mark.promise("house.documents")
@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert list(_broken_links(path)) == []


def test_a_broken_link_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[good](#one) [gone](#two) [away\nfrom here](other.md) `[code](x.md)`\n")
    assert list(_broken_links(page)) == ["#two", "other.md"]


# ---- commands and options


@cache
def _options() -> dict[str, set[str]]:
    """Map every command to its options."""
    subparsers = next(a for a in whole_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: {"-h", "--help", *(o for action in parser._actions for o in action.option_strings)}
        for name, parser in subparsers.choices.items()
    }


class Mention(NamedTuple):
    text: str
    command: str
    options: tuple[str, ...]


def _mentions(text: str) -> Iterator[Mention]:
    """Yield command lines of Capsule: inline code that begins with `capsule `, and lines of shell blocks."""
    lines = re.findall(r"`((?:capsule|orchestrate) [^`]+)`", prose(text).replace("\n", " "))
    for block in (*blocks(text, "console"), *blocks(text, "sh")):
        lines += re.findall(r"(?:^|[\s(])(capsule [^\n#]*)", block)
    for line in lines:
        words = re.split(r"[|;&>]| \$\(", line)[0].replace('"', " ").replace("'", " ").rstrip(")").split()
        if len(words) > 1 and re.match(r"[a-z-]", words[1]):
            options = tuple(word.split("=")[0] for word in words[2:] if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word))
            yield Mention(line, words[1], options)


def _unknown(text: str) -> Iterator[str]:
    known = _options()
    for mention in _mentions(text):
        if mention.command in ("--version", "--help", "help"):
            continue
        if mention.command not in known or set(mention.options) - known[mention.command]:
            yield mention.text


@pytest.mark.promise("house.documents")
@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_command_and_option_exists(path: Path) -> None:
    assert list(_unknown(path.read_text())) == []


def test_an_invented_command_or_option_would_be_noticed() -> None:
    text = (
        "`capsule fly` `capsule run ID --wings` `capsule run ID --rebase`\n```sh\ncd x && capsule show ID --nope\n```\n"
    )
    assert list(_unknown(text)) == ["capsule fly", "capsule run ID --wings", "capsule show ID --nope"]


# ---- files shown in the documents


def _shown(word: str) -> list[tuple[str, str]]:
    return [(name_of(path), body) for path in DOCUMENTS for body in blocks(path.read_text(), word)]


@pytest.mark.parametrize(("where", "text"), _shown("settings"))
def test_settings_shown_are_settings(where: str, text: str) -> None:
    files = {PROJECT_YAML: text.encode()}
    assert load_settings(None, env={}, flags={}, read_project=files.get).layers, where


@pytest.mark.parametrize(("where", "text"), _shown("workflow"))
def test_workflows_shown_are_sound(where: str, text: str) -> None:
    workflow = parse_workflow(parse_yaml(text.encode(), where), source=where, name="shown")
    assert unknown_names(workflow) == []


# ---- the site


@pytest.mark.promise("house.documents")
def test_the_menu_of_the_site_leads_to_every_page() -> None:
    site = _tool("site")
    names = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}
    assert site.unlisted(names - site.LEFT_OUT) == []
    assert site.unlisted({"docs/how-to/nobody-links-here.md"}) == [
        "docs/how-to/nobody-links-here.md is not in the menu of mkdocs.yml"
    ]


@pytest.mark.promise("house.documents")
def test_pages_of_the_site_have_plain_fences() -> None:
    marked = "```yaml settings\nagent: scripted\n```\n> ```text\n> x\n> ```\n"
    assert _tool("site").MARK.sub(r"\1\2", marked) == marked.replace(" settings", "")


# ---- promises and their tests


def _tool(name: str) -> ModuleType:
    """Load a program of tools, which has no suffix."""
    loader = SourceFileLoader(name, str(ROOT / "tools" / name))
    module = module_from_spec(spec_from_loader(name, loader) or pytest.fail())
    loader.exec_module(module)
    return module


@pytest.mark.promise("house.documents")
def test_every_promise_is_held_by_a_test_and_the_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "spec", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_promise_without_a_test_and_a_mark_without_a_promise_are_named() -> None:
    spec = _tool("spec")
    held = spec.holders()
    assert len(held) > 200
    assert spec.faults(held) == []
    del held["evidence.refuted"]
    held["evidence.invented"] = ["tests/x.py::test_y"]
    missing, unknown = spec.faults(held)
    assert missing.startswith("no test holds evidence.refuted: A PASS")
    assert unknown == "tests/promises.toml has no evidence.invented: tests/x.py::test_y"


# ---- generated pages


@pytest.mark.promise("house.documents")
def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "reference", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# ---- commands that are run


@pytest.mark.slow
@pytest.mark.promise("house.documents")
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    assert Reader(tmp_path).follow((ROOT / "docs/tutorial.md").read_text()) > 12


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    assert pattern("a ... c\n...\nend\n").fullmatch("a b c\nx\ny\nend\n")
    assert not pattern("a ... c\nend\n").fullmatch("a b d\nend\n")
    assert not pattern("a\n").fullmatch("a\nb\n")
    with pytest.raises(AssertionError, match="shown:"):
        Reader(tmp_path).follow("```console\n$ echo one\ntwo\n```\n")
