"""A rack in its own process and the reconciler in ours, over one database. For tests below HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import yaml

from fabric_manager.allocator.bind import bind, unbind
from fabric_manager.allocator.claim import claim
from fabric_manager.allocator.inventory import declare
from fabric_manager.allocator.node_state import NodeReport, report_node_state
from fabric_manager.allocator.release import release
from fabric_manager.domain.actor import Actor, Principal, Role
from fabric_manager.domain.allocation import Allocation, Order
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB
from fabric_manager.reconciler.housekeeping import keep_house, sequence
from fabric_manager.reconciler.loop import Reconciler
from fabric_manager.reconciler.pace import Pace
from fabric_manager.reconciler.turns import Wake
from fabric_manager.southbound.driver import FabricDriver, FrameSink
from fabric_manager.southbound.registry import open_driver
from fabric_manager.southbound.simulator.control import RackControl
from fabric_manager.southbound.simulator.keeping import is_held
from fabric_manager.southbound.simulator.supervise import RackProcess, start_or_adopt
from fabric_manager.store import allocations
from fabric_manager.store.database import Database
from fabric_manager.store.work import KnownFabric

ACTOR = Actor(name="test")
SEES_ALL = Principal(name="test", role=Role.ADMIN)
EXAMPLE = Path(__file__).parent.parent / "examples" / "rack.yaml"
FAST = Pace(ttl_s=2.0, renew_s=0.1, command_s=0.5, scan_s=0.3, poll_s=0.05, backoff_s=0.01, backoff_s_max=0.2)
Answer = TypeVar("Answer")


async def eventually(
    look: Callable[[], Awaitable[Answer]], good: Callable[[Answer], bool], *, deadline_s: float = 20.0
) -> Answer:
    """What `look` finds once it is `good`; fails with what it found last."""
    ends = time.monotonic() + deadline_s
    while True:
        found = await look()
        if good(found):
            return found
        assert time.monotonic() < ends, f"still {found!r} after {deadline_s} s"
        await asyncio.sleep(0.02)


@dataclass(kw_only=True)
class System:
    """The verbs, and the rack's other side."""

    db: Database
    rack: RackProcess
    control: RackControl
    identities: Callable[[], UUID]
    wake: Wake = field(default_factory=Wake)
    pace: Pace = FAST

    async def claim(self, key: str, **fields: Any) -> Allocation:
        wish = {"tenant": "analytics", "size_bytes": 64 * GiB, "pool": "high-performance"} | fields
        order = Order(key=key, **wish)
        claimed = await claim(self.db, order, actor=ACTOR, identities=self.identities, tenants_auto_create=True)
        self.wake()
        return claimed.allocation

    async def bind(self, key: str, host: str, *, deadline_s: int = 300) -> Allocation:
        allocation = await bind(
            self.db, key=key, host=host, deadline_s=deadline_s, actor=ACTOR, identities=self.identities
        )
        self.wake()
        return allocation

    async def unbind(self, key: str) -> Allocation:
        allocation = await unbind(self.db, key=key, actor=ACTOR, identities=self.identities)
        self.wake()
        return allocation

    async def release(self, key: str) -> Allocation | None:
        allocation = await release(self.db, key=key, tombstone_scope="any", actor=ACTOR, identities=self.identities)
        self.wake()
        return allocation

    async def report(self, allocation: Allocation, phase: str, *, boot_id: str = "boot-1") -> Allocation:
        reports = [NodeReport(segment_id=segment.id, phase=phase) for segment in allocation.segments]
        answer = await report_node_state(
            self.db, key=allocation.key, boot_id=boot_id, epoch=None, reports=reports, actor=ACTOR
        )
        self.wake()
        return answer

    async def get(self, key: str) -> Allocation | None:
        async with self.db.snapshot() as tx:
            return await allocations.get(tx, key, seen_by=SEES_ALL)

    async def reaches(self, key: str, *phases: Phase, deadline_s: float = 20.0) -> Allocation:
        found = await eventually(
            lambda: self.get(key), lambda a: a is not None and a.phase in phases, deadline_s=deadline_s
        )
        assert found is not None
        return found

    @asynccontextmanager
    async def reconciling(self, *, owner: str = "test/1") -> AsyncIterator[None]:
        """The reconciler and the sequencer, until the block ends."""

        async def connect(fabric: KnownFabric, frames: FrameSink) -> FabricDriver:
            return await open_driver(
                fabric.driver,
                fabric.endpoint,
                frames=frames,
                timeout_s=self.pace.command_s,
                now=lambda: datetime.now(UTC),
            )

        reconciler = Reconciler(
            self.db,
            owner=owner,
            open_driver=connect,
            identities=self.identities,
            wake=self.wake,
            pace=self.pace,
        )
        tasks = [
            asyncio.create_task(reconciler.run()),
            asyncio.create_task(sequence(self.db, self.wake, self.pace)),
            asyncio.create_task(keep_house(self.db, self.wake, self.pace)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def inventory_of(rack_file: Path) -> dict[str, Any]:
    inventory: dict[str, Any] = yaml.safe_load(rack_file.read_text())["inventory"]
    return inventory


@asynccontextmanager
async def a_system(
    db: Database, identities: Callable[[], UUID], *, directory: Path, rack_file: Path = EXAMPLE
) -> AsyncIterator[System]:
    """The example rack, running; nothing is discovered before `reconciling`."""
    rack = await start_or_adopt(state_dir=directory / "rack", rack_file=rack_file)
    control = RackControl(directory / "rack")
    inventory = inventory_of(rack_file)
    inventory["fabrics"] = [fabric | {"endpoint": rack.endpoint} for fabric in inventory["fabrics"]]
    await declare(db, inventory, actor=ACTOR, identities=identities)
    try:
        yield System(db=db, rack=rack, control=control, identities=identities)
    finally:
        await control.close()
        await rack.stop()
        if is_held(directory / "rack"):  # a test started another one in its place
            await (await start_or_adopt(state_dir=directory / "rack", rack_file=rack_file)).stop()
