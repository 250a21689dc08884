"""Which Python a test command runs."""

from __future__ import annotations

import pytest

from capsule.core.detection import interpreter_of

ON_THE_PATH = "$(command -v python3 || command -v python)"


@pytest.mark.parametrize(
    ("command", "interpreter"),
    [
        ("python3 -m pytest -q", "python3"),
        ("cd api && python3.12 -m unittest", "python3.12"),
        (".venv/bin/python -m pytest", ".venv/bin/python"),
        (".venv/bin/pytest -q tests", ".venv/bin/python"),
        ("uv run pytest", "uv run python"),
        ("make lint && poetry run pytest -x", "poetry run python"),
        ("pytest", ON_THE_PATH),
        ("make test", ON_THE_PATH),
        ("npm test", ON_THE_PATH),
    ],
)
def test_the_interpreter_of_a_test_command(command: str, interpreter: str) -> None:
    assert interpreter_of(command) == interpreter
