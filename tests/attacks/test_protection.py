"""Attacks by an agent's tests, in what it delivers and in what it leaves behind, and those that a crash cuts short."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from signal import Signals

import pytest

from tests.costs import LONG, eventually

from ..commands.conftest import COMMIT, ITEM, Project, Said, honest, said
from ..conftest import UNSANDBOXED
from .attacks import ATTRIBUTES, CONTENT, LEFT_BEHIND, OURS, PROGRAMS, SETTINGS, Attack
from .conftest import IN_ITS_PLACE, LEAVING, SECRET, Evil, steering, use_git_as_ever

THE_WORK = "rm -f .gitattributes; echo 'The answer.' > README.md; echo 42 > answer"


def attacked(project: Project, evil: Evil, *attacks: Attack, **level: str) -> Said:
    """A mission whose agent attacks while it writes the code, and says that all is well."""
    scripts = evil.scripts(project.path, attacks, LEAVING)
    project.play(honest(execute=[said("PASS", run=[*scripts, THE_WORK])]))
    return project.run(**level)


def assert_harmless(project: Project, evil: Evil, before: Mapping[str, bytes], main: str) -> None:
    """Nothing ran, nothing stayed; main is as it was, or holds the work and nothing else."""
    assert evil.have_run() == {}
    assert steering(project) == before
    merged = project.git("diff", "--name-only", main, "main", "--", ".", ":!.beads").split()
    assert merged in ([], ["answer", "tests/test_answer.sh"])
    use_git_as_ever(project.path)
    assert evil.have_run() == {}
    project.fsck()


def test_a_commit_that_may_be_the_users_stays_and_is_noted(a_project: Project, evil: Evil) -> None:
    """Nothing tells an agent that commits in the checkout from the user who does."""
    commit = Attack("theirs", 'cd "$ROOT"; echo x > theirs; git add theirs; git commit -qm theirs')
    answer = attacked(a_project, evil, commit, **UNSANDBOXED)
    assert answer.code == 0, answer
    assert "main moved to" in answer.err and "while it ran" in answer.err
    assert a_project.git("show", "main:theirs") == "x"
    assert a_project.answer() == "42"


@pytest.mark.promise("attacks.planted")
def test_tests_that_attack_are_no_better(a_project: Project, evil: Evil, level: dict[str, str]) -> None:
    """They are an agent's code, and run where claims are checked."""
    before, main = steering(a_project), a_project.head("main")
    lines = "\n".join(evil.scripts(a_project.path, (*SETTINGS, *PROGRAMS, *ATTRIBUTES, *OURS), LEAVING))
    a_project.play(honest(test_writer=[said("PASS", write={"tests/test_answer.sh": f"{lines}\ngrep -qx 42 answer\n"})]))
    answer = a_project.run(**level)
    if level == UNSANDBOXED:
        assert answer.code == 1, answer
        assert "Quarantined" in answer.out
    assert_harmless(a_project, evil, before, main)


@pytest.mark.promise("attacks.planted")
def test_tests_that_attack_only_what_is_about_to_be_merged_stop_the_merge(a_project: Project, evil: Evil) -> None:
    """The user commits something at the last moment, so the tests run once more, on the merge result."""
    before, main = steering(a_project), a_project.head("main")
    lines = "\n".join(evil.scripts(a_project.path, (*SETTINGS, *PROGRAMS, *OURS), LEAVING))
    test = f"if [ -e other ]; then :\n{lines}\nfi\ngrep -qx 42 answer\n"
    meanwhile = f"cd {a_project.path} && echo x > other && git add other && git commit -qm other"
    script = honest(test_writer=[said("PASS", write={"tests/test_answer.sh": test})])
    a_project.play(script | {"merge": [said("PASS", run=[COMMIT, meanwhile])]})
    answer = a_project.run()
    assert answer.code == 1, answer
    assert a_project.walked()[-1] == "publish BLOCKED"
    assert "Quarantined: while it ran, " in answer.out
    assert a_project.git("diff", "--name-only", main, "main") == "other"
    assert steering(a_project) == before
    assert evil.have_run() == {}


@pytest.mark.promise("attacks.unfit")
def test_what_must_not_be_merged_is_sent_back(a_project: Project, evil: Evil, level: dict[str, str]) -> None:
    """By name, and never with the secret in the words."""
    before, main = steering(a_project), a_project.head("main")
    content = "\n".join(CONTENT[name] for name in ("a secret", "a link out", "a bare repository inside"))
    bad = evil.scripts(a_project.path, [Attack("content", content)], IN_ITS_PLACE)
    clean = said("PASS", run=["rm -rf notes.txt id_rsa out up hooks bare"])
    a_project.play(honest(execute=[said("PASS", run=bad, write={"answer": "42\n"}), clean]))
    answer = a_project.run(**level, MY_TOKEN=SECRET)
    assert answer.code == 0, answer
    worklog = (a_project.path / ".capsule" / "logs" / ITEM / "worklog.md").read_text()
    assert "execute REFUTED" in a_project.walked()
    for words in ("notes.txt holds the value of a secret", "id_rsa holds a private key", "out is a symbolic link"):
        assert words in worklog
    assert SECRET not in worklog + answer.out
    assert_harmless(a_project, evil, before, main)


