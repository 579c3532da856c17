"""Puts the service together (database, tokens, simulated rack, reconciler, HTTP) and takes it apart again."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

import uuid_utils.compat
import uvicorn
import uvloop
import yaml
from fastapi import FastAPI

from fabric_manager.allocator.inventory import declare
from fabric_manager.api.application import build
from fabric_manager.api.application import openapi_document as document_of_api
from fabric_manager.api.services import Readiness, ReadyCheck
from fabric_manager.domain.actor import Actor, Principal, Role
from fabric_manager.domain.errors import FabricError
from fabric_manager.reconciler.housekeeping import keep_house, sequence
from fabric_manager.reconciler.loop import Reconciler
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.turns import Wake, wait
from fabric_manager.settings import Settings
from fabric_manager.southbound.driver import FabricDriver, FrameSink
from fabric_manager.southbound.registry import open_driver
from fabric_manager.southbound.simulator.server import serve_rack
from fabric_manager.southbound.simulator.supervise import start_or_adopt
from fabric_manager.store import schema, tokens
from fabric_manager.store.database import Database
from fabric_manager.store.embedded import DataDirectoryLock, EmbeddedPostgres
from fabric_manager.store.work import KnownFabric
from fabric_manager.telemetry import configure_logging

log = logging.getLogger(__name__)

PREPARE_PAUSE_S = 1.0
DRAIN_S = 5
FIRST_SCAN_S = 10.0
identities: Callable[[], UUID] = uuid_utils.compat.uuid7
WhenReady = Callable[[str, Path], Awaitable[None]]


def serve(settings: Settings, *, when_ready: WhenReady | None = None) -> None:
    """Run the service until SIGTERM or Ctrl-C; stops all that it started.

    `when_ready` is awaited with the URL and the token file once requests are served. Raises
    DataDirectoryInUseError, LauncherError and OSError with a sentence an operator can act on.
    """
    configure_logging(settings.log_level)
    uvloop.run(Service(settings, when_ready).run())


def simulate(*, state_dir: Path, rack_file: Path, seed: int | None = None) -> None:
    """Run the simulated rack in the foreground."""
    asyncio.run(serve_rack(state_dir=state_dir, rack_file=rack_file, seed=seed))


def migrate(*, database_url: str, revision: str = "head") -> None:
    """Bring a database to `revision`. Blocking, idempotent."""
    schema.migrate(database_url, revision=revision)


def openapi_document() -> dict[str, Any]:
    return document_of_api()


def example_rack() -> Path:
    """`examples/` travels inside the wheel, and lies beside the package in a checkout."""
    package = Path(str(files("fabric_manager")))
    inside = package / "examples" / "rack.yaml"
    return inside if inside.is_file() else package.parent / "examples" / "rack.yaml"


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
            url = await self._database(stack)
            self._db = Database(url, connections_max=self._settings.connections_max)
            stack.push_async_callback(self._db.close)
            listening = await stack.enter_async_context(self._http()) if self._settings.role != "worker" else None
            await stack.enter_async_context(self._background(self._prepare_and_work(), "service"))
            await self._until_stopped(self._prepared.wait())
            if not self._stop.is_set():
                print(f"fabric-manager is ready at {listening or 'no address (worker)'}", flush=True)
                if self._when_ready is not None and listening is not None:
                    await self._until_stopped(self._when_ready(listening, self.token_file))
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
        self._installation = installation(settings.data_dir)
        if settings.database_url is not None:
            return settings.database_url
        postgres = EmbeddedPostgres(data_dir=settings.data_dir, log=logging.getLogger("fabric_manager.postgres"))
        await stack.enter_async_context(postgres)
        await schema.migrate_apart(postgres.url)
        return postgres.url

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[str]:
        """Serve from the start, unready: whoever asks is told why."""
        settings = self._settings
        listener = bound_socket(settings.host, settings.port)
        app = self._application()
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=DRAIN_S
        )
        server = QuietServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            await asyncio.wait([serving], timeout=DRAIN_S + 2)
            listener.close()

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
    async def _background(self, work: Any, name: str) -> AsyncIterator[None]:
        """A failure of what runs in the background stops the service instead of being forgotten."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda _: self._stop.set())
        try:
            yield
        finally:
            if not task.done():
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _prepare_and_work(self) -> None:
        async with AsyncExitStack() as stack:
            endpoint = await self._rack(stack)
            while not await self._prepare(endpoint):
                await asyncio.sleep(PREPARE_PAUSE_S)  # noqa: ASYNC110 (the database tells nobody that it is back)
            pace = self._pace()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(sequence(self.db, self._wake, pace))
                if self._settings.role != "api":
                    reconciler = self._reconciler(pace)
                    tasks.create_task(keep_house(self.db, self._wake, pace))
                    tasks.create_task(reconciler.run())
                    if endpoint is not None:  # a rack of our own answers at once; others may take their time
                        await wait(reconciler.scanned, FIRST_SCAN_S)
                self._not_ready = ""
                self._prepared.set()

    async def _prepare(self, rack_endpoint: str | None) -> bool:
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
            await self._inventory(rack_endpoint)
        except FabricError as error:
            self._say(str(error))
            return False
        return True

    def _say(self, sentence: str) -> None:
        if sentence != self._not_ready:
            log.warning(sentence)
        self._not_ready = sentence

    async def _tokens(self) -> None:
        """The file first, then its hash: a crash between the two is mended by the next start."""
        if self._settings.database_url is None and not self.token_file.exists():
            write_private(self.token_file, f"fm_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}")
        source = self._settings.bootstrap_token_file or (self.token_file if self.token_file.exists() else None)
        if source is not None:
            hashed = tokens.digest(source.read_text().strip())
            owner = Principal(name="admin", role=Role.ADMIN)
            async with self.db.transaction() as tx:
                await tokens.insert(tx, token_id=identities(), hashed=hashed, owner=owner)

    def _topology(self) -> dict[str, Any]:
        if self._settings.topology is None:
            return {}
        content = yaml.safe_load(self._settings.topology.read_text())
        return content if isinstance(content, dict) else {}

    async def _inventory(self, rack_endpoint: str | None) -> None:
        inventory = dict(self._topology().get("inventory") or {})
        inventory["fabrics"] = [
            {"endpoint": rack_endpoint, **fabric} if fabric["driver"] == "simulator" else fabric
            for fabric in inventory.get("fabrics", ())
        ]
        actor = Actor(name="topology", cause=str(self._settings.topology))
        await declare(self.db, inventory, actor=actor, identities=identities)

    async def _rack(self, stack: AsyncExitStack) -> str | None:
        """Start or adopt the simulated rack that the topology describes; only a worker needs it."""
        topology = self._settings.topology
        if topology is None or "hardware" not in self._topology():
            return None
        state_dir = (self._settings.data_dir / "rack").absolute()
        if self._settings.role != "api":
            rack = await start_or_adopt(state_dir=state_dir, rack_file=topology)
            stack.push_async_callback(rack.stop)
        return f"simulator:{state_dir}"

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


class QuietServer(uvicorn.Server):
    """Signals are the service's: they stop more than HTTP."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def installation(data_dir: Path) -> str:
    """Names the data directory: whoever holds its lock knows that all its earlier processes are gone."""
    path = data_dir / "installation"
    if not path.exists():
        write_private(path, str(identities()))
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """0600, complete or not there at all."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(path)
