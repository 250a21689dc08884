"""The two doers that work in the workspace: an agent with a prompt, and a command that is a gate."""

from __future__ import annotations

from msgspec.structs import replace

from capsule.adapters import Ran
from capsule.core.briefing import Transcript
from capsule.core.errors import CapsuleError, Interrupted, NoResult
from capsule.core.failure import Kind
from capsule.core.signal import Signal, Verdict, error_signal, no_result, read_result, read_signal
from capsule.core.state import agent_for
from capsule.core.test_runs import killed_by
from capsule.core.text import one_line
from capsule.engine.agent_run import run_with_backoff, start_from_checkpoint
from capsule.engine.brief import answers_by_file, exported, timeout_of
from capsule.engine.job import Job, Report, parked, passed, sent_back
from capsule.engine.verify import TAIL, TRIES, Verification, no_result_of, verify

_ENDINGS = {
    "timeout": "Agent timed out after {seconds:.0f} s",
    "idle": "Agent was silent for too long and was ended after {seconds:.0f} s",
}
_STDERR_SHOWN = 2000


def run_agent(job: Job) -> Report:
    """A fresh agent, from a named state; then what it says, beside what is to be seen."""
    name, model = agent_for(job.state, job.phase)
    agent = job.services.agent(name, model)
    agent_run = run_with_backoff(job, agent, model)
    transcript, before = agent_run.transcript, agent_run.before
    signal = _signal(job, transcript)
    tree = job.place.tree()
    try:
        evidence = verify(Verification(job.state, job.phase, signal, job.place, job.services, tree, before))
    except NoResult as none:  # caught here, so that what the agent used is recorded
        signal, evidence = parked(none.message), ()
    return Report(
        signal,
        evidence,
        files=tuple(change.path for change in job.place.trees.changes(before, tree)),
        agent=agent.name,
        log=agent_run.briefing.log,
        usage=transcript.usage,
        failure=transcript.failure,
        warnings=_warnings(job, transcript, signal),
    )


def run_command(job: Job) -> Report:
    """A gate: exit 0 is PASS, anything else is NEEDS_WORK with the end of its output; killed, it is run once more."""
    for _ in range(TRIES):
        before = start_from_checkpoint(job)
        ran = _run_gate(job)
        killed = killed_by(ran.exit_code, ran.tail) if ran.why == "exited" else ""
        if not killed:
            break
    else:
        raise no_result_of(job.phase.run, killed, str(ran.log), job.state)
    log = ran.log
    ok = ran.why == "exited" and ran.exit_code == 0
    how = f"`{job.phase.run}` exited with {ran.exit_code}" if ran.why == "exited" else f"`{job.phase.run}`: {ran.why}"
    signal = passed(how) if ok else sent_back(f"{how}\n\n{ran.tail[-TAIL:]}")
    tree = job.place.tree()
    evidence = verify(Verification(job.state, job.phase, signal, job.place, job.services, tree, before))
    files = tuple(change.path for change in job.place.trees.changes(before, tree))
    return Report(signal, evidence, files=files, log=str(log))


def _run_gate(job: Job) -> Ran:
    log = job.services.archive.working_folder(job.mission) / f"{job.phase.name}-{job.step.run}.log"
    cwd = job.place.path
    env, sandbox_paths = exported(job, cwd), job.place.open_sandbox()
    ran = job.services.shell.run(job.phase.run, cwd, log, timeout=timeout_of(job), env=env, sandbox_paths=sandbox_paths)
    job.place.guard.restore()  # as after an agent
    job.place.import_commits()
    if ran.why == "stopped":
        raise Interrupted(f"Stopped during {job.phase.name}.")
    if ran.why == "not-started":
        raise CapsuleError(
            f"{job.phase.name} could not be started: {one_line(ran.tail)}.", "Mend that, then run again."
        )
    return ran


def _signal(job: Job, transcript: Transcript) -> Signal:
    if not answers_by_file(job):
        signal = signal_of(transcript)
        return signal if job.state.policy.file_discovered else replace(signal, follow_ups=())
    if transcript.why in _ENDINGS:
        return no_result(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    written = job.services.archive.take_result(job.state.item.id, job.phase.name)
    given = transcript.text if isinstance(written, str) or written is None else written
    signal = read_result(given, job.state.item.id, job.phase.name)
    if signal.synthetic:
        return no_result(_why_nothing(signal.feedback, written, transcript))
    failure = transcript.failure
    claims_success = signal.verdict in (Verdict.PASS, Verdict.MORE)
    # A valid result outweighs an exit code; it does not outweigh the CLI's own word that the work was not done.
    return no_result(failure.reason) if failure and failure.kind is not Kind.CRASH and claims_success else signal


def _why_nothing(fault: str, written: bytes | str | None, transcript: Transcript) -> str:
    """What is wrong with the answer, how the agent ended, and the last it had to say about it."""
    fault = f"{transcript.failure.reason} ({fault})" if transcript.failure else fault
    about = f"{fault}: the result file is {written}" if isinstance(written, str) else fault
    ended = f"; the agent exited with {transcript.exit_code}" if transcript.exit_code else ""
    complaint = transcript.stderr.decode(errors="replace").strip()[-_STDERR_SHOWN:]
    return f"{about}{ended}" + (f"\n\nThe end of its stderr:\n{complaint}" if complaint else "")


def signal_of(transcript: Transcript) -> Signal:
    """What the agent claims. How it ended can only make that worse, never better."""
    if transcript.why in _ENDINGS:
        return error_signal(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    signal = read_signal(transcript.text)
    failure = transcript.failure
    if failure and (signal.synthetic or signal.verdict is Verdict.PASS):
        return replace(error_signal(failure.reason), summary=f"The agent failed: {failure.kind.value}")
    if signal.verdict is Verdict.PASS and transcript.exit_code != 0:
        return error_signal(f"Agent exited with {transcript.exit_code}")
    return signal


def _warnings(job: Job, transcript: Transcript, signal: Signal) -> tuple[str, ...]:
    found = list(job.place.notices())
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
