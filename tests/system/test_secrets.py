"""Which variables are secret, which values are looked for, and in which spellings."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from capsule.core.redaction import Redactor
from capsule.system.secrets import is_secret, spelled, values_of

VALUE = "hunter22-hunter22"


def _git_setting(name: str, value: str) -> dict[str, str]:
    return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": name, "GIT_CONFIG_VALUE_0": value}


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "MYSQL_PWD", "DB_PASS"),
        *("githubToken", "npm_config__authToken", "SENTRY_DSN", "COOKIE", "SSH_PASSPHRASE", "GITHUB_PAT", "KEY"),
        *("GOOGLE_CREDENTIALS", "BASIC_AUTH", "SESSION_SECRET", "STRIPE_KEYS", "APIKEY", "MY_JWT"),
    ],
)
def test_names_that_tell(name: str) -> None:
    assert is_secret(name, VALUE)
    assert values_of({name: VALUE}) == (VALUE,)


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "PATH", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "GPG_AGENT_INFO", "KEYBOARD_LAYOUT"),
        *("XDG_SESSION_ID", "DBUS_SESSION_BUS_ADDRESS", "GIT_AUTHOR_NAME", "MAX_THINKING_TOKENS", "MONKEY"),
        *("TOKENIZERS_PARALLELISM", "COMPASS", "XKB_KEYMAP", "GIT_CONFIG_KEY_0", "PATTERN", "AUTHOR"),
    ],
)
def test_names_that_only_look_alike(name: str) -> None:
    assert not is_secret(name, VALUE)
    assert values_of({name: VALUE}) == ()


def test_the_password_of_any_url_is_secret_and_its_host_is_not() -> None:
    env = {"DATABASE_URL": "postgres://app:s3cr3t-s3cr3t@db.example/shop", "HOMEPAGE": "https://example.org/a:b@c"}
    assert values_of(env) == ("s3cr3t-s3cr3t",)
    assert is_secret("DATABASE_URL", env["DATABASE_URL"])
    assert not is_secret("HOMEPAGE", env["HOMEPAGE"])


@pytest.mark.parametrize("value", ["", "short", "true", "password", "Postgres", "localhost"])
def test_what_would_black_out_everyday_words_is_not_looked_for(value: str) -> None:
    assert values_of({"DB_PASSWORD": value}) == ()


def test_where_a_key_lies_is_no_secret(tmp_path: Path) -> None:
    assert values_of({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path)}) == ()
    assert values_of({"SOME_SECRET": "/not/there/but/base64"}) == ("/not/there/but/base64",)


def test_a_name_in_the_settings_is_enough_even_for_a_short_value() -> None:
    env = {"LICENCE": "a1b2", "OTHER": "c3d4", "LICENCE_ID": "e"}
    assert values_of(env, ["LICENCE*"]) == ("a1b2",)


def test_a_private_key_is_secret_line_by_line() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    key = f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"
    assert values_of({"TLS_PRIVATE_KEY": key}) == (key, line)


def test_every_spelling_is_taken_out() -> None:
    value = 'p"ä/ss\\w+ör d?\n=' + "x" * 80
    redact = Redactor(spelled([value])).text
    in_base64 = base64.b64encode(value.encode()).decode()
    wrapped = "\n".join(in_base64[at : at + 76] for at in range(0, len(in_base64), 76))
    forms = [
        *(value, json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(json.dumps(value))),
        *(quote(value), quote(value, safe=""), in_base64, wrapped, base64.urlsafe_b64encode(value.encode()).decode()),
    ]
    for form in forms:
        assert "[redacted]" in redact(f"<{form}>")
        assert len(redact(form)) < 30, form


def test_a_plain_token_has_two_spellings_and_no_more() -> None:
    """Each one costs a look at every byte that an agent prints."""
    assert len(spelled(["ghp_0123456789abcdefABCDEF"])) == 2


@pytest.mark.parametrize(
    "value",
    ["sk-canary-7f3a9b2c\n", " sk-canary-7f3a9b2c", '"sk-canary-7f3a9b2c"', "Bearer sk-canary-7f3a9b2c"],
)
def test_a_secret_is_found_without_what_stands_around_it(value: str) -> None:
    assert "sk-canary-7f3a9b2c" in values_of({"MY_API_KEY": value})


def test_the_password_of_a_url_is_found_as_it_is_typed_too() -> None:
    assert "p@ss/w0rd-canary" in values_of({"DATABASE_URL": "postgres://u:p%40ss%2Fw0rd-canary@h/db"})


@pytest.mark.parametrize(
    "env",
    [
        _git_setting("http.https://example.org/.extraHeader", f"AUTHORIZATION: basic {VALUE}"),
        _git_setting("http.extraheader", f"Authorization: Bearer {VALUE}"),
        _git_setting("http.extraHeader", f"PRIVATE-TOKEN: {VALUE}"),
        _git_setting(f"url.https://x-access-token:{VALUE}@example.org/.insteadOf", "https://example.org/"),
        _git_setting(f"url.https://{VALUE}@example.org/.insteadOf", "https://example.org/"),
        _git_setting("remote.origin.url", f"https://oauth2:{VALUE}@example.org/a.git"),
        _git_setting("http.proxy", f"http://me:{VALUE}@proxy:3128"),
        _git_setting("sendemail.smtpPass", VALUE),
        {"GIT_CONFIG_PARAMETERS": f"'http.extraheader=Authorization: bearer {VALUE}' 'user.name'='Ada'"},
        {"GIT_CONFIG_PARAMETERS": f"'http.extraheader'='Authorization: bearer {VALUE}'"},
        {"GIT_SSH_COMMAND": f"sshpass -p {VALUE} ssh"},
        {"GIT_SSH_COMMAND": f"sshpass -p'{VALUE}' ssh -i /key"},
        {"SSHPASS": VALUE},
    ],
)
def test_what_a_git_setting_of_the_environment_holds_is_secret(env: dict[str, str]) -> None:
    redact = Redactor(spelled(values_of(env))).text
    assert VALUE not in redact(f"it said {VALUE}.")
    for text in ("Ada", "https://example.org/", "Authorization", "x-access-token", "proxy", "ssh -i /key"):
        assert redact(text) == text


def test_a_helper_that_prints_a_password_hides_it() -> None:
    env = _git_setting("credential.helper", f"!f() {{ echo username=me; echo password={VALUE}; }}; f")
    assert VALUE not in Redactor(spelled(values_of(env))).text(f"password={VALUE}")


@pytest.mark.parametrize("value", ["'", "'a", "a=b", "'user.name=Ada' 'user", "\0"])
def test_git_settings_that_cannot_be_read_hide_nothing_and_harm_nobody(value: str) -> None:
    assert values_of({"GIT_CONFIG_PARAMETERS": value, "GIT_SSH_COMMAND": value}) == ()
