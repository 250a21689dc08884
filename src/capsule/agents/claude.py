"""Claude Code, headless: `claude -p PROMPT --dangerously-skip-permissions`, its events as JSON lines.

What it reports has to be read with care (measured with 2.1.325): an API error is a `result` whose subtype is "success"
and whose `is_error` is true; a tool that it was not allowed to use leaves no other trace than `permission_denials`; and
how long a provider wants us to wait is told only in the retries (`api_retry`), or for subscriptions in a
`rate_limit_event`. It retries twice by itself: a single hiccup then costs no phase, and an outage is known in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, TypeVar

from msgspec.structs import replace

from capsule.agents._cli import Invocation, by_argument_or_stdin
from capsule.agents._stream import (
    Event,
    Events,
    StreamAgent,
    StreamResult,
    added_up,
    amount,
    called,
    count,
    in_short,
    table,
    tables,
    tool_line,
    word,
)
from capsule.core.briefing import Briefing
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind, Reaction
from capsule.system.process import Ended

_HEADLESS = ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose")
_NOTHING_OF_THE_PROJECTS = ("--setting-sources", "user", "--strict-mcp-config")
Number = TypeVar("Number", int, float)
OWN_RETRIES = 2
_LONGEST_OWN_PAUSE = 2.0
"""Its own back-off between so few retries stays below this: a longer pause is what the provider asked for."""
_WORST_FIRST = (Reaction.STOP, Reaction.JUDGE, Reaction.WAIT)
_MOST_DENIALS_NAMED = 5
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_LOGIN = "Run `claude` once and log in, or set ANTHROPIC_API_KEY."
_BILLING = "Add credit, or use another key or agent, then run the same command again."
_CHECK_MODEL = "Check the model that the settings, the workflow or --model name."
_SMALLER = "Make the item smaller, or the prompt shorter."
_LATER = "It should pass by itself."

# The words by which a result says what went wrong, the telling ones first.
_FAILURES: tuple[tuple[str, Kind, str], ...] = (
    ("error_max_turns", Kind.CUT_SHORT, "Give it more turns with --max-turns in agents.claude.args."),
    ("error_max_budget_usd", Kind.CUT_SHORT, "Give it more with budget.phase.usd."),
    ("error_max_structured_output_retries", Kind.CUT_SHORT, ""),
    ("max_output_tokens", Kind.CUT_SHORT, "Set CLAUDE_CODE_MAX_OUTPUT_TOKENS in agents.claude.env, or split the item."),
    ("prompt_too_long", Kind.CONTEXT, _SMALLER),
    ("blocking_limit", Kind.CONTEXT, _SMALLER),
    ("refusal", Kind.REFUSAL, "Put the item into other words, or name another model."),
    ("connection_failed", Kind.CONNECTION, "Check the network, the proxy and ANTHROPIC_BASE_URL."),
    ("billing_error", Kind.QUOTA, _BILLING),
    ("authentication_failed", Kind.AUTH, _LOGIN),
    ("authentication_error", Kind.AUTH, _LOGIN),
    ("permission_error", Kind.AUTH, _LOGIN),
    ("model_not_found", Kind.CONFIGURATION, _CHECK_MODEL),
    ("not_found_error", Kind.CONFIGURATION, _CHECK_MODEL),
    ("rate_limit", Kind.RATE_LIMIT, _LATER),
    ("rate_limit_error", Kind.RATE_LIMIT, _LATER),
    ("overloaded", Kind.OVERLOAD, _LATER),
    ("server_error", Kind.OVERLOAD, _LATER),
)
_STATUSES = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 429: "rate_limit"}
_SERVERS_FAULT = 500

# What it says on stderr, with no event at all, where it does not even begin.
_FALSE_STARTS: tuple[tuple[str, Kind, str], ...] = (
    (
        "cannot be used with root",
        Kind.CONFIGURATION,
        "Run Capsule as an ordinary user, or install bubblewrap: inside the sandbox claude works as root too.",
    ),
    ("error: unknown option", Kind.CONFIGURATION, "Check agents.claude.args in the settings, and claude's version."),
    ("error: option", Kind.CONFIGURATION, "Check agents.claude.args in the settings."),
    ("Input must be provided", Kind.CONFIGURATION, "The prompt is empty: check the workflow's prompts."),
    ("stdin input exceeds", Kind.CONTEXT, _SMALLER),
)

# What it keeps in its folder for itself. All else there may be obeyed by its user's next session: settings, hooks and
# the scripts they name, tool servers, instructions, memories of projects, a program that updates itself.
_LOGIN = ".credentials.json"
_OF_ITS_OWN = (
    *("projects", "todos", "tasks", "plans", "sessions", "session-env", "shell-snapshots", "file-history", "backups"),
    *("statsig", "telemetry", "debug", "logs", "cache", "paste-cache", "image-cache", "ide", "downloads", "usage-data"),
    *("history.jsonl", "stats-cache.json"),
)

# What to show of a tool's input, by the first of these names that it has.
_TELLING = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "prompt", "skill")


class ClaudeAgent(StreamAgent):
    binary = "claude"
    kinds = frozenset({"system", "assistant", "user", "result", "stream_event", "rate_limit_event"})
    apart = True
    how_to_get_it = (
        "Get it with `npm install -g @anthropic-ai/claude-code`, name another agent with --agent, "
        "or see the pipeline without one: `capsule demo`."
    )
    passes = ("ANTHROPIC_*", "CLAUDE_*", "AWS_*", "GOOGLE_*", "GCLOUD_*", "CLOUD_ML_REGION", "VERTEX_*", "AZURE_*")
    home = (f".claude/{_LOGIN}",)
    home_read_only = {".claude.json": (), ".claude": _OF_ITS_OWN}  # noqa: RUF012 (read, never changed)

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        model, most = self.model(briefing), briefing.most_usd
        argv = (
            self.program(),
            *(("-p", argument) if argument is not None else ("-p",)),
            *_HEADLESS,
            *(() if self.connection.trust_project else _NOTHING_OF_THE_PROJECTS),
            *(("--model", model) if model else ()),
            *(("--max-budget-usd", f"{most:.4f}") if most is not None else ()),
            *self.args(briefing),
        )
        return Invocation(argv, stdin)

    def defaults(self) -> Mapping[str, str]:
        return {
            "CLAUDE_CODE_MAX_RETRIES": str(OWN_RETRIES),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            **({"IS_SANDBOX": "1"} if self.connection.sandbox else {}),
        }

    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        result = events.last("result")
        if result is None and not self.prints_events(events):
            false_start = _false_start(stderr) if ended.exit_code else None
            return StreamResult("", false_start) if false_start else None
        if result is None:
            return StreamResult(
                _last_said(events), _still_waiting(events), _identified(_used_so_far(events), events, {})
            )
        return StreamResult(_final_text(result), _worst_failure(events), _usage(events, result))

    def is_final(self, event: Event) -> bool:
        return event.get("type") == "result"

    def activity(self, event: Event) -> str:
        if event.get("subtype") == "api_retry":
            return f"{called(event.get('error'))}: it tries again in {_retry_pause(event) or 0:.0f} s"
        if event.get("type") != "assistant":
            return ""
        return next(filter(None, map(_shown, reversed(_content(event)))), "")


def _final_text(result: Event) -> str:
    return word(result.get("result"))


def _last_said(events: Events) -> str:
    """Of an agent that was ended in the middle: the last words it had."""
    said = (_text(event) for event in events.backwards(b'"assistant"') if event.get("type") == "assistant")
    return next(filter(None, said), "")


def _results(events: Events) -> Iterator[Event]:
    """It prints one, at its very end; but whoever it has started may print there too, to make another end of it."""
    return (event for event in events.backwards(b'"result"') if event.get("type") == "result")


def _worst_failure(events: Events) -> Failure | None:
    """Of all results, however many: what the last of them says does not undo what another one has said."""
    brought = word(next(events.backwards(b'"is_api_error_message"'), {}).get("error"))
    resets_in = _resets_in(events)
    failures = (_failure(result, brought, resets_in) for result in _results(events))
    return min(filter(None, failures), key=lambda failure: _WORST_FIRST.index(failure.reaction), default=None)


def _failure(result: Event, brought: str, resets_in: float | None) -> Failure | None:
    """An error's words are in the result and in the message that brought it."""
    if not result.get("is_error"):
        denials = result.get("permission_denials")
        return _denied(denials) if isinstance(denials, list) and denials else None
    fields = ("subtype", "api_error", "terminal_reason", "stop_reason", "api_error_type")
    errors = result.get("errors")
    said = "; ".join(map(word, errors)) if isinstance(errors, list) else ""
    words = {brought, *(word(result.get(name)) for name in fields), _by_status(result.get("api_error_status"))}
    return _failed(words, _final_text(result) or said or word(result.get("subtype")), resets_in)


