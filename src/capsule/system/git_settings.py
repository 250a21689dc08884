"""Git settings that travel in the environment, and which of them others may see.

CI systems and credential tools put tokens there: `http.extraHeader`, a `url.….insteadOf` with a password in its name, a
credential helper. So only settings that are known to be harmless are passed on; `environment.allow` adds others by the
name of their variable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_MOST = 1000
_COUNT = "GIT_CONFIG_COUNT"
_NUMBERED = re.compile(r"GIT_CONFIG_(COUNT|(KEY|VALUE)_\d+)")
_MAY_HOLD_A_CREDENTIAL = ("GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND")
_HARMLESS = r"""(?xi)(user|author|committer)\.(name|email|useconfigonly)
    | safe\.(directory|barerepository) | init\.defaultbranch
    | core\.(abbrev|autocrlf|bigfilethreshold|checkstat|compression|eol|filemode|fscache|ignorecase|longpaths
        |precomposeunicode|preloadindex|protecthfs|protectntfs|quotepath|safecrlf|symlinks|trustctime|whitespace)
    | (advice|color|column|feature|gc|i18n|index|maintenance|pack|rerere|status)\.[^.]+
    | (commit|tag)\.gpgsign | push\.(default|autosetupremote|followtags) | pull\.(ff|rebase) | fetch\.(parallel|prune)
    | rebase\.(autosquash|autostash) | merge\.(conflictstyle|ff|renames|renamelimit)
    | diff\.(algorithm|colormoved|mnemonicprefix|noprefix|renames|renamelimit)
    | protocol\.(allow|version|[^.]+\.allow)"""
"""Compiled where there is a setting to look at, and remembered by `re`."""
_SECRET_KEY = re.compile(r"(?i)extraheader$|pass(word|wd)?$|token|secret|cookie|oauth")
_HEADER = re.compile(r"^[\w-]+:\s*(?:(?:basic|bearer|token|digest|negotiate)\s+)?(.*)$", re.IGNORECASE | re.DOTALL)
_USER_INFO = r"[A-Za-z][A-Za-z0-9+.-]*://([^/\s@]+)@"
_TOLD = r"(?i)(?:password|token|secret)=([^\s;\"'}]+)"


class Carried(NamedTuple):
    """A setting, and the variable that holds its value."""

    variable: str
    name: str
    value: str


def given(env: Mapping[str, str], asked: Callable[[str], bool]) -> dict[str, str]:
    """The numbered settings that others may see, numbered anew."""
    kept = [each for each in _numbered(env) if asked(each.variable) or _is_harmless(each)]
    found = {_COUNT: str(len(kept))} if kept else {}
    for number, each in enumerate(kept):
        found |= {f"GIT_CONFIG_KEY_{number}": each.name, f"GIT_CONFIG_VALUE_{number}": each.value}
    return found


def is_numbered(name: str) -> bool:
    return _NUMBERED.fullmatch(name) is not None


def may_hold_a_credential(name: str) -> bool:
    return name in _MAY_HOLD_A_CREDENTIAL


def secrets_in(env: Mapping[str, str]) -> Iterator[str]:
    """What is secret in the git settings of an environment: the words alone, not what stands around them."""
    for _, name, value in (*_numbered(env), *_parameters(env.get("GIT_CONFIG_PARAMETERS", ""))):
        for url in re.findall(_USER_INFO, f"{name} {value}"):
            yield url.partition(":")[2] or url
        yield from re.findall(_TOLD, value)
        if _SECRET_KEY.search(name.rpartition(".")[2]):
            header = _HEADER.match(value)
            yield header[1] if header else value
    yield from _given_to_sshpass(env.get("GIT_SSH_COMMAND", ""))


def _numbered(env: Mapping[str, str]) -> list[Carried]:
    count = env.get(_COUNT, "")
    if not (count.isdecimal() and len(count) <= len(str(_MOST))):
        return []
    pairs = [(f"GIT_CONFIG_VALUE_{number}", f"GIT_CONFIG_KEY_{number}") for number in range(int(count))]
    return [Carried(value, env[key], env[value]) for value, key in pairs if key in env and value in env]


def _parameters(text: str) -> list[Carried]:
    """As `git -c` passes them on: 'name=value', or 'name'='value' in newer versions."""
    rows = (word.partition("=") for word in _words(text))
    return [Carried("GIT_CONFIG_PARAMETERS", name, value) for name, _, value in rows]


def _given_to_sshpass(command: str) -> Iterator[str]:
    words = _words(command)
    if not any(word.rpartition("/")[2] == "sshpass" for word in words):
        return
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("-p"):
            yield word[2:] or following


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _is_harmless(setting: Carried) -> bool:
    return bool(re.fullmatch(_HARMLESS, setting.name)) and not re.search(_USER_INFO, setting.value)
