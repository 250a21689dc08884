"""`capsule dashboard --web`: the dashboard, served to browsers by this process until it is told to stop."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.git import Git
from capsule.system.umask import of_the_user

LOOPBACK = "127.0.0.1"
_TAB = "from capsule.tui import tab; tab.begin(); from capsule.cli import main; raise SystemExit(main())"


class CannotServe(CapsuleError):
    """Nothing can be served at the address that was asked for."""


def serve(args: argparse.Namespace) -> int:
    root = Git.find(Path(args.project_dir or ".").absolute()).root
    command = [sys.executable, "-P", "-c", _TAB, "dashboard", "--project-dir", str(root)]
    return serve_command(command, title=root.name, host=args.host or LOOPBACK, port=args.port or 0)


def serve_command(command: Sequence[str], *, title: str, host: str, port: int) -> int:
    """Serve a Textual app that ends with its standard input; it is started once for each tab."""
    try:
        from capsule.tui import admission, web  # noqa: PLC0415 - an installation may lack what it needs
    except ImportError as fault:
        raise CannotServe(f"The dashboard cannot be served: {fault}.", "Install Capsule again.") from fault
    if of_the_user() != -1:
        os.umask(of_the_user())  # each tab is a command of ours, which closes its own files to others
    with listen(host, port) as listening:
        address, port = listening.getsockname()[:2]
        keys = admission.Keys()
        served = admission.names_of(address, host, socket.gethostname(), port)
        _announce(address, port, keys.token)
        web.Server(keys, served, command, title, _say).serve(listening)
    return 0


def _announce(address: str, port: int, token: str) -> None:
    where = ip_address(address)
    name = socket.gethostname() if where.is_unspecified else f"[{address}]" if where.version == 6 else address
    _say("Press Ctrl-C to stop serving; missions keep running.")
    if not where.is_loopback:
        _say(f"WARNING: served beyond this machine ({address}), unencrypted.")
        _say("  Anyone with the address can start agents here: keep it secret, or use an SSH tunnel.")
    print(f"Dashboard: http://{name}:{port}/?token={token}", flush=True)  # last: whoever waits for it has all


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def listen(host: str, port: int) -> socket.socket:
    """Open a socket on this port of this host, or on a free one."""
    if not 0 <= port <= 65535:
        raise CannotServe(f"There is no port {port}.", "Ports go up to 65535; without --port a free one is used.")
    nowhere = CannotServe(f"{host} is not an address of this machine.", f"Leave --host out to use {LOOPBACK}.")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise nowhere from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen()
    except OSError as fault:
        listening.close()
        if fault.errno == errno.EADDRNOTAVAIL:
            raise nowhere from None
        known = {
            errno.EADDRINUSE: f"Port {port} is in use on {host}.",
            errno.EACCES: f"You may not serve on port {port}.",
        }
        cause = os.strerror(fault.errno) if fault.errno else str(fault)
        message = known.get(fault.errno or 0, f"Nothing can be served on {host}, port {port}: {cause}.")
        raise CannotServe(message, "Choose another with --port, or leave it out for a free one.") from None
    return listening