def _by_status(status: object) -> str:
    """The word for an HTTP status, for answers that have no other."""
    if isinstance(status, int) and status >= _SERVERS_FAULT:
        return "overloaded"
    return _STATUSES.get(status, "") if isinstance(status, int) else ""


def _failed(words: set[str], said: str, resets_in: float | None = None) -> Failure:
    kind, hint = next(((kind, hint) for word, kind, hint in _FAILURES if word in words), (Kind.CRASH, ""))
    waits = kind in (Kind.RATE_LIMIT, Kind.OVERLOAD)
    return Failure(kind, f"claude: {in_short(said)}", hint, resets_in if waits else None)


def _denied(denials: list[Any]) -> Failure:
    tools = dict.fromkeys(called(denial.get("tool_name")) for denial in tables(denials))
    named = ", ".join(list(filter(None, tools))[:_MOST_DENIALS_NAMED]) or "a tool"
    return Failure(
        Kind.PERMISSION,
        f"claude was not allowed to use {named}, and went on without.",
        "Look at the permissions in its user settings (~/.claude/settings.json) and in agents.claude.args.",
    )


def _false_start(stderr: str) -> Failure | None:
    for words, kind, hint in _FALSE_STARTS:
        if words in stderr:
            line = next(line for line in stderr.splitlines() if words in line)
            return Failure(kind, f"claude: {in_short(line)}", hint)
    return None


