"""OpenAI's two protocols: Responses, as codex speaks it, and Chat Completions, as opencode does."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from tests.live.model_server import (
    FIVE_HOURS,
    SUMMARY,
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

_ERRORS = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_READ, _CACHED, _WRITTEN = 100, 40, 7
BILLED = _READ + _WRITTEN
_SPENT = "You exceeded your current quota, please check your plan and billing details."
_DENIALS = {
    Cause.QUOTA: Fail(429, _SPENT, code="insufficient_quota"),
    Cause.CONTEXT: Fail(400, "Your input exceeds the context window of this model.", code="context_length_exceeded"),
    Cause.LIMIT: Fail(429, "The usage limit has been reached", retry_after=FIVE_HOURS, code="usage_limit_reached"),
}


def serves(path: str) -> bool:
    return path.endswith(("/responses", "/chat/completions"))


def conversation(path: str, body: Any) -> Conversation:
    return _of_responses(body) if path.endswith("/responses") else _of_chat(body)


def _of_responses(body: Any) -> Conversation:
    items = body.get("input", [])
    return Conversation(
        prompt="\n".join(_text(item.get("content")) for item in items if item.get("role") == "user"),
        results=sum(str(item.get("type")).endswith("_call_output") for item in items),
        tools=tuple(str(tool.get("name") or tool.get("type")) for tool in body.get("tools", ())),
    )


def _of_chat(body: Any) -> Conversation:
    messages = body.get("messages", [])
    found = re.search(r"Working directory: (.+)", "\n".join(_text(message.get("content")) for message in messages))
    return Conversation(
        prompt="\n".join(_text(message["content"]) for message in messages if message["role"] == "user"),
        results=sum(message["role"] == "tool" for message in messages),
        cwd=found[1].strip() if found else "",
        tools=tuple(tool["function"]["name"] for tool in body.get("tools", ())),
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


def side_answer(path: str, body: Any) -> Turn | None:
    summary = any("summarization" in _text(message.get("content")) for message in body.get("messages", ()))
    return SUMMARY if summary else Say("A title")


def streams(path: str, body: Any) -> bool:
    return bool(body.get("stream"))


def whole(turn: Turn, path: str, body: Any) -> bytes:
    raise NotImplementedError("codex and opencode always ask for a stream")


def pieces(turn: Turn, path: str, body: Any) -> list[bytes]:
    return _responses(turn, body) if path.endswith("/responses") else _chat(turn, body)


def denial(cause: Cause, path: str) -> Fail:
    return _DENIALS[cause]


def error(failure: Fail) -> bytes:
    kind = failure.code or _ERRORS.get(failure.status, "server_error")
    said: dict[str, Any] = {"message": failure.message, "type": kind, "code": kind}
    if kind == "usage_limit_reached":  # codex is told the moment
        said |= {"plan_type": "plus", "resets_at": int(time.time()) + (failure.retry_after or 0)}
    return json.dumps({"error": said}).encode()


# ---- Responses


def _responses(turn: Turn, body: Any) -> list[bytes]:
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "model": body["model"]}
    beginning = _event("response.created", response=response)
    if isinstance(turn, Misbehaviour):
        return [beginning]
    item = _event("response.output_item.done", item=_item(turn, _of_responses(body).results + 1))
    usage = {
        "input_tokens": _READ,
        "input_tokens_details": {"cached_tokens": _CACHED},
        "output_tokens": _WRITTEN,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": _READ + _WRITTEN,
    }
    if isinstance(turn, RunOutOfTokens):
        why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": usage}
        return [beginning, item, _event("response.incomplete", response=response | why)]
    return [beginning, item, _event("response.completed", response=response | {"status": "completed", "usage": usage})]


def _item(turn: Turn, number: int) -> dict[str, Any]:
    match turn:
        case Write() | Bash():
            given = json.dumps({"cmd": turn.as_shell()})
            call = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": "exec_command", "arguments": given}
            return {"type": "function_call", **call}
        case Refuse():
            content = {"type": "refusal", "refusal": "I cannot help with that."}
        case Say(text) | RunOutOfTokens(text):
            content = {"type": "output_text", "text": text}
        case _:
            raise TypeError(turn)
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [content]}


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


# ---- Chat Completions


def _chat(turn: Turn, body: Any) -> list[bytes]:
    beginning = _chunk(body, {"role": "assistant", "content": ""})
    if isinstance(turn, Misbehaviour):
        return [beginning]
    delta, why = _delta(turn, _of_chat(body))
    usage = {
        "prompt_tokens": _READ,
        "prompt_tokens_details": {"cached_tokens": _CACHED},
        "completion_tokens": _WRITTEN,
        "total_tokens": _READ + _WRITTEN,
    }
    return [beginning, _chunk(body, delta), _chunk(body, {}, why, usage=usage), b"data: [DONE]\n\n"]


def _delta(turn: Turn, about: Conversation) -> tuple[dict[str, Any], str]:
    match turn:
        case Write(path, text):
            return _call("write", about, filePath=str(Path(about.cwd, path)), content=text), "tool_calls"
        case Bash(command):
            return _call("bash", about, command=command, description="as the script says"), "tool_calls"
        case RunOutOfTokens(text):
            return {"content": text}, "length"
        case Refuse():
            return {"content": ""}, "content_filter"
        case Say(text):
            return {"content": text}, "stop"
    raise TypeError(turn)


def _call(name: str, about: Conversation, **given: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(given)}
    return {"tool_calls": [{"index": 0, "id": f"call_{about.results + 1}", "type": "function", "function": function}]}


def _chunk(body: Any, delta: dict[str, Any], why: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": why}
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    return f"data: {json.dumps({**chunk, 'choices': [choice], **more})}\n\n".encode()
