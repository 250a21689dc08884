"""Settings: defaults < user < project < environment < flags, joined into one frozen `Settings`.

The structs below are the whole table; `tools/reference` writes docs/reference/settings.md from the string under each
field. A key that is not there is an error that names the nearest one. A layer becomes *leaves* (path → checked value);
the leaves of later layers replace those of earlier ones, and the layer of each one is kept for `capsule config`.
`agents`, `workflow.by_type`, `workflow.by_tag` and an agent's `env` are open: they take any name.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from capsule.core.errors import SettingsError
from capsule.core.remote import BRANCHES, overlapping, request_namespace
from capsule.core.text import nearest, shortened
from capsule.plain_files import parse_scalar, parse_toml, parse_yaml, read_plain

Minutes = Annotated[float, Meta(gt=0, le=10080, description="a number of minutes above 0, at most 10080 (a week)")]
Dollars = Annotated[float, Meta(gt=0, le=1e6, description="an amount above 0")]
Retries = Annotated[int, Meta(ge=0, le=1000, description="a whole number, 0 or more")]
Priority = Annotated[int, Meta(ge=0, le=4, description="a whole number, 0 to 4")]
Count = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Prefix = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9]{0,15}\Z", description="1 to 16 letters and digits")]
ProjectId = Annotated[
    str, Meta(pattern=r"^([a-z0-9][a-z0-9-]{0,62})?\Z", description="a name of lower-case letters, digits and dashes")
]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]*\Z", description="a name of letters, digits, dots and dashes")]
RemoteName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*\Z", description="the name of a remote, as `git remote` lists them")
]
BranchName = Annotated[
    str, Meta(pattern=r"^(?!-)(?!.*(?:\.\.|//|@\{|\.lock\Z|/\Z))[^\s~^:?*\[\\]+\Z", description="the name of a branch")
]
RefsBelow = Annotated[
    str,
    Meta(
        pattern=r"^refs/[a-z]+/([A-Za-z0-9_-]+/)+\Z", description="a namespace for refs, such as `refs/heads/capsule/`"
    ),
]
Level = Literal["low", "medium", "high"]
Texts = tuple[str, ...]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class _ProjectOptions(_Section, frozen=True):
    prefix: Prefix = "WRK"
    """The prefix of backlog item ids."""
    id: ProjectId = ""
    """The name of the project on Temporal, which all its clones share. Needed for `engine: temporal` only."""
    main: str = "auto"
    """The branch that work is merged into. `auto`: the branch that origin/HEAD names, else `main`, else `master`."""


class _GuardrailOptions(_Section, frozen=True):
    """Limits above which a person decides; an assessment equal to the maximum passes."""

    max_size: Literal["small", "medium", "large"] = "medium"
    """An item assessed above this size needs your approval."""
    max_complexity: Level = "medium"
    """An item assessed above this complexity needs your approval."""
    max_risk: Level = "low"
    """An item assessed above this risk needs your approval."""


class _Execution(_Section, frozen=True):
    phase_timeout_minutes: Minutes = 30
    """Time limit of an agent, a gate or a set-up command."""
    idle_timeout_minutes: Minutes = 10
    """How long an agent may print nothing."""
    max_retries: Retries | None = None
    """How often each review may send work back. Unset: as the workflow says."""
    default_phase_cap: Count = 100
    """How many agents one run may start, retries included; `--cap` sets it for one run."""
    jobs: Literal["auto"] | Count = 1
    """How many missions a run works on at the same time; `--jobs` sets it for one run. `auto`: as many as there are
    processors and memory for, at most 4."""
    gates: Count = 1
    """How many merges into the same branch are tested at the same time, each as if those before it were merged."""
    triage_first: bool = False
    """Whether a run assesses all new items of a backlog before it works on others; `--triage-first` for one run."""
    max_wait_minutes: Minutes = 360
    """How long a phase waits in total for a provider that is overloaded or rate-limited."""


class PhaseOptions(_Section, frozen=True):
    """One agent in one phase; `args` and `env` are added to the agent's own."""

    model: str = ""
    """The model in this phase."""
    args: Texts = ()
    """More arguments in this phase."""
    env: dict[str, str] = {}
    """More environment variables in this phase."""


