"""Choose the environment of agents and commands.

Agents get an allow-list: an unknown variable is better missing than leaked. The project's own commands get everything
but what looks like a secret, because tests run what an agent wrote. Both get more variables if the settings
(`environment.allow`) or the agent's adapter name them, but never Capsule's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache

from capsule.system import git_environment
from capsule.system.secrets import is_secret

OURS = "CAPSULE_"

_PERSON = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "XDG_*", "EDITOR", "VISUAL", "PAGER")
_TERMINAL = ("TERM", "TERMINFO*", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR*", "COLUMNS", "LINES", "CI")
_MACHINE = (
    *("PATH", "MANPATH", "INFOPATH", "HOSTNAME", "OSTYPE", "MACHTYPE", "HOSTTYPE", "WSL*", "__CF*", "SYSTEMROOT"),
    *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "DYLD_*", "LIBRARY_PATH", "CPATH", "NIX_*", "HOMEBREW_*"),
)
_NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy"),
    *("SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE"),
)
_TOOLCHAINS = (
    *("VIRTUAL_ENV*", "CONDA_*", "PYTHON*", "PIP_*", "UV_*", "POETRY_*", "PDM_*", "PYENV_*", "TOX_*", "PYTEST_*"),
    *("GO*", "CGO_*", "CARGO_*", "RUSTUP_*", "RUST*", "ZIG_*"),
    *("JAVA_*", "JDK*", "_JAVA_OPTIONS", "M2_HOME", "MAVEN_*", "GRADLE_*", "ANDROID_*", "SDKMAN_*", "KOTLIN_*"),
    *("NVM_*", "NODE_*", "npm_config_*", "NPM_CONFIG_*", "YARN_*", "PNPM_*", "COREPACK_*", "BUN_*", "DENO_*"),
    *("FNM_*", "VOLTA_*", "ASDF_*", "MISE_*", "RBENV_*", "GEM_*", "BUNDLE_*", "RUBY*", "DOTNET_*", "NUGET_*"),
    *("PERL*", "PHP*", "COMPOSER_*", "MIX_*", "ERL_*", "ELIXIR_*", "GHCUP_*", "STACK_*", "OPAM*", "SWIFT*"),
    *("CC", "CXX", "CPP", "LD", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG*", "CMAKE_*"),
    *("MAKEFLAGS", "CCACHE_*", "SCCACHE_*", "CUDA_*", "SDKROOT", "DEVELOPER_DIR", "MACOSX_DEPLOYMENT_TARGET"),
)
_KEYS_OF_THE_USER = ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE")
"""Ways to keys that may push: no secret, but none of the project's business."""
_OF_A_SHELL = ("_", "PWD", "OLDPWD", "SHLVL", "LS_COLORS")
_KNOWN = (*_PERSON, *_TERMINAL, *_MACHINE, *_NETWORK, *_TOOLCHAINS, "GIT_*")


def for_agents(env: Mapping[str, str], passes: Iterable[str] = ()) -> dict[str, str]:
    """Return variables known to be needed and harmless, and those that `passes` names (AWS_* is a pattern)."""
    return _chosen(env, tuple(passes), _KNOWN)


def withheld(env: Mapping[str, str], passes: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of variables that agents are not given, those that look like a secret first."""
    given = for_agents(env, passes)
    kept = [name for name in env if name not in given and not name.startswith(OURS) and name not in _OF_A_SHELL]
    return tuple(sorted(kept, key=lambda name: (not is_secret(name, env[name]), name)))


def for_commands(env: Mapping[str, str], passes: Iterable[str] = ()) -> dict[str, str]:
    """Return everything but what looks like a secret, or leads to the user's keys, unless `passes` names it."""
    return _chosen(env, tuple(passes), ("*",))


def _chosen(env: Mapping[str, str], asked: tuple[str, ...], known: tuple[str, ...]) -> dict[str, str]:
    """Return requested variables, and known ones that are no secret.

    Our own variables go, and so do relative entries of PATH: a repository may bring a `git` of its own. Numbered git
    settings are chosen one by one, and come on top.
    """
    theirs = git_environment.for_others(env)
    if "PATH" in theirs:
        theirs["PATH"] = git_environment.absolute_entries(theirs["PATH"])
    found = {
        name: value
        for name, value in theirs.items()
        if not name.startswith(OURS)
        and not git_environment.NUMBERED.fullmatch(name)
        and (_named(name, asked) or (_named(name, known) and not _withheld(name, value)))
    }
    return found | git_environment.given(env, lambda name: _named(name, asked))


def _withheld(name: str, value: str) -> bool:
    """Tell whether a variable is secret; a proxy's password is passed on, for without the proxy there is no network."""
    keys = (*git_environment.MAY_HOLD_A_CREDENTIAL, *_KEYS_OF_THE_USER)
    secret = is_secret(name, value) or name in keys
    return secret and not name.lower().endswith("_proxy")


@cache
def _named(name: str, patterns: tuple[str, ...]) -> bool:
    for pattern in patterns:
        # Nearly all are a name or a beginning, which is cheaper to compare than to compile.
        beginning, star, rest = pattern.partition("*")
        if rest or "?" in beginning or "[" in beginning:
            if fnmatchcase(name, pattern):
                return True
        elif name.startswith(beginning) if star else name == pattern:
            return True
    return False
