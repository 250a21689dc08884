"""Gemini CLI, headless: `gemini --yolo -o stream-json`, its events as JSON lines, its home a folder of the run's own.

Measured with 0.61.0:

- It works only where it trusts the directory, and a trusted directory's `.gemini/settings.json` starts tool servers,
  hooks and discovery commands. `--skip-trust` is heard after those settings were passed over, and before its check: so
  it works, and they do not. `.env` files of the repository could still send the key elsewhere; two settings stop that
  (one for `.env`, and `useExternal`, without which it reads `.gemini/.env` once more when it checks the login). They
  would also stop it from reading the user's own `~/.gemini/.env`: that is read here.
- It retries for minutes unless `maxAttempts` says otherwise, and only the settings can: each run has a copy of them.
- An empty answer, a torn stream and a refusal leave exit code 0; `result.status` tells. What went wrong is said in the
  result, or in the `error` event before it. The exit code of an API error is its status modulo 256.
- It stops a model that repeats the same tool call, remarks on it, and reports a success. The last answers of such a
  loop are in none of its counts.
- An answer that was cut for its length is reported as a success: nothing tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from capsule.agents._cli import Invocation, by_argument_or_stdin, exit_code
from capsule.agents._provider_errors import classify, startup_failure
from capsule.agents._scratch import borrowed
from capsule.agents._stream import Event, Events, StreamAgent, StreamResult, usage_of
from capsule.core.briefing import Briefing
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind
from capsule.system.files import write_atomically
from capsule.system.process import Ended

_DEFAULT_MODEL = "gemini-2.5-pro"
"""Without a name it asks another model first which one to use."""
_OWN_ATTEMPTS = 2
_FOLDER = ".gemini"
_OWN_HOME = "gemini"
_MOST_RECORDS = 100
_LOGINS = ("oauth_creds.json", "google_accounts.json", "gemini-credentials.json", "mcp-oauth-tokens.json")
_SEEDS = ("settings.json", "installation_id", "GEMINI.md", *_LOGINS)
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(G(?:EMINI|OOGLE)_\w+)\s*=\s*(['\"]?)(.*?)\2\s*$", re.MULTILINE)
_API_ERROR = re.compile(r"^\[API Error: (.*?)\]", re.DOTALL)
_LOOP = "Loop detected, stopping execution"
_OTHER_WORDS = "It repeated the same tool call. Put the item into other words, or name another model."
_HTTP_ERRORS = {status % 256: status for status in (400, 401, 403, 429, 500, 502, 503, 504)}
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "prompt", "dir_path")
_HINTS = {
    Kind.AUTH: "Run `gemini` once and log in, or set GEMINI_API_KEY.",
    Kind.CONFIGURATION: "Check the model, agents.gemini.args and ~/.gemini/settings.json.",
    Kind.CUT_SHORT: "Give it more turns with model.maxSessionTurns in ~/.gemini/settings.json, or split the item.",
}


class GeminiAgent(StreamAgent):
    binary = "gemini"
    kinds = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})
    apart = True
    how_to_get_it = "Get it with `npm install -g @google/gemini-cli`, or name another agent with --agent."
    passes = ("GEMINI_*", "GOOGLE_*", "GCLOUD_*", "CLOUDSDK_*")
    home_read_only = {".config/gcloud": ("logs",)}  # noqa: RUF012 (read, never changed)

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        argv = (
            self.program(),
            *("--yolo", "-o", "stream-json", "-m", self.model(briefing) or _DEFAULT_MODEL),
            *(() if self.options.trust_project else ("--skip-trust",)),
            *self.args(briefing),
            *((f"--prompt={argument}",) if argument is not None else ()),
        )
        return Invocation(argv, stdin)

    def defaults(self) -> Mapping[str, str]:
        trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true"} if self.options.trust_project else {}
        return {"GEMINI_CLI_NO_RELAUNCH": "true", "NO_COLOR": "1", **trust}

    @contextmanager
    def prepared_environment(self, scratch: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Give it a home of its own, unless the settings name one, with the user's login, settings and keys."""
        if "GEMINI_CLI_HOME" in self.options.env:
            yield {}
            return
        theirs = Path(env.get("GEMINI_CLI_HOME") or env.get("HOME") or Path.home()).absolute()
        ours = scratch / _OWN_HOME
        with borrowed(theirs / _FOLDER, ours / _FOLDER, _SEEDS, returned=_LOGINS) as folder:
            # The environment goes before the user's files; of these, the nearer one (read last) counts.
            assigned: list[tuple[str, str, str]] = []
            for path in (theirs / ".env", theirs / _FOLDER / ".env"):
                with suppress(OSError, ValueError):
                    assigned = _ASSIGNMENT.findall(path.read_text(encoding="utf-8"))
            keys = {name: value for name, _, value in assigned if name not in env}
            settings = _loaded(folder / "settings.json")
            if "GEMINI_API_KEY" in {*env, *keys}:  # else it would look for a gateway's login
                _section(_section(settings, "security"), "auth").setdefault("selectedType", "gemini-api-key")
            general = {"maxAttempts": _OWN_ATTEMPTS, "disableAutoUpdate": True, "enableAutoUpdate": False}
            _section(settings, "general").update(general)
            if not self.options.trust_project:
                _section(settings, "advanced")["ignoreLocalEnv"] = True
                _section(_section(settings, "security"), "auth")["useExternal"] = True
            write_atomically(folder / "settings.json", json.dumps(settings))
            yield {"GEMINI_CLI_HOME": str(ours), **keys}

    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        result = events.last("result") or Event()
        if not result and not self.prints_events(events):
            false_start = startup_failure("gemini", stderr, ended, _HINTS)
            return StreamResult("", false_start) if false_start else None
        # It counts from zero: a run that never reached a model reports nothing.
        started = next((event for event in events.head if event.get("type") == "init"), Event())
        used = [stats] if (stats := result.table("stats")).get("total_tokens") else []
        usage = replace(
            usage_of(used, ("input_tokens",), ("output_tokens",)),
            model=started.name("model"),
            session=started.name("session_id"),
        )
        after_tools = events.back_to("tool_use", "tool_result")
        said = [e for e in after_tools if e.get("type") == "message" and e.get("role") == "assistant"]
        words = "".join(event.text("content") for event in reversed(said))
        return StreamResult(words, _failure(events, result, ended), usage)

    def recorded_usage(self, scratch: Path) -> Usage:
        """Add up tokens from the record of each chat; a message that grew is repeated, the last one counts."""
        chats = islice((scratch / _OWN_HOME / _FOLDER).glob("tmp/*/chats/session-*.jsonl"), _MOST_RECORDS)
        said = (event for chat in chats for event in Events(chat).marked(b'"tokens"') if event.get("type") == "gemini")
        last = {event.text("id"): event.table("tokens") for event in said}
        return usage_of(last.values(), ("input",), ("output", "thoughts"))  # thoughts are paid for like output

    def is_final(self, event: Event) -> bool:
        return event.get("type") == "result"

    def activity(self, event: Event) -> str:
        if event.get("type") == "message":
            return event.text("content") if event.get("role") == "assistant" else ""
        if event.get("type") == "error":
            return event.text("message")
        if event.get("type") == "tool_use":
            return event.tool("tool_name", "parameters", _TELLING)
        return ""


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(settings.get(name), dict):
        settings[name] = {}
    section: dict[str, Any] = settings[name]
    return section


