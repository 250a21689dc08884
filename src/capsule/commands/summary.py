"""The summaries of missions, runs and campaigns: what happened, the paths, and the next command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

from capsule.app.items import COMMIT_TRACKER, uncommitted_tracker_files
from capsule.commands.watching import MissionReader
from capsule.core.budget import duration, in_words
from capsule.core.errors import Interrupted
from capsule.core.history import NOBODY, NOT_GREEN, Attempt, MissionSummary
from capsule.core.inbox import way_on
from capsule.core.proven import proof_of
from capsule.core.state import MissionState
from capsule.core.status import MissionStatus, count_statuses
from capsule.engine.dispatch import CAP, ELSEWHERE, RunReport
from capsule.project import Project
from capsule.reports.style import TONES, Style, clean, fitted, knows_links, linked
from capsule.reports.table import column, widest
from capsule.reports.words import lies_words, money
from capsule.system.clock import SystemClock
from capsule.workspaces.repository import commit_command

_WIDEST_TITLE = 60
_MOST_NAMED = 10
_LEAST_LABEL = 10
_SIGNS = {status.sign: status.tone for status in MissionStatus}
_REPORT = r"(?m)^(?P<label>  report: +)(?P<path>\S+)$"


def say_summary(text: str, project: Project) -> None:
    print(dressed(text, project.root, sys.stdout), flush=True)


def dressed(text: str, root: Path, stream: TextIO) -> str:
    """Return the printed form of a summary: folded, coloured and with links on a terminal."""
    folded, style = fitted(text, stream), Style(stream)
    head, line_end, rest = folded.partition("\n")
    if tone := _SIGNS.get(head[:1]):
        head = style.paint(TONES[tone], head)
    if knows_links(stream):
        rest = re.sub(_REPORT, partial(_with_link, root), rest)
    return f"{head}{line_end}{rest}"


def _with_link(root: Path, row: re.Match[str]) -> str:
    file = root / row["path"]
    return row["label"] + (linked(row["path"], file.absolute().as_uri()) if file.is_file() else row["path"])


def closing_words(state: MissionState, project: Project) -> str:
    """Sum up a mission that has ended or halted."""
    mission, spent = state.mission, state.spending
    # `show` explains unknown amounts.
    used = [f"  agents used: {in_words(spent)}"] if spent.priced or spent.counted else []
    with MissionReader(project) as reader:
        history, whole = reader.history(mission), reader.whole(mission, SystemClock().now())
    proof, summary = proof_of(history), history.summary(NOBODY, history.last).holding(whole.parts)
    status = summary.status
    used = [*([f"  {f'{proof.label}:':<13}{clean(proof.line)}"] if proof.line else []), *used]
    logs = Path(".capsule", "logs", mission)
    known = project.root / logs / "summary.md"
    report = [f"  report:      {logs / known.name}"] if known.is_file() else []
    if state.halt:
        return "\n".join(
            [
                f"{status.sign} {mission} {status.words} at {state.halt.phase}: {clean(state.halt.reason)}",
                f"  {_at_a_glance(whole)}",
                *used,
                f"  details:     capsule show {mission}",
                f"  worktree:    {project.root / '.capsule' / 'worktrees' / mission}",
                f"  next:        {summary.next}",
                *([f"  or:          {summary.otherwise}"] if summary.otherwise else []),
            ]
        )
    if state.in_review or state.abandoned:
        return "\n".join(
            [
                f"{status.sign} {mission}: {clean(summary.sentence)}",
                f"  {_at_a_glance(whole)}",
                *used,
                f"  details:     capsule show {mission}",
                f"  next:        {summary.next}",
            ]
        )
    merged = state.facts.get("merged", "")
    end = f"merged into {state.merged_into} as {merged[:12]}" if merged else f"closed: {clean(state.closed_as)}"
    lines = [f"{MissionStatus.DONE.sign} {mission} is {end}.", f"  {_at_a_glance(whole)}"]
    if merged:
        lines.append(f"  to undo it:  {history.undo}")
    if not state.item_closed:
        lines.append("  its item could not be closed in the tracker; the next run tries again")
    if state.discovered:
        lines.append(f"  new items:   {', '.join(state.discovered)}")
    if not state.policy.test or state.policy.verify == "off":
        lines.append("  UNVERIFIED: no test command was run on it")
    if merged and state.policy.verify == "warn":
        lines += [f"  {NOT_GREEN}"] if history.on_red else []
    left = [f"  uncommitted: {words}" for words in _uncommitted(project)] if merged else []
    ways = [f"  logs:        {logs}/", f"  next:        capsule show {mission}"]
    return "\n".join([*lines, *used, *left, *report, *ways])


def _at_a_glance(summary: MissionSummary) -> str:
    """`Validate phone format · $0.12 · 2 min 3 s · 3 lies caught`"""
    spent, took = summary.spent_with_parts, duration(summary.busy_seconds)
    price = money(spent) if spent.priced else ""
    return " · ".join(filter(None, (clean(summary.title), price, took, lies_of(summary.all_attempts()))))


def lies_of(attempts: Iterable[Attempt]) -> str:
    """Count wrong claims of success: `3 lies caught`; '' if there were none."""
    wrong = [attempt for attempt in attempts if attempt.wrong_claim]
    return lies_words(len(wrong), sum(attempt.caught for attempt in wrong))


def _uncommitted(project: Project) -> list[str]:
    """Name the tracker's uncommitted files and the command to commit them, in one line."""
    paths = uncommitted_tracker_files(project)
    hint = "" if project.settings.tracker.commit else " (tracker.commit: true does it)"
    return [f"{', '.join(paths)}; {commit_command(COMMIT_TRACKER, paths)}{hint}"] if paths else []


