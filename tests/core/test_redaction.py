"""The redactor: every text of an event, and nothing but texts."""

from __future__ import annotations

from capsule.core.decide import Decision, Move
from capsule.core.event import Outcome, StepEnded, Warned, decode, encode
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.redaction import Redactor
from capsule.core.signal import Signal, Verdict

SECRET = "hunter22-hunter22"


def an_ending(text: str) -> StepEnded:
    return StepEnded(
        at="2026-01-01T00:00:00Z",
        key="execute#1",
        phase="execute",
        run=1,
        outcome=Outcome(
            signal=Signal(verdict=Verdict.PASS, summary=text, feedback=f"{text}\n", files_changed=(text,)),
            evidence=(
                Evidence(check="changed", claimed=text, observed=text, standing=EvidenceStatus.REFUTED, detail=text),
            ),
            warnings=(text,),
            facts={"merged": text},
        ),
        decision=Decision(Move.ADVANCE, Verdict.PASS, reason=text),
    )


def test_no_text_of_an_event_keeps_a_secret() -> None:
    redacted = Redactor([SECRET]).event(an_ending(f"it is {SECRET}!"))
    assert redacted == an_ending("it is [redacted]!")


def test_an_event_without_secrets_is_the_same_object() -> None:
    event = an_ending("nothing")
    assert Redactor([SECRET]).event(event) is event
    assert Redactor().event(event) is event


def test_words_of_ours_are_no_texts() -> None:
    """A secret may be anything: also the name of an event, a verdict, a number, or half an escape."""
    odd = Redactor(["step_ended", "NEEDS_WORK", "123456789", "n123"])
    ended = an_ending("line\n123")
    assert decode(encode(odd.event(ended))) == ended
    assert odd.event(Warned(at="", text="step_ended")).text == "[redacted]"


def test_text_and_bytes_alike() -> None:
    redactor = Redactor(["pässwörter"])
    assert redactor.text("die pässwörter!") == "die [redacted]!"
    assert redactor.data("die pässwörter!".encode()) == b"die [redacted]!"
