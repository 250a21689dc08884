"""The Messages API, as claude speaks it."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.live.model_server import (
    FIVE_HOURS,
    Bash,
    Cause,
    Conversation,
    Fail,
    Misbehaviour,
    Refuse,
    RunOutOfTokens,
    Say,
    Turn,
    Write,
)

_USAGE = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 3,
    "output_tokens": 7,
}
BILLED = sum(_USAGE.values())
_DENIALS = {
    Cause.QUOTA: Fail(400, "Your credit balance is too low to access the Anthropic API."),
    Cause.CONTEXT: Fail(400, "prompt is too long: 210000 tokens > 200000 maximum"),
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def serves(path: str) -> bool:
    return path.startswith("/v1/messages")


def conversation(path: str, body: Any) -> Conversation:
    blocks = list(_blocks(body))
    return Conversation(
        prompt="\n".join(block["text"] for block in blocks if block["type"] == "text"),
        results=sum(block["type"] == "tool_result" for block in blocks),
        cwd=_cwd(json.dumps(body.get("system", "")) + json.dumps(body.get("messages", ""))),
        tools=tuple(tool["name"] for tool in body.get("tools", ()) if "name" in tool),
    )


def _blocks(body: Any) -> Iterator[Any]:
    for message in body.get("messages", ()):
        if message["role"] == "user":
            content = message["content"]
            yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _cwd(text: str) -> str:
    found = re.search(r"[Ww]orking directory: ([^\\\"]+)", text)
    return found[1].strip() if found else ""


def side_answer(path: str, body: Any) -> Turn | None:
    return Say("ok")


def streams(path: str, body: Any) -> bool:
    return bool(body.get("stream"))


def whole(turn: Turn, path: str, body: Any) -> bytes:
    if path.startswith("/v1/messages/count_tokens"):
        return b'{"input_tokens": 100}'
    block, stop = _content(turn, conversation(path, body))
    return json.dumps(_message(body) | {"content": [block] if block else [], "stop_reason": stop}).encode()


def pieces(turn: Turn, path: str, body: Any) -> list[bytes]:
    beginning = _event("message_start", message=_message(body))
    if isinstance(turn, Misbehaviour):
        return [beginning]
    block, stop = _content(turn, conversation(path, body))
    ending = _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=_USAGE)
    return [beginning, *_block_events(block), ending, _event("message_stop")]


def denial(cause: Cause, path: str) -> Fail:
    if cause is not Cause.LIMIT:
        return _DENIALS[cause]
    unified = {"status": "rejected", "reset": int(time.time()) + FIVE_HOURS, "representative-claim": "five_hour"}
    headers = tuple((f"anthropic-ratelimit-unified-{name}", str(value)) for name, value in unified.items())
    return Fail(429, "This request would exceed your account's rate limit.", FIVE_HOURS, headers=headers)


def error(failure: Fail) -> bytes:
    kind = _ERRORS.get(failure.status, "api_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": failure.message}}).encode()


def _message(body: Any) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(8)}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "m"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _content(turn: Turn, about: Conversation) -> tuple[dict[str, Any] | None, str]:
    match turn:
        case Write(path, text):
            return _tool("Write", about, file_path=str(Path(about.cwd, path)), content=text), "tool_use"
        case Bash(command):
            return _tool("Bash", about, command=command, description="as the script says"), "tool_use"
        case RunOutOfTokens(text):
            return {"type": "text", "text": text}, "max_tokens"
        case Refuse():
            return None, "refusal"
        case Say(text):
            return {"type": "text", "text": text}, "end_turn"
    raise TypeError(turn)


def _tool(name: str, about: Conversation, **given: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{about.results + 1}", "name": name, "input": given}


def _block_events(block: dict[str, Any] | None) -> Iterator[bytes]:
    if block is None:
        return
    if block["type"] == "text":
        opening, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        opening, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield _event("content_block_start", index=0, content_block=opening)
    yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
