"""Run agents and the project's own commands in bubblewrap: they read the machine, and write only to their own paths.

`Sandbox.around` turns a command line into one that runs inside; `level` says by which program, and `sandbox_exec` does
without mounts what is said here about bubblewrap. What is seen there is a table of mounts, one per path, laid down from
the outermost to the innermost, so that the narrower rule always wins:

    /                        read-only, with a /dev and a /proc of its own
    the home, /tmp, /run     empty folders in memory, gone with the command; sockets of daemons go with them
    tools, git's settings    read-only again, where they lie in what is hidden (`_needed`)
    the project              read-only
    paths.place              writable: the one place where work leaves a trace
    paths.writable           as it is
    paths.protected          read-only again
    paths.stand_ins          something else in its place
    paths.shown              something else in its place, read-only
    paths.layers             folders below a layer that is thrown away (`layers`)

**The place at the checkout's path.** Where `paths.at` is set, the place is seen there and nowhere else. The checkout,
its `.git` and its `.capsule` are gone: no rule opens what lies below that path, but for what the settings or a command
line name and the place lacks. Whatever is named by a path in the place (working directory, program, arguments,
variables) is named by the path inside. A checkout that holds the home is not covered.

**Mount points.** Bubblewrap makes those that are missing, on disk where they lie in the place: empty folders, which git
does not see, and an empty file where a file is shown that the place lacks. They are removed after the command. Of what
kill -9 leaves, the folders are removed by the next command, a file with everything else that an interrupted phase left.

**A mount point cannot be moved away, its parents can.** `mv .git x && cp -r x .git` would leave a read-only
`.git/config` behind in `x` and put a writable one in its place. So every folder between a writable place and what is
protected in it is made a mount point of its own.

**Root is not special inside.** Bubblewrap leaves root its capabilities, and with them the means to mount everything
writable again. They are dropped, but for those that `tar`, `install` and package managers need on files of their own.

**Stopping is two-fold.** Bubblewrap has to die with the supervisor, and takes everything in its process namespace
along. A polite SIGTERM, though, is for the command: bubblewrap itself is told to ignore it, or no agent would ever get
the time to say its last words. And the namespace's first process is a shell that ends with the command: bubblewrap's
own one is still there when bubblewrap has gone, and would be counted as something that the agent left running.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError, PrerequisiteMissing
from capsule.system import seatbelt
from capsule.system.git_environment import absolute_entries
from capsule.system.layers import Mount, MountedLayers, mounted_layers

PROGRAM = "bwrap"
BUBBLEWRAP, SANDBOX_EXEC = "bubblewrap", "sandbox-exec"
_HOW_TO_GET_IT = "Install bubblewrap (apt, dnf, pacman, apk: `bubblewrap`)."
_HOW_TO_MAKE_IT_WORK = (
    "Allow user namespaces (an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container, a seccomp profile that lets it)."
)
_IN_MEMORY = ("/tmp", "/var/tmp", "/run", "/var/run")  # noqa: S108 (a fresh one is put over them)
_DEVICES = "/dev"
"""Mounted fresh, with an empty /dev/shm."""
_NAMES = "/etc/resolv.conf"
"""Often a link into a hidden folder."""
_TRY_SECONDS = 10
_NO_ANSWER = f"it did not answer within {_TRY_SECONDS} s"
_KEPT_BY_ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
_POLITE = ("env", "--ignore-signal=TERM")
_POLITE_INSIDE = ("env", "--default-signal=TERM")
_FIRST = ("sh", "-c", 'exec 3>&2 2>/dev/null; ("$@") 2>&3 3>&-; exit $?', "sh")
_DAEMONS = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "CONTAINER_HOST", "CONTAINER_CONNECTION", "BUILDKIT_HOST"),
    *("CONTAINERD_ADDRESS", "TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE", "TESTCONTAINERS_HOST_OVERRIDE"),
    *("DBUS_SESSION_BUS_ADDRESS", "WATCHMAN_SOCK"),
)
"""Variables that name a daemon: it would see the checkout's files where the command sees its place's."""
_OURSELVES = str(Path(__file__).resolve().parents[1])


_MANAGERS = (
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/env", ".cargo/config.toml", ".rustup"),
    *(".nvm", ".volta", ".bun/bin", ".bun/install", ".deno/bin", ".pyenv", ".rbenv", ".asdf", ".sdkman", "go"),
    *(".local/bin", ".local/lib", ".local/share/uv/python", ".local/share/mise", ".local/share/fnm"),
    *(".local/share/pnpm", ".local/share/claude"),
)
_GIT = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")
_REGISTRIES = (
    *(".gradle/daemon", ".kotlin/daemon", ".m2/mvnd/registry", ".cache/bazel/*/*/server", ".sbt/*/server"),
    *(".bloop", ".local/share/scalacli/bloop", ".buck/buckd", ".local/state/watchman"),
)
"""Folders where build tools look for a running server: it is outside, and on other files under the same path."""
_BESIDE_BIN = ("lib", "lib64", "libexec", "include", "pyvenv.cfg")
_OF_THE_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
"""Kept by a package manager, without links to a home."""
_MOST_FOLDERS = 200
"""The most programs that are followed: a loop of links has to end."""


class Level(Struct, frozen=True):
    """The isolation in force between an agent and the machine."""

    program: str = ""
    """The program in use; '' if none."""
    name: str = "none"
    why: str = ""
    """The reason for none."""
    hint: str = ""
    polite: bool = False
    """SIGTERM can be kept from bubblewrap itself."""

    @property
    def mounts(self) -> bool:
        """Tell whether it shows a place at the checkout's own path."""
        return self.name == BUBBLEWRAP

    @property
    def proven(self) -> bool:
        """Tell whether it was tested; with an untested one the repository is guarded as if there were none."""
        return self.name == BUBBLEWRAP


