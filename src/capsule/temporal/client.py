"""The connection to the Temporal server, and how a run is handed over to it and watched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError, TLSConfig

from capsule.core.errors import CapsuleError, SettingsError
from capsule.core.text import one_line
from capsule.project import Project
from capsule.settings import TemporalOptions
from capsule.temporal.converter import KEY_VARIABLE, data_converter
from capsule.temporal.messages import Where

API_KEY_VARIABLE = "CAPSULE_TEMPORAL_API_KEY"
_KEY_BYTES = 32


async def connect(chosen: TemporalOptions, env: Mapping[str, str]) -> Client:
    """Connect to the server; refuse with the address and what to look at."""
    api_key = env.get(API_KEY_VARIABLE) or None
    try:
        return await Client.connect(
            chosen.address,
            namespace=chosen.namespace,
            api_key=api_key,
            tls=_tls(chosen) if chosen.tls or api_key else False,
            data_converter=data_converter(_key(env)),
        )
    except (RuntimeError, RPCError, OSError) as fault:
        found = re.search(r'message: "([^"]+)"', str(fault))
        why = found[1] if found else one_line(str(fault)) or type(fault).__name__
        raise CapsuleError(
            f"The Temporal server at {chosen.address} cannot be reached: {why}.",
            "Start it, or name another one: temporal.address in .capsule/config.yaml. `capsule doctor` looks again.",
            exit_code=3,
        ) from None


def where_of(project: Project) -> Where:
    """Return what workflows have to know of a project; refuse settings that keep its work on one machine."""
    chosen = project.settings
    if not chosen.project.id:
        raise SettingsError(
            "A project on Temporal needs a name that its clones share.",
            f"Set it in .capsule/config.yaml, and commit that: project: {{id: {_proposed_id(project)}}}",
        )
    if chosen.merge.to != "remote":
        raise SettingsError(
            f"merge.to is {chosen.merge.to}, and missions on Temporal are merged at a remote that all machines reach.",
            "Set `merge.to: remote` in .capsule/config.yaml.",
        )
    return Where(
        chosen.project.id,
        chosen.temporal.label,
        heartbeat_seconds=chosen.temporal.heartbeat_seconds,
        wait_seconds=chosen.execution.max_wait_minutes * 60,
    )


def _proposed_id(project: Project) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in project.root.name.lower()).strip("-") or "project"


def _tls(chosen: TemporalOptions) -> TLSConfig | bool:
    files = [Path(name).read_bytes() if name else None for name in (chosen.tls_ca, chosen.tls_cert, chosen.tls_key)]
    return TLSConfig(server_root_ca_cert=files[0], client_cert=files[1], client_private_key=files[2])


def _key(env: Mapping[str, str]) -> bytes | None:
    text = env.get(KEY_VARIABLE, "")
    if not text:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise SettingsError(
            f"{KEY_VARIABLE} is not a key: it has to be 64 hexadecimal digits.",
            f"Make one, and give the same to every machine: openssl rand -hex {_KEY_BYTES}",
        )
    return key
