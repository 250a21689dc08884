"""Tell which parts of an environment are secret: by their names, by their form, or by the settings.

A name is read as its words (DB_PASSWORD, githubToken, PGPASSWORD); a URL with a password in it is secret under any
name. What is found is withheld from processes that do not need it (`environment`), and its value never reaches a file
or a screen of ours, in any spelling (`values_of`, `spelled`, then `core.redaction`).

A value shorter than SHORTEST, or one that is a word of everyday language, is not looked for: a log in which every
"password" is blacked out hides what happened and protects nobody. A short secret has to be named by its variable in the
settings; then even four characters are enough.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import quote, unquote

from capsule.system import git_environment

SHORTEST = 8
SHORTEST_NAMED = 4
_SHORTEST_LINE = 20
_BASE64_LINE = 76
_SCHEMES = ("bearer", "basic", "token")

_SECRET_NAME = re.compile(
    r"""TOKEN(?!IZ) | SECRET | PASSW(OR)?D | PASSPHRASE | SSHPASS | CREDENTIAL | API_?KEY | COOKIE | PRIVATE_?KEY
    | (^|_)(KEYS? | AUTH | PASS | PAT | PWD | CREDS? | DSN | JWT | BEARER)(_|$)""",
    re.VERBOSE,
)
_HARMLESS_NAMES = (
    *("PWD", "OLDPWD", "SSH_AUTH_SOCK", "*MAX*TOKENS*", "*TOKENS*LIMIT*", "*TOKEN*BUDGET*", "*_KEY_PATH", "*_KEY_FILE"),
    *("*KEYMAP*", "*KEYBOARD*", "*HOTKEY*", "*PUBLIC_KEY*", "GIT_CONFIG_KEY_*", "*COOKIE_JAR", "*COOKIE*NAME"),
)
_WITH_PASSWORD = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@")
_EVERYDAY = frozenset(
    (
        *("password", "passw0rd", "postgres", "postgresql", "changeme", "changeit", "anonymous", "username"),
        *("disabled", "required", "optional", "enabled", "automatic", "default", "undefined", "localhost", "127.0.0.1"),
        *("development", "production", "staging", "12345678", "123456789", "1234567890", "00000000"),
    )
)


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable must be withheld from processes that do not need it."""
    return bool(_looks_secret(name) and value) or bool(_WITH_PASSWORD.match(value))


def values_of(env: Mapping[str, str], named: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the secret values of an environment, each once, and the lines of those that have several."""
    patterns = tuple(named)
    found: dict[str, None] = {}
    secrets = []
    for name, value in env.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            secrets += [value] if len(value.strip()) >= SHORTEST_NAMED else []
        else:
            password = _WITH_PASSWORD.match(value)
            candidate = password[1] if password else value if _looks_secret(name) else ""
            secrets += [candidate] if _worth_hiding(candidate) else []
    for secret in (*secrets, *filter(_worth_hiding, git_environment.secrets_in(env))):
        # A private key is secret line by line too, as `grep` shows it; but all keys share their first and last line.
        lines = [line.strip() for line in secret.splitlines()]
        long = [line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----")]
        # The secret itself, without quotes, a line end, `Bearer` or a URL's escapes around it.
        stripped = secret.strip().strip("\"'").strip()
        scheme, _, rest = stripped.partition(" ")
        forms = (stripped, rest.strip() if scheme.lower() in _SCHEMES else "", unquote(stripped))
        bare = [form for form in forms if form != secret and "\n" not in form and _worth_hiding(form)]
        found |= dict.fromkeys((secret, *bare, *(long if len(lines) > 1 else ())))
    return tuple(found)


def _looks_secret(name: str) -> bool:
    upper = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
    return bool(_SECRET_NAME.search(upper)) and not any(fnmatchcase(upper, known) for known in _HARMLESS_NAMES)


def _worth_hiding(value: str) -> bool:
    """Tell whether to look for this value; the path of an existing file only says where a secret is."""
    if len(value.strip()) < SHORTEST or value.lower() in _EVERYDAY:
        return False
    try:
        is_path = value.startswith(("/", "~/")) and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111
    except ValueError:  # any text, even with a NUL
        return True
    return not is_path


def spelled(values: Iterable[str]) -> tuple[str, ...]:
    """Return each value with its other spellings: in JSON (also inside a text in JSON), in a URL, in base64."""
    found: list[str] = []
    for value in values:
        escaped = [value]
        for _ in range(2):
            escaped += [json.dumps(text, ensure_ascii=ascii)[1:-1] for text in escaped for ascii in (True, False)]
        raw = value.encode(errors="surrogateescape")
        in_url = [quote(raw, safe=kept) for kept in ("", "/", "!'()*")]
        found += [*escaped, *in_url, *_in_base64(b64encode(raw), len(raw))]
        found += _in_base64(urlsafe_b64encode(raw), len(raw))
    return tuple(dict.fromkeys(found))


def _in_base64(encoded: bytes, length: int) -> list[str]:
    """Return the characters that no following byte can change, line by line as the `base64` program writes them."""
    certain = encoded.decode()[: length * 8 // 6]
    lines = [certain[at : at + _BASE64_LINE] for at in range(0, len(certain), _BASE64_LINE)]
    return [line for line in lines if len(line) >= SHORTEST]
