"""opencode, headless: `opencode run --format json`, its events as JSON lines.

Measured with 1.18.33:

- The prompt always goes by stdin: an argument with spaces in it reaches the model in quotes, those inside it escaped.
- OPENCODE_DISABLE_PROJECT_CONFIG leaves out the repository's `opencode.json` and what `.opencode/` configures, but not
  plugins: `.opencode/plugin/*.js` runs inside opencode whatever is set. Where there are any, it is not started at all.
- It retries a rate limit, an overload and a torn stream without end, and prints nothing about it: its log goes to
  stderr, so that an ended run can be explained.
- There is no last event. What the last step says (`length`, `content-filter`) or an error after it is how it ended.
- Each run leaves a library of 5.6 MB in the temp folder; ours is removed with the run.
- It loads plugins from its folder of settings, and runs what it downloaded into its cache. In a sandbox it keeps
  nothing but its login there; sessions and snapshots end with the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from capsule.agents._cli import Invocation, not_started
from capsule.agents._provider_errors import classify
from capsule.agents._stream import Event, Events, StreamAgent, StreamResult, usage_of
from capsule.core.briefing import Briefing, Transcript
from capsule.core.failure import Failure, Kind
from capsule.system.files import read_regular
from capsule.system.process import Ended

_HEADLESS = ("run", "--format", "json", "--print-logs", "--log-level", "ERROR")
_LOGINS = ("auth.json", "mcp-auth.json")
_CONTENT = "OPENCODE_CONFIG_CONTENT"
_UNATTENDED = {"permission": "allow", "share": "disabled", "autoupdate": False}
_LARGEST_SETTINGS = 1024 * 1024
_PLUGINS = ("plugin/*.js", "plugin/*.ts", "plugins/*.js", "plugins/*.ts")
_SETTINGS = ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc")
_NAMES_PLUGINS = re.compile(rb'"plugins?"|\\u')
_LOGGED = re.compile(r'error\.error="((?:\\.|[^"\\])*)"|error="((?:\\.|[^"\\])*)"')
_UNAVAILABLE = 503
_REJECTED = re.compile(r"rejected permission|rule which prevents")
_TELLING = ("command", "filePath", "path", "pattern", "query", "url", "description", "prompt")
_HINTS = {
    Kind.AUTH: "Run `opencode auth login`, or set the key of your provider.",
    Kind.CONFIGURATION: "Check the model (provider/model), agents.opencode.args and opencode's own settings.",
}
_LAST_REASONS = ("stop", "length", "content-filter")
_ENDINGS: Mapping[str, tuple[Kind, str]] = {
    "length": (Kind.CUT_SHORT, "the answer was cut at the length that one answer may have"),
    "content-filter": (Kind.REFUSAL, "the provider's content filter blocked the answer"),
}


class OpencodeAgent(StreamAgent):
    binary = "opencode"
    kinds = frozenset({"step_start", "step_finish", "text", "tool_use", "reasoning", "error"})
    quiet_after_event = 45.0
    """Its last step looks like the one before it shortens a long conversation, which takes a while without a word."""
    apart = True
    how_to_get_it = "Get it with `npm install -g opencode-ai`, or name another agent with --agent."
    passes = (
        *("OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "OPENROUTER_*", "GEMINI_*", "GOOGLE_*", "GROQ_*", "MISTRAL_*"),
        *("XAI_*", "DEEPSEEK_*", "CEREBRAS_*", "TOGETHER_*", "AWS_*", "AZURE_*", "VERTEX_*"),
    )
    home = tuple(f".local/share/opencode/{name}" for name in _LOGINS)
    home_read_only = {  # noqa: RUF012 (read, never changed)
        ".config/opencode": (),
        ".cache/opencode": ("version", "models.json"),
        ".local/share/opencode/bin": (),
    }

    def invocation(self, briefing: Briefing) -> Invocation:
        model = self.model(briefing)
        argv = (self.program(), *_HEADLESS, *(("-m", model) if model else ()), *self.args(briefing))
        return Invocation(argv, briefing.prompt)

    def defaults(self) -> Mapping[str, str]:
        ours = {} if self.options.trust_project else {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        return {"NO_COLOR": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", **ours}

    @contextmanager
    def prepared_environment(self, scratch: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:  # noqa: ARG002
        """Set permissions for an unattended run; keep the rest of the user's settings."""
        try:
            given = json.loads(env.get(_CONTENT, ""))
        except ValueError:
            given = {}
        yield {_CONTENT: json.dumps({**(given if isinstance(given, dict) else {}), **_UNATTENDED})}

    def run(self, briefing: Briefing) -> Transcript:
        """Refuse to start where it would run the repository's own code inside itself, keys and all."""
        plugin = None if self.options.trust_project else _plugin_of_the_project(Path(briefing.cwd))
        if plugin is None:
            return super().run(briefing)
        failure = Failure(
            Kind.CONFIGURATION,
            f"opencode would run the repository's own plugins ({plugin}), and has no switch against it.",
            "If you trust them, set agents.opencode.trust_project; else remove them, or name another agent.",
        )
        return not_started(failure)

    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        failure = _failure(events, ended, _last_logged(stderr))
        if failure is None and not self.prints_events(events):
            return None
        # It reports step by step. A price of zero means that it knows none.
        steps = [_part(event) for event in events.marked(b'"step_finish"') if event.get("type") == "step_finish"]
        used = [tokens for step in steps for tokens in (step.table("tokens"), step.table("tokens").table("cache"))]
        usage = replace(
            usage_of(used, ("input", "read", "write"), ("output", "reasoning")),
            usd=Event(usd=sum(step.amount("cost") or 0.0 for step in steps)).amount("usd") or None,
            session=next((event.name("sessionID") for event in events.head if "sessionID" in event), ""),
        )
        said = [_part(event) for event in events.back_to("tool_use", "step_start") if event.get("type") == "text"]
        return StreamResult("\n".join(part.text("text") for part in reversed(said)), failure, usage)

    def is_final(self, event: Event) -> bool:
        return event.get("type") == "step_finish" and _part(event).get("reason") in _LAST_REASONS

    def activity(self, event: Event) -> str:
        match event.get("type"):
            case "tool_use":
                part = _part(event)
                return Event(part.table("state"), tool=part.get("tool")).tool("tool", "input", _TELLING)
            case "text":
                return _part(event).text("text")
            case "error":
                return _error_text(event)
        return ""


