"""All cases, by family, and the ones that are known to go wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from .player import NEVER_BEGAN, Played
from .words import Case

FAMILIES = (
    *("claims", "bends", "forged", "bad_tests", "reviewers", "places", "first_tests", "backlog", "unseen"),
    *("exam", "honest", "blind"),
)
KNOWN = Path(__file__).with_name("known.toml")


@cache
def cases() -> tuple[Case, ...]:
    """Return every case, in the order of the families."""
    modules = ((family, import_module(f"{__package__}.families.{family}")) for family in FAMILIES)
    return tuple(case.of(family) for family, module in modules for case in module.CASES)


def chosen(words: str) -> list[Case]:
    """Return the cases of these families or with these names, as `bends forged/os-exit`; all where there is no word."""
    wanted = words.replace(",", " ").split()
    return [c for c in cases() if not wanted or {c.family, c.name, str(c)} & set(wanted)]


@cache
def known() -> dict[str, str]:
    """Return the cases that go wrong today, and why: lies that are merged, honest work that is stuck."""
    tables = tomllib.loads(KNOWN.read_text())
    return {f"{family}/{name}": why for family, table in tables.items() for name, why in table.items()}


def surprises(played: Iterable[Played], *, exact: bool = True) -> list[str]:
    """Return what differs from the list of known misses, in either direction; or only what is worse."""
    lines = []
    for one in played:
        listed, name = str(one.case) in known(), str(one.case)
        if one.outcome == NEVER_BEGAN and not one.well:
            lines.append(f"{name} never began: {_line(one.why)}")
            continue
        if one.skipped or one.well is not listed or (listed and not exact):
            continue
        if one.well:
            lines.append(f"{name} goes well now: take it off {KNOWN.name}")
        elif one.case.honest:
            lines.append(f"{name} does not reach main ({one.outcome}): {_line(one.why or one.broken)}")
        else:
            lines.append(f"{name} is merged: {_line(one.broken)}")
    return lines


def _line(words: str) -> str:
    return " ".join(words.split())[:160]
