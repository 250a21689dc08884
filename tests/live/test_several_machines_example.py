"""What lies in examples/09-several-machines: both servers start with their files, and systemd accepts the units."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, TLSConfig

from capsule.plain_files import parse_yaml
from tests.house.pages import ROOT, Reader
from tests.live.conftest import temporal_program
from tests.live.install import TEMPORAL
from tests.live.temporal_server import LOOPBACK, NAMESPACE, free_ports, serving

EXAMPLE = ROOT / "examples" / "09-several-machines"
PORTS = ("7233", "7234", "7235", "7239", "6933", "6934", "6935", "6939")
_POSTGRES = Path("/usr/lib/postgresql")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy, with ports that are free."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    ports = free_ports(LOOPBACK, len(PORTS))
    shutil.copytree(ROOT / "examples" / "06-merge-to-a-remote", tmp_path / "06-merge-to-a-remote")
    for file in (*folder.glob("temporal-*.yaml"), folder / "namespace.py", folder / "README.md"):
        text = file.read_text()
        for shown, port in zip(PORTS, ports, strict=True):
            text = text.replace(shown, str(port))
        file.write_text(text)
    (folder / "address").write_text(f"{LOOPBACK}:{ports[0]}")
    return folder


@contextmanager
def started(folder: Path, config: str) -> Iterator[str]:
    """Start the server as the file says in its first lines; yield its address."""
    text = (folder / config).read_text()
    words = next(line for line in text.splitlines() if "temporal-server --" in line).lstrip("# ").split()
    assert words[1:3] == ["--config-file", config]
    program = temporal_program()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([str(program), *words[1:]], cwd=folder, stdout=log, stderr=log)
    try:
        yield (folder / "address").read_text()
    finally:
        server.kill()
        server.wait()


def knows_a_namespace(address: str, log: Path, tls: TLSConfig | bool = False) -> None:
    asyncio.run(serving(address, [NAMESPACE], lambda: log.read_text()[-2000:], tls=tls))


def test_the_example_works_as_its_page_says(example: Path, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{temporal_program().parent}:{os.environ['PATH']}"
    place = tmp_path / "place"
    place.mkdir()
    reader = Reader(place, EXAMPLE=str(example), PATH=path)
    try:
        assert reader.follow((example / "README.md").read_text()) > 10
    finally:
        for file in place.glob("*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def test_the_server_for_trying_keeps_its_data_in_a_file(example: Path) -> None:
    with started(example, "temporal-sqlite.yaml") as address:
        knows_a_namespace(address, example / "log")
    assert (example / "temporal.db").stat().st_size > 0
    with started(example, "temporal-sqlite.yaml") as address:
        knows_a_namespace(address, example / "log")


def test_the_server_for_keeping_lets_in_who_has_a_certificate(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates(example)
    with postgres(tmp_path / "postgres") as port:
        for name, value in (("TEMPORAL_PASSWORD", "secret"), ("POSTGRES_PORT", port)):
            monkeypatch.setenv(name, value)
        config = example / "temporal-postgres.yaml"
        config.write_text(config.read_text().replace("5432", port))
        for _ in range(2):
            make_tables(example)
        with started(example, "temporal-postgres.yaml") as address:
            ours = TLSConfig(
                server_root_ca_cert=(example / "ca.pem").read_bytes(),
                client_cert=(example / "worker.pem").read_bytes(),
                client_private_key=(example / "worker.key").read_bytes(),
            )
            knows_a_namespace(address, example / "log", ours)
            nobodys = TLSConfig(server_root_ca_cert=ours.server_root_ca_cert)
            with pytest.raises(RuntimeError):
                asyncio.run(Client.connect(address, tls=nobodys))


def make_tables(folder: Path) -> None:
    path = f"{temporal_program('temporal-sql-tool').parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "tables"], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def certificates(folder: Path) -> None:
    """Make an authority, and the certificates that the file names, as the page shows."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    done = subprocess.run(["sh", "certificates", LOOPBACK], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a Postgres with a role for the server; yield its port. It does not run as root."""
    found = sorted(_POSTGRES.glob("*/bin"))
    if not found:
        pytest.skip("Postgres is not installed")
    as_user = [] if os.geteuid() else ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    folder.mkdir()
    if as_user:
        for above in (folder, *folder.parents):
            if above.stat().st_uid == os.geteuid() and above.name.startswith(("pytest", "popen", "test_")):
                above.chmod(0o755)
        shutil.chown(folder, "postgres", "postgres")
    port, data = str(free_ports(LOOPBACK, 1)[0]), folder / "data"
    (folder / "password").write_text("admin")
    run = [*as_user, f"{found[-1]}/initdb", "-D", str(data), "-U", "postgres", "-A", "scram-sha-256"]
    subprocess.run([*run, f"--pwfile={folder / 'password'}"], cwd=folder, check=True, capture_output=True)
    words = ("-D", str(data), "-p", port, "-k", str(folder), "-c", f"listen_addresses={LOOPBACK}", "-c", "fsync=off")
    server = subprocess.Popen(
        [*as_user, f"{found[-1]}/postgres", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        psql = [f"{found[-1]}/psql", "-h", LOOPBACK, "-p", port, "-U", "postgres", "-c"]
        role = "create role temporal login createdb password 'secret'"
        ready = [f"{found[-1]}/pg_isready", "-q", "-h", LOOPBACK, "-p", port]
        while subprocess.run(ready, check=False).returncode:
            assert server.poll() is None
        subprocess.run([*psql, role], env={**os.environ, "PGPASSWORD": "admin"}, check=True, capture_output=True)
        yield port
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("unit", ["temporal.service", "capsule-worker@.service"])
def test_systemd_accepts_a_unit(unit: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    programs = {"/usr/local/bin/temporal-server": "/bin/true", "/usr/local/bin/capsule": "/bin/true"}
    text = (EXAMPLE / unit).read_text()
    for shown, there in programs.items():
        text = text.replace(shown, there)
    file = tmp_path / unit.replace("@", "@shop")
    file.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_compose_file_is_about_the_same_version() -> None:
    services: Any = parse_yaml((EXAMPLE / "compose.yaml").read_bytes(), "compose.yaml")
    services = services["services"]
    assert {services[name]["image"].partition(":")[2] for name in ("temporal", "tables")} == {TEMPORAL}
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert published and all(port.startswith(f"{LOOPBACK}:") for port in published)
