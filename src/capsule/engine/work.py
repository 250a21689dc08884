"""The two doers that work in the workspace: an agent with a prompt, and a command that is a gate."""

from __future__ import annotations

import re
from pathlib import Path

from capsule.core.briefing import Briefing, Transcript, compose, fitting, prompt_values, with_parts
from capsule.core.documents import own_documents
from capsule.core.errors import AgentUnavailable, Interrupted
from capsule.core.event import Salvaged
from capsule.core.evidence import Checkpoint
from capsule.core.signal import Signal, Verdict, error_signal, no_result, read_result, read_signal
from capsule.core.state import agent_for
from capsule.core.workflow import Contract
from capsule.engine.job import Job, Report, commit_message, passed, sent_back
from capsule.engine.verify import TAIL, Look, look

_ENDINGS = {
    "timeout": "Agent timed out after {seconds:.0f} s",
    "idle": "Agent was silent for too long and was ended after {seconds:.0f} s",
}


_STDERR_SHOWN = 2000


def run_agent(job: Job) -> Report:
    """A fresh agent, from a named state; then what it says, beside what is to be seen."""
    before = _start_from_checkpoint(job)
    name, model = agent_for(job.state, job.phase)
    agent = job.world.agent(name, model)
    briefing = brief(job, model)
    job.world.observer.activity(job.mission, f"{agent.name} is at work on {job.phase.name}")
    transcript = agent.run(briefing)
    _raise_if_it_could_not_run(job, transcript)
    signal = _signal(job, transcript)
    tree = job.workspace.tree()
    evidence = look(Look(job.state, job.phase, signal, job.workspace, job.world, tree, before))
    return Report(
        signal,
        evidence,
        files=tuple(change.path for change in job.workspace.changes(before, tree)),
        agent=agent.name,
        log=briefing.log,
        usage=transcript.usage,
        warnings=_warnings(job, transcript, signal),
    )


def run_command(job: Job) -> Report:
    """A gate: exit 0 is PASS, anything else is NEEDS_WORK with the end of its output."""
    before = _start_from_checkpoint(job)
    log = job.world.archive.working_folder(job.mission) / f"{job.phase.name}-{job.step.run}.log"
    ran = job.world.shell.run(
        job.phase.run, job.workspace.path, log, timeout=_timeout(job), env=_exported(job, job.workspace.path)
    )
    if ran.why == "stopped":
        raise Interrupted(f"Stopped during {job.phase.name}.")
    ok = ran.why == "exited" and ran.exit_code == 0
    how = f"`{job.phase.run}` exited with {ran.exit_code}" if ran.why == "exited" else f"`{job.phase.run}`: {ran.why}"
    signal = passed(how) if ok else sent_back(f"{how}\n\n{ran.tail[-TAIL:]}")
    tree = job.workspace.tree()
    evidence = look(Look(job.state, job.phase, signal, job.workspace, job.world, tree, before))
    files = tuple(change.path for change in job.workspace.changes(before, tree))
    return Report(signal, evidence, files=files, log=str(log))


def _start_from_checkpoint(job: Job) -> str:
    """Make the workspace equal to the last recorded state; the tree it then holds."""
    checkpoint = job.state.checkpoint or _first_checkpoint(job)
    salvage = job.workspace.restore(checkpoint)
    if salvage:
        why = f"left behind by an interrupted {job.phase.name}"
        job.note(Salvaged(at=job.world.clock.now(), ref=salvage, why=why))
    return job.workspace.delivered(checkpoint)


def _first_checkpoint(job: Job) -> Checkpoint:
    """A workflow may begin with an agent: then nobody has made the workspace yet."""
    job.workspace.prepare(job.state.base)
    return job.workspace.base_checkpoint(job.state.base)


def brief(job: Job, model: str, *, dry: bool = False) -> Briefing:
    """Everything the agent needs; a dry one makes nothing on the way."""
    world, state, phase = job.world, job.state, job.phase
    stamp = f"{re.sub(r'[^0-9]', '', world.clock.now())}{job.step.run:03}"  # two runs may begin in the same second
    cwd = job.workspace.path
    result = str(world.archive.result_path(state.item.id, phase.name, dry=dry)) if _answers_by_file(job) else ""
    return Briefing(
        mission=state.mission,
        item=state.item.id,
        phase=phase.name,
        run=job.step.run,
        prompt=_prompt(job, result, dry=dry),
        cwd=str(cwd),
        log=str(cwd / ".capsule" / "output" / f"{phase.name}-{stamp}-{world.pid}.log"),
        keep="" if dry else str(world.archive.working_folder(state.mission) / "outputs"),
        timeout=_timeout(job),
        idle_timeout=(phase.idle_timeout_minutes or 0) * 60 or world.limits.idle_seconds,
        model=model,
        env=_exported(job, cwd) | ({"CAPSULE_RESULT": result} if result else {}),
        result_path=result,
    )


