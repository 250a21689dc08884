"""`capsule dashboard --web`: the page in a browser, served by this process until it is told to stop."""

from __future__ import annotations

import argparse
import errno
import os
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address

from capsule.commands.logs import Output, Shelf
from capsule.commands.screen_actions import actions_for
from capsule.commands.watching import MissionReader, end_of
from capsule.commands.web_forms import forms
from capsule.core.errors import CapsuleError
from capsule.core.item import check_id
from capsule.project import Project, open_project
from capsule.system.umask import of_the_user
from capsule.web.actions import Printed, WebActions

LOOPBACK = "127.0.0.1"
_MOST_OUTPUTS = 40
_LONGEST_OUTPUT = 24 * 1024
"""Of each; an agent may print gigabytes."""
_TAB = "from capsule.tui import tab; tab.begin(); from capsule.cli import main; raise SystemExit(main())"


class CannotServe(CapsuleError):
    """Nothing can be served at the address that was asked for."""


def serve(args: argparse.Namespace) -> int:
    """Serve the page of a project, and its dashboard as a terminal; one process is started for each of those."""
    project = open_project(args.project_dir)
    command = [sys.executable, "-P", "-c", _TAB, "dashboard", "--project-dir", str(project.root)]
    return serve_page(page_actions(project), command, host=args.host or LOOPBACK, port=args.port or 0)


def page_actions(project: Project) -> WebActions:
    """Return the functions for the page: those of the dashboard, and a form for each command."""
    return WebActions(
        dashboard=actions_for(project),
        printed=lambda mission: printed_of(project, mission),
        forms=forms(),
    )


def printed_of(project: Project, mission: str) -> tuple[Printed, ...]:
    """Return the end of what each agent of a mission printed."""
    check_id(mission)
    with MissionReader(project) as reader:
        outputs = Shelf(project, reader.journal, mission).outputs()
    return tuple(_printed(output) for output in outputs[-_MOST_OUTPUTS:])


def _printed(output: Output) -> Printed:
    text = end_of(output.file, _LONGEST_OUTPUT + 1)
    return Printed(title=output.title, text=text[-_LONGEST_OUTPUT:], cut=len(text.encode()) > _LONGEST_OUTPUT)


def serve_page(actions: WebActions, command: Sequence[str], *, host: str, port: int) -> int:
    """`command` is a Textual app that ends with its standard input."""
    try:
        from capsule.web import admission, server  # noqa: PLC0415 - an installation may lack the packages
    except ImportError as fault:
        raise CannotServe(f"The page cannot be served: {fault}.", "Install Capsule again.") from fault
    if of_the_user() != -1:
        os.umask(of_the_user())  # each terminal is a command of ours, which closes its own files to others
    with listen(host, port) as listening:
        address, port = listening.getsockname()[:2]
        keys = admission.Keys()
        served = admission.names_of(address, host, socket.gethostname(), port)
        _announce(address, port, keys.token)
        server.Server(keys, served, actions, command, _say).serve(listening)
    return 0


def _announce(address: str, port: int, token: str) -> None:
    where = ip_address(address)
    name = socket.gethostname() if where.is_unspecified else f"[{address}]" if where.version == 6 else address
    _say("Press Ctrl-C to stop serving; missions keep running.")
    if not where.is_loopback:
        _say(f"WARNING: served beyond this machine ({address}), unencrypted.")
        _say("  Anyone with the address can start agents here: keep it secret, or use an SSH tunnel.")
    print(f"Dashboard: http://{name}:{port}/?token={token}", flush=True)  # last: a reader of this line has seen all


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