class AgentOptions(_Section, frozen=True):
    """One agent."""

    kind: str = ""
    """Its adapter or preset. Empty: chosen by its name, or by `command`."""
    model: str = ""
    """The model to use."""
    command: Texts = ()
    """For the `command` adapter: the argument list, with `{prompt}`, `{prompt_file}` and `{model}` filled in."""
    model_args: Texts = ()
    """For the `command` adapter: arguments added if a model is chosen, with `{model}` filled in."""
    failures: dict[str, str] = {}
    """For the `command` adapter: a regular expression for each kind of failure, matched against the end of an output
    without a signal, such as `{rate limit: HTTP 429}`."""
    prompt: Literal["argument", "stdin", "file"] = "argument"
    """How a command without `{prompt}` or `{prompt_file}` gets its prompt: as last argument, on stdin, or as a file."""
    args: Texts = ()
    """More arguments. For `scripted`: the script."""
    env: dict[str, str] = {}
    """Environment variables for this agent only."""
    phases: dict[str, PhaseOptions] = {}
    trust_project: bool = False
    """Whether to load the repository's own agent settings, hooks and tool servers."""


class _WorkflowChoice(_Section, frozen=True):
    default: str = "auto"
    """The workflow of an item. `auto`: `change` for a backlog, `tdd` for beads."""
    by_type: dict[str, str] = {}
    """Workflows by type of item, such as `{bug: hotfix}`."""
    by_tag: dict[str, str] = {}
    """Workflows by tag (a label, for beads); a tag takes precedence over the type. Where neither is set and `default`
    is `auto`, items outside of a backlog are taken by their own words: `refactor`, `docs`, `tests`, `chore` and
    `exam`."""


class WorkspaceOptions(_Section, frozen=True):
    publish: Literal["auto", "merge", "steps"] = "auto"
    """How work gets to your branch: `merge` at the end, or in `steps`. `auto`: as the workflow says."""
    kind: Literal["auto", "worktree", "checkout"] = "auto"
    """Retired: every mission has its own worktree. Use `workspace.publish`."""
    setup: str = "none"
    """A command that makes a fresh worktree usable, such as `npm ci`; it runs again when its inputs change."""
    copy: Texts = (".claude/", "CLAUDE.local.md")
    """Globs of untracked files to copy into a worktree, such as `.env`. They are never merged."""
    dependencies: Texts = ()
    """Folders of installed dependencies, besides those found automatically (`.venv`, `node_modules`, …)."""


DEBRIS = (
    *("*.orig", "*.rej", "*.bak", "*.tmp", "*.swp", "*.swo", "*~", "*.pyc"),
    *(".DS_Store", "Thumbs.db", "core", "core.[0-9]*", "nohup.out", "debug.log", "npm-debug.log*", "scratch.*"),
)


class _EvidenceOptions(_Section, frozen=True):
    test: str = "auto"
    """The test command. `auto`: detected. `none`: missions run unverified."""
    test_timeout_minutes: Minutes = 15
    """Time limit of the test command. A time-out is never green."""
    test_globs: Literal["auto"] | Texts = "auto"
    """Which files are tests. `auto`: by ecosystem. `!app.py` takes a file out. The runner's settings and the scripts of
    the test command count as well, always."""
    debris: Texts = DEBRIS
    """Globs of files that must not be left behind."""
    allow: Texts = ()
    """Globs of files that may hold what looks like a secret, such as a key that is test data. They are named."""
    report: Texts = ()
    """Globs of JUnit XML that the test command writes, for test runners that Capsule cannot ask for names."""
    base: Literal["known", "strict"] = "known"
    """Tests that fail before anything is done. `known`: they are named and may go on failing. `strict`: none may."""
    mutants: Retries = 8
    """How many times a finished change is broken on purpose, to see whether a test notices. 0: never."""
    mutant_minutes: Minutes = 5
    """Time limit for all of them together. By default they may take as long as the tests themselves, or 30 seconds if
    those are quicker. What does not fit is reported as not tried; the first is always tried."""
    already_done: Literal["ask", "trust"] = "ask"
    """If triage reports that an item is done already. `ask`: a person confirms it. `trust`: it is closed."""
    exam: Literal["keep", "drop"] = "keep"
    """What becomes of the tests of a passed exam. `keep`: they are merged with the work. `drop`: they stay hidden."""


