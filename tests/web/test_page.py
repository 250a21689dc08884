"""The page in a browser, asked by whoever has its cookie and by whoever has not: a real server and a real project."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from urllib.parse import quote

import pytest

from capsule.web.forms import LONGEST_TEXT
from capsule.web.live import MOST_STREAMS
from tests.commands.backlog_project import BacklogProject, blocked
from tests.commands.conftest import ITEM, Project
from tests.costs import LONG, eventually

from .conftest import Serve
from .served import Server

NASTY = '<script>alert(1)</script> "><img src=x onerror=alert(2)> \u202ekcab {{ seal }}'
_PAGES = (
    "",
    "board",
    "items",
    "items?q=%3Cscript%3E",
    "item/WRK-001",
    "item/WRK-002",
    "command/close?item=%3Cscript%3E",
)
_NO_PAGES = ("item/%3Cscript%3E", "item/..%2fetc", "run/%3Cb%3E", "done/%3Cb%3E", "command/%3Cb%3E", "item/WRK-001/x")
ASKED = "Which one?\n" + "word " * 500 + "the end of the question"


def _words(page: str) -> str:
    """What a person reads."""
    return unescape(re.sub(r"<[^>]+>", "", page))


# ---- what is to be seen


@pytest.mark.promise("screens.page")
def test_of_a_merged_mission_everything_can_be_read(a_merged_mission: Project, serve: Serve) -> None:
    server = serve(a_merged_mission)
    overview = _words(server.page(f"item/{ITEM}"))
    assert "merged into main" in overview
    assert "Claims against evidence" in overview
    assert "Timeline" in overview
    changes = _words(server.page(f"item/{ITEM}/changes"))
    assert "+42" in changes
    assert "−41" in changes
    assert "grep -qx 42 answer" in changes
    assert '"verdict": "PASS"' in _words(server.page(f"item/{ITEM}/logs")) or "PASS" in _words(
        server.page(f"item/{ITEM}/logs")
    )
    assert "done as asked" in _words(server.page(f"item/{ITEM}/worklog"))
    assert ITEM in _words(server.page("board"))
    assert ITEM in _words(server.page("items?q=answer+merged")) + _words(server.page("items?q=answer+done"))
    assert "No matches" in _words(server.page("items?q=nothing+of+this"))
    assert ITEM in _words(server.page("merges"))
    assert "Nothing waits for you." in _words(server.page())


@pytest.mark.promise("screens.page")
def test_a_question_is_whole_and_its_answer_is_the_command_that_was_shown(
    a_backlog: BacklogProject, serve: Serve
) -> None:
    a_backlog.hold({"title": "Paint it", **blocked(), "blocked_reason": json.dumps(ASKED)})
    server = serve(a_backlog)
    page = server.page()
    assert "Needs you (1)" in _words(page)
    assert " ".join(ASKED.split()) in " ".join(_words(page).split())
    form = server.form("", "answer/WRK-001/answer")
    shown = server.send("answer/WRK-001/answer", {**form, "text": "The blue\none; $(x)", "show": "1"})
    line = "capsule answer WRK-001 --notes 'The blue\none; $(x)'"
    assert line in _words(shown[1])
    assert a_backlog.item().blocked
    preview = server.send("preview/answer/WRK-001/answer", {"text": "The blue\none; $(x)"})
    assert preview[1] == line
    sent, _ = server.send("answer/WRK-001/answer", {**form, "text": "The blue\none; $(x)"})
    assert sent.status == 303
    assert eventually(lambda: not a_backlog.item().blocked)
    assert a_backlog.item().unblock_context == "The blue\none; $(x)"
    done = str(sent.headers["Location"]).removeprefix(server.enter()[0])
    assert eventually(lambda: "✓ done" in _words(server.page(done)))
    assert line in _words(server.page(done))
    assert "Nothing waits for you." in _words(server.page())


def test_a_text_that_is_missing_or_too_long_is_said_and_what_was_written_stays(
    a_backlog: BacklogProject, serve: Serve
) -> None:
    a_backlog.hold({"title": "Paint it", **blocked()})
    server = serve(a_backlog)
    form = server.form("", "answer/WRK-001/answer")
    empty = server.send("answer/WRK-001/answer", {**form, "text": " "})
    assert (empty[0].status, "write a text first" in empty[1]) == (400, True)
    long = server.send("answer/WRK-001/answer", {**form, "text": "x" * (LONGEST_TEXT + 1)})
    assert (long[0].status, "longer than 100,000 characters" in long[1], "x" * LONGEST_TEXT in long[1]) == (
        *(400, True),
        True,
    )
    assert server.send("answer/WRK-001/answer", {**form, "text": "x" * 1_000_000})[0].status == 413
    assert a_backlog.item().blocked
    gone = server.send("answer/WRK-009/answer", {**form, "text": "x"})
    assert (gone[0].status, "does not wait for that any more" in gone[1]) == (404, True)


@pytest.mark.promise("screens.page", "screens.foreign-text")
def test_words_of_strangers_are_text_on_every_page(a_backlog: BacklogProject, serve: Serve) -> None:
    reason = json.dumps(NASTY)
    a_backlog.hold(
        {"title": reason, "description": reason, "tags": f"[{reason}]"},
        {"title": reason, **blocked(), "blocked_reason": reason},
    )
    server = serve(a_backlog)
    for path in _PAGES:
        page = server.page(path)
        assert not re.search(r"<script(?! src=)|<img|\u202e", page), path
        assert re.search(r"&lt;script&gt;", page), path
        seals = set(re.findall(r'name="seal" value="([^"]+)"', page))
        assert all(page.count(seal) == page.count(f'name="seal" value="{seal}"') for seal in seals)
    for path in _NO_PAGES:
        assert server.status(path) == 404


@pytest.mark.slow
def test_every_form_is_there_and_is_filled_in_with_the_item_it_is_about(a_project: Project, serve: Serve) -> None:
    server = serve(a_project)
    verbs = re.findall(r'/command/([\w-]+)"', server.page("commands"))
    assert {"add", "run", "stop", "answer", "approve", "unblock", "accept", "advance", "close", "complete"} <= {*verbs}
    assert {"abort", "clean", "jobs"} <= {*verbs}
    for verb in verbs:
        page = server.page(f"command/{verb}?item={ITEM}")
        assert f"capsule {verb}" in _words(page)
        assert ("field-item" not in page) or f"{ITEM}</" in page or f'value="{ITEM}"' in page, verb


@pytest.mark.promise("screens.forms")
def test_the_form_that_edits_an_item_says_what_it_has_now(a_backlog: BacklogProject, serve: Serve) -> None:
    item = a_backlog.add("Sort <it>", "--size", "small")
    words = _words(serve(a_backlog).page(f"command/edit?item={item}"))
    assert "now: Sort <it>" in words and "now: small" in words and words.count("now:") == 2


@pytest.mark.promise("screens.page")
def test_what_left_the_backlog_is_listed_with_its_state_and_nothing_made_up(
    a_backlog: BacklogProject, serve: Serve
) -> None:
    item = a_backlog.add()
    assert a_backlog.run().code == 0
    row = serve(a_backlog).page("items").partition(f">{item}<")[2].partition("</tr>")[0]
    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[1:] == ["", "", ""]
    assert _words(row).endswith("✓ done")


@pytest.mark.slow
@pytest.mark.promise("screens.page")
def test_a_run_of_the_queue_is_told_with_its_missions(a_project: Project, serve: Serve) -> None:
    assert a_project.capsule("run").code == 0
    server = serve(a_project)
    run = re.search(r'href="[^"]+/(run/[^"]+)"', server.page("runs"))
    assert run
    page = server.page(run[1])
    assert "ended" in _words(page)
    assert f'{server.enter()[0]}item/{ITEM}"' in page.partition("Timeline")[2]


# ---- what is sent


@pytest.mark.promise("screens.forms")
def test_a_form_counts_once(a_backlog: BacklogProject, serve: Serve) -> None:
    server = serve(a_backlog)
    form = {**server.form("command/add", "command/add"), "title": "Only once"}
    first, _ = server.send("command/add", form)
    assert first.status == 303
    assert eventually(lambda: a_backlog.ids() == ["WRK-001"])
    again = [server.send("command/add", {**form, "title": title})[0] for title in ("Only once", "Something else")]
    assert {(each.status, each.headers["Location"]) for each in again} == {(303, first.headers["Location"])}
    another = {**server.form("command/add", "command/add"), "title": "Another"}
    assert server.send("command/add", another)[0].status == 303
    assert eventually(lambda: len(a_backlog.ids()) == 2)
    assert [a_backlog.item(name).title for name in a_backlog.ids()] == ["Only once", "Another"]


@pytest.mark.promise("screens.forms", "screens.other-pages")
def test_a_form_of_somebody_else_does_nothing(a_backlog: BacklogProject, serve: Serve) -> None:
    server = serve(a_backlog)
    form = {**server.form("command/add", "command/add"), "title": "Not mine"}
    other = server.open(_address(server))
    for fields, headers in (
        (form, {"Origin": "http://evil.example"}),
        (form, {"Origin": "null"}),
        (form, {"Origin": ""}),
        (form, {"Cookie": ""}),
        (form, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
        (form, other[1]),
        ({**form, "seal": "guess"}, {}),
        ({**form, "form": "guess.guess"}, {}),
        ({"title": "Not mine"}, {}),
    ):
        assert server.send("command/add", fields, **headers)[0].status == 403, (fields, headers)
    room, cookie = server.enter()
    assert (
        server.ask(f"{room}command/add?title=Not+mine&seal={form['seal']}&form={form['form']}", **cookie)[0].status
        == 200
    )
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        assert server.ask(f"{room}command/add", method, **cookie)[0].status == 405
    assert server.send("board", form)[0].status == 405
    assert a_backlog.ids() == []
    assert server.send("command/add", form)[0].status == 303


def _address(server: Server) -> str:
    made = re.search(
        r"/\?token=([\w-]+)", server.send("another-browser", server.form("commands", "another-browser"))[1]
    )
    assert made
    return made[1]


@pytest.mark.slow
def test_a_run_is_started_in_the_background_and_goes_on(a_project: Project, serve: Serve) -> None:
    server = serve(a_project)
    form = {**server.form(f"command/run?item={ITEM}", "command/run"), "item": ITEM}
    sent, _ = server.send("command/run", form)
    done = str(sent.headers["Location"]).removeprefix(server.enter()[0])
    assert eventually(lambda: re.search(r"in the background \(pid|✓ done", _words(server.page(done))))
    assert eventually(lambda: "merged into main" in _words(server.page(f"item/{ITEM}")))
    assert eventually(lambda: "✓ done" in _words(server.page(done)))


# ---- what is sent by itself


def _stream(server: Server, page: str) -> Iterator[tuple[str, dict[str, str]]]:
    room, cookie = server.enter()
    connection = HTTPConnection("127.0.0.1", server.port, timeout=LONG)
    connection.request("GET", f"{room}live?page={page}", headers={"Host": server.host, **cookie})
    response = connection.getresponse()
    assert response.status == 200
    kind = ""
    try:
        while line := response.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)
                response.readline()
    finally:
        connection.close()


@pytest.mark.promise("screens.page")
def test_a_page_hears_of_what_has_changed_and_of_nothing_else(a_backlog: BacklogProject, serve: Serve) -> None:
    server = serve(a_backlog)
    told = _stream(server, "board")
    first = {part["id"] for kind, part in (next(told) for _ in range(3)) if kind == "part"}
    assert {"nav", "board"} <= first
    a_backlog.add("It came by itself")
    kind, part = next(told)
    assert (kind, part["id"]) == ("part", "board")
    assert "It came by itself" in part["html"]
    a_backlog.hold({"title": "Paint it", **blocked()})
    assert {part.get("id", kind) for kind, part in (next(told) for _ in range(3))} >= {"nav", "board"}
    told.close()  # type: ignore[attr-defined]


@pytest.mark.promise("screens.page")
def test_the_stream_of_an_odd_address_stops_no_other_page(a_halted_mission: Project, serve: Serve) -> None:
    server = serve(a_halted_mission)
    long_number = f"item/{ITEM}/logs?show={'9' * 4400}"
    assert server.status("live?page=//[") == 400
    assert server.status(long_number) == 200
    odd, board = _stream(server, quote(long_number)), _stream(server, "board")
    for told in (odd, board):
        assert next(told)[0] == "part"
        told.close()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.promise("screens.slow-visitors")
def test_two_hundred_connections_and_slow_readers_stop_nobody(a_backlog: BacklogProject, serve: Serve) -> None:
    server = serve(a_backlog)
    room, cookie = server.enter()
    ask = f"GET {room}live?page=board HTTP/1.1\r\nHost: {server.host}\r\nCookie: {cookie['Cookie']}\r\n\r\n".encode()
    silent = [socket.create_connection(("127.0.0.1", server.port), LONG) for _ in range(200)]
    readers = [socket.create_connection(("127.0.0.1", server.port), LONG) for _ in range(MOST_STREAMS + 5)]
    try:
        answers = []
        for reader in readers:
            reader.sendall(ask)
            answers.append(reader.recv(12))
        assert answers.count(b"HTTP/1.1 200") == MOST_STREAMS
        assert answers.count(b"HTTP/1.1 503") == 5
        assert "Board" in _words(server.page("board"))
        form = {**server.form("command/add", "command/add"), "title": "All the same"}
        assert server.send("command/add", form)[0].status == 303
        assert eventually(lambda: a_backlog.ids() == ["WRK-001"])
    finally:
        for each in (*silent, *readers):
            each.close()

    def has_room() -> bool:
        with socket.create_connection(("127.0.0.1", server.port), LONG) as one:
            one.sendall(ask)
            return one.recv(12) == b"HTTP/1.1 200"

    assert eventually(has_room), "a stream ends with its reader"


# ---- what is offered


def _offered(page: str) -> list[str]:
    """The commands that an item's page links, and those of its answers."""
    return re.findall(r"/command/([\w-]+)\?item=", page) + re.findall(r'action="[^"]+/answer/[^/]+/([\w-]+)"', page)


