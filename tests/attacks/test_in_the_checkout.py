"""The same where agents share the user's checkout: what they plant is taken away, what they must not deliver is not."""

from __future__ import annotations

from typing import Any

import pytest

from capsule.core.decide import Move

from ..engine.conftest import Scene, scene
from ..engine.test_change import BUILD, result, story, tick, with_item

__all__ = ["scene"]

KEY = "-----BEGIN " + "EC PRIVATE KEY-----\n"


def played(scene: Scene, **phases: list[dict[str, Any]]) -> list[str]:
    with_item(scene)
    scene.plays(story(**phases))
    scene.run("WRK-1", "change")
    return scene.moves("WRK-1")


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        ("git config core.fsmonitor evil; echo evil > .git/hooks/post-merge", "core.fsmonitor"),
        ("git branch stolen; echo evil > .git/capsule/git/commondir", "capsule/git/commondir appeared"),
        ("echo '* filter=zz' > .git/info/attributes; git config filter.zz.clean evil", "filter.zz.clean"),
    ],
)
def test_what_is_planted_beside_the_users_files_parks_the_item(scene: Scene, plant: str, words: str) -> None:
    before = (scene.root / ".git/config").read_bytes()
    moves = played(scene, prd=[{"run": [plant], "result": result("prd")}])
    assert moves[-1] == "prd#1 park", moves
    reason = scene.ended("WRK-1")[-1].decision.reason
    assert "Quarantined" in reason
    assert words in reason
    assert (scene.root / ".git/config").read_bytes() == before
    assert not (scene.root / ".git/hooks/post-merge").exists()
    assert not (scene.root / ".git/info/attributes").exists()


@pytest.mark.parametrize("bad", [{"write": {"key.pem": KEY}}, {"run": ["ln -s /etc out"]}], ids=["a key", "a link out"])
def test_what_must_not_be_merged_is_not_committed_either(scene: Scene, bad: dict[str, Any]) -> None:
    more, done = BUILD
    attempt = {**tick("one"), **bad, "result": more["result"]}
    moves = played(scene, build=[attempt, {"run": ["rm -f key.pem out"], "result": more["result"]}, done])
    assert moves[6:9] == ["build#1 retry", "build#2 repeat", "build#3 advance"]
    refuted = next(event for event in scene.ended("WRK-1") if event.decision.move is Move.RETRY)
    assert [piece.check for piece in refuted.outcome.evidence if piece.detail] == ["fit-for-main"]
    assert "PRIVATE" not in refuted.decision.feedback