def queue_summary(report: RunReport, project: Project, again: str) -> str:
    """Sum up a run of the queue; `again` is the command that continues it."""
    asking = _asking(report, project)
    rows = _rows(report, project)
    left = [*report.waiting.items()]
    rows += [("not run", f"{item}: {clean(why)}") for item, why in left[:_MOST_NAMED]]
    if len(left) > _MOST_NAMED:
        rows.append(("not run", f"and {len(left) - _MOST_NAMED} more: capsule status"))
    if report.left:
        more = [f"and {len(report.left) - _MOST_NAMED} more"] if len(report.left) > _MOST_NAMED else []
        rows.append(("left", ", ".join([*report.left[:_MOST_NAMED], *more])))
    rows.append(("next", _next_command(report, asking, again)))
    head = f"{_sign(report, asking)} Run ended: {report.ended_because}."
    return _laid_out(head, [_score(report, asking, project)], rows)


class _WayOn(NamedTuple):
    """The command that helps an item, and whether it has failed, in this run or before."""

    command: str
    failed: bool


def _asking(report: RunReport, project: Project) -> dict[str, _WayOn]:
    """Return what helps each item that did not finish, or was not run as it waits for a person."""
    names = [*report.stuck, *report.waiting]
    items = {item.id: item for item in project.tracker.items()} if names else {}
    found = {}
    with MissionReader(project) as reader:
        for name in names:
            view = reader.whole(name, "") if reader.history(name).starts else None
            if helps := way_on(view, items.get(name)):
                failed = name in report.failed or bool(view and view.status is MissionStatus.FAILED)
                found[name] = _WayOn(helps, failed)
    return found


def _next_command(report: RunReport, asking: Mapping[str, _WayOn], again: str) -> str:
    """Return the one command that helps most after a run."""
    helps = {name: way.command for name, way in asking.items()}
    if report.stuck:
        item, why = next(iter([*report.blocked.items(), *report.failed.items()]))
        _, fresh, options = why.rpartition(f"capsule run {item} --fresh")
        elsewhere = f"capsule logs {item} -f" if why.startswith(ELSEWHERE) else ""
        return helps.get(item) or elsewhere or (f"{fresh}{options}" if fresh else f"capsule run {item}")
    if report.stopped:
        return f"capsule run {report.stopped[0]}"
    asked = report.exit_code == 1 and helps  # the rest waits for a person, who is asked by no error
    if (report.exit_code and not asked) or report.ended_because.startswith(CAP):
        return again
    if report.waiting:
        return next(iter(helps.values()), "capsule sync" if report.in_review else "capsule explain")
    if report.in_review or report.done[1:]:
        return "capsule sync" if report.in_review else "capsule report"
    return f"capsule show {report.done[0]}" if report.done else "capsule status"


def _sign(report: RunReport, asking: Mapping[str, _WayOn]) -> str:
    if report.exit_code == Interrupted.exit_code:
        return MissionStatus.STOPPED.sign
    if report.failed or report.exit_code > 1:
        return MissionStatus.FAILED.sign
    if report.blocked or (asking and not report.done):
        return MissionStatus.NEEDS_YOU.sign
    return MissionStatus.STOPPED.sign if report.exit_code else MissionStatus.DONE.sign


