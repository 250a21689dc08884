"""Settings: defaults < user < project < environment < flags, joined into one frozen `Settings`.

The structs below are the whole table: a key that is not there is an error that names the nearest one, because tools
that ignore a mistyped setting in silence are hated for it. A layer is turned into *leaves* (path → checked value), the
leaves of later layers replace those of earlier ones, and the layer each one came from is remembered for
`capsule config`. `agents`, `workflow.by_type`, `workflow.by_tag` and an agent's `env` are open: any name will do there.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from capsule.core.errors import SettingsError
from capsule.core.text import nearest
from capsule.plain_files import parse_scalar, parse_toml, parse_yaml, read_plain

Minutes = Annotated[float, Meta(gt=0, le=10080, description="a number of minutes above 0, at most 10080 (a week)")]
Dollars = Annotated[float, Meta(gt=0, le=1e6, description="an amount above 0")]
Retries = Annotated[int, Meta(ge=0, le=1000, description="a whole number, 0 or more")]
Count = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Prefix = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9]{0,15}\Z", description="1 to 16 letters and digits")]
Level = Literal["low", "medium", "high"]
Texts = tuple[str, ...]


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class ProjectOptions(_Section, frozen=True):
    prefix: Prefix = "WRK"
    main: str = "auto"


class GuardrailOptions(_Section, frozen=True):
    """What goes on without a human; equal to the maximum passes."""

    max_size: Literal["small", "medium", "large"] = "medium"
    max_complexity: Level = "medium"
    max_risk: Level = "low"


class Execution(_Section, frozen=True):
    phase_timeout_minutes: Minutes = 30
    idle_timeout_minutes: Minutes = 10
    max_retries: Retries | None = None
    """Unset: what the workflow says."""
    default_phase_cap: Count = 100
    max_wait_minutes: Minutes = 360
    """How long a phase waits in all for a provider that is overloaded or has had enough of us."""


class PhaseOptions(_Section, frozen=True):
    """One agent in one phase."""

    model: str = ""
    args: Texts = ()
    env: dict[str, str] = {}


class AgentOptions(_Section, frozen=True):
    """One agent. `kind` is the adapter that runs it; empty means the adapter of the agent's own name."""

    kind: str = ""
    model: str = ""
    command: Texts = ()
    """For the `command` adapter: an argv in which {prompt}, {prompt_file} and {model} are filled in."""
    model_args: Texts = ()
    """For the `command` adapter: added where a model is chosen, {model} filled in."""
    failures: dict[str, str] = {}
    """For the `command` adapter: what the end of the output looks like (a regular expression), by kind of failure."""
    prompt: Literal["argument", "stdin", "file"] = "argument"
    args: Texts = ()
    env: dict[str, str] = {}
    phases: dict[str, PhaseOptions] = {}
    """What differs in single phases; `args` and `env` are added to the agent's own."""
    trust_project: bool = False
    """Lets the repository's own agent settings, hooks and tool servers take part."""


class WorkflowChoice(_Section, frozen=True):
    default: str = "auto"
    by_type: dict[str, str] = {}
    by_tag: dict[str, str] = {}


class WorkspaceOptions(_Section, frozen=True):
    publish: Literal["auto", "merge", "steps"] = "auto"
    """How work gets to your branch: merged at the end, or step by step, one commit each; auto asks the workflow."""
    kind: Literal["auto", "worktree", "checkout"] = "auto"
    """Retired: every mission has a worktree of its own. `publish` says how its work gets out of it."""
    setup: str = "none"
    """A command that makes a fresh worktree usable, or none."""
    copy: Texts = (".claude/", "CLAUDE.local.md")
    """Globs of files that git ignores or does not know, to be copied into a place."""
    dependencies: Texts = ()
    """Folders of installed dependencies besides those that are found, such as .venv and node_modules."""


DEBRIS = (
    *("*.orig", "*.rej", "*.bak", "*.tmp", "*.swp", "*.swo", "*~", "*.pyc"),
    *(".DS_Store", "Thumbs.db", "core", "core.[0-9]*", "nohup.out", "debug.log", "npm-debug.log*", "scratch.*"),
)


class EvidenceOptions(_Section, frozen=True):
    test: str = "auto"
    """The project's test command; auto looks for one, none runs unverified."""
    test_timeout_minutes: Minutes = 15
    test_globs: Literal["auto"] | Texts = "auto"
    debris: Texts = DEBRIS


class AllowanceOptions(_Section, frozen=True):
    """What agents may use up together. Unset is unlimited."""

    usd: Dollars | None = None
    tokens: Count | None = None
    minutes: Minutes | None = None


class BudgetOptions(_Section, frozen=True):
    """What may be spent: on one phase of a mission with all its attempts, on one mission, by one run."""

    phase: AllowanceOptions = AllowanceOptions()
    mission: AllowanceOptions = AllowanceOptions()
    run: AllowanceOptions = AllowanceOptions()


