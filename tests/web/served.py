"""A server as a person has it: a process in a real project, and the address that it printed."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

from tests.costs import LONG

SERVE = """
import sys
from capsule.commands.web import page_actions, serve_page
from capsule.project import open_project
serve_page(page_actions(open_project(None)), sys.argv[2:], host=sys.argv[1], port=0)
"""
_FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')


class Server:
    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        assert process.stdout
        self.process, self._errors = process, errors
        self.said = process.stdout.readline()
        found = re.fullmatch(r"Dashboard: http://([\w.-]+):(\d+)/\?token=([\w-]{43})\n", self.said)
        assert found, self.said + self.errors()
        self.name, self.port, self.token = found[1], int(found[2]), found[3]
        self.host = f"127.0.0.1:{self.port}"
        self.origin = f"http://{self.host}"
        self._entered: tuple[str, dict[str, str]] | None = None

    def errors(self) -> str:
        return self._errors.read_text()

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request(method, path, body, {"Host": self.host, **headers})
            response = connection.getresponse()
            return response, response.read().decode(errors="replace")
        finally:
            connection.close()

    def open(self, token: str) -> tuple[str, dict[str, str]]:
        """The room, and what a browser sends from then on."""
        response, page = self.ask(f"/?token={token}")
        room = re.search(r'content="0; url=(/[\w-]+/)"', page)
        assert room, page
        return room[1], {"Cookie": str(response.headers["Set-Cookie"]).partition(";")[0]}

    def enter(self) -> tuple[str, dict[str, str]]:
        """The same again for whoever is in already: the address opens once."""
        self._entered = self._entered or self.open(self.token)
        return self._entered

    def page(self, path: str = "") -> str:
        room, cookie = self.enter()
        response, text = self.ask(room + path, **cookie)
        assert response.status == 200, (path, response.status, text)
        return text

    def status(self, path: str) -> int:
        room, cookie = self.enter()
        return self.ask(room + path, **cookie)[0].status

    def form(self, page: str, action: str) -> dict[str, str]:
        """The hidden fields of the form that is sent there."""
        part = next(
            piece for piece in self.page(page).split("<form")[1:] if f'action="{self.enter()[0]}{action}"' in piece
        )
        return {name: unescape(value) for name, value in _FIELD.findall(part.partition("</form>")[0])}

    def send(self, action: str, fields: Mapping[str, str], **headers: str) -> tuple[http.client.HTTPResponse, str]:
        room, cookie = self.enter()
        usual = {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded", **cookie}
        return self.ask(room + action, "POST", urlencode(fields), **{**usual, **headers})


@contextmanager
def started(
    command: Sequence[str], folder: Path, errors: Path, env: Mapping[str, str] | None = None
) -> Iterator[Server]:
    file = errors / f"errors-{os.urandom(4).hex()}"
    with file.open("w") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True, env=env)
    try:
        yield Server(process, file)
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def serving(*command: str, host: str = "127.0.0.1", before: str = "") -> list[str]:
    """The words that serve a page whose terminal is this command."""
    return [sys.executable, "-P", "-c", f"{before}\n{SERVE}", host, *command]
