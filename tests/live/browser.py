"""A real browser without a window: Chromium, told what to do by the DevTools protocol over a pair of pipes.

What xterm.js draws is pixels. So the page's own terminal is taken hold of as it is made, and asked for its rows: what
stands there is what a person reads. Keys and clicks go in where those of a person do.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.costs import LONG

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SIZE = (1280, 800)
_OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--no-first-run", "--enable-unsafe-swiftshader"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    f"--window-size={_SIZE[0]},{_SIZE[1]}",
)
# It wants to be told on 3, and answers on 4.
_WITH_PIPES = """
import fcntl, os, sys
orders, answers = (fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3])
os.dup2(orders, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
# The public class of xterm.js keeps what it wraps under this name; nothing else of the page does.
_TAKE_HOLD = """
Object.defineProperty(Object.prototype, '_core', {configurable: true, set(core) {
  Object.defineProperty(this, '_core', {value: core, writable: true, configurable: true});
  if (this.loadAddon) window.held = this;
}});
"""
_ROWS = """
(() => {
  const shown = window.held && window.held.buffer.active;
  return shown ? Array.from({length: shown.length}, (_, row) => shown.getLine(row).translateToString(true)) : [];
})()
"""
_CELLS = """
(() => {
  const box = document.querySelector('.xterm-screen').getBoundingClientRect();
  return [box.left, box.top, box.width / window.held.cols, box.height / window.held.rows];
})()
"""
_MIDDLE = """
(() => {
  if (document.readyState !== 'complete') return null;
  const found = [...document.querySelectorAll(SELECTOR)].find((one) => one.getClientRects().length);
  if (!found) return null;
  found.scrollIntoView({block: 'center'});
  const box = found.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})()
"""
# What a key is called, what it writes, and the number that old pages know it by.
_KEYS = {
    "Enter": ("Enter", "\r", 13),
    "Escape": ("Escape", "", 27),
    "Tab": ("Tab", "", 9),
    "Up": ("ArrowUp", "", 38),
    "Down": ("ArrowDown", "", 40),
    "Left": ("ArrowLeft", "", 37),
    "Right": ("ArrowRight", "", 39),
}


def found(path: str | None = None) -> Path | None:
    return next((Path(place) for name in NAMES if (place := shutil.which(name, path=path))), None)


class Browser:
    """One page. What it is asked is asked again until it is so, or until nothing can be the matter but a fault."""

    def __init__(self, orders: int, answers: int, pid: int) -> None:
        self.pid = pid
        self._orders, self._answers = orders, answers
        self._heard, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=_TAKE_HOLD)

    def go(self, address: str) -> None:
        self._ask("Page.navigate", url=address)

    def address(self) -> str:
        return str(self.value("location.href"))

    def value(self, expression: str) -> Any:
        """What JavaScript in the page says; None while there is no page."""
        return self._ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def rows(self) -> list[str]:
        return list(self.value(_ROWS) or [])

    def shows(self, *texts: str) -> bool:
        screen = "\n".join(self.rows())
        return all(text in screen for text in texts)

    def until_it_shows(self, *texts: str, seconds: float = LONG) -> None:
        deadline = time.monotonic() + seconds
        while not self.shows(*texts):
            assert time.monotonic() < deadline, f"no {texts} in:\n" + "\n".join(self.rows())
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        for key in keys:
            name, text, code = _KEYS.get(key, (key, key, ord(key[0].upper())))
            about = {"key": name, "windowsVirtualKeyCode": code, "code": name if key in _KEYS else ""}
            self._ask("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
            self._ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self._ask("Input.insertText", text=text)

    def click(self, text: str) -> None:
        """In the middle of where it stands first."""
        self.until_it_shows(text)
        row, line = next((number, line) for number, line in enumerate(self.rows()) if text in line)
        left, top, width, height = self.value(_CELLS)
        at = {"x": left + (line.index(text) + len(text) / 2) * width, "y": top + (row + 0.5) * height}
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            button = "none" if kind == "mouseMoved" else "left"
            self._ask("Input.dispatchMouseEvent", type=kind, button=button, buttons=buttons, clickCount=1, **at)

    def reads(self) -> str:
        """What a person reads on a page of HTML."""
        return str(self.value("document.body ? document.body.innerText : ''") or "")

    def until_it_reads(self, *texts: str, seconds: float = LONG) -> None:
        deadline = time.monotonic() + seconds
        while not all(text in self.reads() for text in texts):
            assert time.monotonic() < deadline, f"no {texts} in:\n{self.reads()}"
            time.sleep(0.1)

    def click_on(self, selector: str) -> None:
        """In the middle of the first element that is so and is seen."""
        deadline, box = time.monotonic() + LONG, None
        while not box:
            assert time.monotonic() < deadline, f"no {selector} in:\n{self.reads()}"
            box = self.value(_MIDDLE.replace("SELECTOR", json.dumps(selector)))
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            button = "none" if kind == "mouseMoved" else "left"
            at = {"x": box[0], "y": box[1]}
            self._ask("Input.dispatchMouseEvent", type=kind, button=button, buttons=buttons, clickCount=1, **at)

    def promised(self, expression: str) -> Any:
        """What a promise of JavaScript comes to."""
        about = {"awaitPromise": True, "returnByValue": True}
        return self._ask("Runtime.evaluate", expression=expression, **about)["result"].get("value")

    def prefers(self, scheme: str) -> None:
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def set_cookie(self, name: str, value: str, url: str, path: str) -> None:
        self._ask("Network.setCookie", name=name, value=value, url=url, path=path, httpOnly=True, sameSite="Strict")

    def accessibility(self) -> list[dict[str, Any]]:
        """The tree that a screen reader is given."""
        return list(self._ask("Accessibility.getFullAXTree")["nodes"])

    def resize(self, width: int, height: int) -> None:
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, *, whole_page: bool = False) -> bytes:
        """A PNG."""
        shot = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)
        return base64.b64decode(shot["data"])

    def close(self) -> None:
        """The page; the browser goes with its process."""
        self.go("about:blank")

    # ── the conversation ──

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        order: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            self._note(message)
        assert "error" not in message, f"{method}: {message['error']}"
        return dict(message["result"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + LONG
        while b"\0" not in self._heard:
            assert select.select([self._answers], [], [], max(0, deadline - time.monotonic()))[0], "it says nothing"
            more = os.read(self._answers, 1 << 20)
            assert more, "Chromium has ended"
            self._heard += more
        message, _, self._heard = self._heard.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(about["url"])
            case "Log.entryAdded":
                self.complaints.append(f"{about['entry']['level']}: {about['entry']['text']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"].get("exception", {}).get("description")))


@contextmanager
def browser(program: Path, folder: Path) -> Iterator[Browser]:
    """Its profile and all else it writes is in the folder. It ends with the block, and all its processes with it."""
    theirs_in, orders = os.pipe()
    answers, theirs_out = os.pipe()
    words = [str(program), *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _WITH_PIPES, str(theirs_in), str(theirs_out), *words],
            pass_fds=(theirs_in, theirs_out),
            env={**os.environ, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(orders, answers, process.pid)
    finally:
        os.close(orders)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(answers)
