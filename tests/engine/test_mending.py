"""Tests that hold nothing go back to whoever writes tests, once; and a person may take a refuted claim as it is."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from capsule.core.event import Accepted, Observed
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Presence, read_mission

from .conftest import PASS, Scene, workflow

UNITTEST = f"{sys.executable} -m unittest -q"
GLOBS = ("test_*.py",)
OK = {"signal": PASS}
COMMIT = {"run": ['git add -A && git commit -q -m "$CAPSULE_COMMIT_MSG"'], "signal": PASS}
CODE = """
def share(total, heads):
    if heads > 0:
        return total / heads
    return 0
"""
VACUOUS = """
import unittest


class Share(unittest.TestCase):
    def test_there_is_one(self):
        import pay
        pay.share(4, 2)
"""
NOT_CALLED = """
import unittest


class Share(unittest.TestCase):
    def test_there_is_one(self):
        import pay
        self.assertTrue(callable(pay.share))
"""
SWALLOWED = """
import unittest


class Share(unittest.TestCase):
    def test_there_is_one(self):
        import pay
        try:
            pay.share(4, 2)
        except (Exception, SystemExit):
            pass
"""
HELD = """
    def test_halves(self):
        import pay
        self.assertEqual(pay.share(6, 2), 3)
"""
BEYOND = """
    def test_nobody(self):
        import pay
        self.assertEqual(pay.share(6, -1), 6)
"""
IDLE = """
    def test_nothing(self):
        self.assertEqual(2, 2)
"""
NOT_RED = """
import unittest


class Share(unittest.TestCase):
    def test_one(self):
        self.assertEqual(1, 1)
"""
OLD_CODE = "def greet():\n    return 'hello'\n"
OLD_TESTS = """
import unittest

from old import greet


class Greet(unittest.TestCase):
    def test_greets(self):
        self.assertEqual(greet(), 'hello')
