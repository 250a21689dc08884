"""The dashboard in one tab of a browser: a process that reads keys from a pipe and writes its screen to one.

The process ends with the pipe: the tab was closed, the server was stopped, or killed with -9. Textual alone would keep
drawing.
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
    """Prepare this process, before anything else, to read from and write to a tab."""
    _IN_A_BROWSER.set()
    threading.Thread(target=_exit_with_browser_tab, name="tab", daemon=True).start()
    _remove_textual_variables()


def _exit_with_browser_tab() -> None:
    pipe = select.poll()
    pipe.register(_KEYS, 0)  # only watch for the end of the pipe; Textual reads it
    pipe.poll()
    os._exit(0)  # nothing to clean up: started runs continue


def _remove_textual_variables() -> None:
    """Remove Textual's variables, which it has read by now: missions started here must not inherit them."""
    import textual.constants  # noqa: PLC0415

    assert textual.constants.DRIVER
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        del os.environ[name]
