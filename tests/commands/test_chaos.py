"""Six missions at a time, and kills at random among all processes: nothing is lost, nothing is done twice.

`CAPSULE_CHAOS_KILLS` (300) processes are killed in `make soak`, in rounds of twelve missions of either workflow, each
compared with a round in which nobody is killed. Where missions are merged at the end, those of a backlog too, a round
has batches or not, and one gate or several. What is killed is drawn from the seed `CAPSULE_CHAOS`, and tied to
moments, which are not the same again.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from .backlog_project import BacklogProject
from .backlog_script import honest as backlog_script
from .chaos import MISSIONS, ROLES, Round, counted
from .conftest import Project, said
from .test_campaign import row

SEED = int(os.environ.get("CAPSULE_CHAOS", "1"))
KILLS = int(os.environ.get("CAPSULE_CHAOS_KILLS", "300"))
EACH_ROUND = 25
PAUSE = 0.15
TESTS = "for t in tests/test_*.sh; do sh $t || exit 1; done"
COMMIT = 'git add -A . && { git diff --cached --quiet || git commit -q -m "$CAPSULE_COMMIT_MSG"; }'
"""One that is started again finds what it committed before its supervisor was killed."""
CLASH = 3
"""So many missions change the same lines: one goes back twice at most, and none needs a person."""
QUEUES = ((1, 1), (4, 1), (1, 3), (3, 2))
"""Sizes of batches and numbers of gates: a round has one of these."""
RESOLVED = "if grep -q '<<<<' shared; then grep -v '^[<=>|]' shared | sort -u > new; mv new shared; fi"


def tdd_script(name: str, *, clashes: bool) -> dict[str, list[dict[str, object]]]:
    adds = [RESOLVED, f"grep -qx {name} shared || echo {name} >> shared"] if clashes else []
    return {
        "test-writer": [said("PASS", write={f"tests/test_{name}.sh": f"test -e made-{name}\n"})],
        "test-review": [said("PASS")],
        "execute": [said("PASS", write={f"made-{name}": "made\n"}, run=adds)],
        "execute-review": [said("PASS")],
        "sign-off": [said("PASS")],
        "merge": [said("PASS", run=[COMMIT])],
    }


MakeProject = Callable[[], Project]


def projects(folder: Path, prepared: Path, kind: type[Project]) -> MakeProject:
    """Copies of a project, each in a folder of its own."""
    numbers = count()

    def make() -> Project:
        place = folder / f"round-{next(numbers)}"
        shutil.copytree(prepared, place / "project", symlinks=True)
        return kind(place / "project", place)

    return make


def a_merge_queue(chance: random.Random) -> dict[str, str]:
    batch, gates = chance.choice(QUEUES)
    return {"CAPSULE_MERGE__BATCH": str(batch), "CAPSULE_EXECUTION__GATES": str(gates)}


def tdd_round(make: MakeProject, missions: int, chance: random.Random) -> Round:
    project, names = make(), [f"task-{number:02}" for number in range(missions)]
    project.beads.write_text("".join(map(row, names)))
    project.write("tests/test_slow.sh", "sleep 0.1\n")
    project.commit("tasks", shared="first\n")
    project.always |= {"CAPSULE_TRACKER": "beads-file", **a_merge_queue(chance)}
    scripts = {n: counted(tdd_script(n, clashes=number < CLASH), PAUSE) for number, n in enumerate(names)}
    project._script.write_text(json.dumps({"_recording": {}, **scripts}))
    return Round(project, names, chance)


def backlog_round(make: MakeProject, missions: int, chance: random.Random) -> Round:
    project = make()
    assert isinstance(project, BacklogProject)
    project.play({}, "_recording")
    items = [project.add(f"Idea {number}") for number in range(1, missions + 1)]
    for number, item in enumerate(items, 1):
        project.play(counted(backlog_script(item, f"idea-{number}"), PAUSE), item)
    return Round(project, items, chance)


def merged_backlog_round(make: MakeProject, missions: int, chance: random.Random) -> Round:
    """Each adds files of its own: what two ask for in one file does not go together when it is merged."""
    done = backlog_round(make, missions, chance)
    project = done.project
    assert isinstance(project, BacklogProject)
    for number, item in enumerate(done.items, 1):
        script = backlog_script(item, f"idea-{number}")
        for turn in script["build"]:
            turn["write"] = {f"{item}-{name}" if name == "question" else name: t for name, t in turn["write"].items()}
        project.play(counted(script, PAUSE), item)
    project.always |= {"CAPSULE_WORKSPACE__PUBLISH": "merge", **a_merge_queue(chance)}
    return done


def tdd_ending(done: Round) -> dict[str, object]:
    """What came of it, but for the order in which missions were merged."""
    git = done.project.git
    assert Counter(done.merged()) == Counter(done.items), "one merge for each mission"
    assert done.closed() == Counter(done.items), "each closed once"
    done.check_green(TESTS)
    tree = [row for row in git("ls-tree", "-r", "main").splitlines() if not row.endswith("\tshared")]
    rows = map(json.loads, done.project.beads.read_text().splitlines())
    return {
        "tree": tree,
        "shared": sorted(git("show", "main:shared").split()),
        "items": {row["id"]: row["status"] for row in rows},
    }


def backlog_ending(done: Round) -> dict[str, object]:
    project = done.project
    assert isinstance(project, BacklogProject)
    log = "".join(path.read_text() for path in sorted((project.path / "_worklog").glob("*.md")))
    archived = Counter(re.findall(r"\| (WRK-\d+) \| archive \| Completed\n", log))
    assert archived == Counter(done.items) and project.ids() == [], "each archived once, and out of the backlog"
    steps = {subject for subject in project.subjects() if subject.endswith(" done")}
    done.check_green(project.test)
    own = ("BACKLOG.yaml", "_worklog", "question")  # stamps; and the last to ask is another every time
    tree = [row for row in project.git("ls-tree", "-r", "main").splitlines() if not row.split("\t")[1].startswith(own)]
    return {"tree": tree, "steps": steps}


class Chaos(NamedTuple):
    """A workflow: how a round of it is made, and what comes of one in which nobody is killed."""

    make: MakeProject
    a_round: Callable[[MakeProject, int, random.Random], Round]
    ending: Callable[[Round], dict[str, object]]
    merges: bool = True
    """Work is merged at the end, in a queue; otherwise each step is stored."""

    def play(self, missions: int, kills: int, chance: random.Random) -> tuple[dict[str, object], Counter[str]]:
        done = self.a_round(self.make, missions, chance)
        done.run(kills)
        done.check()
        ending, killed = self.ending(done), done.kills
        shutil.rmtree(done.project.path.parent)
        return ending, killed


KINDS = ("tdd", "backlog", "merged-backlog")


@pytest.fixture(params=KINDS)
def chaos(request: pytest.FixtureRequest, _prepared: Path, _prepared_backlog: Path, tmp_path: Path) -> Chaos:
    if request.param == "tdd":
        return Chaos(projects(tmp_path, _prepared, Project), tdd_round, tdd_ending)
    merges = request.param == "merged-backlog"
    a_round = merged_backlog_round if merges else backlog_round
    return Chaos(projects(tmp_path, _prepared_backlog, BacklogProject), a_round, backlog_ending, merges)


def assert_the_same_however_many_are_killed(chaos: Chaos, missions: int, kills: int) -> Counter[str]:
    """Play rounds until so many were killed; each must end as one in which nobody is."""
    chance, killed, began, rounds = random.Random(SEED), Counter[str](), time.monotonic(), 0
    undisturbed, _ = chaos.play(missions, 0, chance)
    while killed.total() < kills:
        ending, more = chaos.play(missions, min(EACH_ROUND, kills - killed.total()), chance)
        assert ending == undisturbed
        killed, rounds = killed + more, rounds + 1
    print(f"{rounds} rounds, {killed.total()} kills {dict(killed)}, {time.monotonic() - began:.0f} s")
    return killed


@pytest.mark.slow
@pytest.mark.promise("jobs.chaos")
def test_a_dozen_kills_change_nothing(chaos: Chaos) -> None:
    assert_the_same_however_many_are_killed(chaos, 6, 6)


@pytest.mark.soak
@pytest.mark.promise("jobs.chaos")
def test_hundreds_of_kills_change_nothing(chaos: Chaos) -> None:
    killed = assert_the_same_however_many_are_killed(chaos, MISSIONS, KILLS // len(KINDS))
    assert set(killed) == {role for role in ROLES if chaos.merges or role != "merger"}