class _AllowanceOptions(_Section, frozen=True):
    """A limit on what agents may use together. Unset is unlimited."""

    usd: Dollars | None = None
    """Dollars"""
    tokens: Count | None = None
    """Tokens"""
    minutes: Minutes | None = None
    """Minutes of agent time"""


class _BudgetOptions(_Section, frozen=True):
    phase: _AllowanceOptions = _AllowanceOptions()
    """for one phase of a mission, all its attempts together."""
    mission: _AllowanceOptions = _AllowanceOptions()
    """for one mission."""
    run: _AllowanceOptions = _AllowanceOptions()
    """for one run of the queue."""


class _EnvironmentOptions(_Section, frozen=True):
    """The environment of agents and of the project's commands."""

    allow: Texts = ()
    """More variables, or patterns such as `AWS_*`, to pass on to agents and tests."""
    secret: Texts = ()
    """More variables whose values are kept out of every log, besides those with telling names (`…_TOKEN`, `…_KEY`)."""


class _Confinement(_Section, frozen=True):
    """Limits of the sandbox."""

    network: bool = True
    """Whether the sandbox has network access."""
    test_network: Literal["shared", "own"] = "shared"
    """The network of tests in bubblewrap: `shared` is as `network` says; `own` gives each run a loopback interface and
    nothing else, so that its ports are its own, and it reaches no database or other service of the machine."""
    readable: Texts = ()
    """Paths in your home that the sandbox does not hide."""
    writable: Texts = ()
    """Paths that agents and tests in the sandbox may change, besides their worktree."""
    daemons: Texts = ()
    """Sockets (paths) and variables (`DOCKER_HOST`) of daemons that the sandbox does not hide."""
    at_checkout_path: bool = True
    """Whether the project's commands see their worktree at the checkout's own path. Set it to false if they need a
    daemon outside the sandbox."""


class _CampaignOptions(_Section, frozen=True):
    """An epic or a feature that is run as a whole."""

    on_failure: Literal["stop", "continue"] = "stop"
    """What an epic does when one of its items fails: `stop`, or `continue` with items that do not depend on it;
    `--on-failure` sets it for one run."""
    file_discovered: bool = False
    """Whether unrelated work that agents notice is filed in the tracker as new items. For every mission on a bead."""


class _GitOptions(_Section, frozen=True):
    hooks: bool = False
    """Whether your pre-commit and commit-msg hooks run before a step is committed to your branch (`publish: steps`).
    A hook that refuses makes the claim REFUTED."""


class _RequestOptions(_Section, frozen=True):
    """How requests are opened with `merge.to: request`."""

    forge: Literal["auto", "github", "gitlab", "gitea"] = "auto"
    """The kind of forge: `github` (by the program `gh`), `gitlab` (`glab`), `gitea` (`tea`; Forgejo and Codeberg too).
    `auto`: by the name of the remote's host."""
    open: Texts = ()
    """A command that opens a request, for any other forge: the argument list, with `{branch}`, `{title}`,
    `{body_file}` and `{base}` filled in. The last address that it prints is the request's."""
    look: Texts = ()
    """A command that says what has become of the request of `{branch}`, beside `open`: a JSON list on stdout.
    Empty: only a merge that keeps the commits is noticed."""


class MergeOptions(_Section, frozen=True):
    batch: Count = 1
    """How many missions that wait to be merged may be tested together, and merged with one commit. Twice as many after
    each green test run, one after a red one. Each keeps a merge of its own, which can be reverted."""
    to: Literal["local", "remote", "request"] = "local"
    """Where work is merged. `local`: into your own branch; nothing is pushed. `remote`: into the branch at the remote,
    by a push that never overwrites anything: [more](../how-to/merge-to-a-remote.md). `request`: by a pull request for
    each mission: [more](../how-to/open-pull-requests.md)."""
    remote: RemoteName = "origin"
    """The remote that work is merged to."""
    branch: BranchName = "auto"
    """The branch at the remote that work is merged to. `auto`: the one with the same name as your main branch."""
    refs: RefsBelow = "refs/capsule/missions/"
    """Where the work of a mission is put at the remote before it is merged. `refs/heads/capsule/` for a server that
    accepts branches only; requests are made of branches, so they have them there unless this names another place."""
    claims: RefsBelow = "refs/capsule/claims/"
    """Where items are claimed at the remote, so that no two clones work on the same one. `refs/heads/capsule-claims/`
    for a server that accepts branches only; the same in every clone."""
    claim_minutes: Minutes = 30
    """How long a claim lasts while work goes on, which renews it. After a crash, or without a connection, another clone
    may take the item over once it has run out."""
    claim_hours: Annotated[float, Meta(gt=0, le=10080, description="a number of hours above 0")] = 24
    """How long an item stays claimed after a run that ended before it was merged, because it needs you or was
    stopped."""
    state_branch: BranchName = "capsule-state"
    """The branch at the remote that the state of a backlog is committed to with `merge.to: request`. Its checkout is
    `.capsule/backlog`."""
    request: _RequestOptions = _RequestOptions()
    push: bool = False
    """Retired: `merge.to` says where work is merged."""


