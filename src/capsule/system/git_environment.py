"""The environment of our git: a clean one, with settings that no repository can override.

Settings travel as GIT_CONFIG_KEY_n / GIT_CONFIG_VALUE_n, which win over every file and, unlike `-c`, cannot be split in
the wrong place by a `=` in a name.

CI systems and credential tools put tokens into settings that travel like this: `http.extraHeader`, a `url.….insteadOf`
with a password in its name, a credential helper. So of the user's only those that are known to be harmless are passed
on to others; `environment.allow` adds more by the name of their variable.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

Setting = tuple[str, str]

# Variables that could start a program, ask a question, reach the network or change a command's meaning.
HARD: tuple[Setting, ...] = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.ignoreStat", "false"),
    ("core.trustctime", "true"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("core.askPass", "true"),
    ("core.sshCommand", "false"),
    ("core.quotePath", "false"),
    ("core.logAllRefUpdates", "true"),
    ("sequence.editor", "true"),
    ("credential.helper", ""),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "all"),
    ("safe.bareRepository", "explicit"),
    ("protocol.allow", "never"),
    ("merge.conflictStyle", "merge"),
    ("merge.renormalize", "false"),
    ("worktree.guessRemote", "false"),
    ("worktree.useRelativePaths", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("advice.detachedHead", "false"),
)

_FIXED = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    # Settings of the repository win over our `protocol.allow` where they name a protocol; nothing wins over these.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
_OURS_ALONE = ("GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH")
_NO_FILES_OF_THE_USER = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
_FILES_OF_THE_USER = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_KEPT_FOR_OTHERS = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_", "GIT_SSH", "GIT_ASKPASS", "GIT_TERMINAL_PROMPT")
_IDENTITY = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")

# What holds of a command that talks to a remote, whatever the user has set: it moves only the refs that are named, runs
# no hook of the repository and starts nothing in the background.
_ACROSS: tuple[Setting, ...] = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("credential.interactive", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("fetch.writeCommitGraph", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.ext.allow", "never"),
    ("push.followTags", "false"),
    ("push.gpgSign", "false"),
    ("push.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
)
_KEPT_ACROSS = (
    *("GIT_CONFIG_", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_", "GIT_PROXY_", "GIT_ASKPASS", "GIT_ALLOW_PROTOCOL"),
    "GIT_PROTOCOL",
)
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")
_ASKS_NOBODY = {"SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"}

# Reflogs need a name, even if the user has none.
AS_CAPSULE = {name: "Capsule" if name.endswith("NAME") else "capsule@localhost" for name in _IDENTITY}

# The user's settings for how a file becomes a blob and back, and which files are ignored.
_CONTENT = (
    r"(?is)core\.(sharedrepository|autocrlf|eol|symlinks|filemode|ignorecase|precomposeunicode|protecthfs|protectntfs|checkroundtripencoding"
    r"|excludesfile|attributesfile)|filter\..+\.(clean|smudge|process|required)"
)
_COMMAND = r"(?is)filter\..+\.(clean|smudge|process)"


def hardened(more: Iterable[Setting] = ()) -> dict[str, str]:
    """Return the environment of our commands: no settings but the repository's own, and ours on top."""
    return _clean() | _NO_FILES_OF_THE_USER | as_environment((*more, *HARD))


def as_the_user(more: Iterable[Setting] = ()) -> dict[str, str]:
    """Return the environment of the few questions about the user: who they are, and what they have set."""
    kept = {name: os.environ[name] for name in (*_FILES_OF_THE_USER, *_IDENTITY) if name in os.environ}
    return _clean() | kept | as_environment((*more, *HARD))


def across_the_network() -> dict[str, str]:
    """Return the environment of commands that talk to a remote: the user's settings, transport and credentials.

    Nobody is asked for anything: there is no terminal, no window and no graphical askpass. A script in GIT_ASKPASS
    answers by itself, as CI systems use it.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith(_KEPT_ACROSS)}
    clean = {name: value for name, value in _clean().items() if name not in (*_SCREENS, *_OURS_ALONE)}
    settings = (*_numbered(os.environ).values(), *_ACROSS)
    return clean | {"GIT_ASKPASS": ""} | kept | AS_CAPSULE | _ASKS_NOBODY | as_environment(settings)


def as_environment(settings: Iterable[Setting]) -> dict[str, str]:
    pairs = tuple(settings)
    numbered = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        numbered |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return numbered


def about_content(listing: bytes) -> list[Setting]:
    """Return the settings worth keeping out of `git config --list -z`; one without a value means true."""
    rows = (row.decode(errors="surrogateescape").partition("\n") for row in listing.split(b"\0") if row)
    return [(key, value if equals else "true") for key, equals, value in rows if re.fullmatch(_CONTENT, key)]


def with_filters_run_in(folder: Path, settings: Iterable[Setting]) -> list[Setting]:
    """Start the user's filters in this folder, not in the worktree that git works in.

    Git starts them in the worktree, where `python -m nbstripout` or `tools/clean.sh` would be whatever an agent put
    there. They get the content on stdin; `%f` is a name and need not be a file.
    """
    there = f"cd {shlex.quote(str(folder))} || exit 1; "
    return [(key, there + value if value and re.fullmatch(_COMMAND, key) else value) for key, value in settings]


def attributes_of_the_user() -> Path:
    """Find where git looks for attributes of all repositories unless a setting names another file."""
    home = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    return Path(home, "git/attributes")


def absolute_entries(path: str) -> str:
    """Remove relative entries from a search path: an agent may have put a `git` into the working directory."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))  # noqa: PTH117 (a str)


