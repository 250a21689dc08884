"""Greets people."""

from __future__ import annotations


def greeting() -> str:
    return "Hello!"
