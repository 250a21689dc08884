"""The lines of `capsule doctor` about the sandbox: whether there is one, and whether it has layers."""

from __future__ import annotations

import os
from collections.abc import Iterator

from capsule.commands.doctor import Finding
from capsule.core.errors import CapsuleError
from capsule.system import layers
from capsule.system.sandbox import level

_WITHOUT = "agents and tests run with your own permissions, and hooks and settings of .git are checked after each phase"


def sandbox_findings(wanted: str) -> Iterator[Finding]:
    """Say which level is in force, by the same words and the same try that a run goes by."""
    try:
        found = level(wanted, os.environ)
    except CapsuleError as fault:
        yield Finding("sandbox", "missing", fault.message, fault.hint)
        return
    if found.program:
        about = "agents and tests change only their own place, and see nothing of your home but tools"
        yield Finding("sandbox", "ok", f"bubblewrap at {found.program}: {about}")
        yield _layers(found.program)
    else:
        yield Finding("sandbox", "warning", f"none ({found.why}): {_WITHOUT}", found.hint or "Set `sandbox: auto`.")


def _layers(program: str) -> Finding:
    """Say whether installed dependencies can lie below a layer that is thrown away."""
    if why := layers.fault(program):
        found = f"none ({why}): tests see installed dependencies read-only, agents get a copy of them"
        hint = "To get them: allow overlay mounts in user namespaces (Linux 5.11 and later)."
        return Finding("layers", "optional", found, hint)
    return Finding("layers", "ok", "what a run writes into installed dependencies is thrown away with it")
