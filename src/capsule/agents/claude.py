"""Claude Code, headless: `claude -p PROMPT --dangerously-skip-permissions`, its events as JSON lines.

What it reports has to be read with care (measured with 2.1.325): an API error is a `result` whose subtype is "success"
and whose `is_error` is true; a tool that it was not allowed to use leaves no other trace than `permission_denials`; and
how long a provider wants us to wait is told only in the retries (`api_retry`), or for subscriptions in a
`rate_limit_event`. It retries twice by itself: a single hiccup then costs no phase, and an outage is known in seconds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec.structs import replace

from capsule.agents._cli import Invocation, by_argument_or_stdin
from capsule.agents._stream import Event, Events, StreamAgent, StreamResult, shortened, usage_of
from capsule.core.briefing import Briefing
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind, Reaction
from capsule.system.process import Ended

_HEADLESS = ("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose")
_NOTHING_OF_THE_PROJECTS = ("--setting-sources", "user", "--strict-mcp-config")
OWN_RETRIES = 2
_LONGEST_OWN_PAUSE = 2.0
"""Its own back-off between so few retries stays below this: a longer pause is what the provider asked for."""
_WORST_FIRST = (Reaction.STOP, Reaction.JUDGE, Reaction.WAIT)
_MOST_DENIALS_NAMED = 5
_READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_WRITTEN = ("output_tokens",)

_LOGIN = "Run `claude` once and log in, or set ANTHROPIC_API_KEY."
_BILLING = "Add credit, or use another key or agent, then run the same command again."
_CHECK_MODEL = "Check the model that the settings, the workflow or --model name."
_SMALLER = "Make the item smaller, or the prompt shorter."
_LATER = "It should pass by itself."

# The words of a result's error, the specific ones first.
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

# Its stderr if it does not even begin and prints no event.
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
    home = (".claude/.credentials.json",)
    home_read_only = {".claude.json": (), ".claude": _OF_ITS_OWN}  # noqa: RUF012 (read, never changed)

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        model, most = self.model(briefing), briefing.most_usd
        argv = (
            self.program(),
            *(("-p", argument) if argument is not None else ("-p",)),
            *_HEADLESS,
            *(() if self.options.trust_project else _NOTHING_OF_THE_PROJECTS),
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
            # Ended in the middle: its last text.
            said = (
                "\n".join(block.text("text") for block in _content(event) if block.get("type") == "text")
                for event in events.backwards(b'"assistant"')
                if event.get("type") == "assistant"
            )
            usage = _identified(_used_so_far(events), events, Event())
            return StreamResult(next(filter(None, said), ""), _still_waiting(events), usage)
        # A process that the CLI started may print a `result` too, to make another end of it: the worst one counts,
        # and the largest usage.
        results = [event for event in events.backwards(b'"result"') if event.get("type") == "result"]
        brought = next(events.backwards(b'"is_api_error_message"'), Event()).text("error")
        resets_in = _resets_in(events)
        failures = filter(None, (_failure(each, brought, resets_in) for each in results))
        worst = min(failures, key=lambda failure: _WORST_FIRST.index(failure.reaction), default=None)
        usages = [usage_of([each.table("usage")], _READ, _WRITTEN) for each in results]
        prices = [each.amount("total_cost_usd") for each in results]
        largest = Usage(
            tokens_in=max((used.tokens_in for used in usages if used.tokens_in is not None), default=None),
            tokens_out=max((used.tokens_out for used in usages if used.tokens_out is not None), default=None),
            usd=max((price for price in prices if price is not None), default=None),
        )
        return StreamResult(result.text("result"), worst, _identified(largest, events, result))

    def is_final(self, event: Event) -> bool:
        return event.get("type") == "result"

    def activity(self, event: Event) -> str:
        if event.get("subtype") == "api_retry":
            return f"{event.name('error')}: it tries again in {_retry_pause(event) or 0:.0f} s"
        blocks = reversed(_content(event)) if event.get("type") == "assistant" else ()
        lines = (
            block.tool("name", "input", _TELLING) if block.get("type") == "tool_use" else block.text("text")
            for block in blocks
        )
        return next(filter(None, lines), "")


def _failure(result: Event, brought: str, resets_in: float | None) -> Failure | None:
    """Read what went wrong from a result and from the message that brought it."""
    if not result.get("is_error"):
        if not isinstance(result.get("permission_denials"), list) or not result["permission_denials"]:
            return None
        tools = dict.fromkeys(denial.name("tool_name") for denial in result.tables("permission_denials"))
        named = ", ".join(list(filter(None, tools))[:_MOST_DENIALS_NAMED]) or "a tool"
        return Failure(
            Kind.PERMISSION,
            f"claude was not allowed to use {named}, and went on without.",
            "Look at the permissions in its user settings (~/.claude/settings.json) and in agents.claude.args.",
        )
    fields = ("subtype", "api_error", "terminal_reason", "stop_reason", "api_error_type")
    errors, status = result.get("errors"), result.get("api_error_status")
    said = "; ".join(each for each in errors if isinstance(each, str)) if isinstance(errors, list) else ""
    words = {brought, *(result.text(name) for name in fields)}
    if isinstance(status, int):  # for errors without other words
        words.add("overloaded" if status >= _SERVERS_FAULT else _STATUSES.get(status, ""))
    return _failed(words, result.text("result") or said or result.text("subtype"), resets_in)


def _failed(words: set[str], said: str, resets_in: float | None = None) -> Failure:
    kind, hint = next(((kind, hint) for word, kind, hint in _FAILURES if word in words), (Kind.CRASH, ""))
    waits = kind in (Kind.RATE_LIMIT, Kind.OVERLOAD)
    return Failure(kind, f"claude: {shortened(said)}", hint, resets_in if waits else None)


def _false_start(stderr: str) -> Failure | None:
    for words, kind, hint in _FALSE_STARTS:
        if words in stderr:
            line = next(line for line in stderr.splitlines() if words in line)
            return Failure(kind, f"claude: {shortened(line)}", hint)
    return None


def _still_waiting(events: Events) -> Failure | None:
    """Blame the provider if the CLI was ended while it waited to retry."""
    last = next(events.backwards(), Event())
    if last.get("subtype") != "api_retry":
        return None
    why = (last.text("error") or "unknown") if last.get("error_status") else "connection_failed"
    return _failed({why}, f"ended while it waited for its provider ({why})", _pause_asked_for(last))


def _resets_in(events: Events) -> float | None:
    """Return seconds until a subscription's limit is lifted, or else the pause its provider asked for."""
    info = (events.last("rate_limit_event") or Event()).table("rate_limit_info")
    resets_at = info.amount("resetsAt") if info.get("status") == "rejected" else None  # others are not reached yet
    left = (resets_at or 0.0) - time.time()
    if left > 0:
        return left
    retries = (event for event in events.backwards(b'"api_retry"') if event.get("subtype") == "api_retry")
    return _pause_asked_for(next(retries, Event()))


