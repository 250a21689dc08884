"""The functions that the page gets for everything it can see and do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from capsule.actions import DashboardActions
from capsule.web.forms import Form


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one agent, or its end."""

    title: str
    text: str
    cut: bool = False
    """Earlier output was cut."""


class WebActions(msgspec.Struct, frozen=True, kw_only=True):
    dashboard: DashboardActions
    """The functions that the page shares with the dashboard on a terminal."""
    printed: Callable[[str], tuple[Printed, ...]]
    """The output of a mission's agents, the last one last."""
    forms: Mapping[str, Form]
    """By command."""