_ROOT = Mount("--ro-bind", "/")


class Sandbox(Struct, frozen=True, dict=True):
    """The table of visible paths, enforced by bubblewrap or sandbox-exec. Its settings hold for every command."""

    level: Level
    shown: Sequence[str]
    """The project and its repository: read-only, wherever they lie; hidden if a place is shown instead."""
    homes: Sequence[str] = ()
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    daemons: Sequence[str] = ()
    """Sockets, and variables that name one, that stay visible."""
    network: bool = True

    def around(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths,
        home: Sequence[str] = (),
        readable: Sequence[str] = (),
        copy_layers: bool = False,
    ) -> AbstractContextManager[tuple[str, ...]]:
        """Yield the command line that runs `argv` inside, and tidy up when the command has ended.

        `home`: paths below the user's home (or absolute ones) that the command may change. `readable`: hidden paths
        that it needs to read. `copy_layers`: without overlays it gets writable copies of those folders, not the folders
        themselves to read.
        """
        raise NotImplementedError

    def _opened_mounts(self, env: Mapping[str, str], own: Sequence[str], readable: Sequence[str]) -> dict[str, Mount]:
        """Reopen the hidden paths that the settings name and this command needs."""
        # A home or a folder for temporary files that was made for this command alone.
        shared = {"/", *resolved((*shared_temporaries(), *self.homes))}
        made = (place for place in resolved(env.get(name, "") for name in ("HOME", "TMPDIR")) if place not in shared)
        own = [*own, *(each for each in made if not any(is_below(shown, [each]) for shown in resolved(self.shown)))]
        sockets = [name for name in self.daemons if "/" in name]
        table = self._reopened_mounts("--ro-bind-try", self.readable)
        table |= self._reopened_mounts("--bind-try", self.writable)
        table |= self._reopened_mounts("--ro-bind", readable)
        table |= self._reopened_mounts("--bind", own)
        return table | self._reopened_mounts("--bind-try", sockets)

    def _base_mounts(
        self, program: str, env: Mapping[str, str], view: MountedPlace, opened: Mapping[str, Mount]
    ) -> dict[str, Mount]:
        """Mount tools and the project, without the project if a place is shown instead."""
        table = _machine_mounts(self, env.get("PATH", ""), program, env.get("TMPDIR", ""))
        runtime = [path for path in resolved([env.get("XDG_RUNTIME_DIR", "")]) if path != "/" and Path(path).is_dir()]
        empty = [*runtime, *_registries(resolved(self.homes), env, opened)]
        table = table | {path: Mount("--tmpfs") for path in empty}
        if not view.at:
            return table | {path: Mount("--ro-bind", path) for path in resolved(self.shown)}
        table = {path: mount for path, mount in table.items() if not view.covers(path)}
        gone = [path for path in (*resolved(self.shown), view.place) if not is_below(path, [view.at])]
        return table | {path: Mount("--tmpfs") for path in gone if Path(path).is_dir()}

    def machine_mounts(self, path: str, program: str, temporary: str) -> dict[str, Mount]:
        """Mount empty folders over homes and temporary folders, and the tools that every command finds in the home."""
        names = [path for path in resolved([_NAMES]) if is_below(path, self._hidden_folders)]
        tops = [*self._hidden_folders, *resolved({temporary} & {*shared_temporaries()})]
        table = {path: Mount("--tmpfs") for path in tops} | {path: Mount("--ro-bind-try", path) for path in names}
        prefixes = (sys.prefix, sys.base_prefix)
        found = _needed(path, program, tuple(resolved(self.homes)), tuple(self._hidden_folders), prefixes)
        return table | self._reopened_mounts("--ro-bind-try", (*found, _OURSELVES))

    @cached_property
    def _hidden_folders(self) -> list[str]:
        """Return the folders that are empty inside; a home that is the whole machine cannot be."""
        return [path for path in resolved((*_IN_MEMORY, *self.homes)) if path != "/" and Path(path).is_dir()]

    def _reopened_mounts(self, how: str, paths: Iterable[str]) -> dict[str, Mount]:
        """Mount paths in hidden folders by the name in use, even a link's."""
        tops, home = self._hidden_folders, Path(self.homes[0] if self.homes else "/")
        named = [home / path.removeprefix("~/") for path in paths]
        table = {}
        for path in filter(_is_visible, named):
            real = os.path.realpath(path)
            names = (str(path), str(Path(os.path.realpath(path.parent), path.name)))
            table[next((name for name in names if is_below(name, tops)), real)] = Mount(how, real)
        return table

    def _ground_mounts(
        self, sandbox_paths: SandboxPaths, view: MountedPlace, layers: MountedLayers
    ) -> dict[str, Mount]:
        place = (sandbox_paths.place,) if sandbox_paths.place else ()
        table = {view.inside(path): Mount("--bind", path) for path in self._existing((*place, *sandbox_paths.writable))}
        table |= {view.inside(path): Mount("--ro-bind", path) for path in self._existing(sandbox_paths.protected)}
        for how, pairs in (("--bind", sandbox_paths.stand_ins), ("--ro-bind", sandbox_paths.shown)):
            table |= {view.name(path): Mount(how, self._without_links(source)) for path, source in pairs}
        for path in table:
            behind = view.behind(path)
            if not view.has_room_for(str(Path(path).parent)) or (behind and Path(behind).is_symlink()):
                raise CapsuleError(f"{behind} is a symbolic link, or lies behind one.", "Put a folder in its place.")
        table |= {path: layers.sources[lower] for path, lower in sandbox_paths.layers}
        return table | ({str(Path(layers.folder).parent): Mount("--tmpfs")} if layers.folder else {})

    def _existing(self, paths: Iterable[str]) -> list[str]:
        return [self._without_links(path) for path in paths if os.path.lexists(path)]

    def _without_links(self, path: str) -> str:
        """Resolve a path, refusing links below the project: an agent may have made them to be let in elsewhere."""
        real = os.path.realpath(path)
        tops = ((top, os.path.realpath(top)) for top in self.shown)
        wanted = next((moved(path, *top) for top in tops if Path(path).is_relative_to(top[0])), real)
        if real != wanted:
            raise CapsuleError(f"{path} leads to {real} by a symbolic link.", "Put a folder in its place.")
        return real

    def _daemons_hidden(self, env: Mapping[str, str]) -> list[str]:
        """Return the variables that name a daemon, except those in the settings."""
        named = tuple(path.removeprefix("~") for path in (*self.readable, *self.writable, *self.daemons) if "/" in path)
        gone = [name for name in _DAEMONS if name in env and name not in self.daemons]
        return [name for name in gone if not env[name].endswith(named)]


