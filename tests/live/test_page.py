"""The page in a real browser: the whole story by mouse and by keyboard, on every size, in light and dark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import Repo
from tests.costs import eventually
from tests.live.browser import Browser, browser
from tests.live.missions import DISHONEST
from tests.live.test_browser import ITEM, TITLE, _environment, _keep, _merges, _served, project

__all__ = ["project"]
_MISSION = 300.0
_QUESTION = "Which of the two layouts is meant?\n\nThe customer wrote: as in the old shop."
_ADDED = "Show the sum in words"
_FAULTS = """
document.querySelectorAll("pre").forEach((text) => { text.style.maxHeight = "2rem"; });
axe.run(document).then((found) => JSON.stringify({
  passes: found.passes.length,
  faults: found.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 200))]),
}))
"""
"""Every text is made longer than its box: whoever has no mouse has to be able to scroll it."""


@pytest.fixture
def page(chromium: Path, project: Repo, tmp_path: Path) -> Iterator[Browser]:
    """The page of the demo project, in its inbox."""
    with _served(project) as address, browser(chromium, tmp_path) as page:
        page.go(address)
        page.until_it_reads("Nothing waits for you.")
        assert urlsplit(address).query not in page.address()
        yield page
        elsewhere = [url for url in page.requests if urlsplit(url).netloc not in ("", urlsplit(address).netloc)]
        assert ([url for url in elsewhere if not url.startswith("data:")], page.complaints) == ([], [])


def _room(page: Browser) -> str:
    parts = urlsplit(page.address())
    return f"{parts.scheme}://{parts.netloc}/{parts.path.split('/')[1]}/"


@pytest.mark.promise("screens.browser")
def test_the_whole_story_by_mouse(page: Browser, project: Repo) -> None:
    page.click_on('nav a[href$="/board"]')
    page.until_it_reads("needs you", "ready")
    page.click_on('a[href$="/command/add"]')
    page.click_on("#field-title")
    page.type(_ADDED)

    page.until_it_reads(f"capsule add '{_ADDED}'")
    page.click_on("form.verb button.main")
    page.until_it_reads("done", f"capsule add '{_ADDED}'")
    assert _ADDED in (project.path / ".beads" / "issues.jsonl").read_text()

    page.click_on('nav a[href$="/items"]')
    page.click_on(f'a[href$="/item/{ITEM}"]')
    page.until_it_reads(TITLE)
    page.click_on(f'a[href$="/command/run?item={ITEM}"]')
    page.until_it_reads(f"capsule run {ITEM}")
    page.click_on("form.verb button.main")
    page.until_it_reads("in the background")
    page.click_on(f'main a[href$="/item/{ITEM}"]')
    page.until_it_reads("Where it stands")
    page.until_it_reads("merged into main", seconds=_MISSION)  # by itself: nobody loads it anew
    assert _merges(project) == [f"Merge {ITEM}: {TITLE}"]
    page.until_it_reads("What is proven", "Claims against evidence", "test_rejects_a_missing_side")
    _keep("page-of-a-mission.png", page.picture(whole_page=True))
    page.click_on(f'a[href$="/item/{ITEM}/changes"]')
    page.until_it_reads("def validate_email")
    page.click_on(f'a[href$="/item/{ITEM}/logs"]')
    page.until_it_reads("sign-off")


@pytest.mark.promise("screens.browser")
def test_the_whole_story_by_keyboard_alone(page: Browser, project: Repo) -> None:
    _press(page, "n")
    page.until_it_reads("capsule add TITLE")
    _tab_to(page, "#field-title")
    page.type(_ADDED)
    page.press("Enter")
    page.until_it_reads("done", f"capsule add '{_ADDED}'")

    _press(page, "g", "t")
    page.until_it_reads(TITLE)
    _tab_to(page, f'a[href$="/item/{ITEM}"]')
    page.press("Enter")
    page.until_it_reads("Description")
    _tab_to(page, f'a[href$="/command/run?item={ITEM}"]')
    page.press("Enter")
    page.until_it_reads(f"capsule run {ITEM}")
    _tab_to(page, "form.verb button.main")
    page.press("Enter")
    page.until_it_reads("in the background")
    _tab_to(page, f'main a[href$="/item/{ITEM}"]')
    page.press("Enter")
    page.until_it_reads("merged into main", seconds=_MISSION)
    assert _merges(project) == [f"Merge {ITEM}: {TITLE}"]
    _tab_to(page, f'a[href$="/item/{ITEM}/changes"]')
    page.press("Enter")
    page.until_it_reads("def validate_email")


def _press(page: Browser, *keys: str) -> None:
    """Once the page listens to keys."""
    assert eventually(lambda: page.value("document.body.classList.contains('scripted')"))
    page.press(*keys)


def _tab_to(page: Browser, selector: str) -> None:
    """Press Tab until it has the focus, and can be seen to have it."""
    where = f"document.activeElement.matches({json.dumps(selector)})"
    for _ in range(120):
        if page.value(where):
            assert page.value("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
        page.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


@pytest.fixture
def asking(chromium: Path, a_backlog_that_asks: Repo, tmp_path: Path) -> Iterator[Browser]:
    with _served(a_backlog_that_asks) as address, browser(chromium, tmp_path) as page:
        page.go(address)
        page.until_it_reads("Needs you (1)")
        yield page


@pytest.fixture
def told(chromium: Path, a_finished_run: Repo, tmp_path: Path) -> Iterator[Browser]:
    """The page of a project where a run has merged two items, one of them with a surviving mutant."""
    with _served(a_finished_run) as address, browser(chromium, tmp_path) as page:
        page.go(address)
        page.until_it_reads("Nothing waits for you.")
        yield page


@pytest.fixture
def a_finished_run(project: Repo) -> Repo:
    words = [sys.executable, "-m", "capsule", "run", "--no-tui"]
    env = _environment(project.path.parent)
    subprocess.run(words, cwd=project.path, env=env, check=True, capture_output=True)
    return project


@pytest.fixture
def a_backlog_that_asks(project: Repo) -> Repo:
    """A backlog beside the demo's beads, with a question, and words that would break a page."""
    items = [
        {"title": "Print a receipt", "status": "blocked", "blocked_from_status": "ready", "blocked_reason": _QUESTION},
        {"title": f"<script>alert(1)</script> {'averylongword' * 12}", "status": "ready"},
    ]
    rows = ["schema_version: 1", f"last_id: {len(items)}", "items:"]
    for number, item in enumerate(items, 1):
        rows.append(f"  - id: WRK-{number:03}")
        rows += [f"    {name}: {json.dumps(value)}" for name, value in item.items()]
        rows += ["    created: 2026-02-11T09:30:00Z"]
        rows += ["    blocked_type: clarification"] if item["status"] == "blocked" else []
    project.git("rm", "-q", "-r", "--cached", ".beads", "--ignore-unmatch")
    for file in sorted((project.path / ".beads").glob("*")):
        file.unlink()
    project.write("BACKLOG.yaml", "\n".join(rows) + "\n")
    project.write(".capsule/config.yaml", "")
    project.commit("backlog")
    return project


