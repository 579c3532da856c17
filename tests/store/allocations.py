"""An allocation's life without hardware: the reconciler's reports are given by the test."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from fabric_manager.allocator import bind as binding
from fabric_manager.allocator.claim import Claimed, claim
from fabric_manager.allocator.node_state import NodeReport, report_node_state
from fabric_manager.allocator.release import release
from fabric_manager.domain.actor import Principal, Role
from fabric_manager.domain.allocation import Allocation, Order
from fabric_manager.domain.lifecycle import TERMINAL, Bucket, Event, Goal, Phase, allocation_phase, bucket
from fabric_manager.domain.units import GiB
from fabric_manager.store import allocations, invariants, work
from fabric_manager.store.database import Database
from fabric_manager.store.work import Owned
from tests.racks import ACTOR

Identities = Callable[[], UUID]
EVERYBODY = Principal(name="test", role=Role.ADMIN)
SANITIZED = {
    Goal.RELEASE: Event.SANITIZED_RELEASE,
    Goal.UNDO: Event.SANITIZED_UNDO,
    Goal.UNBIND: Event.SANITIZED_UNBIND,
}


@dataclass(frozen=True)
class Life:
    """The verbs, with everything a test is not about filled in. `owned` is the right to drive the one fabric."""

    db: Database
    identities: Identities
    owned: Owned

    async def ask(self, key: str, **fields: Any) -> Claimed:
        safe: dict[str, Any] = {"tenant": "analytics", "size_bytes": 64 * GiB}
        order = Order(key=key, **safe | fields)
        return await claim(self.db, order, actor=ACTOR, identities=self.identities, tenants_auto_create=True)

    async def claim(self, key: str, **fields: Any) -> Allocation:
        return (await self.ask(key, **fields)).allocation

    async def get(self, key: str) -> Allocation:
        async with self.db.snapshot() as tx:
            found = await allocations.get(tx, key, seen_by=EVERYBODY)
        assert found is not None, key
        return found

    async def bind(self, key: str, host: str = "node-0", deadline_s: int = 300) -> Allocation:
        return await binding.bind(
            self.db, key=key, host=host, deadline_s=deadline_s, actor=ACTOR, identities=self.identities
        )

    async def unbind(self, key: str) -> Allocation:
        return await binding.unbind(self.db, key=key, actor=ACTOR, identities=self.identities)

    async def release(self, key: str, scope: str = "any") -> Allocation | None:
        return await release(self.db, key=key, tombstone_scope=scope, actor=ACTOR, identities=self.identities)

    async def report(
        self, key: str, phase: str, *, boot_id: str = "boot-1", epoch: int | None = None, **facts: Any
    ) -> Allocation:
        segments = (await self.get(key)).segments
        reports = [NodeReport(segment_id=segment.id, phase=phase, **facts) for segment in segments]
        return await report_node_state(self.db, key=key, boot_id=boot_id, epoch=epoch, reports=reports, actor=ACTOR)

    async def settle(
        self, key: str, event: Event, *, from_phase: Phase | None = None, failure: dict[str, Any] | None = None
    ) -> bool:
        """What the reconciler would say of the key's one segment."""
        (segment,) = (await self.get(key)).segments
        return await work.settle(
            self.db,
            self.owned,
            segment_id=segment.id,
            from_phase=from_phase or segment.phase,
            event=event,
            failure=failure,
            undo_operation_id=self.identities(),
            actor=ACTOR,
        )

    async def prove(self, key: str, method: str = "completion") -> None:
        """Store evidence that the segment was erased."""
        found = await self.get(key)
        assert found.operation is not None
        number = await work.begin_step(
            self.db,
            self.owned,
            operation_id=found.operation.id,
            segment_id=found.segments[0].id,
            step="sanitize",
            component="serial-mld-0",
            intent={},
        )
        assert number is not None
        await work.end_step(
            self.db,
            self.owned,
            operation_id=found.operation.id,
            number=number,
            outcome="done",
            observed={},
            frames=[],
            evidence={"id": self.identities(), "method": method, "read_back": {}},
            attempt=1,
        )

    async def bound(self, key: str, **fields: Any) -> Allocation:
        await self.claim(key, **({"host": "node-0"} | fields))
        assert await self.settle(key, Event.BIND_READ_BACK)
        return await self.get(key)

    async def online(self, key: str, **fields: Any) -> Allocation:
        await self.bound(key, **fields)
        return await self.report(key, "online")

    async def erased(self, key: str) -> None:
        """From releasing to where the goal ends: read back as gone, proven clean."""
        assert await self.settle(key, Event.GONE)
        await self.prove(key)
        assert await self.settle(key, SANITIZED[(await self.get(key)).goal])

    async def in_phase(self, key: str, phase: Phase, **fields: Any) -> Allocation:
        """A new allocation that was led to `phase`."""
        match phase:
            case Phase.RESERVED:
                await self.claim(key, **fields)
            case Phase.BINDING:
                await self.claim(key, **({"host": "node-0"} | fields))
            case Phase.BOUND:
                await self.bound(key, **fields)
            case Phase.ONLINE:
                await self.online(key, **fields)
            case Phase.RELEASE_BLOCKED:
                await self.online(key, **fields)
                await self.release(key)
            case Phase.RELEASING:
                await self.bound(key, **fields)
                await self.release(key)
            case Phase.SANITIZING:
                await self.in_phase(key, Phase.RELEASING, **fields)
                await self.settle(key, Event.GONE)
            case Phase.RELEASED:
                await self.claim(key, **({"bind": False} | fields))
                await self.release(key)
            case Phase.FAILED:
                await self.claim(key, **({"host": "node-0"} | fields))
                await self.settle(key, Event.BIND_UNTOUCHED, failure={"code": "switch_busy", "detail": "refused"})
            case Phase.LOST:
                await self.bound(key, **fields)
                await self.settle(key, Event.GONE)
            case Phase.QUARANTINED:
                await self.bound(key, **fields)
                await self.settle(key, Event.IDENTITY_CHANGED)
        found = await self.get(key)
        assert found.phase is phase
        return found

    async def sequence(self) -> int:
        head = await work.sequence_events(self.db, batch_max=10_000)
        assert head is not None
        return head

    async def column(self, query: str, **facts: Any) -> list[Any]:
        async with self.db.transaction() as tx:
            return list((await tx.execute(sa.text(query), facts)).scalars())

    async def run(self, statement: str, **facts: Any) -> None:
        async with self.db.transaction() as tx:
            await tx.execute(sa.text(statement), facts)

    async def sums_are_right(self) -> None:
        """Every counter is the sum of what it counts, worked out here again; no promise of the product is broken."""
        async with self.db.snapshot() as tx:
            devices = (await tx.execute(sa.text("SELECT * FROM device"))).mappings().all()
            segments = (await tx.execute(sa.text("SELECT * FROM segment"))).mappings().all()
            lds = (await tx.execute(sa.text("SELECT * FROM logical_device"))).mappings().all()
            held = (await tx.execute(sa.text("SELECT * FROM allocation"))).mappings().all()
            tenants = (await tx.execute(sa.text("SELECT * FROM tenant"))).mappings().all()
            checks = await invariants.check_all(tx)
        used: defaultdict[tuple[int, Bucket], int] = defaultdict(int)
        for segment in segments:
            used[segment["device_no"], bucket(Phase(segment["phase"]))] += segment["size_bytes"]
        live_lds = {(s["device_no"], s["ld_id"]) for s in segments if Phase(s["phase"]) not in TERMINAL}
        for device in devices:
            number = device["number"]
            counted = {name: device[f"{name}_bytes"] for name in Bucket}
            assert sum(counted.values()) == device["capacity_bytes"]
            for name in (Bucket.ALLOCATED, Bucket.SANITIZING, Bucket.QUARANTINED):
                assert counted[name] == used[number, name], (device["name"], name)
            free = [ld["ld_id"] for ld in lds if ld["device_no"] == number and (number, ld["ld_id"]) not in live_lds]
            assert device["free_lds"] == sum(1 << ld_id for ld_id in free), device["name"]
        for tenant in tenants:
            theirs = [a for a in held if a["tenant_id"] == tenant["id"] and Phase(a["phase"]) not in TERMINAL]
            assert tenant["used_bytes"] == sum(a["granted_bytes"] for a in theirs)
            assert tenant["used_allocations"] == len(theirs)
        for allocation in held:
            phases = [Phase(s["phase"]) for s in segments if s["allocation_id"] == allocation["id"]]
            unreleased = [phase for phase in phases if phase is not Phase.RELEASED]
            assert Phase(allocation["phase"]) is allocation_phase(unreleased)
        assert [violation for checked in checks for violation in checked.violations] == []
