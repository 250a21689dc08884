"""What a person must answer is whole wherever it is told, however long it is."""

from __future__ import annotations

import pytest

from .backlog_project import BacklogProject
from .backlog_script import turn

LONG = " ".join(f"word{number}" for number in range(1, 901))
SCREENS = ("status", "explain WRK-001", "report", "report --html -", "show WRK-001", "dashboard --plain --once")
ASKED = f"Which shop? {LONG} That is all."


@pytest.mark.parametrize(
    "answer",
    [
        turn("triage", "BLOCKED", context=ASKED),
        pytest.param(turn("triage", "FAILED", findings=[ASKED]), marks=pytest.mark.slow),
    ],
    ids=["a question", "a finding that is asked for three times"],
)
@pytest.mark.promise("screens.eighty-columns")
def test_what_a_person_must_answer_is_whole_everywhere(a_backlog: BacklogProject, answer: dict[str, object]) -> None:
    a_backlog.play({"triage": [answer]})
    a_backlog.add()
    shown = {"run": a_backlog.run().out, **{words: a_backlog.say(*words.split()).out for words in SCREENS}}
    block = a_backlog.item().blocked
    shown["BACKLOG.yaml"] = block.reason if block else ""
    assert [words for words, told in shown.items() if ASKED not in told] == []
