"""Make HTML of pages: each part by its template, the same for all until it is sealed for one session."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Any

from capsule.pages.environment import render
from capsule.web.admission import Session
from capsule.web.pages import Page, Part, digest

_SEAL = f"seal-{secrets.token_hex(16)}"
_FORM_ID = f"form-{secrets.token_hex(16)}"
"""Placeholders for values of one session. They cannot be written into an item from outside."""
_MOST_KEPT = 200


class Renderer:
    """Draw parts, and keep the result while its key is the same."""

    def __init__(self, room: str, project: str) -> None:
        self._always = {"root": f"/{room}/", "project": project, "seal": _SEAL, "form_id": _FORM_ID}
        self._kept: OrderedDict[tuple[str, str], tuple[object, str, str]] = OrderedDict()

    def part(self, path: str, part: Part) -> tuple[str, str]:
        """Return the HTML of a part, and its digest."""
        where = (path, part.id)
        known = self._kept.get(where)
        if known is None or part.key is None or known[0] != part.key:
            html = self._render(part.template, part.values)
            known = (part.key, html, digest(html))
            self._kept[where] = known
        self._kept.move_to_end(where)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return known[1], known[2]

    def page(self, path: str, page: Page, session: Session) -> str:
        drawn = {part.id: self.part(path, part) for part in page.parts}
        values = {
            "page": page,
            "path": path,
            "parts": [(name, html) for name, (html, _) in drawn.items() if name != "nav"],
            "nav": drawn["nav"][0],
            "seen": ",".join(f"{name}:{mark}" for name, (_, mark) in drawn.items()),
        }
        return sealed(self._render("web/page.html", values), session)

    def _render(self, template: str, values: dict[str, Any]) -> str:
        return render(template, {**self._always, **values})


def sealed(html: str, session: Session) -> str:
    """Insert this session's own values: its seal, and an id for each form."""
    first, *rest = html.replace(_SEAL, session.seals.seal).split(_FORM_ID)
    return "".join([first, *(f"{session.seals.form_id()}{piece}" for piece in rest)])
