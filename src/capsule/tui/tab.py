"""The dashboard in one tab of a browser: a process whose keys come from a pipe and whose screen goes to one.

The tab's end is the pipe's end, however it came about: the tab was closed, the server was stopped, or killed with -9.
Textual would go on drawing for nobody.
"""

from __future__ import annotations

import os
import select
import threading

_IN_A_BROWSER = threading.Event()
_KEYS = 0


def in_a_browser() -> bool:
    """Tell whether the screen is shown in a browser tab, without a terminal."""
    return _IN_A_BROWSER.is_set()


def begin() -> None:
    """Begin, before anything else, a process whose standard input and output are those of a tab."""
    _IN_A_BROWSER.set()
    threading.Thread(target=_exit_with_browser_tab, name="tab", daemon=True).start()
    _remove_textual_variables()


def _exit_with_browser_tab() -> None:
    pipe = select.poll()
    pipe.register(_KEYS, 0)  # that the other end is gone is told unasked; what is to be read is for somebody else
    pipe.poll()
    os._exit(0)  # there is nothing to put away: what was started goes on by itself


def _remove_textual_variables() -> None:
    """Remove Textual's variables, which it has read by now: missions started here must not inherit them."""
    import textual.constants  # noqa: PLC0415

    assert textual.constants.DRIVER
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        del os.environ[name]
