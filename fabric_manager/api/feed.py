"""One listening connection for all who wait for something to happen. Waiters and listeners hold no connection."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fabric_manager.api.sharing import SharedReads, Turns
from fabric_manager.api.telling import Tail
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.store import events
from fabric_manager.store.database import Database
from fabric_manager.telemetry import metrics

log = logging.getLogger(__name__)

CHANNEL = "fabric_events"
FALLBACK_S = 2.0  # a lost NOTIFY delays by no more than this
RECHECK_S = 5.0  # a waiter looks for itself this often, should no process number the events
BATCH_MAX = 500
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
WAITERS_MAX = 10_000
CLOSING_S_MAX = 0.5
CROWD_AT_ONCE, CROWD_STEPS, CROWD_REST_S_MAX = 25, 3, 0.1
POLLS_PER_S_MAX, POLLS_BURST_MAX = 120, 60  # a poll costs milliseconds, a stream's message microseconds

EVERYTHING = None


def batched(bells: Sequence["Bell"], size: int) -> Iterator[Sequence["Bell"]]:
    return (bells[at : at + size] for at in range(0, len(bells), size))


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
    """Reads each event once when it has been numbered, and rings the bells of those who watch its key or everything."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._bells: dict[str | None, set[Bell]] = {}
        self._waiters = 0
        self._notified = Bell()
        self._crowd_due = asyncio.Event()
        self._sending: set[asyncio.Timeout] = set()
        self.tail = Tail()
        self.reads = SharedReads()
        self.polls = Turns(per_s_max=POLLS_PER_S_MAX, burst_max=POLLS_BURST_MAX)
        self.closing = False

    @contextmanager
    def watch(self, key: str | None) -> Iterator[Bell]:
        """Watch an allocation key, or EVERYTHING. Begin before the first look, so that nothing falls in between."""
        if self._waiters >= WAITERS_MAX:
            raise FabricError(Code.OVERLOADED, "too many callers wait already", retry_after_ms=2000)
        bell = Bell()
        self._waiters += 1
        metrics.WAITERS.inc()
        self._bells.setdefault(key, set()).add(bell)
        try:
            yield bell
        finally:
            self._waiters -= 1
            metrics.WAITERS.dec()
            self._bells[key].discard(bell)
            if not self._bells[key]:
                del self._bells[key]

    def close(self) -> None:
        """Let every waiter answer at once with what it knows; called when the service stops."""
        self.closing = True
        self._ring_all()
        for patience in self._sending:
            patience.reschedule(asyncio.get_running_loop().time() + CLOSING_S_MAX)

    @asynccontextmanager
    async def sending(self, stalled_s_max: float) -> AsyncIterator[None]:
        """Raises TimeoutError when the other side takes nothing for so long; when the service stops, much sooner."""
        async with asyncio.timeout(CLOSING_S_MAX if self.closing else stalled_s_max) as patience:
            self._sending.add(patience)
            try:
                yield
            finally:
                self._sending.discard(patience)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._wake_crowd())]
        try:
            yield
        finally:
            self.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            try:
                async with self._db.listening(CHANNEL, self._on_notify) as connection:
                    pause_s = PAUSE_S_MIN
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
            await self._catch_up(connection)
            await self._notified.wait(FALLBACK_S)

    def _on_notify(self, _payload: str) -> None:
        self._notified.ring()

    async def _catch_up(self, connection: Any) -> None:
        """Read to the head. What is too far behind, or of another numbering, is left to its readers: all are woken."""
        tail = self.tail
        while True:
            kept, fresh = await events.newest(connection, since=tail.head, limit=BATCH_MAX)
            if tail.head is None or not tail.head <= kept.head <= tail.head + tail.events_max:
                kept, fresh = await events.newest(connection, since=None, limit=tail.events_max)
                tail.add(kept, fresh)
                self._ring_all()
                return
            tail.add(kept, fresh)
            if not fresh:
                return
            self._ring({event.key for event in fresh if event.key is not None})
            await asyncio.sleep(0)  # the woken may go first

    def _ring(self, keys: Iterable[str]) -> None:
        """Who waits for a key hears at once, who follows everything in the crowd's next turn."""
        for key in keys:
            for bell in self._bells.get(key, ()):
                bell.ring()
        self._crowd_due.set()

    async def _wake_crowd(self) -> None:
        """A few at a time, and as long a rest as they took: claims go on however many follow every event."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._crowd_due.wait()
            self._crowd_due.clear()
            for crowd in batched(list(self._bells.get(EVERYTHING, ())), CROWD_AT_ONCE):
                began = clock()
                for bell in crowd:
                    bell.ring()
                for _ in range(CROWD_STEPS):
                    await asyncio.sleep(0)
                await asyncio.sleep(min(clock() - began, CROWD_REST_S_MAX))

    def _ring_all(self) -> None:
        for bells in self._bells.values():
            for bell in bells:
                bell.ring()
