"""What the engine needs from the outside, as small protocols. The folders named in the docstrings implement them.

The engine sees nothing else: no path of git's, no process, no clock. `wiring` chooses the implementations, and each of
them passes the same suite in tests/contracts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field

from capsule.core.assignment import Assign, Assignment
from capsule.core.claim import Claim, Standing
from capsule.core.errors import CapsuleError, Refused
from capsule.core.event import Event, Policy, StepBegun, StepEnded, is_mission
from capsule.core.evidence import Change, Checkpoint
from capsule.core.item import Item, ItemValues, Lineage, NewItem, Status
from capsule.core.request import RequestDraft, Seen
from capsule.core.signal import FollowUp
from capsule.core.test_report import TestReport
from capsule.core.tracker_traits import TrackerTraits
from capsule.core.workflow import Workflow

if TYPE_CHECKING:
    from capsule.core.briefing import Briefing, SandboxPaths, Transcript
    from capsule.core.hazards import AddedFile
    from capsule.core.state import Step


class Tracker(Protocol):
    """A source of work (trackers/), which hides a provider's quirks. `BaseTracker` has defaults."""

    name: str
    traits: TrackerTraits

    @property
    def warnings(self) -> Sequence[str]:
        """Return the warnings of the last reading."""

    def items(self) -> Sequence[Item]:
        """List everything that is not closed, in the tracker's own order."""

    def everything(self) -> Sequence[Item]:
        """List the same, with finished items that still have to be archived."""

    def item(self, item_id: str) -> Item:
        """Return one item, closed ones included; raise UnknownItem."""

    def lineage(self, item: Item) -> Lineage:
        """Return the feature and the epic it belongs to."""

    def claim(self, item_id: str) -> None:
        """Claim the item: work has begun. Safe to repeat."""

    def release(self, item_id: str) -> None:
        """Take the claim back; a closed item stays closed. Safe to repeat."""

    def reopen(self, item_id: str) -> None:
        """Make a blocked item ready; leave others unchanged. Safe to repeat."""

    def close(self, item_id: str, reason: str) -> None:
        """Close the item as done. Safe to repeat."""

    def knows(self, item_id: str) -> bool:
        """Tell whether there is, or ever was, an item with this id."""

    def closed_as(self, item_id: str) -> str:
        """Return why an item was closed without being done; '' if it was not, or the reason is unknown."""

    def done_since(self, at: str) -> Sequence[tuple[str, str]]:
        """List id and title of items done since then, the newest first."""

    def gone(self) -> Sequence[tuple[str, str, str]]:
        """List id, title and the reason of the closing, as `closed_as`, of items that `under` no longer lists."""

    def under(self, item_id: str) -> Sequence[Item]:
        """List all items below it, at any depth, closed ones included: a parent before its children, else in order.

        Without an id: everything there is, read once.
        """

    def add(self, new: NewItem) -> str:
        """Add an item and return its id; return the existing one with the same reference, its `origin`.

        Not for one that is changed by commits (`CommittedTracker`).
        """

    def change(self, item_id: str, values: ItemValues) -> None:
        """Set these fields of an item; refuse fields that its traits do not name (`edits`).

        Not for one that is changed by commits (`CommittedTracker`).
        """

    def comment(self, item_id: str, text: str) -> None:
        """Add a comment for people, if the tracker has comments."""

    def parts(self, item: Item, phase: str) -> Sequence[Item]:
        """List the parts of a phase that runs as child missions; by default the item itself."""

    def own_files(self) -> Sequence[str]:
        """List the tracker's paths in the project: they never count as dirty and never reach main by a mission."""


class CommittedTracker(Tracker, Protocol):
    """An authoritative tracker: its state is in files of the project, which are changed by commits."""

    @property
    def last_id(self) -> int:
        """Return the highest number that was ever given."""

    def rewrite(
        self,
        read: Callable[[str], bytes | None],
        assignments: Sequence[Assignment],
        ids: Sequence[str] = (),
        last_given: int = 0,
    ) -> tuple[Mapping[str, bytes], tuple[str, ...], tuple[str, ...]]:
        """Return the old and new content of each file that changes, ids that were given, and remarks."""

    def parse_file(self, data: bytes) -> tuple[Mapping[str, Item], int]:
        """Return the items that such a file holds, and the last number that was given."""


