"""Puts one process together (database, tokens, simulated rack, reconciler, HTTP) and takes it apart again."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any
from uuid import UUID

import uuid_utils.compat
from fastapi import FastAPI

from fabric_manager.allocator.inventory import declare
from fabric_manager.api import metrics
from fabric_manager.api.application import build
from fabric_manager.api.auth import TOKEN
from fabric_manager.api.services import Readiness, ReadyCheck
from fabric_manager.app.addresses import CannotStartError, database_url, host_and_port
from fabric_manager.app.listening import listening
from fabric_manager.app.private_files import kept
from fabric_manager.app.topology import Topology, read_topology
from fabric_manager.domain.actor import Actor, Principal, Role
from fabric_manager.domain.errors import FabricError
from fabric_manager.reconciler.housekeeping import keep_events, keep_house, keep_promises_checked, sequence
from fabric_manager.reconciler.loop import Reconciler
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.turns import Wake, wait
from fabric_manager.settings import Settings
from fabric_manager.southbound.driver import FabricDriver, FrameSink
from fabric_manager.southbound.registry import open_driver
from fabric_manager.southbound.simulator.supervise import RackStartError, start_or_adopt
from fabric_manager.store import schema, tokens
from fabric_manager.store.database import Database
from fabric_manager.store.embedded import DataDirectoryLock, EmbeddedPostgres
from fabric_manager.store.work import KnownFabric

log = logging.getLogger(__name__)

PREPARE_PAUSE_S = 1.0
FIRST_SCAN_S = 10.0
identities: Callable[[], UUID] = uuid_utils.compat.uuid7
WhenReady = Callable[[str, Path], Awaitable[None]]


class Service:
    """One process: one event loop, one owner of fabrics."""

    def __init__(self, settings: Settings, when_ready: WhenReady | None) -> None:
        self._settings = settings
        self._when_ready = when_ready
        self._wake = Wake()
        self._stop = asyncio.Event()
        self._not_ready = "starting"  # a sentence; empty once everything is prepared
        self._prepared = asyncio.Event()
        self._installation = ""
        self._db: Database | None = None

    @property
    def db(self) -> Database:
        assert self._db is not None, "not started"
        return self._db

    @property
    def token_file(self) -> Path:
        return self._settings.data_dir / "admin.token"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        async with AsyncExitStack() as stack:
            topology = read_topology(self._settings.topology)
            database = await self._database(stack)
            self._db = Database(database, connections_max=self._settings.connections_max)
            stack.push_async_callback(self._db.close)
            if self._settings.metrics_address is not None:
                host, port = host_and_port(self._settings.metrics_address)
                where = await stack.enter_async_context(listening(metrics.apart(self._db), host=host, port=port))
                log.info("metrics are served to anybody", extra={"url": f"{where}/metrics"})
            url = None
            if self._settings.role != "worker":  # served from the start, unready: whoever asks is told why
                http = listening(self._application(), host=self._settings.host, port=self._settings.port)
                url = await stack.enter_async_context(http)
            await stack.enter_async_context(self._background(self._prepare_and_work(topology)))
            await self._until_stopped(self._prepared.wait())
            if not self._stop.is_set():
                print(f"fabric-manager is ready at {url or 'no address (worker)'}", flush=True)
                if self._when_ready is not None and url is not None:
                    await self._until_stopped(self._when_ready(url, self.token_file))
            await self._stop.wait()
            log.info("stopping")

    async def _until_stopped(self, act: Awaitable[Any]) -> None:
        """Ctrl-C ends whatever is waited for."""
        story, stop = asyncio.ensure_future(act), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([story, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if story.done():
            story.result()
        story.cancel()

    async def _database(self, stack: AsyncExitStack) -> str:
        settings = self._settings
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.enter_context(DataDirectoryLock(settings.data_dir))
        self._installation = kept(settings.data_dir / "installation", lambda: str(identities()))
        if settings.database_url is not None:
            return database_url(settings.database_url, settings.database_password_file)
        postgres = EmbeddedPostgres(data_dir=settings.data_dir, log=logging.getLogger("fabric_manager.postgres"))
        await stack.enter_async_context(postgres)
        await schema.migrate_apart(postgres.url)
        return postgres.url

    def _application(self) -> FastAPI:
        return build(
            db=self.db,
            identities=identities,
            wake=self._wake,
            tenants_auto_create=self._tenants_auto_create(),
            ready=self._readiness,
            version=installed_version("fabric-manager"),
        )

    def _tenants_auto_create(self) -> bool:
        chosen = self._settings.tenants_auto_create
        return self._settings.database_url is None if chosen is None else chosen

    @asynccontextmanager
    async def _background(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """A failure of what runs in the background stops the service instead of being forgotten."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._stop.set())
        try:
            yield
        finally:
            if not task.done():
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _prepare_and_work(self, topology: Topology) -> None:
        async with AsyncExitStack() as stack:
            endpoint = await self._rack(stack, topology)
            while not await self._prepare(topology, endpoint):  # noqa: ASYNC110 (a database tells nobody it is back)
                await asyncio.sleep(PREPARE_PAUSE_S)
            pace = self._pace()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sequence(self.db, self._wake, pace))
                if self._settings.role != "api":
                    reconciler = self._reconciler(pace)
                    tasks.create_task(keep_house(self.db, self._wake, pace))
                    tasks.create_task(keep_events(self.db, self._settings.events_keep))
                    tasks.create_task(keep_promises_checked(self.db, self._settings.invariants_s))
                    tasks.create_task(reconciler.run())
                    if endpoint is not None:  # a rack of our own answers at once; others may take their time
                        await wait(reconciler.scanned, FIRST_SCAN_S)
                self._not_ready = ""
                self._prepared.set()

    async def _prepare(self, topology: Topology, rack_endpoint: str | None) -> bool:
        """Schema, tokens and declared inventory; False when the database has to be waited for."""
        try:
            found = await schema.revision(self.db)
            if found != schema.SCHEMA_REVISION:
                self._say(
                    f"the database has schema {found or 'none'}, this release needs {schema.SCHEMA_REVISION};"
                    " run `fabric-manager migrate`"
                )
                return False
            await self._tokens()
            await self._declare(topology, rack_endpoint)
        except FabricError as error:
            if not error.retryable:
                raise
            self._say(str(error))
            return False
        return True

    def _say(self, sentence: str) -> None:
        if sentence != self._not_ready:
            log.warning(sentence)
        self._not_ready = sentence

    async def _tokens(self) -> None:
        """The file first, then its hash: a crash between the two is mended by the next start."""
        settings = self._settings
        if settings.bootstrap_token_file is not None:
            await self._admit(bootstrap_token(settings.bootstrap_token_file))
        if settings.database_url is None:
            await self._admit(kept(self.token_file, new_token))

    async def _admit(self, token: str) -> None:
        owner = Principal(name="admin", role=Role.ADMIN)
        async with self.db.transaction() as tx:
            await tokens.insert(tx, token_id=identities(), hashed=tokens.digest(token), owner=owner)

    async def _declare(self, topology: Topology, rack_endpoint: str | None) -> None:
        """Declare what the file says. A process that drives no hardware leaves that to those that do."""
        if self._settings.role == "api":
            return
        fabrics = [
            {"endpoint": rack_endpoint, **fabric} if fabric["driver"] == "simulator" else fabric
            for fabric in topology.inventory.get("fabrics", ())
        ]
        actor = Actor(name="topology", cause=str(topology.path))
        await declare(self.db, {**topology.inventory, "fabrics": fabrics}, actor=actor, identities=identities)

    async def _rack(self, stack: AsyncExitStack, topology: Topology) -> str | None:
        """Start or adopt the simulated rack that the topology describes."""
        if topology.path is None or not topology.simulated or self._settings.role == "api":
            return None
        state_dir = (self._settings.data_dir / "rack").absolute()
        try:
            rack = await start_or_adopt(state_dir=state_dir, rack_file=topology.path)
        except RackStartError as error:
            raise CannotStartError(str(error)) from error
        stack.push_async_callback(rack.stop)
        return rack.endpoint

    def _pace(self) -> Pace:
        settings = self._settings
        return Pace(
            ttl_s=settings.ownership_ttl_s,
            renew_s=settings.ownership_renew_s,
            command_s=settings.command_s,
            scan_s=settings.scan_s,
            poll_s=settings.poll_s,
        )

    def _reconciler(self, pace: Pace) -> Reconciler:
        async def connect(fabric: KnownFabric, frames: FrameSink) -> FabricDriver:
            return await open_driver(
                fabric.driver,
                fabric.endpoint,
                frames=frames,
                timeout_s=pace.command_s,
                now=lambda: datetime.now(UTC),
            )

        return Reconciler(
            self.db,
            owner=f"{self._installation}/{os.getpid()}",
            open_driver=connect,
            identities=identities,
            wake=self._wake,
            pace=pace,
        )

    async def _readiness(self) -> Readiness:
        detail = self._not_ready or "schema and inventory are in place"
        prepared = ReadyCheck(name="prepared", ok=not self._not_ready, detail=detail)
        try:
            await schema.revision(self.db)
            database = ReadyCheck(name="database", ok=True, detail="answers")
        except FabricError as error:
            database = ReadyCheck(name="database", ok=False, detail=str(error))
        return Readiness(ready=prepared.ok and database.ok, checks=(prepared, database))


def bootstrap_token(path: Path) -> str:
    """Raises CannotStartError when the file holds no token of our shape: it would be stored and never accepted."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStartError(f"the bootstrap token file cannot be read: {error}") from error
    if not TOKEN.fullmatch(token):
        raise CannotStartError(f"{path} holds no token: it is fm_<id>_<secret>, with a secret of 16 to 128 characters")
    return token


def new_token() -> str:
    return f"fm_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
