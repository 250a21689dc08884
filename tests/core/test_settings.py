"""Settings are strict, layered, and say where each value comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import grows_linearly

from capsule.core.errors import SettingsError
from capsule.plain_files import parse_yaml
from capsule.settings import NO_SETTINGS, Loaded, Settings, load_settings

Load = Callable[..., Loaded]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Settings of a user and a project whose files are given as text."""

    def loaded(
        *,
        user: str | None = None,
        project: str | None = None,
        toml: str | None = None,
        env: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Loaded:
        files = {"home/capsule/config.yaml": user, "p/.capsule/config.yaml": project, "p/orchestrate.toml": toml}
        for name, text in files.items():
            if text is not None:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text, encoding="utf-8")
        where = {"XDG_CONFIG_HOME": str(tmp_path / "home"), **(env or {})}
        return load_settings(tmp_path / "p", env=where, flags=flags or {})

    return loaded


def fault(load: Load, **layers: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(**layers)
    assert "\n" not in caught.value.message + caught.value.hint
    return f"{caught.value.message} | {caught.value.hint}"


# ---- layers


@pytest.mark.promise("004-types.toml")
def test_without_any_layer_the_defaults_are_in_force(load: Load) -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert loaded.layers == {}
    assert {layer for _, _, layer in loaded.rows()} == {"default"}


@pytest.mark.promise("settings.defaults")
def test_the_defaults_are_those_that_are_promised(load: Load) -> None:
    rows = {key: value for key, value, _ in load().rows()}
    promised = {
        "project.prefix": "WRK",
        "project.main": "auto",
        "guardrails.max_size": "medium",
        "guardrails.max_complexity": "medium",
        "guardrails.max_risk": "low",
        "execution.phase_timeout_minutes": 30,
        "execution.idle_timeout_minutes": 10,
        "execution.max_wait_minutes": 360,
        "execution.max_retries": None,
        "execution.default_phase_cap": 100,
        "tracker.name": "auto",
        "tracker.commit": False,
        "agent": "claude",
        "agents": {},
        "workflow.default": "auto",
        "workspace.kind": "auto",
        "workspace.setup": "none",
        "verify": "strict",
        "evidence.test": "auto",
        "evidence.test_globs": "auto",
        "sandbox": "auto",
        "skills": "auto",
        "build": "agent",
        "notify": "none",
        "git.hooks": False,
        "merge.push": False,
    }
    assert {key: rows[key] for key in promised} == promised


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("none", "none"),
        ("bell", "bell"),
        ("mail -s 'a b' me", "mail -s 'a b' me"),
        ("[bell, mail me]", ("bell", "mail me")),
    ],
)
def test_who_is_called_is_a_text_or_a_list(load: Load, said: str, meant: object) -> None:
    loaded = load(project=f"notify: {said}")
    assert loaded.settings.notify == meant
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("merge: {push: true}", "use `merge.to: remote`"),
        ("merge: {push: false}", "remove it"),
        ("merge: {push: true, to: remote}", "remove it"),
    ],
)
def test_merge_push_says_what_takes_its_place(load: Load, said: str, hint: str) -> None:
    (warning,) = load(project=said).warnings
    assert "merge.push is retired" in warning and hint in warning


def test_work_is_merged_here_unless_the_settings_say_otherwise(load: Load) -> None:
    merge = load().settings.merge
    assert (merge.to, merge.remote, merge.branch, merge.refs) == ("local", "origin", "auto", "refs/capsule/missions/")


@pytest.mark.parametrize(
    "odd",
    [
        *("remote: ../evil", "remote: --upload-pack=x", "remote: 'a b'", "branch: -x", "branch: a..b", "branch: 'a b'"),
        *("refs: refs/heads", "refs: heads/capsule/", "refs: refs/heads/", "refs: refs/a/../b/"),
    ],
)
def test_names_at_a_remote_are_names(load: Load, odd: str) -> None:
    with pytest.raises(SettingsError):
        load(project=f"merge: {{{odd}}}")


