"""Compare hardware with the database: discover what is new, and say what is gone."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from fabric_manager.domain.actor import RECONCILER, Actor
from fabric_manager.domain.lifecycle import Event, Phase
from fabric_manager.reconciler.advance import Bench
from fabric_manager.reconciler.observe import observe
from fabric_manager.reconciler.plan import present
from fabric_manager.reconciler.wanted import wanted_of
from fabric_manager.southbound.driver import DeviceFacts, SwitchFacts, VppbState
from fabric_manager.store import work

log = logging.getLogger(__name__)

ACTOR = Actor(name=RECONCILER, cause="scan")


class Scanner:
    """Keeps what it last wrote, so that a scan that finds nothing new writes nothing."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._written: dict[str, SwitchFacts | DeviceFacts] = {}

    async def scan(self) -> None:
        """One pass over the whole fabric. Raises DriverError, EpochLostError and FabricError (database)."""
        bench = self._bench
        inventory = await bench.driver.inventory()
        for switch in inventory.switches:
            await self._write(switch, self._discover_switch)
        for device in inventory.devices:
            await self._write(device, self._discover_device)
        await work.set_fabric_state(bench.db, bench.lease.owned, state="up", reason=None, actor=ACTOR)
        for segment in await work.to_scan(bench.db, bench.lease.owned):
            await self._compare(segment)

    async def _write(self, facts: Any, discover: Callable[[Any], Any]) -> None:
        if self._written.get(facts.serial) != facts:
            await discover(facts)
            self._written[facts.serial] = facts

    async def _discover_switch(self, facts: SwitchFacts) -> None:
        bench = self._bench
        ids = [bench.identities() for _ in range(len(facts.ports) + len(facts.vcs))]
        await work.discover_switch(
            bench.db, bench.lease.owned, switch=asdict(facts), new_id=bench.identities(), ids=ids, actor=ACTOR
        )

    async def _discover_device(self, facts: DeviceFacts) -> None:
        bench = self._bench
        body = asdict(facts) | {"capabilities": sorted(facts.capabilities)}
        ids = [bench.identities() for _ in facts.lds]
        await work.discover_device(
            bench.db, bench.lease.owned, device=body, new_id=bench.identities(), ids=ids, actor=ACTOR
        )

    async def _compare(self, segment: Mapping[str, Any]) -> None:
        bench = self._bench
        wanted = wanted_of(segment)
        seen = await observe(wanted, bench.driver)
        shown = present(wanted, seen)
        if wanted.phase is Phase.LOST:
            allocation_id = UUID(segment["allocation_id"])
            await work.mark_reappeared(bench.db, allocation_id, shown=shown, actor=ACTOR)
        elif not shown and not (seen.vppb and seen.vppb.state is VppbState.BUSY):
            log.warning("memory is gone from hardware", extra={"segment_id": segment["id"]})
            await work.settle(
                bench.db,
                bench.lease.owned,
                segment_id=wanted.segment_id,
                from_phase=wanted.phase,
                event=Event.GONE,
                failure=None,
                undo_operation_id=bench.identities(),
                actor=ACTOR,
            )
