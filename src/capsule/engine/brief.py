"""Build the input of one agent run: its prompt, its place, its limits, its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from capsule.adapters import Words
from capsule.core.briefing import Briefing, compose, fenced, fitting, prompt_values, with_parts
from capsule.core.documents import own_documents
from capsule.core.findings import told_to_reviewer
from capsule.core.state import MissionState
from capsule.core.workflow import EXAM, Contract, Phase, Role
from capsule.engine.job import Job, commit_message, passed
from capsule.engine.mutants import signatures_of
from capsule.engine.verification import Verification


def brief(job: Job, model: str, folder: Path | None = None, *, dry: bool = False) -> Briefing:
    """Build the briefing for the place or another folder; a dry run writes nothing."""
    services, state, phase = job.services, job.state, job.phase
    cwd = folder or job.place.path
    result = str(services.archive.result_path(state.item.id, phase.name, dry=dry)) if answers_by_file(job) else ""
    return Briefing(
        mission=state.mission,
        item=state.item.id,
        phase=phase.name,
        run=job.step.run,
        prompt=_prompt(job, result, dry=dry),
        cwd=str(cwd),
        log=str(cwd / ".capsule" / "output" / log_name(phase.name, services.clock.now(), job.step.run, services.pid)),
        keep="" if dry else str(services.archive.working_folder(state.mission) / "outputs"),
        timeout=timeout_of(job),
        idle_timeout=(phase.idle_timeout_minutes or 0) * 60 or services.limits.idle_seconds,
        model=model,
        env=exported(job, cwd) | ({"CAPSULE_RESULT": result} if result else {}),
        result_path=result,
    )


def log_name(phase: str, at: str, run: int, pid: int) -> str:
    """Name the log so that `capsule logs` knows the phase; with the run, because two may begin in the same second."""
    return f"{phase}-{re.sub(r'[^0-9]', '', at)}{run:03}-{pid}.log"


def _prompt(job: Job, result_path: str, *, dry: bool) -> str:
    words, state, phase = job.services.words, job.state, job.phase
    values = prompt_values(state, phase.name, result_path, paths=_documents(job), skills=job.services.skills)
    if phase.writes == EXAM and not dry:
        values["SIGNATURES"] = fenced(_signatures(job))
    feedback = state.feedback.get(phase.name, "")
    if feedback and not dry:
        full_text = job.services.archive.put(job.mission, f"feedback-{phase.name}-{job.step.run}.md", feedback)
        feedback = fitting(feedback, str(full_text))
    findings = told_to_reviewer(state.findings.get(phase.name, ()), phase.rework or phase.name)
    return fill_prompt(words, state, phase, values, feedback, findings=fitting(findings, "the worklog"))


def fill_prompt(
    words: Words,
    state: MissionState,
    phase: Phase,
    values: Mapping[str, str],
    feedback: str = "",
    *,
    findings: str = "",
    source: str = "",
) -> str:
    """Return the text of a phase's prompt: its own words, the parts that prompts may use, findings and feedback."""
    inline = state.workflow.prompts.get(phase.prompt)
    text = inline if inline is not None else words.prompt(phase.prompt, state.workflow.name)
    heard = state.policy.file_discovered and not state.parent  # work that is not the item's may be reported
    judges = phase.role is Role.REVIEW and phase.writes != EXAM
    contract = ("signal", *(["findings"] if judges else []), *(["discovered"] if heard else []))
    values = {**values, "SIGNAL_CONTRACT": "\n\n".join(words.part(name).strip() for name in contract)}
    if state.workflow.contract is Contract.RESULT:
        parts = {"PREAMBLE": words.part("preamble"), "RESULT_CONTRACT": words.part("result")}
        if "{{TEMPLATE}}" in text:
            parts["TEMPLATE"] = words.template(phase.form)
        values = with_parts(values, parts)
    return compose(
        text,
        values,
        words.part("feedback"),
        feedback,
        findings_part=words.part("earlier-findings"),
        findings=findings,
        source=source or f"prompt {phase.prompt!r}",
    )


def check_prompts(words: Words, state: MissionState, *, skills: bool, seen: frozenset[str] = frozenset()) -> None:
    """Fill in every prompt of a mission's workflow, and of those that it starts, or raise SettingsError."""
    for phase in state.workflow.phases:
        if phase.prompt:
            found = prompt_values(state, phase.name, "", skills=skills)
            values = {name: value or "later" for name, value in found.items()}  # so that no block is left out
            fill_prompt(words, state, phase, values, "feedback", findings="findings")
        if phase.workflow and phase.workflow not in seen:
            part = replace(state, workflow=words.workflow(phase.workflow))
            check_prompts(words, part, skills=skills, seen=seen | {phase.workflow})


def _signatures(job: Job) -> str:
    """List the public signatures of the finished work, file by file."""
    place, state = job.place, job.state
    tree = place.delivered(state.checkpoint) if state.checkpoint else ""
    claim = Verification(state, job.phase, passed(""), place, job.services, tree, tree)
    found = signatures_of(claim) if tree else []
    return "\n\n".join("\n".join((path, *(f"  {head}" for head in heads))) for path, heads in found)


def _documents(job: Job) -> list[str]:
    """List the item's documents when the phase begins; only agents that answer by file write any."""
    if not answers_by_file(job):
        return []
    state, place = job.state, job.place
    tree = place.delivered(state.checkpoint) if state.checkpoint else state.base
    return own_documents(state.item.id, place.trees.files(tree)) if tree else []


def exported(job: Job, cwd: Path) -> dict[str, str]:
    """Return the environment variables for agents and commands."""
    item = job.state.item
    return {
        **job.place.variables(cwd),
        **job.services.exported(),
        "CAPSULE_MISSION": job.mission,
        "CAPSULE_ITEM": item.id,
        "CAPSULE_PHASE": job.phase.name,
        "CAPSULE_RUN": str(job.step.run),
        "CAPSULE_WORKTREE": str(cwd),
        "CAPSULE_COMMIT_MSG": commit_message(item.id, item.title),
    }


def timeout_of(job: Job) -> float:
    return (job.phase.timeout_minutes or 0) * 60 or job.services.limits.phase_seconds


def answers_by_file(job: Job) -> bool:
    return job.state.workflow.contract is Contract.RESULT