class EnvironmentOptions(_Section, frozen=True):
    """What agents and the project's commands see of your environment."""

    allow: Texts = ()
    """Names, or patterns such as AWS_*, that are passed on although nobody is known to need them."""
    secret: Texts = ()
    """Names whose values are kept out of every log, on top of those that look like it (…_TOKEN, …_KEY, …)."""


class Confinement(_Section, frozen=True):
    """What the sandbox leaves open."""

    network: bool = True
    readable: Texts = ()
    """Paths under your home that are not hidden."""
    writable: Texts = ()
    """Paths that agents and tests may change besides their own place."""
    daemons: Texts = ()
    """Sockets (paths) and variables that name one, which are left as they are."""
    at_checkout_path: bool = True
    """Whether the project's commands find their place at the checkout's own path."""


class CampaignOptions(_Section, frozen=True):
    """An epic or a feature that is run as a whole."""

    on_failure: Literal["stop", "continue"] = "stop"
    """Whether the first item that does not come to its end is the last that is tried."""
    file_discovered: bool = False
    """Whether work that agents notice on the way is put into the tracker; also for missions of their own."""


class GitOptions(_Section, frozen=True):
    hooks: bool = False


class MergeOptions(_Section, frozen=True):
    push: bool = False


class Settings(_Section, frozen=True):
    project: ProjectOptions = ProjectOptions()
    guardrails: GuardrailOptions = GuardrailOptions()
    execution: Execution = Execution()
    tracker: str = "auto"
    agent: str = "claude"
    agents: dict[str, AgentOptions] = {}
    workflow: WorkflowChoice = WorkflowChoice()
    workspace: WorkspaceOptions = WorkspaceOptions()
    verify: Literal["strict", "warn", "off"] = "strict"
    evidence: EvidenceOptions = EvidenceOptions()
    sandbox: Literal["auto", "required", "off"] = "auto"
    confinement: Confinement = Confinement()
    environment: EnvironmentOptions = EnvironmentOptions()
    skills: Literal["auto", "always", "never"] = "auto"
    build: Literal["agent", "tdd"] = "agent"
    budget: BudgetOptions = BudgetOptions()
    campaign: CampaignOptions = CampaignOptions()
    notify: str | Texts = "none"
    """Who is called when a mission waits, is done or stops: none, bell, a command line, or a list of them."""
    git: GitOptions = GitOptions()
    merge: MergeOptions = MergeOptions()


PUBLISH = {"merge": "worktree", "steps": "checkout"}
"""How work is published, and the word that a workflow has for it in the journal."""

NOT_YET = ("merge.push",)
"""Settled names that this version does not act on yet. Whoever sets one is told so, instead of wondering."""

ENV_PREFIX = "CAPSULE_"
_TOLD_TO_CHILDREN = (
    *("COMMIT_MSG", "MISSION", "ITEM", "PHASE", "RUN", "RESULT", "KEEPER", "WORKTREE", "REPOSITORY"),
    *("NOTIFICATION", "NOTIFICATION_WORDS"),
)
NO_SETTINGS = frozenset(ENV_PREFIX + name for name in _TOLD_TO_CHILDREN)
"""What Capsule tells its children through the environment; a Capsule inside a Capsule must not read it as settings."""

PROJECT_YAML = ".capsule/config.yaml"
PROJECT_TOML = "orchestrate.toml"

Place = tuple[str, ...]
Leaves = dict[Place, object]
ReadProject = Callable[[str], bytes | None]


class Loaded(Struct, frozen=True):
    """The settings, and for each dotted key that some layer set, the layer that won."""

    settings: Settings
    layers: dict[str, str]
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, object, str]]:
        """Every effective value with the layer it comes from."""
        found = [(_dotted(place), value) for place, value in leaves_of(self.settings)]
        return [(key, value, self.layers.get(key, "default")) for key, value in found]


def load_settings(
    root: Path | None,
    *,
    env: Mapping[str, str],
    flags: Mapping[str, object],
    read_project: ReadProject | None = None,
) -> Loaded:
    """Join all layers. `read_project` reads the project's files from elsewhere than the working tree: from a commit."""
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
    warnings += _retired(values, won)
    early = tuple(
        f"{key} is set ({won[key]}), but this version does not act on it yet." for key in won if _not_yet(key)
    )
    return Loaded(msgspec.convert(_nested(values), Settings), won, warnings + early)


def _retired(values: Leaves, won: dict[str, str]) -> tuple[str, ...]:
    """Read `workspace.kind` as what takes its place, and say so."""
    kind, publish = ("workspace", "kind"), ("workspace", "publish")
    meant = {word: how for how, word in PUBLISH.items()}.get(str(values.get(kind)))
    if meant is None:
        return ()
    retired = "workspace.kind is retired: every mission has a worktree of its own"
    if publish in values:
        return (f"{retired}, and workspace.publish says how work is published; take it out.",)
    values[publish], won[_dotted(publish)] = meant, won[_dotted(kind)]
    return (f"{retired}; say `workspace.publish: {meant}`.",)


def _not_yet(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in NOT_YET)


