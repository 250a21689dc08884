"""What is never merged, and what looks like it and is harmless."""

from __future__ import annotations

import pytest

from capsule.core.hazards import GITLINK, LINK, AddedFile, allowed_secrets, asks_if_tested, hazards, leads_out

FILE = "100644"
KEYS = {
    "a private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
    "an AWS access key": "id = AKIA" + "Q3EGRZ7XJ2MVWN4T",
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a GitLab token": "glpat-" + "a1B2" * 5,
    "an Anthropic key": "sk-ant-" + "api03-" + "a1B2" * 6,
    "a Slack token": "xoxb-" + "123456789012-abcdefghijkl",
    "a Google key": "AIza" + "a1B2c" * 7,
    "a Stripe key": "sk_live_" + "a1B2" * 6,
}


@pytest.mark.parametrize("what", KEYS)
def test_keys_of_well_known_forms_are_named_and_not_shown(what: str) -> None:
    (words,) = hazards([AddedFile("src/settings.py", FILE, f"x = 1\nkey = {KEYS[what]}\n")])
    assert words == f"src/settings.py holds {what}"


def test_the_value_of_a_secret_is_found_and_not_shown() -> None:
    (words,) = hazards(
        [AddedFile("notes", FILE, "the password is hunter2hunter2")], lambda t: t.replace("hunter2", "…")
    )
    assert words == "notes holds the value of a secret variable of this machine"


def test_code_that_names_the_folder_it_was_written_in_would_run_nowhere_else() -> None:
    added = "x = open('/home/ada/shop/.capsule/worktrees/a-1/x').read()\n"
    folders = ["/home/ada/shop/.capsule/worktrees/a-1", "/home/ada/shop"]
    (words,) = hazards([AddedFile("shop.py", FILE, added), AddedFile("notes.md", FILE, added)], folders=folders)
    assert words == "shop.py names a folder of this machine, in which it was written"
    assert not hazards([AddedFile("shop.py", FILE, added)], folders=["/home/ben/shop"])


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "ghp_short",
        "mask-ant-design is a library",
        "xoxb-your-token-here",
        "class Task_live_updates: pass",
    ],
)
def test_what_only_looks_like_a_key_is_let_pass(text: str) -> None:
    assert hazards([AddedFile("README.md", FILE, text)]) == []


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", "/etc/passwd"),
        ("a", "../b"),
        ("deep/er/a", "../../../b"),
        ("deep/a", "b/../../.."),
        ("deep/er/a", "b/.."),
        ("a", ".git/hooks"),
        ("deep/a", "../.GIT/config"),
        ("a", ".."),
    ],
)
def test_links_that_lead_out_are_told(path: str, target: str) -> None:
    assert hazards([AddedFile(path, LINK, target)]) == [f"{path} is a symbolic link that leads out of the repository"]


@pytest.mark.parametrize(("path", "target"), [("a", "b"), ("deep/a", "../b"), ("deep/a", ".."), ("a", ".gitignore")])
def test_links_inside_are_nobodys_business(path: str, target: str) -> None:
    assert not leads_out(AddedFile(path, LINK, target))


def test_other_repositories_and_their_insides_are_told() -> None:
    found = hazards([AddedFile("sub", GITLINK), AddedFile("a/.git/config", FILE), AddedFile("a/.Git/x", FILE)])
    assert [words.split()[0] for words in found] == ["sub", "a/.git/config", "a/.Git/x"]


@pytest.mark.promise("evidence.allowed-keys")
def test_a_key_that_a_person_allows_is_named_and_no_hazard() -> None:
    key = AddedFile("tests/data/self-signed.key", FILE, KEYS["a private key"])
    other = AddedFile("src/key", FILE, KEYS["a private key"])
    kept, named = allowed_secrets([key, other], ("tests/data/*.key",))
    assert hazards(kept) == ["src/key holds a private key"]
    assert named == ["tests/data/self-signed.key holds a private key, which evidence.allow permits"]


def test_an_allowed_file_may_hold_no_secret_of_this_machine() -> None:
    file = AddedFile("tests/key", FILE, KEYS["a private key"] + "\nhunter2hunter2")
    kept, _ = allowed_secrets([file], ("tests/**",))
    assert hazards(kept, lambda text: text.replace("hunter2", "…")) == [
        "tests/key holds the value of a secret variable of this machine"
    ]


@pytest.mark.parametrize(
    ("path", "added"),
    [
        ("calc.py", "return n if 'pytest' in sys.modules else 0"),
        ("calc.py", 'if "unittest.case" in modules:'),
        ("calc.py", "os.environ.get('PYTEST_CURRENT_TEST')"),
        ("calc.js", "process.env.NODE_TEST_CONTEXT ? right : wrong"),
        ("calc.ts", "if (process.env.VITEST) {"),
        ("calc.go", "if !testing.Testing() {"),
        ("src/lib.rs", "#[cfg(not(test))]\npub fn clamp"),
        ("src/lib.rs", "if cfg!(test) {"),
    ],
)
def test_code_that_asks_whether_it_is_being_tested_is_named(path: str, added: str) -> None:
    (words,) = asks_if_tested([AddedFile(path, FILE, added)]).values()
    assert words.startswith(f"{path} asks whether it is being tested (`")


@pytest.mark.parametrize(
    ("path", "added"),
    [
        ("calc.py", "import pytest\nimport unittest\nif name in sys.modules:"),
        ("notes.md", "PYTEST_CURRENT_TEST is set by pytest"),
        ("calc.js", "process.env.NODE_ENV === 'test'"),
        ("calc.go", 'import "testing"'),
        ("src/lib.rs", "#![cfg_attr(not(test), no_std)]\n#[cfg(test)]\nmod tests {"),
    ],
)
def test_code_that_names_a_runner_does_not_ask_for_it(path: str, added: str) -> None:
    assert asks_if_tested([AddedFile(path, FILE, added)]) == {}