@pytest.mark.promise("screens.actions")
def test_an_item_page_offers_what_works_and_nothing_twice(a_backlog: BacklogProject, serve: Serve) -> None:
    a_backlog.hold({"title": "Paint it", **blocked()}, {"title": "Ready", "status": "ready"})
    server = serve(a_backlog)
    asked = _offered(server.page("item/WRK-001"))
    assert {"answer", "close", "edit", "depend"} <= {*asked}
    assert not {"run", "unblock", "approve", "hold", "advance", "reopen"} & {*asked}
    assert len(asked) == len({*asked})
    assert {"run", "edit", "depend", "hold", "advance", "complete", "close"} == {*_offered(server.page("item/WRK-002"))}
    for page in ("board", "items"):
        assert {"add", "import", "run", "undo"} <= {*re.findall(r'/command/(\w+)"', server.page(page))}


@pytest.mark.promise("screens.actions")
def test_a_failed_item_offers_no_run_that_is_refused(a_halted_mission: Project, serve: Serve) -> None:
    offered = _offered(serve(a_halted_mission).page(f"item/{ITEM}"))
    assert {"abort", "try-again"} <= {*offered}
    assert not {"unblock", "reopen"} & {*offered}
    assert ("run" in offered) == (a_halted_mission.capsule("run", ITEM, "--dry-run").code == 0)


