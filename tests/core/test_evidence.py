"""Evidence as feedback: the claim, what was seen, and the proof, in a form that no output can break out of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from capsule.core.evidence import REUSABLE, Colour, Evidence, EvidenceStatus, as_feedback, refuted

RED = Evidence("green", "all tests pass", "`make test` is red, exit 1", EvidenceStatus.REFUTED, "FAIL: test_a\n")
FINE = Evidence("changed", "changed a.py", "a.py", EvidenceStatus.CONFIRMED, "not shown")
OPEN = Evidence("red", "tests fail", "nothing was run", EvidenceStatus.UNVERIFIED)


def test_only_what_is_refuted_refutes() -> None:
    assert refuted((FINE, RED, OPEN)) == (RED,)
    assert refuted((FINE, OPEN)) == ()


def test_feedback_sets_each_refuted_claim_beside_what_was_seen() -> None:
    text = as_feedback((FINE, RED, OPEN))
    assert "- Claimed: all tests pass\n  Observed: `make test` is red, exit 1" in text
    assert "```\nFAIL: test_a\n```" in text
    assert "a.py" not in text
    assert "nothing was run" not in text


@given(st.text(alphabet="`\nx "))
def test_no_output_breaks_out_of_its_fence(detail: str) -> None:
    text = as_feedback((Evidence("c", "claimed", "observed", EvidenceStatus.REFUTED, f"x{detail}"),))
    fence = text.rstrip().rsplit("\n", 1)[1]
    assert set(fence) == {"`"}
    assert fence not in f"x{detail}"


def test_only_what_came_to_its_end_is_a_fact_about_a_tree() -> None:
    assert set(REUSABLE) == {Colour.GREEN, Colour.RED, Colour.EMPTY}
