"""The fixes of `capsule doctor --fix`: a description and a function each. They install and remove nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from capsule.commands.arguments import parse, say, tell
from capsule.commands.init import CONFIG, IGNORE, SETTINGS_COMMIT, ignoring
from capsule.commands.init_questions import installed_agents, with_settings
from capsule.core.errors import UsageError
from capsule.plain_files import parse_yaml, read_plain
from capsule.project import Project
from capsule.settings import PROJECT_TOML
from capsule.system.files import write_atomically
from capsule.wiring import SKILLS
from capsule.workspaces.repository import commit_command, dirty_paths


@dataclass(frozen=True)
class Fix:
    """A fix: what it does, in words that begin with a verb, and a function."""

    words: str
    apply: Callable[[], None]


def of_ignoring(project: Project) -> Fix | None:
    """Add the lines of .gitignore that keep Capsule's files out of commits; None if they exist."""
    file = project.root / IGNORE
    if file.is_symlink() or (file.exists() and not file.is_file()) or ignoring(file) == (read_plain(file) or b""):
        return None
    return Fix(f"add the lines to {IGNORE} that keep worktrees and logs out of commits", partial(_ignore, file))


def of_tracker(project: Project) -> Fix:
    return Fix("make a backlog, as `capsule init` does", partial(_init, project.root))


def of_agent(project: Project) -> Fix | None:
    """Choose the only installed agent; None if one is set, or several are installed."""
    there = [name for name, found in installed_agents(project.settings, project.root) if found]
    set_already = "agent" in project.loaded.layers or (project.root / PROJECT_TOML).exists()
    if len(there) != 1 or set_already:
        return None
    line = f"agent: {json.dumps(there[0])}"
    return Fix(f"write `agent: {there[0]}` to {CONFIG}: it is installed", partial(_set, project.root, "agent", line))


def of_skills(project: Project) -> Fix:
    return Fix(f"write the skills that {SKILLS} lacks", partial(_init, project.root, "--skills"))


def _ignore(file: Path) -> None:
    write_atomically(file, ignoring(file))


def _set(root: Path, key: str, line: str) -> None:
    before = read_plain(root / CONFIG) or b""
    there = parse_yaml(before, CONFIG)
    text, _ = with_settings(before.decode(), {key: line}, [*there] if isinstance(there, dict) else [])
    (root / CONFIG).parent.mkdir(exist_ok=True)
    write_atomically(root / CONFIG, text.encode())


def _init(root: Path, *words: str) -> None:
    args = parse("init", [*words, "--project-dir", str(root)])
    args.command(args)


def agreed(fixes: Sequence[Fix], *, yes: bool) -> bool:
    """Show every fix, and ask whether to do them; without a terminal --yes is required."""
    say("Fixes:")
    for number, fix in enumerate(fixes, 1):
        say(f"  {number}. {fix.words}")
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--fix asks first, and there is no terminal to ask on.", "Agree to all of them: --fix --yes")
    try:
        return input("Do it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def apply(fixes: Sequence[Fix], project: Project) -> None:
    for fix in fixes:
        tell(f"fixing: {fix.words}")
        fix.apply()
    if left := [path for path in dirty_paths(project.git) if path in (CONFIG, IGNORE)]:
        say(f"uncommitted: {', '.join(left)}\n  {commit_command(SETTINGS_COMMIT, left)}")