@pytest.mark.promise("claims.namespace")
@pytest.mark.parametrize(
    ("odd", "one", "other"),
    [
        ("refs: refs/capsule/claims/", "merge.refs", "merge.claims"),
        ("claims: refs/capsule/missions/", "merge.refs", "merge.claims"),
        ("refs: refs/capsule/claims/work/", "merge.refs", "merge.claims"),
        ("refs: refs/heads/x/, claims: refs/heads/x/y/", "merge.refs", "merge.claims"),
        ("to: request, claims: refs/heads/capsule/", "merge.refs", "merge.claims"),
        ("refs: refs/heads/team/, branch: team/main", "merge.refs", "merge.branch"),
        ("claims: refs/heads/main/, branch: main", "merge.claims", "merge.branch"),
        ("claims: refs/heads/capsule-state/", "merge.claims", "merge.state_branch"),
        ("branch: capsule-state", "merge.branch", "merge.state_branch"),
    ],
)
def test_what_is_kept_at_a_remote_is_kept_apart(load: Load, odd: str, one: str, other: str) -> None:
    """What is pushed for a mission replaces what is there: a claim, or main."""
    with pytest.raises(SettingsError) as refused:
        load(project=f"merge: {{to: remote, {odd}}}" if "to:" not in odd else f"merge: {{{odd}}}")
    assert one in refused.value.message and other in refused.value.message
    assert "overwrite" in refused.value.message and refused.value.hint


@pytest.mark.parametrize(
    "usual",
    [
        "to: remote",
        "to: request",
        "to: remote, refs: refs/heads/capsule/, claims: refs/heads/capsule-claims/",
        "to: remote, refs: refs/capsule/claims-of-work/, branch: capsule",
        "to: local, refs: refs/capsule/claims/",
    ],
)
def test_usual_names_at_a_remote_are_kept_apart(load: Load, usual: str) -> None:
    assert load(project=f"merge: {{{usual}}}").settings.merge.claims


@pytest.mark.promise("settings.layers")
def test_each_layer_wins_over_the_one_before(load: Load) -> None:
    said: dict[str, dict[str, object]] = {
        "user": {"user": "agent: one"},
        "project": {"project": "agent: two"},
        "environment": {"env": {"CAPSULE_AGENT": "three"}},
        "flag": {"flags": {"agent": "four"}},
    }
    so_far: dict[str, object] = {}
    for layer, words in said.items():
        so_far |= words
        loaded = load(**so_far)
        assert loaded.layers["agent"] == layer
    assert loaded.settings.agent == "four"


def test_a_layer_replaces_single_values_not_whole_sections(load: Load) -> None:
    loaded = load(user="execution: {max_retries: 7, default_phase_cap: 5}", project="execution: {max_retries: 1}")
    assert (loaded.settings.execution.max_retries, loaded.settings.execution.default_phase_cap) == (1, 5)
    assert loaded.layers == {"execution.max_retries": "project", "execution.default_phase_cap": "user"}


def test_a_flag_that_was_not_given_changes_nothing(load: Load) -> None:
    assert load(project="verify: warn", flags={"verify": None}).settings.verify == "warn"


@pytest.mark.promise("004-types.toml")
def test_toml_is_another_spelling_of_the_project_layer(load: Load) -> None:
    loaded = load(toml='[project]\nprefix = "ABC"\n[execution]\nmax_retries = 5\n')
    assert loaded.settings.project.prefix == "ABC"
    assert loaded.layers["execution.max_retries"] == "project"


def test_where_yaml_and_toml_differ_yaml_wins_with_a_warning(load: Load) -> None:
    loaded = load(toml='verify = "off"\nagent = "x"\n', project="verify: warn\nagent: x\n")
    assert loaded.settings.verify == "warn"
    assert len(loaded.warnings) == 1 and "verify" in loaded.warnings[0]


@pytest.mark.promise("evidence.rules-from-base")
def test_the_project_layer_can_be_read_from_a_commit(tmp_path: Path) -> None:
    (tmp_path / ".capsule").mkdir()
    (tmp_path / ".capsule/config.yaml").write_text("verify: off")
    base = {".capsule/config.yaml": b"verify: warn"}
    assert load_settings(tmp_path, env={}, flags={}, read_project=base.get).settings.verify == "warn"


