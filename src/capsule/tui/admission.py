"""Decide who may use a dashboard that is served to browsers, from the request alone.

Whoever works on this machine can reach a port on loopback: every agent, and every page that is open in a browser. None
of them may see the dashboard, let alone press its keys. So

- the address that is printed holds a **token**. Whoever brings it is given a **cookie** and sent to the **room**, a
  path that is hard to guess. A request for anything in the room needs both, and there is nothing outside of it.
- A browser sends the cookies of a host to all of its ports, so also to a server that an agent has started there. It
  sends them only below their path: therefore the room.
- A page elsewhere may let its own name lead to us (so the `Host` has to be a name that we serve), and may open a socket
  to us, which no browser forbids (so the `Origin` of one has to be ourselves).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address


@dataclass(frozen=True)
class Keys:
    """Made anew for each server. The cookie is no copy of the token: whoever has one has not the other."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    room: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)


@dataclass(frozen=True)
class Served:
    """Under which names we may be asked for, in lower case; a wildcard address has any number of them."""

    names: frozenset[str]
    port: int
    any_address: bool = False

    def includes(self, host: str) -> bool:
        """Tell whether a `Host` header names us. A name that resolves to us is not ours: an address is no name."""
        name, port = _name_and_port(host)
        return port == str(self.port) and (name in self.names or (self.any_address and is_address(name)))


@dataclass(frozen=True)
class Asked:
    """A request, as far as it matters here. Missing headers are empty."""

    method: str
    path: str
    host: str
    origin: str = ""
    token: str | None = None
    cookie: str | None = None
    opens_a_socket: bool = False


class Answer(Enum):
    COME_IN = "come in"
    GIVE_COOKIE = "give cookie"
    NO_KEY = "Open the address that `capsule dashboard --web` printed: without it this is closed."
    WRONG_HOST = "Capsule is not served under this name: open the address that `capsule dashboard --web` printed."
    WRONG_ORIGIN = "Another page asked for this: open the address that `capsule dashboard --web` printed."
    ONLY_LOOKING = "This page accepts no input."


def judge(asked: Asked, keys: Keys, served: Served) -> Answer:
    if not served.includes(asked.host):
        return Answer.WRONG_HOST
    if asked.method != "GET":
        return Answer.ONLY_LOOKING
    if asked.path == "/" and _same(asked.token, keys.token):
        return Answer.GIVE_COOKIE
    room, _, _ = asked.path.removeprefix("/").partition("/")
    if not _same(room, keys.room) or not _same(asked.cookie, keys.cookie):
        return Answer.NO_KEY
    if asked.opens_a_socket and asked.origin.lower() != f"http://{asked.host}".lower():
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
    """Compare in the same time for a good guess as for a bad one."""
    return given is not None and secrets.compare_digest(given.encode(errors="replace"), key.encode())
