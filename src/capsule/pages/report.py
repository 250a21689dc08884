"""A report as one HTML page that needs nothing else: no network, no script, no file beside it.

The page forbids loading and running anything, as a second defence.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from capsule.core.report import Report
from capsule.core.status import Tone
from capsule.pages.environment import HERE, macro, render
from capsule.reports import words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MOST_SECTIONS = 60
"""The most missions that are shown in full, the newest."""


def page(report: Report, diff: str = "") -> str:
    """Draw a report; `diff` is the change of its only mission."""
    told = report.missions[-MOST_SECTIONS:]
    return render("report.html", {**_frame(report), "diff": diff, "shares": _shares(report), "told": told})


def agents_page(report: Report) -> str:
    """Draw a table of the agents."""
    return render("report_by_agent.html", _frame(report))


def _frame(report: Report) -> dict[str, Any]:
    css = Markup((HERE / "report.css").read_text(encoding="utf-8"))  # noqa: S704 - a file of ours
    return {"css": css, "policy": POLICY, "report": report}


def _shares(report: Report) -> dict[str, Markup]:
    """Draw the parts of the figures that are shares of something, by name."""
    totals = report.totals
    passed = ((Tone.GOOD, totals.first_pass), (Tone.WARN, totals.judged - totals.first_pass))
    checked = (
        (Tone.GOOD, totals.claims_confirmed),
        (Tone.BAD, totals.claims_refuted),
        (Tone.WARN, totals.claims_unverified + totals.claims_accepted),
    )
    shares = {"first-pass rate": (passed, totals.judged), "claims checked": (checked, totals.claims)}
    return {
        name: macro("parts.html", "shares", *shares[name], f"{name}: {more}")
        for name, _, more in words.report_figures(report)
        if name in shares
    }
