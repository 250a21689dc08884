"""Report on missions: time, claims, cost and diff.

It tells which agent ran when, for how long and at which attempt; what agents claimed, and beside it what Capsule
verified; feedback, cost and diff. Several missions also have totals: how many are done, how many passed at first,
retries, money and time. An epic or a feature stands for what it holds; without an ID it is every mission.

  capsule report demo-1.1.2                        Markdown, on stdout
  capsule report --html report.html                one page that needs no network; its path is printed
  capsule report --since 2d --json | jq .totals
  capsule report --run queue                       the last run of the queue
  capsule report --run demo-1                      the last run of that campaign

Nothing is changed, so it is safe while missions run. A cost that an agent did not report is unknown, and never
counted as zero.

Exit code: 0 reported, also if there are no missions yet; 1 there is no such mission or run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from capsule.app.missions import known_mission
from capsule.commands.arguments import ITEM_ID
from capsule.commands.watching import MissionReader
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.event import CAMPAIGN, MERGES, RUN, is_run
from capsule.core.history import Diff, FileChange, MissionSummary, RunSummary
from capsule.core.item import check_id
from capsule.core.merges import merge_records
from capsule.core.report import Report, nested
from capsule.core.stamps import moment
from capsule.project import Project, open_project, tracker_if_there
from capsule.reports.facts import report_facts
from capsule.reports.markdown import markdown
from capsule.reports.style import output_width
from capsule.system.clock import SystemClock
from capsule.system.files import write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import shown
from capsule.workspaces.trees import all_artefacts, is_artefact

Pairs = tuple[tuple[str, str], ...]
Counted = Mapping[tuple[str, str], list[FileChange]]

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NAMED = 8
_PAIR = re.compile(rb"[0-9a-f]{40,64} [0-9a-f]{40,64}\n")
_NUMSTAT = ("diff-tree", "--stdin", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "items", metavar="ID", type=ITEM_ID, nargs="*", help="missions, or epics and features that hold some"
    )
    parser.add_argument("--run", metavar="NAME", help="the missions of one run: queue, or what `capsule run` was given")
    parser.add_argument("--since", metavar="WHEN", help="only what happened since: 30m, 12h, 2d, 1w, or a date (UTC)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", help="write one HTML page; - is stdout")
    form.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    items = [check_id(name) for name in args.items]
    file = Path(args.html) if args.html not in (None, "-") else None
    if file:  # anything but a regular file is refused before any work is done: it may be precious
        if file.is_symlink():
            raise Refused(f"{file} is a symbolic link; left alone.", "Name the file itself, or - for stdout.")
        if file.is_dir():
            raise Refused(f"{file} is a directory.", f"Name a file in it: --html {file / 'report.html'}")
        if file.exists() and not file.is_file():
            raise Refused(f"{file} is not a regular file; left alone.", "Name another file, or - for stdout.")
    report = gather(open_project(args.project_dir), items, args.run or "", args.since or "")
    if args.json:
        text = json.dumps(report_facts(report), indent=2) + "\n"
    else:
        text = _page(report) if args.html else markdown(report, _width())
        text = text.encode(errors="replace").decode()
    if file is None:
        sys.stdout.write(text)
        return 0
    write_atomically(file, text)
    print(file.absolute())
    return 0


def _page(report: Report) -> str:
    from capsule.pages.report import page  # noqa: PLC0415 - start-up: templates are for pages only

    return page(report)


def _width() -> int:
    """Return how wide Markdown may be: only a person's terminal ends somewhere, whatever COLUMNS says in a pipe."""
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
    missions = with_diffs(project.git, summaries, all_artefacts(tracker_if_there(project).own_files()))
    merges = tuple(record for record in merge_records(trains, summaries) if record.queued)
    return Report(
        project=project.root.name, title=title, as_of=as_of, missions=nested(missions), run=run, merges=merges
    )


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
    """Name the missions asked for; read no more of the others than their names."""
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
    """Name the missions of what an epic or a feature holds: by their own lineage, its campaign, or its tracker."""
    known, below = reader.missions(), set(reader.run(f"{CAMPAIGN}{item}", now).all_missions)
    with suppress(CapsuleError):  # without a tracker, what the journal says has to do
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
    known_mission(project, item)  # refuses it, and names those that there are
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


# ---- changed lines: two or three questions to git, however many missions there are


def with_diffs(git: Git, summaries: Sequence[MissionSummary], bookkeeping: Sequence[str] = ()) -> list[MissionSummary]:
    """Count what each mission changed, without files that are only kept about it."""
    asked = [summary.to_compare() for summary in summaries]
    pairs = {pair for compared, _ in asked for pair in compared}
    trees = _trees(git, {name for pair in pairs for name in pair})
    if any(old.endswith("^") and old not in trees for old, _ in pairs):  # before a first commit there was nothing
        nothing = git.content("hash-object", "-t", "tree", "--stdin", input=b"").out.decode().strip()
        trees |= {old: nothing for old, _ in pairs if old not in trees and old.removesuffix("^") in trees}
    known = {(trees[old], trees[new]) for old, new in pairs if old in trees and new in trees}
    counted = _numstat(git, [(old, new) for old, new in known if old != new], bookkeeping)
    return [
        replace(each, diff=_diff(*question, trees, counted)) for each, question in zip(summaries, asked, strict=True)
    ]


def _diff(pairs: Pairs, note: str, trees: Mapping[str, str], counted: Counted) -> Diff:
    found: dict[str, FileChange] = {}
    for old, new in pairs:
        if old not in trees or new not in trees:
            return Diff(note="its commits are no longer in the repository, so its changes are unknown")
        for file in counted.get((trees[old], trees[new]), ()):
            one = found.get(file.path)
            if one and (one.added is None or file.added is None):
                found[file.path] = FileChange(file.path, None, None)
            elif one:
                added, removed = (one.added or 0) + (file.added or 0), (one.removed or 0) + (file.removed or 0)
                found[file.path] = FileChange(file.path, added, removed)
            else:
                found[file.path] = file
    files = sorted(found.values(), key=lambda file: (-(file.added or 0) - (file.removed or 0), file.path))
    return Diff(files=tuple(files), note=note)


def _trees(git: Git, names: Collection[str]) -> dict[str, str]:
    """Return the tree of each revision that exists."""
    asked = sorted(names)
    if not asked:
        return {}
    lines = "".join(f"{name}^{{tree}}\n" for name in asked).encode()
    rows = git.content("cat-file", "--batch-check=%(objectname) %(objecttype)", input=lines).out.decode().splitlines()
    answers = zip(asked, (row.rsplit(" ", 1) for row in rows), strict=True)
    return {name: oid for name, (oid, kind) in answers if kind == "tree"}


def _numstat(git: Git, pairs: Sequence[tuple[str, str]], bookkeeping: Sequence[str]) -> Counted:
    if not pairs:
        return {}
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    found: dict[tuple[str, str], list[FileChange]] = {}
    files: list[FileChange] = []
    for record in git.content(*_NUMSTAT, input=asked).out.split(b"\0"):
        row = record
        while head := _PAIR.match(row):
            old, new = head[0].decode().split()
            files, row = found.setdefault((old, new), []), row[head.end() :]
        if row:
            added, removed, path = row.split(b"\t", 2)
            binary = added == b"-"
            if not is_artefact(path, bookkeeping):
                files.append(FileChange(shown(path), None if binary else int(added), None if binary else int(removed)))
    return found