def _still_waiting(events: Events) -> Failure | None:
    """It was ended while it waited for its provider: that is not the agent's fault."""
    last = next(events.backwards(), {})
    if last.get("subtype") != "api_retry":
        return None
    why = (word(last.get("error")) or "unknown") if last.get("error_status") else "connection_failed"
    return _failed({why}, f"ended while it waited for its provider ({why})", _pause_asked_for(last))


def _resets_in(events: Events) -> float | None:
    """As told by a subscription's limit, unless that has been lifted since, or by the pause it was asked to make."""
    info = table((events.last("rate_limit_event") or {}).get("rate_limit_info"))
    resets_at = amount(info.get("resetsAt")) if info.get("status") == "rejected" else None  # others are not reached yet
    left = (resets_at or 0.0) - time.time()
    if left > 0:
        return left
    retries = (event for event in events.backwards(b'"api_retry"') if event.get("subtype") == "api_retry")
    return _pause_asked_for(next(retries, {}))


def _pause_asked_for(event: Event) -> float | None:
    pause = _retry_pause(event)
    return pause if pause and pause > _LONGEST_OWN_PAUSE else None


def _retry_pause(event: Event) -> float | None:
    delay = amount(event.get("retry_delay_ms"))
    return delay / 1000 if delay is not None else None


def _usage(events: Events, result: Event) -> Usage:
    return _identified(reduce(_larger, map(_spent, _results(events)), Usage()), events, result)


def _used_so_far(events: Events) -> Usage:
    """Add up what single messages took, for one that was ended before its result told the sum; it knows no price.

    A message is printed once for each of its parts, with its usage each time: of one message the last counts. What it
    wrote is counted low, because that usage stems from when the answer began.
    """
    said = (event for event in events.marked(b'"assistant"') if event.get("type") == "assistant")
    last: dict[tuple[str, str], Usage] = {}
    for event in said:
        message = table(event.get("message"))
        last[word(message.get("id")), word(event.get("request_id"))] = _spent({"usage": message.get("usage")})
    return added_up(last.values())


def _spent(result: Event) -> Usage:
    used = table(result.get("usage"))
    read = [tokens for name in _READ if (tokens := count(used.get(name))) is not None]
    return Usage(
        tokens_in=count(sum(read)) if read else None,
        tokens_out=count(used.get("output_tokens")),
        usd=amount(result.get("total_cost_usd")),
    )


def _larger(one: Usage, other: Usage) -> Usage:
    return Usage(
        tokens_in=_most((one.tokens_in, other.tokens_in)),
        tokens_out=_most((one.tokens_out, other.tokens_out)),
        usd=_most((one.usd, other.usd)),
    )


def _most(amounts: Iterable[Number | None]) -> Number | None:
    return max((known for known in amounts if known is not None), default=None)


def _identified(usage: Usage, events: Events, result: Event) -> Usage:
    started = next((event for event in events.head if event.get("subtype") == "init"), {})
    session = called(result.get("session_id")) or called(started.get("session_id"))
    model = called(started.get("model")) or called(next(iter(table(result.get("modelUsage"))), ""))
    return replace(usage, model=model, session=session)


def _content(event: Event) -> list[dict[str, Any]]:
    return tables(table(event.get("message")).get("content"))


def _text(event: Event) -> str:
    return "\n".join(word(block.get("text")) for block in _content(event) if block.get("type") == "text")


def _shown(block: dict[str, Any]) -> str:
    if block.get("type") != "tool_use":
        return word(block.get("text"))
    return tool_line(block.get("name"), block.get("input"), _TELLING)


connect = ClaudeAgent
