"""Decide who may use a page that is served to browsers, from the request alone.

Every program on this machine can reach a port on loopback: every agent, and every page that is open in a browser. None
of them may see the page or press its buttons. So

- an address that is printed holds a **token**. The first request with it gets a **session**: a **cookie**, and the
  path of the **room**, which is hard to guess. A token works once; copied later, it is useless. A request for
  anything in the room needs the path and a cookie, and there is nothing outside of it.
- A browser sends the cookies of a host to all of its ports, so also to a server that an agent has started there. It
  sends them only below their path: therefore the room.
- A page elsewhere may let its own name lead to us (so the `Host` has to be a name that we serve), may open a socket to
  us, which no browser forbids, and may send a form to us (so the `Origin` of both has to be ourselves).
- A form also carries the **seal** of its session and an id of its own, which counts once: see `seals`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address

from capsule.web.seals import Seals

MOST_SESSIONS = 16
"""The most browsers that one server lets in."""


@dataclass(frozen=True)
class Session:
    """One browser that was let in."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    seals: Seals = field(default_factory=Seals, repr=False)


@dataclass
class Keys:
    """The keys of one server, made when it starts. A cookie is independent of the token."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    room: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    _sessions: list[Session] = field(default_factory=list, repr=False)

    def opens(self, token: str | None) -> bool:
        return bool(self.token) and _same(token, self.token)

    def enter(self) -> Session:
        """Begin a session; the token is spent."""
        self.token = ""
        self._sessions.append(Session())
        return self._sessions[-1]

    def renew(self) -> str:
        """Make a token for one more browser; '' if too many were let in."""
        if len(self._sessions) >= MOST_SESSIONS:
            return ""
        self.token = secrets.token_urlsafe(32)
        return self.token

    def session(self, cookie: str | None) -> Session | None:
        return next((each for each in self._sessions if _same(cookie, each.cookie)), None)


@dataclass(frozen=True)
class Served:
    """The names under which we are served, in lower case; a wildcard address has any number of them."""

    names: frozenset[str]
    port: int
    any_address: bool = False

    def includes(self, host: str) -> bool:
        """Tell whether a `Host` header names us. A foreign name that resolves to us is not ours."""
        name, port = _name_and_port(host)
        return port == str(self.port) and (name in self.names or (self.any_address and is_address(name)))


@dataclass(frozen=True)
class Asked:
    """The relevant parts of a request. Missing headers are empty."""

    method: str
    path: str
    host: str
    origin: str = ""
    token: str | None = None
    cookie: str | None = None
    opens_a_socket: bool = False
    built_in: bool = False
    """The browser reports that another site's page embeds it, without navigation by a person."""


class Answer(Enum):
    COME_IN = "come in"
    GIVE_COOKIE = "give cookie"
    NO_KEY = "Open the address that `capsule dashboard --web` printed: without it this is closed, and it opens once."
    WRONG_HOST = "Capsule is not served under this name: open the address that `capsule dashboard --web` printed."
    WRONG_ORIGIN = "Another page asked for this: open the address that `capsule dashboard --web` printed."
    ONLY_LOOKING = "This page accepts no input."


def judge(asked: Asked, keys: Keys, served: Served) -> Answer:
    if not served.includes(asked.host):
        return Answer.WRONG_HOST
    if asked.method not in ("GET", "POST"):
        return Answer.ONLY_LOOKING
    if asked.path == "/" and asked.method == "GET" and keys.opens(asked.token):
        return Answer.GIVE_COOKIE
    room, _, _ = asked.path.removeprefix("/").partition("/")
    if not _same(room, keys.room) or not keys.session(asked.cookie):
        return Answer.NO_KEY
    needs_origin = asked.method == "POST" or asked.opens_a_socket
    if asked.built_in or (needs_origin and asked.origin.lower() != f"http://{asked.host}".lower()):
        return Answer.WRONG_ORIGIN
    return Answer.COME_IN


def names_of(address: str, asked_for: str, hostname: str, port: int) -> Served:
    """Return the host names of a server that listens at `address`, asked for as `asked_for`."""
    where = ip_address(address)
    names = {address, asked_for.lower()}
    if where.is_loopback or where.is_unspecified:
        names.add("localhost")
    if where.is_unspecified:
        names.add(hostname.lower())
    return Served(frozenset(names), port, any_address=where.is_unspecified)


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name_and_port(host: str) -> tuple[str, str]:
    """`name`, `name:port` or `[address]:port`; without a port it is that of every page."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name.lower(), rest.removeprefix(":") or "80"
    name, _, port = host.partition(":")
    return name.lower(), port or "80"


def _same(given: str | None, key: str) -> bool:
    """Compare in constant time."""
    return given is not None and secrets.compare_digest(given.encode(errors="replace"), key.encode())