class GitHubOptions(_Section, frozen=True):
    """Which issues of a repository on GitHub are items, and what their labels mean."""

    repository: str = ""
    """`OWNER/NAME`. Empty: the one that `gh` finds by the remotes of this clone."""
    labels: Texts = ("capsule",)
    """Only issues with all of these labels are items. With `[]`, whoever may open an issue gives your agents work."""
    milestone: str = ""
    """Only issues of the milestone with this title are items."""
    assignee: str = ""
    """Only issues assigned to this login are items; `@me` is yours."""
    state: Literal["all", "open"] = "all"
    """`all`: the newest closed issues are read too, so that an epic knows what it has held. `open`: one call fewer."""
    claim: Literal["label", "assignee"] = "label"
    """How an issue is claimed: by the label for what is in progress, or by assigning it to you."""
    in_progress: str = "in-progress"
    """The label of an issue that is worked on."""
    blocked: str = "blocked"
    """The label of an issue that nobody is to work on."""
    types: dict[str, str] = {}
    """The type that a label stands for, such as `{"kind/bug": bug}`, besides `bug`, `epic`, `enhancement` (a feature)
    and `documentation` (docs). A new issue of a type gets the first label that stands for it."""
    priorities: dict[str, Priority] = {}
    """The priority that a label stands for, from 0 (most urgent) to 4, such as `{urgent: 0}`, besides `P0` to `P4`.
    An issue without such a label has 2."""


class _TrackerOptions(_Section, frozen=True):
    name: str = "auto"
    """Where items come from: `backlog` (BACKLOG.yaml), `beads` (the program `bd`), `beads-file` (the JSONL file of a
    `.beads` folder) or `github` (issues, by the program `gh`; only where it is named). `auto`: the one that is there.
    `tracker: NAME` is short for it."""
    commit: bool = False
    """Whether the tracker's own files, such as `.beads/issues.jsonl`, are committed when a run ends. A backlog is
    always committed."""
    shared: bool = False
    """Whether every clone sees the same beads, or this clone is the only one that works on them: only then beads go
    with `merge.to: remote`. A database on a Dolt server that is not this machine counts as shared anyway."""
    github: GitHubOptions = GitHubOptions()


class TemporalOptions(_Section, frozen=True):
    """The Temporal server that missions run on with `engine: temporal`."""

    address: str = "127.0.0.1:7233"
    """Host and port of the server's front end."""
    namespace: str = "default"
    """The namespace on the server."""
    tls: bool = False
    """Whether the connection is encrypted. With an API key, in the variable CAPSULE_TEMPORAL_API_KEY, it always is."""
    tls_ca: str = ""
    """A file with the certificates that the server's one is checked against. Empty: those of the system."""
    tls_cert: str = ""
    """A file with our own certificate, for a server that asks for one."""
    tls_key: str = ""
    """A file with the key of that certificate."""
    events: RefsBelow = "refs/capsule/events/"
    """Where the events of missions are put at the remote; `refs/heads/capsule-events/` for a server that accepts
    branches only."""
    heartbeat_seconds: Annotated[float, Meta(ge=2, le=3600, description="a number of seconds from 2 to 3600")] = 20
    """A step whose worker is not heard of for so long is done by another one; its agent is ended there."""
    host: HostName = ""
    """What this machine is called among the workers. Empty: as it calls itself."""
    label: str = ""
    """Only workers with this label (`capsule worker --can LABEL`) work for this project. Empty: all."""