def test_the_user_layer_is_found_below_home(tmp_path: Path) -> None:
    (tmp_path / ".config/capsule").mkdir(parents=True)
    (tmp_path / ".config/capsule/config.yaml").write_text("agent: mine")
    assert load_settings(None, env={"HOME": str(tmp_path)}, flags={}).settings.agent == "mine"


def test_agents_are_an_open_table_merged_by_option(load: Load) -> None:
    loaded = load(
        user="agents: {claude: {model: big, env: {A: '1'}}}",
        project="agents: {claude: {args: [--x], env: {B: '2'}}, mine: {kind: command, command: [run, '{prompt}']}}",
    )
    claude = loaded.settings.agents["claude"]
    assert (claude.model, claude.args, claude.env) == ("big", ("--x",), {"A": "1", "B": "2"})
    assert loaded.settings.agents["mine"].command == ("run", "{prompt}")
    assert loaded.layers["agents.claude.model"] == "user"


def test_names_with_dots_stay_whole_in_open_tables(load: Load) -> None:
    assert load(project="workflow: {by_tag: {'a.b': tdd}}").settings.workflow.by_tag == {"a.b": "tdd"}


def test_a_section_whose_keys_are_all_commented_out_is_empty(load: Load) -> None:
    assert load(project="agents:\nexecution:\n  # max_retries: 3\n").settings == Settings()


# ---- environment


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("CAPSULE_VERIFY", "off", "verify", "off"),
        ("CAPSULE_EXECUTION__MAX_RETRIES", "0", "execution.max_retries", 0),
        ("CAPSULE_EXECUTION__PHASE_TIMEOUT_MINUTES", "0.5", "execution.phase_timeout_minutes", 0.5),
        ("CAPSULE_GIT__HOOKS", "true", "git.hooks", True),
        ("CAPSULE_EVIDENCE__TEST", "make test # all: of them", "evidence.test", "make test # all: of them"),
        ("CAPSULE_EVIDENCE__TEST_GLOBS", "[a, b]", "evidence.test_globs", ("a", "b")),
        ("CAPSULE_PROJECT__MAIN", "123", "project.main", "123"),
        ("CAPSULE_AGENTS__CLAUDE__MODEL", "big", "agents.claude.model", "big"),
        ("CAPSULE_AGENTS__CLAUDE__ENV", "{Ab: c}", "agents.claude.env.Ab", "c"),
    ],
)
def test_environment_variables_set_settings(load: Load, name: str, text: str, key: str, value: object) -> None:
    rows = {key: (value, layer) for key, value, layer in load(env={name: text}).rows()}
    assert rows[key] == (value, "environment")


@pytest.mark.parametrize("name", sorted(NO_SETTINGS))
def test_what_capsule_tells_its_children_is_no_setting(load: Load, name: str) -> None:
    assert load(env={name: "anything"}).settings == Settings()


def test_an_empty_variable_counts_as_unset(load: Load) -> None:
    assert load(env={"CAPSULE_VERIFY": ""}).layers == {}


@pytest.mark.promise("settings.unknown-key")
def test_an_unknown_variable_is_an_error_that_names_the_nearest(load: Load) -> None:
    text = fault(load, env={"CAPSULE_VERIFFY": "off"})
    assert "CAPSULE_VERIFFY" in text and "`verify`" in text
    assert "`execution.max_retries`" in fault(load, env={"CAPSULE_EXECUTION__MAX_RETRYS": "1"})


# ---- strictness


