"""Connections, time-outs and what a failing database means. Everything that talks to PostgreSQL starts here."""

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, QueuePool

from fabric_manager.domain.errors import Code, FabricError

RETRIES_MAX = 10  # serialization failures and deadlocks, each after a random pause
RETRY_PAUSE_S = 0.01
SILENCE_S = 0.5  # for a server to stop what was cancelled; then the connection is dropped
ARG_MAX_DEPTH = 64

# What PostgreSQL calls "not now": connection trouble, shutdown, recovery, no resources.
UNAVAILABLE_CLASSES = ("08", "53", "57", "58")
READ_ONLY = "25006"
TRY_AGAIN = ("40001", "40P01", "55P03")
EPOCH_LOST = "FM003"
NO_SCHEMA = ("42P01", "42883", "42703")  # a table, function or column that is not there
FAILURES = (
    TimeoutError,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    sa.exc.SQLAlchemyError,
)


class EpochLostError(Exception):
    """Another process drives this fabric now; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. asyncpg's own default waits for ever in a network partition."""

    connect_s: float = 3.0
    command_s: float = 2.0
    acquire_s: float = 2.0
    lock_s: float = 1.5
    idle_in_transaction_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """Connections of one pool at one moment; `waiting` counts tasks."""

    use: str
    connections_max: int
    open: int
    busy: int
    waiting: int


def server_settings(timeouts: Timeouts) -> dict[str, str]:
    return {
        "timezone": "UTC",
        "jit": "off",
        "application_name": "fabric-manager",
        "statement_timeout": f"{int(timeouts.command_s * 1000)}ms",  # also when who asked is gone
        "lock_timeout": f"{int(timeouts.lock_s * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{int(timeouts.idle_in_transaction_s * 1000)}ms",
    }


def encode(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


class Connection(asyncpg.Connection):
    """After a time-out the connection is closed; asyncpg then waits as long once more for a server that is silent."""

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncpg's signature)
        await super().close(timeout=SILENCE_S if timeout is None else min(timeout, SILENCE_S))


@asynccontextmanager
async def given_up(connection: Any) -> AsyncIterator[None]:
    """Close the connection after a time-out; the engine does so by itself, the hot pool would wait and keep it."""
    try:
        yield
    except TimeoutError:
        with contextlib.suppress(*FAILURES):
            await connection.close()
        raise


async def open_connection(url: str, timeouts: Timeouts) -> "asyncpg.Connection[Any]":
    """A connection on which every wait ends. Raises what asyncpg raises."""
    connection = await asyncpg.connect(
        url,
        timeout=timeouts.connect_s,
        command_timeout=timeouts.command_s,
        server_settings=server_settings(timeouts),
        connection_class=Connection,
    )
    await prepare_connection(connection)
    return connection


async def prepare_connection(connection: Any) -> None:
    """Bound the wait for a peer that acknowledges nothing; keep-alives alone take minutes to notice."""
    transport = getattr(connection, "_transport", None)
    raw = transport.get_extra_info("socket") if transport is not None else None
    if raw is not None and raw.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3000)


def plain_engine(url: str) -> AsyncEngine:
    """An engine without pool or time-outs, for migrations."""
    return create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url, timeout=10), poolclass=NullPool
    )


def sqlstate(error: BaseException) -> str | None:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)


def explain(error: BaseException) -> Exception | None:
    """The domain's word for a database failure, or None for a mistake of ours that has to surface."""
    state = sqlstate(error)
    if state == READ_ONLY:
        return FabricError(
            Code.READ_ONLY, "the database accepts no writes at present; reads go on", retry_after_ms=2000
        )
    if state == EPOCH_LOST:
        return EpochLostError(str(error))
    if state in NO_SCHEMA:
        detail = "the database does not have the schema of this release; run `fabric-manager migrate`"
        return FabricError(Code.DATABASE_UNAVAILABLE, detail, retry_after_ms=5000)
    if state in TRY_AGAIN:
        return FabricError(Code.OVERLOADED, "too many requests want the same rows; try again", retry_after_ms=500)
    lost = isinstance(error, TimeoutError | OSError | asyncpg.InterfaceError | asyncpg.PostgresConnectionError)
    lost = lost or isinstance(error, sa.exc.InterfaceError | sa.exc.TimeoutError)
    # asyncpg's word when the server said goodbye while the next question was being put
    lost = lost or isinstance(error, asyncpg.InternalClientError)
    lost = lost or bool(getattr(error, "connection_invalidated", False))
    if lost or (state is not None and state[:2] in UNAVAILABLE_CLASSES):
        return FabricError(
            Code.DATABASE_UNAVAILABLE,
            "the database does not answer; nothing was decided. The same request may be repeated",
            retry_after_ms=1000,
        )
    return None


@contextlib.contextmanager
def explained() -> Any:
    """Turn the driver's errors into the domain's; log nothing, the handler does."""
    try:
        yield
    except FAILURES as error:
        better = explain(error)
        if better is None:
            raise
        raise better from error