class Bubblewrap(Sandbox, frozen=True, dict=True):
    @contextmanager
    def around(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths,
        home: Sequence[str] = (),
        readable: Sequence[str] = (),
        copy_layers: bool = False,
    ) -> Iterator[tuple[str, ...]]:
        program = program_of(argv, cwd, env)
        if program is None:
            yield tuple(argv)  # the start reports what is missing
            return
        if sandbox_paths.at and any(is_below(top, resolved([sandbox_paths.at])) for top in resolved(self.homes)):
            # If the home itself is a git repository, its tools are below that path.
            sandbox_paths = at_its_own_path(sandbox_paths)
        view = MountedPlace.of(sandbox_paths)
        named = [(view.name(path), lower) for path, lower in sandbox_paths.layers]
        # Where the folder exists, and the place has no link and no file in the way.
        possible = [pair for pair in named if Path(pair[1]).is_dir() and view.has_room_for(pair[0])]
        real = tuple((path, os.path.realpath(lower)) for path, lower in possible)
        sandbox_paths = replace(sandbox_paths, layers=real)
        with mounted_layers(
            [lower for _, lower in sandbox_paths.layers], self.level.program, copy=copy_layers
        ) as layers:
            opened = self._opened_mounts(env, home, (*readable, program) if view.covers(program) else readable)
            opened = {path: mount for path, mount in opened.items() if view.lacks(path, sandbox_paths)}
            table = (
                self._base_mounts(program, env, view, opened)
                | opened
                | self._ground_mounts(sandbox_paths, view, layers)
            )
            mounts = [
                word
                for path, mount in in_order(table)
                for word in (mount.how, *((mount.source,) if mount.source else ()), path)
            ]
            first = (*_first_process(self.level), *map(view.inside, (program, *argv[1:])))
            begins = _beginning(self.level, layers, network=self.network)
            ends = (*self._variables(env, view), "--chdir", view.inside(os.path.realpath(cwd)))
            with view.mount_points_removed(path for path, mount in table.items() if mount.source != view.behind(path)):
                yield (*begins, *mounts, *ends, *first)

    def _variables(self, env: Mapping[str, str], view: MountedPlace) -> tuple[str, ...]:
        """Unset variables that name a daemon; translate paths in the place."""
        gone = self._daemons_hidden(env)
        told = {name: ":".join(map(view.inside, value.split(":"))) for name, value in env.items() if name not in gone}
        changed = (word for name in told if told[name] != env[name] for word in ("--setenv", name, told[name]))
        return (*(word for name in gone for word in ("--unsetenv", name)), *changed)