@pytest.mark.promise("screens.actions")
def test_an_item_that_is_done_offers_to_revert_its_merge(a_merged_mission: Project, serve: Serve) -> None:
    server = serve(a_merged_mission)
    assert "undo" in _offered(server.page(f"item/{ITEM}"))
    form = {**server.form(f"command/undo?item={ITEM}", "command/undo"), "item": ITEM}
    done = str(server.send("command/undo", form)[0].headers["Location"]).removeprefix(server.enter()[0])
    assert eventually(lambda: "no test ran on it" in _words(server.page(done)))
    assert a_merged_mission.git("log", "-1", "--format=%s").startswith(f"[{ITEM}][UNDO] ")


@pytest.mark.promise("screens.forms")
def test_a_list_is_pasted_and_imported(a_backlog: BacklogProject, serve: Serve) -> None:
    server = serve(a_backlog)
    form = {**server.form("command/import", "command/import"), "file": "- Sort it\n  by surname\n- -v $(x)\n"}
    assert "$ capsule import -" in _words(server.page("command/import"))
    assert server.send("preview/command/import", form)[1] == "capsule import -"
    assert server.send("command/import", form)[0].status == 303
    assert eventually(lambda: len(a_backlog.ids()) == 2)
    assert [a_backlog.item(name).title for name in a_backlog.ids()] == ["Sort it", "-v $(x)"]
