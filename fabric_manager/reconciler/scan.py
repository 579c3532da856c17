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
from fabric_manager.reconciler.plan import Seen, Wanted, present
from fabric_manager.reconciler.wanted import wanted_of
from fabric_manager.southbound.driver import (
    DeviceFacts,
    FabricDriver,
    Inventory,
    SwitchFacts,
    TaggedExtent,
    VppbState,
)
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
        owned = bench.lease.owned
        # The list first: what is bound after hardware was read must not look as if it were gone.
        segments = await work.to_scan(bench.db, owned)
        inventory = await bench.driver.inventory()
        for switch in inventory.switches:
            await self._write(switch, self._discover_switch)
        for device in inventory.devices:
            await self._write(device, self._discover_device)
        serials = [device.serial for device in inventory.devices]
        for serial in await work.devices_absent(bench.db, owned, serials=serials, actor=ACTOR):
            self._written.pop(serial, None)
        await work.set_fabric_state(bench.db, owned, state="up", reason=None, actor=ACTOR)
        view = View(inventory, bench.driver)
        for segment in segments:
            await self._compare(segment, view)

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
        ids = [bench.identities() for _ in range(max(1, len(facts.lds)))]
        await work.discover_device(
            bench.db, bench.lease.owned, device=body, new_id=bench.identities(), ids=ids, actor=ACTOR
        )

    async def _compare(self, segment: Mapping[str, Any], view: "View") -> None:
        bench = self._bench
        wanted = wanted_of(segment)
        if view.replaced(wanted):
            await self._settle(wanted, Event.IDENTITY_CHANGED)
            return
        shown = present(wanted, await view.seen(wanted))
        if wanted.phase is Phase.LOST:
            allocation_id = UUID(segment["allocation_id"])
            await work.mark_reappeared(
                bench.db, bench.lease.owned, allocation_id=allocation_id, shown=shown, actor=ACTOR
            )
        elif not shown:
            seen = await observe(wanted, bench.driver)  # looked at once more: losing memory is not said lightly
            busy = seen.vppb is not None and seen.vppb.state is VppbState.BUSY
            if not busy and not present(wanted, seen):
                forgotten = wanted.kind == "dcd" and not seen.extents
                await self._settle(wanted, Event.GONE, forgotten=forgotten)

    async def _settle(self, wanted: Wanted, event: Event, *, forgotten: bool = False) -> None:
        bench = self._bench
        log.warning("memory is not as it was bound", extra={"segment_id": str(wanted.segment_id), "event": event})
        await work.settle(
            bench.db,
            bench.lease.owned,
            segment_id=wanted.segment_id,
            from_phase=wanted.phase,
            event=event,
            failure=None,
            undo_operation_id=bench.identities(),
            actor=ACTOR,
            forgotten=forgotten,
        )


class View:
    """One reading of the fabric. Extents are read once per host interface, when first asked for."""

    def __init__(self, inventory: Inventory, driver: FabricDriver) -> None:
        self._driver = driver
        self._vppbs = {
            (switch.name, vcs.number, vppb.number): vppb
            for switch in inventory.switches
            for vcs in switch.vcs
            for vppb in vcs.vppbs
        }
        self._serials = {(device.switch, device.port): device.serial for device in inventory.devices}
        self._extents: dict[tuple[str, int], tuple[TaggedExtent, ...]] = {}

    def replaced(self, wanted: Wanted) -> bool:
        """Does another device hang where the segment's device was?"""
        place = wanted.place
        return place is not None and self._serials.get((place.switch, place.port), wanted.serial) != wanted.serial

    async def seen(self, wanted: Wanted) -> Seen:
        place = wanted.place
        if place is None:
            return Seen()
        vppb = self._vppbs.get((place.switch, place.vcs, place.vppb))
        if wanted.kind != "dcd" or place.ld_id is None:
            return Seen(vppb=vppb)
        interface = (wanted.serial, place.ld_id)
        if interface not in self._extents:
            self._extents[interface] = await self._driver.read_extents(wanted.serial, host_ld=place.ld_id)
        mine = tuple(extent for extent in self._extents[interface] if extent.tag == wanted.segment_id)
        return Seen(vppb=vppb, extents=mine)
