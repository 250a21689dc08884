"""Google's generateContent, as gemini speaks it, streaming and not."""

from __future__ import annotations

import json
from collections.abc import Iterator
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

_DAILY = "GenerateRequestsPerDayPerProjectPerModel"
_USAGE = {"promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 7, "totalTokenCount": 107}
BILLED = _USAGE["totalTokenCount"]
_DENIALS = {
    Cause.QUOTA: Fail(429, "You exceeded your current quota, please check your plan and billing details.", code=_DAILY),
    Cause.CONTEXT: Fail(400, "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."),
    Cause.LIMIT: Fail(429, "Resource has been exhausted (e.g. check quota).", retry_after=FIVE_HOURS),
}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def serves(path: str) -> bool:
    return "enerateContent" in path


def conversation(path: str, body: Any) -> Conversation:
    parts = list(_parts(body))
    return Conversation(
        prompt="\n".join(part["text"] for part in parts if "text" in part),
        results=sum("functionResponse" in part for part in parts),
        tools=tuple(tool["name"] for kit in body.get("tools", ()) for tool in kit.get("functionDeclarations", ())),
    )


def _parts(body: Any) -> Iterator[Any]:
    for content in body.get("contents", ()):
        if content.get("role") == "user":
            yield from content["parts"]


def side_answer(path: str, body: Any) -> Turn | None:
    return Say("ok")


def streams(path: str, body: Any) -> bool:
    return ":streamGenerateContent" in path


def whole(turn: Turn, path: str, body: Any) -> bytes:
    return json.dumps(_answer(turn)).encode()


def pieces(turn: Turn, path: str, body: Any) -> list[bytes]:
    answer: dict[str, Any] = {} if isinstance(turn, Misbehaviour) else _answer(turn)
    return [f"data: {json.dumps(answer)}\n\n".encode()]


def denial(cause: Cause, path: str) -> Fail:
    return _DENIALS[cause]


def error(failure: Fail) -> bytes:
    status, more = _ERRORS.get(failure.status, "INTERNAL"), list[dict[str, Any]]()
    if failure.retry_after is not None:
        more = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{failure.retry_after}s"}]
    if failure.code:
        more = [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": failure.code}]}]
    said = {"code": failure.status, "message": failure.message, "status": status, "details": more}
    return json.dumps({"error": said}).encode()


def _answer(turn: Turn) -> dict[str, Any]:
    parts, why = _content(turn)
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": why, "index": 0}
    return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "scripted"}


def _content(turn: Turn) -> tuple[list[dict[str, Any]], str]:
    match turn:
        case Write(path, text):
            return [_call("write_file", file_path=path, content=text)], "STOP"
        case Bash(command):
            return [_call("run_shell_command", command=command, description="as the script says")], "STOP"
        case RunOutOfTokens(text):
            return [{"text": text}], "MAX_TOKENS"
        case Refuse():
            return [], "SAFETY"
        case Say(text):
            return [{"text": text}] if text else [], "STOP"
    raise TypeError(turn)


def _call(name: str, **given: str) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": given}}
