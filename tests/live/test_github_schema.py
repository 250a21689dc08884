"""The question about requests is one that GitHub's API takes, by its published schema."""

from __future__ import annotations

import subprocess
import sys

import pytest

from capsule.forges.presets import QUERIES
from tests.live.install import github_schema

_THERE = github_schema()
_SCHEMA = _THERE / "node_modules/@octokit/graphql-schema/schema.graphql"
_CHECK = """\
import sys
from graphql import build_schema, parse, validate
with open(sys.argv[1]) as file:
    schema = build_schema(file.read(), assume_valid=True)
print(*validate(schema, parse(sys.argv[2])), sep="\\n", end="")
"""
pytestmark = pytest.mark.skipif(not _SCHEMA.exists(), reason="GitHub's schema is not installed: see `make live`")


def faults(query: str) -> str:
    env = {"PYTHONPATH": str(_THERE / "python")}
    words = [sys.executable, "-c", _CHECK, str(_SCHEMA), query]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout


def test_githubs_schema_has_what_is_asked_for() -> None:
    query = QUERIES["query"]
    assert faults(query) == ""
    assert "Cannot query field 'headRefOids'" in faults(query.replace("headRefOid", "headRefOids"))
