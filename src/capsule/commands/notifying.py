"""Add notifications to the observers of a run, as `notify` in the settings says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.common import mission_state
from capsule.core.notification import BELL, channels

if TYPE_CHECKING:
    from capsule.doors import Observer
    from capsule.wiring import Project


@contextmanager
def notified(project: Project, observer: Observer) -> Iterator[Observer]:
    """The observer, and somebody who calls a person. At the end what was not told yet is waited for, for seconds."""
    chosen = channels(project.settings.notify)
    if not chosen:
        yield observer
        return
    from capsule.reports.live import Several
    from capsule.reports.notify import Notifier, Post
    from capsule.system.git_environment import absolute_entries

    redactor, env = project.redactor, dict(project.env)
    if "PATH" in env:
        env["PATH"] = absolute_entries(env["PATH"])
    commands = [one for one in chosen if one != BELL]
    post = Post(
        commands, env, away_from_the_project(env.get("HOME", "")), secrets=redactor.spellings, roll=project.roll
    )
    name = redactor.text(project.root.name)
    with Notifier(name, post, partial(mission_state, project), bell=BELL in chosen) as notifier:
        yield Several(observer, notifier)


def away_from_the_project(home: str) -> Path:
    """Agents write in the project, and the command runs with all that its user may do: it starts elsewhere."""
    return Path(home) if Path(home).is_absolute() and Path(home).is_dir() else Path("/")