@pytest.mark.promise("screens.page")
def test_a_question_is_answered_where_it_is_read(asking: Browser, project: Repo) -> None:
    asking.until_it_reads("as in the old shop")
    asking.click_on("#t-WRK-001-answer")
    asking.type("The second one.\nWith prices.")
    asking.until_it_reads("capsule answer WRK-001 --notes 'The second one.\nWith prices.'")
    asking.click_on("#f-WRK-001-answer button.main")
    asking.until_it_reads("done")
    assert "The second one." in (project.path / "BACKLOG.yaml").read_text()
    _press(asking, "g", "i")
    asking.until_it_reads("Nothing waits for you.")


@pytest.mark.promise("screens.page", "screens.everybody")
def test_no_page_keeps_anybody_out(asking: Browser, axe_core: str) -> None:
    """axe-core finds nothing, nothing is wider than the screen, and the tree of a screen reader has what it needs."""
    paths = ("", "board", "items", "item/WRK-001", "item/WRK-002", "runs", "merges", "commands", "keys")
    forms = ("command/add", "command/run", "command/edit?item=WRK-001", "command/import", "items?q=nothing")
    assert _faults_of(asking, (*paths, *forms, "command/answer?item=WRK-001"), axe_core) == []


@pytest.mark.promise("screens.page", "screens.everybody")
def test_no_page_of_what_was_done_keeps_anybody_out(told: Browser, axe_core: str) -> None:
    room = _room(told)
    told.go(f"{room}runs")
    told.until_it_reads("ended")
    run = str(told.value("document.querySelector('main h2 a').href")).removeprefix(room)
    paths = ("board", "items", "merges", "runs", run, f"item/{ITEM}")
    mission = [f"item/{DISHONEST}{page}" for page in ("", "/changes", "/logs", "/worklog")]
    assert _faults_of(told, (*paths, *mission, _sent(told, f"command/undo?item={DISHONEST}")), axe_core) == []


def _sent(page: Browser, form: str) -> str:
    """Send it, and return where it led to."""
    room = _room(page)
    page.go(room + form)
    page.click_on("form.verb button.main")
    page.until_it_reads("git revert")
    return page.address().removeprefix(room)


def _faults_of(page: Browser, paths: Iterable[str], axe_core: str) -> list[str]:
    room, found = _room(page), []
    for path in paths:
        for scheme in ("light", "dark"):
            for width in (1280, 390):
                page.prefers(scheme)
                page.resize(width, 844)
                found += [f"{path} {scheme} {width}: {fault}" for fault in _faults(page, room + path, axe_core)]
    return found


def _faults(page: Browser, address: str, axe_core: str) -> list[object]:
    page.go(address)
    assert eventually(lambda: page.value("document.body.classList.contains('scripted')"))
    wide = page.value("document.documentElement.scrollWidth - innerWidth")
    page.value(f"{axe_core};0")
    said = json.loads(page.promised(_FAULTS))
    assert said["passes"] > 10, "axe-core has looked at nothing"
    return [*said["faults"], *([f"{wide} pixels too wide"] if wide > 0 else [])]


@pytest.mark.promise("screens.everybody")
def test_a_screen_reader_is_told_what_an_eye_sees(asking: Browser) -> None:
    nodes = [node for node in asking.accessibility() if not node.get("ignored")]
    told = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    assert {"banner", "main", "navigation", "search", "contentinfo", "status"} <= {role for role, _ in told}
    assert ("heading", "Needs you (1)") in told
    assert ("heading", "WRK-001 Print a receipt") in told
    assert ("textbox", "Answer") in told
    assert ("button", "Answer WRK-001") in told
    assert any("as in the old shop" in name for role, name in told if role == "StaticText")


@pytest.mark.promise("screens.other-pages")
def test_an_address_that_was_used_opens_nothing(chromium: Path, project: Repo, tmp_path: Path) -> None:
    with _served(project) as address, browser(chromium, tmp_path) as page:
        page.go(address)
        page.until_it_reads("Inbox")
        room = page.address()
        (tmp_path / "thief").mkdir()
        with browser(chromium, tmp_path / "thief") as thief:
            for stolen in (address, room):
                thief.go(stolen)
                thief.until_it_reads("without it this is closed")
        page.go(room)
        page.until_it_reads("Inbox")