def program_of(argv: Sequence[str], cwd: str | Path, env: Mapping[str, str]) -> str | None:
    """Find the program in the same way as the process that will start it."""
    told = str(Path(cwd, argv[0])) if "/" in argv[0] else argv[0]
    return shutil.which(told, path=absolute_entries(env.get("PATH", "")))


def sandbox_error(printed: bytes, exit_code: int | None) -> str:
    """Return the sandbox's own error if the command was never started; else ''.

    What it prints stands before anything that the command prints. A command that prints the same gains nothing: the run
    stops.
    """
    first = printed.partition(b"\n")[0].decode(errors="replace")
    bubblewraps = exit_code == 1 and first.startswith((f"{PROGRAM}: ", "unshare: "))
    return first if bubblewraps or (exit_code and first.startswith(f"{seatbelt.PROGRAM}: ")) else ""


def level(wanted: str, env: Mapping[str, str], platform: str = sys.platform) -> Level:
    """Return the level for `sandbox: auto`, `required` or `off`, or for the name of one, which is required then.

    Raise PrerequisiteMissing if it is less than required.
    """
    if wanted == "off":
        return Level(why="the settings say `sandbox: off`")
    of_the_system = SANDBOX_EXEC if platform == "darwin" else BUBBLEWRAP
    name, probed = _PROBES[of_the_system if wanted in ("auto", "required") else wanted]
    folders = filter(None, absolute_entries(env.get("PATH", os.defpath)).split(os.pathsep))
    found = probed(next((file for folder in folders if os.access(file := f"{folder}/{name}", os.X_OK)), ""))
    if wanted != "auto" and not found.program:
        hint = f"{found.hint.rstrip('.')}, or set `sandbox: auto` to run without."
        raise PrerequisiteMissing(f"The settings require a sandbox, and {found.why}.", hint)
    return found


