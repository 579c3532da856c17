"""A PostgreSQL that is not ours: over TCP, of another version where PATH has one, and cruelly treated by tests.

As root it runs like the embedded one, which knows how not to be root.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import asyncpg
import pytest

from fabric_manager.store.embedded import Binaries, find_binaries
from fabric_manager.store.embedded.binaries import on_path
from fabric_manager.store.embedded.cluster import SUPERUSER, ensure_cluster
from fabric_manager.store.embedded.connecting import NOT_YET
from fabric_manager.store.embedded.postmaster import Postmaster, launch
from fabric_manager.store.embedded.processes import pids_in, wait_until_empty
from fabric_manager.store.embedded.quarters import Quarters, find_quarters

LOG = logging.getLogger("external postgres")
HOST = "127.0.0.1"
DATABASE = "external"
READY_TIMEOUT_S = 30
POLL_S = 0.05


def other_binaries() -> Binaries:
    """PostgreSQL >= 15 on PATH, else the embedded one in the part of an external one."""
    return on_path() or find_binaries()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class ExternalPostgres:
    """`url` names an empty database; it stays valid through `pause`, `kill` and another `start`."""

    def __init__(self, *, directory: Path, nobody_root: Path, binaries: Binaries) -> None:
        self.binaries = binaries
        self.port = free_port()
        self._directory = directory
        self._nobody_root = nobody_root
        self._quarters: Quarters | None = None
        self._postmaster: Postmaster | None = None
        self._password = ""

    @property
    def url(self) -> str:
        return self.url_through(self.port)

    def url_through(self, port: int, database: str = DATABASE) -> str:
        """The same database behind a proxy that listens on `port`."""
        return f"postgresql://{SUPERUSER}:{quote(self._password, safe='')}@{HOST}:{port}/{database}"

    async def start(self) -> None:
        """Return once it takes connections."""
        if self._quarters is None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._quarters = await find_quarters(
                self._directory,
                binaries=self.binaries,
                namespaces_allowed=True,
                nobody_root=self._nobody_root,
                log=LOG,
            )
            self._password = await ensure_cluster(self._quarters, data_dir=self._directory, durable=False)
        settings = {"listen_addresses": HOST, "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log_file = self._directory / "external.log"
        self._postmaster = await launch(
            self._quarters, ["-D", str(self._quarters.pgdata), *arguments], log_file=log_file
        )
        async with asyncio.timeout(READY_TIMEOUT_S):
            while not await self._accepts():
                assert self._postmaster.alive, log_file.read_text()
                await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """Clean, whatever was done to it before. May be called twice."""
        if self._postmaster is not None:
            self.resume()
            await self._postmaster.stop(LOG)
            self._postmaster = None

    def pause(self) -> None:
        """Every process of it stands still; the kernel goes on taking connections and bytes for it."""
        self._signal(signal.SIGSTOP)
        self._signal(signal.SIGSTOP)  # whoever was born while the first went round

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """As a power cut: no process of it is left, and its files are as they were."""
        assert self._postmaster is not None
        assert self._quarters is not None
        self._signal(signal.SIGKILL)
        await self._postmaster.wait()
        await wait_until_empty(self._quarters.pgdata, timeout_s=READY_TIMEOUT_S)
        self._postmaster = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._quarters is not None
        assert self._postmaster is not None
        for pid in {self._postmaster.pid, *pids_in(self._quarters.pgdata)}:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    async def _accepts(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url_through(self.port, "postgres"), timeout=3)
        except NOT_YET:
            return False
        try:
            if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            connection.terminate()
        return True


@pytest.fixture
async def external_postgres(tmp_path: Path) -> AsyncIterator[ExternalPostgres]:
    """A running one. For other folders: import it in their conftest."""
    with open_directory() as nobody_root:
        server = ExternalPostgres(directory=tmp_path / "external", nobody_root=nobody_root, binaries=other_binaries())
        try:
            await server.start()
            yield server
        finally:
            await server.stop()


@contextmanager
def open_directory() -> Iterator[Path]:
    """Below /tmp itself: pytest's own directories are closed to `nobody`."""
    with TemporaryDirectory(prefix="fm-external-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
