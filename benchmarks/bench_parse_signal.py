"""What finding the signal costs, as a multiple of a floor: counting one byte over the same data.

Both are measured in the same round, so the ratios hold on any machine; the best of the rounds counts. A ratio below one
is no miracle: the floor reads everything, the scanner only the window at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from capsule.core.json_scan import WINDOW, last_object

SIGNAL = b'{"status":"PASS","feedback":"all } green","files_changed":["a.py"],"summary":"done"}\n'
LOG_LINE = b'12:00:01 INFO "GET /items" -> {"n": 1, "tags": ["a"]} [ok]\n'
ROUNDS = 3


def filled(unit: bytes, size: int = WINDOW) -> bytes:
    return unit * (size // len(unit))


def nested(opener: bytes, inner: bytes, closer: bytes, size: int = WINDOW) -> bytes:
    depth = size // (len(opener) + len(closer))
    return opener * depth + inner + closer * depth


CASES: dict[str, Callable[[], bytes]] = {
    "100 MB log, signal at the end": lambda: filled(LOG_LINE, 100_000_000) + SIGNAL,
    "100 MB log, no signal": lambda: filled(b"12:00:01 INFO nothing to see\n", 100_000_000),
    "signal, then 15 MiB of prose": lambda: SIGNAL + filled(b'He said "so" (twice).\n', WINDOW - 2**20),
    "16 MiB of {": lambda: filled(b"{"),
    '16 MiB of {"a":': lambda: filled(b'{"a":'),
    "16 MiB of }": lambda: filled(b"}"),
    "16 MiB of {}": lambda: filled(b"{}"),
    '16 MiB of "': lambda: filled(b'"'),
    "16 MiB of \\": lambda: filled(b"\\"),
    "16 MiB of [{": lambda: filled(b"[{"),
    "16 MiB of {x}": lambda: filled(b"{x}"),
    "16 MiB of {{{…}}}": lambda: nested(b"{", b"", b"}"),
    '16 MiB of {"a":{"a":…}}': lambda: nested(b'{"a":', b"1", b"}"),
}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(data: bytes) -> tuple[float, float]:
    rounds = [(seconds(lambda: data.count(b"{")), seconds(lambda: last_object(data))) for _ in range(ROUNDS)]
    return min(floor for floor, _ in rounds), min(scan for _, scan in rounds)


def main() -> None:
    print(f"{'input':32} {'floor':>9} {'scan':>9} {'ratio':>8} {'ns/byte':>8}")
    for name, make in CASES.items():
        data = make()
        floor, scan = measure(data)
        print(f"{name:32} {floor:8.4f}s {scan:8.4f}s {scan / floor:7.1f}x {scan / len(data) * 1e9:8.1f}")


if __name__ == "__main__":
    main()
