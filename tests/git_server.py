"""A git server (on loopback, if not told otherwise): `git http-backend` behind HTTP, whose faults can be switched."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_BACKEND = Path(os.fsdecode(subprocess.run(["git", "--exec-path"], capture_output=True, check=True).stdout.strip()))
_REFUSING = """#!/bin/sh
while read old new ref; do
    case "$ref" in {refs}) echo "{words}" >&2; exit 1;; esac
done
"""


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that is gone: tests kill some."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class GitServer:
    """Bare repositories in a folder, served over HTTP.

    `status` answers every request with that HTTP status, `down` closes each connection without an answer, `slow` waits
    so many seconds first. With a `password`, requests need it (user `ada`). `requests` counts what came, `pushes` those
    of it. One that was closed refuses connections until it is started.
    """

    def __init__(self, folder: Path, ip: str = "127.0.0.1") -> None:
        self.folder = folder
        self.status = 0
        self.down = False
        self.slow = 0.0
        self.password = ""
        self.pushes = 0
        self.takes_pushes = False
        self.requests = 0
        self._at = (ip, 0)
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Serve, again at the same address if it was stopped."""
        self._http = _Listener(self._at, self._handler())
        self._http.daemon_threads = True
        self._at = (self._at[0], self._http.server_port)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        ip, port = self._at
        return f"http://{ip}:{port}"

    def url(self, name: str = "project", *, user_info: str = "") -> str:
        return f"{self.address.replace('://', f'://{user_info}@') if user_info else self.address}/{name}.git"

    def repository(self, name: str = "project") -> Path:
        return self.folder / f"{name}.git"

    def host(self, source: Path, name: str = "project") -> Path:
        """Make a bare repository of one that exists, which writes down how each of its refs moves."""
        bare = self.repository(name)
        run("clone", "-q", "--bare", str(source), str(bare))
        for key, value in (("http.receivepack", "true"), ("core.logAllRefUpdates", "always"), ("gc.auto", "0")):
            run("config", key, value, cwd=bare)
        run("config", "--unset-all", "remote.origin.url", cwd=bare)
        return bare

    def refuse(self, refs: str, words: str, name: str = "project") -> Path:
        """Put a hook into a repository that refuses refs of this shell pattern."""
        hook = self.repository(name) / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_REFUSING.format(refs=refs, words=words))
        hook.chmod(0o755)
        return hook

    def close(self) -> None:
        """Refuse connections from now on."""
        self._http.shutdown()
        self._http.server_close()

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self._body()
                server.requests += 1
                time.sleep(server.slow)
                if server.down:
                    return
                if server.status:
                    self._refuse(server.status)
                    return
                told = base64.b64encode(f"ada:{server.password}".encode()).decode()
                if server.password and self.headers.get("Authorization") != f"Basic {told}":
                    self._refuse(HTTPStatus.UNAUTHORIZED)
                    return
                self._backend(body)

            def _refuse(self, status: int) -> None:
                self.send_response(status)
                if status == HTTPStatus.UNAUTHORIZED:
                    self.send_header("WWW-Authenticate", 'Basic realm="tests"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                return b"".join(pieces)

            def _backend(self, body: bytes) -> None:
                path, _, query = self.path.partition("?")
                server.pushes += path.endswith("/git-receive-pack")
                env = {
                    "PATH": os.environ["PATH"],
                    "GIT_PROJECT_ROOT": str(server.folder),
                    "GIT_HTTP_EXPORT_ALL": "1",
                    "GIT_CONFIG_NOSYSTEM": "1",
                    "REQUEST_METHOD": self.command,
                    "PATH_INFO": path,
                    "QUERY_STRING": query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)),
                    "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                    "REMOTE_ADDR": "127.0.0.1",
                }
                if server.takes_pushes:
                    env |= {
                        "GIT_CONFIG_COUNT": "1",
                        "GIT_CONFIG_KEY_0": "http.receivepack",
                        "GIT_CONFIG_VALUE_0": "true",
                    }
                command = [str(_BACKEND / "git-http-backend")]
                done = subprocess.run(command, input=body, env=env, capture_output=True, check=False)
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
                status = next((value for name, value in fields if name == "Status"), "200")
                self.send_response(int(status.split()[0]))
                for name, value in fields:
                    if name != "Status":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def run(*args: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, check=False)
    assert done.returncode == 0, f"git {' '.join(args)}: {os.fsdecode(done.stderr)}"
    return os.fsdecode(done.stdout).strip()


def moves_of(bare: Path, ref: str) -> list[tuple[str, str]]:
    """Return how a ref of a hosted repository moved, from where to where, the oldest move first."""
    log = bare / "logs" / ref
    rows = log.read_text().splitlines() if log.exists() else []
    return [(row.split(" ", 2)[0], row.split(" ", 2)[1]) for row in rows]


@contextmanager
def git_server(folder: Path, ip: str = "127.0.0.1") -> Iterator[GitServer]:
    server = GitServer(folder, ip)
    try:
        yield server
    finally:
        server.close()
