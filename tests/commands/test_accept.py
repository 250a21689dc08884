"""`capsule accept`: a person takes one refuted claim as it is, in writing. With real git and real unittest."""

from __future__ import annotations

import sys

import pytest

from capsule.core.event import Accepted, StepEnded

from ..costs import eventually
from ..engine.test_mending import BEYOND, CODE, HELD, VACUOUS
from .backlog_project import BacklogProject
from .backlog_script import honest as honest_backlog
from .backlog_script import stem, turn
from .conftest import ITEM, PASS, Project, assert_clear, nothing_changes, said

UNITTEST = {
    "CAPSULE_EVIDENCE__TEST": f"{sys.executable} -m unittest discover -q -s tests -p 'test_*.py'",
    "CAPSULE_EVIDENCE__MUTANTS": "3",
}
COMMIT = {"run": ['git add -A && git commit -q -m "$CAPSULE_COMMIT_MSG"'], "signal": PASS}
MENDED = CODE.replace("return 0", "return total")
OWED = "\n\ndef owed(total):\n    return total - 1\n"
BECAUSE = "owed is only a hook."


def writing(path: str, *texts: str) -> list[dict[str, object]]:
    return [{"write": {path: text}, "signal": PASS} for text in texts]


def play(project: Project, tests: tuple[str, ...], code: tuple[str, ...]) -> None:
    others = {name: [said("PASS")] for name in ("test-review", "execute-review", "sign-off")}
    written = {"test-writer": writing("tests/test_pay.py", *tests), "execute": writing("pay.py", *code)}
    project.always = UNITTEST
    project.play({**others, **written, "merge": [COMMIT]})


@pytest.fixture
def a_mission_that_needs_you(a_project: Project) -> Project:
    """The tests were mended once; then code came that no test asks for."""
    play(a_project, (VACUOUS, VACUOUS + HELD + BEYOND), (CODE, MENDED + OWED))
    answer = a_project.run()
    assert answer.code == 1, answer
    assert f'  next:        capsule answer {ITEM} --accept demanded --because "..."\n' in answer.out
    return a_project


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_a_vacuous_test_is_mended_and_merged(a_project: Project) -> None:
    play(a_project, (VACUOUS, VACUOUS + HELD), (CODE,))
    answer = a_project.run()
    assert answer.code == 0, answer
    assert [word for word in a_project.walked() if word.split()[0] in ("test-writer", "execute", "sign-off")] == [
        "test-writer PASS", "execute PASS", "sign-off REFUTED", "test-writer PASS", "execute SKIPPED", "sign-off PASS",
    ]  # fmt: skip
    assert "test_halves" in a_project.git("show", "main:tests/test_pay.py")


@pytest.mark.slow
@pytest.mark.promise("accept.goes-on")
@pytest.mark.promise("accept.shown")
def test_an_accepted_claim_is_merged_and_shown_for_ever(a_mission_that_needs_you: Project) -> None:
    project = a_mission_that_needs_you
    assert f'capsule answer {ITEM} --accept demanded --because "..."' in project.say("show", ITEM).out
    answer = project.say("accept", ITEM, "demanded", f"--because={BECAUSE}")
    assert answer.code == 0, answer
    assert "accepted at sign-off that the tests demand the change, although demanded" in answer.out
    assert answer.out.endswith(f"Go on with it: capsule run {ITEM}\n")
    (event,) = [event for event in project.events() if isinstance(event, Accepted)]
    assert (event.phase, event.check, event.because) == ("sign-off", "demanded", BECAUSE)
    assert_clear(
        project.say("accept", ITEM, "demanded", "--because=again"), 1, "accepted already", f"capsule run {ITEM}"
    )
    before = project.walked()
    answer = project.run()
    assert answer.code == 0, answer
    assert project.walked()[len(before)] == "sign-off PASS"
    for words in (("show", ITEM), ("report", ITEM), ("show", ITEM, "--json"), ("report", ITEM, "--html=-")):
        assert BECAUSE in project.say(*words).out, words
    logs = project.path / ".capsule" / "logs" / ITEM
    assert all(BECAUSE in (logs / name).read_text() for name in ("worklog.md", "summary.md", "journal.jsonl"))


@pytest.mark.slow
@pytest.mark.promise("accept.refused")
def test_what_cannot_be_accepted_is_refused_with_the_next_step(a_mission_that_needs_you: Project) -> None:
    project, why = a_mission_that_needs_you, "--because=x"
    with nothing_changes(project):
        assert_clear(project.say("accept", "demo-9", "demanded", why), 1, "no item demo-9", "Did you mean")
        assert_clear(project.say("accept", ITEM, "gren", why), 1, "There is no check 'gren'", "demanded")
        assert_clear(project.say("accept", ITEM, "green", why), 1, "green is not refuted", "Refuted: demanded.")
        assert_clear(
            project.say("accept", ITEM, "demanded", "--because= "), 2, "The reason is empty.", "Give the reason"
        )
        assert_clear(project.say("accept", ITEM, "demanded"), 2, "--because", "--help")


@pytest.mark.promise("accept.refused")
def test_nothing_is_accepted_of_a_mission_that_never_began(a_project: Project) -> None:
    with nothing_changes(a_project):
        answer = a_project.say("accept", ITEM, "demanded", "--because=x")
        assert_clear(answer, 1, f"{ITEM} has no mission yet", f"capsule run {ITEM}")


@pytest.mark.promise("accept.refused")
def test_nothing_is_accepted_of_a_mission_that_runs(a_project: Project) -> None:
    a_project.play({"test-writer": [{"sleep": 60, "signal": PASS}]})
    with a_project.running():
        assert eventually(lambda: "running" in a_project.say("show", ITEM).out)
        answer = a_project.say("accept", ITEM, "demanded", "--because=x")
        assert_clear(answer, 3, "is running (pid ", f"capsule run {ITEM}")


def review_an_untested_change(a_backlog: BacklogProject) -> str:
    """Run an item whose code no test asks for, until it needs a person."""
    papers = stem()
    built = honest_backlog()["build"][-1]["write"][f"{papers}_SPEC.md"]
    write = {"pay.py": CODE, "tests/test_pay.py": VACUOUS, f"{papers}_SPEC.md": built}
    a_backlog.play(honest_backlog(build=[turn("build", write=write)]))
    a_backlog.always = UNITTEST
    a_backlog.test = UNITTEST["CAPSULE_EVIDENCE__TEST"]
    item = a_backlog.add("Find the answer", "--size=small", "--risk=low")
    a_backlog.run(item)
    return item


@pytest.mark.slow
@pytest.mark.promise("accept.backlog")
def test_a_backlog_item_that_needs_you_goes_on_once_accepted(a_backlog: BacklogProject) -> None:
    item = review_an_untested_change(a_backlog)
    reviews = [e for e in a_backlog.events() if isinstance(e, StepEnded) and e.phase == "review"]
    assert [event.decision.move.value for event in reviews] == ["retry", "park"]
    blocked = a_backlog.item().blocked
    assert blocked is not None
    assert f"capsule answer {item} --accept demanded" in blocked.reason
    answer = a_backlog.say("accept", item, "demanded", f"--because={BECAUSE}")
    assert answer.code == 0, answer
    assert a_backlog.item().blocked is None
    answer = a_backlog.run(item)
    assert answer.code == 0, answer
    assert item not in a_backlog.ids()