"""


def writes(**files: str) -> dict[str, Any]:
    return {"write": {name.replace("__", "."): text for name, text in files.items()}, "signal": PASS}


def story(**changes: list[dict[str, Any]]) -> dict[str, Any]:
    clean = {
        "test-writer": [writes(test_pay__py=VACUOUS)],
        "test-review": [OK],
        "execute": [writes(pay__py=CODE)],
        "execute-review": [OK],
        "sign-off": [OK],
        "merge": [COMMIT],
    }
    return {"one": {**clean, **{name.replace("_", "-"): turns for name, turns in changes.items()}}}


def run(scene: Scene, flow: Any = "tdd", mutants: int = 8) -> Any:
    return scene.run("one", flow, test=UNITTEST, test_globs=GLOBS, mutants=mutants)


def piece(scene: Scene, key: str, check: str) -> Evidence:
    event = next(event for event in scene.ended("one") if event.key == key)
    return next(piece for piece in event.outcome.evidence if piece.check == check)


def accept(scene: Scene, check: str, because: str = "It is a stub on purpose.") -> None:
    """What `capsule accept` journals."""
    state = replayed(scene)
    known = state.refused[check]
    event = Accepted(
        at=scene.services.clock.now(),
        phase=known.phase,
        check=check,
        tree=known.piece.tree,
        claimed=known.piece.claimed,
        observed=known.piece.observed,
        because=because,
    )
    with scene.journal.claim("one"):
        scene.journal.note("one", event)


def replayed(scene: Scene) -> Any:
    from capsule.core.state import replay

    return replay(event for _, event in scene.journal.events("one"))


HONEST = writes(test_pay__py=VACUOUS + HELD)
AFTER_THE_RETURN = ["test-writer", "test-review", "execute", "execute-review", "sign-off", "merge"]


@pytest.mark.promise("evidence.mended")
def test_code_that_no_test_demands_goes_back_to_the_tests_and_the_coder_is_not_asked_again(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD)]))
    state = run(scene)
    moves = scene.moves("one")
    assert moves[5:11] == [
        "sign-off#1 rework", "test-writer#2 advance", "test-review#2 advance", "execute#2 skip",
        "execute-review#2 advance", "sign-off#2 advance",
    ]  # fmt: skip
    assert state.finished
    refuted = piece(scene, "sign-off#1", "demanded")
    assert (refuted.standing, refuted.mend) == (EvidenceStatus.REFUTED, "tests")
    assert "no test notices when share in pay.py is broken" in refuted.observed
    seen = piece(scene, "test-writer#2", "red")
    assert seen.standing is EvidenceStatus.CONFIRMED
    assert "mutants are noticed now" in seen.observed
    assert piece(scene, "test-writer#2", "only-tests").standing is EvidenceStatus.CONFIRMED


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
def test_a_function_that_no_test_executes_is_not_covered_and_goes_back_to_the_tests(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_CALLED), writes(test_pay__py=NOT_CALLED + HELD)]))
    state = run(scene)
    refuted = piece(scene, "sign-off#1", "demanded")
    assert (refuted.standing, refuted.mend) == (EvidenceStatus.REFUTED, "tests")
    assert refuted.observed == "not covered: no test executes share in pay.py"
    assert (refuted.not_covered, refuted.survivors) == (("`share` in pay.py",), ())
    assert "`share` in pay.py is not covered: no test executes it" in refuted.detail
    assert "1 of 1 mutants are noticed now" in piece(scene, "test-writer#2", "red").observed
    assert state.finished


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
def test_a_function_whose_call_is_swallowed_is_executed_and_its_mutants_survive(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=SWALLOWED)]))
    run(scene)
    refuted = piece(scene, "sign-off#1", "demanded")
    assert refuted.not_covered == ()
    assert "the body of `share` → `return None` in pay.py:3" in refuted.survivors


@pytest.mark.slow
def test_what_is_not_covered_costs_two_runs_whatever_its_size(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_CALLED)]))
    run(scene)
    runs = [each.observation.edits for _, each in scene.journal.events("one") if isinstance(each, Observed)]
    broken = [edits[0] for edits in runs if edits and "pay.py" in edits[0] and "test_pay" not in edits[0]]
    assert broken == ["the body of `share` → `return None` in pay.py:3", "`share` in pay.py ends the program"]


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
def test_code_that_does_nothing_is_demanded_by_no_test(scene: Scene) -> None:
    scene.plays(story(execute=[writes(pay__py="def share(total, heads):\n    return None\n")]))
    run(scene)
    refuted = piece(scene, "sign-off#1", "demanded")
    assert refuted.standing is EvidenceStatus.REFUTED
    assert refuted.survivors == ("the body of `share` → `return 1` in pay.py:2",)


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_the_survivors_are_the_feedback_and_the_reviewer_knows_that_the_code_is_there(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD)]))
    run(scene)
    folder = scene.root / ".capsule" / "logs" / "one" / "phase-outputs"
    told = (folder / "feedback-test-writer-2.md").read_text()
    assert "the body of `share` → `return None` in pay.py:3: every test still passes" in told
    assert "leave the code as it is" in told
    assert "You reported PASS" not in told
    assert "that is right" in (folder / "feedback-test-review-2.md").read_text()


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_a_mended_test_that_notices_no_survivor_is_refuted_by_name(scene: Scene) -> None:
    turns = [VACUOUS, VACUOUS + IDLE, VACUOUS + HELD]
    scene.plays(story(test_writer=[writes(test_pay__py=text) for text in turns]))
    state = run(scene)
    assert scene.moves("one")[6:8] == ["test-writer#2 retry", "test-writer#3 advance"]
    assert "test_pay.py::Share.test_nothing fails with none" in piece(scene, "test-writer#2", "red").observed
    assert state.finished


@pytest.mark.slow
def test_mending_without_a_new_test_is_refuted(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), OK, writes(test_pay__py=VACUOUS + HELD)]))
    run(scene)
    assert scene.moves("one")[6] == "test-writer#2 retry"
    assert piece(scene, "test-writer#2", "changed").standing is EvidenceStatus.REFUTED


@pytest.mark.slow
def test_whoever_mends_nothing_twice_is_not_said_to_be_done_already(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), OK]))
    state = run(scene)
    assert scene.moves("one")[6:] == ["test-writer#2 retry", "test-writer#3 park"]
    assert state.halt is not None
    assert state.halt.reason.startswith("the tests were not mended: no file differs; ")
    assert "--workflow" not in state.halt.reason


@pytest.mark.slow
def test_whoever_mends_tests_may_not_touch_the_code(scene: Scene) -> None:
    eager = writes(test_pay__py=VACUOUS + HELD, pay__py=CODE + "\n\nmore = 1\n")
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), eager, writes(pay__py=CODE)]))
    run(scene)
    assert scene.moves("one")[6:8] == ["test-writer#2 retry", "test-writer#3 advance"]
    assert piece(scene, "test-writer#2", "only-tests").observed == "also changed: pay.py"


@pytest.mark.slow
def test_mending_may_not_drop_a_test(scene: Scene) -> None:
    turns = [VACUOUS, VACUOUS.replace("test_there_is_one", "test_other") + HELD, VACUOUS + HELD]
    scene.plays(story(test_writer=[writes(test_pay__py=text) for text in turns]))
    run(scene)
    assert scene.moves("one")[6:8] == ["test-writer#2 retry", "test-writer#3 advance"]
    assert "test_there_is_one is gone" in piece(scene, "test-writer#2", "red").observed


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_a_mended_test_that_fails_has_found_a_fault_and_the_coder_follows(scene: Scene) -> None:
    mended = CODE.replace("return 0", "return total")
    scene.plays(
        story(
            test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD + BEYOND)],
            execute=[writes(pay__py=CODE), writes(pay__py=mended)],
        )
    )
    state = run(scene)
    assert [event.phase for event in scene.ended("one")][6:12] == AFTER_THE_RETURN
    assert "execute#2 advance" in scene.moves("one")
    assert "a fault found: test_pay.py::Share.test_nobody fails" in piece(scene, "test-writer#2", "red").observed
    assert state.finished


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_the_second_time_it_needs_you_and_names_accept(scene: Scene) -> None:
    """The mended tests notice the survivors; the coder then adds what nobody asked for."""
    mended = CODE.replace("return 0", "return total")
    more = mended + "\n\ndef owed(total):\n    return total - 1\n"
    scene.plays(
        story(
            test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD + BEYOND)],
            execute=[writes(pay__py=CODE), writes(pay__py=more)],
        )
    )
    state = run(scene)
    assert scene.moves("one")[-1] == "sign-off#2 park"
    assert state.halt is not None
    assert 'capsule answer one --accept demanded --because "..."' in state.halt.reason
    assert "no test executes owed in pay.py" in state.halt.reason


@pytest.mark.slow
def test_where_retries_are_gone_the_reason_says_why_and_accept_is_named_beside_it(scene: Scene) -> None:
    scene.plays(story(execute=[writes(pay__py="def share(total, heads):\n    return 1 / 0\n")], test_writer=[HONEST]))
    state = run(scene, mutants=0)
    assert state.halt is not None
    assert state.halt.reason.startswith("retries exhausted (3 allowed): it claimed that all tests pass, and ")
    assert "--accept" not in state.halt.reason
    history = read_mission(event for _, event in scene.journal.events("one"))
    assert history.otherwise == 'capsule answer one --accept green --because "..."'


OFFER = "`capsule run one --fresh --workflow refactor` (or docs, tests, chore)"


@pytest.mark.slow
@pytest.mark.parametrize("status", ["ERROR", "NEEDS_WORK"])
def test_a_test_writer_that_gives_up_is_offered_the_other_workflows(scene: Scene, status: str) -> None:
    given_up = {"signal": {**PASS, "status": status, "feedback": "There is nothing to test here."}}
    scene.plays(story(test_writer=[given_up]))
    halt = run(scene).halt
    assert halt.reason == f"There is nothing to test here; if there is nothing to make red: {OFFER}"


@pytest.mark.slow
def test_an_agent_without_a_signal_is_offered_nothing(scene: Scene) -> None:
    scene.plays(story(test_writer=[{"say": ["bye"], "exit": 1}]))
    assert OFFER not in run(scene).halt.reason


@pytest.mark.slow
def test_tests_that_are_green_at_once_offer_the_other_workflows_and_nothing_else(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_RED)]))
    assert run(scene).halt.reason == f"seems already done; nothing to make red: {OFFER}"


def assert_no_more_to_accept(scene: Scene) -> None:
    history = read_mission(event for _, event in scene.journal.events("one"))
    assert (history.summary(Presence(), "2026-01-01T00:00:00Z").next, history.otherwise) == ("capsule run one", "")


@pytest.mark.slow
@pytest.mark.promise("accept.goes-on")
def test_an_accepted_claim_lets_the_mission_go_on_and_is_told_for_ever(scene: Scene) -> None:
    mended = CODE.replace("return 0", "return total")
    more = mended + "\n\ndef owed(total):\n    return total - 1\n"
    scene.plays(
        story(
            test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD + BEYOND)],
            execute=[writes(pay__py=CODE), writes(pay__py=more)],
        )
    )
    run(scene)
    accept(scene, "demanded", "owed is only a hook.")
    assert_no_more_to_accept(scene)
    state = run(scene)
    assert scene.moves("one")[-5:-2] == ["sign-off#2 park", "sign-off#3 advance", "merge#1 advance"]
    seen = piece(scene, "sign-off#3", "demanded")
    assert (seen.standing, seen.observed.endswith("because: owed is only a hook.")) == (EvidenceStatus.ACCEPTED, True)
    assert state.finished
    logs = scene.root / ".capsule" / "logs" / "one"
    assert "ACCEPTED by a person" in (logs / "worklog.md").read_text()
    assert "owed is only a hook." in (logs / "summary.md").read_text()


@pytest.mark.slow
def test_an_acceptance_holds_for_its_tree_only(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_RED)]))
    run(scene)
    assert scene.moves("one")[-1] == "test-writer#2 park"
    accept(scene, "red")
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_RED + IDLE)]))
    run(scene)
    assert piece(scene, "test-writer#3", "red").standing is EvidenceStatus.REFUTED


@pytest.mark.slow
def test_an_accepted_worker_goes_on_with_the_same_files(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=NOT_RED)]))
    run(scene)
    accept(scene, "red")
    assert_no_more_to_accept(scene)
    run(scene)
    assert scene.moves("one")[3:6] == ["test-writer#3 advance", "test-review#1 advance", "execute#1 advance"]
    assert piece(scene, "test-review#1", "red").standing is EvidenceStatus.ACCEPTED


@pytest.mark.slow
def test_without_acceptance_going_on_mends_the_tests_again(scene: Scene) -> None:
    mended = CODE.replace("return 0", "return total")
    more = mended + "\n\ndef owed(total):\n    return total - 1\n"
    owed = "\n    def test_owed(self):\n        import pay\n        self.assertEqual(pay.owed(3), 2)\n"
    texts = [VACUOUS, VACUOUS + HELD + BEYOND, VACUOUS + HELD + BEYOND + owed]
    scene.plays(
        story(
            test_writer=[writes(test_pay__py=text) for text in texts],
            execute=[writes(pay__py=CODE), writes(pay__py=more)],
        )
    )
    run(scene)
    state = run(scene)
    after = [event.phase for event in scene.ended("one")][11:]
    assert after == [
        "test-writer",
        "test-review",
        "execute",
        "execute-review",
        "sign-off",
        "merge",
        "publish",
        "archive",
    ]
    assert state.finished


@pytest.mark.slow
def test_where_no_phase_writes_tests_the_phase_itself_mends(scene: Scene) -> None:
    flow = workflow(
        phases=[
            {"name": "prep", "role": "action", "do": "prep"},
            {"name": "build", "role": "solo", "prompt": "execute", "checks": ["green", "demanded"]},
        ],
    )
    scene.plays({"one": {"build": [writes(pay__py=CODE, test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS)]}})
    state = run(scene, flow)
    assert scene.moves("one")[1:] == ["build#1 retry", "build#2 park"]
    assert state.halt is not None
    assert "capsule answer one --accept demanded" in state.halt.reason


ABSENT = """
import unittest

