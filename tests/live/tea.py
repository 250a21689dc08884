"""A stand-in for `tea api` of tea 0.12, which asks a real server; nothing else of tea is here.

What matters of the real one: it prints the body of every answer and succeeds, whatever its status, which it only shows
on stderr with `--include`; it splits fields at commas; `-F name=@FILE` takes the text of a file.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import NoReturn


def main(address: str, token: str) -> NoReturn:
    verb, *rest = sys.argv[1:]
    assert verb == "api", sys.argv
    method, shows, fields = "GET", False, dict[str, str]()
    while rest[0].startswith("-"):
        flag, *rest = rest
        if flag == "--include":
            shows = True
            continue
        value, *rest = rest
        if flag == "-X":
            method = value
        else:
            fields |= _fields(flag, value)
    [endpoint] = rest
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    data = json.dumps(fields).encode() if fields else None
    asked = urllib.request.Request(f"{address}/api/v1/{endpoint}", data, headers, method=method)
    try:
        with urllib.request.urlopen(asked) as answer:
            status, reason, said = answer.status, answer.reason, answer.read()
    except urllib.error.HTTPError as refused:
        status, reason, said = refused.code, refused.reason, refused.read()
    except OSError as fault:
        sys.exit(f"Error: request failed: {fault}")
    if shows:
        print(f"HTTP/1.1 {status} {reason}\n", file=sys.stderr)
    sys.stdout.write(said.decode())
    sys.exit(0)


def _fields(flag: str, value: str) -> dict[str, str]:
    found = {}
    for one in value.split(","):
        name, is_one, text = one.partition("=")
        if not is_one:
            sys.exit(f'Error: invalid field format: "{one}" (expected key=value)')
        is_file = flag == "-F" and text.startswith("@")
        found[name] = Path(text[1:]).read_text().removesuffix("\n") if is_file else text
    return found
