"""What the page is handed: everything it can see and do, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from capsule.actions import DashboardActions
from capsule.web.forms import Form


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent printed, or the end of it."""

    title: str
    text: str
    cut: bool = False
    """There is more before it."""


class WebActions(msgspec.Struct, frozen=True, kw_only=True):
    dashboard: DashboardActions
    """What the page shares with the dashboard on a terminal."""
    printed: Callable[[str], tuple[Printed, ...]]
    """The output of a mission's agents, the last one last."""
    forms: Mapping[str, Form]
    """By command."""
