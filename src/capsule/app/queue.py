"""Run many items: the queue of a project, items that are named, or everything that an epic holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from capsule.adapters import Order
from capsule.app.elsewhere import refuse_if_held_elsewhere
from capsule.app.endings import end_mission, refuse_to_start_over
from capsule.app.items import lock_item, move
from capsule.app.missions import known_mission, mission_state, states_of
from capsule.app.ordering import queued
from capsule.app.overlap import overlaps
from capsule.app.planning import (
    check_agents,
    exclude_our_files,
    plan_mission,
    refuse_dirty,
)
from capsule.app.queue_plan import (
    CampaignPlan,
    cap_of,
    jobs_of,
    refuse_container,
    refuse_what_has_to_wait,
    refuse_whole_queue,
    under_way_in,
)
from capsule.app.requests import Followed, follow_all, in_review, words_of
from capsule.app.running import PLAIN, RunContext, open_run
from capsule.core.errors import Interrupted, Refused
from capsule.core.event import CAMPAIGN, RUN
from capsule.core.item import Item, Status
from capsule.core.ledger import unblocked
from capsule.core.request import look_again_after
from capsule.core.schedule import QueuePosition
from capsule.core.state import MissionState
from capsule.core.workflow import Workflow
from capsule.engine.campaign import Campaign
from capsule.engine.dispatch import JobSource, RunPlan, RunReport, work_through
from capsule.rules import choose_workflow, guardrails_of, words_at
from capsule.services import Services
from capsule.system.clock import SystemClock
from capsule.workspaces.disk_space import disk_shortage
from capsule.workspaces.upgrade import put_away_old_work

_MOST_NAMED = 5
_FOLLOW_IDLE = 5.0
"""Seconds between two looks at the requests of a run, if it has nothing else to do."""
_LONGEST_LOOK = 30.0
"""In seconds; it goes on where it stopped."""
_MOST_COMPARED = 32
"""How many candidates are compared with the missions under way."""


def run_queue(run: RunContext, report: RunReport, *, triage: bool = False) -> int:
    """Run the whole queue or the named items; return the exit code.

    `triage` has every new item assessed, and takes none further. The caller passes the report in, so that it is
    complete even after an error.
    """
    request, named = run.request, run.request.items or None
    refuse_whole_queue(request)
    for item_id in request.items:
        _make_ready(run, run.project.tracker.item(item_id))
    name = "triage" if triage else f"run-{request.items[0]}" if named else "queue"
    statuses = (Status.NEW,) if triage else None
    cap, typed = cap_of(run.project, request), request.cap is not None
    jobs = jobs_of(run.project)
    plan = RunPlan(f"{RUN}{name}", cap, typed, named, statuses, to_the_end=bool(named), jobs=jobs)
    tells_order = run.form == PLAIN and not triage
    _work_through(run, report, lambda services: (plan, _ProjectJobs(run, services, tells_order=tells_order)))
    return max([report.exit_code, *report.halts]) if named else report.exit_code


def _work_through(run: RunContext, report: RunReport, set_up: Callable[[Services], tuple[RunPlan, JobSource]]) -> None:
    """Open the services, set up the run in it, and work through its items."""
    project, tracker = run.project, run.project.tracker
    tracker.items()  # warnings exist once it was read
    room = disk_shortage(project.git, project.env, jobs_of(project))
    notes = (*project.loaded.warnings, *tracker.warnings, *([room] if room else ()))
    with open_run(run, words_at(project, ""), notes) as services:
        services.state_store.finish()
        if where := services.state_store.refresh():
            run.tell(f"note: starts from {where}.")
        for kept in put_away_old_work(project.git):
            run.tell(f"note: what an earlier version's agent left in your checkout is kept as {kept}")
        work_through(*set_up(services), services, report)


def _order_in_words(places: Sequence[QueuePosition], only: Collection[str] | None) -> Iterator[str]:
    """List the items that a run will do, in order, and those that it cannot."""
    wanted = [place for place in places if only is None or place.item.id in only]
    for label, kind in (("order:", True), ("not now:", False)):
        named = [f"{place.item.id} ({place.why})" for place in wanted if place.actionable is kind]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        if named:
            yield f"{label:<9}{', '.join(named[:_MOST_NAMED])}{more}"


def _make_ready(run: RunContext, item: Item) -> None:
    """Make a named item ready, or refuse it."""
    refuse_container(item)
    if len(run.request.items) == 1 and not run.request.take_over:  # of several, the others are worked on
        refuse_if_held_elsewhere(run.project, item.id)
    if run.request.fresh:
        _start_anew(run, item)
    elif run.request.rebase:
        _rebuild(run, item)
    refuse_what_has_to_wait(run.project, item.id)


def _rebuild(run: RunContext, item: Item) -> None:
    """Unblock an item of a backlog for a rebuild: `--rebase` answers what it was blocked for."""
    state = known_mission(run.project, item.id)
    if state.workflow.publishes_steps:
        hint = f"Go on: capsule run {item.id}"
        raise Refused(f"{item.id} follows {state.into} automatically: there is nothing to rebase.", hint)
    if item.blocked:
        with lock_item(run.project, item.id) as held:
            values = unblocked(item, guardrails_of(run.project.settings))
            _tell_all(run, move(held, "UNBLOCK", "To be rebuilt on the new main", values, no_commit=False).warnings)


def _start_anew(run: RunContext, item: Item) -> None:
    """Start a backlog item over at its first phase; salvage its worktree."""
    project = run.project
    state = mission_state(project, item.id)
    gone = state.finished or not state.workflow.publishes_steps  # its merge may have been reverted
    if not (state.under_way or (state.started and item.phase and gone)):
        return
    if state.workflow.publishes_steps:
        hint = f"Move it back to the phase to redo: capsule advance {item.id} --to {state.workflow.entry()}"
        raise Refused(f"The work for {item.id} is committed already.", hint)
    words = words_at(project, project.git.resolve("HEAD"))
    entry = choose_workflow(project, item, words, run.request.workflow).entry()
    if state.under_way:
        refuse_to_start_over(project, state)
        _tell_all(run, end_mission(project, item.id, how="started over", branch=True).warnings)
    with lock_item(project, item.id) as held:
        values = {**unblocked(item, guardrails_of(project.settings)), "phase": entry}
        _tell_all(run, move(held, "ADVANCE", "Starts over", values, no_commit=False).warnings)


def _tell_all(run: RunContext, lines: Sequence[str]) -> None:
    for line in lines:
        run.tell(line)


# ---- the jobs of a run


class _ProjectJobs:
    """The queue of a project, and the orders for its missions."""

    def __init__(
        self,
        run: RunContext,
        services: Services,
        campaign: Campaign | None = None,
        start: str = "",
        *,
        tells_order: bool = False,
    ) -> None:
        """Read the queue. A `campaign` resumes halted missions, as `run TASK` does; new ones start from the ref
        `start`.

        `tells_order`: first say which items will be taken, and which cannot be.
        """
        self._tells_order = tells_order
        self.guardrails = guardrails_of(run.project.settings)
        self._run, self._services, self._campaign, self._start = run, services, campaign, start
        self._project, self._tracker, self._request = run.project, run.project.tracker, run.request
        self._states = states_of(run.project, [item.id for item in run.project.tracker.everything()])
        self._told = set(run.project.loaded.warnings)  # when the run was opened
        self._taken: set[str] = set()
        self._followed: float | None = None
        self._unanswered = 0
        """How many looks in a row got no answer."""
        self._followed_last = ""

    def places(self, left_alone: Mapping[str, str]) -> Sequence[QueuePosition]:
        items = self._tracker.everything()
        states = self._states
        follows = self._services.requests is not None
        if follows or not self._tracker.traits.authoritative:  # as this run found them; those it took up, as they are
            states = states | states_of(self._project, [item.id for item in items if item.id in self._taken])
        left_alone = {**self._elsewhere(), **left_alone}
        resumed = {*(under_way_in(states) if self._campaign else self._request.items), *self._left_behind()}
        first = self._request.triage_first or None
        return queued(self._project, states, items, left_alone, resumed=resumed, triage_first=first)

    def _elsewhere(self) -> Mapping[str, str]:
        """Return the items that other clones work on, with the reason to leave them alone."""
        taken_over = self._request.items if self._request.take_over else ()
        now, claims = SystemClock().now(), self._services.claims.elsewhere()
        return {item: claim.in_words(now) for item, claim in claims.items() if item not in taken_over}

    def _left_behind(self) -> Collection[str]:
        """Name the items that other clones have left in the middle of the work."""
        return self._services.claims.left_behind()

    def in_the_way(self, places: Sequence[QueuePosition], under_way: Collection[str]) -> Collection[str]:
        fit = [place.item for place in places if place.actionable][:_MOST_COMPARED]
        known = [place.item for place in places if place.item.id in under_way]
        return overlaps(self._project, [*fit, *known], under_way)

    def workflow(self, item: Item) -> Workflow:
        base = self._project.git.resolve("HEAD")
        return choose_workflow(self._project, item, words_at(self._project, base), self._request.workflow)

    def answered(self, item: str) -> None:
        self._states |= states_of(self._project, [item])

    def follow_requests(self, *, idle: bool) -> Collection[str]:
        """Follow at the start, at the end, and in between if some time has passed."""
        now = self._services.clock.seconds()
        pause = _FOLLOW_IDLE if idle and not self._unanswered else look_again_after(self._unanswered)
        wanted = self._services.by_request or any(state.in_review for state in self._states.values())
        if not wanted or (self._followed is not None and now - self._followed < pause):
            return ()
        self._followed = now
        found = [*self._follow_in_turn(now)]
        for one in found:
            if one.news or one.fault:
                _tell_all(self._run, (f"note: {words_of(one)}", *one.warnings))
        faults = [one.fault for one in found if one.fault]
        self._unanswered = self._unanswered + 1 if faults else 0
        _tell_all(self._run, [f"note: {hint}" for hint in dict.fromkeys(fault.hint for fault in faults) if hint])
        return [one.state.mission for one in found if one.news]

    def _follow_in_turn(self, since: float) -> Iterator[Followed]:
        """Follow as many as there is time for, beginning after the one that was followed last."""
        waiting = in_review(self._project)
        first = waiting.index(self._followed_last) + 1 if self._followed_last in waiting else 0
        for found in follow_all(self._services, [*waiting[first:], *waiting[:first]]):
            self._followed_last = found.state.mission
            yield found
            if self._services.clock.seconds() - since > _LONGEST_LOOK:
                return

    def order(self, item: Item) -> tuple[Order, Services]:
        known = self._states.get(item.id)
        if item.phase and not (known and known.under_way) and item.id not in self._request.items:
            self._services.claims.refuse_if_held(item.id)  # another clone may have begun it since the last look
        plan = plan_mission(self._project, item.id, self._request, start=self._start, offline_ok=bool(self._taken))
        if plan.order.workflow.publishes_steps and not self._taken:  # only at first: afterwards people may edit
            refuse_dirty(self._project, self._request)
        if plan.merged_already:  # a new mission would repeat it all
            hint = "Close it by hand, or run it again once the tracker lets it be closed."
            raise Refused(f"{item.id} is merged, and its tracker did not let it be closed.", hint)
        for note in plan.notes:
            if note not in self._told:
                self._told.add(note)
                self._run.tell(f"note: {note}")
        services = replace(self._services, words=plan.words)
        check_agents(plan, services)
        exclude_our_files(plan)
        if self._tells_order and not self._taken:  # nothing can be refused any more
            only = self._campaign.wanted() if self._campaign else self._request.items or None
            _tell_all(self._run, [*_order_in_words(self.places({}), only)])
        earlier = self._states.pop(item.id, None)
        going_on = earlier is not None and earlier.under_way
        at = "" if item.id in self._taken else _interrupted_at(item, earlier if going_on else None)
        order = replace(plan.order, patient=bool(self._taken))
        self._taken.add(item.id)
        if at and self._run.form == PLAIN:
            self._run.tell(f"Resuming {item.id} at {at}")
        if self._campaign and not going_on:
            return replace(order, earlier=self._campaign.earlier(item)), services
        return order, services


def _interrupted_at(item: Item, earlier: MissionState | None) -> str:
    """Return the phase where an interrupted item continues, by journal or tracker; '' for any other item."""
    if earlier:
        return "" if earlier.halt else item.phase or earlier.to_do[0]
    return item.phase if item.status is Status.IN_PROGRESS else ""


# ---- campaigns


def run_campaign(plan: CampaignPlan, run: RunContext, report: RunReport) -> int:
    """Run all items of a container, dependencies first; return the exit code."""
    root, stream = plan.root.id, f"{CAMPAIGN}{plan.root.id}"

    def set_up(services: Services) -> tuple[RunPlan, JobSource]:
        campaign = Campaign(root, services, stream)
        typed = run.request.cap is not None
        whole = RunPlan(
            stream,
            plan.cap,
            typed,
            to_the_end=True,
            group=campaign,
            stop_on_failure=plan.stop_on_failure,
            jobs=jobs_of(run.project),
        )
        return whole, _ProjectJobs(run, services, campaign, f"refs/heads/{plan.into}", tells_order=run.form == PLAIN)

    try:
        _work_through(run, report, set_up)
    except Interrupted as stop:
        stop.hint = f"Go on with `capsule run {root}`."
        raise
    return report.exit_code