def _pause_asked_for(event: Event) -> float | None:
    pause = _retry_pause(event)
    return pause if pause and pause > _LONGEST_OWN_PAUSE else None


def _retry_pause(event: Event) -> float | None:
    delay = event.amount("retry_delay_ms")
    return delay / 1000 if delay is not None else None


def _used_so_far(events: Events) -> Usage:
    """Add up the usage of single messages, for a run that ended before its result told the sum; no price is known.

    A message is printed once for each of its parts, with its usage each time: of one message the last counts. Output
    is counted low, because that usage stems from when the answer began.
    """
    said = (event for event in events.marked(b'"assistant"') if event.get("type") == "assistant")
    last = {(event.table("message").text("id"), event.text("request_id")): event.table("message") for event in said}
    return usage_of([message.table("usage") for message in last.values()], _READ, _WRITTEN)


def _identified(usage: Usage, events: Events, result: Event) -> Usage:
    started = next((event for event in events.head if event.get("subtype") == "init"), Event())
    session = result.name("session_id") or started.name("session_id")
    model = started.name("model") or Event(model=next(iter(result.table("modelUsage")), "")).name("model")
    return replace(usage, model=model, session=session)


def _content(event: Event) -> list[Event]:
    return event.table("message").tables("content")


connect = ClaudeAgent
