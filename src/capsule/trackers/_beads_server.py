"""Whether the beads of bd are in a database that other clones see, too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule.system.files import read_regular
from capsule.trackers._beads import FOLDER

_HOST = "BEADS_DOLT_SERVER_HOST"
_THIS_MACHINE = ("", "localhost", "127.0.0.1", "::1")
_LARGEST = 1 << 16


class _Metadata(Struct, frozen=True):
    dolt_mode: str = ""
    dolt_server_host: str = ""


def shared_server(root: Path, env: Mapping[str, str]) -> str:
    """Return the host of the Dolt server that has the beads; '' for a database of this clone or machine.

    Any other database is synchronised now and then at best: what is closed in one clone is open in the next.
    """
    known = _Metadata()
    with suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(read_regular(root / FOLDER / "metadata.json", _LARGEST), type=_Metadata)
    host = env.get(_HOST) or known.dolt_server_host
    return host if known.dolt_mode == "server" and host not in _THIS_MACHINE else ""
