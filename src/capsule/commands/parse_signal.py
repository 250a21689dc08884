"""Read the signal from an agent's output on stdin.

It finds the last top-level JSON object and checks it against the signal contract: the fields status (PASS, NEEDS_WORK
or ERROR), feedback, files_changed (an array) and summary. It prints the signal on one line, with any other fields the
agent put into it. The JSON may be pretty-printed, fenced, coloured or followed by prose.

If there is no valid signal, it prints an ERROR signal whose feedback says what is wrong.
Exit code: 0 a valid signal, whatever it says; 1 no valid signal.

  claude -p "$(cat prompt.md)" | capsule parse-signal
  capsule parse-signal < .capsule/output/execute.log | jq -r .feedback
"""

from __future__ import annotations

import argparse
import sys
from typing import BinaryIO

from capsule.core.json_scan import WINDOW
from capsule.core.signal import read_signal, signal_json

CHUNK = 1024 * 1024


def run(_args: argparse.Namespace) -> int:
    signal = read_signal(tail(sys.stdin.buffer, WINDOW) if sys.stdin else b"")
    sys.stdout.buffer.write(signal_json(signal).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 1 if signal.synthetic else 0


def tail(stream: BinaryIO, size: int) -> bytes:
    """Return the last `size` bytes of a stream of any length, in memory that does not depend on it."""
    kept = bytearray()
    while chunk := stream.read(CHUNK):
        kept += chunk
        if len(kept) >= 2 * size:
            del kept[:-size]
    return bytes(kept[-size:])
