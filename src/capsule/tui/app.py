"""What every screen of ours is, before it shows anything."""

from __future__ import annotations

from typing import TypeVar

from textual.app import App

from capsule.tui.beside import Came, Failed

Result = TypeVar("Result")


class CapsuleApp(App[Result]):
    """A screen whose faults are told like those of any command: one line and a file, and no traceback."""

    ENABLE_COMMAND_PALETTE = False

    def open(self) -> Result | None:
        """Shows it until it is closed; whatever went wrong on the way is raised once the terminal is itself again."""
        result = self.run()
        if self._exception is not None:
            raise self._exception
        return result

    def on_came(self, message: Came) -> None:
        message.then(message.got)

    def on_failed(self, message: Failed) -> None:
        raise message.fault

    def _fatal_error(self) -> None:
        """Closes, and draws no traceback: the terminal is for whoever catches what `open` raises."""
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        self._exit_renderables.clear()