def _score(report: RunReport, asking: Mapping[str, _WayOn], project: Project) -> str:
    """`2 merged · 3 lies caught · 1 needs you · $0.12 · 35 s`"""
    merged = sum(name in report.states and "merged" in report.states[name].facts for name in report.done)
    failed = {*report.failed, *(name for name, way in asking.items() if way.failed)}
    asked = {*report.blocked, *asking} - failed
    counts = {MissionStatus.NEEDS_YOU: len(asked), MissionStatus.FAILED: len(failed)}
    counts |= {MissionStatus.WAITING: len(report.in_review)}
    spawned = {*report.spawned}
    with MissionReader(project) as reader:
        known = {name: reader.history(name) for name, _ in spawned}
    tried = {name: history.summary(NOBODY, history.last).attempts for name, history in known.items()}
    lies = lies_of(one for name, attempts in tried.items() for one in attempts if (name, one.key) in spawned)
    parts = (
        f"{merged:,} merged" if merged else "",
        f"{len(report.done) - merged:,} done" if merged < len(report.done) or not merged else "",
        lies,
        *(count_statuses({status: number}) for status, number in counts.items()),
        money(report.spent) if report.spent.priced else "",
        duration(report.seconds),
    )
    return " · ".join(filter(None, parts))


def campaign_summary(report: RunReport, root: str, project: Project) -> str:
    """Sum up a campaign: its progress, and the items that did not run, with the reasons."""
    rows = _rows(report, project)
    rows += [("not run", f"{item}: {clean(why)}") for item, why in report.waiting.items()]
    merges = {name: report.states[name].facts.get("merged", "") for name in report.done if name in report.states}
    # The newest first: they have to be reverted in this order.
    rows += [(f"undo {name}", f"git revert -m 1 {merged[:12]}") for name, merged in reversed(merges.items()) if merged]
    asking = _asking(report, project)
    rows += [("details", f"capsule show {stuck}") for stuck in [*report.stuck][:1]]
    rows.append(("next", _next_command(report, asking, f"capsule run {root}")))
    stopped = report.exit_code == Interrupted.exit_code  # the error that follows names the place
    head = f"Campaign {root} was stopped." if stopped else f"Campaign {root} ended: {report.ended_because}."
    lines = [_laid_out(f"{_sign(report, asking)} {head}", [_score(report, asking, project)], rows)]
    if report.progress:
        ids, titles = [row.item for row in report.progress], [clean(row.title) for row in report.progress]
        left, middle = widest(ids), min(widest(titles), _WIDEST_TITLE)
        lines += [
            f"  {column(row.item, left)}  {column(title, middle)}  {row.done} of {row.of} done"
            for row, title in zip(report.progress, titles, strict=True)
        ]
    return "\n".join(lines)


def _rows(report: RunReport, project: Project) -> list[tuple[str, str]]:
    rows = [("phases", f"{report.spawns} of {report.cap}")]
    if report.done:
        now = SystemClock().now()
        with MissionReader(project) as reader:
            proofs = {item: proof_of(reader.history(item)) for item in report.done}
            for item in report.done:
                closed = reader.history(item).state.closed_as
                how = f" · closed as {clean(closed)}" if closed else ""
                rows.append(("done", f"{item}: {_at_a_glance(reader.whole(item, now))}{how}"))
        rows += [(proof.label, f"{item}: {clean(proof.line)}") for item, proof in proofs.items() if proof.line]
    rows += [("in review", f"{item}: {clean(why)}") for item, why in report.in_review.items()]
    rows += [("needs you", f"{item}: {clean(why)}") for item, why in report.blocked.items()]
    rows += [("failed", f"{item}: {clean(why)}") for item, why in report.failed.items()]
    rows += [("stopped", f"{item}: by you; go on with: capsule run {item}") for item in report.stopped]
    if report.follow_ups:
        rows.append(("follow-ups", ", ".join(report.follow_ups)))
    rows += [("uncommitted", words) for words in (_uncommitted(project) if report.done else [])]
    rows += _reports(report, project)
    rows.append(("time", duration(report.seconds)))
    if report.spent.priced or report.spent.counted:
        rows.append(("agents", f"used {in_words(report.spent)}"))
    return rows


def _reports(report: RunReport, project: Project) -> list[tuple[str, str]]:
    """Name the reports of missions that the run finished."""
    paths = [Path(".capsule", "logs", name, "summary.md") for name in report.done]
    known = [str(path) for path in paths if (project.root / path).is_file()]
    more = [("report", f"and {len(known) - _MOST_NAMED} more: capsule report")] if known[_MOST_NAMED:] else []
    return [*(("report", path) for path in known[:_MOST_NAMED]), *more]


def _laid_out(head: str, lines: Sequence[str], rows: Sequence[tuple[str, str]]) -> str:
    """Put the texts into one column; only a label with an id in it may be wider than the column."""
    width = max(_LEAST_LABEL, *(len(name) + 2 for name, _ in rows if " " not in name))
    told = (f"  {f'{name}:':<{width}} {text}" for name, text in rows)
    return "\n".join([head, *(f"  {line}" for line in lines), *told])
