"""HTTP for scripted models: one server for each test, on a port of its own.

A dialect is a module of this package with

    serves(path) -> bool                         whether a request is in this dialect
    conversation(path, body) -> Conversation     what it tells us
    streams(path, body) -> bool                  whether the answer is wanted piece by piece
    pieces(turn, path, body) -> list[bytes]      a turn as a stream (server-sent events); the first begins it
    whole(turn, path, body) -> bytes             the same turn as one JSON document
    error(failure) -> bytes                      the body of an HTTP error
    denial(cause, path) -> Fail                  what a denial is there
    BILLED                                       tokens that an answer costs, read and written
    side_answer(path, body) -> Turn | None       what is said in a request that offers no tools; None: ask the script
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tests.live.model_server import SUMMARY, Conversation, Deny, Fail, FallSilent, Misbehaviour, Script, Turn

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _dialects() -> list[ModuleType]:
    names = sorted(file.stem for file in Path(__file__).parent.glob("*.py"))
    return [import_module(f"{__package__}.{name}") for name in names if name not in ("__init__", "server")]


class ModelServer:
    """Answers by its script until it is left; remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Conversation] = []
        self.billed: list[int] = []
        """Tokens of each answer that was given whole in the main conversation, or as a summary of it."""
        self.faults: list[str] = []
        """What went wrong on our side: a test that sees any is not to be believed."""
        self.closing = threading.Event()
        self.dialects = _dialects()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.model = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        assert not self.faults, self.faults

    def turn(self, dialect: Any, path: str, body: Any) -> Turn:
        conversation = dialect.conversation(path, body)
        if not conversation.tools and (aside := dialect.side_answer(path, body)) is not None:
            answer: Turn = aside
            return answer
        self.asked.append(conversation)
        return self.script(conversation)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    model: ModelServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A CLI that hangs up in the middle is none of our faults."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        dialect: Any = next((known for known in self.server.model.dialects if known.serves(self.path)), None)
        if dialect is None:
            return self._document(404, b"{}")
        try:
            body = json.loads(raw or b"{}")
            turn = self.server.model.turn(dialect, self.path, body)
            if isinstance(turn, Deny):
                turn = dialect.denial(turn.cause, self.path)
            self._answer(dialect, turn, body)
            if turn is SUMMARY or (not isinstance(turn, Misbehaviour) and dialect.conversation(self.path, body).tools):
                self.server.model.billed.append(dialect.BILLED)
        except OSError:  # the CLI has gone
            self.close_connection = True
        except Exception as fault:  # noqa: BLE001 - whatever it is, the test must hear of it
            self.server.model.faults.append(f"{self.path}: {fault!r}")
            self._document(500, b"{}")
        return None

    def do_GET(self) -> None:
        self._document(404, b"{}")

    do_HEAD = do_PUT = do_DELETE = do_GET

    def _answer(self, dialect: Any, turn: Turn, body: Any) -> None:
        if isinstance(turn, Fail):
            more = {"retry-after": str(turn.retry_after)} if turn.retry_after is not None else {}
            self._document(turn.status, dialect.error(turn), more | dict(turn.headers))
        elif isinstance(turn, Misbehaviour) or dialect.streams(self.path, body):
            self._stream(dialect.pieces(turn, self.path, body), turn)
        else:
            self._document(200, dialect.whole(turn, self.path, body))

    def _document(self, status: int, content: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"content-type": "application/json", "content-length": str(len(content)), **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, pieces: list[bytes], turn: Turn) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces[:1] if isinstance(turn, Misbehaviour) else pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.flush()
        if isinstance(turn, FallSilent):
            self.server.model.closing.wait()
        if isinstance(turn, Misbehaviour):
            self._tear_down()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _tear_down(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""
