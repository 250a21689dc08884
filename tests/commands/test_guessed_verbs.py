"""What people type instead of a command's name, several ids at once, and `capsule list`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capsule.commands.verbs import ALIASES, HINTS, VERBS

from .backlog_project import BacklogProject, blocked, unchanged
from .conftest import ITEM, Project, assert_clear


@pytest.mark.promise("commands.guessed")
def test_another_word_for_a_command_is_that_command(a_backlog: BacklogProject) -> None:
    assert a_backlog.say("new", "Sort the list") == (0, "WRK-001  Sort the list\n", "")
    assert a_backlog.say("ls").out == a_backlog.say("list").out
    assert a_backlog.say("help", "ls").out == a_backlog.say("list", "--help").out
    assert a_backlog.say("done", "WRK-001") == (0, "WRK-001 is completed: Sort the list\n", "")


@pytest.mark.promise("commands.guessed")
@pytest.mark.parametrize("word", HINTS)
def test_a_word_that_may_mean_several_is_answered_with_what_to_type(a_backlog: BacklogProject, word: str) -> None:
    with unchanged(a_backlog):
        assert_clear(a_backlog.say(word, "WRK-001"), 2, f"There is no command `{word}`.", "capsule ")


def test_priority_in_a_backlog_names_what_it_has_instead(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    assert "capsule edit ID --impact high" in a_backlog.say("priority", "WRK-001").err
    with unchanged(a_backlog):
        refused = a_backlog.say("edit", "WRK-001", "--priority", "1")
        assert_clear(refused, 2, "An item has no priority here", "--impact; a higher impact comes first")


def test_retry_lets_go_on_what_has_failed(a_halted_mission: Project) -> None:
    assert a_halted_mission.say("retry", ITEM) == (0, f"{ITEM} resumes at execute: capsule run {ITEM}\n", "")


def test_guesses_are_no_commands_and_mean_one() -> None:
    assert not {*ALIASES, *HINTS} & {*VERBS} and not {*ALIASES} & {*HINTS}
    assert {meant for meant, *_ in ALIASES.values()} <= {*VERBS}


def test_a_mistyped_name_is_still_found(a_backlog: BacklogProject) -> None:
    assert_clear(a_backlog.say("questoins"), 2, "There is no command", "`capsule questions`")


def test_a_mistyped_option_is_still_found(a_backlog: BacklogProject) -> None:
    assert_clear(a_backlog.say("edit", "WRK-001", "--titel=x"), 2, "Unrecognized arguments", "Did you mean `--title`?")
    assert_clear(a_backlog.say("edit", "WRK-001", "--zzz"), 2, "Unrecognized arguments", "`capsule edit --help`")


# ---- several ids


@pytest.mark.promise("commands.several")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("complete",), "is completed: Item"),
        (("close", "--reason=no"), "is closed: Item"),
        (("unblock",), "is ready again."),
        (("approve",), "is ready again."),
    ],
)
def test_verbs_take_several_ids(a_backlog: BacklogProject, words: tuple[str, ...], told: str) -> None:
    kind = "decision" if words == ("approve",) else "clarification"
    a_backlog.hold(*[blocked(kind)] * 3)
    verb, *options = words
    answer = a_backlog.say(verb, "WRK-001", "WRK-003", "WRK-001", *options)
    assert (answer.code, answer.err) == (0, "")
    assert [line.split()[0] for line in answer.out.splitlines()] == ["WRK-001", "WRK-003"]
    assert all(told in line for line in answer.out.splitlines())
    assert a_backlog.item("WRK-002").blocked


@pytest.mark.promise("commands.several")
def test_of_several_ids_each_that_can_be_changed_is(a_backlog: BacklogProject) -> None:
    a_backlog.hold({}, {"status": "done"}, {})
    answer = a_backlog.say("advance", "WRK-001", "WRK-009", "WRK-003")
    assert answer.code == 1
    assert answer.out == "WRK-001 is scoped; it was new.\nWRK-003 is scoped; it was new.\n"
    assert answer.err.startswith("capsule: There is no item WRK-009")


def test_several_missions_are_ended(a_halted_mission: Project) -> None:
    answer = a_halted_mission.say("abort", ITEM, "demo-9")
    assert answer.code == 1 and f"{ITEM} is aborted" in answer.out and "demo-9" in answer.err
    assert f"{ITEM} is cleaned" in a_halted_mission.say("clean", ITEM, ITEM).out


# ---- list


@pytest.fixture
def a_long_backlog(a_backlog: BacklogProject) -> BacklogProject:
    rows = [{"title": "Login times out", "tags": "[web]"}, {"title": "Sort names", "description": "at the login"}]
    a_backlog.hold(*rows, {"title": "Paint it", **blocked()})
    return a_backlog


@pytest.mark.promise("commands.list")
def test_items_are_found_by_their_words(a_long_backlog: BacklogProject) -> None:
    def found(*words: str) -> list[str]:
        return [each["id"] for each in json.loads(a_long_backlog.say("list", "--json", *words).out)]

    assert found() == ["WRK-003", "WRK-001", "WRK-002"]
    assert found("LOGIN") == ["WRK-001", "WRK-002"]
    assert found("login", "web") == ["WRK-001"]
    assert found("login", "--only", "status=blocked") == []
    assert found("blocked") == ["WRK-003"]


@pytest.mark.promise("commands.list")
def test_a_list_says_how_many_match_and_can_name_what_is_done(a_long_backlog: BacklogProject) -> None:
    out = a_long_backlog.say("list", "login").out
    assert out.splitlines()[0].split()[:2] == ["ID", "Status"] and out.endswith("\n\n2 of 3 items\n")
    assert a_long_backlog.say("list", "nothing-like-it") == (0, "No items match.\n", "")
    a_long_backlog.say("complete", "WRK-002")
    assert "WRK-002" not in a_long_backlog.say("list").out
    done = [line for line in a_long_backlog.say("list", "--all", "sort").out.splitlines() if "WRK-002" in line]
    assert len(done) == 1 and done[0].split()[1] == "done"
    a_long_backlog.say("close", "WRK-003", "--reason", "nobody wants it")
    assert re.search(r"WRK-003 +done .*\n +closed: nobody wants it\n", a_long_backlog.say("list", "--all").out)


def test_an_empty_backlog_says_how_to_add(a_backlog: BacklogProject) -> None:
    assert "capsule add" in a_backlog.say("list").out


# ---- completion


@pytest.mark.promise("commands.completion")
def test_a_shell_completes_verbs_and_ids(a_long_backlog: BacklogProject, tmp_path: Path) -> None:
    """With the real bash, where there is one."""
    script = tmp_path / "completion.bash"
    script.write_text(a_long_backlog.say("completion", "bash").out)
    (tmp_path / "capsule").write_text(f'#!/bin/sh\nexec {sys.executable} -m capsule "$@"\n')
    (tmp_path / "capsule").chmod(0o755)

    def completed(*words: str) -> list[str]:
        typed = " ".join(map(shlex.quote, words))
        asks = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_capsule"
        env = a_long_backlog.environment() | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = f'{asks}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", said], cwd=a_long_backlog.path, env=env, capture_output=True, check=False)
        return done.stdout.decode().split()

    assert completed("capsule", "que") == ["questions"]
    assert completed("capsule", "ret") == ["retry"]
    assert completed("capsule", "retry", "WRK") == ["WRK-001", "WRK-002", "WRK-003"]
    assert "--title" in completed("capsule", "set", "--ti")
    assert completed("capsule", "answer", "WRK") == ["WRK-001", "WRK-002", "WRK-003"]
    assert completed("capsule", "close", "WRK-001", "WRK-00") == ["WRK-001", "WRK-002", "WRK-003"]
    assert completed("capsule", "depend", "--on", "WRK-002") == ["WRK-002"]


@pytest.mark.promise("commands.completion")
def test_fish_completes_verbs_aliases_options_and_ids(a_backlog: BacklogProject) -> None:
    lines = a_backlog.say("completion", "fish").out.splitlines()
    first = "complete -c capsule -n __fish_use_subcommand -a"
    assert {line.split()[6] for line in lines if line.startswith(first)} == {*VERBS, *ALIASES}
    assert f"{first} retry -d 'capsule answer --retry'" in lines
    inside = "complete -c capsule -n '__fish_seen_subcommand_from {}'"
    assert f"{inside.format('close')} -a '(capsule _ids 2>/dev/null)'" in lines
    assert f"{inside.format('import')} -F" in lines
    assert any(line.startswith(f"{inside.format('set')} -l title -x -d ") for line in lines)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_reads_its_script(a_long_backlog: BacklogProject, tmp_path: Path) -> None:
    script = tmp_path / "capsule.fish"
    script.write_text(a_long_backlog.say("completion", "fish").out)
    asks = ["fish", "--no-config", "-c", f"source {script}; complete -C 'capsule ret'"]
    assert subprocess.run(asks, capture_output=True, text=True, check=True).stdout.startswith("retry")


def test_ids_are_for_shells_and_say_nothing_where_there_is_no_project(tmp_path: Path, a_project: Project) -> None:
    assert a_project.say("_ids") == (0, f"{ITEM}\n", "")
    assert a_project.say("_ids", cwd=tmp_path) == (1, "", "")