@pytest.mark.promise("settings.unknown-key")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verfy: off", ["there is no setting `verfy`", "Did you mean `verify`"]),
        ("execution: {max_retrys: 1}", ["`execution.max_retrys`", "Did you mean `execution.max_retries`"]),
        ("max_retries: 1", ["no setting `max_retries`", "write `execution.max_retries`"]),
        ("agents: {claude: {modle: x}}", ["`agents.claude.modle`", "model"]),
        ("verify: {max_risk: low}", ["`verify`", "strict, warn, off"]),
        ("execution: {max_risk: low}", ["write `guardrails.max_risk`"]),
        ("verify: of", ["`verify` is 'of'", "one of strict, warn, off", "Did you mean `off`"]),
        ("verify: false", ["`verify` is False", "one of strict, warn, off"]),
        ("execution: {phase_timeout_minutes: 0}", ["above 0"]),
        ("execution: {phase_timeout_minutes: .inf}", ["at most 10080"]),
        ("execution: {phase_timeout_minutes: .nan}", ["above 0"]),
        ("execution: {phase_timeout_minutes: soon}", ["'soon'", "a number of minutes"]),
        ("execution: {max_retries: -1}", ["0 or more", "left out"]),
        ("execution: {max_retries: true}", ["0 or more"]),
        ("execution: {default_phase_cap: 0}", ["1 or more"]),
        ("agent: 3", ["`agent` is 3", "must be text"]),
        ("agent:", ["`agent` is empty", "must be text"]),
        ("evidence: {debris: '*.tmp'}", ["a list of texts"]),
        ("evidence: {test_globs: [1]}", ["auto or a list of texts"]),
        ("workflow: tdd", ["`workflow` is 'tdd'", "table of keys", "default, by_type, by_tag"]),
        ("- a", ["the file", "table of keys"]),
        ("project: {prefix: 'A;B'}", ["letters and digits"]),
        ('project: {prefix: "A\\n"}', ["letters and digits"]),
        ("1: x", ["no setting `1`"]),
        ("agents: {1: {}}", ["`agents.1`"]),
        ("agent: !secret x", ["must be text"]),
        ("verify: off\nagent: a\nverify: warn\n", ["line 3", "`verify` was given on line 1"]),
        ("execution:\n  max_retries: 1\n  'max_retries': 2\n", ["line 3", "`max_retries` was given on line 2"]),
        ('execution: {"max_retries":1, max_retries: 2}', ["line 1", "`max_retries`"]),
        ("agent: a\n---\nagent: b\n", ["2 YAML documents"]),
        ("agent: [a", ["line 2", "flow sequence"]),
        ("agent: a\nmodel:\n\tb: c\n", ["line 3", "tab"]),
    ],
)
def test_faults_name_file_key_and_remedy(load: Load, text: str, expected: list[str]) -> None:
    words = fault(load, project=text)
    assert words.startswith(".capsule/config.yaml")
    for part in expected:
        assert part in words


@pytest.mark.promise("004-types.toml")
def test_faults_in_the_other_files_name_those(load: Load, tmp_path: Path) -> None:
    assert fault(load, toml="nonsense = 1").startswith("orchestrate.toml: there is no setting `nonsense`")
    assert "line 2" in fault(load, toml="a = 1\na = 2\n")
    (tmp_path / "p/orchestrate.toml").unlink()
    assert str(tmp_path / "home/capsule/config.yaml") in fault(load, user="nonsense: 1")


def test_a_wrong_flag_is_explained_like_everything_else(load: Load) -> None:
    assert "command line: `verify` is 'strickt'" in fault(load, flags={"verify": "strickt"})


@pytest.mark.parametrize(
    "text",
    [
        "evidence:\n  test: |\n    a: 1\n    a: 2\n",
        "# a: 1\n# a: 2\nevidence: {test: 'x: 1, x: 2'}\n",
        "agents:\n  one: {model: m}\n  two: {model: m}\n",
        "agents:\n  one:\n    model: m\n  two:\n    model: m\n",
        'evidence:\n  test: "a:\n    a:\n    a: b"\n',
    ],
)
def test_what_only_looks_like_a_duplicate_is_none(load: Load, text: str) -> None:
    assert load(project=text).layers


def test_a_byte_order_mark_and_windows_line_ends_are_fine(load: Load) -> None:
    assert load(project="\ufeffverify: off\r\nagent: x\r\n").settings.agent == "x"


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="line 2: this is not UTF-8"):
        parse_yaml(b"a: b\nc: \xff\n", "file")


def test_an_alias_bomb_is_refused_before_it_grows(load: Load) -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    assert "aliases" in fault(load, project=f"a0: &a0 [x, x]\n{levels}")
    assert "aliases" in fault(load, project='{"a":&a [x], "b": [' + "*a, " * 20 + "x]}")
    behind_quotes = "".join(f'[{{" &":&a{n} [{", ".join([f"*a{n - 1}"] * 10)}]}}], ' for n in range(1, 10))
    assert "aliases" in fault(load, project=f"a: [&a0 [x, x], {behind_quotes}x]")
    assert load(project="agents: {one: &o {model: m}, two: *o}").settings.agents["two"].model == "m"