def homes(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's home by the environment and by the password file: both are hidden."""
    import pwd  # noqa: PLC0415 (only Unix has it)

    try:
        recorded = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        recorded = ""
    return tuple(dict.fromkeys(path for path in (env.get("HOME", ""), recorded) if Path(path).is_absolute()))


@cache
def _probed(program: str) -> Level:
    """Try bubblewrap once, with SIGTERM kept from it: many systems have it installed and forbid what it needs."""
    if not program:
        return Level(why="bubblewrap is not installed", hint=_HOW_TO_GET_IT)
    best = Level(program, BUBBLEWRAP, polite=True)
    fault = _fault(best)
    if not fault:
        return best
    rude = Level(program, BUBBLEWRAP)
    fault = fault if fault == _NO_ANSWER else _fault(rude)
    why = f"bubblewrap does not work here ({fault})"
    return Level(why=why, hint=_HOW_TO_MAKE_IT_WORK) if fault else rude


@cache
def _sandbox_exec_probed(program: str) -> Level:
    """Try sandbox-exec once, with a rule of every kind: a system may not know one of them."""
    if not program:
        return Level(why="sandbox-exec is not on the PATH", hint="It comes with macOS, in /usr/bin.")
    fault = seatbelt.fault(program)
    why, hint = f"sandbox-exec does not work here ({fault})", "Report what it says."
    return Level(why=why, hint=hint) if fault else Level(program, SANDBOX_EXEC)


_PROBES = {BUBBLEWRAP: (PROGRAM, _probed), SANDBOX_EXEC: (seatbelt.PROGRAM, _sandbox_exec_probed)}


def _fault(candidate: Level) -> str:
    """Return bubblewrap's error message; '' where everything that a sandbox needs is available."""
    begins, first = _beginning(candidate, MountedLayers(), network=True), _first_process(candidate)
    argv = (*begins, "--tmpfs", _IN_MEMORY[0], *first, "true")
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_TRY_SECONDS, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return _NO_ANSWER
    except OSError as error:
        return str(error)
    said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return said[0].removeprefix(f"{PROGRAM}: ") if done.returncode else ""


def _beginning(found: Level, layers: MountedLayers, *, network: bool) -> tuple[str, ...]:
    kept = [word for name in _KEPT_BY_ROOT for word in ("--cap-add", f"CAP_{name}")] if os.geteuid() == 0 else []
    return (
        *(_POLITE if found.polite else ()),
        *layers.before,
        found.program,
        *layers.options,
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"),
        *(() if network else ("--unshare-net",)),
        *("--cap-drop", "ALL", *kept),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    )


def _first_process(found: Level) -> tuple[str, ...]:
    return ("--as-pid-1", "--", *_FIRST, *(_POLITE_INSIDE if found.polite else ()))


_machine_mounts = cache(Sandbox.machine_mounts)
"""The same for every phase, and a hundred file-system calls."""


def in_order(table: Mapping[str, Mount]) -> list[tuple[str, Mount]]:
    """Sort outer mounts before inner ones; make the folders between a writable place and a narrower one mounts too."""
    whole: dict[str, Mount] = {}
    for path, mount in table.items():
        parents = [str(parent) for parent in Path(path).parents]
        nearest = next((parent for parent in parents if parent in table), "/")
        around = table.get(nearest, _ROOT)
        as_around = around.source and mount == Mount(around.how, moved(path, nearest, around.source))
        if as_around and not is_below(path, [_DEVICES]):
            continue  # it is like that already
        if around.how.startswith("--bind") and not mount.how.startswith("--bind"):
            between = parents[: parents.index(nearest)]
            whole |= {way: Mount("--bind-try", moved(way, nearest, around.source)) for way in between}
        whole[path] = mount
    return sorted(whole.items(), key=lambda row: row[0].count("/"))


def resolved(paths: Iterable[str]) -> list[str]:
    """Resolve paths; leave out what does not exist."""
    return [os.path.realpath(path) for path in map(Path, paths) if path.is_absolute() and _is_visible(path)]


def _is_visible(path: Path) -> bool:
    """Tell whether the path is visible to us; an inaccessible one counts as missing."""
    return os.access(path, os.F_OK)


def shared_temporaries() -> tuple[str, ...]:
    return (*_IN_MEMORY, os.environ.get("TMPDIR", ""))


@cache
def _needed(
    path: str, program: str, homes: tuple[str, ...], hidden: tuple[str, ...], prefixes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return everything in hidden folders that programs on a search path, and this one, need."""
    entries = [Path(entry) for entry in path.split(os.pathsep) if os.path.isabs(entry)]  # noqa: PTH117 (a str)
    bins = [*entries, *(Path(prefix, "bin") for prefix in prefixes)]
    named = (Path(home, name) for home in homes for name in (*_MANAGERS, *_GIT))
    alone = [Path(program), *_program_folders([program])] if program else []
    found = dict.fromkeys((*named, *alone, *_installed([*bins, *alone], hidden)))
    # Leave out paths in folders that are visible anyway.
    kept: list[str] = []
    for name in sorted(str(file) for file in found if _is_hidden(file, hidden) and os.access(file, os.R_OK)):
        if not (kept and name.startswith(f"{kept[-1]}/")):
            kept.append(name)
    return tuple(kept)


def _registries(homes: Sequence[str], env: Mapping[str, str], opened: Iterable[str]) -> list[str]:
    """Return folders by which build tools find their daemons, in what a sandbox opens."""
    tops = tuple(opened)
    named = [folder for home in homes for pattern in _REGISTRIES for folder in Path(home).glob(pattern)] if tops else []
    found = [str(folder) for folder in named if any(folder.is_relative_to(top) for top in tops)]
    elsewhere = Path(env.get("GRADLE_USER_HOME", ""), "daemon")
    found += [str(elsewhere)] if elsewhere.is_absolute() else []
    return [os.path.realpath(folder) for folder in found if Path(folder).is_dir()]


def _installed(bins: Sequence[Path], hidden: tuple[str, ...]) -> Iterator[Path]:
    """Yield folders of programs, their libraries, and the same for the targets of their links."""
    waiting = [folder for folder in bins if os.access(folder, os.R_OK) and folder.is_dir()]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST_FOLDERS:
        folder = waiting.pop()
        if folder in seen or str(folder) in _OF_THE_SYSTEM:
            continue
        seen.add(folder)
        yield folder
        if folder.name in ("bin", "sbin"):
            yield from (folder.parent / name for name in _BESIDE_BIN)
        try:
            with os.scandir(folder) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:
            continue
        for found in _program_folders(links):
            if _is_hidden(found, hidden):
                waiting += [found] if found.name == "bin" else []
                yield found


def _program_folders(programs: Iterable[str]) -> Iterator[Path]:
    """Yield what each program needs: its `node_modules`, its `bin`, else only itself."""
    for program in programs:
        real = Path(os.path.realpath(program))
        packages = next((parent for parent in reversed(real.parents) if parent.name == "node_modules"), None)
        yield packages or (real.parent if real.parent.name == "bin" else real)


def _is_hidden(file: Path, tops: tuple[str, ...]) -> bool:
    """Tell whether a file lies in a hidden folder, by name or in truth, and is not the whole of one."""
    names = (str(file), os.path.realpath(file))
    return any(name.startswith(f"{top}/") for top in tops for name in names) and not {*names} & {*tops}


# ── a place at another path ────────────────────────────────────────────────────────────────────────────────────────


class MountedPlace(Struct, frozen=True):
    """Paths of a place outside and inside the sandbox; `at` is '' where everything keeps its own path."""

    place: str = ""
    at: str = ""
    given: tuple[str, str] = ("", "")
    """Both paths as given, perhaps through a link."""

    @classmethod
    def of(cls, sandbox_paths: SandboxPaths) -> MountedPlace:
        place, at = (os.path.realpath(path) if path else "" for path in (sandbox_paths.place, sandbox_paths.at))
        return cls(place, at if place else "", (sandbox_paths.place, sandbox_paths.at))

    def inside(self, path: str) -> str:
        """Return the name inside of a path in the place; anything else keeps its own."""
        tops = (self.place, self.given[0]) if self.at and path.startswith("/") else ()
        return next((moved(path, top, self.at) for top in tops if is_below(path, [top])), path)

    def name(self, path: str) -> str:
        """Resolve the links in a path inside that may lead to the checkout."""
        tops = (self.at, self.given[1]) if self.at else ()
        real = os.path.realpath(path) if os.path.lexists(path) else os.path.normpath(path)
        return next((moved(path, top, self.at) for top in tops if is_below(path, [top])), real)

    def behind(self, path: str) -> str:
        """Return the path outside of a path inside; '' if it is not in the place."""
        at = self.at or self.place
        return moved(path, at, self.place) if at and is_below(path, [at]) else ""

    def covers(self, path: str) -> bool:
        """Tell whether only what is mounted on purpose may be seen there."""
        return bool(self.at) and is_below(path, [self.at, self.place])

    def lacks(self, path: str, sandbox_paths: SandboxPaths) -> bool:
        """Tell whether it must be opened to be seen: neither the place nor a layer over it has such a thing."""
        layers = [inside for inside, _ in sandbox_paths.layers]
        there = is_below(path, [self.place, *layers]) or os.path.lexists(self.behind(path))
        return not (self.covers(path) and there)

    def has_room_for(self, folder: str) -> bool:
        """Tell whether there is a folder or nothing behind it, and no link on the way."""
        behind = self.behind(folder)
        parts = Path(behind).relative_to(self.place).parts if behind else ()
        ways = (Path(self.place, *parts[:length]) for length in range(1, len(parts) + 1))
        return all(way.is_dir() and not way.is_symlink() for way in ways if os.path.lexists(way))

    @contextmanager
    def mount_points_removed(self, paths: Iterable[str]) -> Iterator[None]:
        """Remove mount points that were made in the place and are still empty.

        `paths` are those where something else than the place's own is seen: an empty folder there is one that a command
        left whose runner was killed.
        """
        missing: set[Path] = set()
        for path in filter(None, map(self.behind, paths)):
            ways = [way for way in (Path(path), *Path(path).parents) if way.is_relative_to(self.place)][:-1]
            if Path(path).is_dir():
                self._remove_empty(ways)
            missing.update(way for way in ways if not os.path.lexists(way))
        try:
            yield
        finally:
            self._remove_empty(missing)

    def _remove_empty(self, ways: Iterable[Path]) -> None:
        for way in sorted(ways, reverse=True):
            with contextlib.suppress(OSError):
                if not is_below(os.path.realpath(way.parent), [self.place]):
                    continue  # by a link that was put there meanwhile
                if way.is_dir():
                    way.rmdir()
                elif not way.is_symlink() and not way.stat().st_size:
                    way.unlink()


def at_its_own_path(sandbox_paths: SandboxPaths) -> SandboxPaths:
    """Leave the place where it is: show in the place itself what was to be seen at the checkout's path."""
    if not (sandbox_paths.place and sandbox_paths.at):
        return sandbox_paths

    place, at, given = sandbox_paths.place, sandbox_paths.at, sandbox_paths
    stand_ins, shown, layers = (
        tuple((moved(path, at, place) if is_below(path, [at]) else path, source) for path, source in pairs)
        for pairs in (given.stand_ins, given.shown, given.layers)
    )
    return replace(given, at="", stand_ins=stand_ins, shown=shown, layers=layers)


def is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or (top and path.startswith(f"{top}/")) or _is_below(path, top) for top in tops)


def _is_below(path: str, top: str) -> bool:
    """Check more closely if a path may be written in several ways."""
    plain = not any(odd in f"{each}/" for odd in ("//", "/./") for each in (path, top)) and top not in ("", ".")
    return not plain and Path(path).is_relative_to(top)


def moved(path: str, top: str, new_top: str) -> str:
    """Return the same path below another folder."""
    rest = path[len(top) :].lstrip("/") if path.startswith(f"{top}/") else Path(path).relative_to(top)
    return os.path.normpath(Path(new_top, rest))
