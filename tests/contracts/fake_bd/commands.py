"""What bd can be asked."""

from __future__ import annotations

from tests.contracts.fake_bd.answers import Failed
from tests.contracts.fake_bd.changing import Changing
from tests.contracts.fake_bd.making import Making
from tests.contracts.fake_bd.reading import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Bd(Reading, Changing, Making):
    def run(self) -> None:
        commands: dict[str, Callable[[], None]] = {
            "export": self.export, "list": self.list_rows, "ready": self.ready, "show": self.show,
            "update": self.update, "close": self.close, "create": self.create, "comments": self.comments,
            "dep": self.dep, "import": self.import_rows, "init": self.init,
        }  # fmt: skip
        try:
            commands[self.words.command]()
        except Failed as failed:
            self.code = 1
            self._fail(failed)