from pay import share


class Share(unittest.TestCase):
    def test_halves(self):
        self.assertEqual(share(6, 2), 3)

    def test_nobody_is_zero(self):
        self.assertEqual(share(6, 0), 0)

    def test_nothing(self):
        share(6, 2)
"""


@pytest.mark.slow
@pytest.mark.promise("evidence.red-by-name")
def test_a_test_that_could_not_be_loaded_has_to_fail_by_name_once_there_is_code(scene: Scene) -> None:
    asserts = ABSENT.replace("        share(6, 2)\n", "        self.assertEqual(share(9, 3), 3)\n")
    scene.plays(story(test_writer=[writes(test_pay__py=ABSENT), writes(test_pay__py=asserts)]))
    state = run(scene, mutants=0)
    refuted = piece(scene, "sign-off#1", "red-by-name")
    assert refuted.standing is EvidenceStatus.REFUTED
    assert refuted.observed == "test_pay.py::Share.test_nothing passes with the change taken out"
    assert scene.moves("one")[5:9] == [
        "sign-off#1 rework", "test-writer#2 advance", "test-review#2 advance", "execute#2 skip",
    ]  # fmt: skip
    assert piece(scene, "sign-off#2", "red-by-name").standing is EvidenceStatus.CONFIRMED
    assert state.finished


@pytest.mark.slow
@pytest.mark.promise("evidence.red-by-name")
def test_new_tests_that_fail_and_were_accepted_are_not_red_by_name(scene: Scene) -> None:
    asks = "    def test_wrong(self):\n        self.assertEqual(share(9, 3), 4)\n"
    wrong = f"import unittest\n\nfrom pay import share\n\n\nclass Share(unittest.TestCase):\n{asks}"
    scene.plays(story(test_writer=[writes(test_pay__py=wrong)]))
    run(scene, mutants=0)
    accept(scene, "green")
    run(scene, mutants=0)
    signed = next(event for event in scene.ended("one") if event.key == "sign-off#1")
    assert "red-by-name" not in [piece.check for piece in signed.outcome.evidence]


@pytest.mark.slow
@pytest.mark.promise("evidence.red-by-name")
def test_a_test_that_asks_for_the_default_value_is_no_vacuous_test(scene: Scene) -> None:
    code = CODE.replace("    return 0\n", "    return None\n")
    tests = ABSENT.replace("share(6, 0), 0", "share(6, 0), None").replace(
        "        share(6, 2)\n", "        self.assertTrue(share(1, 1))\n"
    )
    scene.plays(story(test_writer=[writes(test_pay__py=tests)], execute=[writes(pay__py=code)]))
    state = run(scene, mutants=0)
    assert piece(scene, "sign-off#1", "red-by-name").standing is EvidenceStatus.CONFIRMED
    assert state.finished


@pytest.mark.slow
@pytest.mark.promise("evidence.red-by-name")
def test_a_first_test_of_what_was_there_may_pass_beside_those_of_the_change(scene: Scene) -> None:
    tests = ABSENT.replace("        share(6, 2)\n", "        self.assertEqual(len('one'), 3)\n")
    scene.plays(story(test_writer=[writes(test_pay__py=tests)]))
    state = run(scene, mutants=0)
    assert piece(scene, "sign-off#1", "red-by-name").standing is EvidenceStatus.CONFIRMED
    assert state.finished


@pytest.mark.slow
def test_tests_that_failed_by_name_are_not_asked_again(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    run(scene, mutants=0)
    seen = [event.observation.edits for _, event in scene.journal.events("one") if isinstance(event, Observed)]
    assert not any("taken out" in line for lines in seen for line in lines)


@pytest.mark.slow
@pytest.mark.promise("evidence.red-by-name")
def test_whoever_mends_a_test_that_passed_without_the_code_is_told_at_once_if_it_still_does(scene: Scene) -> None:
    asserts = ABSENT.replace("        share(6, 2)\n", "        self.assertEqual(share(9, 3), 3)\n")
    still = ABSENT.replace("        share(6, 2)\n", "        self.assertTrue(share)\n")
    scene.plays(story(test_writer=[writes(test_pay__py=text) for text in (ABSENT, still, asserts)]))
    state = run(scene, mutants=0)
    assert scene.moves("one")[6:8] == ["test-writer#2 retry", "test-writer#3 advance"]
    assert "test_nothing passes with the change taken out" in piece(scene, "test-writer#2", "red").observed
    assert state.finished


BYE = """import unittest

