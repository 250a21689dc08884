"""An agent at work: started from a named state, and started again while its provider turns it away.

That is not a verdict and costs no retry: rate limits, overload and lost connections pass. What does not pass by itself
(no key, no credit, no program) stops the run, with the cause named and the item where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from capsule.adapters import Agent
from capsule.core.briefing import Briefing, SandboxPaths, Transcript
from capsule.core.budget import Allowance, duration, least
from capsule.core.errors import AgentUnavailable, Interrupted, ProviderLimit
from capsule.core.event import Salvaged, Spent, Waiting
from capsule.core.evidence import Checkpoint
from capsule.core.failure import Failure, Kind, Reaction, pause
from capsule.core.stamps import clock_time
from capsule.core.text import sentence
from capsule.engine.brief import brief
from capsule.engine.funds import funds, require_funds
from capsule.engine.job import Job, standing

_UNLIMITED = Allowance()
_LEAST_USD = 0.0001
"""Less than this no CLI can be told."""


@dataclass(frozen=True)
class AgentRun:
    """What an agent was told and what it answered; `before` is the tree it started from."""

    briefing: Briefing
    transcript: Transcript
    before: str


def run_with_backoff(job: Job, agent: Agent, model: str) -> AgentRun:
    """Told and heard out, as often as it takes until there is something to judge."""
    tries, waited = 0, 0.0
    while True:
        agent_run = _start(job, agent, model)
        transcript = agent_run.transcript
        if _is_to_be_judged(transcript) and not _stopped_by_its_budget(agent_run):
            return agent_run
        _write_down_what_it_used(job, transcript)
        _require_funds_now(job)
        if _is_to_be_judged(transcript):
            return agent_run
        passing = _passing(job, transcript)
        waited += transcript.seconds  # a try that came to nothing is time lost as well
        waited += _wait(job, passing, pause(tries, passing.resets_in, job.services.clock.chance()), waited)
        tries += 1


def _is_to_be_judged(transcript: Transcript) -> bool:
    return transcript.why != "stopped" and (transcript.failure is None or transcript.failure.reaction is Reaction.JUDGE)


def _stopped_by_its_budget(agent_run: AgentRun) -> bool:
    """We told it what it may cost, and it held itself to that: no fault of its own, and nothing to judge."""
    most, usage, failure = agent_run.briefing.most_usd, agent_run.transcript.usage, agent_run.transcript.failure
    cut_short = failure is not None and failure.kind is Kind.CUT_SHORT
    return cut_short and most is not None and usage is not None and (usage.usd or 0.0) >= most


def _require_funds_now(job: Job) -> None:
    require_funds(standing(job.services, job.mission), job.phase.name, job.services)


def _start(job: Job, agent: Agent, model: str) -> AgentRun:
    before = start_from_checkpoint(job)
    write_down = job.services.scribe(job.place, before)
    briefing = _within_its_means(job, brief(job, model))
    briefing = replace(briefing, sandbox_paths=_with_result(job.place.open_sandbox(), briefing.result_path))
    job.services.observer.activity(job.mission, f"{agent.name} is at work on {job.phase.name}")
    transcript = agent.run(briefing)
    job.place.guard.restore()  # what was breached is told when the phase is over
    job.place.import_commits()
    write_down(briefing, transcript)
    return AgentRun(briefing, transcript, before)


def _within_its_means(job: Job, briefing: Briefing) -> Briefing:
    rest = funds(job.state, job.phase.name, job.services)
    if rest == _UNLIMITED:
        return briefing
    most = None if rest.usd is None else max(rest.usd, _LEAST_USD)
    return replace(briefing, most_usd=most, timeout=least(briefing.timeout or None, rest.seconds) or 0.0)


def _with_result(sandbox_paths: SandboxPaths, result_path: str) -> SandboxPaths:
    """Where it answers by file, it must be able to write one."""
    return (
        replace(sandbox_paths, writable=(*sandbox_paths.writable, str(Path(result_path).parent)))
        if result_path
        else sandbox_paths
    )


def start_from_checkpoint(job: Job) -> str:
    """Make the workspace equal to the last recorded state; the tree it then holds."""
    checkpoint = job.state.checkpoint or first_checkpoint(job)
    salvage = job.place.restore(checkpoint)
    if salvage:
        why = f"left behind by an interrupted {job.phase.name}"
        job.note(Salvaged(at=job.services.clock.now(), ref=salvage, why=why))
    return job.place.delivered(checkpoint)


def first_checkpoint(job: Job) -> Checkpoint:
    """A workflow may begin with an agent: then nobody has made the workspace yet."""
    job.place.prepare(job.state.base)
    return job.place.base_checkpoint(job.state.base)


def _write_down_what_it_used(job: Job, transcript: Transcript) -> None:
    if transcript.usage:
        job.note(Spent(at=job.services.clock.now(), key=job.step.key, phase=job.phase.name, usage=transcript.usage))


def _passing(job: Job, transcript: Transcript) -> Failure:
    """What passes by itself; anything else that is not to be judged ends the run."""
    failure = transcript.failure
    if transcript.why == "stopped" or failure is None:
        raise _interrupted(job, f"Stopped during {job.phase.name}; nothing is lost.")
    if failure.reaction is Reaction.STOP:
        raise AgentUnavailable(failure.reason, failure.hint)
    return failure


def _wait(job: Job, failure: Failure, seconds: float, waited: float) -> float:
    if waited + seconds > job.services.limits.wait_seconds:
        at = clock_time(job.services.clock.now(), seconds)
        so_far = f", and it has waited {duration(waited)} already" if waited else ""
        raise ProviderLimit(
            f"{sentence(failure.reason)} The next try would be at {at}, in {duration(seconds)}{so_far}.",
            f"Run it again then: it goes on at {job.phase.name}. execution.max_wait_minutes says how long to wait.",
        )
    job.note(Waiting(at=job.services.clock.now(), key=job.step.key, failure=failure, seconds=round(seconds, 1)))
    if not job.services.clock.wait(seconds):
        raise _interrupted(job, f"Stopped while {job.phase.name} was waiting for its provider; nothing is lost.")
    return seconds


def _interrupted(job: Job, message: str) -> Interrupted:
    return Interrupted(message, f"Go on with `capsule run {job.state.parent or job.mission}`.")