def leaves_of(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    """Every single value of a settings tree; an open table without entries is a value itself."""
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
    data = read_plain(path) if folder else None
    return {} if data is None else _checked(parse_yaml(data, str(path)), str(path))


def _project_layer(read: ReadProject) -> tuple[Leaves, tuple[str, ...]]:
    yaml, toml = read(PROJECT_YAML), read(PROJECT_TOML)
    ours = {} if yaml is None else _checked(parse_yaml(yaml, PROJECT_YAML), PROJECT_YAML)
    theirs = {} if toml is None else _checked(parse_toml(toml, PROJECT_TOML), PROJECT_TOML)
    differing = [_dotted(place) for place in ours if place in theirs and theirs[place] != ours[place]]
    warnings = (f"{key} differs in {PROJECT_TOML} and {PROJECT_YAML}; {PROJECT_YAML} wins." for key in differing)
    return {**theirs, **ours}, tuple(warnings)


def _environment_layer(env: Mapping[str, str]) -> Leaves:
    """CAPSULE_A__B sets a.b. An empty variable counts as unset, as nearly everywhere."""
    leaves: Leaves = {}
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name not in NO_SETTINGS and env[name]:
            place = tuple(name.removeprefix(ENV_PREFIX).lower().split("__"))
            leaves.update(_at(place, env[name], f"environment variable {name}", as_text=True))
    return leaves


def _flag_layer(flags: Mapping[str, object]) -> Leaves:
    """Flags by dotted key; None is a flag that was not given."""
    given = {key: value for key, value in flags.items() if value is not None}
    leaves: Leaves = {}
    for key, value in given.items():
        leaves.update(_at(tuple(key.split(".")), value, "command line", as_text=isinstance(value, str)))
    return leaves


# ---- from a layer to checked leaves


def _checked(data: object, source: str) -> Leaves:
    return dict(_walk(data, Settings, (), source))


def _at(place: Place, value: object, source: str, *, as_text: bool) -> Leaves:
    """One value at its place. A text is taken as it stands where text is wanted, else read as YAML."""
    kind: Any = Settings
    for depth, name in enumerate(place):
        kind = _below(kind, name, place[:depth], source)
    if as_text and not _fits(value, kind):
        value = parse_scalar(str(value))
    return dict(_walk(value, kind, place, source))


def _walk(value: object, kind: Any, place: Place, source: str) -> Iterator[tuple[Place, object]]:
    if not _is_table(kind):
        yield place, _converted(value, kind, place, source)
        return
    if value is not None and not isinstance(value, dict):
        raise SettingsError(
            f"{source}: `{_dotted(place) or 'the file'}` is {_shown(value)}, and must be a table of keys.",
            f"Keys that may stand there: {', '.join(_names(kind)) or 'any name'}.",
        )
    for name, inner in (value or {}).items():
        yield from _walk(inner, _below(kind, name, place, source), (*place, str(name)), source)


def _is_table(kind: Any) -> bool:
    return get_origin(kind) is dict or _is_section(kind)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _names(kind: Any) -> tuple[str, ...]:
    return kind.__struct_fields__ if _is_section(kind) else ()


def _below(kind: Any, name: object, place: Place, source: str) -> Any:
    """The type of what stands under this name, or an error that knows better."""
    if get_origin(kind) is dict and isinstance(name, str):
        return get_args(kind)[1]
    found = {field.name: field.type for field in msgspec.structs.fields(kind)} if _is_section(kind) else {}
    if name in found:
        return found[str(name)]
    raise SettingsError(f"{source}: there is no setting `{_dotted((*place, str(name)))}`.", _advice(str(name), place))


def _advice(name: str, place: Place) -> str:
    """Where an unknown key was meant to be: the same key elsewhere, else the most similar, else all there are."""
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
    """The place of every key there is; `<name>` stands for any name."""
    if place:
        yield place
    if get_origin(kind) is dict and _is_section(get_args(kind)[1]):
        yield from _table(get_args(kind)[1], (*place, "<name>"))
    for field in msgspec.structs.fields(kind) if _is_section(kind) else ():
        yield from _table(field.type, (*place, field.name))


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _converted(value: object, kind: Any, place: Place, source: str) -> object:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        choices = [choice for choice in _choices(kind) if isinstance(value, str)]
        near = nearest(str(value), choices)
        raise SettingsError(
            f"{source}: `{_dotted(place)}` is {_shown(value)}, and must be {_wanted(kind)}.",
            f"Did you mean `{near[0]}`?" if near else "Mend the value; `capsule config` shows what is in force.",
        ) from None


_PLAIN_WORDS = {str: "text", bool: "true or false", Texts: "a list of texts", types.NoneType: "left out"}


def _wanted(kind: Any) -> str:
    """What a value may be, for people."""
    if get_origin(kind) is Annotated:
        return next(str(meta.description) for meta in get_args(kind) if isinstance(meta, Meta))
    if get_origin(kind) is Literal:
        return ("one of " if len(get_args(kind)) > 1 else "") + ", ".join(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_wanted(option) for option in get_args(kind))
    return _PLAIN_WORDS[kind]


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _shown(value: object) -> str:
    words = "empty" if value is None else repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


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