class Database:
    """Two ways in: `call` for the verbs (one function, one round trip), `transaction` and `read` for the rest."""

    def __init__(self, url: str, *, timeouts: Timeouts | None = None, connections_max: int = 16) -> None:
        self.url = url
        self.timeouts = timeouts or Timeouts()
        self._connections_max = connections_max
        self._pool: asyncpg.Pool[Any] | None = None
        self._engine: AsyncEngine | None = None
        self._opening = asyncio.Lock()
        self._waiting = {"verbs": 0, "rows": 0}

    @property
    def engine(self) -> AsyncEngine:
        if self._engine is None:
            self._engine = create_async_engine(
                "postgresql+asyncpg://",
                async_creator=lambda: open_connection(self.url, self.timeouts),
                pool_size=self._connections_max,
                max_overflow=0,
                pool_timeout=self.timeouts.acquire_s,
                pool_pre_ping=False,
                json_serializer=encode,
                json_deserializer=json.loads,
            )
        return self._engine

    async def _hot_pool(self) -> "asyncpg.Pool[Any]":
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=self._connections_max,
                    timeout=self.timeouts.connect_s,
                    command_timeout=self.timeouts.command_s,
                    server_settings=server_settings(self.timeouts),
                    connection_class=Connection,
                    init=prepare_connection,
                    reset=_nothing_to_reset,
                )
        return self._pool

    async def close(self) -> None:
        """Drop every connection without waiting for the server."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    async def call(self, function: str, arg: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """Run one of sql/'s functions of one jsonb argument in a transaction of its own; answers its JSON.

        Conflicts between transactions are tried again here; every such function may run twice. `timeout_s` None: the
        usual one.
        Raises FabricError database_unavailable, read_only or overloaded, and EpochLostError.
        """
        body = encode(arg)
        with explained():
            for attempt in range(RETRIES_MAX):
                try:
                    pool = await self._hot_pool()
                    async with self._acquired(pool) as connection, given_up(connection):
                        answer = await _answer(connection, function, body, timeout_s)
                    return orjson.loads(answer) if isinstance(answer, str) else answer
                except asyncpg.PostgresError as error:
                    if error.sqlstate not in ("40001", "40P01") or attempt == RETRIES_MAX - 1:
                        raise
                    await asyncio.sleep(random.uniform(0, RETRY_PAUSE_S * (attempt + 1)))  # noqa: S311 (a pause)
        raise AssertionError("unreachable: the loop returns or raises")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Committed when the block ends, rolled back when it raises."""
        with explained():
            async with self._connected() as connection, connection.begin():
                yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """One consistent view for several reads; writes nothing."""
        with explained():
            async with self._connected() as connection:
                tx = await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                yield tx

    @asynccontextmanager
    async def _acquired(self, pool: "asyncpg.Pool[Any]") -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            with self._waits("verbs"):
                connection = await stack.enter_async_context(pool.acquire(timeout=self.timeouts.acquire_s))
            yield connection

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        async with AsyncExitStack() as stack:
            with self._waits("rows"):
                connection = await stack.enter_async_context(self.engine.connect())
            yield connection

    @contextmanager
    def _waits(self, use: str) -> Iterator[None]:
        self._waiting[use] += 1
        try:
            yield
        finally:
            self._waiting[use] -= 1

    def pools(self) -> list[PoolUse]:
        """How busy the connections are. Asks nobody, so it is known when the database is away, too."""
        verbs, rows = self._pool, self.engine.pool
        assert isinstance(rows, QueuePool)
        uses = {
            "verbs": (verbs.get_size(), verbs.get_size() - verbs.get_idle_size()) if verbs else (0, 0),
            "rows": (rows.checkedin() + rows.checkedout(), rows.checkedout()),
        }
        return [
            PoolUse(use=use, connections_max=self._connections_max, open=opened, busy=busy, waiting=self._waiting[use])
            for use, (opened, busy) in uses.items()
        ]

    @asynccontextmanager
    async def listening(self, channel: str, wake: Any) -> AsyncIterator["asyncpg.Connection[Any]"]:
        """A connection of its own that calls `wake(payload)` for each NOTIFY; the caller reopens it when it ends."""
        with explained():
            connection = await open_connection(self.url, self.timeouts)
            try:
                await connection.execute("SET application_name = 'fabric-manager listener'")
                await connection.add_listener(channel, lambda _c, _p, _ch, payload: wake(payload))
                yield connection
            finally:
                connection.terminate()


async def _answer(connection: Any, function: str, body: str, timeout_s: float | None) -> Any:
    """One round trip; a call that may take longer says so to the server first, which would end it otherwise."""
    question = f"SELECT {function}($1::jsonb)"
    if timeout_s is None:
        return await connection.fetchval(question, body)
    async with connection.transaction():
        limit = f"{int(timeout_s * 1000)}ms"
        await connection.execute("SELECT set_config('statement_timeout', $1, true)", limit)
        return await connection.fetchval(question, body, timeout=timeout_s)


async def _nothing_to_reset(_connection: Any) -> None:
    """Calls leave no session state behind, so the usual reset query would be a wasted round trip."""


def uuid_or_none(text: str | None) -> UUID | None:
    return UUID(text) if text is not None else None


def instant_or_none(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
