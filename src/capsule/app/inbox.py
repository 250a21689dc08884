"""Read what waits for a person, from the board of missions and the tracker's items."""

from __future__ import annotations

from capsule.core.board import Board
from capsule.core.inbox import Question, inbox
from capsule.project import Project


def questions_of(project: Project, board: Board) -> tuple[Question, ...]:
    """Return what needs a person now, oldest first."""
    return inbox(board, project.tracker.under(""))
