"""What agents and the project's commands see of our environment."""

from __future__ import annotations

import pytest

from capsule.system.environment import for_agents, for_commands

OURS = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "LC_TIME": "C",
    "VIRTUAL_ENV": "/venv",
    "HTTPS_PROXY": "http://me:s3cr3t-s3cr3t@proxy:3128",
    "GIT_AUTHOR_NAME": "Me",
    "GIT_DIR": "/elsewhere/.git",
    "CAPSULE_AGENT": "claude",
    "ANTHROPIC_API_KEY": "sk-0123456789",
    "DATABASE_URL": "postgres://app:s3cr3t-s3cr3t@db/shop",
    "NODE_AUTH_TOKEN": "npm-0123456789",
    "SOMETHING_ELSE": "1",
}
HARMLESS = {"PATH", "HOME", "LC_TIME", "VIRTUAL_ENV", "HTTPS_PROXY", "GIT_AUTHOR_NAME"}


@pytest.mark.promise("agents.environment")
def test_an_agent_sees_what_is_on_the_list_and_nothing_else() -> None:
    assert set(for_agents(OURS)) == HARMLESS


def test_a_command_sees_all_but_secrets() -> None:
    assert set(for_commands(OURS)) == HARMLESS | {"SOMETHING_ELSE"}


@pytest.mark.parametrize("for_whom", [for_agents, for_commands])
def test_what_is_asked_for_is_given_secret_or_not(for_whom: object) -> None:
    assert callable(for_whom)
    given = for_whom(OURS, ["ANTHROPIC_*", "SOMETHING_ELSE"])
    assert given["ANTHROPIC_API_KEY"] == "sk-0123456789"
    assert given["SOMETHING_ELSE"] == "1"
    assert "NODE_AUTH_TOKEN" not in given


@pytest.mark.parametrize("for_whom", [for_agents, for_commands])
def test_what_capsule_tells_itself_and_which_repository_it_is_in_are_never_given(for_whom: object) -> None:
    assert callable(for_whom)
    assert {"CAPSULE_AGENT", "GIT_DIR"} & set(for_whom(OURS, ["*"])) == set()


def test_a_relative_entry_of_the_search_path_is_passed_on_to_nobody() -> None:
    for given in (for_agents, for_commands):
        assert given({"PATH": "tools:/usr/bin:.:/bin"})["PATH"] == "/usr/bin:/bin"


TOKEN = "ghs-0123456789abcdef"
WITH_GIT_SETTINGS = {
    "GIT_CONFIG_COUNT": "6",
    "GIT_CONFIG_KEY_0": "http.https://example.org/.extraHeader",
    "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {TOKEN}",
    "GIT_CONFIG_KEY_1": "safe.directory",
    "GIT_CONFIG_VALUE_1": "*",
    "GIT_CONFIG_KEY_2": f"url.https://x-access-token:{TOKEN}@example.org/.insteadOf",
    "GIT_CONFIG_VALUE_2": "https://example.org/",
    "GIT_CONFIG_KEY_3": "user.name",
    "GIT_CONFIG_VALUE_3": "Ada",
    "GIT_CONFIG_KEY_4": "credential.helper",
    "GIT_CONFIG_VALUE_4": f"!f() {{ echo password={TOKEN}; }}; f",
    "GIT_CONFIG_KEY_5": "user.email",
    "GIT_CONFIG_VALUE_5": f"https://me:{TOKEN}@example.org",
    "GIT_CONFIG_PARAMETERS": f"'http.extraheader=Authorization: bearer {TOKEN}'",
    "GIT_SSH_COMMAND": f"sshpass -p {TOKEN} ssh",
    "GIT_ASKPASS": "/usr/share/editor/askpass.sh",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_GLOBAL": "/home/me/.gitconfig",
    "GIT_COMMITTER_NAME": "Ada",
}


@pytest.mark.parametrize("for_whom", [for_agents, for_commands])
def test_git_settings_that_may_hold_a_credential_are_given_to_nobody(for_whom: object) -> None:
    assert callable(for_whom)
    assert for_whom(WITH_GIT_SETTINGS) == {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_CONFIG_KEY_1": "user.name",
        "GIT_CONFIG_VALUE_1": "Ada",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_GLOBAL": "/home/me/.gitconfig",
        "GIT_COMMITTER_NAME": "Ada",
    }


@pytest.mark.promise("agents.git-credentials")
@pytest.mark.parametrize("for_whom", [for_agents, for_commands])
def test_git_settings_are_given_by_name(for_whom: object) -> None:
    assert callable(for_whom)
    assert for_whom(WITH_GIT_SETTINGS, ["GIT_*"]) == WITH_GIT_SETTINGS
    given = for_whom(WITH_GIT_SETTINGS, ["GIT_CONFIG_VALUE_0", "GIT_ASKPASS"])
    assert given["GIT_CONFIG_COUNT"] == "3"
    assert given["GIT_CONFIG_VALUE_0"] == f"AUTHORIZATION: basic {TOKEN}"
    assert given["GIT_ASKPASS"]
    assert "GIT_SSH_COMMAND" not in given


@pytest.mark.parametrize("count", ["", "two", "-1", "9" * 30])
def test_a_count_of_git_settings_that_makes_no_sense_gives_none(count: str) -> None:
    env = {"GIT_CONFIG_COUNT": count, "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ada"}
    assert for_agents(env) == {}
