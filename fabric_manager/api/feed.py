"""One listening connection for all who wait for something to happen. Waiters hold no connection."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import events
from fabric_manager.store.database import Database

log = logging.getLogger(__name__)

CHANNEL = "fabric_events"
FALLBACK_S = 2.0  # a lost NOTIFY delays by no more than this
RECHECK_S = 5.0  # a waiter looks for itself this often, should no process number the events
BATCH_MAX = 1000
BATCHES_MAX = 20  # behind by more, everybody is woken instead
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
WAITERS_MAX = 10_000

EVERYTHING = None


class Bell:
    """Rung when something may have changed; may ring for nothing."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float) -> None:
        """Until it rings or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        self._rung.clear()


class Feed:
    """Rings the bells of those who watch a key, or everything, when an event about it has been numbered."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._seq: int | None = None
        self._bells: dict[str | None, set[Bell]] = {}
        self._waiters = 0
        self._notified = Bell()
        self.closing = False

    @contextmanager
    def watch(self, key: str | None) -> Iterator[Bell]:
        """Watch an allocation key, or EVERYTHING. Begin before the first look, so that nothing falls in between."""
        if self._waiters >= WAITERS_MAX:
            raise FabricError(Code.OVERLOADED, "too many callers wait already", retry_after_ms=2000)
        bell = Bell()
        self._waiters += 1
        self._bells.setdefault(key, set()).add(bell)
        try:
            yield bell
        finally:
            self._waiters -= 1
            self._bells[key].discard(bell)
            if not self._bells[key]:
                del self._bells[key]

    def close(self) -> None:
        """Let every waiter answer at once with what it knows; called when the service stops."""
        self.closing = True
        self._ring_all()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(), name="feed")
        try:
            yield
        finally:
            self.close()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            try:
                async with self._db.listening(CHANNEL, self._on_notify) as connection:
                    await self._follow(connection)
            except FabricError as error:
                log.warning("the event feed lost the database", extra={"code": error.code, "pause_s": pause_s})
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
            except Exception:
                log.exception("the event feed failed", extra={"pause_s": PAUSE_S_MAX})
                await asyncio.sleep(PAUSE_S_MAX)

    async def _follow(self, connection: Any) -> None:
        while True:
            await self._catch_up()
            await self._notified.wait(FALLBACK_S)
            await connection.execute("SELECT 1")  # raises when the server is gone and would never notify again

    def _on_notify(self, _payload: str) -> None:
        self._notified.ring()

    async def _catch_up(self) -> None:
        for _ in range(BATCHES_MAX):
            async with self._db.snapshot() as tx:
                if self._seq is None:
                    self._seq = await events.head(tx)
                    self._ring_all()
                    return
                seen, keys = await events.keys_after(tx, self._seq, limit=BATCH_MAX)
            if seen == self._seq:
                return
            self._seq = seen
            self._ring(keys)
        self._seq = None

    def _ring(self, keys: frozenset[str]) -> None:
        for key in (EVERYTHING, *keys):
            for bell in self._bells.get(key, ()):
                bell.ring()

    def _ring_all(self) -> None:
        for bells in self._bells.values():
            for bell in bells:
                bell.ring()
