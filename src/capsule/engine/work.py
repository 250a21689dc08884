"""Do the phases that work in the place: with an agent and its prompt, or with a command that is a gate.

An agent starts from a named state, and starts again while its provider refuses it. That is not a verdict and costs no
retry: rate limits, overload and lost connections pass. All missions that are about to start the same agent wait for a
limit that one of them found: until it ends, or without a known end until that mission tries again. A lasting cause (no
key, no credit, no program) stops the run, is named, and leaves the item where it was. One that was killed because its
supervisor was has no verdict either: its step begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from capsule.adapters import Agent, Ran, TestSite
from capsule.core.briefing import Briefing, SandboxPaths, Transcript
from capsule.core.budget import UNLIMITED, duration, least
from capsule.core.decide import HALTS, REACTIONS
from capsule.core.errors import AgentKilled, AgentUnavailable, CapsuleError, Interrupted, ProviderLimit
from capsule.core.event import LIMITS, Limited, Salvaged, Spent, Waiting
from capsule.core.evidence import ASKED_ALONE, Checkpoint
from capsule.core.failure import Failure, Kind, Reaction, pause
from capsule.core.signal import Signal, Verdict, damage, error_signal, no_result, read_result, read_signal
from capsule.core.stamps import clock_time, seconds_between
from capsule.core.state import agent_for
from capsule.core.test_runs import killed_by
from capsule.core.text import one_line, sentence
from capsule.core.workflow import EXAM
from capsule.engine.brief import answers_by_file, brief, exported, timeout_of
from capsule.engine.budget import allowance_of, require_budget
from capsule.engine.job import Job, Report, load_state, note, passed, sandbox, sent_back
from capsule.engine.verification import TAIL, TRIES, no_result_of

_ENDINGS = {
    "timeout": "Agent timed out after {seconds:.0f} s",
    "idle": "Agent was silent for too long and was ended after {seconds:.0f} s",
}
_STALE = "a result file from before this attempt was removed unread"
_STDERR_SHOWN = 2000
_LINES_SHOWN = 3
_NAMES_SHOWN = 8
_AFTER_SILENCE = 1.0
"""Seconds until a silent agent is started once more."""
_LEAST_USD = 0.0001
"""The smallest limit that any CLI accepts."""


class AgentRun(Struct, frozen=True):
    """The input and the answer of an agent; `before` is the tree it started from."""

    briefing: Briefing
    transcript: Transcript
    before: str


def run_agent(job: Job) -> Report:
    """Run a fresh agent from a named state, and read its claim."""
    name, model = agent_for(job.state, job.phase)
    agent = job.services.agent(name, model)
    stale = answers_by_file(job) and job.services.archive.take_result(job.state.item.id, job.phase.name) is not None
    ran = run_with_backoff(job, agent, model)
    signal = _signal(job, ran.transcript)
    return Report(
        signal,
        ran.before,
        agent=agent.name,
        log=ran.briefing.log,
        usage=ran.transcript.usage,
        failure=_cause_of_death(ran, signal) or ran.transcript.failure,
        warnings=(*([_STALE] if stale else []), *_warnings(job, ran.transcript, signal)),
    )


def run_command(job: Job) -> Report:
    """Run a gate: exit 0 is PASS, anything else NEEDS_WORK with the end of its output.

    If it was killed it is run once more; if it fails while other missions run, once more alone.
    """
    log = job.services.archive.working_folder(job.mission) / f"{job.phase.name}-{job.step.run}.log"
    before, ran = _run_command(job, log, alone=False)
    told = ""
    if ran.beside and not _succeeded(ran):
        before, ran = _run_command(job, log, alone=True)
        told = f", {ASKED_ALONE}"
    how = f" exited with {ran.exit_code}" if ran.why == "exited" else f": {ran.why}"
    said = f"`{job.phase.run}`{how}{told}"
    signal = passed(said) if _succeeded(ran) else sent_back(f"{said}\n\n{ran.tail[-TAIL:]}")
    return Report(signal, before, log=str(log))


def _succeeded(ran: Ran) -> bool:
    return ran.why == "exited" and ran.exit_code == 0


def _run_command(job: Job, log: Path, *, alone: bool) -> tuple[str, Ran]:
    command, cwd = job.phase.run, job.place.path
    for _ in range(TRIES):
        before = start_from_checkpoint(job)
        env = exported(job, cwd)
        with sandbox(job.place) as paths:
            ran = job.services.shell.run(
                command, cwd, log, timeout=timeout_of(job), env=env, sandbox_paths=paths, alone=alone
            )
        if ran.why == "stopped":
            raise Interrupted(f"Stopped during {job.phase.name}.")
        if ran.why == "not-started":
            cause = f"{job.phase.name} could not be started: {one_line(ran.tail)}."
            raise CapsuleError(cause, "Fix that, then run again.")
        killed = killed_by(ran.exit_code, ran.tail) if ran.why == "exited" else ""
        if not killed:
            return before, ran
    raise no_result_of(command, killed, str(log), job.state)


def start_from_checkpoint(job: Job) -> str:
    """Make the place equal to the last recorded state; return the tree it then holds."""
    checkpoint = job.state.checkpoint or first_checkpoint(job)
    salvage = job.place.restore(checkpoint)
    if salvage:
        why = f"left behind by an interrupted {job.phase.name}"
        job.note(Salvaged(at=job.services.clock.now(), ref=salvage, why=why))
    return job.place.delivered(checkpoint)


def first_checkpoint(job: Job) -> Checkpoint:
    """Make the place if a workflow begins with an agent and no phase has made it yet."""
    job.place.prepare(job.state.base)
    return job.place.beginning(job.state.base)


def run_with_backoff(job: Job, agent: Agent, model: str) -> AgentRun:
    """Run the agent until there is something to judge."""
    tries, waited, known, once_more = 0, 0.0, 0, _ends_with_an_error(job)
    while True:
        while found := _found_by_others(job, agent.name, known):
            known, limit, left = found
            waited += _wait(job, limit, pause(0, left, job.services.clock.chance()), waited)
        ran = _run_once(job, agent, model)
        transcript, failure = ran.transcript, ran.transcript.failure
        killed = transcript.orphaned and not _has_left_a_result(ran)
        judged = not killed and transcript.why != "stopped" and (failure is None or failure.reaction is Reaction.JUDGE)
        if judged and once_more and (silence := _silence(ran)):
            failure, judged, once_more = silence, False, False
        if judged and not _stopped_by_its_budget(ran):
            return ran
        if transcript.usage:
            spent = Spent(at=job.services.clock.now(), key=job.step.key, phase=job.phase.name, usage=transcript.usage)
            beside = job.services.run_limits.spent_event(job.step, spent, final=killed)
            note(job.services, job.mission, spent, beside)
        require_budget(load_state(job.services, job.mission), job.phase.name, job.services)
        if judged:
            return ran
        if killed:
            said = f"The agent of {job.phase.name} was killed with the process that supervises it."
            raise AgentKilled(said, f"Go on with `capsule run {job.state.parent or job.mission}`.")
        if transcript.why == "stopped" or failure is None:
            raise _interrupted(job, f"Stopped during {job.phase.name}; nothing is lost.")
        if failure.reaction is Reaction.STOP:
            died = failure.kind is Kind.MISSING and transcript.exit_code
            raise AgentUnavailable(failure.reason, " ".join([failure.hint, *_traces(ran)]) if died else failure.hint)
        waited += transcript.seconds  # a failed try takes time, too
        if failure.kind is Kind.SILENT:
            waited += _wait(job, failure, _AFTER_SILENCE, waited)
            continue
        seconds = pause(tries, failure.resets_in, job.services.clock.chance())
        concerns_all = failure.kind is Kind.RATE_LIMIT or failure.resets_in is not None
        waited += _wait(job, failure, seconds, waited, agent.name if concerns_all else "")
        tries += 1


def _ends_with_an_error(job: Job) -> bool:
    """Tell whether the mission ends with an error of this phase: then one stalled stream is worth another try."""
    hasty = job.services.limits.wait_seconds < _AFTER_SILENCE
    return REACTIONS[job.phase.role][Verdict.ERROR] in HALTS and not hasty


def _has_left_a_result(ran: AgentRun) -> bool:
    return bool(ran.briefing.result_path) and Path(ran.briefing.result_path).exists()


def _silence(ran: AgentRun) -> Failure | None:
    """Return the failure of an agent whose stream stalled, or that exited with 0 and printed nothing."""
    transcript, known = ran.transcript, ran.transcript.failure
    if known and known.kind is not Kind.SILENT:
        return None
    if transcript.why == "idle":
        return known or Failure(Kind.SILENT, _ENDINGS["idle"].format(seconds=transcript.seconds))
    answered = transcript.text.strip() or _has_left_a_result(ran)
    if transcript.why != "exited" or transcript.exit_code != 0 or answered:
        return None
    return known or Failure(Kind.SILENT, "The agent ended without any output")


def _run_once(job: Job, agent: Agent, model: str) -> AgentRun:
    before = start_from_checkpoint(job)
    write_down = job.services.recorder(job.place, before)
    site = _copy_of_the_base(job) if job.phase.writes == EXAM else None
    briefing = brief(job, model, site.folder if site else None)
    rest = allowance_of(job.state, job.step, job.services)
    if rest != UNLIMITED:
        most = None if rest.usd is None else max(rest.usd, _LEAST_USD)
        briefing = replace(briefing, most_usd=most, timeout=least(briefing.timeout or None, rest.seconds) or 0.0)
    with _inside(job, site) if site else sandbox(job.place) as paths:
        answer = (str(Path(briefing.result_path).parent),) if briefing.result_path else ()
        briefing = replace(briefing, sandbox_paths=replace(paths, writable=(*paths.writable, *answer)))
        job.services.observer.activity(job.mission, f"{agent.name} is at work on {job.phase.name}")
        transcript = agent.run(briefing)
    write_down(briefing, transcript)
    return AgentRun(briefing, transcript, before)


def _copy_of_the_base(job: Job) -> TestSite:
    """Make the folder in which an exam is written: the gate, with the project as it was before the change."""
    return job.place.gate(job.place.base_checkpoint(job.state.base).tree)


@contextmanager
def _inside(job: Job, site: TestSite) -> Iterator[SandboxPaths]:
    """Let an agent work in a copy; its changes there are dropped."""
    try:
        yield site.sandbox_paths or SandboxPaths()
    finally:
        job.place.guard.restore()
        _copy_of_the_base(job)


def _stopped_by_its_budget(ran: AgentRun) -> bool:
    """Tell whether the agent stopped itself at the cost limit that we gave it: neither a fault nor a result."""
    most, usage, failure = ran.briefing.most_usd, ran.transcript.usage, ran.transcript.failure
    interrupted = failure is not None and failure.kind is Kind.CUT_SHORT
    return interrupted and most is not None and usage is not None and (usage.usd or 0.0) >= most


def _found_by_others(job: Job, agent: str, known: int) -> tuple[int, Failure, float] | None:
    """Return a newer provider limit that another running mission has found: its number, cause and seconds left.

    Once that mission no longer runs the limit is ignored: a person may have added credit.
    """
    journal, now = job.services.journal, job.services.clock.now()
    for number, event in reversed(journal.events(LIMITS, known)):
        if not isinstance(event, Limited) or event.agent != agent or event.mission == job.mission:
            continue
        left, of = event.seconds - seconds_between(event.at, now), event.mission
        if left > 0 and journal.is_held(of) and journal.epochs().get(of) == event.epoch:
            reason = f"{event.failure.reason.rstrip('.')} (found by {of})"
            return number, replace(event.failure, reason=reason), left
    return None


def _wait(job: Job, failure: Failure, seconds: float, waited: float, shared_by: str = "") -> float:
    """Wait for the provider; `shared_by` names the agent whose other missions wait as well."""
    if waited + seconds > job.services.limits.wait_seconds:
        at = clock_time(job.services.clock.now(), seconds)
        so_far = f", and it has waited {duration(waited)} already" if waited >= 1 else ""
        raise ProviderLimit(
            f"{sentence(failure.reason)} The next try would be at {at}, in {duration(seconds)}{so_far}.",
            f"Run it again then: it goes on at {job.phase.name}. execution.max_wait_minutes says how long to wait.",
        )
    at, lasts = job.services.clock.now(), round(seconds, 1)
    epoch = job.services.journal.epochs().get(job.mission, 0)
    limit = Limited(at=at, agent=shared_by, mission=job.mission, epoch=epoch, failure=failure, seconds=lasts)
    waiting = Waiting(at=at, key=job.step.key, failure=failure, seconds=lasts)
    note(job.services, job.mission, waiting, (LIMITS, limit) if shared_by else None)
    if not job.services.clock.wait(seconds):
        raise _interrupted(job, f"Stopped while {job.phase.name} was waiting for its provider; nothing is lost.")
    return seconds


def _interrupted(job: Job, message: str) -> Interrupted:
    return Interrupted(message, f"Go on with `capsule run {job.state.parent or job.mission}`.")


def _signal(job: Job, transcript: Transcript) -> Signal:
    if not answers_by_file(job):
        signal = signal_of(transcript)
        return signal if job.state.policy.file_discovered else replace(signal, follow_ups=())
    item, phase = job.state.item.id, job.phase.name
    written = None if transcript.why in _ENDINGS else job.services.archive.take_result(item, phase)
    return result_of(transcript, written, item, phase)


def result_of(transcript: Transcript, written: bytes | str | None, item: str, phase: str) -> Signal:
    """Read the claim of an agent that answers by file; `written` is the file, or its fault."""
    if transcript.why in _ENDINGS:
        return no_result(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    given = transcript.text if isinstance(written, str) or written is None else written
    signal = read_result(given, item, phase)
    if signal.synthetic:
        wrong, failure = damage(written) if isinstance(written, bytes) else written, transcript.failure
        fault = f"{failure.reason} ({signal.feedback})" if failure else signal.feedback
        return no_result(_why_nothing(f"{fault}: the result file is {wrong}" if wrong else fault, transcript))
    failure = transcript.failure
    claims_success = signal.verdict in (Verdict.PASS, Verdict.MORE)
    # A valid result outweighs an exit code; it does not outweigh the CLI's own word that the work was not done.
    return no_result(failure.reason) if failure and failure.kind is not Kind.CRASH and claims_success else signal


def _why_nothing(fault: str, transcript: Transcript) -> str:
    """Describe the fault of the answer, the agent's exit, and the end of its stderr."""
    complaint = transcript.stderr.decode(errors="replace").strip()[-_STDERR_SHOWN:]
    if not transcript.exit_code:
        return fault + (f"\n\nThe end of its stderr:\n{complaint}" if complaint else "")
    last = f": {one_line(complaint.splitlines()[-1])}" if complaint else ""
    ended = f"{fault}; the agent exited with {transcript.exit_code}{last}"
    return ended + (f"\n\nThe end of its stderr:\n{complaint}" if complaint else "")