def test_only_regular_files_of_reasonable_size_are_read(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "p/.capsule/config.yaml"
    path.mkdir(parents=True)
    assert "not a regular file" in fault(load)
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in fault(load)
    path.unlink()
    assert "larger than" in fault(load, project="#" * 2_000_000)


def test_deep_nesting_is_an_error_and_no_crash(load: Load) -> None:
    assert fault(load, project="[" * 100_000)
    assert fault(load, toml="a = " + "[" * 100_000)


@given(
    st.recursive(
        st.integers(-(2**53), 2**53) | st.sampled_from(["a", "b: c", "x"]),
        lambda inner: (
            st.dictionaries(st.sampled_from(["a", "b", "key with space", "q'uote", "1"]), inner, max_size=4)
            | st.lists(inner, max_size=3)
        ),
    )
)
def test_no_duplicate_is_seen_where_there_is_none(data: object) -> None:
    for style in (None, True, False):
        text = yaml.safe_dump(data, default_flow_style=style)
        assert parse_yaml(text.encode(), "file") == data


@pytest.mark.slow
@pytest.mark.promise("speed.linear")
def test_a_large_file_costs_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        text = "".join(f"key{number}: {{a: 1, b: [x, y]}}\n" for number in range(count)).encode()
        return lambda: parse_yaml(text, "file")

    assert grows_linearly(work, 2_000, 16_000)


# ---- the command


def shown(folder: Path, *arguments: str, **env: str) -> str:
    """What the command prints, outside of any repository."""
    where = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent), **env}
    done = subprocess.run(
        [sys.executable, "-m", "capsule", "config", *arguments],
        cwd=folder,
        env=where,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.promise("commands.config")
def test_config_shows_every_value_and_its_layer(tmp_path: Path) -> None:
    lines = shown(tmp_path, CAPSULE_VERIFY="off").splitlines()
    assert ["verify", "off", "environment"] in [line.split() for line in lines]
    assert ["execution.max_retries", "unset", "default"] in [line.split() for line in lines]
    assert len(lines) == len(load_settings(None, env={}, flags={}).rows()) + 1


def test_config_shows_one_value_one_section_or_json(tmp_path: Path) -> None:
    assert shown(tmp_path, "execution.phase_timeout_minutes") == "30\n"
    assert len(shown(tmp_path, "guardrails").splitlines()) == 4
    assert '"layer": "default"' in shown(tmp_path, "--json")


@pytest.mark.promise("commands.config")
def test_config_hides_secrets_unless_they_are_named(tmp_path: Path) -> None:
    env = {"CAPSULE_AGENTS__CLAUDE__ENV": "{API_KEY: s3cret}"}
    assert "s3cret" not in shown(tmp_path, **env) + shown(tmp_path, "--json", **env) + shown(tmp_path, "agents", **env)
    assert shown(tmp_path, "agents.claude.env.API_KEY", **env) == "s3cret\n"


@pytest.mark.parametrize("bomb", ["- " * 20_000, "? " * 20_000, "[" * 20_000, "a: " + "{a: " * 20_000])
def test_a_file_that_would_end_the_process_is_refused(bomb: str) -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        parse_yaml(bomb.encode(), "config.yaml")


def test_a_retired_setting_is_obeyed_and_says_what_takes_its_place() -> None:
    alone = load_settings(None, env={"CAPSULE_WORKSPACE__KIND": "checkout"}, flags={})
    assert alone.settings.workspace.publish == "steps"
    assert [words for words in alone.warnings if "`workspace.publish: steps`" in words]
    both = {"CAPSULE_WORKSPACE__KIND": "worktree", "CAPSULE_WORKSPACE__PUBLISH": "steps"}
    beside = load_settings(None, env=both, flags={})
    assert beside.settings.workspace.publish == "steps"
    assert [words for words in beside.warnings if "remove it" in words and "merge" not in words]
