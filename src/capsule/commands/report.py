"""Report on missions: time, claims, cost and diff.

It begins with the progress, the number of wrong claims of success, and the cost; then what needs you, with the commands
that answer it. It lists each run of an agent with its time, duration and attempt; claims next to what Capsule verified;
feedback, cost and diff. Several missions also have totals: how many are done, how many passed at first, retries, money
and time. An epic or a feature means the items in it; without an ID the report is about every mission.

  capsule report demo-1.1.2                        Markdown, on stdout
  capsule report --html report.html                one page that needs no network; its path is printed
  capsule report --run queue --format card         ten lines for a pull request or a chat
  capsule report --run queue --svg card.svg        the same as a picture
  capsule report --by agent                        claims, refuted, first pass and cost, by agent and model
  capsule report --since 2d --json | jq .totals
  capsule report --run queue                       the last run of the queue
  capsule report --run demo-1                      the last run of that campaign

Nothing is changed, so it is safe while missions run. A cost that an agent did not report is unknown, and never counted
as zero.

Exit code: 0 reported, also if there are no missions yet; 1 there is no such mission or run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from capsule.app.changes import diff_text, with_diffs
from capsule.app.inbox import questions_of
from capsule.app.missions import known_mission
from capsule.commands.arguments import ITEM_ID
from capsule.commands.watching import MissionReader
from capsule.core.board import Board
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.event import CAMPAIGN, MERGES, RUN, is_run
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.inbox import Question, inbox
from capsule.core.item import check_id
from capsule.core.merges import merge_records
from capsule.core.report import Report, nested
from capsule.core.stamps import moment
from capsule.project import Project, open_project, tracker_if_there
from capsule.reports.card import card_markdown
from capsule.reports.facts import agent_facts, report_facts
from capsule.reports.markdown import agents_markdown, markdown
from capsule.reports.style import fitted, output_width
from capsule.system.clock import SystemClock
from capsule.system.files import write_atomically

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NAMED = 8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "items", metavar="ID", type=ITEM_ID, nargs="*", help="missions, or epics and features that hold some"
    )
    parser.add_argument("--run", metavar="NAME", help="the missions of one run: queue, or what `capsule run` was given")
    parser.add_argument("--since", metavar="WHEN", help="only events since: 30m, 12h, 2d, 1w, or a date (UTC)")
    parser.add_argument("--by", choices=("agent",), help="a table instead: honesty, quality and cost of each agent")
    form = parser.add_mutually_exclusive_group()
    shape = "on stdout: markdown (default), or card: ten lines of it for a pull request or a chat"
    form.add_argument("--format", choices=("markdown", "card"), default="markdown", metavar="FORM", help=shape)
    form.add_argument("--html", metavar="FILE", help="write one HTML page; - is stdout")
    form.add_argument("--svg", metavar="FILE", help="write the card as a picture; - is stdout")
    form.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    items = [check_id(name) for name in args.items]
    if args.by and (args.svg or args.format == "card"):
        raise UsageError("A card has no table of agents.", "Leave out --by, or the card.")
    file = _file(args)
    project = open_project(args.project_dir)
    report = gather(project, items, args.run or "", args.since or "")
    text = _drawn(report, project, args).encode(errors="replace").decode()
    if file is None:
        sys.stdout.write(text)
        return 0
    write_atomically(file, text)
    print(file.absolute())
    return 0


def _file(args: argparse.Namespace) -> Path | None:
    """Return the file to write; refuse anything but a regular file before any work is done."""
    option, name = ("--svg", args.svg) if args.svg else ("--html", args.html)
    if name in (None, "-"):
        return None
    file = Path(name)
    if file.is_symlink():
        raise Refused(f"{file} is a symbolic link; left alone.", "Name the file itself, or - for stdout.")
    if file.is_dir():
        raise Refused(f"{file} is a directory.", f"Name a file in it: {option} {file / f'report.{option[2:]}'}")
    if file.exists() and not file.is_file():
        raise Refused(f"{file} is not a regular file; left alone.", "Name another file, or - for stdout.")
    return file


def _drawn(report: Report, project: Project, args: argparse.Namespace) -> str:
    if args.json:
        facts = agent_facts(report) if args.by else report_facts(report)
        return json.dumps(facts, indent=2) + "\n"
    if args.html or args.svg:
        return _on_a_page(report, project, args)
    if args.by:
        return agents_markdown(report, _width())
    return fitted(card_markdown(report), sys.stdout) if args.format == "card" else markdown(report, _width())


def _on_a_page(report: Report, project: Project, args: argparse.Namespace) -> str:
    from capsule.pages.card import svg  # noqa: PLC0415 - start-up: templates are for pages only
    from capsule.pages.report import agents_page, page  # noqa: PLC0415

    if args.svg:
        return svg(report)
    if args.by:
        return agents_page(report)
    return page(report, diff_text(project, report.missions[0]) if report.alone else "")


def _width() -> int:
    """Return the width of Markdown: limited on a terminal only, even if COLUMNS is set in a pipe."""
    return output_width(sys.stdout) if sys.stdout.isatty() else sys.maxsize


# ---- which missions


def gather(project: Project, items: Sequence[str], named_run: str, since: str) -> Report:
    """Read the journal, choose missions, and count their changed lines. Nothing is changed."""
    as_of = SystemClock().now()
    earliest = _seconds(since, as_of)
    with MissionReader(project) as reader:
        run = _find_run(reader, named_run, as_of) if named_run else None
        names = _choose(project, reader, items, run, as_of)
        kept = [name for name in names if moment(reader.history(name).last) >= earliest]
        summaries = [reader.summary(name, as_of) for name in kept]
        title = _title(reader, items, since, run, names)
        trains = [reader.train(stream) for stream in reader.journal.streams() if stream.startswith(MERGES)]
    missions = with_diffs(project, summaries)
    merges = tuple(record for record in merge_records(trains, summaries) if record.queued)
    report = Report(
        project=project.root.name, title=title, as_of=as_of, missions=nested(missions), run=run, merges=merges
    )
    return replace(report, questions=_questions(project, report.missions))


def _questions(project: Project, missions: tuple[MissionSummary, ...]) -> tuple[Question, ...]:
    """Return the questions of these missions; without a tracker, from the journal alone."""
    board, known = Board(missions=missions), {each.mission for each in missions}
    try:
        found = questions_of(project, board)
    except CapsuleError:
        found = inbox(board, None)
    return tuple(each for each in found if each.id in known)


def _find_run(reader: MissionReader, name: str, now: str) -> RunSummary:
    streams = [stream for stream in reader.journal.streams() if is_run(stream)]
    for stream in (f"{RUN}{name}", f"{CAMPAIGN}{name}", f"{RUN}run-{name}"):
        if stream in streams and (found := reader.run(stream, now)).began:
            return found
    known = ", ".join(stream.removeprefix(RUN) for stream in streams[:_NAMED])
    hint = f"Known runs: {known}." if streams else "`capsule run` without an ID makes one."
    raise CapsuleError(f"There is no run {name!r}.", hint, exit_code=1)


def _choose(
    project: Project, reader: MissionReader, items: Sequence[str], run: RunSummary | None, now: str
) -> list[str]:
    """Return the requested missions; read only the names of the others."""
    known = reader.missions()
    if not items and run is None:
        return [name for name in known if reader.history(name).starts]
    wanted = dict.fromkeys(run.all_missions if run else ())
    for item in items:
        wanted |= dict.fromkeys([item] if item in known else _held_by(project, reader, item, now))
    there = set(known)
    found = {name: None for name in wanted if name in there and reader.history(name).starts}
    for name in sorted(known):  # a part is called `<mission>.<phase>.<number>`; so may others be
        whole = name.rsplit(".", 2)[0]
        if whole in found and name != whole and reader.history(name).state.parent == whole:
            found[name] = None
    return list(found)


def _held_by(project: Project, reader: MissionReader, item: str, now: str) -> list[str]:
    """Name the missions of the items in an epic or a feature: by lineage, campaign, or tracker."""
    known, below = reader.missions(), set(reader.run(f"{CAMPAIGN}{item}", now).all_missions)
    with suppress(CapsuleError):  # without a tracker, from the journal alone
        tracker = tracker_if_there(project)
        below |= {each.id for each in tracker.under(item)}
    found = []
    for name in known:
        state = reader.history(name).state
        above = {state.item.parent, *(each.id for each in (state.lineage.feature, state.lineage.epic) if each)}
        if name in below or item in above:
            found.append(name)
    if found:
        return found
    if below:
        hint = f"Start it with `capsule run {item}`."
        raise CapsuleError(f"Nothing in {item} has been started yet.", hint, exit_code=1)
    known_mission(project, item)  # refuses it, and names the existing ones
    return []


def _seconds(text: str, now: str) -> float:
    """Return the seconds since the epoch that `--since` means; 0 without it."""
    if not text:
        return 0.0
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if ago:
        return moment(now) - int(ago[1]) * _UNITS[ago[2]]
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "Use an age (30m, 12h, 2d, 1w) or a date (2026-11-01)."
        raise UsageError(f"--since cannot read {text!r}.", hint) from None
    return (day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp()


def _title(
    reader: MissionReader, items: Sequence[str], since: str, run: RunSummary | None, names: Sequence[str]
) -> str:
    if run:
        name = run.stream.removeprefix(RUN)
        return "The last run of the queue" if name == "queue" else f"The last run: {name}"
    if len(items) == 1:
        [item] = items
        lineages = [reader.history(name).state.lineage for name in names]
        above = [each for lineage in lineages for each in (lineage.feature, lineage.epic) if each and each.id == item]
        return f"{item}: {above[0].title}" if above else item
    if items:
        return ", ".join(items[:_NAMED]) + (", ..." if len(items) > _NAMED else "")
    return f"All missions since {since}" if since else "All missions"
