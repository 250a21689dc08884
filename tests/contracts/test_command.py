"""`command`: what presets and settings say about a CLI, and what the end of its output tells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from capsule.agents.command import CommandAgent
from capsule.core.briefing import LONGEST_ARGUMENT
from capsule.core.errors import PrerequisiteMissing, SettingsError
from capsule.core.failure import Kind, Reaction
from capsule.presets import described, presets
from capsule.project import adapters
from capsule.settings import load_settings
from capsule.system.process import SupervisorClient
from capsule.wiring import agent_maker
from tests.shared import a_connection

from .test_agents import a_briefing

SIGNAL = '{"status":"PASS","feedback":"429 is told apart now","files_changed":[],"summary":"s"}'
KNOWN = ("aider", "copilot", "qwen", "pi", "kiro", "amp")


@pytest.fixture
def supervisor() -> Iterator[SupervisorClient]:
    with SupervisorClient(grace=0.5) as supervisor:
        yield supervisor


def an_agent(supervisor: SupervisorClient, folder: Path, script: str, **options: object) -> CommandAgent:
    command = ("sh", "-c", script, "agent")
    return CommandAgent(a_connection(name="tiny", supervisor=supervisor, root=folder, command=command, **options))


# ── presets


@pytest.mark.parametrize("name", KNOWN)
def test_a_preset_is_an_agent_by_its_name(name: str, tmp_path: Path, supervisor: SupervisorClient) -> None:
    settings = load_settings(None, env={}, flags={"agent": name}).settings
    agent = agent_maker(settings, tmp_path, supervisor, None, model="large")("", "")
    argv = list(agent.describe(a_briefing(tmp_path, "Do it.")))
    assert ("large" in argv) == (name != "amp")
    assert "Do it." in argv or any(word.endswith(".prompt") for word in argv)
    assert not (tmp_path / "worktree" / ".capsule").exists(), "whoever only asks makes nothing"


def test_presets_are_complete_and_marked() -> None:
    assert set(presets()) == set(KNOWN)
    assert not set(presets()) & set(adapters("agents")), "an adapter of its own goes before"
    assert {name for name, preset in presets().items() if preset.mark == "untested"} == {"kiro", "amp"}
    for preset in presets().values():
        assert preset.get
        CommandAgent(
            a_connection(
                name="x", supervisor=SupervisorClient(), root=Path(), command=preset.command, failures=preset.failures
            )
        )


def test_settings_win_over_a_preset() -> None:
    flags = {"agents.aider.args": ["--map-tokens", "1024"], "agents.aider.env": {"COLUMNS": "500"}}
    options, preset = described(load_settings(None, env={}, flags=flags).settings, "aider")
    assert options.command == preset.command
    assert options.args == ("--map-tokens", "1024")
    assert options.env["COLUMNS"] == "500"


def test_whoever_gives_a_command_describes_it_alone() -> None:
    settings = load_settings(None, env={}, flags={"agents.aider.command": ["my-aider"]}).settings
    options, preset = described(settings, "aider")
    assert (options.command, options.env, preset.mark) == (("my-aider",), {}, "untested")


def test_a_preset_may_have_another_name() -> None:
    settings = load_settings(None, env={}, flags={"agents.quick.kind": "pi", "agents.quick.model": "small"}).settings
    options, _ = described(settings, "quick")
    assert (options.kind, options.command[0], options.model) == ("command", "pi", "small")


def test_how_to_get_a_preset_is_said_where_it_is_missing(
    tmp_path: Path, supervisor: SupervisorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = load_settings(None, env={}, flags={"agent": "copilot"}).settings
    with pytest.raises(PrerequisiteMissing) as missing:
        agent_maker(settings, tmp_path, supervisor, None)("", "").check()
    assert "npm install -g @github/copilot" in missing.value.hint


def test_an_agent_that_nobody_knows_is_told_from_those_that_are_known(
    tmp_path: Path, supervisor: SupervisorClient
) -> None:
    settings = load_settings(None, env={}, flags={"agent": "adier"}).settings
    with pytest.raises(SettingsError) as unknown:
        agent_maker(settings, tmp_path, supervisor, None)("", "")
    assert "aider" in unknown.value.hint


# ── what it is told


@pytest.mark.promise("evidence.trailers")
def test_the_model_that_was_asked_for_is_told_where_the_agent_tells_none(
    tmp_path: Path, supervisor: SupervisorClient
) -> None:
    for more, told in (
        ({"model_args": ("--model", "{model}")}, "large"),
        ({"model_args": ("--model={model}",)}, "large"),
        ({}, ""),
    ):
        agent = an_agent(supervisor, tmp_path, "true", **more)
        usage = agent.run(a_briefing(tmp_path, model="large")).usage
        assert usage and usage.model == told


def test_a_model_is_named_only_where_one_is_chosen(tmp_path: Path, supervisor: SupervisorClient) -> None:
    agent = an_agent(supervisor, tmp_path, "true", model_args=("--model", "{model}"))
    assert "--model" not in agent.describe(a_briefing(tmp_path))
    assert "large" in agent.describe(a_briefing(tmp_path, model="large"))


def test_a_prompt_too_long_for_its_place_is_pointed_at(tmp_path: Path, supervisor: SupervisorClient) -> None:
    read = 'expr "$1" : "Your task is in the file \\(.*\\)\\. Read all" | xargs cat'
    agent = CommandAgent(
        a_connection(name="t", supervisor=supervisor, root=tmp_path, command=("sh", "-c", read, "t", "{prompt}"))
    )
    prompt = "x" * (LONGEST_ARGUMENT + 50_000) + " the end"
    assert agent.run(a_briefing(tmp_path, prompt)).text == prompt.encode()


# ── what went wrong


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo 'HTTP 429: slow down' >&2; exit 1", Kind.RATE_LIMIT),
        ("echo 'HTTP 429: slow down'; exit 0", Kind.RATE_LIMIT),
        ("echo 'bad key' >&2; exit 1", Kind.AUTH),
        ("echo 'HTTP 418' >&2; exit 1", None),
        (f"echo 'HTTP 429' >&2; echo '{SIGNAL}'", None),
        (f"echo 'HTTP 429' >&2; echo '{SIGNAL}'; exit 1", None),
    ],
)
def test_the_end_of_its_output_tells_what_went_wrong_unless_it_answered(
    tmp_path: Path, supervisor: SupervisorClient, script: str, kind: Kind | None
) -> None:
    agent = an_agent(supervisor, tmp_path, script, failures={"rate limit": "HTTP 429", "auth": "bad key"})
    failure = agent.run(a_briefing(tmp_path)).failure
    assert (failure.kind if failure else None) == kind


def test_a_result_file_is_an_answer_too(tmp_path: Path, supervisor: SupervisorClient) -> None:
    agent = an_agent(
        supervisor, tmp_path, "echo '{}' > ../result; echo 'HTTP 429'", failures={"rate limit": "HTTP 429"}
    )
    assert agent.run(a_briefing(tmp_path, result_path=str(tmp_path / "result"))).failure is None


@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        ("aider", "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key", Kind.AUTH),
        ("aider", "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached", Kind.RATE_LIMIT),
        ("copilot", "Authentication failed with provider at http://127.0.0.1/v1 (HTTP 401).", Kind.AUTH),
        ("copilot", "Failed to get response from the AI model; retried 5 times Last error: 500 Oh", Kind.OVERLOAD),
        ("copilot", "Failed to get response from the AI model; retried 5 times Last error: 429 Oh", Kind.RATE_LIMIT),
        ("qwen", "[API Error: 401 Incorrect API key provided]", Kind.AUTH),
        ("pi", "401 Incorrect API key provided", Kind.AUTH),
        ("pi", "429 Rate limit reached for requests", Kind.RATE_LIMIT),
        ("pi", "500 The server had an error", Kind.OVERLOAD),
    ],
)
def test_presets_know_what_their_cli_says_when_it_is_turned_away(
    tmp_path: Path, supervisor: SupervisorClient, name: str, said: str, kind: Kind
) -> None:
    """These are the words of the real CLIs, against a server that turned them away."""
    agent = an_agent(supervisor, tmp_path, f"echo '{said}' >&2; exit 1", failures=presets()[name].failures)
    failure = agent.run(a_briefing(tmp_path)).failure
    assert failure
    assert failure.kind is kind
    assert failure.reaction is not Reaction.JUDGE
    assert said[:60] in failure.reason


@pytest.mark.parametrize("failures", [{"bad mood": "x"}, {"auth": "("}])
def test_a_kind_or_pattern_that_makes_no_sense_is_named(
    tmp_path: Path, supervisor: SupervisorClient, failures: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match=r"agents\.tiny\.failures"):
        an_agent(supervisor, tmp_path, "true", failures=failures)