def _clean() -> dict[str, str]:
    path = {"PATH": absolute_entries(os.environ.get("PATH", os.defpath))}
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | path | _FIXED


def for_others(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the git variables for agents and the project's commands: the author, not the repository."""
    keep = (name for name in inherited if not name.startswith("GIT_") or name.startswith(_KEPT_FOR_OTHERS))
    return {name: inherited[name] for name in keep}


# ── settings that others may see ───────────────────────────────────────────────────────────────────────────────────

_MOST = 1000
_COUNT = "GIT_CONFIG_COUNT"
NUMBERED = re.compile(r"GIT_CONFIG_(COUNT|(KEY|VALUE)_\d+)")
MAY_HOLD_A_CREDENTIAL = ("GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND")
_HARMLESS = r"""(?xi)(user|author|committer)\.(name|email|useconfigonly)
    | safe\.(directory|barerepository) | init\.defaultbranch
    | core\.(abbrev|autocrlf|bigfilethreshold|checkstat|compression|eol|filemode|fscache|ignorecase|longpaths
        |precomposeunicode|preloadindex|protecthfs|protectntfs|quotepath|safecrlf|symlinks|trustctime|whitespace)
    | (advice|color|column|feature|gc|i18n|index|maintenance|pack|rerere|status)\.[^.]+
    | (commit|tag)\.gpgsign | push\.(default|autosetupremote|followtags) | pull\.(ff|rebase) | fetch\.(parallel|prune)
    | rebase\.(autosquash|autostash) | merge\.(conflictstyle|ff|renames|renamelimit)
    | diff\.(algorithm|colormoved|mnemonicprefix|noprefix|renames|renamelimit)
    | protocol\.(allow|version|[^.]+\.allow)"""
"""Compiled on first use, and cached by `re`."""
_SENSITIVE = r"(?i)extraheader$|pass(word|wd)?$|token|secret|cookie|oauth"
_HEADER = r"(?is)^[\w-]+:\s*(?:(?:basic|bearer|token|digest|negotiate)\s+)?(.*)$"
_USER_INFO = r"[A-Za-z][A-Za-z0-9+.-]*://([^/\s@]+)@"
_TOLD = r"(?i)(?:password|token|secret)=([^\s;\"'}]+)"


def given(env: Mapping[str, str], asked: Callable[[str], bool]) -> dict[str, str]:
    """Return the numbered settings that others may see, numbered anew."""
    kept = []
    for variable, (name, value) in _numbered(env).items():
        harmless = re.fullmatch(_HARMLESS, name) and not re.search(_USER_INFO, value)
        kept += [(name, value)] if harmless or asked(variable) else []
    return as_environment(kept) if kept else {}


def secrets_in(env: Mapping[str, str]) -> Iterator[str]:
    """List the secrets in the git settings of an environment, without the text around them."""
    # As `git -c` passes them on: 'name=value', or 'name'='value' in newer versions.
    parameters = (word.partition("=")[::2] for word in _words(env.get("GIT_CONFIG_PARAMETERS", "")))
    for name, value in (*_numbered(env).values(), *parameters):
        for url in re.findall(_USER_INFO, f"{name} {value}"):
            yield url.partition(":")[2] or url
        yield from re.findall(_TOLD, value)
        if re.search(_SENSITIVE, name.rpartition(".")[2]):
            header = re.match(_HEADER, value)
            yield header[1] if header else value
    words = _words(env.get("GIT_SSH_COMMAND", ""))
    if any(word.rpartition("/")[2] == "sshpass" for word in words):
        pairs = zip(words, [*words[1:], ""], strict=True)
        yield from (word[2:] or following for word, following in pairs if word.startswith("-p"))


def _numbered(env: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings that travel by number, by the variable that holds the value."""
    count = env.get(_COUNT, "")
    if not (count.isdecimal() and len(count) <= len(str(_MOST))):
        return {}
    pairs = [(f"GIT_CONFIG_VALUE_{number}", f"GIT_CONFIG_KEY_{number}") for number in range(int(count))]
    return {value: (env[key], env[value]) for value, key in pairs if key in env and value in env}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []
