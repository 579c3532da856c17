"""The embedded PostgreSQL as the service sees it: start it, use `url`, stop it."""

import asyncio
import os
from logging import Logger
from pathlib import Path
from types import TracebackType
from typing import Self

from fabric_manager.store.embedded.binaries import Binaries, find_binaries
from fabric_manager.store.embedded.cluster import ensure_cluster
from fabric_manager.store.embedded.connecting import accepts, database_url
from fabric_manager.store.embedded.errors import LauncherError
from fabric_manager.store.embedded.postmaster import Postmaster, find_earlier, launch
from fabric_manager.store.embedded.private_files import (
    make_private_directory,
    remove_runtime_directory,
    socket_directory,
)
from fabric_manager.store.embedded.processes import POLL_S
from fabric_manager.store.embedded.quarters import NOBODY_ROOT, Quarters, find_quarters
from fabric_manager.store.embedded.server_log import bound_log, last_lines
from fabric_manager.store.embedded.server_settings import server_arguments

DATA_DIR_BYTES_MAX = 960  # PostgreSQL cuts paths at 1024, file names below included
READY_TIMEOUT_S = 300.0  # recovery after a crash replays up to max_wal_size
EARLIER_TIMEOUT_S = 60.0
START_TRIES_MAX = 5
RESTART_PAUSE_S_MIN, RESTART_PAUSE_S_MAX = 0.1, 10.0
HEALTHY_AFTER_S = 60.0
LOG_CHECK_S = 60.0


class EmbeddedPostgres:
    """A PostgreSQL of one data directory's own, kept running from `start` to `stop`.

    The caller holds the directory's DataDirectoryLock. `durable=False` forgets data when the machine crashes: for
    tests. `namespaces_allowed=False` acts as where the kernel forbids user namespaces; only root notices.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        log: Logger,
        durable: bool = True,
        binaries: Binaries | None = None,
        namespaces_allowed: bool = True,
        nobody_root: Path = NOBODY_ROOT,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._log = log
        self._durable = durable
        self._binaries = binaries
        self._namespaces_allowed = namespaces_allowed
        self._nobody_root = nobody_root
        self._quarters: Quarters | None = None
        self._runtime_dir: Path | None = None  # made by us, so removed by us
        self._socket_dir: Path | None = None  # the runtime directory, or wherever an adopted server listens
        self._password = ""
        self._postmaster: Postmaster | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """For asyncpg. Valid from `start` to `stop`, through restarts; holds the password, so it is never logged."""
        assert self._socket_dir is not None, "not started"
        return database_url(socket_dir=self._socket_dir, password=self._password)

    async def start(self) -> None:
        """Return once the database takes connections. Raises LauncherError, and then nothing is left running."""
        assert self._supervisor is None, "started twice"
        try:
            await self._prepare()
            await self._bring_up()
        except OSError as error:  # a full disk, a missing right, no answer in time
            await self.stop()
            raise LauncherError(f"the embedded PostgreSQL in {self._data_dir} does not start: {error!r}") from error
        except BaseException:
            await self.stop()
            raise
        self._supervisor = asyncio.create_task(self._supervise(), name="embedded postgres")

    async def stop(self) -> None:
        """End the server, also an adopted one, and remove the runtime directory. May be called twice."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
            self._supervisor = None
        if self._postmaster is not None:
            await self._postmaster.stop(self._log)
            self._postmaster = None
        if self._runtime_dir is not None:
            await asyncio.to_thread(remove_runtime_directory, self._runtime_dir)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def _prepare(self) -> None:
        if len(os.fsencode(self._data_dir)) > DATA_DIR_BYTES_MAX:
            raise LauncherError(f"the data directory's path is longer than {DATA_DIR_BYTES_MAX} bytes: choose another")
        await asyncio.to_thread(self._data_dir.mkdir, mode=0o700, parents=True, exist_ok=True)
        binaries = self._binaries
        if binaries is None:
            binaries = await asyncio.to_thread(find_binaries)
        self._quarters = await find_quarters(
            self._data_dir,
            binaries=binaries,
            namespaces_allowed=self._namespaces_allowed,
            nobody_root=self._nobody_root,
            log=self._log,
        )
        self._password = await ensure_cluster(self._quarters, data_dir=self._data_dir, durable=self._durable)

    async def _bring_up(self) -> None:
        """A server that takes connections, adopted or started. Raises LauncherError."""
        assert self._quarters is not None
        if await self._adopt(self._quarters):
            return
        for tried in range(START_TRIES_MAX):
            if await self._launch(self._quarters):
                return
            # What a killed server left behind, its children and their shared memory, goes by itself, but not at once.
            await asyncio.sleep(RESTART_PAUSE_S_MIN * 2**tried)
        raise LauncherError(f"postgres does not start; {self._server_log} ends with: {last_lines(self._server_log)}")

    async def _adopt(self, quarters: Quarters) -> bool:
        """Take over a healthy server of an earlier service, or wait for the end of one that is going."""
        earlier = await asyncio.to_thread(find_earlier, quarters.pgdata)
        if earlier is None:
            return False
        try:
            async with asyncio.timeout(EARLIER_TIMEOUT_S):
                while earlier.postmaster.alive:
                    if await accepts(socket_dir=earlier.socket_dir, password=self._password):
                        self._postmaster, self._socket_dir = earlier.postmaster, earlier.socket_dir
                        if earlier.socket_dir == self._own_socket_dir(quarters):
                            self._runtime_dir = earlier.socket_dir
                        self._log.info("postgres adopted", extra={"pid": earlier.postmaster.pid})
                        return True
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise LauncherError(
                f"postgres of an earlier start, process {earlier.postmaster.pid}, neither answers nor ends: "
                "stop it, then start again"
            ) from None
        return False

    async def _launch(self, quarters: Quarters) -> bool:
        """Whether a fresh server came to take connections. False when it ended first, with a reason in its log."""
        # Where an adopted server was, its successor is too: clients hold the URL.
        runtime_dir = self._socket_dir or self._own_socket_dir(quarters)
        make_private_directory(runtime_dir, uid=quarters.uid, gid=quarters.gid)
        self._runtime_dir = self._socket_dir = runtime_dir
        arguments = server_arguments(
            pgdata=quarters.pgdata, socket_dir=runtime_dir, major=quarters.binaries.major, durable=self._durable
        )
        bound_log(self._server_log)
        self._postmaster = await launch(quarters, arguments, log_file=self._server_log)
        async with asyncio.timeout(READY_TIMEOUT_S):
            while self._postmaster.alive:
                if await accepts(socket_dir=runtime_dir, password=self._password):
                    self._log.info("postgres started", extra={"pid": self._postmaster.pid, "mode": quarters.mode})
                    return True
                await asyncio.sleep(POLL_S)
        return False

    def _own_socket_dir(self, quarters: Quarters) -> Path:
        return socket_directory(self._data_dir, uid=quarters.uid, xdg_runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))

    async def _supervise(self) -> None:
        """For as long as the service lives: start the server again when it ended."""
        pause_s = RESTART_PAUSE_S_MIN
        while True:
            lived_s = await self._watch()
            pause_s = RESTART_PAUSE_S_MIN if lived_s > HEALTHY_AFTER_S else min(2 * pause_s, RESTART_PAUSE_S_MAX)
            self._log.error("postgres ended; it is started again", extra={"lived_s": lived_s, "pause_s": pause_s})
            await asyncio.sleep(pause_s)
            try:
                await self._bring_up()
            except Exception:
                self._log.exception("postgres did not start; it is tried again", extra={"pause_s": pause_s})

    async def _watch(self) -> float:
        """Wait for the server's end and keep its log small meanwhile; the seconds that it was watched."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while self._postmaster is not None and self._postmaster.alive:
            try:
                async with asyncio.timeout(LOG_CHECK_S):
                    await self._postmaster.wait()
            except TimeoutError:
                bound_log(self._server_log)
        return clock() - began

    @property
    def _server_log(self) -> Path:
        return self._data_dir / "postgres.log"
