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
