"""Read what waits for a person, from the board of missions and the tracker's items."""

from __future__ import annotations

from contextlib import closing

from capsule.core.board import Board
from capsule.core.history import NOBODY, MissionSummary, read_mission
from capsule.core.inbox import Question, inbox, way_on
from capsule.core.item import Item
from capsule.core.state import children_of, replay
from capsule.project import Project


def questions_of(project: Project, board: Board) -> tuple[Question, ...]:
    """Return what needs a person now, oldest first."""
    return inbox(board, project.tracker.under(""))


def command_for(project: Project, item: Item) -> str:
    """Return the command that helps an item that waits for a person or a budget; '' for any other."""
    with closing(project.journal(read_only=True)) as journal:

        def whole(mission: str) -> MissionSummary:
            events = [event for _, event in journal.events(mission)]
            parts = children_of(replay(events), lambda name: replay(event for _, event in journal.events(name)))
            history = read_mission(events)
            return history.summary(NOBODY, history.last).holding(tuple(whole(part.mission) for part in parts))

        return way_on(whole(item.id) if journal.events(item.id) else None, item)