class Agent(Protocol):
    """An agent (agents/): one headless run of one CLI."""

    name: str

    def check(self) -> None:
        """Raise PrerequisiteMissing, with a hint, if the agent cannot run at all."""

    def describe(self, briefing: Briefing) -> Sequence[str]:
        """Return the command line, as `--dry-run` shows it."""

    def run(self, briefing: Briefing) -> Transcript:
        """Run it to its end. A crash, a time-out or silence is data in the transcript, not an exception."""


class Ran(Struct, frozen=True):
    """The end of a shell command."""

    exit_code: int | None
    why: str
    """exited, timeout, idle, stopped or not-started."""
    seconds: float
    tail: str
    log: Path
    report: TestReport = TestReport()
    """The result of each test, if the test runners reported them."""
    beside: bool = False
    """Other runners of Capsule were at work on this machine meanwhile."""


class TestSite(NamedTuple):
    """A clean folder that holds exactly one tree, and what a command there needs."""

    folder: Path
    sandbox_paths: SandboxPaths | None
    """The paths that a sandbox shows; None without a sandbox."""
    reports: Path
    """An empty folder for the reports of test runners."""


class Shell(Protocol):
    """The project's own commands (tests, gates), supervised like an agent."""

    def run(
        self,
        command: str,
        cwd: Path,
        log: Path,
        *,
        timeout: float | None,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths | None = None,
        reports: Path | None = None,
        junit: Sequence[str] = (),
        alone: bool | None = None,
    ) -> Ran:
        """Run one command line through `sh -c`, output to the log file; end the whole process tree when it ends.

        `sandbox_paths` says what it may touch in a sandbox; without any, the folder it runs in. With a folder for
        `reports`, test runners behind the command are asked to tell how each test ended; `junit` are globs of XML that
        it writes. `alone`: for a test run, whether it waits until no other one is under way on this machine.
        """


class Trees(Protocol):
    """A mission's work in git's objects, by tree or commit, without artefacts.

    In the paths that it returns, bytes that are not UTF-8 are spelled out. By such a name a file is read, too, unless
    two files share it.
    """

    def changes(self, since: str, until: str) -> Sequence[Change]:
        """List the paths that differ between two trees or commits."""

    def files(self, tree: str) -> Sequence[str]:
        """List every path in a tree or commit."""

    def odd_files(self, tree: str) -> Set[str]:
        """Find the paths in a tree that are more than text to be read: programs, links, other repositories."""

    def added_files(self, tree: str) -> Sequence[AddedFile]:
        """List what delivering this tree adds to where it goes, earlier commits of the mission included."""

    def read(self, tree: str, path: str) -> bytes | None:
        """Read a file of a tree or commit; None if there is none of that name."""

    def test_cache_key(self, tree: str) -> str:
        """Reduce a tree to what tests depend on: two trees with the same key are tested once."""

    def apply_human_edits(self, approved: str, left: str, now: str) -> str:
        """Return the tree `approved`, with exactly the paths changed that differ between `left` and `now`."""

    def rebased_tree(self, tree: str, onto: str) -> str:
        """Rebuild a deliverable tree of ours on another commit, as `Place.rebase` rebuilds the work."""


class Guard(Protocol):
    """Protect the repository's settings and hooks from agents without a sandbox."""

    def snapshot(self) -> Sequence[str]:
        """Copy them before work in the place begins; return the breaches of a killed run."""

    def restore(self) -> Sequence[str]:
        """Revert changes since then; return one sentence for each breach. Call it before any git."""

    def release(self) -> None:
        """Drop the copy: until the next one the user may change everything."""


