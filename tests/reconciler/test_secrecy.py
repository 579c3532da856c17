"""What one tenant wrote is never read by the next: real bytes, through the rack, as the hosts themselves see them."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from fabric_manager.domain.allocation import Allocation
from fabric_manager.domain.errors import Code, FabricError
from fabric_manager.domain.lifecycle import Phase
from fabric_manager.domain.units import GiB, MiB
from fabric_manager.southbound.simulator.codes import Opcode
from fabric_manager.southbound.simulator.control import RackControlError
from fabric_manager.southbound.simulator.faults import FaultKind
from fabric_manager.southbound.simulator.supervise import start_or_adopt
from fabric_manager.store.database import Database
from tests.reconciler.small import (
    DCD,
    DEVICES,
    MLD,
    SERIALS,
    SIZE_BYTES,
    a_small_system,
    claimed,
    discovered,
    rows,
    slow_rack,
    violations,
)
from tests.systems import FAST, System, eventually

POOLS = pytest.mark.parametrize("pool", [MLD, DCD])
SECRET = b"the first tenant's secret"
PLACES = (0, 300 * MiB, GiB - len(SECRET))  # within the memory: its first byte, the middle, its last byte


@pytest.fixture
async def system(db: Database, identities: Callable[[], UUID], tmp_path: Path) -> AsyncIterator[System]:
    """Erases a GiB in half a second: long enough to be interrupted. Each test brings its own reconcilers."""
    rack_file = slow_rack(tmp_path, erases="2 GiB")
    async with a_small_system(db, identities, directory=tmp_path, rack_file=rack_file) as ready:
        async with ready.reconciling():
            await discovered(ready)
        yield ready


async def interface(system: System, allocation: Allocation) -> tuple[int, int]:
    """The LD and the address at which the host finds the memory."""
    segment = allocation.segments[0]
    if segment.logical_device is not None:
        return segment.logical_device, 0
    found = await rows(system.db, "SELECT dpa_space FROM segment WHERE id = :id", id=segment.id)
    assert segment.extents is not None
    return found[0]["dpa_space"], segment.extents[0].start_bytes


async def write(system: System, allocation: Allocation) -> None:
    ld_id, base = await interface(system, allocation)
    serial = SERIALS[allocation.segments[0].device]
    assert allocation.host is not None
    for place in PLACES:
        await system.control.write(allocation.host, serial, ld_id=ld_id, address=base + place, data=SECRET)


async def read(system: System, allocation: Allocation) -> list[bytes]:
    ld_id, base = await interface(system, allocation)
    serial = SERIALS[allocation.segments[0].device]
    assert allocation.host is not None
    return [
        await system.control.read(allocation.host, serial, ld_id=ld_id, address=base + place, size_bytes=len(SECRET))
        for place in PLACES
    ]


async def used(system: System, pool: str, *, tenant: str = "first", host: str = "node-0") -> Allocation:
    """Bound to a tenant that has written to it."""
    key = f"{tenant}-{pool}"
    await claimed(system, key, pool, tenant=tenant, host=host)
    bound = await system.report(await system.reaches(key, Phase.BOUND), "online")
    await write(system, bound)
    assert await read(system, bound) == [SECRET] * len(PLACES)
    return bound


async def given_up(system: System, allocation: Allocation) -> None:
    await system.release(allocation.key)
    await system.report(allocation, "offline")


async def everything_is_clean_for_the_next(system: System, pool: str) -> None:
    """The next tenant takes all of the device, so that the same bytes are among what it gets, and reads zeros."""
    serial = SERIALS[DEVICES[pool]]
    free = (await rows(system.db, "SELECT free_bytes FROM device WHERE serial = :serial", serial=serial))[0]
    keys = [f"second-{n}" for n in range(free["free_bytes"] // SIZE_BYTES)]
    for n, key in enumerate(keys):
        await claimed(system, key, pool, tenant="second", host=f"node-{1 + n % 2}")
    for key in keys:
        bound = await system.reaches(key, Phase.BOUND)
        assert await read(system, bound) == [bytes(len(SECRET))] * len(PLACES), f"{key} reads another tenant's bytes"
    assert await violations(system.db) == []


@POOLS
async def test_memory_is_erased_between_two_tenants(system: System, pool: str) -> None:
    async with system.reconciling():
        first = await used(system, pool)
        await given_up(system, first)
        await system.reaches(first.key, Phase.RELEASED)
        await everything_is_clean_for_the_next(system, pool)


@POOLS
async def test_nobody_gets_it_while_it_is_being_erased(system: System, pool: str) -> None:
    async with system.reconciling():
        first = await used(system, pool)
        await given_up(system, first)
        await system.reaches(first.key, Phase.SANITIZING)
        ld_id, base = await interface(system, first)
        with pytest.raises(RackControlError):
            await system.control.read("node-0", SERIALS[DEVICES[pool]], ld_id=ld_id, address=base, size_bytes=1)
        await everything_is_clean_for_the_next(system, pool)  # of what is left
        await system.reaches(first.key, Phase.RELEASED)


@POOLS
async def test_a_reservation_that_changes_its_host_is_erased_in_between(system: System, pool: str) -> None:
    async with system.reconciling():
        first = await used(system, pool)
        await system.unbind(first.key)
        await system.report(first, "offline")
        await system.reaches(first.key, Phase.RESERVED)
        await system.bind(first.key, "node-1")
        moved = await system.reaches(first.key, Phase.BOUND)
        assert moved.host == "node-1"
        assert await read(system, moved) == [bytes(len(SECRET))] * len(PLACES)


@POOLS
async def test_a_reconciler_cancelled_while_erasing_leaves_nothing_behind(system: System, pool: str) -> None:
    async with system.reconciling(owner="first/1"):
        first = await used(system, pool)
        await given_up(system, first)
        await system.reaches(first.key, Phase.SANITIZING)
        if pool == MLD:
            serial = SERIALS[DEVICES[pool]]
            await eventually(
                system.control.journal,
                lambda sent: any(e["op"] == "4400" and e["component"] == serial for e in sent),
            )
    assert (await rows(system.db, "SELECT count(*) AS n FROM evidence"))[0]["n"] == 0
    async with system.reconciling(owner="second/1"):
        await system.reaches(first.key, Phase.RELEASED)
        await everything_is_clean_for_the_next(system, pool)


@POOLS
async def test_a_rack_killed_while_erasing_begins_again_and_is_believed_only_then(
    system: System, pool: str, tmp_path: Path
) -> None:
    async with system.reconciling():
        first = await used(system, pool)
        await given_up(system, first)
        await system.reaches(first.key, Phase.SANITIZING)
        await system.control.set_speed(0.2)  # kept: what is left takes long enough to be seen again
        await system.rack.kill()
        system.rack = await start_or_adopt(
            state_dir=system.rack.state_dir, rack_file=slow_rack(tmp_path, erases="2 GiB")
        )
        if pool == DCD:  # the first look at it in its new life, before it goes on at its usual speed
            watched = "SELECT 1 FROM operation_step WHERE step = 'watch' AND outcome = 'done'"
            await eventually(lambda: rows(system.db, watched), bool)
        await system.control.set_speed(1)
        assert (await system.reaches(first.key, Phase.RELEASED, Phase.QUARANTINED)).phase is Phase.RELEASED
        await everything_is_clean_for_the_next(system, pool)


@POOLS
async def test_erasures_that_fail_are_no_erasures(system: System, pool: str) -> None:
    opcode = Opcode.SANITIZE if pool == MLD else Opcode.RELEASE_CAPACITY
    await system.control.add_fault(FaultKind.SANITIZE_FAIL, opcode=opcode, count=2)
    async with system.reconciling():
        first = await used(system, pool)
        await given_up(system, first)
        await system.reaches(first.key, Phase.RELEASED)
        await system.control.set_health(DEVICES[pool], "ok")
        await eventually(
            lambda: rows(system.db, "SELECT name FROM device WHERE health <> 'ok'"), lambda unwell: not unwell
        )
        await everything_is_clean_for_the_next(system, pool)


async def test_lost_memory_whose_binding_fails_is_erased_before_it_is_free(system: System) -> None:
    """Found by this test: it went from lost over binding to failed, and so to the next tenant as it was."""
    async with system.reconciling():
        first = await used(system, MLD)
        await system.control.restart("sw-0", volatile=True)
        await system.report(await system.reaches(first.key, Phase.LOST), "offline")
        await system.control.add_fault(FaultKind.REFUSE, opcode=Opcode.BIND, count=3)
        await system.bind(first.key, "node-0")
        await system.reaches(first.key, Phase.FAILED)
        await everything_is_clean_for_the_next(system, MLD)


@POOLS
async def test_a_binding_given_up_after_the_host_may_have_used_it_is_erased(system: System, pool: str) -> None:
    """The component restarts and forgets right after it did what it was told; then it refuses."""
    opcode, component = (Opcode.BIND, "sw-0") if pool == MLD else (Opcode.ADD_CAPACITY, "dcd-0")
    async with system.reconciling():
        await claimed(system, "warm-up", pool, host="node-0")  # the standing attachment of a DCD is there afterwards
        await system.reaches("warm-up", Phase.BOUND)
        await system.release("warm-up")
        await system.reaches("warm-up", Phase.RELEASED)
        await system.control.add_fault(FaultKind.RESTART, opcode=opcode, component=component, volatile=True)
        await claimed(system, "unlucky", pool, host="node-0")
        await eventually(system.control.faults, lambda faults: not faults["rules"])
        await system.control.add_fault(FaultKind.REFUSE, opcode=opcode, count=None)
        ended = await system.reaches("unlucky", Phase.FAILED, Phase.QUARANTINED, Phase.BOUND)
        await system.control.put_faults()
        unproven = await rows(
            system.db,
            "SELECT s.id FROM segment s WHERE s.id = :id AND s.phase = 'failed' AND NOT EXISTS ("
            " SELECT FROM evidence e WHERE e.segment_id = s.id)",
            id=ended.segments[0].id,
        )
        assert unproven == []


async def test_a_dcd_that_forgot_its_extents_gives_nobody_their_contents(system: System) -> None:
    """It chooses itself whose blocks it hands out next, so it is cordoned: no counter could hold them back."""
    async with system.reconciling():
        first = await used(system, DCD)
        await system.control.restart("dcd-0", volatile=True)
        await system.reaches(first.key, Phase.LOST)
        with pytest.raises(FabricError) as refused:
            await claimed(system, "second", DCD, tenant="second", host="node-1")
        assert refused.value.code is Code.NO_MATCHING_DEVICE
        await system.release(first.key)
        await system.reaches(first.key, Phase.QUARANTINED)
        state = await rows(system.db, "SELECT admin_state FROM device WHERE serial = :serial", serial=SERIALS["dcd-0"])
        assert state == [{"admin_state": "cordoned"}]


async def test_the_last_tenants_bytes_never_show_through_many_reuses(system: System) -> None:
    """Small pieces of a DCD, taken and given back in another order each time: the device cuts and joins its blocks."""
    system.pace = replace(FAST, scan_s=1.0)
    piece_bytes = 512 * MiB
    async with system.reconciling():
        for turn in range(4):
            keys = [f"turn-{turn}-{n}" for n in range(5)]
            for n, key in enumerate(keys):
                await claimed(system, key, DCD, size_bytes=piece_bytes, tenant=f"tenant-{n}", host=f"node-{n % 3}")
            for n, key in enumerate(keys):
                bound = await system.reaches(key, Phase.BOUND)
                ld_id, base = await interface(system, bound)
                for address in (base, base + piece_bytes - 64):
                    place = {"ld_id": ld_id, "address": address}
                    assert await system.control.read(
                        f"node-{n % 3}", SERIALS["dcd-0"], size_bytes=64, **place
                    ) == bytes(64)
                    await system.control.write(f"node-{n % 3}", SERIALS["dcd-0"], data=key.encode().ljust(64), **place)
            for n in (1, 4, 0, 3, 2) if turn % 2 else (2, 0, 4, 1, 3):
                await system.release(keys[n])
            for key in keys:
                await system.reaches(key, Phase.RELEASED)
