"""Read prompts, workflows and policy from the commit that a mission starts from.

Prompts, workflows, settings and the test command are read from the commit a mission starts from, never from an agent's
worktree, so that no agent can change the rules it is judged by.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from capsule.catalog import Catalog, listing
from capsule.core.decide import Guardrails
from capsule.core.detection import TreeFiles, detect, globs_for
from capsule.core.errors import SettingsError
from capsule.core.event import Policy
from capsule.core.frozen import reach
from capsule.core.item import Item
from capsule.core.workflow import Phase, Role, Workflow
from capsule.project import Project, tracker_name
from capsule.settings import PROJECT_YAML, PUBLISH, Settings, load_settings
from capsule.system.files import NotRegular, TooLarge, read_regular

_LARGEST_FILE = 4 * 1024 * 1024


def words_at(project: Project, base: str) -> Catalog:
    """Return prompts, templates and workflows as the base has them; what no commit knows yet is read from disk."""

    def paths() -> set[str]:
        held = project.git.list_tree(base, recursive=True) if base else []
        return {*listing(project.root), *(entry.path.decode(errors="replace") for entry in held)}

    return Catalog(_base_reader(project, base), paths)


def _base_reader(project: Project, base: str) -> Callable[[str], bytes | None]:
    """Return a reader of files as the base has them, never an agent's worktree; from disk where the base has none."""
    tracked = {entry.path for entry in project.git.list_tree(base, recursive=True)} if base else set()

    def read(path: str) -> bytes | None:
        held = project.git.read_file(base, path) if path.encode() in tracked else None
        return held if held is not None else _from_disk(project.root / path)

    return read


def _from_disk(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_FILE)
    except (NotRegular, TooLarge) as fault:
        raise SettingsError(f"{path} cannot be read: {fault}", "Replace it by an ordinary file.") from None
    except OSError:
        return None


def policy_at(project: Project, base: str) -> tuple[Policy, tuple[str, ...]]:
    """Return how missions that start from this base are judged, and a warning where the disk says otherwise."""
    read = _base_reader(project, base)
    judging = load_settings(project.root, env=project.env, flags=project.flags, read_project=read).settings
    differs = (judging.evidence, judging.verify) != (project.settings.evidence, project.settings.verify)
    note = f"{PROJECT_YAML} on disk differs from the base in what is checked; the base's version is used. Commit it."
    test, globs, in_sources = _tests(project, base, judging)
    policy = Policy(
        verify=judging.verify,
        test=test,
        test_globs=globs,
        tests_in_sources=in_sources,
        debris=judging.evidence.debris,
        allow=judging.evidence.allow,
        test_timeout_minutes=judging.evidence.test_timeout_minutes,
        base=judging.evidence.base,
        mutants=judging.evidence.mutants,
        mutant_minutes=judging.evidence.mutant_minutes,
        report=judging.evidence.report,
        guardrails=guardrails_of(judging),
        hooks=judging.git.hooks,
        file_discovered=judging.campaign.file_discovered,
        already_done=judging.evidence.already_done,
        exam=judging.evidence.exam,
        detect=judging.evidence.test == "auto" and not test,
    )
    return policy, (note,) if differs else ()


def guardrails_of(settings: Settings) -> Guardrails:
    limits = settings.guardrails
    return Guardrails(limits.max_size, limits.max_complexity, limits.max_risk)


def _tests(project: Project, base: str, judging: Settings) -> tuple[str, tuple[str, ...], bool]:
    """Return the test command, the globs of test files, and whether tests live inside source files."""
    tree = _tree_at(project, base)
    chosen = judging.evidence.test
    if chosen == "auto":
        test, globs, in_sources = detect(tree)
    else:
        test = "" if chosen == "none" else chosen
        globs, in_sources = globs_for(test, tree)
    own = judging.evidence.test_globs
    if own != "auto":  # where all of them only take paths out (`!app.py`), the usual ones stay
        globs = (*globs, *own) if all(glob.startswith("!") for glob in own) else tuple(own)
    return test, globs, in_sources


def _tree_at(project: Project, base: str) -> TreeFiles:
    files = frozenset(entry.path.decode(errors="replace") for entry in project.git.list_tree(base, recursive=True))

    def read(path: str) -> str:
        return (project.git.read_file(base, path) or b"").decode(errors="replace") if path in files else ""

    return TreeFiles(files, read)


def behind_tests(project: Project, base: str, command: str) -> str:
    """Return a test command, and all that it reaches in this commit."""
    return reach(command, _tree_at(project, base)).text


KINDS = {
    **dict.fromkeys(("refactor", "refactoring"), "refactor"),
    **dict.fromkeys(("doc", "docs", "documentation"), "docs"),
    **dict.fromkeys(("test", "tests", "testing"), "tests"),
    **dict.fromkeys(("chore", "chores", "maintenance", "dependencies"), "chore"),
    "exam": "exam",
}
"""Tags and types of items that have a workflow of their own: nothing to make red in such work, or an exam to pass."""


def choose_workflow(project: Project, item: Item, words: Catalog, name: str | None = None) -> Workflow:
    """Choose by flag, by tag, by type, by default: `tdd` for beads, `change` for items of a backlog.

    Without settings, a tag or type of an item outside of a backlog chooses too, where it names a kind of work.
    """
    choice = project.settings.workflow
    by_tag = next((choice.by_tag[tag] for tag in item.tags if tag in choice.by_tag), "")
    usual = "change" if tracker_name(project) == "backlog" else "tdd"
    default = usual if choice.default == "auto" else choice.default
    if default == "tdd" and choice.default == "auto":
        default = next((KINDS[word] for word in (*item.tags, item.type) if word in KINDS), usual)
    workflow = words.workflow(name or by_tag or choice.by_type.get(item.type, "") or default)
    return _as_set(project.settings, workflow, in_steps=usual == "change" and project.settings.merge.to != "request")


def _as_set(settings: Settings, workflow: Workflow, *, in_steps: bool) -> Workflow:
    """Apply the settings to a workflow: retries, how it publishes, who builds.

    Steps are committed with the state of their item, so only a tracker that is kept on main can have them.
    """
    retries, publish = settings.execution.max_retries, settings.workspace.publish if in_steps else "merge"
    if retries is not None:
        workflow = replace(workflow, retries=retries)
    if publish != "auto":
        workflow = replace(workflow, workspace=PUBLISH[publish])
    if settings.build == "tdd":
        child = {"prompt": "", "skill": "", "checks": (), "workflow": "tdd"}
        phases = (replace(p, **child) if p.name == "build" and p.prompt else p for p in workflow.phases)
        workflow = replace(workflow, phases=tuple(phases))
    if not workflow.publishes_steps and not any(phase.do == "publish" for phase in workflow.phases):
        workflow = replace(workflow, phases=_merged_before_the_end(workflow.phases))
    return workflow


def _merged_before_the_end(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """Add a merge before the closing phases, to a workflow that publishes nothing by itself."""
    last = max((n for n, phase in enumerate(phases) if not phase.closing), default=-1) + 1
    merge = Phase(name="merge", role=Role.ACTION, do="publish", stage="Merge")
    return (*phases[:last], merge, *phases[last:])
