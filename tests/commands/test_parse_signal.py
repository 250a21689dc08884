"""parse-signal as a script meets it: a real process, bytes in, one line and an exit status out."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.costs import costs_below, processor_seconds

GOOD = {"status": "PASS", "feedback": "fine – ok", "files_changed": ["a.py"], "summary": "done", "commit_hash": "abc"}
LINE = json.dumps(GOOD, separators=(",", ":"), ensure_ascii=False).encode()

COMMAND = """
import argparse, sys
from capsule.commands import parse_signal
sys.exit(parse_signal.run(argparse.Namespace()))
"""
MEASURED = """
import resource, subprocess, sys
ended = subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL)
unit = 1 if sys.platform == "darwin" else 1024
print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)
"""


def parse_signal(output: bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND], input=output, capture_output=True, check=False, env=os.environ | env
    )


@pytest.mark.promise("signals.parse-signal")
def test_a_valid_signal_is_printed_alone_on_one_line() -> None:
    ended = parse_signal(b"log\n```json\n" + json.dumps(GOOD, indent=2).encode() + b"\n```\nbye\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, LINE + b"\n", b"")


@pytest.mark.parametrize("status", ["NEEDS_WORK", "ERROR"])
def test_a_valid_signal_exits_zero_whatever_it_says(status: str) -> None:
    assert parse_signal(json.dumps(GOOD | {"status": status}).encode()).returncode == 0


@pytest.mark.sweep(cases=2)
@pytest.mark.promise("signals.parse-signal")
@pytest.mark.parametrize(
    "output", [b"", b"nothing here", b"\x00\xff\xfe", b"{" * 100_000, b'{"a":' * 5000 + b"}" * 5000]
)
def test_output_without_a_signal_gives_an_error_signal_and_one(output: bytes) -> None:
    ended = parse_signal(output)
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert json.loads(ended.stdout) == {
        "status": "ERROR",
        "feedback": "No signal JSON found in phase output",
        "files_changed": [],
        "summary": "Phase did not produce a signal",
    }


@pytest.mark.promise("signals.faulty")
def test_a_faulty_signal_is_not_replaced_by_an_earlier_valid_one() -> None:
    ended = parse_signal(LINE + b'\n{"status": "PASS"}\n')
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["feedback"] == "Missing required field: feedback"


def test_output_is_utf8_whatever_the_locale() -> None:
    ended = parse_signal(LINE, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, LINE + b"\n", b"")


def test_a_closed_stdin_is_an_empty_one() -> None:
    script = 'exec "$0" -c "$1" <&-'
    ended = subprocess.run(["/bin/sh", "-c", script, sys.executable, COMMAND], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert json.loads(ended.stdout)["status"] == "ERROR"


@pytest.mark.slow
@pytest.mark.promise("speed.parse-memory")
def test_memory_does_not_grow_with_the_input() -> None:
    small, large = (peak_memory_of(megabytes) for megabytes in (64, 512))
    assert large < small + 32_000_000
    assert large < 300_000_000


def peak_memory_of(megabytes: int) -> int:
    block = (b"x" * 99 + b"\n") * 10_000
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(megabytes):
            process.stdin.write(block)
        process.stdin.write(LINE)
        process.stdin.close()
        code, peak = map(int, process.stdout.read().split())
    assert code == 0
    return peak


@pytest.mark.slow
def test_a_hundred_megabytes_are_read_in_a_moment() -> None:
    output = b'12:00:01 INFO {"n": 1} "quoted" [ok]\n' * 2_700_000 + LINE
    assert costs_below(2, lambda: parse_signal(output), processor_seconds)
    assert parse_signal(output).returncode == 0
