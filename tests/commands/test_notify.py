"""A person is called when a mission of a real run waits for them, is done or has stopped, each time once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from capsule.core.notification import BELL, channels
from capsule.reports.notify import Post
from capsule.settings import PROJECT_YAML, load_settings

from ..house.pages import ROOT, blocks
from .backlog_project import BacklogProject
from .backlog_script import turn
from .conftest import ITEM, Project, honest, said


class Letters:
    """What a command of the user's was given. They lie in their home, where no mission takes them along."""

    def __init__(self, project: Project) -> None:
        self._file = project.home / "letters"
        project.always["CAPSULE_NOTIFY"] = "cat >> letters"

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def told(self) -> list[str]:
        return [f"{letter['notification']} {letter['mission']}" for letter in self.all()]


@pytest.mark.promise("screens.notifications")
def test_a_mission_tells_when_it_stopped_and_when_it_is_done_and_no_secrets(a_project: Project) -> None:
    letters = Letters(a_project)
    a_project.always["SOME_API_KEY"] = "hunter2-hunter2"
    a_project.set_bead(title="Find hunter2-hunter2")
    a_project.play(honest(execute=[said("ERROR", "hunter2-hunter2 is refused"), *honest()["execute"]]))
    assert a_project.say("run", ITEM).code == 2
    assert letters.told() == [f"stopped {ITEM}"]
    assert "hunter2" not in json.dumps(letters.all())
    assert letters.all()[0]["words"].startswith(f"{ITEM} failed at execute: ")
    assert [a_project.say("run", ITEM).code, a_project.say("run", ITEM).code] == [0, 0]
    assert letters.told() == [f"stopped {ITEM}", f"done {ITEM}"]
    done = letters.all()[-1]
    assert (done["title"], done["project"], done["event"]) == ("Find [redacted]", a_project.path.name, "step_ended")
    assert done["words"] == f"{ITEM} is merged into main as {a_project.head('main')[:12]}."


def test_a_run_tells_of_an_item_that_waits_and_of_its_own_end_and_then_no_more(a_backlog: BacklogProject) -> None:
    letters = Letters(a_backlog)
    a_backlog.add()
    a_backlog.play({"triage": [turn("triage", "BLOCKED", context="which answer?")]})
    assert a_backlog.run("--output", "json").code == 0
    assert letters.told() == ["blocked WRK-001", "stopped _queue"]
    assert "which answer?" in letters.all()[0]["words"]
    assert letters.all()[1]["words"] == "The run ended: nothing else can be worked on (1 needs you)."
    assert a_backlog.run().code == 0
    assert len(letters.all()) == 2


def test_an_item_that_a_guardrail_holds_is_told_of(a_backlog: BacklogProject) -> None:
    letters = Letters(a_backlog)
    a_backlog.hold({"status": "scoped", "size": "large", "complexity": "low", "risk": "low", "impact": "high"})
    assert a_backlog.run("WRK-001").code == 0
    assert letters.told() == ["blocked WRK-001"]
    assert "large" in letters.all()[0]["words"]


def test_a_command_that_fails_costs_one_line_and_nothing_else(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    answer = a_backlog.run("--cap", "1", CAPSULE_NOTIFY="echo no network; exit 1")
    assert answer.code == 0, answer
    assert answer.err.count("note: the notify command failed (exit code 1): no network") == 1
    assert answer.err.count("notify") == 1


def test_an_agent_cannot_choose_what_is_run(a_backlog: BacklogProject, tmp_path: Path) -> None:
    """Settings are read before the first agent starts, and lie there as they lay when it has gone."""
    trace = tmp_path / "trace"
    a_backlog.add()
    attack = f"printf '\\nnotify: touch {trace}\\n' >> .capsule/config.yaml"
    a_backlog.play({"triage": [turn("triage", run=[attack])]})
    for _ in range(2):
        assert a_backlog.run("--cap", "1").code == 0
    assert not trace.exists()


# ---- what the page says


def _commands_shown() -> list[str]:
    shown = blocks((ROOT / "docs/how-to/notifications.md").read_text(), "settings")
    loaded = [load_settings(None, env={}, flags={}, read_project={PROJECT_YAML: text.encode()}.get) for text in shown]
    return [one for each in loaded for one in channels(each.settings.notify) if one != BELL]


@pytest.mark.parametrize("command", _commands_shown())
def test_every_command_of_the_page_works(command: str, tmp_path: Path) -> None:
    """With programs of these names that write down what they are given."""
    words = """x-1 waits for you: it's "$HOME"; `rm -rf`?"""
    for name in ("notify-send", "mail", "jq"):
        (tmp_path / name).write_text("#!/bin/sh\nprintf '%s|' \"$@\" > got; cat >> got\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    post = Post((command,), env, tmp_path)
    post.send(b'{"v":1}\n', {"CAPSULE_NOTIFICATION": "blocked", "CAPSULE_NOTIFICATION_WORDS": words})
    post.close()
    assert post.fault() == ""
    got = (tmp_path / "got").read_text()
    assert got.endswith('{"v":1}\n')
    assert "CAPSULE_NOTIFICATION_WORDS" not in command or f"|{words}|" in f"|{got}"