def _loaded(path: Path) -> dict[str, Any]:
    """Read settings as JSON with comments; unreadable ones count as empty, the login may still be known."""
    strings_or_comments = r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/'
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(re.sub(strings_or_comments, lambda part: part[1] or "", text, flags=re.DOTALL))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _failure(events: Events, result: Event, ended: Ended) -> Failure | None:
    if not result and ended.why == "exited" and not ended.exit_code:  # as after a SIGTERM
        return Failure(Kind.CRASH, "gemini broke off before it was done.")
    if result.get("status") != "error":
        stopped = (events.last("error") or Event()).text("message").startswith(_LOOP)
        return Failure(Kind.CUT_SHORT, f"gemini: {_LOOP}.", _OTHER_WORDS) if stopped else None
    error = result.table("error") if isinstance(result.get("error"), Event) else events.last("error") or Event()
    said = error.text("message")
    if "empty response" in said:
        return Failure(Kind.SILENT, "gemini: the model gave an empty answer.")
    if found := _API_ERROR.search(said):  # a provider's error as it came, or its message alone
        said = found[1]
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            said = Event(json.loads(said)["error"]).text("message") or said
    return classify("gemini", said, _HINTS, status=_HTTP_ERRORS.get(exit_code(ended) or 0))


connect = GeminiAgent
