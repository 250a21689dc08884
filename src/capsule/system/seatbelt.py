"""Write profiles for `sandbox-exec` of macOS: the table of paths that bubblewrap mounts, as rules.

**These were never run on a Mac.** They are tested for their text, and for what it says by the rules of the language.

A rule is about the path that the kernel knows, without links; of all rules that match, the last decides. So the rows of
the table, outermost first, mean here what they mean as mounts:

    hidden      nothing can be read, run or changed
    read-only   can be read and run
    writable    can be changed too; like a mount point it can be neither removed nor renamed itself

Whether a hidden file exists can be asked, its folder cannot be listed: tools look for settings in every folder above
them, and many end with an error where "not permitted" is the answer to that.

All else is denied but for what programs need to run at all. No service is reached that would start a program outside or
hand out another program's files: no launchd, no Apple events, no pasteboard, no docker. Of sockets with a path there
are the sandbox's own, the one that resolves names, and those that the settings name.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence

from capsule.system.layers import Mount

PROGRAM = "sandbox-exec"
_TRY_SECONDS = 10
_SEE = "file-read* file-map-executable process-exec"
_CHANGE = "file-write*"
_SOCKETS = "network-bind network-inbound network-outbound"
_DEVICES = ("null", "zero", "tty", "ptmx", "dtracehelper", "stdout", "stderr")
_SERVICES = (
    *("com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"),
    *("com.apple.system.notification_center", "com.apple.system.logger", "com.apple.logd"),
    *("com.apple.bsd.dirhelper", "com.apple.PowerManagement.control"),
)
"""Users and groups, logs, the folder for temporary files, and keeping the machine awake."""
_NETWORK_SERVICES = (
    *("com.apple.SystemConfiguration.DNSConfiguration", "com.apple.SystemConfiguration.configd"),
    *("com.apple.dnssd.service", "com.apple.networkd", "com.apple.ocspd"),
    *("com.apple.trustd", "com.apple.trustd.agent", "com.apple.SecurityServer"),
)
"""Names of hosts, proxies and certificates.

`SecurityServer` is the service of the Keychain too. Profiles in wide use allow it for certificates; `trustd` may be
enough, but no Mac was at hand to find out. What keeps logins unread is that the files of the Keychain are hidden.
"""
_RESOLVER = "/private/var/run/mDNSResponder"
_SPECIAL = re.compile(r'["\\\x00-\x1f\x7f]')
_SAMPLE = (("/tmp", Mount("--tmpfs")), ("/usr", Mount("--ro-bind", "/usr")), ("/tmp/x", Mount("--bind", "/tmp/x")))  # noqa: S108
"""One row of each kind."""


def profile(rows: Iterable[tuple[str, Mount]], *, network: bool, sockets: Sequence[str] = ()) -> str:
    """Return the profile for a table of paths, outermost first; `sockets` are those of daemons that may be reached."""
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork pseudo-tty user-preference-read mach-host* ipc-posix-sem ipc-posix-shm* sysctl-read)",
        '(deny sysctl-read (sysctl-name-prefix "kern.procargs"))',
        '(allow sysctl-write (sysctl-name "kern.grade_cputype"))',
        "(allow signal process-info* (target same-sandbox))",
        _rule("allow", "mach-lookup", "global-name", *_SERVICES),
        _rule("allow", _SEE, "subpath", "/"),
        _rule("allow", f"{_CHANGE} file-ioctl", "literal", *(f"/dev/{name}" for name in _DEVICES)),
        f'(allow {_CHANGE} file-ioctl (regex #"^/dev/ttys[0-9]+$"))',
    ]
    for path, mount in rows:
        rules += _row(path, mount)
    rules.append("(allow file-read-metadata)")
    if network:
        rules += [
            '(allow network-outbound (remote ip "*:*"))',
            '(allow network-bind network-inbound (local ip "*:*"))',
            "(allow system-socket)",
            _rule("allow", "mach-lookup", "global-name", *_NETWORK_SERVICES),
            _rule("allow", "network-outbound", "literal", _RESOLVER),
        ]
    rules += [_rule("allow", "network-outbound", "literal", socket) for socket in sockets]
    return "".join(f"{rule}\n" for rule in rules)


def _row(path: str, mount: Mount) -> Iterator[str]:
    if mount.how == "--tmpfs":
        yield _rule("deny", f"{_SEE} {_CHANGE} {_SOCKETS}", "subpath", path)
    elif mount.how.startswith("--ro-bind"):
        yield _rule("allow", _SEE, "subpath", path)
        yield _rule("deny", f"{_CHANGE} {_SOCKETS}", "subpath", path)
    else:
        yield _rule("allow", f"{_SEE} {_CHANGE} {_SOCKETS}", "subpath", path)
        yield _rule("deny", "file-write-unlink", "literal", path)


def _rule(verb: str, operations: str, filter_name: str, *values: str) -> str:
    return f"({verb} {operations} {' '.join(f'({filter_name} {quoted(value)})' for value in values)})"


def quoted(text: str) -> str:
    """Return a string of the profile's language: nothing in it ends the string, and controls are spelt out."""
    return f'"{_SPECIAL.sub(lambda found: _spelt(found[0]), text)}"'


def _spelt(character: str) -> str:
    return f"\\{character}" if character in '"\\' else f"\\x{ord(character):02x}"


def fault(program: str) -> str:
    """Return why this machine rejects our profiles; '' if it accepts them."""
    text = profile(_SAMPLE, network=True, sockets=(_RESOLVER,))
    try:
        done = subprocess.run(
            (program, "-p", text, "/bin/sh", "-c", "exit 0"),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRY_SECONDS,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_TRY_SECONDS} s"
    except OSError as error:
        return str(error)
    said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return said[0].removeprefix(f"{PROGRAM}: ") if done.returncode else ""