def _prompt(job: Job, result_path: str, *, dry: bool) -> str:
    words, state, phase = job.world.words, job.state, job.phase
    inline = state.workflow.prompts.get(phase.prompt)
    text = inline if inline is not None else words.prompt(phase.prompt)
    values = prompt_values(state, phase.name, result_path, paths=_documents(job), skills=job.world.skills)
    values["SIGNAL_CONTRACT"] = words.part("signal").strip()
    if _answers_by_file(job):
        parts = {"PREAMBLE": words.part("preamble"), "RESULT_CONTRACT": words.part("result")}
        values = with_parts(values, parts | _artefact_form(job, text))
    feedback = state.feedback.get(phase.name, "")
    if feedback and not dry:
        full_text = job.world.archive.put(job.mission, f"feedback-{phase.name}-{job.step.run}.md", feedback)
        feedback = fitting(feedback, str(full_text))
    return compose(text, values, words.part("feedback"), feedback, source=f"prompt {phase.prompt!r}")


def _artefact_form(job: Job, prompt: str) -> dict[str, str]:
    """The form of the document to be written, where the prompt has a place for it."""
    if "{{TEMPLATE}}" not in prompt:
        return {}
    return {"TEMPLATE": job.world.words.template(job.phase.form)}


def _documents(job: Job) -> list[str]:
    """What there is of the item's documents when the phase begins; only agents that answer by file write any."""
    if not _answers_by_file(job):
        return []
    state, workspace = job.state, job.workspace
    tree = workspace.delivered(state.checkpoint) if state.checkpoint else state.base
    return own_documents(state.item.id, workspace.files(tree)) if tree else []


def _exported(job: Job, cwd: Path) -> dict[str, str]:
    """What agents and commands are told by environment."""
    item = job.state.item
    return {
        **job.world.exported,
        "CAPSULE_MISSION": job.mission,
        "CAPSULE_ITEM": item.id,
        "CAPSULE_PHASE": job.phase.name,
        "CAPSULE_RUN": str(job.step.run),
        "CAPSULE_WORKTREE": str(cwd),
        "CAPSULE_COMMIT_MSG": commit_message(item.id, item.title),
    }


def _timeout(job: Job) -> float:
    return (job.phase.timeout_minutes or 0) * 60 or job.world.limits.phase_seconds


def _answers_by_file(job: Job) -> bool:
    return job.state.workflow.contract is Contract.RESULT


def _raise_if_it_could_not_run(job: Job, transcript: Transcript) -> None:
    if transcript.why == "stopped":
        raise Interrupted(
            f"Stopped during {job.phase.name}; nothing is lost.",
            f"Go on with `capsule run {job.state.parent or job.mission}`.",
        )
    if transcript.outage:
        raise AgentUnavailable(transcript.outage.reason, transcript.outage.hint)


def _signal(job: Job, transcript: Transcript) -> Signal:
    if not _answers_by_file(job):
        return signal_of(transcript)
    if transcript.why in _ENDINGS:
        return no_result(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    written = job.world.archive.take_result(job.state.item.id, job.phase.name)
    given = transcript.text if isinstance(written, str) or written is None else written
    signal = read_result(given, job.state.item.id, job.phase.name)
    return no_result(_why_nothing(signal.feedback, written, transcript)) if signal.synthetic else signal


def _why_nothing(fault: str, written: bytes | str | None, transcript: Transcript) -> str:
    """What is wrong with the answer, how the agent ended, and the last it had to say about it."""
    about = f"{fault}: the result file is {written}" if isinstance(written, str) else fault
    ended = f"; the agent exited with {transcript.exit_code}" if transcript.exit_code else ""
    complaint = transcript.stderr.decode(errors="replace").strip()[-_STDERR_SHOWN:]
    return f"{about}{ended}" + (f"\n\nThe end of its stderr:\n{complaint}" if complaint else "")


def signal_of(transcript: Transcript) -> Signal:
    """What the agent claims. How it ended can only make that worse, never better."""
    if transcript.why in _ENDINGS:
        return error_signal(_ENDINGS[transcript.why].format(seconds=transcript.seconds))
    signal = read_signal(transcript.text)
    if signal.verdict is Verdict.PASS and transcript.exit_code != 0:
        return error_signal(f"Agent exited with {transcript.exit_code}")
    return signal


def _warnings(job: Job, transcript: Transcript, signal: Signal) -> tuple[str, ...]:
    found = list(job.workspace.notices())
    if transcript.leftovers:
        found.append(f"{transcript.leftovers} processes were still running when the agent ended; they were ended too")
    if _answers_by_file(job) and transcript.exit_code not in (0, None) and not signal.synthetic:
        found.append(f"the agent exited with {transcript.exit_code}, but left a valid result")
    return tuple(found)