class Settings(_Section, frozen=True):
    project: _ProjectOptions = _ProjectOptions()
    guardrails: _GuardrailOptions = _GuardrailOptions()
    execution: _Execution = _Execution()
    tracker: _TrackerOptions = _TrackerOptions()
    agent: str = "claude"
    """The agent to use: an adapter, a preset, or a name under `agents`."""
    agents: dict[str, AgentOptions] = {}
    workflow: _WorkflowChoice = _WorkflowChoice()
    workspace: WorkspaceOptions = WorkspaceOptions()
    verify: Literal["strict", "warn", "off"] = "strict"
    """`strict`: a refuted PASS goes back to the agent. `warn`: it is recorded. `off`: nothing is checked."""
    evidence: _EvidenceOptions = _EvidenceOptions()
    sandbox: Literal["auto", "required", "off", "bubblewrap", "sandbox-exec"] = "auto"
    """Whether agents and tests run in a sandbox, bubblewrap or on macOS sandbox-exec: `auto` if it works, `required`
    always or not at all, `off` never. The name of one requires that one."""
    confinement: _Confinement = _Confinement()
    environment: _EnvironmentOptions = _EnvironmentOptions()
    skills: Literal["auto", "always", "never"] = "auto"
    """Whether agents are pointed to the skills in `.claude/skills/changes`: if they exist, always (it is an error if
    they do not), or never."""
    build: Literal["agent", "tdd"] = "agent"
    """Who builds a change: one agent, or one TDD mission for each phase of its SPEC."""
    budget: _BudgetOptions = _BudgetOptions()
    campaign: _CampaignOptions = _CampaignOptions()
    notify: str | Texts = "none"
    """How to notify you when a mission needs you, is done or has stopped: `none`, the terminal's `bell`, a command line
    that gets the event as JSON on stdin, or a list of these: [more](../how-to/notifications.md)."""
    git: _GitOptions = _GitOptions()
    merge: MergeOptions = MergeOptions()
    engine: Literal["local", "temporal"] = "local"
    """Where missions run. `local`: on this machine. `temporal`: on any of several, by a Temporal server:
    [more](../how-to/several-machines.md)."""
    temporal: TemporalOptions = TemporalOptions()


PUBLISH = {"merge": "worktree", "steps": "checkout"}
"""Ways to publish work, and the words for them in journaled workflows."""

ENV_PREFIX = "CAPSULE_"
_TOLD_TO_CHILDREN = (
    *(
        "COMMIT_MSG",
        "MISSION",
        "ITEM",
        "PHASE",
        "RUN",
        "RESULT",
        "KEEPER",
        "WORKTREE",
        "REPOSITORY",
        "SLOT",
        "PORT_BASE",
    ),
    *("NOTIFICATION", "NOTIFICATION_WORDS", "TEMPORAL_API_KEY", "TEMPORAL_KEY"),
)
NO_SETTINGS = frozenset(ENV_PREFIX + name for name in _TOLD_TO_CHILDREN)
"""Variables that Capsule sets for child processes; a nested Capsule must not read them as settings."""

PROJECT_YAML = ".capsule/config.yaml"
PROJECT_TOML = "orchestrate.toml"

Place = tuple[str, ...]
Leaves = dict[Place, object]
ReadProject = Callable[[str], bytes | None]


class Loaded(Struct, frozen=True):
    """The effective settings, and for each dotted key that is set, the layer it comes from."""

    settings: Settings
    layers: dict[str, str]
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, object, str]]:
        """Return every effective value with the layer it comes from."""
        found = [(_dotted(place), value) for place, value in leaves_of(self.settings)]
        return [(key, value, self.layers.get(key, "default")) for key, value in found]


def load_settings(
    root: Path | None,
    *,
    env: Mapping[str, str],
    flags: Mapping[str, object],
    read_project: ReadProject | None = None,
) -> Loaded:
    """Join all layers. `read_project` reads the project's files from a commit instead of the working tree."""
    reader = read_project or (lambda path: read_plain(root / path) if root else None)
    project, warnings = _project_layer(reader)
    layers = {
        "user": _user_layer(env),
        "project": project,
        "environment": _environment_layer(env),
        "flag": _flag_layer(flags),
    }
    values = {place: value for layer in layers.values() for place, value in layer.items()}
    won = {_dotted(place): name for name, layer in layers.items() for place in layer}
    warnings += (*_retired_kind(values, won), *_retired_push(values))
    settings = msgspec.convert(_nested(values), Settings)
    refuse_shared_places(settings.merge, "" if settings.merge.branch == "auto" else settings.merge.branch)
    return Loaded(settings, won, warnings)


