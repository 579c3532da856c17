"""The loop that must survive: one worker per fabric."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from fabric_manager.domain.actor import RECONCILER, Actor
from fabric_manager.domain.errors import FabricError
from fabric_manager.reconciler import trace
from fabric_manager.reconciler.advance import Bench, advance
from fabric_manager.reconciler.ownership import Lease
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.scan import Scanner
from fabric_manager.reconciler.turns import Wake, survive, wait
from fabric_manager.southbound.driver import BusyError, DriverError, FabricDriver, FrameSink, UnreachableError
from fabric_manager.store import work
from fabric_manager.store.database import Database, EpochLostError
from fabric_manager.store.work import KnownFabric, Owned
from fabric_manager.telemetry import metrics
from fabric_manager.telemetry.logs import about, note

log = logging.getLogger(__name__)

WORK_MAX = 64  # goals taken at once per fabric
GOALS_AT_WORK_MAX = 64
# What the lines logged within an operation carry, and where its goal has it.
SUBJECT = {"operation": "id", "key": "key", "request_id": "request_id", "actor": "actor"}
OpenDriver = Callable[[KnownFabric, FrameSink], Awaitable[FabricDriver]]


class Reconciler:
    """Drives every fabric that this process can get hold of."""

    def __init__(
        self,
        db: Database,
        *,
        owner: str,
        open_driver: OpenDriver,
        identities: Callable[[], UUID],
        wake: Wake,
        pace: Pace,
    ) -> None:
        self._db = db
        self._owner = owner
        self._open_driver = open_driver
        self._identities = identities
        self._wake = wake
        self._pace = pace
        self._workers: dict[UUID, asyncio.Task[None]] = {}
        self.scanned = asyncio.Event()  # some fabric was read once: there is something to allocate from

    async def run(self) -> None:
        """Until cancelled. New fabrics are picked up; a worker that ended is started again."""
        try:
            while True:
                fabrics = await survive("fabrics not read", lambda: work.fabrics(self._db)) or []
                for fabric in fabrics:
                    worker = self._workers.get(fabric.id)
                    if worker is None or worker.done():
                        self._workers[fabric.id] = asyncio.create_task(self._drive(fabric))
                await asyncio.sleep(self._pace.renew_s)
        finally:
            for worker in self._workers.values():
                worker.cancel()
            await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _drive(self, fabric: KnownFabric) -> None:
        note(fabric=fabric.name)  # a task of its own: whatever it logs is about this fabric
        asked_at = time.monotonic()
        owned = await survive("fabric not acquired", lambda: self._acquire(fabric))
        if owned is not None:
            lease = Lease(self._db, owned, self._pace, asked_at=asked_at)
            await survive("fabric worker ended", lambda: self._own(fabric, lease))

    async def _acquire(self, fabric: KnownFabric) -> Owned | None:
        pace = self._pace
        return await work.acquire(self._db, fabric.id, owner=self._owner, ttl_s=pace.ttl_s, command_s=pace.command_s)

    async def _own(self, fabric: KnownFabric, lease: Lease) -> None:
        driver = await self._open_driver(fabric, trace.collect)
        bench = Bench(db=self._db, lease=lease, driver=driver, pace=self._pace, identities=self._identities)
        worker = FabricWorker(fabric, bench, self._wake, self.scanned)
        keeping = asyncio.create_task(lease.keep())
        metrics.FABRIC_OWNED.labels(fabric=fabric.name).set(1)
        log.info("fabric is driven by this process", extra={"epoch": lease.owned.epoch})
        try:
            await worker.run()
        except EpochLostError as error:
            metrics.OWNERSHIP_LOST.labels(fabric=fabric.name).inc()
            log.warning("fabric is driven by another process", extra={"fabric": fabric.name, "why": str(error)})
        finally:
            metrics.FABRIC_OWNED.labels(fabric=fabric.name).set(0)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await driver.close()
            await survive("ownership not given up", lambda: work.give_up(self._db, lease.owned))


class FabricWorker:
    """One fabric, as long as this process owns it: scan, then due goals side by side."""

    def __init__(self, fabric: KnownFabric, bench: Bench, wake: Wake, scanned: asyncio.Event) -> None:
        self._fabric = fabric
        self._bench = bench
        self._due = wake.listener()
        self._wake = wake
        self._scanned = scanned
        self._goals: dict[UUID, asyncio.Task[None]] = {}
        # Whose command may still be on its way: until it is answered, hardware that shows nothing proves nothing.
        self._allocations: set[str] = set()

    async def run(self) -> None:
        """Raises EpochLostError. A successor reads everything before it sends anything."""
        tasks = [
            asyncio.create_task(self._scan_again_and_again()),
            asyncio.create_task(self._work()),
            asyncio.create_task(self._until_lost()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in [*tasks, *self._goals.values()]:
                task.cancel()
            await asyncio.gather(*tasks, *self._goals.values(), return_exceptions=True)

    async def _until_lost(self) -> None:
        await self._bench.lease.lost.wait()
        raise EpochLostError("the ownership was lost")

    async def _scan_again_and_again(self) -> None:
        scanner = Scanner(self._bench)
        while True:
            self._bench.rescan.clear()
            try:
                await scanner.scan()
                self._scanned.set()
                pause_s = self._bench.pace.scan_s
            except BusyError:
                pause_s = min(self._bench.pace.scan_s, 1.0)  # one component is at something; that is no fault
            except DriverError as error:
                pause_s = min(self._bench.pace.scan_s, 1.0)
                await self._faulty("unreachable" if isinstance(error, UnreachableError) else "degraded", str(error))
            except FabricError as error:
                pause_s = 1.0
                log.warning("scan stopped", extra={"fabric": self._fabric.name, "why": str(error)})
            except EpochLostError:
                raise
            except Exception:
                pause_s = self._bench.pace.scan_s
                log.exception("scan stopped", extra={"fabric": self._fabric.name})
            self._wake()
            await asyncio.sleep(min(pause_s, 0.2))  # a flood of rescan requests is one rescan
            await wait(self._bench.rescan, pause_s)

    async def _faulty(self, state: str, why: str) -> None:
        bench = self._bench
        actor = Actor(name=RECONCILER, cause="scan")
        await survive(
            "fabric state not written",
            lambda: work.set_fabric_state(bench.db, bench.lease.owned, state=state, reason=why[:500], actor=actor),
        )

    async def _work(self) -> None:
        while True:
            await survive("work not taken up", self._take_up)
            await wait(self._due, self._bench.pace.poll_s if not self._goals else 0.05)

    async def _take_up(self) -> None:
        bench = self._bench
        fabrics = await work.fabrics(bench.db)
        bench.paused = any(f.id == self._fabric.id and f.admin_state != "active" for f in fabrics)
        room = GOALS_AT_WORK_MAX - len(self._goals)
        if room <= 0:
            return
        due = await work.due(bench.db, bench.lease.owned, busy=list(self._goals), work_max=min(room, WORK_MAX))
        for goal in due:
            operation_id, allocation_id = UUID(goal["id"]), goal["allocation_id"]
            if allocation_id not in self._allocations:
                self._allocations.add(allocation_id)
                with about(**{name: goal[of] for name, of in SUBJECT.items()}):
                    self._goals[operation_id] = asyncio.create_task(self._advance(operation_id, allocation_id))

    async def _set_back(self, operation_id: UUID, error: Exception) -> None:
        """What always raises must not spin: it is an attempt, and the attempt cap ends it."""
        bench = self._bench
        try:
            await work.postpone(
                bench.db,
                bench.lease.owned,
                operation_id=operation_id,
                after_s=bench.pace.backoff_s_max,
                reason=f"failed in a way that was not foreseen: {error!r}"[:200],
                attempt=1,
            )
        except EpochLostError:
            bench.lease.lost.set()
        except FabricError as why:
            log.warning("goal not set back", extra={"why": str(why)})

    async def _advance(self, operation_id: UUID, allocation_id: str) -> None:
        try:
            await advance(self._bench, operation_id)
        except EpochLostError:
            self._bench.lease.lost.set()
        except FabricError as error:
            log.warning("goal not advanced", extra={"why": str(error)})
        except Exception as error:
            log.exception("goal not advanced")
            await self._set_back(operation_id, error)
        finally:
            self._goals.pop(operation_id, None)
            self._allocations.discard(allocation_id)
            self._wake()
