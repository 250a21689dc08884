"""Every event is told, in plain lines and in a mission's history, or is here with the reason why it is not."""

from __future__ import annotations

from typing import get_args

import pytest

from capsule.core import event as events
from capsule.core import history
from capsule.reports import plain

NOT_IN_HISTORY = {
    "Proposed": "the end of its step says what was merged",
    "RequestPrepared": "the end of its step says what is proposed",
    "Spent": "it counts towards the state's spending",
    "TestsFound": "it changes the state's policy, which names the command from then on",
    "ItemClosed": "the end of the mission says so",
    "Discovered": "the tracker has the new items",
    "RunStarted": "of a run, which has a history of its own",
    "Limited": "its mission tells that it waits",
    "JobsSet": "of a run",
    "StopAsked": "of a run",
    "AnswerGiven": "of a run",
    "Taken": "of a run",
    "Closing": "of a run",
    "Spawned": "of a run",
    "AgentEnded": "of a run",
    "RunEnded": "of a run",
    "HandedIn": "of a merge queue",
    "Served": "of a merge queue",
    "Stacked": "of a merge queue",
    "Batched": "of a merge queue",
    "ParentClosed": "of a campaign",
    "Advanced": "of a campaign",
}
NOT_IN_PLAIN_LINES = {
    "Recorded": "a queue tells what is new in it; the commit is in `show`",
    "Proposed": "the publish step tells what follows from it",
    "Spent": "the step's end tells the cost",
    "Abandoned": "the command that gave the mission up says so",
    "Limited": "whoever waits for it tells it",
    "JobsSet": "a queue tells it",
    "StopAsked": "its mission tells that it was stopped",
    "AnswerGiven": "its mission tells that it goes on",
    "Taken": "its mission tells that it begins",
    "Closing": "the end of the run says why",
    "Spawned": "a queue counts it",
    "AgentEnded": "its step tells how it ended",
    "HandedIn": "its mission tells that it waits",
    "Served": "its mission tells what came of it",
    "Stacked": "its mission tells what came of it",
    "Batched": "each of its missions tells what came of it",
    "RunStarted": "a queue tells it",
}
IN_THE_MATCH = {"MissionStarted", "StepBegun", "StepEnded", "Stopped", "RunEnded", "Observed", "Waiting"}
NEEDS = "{} needs a row in {}, or else a reason in {} above; ARCHITECTURE.md names what else shows an event"
KINDS = [kind.__name__ for kind in get_args(events.Event)]


@pytest.mark.parametrize("name", KINDS)
def test_an_event_has_its_place_in_a_missions_history_or_a_reason_not_to(name: str) -> None:
    told = {kind.__name__ for kind in history._CHANGES}
    assert (name in told) != (name in NOT_IN_HISTORY), NEEDS.format(name, "core/history.py", "NOT_IN_HISTORY")


@pytest.mark.parametrize("name", KINDS)
def test_an_event_is_a_plain_line_or_has_a_reason_not_to_be(name: str) -> None:
    told = {kind.__name__ for kind in plain._SAID} | IN_THE_MATCH
    assert (name in told) != (name in NOT_IN_PLAIN_LINES), NEEDS.format(name, "reports/plain.py", "NOT_IN_PLAIN_LINES")