from old import farewell


class Bye(unittest.TestCase):
    def test_bye(self):
        self.assertEqual(farewell(), 'bye')
"""


@pytest.mark.slow
@pytest.mark.promise("evidence.mended")
def test_an_old_test_that_vanished_behind_a_missing_name_is_for_the_tests_to_mend(scene: Scene) -> None:
    """Red by absence hides what else was done to the file; when the code is there, it shows."""
    base_with(scene, old__py=OLD_CODE, test_old__py=OLD_TESTS)
    gone = BYE
    kept = OLD_TESTS.replace("import greet", "import farewell, greet") + gone.partition("\n\n\n")[2]
    code = OLD_CODE + "\n\ndef farewell():\n    return 'bye'\n"
    scene.plays(
        story(
            test_writer=[writes(test_old__py=gone), writes(test_old__py=kept)],
            execute=[writes(old__py=code)],
        )
    )
    state = run(scene, mutants=0)
    refuted = piece(scene, "execute#1", "green")
    assert (refuted.standing, refuted.mend) == (EvidenceStatus.REFUTED, "tests")
    assert refuted.observed.startswith("test_old.py::Greet.test_greets is gone")
    assert scene.moves("one")[3:7] == [
        "execute#1 rework", "test-writer#2 advance", "test-review#2 advance", "execute#2 skip",
    ]  # fmt: skip
    assert state.finished


def base_with(scene: Scene, **files: str) -> None:
    trunk = scene.services.trunk("main")
    trunk._repository.commit_files("main", "More", **files)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
@pytest.mark.parametrize(
    ("asks", "code"),
    [
        ("import pay\n        self.assertIn('share', dir(pay))", {"pay__py": "share = None\n"}),
        ("import os\n        self.assertTrue(os.path.exists('share.txt'))", {"share__txt": "yes\n"}),
    ],
)
def test_a_name_or_a_file_that_only_has_to_be_there_is_demanded_by_no_test(
    scene: Scene, asks: str, code: dict[str, str]
) -> None:
    tests = f"import unittest\n\n\nclass Share(unittest.TestCase):\n    def test_there_is_one(self):\n        {asks}\n"
    scene.plays(story(test_writer=[writes(test_pay__py=tests)], execute=[writes(**code)]))
    run(scene)
    assert piece(scene, "sign-off#1", "demanded").standing is EvidenceStatus.REFUTED


@pytest.mark.slow
@pytest.mark.promise("evidence.demanded")
def test_data_that_a_test_reads_is_demanded(scene: Scene) -> None:
    asks = "with open('share.txt') as file:\n            self.assertEqual(file.read(), 'yes')"
    tests = f"import unittest\n\n\nclass Share(unittest.TestCase):\n    def test_there_is_one(self):\n        {asks}\n"
    scene.plays(story(test_writer=[writes(test_pay__py=tests)], execute=[writes(share__txt="yes")]))
    assert run(scene).finished
    assert piece(scene, "sign-off#1", "demanded").observed == "demanded 1 of 1"
