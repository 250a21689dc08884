"""Codex, headless: `codex exec --json`, its events as JSON lines, its home a folder of the run's own.

Measured with 0.166.0:

- It trusts the directory it works in by itself, and then starts the repository's own tool servers (`.codex/`). Said to
  be untrusted, a directory takes no part, and no entry for it is added to the settings.
- Everything it knows lives in CODEX_HOME, which tools may write to: an agent could leave commands there that run when
  its user next starts codex. So each run gets a home with copies. Only the login is shared, by a link: codex rewrites
  it in place, and of two copies one would be refused once the other has been renewed.
- `error` events and items are remarks; only `turn.failed` is a failure. It tells its kind in words.
- Providers of the user's own retry as often as we say. The built-in one cannot be told: about half a minute.
- While there is no network it waits without end, and says so now and then.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from capsule.agents._cli import Invocation, by_argument_or_stdin
from capsule.agents._provider_errors import classify, startup_failure
from capsule.agents._scratch import borrowed
from capsule.agents._stream import Event, Events, StreamAgent, StreamResult, usage_of
from capsule.core.briefing import Briefing
from capsule.core.event import Usage
from capsule.core.failure import Kind
from capsule.system.process import Ended

_HEADLESS = (
    *("exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--color", "never"),
    *("--disable", "plugins", "--disable", "apps"),
    *("-c", "analytics.enabled=false", "-c", 'otel.metrics_exporter="none"', "-c", "check_for_update_on_startup=false"),
)
_OWN_RETRIES = 1
_SEEDS = ("config.toml", "AGENTS.md", "models_cache.json", "version.json")
_LOGIN = "auth.json"
_OWN_HOME = "codex"
_MOST_RECORDS = 100
_PLAIN_KEY = re.compile(r"[\w-]+")
_SHELL = re.compile(r"^\S*/(?:ba|z|da)?sh -l?c (['\"]?)(.*)\1$", re.DOTALL)
_HINTS = {
    Kind.AUTH: "Run `codex login`, or set CODEX_API_KEY. A login kept in a keyring is not found: codex must keep it in "
    'a file (cli_auth_credentials_store = "file").',
    Kind.CONFIGURATION: "Check the model, agents.codex.args and ~/.codex/config.toml.",
}
_WAITING = "waiting for network"
_TOKENS = (("input_tokens",), ("output_tokens",))
"""Tokens read include cached ones, tokens written include thoughts."""


class CodexAgent(StreamAgent):
    binary = "codex"
    kinds = frozenset({"thread.started"})
    apart = True
    how_to_get_it = "Get it with `npm install -g @openai/codex`, or name another agent with --agent."
    passes = ("CODEX_*", "OPENAI_*", "AZURE_*")
    home = (f".codex/{_LOGIN}",)

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        model = self.model(briefing)
        own = [name for name in self._providers() if _PLAIN_KEY.fullmatch(name)]
        names = ("request_max_retries", "stream_max_retries")
        retries = [f"model_providers.{provider}.{name}" for provider in own for name in names]
        argv = (
            self.program(),
            *_HEADLESS,
            *(() if self.options.trust_project else ("-c", _untrusted(briefing.cwd, briefing.sandbox_paths.at))),
            *(part for setting in retries for part in ("-c", f"{setting}={_OWN_RETRIES}")),
            *(("-m", model) if model else ()),
            *self.args(briefing),
            *(("--", argument) if argument is not None else ("-",)),
        )
        return Invocation(argv, stdin)

    @contextmanager
    def prepared_environment(self, scratch: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Give it a home of its own, unless the settings name one, and the keys of the user's own providers."""
        if "CODEX_HOME" in self.options.env:
            yield {}
            return
        theirs, ours = self._home(), scratch / _OWN_HOME
        with borrowed(theirs, ours, _SEEDS):
            if (theirs / _LOGIN).is_file():
                (ours / _LOGIN).symlink_to(theirs / _LOGIN)
            keys = {str(provider.get("env_key")) for provider in self._providers().values()} - env.keys()
            given = {name: value for name, value in self.connection.base_env.items() if name in keys}
            yield {"CODEX_HOME": str(ours), **given}

    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        thread = next((event for event in events.head if event.get("type") == "thread.started"), None)
        if thread is None:
            false_start = startup_failure("codex", stderr, ended, _HINTS)
            return StreamResult("", false_start) if false_start else None
        used = (events.last("turn.completed") or Event()).table("usage")
        usage = replace(usage_of([used], *_TOKENS), session=thread.name("thread_id"))
        completed = (e for e in events.backwards(b'"agent_message"') if e.get("type") == "item.completed")
        messages = (item for event in completed if (item := event.table("item")).get("type") == "agent_message")
        failed, last = events.last("turn.failed"), next(events.backwards(), Event())
        failure, said = None, last.text("message")
        if failed is not None:
            failure = classify("codex", failed.text("error") or failed.table("error").text("message"), _HINTS)
        elif last.get("type") == "error" and _WAITING in said:
            failure = classify("codex", said, _HINTS)
        return StreamResult(next(messages, Event()).text("text"), failure, usage)

    def recorded_usage(self, scratch: Path) -> Usage:
        """Add up the last count in the record of each thread, which is that of the whole thread."""
        records = islice((scratch / _OWN_HOME).glob("sessions/*/*/*/rollout-*.jsonl"), _MOST_RECORDS)
        found: list[Event] = []
        for record in records:
            payloads = (event.table("payload") for event in Events(record).backwards(b'"token_count"'))
            counts = (each.table("info") for each in payloads if each.get("type") == "token_count")
            found += islice((total for each in counts if (total := each.table("total_token_usage"))), 1)
        return usage_of(found, *_TOKENS)

    def is_final(self, event: Event) -> bool:
        return event.get("type") in ("turn.completed", "turn.failed")

    def activity(self, event: Event) -> str:
        if event.get("type") == "error":
            return event.text("message")
        return _shown(event.table("item")) if event.text("type").startswith("item.") else ""

    def _home(self) -> Path:
        env = {**self.connection.base_env, **self.options.env}
        return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or Path.home()) / ".codex").absolute()

    def _providers(self) -> dict[str, dict[str, Any]]:
        """Return the model providers in the user's own settings."""
        try:
            found = tomllib.loads((self._home() / "config.toml").read_text(encoding="utf-8")).get("model_providers")
        except (OSError, ValueError):
            return {}
        tables = found.items() if isinstance(found, dict) else ()
        return {name: table for name, table in tables if isinstance(table, dict)}


def _untrusted(*paths: str) -> str:
    """Return the setting that marks folders as untrusted; each path is a quoted key, codex splits dotted ones."""
    places = dict.fromkeys(name for path in paths if path for name in (path, str(Path(path).resolve())))
    entries = (json.dumps(place, ensure_ascii=False) + '={trust_level="untrusted"}' for place in places)
    return f"projects={{{','.join(entries)}}}"


def _shown(item: Event) -> str:
    match item.get("type"):
        case "command_execution":
            return "Bash: " + _SHELL.sub(r"\2", item.text("command"))
        case "file_change":
            return f"Edit {', '.join(change.text('path') for change in item.tables('changes'))}"
        case "mcp_tool_call":
            return f"{item.name('server')}: {item.name('tool')}"
        case "web_search":
            return f"Search: {item.text('query')}"
        case "agent_message":
            return item.text("text")
    return ""


connect = CodexAgent