def _retired_kind(values: Leaves, won: dict[str, str]) -> tuple[str, ...]:
    """Translate `workspace.kind` into `workspace.publish`; return the warnings."""
    kind, publish = ("workspace", "kind"), ("workspace", "publish")
    meant = {word: how for how, word in PUBLISH.items()}.get(str(values.get(kind)))
    if meant is None:
        return ()
    retired = "workspace.kind is retired: every mission has a worktree of its own"
    if publish in values:
        return (f"{retired}, and workspace.publish says how work is published; remove it.",)
    values[publish], won[_dotted(publish)] = meant, won[_dotted(kind)]
    return (f"{retired}; use `workspace.publish: {meant}`.",)


def _retired_push(values: Leaves) -> tuple[str, ...]:
    """Warn about `merge.push`, which never had an effect."""
    if ("merge", "push") not in values:
        return ()
    retired = "merge.push is retired and has no effect"
    if values["merge", "push"] and ("merge", "to") not in values:
        return (f"{retired}; use `merge.to: remote` to have work merged into the branch of a remote.",)
    return (f"{retired}: merge.to says where work is merged; remove it.",)


def refuse_shared_places(merge: MergeOptions, branch: str) -> None:
    """Refuse places at the remote of which one would overwrite what is in another; work is merged into `branch`."""
    if merge.to == "local":
        return
    places = {
        "refs": request_namespace(merge.refs) if merge.to == "request" else merge.refs,
        "claims": merge.claims,
        **({"branch": f"{BRANCHES}{branch}"} if branch else {}),
        "state_branch": f"{BRANCHES}{merge.state_branch}",
    }
    if shared := overlapping(places):
        one, other = (f"merge.{name} ({places[name]})" for name in shared)
        cause = f"{one} and {other} would overwrite each other at the remote."
        raise SettingsError(cause, "Name two places of which neither lies in the other.")


def leaves_of(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    """Yield every single value of a settings tree; an open table without entries counts as a value."""
    if isinstance(value, Struct):
        inner: Mapping[str, object] = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, dict) and value:
        inner = value
    else:
        yield place, value
        return
    for name, part in inner.items():
        yield from leaves_of(part, (*place, name))


# ---- the layers


def _user_layer(env: Mapping[str, str]) -> Leaves:
    chosen, home = env.get("XDG_CONFIG_HOME", ""), env.get("HOME", "")
    folder = chosen if Path(chosen).is_absolute() else f"{home}/.config" if home else ""
    path = Path(folder, "capsule", "config.yaml")
    return _file_layer(read_plain(path) if folder else None, parse_yaml, str(path))


def _project_layer(read: ReadProject) -> tuple[Leaves, tuple[str, ...]]:
    ours = _file_layer(read(PROJECT_YAML), parse_yaml, PROJECT_YAML)
    theirs = _file_layer(read(PROJECT_TOML), parse_toml, PROJECT_TOML)
    differing = [_dotted(place) for place in ours if place in theirs and theirs[place] != ours[place]]
    warnings = (f"{key} differs in {PROJECT_TOML} and {PROJECT_YAML}; {PROJECT_YAML} wins." for key in differing)
    return {**theirs, **ours}, tuple(warnings)


def _environment_layer(env: Mapping[str, str]) -> Leaves:
    """Read CAPSULE_A__B as a.b; an empty variable counts as unset."""
    leaves: Leaves = {}
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name not in NO_SETTINGS and env[name]:
            place = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
            leaves.update(_at(place, env[name], f"environment variable {name}"))
    return leaves


def _flag_layer(flags: Mapping[str, object]) -> Leaves:
    """Read flags by dotted key; None is a flag that was not given."""
    leaves: Leaves = {}
    for key, value in flags.items():
        if value is not None:
            leaves.update(_at(tuple(key.split(".")), value, "command line"))
    return leaves


# ---- from a layer to checked leaves


def _file_layer(data: bytes | None, parse: Callable[[bytes, str], object], source: str) -> Leaves:
    return {} if data is None else dict(_walk(parse(data, source), Settings, (), source))