def signal_of(transcript: Transcript) -> Signal:
    """Read the agent's claim. Its exit can only make that worse, never better."""
    if transcript.why in _ENDINGS:
        return error_signal(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    signal = read_signal(transcript.text)
    failure = transcript.failure
    if failure and (signal.synthetic or signal.verdict is Verdict.PASS):
        return replace(error_signal(failure.reason), summary=f"The agent failed: {failure.kind.value}")
    if signal.verdict is Verdict.PASS and transcript.exit_code != 0:
        return error_signal(f"Agent exited with {transcript.exit_code}")
    return error_signal(_why_nothing(signal.feedback, transcript)) if signal.synthetic else signal


def _cause_of_death(ran: AgentRun, signal: Signal) -> Failure | None:
    """Return what helps to find out why an agent failed without an answer."""
    transcript = ran.transcript
    if not (signal.synthetic and transcript.exit_code and transcript.why == "exited"):
        return None
    known = transcript.failure or Failure(Kind.CRASH, one_line(signal.feedback.partition("\n")[0]))
    return replace(known, hint=" ".join(filter(None, (known.hint, *_traces(ran)))))


def _traces(ran: AgentRun) -> Iterator[str]:
    """Say what a dead agent left: the end of its stderr, its log, and which variables it was not given."""
    transcript, briefing = ran.transcript, ran.briefing
    printed, log = transcript.stderr.decode(errors="replace"), Path(briefing.log)
    if lines := [one_line(line) for line in printed.splitlines() if line.strip()]:
        yield f"Its stderr ends with: {' / '.join(lines[-_LINES_SHOWN:]).rstrip('.')}."
    yield f"Its log: {Path(briefing.keep) / log.name if briefing.keep else log}."
    named = [name for name in transcript.withheld if name in printed]
    if kept := list(dict.fromkeys((*named, *transcript.withheld))):
        more = f" and {len(kept) - _NAMES_SHOWN} more" if len(kept) > _NAMES_SHOWN else ""
        listed = ", ".join(kept[:_NAMES_SHOWN])
        yield f"Not given to it: {listed}{more}; environment.allow passes variables on."


def _warnings(job: Job, transcript: Transcript, signal: Signal) -> tuple[str, ...]:
    found = []
    if transcript.leftovers:
        found.append(f"{transcript.leftovers} processes were still running when the agent ended; they were ended too")
    if transcript.detail:
        found.append(f"about the agent: {transcript.detail}")
    if answers_by_file(job) and transcript.exit_code not in (0, None) and not signal.synthetic:
        found.append(f"the agent exited with {transcript.exit_code}, but left a valid result")
    budget, usage = job.services.limits.budget, transcript.usage
    limited = any(each.usd is not None for each in (budget.phase, budget.mission, budget.run))
    if limited and (usage is None or usage.usd is None):
        found.append("the agent does not say what it costs: this run does not count toward the budget in dollars")
    return tuple(found)
