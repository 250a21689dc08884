"""The page in a real browser: the whole story by mouse and by keyboard, on every size, in light and dark."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from capsule.commands.demo import SHOP, SHOP_FILES
from capsule.commands.setup_template import make_project
from capsule.plain_files import parse_yaml
from tests.conftest import UNBROKEN, Repo
from tests.costs import eventually
from tests.live.browser import Browser, browser
from tests.live.missions import BACKLOG_SCRIPT, DISHONEST, RECEIPT
from tests.live.test_browser import ITEM, _environment, _keep, _served, project

__all__ = ["project"]
_MISSION = 300.0
_QUESTION = "Which of the two layouts is meant?\n\nThe customer wrote: as in the old shop."
_ADDED = "Print a receipt"
_SCRIPT = "script.json"
_MISSION_HEADINGS = (
    *("Where it stands", "Timeline", "What is proven", "Only said", "Tests by name", "Mutants that no test noticed"),
    *("Claims against evidence", "Feedback: 3 rounds", "Description"),
)
_TOLD_TABLE = "Left: what agents wrote of themselves, unproven. Right: what was checked."
_TIMES = "document.querySelectorAll('table.times tbody tr').length"
_FAULTS = """
document.querySelectorAll("pre").forEach((text) => { text.style.maxHeight = "2rem"; });
axe.run(document).then((found) => JSON.stringify({
  passes: found.passes.length,
  faults: found.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 200))]),
}))
"""
"""Every text is made longer than its box: whoever has no mouse has to be able to scroll it."""


@pytest.fixture
def shop(chromium: Path, a_shop: Repo, tmp_path: Path) -> Iterator[Browser]:
    """The page of an empty backlog, in its inbox."""
    with _served(a_shop, tmp_path / _SCRIPT) as address, browser(chromium, tmp_path) as page:
        page.go(address)
        page.until_it_reads("Nothing waits for you.")
        assert urlsplit(address).query not in page.address()
        yield page
        elsewhere = [url for url in page.requests if urlsplit(url).netloc not in ("", urlsplit(address).netloc)]
        assert ([url for url in elsewhere if not url.startswith("data:")], page.complaints) == ([], [])


@pytest.fixture
def a_shop(tmp_path: Path) -> Repo:
    """The agent of its first item asks a question, claims once what is not so, and works when it is told to."""
    make_project(tmp_path / "project", "none", template=SHOP, files=SHOP_FILES, message="A shop")
    (tmp_path / "home").mkdir()
    plays = msgspec.convert(parse_yaml(BACKLOG_SCRIPT.read_bytes(), "script"), dict[str, Any])[RECEIPT]
    asks = {"item_id": RECEIPT, "phase": "prd", "result": "BLOCKED", "summary": "asks", "context": _QUESTION}
    plays["prd"].insert(0, {"result": {**asks, "block_type": "clarification"}})
    plays["research"][0]["run"] = [
        f"echo It begins; {_until(tmp_path / 'printed')}; echo It goes on; {_until(tmp_path / 'read')}"
    ]
    (tmp_path / _SCRIPT).write_text(json.dumps({RECEIPT: plays}))
    words = [sys.executable, "-m", "capsule", "init"]
    subprocess.run(words, cwd=tmp_path / "project", env=_environment(tmp_path), check=True, capture_output=True)
    return Repo(tmp_path / "project")


def _until(file: Path) -> str:
    return f"until test -e {shlex.quote(str(file))}; do sleep 0.1; done"


def _room(page: Browser) -> str:
    parts = urlsplit(page.address())
    return f"{parts.scheme}://{parts.netloc}/{parts.path.split('/')[1]}/"


@pytest.mark.promise("screens.browser")
def test_the_whole_story_by_mouse(shop: Browser, a_shop: Repo, tmp_path: Path) -> None:
    def write(field: str, words: str) -> None:
        shop.click_on(field)
        shop.type(words)

    shop.click_on('nav a[href$="/board"]')
    shop.until_it_reads("needs you", "ready")
    shop.click_on('a[href$="/command/add"]')
    _tell_the_story(shop, tmp_path, shop.click_on, write)
    _assert_done(a_shop)


@pytest.mark.promise("screens.browser")
def test_the_whole_story_by_keyboard_alone(shop: Browser, a_shop: Repo, tmp_path: Path) -> None:
    def follow(selector: str) -> None:
        _tab_to(shop, selector)
        shop.press("Enter")

    def write(field: str, words: str) -> None:
        _tab_to(shop, field)
        shop.type(words)

    _press(shop, "n")
    _tell_the_story(shop, tmp_path, follow, write)
    for text in ('pre[aria-label^="What was seen"]', 'pre[aria-label^="Feedback"]'):
        _tab_to(shop, text)
    _assert_done(a_shop)


def _tell_the_story(
    page: Browser, folder: Path, follow: Callable[[str], None], write: Callable[[str, str], None]
) -> None:
    """From a form that adds an item: it is run, asks, is answered, is watched, and is there in the end."""
    page.until_it_reads("capsule add TITLE")
    write("#field-title", _ADDED)
    page.until_it_reads(f"capsule add '{_ADDED}'")
    follow("form.verb button.main")
    page.until_it_reads("done", f"capsule add '{_ADDED}'")

    follow('nav a[href$="/items"]')
    _run(page, follow)
    page.until_it_reads(*_QUESTION.split("\n\n"), seconds=_MISSION)  # by itself: nobody loads it anew
    write(f"#t-{RECEIPT}-answer", "The second one.")
    page.until_it_reads(f"capsule answer {RECEIPT} --notes 'The second one.'")
    follow(f"#f-{RECEIPT}-answer button.main")
    page.until_it_reads("✓ done")
    follow('nav a[href$="/items"]')
    _run(page, follow)

    follow(f'a[href$="/item/{RECEIPT}/logs"]')
    page.until_it_reads("It begins", seconds=_MISSION)
    page.value("window.loaded = 'once'")
    (folder / "printed").touch()
    page.until_it_reads("It goes on")
    assert page.value("window.loaded") == "once", "the output grows in a page that stays"
    follow(f'a[href$="/item/{RECEIPT}"]')
    page.until_it_reads("Right now")
    page.value("window.loaded = 'once'")
    before = page.value(_TIMES)
    (folder / "read").touch()
    page.until_it_reads("What is proven", "✓ done", seconds=_MISSION)
    assert page.value(_TIMES) >= before + 3
    assert page.value("window.loaded") == "once", "the timeline grows in a page that stays"

    page.until_it_reads("Claims against evidence", "REFUTED", "test_an_amount_has_two_digits_after_the_point")
    _keep("page-of-a-mission.png", page.picture(whole_page=True))
    follow(f'a[href$="/item/{RECEIPT}/changes"]')
    page.until_it_reads("def receipt")
    follow(f'a[href$="/item/{RECEIPT}"]')
    page.until_it_reads("Where it stands")


def _run(page: Browser, follow: Callable[[str], None]) -> None:
    """From the list of items to the page of one that runs."""
    page.until_it_reads(RECEIPT)
    follow(f'main a[href$="/item/{RECEIPT}"]')
    follow(f'a[href$="/command/run?item={RECEIPT}"]')
    page.until_it_reads(f"capsule run {RECEIPT}")
    follow("form.verb button.main")
    page.until_it_reads("in the background")
    follow(f'main a[href$="/item/{RECEIPT}"]')
    page.until_it_reads("Where it stands")


def _assert_done(shop: Repo) -> None:
    assert shop.git("log", "-1", "--format=%s", "main").startswith(f"[{RECEIPT}][ARCHIVE] Completed: ")
    assert "The second one." in shop.git("log", "--format=%B", "main")


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
    env = {name: value for name, value in _environment(project.path.parent).items() if name not in UNBROKEN}
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
    page.until_it_reads("no test ran on it")
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


@pytest.mark.promise("screens.page", "screens.everybody")
def test_a_mission_is_told_to_eyes_ears_and_the_clipboard(told: Browser) -> None:
    told.go(f"{_room(told)}item/{DISHONEST}")
    told.until_it_reads("Mutants that no test noticed", "every test still passes", "agents cost")
    nodes = [node for node in told.accessibility() if not node.get("ignored")]
    heard = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    headings = [name for role, name in heard if role == "heading"]
    assert headings == [f"{DISHONEST}: Validate phone format", *_MISSION_HEADINGS]
    assert ("navigation", f"About {DISHONEST}") in heard
    assert ("image", "refuted") in heard
    assert ("group", "What was seen, in full") in heard
    assert ("table", _TOLD_TABLE) in heard
    assert any(role == "columnheader" and name == "Capsule verified" for role, name in heard)
    assert any(role == "image" and name.startswith("execute, attempt 2, by scripted: REFUTED") for role, name in heard)

    assert _copied(told, "#mutants + ul li") == str(told.value("document.querySelector('#mutants + ul li').innerText"))
    told.go(f"{_room(told)}item/{DISHONEST}/changes")
    told.until_it_reads("def validate_phone")
    assert "\ndef validate_phone(phone: str) -> bool:\n" in _copied(told, "table.code tbody")


def _copied(page: Browser, selector: str) -> str:
    """What a selection of all of it puts on the clipboard."""
    chosen = f"getSelection().selectAllChildren(document.querySelector({json.dumps(selector)}))"
    return str(page.value(f"{chosen}; getSelection().toString()"))


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