def _plugin_of_the_project(cwd: Path) -> str | None:
    """Return the first file that would bring code along; settings with escapes might name one, and count."""
    for pattern in _PLUGINS:
        for found in (cwd / ".opencode").glob(pattern):
            return str(found.relative_to(cwd))
    for name in _SETTINGS:
        try:
            if _NAMES_PLUGINS.search(read_regular(cwd / name, _LARGEST_SETTINGS)):
                return name
        except FileNotFoundError:
            continue
        except OSError:
            return name
    return None


def _failure(events: Events, ended: Ended, logged: str) -> Failure | None:
    last = next((event for event in events.backwards() if event.get("type") in ("error", "step_finish")), Event())
    if last.get("type") == "error":
        data, message = last.table("error").table("data"), _error_text(last)
        whole = f"{message} {logged}" if "server logs" in message else message  # some say only: see the log
        code, headers = data.count("statusCode"), data.table("responseHeaders")
        return classify("opencode", whole, _HINTS, status=code, headers=headers)
    kind, said = _ENDINGS.get(_part(last).text("reason"), (None, ""))
    if kind:
        return classify("opencode", said, _HINTS) if kind is Kind.REFUSAL else Failure(kind, f"opencode: {said}.")
    if ended.why in ("timeout", "idle") and logged:
        # Ended while it retried, which it does only when its provider is to blame.
        status = _UNAVAILABLE if logged.startswith("AI_") else None
        found = classify("opencode", logged, _HINTS, status=status)
        return None if found.kind is Kind.CRASH else found
    if ended.why == "exited" and ended.exit_code and logged:
        return classify("opencode", logged, _HINTS)
    # No one could grant a tool permission; the run itself ends with success.
    for asked in events.backwards(b"permission"):
        part = _part(asked)
        if _REJECTED.search(part.table("state").text("error")):
            return Failure(
                Kind.PERMISSION,
                f"opencode was not allowed to use {part.name('tool')}, and went on without.",
                "Look at `permission` in its settings, and at OPENCODE_PERMISSION.",
            )
    return None


def _error_text(event: Event) -> str:
    error = event.table("error")
    if not error:
        return event.text("error")
    name, message = error.text("name"), error.table("data").text("message")
    return message or name if name in ("APIError", "UnknownError") else f"{name}: {message}"


def _last_logged(stderr: str) -> str:
    """Return the last error of the main conversation in its log; titles and summaries are asked for on the side."""
    for line in reversed(stderr.splitlines()):
        found = _LOGGED.search(line) if "level=ERROR" in line and "small=true" not in line else None
        if found:
            return found[1] or found[2]
    return ""


def _part(event: Event) -> Event:
    return event.table("part")


connect = OpencodeAgent