@pytest.mark.promise("attacks.unfit")
def test_a_secret_in_an_earlier_commit_is_not_merged_with_its_history(
    a_project: Project, evil: Evil, level: dict[str, str]
) -> None:
    hidden = [
        *evil.scripts(a_project.path, [Attack("a secret", CONTENT["a secret"])], IN_ITS_PLACE),
        "git add -A",
        "git commit -qm one",
        "git rm -qf id_rsa notes.txt",
    ]
    a_project.play(honest(execute=[said("PASS", run=[*hidden, "git commit -qm two"], write={"answer": "42\n"})]))
    answer = a_project.run(**level, MY_TOKEN=SECRET)
    assert answer.code == 1, answer
    assert "execute REFUTED" in a_project.walked()
    assert a_project.answer() == "41"
    assert SECRET not in a_project.git("log", "-p", "main")


@pytest.mark.promise("attacks.unfit")
def test_a_repository_inside_the_worktree_is_not_entered(a_project: Project, evil: Evil, level: dict[str, str]) -> None:
    before, main = steering(a_project), a_project.head("main")
    answer = attacked(a_project, evil, Attack("inside", CONTENT["a repository inside"]), **level)
    assert answer.code == 2, answer
    assert "git repository inside the worktree: sub" in answer.out
    assert_harmless(a_project, evil, before, main)


def test_nothing_is_left_behind(a_project: Project, evil: Evil, level: dict[str, str]) -> None:
    """Daemons end with their phase, with or without their supervisor; links in our papers' place lead nowhere."""
    before, main = steering(a_project), a_project.head("main")
    answer = attacked(a_project, evil, *(Attack(name, script) for name, script in LEFT_BEHIND.items()), **level)
    assert answer.code in (0, 2), answer
    assert "Traceback" not in answer.err
    time.sleep(1.2)
    assert not list(evil.out.glob("*/papers/*"))
    assert_harmless(a_project, evil, before, main)


def test_objects_that_are_gone_stop_the_mission_and_move_nothing(
    a_project: Project, evil: Evil, level: dict[str, str]
) -> None:
    main = a_project.head("main")
    attacked(a_project, evil, Attack("gone", 'rm -rf "$COMMON"/objects/[0-9a-f][0-9a-f]'), **level)
    assert evil.have_run() == {}
    if level == UNSANDBOXED:
        assert (a_project.path / ".git/refs/heads/main").read_text().strip() == main
    else:
        a_project.fsck()


def cut_short(project: Project, evil: Evil, done: Path, signal: Signals) -> None:
    """A mission that gets this signal when its agent has planted what it had to plant."""
    attack = evil.scripts(project.path, [SETTINGS[0], *PROGRAMS], LEAVING)
    project.play(honest(execute=[said("PASS", run=[*attack, f"touch {done}", "sleep 60"])]))
    with project.running() as process:
        deadline = time.monotonic() + 60
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal)
        process.wait(30)
    project.play(honest())


@pytest.mark.promise("attacks.killed")
def test_a_killed_mission_leaves_its_agents_plants_to_the_next_start(
    a_project: Project, evil: Evil, tmp_path: Path
) -> None:
    """Whatever command comes first puts things right; the mission itself is quarantined when it goes on."""
    before = steering(a_project)
    cut_short(a_project, evil, tmp_path / "done", Signals.SIGKILL)
    assert (a_project.path / ".git/config").read_bytes() != before["config"]
    assert a_project.say("show", ITEM).code == 0
    assert steering(a_project) == before
    answer = a_project.run()
    assert answer.code == 1, answer
    assert "core.fsmonitor" in answer.out
    again = a_project.run()
    assert again.code == 0, again
    assert a_project.answer() == "42"
    assert evil.have_run() == {}


@pytest.mark.promise("attacks.killed")
def test_a_mission_that_is_stopped_is_quarantined_all_the_same(a_project: Project, evil: Evil, tmp_path: Path) -> None:
    before = steering(a_project)
    cut_short(a_project, evil, tmp_path / "done", Signals.SIGINT)
    assert steering(a_project) == before
    assert a_project.walked()[-1] == "execute BLOCKED"
    assert evil.have_run() == {}


@pytest.mark.promise("attacks.planted")
def test_tests_that_are_stopped_before_the_merge_leave_no_plant(a_project: Project, evil: Evil, tmp_path: Path) -> None:
    before, sign = steering(a_project), tmp_path / "planted"
    lines = "\n".join(evil.scripts(a_project.path, (*SETTINGS, *PROGRAMS, *OURS), LEAVING))
    attack = f"[ -e theirs ] && {{\n{lines}\necho > {sign}; sleep {LONG}\n}}\ngrep -qx 42 answer\n"
    commit = f"cd {a_project.path} && echo x > theirs && git add theirs && git commit -qm theirs"
    writer = [said("PASS", write={"tests/test_answer.sh": attack})]
    a_project.play(honest(test_writer=writer, merge=[said("PASS", run=[COMMIT, commit])]))
    with a_project.running(**UNSANDBOXED) as runner:
        assert eventually(sign.exists)
        runner.send_signal(Signals.SIGTERM)
        assert runner.wait(LONG) == 130
    assert steering(a_project) == before
    use_git_as_ever(a_project.path)
    assert evil.have_run() == {}