def _at(place: Place, value: object, source: str) -> Leaves:
    """Check one value at its place. Text is taken literally if text is wanted, else read as YAML."""
    kind: Any = Settings
    for depth, name in enumerate(place):
        kind = _below(kind, name, place[:depth], source)
    if isinstance(value, str):
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            value = parse_scalar(value)
    return dict(_walk(value, kind, place, source))


_SHORT = {_TrackerOptions: "name"}
"""Sections that may be written as one text, and the key that it is the value of."""


def _walk(value: object, kind: Any, place: Place, source: str) -> Iterator[tuple[Place, object]]:
    if isinstance(value, str) and kind in _SHORT:
        value = {_SHORT[kind]: value}
    if not _is_section(kind) and get_origin(kind) is not dict:
        yield place, _converted(value, kind, place, source)
        return
    if value is not None and not isinstance(value, dict):
        raise SettingsError(
            f"{source}: `{_dotted(place) or 'the file'}` is {_shown(value)}; it must be a table of keys.",
            f"Allowed keys: {', '.join(getattr(kind, '__struct_fields__', ())) or 'any name'}.",
        )
    for name, inner in (value or {}).items():
        yield from _walk(inner, _below(kind, name, place, source), (*place, str(name)), source)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _below(kind: Any, name: object, place: Place, source: str) -> Any:
    """Return the type of the value under this name, or raise an error that suggests a known name."""
    if get_origin(kind) is dict and isinstance(name, str):
        return get_args(kind)[1]
    found = _types_of(kind) if _is_section(kind) else {}
    if name in found:
        return found[str(name)]
    raise SettingsError(f"{source}: there is no setting `{_dotted((*place, str(name)))}`.", _advice(str(name), place))


@cache
def _types_of(section: type[Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(section)}


def _advice(name: str, place: Place) -> str:
    """Suggest a key for an unknown one: the same key elsewhere, else the most similar, else all known ones."""
    known = list(_table(Settings))
    elsewhere = [_dotted(key) for key in known if key[-1] == name]
    if elsewhere:
        return f"`{name}` belongs elsewhere: write `{elsewhere[0]}`."
    siblings = {_dotted(key): key[-1] for key in known if key[:-1] == place}
    near = nearest(name, siblings.values())
    if near:
        return f"Did you mean `{_dotted((*place, *near))}`?"
    distant = nearest(_dotted((*place, name)), map(_dotted, known))
    return f"Did you mean `{distant[0]}`?" if distant else f"Known here: {', '.join(siblings.values()) or 'nothing'}."


def _table(kind: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every key; `<name>` stands for any name."""
    if place:
        yield place
    if get_origin(kind) is dict and _is_section(get_args(kind)[1]):
        yield from _table(get_args(kind)[1], (*place, "<name>"))
    for field in msgspec.structs.fields(kind) if _is_section(kind) else ():
        yield from _table(field.type, (*place, field.name))


def _converted(value: object, kind: Any, place: Place, source: str) -> object:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        near = nearest(value, choices) if isinstance(value, str) else []
        raise SettingsError(
            f"{source}: `{_dotted(place)}` is {_shown(value)}; it must be {_wanted(kind)}.",
            f"Did you mean `{near[0]}`?" if near else "Fix the value; `capsule config` shows the effective settings.",
        ) from None


_PLAIN_WORDS = {str: "text", bool: "true or false", Texts: "a list of texts", types.NoneType: "left out"}


def _wanted(kind: Any) -> str:
    """Describe the allowed values to people."""
    if get_origin(kind) is Annotated:
        return next(str(meta.description) for meta in get_args(kind) if isinstance(meta, Meta))
    if get_origin(kind) is Literal:
        return ("one of " if len(get_args(kind)) > 1 else "") + ", ".join(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_wanted(option) for option in get_args(kind))
    return _PLAIN_WORDS[kind]


def _shown(value: object) -> str:
    return "empty" if value is None else shortened(repr(value), 60)


def _dotted(place: Place) -> str:
    return ".".join(place)


def _nested(leaves: Leaves) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for place, value in leaves.items():
        branch = tree
        for name in place[:-1]:
            branch = branch.setdefault(name, {})
        branch[place[-1]] = value
    return tree
