"""Play lies and honest missions, and print what came of each: `make lies`, `make lies ONLY=bends`."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .catalog import FAMILIES, chosen, surprises
from .player import NEVER_BEGAN, Played, play
from .tools import prepare

_ROW = "{:<12} {:<38} {:<8} {:<10} {:<7} {:>6}  {}"


def row(one: Played, *, details: bool) -> str:
    """Return a line of the table: family, name, expected, outcome, truth, seconds, and why."""
    expected = "refused" if one.case.refused else "merged" if one.case.honest else "caught"
    truth = "-" if one.skipped else "broken" if one.broken else "holds"
    why = one.why or one.broken
    why = " ".join(why.split()) if details else " ".join(why.split())[:60]
    sign = " " if one.skipped or one.well else "!"
    words = (one.case.family, one.case.name, expected, one.outcome, truth, f"{one.seconds:.1f}")
    return sign + _ROW.format(*words, f"{why} {one.folder}".rstrip())


def summary(played: list[Played]) -> list[str]:
    """Return one line for each family, and one for all."""
    lines = [f"  {'family':<12} {'lies caught':<14} honest through"]
    for family in FAMILIES:
        of_family = [one for one in played if one.case.family == family and not one.skipped]
        if of_family:
            lines.append(f"  {family:<12} {_well(of_family, honest=False):<14} {_well(of_family, honest=True)}")
    done = [one for one in played if not one.skipped]
    lies = [one for one in done if not one.case.honest]
    skipped = len(played) - len(done)
    untold = sum(one.outcome == "untold" for one in lies)
    more = f", {untold} lies stopped before they were told" if untold else ""
    never_began = sum(one.outcome == NEVER_BEGAN and not one.well for one in played)
    more += f", {never_began} never began" if never_began else ""
    more += f", {skipped} skipped" if skipped else ""
    caught, through = (_well(done, honest=kind) for kind in (False, True))
    return [*lines, f"lies caught {caught}, honest through {through}{more}"]


def _well(played: list[Played], *, honest: bool) -> str:
    of_kind = [one for one in played if one.case.honest is honest]
    return f"{sum(one.well for one in of_kind)} of {len(of_kind)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lies", description=__doc__)
    parser.add_argument("--only", default="", help="families or names, such as `bends forged/os-exit`")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sandbox", default="off", choices=("off", "required"), help="required: in bubblewrap")
    parser.add_argument("--keep", action="store_true", help="keep each folder, and name it")
    parser.add_argument("--details", action="store_true", help="say in full why")
    parser.add_argument("--table", type=Path, help="write the table there, too")
    asked = parser.parse_args()
    prepare()
    begun, played, lines = time.monotonic(), list[Played](), list[str]()

    def tell(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    tell(" " + _ROW.format("family", "name", "expected", "outcome", "truth", "s", "why").rstrip())
    with ThreadPoolExecutor(asked.jobs) as pool:
        for one in pool.map(lambda case: play(case, sandbox=asked.sandbox, keep=asked.keep), chosen(asked.only)):
            played.append(one)
            tell(row(one, details=asked.details))
    for line in (*summary(played), f"{time.monotonic() - begun:.0f} seconds"):
        tell(line)
    wrong = surprises(played, exact=asked.sandbox == "off")
    for line in wrong:
        tell(f"not as listed: {line}")
    if asked.table:
        asked.table.write_text("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
