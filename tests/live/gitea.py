"""A real Gitea on loopback: its server, its people and repositories, and what they do with a request.

    with served(folder) as gitea: there = gitea.host(project.path, "project")

`Hosted` has the names that the small forge of the other tests has (tests/fake_forge).
There is no `tea` with an `api` in any registry: `tea.py` is a stand-in for that one command, and talks to the server.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.costs import LONG
from tests.git_server import run
from tests.live.install import gitea

Row = dict[str, Any]
US, ADA, MALLORY = "team", "ada", "mallory"
"""Whose login Capsule has; who may write; who may not."""
PASSWORD = "not-a-password"
_PROGRAM = gitea()
_TEA = """#!{python} -SEs
import sys
sys.path.insert(0, {root!r})
from tests.live.tea import main
main({address!r}, {token!r})
"""
_SETTINGS = """\
RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = {address}/
STATIC_ROOT_PATH = {static}
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {folder}/gitea.db
[security]
INSTALL_LOCK = true
SECRET_KEY = not-a-secret
INTERNAL_TOKEN = not-a-token
PASSWORD_HASH_ALGO = pbkdf2$1$10
[service]
DISABLE_REGISTRATION = true
[cron]
ENABLED = false
[actions]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[log]
MODE = file
LEVEL = Warn
ROOT_PATH = {folder}/log
"""


class Gitea:
    """A server that runs."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.token = ""

    def ask(self, method: str, path: str, by: str = US, **fields: object) -> Any:
        """Ask the API as one of its people; return the answer."""
        login = base64.b64encode(f"{by}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = json.dumps(fields).encode() if fields else None
        request = urllib.request.Request(f"{self.address}/api/v1/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                said = answer.read()
        except urllib.error.HTTPError as fault:
            raise AssertionError(f"{method} {path}: {fault.code} {fault.read().decode()}") from None
        return json.loads(said) if said else None

    def host(self, source: Path, name: str) -> Hosted:
        """Make a repository of one that exists; main takes requests only, and Ada may write to it."""
        self.ask("POST", "user/repos", name=name, default_branch="main")
        there = Hosted(self, f"{US}/{name}")
        run("push", "-q", there.url, "main", cwd=source)
        there.ask("PUT", f"collaborators/{ADA}", permission="write")
        there.protect_main()
        return there

    def install(self, folder: Path) -> Path:
        """Put a `tea` that is logged in into a folder, which is returned: it belongs first on the PATH."""
        folder.mkdir()
        root = str(Path(__file__).parents[2])
        program = _TEA.format(python=sys.executable, root=root, address=self.address, token=self.token)
        (folder / "tea").write_text(program)
        (folder / "tea").chmod(0o755)
        return folder


class Hosted:
    """A repository there, and what people do with its newest request."""

    def __init__(self, gitea: Gitea, path: str) -> None:
        self._gitea = gitea
        self.path = path
        self.url = f"{gitea.address.replace('://', f'://{US}:{PASSWORD}@')}/{path}.git"

    def ask(self, method: str, path: str, by: str = US, **fields: object) -> Any:
        return self._gitea.ask(method, f"repos/{self.path}/{path}", by, **fields)

    def protect_main(self) -> None:
        self.ask("POST", "branch_protections", rule_name="main", enable_push=False, block_on_rejected_reviews=False)

    def move_main(self) -> None:
        """Main goes on by a commit of somebody who may."""
        self.ask("DELETE", "branch_protections/main")
        self.ask("POST", "contents/theirs", branch="main", message="By Bob", content="eA==")
        self.protect_main()

    @property
    def requests(self) -> list[Row]:
        """The oldest first."""
        rows: list[Row] = self.ask("GET", "pulls?state=all")
        return rows[::-1]

    @property
    def request(self) -> Row:
        return self.requests[-1]

    @property
    def _number(self) -> int:
        return int(self.request["number"])

    def head(self, branch: str) -> str:
        """The commit of a branch; '' if there is none."""
        return run("ls-remote", self.url, f"refs/heads/{branch}").partition("\t")[0]

    def show(self, path: str, branch: str) -> str:
        answer = self.ask("GET", f"contents/{path}?ref={branch}")
        return base64.b64decode(answer["content"]).decode()

    def review(self, text: str, *, by: str = ADA, at: tuple[str, int, str] | None = None) -> None:
        """Request changes; `at` is a remark on a line of a file."""
        comments = [{"path": at[0], "new_position": at[1], "body": at[2]}] if at else []
        review = {"event": "REQUEST_CHANGES", "body": text, "comments": comments}
        self.ask("POST", f"pulls/{self._number}/reviews", by, **review)

    def approve(self, by: str = ADA) -> None:
        self.ask("POST", f"pulls/{self._number}/reviews", by, event="APPROVED", body="")

    def comment(self, text: str, by: str = MALLORY) -> None:
        self.ask("POST", f"issues/{self._number}/comments", by, body=text)

    def check(self, name: str, outcome: str) -> None:
        """Report on the commit that is proposed now."""
        state = {"failed": "failure", "passed": "success"}.get(outcome, outcome)
        address = f"https://ci.example.org/{name}"
        head = self.request["head"]["sha"]
        self.ask("POST", f"statuses/{head}", ADA, context=name, state=state, target_url=address)

    def merge(self, how: str = "merge", *, delete: bool = False) -> str:
        """Merge it by the button: `merge`, `squash`, `rebase`, `rebase-merge`; return the commit on its base."""
        number, give_up = self._number, time.monotonic() + LONG
        while not self.request["mergeable"]:  # found out beside
            assert time.monotonic() < give_up, self.request
            time.sleep(0.1)
        self.ask("POST", f"pulls/{number}/merge", ADA, Do=how, delete_branch_after_merge=delete)
        return str(self.ask("GET", f"pulls/{number}")["merge_commit_sha"])

    def set_state(self, state: str) -> None:
        self.ask("PATCH", f"pulls/{self._number}", ADA, state=state)

    def retarget(self, base: str) -> None:
        self.ask("POST", "branches", new_branch_name=base, old_branch_name="main")
        self.ask("PATCH", f"pulls/{self._number}", ADA, base=base)

    def delete_branch(self, branch: str) -> None:
        self.ask("DELETE", f"branches/{branch}", ADA)


@contextmanager
def served(folder: Path) -> Iterator[Gitea]:
    """Run a server with its data in this folder; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    settings = folder / "app.ini"
    settings.write_text(_SETTINGS.format(port=port, address=address, static=_PROGRAM.parent, folder=folder))
    home = {"HOME": str(folder), "GITEA_WORK_DIR": str(folder), "PATH": os.environ["PATH"], "USER": _user()}

    def call(*words: str) -> str:
        words = (str(_PROGRAM), "--config", str(settings), *words)
        done = subprocess.run(words, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return done.stdout.strip()

    call("migrate")
    for name in (US, ADA, MALLORY):
        who = ("--username", name, "--email", f"{name}@example.org", "--password", PASSWORD)
        call("admin", "user", "create", *who, "--must-change-password=false")
    with (folder / "said").open("wb") as said:
        server = subprocess.Popen(
            [str(_PROGRAM), "--config", str(settings), "web"], env=home, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        there = Gitea(address)
        _wait_until_it_answers(there, server, folder / "said")
        token = there.ask("POST", f"users/{US}/tokens", name="tea", scopes=["all"])
        there.token = token["sha1"]
        yield there
    finally:
        server.terminate()
        server.wait(LONG)
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _wait_until_it_answers(there: Gitea, server: subprocess.Popen[bytes], said: Path) -> None:
    give_up = time.monotonic() + LONG
    while True:
        try:
            there.ask("GET", "version")
        except OSError:
            assert server.poll() is None, said.read_text()
            assert time.monotonic() < give_up, said.read_text()
            time.sleep(0.1)
        else:
            return
