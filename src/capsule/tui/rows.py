"""A list of any length: only visible lines are made, and only changed ones drawn.

Both the lists with a cursor (`Rows`) and the pages that are read (`Page`) are this. The caller passes keys and a
function from number and width to one line; a list that has changed keeps its cursor on the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

Draw = Callable[[int, int], Content]
"""Number and width → a line."""

_MOVING = (
    Binding("down,j", "move(1)"),
    Binding("up,k", "move(-1)"),
    Binding("pagedown,ctrl+f,space", "move_page(1)"),
    Binding("pageup,ctrl+b", "move_page(-1)"),
    Binding("home,g", "first"),
    Binding("end,G", "last"),
)


class Rows(ScrollView, can_focus=True):
    """With a cursor. `Chosen` when it has moved to another key, `Opened` on Enter or a click where it is."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [*_MOVING, Binding("enter", "open")]

    class Chosen(Message):
        def __init__(self, rows: Rows, key: str) -> None:
            super().__init__()
            self.rows, self.key = rows, key

    class Opened(Chosen):
        pass

    class Sized(Message):
        """The width has changed."""

    def __init__(self, *, id: str | None = None, empty: str = "") -> None:
        super().__init__(id=id)
        self._keys: Sequence[str] = ()
        self._draw: Draw = lambda _number, _width: Content(empty)
        self._empty = empty
        self._drawn: dict[int, Content] = {}
        self._at = 0

    @property
    def key(self) -> str:
        """Return the key under the cursor."""
        return self._keys[self._at] if self._keys else ""

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    @property
    def room(self) -> int:
        """Return the visible columns of a line; one is reserved for the scrollbar."""
        return self.scrollable_content_region.width

    def show(self, keys: Sequence[str], draw: Draw, empty: str = "") -> None:
        """`empty` is the text for an empty list."""
        before, self._draw, self._empty = self.key, draw, empty
        if keys != self._keys:
            self._keys = keys
            self._at = keys.index(before) if before in keys else min(self._at, max(0, len(keys) - 1))
        size = Size(self.size.width, max(1, len(keys)))
        if size != self.virtual_size:
            self.virtual_size = size
        self._draw_what_differs()
        if self.key != before:
            self._follow()

    def put_cursor(self, key: str) -> None:
        if key in self._keys:
            self._go(self._keys.index(key))

    def _draw_what_differs(self) -> None:
        width, top = self.room, round(self.scroll_y)
        now = {y: self._line(y, width) for y in range(top, top + self.size.height)}
        for y, line in now.items():
            old = self._drawn.get(y)
            if old is None or not line.is_same(old):
                self.refresh(Region(0, y - top, self.size.width, 1))
        self._drawn = now

    def _line(self, number: int, width: int) -> Content:
        if number < len(self._keys):
            return self._draw(number, width)
        return Content(self._empty) if number == 0 and not self._keys else Content("")

    def render_line(self, y: int) -> Strip:
        number, width = y + round(self.scroll_y), self.room
        base = self.visual_style
        if number not in self._drawn:
            self._drawn[number] = self._line(number, width)
        line = self._drawn[number]
        if self._has_cursor and number == self._at and self._keys:
            base += Style.from_styles(self.get_component_styles("rows--cursor"))
            line = Content(line.plain)
        parse = self.app.stylesheet.parse_style
        segments = [Segment(text, style.rich_style) for text, style in line.render(base, "", parse)]
        return Strip(segments).adjust_cell_length(self.size.width, base.rich_style)

    _has_cursor = True

    # ---- moving

    def action_move(self, step: int) -> None:
        self._go(self._at + step)

    def action_move_page(self, pages: int) -> None:
        self._go(self._at + pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self._keys) - 1)

    def action_open(self) -> None:
        if self._keys:
            self.post_message(self.Opened(self, self.key))

    def on_click(self, event: Click) -> None:
        number = event.y + round(self.scroll_y)
        if not self._has_cursor or number >= len(self._keys):
            return
        again = number == self._at
        self._go(number)
        if again:
            self.action_open()

    def on_resize(self, _: Resize) -> None:
        self._drawn = {}
        self.virtual_size = Size(self.size.width, max(1, len(self._keys)))
        self._show_cursor()
        self.post_message(self.Sized())

    def _go(self, number: int) -> None:
        wanted = max(0, min(number, len(self._keys) - 1))
        if wanted != self._at:
            self.refresh_line(self._at)
            self.refresh_line(wanted)
            self._at = wanted
            self._follow()

    def _follow(self) -> None:
        self._show_cursor()
        self.post_message(self.Chosen(self, self.key))

    def _show_cursor(self) -> None:
        if self._has_cursor:
            self.scroll_to_region(Region(0, self._at, 1, 1), animate=False, force=True)


class Page(Rows, inherit_bindings=False):
    """A page of lines that the keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [*_MOVING]
    _has_cursor = False

    def read(self, lines: Sequence[Content]) -> None:
        self.show([str(number) for number in range(len(lines))], lambda number, _width: lines[number])

    def action_move(self, step: int) -> None:
        self.scroll_relative(y=step, animate=False)

    def action_move_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False)

    def action_first(self) -> None:
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        self.scroll_end(animate=False)