class Place(Protocol):
    """The place for a mission's agents (workspaces/): one per mission."""

    path: Path
    branch: str
    publishes_to: str
    """The branch that each step is committed to; '' if the work is merged at the end."""

    @property
    def trees(self) -> Trees: ...

    @property
    def guard(self) -> Guard: ...

    def prepare(self, base: str) -> Sequence[str]:
        """Make the place, or complete it: it starts from `base` and is set up. Return warnings."""

    def restore(self, checkpoint: Checkpoint) -> str:
        """Make the place equal to the checkpoint; return the ref under which what would be lost is kept, or ''."""

    def follow(self, checkpoint: Checkpoint) -> None:
        """Move the place to the current commit of its steps' branch, with the checkpoint's work."""

    def open_sandbox(self) -> SandboxPaths:
        """Give the place a git directory of its own for an agent or a command; return the paths for a sandbox."""

    def import_commits(self) -> None:
        """Import the commits made there, checked, and remove that git directory."""

    def notices(self) -> Sequence[str]:
        """Return what was dropped or cleaned up since the last call, one line each."""

    def worklog(self) -> str:
        """Read the worklog; '' if there is none, or it is no regular file."""

    def write_worklog(self, text: str) -> None:
        """Replace the worklog atomically; a link in its place is replaced too, never followed."""

    def write(self, path: str, content: bytes) -> None:
        """Replace one file of the work, atomically; a path that leads elsewhere is refused."""

    def head(self) -> str:
        """Return the commit that the mission's branch is at."""

    def tree(self) -> str:
        """Return the tree that would be delivered now: everything but the pipeline's artefacts."""

    def touched_outside_commit(self) -> Sequence[str]:
        """List deliverable paths whose changes are in no commit of the branch."""

    def checkpoint(self, label: str) -> Checkpoint:
        """Name the current state, worklog and untracked files included. The branch does not move."""

    def base_checkpoint(self, base: str) -> Checkpoint:
        """Return the base commit as a checkpoint."""

    def beginning(self, base: str) -> Checkpoint:
        """Return what a mission begins with: its base, and its item's documents if those are kept elsewhere."""

    def delivered(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint's tree; rebuild it if git has removed it."""

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:
        """Commit the step's work to the mission's own branch and return None; or, where it goes into the same commit as
        the tracker's state, return the checkpoint that holds it. Safe to repeat."""

    def checkpoint_at(self, commit: str) -> Checkpoint:
        """Bring the place to a step's commit; return the checkpoint that the next step starts from."""

    def salvage_and_reset(self, why: str) -> str:
        """Undo a failed step if steps are published one by one: return its salvage ref, or ''."""

    def rebase(self, onto: str, message: str = "") -> tuple[Checkpoint, Sequence[str]]:
        """Rebuild the work on another commit; the conflicting paths hold markers. Commit it if there is a message and
        no conflict."""

    def salvage(self, why: str) -> str:
        """Keep commits and uncommitted files under a ref; return it, or '' if there is nothing new."""

    def remove(self, *, branch: bool) -> None:
        """Remove the place, and the branch if asked. Salvage first. Safe to repeat."""

    # The gate, for checking claims

    def gate(self, tree: str, edits: Mapping[str, bytes] | None = None) -> TestSite:
        """Make a clean folder that holds exactly this tree, set up; `edits` replaces the content of some files."""

    def variables(self, folder: Path) -> Mapping[str, str]:
        """Return the variables by which commands in the place or in the gate find the installed dependencies."""

    def keep_caches(self, tree: str) -> None:
        """Keep what tests of this tree compiled in the gate, for later gates; only if it is the user's own tree."""

    def missing_setup(self, tree: str) -> tuple[str, str]:
        """Name a manifest of the tree that asks for more than is installed, and a command to install it; '' if none."""

    def strays(self, tree: str, folder: Path, test: str, ask: Callable[[str], str]) -> Sequence[tuple[str, str]]:
        """List modules of the project that tests in the gate would load from the user's checkout: (name, path)."""

    def hooks(self, tree: str, message: str) -> tuple[bool, str] | None:
        """Run the user's commit hooks on a tree; return the result and their output; None if not run here."""


Draft = Callable[[str], Mapping[str, bytes]]


class Candidate(Struct, frozen=True):
    """A merge commit for main that is on no branch yet."""

    commit: str
    tree: str
    onto: str
    """The commit of main it was built on, and the only one it may replace."""
    conflicts: tuple[str, ...] = ()


class Published(Struct, frozen=True):
    """The result of moving main: whether it moved, and the files that kept the user's edits."""

    moved: bool
    left_alone: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """About a branch of the user's that was left where it is."""


class BranchStep(Struct, frozen=True):
    """A commit that brought a branch forward."""

    commit: str
    name: str
    """The mission whose merge it is; of any other commit, its short id and subject."""


class Trunk(Protocol):
    """The branch that work is merged into (workspaces/trunk.py): the only code that moves it."""

    branch: str
    """What it is called for people."""
    at_remote: str
    """The remote that it is a branch of; '' for a branch of this repository."""

    def refresh(self) -> None:
        """Find out where it is now; raise RemoteFault if its remote does not say. One that is here is known."""

    def tip(self) -> str:
        """Return the commit it is at, as far as is known here."""

    def holds(self, commit: str) -> bool:
        """Tell whether a commit is in its history."""

    def tree(self, commit: str = "") -> str:
        """Return the tree of a commit, or the one that the branch has now."""

    def propose(
        self, tip: str, base: str, message: str, draft: Draft | None = None, subject: str = "", *, onto: str = ""
    ) -> Candidate:
        """Build the merge result, artefacts left out, without touching anyone's checkout. Same input, same commit.

        It is built on the branch, or on a possible future commit of it (`onto`). The commit at the tip gets this
        subject, if one is given, and its own message becomes the body. `draft` adds files: it maps the commit it is
        built on to their content.
        """

    def gather(self, last: str, onto: str, message: str) -> Candidate:
        """Build one merge commit on `onto` that brings a chain of merges, of which this is the last."""

    def steps(self, base: str, tip: str) -> Sequence[BranchStep]:
        """List how the branch went from one commit to another, the oldest first; a batch as the merges in it."""

    def publish(self, candidate: Candidate, works: Mapping[str, str] | None = None) -> Published:
        """Move by compare-and-swap, then update checkouts if that loses nothing. Safe to repeat.

        `works` has the merge of each mission that comes along. Raise RemoteFault if a remote refuses.
        """

    def about_to_move(self) -> AbstractContextManager[None]:
        """Wait until no other mission keeps it still; within the block none does."""

    def kept_still(self) -> AbstractContextManager[None]:
        """Let no other mission move it within the block; people still may."""


class Forge(Protocol):
    """Where requests to merge are opened and reviewed (forges/). Raises RemoteFault if it does not answer."""

    @property
    def name(self) -> str:
        """Return the name of its program."""

    def check(self) -> None:
        """Refuse to begin without its program."""

    def find(self, branch: str, number: int, ours: Sequence[str]) -> Seen | None:
        """Return the request of a branch as it is now; None if there is none, or nobody can tell.

        It is the one with this number, else one that is open, else one that ended with a commit of ours.
        """

    def open(self, draft: RequestDraft) -> str:
        """Open a request; return its address, or '' if its program does not name it."""


class RequestBranch(Protocol):
    """The branch of a mission's request at the remote (workspaces/request_branch.py). Raises RemoteFault."""

    def name(self, mission: str) -> str:
        """Return what the branch is called at the remote."""

    def base(self, into: str) -> str:
        """Return what the branch that work goes into is called at the remote."""

    def head(self, mission: str) -> str:
        """Return the commit that the branch is at; '' if there is no such branch."""

    def work(self, merge: str) -> str:
        """Return the work that a merge result brings."""

    def on_top(self, mission: str, work: str, base: str, head: str) -> str:
        """Make a commit on top of the branch that holds this work, built on that base; return it."""

    def push(self, mission: str, commit: str, head: str) -> bool:
        """Move the branch from exactly `head` ('': it is new); return False if it is elsewhere by now."""

    def author(self, mission: str, head: str) -> str:
        """Say who made the commit that the branch is at, and how they called it."""

    def parents(self, commit: str) -> Sequence[str]:
        """Return the parents of a commit; none if it is unknown here."""


class Claims:
    """Which clone works on an item. This one claims nothing: all work on the items is done in this clone.

    `workspaces/claims.py` keeps them at the remote that work is merged to.
    """

    shared = False
    """Whether other clones may work on the items, too."""

    def take(self, item: str, holds: Callable[[str], bool], *, take_over: bool = False) -> str:  # noqa: ARG002
        """Claim an item, and renew the claim from now on; return what is to be told about it.

        Raise HeldElsewhere if another clone holds it, MergedElsewhere if the branch `holds` what that one merged.
        """
        return ""

    def refuse_if_held(self, item: str) -> None:
        """Raise HeldElsewhere if another clone holds the item."""

    def check(self, item: str) -> Sequence[str]:  # noqa: ARG002
        """Return new remarks about the claim; raise HeldElsewhere if it is lost, RemoteFault if it has run out."""
        return ()

    def lost(self, item: str) -> CapsuleError | None:  # noqa: ARG002
        """Return why the claim is lost, as far as is known; None if it is not."""
        return None

    def confirm(self, item: str) -> None:
        """Make sure at the remote that a claim of this process still holds; raise HeldElsewhere if it is lost."""

    def about_to_publish(self, items: Iterable[str], commit: str, onto: str) -> None:
        """Note at the remote which commit is about to become main with these items, if they are claimed by this clone.

        Raise HeldElsewhere or MergedElsewhere for the first that is not: then nothing may be pushed.
        """

    def let_go(self, item: str, standing: Standing) -> None:
        """Stop renewing a claim, and keep it for a while, as the work can go on here."""

    def release(self, item: str) -> str:  # noqa: ARG002
        """Give up a claim of this clone; return a warning if the remote does not take note."""
        return ""

    def elsewhere(self, *, look: bool = True) -> Mapping[str, Claim]:  # noqa: ARG002
        """Return the claims of other clones by item; without `look`, those that were seen last."""
        return {}

    def left_behind(self) -> Collection[str]:
        """Name the items that other clones began, and whose claims have run out."""
        return ()

    def look_again(self) -> None:
        """Do not answer the next question from what was seen lately."""

    def close(self) -> None:
        """Renew nothing any more."""


class StateCommit(Struct, frozen=True):
    """One commit of a tracker's state: its assignments, and the step's work."""

    key: str
    """The commit's trailer `Capsule-Step`: it identifies the commit after a crash."""
    message: str
    assignments: Sequence[Assignment]
    branch: str = ""
    """The branch; '' for the one that is checked out."""
    since: str = ""
    """A commit before the step: the trailer is searched for after it."""
    work: Checkpoint | None = None
    """Paths that differ between its head and its tree are part of the commit."""
    judged: str = ""
    """The tree, artefacts left out, that the work was judged as: raise BranchMoved if the commit would hold another."""
    documents: str = ""
    """A tree: if documents are kept apart from the work, those of the item in it are part of the commit."""
    twin: str = ""
    """The original of a duplicate: raise TwinClosed if it was closed itself."""


class StateWritten(Struct, frozen=True):
    """The result of writing a tracker's state."""

    commit: str
    """'' if nothing was committed: nothing differed, or only files were changed."""
    added: tuple[str, ...] = ()
    """Ids given to items that did not exist before, in the order of their assignments."""
    warnings: tuple[str, ...] = ()


class StateStore:
    """Record a mission's state in its tracker. This one records nothing: a child mission's state is kept by its parent.

    `ClaimedState` claims and closes the item; `workspaces/state_store.py` commits each step with the tracker's files.
    """

    waits_for_unblock = False
    """A halted mission continues once a person has unblocked its item in the tracker, not by being run again."""

    def claim(self, item_id: str) -> None:
        """Claim the item."""

    def release(self, item_id: str) -> None:
        """Take the claim back."""

    def close(self, item_id: str, reason: str) -> bool:  # noqa: ARG002
        """Close the item; return whether a tracker was changed."""
        return False

    def current(self, item: Item) -> Item:
        """Return the item as the tracker has it now; raise UnknownItem if it is gone."""
        return item

    def updates(self, assignments: Sequence[Assignment], message: str) -> tuple[tuple[Assignment, ...], str]:  # noqa: ARG002
        """Return the assignments that a step is journaled with, and the message of the commit that will hold them."""
        return tuple(each for each in assignments if isinstance(each, Assign)), ""

    def unfiled(self, found: Mapping[str, FollowUp]) -> Mapping[str, FollowUp]:  # noqa: ARG002
        """Return a mission's follow-ups that are not yet in the tracker, item by item."""
        return {}

    def write(self, entry: StateCommit, *, commit: bool = True) -> StateWritten:  # noqa: ARG002
        """Commit first, then save: the branch moves by compare-and-swap, file and index follow. Safe to repeat."""
        return StateWritten("")

    def finish(self) -> None:
        """Save what a crash left unsaved, before the tracker is read."""

    def refresh(self) -> str:
        """Bring the tracker's files to what a remote has, and say where that is; raise RemoteFault if it does not say.

        Return '' if nothing is at a remote.
        """
        return ""

    def combined(self, work: Checkpoint, tip: str) -> str:  # noqa: ARG002
        """Return the tree of a branch's tip with a step's work; raise Conflicts where both changed the same lines."""
        return work.tree

    def draft(self, assignments: Sequence[Assignment]) -> Draft | None:  # noqa: ARG002
        """Return how a merge changes the tracker's files for these assignments; None if it does not."""
        return None


class ClaimedState(StateStore):
    """Claim an item in its tracker when work begins, and close it at the end."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def claim(self, item_id: str) -> None:
        self._tracker.claim(item_id)

    def release(self, item_id: str) -> None:
        self._tracker.release(item_id)

    def close(self, item_id: str, reason: str) -> bool:
        self._tracker.close(item_id, reason)
        return True

    def unfiled(self, found: Mapping[str, FollowUp]) -> Mapping[str, FollowUp]:
        return found

    def write(self, entry: StateCommit, *, commit: bool = True) -> StateWritten:  # noqa: ARG002
        name = self._tracker.name
        raise Refused(f"The items of this project are not in a backlog: {name} has them.", f"Change them in {name}.")


class JournalReader(Protocol):
    """Read the journal from any process without changing it: all that screens and reports use.

    Inherit it to borrow `missions`.
    """

    def streams(self) -> Sequence[str]:
        """Name every stream: one for each mission and one for each run."""

    def missions(self) -> Sequence[str]:
        """Name the streams of items."""
        return [stream for stream in self.streams() if is_mission(stream)]

    def events(self, stream: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Return the numbered events of a stream in order, from the one that follows number `after`."""

    def is_held(self, stream: str) -> bool:
        """Tell whether a process holds a stream now; far cheaper than finding out which one."""

    def holder(self, stream: str) -> int | None:
        """Return the pid that holds a stream now: 0 if it cannot be named from here, None if it is not held."""

    def suspended(self, stream: str) -> tuple[int, str] | None:  # noqa: ARG002
        """Return the pid that holds a stream, and what lets it go on, if that process is suspended."""
        return None

    def epochs(self) -> Mapping[str, int]:
        """Return how often each stream was claimed: one that is not held, with the same number, has nothing new."""

    def version(self) -> int:
        """Return a number that changes whenever another process has written: the cheapest way to poll."""

    def close(self) -> None:
        """Free what reading has opened. Safe to repeat."""


Beside = tuple[str, Event]
"""An event of a second stream, with the stream."""


class Journal(JournalReader, Protocol):
    """Record what happens (journals/). Only the holder of a stream's claim writes to it."""

    def claim(self, stream: str) -> AbstractContextManager[int]:
        """Hold a stream, and return the number of this claim; raise LockHeld if another process does."""

    def once(
        self,
        step: Step,
        begun: StepBegun,
        perform: Callable[[], StepEnded],
        beside: Beside | None = None,
        ends_beside: Callable[[StepEnded], Beside | None] = lambda _: None,
    ) -> StepEnded:
        """Return the recorded outcome of a step, or: write `begun`, perform, write the outcome.

        `beside` is written in the same transaction as `begun`, what `ends_beside` makes of the outcome in the same
        transaction as that. If `beside` is a `Spawned` that its run does not admit, nothing is written, and Paused or
        NotYet is raised.
        """

    def note(self, stream: str, event: Event, beside: Beside | None = None) -> None:
        """Record an event that is not a step; with one of a second stream, both or neither.

        The claim of the first stream is enough: so missions write to their run's stream and to a merge queue
        while another process holds it.
        """


class Order(Struct, frozen=True):
    """A mission to start or continue."""

    mission: str
    item: Item
    workflow: Workflow
    base: str
    into: str
    policy: Policy
    lineage: Lineage = field(default_factory=Lineage)
    parent: str = ""
    retries: int | None = None
    """How often each review may send back from now on, if a mission continues."""
    rebase: bool = False
    """Rebuild the work on its target branch, and continue from there."""
    take_over: bool = False
    """Take the item over from another clone."""
    patient: bool = False
    """Wait for a remote that cannot be reached before the item can be claimed: others of the same run were done."""
    notes: str = ""
    """The notes of the person who resumed it."""
    earlier: str = ""
    """Earlier work of the same campaign."""


class RunLease(Struct, frozen=True):
    """The run that a mission is part of: its agents are counted in the run's stream, for as long as the run is open."""

    stream: str
    leaves_at: Status | None = None
    """Return the item to the queue when it has another status than this."""
    outlives_queue: bool = False
    """The mission continues if the process of its queue is killed; the next queue finds it."""


class Runners(Protocol):
    """Run missions for a queue: in processes (app/mission_processes.py), or in this one."""

    def start(self, order: Order, lease: RunLease) -> None:
        """Start or continue a mission."""

    def adopt(self, mission: str) -> None:
        """Also wait for a mission of a queue that has ended since."""

    def wait(self, seconds: float | None = None) -> tuple[str, CapsuleError | None] | None:
        """Wait until one has stopped; return its mission, and the error that stopped it.

        Return None if none has after so many seconds.
        """


class Observer(Protocol):
    """Receive every event, and the activity between events (reports/)."""

    def event(self, mission: str, event: Event) -> None: ...

    def activity(self, mission: str, text: str) -> None: ...


class Clock(Protocol):
    """The clock, which the core never reads."""

    def now(self) -> str:
        """RFC 3339, UTC."""

    def seconds(self) -> float:
        """Monotonic."""

    def wait(self, seconds: float) -> bool:
        """Wait; return False if a stop was requested before the time was over."""

    def chance(self) -> float:
        """Return an unpredictable number between 0 and 1."""


class Words(Protocol):
    """Prompts and templates by name (catalog.py): the project's first, then ours."""

    def prompt(self, name: str, workflow: str = "") -> str: ...

    def part(self, name: str) -> str: ...

    def template(self, name: str) -> str: ...

    def workflow(self, name: str) -> Workflow: ...


class Archive(Protocol):
    """A mission's logs: while it is under way, and those kept at the end."""

    def working_folder(self, mission: str) -> Path:
        """Return the folder for logs of what is under way; make it if it is not there."""

    def put(self, mission: str, name: str, text: str) -> Path:
        """Keep a text that is too long for an event in the working folder."""

    def text(self, mission: str, name: str) -> str:
        """Return what `put` kept; '' if it no longer exists."""

    def result_path(self, item: str, phase: str, *, dry: bool = False) -> Path:
        """Return the path for an agent's answer file; remove an earlier answer, unless it is a dry run."""

    def take_result(self, item: str, phase: str) -> bytes | str | None:
        """Remove and return the answer file, or say why it is no regular file of sane size."""

    def store(self, mission: str, logs: Mapping[str, str], step: str = "") -> Path:
        """Archive logs and the outputs of all phases; move an earlier archive aside. Safe to repeat.

        A repeated step writes its own archive again.
        """

    def under_way(self) -> Sequence[str]:
        """Name the missions whose logs are not archived yet."""

    def has_outputs(self, mission: str) -> bool:
        """Tell whether there are outputs to store."""

    def drop_working_folder(self, mission: str) -> None:
        """Remove the working folder, once everything is stored."""
